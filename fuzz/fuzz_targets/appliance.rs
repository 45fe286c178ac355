//! The Archiver Appliance's interface: requests, and lines of PB files. A decoded sample survives encoding and
//! decoding.
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
        // A row whose value does not have its header's type does not survive: the header's type is written, and text
        // that is not UTF-8 is replaced.
        if info.payload != Payload::of(row.sample.datum.kind()) {
            continue;
        }
        let mut out = Vec::new();
        row.write(info, &mut out);
        let back = Row::read(&out[..out.len() - 1], info);
        // The comparison uses text, in which NaN is equal to itself.
        assert_eq!(format!("{back:?}"), format!("{:?}", Ok::<_, appliance::pb::Bad>(row)));
    }
});
