//! The newest value of something, for any number of readers (a seqlock).

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::{Ordering, fence};

/// Tries after which a reader gives up: the writer would have to write that often during one read.
const TRIES: usize = 64;

/// A cell of `N` words: one writer that never waits, readers that see whole values only.
///
/// Overflow rule: a new value replaces the old one; the count of writes tells a reader what it missed.
pub struct Latest<'a, const N: usize> {
    words: &'a Words,
}

impl<'a, const N: usize> Latest<'a, N> {
    /// Words that the cell needs, header included.
    pub const WORDS: usize = HEADER + Self::BARE_WORDS;
    /// Words that the cell needs inside a larger block.
    pub(crate) const BARE_WORDS: usize = 1 + N;

    /// Makes a cell that was never written in `words`.
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

    /// Finds the cell that somebody made in `words`.
    ///
    /// # Errors
    /// What differs from a cell of `N` words.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        header::check_slots(words, Kind::Latest, N, HEADER, Self::BARE_WORDS)?;
        Ok(Self { words: &words[HEADER..] })
    }

    /// The cell at the start of `words`, inside a block whose header has been checked.
    pub(crate) fn bare(words: &'a Words) -> Self {
        Self { words }
    }

    /// Replaces the value. For the one writer.
    pub fn set_replace(&self, value: [u64; N]) {
        // An odd count was left by a writer that died in the middle: its write is taken over.
        let count = self.words[0].load(Ordering::Relaxed) & !1;
        self.words[0].store(count.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words[1..=N].iter().zip(value) {
            word.store(value, Ordering::Relaxed);
        }
        self.words[0].store(count.wrapping_add(2), Ordering::Release);
    }

    /// The newest whole value and how many were written up to it; `None` before the first, or if the writer
    /// died in the middle of a write or wrote without pause.
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
