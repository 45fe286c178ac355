//! Address of a keyspace in a Cassandra cluster.

use crate::unit::DurNs;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Start of an address.
const SCHEME: &str = "cassandra://";

/// Maximum length of a keyspace's name, set by Cassandra.
const KEYSPACE_MAX: usize = 48;

/// The port of CQL.
const PORT: u16 = 9042;

/// Maximum number of nodes in an address. They report the other nodes.
const NODES_MAX: usize = 64;

/// A keyspace of a cluster. As text: `cassandra://HOST[:PORT],…/KEYSPACE[?credentials=FILE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Some of its nodes, each with its port.
    pub nodes: Vec<String>,
    /// The keyspace.
    pub keyspace: String,
    /// Replicas of a sample in each data centre; used when the keyspace is created.
    pub replication: u8,
    /// Samples older than this are deleted; `None`: never.
    pub ttl: Option<DurNs>,
    /// The path of a file with two lines: user, password.
    pub credentials: Option<String>,
}

/// Error of a text that is not a cluster's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseClusterError {
    /// The text does not have the form of an address.
    Form(String),
    /// The address has no node.
    Node(String),
    /// The address has no keyspace.
    Keyspace(String),
}

impl fmt::Display for ParseClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(text) => {
                write!(f, "found {text:?}; expected cassandra://HOST[:PORT],…/KEYSPACE[?credentials=FILE]")
            }
            Self::Node(text) => {
                write!(f, "{text:?} is no node; expected a host's name or address, and :PORT where it is not 9042")
            }
            Self::Keyspace(text) => {
                write!(f, "{text:?} is no keyspace; expected 1 to 48 of a-z, 0-9, _, a letter first")
            }
        }
    }
}

impl core::error::Error for ParseClusterError {}

impl Cluster {
    /// A keyspace of the cluster with these nodes. Its memory is never freed.
    ///
    /// # Errors
    /// The text is not an address.
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a str>, keyspace: &str) -> Result<Self, ParseClusterError> {
        let nodes: Vec<String> = nodes.into_iter().map(node).collect::<Result<_, _>>()?;
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return Err(ParseClusterError::Node(String::new()));
        }
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let begins = keyspace.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !begins || keyspace.len() > KEYSPACE_MAX || !keyspace.bytes().all(is_letter) {
            return Err(ParseClusterError::Keyspace(clipped(keyspace)));
        }
        Ok(Self { nodes, keyspace: keyspace.to_owned(), replication: 1, ttl: None, credentials: None })
    }

    /// The text has the form of an address, not of a folder.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl FromStr for Cluster {
    type Err = ParseClusterError;

    fn from_str(text: &str) -> Result<Self, ParseClusterError> {
        let form = || ParseClusterError::Form(clipped(text));
        let (nodes, rest) = text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(form)?;
        let (keyspace, query) = rest.split_once('?').map_or((rest, None), |(keyspace, query)| (keyspace, Some(query)));
        let mut cluster = Self::new(nodes.split(','), keyspace)?;
        if let Some(query) = query {
            let file = query.strip_prefix("credentials=").filter(|file| !file.is_empty()).ok_or_else(form)?;
            cluster.credentials = Some(file.into());
        }
        Ok(cluster)
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.nodes.join(","), self.keyspace)
    }
}

/// A node with its port.
fn node(text: &str) -> Result<String, ParseClusterError> {
    let wrong = || ParseClusterError::Node(clipped(text));
    let (host, port) = match text.rsplit_once(':') {
        // An IPv6 address is in brackets if a port follows.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)?)
        }
        _ => (text, PORT),
    };
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if host.is_empty() || host.len() > 255 || !host.bytes().all(is_good) {
        return Err(wrong());
    }
    if host.contains(':') && !host.starts_with('[') {
        Ok(format!("[{host}]:{port}"))
    } else {
        Ok(format!("{host}:{port}"))
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_address_names_nodes_and_keyspace() {
        let cluster: Cluster = "cassandra://127.0.0.1,db2:9043,::1/plant?credentials=/etc/db".parse().unwrap();
        assert_eq!(cluster.nodes, ["127.0.0.1:9042", "db2:9043", "[::1]:9042"]);
        assert_eq!((cluster.keyspace.as_str(), cluster.credentials), ("plant", Some("/etc/db".into())));
    }

    #[test]
    fn a_malformed_cluster_address_is_refused_with_the_expected_form() {
        for (text, said) in [
            ("cassandra:/a/b", "expected cassandra://"),
            ("cassandra://a", "expected cassandra://"),
            ("cassandra:///plant", "is no node"),
            ("cassandra://a:0/plant", "is no node"),
            ("cassandra://a b/plant", "is no node"),
            ("cassandra://a/Plant", "is no keyspace"),
            ("cassandra://a/p; drop", "is no keyspace"),
            ("cassandra://a/", "is no keyspace"),
            ("cassandra://a/p?password=x", "expected cassandra://"),
        ] {
            let error = text.parse::<Cluster>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
