//! How clients and managers introduce themselves: a few JSON lines over a Unix socket, once per connection.

use serde::{Deserialize, Serialize};

/// Raised whenever a greeting or the shared memory changes its meaning.
pub(crate) const VERSION: u32 = 2;
/// Longest greeting in bytes.
pub(crate) const BYTES_MAX: usize = 4096;
/// Most objects that a manager claims.
pub(crate) const CLAIMS_MAX: usize = 256;

/// The abstract Unix socket of the message server `name`.
#[must_use]
pub fn socket_name(name: &str) -> String {
    format!("tahti-messages-{name}")
}

/// What a client says first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// What it calls itself.
    pub(crate) name: String,
    /// The bands on which it wants to send or serve.
    pub(crate) bands: Vec<u8>,
    /// The objects that it claims: then it is a manager.
    #[serde(default)]
    pub(crate) serves: Vec<String>,
    /// The number of the other host for whose processes it speaks; 0: for itself.
    #[serde(default)]
    pub(crate) host: u16,
    /// Bytes of the pool for large bodies that a client wants; for a manager whether it takes such bodies (not 0).
    #[serde(default)]
    pub(crate) pool: u64,
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Welcome {
    /// Why not; the connection ends.
    Refused(String),
    /// Memory and door of a band, whose descriptors come with it, and where a pool was asked for the client's pool or the
    /// socket from which a manager hears of pools. As many as there are bands, then `Ready`.
    Band(u8),
    /// From now on messages are taken.
    Ready,
}
