//! Cause of a late call, as far as the kernel's counters show it.

use base::DurNs;
use ring::{Baseline, FramePage};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Cause for a call that did not end or did not begin in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The counters could not be read.
    #[default]
    Unknown,
    /// The call used more processor time than its budget.
    OwnCode,
    /// The call waits for something, or did for much of the time.
    Blocked,
    /// Other threads ran on its CPU. The detail is the number of preemptions.
    Preempted,
    /// Page faults. The detail is their number.
    Faulted,
    /// Stopped by a debugger or a signal.
    Stopped,
    /// Its thread has ended.
    Died,
    /// Another activity had the turn. The detail is its index.
    Behind,
    /// No thread had joined.
    Nobody,
    /// The call lacks processor time although no other thread ran on its CPU: interrupts or the hypervisor.
    Stolen,
    /// Its minor began late. The detail is the delay in ns.
    Late,
    /// Its turn came late, or it did not get to run in its turn, because of other threads on its CPU, interrupts or the
    /// hypervisor. The detail is the time in ns.
    Kept,
}

impl Cause {
    /// The cause with this number, as stored in an event.
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
            Self::Stolen,
            Self::Late,
            Self::Kept,
        ]
        .into_iter()
        .find(|cause| *cause as u8 == number)
        .unwrap_or_default()
    }

    /// The cause as displayed to users.
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
            Self::Stolen => "interrupts or hypervisor",
            Self::Late => "its minor began late",
            Self::Kept => "its CPU was taken before its turn",
        }
    }
}

/// Files in `/proc` with the state of a thread. They are open while it is joined.
#[derive(Debug)]
pub(crate) struct ThreadFiles {
    stat: File,
    status: File,
    schedstat: Option<File>,
}

/// A call in progress, as far as its frame knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InProgress {
    /// Time since it began; zero if it has not begun.
    pub(crate) elapsed: DurNs,
    /// Whether it continues from an earlier minor. In that case the frame itself gave its CPU to others for a while.
    pub(crate) goes_on: bool,
    /// Processor time that it may use.
    pub(crate) budget: DurNs,
    /// Time that its minor lost before its turn came.
    pub(crate) before: Before,
    /// Time that it has had the turn without beginning; zero if it has begun.
    pub(crate) waited: DurNs,
}

/// Time that a minor lost before an activity got the turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Delay of the start of the minor.
    pub(crate) late: DurNs,
    /// Time from the start of the minor until its first activity began.
    pub(crate) kept: DurNs,
    /// The activity in front that exceeded its budget most, and the excess.
    pub(crate) front: Option<(usize, DurNs)>,
}

impl Before {
    /// The largest loss, if there is one: time, cause, detail.
    fn worst(self) -> Option<(DurNs, Cause, u64)> {
        let front = self.front.map(|(who, by)| (by, Cause::Behind, who as u64));
        let times = [(self.late, Cause::Late), (self.kept, Cause::Kept)];
        let times = times.map(|(by, cause)| (by, cause, by.0.max(0) as u64));
        times.into_iter().chain(front).filter(|(by, ..)| *by > DurNs::ZERO).max_by_key(|(by, ..)| *by)
    }
}

