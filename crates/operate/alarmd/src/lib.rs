//! The alarm server. Input: Channel Access channels and processes of a plant. Output: a journal on the disk, a socket for
//! clients that list and acknowledge alarms, and notifications to webhooks and mail servers.
//!
//! The crate `alarm` implements the alarm logic. The server runs no commands from configuration files. Not for real-time threads:
//! it allocates and waits for the disk.
#![forbid(unsafe_code)]

mod client;
mod clients;
mod journal;
mod notify;
mod plant;
mod pvaccess;
mod serve;

pub use client::{Client, socket};
pub use journal::{Journal, JournalError, Retention, is_written, read};
pub use serve::{ServeError, serve};
