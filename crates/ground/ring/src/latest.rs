//! The newest value of a variable, for any number of readers (a seqlock).

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::{Ordering, fence};

/// Attempts after which a read fails. That takes as many writes during one read.
const TRIES: usize = 64;

/// A cell of `N` words with one writer, which never waits. Readers only see complete values.
///
/// Overflow rule: a new value replaces the old one. The count of writes shows a reader how many values it missed.
pub struct Latest<'a, const N: usize> {
    words: &'a Words,
}

impl<'a, const N: usize> Latest<'a, N> {
    /// Size of the cell with its header, in words.
    pub const WORDS: usize = HEADER + Self::BARE_WORDS;
    /// Size of the cell inside a larger block, in words.
    pub(crate) const BARE_WORDS: usize = 1 + N;

    /// Formats `words` as a cell without a value.
    ///
    /// # Errors
    /// `Short` if it does not fit.
    pub fn format(words: &'a Words) -> Result<Self, LayoutError> {
        if words.len() < Self::WORDS {
            return Err(LayoutError::Short { found: words.len(), expected: Self::WORDS });
        }
        words[HEADER].store(0, Ordering::Relaxed);
        header::write(words, Kind::Latest, 1, N as u32);
        Ok(Self { words: &words[HEADER..] })
    }

    /// Attaches to the cell in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a cell of `N` words.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        header::check_slots(words, Kind::Latest, N, HEADER, Self::BARE_WORDS)?;
        Ok(Self { words: &words[HEADER..] })
    }

    /// The cell at the start of `words`, inside a block whose header has been checked.
    pub(crate) fn bare(words: &'a Words) -> Self {
        Self { words }
    }

    /// Replaces the value. To be called by the only writer.
    pub fn set_replace(&self, value: [u64; N]) {
        // The count is odd if a previous writer died during a write. This write replaces that one.
        let count = self.words[0].load(Ordering::Relaxed) & !1;
        self.words[0].store(count.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words[1..=N].iter().zip(value) {
            word.store(value, Ordering::Relaxed);
        }
        self.words[0].store(count.wrapping_add(2), Ordering::Release);
    }

    /// The newest complete value and the number of writes up to it. `None` before the first write, if the writer died during
    /// a write, or if it wrote without pause.
    #[must_use]
    pub fn get(&self) -> Option<(u64, [u64; N])> {
        for _ in 0..TRIES {
            let count = self.words[0].load(Ordering::Acquire);
            if count == 0 {
                return None;
            }
            if count.is_multiple_of(2) {
                let value = core::array::from_fn(|index| self.words[1 + index].load(Ordering::Relaxed));
                fence(Ordering::Acquire);
                if self.words[0].load(Ordering::Relaxed) == count {
                    return Some((count / 2, value));
                }
            }
            spin();
        }
        None
    }
}

fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}
