//! "stream": line protocols described by protocol files, `@FILE PROTOCOL(ARGUMENTS) PORT`, as in StreamDevice.
//!
//! Files are searched in `STREAM_PROTOCOL_PATH` and read when a record starts. Conversions:
//!
//! - `%f` and similar transfer the value (for ai and ao, converted by ASLO and AOFF)
//! - `%d` and similar transfer the raw value, if the record has one
//! - `%{…}` transfers a state number
//! - `%s` transfers a text or a state name
//! - `%(…)` transfers values of [fields](super::fields)
//! - `%(TIME)T(…)` is the record's time stamp (TSE −2 uses the time in a line)
//!
//! Array records take all received values. A value received by the `in` of an output becomes its value. An input whose
//! protocol begins with `in` may have SCAN `I/O Intr`: each matching unsolicited line then processes it.
//!
//! All alarms are INVALID:
//!
//! - TIMEOUT: no reply, or the port was busy too long (LockTimeout)
//! - READ: an incomplete reply
//! - CALC: a reply that does not match, or a value that does not fit its conversion
//! - COMM: no connection; AMSG is the reason

use super::fields::{Fields, Write, stamp};
use super::stream_address::Address;
use super::{DeviceSupport, Interrupt, Ports, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{Array, FieldType, MonoNs, Scalar, Stamp, Status, Str40};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use fieldbus::Exchange;
use fieldbus::stream::{File, Protocol, RunInputs, RunOutputs, Session, State, Takes, Trouble, Value, Zone};
use port::{Job, Listener};
use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, Weak};

/// Maximum size of a protocol file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of an unsolicited line.
const LINE_MAX: usize = 1 << 16;

/// The device support.
pub(super) struct Stream;

impl DeviceSupport for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &[
            "ai",
            "ao",
            "bi",
            "bo",
            "mbbi",
            "mbbo",
            "mbbiDirect",
            "mbboDirect",
            "longin",
            "longout",
            "int64in",
            "int64out",
            "stringin",
            "stringout",
            "lsi",
            "lso",
            "waveform",
            "aai",
            "aao",
            "calcout",
        ]
    }

    fn attach(&self, place: &Attaching<'_>, ports: &Ports) -> Result<Served, AttachError> {
        let Address { file, protocol: name, arguments, port } = Address::parse(place.address)?;
        let unusable = |error: &dyn Display| AttachError::Unusable { what: error.to_string() };
        let configured = ports.find(&port).map_err(|error| unusable(&error))?;
        let text = read(&file, &ports.protocol_path())?;
        let parsed = File::parse(&text, &file).map_err(|error| unusable(&error))?;
        let mut protocol = parsed.protocol(&name, &arguments).map_err(|error| unusable(&error))?;
        protocol.set_default_terminators(&configured.input_end, &configured.output_end);
        let interrupts = !place.output && protocol.begins_with_in();
        let shape = Shape {
            record_type: place.record_type.to_owned(),
            elements: place.elements,
            count: place.count,
            output: place.output,
        };
        let fields = Fields::new(ports.ioc(), place.name);
        let run = Arc::new(Runs { protocol: Arc::new(protocol), shape, fields });
        let line = StreamDevice { run, port, ports: ports.clone(), interrupts, listens: Arc::default() };
        Ok(Served { device: Some(Box::new(line)), interrupts, ..Served::default() })
    }
}

fn read(file: &str, path: &[String]) -> Result<Vec<u8>, AttachError> {
    let found = path.iter().map(|folder| Path::new(folder).join(file)).find(|place| place.exists());
    let none = || format!("no file {file} in {} (STREAM_PROTOCOL_PATH)", path.join(":"));
    let place = found.ok_or_else(|| AttachError::Unusable { what: none() })?;
    let wrong = |why: &dyn Display| AttachError::Unusable { what: format!("{}: {why}", place.display()) };
    let size = std::fs::metadata(&place).map_err(|error| wrong(&error))?.len();
    if size > FILE_BYTES_MAX {
        return Err(wrong(&format_args!("{size} bytes; expected at most {FILE_BYTES_MAX}")));
    }
    let bytes = std::fs::read(&place).map_err(|error| wrong(&error))?;
    table::one_byte_letters(&bytes).map_err(|error| wrong(&error))?;
    Ok(bytes)
}

