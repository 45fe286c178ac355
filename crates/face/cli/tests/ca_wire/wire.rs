//! A hand-made circuit, and the parts of its messages that are compared.

use crate::DATABASE;
use ca::Dbr;
use ca::wire::{self, Header, HeaderParse, MINOR, command};
use harness::ioc::Ioc;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// A hand-made circuit, and the messages received on it.
pub(crate) struct Wire {
    stream: TcpStream,
    port: u16,
    input: Vec<u8>,
    /// The server's channel numbers, in the order of creation.
    pub(crate) sids: Vec<u32>,
    /// Received messages, as text.
    pub(crate) seen: Vec<String>,
    /// The end of the circuit has been noted.
    ended: bool,
    /// Bytes collected for a single send.
    held: Option<Vec<u8>>,
}

impl Wire {
    /// A connection on which nothing has been sent.
    pub(crate) fn bare(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(harness::PATIENCE)).unwrap();
        Self { stream, port, input: Vec::new(), sids: Vec::new(), seen: Vec::new(), ended: false, held: None }
    }

    /// A circuit of a client with the current protocol version.
    pub(crate) fn open(port: u16) -> Self {
        let mut wire = Self::bare(port);
        wire.say(command::VERSION, 0, MINOR.into(), 0, 0, b"");
        wire.say(command::CLIENT_NAME, 0, 0, 0, 0, b"somebody\0");
        wire.say(command::HOST_NAME, 0, 0, 0, 0, b"somewhere\0");
        wire.take(1);
        wire
    }

    /// Sends a message with its payload padded to a multiple of 8 bytes.
    pub(crate) fn say(&mut self, command: u16, kind: u16, count: u32, p1: u32, p2: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        let size = wire::padded(payload.len());
        Header { command, size: size as u32, kind, count, p1, p2 }.write(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len() + size - payload.len(), 0);
        self.raw(&bytes);
    }

    /// Sends bytes. A server that has closed the circuit is noticed when its answers are read.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        match &mut self.held {
            Some(held) => held.extend_from_slice(bytes),
            None => drop(self.stream.write_all(bytes)),
        }
    }

    /// Sends messages in one piece, so that no time passes between them.
    pub(crate) fn together(&mut self, say: impl FnOnce(&mut Self)) {
        self.held = Some(Vec::new());
        say(self);
        let bytes = self.held.take().unwrap_or_default();
        self.raw(&bytes);
    }

    /// Creates a channel and reads both answers.
    pub(crate) fn create(&mut self, name: &str, cid: u32) -> u32 {
        self.say(command::CREATE_CHAN, 0, 0, cid, MINOR.into(), format!("{name}\0").as_bytes());
        self.take(2);
        *self.sids.last().unwrap_or_else(|| panic!("no channel {name}: {:?}", self.seen))
    }

    pub(crate) fn subscribe(&mut self, sid: u32, kind: u16, count: u32, id: u32, mask: u16) {
        let mut payload = [0; 16];
        payload[12..14].copy_from_slice(&mask.to_be_bytes());
        self.say(command::EVENT_ADD, kind, count, sid, id, &payload);
    }

    /// Reads `count` messages.
    pub(crate) fn take(&mut self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    /// Reads all messages up to the answer to an echo. A closed circuit is noted.
    pub(crate) fn settle(&mut self) {
        self.say(command::ECHO, 7, 7, 7, 7, b"");
        while let Some(header) = self.next() {
            if header.command == command::ECHO && header.kind == 7 {
                return;
            }
        }
    }

    /// Waits for one message and records it.
    fn next(&mut self) -> Option<Header> {
        let (header, payload) = self.received()?;
        let line = self.shown(&header, payload);
        self.seen.push(line);
        Some(header)
    }

    /// Waits for one message.
    pub(crate) fn message(&mut self) -> (Header, Vec<u8>) {
        self.received().unwrap_or_else(|| panic!("the server sends no further message: {:?}", self.seen.last()))
    }

    fn received(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            if let HeaderParse::Header(header, head) = Header::read(&self.input)
                && self.input.len() >= head + header.size as usize
            {
                let payload = self.input[head..head + header.size as usize].to_vec();
                self.input.drain(..head + payload.len());
                return Some((header, payload));
            }
            let mut buffer = [0; 65_536];
            let end = match self.stream.read(&mut buffer) {
                Ok(len @ 1..) => {
                    self.input.extend_from_slice(&buffer[..len]);
                    continue;
                }
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    "silence"
                }
                Ok(_) | Err(_) => "the end",
            };
            if !self.ended {
                self.seen.push(end.into());
                self.ended = true;
            }
            return None;
        }
    }

    /// A message as text, without the values that a server may choose.
    fn shown(&mut self, header: &Header, mut payload: Vec<u8>) -> String {
        if header.command == command::CREATE_CHAN {
            self.sids.push(header.p2);
        }
        let sid = |number: u32, sids: &[u32]| match sids.iter().position(|sid| *sid == number) {
            Some(place) => format!("channel {place}"),
            None => format!("{number:#x}"),
        };
        let (mut p1, mut p2) = (format!("{:#x}", header.p1), format!("{:#x}", header.p2));
        match header.command {
            command::CREATE_CHAN => p2 = sid(header.p2, &self.sids),
            command::CLEAR_CHANNEL => p1 = sid(header.p1, &self.sids),
            command::EVENT_ADD if payload.is_empty() => p1 = sid(header.p1, &self.sids),
            command::ERROR => return format!("error {p1} {p2} {}", complaint(&payload)),
            _ => {}
        }
        if matches!(header.command, command::READ | command::READ_NOTIFY | command::EVENT_ADD) {
            clean(header, &mut payload);
        }
        let kind = if header.command == command::SEARCH && header.kind == self.port { 0 } else { header.kind };
        format!("{} kind {kind} count {} {p1} {p2} {}", header.command, header.count, hex(&payload))
    }
}

