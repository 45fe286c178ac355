//! The guard: one thread with a reservation of its own that watches real-time processes and takes runaways
//! down the ladder of `host::guard`.
//!
//! From the moment something is watched that thread neither allocates nor logs nor takes a lock: it reads
//! through descriptors opened beforehand into fixed buffers, and hands [`GuardEvent`]s over through a bounded
//! queue. What people are told, and evidence, is the business of whoever takes the events.
//!
//! It must stay able to run when every CPU burns: it is a DEADLINE task (above every fixed priority) where
//! the kernel allows, else FIFO 99.

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

/// Events waiting to be taken; more are dropped and counted ([`Guard::events_dropped`]).
const EVENTS_MAX: usize = 1024;
/// Commands waiting for the guard.
const COMMANDS_MAX: usize = 64;
/// Processes (plant's) watched at once.
pub const WATCHES_MAX: usize = 256;
/// The guard takes a watch up within this time, or does not run: it is above every other class.
const TAKEN_WITHIN: DurNs = DurNs::from_secs(1);
/// The guard's reservation.
const RESERVATION: Deadline =
    Deadline { runtime: DurNs::from_ms(1), deadline: DurNs::from_ms(10), period: DurNs::from_ms(10) };

/// The number of heartbeats so far. Called on the guard's thread: must not allocate, block or lock.
pub type Beats = Box<dyn Fn() -> u64 + Send>;

/// A process to be watched.
pub struct WatchSpec {
    /// The process itself: when it is gone, the watch is over.
    pub child: ChildId,
    /// Whose descendants are watched with it: its keeper or starter. Its own process where there is none.
    pub ancestor: i32,
    /// What each FIFO or RR thread of child and descendants may burn.
    pub budget: Budget,
    /// What is done about a runaway.
    pub ladder: Vec<Rung>,
    /// A heartbeat and its longest silence.
    pub heartbeat: Option<(Beats, DurNs)>,
    /// A freezer of its own: the directory of a control group (v1 freezer or v2) that it was started in.
    /// Without, SIGSTOP freezes.
    pub freezer: Option<PathBuf>,
    /// A real-time thread that is runnable but has not run for this long is reported.
    pub starved_after: DurNs,
}

impl fmt::Debug for WatchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchSpec").field("child", &self.child).field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// Names a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(u64);

/// What the guard saw or did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardEvent {
    /// When.
    pub at: MonoNs,
    /// Whom it watched.
    pub watch: WatchId,
    /// The process concerned (child or descendant).
    pub pid: i32,
    /// The thread concerned.
    pub tid: i32,
    /// What.
    pub what: What,
}

/// What the guard saw or did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A thread burnt its budget: the ladder begins.
    Runaway {
        /// Processor time burnt.
        used: DurNs,
        /// In this time.
        window: DurNs,
    },
    /// A thread was over its budget in a period, but gave its CPU up in between.
    Over {
        /// Such periods in a row.
        in_a_row: u32,
    },
    /// The heartbeat is silent. With `Budget::None` the ladder begins.
    Silent {
        /// For how long.
        silence: DurNs,
    },
    /// A runnable real-time thread has not run.
    Starved {
        /// For at least this long.
        waited: DurNs,
    },
    /// A step of the ladder was done.
    Step {
        /// Which.
        action: RungAction,
        /// How many threads or processes it reached.
        reached: u32,
        /// How many the kernel refused to change (gone meanwhile not counted).
        refused: u32,
    },
    /// The process gave in: it goes on, demoted.
    Tamed,
    /// It is gone; the ladder, if it was climbed, is over.
    Gone {
        /// Whether the ladder was being climbed.
        by_ladder: bool,
    },
    /// All steps are done and it still lives.
    Exhausted,
    /// More real-time threads or processes than the guard holds: so many are not watched.
    Unwatched {
        /// How many threads.
        threads: u32,
        /// How many processes, without those that they have started.
        processes: u32,
    },
}

enum Command {
    Watch(Box<Watched>),
    Unwatch(WatchId),
    Stop,
}

/// A watch that the guard has taken up, or has no room for.
struct Taken {
    id: WatchId,
    watched: bool,
}

/// The guard's handle. Dropping it ends the thread; watched processes are left as they are.
#[derive(Debug)]
pub struct Guard {
    commands: SyncSender<Command>,
    events: Receiver<GuardEvent>,
    /// Watches that are over, to be freed here and not there.
    over: Receiver<Box<Watched>>,
    /// The guard's word for each watch that it was given.
    taken: Receiver<Taken>,
    wake_guard: Arc<OwnedFd>,
    wake_owner: Arc<OwnedFd>,
    wake_taken: Arc<OwnedFd>,
    dropped: Arc<AtomicU64>,
    class: Policy,
    next: u64,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

/// The ends that the guard's thread holds.
pub(crate) struct Ends {
    commands: Receiver<Command>,
    events: SyncSender<GuardEvent>,
    over: SyncSender<Box<Watched>>,
    taken: SyncSender<Taken>,
    wake_guard: Arc<OwnedFd>,
    wake_owner: Arc<OwnedFd>,
    wake_taken: Arc<OwnedFd>,
    dropped: Arc<AtomicU64>,
}

impl Ends {
    /// Tells the owner, who waits for it, that a watch was taken up or refused.
    fn take(&self, id: WatchId, watched: bool) {
        // There is room for every watch that can be on its way; the owner reads through the descriptor, so
        // that nobody is ever blocked in the queue itself.
        let _ = self.taken.try_send(Taken { id, watched });
        let _ = rustix::io::write(&*self.wake_taken, &1u64.to_ne_bytes());
    }

