//! `tahti ps`: the state of the processes of a plant.

use crate::control::{Whole, ask, outcome_colour, plant_name};
use crate::failure::Failure;
use crate::out::{Colour, Painted};
use base::{DurNs, MonoNs};
use keep::supervisor::control::{
    Family, ProcessStatus, Reason, Reply, Request, RowState, RowStatus, Standing, Stands, Status,
};
use keep::supervisor::neighbors::{Summary, neighbors};
use keep::supervisor::rundir::{RunDir, living};
use keep::supervisor::{phase_word, short};
use std::collections::BTreeMap;
use std::process::{ExitCode, Termination as _};

/// List the processes of all plants or of one plant
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti ps                     all plants that are up
  tahti ps rf --json | jq '.[0].processes[].state'")]
pub(crate) struct PsArgs {
    #[command(flatten)]
    which: Whole,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn ps(args: PsArgs) -> ExitCode {
    of(args.which.given(), args.json)
}

/// Prints all plants, or only the given one.
pub(crate) fn of(plant: Option<&str>, json: bool) -> ExitCode {
    let names = match plant {
        Some(given) => match plant_name(Some(given)) {
            Ok(name) => vec![name],
            Err(why) => return why.report(),
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
    if json {
        println!("{}", serde_json::json!(all));
    } else {
        if names.is_empty() {
            println!("no plant is up");
        }
        for status in &all {
            print!("{}", listing(status));
        }
        if plant.is_none() {
            print!("{}", others(&names));
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The plants of other users, one line for each.
fn others(listed: &[String]) -> String {
    let is_listed = |run: &RunDir| listed.iter().any(|name| RunDir::find(name).path() == run.path());
    let others = neighbors().into_iter().filter(|other| !is_listed(&other.run)).map(|other| {
        let Summary { name, user, outcome, state, why } = other.summary().0;
        let user = sys::users::name_of(user).unwrap_or_else(|| user.to_string());
        let parts = [state.as_str(), outcome, why.as_str()].into_iter().filter(|part| !part.is_empty());
        let words = parts.collect::<Vec<_>>().join(", ");
        format!("  {name} of user {}\n", base::Visible { text: &format!("{user}: {words}"), colours: false })
    });
    let lines: String = others.collect();
    if lines.is_empty() { lines } else { format!("other users' plants on this machine:\n{lines}") }
}

pub(crate) fn status(name: &str) -> Result<Status, Failure> {
    match ask(name, &Request::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(format!("the supervisor of plant {name:?} answers {other:?} to a question for its status").into()),
    }
}

/// Time of the previous sample, and CPU time of each process by pid. `tahti top` stores threads under the negated
/// thread id.
pub(crate) type Before = (MonoNs, BTreeMap<i32, DurNs>);

/// CPU usage of a process and its descendants in percent of one CPU: since the previous sample, or since the start.
pub(crate) fn percent(process: &ProcessStatus, now: MonoNs, before: Option<&Before>) -> f64 {
    let (Some(pid), Some(started)) = (process.pid, process.started) else { return 0.0 };
    let (span, used) = match before.and_then(|(then, all)| Some((*then, all.get(&pid)?))) {
        Some((then, earlier)) => (now - then, process.family_cpu().0 - earlier.0),
        None => (now - started, process.family_cpu().0),
    };
    // CPU time and the monotonic clock have different resolutions, so the difference may be negative.
    100.0 * used.max(0) as f64 / span.0.max(1) as f64
}

/// The line above the process table.
pub(crate) fn heading(status: &Status) -> String {
    let name = Painted(Colour::Head, &status.name);
    let (phase, shield) = (phase_word(status.phase), &status.shield);
    let phase = if phase == "up" { Painted(Colour::Good, phase) } else { Painted(Colour::Doubtful, phase) };
    let shield = match shield.contains("NOT") {
        true => Painted(Colour::Bad, shield).to_string(),
        false => shield.clone(),
    };
    let since = short(status.now - status.since);
    let outcome = Painted(outcome_colour(&status.outcome), status.outcome.word());
    format!("{name}: {phase} for {since}, {outcome}, {shield}, supervisor {}", status.supervisor)
}

/// Promises that are broken now, and the reasons if the outcome is not good.
pub(crate) fn wrong(status: &Status) -> Vec<String> {
    let now = status.health.iter().filter(|row| row.state.is_wrong()).map(|row| {
        let line = row.line.map_or(String::new(), |line| format!(", line {line}"));
        let (word, age) = (row.state.word(), short(status.now - row.since));
        let text = format!("{} {word} for {age}: {} [{}{line}]", row.subject, row.evidence, row.promise);
        format!("  {}", Painted(Colour::Bad, text))
    });
    // A promise that is broken now has its line already.
    let is_present = |reason: &&Reason| {
        let same = |row: &&RowStatus| row.subject == reason.subject && row.promise == reason.promise;
        status.health.iter().filter(same).any(|row| row.state.is_wrong())
    };
    let summary = status.outcome.summary();
    let reasons = summary.iter().filter(|reason| reason.count > 1 || !is_present(reason)).map(|reason| {
        let text = format!("{}: {}", reason.word(), reason.words(short));
        format!("  {}", Painted(if reason.is_failure { Colour::Bad } else { Colour::Doubtful }, text))
    });
    now.chain(reasons).collect()
}

/// Every promise about a process, with its observed state.
pub(crate) fn promises<'a>(status: &'a Status, name: &'a str) -> impl Iterator<Item = String> + 'a {
    status.health.iter().filter(move |row| row.subject == name).map(|row| {
        let colour = match row.state {
            RowState::Kept => Colour::Good,
            RowState::Broken | RowState::NotObserved => Colour::Bad,
            RowState::Within | RowState::Absent => Colour::Doubtful,
            RowState::NotDue | RowState::Pending => Colour::Faint,
        };
        let state = Painted(colour, format!("{:<16}", row.state.word()));
        let line = format!("  {:<16} {state} {:<34} {}", "", row.promise, row.evidence);
        line.trim_end().to_owned()
    })
}

/// The column headings.
pub(crate) fn heads() -> String {
    format!(
        "  {:<16} {:>7} {:<9} {:<12} {:<7} {:>6} {:>8} {:>3} {:>8} {:>8}  last end",
        "process", "pid", "state", "class", "cpus", "cpu", "memory", "thr", "up", "restarts"
    )
}

/// A process as a row of the table.
pub(crate) fn row(status: &Status, process: &ProcessStatus, before: Option<&Before>) -> String {
    let alive = process.pid.is_some();
    let dash = |text: String| if alive { text } else { "-".to_owned() };
    let ended = process.last_end(status.now).unwrap_or_default();
    let up = process.started.map_or_else(|| "-".to_owned(), |at| dash(short(status.now - at)));
    let state = format!("{:<9}", process.state);
    let state = Painted(state_colour(&process.state), state);
    let line = format!(
        "  {:<16} {:>7} {state} {:<12} {:<7} {:>6} {:>8} {:>3} {:>8} {:>8}  {ended}",
        process.name,
        dash(process.pid.map_or_else(String::new, |pid| pid.to_string())),
        process.class.to_string(),
        process.cpus.to_string(),
        dash(format!("{:.1} %", percent(process, status.now, before))),
        dash(format!("{:.1} M", megabytes(process.family_memory().0))),
        dash(process.family_threads().to_string()),
        up,
        process.restarts,
    );
    line.trim_end().to_owned()
}

/// The colour of a process's state.
pub(crate) fn state_colour(state: &str) -> Colour {
    match state {
        "running" => Colour::Good,
        "FAULT" => Colour::Bad,
        "down" | "stopped" | "finished" => Colour::Faint,
        _ => Colour::Doubtful,
    }
}

/// Additional lines about a process: its descendants, the evidence, its loop.
pub(crate) fn more(process: &ProcessStatus) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if let Some(family) = process.family.filter(|family| family.processes > 1) {
        lines.push(format!(
            "  {:<16} {} processes together; the first alone: {} of {} CPU, {:.1} M, {} threads",
            "",
            family.processes,
            short(process.cpu),
            short(family.cpu),
            megabytes(process.memory.0),
            process.threads
        ));
    }
    lines.extend(process.family.and_then(bounds).map(|bounds| format!("  {:<16} {bounds}", "")));
    lines.extend(process.trouble.as_ref().map(|why| format!("  {:<16} {}", "", Painted(Colour::Bad, why))));
    lines.extend(process.status_text.as_ref().map(|text| format!("  {:<16} {text}", "")));
    if let Some(evidence) = &process.evidence {
        lines.push(format!("  {:<16} evidence in {}", "", evidence.display()));
    }
    if let Some(page) = &process.loop_page {
        let time = |time: Option<DurNs>| time.map_or_else(|| "beyond the histogram".to_owned(), short);
        lines.push(format!(
            "  {:<16} {} cycles of {}, wake-up latency p50 {}, p99 {}, max {}, {} missed",
            "",
            page.cycles,
            page.period,
            time(page.wake.p50),
            time(page.wake.p99),
            time(page.wake.max),
            page.misses
        ));
    }
    let guest = process.guest.as_ref().map(|note| base::Visible { text: note, colours: false });
    lines.extend(guest.map(|note| format!("  {:<16} {}", "", Painted(Colour::Doubtful, note))));
    lines.extend(process.value.as_ref().map(|value| format!("  {:<16} {value}", "")));
    lines
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The limits of a process and its descendants, with their usage.
fn bounds(family: Family) -> Option<String> {
    let all: Vec<String> = family.memory_bound.map(memory).into_iter().chain(family.tasks_bound.map(tasks)).collect();
    (!all.is_empty()).then(|| format!("bounded: {}", all.join(", ")))
}

fn met(times: u64, what: &str) -> String {
    if times == 0 { String::new() } else { format!(" ({times} {what})") }
}

fn memory(memory: Standing) -> String {
    let met = met(memory.met, "ended for lack of it");
    format!("memory {:.1} M of {:.1} M{met}", megabytes(memory.used), megabytes(memory.max))
}

fn tasks(tasks: Standing) -> String {
    format!("tasks {} of {}{}", tasks.used, tasks.max, met(tasks.met, "starts refused"))
}

/// The usage of a partition, with its limits.
fn partition(stands: &Stands) -> Vec<String> {
    let peak = |bound: &Standing, shown: &dyn Fn(u64) -> String| {
        bound.peak.map_or(String::new(), |peak| format!(", at most {} so far", shown(peak)))
    };
    let mut parts = Vec::new();
    if let Some(cpu) = stands.cpu {
        let used = cpu.used.map_or("not counted".to_owned(), |used| format!("{} used", short(used)));
        let max = match (cpu.max, cpu.period) {
            (Some(max), Some(period)) => {
                let waited =
                    format!("throttled in {} of {} periods for {}", cpu.throttled, cpu.periods, short(cpu.waited));
                format!(", {max} of each {period}, {waited}")
            }
            _ => String::new(),
        };
        let weight = cpu.weight.filter(|weight| *weight != 100).map_or(String::new(), |it| format!(", weight {it}"));
        parts.push(format!("processor time {used}{max}{weight}"));
    }
    if let Some(bound) = stands.memory {
        parts.push(memory(bound) + &peak(&bound, &|bytes| format!("{:.1} M", megabytes(bytes))));
    }
    if let Some(bound) = stands.tasks {
        parts.push(tasks(bound) + &peak(&bound, &|tasks| tasks.to_string()));
    }
    parts.extend(stands.io.iter().cloned());
    parts.extend(stands.divided.iter().map(|line| format!("cache and memory bandwidth {line}")));
    parts.extend(stands.network.as_ref().map(|network| {
        let lost = met(network.dropped.into(), "packets dropped by the full queue");
        let (device, rate, max) = (&network.device, network.rate, network.max);
        format!("network {device}: guaranteed {rate}, at most {max}, sent {:.1} M{lost}", megabytes(network.sent))
    }));
    let mut lines = vec![format!("  partition {} ({})", stands.name, stands.processes.join(", "))];
    lines.extend(parts.into_iter().map(|part| format!("  {:<16} {part}", "")));
    let drift = stands.drift.iter().map(|drift| format!("  {:<16} {}", "", Painted(Colour::Bad, drift)));
    lines.extend(drift);
    lines
}

fn listing(status: &Status) -> String {
    let mut lines = vec![heading(status), Painted(Colour::Faint, heads()).to_string()];
    for process in &status.processes {
        lines.push(row(status, process, None));
        lines.extend(more(process));
    }
    lines.extend(status.partitions.iter().flat_map(partition));
    lines.extend(wrong(status));
    lines.extend(status.shortfalls.iter().map(|shortfall| format!("  unavailable: {shortfall}")));
    lines.join("\n") + "\n"
}
