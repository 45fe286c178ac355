//! Other programs' Apache Parquet files as the archive's samples, and ours: any number of signals, a row for each sample and for each gap.
//!
//! What [`exchange::ParquetWriter`] and an archive's packs have is read back exactly. Files of others are read where they have
//! `signal`, `time` and `value`.
//!
//! A file of ours has a checksum over all of it, which is looked at first. Parquet's own reader may panic on pages that are damaged
//! in a way that it does not expect: [`ParquetReader`] makes an error of that where panics unwind; where they abort, who reads foreign
//! files says what is to be said in the panic hook.
//!
//! What reads Parquet is there with the feature `parquet` alone; without it the reader says so. Never here: archives and folders.
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
