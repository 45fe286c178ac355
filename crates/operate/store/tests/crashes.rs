//! Archives after crashes, power cuts and full disks: no sample that was reported as safe is missing, none occurs twice, and
//! the logger's counts match the archive.

mod common;

use common::{all, log, logged, numbers, small};
use segment::rows::{About, Cause};
use segment::{Sample, block};
use store::{Archive, Config, Files as _, Logger, Memory, SignalId, Span, WhenFull, pack, verify};

const SAMPLES: u64 = 60;

const SECOND: i64 = 1_000_000_000;

/// Logs the number `k` at second `k`, and syncs.
fn each_second(signal: SignalId) -> impl Fn(&mut Logger<Memory>, i64) {
    move |logger, k| {
        logger.push(signal, &Sample::new(k * SECOND, k as f64));
        logger.sync(k * SECOND);
    }
}

fn damage(files: &Memory) -> usize {
    verify(files).unwrap().iter().map(|checked| checked.damage.len()).sum()
}

#[test]
fn a_segment_cut_at_any_byte_has_the_samples_of_the_blocks_before_and_no_other() {
    let whole = Memory::default();
    let mut logger = Logger::open(whole.clone(), Config::default(), 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    for k in 0..30 {
        logger.push(signal, &Sample::new(k * 1_000_000, k as f64 / 8.0));
        logger.sync(k);
    }
    let name = "0000000001.segment";
    let bytes = whole.bytes(name).unwrap();
    // Number of samples in the blocks that end at or before each byte.
    let (mut ends, mut rest, mut samples) = (vec![(0, 0)], &bytes[..], 0);
    while let Ok((header, payload, after)) = block::read(rest) {
        rest = after;
        if header.kind == block::BlockKind::Samples {
            samples += segment::rows::chunks(payload).count();
        }
        ends.push((bytes.len() - rest.len(), samples));
    }
    assert_eq!((rest.len(), samples), (0, 30));
    for len in 0..=bytes.len() {
        let cut = whole.copy();
        cut.set_bytes(name, bytes[..len].to_vec());
        let expected = ends.iter().rev().find(|(end, _)| *end <= len).unwrap().1;
        let there: Vec<f64> = (0..expected).map(|k| k as f64 / 8.0).collect();
        assert_eq!(numbers(&cut, "A"), there, "cut at byte {len}");
        assert_eq!(damage(&cut), 0, "cut at byte {len}: the rest of a crash is no damage");
    }
}

#[test]
fn a_flipped_byte_costs_its_block_and_is_reported() {
    let files = Memory::default();
    log(&files, 5);
    let name = "0000000001.segment";
    let bytes = files.bytes(name).unwrap();
    for at in 0..bytes.len() {
        let mut turned = bytes.clone();
        turned[at] ^= 0x10;
        let other = files.copy();
        other.set_bytes(name, turned);
        let checked = &verify(&other).unwrap()[0];
        assert!(!checked.damage.is_empty() || checked.tail > 0, "byte {at}");
        assert!(logged(&other).len() <= 5, "byte {at}");
    }
}

#[test]
fn a_kill_at_any_operation_keeps_all_safe_samples_once() {
    let whole = Memory::default();
    log(&whole, SAMPLES);
    for at in 1..=whole.operations() {
        let files = Memory::default();
        files.fail_from(Some(at));
        let safe = log(&files, SAMPLES).last().copied().unwrap_or(0);
        let left = files.copy();
        let there = logged(&left);
        assert!(there.len() as u64 >= safe, "operation {at}: {safe} safe, {} stored", there.len());
        assert_eq!(there[..safe as usize], (0..safe).collect::<Vec<_>>(), "operation {at}");
        // The next start continues.
        let mut logger = Logger::open(left.clone(), small(), 0).unwrap();
        let signal = logger.signal("A", About::default(), 0).unwrap();
        logger.push(signal, &Sample::new(1_000_000_000, 1e3));
        logger.sync(1);
        assert_eq!((logger.account().safe, logger.account().failures), (1, 0), "operation {at}");
        assert_eq!(numbers(&left, "A").last(), Some(&1e3), "operation {at}");
        assert_eq!(damage(&left), 0, "operation {at}");
    }
}

#[test]
fn a_power_cut_at_any_operation_keeps_all_safe_samples_once() {
    let whole = Memory::default();
    log(&whole, SAMPLES);
    for at in 1..=whole.operations() {
        let files = Memory::default();
        files.fail_from(Some(at));
        let safe = log(&files, SAMPLES).last().copied().unwrap_or(0);
        for percent in [0, 37, 100] {
            let there = logged(&files.after_power_cut(percent));
            assert!(there.len() as u64 >= safe, "operation {at}, {percent} %: {safe} safe, {} stored", there.len());
            assert_eq!(there[..safe as usize], (0..safe).collect::<Vec<_>>(), "operation {at}, {percent} %");
        }
    }
}

#[test]
fn a_kill_at_any_operation_of_packing_loses_and_duplicates_nothing() {
    let files = Memory::default();
    log(&files, SAMPLES);
    assert!(files.operations() > 0);
    let whole = files.copy();
    pack(&whole, 1, 1_000).unwrap();
    let expected = logged(&files);
    assert_eq!(expected, (0..SAMPLES).collect::<Vec<_>>());
    assert_eq!(logged(&whole), expected);
    for at in 1..=whole.operations() {
        let files = files.copy();
        files.fail_from(Some(at));
        assert!(pack(&files, 1, 1_000).is_err(), "operation {at}");
        for left in [files.copy(), files.after_power_cut(0), files.after_power_cut(50)] {
            assert_eq!(logged(&left), expected, "operation {at}");
            // The next start removes leftovers, and packing again gives the same.
            drop(Logger::open(left.clone(), small(), 0).unwrap());
            assert_eq!(logged(&left), expected, "operation {at}");
            pack(&left, 1, 1_000).unwrap();
            assert_eq!((logged(&left), damage(&left)), (expected.clone(), 0), "operation {at}");
        }
    }
}

#[test]
fn a_full_disk_during_packing_changes_nothing() {
    let files = Memory::default();
    log(&files, SAMPLES);
    let (before, expected) = (files.list().unwrap(), logged(&files));
    {
        for room in (0..4_000).step_by(97) {
            let files = files.copy();
            files.set_room(Some(room));
            let packed = pack(&files, 1, 1_000);
            files.set_room(None);
            assert_eq!((logged(&files), damage(&files)), (expected.clone(), 0), "{room} bytes");
            if packed.is_err() {
                assert_eq!(files.list().unwrap(), before, "{room} bytes");
            }
        }
    }
}

#[test]
fn a_truncated_or_altered_pack_gives_no_wrong_sample_and_is_reported() {
    {
        let files = Memory::default();
        let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
        let signal = logger.signal("A", About::default(), 0).unwrap();
        for k in 0..40 {
            logger.push(signal, &Sample::new(k * 1_000_000, k as f64 / 8.0));
        }
        logger.close(0, 1);
        let packed = pack(&files, 1, 1).unwrap();
        let bytes = files.bytes(&packed.name).unwrap();
        let expected: Vec<f64> = (0..40).map(|k| f64::from(k) / 8.0).collect();
        let there = |bytes: Vec<u8>| {
            let other = files.copy();
            other.set_bytes(&packed.name, bytes);
            let archive = Archive::open(other.clone()).unwrap();
            // Unreadable samples are reported and skipped.
            let found = archive
                .samples("A", Span::ALL)
                .map(|found| found.flatten().filter_map(|one| one.datum.to_f64()).collect());
            (found.unwrap_or_else(|_| Vec::new()), damage(&other))
        };
        assert_eq!(there(bytes.clone()), (expected.clone(), 0));
        for at in 0..bytes.len() {
            let mut turned = bytes.clone();
            turned[at] ^= 0x10;
            for (what, bytes) in [("turned", turned), ("cut", bytes[..at].to_vec())] {
                let (found, damage) = there(bytes);
                assert!(damage > 0, "{what} at byte {at}");
                assert!(found.is_empty() || found == expected, "{what} at byte {at}: {found:?}");
            }
        }
    }
}

#[test]
fn samples_of_a_failed_sync_are_counted_as_unsure_and_a_new_segment_begins() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    logger.push(signal, &Sample::new(1, 1.0));
    files.fail_sync(true);
    logger.sync(1);
    assert_eq!((logger.account().safe, logger.account().unsure, logger.account().failures), (0, 1, 1));
    files.fail_sync(false);
    logger.push(signal, &Sample::new(2, 2.0));
    logger.sync(2);
    assert_eq!((logger.account().safe, logger.account().unsure), (1, 1));
    assert_eq!(numbers(&files, "A"), [1.0, 2.0]);
    assert_eq!(verify(&files).unwrap().len(), 2);
}

