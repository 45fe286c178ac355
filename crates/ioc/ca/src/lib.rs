//! Channel Access, the protocol of EPICS: bytes in, bytes and events out.
//!
//! This crate opens no socket, reads no clock and does not depend on records. [`server::Server`] serves the values of a
//! [`server::Backend`], with the types of `base`; [`client::Client`] is the client's side; [`search`], [`beacon`] and
//! [`repeater`] process the datagrams. The caller transfers the bytes and passes in the time.
//!
//! Bytes from outside never cause a panic, and never reserve more memory than their own length or a stated bound.
//!
//! ```
//! use base::MonoNs;
//! use ca::client::{Client, ClientConfig};
//!
//! // The client has no socket: the caller requests channels, and takes the bytes to send.
//! let mut client = Client::new(ClientConfig::default());
//! let channel = client.channel(MonoNs(0), "SR:CURRENT", 0);
//! let searched = client.poll_datagram(MonoNs(1_000_000)).unwrap();
//! assert!(searched.windows(10).any(|bytes| bytes == b"SR:CURRENT"));
//! assert!(client.info(channel).is_none(), "no server has answered");
//! ```
#![forbid(unsafe_code)]

pub mod beacon;
mod buffer;
pub mod client;
pub mod dbr;
pub mod decode;
mod eca;
pub mod encode;
pub mod repeater;
pub mod search;
pub mod server;
mod slab;
pub mod wire;

pub use dbr::{Basic, Class, Dbr};
pub use eca::Eca;
