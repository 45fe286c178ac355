//! Thrift's compact protocol, limited to what a Parquet footer and page headers need.

use crate::bytes::{put_sized, put_varint, put_zigzag};

/// Types of fields and list elements.
pub(super) const I32: u8 = 5;
pub(super) const BYTES: u8 = 8;
pub(super) const STRUCT: u8 = 12;

/// Writes structures, field by field in ascending order.
#[derive(Default)]
pub(super) struct Thrift {
    pub(super) out: Vec<u8>,
    /// Last field of each open structure except the innermost.
    outer: Vec<i16>,
    last: i16,
}

impl Thrift {
    fn field(&mut self, id: i16, kind: u8) {
        match id - self.last {
            step @ 1..=15 => self.out.push((step as u8) << 4 | kind),
            _ => {
                self.out.push(kind);
                put_zigzag(&mut self.out, id.into());
            }
        }
        self.last = id;
    }

    pub(super) fn bool(&mut self, id: i16, value: bool) {
        self.field(id, if value { 1 } else { 2 });
    }

    pub(super) fn i8(&mut self, id: i16, value: i8) {
        self.field(id, 3);
        self.out.push(value as u8);
    }

    pub(super) fn i32(&mut self, id: i16, value: i32) {
        self.field(id, I32);
        put_zigzag(&mut self.out, value.into());
    }

    pub(super) fn i64(&mut self, id: i16, value: i64) {
        self.field(id, 6);
        put_zigzag(&mut self.out, value);
    }

    pub(super) fn bytes(&mut self, id: i16, value: &[u8]) {
        self.field(id, BYTES);
        put_sized(&mut self.out, value);
    }

    /// Starts a structure as a field.
    pub(super) fn begin(&mut self, id: i16) {
        self.field(id, STRUCT);
        self.item();
    }

    /// Starts a structure as a list element.
    pub(super) fn item(&mut self) {
        self.outer.push(std::mem::take(&mut self.last));
    }

    /// Ends a structure.
    pub(super) fn end(&mut self) {
        self.out.push(0);
        self.last = self.outer.pop().unwrap_or_default();
    }

    /// Starts a list of `len` elements.
    pub(super) fn list(&mut self, id: i16, kind: u8, len: usize) {
        self.field(id, 9);
        if len < 15 {
            self.out.push((len as u8) << 4 | kind);
        } else {
            self.out.push(0xF0 | kind);
            put_varint(&mut self.out, len as u64);
        }
    }

    pub(super) fn i32s(&mut self, id: i16, values: &[i32]) {
        self.list(id, I32, values.len());
        values.iter().for_each(|value| put_zigzag(&mut self.out, (*value).into()));
    }

    pub(super) fn texts(&mut self, id: i16, values: &[&str]) {
        self.list(id, BYTES, values.len());
        values.iter().for_each(|value| put_sized(&mut self.out, value.as_bytes()));
    }
}