/// The values that a record can hold.
struct Shape {
    record_type: String,
    elements: FieldType,
    count: usize,
    output: bool,
}

impl Shape {
    const fn takes(&self) -> Takes {
        match (self.count, self.elements) {
            (0 | 1, _) => Takes::One,
            (count, FieldType::I8 | FieldType::U8) => Takes::Characters(count),
            (count, _) => Takes::Many(count),
        }
    }

    /// Converts the values of a run to a sample for the record. Without values, the record was written or keeps its value.
    fn fed(&self, values: &[Value], stamp: Stamp) -> DeviceSample {
        if values.is_empty() { DeviceSample::done(stamp) } else { self.value(values, stamp) }
    }

    /// Converts the values of a run to the record's type.
    fn value(&self, values: &[Value], stamp: Stamp) -> DeviceSample {
        match self.record_type.as_str() {
            "waveform" | "aai" | "aao" => self.array(values, stamp),
            "lsi" | "lso" => match values.first() {
                Some(Value::Text(text)) => DeviceSample::good(base::Value::Array(Array::U8(text.clone())), stamp),
                first => self.scalar(first, stamp),
            },
            _ => self.scalar(values.first(), stamp),
        }
    }

    fn scalar(&self, value: Option<&Value>, stamp: Stamp) -> DeviceSample {
        let states = matches!(self.record_type.as_str(), "bi" | "mbbi" | "bo" | "mbbo");
        let Some(value) = value else { return DeviceSample::failed(Status::Calc) };
        let scalar = match value {
            Value::Float(value) => Scalar::F64(*value),
            Value::Int(value) => i32::try_from(*value).map_or(Scalar::I64(*value), Scalar::I32),
            Value::Text(text) => Scalar::String(Str40::new(text)),
            Value::Enum(value) if states => u16::try_from(*value).map_or(Scalar::I64(*value), Scalar::Enum),
            Value::Enum(value) => i32::try_from(*value).map_or(Scalar::I64(*value), Scalar::I32),
        };
        DeviceSample::good(base::Value::Scalar(scalar), stamp)
    }

    fn array(&self, values: &[Value], stamp: Stamp) -> DeviceSample {
        if let ([Value::Text(text)], FieldType::I8 | FieldType::U8) = (values, self.elements) {
            return DeviceSample::good(
                base::Value::Array(Array::U8(text.iter().take(self.count).copied().collect())),
                stamp,
            );
        }
        let texts = values.iter().any(|value| matches!(value, Value::Text(_)));
        let floats = values.iter().any(|value| matches!(value, Value::Float(_)));
        let values = values.iter().take(self.count);
        let array = if texts {
            let text = |value: &Value| match value {
                Value::Text(text) => Str40::new(text),
                Value::Float(value) => base::text::scalar(Scalar::F64(*value), 6),
                Value::Int(value) | Value::Enum(value) => base::text::scalar(Scalar::I64(*value), 0),
            };
            Array::String(values.map(text).collect())
        } else if floats {
            let float = |value: &Value| match value {
                Value::Float(value) => *value,
                Value::Int(value) | Value::Enum(value) => *value as f64,
                Value::Text(_) => f64::NAN,
            };
            Array::F64(values.map(float).collect())
        } else {
            let int = |value: &Value| match value {
                Value::Int(value) | Value::Enum(value) => Some(*value),
                Value::Float(_) | Value::Text(_) => None,
            };
            Array::I64(values.filter_map(int).collect())
        };
        DeviceSample::good(base::Value::Array(array), stamp)
    }
}

fn failed(trouble: &Trouble) -> DeviceSample {
    DeviceSample::failed(match trouble {
        Trouble::NoReply(_) => Status::Timeout,
        Trouble::Unfinished(_) => Status::Read,
        Trouble::Mismatch(_) | Trouble::Output => Status::Calc,
        Trouble::Closed(why) => return DeviceSample::lost(why),
    })
}

/// A record's protocol and the data that its runs need.
struct Runs {
    protocol: Arc<Protocol>,
    shape: Shape,
    fields: Fields,
}

