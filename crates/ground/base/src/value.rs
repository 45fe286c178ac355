//! Values exchanged between database, network and printer.
//!
//! The types are those of record fields (EPICS' `DBF_…`), not of any wire format.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

/// Text of up to 39 bytes, as an EPICS string. The bytes need not be UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Str40([u8; 40]);

impl Str40 {
    /// No text.
    pub const EMPTY: Self = Self([0; 40]);

    /// The text up to its first NUL, truncated after 39 bytes.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let mut bytes = [0; 40];
        let len = text.iter().take(39).position(|byte| *byte == 0).unwrap_or(text.len().min(39));
        bytes[..len].copy_from_slice(&text[..len]);
        Self(bytes)
    }

    /// The text without its padding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(39);
        &self.0[..len]
    }

    /// All 40 bytes, padded with NUL.
    #[must_use]
    pub const fn padded(&self) -> &[u8; 40] {
        &self.0
    }

    /// The text in readable form: UTF-8 unchanged, otherwise Latin-1. Allocates only for Latin-1.
    #[must_use]
    pub fn readable(&self) -> Cow<'_, str> {
        crate::raw::readable(self.bytes())
    }

    /// The text if it is UTF-8, otherwise the part before the first invalid byte. For parsing and comparisons;
    /// [`readable`](Self::readable) returns the whole text.
    #[must_use]
    pub fn to_str(&self) -> &str {
        match core::str::from_utf8(self.bytes()) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&self.bytes()[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

impl Default for Str40 {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<&str> for Str40 {
    /// [`raw::decode`](crate::raw::decode) represents bytes that are not UTF-8.
    fn from(text: &str) -> Self {
        Self::new(&crate::raw::encode(text))
    }
}

impl fmt::Debug for Str40 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes().escape_ascii())
    }
}

impl fmt::Display for Str40 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not `readable`, which may allocate.
        match core::str::from_utf8(self.bytes()) {
            Ok(text) => f.write_str(text),
            Err(_) => self.bytes().iter().try_for_each(|byte| f.write_char(char::from(*byte))),
        }
    }
}

/// Makes a `Str40` with `write!`. Longer text is truncated.
pub struct Str40Writer {
    text: Str40,
    len: usize,
}

impl Str40Writer {
    /// An empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: Str40::EMPTY, len: 0 }
    }

    /// The text so far.
    #[must_use]
    pub const fn finish(self) -> Str40 {
        self.text
    }
}

impl Default for Str40Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Str40Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let take = text.len().min(39 - self.len);
        self.text.0[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// The type of a field or of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the Rust type of its name")]
pub enum FieldType {
    String,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    /// An index into the record's own state names (bi, bo, mbbi, mbbo).
    Enum,
    /// An index into a menu.
    Menu,
    /// An index into the device supports of the record type.
    Device,
    /// A link, read and written as text.
    Link,
}

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the Rust type of its name")]
pub enum Scalar {
    String(Str40),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    F32(f32),
    F64(f64),
    /// An index into state names.
    Enum(u16),
}

/// The kind of a text, which determines its conversion to other types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Characters {
    /// An ordinary value.
    #[default]
    Array,
    /// A text that is read as characters (`FIELD$`), in a field of this many bytes. As characters, alone or with a time
    /// stamp, it ends after its zero. As characters with other properties, and as other types, it is all bytes of the
    /// field.
    Text(u32),
    /// A link, also without `$`. It converts to a text and to characters. As a double it is NaN.
    Link,
}

