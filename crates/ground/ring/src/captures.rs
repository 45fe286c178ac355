//! Captures of variables: rows that a loop leaves behind cycle by cycle, in a few segments of memory, with a place that a
//! trigger has marked. Any number of readers, none of which the loop ever waits for.
//!
//! | words | what | writer |
//! |---|---|---|
//! | 0..8 | header | the loop's process, once |
//! | 8 | command: a count in the upper 56 bits, what in the lower 8 | the loop's process, not its loop |
//! | 16.. | what is wanted ([`Latest`] of [`SETUP_WORDS`]) | the loop's process, not its loop |
//! | 56.. | how far the loop has come ([`Latest`] of [`STATUS_WORDS`]) | the loop |
//! | [`DATA`].. | segments: as many as the setup in force says, of equal length | the loop |
//!
//! | word of a segment | what |
//! |---|---|
//! | 0 | generation: which setup, and how often it was begun under it, times two; odd while it is begun |
//! | 1 | rows written |
//! | 2 | the row that the trigger marked, plus one; 0: none |
//! | 3 | the row behind the last one of the capture; 0: it is not complete |
//! | 4 | why it was triggered |
//! | 8.. | rows in a circle: pulse number, `CLOCK_MONOTONIC` ns, marks ([`marks`]), the bits of each variable |
//!
//! A reader copies rows and looks afterwards whether the loop has come so near meanwhile that they may be torn.

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::latest::Latest;
use crate::sync::{AtomicU64, Ordering, fence};

/// Words of what is wanted.
pub const SETUP_WORDS: usize = 36;
/// Words of how far the loop has come.
pub const STATUS_WORDS: usize = 6;
/// Most variables in a row.
pub const CHANNELS_MAX: usize = 16;
/// Most captures that are kept.
pub const CAPTURES_MAX: usize = 64;
/// Words of a row before its values.
pub const ROW_WORDS: usize = 3;

/// Bits of the third word of a row; the upper half of the word counts pulses that were given up before it.
pub mod marks {
    /// The cycle ended after its deadline.
    pub const MISS: u64 = 1;
    /// A loop had given up pulses before it; a frame's call took longer than its budget.
    pub const OVERRUN: u64 = 2;
    /// The loop said that what it put out is not to be trusted.
    pub const FAULT: u64 = 4;
}

const COMMAND: usize = HEADER;
const SETUP: usize = HEADER + 8;
const STATUS: usize = SETUP + Latest::<SETUP_WORDS>::BARE_WORDS + 3;
const DATA: usize = 72;
const _: () = assert!(STATUS + Latest::<STATUS_WORDS>::BARE_WORDS <= DATA);

const GENERATION: usize = 0;
const HEAD: usize = 1;
const TRIGGER: usize = 2;
const END: usize = 3;
const CAUSE: usize = 4;
const ROWS: usize = 8;

/// The memory in shared words, owned or borrowed.
#[derive(Debug)]
pub struct Captures<W> {
    words: W,
}

/// How the memory is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Variables in a row.
    pub channels: usize,
    /// Segments.
    pub keep: usize,
    /// Rows of a segment.
    pub rows: usize,
}

impl Division {
    /// Words of a row.
    #[must_use]
    pub const fn row_words(&self) -> usize {
        ROW_WORDS + self.channels
    }
}

/// Where the loop writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct WritePosition {
    division: Division,
    /// Of the segment's first word.
    segment: usize,
    /// Rows written since the segment was begun.
    head: u64,
    /// The row in the circle that is written next.
    slot: usize,
}

impl WritePosition {
    /// Rows written since the segment was begun.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.head
    }
}

/// A segment as a reader finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Changes whenever the segment is begun anew.
    pub generation: u64,
    /// Rows written; the last [`Division::rows`] less one of them are there.
    pub written: u64,
    /// The row that the trigger marked.
    pub trigger: Option<u64>,
    /// The row behind the capture's last one, once it is complete.
    pub end: Option<u64>,
    /// Why it was triggered.
    pub cause: u64,
}

impl Captures<&Words> {
    /// Words that the memory needs for `rows` rows of `channels` variables in `keep` segments.
    #[must_use]
    pub const fn words_for(channels: usize, rows: usize, keep: usize) -> usize {
        DATA + keep * (ROWS + rows * (ROW_WORDS + channels))
    }
}

