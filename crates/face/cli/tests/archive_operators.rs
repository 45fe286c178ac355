//! Aggregating operators, under all their names: the same results from segments, from packs of both forms, on the
//! command line and over HTTP. The test `cluster` of the crate `cassandra` compares a real cluster's reader with the
//! folder's.

use harness::process::Running;
use harness::{Folder, http, tahti};
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use serde_json::Value;
use std::process::Output;
use store::{Config, Logger};

const SECOND: i64 = 1_000_000_000;
/// 2026-11-23T12:00:00Z.
const NOON: i64 = 1_795_435_200 * SECOND;

const OPERATORS: [&str; 33] = [
    "raw",
    "mean_60",
    "min_60",
    "max_60",
    "count_60",
    "std_60",
    "variance_60",
    "popvariance_60",
    "median_60",
    "kurtosis_60",
    "skewness_60",
    "jitter_60",
    "linear_60",
    "loess_60",
    "errorbar_60",
    "stats_60",
    "meanSample_60",
    "stdSample_300",
    "statsSample_300",
    "firstSample_60",
    "lastSample_60",
    "firstFill_60",
    "lastFill_60",
    "nth_7",
    "ncount",
    "flyers_300_1",
    "ignoreflyers_300_1",
    "deadBand_2",
    "caplotbinning_60",
    "optimized_20",
    "optimizedSample_20",
    "optimLastSample_20",
    "optimized_100000",
];

/// Twenty minutes of an oscillating number, with a gap, and of a state.
fn archive() -> Folder {
    let folder = Folder::new();
    let files = store::Folder::make(folder.0.join("archive")).unwrap();
    let mut logger = Logger::open(files, Config::default(), 0).unwrap();
    let number = logger.signal("NUMBER", About { units: "V".into(), ..About::default() }, NOON).unwrap();
    let labels = vec!["off".into(), "on".into()];
    let state = logger.signal("STATE", About { labels, ..About::default() }, NOON).unwrap();
    for k in (0..1_200).filter(|k| !(500..620).contains(k)) {
        let severity = u8::from(k % 400 == 7) * 2;
        let value = (k as f64 / 50.0).sin() * 10.0 + (k % 7) as f64;
        logger.push(number, &Sample { severity, ..Sample::new(NOON + k * SECOND, value) });
        logger.push(state, &Sample::new(NOON + k * SECOND, Datum::Number(base::Scalar::Enum((k / 100 % 2) as u16))));
        if k % 300 == 0 {
            logger.sync(k);
        }
    }
    logger.gap(Some(number), NOON + 500 * SECOND, Cause::Disconnected, 0);
    logger.close(0, NOON + 1_200 * SECOND);
    folder
}

fn said(folder: &Folder, words: &[&str]) -> Output {
    tahti().arg("archive").args(words).current_dir(&folder.0).output().unwrap()
}

/// Stamp and value of each row on the command line.
fn shown(folder: &Folder, signal: &str, operator: &str) -> Vec<(String, String)> {
    let span = ["--from", "2026-11-23T12:00:30Z", "--to", "2026-11-23T12:19:30Z", "--format", "csv"];
    let output = said(folder, &[&["get", "archive", signal, "--operator", operator], &span[..]].concat());
    assert!(output.status.success(), "{operator}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        // Arrays are quoted, because they contain commas.
        let rest = line.splitn(3, ',').nth(2).unwrap();
        let value = match rest.strip_prefix('"') {
            Some(array) => array.split('"').next().unwrap(),
            None => rest.split(',').next().unwrap(),
        };
        (line.split(',').nth(1).unwrap().to_owned(), value.to_owned())
    };
    text.lines().skip(1).map(row).collect()
}

/// A JSON value as the command line would print it.
fn as_shown(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(all) => all.iter().flat_map(as_shown).collect(),
        other => vec![other.as_f64().unwrap_or(f64::NAN)],
    }
}

fn numbers(text: &str) -> Vec<f64> {
    let number = |word: &str| match word.trim() {
        "off" => 0.0,
        "on" => 1.0,
        other => other.parse().unwrap_or_else(|_| panic!("{text}")),
    };
    text.trim_matches(['[', ']']).split(',').map(number).collect()
}