/// Several elements of one type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the Rust type of its name")]
pub enum Array {
    String(Vec<Str40>),
    I8(Vec<i8>),
    U8(Vec<u8>),
    I16(Vec<i16>),
    U16(Vec<u16>),
    I32(Vec<i32>),
    U32(Vec<u32>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Enum(Vec<u16>),
}

/// A field's value: one element, or an array, which may have one or no element.
#[derive(Debug, PartialEq)]
pub enum Value {
    /// A field with one element.
    Scalar(Scalar),
    /// A field with a variable number of elements.
    Array(Array),
}

impl Clone for Value {
    fn clone(&self) -> Self {
        match self {
            Self::Scalar(scalar) => Self::Scalar(*scalar),
            Self::Array(array) => Self::Array(array.clone()),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        match (self, source) {
            // The usual case: assigned in place, without a temporary that is written in parts and read as a whole.
            (Self::Scalar(here), Self::Scalar(there)) => *here = *there,
            (here, there) => *here = there.clone(),
        }
    }
}

macro_rules! each_array {
    ($value:expr, $elements:ident => $body:expr) => {
        match $value {
            Array::String($elements) => $body,
            Array::I8($elements) => $body,
            Array::U8($elements) => $body,
            Array::I16($elements) => $body,
            Array::U16($elements) => $body,
            Array::I32($elements) => $body,
            Array::U32($elements) => $body,
            Array::I64($elements) => $body,
            Array::U64($elements) => $body,
            Array::F32($elements) => $body,
            Array::F64($elements) => $body,
            Array::Enum($elements) => $body,
        }
    };
}

impl Array {
    /// Truncates to `len` elements, or appends zeros (empty texts). Allocates only beyond the capacity.
    pub fn resize(&mut self, len: usize) {
        match self {
            Self::String(elements) => elements.resize(len, Str40::EMPTY),
            Self::I8(elements) => elements.resize(len, 0),
            Self::U8(elements) => elements.resize(len, 0),
            Self::I16(elements) => elements.resize(len, 0),
            Self::U16(elements) | Self::Enum(elements) => elements.resize(len, 0),
            Self::I32(elements) => elements.resize(len, 0),
            Self::U32(elements) => elements.resize(len, 0),
            Self::I64(elements) => elements.resize(len, 0),
            Self::U64(elements) => elements.resize(len, 0),
            Self::F32(elements) => elements.resize(len, 0.0),
            Self::F64(elements) => elements.resize(len, 0.0),
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        each_array!(self, elements => elements.len())
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the first `len` elements.
    pub fn truncate(&mut self, len: usize) {
        each_array!(self, elements => elements.truncate(len));
    }

    /// The element at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Scalar> {
        Some(match self {
            Self::String(elements) => Scalar::String(*elements.get(index)?),
            Self::I8(elements) => Scalar::I8(*elements.get(index)?),
            Self::U8(elements) => Scalar::U8(*elements.get(index)?),
            Self::I16(elements) => Scalar::I16(*elements.get(index)?),
            Self::U16(elements) => Scalar::U16(*elements.get(index)?),
            Self::I32(elements) => Scalar::I32(*elements.get(index)?),
            Self::U32(elements) => Scalar::U32(*elements.get(index)?),
            Self::I64(elements) => Scalar::I64(*elements.get(index)?),
            Self::U64(elements) => Scalar::U64(*elements.get(index)?),
            Self::F32(elements) => Scalar::F32(*elements.get(index)?),
            Self::F64(elements) => Scalar::F64(*elements.get(index)?),
            Self::Enum(elements) => Scalar::Enum(*elements.get(index)?),
        })
    }

    /// An array of `len` zeros (or empty texts) of a type. Menus and devices become `Enum`, links `String`.
    #[must_use]
    pub fn zeros(kind: FieldType, len: usize) -> Self {
        match kind {
            FieldType::String | FieldType::Link => Self::String(alloc::vec![Str40::EMPTY; len]),
            FieldType::I8 => Self::I8(alloc::vec![0; len]),
            FieldType::U8 => Self::U8(alloc::vec![0; len]),
            FieldType::I16 => Self::I16(alloc::vec![0; len]),
            FieldType::U16 => Self::U16(alloc::vec![0; len]),
            FieldType::I32 => Self::I32(alloc::vec![0; len]),
            FieldType::U32 => Self::U32(alloc::vec![0; len]),
            FieldType::I64 => Self::I64(alloc::vec![0; len]),
            FieldType::U64 => Self::U64(alloc::vec![0; len]),
            FieldType::F32 => Self::F32(alloc::vec![0.0; len]),
            FieldType::F64 => Self::F64(alloc::vec![0.0; len]),
            FieldType::Enum | FieldType::Menu | FieldType::Device => Self::Enum(alloc::vec![0; len]),
        }
    }

    /// An empty array with capacity for this many elements, whose memory is not touched yet; `None` if memory is unavailable.
    #[must_use]
    pub fn with_room(kind: FieldType, count: usize) -> Option<Self> {
        let mut array = Self::zeros(kind, 0);
        macro_rules! reserve {
            ($($variant:ident)*) => {
                match &mut array {
                    $(Self::$variant(values) => values.try_reserve_exact(count).is_ok(),)*
                }
            };
        }
        reserve!(String I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Enum).then_some(array)
    }

    /// Type of the elements.
    #[must_use]
    pub const fn kind(&self) -> FieldType {
        match self {
            Self::String(_) => FieldType::String,
            Self::I8(_) => FieldType::I8,
            Self::U8(_) => FieldType::U8,
            Self::I16(_) => FieldType::I16,
            Self::U16(_) => FieldType::U16,
            Self::I32(_) => FieldType::I32,
            Self::U32(_) => FieldType::U32,
            Self::I64(_) => FieldType::I64,
            Self::U64(_) => FieldType::U64,
            Self::F32(_) => FieldType::F32,
            Self::F64(_) => FieldType::F64,
            Self::Enum(_) => FieldType::Enum,
        }
    }
}

impl Scalar {
    /// Type of the element.
    #[must_use]
    pub const fn kind(&self) -> FieldType {
        match self {
            Self::String(_) => FieldType::String,
            Self::I8(_) => FieldType::I8,
            Self::U8(_) => FieldType::U8,
            Self::I16(_) => FieldType::I16,
            Self::U16(_) => FieldType::U16,
            Self::I32(_) => FieldType::I32,
            Self::U32(_) => FieldType::U32,
            Self::I64(_) => FieldType::I64,
            Self::U64(_) => FieldType::U64,
            Self::F32(_) => FieldType::F32,
            Self::F64(_) => FieldType::F64,
            Self::Enum(_) => FieldType::Enum,
        }
    }

