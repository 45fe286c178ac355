//! Signals over PVAccess: the field `value` of channels, with alarm, time stamp and properties.

use super::{
    Callback, Command, LOOK_EVERY, Once, Orders, Outcome, PATIENCE, Sample, Series, TEXT_MAX, about, cut, description,
    unix_ns,
};
use base::{MonoNs, Stamp};
use canet::Waker;
use pva::client::{Action, ChannelId, Event, OpId};
use pva::codec::{Array, Kind, Mask, Type, Value};
use pva::nt::{Parts, Place, is_enum};
use pva::request::Request;
use pvanet::session::Session;
use serde_json::json;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use sys::rounds::Rounds;

const VALUE: &str = "value";
/// Maximum number of elements of an array that are displayed.
const ELEMENTS_MAX: usize = 16;

/// A channel with its users.
struct Channel {
    name: String,
    series: Option<Arc<Series>>,
    monitor: Option<OpId>,
    /// The parts of its type, from the first update after a connection on.
    parts: Option<(Parts, Place)>,
    once: Vec<Waiting>,
}

struct Waiting {
    what: Once,
    until: MonoNs,
    op: OpId,
    done: Callback,
}

pub(super) struct Thread {
    session: Session,
    orders: Orders,
    channels: HashMap<ChannelId, Channel>,
    names: HashMap<String, ChannelId>,
    ops: HashMap<OpId, ChannelId>,
}

impl Thread {
    pub(super) fn new(bell: Waker, orders: Orders) -> io::Result<Self> {
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        session.listen_to(bell);
        Ok(Self { session, orders, channels: HashMap::new(), names: HashMap::new(), ops: HashMap::new() })
    }

