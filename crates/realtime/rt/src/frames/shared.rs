//! State that the threads of a frame's process share.

use crate::frames::cause::ThreadFiles;
use base::{Policy, Priority};
use ring::{FrameCounter, FramePage, Turn};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use sys::futex;
use sys::sched::{Scheduling, try_set_scheduling};
use sys::shm::SharedWords;

/// State of an activity, shared by the runner's thread and the dispatcher.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Locked for a moment by the runner's thread while a thread joins. The dispatcher only tries to lock it.
    pub(crate) guest: Mutex<Guest>,
    /// Whether its thread has the priority of parked calls.
    pub(crate) parked: AtomicBool,
    /// Whether its process is to be killed.
    pub(crate) kill: AtomicBool,
    /// Thread id, 0 if there is none. It is not read from the page, where a faulty activity may write anything.
    pub(crate) tid: AtomicI32,
}

impl Slot {
    /// The files of the thread that has joined, which can be read without locking the slot. Not for the dispatcher.
    pub(crate) fn files(&self) -> Option<Arc<ThreadFiles>> {
        self.guest.lock().unwrap_or_else(|broken| broken.into_inner()).files.clone()
    }

    /// Puts the safe values of the activity in force, or withdraws them. Returns `false` if a thread is just joining; the
    /// caller must try again.
    pub(crate) fn stand_safe(&self, safe: bool) -> bool {
        let Ok(guest) = self.guest.try_lock() else { return false };
        if let Some(Ok(variables)) = guest.variables.as_ref().map(|w| ring::Variables::attach(w.words())) {
            variables.stand_safe(safe);
        }
        true
    }
}

/// Resources of the thread that has joined.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    pub(crate) files: Option<Arc<ThreadFiles>>,
    pub(crate) variables: Option<SharedWords>,
}

/// State shared by the frame's two threads and the runner.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) words: Arc<SharedWords>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) stop: AtomicBool,
    /// Number of frames that wait for this frame's borders.
    pub(crate) followers: AtomicUsize,
    /// Number of calls that are parked.
    pub(crate) parked: AtomicUsize,
    /// Whether priorities are available, so that the queue's order is enforced and late calls can be parked.
    pub(crate) ordered: bool,
    pub(crate) priority: Priority,
}

impl Shared {
    pub(crate) fn page(&self) -> FramePage<'_> {
        FramePage::attach(self.words.words())
            .expect("created by this process; a process that destroys the page ends the frame")
    }

    pub(crate) fn below(&self, by: u8) -> Policy {
        Policy::Fifo(Priority(self.priority.0.saturating_sub(by).max(1)))
    }

    /// Sets the priority of an activity's thread. If the thread has ended, another thread may have its id. The `/proc` files
    /// refer to the original thread and show whether it lives.
    fn set_priority(&self, activity: usize, below: u8) {
        let slot = &self.slots[activity];
        // If another thread of this process has the lock, the check is not possible. In that case the thread id is at most a
        // moment old.
        let there = slot.guest.try_lock().map_or(true, |guest| guest.files.as_ref().is_some_and(|it| !it.is_gone()));
        let tid = slot.tid.load(Ordering::Acquire);
        if tid > 0 && there {
            let _ = try_set_scheduling(tid, Scheduling { policy: self.below(below), reset_on_fork: true });
        }
    }

    /// Parks a call that continues beyond its minor: moves it behind all other activities.
    pub(crate) fn park(&self, page: &FramePage<'_>, activity: usize) {
        let slot = &self.slots[activity];
        if self.ordered && !slot.parked.swap(true, Ordering::AcqRel) {
            self.parked.fetch_add(1, Ordering::AcqRel);
            self.set_priority(activity, 3);
            page.count(FrameCounter::Parked, 1);
        }
    }

    /// Restores the priority of a parked thread. Returns whether it was parked.
    pub(crate) fn unpark(&self, activity: usize) -> bool {
        let was = self.forget_parked(activity);
        if was {
            self.set_priority(activity, 1);
        }
        was
    }

    /// Clears the parked mark of an activity whose thread has its normal priority or was replaced. Returns whether it was
    /// parked.
    pub(crate) fn forget_parked(&self, activity: usize) -> bool {
        let was = self.slots[activity].parked.swap(false, Ordering::AcqRel);
        if was {
            self.parked.fetch_sub(1, Ordering::AcqRel);
        }
        was
    }

    /// Passes the turn on over an activity that has not yielded, and wakes the activity that gets it. Returns whether this
    /// call moved the turn.
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
    fn safe_values_do_not_count_as_applied_while_the_slot_is_locked() {
        let slot = Slot::default();
        let held = slot.guest.lock().unwrap();
        assert!(!slot.stand_safe(true), "a member is joining");
        drop(held);
        assert!(slot.stand_safe(true));
    }
}
