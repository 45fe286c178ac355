//! Errors of an archive.

use crate::archive::Span;
use crate::catalogue::Problem;
use segment::rows::Gap;
use std::io;

/// Error of an archive.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system reported an error.
    #[error("{name}: failed to {doing}: {source}")]
    Io {
        /// Name of the file; empty for the folder.
        name: String,
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Another logger has the archive's lock.
    #[error(
        "the archive is written by another process (lock is taken); expected one writer: stop the other, or use another folder"
    )]
    Taken,
    /// Invalid name of a signal.
    #[error("the signal's name has {found} bytes; expected 1 to {max}, none of them a control character")]
    Name {
        /// Its length in bytes.
        found: usize,
        /// Maximum length in bytes.
        max: usize,
    },
    /// Invalid mark.
    #[error(
        "{name}: found {found:?}; expected `log NUMBER done SEGMENT OFFSET planned SEGMENT OFFSET`: put it back from a copy, or remove it to send the whole log again"
    )]
    Mark {
        /// The file.
        name: String,
        /// Beginning of its contents.
        found: String,
    },
    /// A database cannot be used.
    #[error("{place}: failed to {doing}: {source}")]
    Database {
        /// The database.
        place: String,
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Data on the disk are damaged.
    #[error("{name}: damaged at byte {offset}: {why}; see tahti archive verify")]
    Damaged {
        /// The file.
        name: String,
        /// Offset in the file.
        offset: u64,
        /// Description of the fault.
        why: String,
        /// Time span of the unreadable samples, if known.
        span: Option<Span>,
        /// Number of unreadable samples, as far as known.
        lost: u64,
    },
}

impl StoreError {
    pub(crate) fn io(name: &str, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let name = if name.is_empty() { "the archive's folder".to_owned() } else { name.to_owned() };
        move |source| Self::Io { name, doing, source }
    }

    pub(crate) fn damaged(name: &str, offset: u64, why: impl ToString) -> Self {
        Self::Damaged { name: name.to_owned(), offset, why: why.to_string(), span: None, lost: 0 }
    }

    /// Adds the time span and the number of the unreadable samples.
    pub(crate) fn about(mut self, of: (i64, i64), count: u64) -> Self {
        if let Self::Damaged { span, lost, .. } = &mut self {
            (*span, *lost) = (Some(Span { from: of.0, to: of.1 }), count);
        }
        self
    }

    /// The damage; `None` for any other error.
    #[must_use]
    pub fn problem(&self) -> Option<Problem> {
        let Self::Damaged { name, offset, why, span, lost } = self else { return None };
        Some(Problem { span: *span, lost: *lost, ..Problem::new(name, (*offset, 0), why) })
    }

    /// The gap that the damage leaves within a span; `None` for any other error.
    #[must_use]
    pub fn gap(&self, within: Span) -> Option<Gap> {
        let problem = self.problem()?;
        Problem { span: problem.span.or(Some(within)), ..problem }.gap(within)
    }
}