impl Runs {
    /// Input of a run, collected before the run starts.
    fn given(&self, output: Option<Output>) -> RunInputs {
        let takes = self.shape.takes();
        let given = RunInputs { takes, zone: Zone(sys::clock::local_offset_secs), ..RunInputs::default() };
        let Some(Output { value, raw, name, converted }) = output else { return given };
        let number = match (self.shape.record_type.as_str(), value.get(0)) {
            ("bo", Some(Scalar::U16(state))) => Some(state.into()),
            ("mbbo", _) => Some(raw),
            _ => None,
        };
        let state = number.map(|number| State { number, name: name.map(|name| name.bytes().to_vec()) });
        // Without a conversion, whole numbers are the value itself, which may exceed the 32 bits of RVAL.
        let has_raw = match self.shape.record_type.as_str() {
            "stringout" | "lso" | "aao" | "calcout" => false,
            "ao" => converted,
            _ => true,
        };
        RunInputs { raw: has_raw.then_some(raw), value: Some(value), state, ..given }
    }

    /// Sample for the record at the end of a run, after fields were written.
    fn end(&self, session: &Session, how: Write) -> Option<DeviceSample> {
        let written = self.fields.write(session.fields(), how);
        match session.result()? {
            Ok(_) if !written => Some(DeviceSample::failed(Status::Calc)),
            Ok(taken) => Some(self.shape.fed(&taken.values, stamp(&taken.fields).unwrap_or(now().wall))),
            Err(trouble) => Some(failed(trouble)),
        }
    }
}

/// The device of one record.
struct StreamDevice {
    run: Arc<Runs>,
    port: String,
    ports: Ports,
    interrupts: bool,
    /// While it exists, the port keeps the record's listener.
    listens: Arc<()>,
}

impl StreamDevice {
    /// Runs a session, whose values answer a request.
    fn submit(&self, now: Now, session: Session, reads: bool, how: Write, reply: Reply) {
        let run = self.run.clone();
        let latest = now.mono + run.protocol.lock_timeout;
        if let Ok(port) = self.ports.open(&self.port)
            && let Err(job) = port.submit_or_refuse(Box::new(Run { session, reads, how, run, latest, reply }))
        {
            job.missed("too many wait for the port");
        }
    }
}

impl RecordDevice for StreamDevice {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        let run = &self.run;
        run.fields.check(&run.protocol);
        let (hears, begins) = (self.interrupts, run.protocol.has_init());
        if (hears || begins)
            && let Ok(port) = self.ports.open(&self.port)
        {
            let record = Arc::downgrade(&self.listens);
            let bytes = Vec::new();
            port.listen(Box::new(Ear { run: run.clone(), interrupt, record, hears, bytes, deaf: false }));
        }
    }

    fn request(&mut self, now: Now, output: Option<Output>, reply: Reply) {
        let reads = output.is_none();
        let session = Session::new(self.run.protocol.clone(), self.run.given(output));
        self.submit(now, session, reads, Write::Runs, reply);
    }

    fn request_initial(&mut self, now: Now, _: Option<Output>, reply: Reply) {
        match Session::init(self.run.protocol.clone(), self.run.given(None)) {
            Some(session) => self.submit(now, session, true, Write::Begins, reply),
            None => reply.send(DeviceSample::done(now.wall)),
        }
    }
}

/// One run for one record.
struct Run {
    session: Session,
    /// Whether the record is an input. Its own value must then be read before it can be sent.
    reads: bool,
    /// How it writes fields.
    how: Write,
    run: Arc<Runs>,
    latest: MonoNs,
    reply: Reply,
}

impl Job for Run {
    fn exchange(&mut self) -> &mut dyn Exchange {
        &mut self.session
    }

    fn latest(&self) -> Option<MonoNs> {
        Some(self.latest)
    }

    fn begin(&mut self) {
        self.run.fields.fill(&self.run.protocol, self.reads, self.session.given_mut());
    }

    fn done(self: Box<Self>) {
        self.reply.send(self.run.end(&self.session, self.how).unwrap_or(DeviceSample::failed(Status::Comm)));
    }

    fn missed(self: Box<Self>, _: &str) {
        self.reply.send(DeviceSample::failed(Status::Timeout));
    }
}

/// The run of `@init` after a connect, before other runs.
struct Start {
    session: Session,
    run: Arc<Runs>,
    record: Interrupt,
}

impl Job for Start {
    fn exchange(&mut self) -> &mut dyn Exchange {
        &mut self.session
    }

