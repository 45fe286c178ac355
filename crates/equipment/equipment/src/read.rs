//! Reads table files. The result is [`Tables`] or all errors.
//!
//! Invariants: no text causes a panic, the machine is accessed only through [`Machine`], unknown input is an error.

mod device;
mod map;
mod step;

use crate::agent;
use crate::csv::Sheet;
use crate::device::{Driver, Pace};
use crate::keys;
use crate::pattern::Pattern;
use crate::tables::{DeviceSpec, Poll, Tables};
use base::{CpuId, CpuSet, DurNs, Policy, glob, nearest};
use msg::Verb;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use table::{Diagnostic, Diagnostics, Section, Severity, clipped, tables};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a file in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 20;
/// Maximum number of files of one manager.
const FILES_MAX: usize = 32;
/// Maximum number of devices of one manager.
const DEVICES_MAX: usize = 4096;
/// Maximum length in bytes of the name of a value in shared memory.
pub const POLLED_NAME_BYTES_MAX: usize = 64;
/// Maximum length of its unit in bytes.
pub const POLLED_UNIT_BYTES_MAX: usize = 16;
const HOUR: DurNs = DurNs::from_secs(3600);

/// A file and its errors and warnings.
#[derive(Clone, Debug)]
pub struct FileFindings {
    /// The name, as passed to [`check`] or written in the main file.
    pub name: String,
    /// The text.
    pub text: String,
    /// All errors and warnings in the order of the file.
    pub found: Vec<Diagnostic>,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The tables; `None` if there was an error.
    pub tables: Option<Tables>,
    /// All files read, the main file first.
    pub files: Vec<FileFindings>,
}

impl Checked {
    /// All errors and warnings as text. The last line of each file has the counts for this file.
    #[must_use]
    pub fn render(&self) -> String {
        self.files.iter().map(|file| table::render_all(&file.found, &file.name, &file.text)).collect()
    }
}

/// Checks against the machine on which the manager will run. `()` checks nothing.
pub trait Machine {
    /// Errors of a device in the files, programs and addresses that its keys refer to.
    fn look(&self, _: &DeviceSpec) -> Vec<Wrong> {
        Vec::new()
    }

    /// The online CPUs; `None` if unknown.
    fn online(&self) -> Option<CpuSet> {
        None
    }
}

impl Machine for () {}

/// An error of a device.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// The position.
    pub at: At,
    /// The error that was found.
    pub message: String,
    /// The expected value.
    pub expected: String,
}

/// The position of an error of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The value of a key, or the whole device if the key is not set.
    Key(&'static str),
    /// A point by its index. The error is reported at the first row that uses the point.
    Point(usize),
}

