//! Helpers for tests of record types: a database in virtual time.

use crate::{Db, Macros, Now};
use base::{DurNs, MonoNs, Scalar, Value};

/// Records of a text, started and at rest.
pub(crate) fn started(text: &str) -> Db {
    let mut db = Db::new();
    db.load_records(text, "test.db", &Macros::default(), &mut |_| None).unwrap();
    db.init(Now::default());
    db.advance(Now::default(), 1_000);
    db
}

fn now(db: &Db) -> Now {
    Now { mono: db.time.now.mono, ..Now::default() }
}

/// Writes a field like a client.
pub(crate) fn put(db: &mut Db, name: &str, value: impl Into<Value>) {
    let channel = db.find(name).unwrap();
    let now = now(db);
    db.put(&channel, &value.into(), now).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    db.advance(now, 1_000);
}

/// Lets time pass, from delay to delay.
pub(crate) fn wait(db: &mut Db, seconds: f64) {
    let end = db.time.now.mono + DurNs((seconds * 1e9) as i64);
    while let Some(next) = db.next_deadline().filter(|next| *next <= end) {
        let mono = MonoNs(next.0.max(db.time.now.mono.0));
        db.advance(Now { mono, ..Now::default() }, 1_000);
    }
    db.advance(Now { mono: end, ..Now::default() }, 1_000);
}

/// A field as a number.
pub(crate) fn number(db: &mut Db, name: &str) -> f64 {
    let channel = db.find(name).unwrap();
    match db.get_as(&channel, base::FieldType::F64).and_then(|array| array.get(0)) {
        Some(Scalar::F64(number)) => number,
        other => panic!("{name}: {other:?}"),
    }
}

/// A field as text.
pub(crate) fn text(db: &mut Db, name: &str) -> String {
    let channel = db.find(name).unwrap();
    match db.get_as(&channel, base::FieldType::String).and_then(|array| array.get(0)) {
        Some(Scalar::String(text)) => text.to_str().to_owned(),
        other => panic!("{name}: {other:?}"),
    }
}
