//! "tahti Message": objects of equipment managers, accessed by messages: `@OBJECT/COMPLEMENT verb=put server=main band=3
//! timeout=1s poll=TIME states=off,on`.
//!
//! An input sends `get/OBJECT/COMPLEMENT`. An output sends `put/OBJECT/COMPLEMENT`, with `{value}` replaced by its value.
//! Without a complement, the value is the whole complement. A complement without `{value}` is a command: it is sent
//! unchanged, whatever the value of the record. `verb=set` waits until the value is reached. `verb=call` calls.
//!
//! `states=` lists the labels of a bi, bo, mbbi or mbbo, from state 0 on. Without it the state number is sent. The unit of a
//! number is ignored. Array records of characters hold the text; others hold numbers or words separated by commas. With
//! `poll=`, SCAN may be `I/O Intr`: the object is read with this period, and the record is processed when its value or alarm
//! changes. UTAG is the pulse number.
//!
//! Only the record waits for an answer: a separate thread sends the requests.
//!
//! All alarms are INVALID:
//!
//! - TIMEOUT: no answer in time
//! - COMM: no message server, no such object, or its manager died
//! - CALC: the answer does not fit the record
//! - READ or WRITE: refused for any other reason

use super::server::{PendingRequest, RequestOutcome};
use super::watch::Watch;
use super::{DeviceSupport, Interrupt, Options, Ports, RecordDevice, Reply, Served};
use crate::engine::now;
use base::{Array, DurNs, FieldType, Scalar, Stamp, Status, Str40, Value};
use db::{AttachError, Attaching, DeviceSample, Now, Output};
use msg::{Band, Code, Escaped, Request, Verb, quantity};
use std::sync::Arc;

/// Placeholder of the value in a complement.
const VALUE: &str = "{value}";

/// The device support.
pub(super) struct Message;

impl DeviceSupport for Message {
    fn name(&self) -> &'static str {
        "tahti Message"
    }

    fn record_types(&self) -> &'static [&'static str] {
        &[
            "ai",
            "ao",
            "bi",
            "bo",
            "mbbi",
            "mbbo",
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
        ]
    }

    fn attach(&self, place: &Attaching<'_>, ports: &Ports) -> Result<Served, AttachError> {
        let (object, poll) = Object::parse(place, &ports.message_server())?;
        let device = Messages { object: Arc::new(object), ports: ports.clone(), poll, watch: None };
        Ok(Served { device: Some(Box::new(device)), interrupts: poll.is_some(), ..Served::default() })
    }
}

/// The object of a record.
#[derive(Debug)]
struct Object {
    server: String,
    band: Band,
    /// Verb, object and slash.
    head: String,
    complement: String,
    timeout: DurNs,
    states: Vec<String>,
    record_type: String,
    elements: FieldType,
    count: usize,
}

impl Object {
    fn parse(place: &Attaching<'_>, server: &str) -> Result<(Self, Option<DurNs>), AttachError> {
        // Not parsed as options, because a complement may contain an equals sign.
        let (words, rest) = place.address.trim().split_once(char::is_whitespace).unwrap_or((place.address.trim(), ""));
        if words.is_empty() {
            return Err(AttachError::Ends { expected: "OBJECT/COMPLEMENT".to_owned() });
        }
        let mut options = Options::parse(rest);
        let (object, complement) = words.split_once('/').unwrap_or((words, if place.output { VALUE } else { "" }));
        let verb = options.value("verb", if place.output { Verb::Put } else { Verb::Get })?;
        let fits = |verb: &Verb| verb.writes() == place.output;
        if !Verb::of_devices().any(|known| known == verb) || !fits(&verb) {
            let expected = Verb::words(Verb::of_devices().filter(fits)).to_string();
            return Err(AttachError::Unexpected { found: format!("verb={verb}"), expected });
        }
        if !place.output && complement.contains(VALUE) {
            return Err(AttachError::Unsuited { why: format!("\"{words}\": an input has no {VALUE}") });
        }
        let server = options.text("server").unwrap_or(server).to_owned();
        let band = options.value("band", Band::DEFAULT.number())?;
        let bad = || AttachError::Unexpected { found: format!("band={band}"), expected: "0 to 7".to_owned() };
        let band = Band::new(band).ok_or_else(bad)?;
        let timeout = options.time("timeout", DurNs::from_secs(1))?;
        let polls = !place.output && options.text("poll").is_some();
        let poll = if polls { Some(options.time("poll", DurNs::ZERO)?) } else { None };
        let takes_states = matches!(place.record_type, "bi" | "bo" | "mbbi" | "mbbo");
        let states = if takes_states { options.text("states") } else { None };
        let states = states.map_or_else(Vec::new, |states| states.split(',').map(str::to_owned).collect());
        options.finish()?;
        let head = format!("{verb}/{object}/");
        let object = Self {
            server,
            band,
            head,
            complement: complement.to_owned(),
            timeout,
            states,
            record_type: place.record_type.to_owned(),
            elements: place.elements,
            count: place.count,
        };
        let wrong = |error: &dyn std::fmt::Display| AttachError::Unreadable {
            found: format!("\"{words}\""),
            why: error.to_string(),
        };
        Request::parse(&object.line("0")).map_err(|error| wrong(&error))?;
        Ok((object, poll))
    }

