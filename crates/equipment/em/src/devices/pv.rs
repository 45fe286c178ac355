//! Process variables of EPICS IOCs.

use crate::error::DeviceError;
use base::{DurNs, MonoNs, Scalar, Str40, Value};
use ca::client::{ChannelId, Event};
use ca::{Basic, Class, Dbr};
use canet::session::Session;
use equipment::{Datum, Device, DeviceFault, DeviceSpec};

pub(super) struct Pvs {
    session: Session,
    points: Vec<(String, ChannelId)>,
    timeout: DurNs,
}

impl Pvs {
    pub(super) fn new(spec: &DeviceSpec) -> Result<Self, DeviceError> {
        let mut session = Session::open(|name| std::env::var(name).ok()).map_err(DeviceError::ChannelAccess)?;
        let now = Session::now();
        let points = spec.points.iter().map(|name| (name.clone(), session.client.channel(now, name, 0))).collect();
        Ok(Self { session, points, timeout: spec.settings.time("timeout").unwrap_or(DurNs::from_secs(1)) })
    }

    /// Runs the session until `over` returns a result, or until the timeout.
    fn wait<T>(
        &mut self,
        what: &str,
        mut over: impl FnMut(&mut Session, Option<Event>) -> Option<T>,
    ) -> Result<T, DeviceFault> {
        let until = Session::now() + self.timeout;
        let mut event = None;
        loop {
            if let Some(found) = over(&mut self.session, event.take()) {
                return Ok(found);
            }
            match self.session.step(until) {
                Ok(Some(next)) => event = Some(next),
                Ok(None) if Session::now() < until => {}
                Ok(None) => return Err(DeviceFault::Silent(format!("{what}: no answer in {}", self.timeout).into())),
                Err(error) => return Err(DeviceFault::Silent(format!("{what}: {error}").into())),
            }
        }
    }

    /// The type of a channel. Connects it first.
    fn connect(&mut self, point: usize) -> Result<(ChannelId, Basic, String), DeviceFault> {
        let (name, id) = self.points[point].clone();
        let info = self.wait(&format!("{name} is not found"), |session, _| session.client.info(id))?;
        Ok((id, info.native, name))
    }
}

impl Device for Pvs {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        let (id, native, name) = self.connect(point)?;
        let basic = if matches!(native, Basic::String | Basic::Enum) { Basic::String } else { Basic::Double };
        let asked = self.session.client.read(id, Dbr::new(Class::Plain, basic), 1);
        let asked = asked.map_err(|error| DeviceFault::Refused(format!("{name}: {error:?}").into()))?;
        let result = self.wait(&name, |_, event| match event {
            Some(Event::Read { io, result, .. }) if io == asked => Some(result),
            _ => None,
        })?;
        let (_, reading) = result.map_err(|status| DeviceFault::Refused(format!("{name}: {status}").into()))?;
        match reading.value.get(0) {
            Some(Scalar::String(text)) => Ok(Datum::Text(text.to_string().into())),
            Some(scalar) => {
                scalar.to_f64().map(Datum::Number).ok_or(DeviceFault::Silent(format!("{name} is no number").into()))
            }
            None => Err(DeviceFault::Silent(format!("{name} has no element").into())),
        }
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        let (id, _, name) = self.connect(point)?;
        let value = match value {
            Datum::Number(number) => Value::Scalar(Scalar::F64(*number)),
            Datum::Text(text) => Value::Scalar(Scalar::String(Str40::new(text.as_bytes()))),
        };
        let asked = self.session.client.write(id, &value, true);
        let asked = asked.map_err(|error| DeviceFault::Refused(format!("{name}: {error:?}").into()))?;
        let result = self.wait(&name, |_, event| match event {
            Some(Event::Written { io, result, .. }) if Some(io) == asked => Some(result),
            _ => None,
        })?;
        result.map_err(|status| DeviceFault::Refused(format!("{name}: {status}").into()))
    }
}
