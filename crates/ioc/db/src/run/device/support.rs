//! Device supports from outside this crate: how a record reaches its equipment.
//!
//! A [`Support`] is told of each record that names it in DTYP, with the address of its link, and says how the record is
//! answered: at once, by a [`Direct`] that is called on the owner's thread, or later, by requests that the shell takes
//! out ([`Db::next_request`]) and completes ([`Db::complete`]). The record stays active meanwhile, as with C's
//! asynchronous device supports. Records with SCAN `I/O Intr` take what their source was [fed](Db::feed).

use crate::model::id::RecId;
use crate::model::schema;
use crate::model::slot::Slot;
use crate::run::callback::Callback;
use crate::run::device::Device;
use crate::run::engine::{Db, Now};
use crate::run::notify::Got;
use crate::run::scan::DeviceSample;
use base::{Array, FieldType, Scalar, Severity, Stamp, Status, Str40, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A device support.
pub trait Support: Send + Sync {
    /// Its name in DTYP.
    fn name(&self) -> &str;

    /// Types of the records that it serves.
    fn record_types(&self) -> &[&'static str];

    /// A record starts with this address, or is given it while it runs: the one before is forgotten.
    ///
    /// # Errors
    /// What is wrong with the address. The record is then left without device support.
    fn attach(&self, place: &Attaching<'_>) -> Result<Attached, AttachError>;

    /// The record is removed.
    fn detach(&self, shard: usize, record: RecId) {
        let _ = (shard, record);
    }
}

/// Why a device support does not serve a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The address ends where more has to stand.
    Ends {
        /// What it would have been.
        expected: String,
    },
    /// Something in the address is not what it has to be.
    Unexpected {
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: String,
    },
    /// Something in the address cannot be read.
    Unreadable {
        /// What stands there.
        found: String,
        /// Why it cannot.
        why: String,
    },
    /// A word of the address that has no meaning.
    TooMuch {
        /// The word.
        found: String,
    },
    /// The record's type or direction does not fit what the address names.
    Unsuited {
        /// Why it does not.
        why: String,
    },
    /// What the address names (a port, a file) cannot be used.
    Unusable {
        /// What it is, and why it cannot.
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

/// A record that is given an address.
#[derive(Clone, Copy, Debug)]
pub struct Attaching<'a> {
    /// Which shard of a divided database the record is in: 0 is the housekeeping shard.
    pub shard: usize,
    /// The record.
    pub record: RecId,
    /// Its name.
    pub name: &'a str,
    /// Its type.
    pub record_type: &'a str,
    /// Whether it writes to its device.
    pub output: bool,
    /// What stands behind the `@` of its link.
    pub address: &'a str,
    /// Type of the elements of an array record.
    pub elements: FieldType,
    /// How many elements an array record holds; 1 for others.
    pub count: usize,
}

/// How a record is served.
pub struct Attached {
    /// Who answers it.
    pub answers: Answers,
    /// Whether SCAN may be `I/O Intr`: then what comes by [`Db::feed_record`] processes it.
    pub interrupts: bool,
}

/// Who answers a record.
pub enum Answers {
    /// At once, on its owner's thread.
    Now(Box<dyn Direct>),
    /// Whoever takes the requests.
    Later,
}

/// Answers a record at once.
///
/// Real-time: called on the thread that owns the record; neither allocates nor blocks.
pub trait Direct: Send {
    /// Reads for an input record.
    fn read(&mut self, now: Now) -> DeviceSample;

    /// Writes for an output record; the value in what it answers is not used.
    fn write(&mut self, now: Now, output: &Output) -> DeviceSample;
}

/// What an output record writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The value: OVAL of ao, the state's number of bo and mbbo, else VAL.
    pub value: Value,
    /// RVAL, for record types that have it; else the value as a whole number. Of a mbbo whose states have no values it is
    /// the state's number, shifted by SHFT.
    pub raw: i64,
    /// The name of the state, where the record has states and this one has a name.
    pub name: Option<Str40>,
    /// Whether the raw value was made of the value by a conversion (LINR of ao).
    pub converted: bool,
}

/// What a record asks of its device.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Who asks. It is active until [`Db::complete`] is called for it.
    pub record: RecId,
    /// What is to be written; `None`: read.
    pub output: Option<Output>,
}

/// Device supports and the records that they serve.
#[derive(Default)]
pub(crate) struct Supports {
    all: Vec<Arc<dyn Support>>,
    attached: HashMap<RecId, One>,
    requests: VecDeque<Request>,
}

struct One {
    support: usize,
    answers: Answers,
    /// What came for the request that the record waits for.
    reply: Option<DeviceSample>,
}

impl Supports {
    /// The same device supports, without records: for a shard of the database.
    pub(crate) fn for_shard(&self) -> Self {
        Self { all: self.all.clone(), ..Self::default() }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|support| support.name() == name)
    }
}

impl DeviceSample {
    /// Nothing could be read or written.
    #[must_use]
    pub fn failed(status: Status) -> Self {
        let alarm = base::Alarm { status, severity: Severity::Invalid };
        Self { value: None, alarm, stamp: Stamp::EPOCH, tag: 0 }
    }

    /// A value without alarm, taken at this time.
    #[must_use]
    pub fn good(value: Value, stamp: Stamp) -> Self {
        Self { value: Some(value), alarm: base::Alarm::NONE, stamp, tag: 0 }
    }

