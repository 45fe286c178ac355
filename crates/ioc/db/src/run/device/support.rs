//! Interface for device supports of other crates, which connect records to equipment.
//!
//! A [`Support`] is called with each record that names it in DTYP, and with the address in the record's link. It selects how
//! the record is served. A [`Direct`] answers immediately on the owner's thread. Otherwise the record makes requests, which
//! the shell takes ([`Db::next_request`]) and completes ([`Db::complete`]). The record stays active in between, as with
//! asynchronous device supports of C. Records with SCAN `I/O Intr` take the value that their source was [fed](Db::feed).

use crate::model::id::RecId;
use crate::model::schema;
use crate::model::slot::Slot;
use crate::rec::message::Message as AlarmMessage;
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::engine::{Db, Now};
use crate::run::notify::ReadResult;
use crate::run::scan::DeviceSample;
use base::{Array, FieldType, Scalar, Severity, Stamp, Status, Str40, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A device support.
pub trait Support: Send + Sync {
    /// Its name in DTYP.
    fn name(&self) -> &str;

    /// Record types that it serves.
    fn record_types(&self) -> &[&'static str];

    /// A record starts with this address, or gets it at run time. It replaces a previous address.
    ///
    /// # Errors
    /// The fault in the address. The record is then left without device support.
    fn attach(&self, place: &Attaching<'_>) -> Result<Attached, AttachError>;

    /// The record is removed.
    fn detach(&self, shard: usize, record: RecId) {
        let _ = (shard, record);
    }
}

/// Reason why a device support rejects a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The address ends early.
    Ends {
        /// The missing part.
        expected: String,
    },
    /// A part of the address is not what is expected.
    Unexpected {
        /// The part found.
        found: String,
        /// The parts allowed.
        expected: String,
    },
    /// A part of the address cannot be parsed.
    Unreadable {
        /// The part found.
        found: String,
        /// The reason.
        why: String,
    },
    /// A superfluous word in the address.
    TooMuch {
        /// The word.
        found: String,
    },
    /// The record's type or direction does not fit the address.
    Unsuited {
        /// The reason.
        why: String,
    },
    /// The target of the address (a port, a file) cannot be used.
    Unusable {
        /// The target and the reason.
        what: String,
    },
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ends { expected } => write!(f, "the address ends; expected {expected}"),
            Self::Unexpected { found, expected } => write!(f, "{found}; expected {expected}"),
            Self::Unreadable { found, why } => write!(f, "{found}: {why}"),
            Self::TooMuch { found } => write!(f, "\"{found}\" is too much"),
            Self::Unsuited { why: what } | Self::Unusable { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for AttachError {}

/// A record and its device address.
#[derive(Clone, Copy, Debug)]
pub struct Attaching<'a> {
    /// Shard of the record in a divided database; 0 is the housekeeping shard.
    pub shard: usize,
    /// The record.
    pub record: RecId,
    /// Name of the record.
    pub name: &'a str,
    /// Record type.
    pub record_type: &'a str,
    /// Whether it writes to its device.
    pub output: bool,
    /// Text after the `@` in its link.
    pub address: &'a str,
    /// Element type of an array record.
    pub elements: FieldType,
    /// Capacity of an array record in elements; 1 for other records.
    pub count: usize,
}

/// Connection of a record to a device support.
pub struct Attached {
    /// Mode of answering requests.
    pub answers: Answers,
    /// Whether SCAN may be `I/O Intr`. If so, [`Db::feed_record`] processes the record.
    pub interrupts: bool,
    /// Lowest and highest raw value of an ai or ao. With LINR `LINEAR`, ESLO and EOFF map them to EGUL and EGUF.
    pub raw_range: Option<(f64, f64)>,
    /// The record is a waveform or aai whose value is written to the device instead of read.
    pub writes: bool,
}

/// Modes of answering the requests of a record.
pub enum Answers {
    /// Immediately, on the owner's thread.
    Now(Box<dyn Direct>),
    /// Later, by [`Db::complete`].
    Later,
}

/// Answers requests of a record immediately.
///
/// Real-time: called on the thread that owns the record; neither allocates nor blocks.
pub trait Direct: Send {
    /// Reads the value of an input record.
    fn read(&mut self, now: Now) -> DeviceSample;

    /// Writes the value of an output record. The value in the returned sample is ignored.
    fn write(&mut self, now: Now, output: &Output) -> DeviceSample;
}

/// Value written by an output record.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The value: OVAL of ao, the state number of bo and mbbo, otherwise VAL.
    pub value: Value,
    /// RVAL if the record type has it, otherwise the value as a whole number. For an mbbo whose states have no values: the
    /// state number, shifted by SHFT.
    pub raw: i64,
    /// Name of the state, if the record has states and this one is named.
    pub name: Option<Str40>,
    /// Whether the raw value is the result of a conversion (LINR of ao).
    pub converted: bool,
}

/// A record's request to its device.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The record. It stays active until [`Db::complete`] is called for it.
    pub record: RecId,
    /// Value to write; `None` to read.
    pub output: Option<Output>,
    /// The record is to take the initial value of its device, as after a connect: 2 was written to PROC. A device without
    /// initial values treats it as any other request.
    pub initial: bool,
}

/// The value of PROC that requests the device's initial value.
const PROC_INITIAL: u8 = 2;

/// Device supports and their records.
#[derive(Default)]
pub(crate) struct Supports {
    all: Vec<Arc<dyn Support>>,
    attached: HashMap<RecId, One>,
    requests: VecDeque<Request>,
}

struct One {
    support: usize,
    answers: Answers,
    raw_range: Option<(f64, f64)>,
    writes: bool,
    /// Answer to the request that the record waits for.
    reply: Option<DeviceSample>,
}

impl Supports {
    /// The same device supports, without records, for a shard.
    pub(crate) fn for_shard(&self) -> Self {
        Self { all: self.all.clone(), ..Self::default() }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|support| support.name() == name)
    }
}

