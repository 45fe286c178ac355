//! Captures of variables: rows that a loop records on every cycle, before and after a trigger, in a few segments of shared
//! memory. There may be any number of readers. The loop never waits for one.
//!
//! | words | what | writer |
//! |---|---|---|
//! | 0..8 | header | the loop's process, once |
//! | 8 | command: a count in the upper 56 bits, the command in the lower 8 | a non-real-time thread of the loop's process |
//! | 16.. | requested setup ([`Latest`] of [`SETUP_WORDS`]) | a non-real-time thread of the loop's process |
//! | 56.. | status of the loop ([`Latest`] of [`STATUS_WORDS`]) | the loop |
//! | [`DATA`].. | segments of equal length; the setup in force gives their number | the loop |
//!
//! | word of a segment | what |
//! |---|---|
//! | 0 | generation, times two: identifies the setup and counts restarts of the segment under it; odd while the segment is being restarted |
//! | 1 | rows written |
//! | 2 | number of the trigger's row plus one; 0: none |
//! | 3 | number of the capture's last row plus one; 0: the capture is not complete |
//! | 4 | cause of the trigger |
//! | 8.. | rows, as a ring buffer: pulse number, `CLOCK_MONOTONIC` ns, marks ([`marks`]), the bits of each variable |
//!
//! A reader copies rows, then checks whether the loop may have overwritten them meanwhile.

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::latest::Latest;
use crate::sync::{AtomicU64, Ordering, fence};

/// Size of the setup, in words.
pub const SETUP_WORDS: usize = 36;
/// Size of the status, in words.
pub const STATUS_WORDS: usize = 6;
/// Maximum number of variables in a row.
pub const CHANNELS_MAX: usize = 16;
/// Maximum number of captures that are kept.
pub const CAPTURES_MAX: usize = 64;
/// Words of a row before its values.
pub const ROW_WORDS: usize = 3;

/// Bits of the third word of a row. The upper half of that word is the number of pulses skipped before the row.
pub mod marks {
    /// The cycle ended after its deadline.
    pub const MISS: u64 = 1;
    /// The loop skipped pulses before this cycle, or a frame's call took longer than its budget.
    pub const OVERRUN: u64 = 2;
    /// The loop reported that its output in this cycle must not be used.
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

/// The capture memory in shared words, owned or borrowed.
#[derive(Debug)]
pub struct Captures<W> {
    words: W,
}

/// Division of the memory into segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Variables in a row.
    pub channels: usize,
    /// Number of segments.
    pub keep: usize,
    /// Number of rows in a segment.
    pub rows: usize,
}

impl Division {
    /// Size of a row, in words.
    #[must_use]
    pub const fn row_words(&self) -> usize {
        ROW_WORDS + self.channels
    }
}

/// The loop's write position.
#[derive(Clone, Copy, Debug, Default)]
pub struct WritePosition {
    division: Division,
    /// Index of the segment's first word.
    segment: usize,
    /// Rows written since the segment was started.
    head: u64,
    /// Slot in the ring buffer for the next row.
    slot: usize,
}

impl WritePosition {
    /// Rows written since the segment was started.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.head
    }
}

/// State of a segment, as read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Changes whenever the segment is started again.
    pub generation: u64,
    /// Rows written. The last [`Division::rows`] less one of them are readable.
    pub written: u64,
    /// Number of the row that the trigger marked.
    pub trigger: Option<u64>,
    /// Number of the capture's last row plus one; `None` until the capture is complete.
    pub end: Option<u64>,
    /// Cause of the trigger.
    pub cause: u64,
}

impl Captures<&Words> {
    /// Size of the memory for `keep` segments of `rows` rows of `channels` variables, in words.
    #[must_use]
    pub const fn words_for(channels: usize, rows: usize, keep: usize) -> usize {
        DATA + keep * (ROWS + rows * (ROW_WORDS + channels))
    }
}

impl<W: AsRef<Words>> Captures<W> {
    /// Formats `words` as capture memory, with no setup and no captures.
    ///
    /// # Errors
    /// `Short` if the memory has no room for one segment of two rows.
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

    /// Attaches to the capture memory in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold capture memory.
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

    /// Divides the memory for this number of variables and segments. Returns `None` if a segment would have fewer than two
    /// rows, or if a number is out of range.
    #[must_use]
    pub fn divide(&self, channels: usize, keep: usize) -> Option<Division> {
        if !(1..=CHANNELS_MAX).contains(&channels) || !(1..=CAPTURES_MAX).contains(&keep) {
            return None;
        }
        let each = (self.words.as_ref().len() - DATA) / keep;
        let rows = each.checked_sub(ROWS)? / (ROW_WORDS + channels);
        (rows >= 2).then_some(Division { channels, keep, rows })
    }

