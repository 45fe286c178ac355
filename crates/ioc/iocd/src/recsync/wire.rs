//! Bytes of the protocol of RecCeiver, all in network order.
//!
//! A RecCeiver announces itself in datagrams of 16 bytes. Over TCP each message is `RC`, its number (u16), the length of its body
//! (u32) and the body.

use std::net::{Ipv4Addr, SocketAddrV4};

/// UDP port of announcements.
pub(super) const ANNOUNCE_PORT: u16 = 5049;

const MAGIC: [u8; 2] = *b"RC";
const HEAD_BYTES: usize = 8;
/// Bytes of a body that are kept. The largest body that is read has 4.
const BODY_MAX: usize = 8;

/// A RecCeiver, as it announced itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) server: SocketAddrV4,
    /// Number that the client sends back.
    pub(super) key: u32,
}

impl Announcement {
    /// Parses a datagram that arrived from `from`; `None` if it is of another protocol or version.
    pub(super) fn parse(bytes: &[u8], from: Ipv4Addr) -> Option<Self> {
        let [b'R', b'C', 0, 0, a, b, c, d, high, low, _, _, key @ ..] = bytes.first_chunk::<16>()? else {
            return None;
        };
        let ip = match Ipv4Addr::new(*a, *b, *c, *d) {
            Ipv4Addr::BROADCAST => from,
            // Announced by a proxy.
            ip => ip,
        };
        let port = Some(u16::from_be_bytes([*high, *low])).filter(|port| *port != 0)?;
        Some(Self { server: SocketAddrV4::new(ip, port), key: u32::from_be_bytes(*key) })
    }
}

/// Appends a message of parts.
fn message(out: &mut Vec<u8>, number: u16, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(MAGIC);
    out.extend(number.to_be_bytes());
    out.extend((len as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend(*part));
}

/// Appends the first message of an IOC.
pub(super) fn greeting(out: &mut Vec<u8>, key: u32) {
    // Version 0, type 0 (an IOC), and two unused bytes.
    message(out, 0x0001, &[&[0; 4], &key.to_be_bytes()]);
}

/// Appends the answer to a ping.
pub(super) fn pong(out: &mut Vec<u8>, nonce: u32) {
    message(out, 0x0002, &[&nonce.to_be_bytes()]);
}

/// Appends the end of the list.
pub(super) fn done(out: &mut Vec<u8>) {
    message(out, 0x0005, &[&0u32.to_be_bytes()]);
}

/// Appends a record with its type. Its number is not 0.
pub(super) fn record(out: &mut Vec<u8>, number: u32, kind: &str, name: &str) {
    let (kind, name) = (cut(kind, u8::MAX.into()), cut(name, u16::MAX.into()));
    let head = [0, kind.len() as u8];
    message(out, 0x0003, &[&number.to_be_bytes(), &head, &(name.len() as u16).to_be_bytes(), kind, name]);
}

/// Appends a further name of a record.
pub(super) fn alias(out: &mut Vec<u8>, number: u32, name: &str) {
    let name = cut(name, u16::MAX.into());
    message(out, 0x0003, &[&number.to_be_bytes(), &[1, 0], &(name.len() as u16).to_be_bytes(), name]);
}

/// Appends an info tag of a record, or with number 0 a property of the IOC. As in C, empty ones are not sent.
pub(super) fn info(out: &mut Vec<u8>, number: u32, key: &str, value: &str) {
    let (key, value) = (cut(key, u8::MAX.into()), cut(value, u16::MAX.into()));
    if !value.is_empty() {
        let head = [key.len() as u8, 0];
        message(out, 0x0006, &[&number.to_be_bytes(), &head, &(value.len() as u16).to_be_bytes(), key, value]);
    }
}

/// The bytes of a text up to the maximum of its length field, without a part of a character.
fn cut(text: &str, max: usize) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(max)]
}

/// A message of a RecCeiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// It takes the list now.
    Greeting,
    /// Must be answered with the number.
    Ping(u32),
    /// Of no importance for a client.
    Other,
}

/// Bytes of another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// Splits received bytes into messages. Keeps at most 16 bytes.
#[derive(Default)]
pub(super) struct Messages {
    held: Vec<u8>,
    /// Bytes of the current body that are dropped.
    skipped: usize,
}

