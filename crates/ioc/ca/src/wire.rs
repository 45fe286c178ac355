//! Message headers: 16 bytes, or 24 if a payload or a count needs more than 16 bits.
//!
//! Reading never panics: [`Header::read`] reports missing bytes, and all later code uses slices of checked length.

/// The minor version of the protocol: 4.13.
pub const MINOR: u16 = 13;
/// The oldest minor version that is served, as in EPICS 7.
pub const MINOR_MIN: u16 = 4;
/// Default port of servers, UDP and TCP.
pub const SERVER_PORT: u16 = 5064;
/// Default UDP port of the repeater, which receives the beacons.
pub const REPEATER_PORT: u16 = 5065;
/// Search type: answer only if the name exists.
pub const DONT_REPLY: u16 = 5;
/// Search type: also answer if the name does not exist (TCP only).
pub const DO_REPLY: u16 = 10;
/// No id. In a search reply: use the sender's address.
pub const NONE: u32 = u32::MAX;

/// Size of a header in bytes.
pub const HEADER_BYTES: usize = 16;
/// Size of a header with a payload or a count of more than 16 bits.
pub const HEADER_BYTES_MAX: usize = 24;

/// Maximum size in bytes of any message. Larger ones are accepted only if a requested or writable value needs them.
pub(crate) const MESSAGE_BYTES: usize = 64 << 10;

/// The message numbers.
#[allow(missing_docs, reason = "named as the protocol names them")]
pub mod command {
    pub const VERSION: u16 = 0;
    pub const EVENT_ADD: u16 = 1;
    pub const EVENT_CANCEL: u16 = 2;
    pub const READ: u16 = 3;
    pub const WRITE: u16 = 4;
    pub const SEARCH: u16 = 6;
    pub const EVENTS_OFF: u16 = 8;
    pub const EVENTS_ON: u16 = 9;
    pub const READ_SYNC: u16 = 10;
    pub const ERROR: u16 = 11;
    pub const CLEAR_CHANNEL: u16 = 12;
    pub const RSRV_IS_UP: u16 = 13;
    pub const NOT_FOUND: u16 = 14;
    pub const READ_NOTIFY: u16 = 15;
    pub const REPEATER_CONFIRM: u16 = 17;
    pub const CREATE_CHAN: u16 = 18;
    pub const WRITE_NOTIFY: u16 = 19;
    pub const CLIENT_NAME: u16 = 20;
    pub const HOST_NAME: u16 = 21;
    pub const ACCESS_RIGHTS: u16 = 22;
    pub const ECHO: u16 = 23;
    pub const REPEATER_REGISTER: u16 = 24;
    pub const CREATE_CH_FAIL: u16 = 26;
    pub const SERVER_DISCONN: u16 = 27;
}

/// The header of a message, in either form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message ([`command`]).
    pub command: u16,
    /// Size of the payload in bytes, including padding.
    pub size: u32,
    /// Usually the type of the payload.
    pub kind: u16,
    /// Usually the number of elements.
    pub count: u32,
    /// First parameter; its meaning depends on the message.
    pub p1: u32,
    /// Second parameter.
    pub p2: u32,
}

/// The result of [`Header::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderParse {
    /// A header, and its size in bytes (16 or 24).
    Header(Header, usize),
    /// Too few bytes for a header.
    Short,
}

impl Header {
    /// The header of a message without payload.
    #[must_use]
    pub const fn bare(command: u16, kind: u16, count: u32, p1: u32, p2: u32) -> Self {
        Self { command, size: 0, kind, count, p1, p2 }
    }

