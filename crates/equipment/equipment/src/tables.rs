//! The tables of a manager, ready for use: all rows, expanded to objects.

use crate::convert::Convert;
use crate::datum::{Datum, Fault};
use crate::device::{Driver, Pace};
use crate::pattern::{Bound, Pattern};
use crate::unit::Unit;
use base::{CpuId, DurNs, Policy, nearest};
use msg::Verb;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Maximum number of entries after expansion.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// One device of the file.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// The driver.
    pub driver: &'static Driver,
    /// The values of the driver's keys.
    pub settings: Settings,
    /// The points that rows use. A point number is an index in this list.
    pub points: Vec<String>,
    /// File and line of the definition.
    pub place: String,
}

/// The settings of a device. The example of each key in the driver's table defines its type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(pub(crate) Vec<(&'static str, Setting)>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    Number(f64),
    Time(DurNs),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
}

impl Settings {
    fn get(&self, key: &str) -> Option<&Setting> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// A number; `None` if the key is not set.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<f64> {
        if let Some(Setting::Number(value)) = self.get(key) { Some(*value) } else { None }
    }

    /// A time; `None` if the key is not set.
    #[must_use]
    pub fn time(&self, key: &str) -> Option<DurNs> {
        if let Some(Setting::Time(value)) = self.get(key) { Some(*value) } else { None }
    }

    /// A flag; `None` if the key is not set.
    #[must_use]
    pub fn flag(&self, key: &str) -> Option<bool> {
        if let Some(Setting::Flag(value)) = self.get(key) { Some(*value) } else { None }
    }

    /// A text; `None` if the key is not set.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        if let Some(Setting::Text(value)) = self.get(key) { Some(value) } else { None }
    }

    /// A list of texts; empty if the key is not set.
    #[must_use]
    pub fn texts(&self, key: &str) -> &[String] {
        if let Some(Setting::Texts(value)) = self.get(key) { value } else { &[] }
    }
}

/// The condition under which a `set` has reached its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// The complement of the `get` of the same object that is compared.
    pub complement: String,
    /// Maximum difference from the target.
    pub within: f64,
    /// Maximum time.
    pub timeout: DurNs,
}

/// A row of the file.
#[derive(Clone, Debug)]
pub struct Row {
    /// File and line of the definition.
    pub place: String,
    /// The verbs that the row accepts.
    pub verbs: Vec<Verb>,
    /// The object, as written in the file.
    pub object: Pattern,
    /// The conversion from raw to engineering value.
    pub convert: Vec<Convert>,
    /// Unit of the engineering value.
    pub unit: String,
    /// Minimum and maximum engineering value.
    pub limits: Option<(f64, f64)>,
    /// Digits after the point.
    pub precision: Option<usize>,
    /// The value written by a complement that contains no value.
    pub write: Option<Datum<'static>>,
    /// The condition for the answer of `set`.
    pub reached: Option<Reached>,
    /// Text that `describe` adds.
    pub about: String,
}

impl Row {
    /// The labels of an enumeration; `None` for other values.
    fn labels(&self) -> Option<&[(String, f64)]> {
        match self.convert.last() {
            Some(Convert::Labels(labels)) => Some(labels),
            _ => None,
        }
    }

    /// Returns whether the value is a number, not a label or a free text.
    fn is_number(&self) -> bool {
        let counts = |step: &Convert| !matches!(step, Convert::Labels(_) | Convert::Text { .. });
        self.labels().is_none() && (!self.unit.is_empty() || self.limits.is_some() || self.convert.iter().any(counts))
    }
}

/// A row applied to one object.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The object.
    pub object: String,
    /// Index of the row.
    pub row: usize,
    /// Index of the device.
    pub device: usize,
    /// Index of the device's point.
    pub point: usize,
    /// The complement before the value and after it; the second part is `None` if the complement has no value.
    pub(crate) form: (String, Option<String>),
    /// The captures of the row and their values.
    pub(crate) bound: Bound,
}

