//! Channel Access on sockets: what a server, a client and the repeater do with the network, whoever they are.
//!
//! What bytes mean is decided in `ca`; here they are moved. [`Net`](net::Net) holds a server's sockets, a
//! [`Session`](session::Session) is a client with its own, [`repeater`] a program; [`config`] reads EPICS' variables for all
//! of them. No record is known here: the IOC, the command-line tools and equipment managers share this crate.
#![forbid(unsafe_code)]

pub mod config;
pub mod net;
pub mod repeater;
pub mod session;
mod spin;
mod waker;

pub use waker::Waker;