impl DeviceSample {
    /// Failed read or write.
    #[must_use]
    pub fn failed(status: Status) -> Self {
        let alarm = base::Alarm { status, severity: Severity::Invalid };
        Self { alarm, ..Self::done(Stamp::EPOCH) }
    }

    /// The device is not connected. `why` becomes the message of the alarm, without the number of the kernel's error. The
    /// process keeps up to 1,000 different messages, also of functions; later ones are empty.
    #[must_use]
    pub fn lost(why: &str) -> Self {
        let why = why.split(" (os error ").next().unwrap_or_default();
        Self { message: AlarmMessage::of_text(why.as_bytes()), ..Self::failed(Status::Comm) }
    }

    /// A value without alarm, with its time stamp.
    #[must_use]
    pub fn good(value: Value, stamp: Stamp) -> Self {
        Self { value: Some(value), ..Self::done(stamp) }
    }

    /// A successful write.
    #[must_use]
    pub const fn done(stamp: Stamp) -> Self {
        Self { value: None, alarm: base::Alarm::NONE, message: AlarmMessage::NONE, stamp, tag: 0 }
    }

    /// The value as one element.
    pub(crate) fn scalar(&self) -> Option<Scalar> {
        match self.value.as_ref()? {
            Value::Scalar(value) => Some(*value),
            Value::Array(values) => values.get(0),
        }
    }

    /// The value as a raw number, if it is a whole number of at most 32 bits.
    pub(crate) fn raw(&self) -> Option<i32> {
        match self.scalar()? {
            Scalar::I8(value) => Some(value.into()),
            Scalar::U8(value) => Some(value.into()),
            Scalar::I16(value) => Some(value.into()),
            Scalar::U16(value) => Some(value.into()),
            Scalar::I32(value) => Some(value),
            Scalar::U32(value) => Some(value as i32),
            _ => None,
        }
    }

    /// The value as a text of at most 39 bytes.
    pub(crate) fn text(&self) -> Option<Str40> {
        match self.value.as_ref()? {
            Value::Array(Array::U8(bytes)) => Some(Str40::new(bytes)),
            _ => Some(base::text::scalar(self.scalar()?, 6)),
        }
    }

