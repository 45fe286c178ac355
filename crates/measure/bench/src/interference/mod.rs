//! `tahti bench interference`: what a task that computes loses to others that compute, and to a stream over a network; and what
//! the stream loses to them; in five settings, from none to a shield with what interferes in a guest.

mod beside;
mod iperf3;
mod link;
mod primes;
mod setting;

use crate::explained::Explained;
use crate::measure::{Interrupt, measured_cpu};
use crate::{Bench, Failed, Found, Progress, Touched, read};
use base::{CpuId, Policy, Priority};
use beside::Beside;
pub(crate) use beside::COMPUTE;
use clap::{ArgMatches, Args as _};
pub(crate) use link::STREAM;
pub(crate) use primes::PRIMES;
use report::{Figure, Good, Latency, Row, Table, Target};
use setting::{Ground, SETTINGS, Setting};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "interference",
    experiment: "OPEN-NEXT: a prime task beside 0, 70 and 100 % interference; a network stream beside computation",
    arguments: Args::augment_args,
    run,
    target: "beside full interference, times spread (p99.9/p50) by at most a fifth with a shield of what they do without; a stream keeps 98 % of its bandwidth",
    quick: &["--rounds", "4"],
    shields: false,
};

/// What a computing task and a network stream lose to others
///
/// A task counts primes on one CPU for some 1 ms, again and again, while others compute pi for none of the time, 70 % of it, or all:
/// two threads for each CPU, free to run wherever they may. The settings, each adding to the one before: plain (everybody in time sharing);
/// priorities (the task FIFO 50, the others nice 19); a shield round the task's CPU; the others in a partition of half a CPU; and, instead of
/// that, the others in guests, emulated ones that compute. The task's times are shown as measured, and as ours: without what the kernel's events
/// show to have been the host's. The stream goes over a link of 100 Mbit/s between two network namespaces of its own (root, `ip` and `tc`), alone
/// and beside 100 %, in the same settings; where iperf3 is installed, it sends over the same link in turn with it. What the
/// machine cannot have is said.
#[derive(clap::Args)]
struct Args {
    /// CPU of the prime task, and of the stream in a shield; the highest if not given
    #[arg(long, value_name = "CPU")]
    cpu: Option<CpuId>,
    /// Pieces of each condition; of the prime task 250 runs each
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=1000))]
    rounds: u32,
    /// Leave the prime task out
    #[arg(long, conflicts_with = "no_network")]
    no_primes: bool,
    /// Leave the network out
    #[arg(long)]
    no_network: bool,
    #[command(flatten)]
    touched: Touched,
}

/// The prime task's class where it is real time.
const REAL_TIME: Policy = Policy::Fifo(Priority(50));
/// Shares of the time that the interference computes, in percent.
const LEVELS: [u32; 3] = [0, 70, 100];
/// What the spread with a shield may be of that without.
const SPREAD: f64 = 0.2;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<Found, Failed> {
    let args: Args = read(matches)?;
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    let cpu = measured_cpu(args.cpu, &online)?;
    let below = primes::calibrated(cpu)?;
    let mut found = Found::default();
    found.setup.push(format!("the prime task counts the primes below {below} on CPU {cpu}"));
    let mut ground = Ground::new(&args.touched, cpu, online)?;
    let (settings, lacks) = ground.possible();
    found.notes.extend(lacks);
    let (rounds, mut done) = (args.rounds as usize, 0);
    let parts = rounds * (usize::from(!args.no_primes) + usize::from(!args.no_network));
    let mut next = |what: &str| {
        progress.at(done, parts, what);
        done += 1;
        interrupt.check()
    };
    if !args.no_primes {
        let explained = Explained::start(cpu);
        let mut all: Vec<Condition> = conditions(&settings);
        for _ in 0..rounds {
            next("primes beside interference")?;
            for one in &mut all {
                ground.enter(one.setting)?;
                let _beside = Beside::start(&ground, one.setting, one.level)?;
                let class = one.setting.class(REAL_TIME);
                one.add(primes::piece(&ground.place(), class, below, explained.as_ref().ok())?);
                interrupt.check()?;
            }
            ground.leave()?;
        }
        found.tables.extend(times(&mut all));
        found.tables.push(spread(&all));
        found.notes.extend(explained.err().map(|why| format!("what was the host's cannot be told: {why}")));
    }
    if !args.no_network {
        match link::measure(rounds, &mut ground, &settings, below, || next("a stream beside computation")) {
            Ok((tables, without)) => {
                found.tables.extend(tables);
                found.notes.extend(without.map(|why| why.to_string()));
            }
            Err(Failed::Interrupted) => return Err(Failed::Interrupted),
            Err(why) => found.notes.push(format!("the network was not measured: {why}")),
        }
    }
    ground.leave()?;
    Ok(found)
}