    pub(super) fn run(&mut self, rounds: &Rounds) {
        loop {
            rounds.count();
            while let Some(command) = self.orders.next() {
                self.command(command);
            }
            match self.session.step(Session::now() + LOOK_EVERY) {
                Ok(Some(event)) => self.event(event),
                Ok(None) => self.give_up(),
                Err(error) => {
                    eprintln!("tahti dash: signals have stopped: PVAccess: {error}");
                    return;
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Watch(name, series) => {
                let id = self.channel(&name);
                let Some(channel) = self.channels.get_mut(&id) else { return };
                let client = &mut self.session.client;
                series.change(|inner| inner.is_connected = client.server(id).is_some());
                let op = client.start(id, Action::Monitor, &Request::default());
                client.renew(op);
                self.ops.insert(op, id);
                (channel.series, channel.monitor) = (Some(series), Some(op));
            }
            Command::Leave(name) => {
                let Some(id) = self.names.get(&name).copied() else { return };
                let Some(channel) = self.channels.get_mut(&id) else { return };
                (channel.series, channel.parts) = (None, None);
                if let Some(op) = channel.monitor.take() {
                    self.ops.remove(&op);
                    self.session.client.end(op);
                }
                self.tidy(id);
            }
            Command::Once(name, what, done) => {
                let id = self.channel(&name);
                let op = match &what {
                    Once::Describe => self.session.client.start(id, Action::Get, &Request::default()),
                    Once::Put(_) => {
                        let options = vec![("block".to_owned(), "true".to_owned())];
                        let request = Request { fields: vec![VALUE.to_owned()], options };
                        self.session.client.start(id, Action::Put, &request)
                    }
                };
                self.ops.insert(op, id);
                let Some(channel) = self.channels.get_mut(&id) else { return };
                channel.once.push(Waiting { what, until: Session::now() + PATIENCE, op, done });
            }
        }
    }

    fn channel(&mut self, name: &str) -> ChannelId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.session.client.channel(Session::now(), name);
        let channel = Channel { name: name.to_owned(), series: None, monitor: None, parts: None, once: Vec::new() };
        self.channels.insert(id, channel);
        self.names.insert(name.to_owned(), id);
        id
    }

    /// Closes a channel without users.
    fn tidy(&mut self, id: ChannelId) {
        if self.channels.get(&id).is_some_and(|channel| channel.series.is_none() && channel.once.is_empty())
            && let Some(channel) = self.channels.remove(&id)
        {
            self.names.remove(&channel.name);
            self.session.client.close(id);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected(id) => {
                if let Some(series) = self.channels.get(&id).and_then(|channel| channel.series.as_ref()) {
                    series.change(|inner| inner.is_connected = true);
                }
            }
            Event::Disconnected(id) => self.without_value(id),
            Event::Refused(id, status) => {
                let Some(channel) = self.channels.get(&id) else { return };
                let ops: Vec<OpId> = channel.once.iter().map(|waiting| waiting.op).collect();
                let why = format!("its server refuses the channel: {}", status.message);
                ops.into_iter().for_each(|op| self.ended(op, Err(why.clone())));
            }
            Event::Ready(op) => {
                // The names of states are in the present value.
                let ty = self.session.client.ty(op).and_then(|ty| Place::find(ty, VALUE)).map(|place| place.ty);
                match ty.as_ref().and_then(Type::fields) {
                    Some(_) => self.session.client.read(op),
                    None => self.write(op),
                }
            }
            Event::Value { op, changed, .. } => self.value(op, &changed),
            Event::Done(op) => self.op_ended(op, Ok(json!({}))),
            Event::Failed(op, status) => self.op_ended(op, Err(format!("its server refuses: {}", status.message))),
            Event::Written(..) | Event::Described(..) | Event::Returned(..) | Event::Message(..) => {}
        }
    }

    /// A channel has no server, or its monitor has ended. The client requests both again.
    fn without_value(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.parts = None;
        if let Some(series) = &channel.series {
            series.change(|inner| inner.is_connected = false);
        }
    }

    fn op_ended(&mut self, op: OpId, outcome: Outcome) {
        match self.ops.get(&op) {
            Some(id) if self.channels.get(id).is_some_and(|channel| channel.monitor == Some(op)) => {
                self.without_value(*id);
            }
            _ => self.ended(op, outcome),
        }
    }

    /// Completes a single operation.
    fn ended(&mut self, op: OpId, outcome: Outcome) {
        let Some(id) = self.ops.remove(&op) else { return };
        self.session.client.end(op);
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Some(at) = channel.once.iter().position(|waiting| waiting.op == op) {
            (channel.once.remove(at).done)(outcome);
            self.tidy(id);
        }
    }

    fn value(&mut self, op: OpId, changed: &Mask) {
        let client = &self.session.client;
        let (Some(ty), Some(value)) = (client.ty(op), client.value(op)) else { return };
        let Some((id, channel)) = self.ops.get(&op).and_then(|id| Some((*id, self.channels.get_mut(id)?))) else {
            return;
        };
        if channel.monitor == Some(op) {
            if let Some(series) = &channel.series {
                if channel.parts.is_none() {
                    series.change(|inner| inner.is_connected = true);
                }
                update(series, &mut channel.parts, ty, changed, value);
            }
            return;
        }
        match channel.once.iter().find(|waiting| waiting.op == op).map(|waiting| &waiting.what) {
            Some(Once::Describe) => {
                let server = client.server(id).map(|server| server.to_string());
                let described = described(ty, value, server);
                self.ended(op, Ok(described));
            }
            Some(Once::Put(_)) => self.write(op),
            None => {}
        }
    }

    /// Sends a write whose type is known.
    fn write(&mut self, op: OpId) {
        let client = &mut self.session.client;
        let (Some(ty), Some(value)) = (client.ty(op), client.value(op)) else { return };
        let Some(channel) = self.ops.get(&op).and_then(|id| self.channels.get(id)) else { return };
        let waiting = channel.once.iter().find(|waiting| waiting.op == op);
        let Some(Once::Put(text)) = waiting.map(|waiting| &waiting.what) else { return };
        match assigned(ty, value, text) {
            Ok((mask, value)) => client.write(op, &mask, &value),
            Err(why) => self.ended(op, Err(why)),
        }
    }

    /// Ends operations whose timeout has expired.
    fn give_up(&mut self) {
        let now = Session::now();
        let late = self.channels.iter().flat_map(|(id, channel)| {
            let late = channel.once.iter().filter(move |waiting| waiting.until < now);
            late.map(move |waiting| (waiting.op, *id))
        });
        let late: Vec<(OpId, ChannelId)> = late.collect();
        for (op, id) in late {
            let is_found = self.session.client.server(id).is_some();
            let why = if is_found { "its server does not answer" } else { "no server has it" };
            let why = format!("{why} (within {PATIENCE}); EPICS_PVA_ADDR_LIST says where it is searched");
            self.ended(op, Err(why));
        }
    }
}

/// Takes an update into a series.
fn update(series: &Series, known: &mut Option<(Parts, Place)>, ty: &Type, changed: &Mask, value: &Value) {
    let is_new = known.is_none();
    let find = || Some((Parts::of(ty, "")?, Place::find(ty, VALUE)?));
    let Some((parts, place)) = known.take().or_else(find) else { return };
    if is_new || parts.properties_are_in(changed, ty) {
        let about = about(&parts.meta(value));
        series.change(|inner| inner.about = about);
    }
    if is_new || parts.is_update(changed, ty) {
        let severity = parts.severity(value) as u8;
        let stamp = parts.stamp(value).filter(|stamp| *stamp != Stamp::EPOCH);
        let at_ns = stamp.map_or_else(|| sys::clock::wall_ns() as i64, unix_ns);
        match shown(&parts, &place, value) {
            Ok(value) => series.push(Sample { at_ns, value, severity }),
            Err(text) => series.change(|inner| (inner.text, inner.severity) = (Some(text), severity)),
        }
    }
    *known = Some((parts, place));
}

/// The value as a number, or else as a text.
fn shown(parts: &Parts, place: &Place, top: &Value) -> Result<f64, String> {
    match place.of(top) {
        Some(Value::Text(text)) => Err(cut(text.chars().take(TEXT_MAX + 1).collect())),
        Some(Value::Array(array)) => {
            let one = |value: Value| match (value.as_text(), value.to_i64(), value.to_f64()) {
                (Some(text), ..) => text.chars().take(TEXT_MAX + 1).collect(),
                (_, Some(whole), _) => whole.to_string(),
                (.., number) => number.map_or_else(String::new, |number| number.to_string()),
            };
            let elements: Vec<String> =
                (0..array.len().min(ELEMENTS_MAX)).filter_map(|at| array.get(at)).map(one).collect();
            Err(cut(format!("[{}]", elements.join(", "))))
        }
        _ => match parts.value(top) {
            Some(base::Value::Scalar(scalar)) => scalar.to_f64().ok_or_else(String::new),
            _ => Err("a structure".to_owned()),
        },
    }
}

fn described(ty: &Type, value: &Value, server: Option<String>) -> serde_json::Value {
    let place = Place::find(ty, VALUE);
    let elements = match place.as_ref().and_then(|place| place.of(value)) {
        Some(Value::Array(array)) => array.len(),
        _ => 1,
    };
    let name = match place.map_or_else(|| ty.clone(), |place| place.ty) {
        Type::Scalar(kind) => kind.name().to_owned(),
        Type::Array(kind) => format!("{}[]", kind.name()),
        Type::Struct(fields) if is_enum(&fields) => "enum".to_owned(),
        _ => "structure".to_owned(),
    };
    let meta = Parts::of(ty, "").map(|parts| parts.meta(value)).unwrap_or_default();
    description(Some(name), Some(elements), &meta, None, server)
}

/// A structure with a value from a text, and the field that is written.
fn assigned(ty: &Type, top: &Value, text: &str) -> Result<(Mask, Value), String> {
    let mut place = Place::find(ty, VALUE).ok_or("it has no field \"value\"")?;
    let one = |kind: Kind, word: &str| {
        kind.parse(word).ok_or_else(|| format!("\"{word}\" is no value of the type {}", kind.name()))
    };
    let new = match &place.ty {
        Type::Scalar(kind) => one(*kind, text)?,
        Type::Array(kind) => {
            let inner = text.trim();
            let inner = inner.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(inner);
            let words = inner.split(',').map(str::trim).filter(|word| !word.is_empty());
            Value::Array(Array::of(*kind, words.map(|word| one(*kind, word)).collect::<Result<_, _>>()?))
        }
        Type::Struct(fields) if is_enum(fields) => {
            let choices = place.child("choices").and_then(|place| place.of(top).cloned());
            let Some(Value::Array(Array::Text(choices))) = choices else { return Err("it has no states".to_owned()) };
            place = place.child("index").ok_or("it has no states")?;
            let number = || text.trim().parse().ok().filter(|number| *number < choices.len());
            let index = choices.iter().position(|choice| choice == text).or_else(number);
            let index =
                index.ok_or_else(|| format!("\"{text}\" is no state, expected one of {}", choices.join(", ")))?;
            Value::I32(index as i32)
        }
        _ => return Err("its value is not a number, a text, a state or an array of them".to_owned()),
    };
    let mut top = top.clone();
    *place.of_mut(&mut top).ok_or("it has no value")? = new;
    Ok((Mask::of([place.bit]), top))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pva::nt::{Layout, Shape};

    fn structure(shape: Shape, parts: &[(&str, Value)]) -> (Type, Value) {
        let ty = Layout::new(shape).ty().clone();
        let mut top = Value::zero(&ty);
        for (path, value) in parts {
            *Place::find(&ty, path).unwrap().of_mut(&mut top).unwrap() = value.clone();
        }
        (ty, top)
    }

    fn mode(index: i32) -> (Type, Value) {
        let choices = Array::Text(vec!["Idle".into(), "2".into(), "Beam on".into()]);
        structure(Shape::Enum, &[("value.choices", Value::Array(choices)), ("value.index", Value::I32(index))])
    }

    #[test]
    fn an_update_is_a_sample_with_its_time_severity_and_properties() {
        let (ty, value) = structure(
            Shape::Scalar(Kind::F64),
            &[
                ("value", Value::F64(1.5)),
                ("alarm.severity", Value::I32(2)),
                ("timeStamp.secondsPastEpoch", Value::I64(1_800_000_000)),
                ("display.units", Value::Text("mm".into())),
            ],
        );
        let (series, mut known, mut seen) = (Series::default(), None, 0);
        update(&series, &mut known, &ty, &Mask::of([0]), &value);
        let properties = Place::find(&ty, "display").unwrap().bit;
        update(&series, &mut known, &ty, &Mask::of([properties]), &value);
        let mut samples = Vec::new();
        series.read(&mut 0, |sample| samples.push((sample.at_ns, sample.value, sample.severity)));
        assert_eq!(samples, [(1_800_000_000_000_000_000, 1.5, 2)], "properties alone are no sample");
        assert_eq!(series.changed(&mut seen, 1).unwrap()["units"], "mm");
    }

    #[test]
    fn states_are_numbers_with_names_and_texts_and_arrays_are_texts() {
        let (ty, value) = mode(2);
        let (series, mut seen) = (Series::default(), 0);
        update(&series, &mut None, &ty, &Mask::of([0]), &value);
        assert_eq!(series.changed(&mut seen, 1).unwrap()["labels"], json!(["Idle", "2", "Beam on"]));
        series.read(&mut 0, |sample| assert!((sample.value - 2.0).abs() < f64::EPSILON));
        let many = Value::Array(Array::I64(vec![i64::MAX; 1_000]));
        let long = Value::Text("x".repeat(1_000));
        for (shape, value, starts) in [
            (Shape::Array(Kind::F64), Value::Array(Array::F64(vec![1.5, 2.0])), "[1.5, 2]"),
            (Shape::Array(Kind::I64), many, "[9223372036854775807, "),
            (Shape::Scalar(Kind::Text), long, "xxx"),
        ] {
            let (ty, value) = structure(shape, &[("value", value)]);
            update(&series, &mut None, &ty, &Mask::of([0]), &value);
            let now = series.changed(&mut seen, 1).unwrap();
            let text = now["text"].as_str().unwrap();
            assert!(text.starts_with(starts) && text.chars().count() <= TEXT_MAX + 1, "{text}");
        }
    }

    #[test]
    fn a_channel_is_described_by_type_units_limits_and_states() {
        let (ty, value) = structure(Shape::Array(Kind::I16), &[("value", Value::Array(Array::I16(vec![1, 2, 3])))]);
        let about = described(&ty, &value, Some("127.0.0.1:5075".into()));
        assert_eq!((&about["type"], &about["elements"]), (&json!("short[]"), &json!(3)));
        let (ty, value) = mode(0);
        let about = described(&ty, &value, None);
        assert_eq!((&about["type"], &about["states"]), (&json!("enum"), &json!(["Idle", "2", "Beam on"])));
        assert_eq!(described(&Type::Any, &Value::Any(None), None)["type"], "structure");
    }

    #[test]
    fn a_text_is_written_in_the_type_of_the_channel() {
        for (shape, text, value) in [
            (Shape::Scalar(Kind::F64), "1.5", Value::F64(1.5)),
            (Shape::Scalar(Kind::Text), " a text ", Value::Text(" a text ".into())),
            (Shape::Array(Kind::I32), "[1, 2]", Value::Array(Array::I32(vec![1, 2]))),
            (Shape::Array(Kind::I32), "3", Value::Array(Array::I32(vec![3]))),
            (Shape::Array(Kind::I32), "[]", Value::Array(Array::I32(Vec::new()))),
        ] {
            let (ty, top) = structure(shape, &[]);
            assert_eq!(
                assigned(&ty, &top, text),
                Ok((Mask::of([1]), structure(shape, &[("value", value)]).1)),
                "{text}"
            );
        }
        let (ty, top) = mode(0);
        for (text, index) in [("Beam on", 2), ("0", 0), ("2", 1)] {
            assert_eq!(assigned(&ty, &top, text), Ok((Mask::of([2]), mode(index).1)), "a name comes before a number");
        }
        let refused = |ty: &Type, top: &Value, text: &str| assigned(ty, top, text).unwrap_err();
        assert_eq!(refused(&ty, &top, "3"), "\"3\" is no state, expected one of Idle, 2, Beam on");
        let (ty, top) = structure(Shape::Scalar(Kind::U8), &[]);
        assert_eq!(refused(&ty, &top, "256"), "\"256\" is no value of the type ubyte");
        let union = Type::Struct(pva::codec::Struct::new("", vec![("value".into(), Type::Any)]).unwrap());
        assert!(refused(&union, &Value::zero(&union), "1").contains("is not a number"));
    }
}
