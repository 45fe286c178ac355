//! External device supports: requests of records, and the effect of the answers.

use base::{Alarm, Array, MonoNs, Scalar, Severity, Stamp, Status, Value};
use db::{Answers, AttachError, Attached, Attaching, Db, DeviceSample, Direct, Macros, Now, Output, RecId, Support};
use std::sync::{Arc, Mutex};

const TYPES: &[&str] = &[
    "ai",
    "ao",
    "bi",
    "bo",
    "mbbi",
    "mbbo",
    "mbbiDirect",
    "mbboDirect",
    "longin",
    "longout",
    "int64in",
    "int64out",
    "stringin",
    "stringout",
    "lsi",
    "lso",
    "waveform",
    "aai",
    "aao",
    "calcout",
];

/// A support that answers later. It refuses an address of `bad`.
struct Later;

impl Support for Later {
    fn name(&self) -> &str {
        "test later"
    }
    fn record_types(&self) -> &[&'static str] {
        TYPES
    }
    fn attach(&self, place: &Attaching<'_>) -> Result<Attached, AttachError> {
        match place.address {
            "bad" => {
                Err(AttachError::Unexpected { found: "found \"bad\"".to_owned(), expected: "\"good\"".to_owned() })
            }
            _ => Ok(Attached { answers: Answers::Later, interrupts: true, raw_range: None, writes: false }),
        }
    }
}

/// A support that answers at once with the last written value.
struct Now1(Arc<Mutex<f64>>);

struct Cell(Arc<Mutex<f64>>);

impl Support for Now1 {
    fn name(&self) -> &str {
        "test now"
    }
    fn record_types(&self) -> &[&'static str] {
        TYPES
    }
    fn attach(&self, _: &Attaching<'_>) -> Result<Attached, AttachError> {
        Ok(Attached {
            answers: Answers::Now(Box::new(Cell(self.0.clone()))),
            interrupts: false,
            raw_range: None,
            writes: false,
        })
    }
}

impl Direct for Cell {
    fn read(&mut self, now: Now) -> DeviceSample {
        DeviceSample { tag: 42, ..DeviceSample::good(Value::from(*self.0.lock().unwrap()), now.wall) }
    }
    fn write(&mut self, now: Now, output: &Output) -> DeviceSample {
        let Value::Scalar(Scalar::F64(value)) = output.value else { return DeviceSample::failed(Status::Write) };
        *self.0.lock().unwrap() = value;
        DeviceSample::done(now.wall)
    }
}

fn now() -> Now {
    Now { wall: Stamp::from_unix(1_800_000_000, 0), mono: MonoNs(1) }
}

fn database(text: &str) -> Db {
    let mut db = Db::new();
    db.add_support(Arc::new(Later));
    db.add_support(Arc::new(Now1(Arc::default())));
    db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now());
    db
}

fn get(db: &mut Db, name: &str) -> String {
    let channel = db.find(name).unwrap();
    match db.get(&channel, usize::MAX) {
        Value::Scalar(value) => base::text::scalar(value, 3).to_str().to_owned(),
        value => format!("{value:?}"),
    }
}

fn record(db: &Db, name: &str) -> RecId {
    db.find(name).unwrap().record
}

/// Processes a record and answers its request; returns the request.
fn exchange(db: &mut Db, name: &str, fed: DeviceSample) -> Option<Output> {
    let rec = record(db, name);
    db.process(rec, now());
    let request = db.next_request().expect("a request to its device");
    assert_eq!(request.record, rec);
    assert_eq!(get(db, &format!("{name}.PACT")), "1");
    db.complete(rec, fed);
    db.advance(now(), 100);
    assert_eq!(get(db, &format!("{name}.PACT")), "0");
    request.output
}

fn good(value: impl Into<Value>) -> DeviceSample {
    DeviceSample::good(value.into(), Stamp::from_unix(1_700_000_000, 5))
}

