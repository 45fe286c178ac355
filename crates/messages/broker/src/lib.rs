//! The message server, and the client side of its connections for clients and equipment managers.
//!
//! A [`Client`] or [`Manager`] sends a greeting over a Unix socket; the kernel supplies its user and process id. For
//! each requested band it receives shared memory with one queue in each direction. The [server](server::serve) runs one
//! thread per band with its own class, priority and CPU. The thread's decisions are made by the state machine
//! [`msg::Lane`]. The thread of one band never waits for the thread of another.
//!
//! Out of scope: decisions about messages (they are in `msg`), and any knowledge of the equipment.
//!
//! ```
//! use base::DurNs;
//! use broker::server::{Config, Event, serve};
//! use broker::{Client, Manager, Sending};
//! use msg::{Answer, Band, Code};
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use std::sync::{Arc, mpsc};
//!
//! let name = format!("example-{}", std::process::id());
//! let (stop, (tell, ready)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
//! let (config, stopped) = (Config { name: name.clone(), ..Config::default() }, stop.clone());
//! let server = std::thread::spawn(move || {
//!     serve(config, &stopped, &mut |event| {
//!         if let Event::Ready(_) = event {
//!             tell.send(()).unwrap();
//!         }
//!     })
//! });
//! ready.recv().unwrap();
//!
//! let mut lanes = Manager::connect(&name, "magnets", &["sr_mag"], &[Band::DEFAULT]).unwrap();
//! let manager = std::thread::spawn(move || {
//!     lanes[0].serve(DurNs::from_secs(60), |asked, replies| {
//!         assert!(replies.answer(asked.ticket, &Answer::ok("120.5A")));
//!     })
//! });
//! let mut client = Client::connect(&name, "console", Band::DEFAULT).unwrap();
//! let sending = Sending { limit: DurNs::from_secs(60), ..Sending::default() };
//! let reply = client.ask("get/sr_mag_ps_b/current", &sending).unwrap();
//! assert_eq!((reply.code, &*reply.text), (Code::Ok, "120.5A"));
//!
//! manager.join().unwrap().unwrap();
//! stop.store(true, Ordering::Relaxed);
//! server.join().unwrap().unwrap();
//! ```
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

pub use client::{Client, Received, Sending, Served};
pub use end::{ClientError, Waker};
pub use greeting::socket_name;
pub use manager::{Manager, ManagerLane, Replies};
pub use pool::{Mapping, POOL_BYTES_MAX, Room, Rooms};
pub use spin::Spin;
