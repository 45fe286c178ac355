//! Functions of the plant: the archive, and reading requests to the message server. They block, so threads execute them.

use super::tables::{result_value, table_type, text_type, text_value};
use crate::Options;
use crate::messages::{Console, writes};
use canet::Waker;
use pva::codec::{Array, Kind, Status, Struct, Type, Value};
use pva::server::{Call, Token, Typed};
use retrieval::{Values, Wanted};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use sys::clock::wall_ns;

/// Maximum number of calls that wait for a thread.
const WAITING_MAX: usize = 16;
/// Maximum number of returned names.
const NAMES_MAX: usize = 10_000;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Archive,
    Signals,
    Describe,
    Objects,
    Read,
}

impl Function {
    pub(super) const ALL: [Self; 5] = [Self::Archive, Self::Signals, Self::Describe, Self::Objects, Self::Read];

    /// Its name after that of the plant.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Signals => "signals",
            Self::Describe => "describe",
            Self::Objects => "objects",
            Self::Read => "read",
        }
    }

    /// What it does, which is the value of its PV.
    pub(super) const fn usage(self) -> &'static str {
        match self {
            Self::Archive => {
                "RPC: samples as a table; pv=NAME from=INSTANT to=INSTANT pp=POST-PROCESSOR (by default the last hour)"
            }
            Self::Signals => "RPC: names of archived signals; pattern=*",
            Self::Describe => "RPC: describes an object of the message server; name=OBJECT",
            Self::Objects => "RPC: objects of the message server; pattern=*",
            Self::Read => "RPC: a reading request to the message server; request=get/OBJECT/PROPERTY",
        }
    }

    const fn needs_archive(self) -> bool {
        matches!(self, Self::Archive | Self::Signals)
    }
}

/// Result of a call.
type Outcome = Result<Typed, Status>;

struct Job {
    function: Function,
    argument: Arguments,
    token: Token,
}

/// Executes a function.
type Work = Box<dyn FnMut(Function, &Arguments) -> Outcome + Send>;

/// The threads, with their queues.
pub(super) struct Calls {
    archive: SyncSender<Job>,
    messages: SyncSender<Job>,
}

impl Calls {
    /// Starts the threads, which end with the process. They send results to `done` and then wake the server.
    pub(super) fn start(options: &Options, done: &Sender<(Token, Outcome)>, waker: &Waker) -> io::Result<Self> {
        let begin = |name: &str, mut work: Work| {
            let (queue, jobs): (_, Receiver<Job>) = sync_channel(WAITING_MAX);
            let (done, waker) = (done.clone(), waker.clone());
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                for Job { function, argument, token } in jobs {
                    // The server ends with the process.
                    let _ = done.send((token, work(function, &argument)));
                    waker.wake();
                }
            })?;
            Ok::<_, io::Error>(queue)
        };
        let folder = options.archive.clone();
        let mut console = Console::new(options.messages.clone());
        Ok(Self {
            archive: begin("dash-pv-archive", Box::new(move |what, given| archive(folder.as_ref(), what, given)))?,
            messages: begin("dash-pv-calls", Box::new(move |what, given| message(&mut console, what, given)))?,
        })
    }

    /// Queues a call.
    pub(super) fn give(&self, function: Function, argument: Option<Typed>, token: Token) -> Call {
        let queue = if function.needs_archive() { &self.archive } else { &self.messages };
        match queue.try_send(Job { function, argument: Arguments::of(argument), token }) {
            Ok(()) => Call::Sent,
            Err(TrySendError::Full(_)) => {
                Call::Failed(Status::error(format!("{WAITING_MAX} calls wait already; try again later")))
            }
            Err(TrySendError::Disconnected(_)) => Call::Failed(Status::error("the thread of this function has ended")),
        }
    }
}

/// Named texts and numbers, as texts.
#[derive(Debug, Default, PartialEq)]
struct Arguments(Vec<(String, String)>);

