//! `tahti ps` and `tahti top`: how the processes of a plant stand.

use crate::control::{ask, plant_name};
use base::{DurNs, MonoNs};
use keep::supervisor::control::{ProcessStatus, Reply, Request, Status};
use keep::supervisor::rundir::living;
use keep::supervisor::{phase_word, short};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// List the processes of all plants, or of one
#[derive(clap::Args)]
pub(crate) struct PsArgs {
    /// The plant's name, file or folder
    plant: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Watch the processes and threads of a plant
#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// The plant's name, file or folder; may be left out while only one is up
    plant: Option<String>,
    /// Time between two looks
    #[arg(long, default_value = "1s", value_name = "TIME")]
    every: DurNs,
    /// Looks to take; without it until Ctrl-C
    #[arg(long, short = 'n')]
    count: Option<u64>,
}

pub(crate) fn ps(args: PsArgs) -> ExitCode {
    let names = match args.plant.as_deref() {
        Some(given) => match plant_name(Some(given)) {
            Ok(name) => vec![name],
            Err(why) => return crate::fail(&why),
        },
        None => living(),
    };
    let mut all = Vec::new();
    let mut failed = false;
    for name in &names {
        match status(name) {
            Ok(status) => all.push(status),
            Err(why) => {
                failed = true;
                eprintln!("tahti: {why}");
            }
        }
    }
    if args.json {
        println!("{}", serde_json::json!(all));
    } else if names.is_empty() {
        println!("no plant is up");
    } else {
        for status in &all {
            print!("{}", listing(status, None));
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn status(name: &str) -> Result<Status, String> {
    match ask(name, &Request::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(format!("the supervisor of plant {name:?} answers {other:?} to a question for its status")),
    }
}

/// Processor time of a process or thread at an earlier look.
type Before = (MonoNs, BTreeMap<i32, DurNs>);

/// Percent of one CPU: since the earlier look, or since the start.
fn percent(process: &ProcessStatus, now: MonoNs, before: Option<&Before>) -> f64 {
    let (Some(pid), Some(started)) = (process.pid, process.started) else { return 0.0 };
    let (span, used) = match before.and_then(|(then, all)| Some((*then, all.get(&pid)?))) {
        Some((then, earlier)) => (now - then, process.cpu.0 - earlier.0),
        None => (now - started, process.cpu.0),
    };
    100.0 * used as f64 / span.0.max(1) as f64
}

fn listing(status: &Status, before: Option<&Before>) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{}: {} for {}, {}, supervisor {}",
        status.name,
        phase_word(status.phase),
        short(status.now - status.since),
        status.shield,
        status.supervisor
    );
    let _ = writeln!(
        out,
        "  {:<16} {:>7} {:<9} {:<12} {:<7} {:>6} {:>8} {:>3} {:>8} {:>8}  last end",
        "process", "pid", "state", "class", "cpus", "cpu", "memory", "thr", "up", "restarts"
    );
    for process in &status.processes {
        let alive = process.pid.is_some();
        let dash = |text: String| if alive { text } else { "-".to_owned() };
        let ended = process
            .ended
            .as_ref()
            .map_or(String::new(), |(at, cause)| format!("{cause}, {} ago", short(status.now - *at)));
        let up = process.started.map_or_else(|| "-".to_owned(), |at| dash(short(status.now - at)));
        let line = format!(
            "  {:<16} {:>7} {:<9} {:<12} {:<7} {:>6} {:>8} {:>3} {:>8} {:>8}  {ended}",
            process.name,
            dash(process.pid.map_or_else(String::new, |pid| pid.to_string())),
            process.state,
            process.class.to_string(),
            process.cpus.to_string(),
            dash(format!("{:.1} %", percent(process, status.now, before))),
            dash(format!("{:.1} M", process.memory.0 as f64 / f64::from(1 << 20))),
            dash(process.threads.to_string()),
            up,
            process.restarts,
        );
        let _ = writeln!(out, "{}", line.trim_end());
        if let Some(evidence) = &process.evidence {
            let _ = writeln!(out, "  {:<16} evidence in {}", "", evidence.display());
        }
        if let Some(page) = &process.loop_page {
            let time = |time: Option<DurNs>| time.map_or_else(|| "beyond the histogram".to_owned(), short);
            let _ = writeln!(
                out,
                "  {:<16} {} cycles of {}, wake-up latency p50 {}, p99 {}, max {}, {} missed",
                "",
                page.cycles,
                page.period,
                time(page.wake.p50),
                time(page.wake.p99),
                time(page.wake.max),
                page.misses
            );
        }
    }
    for shortfall in &status.shortfalls {
        let _ = writeln!(out, "  not had: {shortfall}");
    }
    out
}

pub(crate) fn top(args: TopArgs) -> ExitCode {
    let name = match plant_name(args.plant.as_deref()) {
        Ok(name) => name,
        Err(why) => return crate::fail(&why),
    };
    let every = args.every.to_std().max(Duration::from_millis(100));
    let tty = std::io::stdout().is_terminal();
    let mut before: Option<Before> = None;
    let mut looks = 0;
    loop {
        let status = match status(&name) {
            Ok(status) => status,
            Err(why) => return crate::fail(&why),
        };
        let mut times: BTreeMap<i32, DurNs> =
            status.processes.iter().filter_map(|process| Some((process.pid?, process.cpu))).collect();
        let mut text = listing(&status, before.as_ref());
        text += &threads(&status, before.as_ref(), &mut times);
        let start = if tty { "\x1b[H\x1b[2J" } else { "" };
        let mut out = std::io::stdout();
        if write!(out, "{start}{text}").and_then(|()| out.flush()).is_err() {
            // Nobody reads any more.
            return ExitCode::SUCCESS;
        }
        before = Some((status.now, times));
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(every);
    }
}

/// A table of the threads, where a process has more than one.
fn threads(status: &Status, before: Option<&Before>, times: &mut BTreeMap<i32, DurNs>) -> String {
    let mut out = String::new();
    for process in status.processes.iter().filter(|process| process.threads > 1) {
        let Some(pid) = process.pid else { continue };
        for thread in keep::supervisor::threads(pid) {
            let used =
                thread.cpu.0 - before.and_then(|(_, all)| all.get(&thread.tid)).map_or(thread.cpu.0, |cpu| cpu.0);
            let span = before.map_or(1, |(then, _)| (status.now - *then).0.max(1));
            times.insert(thread.tid, thread.cpu);
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "    {:<14} {:>7} {:<9} {:<12} {:<7} {:>4.1} %",
                thread.name,
                thread.tid,
                process.name,
                thread.class.to_string(),
                thread.cpus.to_string(),
                100.0 * used as f64 / span as f64
            );
        }
    }
    if out.is_empty() { out } else { format!("  threads of processes that have several\n{out}") }
}
