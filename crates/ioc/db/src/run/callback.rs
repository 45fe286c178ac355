//! Deferred processing: callbacks by priority, scan-once requests, delays.
//!
//! The order follows the priorities of the threads of EPICS: callbacks of PRIO High, scan-once requests, callbacks of Medium,
//! then of Low. After PRIO High, every second turn serves the links over channels into this database.

use crate::model::id::RecId;
use crate::run::engine::{Db, Now};
use crate::run::scan::{PRIORITIES, priority};
use base::{DurNs, MonoNs};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// State of a queue of records to be processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueInfo {
    /// Current number of entries.
    pub used: usize,
    /// Highest number of entries.
    pub high_water: usize,
    /// Capacity.
    pub size: usize,
    /// Number of entries lost because the queue was full.
    pub overflows: u64,
}

/// Reason for a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Callback {
    /// The second half of an asynchronous processing.
    Resume,
    /// A type-specific callback, by number.
    Own(u8),
}

/// Entry of a queue.
#[derive(Clone, Copy, Debug)]
enum Work {
    Call(RecId, Callback),
    /// Records of a group that have the queue's priority.
    Group(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: MonoNs,
    serial: u64,
    rec: RecId,
    callback: Callback,
}

/// Maximum number of waiting scan-once requests, callbacks of each priority, and delays.
const ONCE_LIMIT: usize = 10_000;
const CALLBACK_LIMIT: usize = 10_000;
const TIMER_ROOM: usize = 1_024;

/// Index of the scan-once queue.
const ONCE: usize = PRIORITIES;
/// Index of the highest-priority callback queue.
const HIGH: usize = PRIORITIES - 1;

/// The queues and their statistics.
#[derive(Default)]
pub(crate) struct Callbacks {
    once: VecDeque<RecId>,
    queues: [VecDeque<Work>; PRIORITIES],
    timers: BinaryHeap<Reverse<Timer>>,
    serial: u64,
    /// Highest number of entries of each queue: callbacks by priority, then scan-once. The lost entries are counted likewise.
    high_water: [usize; PRIORITIES + 1],
    lost: [u64; PRIORITIES + 1],
}

impl Callbacks {
    /// Preallocates the queues.
    pub(crate) fn reserve(&mut self) {
        self.once.reserve(ONCE_LIMIT);
        self.queues.iter_mut().for_each(|queue| queue.reserve(CALLBACK_LIMIT));
        self.timers.reserve(TIMER_ROOM);
    }
}

impl Db {
    /// Requests a processing soon (scanOnce).
    pub(crate) fn scan_once(&mut self, rec: RecId) {
        let callbacks = &mut self.scans.callbacks;
        if callbacks.once.len() >= ONCE_LIMIT {
            self.counters.once_lost += 1;
            callbacks.lost[ONCE] += 1;
            return;
        }
        callbacks.once.push_back(rec);
        callbacks.high_water[ONCE] = callbacks.high_water[ONCE].max(callbacks.once.len());
    }

    /// Requests the second half of an asynchronous processing soon, in the order of PRIO.
    pub(crate) fn call_back(&mut self, rec: RecId, callback: Callback) {
        let queue = priority(self.records[rec].prio);
        self.queue(queue, Work::Call(rec, callback));
    }

    /// Queues the records of a group, separately for each priority.
    pub(crate) fn queue_group(&mut self, group: u32) {
        for prio in 0..PRIORITIES {
            if !self.scans.groups[group as usize][prio].is_empty() {
                self.queue(prio, Work::Group(group));
            }
        }
    }

    fn queue(&mut self, prio: usize, work: Work) {
        let callbacks = &mut self.scans.callbacks;
        let queue = &mut callbacks.queues[prio];
        if queue.len() >= CALLBACK_LIMIT {
            self.counters.callback_lost += 1;
            callbacks.lost[prio] += 1;
            return;
        }
        queue.push_back(work);
        callbacks.high_water[prio] = callbacks.high_water[prio].max(queue.len());
    }

    /// State of the queues: callbacks of PRIO Low, Medium and High, and scan-once. `reset` resets the highest numbers and the
    /// counts of lost entries.
    pub fn queues(&mut self, reset: bool) -> [QueueInfo; PRIORITIES + 1] {
        let callbacks = &mut self.scans.callbacks;
        let info = std::array::from_fn(|at| {
            let (used, size) = match callbacks.queues.get(at) {
                Some(queue) => (queue.len(), CALLBACK_LIMIT),
                None => (callbacks.once.len(), ONCE_LIMIT),
            };
            QueueInfo { used, size, high_water: callbacks.high_water[at], overflows: callbacks.lost[at] }
        });
        if reset {
            (callbacks.high_water, callbacks.lost) = Default::default();
        }
        info
    }

