//! Where a team meets: nobody goes on before all have come.

use crate::Words;
use crate::event::Event;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::Ordering;

// A cache line each: those who arrive must not disturb those who spin.
const ARRIVED: usize = HEADER;
const EVENT: usize = HEADER + 8;

/// The view over a barrier's words. How its members wait is theirs: [`Meeting::Early`] says for what.
pub struct Barrier<'a> {
    words: &'a Words,
    threads: u64,
}

/// What came of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Others are still to come: wait until the event has moved on from this count.
    Early(u64),
    /// All are there.
    Last {
        /// Somebody may sleep on the event's word and must be woken.
        wake: bool,
    },
    /// The barrier is broken: somebody gave up waiting.
    Broken,
}

impl<'a> Barrier<'a> {
    /// Words that it needs.
    pub const WORDS: usize = EVENT + Event::WORDS;

    /// Makes a barrier for this many threads in `words`.
    ///
    /// # Errors
    /// `Short` if it does not fit.
    pub fn format(words: &'a Words, threads: u32) -> Result<Self, LayoutError> {
        if words.len() < Self::WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: Self::WORDS });
        }
        words[HEADER..Self::WORDS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        header::write(words, Kind::Barrier, threads, 0);
        Ok(Self { words, threads: threads.into() })
    }

    /// Finds the barrier that somebody made in `words`.
    ///
    /// # Errors
    /// What differs from a barrier.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let (threads, _) = header::check(words, Kind::Barrier)?;
        if words.len() < Self::WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: Self::WORDS });
        }
        Ok(Self { words, threads: threads.into() })
    }

    /// What its members wait for.
    #[must_use]
    pub fn event(&self) -> Event<'a> {
        Event::bare(&self.words[EVENT..])
    }

    /// One more has come.
    pub fn arrive(&self) -> Meeting {
        let event = self.event();
        let seen = event.count();
        if event.is_closed() {
            return Meeting::Broken;
        }
        if self.words[ARRIVED].fetch_add(1, Ordering::AcqRel) + 1 < self.threads {
            return Meeting::Early(seen);
        }
        self.words[ARRIVED].store(0, Ordering::Relaxed);
        Meeting::Last { wake: event.advance() }
    }

    /// Ends the barrier for good: all who wait, and all who come later, find it broken. Whether somebody sleeps.
    pub fn break_up(&self) -> bool {
        self.event().close()
    }
}
