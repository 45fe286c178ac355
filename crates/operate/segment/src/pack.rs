//! Layout of a pack behind its samples: the index of each signal, dictionary, gaps, directory, trailer. The trailer is found
//! from the end of the file. Also the entry of a chunk, as a cluster stores it.

use crate::bytes::{Bad, Input};
use crate::manifest::{CLOSING, Closing};
use crate::summary::Summary;

/// Size of a trailer's payload in bytes.
pub const TRAILER: usize = 24 + CLOSING;

/// Size of a directory entry in bytes.
const SIGNAL: usize = 40;

/// Size of an index entry in bytes.
const CHUNK: usize = 120;

/// An entry of the directory: position of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its number in this pack.
    pub id: u32,
    /// Number of blocks of its index.
    pub blocks: u32,
    /// Offset of its first index block in the file.
    pub index: u64,
    /// Its first stamp.
    pub first: i64,
    /// Its last stamp.
    pub last: i64,
    /// Number of samples.
    pub count: u64,
}

/// An entry of an index: position and summary of a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Offset of its block in the file.
    pub offset: u64,
    /// Size of the block in bytes.
    pub len: u32,
    /// Number of samples.
    pub count: u32,
    /// Its first stamp.
    pub first: i64,
    /// Its last stamp.
    pub last: i64,
    /// Summary of its numbers; `None` for texts, arrays and blobs.
    pub summary: Option<Summary>,
}

/// Offsets in the file of the parts after the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The dictionary.
    pub dictionary: u64,
    /// The gaps.
    pub gaps: u64,
    /// The directory.
    pub directory: u64,
    /// The closing mark.
    pub closing: Closing,
}

impl Trailer {
    /// Writes the payload.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TRAILER);
        for value in [self.dictionary, self.gaps, self.directory] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        self.closing.write(&mut out);
        out
    }

    /// Parses the payload.
    ///
    /// # Errors
    /// If the bytes are not a valid payload.
    pub fn read(payload: &[u8]) -> Result<Self, Bad> {
        let mut input = Input(payload);
        let (dictionary, gaps, directory) = (input.u64()?, input.u64()?, input.u64()?);
        Ok(Self { dictionary, gaps, directory, closing: Closing::from(&mut input)? })
    }
}

impl DirectoryEntry {
    /// Appends the entry.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.last.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }
}

/// Parses a block of the directory.
///
/// # Errors
/// If the bytes are not valid entries.
pub fn directory(payload: &[u8]) -> Result<Vec<DirectoryEntry>, Bad> {
    let (entries, rest) = payload.as_chunks::<SIGNAL>();
    if !rest.is_empty() {
        return Err(Bad::Rest);
    }
    let read = |entry: &[u8; SIGNAL]| {
        let mut input = Input(entry);
        let (id, blocks, index) = (input.u32()?, input.u32()?, input.u64()?);
        Ok(DirectoryEntry { id, blocks, index, first: input.i64()?, last: input.i64()?, count: input.u64()? })
    };
    entries.iter().map(read).collect()
}

impl Entry {
    /// Appends the entry.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.last.to_le_bytes());
        let summary = self.summary.unwrap_or_default();
        out.extend_from_slice(&[self.summary.is_some().into(), summary.severity, 0, 0, 0, 0, 0, 0]);
        summary.write_numbers(out);
    }
}

/// Parses a block of an index.
///
/// # Errors
/// If the bytes are not valid entries.
pub fn entries(payload: &[u8]) -> Result<Vec<Entry>, Bad> {
    let (entries, rest) = payload.as_chunks::<CHUNK>();
    if !rest.is_empty() {
        return Err(Bad::Rest);
    }
    entries.iter().map(|entry| entry_of(Input(entry))).collect()
}

fn entry_of(mut input: Input<'_>) -> Result<Entry, Bad> {
    let (offset, len, count) = (input.u64()?, input.u32()?, input.u32()?);
    let (first, last) = (input.i64()?, input.i64()?);
    let [is_numeric, severity, ..] = input.array::<8>()?;
    let summary = Summary::read_numbers(&mut input, severity)?;
    Ok(Entry { offset, len, count, first, last, summary: (is_numeric != 0).then_some(summary) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_survive_a_round_trip() {
        let entry = DirectoryEntry { id: 3, blocks: 1, index: 4_711, first: -5, last: i64::MAX, count: 12 };
        let mut out = Vec::new();
        (0..2).for_each(|_| entry.write(&mut out));
        assert_eq!(directory(&out), Ok(vec![entry; 2]));

        let mut summary = Summary::default();
        summary.add(7, 2.5, 2);
        let with = Entry { offset: 9, len: 100, count: 1, first: 7, last: 7, summary: Some(summary) };
        let without = Entry { summary: None, ..with };
        let mut out = Vec::new();
        with.write(&mut out);
        without.write(&mut out);
        assert_eq!(entries(&out), Ok(vec![with, without]));

        let closing = Closing { archive: 4, digest: 5, samples: 6, span: (7, 8) };
        let trailer = Trailer { dictionary: 1, gaps: 2, directory: 3, closing };
        assert_eq!(Trailer::read(&trailer.write()), Ok(trailer));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (directory(&bytes), entries(&bytes), Trailer::read(&bytes));
        }
    }
}