impl Entry {
    /// The value in a complement of this form; `None` if the form differs or has no value.
    fn value_in<'c>(&self, complement: &'c str) -> Option<&'c str> {
        let (before, after) = (&self.form.0, self.form.1.as_ref()?);
        complement.strip_prefix(before.as_str())?.strip_suffix(after.as_str())
    }

    /// The complement as text, with `{value}` for the value.
    #[must_use]
    pub fn complement(&self) -> String {
        match &self.form {
            (before, Some(after)) => format!("{before}{{value}}{after}"),
            (literal, None) => literal.clone(),
        }
    }
}

/// A list of values that is read at a fixed cycle.
#[derive(Clone, Debug)]
pub struct Poll {
    /// Name of the table.
    pub name: String,
    /// The period of the cycle.
    pub period: DurNs,
    /// The entries; each is a `get`.
    pub entries: Vec<usize>,
}

/// Information about one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    pub(crate) entries: Vec<usize>,
    /// Its verbs, for messages.
    has: String,
    /// The complements that each verb accepts, for messages.
    takes: Vec<(Verb, String)>,
    /// The answer to `describe`.
    description: String,
}

/// All tables of a manager.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Name of the manager.
    pub name: String,
    /// Scheduling class of the lane that runs rt-safe rows.
    pub class: Policy,
    /// The lane's CPU.
    pub cpu: Option<CpuId>,
    /// The frame and the activity that runs the lane.
    pub frame: Option<(String, String)>,
    /// The devices.
    pub devices: Vec<DeviceSpec>,
    /// The rows in the order of the files.
    pub rows: Vec<Row>,
    /// The rows, expanded to objects.
    pub entries: Vec<Entry>,
    /// The polls.
    pub polls: Vec<Poll>,
    pub(crate) objects: HashMap<String, Object>,
    /// The objects' names, sorted.
    pub(crate) names: Vec<String>,
    /// For each device that is an agent: the entries that it reads and writes.
    pub(crate) agents: Vec<Option<(usize, usize)>>,
    /// For each device, its lane.
    pub(crate) device_lanes: Vec<usize>,
}

