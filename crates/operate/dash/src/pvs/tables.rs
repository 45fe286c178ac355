//! The plant's tables as structures of PVAccess.

use crate::hub::Topic;
use crate::metrics::Source;
use base::{DurNs, MonoNs};
use keep::supervisor::control::{ProcessStatus, RowStatus, Status};
use keep::supervisor::short;
use pva::codec::Kind::{F64, I32, Text, U64};
use pva::codec::{Array, Kind, Struct, Type, Value};
use pva::nt::{alarm_type, structure, time_type};
use serde_json::Value as Json;
use std::sync::Arc;

/// A PV of the plant.
pub(super) struct Table {
    /// Its name after that of the plant.
    pub(super) suffix: &'static str,
    /// The topic of its data.
    pub(super) topic: Topic,
    description: &'static str,
    columns: &'static [(&'static str, Kind)],
    rows: fn(&Source, Clock) -> Vec<Vec<Value>>,
    /// Its alarm is that of the verdict.
    has_verdict: bool,
}

/// All tables.
pub(super) const TABLES: &[Table] = &[
    Table {
        suffix: "health",
        topic: Topic::Plant,
        description: "Promises of the plant with their observed state",
        columns: &[
            ("subject", Text),
            ("claim", Text),
            ("promise", Text),
            ("state", Text),
            ("since", F64),
            ("evidence", Text),
            ("line", I32),
        ],
        rows: |source, clock| of_plant(source, |status| status.health.iter().map(|row| promise(row, clock)).collect()),
        has_verdict: true,
    },
    Table {
        suffix: "processes",
        topic: Topic::Plant,
        description: "Processes of the plant",
        columns: &[
            ("name", Text),
            ("state", Text),
            ("pid", I32),
            ("class", Text),
            ("cpus", Text),
            ("cpu_time", F64),
            ("memory", U64),
            ("starts", U64),
            ("restarts", U64),
            ("fault", Text),
        ],
        rows: |source, _| of_plant(source, |status| status.processes.iter().map(process).collect()),
        has_verdict: false,
    },
    Table {
        suffix: "loops",
        topic: Topic::Plant,
        description: "Wake-up latency of loops in seconds since their start",
        columns: &[
            ("name", Text),
            ("cycles", U64),
            ("period", F64),
            ("skipped", U64),
            ("p50", F64),
            ("p99", F64),
            ("p999", F64),
            ("max", F64),
        ],
        rows: |source, _| of_plant(source, |status| status.processes.iter().filter_map(looped).collect()),
        has_verdict: false,
    },
    Table {
        suffix: "frames",
        topic: Topic::Frames,
        description: "Frames of the plant",
        columns: &[
            ("name", Text),
            ("state", Text),
            ("pulse", U64),
            ("mode", Text),
            ("minors", U64),
            ("lost", U64),
            ("overruns", U64),
            ("underruns", U64),
            ("absences", U64),
        ],
        rows: |source, _| of_frames(source, |frame| vec![framed(frame)]),
        has_verdict: false,
    },
    Table {
        suffix: "activities",
        topic: Topic::Frames,
        description: "Activities of frames, with execution times in seconds",
        columns: &[
            ("frame", Text),
            ("name", Text),
            ("joined", Text),
            ("budget", F64),
            ("p50", F64),
            ("p99", F64),
            ("max", F64),
            ("calls", U64),
            ("overruns", U64),
            ("underruns", U64),
            ("absences", U64),
        ],
        rows: |source, _| of_frames(source, activities),
        has_verdict: false,
    },
    Table {
        suffix: "messages",
        topic: Topic::MessageServer,
        description: "Counters of the message server",
        columns: &[("name", Text), ("count", U64)],
        rows: |source, _| match source {
            Source::Messages(counters) => {
                counters.iter().map(|(name, count)| vec![text(name), Value::U64(*count)]).collect()
            }
            _ => Vec::new(),
        },
        has_verdict: false,
    },
];

/// The difference between the wall clock and the monotonic one, in nanoseconds. It changes only if a clock is set, so that a
/// constant time stays constant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock(i64);

/// Smallest change of the difference that counts.
const SET_BY: i64 = 10_000_000;

