//! The two writers of a loop page: the loop and the watcher.

use super::parts::{CYCLE_WORDS, Counter, Cycle, flags};
use super::{CALM, COMPUTE, COUNTERS, LoopPage, STATE, WAKE};
use crate::latest::Latest;
use crate::sync::{Ordering, add_own};
use crate::trail::Trail;
use base::{MonoNs, ResultDeadline, Worth};

/// The loop's writer.
pub struct LoopWriter<'a> {
    pub(super) page: LoopPage<'a>,
    pub(super) heartbeat: Latest<'a, 6>,
    pub(super) trail: Trail<'a, CYCLE_WORDS>,
    pub(super) beats: u64,
    pub(super) deadline: Option<ResultDeadline>,
}

/// The watcher's writer.
pub struct LoopWatcher<'a> {
    pub(super) page: LoopPage<'a>,
}

impl LoopWriter<'_> {
    /// Records the start of a cycle and its latency. `cycle.done` is not known yet.
    pub fn begin(&mut self, cycle: &Cycle) {
        self.beats += 1;
        self.beat(cycle);
        self.page.hist(WAKE).record(cycle.latency());
        self.add(Counter::Cycles, 1);
    }

    /// Records the end of a cycle: its compute time and the cycle itself. If the loop has a deadline, judges the result and
    /// returns its value.
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

    /// The result deadline of the loop.
    #[must_use]
    pub fn deadline(&self) -> Option<ResultDeadline> {
        self.deadline
    }

    /// Records that the pulse due at `expected` was skipped at `now`. Its lateness goes into the latency histogram, so that
    /// a long delay counts with its full weight.
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

    /// Records that the loop has ended by itself.
    pub fn finish(self) {
        self.page.words[STATE].store(2, Ordering::Release);
    }

    fn beat(&self, cycle: &Cycle) {
        let [pulse, expected, woke, done, flags] = cycle.words();
        self.heartbeat.set_replace([self.beats, pulse, expected, woke, done, flags]);
    }
}

impl LoopWatcher<'_> {
    /// Records a cycle that steal cannot have affected.
    pub fn calm(&self, cycle: &Cycle) {
        self.page.hist(CALM).record(cycle.latency());
    }

    /// Adds to one of the watcher's counters.
    pub fn add(&self, counter: Counter, more: u64) {
        if more > 0 {
            add_own(&self.page.words[COUNTERS + counter as usize], more);
        }
    }

    /// Counts one preemption by a task; `None` if the task is not known.
    pub fn preempted_by(&self, culprit: Option<(&str, u32)>) {
        self.page.table().add(culprit);
    }
}
