//! Channel filters: `{"ts":…}`, `{"dbnd":…}`, `{"arr":…}`, `{"sync":…}`, `{"dec":…}`, `{"utag":…}` and `[first:step:last]`
//! after a channel name. Several filters are applied in order.
//!
//! A filter either decides about events before they are queued, or changes values when they are read. The former can have a
//! state per subscription. Writes ignore filters, as in C.

use crate::model::deadband;
use crate::run::events::Entry;
use crate::text::conv;
use crate::text::local::LocalText;
use base::json::Json;
use base::{Array, EventMask, FieldType, Scalar, Stamp, Str40, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Filters of a channel, in the order of its name. Usually none.
#[derive(Clone, Debug, Default)]
pub struct Filters(Option<Arc<Chain>>);

#[derive(Debug, PartialEq)]
struct Chain(Vec<Step>);

impl PartialEq for Filters {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Time { show: Show, unix: bool },
    Deadband { relative: bool, value: f64 },
    Array { first: i32, step: u32, last: i32 },
    Sync { mode: Mode, state: String },
    Decimate { n: i32 },
    UserTag { mask: u64, value: u64 },
}

/// Text formats of `ts` with `"str"`.
const EPICS: &str = "%Y-%m-%d %H:%M:%S.%06f";
const ISO: &str = "%Y-%m-%dT%H:%M:%S.%06f%z";

/// Output of the `ts` filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    /// Keeps the value and replaces the record's stamp by the time of the event.
    Now,
    Seconds,
    Nanos,
    Double,
    Both,
    /// The stamp as text, in a format of [`crate::text::local`].
    Text(&'static str),
}

/// Mode of the `sync` filter: which events pass, depending on a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Before,
    First,
    Last,
    After,
    While,
    Unless,
}

const MODES: [(&str, Mode); 6] = [
    ("before", Mode::Before),
    ("first", Mode::First),
    ("last", Mode::Last),
    ("after", Mode::After),
    ("while", Mode::While),
    ("unless", Mode::Unless),
];

impl Filters {
    /// Whether there are no filters.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a filter decides which events are sent, including the first one with the current value.
    #[must_use]
    pub fn decide(&self) -> bool {
        self.watch().is_some()
    }

    fn steps(&self) -> &[Step] {
        self.0.as_ref().map_or(&[], |chain| &chain.0)
    }

    /// Adds the filters of a JSON map.
    pub(crate) fn add_json(&mut self, json: &Json, states: &HashMap<String, bool>) -> Result<(), BadFilter> {
        let Json::Map(entries) = json else { return Err(BadFilter::NoMap) };
        for (name, value) in entries {
            let Json::Map(settings) = value else { return Err(BadFilter::NoSettings(name.clone())) };
            let step = step(name, &Settings(name, settings), states)?;
            self.push(step);
        }
        Ok(())
    }

    /// Adds `[first:step:last]`.
    pub(crate) fn add_range(&mut self, first: i32, step: u32, last: i32) {
        self.push(Step::Array { first, step, last });
    }

    fn push(&mut self, step: Step) {
        let mut steps = self.steps().to_vec();
        steps.push(step);
        self.0 = Some(Arc::new(Chain(steps)));
    }

    /// Type, capacity, and whether the value is an array, after the filters.
    pub(crate) fn shape(&self, mut kind: FieldType, mut room: u32, mut array: bool) -> (FieldType, u32, bool) {
        for step in self.steps() {
            match step {
                Step::Array { first, step, last } if array => {
                    room = crate::model::values::slice(room as usize, *first, *last)
                        .map_or(0, |(from, to)| ((to - from) as u32).div_ceil(*step));
                }
                Step::Time { show, .. } => {
                    (kind, room, array) = match show {
                        Show::Now => continue,
                        Show::Seconds | Show::Nanos => (FieldType::U32, 1, false),
                        Show::Double => (FieldType::F64, 1, false),
                        Show::Both => (FieldType::U32, 2, true),
                        Show::Text(_) => (FieldType::String, 1, false),
                    };
                }
                _ => {}
            }
        }
        (kind, room, array)
    }

