//! "stream": line protocols described by protocol files, `@FILE PROTOCOL(ARGUMENTS) PORT`, in the manner of StreamDevice.
//!
//! Files are looked for in `STREAM_PROTOCOL_PATH`, and read when a record starts. `%f` and its kin carry the value (of ai
//! and ao apart from ASLO and AOFF), `%d` and its kin the raw value where a record has one, `%{…}` the number of a state,
//! `%s` a text or the name of a state, `%(…)` values of [fields](super::fields). Array records take all values that come;
//! what an output's `in` takes becomes its value. `%(TIME)T(…)` is the record's time (TSE −2 takes what a line says). An input whose protocol begins with `in` may have SCAN `I/O Intr`: each
//! line that nobody asked for and that fits processes it.
//!
//! Alarms, all INVALID: TIMEOUT no reply, or the port was busy too long (LockTimeout); READ a reply that stopped; CALC one
//! that does not fit, or a value that does not fit its conversion; COMM no connection.

use super::fields::{Fields, Write, stamp};
use super::stream_address::Address;
use super::{DeviceSupport, Interrupt, Ports, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{Array, FieldType, MonoNs, Scalar, Stamp, Status, Str40};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use fieldbus::Exchange;
use fieldbus::stream::{File, Given, Protocol, Session, State, Taken, Takes, Trouble, Value, Zone};
use port::{Job, Listener};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// Largest protocol file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest line that nobody asked for.
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
        let line = StreamDevice { run, port, ports: ports.clone(), interrupts };
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
    std::fs::read(&place).map_err(|error| wrong(&error))
}

/// What a record can hold.
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

    /// What the values of a run mean for the record: one that takes none has been written, or keeps its value.
    fn fed(&self, values: &[Value], stamp: Stamp) -> DeviceSample {
        if values.is_empty() { DeviceSample::done(stamp) } else { self.value(values, stamp) }
    }

    /// The values of a run as what the record holds.
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

fn status(trouble: &Trouble) -> Status {
    match trouble {
        Trouble::NoReply(_) => Status::Timeout,
        Trouble::Unfinished(_) => Status::Read,
        Trouble::Mismatch(_) | Trouble::Output => Status::Calc,
        Trouble::Closed(_) => Status::Comm,
    }
}

/// A record's protocol with all that its runs need.
struct Runs {
    protocol: Arc<Protocol>,
    shape: Shape,
    fields: Fields,
}

impl Runs {
    /// What a run is given, before it is its turn.
    fn given(&self, output: Option<Output>) -> Given {
        let takes = self.shape.takes();
        let given = Given { takes, zone: Zone(sys::clock::local_offset_secs), ..Given::default() };
        let Some(Output { value, raw, name, converted }) = output else { return given };
        let number = match (self.shape.record_type.as_str(), value.get(0)) {
            ("bo", Some(Scalar::U16(state))) => Some(state.into()),
            ("mbbo", _) => Some(raw),
            _ => None,
        };
        let state = number.map(|number| State { number, name: name.map(|name| name.bytes().to_vec()) });
        // Without a conversion whole numbers are the value's, which may have more than RVAL's 32 bits.
        let has_raw = match self.shape.record_type.as_str() {
            "stringout" | "lso" | "aao" | "calcout" => false,
            "ao" => converted,
            _ => true,
        };
        Given { raw: has_raw.then_some(raw), value: Some(value), state, ..given }
    }

    /// What a run has come to, its fields written.
    fn end(&self, session: &Session, how: Write) -> Option<DeviceSample> {
        let written = self.fields.write(session.fields(), how);
        match session.result()? {
            Ok(_) if !written => Some(DeviceSample::failed(Status::Calc)),
            Ok(taken) => Some(self.shape.fed(&taken.values, stamp(&taken.fields).unwrap_or(now().wall))),
            Err(trouble) => Some(DeviceSample::failed(status(trouble))),
        }
    }
}

