//! The IOC's shell: Channel Access sockets, scans and the command interpreter around the database engine.
//!
//! The rules for records are in `db`, those for the protocol in `ca`. This crate contains the loops and threads, based on the
//! sockets of `canet`. The network thread ([`engine`]) owns all circuits and the housekeeping shard of the database. Each
//! scan group has threads that each own a shard (`owner`). They share no lock: jobs, answers and posts go through bounded
//! rings. All other threads use [`engine::Mailbox`] to reach the network thread.
#![forbid(unsafe_code)]

// Printed text may come from records written by clients. Its control characters must not reach a terminal.
#[macro_use]
extern crate sys;

pub mod autosave;
mod bridge;
pub mod devices;
pub mod engine;
mod execute;
mod faults;
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
mod recsync;
pub mod scans;
mod scanstats;
pub mod sequencer;
mod shard;
pub mod shard_port;
pub mod shell;
mod stamps;
pub mod store;

use base::DurNs;

/// A thread that finishes no round of its loop for longer than this hangs.
const HANGS_AFTER: DurNs = DurNs::from_secs(4);
/// The same for threads that wait for the engine, a server or a disk.
const SLOW_HANGS_AFTER: DurNs = DurNs::from_secs(15);
