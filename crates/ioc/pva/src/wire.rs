//! Messages: header, commands, and the assembly of messages from a stream of bytes.

use crate::codec::{Fault, Order, Writer};

/// Default TCP port of a server.
pub const SERVER_PORT: u16 = 5075;
/// Default UDP port of searches and beacons.
pub const BROADCAST_PORT: u16 = 5076;
/// Multicast group by which servers on one host share searches.
pub const LOCAL_GROUP: [u8; 4] = [224, 0, 0, 128];
/// The protocol version that this crate sends.
pub const VERSION: u8 = 2;
/// Size of a header in bytes.
pub const HEADER_BYTES: usize = 8;
/// Maximum number of bytes of a channel name.
pub const NAME_MAX: usize = 500;

/// Bits of the third byte of a header.
pub mod flag {
    /// A control message: the size is a parameter, and no payload follows.
    pub const CONTROL: u8 = 0x01;
    /// The first segment of a message.
    pub const FIRST: u8 = 0x10;
    /// The last segment of a message.
    pub const LAST: u8 = 0x20;
    /// A segment between them, and the bits of both.
    pub const MIDDLE: u8 = 0x30;
    /// Sent by a server.
    pub const SERVER: u8 = 0x40;
    /// Numbers have the most significant byte first.
    pub const BIG: u8 = 0x80;
}

/// Commands of messages.
#[allow(missing_docs, reason = "the names are those of the specification")]
pub mod command {
    pub const BEACON: u8 = 0;
    pub const VALIDATION: u8 = 1;
    pub const ECHO: u8 = 2;
    pub const SEARCH: u8 = 3;
    pub const SEARCH_RESPONSE: u8 = 4;
    pub const ACL_CHANGE: u8 = 6;
    pub const CREATE_CHANNEL: u8 = 7;
    pub const DESTROY_CHANNEL: u8 = 8;
    pub const VALIDATED: u8 = 9;
    pub const GET: u8 = 10;
    pub const PUT: u8 = 11;
    pub const PUT_GET: u8 = 12;
    pub const MONITOR: u8 = 13;
    pub const ARRAY: u8 = 14;
    pub const DESTROY_REQUEST: u8 = 15;
    pub const PROCESS: u8 = 16;
    pub const GET_FIELD: u8 = 17;
    pub const MESSAGE: u8 = 18;
    pub const RPC: u8 = 20;
    pub const CANCEL_REQUEST: u8 = 21;
    pub const ORIGIN_TAG: u8 = 22;
    /// The only control message in use: sets the byte order.
    pub const SET_ORDER: u8 = 2;
}

/// Bits of the rights to a channel that a server announces.
pub mod right {
    /// Writing.
    pub const PUT: u8 = 1;
    /// Writing and reading in one request.
    pub const PUT_GET: u8 = 2;
    /// Calls.
    pub const RPC: u8 = 4;
}

/// Bits of the sub-command of an operation.
pub mod sub {
    /// Creates the operation.
    pub const INIT: u8 = 0x08;
    /// Ends the operation after this request.
    pub const DESTROY: u8 = 0x10;
    /// Reads back, in a put.
    pub const GET: u8 = 0x40;
    /// Starts or stops a monitor, with [`GET`] for a start.
    pub const START_STOP: u8 = 0x04;
    /// Reads the fields to write, in a put-get.
    pub const GET_PUT: u8 = 0x80;
    /// Acknowledges updates, in a monitor; with [`INIT`] it starts flow control.
    pub const ACK: u8 = 0x80;
}

/// The fixed part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol version of the sender.
    pub version: u8,
    /// See [`flag`].
    pub flags: u8,
    /// See [`command`].
    pub command: u8,
    /// Number of bytes that follow. The parameter of a control message.
    pub size: u32,
}

impl Header {
    /// Decodes the fixed part, if all its bytes have arrived.
    ///
    /// # Errors
    /// It is not a header of this protocol.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        if let Some(&first) = bytes.first().filter(|first| **first != 0xCA) {
            return Err(Fault::Magic(first));
        }
        let Some(&[_, version, flags, command, a, b, c, d]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        if version == 0 {
            return Err(Fault::Version);
        }
        let size = [a, b, c, d];
        let size = if flags & flag::BIG == 0 { u32::from_le_bytes(size) } else { u32::from_be_bytes(size) };
        Ok(Some(Self { version, flags, command, size }))
    }

    /// The byte order of the message.
    #[must_use]
    pub const fn order(&self) -> Order {
        if self.flags & flag::BIG == 0 { Order::Little } else { Order::Big }
    }

    /// Whether it is a control message.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.flags & flag::CONTROL != 0
    }
}

/// The side that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client.
    Client,
    /// A server.
    Server,
}

