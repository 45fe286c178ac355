//! Samples and their types.

use crate::bytes::Bad;
use base::{Array, FieldType, Scalar};
use std::fmt;

/// Type of a signal's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A number, or the index of a state; never a text type.
    Number(FieldType),
    /// Text of any length; bytes need not be UTF-8.
    Text,
    /// Uninterpreted bytes.
    Blob,
    /// A variable number of elements.
    Array(FieldType),
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// True or false.
    Bool(bool),
    /// A number, or the index of a state. An EPICS string (40 bytes) is archived as [`Datum::Text`].
    Number(Scalar),
    /// Text of any length; bytes need not be UTF-8.
    Text(Vec<u8>),
    /// Uninterpreted bytes.
    Blob(Vec<u8>),
    /// Several elements.
    Array(Array),
}

/// A sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Time stamp: nanoseconds since 1970, UTC.
    pub at: i64,
    /// The value.
    pub datum: Datum,
    /// EPICS severity, 0 to 3.
    pub severity: u8,
    /// EPICS status.
    pub status: u16,
    /// The pulse that it belongs to, if any.
    pub pulse: Option<u64>,
}

impl Sample {
    /// A sample without alarm and pulse.
    pub fn new(at: i64, datum: impl Into<Datum>) -> Self {
        Self { at, datum: datum.into(), severity: 0, status: 0, pulse: None }
    }
}

/// Codes of element types in files.
const NUMBERS: [(u8, FieldType); 11] = [
    (1, FieldType::I8),
    (2, FieldType::U8),
    (3, FieldType::I16),
    (4, FieldType::U16),
    (5, FieldType::I32),
    (6, FieldType::U32),
    (7, FieldType::I64),
    (8, FieldType::U64),
    (9, FieldType::F32),
    (10, FieldType::F64),
    (11, FieldType::Enum),
];
const BOOL: u8 = 0;
const TEXT: u8 = 12;
const BLOB: u8 = 13;
const ARRAY: u8 = 0x40;

fn number(kind: FieldType) -> u8 {
    let kind = match kind {
        FieldType::Menu | FieldType::Device => FieldType::Enum,
        other => other,
    };
    NUMBERS.iter().find(|(_, known)| *known == kind).map_or(TEXT, |(code, _)| *code)
}

impl Kind {
    /// Whether values are numeric, so that mean and maximum exist.
    #[must_use]
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Number(_) | Self::Bool)
    }

    /// Code of the type in files.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Bool => BOOL,
            Self::Text => TEXT,
            Self::Blob => BLOB,
            Self::Number(kind) => number(kind),
            Self::Array(kind) => ARRAY | number(kind),
        }
    }

    /// The type of a code.
    ///
    /// # Errors
    /// [`Bad::Kind`] if the code is unknown.
    pub fn from_code(code: u8) -> Result<Self, Bad> {
        let element = |code: u8| NUMBERS.iter().find(|(known, _)| *known == code).map(|(_, kind)| *kind);
        match code {
            BOOL => Ok(Self::Bool),
            TEXT => Ok(Self::Text),
            BLOB => Ok(Self::Blob),
            _ if code == ARRAY | TEXT => Ok(Self::Array(FieldType::String)),
            _ if code & ARRAY != 0 => element(code & !ARRAY).map(Self::Array).ok_or(Bad::Kind(code)),
            _ => element(code).map(Self::Number).ok_or(Bad::Kind(code)),
        }
    }

    /// Whether values have variable length.
    #[must_use]
    pub const fn varies(self) -> bool {
        matches!(self, Self::Text | Self::Blob | Self::Array(_))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |kind: FieldType| match kind {
            FieldType::I8 => "i8",
            FieldType::U8 => "u8",
            FieldType::I16 => "i16",
            FieldType::U16 => "u16",
            FieldType::I32 => "i32",
            FieldType::U32 => "u32",
            FieldType::I64 => "i64",
            FieldType::U64 => "u64",
            FieldType::F32 => "f32",
            FieldType::F64 => "f64",
            FieldType::Enum | FieldType::Menu | FieldType::Device => "enum",
            FieldType::String | FieldType::Link => "text",
        };
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Text => f.write_str("text"),
            Self::Blob => f.write_str("blob"),
            Self::Number(kind) => f.write_str(word(*kind)),
            Self::Array(kind) => write!(f, "{}[]", word(*kind)),
        }
    }
}

