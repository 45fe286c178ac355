//! Helpers for tests of the archive.
#![allow(dead_code, reason = "each test uses a part of it")]

use segment::rows::About;
use segment::{Datum, Sample};
use store::{Archive, Config, Files, Logger, Memory, Span};

/// A configuration that closes segments often.
pub(crate) fn small() -> Config {
    Config { segment_size: base::Size(600), ..Config::default() }
}

/// All samples of a signal as text, so that NaN equals itself.
pub(crate) fn all<F: Files>(files: &F, name: &str) -> Vec<String> {
    found(files, name, Span::ALL)
}

/// The samples of a signal in a span, as text.
pub(crate) fn found<F: Files>(files: &F, name: &str, span: Span) -> Vec<String> {
    let archive = Archive::open(files.clone()).unwrap();
    archive.samples(name, span).unwrap().map(|sample| format!("{:?}", sample.unwrap())).collect()
}

/// The values of a signal with numbers.
pub(crate) fn numbers<F: Files>(files: &F, name: &str) -> Vec<f64> {
    let archive = Archive::open(files.clone()).unwrap();
    archive.samples(name, Span::ALL).unwrap().map(|sample| sample.unwrap().datum.to_f64().unwrap()).collect()
}

/// Logs `A` (even numbers) and `B` (odd numbers) alternating, and syncs after each 5. Returns the safe samples after each sync.
pub(crate) fn log(files: &Memory, count: u64) -> Vec<u64> {
    let Ok(mut logger) = Logger::open(files.clone(), small(), 0) else { return vec![0] };
    let ids = ["A", "B"].map(|name| logger.signal(name, About::default(), 0));
    let [Ok(a), Ok(b)] = ids else { return vec![0] };
    let mut safe = vec![];
    for k in 0..count {
        let datum: Datum = (k as f64 / 8.0).into();
        logger.push(if k % 2 == 0 { a } else { b }, &Sample::new(k as i64 * 1_000_000, datum));
        if k % 5 == 4 {
            // The clock advances, so that a failed write is tried again.
            logger.sync(k as i64 * 1_000_000_000);
            safe.push(logger.account().safe);
        }
    }
    safe
}

/// The samples of `A` and `B` in the order of [`log`]. Panics if one occurs twice or is not from there.
pub(crate) fn logged(files: &Memory) -> Vec<u64> {
    let mut taken: Vec<u64> = Vec::new();
    for (name, odd) in [("A", 0), ("B", 1)] {
        let values: Vec<u64> = numbers(files, name).into_iter().map(|value| (value * 8.0) as u64).collect();
        assert!(values.is_sorted_by(|one, next| one < next), "{name}: {values:?}");
        assert!(values.iter().all(|value| value % 2 == odd), "{name}: {values:?}");
        taken.extend(values);
    }
    taken.sort_unstable();
    taken
}
