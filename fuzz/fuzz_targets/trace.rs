//! Kernel recordings: format files, page headers, pages, and the explanation of their events.
#![no_main]

use base::{DurNs, MonoNs};
use libfuzzer_sys::fuzz_target;
use trace::{Decoder, Explainer, Facts, Format, Merge, Symbols};

const HEADER: &str = include_str!("../../crates/measure/trace/tests/linux-6.18/header_page");
const FORMATS: &str = include_str!("../../crates/measure/trace/tests/linux-6.18/formats");

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(stored) = trace::stored::Stored::read(bytes) {
        let _ = (trace::export::perfetto(&stored), trace::export::chrome(&stored));
    }
    let _ = (Format::parse(&text), trace::Layout::parse(&text));
    let _ = Symbols::parse(&text).show(u64::MAX);
    let format = |path: &str| {
        let section = FORMATS.split("# ").find(|section| section.starts_with(&format!("{path}\n")))?;
        Some(section.to_owned())
    };
    let Ok(mut decoder) = Decoder::new(HEADER, format) else { return };
    let mut explainer = Explainer::new(Facts::default(), DurNs(0), Some(DurNs(0)), 3);
    let mut merge = Merge::default();
    for (lane, page) in bytes.chunks(4096).enumerate() {
        decoder.page(lane as u16 % 2, page, |at, event| {
            // Each thread with an event is watched, so that there are wake-ups to explain.
            event.iter().for_each(|event| explainer.watch(event.tid, "any"));
            merge.push(lane as u32, (at, lane as u16 % 2, event));
        });
    }
    merge.drain(MonoNs(u64::MAX), |item| {
        explainer.take(&item, |late| {
            assert_eq!(late.parts.iter().map(|part| part.ns).sum::<u64>(), late.delay_ns());
        });
    });
});
