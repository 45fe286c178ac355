//! The variable segment: variables that a real-time process exports. Every process that has the memfd (an IOC, an
//! oscilloscope, `tahti frames show`) can read them without disturbing the loop that writes.
//!
//! | words | what | writer |
//! |---|---|---|
//! | 0..8 | header; word 4: number of variables | the exporting process, while it creates the segment |
//! | 5 | period of writes in nanoseconds; 0: not set | the exporting process, or its frame |
//! | 6 | number of last samples kept of each variable: 0 or a power of two | the exporting process, while it creates the segment |
//! | [`ENTRY`] words each from 8 | one variable, see below | see below |
//! | after all entries | for each variable a [`Trail`] of its last samples: bits, pulse number, `CLOCK_MONOTONIC` ns | the loop |
//!
//! | word of an entry | what | writer |
//! |---|---|---|
//! | 0..8 | name, UTF-8, padded with zeros | the exporting process, once |
//! | 8..10 | unit, encoded as the name | once |
//! | 10 | type: 1 `f64`, 2 `i64`, 3 `bool` | once |
//! | 11 | safe value, as bits | once |
//! | 12 | whether there is a safe value | once |
//! | 13 | whether the safe value is in force | a frame's dispatcher, or a thread with a hard deadline |
//! | 16..20 | value: count (odd during a write), bits, pulse number, `CLOCK_MONOTONIC` ns ([`Latest`]) | the loop |
//!
//! The address of a variable is its index, which never changes.

use crate::Words;
use crate::header::{self, HEADER, Kind, LayoutError};
use crate::latest::Latest;
use crate::sync::Ordering;
use crate::text;
use crate::trail::{Cursor, Trail};
use base::{DurNs, MonoNs};

/// Maximum number of variables in a segment.
pub const VARIABLES_MAX: usize = 4096;
/// Maximum number of samples kept of a variable.
pub const SAMPLES_MAX: usize = 1 << 16;
/// Maximum length of a variable's name, in bytes.
pub const NAME_BYTES: usize = 64;
/// Maximum length of a unit, in bytes.
pub const UNIT_BYTES: usize = 16;

const COUNT: usize = 4;
const PERIOD: usize = 5;
const KEPT: usize = 6;
const ENTRY: usize = 24;
const NAME: usize = 0;
const UNIT: usize = 8;
const TYPE: usize = 10;
const SAFE: usize = 11;
const HAS_SAFE: usize = 12;
const STANDS: usize = 13;
const VALUE: usize = 16;

/// The value of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A floating-point number.
    Float(f64),
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Number {
    fn word(self) -> (u64, u64) {
        match self {
            Self::Float(value) => (1, value.to_bits()),
            Self::Int(value) => (2, value as u64),
            Self::Bool(value) => (3, value.into()),
        }
    }

    fn of(kind: u64, bits: u64) -> Option<Self> {
        match kind {
            1 => Some(Self::Float(f64::from_bits(bits))),
            2 => Some(Self::Int(bits as i64)),
            3 => Some(Self::Bool(bits != 0)),
            _ => None,
        }
    }
}

/// Properties of a variable, fixed when it is exported.
#[derive(Clone, Copy, Debug)]
pub struct VariableSpec<'a> {
    /// Name; at most [`NAME_BYTES`].
    pub name: &'a str,
    /// Unit; at most [`UNIT_BYTES`].
    pub unit: &'a str,
    /// Type and initial value. Readers see pulse 0 until the loop writes for the first time.
    pub first: Number,
    /// Value that readers get while its activity has a fault.
    pub safe: Option<Number>,
}

/// A variable as returned to readers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The value, or the safe value if that is in force.
    pub value: Number,
    /// Number of the pulse that produced the value.
    pub pulse: u64,
    /// Time of the write.
    pub at: MonoNs,
    /// Number of writes so far.
    pub writes: u64,
    /// Whether `value` is the safe value.
    pub safe: bool,
}

