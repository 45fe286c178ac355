//! PVAccess on sockets: EPICS' environment variables for servers and clients.
//!
//! The crate `pva` implements the protocol, and `canet` has the sockets of servers.
#![forbid(unsafe_code)]

pub mod config;
