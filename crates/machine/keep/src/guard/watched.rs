//! One watched process with its descendants: looks, verdicts, and the hands of the ladder.
//!
//! Everything here runs on the guard's thread: no allocation, no lock, no log.

use super::read::{self, ProcPath};
use super::{Beats, Ends, Freezer, WatchId, What};
use crate::keeper::protocol::ChildId;
use base::{DurNs, MonoNs, Policy};
use host::guard::{Deed, Ladder, Meter, RungAction, Sample, Seen, Silence, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{RawDir, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::mem::MaybeUninit;
use sys::child::try_kill;
use sys::sched::{Scheduling, has_fixed_priority, try_set_scheduling};
use sys::signal::{SIGABRT, SIGCONT, SIGKILL, SIGSTOP};

/// Real-time threads held per watch.
const THREADS_MAX: usize = 64;
/// Processes (child and descendants) held per watch.
const PROCESSES_MAX: usize = 64;
/// How often threads are looked for, where some are real-time and where none is.
const SCAN: DurNs = DurNs::from_ms(100);
const SCAN_CALM: DurNs = DurNs::from_ms(500);
/// How often before the first real-time thread of a new watch: its class is about to be set.
const SCAN_NEW: DurNs = DurNs::from_ms(5);
/// How long a watch counts as new. Class and program of a process that waited follow at once.
const NEW: DurNs = DurNs::from_secs(2);

/// A real-time thread under watch.
struct Thread {
    pid: i32,
    tid: i32,
    schedstat: OwnedFd,
    status: OwnedFd,
    stat: OwnedFd,
    meter: Option<Meter>,
    last: Option<Sample>,
    /// Since when its processor time has stood still.
    still_since: MonoNs,
    starved_told: bool,
    due: MonoNs,
    seen: bool,
}

/// A process of the plant, under watch.
pub(crate) struct Watched {
    id: WatchId,
    child: ChildId,
    ancestor: i32,
    pidfd: OwnedFd,
    meter: Option<Meter>,
    ladder: Ladder,
    /// Who made the ladder begin, and how often it had given its CPU up then.
    culprit: Option<(i32, i32, u64)>,
    heartbeat: Option<(Beats, Silence)>,
    silence_told: bool,
    freezer: Option<Freezer>,
    starved_after: DurNs,
    threads: Vec<Thread>,
    processes: Vec<i32>,
    overflow_told: bool,
    next_scan: MonoNs,
    /// Until when the first real-time thread is looked for more often.
    new_until: MonoNs,
}

impl Watched {
    #[expect(clippy::too_many_arguments, reason = "one caller, which takes a WatchSpec apart")]
    pub(super) fn new(
        id: WatchId,
        child: ChildId,
        ancestor: i32,
        meter: Option<Meter>,
        ladder: Ladder,
        heartbeat: Option<(Beats, Silence)>,
        freezer: Option<Freezer>,
        starved_after: DurNs,
    ) -> Result<Self, Errno> {
        let pidfd = pidfd_open(Pid::from_raw(child.pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        // Opened first, then compared: the descriptor cannot become somebody else's.
        if crate::launch::start_ticks(child.pid) != Some(child.start_ticks) {
            return Err(Errno::SRCH);
        }
        Ok(Self {
            id,
            child,
            ancestor,
            pidfd,
            meter,
            ladder,
            culprit: None,
            heartbeat,
            silence_told: false,
            freezer,
            starved_after,
            threads: Vec::with_capacity(THREADS_MAX),
            processes: Vec::with_capacity(PROCESSES_MAX),
            overflow_told: false,
            next_scan: MonoNs(0),
            new_until: sys::clock::mono_now() + NEW,
        })
    }

    pub(super) fn id(&self) -> WatchId {
        self.id
    }

    /// Looks at whatever is due; when to look next, or `None` if the process is gone.
    pub(super) fn look(&mut self, now: MonoNs, ends: &Ends) -> Option<MonoNs> {
        if now >= self.next_scan || self.ladder.is_climbing() {
            if self.is_gone() {
                let by_ladder = self.ladder.is_climbing();
                self.ladder.advance(now, Seen::Gone);
                ends.event(now, self.id, self.child.pid, self.child.pid, What::Gone { by_ladder });
                return None;
            }
            if now >= self.next_scan {
                self.scan(now, ends);
            }
        }
        for index in 0..self.threads.len() {
            if now >= self.threads[index].due {
                self.sample(index, now, ends);
            }
        }
        self.listen(now, ends);
        if self.ladder.due().is_some_and(|due| now >= due) {
            let seen = if self.culprit_is_tame() { Seen::Tame } else { Seen::Burning };
            let deed = self.ladder.advance(now, seen);
            self.perform(deed, ends);
        }
        let heartbeat = self.heartbeat.as_ref().map(|(_, silence)| now + silence.look_again_in());
        let dues = self.threads.iter().map(|thread| thread.due);
        dues.chain(heartbeat).chain(self.ladder.due()).chain([self.next_scan]).min()
    }

    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&zero)).is_ok_and(|ready| ready > 0)
    }

    /// Finds descendants and their real-time threads.
    fn scan(&mut self, now: MonoNs, ends: &Ends) {
        self.threads.iter_mut().for_each(|thread| thread.seen = false);
        self.processes.clear();
        self.processes.push(self.child.pid);
        let mut unwatched = 0;
        if self.ancestor != self.child.pid {
            for_each_thread(self.ancestor, |tid| find_children(self.ancestor, tid, &mut self.processes));
        }
        let mut next = 0;
        while let Some(pid) = self.processes.get(next).copied() {
            next += 1;
            let (threads, processes, meter) = (&mut self.threads, &mut self.processes, self.meter);
            for_each_thread(pid, |tid| {
                find_children(pid, tid, processes);
                if has_fixed_priority(tid) != Some(true) {
                    return;
                }
                if let Some(known) = threads.iter_mut().find(|thread| thread.tid == tid) {
                    known.seen = true;
                } else if threads.len() < THREADS_MAX {
                    threads.extend(Thread::open(pid, tid, meter, now));
                } else {
                    unwatched += 1;
                }
            });
        }
        self.threads.retain(|thread| thread.seen);
        if unwatched > 0 && !self.overflow_told {
            self.overflow_told = true;
            ends.event(now, self.id, self.child.pid, 0, What::Unwatched { threads: unwatched });
        }
        let every = match self.threads.is_empty() {
            true if now < self.new_until => SCAN_NEW,
            true => SCAN_CALM,
            false => SCAN,
        };
        self.next_scan = now + every;
    }

    /// Reads one thread's account and judges it.
    fn sample(&mut self, index: usize, now: MonoNs, ends: &Ends) {
        let starved_after = self.starved_after;
        let thread = &mut self.threads[index];
        thread.due = now + SCAN;
        let Some(cpu) = read::processor_time(&thread.schedstat) else { return };
        let moved = thread.last.is_none_or(|last| last.cpu.0 != cpu);
        // The count of switches is dear to read: only where the time shows that the thread ran.
        let voluntary = match thread.last {
            Some(last) if !moved => last.voluntary,
            _ => read::voluntary_switches(&thread.status).unwrap_or(0),
        };
        let sample = Sample { now, cpu: DurNs(cpu), voluntary };
        thread.last = Some(sample);
        let (pid, tid) = (thread.pid, thread.tid);
        let mut starved = None;
        if moved || read::state(&thread.stat) != Some(b'R') {
            (thread.still_since, thread.starved_told) = (now, false);
        } else if now - thread.still_since >= starved_after && !thread.starved_told {
            thread.starved_told = true;
            starved = Some(now - thread.still_since);
        }
        let verdict = match &mut thread.meter {
            Some(meter) => {
                let verdict = meter.observe(sample);
                thread.due = now + meter.look_again_in(sample);
                verdict
            }
            None => Verdict::Within,
        };
        if let Some(waited) = starved {
            ends.event(now, self.id, pid, tid, What::Starved { waited });
        }
        match verdict {
            Verdict::Within => {}
            Verdict::Over { in_a_row } => ends.event(now, self.id, pid, tid, What::Over { in_a_row }),
            Verdict::Runaway { used, window } => {
                self.runaway(now, pid, tid, voluntary, What::Runaway { used, window }, ends);
            }
        }
    }

    /// Listens for the heartbeat.
    fn listen(&mut self, now: MonoNs, ends: &Ends) {
        let Some((beats, silence)) = &mut self.heartbeat else { return };
        let Some(silent) = silence.observe(now, beats()) else {
            self.silence_told = false;
            return;
        };
        if self.silence_told {
            return;
        }
        self.silence_told = true;
        let what = What::Silent { silence: silent };
        let pid = self.child.pid;
        if self.meter.is_some() {
            // A budget watches the processor; silence is a hang, which the supervisor deals with.
            ends.event(now, self.id, pid, pid, what);
        } else {
            self.runaway(now, pid, pid, 0, what, ends);
        }
    }

    fn runaway(&mut self, now: MonoNs, pid: i32, tid: i32, voluntary: u64, what: What, ends: &Ends) {
        if self.ladder.is_climbing() {
            return;
        }
        self.culprit = Some((pid, tid, voluntary));
        let deed = self.ladder.begin(now);
        // First the deed, then the telling: the CPU is wanted back.
        let told = FirstReport { at: now, what };
        self.perform_after(deed, Some(told), ends);
    }

    /// Whether the culprit sleeps again. That its registers were read counts as two switches.
    fn culprit_is_tame(&self) -> bool {
        const SWITCHES: u64 = 4;
        if self.meter.is_none() {
            // It may burn, but not be silent.
            return !self.silence_told;
        }
        let Some((pid, tid, before)) = self.culprit else { return false };
        let open = |name: &[u8]| ProcPath::new().id(pid).name(b"task").id(tid).name(name).open();
        let (Some(status), Some(stat)) = (open(b"status"), open(b"stat")) else { return true };
        read::state(&stat) == Some(b'S')
            || read::voluntary_switches(&status).is_none_or(|count| count.saturating_sub(before) >= SWITCHES)
    }

    fn perform(&mut self, deed: Deed, ends: &Ends) {
        self.perform_after(deed, None, ends);
    }

    fn perform_after(&mut self, deed: Deed, told: Option<FirstReport>, ends: &Ends) {
        let counts = match deed {
            Deed::Do(action) => Some((action, self.act(action))),
            _ => None,
        };
        let at = sys::clock::mono_now();
        let (pid, tid, _) = self.culprit.unwrap_or((self.child.pid, self.child.pid, 0));
        if let Some(FirstReport { at, what }) = told {
            ends.event(at, self.id, pid, tid, what);
        }
        let what = match (deed, counts) {
            (Deed::Do(_), Some((action, (reached, refused)))) => What::Step { action, reached, refused },
            (Deed::Tamed, _) => {
                self.threads.clear();
                (self.culprit, self.next_scan) = (None, at);
                What::Tamed
            }
            (Deed::Exhausted, _) => {
                self.act(RungAction::Kill);
                What::Exhausted
            }
            _ => return,
        };
        ends.event(at, self.id, pid, tid, what);
    }

    /// Does one step; how many it reached, and how many the kernel refused.
    fn act(&mut self, action: RungAction) -> (u32, u32) {
        match action {
            RungAction::Demote => self.demote(),
            RungAction::Freeze => self.freeze(),
            RungAction::Abort => {
                let (pid, ..) = self.culprit.unwrap_or((self.child.pid, 0, 0));
                let counts = tally([try_kill(pid, SIGABRT)]);
                self.thaw();
                counts
            }
            RungAction::Kill => self.kill(),
        }
    }

    /// Takes the real-time class from every thread, the culprit's first.
    fn demote(&mut self) -> (u32, u32) {
        let other = Scheduling { policy: Policy::OTHER, reset_on_fork: false };
        let culprit = self.culprit.map_or(0, |(_, tid, _)| tid);
        let mut counts = (0, 0);
        if has_fixed_priority(culprit) == Some(true) {
            add(&mut counts, try_set_scheduling(culprit, other));
        }
        for index in 0..self.processes.len() {
            for_each_thread(self.processes[index], |tid| {
                if has_fixed_priority(tid) == Some(true) {
                    add(&mut counts, try_set_scheduling(tid, other));
                }
            });
        }
        counts
    }

    fn freeze(&mut self) -> (u32, u32) {
        match &self.freezer {
            Some(freezer) => tally([rustix::io::pwrite(&freezer.file, freezer.freeze, 0).map(drop)]),
            None => tally(self.processes.iter().map(|pid| try_kill(*pid, SIGSTOP))),
        }
    }

    fn thaw(&mut self) {
        match &self.freezer {
            // What was not frozen needs no thaw.
            Some(freezer) => drop(rustix::io::pwrite(&freezer.file, freezer.thaw, 0)),
            None => drop(tally(self.processes.iter().map(|pid| try_kill(*pid, SIGCONT)))),
        }
    }

    fn kill(&mut self) -> (u32, u32) {
        if let Some(Freezer { kill: Some(kill), .. }) = &self.freezer {
            // The loop below reaches those that the group does not hold.
            let _ = rustix::io::pwrite(kill, b"1", 0);
        }
        let counts = tally(self.processes.iter().map(|pid| try_kill(*pid, SIGKILL)));
        self.thaw();
        counts
    }
}

/// What is told once the first step is done.
struct FirstReport {
    at: MonoNs,
    what: What,
}

impl Thread {
    fn open(pid: i32, tid: i32, meter: Option<Meter>, now: MonoNs) -> Option<Self> {
        let open = |name: &[u8]| ProcPath::new().id(pid).name(b"task").id(tid).name(name).open();
        Some(Self {
            pid,
            tid,
            schedstat: open(b"schedstat")?,
            status: open(b"status")?,
            stat: open(b"stat")?,
            meter,
            last: None,
            still_since: now,
            starved_told: false,
            due: now,
            seen: true,
        })
    }
}

/// Counts an outcome; what is gone meanwhile counts on neither side.
fn add(counts: &mut (u32, u32), outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => counts.0 += 1,
        Err(Errno::SRCH) => {}
        Err(_) => counts.1 += 1,
    }
}

