//! Writing and reading the PB format.

use crate::model::{Model, NOON, SECOND};
use appliance::pb::{Bad, Chunks, Info, Payload, Row, about, gaps, headers, year_begins, year_of};
use base::{Array, FieldType, Scalar, Str40};
use proptest::prelude::*;
use segment::rows::{About, Cause};
use segment::{Datum, Kind, Sample};

/// All samples of an answer, with the headers of their chunks.
fn read(bytes: &[u8]) -> Vec<(Info, Row)> {
    let mut chunks = Chunks::default();
    let mut rows = Vec::new();
    for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n') {
        rows.extend(chunks.line(line).unwrap().map(|(info, row)| (info.clone(), row)));
    }
    rows
}

#[test]
fn a_sample_has_the_bytes_of_the_format() {
    let info = Info { payload: Payload::ScalarDouble, name: "A".into(), year: 2026, elements: 1, headers: vec![] };
    let mut out = Vec::new();
    info.write(&mut out);
    // Type 6, name A, year 2026, one element; then the line's end, which is escaped within a line.
    assert_eq!(out, [&[8u8, 6, 18, 1, b'A', 24, 0xea, 15, 32, 1][..], b"\n"].concat());
    let sample = Sample { severity: 2, ..Sample::new((year_begins(2026) + 10) * SECOND + 13, 0.0) };
    out.clear();
    Row::from(sample).write(&info, &mut out);
    assert_eq!(out, b"\x08\x1b\x02\x10\x1b\x03\x19\0\0\0\0\0\0\0\0\x20\x02\n");
}

#[test]
fn no_line_of_a_sample_ends_with_a_blank() {
    let info = Info { payload: Payload::ScalarShort, name: "A".into(), year: 2026, elements: 1, headers: vec![] };
    for value in [599i16, 5, 4, 6, 16, -16] {
        for status in [0, 9, 32] {
            let sample = Sample { status, ..Sample::new(NOON, Datum::Number(Scalar::I16(value))) };
            let mut out = Vec::new();
            Row::from(sample.clone()).write(&info, &mut out);
            let line = out.trim_ascii_end();
            assert_eq!(line.len() + 1, out.len(), "{value} {status}");
            assert_eq!(Row::read(line, &info).unwrap().sample, sample);
        }
    }
}

#[test]
fn a_new_year_begins_a_new_chunk_and_no_stamp_is_a_year_off() {
    let border = year_begins(2027) * SECOND;
    let stamps: Vec<i64> = (-3..3).map(|k| border + k * SECOND).collect();
    let model = Model::of("A", stamps.iter().map(|at| Sample::new(*at, 1.0)).collect());
    let bytes = model.bytes("/retrieval/data/getData.raw", "pv=A&from=2026-12-31T00:00:00Z&to=2027-01-02T00:00:00Z");
    let rows = read(&bytes);
    assert_eq!(rows.iter().map(|(_, row)| row.sample.at).collect::<Vec<_>>(), stamps);
    assert_eq!(rows.iter().map(|(info, _)| info.year).collect::<Vec<_>>(), [2026, 2026, 2026, 2027, 2027, 2027]);
    assert_eq!(bytes.windows(2).filter(|two| two == b"\n\n").count(), 1);
}

#[test]
fn without_samples_only_the_head_is_sent() {
    let mut model = Model::of("A", vec![]);
    let about = About { units: "mA".into(), precision: Some(2), labels: vec!["off".into()] };
    model.add("B", about, vec![Sample::new(NOON, 1.0)]);
    let bytes = model.bytes("/retrieval/data/getDataForPVs.raw", "pv=A&pv=B&fetchLatestMetadata=true");
    let mut chunks = bytes.split(|byte| *byte == b'\n');
    let head = Info::read(chunks.next().unwrap()).unwrap();
    assert_eq!((head.name.as_str(), head.payload), ("A", Payload::ScalarDouble));
    assert_eq!(chunks.next(), Some(&b""[..]));
    let head = Info::read(chunks.next().unwrap()).unwrap();
    let headers: Vec<_> = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("EGU", "mA"), ("PREC", "2"), ("ENUM_0", "off")]);
}

#[test]
fn malformed_lines_are_reported_and_the_next_one_is_read() {
    let info = Info { payload: Payload::ScalarInt, name: "A".into(), year: 2026, elements: 1, headers: vec![] };
    let mut head = Vec::new();
    info.write(&mut head);
    let mut chunks = Chunks::default();
    assert_eq!(chunks.line(&head[..head.len() - 1]), Ok(None));
    assert_eq!(chunks.line(b"\x08"), Err(Bad::Message));
    assert_eq!(chunks.line(b"\x08\x01"), Err(Bad::Missing("nanoseconds")));
    assert_eq!(chunks.line(b"\x08\x01\x10\x01"), Err(Bad::Missing("value")));
    assert_eq!(
        chunks.line(b"\x08\x01\x10\xff\xff\xff\xff\x0f\x1d\x01\0\0\0"),
        Err(Bad::Stamp { secs: 1, nanos: 0xffff_ffff })
    );
    assert!(chunks.line(b"\x08\x01\x10\x01\x1d\x01\0\0\0").unwrap().is_some());
    assert_eq!(Info::read(b"\x08\x63"), Err(Bad::Type(99)));
    assert_eq!(Info::read(b"\x08\x06\x12\x01A\x18\xff\xff\x03"), Err(Bad::Year(65_535)));
}

