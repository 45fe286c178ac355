//! What an archive is read by, wherever it is kept.

use crate::archive::{Archive, Found, Span};
use crate::bins::{Bin, Bins};
use crate::catalogue::Problem;
use crate::error::StoreError;
use crate::files::Files;
use segment::Sample;
use segment::rows::{Gap, Signal};

/// Samples in order of time; what cannot be read is an item, and passed over.
pub type Stream<'a> = Box<dyn Iterator<Item = Result<Sample, StoreError>> + 'a>;

/// An archive to be read: a folder, or a database. Each call may wait for a disk or a network; memory is bounded, also where a
/// span holds more samples than there is memory.
pub trait Reader {
    /// Names of all signals, sorted.
    ///
    /// # Errors
    /// Where it cannot be read, as with all that follows.
    fn names(&self) -> Result<Vec<String>, StoreError>;

    /// What a signal has been, each change once, oldest first; nothing where there is none of that name.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn rows(&self, name: &str) -> Result<Vec<Signal>, StoreError>;

    /// What is known of a signal; `None` where there is none of that name.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn about(&self, name: &str) -> Result<Option<Found>, StoreError>;

    /// The samples of a signal within a span, in order of time; of the same time in the order in which they came.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn samples<'a>(&'a self, name: &str, span: Span) -> Result<Stream<'a>, StoreError>;

    /// The newest sample of a signal at an instant or before it.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, StoreError>;

    /// Why there are no samples of a signal, within a span: its own gaps and those of all signals, in order of time.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn gaps(&self, name: &str, span: Span) -> Result<Vec<Gap>, StoreError>;

    /// What the numbers of a signal are together, in spans of equal length. Spans without a number are left out.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    fn bins(&self, name: &str, bins: Bins) -> Result<Vec<Bin>, StoreError>;

    /// What is damaged, as far as it was read, and as far as samples of a span may be missing for it. A database has its own care of
    /// that.
    fn problems(&self, _span: Span) -> Vec<Problem> {
        Vec::new()
    }

    /// Names that a pattern with `*` and `?` means, sorted.
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

    fn about(&self, name: &str) -> Result<Option<Found>, StoreError> {
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