impl Tables {
    /// Fills the indices by object and by device.
    pub(crate) fn index(&mut self) {
        let mut objects: HashMap<String, Object> = HashMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            objects.entry(entry.object.clone()).or_default().entries.push(index);
        }
        let (entries, rows) = (&self.entries, &self.rows);
        for object in objects.values_mut() {
            for verb in Verb::of_devices() {
                let of = object.entries.iter().map(|index| &entries[*index]);
                let takes: Vec<String> = of
                    .filter(|entry| rows[entry.row].verbs.contains(&verb))
                    .map(|entry| takes(&rows[entry.row], entry))
                    .collect();
                if !takes.is_empty() {
                    let comma = if object.has.is_empty() { "" } else { ", " };
                    // Writing to a String cannot fail.
                    let _ = write!(object.has, "{comma}{}", verb.word());
                    object.takes.push((verb, takes.join(", ")));
                }
            }
            object.description = object.entries.iter().map(|at| self.line(*at)).collect::<Vec<_>>().join("; ");
        }
        self.names = objects.keys().cloned().collect();
        self.names.sort_unstable();
        self.objects = objects;
        let agent = |spec: &DeviceSpec| {
            let input = spec.settings.text("input").filter(|_| crate::agent::is_agent(spec.driver))?;
            Some((self.input(input)?, self.output(spec.settings.text("output")?)?))
        };
        self.agents = self.devices.iter().map(agent).collect();
        let blocks = |spec: &DeviceSpec| spec.driver.pace == Pace::MayBlock;
        let own = |device: usize| match blocks(&self.devices[device]) {
            true => 1 + self.devices[..device].iter().filter(|spec| blocks(spec)).count(),
            false => 0,
        };
        // An agent runs on the lane of its objects, which are never agents' objects.
        let lane = |device: usize| self.agents[device].map_or(device, |(input, _)| self.entries[input].device);
        self.device_lanes = (0..self.devices.len()).map(|device| own(lane(device))).collect();
    }

    /// All objects, sorted.
    #[must_use]
    pub fn objects(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// Returns the objects for `name`: the object itself and those that continue it after `_`, or the matches if `name` contains
    /// `*` or `?`; sorted.
    ///
    /// Real-time: does not allocate. Compares all objects.
    pub fn named<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t str> + Clone {
        let wild = name.contains(['*', '?']);
        let continues =
            move |object: &str| object.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        self.names
            .iter()
            .map(String::as_str)
            .filter(move |object| if wild { base::glob(name, object) } else { continues(object) })
    }

    /// Returns whether the object exists.
    #[must_use]
    pub fn has(&self, object: &str) -> bool {
        self.objects.contains_key(object)
    }

    /// The *interpret* step: finds the entry for the request and the engineering value in the complement.
    ///
    /// Real-time: allocates only for texts that are neither numbers nor labels.
    ///
    /// # Errors
    /// The reason why no entry accepts the request.
    pub fn interpret<'t>(
        &'t self,
        verb: Verb,
        object: &str,
        complement: &str,
    ) -> Result<(usize, Option<Datum<'t>>), Fault<'t>> {
        let known = self.objects.get(object).ok_or(Fault::NoObject)?;
        let (mut fault, mut fits) = (None, false);
        for &index in &known.entries {
            let (entry, row) = (&self.entries[index], &self.rows[self.entries[index].row]);
            if !row.verbs.contains(&verb) {
                continue;
            }
            match takes_complement(row, entry, complement) {
                Ok(Some(value)) => return Ok((index, value)),
                Ok(None) => fits |= entry.value_in(complement).is_some(),
                // The first reason against the value is reported, unless a later row accepts it.
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        let takes = known.takes.iter().find(|(known, _)| *known == verb).map_or("", |(_, takes)| takes.as_str());
        Err(match fault {
            Some(fault) => fault,
            None if takes.is_empty() => Fault::NoVerb { has: &known.has },
            None if fits => Fault::NoValue { meant: self.meant_label(known, verb, complement), expected: takes },
            None => Fault::NoAttribute { meant: self.meant_attribute(known, verb, complement), expected: takes },
        })
    }

    /// The entries of an object with a verb, and their rows.
    fn with_verb<'t>(&'t self, object: &'t Object, verb: Verb) -> impl Iterator<Item = (&'t Entry, &'t Row)> {
        let all = object.entries.iter().map(|index| (&self.entries[*index], &self.rows[self.entries[*index].row]));
        all.filter(move |(_, row)| row.verbs.contains(&verb))
    }

    /// The attribute closest to an unknown complement.
    fn meant_attribute<'t>(&'t self, object: &'t Object, verb: Verb, complement: &str) -> Option<&'t str> {
        let all = self.with_verb(object, verb).filter(|(entry, _)| entry.form.1.is_none());
        nearest(complement, all.map(|(entry, _)| entry.form.0.as_str()))
    }

    /// The label closest to an unknown value.
    fn meant_label<'t>(&'t self, object: &'t Object, verb: Verb, complement: &str) -> Option<&'t str> {
        self.with_verb(object, verb).find_map(|(entry, row)| {
            nearest(entry.value_in(complement)?, row.labels()?.iter().map(|(label, _)| label.as_str()))
        })
    }

    /// The answer to `describe`: `verb complement: kind unit limits access` of each row, joined by `; `.
    #[must_use]
    pub fn describe(&self, object: &str) -> Option<&str> {
        self.objects.get(object).map(|known| known.description.as_str())
    }

    /// The part of the `describe` answer for one entry.
    fn line(&self, index: usize) -> String {
        let (entry, row) = (&self.entries[index], &self.rows[self.entries[index].row]);
        let verbs: Vec<&str> = row.verbs.iter().map(|verb| verb.word()).collect();
        let mut line = format!("{} {}", verbs.join("|"), entry.complement());
        let kind = match row.labels() {
            Some(labels) => labels.iter().map(|(label, _)| label.as_str()).collect::<Vec<_>>().join("|"),
            None if row.write.is_some() => "no value".to_owned(),
            None if row.is_number() => "number".to_owned(),
            None => "number or text".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = write!(line, ": {kind}");
        if !row.unit.is_empty() {
            let _ = write!(line, " {}", row.unit);
        }
        if let Some((low, high)) = row.limits {
            let _ = write!(line, " {low}..{high}");
        }
        let _ = write!(line, " {}", if row.verbs.contains(&Verb::Get) { "read" } else { "write" });
        if !row.about.is_empty() {
            let _ = write!(line, " ({})", row.about);
        }
        line
    }

    /// The lane of an entry: 0 is the rt-safe lane, each device that may block has a separate one.
    #[must_use]
    pub fn lane(&self, entry: usize) -> usize {
        self.device_lane(self.entries[entry].device)
    }

    /// The lane of a device.
    #[must_use]
    pub fn device_lane(&self, device: usize) -> usize {
        self.device_lanes[device]
    }

    /// The number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        1 + self.devices.iter().filter(|spec| spec.driver.pace == Pace::MayBlock).count()
    }

    /// The entries that an agent reads and writes; `None` if the device is not an agent.
    #[must_use]
    pub fn agent_entries(&self, device: usize) -> Option<(usize, usize)> {
        self.agents[device]
    }

    /// The index of this device in the previous tables if nothing in it changed, so that it can be kept.
    #[must_use]
    pub fn keeps(&self, before: &Self, device: usize) -> Option<usize> {
        let is = &self.devices[device];
        before.devices.iter().position(|was| {
            was.name == is.name
                && was.driver.word == is.driver.word
                && was.points == is.points
                && was.settings == is.settings
        })
    }

    /// The entry of the `get` in `object/complement`.
    pub(crate) fn input(&self, words: &str) -> Option<usize> {
        let (object, complement) = words.split_once('/')?;
        self.interpret(Verb::Get, object, complement).ok().map(|(entry, _)| entry)
    }

    /// The entry of the `put` of a number in `object` or `object/complement`.
    pub(crate) fn output(&self, words: &str) -> Option<usize> {
        let (object, complement) = words.split_once('/').unwrap_or((words, "{value}"));
        let takes = |index: &&usize| {
            let (entry, row) = (&self.entries[**index], &self.rows[self.entries[**index].row]);
            row.verbs.contains(&Verb::Put)
                && row.labels().is_none()
                && entry.form.1.is_some()
                && entry.complement() == complement
        };
        self.objects.get(object)?.entries.iter().find(takes).copied()
    }
}

/// The complement that an entry accepts, for messages.
fn takes(row: &Row, entry: &Entry) -> String {
    let (before, Some(after)) = &entry.form else { return entry.form.0.clone() };
    let value = match row.labels() {
        Some(labels) => labels.iter().map(|(label, _)| label.as_str()).collect::<Vec<_>>().join("|"),
        None if row.is_number() => format!("NUMBER{}", row.unit),
        None => "VALUE".to_owned(),
    };
    format!("{before}{value}{after}")
}

/// The value in a complement; `Ok(None)` if the entry does not accept the complement.
fn takes_complement<'t>(
    row: &'t Row,
    entry: &'t Entry,
    complement: &str,
) -> Result<Option<Option<Datum<'t>>>, Fault<'t>> {
    if entry.form.1.is_none() {
        return Ok((complement == entry.form.0).then(|| row.write.clone()));
    }
    let Some(inner) = entry.value_in(complement) else { return Ok(None) };
    if let Some(labels) = row.labels() {
        let label = labels.iter().find(|(label, _)| label == inner);
        return Ok(label.map(|(label, _)| Some(Datum::Text(Cow::Borrowed(label)))));
    }
    let number = msg::quantity(inner);
    if !row.is_number() {
        let value = match number {
            Some((value, "")) => Datum::Number(value),
            _ if inner.is_empty() => return Ok(None),
            _ => Datum::Text(Cow::Owned(inner.to_owned())),
        };
        return Ok(Some(Some(value)));
    }
    let Some((value, word)) = number else { return Ok(None) };
    let value = match word {
        "" => value,
        _ => Unit::of(word).convert(value, Unit::of(&row.unit)).ok_or(Fault::Unit { expected: &row.unit })?,
    };
    within(row, value)?;
    Ok(Some(Some(Datum::Number(value))))
}

/// Checks a number against the limits of a row.
pub(crate) fn within(row: &Row, value: f64) -> Result<(), Fault<'_>> {
    match row.limits {
        Some((low, high)) if !(low..=high).contains(&value) => Err(Fault::Range { value, low, high, unit: &row.unit }),
        _ => Ok(()),
    }
}
