//! The IOC's shell: Channel Access sockets, scans and the command interpreter round the database engine.
//!
//! Decisions about records are in `db`, about the protocol in `ca`; here are loops, sockets and threads.
//! One engine thread owns the database and all circuits, so nothing on a scan's path is shared by a lock;
//! network work is done in bounded bursts between scans. Everybody else talks to it through
//! [`engine::Mailbox`].
#![forbid(unsafe_code)]

pub mod config;
pub mod engine;
pub mod feed;
pub mod guard;
pub mod net;
pub mod session;
pub mod shell;
pub mod store;
