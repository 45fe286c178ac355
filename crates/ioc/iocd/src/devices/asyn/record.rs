//! The asyn record: exchanges on a port, and the port's settings.

use super::inbox::{Message, Talk, latest};
use crate::devices::fields::Fields;
use crate::devices::{DeviceSupport, Interrupt, Ports, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{Array, DurNs, Scalar, Status, Str40, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use fieldbus::octet::{OctetFailure, Until};
use port::Trace;
use std::sync::Arc;

/// The device support.
pub(super) struct AsynRecord;

impl DeviceSupport for AsynRecord {
    fn name(&self) -> &'static str {
        "asynRecordDevice"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &["asyn"]
    }

    fn attach(&self, place: &Attaching<'_>, ports: &Ports) -> Result<Served, AttachError> {
        let fields = Fields::new(ports.ioc(), place.name);
        let device = Panel { ports: ports.clone(), fields, port: String::new() };
        Ok(Served { device: Some(Box::new(device)), ..Served::default() })
    }
}

/// The device of one record.
struct Panel {
    ports: Ports,
    fields: Fields,
    port: String,
}

impl Panel {
    /// Shows a text in ERRS.
    fn show_error(&self, error: &str) {
        self.fields.set(vec![("ERRS", Value::Scalar(Scalar::String(Str40::from(error))))]);
    }

    /// Trace of the port or block; `None` if it does not exist.
    fn trace(&self) -> Option<Arc<Trace>> {
        // Without a name, the settings would be those of all ports.
        let named = (!self.port.is_empty()).then(|| self.ports.traces(&self.port).ok());
        named.flatten()?.first().cloned()
    }

    /// Writes the settings of the port into the record.
    fn publish(&self) {
        let number = |value: u32| Value::from(value as i32);
        let Some(trace) = self.trace() else {
            let off = ["PCNCT", "CNCT", "ENBL", "AUCT", "OCTETIV"].map(|field| (field, number(0)));
            return self.fields.set(off.to_vec());
        };
        let line = self.ports.find(&self.port).ok();
        let mut all = vec![
            ("PCNCT", number(1)),
            ("CNCT", number(1)),
            ("ENBL", number(1)),
            ("AUCT", number(1)),
            ("OCTETIV", number(line.is_some().into())),
            ("TMSK", number(trace.mask())),
            ("TIOM", number(trace.io())),
            ("TINM", number(trace.info())),
            ("TSIZ", number(trace.truncate() as u32)),
        ];
        if let Some(port) = line {
            let text = |bytes: &[u8]| {
                let shown = bytes.escape_ascii().to_string();
                Value::Scalar(Scalar::String(Str40::from(shown.as_str())))
            };
            all.extend([("OEOS", text(&port.output_end)), ("IEOS", text(&port.input_end))]);
        }
        self.fields.set(all);
    }

    /// Applies a field that was written.
    fn set(&mut self, field: &str, value: &Value) {
        let text = match value {
            Value::Scalar(scalar) => base::text::scalar(*scalar, 6),
            Value::Array(_) => return,
        };
        let text = text.to_str();
        let number = text.parse::<u32>().unwrap_or_default();
        if field == "PORT" {
            self.port = text.trim().to_owned();
            self.publish();
        }
        let option = |key: &str, value: &str| {
            self.ports.change(&self.port, |port| port.address.set(key, value)).map_err(|error| error.to_string())
        };
        let Some(trace) = self.trace() else {
            let error = if self.port.is_empty() { String::new() } else { format!("no port {}", self.port) };
            return self.show_error(&error);
        };
        let done = match field {
            "PORT" => Err(String::new()),
            "OEOS" | "IEOS" => {
                let end = db::unescape(text).into_owned();
                self.ports.set_end(&self.port, field == "IEOS", end).map_err(|error| error.to_string())
            }
            "TMSK" => {
                trace.set_mask(number);
                Ok(())
            }
            "TIOM" => {
                trace.set_io(number);
                Ok(())
            }
            "TINM" => {
                trace.set_info(number);
                Ok(())
            }
            "TSIZ" => {
                trace.set_truncate(number as usize);
                Ok(())
            }
            "TFIL" => trace.set_file(text).map_err(|error| error.to_string()),
            "BAUD" => {
                match ["", "300", "600", "1200", "2400", "4800", "9600", "19200", "38400", "57600", "115200", "230400"]
                    .get(number as usize)
                {
                    Some(&baud) if !baud.is_empty() => option("baud", baud),
                    _ => Ok(()),
                }
            }
            "LBAUD" if number > 0 => option("baud", text),
            "PRTY" if (1..4).contains(&number) => option("parity", ["none", "even", "odd"][number as usize - 1]),
            "DBIT" if (1..5).contains(&number) => option("bits", ["5", "6", "7", "8"][number as usize - 1]),
            "SBIT" if (1..3).contains(&number) => option("stop", ["1", "2"][number as usize - 1]),
            "FCTL" if (1..3).contains(&number) => option("crtscts", ["N", "Y"][number as usize - 1]),
            "IXON" if (1..3).contains(&number) => option("ixon", ["N", "Y"][number as usize - 1]),
            "CNCT" | "PCNCT" | "ENBL" | "AUCT" if number == 0 => Err("ports stay connected and enabled".to_owned()),
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.show_error(&error);
        }
    }

    /// Exchanges a message.
    fn exchange(&self, now: Now, output: &Output, reply: Reply) {
        let (mode, binary) = (output.raw & 7, |bit: u32| output.raw >> bit & 1 != 0);
        let (max, limit) = ((output.raw >> 8 & 0xffff) as usize, DurNs::from_ms(output.raw >> 24));
        let (Ok((port, inbox)), Ok(settings)) = (self.ports.inbox(&self.port), self.ports.find(&self.port)) else {
            return reply.send(DeviceSample::failed(Status::Comm));
        };
        let mut out = match &output.value {
            Value::Array(Array::U8(bytes)) => bytes.clone(),
            _ => Vec::new(),
        };
        if mode <= 1 && !binary(4) {
            out.extend(settings.output_end);
        }
        let terminator = if binary(3) { Vec::new() } else { settings.input_end };
        let until = matches!(mode, 0 | 2).then_some(Until { terminator, max, limit });
        let written = out.len() as u64;
        let message = match mode {
            0 | 1 => Message { out, until, flush: mode == 0 },
            2 => Message { until, ..Message::default() },
            _ => {
                inbox.flush();
                return reply.send(DeviceSample::done(crate::engine::now().wall));
            }
        };
        let reads = mode != 1;
        let talk = Talk::new(message, inbox, latest(now.mono, limit), move |answer| {
            let stamp = crate::engine::now().wall;
            reply.send(match answer {
                Ok(received) => {
                    let tag = written << 1 | u64::from(received.terminated);
                    let value = reads.then_some(Value::Array(Array::U8(received.bytes)));
                    DeviceSample { value, tag, ..DeviceSample::done(stamp) }
                }
                Err(OctetFailure::Timeout(bytes)) => DeviceSample {
                    value: Some(Value::Array(Array::U8(bytes))),
                    ..DeviceSample::failed(Status::Timeout)
                },
                Err(OctetFailure::Closed(why)) => DeviceSample::lost(&why),
            });
        });
        if let Err(job) = port.submit_or_refuse(Box::new(talk)) {
            job.missed("too many wait for the port");
        }
    }
}

impl RecordDevice for Panel {
    fn start(&mut self, _: Now, _: Interrupt) {}

    fn request(&mut self, _: Now, output: Option<Output>, reply: Reply) {
        match output {
            Some(Output { name: Some(field), value, .. }) => {
                // Nothing waits for a setting.
                reply.withdraw();
                self.set(field.to_str(), &value);
            }
            Some(output) => self.exchange(now(), &output, reply),
            None => reply.send(DeviceSample::failed(Status::Comm)),
        }
    }
}
