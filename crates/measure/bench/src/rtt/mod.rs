//! `tahti bench rtt`: the round trip that SPring-8 measured, test program → message server → equipment manager and
//! back, in three processes, compared with futex round trips and a libzmq broker in the same run; bulk load on the top band;
//! large bodies; pairs per second.

mod direct;
mod flow;
mod parts;
mod role;
mod zmq;

use crate::fingerprint::Steal;
use crate::measure::handed_on;
use crate::noise::{Load, Noise};
use crate::{Bench, BenchResult, Failed, Helper, Progress, read};
use base::{CpuSet, DurNs, Policy, Priority};
use broker::{Client, ClientError, Sending};
use clap::{ArgMatches, Args as _};
use direct::Direct;
use msg::{Band, Code};
use parts::{BULK, PartArgs, Process, TOP, become_class, part, retry, run_part};
use report::{Figure, Good, Latency, Row, Table, Target};
use role::{Role, Roles};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use sys::clock::mono_now;
use sys::shm::SharedWords;
use zmq::Zmq;

/// Slices of a run, so that disturbances of the machine affect all variants equally.
const SLICES: usize = 8;
/// Round trips between two pauses: without pauses the kernel throttles real-time tasks.
const BURST: usize = 256;
const PAUSE: DurNs = DurNs::from_ms(1);
/// The peers in the comparison.
const FUTEX: &str = "two futex round trips";
const LIBZMQ: &str = "libzmq ROUTER, ipc";
/// The class of the bound real-time processes.
const REAL_TIME: Policy = Policy::Fifo(Priority(20));
/// Clients that send bulk.
const BULK_CLIENTS: usize = 8;

/// The row of the table.
pub(crate) static BENCH: Bench = Bench {
    name: "rtt",
    experiment: "SPring-8: round trips through the message server",
    arguments: Args::augment_args,
    run,
    target: "on one CPU at most 1.3 times two futex round trips, time sharing at most half of libzmq's; p99 of the top band under bulk \
             load at most twice that without; bodies at 3 GB/s; 2 million pairs per second of the server's CPU time",
    quick: &["--quick", "--rounds", "2000", "--pairs", "20000"],
    shields: false,
};

/// The other processes.
pub(crate) const PART: Helper =
    Helper { name: "rtt-part", arguments: PartArgs::augment_args, run: |matches| run_part(&read(matches)?) };

/// Maximum standard deviation of real-time round trips, as a share of their mean.
const DEVIATION_MAX: f64 = 0.1;
/// Maximum real-time round trip in medians: MADOCA II's case 1 had 1.37.
const MAXIMUM_MAX: f64 = 1.4;
/// Range of round trips near the median, in medians.
const NEAR_MEDIAN: std::ops::RangeInclusive<f64> = 0.5..=1.5;

/// Round trips of messages through the server, compared with futexes and a libzmq broker
#[derive(clap::Args)]
struct Args {
    /// Round trips of each kind in each case
    #[arg(long, default_value_t = 20_000)]
    rounds: usize,
    /// CPUs of the bound real-time processes: one, or two that wake each other [default: the last]
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Request–reply pairs of the throughput measurement, 0 to skip it
    #[arg(long, default_value_t = 200_000)]
    pairs: usize,
    /// Measure only the first case: real time, unloaded
    #[arg(long)]
    quick: bool,
    /// Measure one case alone, without load: class and CPUs of the message server (`fifo:20@1`, `other`, `fifo:20@last`)
    #[arg(long, value_name = "CLASS[@CPUS]", requires_all = ["manager", "client"])]
    server: Option<Role>,
    /// Class and CPUs of the equipment manager
    #[arg(long, value_name = "CLASS[@CPUS]", requires = "server")]
    manager: Option<Role>,
    /// Class and CPUs of the test program
    #[arg(long, value_name = "CLASS[@CPUS]", requires = "server")]
    client: Option<Role>,
}

