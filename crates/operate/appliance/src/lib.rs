//! The retrieval interface of the EPICS Archiver Appliance, so that its clients can read this archive: paths, parameters, formats,
//! post-processors, and PB files.
//!
//! A request is parsed to a [`Call`], which determines the signals that it [needs](Call::wants). With a [`Source`] it
//! gives an [`Answer`]: a status, a media type, and a body that is [written](Answer::write) piece by piece. Memory is
//! bounded for answers of any size. Some post-processors hold the samples of one bin, at most [`BIN_SAMPLES_MAX`].
//!
//! This crate uses no sockets, clocks or files. Invalid input does not panic.
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
pub use call::{Call, Method, Request, candidates};
pub use format::{Format, put_json};
pub use instant::parse as parse_instant;
pub use operator::{Operator, Stat};

use segment::rows::{Gap, Signal};
use segment::{Sample, Summary};

/// An error of a source.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Samples in order of time. An unreadable sample is an error; others may follow it.
pub type Samples<'a> = Box<dyn Iterator<Item = Result<Sample, SourceError>> + 'a>;

/// Interface to an archive. Times are nanoseconds since 1970, UTC. Both ends of a span are inclusive.
pub trait Source {
    /// Names of all signals, sorted.
    ///
    /// # Errors
    /// The archive could not be read.
    fn names(&self) -> Result<Vec<String>, SourceError>;

    /// Descriptions of a signal, oldest first. Empty if no signal has this name.
    ///
    /// # Errors
    /// The archive could not be read.
    fn rows(&self, name: &str) -> Result<Vec<Signal>, SourceError>;

    /// First and last timestamp of a signal, if it has samples.
    ///
    /// # Errors
    /// The archive could not be read.
    fn span(&self, name: &str) -> Result<Option<(i64, i64)>, SourceError>;

    /// Newest sample at or before an instant.
    ///
    /// # Errors
    /// The archive could not be read.
    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, SourceError>;

    /// Samples within a span.
    ///
    /// # Errors
    /// The archive could not be read.
    fn samples(&self, name: &str, from: i64, to: i64) -> Result<Samples<'_>, SourceError>;

    /// Summaries of `count` consecutive intervals of `width` nanoseconds. The first begins at `from`, a multiple of the width. Returns the
    /// start and the summary of each interval that has samples, in order.
    ///
    /// # Errors
    /// The archive could not be read.
    fn bins(&self, name: &str, from: i64, width: i64, count: usize) -> Result<Vec<(i64, Summary)>, SourceError>;

    /// Gaps of a signal within a span, in order of time.
    ///
    /// # Errors
    /// The archive could not be read.
    fn gaps(&self, name: &str, from: i64, to: i64) -> Result<Vec<Gap>, SourceError>;
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// HTTP status: 400, 404, 405 or 500.
    pub status: u16,
    /// Found and expected values.
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

/// Reason why an answer ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The request was refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The archive could not be read.
    #[error("the archive cannot be read: {0}")]
    Source(SourceError),
    /// The client closed the connection.
    #[error("the answer is not taken: {0}")]
    Write(#[from] std::io::Error),
    /// A post-processor would have exceeded its memory limit.
    #[error(
        "a bin of {name:?} has more than {BIN_SAMPLES_MAX} samples, which the post-processor needs at once; expected shorter bins"
    )]
    Full {
        /// Name of the signal.
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
