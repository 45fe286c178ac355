//! Channels of PVAccess servers: the field `value`.

use super::{ChannelValue, Unavailable, Unfit, Unwritten};
use crate::value::{Native, States, to_saved};
use base::DurNs;
use db::SavedValue;
use pva::client::{Action, ChannelId, Event, OpId};
use pva::codec::{Array, Kind, Mask, Type, Value};
use pva::nt::{Parts, Place, is_enum};
use pva::request::Request;
use pvanet::session::Session;
use std::collections::{HashMap, HashSet};
use std::io;

const VALUE: &str = "value";

/// Channels over one session.
pub(super) struct PvaChannels {
    session: Session,
    ids: Vec<ChannelId>,
    /// State names of each channel, from the last read.
    known: Vec<Option<Vec<String>>>,
    /// Maximum time to wait for the servers of all channels together.
    within: DurNs,
}

impl PvaChannels {
    pub(super) fn open(names: &[String], within: DurNs) -> io::Result<Self> {
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        let ids = names.iter().map(|name| session.client.channel(Session::now(), name)).collect();
        Ok(Self { session, ids, known: vec![None; names.len()], within })
    }

    pub(super) fn read(&mut self) -> io::Result<Vec<Result<ChannelValue, Unavailable>>> {
        let client = &mut self.session.client;
        let request = Request { fields: vec![VALUE.to_owned()], ..Request::default() };
        let gets = self.ids.iter().map(|id| client.start(*id, Action::Get, &request));
        let mut waiting: HashMap<OpId, usize> = gets.zip(0..).collect();
        let mut missing: HashSet<ChannelId> =
            self.ids.iter().copied().filter(|id| client.server(*id).is_none()).collect();
        let mut found = vec![Err(Unavailable::NotFound); self.ids.len()];
        for connects in [true, false] {
            let until = Session::now() + self.within;
            while !(waiting.is_empty() || connects && missing.is_empty()) {
                let Some(event) = self.session.step(until)? else { break };
                self.received(event, &mut waiting, &mut missing, &mut found);
            }
            // The rest of the time is for channels with a server.
            for (op, at) in waiting.extract_if(|_, at| !connects || missing.contains(&self.ids[*at])) {
                self.session.client.end(op);
                if !missing.contains(&self.ids[at]) {
                    found[at] = Err(Unavailable::NoAnswer);
                }
            }
        }
        Ok(found)
    }

    fn received(
        &mut self,
        event: Event,
        waiting: &mut HashMap<OpId, usize>,
        missing: &mut HashSet<ChannelId>,
        found: &mut [Result<ChannelValue, Unavailable>],
    ) {
        let client = &mut self.session.client;
        match event {
            Event::Connected(id) => {
                missing.remove(&id);
            }
            Event::Refused(id, status) => {
                missing.remove(&id);
                for (op, at) in waiting.extract_if(|_, at| self.ids[*at] == id) {
                    found[at] = Err(Unavailable::Refused(status.message.clone()));
                    client.end(op);
                }
            }
            Event::Value { op, .. } => {
                let Some(at) = waiting.remove(&op) else { return };
                let mut value = client.ty(op).zip(client.value(op)).and_then(|(ty, value)| to_value(ty, value));
                value.iter_mut().for_each(|value| value.may_write = client.may_write(self.ids[at]));
                self.known[at] = value.as_ref().map(|value| value.labels.clone());
                found[at] = value.ok_or(Unavailable::NotSimple);
                client.end(op);
            }
            Event::Failed(op, status) => {
                let Some(at) = waiting.remove(&op) else { return };
                found[at] = Err(Unavailable::Refused(status.message));
            }
            _ => {}
        }
    }

    pub(super) fn write(&mut self, at: usize, saved: (&SavedValue, &States)) -> io::Result<Result<(), Unwritten>> {
        let (id, client) = (self.ids[at], &mut self.session.client);
        let (Some(labels), Some(_)) = (&self.known[at], client.server(id)) else {
            return Ok(Err(Unwritten::Disconnected));
        };
        let options = vec![("block".to_owned(), "true".to_owned())];
        let put = client.start(id, Action::Put, &Request { fields: vec![VALUE.to_owned()], options });
        let (until, mut is_sent) = (Session::now() + self.within, false);
        let outcome = loop {
            let event = self.session.step(until)?;
            let client = &mut self.session.client;
            match event {
                Some(Event::Ready(op)) if op == put => {
                    let Some((ty, value)) = client.ty(put).zip(client.value(put)) else { continue };
                    match assigned(saved, ty, value, labels) {
                        Ok((mask, value)) => client.write(put, &mask, &value),
                        Err(unfit) => break Err(Unwritten::BadValue(unfit)),
                    }
                    is_sent = true;
                }
                Some(Event::Done(op)) if op == put => break Ok(()),
                // The connection was lost, perhaps after the write.
                Some(Event::Failed(op, _)) if op == put && client.server(id).is_none() => {
                    break Err(Unwritten::NoAnswer);
                }
                Some(Event::Failed(op, status)) if op == put => break Err(Unwritten::Refused(status.message)),
                Some(_) => {}
                None if is_sent => break Err(Unwritten::NoAnswer),
                None => break Err(Unwritten::Disconnected),
            }
        };
        self.session.client.end(put);
        Ok(outcome)
    }
}

