//! Export and import of samples: CSV tables and PB files of the EPICS Archiver Appliance in both directions; JSON lines and Parquet for export
//! only (`columns` imports Parquet).
//!
//! A table has one row per sample: `signal,time_ns,type,value,severity,status,pulse`. Reading restores exactly what was written: numbers bit
//! for bit (except NaN payloads), and texts that are not UTF-8.
//!
//! This crate has no access to archives or folders. Invalid input does not panic.
#![forbid(unsafe_code)]

mod cell;
mod csv;
mod lines;
mod pb;
mod table;

pub use cell::{cell, datum, kind};
pub use csv::{CsvReader, CsvWriter};
pub use lines::LinesWriter;
pub use pb::{PbReader, PbWriter};
pub use segment::{escaped, unescaped};
pub use table::ParquetWriter;

use segment::rows::{About, Cause};
use segment::{Kind, Sample};

/// An item of an archive.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Description of a signal, valid from an instant on.
    Signal {
        /// Name of the signal.
        name: String,
        /// Start of validity, in nanoseconds since 1970, UTC.
        since: i64,
        /// Type of the values.
        kind: Kind,
        /// Units, precision and labels.
        about: About,
    },
    /// A sample.
    Sample {
        /// Name of the signal.
        name: String,
        /// The sample.
        sample: Sample,
    },
    /// A gap: samples are missing from an instant on.
    Gap {
        /// Name of the signal; `None` for all signals.
        name: Option<String>,
        /// Start of the gap, in nanoseconds since 1970, UTC.
        at: i64,
        /// Cause.
        cause: Cause,
        /// Number of lost samples, if known.
        lost: u64,
    },
}

/// Writer of rows in one format.
pub trait Writer {
    /// Appends a row. Formats without rows of its kind skip it.
    ///
    /// # Errors
    /// The file cannot be written.
    fn write(&mut self, row: &Row) -> Result<(), ExchangeError>;

    /// Ends the file.
    ///
    /// # Errors
    /// The file cannot be written.
    fn finish(self: Box<Self>) -> Result<(), ExchangeError>;
}

/// Error of an import or export.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// An error of the operating system.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// An invalid line.
    #[error("line {line}: {wrong}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// The problem.
        wrong: Wrong,
    },
    /// A text that is not UTF-8.
    #[error("{0}")]
    Encoding(::table::NotUtf8),
    /// An error of a format that another crate implements.
    #[error("{0}")]
    Form(Box<dyn std::error::Error + Send + Sync>),
}

/// A problem with a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The number of fields is wrong.
    #[error("{found} fields; expected {expected}")]
    Fields {
        /// Number of fields found.
        found: usize,
        /// Number of fields expected.
        expected: usize,
    },
    /// The header is not as expected.
    #[error("the header is {found:?}; expected {expected:?}, or another order of these")]
    Header {
        /// Header found.
        found: String,
        /// Header expected.
        expected: &'static str,
    },
    /// A field has an invalid value.
    #[error("{column} is {found:?}; expected {expected}")]
    Field {
        /// Name of the column.
        column: &'static str,
        /// Start of the value.
        found: String,
        /// Expected values.
        expected: String,
    },
    /// A quote is not closed, or is followed by other text.
    #[error("a field in quotes that does not end with one; expected \"…\" with quotes inside doubled")]
    Quote,
    /// A line is not a line of a PB file.
    #[error("{0}")]
    Pb(#[from] appliance::pb::Bad),
    /// A row exceeds the maximum size.
    #[error("a row of more than {0} bytes; expected a shorter one")]
    Long(usize),
}

impl Wrong {
    /// Error for a field, with the start of its value.
    pub(crate) fn field(column: &'static str, found: &str, expected: impl Into<String>) -> Self {
        Self::Field { column, found: found.chars().take(48).collect(), expected: expected.into() }
    }
}