#[test]
fn samples_that_a_failing_disk_confirmed_and_dropped_are_counted_as_lost() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    let (second, log) = (SECOND, each_second(signal));
    log(&mut logger, 1);
    let (name, len) = files.list().unwrap().into_iter().find(|(name, _)| name.ends_with(".segment")).unwrap();
    log(&mut logger, 2);
    assert_eq!(logger.account().safe, 2);
    files.fail_from(Some(0));
    log(&mut logger, 3);
    files.fail_from(None);
    files.cut(&name, len).unwrap();
    log(&mut logger, 10);
    let account = logger.account();
    assert_eq!((account.taken, account.safe, account.lost, account.unsure), (4, 2, 2, 0));
    drop(logger);
    assert_eq!(numbers(&files, "A"), [1.0, 10.0]);
    assert_eq!(damage(&files), 0);
    let gaps = Archive::open(files.clone()).unwrap().gaps("A", Span::ALL);
    let lost = gaps.iter().find(|gap| gap.cause == Cause::DiskFailed).map(|gap| (gap.at / second, gap.lost));
    assert_eq!(lost, Some((2, 2)), "{gaps:?}");
}

#[test]
fn gaps_and_descriptions_that_a_failing_disk_confirmed_and_dropped_are_written_again() {
    let files = Memory::default();
    let config = Config { when_full: WhenFull::Stop, ..Config::default() };
    let mut logger = Logger::open(files.clone(), config, 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    let log = each_second(signal);
    log(&mut logger, 1);
    files.set_room(Some(0));
    log(&mut logger, 2);
    files.set_room(None);
    let names = || files.list().unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let before = names();
    // This batch has the gap of sample 2, another gap, and two changes of the unit.
    logger.gap(Some(signal), 3 * SECOND, Cause::Disconnected, 0);
    for (second, units) in [(4, "V"), (5, "mV")] {
        logger.signal("A", About { units: units.into(), ..About::default() }, second * SECOND).unwrap();
    }
    log(&mut logger, 6);
    let dropped = names().into_iter().find(|name| !before.contains(name)).unwrap();
    files.fail_from(Some(0));
    log(&mut logger, 7);
    files.fail_from(None);
    files.cut(&dropped, 0).unwrap();
    log(&mut logger, 10);
    let account = logger.account();
    assert_eq!((account.taken, account.safe, account.lost, account.unsure), (5, 2, 3, 0));
    drop(logger);
    assert_eq!((numbers(&files, "A"), damage(&files)), (vec![1.0, 10.0], 0));
    let archive = Archive::open(files).unwrap();
    let gaps: Vec<_> = archive.gaps("A", Span::ALL).iter().map(|gap| (gap.at / SECOND, gap.cause, gap.lost)).collect();
    assert_eq!(gaps, [(2, Cause::DiskFull, 1), (3, Cause::Disconnected, 0), (6, Cause::DiskFailed, 2)]);
    let units: Vec<String> = archive.rows("A").into_iter().map(|row| row.about.units).collect();
    assert_eq!(units, ["", "V", "mV"]);
}

#[test]
fn a_confirmed_segment_that_was_packed_before_the_disk_failed_is_not_lost() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let log = each_second(logger.signal("A", About::default(), 0).unwrap());
    log(&mut logger, 1);
    let (name, _) = files.list().unwrap().into_iter().find(|(name, _)| name.ends_with(".segment")).unwrap();
    files.fail_from(Some(0));
    log(&mut logger, 2);
    files.fail_from(None);
    files.remove(&name).unwrap();
    log(&mut logger, 10);
    assert_eq!((logger.account().safe, logger.account().lost), (2, 1));
}