/// The type of a channel with a value of this type.
fn native_of(ty: &Type) -> Option<Native> {
    match ty {
        Type::Scalar(kind) => Some(Native::Pva { kind: *kind, is_array: false }),
        Type::Array(kind) => Some(Native::Pva { kind: *kind, is_array: true }),
        Type::Struct(fields) if is_enum(fields) => Some(Native::PvaState),
        _ => None,
    }
}

/// The value of a received structure; `None` if it is not a number, a text, a state or an array.
fn to_value(ty: &Type, top: &Value) -> Option<ChannelValue> {
    let place = Place::find(ty, VALUE)?;
    let native = native_of(&place.ty)?;
    let value = match place.of(top)? {
        Value::Text(text) => SavedValue::Text(text.clone().into_bytes()),
        Value::Array(Array::Text(texts)) => {
            SavedValue::Array(texts.iter().map(|text| text.clone().into_bytes()).collect())
        }
        _ => to_saved(&Parts::of(ty, VALUE)?.value(top)?, false),
    };
    let labels = match place.child("choices").and_then(|choices| choices.of(top)) {
        Some(Value::Array(Array::Text(labels))) => labels.clone(),
        _ => Vec::new(),
    };
    Some(ChannelValue { value, may_write: true, native, labels, states: States::Number(None) })
}

/// A structure with a saved value, and the field that is written.
fn assigned(saved: (&SavedValue, &States), ty: &Type, top: &Value, labels: &[String]) -> Result<(Mask, Value), Unfit> {
    let nothing = || Unfit { found: crate::shown(saved.0), expected: Unavailable::NotSimple.to_string() };
    let place = Place::find(ty, VALUE).ok_or_else(nothing)?;
    let native = native_of(&place.ty).ok_or_else(nothing)?;
    let value = of_saved(saved, native, labels).ok_or_else(|| Unfit::of(saved, native, labels))?;
    let place = if native == Native::PvaState { place.child("index").ok_or_else(nothing)? } else { place };
    let mut top = top.clone();
    *place.of_mut(&mut top).ok_or_else(nothing)? = value;
    Ok((Mask::of([place.bit]), top))
}

/// Converts a saved text to a value of the channel's type: of a state, its number. Returns `None` if it is invalid.
pub(super) fn of_saved((saved, states): (&SavedValue, &States), native: Native, labels: &[String]) -> Option<Value> {
    let elements = match saved {
        SavedValue::Text(text) => std::slice::from_ref(text),
        SavedValue::Array(elements) => elements,
    };
    match (native, elements) {
        (Native::PvaState, [text]) => Some(Value::I32(states.index_of(text, labels)?.try_into().ok()?)),
        (Native::Pva { kind, is_array: false }, [text]) => scalar(text, kind),
        (Native::Pva { kind, is_array: true }, elements) => {
            let scalars: Option<Vec<Value>> = elements.iter().map(|text| scalar(text, kind)).collect();
            Some(Value::Array(Array::of(kind, scalars?)))
        }
        _ => None,
    }
}

