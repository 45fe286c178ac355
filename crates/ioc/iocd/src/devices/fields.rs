//! Fields of records used in protocols: `%(FIELD)…`, `%(RECORD)…`, `%(RECORD.FIELD)…`.
//!
//! They are read and written on the threads that own the records, while the calling thread waits. Call this from threads of
//! ports only, never from scan threads.

use crate::engine::Mailbox;
use base::{Array, FieldType, Scalar, Stamp, Str40};
use db::{Channel, Db, Now, PutError};
use fieldbus::stream::{Field, Kind, Protocol, RunInputs, State, Takes, Value};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};

/// The time stamp of the record. It is not a field of Channel Access.
const TIME: &str = "TIME";
/// Texts from this length on do not fit a DBR_STRING.
const STRING_BYTES: usize = 40;

/// Access to the fields of an IOC, from the point of view of one record.
#[derive(Clone)]
pub(super) struct Fields {
    ioc: Arc<OnceLock<Mailbox>>,
    /// The record that uses the protocol.
    own: String,
}

/// Kind of a write to fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// By the record's device: other passive records are processed, as for a client's write. The record itself is not.
    Runs,
    /// Initial values: no record is processed, and UDF is cleared.
    Begins,
}

/// Time stamp of the record in a received line.
pub(super) fn stamp(fields: &[(String, Vec<Value>)]) -> Option<Stamp> {
    let (_, values) = fields.iter().rfind(|(name, _)| name == TIME)?;
    match values.last()? {
        Value::Float(secs) => {
            Some(Stamp::from_unix(secs.trunc() as u64, (secs.fract() * 1e9).min(999_999_999.0) as u32))
        }
        _ => None,
    }
}

/// Full name of a field, and whether it belongs to the record itself.
fn resolve(db: &Db, own: &str, name: &str) -> Option<(String, bool)> {
    let field = format!("{own}.{name}");
    let full = if !name.contains('.') && db.has_field(&field) { field } else { name.to_owned() };
    let record = db.find(&full).ok()?.record;
    let is_own = db.find(own).is_ok_and(|own| own.record == record);
    Some((full, is_own))
}

impl Fields {
    pub(super) fn new(ioc: Arc<OnceLock<Mailbox>>, own: &str) -> Self {
        Self { ioc, own: own.to_owned() }
    }

    /// Runs `work` with a field on its owner's thread; `None` if the field does not exist or the IOC has ended.
    fn with<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&mut Db, &Channel, bool, Now) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        let (own, name, mut work) = (self.own.clone(), name.to_owned(), Some(work));
        self.ioc.get()?.tell(move |engine| {
            let Some((name, is_own)) = resolve(&engine.store.db, &own, &name) else { return };
            let record = name.clone();
            let job = move |db: &mut Db, now: Now| {
                if let (Some(work), Ok(channel)) = (work.take(), db.find(&name)) {
                    // The channel has room for one answer.
                    let _ = reply.try_send(work(db, &channel, is_own, now));
                }
            };
            engine.call(&record, Box::new(job));
        });
        answer.recv().ok()
    }

    /// Writes fields of the record itself, without waiting for it.
    pub(super) fn set(&self, fields: Vec<(&'static str, base::Value)>) {
        let Some(ioc) = self.ioc.get() else { return };
        let own = self.own.clone();
        ioc.tell(move |engine| {
            let name = own.clone();
            let job = move |db: &mut Db, now: Now| {
                for (field, value) in &fields {
                    let put = db.find(&format!("{own}.{field}")).map(|channel| db.put_by_device(&channel, value, now));
                    if let Ok(Err(error)) = put {
                        eprintln!("{own}.{field}: {error}");
                    }
                }
            };
            engine.call(&name, Box::new(job));
        });
    }

    /// The text of a field; `None` if it does not exist.
    pub(super) fn text(&self, name: &str) -> Option<base::Value> {
        self.with(name, |db, channel, _, _| as_kind(db, channel, Kind::Text))?
    }

    /// Reports fields of a protocol that do not exist.
    pub(super) fn check(&self, protocol: &Protocol) {
        let names = protocol.fields().into_iter().map(|(name, _)| name.to_owned());
        let names: Vec<String> = names.filter(|name| name != TIME).collect();
        let own = self.own.clone();
        if let (false, Some(ioc)) = (names.is_empty(), self.ioc.get()) {
            ioc.tell(move |engine| {
                for name in names.iter().filter(|name| resolve(&engine.store.db, &own, name).is_none()) {
                    eprintln!("{own}: protocol: %({name}): no such field of it, and no such record");
                }
            });
        }
    }

    /// Reads the fields that a protocol writes to the device and, if `own` is set, the record's value.
    pub(super) fn fill(&self, protocol: &Protocol, own: bool, given: &mut RunInputs) {
        given.fields = protocol.fields().into_iter().map(|(name, kind)| self.read(name, kind)).collect();
        if own && protocol.says_own_value() {
            self.read_own(given);
        }
    }

    fn read(&self, name: &str, kind: Kind) -> Field {
        let read = match name {
            TIME => self.with("VAL", |db, channel, _, _| (Some(unix(db.stamp_of(channel).0)), Takes::One)),
            _ => self.with(name, move |db, channel, _, _| (as_kind(db, channel, kind), takes(db, channel))),
        };
        let (value, takes) = read.unwrap_or_default();
        Field { name: name.to_owned(), kind, value, takes }
    }

    /// Reads the record's own value, for the `out` of an input.
    fn read_own(&self, given: &mut RunInputs) {
        let read =
            |name: &str| self.with(name, |db, channel, _, _| (db.get(channel, usize::MAX), db.get_text(channel)));
        let Some((value, text)) = read("VAL") else { return };
        if let base::Value::Scalar(Scalar::Enum(number)) = value {
            let raw = read("RVAL").map(|(raw, _)| raw);
            given.raw = raw.and_then(|raw| raw.get(0)).and_then(Scalar::to_f64).map(|raw| raw as i64);
            given.state = Some(State { number: number.into(), name: Some(text.bytes().to_vec()) });
        }
        given.value = Some(value);
    }

    /// Writes received values to fields. Returns whether all writes succeeded.
    pub(super) fn write(&self, fields: &[(String, Vec<Value>)], how: Write) -> bool {
        let one = |(name, values): &(String, Vec<Value>)| {
            let values = values.clone();
            let put = move |db: &mut Db, channel: &Channel, own: bool, now: Now| -> Result<(), PutError> {
                let value = for_field(db, channel, &values);
                match how {
                    Write::Runs if own => db.put_by_device(channel, &value, now),
                    Write::Runs => db.put(channel, &value, now),
                    Write::Begins => db.begin_with(channel, &value, now),
                }
            };
            match self.with(name, put) {
                Some(Ok(())) => true,
                Some(Err(error)) => {
                    eprintln!("{}: protocol: %({name}): {error}", self.own);
                    false
                }
                None => false,
            }
        };
        // Writes all fields, even if one fails. The record's time is stored with its value.
        fields.iter().filter(|field| field.0 != TIME && !one(field)).count() == 0
    }
}