#[test]
fn a_failed_sync_keeps_the_gap_of_samples_lost_before() {
    let files = Memory::default();
    let config = Config { when_full: WhenFull::Stop, ..Config::default() };
    let mut logger = Logger::open(files.clone(), config, 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    let (second, log) = (SECOND, each_second(signal));
    log(&mut logger, 1);
    files.set_room(Some(0));
    (2..12).for_each(|k| log(&mut logger, k));
    files.set_room(None);
    files.fail_sync(true);
    logger.gap(Some(signal), 12 * second + 1, Cause::Disconnected, 0);
    logger.signal("A", About { units: "V".into(), ..About::default() }, 12 * second).unwrap();
    log(&mut logger, 12);
    assert!(logger.is_losing(), "the disk does not confirm");
    files.fail_sync(false);
    log(&mut logger, 13);
    assert!(!logger.is_losing());
    let account = logger.account();
    assert_eq!((account.taken, account.safe, account.lost, account.unsure), (13, 2, 10, 1));
    for percent in [0, 50, 100] {
        let left = files.after_power_cut(percent);
        let archive = Archive::open(left.clone()).unwrap();
        let gaps = archive.gaps("A", Span::ALL);
        let lost = |cause| gaps.iter().rfind(|gap| gap.cause == cause).map(|gap| (gap.at / second, gap.lost));
        assert_eq!(lost(Cause::DiskFull), Some((2, 10)), "{percent} %: {gaps:?}");
        assert_eq!(lost(Cause::Unsure), Some((12, 1)), "{percent} %: {gaps:?}");
        assert_eq!(lost(Cause::Disconnected), Some((12, 0)), "{percent} %: {gaps:?}");
        let units: Vec<String> = archive.rows("A").into_iter().map(|row| row.about.units).collect();
        assert_eq!(units, ["", "V"], "{percent} %");
        let there = numbers(&left, "A");
        assert!(there == [1.0, 13.0] || there == [1.0, 12.0, 13.0], "{percent} %: {there:?}");
    }
}

#[test]
fn unconfirmed_samples_are_noted_as_a_gap_although_no_sample_follows() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), Config::default(), 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    files.fail_sync(true);
    logger.push(signal, &Sample::new(7, 1.0));
    logger.sync(0);
    files.fail_sync(false);
    logger.sync(10_000_000_000);
    let gaps = Archive::open(files.after_power_cut(0)).unwrap().gaps("A", Span::ALL);
    assert_eq!(gaps.iter().map(|gap| (gap.at, gap.cause, gap.lost)).collect::<Vec<_>>(), [(7, Cause::Unsure, 1)]);
}

