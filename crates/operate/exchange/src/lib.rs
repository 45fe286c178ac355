//! The archive's samples as other programs' files: tables of text (CSV) and the EPICS Archiver Appliance's PB, both
//! ways; lines of JSON and Parquet, to write (`columns` reads Parquet).
//!
//! A table has one row for each sample: `signal,time_ns,type,value,severity,status,pulse`. What was written is read back
//! exactly: numbers bit for bit (but for the bits of what is no number), texts whose bytes are no UTF-8, too.
//!
//! Never here: archives and folders; bytes from outside never panic.
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

/// One thing that an archive knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// What a signal has been since an instant.
    Signal {
        /// Its name.
        name: String,
        /// Since when: nanoseconds since 1970, UTC.
        since: i64,
        /// The type of its values.
        kind: Kind,
        /// What they mean.
        about: About,
    },
    /// A sample.
    Sample {
        /// The signal's name.
        name: String,
        /// What was measured when.
        sample: Sample,
    },
    /// Why there are no samples from an instant on.
    Gap {
        /// The signal's name; `None` for all signals.
        name: Option<String>,
        /// Since when: nanoseconds since 1970, UTC.
        at: i64,
        /// Why.
        cause: Cause,
        /// How many samples were lost, where that is known.
        lost: u64,
    },
}

/// Writes rows in one form.
pub trait Writer {
    /// Appends a row; forms that have none of its kind leave it out.
    ///
    /// # Errors
    /// The file's.
    fn write(&mut self, row: &Row) -> Result<(), ExchangeError>;

    /// Ends the file.
    ///
    /// # Errors
    /// The file's.
    fn finish(self: Box<Self>) -> Result<(), ExchangeError>;
}

/// Why a file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A line that is none of ours.
    #[error("line {line}: {wrong}")]
    Line {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        wrong: Wrong,
    },
    /// What somebody's form that is not here says.
    #[error("{0}")]
    Form(Box<dyn std::error::Error + Send + Sync>),
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Another number of fields.
    #[error("{found} fields; expected {expected}")]
    Fields {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// The names of the columns.
    #[error("the header is {found:?}; expected {expected:?}, or another order of these")]
    Header {
        /// What it is.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A field that cannot be.
    #[error("{column} is {found:?}; expected {expected}")]
    Field {
        /// The column's name.
        column: &'static str,
        /// What it is, its beginning.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A quote that is not closed, or is followed by something.
    #[error("a field in quotes that does not end with one; expected \"…\" with quotes inside doubled")]
    Quote,
    /// No line of a PB file.
    #[error("{0}")]
    Pb(#[from] appliance::pb::Bad),
    /// A row is longer than this.
    #[error("a row of more than {0} bytes; expected a shorter one")]
    Long(usize),
}

impl Wrong {
    /// Of a field, shown by its beginning.
    pub(crate) fn field(column: &'static str, found: &str, expected: impl Into<String>) -> Self {
        Self::Field { column, found: found.chars().take(48).collect(), expected: expected.into() }
    }
}