/// Values of the format's own types.
fn values() -> impl Strategy<Value = Datum> {
    let scalar = prop_oneof![
        any::<f64>().prop_filter("no NaN, which is not equal to itself", |v| !v.is_nan()).prop_map(Scalar::F64),
        any::<f32>().prop_filter("no NaN", |v| !v.is_nan()).prop_map(Scalar::F32),
        any::<i16>().prop_map(Scalar::I16),
        any::<i32>().prop_map(Scalar::I32),
        any::<i16>().prop_map(|v| Scalar::Enum(v.unsigned_abs())),
    ];
    let bytes = || prop::collection::vec(any::<u8>(), 0..50);
    let array = prop_oneof![
        prop::collection::vec(-1e9f64..1e9, 0..9).prop_map(Array::F64),
        prop::collection::vec(-1e9f32..1e9, 0..9).prop_map(Array::F32),
        prop::collection::vec(any::<i16>(), 0..9).prop_map(Array::I16),
        prop::collection::vec(any::<i32>(), 0..9).prop_map(Array::I32),
        prop::collection::vec(0u16..9, 0..9).prop_map(Array::Enum),
        bytes().prop_map(Array::U8),
        prop::collection::vec("[a-z\n]{0,20}", 0..9)
            .prop_map(|texts| Array::String(texts.iter().map(|text| Str40::new(text.as_bytes())).collect())),
    ];
    prop_oneof![scalar.prop_map(Datum::Number), bytes().prop_map(Datum::Text), array.prop_map(Datum::Array)]
}

proptest! {
    #[test]
    fn rows_and_heads_survive_a_round_trip(
        datum in values(), at in -9_000_000_000 * SECOND..9_000_000_000 * SECOND, severity in 0u8..4, status in 0u16..22,
        fields in prop::collection::vec((".{0,9}", ".{0,9}"), 0..3),
    ) {
        let row = Row { sample: Sample { at, datum, severity, status, pulse: None }, fields };
        let payload = Payload::of(row.sample.datum.kind());
        let headers = row.fields.clone();
        let info = Info { payload, name: "A\u{1b}\n\r".into(), year: year_of(at), elements: 3, headers };
        let mut out = Vec::new();
        info.write(&mut out);
        row.write(&info, &mut out);
        let lines: Vec<&[u8]> = out.split(|byte| *byte == b'\n').collect();
        prop_assert_eq!(lines.len(), 3);
        prop_assert!(!out.contains(&b'\r'));
        prop_assert_eq!(Info::read(lines[0]), Ok(info.clone()));
        prop_assert_eq!(Row::read(lines[1], &info), Ok(row));
    }

    #[test]
    fn values_of_all_our_types_have_one_of_the_formats(value in any::<i16>()) {
        let (small, large) = (value.unsigned_abs() as u8, value.unsigned_abs());
        for scalar in [
            Scalar::I8(small as i8), Scalar::U8(small), Scalar::U16(large), Scalar::U32(large.into()),
            Scalar::I64(value.into()), Scalar::U64(large.into()),
        ] {
            let sample = Sample::new(NOON, Datum::Number(scalar));
            let payload = Payload::of(sample.datum.kind());
            let info = Info { payload, name: "A".into(), year: 2026, elements: 1, headers: vec![] };
            let mut out = Vec::new();
            Row::from(sample.clone()).write(&info, &mut out);
            let back = Row::read(&out[..out.len() - 1], &info).unwrap();
            prop_assert_eq!(back.sample.datum.to_f64(), sample.datum.to_f64());
        }
        prop_assert_eq!(Payload::of(Kind::Array(FieldType::U16)), Payload::WaveformInt);
    }

    #[test]
    fn no_bytes_panic(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6), payload in 0u64..15) {
        let mut chunks = Chunks::default();
        let head = [8, payload as u8, 18, 1, b'A', 24, 0xea, 15];
        let _ = chunks.line(&head);
        for line in lines {
            let _ = (Info::read(&line), chunks.line(&line).map(|_| ()));
        }
    }
}

#[test]
fn metadata_and_gaps_of_a_signal_survive_a_round_trip() {
    let labels = vec!["off".into(), String::new(), "on".into()];
    let known = About { units: "°C".into(), precision: Some(3), labels };
    assert_eq!(about(&headers(&known)), known);
    let strange = [("PREC", "2.0"), ("PREC", "-1"), ("ENUM_x", "a"), ("ENUM_99999999", "b"), ("HIHI", "5")];
    let strange = strange.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(about(&strange[..1]).precision, Some(2));
    assert_eq!(about(&strange), About::default());
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let lost = (NOON / SECOND - 60).to_string();
    let fields = vec![field("cnxlostepsecs", &lost), field("startup", "true"), field("resume", "true")];
    let row = Row { sample: Sample::new(NOON, 1.0), fields };
    let found = gaps(&row, Some(NOON - 5));
    assert_eq!(found, [(NOON - 60 * SECOND, Cause::Disconnected), (NOON, Cause::Started), (NOON - 4, Cause::Paused)]);
    let row = Row { fields: vec![field("cnxlostepsecs", "x"), field("cnxlostepsecs", "0")], ..row };
    assert_eq!(gaps(&row, None), []);
}