impl Arguments {
    /// The fields of the argument, or of its structure `query` (an `NTURI`).
    fn of(argument: Option<Typed>) -> Self {
        let Some((ty, value)) = argument else { return Self::default() };
        let Some(fields) = ty.fields() else { return Self::default() };
        let query = value.field(fields, "query").and_then(|(value, ty)| Some((value, ty.fields()?)));
        let (value, fields) = query.unwrap_or((&value, fields));
        let text = |name: &String| {
            let (value, _) = value.field(fields, name)?;
            let text =
                value.as_text().map(str::to_owned).or_else(|| value.to_f64().map(|number| number.to_string()))?;
            Some((name.clone(), text))
        };
        Self(fields.fields().iter().filter_map(|(name, _)| text(name)).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().find(|(known, text)| known == name && !text.is_empty());
        named.map(|(_, text)| text.as_str())
    }

    fn needed(&self, function: Function, name: &str) -> Result<&str, Status> {
        self.get(name).ok_or_else(|| {
            let found: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
            Status::error(format!("argument {name} is missing, found {found}; expected: {}", function.usage()))
        })
    }
}

fn now() -> i64 {
    wall_ns().cast_signed()
}

/// A table as the result of a call.
fn table(columns: Vec<(&str, Kind, Array)>) -> Typed {
    let named: Vec<(&str, Kind)> = columns.iter().map(|(name, kind, _)| (*name, *kind)).collect();
    let ty = Type::Struct(table_type(&named));
    (ty, result_value(columns.into_iter().map(|(name, _, values)| (name, values)).collect(), now()))
}

/// Names as the result of a call: `NTScalarArray`.
fn names(names: Vec<String>) -> Outcome {
    let found = names.len();
    if found > NAMES_MAX {
        return Err(Status::error(format!("{found} names; expected a pattern that matches at most {NAMES_MAX}")));
    }
    let fields = vec![("value".to_owned(), Type::Array(Kind::Text))];
    let ty = Struct::new("epics:nt/NTScalarArray:1.0", fields).map_err(|fault| Status::error(fault.to_string()))?;
    Ok((Type::Struct(ty), Value::Struct(vec![Value::Array(Array::Text(names))])))
}

fn archive(folder: Option<&PathBuf>, function: Function, given: &Arguments) -> Outcome {
    let none = "this plant has no archive; [archive] in its file makes one";
    let open = retrieval::folder(folder.ok_or_else(|| Status::error(none))?.clone());
    if function == Function::Signals {
        let reader = open(&|_| false).map_err(|error| Status::error(error.to_string()))?;
        return names(
            reader.matching(given.get("pattern").unwrap_or("*")).map_err(|error| Status::error(error.to_string()))?,
        );
    }
    let wanted = Wanted {
        name: given.needed(function, "pv")?,
        operator: given.get("pp"),
        from: given.get("from"),
        to: given.get("to"),
    };
    let read = retrieval::columns(&open, wanted, now()).map_err(|error| Status::error(error.to_string()))?;
    Ok(samples(read))
}

/// Samples as a table.
fn samples(read: retrieval::Columns) -> Typed {
    let second = 1_000_000_000;
    let seconds = read.at.iter().map(|at| at.div_euclid(second)).collect();
    let nanos = read.at.iter().map(|at| at.rem_euclid(second) as i32).collect();
    let (kind, values) = match read.values {
        Values::Numbers(numbers) => (Kind::F64, Array::F64(numbers)),
        Values::Texts(texts) => (Kind::Text, Array::Text(texts)),
    };
    table(vec![
        ("secondsPastEpoch", Kind::I64, Array::I64(seconds)),
        ("nanoseconds", Kind::I32, Array::I32(nanos)),
        ("value", kind, values),
        ("severity", Kind::I32, Array::I32(read.severity)),
        ("status", Kind::I32, Array::I32(read.status)),
    ])
}

fn message(console: &mut Console, function: Function, given: &Arguments) -> Outcome {
    let line = match function {
        Function::Objects => {
            let known = console.all(given.get("pattern").unwrap_or("*"));
            return names(known.map_err(|error| Status::error(error.to_string()))?);
        }
        Function::Describe => format!("describe/{}", given.needed(function, "name")?),
        _ => given.needed(function, "request")?.to_owned(),
    };
    if writes(&line).map_err(|error| Status::error(error.to_string()))? {
        return Err(Status::error(format!("{line:?} changes something; expected a request that only reads")));
    }
    let reply = console.send(None, &line).map_err(Status::error)?;
    let of = |key: &str| reply[key].as_str().unwrap_or_default();
    if reply["good"] != true {
        return Err(Status::error(format!("{}: {}", of("code"), of("text"))));
    }
    let lines = reply["lines"].as_array().into_iter().flatten();
    let lines: Vec<String> = lines.map(|line| line.as_str().map_or_else(|| line.to_string(), str::to_owned)).collect();
    if lines.is_empty() {
        return Ok((Type::Struct(text_type()), text_value(of("text"), now())));
    }
    Ok(table(vec![("line", Kind::Text, Array::Text(lines))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(fields: &[(&str, &str)]) -> Typed {
        let of = |fields: Vec<(String, Type)>| Type::Struct(Struct::new("", fields).unwrap());
        let kinds = fields.iter().map(|(name, _)| ((*name).to_owned(), Type::Scalar(Kind::Text))).collect();
        let values = fields.iter().map(|(_, text)| Value::Text((*text).to_owned())).collect();
        (of(kinds), Value::Struct(values))
    }

    #[test]
    fn arguments_are_fields_of_the_argument_or_of_its_query() {
        let (ty, value) = texts(&[("pv", "X"), ("pp", "")]);
        let query = Struct::new("epics:nt/NTURI:1.0", vec![("query".to_owned(), ty.clone())]).unwrap();
        for given in [(ty.clone(), value.clone()), (Type::Struct(query), Value::Struct(vec![value]))] {
            let given = Arguments::of(Some(given));
            assert_eq!([given.get("pv"), given.get("pp"), given.get("from")], [Some("X"), None, None]);
        }
        let number = Struct::new("", vec![("to".to_owned(), Type::Scalar(Kind::I32))]).unwrap();
        let given = Arguments::of(Some((Type::Struct(number), Value::Struct(vec![Value::I32(7)]))));
        assert_eq!(given.get("to"), Some("7"));
        assert_eq!(Arguments::of(None), Arguments::default());
        assert_eq!(Arguments::of(Some((Type::Scalar(Kind::I32), Value::I32(1)))), Arguments::default());
    }

    #[test]
    fn a_missing_argument_is_named_with_the_expected_ones() {
        let mut console = Console::new("none".into());
        let given = Arguments::of(Some(texts(&[("object", "x")])));
        let error = message(&mut console, Function::Describe, &given).unwrap_err().message;
        assert!(error.contains("name is missing, found object; expected: RPC: describes an object"), "{error}");
    }

    #[test]
    fn requests_that_change_something_are_refused_before_they_are_sent() {
        let mut console = Console::new("none".into());
        for line in ["put/x/1A", "lock/x", "nothing"] {
            let given = Arguments::of(Some(texts(&[("request", line)])));
            let error = message(&mut console, Function::Read, &given).unwrap_err().message;
            assert!(line == "nothing" || error.contains("expected a request that only reads"), "{error}");
        }
        let named = Arguments::of(Some(texts(&[("name", "x/1")])));
        assert!(message(&mut console, Function::Describe, &named).is_err());
    }

    #[test]
    fn samples_are_a_table_with_seconds_and_nanoseconds() {
        let read = retrieval::Columns {
            at: vec![1_500_000_000, -1],
            values: Values::Numbers(vec![1.5, 2.5]),
            severity: vec![0, 2],
            status: vec![0, 3],
        };
        let (ty, value) = samples(read);
        let fields = ty.fields().unwrap();
        assert_eq!(fields.id(), "epics:nt/NTTable:1.0");
        let (value, ty) = value.field(fields, "value").unwrap();
        let column = |name| value.field(ty.fields().unwrap(), name).unwrap().0.clone();
        assert_eq!(column("secondsPastEpoch"), Value::Array(Array::I64(vec![1, -1])));
        assert_eq!(column("nanoseconds"), Value::Array(Array::I32(vec![500_000_000, 999_999_999])));
        assert_eq!(column("value"), Value::Array(Array::F64(vec![1.5, 2.5])));
    }

    #[test]
    fn a_plant_without_an_archive_says_so() {
        let error = archive(None, Function::Signals, &Arguments::default()).unwrap_err().message;
        assert!(error.contains("[archive] in its file makes one"), "{error}");
    }
}
