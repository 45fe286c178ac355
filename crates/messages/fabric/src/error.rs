//! Why a link between hosts does not run.

use broker::ClientError;
use msg::{Code, FrameError, HeaderError, TextError};
use std::path::PathBuf;

/// Zenoh's own error, which has a text only.
type Zenoh = zenoh::Error;

/// Why a link does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Zenoh refused something, mostly an address.
    #[error("zenoh: {0}")]
    Zenoh(Zenoh),
    /// Its configuration file cannot be used.
    #[error("zenoh configuration {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What Zenoh says.
        source: Zenoh,
    },
    /// A setting cannot be had beside those of the file.
    #[error("{name} {value}: {source}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// What it was to be.
        value: String,
        /// What Zenoh says.
        source: Zenoh,
    },
}

/// Why it is not known what is served here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("list what is served: {code}: {why}")]
    Failed { code: Code, why: String },
}

/// Why bytes of another host are no message.
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