/// Reads the main file and the files it refers to. `load` returns the text of another file, given the name in the main file.
/// `drivers` is the list of available drivers ([`DRIVERS`](crate::DRIVERS) and others).
pub fn check(
    name: &str,
    text: &str,
    drivers: &[&'static Driver],
    load: &mut dyn FnMut(&str) -> std::io::Result<String>,
    machine: &dyn Machine,
) -> Checked {
    let mut found = Diagnostics::new(text);
    let mut reader = Reader {
        drivers,
        machine,
        tables: empty(),
        places: Vec::new(),
        unknown: Vec::new(),
        rows: Vec::new(),
        other: Vec::new(),
    };
    if text.len() > TEXT_BYTES_MAX {
        found.error(
            0..0,
            format!("the file has {} bytes", text.len()),
            format!("at most {TEXT_BYTES_MAX}"),
            "split it",
        );
        let file = FileFindings { name: name.to_owned(), text: String::new(), found: found.finish() };
        return Checked { tables: None, files: vec![file] };
    }
    let sound = found.sound(text);
    let (root, _) = DeTable::parse_recoverable(&sound);
    let root = root.get_ref();
    known_tables(root, &mut found);
    let named = reader.manager(root, &mut found);
    let mut texts: Vec<(String, String, bool)> = Vec::new();
    for (file, span, is_map) in named {
        match load(&file) {
            Ok(text) if text.len() <= TEXT_BYTES_MAX => texts.push((file, text, is_map)),
            Ok(text) => {
                let message = format!("{file} has {} bytes", text.len());
                found.error(span, message, format!("at most {TEXT_BYTES_MAX}"), "split it");
            }
            Err(why) => found.error(span, format!("{file} cannot be read: {why}"), "a CSV file", ""),
        }
    }
    // The diagnostics of each file, the main file first. Rows are read after all devices, because they refer to devices.
    let mut all: Vec<Diagnostics<'_>> =
        std::iter::once(found).chain(texts.iter().map(|(_, text, _)| Diagnostics::new(text))).collect();
    let sheets: Vec<Sheet> =
        texts.iter().zip(&mut all[1..]).map(|((_, text, _), found)| Sheet::read(text, found)).collect();
    let csv: Vec<Vec<(DeTable<'_>, Range<usize>)>> = sheets.iter().map(|sheet| sheet.tables().collect()).collect();
    let main = Source { at: 0, name, text };
    for (table, span) in tables(root, "device", true, &mut all[0]) {
        reader.device(table, span, main, &mut all[0]);
    }
    let sources = texts.iter().zip(1..).map(|((name, text, is_map), at)| (Source { at, name, text }, is_map));
    let (maps, devices): (Vec<_>, Vec<_>) = sources.zip(&csv).partition(|((_, is_map), _)| **is_map);
    for ((source, _), rows) in devices {
        rows.iter().for_each(|(table, span)| reader.device(table, span.clone(), source, &mut all[source.at]));
    }
    for (table, span) in tables(root, "map", true, &mut all[0]) {
        reader.row(table, span, main, &mut all[0]);
    }
    for ((source, _), rows) in maps {
        rows.iter().for_each(|(table, span)| reader.row(table, span.clone(), source, &mut all[source.at]));
    }
    reader.tables.index();
    reader.across(&mut all);
    for (table, span) in tables(root, "poll", true, &mut all[0]) {
        reader.poll(table, span, &mut all[0]);
    }
    reader.look(&mut all);
    let names = std::iter::once((name, text)).chain(texts.iter().map(|(name, text, _)| (name.as_str(), text.as_str())));
    let files: Vec<FileFindings> = names
        .zip(all)
        .map(|((name, text), found)| FileFindings {
            name: name.to_owned(),
            text: text.to_owned(),
            found: found.finish(),
        })
        .collect();
    let broken = files.iter().flat_map(|file| &file.found).any(|one| one.severity == Severity::Error);
    Checked { tables: (!broken).then_some(reader.tables), files }
}

fn empty() -> Tables {
    Tables {
        name: String::new(),
        class: Policy::OTHER,
        cpu: None,
        frame: None,
        devices: Vec::new(),
        rows: Vec::new(),
        entries: Vec::new(),
        polls: Vec::new(),
        objects: HashMap::new(),
        names: Vec::new(),
        agents: Vec::new(),
        device_lanes: Vec::new(),
    }
}

fn known_tables(root: &DeTable<'_>, found: &mut Diagnostics<'_>) {
    const KNOWN: [&str; 4] = ["manager", "device", "map", "poll"];
    for (key, _) in root.iter().filter(|(key, _)| !KNOWN.contains(&key.get_ref().as_ref())) {
        let remedy = match nearest(key.get_ref(), KNOWN) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "remove it".to_owned(),
        };
        let message = format!("unknown table `{}`", clipped(key.get_ref()));
        found.error(key.span(), message, "[manager], [[device]], [[map]], [[poll]]", remedy);
    }
}

/// A file with its index in the order of reading; the main file has 0.
#[derive(Clone, Copy)]
struct Source<'a> {
    at: usize,
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    /// `FILE:LINE`
    fn line(&self, span: &Range<usize>) -> String {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        format!("{}:{}", self.name, before.iter().filter(|byte| **byte == b'\n').count() + 1)
    }
}