    /// The value as a text of any length.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        match self.value.as_ref()? {
            Value::Array(Array::U8(bytes)) => Some(bytes.clone()),
            _ => Some(base::text::scalar(self.scalar()?, 6).bytes().to_vec()),
        }
    }

    /// The value as at most `max` elements of a type.
    pub(crate) fn array(&self, kind: FieldType, max: usize) -> Option<Array> {
        let mut into = Array::zeros(kind, 0);
        match self.value.as_ref()? {
            Value::Array(values) => {
                if !crate::model::values::convert_into(values, max, 0, &mut into) {
                    return None;
                }
            }
            Value::Scalar(_) if max == 0 => {}
            Value::Scalar(value) => {
                into = Array::zeros(kind, 1);
                if !crate::model::values::set_element(&mut into, 0, *value) {
                    return None;
                }
            }
        }
        Some(into)
    }
}

impl Db {
    /// Adds a device support. Records of its types can then name it in DTYP. Call it before records are loaded.
    pub fn add_support(&mut self, support: Arc<dyn Support>) {
        for kind in &mut Arc::make_mut(&mut self.records.schema).types {
            let known = kind.devices.iter().any(|device| device.name == support.name());
            if !known && support.record_types().contains(&kind.name.as_str()) {
                kind.devices.push(schema::Device { name: support.name().to_owned(), link: "INST_IO".to_owned() });
            }
        }
        self.supports.all.push(support);
    }

    /// Next request of a record to its device. A record has at most one pending request. Does not allocate.
    pub fn next_request(&mut self) -> Option<Request> {
        self.supports.requests.pop_front()
    }

    /// Answers a record's request. Its processing continues soon, in the order of PRIO. Returns the sample to be freed
    /// elsewhere: the previous answer, or this one if no record waits for it. A value in the answer to an output is the value
    /// that the device has now: it becomes VAL, or raises CALC if it does not fit.
    ///
    /// Real-time: does not block; allocates for arrays and long texts that an output takes.
    pub fn complete(&mut self, rec: RecId, mut fed: DeviceSample) -> Option<DeviceSample> {
        let waits = self.supports.attached.contains_key(&rec) && self.records[rec].pact != 0;
        let answered = waits && fed.value.is_some() && self.records.type_of(rec).field("OUT").is_some();
        if answered && !self.take_from_device(rec, &fed) {
            fed.alarm = base::Alarm { status: Status::Calc, severity: Severity::Invalid };
        }
        let Some(one) = self.supports.attached.get_mut(&rec) else { return Some(fed) };
        let before = one.reply.replace(fed);
        self.call_back(rec, Callback::Resume);
        before
    }

    /// Sets a new device value of a record. The record is processed soon if its SCAN is `I/O Intr`. Returns the previous
    /// sample, to be freed elsewhere.
    ///
    /// Real-time: neither allocates nor blocks.
    pub fn feed_record(&mut self, record: RecId, fed: DeviceSample) -> Option<DeviceSample> {
        match self.scans.source_of(record) {
            Some(source) => self.feed(source, fed),
            None => Some(fed),
        }
    }

    /// Attaches a record to its device support. Returns `None` if the support rejects the address.
    pub(crate) fn attach(&mut self, rec: RecId, name: &str, address: &str) -> Option<Device> {
        let Some(support) = self.supports.find(name) else {
            let text = format!(
                "{}: DTYP \"{name}\" has no device support here; the record stays active",
                self.records.name(rec)
            );
            self.notice(text);
            return None;
        };
        let kind = self.records.type_of(rec);
        let output = kind.field("OUT").is_some();
        let value = kind.val;
        let (count, elements) = self.records.shape(rec, value);
        let place = Attaching {
            shard: self.shard_number(),
            record: rec,
            name: self.records.name(rec),
            record_type: &self.records.type_of(rec).name,
            output,
            address: address.trim_start_matches('@').trim(),
            elements,
            count: count.max(1) as usize,
        };
        match self.supports.all[support].attach(&place) {
            Ok(Attached { answers, interrupts, raw_range, writes }) => {
                let reply = self.supports.attached.remove(&rec).and_then(|one| one.reply);
                self.supports.attached.insert(rec, One { support, answers, raw_range, writes, reply });
                self.scale_raw(rec);
                self.supports.requests.reserve(self.supports.attached.len());
                let own = format!("device of {}", self.records.name(rec));
                let source = interrupts.then(|| self.source(&own));
                self.listen(rec, source);
                Some(Device::External)
            }
            Err(what) => {
                self.notice(format!("{}: DTYP \"{name}\": {what}", self.records.name(rec)));
                Some(Device::Missing)
            }
        }
    }

