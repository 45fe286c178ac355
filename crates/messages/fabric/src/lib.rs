//! Messages between hosts, over Zenoh.
//!
//! One link runs on each host. To the message server of its own host it is a manager of what other hosts serve
//! ([`near`]), and a client that passes on what they ask ([`far`]). Zenoh finds hosts, routes between them, encrypts
//! and controls access; ours are above it: message ids, the deadline, which travels as the time that remains, and the
//! rule that each request gets exactly one reply, which names the hop that was lost.
//!
//! Real time ends here: threads of Zenoh are ordinary ones. A band becomes one of Zenoh's priorities, so that what is
//! urgent overtakes what is not on the way, and each band has threads of its own on both sides.
//!
//! What a host serves is told by liveliness tokens `tahti/HOST/serves/PREFIX`; requests go to
//! `tahti/TO/band/BAND/FROM`, so that an access rule of Zenoh can bind `FROM` to the name in a certificate.
//!
//! Never here: who may do what (the message server asked decides), and how messages reach a manager.
#![forbid(unsafe_code)]

mod claims;
mod error;
mod far;
mod key;
mod link;
mod near;
mod wire;

pub use error::LinkError;
pub use key::{HostError, HostName};
pub use link::{BODIES, Config, Event, run};
