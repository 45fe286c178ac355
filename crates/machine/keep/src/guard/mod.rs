//! The guard: one thread with its own CPU reservation. It watches real-time processes and applies the ladder of
//! `host::guard` to runaways.
//!
//! While anything is watched, the thread does not allocate, log or lock. It reads through descriptors opened beforehand into
//! fixed buffers, and passes [`GuardEvent`]s on through a bounded queue. The receiver of the events reports and records
//! them.
//!
//! The guard must be able to run when every CPU is busy with real-time loops. It is a DEADLINE task (above every fixed
//! priority) if the kernel allows that, otherwise FIFO 99.

mod member;
mod read;
mod thread;
mod watched;

use crate::keeper::protocol::ChildId;
use crate::launch::Shortfall;
use base::{CpuSet, Deadline, DurNs, MonoNs, Policy, Priority};
use host::guard::{Budget, Ladder, Meter, Rung, RungAction, Silence};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use sys::sched::{Scheduling, set_affinity, set_scheduling};
use watched::Watched;

/// Capacity of the event queue. Further events are dropped and counted ([`Guard::events_dropped`]).
const EVENTS_MAX: usize = 1024;
/// Capacity of the command queue.
const COMMANDS_MAX: usize = 64;
/// Maximum number of watches (processes of the plant).
pub const WATCHES_MAX: usize = 256;
/// The guard accepts a watch within this time unless it cannot run at all, since its class is above every other.
const TAKEN_WITHIN: DurNs = DurNs::from_secs(1);
/// The guard's reservation.
const RESERVATION: Deadline =
    Deadline { runtime: DurNs::from_ms(1), deadline: DurNs::from_ms(10), period: DurNs::from_ms(10) };

/// The number of heartbeats so far. Called on the guard's thread: must not allocate, block or lock.
pub type Beats = Box<dyn Fn() -> u64 + Send>;

/// The maximum time without a heartbeat, shared with the guard's thread. The watched process may change it
/// (`WATCHDOG_USEC=`).
#[derive(Clone, Debug)]
pub struct MaxSilence(Arc<AtomicU64>);

impl MaxSilence {
    /// A time of at least 0.
    #[must_use]
    pub fn new(within: DurNs) -> Self {
        Self(Arc::new(AtomicU64::new(within.0.max(0).unsigned_abs())))
    }

    /// Changes the time.
    pub fn set(&self, within: DurNs) {
        self.0.store(within.0.max(0).unsigned_abs(), Ordering::Relaxed);
    }

    fn get(&self) -> DurNs {
        DurNs(self.0.load(Ordering::Relaxed) as i64)
    }
}

/// A process to watch.
pub struct WatchSpec {
    /// The process itself. The watch ends when it is gone.
    pub child: ChildId,
    /// The keeper or starter, whose descendants are watched too. The process's own PID if there is none.
    pub ancestor: i32,
    /// Processor time allowed to each FIFO or RR thread of the child and its descendants.
    pub budget: Budget,
    /// Steps taken against a runaway.
    pub ladder: Vec<Rung>,
    /// A heartbeat counter and its maximum silence.
    pub heartbeat: Option<(Beats, MaxSilence)>,
    /// A separate freezer: the directory of the control group (v1 freezer or v2) in which the process was started. If
    /// `None`, SIGSTOP freezes.
    pub freezer: Option<PathBuf>,
    /// A real-time thread that has been runnable without running for this long is reported.
    pub starved_after: DurNs,
}

impl fmt::Debug for WatchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchSpec").field("child", &self.child).field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// Identifies a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(u64);

/// An observation or action of the guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardEvent {
    /// Time of the event.
    pub at: MonoNs,
    /// The watch concerned.
    pub watch: WatchId,
    /// The process concerned (child or descendant).
    pub pid: i32,
    /// The thread concerned.
    pub tid: i32,
    /// The observation or action.
    pub what: EventKind,
}

