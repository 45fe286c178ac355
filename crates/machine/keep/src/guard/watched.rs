//! One watched process with its descendants: measurements, verdicts, and the steps of the ladder.
//!
//! Everything here runs on the guard's thread, which must not allocate, lock or log.

use super::MaxSilence;
use super::member::Member;
use super::read;
use super::{Beats, Ends, EventKind, Freezer, WatchId};
use crate::keeper::protocol::ChildId;
use base::{DurNs, MonoNs, Policy};
use host::guard::{BudgetState, Ladder, LadderStep, Meter, RungAction, Sample, Silence, Verdict};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use sys::process::Process;
use sys::sched::{Scheduling, has_fixed_priority, try_set_scheduling};
use sys::signal::{SIGABRT, SIGCONT, SIGKILL, SIGSTOP};

/// Maximum number of real-time threads per watch.
const THREADS_MAX: usize = 64;
/// Maximum number of processes (child and descendants) per watch.
const PROCESSES_MAX: usize = 256;
/// Period of the thread scan: with real-time threads, and without any.
const SCAN: DurNs = DurNs::from_ms(100);
const SCAN_CALM: DurNs = DurNs::from_ms(500);
/// Period while a new watch has no real-time thread yet, because its class is about to be set.
const SCAN_NEW: DurNs = DurNs::from_ms(5);
/// Time for which a watch counts as new. Two seconds suffice, because a process released from its hold sets its class
/// and starts its program at once.
const NEW: DurNs = DurNs::from_secs(2);

/// A watched real-time thread.
struct Thread {
    pid: i32,
    tid: i32,
    schedstat: OwnedFd,
    status: OwnedFd,
    stat: OwnedFd,
    meter: Option<Meter>,
    last: Option<Sample>,
    /// Time since when its processor time has not changed.
    still_since: MonoNs,
    starved_told: bool,
    due: MonoNs,
    seen: bool,
}

/// Which of the guard's capacities a watch exceeds.
#[derive(Clone, Copy, Default)]
struct Overflow {
    threads: bool,
    processes: bool,
}

impl Overflow {
    /// Whether a capacity is exceeded that was not exceeded before.
    const fn exceeds(self, before: Self) -> bool {
        self.threads && !before.threads || self.processes && !before.processes
    }
}

/// The thread for which the ladder began.
struct Culprit {
    /// Its process. `None` if no further descriptor was available; then the member with the same PID is used.
    process: Option<Member>,
    pid: i32,
    tid: i32,
    /// Its count of voluntary context switches at that time.
    voluntary: u64,
    /// Its stat and status files; `None` as for `process`.
    files: Option<(OwnedFd, OwnedFd)>,
}

