//! Import and export of Phoebus' alarm configuration in XML, and export to tahti's format.
//!
//! Phoebus' published schema differs from its reader (it has `detail` for `details`, and forbids `:` in names). This module
//! follows the reader.

use crate::config::{Action, Area, Config, Guide, Help, Spec, is_name, joined};
use crate::filter::FilterError;
use crate::{Filter, Rules};
use base::DurNs;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write as _;

/// Maximum size of a configuration in bytes.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Maximum nesting depth of elements.
const DEPTH_MAX: usize = 40;

/// Reason why a text is not a valid Phoebus configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// Too long; its size in bytes.
    #[error("the configuration has {0} bytes; expected at most {TEXT_BYTES_MAX}: split it")]
    Long(usize),
    /// Not valid XML, or truncated.
    #[error("line {line}: {why}; expected well-formed XML")]
    Broken {
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        why: String,
    },
    /// Valid XML with unexpected content.
    #[error("line {line}: {found}; expected {expected}")]
    Other {
        /// The line, from 1.
        line: usize,
        /// The content found.
        found: String,
        /// The expected content.
        expected: &'static str,
    },
}

/// An open element during parsing.
#[derive(Clone, Debug)]
enum Open {
    Config,
    Component(Help, Level),
    /// Whether `latching` was present.
    Pv(Box<Spec>, bool),
    /// Entry of `guidance`, `display`, `command` or `automated_action`.
    Guide(&'static str, Action),
    /// An element with text content.
    Text(&'static str, String),
    /// An unknown element; its content is skipped.
    Skipped,
}

/// Elements with text content, and elements with a title and further elements.
const TEXTS: [&str; 11] = [
    "description",
    "enabled",
    "latching",
    "annunciating",
    "delay",
    "count",
    "filter",
    "title",
    "details",
    "detail",
    "priority",
];
const GUIDES: [&str; 4] = ["guidance", "display", "command", "automated_action"];

/// Alarms of a component with their lines, and its subcomponents.
#[derive(Clone, Debug, Default)]
struct Level {
    alarms: Vec<(usize, Spec)>,
    below: Vec<Self>,
}

struct Import<'t> {
    text: &'t str,
    reader: Reader<&'t [u8]>,
    open: Vec<Open>,
    path: Vec<String>,
    config: Option<Config>,
    top: Level,
    /// Number of alarms without `latching`.
    without_latching: usize,
    notes: Vec<(usize, String)>,
    /// Position up to which lines were counted, and their number; avoids counting again for each note.
    counted: Cell<(usize, usize)>,
}

/// The text of a configuration: UTF-8, or ISO-8859-1 if its XML declaration names that.
///
/// # Errors
/// Another encoding, with the place and a remedy.
pub fn decode(bytes: Vec<u8>) -> Result<String, table::NotUtf8> {
    table::one_byte_letters(&bytes)?;
    let head = bytes.strip_prefix(b"<?xml").and_then(|rest| rest.split(|byte| *byte == b'>').next());
    let head = String::from_utf8_lossy(head.unwrap_or_default()).to_ascii_lowercase();
    let named = head.split_once("encoding").and_then(|(_, rest)| rest.split(['"', '\'']).nth(1));
    match named {
        Some("iso-8859-1" | "iso_8859-1" | "latin1" | "latin-1" | "us-ascii") => {
            Ok(bytes.into_iter().map(char::from).collect())
        }
        _ => table::utf8(bytes),
    }
}

/// Parses a Phoebus configuration. Returns it with notes about parts that were not imported.
///
/// # Errors
/// If the configuration is invalid, with the line.
pub fn import(text: &str) -> Result<(Config, Vec<String>), XmlError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(XmlError::Long(text.len()));
    }
    let reader = Reader::from_str(text);
    let (open, path, top, notes) = (Vec::new(), Vec::new(), Level::default(), Vec::new());
    let counted = Cell::default();
    let mut import = Import { text, reader, open, path, config: None, top, without_latching: 0, notes, counted };
    loop {
        let event = import.reader.read_event().map_err(|error| import.broken(error.to_string()))?;
        match event {
            Event::Start(start) => import.start(&start)?,
            Event::Empty(start) => {
                import.start(&start)?;
                import.end()?;
            }
            Event::End(_) => import.end()?,
            Event::Text(words) => {
                let words = words.xml10_content().map_err(|error| import.broken(error.to_string()))?;
                import.words(&words);
            }
            Event::CData(words) => {
                let words = words.xml10_content().map_err(|error| import.broken(error.to_string()))?;
                import.words(&words);
            }
            Event::GeneralRef(name) => import.reference(&name)?,
            Event::DocType(_) | Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => break,
        }
    }
    if !import.open.is_empty() {
        return Err(import.broken("the end comes before all elements have ended".to_owned()));
    }
    let Import { config, top, without_latching, mut notes, .. } = import;
    let none = XmlError::Other {
        line: 1,
        found: "<config> is missing".into(),
        expected: "a configuration of Phoebus' alarms",
    };
    let mut config = config.ok_or(none)?;
    top.collect(&mut config.alarms, &mut HashSet::new(), &mut notes);
    notes.sort_by_key(|(line, _)| *line);
    let mut notes: Vec<String> = notes.into_iter().map(|(line, what)| format!("line {line}: {what}")).collect();
    if without_latching > 0 {
        notes.push(format!(
            "{without_latching} pv without `latching`: imported with latching = false, as Phoebus up to 4.7.3 reads them. Phoebus \
             from 4.7.4 on latches them. If they must latch, remove `latching = false` from these alarms"
        ));
    }
    Ok((config, notes))
}

