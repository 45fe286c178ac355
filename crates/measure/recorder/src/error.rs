//! Errors of recording.

use std::io;
use std::path::PathBuf;

/// Reason why the kernel cannot be recorded, or a recording cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The user lacks the privilege.
    #[error("{0}: recording what the kernel does needs root (CAP_SYS_ADMIN)")]
    Forbidden(sys::Error),
    /// The kernel does not support tracing.
    #[error("{0}: this kernel is built without tracing (CONFIG_FTRACE)")]
    NoTracing(sys::Error),
    /// Another error of the kernel.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    /// The kernel's descriptions of its events are not supported.
    #[error(transparent)]
    Events(#[from] trace::DecoderError),
    /// A file in the recorder's folder cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The status cannot be converted to JSON.
    #[error("status: {0}")]
    Status(#[from] serde_json::Error),
}
