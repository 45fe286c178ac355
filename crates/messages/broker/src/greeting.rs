//! Greetings of clients and managers: JSON over a Unix socket, once per connection.

use serde::{Deserialize, Serialize};

/// Increased whenever the meaning of the greeting or of the shared memory changes.
pub(crate) const VERSION: u32 = 3;
/// Maximum bytes of a greeting and of the server's answer.
pub(crate) const BYTES_MAX: usize = 128 << 10;
pub(crate) const WELCOME_BYTES_MAX: usize = 4096;
/// Maximum number of objects that a manager claims.
pub(crate) const CLAIMS_MAX: usize = 4096;
/// Remedy for a greeting with too many objects.
pub(crate) const FEWER: &str = "claim fewer or shorter names, or serve them by several managers";

/// The name of the socket of the message server `name`.
#[must_use]
pub fn socket_name(name: &str) -> String {
    format!("tahti-messages-{name}")
}

/// Greeting of a client or manager.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// Its name, chosen by itself.
    pub(crate) name: String,
    /// Requested bands.
    pub(crate) bands: Vec<u8>,
    /// The objects that it claims. A non-empty list makes it a manager.
    #[serde(default)]
    pub(crate) serves: Vec<String>,
    /// The remote host that a link represents; empty for all others.
    #[serde(default)]
    pub(crate) host: String,
    /// For a client: bytes of the requested pool for large bodies. For a manager: non-zero if it accepts such bodies.
    #[serde(default)]
    pub(crate) pool: u64,
}

impl Hello {
    /// Parses a greeting. The version is checked first, because the other fields are valid only for our version.
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

/// A greeting that cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    #[error("no greeting: {0}")]
    Form(#[from] serde_json::Error),
    #[error("greeting of version {0}, expected {VERSION}; use the same tahti on both ends")]
    Version(u32),
}

/// The server's answers to a greeting.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Welcome {
    /// Refused, with the reason. The server then closes the connection.
    Refused(String),
    /// Accepted on this band. The descriptors of the memory and the gate come with it. If a pool was requested, a third
    /// one follows: the client's pool, or the manager's socket for announcements of pools. One `Band` per band, then
    /// `Ready`.
    Band(u8),
    /// The server now takes messages.
    Ready,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_of_another_version_is_refused_with_both_versions() {
        let old = br#"{"version":1,"name":"a","bands":[3],"serves":[],"host":0}"#;
        let why = Hello::read(old).unwrap_err().to_string();
        assert_eq!(why, format!("greeting of version 1, expected {VERSION}; use the same tahti on both ends"));
        assert!(Hello::read(b"{}").unwrap_err().to_string().starts_with("no greeting: missing field `version`"));
    }
}
