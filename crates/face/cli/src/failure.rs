//! The error type of all commands. It holds any library error and is formatted only when printed.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination};

/// The error of a command and its exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    why: Box<dyn Error>,
    status: u8,
}

impl Failure {
    /// Replaces the exit status, which is 1 by default.
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

/// Converts the result of a command into its exit code. Prints the error, if any.
pub(crate) fn end<T: Termination>(result: Result<T, Failure>) -> ExitCode {
    result.map_or_else(Termination::report, Termination::report)
}

/// Adds the file name to an I/O error.
pub(crate) fn in_file(file: &Path) -> impl Fn(io::Error) -> Failure + Copy {
    move |error| format!("{}: {error}", file.display()).into()
}

/// The path of the running tahti binary, to start it again.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    Ok(std::env::current_exe().map_err(|error| format!("tahti's own program is not found: {error}"))?)
}

/// Reads a text file that users write. Reports invalid UTF-8 with the file name.
pub(crate) fn text_of(file: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(file).map_err(in_file(file))?;
    table::utf8(bytes).map_err(|error| format!("{}: {error}", file.display()).into())
}
