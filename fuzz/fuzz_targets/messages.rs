//! Messages from outside: frames, lines, batches, and what a lane does with them.
#![no_main]

use base::MonoNs;
use libfuzzer_sys::fuzz_target;
use msg::{Band, Conn, Frame, Header, Lane, Limits, Line, Lines, Reply, Request, Step, Tables};
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
    let text = String::from_utf8_lossy(bytes);
    if let Ok(request) = Request::parse(&text) {
        let wire = request.to_string();
        assert_eq!(Request::parse(&wire), Ok(request));
    }
    let limits = Limits { outstanding: 4, conns: 2, ..Limits::default() };
    let mut lane = Lane::new(limits, Arc::new(Tables::default()));
    let mut line = Line::new();
    let header = Header::request(Band::DEFAULT, 1);
    if let Step::Done(_) = lane.request(MonoNs(1), Conn { slot: 0, turn: 1 }, &header, &text, bytes, &mut line) {
        assert!(Reply::parse(line.text()).is_ok());
    }
    let _ = lane.reply(Conn::SERVER, &header, &text);
});
