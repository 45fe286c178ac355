//! Runs one process in the foreground, as `tahti run` does: passes signals and terminal control to it, guards it and
//! returns how it ended.
//!
//! There is no keeper: process and runner share the terminal and end together.

use crate::evidence::{self, Incident, Kind, describe};
use crate::guard::{Beats, EventKind, Guard, GuardEvent, MaxSilence, WatchId, WatchSpec};
use crate::keeper::protocol::{ChildId, End, ExitRecord, Used};
use crate::launch::{self, InheritedFd, LaunchError, LaunchSpec};
use crate::notify::{self, Notification, Notify, NotifyError};
use crate::page::{Page, PageError};
use crate::supervisor::rundir::{self, RunDirError};
use crate::threads::{ThreadRule, ThreadRules};
use base::{CpuSet, DurNs, MonoNs};
use host::guard::{Budget, Rung, STARVED_AFTER};
use host::supervise::{ABORT_WAIT, KILL_WAIT};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::child::{Waited, look};
use sys::process::{Process, signal_self};
use sys::signal::{
    SIGABRT, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SignalFd,
};

/// Signals passed to the process.
const PASSED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT];

/// Time the process has to end after SIGTERM when its time limit has expired.
const END_WITHIN: DurNs = DurNs::from_secs(2);
/// Interval at which thread rules are applied.
const RULES_EVERY: DurNs = DurNs::from_ms(200);

/// Time the guard has to report its actions on a process that has ended. The guard checks every 100 ms.
const LAST_NEWS_WITHIN: DurNs = DurNs::from_secs(1);

/// Specification of a watched process.
#[derive(Clone, Debug)]
pub struct Foreground {
    /// The process.
    pub launch: LaunchSpec,
    /// Processor-time budget of its FIFO and RR threads.
    pub budget: Budget,
    /// Steps taken against a runaway.
    pub ladder: Vec<Rung>,
    /// Heartbeat timeout, if the process has a heartbeat: cycles in its loop page, or `WATCHDOG=1` to the socket in
    /// `NOTIFY_SOCKET`.
    pub heartbeat: Option<DurNs>,
    /// Rules for its threads.
    pub rules: Vec<ThreadRule>,
    /// Time limit; SIGTERM follows.
    pub within: Option<DurNs>,
    /// Directory for evidence.
    pub evidence: PathBuf,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Exit status or signal of the process.
    pub end: End,
    /// Whether its time limit expired and the runner asked it to end.
    pub time_over: bool,
    /// Whether a thread rule matched no thread.
    pub unmatched: bool,
}

/// Reason why the process could not run.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The process could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The kernel refused a system call of the runner.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// The loop page could not be created.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The folder of all runners could not be created.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The runner's folder could not be created.
    #[error("{}: {error}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// The notify socket could not be created.
    #[error(transparent)]
    Notify(#[from] NotifyError),
}

/// Runs the process until it ends. Calls `tell` with one line for each event of interest to the user, as it happens.
///
/// # Errors
/// It could not be started as required.
pub fn run(what: &Foreground, tell: &mut dyn FnMut(&str)) -> Result<Finished, Failure> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    sys::child::become_subreaper()?;
    let mut signals: Vec<i32> = PASSED_ON.to_vec();
    signals.extend([SIGCHLD, SIGTSTP]);
    let signals = SignalFd::new(&signals)?;
    let guarded = what.launch.policy.is_some_and(|policy| policy.is_real_time())
        || what.rules.iter().any(|rule| rule.policy.is_some_and(|policy| policy.is_real_time()))
        // Independent of the class: the guard also checks heartbeats.
        || what.heartbeat.is_some();
    let mut guard = None;
    if guarded {
        // Before the process starts: if it took every CPU, starting the guard later would fail.
        let (started, shortfalls) = Guard::start(&what.launch.cpus.unwrap_or(CpuSet::EMPTY))?;
        shortfalls.iter().for_each(|shortfall| tell(&shortfall.to_string()));
        guard = Some(started);
    }
    let mut launch = what.launch.clone();
    // A loop of `rt` writes its cycles there, as heartbeat and evidence.
    let page = guarded.then(Page::create).transpose()?;
    launch.inherit.extend(page.as_ref().map(|page| InheritedFd { variable: ring::LOOP_FD.to_owned(), fd: page.fd() }));
    let notify = what.heartbeat.map(|_| NotifyFolder::make(own, &launch)).transpose()?;
    if let Some(folder) = &notify {
        launch.env.insert("NOTIFY_SOCKET".to_owned(), folder.notify.path().display().to_string());
    }
    launch.watchdog = what.heartbeat;
    // Watched before it gets its class, so that a loop that runs away from its first instruction is caught.
    let held = launch::hold(&launch)?;
    let child = held.child();
    let beats = Arc::new(AtomicU64::new(0));
    let max_silence = MaxSilence::new(what.heartbeat.unwrap_or_default());
    let mut watch = None;
    if let Some(guard) = &mut guard {
        match guard.watch(watch_spec(what, child, &beats, &max_silence, page.as_ref())) {
            Ok(watched) => watch = Some(watched),
            Err(error) => tell(&format!("no guard: {error}")),
        }
    }
    let started = held.go().map_err(Failure::Launch)?;
    started.shortfalls.iter().for_each(|shortfall| tell(&shortfall.to_string()));
    let now = sys::clock::mono_now();
    Runner {
        what,
        child,
        process: started.process,
        named: false,
        watch,
        oom_kills: evidence::out_of_memory_kills(own),
        since: now,
        signals,
        guard,
        notify,
        beats,
        max_silence,
        page,
        rules: ThreadRules::new(what.rules.clone()),
        rules_due: now,
        stop_due: what.within.map(|within| now + within),
        kill_due: None,
        time_over: false,
        incident: None,
        tell,
    }
    .run()
}