impl Clock {
    pub(super) const fn update(&mut self, mono: MonoNs, wall_ns: i64) {
        let offset = wall_ns - mono.0.cast_signed();
        if (offset - self.0).abs() > SET_BY {
            self.0 = offset;
        }
    }

    /// Seconds since 1970.
    fn seconds(self, at: MonoNs) -> f64 {
        (at.0.cast_signed() + self.0) as f64 / 1e9
    }
}

/// Severity, status and message of an alarm.
pub(super) struct Alarm(i32, i32, String);

impl Alarm {
    const NONE: Self = Self(0, 0, String::new());

    /// The source of the data is unavailable.
    fn unavailable(topic: Topic) -> Self {
        Self(3, 6, format!("{}: the source is unavailable", topic.word()))
    }

    /// Degraded is a minor alarm, failed a major one.
    fn of_verdict(status: &Status) -> Self {
        match status.outcome.word() {
            "good" => Self::NONE,
            "degraded" => Self(1, 1, status.outcome.words(short)),
            _ => Self(2, 1, status.outcome.words(short)),
        }
    }

    fn value(self) -> Value {
        Value::Struct(vec![Value::I32(self.0), Value::I32(self.1), Value::Text(self.2)])
    }
}

/// The fields `alarm` and `timeStamp`.
fn common() -> [(&'static str, Type); 2] {
    [("alarm", alarm_type()), ("timeStamp", time_type())]
}

/// A time stamp from nanoseconds since 1970.
fn stamp(wall_ns: i64) -> Value {
    let (seconds, nanos) = (wall_ns.div_euclid(1_000_000_000), wall_ns.rem_euclid(1_000_000_000));
    Value::Struct(vec![Value::I64(seconds), Value::I32(nanos as i32), Value::I32(0)])
}

/// The type of a table with columns: `NTTable`.
pub(super) fn table_type(columns: &[(&str, Kind)]) -> Arc<Struct> {
    let columns: Vec<(&str, Type)> = columns.iter().map(|(name, kind)| (*name, Type::Array(*kind))).collect();
    let value = structure("", &columns);
    let [alarm, time] = common();
    let labels = ("labels", Type::Array(Text));
    let fields = [labels, ("value", Type::Struct(value)), ("descriptor", Type::Scalar(Text)), alarm, time];
    structure("epics:nt/NTTable:1.0", &fields)
}

/// A value of a table.
pub(super) fn table_value(
    labels: impl Iterator<Item = String>,
    columns: Vec<Array>,
    (description, alarm): (&str, Alarm),
    wall_ns: i64,
) -> Value {
    let columns = Value::Struct(columns.into_iter().map(Value::Array).collect());
    let labels = Value::Array(Array::Text(labels.collect()));
    Value::Struct(vec![labels, columns, text(description), alarm.value(), stamp(wall_ns)])
}

/// A value of a table without alarm.
pub(super) fn result_value(columns: Vec<(&str, Array)>, wall_ns: i64) -> Value {
    let (labels, columns): (Vec<_>, Vec<_>) = columns.into_iter().map(|(name, of)| (name.to_owned(), of)).unzip();
    table_value(labels.into_iter(), columns, ("", Alarm::NONE), wall_ns)
}

/// The type of a text with alarm and time stamp: `NTScalar`.
pub(super) fn text_type() -> Arc<Struct> {
    let [alarm, time] = common();
    structure("epics:nt/NTScalar:1.0", &[("value", Type::Scalar(Text)), alarm, time])
}

/// A value of a text without alarm.
pub(super) fn text_value(value: &str, wall_ns: i64) -> Value {
    Value::Struct(vec![text(value), Alarm::NONE.value(), stamp(wall_ns)])
}

/// The verdict on the plant with its reasons in the alarm.
pub(super) fn verdict_value(source: Option<&Source>, wall_ns: i64) -> Value {
    let (word, alarm) = match source {
        Some(Source::Plant(status)) => (status.outcome.word(), Alarm::of_verdict(status)),
        _ => ("unknown", Alarm::unavailable(Topic::Plant)),
    };
    Value::Struct(vec![text(word), alarm.value(), stamp(wall_ns)])
}

impl Table {
    pub(super) fn ty(&self) -> Arc<Struct> {
        table_type(self.columns)
    }

    /// The table of the newest data; `None` if their source is unavailable.
    pub(super) fn value(&self, source: Option<&Source>, clock: Clock, wall_ns: i64) -> Value {
        let alarm = match source {
            None => Alarm::unavailable(self.topic),
            Some(Source::Plant(status)) if self.has_verdict => Alarm::of_verdict(status),
            Some(_) => Alarm::NONE,
        };
        let rows = source.map(|source| (self.rows)(source, clock)).unwrap_or_default();
        let mut columns: Vec<Vec<Value>> = self.columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
        for row in rows {
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        let columns = self.columns.iter().zip(columns).map(|((_, kind), values)| Array::of(*kind, values)).collect();
        let labels = self.columns.iter().map(|(name, _)| (*name).to_owned());
        table_value(labels, columns, (self.description, alarm), wall_ns)
    }
}

fn of_plant(source: &Source, rows: impl Fn(&Status) -> Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    if let Source::Plant(status) = source { rows(status) } else { Vec::new() }
}

fn of_frames(source: &Source, rows: impl Fn(&Json) -> Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let Source::Frames(frames) = source else { return Vec::new() };
    frames.as_array().into_iter().flatten().flat_map(rows).collect()
}

fn text(text: impl ToString) -> Value {
    Value::Text(text.to_string())
}

/// Seconds; not a number if unknown.
fn seconds(time: Option<DurNs>) -> Value {
    Value::F64(time.map_or(f64::NAN, |time| time.0 as f64 / 1e9))
}

fn promise(row: &RowStatus, clock: Clock) -> Vec<Value> {
    let claim = serde_json::to_value(row.claim).ok();
    let claim = claim.as_ref().and_then(Json::as_str).unwrap_or_default().to_owned();
    vec![
        text(&row.subject),
        Value::Text(claim),
        text(&row.promise),
        text(row.state.word()),
        Value::F64(clock.seconds(row.since)),
        text(&row.evidence),
        Value::I32(row.line.map_or(0, |line| line as i32)),
    ]
}

fn process(one: &ProcessStatus) -> Vec<Value> {
    vec![
        text(&one.name),
        text(&one.state),
        Value::I32(one.pid.unwrap_or(0)),
        text(one.class),
        text(one.cpus),
        seconds(Some(one.family_cpu())),
        Value::U64(one.family_memory().0),
        Value::U64(one.starts),
        Value::U64(one.restarts),
        text(one.trouble.as_deref().unwrap_or_default()),
    ]
}

fn looped(one: &ProcessStatus) -> Option<Vec<Value>> {
    let page = one.loop_page.as_ref()?;
    let figures = [page.wake.p50, page.wake.p99, page.wake.p999, page.wake.max].map(seconds);
    let first = [text(&one.name), Value::U64(page.cycles), seconds(Some(page.period)), Value::U64(page.misses)];
    Some(first.into_iter().chain(figures).collect())
}

/// A text of a frame; empty if there is none.
fn word(json: &Json) -> Value {
    text(json.as_str().unwrap_or_default())
}

fn count(json: &Json) -> Value {
    Value::U64(json.as_u64().unwrap_or(0))
}

/// Seconds from nanoseconds.
fn time(json: &Json) -> Value {
    seconds(json.as_i64().map(DurNs))
}

fn framed(frame: &Json) -> Vec<Value> {
    // A frame that does not run has its reason instead of a state.
    let state = if frame["error"].is_null() { &frame["state"] } else { &frame["error"] };
    let first = [word(&frame["name"]), word(state), count(&frame["pulse"]), word(&frame["mode"])];
    let counts = ["minors", "lost", "overruns", "underruns", "absences"].map(|key| count(&frame["counts"][key]));
    first.into_iter().chain(counts).collect()
}

fn activities(frame: &Json) -> Vec<Vec<Value>> {
    let row = |one: &Json| {
        let first = [word(&frame["name"]), word(&one["name"]), word(&one["who"])];
        let times = ["budget_ns", "p50", "p99", "max"].map(|key| time(&one[key]));
        let counts = ["calls", "overruns", "underruns", "absences"].map(|key| count(&one[key]));
        first.into_iter().chain(times).chain(counts).collect()
    };
    frame["activities"].as_array().into_iter().flatten().map(row).collect()
}
