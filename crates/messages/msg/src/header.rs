//! The fixed-size header of every message.

use base::MonoNs;
use core::fmt;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// 64-bit words of a header.
pub const HEADER_WORDS: usize = HEADER_BYTES / 8;
/// Number of bands.
pub const BANDS: usize = 8;

/// `TMSG` in a hex dump.
const MAGIC: u32 = u32::from_le_bytes(*b"TMSG");
/// Increased whenever a byte changes its meaning.
const VERSION: u8 = 1;

/// Urgency of a message, from 7 (most urgent) to 0. Each band has separate queues and threads, so that a message never
/// waits for one of a lower band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Band(u8);

impl Band {
    /// The band used by default.
    pub const DEFAULT: Self = Self(3);

    /// The band with this number; `None` if it is above 7.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < BANDS { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All bands, the least urgent first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..BANDS as u8).map(Self)
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Text: verb/object/complement. Gets exactly one reply.
    Request = 1,
    /// Text: code/complement.
    Reply = 2,
    /// Event of a watch. The text describes it; the id is that of the `watch` request.
    Event = 3,
    /// The receiver of a pooled body has copied it. The id is that of the message with the body.
    Release = 4,
}

/// Properties of a message, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// Executing it twice has the same effect as once. If its result is unknown, it may be sent again.
    pub const IDEMPOTENT: Self = Self(1);
    /// Check everything, change nothing.
    pub const DRY_RUN: Self = Self(2);
    /// The body is in the sender's pool. A [`Pooled`] follows the text.
    pub const POOLED: Self = Self(4);
    const KNOWN: u8 = 7;

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The union of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Sender of a message, as reported by the kernel of the host where it entered. The server overwrites any value set by
/// a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Subject {
    /// User id.
    pub uid: u32,
    /// Process id.
    pub pid: u32,
    /// Host: 0 is this one. Links assign numbers to others.
    pub host: u16,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {} process {}", self.uid, self.pid)?;
        if self.host == 0 { Ok(()) } else { write!(f, " host {}", self.host) }
    }
}

/// The header. Wire format, little-endian:
///
/// | byte | size | field |
/// |---|---|---|
/// | 0 | 4 | `TMSG` |
/// | 4 | 1 | version, 1 |
/// | 5 | 1 | [`Kind`] |
/// | 6 | 1 | [`Band`], 0–7 |
/// | 7 | 1 | [`Flags`]: 1 idempotent, 2 dry run, 4 pooled body; the others 0 |
/// | 8 | 8 | id |
/// | 16 | 8 | deadline, ns of `CLOCK_MONOTONIC`; between hosts the time that remains; 0: none |
/// | 24 | 8 | origin, ns since 1970 (UTC) |
/// | 32 | 8 | pulse number, 0: none |
/// | 40 | 4 | subject: user |
/// | 44 | 4 | subject: process |
/// | 48 | 2 | subject: host |
/// | 50 | 1 | hops between hosts so far |
/// | 51 | 1 | 0 |
/// | 52 | 2 | bytes of the text |
/// | 54 | 2 | 0 |
/// | 56 | 4 | bytes of the body |
/// | 60 | 4 | CRC-32C of bytes 0–59, text and body; 0 in shared memory, where nothing can garble it on the way |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the message.
    pub kind: Kind,
    /// Urgency.
    pub band: Band,
    /// Flags.
    pub flags: Flags,
    /// Chosen by the sender; a reply has the id of its request. Hops may replace it on the way, and restore it for the
    /// reply.
    pub id: u64,
    /// Deadline for the execution.
    pub deadline: Option<MonoNs>,
    /// When it was first sent, in nanoseconds since 1970 (UTC).
    pub origin_unix_ns: u64,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
    /// The sender.
    pub subject: Subject,
    /// Number of hops between hosts so far.
    pub hops: u8,
    /// Bytes of the text.
    pub text_bytes: u16,
    /// Bytes of the body.
    pub body_bytes: u32,
    /// The checksum as received. [`Frame`](crate::Frame) computes and checks it.
    pub checksum: u32,
}

/// 64 bytes that are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Not a message of this protocol.
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// Another version.
    Version {
        /// The version found.
        found: u8,
    },
    /// A field with an invalid value.
    Field {
        /// The field.
        name: &'static str,
        /// The value found.
        found: u64,
        /// The valid values.
        expected: &'static str,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic { found } => {
                write!(f, "a message starts with {found:#010x}, expected {MAGIC:#010x} (\"TMSG\")")
            }
            Self::Version { found } => {
                write!(f, "message of version {found}, expected {VERSION}; use the same tahti on both ends")
            }
            Self::Field { name, found, expected } => write!(f, "{name} {found} in a header, expected {expected}"),
        }
    }
}

impl core::error::Error for HeaderError {}

impl Header {
    /// Header of a new request. [`Frame`](crate::Frame) sets the lengths and the checksum.
    #[must_use]
    pub const fn request(band: Band, id: u64) -> Self {
        Self {
            kind: Kind::Request,
            band,
            flags: Flags::NONE,
            id,
            deadline: None,
            origin_unix_ns: 0,
            pulse: 0,
            subject: Subject { uid: 0, pid: 0, host: 0 },
            hops: 0,
            text_bytes: 0,
            body_bytes: 0,
            checksum: 0,
        }
    }

    /// Header of the reply: same id, band and pulse, without flags and deadline.
    #[must_use]
    pub const fn reply(&self) -> Self {
        Self {
            kind: Kind::Reply,
            flags: Flags::NONE,
            deadline: None,
            text_bytes: 0,
            body_bytes: 0,
            checksum: 0,
            ..*self
        }
    }