#[test]
fn every_post_processor_gives_the_same_from_segments_and_packs_and_over_http() {
    let folder = archive();
    let mut serve = tahti();
    serve.current_dir(&folder.0).args(["archive", "http", "archive", "--listen", "127.0.0.1:0"]);
    let serves = Running::follow(&mut serve);
    let said_address = serves.hears("/retrieval");
    let address = http::address_in(&said_address);
    let mut first: Vec<Vec<(String, String)>> = Vec::new();
    for is_packed in [false, true] {
        if is_packed {
            let packed = said(&folder, &["pack", "archive"]);
            assert!(packed.status.success(), "{packed:?}");
        }
        let mut all = Vec::new();
        for (signal, operators) in [("NUMBER", &OPERATORS[..]), ("STATE", &["lastSample_60", "nth_50", "mean_300"])] {
            for operator in operators {
                let here = shown(&folder, signal, operator);
                assert!(!here.is_empty(), "{operator}");
                let span = "from=2026-11-23T12:00:30Z&to=2026-11-23T12:19:30Z";
                let path = format!("GET /retrieval/data/getData.json?pv={operator}({signal})&{span}");
                let there = http::json(address, &path);
                let there = there[0]["data"].as_array().unwrap();
                assert_eq!(here.len(), there.len(), "{operator}({signal})");
                for ((at, value), row) in here.iter().zip(there) {
                    let same = numbers(value).into_iter().zip(as_shown(&row["val"])).all(near);
                    assert!(same, "{operator}({signal}) at {at}: {value}, {row}");
                }
                all.push(here);
            }
        }
        if first.is_empty() {
            first = all;
        } else {
            let differs = first
                .iter()
                .zip(&all)
                .find(|(one, other)| one.iter().zip(*other).any(|(one, other)| !is_near(one, other)));
            assert!(differs.is_none(), "{differs:?}");
        }
    }
}

/// Equal up to rounding: other chunks change the order of a sum, and this JSON parser may be off by the last bit.
fn near((one, other): (f64, f64)) -> bool {
    (one - other).abs() <= 1e-9 * (1.0 + one.abs()) || (!one.is_finite() && !other.is_finite())
}

fn is_near((at, one): &(String, String), (other_at, other): &(String, String)) -> bool {
    at == other_at && numbers(one).into_iter().zip(numbers(other)).all(near)
}

