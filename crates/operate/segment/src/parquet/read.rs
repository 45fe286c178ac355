//! Decoding a chunk from its pages.

use super::index::{Page, Pages};
use super::words::bytes;
use super::{Column, Encoding, delta, runs};
use crate::bytes::{Bad, Input};
use crate::chunk::{Chunk, VALUE_MAX};
use crate::datum::{Datum, Kind};
use base::{Array, FieldType, Str40};

/// Maximum elements of all arrays of a chunk.
const ELEMENTS_MAX: usize = 2 * VALUE_MAX;

impl Pages {
    /// Reads a value dictionary from its page.
    ///
    /// # Errors
    /// If the bytes differ from the written ones.
    pub fn numbers(page: &Page, count: u32, pressed: &[u8]) -> Result<Vec<u64>, Bad> {
        let plain = page.open(pressed)?;
        let (words, rest) = plain.as_chunks::<8>();
        if !rest.is_empty() || words.len() != count as usize {
            return Err(Bad::Rest);
        }
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Decodes the chunk from the compressed pages, in the order of [`pages`](Self::pages), and its value dictionary. Allocates
    /// the recorded sizes, which are checked against the bytes.
    ///
    /// # Errors
    /// If the bytes differ from the written ones.
    pub fn decode(&self, pressed: &[Vec<u8>], dictionary: Option<&[u64]>) -> Result<Chunk, Bad> {
        let count = self.count as usize;
        let page = |column: Column| self.pages.iter().zip(pressed).find(|(page, _)| page.column == column);
        let open =
            |column: Column| page(column).map(|(page, bytes)| Ok((page.encoding, page.open(bytes)?))).transpose();
        let integers = |column: Column| -> Result<Option<Vec<i64>>, Bad> {
            let Some((encoding, plain)) = open(column)? else { return Ok(None) };
            let mut input = Input(&plain);
            all_there(&mut input, count)?;
            if encoding != Encoding::Delta {
                return Err(Bad::Page);
            }
            delta::get(&mut input, count).map(Some)
        };
        let mut chunk = Chunk::new(self.kind);
        let (_, times) = open(Column::Time)?.ok_or(Bad::Page)?;
        chunk.at = delta::get(&mut Input(&times), count)?;
        if !chunk.at.is_sorted() {
            return Err(Bad::Number);
        }
        match (integers(Column::Severity)?, integers(Column::Status)?) {
            (Some(severities), Some(statuses)) => {
                let both = severities.iter().zip(&statuses);
                chunk.alarms =
                    both.map(|(severity, status)| (*severity as u32) << 16 | *status as u16 as u32).collect();
            }
            _ => chunk.alarms.resize(count, 0),
        }
        if let Some(pulses) = integers(Column::Pulse)? {
            chunk.pulses = pulses.into_iter().map(|pulse| pulse as u64).collect();
        }
        match Column::of(self.kind) {
            Column::Value => {
                let (encoding, plain) = open(Column::Value)?.ok_or(Bad::Page)?;
                chunk.bits = doubles(&plain, encoding, count, dictionary)?;
                if self.kind != Kind::Number(FieldType::F64) {
                    let of = self.kind;
                    chunk.bits.iter_mut().for_each(|bits| *bits = narrowed(of, f64::from_bits(*bits)));
                }
            }
            column @ (Column::ValueI64 | Column::ValueU64) => {
                chunk.bits = integers(column)?.ok_or(Bad::Page)?.into_iter().map(|bits| bits as u64).collect();
            }
            Column::Text | Column::Blob => {
                let (text, blob) = (open(Column::Text)?, open(Column::Blob)?);
                texts(
                    &mut chunk,
                    text.as_ref().map(|(_, plain)| &plain[..]),
                    blob.as_ref().map(|(_, plain)| &plain[..]),
                    count,
                )?;
            }
            column => {
                let (encoding, plain) = open(column)?.ok_or(Bad::Page)?;
                arrays(&mut chunk, &plain, encoding, count)?;
            }
        }
        Ok(chunk)
    }
}

/// Reads the levels of a page.
fn level<'a>(input: &mut Input<'a>) -> Result<Input<'a>, Bad> {
    let len = input.u32()?;
    Ok(Input(input.take(len as usize)?))
}

/// Reads levels that mark all values as present.
fn all_there(input: &mut Input<'_>, count: usize) -> Result<(), Bad> {
    let mut some = level(input)?;
    let run = some.varint()?;
    if run != (count as u64) << 1 || some.u8()? != 1 { Err(Bad::Page) } else { Ok(()) }
}

fn doubles(plain: &[u8], encoding: Encoding, count: usize, dictionary: Option<&[u64]>) -> Result<Vec<u64>, Bad> {
    let mut input = Input(plain);
    all_there(&mut input, count)?;
    match encoding {
        Encoding::Split => joined(input.0, count),
        Encoding::Dictionary => {
            let (numbers, width) = (dictionary.ok_or(Bad::Page)?, u32::from(input.u8()?));
            if width > 32 {
                return Err(Bad::Number);
            }
            let stand = runs::get(&mut input, width, count)?;
            stand.iter().map(|number| numbers.get(*number as usize).copied().ok_or(Bad::Number)).collect()
        }
        _ => Err(Bad::Page),
    }
}

/// Joins values that were split by bytes.
fn joined(bytes: &[u8], count: usize) -> Result<Vec<u64>, Bad> {
    if bytes.len() != count * 8 {
        return Err(Bad::Short);
    }
    let mut values = vec![0u64; count];
    if count > 0 {
        for (byte, some) in bytes.chunks_exact(count).enumerate() {
            values.iter_mut().zip(some).for_each(|(value, part)| *value |= u64::from(*part) << (8 * byte));
        }
    }
    Ok(values)
}

