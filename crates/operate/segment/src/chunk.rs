//! Successive samples of one signal, in columns.
//!
//! | part | bytes |
//! |---|---|
//! | flags | 1: pulses (bit 0), unit of stamps (1–2), alarms (3), one sample only (4), way of numbers (5–6), uneven stamps (7) |
//! | type | 1 |
//! | count | varint, unless it is one |
//! | stamps | since the block's base, in the unit; first, first step, changes of the step ([`ints`]); uneven ones: steps side by side in as few bits as they need |
//! | alarms | severity · 65536 + status, differences; left out where there is none |
//! | pulses | as stamps; left out where there are none |
//! | values | numbers with a point: [`floats`]; others: differences; what varies in length: 0 for the same as before, else length + 1 and the bytes |
//!
//! A loop's stamps and pulses are so `t0 + k·period`: two or three bytes for all that came in time, and a few for each that was late.

use crate::bytes::{Bad, Input, put_varint};
use crate::datum::{Datum, Kind, Sample};
use crate::floats::{self, Way, Width};
use crate::{Summary, ints};
use base::FieldType;

/// Most samples in a chunk.
pub const SAMPLES_MAX: usize = 8_192;

/// Most bytes of a value that varies in length.
pub const VALUE_MAX: usize = 16 << 20;

/// Bytes of values from which on a chunk takes no more.
const BYTES_ENOUGH: usize = 1 << 20;

/// Units of stamps in nanoseconds, by the bits that stand for them.
const UNITS: [i64; 4] = [1, 1_000, 1_000_000, 1_000_000_000];

const PULSES: u8 = 1;
const ALARMS: u8 = 8;
const ONE: u8 = 16;
const UNEVEN: u8 = 128;

/// Samples from which on it is looked whether stamps are uneven: those of a loop that syncs often are few in a chunk.
const UNEVEN_FROM: usize = 16;

/// Successive samples of one signal: of one type, in order of time, all with a pulse or all without.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub(crate) kind: Kind,
    pub(crate) at: Vec<i64>,
    /// Severity · 65536 + status.
    pub(crate) alarms: Vec<u32>,
    pub(crate) pulses: Vec<u64>,
    /// Of numbers.
    pub(crate) bits: Vec<u64>,
    /// Of what varies in length: where each ends in `bytes`.
    pub(crate) ends: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Why a chunk does not take a sample: it goes into the next one, but for [`Full::TooLong`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There are as many as a chunk takes.
    Count,
    /// It is of another type.
    Kind,
    /// It is older than the last one: somebody has set a clock back.
    Backwards,
    /// It has a pulse and those before have none, or the other way round.
    Pulse,
    /// It has more than [`VALUE_MAX`] bytes: no chunk takes it.
    TooLong,
}

impl Chunk {
    /// None yet.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            at: Vec::new(),
            alarms: Vec::new(),
            pulses: Vec::new(),
            bits: Vec::new(),
            ends: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Forgets all samples and keeps the memory, for samples of a type.
    pub fn reset(&mut self, kind: Kind) {
        self.kind = kind;
        self.at.clear();
        self.alarms.clear();
        self.pulses.clear();
        self.bits.clear();
        self.ends.clear();
        self.bytes.clear();
    }

    /// The values' type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How many samples there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// When each was measured, ascending.
    #[must_use]
    pub fn stamps(&self) -> &[i64] {
        &self.at
    }

    /// Appends a sample. Allocates where there is no room left; a chunk that is reset keeps its room.
    ///
    /// # Errors
    /// Why not.
    pub fn push(&mut self, sample: &Sample) -> Result<(), Full> {
        if let Some(last) = self.at.last() {
            if self.len() >= SAMPLES_MAX || self.bytes.len() >= BYTES_ENOUGH {
                return Err(Full::Count);
            }
            if sample.at < *last {
                return Err(Full::Backwards);
            }
            if sample.pulse.is_some() == self.pulses.is_empty() {
                return Err(Full::Pulse);
            }
        }
        if sample.datum.kind() != self.kind {
            return Err(Full::Kind);
        }
        match sample.datum.bits() {
            Some(bits) => self.bits.push(bits),
            None => {
                let begin = self.bytes.len();
                sample.datum.put_bytes(&mut self.bytes);
                if self.bytes.len() - begin > VALUE_MAX {
                    self.bytes.truncate(begin);
                    return Err(Full::TooLong);
                }
                self.ends.push(self.bytes.len());
            }
        }
        self.at.push(sample.at);
        self.alarms.push(u32::from(sample.severity) << 16 | u32::from(sample.status));
        self.pulses.extend(sample.pulse);
        Ok(())
    }

