//! Errors of the message server and of its ZeroMQ endpoint.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The message server cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Its socket is unavailable, usually because another server has this name.
    #[error("{source}; another message server {name:?} runs, or give this one another name")]
    Name {
        /// The name.
        name: String,
        /// The system's error.
        source: sys::Error,
    },
    /// Its log cannot be opened.
    #[error("message log {}: {source}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("start a thread: {0}")]
    Thread(io::Error),
    /// The real-time threads cannot be started.
    #[error(transparent)]
    RealTime(#[from] rt::ArmError),
    /// The kernel refused something else.
    #[error(transparent)]
    System(#[from] sys::Error),
}

/// Not a valid ZeroMQ address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?}, expected an address such as tcp://127.0.0.1:5555")]
pub struct AddressError {
    /// The invalid text.
    pub found: String,
}

/// Listening for ZeroMQ clients failed.
#[derive(Debug, thiserror::Error)]
#[error("listen at tcp://{address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The system's error.
    pub source: io::Error,
}
