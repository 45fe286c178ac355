//! Parts of a frame page: shape, states, counters, events and borders.

use super::{ACTIVITIES, ACTIVITY, FRAME_EVENTS, MINOR_WORDS, MODE_NAME_BYTES};
use crate::trail::Trail;
use base::{DurNs, MonoNs};

/// Size of an event, in words.
pub(super) const EVENT: usize = 7;

/// Size of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameShape {
    /// Number of activities.
    pub activities: usize,
    /// Number of minors.
    pub minors: usize,
    /// Number of entries of the longest queue.
    pub queue: usize,
    /// Number of modes.
    pub modes: usize,
}

impl FrameShape {
    /// Upper limit of each of these numbers.
    pub(super) const MAX: usize = 4096;

    pub(super) fn minors_at(&self) -> usize {
        ACTIVITIES + self.activities * ACTIVITY
    }

    pub(super) fn modes_at(&self) -> usize {
        self.minors_at() + self.minors * MINOR_WORDS
    }

    pub(super) fn queues_at(&self) -> usize {
        self.modes_at() + self.modes * (MODE_NAME_BYTES / 8)
    }

    pub(super) fn trail_at(&self) -> usize {
        self.queues_at() + 2 * self.queue
    }

    /// Size of the frame's page, in words.
    #[must_use]
    pub fn words(&self) -> usize {
        self.trail_at() + Trail::<EVENT>::words_for(FRAME_EVENTS)
    }
}

/// State of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// Waiting for its activities.
    Forming,
    /// Running.
    Running,
    /// Ended.
    Ended,
}

/// Presence of an activity's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// No thread has joined yet.
    Never,
    /// A living thread has a turn or waits for one.
    Joined,
    /// The thread has left and announced it.
    Left,
    /// The thread or its process ended, or the connection was closed unannounced.
    Died,
    /// A living thread was admitted but has not asked for its first turn yet.
    Joining,
}

/// Counters of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum FrameCounter {
    /// Minors that were run.
    Minors,
    /// Minors that passed before the dispatcher could run them.
    Lost,
    /// Overruns.
    Overruns,
    /// Underruns.
    Underruns,
    /// Absences: for each minor, the number of activities that were absent from it.
    Absences,
    /// Extensions of a minor.
    Extensions,
    /// Changes of mode.
    Modes,
    /// Turns skipped by the recovery `skip`.
    Skipped,
    /// Turns passed on because the activity was blocked.
    Blocked,
    /// Times that a call which ran on beyond its minor was moved behind all other calls.
    Parked,
    /// Times that no trigger came within three minors.
    TriggerStopped,
    /// Triggers that came after less than three quarters of the minor's length.
    TriggerEarly,
    /// Threads that were refused when they tried to join.
    Refused,
    /// Triggers that came after more than one and a half times the minor's length.
    TriggerLate,
    /// Page faults of the dispatcher since its first minor.
    PageFaults,
    /// Allocator calls (allocations and frees) of the dispatcher since its first minor; all ones if they are not counted.
    Allocations,
    /// Clients that the frame disconnected: they did not read its answers, or there were too many of them.
    HungUp,
}

/// Counters of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ActivityCounter {
    /// Calls that it finished.
    Calls,
    /// Its overruns.
    Overruns,
    /// Its underruns.
    Underruns,
    /// Minors in which it was absent.
    Absences,
    /// Its consecutive faults.
    Consecutive,
    /// Calls that took longer than its budget.
    OverBudget,
    /// Threads that have joined under its name so far.
    Joins,
    /// 1 while it is demoted to the background because of its faults.
    Demoted,
    /// 1 while its safe values are in force.
    Safe,
    /// Its budget in ns; 0 if it has none.
    Budget,
    /// Page faults since its first call, updated by each [`FramePage::set_baseline`](crate::FramePage::set_baseline).
    PageFaults,
}

/// Kernel accounts of a thread, less the part that its frame expects: the calls that it finished, its waits for its turn,
/// and the borders at which the dispatcher took its CPU. The difference between two baselines is the cost of everything else
/// that the calls between them did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Processor time beyond that of finished calls.
    pub cpu: DurNs,
    /// Page faults.
    pub faults: u64,
    /// Times that the thread gave up its CPU, beyond its waits.
    pub voluntary: u64,
    /// Times that the thread was preempted, beyond borders.
    pub involuntary: u64,
}

/// An event of an activity or of the frame, as stored in the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameEvent {
    /// Pulse of the minor in which it happened.
    pub pulse: u64,
    /// Time at which it was detected.
    pub at: MonoNs,
    /// The minor.
    pub minor: u16,
    /// The activity; `u16::MAX` if the event concerns the frame.
    pub activity: u16,
    /// Kind of the event; `rt::frames` defines the numbers.
    pub what: u8,
    /// Action taken.
    pub action: u8,
    /// Cause, as far as the counters show it.
    pub cause: u8,
    /// Number of consecutive events.
    pub consecutive: u32,
    /// Time that the call had been running.
    pub elapsed: DurNs,
    /// Processor time of the call during that time.
    pub cpu: DurNs,
    /// A number whose meaning depends on the cause.
    pub detail: u64,
}

impl FrameEvent {
    pub(super) fn words(&self) -> [u64; EVENT] {
        let place = u64::from(self.minor) | u64::from(self.activity) << 16 | u64::from(self.what) << 32;
        let place = place | u64::from(self.action) << 40 | u64::from(self.cause) << 48;
        let (elapsed, cpu) = (self.elapsed.0 as u64, self.cpu.0 as u64);
        [self.pulse, self.at.0, place, self.consecutive.into(), elapsed, cpu, self.detail]
    }

    pub(super) fn of([pulse, at, place, consecutive, elapsed, cpu, detail]: [u64; EVENT]) -> Self {
        Self {
            pulse,
            at: MonoNs(at),
            minor: place as u16,
            activity: (place >> 16) as u16,
            what: (place >> 32) as u8,
            action: (place >> 40) as u8,
            cause: (place >> 48) as u8,
            consecutive: consecutive as u32,
            elapsed: DurNs(elapsed as i64),
            cpu: DurNs(cpu as i64),
            detail,
        }
    }
}

/// The running minor, as the dispatcher publishes it at the border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameBorder {
    /// Pulse number.
    pub pulse: u64,
    /// The minor.
    pub minor: u16,
    /// The mode.
    pub mode: u16,
    /// Time at which the dispatcher began the minor.
    pub begun: MonoNs,
    /// Time at which the minor was due.
    pub due: MonoNs,
    /// Time at which the minor ends.
    pub end: MonoNs,
}

/// Progress of a minor: its sequence and the present place in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Sequence of the minor.
    pub sequence: u64,
    /// Place in its queue; the queue's length once all activities have been released.
    pub index: usize,
}
