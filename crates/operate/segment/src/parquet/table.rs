//! Writing a table: pages, row groups, and the footer.

use super::index::{Page, Pages};
use super::leaf::{Filler, Leaf, Press, RLE, dictionary, levels};
use super::thrift::{STRUCT, Thrift};
use super::words::{self, Words, put_bytes};
use super::{Column, Encoding, MAGIC, delta, end, runs};
use crate::chunk::Chunk;
use crate::datum::{Datum, Kind};
use crate::rows::{Gap, Signal};
use base::{Array, FieldType, Scalar};
use std::collections::HashMap;

/// Maximum rows of a group; the last chunk may exceed it.
const ROWS_MAX: u64 = 128 << 10;
/// Rows at which a group ends with the present signal, so that readers of other signals can skip it.
const ROWS_ENOUGH: u64 = 16 << 10;
/// Size of texts, blobs and arrays, in bytes, at which a group ends.
const BYTES_ENOUGH: usize = 32 << 20;
/// Maximum values in a group's value dictionary.
const NUMBERS_MAX: usize = 4_096;

/// A table being written. Memory: one compressed row group, and the footer, which has about 2 KB per group and the descriptions
/// of the signals.
pub struct Table {
    /// Offset of the group.
    at: u64,
    leaves: Vec<Leaf>,
    press: Press,
    signals: Words,
    types: Words,
    labels: Words,
    gaps: Words,
    numbers: HashMap<u64, u32>,
    /// The dictionary's values in order.
    number_of: Vec<u64>,
    rows: u64,
    bytes: usize,
    /// First and last stamp; minimum and maximum value, which are not used if there is a NaN.
    span: Option<(i64, i64)>,
    range: Option<(f64, f64)>,
    has_nan: bool,
    name: String,
    known: Vec<(i64, Vec<String>)>,
    entries: Vec<(u32, Pages)>,
    /// Footer entries of the groups so far.
    groups: Vec<Vec<u8>>,
    rows_before: u64,
    abouts: String,
}