impl Level {
    /// Collects the alarms in Phoebus' order: those of a component before those of its subcomponents. Of several alarms of a
    /// channel, the one closest to the top is used.
    fn collect(self, to: &mut Vec<Spec>, channels: &mut HashSet<String>, notes: &mut Vec<(usize, String)>) {
        for (line, spec) in self.alarms {
            if channels.insert(spec.name().to_owned()) {
                to.push(spec);
            } else {
                let shown = table::clipped(&spec.channel);
                notes.push((
                    line,
                    format!("pv {shown:?} is already defined at this level or a higher one; this one is skipped"),
                ));
            }
        }
        // The recursion is limited by the nesting depth of elements.
        self.below.into_iter().for_each(|level| level.collect(to, channels, notes));
    }
}

impl Import<'_> {
    fn line(&self) -> usize {
        let at = usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX).min(self.text.len());
        let (from, before) = self.counted.get();
        let new = self.text.as_bytes().get(from..at).unwrap_or_default();
        let lines = before + new.iter().filter(|byte| **byte == b'\n').count();
        self.counted.set((at.max(from), lines));
        1 + lines
    }

    fn broken(&self, why: String) -> XmlError {
        XmlError::Broken { line: self.line(), why }
    }

    fn other(&self, found: String, expected: &'static str) -> XmlError {
        XmlError::Other { line: self.line(), found, expected }
    }

    fn note(&mut self, what: &str) {
        let line = self.line();
        self.notes.push((line, what.to_owned()));
    }

    fn start(&mut self, start: &BytesStart<'_>) -> Result<(), XmlError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(self.other(format!("more than {DEPTH_MAX} elements within each other"), "fewer"));
        }
        let tag = String::from_utf8_lossy(start.name().as_ref()).into_owned();
        let open = match (self.open.last(), tag.as_str()) {
            (None, "config") if self.config.is_none() => {
                let name = self.name(start)?;
                self.config = Some(Config { name, folder: "alarms".into(), ..Config::default() });
                Open::Config
            }
            (None, _) => return Err(self.other(format!("<{}>", table::clipped(&tag)), "<config name=\"…\">, once")),
            (Some(Open::Config | Open::Component(..)), "component") => {
                let name = self.name(start)?;
                match name.strip_prefix('/') {
                    Some(rest) if rest.starts_with('/') || !is_name(rest) => {
                        let what = format!(
                            "the component {:?} has no usable name after its first `/` and is skipped",
                            table::clipped(&name)
                        );
                        self.note(&what);
                        Open::Skipped
                    }
                    // Phoebus removes one leading slash.
                    rest => {
                        self.path.push(rest.unwrap_or(&name).to_owned());
                        Open::Component(Help::default(), Level::default())
                    }
                }
            }
            (Some(Open::Config | Open::Component(..)), "pv") => Open::Pv(
                Box::new(Spec {
                    channel: self.attribute(start)?,
                    area: self.path.clone(),
                    enabled: true,
                    // Defaults of Phoebus' reader.
                    rules: Rules { annunciating: false, ..Rules::default() },
                    ..Spec::default()
                }),
                false,
            ),
            (Some(Open::Config | Open::Component(..)), tag) if tag.ends_with(":include") => {
                let found = format!("<{}>", table::clipped(tag));
                return Err(self.other(found, "one file: `xmllint --xinclude` inserts the included files"));
            }
            (Some(Open::Component(..) | Open::Pv(..)), tag)
                if let Some(known) = GUIDES.iter().find(|known| **known == tag) =>
            {
                Open::Guide(known, Action::default())
            }
            (Some(Open::Pv(..) | Open::Guide(..)), tag)
                if let Some(known) = TEXTS.iter().find(|known| **known == tag) =>
            {
                Open::Text(known, String::new())
            }
            (Some(Open::Skipped), _) => Open::Skipped,
            (Some(_), tag) => {
                let what = format!("<{}> is unknown here and skipped", table::clipped(tag));
                self.note(&what);
                Open::Skipped
            }
        };
        self.open.push(open);
        Ok(())
    }

    fn attribute(&self, start: &BytesStart<'_>) -> Result<String, XmlError> {
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| self.broken(error.to_string()))?;
            if attribute.key.as_ref() == b"name" {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0);
                return value.map(|value| value.trim().to_owned()).map_err(|error| self.broken(error.to_string()));
            }
        }
        Err(self.other("an element without `name`".to_owned(), "name=\"…\""))
    }

    /// The name of a component or of the configuration.
    fn name(&self, start: &BytesStart<'_>) -> Result<String, XmlError> {
        let name = self.attribute(start)?;
        if is_name(&name) {
            return Ok(name);
        }
        Err(self.other(
            format!("the name {:?}", table::clipped(&name)),
            "1 to 256 bytes without control characters, blanks at its ends and `\\` at its end",
        ))
    }

    fn words(&mut self, words: &str) {
        if let Some(Open::Text(_, text)) = self.open.last_mut() {
            text.push_str(words);
        }
    }

    /// Resolves `&lt;` and similar. Declared entities are not supported.
    fn reference(&mut self, name: &quick_xml::events::BytesRef<'_>) -> Result<(), XmlError> {
        let letter = name.resolve_char_ref().map_err(|error| self.broken(error.to_string()))?;
        if let Some(letter) = letter {
            self.words(letter.encode_utf8(&mut [0; 4]));
            return Ok(());
        }
        let word = String::from_utf8_lossy(name).into_owned();
        match quick_xml::escape::resolve_xml_entity(&word) {
            Some(text) => self.words(text),
            None => return Err(self.other(format!("&{};", table::clipped(&word)), "one of XML's own five entities")),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), XmlError> {
        match self.open.pop() {
            Some(Open::Text(tag, text)) => self.text(tag, text.trim()),
            Some(Open::Guide(tag, action)) => {
                let help = match self.open.last_mut() {
                    Some(Open::Component(help, _)) => help,
                    Some(Open::Pv(spec, _)) => &mut spec.help,
                    _ => return Ok(()),
                };
                let guide = Guide { title: action.title.clone(), details: action.details.clone() };
                match tag {
                    "guidance" => help.guidance.push(guide),
                    "display" => help.displays.push(guide),
                    "command" => help.commands.push(guide),
                    _ => help.actions.push(action),
                }
            }
            Some(Open::Pv(spec, has_latching)) => self.pv(*spec, has_latching),
            Some(Open::Component(help, level)) => {
                self.level().below.push(level);
                if let (true, Some(config)) = (help != Help::default(), &mut self.config) {
                    config.areas.push(Area { path: self.path.clone(), help });
                }
                self.path.pop();
            }
            Some(Open::Config | Open::Skipped) | None => {}
        }
        Ok(())
    }

    fn text(&mut self, tag: &'static str, text: &str) {
        let mut notes = None;
        match self.open.last_mut() {
            Some(Open::Guide(_, action)) => match tag {
                "title" => text.clone_into(&mut action.title),
                "details" | "detail" => text.clone_into(&mut action.details),
                "delay" => action.delay = text.parse().unwrap_or(0).min(86_400),
                _ => notes = Some(format!("<{tag}> does not belong here and is skipped")),
            },
            Some(Open::Pv(spec, has_latching)) => {
                *has_latching |= tag == "latching";
                notes = value(spec, tag, text);
            }
            _ => {}
        }
        if let Some(notes) = notes {
            self.note(&notes);
        }
    }

    /// The innermost open component.
    fn level(&mut self) -> &mut Level {
        match self.open.last_mut() {
            Some(Open::Component(_, level)) => level,
            _ => &mut self.top,
        }
    }

    fn pv(&mut self, mut spec: Spec, has_latching: bool) {
        if let Some(name) = spec.channel.strip_prefix("ca://") {
            spec.channel = name.to_owned();
        }
        if !is_name(spec.name()) || spec.name().contains("://") {
            let shown = table::clipped(&spec.channel);
            let what = format!("pv {shown:?} is not a channel of Channel Access or PVAccess and is skipped");
            self.note(&what);
            return;
        }
        let line = self.line();
        // Old files contain `latching` only if it is true.
        spec.rules.latching &= has_latching;
        if spec.rules.count > 0 && spec.rules.delay.0 == 0 {
            let (count, channel) = (std::mem::take(&mut spec.rules.count), table::clipped(&spec.channel));
            let what = format!(
                "the count {count} of {channel:?} has no effect without a delay, in Phoebus and here: it is not kept"
            );
            self.notes.push((line, what));
        }
        self.without_latching += usize::from(!has_latching);
        self.level().alarms.push((line, spec));
    }
}

