//! A barrier: each member of a team waits until all members have arrived.

use crate::Words;
use crate::event::Event;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::Ordering;

// The two words are on separate cache lines: an arriving thread must not disturb the threads that spin.
const ARRIVED: usize = HEADER;
const EVENT: usize = HEADER + 8;

/// A barrier in shared words. The caller does the waiting; [`Meeting::Early`] gives the count to wait for.
pub struct Barrier<'a> {
    words: &'a Words,
    threads: u64,
}

/// Result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Other members have not arrived yet. The caller waits until the event has advanced from this count or is closed.
    Early(u64),
    /// The caller was the last to arrive.
    Last {
        /// A thread may be asleep on the event's word and must be woken.
        wake: bool,
    },
    /// The barrier is broken: a member stopped waiting.
    Broken,
}

impl<'a> Barrier<'a> {
    /// Size of a barrier, in words.
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

    /// Attaches to the barrier in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a barrier.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let (threads, _) = header::check(words, Kind::Barrier)?;
        if words.len() < Self::WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: Self::WORDS });
        }
        Ok(Self { words, threads: threads.into() })
    }

    /// The event that the members wait for.
    #[must_use]
    pub fn event(&self) -> Event<'a> {
        Event::bare(&self.words[EVENT..])
    }

    /// Counts the caller as arrived.
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
        // A member that times out now has either already broken the barrier, this meeting included, or finds that all
        // members arrived.
        event.advance_unless_closed().map_or(Meeting::Broken, |wake| Meeting::Last { wake })
    }

    /// Breaks the barrier permanently and returns whether a sleeping member must be woken. Returns `None` and changes
    /// nothing if all members have arrived since [`Meeting::Early`] returned `seen`.
    ///
    /// So a meeting has the same outcome for all its members, and a barrier at which all members arrived can be used again.
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
    fn a_member_that_times_out_after_all_have_arrived_does_not_break_the_barrier() {
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
