//! Archive in a Cassandra cluster, shared by many machines.
//!
//! The log of each machine is the queue. [`Upload`] sends it to the cluster portion by portion, in order, and records its progress in a
//! [`store::Mark`]. While the cluster is unavailable, samples wait on the disk. A portion is repeated unchanged until all of it is
//! acknowledged. The key of each sample is its place in the log, so repetition creates no duplicates. [`Archive`] reads the cluster as
//! [`store::Archive`] reads a folder.
//!
//! `put` selects what to write for a portion, and `schema` defines the tables; both are pure. The code that talks to a cluster needs the
//! feature `driver`. Without it, opening an archive or upload returns an error.
#![forbid(unsafe_code)]

#[cfg(feature = "driver")]
mod buckets;
#[cfg(feature = "driver")]
mod cell;
#[cfg(feature = "driver")]
mod client;
#[cfg(feature = "driver")]
mod put;
#[cfg(feature = "driver")]
mod read;
#[cfg(feature = "driver")]
mod samples;
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
