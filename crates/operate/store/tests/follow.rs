//! Following a log while it is written, and reading portions again.

mod common;

use proptest::prelude::*;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::collections::HashSet;
use store::{Config, Files, Follow, Logger, Mark, Memory, Position, Window, due, pack};

/// Samples and gaps of windows: name, number, and the sample as text.
fn taken(windows: &[Window]) -> Vec<(String, i64, String)> {
    let mut all = Vec::new();
    for window in windows {
        for logged in &window.chunks {
            let chunk = logged.chunk().unwrap();
            let samples = (logged.number..).zip(chunk.iter());
            all.extend(samples.map(|(number, sample)| (logged.name.to_string(), number, format!("{sample:?}"))));
        }
    }
    all
}

/// All windows up to a limit.
fn windows<F: Files>(files: &F, from: Position, limit: Position, portion: u64) -> Vec<Window> {
    let mut follow = Follow::new(files.clone(), from);
    std::iter::from_fn(|| follow.window(limit, Some(portion)).unwrap()).collect()
}

/// Logs `A` and `B` alternating into small segments; returns the open logger.
fn logged(files: &Memory, count: i64) -> Logger<Memory> {
    let mut logger = Logger::open(files.clone(), common::small(), 0).unwrap();
    let ids = ["A", "B"].map(|name| logger.signal(name, About::default(), 0).unwrap());
    for k in 0..count {
        logger.push(ids[k as usize % 2], &Sample::new(k * 1_000_000, k as f64 / 8.0));
        if k % 5 == 4 {
            logger.sync(k);
        }
    }
    logger
}

/// Logs on with a limit of the archive's size.
fn limited(logger: Logger<Memory>, files: &Memory) -> Logger<Memory> {
    drop(logger);
    let config = Config { total_max: Some(base::Size(3_000)), ..common::small() };
    let mut logger = Logger::open(files.clone(), config, 0).unwrap();
    let id = logger.signal("A", About::default(), 0).unwrap();
    for k in 100..300 {
        logger.push(id, &Sample::new(k * 1_000_000, k as f64 / 8.0));
        logger.sync(k);
    }
    logger
}

#[test]
fn each_sample_is_read_once_in_order_for_any_portion_size() {
    let files = Memory::default();
    let logger = logged(&files, 200);
    let whole = taken(&windows(&files, Position::default(), logger.safe_to(), u64::MAX));
    assert_eq!(whole.len(), 200);
    let numbers: HashSet<i64> = whole.iter().map(|(_, number, _)| *number).collect();
    assert_eq!(numbers.len(), 200, "no number is used twice");
    for portion in [1, 100, 1_000] {
        let mut follow = Follow::new(files.clone(), Position::default());
        let mut again = Vec::new();
        while let Some(window) = follow.window(logger.safe_to(), Some(portion)).unwrap() {
            // Read the window again from its beginning to its end, as after a crash.
            let twice = Follow::new(files.clone(), window.from).window(window.to, None).unwrap().unwrap();
            assert_eq!((twice.to, twice.number), (window.to, window.number));
            assert_eq!(taken(&[twice]), taken(std::slice::from_ref(&window)));
            again.push(window);
        }
        assert_eq!(taken(&again), whole, "portions of {portion} bytes");
    }
}

#[test]
fn samples_that_are_not_yet_safe_are_not_followed() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let id = logger.signal("A", About::default(), 0).unwrap();
    assert!(windows(&files, Position::default(), logger.safe_to(), 1).is_empty());
    logger.push(id, &Sample::new(1, 1.0));
    assert!(windows(&files, Position::default(), logger.safe_to(), 1).is_empty());
    files.fail_sync(true);
    logger.sync(1);
    files.fail_sync(false);
    let first = windows(&files, Position::default(), logger.safe_to(), u64::MAX);
    assert_eq!(
        taken(&first).len(),
        1,
        "unsure samples are read after the end of their segment: {:?}",
        logger.account()
    );
    logger.push(id, &Sample::new(2, 2.0));
    logger.gap(Some(id), 3, Cause::Disconnected, 0);
    logger.sync(2_000_000_000);
    let from = first.last().unwrap().to;
    let next = windows(&files, from, logger.safe_to(), u64::MAX);
    assert_eq!(taken(&next).len(), 1);
    let (number, name, gap) = next[0].gaps[0].clone();
    assert_eq!((name.as_deref(), gap.at, gap.cause), (Some("A"), 3, Cause::Disconnected));
    assert!(number >= next[0].number);
}