/// Times of runs in nanoseconds: as measured, and without what was the host's.
#[derive(Clone, Debug, Default)]
struct Times {
    raw: Vec<u64>,
    ours: Vec<u64>,
}

/// A setting, a level of interference, and what the prime task took then.
struct Condition {
    setting: Setting,
    level: u32,
    times: Times,
    /// The 99th percentile of each piece, in microseconds.
    pieces: Vec<f64>,
}

fn conditions(settings: &[Setting]) -> Vec<Condition> {
    let one = |setting, level| Condition { setting, level, times: Times::default(), pieces: Vec::new() };
    settings.iter().flat_map(|setting| LEVELS.map(|level| one(*setting, level))).collect()
}

impl Condition {
    fn add(&mut self, mut piece: Times) {
        self.times.raw.extend(&piece.raw);
        self.times.ours.extend(&piece.ours);
        self.pieces.extend(Latency::of_times(&mut piece.raw).p99().map(|p99| p99.value));
    }

    /// Its times, as measured and ours.
    fn kinds(&mut self) -> [(&'static str, &mut Vec<u64>); 2] {
        [("as measured", &mut self.times.raw), ("ours", &mut self.times.ours)]
    }
}

/// A table for each level.
fn times(all: &mut [Condition]) -> Vec<Table> {
    let mut table = |level: u32| {
        let mut table = Table::new(format!("time of the prime task beside {level} % interference"));
        for one in all.iter_mut().filter(|one| one.level == level) {
            let (word, pieces) = (one.setting.word(), std::mem::take(&mut one.pieces));
            let [(measured, raw), (ours, rest)] = one.kinds();
            table = table.row(Row::latency(format!("{word}, {measured}"), Latency::of_times(raw), pieces));
            if !rest.is_empty() {
                table = table.row(Row::beside(format!("{word}, {ours}"), Latency::of_times(rest)));
            }
        }
        table
    };
    LEVELS.map(&mut table).into_iter().collect()
}

/// Some of a condition's times.
type Which = fn(&Condition) -> &[u64];

/// How far the times at full interference lie apart, beside those without any setting. They are sorted.
fn spread(all: &[Condition]) -> Table {
    let full = |setting| all.iter().find(move |one| one.setting == setting && one.level == 100);
    let mut table =
        Table::new("spread of the prime task's time beside 100 % interference").columns("in the setting", "plain");
    let kinds: [(&str, Which); 2] = [("as measured", |one| &one.times.raw), ("ours", |one| &one.times.ours)];
    for (name, of) in [("p99.9/p50", high as fn(&[u64]) -> Option<f64>), ("the largest by the least", widest)] {
        for (kind, times) in kinds {
            let plain = full(Setting::Plain).and_then(|one| of(times(one)));
            for setting in SETTINGS.into_iter().skip(1) {
                let Some(value) = full(setting).and_then(|one| of(times(one))) else { continue };
                let row = Row::figure(format!("{name}, {}, {kind}", setting.word()), "", value).good(Good::Low);
                let row = row.against(plain.and_then(Figure::once));
                let has_target = setting >= Setting::Shield && name.starts_with("p99.9");
                table = table.row(if has_target { row.target(Target::ratio_at_most(SPREAD)) } else { row });
            }
        }
    }
    table
}

/// The 99.9th percentile by the median, where there are enough times.
fn high(sorted: &[u64]) -> Option<f64> {
    let latency = Latency::of_times(&mut sorted.to_vec());
    let [high, median] = [99.9, 50.0].map(|percent| latency.percentile(percent).map(|found| found.ns as f64));
    Some(high? / median?)
}

fn widest(sorted: &[u64]) -> Option<f64> {
    let least = *sorted.first()?;
    Some(*sorted.last()? as f64 / least.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_stands_beside_that_without_any_setting() {
        let mut all = conditions(&[Setting::Plain, Setting::Shield]);
        for one in all.iter_mut().filter(|one| one.level == 100) {
            let slow = if one.setting == Setting::Plain { 9_000_000 } else { 1_100_000 };
            let runs = (0..2000).map(|nth| if nth % 200 == 7 { slow } else { 1_000_000 });
            one.add(Times { raw: runs.collect(), ours: Vec::new() });
        }
        let tables = times(&mut all);
        assert_eq!(tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [2, 2, 2]);
        let spread = spread(&all);
        let names: Vec<&str> = spread.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["p99.9/p50, shield, as measured", "the largest by the least, shield, as measured"]);
        let [row, widest] = &spread.rows[..] else { panic!("{names:?}") };
        assert_eq!(row.ours.as_ref().map(|ours| ours.value), Some(1.1));
        assert_eq!(row.other.as_ref().map(|plain| plain.value), Some(9.0));
        assert_eq!((row.verdict, widest.verdict), (Some(report::Verdict::Reached), None));
    }
}