#[test]
fn every_input_record_accepts_raw_and_converted_values_of_its_device() {
    let mut db = database(
        r#"record(ai, "ai") { field(DTYP, "test later") field(INP, "@x") field(ASLO, "0.1") field(AOFF, "5") field(PREC, "3") }
           record(bi, "bi") { field(DTYP, "test later") field(INP, "@x") field(ONAM, "open") field(ZNAM, "shut") }
           record(mbbi, "mbbi") { field(DTYP, "test later") field(INP, "@x") field(ZRVL, "5") field(ONVL, "9") field(ONST, "nine") }
           record(mbbiDirect, "direct") { field(DTYP, "test later") field(INP, "@x") }
           record(longin, "longin") { field(DTYP, "test later") field(INP, "@x") }
           record(int64in, "int64in") { field(DTYP, "test later") field(INP, "@x") }
           record(stringin, "stringin") { field(DTYP, "test later") field(INP, "@x") }
           record(lsi, "lsi") { field(DTYP, "test later") field(INP, "@x") field(SIZV, "100") }
           record(waveform, "waveform") { field(DTYP, "test later") field(INP, "@x") field(NELM, "3") field(FTVL, "LONG") }"#,
    );
    assert_eq!(db.take_notices(), []);
    assert_eq!(exchange(&mut db, "ai", good(20i32)), None);
    assert_eq!((get(&mut db, "ai.RVAL"), get(&mut db, "ai")), ("20".into(), "7.000".into()));
    exchange(&mut db, "ai", good(1.5));
    assert_eq!(get(&mut db, "ai"), "5.150", "a floating-point value is scaled too");
    exchange(&mut db, "bi", good(1i32));
    assert_eq!(get(&mut db, "bi"), "1");
    exchange(&mut db, "bi", good(Value::Scalar(Scalar::String("shut".into()))));
    assert_eq!(get(&mut db, "bi"), "0");
    exchange(&mut db, "mbbi", good(9i32));
    assert_eq!(get(&mut db, "mbbi"), "1");
    exchange(&mut db, "direct", good(0x8001i32));
    assert_eq!(get(&mut db, "direct.BF"), "1");
    exchange(&mut db, "longin", good(-7i32));
    assert_eq!(get(&mut db, "longin"), "-7");
    exchange(&mut db, "int64in", good(1i64 << 40));
    assert_eq!(get(&mut db, "int64in"), "1099511627776");
    exchange(&mut db, "stringin", good(Value::Array(Array::U8(b"on line".to_vec()))));
    assert_eq!(get(&mut db, "stringin"), "on line");
    exchange(&mut db, "lsi", good(Value::Array(Array::U8(vec![b'x'; 60]))));
    assert_eq!(get(&mut db, "lsi.LEN"), "61");
    exchange(&mut db, "waveform", good(Value::Array(Array::U16(vec![1, 2, 3, 4]))));
    assert_eq!(get(&mut db, "waveform"), "Array(I32([1, 2, 3]))");
}

#[test]
fn every_output_passes_value_and_raw_value_to_its_device() {
    let mut db = database(
        r#"record(ao, "ao") { field(DTYP, "test later") field(OUT, "@x") field(ASLO, "0.5") field(VAL, "3") }
           record(bo, "bo") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "1") field(ONAM, "on") }
           record(mbbo, "named") { field(DTYP, "test later") field(OUT, "@x") field(TWST, "fast") field(NOBT, "2") field(SHFT, "4") field(VAL, "2") }
           record(mbbo, "mbbo") { field(DTYP, "test later") field(OUT, "@x") field(ONVL, "9") field(VAL, "1") }
           record(longout, "longout") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "-7") }
           record(int64out, "int64out") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "5000000000") }
           record(stringout, "stringout") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "go") }
           record(lso, "lso") { field(DTYP, "test later") field(OUT, "@x") }
           record(aao, "aao") { field(DTYP, "test later") field(OUT, "@x") field(NELM, "2") field(FTVL, "SHORT") }
           record(calcout, "calcout") { field(DTYP, "test later") field(OUT, "@x") field(CALC, "1.5") }"#,
    );
    let done = || DeviceSample::done(Stamp::EPOCH);
    let mut check = |record: &str, value: Value, raw: i64, name: Option<&str>| {
        let name = name.map(Into::into);
        assert_eq!(exchange(&mut db, record, done()), Some(Output { value, raw, name, converted: false }), "{record}");
    };
    check("ao", Value::from(6.0), 6, None);
    check("calcout", Value::from(1.5), 1, None);
    check("bo", Value::Scalar(Scalar::U16(1)), 1, Some("on"));
    check("mbbo", Value::Scalar(Scalar::U16(1)), 9, Some(""));
    check("named", Value::Scalar(Scalar::U16(2)), 2 << 4, Some("fast"));
    check("longout", Value::from(-7i32), -7, None);
    check("int64out", Value::from(5_000_000_000i64), 5_000_000_000, None);
    check("stringout", Value::Scalar(Scalar::String("go".into())), 0, None);
    let lso = db.find("lso.VAL$").unwrap();
    db.put(&lso, &Value::Array(Array::U8(b"go on".to_vec())), now()).unwrap();
    assert_eq!(db.next_request().unwrap().output.unwrap().value, Value::Array(Array::U8(b"go on\0".to_vec())));
    let aao = db.find("aao").unwrap();
    db.put(&aao, &Value::Array(Array::I16(vec![4, 5])), now()).unwrap();
    assert_eq!(db.next_request().unwrap().output.unwrap().value, Value::Array(Array::I16(vec![4, 5])));
}

