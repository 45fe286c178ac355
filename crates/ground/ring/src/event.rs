//! A count that moves on, and whether anybody sleeps until it does: what barrier and condition wait for.

use crate::Words;
use crate::sync::{AtomicU64, Ordering, fence};

const COUNT: usize = 0;
/// On a cache line of its own: who begins to sleep must not disturb those who spin on the count.
const SLEEPERS: usize = 8;

/// The count goes up by this; its lowest bit says that the event is closed.
const STEP: u64 = 2;
const CLOSED: u64 = 1;

/// The view over an event's words. Sleeping itself is the caller's: a futex on [`word`](Self::word).
pub struct Event<'a> {
    words: &'a Words,
}

impl<'a> Event<'a> {
    /// Words that it needs.
    pub const WORDS: usize = 16;

    /// The event at the start of `words`, which are at least [`WORDS`](Self::WORDS) many.
    pub(crate) fn bare(words: &'a Words) -> Self {
        Self { words: &words[..Self::WORDS] }
    }

    /// Where it stands.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words[COUNT].load(Ordering::Acquire)
    }

    /// The word to sleep on: it changes with every step and when the event is closed.
    #[must_use]
    pub fn word(&self) -> &'a AtomicU64 {
        &self.words[COUNT]
    }

    /// Announces that the caller may sleep from now on, and gives the count at which it may begin to.
    ///
    /// From then on every [`advance`](Self::advance) beyond that count says that somebody must be woken.
    pub fn announce(&self) -> u64 {
        self.words[SLEEPERS].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.count()
    }

    /// Takes the announcement back. Who dies before it does costs the others a needless system call each time.
    pub fn withdraw(&self) {
        self.words[SLEEPERS].fetch_sub(1, Ordering::Relaxed);
    }

    /// Moves the count on; whether somebody may sleep and must be woken. What the caller wrote before is seen by
    /// whoever sees the new count.
    pub fn advance(&self) -> bool {
        self.words[COUNT].fetch_add(STEP, Ordering::AcqRel);
        self.anybody_sleeps()
    }

    /// As [`advance`](Self::advance), unless the event is closed: then `None`, and the count stays.
    pub(crate) fn advance_unless_closed(&self) -> Option<bool> {
        let next = |count| (count & CLOSED == 0).then_some(count + STEP);
        self.words[COUNT].fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok()?;
        Some(self.anybody_sleeps())
    }

    /// Closes the event for good, unless the count has moved on since it was `seen`: then `None`. Whether a thread may sleep and
    /// must be woken.
    pub(crate) fn close_unless_moved(&self, seen: u64) -> Option<bool> {
        let closed = |count| ((count ^ seen) & !CLOSED == 0).then_some(count | CLOSED);
        self.words[COUNT].fetch_update(Ordering::AcqRel, Ordering::Acquire, closed).ok()?;
        Some(self.anybody_sleeps())
    }

    /// Whether the count has moved on since it was `seen`.
    #[must_use]
    pub fn moved(&self, seen: u64) -> bool {
        (self.count() ^ seen) & !CLOSED != 0
    }

    /// Whether the event was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.count() & CLOSED != 0
    }

    fn anybody_sleeps(&self) -> bool {
        // Either the sleeper sees the new count, or its announcement is seen here.
        fence(Ordering::SeqCst);
        self.words[SLEEPERS].load(Ordering::Relaxed) > 0
    }
}