/// Kind of a guard event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EventKind {
    /// A thread used up its budget; the ladder begins.
    Runaway {
        /// Processor time used.
        used: DurNs,
        /// Time in which it was used.
        window: DurNs,
    },
    /// A thread exceeded its budget in a period, but gave up its CPU in between.
    Over {
        /// Number of such periods in a row.
        in_a_row: u32,
    },
    /// The heartbeat is missing. With `Budget::None` the ladder begins.
    Silent {
        /// Time since the last heartbeat.
        silence: DurNs,
    },
    /// A real-time thread is runnable but has not run.
    Starved {
        /// Minimum time it has waited.
        waited: DurNs,
    },
    /// A step of the ladder was taken.
    Step {
        /// The step.
        action: RungAction,
        /// Number of threads or processes it was applied to.
        reached: u32,
        /// Number of threads or processes the kernel refused to change, not counting those gone meanwhile.
        refused: u32,
    },
    /// The process yields again and continues, demoted.
    Tamed,
    /// The process is gone. This ends the ladder if it was in progress.
    Gone {
        /// Whether the ladder was in progress.
        by_ladder: bool,
    },
    /// All steps were taken and the process is still alive.
    Exhausted,
    /// There are more real-time threads or processes than the guard can hold; these are not watched.
    Unwatched {
        /// Number of threads.
        threads: u32,
        /// Number of processes, not counting those they started.
        processes: u32,
    },
}

enum Command {
    Watch(Box<Watched>),
    Unwatch(WatchId),
    Stop,
}

/// The guard's reply to a new watch: accepted, or refused for lack of room.
struct WatchReply {
    id: WatchId,
    watched: bool,
}

/// Handle of the guard. Dropping it ends the thread; watched processes stay as they are.
#[derive(Debug)]
pub struct Guard {
    commands: SyncSender<Command>,
    events: Receiver<GuardEvent>,
    /// Ended watches, returned here so that the guard's thread does not free memory.
    over: Receiver<Box<Watched>>,
    /// The guard's replies to new watches.
    taken: Receiver<WatchReply>,
    wake_guard: Arc<OwnedFd>,
    wake_owner: Arc<OwnedFd>,
    wake_taken: Arc<OwnedFd>,
    dropped: Arc<AtomicU64>,
    /// Number of rounds of the guard's thread.
    rounds: Arc<AtomicU64>,
    class: Policy,
    tid: i32,
    next: u64,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

/// The ends of the queues and wake-ups held by the guard's thread.
pub(crate) struct Ends {
    commands: Receiver<Command>,
    events: SyncSender<GuardEvent>,
    over: SyncSender<Box<Watched>>,
    taken: SyncSender<WatchReply>,
    wake_guard: Arc<OwnedFd>,
    wake_owner: Arc<OwnedFd>,
    wake_taken: Arc<OwnedFd>,
    dropped: Arc<AtomicU64>,
    rounds: Arc<AtomicU64>,
}

impl Ends {
    /// Reports to the waiting owner that a watch was accepted or refused.
    fn take(&self, id: WatchId, watched: bool) {
        // The queue has room for every watch that can be in transit. The owner waits on the descriptor, so neither side
        // blocks in the queue itself.
        let _ = self.taken.try_send(WatchReply { id, watched });
        let _ = rustix::io::write(&*self.wake_taken, &1u64.to_ne_bytes());
    }

