//! Alarms as a process: channels of Channel Access servers and processes of a plant in, a journal on the disk, a socket for those who look and
//! acknowledge.
//!
//! Never here: what an alarm does, which is `alarm`'s. It runs no command that a file names. Not for real-time threads: it
//! allocates, and waits for the disk.
#![forbid(unsafe_code)]

mod client;
mod clients;
mod journal;
mod plant;
mod serve;

pub use client::{Client, socket};
pub use journal::{Journal, JournalError, Keep, is_written, read};
pub use serve::{ServeError, serve};
