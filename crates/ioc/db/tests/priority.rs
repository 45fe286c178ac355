//! Order of processing: PRIO, phases, events, interrupts of device supports.

use base::{MonoNs, Stamp, Value};
use db::{Db, DeviceSample, Macros, Now};

fn now(ms: u64) -> Now {
    Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }.plus_nanos(ms * 1_000_000), mono: MonoNs(ms * 1_000_000) }
}

/// Records that append their number to `log` when they are processed, with the given fields.
fn database(records: &[&str]) -> Db {
    // A digit for each processing: the number of the record plus one.
    let mut text = String::from("record(calc, \"log\") { field(CALC, \"VAL*10+A+1\") field(VAL, \"0\") }\n");
    for (number, fields) in records.iter().enumerate() {
        text +=
            &format!("record(ao, \"r{number}\") {{ field(VAL, \"{number}\") field(OUT, \"log.A PP\") {fields} }}\n");
    }
    let mut db = Db::new();
    db.load_records(&text, "test.db", &Macros::default(), &mut |_| None).unwrap_or_else(|error| panic!("{error}"));
    db.init(now(0));
    db
}

fn log(db: &mut Db) -> Vec<u32> {
    let log = db.find("log").unwrap();
    let digits = db.get_text(&log).to_str().to_owned();
    digits.chars().filter_map(|digit| digit.to_digit(10)?.checked_sub(1)).collect()
}

fn put(db: &mut Db, name: &str, value: impl Into<Value>) {
    let channel = db.find(name).unwrap();
    db.put(&channel, &value.into(), now(1)).unwrap();
}

#[test]
fn an_event_processes_high_priority_first_then_by_phase() {
    let event = |prio, phase| format!("field(SCAN, Event) field(EVNT, go) field(PRIO, {prio}) field(PHAS, {phase})");
    let fields = [event("LOW", 0), event("HIGH", 2), event("MEDIUM", 0), event("HIGH", 1)];
    let mut db = database(&fields.iter().map(String::as_str).collect::<Vec<_>>());
    db.post_event("go");
    assert_eq!(db.advance(now(2), 100), 4);
    assert_eq!(log(&mut db), [3, 1, 2, 0]);
}

#[test]
fn scan_once_goes_between_high_and_medium_callbacks() {
    let event = |prio| format!("field(SCAN, Event) field(EVNT, go) field(PRIO, {prio})");
    let fields = [event("HIGH"), event("MEDIUM"), "field(SDIS, \"source CP\")".to_owned()];
    let mut db = database(&fields.iter().map(String::as_str).collect::<Vec<_>>());
    db.load_records("record(ao, \"source\") {}", "more.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(now(1));
    put(&mut db, "r2.SDIS", "source CP");
    db.advance(now(1), 100);
    let before = log(&mut db).len();
    db.post_event("go");
    put(&mut db, "source", 5.0);
    db.advance(now(2), 100);
    assert_eq!(log(&mut db)[before..], [0, 2, 1]);
}

#[test]
fn an_interrupt_processes_only_the_records_that_listen() {
    let mut db = database(&["field(PRIO, LOW)", "field(PRIO, HIGH)", ""]);
    let (source, other) = (db.source("card 0"), db.source("card 1"));
    assert_eq!(db.source("card 0"), source);
    for (name, source) in [("r0", source), ("r1", source), ("r2", other)] {
        let record = db.find(name).unwrap().record;
        db.listen(record, Some(source));
        put(&mut db, &format!("{name}.SCAN"), "I/O Intr");
    }
    db.interrupt(source);
    db.advance(now(2), 100);
    assert_eq!(log(&mut db), [1, 0]);
    // A record that no longer listens to a source is not processed.
    let record = db.find("r1").unwrap().record;
    db.listen(record, Some(other));
    db.interrupt(source);
    db.interrupt(other);
    db.advance(now(3), 100);
    assert_eq!(log(&mut db)[2..], [1, 0, 2], "high priority of the other source is first");
    assert_eq!(db.source_lists().map(|(_, records)| records.len()).sum::<usize>(), 3);
}

#[test]
fn a_source_keeps_its_newest_value_and_returns_the_previous_one() {
    let mut db = database(&[""]);
    let source = db.source("card 0");
    let record = db.find("r0").unwrap().record;
    db.listen(record, Some(source));
    let fed = |value: f64| DeviceSample::good(Value::from(value), Stamp::EPOCH);
    assert_eq!(db.feed(source, fed(1.0)), None);
    assert_eq!(db.feed(source, fed(2.0)), Some(fed(1.0)));
    assert_eq!(db.fed(record), Some(&fed(2.0)));
}

#[test]
fn io_intr_scanning_without_a_source_is_refused_and_reported() {
    let mut db = database(&["field(SCAN, \"I/O Intr\")"]);
    let scan = db.find("r0.SCAN").unwrap();
    assert_eq!(db.get(&scan, 1), Value::Scalar(base::Scalar::Enum(0)));
    assert!(db.take_notices().iter().any(|notice| notice.0.contains("I/O Intr")));
}

#[test]
fn a_record_removed_from_its_scan_list_during_the_scan_is_not_processed() {
    let fields = [
        "field(SCAN, Event) field(EVNT, go) field(OUT, \"r1.EVNT\") field(VAL, 7)",
        "field(SCAN, Event) field(EVNT, go) field(PHAS, 1)",
    ];
    let mut db = database(&fields);
    db.post_event("go");
    db.advance(now(2), 100);
    assert_eq!(log(&mut db), [] as [u32; 0]);
    db.post_event("7");
    db.advance(now(3), 100);
    assert_eq!(log(&mut db), [1]);
}
