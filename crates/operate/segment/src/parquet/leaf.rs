//! A column of a row group that is being filled.

use super::index::Page;
use super::thrift::Thrift;
use super::{Column, Encoding, delta, runs};

/// Content of equal rows that share a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Filler {
    /// No value.
    Nothing,
    /// The value 0.
    Zero,
}

/// Compressor for pages; reuses its buffer.
pub(super) struct Press {
    encoder: snap::raw::Encoder,
    out: Vec<u8>,
}

impl Press {
    pub(super) fn new() -> Self {
        Self { encoder: snap::raw::Encoder::new(), out: Vec::new() }
    }

    pub(super) fn press(&mut self, plain: &[u8]) -> &[u8] {
        self.out.resize(snap::raw::max_compress_len(plain.len()), 0);
        // Fails only for more than 4 GiB or too small a buffer.
        let len = self.encoder.compress(plain, &mut self.out).unwrap_or(0);
        &self.out[..len]
    }
}

/// A column.
pub(super) struct Leaf {
    pub(super) column: Column,
    /// Pages, each with its header.
    pub(super) pages: Vec<u8>,
    /// Their uncompressed size in bytes.
    pub(super) plain: u64,
    /// Number of values, including missing ones, and number of missing values.
    pub(super) values: u64,
    pub(super) missing: u64,
    /// Encodings used, one bit each.
    pub(super) encodings: u16,
    waits: Option<(Filler, u64)>,
}

impl Leaf {
    pub(super) const fn new(column: Column) -> Self {
        Self { column, pages: Vec::new(), plain: 0, values: 0, missing: 0, encodings: 0, waits: None }
    }

    /// Removes all contents. Keeps the memory.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        (self.plain, self.values, self.missing, self.encodings, self.waits) = (0, 0, 0, 0, None);
    }

    /// Appends equal rows.
    pub(super) fn fill(&mut self, press: &mut Press, filler: Filler, rows: u64) {
        match &mut self.waits {
            Some((last, so_far)) if *last == filler => *so_far += rows,
            _ => {
                self.flush(press);
                self.waits = Some((filler, rows));
            }
        }
    }

    /// Writes the page of pending equal rows.
    pub(super) fn flush(&mut self, press: &mut Press) {
        let Some((filler, rows)) = self.waits.take().filter(|(_, rows)| *rows > 0) else { return };
        let mut body = Vec::new();
        if self.column.is_list() {
            levels(&mut body, 1, [(0, rows)]);
            levels(&mut body, 2, [(0, rows)]);
            self.put(press, rows, rows, Encoding::Plain, &body);
            return;
        }
        match filler {
            Filler::Nothing => {
                levels(&mut body, 1, [(0, rows)]);
                self.put(press, rows, rows, Encoding::Plain, &body);
            }
            Filler::Zero => {
                levels(&mut body, 1, [(1, rows)]);
                delta::put(&mut body, std::iter::repeat_n(0, rows as usize));
                self.put(press, rows, 0, Encoding::Delta, &body);
            }
        }
    }

    /// Appends a page. Returns its position within the column.
    pub(super) fn page(
        &mut self,
        press: &mut Press,
        values: u64,
        missing: u64,
        encoding: Encoding,
        body: &[u8],
    ) -> Page {
        self.flush(press);
        self.put(press, values, missing, encoding, body)
    }

    fn put(&mut self, press: &mut Press, values: u64, missing: u64, encoding: Encoding, body: &[u8]) -> Page {
        let pressed = press.press(body);
        let mut header = Thrift::default();
        header.i32(1, 0);
        header.i32(2, body.len() as i32);
        header.i32(3, pressed.len() as i32);
        header.begin(5);
        header.i32(1, values as i32);
        header.i32(2, encoding as i32);
        // Levels use runs.
        header.i32(3, RLE);
        header.i32(4, RLE);
        header.end();
        header.end();
        self.pages.extend_from_slice(&header.out);
        let page = Page::new(self.column, encoding, self.pages.len() as u64, body.len(), pressed);
        self.pages.extend_from_slice(pressed);
        self.plain += (header.out.len() + body.len()) as u64;
        (self.values, self.missing) = (self.values + values, self.missing + missing);
        self.encodings |= 1 << encoding as u8;
        page
    }
}

/// Parquet's code of the RLE encoding.
pub(super) const RLE: i32 = 3;

/// Writes a dictionary page with its header.
pub(super) fn dictionary(press: &mut Press, column: Column, count: usize, body: &[u8], out: &mut Vec<u8>) -> Page {
    let pressed = press.press(body);
    let mut header = Thrift::default();
    header.i32(1, 2);
    header.i32(2, body.len() as i32);
    header.i32(3, pressed.len() as i32);
    header.begin(7);
    header.i32(1, count as i32);
    header.i32(2, Encoding::Plain as i32);
    header.end();
    header.end();
    out.extend_from_slice(&header.out);
    let page = Page::new(column, Encoding::Plain, out.len() as u64, body.len(), pressed);
    out.extend_from_slice(pressed);
    page
}

/// Writes levels, preceded by their length.
pub(super) fn levels(out: &mut Vec<u8>, width: u32, some: impl IntoIterator<Item = (u32, u64)>) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    runs::put(out, width, some);
    let len = (out.len() - begin - 4) as u32;
    out[begin..begin + 4].copy_from_slice(&len.to_le_bytes());
}
