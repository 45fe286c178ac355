//! Ports: connections to equipment over TCP or a serial line, each with a thread of its own.
//!
//! A [`Port`] runs one exchange at a time ([`fieldbus::Exchange`]), in the order in which they were given to it; it
//! connects when the first one comes, reconnects with bounded back-off, and hands bytes that nobody asked for to whoever
//! [listens](Port::listen). Everybody who speaks with equipment uses it: records of the IOC, equipment managers.
//!
//! Nothing here is for real-time threads: they hand their requests to others.
#![forbid(unsafe_code)]

mod address;
mod connection;
mod queue;

pub use address::{Address, BadAddress, BadOption, Parity, Serial};
pub use connection::{ConnectError, Connection, Status};
pub use queue::{Job, Listener, Port};
