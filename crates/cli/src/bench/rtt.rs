//! `tahti bench rtt`: the round trip of SPring-8's table (S1.5), test program → message server → equipment manager and
//! back, in three processes, beside futex round trips and a libzmq broker in the same run.

use base::{CpuSet, DurNs};
use broker::{Client, Manager, Sending};
use msg::{Answer, Band, Code};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use sys::clock::mono_now;
use sys::shm::SharedWords;

const ZMQ: &str = include_str!("rtt_zmq.c");
/// Slices of a run, so that what disturbs the machine disturbs all alike.
const SLICES: usize = 5;
/// Requests outstanding at once where pairs a second are counted.
const WINDOW: usize = 128;
/// How long the other processes may take to begin.
const BEGIN: DurNs = DurNs::from_secs(10);

/// Round trips of messages through the server (S1.5), beside futexes and a libzmq broker
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Round trips of each kind
    #[arg(long, default_value_t = 20_000)]
    rounds: usize,
    /// The CPUs that all processes share: one, or two where they shall wake each other
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Request–reply pairs for the throughput, 0 for none
    #[arg(long, default_value_t = 200_000)]
    pairs: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A process of the measurement.
#[derive(clap::Args)]
pub(crate) struct PartArgs {
    /// `manager` or `futex`
    role: String,
    /// The server's name, or the descriptor of shared memory
    what: String,
}

/// Ends with its owner.
struct Part(Child);

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn part(words: &[&str]) -> Result<Part, String> {
    let binary = std::env::current_exe().map_err(|error| format!("where this binary lies: {error}"))?;
    let child = Command::new(binary).args(words).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    child.map(Part).map_err(|error| format!("tahti {}: {error}", words.join(" ")))
}

/// What a column of the table holds.
struct Times {
    name: &'static str,
    ns: Vec<u64>,
}

impl Times {
    fn at(&self, share: f64) -> Option<u64> {
        // A percentile needs as many samples as stand for it.
        let beyond = (self.ns.len() as f64 * (1.0 - share)) as usize;
        (beyond >= 1).then(|| self.ns[self.ns.len() - 1 - beyond])
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "rounds": self.ns.len(),
            "min_ns": self.ns.first(),
            "median_ns": self.at(0.5),
            "mean_ns": self.ns.iter().sum::<u64>() / self.ns.len().max(1) as u64,
            "p99_ns": self.at(0.99),
            "p99_9_ns": self.at(0.999),
            "p99_99_ns": self.at(0.9999),
            "max_ns": self.ns.last(),
        })
    }
}

/// The hidden processes.
pub(crate) fn run_part(args: &PartArgs) -> Result<(), String> {
    match args.role.as_str() {
        "manager" => manager(&args.what),
        _ => echo(&args.what),
    }
}

fn manager(server: &str) -> Result<(), String> {
    let text = |error: broker::ClientError| error.to_string();
    let mut lanes = Manager::connect(server, "bench", &["bench"], &[Band::DEFAULT]).map_err(text)?;
    loop {
        let served = lanes[0].serve(DurNs::from_secs(1), |asked, desk| {
            desk.answer(asked.ticket, &Answer::ok("1794000000.123456789"));
        });
        served.map_err(text)?;
    }
}