    /// Applies the filters to a value. `local` formats its stamp if a filter requires that.
    pub(crate) fn apply(&self, mut value: Value, stamp: Stamp, local: LocalText) -> Value {
        for step in self.steps() {
            match step {
                Step::Array { first, step, last } => {
                    if let Value::Array(array) = &value {
                        value = Value::Array(match crate::model::values::slice(array.len(), *first, *last) {
                            Some((from, to)) => crate::model::values::pick(array, from, *step as usize, to),
                            None => Array::zeros(array.kind(), 0),
                        });
                    }
                }
                Step::Time { show, unix } => {
                    let offset = if *unix { base::EPICS_EPOCH_UNIX_SECS as u32 } else { 0 };
                    let secs = stamp.secs.wrapping_add(offset);
                    value = match show {
                        Show::Now => continue,
                        Show::Seconds => Value::from(secs),
                        Show::Nanos => Value::from(stamp.nanos),
                        Show::Double => Value::from(f64::from(secs) + f64::from(stamp.nanos) * 1e-9),
                        Show::Both => Value::Array(Array::U32(vec![secs, stamp.nanos])),
                        Show::Text(format) => Value::Scalar(Scalar::String(written(stamp, format, local))),
                    };
                }
                _ => {}
            }
        }
        value
    }

    /// The range if it is the only filter; `Some(None)` if there are no filters; `None` otherwise.
    pub(crate) fn only_range(&self) -> Option<Option<(i32, u32, i32)>> {
        match self.steps() {
            [] => Some(None),
            [Step::Array { first, step, last }] => Some(Some((*first, *step, *last))),
            _ => None,
        }
    }

    /// Whether reads replace the stamp by the current time.
    pub(crate) fn stamps_now(&self) -> bool {
        self.steps().iter().any(|step| matches!(step, Step::Time { show: Show::Now, .. }))
    }

    /// Filter states for a new subscription; `None` if no filter decides about events.
    pub(crate) fn watch(&self) -> Option<Box<Watch>> {
        let states: Vec<State> = self
            .steps()
            .iter()
            .enumerate()
            .filter_map(|(at, step)| {
                let state = match step {
                    Step::Time { show: Show::Now, .. } => FilterState::Nothing,
                    Step::Deadband { value, .. } => FilterState::Deadband { hyst: *value, last: f64::NAN },
                    Step::Sync { .. } => FilterState::Sync { entry: None, on: false },
                    Step::Decimate { .. } => FilterState::Count(0),
                    Step::UserTag { .. } => FilterState::First(true),
                    _ => return None,
                };
                Some(State { step: at, held: state })
            })
            .collect();
        (!states.is_empty()).then(|| Box::new(Watch { filters: self.clone(), states }))
    }
}

/// The names of filters.
const NAMES: [&str; 6] = ["ts", "dbnd", "arr", "sync", "dec", "utag"];

/// The reason why JSON is no filter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum BadFilter {
    #[error("filters must be a map such as {{\"dec\":{{\"n\":2}}}}")]
    NoMap,
    #[error("no filter \"{0}\"; expected {names}{hint}", names = NAMES.join(", "), hint = hint(.0))]
    Name(String),
    #[error("filter {0} expects a map of settings")]
    NoSettings(String),
    #[error("filter {filter} has no setting \"{key}\", expected {known}")]
    Setting { filter: String, key: String, known: String },
    #[error("filter {0}: \"{1}\" expects a number")]
    Number(String, String),
    #[error("filter {0}: \"{1}\" expects a text")]
    Text(String, String),
    #[error("filter {filter}: \"{key}\" is \"{word}\", expected one of {known}")]
    Choice { filter: String, key: String, word: String, known: String },
    #[error("filter sync expects \"m\" and \"s\", or one such as \"while\" with a state")]
    Sync,
    #[error("filter sync: no state \"{0}\"; dbStateCreate makes it")]
    State(String),
    #[error("filter dec: \"n\" is {0}, expected 1 or more")]
    Decimation(i32),
}

/// The filter with the most similar name.
fn hint(name: &str) -> String {
    base::nearest(name, NAMES).map_or(String::new(), |known| format!("; nearest is \"{known}\""))
}

/// Name and settings of one filter.
struct Settings<'a>(&'a str, &'a [(String, Json)]);