/// Times of one kind, in ns.
#[derive(Clone)]
struct Times {
    name: String,
    ns: Vec<u64>,
    /// Between bursts: the number of times so far, and the ticks that the hypervisor has taken.
    steal: Vec<(usize, u64)>,
}

impl Times {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ns: Vec::new(), steal: Vec::new() }
    }

    fn mark_steal(&mut self) {
        self.steal.extend(Steal::read().ticks().map(|ticks| (self.ns.len(), ticks)));
    }

    /// The times of bursts during which the hypervisor took no CPU, nor during the bursts before and after: the kernel may
    /// count late. Nothing if it does not count. Call it before the times are sorted.
    fn calm(&self) -> Option<Vec<u64>> {
        let marks = &self.steal;
        let is_calm = |nth: usize| {
            let (before, after) = (nth.saturating_sub(1), (nth + 2).min(marks.len() - 1));
            marks[before].1 == marks[after].1
        };
        let bursts = (0..marks.len().saturating_sub(1)).filter(|nth| is_calm(*nth));
        let calm = bursts.flat_map(|nth| self.ns.get(marks[nth].0..marks[nth + 1].0).unwrap_or_default());
        (!marks.is_empty()).then(|| calm.copied().collect())
    }

    /// Latencies, and p99 of each slice of the run in us.
    fn found(&mut self) -> (Latency, Vec<f64>) {
        let slice = self.ns.len().div_ceil(SLICES).max(1);
        let p99 = |slice: &mut [u64]| Latency::of_times(slice).p99().map(|p99| p99.value);
        let pieces = self.ns.chunks_mut(slice).filter_map(p99).collect();
        (Latency::of_times(&mut self.ns), pieces)
    }
}

/// Latencies of ours (the first) and of the others, and the ratios of their medians, of which one may have a target.
fn table(title: String, times: &mut [Times], target: Option<(&str, f64)>) -> Table {
    let mut table = Table::new(title).columns("message", "the other");
    let mut medians = Vec::new();
    for (place, times) in times.iter_mut().enumerate() {
        let (latency, pieces) = times.found();
        medians.push(latency.percentile(50.0).map(|half| half.ns as f64 / 1e3));
        table = table.row(match place {
            0 => Row::latency(&times.name, latency, pieces),
            _ => Row::reference(&times.name, latency),
        });
    }
    for (times, median) in times.iter().zip(&medians).skip(1) {
        if let (Some(ours), Some(other)) = (medians[0], median) {
            let row =
                Row::figure(format!("median, compared with {}", times.name), "us", ours).against(Figure::once(*other));
            table = table.row(match target {
                Some((name, most)) if name == times.name => row.target(Target::ratio_at_most(most)),
                _ => row,
            });
        }
    }
    table
}

/// A server, a manager, and the log, removed on drop.
struct Stage {
    name: String,
    log: PathBuf,
    server: Process,
    _manager: Process,
}

impl Stage {
    /// Starts them in their roles, or in the class and on the CPUs of this thread; the most urgent band in class `top`.
    fn start(roles: Option<&Roles>, top: Option<Policy>) -> Result<Self, Failed> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let log = std::env::temp_dir().join(format!("{name}.log"));
        let path = log.to_string_lossy().into_owned();
        let (band, class) = (top.map(|top| format!("{TOP}={top}")), top.map(|top| top.to_string()));
        let mut words = vec!["msg", "serve", "--no-allowance", "--name", &name, "--log", &path];
        words.extend(band.iter().flat_map(|band| ["--band", band]));
        let server = role::start(roles.map(|roles| roles.server), &words)?;
        retry(|| Client::connect(&name, "first", Band::DEFAULT))?;
        let mut words = vec!["bench", "rtt-part", "manager", &name];
        words.extend(class.iter().flat_map(|class| ["--top", class]));
        let manager = role::start(roles.map(|roles| roles.manager), &words)?;
        let stage = Self { name, log, server, _manager: manager };
        for band in [Band::DEFAULT.number(), BULK, TOP] {
            let mut client = stage.client(band)?;
            retry(|| round_trip(&mut client))?;
        }
        Ok(stage)
    }

    fn client(&self, band: u8) -> Result<Client, Failed> {
        let band = Band::new(band).unwrap_or_default();
        Ok(Client::with_pool(&self.name, "test-program", band, 16 << 20)?)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Only files of this run.
        let _ = std::fs::remove_file(&self.log);
    }
}