/// Sets a value of a pv. Returns a note if it could not be imported.
fn value(spec: &mut Spec, tag: &str, text: &str) -> Option<String> {
    let channel = table::clipped(&spec.channel);
    let is_true = || text.eq_ignore_ascii_case("true");
    match tag {
        "description" => text.clone_into(&mut spec.description),
        "latching" => spec.rules.latching = is_true(),
        "annunciating" => spec.rules.annunciating = is_true(),
        "enabled" if text.is_empty() || is_true() => spec.enabled = true,
        "enabled" => {
            spec.enabled = false;
            if !text.eq_ignore_ascii_case("false") {
                let until = table::clipped(text);
                return Some(format!(
                    "{channel:?} is disabled until {until:?}: here it stays disabled until an operator enables it"
                ));
            }
        }
        "delay" => {
            let secs = text.parse::<f64>().ok().filter(|secs| (0.0..=86_400.0).contains(secs));
            spec.rules.delay = DurNs::from_secs(secs.unwrap_or(0.0) as i64);
            if secs.is_none() {
                return Some(format!("the delay {:?} of {channel:?} is not a number: 0 is used", table::clipped(text)));
            }
        }
        "count" => match text.parse::<u32>().ok().filter(|count| *count <= 1000) {
            Some(count) => spec.rules.count = count,
            None => {
                return Some(format!("the count {:?} of {channel:?} is not a number: 0 is used", table::clipped(text)));
            }
        },
        "filter" if text.is_empty() => {}
        "filter" => match Filter::parse(text) {
            Ok(filter) => (spec.filter, spec.filter_text) = (Some(filter), text.to_owned()),
            Err(why) => {
                text.clone_into(&mut spec.filter_text);
                return Some(format!(
                    "the filter of {channel:?} is stored as text but not evaluated, so it never suppresses the alarm: {why}"
                ));
            }
        },
        tag => return Some(format!("<{tag}> of {channel:?} is unknown and skipped")),
    }
    None
}

