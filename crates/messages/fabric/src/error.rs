//! Errors of a link between hosts.

use broker::ClientError;
use msg::{Code, FrameError, HeaderError, TextError};
use std::path::PathBuf;

/// Zenoh's error type. It contains only a text.
type Zenoh = zenoh::Error;

/// A link cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// An error of Zenoh, usually about an address.
    #[error("zenoh: {0}")]
    Zenoh(Zenoh),
    /// The configuration file is not usable.
    #[error("zenoh configuration {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Zenoh's error.
        source: Zenoh,
    },
    /// A setting conflicts with the configuration file.
    #[error("{name} {value}: {source}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// Zenoh's error.
        source: Zenoh,
    },
}

/// The list of local objects is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("list the served objects: {code}: {why}")]
    Failed { code: Code, why: String },
}

/// Bytes from another host that are not a valid message.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("{found} bytes, expected a message")]
    Short { found: usize },
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Text(String),
    #[error("between hosts a message is a request with a deadline")]
    NoRequest,
    #[error("a body of {found} bytes behind its frame, expected {expected} with its checksum")]
    Body { found: usize, expected: u64 },
}

impl From<TextError<'_>> for WireError {
    fn from(error: TextError<'_>) -> Self {
        Self::Text(error.to_string())
    }
}
