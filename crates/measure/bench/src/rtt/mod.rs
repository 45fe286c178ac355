//! `tahti bench rtt`: the round trip of SPring-8's table (S1.5), test program → message server → equipment manager and
//! back, in three processes, beside futex round trips and a libzmq broker in the same run; bulk beside the top band; large
//! bodies; pairs a second.

mod direct;
mod flow;
mod parts;
mod print;
mod zmq;

use crate::fingerprint::Fingerprint;
use crate::noise::{Load, Noise};
use base::{CpuSet, DurNs, Policy};
use broker::{Client, ClientError, Sending};
use direct::Direct;
use msg::{Band, Code};
use parts::{BULK, Part, TOP, become_class, part, retry};
pub(crate) use parts::{PartArgs, run_part};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use sys::clock::mono_now;
use sys::shm::SharedWords;
use zmq::Zmq;

/// Slices of a run, so that what disturbs the machine disturbs all alike.
const SLICES: usize = 5;
/// Round trips between two pauses that let others run: a CPU without any makes the kernel stop real-time tasks.
const BURST: usize = 256;
const PAUSE: DurNs = DurNs::from_ms(1);
/// The class of what is bound and real-time.
const REAL_TIME: &str = "fifo:20";
/// Clients that send bulk.
const BULK_CLIENTS: usize = 8;

/// Round trips of messages through the server (S1.5), beside futexes and a libzmq broker
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Round trips of each kind in each case
    #[arg(long, default_value_t = 20_000)]
    rounds: usize,
    /// The CPUs to which the real-time processes are bound: one, or two where they shall wake each other; else the last
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Request–reply pairs for the throughput, 0 for none
    #[arg(long, default_value_t = 200_000)]
    pairs: usize,
    /// Only the first case: real time, unloaded
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Times of one kind, in ns.
struct Times {
    name: String,
    ns: Vec<u64>,
}

impl Times {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ns: Vec::new() }
    }

    fn at(&self, share: f64) -> Option<u64> {
        // A percentile needs as many samples as stand for it.
        let beyond = (self.ns.len() as f64 * (1.0 - share)) as usize;
        (beyond >= 1).then(|| self.ns[self.ns.len() - 1 - beyond])
    }

    fn json(&mut self) -> Value {
        self.ns.sort_unstable();
        let count = self.ns.len().max(1) as f64;
        let mean = self.ns.iter().sum::<u64>() as f64 / count;
        let spread = self.ns.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / count;
        json!({
            "name": self.name,
            "rounds": self.ns.len(),
            "min_ns": self.ns.first(),
            "median_ns": self.at(0.5),
            "mean_ns": mean as u64,
            "sd_ns": spread.sqrt() as u64,
            "p99_ns": self.at(0.99),
            "p99_9_ns": self.at(0.999),
            "p99_99_ns": self.at(0.9999),
            "max_ns": self.ns.last(),
        })
    }
}

/// A server, a manager, and the log, which is removed with them.
struct Stage {
    name: String,
    log: PathBuf,
    server: Part,
    _manager: Part,
}

impl Stage {
    /// Starts them in the class and on the CPUs of this thread, the most urgent band in `top`.
    fn start(top: Option<Policy>) -> Result<Self, String> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let log = std::env::temp_dir().join(format!("{name}.log"));
        let path = log.to_string_lossy().into_owned();
        let (band, class) = (top.map(|top| format!("{TOP}={top}")), top.map(|top| top.to_string()));
        let mut words = vec!["msg", "serve", "--no-allowance", "--name", &name, "--log", &path];
        words.extend(band.iter().flat_map(|band| ["--band", band]));
        let server = part(&words)?;
        retry(|| Client::connect(&name, "first", Band::DEFAULT))?;
        let mut words = vec!["bench", "rtt-part", "manager", &name];
        words.extend(class.iter().flat_map(|class| ["--top", class]));
        let manager = part(&words)?;
        let stage = Self { name, log, server, _manager: manager };
        for band in [Band::DEFAULT.number(), BULK, TOP] {
            let mut client = stage.client(band)?;
            retry(|| ask(&mut client))?;
        }
        Ok(stage)
    }

    fn client(&self, band: u8) -> Result<Client, String> {
        let band = Band::new(band).unwrap_or_default();
        Client::with_pool(&self.name, "test-program", band, 16 << 20).map_err(|error| error.to_string())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Only what this run wrote.
        let _ = std::fs::remove_file(&self.log);
    }
}

/// One message and its reply.
fn ask(client: &mut Client) -> Result<(), ClientError> {
    let reply = client.ask("get/bench_time/now", &Sending::default())?;
    if reply.code == Code::Ok { Ok(()) } else { Err(ClientError::Refused(format!("{}: {}", reply.code, reply.text))) }
}

/// One futex round trip: two switches from process to process.
fn ask_futex(memory: &SharedWords) {
    let words = memory.words();
    let seen = words[8].load(Ordering::Acquire);
    sys::futex::count_up(&words[0], 1);
    while words[8].load(Ordering::Acquire) == seen {
        sys::futex::wait(&words[8], seen, Some(DurNs::from_secs(1)));
    }
}

