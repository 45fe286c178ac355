//! Reasons to refuse a greeting. The text is sent to the client.

use crate::greeting::{CLAIMS_MAX, FEWER, GreetingError};
use crate::pool::POOL_BYTES_MAX;
use msg::{Excess, ObjectError};
use ring::LayoutError;
use std::io;

/// Reason to refuse a greeting.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it went away")]
    Gone,
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error("name {0:?}, expected 1 to 64 printable ASCII characters without blanks")]
    Name(String),
    #[error("bands {0:?}, expected one or more of 0 to 7")]
    Bands(Vec<u8>),
    #[error("bands {0:?}, expected each once")]
    BandTwice(Vec<u8>),
    #[error("{0} objects to serve, expected at most {CLAIMS_MAX}; {FEWER}")]
    Claims(usize),
    #[error("object {0:?}: {1}")]
    Object(String, ObjectError),
    #[error("object server is the message server itself")]
    ServersObject,
    #[error("host {0:?}, expected 1 to 48 letters, digits, '-', '_' and '.', and not local or other")]
    Host(String),
    #[error("a link speaks for another host or serves its objects, by two connections")]
    LinkServes,
    #[error("user {0} may not serve objects here; only the server's own user and root may")]
    MayNotServe(u32),
    #[error("user {0} may not speak for other hosts; only the server's own user and root may")]
    MayNotSpeak(u32),
    #[error("no place is free")]
    NoPlace,
    #[error("host {0}: there are too many other hosts already")]
    Hosts(String),
    #[error("{prefix} is served by manager {manager} already")]
    Claimed { prefix: String, manager: String },
    #[error("a pool of {0} bytes, expected at most {POOL_BYTES_MAX}; ask for a smaller one")]
    Pool(u64),
    #[error(transparent)]
    Share(#[from] Excess),
    #[error(transparent)]
    System(#[from] sys::Error),
    #[error(transparent)]
    Memory(#[from] LayoutError),
    #[error("{0}")]
    Socket(io::Error),
}
