//! The IOC's shell: Channel Access sockets, scans and the command interpreter round the database engine.
//!
//! Decisions about records are in `db`, about the protocol in `ca`; here are loops and threads, on `canet`'s sockets.
//! The network's thread ([`engine`]) owns all circuits and the housekeeping shard of the database; each scan group has
//! threads that own a shard of their own (`owner`). They share no lock: jobs, answers and posts go through bounded rings.
//! Everybody else talks to the network's thread through [`engine::Mailbox`].
#![forbid(unsafe_code)]

// What is printed may hold what others wrote into records: no terminal obeys it.
#[macro_use]
extern crate sys;

pub mod autosave;
mod bridge;
pub mod devices;
pub mod engine;
mod execute;
pub mod feed;
pub mod groups;
pub mod guard;
mod health;
mod job;
pub mod links;
mod owner;
pub mod plugins;
mod publish;
pub mod putlog;
pub mod scans;
mod scanstats;
mod shard;
pub mod shard_port;
pub mod shell;
mod stamps;
pub mod store;
