//! Arbitrary contents of a sampling ring, maps of a process, object files, and folded stacks of other tools.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::{Files, Profile, Source};
use std::io::Cursor;
use trace::Symbols;

/// Every object file has the same bytes.
struct Same(Vec<u8>);

impl Files for Same {
    fn open(&mut self, _pid: i32, _path: &str, _file: (u32, u32, u64)) -> Option<Box<dyn Source>> {
        Some(Box::new(Cursor::new(self.0.clone())))
    }

    fn debug(&mut self, _build_id: &[u8]) -> Option<Box<dyn Source>> {
        Some(Box::new(Cursor::new(self.0.clone())))
    }

    fn made(&mut self, _pid: i32) -> Option<String> {
        Some(String::from_utf8_lossy(&self.0).into_owned())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let (ring, object) = bytes.split_at(bytes.len() * usize::from(kind >> 1) / 128);
    let mut files = Same(object.to_vec());
    let mut profile = Profile::new(Symbols::default(), kind & 1 == 0);
    profile.maps(1, "1000-9000 r-xp 00000000 00:01 5 /program\n", &mut files);
    profile.maps(1, &String::from_utf8_lossy(ring), &mut files);
    profile.take(ring);
    profile.advance(u64::MAX / 2, &mut files);
    let found = profile.found(&mut files);
    let counted: u64 = found.stacks.iter().map(|stack| stack.samples).sum();
    assert!(counted <= found.samples && counted + found.merged >= found.samples);
    let _ = (found.rows(None), found.by_thread(), found.coverage());
    let _ = report::flame("any", &found.folded());
    let _ = report::flame("any", &String::from_utf8_lossy(object));
});