    /// Done: written without alarm.
    #[must_use]
    pub const fn done(stamp: Stamp) -> Self {
        Self { value: None, alarm: base::Alarm::NONE, stamp, tag: 0 }
    }

    /// The value as one element.
    pub(crate) fn scalar(&self) -> Option<Scalar> {
        match self.value.as_ref()? {
            Value::Scalar(value) => Some(*value),
            Value::Array(values) => values.get(0),
        }
    }

    /// The value as a raw whole number, where it is one of at most 32 bits.
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

    /// The value as elements of a type, at most so many.
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
    /// Makes a device support known: records of its types may name it in DTYP. Before records are loaded.
    pub fn add_support(&mut self, support: Arc<dyn Support>) {
        for kind in &mut Arc::make_mut(&mut self.records.schema).types {
            let known = kind.devices.iter().any(|device| device.name == support.name());
            if !known && support.record_types().contains(&kind.name.as_str()) {
                kind.devices.push(schema::Device { name: support.name().to_owned(), link: "INST_IO".to_owned() });
            }
        }
        self.supports.all.push(support);
    }

    /// What a record asks of its device next. Does not allocate. A record has one request out at most.
    pub fn next_request(&mut self) -> Option<Request> {
        self.supports.requests.pop_front()
    }

    /// Answers the request of a record: its processing goes on soon, in the order of PRIO. What it was answered with
    /// before comes back, to be freed elsewhere, and so does an answer that nobody waits for. A value that answers an
    /// output's request is the value that its device has now: it becomes VAL, or raises CALC where it cannot.
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

    /// A record's device has a new value: it is processed soon, if its SCAN is `I/O Intr`. What it was fed before comes
    /// back, to be freed elsewhere.
    ///
    /// Real-time: neither allocates nor blocks.
    pub fn feed_record(&mut self, record: RecId, fed: DeviceSample) -> Option<DeviceSample> {
        match self.scans.source_of(record) {
            Some(source) => self.feed(source, fed),
            None => Some(fed),
        }
    }

    /// Tells the device support of a record its address; whether it will serve it.
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
            Ok(Attached { answers, interrupts }) => {
                let reply = self.supports.attached.remove(&rec).and_then(|one| one.reply);
                self.supports.attached.insert(rec, One { support, answers, reply });
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

    fn shard_number(&self) -> usize {
        self.split.shard.map_or(0, |shard| shard as usize + 1)
    }

    /// Tells the device support that a record is gone.
    pub(crate) fn detach(&mut self, rec: RecId) {
        if let Some(one) = self.supports.attached.remove(&rec) {
            self.supports.all[one.support].detach(self.shard_number(), rec);
        }
    }

    /// Reads for an input record: at once, from what its source was fed, or by a request that a callback ends. Alarm,
    /// stamp (TSE −2) and UTAG are set, and UDF where there is a value.
    pub(crate) fn device_read(&mut self, rec: RecId, resumed: bool) -> Got<DeviceSample> {
        const IO_INTR: u16 = 2;
        let now = self.time.now;
        let interrupts = self.records[rec].scan == IO_INTR;
        let Some(one) = self.supports.attached.get_mut(&rec) else { return Got::Failed };
        let fed = match &mut one.answers {
            Answers::Now(direct) => direct.read(now),
            Answers::Later if resumed => match &one.reply {
                Some(reply) => reply.clone(),
                None => DeviceSample::failed(Status::Read),
            },
            Answers::Later => match self.scans.fed_to(rec).filter(|_| interrupts) {
                Some(fed) => fed.clone(),
                None => {
                    self.supports.requests.push_back(Request { record: rec, output: None });
                    return Got::Pending;
                }
            },
        };
        self.take_fed(rec, &fed);
        if fed.value.is_none() {
            // Where all went well there was no value to be taken: the record keeps its own.
            if fed.alarm.severity == Severity::None {
                self.records[rec].udf = 0;
            }
            return Got::Failed;
        }
        self.records[rec].udf = 0;
        Got::Value(fed)
    }

    /// Writes for an output record; whether a callback ends it. A failed write has raised its alarm.
    pub(crate) fn device_write(&mut self, rec: RecId, resumed: bool, output: Output) -> bool {
        let now = self.time.now;
        let Some(one) = self.supports.attached.get_mut(&rec) else { return false };
        let fed = match &mut one.answers {
            Answers::Now(direct) => direct.write(now, &output),
            Answers::Later if resumed => match &one.reply {
                Some(reply) => DeviceSample { value: None, ..*reply },
                None => DeviceSample::failed(Status::Write),
            },
            Answers::Later => {
                self.supports.requests.push_back(Request { record: rec, output: Some(output) });
                return true;
            }
        };
        self.take_fed(rec, &fed);
        self.pass.failed = fed.alarm.severity == Severity::Invalid;
        false
    }

    /// Alarm, stamp and tag of what a device said.
    fn take_fed(&mut self, rec: RecId, fed: &DeviceSample) {
        let by_device = crate::rec::stamp_by_device(self, rec);
        let common = &mut self.records[rec];
        if fed.alarm.severity != Severity::None {
            common.raise(fed.alarm.status, fed.alarm.severity as u16);
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
