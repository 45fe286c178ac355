//! A trail: the last items of one writer, for any number of readers. Readers never slow down the writer.

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::sync::{Ordering, fence};

/// Sequence of the next item.
const HEAD: usize = HEADER;
const SLOTS: usize = HEADER + 8;

/// A ring of items of `N` words with one writer and any number of readers. Each reader has its own position.
///
/// Overflow rule: the newest item overwrites the oldest. A reader counts the items that it lost.
///
/// Each slot has its own sequence: `2n + 1` while item `n` is being written, `2n + 2` once it is complete.
pub struct Trail<'a, const N: usize> {
    words: &'a Words,
    slots: usize,
}

/// Position of a reader in a [`Trail`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    next: u64,
    lost: u64,
}

impl<'a, const N: usize> Trail<'a, N> {
    /// Size of a trail of `slots` items, in words.
    #[must_use]
    pub const fn words_for(slots: usize) -> usize {
        SLOTS + slots * (N + 1)
    }

    /// Formats `words` as an empty trail, with the largest power of two of slots that fits.
    ///
    /// # Errors
    /// `Short` if not even one item fits.
    pub fn format(words: &'a Words) -> Result<Self, LayoutError> {
        let room = words.len().saturating_sub(SLOTS);
        let short = LayoutError::Short { found: words.len(), expected: Self::words_for(1) };
        let slots = header::slots_in(room, N + 1).ok_or(short)?;
        words[HEAD].store(0, Ordering::Relaxed);
        for slot in 0..slots {
            words[SLOTS + slot * (N + 1)].store(0, Ordering::Relaxed);
        }
        header::write(words, Kind::Trail, slots as u32, N as u32);
        Ok(Self { words, slots })
    }

    /// Attaches to the trail in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a trail of items of `N` words.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let slots = header::check_slots(words, Kind::Trail, N, SLOTS, N + 1)?;
        Ok(Self { words, slots })
    }

    /// The trail in the first words of `words`, inside a block whose header has been checked.
    pub(crate) const fn bare(words: &'a Words, slots: usize) -> Self {
        Self { words, slots }
    }

    /// Number of items that the trail keeps.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.slots
    }

    /// Number of items ever written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.words[HEAD].load(Ordering::Acquire)
    }

    /// Appends an item, overwriting the oldest one. To be called by the only writer.
    pub fn push_overwrite(&self, item: [u64; N]) {
        let sequence = self.words[HEAD].load(Ordering::Relaxed);
        let (mark, slot) = self.slot(sequence);
        mark.store(sequence.wrapping_mul(2).wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in slot.iter().zip(item) {
            word.store(value, Ordering::Relaxed);
        }
        mark.store(sequence.wrapping_mul(2).wrapping_add(2), Ordering::Release);
        self.words[HEAD].store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// A cursor at the oldest item that is still kept.
    #[must_use]
    pub fn from_oldest(&self) -> Cursor {
        Cursor { next: self.written().saturating_sub(self.slots as u64), lost: 0 }
    }

    /// A cursor at the next item to be written.
    #[must_use]
    pub fn from_now(&self) -> Cursor {
        Cursor { next: self.written(), lost: 0 }
    }

    /// The next item for `cursor`; `None` if there is no newer one. Items that were overwritten before the reader got to
    /// them are skipped and counted in [`Cursor::lost`].
    pub fn next(&self, cursor: &mut Cursor) -> Option<[u64; N]> {
        // The first attempt usually finds the item. The second one is for a writer that has just lapped the reader.
        for _ in 0..2 {
            let head = self.written();
            let behind = head.wrapping_sub(cursor.next);
            if behind == 0 {
                return None;
            }
            if behind > self.slots as u64 {
                if head < cursor.next {
                    // The trail was formatted again.
                    cursor.next = 0;
                    continue;
                }
                let oldest = head - self.slots as u64;
                cursor.lost = cursor.lost.saturating_add(oldest - cursor.next);
                cursor.next = oldest;
            }
            if let Some(item) = self.read(cursor.next) {
                cursor.next = cursor.next.wrapping_add(1);
                return Some(item);
            }
            cursor.lost = cursor.lost.saturating_add(1);
            cursor.next = cursor.next.wrapping_add(1);
        }
        None
    }

    /// Item `sequence`, unless it was overwritten or is incomplete.
    fn read(&self, sequence: u64) -> Option<[u64; N]> {
        let (mark, slot) = self.slot(sequence);
        let whole = sequence.wrapping_mul(2).wrapping_add(2);
        if mark.load(Ordering::Acquire) != whole {
            return None;
        }
        let item = core::array::from_fn(|index| slot[index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (mark.load(Ordering::Relaxed) == whole).then_some(item)
    }

    fn slot(&self, sequence: u64) -> (&'a crate::AtomicU64, &'a Words) {
        let first = SLOTS + (sequence as usize & (self.slots - 1)) * (N + 1);
        (&self.words[first], &self.words[first + 1..=first + N])
    }
}

impl Cursor {
    /// Number of items that were overwritten before this reader got to them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Sequence of the next item.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{AtomicU64, Latest};
    use std::vec::Vec;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_slow_reader_loses_the_oldest_items_and_counts_them() {
        let words = words(Trail::<1>::words_for(4));
        let trail = Trail::<1>::format(&words).unwrap();
        let mut cursor = trail.from_oldest();
        (0..10).for_each(|item| trail.push_overwrite([item]));
        let seen: Vec<u64> = std::iter::from_fn(|| trail.next(&mut cursor)).map(|[item]| item).collect();
        assert_eq!((seen, cursor.lost()), (std::vec![6, 7, 8, 9], 6));
        let trail = Trail::<1>::format(&words).unwrap();
        trail.push_overwrite([42]);
        assert_eq!(trail.next(&mut cursor), Some([42]), "a recreated trail is read from its start");
    }

    #[test]
    fn a_cell_and_a_trail_are_read_whole_while_they_are_written() {
        let (cells, items) = (words(Latest::<3>::WORDS), words(Trail::<3>::words_for(4)));
        let (cell, trail) = (Latest::<3>::format(&cells).unwrap(), Trail::<3>::format(&items).unwrap());
        let rounds = if cfg!(miri) { 50 } else { 50_000 };
        // The cursor is created before the writer begins. Items overwritten earlier would be neither seen nor counted.
        let (mut cursor, mut seen) = (trail.from_oldest(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    cell.set_replace([round, round * 2, round * 3]);
                    trail.push_overwrite([round, round * 2, round * 3]);
                }
            });
            while seen + cursor.lost() < rounds {
                for [one, two, three] in
                    cell.get().map(|(_, item)| item).into_iter().chain(trail.next(&mut cursor).inspect(|_| seen += 1))
                {
                    assert_eq!((two, three), (one * 2, one * 3), "torn");
                }
                std::thread::yield_now();
            }
        });
    }
}
