//! `tahti stop`, `start`, `restart`, `status`: control single processes of a plant that is up.

use crate::control::{PlantArgs, ask, plant_name};
use crate::failure::{Failure, end};
use crate::out::{Colour, Painted};
use crate::ps::{heading, heads, more, promises, row, status};
use host::supervise::Phase;
use keep::supervisor::control::{ProcessStatus, Request, Status};
use keep::supervisor::rundir::RunDir;
use proc::task_stat::Stat;
use std::collections::BTreeMap;
use std::process::{ExitCode, Termination as _};
use std::time::{Duration, Instant};

/// Number of log lines that the status of a process shows.
const LOG_LINES: usize = 10;

/// Interval between checks of a process's state.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Maximum time in which a supervisor notices that a process has died.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// Stop processes until `tahti start`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti stop logger
  tahti stop loop logger       stop two processes in the reverse order of their start")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    what: These,
}

/// Start processes that are stopped, finished or in FAULT
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti start logger
  tahti start loop --no-wait")]
pub(crate) struct StartArgs {
    #[command(flatten)]
    what: These,
}

/// Stop and start processes; also clears a latched fault
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti restart loop
  tahti restart loop logger --plant rf")]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    what: These,
}

#[derive(clap::Args)]
struct These {
    /// Processes
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Do not wait until they have reached the new state
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    which: PlantArgs,
}

/// Show the state of a process and the end of its log
///
/// Without a name: all processes, as `tahti ps`. Exit status: 0 running or finished, 3 not running, 1 unknown.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti status loop
  tahti status loop --plant rf || tahti start loop --plant rf")]
pub(crate) struct StatusArgs {
    /// Process
    name: Option<String>,
    #[command(flatten)]
    which: PlantArgs,
}

/// Exit status for a process that does not run, as in `systemctl status`.
const NOT_RUNNING: u8 = 3;

pub(crate) fn stop(args: StopArgs) -> ExitCode {
    let there = |process: &ProcessStatus, _| match process.state.as_str() {
        "stopped" => Ok(true),
        // Another client has started it again meanwhile.
        "starting" | "running" => Err("another client has started it again"),
        _ => Ok(false),
    };
    run(args.what, |names| vec![Request::Stop { names }], there)
}

pub(crate) fn start(args: StartArgs) -> ExitCode {
    run(args.what, |names| vec![Request::Start { names }], |process, _| runs(process))
}

pub(crate) fn restart(args: RestartArgs) -> ExitCode {
    // The previous instance may run for a while.
    let there = |process: &ProcessStatus, starts: u64| match process.starts > starts {
        true => runs(process),
        false if process.state == "stopped" => Err("another client has stopped it"),
        false => Ok(false),
    };
    run(args.what, |names| names.into_iter().map(|name| Request::Restart { name }).collect(), there)
}

/// Whether a process has reached its running state. An error if it never will.
fn runs(process: &ProcessStatus) -> Result<bool, &'static str> {
    match process.state.as_str() {
        "running" | "finished" => Ok(true),
        "FAULT" => Err("FAULT"),
        "stopped" => Err("another client has stopped it"),
        _ => Ok(false),
    }
}

