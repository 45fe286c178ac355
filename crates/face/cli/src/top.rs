//! `tahti top`: the processes and threads of a plant, again and again, on what the terminal has room for.

use crate::attach::Raw;
use crate::control::{Whole, plant_name};
use crate::failure::{Failure, end};
use crate::out::{self, Colour, Painted};
use crate::ps::{Before, heading, heads, more, row, status};
use base::DurNs;
use keep::supervisor::Thread;
use keep::supervisor::control::{ProcessStatus, Status as Plant};
use recorder::status::Status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{isatty, tcgetwinsize};
use std::collections::BTreeMap;
use std::io::{stdin, stdout};
use std::process::ExitCode;
use std::time::Duration;

/// Watch the processes of a plant
///
/// On a terminal: q quits, t shows threads, c, m, n and o order by processor time, memory, name and as in the plant file.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti top                    until q
  tahti top --threads --sort cpu
  tahti top -n 1               one look, for scripts")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Whole,
    /// Time between two looks
    #[arg(long, default_value = "1s", value_name = "TIME")]
    every: DurNs,
    /// Looks to take; without it until q or Ctrl-C
    #[arg(long, short = 'n')]
    count: Option<u64>,
    /// Show the threads of each process
    #[arg(long, short = 't')]
    threads: bool,
    /// Order of the processes
    #[arg(long, value_name = "KEY", default_value = "order")]
    sort: Sort,
}

/// What processes are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// As in the plant file
    Order,
    /// Processor time since the last look, most first
    Cpu,
    /// Memory, most first
    Memory,
    /// Name
    Name,
}

/// What the keys change.
struct View {
    threads: bool,
    sort: Sort,
}

impl View {
    /// Whether it goes on after these keys.
    fn press(&mut self, keys: &[u8]) -> bool {
        for key in keys {
            match key {
                b't' => self.threads = !self.threads,
                b'c' => self.sort = Sort::Cpu,
                b'm' => self.sort = Sort::Memory,
                b'n' => self.sort = Sort::Name,
                b'o' => self.sort = Sort::Order,
                // ^C, ^D
                b'q' | b'Q' | 3 | 4 => return false,
                _ => {}
            }
        }
        true
    }

    fn key_line(&self) -> String {
        let threads = if self.threads { "no threads" } else { "threads" };
        let by = match self.sort {
            Sort::Order => "plant",
            Sort::Cpu => "cpu",
            Sort::Memory => "memory",
            Sort::Name => "name",
        };
        format!("by {by}  q quit  t {threads}  order by: c cpu, m memory, n name, o plant")
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    end(watch(&args))
}

fn watch(args: &Args) -> Result<(), Failure> {
    let name = plant_name(args.which.given())?;
    let every = args.every.to_std().max(Duration::from_millis(100));
    let mut view = View { threads: args.threads, sort: args.sort };
    let keys = args.count.is_none() && out::is_terminal() && isatty(stdin());
    let _screen = if keys { Some(Screen::enter()?) } else { None };
    let mut before: Option<Before> = None;
    let mut looks = 0;
    loop {
        let status = status(&name)?;
        let (mut lines, times) = lines(&status, before.as_ref(), &view);
        lines.extend(late(&name, status.now));
        let shown = if keys { fitted(lines, &view) } else { lines.join("\n") + "\n" };
        if out::screen(&shown).is_err() {
            // Nobody reads any more.
            return Ok(());
        }
        before = Some((status.now, times));
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        if keys {
            if !pause(every, &mut view)? {
                return Ok(());
            }
        } else {
            std::thread::sleep(every);
        }
    }
}

/// The last late wake-ups, where the plant has a recorder.
fn late(plant: &str, now: base::MonoNs) -> Vec<String> {
    let folder = crate::trace::folder(Some(plant));
    let Some(status) = Status::read(&folder).filter(|_| crate::trace::lives(&folder)) else { return Vec::new() };
    let head = format!("later than {}: {} of {} wake-ups; the last:", status.above, status.late, status.wakeups);
    let last = status.last.iter().map(|late| crate::trace::late(late, now));
    [String::new(), Painted(Colour::Head, head).to_string()].into_iter().chain(last).collect()
}

/// The terminal's other screen, with keys that come at once; as it was when dropped.
struct Screen {
    _raw: Raw,
}

impl Screen {
    fn enter() -> Result<Self, Failure> {
        let raw = Raw::enter()?;
        // A terminal that is gone ends the command at the next look.
        let _ = out::control("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J");
        Ok(Self { _raw: raw })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = out::control("\x1b[?7h\x1b[?25h\x1b[?1049l");
    }
}

/// Waits for the next look or a key; whether it goes on.
fn pause(every: Duration, view: &mut View) -> Result<bool, Failure> {
    let timeout = Timespec { tv_sec: every.as_secs() as i64, tv_nsec: every.subsec_nanos().into() };
    let input = stdin();
    match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)) {
        // Time for the next look, or a window that changes its size.
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(true),
        Err(errno) => return Err(format!("poll: {errno}").into()),
        Ok(_) => {}
    }
    let mut bytes = [0u8; 64];
    let got = rustix::io::read(&input, &mut bytes).map_err(|errno| format!("the keyboard: {errno}"))?;
    // The end of the input is nobody at the keyboard.
    Ok(got > 0 && view.press(&bytes[..got]))
}