/// One of the last samples of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariableSample {
    /// The value as written by the loop.
    pub value: Number,
    /// Number of the pulse that produced the value.
    pub pulse: u64,
    /// Time of the write.
    pub at: MonoNs,
}

/// The last samples of one variable.
type Samples<'a> = Trail<'a, 3>;

/// A segment in shared words.
///
/// Real-time: [`set`](Self::set) stores six words, and six more if samples are kept. No operation blocks, allocates or makes
/// a system call.
#[derive(Clone, Copy)]
pub struct Variables<'a> {
    words: &'a Words,
    slots: usize,
    kept: usize,
}

/// Size of one variable with its samples, in words. `kept` is 0 or a power of two.
const fn stride(kept: usize) -> usize {
    if kept == 0 { ENTRY } else { ENTRY + Samples::words_for(kept) }
}

impl<'a> Variables<'a> {
    /// Size of a segment of `count` variables without samples, in words.
    #[must_use]
    pub const fn words_for(count: usize) -> usize {
        Self::words_keeping(count, 0)
    }

    /// Size of a segment that keeps the last `kept` samples of each variable, in words. `kept` is 0 or a power of two.
    #[must_use]
    pub const fn words_keeping(count: usize, kept: usize) -> usize {
        HEADER + count * stride(kept)
    }

    /// Formats `words` as an empty segment, with as many slots as fit.
    ///
    /// # Errors
    /// `Short` if not even one variable fits.
    pub fn format(words: &'a Words) -> Result<Self, LayoutError> {
        Self::format_keeping(words, 0)
    }

    /// Formats `words` as an empty segment that keeps the last `kept` samples of each variable. `kept` is 0 or a power of
    /// two, at most [`SAMPLES_MAX`].
    ///
    /// # Errors
    /// `Short` if not even one variable fits; `Shape` if `kept` is not allowed.
    pub fn format_keeping(words: &'a Words, kept: usize) -> Result<Self, LayoutError> {
        check_kept(kept as u64)?;
        let slots = (words.len().saturating_sub(HEADER) / stride(kept)).min(VARIABLES_MAX);
        if slots == 0 {
            return Err(LayoutError::Short { found: words.len(), expected: Self::words_keeping(1, kept) });
        }
        words[COUNT].store(0, Ordering::Relaxed);
        words[PERIOD].store(0, Ordering::Relaxed);
        words[KEPT].store(kept as u64, Ordering::Relaxed);
        let segment = Self { words, slots, kept };
        for samples in (0..slots).filter_map(|index| segment.sample_words(index)) {
            Samples::format(samples)?;
        }
        header::write(words, Kind::Variables, slots as u32, ENTRY as u32);
        Ok(segment)
    }

    /// Attaches to the segment in `words`.
    ///
    /// # Errors
    /// Returns a [`LayoutError`] if `words` do not hold a segment.
    pub fn attach(words: &'a Words) -> Result<Self, LayoutError> {
        let found = header::check(words, Kind::Variables)?;
        let slots = found.0 as usize;
        if found.1 as usize != ENTRY || slots == 0 || slots > VARIABLES_MAX {
            return Err(LayoutError::Shape { found, expected: "at most 4096 variables of 24 words" });
        }
        let kept = check_kept(words[KEPT].load(Ordering::Relaxed))?;
        let expected = Self::words_keeping(slots, kept);
        if words.len() < expected {
            return Err(LayoutError::Short { found: words.len(), expected });
        }
        Ok(Self { words, slots, kept })
    }