impl<W: AsRef<Words>> Captures<W> {
    /// Makes memory for captures in `words`, with nothing wanted and nothing there.
    ///
    /// # Errors
    /// `Short` if not even a row fits.
    pub fn format(words: W) -> Result<Self, LayoutError> {
        let block = words.as_ref();
        let expected = Captures::words_for(1, 2, 1);
        if block.len() < expected {
            return Err(LayoutError::Short { found: block.len(), expected });
        }
        block[HEADER..DATA].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        header::write(block, Kind::Captures, SETUP_WORDS as u32, STATUS_WORDS as u32);
        Ok(Self { words })
    }

    /// Finds the memory that somebody made in `words`.
    ///
    /// # Errors
    /// What differs from it.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let block = words.as_ref();
        let found = header::check(block, Kind::Captures)?;
        if found != (SETUP_WORDS as u32, STATUS_WORDS as u32) {
            return Err(LayoutError::Shape { found, expected: "36 words of setup and 6 of status" });
        }
        let expected = Captures::words_for(1, 2, 1);
        if block.len() < expected {
            return Err(LayoutError::Short { found: block.len(), expected });
        }
        Ok(Self { words })
    }

    /// The memory.
    #[must_use]
    pub const fn memory(&self) -> &W {
        &self.words
    }

    fn at(&self, index: usize) -> &AtomicU64 {
        &self.words.as_ref()[index]
    }

    /// How the memory is divided for so many variables and segments; `None` if there would be fewer than two rows.
    #[must_use]
    pub fn divide(&self, channels: usize, keep: usize) -> Option<Division> {
        if !(1..=CHANNELS_MAX).contains(&channels) || !(1..=CAPTURES_MAX).contains(&keep) {
            return None;
        }
        let each = (self.words.as_ref().len() - DATA) / keep;
        let rows = each.checked_sub(ROWS)? / (ROW_WORDS + channels);
        (rows >= 2).then_some(Division { channels, keep, rows })
    }

    /// Says what is wanted from now on. For one thread, which is not the loop's.
    pub fn set_setup(&self, setup: [u64; SETUP_WORDS]) {
        Latest::bare(&self.words.as_ref()[SETUP..]).set_replace(setup);
    }

    /// What is wanted, and how often that was said.
    #[must_use]
    pub fn setup(&self) -> Option<(u64, [u64; SETUP_WORDS])> {
        Latest::bare(&self.words.as_ref()[SETUP..]).get()
    }

    /// Changes whenever something else is wanted: one load, for the loop to look at in each cycle.
    #[must_use]
    pub fn setup_version(&self) -> u64 {
        self.at(SETUP).load(Ordering::Relaxed)
    }

    /// The [version](Self::setup_version) of the setup that was the `count`th.
    #[must_use]
    pub const fn version_of(&self, count: u64) -> u64 {
        count.wrapping_mul(2)
    }

    /// Gives the loop a command; one that it has not seen yet is replaced. For the thread that says what is wanted.
    pub fn command(&self, what: u8) {
        let count = (self.at(COMMAND).load(Ordering::Relaxed) >> 8).wrapping_add(1);
        self.at(COMMAND).store(count << 8 | u64::from(what), Ordering::Release);
    }

    /// The newest command; another word is another command.
    #[must_use]
    pub fn commanded(&self) -> (u64, u8) {
        let word = self.at(COMMAND).load(Ordering::Acquire);
        (word, word as u8)
    }

    /// Says how far the loop has come. For the loop.
    pub fn set_status(&self, status: [u64; STATUS_WORDS]) {
        Latest::bare(&self.words.as_ref()[STATUS..]).set_replace(status);
    }

    /// How far the loop has come; `None` before it has taken any setup.
    #[must_use]
    pub fn status(&self) -> Option<[u64; STATUS_WORDS]> {
        Latest::bare(&self.words.as_ref()[STATUS..]).get().map(|(_, status)| status)
    }

    fn base(&self, division: &Division, index: usize) -> usize {
        DATA + index % division.keep.max(1) * (ROWS + division.rows * division.row_words())
    }

    /// Begins a segment anew. For the loop; `generation` is another each time.
    pub fn begin_overwrite(&self, division: Division, index: usize, generation: u64) -> WritePosition {
        let segment = self.base(&division, index);
        self.at(segment + GENERATION).store(generation << 1 | 1, Ordering::Relaxed);
        // Who sees any word of what follows sees that the old generation is over.
        fence(Ordering::Release);
        for word in [TRIGGER, END, CAUSE] {
            self.at(segment + word).store(0, Ordering::Relaxed);
        }
        self.at(segment + HEAD).store(0, Ordering::Relaxed);
        // Who sees the new generation sees nothing of the old one.
        self.at(segment + GENERATION).store(generation << 1, Ordering::Release);
        WritePosition { division, segment, head: 0, slot: 0 }
    }

    /// Appends a row over the oldest one. For the loop.
    ///
    /// Real-time: a store for each word of the row, and one more.
    pub fn push_overwrite(&self, place: &mut WritePosition, row: [u64; ROW_WORDS], values: impl Iterator<Item = u64>) {
        let first = place.segment + ROWS + place.slot * place.division.row_words();
        let row_words = place.division.row_words();
        // Who sees a word of this row sees that the one before was written.
        fence(Ordering::Release);
        if let Some(words) = self.words.as_ref().get(first..first + row_words) {
            let all = row.into_iter().chain(values);
            words.iter().zip(all).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        }
        place.head += 1;
        place.slot += 1;
        if place.slot == place.division.rows {
            place.slot = 0;
        }
        self.at(place.segment + HEAD).store(place.head, Ordering::Release);
    }

    /// Marks the newest row as the trigger's. For the loop.
    pub fn mark(&self, place: &WritePosition, cause: u64) {
        self.at(place.segment + CAUSE).store(cause, Ordering::Relaxed);
        self.at(place.segment + TRIGGER).store(place.head, Ordering::Release);
    }

    /// Says that the newest row is the capture's last. For the loop.
    pub fn complete(&self, place: &WritePosition) {
        self.at(place.segment + END).store(place.head, Ordering::Release);
    }

    /// A segment as it is now; `None` if it was being begun anew, or its memory is damaged.
    #[must_use]
    pub fn segment(&self, division: &Division, index: usize) -> Option<Segment> {
        let segment = self.base(division, index);
        let load = |word: usize| Some(self.words.as_ref().get(segment + word)?.load(Ordering::Acquire));
        let mark = load(GENERATION)?;
        let (end, trigger, cause, written) = (load(END)?, load(TRIGGER)?, load(CAUSE)?, load(HEAD)?);
        fence(Ordering::Acquire);
        let generation = mark >> 1;
        let found =
            Segment { generation, written, trigger: trigger.checked_sub(1), end: (end > 0).then_some(end), cause };
        let whole = mark & 1 == 0 && load(GENERATION)? == mark;
        (whole && trigger <= written && end <= written).then_some(found)
    }

    /// Copies rows of a segment that was looked at before, from row `first` on, as many as `out` has room for and are written.
    /// How many; `None` if one of them is gone, or may be.
    pub fn rows(
        &self,
        division: &Division,
        index: usize,
        seen: &Segment,
        first: u64,
        out: &mut [u64],
    ) -> Option<usize> {
        let (stride, segment) = (division.row_words(), self.base(division, index));
        let count = (seen.written.checked_sub(first)?).min((out.len() / stride) as u64);
        for (row, out) in (first..first + count).zip(out.chunks_exact_mut(stride)) {
            let at = segment + ROWS + (row % division.rows.max(1) as u64) as usize * stride;
            let words = self.words.as_ref().get(at..at + stride)?;
            out.iter_mut().zip(words).for_each(|(out, word)| *out = word.load(Ordering::Relaxed));
        }
        fence(Ordering::Acquire);
        let load = |word: usize| Some(self.words.as_ref().get(segment + word)?.load(Ordering::Relaxed));
        let (head, generation) = (load(HEAD)?, load(GENERATION)?);
        // The row behind the head may be half written: it lies where the oldest one was.
        let whole = generation == seen.generation << 1 && head - first.min(head) < division.rows as u64;
        (whole || count == 0).then_some(count as usize)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn push(captures: &Captures<&Words>, place: &mut WritePosition, pulse: u64) {
        captures.push_overwrite(place, [pulse, pulse * 10, 0], [pulse * 100, pulse * 200].into_iter());
    }

    #[test]
    fn rows_are_found_where_the_trigger_marked_them() {
        let words = words(Captures::words_for(2, 4, 2));
        let captures = Captures::format(&words[..]).unwrap();
        let division = captures.divide(2, 2).unwrap();
        assert_eq!((division.rows, division.row_words()), (4, 5));
        let mut place = captures.begin_overwrite(division, 1, 7);
        (1..=6).for_each(|pulse| push(&captures, &mut place, pulse));
        captures.mark(&place, 3);
        push(&captures, &mut place, 7);
        captures.complete(&place);
        let theirs = Captures::attach(&words[..]).unwrap();
        let seen = theirs.segment(&division, 1).unwrap();
        assert_eq!(seen, Segment { generation: 7, written: 7, trigger: Some(5), end: Some(7), cause: 3 });
        let mut out = [0; 15];
        assert_eq!(theirs.rows(&division, 1, &seen, 4, &mut out), Some(3));
        assert_eq!(out, [5, 50, 0, 500, 1000, 6, 60, 0, 600, 1200, 7, 70, 0, 700, 1400]);
        assert_eq!(theirs.rows(&division, 1, &seen, 3, &mut out), None, "where the next one will be written");
        captures.begin_overwrite(division, 1, 8);
        assert_eq!(theirs.rows(&division, 1, &seen, 4, &mut out), None, "begun anew");
        assert_eq!(theirs.segment(&division, 0).unwrap().written, 0);
    }

    #[test]
    fn commands_and_setups_are_told_apart_by_their_count() {
        let words = words(Captures::words_for(1, 2, 1));
        let captures = Captures::format(&words[..]).unwrap();
        assert_eq!((captures.setup(), captures.status(), captures.setup_version()), (None, None, 0));
        let before = captures.commanded().0;
        captures.command(3);
        let (word, what) = captures.commanded();
        captures.command(3);
        assert!(what == 3 && word != before && captures.commanded().0 != word);
        captures.set_setup([5; SETUP_WORDS]);
        captures.set_status([6; STATUS_WORDS]);
        assert_eq!((captures.setup(), captures.status()), (Some((1, [5; SETUP_WORDS])), Some([6; STATUS_WORDS])));
        assert!(captures.divide(0, 1).is_none() && captures.divide(1, 2).is_none() && captures.divide(17, 1).is_none());
    }

    #[test]
    fn rows_are_read_whole_or_not_at_all_while_they_are_written() {
        let words = words(Captures::words_for(2, 8, 1));
        let captures = Captures::format(&words[..]).unwrap();
        let division = captures.divide(2, 1).unwrap();
        let rounds = if cfg!(miri) { 60 } else { 50_000 };
        let mut place = captures.begin_overwrite(division, 0, 1);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for pulse in 1..=rounds {
                    push(&captures, &mut place, pulse);
                    if pulse % 50 == 0 {
                        place = captures.begin_overwrite(division, 0, 1 + pulse);
                    }
                }
            });
            let (mut out, mut last) = ([0; 20], false);
            while !last {
                last = writer.is_finished();
                let Some(seen) = captures.segment(&division, 0) else { continue };
                let first = seen.written.saturating_sub(4);
                if let Some(count) = captures.rows(&division, 0, &seen, first, &mut out) {
                    let rows: Vec<&[u64]> = out[..count * 5].chunks(5).collect();
                    assert!(rows.iter().all(|row| row[1] == row[0] * 10 && row[4] == row[0] * 200), "torn: {rows:?}");
                    assert!(rows.windows(2).all(|pair| pair[1][0] == pair[0][0] + 1), "mixed: {rows:?}");
                }
            }
        });
    }

    proptest! {
        #[test]
        fn scribbled_memory_never_panics(seeds in proptest::collection::vec((0usize..120, any::<u64>()), 0..40)) {
            let words = words(120);
            let captures = Captures::format(&words[..]).unwrap();
            for (at, value) in seeds {
                words[at].store(value, Ordering::Relaxed);
                for division in [captures.divide(1 + value as usize % 3, 1 + at % 3), None].into_iter().flatten() {
                    if let Some(seen) = captures.segment(&division, at) {
                        let _ = captures.rows(&division, at, &seen, seen.written.saturating_sub(value % 5), &mut [0; 12]);
                    }
                }
                let _ = (captures.setup(), captures.status(), captures.commanded());
            }
        }
    }
}