impl Side {
    const fn flag(self) -> u8 {
        match self {
            Self::Client => 0,
            Self::Server => flag::SERVER,
        }
    }
}

/// Appends a message. `body` writes the payload.
pub fn message(out: &mut Writer, side: Side, command: u8, body: impl FnOnce(&mut Writer)) {
    let start = begin(out, side, command);
    body(out);
    end(out, start);
}

/// Appends a header with an unknown size. Returns its place for [`end`].
pub fn begin(out: &mut Writer, side: Side, command: u8) -> usize {
    let start = out.bytes.len();
    let order = if out.order() == Order::Big { flag::BIG } else { 0 };
    out.bytes.extend_from_slice(&[0xCA, VERSION, side.flag() | order, command, 0, 0, 0, 0]);
    start
}

/// Sets the size of a message that was begun at `start`.
pub fn end(out: &mut Writer, start: usize) {
    let size = (out.bytes.len() - start - HEADER_BYTES) as u32;
    let size = if out.order() == Order::Big { size.to_be_bytes() } else { size.to_le_bytes() };
    out.bytes[start + 4..start + HEADER_BYTES].copy_from_slice(&size);
}

/// Appends the control message that sets the byte order to that of `out`.
pub fn set_order(out: &mut Writer, side: Side) {
    let order = if out.order() == Order::Big { flag::BIG } else { 0 };
    let flags = flag::CONTROL | side.flag() | order;
    out.bytes.extend_from_slice(&[0xCA, VERSION, flags, command::SET_ORDER, 0, 0, 0, 0]);
}

/// A whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The header of its last segment.
    pub header: Header,
    /// The bytes that follow the header, of all segments.
    pub payload: &'a [u8],
}

/// Splits a stream of bytes into messages and joins segments.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that were handled.
    done: usize,
    joined: Vec<u8>,
    /// The command of an unfinished segmented message.
    segments: Option<u8>,
    limit: usize,
    from: Side,
}

impl Inbox {
    /// An empty inbox for messages from a side, each of at most `limit` bytes.
    #[must_use]
    pub const fn new(from: Side, limit: usize) -> Self {
        Self { bytes: Vec::new(), done: 0, joined: Vec::new(), segments: None, limit, from }
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.done > 0 {
            self.bytes.drain(..self.done);
            self.done = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Number of bytes that were not handled yet.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.bytes.len() - self.done
    }

    /// The next whole message.
    ///
    /// # Errors
    /// The bytes are not messages of this protocol. The connection must be closed.
    pub fn next_message(&mut self) -> Result<Option<Message<'_>>, Fault> {
        loop {
            let Some(header) = Header::read(&self.bytes[self.done..])? else { return Ok(None) };
            if header.flags & flag::SERVER != self.from.flag() {
                return Err(Fault::Direction);
            }
            if header.is_control() {
                self.done += HEADER_BYTES;
                return Ok(Some(Message { header, payload: &[] }));
            }
            let size = header.size as usize;
            if size > self.limit || self.joined.len() + size > self.limit {
                return Err(Fault::TooLong);
            }
            let start = self.done + HEADER_BYTES;
            if self.bytes.len() - start < size {
                return Ok(None);
            }
            self.done = start + size;
            let segment = header.flags & flag::MIDDLE;
            let goes_on = segment == flag::LAST || segment == flag::MIDDLE;
            if goes_on != self.segments.is_some() || self.segments.is_some_and(|command| command != header.command) {
                return Err(Fault::Segment);
            }
            if segment == 0 {
                return Ok(Some(Message { header, payload: &self.bytes[start..start + size] }));
            }
            if segment == flag::FIRST {
                self.joined.clear();
            }
            self.joined.extend_from_slice(&self.bytes[start..start + size]);
            self.segments = Some(header.command);
            if segment == flag::LAST {
                self.segments = None;
                // The bytes stay until the next message begins to be joined, and count against its limit no more.
                let joined = std::mem::take(&mut self.joined);
                self.bytes.splice(..self.done, joined.iter().copied());
                self.done = joined.len();
                return Ok(Some(Message { header, payload: &self.bytes[..self.done] }));
            }
        }
    }
}

