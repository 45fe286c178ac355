//! The Archiver Appliance's interface: requests, and lines of PB files. A sample that is read is written and read as the same.
#![no_main]

use appliance::pb::{Chunks, Info, Payload, Row};
use appliance::{Call, Method, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (path, query) = text.split_once('?').unwrap_or(("/retrieval/data/getData.json", &text));
    for method in [Method::Get, Method::Post] {
        if let Ok(call) = Call::read(&Request { method, path, query, body: bytes }, 1_795_240_867_000_000_000) {
            let _ = call.wants("A");
        }
    }
    let mut chunks = Chunks::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let _ = Info::read(line);
        let Ok(Some((info, row))) = chunks.line(line) else { continue };
        // What other types hold is written as another type, and texts that are no UTF-8 are replaced.
        if info.payload != Payload::of(row.sample.datum.kind()) {
            continue;
        }
        let mut out = Vec::new();
        row.write(info, &mut out);
        let back = Row::read(&out[..out.len() - 1], info);
        // By their text, in which NaN is equal to itself.
        assert_eq!(format!("{back:?}"), format!("{:?}", Ok::<_, appliance::pb::Bad>(row)));
    }
});
