//! Requested real-time properties and their outcome.

use std::fmt;

/// One property of the process or of a loop's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obtained {
    /// Description of the property.
    pub what: String,
    /// `None` if it was obtained, otherwise the reason and a remedy.
    pub missing: Option<(String, &'static str)>,
}

impl Obtained {
    pub(crate) fn yes(what: impl Into<String>) -> Self {
        Self { what: what.into(), missing: None }
    }

    pub(crate) fn no(what: impl Into<String>, why: impl ToString, remedy: &'static str) -> Self {
        Self { what: what.into(), missing: Some((why.to_string(), remedy)) }
    }

    pub(crate) fn of<T>(what: impl Into<String>, result: sys::Result<T>, remedy: &'static str) -> Self {
        match result {
            Ok(_) => Self::yes(what),
            Err(error) => Self::no(what, error, remedy),
        }
    }
}

impl fmt::Display for Obtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.missing {
            None => f.write_str(&self.what),
            Some((why, "")) => write!(f, "not obtained: {} ({why})", self.what),
            Some((why, remedy)) => write!(f, "not obtained: {} ({why}); {remedy}", self.what),
        }
    }
}