/// A component of the tree: help, subcomponents, alarms.
#[derive(Default)]
struct Tree<'c> {
    help: Option<&'c Help>,
    below: Vec<(&'c str, Self)>,
    alarms: Vec<&'c Spec>,
}

impl<'c> Tree<'c> {
    fn at(&mut self, path: &'c [String]) -> &mut Self {
        let mut tree = self;
        for name in path {
            let known = tree.below.iter().position(|(known, _)| known == name);
            let index = known.unwrap_or_else(|| {
                tree.below.push((name, Tree::default()));
                tree.below.len() - 1
            });
            tree = &mut tree.below[index].1;
        }
        tree
    }
}

/// Exports to Phoebus' format. Omits off-delay, deadband and re-alarm, which Phoebus does not support.
#[must_use]
pub fn export(config: &Config) -> String {
    let mut root = Tree::default();
    for area in &config.areas {
        root.at(&area.path).help = Some(&area.help);
    }
    for spec in &config.alarms {
        root.at(&spec.area).alarms.push(spec);
    }
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    component(&mut out, "config", &config.name, &root, 0);
    out
}

fn component(out: &mut String, tag: &str, name: &str, tree: &Tree<'_>, depth: usize) {
    let blank = "  ".repeat(depth);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{blank}<{tag} name=\"{}\">", Escaped(name));
    if let Some(given) = tree.help {
        help(out, given, depth + 1);
    }
    for spec in &tree.alarms {
        pv(out, spec, depth + 1);
    }
    for (name, below) in &tree.below {
        component(out, "component", name, below, depth + 1);
    }
    let _ = writeln!(out, "{blank}</{tag}>");
}

