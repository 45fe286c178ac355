//! Encodes into a buffer.

use super::{Array, Kind, Mask, Order, SentTypes, Status, StatusKind, Struct, Type, Value};
use std::sync::Arc;

/// A buffer to which values are appended.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The encoded bytes.
    pub bytes: Vec<u8>,
    order: Order,
}

macro_rules! number {
    ($($name:ident $type:ty),*) => {
        $(
            /// Appends a number.
            pub fn $name(&mut self, value: $type) {
                match self.order {
                    Order::Little => self.bytes.extend_from_slice(&value.to_le_bytes()),
                    Order::Big => self.bytes.extend_from_slice(&value.to_be_bytes()),
                }
            }
        )*
    };
}

macro_rules! slices {
    ($($name:ident $type:ty),*) => {
        $(
            /// Appends the elements of an array, after their number.
            pub fn $name(&mut self, values: &[$type]) {
                self.size(values.len());
                // Places of a known size are copied in blocks, with vector instructions.
                let start = self.bytes.len();
                self.bytes.resize(start + size_of_val(values), 0);
                let places = self.bytes[start..].chunks_exact_mut(size_of::<$type>()).zip(values);
                match self.order {
                    Order::Little => places.for_each(|(place, value)| place.copy_from_slice(&value.to_le_bytes())),
                    Order::Big => places.for_each(|(place, value)| place.copy_from_slice(&value.to_be_bytes())),
                }
            }
        )*
    };
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub const fn new(order: Order) -> Self {
        Self { bytes: Vec::new(), order }
    }

    /// The byte order.
    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Changes the byte order of what follows.
    pub const fn set_order(&mut self, order: Order) {
        self.order = order;
    }

    number!(u8 u8, u16 u16, u32 u32, u64 u64, i8 i8, i16 i16, i32 i32, i64 i64, f32 f32, f64 f64);
    slices!(i8s i8, u8s u8, i16s i16, u16s u16, i32s i32, u32s u32, i64s i64, u64s u64, f32s f32, f64s f64);

    /// Appends a size. The caller keeps it below 2³¹.
    pub fn size(&mut self, size: usize) {
        debug_assert!(size < 1 << 31, "limited by the caller");
        if size < 254 {
            self.u8(size as u8);
        } else {
            self.u8(254);
            self.u32(size as u32);
        }
    }

    /// Appends a text.
    pub fn text(&mut self, text: &str) {
        self.size(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends a status.
    pub fn status(&mut self, status: &Status) {
        if *status == Status::OK {
            self.u8(0xFF);
            return;
        }
        self.u8(match status.kind {
            StatusKind::Ok => 0,
            StatusKind::Warning => 1,
            StatusKind::Error => 2,
            StatusKind::Fatal => 3,
        });
        self.text(&status.message);
        self.text(&status.tree);
    }

    /// Appends a set of fields.
    pub fn mask(&mut self, mask: &Mask) {
        self.words(mask.words());
    }

    /// Appends a set of fewer than 65 fields.
    pub fn mask64(&mut self, mask: u64) {
        self.words(if mask == 0 { &[] } else { std::slice::from_ref(&mask) });
    }

    fn words(&mut self, words: &[u64]) {
        let Some((last, whole)) = words.split_last() else { return self.u8(0) };
        let rest = 8 - last.leading_zeros() as usize / 8;
        self.size(whole.len() * 8 + rest);
        whole.iter().for_each(|word| self.u64(*word));
        // A whole last word has the byte order of the connection, a part of one has not.
        if rest == 8 { self.u64(*last) } else { self.bytes.extend_from_slice(&last.to_le_bytes()[..rest]) }
    }

    /// Appends a type in full.
    pub fn ty(&mut self, ty: &Type) {
        match ty {
            Type::Scalar(kind) => self.u8(kind.code()),
            Type::Array(kind) => self.u8(kind.code() | 0x08),
            Type::Struct(fields) => self.fields(0x80, fields),
            Type::Union(members) => self.fields(0x81, members),
            Type::Any => self.u8(0x82),
            Type::StructArray(fields) => {
                self.u8(0x88);
                self.fields(0x80, fields);
            }
            Type::UnionArray(members) => {
                self.u8(0x89);
                self.fields(0x81, members);
            }
            Type::AnyArray => self.u8(0x8A),
        }
    }

    fn fields(&mut self, code: u8, ty: &Struct) {
        self.u8(code);
        self.text(ty.id());
        self.size(ty.fields().len());
        for (name, ty) in ty.fields() {
            self.text(name);
            self.ty(ty);
        }
    }

    /// Appends a structure's type: in full with a number the first time, then only the number.
    pub fn numbered(&mut self, ty: &Arc<Struct>, sent: &mut SentTypes) {
        match sent.number(ty) {
            Some((id, false)) => {
                self.u8(0xFE);
                self.u16(id);
            }
            Some((id, true)) => {
                self.u8(0xFD);
                self.u16(id);
                self.fields(0x80, ty);
            }
            None => self.fields(0x80, ty),
        }
    }

    /// Appends a value. Its type is not part of it.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(value) => self.u8((*value).into()),
            Value::I8(value) => self.i8(*value),
            Value::I16(value) => self.i16(*value),
            Value::I32(value) => self.i32(*value),
            Value::I64(value) => self.i64(*value),
            Value::U8(value) => self.u8(*value),
            Value::U16(value) => self.u16(*value),
            Value::U32(value) => self.u32(*value),
            Value::U64(value) => self.u64(*value),
            Value::F32(value) => self.f32(*value),
            Value::F64(value) => self.f64(*value),
            Value::Text(text) => self.text(text),
            Value::Array(array) => self.array(array),
            Value::Struct(fields) => fields.iter().for_each(|field| self.value(field)),
            Value::Union(None) | Value::Any(None) => self.u8(0xFF),
            Value::Union(Some((index, value))) => {
                self.size(*index as usize);
                self.value(value);
            }
            Value::Any(Some(any)) => {
                self.ty(&any.0);
                self.value(&any.1);
            }
            Value::Elements(elements) => {
                self.size(elements.len());
                for element in elements {
                    self.u8(element.is_some().into());
                    if let Some(element) = element {
                        self.value(element);
                    }
                }
            }
        }
    }

    fn array(&mut self, array: &Array) {
        match array {
            Array::Bool(values) => {
                self.size(values.len());
                self.bytes.extend(values.iter().map(|value| u8::from(*value)));
            }
            Array::I8(values) => self.i8s(values),
            Array::I16(values) => self.i16s(values),
            Array::I32(values) => self.i32s(values),
            Array::I64(values) => self.i64s(values),
            Array::U8(values) => self.u8s(values),
            Array::U16(values) => self.u16s(values),
            Array::U32(values) => self.u32s(values),
            Array::U64(values) => self.u64s(values),
            Array::F32(values) => self.f32s(values),
            Array::F64(values) => self.f64s(values),
            Array::Text(texts) => {
                self.size(texts.len());
                texts.iter().for_each(|text| self.text(text));
            }
        }
    }

    /// Appends the fields of a value that are in `mask`.
    pub fn fields_of(&mut self, ty: &Type, mask: &Mask, value: &Value) {
        self.fields_at(ty, mask, 0, value);
    }

    fn fields_at(&mut self, ty: &Type, mask: &Mask, bit: u32, value: &Value) {
        if mask.has(bit) {
            self.value(value);
            return;
        }
        let (Type::Struct(fields), Value::Struct(values)) = (ty, value) else { return };
        let mut next = bit + 1;
        for ((_, ty), value) in fields.fields().iter().zip(values) {
            self.fields_at(ty, mask, next, value);
            next += ty.nodes();
        }
    }

    /// Appends the kind of a type as a one-byte description. For types that need no more.
    pub fn kind(&mut self, kind: Kind, is_array: bool) {
        self.u8(kind.code() | if is_array { 0x08 } else { 0 });
    }
}
