//! Chunk: consecutive samples of one signal, stored in columns.
//!
//! | part | bytes |
//! |---|---|
//! | flags | 1: pulses (bit 0), unit of stamps (1–2), alarms (3), single sample (4), encoding of floats (5–6), uneven stamps (7) |
//! | type | 1 |
//! | count | varint; omitted if 1 |
//! | stamps | relative to the block's base, in the unit: first, first step, changes of the step ([`ints`]); if uneven: bit-packed steps |
//! | alarms | severity · 65536 + status, as differences; omitted if there are none |
//! | pulses | like stamps; omitted if there are none |
//! | values | floats: [`floats`]; integers: differences; variable length: 0 if equal to the previous value, otherwise length + 1 and the bytes |
//!
//! The stamps and pulses of a loop are `t0 + k·period`. They take two or three bytes for all punctual samples, and a few for each
//! late one.

use crate::bytes::{Bad, Input, put_varint};
use crate::datum::{Datum, Kind, Sample};
use crate::floats::{self, FloatEncoding, Width};
use crate::{Summary, ints};
use base::FieldType;

/// Maximum samples in a chunk.
pub const SAMPLES_MAX: usize = 8_192;

/// Maximum bytes of a variable-length value.
pub const VALUE_MAX: usize = 16 << 20;

/// Size of variable-length values in bytes at which a chunk is full.
const BYTES_ENOUGH: usize = 1 << 20;

/// Units of stamps in nanoseconds, indexed by their code.
const UNITS: [i64; 4] = [1, 1_000, 1_000_000, 1_000_000_000];

const PULSES: u8 = 1;
const ALARMS: u8 = 8;
const ONE: u8 = 16;
const UNEVEN: u8 = 128;

/// Minimum samples for trying the encoding of uneven stamps. Chunks of a loop with frequent syncs have few samples.
const UNEVEN_FROM: usize = 16;

/// Consecutive samples of one signal. All have the same type, ascending stamps, and either all or none have a pulse.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub(crate) kind: Kind,
    pub(crate) at: Vec<i64>,
    /// Severity · 65536 + status.
    pub(crate) alarms: Vec<u32>,
    pub(crate) pulses: Vec<u64>,
    /// Values of fixed length.
    pub(crate) bits: Vec<u64>,
    /// Variable-length values: end of each in `bytes`.
    pub(crate) ends: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Reason why a sample does not fit into a chunk. It fits into the next one, except [`Full::TooLong`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The chunk is full.
    Count,
    /// The type differs.
    Kind,
    /// The sample is older than the last one: the clock was set back.
    Backwards,
    /// The sample has a pulse and the previous ones have none, or vice versa.
    Pulse,
    /// The value has more than [`VALUE_MAX`] bytes and does not fit into any chunk.
    TooLong,
}

impl Chunk {
    /// An empty chunk.
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

    /// Removes all samples and sets the type. Keeps the memory.
    pub fn reset(&mut self, kind: Kind) {
        self.kind = kind;
        self.at.clear();
        self.alarms.clear();
        self.pulses.clear();
        self.bits.clear();
        self.ends.clear();
        self.bytes.clear();
    }

    /// Type of the values.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Number of samples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Time stamps, ascending.
    #[must_use]
    pub fn stamps(&self) -> &[i64] {
        &self.at
    }

    /// Appends a sample. Allocates if the capacity is exhausted; [`reset`](Self::reset) keeps the capacity.
    ///
    /// # Errors
    /// If the sample does not fit; the chunk is unchanged.
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

    /// The value at `index` as a number; `None` beyond the end, and for texts, arrays and blobs.
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

    /// Summary of the numbers in a range. `None` for texts, arrays and blobs, and if the range is empty or exceeds the chunk.
    /// Does not allocate.
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

    /// First stamp, last stamp and number of samples of an encoded chunk. Does not decode the values. Does not allocate.
    ///
    /// # Errors
    /// If the bytes are not a valid chunk.
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
            // Validated when it was added.
            _ => Datum::from_bytes(self.kind, self.bytes_of(index)?).ok()?,
        })
    }

    /// The bytes of a variable-length value.
    pub(crate) fn bytes_of(&self, index: usize) -> Option<&[u8]> {
        let begin = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(begin..*self.ends.get(index)?)
    }

    /// Appends the encoded chunk, with stamps relative to `base`. Writes nothing if the chunk is empty.
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
        // Punctual samples take fewer bytes than that.
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

    /// Code of the largest unit that divides all stamps.
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

    /// Decodes a chunk that occupies all of `bytes`. Allocates at most [`SAMPLES_MAX`] samples, plus the values. Repeated values
    /// are bounded by [`VALUE_MAX`] bytes in total plus one longest value.
    ///
    /// # Errors
    /// If the bytes are not a valid chunk.
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
                let way = FloatEncoding::from_bits(flags >> 5 & 3).ok_or(Bad::Kind(flags))?;
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

/// Reads flags, type and count.
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

/// Width of floating-point values.
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
