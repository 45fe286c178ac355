use super::*;
use base::{Array, FieldType, Scalar, Str40};
use proptest::prelude::*;
use segment::Datum;

fn written(rows: &[Row]) -> String {
    let mut out = Vec::new();
    let mut writer = Box::new(CsvWriter::new(&mut out, true));
    rows.iter().for_each(|row| writer.write(row).unwrap());
    Writer::finish(writer).unwrap();
    String::from_utf8(out).unwrap()
}

fn read(text: &str) -> Result<Vec<Row>, String> {
    let reader = CsvReader::new(text.as_bytes()).map_err(|error| error.to_string())?;
    reader.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn scalars() -> impl Strategy<Value = Datum> {
    prop_oneof![
        any::<bool>().prop_map(Datum::Bool),
        any::<f64>().prop_filter("a number", |v| !v.is_nan()).prop_map(|v| Datum::Number(Scalar::F64(v))),
        any::<f32>().prop_filter("a number", |v| !v.is_nan()).prop_map(|v| Datum::Number(Scalar::F32(v))),
        any::<i64>().prop_map(|v| Datum::Number(Scalar::I64(v))),
        any::<u64>().prop_map(|v| Datum::Number(Scalar::U64(v))),
        any::<i8>().prop_map(|v| Datum::Number(Scalar::I8(v))),
        any::<u16>().prop_map(|v| Datum::Number(Scalar::Enum(v))),
    ]
}

fn values() -> impl Strategy<Value = Datum> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        4 => scalars(),
        1 => bytes().prop_map(Datum::Text),
        1 => "[a-z,\"\n\r\\\\ ]{0,12}".prop_map(|text| Datum::Text(text.into_bytes())),
        1 => bytes().prop_map(Datum::Blob),
        1 => prop::collection::vec(any::<i32>(), 0..6).prop_map(|v| Datum::Array(Array::I32(v))),
        1 => prop::collection::vec(-1e300..1e300f64, 0..6).prop_map(|v| Datum::Array(Array::F64(v))),
        1 => prop::collection::vec(bytes(), 0..4)
            .prop_map(|v| Datum::Array(Array::String(v.iter().map(|text| Str40::new(text)).collect()))),
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

proptest! {
    #[test]
    fn rows_survive_a_round_trip(rows in prop::collection::vec(rows(), 0..12)) {
        let text = written(&rows);
        prop_assert_eq!(read(&text), Ok(rows), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "(signal,time_ns,type,value\n)?[a-z0-9,\"\n{}\\\\-]{0,80}") {
        let _ = read(&text);
    }
}

#[test]
fn columns_may_be_in_any_order_and_some_may_be_missing() {
    let rows = read("\u{feff}type,value,signal,time_ns\r\nf64,1.5,\"A,B\",7\r\n\r\n").unwrap();
    assert_eq!(rows, [Row::Sample { name: "A,B".into(), sample: Sample::new(7, 1.5) }]);
}

#[test]
fn unreadable_rows_are_reported_with_their_line_and_the_expected_form() {
    let said = |rows: &str| read(&format!("{HEADER}\n{rows}")).unwrap_err();
    assert!(read("time,value\n1,2\n").unwrap_err().starts_with("line 1: the header is \"time,value\"; expected"));
    assert_eq!(said("A,1,f64,1.5,0,0,\nA,1,f64\n"), "line 3: 3 fields; expected 7");
    assert_eq!(said("A,x,f64,1.5,0,0,\n"), "line 2: time_ns is \"x\"; expected nanoseconds since 1970");
    assert_eq!(said("A,1,f65,1.5,0,0,\n"), "line 2: type is \"f65\"; expected f64, i32, bool, text, f64[] and such");
    assert_eq!(said("A,1,i8,300,0,0,\n"), "line 2: value is \"300\"; expected a value of type i8");
    assert_eq!(said("A,1,i8,3,4,0,\n"), "line 2: severity is \"4\"; expected a number from 0 to 3, or nothing");
    assert!(said(",1,i8,3,0,0,\n").starts_with("line 2: signal is \"\""));
    assert!(said("A,1,text,\"open,0,0,\n").starts_with("line 2: a field in quotes"));
}

#[test]
fn a_table_in_another_encoding_is_refused_with_place_and_remedy() {
    let why = |bytes: &[u8]| {
        let rows = CsvReader::new(bytes).and_then(Iterator::collect::<Result<Vec<Row>, _>>);
        rows.unwrap_err().to_string()
    };
    let latin = why(b"signal,time_ns,type,value\na,1,f64,1\na\xb0,1,f64,1\n");
    assert!(latin.starts_with("line 3, column 2: byte 0xb0") && latin.contains("`iconv -f latin1 -t utf-8"), "{latin}");
    let mut wide = vec![0xff, 0xfe];
    wide.extend("signal,time_ns,type,value\na,1,f64,1\n".encode_utf16().flat_map(u16::to_le_bytes));
    assert!(why(&wide).starts_with("line 1, column 1: the file is UTF-16; expected UTF-8: `iconv -f utf-16"));
}
