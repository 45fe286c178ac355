//! Helpers for tests of record types: a database in virtual time.

use crate::run::events::QueueId;
use crate::{Db, Macros, Now};
use base::{DurNs, EventMask, MonoNs, Scalar, Value};

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

/// Starts to record the posts of fields.
pub(crate) fn watch(db: &mut Db, fields: &[&str]) -> QueueId {
    let queue = db.open_queue(1_000);
    for (token, field) in fields.iter().enumerate() {
        let channel = db.find(field).unwrap();
        db.subscribe(queue, &channel, EventMask::VALUE, token as u64);
    }
    db.drain(queue, usize::MAX, |_, _| ());
    queue
}

/// Fields of a record that `act` changes without a post of the new value.
pub(crate) fn unposted(db: &mut Db, record: &str, act: impl FnOnce(&mut Db)) -> Vec<String> {
    let rec = db.find(record).unwrap().record;
    let fields = db.records.type_of(rec).fields.iter().filter(|field| field.kind.is_some());
    let names: Vec<String> = fields.map(|field| field.name.clone()).collect();
    let channels: Vec<_> = names.iter().map(|name| db.find(&format!("{record}.{name}")).unwrap()).collect();
    let mut last: Vec<Value> = channels.iter().map(|channel| db.get(channel, usize::MAX)).collect();
    let queue = db.open_queue(100_000);
    for (token, channel) in channels.iter().enumerate() {
        db.subscribe(queue, channel, EventMask::VALUE | EventMask::LOG | EventMask::ALARM, token as u64);
    }
    db.drain(queue, usize::MAX, |_, _| ());
    act(db);
    db.drain(queue, usize::MAX, |_, event| last[event.token as usize] = event.value);
    let now = channels.iter().map(|channel| db.get(channel, usize::MAX));
    names
        .iter()
        .zip(last.iter().zip(now))
        .filter(|(_, (last, now))| differ(last, now))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Whether two values differ by more than the records themselves regard as a change.
fn differ(one: &Value, other: &Value) -> bool {
    let numbers = [one, other].map(|value| match value {
        Value::Scalar(scalar) => crate::text::conv::number::<f64>(*scalar),
        Value::Array(_) => None,
    });
    match numbers {
        [Some(one), Some(other)] => (one - other).abs() > 1e-6,
        _ => one != other,
    }
}

/// The posts since the last call, in their order: field and number.
pub(crate) fn seen<'a>(db: &mut Db, queue: QueueId, fields: &[&'a str]) -> Vec<(&'a str, f64)> {
    let mut seen = Vec::new();
    db.drain(queue, usize::MAX, |_, event| {
        let value = event.value.get(0).and_then(crate::text::conv::number::<f64>);
        seen.push((fields[event.token as usize], value.unwrap_or(f64::NAN)));
    });
    seen
}