    fn tell(&self, event: GuardEvent) {
        if self.events.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        // An eventfd at its maximum still wakes the reader.
        let _ = rustix::io::write(&*self.wake_owner, &1u64.to_ne_bytes());
    }
}

impl Guard {
    /// Starts the guard's thread in the best scheduling class available. If that is a fixed priority, the thread is kept off
    /// the CPUs in `keep_off`; a DEADLINE task cannot have an affinity. Also returns what was unavailable.
    ///
    /// # Errors
    /// The thread or a descriptor cannot be created.
    pub fn start(keep_off: &CpuSet) -> sys::Result<(Self, Vec<Shortfall>)> {
        let event = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map(Arc::new)
                .map_err(|errno| sys::Error { doing: "make an event descriptor".to_owned(), errno })
        };
        let (wake_guard, wake_owner, wake_taken) = (event()?, event()?, event()?);
        let (commands, commands_end) = sync_channel(COMMANDS_MAX);
        let (events_end, events) = sync_channel(EVENTS_MAX);
        let (over_end, over) = sync_channel(WATCHES_MAX + COMMANDS_MAX);
        let (taken_end, taken) = sync_channel(COMMANDS_MAX);
        let (dropped, rounds) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let ends = Ends {
            commands: commands_end,
            events: events_end,
            over: over_end,
            taken: taken_end,
            wake_guard: wake_guard.clone(),
            wake_owner: wake_owner.clone(),
            wake_taken: wake_taken.clone(),
            dropped: dropped.clone(),
            rounds: rounds.clone(),
        };
        let (told, tells) = sync_channel(1);
        let keep_off = *keep_off;
        let thread = std::thread::Builder::new()
            .name("tahti-guard".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                let (class, mut shortfalls) = obtain_class(&keep_off);
                if let Err(error) = sys::signal::block_all() {
                    shortfalls.push(Shortfall {
                        wanted: "no signals for the guard".to_owned(),
                        found: error.to_string(),
                        remedy: String::new(),
                    });
                }
                if let Err(error) = sys::mem::lock_touched() {
                    shortfalls.push(Shortfall {
                        wanted: "locked memory for the guard".to_owned(),
                        found: error.to_string(),
                        remedy: "run as root, or lift the limit (ulimit -l unlimited)".to_owned(),
                    });
                }
                // The send fails only if the starter is already gone.
                let _ = told.send((sys::thread::id(), class, shortfalls));
                thread::watch(&ends);
            })
            .map_err(|error| sys::Error {
                doing: "start the guard's thread".to_owned(),
                errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
            })?;
        let (tid, class, shortfalls) = tells.recv().unwrap_or((0, Policy::OTHER, Vec::new()));
        let guard = Self {
            commands,
            events,
            over,
            taken,
            wake_guard,
            wake_owner,
            wake_taken,
            dropped,
            rounds,
            class,
            tid,
            next: 0,
            thread: Some(thread),
        };
        Ok((guard, shortfalls))
    }

    /// The scheduling class of the guard's thread.
    #[must_use]
    pub fn class(&self) -> Policy {
        self.class
    }

    /// Thread id of the guard's thread.
    #[must_use]
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Number of rounds of the guard's thread so far. Requests another one.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.wake();
        self.rounds.load(Ordering::Relaxed)
    }

    /// Watches a process from now on. On return the guard's thread has the process and its budget, so a process that waits
    /// at its start ([`crate::launch::hold`]) may be released.
    ///
    /// Blocks until the guard has run, at most [`TAKEN_WITHIN`].
    ///
    /// # Errors
    /// The process is gone, its freezer cannot be opened, [`WATCHES_MAX`] processes are watched already, or the guard does
    /// not run.
    pub fn watch(&mut self, spec: WatchSpec) -> sys::Result<WatchId> {
        self.free();
        let id = WatchId(self.next);
        let failed = |errno| sys::Error { doing: format!("watch process {}", spec.child.pid), errno };
        let freezer = spec.freezer.as_deref().map(open_freezer).transpose()?;
        let heartbeat = spec.heartbeat.map(|(beats, within)| {
            let silence = Silence::new(within.get());
            (beats, within, silence)
        });
        let watched = Watched::new(
            id,
            spec.child,
            spec.ancestor,
            Meter::new(spec.budget),
            Ladder::new(&spec.ladder),
            heartbeat,
            freezer,
            spec.starved_after,
        )
        .map_err(failed)?;
        self.commands.try_send(Command::Watch(Box::new(watched))).map_err(|_| failed(rustix::io::Errno::AGAIN))?;
        self.next += 1;
        self.wake();
        self.await_taken(id).map_err(failed)?;
        Ok(id)
    }

    /// Waits for the guard's reply.
    fn await_taken(&self, id: WatchId) -> Result<(), rustix::io::Errno> {
        let until = sys::clock::mono_now() + TAKEN_WITHIN;
        loop {
            while let Ok(taken) = self.taken.try_recv() {
                if taken.id == id {
                    return if taken.watched { Ok(()) } else { Err(rustix::io::Errno::NOSPC) };
                }
            }
            let left = until - sys::clock::mono_now();
            if left <= DurNs::ZERO {
                return Err(rustix::io::Errno::TIMEDOUT);
            }
            let wait = rustix::time::Timespec { tv_sec: left.0 / 1_000_000_000, tv_nsec: left.0 % 1_000_000_000 };
            let mut fds = [PollFd::new(&*self.wake_taken, PollFlags::IN)];
            // An interrupted wait only causes an early check.
            if poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0) {
                let mut count = [0u8; 8];
                let _ = rustix::io::read(&*self.wake_taken, &mut count);
            }
        }
    }

    /// Ends a watch. A process in the middle of the ladder stays as it is.
    pub fn unwatch(&mut self, id: WatchId) {
        // Fails only if the guard has stopped, and then nothing is watched.
        let _ = self.commands.send(Command::Unwatch(id));
        self.wake();
        self.free();
    }

    /// The next event, if one has arrived. Poll the descriptor ([`AsFd`]) for readability.
    #[must_use]
    pub fn next_event(&mut self) -> Option<GuardEvent> {
        self.free();
        let event = self.events.try_recv().ok();
        if event.is_none() {
            let mut count = [0u8; 8];
            // Cleared only when the queue is empty. An event that arrives in between wakes the owner again.
            let _ = rustix::io::read(&*self.wake_owner, &mut count);
            return self.events.try_recv().ok();
        }
        event
    }

    /// Number of events dropped because the queue was full.
    #[must_use]
    pub fn events_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn free(&mut self) {
        while self.over.try_recv().is_ok() {}
    }

    fn wake(&self) {
        // An eventfd at its maximum still wakes the reader.
        let _ = rustix::io::write(&*self.wake_guard, &1u64.to_ne_bytes());
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_owner.as_fd()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Fails only if the guard has stopped already.
        let _ = self.commands.send(Command::Stop);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sets the best scheduling class available to the calling thread.
fn obtain_class(keep_off: &CpuSet) -> (Policy, Vec<Shortfall>) {
    let take = |policy| set_scheduling(0, Scheduling { policy, reset_on_fork: true }).map(|()| policy);
    if let Ok(policy) = take(Policy::Deadline(RESERVATION)) {
        return (policy, Vec::new());
    }
    let mut shortfalls = Vec::new();
    if let Ok(allowed) = sys::sched::affinity(0) {
        let elsewhere = allowed.minus(keep_off);
        // A machine with one CPU has no other CPU; the priority must suffice.
        if !elsewhere.is_empty() && elsewhere != allowed && set_affinity(0, &elsewhere).is_err() {
            shortfalls.push(Shortfall {
                wanted: format!("guard on CPUs {elsewhere}"),
                found: "the kernel refused".to_owned(),
                remedy: "it may share a CPU with the threads that it watches".to_owned(),
            });
        }
    }
    match take(Policy::Fifo(Priority(99))) {
        Ok(policy) => (policy, shortfalls),
        Err(error) => {
            shortfalls.push(Shortfall {
                wanted: "real-time guard".to_owned(),
                found: error.to_string(),
                remedy: "run as root, or add CAP_SYS_NICE: if real-time loops use every CPU, the guard cannot run"
                    .to_owned(),
            });
            (Policy::OTHER, shortfalls)
        }
    }
}

/// A freezer: an open file and the two words written to it.
pub(crate) struct Freezer {
    file: OwnedFd,
    freeze: &'static [u8],
    thaw: &'static [u8],
    /// cgroup v2 only: kills all members at once.
    kill: Option<OwnedFd>,
}

fn open_freezer(dir: &std::path::Path) -> sys::Result<Freezer> {
    let open = |name: &str| {
        let path = dir.join(name);
        rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| sys::Error { doing: format!("open {}", path.display()), errno })
    };
    if let Ok(file) = open("freezer.state") {
        return Ok(Freezer { file, freeze: b"FROZEN", thaw: b"THAWED", kill: None });
    }
    Ok(Freezer { file: open("cgroup.freeze")?, freeze: b"1", thaw: b"0", kill: open("cgroup.kill").ok() })
}
