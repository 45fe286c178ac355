//! Benchmark of the upload to Cassandra, with one node on the same machine: samples per second, and the effect of an
//! outage of the node. `cargo xtask bench cassandra` runs it.
//!
//! Arguments: number of rounds (default 3), length of the outage in seconds (default 60). `TAHTI_CASSANDRA` and
//! `TAHTI_JAVA` are as for the tests.

use base::Cluster;
use cassandra::{Archive, Upload};
use segment::Sample;
use segment::rows::About;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::{Config, Folder, Logger, Reader as _, SignalId};
use testkit::cassandra::Node;

/// Maximum time for each wait.
const LONG: Duration = Duration::from_secs(600);
/// Timestamp of the first samples, in nanoseconds since 1970.
const T0: i64 = 1_795_000_000_000_000_000;
/// Samples logged per second during the outage.
const RATE: u64 = 10_000;

/// A load: `samples` samples of `signals` signals, each with one sample every `step_ns` nanoseconds.
struct Kind {
    name: &'static str,
    signals: usize,
    step_ns: i64,
    samples: u64,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "100,000 signals, a sample a second each",
        signals: 100_000,
        step_ns: 1_000_000_000,
        samples: 3_200_000,
    },
    Kind { name: "2,000 signals, a sample in 10 s each", signals: 2_000, step_ns: 10_000_000_000, samples: 1_000_000 },
    Kind { name: "20 signals, 1,000 samples a second each", signals: 20, step_ns: 1_000_000, samples: 4_000_000 },
];

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn signals(logger: &mut Logger<Folder>, count: usize) -> Vec<SignalId> {
    (0..count).map(|number| logger.signal(&format!("S{number}"), About::default(), T0).unwrap()).collect()
}