/// Watch specification for a process and everything below this one.
fn watch_spec(
    what: &Foreground,
    child: ChildId,
    beats: &Arc<AtomicU64>,
    max_silence: &MaxSilence,
    page: Option<&Page>,
) -> WatchSpec {
    let heartbeat = what.heartbeat.map(|_| {
        let (beats, page) = (beats.clone(), page.map(Page::watcher));
        let of_page = move || page.as_ref().map_or(0, |page| page.beats());
        (Box::new(move || beats.load(Ordering::Relaxed).wrapping_add(of_page())) as Beats, max_silence.clone())
    });
    WatchSpec {
        child,
        ancestor: rustix::process::getpid().as_raw_nonzero().get(),
        budget: what.budget,
        ladder: what.ladder.clone(),
        heartbeat,
        freezer: None,
        starved_after: STARVED_AFTER,
    }
}

/// A folder with the notify socket, removed with the runner.
#[derive(Debug)]
struct NotifyFolder {
    notify: Notify,
    folder: PathBuf,
}

impl NotifyFolder {
    fn make(own: i32, launch: &LaunchSpec) -> Result<Self, Failure> {
        let base = rundir::base();
        rundir::make_base(&base)?;
        // No plant's name begins with a dot.
        let folder = base.join(format!(".run-{own}"));
        // The program may run as another user. That user may traverse the folder and write to the socket.
        if let Err(error) = sys::run_folder::make(&folder, 0o711) {
            return Err(Failure::Folder { folder, error });
        }
        let notify = Notify::open(folder.join("notify"), launch::user_of(launch))?;
        Ok(Self { notify, folder })
    }
}

impl Drop for NotifyFolder {
    fn drop(&mut self) {
        // If it cannot be removed, the next runner with this PID reuses it.
        let _ = std::fs::remove_file(self.notify.path());
        let _ = std::fs::remove_dir(&self.folder);
    }
}

struct Runner<'a> {
    what: &'a Foreground,
    child: ChildId,
    process: Process,
    /// The process is the main process named by the first one. Another process may reap it.
    named: bool,
    /// The guard's watch over it.
    watch: Option<WatchId>,
    oom_kills: u64,
    since: MonoNs,
    signals: SignalFd,
    guard: Option<Guard>,
    notify: Option<NotifyFolder>,
    beats: Arc<AtomicU64>,
    /// Maximum time without one.
    max_silence: MaxSilence,
    page: Option<Page>,
    rules: ThreadRules,
    rules_due: MonoNs,
    /// Time of SIGTERM, and after that of SIGKILL.
    stop_due: Option<MonoNs>,
    /// Time of SIGKILL for a hung process.
    kill_due: Option<MonoNs>,
    time_over: bool,
    incident: Option<(Incident, Option<PathBuf>)>,
    tell: &'a mut dyn FnMut(&str),
}