impl ThreadFiles {
    pub(crate) fn open(pid: u32, tid: u32) -> std::io::Result<Self> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let open = |name: &str| File::open(format!("{folder}/{name}"));
        Ok(Self { stat: open("stat")?, status: open("status")?, schedstat: open("schedstat").ok() })
    }

    /// Whether the thread has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.cost().is_none_or(|(state, _)| matches!(state, b'Z' | b'X'))
    }

    /// State and kernel accounts of the thread. Real-time: three reads of files that exist in memory only. Neither allocates
    /// nor blocks.
    fn cost(&self) -> Option<(u8, Baseline)> {
        let mut room = [0u8; 4096];
        let mut read = |file: &File| file.read_at(&mut room, 0).ok().map(|length| (room, length));
        let (bytes, length) = read(&self.stat)?;
        let (state, faults) = parse_stat(&bytes[..length])?;
        let (bytes, length) = read(&self.status)?;
        let (voluntary, involuntary) = parse_switches(&bytes[..length])?;
        let cpu = self.schedstat.as_ref().and_then(read).and_then(|(bytes, length)| numbers(&bytes[..length]).next());
        let cpu = DurNs(cpu.unwrap_or(0) as i64);
        Some((state, Baseline { cpu, faults, voluntary, involuntary }))
    }

    /// Why the call of an activity has not ended: cause, detail, processor time of the call.
    pub(crate) fn why(&self, page: &FramePage<'_>, activity: usize, call: InProgress) -> (Cause, u64, DurNs) {
        let Some((state, cost)) = self.cost() else { return (Cause::Died, 0, DurNs::ZERO) };
        let (was, is) = (page.baseline(activity), page.beyond(activity, &cost));
        // The counters are in shared memory. If they were overwritten, they may run backwards.
        let more = |is: u64, was: u64| (is.wrapping_sub(was) as i64).max(0) as u64;
        let since = is.cpu.0.wrapping_sub(was.cpu.0).saturating_sub(page.around(activity).0);
        let cpu = DurNs(since.clamp(0, call.elapsed.0.max(0)));
        let faults = more(is.faults, was.faults);
        let (gave, taken) = (more(is.voluntary, was.voluntary), more(is.involuntary, was.involuntary));
        // A call that has not used its budget is not the cause. Whatever took the time from it is.
        let own = cpu >= call.budget && call.elapsed > DurNs::ZERO;
        // For a call that continues, the time for which the frame itself withheld the CPU is not known.
        let lacked = if call.goes_on { DurNs::ZERO } else { DurNs(call.elapsed.0 - cpu.0).max(call.waited) };
        let before = call.before.worst().map(|(by, cause, detail)| (by > lacked, (cause, detail)));
        let (cause, detail) = match (state, before) {
            (b'Z' | b'X', _) => (Cause::Died, 0),
            (b'T' | b't', _) => (Cause::Stopped, 0),
            (b'S' | b'D', _) => (Cause::Blocked, 0),
            _ if own && faults < 8 && (call.goes_on || cpu.0 >= call.elapsed.0 / 2) => (Cause::OwnCode, 0),
            (_, Some((true, before))) if !own && !call.goes_on => before,
            // It is runnable but has not begun.
            _ if call.elapsed <= DurNs::ZERO => (Cause::Kept, call.waited.0.max(0) as u64),
            _ if faults > 0 => (Cause::Faulted, faults),
            _ if gave > 0 => (Cause::Blocked, gave),
            _ if taken > 0 => (Cause::Preempted, taken),
            _ if own => (Cause::OwnCode, 0),
            (_, Some((_, before))) if call.goes_on => before,
            _ => (Cause::Stolen, 0),
        };
        (cause, detail, cpu)
    }
}

/// The numbers in a file, separated by white space, up to the first word that is no number.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map_while(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

