//! The message server, and the ends that clients and equipment managers hold.
//!
//! A [`Client`] or [`Manager`] introduces itself over a Unix socket; the kernel tells the server who it is. For each
//! band that it asks for it gets shared memory with one queue each way. In the [server](server::serve) each band has a
//! thread of its own with its own class, priority and CPU; what it decides is [`msg::Lane`]'s, a state machine. No
//! thread of one band ever waits for another's.
//!
//! Never here: decisions about messages (they are in `msg`), and what equipment is.
#![forbid(unsafe_code)]

mod client;
mod end;
mod error;
mod greeting;
mod manager;
mod memory;
mod message_buffer;
mod pool;
pub mod relay;
pub mod server;
mod spin;
mod wake_gate;
pub mod zmq;

pub use client::{Client, Received, Sending};
pub use end::{ClientError, Waker};
pub use greeting::socket_name;
pub use manager::{Manager, ManagerLane, Replies};
pub use pool::{Mapping, POOL_BYTES_MAX, Room, Rooms};
pub use spin::Spin;
