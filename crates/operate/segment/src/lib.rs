//! The archive's file format: blocks with checksums, dictionary rows, chunks of samples, gaps, indices of packs.
//!
//! A segment is a sequence of [`block`]s, each of which is checked and read independently. After a crash, only the last one may
//! be incomplete, which its checksum reveals. Within a segment, numbers represent signals; a dictionary row defines each number
//! before its first use. So a segment can be read without any other file.
//!
//! This crate does not access files, clocks or threads. Invalid input never causes a panic. Allocation for input is bounded by
//! [`chunk::SAMPLES_MAX`] and [`block::PAYLOAD_MAX`].
//!
//! ```
//! use segment::{Chunk, Datum, Sample};
//!
//! let mut chunk = Chunk::new(Datum::from(0.0).kind());
//! for k in 0..1000i64 {
//!     let sample = Sample::new(k * 100_000_000, 20.0 + (k % 7) as f64 / 100.0);
//!     assert!(chunk.push(&sample).is_ok());
//! }
//! let mut bytes = Vec::new();
//! chunk.encode(0, &mut bytes);
//! assert!(bytes.len() < 2_000, "a thousand readings of two decimals, ten a second: {} bytes", bytes.len());
//! assert_eq!(Chunk::decode(&bytes, 0).unwrap(), chunk);
//! ```
#![forbid(unsafe_code)]

mod bits;
pub mod block;
mod bytes;
pub mod chunk;
mod datum;
mod escape;
mod floats;
mod ints;
pub mod manifest;
pub mod pack;
pub mod parquet;
pub mod rows;
mod summary;

pub use bytes::Bad;
pub use chunk::{Chunk, Full, VALUE_MAX};
pub use datum::{Datum, Kind, Sample};
pub use escape::{escaped, unescaped};
pub use summary::{Point, Summary};
