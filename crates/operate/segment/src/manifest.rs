//! Entries of an archive's manifest, the closing record of a file, and the digest of a file (128-bit XXH3).

use crate::bytes::{Bad, Input, put_varint};
use twox_hash::xxhash3_128::Hasher;

/// Size of a closing record in bytes.
pub const CLOSING: usize = 48;

/// Incremental digest of a sequence of bytes.
#[derive(Clone)]
pub struct Digest(Hasher);

impl Default for Digest {
    fn default() -> Self {
        Self(Hasher::new())
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest({:032x})", self.value())
    }
}

impl Digest {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The digest of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u128 {
        self.0.finish_128()
    }
}

/// Summary of a file, stored at its end and in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The archive that the file belongs to.
    pub archive: u64,
    /// The digest of all bytes before the closing mark.
    pub digest: u128,
    /// Number of samples in the file.
    pub samples: u64,
    /// Their first and last stamp. If there are no samples, first > last.
    pub span: (i64, i64),
}

impl Closing {
    /// The span of an empty file.
    pub const NO_SPAN: (i64, i64) = (i64::MAX, i64::MIN);

    /// Appends the payload.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.archive.to_le_bytes());
        out.extend_from_slice(&self.digest.to_le_bytes());
        out.extend_from_slice(&self.samples.to_le_bytes());
        out.extend_from_slice(&self.span.0.to_le_bytes());
        out.extend_from_slice(&self.span.1.to_le_bytes());
    }

    /// Parses the payload.
    ///
    /// # Errors
    /// If the bytes are not a valid payload.
    pub fn read(payload: &[u8]) -> Result<Self, Bad> {
        Self::from(&mut Input(payload))
    }

    pub(crate) fn from(input: &mut Input<'_>) -> Result<Self, Bad> {
        Ok(Self {
            archive: input.u64()?,
            digest: u128::from_le_bytes(input.array()?),
            samples: input.u64()?,
            span: (input.i64()?, input.i64()?),
        })
    }

    /// Extends the span by two stamps.
    pub fn reach(&mut self, first: i64, last: i64) {
        self.span = (self.span.0.min(first), self.span.1.max(last));
    }
}

/// An entry of the manifest. A file is identified by the numbers of its first and last segment and the code of its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Start of the manifest; always the first entry.
    Begins {
        /// Number of the archive; it distinguishes its files from those of others.
        archive: u64,
        /// The previous manifest was missing or damaged, so files that were missing at that time are unknown.
        is_rebuilt: bool,
    },
    /// A segment is being written.
    Opened(Name),
    /// A segment was closed, or a pack replaced all files within its numbers.
    Closed(Name, Contents),
    /// A file was removed, to make room or because it was empty.
    Removed(Name),
    /// A file is damaged and is not packed.
    Damaged(Name),
}

/// First segment, last segment, and code of the form (0: segment).
pub type Name = (u64, u64, u8);

/// The manifest's description of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Verified length in bytes: the whole file, or, for an abandoned file, the part that was synced.
    pub len: u64,
    /// The file was abandoned after a crash or failure. It has no closing mark, and bytes after `len` are not verified.
    pub is_left: bool,
    /// Summary of its contents. For an abandoned file, the digest covers the first `len` bytes.
    pub closing: Closing,
}

const BEGINS: u8 = 1;
const OPENED: u8 = 2;
const CLOSED: u8 = 3;
const REMOVED: u8 = 4;
const DAMAGED: u8 = 5;

impl Record {
    /// Appends the entry.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut begin = |tag: u8, name: &Name| {
            out.push(tag);
            put_varint(out, name.0);
            put_varint(out, name.1);
            out.push(name.2);
        };
        match self {
            Self::Begins { archive, is_rebuilt } => {
                out.push(BEGINS);
                out.extend_from_slice(&archive.to_le_bytes());
                out.push((*is_rebuilt).into());
            }
            Self::Opened(name) => begin(OPENED, name),
            Self::Removed(name) => begin(REMOVED, name),
            Self::Damaged(name) => begin(DAMAGED, name),
            Self::Closed(name, contents) => {
                begin(CLOSED, name);
                put_varint(out, contents.len);
                out.push(contents.is_left.into());
                contents.closing.write(out);
            }
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, Bad> {
        let tag = input.u8()?;
        if tag == BEGINS {
            return Ok(Self::Begins { archive: input.u64()?, is_rebuilt: input.u8()? != 0 });
        }
        let name = (input.varint()?, input.varint()?, input.u8()?);
        match tag {
            OPENED => Ok(Self::Opened(name)),
            REMOVED => Ok(Self::Removed(name)),
            DAMAGED => Ok(Self::Damaged(name)),
            CLOSED => {
                let (len, is_left) = (input.varint()?, input.u8()? != 0);
                Ok(Self::Closed(name, Contents { len, is_left, closing: Closing::from(input)? }))
            }
            other => Err(Bad::Kind(other)),
        }
    }
}

/// Payload of a manifest block: the digest of all preceding bytes of the manifest, then the entries.
#[must_use]
pub fn write_records(before: u128, records: &[Record]) -> Vec<u8> {
    let mut out = before.to_le_bytes().to_vec();
    records.iter().for_each(|record| record.write(&mut out));
    out
}

/// Parses such a payload.
///
/// # Errors
/// If the bytes are not a valid payload.
pub fn read_records(payload: &[u8]) -> Result<(u128, Vec<Record>), Bad> {
    let mut input = Input(payload);
    let before = u128::from_le_bytes(input.array()?);
    let mut records = Vec::new();
    while !input.is_empty() {
        records.push(Record::read(&mut input)?);
    }
    Ok((before, records))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_of_a_manifest_survive_a_round_trip() {
        let closing = Closing { archive: 5, digest: u128::MAX - 3, samples: 7, span: (-1, i64::MAX) };
        let records = [
            Record::Begins { archive: u64::MAX, is_rebuilt: true },
            Record::Opened((1, 1, 0)),
            Record::Closed((1, 1, 0), Contents { len: 4_711, is_left: false, closing }),
            Record::Removed((1, 8, 2)),
            Record::Damaged((9, 9, 0)),
        ];
        let payload = write_records(77, &records);
        assert_eq!(read_records(&payload), Ok((77, records.to_vec())));
        assert!(read_records(&payload[..payload.len() - 1]).is_err());
    }

    #[test]
    fn a_digest_does_not_depend_on_the_sizes_of_pieces() {
        let bytes: Vec<u8> = (0..5_000u32).map(|k| (k * 7) as u8).collect();
        let mut whole = Digest::default();
        whole.add(&bytes);
        let mut parts = Digest::default();
        bytes.chunks(333).for_each(|part| parts.add(part));
        assert_eq!(whole.value(), parts.value());
        assert_ne!(whole.value(), Digest::default().value());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (read_records(&bytes), Closing::read(&bytes));
        }
    }
}