/// One message and its reply.
fn round_trip(client: &mut Client) -> Result<(), ClientError> {
    let reply = client.ask("get/bench_time/now", &Sending::default())?;
    if reply.code == Code::Ok { Ok(()) } else { Err(ClientError::Refused(format!("{}: {}", reply.code, reply.text))) }
}

/// One futex round trip: two switches from process to process.
fn futex_round_trip(memory: &SharedWords) {
    let words = memory.words();
    let seen = words[8].load(Ordering::Acquire);
    sys::futex::count_up(&words[0], 1);
    while words[8].load(Ordering::Acquire) == seen {
        sys::futex::wait(&words[8], seen, Some(DurNs::from_secs(1)));
    }
}

fn timed<E: Into<Failed>>(
    into: &mut Times,
    rounds: usize,
    mut round: impl FnMut() -> Result<(), E>,
) -> Result<(), Failed> {
    into.mark_steal();
    for number in 0..rounds {
        let before = mono_now();
        round().map_err(E::into)?;
        into.ns.push((mono_now() - before).0 as u64);
        if number % BURST == BURST - 1 {
            into.mark_steal();
            sys::clock::sleep_until(mono_now() + PAUSE);
        }
    }
    into.mark_steal();
    Ok(())
}

fn run(matches: &ArgMatches, progress: &mut Progress) -> Result<BenchResult, Failed> {
    let args: &Args = &read(matches)?;
    let allowed = sys::sched::affinity(0)?;
    let last = allowed.iter().last().unwrap_or_default();
    let bound = args.cpus.unwrap_or_else(|| CpuSet::single(last));
    let sharing = sys::sched::scheduling(0)?.policy;
    let zmq = Zmq::build();
    let peer = zmq.as_ref().ok();
    let all =
        [(REAL_TIME, bound, false), (REAL_TIME, bound, true), (sharing, allowed, false), (sharing, allowed, true)];
    let (cases, sides): (usize, &[bool]) = if args.quick { (1, &[]) } else { (all.len(), &[false, true]) };
    if let (Some(server), Some(manager), Some(client)) = (args.server, args.manager, args.client) {
        progress.at(0, 1, "round trips");
        let roles = Roles::new([server, manager, client], &allowed);
        return one_case(args.rounds, &roles, (&allowed, sharing), zmq);
    }
    let parts = cases + sides.len() + 2;
    let (mut tables, mut notes) = (Vec::new(), Vec::new());
    for (nth, (class, cpus, loaded)) in all.into_iter().take(cases).enumerate() {
        let condition = condition(class, &cpus, loaded);
        progress.at(nth, parts, &format!("round trips, {condition}"));
        match settled((&allowed, sharing), (&cpus, loaded, class), || case(args.rounds, None, peer))? {
            Ok(mut times) => {
                // Ours first, then the futexes.
                times.swap(0, 1);
                let target = if class.is_real_time() { (FUTEX, 1.3) } else { (LIBZMQ, 0.5) };
                tables.push(table(format!("round trips, {condition}"), &mut times, Some(target)));
            }
            Err(missing) => notes.push(format!("round trips, {condition}: did not run: {missing}")),
        }
    }
    let mut p99 = Vec::new();
    for (nth, &loaded) in sides.iter().enumerate() {
        let condition = condition(REAL_TIME, &allowed, loaded);
        progress.at(cases + nth, parts, &format!("most urgent band with bulk, {condition}"));
        let stage = Stage::start(None, Some(REAL_TIME))?;
        let measure = || flow::urgent(&stage, args.rounds, loaded, peer);
        match settled((&allowed, sharing), (&allowed, loaded, REAL_TIME), measure)? {
            Ok(mut times) => {
                p99.push(times.iter_mut().map(|times| times.found().0.p99()).collect::<Vec<_>>());
                let bulk = if loaded { ", 8 clients with 64 KiB each on band 0" } else { "" };
                tables.push(table(format!("most urgent band, {condition}{bulk}"), &mut times, None));
            }
            Err(missing) => notes.push(format!("most urgent band, {condition}: did not run: {missing}")),
        }
    }
    if let [without, with] = &p99[..] {
        let mut table = Table::new("most urgent band: p99 under bulk and load").columns("loaded", "unloaded");
        for (name, (with, without)) in ["message", "libzmq"].iter().zip(with.iter().zip(without)) {
            let row = Row { ours: with.clone(), ..Row::figure(*name, "us", 0.0) }.against(without.clone());
            table = table.row(if *name == "message" { row.target(Target::ratio_at_most(2.0)) } else { row });
        }
        tables.push(table);
    }
    let stage = Stage::start(None, None)?;
    progress.at(parts - 2, parts, "large bodies");
    let bodies = flow::bodies(&stage)?;
    progress.at(parts - 1, parts, &format!("{} pairs, one at a time and many at once", args.pairs));
    let mut flows = Table::new("throughput").row(bodies);
    flows.rows.extend(flow::throughput(&stage, args.pairs)?);
    tables.push(flows);
    notes.extend(zmq.err().map(|why| why.to_string()));
    Ok(BenchResult { setup: Vec::new(), tables, notes })
}

