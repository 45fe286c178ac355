//! Blocks: the unit of writing, checking and reading.
//!
//! Each begins with a header of 40 bytes, little-endian: `tahA`, type (1), version (1), reserved (2), segment (8), number in the
//! segment (4), bytes of the payload (4), base of its stamps (8), CRC-32C of the payload (4), CRC-32C of these 36 bytes (4).
//! Segment and number distinguish a block from remains of an older file on the disk.

use std::fmt;

/// Size of a header in bytes.
pub const HEADER: usize = 40;

/// Maximum size of a payload in bytes.
pub const PAYLOAD_MAX: usize = 64 << 20;

/// First bytes of a block.
pub const MAGIC: [u8; 4] = *b"tahA";

/// Version of the format.
const VERSION: u8 = 2;

/// Type of a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Description of the segment; its first block.
    Head = 1,
    /// Dictionary: numbers and descriptions of signals.
    Dictionary = 2,
    /// Chunks of samples.
    Samples = 3,
    /// Gaps: why there are no samples.
    Gaps = 4,
    /// Positions of the indices (packs).
    Directory = 6,
    /// Positions of dictionary, gaps and directory; the last block of a pack.
    Trailer = 7,
    /// Positions and summaries of a signal's chunks in pages (packs).
    Pages = 8,
    /// The closing mark: the last block of a segment that was closed.
    Closing = 9,
    /// Entries of a manifest.
    Manifest = 10,
}

impl BlockKind {
    const ALL: [Self; 9] = [
        Self::Head,
        Self::Dictionary,
        Self::Samples,
        Self::Gaps,
        Self::Directory,
        Self::Trailer,
        Self::Pages,
        Self::Closing,
        Self::Manifest,
    ];
}

/// Header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the contents.
    pub kind: BlockKind,
    /// Number of the segment that it belongs to.
    pub segment: u64,
    /// Its number in the segment, from 0.
    pub number: u32,
    /// Bytes of the payload.
    pub len: u32,
    /// Base of its stamps, in nanoseconds since 1970.
    pub base: i64,
    /// Checksum of the payload.
    pub crc: u32,
}

/// Reason why bytes are not a valid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBlock {
    /// Too few bytes: it was truncated, or is being written.
    Short,
    /// Only zeros.
    Empty,
    /// The header is damaged, or this is not a block.
    Header,
    /// Unknown version.
    Version(u8),
    /// Unknown type.
    Type(u8),
    /// Belongs to another segment or another position.
    Foreign,
    /// Blocks before it are missing.
    Missing,
    /// The payload is damaged.
    Payload,
}

impl fmt::Display for NoBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("a block is cut off"),
            Self::Empty => f.write_str("nothing was written"),
            Self::Header => f.write_str("a block's header is damaged"),
            Self::Version(version) => write!(f, "a block of version {version}, expected {VERSION}"),
            Self::Type(kind) => write!(f, "a block of unknown type {kind}"),
            Self::Foreign => f.write_str("a block of another segment, or of another place"),
            Self::Missing => f.write_str("blocks are missing before this one"),
            Self::Payload => f.write_str("a block's payload is damaged"),
        }
    }
}

impl std::error::Error for NoBlock {}

impl Header {
    /// Parses a header.
    ///
    /// # Errors
    /// If the bytes are not a valid header.
    pub fn read(bytes: &[u8; HEADER]) -> Result<Self, NoBlock> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(NoBlock::Empty);
        }
        if bytes[..4] != MAGIC || word(36) != crc32c::crc32c(&bytes[..36]) {
            return Err(NoBlock::Header);
        }
        if bytes[5] != VERSION {
            return Err(NoBlock::Version(bytes[5]));
        }
        let kind = BlockKind::ALL.into_iter().find(|kind| *kind as u8 == bytes[4]).ok_or(NoBlock::Type(bytes[4]))?;
        if word(20) as usize > PAYLOAD_MAX {
            return Err(NoBlock::Header);
        }
        Ok(Self { kind, segment: long(8), number: word(16), len: word(20), base: long(24) as i64, crc: word(32) })
    }

    /// Size of the whole block in bytes.
    #[must_use]
    pub const fn whole(&self) -> u64 {
        HEADER as u64 + self.len as u64
    }

    /// Checks a payload against the header.
    ///
    /// # Errors
    /// [`NoBlock::Payload`] if length or checksum differ.
    pub fn check(&self, payload: &[u8]) -> Result<(), NoBlock> {
        let same = payload.len() == self.len as usize && crc32c::crc32c(payload) == self.crc;
        if same { Ok(()) } else { Err(NoBlock::Payload) }
    }
}

/// Parses the block at the start of `bytes`. Returns header, payload and the remaining bytes.
///
/// # Errors
/// If there is no valid block.
pub fn read(bytes: &[u8]) -> Result<(Header, &[u8], &[u8]), NoBlock> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(if bytes.iter().all(|byte| *byte == 0) { NoBlock::Empty } else { NoBlock::Short });
    };
    let header = Header::read(header)?;
    let (payload, rest) = rest.split_at_checked(header.len as usize).ok_or(NoBlock::Short)?;
    header.check(payload)?;
    Ok((header, payload, rest))
}

/// Appends a block.
///
/// # Panics
/// If the payload has more than [`PAYLOAD_MAX`] bytes.
pub fn write(out: &mut Vec<u8>, kind: BlockKind, segment: u64, number: u32, base: i64, payload: &[u8]) {
    assert!(payload.len() <= PAYLOAD_MAX, "a payload of {} bytes", payload.len());
    let begin = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind as u8, VERSION, 0, 0]);
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&base.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let crc = crc32c::crc32c(&out[begin..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_block_is_read_back_and_no_part_of_one() {
        let mut bytes = Vec::new();
        write(&mut bytes, BlockKind::Samples, 7, 3, -5, b"payload");
        let (header, payload, rest) = read(&bytes).unwrap();
        assert_eq!((header.kind, header.segment, header.number, header.base), (BlockKind::Samples, 7, 3, -5));
        assert_eq!((payload, rest.len(), header.whole()), (&b"payload"[..], 0, bytes.len() as u64));
        (1..bytes.len()).for_each(|len| assert_eq!(read(&bytes[..len]).unwrap_err(), NoBlock::Short, "{len}"));
        assert_eq!(read(&[]).unwrap_err(), NoBlock::Empty);
    }

    #[test]
    fn each_flipped_bit_is_detected() {
        let mut bytes = Vec::new();
        write(&mut bytes, BlockKind::Samples, 7, 3, -5, b"payload");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