    /// Requests a setup. To be called from a single thread other than the loop.
    pub fn set_setup(&self, setup: [u64; SETUP_WORDS]) {
        Latest::bare(&self.words.as_ref()[SETUP..]).set_replace(setup);
    }

    /// The requested setup and the number of setups requested so far.
    #[must_use]
    pub fn setup(&self) -> Option<(u64, [u64; SETUP_WORDS])> {
        Latest::bare(&self.words.as_ref()[SETUP..]).get()
    }

    /// Version of the requested setup, which changes with each request. It costs one load, so the loop can check it on every
    /// cycle.
    #[must_use]
    pub fn setup_version(&self) -> u64 {
        self.at(SETUP).load(Ordering::Relaxed)
    }

    /// The [version](Self::setup_version) of the `count`th requested setup.
    #[must_use]
    pub const fn version_of(&self, count: u64) -> u64 {
        count.wrapping_mul(2)
    }

    /// Sends a command to the loop, replacing a command that the loop has not read yet. To be called from the thread that
    /// requests setups.
    pub fn command(&self, what: u8) {
        let count = (self.at(COMMAND).load(Ordering::Relaxed) >> 8).wrapping_add(1);
        self.at(COMMAND).store(count << 8 | u64::from(what), Ordering::Release);
    }

    /// The newest command. The word is different for each command sent.
    #[must_use]
    pub fn commanded(&self) -> (u64, u8) {
        let word = self.at(COMMAND).load(Ordering::Acquire);
        (word, word as u8)
    }

    /// Publishes the status of the loop. To be called by the loop.
    pub fn set_status(&self, status: [u64; STATUS_WORDS]) {
        Latest::bare(&self.words.as_ref()[STATUS..]).set_replace(status);
    }

    /// Status of the loop; `None` before it has applied a setup.
    #[must_use]
    pub fn status(&self) -> Option<[u64; STATUS_WORDS]> {
        Latest::bare(&self.words.as_ref()[STATUS..]).get().map(|(_, status)| status)
    }

    fn base(&self, division: &Division, index: usize) -> usize {
        DATA + index % division.keep.max(1) * (ROWS + division.rows * division.row_words())
    }

    /// Starts a segment again. To be called by the loop, with a different `generation` each time.
    pub fn begin_overwrite(&self, division: Division, index: usize, generation: u64) -> WritePosition {
        let segment = self.base(&division, index);
        self.at(segment + GENERATION).store(generation << 1 | 1, Ordering::Relaxed);
        // A reader that sees any of the following stores also sees that the old generation is over.
        fence(Ordering::Release);
        for word in [TRIGGER, END, CAUSE] {
            self.at(segment + word).store(0, Ordering::Relaxed);
        }
        self.at(segment + HEAD).store(0, Ordering::Relaxed);
        // A reader that sees the new generation sees no state of the old one.
        self.at(segment + GENERATION).store(generation << 1, Ordering::Release);
        WritePosition { division, segment, head: 0, slot: 0 }
    }

    /// Appends a row, overwriting the oldest one. To be called by the loop.
    ///
    /// Real-time: a store for each word of the row, and one more.
    pub fn push_overwrite(&self, place: &mut WritePosition, row: [u64; ROW_WORDS], values: impl Iterator<Item = u64>) {
        let first = place.segment + ROWS + place.slot * place.division.row_words();
        let row_words = place.division.row_words();
        // A reader that sees a word of this row also sees that the previous row is complete.
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

    /// Marks the newest row as the trigger's row. To be called by the loop.
    pub fn mark(&self, place: &WritePosition, cause: u64) {
        self.at(place.segment + CAUSE).store(cause, Ordering::Relaxed);
        self.at(place.segment + TRIGGER).store(place.head, Ordering::Release);
    }

    /// Marks the newest row as the last row of the capture. To be called by the loop.
    pub fn complete(&self, place: &WritePosition) {
        self.at(place.segment + END).store(place.head, Ordering::Release);
    }

    /// The present state of a segment. `None` if it is being started again, or if its memory is damaged.
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

    /// Copies rows from row `first` on to `out`, as many as `out` has room for and `seen` has. Returns the number of rows,
    /// or `None` if one of them was overwritten or may have been.
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
        // The row after the head may be half written, and it occupies the slot of the oldest row.
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
        assert_eq!(theirs.rows(&division, 1, &seen, 3, &mut out), None, "the place of the next capture");
        captures.begin_overwrite(division, 1, 8);
        assert_eq!(theirs.rows(&division, 1, &seen, 4, &mut out), None, "restarted");
        assert_eq!(theirs.segment(&division, 0).unwrap().written, 0);
    }

    #[test]
    fn commands_and_setups_are_distinguished_by_their_count() {
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