/// Logs the samples with these numbers. Consecutive numbers belong to consecutive signals. Syncs every 10,000 samples.
fn log(logger: &mut Logger<Folder>, ids: &[SignalId], step_ns: i64, samples: std::ops::Range<u64>) {
    for number in samples {
        let (turn, which) = (number / ids.len() as u64, (number % ids.len() as u64) as usize);
        let value = (number as f64 * 0.618_033_988_75).fract();
        logger.push(ids[which], &Sample::new(T0 + turn as i64 * step_ns, value));
        if number % 10_000 == 0 {
            logger.sync(number as i64);
        }
    }
    logger.sync(0);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Logs all samples, then uploads them. Returns the samples uploaded per second, and the share of one CPU that the
/// upload used.
fn sent(place: &Place, node: &Node, kind: &Kind, round: usize) -> (f64, f64) {
    let name = format!("round{}_{round}", kind.signals);
    let folder = Folder::make(place.0.join(&name)).unwrap();
    let cluster = Cluster::new([node.address().as_str()], &name).unwrap();
    let mut logger = Logger::open(folder.clone(), Config::default(), 0).unwrap();
    let ids = signals(&mut logger, kind.signals);
    log(&mut logger, &ids, kind.step_ns, 0..kind.samples);
    let (begun, cpu) = (Instant::now(), sys::clock::process_cpu(std::process::id() as i32).unwrap());
    let upload = Upload::start(folder, cluster.clone()).unwrap();
    upload.safe_to(logger.safe_to());
    let status = upload.end(LONG);
    let took = begun.elapsed();
    let used = sys::clock::process_cpu(std::process::id() as i32).unwrap().0 - cpu.0;
    assert_eq!((status.waiting, status.samples), (0, kind.samples), "{status:?}");
    let archive = Archive::open(cluster).unwrap();
    let there: u64 = archive.names().unwrap().iter().map(|name| archive.about(name).unwrap().unwrap().count).sum();
    assert_eq!(there, kind.samples, "each sample is there once");
    drop(logger);
    std::fs::remove_dir_all(place.0.join(&name)).unwrap();
    (kind.samples as f64 / took.as_secs_f64(), used as f64 / took.as_nanos() as f64)
}

/// Logs at [`RATE`] while the node is killed and, after `away`, started again.
fn outage(place: &Place, node: &mut Node, away: Duration) {
    let folder = Folder::make(place.0.join("outage")).unwrap();
    let cluster = Cluster::new([node.address().as_str()], "outage").unwrap();
    let mut logger = Logger::open(folder.clone(), Config::default(), 0).unwrap();
    let ids = signals(&mut logger, 100);
    let upload = Upload::start(folder, cluster.clone()).unwrap();
    let begun = Instant::now();
    let mut logged = 0;
    // Maximum number of bytes that waited in the log, and maximum delay of the logging.
    let mut most = 0;
    let mut late = Duration::ZERO;
    let mut go_on = |logged: &mut u64, while_: &mut dyn FnMut() -> bool| {
        while while_() {
            let due = Duration::from_secs_f64(*logged as f64 / RATE as f64);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            log(&mut logger, &ids, 10_000_000, *logged..*logged + RATE / 10);
            *logged += RATE / 10;
            upload.safe_to(logger.safe_to());
            most = most.max(upload.status().waiting);
            late = late.max(begun.elapsed().saturating_sub(Duration::from_secs_f64(*logged as f64 / RATE as f64)));
        }
    };
    let for_ = |time: Duration| {
        let until = Instant::now() + time;
        move || Instant::now() < until
    };
    go_on(&mut logged, &mut for_(Duration::from_secs(10)));
    node.kill();
    go_on(&mut logged, &mut for_(away));
    let address = node.address();
    let starts = std::thread::scope(|scope| {
        let starts = scope.spawn(|| {
            let begun = Instant::now();
            node.again();
            begun.elapsed()
        });
        go_on(&mut logged, &mut || !starts.is_finished());
        starts.join().unwrap()
    });
    let back = Instant::now();
    // Continue until at most 3 MiB wait: the samples of the last seconds.
    go_on(&mut logged, &mut || upload.status().waiting > 3 << 20 && back.elapsed() < LONG);
    let caught_up = back.elapsed();
    let status = upload.end(LONG);
    assert_eq!((status.waiting, status.missed, status.refused), (0, 0, 0), "{status:?}");
    let archive = Archive::open(cluster).unwrap();
    let there: u64 = archive.names().unwrap().iter().map(|name| archive.about(name).unwrap().unwrap().count).sum();
    println!(
        "an outage of {} s (and {:.1} s to start again) of {address}, while {RATE} samples a second are logged",
        away.as_secs(),
        starts.as_secs_f64()
    );
    println!("  {:<58} {:>12}", "logged", logged);
    println!("  {:<58} {:>12}", "in the cluster in the end, each once", there);
    println!("  {:<58} {:>9.1} MB", "most that waited in the log", most as f64 / 1e6);
    println!("  {:<58} {:>10.1} s", "from the node's first answer until nothing old waited", caught_up.as_secs_f64());
    println!("  {:<58} {:>9.0} ms", "logging was late at most", late.as_secs_f64() * 1e3);
    assert_eq!(there, logged);
}

fn main() {
    let mut args = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("expected [ROUNDS [SECONDS]]"));
    let (rounds, away) = (args.next().unwrap_or(3).max(1) as usize, Duration::from_secs(args.next().unwrap_or(60)));
    let place = Place(std::env::temp_dir().join(format!("tahti-throughput-{}", std::process::id())));
    std::fs::create_dir_all(&place.0).unwrap();
    let mut node = Node::measured(&place.0);
    println!("one node of Cassandra on this machine, {rounds} rounds in turn, medians");
    println!("  {:<44} {:>14} {:>12}  wanted", "", "samples/s", "CPUs of ours");
    let mut found: Vec<Vec<(f64, f64)>> = vec![Vec::new(); KINDS.len()];
    for round in 0..rounds {
        for (kind, found) in KINDS.iter().zip(&mut found) {
            found.push(sent(&place, &node, kind, round));
        }
    }
    for (kind, found) in KINDS.iter().zip(found) {
        let (rates, shares): (Vec<f64>, Vec<f64>) = found.into_iter().unzip();
        let (rate, share) = (median(rates), median(shares));
        let verdict = if rate >= 50_000.0 { "yes" } else { "NO" };
        println!("  {:<44} {rate:>14.0} {share:>12.2}  ≥ 50,000: {verdict}", kind.name);
    }
    outage(&place, &mut node, away);
}
