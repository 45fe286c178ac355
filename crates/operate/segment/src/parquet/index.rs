//! Index of a chunk: positions of its pages, and its summary.

use super::{Column, Encoding, PLAIN_MAX};
use crate::bytes::{Bad, Input, put_varint, put_zigzag};
use crate::chunk::SAMPLES_MAX;
use crate::datum::Kind;
use crate::summary::Summary;

/// Maximum pages of a chunk.
const PAGES_MAX: usize = 8;

/// Values of a page, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The column that it belongs to.
    pub column: Column,
    pub(super) encoding: Encoding,
    /// Offset in the file.
    pub offset: u64,
    /// Compressed size in bytes.
    pub len: u32,
    /// Uncompressed size in bytes.
    plain: u32,
    /// Checksum of the compressed bytes.
    crc: u32,
}

/// A chunk: the pages of its columns, and a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Pages {
    /// Type of the values.
    pub kind: Kind,
    /// Number of samples.
    pub count: u32,
    /// The first stamp.
    pub first: i64,
    /// The last stamp.
    pub last: i64,
    /// Summary of its numbers; `None` for texts, arrays and blobs.
    pub summary: Option<Summary>,
    /// Its pages: time, values, and alarms and pulses if there are any.
    pub pages: Vec<Page>,
    /// Value dictionary shared by several chunks: its page and number of values.
    pub dictionary: Option<(Page, u32)>,
}

impl Page {
    pub(super) fn new(column: Column, encoding: Encoding, offset: u64, plain: usize, pressed: &[u8]) -> Self {
        let (len, plain, crc) = (pressed.len() as u32, plain as u32, crc32c::crc32c(pressed));
        Self { column, encoding, offset, len, plain, crc }
    }

    /// Uncompresses the values. Allocates the recorded size, at most 256 MiB.
    ///
    /// # Errors
    /// If the bytes differ from the written ones.
    pub(super) fn open(&self, pressed: &[u8]) -> Result<Vec<u8>, Bad> {
        if pressed.len() != self.len as usize {
            return Err(Bad::Short);
        }
        if crc32c::crc32c(pressed) != self.crc {
            return Err(Bad::Sum);
        }
        if snap::raw::decompress_len(pressed).ok() != Some(self.plain as usize) {
            return Err(Bad::Page);
        }
        snap::raw::Decoder::new().decompress_vec(pressed).map_err(|_| Bad::Page)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.column as u8, self.encoding as u8]);
        [self.offset, self.len.into(), self.plain.into()].iter().for_each(|number| put_varint(out, *number));
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Bad> {
        let (column, encoding) = (input.u8()?, input.u8()?);
        let column = Column::from_code(column).ok_or(Bad::Kind(column))?;
        let encoding = Encoding::from_code(encoding).ok_or(Bad::Kind(encoding))?;
        let offset = input.varint()?;
        let mut bounded = || {
            let found = input.varint()?;
            let max = u64::from(PLAIN_MAX) * 2;
            if found > max { Err(Bad::Count { found, max }) } else { Ok(found as u32) }
        };
        let (len, plain) = (bounded()?, bounded()?);
        Ok(Self { column, encoding, offset, len, plain, crc: input.u32()? })
    }
}

impl Pages {
    /// Appends the entry.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind.code());
        put_varint(out, self.count.into());
        put_zigzag(out, self.first);
        put_varint(out, self.last.wrapping_sub(self.first) as u64);
        out.push(self.pages.len() as u8);
        self.pages.iter().for_each(|page| page.write(out));
        let (page, numbers) = self.dictionary.map_or((None, 0), |(page, numbers)| (Some(page), numbers));
        put_varint(out, numbers.into());
        page.iter().for_each(|page| page.write(out));
        out.push(self.summary.is_some().into());
        self.summary.iter().for_each(|summary| summary.write(out));
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Bad> {
        let kind = Kind::from_code(input.u8()?)?;
        let count = input.varint()?;
        if count == 0 || count > SAMPLES_MAX as u64 {
            return Err(Bad::Count { found: count, max: SAMPLES_MAX as u64 });
        }
        let first = input.zigzag()?;
        let last = first.wrapping_add(input.varint()? as i64);
        let pages = usize::from(input.u8()?);
        if pages > PAGES_MAX {
            return Err(Bad::Count { found: pages as u64, max: PAGES_MAX as u64 });
        }
        let pages = (0..pages).map(|_| Page::read(input)).collect::<Result<_, _>>()?;
        let dictionary = match input.varint()? {
            0 => None,
            numbers => Some((Page::read(input)?, u32::try_from(numbers).map_err(|_| Bad::Number)?)),
        };
        let summary = if input.u8()? == 0 { None } else { Some(Summary::read(input)?) };
        Ok(Self { kind, count: count as u32, first, last, summary, pages, dictionary })
    }
}

/// Parses a block of an index: the signal's number and its chunks.
///
/// # Errors
/// If the bytes are not valid entries.
pub fn entries(payload: &[u8]) -> Result<(u32, Vec<Pages>), Bad> {
    let mut input = Input(payload);
    let id = input.u32()?;
    let mut entries = Vec::new();
    while !input.is_empty() {
        entries.push(Pages::read(&mut input)?);
    }
    Ok((id, entries))
}