#[test]
fn unknown_post_processors_and_contradictory_options_are_refused() {
    let folder = archive();
    let output = said(&folder, &["get", "archive", "NUMBER", "--operator", "meanest_60"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("is no post-processor; expected one of mean, "), "{text}");
    let output = said(&folder, &["get", "archive", "NUMBER", "--operator", "mean_60", "--nth", "3"]);
    assert!(!output.status.success());
    for (show, expected) in [
        ("first", "first"),
        ("last", "last"),
        ("mean", "mean"),
        ("min", "min"),
        ("max", "max"),
        ("std", "std"),
        ("count", "count"),
        ("envelope", "min,mean,max,count"),
    ] {
        let words = [
            "get",
            "archive",
            "NUMBER",
            "--from",
            "2026-11-23T12:00:00Z",
            "--to",
            "2026-11-23T12:19:59Z",
            "--every",
            "10min",
            "--show",
            show,
            "--format",
            "csv",
        ];
        let text = String::from_utf8(said(&folder, &words).stdout).unwrap();
        assert_eq!(
            (text.lines().next(), text.lines().count()),
            (Some(format!("signal,time,{expected}").as_str()), 3),
            "{text}"
        );
    }
}

#[test]
fn a_file_of_the_archiver_appliance_is_imported_once_with_its_values_stamps_and_alarms() {
    let folder = archive();
    let good = |words: &[&str]| {
        let output = said(&folder, words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    good(&["export", "archive", "NUMBER", "--format", "pb", "--output", "NUMBER.pb"]);
    let imported = good(&["import", "copy", "NUMBER.pb"]);
    assert!(imported.starts_with("1080 samples imported, 0 were there already"), "{imported}");
    assert_eq!(good(&["export", "copy", "NUMBER"]), good(&["export", "archive", "NUMBER"]));
    let again = good(&["import", "copy", "NUMBER.pb"]);
    assert!(again.starts_with("0 samples imported, 1080 were there already"), "{again}");
    // A file that is cut off gives its complete samples, and the cut is reported.
    let bytes = std::fs::read(folder.0.join("NUMBER.pb")).unwrap();
    std::fs::write(folder.0.join("cut.pb"), &bytes[..bytes.len() / 2]).unwrap();
    let cut = said(&folder, &["import", "other", "cut.pb"]);
    let text = String::from_utf8_lossy(&cut.stderr).into_owned() + &String::from_utf8_lossy(&cut.stdout);
    assert!(text.contains("samples imported"), "{text}");
}

#[test]
fn spans_of_arrays_and_texts_have_a_first_and_last_value_and_their_mean_is_refused() {
    let folder = Folder::new();
    let files = store::Folder::make(folder.0.join("archive")).unwrap();
    let mut logger = Logger::open(files, Config::default(), 0).unwrap();
    let [slopes, text, mixed] =
        ["SLOPES", "TEXT", "MIXED"].map(|name| logger.signal(name, About::default(), NOON).unwrap());
    for k in 0..60 {
        let at = NOON + k * SECOND;
        let array = base::Array::F32(vec![k as f32, 0.5]);
        logger.push(slopes, &Sample::new(at, Datum::Array(array.clone())));
        logger.push(text, &Sample::new(at, Datum::Text(format!("t{k}").into_bytes())));
        let datum = if k < 30 { Datum::from(k as f64) } else { Datum::Array(array) };
        logger.push(mixed, &Sample::new(at, datum));
    }
    logger.close(0, NOON + 60 * SECOND);
    let span = ["--from", "2026-11-23T12:00:00Z", "--to", "2026-11-23T12:00:59Z"];
    let get = |words: &[&str]| said(&folder, &[&["get", "archive"], words, &span[..]].concat());
    let good = |words: &[&str]| {
        let output = get(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        good(&["SLOPES", "--every", "20s", "--show", "last", "--format", "csv"]),
        "signal,time,last\nSLOPES,2026-11-23T12:00:00.000000000Z,\"[19.0, 0.5]\"\nSLOPES,2026-11-23T12:00:20.000000000Z,\"[39.0, 0.5]\"\n\
         SLOPES,2026-11-23T12:00:40.000000000Z,\"[59.0, 0.5]\"\n"
    );
    let first = good(&["SLOPES", "--every", "30s", "--show", "first"]);
    assert_eq!(
        first.lines().map(|line| line.rsplit("Z  ").next().unwrap()).collect::<Vec<_>>(),
        ["[0.0, 0.5]", "[30.0, 0.5]"]
    );
    let nth = good(&["SLOPES", "--nth", "25"]);
    assert_eq!(nth.lines().filter(|line| line.contains('[')).count(), 3, "{nth}");
    assert!(good(&["TEXT", "--points", "1", "--show", "last"]).trim_end().ends_with("t59"));
    // Each half keeps its type.
    let both = good(&["MIXED", "--every", "30s", "--show", "first", "--format", "json"]);
    let values: Vec<Value> = both.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&values[0]["first"], &values[1]["first"]),
        (&serde_json::json!(0.0), &serde_json::json!([30.0, 0.5])),
        "{both}"
    );
    assert!(good(&["MIXED", "--every", "30s"]).trim_end().ends_with("0  14.5  29  30"));
    for (words, kind) in
        [(&["SLOPES", "--every", "20s"][..], "f32"), (&["TEXT", "--points", "2", "--show", "mean"], "text")]
    {
        let output = get(words);
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && why.contains(kind), "{words:?}: {why}");
        assert!(why.contains("expected numbers") && why.contains("--show last, or --nth NUMBER"), "{why}");
    }
}
