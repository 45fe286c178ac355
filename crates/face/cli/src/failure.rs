//! How commands fail: one type, made from every library's error; its text is made where it is printed.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination};

/// Why a command failed, and its exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    why: Box<dyn Error>,
    status: u8,
}

impl Failure {
    /// The same with another exit status than 1.
    pub(crate) fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(why: E) -> Self {
        Self { why: why.into(), status: 1 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl Termination for Failure {
    fn report(self) -> ExitCode {
        eprintln!("tahti: {}", self.to_string().trim_end());
        ExitCode::from(self.status)
    }
}

/// Ends a command: prints why it failed, if it did.
pub(crate) fn end<T: Termination>(result: Result<T, Failure>) -> ExitCode {
    result.map_or_else(Termination::report, Termination::report)
}

/// For what the standard library says of a file.
pub(crate) fn in_file(file: &Path) -> impl Fn(io::Error) -> Failure + Copy {
    move |error| format!("{}: {error}", file.display()).into()
}

/// This program, to start it once more.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().map_err(|error| format!("tahti's own program is not found: {error}"))?)
}

/// The text of a file that people write.
pub(crate) fn text_of(file: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(file).map_err(in_file(file))?;
    table::utf8(bytes).map_err(|error| format!("{}: {error}", file.display()).into())
}
