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
        // A member that stops waiting at this moment has either broken the barrier before, for this one too, or finds all met.
        event.advance_unless_closed().map_or(Meeting::Broken, |wake| Meeting::Last { wake })
    }

    /// Breaks the barrier for good, unless all have met since [`Meeting::Early`] returned `seen`: then `None`. Whether a member
    /// sleeps and must be woken.
    ///
    /// So a meeting has one outcome for all its members, and a barrier at which all met can be used again.
    #[must_use]
    pub fn break_up(&self, seen: u64) -> Option<bool> {
        self.event().close_unless_moved(seen)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use std::vec::Vec;

    #[test]
    fn a_member_that_stops_waiting_after_all_have_met_does_not_break_the_barrier() {
        let words: Vec<AtomicU64> = (0..Barrier::WORDS).map(|_| AtomicU64::new(0)).collect();
        let barrier = Barrier::format(&words, 2).unwrap();
        let Meeting::Early(seen) = barrier.arrive() else { panic!("the other member is missing") };
        assert!(matches!(barrier.arrive(), Meeting::Last { .. }));
        assert_eq!(barrier.break_up(seen), None, "all have met");
        let Meeting::Early(seen) = barrier.arrive() else { panic!("the barrier is usable") };
        assert!(barrier.break_up(seen).is_some());
        assert_eq!(barrier.arrive(), Meeting::Broken);
    }
}
