//! Errors of system calls.

use rustix::io::Errno;
use std::fmt;

/// A failed system call: the attempted operation with its object, and the kernel's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The attempted operation, as a fragment that fits "failed to …", with the object's name.
    pub doing: String,
    /// The kernel's error.
    pub errno: Errno,
}

/// The result of a syscall.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to {}: {}", self.doing, std::io::Error::from(self.errno))
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Converts an error of the standard library. One without an error number, because it is not the kernel's, becomes
    /// `EIO`.
    #[must_use]
    pub fn of(doing: impl Into<String>, error: &std::io::Error) -> Self {
        Self { doing: doing.into(), errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
    }

    /// An error from a libc call that has just returned -1.
    pub(crate) fn last(doing: impl Into<String>) -> Self {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self { doing: doing.into(), errno: Errno::from_raw_os_error(code) }
    }
}

/// Adds the attempted operation to an error of rustix or the standard library.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, Errno> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| Error { doing: what(), errno })
    }
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::of(what(), &error))
    }
}
