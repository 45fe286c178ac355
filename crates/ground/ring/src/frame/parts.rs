//! What stands in a frame page: its shape, who and what it counts, events and borders.

use super::{ACTIVITIES, ACTIVITY, FRAME_EVENTS, MINOR_WORDS, MODE_NAME_BYTES};
use crate::trail::Trail;
use base::{DurNs, MonoNs};

/// Words of an event.
pub(super) const EVENT: usize = 7;

/// How large a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameShape {
    /// Activities.
    pub activities: usize,
    /// Minors.
    pub minors: usize,
    /// Entries of the longest queue.
    pub queue: usize,
    /// Modes.
    pub modes: usize,
}

impl FrameShape {
    /// More of anything is no frame.
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

    /// Words that its page needs.
    #[must_use]
    pub fn words(&self) -> usize {
        self.trail_at() + Trail::<EVENT>::words_for(FRAME_EVENTS)
    }
}

/// What a frame is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// It waits for its activities.
    Forming,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

/// Who stands behind an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nobody yet.
    Never,
    /// A living thread that waits for its turn or has one.
    Joined,
    /// Nobody any more: it said so.
    Left,
    /// Nobody any more: its process ended, or closed the connection.
    Died,
    /// A living thread that was let in and has not asked for its first turn.
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
    /// Minors in which somebody was absent, once for each.
    Absences,
    /// Times that a minor was given more time.
    Extensions,
    /// Changes of mode.
    Modes,
    /// Turns left out by the recovery `skip`.
    Skipped,
    /// Turns passed on because the activity was blocked.
    Blocked,
    /// Times that a call that went on beyond its minor was put behind all others.
    Parked,
    /// Times that the trigger did not come within three minors.
    TriggerStopped,
    /// Triggers that came in less than three quarters of the minor's length.
    TriggerEarly,
    /// Those who wanted to join and were refused.
    Refused,
    /// Triggers that came after more than one and a half of the minor's length.
    TriggerLate,
    /// Page faults of the dispatcher since its first minor.
    PageFaults,
    /// Memory that the dispatcher took or gave back since its first minor, in calls of the allocator; all ones where
    /// nobody counts.
    Allocations,
    /// Callers that were hung up on: they took none of the frame's answers, or were one too many.
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
    /// Its faults in succession.
    Consecutive,
    /// Calls that took longer than its budget.
    OverBudget,
    /// Threads that joined under its name so far.
    Joins,
    /// 1 while it runs in the background for its faults.
    Demoted,
    /// 1 while its safe values stand.
    Safe,
    /// Its budget in ns; 0 if it has none.
    Budget,
    /// Page faults since its first call, as often as it looks ([`FramePage::set_baseline`](crate::FramePage::set_baseline)).
    PageFaults,
}

/// What a thread has cost the kernel, less what its frame knows to be in order: the calls that it finished, its waits
/// for its turn, and the borders at which the dispatcher took its CPU. Two of them, taken at any times, differ by what the
/// calls between them did beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// Processor time beyond that of finished calls.
    pub cpu: DurNs,
    /// Page faults.
    pub faults: u64,
    /// Times that it gave its CPU up, beyond its waits.
    pub voluntary: u64,
    /// Times that its CPU was taken from it, beyond borders.
    pub involuntary: u64,
}

/// Something that happened to an activity, as it stands in the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameEvent {
    /// Pulse of the minor in which it happened.
    pub pulse: u64,
    /// When it was noticed.
    pub at: MonoNs,
    /// Minor and activity.
    pub minor: u16,
    /// The activity; `u16::MAX` if it concerns the frame.
    pub activity: u16,
    /// What happened; numbers that `rt::frames` gives.
    pub what: u8,
    /// What was done.
    pub action: u8,
    /// Why, as far as counters tell.
    pub cause: u8,
    /// How often in succession.
    pub consecutive: u32,
    /// Since when the call had been running.
    pub elapsed: DurNs,
    /// Processor time of that.
    pub cpu: DurNs,
    /// A number that belongs to the cause.
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

/// What a minor's border writes for everybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameBorder {
    /// Number of the pulse.
    pub pulse: u64,
    /// The minor.
    pub minor: u16,
    /// The mode.
    pub mode: u16,
    /// When the dispatcher was there.
    pub begun: MonoNs,
    /// When it should have been.
    pub due: MonoNs,
    /// When the minor ends.
    pub end: MonoNs,
}

/// How far a minor has come: its sequence, and the place in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Number of the minor.
    pub sequence: u64,
    /// Place in its queue; the queue's length when all have been released.
    pub index: usize,
}
