//! Channel Access from both sides: arbitrary bytes, and sequences of almost valid messages. Nothing panics, and the
//! buffers of a circuit stay within their limits.
#![no_main]

use base::{Alarm, Annotation, DurNs, EventMask, MonoNs, Stamp, Value};
use ca::client::{Address, Client, ClientConfig};
use ca::encode::{Needs, Reading};
use ca::repeater::Repeater;
use ca::search::{self, SearchCounters};
use ca::server::{Access, Backend, Get, Limits, Opened, Peer, Post, PutOutcome, Server, Token, Write};
use ca::wire::{Header, padded};
use ca::{Basic, Dbr, Eca};
use libfuzzer_sys::fuzz_target;

/// Two values, one of them an array. A write with notification completes later: [`serve`] completes one after each
/// chunk.
struct Values {
    values: [Value; 2],
    later: Vec<Token>,
}

impl Backend for Values {
    fn exists(&mut self, name: &[u8]) -> bool {
        matches!(name, b"a" | b"b")
    }
    fn open(&mut self, name: &[u8], _: Peer<'_>) -> Option<Opened> {
        let index = match name {
            b"a" => 0,
            b"b" => 1,
            _ => return None,
        };
        let value = &self.values[index];
        Some(Opened {
            handle: index as u64,
            watch: index as u64,
            native: Basic::native_of(value.kind()),
            count: value.len() as u32,
            access: Access { read: true, write: true },
            posted: index == 0,
            lane: 0,
        })
    }
    fn access(&mut self, _: u64, _: Peer<'_>) -> Access {
        Access { read: true, write: true }
    }
    fn record_name(&self, _: u64) -> &str {
        "record"
    }
    fn close(&mut self, _: u64) {}
    fn read(&mut self, handle: u64, _: Needs, reading: &mut Reading, _: Option<Token>) -> Result<Get, Eca> {
        reading.value = self.values[handle as usize].clone();
        Ok(Get::Done)
    }
    fn write(&mut self, _: u64, _: Peer<'_>, _: Write, token: Token, notify: bool) -> PutOutcome {
        if notify {
            self.later.push(token);
            return PutOutcome::Later;
        }
        PutOutcome::Done
    }
    fn forget(&mut self, token: Token) {
        self.later.retain(|later| *later != token);
    }
    fn watch(&mut self, _: u64) -> bool {
        true
    }
    fn unwatch(&mut self, _: u64) {}
}

/// Converts bytes to messages with consistent sizes: six bytes for the header (the sixth is the payload's length), then
/// the payload.
fn messages(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [command, kind, count, p1, p2, len, rest @ ..] = bytes {
        let len = usize::from(*len).min(rest.len());
        let size = padded(len) as u32;
        let small = |byte: u8| u32::from(byte % 8);
        Header {
            command: u16::from(command % 30),
            size,
            kind: u16::from(kind % 41),
            count: small(*count),
            p1: small(*p1),
            p2: small(*p2),
        }
        .write(&mut out);
        out.extend_from_slice(&rest[..len]);
        out.resize(out.len() + size as usize - len, 0);
        bytes = &rest[len..];
    }
    out
}

fn serve(bytes: &[u8], raw: bool) {
    let mut values = Values { values: [Value::from(1.5), Value::from(vec![1i16, 2, 3])], later: Vec::new() };
    let limits = Limits { out_bytes: 4096, message_bytes: 1 << 16, ..Limits::default() };
    let mut server = Server::new(limits);
    let id = server.accept("fuzz");
    let mut start = Vec::new();
    Header::bare(0, 0, 13, 0, 0).write(&mut start);
    for name in [b"a\0", b"b\0"] {
        Header { command: 18, size: 8, kind: 0, count: 0, p1: 1, p2: 13 }.write(&mut start);
        start.extend_from_slice(name);
        start.extend_from_slice(&[0; 6]);
    }
    if !raw {
        server.handle_bytes(MonoNs(0), id, &start, &mut values);
    }
    let sent = if raw { bytes.to_vec() } else { messages(bytes) };
    let mut now = MonoNs(0);
    for chunk in sent.chunks(97) {
        now = now + DurNs::from_secs(20);
        server.handle_bytes(now, id, chunk, &mut values);
        let post = Post {
            watch: 0,
            mask: EventMask::VALUE,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            note: Annotation::default(),
            value: Value::from(2.5),
        };
        server.post(&post, &mut values);
        server.handle_timeout(now, &mut values);
        // A single answer may exceed the limit by its length, which is limited too.
        assert!(server.output(id).len() < (1 << 16) * 3, "{} bytes wait", server.output(id).len());
        if let Some(token) = values.later.pop() {
            server.put_done(now, token, true, &mut values);
        }
        if chunk[0].is_multiple_of(2) {
            server.sent(now, id, server.output(id).len(), &mut values);
        }
    }
    server.close(id, &mut values);
}

fn ask(bytes: &[u8], raw: bool) {
    let mut client = Client::new(ClientConfig::default());
    let server = Address { ip: 0x7F00_0001, port: 5064 };
    let channel = client.channel(MonoNs(0), "a", 0);
    let _ = client.poll_datagram(MonoNs(0));
    client.subscribe(channel, Dbr::plain(Basic::Double), 0, EventMask::VALUE);
    let mut found = Vec::new();
    Header { command: 6, size: 8, kind: 5064, count: 0, p1: u32::MAX, p2: channel.0 }.write(&mut found);
    found.extend_from_slice(&[0, 13, 0, 0, 0, 0, 0, 0]);
    client.handle_datagram(MonoNs(0), server, &found);
    client.handle_datagram(MonoNs(0), server, bytes);
    let Some((circuit, _)) = client.poll_connect() else { return };
    client.connected_to(MonoNs(0), circuit);
    let mut made = Vec::new();
    Header::bare(18, 6, 1, channel.0, 7).write(&mut made);
    client.handle_bytes(MonoNs(0), circuit, &made);
    let _ = client.read(channel, Dbr::plain(Basic::Double), 0);
    let _ = client.write(channel, &Value::from(1.0), true);
    let sent = if raw { bytes.to_vec() } else { messages(bytes) };
    for chunk in sent.chunks(61) {
        client.handle_bytes(MonoNs(1), circuit, chunk);
        client.handle_timeout(MonoNs(1));
        while client.poll_event().is_some() {}
    }
    client.closed(MonoNs(2), circuit);
}

fuzz_target!(|bytes: &[u8]| {
    for raw in [true, false] {
        serve(bytes, raw);
        ask(bytes, raw);
    }
    let mut counters = SearchCounters::default();
    let server = Address { ip: 0, port: 5064 };
    search::answer(bytes, server, &mut counters, |name| name == b"a", |out| assert!(out.len() <= 65_536));
    Repeater::default().handle(bytes, 7, true, 1);
});
