//! HTTP/1.1 and WebSockets for the processes that people and their programs look at: the dashboard, the archive.
//!
//! A [`Site`] decides what is answered; it knows no socket and gets the time with each request. [`Server`] moves the bytes, and
//! keeps what every site needs: bounds on clients, headers, bodies and times, and the checks that keep other web pages and other
//! names out ([`check`]).
//!
//! Nothing here may run in a process with armed real-time threads: it allocates, starts threads and changes mappings.
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