#[test]
fn a_sync_that_finds_no_space_is_treated_as_a_full_disk() {
    for when_full in [WhenFull::Stop, WhenFull::RemoveOldest] {
        let files = Memory::default();
        let mut logger = Logger::open(files.clone(), Config { when_full, ..small() }, 0).unwrap();
        let signal = logger.signal("A", About::default(), 0).unwrap();
        let second = 1_000_000_000;
        let log = |logger: &mut Logger<Memory>, k: i64| {
            logger.push(signal, &Sample::new(k * second, k as f64));
            logger.sync(k * second / 10);
        };
        (0..60).for_each(|k| log(&mut logger, k));
        files.fail_sync_by(Some(std::io::ErrorKind::StorageFull));
        log(&mut logger, 60);
        files.fail_sync(false);
        // Within one second after the failure, a full disk is not tried again.
        log(&mut logger, 61);
        log(&mut logger, 90);
        let account = logger.account();
        let is_stopped = when_full == WhenFull::Stop;
        assert_eq!((account.unsure, account.lost), (1, u64::from(is_stopped)), "{when_full:?}: {account:?}");
        assert_eq!(account.removed, u64::from(!is_stopped), "{when_full:?}");
        let gaps = Archive::open(files.after_power_cut(0)).unwrap().gaps("A", Span::ALL);
        let lost: u64 = gaps.iter().filter(|gap| gap.cause == Cause::DiskFull).map(|gap| gap.lost).sum();
        assert_eq!(lost, account.unsure + account.lost, "{gaps:?}");
    }
}

