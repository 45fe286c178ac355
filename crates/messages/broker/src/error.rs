//! Why a message server or its end for ZeroMQ does not serve.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a message server does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Its socket cannot be had, mostly since another server has the name.
    #[error("{source}; another message server {name:?} runs, or give this one another name")]
    Name {
        /// The name.
        name: String,
        /// What the kernel says.
        source: sys::Error,
    },
    /// Its log cannot be opened.
    #[error("message log {}: {source}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
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

/// An address that is none of ZeroMQ's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?}, expected an address such as tcp://127.0.0.1:5555")]
pub struct AddressError {
    /// What was found.
    pub found: String,
}

/// ZeroMQ's clients cannot be served at an address.
#[derive(Debug, thiserror::Error)]
#[error("listen at tcp://{address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// What the kernel says.
    pub source: io::Error,
}