    /// Adds a variable and returns its index. Returns `None` if the segment is full, the name is empty, too long or taken,
    /// or the unit is too long. To be called by the exporting process, from a single thread.
    pub fn add(&self, spec: &VariableSpec<'_>) -> Option<usize> {
        let index = self.len();
        let fits = (1..=NAME_BYTES).contains(&spec.name.len()) && spec.unit.len() <= UNIT_BYTES;
        if index >= self.slots || !fits || self.find(spec.name).is_some() {
            return None;
        }
        let entry = self.entry(index)?;
        let (kind, bits) = spec.first.word();
        text::write(&entry[NAME..UNIT], spec.name);
        text::write(&entry[UNIT..TYPE], spec.unit);
        entry[TYPE].store(kind, Ordering::Relaxed);
        // A safe value of another type than the variable's is ignored.
        let safe = spec.safe.map(Number::word).filter(|(safe, _)| *safe == kind);
        entry[SAFE].store(safe.map_or(0, |(_, bits)| bits), Ordering::Relaxed);
        entry[HAS_SAFE].store(safe.is_some().into(), Ordering::Relaxed);
        entry[STANDS].store(0, Ordering::Relaxed);
        entry[VALUE].store(0, Ordering::Relaxed);
        Self::cell(entry).set_replace([bits, 0, 0]);
        self.words[COUNT].store(index as u64 + 1, Ordering::Release);
        Some(index)
    }

    /// Sets the maximum time between writes of a variable. Readers use it to detect stale values.
    pub fn set_period(&self, period: DurNs) {
        self.words[PERIOD].store(period.0.max(0) as u64, Ordering::Relaxed);
    }

    /// Maximum time between writes of a variable, if it was set.
    #[must_use]
    pub fn period(&self) -> Option<DurNs> {
        let period = i64::try_from(self.words[PERIOD].load(Ordering::Relaxed)).ok()?;
        (period > 0).then_some(DurNs(period))
    }