    fn is_array(&self) -> bool {
        matches!(self.record_type.as_str(), "waveform" | "aai" | "aao")
    }

    /// The request text for a value.
    fn line(&self, value: &str) -> String {
        format!("{}{}", self.head, Escaped(self.complement.replace(VALUE, value)))
    }

    /// Text of a value; `None` if it has none.
    fn word(&self, value: &Value) -> Option<String> {
        let scalar = |scalar: Scalar| match scalar {
            Scalar::F64(value) => value.is_finite().then(|| value.to_string()),
            Scalar::F32(value) => value.is_finite().then(|| value.to_string()),
            other => Some(base::text::scalar(other, 0).to_string()),
        };
        match value {
            Value::Scalar(value) if !self.states.is_empty() => {
                self.states.get(usize::from(whole(value.to_f64()?)?)).cloned()
            }
            Value::Scalar(value) => scalar(*value),
            Value::Array(Array::U8(text)) => Some(words(text)),
            Value::Array(Array::I8(text)) => Some(words(&text.iter().map(|byte| *byte as u8).collect::<Vec<_>>())),
            Value::Array(values) => {
                let all: Option<Vec<String>> = (0..values.len()).map(|at| scalar(values.get(at)?)).collect();
                all.map(|all| all.join(","))
            }
        }
    }

    /// Converts an outcome to a sample for the record.
    fn meaning(&self, outcome: RequestOutcome, writes: bool, stamp: Stamp) -> DeviceSample {
        let refused = if writes { Status::Write } else { Status::Read };
        let (text, pulse) = match outcome {
            RequestOutcome::Reply(Code::Ok, text, pulse) => (text, pulse),
            RequestOutcome::Timeout | RequestOutcome::Reply(Code::Timeout | Code::Expired, ..) => {
                return DeviceSample::failed(Status::Timeout);
            }
            RequestOutcome::Lost | RequestOutcome::Reply(Code::NoObject | Code::Unknown, ..) => {
                return DeviceSample::failed(Status::Comm);
            }
            RequestOutcome::Reply(..) => return DeviceSample::failed(refused),
        };
        if writes {
            return DeviceSample { tag: pulse, ..DeviceSample::done(stamp) };
        }
        match self.value(&text) {
            Some(value) => DeviceSample { tag: pulse, ..DeviceSample::good(value, stamp) },
            None => DeviceSample::failed(Status::Calc),
        }
    }

