//! Why the kernel cannot be recorded.

use std::io;
use std::path::PathBuf;

/// Why the kernel cannot be recorded, or what was recorded not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// This user may not.
    #[error("{0}: recording what the kernel does needs root (CAP_SYS_ADMIN)")]
    Forbidden(sys::Error),
    /// This kernel cannot.
    #[error("{0}: this kernel is built without tracing (CONFIG_FTRACE)")]
    NoTracing(sys::Error),
    /// The kernel refused something else.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    /// The kernel's descriptions of its events are not understood.
    #[error(transparent)]
    Events(#[from] trace::DecoderError),
    /// A file of the recorder's folder cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The recorder's status cannot be put into JSON.
    #[error("status: {0}")]
    Status(#[from] serde_json::Error),
}
