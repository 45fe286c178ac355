//! The frame page: what a frame's dispatcher, its activities and everybody who watches share.
//!
//! Activity `k` of a minor releases `k + 1` itself ([`FramePage::finish`]); the dispatcher acts at minor borders only
//! ([`close`](FramePage::close), [`begin`](FramePage::begin)). Both meet in two kinds of words:
//!
//! - `TURN`: the number of the minor (the *sequence*) and how far its queue has come. Whoever moves it from `i` to
//!   `i + 1` releases the entry `i + 1`, and nobody else does.
//!   One bit of it says whether somebody was passed over: without that, whoever stands before it has yielded, and a
//!   border need not look at them one by one ([`FramePage::in_order`]).
//! - one `CALL` for each activity: the sequence for which it was released last, its place in that queue, and whether a
//!   call is in progress, was finished, or may no longer begin. A late release of an old minor cannot undo a newer one.
//!
//! | words | what | writer |
//! |---|---|---|
//! | 0..8 | header, generation, state | the dispatcher |
//! | 8.. | pulse, minor, turn, times, mode, queue lengths | the dispatcher; `TURN` everybody |
//! | 24.. | trigger, wanted mode, wanted end | who asks |
//! | 32.. | [`FrameCounter`]s | the dispatcher |
//! | 64.. | name, shape, two histograms | the dispatcher |
//! | then | activities: call, thread, counters, name, histogram of execution time | each its own |
//! | then | minors: length, histogram of slack | the dispatcher |
//! | then | names of modes, two queues, the trail of [`FrameEvent`]s | the dispatcher |

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::shared_hist::SharedHistogram;
use crate::sync::{AtomicU64, Ordering, add_own};
use crate::text::{self, Text};
use crate::trail::Trail;
use base::{DurNs, MonoNs};

/// Bytes of a name of a frame or activity.
pub const FRAME_NAME_BYTES: usize = 64;
/// Bytes of a mode's name.
const MODE_NAME_BYTES: usize = 32;
/// Events that the page keeps.
pub const FRAME_EVENTS: usize = if cfg!(loom) { 2 } else { 256 };
/// Words of an event.
const EVENT: usize = 7;

const STATE: usize = 5;
const PULSE: usize = 8;
const MINOR: usize = 9;
const TURN: usize = 10;
const BEGUN: usize = 11;
const DUE: usize = 12;
const END: usize = 13;
const MODE: usize = 14;
const LENGTHS: usize = 16;
const LAST_YIELD: usize = 18;
const CARE: usize = 19;
const TRIGGER: usize = 24;
const WANTED: usize = 25;
const CHANGES: usize = 26;
const COUNTERS: usize = 32;
const NAME: usize = 64;
const SHAPE: usize = 72;
const LATE: usize = 80;
const DISPATCH: usize = LATE + SharedHistogram::WORDS;
const ACTIVITIES: usize = DISPATCH + SharedHistogram::WORDS;

/// Words of an activity.
const ACTIVITY: usize = 32 + SharedHistogram::WORDS;
const CALL: usize = 0;
const PRESENT: usize = 1;
const TID: usize = 2;
const PID: usize = 3;
const BEGUN_AT: usize = 4;
const WAITS: usize = 5;
const HELD: usize = 6;
const BASELINE: usize = 8;
const ACTIVITY_COUNTERS: usize = 13;
const ACTIVITY_NAME: usize = 24;
const EXEC: usize = 32;

const MINOR_WORDS: usize = 8 + SharedHistogram::WORDS;

