//! The archive in a cluster of Cassandra: where many machines keep what each has logged.
//!
//! The log of each machine is the queue: [`Upload`] takes it to the cluster portion by portion, in its order, and leaves a
//! [`store::Mark`] behind it. While the cluster is away samples wait there, on the disk. A portion is sent again, the same, until
//! all of it is acknowledged; each sample has a key by its place in the log, so nothing is twice. [`Archive`] reads what is there
//! as [`store::Archive`] reads a folder.
//!
//! What is written of a portion is decided in `put`, the tables are in `schema`; both are pure. What speaks with a cluster is
//! there with the feature `driver` alone; without it opening one says so.
#![forbid(unsafe_code)]

#[cfg(feature = "driver")]
mod cell;
#[cfg(feature = "driver")]
mod client;
#[cfg(feature = "driver")]
mod put;
#[cfg(feature = "driver")]
mod read;
#[cfg(feature = "driver")]
mod schema;
mod status;
#[cfg(feature = "driver")]
mod upload;
#[cfg(not(feature = "driver"))]
mod without;

#[cfg(feature = "driver")]
pub use read::Archive;
pub use status::{News, Status};
#[cfg(feature = "driver")]
pub use upload::Upload;
#[cfg(not(feature = "driver"))]
pub use without::{Archive, Upload};
