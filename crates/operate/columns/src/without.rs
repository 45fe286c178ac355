//! What takes the place of both ends where the feature was left out: neither can be had.

use crate::ColumnsError;
use exchange::{ExchangeError, Row, Writer};
use segment::Kind;
use std::convert::Infallible;
use std::fs::File;
use std::io::Write;

/// A table to write, which cannot be begun.
pub struct ParquetWriter(Infallible);

impl ParquetWriter {
    /// Says that the feature is missing.
    ///
    /// # Errors
    /// Always.
    pub fn new<W: Write>(_: W, _: impl IntoIterator<Item = Kind>) -> Result<Self, ExchangeError> {
        Err(ColumnsError::Missing.into())
    }
}

impl Writer for ParquetWriter {
    fn write(&mut self, _: &Row) -> Result<(), ExchangeError> {
        match self.0 {}
    }

    fn finish(self: Box<Self>) -> Result<(), ExchangeError> {
        match self.0 {}
    }
}

/// A table to read, which cannot be opened.
pub struct ParquetReader(Infallible);

impl ParquetReader {
    /// Says that the feature is missing.
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
    fn who_has_no_parquet_is_told_the_feature() {
        let said = ParquetWriter::new(Vec::new(), []).err().map(|error| error.to_string());
        assert_eq!(said.as_deref(), Some("this tahti was built without Parquet; build it with --features parquet"));
    }
}