impl Settings<'_> {
    fn check(&self, known: &[&str]) -> Result<(), BadFilter> {
        match self.1.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) => {
                Err(BadFilter::Setting { filter: self.0.to_owned(), key: key.clone(), known: known.join(", ") })
            }
            None => Ok(()),
        }
    }

    fn get(&self, key: &str) -> Option<&Json> {
        self.1.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    fn number(&self, key: &str) -> Result<Option<f64>, BadFilter> {
        match self.get(key) {
            None => Ok(None),
            Some(Json::Int(value)) => Ok(Some(*value as f64)),
            Some(Json::Real(value)) => Ok(Some(*value)),
            Some(Json::Text(text)) if base::text::parse_double(text.as_bytes()).is_some() => {
                Ok(base::text::parse_double(text.as_bytes()).map(|(value, _)| value))
            }
            Some(_) => Err(BadFilter::Number(self.0.to_owned(), key.to_owned())),
        }
    }

    fn integer(&self, key: &str, default: i32) -> Result<i32, BadFilter> {
        Ok(self.number(key)?.map_or(default, base::text::to_i32))
    }

    fn word(&self, key: &str) -> Result<Option<&str>, BadFilter> {
        match self.get(key) {
            None => Ok(None),
            Some(Json::Text(text)) => Ok(Some(text)),
            Some(_) => Err(BadFilter::Text(self.0.to_owned(), key.to_owned())),
        }
    }

    fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, BadFilter> {
        let Some(word) = self.word(key)? else { return Ok(None) };
        let found = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        let known = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| BadFilter::Choice {
            filter: self.0.to_owned(),
            key: key.to_owned(),
            word: word.to_owned(),
            known: known(),
        })
    }
}

fn step(name: &str, settings: &Settings<'_>, states: &HashMap<String, bool>) -> Result<Step, BadFilter> {
    match name {
        "ts" => {
            settings.check(&["num", "epoch", "str"])?;
            let number = settings.choice(
                "num",
                &[("dbl", Show::Double), ("sec", Show::Seconds), ("nsec", Show::Nanos), ("ts", Show::Both)],
            )?;
            let text = settings.choice("str", &[("epics", Show::Text(EPICS)), ("iso", Show::Text(ISO))])?;
            let unix = settings.choice("epoch", &[("epics", false), ("unix", true)])?.unwrap_or(false);
            Ok(Step::Time { show: text.or(number).unwrap_or(Show::Now), unix })
        }
        "dbnd" => {
            settings.check(&["d", "m", "abs", "rel"])?;
            let mode = settings.choice("m", &[("abs", false), ("rel", true)])?.unwrap_or(false);
            let (relative, value) = match (settings.number("abs")?, settings.number("rel")?) {
                (Some(value), _) => (false, value),
                (None, Some(value)) => (true, value),
                (None, None) => (mode, settings.number("d")?.unwrap_or(0.0)),
            };
            Ok(Step::Deadband { relative, value })
        }
        "arr" => {
            settings.check(&["s", "i", "e"])?;
            let step = settings.integer("i", 1)?.max(1) as u32;
            Ok(Step::Array { first: settings.integer("s", 0)?, step, last: settings.integer("e", -1)? })
        }
        "sync" => {
            settings.check(&["m", "s", "before", "first", "last", "after", "while", "unless"])?;
            let short = MODES.iter().find_map(|(name, mode)| Some((*mode, settings.word(name).ok()??)));
            let (mode, state) = match (short, settings.choice("m", &MODES)?, settings.word("s")?) {
                (Some(short), _, _) => short,
                (None, Some(mode), Some(state)) => (mode, state),
                _ => return Err(BadFilter::Sync),
            };
            if !states.contains_key(state) {
                return Err(BadFilter::State(state.to_owned()));
            }
            Ok(Step::Sync { mode, state: state.to_owned() })
        }
        "dec" => {
            settings.check(&["n"])?;
            let n = settings.integer("n", 0)?;
            if n < 1 { Err(BadFilter::Decimation(n)) } else { Ok(Step::Decimate { n }) }
        }
        "utag" => {
            settings.check(&["M", "V"])?;
            // Sign-extended from 32 to the tag's 64 bits, as in C.
            let wide = |value: i32| i64::from(value) as u64;
            Ok(Step::UserTag { mask: wide(settings.integer("M", -1)?), value: wide(settings.integer("V", 0)?) })
        }
        other => Err(BadFilter::Name(other.to_owned())),
    }
}

