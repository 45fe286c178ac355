//! Application data units: a protocol data unit framed for a TCP connection or a serial line.

use crate::checksum::{Crc, lrc};
use base::DurNs;
use std::borrow::Cow;

/// The framing of messages on the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// A header with transaction number and length (Modbus TCP).
    #[default]
    Tcp,
    /// Unit, data, CRC, then silence (Modbus RTU), on a serial line or through a converter.
    Rtu,
    /// A colon, hexadecimal digits, LRC, CR and LF (Modbus ASCII).
    Ascii,
}

/// Maximum length of a protocol data unit in bytes.
const PDU_MAX: usize = 253;
/// Length of the TCP header in bytes, including the unit.
const HEADER: usize = 7;

impl Framing {
    /// Maximum length of one message in bytes.
    #[must_use]
    pub const fn message_max(self) -> usize {
        match self {
            Self::Tcp => HEADER + PDU_MAX,
            Self::Rtu => 1 + PDU_MAX + 2,
            Self::Ascii => 1 + 2 * (1 + PDU_MAX + 1) + 2,
        }
    }

    /// Minimum silence on the line before a request at this speed. Zero except for RTU.
    #[must_use]
    pub const fn silence(self, bits_per_second: u32) -> DurNs {
        match self {
            Self::Tcp | Self::Ascii => DurNs::ZERO,
            // 3.5 characters of 11 bits. Above 19200 bit/s the specification has a fixed time.
            Self::Rtu if bits_per_second > 19_200 || bits_per_second == 0 => DurNs::from_us(1_750),
            Self::Rtu => DurNs(38_500_000_000 / bits_per_second as i64),
        }
    }
}

/// A message on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Transaction number. 0 on a serial line, whose messages have none.
    pub transaction: u16,
    /// The unit that is addressed or that answers.
    pub unit: u8,
    /// Function code and data.
    pub pdu: Cow<'a, [u8]>,
}

/// The reason why bytes are not a message. After such an error the start of the next message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not Modbus.
    #[error("protocol number {0} in the header; expected 0, which is Modbus")]
    Protocol(u16),
    /// A length outside the range of a message.
    #[error("length {0} in the header; expected 2 to 254")]
    Length(u16),
    /// The CRC does not match.
    #[error("CRC {found:#06x}; expected {expected:#06x}")]
    Crc {
        /// The received CRC.
        found: u16,
        /// The computed CRC.
        expected: u16,
    },
    /// The LRC does not match.
    #[error("LRC {found:#04x}; expected {expected:#04x}")]
    Lrc {
        /// The received LRC.
        found: u8,
        /// The computed LRC.
        expected: u8,
    },
    /// A byte that is no hexadecimal digit.
    #[error("byte {0:#04x} in a message of hexadecimal digits")]
    Digit(u8),
    /// A function with unknown length.
    #[error("function {0}, whose length is unknown")]
    Function(u8),
}