/// Class, CPUs and load of a case, in words.
fn condition(class: Policy, cpus: &CpuSet, loaded: bool) -> String {
    format!("all {class} on CPUs {cpus}, {}", if loaded { "under cpu and disk load" } else { "without load" })
}

/// Measures on CPUs, under load, in a class; restores everything afterwards. Returns the error if the class is refused.
fn settled<T>(
    (allowed, before): (&CpuSet, Policy),
    (cpus, loaded, class): (&CpuSet, bool, Policy),
    measure: impl FnOnce() -> Result<T, Failed>,
) -> Result<Result<T, sys::Error>, Failed> {
    sys::sched::set_affinity(0, cpus)?;
    // Before the class is set: children inherit it.
    let noise: Result<Vec<Noise>, Failed> =
        [Load::Cpu, Load::Disk].into_iter().filter(|_| loaded).map(|load| Noise::start(load, None)).collect();
    let (noise, failed) = noise.map_or_else(|why| (Vec::new(), Some(why)), |noise| (noise, None));
    let result = match (failed, become_class(class)) {
        (Some(why), _) => Err(why),
        (None, Err(refused)) => Ok(Err(refused)),
        (None, Ok(())) => measure().map(Ok),
    };
    become_class(before)?;
    sys::sched::set_affinity(0, allowed)?;
    drop(noise);
    result
}

/// One case with a role for each of the three processes, as MADOCA II was measured.
fn one_case(
    rounds: usize,
    roles: &Roles,
    (allowed, before): (&CpuSet, Policy),
    zmq: Result<Zmq, Failed>,
) -> Result<BenchResult, Failed> {
    let (class, cpus) = roles.client;
    let measure = || case(rounds, Some(roles), zmq.as_ref().ok());
    let mut times = settled((allowed, before), (&cpus, false, class), measure)??;
    times.swap(0, 1);
    let (all, calm) = (times[0].ns.len(), times[0].calm());
    let mut table = table(format!("round trips, {roles}"), &mut times, None);
    let mut calm = calm.filter(|calm| !calm.is_empty()).unwrap_or_else(|| times[0].ns.clone());
    if calm.len() < all {
        let note = format!("{:.1} % excluded", 100.0 * (all - calm.len()) as f64 / all as f64);
        table = table.row(Row::reference("message, without steal", Latency::of_times(&mut calm)).note(note));
    }
    table.rows.extend(spread(&mut calm, class.is_real_time()));
    let notes = zmq.err().map(|why| why.to_string());
    Ok(BenchResult { notes: notes.into_iter().collect(), ..BenchResult::from(table) })
}

