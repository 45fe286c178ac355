//! Why a call did not end in time, as far as the kernel's counters tell.

use base::{DurNs, MonoNs};
use ring::Baseline;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Why a call did not end, or did not begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The counters could not be read.
    #[default]
    Unknown,
    /// It used the processor itself nearly all the time.
    OwnCode,
    /// It waits for something, or did for much of the time.
    Blocked,
    /// Others ran on its CPU; the detail says how often it was taken.
    Preempted,
    /// Page faults; the detail says how many.
    Faulted,
    /// A debugger or a signal holds it.
    Stopped,
    /// Its thread is gone.
    Died,
    /// Another activity had the turn; the detail is its index.
    Behind,
    /// Nobody had joined.
    Nobody,
}

impl Cause {
    /// From its number in an event.
    #[must_use]
    pub fn of(number: u8) -> Self {
        [
            Self::Unknown,
            Self::OwnCode,
            Self::Blocked,
            Self::Preempted,
            Self::Faulted,
            Self::Stopped,
            Self::Died,
            Self::Behind,
            Self::Nobody,
        ]
        .into_iter()
        .find(|cause| *cause as u8 == number)
        .unwrap_or_default()
    }

    /// As people read it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "cause unknown",
            Self::OwnCode => "own code",
            Self::Blocked => "blocked",
            Self::Preempted => "preempted",
            Self::Faulted => "page faults",
            Self::Stopped => "stopped (debugger or signal)",
            Self::Died => "died",
            Self::Behind => "behind",
            Self::Nobody => "nobody joined",
        }
    }
}

/// The files of a thread that tell what it does; open as long as it is joined.
#[derive(Debug)]
pub(crate) struct ThreadFiles {
    stat: File,
    status: File,
    schedstat: Option<File>,
}

/// What a thread had cost by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    state: u8,
    faults: u64,
    voluntary: u64,
    involuntary: u64,
    cpu_ns: u64,
}

impl ThreadFiles {
    pub(crate) fn open(pid: u32, tid: u32) -> std::io::Result<Self> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let open = |name: &str| File::open(format!("{folder}/{name}"));
        Ok(Self { stat: open("stat")?, status: open("status")?, schedstat: open("schedstat").ok() })
    }

    /// Real-time: three reads of files that exist in memory only; neither allocates nor blocks.
    fn cost(&self) -> Option<Cost> {
        let mut room = [0u8; 4096];
        let mut read = |file: &File| file.read_at(&mut room, 0).ok().map(|length| (room, length));
        let (bytes, length) = read(&self.stat)?;
        let mut cost = parse_stat(&bytes[..length])?;
        let (bytes, length) = read(&self.status)?;
        (cost.voluntary, cost.involuntary) = parse_switches(&bytes[..length])?;
        if let Some((bytes, length)) = self.schedstat.as_ref().and_then(read) {
            cost.cpu_ns = numbers(&bytes[..length]).next().unwrap_or(0);
        }
        Some(cost)
    }

    /// What kept the call that began with `baseline` from ending by `now`: cause, detail, processor time.
    pub(crate) fn why(&self, baseline: &Baseline, now: MonoNs) -> (Cause, u64, DurNs) {
        let Some(cost) = self.cost() else { return (Cause::Died, 0, DurNs::ZERO) };
        let cpu = DurNs(cost.cpu_ns.saturating_sub(baseline.cpu.0 as u64) as i64);
        let elapsed = now.0.saturating_sub(baseline.at.0) as i64;
        let faults = cost.faults.saturating_sub(baseline.faults);
        // The dispatcher itself came in between once.
        let taken = cost.involuntary.saturating_sub(baseline.involuntary).saturating_sub(1);
        let gave = cost.voluntary.saturating_sub(baseline.voluntary);
        let (cause, detail) = match cost.state {
            b'Z' | b'X' => (Cause::Died, 0),
            b'T' | b't' => (Cause::Stopped, 0),
            b'S' | b'D' => (Cause::Blocked, 0),
            _ if cpu.0 >= elapsed / 10 * 9 && faults < 8 => (Cause::OwnCode, 0),
            _ if faults > 0 => (Cause::Faulted, faults),
            _ if gave > 0 => (Cause::Blocked, gave),
            _ if taken > 0 => (Cause::Preempted, taken),
            _ => (Cause::Unknown, 0),
        };
        (cause, detail, cpu)
    }
}

/// The blank-separated numbers in a file, as far as they are numbers.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map_while(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

/// State and page faults of `/proc/PID/task/TID/stat`. The name may hold anything, so fields count from its end.
fn parse_stat(bytes: &[u8]) -> Option<Cost> {
    let end = bytes.iter().rposition(|byte| *byte == b')')?;
    let mut words = bytes[end + 1..].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let state = *words.next()?.first()?;
    // After the state: ppid pgrp session tty tpgid flags minflt cminflt majflt.
    let mut number = |skip: usize| std::str::from_utf8(words.nth(skip)?).ok()?.parse::<u64>().ok();
    let minor = number(6)?;
    let major = number(1)?;
    Some(Cost { state, faults: minor + major, ..Cost::default() })
}

/// The two counts of context switches at the end of `/proc/PID/task/TID/status`.
fn parse_switches(bytes: &[u8]) -> Option<(u64, u64)> {
    let of = |name: &[u8]| {
        let line = bytes.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        numbers(line).next()
    };
    Some((of(b"voluntary_ctxt_switches:")?, of(b"nonvoluntary_ctxt_switches:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_files_are_read_whatever_it_is_called() {
        let stat = b"71 (a) R 1 (b) S 1 71 71 0 -1 4194304 500 0 7 0 0 0 0 0 20 0 1 0 5";
        assert_eq!(parse_stat(stat), Some(Cost { state: b'S', faults: 507, ..Cost::default() }));
        let status = b"Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(parse_switches(status), Some((150, 3)));
        assert_eq!((parse_stat(b"71 (x"), parse_stat(b""), parse_switches(b"Name:")), (None, None, None));
    }

    #[test]
    fn a_thread_that_works_is_told_from_one_that_sleeps_and_one_that_is_gone() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(sys::thread::id()).unwrap();
            let _ = ended.recv();
        });
        let pid = std::process::id();
        let files = ThreadFiles::open(pid, told.recv().unwrap() as u32).unwrap();
        while files.cost().unwrap().state != b'S' {
            std::thread::yield_now();
        }
        assert_eq!(files.why(&Baseline::default(), MonoNs(u64::MAX)).0, Cause::Blocked);
        drop(end);
        thread.join().unwrap();
        while files.cost().is_some() {
            std::thread::yield_now();
        }
        assert_eq!(files.why(&Baseline::default(), MonoNs(0)).0, Cause::Died);
        let own = ThreadFiles::open(pid, sys::thread::id() as u32).unwrap();
        let usage = sys::thread::usage();
        let baseline = Baseline {
            at: sys::clock::mono_now(),
            cpu: DurNs(0),
            faults: u64::MAX,
            voluntary: usage.voluntary,
            involuntary: usage.involuntary,
        };
        assert_eq!(own.why(&baseline, sys::clock::mono_now()).0, Cause::OwnCode);
    }
}
