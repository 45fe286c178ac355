//! A pack as a Parquet file: a table that other programs read as it is, and behind it what an archive's own readers need to
//! find a chunk and to read it without the rest.
//!
//! | column | type | |
//! |---|---|---|
//! | `signal` | text | missing in a gap of all signals |
//! | `time` | TIMESTAMP(NANOS, UTC) | |
//! | `type` | text | as [`Kind`] is shown; `gap` for a row that is no sample |
//! | `value` | DOUBLE | each number, boolean and state |
//! | `value_i64`, `value_u64` | INT64 | all digits of such numbers |
//! | `label` | text | the name of a state |
//! | `text`, `blob` | text, bytes | a text that is no UTF-8 is in `blob` |
//! | `array_f64`, `array_i64`, `array_u64`, `array_text` | LIST | numbers with a point, whole ones, texts as [`escaped`](crate::escaped) |
//! | `severity`, `status`, `pulse` | whole numbers | `pulse` is missing where there is none |
//! | `gap`, `lost` | text, whole number | why there are no samples from `time` on, and how many were lost |
//!
//! All files have all columns, so that several are one table. A chunk has pages of its own in the columns that its values
//! need; what is the same for many chunks (no alarm, no pulse) is one page for all of them. Behind the groups of rows stand
//! blocks as in any pack, which the table does not mention: where each chunk's pages are, with their checksums, what the
//! chunk's numbers are together, dictionary, gaps, directory, trailer. The file's end has a checksum over all of it.
//!
//! Only what is written here is read here: no word of a file is trusted but by checksum, and there are no forms but ours.

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

/// Where a file's end begins, from its length and its last [`SUM_LEN`] bytes; `None` where they are no file's.
#[must_use]
pub fn end_of(len: u64, last: &[u8; SUM_LEN as usize]) -> Option<u64> {
    let (bytes, magic) = last.split_first_chunk::<4>()?;
    let body = len.checked_sub(SUM_LEN)?.checked_sub(u32::from_le_bytes(*bytes).into())?;
    (*magic == MAGIC).then_some(body)
}

/// What a file begins and ends with.
pub const MAGIC: [u8; 4] = *b"PAR1";

/// Most bytes of a page, uncompressed: a chunk's longest value is 16 MiB, and a byte may become a number.
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

/// Parquet's own types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Physical {
    Int32 = 1,
    Int64 = 2,
    Double = 5,
    Bytes = 6,
}

/// What a column's values mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logical {
    None,
    Text,
    Time,
    /// Whole numbers that are never negative, of so many bits.
    Unsigned(i8),
}

/// Ways to write values, by Parquet's numbers.
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

    /// Where values of a type are, all digits of them.
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
