//! Samples as a Parquet file: the table that packs of an archive are, without what only an archive needs.

use crate::{ExchangeError, Row, Writer};
use segment::parquet::{self, MAGIC, Table};
use segment::rows::{Gap, Signal};
use segment::{Chunk, Full, Sample};
use std::io::{Error, ErrorKind, Write};

/// Writes a table: a row for each sample and for each gap, all of one signal after the other. Memory: a group of rows.
pub struct ParquetWriter<W> {
    out: W,
    /// Checksum of what was written.
    sum: u32,
    table: Table,
    /// The signal that rows are of.
    name: Option<String>,
    /// What it has been, as far as the table was not told; and whether it was told of the signal at all.
    rows: Vec<Signal>,
    is_told: bool,
    /// Its samples that are in no page yet.
    chunk: Option<Chunk>,
}

impl<W: Write> ParquetWriter<W> {
    /// Begins a table.
    ///
    /// # Errors
    /// The file's.
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

    /// Ends what was of another signal; the table is told what this one is.
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

    /// Says what the signal is, where that was not said.
    fn tell(&mut self) {
        if let Some(name) = self.name.as_ref().filter(|_| !self.is_told || !self.rows.is_empty()) {
            self.table.signal(name, &self.rows);
            self.rows.clear();
            self.is_told = true;
        }
    }

    /// Closes the pages of the samples that wait.
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
        // Where its pages are, only an archive asks.
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
                // Those before it are called by what was known before.
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
                // So that rows stand in the order in which they came.
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