impl Datum {
    /// The value's type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Bool(_) => Kind::Bool,
            Self::Number(Scalar::String(_)) | Self::Text(_) => Kind::Text,
            Self::Number(scalar) => Kind::Number(scalar.kind()),
            Self::Blob(_) => Kind::Blob,
            Self::Array(array) => Kind::Array(array.kind()),
        }
    }

    /// As a number; `None` for texts, arrays and blobs.
    #[must_use]
    pub const fn to_f64(&self) -> Option<f64> {
        match self {
            Self::Bool(value) => Some(*value as u8 as f64),
            Self::Number(scalar) => scalar.to_f64(),
            _ => None,
        }
    }

    /// The bits of a number; `None` for variable-length values. Integers are sign- or zero-extended, so that close values have
    /// close bits.
    #[must_use]
    pub fn bits(&self) -> Option<u64> {
        let Self::Number(scalar) = self else {
            return if let Self::Bool(value) = self { Some(u64::from(*value)) } else { None };
        };
        Some(match *scalar {
            Scalar::String(_) => return None,
            Scalar::I8(v) => i64::from(v) as u64,
            Scalar::U8(v) => v.into(),
            Scalar::I16(v) => i64::from(v) as u64,
            Scalar::U16(v) | Scalar::Enum(v) => v.into(),
            Scalar::I32(v) => i64::from(v) as u64,
            Scalar::U32(v) => v.into(),
            Scalar::I64(v) => v as u64,
            Scalar::U64(v) => v,
            Scalar::F32(v) => v.to_bits().into(),
            Scalar::F64(v) => v.to_bits(),
        })
    }

    /// Fingerprint for comparison: exact for numbers; checksum and length for variable-length values.
    #[must_use]
    pub fn print(&self) -> u64 {
        self.bits().unwrap_or_else(|| {
            let mut bytes = Vec::new();
            self.put_bytes(&mut bytes);
            u64::from(crc32c::crc32c(&bytes)) << 32 | bytes.len() as u64
        })
    }

    /// The inverse of [`bits`](Self::bits). Ignores bits beyond the type's width.
    #[must_use]
    pub const fn from_bits(kind: FieldType, bits: u64) -> Self {
        Self::Number(match kind {
            FieldType::I8 => Scalar::I8(bits as i8),
            FieldType::U8 => Scalar::U8(bits as u8),
            FieldType::I16 => Scalar::I16(bits as i16),
            FieldType::U16 => Scalar::U16(bits as u16),
            FieldType::I32 => Scalar::I32(bits as i32),
            FieldType::U32 => Scalar::U32(bits as u32),
            FieldType::I64 => Scalar::I64(bits as i64),
            FieldType::U64 => Scalar::U64(bits),
            FieldType::F32 => Scalar::F32(f32::from_bits(bits as u32)),
            FieldType::F64 => Scalar::F64(f64::from_bits(bits)),
            _ => Scalar::Enum(bits as u16),
        })
    }

    /// Appends the bytes of a variable-length value. Appends nothing for numbers.
    pub fn put_bytes(&self, out: &mut Vec<u8>) {
        macro_rules! elements {
            ($values:expr) => {
                $values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()))
            };
        }
        match self {
            Self::Text(bytes) | Self::Blob(bytes) => out.extend_from_slice(bytes),
            Self::Number(Scalar::String(text)) => out.extend_from_slice(text.bytes()),
            Self::Bool(_) | Self::Number(_) => {}
            Self::Array(array) => match array {
                Array::String(texts) => texts.iter().for_each(|text| {
                    out.push(text.bytes().len() as u8);
                    out.extend_from_slice(text.bytes());
                }),
                Array::I8(values) => elements!(values),
                Array::U8(values) => elements!(values),
                Array::I16(values) => elements!(values),
                Array::U16(values) | Array::Enum(values) => elements!(values),
                Array::I32(values) => elements!(values),
                Array::U32(values) => elements!(values),
                Array::I64(values) => elements!(values),
                Array::U64(values) => elements!(values),
                Array::F32(values) => elements!(values),
                Array::F64(values) => elements!(values),
            },
        }
    }

    /// The inverse of [`put_bytes`](Self::put_bytes). Allocates in proportion to the bytes.
    ///
    /// # Errors
    /// If the bytes are not a valid value of the type.
    pub fn from_bytes(kind: Kind, bytes: &[u8]) -> Result<Self, Bad> {
        macro_rules! elements {
            ($variant:ident, $type:ty) => {{
                let (words, rest) = bytes.as_chunks::<{ size_of::<$type>() }>();
                if !rest.is_empty() {
                    return Err(Bad::Rest);
                }
                Array::$variant(words.iter().map(|word| <$type>::from_le_bytes(*word)).collect())
            }};
        }
        Ok(match kind {
            Kind::Text => Self::Text(bytes.to_vec()),
            Kind::Blob => Self::Blob(bytes.to_vec()),
            Kind::Bool => return Err(Bad::Kind(BOOL)),
            Kind::Number(kind) => return Err(Bad::Kind(number(kind))),
            Kind::Array(element) => Self::Array(match element {
                FieldType::I8 => elements!(I8, i8),
                FieldType::U8 => elements!(U8, u8),
                FieldType::I16 => elements!(I16, i16),
                FieldType::U16 => elements!(U16, u16),
                FieldType::I32 => elements!(I32, i32),
                FieldType::U32 => elements!(U32, u32),
                FieldType::I64 => elements!(I64, i64),
                FieldType::U64 => elements!(U64, u64),
                FieldType::F32 => elements!(F32, f32),
                FieldType::F64 => elements!(F64, f64),
                FieldType::Enum | FieldType::Menu | FieldType::Device => elements!(Enum, u16),
                FieldType::String | FieldType::Link => {
                    let (mut input, mut texts) = (crate::bytes::Input(bytes), Vec::new());
                    while !input.is_empty() {
                        let len = input.u8()?;
                        texts.push(base::Str40::new(input.take(usize::from(len))?));
                    }
                    Array::String(texts)
                }
            }),
        })
    }
}