    fn begin(&mut self) {
        self.run.fields.fill(&self.run.protocol, true, self.session.given_mut());
    }

    fn done(self: Box<Self>) {
        let fed = self.run.end(&self.session, Write::Begins);
        if let Some(fed) = fed.filter(|fed| self.run.shape.output && fed.value.is_some()) {
            // If the ring has no room, the value is refused and counted.
            self.record.refresh_or_refuse(fed);
        }
    }

    fn missed(self: Box<Self>, _: &str) {}
}

/// Runs `@init` after each connect, and receives unsolicited lines.
struct Ear {
    run: Arc<Runs>,
    interrupt: Interrupt,
    /// The record has this device as long as it exists.
    record: Weak<()>,
    /// Whether lines go to the record.
    hears: bool,
    bytes: Vec<u8>,
    /// Whether the rest of an overlong line is being skipped.
    deaf: bool,
}

impl Ear {
    fn line(&self, line: &[u8]) {
        let Runs { protocol, shape, fields } = &*self.run;
        let mut given = self.run.given(None);
        fields.fill(protocol, true, &mut given);
        if let Some(RunOutputs { values, fields: others }) = protocol.unasked(line, &given) {
            let written = fields.write(&others, Write::Runs);
            let stamp = stamp(&others).unwrap_or(now().wall);
            let fed = if written { shape.fed(&values, stamp) } else { DeviceSample::failed(Status::Calc) };
            // If there is no room, the value is refused and counted. The next line tries again.
            self.interrupt.feed_or_refuse(fed);
        }
    }
}

impl Listener for Ear {
    fn handle_connected(&mut self) -> Option<Box<dyn Job>> {
        let (run, record) = (self.run.clone(), self.interrupt.clone());
        let session = Session::init(run.protocol.clone(), run.given(None))?;
        Some(Box::new(Start { session, run, record }))
    }

    fn is_over(&self) -> bool {
        self.record.strong_count() == 0
    }

    fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
        if !self.hears {
            return;
        }
        let terminator = self.run.protocol.in_terminator();
        if terminator.is_empty() {
            self.line(bytes);
            return;
        }
        for byte in bytes {
            self.bytes.push(*byte);
            if self.bytes.ends_with(terminator) {
                let line = std::mem::take(&mut self.bytes);
                if !std::mem::take(&mut self.deaf) {
                    self.line(&line[..line.len() - terminator.len()]);
                }
            } else if self.bytes.len() > LINE_MAX {
                // The last bytes may contain the start of the terminator.
                let keep = self.bytes.len() - (terminator.len() - 1);
                self.bytes.drain(..keep);
                self.deaf = true;
            }
        }
    }

    fn poll_timeout(&self) -> Option<MonoNs> {
        None
    }

    fn handle_timeout(&mut self, _: MonoNs) {}

    fn handle_closed(&mut self, _: MonoNs, why: &str) {
        if !self.hears {
            return;
        }
        self.bytes.clear();
        self.deaf = false;
        self.interrupt.feed_or_refuse(DeviceSample::lost(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_converted_to_the_type_of_the_record() {
        let fed = |record_type: &str, elements, values: &[Value]| {
            let shape = Shape { record_type: record_type.to_owned(), elements, count: 3, output: false };
            shape.fed(values, Stamp::EPOCH).value
        };
        let scalar = |value| Some(base::Value::Scalar(value));
        assert_eq!(fed("ai", FieldType::F64, &[Value::Int(7)]), scalar(Scalar::I32(7)));
        assert_eq!(fed("bi", FieldType::F64, &[Value::Enum(1)]), scalar(Scalar::Enum(1)));
        assert_eq!(fed("stringin", FieldType::F64, &[Value::Text(b"x".to_vec())]), scalar(Scalar::String("x".into())));
        let array = |values| Some(base::Value::Array(values));
        let ints: Vec<Value> = (0..5).map(Value::Int).collect();
        assert_eq!(fed("waveform", FieldType::I16, &ints), array(Array::I64(vec![0, 1, 2])));
        assert_eq!(fed("waveform", FieldType::U8, &[Value::Text(b"abcd".to_vec())]), array(Array::U8(b"abc".to_vec())));
        assert_eq!(fed("ai", FieldType::F64, &[]), None);
    }
}
