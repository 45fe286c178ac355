//! Errors of tables.

use exchange::ExchangeError;

/// Error of reading a table.
#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    /// The feature is not included in this build.
    #[error("this tahti was built without what reads Parquet of other programs; build it with --features parquet")]
    Missing,
    /// The file is not a Parquet file, or is damaged or truncated.
    #[cfg(feature = "parquet")]
    #[error("{0}; expected a whole Parquet file: put it back from a copy")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A column that samples need is missing or has the wrong type.
    #[error("the column {column} is {found}; expected {expected}")]
    Column {
        /// Name of the column.
        column: String,
        /// Type found.
        found: String,
        /// Type expected.
        expected: &'static str,
    },
    /// A row is not a valid sample.
    #[error("row {row}: {column} is {found:?}; expected {expected}")]
    Row {
        /// Number of the row, from 1.
        row: u64,
        /// Name of the column.
        column: String,
        /// Value found.
        found: String,
        /// Value expected.
        expected: String,
    },
    /// The signal descriptions in the file are invalid.
    #[error("the description of the signals ({key}) is {found:?}; expected the one that tahti archive export writes")]
    About {
        /// Key in the file's footer.
        key: &'static str,
        /// Start of the value.
        found: String,
    },
}

impl From<ColumnsError> for ExchangeError {
    fn from(error: ColumnsError) -> Self {
        Self::Form(Box::new(error))
    }
}