    /// Attaches the records with a DTYP again, so that the support reads its files again. `wanted` selects records by name.
    /// Returns the number of records.
    pub fn attach_again(&mut self, dtyp: &str, wanted: impl Fn(&str) -> bool) -> usize {
        let is_meant = |rec: &RecId| {
            let device = self.records.type_of(*rec).devices.get(usize::from(self.records[*rec].dtyp));
            device.is_some_and(|device| device.name == dtyp) && wanted(self.records.name(*rec))
        };
        let records: Vec<RecId> = self.records().filter(is_meant).collect();
        for rec in &records {
            self.attach_device(*rec);
        }
        records.len()
    }

    /// Selects a record's device support by its DTYP and link. A record that its device support had left active is passive.
    pub(crate) fn attach_device(&mut self, rec: RecId) {
        if std::mem::take(&mut self.records[rec].broken) {
            self.records[rec].pact = 0;
        }
        self.records[rec].device = super::choose(self, rec);
    }

    /// Sets ESLO and EOFF from the raw range of the device, if LINR is `LINEAR`.
    pub(crate) fn scale_raw(&mut self, rec: RecId) {
        const LINEAR: f64 = 2.0;
        let Some((low, high)) = self.supports.attached.get(&rec).and_then(|one| one.raw_range) else { return };
        let kind = self.records.type_of(rec);
        let fields = ["LINR", "EGUL", "EGUF", "ESLO", "EOFF"].map(|name| kind.field(name));
        let [Some(linr), Some(egul), Some(eguf), Some(eslo), Some(eoff)] = fields else { return };
        let mut number = |field| self.records.peek(rec, field).scalar().and_then(Scalar::to_f64).unwrap_or_default();
        let (linr, egul, eguf) = (number(linr), number(egul), number(eguf));
        if linr != LINEAR {
            return;
        }
        let width = high - low;
        for (field, value) in [(eslo, (eguf - egul) / width), (eoff, (high * egul - low * eguf) / width)] {
            if let Slot::F64(place) = self.records.slot(rec, field) {
                *place = value;
            }
        }
    }

    /// Whether an array input is written to its device instead of read.
    pub(crate) fn writes_input(&self, rec: RecId) -> bool {
        self.supports.attached.get(&rec).is_some_and(|one| one.writes)
    }

    fn shard_number(&self) -> usize {
        self.split.shard.map_or(0, |shard| shard as usize + 1)
    }

    /// Detaches a record from its device support.
    pub(crate) fn detach(&mut self, rec: RecId) {
        if let Some(one) = self.supports.attached.remove(&rec) {
            self.supports.all[one.support].detach(self.shard_number(), rec);
        }
    }

    /// Reads the device of an input record: immediately, from the value fed by its source, or by a request whose callback
    /// resumes the record. Sets alarm, stamp (TSE −2) and UTAG; clears UDF if there is a value.
    pub(crate) fn device_read(&mut self, rec: RecId, resumed: bool) -> ReadResult<DeviceSample> {
        const IO_INTR: u16 = 2;
        let now = self.time.now;
        let initial = !resumed && self.takes_initial(rec);
        let interrupts = self.records[rec].scan == IO_INTR && !initial;
        let Some(one) = self.supports.attached.get_mut(&rec) else { return ReadResult::Failed };
        let fed = match &mut one.answers {
            Answers::Now(direct) => direct.read(now),
            Answers::Later if resumed => match &one.reply {
                Some(reply) => reply.clone(),
                None => DeviceSample::failed(Status::Read),
            },
            Answers::Later => match self.scans.fed_to(rec).filter(|_| interrupts) {
                Some(fed) => fed.clone(),
                None => {
                    self.supports.requests.push_back(Request { record: rec, output: None, initial });
                    return ReadResult::Pending;
                }
            },
        };
        self.take_fed(rec, &fed);
        if fed.value.is_none() {
            // Success without a value: the record keeps its own.
            if fed.alarm.severity == Severity::None {
                self.records[rec].udf = 0;
            }
            return ReadResult::Failed;
        }
        self.records[rec].udf = 0;
        ReadResult::Value(fed)
    }

