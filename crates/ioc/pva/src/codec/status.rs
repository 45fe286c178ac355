//! The result of a request.

use std::fmt;

/// Whether a request succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// It succeeded.
    #[default]
    Ok,
    /// It succeeded, with a text to show.
    Warning,
    /// It failed.
    Error,
    /// It failed and must not be repeated.
    Fatal,
}

/// The result of a request, with a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether it succeeded.
    pub kind: Kind,
    /// The text, empty if it succeeded.
    pub message: String,
    /// The place in the peer's program, usually empty.
    pub tree: String,
}

impl Status {
    /// Success without a text.
    pub const OK: Self = Self { kind: Kind::Ok, message: String::new(), tree: String::new() };

    /// An error with a text.
    #[must_use]
    pub fn error(message: impl Into<String>) -> Self {
        Self { kind: Kind::Error, message: message.into(), tree: String::new() }
    }

    /// Whether data follow it in a message.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.kind, Kind::Ok | Kind::Warning)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Ok => "OK",
            Kind::Warning => "Warning",
            Kind::Error => "Error",
            Kind::Fatal => "Fatal",
        };
        if self.message.is_empty() { f.write_str(kind) } else { write!(f, "{kind}: {}", self.message) }
    }
}