/// All lines, and what to compare the next look with.
fn lines(status: &Plant, before: Option<&Before>, view: &View) -> (Vec<String>, BTreeMap<i32, DurNs>) {
    let mut times: BTreeMap<i32, DurNs> =
        status.processes.iter().filter_map(|process| Some((process.pid?, process.cpu))).collect();
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
            // The first thread has the process's number, and its own time.
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

/// Percent of one CPU that a thread has used since the earlier look.
fn share(status: &Plant, tid: i32, used: DurNs, before: Option<&Before>) -> f64 {
    let earlier = before.and_then(|(then, times)| Some((*then, times.get(&-tid)?)));
    earlier
        .map_or(0.0, |(then, earlier)| 100.0 * (used.0 - earlier.0).max(0) as f64 / (status.now - then).0.max(1) as f64)
}

fn ordered<'a>(status: &'a Plant, before: Option<&Before>, sort: Sort) -> Vec<&'a ProcessStatus> {
    let mut all: Vec<&ProcessStatus> = status.processes.iter().collect();
    let burnt = |process: &ProcessStatus| crate::ps::percent(process, status.now, before);
    match sort {
        Sort::Order => {}
        Sort::Cpu => all.sort_by(|one, other| burnt(other).total_cmp(&burnt(one))),
        Sort::Memory => all.sort_by_key(|process| std::cmp::Reverse(process.memory)),
        Sort::Name => all.sort_by(|one, other| one.name.cmp(&other.name)),
    }
    all
}

/// What the terminal has room for, the keys in its last row. Long lines are cut by the terminal, which does not wrap.
fn fitted(mut lines: Vec<String>, view: &View) -> String {
    let rows = tcgetwinsize(stdout()).map_or(24, |size| usize::from(size.ws_row)).max(4);
    let room = rows - 1;
    if lines.len() > room {
        let more = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(format!("  and {more} lines more: a higher window shows them"));
    }
    lines.resize(room, String::new());
    lines.push(Painted(Colour::Faint, view.key_line()).to_string());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_what_is_shown_and_q_ends() {
        let mut view = View { threads: false, sort: Sort::Order };
        assert!(view.press(b"tc"));
        assert!(view.threads && view.sort == Sort::Cpu);
        assert!(view.press(b"\x1b[A?o"));
        assert_eq!(view.sort, Sort::Order);
        assert!(!view.press(b"q") && !view.press(&[3]));
    }

    #[test]
    fn the_list_never_has_more_lines_than_the_screen() {
        let view = View { threads: false, sort: Sort::Order };
        for lines in [0, 3, 22, 23, 24, 500] {
            let shown = fitted(vec!["x".to_owned(); lines], &view);
            assert_eq!(shown.lines().count(), 24, "{lines}");
            assert!(shown.contains("by plant  q quit") && shown.contains("lines more") == (lines > 23), "{shown}");
        }
    }
}