impl Messages {
    /// Takes bytes from `bytes` up to the end of a message; `None` if it is not complete.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, Garbled> {
        let dropped = self.skipped.min(bytes.len());
        self.skipped -= dropped;
        *bytes = &bytes[dropped..];
        if !self.fill(bytes, HEAD_BYTES) {
            return Ok(None);
        }
        let [magic @ .., high, low, a, b, c, d] = *self.held.first_chunk::<HEAD_BYTES>().ok_or(Garbled)?;
        if magic != MAGIC {
            return Err(Garbled);
        }
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let kept = len.min(BODY_MAX);
        if !self.fill(bytes, HEAD_BYTES + kept) {
            return Ok(None);
        }
        self.skipped = len - kept;
        let message = match (u16::from_be_bytes([high, low]), &self.held[HEAD_BYTES..]) {
            (0x8001, [_, ..]) => Message::Greeting,
            (0x8002, [a, b, c, d, ..]) => Message::Ping(u32::from_be_bytes([*a, *b, *c, *d])),
            _ => Message::Other,
        };
        self.held.clear();
        Ok(Some(message))
    }

    /// Holds bytes until there are `len`. Returns whether there are.
    fn fill(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let missing = len.saturating_sub(self.held.len()).min(bytes.len());
        self.held.extend(&bytes[..missing]);
        *bytes = &bytes[missing..];
        self.skipped == 0 && self.held.len() >= len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    #[test]
    fn an_announcement_names_its_sender_or_another_host() {
        let bytes = *b"RC\0\0\xff\xff\xff\xff\x12\x34\0\0\x01\x02\x03\x04and more";
        let found = Announcement::parse(&bytes, HERE).unwrap();
        assert_eq!((found.server, found.key), (SocketAddrV4::new(HERE, 0x1234), 0x0102_0304));
        let mut proxied = bytes;
        proxied[4..8].copy_from_slice(&[10, 0, 0, 7]);
        assert_eq!(*Announcement::parse(&proxied, HERE).unwrap().server.ip(), Ipv4Addr::new(10, 0, 0, 7));
    }

    #[test]
    fn datagrams_of_other_versions_and_protocols_are_ignored() {
        let bytes = *b"RC\0\0\xff\xff\xff\xff\x12\x34\0\0\x01\x02\x03\x04";
        for at in [0, 1, 2, 3] {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(Announcement::parse(&other, HERE), None);
        }
        let mut portless = bytes;
        portless[8..10].fill(0);
        assert_eq!(Announcement::parse(&portless, HERE), None);
        (0..16).for_each(|len| assert_eq!(Announcement::parse(&bytes[..len], HERE), None));
    }

    #[test]
    fn messages_have_the_published_layout() {
        let mut out = Vec::new();
        record(&mut out, 7, "ai", "X:a");
        assert_eq!(out, b"RC\0\x03\0\0\0\x0d\0\0\0\x07\0\x02\0\x03aiX:a");
        out.clear();
        alias(&mut out, 7, "X:b");
        assert_eq!(out, b"RC\0\x03\0\0\0\x0b\0\0\0\x07\x01\0\0\x03X:b");
        out.clear();
        info(&mut out, 0, "K", "value");
        assert_eq!(out, b"RC\0\x06\0\0\0\x0e\0\0\0\0\x01\0\0\x05Kvalue");
        out.clear();
        greeting(&mut out, 0x0102_0304);
        assert_eq!(out, b"RC\0\x01\0\0\0\x08\0\0\0\0\x01\x02\x03\x04");
    }

    #[test]
    fn long_texts_are_cut_to_their_length_fields_and_empty_values_are_not_sent() {
        let mut out = Vec::new();
        info(&mut out, 1, &"é".repeat(200), &"x".repeat(70_000));
        assert_eq!((out[12], &out[14..16], out.len()), (254, &[0xff, 0xff][..], 16 + 254 + 65_535));
        out.clear();
        info(&mut out, 1, "K", "");
        assert!(out.is_empty());
    }

    #[test]
    fn messages_are_found_in_bytes_of_any_division() {
        let bytes =
            b"RC\x80\x01\0\0\0\x01\0RC\x80\x09\0\0\0\x0c123456789012RC\x80\x02\0\0\0\x04\0\0\x01\x02RC\x80\x02\0\0\0\0";
        for step in 1..bytes.len() {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for mut part in bytes.chunks(step) {
                while let Some(message) = messages.take(&mut part).unwrap() {
                    found.push(message);
                }
                assert!(part.is_empty() && messages.held.len() <= HEAD_BYTES + BODY_MAX);
            }
            assert_eq!(found, [Message::Greeting, Message::Other, Message::Ping(0x0102), Message::Other], "{step}");
        }
    }

    #[test]
    fn other_protocols_are_refused() {
        assert_eq!(Messages::default().take(&mut &b"HTTP/1.1 200"[..]), Err(Garbled));
    }
}
