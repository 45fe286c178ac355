use super::*;
use base::{Array, FieldType, Scalar, Str40};
use bytes::Bytes;
use exchange::{ParquetWriter, Row, Writer};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use segment::rows::{About, Cause};
use segment::{Datum, Kind, Sample};
use std::sync::Arc;

fn written(rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Box::new(ParquetWriter::new(&mut out).unwrap());
    rows.iter().for_each(|row| writer.write(row).unwrap());
    writer.finish().unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<Vec<Row>, String> {
    let reader = ParquetReader::new(Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string())?;
    reader.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// All rows in a canonical order.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

fn numbers() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        any::<f64>().prop_filter("a number", |v| !v.is_nan()).prop_map(Scalar::F64),
        any::<f32>().prop_filter("a number", |v| !v.is_nan()).prop_map(Scalar::F32),
        any::<i8>().prop_map(Scalar::I8),
        any::<u8>().prop_map(Scalar::U8),
        any::<i16>().prop_map(Scalar::I16),
        any::<u16>().prop_map(Scalar::U16),
        any::<i32>().prop_map(Scalar::I32),
        any::<u32>().prop_map(Scalar::U32),
        any::<i64>().prop_map(Scalar::I64),
        any::<u64>().prop_map(Scalar::U64),
        any::<u16>().prop_map(Scalar::Enum),
    ]
}

fn arrays() -> impl Strategy<Value = Array> {
    let bytes = prop::collection::vec(any::<u8>(), 0..50);
    let texts = prop::collection::vec(bytes.prop_map(|text| Str40::new(&text)), 0..4);
    prop_oneof![
        prop::collection::vec(any::<i8>(), 0..6).prop_map(Array::I8),
        prop::collection::vec(any::<u8>(), 0..6).prop_map(Array::U8),
        prop::collection::vec(any::<u16>(), 0..6).prop_map(Array::Enum),
        prop::collection::vec(any::<u32>(), 0..6).prop_map(Array::U32),
        prop::collection::vec(any::<u64>(), 0..6).prop_map(Array::U64),
        prop::collection::vec(-1e30..1e30f32, 0..6).prop_map(Array::F32),
        prop::collection::vec(-1e300..1e300f64, 0..6).prop_map(Array::F64),
        texts.prop_map(Array::String),
    ]
}

fn values() -> impl Strategy<Value = Datum> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        4 => numbers().prop_map(Datum::Number),
        1 => any::<bool>().prop_map(Datum::Bool),
        1 => bytes().prop_map(Datum::Text),
        1 => "[a-z\\\\°\n]{0,12}".prop_map(|text| Datum::Text(text.into_bytes())),
        1 => bytes().prop_map(Datum::Blob),
        3 => arrays().prop_map(Datum::Array),
    ]
}

fn rows() -> impl Strategy<Value = Row> {
    let name = || "[a-zA-Z0-9:,\" {}]{1,12}";
    let sample = (name(), any::<i64>(), values(), 0..4u8, any::<u16>(), any::<Option<u64>>());
    prop_oneof![
        6 => sample.prop_map(|(name, at, datum, severity, status, pulse)| Row::Sample {
            name, sample: Sample { at, datum, severity, status, pulse }
        }),
        1 => (name(), any::<i64>(), "[a-z°\"]{0,4}", any::<Option<u16>>(), prop::collection::vec("[a-z]{0,3}", 0..3))
            .prop_map(|(name, since, units, precision, labels)| Row::Signal {
                name, since, kind: Kind::Number(FieldType::F64), about: About { units, precision, labels }
            }),
        1 => (prop::option::of(name()), any::<i64>(), any::<u64>())
            .prop_map(|(name, at, lost)| Row::Gap { name, at, cause: Cause::Disconnected, lost }),
    ]
}

fn sample(name: &str, sample: Sample) -> Row {
    Row::Sample { name: name.into(), sample }
}

