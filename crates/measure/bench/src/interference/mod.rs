//! `tahti bench interference`: effect of computing tasks and of a network stream on a computing task, and effect of computing
//! tasks on the stream, in five settings: from none to a shield with the interference in a guest.

mod computation;
mod iperf3;
mod link;
mod primes;
mod setting;

use crate::explained::Explained;
use crate::measure::{Interrupt, measured_cpu};
use crate::{Bench, BenchResult, Failed, Progress, Touched, read};
use base::{CpuId, Policy, Priority};
use clap::{ArgMatches, Args as _};
pub(crate) use computation::COMPUTE;
use computation::{Computation, Work};
pub(crate) use link::STREAM;
pub(crate) use primes::PRIMES;
use report::{Figure, Good, Latency, Row, Table, Target};
use setting::{Ground, Setting};

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "interference",
    experiment: "OPEN-NEXT: a prime task under 0, 70 and 100 % interference; a network stream under interference",
    arguments: Args::augment_args,
    run,
    target: "under full interference, the spread of times (p99.9/p50) with a shield is at most a fifth of that without; a stream keeps 98 % of its bandwidth",
    quick: &["--rounds", "4"],
    shields: false,
};

/// Effect of interference on a computing task and on a network stream
///
/// A task repeatedly counts primes on one CPU for about 1 ms. Meanwhile two threads for each CPU, not bound to CPUs, compute pi (or Fourier transforms,
/// `--work fft`) for 0, 70 or 100 % of the time. Each setting extends the previous one: plain (all in time sharing); priorities (the task FIFO 50, the interference
/// nice 19); a shield for the task's CPU; the interference in a partition of half a CPU. The last setting has the interference in emulated
/// guests instead of the partition. The plain setting is also measured without power management: no CPU enters an idle state (`/dev/cpu_dma_latency`);
/// a shield also sets the frequency governor. Prints the task's times as measured, and as *ours*, without the host's share by the kernel's events. The
/// stream uses a link of limited rate between two temporary network namespaces (needs root, `ip` and `tc`), alone and under 100 %
/// interference, in the same settings: TCP, UDP, and SCTP if the kernel has it. A datagram that is lost, or arrives more than 1 ms after it was due,
/// misses its deadline. If iperf3 is installed, it alternates with the stream. Notes list the settings that the machine does not
/// support.
#[derive(clap::Args)]
struct Args {
    /// CPU of the prime task, and of the stream in a shield [default: the highest]
    #[arg(long, value_name = "CPU")]
    cpu: Option<CpuId>,
    /// Pieces of each condition; a piece of the prime task has 250 runs
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Skip the prime task
    #[arg(long, conflicts_with = "no_network")]
    no_primes: bool,
    /// Skip the network stream
    #[arg(long)]
    no_network: bool,
    /// Rate of the network link in Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    link: u32,
    /// Send the streams by IPv6
    #[arg(long)]
    ipv6: bool,
    /// Use two unused interfaces of this host, connected by a cable of that rate, instead of virtual ones. Afterwards they are down and
    /// without addresses
    #[arg(long, value_name = "IFACE", num_args = 2)]
    between: Option<Vec<String>>,
    /// Work of the interference
    #[arg(long, value_enum, default_value = "pi")]
    work: Work,
    #[command(flatten)]
    touched: Touched,
}

