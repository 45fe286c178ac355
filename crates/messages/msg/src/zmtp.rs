//! ZeroMQ's wire protocol (ZMTP 3, rfc.zeromq.org/spec/23): state machine of a ROUTER without security.
//!
//! Input is bounded before it is stored. A frame that is too long is counted and discarded, and its message is marked.
//! Bytes that are not ZMTP end the connection. For each peer, at most twice the maximum size of a message is allocated.

use crate::frame::{BODY_BYTES_MAX, TEXT_BYTES_MAX};
use crate::options::OptionsError;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::mem::take;

/// Maximum bytes kept of a message in addition to its longest frame.
const REST_BYTES_MAX: usize = TEXT_BYTES_MAX + 2048;
/// Maximum number of frames of a message.
pub const FRAMES_MAX: usize = 12;
/// Maximum bytes of a discarded frame, unless the maximum of a kept frame is larger. A longer frame ends the
/// connection.
const THROWN_BYTES_MAX: u64 = 16 << 20;
/// Maximum bytes of a command.
const COMMAND_BYTES_MAX: usize = 1024;
const GREETING_BYTES: usize = 64;

/// Greeting of a ROUTER: signature, version 3.0, no security.
pub const GREETING: [u8; GREETING_BYTES] = {
    let mut bytes = [0; GREETING_BYTES];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    let mut at = 0;
    while at < 4 {
        bytes[12 + at] = b"NULL"[at];
        at += 1;
    }
    bytes
};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A message from a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its frames. A frame that was too long is empty.
    pub frames: Vec<Vec<u8>>,
    /// Set if the message is too long: bytes of its first frame that is too long, or of the message so far; and the
    /// maximum of a frame.
    pub too_long: Option<(u64, usize)>,
}

/// Result of processing a peer's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Bytes to send to the peer.
    Send(Vec<u8>),
    /// A message from the peer.
    Message(Message),
}

/// Reason to close the connection to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The first bytes are not a ZMTP greeting.
    Greeting,
    /// The peer uses an older version.
    Version(u8),
    /// The peer requires another security mechanism.
    Mechanism(String),
    /// The peer's socket type is not compatible with a ROUTER.
    Socket(String),
    /// Invalid flags of a frame, or an invalid command.
    Frame,
    /// A frame or command that is much too long: its bytes, and the maximum.
    TooLong(u64, usize),
    /// A message with too many frames.
    Frames,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greeting => f.write_str("its first bytes are no greeting of ZeroMQ's"),
            Self::Version(found) => write!(f, "it speaks version {found} of ZMTP, expected 3 or later: ZeroMQ 4"),
            Self::Mechanism(found) => write!(f, "it requests the security mechanism {found:?}, expected NULL"),
            Self::Socket(found) => write!(f, "its socket is a {found:?}, expected REQ or DEALER"),
            Self::Frame => f.write_str("a frame or command that cannot be in ZMTP 3.0"),
            Self::TooLong(found, most) => write!(f, "a frame of {found} bytes, expected at most {most}"),
            Self::Frames => write!(f, "a message of more than {FRAMES_MAX} frames"),
        }
    }
}

impl core::error::Error for Fault {}

#[derive(Debug)]
enum Phase {
    /// Collecting the greeting in `head`.
    Greeting,
    Flags,
    Length(u8),
    Payload {
        flags: u8,
        left: u64,
    },
}

/// State of one peer.
#[derive(Debug)]
pub struct Peer {
    /// Maximum bytes of a frame that is kept.
    frame_bytes_max: usize,
    phase: Phase,
    head: [u8; GREETING_BYTES],
    filled: usize,
    ready: bool,
    /// The frame or command being received.
    payload: Vec<u8>,
    thrown: bool,
    message: Message,
}

impl Default for Peer {
    /// Like [`new`](Peer::new), with bodies up to 16 KiB.
    fn default() -> Self {
        Self::new(BODY_BYTES_MAX)
    }
}

