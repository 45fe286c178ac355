//! What links read and write, and which alarm they raise where they fail.

use base::{MonoNs, Stamp, Value};
use db::{Db, Macros, Now};

const NOW: Now = Now { wall: Stamp { secs: 1_000_000_000, nanos: 0 }, mono: MonoNs(0) };

fn database(text: &str) -> Db {
    let mut db = Db::new();
    db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap_or_else(|error| panic!("{error}"));
    db.init(NOW);
    db
}

fn put(db: &mut Db, name: &str, text: &str) {
    let channel = db.find(name).unwrap();
    db.put_text(&channel, text, NOW).unwrap();
}

fn text(db: &mut Db, name: &str) -> String {
    let channel = db.find(name).unwrap();
    db.get_text(&channel).to_str().to_owned()
}

#[test]
fn a_failed_read_is_a_link_alarm_and_passes_no_severity_on() {
    let mut db = database(
        "record(stringout, \"s\") { field(VAL, \"no number\") }
         record(waveform, \"w\") { field(FTVL, DOUBLE) field(NELM, 2) field(INP, \"s MSS\") }",
    );
    put(&mut db, "w.PROC", "1");
    assert_eq!([text(&mut db, "w.STAT"), text(&mut db, "w.AMSG")], ["LINK", "field INP"]);
}

#[test]
fn a_link_alarm_names_the_link_that_failed_where_another_has_the_same_text() {
    let mut db = database(
        "record(longout, \"n\") {}
         record(stringout, \"s\") { field(DOL, \"n\") field(OUT, \"n\") field(FLNK, \"n\") }",
    );
    put(&mut db, "s", "no number");
    assert_eq!([text(&mut db, "s.STAT"), text(&mut db, "s.AMSG")], ["LINK", "field OUT"]);
}

#[test]
fn an_undefined_sub_array_shows_no_elements() {
    let mut db = database(
        "record(stringout, \"s\") { field(VAL, \"no number\") }
         record(subArray, \"a\") { field(MALM, 3) field(NELM, 2) field(FTVL, LONG) field(INP, \"s\") }",
    );
    put(&mut db, "a", "[1, 2]");
    assert_eq!([text(&mut db, "a.UDF"), text(&mut db, "a.NORD")], ["1", "2"]);
    let a = db.find("a").unwrap();
    assert_eq!(db.get(&a, usize::MAX).len(), 0);
    let mut into = Value::from(vec![0; 3]);
    db.get_into(&a, usize::MAX, &mut into);
    assert_eq!(into.len(), 0);
}

#[test]
fn a_long_text_is_written_whole_and_read_as_39_bytes() {
    let mut db = database(
        "record(lso, \"from\") { field(SIZV, 60) field(OUT, \"whole\") }
         record(lsi, \"whole\") { field(SIZV, 60) }
         record(lsi, \"cut\") { field(SIZV, 60) field(INP, \"from\") }",
    );
    let long = "a text of more than forty characters, which is long";
    put(&mut db, "from", long);
    put(&mut db, "cut.PROC", "1");
    let (whole, cut) = (db.find("whole").unwrap(), db.find("cut").unwrap());
    assert_eq!(db.get_long_text(&whole), long.as_bytes());
    assert_eq!(db.get_long_text(&cut), &long.as_bytes()[..39]);
}