    /// Like [`call_back`](Self::call_back), after a delay.
    pub(crate) fn call_back_after(&mut self, rec: RecId, callback: Callback, seconds: f64) {
        let delay = DurNs((seconds.clamp(0.0, 9e9) * 1e9) as i64);
        let callbacks = &mut self.scans.callbacks;
        callbacks.serial += 1;
        let timer = Timer { at: self.time.now.mono + delay, serial: callbacks.serial, rec, callback };
        callbacks.timers.push(Reverse(timer));
    }

    /// Cancels a record's delays with this callback.
    pub(crate) fn cancel_delay(&mut self, rec: RecId, callback: Callback) {
        self.scans.callbacks.timers.retain(|Reverse(timer)| timer.rec != rec || timer.callback != callback);
    }

    /// Processes everything that is due: events, interrupts, scan-once requests, callbacks and delays. Stops after about
    /// `limit` records (a list is not divided). Returns the number of records processed.
    pub fn advance(&mut self, now: Now, limit: usize) -> usize {
        self.time.now = now;
        let mut done = 0;
        // Alternation keeps links that trigger each other (or themselves) endlessly from blocking other work, and from being
        // blocked by it.
        let mut turn = false;
        while done < limit {
            self.expire(now.mono);
            turn = !turn;
            let callbacks = &mut self.scans.callbacks;
            if let Some(work) = callbacks.queues[HIGH].pop_front() {
                done += self.work(HIGH, work);
            } else if turn && self.do_chore() {
                done += 1;
            } else if let Some(rec) = self.scans.callbacks.once.pop_front() {
                self.run(rec);
                done += 1;
            } else if let Some(prio) = (0..HIGH).rev().find(|prio| !self.scans.callbacks.queues[*prio].is_empty()) {
                if let Some(work) = self.scans.callbacks.queues[prio].pop_front() {
                    done += self.work(prio, work);
                }
            } else if self.links.remotes.chores.is_empty() {
                break;
            }
        }
        self.restart_notifies(now);
        done
    }

    /// Converts expired delays to callbacks.
    fn expire(&mut self, now: MonoNs) {
        while let Some(Reverse(timer)) = self.scans.callbacks.timers.peek().copied()
            && timer.at <= now
        {
            self.scans.callbacks.timers.pop();
            self.call_back(timer.rec, timer.callback);
        }
    }

    fn work(&mut self, prio: usize, work: Work) -> usize {
        match work {
            Work::Call(rec, callback) => {
                self.called(rec, callback);
                1
            }
            Work::Group(group) => self.process_group(group as usize, prio),
        }
    }

    /// Processes the records of a group that have one priority.
    fn process_group(&mut self, group: usize, prio: usize) -> usize {
        // The list is taken out during the walk. Records that join the group go to a new list; those that leave are recorded.
        let mut list = std::mem::take(&mut self.scans.groups[group][prio]);
        self.scans.walking = true;
        for rec in &list {
            if !self.scans.left.contains(rec) {
                self.run(*rec);
            }
        }
        self.scans.walking = false;
        let count = list.len().max(1);
        let left = &mut self.scans.left;
        if !left.is_empty() {
            list.retain(|rec| !left.contains(rec));
            left.clear();
        }
        let added = std::mem::replace(&mut self.scans.groups[group][prio], list);
        added.into_iter().for_each(|rec| self.join_group(group as u32, rec));
        count
    }

    fn called(&mut self, rec: RecId, callback: Callback) {
        if self.records[rec].removed {
            return;
        }
        match callback {
            Callback::Resume if self.records[rec].pact != 0 => self.resume(rec),
            Callback::Resume => crate::rec::link_written(self, rec),
            Callback::Own(number) => crate::rec::own_callback(self, rec, number),
        }
    }

    /// Time at which [`advance`](Self::advance) next has work: immediately, at an instant, or never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonoNs> {
        let callbacks = &self.scans.callbacks;
        let waits = !callbacks.once.is_empty() || callbacks.queues.iter().any(|queue| !queue.is_empty());
        if waits || !self.links.remotes.chores.is_empty() {
            return Some(MonoNs(0));
        }
        callbacks.timers.peek().map(|Reverse(timer)| timer.at)
    }
}
