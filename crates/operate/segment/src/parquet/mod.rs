//! A pack as a Parquet file: a table for other programs, followed by the index with which the archive's readers find and read
//! single chunks.
//!
//! | column | type | |
//! |---|---|---|
//! | `signal` | text | missing in a gap of all signals |
//! | `time` | TIMESTAMP(NANOS, UTC) | |
//! | `type` | text | [`Kind`] as displayed; `gap` for a gap |
//! | `value` | DOUBLE | each number, boolean and state |
//! | `value_i64`, `value_u64` | INT64 | 64-bit integers with all digits |
//! | `label` | text | the name of a state |
//! | `text`, `blob` | text, bytes | a text that is not valid UTF-8 is in `blob` |
//! | `array_f64`, `array_i64`, `array_u64`, `array_text` | LIST | floats, integers, texts as [`escaped`](crate::escaped) |
//! | `severity`, `status`, `pulse` | integers | `pulse` is missing if there is none |
//! | `gap`, `lost` | text, integer | why there are no samples from `time` on, and how many were lost |
//!
//! All files have the same columns, so that several files form one table. A chunk has separate pages in the columns that its
//! values need. Content that is equal for many chunks, such as no alarm and no pulse, is one page for all of them. After the row
//! groups there are blocks as in any pack, which the table does not reference: positions and checksums of each chunk's pages,
//! summaries, dictionary, gaps, directory, trailer. The footer has a checksum over the whole file.
//!
//! The reader supports only what this crate writes. It trusts no data without checking a checksum.

mod delta;
mod end;
mod index;
mod leaf;
mod read;
mod runs;
mod sum;
mod table;
mod thrift;
mod words;

pub use index::{Page, Pages, entries};
pub use sum::{SUM_LEN, has_sum, is_as_written, sum};
pub use table::Table;

use crate::datum::Kind;
use base::FieldType;

/// Offset of the footer, from the file's length and its last [`SUM_LEN`] bytes; `None` if these are not valid.
#[must_use]
pub fn end_of(len: u64, last: &[u8; SUM_LEN as usize]) -> Option<u64> {
    let (bytes, magic) = last.split_first_chunk::<4>()?;
    let body = len.checked_sub(SUM_LEN)?.checked_sub(u32::from_le_bytes(*bytes).into())?;
    (*magic == MAGIC).then_some(body)
}

/// First and last bytes of a file.
pub const MAGIC: [u8; 4] = *b"PAR1";

/// Maximum uncompressed size of a page. A value has up to 16 MiB, and each of its bytes may become a number.
const PLAIN_MAX: u32 = 256 << 20;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the module's table says what each is")]
pub enum Column {
    Signal,
    Time,
    Type,
    Value,
    ValueI64,
    ValueU64,
    Label,
    Text,
    Blob,
    ArrayF64,
    ArrayI64,
    ArrayU64,
    ArrayText,
    Severity,
    Status,
    Pulse,
    Gap,
    Lost,
}

/// Parquet's physical types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Physical {
    Int32 = 1,
    Int64 = 2,
    Double = 5,
    Bytes = 6,
}

/// Meaning of a column's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logical {
    None,
    Text,
    Time,
    /// Unsigned integers with this number of bits.
    Unsigned(i8),
}

/// Encodings, with Parquet's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Encoding {
    Plain = 0,
    Delta = 5,
    Dictionary = 8,
    Split = 9,
}

impl Column {
    const ALL: [Self; 18] = [
        Self::Signal,
        Self::Time,
        Self::Type,
        Self::Value,
        Self::ValueI64,
        Self::ValueU64,
        Self::Label,
        Self::Text,
        Self::Blob,
        Self::ArrayF64,
        Self::ArrayI64,
        Self::ArrayU64,
        Self::ArrayText,
        Self::Severity,
        Self::Status,
        Self::Pulse,
        Self::Gap,
        Self::Lost,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Time => "time",
            Self::Type => "type",
            Self::Value => "value",
            Self::ValueI64 => "value_i64",
            Self::ValueU64 => "value_u64",
            Self::Label => "label",
            Self::Text => "text",
            Self::Blob => "blob",
            Self::ArrayF64 => "array_f64",
            Self::ArrayI64 => "array_i64",
            Self::ArrayU64 => "array_u64",
            Self::ArrayText => "array_text",
            Self::Severity => "severity",
            Self::Status => "status",
            Self::Pulse => "pulse",
            Self::Gap => "gap",
            Self::Lost => "lost",
        }
    }

    const fn types(self) -> (Physical, Logical) {
        match self {
            Self::Signal | Self::Type | Self::Label | Self::Text | Self::ArrayText | Self::Gap => {
                (Physical::Bytes, Logical::Text)
            }
            Self::Blob => (Physical::Bytes, Logical::None),
            Self::Time => (Physical::Int64, Logical::Time),
            Self::Value | Self::ArrayF64 => (Physical::Double, Logical::None),
            Self::ValueI64 | Self::ArrayI64 => (Physical::Int64, Logical::None),
            Self::ValueU64 | Self::ArrayU64 | Self::Pulse | Self::Lost => (Physical::Int64, Logical::Unsigned(64)),
            Self::Severity => (Physical::Int32, Logical::Unsigned(8)),
            Self::Status => (Physical::Int32, Logical::Unsigned(16)),
        }
    }

    const fn is_list(self) -> bool {
        matches!(self, Self::ArrayF64 | Self::ArrayI64 | Self::ArrayU64 | Self::ArrayText)
    }

    /// The column that holds values of a type with all their digits.
    const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Number(FieldType::I64) => Self::ValueI64,
            Kind::Number(FieldType::U64) => Self::ValueU64,
            Kind::Number(_) | Kind::Bool => Self::Value,
            Kind::Text => Self::Text,
            Kind::Blob => Self::Blob,
            Kind::Array(FieldType::F32 | FieldType::F64) => Self::ArrayF64,
            Kind::Array(FieldType::U64) => Self::ArrayU64,
            Kind::Array(FieldType::String | FieldType::Link) => Self::ArrayText,
            Kind::Array(_) => Self::ArrayI64,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl Encoding {
    fn from_code(code: u8) -> Option<Self> {
        [Self::Plain, Self::Delta, Self::Dictionary, Self::Split].into_iter().find(|one| *one as u8 == code)
    }
}

#[cfg(test)]
mod tests;
