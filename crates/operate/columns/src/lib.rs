//! Import of Apache Parquet files of tahti and of other programs as samples: any number of signals, one row per sample or gap.
//!
//! Files of [`exchange::ParquetWriter`] and packs of an archive are restored exactly. Files of other programs need the columns `signal`, `time`
//! and `value`.
//!
//! Files of tahti have a checksum over the whole file, which is verified first. The Parquet library may panic on damaged pages.
//! [`ParquetReader`] turns such a panic into an error if panics unwind. If they abort, the program must print its message in the panic hook.
//!
//! The Parquet library needs the feature `parquet`. Without it, the reader returns an error. This crate has no access to archives or folders.
#![forbid(unsafe_code)]

mod error;
#[cfg(feature = "parquet")]
mod leaf;
#[cfg(feature = "parquet")]
mod read;
#[cfg(feature = "parquet")]
mod schema;
#[cfg(feature = "parquet")]
mod sum;
#[cfg(not(feature = "parquet"))]
mod without;

pub use error::ColumnsError;
#[cfg(feature = "parquet")]
pub use read::ParquetReader;
#[cfg(not(feature = "parquet"))]
pub use without::ParquetReader;

#[cfg(all(test, feature = "parquet"))]
mod tests;
