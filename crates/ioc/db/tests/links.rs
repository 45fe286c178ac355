//! Values that links read and write, and the alarms of failed links.

use base::{MonoNs, Stamp, Value};
use db::{Db, Macros, NotifyState, Now};

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
fn a_failed_read_is_a_link_alarm_that_names_the_field() {
    let mut db = database(
        "record(stringout, \"s\") { field(VAL, \"no number\") }
         record(waveform, \"w\") { field(FTVL, DOUBLE) field(NELM, 2) field(INP, \"s MSS\") }",
    );
    put(&mut db, "w.PROC", "1");
    assert_eq!([text(&mut db, "w.STAT"), text(&mut db, "w.AMSG")], ["LINK", "field INP"]);
}

#[test]
fn a_link_alarm_names_the_failed_link_although_another_has_the_same_text() {
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
fn a_long_text_is_written_completely_and_read_as_39_bytes() {
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

/// `ms` milliseconds after [`NOW`].
fn after(ms: u64) -> Now {
    Now { wall: NOW.wall, mono: MonoNs(NOW.mono.0 + ms * 1_000_000) }
}

/// Processes everything that is due for three seconds, in steps.
fn three_seconds(db: &mut Db) {
    for step in 0..=300 {
        db.advance(after(step * 10), 1_000);
    }
}

#[test]
fn circular_chains_of_ca_links_keep_processing() {
    let mut db = database(
        "record(calcout, \"co\") { field(CALC, \"A+1\") field(INPA, \"co NPP\") field(ODLY, 0.2) field(OUT, \"co.PROC CA\") }
         record(calc, \"looped\") { field(CALC, \"VAL+1\") field(FLNK, \"loop.PROC CA\") }
         record(seq, \"loop\") { field(DLY1, 0.1) field(DOL1, 1) field(LNK1, \"looped.PROC CA\") }
         record(calc, \"a\") { field(CALC, \"VAL+1\") field(FLNK, \"delay.PROC CA\") }
         record(seq, \"delay\") { field(DLY1, 0.1) field(LNK1, \"b.PROC CA\") }
         record(calc, \"b\") { field(CALC, \"VAL+1\") field(FLNK, \"a.PROC CA\") }",
    );
    for name in ["co", "looped", "a"] {
        put(&mut db, &format!("{name}.PROC"), "1");
    }
    three_seconds(&mut db);
    assert_eq!(["co", "looped", "a", "b"].map(|name| text(&mut db, name)), ["16", "31", "31", "30"]);
}

#[test]
fn a_record_that_processes_itself_by_ca_delays_no_other_record() {
    let mut db = database(
        "record(calc, \"self\") { field(CALC, \"VAL+1\") field(FLNK, \"self.PROC CA\") }
         record(calc, \"own\") { field(CALC, \"VAL+1\") field(INPA, \"own CP\") }
         record(calcout, \"other\") { field(CALC, \"1\") field(ODLY, 0.1) field(OUT, \"done CA\") }
         record(ao, \"done\") {}",
    );
    put(&mut db, "self.PROC", "1");
    put(&mut db, "other.PROC", "1");
    assert_eq!(db.advance(after(0), 1_000), 1_000);
    assert_eq!(db.next_deadline(), Some(MonoNs(0)));
    let before: u32 = text(&mut db, "self").parse().unwrap();
    assert!(before > 400, "{before}");
    put(&mut db, "own.INPA", "");
    db.advance(after(100), 100);
    assert_eq!(text(&mut db, "done"), "1");
    put(&mut db, "self.FLNK", "");
    db.advance(after(200), 100);
    assert_eq!(db.next_deadline(), None);
}

#[test]
fn a_put_with_completion_does_not_wait_for_processing_that_a_ca_link_starts() {
    let mut db = database(
        "record(calcout, \"slow\") { field(CALC, \"A+1\") field(INPA, \"slow\") field(ODLY, 2) }
         record(bo, \"bo\") { field(FLNK, \"slow.PROC CA\") }
         record(ao, \"waits\") { field(DTYP, \"Async Soft Channel\") field(OUT, \"slow.PROC CA\") }",
    );
    for (name, expected) in [("bo", NotifyState::Done), ("waits", NotifyState::Pending)] {
        let channel = db.find(name).unwrap();
        assert_eq!(db.put_notify(&channel, &Value::from(1), 7, NOW), Ok(expected), "{name}");
    }
    db.advance(after(10), 100);
    assert_eq!([text(&mut db, "slow.PACT"), text(&mut db, "waits.PACT")], ["1", "1"]);
    // The first put is not complete. The second one follows it.
    db.advance(after(2_100), 100);
    db.advance(after(4_200), 100);
    assert_eq!(db.take_completed().iter().map(|done| done.token).collect::<Vec<_>>(), [7]);
    assert_eq!([text(&mut db, "slow"), text(&mut db, "waits.SEVR")], ["2", "NO_ALARM"]);
}

#[test]
fn a_link_over_a_channel_holds_the_last_monitored_value_from_the_start() {
    let mut db = database(
        "record(ao, \"src\") { field(VAL, 5) field(PINI, YES) field(PREC, 2) field(EGU, mm) field(MDEL, 10)
             field(HIGH, 4) field(HSV, MAJOR) }
         record(ai, \"at_start\") { field(INP, \"src CA MS\") field(PINI, YES) }
         record(ai, \"follows\") { field(INP, \"src CP MSS\") }
         record(calc, \"later\") { field(CALC, A) field(INPA, \"src CA\") }
         record(stringin, \"as_text\") { field(INP, \"src CP\") }
         record(ai, \"alone\") { field(INP, \"nobody CA\") }
         record(calcout, \"says\") { field(CALC, A) field(INPA, \"src CA\") field(INPB, src) field(OUT, \"to CA\") }
         record(ao, \"to\") {}",
    );
    assert_eq!([text(&mut db, "at_start.STAT"), text(&mut db, "at_start")], ["LINK", "0"]);
    db.advance(NOW, 100);
    assert_eq!(["follows", "follows.STAT", "as_text"].map(|name| text(&mut db, name)), ["5", "HIGH", "5.000000"]);
    put(&mut db, "src", "12");
    db.advance(NOW, 100);
    put(&mut db, "later.PROC", "1");
    assert_eq!([text(&mut db, "later"), text(&mut db, "follows")], ["5", "5"], "the change is within MDEL");
    put(&mut db, "src", "30");
    put(&mut db, "later.PROC", "1");
    assert_eq!(text(&mut db, "later"), "30");
    let later = db.find("later.A").unwrap();
    assert_eq!(db.meta(&later).units.to_str(), "mm");
    put(&mut db, "alone.PROC", "1");
    assert_eq!([text(&mut db, "alone.STAT"), text(&mut db, "alone.AMSG")], ["LINK", "field INP"]);
    three_seconds(&mut db);
    let states = ["INAV", "INBV", "OUTV"].map(|field| text(&mut db, &format!("says.{field}")));
    assert_eq!(states, ["Ext PV OK", "Local PV", "Ext PV OK"]);
}

#[test]
fn a_write_over_a_channel_is_treated_as_a_clients_write() {
    let mut db = database(
        "record(ao, \"refuses\") { field(DISP, 1) }
         record(ao, \"from\") { field(OUT, \"refuses CA\") }
         record(ao, \"past\") { field(OUT, \"refuses\") }
         record(stringout, \"words\") { field(OUT, \"number CA\") }
         record(longout, \"number\") {}
         record(lso, \"long\") { field(SIZV, 60) field(OUT, \"whole.VAL$ CA\") }
         record(lsi, \"whole\") { field(SIZV, 60) }
         record(calc, \"idle\") { field(CALC, \"VAL+1\") field(FLNK, \"number CA\") }",
    );
    put(&mut db, "from", "4");
    db.advance(NOW, 100);
    assert_eq!([text(&mut db, "refuses"), text(&mut db, "from.SEVR")], ["0", "NO_ALARM"]);
    put(&mut db, "past", "5");
    assert_eq!(text(&mut db, "refuses"), "5");
    put(&mut db, "words", "12");
    put(&mut db, "words", "x");
    assert_eq!(text(&mut db, "words.STAT"), "LINK");
    put(&mut db, "long", "a text of more than forty characters, which is long");
    put(&mut db, "idle.PROC", "1");
    db.advance(NOW, 100);
    assert_eq!(text(&mut db, "number"), "12");
    let whole = db.find("whole").unwrap();
    assert_eq!(db.get_long_text(&whole).len(), 51);
}

#[test]
fn a_link_over_a_channel_becomes_remote_when_its_record_is_removed() {
    let mut db = database(
        "record(ao, \"src\") { field(VAL, 5) }
         record(waveform, \"wave\") { field(FTVL, SHORT) field(NELM, 3) }
         record(waveform, \"copy\") { field(FTVL, DOUBLE) field(NELM, 3) field(INP, \"wave CP\") }
         record(ai, \"reads\") { field(INP, \"src CP\") }",
    );
    put(&mut db, "wave", "[1, 2]");
    db.advance(NOW, 100);
    let copy = db.find("copy").unwrap();
    assert_eq!(db.get(&copy, 9), Value::from(vec![1.0, 2.0]));
    put(&mut db, "reads.INP", "wave CP");
    db.advance(NOW, 100);
    assert_eq!(text(&mut db, "reads"), "1");
    put(&mut db, "src", "7");
    db.advance(NOW, 100);
    assert_eq!(text(&mut db, "reads"), "1");
    let wave = db.find("wave").unwrap().record;
    db.remove_record(wave);
    db.unlink(wave, 0, u32::MAX);
    put(&mut db, "reads.PROC", "1");
    assert_eq!(text(&mut db, "reads.STAT"), "LINK");
    assert!(matches!(db.next_remote(), Some(db::RemoteRequest::Connect { .. })));
}
