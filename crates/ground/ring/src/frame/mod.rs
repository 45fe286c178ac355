//! The frame page: memory that a frame's dispatcher, its activities and its observers share.
//!
//! When activity `k` of a minor finishes, it releases activity `k + 1` itself ([`FramePage::finish`]). The dispatcher acts
//! only at borders between minors ([`close`](FramePage::close), [`begin`](FramePage::begin)). The two meet in two kinds of
//! words:
//!
//! - `TURN`: the number of the minor (its *sequence*) and the present place in its queue. The thread that moves it from `i`
//!   to `i + 1` releases entry `i + 1`; no other thread does. One bit records whether an activity of this minor was passed
//!   over. If the bit is clear, all activities before the present place have yielded, and the dispatcher need not check each
//!   one at the border ([`FramePage::in_order`]).
//! - `CALL`, one for each activity: the sequence of its last release, its place in that queue, and its state (call in
//!   progress, finished, or no longer allowed to begin). A late release of an old minor cannot undo a newer one.
//!
//! | words | what | writer |
//! |---|---|---|
//! | 0..8 | header, state | the dispatcher |
//! | 8.. | pulse, turn, queue lengths, last yield, caretaker's word | the frame's process; turn and last yield also the activities |
//! | 24.. | trigger, requested mode, count of changes | clients; the count the dispatcher's process and the activities |
//! | 32.. | [`FrameCounter`]s | the dispatcher |
//! | 56.. | the running minor: pulse, minor, mode, times | the dispatcher |
//! | 64.. | name, shape, two histograms | the dispatcher |
//! | then | activities: call, thread, counters, name, histogram of execution time | each activity its own entry, and the dispatcher |
//! | then | minors: length, histogram of slack | the dispatcher |
//! | then | names of modes, two queues, the trail of [`FrameEvent`]s | the dispatcher |

mod parts;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod turns;

pub use parts::{
    ActivityCounter, Baseline, FrameBorder, FrameCounter, FrameEvent, FrameShape, FrameState, Presence, Turn,
};

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::shared_hist::SharedHistogram;
use crate::sync::{AtomicU64, Ordering, add_own};
use crate::text::{self, Text};
use crate::trail::Trail;
use base::{DurNs, ResultDeadline, Tally, Worth};
use parts::EVENT;

/// Size of the name of a frame or activity, in bytes.
pub const FRAME_NAME_BYTES: usize = 64;
/// Size of a mode's name, in bytes.
const MODE_NAME_BYTES: usize = 32;
/// Number of events that the page keeps.
pub const FRAME_EVENTS: usize = if cfg!(loom) { 2 } else { 256 };

const STATE: usize = 5;
const PULSE: usize = 8;
const TURN: usize = 10;
const LENGTHS: usize = 16;
const LAST_YIELD: usize = 18;
const CARE: usize = 19;
const TRIGGER: usize = 24;
const WANTED: usize = 25;
const CHANGES: usize = 26;
const COUNTERS: usize = 32;
/// The running minor, as one `Latest` cell.
const BORDER: usize = 56;
const NAME: usize = 64;
const SHAPE: usize = 72;
const LATE: usize = 80;
const DISPATCH: usize = LATE + SharedHistogram::WORDS;
const ACTIVITIES: usize = DISPATCH + SharedHistogram::WORDS;

/// Size of an activity's entry, in words.
const ACTIVITY: usize = 40 + SharedHistogram::WORDS;
const CALL: usize = 0;
const PRESENT: usize = 1;
const TID: usize = 2;
const PID: usize = 3;
const BEGUN_AT: usize = 4;
const WAITS: usize = 5;
const HELD: usize = 6;
const CALLS_THEN: usize = 7;
const BASELINE: usize = 8;
const AROUND: usize = 12;
const ACTIVITY_COUNTERS: usize = 13;
const ACTIVITY_NAME: usize = 24;
/// The result deadline of an activity: two words.
const DEADLINE: usize = 32;
/// Three words: results judged by the deadline, results later than it, total value of all results.
const VALUE: usize = 34;
const EXEC: usize = 40;

const MINOR_WORDS: usize = 8 + SharedHistogram::WORDS;

/// A frame page in shared words.
///
/// Real-time: no operation blocks, allocates or makes a system call. Operations on `CALL` and `TURN` retry only if another
/// thread has changed the same word.
#[derive(Clone, Copy)]
pub struct FramePage<'a> {
    words: &'a Words,
    shape: FrameShape,
}

impl<'a> FramePage<'a> {
    /// Formats `words` as the page of a frame that is forming.
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

    /// Attaches to the frame page in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a frame page.
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

    /// Size of the frame.
    #[must_use]
    pub fn shape(&self) -> FrameShape {
        self.shape
    }