    /// Number of variables.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.words[COUNT].load(Ordering::Acquire) as usize).min(self.slots)
    }

    /// Whether the segment has no variables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Index of the variable with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        (0..self.len()).find(|&index| self.name(index).is_some_and(|known| known.as_str() == name))
    }

    /// Name of a variable.
    #[must_use]
    pub fn name(&self, index: usize) -> Option<text::Text<NAME_BYTES>> {
        Some(text::Text::read(&self.known(index)?[NAME..UNIT]))
    }

    /// Unit of a variable.
    #[must_use]
    pub fn unit(&self, index: usize) -> Option<text::Text<UNIT_BYTES>> {
        Some(text::Text::read(&self.known(index)?[UNIT..TYPE]))
    }

    /// Writes a variable. Returns `false` without writing if the value has another type than the variable. To be called by
    /// the loop that owns it.
    ///
    /// Real-time: six stores, and six more if samples are kept.
    pub fn set(&self, index: usize, value: Number, pulse: u64, now: MonoNs) -> bool {
        let Some(entry) = self.entry(index) else { return false };
        let (kind, bits) = value.word();
        if entry[TYPE].load(Ordering::Relaxed) != kind {
            return false;
        }
        Self::cell(entry).set_replace([bits, pulse, now.0]);
        if let Some(samples) = self.samples(index) {
            samples.push_overwrite([bits, pulse, now.0]);
        }
        true
    }

    /// Reads a variable. `None` if the index has none, or if its writer died during a write.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Reading> {
        let entry = self.known(index)?;
        let (writes, [bits, pulse, at]) = Self::cell(entry).get()?;
        let safe = entry[STANDS].load(Ordering::Acquire) != 0 && entry[HAS_SAFE].load(Ordering::Relaxed) != 0;
        let bits = if safe { entry[SAFE].load(Ordering::Relaxed) } else { bits };
        let value = Number::of(entry[TYPE].load(Ordering::Relaxed), bits)?;
        Some(Reading { value, pulse, at: MonoNs(at), writes: writes - 1, safe })
    }

    /// The present value of a variable and its bits, read without regard to a write in progress. For the process that
    /// formatted `words`, so the header is not checked again.
    ///
    /// Real-time: three loads.
    #[must_use]
    pub fn peek(words: &Words, index: usize) -> Option<(Number, u64)> {
        let bits = Self::peek_bits(words, index)?;
        let kind = words[HEADER + index * ENTRY + TYPE].load(Ordering::Relaxed);
        Number::of(kind, bits).map(|value| (value, bits))
    }

    /// As [`peek`](Self::peek), but returns only the bits.
    ///
    /// Real-time: one load.
    #[must_use]
    pub fn peek_bits(words: &Words, index: usize) -> Option<u64> {
        Some(words.get(HEADER + index.checked_mul(ENTRY)? + VALUE + 1)?.load(Ordering::Relaxed))
    }

    /// Number of last samples kept of each variable.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.kept
    }

    /// A cursor at the oldest sample of a variable that is still kept; `None` if no samples are kept.
    #[must_use]
    pub fn oldest(&self, index: usize) -> Option<Cursor> {
        self.known(index)?;
        Some(self.samples(index)?.from_oldest())
    }

    /// The next sample of a variable for `cursor`; `None` if there is no newer one. Samples that were overwritten before the
    /// reader got to them are skipped and counted in [`Cursor::lost`].
    pub fn next(&self, index: usize, cursor: &mut Cursor) -> Option<VariableSample> {
        let entry = self.known(index)?;
        let [bits, pulse, at] = self.samples(index)?.next(cursor)?;
        let value = Number::of(entry[TYPE].load(Ordering::Relaxed), bits)?;
        Some(VariableSample { value, pulse, at: MonoNs(at) })
    }

    /// Puts all safe values in force, or withdraws them. To be called by a frame's dispatcher, or by a loop or activity with a
    /// hard deadline.
    pub fn stand_safe(&self, safe: bool) {
        for entry in (0..self.len()).filter_map(|index| self.entry(index)) {
            entry[STANDS].store(safe.into(), Ordering::Release);
        }
    }

    fn known(&self, index: usize) -> Option<&'a Words> {
        self.entry(index).filter(|_| index < self.len())
    }

    fn entry(&self, index: usize) -> Option<&'a Words> {
        let first = HEADER + index.checked_mul(ENTRY)?;
        self.words.get(first..first + ENTRY).filter(|_| index < self.slots)
    }

    fn samples(&self, index: usize) -> Option<Samples<'a>> {
        self.sample_words(index).map(|words| Samples::bare(words, self.kept))
    }

    fn sample_words(&self, index: usize) -> Option<&'a Words> {
        if self.kept == 0 || index >= self.slots {
            return None;
        }
        let length = Samples::words_for(self.kept);
        let first = HEADER + self.slots * ENTRY + index * length;
        self.words.get(first..first + length)
    }

    fn cell(entry: &Words) -> Latest<'_, 3> {
        Latest::bare(&entry[VALUE..])
    }
}

