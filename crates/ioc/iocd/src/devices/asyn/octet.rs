//! Records on a port that transfers bytes: asyn's octet DTYPs, and `asyn .. stringParm` of synApps' ip module.
//!
//! Messages end with the terminators of `asynOctetSetInputEos` and `asynOctetSetOutputEos`. `asynOctetRead` reads a line that
//! arrived before, or waits for one; with SCAN `I/O Intr` each line processes the record. `asynOctetCmdResponse` sends the
//! parameter of its link and reads the answer; `asynOctetWriteRead` sends the text of the record that the parameter names.
//!
//! Alarms, INVALID: TIMEOUT, COMM.

use super::inbox::{Answer, Message, Talk, latest};
use super::link::AsynLink;
use super::parm::Parm;
use crate::devices::fields::Fields;
use crate::devices::{Interrupt, Ports, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{Array, DurNs, MonoNs, Scalar, Status, Str40, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use fieldbus::octet::{MESSAGE_MAX, OctetFailure, Until};
use port::Listener;
use std::sync::Arc;

/// Use of messages by a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Transfer {
    Read,
    Write,
    /// Writes bytes without a terminator.
    WriteBinary,
    /// Sends this command and reads the answer.
    Command(Vec<u8>),
    /// Sends the text of a field and reads the answer.
    Ask(String),
    /// Reads or writes with the settings of `stringParm`.
    Parm(Parm),
}

/// A record and its messages.
struct Line {
    transfer: Transfer,
    port: String,
    ports: Ports,
    limit: DurNs,
    record_type: String,
    count: usize,
}

/// Attaches a record to a port that transfers bytes.
pub(super) fn attach(
    transfer: Transfer,
    output: bool,
    link: &AsynLink,
    place: &Attaching<'_>,
    ports: &Ports,
) -> Result<Served, AttachError> {
    ports.find(&link.port).map_err(|error| AttachError::Unusable { what: error.to_string() })?;
    let limit = match &transfer {
        Transfer::Parm(parm) => parm.limit,
        _ => link.timeout,
    };
    let line = Line {
        transfer,
        port: link.port.clone(),
        ports: ports.clone(),
        limit,
        record_type: place.record_type.to_owned(),
        count: place.count,
    };
    let interrupts = matches!(line.transfer, Transfer::Read);
    let fields = Fields::new(ports.ioc(), place.name);
    let device = OctetRecord { line: Arc::new(line), fields, interrupts };
    Ok(Served { device: Some(Box::new(device)), interrupts, writes: output, ..Served::default() })
}

impl Line {
    /// End of an answer: terminator or length.
    fn until(&self) -> Until {
        let (terminator, max) = match &self.transfer {
            Transfer::Parm(parm) => (parm.terminator.clone(), parm.max),
            _ => (self.terminators().0, self.count_max()),
        };
        Until { terminator, max, limit: self.limit }
    }

    /// Input and output terminator of the port.
    fn terminators(&self) -> (Vec<u8>, Vec<u8>) {
        self.ports.find(&self.port).map(|port| (port.input_end, port.output_end)).unwrap_or_default()
    }

    /// Maximum number of bytes that the record holds.
    fn count_max(&self) -> usize {
        match self.record_type.as_str() {
            "stringin" => 39,
            "lsi" => MESSAGE_MAX,
            _ => self.count,
        }
    }

    fn asking(&self, mut command: Vec<u8>) -> Message {
        command.extend(self.terminators().1);
        // The rest of an earlier answer is not the answer to this command.
        Message { out: command, until: Some(self.until()), flush: true }
    }

    /// The message of a request; `None` if it needs the text of a field.
    fn message(&self, output: Option<&Output>) -> Option<Message> {
        let text = || output.map_or_else(Vec::new, |output| text_of(&output.value));
        Some(match &self.transfer {
            Transfer::Read => Message { until: Some(self.until()), ..Message::default() },
            Transfer::Write => Message { out: [text(), self.terminators().1].concat(), ..Message::default() },
            Transfer::WriteBinary => {
                Message { out: output.map_or_else(Vec::new, |output| bytes_of(&output.value)), ..Message::default() }
            }
            Transfer::Command(command) => self.asking(command.clone()),
            Transfer::Ask(_) => return None,
            Transfer::Parm(parm) => match output {
                Some(_) => {
                    let out = text().get(parm.start..).unwrap_or_default().to_vec();
                    Message { out: [out, parm.terminator.clone()].concat(), ..Message::default() }
                }
                None => Message { until: Some(self.until()), ..Message::default() },
            },
        })
    }

    /// The sample for an answer.
    fn sample(&self, answer: Answer, writes: bool) -> DeviceSample {
        let stamp = now().wall;
        let bytes = match answer {
            Ok(_) if writes => return DeviceSample::done(stamp),
            Ok(received) => received.bytes,
            // Without a terminator the time limit is the normal end.
            Err(OctetFailure::Timeout(bytes))
                if matches!(&self.transfer, Transfer::Parm(parm) if parm.terminator.is_empty())
                    && !bytes.is_empty() =>
            {
                bytes
            }
            Err(OctetFailure::Timeout(_)) => return DeviceSample::failed(Status::Timeout),
            Err(OctetFailure::Closed(why)) => return DeviceSample::lost(&why),
        };
        let value = match &self.transfer {
            Transfer::Parm(parm) => parm.value(&bytes, &self.record_type),
            _ => Some(match self.record_type.as_str() {
                "stringin" => Value::Scalar(Scalar::String(Str40::new(&bytes))),
                _ => Value::Array(Array::U8(bytes)),
            }),
        };
        value.map_or_else(|| DeviceSample::failed(Status::Read), |value| DeviceSample::good(value, stamp))
    }
}

/// The bytes of a text, up to the first zero byte.
pub(super) fn text_of(value: &Value) -> Vec<u8> {
    let mut bytes = bytes_of(value);
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(len);
    bytes
}

fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Array(Array::U8(bytes)) => bytes.clone(),
        Value::Array(Array::I8(bytes)) => bytes.iter().map(|byte| *byte as u8).collect(),
        Value::Array(_) => Vec::new(),
        Value::Scalar(scalar) => base::text::scalar(*scalar, 6).bytes().to_vec(),
    }
}

