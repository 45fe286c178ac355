//! Export as a Parquet file: the same table as in the packs of an archive, without the parts that only an archive needs.

use crate::{ExchangeError, Row, Writer};
use segment::parquet::{self, MAGIC, Table};
use segment::rows::{Gap, Signal};
use segment::{Chunk, Full, Sample};
use std::io::{Error, ErrorKind, Write};

/// Writer of a table with one row per sample or gap, grouped by signal. Memory: one row group.
pub struct ParquetWriter<W> {
    out: W,
    /// Checksum of the output so far.
    sum: u32,
    table: Table,
    /// Current signal.
    name: Option<String>,
    /// Descriptions of the signal that have not been added to the table, and whether the table has the signal at all.
    rows: Vec<Signal>,
    is_told: bool,
    /// Samples of the signal that are not yet in a page.
    chunk: Option<Chunk>,
}

impl<W: Write> ParquetWriter<W> {
    /// Starts a table.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(out: W) -> Result<Self, ExchangeError> {
        let mut writer =
            Self { out, sum: 0, table: Table::new(), name: None, rows: Vec::new(), is_told: false, chunk: None };
        writer.put(&MAGIC)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.sum = parquet::sum(self.sum, bytes);
        Ok(self.out.write_all(bytes)?)
    }

    /// Switches to a signal: ends the pages of the previous one.
    fn of(&mut self, name: &str) -> Result<(), ExchangeError> {
        let is_new = self.name.as_deref() != Some(name);
        if is_new {
            self.pages()?;
            self.group_if_full(true)?;
            self.tell();
            self.name = Some(name.to_owned());
            self.is_told = false;
        }
        Ok(())
    }

    /// Adds the signal and its new descriptions to the table.
    fn tell(&mut self) {
        if let Some(name) = self.name.as_ref().filter(|_| !self.is_told || !self.rows.is_empty()) {
            self.table.signal(name, &self.rows);
            self.rows.clear();
            self.is_told = true;
        }
    }

    /// Writes the pending samples to pages.
    fn pages(&mut self) -> Result<(), ExchangeError> {
        if let Some(chunk) = self.chunk.take() {
            self.tell();
            self.group_if_full(false)?;
            self.table.chunk(0, &chunk);
        }
        Ok(())
    }

    fn group_if_full(&mut self, is_signals_end: bool) -> Result<(), ExchangeError> {
        if self.table.is_full(is_signals_end) { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), ExchangeError> {
        let mut bytes = Vec::new();
        // The positions of pages are only needed by an archive.
        self.table.group(&mut bytes);
        self.put(&bytes)
    }

    fn sample(&mut self, sample: &Sample) -> Result<(), ExchangeError> {
        let kind = sample.datum.kind();
        match self.chunk.get_or_insert_with(|| Chunk::new(kind)).push(sample) {
            Ok(()) => return Ok(()),
            Err(Full::TooLong) => {}
            Err(_) => {
                self.pages()?;
                if self.chunk.insert(Chunk::new(kind)).push(sample).is_ok() {
                    return Ok(());
                }
            }
        }
        Err(Error::new(ErrorKind::InvalidData, format!("a value of {kind} has more than {} bytes", segment::VALUE_MAX))
            .into())
    }
}

impl<W: Write> Writer for ParquetWriter<W> {
    fn write(&mut self, row: &Row) -> Result<(), ExchangeError> {
        match row {
            Row::Signal { name, since, kind, about } => {
                self.of(name)?;
                // Earlier samples belong to the earlier descriptions.
                self.pages()?;
                let (name, about) = (name.clone(), about.clone());
                self.rows.push(Signal { id: 0, since: *since, kind: *kind, name, about });
            }
            Row::Sample { name, sample } => {
                self.of(name)?;
                self.sample(sample)?;
            }
            Row::Gap { name, at, cause, lost } => {
                if let Some(name) = name {
                    self.of(name)?;
                }
                // Keeps the rows in their original order.
                self.pages()?;
                self.tell();
                self.group_if_full(false)?;
                self.table.gap(&Gap { id: None, at: *at, cause: *cause, lost: *lost }, name.is_none());
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExchangeError> {
        self.pages()?;
        self.tell();
        self.group()?;
        let end = self.table.end(self.sum);
        self.out.write_all(&end)?;
        Ok(self.out.flush()?)
    }
}
