//! Writer for a pack.

use crate::error::StoreError;
use crate::files::Files;
use segment::block::{self, BlockKind};
use segment::manifest::Digest;
use segment::parquet;

/// Bytes buffered before an append.
const GATHERED: usize = 1 << 20;

/// Maximum bytes of rows per block, plus one row.
const ROWS: usize = 1 << 20;

/// The file being written.
pub(super) struct Output<'a, F: Files> {
    files: &'a F,
    file: F::File,
    name: &'a str,
    segment: u64,
    block: u32,
    gathered: Vec<u8>,
    /// Bytes appended so far, without those in `gathered`.
    appended: u64,
    /// CRC of the appended bytes.
    pub(super) sum: u32,
    /// Digest of the appended bytes.
    pub(super) digest: Digest,
}

impl<'a, F: Files> Output<'a, F> {
    pub(super) fn create(files: &'a F, name: &'a str, segment: u64) -> Result<Self, StoreError> {
        let file = files.create(name).map_err(StoreError::io(name, "create"))?;
        Ok(Self {
            files,
            file,
            name,
            segment,
            block: 0,
            gathered: Vec::new(),
            appended: 0,
            sum: 0,
            digest: Digest::default(),
        })
    }

    /// Offset of the next block.
    pub(super) fn offset(&self) -> u64 {
        self.appended + self.gathered.len() as u64
    }

    pub(super) fn put(&mut self, kind: BlockKind, base: i64, payload: &[u8]) -> Result<(), StoreError> {
        block::write(&mut self.gathered, kind, self.segment, self.block, base, payload);
        self.block += 1;
        self.append_if_enough()
    }

    /// Appends bytes that are not a block.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.gathered.extend_from_slice(bytes);
        self.append_if_enough()
    }

    fn append_if_enough(&mut self) -> Result<(), StoreError> {
        if self.gathered.len() >= GATHERED { self.append() } else { Ok(()) }
    }

    pub(super) fn append(&mut self) -> Result<(), StoreError> {
        self.files.append(&mut self.file, &self.gathered).map_err(StoreError::io(self.name, "append"))?;
        self.appended += self.gathered.len() as u64;
        self.sum = parquet::sum(self.sum, &self.gathered);
        self.digest.add(&self.gathered);
        self.gathered.clear();
        Ok(())
    }

    /// Syncs the file. Returns its length.
    pub(super) fn sync(&self) -> Result<u64, StoreError> {
        self.files.sync(&self.file).map_err(StoreError::io(self.name, "sync"))?;
        Ok(self.appended)
    }

    /// Writes rows in blocks of bounded length. Returns the number of blocks.
    pub(super) fn rows<T>(
        &mut self,
        kind: BlockKind,
        rows: &[T],
        write: impl Fn(&T, &mut Vec<u8>),
    ) -> Result<u32, StoreError> {
        self.rows_of(kind, (&[], ROWS), rows, write)
    }

    /// As `rows`, but each block starts with the bytes `begin` and ends when it has `enough` bytes.
    pub(super) fn rows_of<T>(
        &mut self,
        kind: BlockKind,
        (begin, enough): (&[u8], usize),
        rows: &[T],
        write: impl Fn(&T, &mut Vec<u8>),
    ) -> Result<u32, StoreError> {
        let (mut payload, mut blocks) = (begin.to_vec(), 0);
        for (index, row) in rows.iter().enumerate() {
            write(row, &mut payload);
            if payload.len() >= enough || index + 1 == rows.len() {
                self.put(kind, 0, &payload)?;
                payload.truncate(begin.len());
                blocks += 1;
            }
        }
        Ok(blocks)
    }
}