/// A watched process of the plant.
pub(crate) struct Watched {
    id: WatchId,
    child: ChildId,
    process: Process,
    /// The ancestor whose descendants are watched too, if it is another process.
    ancestor: Option<Member>,
    meter: Option<Meter>,
    ladder: Ladder,
    /// The thread for which the ladder began.
    culprit: Option<Culprit>,
    heartbeat: Option<(Beats, MaxSilence, Silence)>,
    silence_told: bool,
    freezer: Option<Freezer>,
    starved_after: DurNs,
    threads: Vec<Thread>,
    members: Vec<Member>,
    /// Whether threads and processes beyond the capacity have been reported.
    overflow_told: Overflow,
    next_scan: MonoNs,
    /// Until this time the threads are scanned more often, to find the first real-time thread early.
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
        heartbeat: Option<(Beats, MaxSilence, Silence)>,
        freezer: Option<Freezer>,
        starved_after: DurNs,
    ) -> Result<Self, Errno> {
        let process = Process::started_at(child.pid, child.start_ticks).map_err(|error| error.errno)?;
        let first = Member::open(child.pid)?;
        let above = if ancestor == child.pid { None } else { Member::open(ancestor).ok() };
        // Checked after the handles are open: a process that reused the PID meanwhile is not an ancestor.
        let ancestor = above.filter(|above| crate::launch::is_below(child.pid, above.pid));
        if process.has_ended() {
            return Err(Errno::SRCH);
        }
        let mut members = Vec::with_capacity(PROCESSES_MAX);
        members.push(first);
        Ok(Self {
            id,
            child,
            process,
            ancestor,
            meter,
            ladder,
            culprit: None,
            heartbeat,
            silence_told: false,
            freezer,
            starved_after,
            threads: Vec::with_capacity(THREADS_MAX),
            members,
            overflow_told: Overflow::default(),
            next_scan: MonoNs(0),
            new_until: sys::clock::mono_now() + NEW,
        })
    }

    pub(super) fn id(&self) -> WatchId {
        self.id
    }

    /// Runs the checks that are due. Returns the time of the next check, or `None` if the process is gone.
    pub(super) fn look(&mut self, now: MonoNs, ends: &Ends) -> Option<MonoNs> {
        if now >= self.next_scan || self.ladder.is_climbing() {
            if self.process.has_ended() {
                let by_ladder = self.ladder.is_climbing();
                self.ladder.advance(now, BudgetState::Gone);
                ends.event(now, self.id, self.child.pid, self.child.pid, EventKind::Gone { by_ladder });
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
            let seen = if self.culprit_is_tame() { BudgetState::Tame } else { BudgetState::Burning };
            let deed = self.ladder.advance(now, seen);
            self.perform(deed, ends);
        }
        let heartbeat = self.heartbeat.as_ref().map(|(_, _, silence)| now + silence.look_again_in());
        let dues = self.threads.iter().map(|thread| thread.due);
        dues.chain(heartbeat).chain(self.ladder.due()).chain([self.next_scan]).min()
    }

    /// Finds descendants and their real-time threads.
    fn scan(&mut self, now: MonoNs, ends: &Ends) {
        let lacking = self.find_members();
        self.threads.iter_mut().for_each(|thread| thread.seen = false);
        let mut unwatched = 0;
        for member in &self.members {
            let (threads, meter) = (&mut self.threads, self.meter);
            member.for_each_thread(|tid| {
                if has_fixed_priority(tid) != Some(true) {
                    return;
                }
                // The files of an ended thread cannot be used for a later thread with the same TID.
                let known = threads.iter_mut().find(|thread| thread.tid == tid && read::state(&thread.stat).is_some());
                if let Some(known) = known {
                    known.seen = true;
                    return;
                }
                let opened =
                    if threads.len() < THREADS_MAX { Thread::open(member, tid, meter, now) } else { Err(Errno::NOSPC) };
                match opened {
                    Ok(thread) => threads.push(thread),
                    Err(errno) if is_gone(errno) => {}
                    Err(_) => unwatched += 1,
                }
            });
        }
        self.threads.retain(|thread| thread.seen);
        let overflow = Overflow { threads: unwatched > 0, processes: lacking > 0 };
        if overflow.exceeds(self.overflow_told) {
            let what = EventKind::Unwatched { threads: unwatched, processes: lacking };
            ends.event(now, self.id, self.child.pid, 0, what);
        }
        self.overflow_told = overflow;
        let every = match self.threads.is_empty() {
            true if now < self.new_until => SCAN_NEW,
            true => SCAN_CALM,
            false => SCAN,
        };
        self.next_scan = now + every;
    }

    /// Finds the processes of the tree. Returns the number of children for which there is no room.
    fn find_members(&mut self) -> u32 {
        let mut lacking = 0;
        for member in &mut self.members {
            // The child itself is always a member.
            (member.seen, member.listed) = (member.pid == self.child.pid, false);
        }
        if let Some(ancestor) = &self.ancestor {
            add_children(ancestor, &mut self.members, &mut lacking);
        }
        while let Some(next) = self.members.iter().position(|member| member.seen && !member.listed) {
            self.members[next].listed = true;
            // Removed while its children are added, then added again.
            let parent = self.members.swap_remove(next);
            add_children(&parent, &mut self.members, &mut lacking);
            self.members.push(parent);
        }
        self.members.retain(|member| member.seen);
        lacking
    }

    /// Reads the processor time of one thread and evaluates it.
    fn sample(&mut self, index: usize, now: MonoNs, ends: &Ends) {
        let starved_after = self.starved_after;
        let thread = &mut self.threads[index];
        thread.due = now + SCAN;
        let Some(cpu) = read::processor_time(&thread.schedstat) else { return };
        let moved = thread.last.is_none_or(|last| last.cpu.0 != cpu);
        // The switch count is expensive to read, so it is read only if the thread has run.
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
            ends.event(now, self.id, pid, tid, EventKind::Starved { waited });
        }
        match verdict {
            Verdict::Within => {}
            Verdict::Over { in_a_row } => ends.event(now, self.id, pid, tid, EventKind::Over { in_a_row }),
            Verdict::Runaway { used, window } => {
                let files = dup_files(&self.threads[index]);
                let culprit = Culprit { process: None, pid, tid, voluntary, files };
                self.runaway(now, culprit, EventKind::Runaway { used, window }, ends);
            }
        }
    }

    /// Checks the heartbeat.
    fn listen(&mut self, now: MonoNs, ends: &Ends) {
        let Some((beats, within, silence)) = &mut self.heartbeat else { return };
        silence.change(within.get());
        let Some(silent) = silence.observe(now, beats()) else {
            self.silence_told = false;
            return;
        };
        if self.silence_told {
            return;
        }
        self.silence_told = true;
        let what = EventKind::Silent { silence: silent };
        let pid = self.child.pid;
        if self.meter.is_some() {
            // With a budget, the ladder depends on processor time. Silence is a hang, which the supervisor handles.
            ends.event(now, self.id, pid, pid, what);
        } else {
            let culprit = Culprit { process: None, pid, tid: pid, voluntary: 0, files: None };
            self.runaway(now, culprit, what, ends);
        }
    }

    fn runaway(&mut self, now: MonoNs, mut culprit: Culprit, what: EventKind, ends: &Ends) {
        if self.ladder.is_climbing() {
            return;
        }
        culprit.process = self.member(culprit.pid).and_then(|member| member.again().ok());
        self.culprit = Some(culprit);
        let deed = self.ladder.begin(now);
        // Act before reporting: the CPU is needed.
        let told = FirstReport { at: now, what };
        self.perform_after(deed, Some(told), ends);
    }

    /// Whether the culprit sleeps again. Reading its registers causes two switches, so the threshold is higher than that.
    fn culprit_is_tame(&self) -> bool {
        const SWITCHES: u64 = 4;
        if self.meter.is_none() {
            // Without a budget it may use the CPU, but its heartbeat must not be missing.
            return !self.silence_told;
        }
        let Some(culprit) = &self.culprit else { return false };
        let of_member = |name: &[u8]| {
            let process = culprit.process.as_ref().or_else(|| self.member(culprit.pid));
            process.and_then(|process| process.open_of_thread(culprit.tid, name).ok())
        };
        let (stat, status) = match &culprit.files {
            Some((stat, status)) => (read::state(stat), read::voluntary_switches(status)),
            None => (
                of_member(b"stat").and_then(|stat| read::state(&stat)),
                of_member(b"status").and_then(|status| read::voluntary_switches(&status)),
            ),
        };
        // A thread that is gone counts as tame.
        stat.is_none_or(|state| state == b'S')
            || status.is_none_or(|count| count.saturating_sub(culprit.voluntary) >= SWITCHES)
    }

    fn perform(&mut self, deed: LadderStep, ends: &Ends) {
        self.perform_after(deed, None, ends);
    }

    fn perform_after(&mut self, deed: LadderStep, told: Option<FirstReport>, ends: &Ends) {
        let counts = match deed {
            LadderStep::Do(action) => Some((action, self.act(action))),
            _ => None,
        };
        let at = sys::clock::mono_now();
        let own = (self.child.pid, self.child.pid);
        let (pid, tid) = self.culprit.as_ref().map_or(own, |culprit| (culprit.pid, culprit.tid));
        if let Some(FirstReport { at, what }) = told {
            ends.event(at, self.id, pid, tid, what);
        }
        let what = match (deed, counts) {
            (LadderStep::Do(_), Some((action, (reached, refused)))) => EventKind::Step { action, reached, refused },
            (LadderStep::Tamed, _) => {
                self.threads.clear();
                (self.culprit, self.next_scan) = (None, at);
                EventKind::Tamed
            }
            (LadderStep::Exhausted, _) => {
                self.act(RungAction::Kill);
                EventKind::Exhausted
            }
            _ => return,
        };
        ends.event(at, self.id, pid, tid, what);
    }

    /// Takes one step. Returns the number of threads or processes reached, and the number the kernel refused.
    fn act(&mut self, action: RungAction) -> (u32, u32) {
        match action {
            RungAction::Demote => self.demote(),
            RungAction::Freeze => self.freeze(),
            RungAction::Abort => {
                let pid = self.culprit.as_ref().map_or(self.child.pid, |culprit| culprit.pid);
                let process = self.culprit.as_ref().and_then(|culprit| culprit.process.as_ref());
                let process = process.or_else(|| self.member(pid));
                let counts = tally(process.map(|process| process.signal(SIGABRT)));
                self.thaw();
                counts
            }
            RungAction::Kill => self.kill(),
        }
    }

    /// Removes the real-time class from every thread, the culprit's first.
    fn demote(&mut self) -> (u32, u32) {
        let other = Scheduling { policy: Policy::OTHER, reset_on_fork: false };
        let mut counts = (0, 0);
        // The TID still belongs to the culprit as long as its files can be read.
        let there = |culprit: &&Culprit| culprit.files.as_ref().is_some_and(|(stat, _)| read::state(stat).is_some());
        if let Some(culprit) = self.culprit.as_ref().filter(there)
            && has_fixed_priority(culprit.tid) == Some(true)
        {
            add(&mut counts, try_set_scheduling(culprit.tid, other));
        }
        for member in &self.members {
            member.for_each_thread(|tid| {
                if has_fixed_priority(tid) == Some(true) {
                    add(&mut counts, try_set_scheduling(tid, other));
                }
            });
        }
        counts
    }

    fn member(&self, pid: i32) -> Option<&Member> {
        self.members.iter().find(|member| member.pid == pid)
    }

    fn freeze(&mut self) -> (u32, u32) {
        match &self.freezer {
            Some(freezer) => tally([rustix::io::pwrite(&freezer.file, freezer.freeze, 0).map(drop)]),
            None => tally(self.members.iter().map(|member| member.signal(SIGSTOP))),
        }
    }

    fn thaw(&mut self) {
        match &self.freezer {
            // Thawing a group that is not frozen does no harm.
            Some(freezer) => drop(rustix::io::pwrite(&freezer.file, freezer.thaw, 0)),
            None => drop(tally(self.members.iter().map(|member| member.signal(SIGCONT)))),
        }
    }

    fn kill(&mut self) -> (u32, u32) {
        if let Some(Freezer { kill: Some(kill), .. }) = &self.freezer {
            // The signals below reach processes outside the group.
            let _ = rustix::io::pwrite(kill, b"1", 0);
        }
        let counts = tally(self.members.iter().map(|member| member.signal(SIGKILL)));
        self.thaw();
        counts
    }
}

