//! The archive's samples as tables in columns: Apache Parquet files, both ways.
//!
//! One file holds any number of signals, a row for each sample and for each gap; [`ParquetWriter`] says which columns there are.
//! What was written is read back exactly. Files of others are read where they have `signal`, `time` and `value`.
//!
//! A file of ours has a checksum over all of it, which is looked at first. Parquet's own reader may panic on pages that are damaged
//! in a way that it does not expect: [`ParquetReader`] makes an error of that where panics unwind; where they abort, who reads foreign
//! files says what is to be said in the panic hook.
//!
//! What speaks Parquet is there with the feature `parquet` alone; without it both ends say so. Never here: archives and folders.
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
#[cfg(feature = "parquet")]
mod write;

pub use error::ColumnsError;
#[cfg(feature = "parquet")]
pub use read::ParquetReader;
#[cfg(not(feature = "parquet"))]
pub use without::{ParquetReader, ParquetWriter};
#[cfg(feature = "parquet")]
pub use write::ParquetWriter;

#[cfg(all(test, feature = "parquet"))]
mod tests;