/// The prime task's real-time class.
const REAL_TIME: Policy = Policy::Fifo(Priority(50));
/// Shares of the time in which the interference computes, in percent.
const LEVELS: [u32; 3] = [0, 70, 100];
/// Maximum spread with a shield, as a share of that without.
const SPREAD: f64 = 0.2;

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: Args = read(matches)?;
    let interrupt = Interrupt::watch()?;
    let online = sys::sched::affinity(0)?;
    let cpu = measured_cpu(args.cpu, &online)?;
    let below = primes::calibrated(cpu)?;
    let mut found = BenchResult::default();
    found.setup.push(format!("the prime task counts the primes below {below} on CPU {cpu}"));
    let mut ground = Ground::new(&args.touched, cpu, online, args.work)?;
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
        let awake = sys::thread::keep_awake(None).map(drop);
        let mut all: Vec<Condition> = conditions(&settings, awake.is_ok());
        found.notes.extend(awake.err().map(|why| format!("plain, without idle states: not measured: {why}")));
        for _ in 0..rounds {
            next("primes under interference")?;
            for one in &mut all {
                ground.enter(one.setting)?;
                let _awake = one.awake.then(|| sys::thread::keep_awake(None)).transpose()?;
                let _computation = Computation::start(&ground, one.setting, one.level)?;
                let class = one.setting.class(REAL_TIME);
                one.add(primes::piece(&ground.place(), class, below, explained.as_ref().ok())?);
                interrupt.check()?;
            }
            ground.leave()?;
        }
        found.tables.extend(times(&mut all));
        found.tables.push(spread(&all));
        found.notes.extend(explained.err().map(|why| format!("the host's share is unknown: {why}")));
    }
    if !args.no_network {
        let measured = link::Link::make(&args).and_then(|link| {
            link::measure((&link, rounds), &mut ground, &settings, below, || next("a stream under interference"))
        });
        match measured {
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

/// Times of runs in nanoseconds: as measured, and without the host's share.
#[derive(Clone, Debug, Default)]
struct Times {
    raw: Vec<u64>,
    ours: Vec<u64>,
}

/// A setting, a level of interference, and the times of the prime task.
struct Condition {
    setting: Setting,
    level: u32,
    /// No CPU may enter an idle state.
    awake: bool,
    times: Times,
    /// The 99th percentile of each piece, in microseconds.
    pieces: Vec<f64>,
}

/// All settings at all levels. If idle states can be prevented, the plain setting also without them.
fn conditions(settings: &[Setting], awake: bool) -> Vec<Condition> {
    let plain = awake.then_some((Setting::Plain, true));
    let all = settings.iter().map(|setting| (*setting, false)).chain(plain);
    let one = |(setting, awake)| {
        LEVELS.map(|level| Condition { setting, level, awake, times: Times::default(), pieces: Vec::new() })
    };
    all.flat_map(one).collect()
}

impl Condition {
    fn add(&mut self, mut piece: Times) {
        self.times.raw.extend(&piece.raw);
        self.times.ours.extend(&piece.ours);
        self.pieces.extend(Latency::of_times(&mut piece.raw).p99().map(|p99| p99.value));
    }

    fn word(&self) -> String {
        format!("{}{}", self.setting.word(), if self.awake { " without idle states" } else { "" })
    }

    /// Its times, as measured and ours.
    fn kinds(&mut self) -> [(&'static str, &mut Vec<u64>); 2] {
        [("as measured", &mut self.times.raw), ("ours", &mut self.times.ours)]
    }
}

/// A table for each level.
fn times(all: &mut [Condition]) -> Vec<Table> {
    let mut table = |level: u32| {
        let mut table = Table::new(format!("time of the prime task under {level} % interference"));
        for one in all.iter_mut().filter(|one| one.level == level) {
            let (word, pieces) = (one.word(), std::mem::take(&mut one.pieces));
            let [(measured, raw), (ours, rest)] = one.kinds();
            table = table.row(Row::latency(format!("{word}, {measured}"), Latency::of_times(raw), pieces));
            if !rest.is_empty() {
                table = table.row(Row::reference(format!("{word}, {ours}"), Latency::of_times(rest)));
            }
        }
        table
    };
    LEVELS.map(&mut table).into_iter().collect()
}

/// Selects times of a condition.
type Selector = fn(&Condition) -> &[u64];

/// Spread of the times at full interference, compared with the plain setting. The times are sorted.
fn spread(all: &[Condition]) -> Table {
    let mut full: Vec<&Condition> = all.iter().filter(|one| one.level == 100).collect();
    full.sort_by_key(|one| one.setting);
    let is_plain = |one: &&Condition| one.setting == Setting::Plain && !one.awake;
    let mut table =
        Table::new("spread of the prime task's time under 100 % interference").columns("in the setting", "plain");
    let kinds: [(&str, Selector); 2] = [("as measured", |one| &one.times.raw), ("ours", |one| &one.times.ours)];
    for (name, of) in [("p99.9/p50", high as fn(&[u64]) -> Option<f64>), ("maximum / minimum", widest)] {
        for (kind, times) in kinds {
            let plain = full.iter().copied().find(is_plain).and_then(|one| of(times(one)));
            for one in full.iter().filter(|one| !is_plain(one)) {
                let Some(value) = of(times(one)) else { continue };
                let row = Row::figure(format!("{name}, {}, {kind}", one.word()), "", value).good(Good::Low);
                let row = row.against(plain.and_then(Figure::once));
                let has_target = one.setting >= Setting::Shield && name.starts_with("p99.9");
                table = table.row(if has_target { row.target(Target::ratio_at_most(SPREAD)) } else { row });
            }
        }
    }
    table
}

/// The 99.9th percentile divided by the median, if there are enough times.
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
    fn a_spread_is_compared_with_the_plain_setting() {
        let mut all = conditions(&[Setting::Plain, Setting::Shield], true);
        for one in all.iter_mut().filter(|one| one.level == 100) {
            let slow = match (one.setting, one.awake) {
                (Setting::Plain, false) => 9_000_000,
                (Setting::Plain, true) => 3_000_000,
                _ => 1_100_000,
            };
            let runs = (0..2000).map(|nth| if nth % 200 == 7 { slow } else { 1_000_000 });
            one.add(Times { raw: runs.collect(), ours: Vec::new() });
        }
        let tables = times(&mut all);
        assert_eq!(tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [3, 3, 3]);
        let spread = spread(&all);
        let names: Vec<&str> = spread.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "p99.9/p50, plain without idle states, as measured",
                "p99.9/p50, shield, as measured",
                "maximum / minimum, plain without idle states, as measured",
                "maximum / minimum, shield, as measured"
            ]
        );
        let [awake, row, _, widest] = &spread.rows[..] else { panic!("{names:?}") };
        assert_eq!((awake.ours.as_ref().map(|ours| ours.value), awake.verdict), (Some(3.0), None));
        assert_eq!(row.ours.as_ref().map(|ours| ours.value), Some(1.1));
        assert_eq!(row.other.as_ref().map(|plain| plain.value), Some(9.0));
        assert_eq!((row.verdict, widest.verdict), (Some(report::Verdict::Reached), None));
    }
}
