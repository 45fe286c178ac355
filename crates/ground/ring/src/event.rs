//! An event: a count that advances, with the number of threads that sleep until it does. Barrier and condition are built on
//! it.

use crate::Words;
use crate::sync::{AtomicU64, Ordering, fence};

const COUNT: usize = 0;
/// On its own cache line: a thread that goes to sleep must not disturb the threads that spin on the count.
const SLEEPERS: usize = 8;

/// Step of the count. Its lowest bit means that the event is closed.
const STEP: u64 = 2;
const CLOSED: u64 = 1;

/// An event in shared words. The caller does the sleeping, with a futex on [`word`](Self::word).
pub struct Event<'a> {
    words: &'a Words,
}

impl<'a> Event<'a> {
    /// Size of an event, in words.
    pub const WORDS: usize = 16;

    /// The event at the start of `words`, which must have at least [`WORDS`](Self::WORDS) words.
    pub(crate) fn bare(words: &'a Words) -> Self {
        Self { words: &words[..Self::WORDS] }
    }

    /// The present count.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words[COUNT].load(Ordering::Acquire)
    }

    /// The word to sleep on. It changes with every step and when the event is closed.
    #[must_use]
    pub fn word(&self) -> &'a AtomicU64 {
        &self.words[COUNT]
    }

    /// Registers the caller as a sleeper and returns the count on which it may sleep.
    ///
    /// After this call, every [`advance`](Self::advance) beyond that count reports that a thread must be woken.
    pub fn announce(&self) -> u64 {
        self.words[SLEEPERS].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.count()
    }

    /// Removes the registration. If a thread dies before this call, every later advance costs a needless system call.
    pub fn withdraw(&self) {
        self.words[SLEEPERS].fetch_sub(1, Ordering::Relaxed);
    }

    /// Advances the count. Returns whether a thread may be asleep and must be woken. A thread that sees the new count also
    /// sees all earlier writes of the caller.
    pub fn advance(&self) -> bool {
        self.words[COUNT].fetch_add(STEP, Ordering::AcqRel);
        self.anybody_sleeps()
    }

    /// As [`advance`](Self::advance), but returns `None` and leaves the count if the event is closed.
    pub(crate) fn advance_unless_closed(&self) -> Option<bool> {
        let next = |count| (count & CLOSED == 0).then_some(count + STEP);
        self.words[COUNT].fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(self.anybody_sleeps())
    }

    /// Closes the event permanently and returns whether a thread may be asleep and must be woken. Returns `None` and does
    /// nothing if the count has advanced since it was `seen`.
    pub(crate) fn close_unless_moved(&self, seen: u64) -> Option<bool> {
        let closed = |count| ((count ^ seen) & !CLOSED == 0).then_some(count | CLOSED);
        self.words[COUNT].fetch_update(Ordering::AcqRel, Ordering::Acquire, closed).ok()?;
        Some(self.anybody_sleeps())
    }

    /// Whether the count has advanced since it was `seen`.
    #[must_use]
    pub fn moved(&self, seen: u64) -> bool {
        (self.count() ^ seen) & !CLOSED != 0
    }

    /// Whether the event is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.count() & CLOSED != 0
    }

    fn anybody_sleeps(&self) -> bool {
        // Either the sleeper sees the new count, or this load sees its registration.
        fence(Ordering::SeqCst);
        self.words[SLEEPERS].load(Ordering::Relaxed) > 0
    }
}
