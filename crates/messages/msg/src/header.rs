//! The fixed part of every message.

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
/// Raised whenever a byte changes its meaning.
const VERSION: u8 = 1;

/// How urgent a message is: 7 before 0. Each band has queues and threads of its own, so that no message waits behind
/// one of a lower band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Band(u8);

impl Band {
    /// The band that is used where nobody asks for one.
    pub const DEFAULT: Self = Self(3);

    /// A band by its number.
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

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Text: verb/object/complement. Gets exactly one reply.
    Request = 1,
    /// Text: code/complement.
    Reply = 2,
    /// Something that was watched for happened. The text says what; the id is that of the `watch`.
    Event = 3,
    /// The receiver of a pooled body has copied it; the id is that of the message which carried it.
    Release = 4,
}

/// Properties of a message that are either there or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Doing it twice is the same as doing it once: it may be sent again where its fate is unknown.
    pub const IDEMPOTENT: Self = Self(1);
    /// Check everything, change nothing.
    pub const DRY_RUN: Self = Self(2);
    /// The body lies in the sender's pool; what follows the text is a [`Pooled`].
    pub const POOLED: Self = Self(4);
    const KNOWN: u8 = 7;

    /// Whether all of `other` are there.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those of self that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Who sent a message, as the kernel told the message server of the host where it came in. What a client writes here
/// is overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Its user.
    pub uid: u32,
    /// Its process.
    pub pid: u32,
    /// Its host: 0 is this one, others are numbered by the link to them.
    pub host: u16,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {} process {}", self.uid, self.pid)?;
        if self.host == 0 { Ok(()) } else { write!(f, " host {}", self.host) }
    }
}

/// The header. On the wire, little-endian:
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
    /// What it is.
    pub kind: Kind,
    /// How urgent it is.
    pub band: Band,
    /// Its properties.
    pub flags: Flags,
    /// Chosen by who asks; a reply has that of its request. Each hop may replace it on the way and puts it back.
    pub id: u64,
    /// Until when it is worth executing.
    pub deadline: Option<MonoNs>,
    /// When it was first sent, in nanoseconds since 1970 (UTC).
    pub origin_unix_ns: u64,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
    /// Who sent it.
    pub subject: Subject,
    /// Hops between hosts so far.
    pub hops: u8,
    /// Bytes of the text.
    pub text_bytes: u16,
    /// Bytes that follow the text.
    pub body_bytes: u32,
    /// The checksum as found; [`Frame`](crate::Frame) makes and checks it.
    pub checksum: u32,
}

/// Why 64 bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Not one of ours.
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// Another version.
    Version {
        /// Which.
        found: u8,
    },
    /// A byte outside of what its field allows.
    Field {
        /// The field.
        name: &'static str,
        /// What stands there.
        found: u64,
        /// What may.
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
    /// A request as a client begins it; lengths and checksum are filled in by [`Frame`](crate::Frame).
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

    /// The header of its answer: same id, band and pulse, nothing asked of its receiver.
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

    /// As it stands on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        for (word, to) in self.to_words().iter().zip(out.chunks_exact_mut(8)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// As it stands in shared memory: each word holds eight bytes of the wire, the first one lowest.
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

    /// Reads what stands on the wire.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let mut words = [0; HEADER_WORDS];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*from);
        }
        Self::from_words(&words)
    }

    /// Reads what stands in shared memory, after it was copied from there.
    ///
    /// # Errors
    /// The first field that cannot be.
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

/// Where a pooled body lies: 32 bytes on the wire, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooled {
    /// First byte within the client's pool, a multiple of 64.
    pub offset: u64,
    /// Bytes from there on that the request has for itself and its answer, a multiple of 8.
    pub room: u64,
    /// Bytes of the body.
    pub bytes: u64,
    /// The number of the client's pool, which the server fills in.
    pub pool: u64,
}

impl Pooled {
    /// Bytes on the wire.
    pub const BYTES: usize = 32;

    /// As it stands on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        for (to, value) in out.as_chunks_mut::<8>().0.iter_mut().zip([self.offset, self.room, self.bytes, self.pool]) {
            *to = value.to_le_bytes();
        }
        out
    }

    /// Reads it; `None` if it has another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([offset, room, length, pool], []) = bytes.as_chunks::<8>() else { return None };
        let [offset, room, bytes, pool] = [offset, room, length, pool].map(|word| u64::from_le_bytes(*word));
        Some(Self { offset, room, bytes, pool })
    }

    /// Whether it is a place within a pool of `size` bytes.
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
    fn each_field_stands_at_its_byte() {
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
        fn bytes_are_a_header_or_an_error_and_a_header_reads_back(mut bytes in any::<[u8; 64]>(), near in any::<bool>()) {
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