/// A stamp as seconds since 1970.
fn unix(stamp: Stamp) -> base::Value {
    let (secs, nanos) = stamp.to_unix();
    base::Value::from(secs as f64 + f64::from(nanos) / 1e9)
}

/// Whether an array of characters is used as a text.
fn is_text(db: &Db, channel: &Channel) -> bool {
    let info = db.info(channel);
    info.kind == FieldType::String && info.text_size > 40
        || info.array && matches!(info.kind, FieldType::I8 | FieldType::U8)
}

fn takes(db: &Db, channel: &Channel) -> Takes {
    let info = db.info(channel);
    let most = info.elements_max as usize;
    match info.array {
        true if is_text(db, channel) => Takes::Characters(most),
        true => Takes::Many(most),
        false => Takes::One,
    }
}

/// A field's value in the type that a conversion needs.
fn as_kind(db: &mut Db, channel: &Channel, kind: Kind) -> Option<base::Value> {
    let as_type = match kind {
        Kind::Text if is_text(db, channel) => return Some(db.get(channel, usize::MAX)),
        Kind::Text => FieldType::String,
        Kind::Int => FieldType::I64,
        Kind::Float => FieldType::F64,
    };
    let values = db.get_as(channel, as_type)?;
    if db.info(channel).array { Some(base::Value::Array(values)) } else { values.get(0).map(base::Value::Scalar) }
}

/// Received values in the type that a field needs.
fn for_field(db: &Db, channel: &Channel, values: &[Value]) -> base::Value {
    if let ([Value::Text(text)], true) = (values, is_text(db, channel))
        && (db.info(channel).array || text.len() >= STRING_BYTES)
    {
        return base::Value::Array(Array::U8(text.clone()));
    }
    let scalar = |value: &Value| match value {
        Value::Float(value) => Scalar::F64(*value),
        Value::Int(value) | Value::Enum(value) => i32::try_from(*value).map_or(Scalar::I64(*value), Scalar::I32),
        Value::Text(text) => Scalar::String(Str40::new(text)),
    };
    match values {
        [one] => base::Value::Scalar(scalar(one)),
        [Value::Text(_), ..] => {
            base::Value::Array(Array::String(values.iter().map(|value| base::text::scalar(scalar(value), 6)).collect()))
        }
        several => base::Value::Array(Array::F64(
            several.iter().map(|value| scalar(value).to_f64().unwrap_or(f64::NAN)).collect(),
        )),
    }
}
