//! The running minor: which activity has the turn, and how the turn passes on. This module has all operations on `TURN` and
//! `CALL`.

use super::{
    AROUND, ActivityCounter, BASELINE, BEGUN_AT, BORDER, Baseline, CALL, CALLS_THEN, FrameBorder, FramePage, HELD,
    LAST_YIELD, LENGTHS, PULSE, TURN, Turn, WAITS,
};
use crate::latest::Latest;
use crate::sync::{AtomicU64, Ordering, add_own};
use base::{DurNs, MonoNs};

/// Layout of `TURN`: the place in the queue, a bit for an activity that was passed over, and above them the sequence.
const PLACE: u64 = 0x7fff;
const PASSED_OVER: u64 = 0x8000;

const BUSY: u64 = 1;
const YIELDED: u64 = 2;
const CLOSED: u64 = 4;
const SEQUENCE_SHIFT: u32 = 3;
const INDEX_SHIFT: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << (INDEX_SHIFT - SEQUENCE_SHIFT)) - 1;

fn sequence_of(call: u64) -> u64 {
    call >> SEQUENCE_SHIFT & SEQUENCE_MASK
}

impl<'a> FramePage<'a> {
    // ---- the running minor

    /// The word that changes at every border. Threads wait on it for the next border.
    #[must_use]
    pub fn pulse_word(&self) -> &'a AtomicU64 {
        &self.words[PULSE]
    }

    /// A consistent copy of the running minor. All fields are zero before the first minor, and if the dispatcher died while
    /// writing.
    #[must_use]
    pub fn border(&self) -> FrameBorder {
        let Some((_, [pulse, minor, mode, begun, due, end])) = self.border_cell().get() else {
            return FrameBorder::default();
        };
        let (begun, due, end) = (MonoNs(begun), MonoNs(due), MonoNs(end));
        FrameBorder { pulse, minor: minor as u16, mode: mode as u16, begun, due, end }
    }

    fn border_cell(&self) -> Latest<'a, 6> {
        Latest::bare(&self.words[BORDER..])
    }

    /// Begins a minor with this queue and returns its turn, without releasing an activity. To be called by the dispatcher,
    /// after it has [closed](Self::close) the previous minor.
    pub fn begin(&self, border: &FrameBorder, queue: impl Iterator<Item = u16>) -> Turn {
        let sequence = self.turn().sequence.wrapping_add(1) & SEQUENCE_MASK;
        let room = self.queue(sequence);
        let mut length = 0;
        for (word, activity) in room.iter().zip(queue) {
            word.store(activity.into(), Ordering::Relaxed);
            length += 1;
        }
        self.words[LENGTHS + (sequence & 1) as usize].store(length, Ordering::Relaxed);
        self.show(border);
        self.words[LAST_YIELD].store(border.begun.0, Ordering::Relaxed);
        // A swap, not a store: a thread that moves the turn at this moment must fail.
        self.words[TURN].swap(sequence << 16, Ordering::AcqRel);
        self.words[PULSE].store(border.pulse, Ordering::Release);
        Turn { sequence, index: 0 }
    }

    /// Publishes that the running minor is extended. To be called by the dispatcher.
    pub fn extend(&self, border: &FrameBorder) {
        self.show(border);
        self.words[PULSE].store(border.pulse, Ordering::Release);
    }

    fn show(&self, border: &FrameBorder) {
        let FrameBorder { pulse, minor, mode, begun, due, end } = *border;
        self.border_cell().set_replace([pulse, minor.into(), mode.into(), begun.0, due.0, end.0]);
    }

    /// Progress of the running minor.
    #[must_use]
    pub fn turn(&self) -> Turn {
        let turn = self.words[TURN].load(Ordering::Acquire);
        Turn { sequence: turn >> 16, index: (turn & PLACE) as usize }
    }

    /// Whether all activities before the present turn have yielded in this minor, so that none was passed over.
    #[must_use]
    pub fn in_order(&self) -> bool {
        self.words[TURN].load(Ordering::Acquire) & PASSED_OVER == 0
    }

    /// The activity at a place of a minor's queue.
    #[must_use]
    pub fn at(&self, turn: Turn) -> Option<u16> {
        let length = self.words[LENGTHS + (turn.sequence & 1) as usize].load(Ordering::Relaxed) as usize;
        if turn.index >= length {
            return None;
        }
        let activity = self.queue(turn.sequence).get(turn.index)?.load(Ordering::Relaxed) as u16;
        (usize::from(activity) < self.shape.activities).then_some(activity)
    }

    /// Releases the first activity of the queue and returns it; the caller must wake it.
    #[must_use]
    pub fn release_first(&self, turn: Turn) -> Option<u16> {
        self.release(turn)
    }

    /// Moves on from `turn`, whose activity has yielded, unless another thread has done so, and releases the next activity.
    /// Returns the activity that the caller must wake.
    #[must_use]
    pub fn pass_on(&self, turn: Turn) -> Option<u16> {
        self.step(turn, 0).and_then(|next| self.release(next))
    }

    /// Moves on from `turn`, whose activity has not yielded, as [`pass_on`](Self::pass_on) does. Returns whether this call
    /// moved the turn, and the activity that the caller must wake.
    #[must_use]
    pub fn pass_over(&self, turn: Turn) -> (bool, Option<u16>) {
        let next = self.step(turn, PASSED_OVER);
        (next.is_some(), next.and_then(|next| self.release(next)))
    }

    fn step(&self, turn: Turn, mark: u64) -> Option<Turn> {
        let word = &self.words[TURN];
        let from = word.load(Ordering::Acquire);
        let place = turn.sequence << 16 | turn.index as u64;
        if from & !PASSED_OVER != place || place & PLACE == PLACE {
            return None;
        }
        // On failure another thread has moved the turn first.
        let moved = word.compare_exchange(from, (from + 1) | mark, Ordering::AcqRel, Ordering::Relaxed);
        moved.ok().map(|_| Turn { index: turn.index + 1, ..turn })
    }

    fn release(&self, turn: Turn) -> Option<u16> {
        let activity = self.at(turn)?;
        let released = self.change(activity.into(), |call| {
            let newer = sequence_of(call) < turn.sequence;
            newer.then_some((turn.index as u64) << INDEX_SHIFT | turn.sequence << SEQUENCE_SHIFT | call & BUSY)
        });
        released.map(|_| activity)
    }

    // ---- the activity's side

    /// The word on which an activity waits for its turn.
    #[must_use]
    pub fn call_word(&self, activity: usize) -> &'a AtomicU64 {
        &self.activity(activity)[CALL]
    }

    /// Begins the call for which the activity was released, if it was released and may still begin. To be called by its
    /// thread.
    #[must_use]
    pub fn start(&self, activity: usize) -> bool {
        self.change(activity, |call| {
            (sequence_of(call) > 0 && call & (BUSY | YIELDED | CLOSED) == 0).then_some(call | BUSY)
        })
        .is_some()
    }

    /// Ends the call at `now`: counts it, releases the next activity in the queue and returns it. The caller must wake that
    /// activity. To be called by the activity's thread.
    #[must_use]
    pub fn finish(&self, activity: usize, now: MonoNs) -> Option<u16> {
        let words = self.activity(activity);
        let exec = DurNs(now.0.saturating_sub(words[BEGUN_AT].load(Ordering::Relaxed)) as i64);
        self.exec(activity).record(exec);
        self.count_activity(activity, ActivityCounter::Calls, 1);
        let budget = self.activity_counter(activity, ActivityCounter::Budget);
        if budget > 0 && exec.0 as u64 > budget {
            self.count_activity(activity, ActivityCounter::OverBudget, 1);
        }
        let call = self.change(activity, |call| Some(call & !BUSY | YIELDED))?;
        let turn = Turn { sequence: sequence_of(call), index: (call >> INDEX_SHIFT) as usize };
        if call & CLOSED == 0 {
            self.words[LAST_YIELD].store(now.0, Ordering::Relaxed);
        }
        self.pass_on(turn)
    }

    /// Sets the start time of the call. To be called by its thread.
    pub fn set_begun(&self, activity: usize, now: MonoNs) {
        self.activity(activity)[BEGUN_AT].store(now.0, Ordering::Relaxed);
    }

    /// Start time of the present or last call.
    #[must_use]
    pub fn begun(&self, activity: usize) -> MonoNs {
        MonoNs(self.activity(activity)[BEGUN_AT].load(Ordering::Relaxed))
    }

    /// Counts a wait for its turn in which the thread gave up its CPU. To be called by its thread.
    pub fn count_wait(&self, activity: usize) {
        add_own(&self.activity(activity)[WAITS], 1);
    }

    /// Counts a border at which a call was in progress. To be called by the dispatcher.
    pub fn count_held(&self, activity: usize) {
        add_own(&self.activity(activity)[HELD], 1);
    }

    /// Kernel accounts of a thread, less the part that the frame expects.
    #[must_use]
    pub fn beyond(&self, activity: usize, cost: &Baseline) -> Baseline {
        let word = |index: usize| self.activity(activity)[index].load(Ordering::Relaxed);
        Baseline {
            cpu: DurNs(cost.cpu.0.wrapping_sub(self.exec(activity).sum_ns())),
            faults: cost.faults,
            voluntary: cost.voluntary.wrapping_sub(word(WAITS)),
            involuntary: cost.involuntary.wrapping_sub(word(HELD)),
        }
    }

    /// Stores a baseline, as returned by [`beyond`](Self::beyond), and counts the page faults since the previous baseline.
    /// To be called by the thread.
    pub fn set_baseline(&self, activity: usize, baseline: &Baseline) {
        let words = &self.activity(activity)[BASELINE..];
        let before = self.baseline(activity);
        let then = &self.activity(activity)[CALLS_THEN];
        let calls = self.activity_counter(activity, ActivityCounter::Calls);
        if before.faults > 0 {
            self.count_activity(activity, ActivityCounter::PageFaults, baseline.faults.saturating_sub(before.faults));
            let each = (baseline.cpu.0.wrapping_sub(before.cpu.0)).max(0) as u64;
            let calls = calls.saturating_sub(then.load(Ordering::Relaxed));
            if let Some(each) = each.checked_div(calls) {
                self.activity(activity)[AROUND].store(each, Ordering::Relaxed);
            }
        }
        then.store(calls, Ordering::Relaxed);
        let values = [baseline.cpu.0 as u64, baseline.faults, baseline.voluntary, baseline.involuntary];
        words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// Estimated processor time that calls since the last baseline have cost in addition to their measured time. Ending a
    /// call and waiting for the next one takes time that no call accounts for. The rate is that of the calls before the
    /// baseline.
    #[must_use]
    pub fn around(&self, activity: usize) -> DurNs {
        let word = |index: usize| self.activity(activity)[index].load(Ordering::Relaxed);
        let calls = self.activity_counter(activity, ActivityCounter::Calls).saturating_sub(word(CALLS_THEN));
        DurNs(word(AROUND).saturating_mul(calls).min(i64::MAX as u64) as i64)
    }

    /// The last baseline stored.
    #[must_use]
    pub fn baseline(&self, activity: usize) -> Baseline {
        let word = |index: usize| self.activity(activity)[BASELINE + index].load(Ordering::Relaxed);
        Baseline { cpu: DurNs(word(0) as i64), faults: word(1), voluntary: word(2), involuntary: word(3) }
    }

    // ---- the dispatcher's side

    /// Whether an activity began in minor `sequence`, whether it yielded in it, and whether a call is in progress.
    #[must_use]
    pub fn progress(&self, activity: usize, sequence: u64) -> (bool, bool, bool) {
        let call = self.call_word(activity).load(Ordering::Acquire);
        let ours = sequence_of(call) == sequence;
        (ours && call & (BUSY | YIELDED) != 0, ours && call & YIELDED != 0, call & BUSY != 0)
    }

    /// Closes minor `sequence` for an activity, which may no longer begin in it. Returns whether a call is in progress.
    pub fn close(&self, activity: usize, sequence: u64) -> bool {
        let shut = sequence << SEQUENCE_SHIFT | CLOSED;
        let call = self.change(activity, |call| match sequence_of(call) {
            ours if ours == sequence => (call & CLOSED == 0).then_some(call | CLOSED),
            older if older < sequence => Some(call & BUSY | shut),
            _ => None,
        });
        call.unwrap_or_else(|| self.call_word(activity).load(Ordering::Acquire)) & BUSY != 0
    }

    /// Discards the call of a thread that has ended. No thread can begin until the next release. To be called by the
    /// dispatcher.
    pub fn forget(&self, activity: usize) {
        let _ = self.change(activity, |call| Some(call & !BUSY | CLOSED));
    }

    /// Time of the last yield in this minor; the start of the minor if no activity has yielded.
    #[must_use]
    pub fn last_yield(&self) -> MonoNs {
        MonoNs(self.words[LAST_YIELD].load(Ordering::Relaxed))
    }

    // ---- words

    /// Changes `CALL` by a rule. Returns the new value, or `None` if the rule leaves the word unchanged.
    fn change(&self, activity: usize, rule: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let word = self.call_word(activity);
        let mut call = word.load(Ordering::Acquire);
        loop {
            let next = rule(call)?;
            match word.compare_exchange(call, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(next),
                Err(found) => call = found,
            }
        }
    }
}
