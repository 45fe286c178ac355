//! An archive over HTTP, at the level of bytes.

mod suite;

use harness::Folder;
use retrieval::{ColumnsError, Retrieval, Values, Wanted, columns};
use segment::Sample;
use segment::rows::About;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use suite::{archive, ask};
use web::{Limits, Server};

/// Serves until the stream is dropped.
fn serve(folder: &Folder, is_for_all_pages: bool) -> (UnixStream, String) {
    let site = Arc::new(Retrieval::new(retrieval::folder(folder.0.clone()), is_for_all_pages));
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), vec![], Limits::default()).unwrap();
    let address = server.address().to_string();
    let (stop, stopped) = UnixStream::pair().unwrap();
    stopped.set_nonblocking(true).unwrap();
    std::thread::spawn(move || server.run(site, stopped.into()).unwrap());
    (stop, address)
}

#[test]
fn an_archive_is_served_with_the_requests_of_appliance_clients() {
    let folder = archive();
    let (_stop, address) = serve(&folder, false);
    suite::is_served_as_clients_ask_for_it(&address);
}

#[test]
fn refusals_have_a_reason_and_other_sites_are_excluded_unless_allowed() {
    let folder = archive();
    let (_stop, address) = serve(&folder, false);
    suite::refuses_what_is_not_there_changes_and_other_names(&address);
    let (_open, address) = serve(&folder, true);
    assert!(ask(&address, "GET /retrieval/bpl/getVersion").0.contains("access-control-allow-origin: *"));
}

const SECOND: i64 = 1_000_000_000;
/// 2026-12-31T23:50:00Z.
const BEGIN: i64 = 1_798_761_000 * SECOND;

/// An archive of three files with 100 samples each, at 1 Hz: a pack and two segments.
fn three_files() -> Folder {
    let folder = Folder::new();
    let files = store::Folder::make(&folder.0).unwrap();
    for life in 0..3 {
        let mut logger = store::Logger::open(files.clone(), store::Config::default(), 0).unwrap();
        let signal = logger.signal("RF:TEMP", About::default(), BEGIN).unwrap();
        for k in life * 100..(life + 1) * 100 {
            logger.push(signal, &Sample::new(BEGIN + k * SECOND, k as f64));
        }
        let open = logger.open_from();
        logger.close(0, BEGIN + (life * 100 + 99) * SECOND);
        if life == 0 {
            store::pack(&files, open, open).unwrap();
        }
    }
    folder
}

/// The archive's files with samples, oldest first.
fn files(folder: &Folder) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let has_samples = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "segment" || it == "parquet");
    let mut all: Vec<_> = all.filter(has_samples).collect();
    all.sort();
    all
}

