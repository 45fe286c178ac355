//! Detection of damage: `verify` finds any damage of an archive's files, and reading returns all samples or reports it.

mod common;

use common::small;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use store::{
    Archive, Config, Files as _, Follow, Logger, Memory, Position, Span, due, pack, unpacked, verify, verify_while,
};

/// Pseudo-random numbers, the same in each run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Number of cases: 300 by default, `TAHTI_PROOF_CASES=10000` for all.
fn cases() -> usize {
    std::env::var("TAHTI_PROOF_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// An archive with packs of both forms and segments, all closed. `first` is the first value, so that archives differ.
fn whole(first: u64) -> Memory {
    let files = Memory::default();
    for life in 0..4u64 {
        let mut logger = Logger::open(files.clone(), small(), 0).unwrap();
        let ids = ["A", "B"].map(|name| logger.signal(name, About::default(), 0).unwrap());
        for k in 0..60 {
            let k = life * 60 + k;
            let datum: Datum = ((first + k * k) as f64 / 8.0).into();
            logger.push(ids[k as usize % 2], &Sample::new(k as i64 * 1_000_000, datum));
            if k % 5 == 4 {
                logger.sync(k as i64);
            }
        }
        let open = logger.open_from();
        logger.close(0, (life * 60 + 59) as i64 * 1_000_000 + 1);
        let first = (0..open).find(|first| files.bytes(&format!("{first:010}.segment")).is_some());
        if let Some(first) = first.filter(|_| life < 2) {
            pack(&files, first, open).unwrap();
        }
    }
    files
}

/// The samples that are read, and whether damage is reported: by a message, or by a gap in place of missing samples.
fn read(files: &Memory) -> Option<(Vec<String>, bool)> {
    let archive = Archive::open(files.clone()).ok()?;
    let (mut found, mut is_reported) = (Vec::new(), false);
    for name in ["A", "B"] {
        for sample in archive.samples(name, Span::ALL).ok()? {
            match sample {
                Ok(sample) => found.push(format!("{name} {sample:?}")),
                Err(_) => is_reported = true,
            }
        }
    }
    is_reported |= !archive.problems(Span::ALL).is_empty();
    Some((found, is_reported))
}

/// The number of samples from following the log, and whether damage is reported.
fn follow(files: &Memory) -> Option<(usize, bool)> {
    let mut follow = Follow::new(files.clone(), Position::default());
    let (mut count, mut is_reported) = (0, false);
    while let Some(window) = follow.window(Position::END, Some(1 << 20)).ok()? {
        count += window.chunks.iter().map(|logged| logged.chunk().map_or(0, |chunk| chunk.len())).sum::<usize>();
        is_reported |= window.gaps.iter().any(|(_, _, gap)| gap.cause == Cause::Damaged);
    }
    Some((count, is_reported))
}

/// Undetected damage.
#[derive(Debug, Default, PartialEq, Eq)]
struct Unnoticed {
    by_verify: Vec<String>,
    by_reading: Vec<String>,
    by_following: Vec<String>,
}

impl Unnoticed {
    fn look(&mut self, what: &str, files: &Memory, expected: &[String]) {
        let is_good = |checked: &store::Checked| checked.damage.is_empty() && checked.tail == 0;
        if verify(files).is_ok_and(|all| all.iter().all(is_good)) {
            self.by_verify.push(what.to_owned());
        }
        // An error on opening counts as detected.
        if read(files).is_some_and(|(found, is_reported)| found != expected && !is_reported) {
            self.by_reading.push(what.to_owned());
        }
        if follow(files).is_some_and(|(count, is_reported)| count != expected.len() && !is_reported) {
            self.by_following.push(what.to_owned());
        }
    }
}

/// The files of an archive.
fn names(files: &Memory) -> Vec<String> {
    files.list().unwrap().into_iter().map(|(name, _)| name).filter(|name| name != "lock").collect()
}

#[test]
fn verification_reports_its_progress_and_can_be_stopped_at_any_place() {
    let files = whole(0);
    let mut shares = Vec::new();
    let (all, is_whole) = verify_while(&files, |share| {
        shares.push(share);
        true
    })
    .unwrap();
    assert!(is_whole && all == verify(&files).unwrap());
    assert!(shares.is_sorted() && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert!(shares.len() > all.len() && *shares.last().unwrap() > 0.9, "{shares:?}");
    for stop in 0..shares.len() {
        let mut calls = 0;
        let (some, is_whole) = verify_while(&files, |_| {
            calls += 1;
            calls <= stop
        })
        .unwrap();
        assert!(!is_whole && calls == stop + 1, "{stop}");
        assert!(some.len() < all.len() && some[..] == all[..some.len()], "{stop}: only whole files");
    }
}

#[test]
fn unpacked_bytes_are_those_of_segments() {
    let files = whole(0);
    let segments = |(name, len): (String, u64)| name.ends_with(".segment").then_some(len);
    let segments: u64 = files.list().unwrap().into_iter().filter_map(segments).sum();
    assert!(segments > 0);
    assert_eq!(unpacked(&files, u64::MAX).unwrap(), segments);
}

#[test]
fn an_intact_archive_has_no_damage() {
    let files = whole(0);
    let checked = verify(&files).unwrap();
    assert!(checked.iter().all(|one| one.damage.is_empty() && one.tail == 0), "{checked:?}");
    assert!(names(&files).iter().any(|name| name.ends_with(store::PACK)));
    assert!(names(&files).iter().any(|name| name.ends_with(".parquet")));
    assert!(names(&files).iter().filter(|name| name.ends_with(".segment")).count() >= 4, "{:?}", names(&files));
    let (found, is_reported) = read(&files).unwrap();
    assert_eq!((found.len(), is_reported), (240, false));
    assert_eq!(follow(&files).unwrap(), (240, false));
    assert_eq!(Archive::open(files).unwrap().names().len(), 2);
}

#[test]
fn flipped_bits_are_found_by_verify_and_never_change_results_silently() {
    let files = whole(0);
    let expected = read(&files).unwrap().0;
    let names = names(&files);
    let (mut chance, mut unnoticed) = (Chance(0x9E37_79B9_7F4A_7C15), Unnoticed::default());
    for _ in 0..cases() {
        let name = &names[chance.below(names.len())];
        let mut bytes = files.bytes(name).unwrap();
        let bit = chance.below(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let other = files.copy();
        other.set_bytes(name, bytes);
        unnoticed.look(&format!("{name}, bit {bit}"), &other, &expected);
    }
    assert_eq!(unnoticed, Unnoticed::default());
}

#[test]
fn cuts_swaps_removals_copies_and_foreign_files_are_found_by_verify_and_by_reading() {
    let (files, foreign) = (whole(0), whole(7));
    let expected = read(&files).unwrap().0;
    let names = names(&files);
    let (mut chance, mut unnoticed) = (Chance(0xD1B5_4A32_D192_ED03), Unnoticed::default());
    for case in 0..(cases() / 10).max(100) {
        let name = &names[chance.below(names.len())];
        let bytes = files.bytes(name).unwrap();
        let (other, len) = (files.copy(), chance.below(bytes.len()));
        let what = match case % 6 {
            0 => {
                other.set_bytes(name, bytes[..len].to_vec());
                format!("{name} cut at byte {len}")
            }
            1 => {
                other.remove(name).unwrap();
                format!("{name} removed")
            }
            2 => {
                let second = &names[chance.below(names.len())];
                if second == name {
                    continue;
                }
                other.set_bytes(name, files.bytes(second).unwrap());
                other.set_bytes(second, bytes);
                format!("{name} and {second} swapped")
            }
            3 => {
                // The copy has the next number.
                let last = names.iter().filter(|name| name.ends_with(".segment")).max().unwrap();
                let number: u64 = last.trim_end_matches(".segment").parse().unwrap();
                let copy = format!("{:010}.segment", number + 1);
                other.set_bytes(&copy, bytes);
                format!("{name} copied to {copy}")
            }
            4 => {
                let Some(theirs) = foreign.bytes(name) else { continue };
                other.set_bytes(name, theirs);
                format!("{name} of another archive")
            }
            _ => {
                other.set_bytes(name, [bytes[..len].to_vec(), vec![0; bytes.len() - len]].concat());
                if other.bytes(name) == files.bytes(name) {
                    continue;
                }
                format!("{name} zeros from byte {len} on")
            }
        };
        unnoticed.look(&what, &other, &expected);
    }
    assert_eq!(unnoticed, Unnoticed::default());
}

#[test]
fn a_cut_at_each_block_of_the_manifest_is_found() {
    let files = whole(0);
    let expected = read(&files).unwrap().0;
    let bytes = files.bytes("manifest").unwrap();
    let (mut rest, mut unnoticed) = (&bytes[..], Unnoticed::default());
    while let Ok((_, _, after)) = segment::block::read(rest) {
        let len = bytes.len() - rest.len();
        let other = files.copy();
        other.set_bytes("manifest", bytes[..len].to_vec());
        unnoticed.look(&format!("cut at byte {len}"), &other, &expected);
        rest = after;
    }
    assert_eq!(unnoticed, Unnoticed::default());
}

#[test]
fn damage_is_a_gap_at_its_time_with_the_number_of_missing_samples() {
    let files = whole(0);
    let removed = names(&files).into_iter().filter(|name| name.ends_with(".segment")).nth(1).unwrap();
    let before: Vec<i64> = {
        let archive = Archive::open(files.clone()).unwrap();
        archive.samples("A", Span::ALL).unwrap().map(|sample| sample.unwrap().at).collect()
    };
    files.remove(&removed).unwrap();
    let archive = Archive::open(files.clone()).unwrap();
    let after: Vec<i64> = archive.samples("A", Span::ALL).unwrap().map(|sample| sample.unwrap().at).collect();
    let first_missing = *before.iter().find(|at| !after.contains(at)).unwrap();
    let gaps = archive.gaps("A", Span::ALL);
    let damaged: Vec<_> = gaps.iter().filter(|gap| gap.cause == Cause::Damaged).collect();
    assert_eq!(damaged.len(), 1, "{gaps:?}");
    assert!((damaged[0].at - first_missing).abs() <= 1_000_000, "{damaged:?}, {first_missing}");
    assert!(damaged[0].lost >= (before.len() - after.len()) as u64, "{damaged:?}");
    let elsewhere = Span { from: 0, to: 1_000_000 };
    assert_eq!(archive.problems(elsewhere), [], "a span in which no sample is missing");
    let problem = archive.problems(Span::ALL).remove(0);
    assert_eq!(problem.name, removed);
    assert!(problem.to_string().contains("the file is missing"), "{problem}");
}

#[test]
fn neighbours_of_a_damaged_segment_are_packed_without_it() {
    {
        let files = Memory::default();
        common::log(&files, 200);
        drop(Logger::open(files.clone(), small(), 0).unwrap());
        let segments =
            || -> Vec<String> { names(&files).into_iter().filter(|name| name.ends_with(".segment")).collect() };
        let all = segments();
        let damaged = &all[all.len() / 2];
        let mut bytes = files.bytes(damaged).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        files.set_bytes(damaged, bytes);
        let expected = read(&files).unwrap().0;
        let mut refused = 0;
        while let Some((first, last)) = due(&files, 1_000, true).unwrap() {
            match pack(&files, first, last) {
                Ok(_) => {}
                Err(store::StoreError::Damaged { name, .. }) => {
                    assert_eq!(&name, damaged);
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
            assert!(refused < 2, "there is no second attempt");
        }
        assert_eq!(segments(), std::slice::from_ref(damaged));
        assert_eq!(read(&files).unwrap(), (expected, true));
    }
}

#[test]
fn no_archive_file_is_deleted_when_another_user_fills_the_disk() {
    let files = Memory::default();
    files.set_room(Some(200_000));
    let mut logger = Logger::open(files.clone(), small(), 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    let second = 1_000_000_000;
    let log = |logger: &mut Logger<Memory>, k: i64| {
        logger.push(signal, &Sample::new(k * second, k as f64));
        logger.sync(k * second);
    };
    (0..100).for_each(|k| log(&mut logger, k));
    files.set_room(Some(0));
    (100..200).for_each(|k| log(&mut logger, k));
    let account = logger.account();
    assert_eq!((account.removed, account.safe + account.lost), (0, 200), "{account:?}");
    assert!(account.lost > 90 && account.failures > 0 && logger.is_losing(), "{account:?}");
    assert!(
        logger.last_error().unwrap().contains("failed to make room: other files have taken"),
        "{:?}",
        logger.last_error()
    );
    files.set_room(Some(200_000));
    log(&mut logger, 201);
    assert!(!logger.is_losing());
    let gaps = Archive::open(files).unwrap().gaps("A", Span::ALL);
    assert_eq!(gaps.iter().filter(|gap| gap.cause == Cause::DiskFull).map(|gap| gap.lost).sum::<u64>(), account.lost);
}

#[test]
fn files_of_other_programs_in_the_folder_are_no_growth_of_the_archive() {
    let files = Memory::default();
    files.set_room(Some(200_000));
    let config = Config { total_max: Some(base::Size(100_000)), ..small() };
    let mut logger = Logger::open(files.clone(), config, 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    let second = 1_000_000_000;
    let log = |logger: &mut Logger<Memory>, k: i64| {
        logger.push(signal, &Sample::new(k * second, k as f64));
        logger.sync(k * second);
    };
    (0..100).for_each(|k| log(&mut logger, k));
    files.set_bytes("data", vec![0; 180_000]);
    (100..110).for_each(|k| log(&mut logger, k));
    assert_eq!(logger.account().removed, 0, "total_max limits the archive only");
    files.set_bytes("more data", vec![0; 10_000]);
    files.set_room(Some(0));
    (110..200).for_each(|k| log(&mut logger, k));
    let account = logger.account();
    assert_eq!((account.removed, account.safe + account.lost), (0, 200), "{account:?}");
    assert!(
        logger.last_error().unwrap().contains("failed to make room: other files have taken"),
        "{:?}",
        logger.last_error()
    );
}

#[test]
fn a_start_repairs_a_torn_end_and_missing_files_stay_reported() {
    let files = Memory::default();
    common::log(&files, 100);
    let segments: Vec<String> = names(&files).into_iter().filter(|name| name.ends_with(".segment")).collect();
    // The last segment is still open: its end may be torn.
    let last = segments.last().unwrap();
    let bytes = files.bytes(last).unwrap();
    files.set_bytes(last, bytes[..bytes.len() - 3].to_vec());
    assert!(verify(&files).unwrap().iter().all(|one| one.damage.is_empty()));
    drop(Logger::open(files.clone(), small(), 0).unwrap());
    assert!(verify(&files).unwrap().iter().all(|one| one.damage.is_empty()));
    // From now on, none of the complete bytes may be missing.
    files.set_bytes(last, bytes[..40].to_vec());
    assert!(verify(&files).unwrap().iter().any(|one| !one.damage.is_empty()));
    files.set_bytes(last, bytes[..bytes.len() - 3].to_vec());
    files.remove(&segments[1]).unwrap();
    for _ in 0..2 {
        drop(Logger::open(files.clone(), small(), 0).unwrap());
        let named = verify(&files).unwrap().into_iter().find(|one| one.name == segments[1]).unwrap();
        assert!(named.damage[0].why.contains("the file is missing"), "{named:?}");
    }
}

#[test]
fn a_missing_manifest_is_rebuilt_and_reported_by_the_next_start() {
    let files = whole(0);
    let expected = read(&files).unwrap().0;
    files.remove("manifest").unwrap();
    assert_eq!(read(&files).unwrap(), (expected.clone(), true));
    let logger = Logger::open(files.clone(), small(), 0).unwrap();
    assert!(logger.last_error().unwrap().contains("was written again"), "{:?}", logger.last_error());
    assert_eq!(logger.account().failures, 1);
    assert_eq!(read(&files).unwrap(), (expected, false));
    assert!(verify(&files).unwrap().iter().all(|one| one.damage.is_empty()));
}