fn scalar(text: &[u8], kind: Kind) -> Option<Value> {
    kind.parse(std::str::from_utf8(text).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::are_equal;
    use crate::file::{Saved, Settings};
    use proptest::prelude::*;
    use pva::nt::{Layout, Shape};

    fn text(text: &str) -> SavedValue {
        SavedValue::Text(text.into())
    }

    /// A structure with a value as servers send it.
    fn structure(shape: Shape, value: Value) -> (Type, Value) {
        let ty = Layout::new(shape).ty().clone();
        let mut top = Value::zero(&ty);
        *Place::find(&ty, VALUE).unwrap().of_mut(&mut top).unwrap() = value;
        (ty, top)
    }

    fn mode(index: i32, labels: &[&str]) -> (Type, Value) {
        let choices = Array::Text(labels.iter().map(|label| (*label).to_owned()).collect());
        structure(Shape::Enum, Value::Struct(vec![Value::I32(index), Value::Array(choices)]))
    }

    /// Saves a value in a file, and returns what the file has of it.
    fn through_a_file(value: &ChannelValue) -> Saved {
        let states = States::Number(value.label().map(str::to_owned));
        let values = vec![Saved { name: "pva://A:B".into(), value: Some(value.value.clone()), states }];
        let head = Some(crate::Head::new("rf", base::Stamp::from_unix(1_800_000_000, 0), "me", ""));
        Settings::parse(&Settings { head, values }.text(), "f").unwrap().values.remove(0)
    }

    #[test]
    fn values_of_all_types_are_saved_and_restored_exactly() {
        let long = "a text that is longer than the forty bytes of a string, with = and \u{e9}";
        let (one, many) = (Shape::Scalar, Shape::Array);
        for (shape, value, shown) in [
            (one(Kind::Bool), Value::Bool(true), "1"),
            (one(Kind::I8), Value::I8(-7), "-7"),
            (one(Kind::U64), Value::U64(u64::MAX), "18446744073709551615"),
            (one(Kind::I64), Value::I64(i64::MIN), "-9223372036854775808"),
            (one(Kind::F32), Value::F32(0.1), "0.1"),
            (one(Kind::F64), Value::F64(-2e-7), "-2e-7"),
            (one(Kind::F64), Value::F64(f64::INFINITY), "inf"),
            (one(Kind::Text), Value::Text(long.into()), long),
            (many(Kind::F64), Value::Array(Array::F64(vec![0.1, 1e300])), "[0.1, 1e300]"),
            (many(Kind::Bool), Value::Array(Array::Bool(vec![false, true])), "[0, 1]"),
            (many(Kind::I16), Value::Array(Array::I16(Vec::new())), "[]"),
            (many(Kind::Text), Value::Array(Array::Text(vec![long.into(), String::new()])), &format!("[{long}, ]")),
        ] {
            let (ty, top) = structure(shape, value);
            let found = to_value(&ty, &top).unwrap();
            assert_eq!(crate::shown(&found.value), shown);
            let saved = through_a_file(&found);
            assert!(are_equal(&saved, &found, crate::Tolerance::default()), "{saved:?}");
            let value = (saved.value.as_ref().unwrap(), &saved.states);
            assert_eq!(found.check(value), Ok(()));
            assert_eq!(assigned(value, &ty, &Value::zero(&ty), &[]), Ok((Mask::of([1]), top)));
        }
    }

    #[test]
    fn a_state_is_saved_by_number_and_name_and_restored_by_both() {
        let (ty, top) = mode(1, &["Idle", "Beam on"]);
        let found = to_value(&ty, &top).unwrap();
        assert_eq!((&found.value, found.named(), found.label()), (&text("1"), text("1 (Beam on)"), Some("Beam on")));
        let saved = through_a_file(&found);
        assert_eq!(saved.states, States::Number(Some("Beam on".into())));
        // The states are renumbered: the name decides.
        let (_, top) = mode(0, &["Idle", "Standby", "Beam on"]);
        let now = to_value(&ty, &top).unwrap();
        assert!(!are_equal(&saved, &now, crate::Tolerance::default()));
        let value = (saved.value.as_ref().unwrap(), &saved.states);
        let (mask, written) = assigned(value, &ty, &top, &now.labels).unwrap();
        assert_eq!((mask, written), (Mask::of([2]), mode(2, &["Idle", "Standby", "Beam on"]).1));
        let gone = to_value(&ty, &mode(0, &["Idle", "Standby"]).1).unwrap();
        let error = gone.check(value).unwrap_err().to_string();
        assert!(error.contains("1 (Beam on)") && error.contains("0 (Idle), 1 (Standby)"), "{error}");
    }

    #[test]
    fn a_saved_value_that_does_not_fit_the_type_is_refused_with_the_values_that_do() {
        for (kind, saved, expected) in [
            (Kind::I8, "128", "a number from -128 to 127"),
            (Kind::U16, "-1", "a number from 0 to 65535"),
            (Kind::Bool, "2", "a number from 0 to 1"),
            (Kind::F64, "fast", "a number"),
            (Kind::I32, "1.5", "a number from -2147483648 to 2147483647"),
        ] {
            let (ty, top) = structure(Shape::Scalar(kind), Value::zero(&Type::Scalar(kind)));
            let unfit = to_value(&ty, &top).unwrap().check((&text(saved), &States::Number(None))).unwrap_err();
            assert_eq!((unfit.found.as_str(), unfit.expected.as_str()), (saved, expected));
        }
        let (ty, top) = structure(Shape::Scalar(Kind::F64), Value::F64(0.0));
        let two = SavedValue::Array(vec![b"1".to_vec(), b"2".to_vec()]);
        assert!(to_value(&ty, &top).unwrap().check((&two, &States::Number(None))).is_err());
    }

    #[test]
    fn a_channel_without_a_simple_value_is_not_saved() {
        let fields = vec![("value".to_owned(), Type::Any)];
        let ty = Type::Struct(pva::codec::Struct::new("", fields).unwrap());
        assert_eq!(to_value(&ty, &Value::zero(&ty)), None);
        assert_eq!(to_value(&Type::Any, &Value::Any(None)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_saved_value_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            for states in [States::Name, States::Number(None), States::Number(Some("On".into()))] {
                let saved = [SavedValue::Text(bytes.clone()), SavedValue::Array(vec![bytes.clone(); 3])];
                for saved in saved.iter().map(|saved| (saved, &states)) {
                    let _ = of_saved(saved, Native::PvaState, &["Off".to_owned(), "On".to_owned()]);
                    for kind in Kind::ALL {
                        let _ = of_saved(saved, Native::Pva { kind, is_array: false }, &[]);
                        let _ = of_saved(saved, Native::Pva { kind, is_array: true }, &[]);
                    }
                }
            }
        }
    }
}
