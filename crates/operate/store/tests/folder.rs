//! The archive in a folder of the file system, read while it is written.

mod common;

use segment::Sample;
use segment::rows::About;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Archive, Config, Folder, Logger, Span, due, pack};

/// A folder that is removed on drop.
struct Place(std::path::PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tahti-store-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_reader_during_writes_and_packing_sees_a_growing_prefix() {
    const SAMPLES: i64 = 20_000;
    let place = Place::new("reads");
    let folder = Folder::make(&place.0).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen, mut looks) = (0, 0);
            while !done.load(Ordering::Acquire) || looks == 0 {
                let archive = Archive::open(folder.clone()).unwrap();
                let found: Vec<i64> =
                    archive.samples("A", Span::ALL).unwrap().map(|sample| sample.unwrap().at).collect();
                assert_eq!(found, (0..found.len() as i64).collect::<Vec<_>>());
                assert!(found.len() >= seen, "{} after {seen}", found.len());
                seen = found.len();
                looks += 1;
            }
        });
        let config = Config { segment_size: base::Size(4_000), ..Config::default() };
        let mut logger = Logger::open(folder.clone(), config, 0).unwrap();
        let signal = logger.signal("A", About::default(), 0).unwrap();
        for k in 0..SAMPLES {
            logger.push(signal, &Sample::new(k, (k as f64).sqrt()));
            if k % 100 == 99 {
                logger.sync(k);
                if let Some((first, last)) = due(&folder, logger.open_from(), false).unwrap() {
                    pack(&folder, first, last).unwrap();
                }
                assert_eq!(logger.missing().unwrap(), Vec::<String>::new());
            }
        }
        assert_eq!(logger.account().safe, SAMPLES as u64);
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    assert_eq!(common::numbers(&folder, "A").len() as i64, SAMPLES);
}

#[test]
fn a_second_process_cannot_write() {
    let place = Place::new("lock");
    let folder = Folder::make(&place.0).unwrap();
    let first = Logger::open(folder.clone(), Config::default(), 0).unwrap();
    assert!(matches!(Logger::open(folder.clone(), Config::default(), 0), Err(store::StoreError::Taken)));
    drop(first);
    assert!(Logger::open(folder, Config::default(), 0).is_ok());
}

/// The number of samples of a signal in a folder.
fn count(folder: &Folder) -> usize {
    Archive::open(folder.clone()).unwrap().samples("A", Span::ALL).unwrap().filter(Result::is_ok).count()
}

fn log(folder: &Folder, from: i64) {
    let mut logger = Logger::open(folder.clone(), Config::default(), 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    (from..from + 10).for_each(|k| assert_eq!(logger.push(signal, &Sample::new(k, k as f64)), store::Pushed::Taken));
    logger.close(0, 100);
}

#[test]
fn foreign_files_in_the_folder_are_ignored_and_kept() {
    let place = Place::new("others");
    let folder = Folder::make(&place.0).unwrap();
    log(&folder, 0);
    let at = |name: &str| place.0.join(name);
    let first = at("0000000001.segment");
    for name in [
        "1.segment",
        "+1.segment",
        "00000000001.segment",
        "0000000005-0000000003.parquet",
        "18446744073709551615.segment",
    ] {
        std::fs::copy(&first, at(name)).unwrap();
    }
    std::fs::write(at("notes.unfinished"), "mine").unwrap();
    std::os::unix::fs::symlink(&first, at("0000000002.segment")).unwrap();
    std::fs::create_dir(at("0000000003.segment")).unwrap();
    assert_eq!(count(&folder), 10, "no sample is duplicated");
    // Numbers that other files use are skipped.
    log(&folder, 10);
    log(&folder, 20);
    assert_eq!(count(&folder), 30);
    let open_from = 100;
    let (from, to) = due(&folder, open_from, true).unwrap().unwrap();
    pack(&folder, from, to).unwrap();
    assert_eq!(count(&folder), 30);
    assert!(at("1.segment").exists() && at("notes.unfinished").exists() && at("0000000002.segment").is_symlink());
    assert!(store::verify(&folder).unwrap().iter().all(|file| file.damage.is_empty()));
}

#[test]
fn a_folder_of_another_version_is_refused_and_not_changed() {
    let place = Place::new("version");
    let folder = Folder::make(&place.0).unwrap();
    log(&folder, 0);
    let path = place.0.join("0000000001.segment");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5] += 1;
    let sum = segment::parquet::sum(0, &bytes[..36]);
    bytes[36..40].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let told = |error: Option<store::StoreError>| {
        let text = error.unwrap().to_string();
        assert!(text.contains("0000000001.segment") && text.contains("written by another version of tahti"), "{text}");
    };
    told(Archive::open(folder.clone()).err());
    told(Logger::open(folder.clone(), Config::default(), 0).err());
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "and it is not changed");
}

#[test]
fn files_removed_by_another_program_are_reported_while_the_logger_runs() {
    let place = Place::new("removed");
    let folder = Folder::make(&place.0).unwrap();
    let config = Config { segment_size: base::Size(1), ..Config::default() };
    let mut logger = Logger::open(folder, config, 0).unwrap();
    let signal = logger.signal("A", About::default(), 0).unwrap();
    for k in 0..3 {
        logger.push(signal, &Sample::new(k, k as f64));
        logger.sync(k);
    }
    assert_eq!(logger.missing().unwrap(), Vec::<String>::new());
    let mut segments: Vec<String> = std::fs::read_dir(&place.0)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".segment"))
        .collect();
    segments.sort();
    std::fs::remove_file(place.0.join(&segments[1])).unwrap();
    assert_eq!(logger.missing().unwrap(), [segments[1].clone()]);
    logger.push(signal, &Sample::new(3, 3.0));
    logger.sync(3);
    assert_eq!(logger.missing().unwrap(), [segments[1].clone()]);
}
