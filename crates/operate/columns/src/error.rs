//! What can go wrong with a table.

use exchange::ExchangeError;

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    /// The feature was left out.
    #[error("this tahti was built without what reads Parquet of other programs; build it with --features parquet")]
    Missing,
    /// No Parquet file, or one that is damaged or cut off.
    #[cfg(feature = "parquet")]
    #[error("{0}; expected a whole Parquet file: put it back from a copy")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A table without what a sample needs, or with something else in its place.
    #[error("the column {column} is {found}; expected {expected}")]
    Column {
        /// Its name.
        column: String,
        /// What there is.
        found: String,
        /// What there should be.
        expected: &'static str,
    },
    /// A row that is no sample.
    #[error("row {row}: {column} is {found:?}; expected {expected}")]
    Row {
        /// Which, from 1.
        row: u64,
        /// The column's name.
        column: String,
        /// What is there.
        found: String,
        /// What there should be.
        expected: String,
    },
    /// What the file says of its signals.
    #[error("what the file says of its signals ({key}) is {found:?}; expected what tahti archive export writes")]
    About {
        /// The key in the file's end.
        key: &'static str,
        /// How it begins.
        found: String,
    },
}

impl From<ColumnsError> for ExchangeError {
    fn from(error: ColumnsError) -> Self {
        Self::Form(Box::new(error))
    }
}
