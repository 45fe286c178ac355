//! Messages between hosts, over Zenoh.
//!
//! One link runs on each host. At the message server of its own host it acts as a manager for the objects of other
//! hosts ([`near`]), and as a client that forwards the requests of other hosts ([`far`]). Zenoh discovers hosts, routes
//! between them, encrypts, and controls access. This crate adds message ids, the deadline (transmitted as the remaining
//! time), and the rule that each request gets exactly one reply, which names the hop that was lost.
//!
//! The link is not real-time: Zenoh's threads have no real-time class. Each band has separate threads on both sides and
//! maps to a priority of Zenoh, so that urgent messages overtake others.
//!
//! Liveliness tokens `tahti/HOST/serves/PREFIX` announce the objects of a host. Requests use the key
//! `tahti/TO/band/BAND/FROM`, so that an access rule of Zenoh can bind `FROM` to the name in a certificate.
//!
//! Out of scope: access to objects (decided by the receiving message server), and the delivery of messages to a
//! manager.
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