    /// Writes the device of an output record. Returns whether a callback is pending. A failed write raises the alarm itself.
    pub(crate) fn device_write(&mut self, rec: RecId, resumed: bool, output: Output) -> bool {
        let now = self.time.now;
        let initial = !resumed && self.takes_initial(rec);
        let Some(one) = self.supports.attached.get_mut(&rec) else { return false };
        let fed = match &mut one.answers {
            Answers::Now(direct) => direct.write(now, &output),
            Answers::Later if resumed => match &one.reply {
                Some(reply) => DeviceSample { value: None, ..*reply },
                None => DeviceSample::failed(Status::Write),
            },
            Answers::Later => {
                self.supports.requests.push_back(Request { record: rec, output: Some(output), initial });
                return true;
            }
        };
        self.take_fed(rec, &fed);
        self.pass.failed = fed.alarm.severity == Severity::Invalid;
        false
    }

    /// Writes the value of an array input to its device.
    pub(crate) fn device_write_array(&mut self, rec: RecId, resumed: bool, value: Array) -> ReadResult<()> {
        let output = Output { value: Value::Array(value), raw: 0, name: None, converted: false };
        if self.device_write(rec, resumed, output) {
            return ReadResult::Pending;
        }
        if std::mem::take(&mut self.pass.failed) { ReadResult::Failed } else { ReadResult::Constant }
    }

    /// Makes a request of a record that handles the answer itself. Returns the answer when the record is resumed, and `None`
    /// while it is pending.
    pub(crate) fn device_exchange(
        &mut self,
        rec: RecId,
        resumed: bool,
        output: Option<Output>,
    ) -> Option<DeviceSample> {
        let Some(one) = self.supports.attached.get_mut(&rec) else { return Some(DeviceSample::failed(Status::Comm)) };
        if resumed {
            return Some(one.reply.take().unwrap_or_else(|| DeviceSample::failed(Status::Comm)));
        }
        self.supports.requests.push_back(Request { record: rec, output, initial: false });
        None
    }

    /// Passes the value of a field to the record's device, outside of processing and without an answer.
    pub(crate) fn device_setting(&mut self, rec: RecId, field: &str, value: Value) {
        if self.supports.attached.contains_key(&rec) {
            let output = Some(Output { value, raw: 0, name: Some(Str40::from(field)), converted: false });
            self.supports.requests.push_back(Request { record: rec, output, initial: false });
        }
    }

    /// Whether a record's request is for the initial value. Only one request is for each write to PROC.
    fn takes_initial(&mut self, rec: RecId) -> bool {
        let common = &mut self.records[rec];
        let initial = common.proc == PROC_INITIAL;
        if initial {
            common.proc = 0;
        }
        initial
    }

    /// Takes alarm, stamp and tag from a device sample.
    fn take_fed(&mut self, rec: RecId, fed: &DeviceSample) {
        let by_device = crate::rec::stamp_by_device(self, rec);
        let common = &mut self.records[rec];
        if fed.alarm.severity != Severity::None {
            common.raise_with(fed.alarm.status, fed.alarm.severity as u16, fed.message);
        }
        common.utag = fed.tag;
        if by_device {
            common.time = fed.stamp;
        }
    }

    /// The address in a record's INP or OUT.
    pub(crate) fn address(&mut self, rec: RecId) -> String {
        let field = self.records.type_of(rec).field("INP").or_else(|| self.records.type_of(rec).field("OUT"));
        match field.map(|field| self.records.peek(rec, field)) {
            Some(Slot::Link(link)) => link.text().to_owned(),
            _ => String::new(),
        }
    }
}