    /// The wire format.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        for (word, to) in self.to_words().iter().zip(out.chunks_exact_mut(8)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The format in shared memory: each word holds eight bytes of the wire format, the first one lowest.
    #[must_use]
    pub fn to_words(&self) -> [u64; HEADER_WORDS] {
        let bytes = u64::from_le_bytes([0, 0, 0, 0, VERSION, self.kind as u8, self.band.0, self.flags.0]);
        let Subject { uid, pid, host } = self.subject;
        [
            u64::from(MAGIC) | bytes,
            self.id,
            self.deadline.map_or(0, |at| at.0),
            self.origin_unix_ns,
            self.pulse,
            u64::from(uid) | u64::from(pid) << 32,
            u64::from(host) | u64::from(self.hops) << 16 | u64::from(self.text_bytes) << 32,
            u64::from(self.body_bytes) | u64::from(self.checksum) << 32,
        ]
    }

    /// Parses the wire format.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let mut words = [0; HEADER_WORDS];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*from);
        }
        Self::from_words(&words)
    }

    /// Parses the format of shared memory from a private copy.
    ///
    /// # Errors
    /// The first invalid field.
    ///
    /// Real-time: does not allocate.
    pub fn from_words(words: &[u64; HEADER_WORDS]) -> Result<Self, HeaderError> {
        let field = |name, found, expected| HeaderError::Field { name, found, expected };
        let [_, _, _, _, version, kind, band, flags] = words[0].to_le_bytes();
        if words[0] as u32 != MAGIC {
            return Err(HeaderError::Magic { found: words[0] as u32 });
        }
        if version != VERSION {
            return Err(HeaderError::Version { found: version });
        }
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Reply,
            3 => Kind::Event,
            4 => Kind::Release,
            other => return Err(field("kind", other.into(), "1 to 4")),
        };
        let band = Band::new(band).ok_or(field("band", band.into(), "0 to 7"))?;
        if flags & !Flags::KNOWN != 0 {
            return Err(field("flags", flags.into(), "only bits 1, 2 and 4"));
        }
        if words[6] & 0xffff_0000_ff00_0000 != 0 {
            return Err(field("unused bytes 51, 54 and 55 hold", words[6] & 0xffff_0000_ff00_0000, "0"));
        }
        Ok(Self {
            kind,
            band,
            flags: Flags(flags),
            id: words[1],
            deadline: (words[2] != 0).then_some(MonoNs(words[2])),
            origin_unix_ns: words[3],
            pulse: words[4],
            subject: Subject { uid: words[5] as u32, pid: (words[5] >> 32) as u32, host: words[6] as u16 },
            hops: (words[6] >> 16) as u8,
            text_bytes: (words[6] >> 32) as u16,
            body_bytes: words[7] as u32,
            checksum: (words[7] >> 32) as u32,
        })
    }
}

/// Location of a pooled body: 32 bytes on the wire, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooled {
    /// First byte in the client's pool, a multiple of 64.
    pub offset: u64,
    /// Bytes reserved from there for the request's body and its answer's, a multiple of 8.
    pub room: u64,
    /// Bytes of the body.
    pub bytes: u64,
    /// Number of the client's pool, set by the server.
    pub pool: u64,
}

impl Pooled {
    /// Size of the wire format in bytes.
    pub const BYTES: usize = 32;

    /// The wire format.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        for (to, value) in out.as_chunks_mut::<8>().0.iter_mut().zip([self.offset, self.room, self.bytes, self.pool]) {
            *to = value.to_le_bytes();
        }
        out
    }

    /// Parses the wire format; `None` if the length is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([offset, room, length, pool], []) = bytes.as_chunks::<8>() else { return None };
        let [offset, room, bytes, pool] = [offset, room, length, pool].map(|word| u64::from_le_bytes(*word));
        Some(Self { offset, room, bytes, pool })
    }

    /// Whether it is a valid location in a pool of `size` bytes.
    #[must_use]
    pub fn is_within(self, size: u64) -> bool {
        let end = self.offset.checked_add(self.room);
        self.offset.is_multiple_of(64)
            && self.room.is_multiple_of(8)
            && self.bytes <= self.room
            && end.is_some_and(|end| end <= size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_field_of_a_header_is_at_its_byte() {
        let header = Header {
            kind: Kind::Reply,
            band: Band::new(6).unwrap(),
            flags: Flags::DRY_RUN.with(Flags::POOLED),
            id: 0x0807_0605_0403_0201,
            deadline: Some(MonoNs(2)),
            origin_unix_ns: 3,
            pulse: 4,
            subject: Subject { uid: 5, pid: 6, host: 7 },
            hops: 8,
            text_bytes: 9,
            body_bytes: 10,
            checksum: 11,
        };
        let mut expected = [0u8; 64];
        expected[..8].copy_from_slice(b"TMSG\x01\x02\x06\x06");
        expected[8..16].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        for (at, value) in [(16, 2), (24, 3), (32, 4), (40, 5), (44, 6), (48, 7), (50, 8), (52, 9), (56, 10), (60, 11)]
        {
            expected[at] = value;
        }
        assert_eq!(header.to_bytes(), expected);
        assert_eq!(Header::from_bytes(&expected), Ok(header));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_headers_survive_a_round_trip(mut bytes in any::<[u8; 64]>(), near in any::<bool>()) {
            if near {
                bytes[..5].copy_from_slice(b"TMSG\x01");
                bytes[5] = bytes[5] % 4 + 1;
                bytes[6] %= 8;
                bytes[7] %= 8;
                for zero in [51, 54, 55] {
                    bytes[zero] = 0;
                }
            }
            match Header::from_bytes(&bytes) {
                Ok(header) => prop_assert_eq!(header.to_bytes(), bytes),
                Err(_) => prop_assert!(!near),
            }
        }
    }
}
