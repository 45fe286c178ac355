//! Messages from other processes: frames, lines, batches, their handling by a lane, and the bytes of a ZeroMQ client.
#![no_main]

use base::MonoNs;
use libfuzzer_sys::fuzz_target;
use msg::zmtp::{GREETING, Incoming, Peer};
use msg::{Band, Conn, Frame, Header, Lane, Limits, Lines, Reply, Request, Step, Tables, TextBuffer};
use std::sync::Arc;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::decode(bytes) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, bytes);
    }
    if let Ok(lines) = Lines::read(bytes) {
        assert!(lines.count() <= msg::BATCH_LINES_MAX);
    }
    zeromq(bytes);
    let text = String::from_utf8_lossy(bytes);
    if let Ok(request) = Request::parse(&text) {
        let wire = request.to_string();
        assert_eq!(Request::parse(&wire), Ok(request));
    }
    let limits = Limits { outstanding: 4, conns: 2, ..Limits::default() };
    let mut lane = Lane::new(limits, 0, Arc::new(Tables::default()));
    let mut line = TextBuffer::new();
    let header = Header::request(Band::DEFAULT, 1);
    if let Step::Done(_) = lane.request(MonoNs(1), Conn { slot: 0, turn: 1 }, &header, &text, bytes, &mut line) {
        assert!(Reply::parse(line.text()).is_ok());
    }
    let _ = lane.reply(MonoNs(2), Conn::SERVER, &header, &text);
});

/// Feeds a ZeroMQ peer in pieces. An odd first byte omits the greeting; its other seven bits are the size of a piece,
/// less one.
fn zeromq(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let (mut peer, mut out) = (Peer::new(usize::from(*how) << 8), Vec::new());
    if how & 1 == 0 {
        let mut hello = GREETING.to_vec();
        hello.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ");
        assert_eq!(peer.feed(&hello, &mut out), Ok(()));
        assert!(peer.is_ready());
    }
    let fed = bytes.chunks(usize::from(how >> 1) + 1).try_for_each(|piece| peer.feed(piece, &mut out));
    assert!(fed.is_ok() || fed.is_err_and(|fault| !fault.to_string().is_empty()));
    for incoming in out {
        let Incoming::Message(message) = incoming else { continue };
        // A message has at most the bytes that were fed. Its envelope ends with the empty frame before the request
        // line.
        assert!(message.frames.iter().map(Vec::len).sum::<usize>() <= bytes.len());
        if let Ok((line, _, body)) = message.request() {
            let (envelope, rest) = message.envelope();
            assert!(envelope.last().is_some_and(Vec::is_empty) && rest[0] == line.as_bytes());
            assert!(body.is_empty() || rest.last().is_some_and(|last| last == body));
        }
    }
}
