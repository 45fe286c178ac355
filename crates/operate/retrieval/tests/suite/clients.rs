//! Third-party clients of the EPICS Archiver Appliance read our archive: ESS's client, pyarchappl, Diamond's aapy.
//!
//! `cargo xtask test appliance` installs them.

use base::{Array, Scalar};
use harness::Folder;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use store::{Config, Logger};

const SECOND: i64 = 1_000_000_000;
/// 2026-12-31T23:50:00Z: ten minutes before a new year.
const BEGIN: i64 = 1_798_761_000 * SECOND;

/// The time stamps of the signals: 20 minutes, except 100 seconds.
fn stamps() -> impl Iterator<Item = i64> {
    (0..1_200).filter(|k| !(300..400).contains(k)).map(|k| BEGIN + k * SECOND + 5)
}

/// A name, and its value at a second.
type Made = (&'static str, fn(i64) -> Datum);

/// The signals.
const SIGNALS: [Made; 7] = [
    ("RF:TEMP", |k| Datum::from(k as f64 / 4.0)),
    ("RF:COUNT", |k| Datum::Number(Scalar::I32(k as i32 - 600))),
    ("RF:SHORT", |k| Datum::Number(Scalar::I16(k as i16 - 600))),
    ("RF:FLOAT", |k| Datum::Number(Scalar::F32(k as f32 / 8.0))),
    ("RF:STATE", |k| Datum::Number(Scalar::Enum((k % 2) as u16))),
    ("RF:NAME", |k| Datum::from(format!("line\n{k}\r\u{1b}").as_str())),
    ("RF:WAVE", |k| Datum::Array(Array::F64(vec![k as f64, -1.0, 0.5]))),
];

/// An archive with all signals.
pub(crate) fn archive() -> Folder {
    let folder = Folder::new();
    let files = store::Folder::make(&folder.0).unwrap();
    let mut logger = Logger::open(files, Config::default(), 0).unwrap();
    for (name, value) in SIGNALS {
        let labels = if name == "RF:STATE" { vec!["off".into(), "on".into()] } else { vec![] };
        let signal = logger.signal(name, About { units: "°C".into(), precision: Some(2), labels }, BEGIN).unwrap();
        for at in stamps() {
            let k = (at - BEGIN) / SECOND;
            let severity = if k == 7 { 2 } else { 0 };
            logger.push(signal, &Sample { severity, ..Sample::new(at, value(k)) });
        }
        logger.gap(Some(signal), BEGIN + 300 * SECOND, Cause::Disconnected, 0);
    }
    logger.close(0, BEGIN + 1_200 * SECOND);
    folder
}

/// The output of a script in a Python environment.
fn script(port: u16, environment: &str, script: &str, words: &[&str]) -> Value {
    let python = std::env::var(environment);
    let python =
        PathBuf::from(python.unwrap_or_else(|_| panic!("{environment} is not set; run `cargo xtask test appliance`")));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../operate/retrieval/tests").join(script);
    let mut command = Command::new("timeout");
    command.args(["300".as_ref(), python.join("python").as_os_str(), path.as_os_str()]);
    let output = command.arg(port.to_string()).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn json(datum: &Datum) -> Value {
    match datum {
        Datum::Array(array) => (0..array.len()).map(|index| array.get(index).unwrap().to_f64().unwrap()).collect(),
        Datum::Text(bytes) => String::from_utf8_lossy(bytes).into(),
        number => number.to_f64().unwrap().into(),
    }
}

/// Whether two values are equal; an integer equals the same float.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(some), Value::Array(others)) => {
            some.len() == others.len() && some.iter().zip(others).all(|(one, other)| same(one, other))
        }
        _ => one == other || (one.as_f64().is_some() && one.as_f64() == other.as_f64()),
    }
}

/// ESS's client.
pub(crate) fn ess_reads_every_type_and_every_post_processor(port: u16) {
    let names = SIGNALS.map(|(name, _)| name);
    let read = script(port, "TAHTI_ARCHIVE_ESS", "ess.py", &[&["RF:.*"], &names[..]].concat());
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(read["names"], serde_json::json!(sorted));
    for (name, value) in SIGNALS {
        let found = &read["signals"][name];
        let expected: Value = stamps().map(|at| serde_json::json!([at, json(&value((at - BEGIN) / SECOND))])).collect();
        let rows = found["rows"].as_array().unwrap();
        let other = rows.iter().zip(expected.as_array().unwrap()).find(|(found, expected)| !same(found, expected));
        assert!(other.is_none() && rows.len() == 1_100, "{name}: {} rows, {other:?}", rows.len());
        assert_eq!(found["years"], serde_json::json!([2026, 2027]), "{name}");
        assert_eq!((&found["headers"][1]["EGU"], &found["severities"][7]), (&"°C".into(), &2.into()), "{name}");
        assert_eq!(found["gaps"], serde_json::json!(["disconnected"]), "{name}");
    }
    assert_eq!(read["signals"]["RF:STATE"]["headers"][0]["ENUM_1"], "on");
    for (processor, rows) in read["processed"].as_object().unwrap() {
        assert!(!rows.as_array().unwrap().is_empty() || processor == "flyers", "{processor}: {rows}");
    }
    let values = |processor: &str| -> Vec<f64> {
        let rows = read["processed"][processor].as_array().unwrap();
        rows.iter().map(|row| row[1].as_f64().unwrap()).collect()
    };
    assert_eq!((values("mean")[0], values("max")[1], values("ncount")), (29.5 / 4.0, 119.0 / 4.0, vec![1_100.0]));
    assert_eq!((values("firstSample").len(), values("mean").len()), (19, 20));
}

/// The clients of FRIB and Diamond.
pub(crate) fn pyarchappl_and_aapy_read_both_formats(port: u16) {
    let read = script(port, "TAHTI_ARCHIVE_OLD", "old.py", &[]);
    let expected: Vec<(f64, f64)> =
        stamps().map(|at| ((at / SECOND) as f64, ((at - BEGIN) / SECOND) as f64 / 4.0)).collect();
    for client in ["pyarchappl", "aapy"] {
        for format in ["raw", "json"] {
            let rows = read[client][format].as_array().unwrap();
            let found = rows.iter().map(|row| (row[0].as_f64().unwrap().floor(), row[1].as_f64().unwrap()));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{client}, {format}");
        }
    }
    assert_eq!((&read["at"]["RF:TEMP"]["val"], &read["at"]["NONE"]), (&2.25.into(), &Value::Null));
}