/// Clears meaningless bytes of a value: stamps, gaps, and all bytes after the ends of texts and of the value.
pub(crate) fn clean(header: &Header, payload: &mut [u8]) {
    let gap = match header.kind {
        11 => 4..5,
        13 => 4..8,
        15 | 17 => 4..14,
        18 => 4..15,
        20 => 4..16,
        14..=20 => 4..12,
        23 | 27 | 30 | 34 => 6..8,
        25 => 18..19,
        32 => 20..21,
        _ => 0..0,
    };
    if let Some(dbr) = Dbr::from_wire(header.kind) {
        payload.get_mut(dbr.size(header.count)..).unwrap_or_default().fill(0);
    }
    payload.get_mut(gap).unwrap_or_default().fill(0);
    let texts = match header.kind {
        0 | 38 => 0,
        7 | 21 | 28 => 4,
        14 => 12,
        37 => 8,
        _ => return,
    };
    for text in payload.get_mut(texts..).unwrap_or_default().chunks_mut(40) {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        text[end..].fill(0);
    }
}

/// The request that an error message is about, and the error's text.
fn complaint(payload: &[u8]) -> String {
    let HeaderParse::Header(request, head) = Header::read(payload) else { return "a fragment".into() };
    let text = String::from_utf8_lossy(wire::text_of(&payload[head..])).into_owned();
    // C prints the line of its source, we print the number.
    let text = if text.starts_with("Bad Resource ID") { "Bad Resource ID" } else { &text };
    format!("of {} kind {} count {}: {text}", request.command, request.kind, request.count)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = format!("{}:", bytes.len());
    for chunk in bytes.chunks(8) {
        out.push(' ');
        chunk.iter().for_each(|byte| write!(out, "{byte:02x}").unwrap());
    }
    out
}

/// A case's name and its messages.
pub(crate) type Case = (&'static str, fn(&mut Wire));

/// Runs each case with both servers, on separate circuits, and compares the answers.
pub(crate) fn compare(cases: &[Case], open: fn(u16) -> Wire) {
    let servers = [Ioc::serving(false, DATABASE), Ioc::serving(true, DATABASE)];
    let mut different = String::new();
    for (name, case) in cases {
        let [theirs, ours] = servers.each_ref().map(|server| {
            let mut wire = open(server.port);
            case(&mut wire);
            wire.seen
        });
        assert!(!theirs.is_empty(), "{name}: no answer");
        if theirs != ours {
            writeln!(different, "{name}:").unwrap();
            for place in 0..theirs.len().max(ours.len()) {
                let [c, t] = [&theirs, &ours].map(|lines| lines.get(place).map_or("-", String::as_str));
                if c != t {
                    writeln!(different, "  message {place}\n    C     {c}\n    tahti {t}").unwrap();
                }
            }
        }
    }
    assert!(different.is_empty(), "answers differ:\n{different}");
}