fn check_kept(kept: u64) -> Result<usize, LayoutError> {
    match usize::try_from(kept) {
        Ok(kept) if kept == 0 || (kept.is_power_of_two() && kept <= SAMPLES_MAX) => Ok(kept),
        _ => Err(LayoutError::Shape {
            found: (kept as u32, 3),
            expected: "none or a power of two of samples, at most 65536",
        }),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::AtomicU64;
    use std::vec::Vec;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    const VOLTAGE: VariableSpec<'_> =
        VariableSpec { name: "cavity:voltage", unit: "MV", first: Number::Float(0.0), safe: Some(Number::Float(-1.0)) };

    #[test]
    fn a_variable_is_read_with_its_value_and_pulse() {
        let words = words(Variables::words_for(2));
        let mine = Variables::format(&words).unwrap();
        let index = mine.add(&VOLTAGE).unwrap();
        let theirs = Variables::attach(&words).unwrap();
        assert_eq!(theirs.get(index).unwrap().writes, 0, "not written yet");
        assert!(mine.set(index, Number::Float(1.5), 42, MonoNs(7)));
        let expected = Reading { value: Number::Float(1.5), pulse: 42, at: MonoNs(7), writes: 1, safe: false };
        assert_eq!(theirs.get(theirs.find("cavity:voltage").unwrap()), Some(expected));
        assert_eq!((theirs.unit(0).unwrap().as_str(), theirs.find("cavity")), ("MV", None));
    }

    #[test]
    fn a_safe_value_applies_until_it_is_withdrawn_and_only_if_one_is_set() {
        let words = words(Variables::words_for(2));
        let segment = Variables::format(&words).unwrap();
        let (with, without) =
            (segment.add(&VOLTAGE).unwrap(), segment.add(&VariableSpec { name: "n", safe: None, ..VOLTAGE }));
        segment.set(with, Number::Float(9.0), 1, MonoNs(1));
        segment.stand_safe(true);
        assert_eq!(segment.get(with).map(|read| (read.value, read.safe)), Some((Number::Float(-1.0), true)));
        assert!(!segment.get(without.unwrap()).unwrap().safe);
        segment.stand_safe(false);
        assert_eq!(segment.get(with).unwrap().value, Number::Float(9.0));
    }

    #[test]
    fn every_sample_is_read_once_until_the_writer_overwrites_it() {
        let words = words(Variables::words_keeping(2, 4));
        let mine = Variables::format_keeping(&words, 4).unwrap();
        let (one, other) = (mine.add(&VOLTAGE).unwrap(), mine.add(&VariableSpec { name: "n", ..VOLTAGE }).unwrap());
        assert!(mine.add(&VariableSpec { name: "m", ..VOLTAGE }).is_none(), "as many as fit");
        let theirs = Variables::attach(&words).unwrap();
        assert_eq!((theirs.kept(), theirs.oldest(2)), (4, None));
        let mut cursor = theirs.oldest(one).unwrap();
        assert_eq!(theirs.next(one, &mut cursor), None, "its first value was not written by the loop");
        let write = |pulse: u64| mine.set(one, Number::Float(pulse as f64), pulse, MonoNs(pulse * 10));
        let mut read = || {
            let all: Vec<u64> = core::iter::from_fn(|| theirs.next(one, &mut cursor)).map(|one| one.pulse).collect();
            (all, cursor.lost())
        };
        assert!((1..=3).all(write));
        assert_eq!(read(), (Vec::from([1, 2, 3]), 0));
        assert!((4..=9).all(write) && mine.set(other, Number::Float(7.5), 1, MonoNs(5)));
        assert_eq!(read(), (Vec::from([6, 7, 8, 9]), 2));
        let expected = VariableSample { value: Number::Float(7.5), pulse: 1, at: MonoNs(5) };
        assert_eq!(theirs.next(other, &mut theirs.oldest(other).unwrap()), Some(expected));
        words[KEPT].store(3, Ordering::Relaxed);
        assert!(matches!(Variables::attach(&words), Err(LayoutError::Shape { .. })));
        words[KEPT].store(8, Ordering::Relaxed);
        assert!(matches!(Variables::attach(&words), Err(LayoutError::Short { .. })));
    }

    #[test]
    fn variables_that_do_not_fit_the_segment_are_refused() {
        let words = words(Variables::words_for(2));
        assert!(matches!(Variables::format(&words[..HEADER + 3]), Err(LayoutError::Short { .. })));
        let segment = Variables::format(&words).unwrap();
        assert!(segment.add(&VOLTAGE).is_some() && segment.add(&VOLTAGE).is_none(), "a duplicate name");
        assert!(segment.add(&VariableSpec { name: &"x".repeat(65), ..VOLTAGE }).is_none(), "a long name");
        assert!(segment.add(&VariableSpec { name: "b", ..VOLTAGE }).is_some());
        assert!(segment.add(&VariableSpec { name: "c", ..VOLTAGE }).is_none(), "no room");
        assert!(!segment.set(0, Number::Int(1), 0, MonoNs(0)), "another type");
        assert_eq!((segment.get(2), segment.get(usize::MAX)), (None, None));
        words[COUNT].store(u64::MAX, Ordering::Relaxed);
        assert_eq!((segment.len(), segment.get(7)), (2, None), "a damaged count reaches no further than the memory");
    }
}