#[test]
fn the_answer_of_a_device_to_an_output_becomes_the_value_of_the_record() {
    let mut db = database(
        r#"record(ao, "ao") { field(DTYP, "test later") field(OUT, "@x") field(ASLO, "0.5") field(VAL, "3") }
           record(bo, "bo") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "1") }
           record(mbbo, "mbbo") { field(DTYP, "test later") field(OUT, "@x") field(ONVL, "9") field(VAL, "1") }
           record(mbbo, "named") { field(DTYP, "test later") field(OUT, "@x") field(TWST, "fast") field(NOBT, "2") field(SHFT, "4") field(VAL, "1") }
           record(mbboDirect, "direct") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "1") }
           record(longout, "longout") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "-7") }
           record(stringout, "stringout") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "go") }
           record(aao, "aao") { field(DTYP, "test later") field(OUT, "@x") field(NELM, "2") field(FTVL, "SHORT") }"#,
    );
    let mut check = |record: &str, answer: Value, fields: &[(&str, &str)]| {
        exchange(&mut db, record, good(answer));
        for (field, value) in fields {
            assert_eq!(get(&mut db, &format!("{record}.{field}")), *value, "{record}.{field}");
        }
    };
    check("ao", Value::from(7.0), &[("VAL", "3.500"), ("OVAL", "3.000"), ("UDF", "0")]);
    check("ao", Value::from(8i32), &[("VAL", "4.000"), ("RVAL", "8"), ("RBV", "8")]);
    check("bo", Value::from(0i32), &[("VAL", "0"), ("RBV", "0")]);
    check("mbbo", Value::from(9i32), &[("VAL", "1"), ("RBV", "9")]);
    check("mbbo", Value::from(5i32), &[("VAL", "65535"), ("RBV", "5")]);
    check("named", Value::from(0x20i32), &[("VAL", "2"), ("RBV", "32")]);
    check("direct", Value::from(6i32), &[("VAL", "6"), ("B1", "1"), ("B0", "0"), ("RBV", "6")]);
    check("longout", Value::from(-8i32), &[("VAL", "-8")]);
    check("stringout", Value::from("gone"), &[("VAL", "gone")]);
    check("aao", Value::Array(Array::I16(vec![4, 5, 6])), &[("NORD", "2")]);
}

#[test]
fn a_2_in_proc_makes_one_request_for_the_initial_value_of_the_device() {
    let mut db = database(
        r#"record(longout, "out") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "3") field(FLNK, "count") }
           record(longin, "in") { field(DTYP, "test later") field(INP, "@x") field(SCAN, "I/O Intr") }
           record(calc, "count") { field(CALC, "A+1") field(INPA, "count") }"#,
    );
    for name in ["out", "in"] {
        let rec = record(&db, name);
        for (value, initial) in [(2u8, true), (1, false)] {
            let proc = db.find(&format!("{name}.PROC")).unwrap();
            db.put(&proc, &Value::Scalar(Scalar::U8(value)), now()).unwrap();
            let request = db.next_request().unwrap();
            assert_eq!((request.record, request.initial), (rec, initial), "{name}");
            db.complete(rec, good(7i32));
            db.advance(now(), 100);
        }
        assert_eq!(get(&mut db, name), "7");
    }
    assert_eq!(get(&mut db, "count"), "2.000");
}