/// A position in a file, for errors that are reported after all files are read.
#[derive(Clone)]
struct Location {
    file: usize,
    span: Range<usize>,
}

/// The positions of a device and its parts.
struct DeviceLocation {
    whole: Location,
    /// The values of its keys, in the same file.
    keys: Vec<(&'static str, Range<usize>)>,
    /// For each point, the first row that uses it.
    points: Vec<Location>,
}

struct Reader<'d> {
    drivers: &'d [&'static Driver],
    machine: &'d dyn Machine,
    tables: Tables,
    /// The positions of the devices.
    places: Vec<DeviceLocation>,
    /// Names of devices with errors. A row that refers to one of them causes no further error.
    unknown: Vec<String>,
    /// The positions of the rows.
    rows: Vec<Location>,
    /// Keys with references that are resolved after all files are read: device, key and position.
    other: Vec<(usize, &'static str, Location)>,
}

impl Reader<'_> {
    /// Reads `[manager]`. Returns the files that it lists; `true` marks a file of rows.
    fn manager(&mut self, root: &DeTable<'_>, found: &mut Diagnostics<'_>) -> Vec<(String, Range<usize>, bool)> {
        let all = tables(root, "manager", false, found);
        let Some((table, span)) = all.into_iter().next() else {
            if !root.iter().any(|(key, _)| *key.get_ref() == "manager") {
                found.error(0..0, "the [manager] table is missing", "", "begin with `[manager]` and `name = \"…\"`");
            }
            return Vec::new();
        };
        let section = Section::open(table, span, &keys::MANAGER, "[manager]", found);
        self.tables.name = name(&section, found).unwrap_or_default();
        if let Some((class, span)) = section.parsed::<Policy>("class", found) {
            if matches!(class, Policy::Deadline(_)) {
                found.error(
                    span,
                    format!("`class` cannot be {class}"),
                    "fifo, rr or other",
                    "a lane waits for requests",
                );
            }
            self.tables.class = class;
        }
        if let Some((cpu, span)) = section.number("cpu", 0, 1023, found) {
            self.tables.cpu = CpuId::try_from(cpu).ok();
            let absent = |online: &CpuSet| self.tables.cpu.is_none_or(|cpu| !online.contains(cpu));
            if let Some(online) = self.machine.online().filter(absent) {
                found.error(span, format!("CPU {cpu} is not online"), format!("CPUs of this machine: {online}"), "");
            }
        }
        self.tables.frame = frame(&section, found);
        for key in ["class", "cpu"].into_iter().filter(|_| section.value("frame").is_some()) {
            if let Some(value) = section.value(key) {
                let message = format!("`{key}` and `frame` in one manager");
                found.error(value.span(), message, "one of them: the frame gives class and CPU", "");
            }
        }
        let mut files = Vec::new();
        for (key, is_map) in [("devices", false), ("map", true)] {
            for (file, span) in section.texts(key, found).unwrap_or_default() {
                if files.len() == FILES_MAX {
                    found.error(span, format!("more than {FILES_MAX} files"), "fewer files", "");
                } else {
                    files.push((file.to_owned(), span, is_map));
                }
            }
        }
        files
    }

    /// Checks across all files.
    fn across(&mut self, all: &mut [Diagnostics<'_>]) {
        let tables = &self.tables;
        if tables.rows.is_empty() && tables.devices.is_empty() {
            all[0].warning(0..0, "the manager has neither devices nor rows", "add [[device]] and [[map]]");
        }
        for (device, key, place) in &self.other {
            let spec = &tables.devices[*device];
            let found = &mut all[place.file];
            let words = spec.settings.text(key).unwrap_or_default();
            let (entry, expected) = match *key {
                "input" => (tables.input(words), "object/complement of a `get` row of this manager"),
                _ => (tables.output(words), "the object of a `put` row of this manager that takes a number"),
            };
            if entry.is_none() {
                let object = words.split('/').next().unwrap_or_default();
                let meant = nearest(object, tables.objects().into_iter().filter(|known| *known != object));
                let remedy = meant.map_or(String::new(), |meant| format!("did you mean `{meant}`?"));
                let message = format!("`{key}` of device {:?} cannot be {:?}", spec.name, clipped(words));
                found.error(place.span.clone(), message, expected, remedy);
                continue;
            }
            let agents = entry.filter(|entry| agent::is_agent(tables.devices[tables.entries[*entry].device].driver));
            if agents.is_some() && *key == "input" {
                let message = format!("`input` of device {:?} is an agent's", spec.name);
                found.error(place.span.clone(), message, "the object of a device that is no agent", "");
            }
        }
        for (device, spec) in tables.devices.iter().enumerate().filter(|(_, spec)| agent::is_agent(spec.driver)) {
            if let (Some(input), Some(output)) = (
                spec.settings.text("input").and_then(|words| tables.input(words)),
                spec.settings.text("output").and_then(|words| tables.output(words)),
            ) {
                let lanes = [input, output].map(|entry| blocking(tables, entry));
                if lanes[0] != lanes[1] {
                    let place = &self.places[device].whole;
                    let message = format!("device {:?} reads and writes on two lanes", spec.name);
                    let expected = "both objects of rt-safe devices, or both of the same device that may block";
                    all[place.file].error(place.span.clone(), message, expected, "");
                }
            }
        }
        for (index, (row, place)) in tables.rows.iter().zip(&self.rows).enumerate() {
            let Some(reached) = &row.reached else { continue };
            for (put, entry) in tables.entries.iter().enumerate().filter(|(_, entry)| entry.row == index) {
                let get = tables.interpret(Verb::Get, &entry.object, &reached.complement).ok();
                if get.is_none_or(|(get, _)| blocking(tables, get) != blocking(tables, put)) {
                    let message = format!("`reached` reads get/{}/{}", entry.object, reached.complement);
                    let expected = "a `get` row of the same object, on the same lane";
                    all[place.file].error(place.span.clone(), message, expected, "");
                    break;
                }
            }
        }
    }

    /// `[[poll]]`
    fn poll(&mut self, table: &DeTable<'_>, span: Range<usize>, found: &mut Diagnostics<'_>) {
        let section = Section::open(table, span, &keys::POLL, "a poll", found);
        for key in ["name", "period", "objects"] {
            if section.value(key).is_none() && key != "name" {
                section.missing(key, found);
            }
        }
        let name = name(&section, found);
        let period = section.time("period", DurNs::from_ms(1), HOUR, found).map(|(time, _)| time);
        let (mut entries, mut names) = (Vec::new(), HashSet::new());
        for (words, span) in section.texts("objects", found).unwrap_or_default() {
            let (object, complement) = words.split_once('/').unwrap_or((words, "*"));
            let mut matched = false;
            for (index, entry) in self.tables.entries.iter().enumerate() {
                let row = &self.tables.rows[entry.row];
                let fits = glob(object, &entry.object) && glob(complement, &entry.form.0);
                if !fits || !row.verbs.contains(&Verb::Get) {
                    continue;
                }
                matched = true;
                // As in a request, the first of several rows with the same complement applies.
                if !names.insert((&entry.object, &entry.form.0)) {
                    continue;
                }
                let name_bytes = entry.object.len() + 1 + entry.form.0.len();
                if name_bytes > POLLED_NAME_BYTES_MAX || row.unit.len() > POLLED_UNIT_BYTES_MAX {
                    let message = format!("{}/{} in {:?} cannot be polled", entry.object, entry.form.0, row.unit);
                    let expected = format!(
                        "a name of at most {POLLED_NAME_BYTES_MAX} bytes and a unit of {POLLED_UNIT_BYTES_MAX}, in shared memory"
                    );
                    found.error(span.clone(), message, expected, "");
                }
                entries.push(index);
            }
            if !matched {
                let message = format!("`objects` cannot be {:?}: no `get` row matches", clipped(words));
                found.error(span, message, "object/complement, with `*` and `?`", "");
            }
        }
        if let (Some(name), Some(period)) = (name, period) {
            if self.tables.polls.iter().any(|poll| poll.name == name) {
                found.error(
                    section.range(),
                    format!("two polls have the name {name:?}"),
                    "a unique name",
                    "rename one",
                );
            }
            self.tables.polls.push(Poll { name, period, entries });
        }
    }
}