/// Waits until every process of a plant has reached its state, and reports the states on the way. Fails if a fault is
/// latched.
pub(crate) fn settled(plant: &str) -> Result<(), Failure> {
    let mut said = Progress::default();
    loop {
        let all = status(plant)?;
        said.say(&all, |_, _| true);
        let mut still = false;
        for process in &all.processes {
            match runs(process) {
                Err("FAULT") => {
                    return Err(format!("{}: FAULT; `tahti logs {0}` shows its output", process.name).into());
                }
                Ok(there) => still |= !there,
                // Stopped by another client; it stays stopped.
                Err(_) => {}
            }
        }
        if !still || !matches!(all.phase, Phase::Starting | Phase::Up) {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Reports each state change once, on standard error. Standard output is reserved for the result of the command.
#[derive(Default)]
struct Progress(BTreeMap<String, String>);

impl Progress {
    /// `concerns` gets the name of a process, and whether its state lasts.
    fn say(&mut self, all: &Status, concerns: impl Fn(&str, bool) -> bool) {
        let first = self.0.is_empty();
        for process in &all.processes {
            let before = self.0.insert(process.name.clone(), process.state.clone());
            let settled = matches!(process.state.as_str(), "running" | "finished" | "stopped" | "FAULT");
            let is_new = before.as_ref() != Some(&process.state) && !(first && settled);
            if is_new && concerns(&process.name, settled) {
                eprintln!("{}: {}", process.name, process.state);
            }
        }
    }
}

/// Whether all threads of a process have ended or are ending.
fn has_died(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok().and_then(|text| Stat::parse(&text));
        stat.is_none_or(|stat| stat.is_dead())
    })
}

/// The state of all processes, read once the supervisor has noticed the end of each named process that has just died.
/// Before that, the supervisor would report them as running, and a start would have no effect.
fn seen(plant: &str, names: &[String]) -> Result<Status, Failure> {
    let begun = Instant::now();
    loop {
        let all = status(plant)?;
        let named = |process: &&ProcessStatus| names.contains(&process.name) && process.state == "running";
        let mut running = all.processes.iter().filter(named).filter_map(|process| process.pid);
        if !running.any(has_died) || begun.elapsed() >= SEEN_WITHIN {
            return Ok(all);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Sends the requests and waits until each process has reached its state.
fn run(
    what: These,
    requests: impl Fn(Vec<String>) -> Vec<Request>,
    there: impl Fn(&ProcessStatus, u64) -> Result<bool, &'static str>,
) -> ExitCode {
    let went = || -> Result<(), Failure> {
        let plant = plant_name(what.which.plant.as_deref())?;
        let starts: BTreeMap<String, u64> =
            seen(&plant, &what.names)?.processes.into_iter().map(|process| (process.name, process.starts)).collect();
        for request in requests(what.names.clone()) {
            ask(&plant, &request)?;
        }
        let mut said = Progress::default();
        for name in what.names.iter().filter(|_| !what.no_wait) {
            loop {
                let all = status(&plant)?;
                // The final state is the result.
                said.say(&all, |process, settled| !settled && what.names.iter().any(|name| name == process));
                let process = all.processes.iter().find(|process| process.name == *name);
                let process = process.ok_or_else(|| format!("{name} is no longer in the plant"))?;
                let cause = process.ended.as_ref().map(|(_, cause)| cause);
                let ended = cause.map(ToString::to_string);
                match there(process, starts.get(name).copied().unwrap_or(0)) {
                    Ok(false) if !matches!(all.phase, Phase::Starting | Phase::Up) => {
                        return Err(format!("{name}: {}, and the plant goes down", process.state).into());
                    }
                    Ok(true) => {
                        // Print the cause of the end instead of the state if it begins with the state.
                        let asked = ended.filter(|cause| process.pid.is_none() && cause.starts_with(&process.state));
                        println!("{name}: {}", asked.unwrap_or_else(|| process.state.clone()));
                        break;
                    }
                    Ok(false) => std::thread::sleep(LOOK_EVERY),
                    Err(why) => {
                        let line = process.last_line.as_deref();
                        let ended = cause.map_or(String::new(), |cause| format!(" ({cause}{})", cause.behind(line)));
                        return Err(format!("{name}: {why}{ended}; see `tahti logs {name}`").into());
                    }
                }
            }
        }
        Ok(())
    };
    end(went())
}

pub(crate) fn show(args: StatusArgs) -> ExitCode {
    let Some(name) = args.name else { return crate::ps::of(args.which.plant.as_deref(), false) };
    match describe(&name, args.which.plant.as_deref()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_RUNNING),
        Err(why) => why.report(),
    }
}

fn describe(name: &str, plant: Option<&str>) -> Result<bool, Failure> {
    let plant = plant_name(plant)?;
    let all = status(&plant)?;
    let Some(process) = all.processes.iter().find(|process| process.name == name) else {
        let names = || all.processes.iter().map(|process| process.name.as_str());
        let meant = base::nearest(name, names()).map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
        let names = names().collect::<Vec<_>>().join(", ");
        return Err(format!("plant {plant:?} has no process {name:?}{meant} (it has: {names})").into());
    };
    println!("{}", heading(&all));
    println!("{}", Painted(Colour::Faint, heads()));
    println!("{}", row(&all, process, None));
    more(process).iter().for_each(|line| println!("{line}"));
    let starts = base::text::Counted(usize::try_from(process.starts).unwrap_or(usize::MAX), "start");
    let keeper = process.keeper.map_or_else(|| "no keeper".to_owned(), |pid| format!("its keeper is process {pid}"));
    println!("  {:<16} {starts}; {keeper}", "");
    let automatic = process.automatic.iter();
    automatic.for_each(|(name, value)| println!("  {:<16} set by tahti: {name}={value}", ""));
    process
        .shortfalls
        .iter()
        .for_each(|text| println!("  {:<16} {} {text}", "", Painted(Colour::Doubtful, "unavailable:")));
    promises(&all, name).for_each(|line| println!("{line}"));
    let log = RunDir::find(&plant).log(Some(name));
    if log.exists() {
        println!("\n{}", Painted(Colour::Faint, format!("{} ends:", log.display())));
        // An error means that the reader of standard output has left, which is no failure.
        let _ = crate::logs::tail(&log, LOG_LINES)?.iter().try_for_each(|line| crate::logs::write(line, false));
    }
    Ok(process.pid.is_some() || process.state == "finished")
}