#[test]
fn a_device_that_returns_sets_its_output_without_processing_it_and_clears_the_alarm() {
    let mut db = database(
        r#"record(longout, "out") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "3") field(FLNK, "count") }
           record(calc, "count") { field(CALC, "A+1") field(INPA, "count") }"#,
    );
    let out = record(&db, "out");
    exchange(&mut db, "out", DeviceSample::lost("10.0.0.7:502: Connection refused (os error 111)"));
    let alarm = ["out.SEVR", "out.STAT", "out.AMSG"].map(|field| get(&mut db, field));
    assert_eq!(alarm, ["3", "9", "10.0.0.7:502: Connection refused"]);
    assert!(db.start_with(out, good(7i32)).is_some());
    assert_eq!(get(&mut db, "out"), "3", "it was processed before");
    assert!(db.refresh_with(out, good(7i32)).is_some());
    let fields = ["out", "out.SEVR", "out.STAT", "out.AMSG", "out.UDF", "count"].map(|field| get(&mut db, field));
    assert_eq!(fields, ["7", "0", "0", "", "0", "1.000"]);
    // A value on its way to the device is not replaced.
    let value = db.find("out").unwrap();
    db.put(&value, &Value::from(9i32), now()).unwrap();
    assert!(db.refresh_with(out, good(8i32)).is_some());
    assert_eq!(get(&mut db, "out"), "9");
}

#[test]
fn a_failed_device_raises_its_alarm_and_the_next_good_value_clears_it() {
    let mut db = database(
        r#"record(ai, "in") { field(DTYP, "test later") field(INP, "@x") }
           record(ao, "out") { field(DTYP, "test later") field(OUT, "@x") field(VAL, "1") }"#,
    );
    exchange(&mut db, "in", good(3.0));
    exchange(&mut db, "in", DeviceSample::failed(Status::Timeout));
    let alarm = Alarm { status: Status::Timeout, severity: Severity::Invalid };
    assert_eq!((db.alarm(record(&db, "in")), get(&mut db, "in")), (alarm, "3.000".into()));
    exchange(&mut db, "in", good(4.0));
    assert_eq!(db.alarm(record(&db, "in")), Alarm::NONE);
    exchange(&mut db, "out", DeviceSample::failed(Status::Comm));
    assert_eq!(db.alarm(record(&db, "out")).status, Status::Comm);
    exchange(&mut db, "out", DeviceSample::done(Stamp::EPOCH));
    assert_eq!(db.alarm(record(&db, "out")), Alarm::NONE);
}

#[test]
fn an_interrupt_delivers_its_value_and_with_tse_minus_2_its_time() {
    let mut db = database(
        r#"record(ai, "a") { field(DTYP, "test later") field(INP, "@line") field(SCAN, "I/O Intr") field(TSE, "-2") }"#,
    );
    let a = record(&db, "a");
    db.feed_record(a, DeviceSample { tag: 77, ..good(2.5) });
    db.advance(now(), 100);
    assert_eq!((get(&mut db, "a"), get(&mut db, "a.UTAG")), ("2.500".into(), "77".into()));
    assert_eq!(db.stamp(a), (Stamp::from_unix(1_700_000_000, 5), 77));
    assert_eq!(db.next_request(), None, "an existing value needs no request");
}

#[test]
fn a_direct_device_answers_at_once() {
    let mut db = database(
        r#"record(ao, "set") { field(DTYP, "test now") field(OUT, "@x") }
           record(ai, "get") { field(DTYP, "test now") field(INP, "@x") field(PREC, "1") }"#,
    );
    let (set, get_) = (db.find("set").unwrap(), record(&db, "get"));
    db.put(&set, &Value::from(8.5), now()).unwrap();
    db.process(get_, now());
    assert_eq!((get(&mut db, "get"), get(&mut db, "get.UTAG")), ("8.500".into(), "42".into()));
}

#[test]
fn a_bad_address_is_reported_with_its_record_and_can_be_corrected() {
    let mut db = database(r#"record(ai, "a") { field(DTYP, "test later") field(INP, "@bad") }"#);
    let notices = db.take_notices();
    assert_eq!(notices[0].0, "a: DTYP \"test later\": found \"bad\"; expected \"good\"");
    let inp = db.find("a.INP").unwrap();
    db.put(&inp, &Value::from("@good"), now()).unwrap();
    exchange(&mut db, "a", good(1.0));
    assert_eq!(get(&mut db, "a"), "1.000");
}

#[test]
fn in_simulation_mode_the_device_is_not_used() {
    let mut db = database(
        r#"record(ai, "a") { field(DTYP, "test later") field(INP, "@x") field(SIMM, "YES") field(SIOL, "12") field(SVAL, "12") }"#,
    );
    let a = record(&db, "a");
    db.process(a, now());
    assert_eq!((get(&mut db, "a"), db.next_request()), ("12.000".into(), None));
}
