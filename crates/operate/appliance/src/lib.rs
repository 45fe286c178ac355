//! The EPICS Archiver Appliance's interface for retrieval, so that its clients read our archive: paths, parameters, formats,
//! post-processors, its PB files.
//!
//! A request becomes a [`Call`], which knows whose samples it [wants](Call::wants); on a [`Source`] it becomes an [`Answer`]: a status,
//! a type, and a body that is [written](Answer::write) piece by piece. Memory is bounded however much is answered, but for what
//! some post-processors need of one bin: [`BIN_SAMPLES_MAX`] samples at most.
//!
//! Never here: sockets, clocks, files. Bytes from outside never panic.
//!
//! ```
//! use appliance::{Call, Method, Request};
//!
//! let request = Request { method: Method::Get, path: "/retrieval/data/getData.json", query: "pv=mean_60(RF:TEMP)", body: b"" };
//! let call = Call::read(&request, 1_795_240_867_000_000_000)?;
//! assert!(call.wants("RF:TEMP") && !call.wants("RF:GRAD"));
//!
//! let unknown = Request { query: "pv=RF:TEMP&pp=meanest_60", ..request };
//! assert!(Call::read(&unknown, 0).unwrap_err().why.contains("is no post-processor"));
//! # Ok::<(), appliance::Refused>(())
//! ```
#![forbid(unsafe_code)]

mod answer;
mod at_time;
mod bins;
mod call;
mod flow;
mod format;
mod gaps;
mod instant;
mod names;
mod operator;
pub mod pb;
mod query;
mod regression;
mod wire;

pub use answer::{Answer, processed};
pub use bins::BIN_SAMPLES_MAX;
pub use call::{Call, Method, Request};
pub use format::{Format, put_json};
pub use operator::{Operator, Stat};

use segment::rows::{Gap, Signal};
use segment::{Sample, Summary};

/// What a source could not do.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Samples in order of time; one that could not be read is an error, after which others may come.
pub type Samples<'a> = Box<dyn Iterator<Item = Result<Sample, SourceError>> + 'a>;

/// An archive, as far as it is asked here. Times are nanoseconds since 1970, UTC; spans have both ends.
pub trait Source {
    /// Names of all signals, sorted.
    ///
    /// # Errors
    /// What could not be read.
    fn names(&self) -> Result<Vec<String>, SourceError>;

    /// What a signal has been, oldest first; nothing where there is none of the name.
    ///
    /// # Errors
    /// What could not be read.
    fn rows(&self, name: &str) -> Result<Vec<Signal>, SourceError>;

    /// The first and the last stamp of a signal, where it has samples.
    ///
    /// # Errors
    /// What could not be read.
    fn span(&self, name: &str) -> Result<Option<(i64, i64)>, SourceError>;

    /// The newest sample at an instant or before it.
    ///
    /// # Errors
    /// What could not be read.
    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, SourceError>;

    /// The samples within a span.
    ///
    /// # Errors
    /// What could not be read.
    fn samples(&self, name: &str, from: i64, to: i64) -> Result<Samples<'_>, SourceError>;

    /// What the samples of each of `count` spans of `width` nanoseconds are together, one after the other from `from` on, which is
    /// a multiple of the width: where each that has samples begins, in order.
    ///
    /// # Errors
    /// What could not be read.
    fn bins(&self, name: &str, from: i64, width: i64, count: usize) -> Result<Vec<(i64, Summary)>, SourceError>;

    /// Why there are no samples of a signal, within a span, in order of time.
    ///
    /// # Errors
    /// What could not be read.
    fn gaps(&self, name: &str, from: i64, to: i64) -> Result<Vec<Gap>, SourceError>;
}

/// Why there is no answer but this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// The status of HTTP: 400, 404, 405, 500.
    pub status: u16,
    /// What was found, and what was expected.
    pub why: String,
}

impl Refused {
    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Self { status: 400, why: why.into() }
    }

    pub(crate) fn unknown(name: &str) -> Self {
        let why = format!("{name:?} is not in the archive; /retrieval/bpl/getMatchingPVs?pv=* has the names");
        Self { status: 404, why }
    }
}

/// Why an answer ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// It was not begun.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The archive could not be read.
    #[error("the archive cannot be read: {0}")]
    Source(SourceError),
    /// Who asked does not take it any more.
    #[error("the answer is not taken: {0}")]
    Write(#[from] std::io::Error),
    /// A post-processor would have needed more memory than it may have.
    #[error(
        "a bin of {name:?} has more than {BIN_SAMPLES_MAX} samples, which the post-processor needs at once; expected shorter bins"
    )]
    Full {
        /// Whose bin.
        name: String,
    },
}

impl From<SourceError> for Refused {
    fn from(error: SourceError) -> Self {
        Self { status: 500, why: format!("the archive cannot be read: {error}") }
    }
}

impl From<SourceError> for Failed {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}