fn timed(into: &mut Times, rounds: usize, mut round: impl FnMut() -> Result<(), ClientError>) -> Result<(), String> {
    for number in 0..rounds {
        let before = mono_now();
        round().map_err(|error| error.to_string())?;
        into.ns.push((mono_now() - before).0 as u64);
        if number % BURST == BURST - 1 {
            sys::clock::sleep_until(mono_now() + PAUSE);
        }
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    let allowed = sys::sched::affinity(0).map_err(|error| error.to_string())?;
    let last = allowed.iter().last().unwrap_or_default();
    let bound = args.cpus.unwrap_or_else(|| CpuSet::single(last));
    let real_time: Policy = REAL_TIME.parse().map_err(|error| format!("{REAL_TIME}: {error}"))?;
    let sharing = sys::sched::scheduling(0).map_err(|error| error.to_string())?.policy;
    let zmq = Zmq::build();
    let peer = zmq.as_ref().ok();
    let mut cases = Vec::new();
    let all =
        [(real_time, bound, false), (real_time, bound, true), (sharing, allowed, false), (sharing, allowed, true)];
    for (class, cpus, loaded) in all.into_iter().take(if args.quick { 1 } else { all.len() }) {
        progress(&format!("{} round trips of each kind, {}", args.rounds, beside(class, &cpus, loaded)));
        cases.push(settled((&allowed, sharing), (&cpus, loaded, class), || case(args.rounds, peer))?);
    }
    let mut bulk = Value::Null;
    if !args.quick {
        // Quiet first, then with everything beside.
        let rounds = args.rounds;
        let side = |loaded| {
            progress(&format!(
                "{rounds} messages on the top band beside bulk, {}",
                beside(real_time, &allowed, loaded)
            ));
            let stage = Stage::start(Some(real_time))?;
            settled((&allowed, sharing), (&allowed, loaded, real_time), || flow::urgent(&stage, rounds, loaded, peer))
        };
        bulk = json!({ "unloaded": side(false)?, "loaded": side(true)? });
    }
    let stage = Stage::start(None)?;
    progress("bodies of several sizes");
    let bodies = flow::bodies(&stage)?;
    progress(&format!("{} pairs, one after the other and many at once", args.pairs));
    let throughput = flow::throughput(&stage, args.pairs)?;
    drop(stage);
    let first = &cases[0]["table"];
    let [futex, message, direct, libzmq] = [0, 1, 2, 3].map(|row| first[row]["median_ns"].as_f64());
    let ratio = |other: Option<f64>| Some(message? / other?);
    let report = json!({
        "bench": "rtt",
        "machine": Fingerprint::take(),
        "median_ns": message,
        "p99_ns": first[1]["p99_ns"],
        "p99_99_ns": first[1]["p99_99_ns"],
        "max_ns": first[1]["max_ns"],
        "ratio_to_futex": ratio(futex),
        "ratio_to_libzmq": ratio(libzmq),
        "ratio_to_direct": ratio(direct),
        "libzmq_missing": zmq.err(),
        "cases": cases,
        "bulk": bulk,
        "bodies": bodies,
        "throughput": throughput,
    });
    if args.json {
        println!("{report}")
    } else {
        print::report(&report)
    }
    Ok(())
}

/// Says what is measured now: on a loaded machine a part may take minutes.
fn progress(what: &str) {
    eprintln!("tahti bench rtt: {what}");
}

/// In which class, where, and beside what something is measured.
fn beside(class: Policy, cpus: &CpuSet, loaded: bool) -> String {
    format!("class {class}, CPUs {cpus}, {}", if loaded { "beside load" } else { "unloaded" })
}

/// Measures on CPUs, beside a load, in a class; all as before afterwards. Where the class is refused, says why instead.
fn settled(
    (allowed, before): (&CpuSet, Policy),
    (cpus, loaded, class): (&CpuSet, bool, Policy),
    measure: impl FnOnce() -> Result<Value, String>,
) -> Result<Value, String> {
    sys::sched::set_affinity(0, cpus).map_err(|error| error.to_string())?;
    // Before the class is taken: what is started takes it over.
    let noise: Result<Vec<Noise>, String> =
        [Load::Cpu, Load::Disk].into_iter().filter(|_| loaded).map(|load| Noise::start(load, None)).collect();
    let taken = become_class(class);
    let result = match (&noise, &taken) {
        (Err(why), _) => Err(why.clone()),
        (_, Err(why)) => Ok(json!({ "missing": why })),
        _ => measure(),
    };
    become_class(before)?;
    sys::sched::set_affinity(0, allowed).map_err(|error| error.to_string())?;
    let mut result = result?;
    result["class"] = class.to_string().into();
    result["cpus"] = cpus.to_string().into();
    result["loaded"] = loaded.into();
    Ok(result)
}

/// A line of SPring-8's table, and its peers.
fn case(rounds: usize, peer: Option<&Zmq>) -> Result<Value, String> {
    let stage = Stage::start(None)?;
    let mut client = stage.client(Band::DEFAULT.number())?;
    let memory = SharedWords::create("tahti-rtt", 16).map_err(|error| error.to_string())?;
    let handed = rustix::io::dup(memory.fd()).map_err(|error| error.to_string())?;
    let _echo = part(&["bench", "rtt-part", "futex", &std::os::fd::AsRawFd::as_raw_fd(&handed).to_string()])?;
    ask_futex(&memory);
    let mut straight = Direct::start()?;
    let names = ["two futex round trips", "message", "without the server", "libzmq ROUTER, ipc"];
    let mut table = names.map(Times::new);
    let rounds = rounds.div_ceil(SLICES);
    for _ in 0..SLICES {
        timed(&mut table[0], rounds, || {
            ask_futex(&memory);
            ask_futex(&memory);
            Ok(())
        })?;
        timed(&mut table[1], rounds, || ask(&mut client))?;
        timed(&mut table[2], rounds, || straight.ask().map_err(ClientError::Message))?;
        if let Some(peer) = peer {
            peer.rounds(rounds, 0, &mut table[3].ns)?;
        }
    }
    let shown = if peer.is_some() { 4 } else { 3 };
    Ok(json!({ "table": table[..shown].iter_mut().map(Times::json).collect::<Vec<_>>() }))
}
