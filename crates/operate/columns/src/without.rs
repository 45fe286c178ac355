//! Replacement for the reader in builds without the feature. Opening fails.

use crate::ColumnsError;
use exchange::{ExchangeError, Row};
use std::convert::Infallible;
use std::fs::File;

/// A table. It cannot be opened.
pub struct ParquetReader(Infallible);

impl ParquetReader {
    /// Reports that the feature is missing.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: File) -> Result<Self, ExchangeError> {
        Err(ColumnsError::Missing.into())
    }
}

impl Iterator for ParquetReader {
    type Item = Result<Row, ExchangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_parquet_names_the_required_feature() {
        let any = File::open("/proc/self/exe").unwrap();
        let said = ParquetReader::new(any).err().map(|error| error.to_string()).unwrap();
        assert!(said.ends_with("build it with --features parquet"), "{said}");
    }
}