/// Deviation of round trips from mean and median, with the targets of real time. Without those near steal, if the kernel counts it.
fn spread(times_ns: &mut [u64], real_time: bool) -> Vec<Row> {
    let latency = Latency::of_times(times_ns);
    let median = latency.percentile(50.0).map_or(f64::NAN, |at| at.ns as f64);
    let by = |ns: Option<i64>, other: f64| ns.map_or(f64::NAN, |ns| ns as f64 / other);
    let near = times_ns.iter().filter(|ns| NEAR_MEDIAN.contains(&(**ns as f64 / median))).count();
    let target = |row: Row, limit: f64| if real_time { row.target(Target::at_most(limit)) } else { row };
    let mean = latency.mean_ns.map_or(f64::NAN, |ns| ns as f64);
    vec![
        target(
            Row::figure("standard deviation, relative to the mean", "", by(latency.sd_ns, mean)).good(Good::Low),
            DEVIATION_MAX,
        ),
        target(
            Row::figure("maximum, relative to the median", "", by(latency.max_ns, median)).good(Good::Low),
            MAXIMUM_MAX,
        ),
        Row::figure(
            "share between 0.5 and 1.5 times the median",
            "%",
            100.0 * near as f64 / times_ns.len().max(1) as f64,
        )
        .good(Good::High),
    ]
}

/// One case: messages through the server and the peers.
fn case(rounds: usize, roles: Option<&Roles>, peer: Option<&Zmq>) -> Result<Vec<Times>, Failed> {
    let stage = Stage::start(roles, None)?;
    let mut client = stage.client(Band::DEFAULT.number())?;
    let memory = SharedWords::create("tahti-rtt", 16)?;
    let handed = handed_on(memory.fd())?;
    let _echo = part(&["bench", "rtt-part", "futex", &std::os::fd::AsRawFd::as_raw_fd(&handed).to_string()])?;
    futex_round_trip(&memory);
    let mut direct = Direct::start()?;
    let mut table = [FUTEX, "message", "without the server", LIBZMQ].map(Times::new).to_vec();
    let rounds = rounds.div_ceil(SLICES);
    for _ in 0..SLICES {
        timed(&mut table[0], rounds, || {
            futex_round_trip(&memory);
            futex_round_trip(&memory);
            Ok::<_, Failed>(())
        })?;
        timed(&mut table[1], rounds, || round_trip(&mut client))?;
        timed(&mut table[2], rounds, || direct.round_trip())?;
        if let Some(peer) = peer {
            peer.rounds(rounds, 0, &mut table[3].ns)?;
        }
    }
    table.truncate(if peer.is_some() { 4 } else { 3 });
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_near_steal_are_excluded_from_the_deviation() {
        let times = |steal: &[(usize, u64)]| Times { ns: (0..50).collect(), steal: steal.to_vec(), ..Times::new("x") };
        assert_eq!(times(&[]).calm(), None);
        assert_eq!(times(&[(0, 7), (10, 7), (20, 7), (50, 7)]).calm(), Some((0..50).collect()));
        // The tick counted during the third burst may belong to the second; the fourth may contain the rest.
        let calm = times(&[(0, 7), (10, 7), (20, 7), (30, 8), (40, 8), (50, 8)]).calm();
        assert_eq!(calm, Some((0..10).chain(40..50).collect()));
        let mut even = vec![100; 1000];
        let rows = spread(&mut even, true);
        assert!(rows[..2].iter().all(|row| row.verdict == Some(report::Verdict::Reached)), "{rows:?}");
        even[0] = 100_000;
        let rows = spread(&mut even, true);
        assert!(rows[..2].iter().all(|row| row.verdict == Some(report::Verdict::Missed)), "{rows:?}");
    }
}