    /// Converts a reply to a value of the record's type.
    fn value(&self, text: &str) -> Option<Value> {
        let number = |text: &str| quantity(text).map(|(number, _)| number);
        let characters = matches!(self.elements, FieldType::I8 | FieldType::U8);
        Some(match self.record_type.as_str() {
            "stringin" => Value::Scalar(Scalar::String(Str40::new(text.as_bytes()))),
            "lsi" => Value::Array(Array::U8(text.as_bytes().to_vec())),
            _ if self.is_array() && characters => Value::Array(Array::U8(text.bytes().take(self.count).collect())),
            _ if self.is_array() && text.is_empty() => Value::Array(Array::zeros(self.elements, 0)),
            _ if self.is_array() => {
                let parts = text.split(',').map(str::trim).take(self.count);
                Value::Array(match self.elements {
                    FieldType::String => Array::String(parts.map(|part| Str40::new(part.as_bytes())).collect()),
                    _ => Array::F64(parts.map(number).collect::<Option<_>>()?),
                })
            }
            "bi" | "mbbi" if !self.states.is_empty() => {
                Value::Scalar(Scalar::Enum(self.states.iter().position(|state| state == text)? as u16))
            }
            "bi" | "mbbi" => Value::Scalar(Scalar::Enum(whole(number(text)?)?)),
            "longin" | "int64in" => Value::Scalar(Scalar::I64(number(text)? as i64)),
            _ => Value::from(number(text)?),
        })
    }
}

/// A state number.
fn whole(number: f64) -> Option<u16> {
    (number.fract() == 0.0 && (0.0..65_536.0).contains(&number)).then_some(number as u16)
}