#[test]
fn segments_after_a_mark_are_not_packed_and_packs_are_followed_too() {
    let files = Memory::default();
    let logger = logged(&files, 200);
    let whole: HashSet<_> = taken(&windows(&files, Position::default(), logger.safe_to(), u64::MAX))
        .into_iter()
        .map(|(name, _, sample)| (name, sample))
        .collect();
    let mark =
        Mark { log: 7, done: Position { segment: 3, offset: 100 }, planned: Position { segment: 3, offset: 200 } };
    mark.write(&files, "elsewhere").unwrap();
    assert_eq!(Mark::read(&files, "elsewhere").unwrap(), Some(mark));
    assert_eq!(due(&files, logger.open_from(), true).unwrap(), Some((1, 2)));
    pack(&files, 1, 2).unwrap();
    assert_eq!(due(&files, logger.open_from(), true).unwrap(), None);
    let all = taken(&windows(&files, Position::default(), logger.safe_to(), u64::MAX));
    assert_eq!(all.len(), 200);
    // Also from each position at which a reader may stop, with the same numbers.
    let portions = windows(&files, Position::default(), logger.safe_to(), 1);
    assert_eq!(taken(&portions), all);
    for (index, portion) in portions.iter().enumerate() {
        let rest = windows(&files, portion.from, logger.safe_to(), u64::MAX);
        assert_eq!(taken(&rest), taken(&portions[index..]), "from {:?}", portion.from);
    }
    assert_eq!(all.into_iter().map(|(name, _, sample)| (name, sample)).collect::<HashSet<_>>(), whole);
    files.set_bytes("elsewhere.mark", b"log 7 done".to_vec());
    let error = Mark::read(&files, "elsewhere").unwrap_err().to_string();
    assert!(error.contains("elsewhere.mark") && error.contains("expected `log NUMBER"), "{error}");
    assert!(due(&files, logger.open_from(), true).is_err(), "no file is packed without a known position");
}

#[test]
fn segments_removed_before_they_were_read_are_counted() {
    let files = Memory::default();
    let logger = logged(&files, 200);
    let first = windows(&files, Position::default(), logger.safe_to(), u64::MAX).remove(0);
    for segment in 1..=4 {
        files.remove(&format!("{segment:010}.segment")).unwrap();
    }
    let rest = windows(&files, first.to, logger.safe_to(), u64::MAX);
    assert_eq!((first.to.segment, rest[0].missed, rest.iter().map(|window| window.missed).sum::<u64>()), (2, 3, 3));
    assert!(store::behind(&files, first.to, logger.safe_to()).unwrap() > 0);
    assert_eq!(store::behind(&files, logger.safe_to(), logger.safe_to()).unwrap(), 0);
}

#[test]
fn a_segment_that_is_removed_before_an_upload_has_sent_it_is_counted_and_named_at_once() {
    for (done, is_sent) in [(Position::END, true), (Position { segment: 1, offset: 100 }, false)] {
        let files = Memory::default();
        let mut logger = logged(&files, 50);
        Mark { log: 7, done, planned: done }.write(&files, "elsewhere").unwrap();
        logger = limited(logger, &files);
        let account = logger.account();
        let (unsent, named) = (account.unsent, logger.last_unsent().map(str::to_owned));
        assert!(account.removed > 2, "{account:?}");
        let last = (!is_sent).then(|| format!("{:010}.segment", account.removed));
        assert_eq!((unsent, named), (if is_sent { 0 } else { account.removed }, last));
    }
}

#[test]
fn an_upload_that_has_sent_nothing_yet_counts_segments_that_were_removed_since_it_began() {
    let files = Memory::default();
    let logger = logged(&files, 200);
    files.remove("0000000001.segment").unwrap();
    let begin = store::begin(&files).unwrap();
    assert_eq!(begin, Position { segment: 2, offset: 0 });
    files.remove("0000000002.segment").unwrap();
    files.remove("0000000003.segment").unwrap();
    let windows = windows(&files, begin, logger.safe_to(), u64::MAX);
    assert_eq!(windows.iter().map(|window| window.missed).sum::<u64>(), 2);
    assert_eq!(store::begin(&Memory::default()).unwrap(), Position { segment: 1, offset: 0 });
}

proptest! {
    #[test]
    fn a_reader_returns_the_samples_of_the_archive(values in prop::collection::vec(any::<i16>(), 1..200)) {
        let files = Memory::default();
        let mut logger = Logger::open(files.clone(), common::small(), 0).unwrap();
        let id = logger.signal("A", About::default(), 0).unwrap();
        for (at, value) in (0..).zip(&values) {
            let datum: Datum = f64::from(*value).into();
            logger.push(id, &Sample::new(at, datum));
        }
        logger.sync(0);
        let archive = store::Archive::open(files).unwrap();
        let reader: &dyn store::Reader = &archive;
        let found = reader.samples("A", store::Span::ALL).unwrap().filter_map(|sample| sample.unwrap().datum.to_f64());
        prop_assert_eq!(found.collect::<Vec<_>>(), values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>());
        prop_assert_eq!(reader.matching("?").unwrap(), ["A"]);
        prop_assert_eq!(reader.about("A").unwrap().unwrap().count as usize, values.len());
    }
}