    fn tell(&self, event: GuardEvent) {
        if self.events.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        // A full counter still wakes.
        let _ = rustix::io::write(&*self.wake_owner, &1u64.to_ne_bytes());
    }
}

impl Guard {
    /// Starts the guard's thread with the best class it can get, kept off the CPUs in `keep_off` where a
    /// fixed priority is all it gets (a DEADLINE task may not be bound). What could not be had comes with it.
    ///
    /// # Errors
    /// No thread or descriptor could be made.
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
        let dropped = Arc::new(AtomicU64::new(0));
        let ends = Ends {
            commands: commands_end,
            events: events_end,
            over: over_end,
            taken: taken_end,
            wake_guard: wake_guard.clone(),
            wake_owner: wake_owner.clone(),
            wake_taken: wake_taken.clone(),
            dropped: dropped.clone(),
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
                // Nobody waits only if the starter is gone already.
                let _ = told.send((class, shortfalls));
                thread::watch(&ends);
            })
            .map_err(|error| sys::Error {
                doing: "start the guard's thread".to_owned(),
                errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
            })?;
        let (class, shortfalls) = tells.recv().unwrap_or((Policy::OTHER, Vec::new()));
        let guard = Self {
            commands,
            events,
            over,
            taken,
            wake_guard,
            wake_owner,
            wake_taken,
            dropped,
            class,
            next: 0,
            thread: Some(thread),
        };
        Ok((guard, shortfalls))
    }

    /// The class that the guard's thread got.
    #[must_use]
    pub fn class(&self) -> Policy {
        self.class
    }

    /// Watches a process from now on: on return the guard's thread itself knows process and budget. A process
    /// that waits at its start ([`crate::launch::hold`]) may be let go then.
    ///
    /// Blocks until the guard has run, at most [`TAKEN_WITHIN`].
    ///
    /// # Errors
    /// The process is gone, its freezer cannot be opened, [`WATCHES_MAX`] are watched, or the guard does not
    /// run.
    pub fn watch(&mut self, spec: WatchSpec) -> sys::Result<WatchId> {
        self.free();
        let id = WatchId(self.next);
        let failed = |errno| sys::Error { doing: format!("watch process {}", spec.child.pid), errno };
        let freezer = spec.freezer.as_deref().map(open_freezer).transpose()?;
        let (beats, silence) = match spec.heartbeat {
            Some((beats, within)) => (Some(beats), Some(Silence::new(within))),
            None => (None, None),
        };
        let watched = Watched::new(
            id,
            spec.child,
            spec.ancestor,
            Meter::new(spec.budget),
            Ladder::new(&spec.ladder),
            beats.zip(silence),
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

    /// Waits for the guard's word.
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
            // An interrupted wait is a look too early.
            if poll(&mut fds, Some(&wait)).is_ok_and(|ready| ready > 0) {
                let mut count = [0u8; 8];
                let _ = rustix::io::read(&*self.wake_taken, &mut count);
            }
        }
    }

    /// Ends a watch; a process in the middle of the ladder is left where it is.
    pub fn unwatch(&mut self, id: WatchId) {
        // A guard that has stopped watches nothing any more.
        let _ = self.commands.send(Command::Unwatch(id));
        self.wake();
        self.free();
    }

    /// The next event, if one has come. Poll the descriptor ([`AsFd`]) for readability.
    #[must_use]
    pub fn next_event(&mut self) -> Option<GuardEvent> {
        self.free();
        let event = self.events.try_recv().ok();
        if event.is_none() {
            let mut count = [0u8; 8];
            // Emptied only when there is nothing to take; an event that came between wakes again.
            let _ = rustix::io::read(&*self.wake_owner, &mut count);
            return self.events.try_recv().ok();
        }
        event
    }

    /// Events that were dropped because nobody took them.
    #[must_use]
    pub fn events_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn free(&mut self) {
        while self.over.try_recv().is_ok() {}
    }

    fn wake(&self) {
        // A full counter still wakes.
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
        // A guard that has stopped already needs no command.
        let _ = self.commands.send(Command::Stop);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The best class that the calling thread can get.
fn obtain_class(keep_off: &CpuSet) -> (Policy, Vec<Shortfall>) {
    let take = |policy| set_scheduling(0, Scheduling { policy, reset_on_fork: true }).map(|()| policy);
    if let Ok(policy) = take(Policy::Deadline(RESERVATION)) {
        return (policy, Vec::new());
    }
    let mut shortfalls = Vec::new();
    if let Ok(allowed) = sys::sched::affinity(0) {
        let elsewhere = allowed.minus(keep_off);
        // On a machine of one CPU there is no elsewhere; priority must do.
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

/// What freezes and thaws: an open file and its two words.
pub(crate) struct Freezer {
    file: OwnedFd,
    freeze: &'static [u8],
    thaw: &'static [u8],
    /// v2: kills all at once.
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