/// Appends a message.
pub fn encode(framing: Framing, transaction: u16, unit: u8, pdu: &[u8], out: &mut Vec<u8>) {
    match framing {
        Framing::Tcp => {
            out.extend(transaction.to_be_bytes());
            out.extend([0, 0]);
            out.extend((pdu.len() as u16 + 1).to_be_bytes());
            out.push(unit);
            out.extend_from_slice(pdu);
        }
        Framing::Rtu => {
            let at = out.len();
            out.push(unit);
            out.extend_from_slice(pdu);
            let crc = Crc::MODBUS.of(&out[at..]) as u16;
            out.extend(crc.to_le_bytes());
        }
        Framing::Ascii => {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let body: Vec<u8> = std::iter::once(unit).chain(pdu.iter().copied()).collect();
            out.push(b':');
            for byte in body.iter().copied().chain([lrc(&body)]) {
                out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            out.extend(b"\r\n");
        }
    }
}

/// Decodes the first message that a device sent, and returns it with its length in bytes; `None` if it is incomplete.
///
/// # Errors
/// The bytes are not a message.
pub fn decode(framing: Framing, bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    match framing {
        Framing::Tcp => decode_tcp(bytes),
        Framing::Rtu => decode_rtu(bytes),
        Framing::Ascii => decode_ascii(bytes),
    }
}

fn decode_tcp(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    if let Some(protocol) = word(2).filter(|protocol| *protocol != 0) {
        return Err(FrameError::Protocol(protocol));
    }
    let (Some(transaction), Some(len)) = (word(0), word(4)) else { return Ok(None) };
    if !(2..=254).contains(&len) {
        return Err(FrameError::Length(len));
    }
    let end = 6 + usize::from(len);
    let Some(message) = bytes.get(..end) else { return Ok(None) };
    Ok(Some((Frame { transaction, unit: message[6], pdu: message[HEADER..].into() }, end)))
}

fn decode_rtu(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let (Some(code), Some(third)) = (bytes.get(1), bytes.get(2)) else { return Ok(None) };
    // An answer consists of unit, function, data and CRC. Its data contain their own length.
    let len = match code {
        1..=4 => 5 + usize::from(*third),
        5 | 6 | 15 | 16 => 8,
        0x80.. => 5,
        code => return Err(FrameError::Function(*code)),
    };
    if len > Framing::Rtu.message_max() {
        return Err(FrameError::Length((*third).into()));
    }
    let Some(message) = bytes.get(..len) else { return Ok(None) };
    let (body, crc) = message.split_at(len - 2);
    let (found, expected) = (u16::from_le_bytes([crc[0], crc[1]]), Crc::MODBUS.of(body) as u16);
    if found != expected {
        return Err(FrameError::Crc { found, expected });
    }
    Ok(Some((Frame { transaction: 0, unit: body[0], pdu: body[1..].into() }, len)))
}

fn decode_ascii(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    // A message may follow the rest of a previous one.
    let Some(start) = bytes.iter().position(|byte| *byte == b':') else { return Ok(None) };
    let Some(len) = bytes[start..].windows(2).position(|pair| pair == b"\r\n") else {
        return match bytes.len() - start {
            len if len > Framing::Ascii.message_max() => Err(FrameError::Length(len as u16)),
            _ => Ok(None),
        };
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8).ok_or(FrameError::Digit(*byte));
    let digits: Vec<u8> = bytes[start + 1..start + len].iter().map(digit).collect::<Result<_, _>>()?;
    let mut body: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let (Some(found), true) = (body.pop(), body.len() >= 2 && digits.len().is_multiple_of(2)) else {
        return Err(FrameError::Length(digits.len() as u16));
    };
    let expected = lrc(&body);
    if found != expected {
        return Err(FrameError::Lrc { found, expected });
    }
    let unit = body.remove(0);
    Ok(Some((Frame { transaction: 0, unit, pdu: body.into() }, start + len + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of "MODBUS over serial line specification and implementation guide V1.02", 2.5.2: address 1, function 3.
    #[test]
    fn an_ascii_message_has_digits_and_a_checksum() {
        let mut out = Vec::new();
        encode(Framing::Ascii, 7, 1, &[3, 0, 0x6b, 0, 3], &mut out);
        assert_eq!(out, b":0103006B00038E\r\n");
        let late = [b"6B\r\n".as_slice(), &out, b":01"].concat();
        let (frame, len) = decode(Framing::Ascii, &late).unwrap().unwrap();
        assert_eq!((frame.unit, &*frame.pdu, len), (1, &[3, 0, 0x6b, 0, 3][..], late.len() - 3));
        assert_eq!(decode(Framing::Ascii, &out[..out.len() - 1]), Ok(None));
        let bad = |text: &[u8]| decode(Framing::Ascii, text).unwrap_err();
        assert_eq!(bad(b":0103006B00038F\r\n"), FrameError::Lrc { found: 0x8f, expected: 0x8e });
        assert_eq!(bad(b":01x3\r\n"), FrameError::Digit(b'x'));
        assert_eq!(bad(b":\r\n"), FrameError::Length(0));
        assert!(matches!(bad(&[b':'; 600]), FrameError::Length(600)));
    }
}