/// The name and the function of a damage to a file.
type Harm = (&'static str, fn(&std::path::Path));

/// A flipped bit, or a missing file.
const HARMS: [Harm; 2] = [
    ("a flipped bit", |path| {
        let bytes = std::fs::read(path).unwrap();
        // A bit that samples depend on: a pack also has parts for other readers, a segment begins with its names.
        let is_damaged = |at: &usize| {
            let mut flipped = bytes.clone();
            flipped[*at] ^= 0x10;
            std::fs::write(path, flipped).unwrap();
            let archive = store::Archive::open(store::Folder::new(path.parent().unwrap())).unwrap();
            archive.samples("RF:TEMP", store::Span::ALL).unwrap().filter(Result::is_ok).count() < 300
        };
        let places = (bytes.len() / 4..bytes.len()).chain(0..bytes.len() / 4).step_by(7);
        assert!(places.into_iter().any(|at| is_damaged(&at)), "no sample depends on {}", path.display());
    }),
    ("a missing file", |path| std::fs::remove_file(path).unwrap()),
];

#[test]
fn damage_is_reported_at_its_place_in_every_format_and_in_the_head() {
    let span = "from=2026-12-31T23:50:00.000Z&to=2026-12-31T23:54:59.000Z";
    for ((what, harm), at) in HARMS.into_iter().flat_map(|harm| [0, 1, 2].map(|at| (harm, at))) {
        let folder = three_files();
        let (_stop, address) = serve(&folder, false);
        let call = |format: &str| format!("GET /retrieval/data/getData.{format}?pv=RF:TEMP&{span}");
        let whole = ask(&address, &call("json")).0;
        assert!(!whole.contains("x-tahti-damaged"), "{whole}");
        harm(&files(&folder)[at]);
        let context = format!("{what}, file {at}");
        let begin = BEGIN / SECOND + at as i64 * 100;
        for format in ["json", "qw", "csv", "txt", "raw"] {
            let (head, body) = ask(&address, &call(format));
            let body = String::from_utf8_lossy(&body).into_owned();
            assert!(head.starts_with("http/1.1 200") && head.contains("x-tahti-damaged: "), "{context}: {head}");
            assert!(body.contains("damaged"), "{context}, {format}: {body}");
            // All other samples are present.
            for k in (0..300).step_by(30).filter(|k| k / 100 != at as i64) {
                let seconds = BEGIN / SECOND + k;
                let shown = match format {
                    "json" => format!("\"secs\": {seconds}, "),
                    "qw" => format!("\"millis\": {seconds}000, "),
                    "csv" => format!("{seconds},{k}"),
                    _ => continue,
                };
                assert!(body.contains(&shown), "{context}, {format}: no {shown} in {body}");
            }
        }
        for format in ["json", "qw"] {
            let all = suite::json(&address, &call(format));
            let gaps = all[0]["gaps"].as_array().unwrap().clone();
            let damaged: Vec<_> = gaps.iter().filter(|gap| gap["cause"] == "damaged").collect();
            assert!(!damaged.is_empty(), "{context}: {all:#}");
            for gap in damaged {
                let secs = gap["secs"].as_i64().unwrap();
                assert!((begin..begin + 100).contains(&secs), "{context}, {format}: {gap}");
                assert_eq!(gap["lost"], 100, "{context}, {format}");
            }
            assert!(all[0]["data"].as_array().unwrap().len() >= 200, "{context}");
        }
    }
}

#[test]
fn damage_is_reported_by_every_post_processor_and_at_an_instant() {
    let span = "from=2026-12-31T23:50:00.000Z&to=2026-12-31T23:54:59.000Z";
    for ((what, harm), at) in HARMS.into_iter().flat_map(|harm| [0, 1, 2].map(|at| (harm, at))) {
        let folder = three_files();
        let (_stop, address) = serve(&folder, false);
        harm(&files(&folder)[at]);
        for processor in [
            "mean_60",
            "meanSample_60",
            "median_60",
            "firstSample_60",
            "lastFill_60",
            "nth_7",
            "ncount",
            "flyers_60",
            "ignoreflyers_60",
            "deadBand_5",
            "caplotbinning_60",
            "optimized_10",
            "optimLastSample_10",
        ] {
            let path = format!("GET /retrieval/data/getData.raw?pv={processor}(RF:TEMP)&{span}");
            let (head, body) = ask(&address, &path);
            assert!(head.starts_with("http/1.1 200"), "{processor}: {head}");
            let body = String::from_utf8_lossy(&body).into_owned();
            assert!(body.contains("damaged"), "{what}, file {at}, {processor}: {body:?}");
        }
        // An instant among the damaged samples: an older sample must not be returned as the newest.
        let time = ["23:50:50", "23:52:30", "23:54:10"][at];
        let path = format!("pv=RF:TEMP&from=2026-12-31T{time}Z&to=2026-12-31T{time}Z");
        let (head, body) = ask(&address, &format!("GET /retrieval/data/getData.json?{path}"));
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(head.contains("x-tahti-damaged: ") && body.contains("damaged"), "{what}, file {at}: {head} {body}");
        let path = format!("POST /retrieval/data/getDataAtTime?at=2026-12-31T{time}Z\n[\"RF:TEMP\"]");
        let head = ask(&address, &path).0;
        assert!(head.contains("x-tahti-damaged: "), "{what}, file {at}: {head}");
    }
}

#[test]
fn a_signal_whose_only_file_is_missing_is_unknown_and_the_damage_is_in_the_head() {
    let folder = three_files();
    let (_stop, address) = serve(&folder, false);
    files(&folder).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let (head, _) = ask(&address, "GET /retrieval/data/getData.json?pv=RF:TEMP");
    assert!(head.starts_with("http/1.1 404") && head.contains("x-tahti-damaged: 3 places"), "{head}");
    let (head, _) = ask(&address, "GET /retrieval/bpl/getMatchingPVs?pv=*");
    assert!(head.contains("x-tahti-damaged: 3 places"), "{head}");
}

#[test]
fn samples_are_read_as_columns_raw_or_processed_by_any_spelling_of_the_name() {
    let folder = archive();
    let open = retrieval::folder(folder.0.clone());
    let wanted = Wanted { name: "RF:TEMP", operator: None, from: Some("2026-12-31T23:50:01Z"), to: Some("1798761002") };
    for name in ["RF:TEMP", "pva://RF:TEMP", "ca://RF:TEMP.VAL"] {
        let read = columns(&open, Wanted { name, ..wanted }, 0).unwrap();
        assert_eq!(read.values, Values::Numbers(vec![0.25, 0.5]), "{name}");
        assert_eq!(read.at, [1_798_761_001_000_000_000, 1_798_761_002_000_000_000]);
    }
    let minute = Wanted { operator: Some("mean_60"), from: Some("1798761000"), to: Some("1798761059"), ..wanted };
    assert_eq!(columns(&open, minute, i64::MAX).unwrap().values, Values::Numbers(vec![29.5 / 4.0]));
    let unknown = columns(&open, Wanted { name: "NONE", ..wanted }, 0);
    assert!(matches!(unknown, Err(ColumnsError::Unknown(_))));
    assert!(matches!(columns(&open, Wanted { to: Some("1"), ..wanted }, 0), Err(ColumnsError::Order)));
}
