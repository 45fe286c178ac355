//! DuckDB, pandas and polars read our Parquet files, and we read those of pandas. `cargo xtask test appliance` installs them.

use base::{Array, Scalar, Str40};
use columns::ParquetReader;
use exchange::{ParquetWriter, Row, Writer};
use harness::Folder;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: i64 = 1_795_456_258_919_055_407;

/// A name, and its value at a number.
type Made = (&'static str, fn(i64) -> Datum);

const SIGNALS: [Made; 7] = [
    ("RF:TEMP", |k| Datum::from(k as f64 / 8.0)),
    ("RF:COUNT", |k| Datum::from(i64::MAX - k)),
    ("RF:BEAM", |k| Datum::from(k % 2 == 1)),
    ("RF:STATE", |k| Datum::Number(Scalar::Enum((k % 2) as u16))),
    ("RF:NAME", |k| Datum::from(format!("°{k}").as_str())),
    ("RF:WAVE", |k| Datum::Array(Array::F64(vec![k as f64; (k % 3) as usize]))),
    ("RF:WORDS", |k| Datum::Array(Array::String(vec![Str40::new(if k == 0 { b"a" } else { b"b" })]))),
];

fn rows(signals: &[Made]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, value) in signals {
        let labels = if *name == "RF:STATE" { vec!["off".into(), "on".into()] } else { vec![] };
        let about = About { units: "C".into(), precision: Some(2), labels };
        rows.push(Row::Signal { name: (*name).into(), since: BEGIN, kind: value(0).kind(), about });
        for k in 0..1_000 {
            let sample = Sample { pulse: Some(k as u64), severity: 1, ..Sample::new(BEGIN + k, value(k)) };
            rows.push(Row::Sample { name: (*name).into(), sample });
        }
        let (name, at) = (Some((*name).into()), BEGIN + 1_000);
        rows.push(Row::Gap { name, at, cause: Cause::Overflow, lost: 7 });
    }
    rows
}

fn write(path: &Path, rows: &[Row]) {
    let mut writer = Box::new(ParquetWriter::new(File::create_new(path).unwrap()).unwrap());
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap();
}

fn python(script: &str) -> Command {
    let python = std::env::var("TAHTI_TABLES").expect("TAHTI_TABLES is not set; run `cargo xtask test appliance`");
    let mut command = Command::new("timeout");
    command.arg("300").arg(PathBuf::from(python).join("python"));
    command.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(script));
    command
}

fn said(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn duckdb_pandas_and_polars_read_the_packs_of_an_archive_while_it_is_written() {
    let folder = Folder::new();
    let place = store::Folder::new(&folder.0);
    let mut logger = store::Logger::open(place.clone(), store::Config::default(), 0).unwrap();
    // Packs of different signals, types and times form one table. The last segment is still open.
    for part in 0..3 {
        for (name, value) in &SIGNALS[part..] {
            let about = About { labels: vec!["off".into(), "on".into()], ..About::default() };
            let signal = logger.signal(name, about, BEGIN).unwrap();
            for k in 0..2_000 {
                let k = part as i64 * 2_000 + k;
                logger.push(signal, &Sample { pulse: Some(k as u64), severity: 1, ..Sample::new(BEGIN + k, value(k)) });
            }
            logger.gap(Some(signal), BEGIN + part as i64 * 2_000 + 1_999, Cause::Overflow, 7);
        }
        logger.sync(0);
        if part < 2 {
            logger = {
                drop(logger);
                store::Logger::open(place.clone(), store::Config::default(), 0).unwrap()
            };
            store::pack(&place, part as u64 + 1, part as u64 + 1).unwrap();
        }
    }
    let read = said(python("packs.py").arg(folder.0.join("*.parquet")));
    let rows = (7 + 6) * 2_001;
    for reader in ["duckdb", "pandas", "polars"] {
        let found = &read[reader];
        assert_eq!((&found["rows"], &found["gaps"]), (&rows.into(), &json!(13)), "{reader}");
        assert_eq!(found["temp"], json!([BEGIN + 1_999, 1_999.0 / 8.0, 1_999, 1]), "{reader}");
        assert_eq!(
            found["sum"],
            json!((0..4_000).sum::<i64>()),
            "{reader}: the differences of RF:COUNT to its first value"
        );
        assert_eq!((&found["label"], &found["text"]), (&"on".into(), &"°3".into()), "{reader}");
        assert_eq!(found["waves"], json!([[], [1.0], [2.0, 2.0]]), "{reader}");
        assert_eq!((&found["word"], &found["beam"]), (&json!(["b"]), &json!(1.0)), "{reader}");
    }
    drop(logger);
}

#[test]
fn duckdb_pandas_and_polars_read_every_type_and_files_of_pandas_are_read() {
    let folder = Folder::new();
    let (many, one) = (folder.0.join("many.parquet"), folder.0.join("one.parquet"));
    write(&many, &rows(&SIGNALS));
    write(&one, &rows(&SIGNALS[2..3]));
    let foreign = folder.0.join("foreign.parquet");
    let read = said(python("tables.py").args([&many, &one, &foreign]));
    let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
    for reader in ["duckdb", "pandas", "polars"] {
        let found = &read[reader];
        assert_eq!((&found["rows"], &found["gaps"]), (&7_007.into(), &json!(["overflow", 7])), "{reader}");
        assert_eq!(found["temp"], json!([BEGIN + 999, 999.0 / 8.0, 999, 1]), "{reader}");
        assert_eq!(found["count"], json!(i64::MAX - 3), "{reader}");
        assert_eq!((&found["label"], &found["text"]), (&"on".into(), &"°3".into()), "{reader}");
        assert_eq!(found["waves"], json!([[], [1.0], [2.0, 2.0]]), "{reader}");
        assert_eq!((&found["word"], &found["natural"]), (&json!(["b"]), &true.into()), "{reader}");
        assert_eq!(found["names"].as_array().unwrap().len(), names.len(), "{reader}");
    }
    let back = ParquetReader::new(File::open(foreign).unwrap()).unwrap().collect::<Result<Vec<Row>, _>>().unwrap();
    let sample = |k: i64| Sample { pulse: Some(k as u64), ..Sample::new(BEGIN + k, k as f64 / 2.0) };
    let expected: Vec<Row> = (0..10).map(|k| Row::Sample { name: "PD:A".into(), sample: sample(k) }).collect();
    assert_eq!(back, expected);
}
