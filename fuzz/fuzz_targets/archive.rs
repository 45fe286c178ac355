//! Segments of the archive: blocks, rows, chunks, indices. A decoded chunk survives encoding and decoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use segment::{Chunk, block, pack, rows};

fuzz_target!(|bytes: &[u8]| {
    let _ = (rows::Head::read(bytes), pack::directory(bytes), pack::entries(bytes), pack::Trailer::read(bytes));
    rows::signals(bytes).for_each(drop);
    rows::gaps(bytes, -1).for_each(drop);
    rows::chunks(bytes).flatten().for_each(|(_, _, chunk)| drop(Chunk::decode(chunk, 7)));
    if let Ok((header, payload, _)) = block::read(bytes) {
        assert!(header.check(payload).is_ok());
    }
    if let Ok(chunk) = Chunk::decode(bytes, 0) {
        chunk.iter().for_each(drop);
        let _ = (chunk.summary(0..chunk.len()), Chunk::span(bytes, 0));
        let mut out = Vec::new();
        chunk.encode(0, &mut out);
        // Bits beyond a type's width have no meaning, so samples are compared instead of bytes. The comparison uses
        // text, in which NaN is equal to itself.
        let samples = |chunk: &Chunk| format!("{:?}", chunk.iter().collect::<Vec<_>>());
        assert_eq!(Chunk::decode(&out, 0).as_ref().map(samples), Ok(samples(&chunk)));
    }
});
