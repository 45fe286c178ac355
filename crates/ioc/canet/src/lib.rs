//! Channel Access on sockets: the network part of servers, clients and the repeater.
//!
//! The crate `ca` implements the protocol; this crate transfers the bytes. [`Net`](net::Net) has a server's sockets, a
//! [`Session`](session::Session) is a client with its sockets, [`repeater`] is a program, and [`config`] reads EPICS' variables
//! for all of them. The IOC, the command-line tools and equipment managers share this crate, which does not depend on
//! records.
//!
//! ```no_run
//! use ca::client::Event;
//! use ca::{Basic, Class, Dbr};
//! use canet::session::Session;
//!
//! // EPICS_CA_ADDR_LIST and its kin are read from the environment.
//! let mut session = Session::open(|name| std::env::var(name).ok())?;
//! let channel = session.client.channel(Session::now(), "SR:CURRENT", 0);
//! let until = Session::now() + base::DurNs::from_secs(5);
//! while let Some(event) = session.step(until)? {
//!     match event {
//!         Event::Connected(_) => drop(session.client.read(channel, Dbr::new(Class::Time, Basic::Double), 0)),
//!         Event::Read { result: Ok((_, reading)), .. } => return Ok(println!("{:?}", reading.value)),
//!         _ => {}
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod config;
pub mod net;
pub mod repeater;
pub mod session;
mod spin;
pub mod streams;
mod waker;

pub use waker::Waker;