impl Peer {
    /// A new peer with bodies of up to `body_bytes_max`, but at least 16 KiB.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self {
            frame_bytes_max: body_bytes_max.max(BODY_BYTES_MAX),
            phase: Phase::Greeting,
            head: [0; GREETING_BYTES],
            filled: 0,
            ready: false,
            payload: Vec::new(),
            thrown: false,
            message: Message::default(),
        }
    }

    /// Whether its handshake is complete.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Processes received bytes, and appends the results to `out`.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<Incoming>) -> Result<(), Fault> {
        loop {
            match self.phase {
                Phase::Greeting => {
                    let done = self.collect(&mut bytes, GREETING_BYTES);
                    let seen = &self.head[..self.filled];
                    // Other protocols are detected by the first bytes; such a peer may never send 64 bytes.
                    if seen.first().is_some_and(|first| *first != 0xff) || seen.get(9).is_some_and(|byte| byte & 1 == 0)
                    {
                        return Err(Fault::Greeting);
                    }
                    if let Some(version @ 0..3) = seen.get(10) {
                        return Err(Fault::Version(*version));
                    }
                    if !done {
                        return Ok(());
                    }
                    let mechanism = self.head[12..32].split(|byte| *byte == 0).next().unwrap_or_default();
                    if mechanism != b"NULL" {
                        return Err(Fault::Mechanism(String::from_utf8_lossy(mechanism).into_owned()));
                    }
                    self.next(Phase::Flags);
                }
                Phase::Flags => {
                    let [flags, rest @ ..] = bytes else { return Ok(()) };
                    bytes = rest;
                    let command = flags & COMMAND != 0;
                    if flags & !(MORE | LONG | COMMAND) != 0 || command && flags & MORE != 0 || !command && !self.ready
                    {
                        return Err(Fault::Frame);
                    }
                    self.next(Phase::Length(*flags));
                }
                Phase::Length(flags) => {
                    let size = if flags & LONG == 0 { 1 } else { 8 };
                    if !self.collect(&mut bytes, size) {
                        return Ok(());
                    }
                    let left = self.head[..size].iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
                    self.begin(flags, left)?;
                }
                Phase::Payload { flags, ref mut left } => {
                    let some = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (now, rest) = bytes.split_at(some);
                    bytes = rest;
                    *left -= some as u64;
                    let done = *left == 0;
                    if !self.thrown {
                        self.payload.extend_from_slice(now);
                    }
                    if !done {
                        return Ok(());
                    }
                    let payload = take(&mut self.payload);
                    self.next(Phase::Flags);
                    if flags & COMMAND != 0 {
                        self.command(&payload, out)?;
                    } else {
                        self.message.frames.push(payload);
                        if flags & MORE == 0 {
                            out.push(Incoming::Message(take(&mut self.message)));
                        }
                    }
                }
            }
        }
    }

    fn next(&mut self, phase: Phase) {
        self.phase = phase;
        self.filled = 0;
    }

    /// Fills `head` up to `size` bytes. Returns whether it is full.
    fn collect(&mut self, bytes: &mut &[u8], size: usize) -> bool {
        let some = bytes.len().min(size - self.filled);
        let (now, rest) = bytes.split_at(some);
        self.head[self.filled..self.filled + some].copy_from_slice(now);
        self.filled += some;
        *bytes = rest;
        self.filled == size
    }

    /// Starts a frame of `left` bytes. Reserves nothing for it, and discards it if it is too long.
    fn begin(&mut self, flags: u8, left: u64) -> Result<(), Fault> {
        if flags & COMMAND != 0 {
            self.thrown = false;
            if left > COMMAND_BYTES_MAX as u64 {
                return Err(Fault::TooLong(left, COMMAND_BYTES_MAX));
            }
        } else {
            let most = self.frame_bytes_max;
            if left > THROWN_BYTES_MAX.max(most as u64) {
                return Err(Fault::TooLong(left, most));
            }
            if self.message.frames.len() >= FRAMES_MAX {
                return Err(Fault::Frames);
            }
            let sum = self.message.frames.iter().map(Vec::len).sum::<usize>() as u64 + left;
            self.thrown = left > most as u64 || sum > (most + REST_BYTES_MAX) as u64;
            if self.thrown {
                let found = if left > most as u64 { left } else { sum };
                self.message.too_long.get_or_insert((found, most));
            }
        }
        self.next(Phase::Payload { flags, left });
        Ok(())
    }

    fn command(&mut self, bytes: &[u8], out: &mut Vec<Incoming>) -> Result<(), Fault> {
        let (size, rest) = bytes.split_first().ok_or(Fault::Frame)?;
        let (name, data) = rest.split_at_checked(usize::from(*size)).ok_or(Fault::Frame)?;
        match (name, self.ready) {
            (b"READY", false) => {
                let socket = property(data, b"Socket-Type")?.unwrap_or_default();
                if !matches!(socket, b"REQ" | b"DEALER") {
                    return Err(Fault::Socket(String::from_utf8_lossy(socket).into_owned()));
                }
                self.ready = true;
                let mut ready = b"\x05READY\x0bSocket-Type\0\0\0\x06ROUTER".to_vec();
                ready.extend_from_slice(b"\x08Identity\0\0\0\0");
                out.push(Incoming::Send(command(&ready)));
            }
            // ZMTP 3.1: PONG returns the context that follows the time to live in PING.
            (b"PING", true) if (2..=18).contains(&data.len()) => {
                let mut pong = b"\x04PONG".to_vec();
                pong.extend_from_slice(&data[2..]);
                out.push(Incoming::Send(command(&pong)));
            }
            (b"PONG", true) => {}
            _ => return Err(Fault::Frame),
        }
        Ok(())
    }
}