    /// Reads the header at the start of `bytes`.
    #[must_use]
    pub fn read(bytes: &[u8]) -> HeaderParse {
        let Some(head) = bytes.first_chunk::<16>() else {
            return HeaderParse::Short;
        };
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let long = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut header = Self {
            command: short(0),
            size: u32::from(short(2)),
            kind: short(4),
            count: u32::from(short(6)),
            p1: long(8),
            p2: long(12),
        };
        if header.size != 0xFFFF {
            return HeaderParse::Header(header, 16);
        }
        let Some(wide) = bytes.get(16..24).and_then(|wide| wide.first_chunk::<8>()) else {
            return HeaderParse::Short;
        };
        header.size = u32::from_be_bytes([wide[0], wide[1], wide[2], wide[3]]);
        header.count = u32::from_be_bytes([wide[4], wide[5], wide[6], wide[7]]);
        HeaderParse::Header(header, 24)
    }

    /// Appends the header, in the wide form only if necessary. `size` must include the padding.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; 24];
        self.write_over(&mut bytes);
        out.extend_from_slice(if self.is_wide() { &bytes } else { &bytes[..16] });
    }

    /// Writes the header over the start of `bytes`, which must be long enough.
    pub(crate) fn write_over(&self, bytes: &mut [u8]) {
        let wide = self.is_wide();
        let (size, count) = if wide { (0xFFFF, 0) } else { (self.size as u16, self.count as u16) };
        bytes[0..2].copy_from_slice(&self.command.to_be_bytes());
        bytes[2..4].copy_from_slice(&size.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_be_bytes());
        bytes[6..8].copy_from_slice(&count.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.p1.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.p2.to_be_bytes());
        if wide {
            bytes[16..20].copy_from_slice(&self.size.to_be_bytes());
            bytes[20..24].copy_from_slice(&self.count.to_be_bytes());
        }
    }

    /// Returns whether the 24-byte form is necessary.
    #[must_use]
    pub const fn is_wide(&self) -> bool {
        self.size >= 0xFFFF || self.count >= 0xFFFF
    }
}

/// Rounds a size up to a multiple of eight bytes, to which messages are aligned.
#[must_use]
pub const fn padded(size: usize) -> usize {
    size.next_multiple_of(8)
}

/// Appends a message with the payload `text`, terminated by NUL and padded.
pub fn write_text(mut header: Header, text: &[u8], out: &mut Vec<u8>) {
    let size = padded(text.len() + 1);
    header.size = size as u32;
    header.write(out);
    out.extend_from_slice(text);
    out.resize(out.len() + size - text.len(), 0);
}

/// The text of a payload: up to its first NUL, or all of it.
#[must_use]
pub fn text_of(payload: &[u8]) -> &[u8] {
    payload.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Splits a datagram into messages. Ignores an incomplete message at its end.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    std::iter::from_fn(move || {
        let HeaderParse::Header(header, len) = Header::read(bytes) else {
            return None;
        };
        let end = len.checked_add(header.size as usize)?;
        let payload = bytes.get(len..end)?;
        bytes = &bytes[end..];
        Some((header, payload))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_large_payload_takes_the_wide_form() {
        let header = Header { command: 15, size: 0xFFF8, kind: 6, count: 8191, p1: 1, p2: 2 };
        let mut out = Vec::new();
        header.write(&mut out);
        assert_eq!(out.len(), 16);
        let header = Header { size: 0x1_0000, ..header };
        out.clear();
        header.write(&mut out);
        assert_eq!((out.len(), &out[2..4], &out[6..8]), (24, &[0xFF, 0xFF][..], &[0, 0][..]));
        assert_eq!(Header::read(&out[..20]), HeaderParse::Short);
    }

    proptest! {
        #[test]
        fn headers_survive_a_round_trip(command: u16, size in 0u32..0x2_0000, kind: u16, count: u32, p1: u32, p2: u32) {
            let header = Header { command, size: size & !7, kind, count, p1, p2 };
            let mut out = Vec::new();
            header.write(&mut out);
            prop_assert_eq!(Header::read(&out), HeaderParse::Header(header, out.len()));
        }

        #[test]
        fn no_bytes_panic_and_messages_never_overlap(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let total: usize = messages(&bytes).map(|(_, payload)| payload.len() + 16).sum();
            prop_assert!(total <= bytes.len() + 8 * bytes.len());
        }
    }
}