    /// The number; `None` for text.
    #[must_use]
    pub const fn to_f64(self) -> Option<f64> {
        Some(match self {
            Self::String(_) => return None,
            Self::I8(v) => v as f64,
            Self::U8(v) => v as f64,
            Self::I16(v) => v as f64,
            Self::U16(v) | Self::Enum(v) => v as f64,
            Self::I32(v) => v as f64,
            Self::U32(v) => v as f64,
            Self::I64(v) => v as f64,
            Self::U64(v) => v as f64,
            Self::F32(v) => v as f64,
            Self::F64(v) => v,
        })
    }
}

impl Value {
    /// Number of elements: 1 for a scalar.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Scalar(_) => 1,
            Self::Array(array) => array.len(),
        }
    }

    /// Whether it is an array without elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type of the elements.
    #[must_use]
    pub const fn kind(&self) -> FieldType {
        match self {
            Self::Scalar(scalar) => scalar.kind(),
            Self::Array(array) => array.kind(),
        }
    }

    /// The scalar, or the element at `index` of the array.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Scalar> {
        match self {
            Self::Scalar(scalar) if index == 0 => Some(*scalar),
            Self::Scalar(_) => None,
            Self::Array(array) => array.get(index),
        }
    }
}

macro_rules! from_scalar {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::Scalar(Scalar::$variant(value))
            }
        }
        impl From<Vec<$type>> for Value {
            fn from(values: Vec<$type>) -> Self {
                Self::Array(Array::$variant(values))
            }
        })*
    };
}
from_scalar!(Str40 => String, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f32 => F32, f64 => F64);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Scalar(Scalar::String(Str40::from(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn text_is_truncated_at_39_bytes_and_at_nul() {
        assert_eq!(Str40::new(&[b'x'; 60]).bytes().len(), 39);
        assert_eq!(Str40::new(b"ab\0cd").bytes(), b"ab");
        let mut writer = Str40Writer::new();
        for _ in 0..10 {
            write!(writer, "12345").unwrap();
        }
        assert_eq!(writer.finish().bytes(), b"123451234512345123451234512345123451234");
    }

    #[test]
    fn a_scalar_is_not_an_array_of_one_element() {
        let one = Value::from(5i32);
        let many = Value::from(std::vec![5i32]);
        assert_ne!(one, many);
        assert_eq!((one.len(), many.len(), one.get(0)), (1, 1, many.get(0)));
    }
}