impl Runner<'_> {
    fn run(mut self) -> Result<Finished, Failure> {
        loop {
            if let Some(end) = self.children()? {
                let unmatched = self.rules.unmatched();
                for pattern in &unmatched {
                    let remedy = "compare it with /proc/PID/task/*/comm";
                    (self.tell)(&format!("no thread matched {pattern:?}: its class and CPUs were not set; {remedy}"));
                }
                return Ok(Finished { end, time_over: self.time_over, unmatched: !unmatched.is_empty() });
            }
            self.wait();
            while let Some(arrived) = self.signals.read()? {
                // Signals from the terminal reach the process directly: it is in the same process group.
                if arrived.sender != 0 && arrived.signal != SIGCHLD {
                    // The process may have ended; then the error is ignored.
                    let _ = self.process.signal(arrived.signal);
                }
            }
            self.heartbeats();
            while let Some(event) = self.guard.as_mut().and_then(Guard::next_event) {
                self.guarded(&event);
            }
            self.due();
        }
    }

    fn wait(&self) {
        let now = sys::clock::mono_now();
        let rules = (!self.rules.is_empty()).then_some(self.rules_due);
        let left =
            self.stop_due.into_iter().chain(self.kill_due).chain(rules).min().map(|due| (due - now).max(DurNs::ZERO));
        let timeout =
            left.map(|left| rustix::time::Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 });
        let fds = [
            Some(self.signals.as_fd()),
            self.guard.as_ref().map(AsFd::as_fd),
            self.notify.as_ref().map(|it| it.notify.as_fd()),
            self.named.then(|| self.process.as_fd()),
        ];
        let mut fds: Vec<PollFd<'_>> =
            fds.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted wait only causes an extra round.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Reaps children; returns the process's end if it has ended.
    fn children(&mut self) -> Result<Option<End>, Failure> {
        loop {
            match look(-1, true)? {
                Waited::Ended(ended) if ended.pid == self.child.pid => {
                    let end = End::of(ended.status);
                    let used = Used::of(&ended);
                    self.last_news();
                    self.ended(end, used);
                    return Ok(Some(end));
                }
                Waited::Stopped(pid, signal) if pid == self.child.pid && signal != SIGSTOP => {
                    // The process was stopped at the terminal. The runner stops as well, so that the shell shows its
                    // prompt.
                    signal_self(SIGSTOP)?;
                    self.process.signal(SIGCONT)?;
                }
                Waited::Nothing | Waited::NoChildren if self.named && self.process.has_ended() => {
                    self.last_news();
                    self.ended(End::Unseen, Used::default());
                    return Ok(Some(End::Unseen));
                }
                Waited::Nothing | Waited::NoChildren => return Ok(None),
                Waited::Ended(_) | Waited::Stopped(..) | Waited::Continued(_) => {}
            }
        }
    }

    /// Reads the guard's last events about a runaway. The guard acts first and reports later, so the end may arrive
    /// before its cause.
    fn last_news(&mut self) {
        let until = sys::clock::mono_now() + LAST_NEWS_WITHIN;
        while self.incident.as_ref().is_some_and(|(incident, _)| incident.kind == Kind::Runaway) {
            let Some(guard) = &mut self.guard else { return };
            let Some(event) = guard.next_event() else {
                let left = until - sys::clock::mono_now();
                if left <= DurNs::ZERO {
                    return;
                }
                // An interrupted wait only causes an extra round.
                sys::poll::is_readable(guard.as_fd(), left);
                continue;
            };
            if matches!(event.what, EventKind::Gone { .. }) {
                return;
            }
            self.guarded(&event);
        }
    }

    fn heartbeats(&mut self) {
        let Some(folder) = &mut self.notify else { return };
        let all = folder.notify.hear();
        for heard in all {
            match heard {
                Notification::Message(text) => self.message(&text),
                Notification::Fault(why) => (self.tell)(&why),
            }
        }
    }

    fn message(&mut self, text: &str) {
        if text.lines().any(|line| line == "WATCHDOG=1") {
            self.beats.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(interval) = notify::interval(text) {
            // Also a sign of life, as for systemd.
            self.beats.fetch_add(1, Ordering::Relaxed);
            self.max_silence.set(notify::silence_of(interval));
        }
        if notify::hangs(text) && self.kill_due.is_none() {
            if self.incident.is_none() {
                let summary = "it reports that it hangs (WATCHDOG=trigger)".to_owned();
                self.begin(Kind::Hang, sys::clock::mono_now(), summary);
            }
            self.keep_evidence();
            self.hangs();
        }
        if let Some(pid) = notify::main_process(text) {
            self.name_main(pid);
        }
        if let (Some(more), Some(due), true) = (notify::extension(text), self.stop_due, self.time_over) {
            self.stop_due = Some(due.max(sys::clock::mono_now() + more));
        }
    }

    /// Handles `MAINPID=`: the process names its main process, which must be a descendant.
    fn name_main(&mut self, pid: i32) {
        if pid == self.child.pid {
            return;
        }
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let named = crate::family::descendant(own, pid).zip(launch::start_ticks(pid));
        let Some((process, start_ticks)) = named else {
            return (self.tell)(&format!("MAINPID={pid}: not a descendant of this process; ignored"));
        };
        self.child = ChildId { pid, start_ticks };
        (self.process, self.named) = (process, true);
        let spec = watch_spec(self.what, self.child, &self.beats, &self.max_silence, self.page.as_ref());
        if let (Some(guard), Some(watch)) = (&mut self.guard, self.watch.take()) {
            guard.unwatch(watch);
            match guard.watch(spec) {
                Ok(watched) => self.watch = Some(watched),
                Err(error) => (self.tell)(&format!("no guard: {error}")),
            }
        }
    }

    fn due(&mut self) {
        let now = sys::clock::mono_now();
        if !self.rules.is_empty() && now >= self.rules_due {
            self.rules_due = now + RULES_EVERY;
            for applied in self.rules.apply(&self.process) {
                for shortfall in applied.shortfalls {
                    (self.tell)(&format!("thread {:?}: {shortfall}", applied.name));
                }
            }
        }
        if self.stop_due.is_some_and(|due| now >= due) {
            // The process may have ended; then the error is ignored.
            let _ = self.process.signal(if self.time_over { SIGKILL } else { SIGTERM });
            // A stopped process handles SIGTERM only after SIGCONT.
            let _ = self.process.signal(SIGCONT);
            self.time_over = true;
            self.stop_due = Some(now + END_WITHIN);
        }
        if self.kill_due.is_some_and(|due| now >= due) {
            let _ = self.process.signal(SIGKILL);
            self.kill_due = Some(now + KILL_WAIT);
        }
    }

    /// Handles a lost heartbeat of a process with a budget; the budget does not detect a hang. SIGABRT writes a
    /// core file, SIGKILL follows.
    fn hangs(&mut self) {
        (self.tell)(&format!("{} hangs: SIGABRT, and SIGKILL in {ABORT_WAIT}", self.what.launch.name));
        // The process may have ended; then the error is ignored.
        let _ = self.process.signal(SIGABRT);
        // A stopped process writes its core file only after SIGCONT.
        let _ = self.process.signal(SIGCONT);
        self.kill_due = Some(sys::clock::mono_now() + ABORT_WAIT);
    }

    fn guarded(&mut self, event: &GuardEvent) {
        let name = &self.what.launch.name;
        let kind = match event.what {
            EventKind::Runaway { .. } => Some(Kind::Runaway),
            EventKind::Silent { .. } if self.what.budget == Budget::None => Some(Kind::Runaway),
            EventKind::Silent { .. } => Some(Kind::Hang),
            EventKind::Starved { .. } => Some(Kind::Starved),
            // The parent reports the end, because it has the exit status.
            EventKind::Gone { .. } => return,
            _ => None,
        };
        let text = describe(&event.what);
        (self.tell)(&format!("{name} (process {}, thread {}): {text}", event.pid, event.tid));
        if let (Some(kind), None) = (kind, &self.incident) {
            self.begin(kind, event.at, text);
        }
        if let Some((incident, _)) = &mut self.incident {
            incident.add(event);
        }
        self.keep_evidence();
        if kind == Some(Kind::Hang) {
            self.hangs();
        }
    }

    fn begin(&mut self, kind: Kind, at: MonoNs, summary: String) {
        let cycles = self.page.as_ref().map_or(Vec::new(), Page::evidence);
        let incident = Incident::new(kind, &self.what.launch.name, self.child, at, summary, cycles);
        self.incident = Some((incident, None));
    }

    fn keep_evidence(&mut self) {
        let Some((incident, dir)) = &mut self.incident else { return };
        match incident.write(&self.what.evidence) {
            Ok(written) if dir.is_none() => {
                (self.tell)(&format!("evidence is kept in {}", written.display()));
                *dir = Some(written);
            }
            Ok(_) => {}
            Err(why) => (self.tell)(&why.to_string()),
        }
    }

    fn ended(&mut self, end: End, used: Used) {
        let now = sys::clock::mono_now();
        let kills = evidence::out_of_memory_kills(rustix::process::getpid().as_raw_nonzero().get());
        let line = if kills > self.oom_kills { evidence::out_of_memory_line(self.child.pid) } else { Ok(None) };
        let by_log = line.as_ref().ok().map(Option::is_some);
        let kind = evidence::kind_of_end(end, self.oom_kills, kills, by_log).filter(|kind| *kind == Kind::OutOfMemory);
        let word = line.ok().flatten().unwrap_or_else(|| "out of memory".to_owned());
        let name = &self.what.launch.name;
        if let (Some(kind), None) = (kind, &self.incident) {
            (self.tell)(&format!("{name} was killed for lack of memory"));
            self.begin(kind, now, word);
        }
        if let Some((incident, _)) = &mut self.incident {
            let ended_unix_s = sys::clock::wall_ns() / 1_000_000_000;
            incident.exit = Some(ExitRecord {
                child: self.child,
                end,
                started: self.since,
                ended: now,
                ended_unix_s,
                used,
                left_behind: 0,
                last_line: None,
                log_bytes_lost: 0,
            });
            self.keep_evidence();
        }
        crate::keeper::kill_left_behind(None);
    }
}