/// The messages of a datagram, up to the first that is invalid or from another direction.
pub fn datagram(bytes: &[u8], from: Option<Side>) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = Header::read(rest).ok()??;
        if from.is_some_and(|from| header.flags & flag::SERVER != from.flag()) {
            return None;
        }
        let size = if header.is_control() { 0 } else { header.size as usize };
        let payload = rest.get(HEADER_BYTES..HEADER_BYTES.checked_add(size)?)?;
        rest = &rest[HEADER_BYTES + size..];
        Some(Message { header, payload })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(inbox: &mut Inbox) -> Result<Vec<(u8, Vec<u8>)>, Fault> {
        let mut out = Vec::new();
        while let Some(message) = inbox.next_message()? {
            out.push((message.header.command, message.payload.to_vec()));
        }
        Ok(out)
    }

    fn segment(flags: u8, command: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Writer::new(Order::Little);
        message(&mut out, Side::Client, command, |out| out.bytes.extend_from_slice(payload));
        out.bytes[2] |= flags;
        out.bytes
    }

    #[test]
    fn the_greeting_of_a_server_sets_little_endian() {
        let mut out = Writer::new(Order::Little);
        set_order(&mut out, Side::Server);
        assert_eq!(out.bytes, [0xCA, 2, 0x41, 2, 0, 0, 0, 0]);
        let mut inbox = Inbox::new(Side::Server, 100);
        inbox.feed(&out.bytes);
        assert!(inbox.next_message().unwrap().unwrap().header.is_control());
    }

    #[test]
    fn sizes_have_the_byte_order_of_the_message() {
        let mut out = Writer::new(Order::Big);
        message(&mut out, Side::Server, command::SEARCH_RESPONSE, |out| out.u8(7));
        assert_eq!(out.bytes, [0xCA, 2, 0xC0, 4, 0, 0, 0, 1, 7]);
    }

    #[test]
    fn segments_are_joined_and_control_messages_may_lie_between() {
        let mut inbox = Inbox::new(Side::Client, 8);
        let stream = [
            segment(flag::FIRST, 11, b"ab"),
            segment(flag::MIDDLE, 11, b"cd"),
            vec![0xCA, 2, flag::CONTROL, 3, 9, 0, 0, 0],
            segment(flag::LAST, 11, b"ef"),
            segment(0, 2, b"echo"),
            segment(flag::FIRST, 11, b"123456"),
            segment(flag::LAST, 11, b"78"),
        ];
        for bytes in stream.concat().chunks(3) {
            inbox.feed(bytes);
        }
        let wanted = [(3, vec![]), (11, b"abcdef".to_vec()), (2, b"echo".to_vec()), (11, b"12345678".to_vec())];
        assert_eq!(all(&mut inbox).unwrap(), wanted);
        assert_eq!(inbox.waiting(), 0);
    }

    #[test]
    fn a_segmented_message_is_limited_in_its_sum() {
        let mut inbox = Inbox::new(Side::Client, 8);
        inbox.feed(&[segment(flag::FIRST, 11, b"123456"), segment(flag::MIDDLE, 11, b"789")].concat());
        assert_eq!(all(&mut inbox), Err(Fault::TooLong));
    }

    #[test]
    fn wrong_bytes_are_refused_with_the_reason() {
        let refused = |bytes: &[u8]| {
            let mut inbox = Inbox::new(Side::Client, 8);
            inbox.feed(bytes);
            all(&mut inbox)
        };
        assert_eq!(refused(b"GET / HTTP"), Err(Fault::Magic(b'G')));
        assert_eq!(refused(&[0xCA, 0, 0, 0, 0, 0, 0, 0]), Err(Fault::Version));
        assert_eq!(refused(&[0xCA, 2, 0x40, 2, 0, 0, 0, 0]), Err(Fault::Direction));
        assert_eq!(refused(&[0xCA, 2, 0, 2, 9, 0, 0, 0]), Err(Fault::TooLong));
        assert_eq!(refused(&segment(flag::LAST, 11, b"")), Err(Fault::Segment));
        let other = [segment(flag::FIRST, 11, b""), segment(flag::LAST, 10, b"")].concat();
        assert_eq!(refused(&other), Err(Fault::Segment));
        assert_eq!(refused(&[segment(flag::FIRST, 11, b""), segment(0, 11, b"")].concat()), Err(Fault::Segment));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1usize..40) {
            let mut inbox = Inbox::new(Side::Client, 64);
            for piece in bytes.chunks(piece) {
                inbox.feed(piece);
                if all(&mut inbox).is_err() {
                    break;
                }
            }
            let _ = datagram(&bytes, None).count();
        }

        #[test]
        fn a_stream_has_the_same_messages_in_any_pieces(
            sent in proptest::collection::vec((0u8..22, proptest::collection::vec(any::<u8>(), 0..20)), 0..8),
            piece in 1usize..40,
        ) {
            let stream: Vec<u8> = sent.iter().flat_map(|(command, payload)| segment(0, *command, payload)).collect();
            let mut inbox = Inbox::new(Side::Client, 64);
            let mut got = Vec::new();
            for piece in stream.chunks(piece) {
                inbox.feed(piece);
                got.extend(all(&mut inbox).unwrap());
            }
            prop_assert_eq!(got, sent);
        }
    }
}
