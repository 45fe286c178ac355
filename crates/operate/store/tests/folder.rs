//! The archive in a folder of the file system, read while it is written.

mod common;

use segment::Sample;
use segment::rows::About;
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Archive, Config, Folder, Form, Logger, Span, due, pack};

/// A folder that is removed at the end.
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
fn who_reads_while_it_is_written_and_packed_sees_a_beginning_of_it_that_only_grows() {
    Form::ALL.into_iter().for_each(read_while_written);
}

fn read_while_written(form: Form) {
    const SAMPLES: i64 = 20_000;
    let place = Place::new(&format!("reads-{form:?}"));
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
                if let Some((first, last)) = due(&folder, logger.open_from(), form, false).unwrap() {
                    pack(&folder, first, last, form).unwrap();
                }
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
