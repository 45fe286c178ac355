//! How clients and managers introduce themselves: a few JSON lines over a Unix socket, once per connection.

use serde::{Deserialize, Serialize};

/// Raised whenever a greeting or the shared memory changes its meaning.
pub(crate) const VERSION: u32 = 3;
/// Longest greeting in bytes, and longest answer to it.
pub(crate) const BYTES_MAX: usize = 128 << 10;
pub(crate) const WELCOME_BYTES_MAX: usize = 4096;
/// Most objects that a manager claims.
pub(crate) const CLAIMS_MAX: usize = 4096;
/// What can be done about more.
pub(crate) const FEWER: &str = "claim fewer or shorter names, or serve them by several managers";

/// The name of the socket of the message server `name`.
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
    /// The other host for whose processes it speaks; empty: for itself.
    #[serde(default)]
    pub(crate) host: String,
    /// Bytes of the pool for large bodies that a client wants; for a manager whether it takes such bodies (not 0).
    #[serde(default)]
    pub(crate) pool: u64,
}

impl Hello {
    /// Reads what a client says. The version comes first: what stands behind it is understood only if that is ours.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, GreetingError> {
        #[derive(Deserialize)]
        struct Spoken {
            version: u32,
        }
        let Spoken { version } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            return Err(GreetingError::Version(version));
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// Why what a client says first is not understood.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    #[error("no greeting: {0}")]
    Form(#[from] serde_json::Error),
    #[error("greeting of version {0}, expected {VERSION}; use the same tahti on both ends")]
    Version(u32),
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Welcome {
    /// Why not; the connection ends.
    Refused(String),
    /// Memory and gate of a band, whose descriptors come with it, and where a pool was asked for the client's pool or the
    /// socket from which a manager hears of pools. As many as there are bands, then `Ready`.
    Band(u8),
    /// From now on messages are taken.
    Ready,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_of_another_version_is_told_so_whatever_else_it_says() {
        let old = br#"{"version":1,"name":"a","bands":[3],"serves":[],"host":0}"#;
        let why = Hello::read(old).unwrap_err().to_string();
        assert_eq!(why, format!("greeting of version 1, expected {VERSION}; use the same tahti on both ends"));
        assert!(Hello::read(b"{}").unwrap_err().to_string().starts_with("no greeting: missing field `version`"));
    }
}
