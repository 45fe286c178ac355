//! Host names, and the Zenoh keys of claims and requests.

use msg::{Band, HOST_BYTES_MAX};
use std::fmt;
use std::str::FromStr;

/// A host's name: letters, digits, `-`, `_` and `.`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

/// A text that is not a valid host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostError(String);

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "host {:?}, expected 1 to {HOST_BYTES_MAX} letters, digits, '-', '_' and '.', and not local, other or zmq",
            self.0
        )
    }
}

impl std::error::Error for HostError {}

impl FromStr for HostName {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let fits = msg::is_host(text) && !matches!(text, "local" | "other" | "zmq");
        if fits { Ok(Self(text.to_owned())) } else { Err(HostError(text.chars().take(HOST_BYTES_MAX).collect())) }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl HostName {
    /// The name as text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Key expression of all hosts' claims.
pub(crate) const CLAIMS: &str = "tahti/*/serves/*";

/// Key of the liveliness token by which `host` claims `prefix`.
pub(crate) fn claim(host: &HostName, prefix: &str) -> String {
    format!("tahti/{host}/serves/{prefix}")
}

/// Host and prefix of a claim's key.
pub(crate) fn parse_claim(key: &str) -> Option<(HostName, &str)> {
    let (host, prefix) = key.strip_prefix("tahti/")?.split_once("/serves/")?;
    msg::Object::new(prefix).ok()?;
    Some((host.parse().ok()?, prefix))
}

/// Key on which `to` receives requests of a band from `from`; `None`: from all hosts.
pub(crate) fn requests(to: &HostName, band: Band, from: Option<&HostName>) -> String {
    format!("tahti/{to}/band/{band}/{}", from.map_or("*", HostName::text))
}

/// The requesting host, taken from the key of its request.
pub(crate) fn asker(key: &str) -> Option<HostName> {
    key.rsplit('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_and_requests_survive_a_round_trip_as_keys() {
        let host: HostName = "sr-01.ring".parse().unwrap();
        assert_eq!(parse_claim(&claim(&host, "sr_mag")), Some((host.clone(), "sr_mag")));
        assert_eq!(asker(&requests(&host, Band::DEFAULT, Some(&host))), Some(host));
    }

    #[test]
    fn foreign_keys_are_not_claims() {
        for key in
            ["tahti/a/serves/", "tahti/a b/serves/x", "other/a/serves/x", "tahti/a/serves/x/y", "tahti/*/serves/x"]
        {
            assert_eq!(parse_claim(key), None, "{key}");
        }
        assert!("a/b".parse::<HostName>().is_err() && "".parse::<HostName>().is_err());
    }
}