    /// The sample at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Sample> {
        let alarm = *self.alarms.get(index)?;
        Some(Sample {
            at: *self.at.get(index)?,
            datum: self.datum(index)?,
            severity: (alarm >> 16) as u8,
            status: alarm as u16,
            pulse: self.pulses.get(index).copied(),
        })
    }

    /// All samples.
    pub fn iter(&self) -> impl Iterator<Item = Sample> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The value at `index` as a number; `None` beyond the end, and for texts, arrays, blobs.
    #[must_use]
    #[inline]
    pub fn number(&self, index: usize) -> Option<f64> {
        match self.kind {
            Kind::Number(FieldType::F64) => Some(f64::from_bits(*self.bits.get(index)?)),
            Kind::Number(kind) => Datum::from_bits(kind, *self.bits.get(index)?).to_f64(),
            Kind::Bool => self.bits.get(index).map(|bits| *bits as f64),
            _ => None,
        }
    }

    /// The severity at `index`.
    #[must_use]
    pub fn severity(&self, index: usize) -> u8 {
        self.alarms.get(index).map_or(0, |alarm| (alarm >> 16) as u8)
    }

    /// What the numbers in a range are together; `None` for texts, arrays, blobs, and where the range is empty or ends beyond
    /// the chunk. Does not allocate.
    #[must_use]
    pub fn summary(&self, range: std::ops::Range<usize>) -> Option<Summary> {
        let (stamps, bits) = (self.at.get(range.clone())?, self.bits.get(range.clone())?);
        let severity = self.alarms.get(range)?.iter().max().map(|alarm| (alarm >> 16) as u8)?;
        Some(match self.kind {
            Kind::Number(FieldType::F64) => {
                Summary::of(stamps, || bits.iter().map(|bits| f64::from_bits(*bits)), severity)
            }
            Kind::Number(kind) => {
                let number = |bits: &u64| Datum::from_bits(kind, *bits).to_f64().unwrap_or(f64::NAN);
                Summary::of(stamps, || bits.iter().map(number), severity)
            }
            Kind::Bool => Summary::of(stamps, || bits.iter().map(|bits| *bits as f64), severity),
            _ => return None,
        })
    }

    /// First and last stamp and the number of samples of a chunk in bytes; values are not looked at. Does not allocate.
    ///
    /// # Errors
    /// What the bytes are not.
    pub fn span(bytes: &[u8], base: i64) -> Result<(i64, i64, usize), Bad> {
        let mut input = Input(bytes);
        let (flags, _, count) = begin(&mut input)?;
        let unit = UNITS[usize::from(flags >> 1 & 3)];
        let mut ends: Option<(i64, i64)> = None;
        stamps(&mut input, flags, count, |since| {
            let at = base.wrapping_add(since.wrapping_mul(unit));
            ends = Some((ends.map_or(at, |(first, _)| first), at));
        })?;
        let (first, last) = ends.ok_or(Bad::Short)?;
        Ok((first, last, count))
    }

    fn datum(&self, index: usize) -> Option<Datum> {
        Some(match self.kind {
            Kind::Bool => Datum::Bool(*self.bits.get(index)? != 0),
            Kind::Number(kind) => Datum::from_bits(kind, *self.bits.get(index)?),
            // Looked at when it came in.
            _ => Datum::from_bytes(self.kind, self.bytes_of(index)?).ok()?,
        })
    }

    /// The bytes of what varies in length.
    pub(crate) fn bytes_of(&self, index: usize) -> Option<&[u8]> {
        let begin = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(begin..*self.ends.get(index)?)
    }

    /// Appends the chunk's bytes; stamps count from `base`. Without samples nothing is written.
    pub fn encode(&self, base: i64, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        let begin = out.len();
        let unit = self.unit(base);
        let mut flags = unit << 1;
        out.extend_from_slice(&[0, self.kind.code()]);
        if self.len() == 1 {
            flags |= ONE;
        } else {
            put_varint(out, self.len() as u64);
        }
        let unit = UNITS[usize::from(unit)];
        let stamps = out.len();
        if unit == 1 {
            ints::put_steps(out, self.at.iter().map(|at| at.wrapping_sub(base)));
        } else {
            ints::put_steps(out, self.at.iter().map(|at| at.wrapping_sub(base) / unit));
        }
        let most = out.len() - stamps;
        // What came in time takes less than that.
        if self.len() >= UNEVEN_FROM && most > self.len() {
            let values: Vec<i64> = self.at.iter().map(|at| at.wrapping_sub(base) / unit).collect();
            if ints::put_uneven(out, most, &values) {
                out.drain(stamps..stamps + most);
                flags |= UNEVEN;
            }
        }
        if self.alarms.iter().any(|alarm| *alarm != 0) {
            flags |= ALARMS;
            ints::put_deltas(out, self.alarms.iter().map(|alarm| i64::from(*alarm)));
        }
        if !self.pulses.is_empty() {
            flags |= PULSES;
            ints::put_steps(out, self.pulses.iter().map(|pulse| *pulse as i64));
        }
        match width(self.kind) {
            Some(width) => flags |= (floats::put(out, width, &self.bits) as u8) << 5,
            None if self.kind.varies() => self.put_varying(out),
            None => ints::put_deltas(out, self.bits.iter().map(|bits| *bits as i64)),
        }
        out[begin] = flags;
    }

    /// The widest unit that all stamps are whole numbers of.
    fn unit(&self, base: i64) -> u8 {
        let whole = |unit: i64| self.at.iter().all(|at| at.wrapping_sub(base) % unit == 0);
        (1..UNITS.len()).take_while(|bits| whole(UNITS[*bits])).last().unwrap_or(0) as u8
    }

    fn put_varying(&self, out: &mut Vec<u8>) {
        let mut begin = 0;
        let mut before: Option<&[u8]> = None;
        for end in &self.ends {
            let value = &self.bytes[begin..*end];
            if before == Some(value) {
                out.push(0);
            } else {
                put_varint(out, value.len() as u64 + 1);
                out.extend_from_slice(value);
            }
            before = Some(value);
            begin = *end;
        }
    }

    /// Reads a chunk that is all of `bytes`. Allocates for [`SAMPLES_MAX`] samples at most, and for values what the bytes
    /// hold, repeated ones up to [`VALUE_MAX`] bytes together with a longest one more.
    ///
    /// # Errors
    /// What the bytes are not.
    pub fn decode(bytes: &[u8], base: i64) -> Result<Self, Bad> {
        let mut input = Input(bytes);
        let (flags, kind, count) = begin(&mut input)?;
        let mut chunk = Self::new(kind);
        let unit = UNITS[usize::from(flags >> 1 & 3)];
        chunk.at.reserve_exact(count);
        stamps(&mut input, flags, count, |since| chunk.at.push(base.wrapping_add(since.wrapping_mul(unit))))?;
        if !chunk.at.is_sorted() {
            return Err(Bad::Number);
        }
        chunk.alarms.reserve_exact(count);
        if flags & ALARMS == 0 {
            chunk.alarms.resize(count, 0);
        } else {
            ints::deltas(&mut input, count, |alarm| chunk.alarms.push(alarm as u32))?;
        }
        if flags & PULSES != 0 {
            chunk.pulses.reserve_exact(count);
            ints::steps(&mut input, count, |pulse| chunk.pulses.push(pulse as u64))?;
        }
        match width(chunk.kind) {
            Some(width) => {
                let way = Way::from_bits(flags >> 5 & 3).ok_or(Bad::Kind(flags))?;
                chunk.bits = floats::get(&mut input, width, way, count)?;
            }
            None if chunk.kind.varies() => chunk.varying(&mut input, count)?,
            None => ints::deltas(&mut input, count, |bits| chunk.bits.push(bits as u64))?,
        }
        if input.is_empty() { Ok(chunk) } else { Err(Bad::Rest) }
    }

    fn varying(&mut self, input: &mut Input<'_>, count: usize) -> Result<(), Bad> {
        let mut before = 0..0;
        for _ in 0..count {
            if self.bytes.len() > VALUE_MAX {
                return Err(Bad::Count { found: self.bytes.len() as u64, max: VALUE_MAX as u64 });
            }
            let begin = self.bytes.len();
            match input.varint()? {
                0 => self.bytes.extend_from_within(before),
                len => {
                    let value = input.take(usize::try_from(len - 1).map_err(|_| Bad::Short)?)?;
                    Datum::from_bytes(self.kind, value)?;
                    self.bytes.extend_from_slice(value);
                }
            }
            before = begin..self.bytes.len();
            self.ends.push(self.bytes.len());
        }
        Ok(())
    }
}

/// What a chunk begins with: flags, type, count.
fn begin(input: &mut Input<'_>) -> Result<(u8, Kind, usize), Bad> {
    let flags = input.u8()?;
    let kind = Kind::from_code(input.u8()?)?;
    let count = if flags & ONE != 0 { 1 } else { input.varint()? };
    if count == 0 || count > SAMPLES_MAX as u64 {
        return Err(Bad::Count { found: count, max: SAMPLES_MAX as u64 });
    }
    Ok((flags, kind, count as usize))
}

/// Reads stamps in their unit.
fn stamps(input: &mut Input<'_>, flags: u8, count: usize, take: impl FnMut(i64)) -> Result<(), Bad> {
    if flags & UNEVEN != 0 { ints::uneven(input, count, take) } else { ints::steps(input, count, take) }
}

/// The width of numbers with a point.
const fn width(kind: Kind) -> Option<Width> {
    match kind {
        Kind::Number(FieldType::F64) => Some(Width::Eight),
        Kind::Number(FieldType::F32) => Some(Width::Four),
        _ => None,
    }
}

#[cfg(test)]
#[path = "chunk_tests.rs"]
mod tests;
