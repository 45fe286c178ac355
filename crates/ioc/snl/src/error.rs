//! Errors in programs.

use std::fmt;

/// A place in a file, by the number of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pos {
    pub(crate) file: u16,
    pub(crate) line: u32,
}

/// An error in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnlError {
    /// The file; empty until the reader sets it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The found and the expected text.
    pub what: String,
    /// The remedy; empty if there is none.
    pub remedy: &'static str,
    pub(crate) number: u16,
}

impl SnlError {
    pub(crate) fn new(pos: Pos, what: impl Into<String>) -> Self {
        Self { file: String::new(), line: pos.line, what: what.into(), remedy: "", number: pos.file }
    }

    /// The message with its remedy, without the place.
    #[must_use]
    pub fn explained(&self) -> String {
        let separator = if self.remedy.is_empty() { "" } else { "\n  try: " };
        format!("{}{separator}{}", self.what, self.remedy)
    }

    pub(crate) const fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = remedy;
        self
    }
}

impl fmt::Display for SnlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.explained())
    }
}

impl std::error::Error for SnlError {}

/// The errors of a program, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnlErrors(pub Vec<SnlError>);

impl fmt::Display for SnlErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, error) in self.0.iter().enumerate() {
            let separator = if nth == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SnlErrors {}
