//! GVSP of GigE Vision 2 with extended ids, for images of 16-bit pixels.
//!
//! A frame (*block*) is a leader, payload packets 1, 2, …, and a trailer. Each packet contains its block id and packet id, so pixels can be
//! placed in any order of arrival. All numbers are big-endian except pixels, which are little-endian.

/// Bytes of a packet's header.
pub const HEADER: usize = 20;
/// Bytes of a leader's content.
pub const LEADER: usize = 36;
/// Bytes of a trailer's content.
pub const TRAILER: usize = 8;
/// Pixel format Mono16.
const MONO16: u32 = 0x0110_0007;
/// Payload type of an image.
const IMAGE: u16 = 1;
/// Flag in the third word: block ids have 64 bits and packet ids 32.
const EXTENDED: u32 = 1 << 31;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number of the frame.
    pub block: u64,
    /// Content of the packet.
    pub content: Content<'a>,
}

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Start of an image.
    Leader {
        /// Time of exposure, in nanoseconds.
        at_ns: u64,
        /// Pixels per line.
        width: u32,
        /// Number of lines.
        height: u32,
    },
    /// Pixels.
    Payload {
        /// Index of the row, from 0.
        index: u32,
        /// Pixels, little-endian.
        pixels: &'a [u8],
    },
    /// End of an image.
    Trailer {
        /// Number of lines sent.
        height: u32,
    },
}

/// A datagram that is not a packet of a supported image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GvspError {
    /// The packet is too short.
    #[error("a GVSP packet of {found} bytes; expected at least {expected}")]
    Short {
        /// Bytes of the packet.
        found: usize,
        /// Minimum number of bytes.
        expected: usize,
    },
    /// The camera reports an error.
    #[error("GVSP status {0:#06x}; expected 0, or 0x0100 of a packet that was sent again")]
    Status(u16),
    /// Ids of 16 and 24 bits.
    #[error("a GVSP packet without extended ids; expected GigE Vision 2: set the camera so")]
    Ids,
    /// A packet format other than leader, trailer and payload.
    #[error("GVSP packet format {0}; expected 1 (leader), 2 (trailer) or 3 (payload)")]
    Format(u8),
    /// A payload packet with packet id 0.
    #[error("GVSP payload with packet number 0; expected 1 or more")]
    Number,
    /// The payload is not an image of 16-bit grey pixels.
    #[error(
        "GVSP payload type {payload:#06x}, pixel format {pixels:#010x}; expected an image (1) of Mono16 (0x01100007)"
    )]
    Image {
        /// Payload type.
        payload: u16,
        /// Pixel format.
        pixels: u32,
    },
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

impl<'a> Packet<'a> {
    /// Reads a datagram. Does not allocate. Accepts arbitrary bytes.
    ///
    /// # Errors
    /// The datagram is not a packet of a supported image.
    pub fn read(bytes: &'a [u8]) -> Result<Self, GvspError> {
        let short = |expected| GvspError::Short { found: bytes.len(), expected };
        let (head, content) = bytes.split_first_chunk::<HEADER>().ok_or(short(HEADER))?;
        let status = u16::from_be_bytes([head[0], head[1]]);
        if status != 0 && status != 0x0100 {
            return Err(GvspError::Status(status));
        }
        let third = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        if third & EXTENDED == 0 {
            return Err(GvspError::Ids);
        }
        let block = u64::from_be_bytes(head[8..16].try_into().map_err(|_| short(HEADER))?);
        let number = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
        let content = match (third >> 24) as u8 & 0x7f {
            1 => {
                let short = short(HEADER + LEADER);
                let payload = word(content, 2).map(u16::from_be_bytes).ok_or(short)?;
                let long = |at| word(content, at).map(u32::from_be_bytes).ok_or(short);
                let (at, pixels) = (word(content, 4).map(u64::from_be_bytes).ok_or(short)?, long(12)?);
                if payload != IMAGE || pixels != MONO16 {
                    return Err(GvspError::Image { payload, pixels });
                }
                Content::Leader { at_ns: at, width: long(16)?, height: long(20)? }
            }
            2 => {
                let height = word(content, 4).map(u32::from_be_bytes).ok_or(short(HEADER + TRAILER))?;
                Content::Trailer { height }
            }
            3 => Content::Payload { index: number.checked_sub(1).ok_or(GvspError::Number)?, pixels: content },
            other => return Err(GvspError::Format(other)),
        };
        Ok(Self { block, content })
    }

