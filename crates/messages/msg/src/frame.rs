//! A complete message: header, text, body.

use crate::checksum::crc32c;
use crate::header::{HEADER_BYTES, Header, HeaderError};
use alloc::vec::Vec;
use core::fmt;

/// Maximum bytes of a message's text.
pub const TEXT_BYTES_MAX: usize = 2048;
/// Maximum bytes of a body inside a message. A longer body is sent through its sender's pool.
pub const BODY_BYTES_MAX: usize = 16 * 1024;

/// A message. Text and body are borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Its text line.
    pub text: &'a str,
    /// Body, usually MessagePack, or empty.
    pub body: &'a [u8],
}

/// Bytes that are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The header is invalid.
    Header(HeaderError),
    /// The length differs from that in the header.
    Length {
        /// Bytes found.
        found: usize,
        /// Bytes according to the header.
        expected: usize,
    },
    /// The text or body exceeds its limit.
    Large {
        /// Bytes of the text.
        text: usize,
        /// Bytes of the body.
        body: usize,
    },
    /// The text is not UTF-8.
    Utf8,
    /// The checksum is wrong: the message was damaged on the way.
    Checksum {
        /// The checksum in the header.
        found: u32,
        /// The checksum of the bytes.
        expected: u32,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(error) => error.fmt(f),
            Self::Length { found, expected } => {
                write!(f, "a message of {found} bytes, expected {expected} by its header")
            }
            Self::Large { text, .. } if *text > TEXT_BYTES_MAX => {
                write!(f, "a text of {text} bytes, expected at most {TEXT_BYTES_MAX}; send longer data as a body")
            }
            Self::Large { body, .. } => {
                write!(f, "a body of {body} bytes, expected at most {BODY_BYTES_MAX}; put larger bodies into the pool")
            }
            Self::Utf8 => f.write_str("a message whose text is not UTF-8"),
            Self::Checksum { found, expected } => {
                write!(f, "a message with checksum {found:#010x}, expected {expected:#010x}; it was garbled on its way")
            }
        }
    }
}

impl core::error::Error for FrameError {}

impl From<HeaderError> for FrameError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

impl<'a> Frame<'a> {
    /// Creates a message, and sets the lengths in its header.
    ///
    /// # Errors
    /// `Large`.
    pub fn new(header: Header, text: &'a str, body: &'a [u8]) -> Result<Self, FrameError> {
        if text.len() > TEXT_BYTES_MAX || body.len() > BODY_BYTES_MAX {
            return Err(FrameError::Large { text: text.len(), body: body.len() });
        }
        let header = Header { text_bytes: text.len() as u16, body_bytes: body.len() as u32, checksum: 0, ..header };
        Ok(Self { header, text, body })
    }

    /// Creates a message from a parsed header and the bytes after it. Does not check the checksum: intended for private
    /// copies of messages in shared memory.
    ///
    /// # Errors
    /// `Large`, `Length`, `Utf8`.
    ///
    /// Real-time: does not allocate.
    pub fn after(header: Header, rest: &'a [u8]) -> Result<Self, FrameError> {
        let (text, body) = (usize::from(header.text_bytes), header.body_bytes as usize);
        if text > TEXT_BYTES_MAX || body > BODY_BYTES_MAX {
            return Err(FrameError::Large { text, body });
        }
        if rest.len() != text + body {
            let [found, expected] = [rest.len(), text + body].map(|rest| HEADER_BYTES + rest);
            return Err(FrameError::Length { found, expected });
        }
        let (text, body) = rest.split_at(text);
        Ok(Self { header, text: core::str::from_utf8(text).map_err(|_| FrameError::Utf8)?, body })
    }

    /// Parses the wire format of exactly one message.
    ///
    /// # Errors
    /// The first error found.
    ///
    /// Real-time: does not allocate; bounded by the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (head, rest) =
            bytes.split_first_chunk().ok_or(FrameError::Length { found: bytes.len(), expected: HEADER_BYTES })?;
        let frame = Self::after(Header::from_bytes(head)?, rest)?;
        let expected = frame.checksum();
        if frame.header.checksum != expected {
            return Err(FrameError::Checksum { found: frame.header.checksum, expected });
        }
        Ok(frame)
    }

    /// Appends the wire format of the message, with its checksum.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let header = Header { checksum: self.checksum(), ..self.header };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(self.text.as_bytes());
        out.extend_from_slice(self.body);
    }

    fn checksum(&self) -> u32 {
        let head = self.header.to_bytes();
        crc32c([&head[..HEADER_BYTES - 4], self.text.as_bytes(), self.body])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Band;
    use proptest::prelude::*;
    use std::string::String;
    use std::string::ToString as _;
    use std::vec;

    proptest! {
        #[test]
        fn a_message_survives_a_round_trip_and_a_flipped_bit_is_detected(
            text in ".{0,60}", body in proptest::collection::vec(any::<u8>(), 0..90), flip in any::<prop::sample::Index>(), bit in 0..8u8
        ) {
            let frame = Frame::new(Header::request(Band::DEFAULT, 77), &text, &body).unwrap();
            let mut wire = Vec::new();
            frame.encode(&mut wire);
            let read = Frame::decode(&wire).unwrap();
            prop_assert_eq!((read.text, read.body, read.header.id), (frame.text, frame.body, 77));
            let at = flip.index(wire.len());
            wire[at] ^= 1 << bit;
            prop_assert!(Frame::decode(&wire).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::decode(&bytes);
        }
    }

    #[test]
    fn an_oversized_frame_is_refused_before_memory_is_reserved() {
        let header = Header { body_bytes: u32::MAX, ..Header::request(Band::DEFAULT, 1) };
        assert!(matches!(Frame::after(header, &[]), Err(FrameError::Large { .. })));
        let text: String = "x".repeat(TEXT_BYTES_MAX + 1);
        let long = Frame::new(header, &text, &[]).unwrap_err().to_string();
        assert_eq!(long, "a text of 2049 bytes, expected at most 2048; send longer data as a body");
        assert!(Frame::new(header, "", &vec![0; BODY_BYTES_MAX + 1]).is_err());
    }
}