fn pv(out: &mut String, spec: &Spec, depth: usize) {
    let (blank, rules) = ("  ".repeat(depth), &spec.rules);
    let _ = writeln!(out, "{blank}<pv name=\"{}\">", Escaped(&spec.channel));
    let mut text = |tag: &str, text: &str| {
        let _ = writeln!(out, "{blank}  <{tag}>{}</{tag}>", Escaped(text));
    };
    if !spec.description.is_empty() {
        text("description", &spec.description);
    }
    for (tag, flag) in [("enabled", spec.enabled), ("latching", rules.latching), ("annunciating", rules.annunciating)] {
        text(tag, if flag { "true" } else { "false" });
    }
    let secs = rules.delay.0 / 1_000_000_000;
    if secs > 0 {
        text("delay", &secs.to_string());
    }
    if rules.count > 0 {
        text("count", &rules.count.to_string());
    }
    if !spec.filter_text.is_empty() {
        text("filter", &spec.filter_text);
    }
    help(out, &spec.help, depth + 1);
    let _ = writeln!(out, "{blank}</pv>");
}

fn help(out: &mut String, help: &Help, depth: usize) {
    let blank = "  ".repeat(depth);
    let guides = [("guidance", &help.guidance), ("display", &help.displays), ("command", &help.commands)];
    let guides =
        guides.iter().flat_map(|(tag, guides)| guides.iter().map(move |one| (*tag, &one.title, &one.details, None)));
    let actions = help.actions.iter().map(|one| ("automated_action", &one.title, &one.details, Some(one.delay)));
    for (tag, title, details, delay) in guides.chain(actions) {
        let _ = writeln!(out, "{blank}<{tag}>\n{blank}  <title>{}</title>", Escaped(title));
        let _ = writeln!(out, "{blank}  <details>{}</details>", Escaped(details));
        if let Some(delay) = delay {
            let _ = writeln!(out, "{blank}  <delay>{delay}</delay>");
        }
        let _ = writeln!(out, "{blank}</{tag}>");
    }
}

/// Escapes a text for XML. Characters not allowed in XML become blanks.
struct Escaped<'t>(&'t str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\n' => f.write_str("&#10;")?,
                '\r' => f.write_str("&#13;")?,
                '\t' => f.write_str("&#9;")?,
                '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => f.write_str(" ")?,
                letter => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}

/// Exports to tahti's format; [`read`](crate::read) returns an equal configuration.
#[must_use]
pub fn to_toml(config: &Config) -> String {
    let mut out = format!(
        "[alarms]\nname = {}\nfolder = {}\n",
        quoted(&config.name),
        quoted(&config.folder.display().to_string())
    );
    for area in &config.areas {
        let _ = write!(out, "\n[[area]]\npath = {}\n", quoted(&joined(&area.path)));
        help_lines(&mut out, &area.help);
    }
    for spec in &config.alarms {
        let _ = write!(out, "\n[[alarm]]\nchannels = [{}]\n", quoted(&spec.channel));
        let (rules, usual) = (&spec.rules, Rules::default());
        let is_formula = matches!(Filter::parse(&spec.filter_text), Ok(_) | Err(FilterError::Unsupported { .. }));
        let filter = (if is_formula { "filter" } else { "phoebus_filter" }, spec.filter_text.clone());
        let texts = [("area", joined(&spec.area)), ("description", spec.description.clone()), filter];
        for (key, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
            let _ = writeln!(out, "{key} = {}", quoted(text));
        }
        let flags = [
            ("enabled", spec.enabled, true),
            ("latching", rules.latching, usual.latching),
            ("annunciating", rules.annunciating, usual.annunciating),
        ];
        for (key, flag, _) in flags.iter().filter(|(_, flag, usual)| flag != usual) {
            let _ = writeln!(out, "{key} = {flag}");
        }
        for (key, time) in [("delay", rules.delay), ("off_delay", rules.off_delay), ("realarm", rules.realarm)] {
            if time.0 > 0 {
                let _ = writeln!(out, "{key} = \"{time}\"");
            }
        }
        if rules.count > 0 {
            let _ = writeln!(out, "count = {}", rules.count);
        }
        if rules.deadband > 0.0 {
            let _ = writeln!(out, "deadband = {:?}", rules.deadband);
        }
        help_lines(&mut out, &spec.help);
    }
    out
}