/// Formats a stamp as text.
fn written(stamp: Stamp, format: &str, local: LocalText) -> Str40 {
    let mut out = [0; 39];
    let length = crate::text::local::write(stamp, format, &mut out, local);
    Str40::new(&out[..length])
}

/// Filter states of one subscription.
pub(crate) struct Watch {
    filters: Filters,
    states: Vec<State>,
}

struct State {
    step: usize,
    held: FilterState,
}

enum FilterState {
    Nothing,
    Deadband { hyst: f64, last: f64 },
    Sync { entry: Option<Entry>, on: bool },
    Count(i32),
    First(bool),
}

impl Watch {
    /// Passes an event through the filters; `None` drops it. `late`: the value is read when the event is sent. Does not
    /// allocate.
    pub(crate) fn pass(
        &mut self,
        entry: Entry,
        late: bool,
        states: &HashMap<String, bool>,
        now: Stamp,
    ) -> Option<Entry> {
        let mut entry = entry;
        for State { step, held } in &mut self.states {
            let property = entry.mask.meets(EventMask::PROPERTY);
            match (&self.filters.steps()[*step], held) {
                (Step::Time { .. }, _) => entry.stamp = now,
                (Step::Deadband { relative, value }, FilterState::Deadband { hyst, last }) => {
                    let Some(number) = conv::number::<f64>(entry.value).filter(|_| !late) else { continue };
                    let asked = entry.mask & (EventMask::VALUE | EventMask::LOG);
                    let mut send = entry.mask & (EventMask::ALARM | EventMask::PROPERTY);
                    send |= deadband::check(last, number, *hyst, asked);
                    if send.is_empty() {
                        return None;
                    }
                    if *relative {
                        *hyst = number * value / 100.0;
                    }
                }
                (Step::Sync { mode, state }, FilterState::Sync { entry: kept, on }) if !property => {
                    let now_on = states.get(state.as_str()).copied().unwrap_or(false);
                    let (rose, fell) = (now_on && !*on, !now_on && *on);
                    *on = now_on;
                    match mode {
                        Mode::Before | Mode::Last => {
                            let passed = if (*mode == Mode::Before && rose) || (*mode == Mode::Last && fell) {
                                kept.replace(entry)
                            } else {
                                *kept = Some(entry);
                                None
                            };
                            entry = passed?;
                        }
                        Mode::First if rose => {}
                        Mode::After if fell => {}
                        Mode::While if now_on => {}
                        Mode::Unless if !now_on => {}
                        _ => return None,
                    }
                }
                (Step::Decimate { n }, FilterState::Count(count)) if !property => {
                    let passes = *count == 0;
                    *count = (*count + 1) % n;
                    if !passes {
                        return None;
                    }
                }
                (Step::UserTag { mask, value }, FilterState::First(first)) if !property => {
                    let first = std::mem::take(first);
                    let other = entry.utag & mask != *value;
                    if other && !first {
                        return None;
                    }
                }
                _ => {}
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_written_as_epics_and_as_iso_write_them() {
        let stamp = Stamp::from_unix(1_700_000_000, 123_456_489);
        assert_eq!(written(stamp, EPICS, crate::text::local::utc).to_str(), "2023-11-14 22:13:20.123456");
        assert_eq!(written(stamp, ISO, crate::text::local::utc).to_str(), "2023-11-14T22:13:20.123456+0000");
    }

    #[test]
    fn settings_that_are_wrong_are_named() {
        let states = HashMap::new();
        for (text, expected) in [
            ("{dec:{n:0}}", "filter dec: \"n\" is 0, expected 1 or more"),
            ("{dbd:{}}", "no filter \"dbd\"; expected ts, dbnd, arr, sync, dec, utag; nearest is \"dbnd\""),
            ("{sync:{while:'s'}}", "filter sync: no state \"s\"; dbStateCreate makes it"),
            ("{ts:{num:'day'}}", "filter ts: \"num\" is \"day\", expected one of dbl, sec, nsec, ts"),
            ("{arr:{x:1}}", "filter arr has no setting \"x\", expected s, i, e"),
        ] {
            let json = base::json::parse(text).unwrap();
            assert_eq!(Filters::default().add_json(&json, &states).unwrap_err().to_string(), expected);
        }
    }
}