#[test]
fn on_a_full_disk_each_sample_is_safe_or_counted_in_a_gap() {
    for room in 0..3_000 {
        let files = Memory::default();
        let config = Config { when_full: WhenFull::Stop, ..small() };
        let mut logger = Logger::open(files.clone(), config, 0).unwrap();
        let signal = logger.signal("A", About::default(), 0).unwrap();
        files.set_room(Some(room));
        let second = 1_000_000_000;
        for k in 0..20 {
            logger.push(signal, &Sample::new(k * second, k as f64));
            logger.sync(k * second);
            if room % 16 == 0 || k == 19 {
                assert_eq!(damage(&files), 0, "{room} bytes, sample {k}: a full disk is no damage");
            }
        }
        files.set_room(None);
        logger.push(signal, &Sample::new(20 * second, 20.0));
        logger.sync(20 * second);
        let account = logger.account();
        assert_eq!(account.taken, account.safe + account.lost + account.unsure, "{room} bytes: {account:?}");
        assert_eq!(numbers(&files, "A").len() as u64, account.safe, "{room} bytes: {account:?}");
        assert_eq!(damage(&files), 0, "{room} bytes");
        let gaps = Archive::open(files.clone()).unwrap().gaps("A", Span::ALL);
        let lost: u64 = gaps.iter().filter(|gap| gap.cause == Cause::DiskFull).map(|gap| gap.lost).sum();
        assert_eq!(lost, account.lost, "{room} bytes: {gaps:?}");
    }
}

#[test]
fn on_a_full_disk_the_oldest_files_are_deleted_if_configured() {
    let files = Memory::default();
    let mut logger = Logger::open(files.clone(), small(), 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    files.set_room(Some(4_000));
    for k in 0..300 {
        logger.push(signal, &Sample::new(k * 1_000_000, k as f64));
        logger.sync(k);
    }
    let account = logger.account();
    assert!(account.removed > 5, "{account:?}");
    assert_eq!((account.lost, account.unsure, account.safe), (0, 0, 300), "{account:?}");
    let there = numbers(&files, "A");
    let first = 300 - there.len();
    assert_eq!(there, (first..300).map(|k| k as f64).collect::<Vec<_>>());
    assert!(there.len() > 20, "{}", there.len());
    assert_eq!(damage(&files), 0);
}

#[test]
fn the_total_size_of_all_files_is_bounded() {
    let files = Memory::default();
    let config = Config { total_max: Some(base::Size(5_000)), ..small() };
    let mut logger = Logger::open(files.clone(), config, 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    for k in 0..300 {
        logger.push(signal, &Sample::new(k * 1_000_000, k as f64));
        logger.sync(k);
        let total: usize = verify(&files).unwrap().iter().map(|checked| checked.bytes as usize).sum();
        assert!(total <= 5_200, "{total}");
    }
    assert!(logger.account().removed > 0);
}

#[test]
fn a_second_logger_is_refused_until_the_first_ends() {
    let files = Memory::default();
    let first = Logger::open(files.clone(), small(), 0).unwrap();
    assert!(matches!(Logger::open(files.clone(), small(), 0), Err(store::StoreError::Taken)));
    drop(first);
    assert!(Logger::open(files, small(), 0).is_ok());
}

#[test]
fn a_sample_repeated_after_a_restart_is_not_stored_twice() {
    let files = Memory::default();
    for start in 0..3 {
        let mut logger = Logger::open(files.clone(), small(), 0).unwrap();
        let signal = logger.signal("A", About::default(), 0).unwrap();
        logger.push(signal, &Sample::new(5, 2.5));
        logger.sync(start);
        assert_eq!(logger.account().repeated, u64::from(start > 0));
    }
    assert_eq!(all(&files, "A").len(), 1);
}