/// Value of a property in a READY command.
fn property<'a>(mut data: &'a [u8], wanted: &[u8]) -> Result<Option<&'a [u8]>, Fault> {
    let mut found = None;
    while let Some((size, rest)) = data.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*size)).ok_or(Fault::Frame)?;
        let (size, rest) = rest.split_first_chunk::<4>().ok_or(Fault::Frame)?;
        let size = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| Fault::Frame)?;
        let (value, rest) = rest.split_at_checked(size).ok_or(Fault::Frame)?;
        if name.eq_ignore_ascii_case(wanted) {
            found = Some(value);
        }
        data = rest;
    }
    Ok(found)
}

fn command(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from([COMMAND, body.len() as u8]);
    bytes.extend_from_slice(body);
    bytes
}

/// Encodes a message.
#[must_use]
pub fn message<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut frames = frames.into_iter().peekable();
    while let Some(frame) = frames.next() {
        let more = if frames.peek().is_some() { MORE } else { 0 };
        match u8::try_from(frame.len()) {
            Ok(length) => bytes.extend_from_slice(&[more, length]),
            Err(_) => {
                bytes.push(more | LONG);
                bytes.extend_from_slice(&(frame.len() as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// A message that is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A frame exceeds its limit.
    Long {
        /// Its bytes.
        found: u64,
        /// The maximum.
        most: usize,
    },
    /// There is no line after an empty frame.
    NoLine,
    /// More frames than a line, options and a body.
    Frames {
        /// Their number.
        found: usize,
    },
    /// The line is not UTF-8.
    Utf8,
    /// The options are invalid.
    Options(OptionsError),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long { found, most } => write!(f, "{found} bytes, expected at most {most} in a frame"),
            Self::NoLine => f.write_str("expected an empty frame, and behind it verb/object/complement"),
            Self::Frames { found } => write!(f, "{found} frames behind the empty one, expected at most 3"),
            Self::Utf8 => f.write_str("the line is no UTF-8"),
            Self::Options(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RequestError {}

impl Message {
    /// The frames up to the first empty one, which are returned with the reply, and the frames after it. The first part
    /// is empty if no frame is empty.
    #[must_use]
    pub fn envelope(&self) -> (&[Vec<u8>], &[Vec<u8>]) {
        let kept = self.frames.iter().position(Vec::is_empty).map_or(0, |at| at + 1);
        self.frames.split_at(kept)
    }

    /// The request in the frames after the envelope: a line, optional options, an optional body.
    ///
    /// # Errors
    /// The message is not a request.
    pub fn request(&self) -> Result<(&str, crate::options::Options, &[u8]), RequestError> {
        if let Some((found, most)) = self.too_long {
            return Err(RequestError::Long { found, most });
        }
        let (envelope, rest) = self.envelope();
        let (line, rest) = match (envelope, rest) {
            ([], _) | (_, []) => return Err(RequestError::NoLine),
            (_, [line, rest @ ..]) => (line, rest),
        };
        if rest.len() > 2 {
            return Err(RequestError::Frames { found: rest.len() + 1 });
        }
        let line = core::str::from_utf8(line).map_err(|_| RequestError::Utf8)?;
        let options = rest.first().filter(|options| !options.is_empty());
        let options = options
            .map_or(Ok(crate::options::Options::default()), |bytes| crate::options::read(bytes))
            .map_err(RequestError::Options)?;
        Ok((line, options, rest.get(1).map_or(&[], Vec::as_slice)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    /// Greeting of a REQ socket of libzmq 4.3.
    fn hello() -> Vec<u8> {
        let mut bytes = GREETING.to_vec();
        bytes[11] = 1;
        bytes.extend_from_slice(b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x03REQ\x08Identity\0\0\0\0");
        bytes
    }

    fn said(bytes: &[u8], piece: usize) -> (Vec<Incoming>, Result<(), Fault>) {
        let (mut peer, mut out) = (Peer::default(), Vec::new());
        let ended = bytes.chunks(piece).try_for_each(|bytes| peer.feed(bytes, &mut out));
        (out, ended)
    }

    #[test]
    fn a_request_is_parsed_from_pieces_of_any_size() {
        let mut bytes = hello();
        bytes.extend(message([&b""[..], b"get/sr_mag/current"]));
        let body = Vec::from([7; 300]);
        bytes.extend(message([&b"id"[..], b"", b"put/sr_mag/1A", b"\x81\xa4band\x07", &body]));
        bytes.extend_from_slice(b"\x04\x0a\x04PING\0\x0aabc");
        let whole = said(&bytes, bytes.len());
        let [Incoming::Send(ready), Incoming::Message(first), Incoming::Message(second), Incoming::Send(pong)] =
            &whole.0[..]
        else {
            panic!("{whole:?}")
        };
        assert!(ready.starts_with(b"\x04\x29\x05READY") && ready.len() == 0x29 + 2, "{ready:?}");
        assert_eq!(first.request().unwrap().0, "get/sr_mag/current");
        let (line, options, found) = second.request().unwrap();
        assert_eq!((line, options.band.number(), found), ("put/sr_mag/1A", 7, &body[..]));
        assert_eq!(second.envelope().0, [b"id".to_vec(), Vec::new()]);
        assert_eq!(pong, b"\x04\x08\x04PONGabc");
        assert!((1..20).all(|piece| said(&bytes, piece) == whole));
    }

    #[test]
    fn peers_of_other_protocols_are_recognised_by_their_first_bytes() {
        let socket = |name: &[u8]| {
            let mut bytes = GREETING.to_vec();
            let mut body = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
            body.push(name.len() as u8);
            body.extend_from_slice(name);
            bytes.extend(command(&body));
            bytes
        };
        let mut plain = hello();
        plain[12..17].copy_from_slice(b"PLAIN");
        let mut old = hello();
        old[10] = 1;
        for (bytes, fault) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), Fault::Greeting),
            (old, Fault::Version(1)),
            (plain, Fault::Mechanism("PLAIN".into())),
            (socket(b"SUB"), Fault::Socket("SUB".into())),
            ([&GREETING[..], &message([&b"too early"[..]])].concat(), Fault::Frame),
        ] {
            assert_eq!(said(&bytes, 5).1, Err(fault));
        }
    }

    #[test]
    fn an_oversized_frame_is_discarded_and_reported() {
        let mut bytes = hello();
        let long = Vec::from([1; BODY_BYTES_MAX + 1]);
        bytes.extend(message([&b"id"[..], b"", b"put/a/1", b"", &long]));
        bytes.extend(message([&b""[..], b"get/a"]));
        let (out, ended) = said(&bytes, 1000);
        assert_eq!(ended, Ok(()));
        let Incoming::Message(found) = &out[1] else { panic!("{out:?}") };
        assert_eq!(found.request().unwrap_err().to_string(), "16385 bytes, expected at most 16384 in a frame");
        assert_eq!(found.envelope().0, [b"id".to_vec(), Vec::new()]);
        assert!(matches!(&out[2], Incoming::Message(next) if next.request().is_ok()));
        let mut endless = hello();
        endless.extend_from_slice(&[LONG, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(said(&endless, 1000).1, Err(Fault::TooLong(0x7fff_ffff_ffff_ffff, BODY_BYTES_MAX)));
        let mut many = hello();
        many.extend(message([&b"x"[..]; FRAMES_MAX + 1]));
        assert_eq!(said(&many, 1000).1, Err(Fault::Frames));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_are_kept_without_bound(
            garbage in proptest::collection::vec(any::<u8>(), 0..400),
            at in 0usize..150,
            piece in 1usize..50,
        ) {
            let mut bytes = hello();
            bytes.extend(message([&b""[..], b"get/sr_mag/current"]));
            bytes.truncate(at);
            bytes.extend(garbage);
            let (mut peer, mut out) = (Peer::default(), Vec::new());
            for bytes in bytes.chunks(piece) {
                if peer.feed(bytes, &mut out).is_err() {
                    break;
                }
                prop_assert!(peer.payload.len() + peer.message.frames.iter().map(Vec::len).sum::<usize>() <= BODY_BYTES_MAX + REST_BYTES_MAX);
            }
            for incoming in out {
                if let Incoming::Message(message) = incoming {
                    let _ = message.request();
                }
            }
        }
    }
}