/// What stands behind a record.
struct StreamDevice {
    run: Arc<Runs>,
    port: String,
    ports: Ports,
    interrupts: bool,
}

impl RecordDevice for StreamDevice {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        let run = &self.run;
        run.fields.check(&run.protocol);
        let session = Session::init(run.protocol.clone(), run.given(None));
        if let (Some(session), Ok(port)) = (session, self.ports.open(&self.port)) {
            let latest = now().mono + run.protocol.lock_timeout;
            let start = Start { session, run: run.clone(), latest, record: interrupt.clone() };
            // Where too many wait, the record begins with what the database says, as where nobody answers.
            let _ = port.submit_or_refuse(Box::new(start));
        }
        if self.interrupts
            && let Ok(port) = self.ports.open(&self.port)
        {
            port.listen(Box::new(Ear { run: run.clone(), interrupt, bytes: Vec::new(), deaf: false }));
        }
    }

    fn request(&mut self, now: Now, output: Option<Output>, reply: Reply) {
        let run = self.run.clone();
        let latest = now.mono + run.protocol.lock_timeout;
        let reads = output.is_none();
        let session = Session::new(run.protocol.clone(), run.given(output));
        if let Ok(port) = self.ports.open(&self.port)
            && let Err(job) = port.submit_or_refuse(Box::new(Run { session, reads, run, latest, reply }))
        {
            job.missed("too many wait for the port");
        }
    }
}

/// One run for one record.
struct Run {
    session: Session,
    /// Whether the record is an input: what it says of its own value it has to ask for.
    reads: bool,
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
        self.reply.send(self.run.end(&self.session, Write::Runs).unwrap_or(DeviceSample::failed(Status::Comm)));
    }

    fn missed(self: Box<Self>, _: &str) {
        self.reply.send(DeviceSample::failed(Status::Timeout));
    }
}

/// The run of `@init` before a record is asked for anything.
struct Start {
    session: Session,
    run: Arc<Runs>,
    latest: MonoNs,
    record: Interrupt,
}

impl Job for Start {
    fn exchange(&mut self) -> &mut dyn Exchange {
        &mut self.session
    }

    fn latest(&self) -> Option<MonoNs> {
        Some(self.latest)
    }

    fn begin(&mut self) {
        self.run.fields.fill(&self.run.protocol, true, self.session.given_mut());
    }

    fn done(self: Box<Self>) {
        let fed = self.run.end(&self.session, Write::Begins);
        if let Some(fed) = fed.filter(|fed| self.run.shape.output && fed.value.is_some()) {
            // Refused where the ring has no room, which is counted.
            self.record.start_or_refuse(fed);
        }
    }

    fn missed(self: Box<Self>, _: &str) {}
}

/// Hears lines that nobody asked for.
struct Ear {
    run: Arc<Runs>,
    interrupt: Interrupt,
    bytes: Vec<u8>,
    /// Whether the rest of a line that was too long is passed over.
    deaf: bool,
}

impl Ear {
    fn line(&self, line: &[u8]) {
        let Runs { protocol, shape, fields } = &*self.run;
        let mut given = self.run.given(None);
        fields.fill(protocol, true, &mut given);
        if let Some(Taken { values, fields: others }) = protocol.unasked(line, &given) {
            let written = fields.write(&others, Write::Runs);
            let stamp = stamp(&others).unwrap_or(now().wall);
            let fed = if written { shape.fed(&values, stamp) } else { DeviceSample::failed(Status::Calc) };
            // Where there is no room it is refused and counted; the next line may have room.
            self.interrupt.feed_or_refuse(fed);
        }
    }
}

impl Listener for Ear {
    fn handle_bytes(&mut self, _: MonoNs, bytes: &[u8]) {
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
                // Its end may still lie in the last bytes.
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

    fn handle_closed(&mut self, _: MonoNs, _: &str) {
        self.bytes.clear();
        self.deaf = false;
        self.interrupt.feed_or_refuse(DeviceSample::failed(Status::Comm));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_what_a_record_can_hold() {
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