/// `TURN`: the place in the queue, whether somebody in front of it was passed over, and the sequence above.
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
    const MAX: usize = 4096;

    fn minors_at(&self) -> usize {
        ACTIVITIES + self.activities * ACTIVITY
    }

    fn modes_at(&self) -> usize {
        self.minors_at() + self.minors * MINOR_WORDS
    }

    fn queues_at(&self) -> usize {
        self.modes_at() + self.modes * (MODE_NAME_BYTES / 8)
    }

    fn trail_at(&self) -> usize {
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
    /// Page faults since its first call, as often as it looks ([`FramePage::set_baseline`]).
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
    fn words(&self) -> [u64; EVENT] {
        let place = u64::from(self.minor) | u64::from(self.activity) << 16 | u64::from(self.what) << 32;
        let place = place | u64::from(self.action) << 40 | u64::from(self.cause) << 48;
        let (elapsed, cpu) = (self.elapsed.0 as u64, self.cpu.0 as u64);
        [self.pulse, self.at.0, place, self.consecutive.into(), elapsed, cpu, self.detail]
    }

    fn of([pulse, at, place, consecutive, elapsed, cpu, detail]: [u64; EVENT]) -> Self {
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

/// A frame page in shared words.
///
/// Real-time: no operation blocks, allocates or makes a system call; those on `CALL` and `TURN` repeat only while
/// somebody else changes the same word.
#[derive(Clone, Copy)]
pub struct FramePage<'a> {
    words: &'a Words,
    shape: FrameShape,
}

impl<'a> FramePage<'a> {
    /// Makes the page of a frame that forms.
    ///
    /// # Errors
    /// `Short` if it does not fit.
    pub fn format(words: &'a Words, name: &str, shape: FrameShape) -> Result<Self, LayoutError> {
        let expected = shape.words();
        if words.len() < expected {
            return Err(LayoutError::Short { found: words.len(), expected });
        }
        words[HEADER..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        words[STATE].store(0, Ordering::Relaxed);
        text::write(&words[NAME..SHAPE], name);
        words[SHAPE].store(shape.queue as u64, Ordering::Relaxed);
        words[SHAPE + 1].store(shape.modes as u64, Ordering::Relaxed);
        let page = Self { words, shape };
        page.late().clear();
        page.dispatch().clear();
        (0..shape.activities).for_each(|activity| page.exec(activity).clear());
        (0..shape.minors).for_each(|minor| page.slack(minor).clear());
        Trail::<EVENT>::format(&words[shape.trail_at()..])?;
        header::write(words, Kind::Frame, shape.activities as u32, shape.minors as u32);
        Ok(page)
    }

    /// Finds the page that somebody made in `words`.
    ///
    /// # Errors
    /// What differs from a frame page.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let found = header::check(words, Kind::Frame)?;
        if words.len() < ACTIVITIES {
            return Err(LayoutError::Short { found: words.len(), expected: ACTIVITIES });
        }
        let word = |index: usize| words[index].load(Ordering::Relaxed).min(1 << 32) as usize;
        let shape = FrameShape {
            activities: found.0 as usize,
            minors: found.1 as usize,
            queue: word(SHAPE),
            modes: word(SHAPE + 1),
        };
        let most = shape.activities.max(shape.minors).max(shape.queue).max(shape.modes);
        if most > FrameShape::MAX || shape.activities == 0 || shape.minors == 0 {
            return Err(LayoutError::Shape { found, expected: "1 to 4096 activities and minors" });
        }
        if words.len() < shape.words() {
            return Err(LayoutError::Short { found: words.len(), expected: shape.words() });
        }
        Ok(Self { words, shape })
    }

    /// How large the frame is.
    #[must_use]
    pub fn shape(&self) -> FrameShape {
        self.shape
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> Text<FRAME_NAME_BYTES> {
        Text::read(&self.words[NAME..SHAPE])
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> FrameState {
        match self.words[STATE].load(Ordering::Acquire) {
            0 => FrameState::Forming,
            1 => FrameState::Running,
            _ => FrameState::Ended,
        }
    }

    /// Says what it is doing. For the dispatcher.
    pub fn set_state(&self, state: FrameState) {
        self.words[STATE].store(state as u64, Ordering::Release);
    }

    // ---- the running minor

    /// The word that changes at every border, for those who wait for one.
    #[must_use]
    pub fn pulse_word(&self) -> &'a AtomicU64 {
        &self.words[PULSE]
    }

    /// The running minor.
    #[must_use]
    pub fn border(&self) -> FrameBorder {
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        FrameBorder {
            pulse: self.words[PULSE].load(Ordering::Acquire),
            minor: word(MINOR) as u16,
            mode: word(MODE) as u16,
            begun: MonoNs(word(BEGUN)),
            due: MonoNs(word(DUE)),
            end: MonoNs(word(END)),
        }
    }

    /// Begins a minor with this queue; returns its turn. Nobody is released yet. For the dispatcher, which has
    /// [closed](Self::close) the minor before.
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
        // Not a store: whoever moves the turn at this moment must find it gone.
        self.words[TURN].swap(sequence << 16, Ordering::AcqRel);
        self.words[PULSE].store(border.pulse, Ordering::Release);
        Turn { sequence, index: 0 }
    }

    /// Says that the running minor goes on. For the dispatcher.
    pub fn extend(&self, border: &FrameBorder) {
        self.show(border);
        self.words[PULSE].store(border.pulse, Ordering::Release);
    }

    fn show(&self, border: &FrameBorder) {
        self.words[MINOR].store(border.minor.into(), Ordering::Relaxed);
        self.words[MODE].store(border.mode.into(), Ordering::Relaxed);
        self.words[BEGUN].store(border.begun.0, Ordering::Relaxed);
        self.words[DUE].store(border.due.0, Ordering::Relaxed);
        self.words[END].store(border.end.0, Ordering::Relaxed);
    }

    /// How far the minor has come.
    #[must_use]
    pub fn turn(&self) -> Turn {
        let turn = self.words[TURN].load(Ordering::Acquire);
        Turn { sequence: turn >> 16, index: (turn & PLACE) as usize }
    }

    /// Whether all who stand before the turn have yielded in this minor: nobody was passed over.
    #[must_use]
    pub fn in_order(&self) -> bool {
        self.words[TURN].load(Ordering::Acquire) & PASSED_OVER == 0
    }

    /// The activity at a place of a minor's queue.
    #[must_use]
    pub fn at(&self, turn: Turn) -> Option<u16> {
        let length = self.words[LENGTHS + (turn.sequence & 1) as usize].load(Ordering::Relaxed) as usize;
        let activity = self.queue(turn.sequence).get(turn.index)?.load(Ordering::Relaxed) as u16;
        (turn.index < length && usize::from(activity) < self.shape.activities).then_some(activity)
    }

    /// Releases who is first in the queue; wake the one that is returned.
    #[must_use]
    pub fn release_first(&self, turn: Turn) -> Option<u16> {
        self.release(turn)
    }

    /// Moves on from `turn`, whose activity has yielded, if nobody else has, and releases the next; wake the one that is
    /// returned.
    #[must_use]
    pub fn pass_on(&self, turn: Turn) -> Option<u16> {
        self.step(turn, 0).and_then(|next| self.release(next))
    }

    /// Moves on from `turn`, whose activity has not yielded, as [`pass_on`](Self::pass_on) does. Whether it was this call
    /// that moved, and who is to be woken.
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
        // Who fails here was overtaken by somebody who moved it.
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

    /// Begins the call for which the activity was released, if it was and may still. For its thread.
    #[must_use]
    pub fn start(&self, activity: usize) -> bool {
        self.change(activity, |call| {
            (sequence_of(call) > 0 && call & (BUSY | YIELDED | CLOSED) == 0).then_some(call | BUSY)
        })
        .is_some()
    }

    /// Ends the call at `now`: counts it, and releases the next in the queue, which is returned to be woken. For the
    /// activity's thread.
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

    /// Notes when the call began. For its thread.
    pub fn set_begun(&self, activity: usize, now: MonoNs) {
        self.activity(activity)[BEGUN_AT].store(now.0, Ordering::Relaxed);
    }

    /// When the call that is in progress, or was last, began.
    #[must_use]
    pub fn begun(&self, activity: usize) -> MonoNs {
        MonoNs(self.activity(activity)[BEGUN_AT].load(Ordering::Relaxed))
    }

    /// Counts a wait for its turn in which the thread gave its CPU up. For its thread.
    pub fn count_wait(&self, activity: usize) {
        add_own(&self.activity(activity)[WAITS], 1);
    }

    /// Counts a border at which a call was in progress. For the dispatcher.
    pub fn count_held(&self, activity: usize) {
        add_own(&self.activity(activity)[HELD], 1);
    }

    /// What a thread has cost the kernel, less what the frame knows of.
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

    /// Notes what the thread has cost so far, as [`beyond`](Self::beyond) says, and counts its page faults since the last
    /// time. For its thread.
    pub fn set_baseline(&self, activity: usize, baseline: &Baseline) {
        let words = &self.activity(activity)[BASELINE..];
        let before = words[1].load(Ordering::Relaxed);
        if before > 0 {
            self.count_activity(activity, ActivityCounter::PageFaults, baseline.faults.saturating_sub(before));
        }
        let values = [baseline.cpu.0 as u64, baseline.faults, baseline.voluntary, baseline.involuntary];
        words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// What it noted last.
    #[must_use]
    pub fn baseline(&self, activity: usize) -> Baseline {
        let word = |index: usize| self.activity(activity)[BASELINE + index].load(Ordering::Relaxed);
        Baseline { cpu: DurNs(word(0) as i64), faults: word(1), voluntary: word(2), involuntary: word(3) }
    }

    // ---- the dispatcher's side

    /// Whether an activity began and yielded in minor `sequence`, and whether a call is in progress.
    #[must_use]
    pub fn progress(&self, activity: usize, sequence: u64) -> (bool, bool, bool) {
        let call = self.call_word(activity).load(Ordering::Acquire);
        let ours = sequence_of(call) == sequence;
        (ours && call & (BUSY | YIELDED) != 0, ours && call & YIELDED != 0, call & BUSY != 0)
    }

    /// Ends minor `sequence` for an activity: it may no longer begin in it. Whether a call is in progress.
    pub fn close(&self, activity: usize, sequence: u64) -> bool {
        let shut = sequence << SEQUENCE_SHIFT | CLOSED;
        let call = self.change(activity, |call| match sequence_of(call) {
            ours if ours == sequence => (call & CLOSED == 0).then_some(call | CLOSED),
            older if older < sequence => Some(call & BUSY | shut),
            _ => None,
        });
        call.unwrap_or_else(|| self.call_word(activity).load(Ordering::Acquire)) & BUSY != 0
    }

    /// Forgets the call of a thread that is gone; nobody begins until the next release. For the dispatcher.
    pub fn forget(&self, activity: usize) {
        let _ = self.change(activity, |call| Some(call & !BUSY | CLOSED));
    }

    /// The last moment in this minor at which somebody yielded; its begin if nobody did.
    #[must_use]
    pub fn last_yield(&self) -> MonoNs {
        MonoNs(self.words[LAST_YIELD].load(Ordering::Relaxed))
    }

    /// How late minors began.
    #[must_use]
    pub fn late(&self) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.words[LATE..])
    }

    /// How long the dispatcher worked at borders.
    #[must_use]
    pub fn dispatch(&self) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.words[DISPATCH..])
    }

    /// How long an activity's calls took, on the clock.
    #[must_use]
    pub fn exec(&self, activity: usize) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.activity(activity)[EXEC..])
    }

    /// What was left of a minor when the last of it had yielded.
    #[must_use]
    pub fn slack(&self, minor: usize) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.minor(minor)[8..])
    }

    /// The length of a minor.
    #[must_use]
    pub fn length(&self, minor: usize) -> DurNs {
        DurNs(self.minor(minor)[0].load(Ordering::Relaxed) as i64)
    }

    /// Sets the length of a minor. For the dispatcher, once.
    pub fn set_length(&self, minor: usize, length: DurNs) {
        self.minor(minor)[0].store(length.0 as u64, Ordering::Relaxed);
    }

    /// Counts. For the dispatcher.
    pub fn count(&self, counter: FrameCounter, more: u64) {
        add_own(&self.words[COUNTERS + counter as usize], more);
    }

    /// A counter.
    #[must_use]
    pub fn counter(&self, counter: FrameCounter) -> u64 {
        self.words[COUNTERS + counter as usize].load(Ordering::Relaxed)
    }

    /// Counts for an activity. For the one who owns that counter.
    pub fn count_activity(&self, activity: usize, counter: ActivityCounter, more: u64) {
        add_own(&self.activity(activity)[ACTIVITY_COUNTERS + counter as usize], more);
    }

    /// Sets a counter of an activity. For the one who owns it.
    pub fn set_activity_counter(&self, activity: usize, counter: ActivityCounter, value: u64) {
        self.activity(activity)[ACTIVITY_COUNTERS + counter as usize].store(value, Ordering::Relaxed);
    }

    /// A counter of an activity.
    #[must_use]
    pub fn activity_counter(&self, activity: usize, counter: ActivityCounter) -> u64 {
        self.activity(activity)[ACTIVITY_COUNTERS + counter as usize].load(Ordering::Relaxed)
    }

    /// Leaves an event behind over the oldest one. For the dispatcher.
    pub fn tell(&self, event: &FrameEvent) {
        if let Ok(trail) = self.trail() {
            trail.push_overwrite(event.words());
        }
    }

    /// The next event for a reader.
    pub fn next_event(&self, cursor: &mut crate::Cursor) -> Option<FrameEvent> {
        self.trail().ok()?.next(cursor).map(FrameEvent::of)
    }

    /// A reader of all events that are still there.
    #[must_use]
    pub fn events(&self) -> crate::Cursor {
        self.trail().map(|trail| trail.from_oldest()).unwrap_or_default()
    }

    fn trail(&self) -> Result<Trail<'a, EVENT>, LayoutError> {
        Trail::attach(&self.words[self.shape.trail_at()..])
    }

    // ---- who is who

    /// The name of an activity.
    #[must_use]
    pub fn activity_name(&self, activity: usize) -> Text<FRAME_NAME_BYTES> {
        Text::read(&self.activity(activity)[ACTIVITY_NAME..EXEC])
    }

    /// Names an activity. For the dispatcher, once.
    pub fn set_activity_name(&self, activity: usize, name: &str) {
        text::write(&self.activity(activity)[ACTIVITY_NAME..EXEC], name);
    }

    /// The name of a mode.
    #[must_use]
    pub fn mode_name(&self, mode: usize) -> Option<Text<MODE_NAME_BYTES>> {
        (mode < self.shape.modes).then(|| Text::read(self.mode_words(mode)))
    }

    /// Names a mode. For the dispatcher, once.
    pub fn set_mode_name(&self, mode: usize, name: &str) {
        text::write(self.mode_words(mode), name);
    }

    /// Who stands behind an activity: presence, process, thread.
    #[must_use]
    pub fn who(&self, activity: usize) -> (Presence, u32, u32) {
        let words = self.activity(activity);
        let presence = match words[PRESENT].load(Ordering::Acquire) {
            0 => Presence::Never,
            1 => Presence::Joined,
            2 => Presence::Left,
            4 => Presence::Joining,
            _ => Presence::Died,
        };
        let word = |index: usize| words[index].load(Ordering::Relaxed) as u32;
        (presence, word(PID), word(TID))
    }

    /// Says who stands behind an activity. For the dispatcher's process.
    pub fn set_who(&self, activity: usize, presence: Presence, pid: u32, tid: u32) {
        let words = self.activity(activity);
        words[PID].store(pid.into(), Ordering::Relaxed);
        words[TID].store(tid.into(), Ordering::Relaxed);
        if presence == Presence::Joining {
            // Another thread: its accounts begin anew.
            words[BASELINE..BASELINE + 4].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        words[PRESENT].store(presence as u64, Ordering::Release);
        self.words[CHANGES].fetch_add(1, Ordering::AcqRel);
    }

    /// Says that a thread that was let in waits for its first turn now. For that thread.
    pub fn come(&self, activity: usize) {
        let word = &self.activity(activity)[PRESENT];
        let (from, to) = (Presence::Joining as u64, Presence::Joined as u64);
        // Who was thrown out meanwhile is told by its connection.
        if word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.words[CHANGES].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Changes whenever somebody comes or goes.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.words[CHANGES].load(Ordering::Acquire)
    }

    /// The word on which the caretaker sleeps while it is 0; who wants it to look sets it to 1.
    #[must_use]
    pub fn care_word(&self) -> &'a AtomicU64 {
        &self.words[CARE]
    }

    // ---- wishes

    /// The word that triggers count up, and wake.
    #[must_use]
    pub fn trigger_word(&self) -> &'a AtomicU64 {
        &self.words[TRIGGER]
    }

    /// Asks for a mode; entered at the next border of a major frame.
    pub fn want_mode(&self, mode: u16) {
        self.words[WANTED].store(u64::from(mode) + 1, Ordering::Release);
    }

    /// The mode that somebody asked for since the last call.
    pub fn wanted_mode(&self) -> Option<u16> {
        if self.words[WANTED].load(Ordering::Relaxed) == 0 {
            return None;
        }
        (self.words[WANTED].swap(0, Ordering::AcqRel) as u16).checked_sub(1)
    }

    // ---- words

    /// Changes `CALL` by a rule; the new value, `None` where the rule leaves it.
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

    fn activity(&self, activity: usize) -> &'a Words {
        // Indices come from this page's shape, which was checked; one that does not is the last activity's.
        let first = ACTIVITIES + activity.min(self.shape.activities - 1) * ACTIVITY;
        &self.words[first..first + ACTIVITY]
    }

    fn minor(&self, minor: usize) -> &'a Words {
        let first = self.shape.minors_at() + minor.min(self.shape.minors - 1) * MINOR_WORDS;
        &self.words[first..first + MINOR_WORDS]
    }

    fn mode_words(&self, mode: usize) -> &'a Words {
        let first = self.shape.modes_at() + mode.min(self.shape.modes.saturating_sub(1)) * (MODE_NAME_BYTES / 8);
        &self.words[first..first + MODE_NAME_BYTES / 8]
    }

    fn queue(&self, sequence: u64) -> &'a Words {
        let first = self.shape.queues_at() + (sequence & 1) as usize * self.shape.queue;
        &self.words[first..first + self.shape.queue]
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const SHAPE: FrameShape = FrameShape { activities: 3, minors: 2, queue: 3, modes: 1 };

    fn words() -> Vec<AtomicU64> {
        (0..SHAPE.words()).map(|_| AtomicU64::new(0)).collect()
    }

    fn begin(page: &FramePage<'_>, queue: &[u16]) -> Turn {
        page.begin(&FrameBorder::default(), queue.iter().copied())
    }

    #[test]
    fn each_activity_releases_the_next_in_the_queue() {
        let words = words();
        let page = FramePage::format(&words, "fast", SHAPE).unwrap();
        let turn = begin(&page, &[2, 0]);
        assert!(!page.start(2), "not released yet");
        assert_eq!(page.release_first(turn), Some(2));
        assert!(page.start(2) && !page.start(2) && !page.start(0));
        assert_eq!(page.progress(2, turn.sequence), (true, false, true));
        assert_eq!(page.finish(2, MonoNs(5)), Some(0));
        assert!(page.start(0));
        assert_eq!((page.finish(0, MonoNs(6)), page.turn().index), (None, 2));
        assert_eq!(
            (page.progress(2, turn.sequence), page.progress(1, turn.sequence)),
            ((true, true, false), (false, false, false))
        );
        assert_eq!((page.last_yield(), page.activity_counter(2, ActivityCounter::Calls)), (MonoNs(6), 1));
        let seen = FramePage::attach(&words).unwrap();
        assert_eq!((seen.name().as_str(), seen.shape()), ("fast", SHAPE));
    }

    #[test]
    fn who_did_not_begin_in_its_minor_does_not_begin_after_it() {
        let words = words();
        let page = FramePage::format(&words, "fast", SHAPE).unwrap();
        let first = begin(&page, &[0, 1]);
        assert_eq!(page.release_first(first), Some(0));
        assert!(page.start(0));
        // The border comes while 0 works; 1 was never released.
        assert!(page.close(0, first.sequence) && !page.close(1, first.sequence));
        let second = begin(&page, &[1, 0]);
        // 0 yields late: it neither moves the new queue nor releases 1 for the old one.
        assert_eq!(page.finish(0, MonoNs(1)), None);
        assert!(!page.start(1));
        assert_eq!(page.progress(0, second.sequence), (false, false, false));
        assert_eq!(page.release_first(second), Some(1));
        assert!(page.start(1));
    }

    #[test]
    fn a_call_that_goes_on_is_finished_in_the_turn_that_reaches_it() {
        let words = words();
        let page = FramePage::format(&words, "fast", SHAPE).unwrap();
        let first = begin(&page, &[0]);
        assert_eq!(page.release_first(first), Some(0));
        assert!(page.start(0) && page.close(0, first.sequence));
        let second = begin(&page, &[1, 0, 2]);
        assert_eq!(page.release_first(second), Some(1));
        assert!(page.start(1));
        assert_eq!(page.finish(1, MonoNs(2)), Some(0));
        assert!(!page.start(0), "its call is still in progress");
        assert_eq!(page.progress(0, second.sequence), (true, false, true));
        assert_eq!(page.finish(0, MonoNs(3)), Some(2));
        assert_eq!(page.progress(0, second.sequence), (true, true, false));
    }

    #[test]
    fn a_blocked_activity_is_passed_over_once_and_may_still_finish() {
        let words = words();
        let page = FramePage::format(&words, "fast", SHAPE).unwrap();
        let turn = begin(&page, &[0, 1, 2]);
        assert!(page.release_first(turn) == Some(0) && page.start(0));
        assert!(page.in_order());
        assert_eq!((page.pass_over(turn), page.pass_over(turn)), ((true, Some(1)), (false, None)));
        assert!(!page.in_order(), "who stands before the turn is to be looked at");
        assert_eq!(page.finish(0, MonoNs(1)), None, "its successor was released already");
        assert!(page.start(1));
        assert_eq!(page.finish(1, MonoNs(1)), Some(2));
        assert!(!page.in_order());
        begin(&page, &[0]);
        assert!(page.in_order());
    }

    #[test]
    fn who_was_let_in_is_there_once_it_waits_for_its_turn() {
        let words = words();
        let page = FramePage::format(&words, "fast", SHAPE).unwrap();
        page.set_who(1, Presence::Joining, 7, 8);
        let before = page.changes();
        page.come(1);
        assert_eq!((page.who(1), page.changes()), ((Presence::Joined, 7, 8), before + 1));
        page.set_who(1, Presence::Died, 0, 0);
        page.come(1);
        assert_eq!(page.who(1).0, Presence::Died, "who is gone cannot come");
    }

    #[test]
    fn accounts_leave_out_what_the_frame_knows() {
        let words = words();
        let page = FramePage::format(&words, "fast", SHAPE).unwrap();
        let cost = |cpu, faults, voluntary, involuntary| Baseline { cpu: DurNs(cpu), faults, voluntary, involuntary };
        page.set_baseline(0, &page.beyond(0, &cost(100, 50, 10, 2)));
        // A call of 30 ns after a wait, then one that is in progress at a border.
        page.count_wait(0);
        page.set_begun(0, MonoNs(1000));
        let _ = page.finish(0, MonoNs(1030));
        page.count_held(0);
        let (was, is) = (page.baseline(0), page.beyond(0, &cost(135, 51, 11, 3)));
        assert_eq!((is.cpu.0 - was.cpu.0, is.voluntary, is.involuntary), (5, was.voluntary, was.involuntary));
        page.set_baseline(0, &is);
        assert_eq!(page.activity_counter(0, ActivityCounter::PageFaults), 1);
    }

    #[test]
    fn events_and_wishes_are_read_as_they_were_written() {
        let words = words();
        let page = FramePage::format(&words, "fast", SHAPE).unwrap();
        let event = FrameEvent {
            pulse: 7,
            minor: 1,
            activity: 2,
            what: 3,
            action: 4,
            cause: 5,
            consecutive: 6,
            elapsed: DurNs(-1),
            ..FrameEvent::default()
        };
        page.tell(&event);
        assert_eq!(page.next_event(&mut page.events()), Some(event));
        page.want_mode(0);
        assert_eq!((page.wanted_mode(), page.wanted_mode()), (Some(0), None));
    }

    #[test]
    fn no_content_of_the_memory_panics() {
        let words = words();
        let mut seed = 1u64;
        for round in 0..200 {
            FramePage::format(&words, "fast", SHAPE).unwrap();
            for _ in 0..50 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                words[(seed >> 20) as usize % if round % 2 == 0 { 200 } else { words.len() }]
                    .store(seed, Ordering::Relaxed);
            }
            let Ok(page) = FramePage::attach(&words) else { continue };
            let turn = page.turn();
            let _ = (page.at(turn), page.release_first(turn), page.pass_on(turn), page.finish(9999, MonoNs(0)));
            let _ = (page.pass_over(page.turn()), page.beyond(1, &Baseline::default()), page.come(2));
            let _ = (page.close(2, turn.sequence), page.start(1), page.who(0), page.wanted_mode(), page.mode_name(77));
            begin(&page, &[0, 1, 2]);
            let _ = page.next_event(&mut page.events());
        }
    }
}