/// A table with every kind of column, longer than one read.
fn whole() -> Vec<Row> {
    let values: [fn(i64) -> Datum; 8] = [
        |k| Datum::from(k as f64 / 8.0),
        |k| Datum::from(k),
        |k| Datum::from(k % 2 == 0),
        |k| Datum::Number(Scalar::Enum((k % 3) as u16)),
        |k| Datum::from(format!("text {k}").as_str()),
        |k| Datum::Blob(vec![k as u8; 3]),
        |k| Datum::Array(Array::F64(vec![k as f64; (k % 4) as usize])),
        |k| Datum::Array(Array::String(vec![Str40::new(b"a\\b\xff"); (k % 2) as usize])),
    ];
    let mut rows = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let (name, labels) = (format!("S{index}"), vec!["off".into(), "on".into()]);
        let about = About { units: "mm".into(), precision: Some(2), labels };
        rows.push(Row::Signal { name: name.clone(), since: 0, kind: value(0).kind(), about });
        rows.extend((0..300).map(|k| {
            let pulse = (index == 0).then_some(k as u64);
            sample(&name, Sample { pulse, severity: (k % 4) as u8, ..Sample::new(k * 1_000_000_007, value(k)) })
        }));
        rows.push(Row::Gap { name: Some(name), at: 7, cause: Cause::Overflow, lost: 12 });
    }
    rows.push(Row::Gap { name: None, at: 8, cause: Cause::Started, lost: 0 });
    rows
}

proptest! {
    #[test]
    fn rows_survive_a_round_trip(rows in prop::collection::vec(rows(), 0..12)) {
        prop_assert_eq!(read(&written(&rows)).map(sorted), Ok(sorted(rows)));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = read(&[&bytes[..], b"PAR1"].concat());
    }
}

#[test]
fn a_table_of_every_kind_survives_a_round_trip_over_many_row_groups() {
    let rows = whole();
    assert_eq!(read(&written(&rows)).map(sorted), Ok(sorted(rows)));
    let long: Vec<Row> = (0..300_000).map(|k| sample("A", Sample::new(k, k as f64))).collect();
    assert_eq!(read(&written(&long)), Ok(long));
}

#[test]
fn nan_and_minus_zero_survive_a_round_trip() {
    let rows = [f64::NAN, -0.0, f64::INFINITY].map(|value| sample("A", Sample::new(1, value)));
    for more in [None, Some(sample("A", Sample::new(2, true)))] {
        let rows: Vec<Row> = rows.iter().cloned().chain(more).collect();
        assert_eq!(format!("{:?}", read(&written(&rows)).unwrap()), format!("{rows:?}"));
    }
}

#[test]
fn a_file_truncated_anywhere_is_reported_without_a_panic() {
    let bytes = written(&whole());
    for len in (0..bytes.len()).step_by(97).chain(bytes.len().saturating_sub(40)..bytes.len()) {
        let said = read(&bytes[..len]).unwrap_err();
        assert!(said.ends_with("expected a whole Parquet file: put it back from a copy"), "{len}: {said}");
    }
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let bytes = written(&whole());
    let told = |at: usize, change: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= change;
        let said = read(&bytes);
        assert!(said.is_err(), "byte {at} of {} changed by {change}", bytes.len());
    };
    (0..bytes.len()).for_each(|at| [0x01, 0xff].into_iter().for_each(|change| told(at, change)));
}

#[test]
fn a_foreign_table_is_read_if_it_has_names_times_and_values() {
    let schema = "message schema {
        required binary signal (STRING); required double value; optional int64 time (TIMESTAMP(MICROS,false)); optional int64 more;
    }";
    let mut out = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut out, Arc::new(parse_message_type(schema).unwrap()), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&["A".into(), ByteArray::from("B")], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[1.5, 2.0], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[7], Some(&[1, 0]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[], Some(&[0, 0]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let mut rows = ParquetReader::new(Bytes::from(out)).unwrap();
    assert_eq!(rows.next().unwrap().unwrap(), sample("A", Sample::new(7_000, 1.5)));
    assert_eq!(rows.next().unwrap().unwrap_err().to_string(), "row 2: time is \"\"; expected a time");
    assert!(rows.next().is_none());
}

#[test]
fn a_table_of_other_data_is_refused_with_the_missing_column() {
    let said = |fields: &str| {
        let schema = parse_message_type(&format!("message schema {{ {fields} }}")).unwrap();
        let mut out = Vec::new();
        SerializedFileWriter::new(&mut out, Arc::new(schema), Arc::default()).unwrap().close().unwrap();
        read(&out).unwrap_err()
    };
    let signal = "required binary signal (STRING);";
    assert_eq!(said("required double value;"), "the column signal is missing; expected text");
    assert_eq!(said(signal), "the column time is missing; expected TIMESTAMP");
    let time = "required int64 time (TIMESTAMP(NANOS,true));";
    assert_eq!(said(&format!("{signal} {time}")), "the column value is missing; expected numbers");
    let said = said(&format!("{signal} required double time;"));
    assert!(said.starts_with("the column time is DOUBLE") && said.ends_with("expected TIMESTAMP"), "{said}");
}
