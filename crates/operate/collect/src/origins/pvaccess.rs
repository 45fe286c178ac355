//! PVAccess channels as a source: the value of each, with alarm, time stamp and properties.

use crate::origin::{Item, Origin};
use crate::serve::wall;
use base::Stamp;
use pva::client::{Action, ChannelId, Event, OpId};
use pva::codec::{Mask, Type, Value};
use pva::nt::Parts;
use pva::request::Request;
use pvanet::session::Session;
use segment::rows::{About, Cause};
use segment::{Datum, Sample};
use std::collections::HashMap;

/// Maximum time without a poll.
const PAUSE: base::DurNs = base::DurNs::from_ms(200);
/// Maximum number of updates of one poll.
const UPDATES_MAX: usize = 1_000;

/// Like the archive of Channel Access variables: the events of the archive deadband, and of alarms.
fn request() -> Request {
    Request { options: vec![("DBE".to_owned(), "ARCHIVE|ALARM".to_owned())], ..Request::default() }
}

pub(crate) struct PvAccess {
    names: Vec<String>,
    open: Option<Open>,
}

/// The open channels.
struct Open {
    session: Session,
    channels: HashMap<OpId, Channel>,
}

struct Channel {
    name: String,
    id: ChannelId,
    /// The parts of its type, from the first update after a connection on.
    parts: Option<Parts>,
    about: About,
    /// The refusal of its last request was reported.
    is_refused: bool,
}

impl PvAccess {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self { names, open: None }
    }
}

impl Origin for PvAccess {
    fn look(&mut self, found: &mut Vec<Item>) -> Result<(), String> {
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::new(&self.names, found).map_err(|error| error.to_string())?),
        };
        let mut event = open.session.step(Session::now() + PAUSE).map_err(|error| error.to_string())?;
        while let Some(now) = event {
            open.event(now, found);
            event = if found.len() < UPDATES_MAX { open.session.client.poll_event() } else { None };
        }
        Ok(())
    }
}

impl Open {
    fn new(names: &[String], found: &mut Vec<Item>) -> std::io::Result<Self> {
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        found.extend(session.complaints.iter().map(|complaint| Item::Told(complaint.0.clone())));
        let mut channels = HashMap::new();
        for name in names {
            let id = session.client.channel(Session::now(), name);
            let op = session.client.start(id, Action::Monitor, &request());
            session.client.renew(op);
            channels.insert(
                op,
                Channel { name: name.clone(), id, parts: None, about: About::default(), is_refused: false },
            );
        }
        Ok(Self { session, channels })
    }

    fn event(&mut self, event: Event, found: &mut Vec<Item>) {
        match event {
            Event::Value { op, changed, .. } => {
                let client = &self.session.client;
                if let (Some(channel), Some(ty), Some(value)) =
                    (self.channels.get_mut(&op), client.ty(op), client.value(op))
                {
                    channel.update(ty, &changed, value, found);
                }
            }
            Event::Disconnected(id) => {
                for channel in self.channels.values_mut().filter(|channel| channel.id == id) {
                    channel.parts = None;
                    found.push(Item::Gap { prefix: channel.name.clone(), cause: Cause::Disconnected, lost: 0 });
                    found.push(Item::Told(format!("{} is disconnected", channel.name)));
                }
            }
            Event::Refused(id, status) => {
                let name = self.session.client.name(id);
                found.push(Item::Told(format!("{name}: its server refused the channel: {}", status.message)));
            }
            Event::Failed(op, status) => {
                let Some(channel) = self.channels.get_mut(&op) else { return };
                channel.parts = None;
                if !std::mem::replace(&mut channel.is_refused, true) {
                    found.push(Item::Gap { prefix: channel.name.clone(), cause: Cause::Refused, lost: 0 });
                    let (name, why) = (&channel.name, &status.message);
                    found.push(Item::Told(format!(
                        "{name}: its server sends no value: {why}; check the server's access rules"
                    )));
                }
            }
            Event::Done(op) => {
                if let Some(channel) = self.channels.get_mut(&op) {
                    channel.parts = None;
                    found.push(Item::Gap { prefix: channel.name.clone(), cause: Cause::Disconnected, lost: 0 });
                }
            }
            Event::Message(..)
            | Event::Connected(_)
            | Event::Ready(_)
            | Event::Described(..)
            | Event::Returned(..)
            | Event::Written(..) => {}
        }
    }
}