/// The bits of a number of type `kind`, converted from a double.
fn narrowed(kind: Kind, value: f64) -> u64 {
    match kind {
        Kind::Bool => u64::from(value != 0.0),
        Kind::Number(FieldType::F32) => (value as f32).to_bits().into(),
        Kind::Number(_) => value as i64 as u64,
        _ => value.to_bits(),
    }
}

fn texts(chunk: &mut Chunk, text: Option<&[u8]>, blob: Option<&[u8]>, count: usize) -> Result<(), Bad> {
    let begin = |plain: &'_ [u8]| -> Result<Vec<u32>, Bad> { runs::get(&mut level(&mut Input(plain))?, 1, count) };
    let rest = |plain: &[u8]| -> Result<usize, Bad> {
        let mut input = Input(plain);
        level(&mut input)?;
        Ok(plain.len() - input.0.len())
    };
    let is_text = text.map(begin).transpose()?;
    let mut texts = Input(text.map_or(Ok(&[][..]), |plain| Ok(&plain[rest(plain)?..]))?);
    let mut blobs = Input(blob.map_or(Ok(&[][..]), |plain| Ok(&plain[rest(plain)?..]))?);
    for index in 0..count {
        let is_here = is_text.as_ref().is_some_and(|some| some[index] == 1);
        chunk.bytes.extend_from_slice(bytes(if is_here { &mut texts } else { &mut blobs })?);
        chunk.ends.push(chunk.bytes.len());
    }
    if texts.is_empty() && blobs.is_empty() { Ok(()) } else { Err(Bad::Rest) }
}

fn arrays(chunk: &mut Chunk, plain: &[u8], encoding: Encoding, count: usize) -> Result<(), Bad> {
    let Kind::Array(of) = chunk.kind else { return Err(Bad::Kind(chunk.kind.code())) };
    let mut input = Input(plain);
    let (mut repeated, mut defined) = (level(&mut input)?, level(&mut input)?);
    // Repetition levels: 0 starts an array, 1 continues it. They give the lengths.
    let mut lens: Vec<usize> = Vec::with_capacity(count);
    let mut total = 0usize;
    while !repeated.is_empty() {
        let run = repeated.varint()?;
        let (is_on, rows) = (repeated.u8()? == 1, usize::try_from(run >> 1).unwrap_or(usize::MAX));
        total = total.saturating_add(rows);
        if run & 1 != 0 || total > ELEMENTS_MAX || (!is_on && rows > count - lens.len()) {
            return Err(Bad::Number);
        }
        if is_on {
            *lens.last_mut().ok_or(Bad::Number)? += rows;
        } else {
            lens.resize(lens.len() + rows, 1);
        }
    }
    if lens.len() != count {
        return Err(Bad::Number);
    }
    let here = runs::get(&mut defined, 2, total)?;
    let mut at = 0;
    for len in &mut lens {
        let first = here[at];
        at += *len;
        if first == 1 {
            *len = 0;
        } else if first != 2 {
            return Err(Bad::Number);
        }
    }
    let elements: usize = lens.iter().sum();
    let mut values = elements_of(of, &mut input, encoding, elements)?;
    for len in lens {
        put(of, &mut values, len, &mut chunk.bytes)?;
        chunk.ends.push(chunk.bytes.len());
    }
    Ok(())
}

/// Decoded elements, to be distributed to their arrays.
enum Elements<'a> {
    Words(std::vec::IntoIter<u64>),
    Texts(Input<'a>),
}

fn elements_of<'a>(
    of: FieldType,
    input: &mut Input<'a>,
    encoding: Encoding,
    count: usize,
) -> Result<Elements<'a>, Bad> {
    Ok(match (of, encoding) {
        (FieldType::F32 | FieldType::F64, Encoding::Split) => Elements::Words(joined(input.0, count)?.into_iter()),
        (FieldType::String | FieldType::Link, Encoding::Plain) => Elements::Texts(*input),
        (_, Encoding::Delta) => {
            let words: Vec<u64> = delta::get(input, count)?.into_iter().map(|value| value as u64).collect();
            Elements::Words(words.into_iter())
        }
        _ => return Err(Bad::Page),
    })
}

/// Appends the bytes of an array as stored in a chunk.
fn put(of: FieldType, values: &mut Elements<'_>, len: usize, out: &mut Vec<u8>) -> Result<(), Bad> {
    match values {
        Elements::Texts(input) => {
            let mut texts = Vec::with_capacity(len.min(4_096));
            for _ in 0..len {
                let text = str::from_utf8(bytes(input)?).map_err(|_| Bad::Text)?;
                texts.push(Str40::new(&crate::unescaped(text).ok_or(Bad::Text)?));
            }
            Datum::Array(Array::String(texts)).put_bytes(out);
        }
        Elements::Words(words) => {
            let bytes = match of {
                FieldType::I8 | FieldType::U8 => 1,
                FieldType::I16 | FieldType::U16 | FieldType::Enum | FieldType::Menu | FieldType::Device => 2,
                FieldType::I32 | FieldType::U32 | FieldType::F32 => 4,
                _ => 8,
            };
            for word in words.take(len) {
                let word = if of == FieldType::F32 { narrowed(Kind::Number(of), f64::from_bits(word)) } else { word };
                out.extend_from_slice(&word.to_le_bytes()[..bytes]);
            }
        }
    }
    Ok(())
}
