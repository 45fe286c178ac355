//! `tahti bench clock`: what reading the clock costs, which every other figure contains.

use crate::{Bench, Failed, Found, Progress, read};
use clap::{ArgMatches, Args as _};
use report::{Good, Row, Table, Wanted};
use sys::clock::mono_now;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "clock",
    experiment: "own: what a reading of the clock adds to every latency",
    arguments: Args::augment_args,
    run,
    wanted: "a reading in at most 50 ns: a clock source that needs no system call",
    quick: &["--rounds", "20"],
    shields: false,
};

/// What one reading of the clock costs
#[derive(clap::Args)]
struct Args {
    /// How often it is measured
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

/// Readings of a round.
const READINGS: i64 = 100_000;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<Found, Failed> {
    let args: Args = read(matches)?;
    let mut each = Vec::new();
    for round in 0..args.rounds {
        progress.at(round, args.rounds, "readings one after the other");
        let begun = mono_now();
        (0..READINGS).for_each(|_| {
            std::hint::black_box(mono_now());
        });
        each.push((mono_now() - begun).0 as f64 / READINGS as f64);
    }
    let row = Row::samples("a reading, median of rounds", "ns", each).good(Good::Low).wanted(Wanted::at_most(50.0));
    Ok(Table::new(format!("{READINGS} readings of the monotonic clock in each of {} rounds", args.rounds))
        .row(row)
        .into())
}
