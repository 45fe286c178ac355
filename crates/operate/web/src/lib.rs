//! HTTP/1.1 and WebSockets for processes with a web page or an API: the dashboard and the archive.
//!
//! A [`Site`] creates the answers. It uses no socket and receives the time with each request. [`Server`] transfers the
//! bytes. It enforces limits on clients, headers, bodies and times, and refuses requests from foreign web pages and for
//! foreign names ([`check`]).
//!
//! Must not be used in a process with armed real-time threads: it allocates, starts threads and changes mappings.
#![forbid(unsafe_code)]

mod body;
pub mod check;
mod identity;
mod seats;
mod server;
mod site;
mod slow;
mod socket;
mod timed;
mod user;

pub use identity::{IdentityError, IdentityFiles};
pub use seats::Owner;
pub use server::{Limits, Server};
pub use site::{Answer, Body, Message, Method, Next, Now, Parts, Request, Site, Socket};