/// The device of an entry if it may block, else `None`. Two entries are on the same lane if this is equal.
fn blocking(tables: &Tables, entry: usize) -> Option<usize> {
    let device = tables.entries[entry].device;
    (tables.devices[device].driver.pace == Pace::MayBlock).then_some(device)
}

/// A number, whole or fractional.
fn real(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Option<(f64, Range<usize>)> {
    let value = section.value(name)?;
    match number(value.get_ref()) {
        Some(number) => Some((number, value.span())),
        None => {
            section.wrong(name, value, "a finite number", found);
            None
        }
    }
}

/// The finite number in a value.
fn number(value: &DeValue<'_>) -> Option<f64> {
    let number = match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()? as f64,
        DeValue::Float(number) => number.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// Two numbers, the first one smaller.
fn pair(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Option<(f64, f64)> {
    let value = section.value(name)?;
    let numbers: Option<Vec<f64>> =
        value.get_ref().as_array().and_then(|items| items.iter().map(|item| number(item.get_ref())).collect());
    match numbers.as_deref() {
        Some([low, high]) if low < high => Some((*low, *high)),
        _ => {
            section.wrong(name, value, "two numbers, the lower one first", found);
            None
        }
    }
}

/// The name of a frame and of an activity.
fn frame(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<(String, String)> {
    let value = section.value("frame")?;
    let texts = |table: &DeTable<'_>| {
        let text = |key: &str| table.iter().find(|(name, _)| *name.get_ref() == key)?.1.get_ref().as_str();
        let (name, activity) = (text("name")?.to_owned(), text("activity")?.to_owned());
        (table.len() == 2 && !name.is_empty() && !activity.is_empty()).then_some((name, activity))
    };
    let both = value.get_ref().as_table().and_then(texts);
    if both.is_none() {
        section.wrong("frame", value, "a table of two texts, `name` and `activity`", found);
    }
    both
}

/// The name of a manager or a poll.
fn name(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<String> {
    if section.value("name").is_none() {
        section.missing("name", found);
    }
    let (name, span) = section.words("name", found)?;
    let fits = name.len() <= 32 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if !fits {
        let message = format!("`name` cannot be {:?}", clipped(name));
        found.error(span, message, "letters, digits, `-` and `_`, at most 32", "");
        return None;
    }
    Some(name.to_owned())
}

/// A pattern.
fn pattern(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Option<(Pattern, Range<usize>)> {
    let value = section.value(name)?;
    let (text, span) = match value.get_ref() {
        DeValue::Integer(number) => (number.as_str(), value.span()),
        _ => section.text(name, found)?,
    };
    match Pattern::parse(text) {
        Ok(pattern) => Some((pattern, span)),
        Err(expected) => {
            found.error(span, format!("`{name}` cannot be {:?}", clipped(text)), expected.to_string(), "");
            None
        }
    }
}

/// The items of a list, or the single value.
fn items<'v>(value: &'v Spanned<DeValue<'v>>) -> Vec<&'v Spanned<DeValue<'v>>> {
    match value.get_ref() {
        DeValue::Array(items) => items.iter().collect(),
        _ => vec![value],
    }
}
