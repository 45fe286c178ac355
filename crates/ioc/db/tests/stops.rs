//! Breakpoints: which records stop, which continue, and when a waiting put completes.

use base::{MonoNs, Stamp};
use db::{Db, Hook, Macros, NotifyState, Now, RecId, Stop};
use std::sync::mpsc::{Receiver, channel};

const NOW: Now = Now { wall: Stamp { secs: 1_000, nanos: 0 }, mono: MonoNs(1_000) };

const DATABASE: &str = r#"
record(ao, "first") { field(FLNK, "second") }
record(calc, "second") { field(CALC, "VAL+1") field(FLNK, "third") }
record(calc, "third") { field(CALC, "VAL+1") }
record(calc, "apart") { field(CALC, "VAL+1") }
"#;

fn database() -> Db {
    let mut db = Db::new();
    db.load_records(DATABASE, "test.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(NOW);
    db
}

fn record(db: &Db, name: &str) -> RecId {
    db.find(name).unwrap().record
}

fn value(db: &mut Db, name: &str) -> f64 {
    let channel = db.find(name).unwrap();
    db.get(&channel, 1).get(0).unwrap().to_f64().unwrap()
}

/// A hook that calls `meanwhile` with the database and then continues at once; and the stops at which it was called.
fn hook(mut meanwhile: impl FnMut(&mut Db) + Send + 'static) -> (Hook, Receiver<Stop>) {
    let (sender, stops) = channel();
    let hook = Box::new(move |db: &mut Db, stop| {
        sender.send(stop).unwrap();
        meanwhile(db);
        NOW
    });
    (hook, stops)
}

#[test]
fn a_put_with_completion_waits_with_the_record_that_a_breakpoint_holds() {
    let mut db = database();
    let (first, second) = (record(&db, "first"), record(&db, "second"));
    assert_eq!(db.set_break(second), (true, Some(1)));
    assert_eq!(db.set_break(second), (false, None));
    assert_eq!((db.break_marks(second), db.break_marks(first)), (1, 0));
    let channel = db.find("first").unwrap();
    assert_eq!(db.stop_due(), None);
    assert_eq!(db.put_notify(&channel, &5.0.into(), 7, NOW), Ok(NotifyState::Pending));
    assert_eq!((value(&mut db, "second"), db.stop_due()), (0.0, Some(1)));
    let (hook, stops) = hook(|db| {
        // During the processing: other lock sets continue, the stopped one starts no second round.
        db.process(record(db, "apart"), NOW);
        db.process(record(db, "first"), NOW);
        assert_eq!((value(db, "apart"), value(db, "second")), (1.0, 0.0));
        assert_eq!(db.stop_sets()[0].stopped, Some(record(db, "second")));
        assert!(db.stop_due().is_none() && db.take_completed().is_empty());
        db.go_on(1, false);
    });
    let (hook, ended) = db.run_stops(1, NOW, hook);
    assert_eq!(stops.try_iter().collect::<Vec<_>>(), [Stop::At { record: second, entry: first }]);
    assert_eq!((value(&mut db, "second"), value(&mut db, "third")), (1.0, 1.0));
    assert_eq!(db.take_completed().into_iter().map(|done| done.token).collect::<Vec<_>>(), [7]);
    assert!(!ended && db.stop_due().is_none());
    // Removing the last breakpoint: the lock set runs once more, and is then like others.
    assert!(db.clear_break(second) && !db.clear_break(second));
    assert_eq!(db.stop_due(), Some(1));
    assert!(db.run_stops(1, NOW, hook.unwrap()).1);
    assert_eq!((db.stop_due(), db.stop_sets().len()), (None, 0));
    db.process(first, NOW);
    assert_eq!((value(&mut db, "third"), stops.try_iter().count()), (2.0, 0));
}

#[test]
fn stepping_stops_at_each_record_and_ends_at_the_entry_point() {
    let mut db = database();
    let names = ["first", "second", "third"].map(|name| record(&db, name));
    let [first, second, third] = names;
    db.set_break(first);
    assert!(db.toggle_print(third));
    db.process(first, NOW);
    let (hook, stops) = hook(|db| db.go_on(1, true));
    let (hook, _) = db.run_stops(1, NOW, hook);
    let expected = [first, second, third].map(|record| Stop::At { record, entry: first });
    let seen: Vec<Stop> = stops.try_iter().collect();
    assert_eq!((&seen[..3], &seen[3..]), (&expected[..], &[Stop::Print(third)][..]));
    // An entry point without a breakpoint is not stepped through.
    db.process(second, NOW);
    db.run_stops(1, NOW, hook.unwrap());
    assert_eq!(stops.try_iter().collect::<Vec<_>>(), [Stop::Print(third)]);
}