/// The device of one record.
struct OctetRecord {
    line: Arc<Line>,
    fields: Fields,
    interrupts: bool,
}

impl RecordDevice for OctetRecord {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        if matches!(self.line.transfer, Transfer::Write | Transfer::WriteBinary) {
            return;
        }
        // Bytes from now on are kept for the first reading.
        let opened = self.line.ports.inbox(&self.line.port);
        if let (Ok((port, _)), true) = (opened, self.interrupts) {
            port.listen(Box::new(Lines { line: self.line.clone(), interrupt, bytes: Vec::new() }));
        }
    }

    fn request(&mut self, now: Now, output: Option<Output>, reply: Reply) {
        let (line, writes) = (self.line.clone(), output.is_some());
        let Ok((port, inbox)) = line.ports.inbox(&line.port) else { return };
        let latest = latest(now.mono, line.limit);
        let mine = line.clone();
        let then = move |answer| reply.send(mine.sample(answer, writes));
        let talk = match (&line.transfer, line.message(output.as_ref())) {
            (_, Some(message)) => Talk::new(message, inbox, latest, then),
            (Transfer::Ask(name), None) => {
                let (fields, name, line) = (self.fields.clone(), name.clone(), line.clone());
                Talk::prepared(move || fields.text(&name).map(|text| line.asking(text_of(&text))), inbox, latest, then)
            }
            (_, None) => return,
        };
        if let Err(job) = port.submit_or_refuse(Box::new(talk)) {
            job.missed("too many wait for the port");
        }
    }
}

/// Processes a record for each line that the port receives.
struct Lines {
    line: Arc<Line>,
    interrupt: Interrupt,
    bytes: Vec<u8>,
}

impl Listener for Lines {
    fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let Until { terminator, max, .. } = self.line.until();
        loop {
            let end = match terminator.len() {
                0 => (!self.bytes.is_empty()).then_some(self.bytes.len()),
                len => self.bytes.windows(len).position(|window| window == terminator),
            };
            let Some(end) = end else { break };
            let rest = self.bytes.split_off(end + terminator.len());
            let mut line = std::mem::replace(&mut self.bytes, rest);
            line.truncate(end.min(max));
            let received = fieldbus::octet::Received { bytes: line, terminated: true };
            // If there is no room, the line is refused and counted.
            self.interrupt.feed_or_refuse(self.line.sample(Ok(received), false));
        }
        if self.bytes.len() > MESSAGE_MAX {
            self.bytes.clear();
        }
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        None
    }

    fn handle_timeout(&mut self, _: MonoNs) {}

    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        self.bytes.clear();
        self.interrupt.feed_or_refuse(DeviceSample::lost(why));
    }
}