fn help_lines(out: &mut String, help: &Help) {
    for (key, guides) in [("guidance", &help.guidance), ("displays", &help.displays), ("commands", &help.commands)] {
        let items: Vec<String> = guides.iter().map(|one| item(&one.title, &one.details, None)).collect();
        list(out, key, &items);
    }
    let items: Vec<String> = help.actions.iter().map(|one| item(&one.title, &one.details, Some(one.delay))).collect();
    list(out, "actions", &items);
}

fn list(out: &mut String, key: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = writeln!(out, "{key} = [{}]", items.join(", "));
    }
}

fn item(title: &str, details: &str, delay: Option<u32>) -> String {
    let delay = delay.map_or_else(String::new, |delay| format!(", delay = {delay}"));
    format!("{{ title = {}, details = {}{delay} }}", quoted(title), quoted(details))
}

/// Quotes a text for TOML.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PHOEBUS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!-- as Phoebus writes it -->
<config name="Accelerator">
  <component name="Vacuum &amp; Water">
    <guidance><title>Call</title><details>4711 &lt;day and night&gt;</details></guidance>
    <pv name="ca://VAC:P1">
      <description>*Pressure</description>
      <enabled>true</enabled>
      <latching>false</latching>
      <annunciating>true</annunciating>
      <delay>10</delay>
      <count>3</count>
      <filter>'BEAM' &gt; 10</filter>
      <automated_action><title>Mail</title><details>mailto:a@b.c</details><delay>60</delay></automated_action>
    </pv>
    <pv name="VAC:P2"><enabled>2030-01-01T00:00:00</enabled><command><title>x</title><details>xterm</details></command></pv>
    <component name="Deep"><pv name="VAC:P1"/><pv name="sim://sine"/><pv name="D"/><pv name="TOP"><latching>true</latching></pv></component>
  </component>
  <pv name="TOP"><latching/></pv>
