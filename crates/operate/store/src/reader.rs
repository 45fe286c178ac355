//! Common interface for reading archives, wherever they are stored.

use crate::archive::{Archive, SignalInfo, Span};
use crate::bins::{Bin, Bins};
use crate::catalogue::Problem;
use crate::error::StoreError;
use crate::files::Files;
use segment::Sample;
use segment::rows::{Gap, Signal};

/// Samples in order of time. An unreadable part yields an error, and the stream continues after it.
pub type Stream<'a> = Box<dyn Iterator<Item = Result<Sample, StoreError>> + 'a>;

/// An archive opened for reading: a folder or a database. Each call may wait for the disk or the network. Memory is bounded, even
/// if a span has more samples than fit into memory.
pub trait Reader {
    /// Names of all signals, sorted.
    ///
    /// # Errors
    /// If the archive cannot be read. The same applies to the methods below.
    fn names(&self) -> Result<Vec<String>, StoreError>;

    /// Rows of a signal, one per change, oldest first; empty if there is no signal of that name.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn rows(&self, name: &str) -> Result<Vec<Signal>, StoreError>;

    /// Describes a signal; `None` if there is no signal of that name.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn about(&self, name: &str) -> Result<Option<SignalInfo>, StoreError>;

    /// The samples of a signal within a span, in order of time. Samples with equal stamps are in order of arrival.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn samples<'a>(&'a self, name: &str, span: Span) -> Result<Stream<'a>, StoreError>;

    /// The newest sample of a signal at an instant or before it.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, StoreError>;

    /// Gaps of a signal within a span, including those that apply to all signals, in order of time.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn gaps(&self, name: &str, span: Span) -> Result<Vec<Gap>, StoreError>;

    /// Summaries of a signal's numbers in intervals of equal length. Intervals without numbers are omitted.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn bins(&self, name: &str, bins: Bins) -> Result<Vec<Bin>, StoreError>;

    /// Damage found so far that may affect samples in a span. Always empty for a database, which maintains its own integrity.
    fn problems(&self, _span: Span) -> Vec<Problem> {
        Vec::new()
    }

    /// Names that match a pattern with `*` and `?`, sorted.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn matching(&self, pattern: &str) -> Result<Vec<String>, StoreError> {
        let mut names = self.names()?;
        names.retain(|name| name == pattern || base::glob(pattern, name));
        Ok(names)
    }
}

impl<F: Files> Reader for Archive<F> {
    fn problems(&self, span: Span) -> Vec<Problem> {
        self.problems(span)
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.names())
    }

    fn rows(&self, name: &str) -> Result<Vec<Signal>, StoreError> {
        Ok(self.rows(name))
    }

    fn about(&self, name: &str) -> Result<Option<SignalInfo>, StoreError> {
        self.about(name)
    }

    fn samples<'a>(&'a self, name: &str, span: Span) -> Result<Stream<'a>, StoreError> {
        Ok(Box::new(self.samples(name, span)?))
    }

    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, StoreError> {
        self.at(name, at)
    }

    fn gaps(&self, name: &str, span: Span) -> Result<Vec<Gap>, StoreError> {
        Ok(self.gaps(name, span))
    }

    fn bins(&self, name: &str, bins: Bins) -> Result<Vec<Bin>, StoreError> {
        self.bins(name, bins)
    }
}
