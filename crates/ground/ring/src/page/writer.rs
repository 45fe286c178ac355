//! Who writes a loop page: the loop, and the watcher beside it.

use super::parts::{CYCLE_WORDS, Counter, Cycle, flags};
use super::{CALM, COMPUTE, COUNTERS, LoopPage, STATE, WAKE};
use crate::latest::Latest;
use crate::sync::{Ordering, add_own};
use crate::trail::Trail;
use base::{MonoNs, ResultDeadline, Worth};

/// The loop's own end of its page.
pub struct LoopWriter<'a> {
    pub(super) page: LoopPage<'a>,
    pub(super) heartbeat: Latest<'a, 6>,
    pub(super) trail: Trail<'a, CYCLE_WORDS>,
    pub(super) beats: u64,
    pub(super) deadline: Option<ResultDeadline>,
}

/// The end of a page that the watcher writes.
pub struct LoopWatcher<'a> {
    pub(super) page: LoopPage<'a>,
}

impl LoopWriter<'_> {
    /// A cycle begins: `cycle.done` is not known yet. Records its latency.
    pub fn begin(&mut self, cycle: &Cycle) {
        self.beats += 1;
        self.beat(cycle);
        self.page.hist(WAKE).record(cycle.latency());
        self.add(Counter::Cycles, 1);
    }

    /// The cycle's work is done: records its compute time, keeps it as evidence, and weighs its result where there is a deadline:
    /// what it is worth.
    pub fn end(&mut self, cycle: &Cycle) -> Option<Worth> {
        let mut cycle = *cycle;
        let worth = self.deadline.map(|deadline| {
            let took = cycle.done - cycle.expected;
            let worth = deadline.worth(took);
            self.add(Counter::Judged, 1);
            self.add(Counter::Worth, worth.0.into());
            if took > deadline.at {
                self.add(Counter::BehindDeadline, 1);
                cycle.flags |= flags::BEHIND;
            }
            worth
        });
        self.beat(&cycle);
        self.page.hist(COMPUTE).record(cycle.compute());
        self.trail.push_overwrite(cycle.words());
        worth
    }

    /// Until when each result counts.
    #[must_use]
    pub fn deadline(&self) -> Option<ResultDeadline> {
        self.deadline
    }

    /// Pulse `expected` was given up at `now`. Its lateness so far is recorded, so that a long delay shows
    /// with its full weight.
    pub fn skip(&mut self, expected: MonoNs, now: MonoNs) {
        self.page.hist(WAKE).record(now - expected);
        self.add(Counter::Overruns, 1);
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Counter, more: u64) {
        if more > 0 {
            add_own(&self.page.words[COUNTERS + counter as usize], more);
        }
    }

    /// The loop ends by itself.
    pub fn finish(self) {
        self.page.words[STATE].store(2, Ordering::Release);
    }

    fn beat(&self, cycle: &Cycle) {
        let [pulse, expected, woke, done, flags] = cycle.words();
        self.heartbeat.set_replace([self.beats, pulse, expected, woke, done, flags]);
    }
}

impl LoopWatcher<'_> {
    /// A cycle that no steal can have touched.
    pub fn calm(&self, cycle: &Cycle) {
        self.page.hist(CALM).record(cycle.latency());
    }

    /// Adds to one of the watcher's counters.
    pub fn add(&self, counter: Counter, more: u64) {
        if more > 0 {
            add_own(&self.page.words[COUNTERS + counter as usize], more);
        }
    }

    /// Counts one preemption by a task, or by one that is not known.
    pub fn preempted_by(&self, culprit: Option<(&str, u32)>) {
        self.page.table().add(culprit);
    }
}