/// The other side of the futex round trips: word 0 is rung by the asker, word 8 by this one.
fn echo(memory: &str) -> Result<(), String> {
    let fd: i32 = memory.parse().map_err(|_| "no descriptor".to_owned())?;
    let memory = SharedWords::inherited(fd).map_err(|error| error.to_string())?;
    let words = memory.words();
    let mut seen = 0;
    loop {
        while words[0].load(Ordering::Acquire) == seen {
            sys::futex::wait(&words[0], seen, Some(DurNs::from_secs(1)));
            if rustix::process::getppid().is_none_or(rustix::process::Pid::is_init) {
                return Ok(());
            }
        }
        seen = words[0].load(Ordering::Acquire);
        sys::futex::count_up(&words[8], 1);
    }
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

fn timed(into: &mut Vec<u64>, rounds: usize, mut round: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    for _ in 0..rounds {
        let before = mono_now();
        round()?;
        into.push((mono_now() - before).0 as u64);
    }
    Ok(())
}

/// The broker of libzmq, built here; `None` with the reason where it cannot be.
struct Zmq {
    program: PathBuf,
    directory: PathBuf,
}

impl Zmq {
    fn build() -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("tahti-rtt-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let (source, program) = (directory.join("rtt_zmq.c"), directory.join("rtt_zmq"));
        let this = Self { program, directory };
        std::fs::write(&source, ZMQ).map_err(|error| format!("{}: {error}", source.display()))?;
        let built = Command::new("cc").arg("-O2").arg("-o").arg(&this.program).arg(&source).arg("-lzmq").output();
        match built {
            Ok(output) if output.status.success() => Ok(this),
            Ok(_) => Err("it does not build here; apt install libzmq3-dev gcc".into()),
            Err(error) => Err(format!("cc: {error}")),
        }
    }

    fn rounds(&self, rounds: usize, into: &mut Vec<u64>) -> Result<(), String> {
        let endpoint = format!("ipc://{}", self.directory.join("socket").display());
        let mut child = Command::new(&self.program)
            .args([endpoint, rounds.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let out = child.stdout.take().ok_or("no output")?;
        for line in BufReader::new(File::from(std::os::fd::OwnedFd::from(out))).lines() {
            let line = line.map_err(|error| error.to_string())?;
            into.push(line.parse().map_err(|_| format!("libzmq's program says {line:?}"))?);
        }
        child.wait().map_err(|error| error.to_string())?;
        Ok(())
    }
}

impl Drop for Zmq {
    fn drop(&mut self) {
        // Ours alone; what cannot be removed stays in the directory for such things.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    let before = sys::sched::affinity(0).map_err(|error| error.to_string())?;
    let cpus = args.cpus.unwrap_or_else(|| CpuSet::single(before.lowest().unwrap_or_default()));
    // Before the others are started: they take it over.
    sys::sched::set_affinity(0, &cpus).map_err(|error| error.to_string())?;
    let result = measure(args, &cpus);
    sys::sched::set_affinity(0, &before).map_err(|error| error.to_string())?;
    let report = result?;
    if args.json {
        println!("{report}");
    } else {
        print(&report);
    }
    Ok(())
}

fn measure(args: &Args, cpus: &CpuSet) -> Result<Value, String> {
    let name = format!("bench-{}", std::process::id());
    let log = std::env::temp_dir().join(format!("{name}.log"));
    let log_text = log.to_string_lossy();
    let server = part(&["msg", "serve", "--name", &name, "--log", &log_text])?;
    let mut client = retry(|| Client::connect(&name, "test-program", Band::DEFAULT))?;
    let _manager = part(&["bench", "rtt-part", "manager", &name])?;
    let sending = Sending::default();
    retry(|| {
        let reply = client.ask("get/bench_time/now", &sending)?;
        if reply.code == Code::Ok { Ok(()) } else { Err(broker::ClientError::Refused(reply.text)) }
    })?;
    let memory = SharedWords::create("tahti-rtt", 16).map_err(|error| error.to_string())?;
    let handed = rustix::io::dup(memory.fd()).map_err(|error| error.to_string())?;
    let _echo = part(&["bench", "rtt-part", "futex", &std::os::fd::AsRawFd::as_raw_fd(&handed).to_string()])?;
    ask_futex(&memory);
    let zmq = Zmq::build();
    let [mut futex, mut messages, mut brokered] =
        ["two futex round trips", "message", "libzmq ROUTER, ipc"].map(|name| Times { name, ns: Vec::new() });
    let rounds = args.rounds.div_ceil(SLICES);
    for _ in 0..SLICES {
        timed(&mut futex.ns, rounds, || {
            ask_futex(&memory);
            ask_futex(&memory);
            Ok(())
        })?;
        timed(&mut messages.ns, rounds, || match client.ask("get/bench_time/now", &sending) {
            Ok(reply) if reply.code == Code::Ok => Ok(()),
            Ok(reply) => Err(format!("{}: {}", reply.code, reply.text)),
            Err(error) => Err(error.to_string()),
        })?;
        if let Ok(zmq) = &zmq {
            zmq.rounds(rounds, &mut brokered.ns)?;
        }
    }
    let pid = server.0.id() as i32;
    let throughput = pairs(&mut client, args.pairs, pid)?;
    // Only what this run wrote.
    let _ = std::fs::remove_file(&log);
    let mut table = vec![futex, messages];
    if zmq.is_ok() {
        table.push(brokered);
    }
    table.iter_mut().for_each(|times| times.ns.sort_unstable());
    let [futex, message] = [&table[0], &table[1]].map(|times| times.at(0.5).unwrap_or(0) as f64);
    let libzmq = table.get(2).and_then(|times| times.at(0.5));
    Ok(json!({
        "bench": "rtt",
        "cpus": cpus.to_string(),
        "median_ns": message,
        "p99_ns": table[1].at(0.99),
        "p99_99_ns": table[1].at(0.9999),
        "max_ns": table[1].ns.last(),
        "ratio_to_futex": message / futex,
        "ratio_to_libzmq": libzmq.map(|libzmq| message / libzmq as f64),
        "libzmq_missing": zmq.err(),
        "table": table.iter().map(Times::json).collect::<Vec<_>>(),
        "throughput": throughput,
    }))
}

/// Pairs with many outstanding; how long the server's process computed for one.
fn pairs(client: &mut Client, pairs: usize, server: i32) -> Result<Value, String> {
    if pairs == 0 {
        return Ok(Value::Null);
    }
    let text = |error: broker::ClientError| error.to_string();
    let sending = Sending { limit: DurNs::from_secs(60), ..Sending::default() };
    let cpu = || sys::clock::process_cpu(server).map_err(|error| error.to_string());
    let (began, cpu_before) = (mono_now(), cpu()?);
    let (mut sent, mut got) = (0, 0);
    while got < pairs {
        while sent < pairs && client.outstanding() < WINDOW {
            // A write: checked against rules and locks, and logged.
            client.send("put/bench_value/1A", &sending).map_err(text)?;
            sent += 1;
        }
        while client.outstanding() > WINDOW / 2 || (sent == pairs && client.outstanding() > 0) {
            match client.next(BEGIN).map_err(text)? {
                Some(reply) if reply.code == Code::Ok => got += 1,
                Some(reply) => return Err(format!("{}: {}", reply.code, reply.text)),
                None => return Err("no reply within 10s".into()),
            }
        }
        if sent == pairs && client.outstanding() == 0 {
            break;
        }
    }
    let (wall, used) = ((mono_now() - began).0 as f64 / 1e9, (cpu()?.0 - cpu_before.0) as f64 / 1e9);
    Ok(json!({
        "pairs": got,
        "outstanding": WINDOW,
        "pairs_per_s": got as f64 / wall,
        "pairs_per_server_cpu_s": got as f64 / used,
    }))
}

/// Until it works, as long as the other processes may take.
fn retry<T>(mut attempt: impl FnMut() -> Result<T, broker::ClientError>) -> Result<T, String> {
    let until = mono_now() + BEGIN;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if mono_now() > until => return Err(error.to_string()),
            Err(_) => sys::clock::sleep_until(mono_now() + DurNs::from_ms(10)),
        }
    }
}

fn print(report: &Value) {
    let us = |value: &Value| value.as_f64().map_or("-".to_owned(), |ns| format!("{:.1}", ns / 1e3));
    println!("round trips in us, all processes on CPUs {}", report["cpus"].as_str().unwrap_or_default());
    println!("{:<24}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "min", "median", "mean", "p99", "p99.99", "max");
    for row in report["table"].as_array().into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or_default();
        let [min, median, mean, p99, p9999, max] =
            ["min_ns", "median_ns", "mean_ns", "p99_ns", "p99_99_ns", "max_ns"].map(|key| us(&row[key]));
        println!("{name:<24}{min:>9}{median:>9}{mean:>9}{p99:>9}{p9999:>9}{max:>9}");
    }
    println!("{:<24}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "MADOCA II, real time", 1131.0, 1286.0, 1293.0, "-", "-", 1760.0);
    println!(
        "{:<24}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "MADOCA II, time sharing", 1029.0, 1126.0, 1141.0, "-", "-", 141985.0
    );
    if let Some(why) = report["libzmq_missing"].as_str() {
        println!("libzmq DID NOT RUN: {why}");
    }
    println!("message / two futex round trips: {:.2}", report["ratio_to_futex"].as_f64().unwrap_or_default());
    if let Some(ratio) = report["ratio_to_libzmq"].as_f64() {
        println!("message / libzmq: {ratio:.2}");
    }
    if let (Some(all), Some(cpu)) =
        (report["throughput"]["pairs_per_s"].as_f64(), report["throughput"]["pairs_per_server_cpu_s"].as_f64())
    {
        println!("{all:.0} logged pairs/s with {WINDOW} outstanding; {cpu:.0} for a second of the server's CPU time");
    }
}
