//! What can go wrong with an archive.

use crate::archive::Span;
use crate::catalogue::Problem;
use segment::rows::Gap;
use std::io;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("{name}: failed to {doing}: {source}")]
    Io {
        /// The file, or the folder where the name is empty.
        name: String,
        /// What was to be done.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Another logger has the archive.
    #[error(
        "the archive is written by another process (lock is taken); expected one writer: stop the other, or use another folder"
    )]
    Taken,
    /// No name for a signal.
    #[error("the signal's name has {found} bytes; expected 1 to {max}, none of them a control character")]
    Name {
        /// Bytes that it has.
        found: usize,
        /// Bytes that it may have.
        max: usize,
    },
    /// A mark that is none.
    #[error(
        "{name}: found {found:?}; expected `log NUMBER done SEGMENT OFFSET planned SEGMENT OFFSET`: put it back from a copy, or remove it to send the whole log again"
    )]
    Mark {
        /// The file.
        name: String,
        /// How it begins.
        found: String,
    },
    /// A database cannot be used.
    #[error("{place}: failed to {doing}: {source}")]
    Database {
        /// Which.
        place: String,
        /// What was to be done.
        doing: &'static str,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What is on the disk cannot be read.
    #[error("{name}: damaged at byte {offset}: {why}; see tahti archive verify")]
    Damaged {
        /// The file.
        name: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        why: String,
        /// The time of the samples that cannot be read, as far as that is known.
        span: Option<Span>,
        /// How many they are, as far as that is known.
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

    /// The same, for samples of which time and number are known.
    pub(crate) fn about(mut self, of: (i64, i64), count: u64) -> Self {
        if let Self::Damaged { span, lost, .. } = &mut self {
            (*span, *lost) = (Some(Span { from: of.0, to: of.1 }), count);
        }
        self
    }

    /// What is damaged; none if something else went wrong.
    #[must_use]
    pub fn problem(&self) -> Option<Problem> {
        let Self::Damaged { name, offset, why, span, lost } = self else { return None };
        Some(Problem { span: *span, lost: *lost, ..Problem::new(name, (*offset, 0), why) })
    }

    /// The gap that the damage leaves within a span; none if something else went wrong.
    #[must_use]
    pub fn gap(&self, within: Span) -> Option<Gap> {
        let problem = self.problem()?;
        Problem { span: problem.span.or(Some(within)), ..problem }.gap(within)
    }
}