impl Table {
    /// Starts a table. The caller writes [`MAGIC`] before it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            at: MAGIC.len() as u64,
            leaves: Column::ALL.into_iter().map(Leaf::new).collect(),
            press: Press::new(),
            signals: Words::default(),
            types: Words::default(),
            labels: Words::default(),
            gaps: Words::default(),
            numbers: HashMap::new(),
            number_of: Vec::new(),
            rows: 0,
            bytes: 0,
            span: None,
            range: None,
            has_nan: false,
            name: String::new(),
            known: Vec::new(),
            entries: Vec::new(),
            groups: Vec::new(),
            rows_before: 0,
            abouts: String::new(),
        }
    }

    /// Selects the signal for the following chunks and gaps, with its rows.
    pub fn signal(&mut self, name: &str, rows: &[Signal]) {
        name.clone_into(&mut self.name);
        self.known = rows.iter().map(|row| (row.since, row.about.labels.clone())).collect();
        for row in rows {
            self.abouts.push_str(if self.abouts.is_empty() { "[" } else { "," });
            end::about(&mut self.abouts, name, row);
        }
    }

    /// Whether the group must be closed before the next chunk. At a signal's end, the limit is lower.
    #[must_use]
    pub const fn is_full(&self, is_signals_end: bool) -> bool {
        self.rows >= if is_signals_end { ROWS_ENOUGH } else { ROWS_MAX } || self.bytes >= BYTES_ENOUGH
    }

    fn page(&mut self, column: Column, values: u64, missing: u64, encoding: Encoding, body: &[u8]) -> Page {
        self.leaves[column as usize].page(&mut self.press, values, missing, encoding, body)
    }

    fn fill(&mut self, column: Column, filler: Filler, rows: u64) {
        self.leaves[column as usize].fill(&mut self.press, filler, rows);
    }

    /// Appends a chunk of the present signal, which has number `id`.
    pub fn chunk(&mut self, id: u32, chunk: &Chunk) {
        let (Some(&first), Some(&last)) = (chunk.at.first(), chunk.at.last()) else { return };
        let (kind, rows) = (chunk.kind, chunk.len() as u64);
        let name = std::mem::take(&mut self.name);
        self.signals.add(Some(&name), rows);
        self.name = name;
        self.types.add(Some(&kind.to_string()), rows);
        self.gaps.add(None, rows);
        self.label(chunk);
        let mut body = Vec::new();
        delta::put(&mut body, chunk.at.iter().copied());
        let mut pages = vec![self.page(Column::Time, rows, 0, Encoding::Delta, &body)];
        let summary = chunk.summary(0..chunk.len());
        let mut dictionary = None;
        let mut filled = vec![Column::Signal, Column::Time, Column::Type, Column::Label, Column::Gap];
        let column = Column::of(kind);
        if kind.varies() {
            self.bytes += chunk.bytes.len();
            self.varying(chunk, &mut pages, &mut filled);
        } else {
            let (page, shares) = self.doubles(chunk);
            if column == Column::Value {
                pages.push(page);
                dictionary = shares.then_some((page, 0));
            } else {
                pages.push(self.integers(column, rows, 1, chunk.bits.iter().map(|bits| *bits as i64)));
                filled.push(column);
            }
            filled.push(Column::Value);
            self.take_range(summary.as_ref());
        }
        if chunk.alarms.iter().any(|alarm| *alarm != 0) {
            let severities = chunk.alarms.iter().map(|alarm| i64::from(alarm >> 16));
            pages.push(self.integers(Column::Severity, rows, 1, severities));
            let statuses = chunk.alarms.iter().map(|alarm| i64::from(alarm & 0xFFFF));
            pages.push(self.integers(Column::Status, rows, 1, statuses));
        } else {
            self.fill(Column::Severity, Filler::Zero, rows);
            self.fill(Column::Status, Filler::Zero, rows);
        }
        filled.extend([Column::Severity, Column::Status]);
        if !chunk.pulses.is_empty() {
            let pulses = chunk.pulses.iter().map(|pulse| *pulse as i64);
            pages.push(self.integers(Column::Pulse, rows, 1, pulses));
            filled.push(Column::Pulse);
        }
        self.fill_others(&filled, rows);
        self.take_span(first, last);
        self.rows += rows;
        let count = rows as u32;
        self.entries.push((id, Pages { kind, count, first, last, summary, pages, dictionary }));
    }

    /// Appends a gap; `is_all`: of all signals.
    pub fn gap(&mut self, gap: &Gap, is_all: bool) {
        let name = std::mem::take(&mut self.name);
        self.signals.add((!is_all).then_some(name.as_str()), 1);
        self.name = name;
        self.types.add(Some(GAP), 1);
        self.gaps.add(Some(&gap.cause.to_string()), 1);
        self.labels.add(None, 1);
        let mut body = Vec::new();
        delta::put(&mut body, std::iter::once(gap.at));
        self.page(Column::Time, 1, 0, Encoding::Delta, &body);
        self.integers(Column::Lost, 1, 1, std::iter::once(gap.lost as i64));
        let words = [Column::Signal, Column::Time, Column::Type, Column::Label, Column::Gap, Column::Lost];
        self.fill_others(&words, 1);
        self.take_span(gap.at, gap.at);
        self.rows += 1;
    }

    fn fill_others(&mut self, filled: &[Column], rows: u64) {
        for column in Column::ALL.into_iter().filter(|column| !filled.contains(column)) {
            self.fill(column, Filler::Nothing, rows);
        }
    }

    fn take_span(&mut self, first: i64, last: i64) {
        self.span = Some(self.span.map_or((first, last), |(least, most)| (least.min(first), most.max(last))));
    }

    fn take_range(&mut self, summary: Option<&crate::Summary>) {
        let Some(summary) = summary else { return };
        self.has_nan |= summary.nans > 0;
        if summary.count > 0 {
            let (min, max) = self.range.unwrap_or((f64::INFINITY, f64::NEG_INFINITY));
            self.range = Some((min.min(summary.min), max.max(summary.max)));
        }
    }

    /// Adds the state names that were valid at each sample.
    fn label(&mut self, chunk: &Chunk) {
        if chunk.kind != Kind::Number(FieldType::Enum) {
            return self.labels.add(None, chunk.len() as u64);
        }
        for (at, state) in chunk.at.iter().zip(&chunk.bits) {
            let known = self.known.iter().rev().find(|(since, _)| since <= at).or(self.known.first());
            let label = known.and_then(|(_, labels)| labels.get(usize::from(*state as u16)));
            self.labels.add(label.map(String::as_str), 1);
        }
    }

    /// Writes numbers as doubles. Returns true if the page uses the value dictionary.
    fn doubles(&mut self, chunk: &Chunk) -> (Page, bool) {
        let rows = chunk.len();
        let values: Vec<u64> = (0..rows).map(|index| chunk.number(index).unwrap_or(f64::NAN).to_bits()).collect();
        let mut body = Vec::with_capacity(rows * 8 + 8);
        levels(&mut body, 1, [(1, rows as u64)]);
        let head = body.len();
        split(&mut body, &values);
        let most = self.press.press(&body).len();
        if let Some(numbers) = self.stand_for(&values, most) {
            body.truncate(head);
            let width = words::width(numbers.iter().max().map_or(1, |most| *most as usize + 1));
            body.push(width as u8);
            if numbers.iter().all(|number| *number == numbers[0]) {
                runs::put(&mut body, width, [(numbers[0], rows as u64)]);
            } else {
                runs::put_packed(&mut body, width, &numbers);
            }
            return (self.page(Column::Value, rows as u64, 0, Encoding::Dictionary, &body), true);
        }
        (self.page(Column::Value, rows as u64, 0, Encoding::Split, &body), false)
    }

    /// Dictionary indices of the values, if that takes fewer than `most` bytes. Then new values remain in the dictionary.
    fn stand_for(&mut self, values: &[u64], most: usize) -> Option<Vec<u32>> {
        let before = self.number_of.len();
        let mut numbers = Vec::with_capacity(values.len());
        for value in values {
            let next = self.number_of.len() as u32;
            let number = *self.numbers.entry(*value).or_insert(next);
            if number == next {
                self.number_of.push(*value);
            }
            numbers.push(number);
            if self.number_of.len() > NUMBERS_MAX || (self.number_of.len() - before) * 8 >= most {
                break;
            }
        }
        let bits = words::width(self.number_of.len()) as usize * values.len();
        let cost = (self.number_of.len() - before) * 8 + bits / 8;
        if numbers.len() == values.len() && self.number_of.len() <= NUMBERS_MAX && cost < most {
            return Some(numbers);
        }
        for value in self.number_of.drain(before..) {
            self.numbers.remove(&value);
        }
        None
    }

    /// Writes a page of integers, one per row.
    fn integers(&mut self, column: Column, rows: u64, level: u32, values: impl ExactSizeIterator<Item = i64>) -> Page {
        let mut body = Vec::new();
        levels(&mut body, 1, [(level, rows)]);
        delta::put(&mut body, values);
        self.page(column, rows, 0, Encoding::Delta, &body)
    }

    /// Writes texts, blobs or arrays.
    fn varying(&mut self, chunk: &Chunk, pages: &mut Vec<Page>, filled: &mut Vec<Column>) {
        let values = || (0..chunk.len()).filter_map(|index| chunk.bytes_of(index));
        match chunk.kind {
            Kind::Array(_) => {
                let column = Column::of(chunk.kind);
                pages.push(self.arrays(column, chunk.kind, values()));
                filled.push(column);
            }
            _ => {
                let is_text = |value: &[u8]| chunk.kind == Kind::Text && str::from_utf8(value).is_ok();
                for (column, wanted) in [(Column::Text, true), (Column::Blob, false)] {
                    let is_here = |value: &[u8]| is_text(value) == wanted;
                    let missing = values().filter(|value| !is_here(value)).count();
                    if missing == chunk.len() {
                        continue;
                    }
                    let mut body = Vec::new();
                    levels(&mut body, 1, values().map(|value| (is_here(value).into(), 1)));
                    values().filter(|value| is_here(value)).for_each(|value| put_bytes(&mut body, value));
                    pages.push(self.page(column, chunk.len() as u64, missing as u64, Encoding::Plain, &body));
                    filled.push(column);
                }
            }
        }
    }

    /// Definition levels: 0 no array, 1 empty array, 2 element.
    fn arrays<'a>(&mut self, column: Column, kind: Kind, values: impl Iterator<Item = &'a [u8]> + Clone) -> Page {
        let arrays: Vec<Array> = values
            .map(|bytes| match Datum::from_bytes(kind, bytes) {
                Ok(Datum::Array(array)) => array,
                // A chunk of an array type contains only arrays.
                _ => Array::F64(Vec::new()),
            })
            .collect();
        let (mut repeated, mut defined, mut count, mut missing) = (Vec::new(), Vec::new(), 0, 0);
        for array in &arrays {
            let len = array.len() as u64;
            repeated.push((0, 1));
            if len == 0 {
                defined.push((1, 1));
                missing += 1;
            } else {
                repeated.push((1, len - 1));
                defined.push((2, len));
            }
            count += len.max(1);
        }
        repeated.retain(|(_, rows)| *rows > 0);
        let mut body = Vec::new();
        levels(&mut body, 1, repeated);
        levels(&mut body, 2, defined);
        let elements = || arrays.iter().flat_map(|array| (0..array.len()).filter_map(|index| array.get(index)));
        let encoding = match column {
            Column::ArrayF64 => {
                let values: Vec<u64> = elements().map(|scalar| scalar.to_f64().unwrap_or(f64::NAN).to_bits()).collect();
                split(&mut body, &values);
                Encoding::Split
            }
            Column::ArrayText => {
                for scalar in elements() {
                    if let Scalar::String(text) = scalar {
                        put_bytes(&mut body, crate::escaped(text.bytes()).as_bytes());
                    }
                }
                Encoding::Plain
            }
            _ => {
                let values: Vec<i64> =
                    elements().filter_map(|scalar| Datum::Number(scalar).bits()).map(|bits| bits as i64).collect();
                delta::put(&mut body, values.into_iter());
                Encoding::Delta
            }
        };
        self.page(column, count, missing, encoding, &body)
    }

    /// Closes the row group and appends its bytes. Returns its chunks with the numbers of their signals.
    pub fn group(&mut self, out: &mut Vec<u8>) -> Vec<(u32, Pages)> {
        if self.rows == 0 {
            return Vec::new();
        }
        let mut group = Thrift::default();
        group.list(1, STRUCT, Column::ALL.len());
        let (mut plain_all, begin) = (0, out.len());
        let mut begins = [0; Column::ALL.len()];
        let mut shared = None;
        for column in Column::ALL {
            let at = self.at + (out.len() - begin) as u64;
            let stats = self.statistics(column);
            let (leaf, press) = (&mut self.leaves[column as usize], &mut self.press);
            let made = match column {
                Column::Signal => self.signals.close(press, leaf),
                Column::Type => self.types.close(press, leaf),
                Column::Label => self.labels.close(press, leaf),
                Column::Gap => self.gaps.close(press, leaf),
                Column::Value if !self.number_of.is_empty() => {
                    let (mut plain, mut bytes) = (Vec::new(), Vec::new());
                    self.number_of.iter().for_each(|number| plain.extend_from_slice(&number.to_le_bytes()));
                    let mut page = dictionary(press, column, self.number_of.len(), &plain, &mut bytes);
                    let plain = page.offset + plain.len() as u64;
                    page.offset += at;
                    shared = Some((page, self.number_of.len() as u32));
                    Some((bytes, plain))
                }
                _ => None,
            };
            leaf.flush(press);
            let (dictionary, dictionary_plain) = made.unwrap_or_default();
            begins[column as usize] = at + dictionary.len() as u64;
            let plain = leaf.plain + dictionary_plain;
            plain_all += plain;
            group.item();
            group.i64(2, at as i64);
            group.begin(3);
            let (physical, _) = column.types();
            group.i32(1, physical as i32);
            let mut encodings = vec![Encoding::Plain as i32, RLE];
            encodings.extend((1..16).filter(|one| leaf.encodings & 1 << one != 0));
            group.i32s(2, &encodings);
            let path = [column.name(), "list", "element"];
            group.texts(3, if column.is_list() { &path } else { &path[..1] });
            group.i32(4, SNAPPY);
            group.i64(5, leaf.values as i64);
            group.i64(6, plain as i64);
            group.i64(7, (dictionary.len() + leaf.pages.len()) as i64);
            group.i64(9, at as i64 + dictionary.len() as i64);
            if !dictionary.is_empty() {
                group.i64(11, at as i64);
            }
            group.begin(12);
            group.i64(3, leaf.missing as i64);
            if let Some((min, max)) = stats {
                group.bytes(5, &max);
                group.bytes(6, &min);
            }
            group.end();
            group.end();
            group.end();
            out.extend_from_slice(&dictionary);
            out.extend_from_slice(&leaf.pages);
            leaf.clear();
        }
        let len = (out.len() - begin) as u64;
        group.i64(2, plain_all as i64);
        group.i64(3, self.rows as i64);
        group.i64(5, self.at as i64);
        group.i64(6, len as i64);
        group.end();
        self.groups.push(group.out);
        self.at += len;
        self.rows_before += self.rows;
        (self.rows, self.bytes, self.span, self.range, self.has_nan) = (0, 0, None, None, false);
        self.numbers.clear();
        self.number_of.clear();
        let mut entries = std::mem::take(&mut self.entries);
        for (_, entry) in &mut entries {
            entry.pages.iter_mut().for_each(|page| page.offset += begins[page.column as usize]);
            entry.dictionary = entry.dictionary.and(shared);
        }
        entries
    }

    /// Minimum and maximum of a column.
    fn statistics(&self, column: Column) -> Option<(Vec<u8>, Vec<u8>)> {
        match column {
            Column::Signal => self.signals.ends().map(|(min, max)| (min.as_bytes().to_vec(), max.as_bytes().to_vec())),
            Column::Time => self.span.map(|(min, max)| (min.to_le_bytes().to_vec(), max.to_le_bytes().to_vec())),
            Column::Value if !self.has_nan => self.range.map(|(min, max)| {
                // Zero has two signs; include both in the range.
                let min = if min == 0.0 { -0.0 } else { min };
                let max = if max == 0.0 { 0.0 } else { max };
                (min.to_le_bytes().to_vec(), max.to_le_bytes().to_vec())
            }),
            _ => None,
        }
    }

    /// Returns the footer, given the checksum of all preceding bytes. The last group must be closed.
    #[must_use]
    pub fn end(mut self, sum: u32) -> Vec<u8> {
        self.abouts.push_str(if self.abouts.is_empty() { "[]" } else { "]" });
        end::end(&self.groups, self.rows_before, &self.abouts, sum)
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// Value in the column `type` for a gap.
const GAP: &str = "gap";

/// Parquet's code of Snappy, the only compression used.
const SNAPPY: i32 = 1;

/// Splits numbers by bytes: all first bytes, then all second ones, and so on.
fn split(out: &mut Vec<u8>, values: &[u64]) {
    for byte in 0..8 {
        out.extend(values.iter().map(|value| (value >> (8 * byte)) as u8));
    }
}