fn tally(outcomes: impl IntoIterator<Item = Result<(), Errno>>) -> (u32, u32) {
    let mut counts = (0, 0);
    outcomes.into_iter().for_each(|outcome| add(&mut counts, outcome));
    counts
}

/// Calls `each` with every thread of a process.
fn for_each_thread(pid: i32, mut each: impl FnMut(i32)) {
    let Some(dir) = ProcPath::new().id(pid).name(b"task").open() else { return };
    if rustix::fs::seek(&dir, SeekFrom::Start(0)).is_err() {
        return;
    }
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = RawDir::new(&dir, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        if let Some(tid) = read::number(entry.file_name().to_bytes()) {
            each(tid as i32);
        }
    }
}

/// Adds the children that a thread forked (`/proc/PID/task/TID/children`; kernels without that file show
/// none, and the process alone is watched).
fn find_children(pid: i32, tid: i32, processes: &mut Vec<i32>) {
    let Some(file) = ProcPath::new().id(pid).name(b"task").id(tid).name(b"children").open() else { return };
    let mut bytes = [0u8; 1024];
    let Ok(got) = rustix::io::pread(&file, &mut bytes, 0) else { return };
    for child in bytes[..got].split(|byte| *byte == b' ').filter_map(read::number) {
        let child = child as i32;
        if processes.len() < PROCESSES_MAX && !processes.contains(&child) {
            processes.push(child);
        }
    }
}
