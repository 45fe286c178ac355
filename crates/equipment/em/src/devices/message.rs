//! Objects of other managers, accessed by messages.

use base::{DurNs, MonoNs};
use broker::{Client, Sending};
use equipment::{Datum, Device, DeviceFault, DeviceSpec};
use msg::{Band, Code, Escaped};

pub(super) struct Messages {
    server: String,
    name: String,
    points: Vec<String>,
    timeout: DurNs,
    client: Option<Client>,
}

impl Messages {
    pub(super) fn new(spec: &DeviceSpec, server: &str) -> Self {
        let settings = &spec.settings;
        Self {
            server: settings.text("server").unwrap_or(server).to_owned(),
            name: spec.name.clone(),
            points: spec.points.clone(),
            timeout: settings.time("timeout").unwrap_or(DurNs::from_secs(1)),
            client: None,
        }
    }

    fn ask(&mut self, line: &str) -> Result<String, DeviceFault> {
        if self.client.is_none() {
            let client = Client::connect(&self.server, &self.name, Band::DEFAULT);
            self.client = Some(client.map_err(|error| DeviceFault::Silent(error.to_string().into()))?);
        }
        let Some(client) = &mut self.client else { return Err(DeviceFault::Silent("no client".into())) };
        match client.ask(line, &Sending { limit: self.timeout, ..Sending::default() }) {
            Ok(reply) if reply.code == Code::Ok => Ok(reply.text),
            Ok(reply) => {
                let why = format!("{line}: {} {}", reply.code, reply.text).into();
                Err(match reply.code {
                    Code::Busy | Code::Overload | Code::Locked => DeviceFault::Busy(why),
                    Code::Timeout | Code::Unknown | Code::Expired | Code::NoObject => DeviceFault::Silent(why),
                    _ => DeviceFault::Refused(why),
                })
            }
            Err(error) => {
                self.client = None;
                Err(DeviceFault::Silent(error.to_string().into()))
            }
        }
    }
}

impl Device for Messages {
    fn read(&mut self, point: usize, _: MonoNs) -> Result<Datum<'_>, DeviceFault> {
        let reply = self.ask(&format!("get/{}", self.points[point]))?;
        // A number with a unit is read as the number. The row defines the expected unit.
        let end = reply.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(reply.len());
        Ok(match (reply.parse(), reply[..end].trim_end_matches(['e', 'E']).parse()) {
            (Ok(number), _) | (_, Ok(number)) => Datum::Number(number),
            _ => Datum::Text(reply.into()),
        })
    }

    fn write(&mut self, point: usize, value: &Datum<'_>, _: MonoNs) -> Result<(), DeviceFault> {
        let point = &self.points[point];
        let (object, form) = point.split_once('/').unwrap_or((point, "{value}"));
        let complement = form.replace("{value}", &value.to_string());
        let line = format!("put/{object}/{}", Escaped(complement.as_str()));
        self.ask(&line).map(drop)
    }
}