impl fmt::Display for Datum {
    /// Numbers with all digits, texts with invalid UTF-8 replaced, arrays as `[1, 2]`, blobs in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(scalar) => element(f, scalar),
            Self::Text(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Blob(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Array(array) => {
                f.write_str("[")?;
                for (index, scalar) in (0..array.len()).filter_map(|index| Some((index, array.get(index)?))) {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    element(f, &scalar)?;
                }
                f.write_str("]")
            }
        }
    }
}

fn element(f: &mut fmt::Formatter<'_>, scalar: &Scalar) -> fmt::Result {
    match scalar {
        Scalar::String(text) => write!(f, "{text}"),
        Scalar::I8(v) => write!(f, "{v}"),
        Scalar::U8(v) => write!(f, "{v}"),
        Scalar::I16(v) => write!(f, "{v}"),
        Scalar::U16(v) | Scalar::Enum(v) => write!(f, "{v}"),
        Scalar::I32(v) => write!(f, "{v}"),
        Scalar::U32(v) => write!(f, "{v}"),
        Scalar::I64(v) => write!(f, "{v}"),
        Scalar::U64(v) => write!(f, "{v}"),
        Scalar::F32(v) => write!(f, "{v:?}"),
        Scalar::F64(v) => write!(f, "{v:?}"),
    }
}

impl From<base::Value> for Datum {
    fn from(value: base::Value) -> Self {
        match value {
            base::Value::Scalar(Scalar::String(text)) => Self::Text(text.bytes().to_vec()),
            base::Value::Scalar(scalar) => Self::Number(scalar),
            base::Value::Array(array) => Self::Array(array),
        }
    }
}

impl From<bool> for Datum {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Datum {
    fn from(value: f64) -> Self {
        Self::Number(Scalar::F64(value))
    }
}

impl From<i64> for Datum {
    fn from(value: i64) -> Self {
        Self::Number(Scalar::I64(value))
    }
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}
