//! PVAccess, the second protocol of EPICS: bytes in, bytes and events out.
//!
//! This crate opens no socket, reads no clock and does not depend on records. [`codec`] decodes and encodes types and
//! values, [`wire`] splits a stream into messages, [`search`] processes datagrams. [`server::Server`] serves the values of
//! a [`server::Source`] as the types of [`nt`], and several fields as the structures of [`group`]. [`client::Client`] reads,
//! writes and monitors channels. The caller transfers the bytes and passes in the time.
//!
//! Bytes from outside never cause a panic. Decoding reserves memory in proportion to the bytes of the message, and
//! recursion is limited by [`codec::DEPTH_MAX`].
//!
//! ```
//! use pva::codec::{Kind, Order, Reader, Type, TypeTable, Value, Writer};
//!
//! let mut out = Writer::new(Order::Little);
//! out.ty(&Type::Scalar(Kind::F64));
//! out.value(&Value::F64(1.5));
//! let mut bytes = Reader::new(&out.bytes, Order::Little);
//! let ty = bytes.ty(&mut TypeTable::default()).unwrap();
//! assert_eq!(bytes.value(&ty).unwrap(), Value::F64(1.5));
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
pub mod group;
pub mod nt;
pub mod request;
pub mod search;
pub mod server;
pub mod wire;

/// The start of the name of a channel, where names without it are of Channel Access.
pub const SCHEME: &str = "pva://";
