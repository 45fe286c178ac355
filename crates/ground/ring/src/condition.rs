//! A condition variable. A mutex, which is not part of it, protects the state that the condition is about.

use crate::Words;
use crate::event::Event;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::Ordering;

/// A condition variable in shared words.
pub struct Condition<'a> {
    words: &'a Words,
}

impl<'a> Condition<'a> {
    /// Size of a condition, in words.
    pub const WORDS: usize = HEADER + Event::WORDS;

    /// Formats `words` as a condition.
    ///
    /// # Errors
    /// `Short` if it does not fit.
    pub fn format(words: &'a Words) -> Result<Self, LayoutError> {
        if words.len() < Self::WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: Self::WORDS });
        }
        words[HEADER..Self::WORDS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        header::write(words, Kind::Condition, 0, 0);
        Ok(Self { words })
    }

    /// Attaches to the condition in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a condition.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        header::check(words, Kind::Condition)?;
        if words.len() < Self::WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: Self::WORDS });
        }
        Ok(Self { words })
    }

    /// The event that waiting threads wait for.
    #[must_use]
    pub fn event(&self) -> Event<'a> {
        Event::bare(&self.words[HEADER..])
    }
}
