//! `tahti bench clock`: cost of reading the clock, which every other figure includes.

use crate::{Bench, BenchResult, Failed, Progress, read};
use clap::{ArgMatches, Args as _};
use report::{Good, Row, Table, Target};
use sys::clock::mono_now;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "clock",
    experiment: "own: overhead of a clock reading, contained in every latency",
    arguments: Args::augment_args,
    run,
    target: "at most 50 ns per reading: a clock source that needs no system call",
    quick: &["--rounds", "20"],
    shields: false,
};

/// Cost of one reading of the clock
#[derive(clap::Args)]
struct Args {
    /// Number of measurements
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

/// Readings of a round.
const READINGS: i64 = 100_000;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let mut each = Vec::new();
    for round in 0..args.rounds {
        progress.at(round, args.rounds, "consecutive readings");
        let begun = mono_now();
        (0..READINGS).for_each(|_| {
            std::hint::black_box(mono_now());
        });
        each.push((mono_now() - begun).0 as f64 / READINGS as f64);
    }
    let row = Row::samples("a reading, median of rounds", "ns", each).good(Good::Low).target(Target::at_most(50.0));
    Ok(Table::new(format!("{READINGS} readings of the monotonic clock in each of {} rounds", args.rounds))
        .row(row)
        .into())
}