</config>
"#;

    #[test]
    fn a_configuration_of_phoebus_is_read_as_phoebus_reads_it() {
        let (config, notes) = import(PHOEBUS).unwrap();
        let paths: Vec<String> = config.alarms.iter().map(|spec| config.path(spec)).collect();
        let below = "/Accelerator/Vacuum & Water";
        assert_eq!(
            paths,
            [
                // Of two alarms of a channel, the one closest to the top is used.
                "/Accelerator/TOP".into(),
                format!("{below}/VAC:P1"),
                format!("{below}/VAC:P2"),
                format!("{below}/Deep/D"),
            ]
        );
        let (first, second) = (&config.alarms[1], &config.alarms[2]);
        assert!(!config.alarms[0].rules.latching, "an empty `latching` is false");
        let expected = Rules { latching: false, delay: DurNs::from_secs(10), count: 3, ..Rules::default() };
        assert_eq!((&first.rules, first.filter_text.as_str()), (&expected, "'BEAM' > 10"));
        assert_eq!(first.help.actions, [Action { title: "Mail".into(), details: "mailto:a@b.c".into(), delay: 60 }]);
        assert!(!second.enabled);
        assert_eq!(config.areas[0].help.guidance[0].details, "4711 <day and night>");
        assert!(!second.rules.latching, "a missing `latching` is false");
        assert!(!second.rules.annunciating);
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(notes[0].starts_with("line 16: \"VAC:P2\" is disabled until"), "{notes:?}");
        assert!(
            notes[2].contains("\"VAC:P1\" is already defined")
                && notes[1].contains("is not a channel of Channel Access"),
            "{notes:?}"
        );
        assert!(
            notes[3].contains("\"TOP\" is already defined")
                && notes[4].starts_with("3 pv without `latching`: imported with latching = false"),
            "{notes:?}"
        );
        let (read, found) = crate::read(&to_toml(&config));
        assert_eq!(read.as_ref(), Some(&config), "{found:?}");
        assert_eq!(import(&export(&config)).unwrap(), (config, Vec::new()));
    }

    #[test]
    fn a_slash_in_a_name_is_escaped_in_paths_as_phoebus_does() {
        let text = r#"<config name="a"><component name="1/2"><guidance><title>t</title><details>d</details></guidance>
            <pv name="N/D"><latching>true</latching></pv></component>
            <component name="/b"><pv name="B"><latching>true</latching></pv></component>
            <component name="//c"><pv name="C"/></component><component name="/"/></config>"#;
        let (config, notes) = import(text).unwrap();
        let paths: Vec<String> = config.alarms.iter().map(|spec| config.path(spec)).collect();
        assert_eq!(paths, ["/a/1\\/2/N\\/D", "/a/b/B"]);
        assert!(notes.len() == 2 && notes[0].contains("\"//c\" has no usable name"), "{notes:?}");
        assert!(crate::is_meant("N/D", &paths[0]) && crate::is_meant("/a/1\\/2", &paths[0]));
        assert!(!crate::is_meant("D", &paths[0]));
        let (read, found) = crate::read(&to_toml(&config));
        assert_eq!(read.as_ref(), Some(&config), "{found:?}");
        assert_eq!(import(&export(&config)).unwrap(), (config, Vec::new()));
    }

    #[test]
    fn a_filter_that_is_not_evaluated_is_kept_and_reported() {
        let pv = |name: &str, filter: &str| {
            format!("<pv name=\"{name}\"><latching>true</latching><filter>{filter}</filter></pv>")
        };
        let (good, arrays, wrong) = ("A:1 &gt; 2 ? B ^ 2 : sqrt(C)", "arrayMax(`A`) &gt; 1", "1 +");
        let text = format!("<config name=\"a\">{}{}{}</config>", pv("x", good), pv("y", arrays), pv("z", wrong));
        let (config, notes) = import(&text).unwrap();
        let texts: Vec<&str> = config.alarms.iter().map(|spec| spec.filter_text.as_str()).collect();
        assert_eq!(texts, ["A:1 > 2 ? B ^ 2 : sqrt(C)", "arrayMax(`A`) > 1", "1 +"]);
        assert_eq!(config.alarms.iter().filter(|spec| spec.filter.is_some()).count(), 1);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes.iter().all(|note| note.contains("is stored as text but not evaluated")), "{notes:?}");
        assert_eq!(import(&export(&config)).unwrap().0, config);
        let toml = to_toml(&config);
        assert!(toml.contains("\nphoebus_filter = \"1 +\"\n"), "{toml}");
        let (read, found) = crate::read(&toml);
        let read = read.unwrap();
        assert_eq!(read.alarms, config.alarms);
        assert!(export(&read).contains("<filter>1 +</filter>"));
        let messages: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
        assert!(
            messages.len() == 2 && messages.iter().all(|one| one.contains("is stored but not evaluated")),
            "{found:?}"
        );
        let (_, found) = crate::read(&toml.replace("phoebus_filter", "filter = \"A > 1\"\nphoebus_filter"));
        assert!(found.iter().any(|one| one.message.contains("both `filter` and `phoebus_filter`")), "{found:?}");
    }

    #[test]
    fn a_count_without_a_delay_is_reported() {
        let pv =
            |rules: &str| format!("<config name=\"a\">\n<pv name=\"x\"><latching>true</latching>{rules}</pv></config>");
        let (config, notes) = import(&pv("<count>3</count>")).unwrap();
        let expected =
            "line 2: the count 3 of \"x\" has no effect without a delay, in Phoebus and here: it is not kept";
        assert_eq!((config.alarms[0].rules.count, &notes[..]), (0, &[expected.to_owned()][..]));
        let (config, notes) = import(&pv("<count>3</count><delay>5</delay>")).unwrap();
        assert_eq!((config.alarms[0].rules.count, notes.len()), (3, 0));
    }

    #[test]
    fn a_configuration_in_another_encoding_is_converted_as_declared_or_refused_with_the_remedy() {
        let text = |head: &str| {
            [head.as_bytes(), b"<config name=\"a\"><pv name=\"x\"><description>m\xb2</description></pv></config>"]
                .concat()
        };
        let latin = decode(text("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>")).unwrap();
        assert_eq!(import(&latin).unwrap().0.alarms[0].description, "m²");
        for head in ["<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "<?xml version=\"1.0\"?>", ""] {
            let why = decode(text(head)).unwrap_err().to_string();
            assert!(why.starts_with("line 1, column ") && why.contains("iconv -f latin1"), "{why}");
        }
        let wide: Vec<u8> = "<?xml?>".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(decode(wide).unwrap_err().to_string().contains("iconv -f utf-16le"));
    }

    #[test]
    fn a_malformed_configuration_is_refused_with_its_line() {
        for (text, expected) in [
            ("", "<config> is missing"),
            ("<a/>", "line 1: found"),
            ("<config>", "an element without `name`"),
            ("<config name=\"a\">\n<pv name=\"x\">", "line 2: "),
            ("<config name=\"a\"></confg>", "line 1: "),
            ("<config name=\"a\">\n<xi:include href=\"b.xml\"/></config>", "line 2: <xi:include>; expected one file"),
            ("<config name=\"a\"><pv name=\"x\"><description>&secret;</description></pv></config>", "&secret;"),
            ("<config name=\"a\"><component name=\" \"/></config>", "without control characters"),
        ] {
            let error = import(text).unwrap_err().to_string();
            let expected = expected.replace("found", "<a>");
            assert!(error.contains(&expected), "{text}: {error}");
        }
        let deep = format!("<config name=\"a\">{}", "<component name=\"b\">".repeat(100));
        assert!(import(&deep).unwrap_err().to_string().contains("within each other"));
    }

    fn guides() -> impl Strategy<Value = Vec<Guide>> {
        prop::collection::vec(("[ -~é\n]{0,12}", "[ -~é\t]{0,12}"), 0..3).prop_map(|all| {
            all.into_iter()
                .map(|(title, details)| Guide { title: title.trim().into(), details: details.trim().into() })
                .collect()
        })
    }

    fn helps() -> impl Strategy<Value = Help> {
        (guides(), guides(), guides(), prop::collection::vec(0u32..86_400, 0..2)).prop_map(
            |(guidance, displays, commands, delays)| Help {
                guidance,
                displays,
                commands,
                actions: delays
                    .into_iter()
                    .map(|delay| Action { title: "t".into(), details: "<&>\"'".into(), delay })
                    .collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_configuration_survives_a_round_trip_as_toml_and_xml(
            alarms in prop::collection::btree_map("[A-Za-z:.&<\"é-]{1,12}", (prop::collection::vec("[a-c& ]{0,3}x", 0..3), "[ -~]{0,20}", any::<[bool; 3]>(), 0i64..100, 0u32..5, helps()), 0..8),
            area in helps(),
        ) {
            let mut config = Config { name: "a\"b".into(), folder: "alarms".into(), ..Config::default() };
            config.areas.extend((area != Help::default()).then(|| Area { path: vec!["x".into(), "yx".into()], help: area }));
            for (channel, (path, description, [enabled, latching, annunciating], delay, count, help)) in alarms {
                let rules = Rules { latching, annunciating, delay: DurNs::from_secs(delay), count: if delay > 0 { count } else { 0 }, ..Rules::default() };
                let area: Vec<String> = path.into_iter().map(|name| name.trim().to_owned()).collect();
                config.alarms.push(Spec { channel, area, description: description.trim().into(), enabled, rules, help, ..Spec::default() });
            }
            let (read, found) = crate::read(&to_toml(&config));
            if !config.alarms.is_empty() {
                prop_assert_eq!(read.as_ref(), Some(&config), "{:?}", found);
            }
            let xml = export(&config);
            let (mut again, notes) = import(&xml).unwrap();
            prop_assert!(notes.is_empty(), "{notes:?}");
            // The XML is ordered by areas.
            again.alarms.sort_by(|one, other| one.channel.cmp(&other.channel));
            config.alarms.sort_by(|one, other| one.channel.cmp(&other.channel));
            prop_assert_eq!(again, config, "{}", xml);
        }

        #[test]
        fn no_text_panics(text in "(<config name=\"a\">)?(<pv name=\"b\">|<component name=\"c\">|</pv>|&amp;|&#1;|<!\\[CDATA\\[x\\]\\]>|[ -~]){0,12}") {
            let _ = import(&text);
        }
    }
}
