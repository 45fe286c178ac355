//! What the threads of a frame's process have in common.

use crate::frames::cause::ThreadFiles;
use base::{Policy, Priority};
use ring::{FrameCounter, FramePage, Turn};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use sys::futex;
use sys::sched::{Scheduling, try_set_scheduling};
use sys::shm::SharedWords;

/// What the runner's thread and the dispatcher share of each activity.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Held for a moment, by the runner's thread while somebody joins; the dispatcher only tries.
    pub(crate) guest: Mutex<Guest>,
    /// Whether its thread has the priority of parked ones.
    pub(crate) parked: AtomicBool,
    /// Whether its process is to be killed.
    pub(crate) kill: AtomicBool,
    /// Its thread, 0 if there is none. Not that of the page, where an activity gone wild may write anything.
    pub(crate) tid: AtomicI32,
}

impl Slot {
    /// The files of the thread that has joined, to be read without holding the slot. Not for the dispatcher.
    pub(crate) fn files(&self) -> Option<Arc<ThreadFiles>> {
        self.guest.lock().unwrap_or_else(|broken| broken.into_inner()).files.clone()
    }

    /// Has the safe values of the activity stand, or no longer. `false` if somebody is just joining: try again.
    pub(crate) fn stand_safe(&self, safe: bool) -> bool {
        let Ok(guest) = self.guest.try_lock() else { return false };
        if let Some(Ok(variables)) = guest.variables.as_ref().map(|w| ring::Variables::attach(w.words())) {
            variables.stand_safe(safe);
        }
        true
    }
}

/// What belongs to the thread that has joined.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    pub(crate) files: Option<Arc<ThreadFiles>>,
    pub(crate) variables: Option<SharedWords>,
}

/// What both threads and the runner's have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) words: Arc<SharedWords>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) stop: AtomicBool,
    /// Frames that wait for this one's borders.
    pub(crate) followers: AtomicUsize,
    /// Calls that are parked.
    pub(crate) parked: AtomicUsize,
    /// Whether priorities are had, so that the queue's order holds and late calls can be parked.
    pub(crate) ordered: bool,
    pub(crate) priority: Priority,
}

impl Shared {
    pub(crate) fn page(&self) -> FramePage<'_> {
        FramePage::attach(self.words.words()).expect("made by this process; who destroys it ends the frame")
    }

    pub(crate) fn below(&self, by: u8) -> Policy {
        Policy::Fifo(Priority(self.priority.0.saturating_sub(by).max(1)))
    }

    /// Sets the priority of an activity's thread. A thread that is gone needs none, and another one may have its number:
    /// its files, which stay those of one thread, tell.
    fn set_priority(&self, activity: usize, below: u8) {
        let slot = &self.slots[activity];
        // Held for a moment by another thread of this process, it cannot tell; the number is a moment old at most then.
        let there = slot.guest.try_lock().map_or(true, |guest| guest.files.as_ref().is_some_and(|it| !it.is_gone()));
        let tid = slot.tid.load(Ordering::Acquire);
        if tid > 0 && there {
            let _ = try_set_scheduling(tid, Scheduling { policy: self.below(below), reset_on_fork: true });
        }
    }

    /// Puts a call that goes on beyond its minor behind everybody else.
    pub(crate) fn park(&self, page: &FramePage<'_>, activity: usize) {
        let slot = &self.slots[activity];
        if self.ordered && !slot.parked.swap(true, Ordering::AcqRel) {
            self.parked.fetch_add(1, Ordering::AcqRel);
            self.set_priority(activity, 3);
            page.count(FrameCounter::Parked, 1);
        }
    }

    /// Gives a parked thread its place again. Whether it was parked.
    pub(crate) fn unpark(&self, activity: usize) -> bool {
        let was = self.forget_parked(activity);
        if was {
            self.set_priority(activity, 1);
        }
        was
    }

    /// An activity's thread has the priority of its place, or is another one. Whether it was parked.
    pub(crate) fn forget_parked(&self, activity: usize) -> bool {
        let was = self.slots[activity].parked.swap(false, Ordering::AcqRel);
        if was {
            self.parked.fetch_sub(1, Ordering::AcqRel);
        }
        was
    }

    /// Passes the turn on over an activity that has not yielded, and wakes who has it then. Whether it was here.
    pub(crate) fn pass_over(page: &FramePage<'_>, turn: Turn) -> bool {
        let (moved, next) = page.pass_over(turn);
        if let Some(next) = next {
            futex::wake(page.call_word(next.into()));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_values_are_not_taken_to_stand_where_they_could_not_be_told_to() {
        let slot = Slot::default();
        let held = slot.guest.lock().unwrap();
        assert!(!slot.stand_safe(true), "somebody is just joining");
        drop(held);
        assert!(slot.stand_safe(true));
    }
}
