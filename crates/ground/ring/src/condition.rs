//! A condition: who waits is let go on by who signals. What it is about is protected by a mutex beside it.

use crate::Words;
use crate::event::Event;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::Ordering;

/// The view over a condition's words.
pub struct Condition<'a> {
    words: &'a Words,
}

impl<'a> Condition<'a> {
    /// Words that it needs.
    pub const WORDS: usize = HEADER + Event::WORDS;

    /// Makes a condition in `words`.
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

    /// Finds the condition that somebody made in `words`.
    ///
    /// # Errors
    /// What differs from a condition.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        header::check(words, Kind::Condition)?;
        if words.len() < Self::WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: Self::WORDS });
        }
        Ok(Self { words })
    }

    /// What those who wait wait for.
    #[must_use]
    pub fn event(&self) -> Event<'a> {
        Event::bare(&self.words[HEADER..])
    }
}
