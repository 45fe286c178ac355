//! `tahti top`: the state of a plant, updated continuously: full screen, or as plain lines.

mod draw;
mod full;
mod seen;
mod terminal;
mod view;

use crate::control::{Whole, plant_name};
use crate::failure::{Failure, end};
use crate::out::{self, Colour, Painted};
use crate::ps::{Before, heading, heads, more, row, status};
use base::DurNs;
use keep::supervisor::Thread;
use keep::supervisor::control::{ProcessStatus, Status as Plant};
use keep::supervisor::rundir::living;
use recorder::status::Status;
use rustix::termios::isatty;
use std::collections::BTreeMap;
use std::io::stdin;
use std::process::ExitCode;
use std::time::Duration;

/// Watch the processes of a plant
///
/// On a terminal: full screen, ? shows the keys, q quits. Otherwise: prints the list repeatedly.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti top                    until q
  tahti top --threads --sort cpu
  tahti top --plain            lines instead of the full screen
  tahti top -n 1               once, for scripts")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Whole,
    /// Time between two updates
    #[arg(long, default_value = "1s", value_name = "TIME")]
    every: DurNs,
    /// Number of updates [default: until q or Ctrl-C]
    #[arg(long, short = 'n')]
    count: Option<u64>,
    /// Show the threads of each process
    #[arg(long, short = 't')]
    threads: bool,
    /// Print lines on a terminal too
    #[arg(long)]
    plain: bool,
    /// Order of the processes
    #[arg(long, value_name = "KEY", default_value = "order")]
    sort: Sort,
}

/// Sort key of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// As in the plant file
    Order,
    /// Processor time since the last update, highest first
    Cpu,
    /// Memory, highest first
    Memory,
    /// Missed deadlines, highest first
    Misses,
    /// Restarts, highest first
    Restarts,
    /// Name
    Name,
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(watch(&args))
}

fn watch(args: &Args) -> Result<(), Failure> {
    let name = plant_name(args.which.given())?;
    let every = args.every.to_std().max(Duration::from_millis(100));
    let whole = !args.plain && args.count.is_none() && isatty(stdin()) && out::is_terminal() && !out::is_dumb();
    if whole {
        // Report a plant that is not up on the normal screen, which stays visible.
        status(&name)?;
        return full::watch(&name, args, every);
    }
    let mut before: Option<Before> = None;
    let mut looks = 0;
    loop {
        let status = match status(&name) {
            Err(_) if looks > 0 && is_down(&name) => {
                println!("plant {name:?} went down; `tahti up` starts it again");
                return Ok(());
            }
            status => status?,
        };
        let (mut lines, times) = lines(&status, before.as_ref(), args);
        lines.extend(late(&name, status.now));
        if out::screen(&(lines.join("\n") + "\n")).is_err() {
            // Standard output was closed by its reader.
            return Ok(());
        }
        before = Some((status.now, times));
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        std::thread::sleep(every);
    }
}

/// Whether no supervisor runs the plant and none is expected to continue it.
fn is_down(plant: &str) -> bool {
    !living().iter().any(|name| name == plant)
}

/// The latest late wake-ups, if the plant has a recorder.
fn late(plant: &str, now: base::MonoNs) -> Vec<String> {
    let Some(status) = recorded(plant) else { return Vec::new() };
    let head = format!("later than {}: {} of {} wake-ups; the last:", status.above, status.late, status.wakeups);
    let shortfall = status.shortfall.iter().map(|text| Painted(Colour::Bad, text).to_string());
    let last = status.last.iter().map(|late| crate::trace::late(late, now));
    [String::new(), Painted(Colour::Head, head).to_string()].into_iter().chain(shortfall).chain(last).collect()
}

/// The status of the plant's recorder, if it runs.
fn recorded(plant: &str) -> Option<Status> {
    let folder = crate::trace::folder(Some(plant));
    Status::read(&folder).filter(|_| crate::trace::lives(&folder))
}

/// All lines, and the CPU times for the comparison in the next update.
fn lines(status: &Plant, before: Option<&Before>, view: &Args) -> (Vec<String>, BTreeMap<i32, DurNs>) {
    let mut times = times_of(status);
    let mut lines = vec![heading(status), Painted(Colour::Faint, heads()).to_string()];
    for process in ordered(status, before, view.sort) {
        lines.push(row(status, process, before));
        lines.extend(more(process));
        let Some(pid) = process.pid.filter(|_| view.threads && process.threads > 1) else { continue };
        let mut threads: Vec<(f64, Thread)> = keep::supervisor::threads(pid)
            .into_iter()
            .map(|thread| (share(status, thread.tid, thread.cpu, before), thread))
            .collect();
        if view.sort == Sort::Cpu {
            threads.sort_by(|one, other| other.0.total_cmp(&one.0));
        }
        for (share, thread) in threads {
            // The first thread's id equals the pid, but its CPU time differs from that of the process. Threads are
            // therefore stored under the negated id.
            times.entry(-thread.tid).or_insert(thread.cpu);
            lines.push(format!(
                "    {:<14} {:>7} {:<9} {:<12} {:<7} {share:>4.1} %",
                thread.name,
                thread.tid,
                "",
                thread.class.to_string(),
                thread.cpus.to_string(),
            ));
        }
    }
    (lines, times)
}

/// CPU usage of a thread since the previous sample, in percent of one CPU.
fn share(status: &Plant, tid: i32, used: DurNs, before: Option<&Before>) -> f64 {
    let earlier = before.and_then(|(then, times)| Some((*then, times.get(&-tid)?)));
    earlier
        .map_or(0.0, |(then, earlier)| 100.0 * (used.0 - earlier.0).max(0) as f64 / (status.now - then).0.max(1) as f64)
}

/// CPU time of each process and its descendants, by pid.
fn times_of(status: &Plant) -> BTreeMap<i32, DurNs> {
    status.processes.iter().filter_map(|process| Some((process.pid?, process.family_cpu()))).collect()
}

fn ordered<'a>(status: &'a Plant, before: Option<&Before>, by: Sort) -> Vec<&'a ProcessStatus> {
    let mut all: Vec<&ProcessStatus> = status.processes.iter().collect();
    sort(&mut all, by, |process| crate::ps::percent(process, status.now, before));
    all
}

fn sort(all: &mut [&ProcessStatus], by: Sort, burnt: impl Fn(&ProcessStatus) -> f64) {
    let misses = |process: &ProcessStatus| process.loop_page.as_ref().map_or(0, |page| page.misses);
    match by {
        Sort::Order => {}
        Sort::Cpu => all.sort_by(|one, other| burnt(other).total_cmp(&burnt(one))),
        Sort::Memory => all.sort_by_key(|process| std::cmp::Reverse(process.family_memory())),
        Sort::Misses => all.sort_by_key(|process| std::cmp::Reverse(misses(process))),
        Sort::Restarts => all.sort_by_key(|process| std::cmp::Reverse(process.restarts)),
        Sort::Name => all.sort_by(|one, other| one.name.cmp(&other.name)),
    }
}