    /// Writes the packet to the start of a buffer and returns its size in bytes. Does not allocate.
    ///
    /// # Errors
    /// The buffer is too short.
    pub fn write(&self, to: &mut [u8]) -> Result<usize, GvspError> {
        let (format, number, length) = match self.content {
            Content::Leader { .. } => (1, 0, LEADER),
            Content::Trailer { .. } => (2, u32::MAX, TRAILER),
            Content::Payload { index, pixels } => (3, index.wrapping_add(1), pixels.len()),
        };
        let found = to.len();
        let to = to.get_mut(..HEADER + length).ok_or(GvspError::Short { found, expected: HEADER + length })?;
        to[..HEADER].fill(0);
        to[4..8].copy_from_slice(&(EXTENDED | format << 24).to_be_bytes());
        to[8..16].copy_from_slice(&self.block.to_be_bytes());
        to[16..20].copy_from_slice(&number.to_be_bytes());
        let content = &mut to[HEADER..];
        match self.content {
            Content::Payload { pixels, .. } => content.copy_from_slice(pixels),
            Content::Trailer { height } => {
                content[..4].copy_from_slice(&u32::from(IMAGE).to_be_bytes());
                content[4..].copy_from_slice(&height.to_be_bytes());
            }
            Content::Leader { at_ns, width, height } => {
                content.fill(0);
                content[2..4].copy_from_slice(&IMAGE.to_be_bytes());
                content[4..12].copy_from_slice(&at_ns.to_be_bytes());
                content[12..16].copy_from_slice(&MONO16.to_be_bytes());
                content[16..20].copy_from_slice(&width.to_be_bytes());
                content[20..24].copy_from_slice(&height.to_be_bytes());
            }
        }
        Ok(HEADER + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packets_survive_a_round_trip() {
        let contents = [
            Content::Leader { at_ns: 77, width: 320, height: 321 },
            Content::Payload { index: 39, pixels: &[1, 2, 3, 4] },
            Content::Trailer { height: 320 },
        ];
        for content in contents {
            let (packet, mut bytes) = (Packet { block: 1_795_000_000_005, content }, [0xee; 128]);
            let length = packet.write(&mut bytes).unwrap();
            assert_eq!(Packet::read(&bytes[..length]), Ok(packet));
            assert_eq!(
                packet.write(&mut bytes[..length - 1]).unwrap_err().to_string(),
                format!("a GVSP packet of {} bytes; expected at least {length}", length - 1)
            );
        }
    }

    #[test]
    fn a_packet_that_is_not_part_of_a_mono16_image_is_refused_with_the_reason() {
        let mut bytes = [0; 64];
        Packet { block: 1, content: Content::Leader { at_ns: 0, width: 1, height: 1 } }.write(&mut bytes).unwrap();
        let told = |at: usize, value: u8| {
            let mut bytes = bytes;
            bytes[at] = value;
            Packet::read(&bytes[..56]).unwrap_err().to_string()
        };
        assert!(told(0, 0x80).contains("status 0x8000"));
        assert!(told(4, 1).contains("without extended ids"));
        assert!(told(4, 0x85).contains("format 5"));
        assert!(told(4, 0x83).contains("number 0"));
        assert!(told(HEADER + 12, 2).contains("expected an image (1) of Mono16"));
        assert!(Packet::read(&bytes[..30]).unwrap_err().to_string().contains("expected at least 56"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_cause_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), extended in any::<bool>()) {
            if extended && bytes.len() > 5 {
                bytes[..2].fill(0);
                bytes[4] = 0x80 | (bytes[4] % 5);
            }
            if let Ok(packet) = Packet::read(&bytes) {
                let mut again = [0; 128];
                let length = packet.write(&mut again).unwrap();
                prop_assert_eq!(Packet::read(&again[..length]), Ok(packet));
            }
        }
    }
}
