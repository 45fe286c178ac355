//! Files and folders that another program changes while the logger runs: the logger reports it, counts what is lost, and continues
//! in a new segment.

mod common;

use common::numbers;
use segment::Sample;
use segment::rows::About;
use store::{Account, Archive, Config, Files, Folder, Logger, Memory, Span, verify};

const FIRST: &str = "0000000001.segment";

/// Logs the numbers of a range, with a sync after each.
fn log<F: Files>(logger: &mut Logger<F>, range: std::ops::Range<i64>) {
    let signal = logger.signal("A", About::default(), 0).unwrap();
    for k in range {
        logger.push(signal, &Sample::new(k, k as f64));
        logger.sync(k);
    }
}

/// A logger with the samples 0 to 9.
fn logger<F: Files>(files: &F) -> Logger<F> {
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    log(&mut logger, 0..10);
    logger
}

/// Logs the samples 10 to 19 and checks that they are in the archive, that each of the others is there or counted, and that the
/// damage is reported.
fn continues<F: Files>(logger: &mut Logger<F>, files: &F, about: &str) -> Account {
    logger.sync(10);
    let why = logger.last_error().unwrap_or_else(|| panic!("{about}: no error"));
    assert!(why.contains("another program"), "{about}: {why}");
    log(logger, 10..20);
    let account = logger.account();
    let there = numbers(files, "A");
    assert_eq!((there.len() as u64, account.unsure), (account.safe, 0), "{about}: {there:?}");
    assert_eq!(account.safe + account.lost, 20, "{about}");
    assert_eq!(there[there.len() - 10..], (10..20).map(f64::from).collect::<Vec<_>>(), "{about}");
    let damaged: usize = verify(files).unwrap().iter().map(|checked| checked.damage.len()).sum();
    assert_eq!(damaged > 0, account.lost > 0, "{about}: {} lost", account.lost);
    account
}

#[test]
fn a_segment_that_another_program_shortens_is_abandoned_and_its_samples_are_counted_as_lost() {
    let whole = Memory::default();
    logger(&whole);
    let len = whole.bytes(FIRST).unwrap().len() as u64;
    for cut in 0..len {
        let files = Memory::default();
        let mut logger = logger(&files);
        files.cut(FIRST, cut).unwrap();
        let account = continues(&mut logger, &files, &format!("cut at byte {cut}"));
        assert!(account.lost > 0 && (cut > 0 || account.lost == 10), "cut at byte {cut}: {} lost", account.lost);
    }
}

#[test]
fn a_segment_that_another_program_removes_replaces_or_extends_is_abandoned() {
    let files = Memory::default();
    let mut first = logger(&files);
    files.remove(FIRST).unwrap();
    assert_eq!(continues(&mut first, &files, "removed").lost, 10);
    let files = Memory::default();
    let mut first = logger(&files);
    files.set_bytes(FIRST, files.bytes(FIRST).unwrap());
    assert_eq!(continues(&mut first, &files, "replaced by a copy").lost, 0);
    let files = Memory::default();
    let mut first = logger(&files);
    let mut open = files.open(FIRST).unwrap();
    files.append(&mut open, b"of another program").unwrap();
    assert_eq!(continues(&mut first, &files, "extended").lost, 0);
}

#[test]
fn a_segment_that_another_program_shortens_during_a_sync_is_found_by_the_next_one() {
    let files = Memory::default();
    let mut logger = logger(&files);
    // The next block then follows the hole.
    files.cut(FIRST, 100).unwrap();
    let mut open = files.open(FIRST).unwrap();
    files.append(&mut open, &[0; 70]).unwrap();
    continues(&mut logger, &files, "shortened and extended");
}

#[test]
fn if_another_program_exchanges_the_folder_the_logger_continues_in_the_one_at_its_path() {
    let place = std::env::temp_dir().join(format!("tahti-store-changed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    let (data, aside) = (place.join("data"), place.join("aside"));
    let files = Folder::make(&data).unwrap();
    let mut logger = logger(&files);
    let copy = |count: usize| {
        std::fs::rename(&data, &aside).unwrap();
        std::fs::create_dir(&data).unwrap();
        for entry in std::fs::read_dir(&aside).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let bytes = if path.ends_with(FIRST) { &bytes[..bytes.len() - count] } else { &bytes };
            std::fs::write(data.join(path.file_name().unwrap()), bytes).unwrap();
        }
    };
    // The copy has no end of the last block.
    copy(1);
    let account = continues(&mut logger, &files, "exchanged");
    assert_eq!(account.lost, 1);
    let old = Archive::open(Folder::new(&aside)).unwrap();
    assert_eq!(old.samples("A", Span::ALL).unwrap().count(), 10, "nothing follows in the other folder");
    // While the folder is away, samples are lost and counted.
    std::fs::rename(&data, place.join("away")).unwrap();
    let signal = logger.find("A").unwrap();
    logger.push(signal, &Sample::new(20, 20.0));
    logger.sync(2_000_000_000);
    assert_eq!(logger.account().lost, 2);
    std::fs::rename(place.join("away"), &data).unwrap();
    logger.push(signal, &Sample::new(21, 21.0));
    logger.sync(4_000_000_000);
    assert_eq!((logger.account().lost, logger.account().safe), (2, 20));
    assert_eq!(numbers(&files, "A").last(), Some(&21.0));
    // If the logger ends while the folder is away, the samples of its last segment are no longer called safe.
    std::fs::rename(&data, place.join("away")).unwrap();
    let account = logger.close(6_000_000_000, 22);
    assert_eq!((account.lost, account.safe, account.unsure), (2, 19, 1));
    std::fs::remove_dir_all(&place).unwrap();
}