impl Channel {
    fn update(&mut self, ty: &Type, changed: &Mask, value: &Value, found: &mut Vec<Item>) {
        self.is_refused = false;
        let is_new = self.parts.is_none();
        let Some(parts) = self.parts.take().or_else(|| Parts::of(ty, "")) else { return };
        if is_new || parts.properties_are_in(changed, ty) {
            self.about = about(&parts, value);
        }
        let datum = match parts.text(value) {
            Some(text) => Some(Datum::from(text)),
            None => parts.value(value).map(Datum::from),
        };
        match datum {
            Some(_) if !is_new && !parts.is_update(changed, ty) => {}
            Some(datum) => {
                let at = match parts.stamp(value) {
                    None | Some(Stamp::EPOCH) => wall(),
                    Some(stamp) => {
                        let (secs, nanos) = stamp.to_unix();
                        (secs as i64).saturating_mul(1_000_000_000).saturating_add(nanos.into())
                    }
                };
                let (severity, status) = (parts.severity(value) as u8, parts.status(value) as u16);
                let sample = Sample { severity, status, ..Sample::new(at, datum) };
                found.push(Item::Sample { name: self.name.clone(), about: self.about.clone(), sample });
            }
            None if is_new => {
                found.push(Item::Told(format!(
                    "{}: not archived: it has no value of a number, a text or an array",
                    self.name
                )));
            }
            None => {}
        }
        self.parts = Some(parts);
    }
}

/// Metadata of a value.
fn about(parts: &Parts, value: &Value) -> About {
    let meta = parts.meta(value);
    let labels = meta.labels.iter().map(|label| label.readable().into_owned()).collect();
    // Only floating-point values have a precision; 0 is a valid precision.
    let first = parts.value(value).and_then(|value| value.get(0));
    let has_point = matches!(first, Some(base::Scalar::F32(_) | base::Scalar::F64(_)));
    let precision = u16::try_from(meta.precision).ok().filter(|_| has_point);
    About { units: meta.units.readable().into_owned(), precision, labels }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Scalar;
    use pva::codec::Kind;
    use pva::nt::{Layout, Place, Shape};

    #[test]
    fn an_update_is_a_sample_with_the_properties_of_its_channel() {
        let ty = Layout::new(Shape::Scalar(Kind::F64)).ty().clone();
        let mut value = Value::zero(&ty);
        for (path, part) in [
            ("value", Value::F64(1.5)),
            ("alarm.severity", Value::I32(2)),
            ("alarm.message", Value::Text("HIHI".into())),
            ("timeStamp.secondsPastEpoch", Value::I64(1_800_000_000)),
            ("display.units", Value::Text("mm".into())),
            ("display.precision", Value::I32(3)),
        ] {
            *Place::find(&ty, path).unwrap().of_mut(&mut value).unwrap() = part;
        }
        let mut channel =
            Channel { name: "x".into(), id: ChannelId(1), parts: None, about: About::default(), is_refused: false };
        let mut found = Vec::new();
        channel.update(&ty, &Mask::of([0]), &value, &mut found);
        let [Item::Sample { name, about, sample }] = &found[..] else { panic!("one sample") };
        assert_eq!((name.as_str(), about.units.as_str(), about.precision), ("x", "mm", Some(3)));
        assert_eq!((sample.at, sample.severity), (1_800_000_000_000_000_000, 2));
        assert_eq!((sample.status, &sample.datum), (base::Status::Hihi as u16, &Datum::Number(Scalar::F64(1.5))));
        let properties = Place::find(&ty, "display").unwrap().bit;
        channel.update(&ty, &Mask::of([properties]), &value, &mut found);
        assert_eq!(found.len(), 1, "properties alone are no sample");
        channel.update(&ty, &Mask::of([1]), &value, &mut found);
        assert_eq!(found.len(), 2);
    }
}