/// State and page faults in `/proc/PID/task/TID/stat`. The name may contain any bytes, so fields are counted from its end.
fn parse_stat(bytes: &[u8]) -> Option<(u8, u64)> {
    let end = bytes.iter().rposition(|byte| *byte == b')')?;
    let mut words = bytes[end + 1..].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let state = *words.next()?.first()?;
    // After the state: ppid pgrp session tty tpgid flags minflt cminflt majflt.
    let mut number = |skip: usize| std::str::from_utf8(words.nth(skip)?).ok()?.parse::<u64>().ok();
    let minor = number(6)?;
    let major = number(1)?;
    Some((state, minor + major))
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
    fn the_files_of_a_thread_are_parsed_with_any_thread_name() {
        let stat = b"71 (a) R 1 (b) S 1 71 71 0 -1 4194304 500 0 7 0 0 0 0 0 20 0 1 0 5";
        assert_eq!(parse_stat(stat), Some((b'S', 507)));
        let status = b"Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(parse_switches(status), Some((150, 3)));
        assert_eq!((parse_stat(b"71 (x"), parse_stat(b""), parse_switches(b"Name:")), (None, None, None));
    }

    #[test]
    fn a_sleeping_thread_is_distinguished_from_one_that_has_ended() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(sys::thread::id()).unwrap();
            let _ = ended.recv();
        });
        let words = page_words();
        let page = FramePage::format(&words, "causes", SHAPE).unwrap();
        let why = |files: &ThreadFiles, elapsed| files.why(&page, 0, InProgress { elapsed, ..NEW });
        let pid = std::process::id();
        let files = ThreadFiles::open(pid, told.recv().unwrap() as u32).unwrap();
        while files.cost().unwrap().0 != b'S' {
            std::thread::yield_now();
        }
        assert_eq!(why(&files, DurNs(i64::MAX)).0, Cause::Blocked);
        drop(end);
        thread.join().unwrap();
        while files.cost().is_some() {
            std::thread::yield_now();
        }
        assert_eq!(why(&files, DurNs(0)).0, Cause::Died);
    }

    #[test]
    fn the_time_that_a_running_call_lacks_is_attributed_to_its_cause() {
        let words = page_words();
        let page = FramePage::format(&words, "causes", SHAPE).unwrap();
        let files = ThreadFiles::open(std::process::id(), sys::thread::id() as u32).unwrap();
        // Far more than the thread uses during the check: all of it since the baseline, or none.
        const FAR: u64 = 1 << 40;
        let (_, now) = files.cost().unwrap();
        let ago = |counter: u64, many: bool| if many { counter.wrapping_sub(FAR) } else { counter.wrapping_add(FAR) };
        let long = DurNs::from_secs(3600);
        let why = |[faults, gave, taken]: [bool; 3], call: InProgress| {
            page.set_baseline(
                0,
                &Baseline {
                    // One second since the baseline, or the whole call if that is shorter.
                    cpu: DurNs(now.cpu.0 - DurNs::from_secs(1).0),
                    faults: ago(now.faults, faults),
                    voluntary: ago(now.voluntary, gave),
                    involuntary: ago(now.involuntary, taken),
                },
            );
            let (cause, detail, _) = files.why(&page, 0, call);
            (cause, detail)
        };
        let cause = |counts, call| why(counts, call).0;
        let call = |elapsed, goes_on| InProgress { elapsed, goes_on, ..NEW };
        assert_eq!(why([true; 3], InProgress { waited: DurNs(7), ..NEW }), (Cause::Kept, 7), "it has not begun");
        assert_eq!(cause([false; 3], InProgress { budget: DurNs(9), ..call(DurNs(9), false) }), Cause::OwnCode);
        assert_eq!(cause([false; 3], call(long, false)), Cause::Stolen);
        assert_eq!(cause([true, true, true], call(long, false)), Cause::Faulted);
        assert_eq!(cause([false, true, true], call(long, false)), Cause::Blocked);
        assert_eq!(cause([false, false, true], call(long, true)), Cause::Preempted);
        // The call had the CPU all the time or little of it; the time was lost before.
        let late = Before { late: DurNs(40), kept: DurNs(30), front: Some((0, DurNs(20))) };
        assert_eq!(why([true; 3], InProgress { before: late, ..call(DurNs(9), false) }), (Cause::Late, 40));
        let kept = Before { late: DurNs(10), ..late };
        assert_eq!(why([true; 3], InProgress { before: kept, ..call(DurNs(9), false) }), (Cause::Kept, 30));
        let behind = Before { front: Some((3, DurNs(50))), ..late };
        assert_eq!(why([true; 3], InProgress { before: behind, ..call(DurNs(9), false) }), (Cause::Behind, 3));
        assert_eq!(why([false; 3], InProgress { before: behind, ..call(long, true) }), (Cause::Behind, 3));
        assert_eq!(
            cause([false; 3], InProgress { before: late, ..call(long, false) }),
            Cause::Stolen,
            "the CPU was stolen for longer in it"
        );
        let in_front = Before { front: Some((3, DurNs(-5))), ..Before::default() };
        assert_eq!(cause([false; 3], InProgress { before: in_front, ..call(DurNs(9), true) }), Cause::Stolen);
    }

    /// A call that has not begun.
    const NEW: InProgress = InProgress {
        elapsed: DurNs(0),
        goes_on: false,
        budget: DurNs::from_secs(60),
        before: Before { late: DurNs(0), kept: DurNs(0), front: None },
        waited: DurNs(0),
    };

    const SHAPE: ring::FrameShape = ring::FrameShape { activities: 1, minors: 1, queue: 1, modes: 0 };

    fn page_words() -> Vec<ring::AtomicU64> {
        (0..SHAPE.words()).map(|_| ring::AtomicU64::new(0)).collect()
    }
}