    /// Name of the frame.
    #[must_use]
    pub fn name(&self) -> Text<FRAME_NAME_BYTES> {
        Text::read(&self.words[NAME..SHAPE])
    }

    /// State of the frame.
    #[must_use]
    pub fn state(&self) -> FrameState {
        match self.words[STATE].load(Ordering::Acquire) {
            0 => FrameState::Forming,
            1 => FrameState::Running,
            _ => FrameState::Ended,
        }
    }

    /// Sets the state of the frame. To be called by the dispatcher.
    pub fn set_state(&self, state: FrameState) {
        self.words[STATE].store(state as u64, Ordering::Release);
    }

    // ---- figures

    /// Lateness of the start of minors.
    #[must_use]
    pub fn late(&self) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.words[LATE..])
    }

    /// Time that the dispatcher worked at borders.
    #[must_use]
    pub fn dispatch(&self) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.words[DISPATCH..])
    }

    /// Wall-clock time of an activity's calls.
    #[must_use]
    pub fn exec(&self, activity: usize) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.activity(activity)[EXEC..])
    }

    /// Time left in a minor when its last activity had yielded.
    #[must_use]
    pub fn slack(&self, minor: usize) -> SharedHistogram<'a> {
        SharedHistogram::bare(&self.minor(minor)[8..])
    }

    /// Length of a minor.
    #[must_use]
    pub fn length(&self, minor: usize) -> DurNs {
        DurNs(self.minor(minor)[0].load(Ordering::Relaxed) as i64)
    }

    /// Sets the length of a minor. To be called by the dispatcher, once.
    pub fn set_length(&self, minor: usize, length: DurNs) {
        self.minor(minor)[0].store(length.0 as u64, Ordering::Relaxed);
    }

    /// Adds to a counter. To be called by the dispatcher.
    pub fn count(&self, counter: FrameCounter, more: u64) {
        add_own(&self.words[COUNTERS + counter as usize], more);
    }

    /// Value of a counter.
    #[must_use]
    pub fn counter(&self, counter: FrameCounter) -> u64 {
        self.words[COUNTERS + counter as usize].load(Ordering::Relaxed)
    }

    /// Adds to a counter of an activity. To be called by the thread that owns the counter.
    pub fn count_activity(&self, activity: usize, counter: ActivityCounter, more: u64) {
        add_own(&self.activity(activity)[ACTIVITY_COUNTERS + counter as usize], more);
    }

    /// Sets a counter of an activity. To be called by the thread that owns the counter.
    pub fn set_activity_counter(&self, activity: usize, counter: ActivityCounter, value: u64) {
        self.activity(activity)[ACTIVITY_COUNTERS + counter as usize].store(value, Ordering::Relaxed);
    }

    /// Value of a counter of an activity.
    #[must_use]
    pub fn activity_counter(&self, activity: usize, counter: ActivityCounter) -> u64 {
        self.activity(activity)[ACTIVITY_COUNTERS + counter as usize].load(Ordering::Relaxed)
    }

    /// Sets the result deadline of an activity, counted from the due time of its minor. To be called by the dispatcher,
    /// once.
    pub fn set_deadline(&self, activity: usize, deadline: Option<ResultDeadline>) {
        let words = deadline.map_or([0, 0], |deadline| deadline.to_words());
        let to = &self.activity(activity)[DEADLINE..];
        to.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// Result deadline of an activity; `None` if none is set.
    #[must_use]
    pub fn deadline(&self, activity: usize) -> Option<ResultDeadline> {
        let words = self.activity(activity);
        ResultDeadline::of_words([0, 1].map(|at| words[DEADLINE + at].load(Ordering::Relaxed)))
    }

    /// Judges a result that was ready `took` after the due time of its minor. Returns its value, or `None` if the activity
    /// has no deadline. To be called by the activity's thread.
    pub fn weigh(&self, activity: usize, took: DurNs) -> Option<Worth> {
        let deadline = self.deadline(activity)?;
        let worth = deadline.worth(took);
        let words = &self.activity(activity)[VALUE..];
        for (word, more) in words.iter().zip([1, u64::from(took > deadline.at), worth.0.into()]) {
            add_own(word, more);
        }
        Some(worth)
    }

    /// Total value of an activity's results. A result that is missing, because the activity was absent or got no turn, has
    /// the value zero. `None` without a deadline.
    #[must_use]
    pub fn tally(&self, activity: usize) -> Option<Tally> {
        self.deadline(activity)?;
        let words = self.activity(activity);
        let [weighed, late, worth] = [0, 1, 2].map(|at| words[VALUE + at].load(Ordering::Relaxed));
        let missing = self.missing(activity);
        Some(Tally { due: weighed.saturating_add(missing), late, worth })
    }

    /// Number of hard deadlines that an activity has missed.
    #[must_use]
    pub fn hard_misses(&self, activity: usize) -> u64 {
        let hard = self.deadline(activity).is_some_and(|deadline| deadline.late == base::Lateness::Hard);
        let late = self.activity(activity)[VALUE + 1].load(Ordering::Relaxed);
        if hard { late.saturating_add(self.missing(activity)) } else { 0 }
    }

    /// Number of an activity's missing results.
    fn missing(&self, activity: usize) -> u64 {
        let count = |counter| self.activity_counter(activity, counter);
        count(ActivityCounter::Underruns).saturating_add(count(ActivityCounter::Absences))
    }

    /// Appends an event, overwriting the oldest one. To be called by the dispatcher.
    pub fn tell(&self, event: &FrameEvent) {
        if let Ok(trail) = self.trail() {
            trail.push_overwrite(event.words());
        }
    }

    /// The next event for `cursor`.
    pub fn next_event(&self, cursor: &mut crate::Cursor) -> Option<FrameEvent> {
        self.trail().ok()?.next(cursor).map(FrameEvent::of)
    }

    /// A cursor at the oldest event that is still kept.
    #[must_use]
    pub fn events(&self) -> crate::Cursor {
        self.trail().map(|trail| trail.from_oldest()).unwrap_or_default()
    }

    fn trail(&self) -> Result<Trail<'a, EVENT>, LayoutError> {
        Trail::attach(&self.words[self.shape.trail_at()..])
    }

    // ---- names and presence

    /// Name of an activity.
    #[must_use]
    pub fn activity_name(&self, activity: usize) -> Text<FRAME_NAME_BYTES> {
        Text::read(&self.activity(activity)[ACTIVITY_NAME..DEADLINE])
    }

    /// Sets the name of an activity. To be called by the dispatcher, once.
    pub fn set_activity_name(&self, activity: usize, name: &str) {
        text::write(&self.activity(activity)[ACTIVITY_NAME..DEADLINE], name);
    }

    /// Name of a mode.
    #[must_use]
    pub fn mode_name(&self, mode: usize) -> Option<Text<MODE_NAME_BYTES>> {
        (mode < self.shape.modes).then(|| Text::read(self.mode_words(mode)))
    }

    /// Sets the name of a mode. To be called by the dispatcher, once.
    pub fn set_mode_name(&self, mode: usize, name: &str) {
        text::write(self.mode_words(mode), name);
    }

    /// Presence of an activity's thread, with its process and thread id.
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

    /// Sets the presence, process and thread id of an activity. To be called by the dispatcher's process.
    pub fn set_who(&self, activity: usize, presence: Presence, pid: u32, tid: u32) {
        let words = self.activity(activity);
        words[PID].store(pid.into(), Ordering::Relaxed);
        words[TID].store(tid.into(), Ordering::Relaxed);
        if presence == Presence::Joining {
            // A new thread: its accounts start at zero.
            words[CALLS_THEN..=AROUND].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        words[PRESENT].store(presence as u64, Ordering::Release);
        self.words[CHANGES].fetch_add(1, Ordering::AcqRel);
    }

    /// Marks a thread that was admitted as waiting for its first turn. To be called by that thread.
    pub fn come(&self, activity: usize) {
        let word = &self.activity(activity)[PRESENT];
        let (from, to) = (Presence::Joining as u64, Presence::Joined as u64);
        // A thread that was removed meanwhile learns that from its connection.
        if word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.words[CHANGES].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Count that changes whenever an activity joins, arrives or leaves.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.words[CHANGES].load(Ordering::Acquire)
    }

    /// The word on which the caretaker sleeps while it is 0. A thread that needs the caretaker sets it to 1.
    #[must_use]
    pub fn care_word(&self) -> &'a AtomicU64 {
        &self.words[CARE]
    }

    // ---- requests

    /// The word that triggers increment and wake.
    #[must_use]
    pub fn trigger_word(&self) -> &'a AtomicU64 {
        &self.words[TRIGGER]
    }

    /// Requests a mode. The frame enters it at the next border of a major frame.
    pub fn want_mode(&self, mode: u16) {
        self.words[WANTED].store(u64::from(mode) + 1, Ordering::Release);
    }

    /// The mode that was requested since the last call.
    pub fn wanted_mode(&self) -> Option<u16> {
        if self.words[WANTED].load(Ordering::Relaxed) == 0 {
            return None;
        }
        (self.words[WANTED].swap(0, Ordering::AcqRel) as u16).checked_sub(1)
    }

    // ---- words

    fn activity(&self, activity: usize) -> &'a Words {
        // Indices come from this page's shape, which was checked. An index out of range selects the last activity.
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
