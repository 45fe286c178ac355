//! PVAccess on sockets: servers, clients, and EPICS' environment variables for both.
//!
//! The crate `pva` implements the protocol, and `canet` has the sockets of servers.
//!
//! ```no_run
//! use pva::client::{Action, Event};
//! use pva::request::Request;
//! use pvanet::session::Session;
//!
//! // EPICS_PVA_ADDR_LIST and its kin are read from the environment.
//! let mut session = Session::open(|name| std::env::var(name).ok())?;
//! let channel = session.client.channel(Session::now(), "SR:CURRENT");
//! let get = session.client.start(channel, Action::Get, &Request::default());
//! let until = Session::now() + base::DurNs::from_secs(5);
//! while let Some(event) = session.step(until)? {
//!     if matches!(event, Event::Value { .. }) {
//!         return Ok(println!("{:?}", session.client.value(get)));
//!     }
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod config;
pub mod server;
pub mod session;