/// Text of the bytes up to the first NUL.
fn words(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The device of one record.
struct Messages {
    object: Arc<Object>,
    ports: Ports,
    poll: Option<DurNs>,
    watch: Option<Watch>,
}

impl Messages {
    fn send(&self, line: String, then: impl FnOnce(&Object, RequestOutcome) + Send + 'static) {
        let object = self.object.clone();
        let latest = now().mono + object.timeout;
        let mine = object.clone();
        let then = Box::new(move |outcome| then(&mine, outcome));
        self.ports.send_or_refuse(&object.server, object.band, PendingRequest { line, latest, then });
    }
}

impl RecordDevice for Messages {
    fn start(&mut self, _: Now, interrupt: Interrupt) {
        self.watch = Some(Watch::new(interrupt));
    }

    fn request(&mut self, _: Now, output: Option<Output>, reply: Reply) {
        let writes = output.is_some();
        let line = match &output {
            Some(output) => self.object.word(&output.value).map(|word| self.object.line(&word)),
            None => Some(self.object.line("")),
        };
        match line {
            Some(line) => self.send(line, move |object, outcome| {
                reply.send(object.meaning(outcome, writes, now().wall));
            }),
            None => reply.send(DeviceSample::failed(Status::Write)),
        }
    }

    fn period(&self) -> Option<DurNs> {
        self.poll
    }

    fn poll(&mut self, _: Now) {
        let Some(watch) = self.watch.clone().filter(Watch::begin) else { return };
        self.send(self.object.line(""), move |object, outcome| {
            watch.end(object.meaning(outcome, false, now().wall));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use db::RecId;

    fn object(address: &str, record_type: &str, elements: FieldType) -> Result<Object, AttachError> {
        let place = Attaching {
            shard: 0,
            record: RecId(1),
            name: "r",
            record_type,
            output: matches!(record_type, "ao" | "bo" | "mbbo" | "longout" | "stringout" | "lso" | "aao"),
            address,
            elements,
            count: 3,
        };
        Object::parse(&place, "main").map(|(object, _)| object)
    }

    #[test]
    fn values_of_records_become_requests() {
        let said = |address: &str, kind: &str, value: Value| {
            let object = object(address, kind, FieldType::F64).unwrap();
            object.word(&value).map(|word| object.line(&word))
        };
        let line = |text: &str| Some(text.to_owned());
        let enumeration = |state| Value::Scalar(Scalar::Enum(state));
        assert_eq!(said("sr_ps/{value}A", "ao", Value::from(1.5)), line("put/sr_ps/1.5A"));
        assert_eq!(said("sr_ps verb=set", "longout", Value::from(-7i32)), line("set/sr_ps/-7"));
        assert_eq!(said("sr_ps/ki={value}", "ao", Value::from(f64::NAN)), None);
        assert_eq!(said("sr_ps states=off,on", "bo", enumeration(1)), line("put/sr_ps/on"));
        assert_eq!(said("sr_ps states=off,on", "mbbo", enumeration(2)), None);
        assert_eq!(said("sr_ps", "mbbo", enumeration(2)), line("put/sr_ps/2"));
        assert_eq!(said("sr_rf/reset verb=call", "bo", enumeration(0)), line("call/sr_rf/reset"));
        let text = Value::Scalar(Scalar::String("a/b%".into()));
        assert_eq!(said("sr_ps", "stringout", text), line("put/sr_ps/a%2Fb%25"));
        assert_eq!(said("sr_ps", "lso", Value::Array(Array::U8(b"ab\0c".to_vec()))), line("put/sr_ps/ab"));
        assert_eq!(said("sr_ps", "aao", Value::Array(Array::F64(vec![1.0, 2.5]))), line("put/sr_ps/1,2.5"));
    }

    #[test]
    fn replies_become_values_and_failures_alarms() {
        let fed = |address: &str, kind: &str, elements, outcome| {
            object(address, kind, elements).unwrap().meaning(outcome, kind == "ao", Stamp::EPOCH)
        };
        let ok = |text: &str| RequestOutcome::Reply(Code::Ok, text.into(), 9);
        let value = |address: &str, kind: &str, elements, text: &str| fed(address, kind, elements, ok(text)).value;
        let scalar = |scalar| Some(Value::Scalar(scalar));
        let real = FieldType::F64;
        assert_eq!(value("sr/x", "ai", real, "99.605A"), Some(Value::from(99.605)));
        assert_eq!(value("sr/x", "longin", real, "7 counts"), scalar(Scalar::I64(7)));
        assert_eq!(value("sr/x states=off,on", "bi", real, "on"), scalar(Scalar::Enum(1)));
        assert_eq!(value("sr/x", "mbbi", real, "3"), scalar(Scalar::Enum(3)));
        assert_eq!(value("sr/x", "stringin", real, "a/b"), scalar(Scalar::String("a/b".into())));
        let array = |array| Some(Value::Array(array));
        assert_eq!(value("sr/x", "waveform", FieldType::U8, "abcd"), array(Array::U8(b"abc".to_vec())));
        assert_eq!(value("sr/x", "waveform", real, "1, 2mm,3,4"), array(Array::F64(vec![1.0, 2.0, 3.0])));
        assert_eq!(value("sr/x", "waveform", real, ""), array(Array::F64(vec![])));
        assert_eq!(fed("sr/x", "ai", real, ok("1")).tag, 9);

        let status = |kind: &str, outcome| fed("sr/x", kind, real, outcome).alarm.status;
        let failed = |code| RequestOutcome::Reply(code, String::new(), 0);
        assert_eq!(status("ai", ok("off")), Status::Calc);
        assert_eq!(status("ai", failed(Code::Timeout)), Status::Timeout);
        assert_eq!(status("ai", failed(Code::NoObject)), Status::Comm);
        assert_eq!(status("ai", failed(Code::Unknown)), Status::Comm);
        assert_eq!(status("ai", RequestOutcome::Lost), Status::Comm);
        assert_eq!(status("ai", failed(Code::Device)), Status::Read);
        assert_eq!(status("ao", failed(Code::Range)), Status::Write);
        assert_eq!(fed("sr/x", "ao", real, ok("")), DeviceSample { tag: 9, ..DeviceSample::done(Stamp::EPOCH) });
    }

    #[test]
    fn a_malformed_address_is_refused_with_the_expected_form() {
        let refused = |address: &str, kind: &str| object(address, kind, FieldType::F64).unwrap_err().to_string();
        assert!(refused("", "ai").contains("expected OBJECT/COMPLEMENT"));
        assert!(refused("SR/x", "ai").contains("SR"), "{}", refused("SR/x", "ai"));
        assert!(refused("sr_ps/{value}", "ai").contains("an input has no {value}"));
        assert!(refused("sr_ps/x verb=put", "ai").contains("expected get"));
        assert!(refused("sr_ps/x verb=get", "ao").contains("expected put, set, call"));
        assert!(refused("sr_ps/x verb=pt", "ao").contains("verb=pt"));
        assert!(refused("sr_ps/x band=8", "ai").contains("expected 0 to 7"));
        assert!(refused("sr_ps/x states=a,b", "ai").contains("unknown key \"states=\""));
        assert!(refused("sr_ps/x poll=1s", "ao").contains("unknown key \"poll=\""));
    }
}