/// An event that is reported after the first step has been taken.
struct FirstReport {
    at: MonoNs,
    what: EventKind,
}

impl Thread {
    fn open(member: &Member, tid: i32, meter: Option<Meter>, now: MonoNs) -> Result<Self, Errno> {
        let open = |name: &[u8]| member.open_of_thread(tid, name);
        Ok(Self {
            pid: member.pid,
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

/// Counts an outcome. A process that is gone is not counted.
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

fn dup_files(thread: &Thread) -> Option<(OwnedFd, OwnedFd)> {
    Some((fcntl_dupfd_cloexec(&thread.stat, 0).ok()?, fcntl_dupfd_cloexec(&thread.status, 0).ok()?))
}

/// Whether the thread or process has ended before it was opened.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::SRCH)
}

/// Adds the children of a process to the tree, as far as there is room.
fn add_children(parent: &Member, members: &mut Vec<Member>, lacking: &mut u32) {
    parent.for_each_thread(|tid| {
        parent.for_each_child_of(tid, |pid| {
            // A handle to an ended process cannot be used for a later process with the same PID.
            if let Some(known) = members.iter_mut().find(|member| member.pid == pid && member.exists()) {
                known.seen = true;
                return;
            }
            // One place is reserved for the parent, which is removed during the scan.
            let opened =
                if members.len() + 1 < PROCESSES_MAX { Member::open_child(pid, parent.pid) } else { Err(Errno::NOSPC) };
            match opened {
                Ok(member) => members.push(member),
                Err(errno) if is_gone(errno) => {}
                Err(_) => *lacking += 1,
            }
        });
    });
}
