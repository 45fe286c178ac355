//! The configuration file of alarms.

use crate::destination::{self, Destination};
use crate::filter::FilterError;
use crate::{Filter, Rules};
use base::{DurNs, Size};
use host::plant::{ALARM_KEYS, NOTIFY};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::PathBuf;
use table::{Diagnostic, Diagnostics, Joined, Key, Section, Severity, Table, key, tables};
use toml::de::{DeTable, DeValue};

/// Maximum size of the file in bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Maximum bytes of a name, and maximum names of areas in a path.
const NAME_BYTES_MAX: usize = 256;
const DEPTH_MAX: usize = 32;
/// The journal needs room for several of its files.
const KEEP_SIZE_MIN: Size = Size(32 << 20);
/// One day; also the maximum delay.
const DAY: DurNs = DurNs::from_secs(86_400);

/// `[alarms]`.
const ALARMS: Table =
    Table { header: "[alarms]", doc: "Name of this set of alarms, and the folder of its journal.", keys: &OWN_KEYS };

/// As in a plant file, except that `name` is the name of the alarm set, and `file` may not replace `folder`.
const OWN_KEYS: [Key; ALARM_KEYS.len()] = {
    let mut keys = ALARM_KEYS;
    (keys[0].name, keys[1].default) = ("name", "");
    keys
};

const HELP: [Key; 4] = [
    key(
        "guidance",
        r#"[{ title = "Reset", details = "Press RESET at the rack" }]"#,
        "list of `{ title, details }`",
        "none",
        "Instructions for the operator.",
    ),
    key(
        "displays",
        r#"[{ title = "RF", details = "rf.bob" }]"#,
        "list of `{ title, details }`",
        "none",
        "Displays to open.",
    ),
    key(
        "commands",
        r#"[{ title = "Log", details = "firefox …" }]"#,
        "list of `{ title, details }`",
        "none",
        "Stored for Phoebus; tahti does not run commands.",
    ),
    key(
        "actions",
        r#"[{ title = "Mail", details = "mailto:a@b.c", delay = 10 }]"#,
        "list of `{ title, details, delay }`",
        "none",
        "Stored for Phoebus; tahti does not run actions.",
    ),
];

/// Prefix of PVAccess channels.
pub const PVACCESS: &str = "pva://";

/// `[alarms]` of a plant file, limited to the keys of an alarm file.
const IN_PLANT: Table = Table { header: "[alarms]", doc: "", keys: &ALARM_KEYS };

/// `[[area]]`.
const AREA: Table = Table {
    header: "[[area]]",
    doc: "Help for all alarms of an area. An alarm may use an area without such a table.",
    keys: &[
        key("path", r#""RF/Cavity""#, "names with `/` between them, `\\/` for one in a name", "", "Path of the area."),
        HELP[0],
        HELP[1],
        HELP[2],
        HELP[3],
    ],
};

/// `[[alarm]]`.
const ALARM: Table = Table {
    header: "[[alarm]]",
    doc: "Channels with the same alarm settings: variables of Channel Access servers, found by `EPICS_CA_ADDR_LIST` and related variables, as by all clients.",
    keys: &[
        key(
            "channels",
            r#"["RF:TEMP", "pva://RF:FLOW"]"#,
            "list of names",
            "",
            "The channels of Channel Access, or with `pva://` of PVAccess: each is an alarm, in the tree under the name without `pva://`.",
        ),
        key(
            "area",
            r#""RF/Cavity""#,
            "names with `/` between them, `\\/` for one in a name",
            "the top",
            "Area of the alarms in the tree.",
        ),
        key("description", r#""Cooling water""#, "text", "none", "Description for the operator."),
        key("enabled", "false", "true or false", "`true`", "Evaluate these alarms."),
        key(
            "latching",
            "false",
            "true or false",
            "`true`",
            "Keep an alarm until an operator acknowledges it, also after the value has returned to normal (ISA-18.2: return to normal, unacknowledged).",
        ),
        key("annunciating", "false", "true or false", "`true`", "Announce an alarm when its severity rises."),
        key(
            "delay",
            r#""15s""#,
            "time, 0s to 24h",
            "`0s`",
            "Minimum time in alarm before the alarm is raised (on-delay).",
        ),
        key(
            "count",
            "3",
            "number, 0 to 1000",
            "`0`",
            "Raise the alarm at once when its channel entered alarm, or changed its severity or status in alarm, this many times within `delay`. An update of only the value does not count.",
        ),
        key(
            "off_delay",
            r#""15s""#,
            "time, 0s to 24h",
            "`0s`",
            "Minimum time without alarm before the alarm is cleared (off-delay).",
        ),
        key(
            "deadband",
            "0.5",
            "number that is not negative",
            "`0`",
            "A lower severity takes effect only when the value is this far from the last value of higher severity.",
        ),
        key(
            "realarm",
            r#""8h""#,
            "time, 0s to 720h",
            "`0s`: never",
            "After this time an alarm that is still active is announced again, and its acknowledgement expires.",
        ),
        key(
            "filter",
            r#""'RF:POWER' > 10""#,
            "formula of channels",
            "none",
            "Phoebus' formula. While its value is zero or less, the alarms are suppressed: evaluated and logged, but not displayed. When it becomes positive again, `delay` starts again.",
        ),
        key(
            "phoebus_filter",
            r#""'RF:POWER' >""#,
            "text",
            "none",
            "Stored for Phoebus: a filter that is not a formula. It never suppresses the alarms. `alarm import` writes it, `alarm export` returns it.",
        ),
        HELP[0],
        HELP[1],
        HELP[2],
        HELP[3],
    ],
};

/// Entry of `guidance`, `displays`, `commands` and `actions`.
const GUIDE: Table = Table {
    header: "guidance",
    doc: "",
    keys: &[
        key("title", r#""Reset""#, "text", "none", "Its title."),
        key("details", r#""Press RESET""#, "text", "none", "Text of the entry."),
        key(
            "delay",
            "10",
            "number, 0 to 86400",
            "`0`",
            "For actions: seconds in alarm before Phoebus runs the action.",
        ),
    ],
};

/// The tables of the file; also its documentation.
pub const DOCUMENT: [Table; 4] = [ALARMS, NOTIFY, AREA, ALARM];

/// An entry of help: a title and a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guide {
    /// The title.
    pub title: String,
    /// The text.
    pub details: String,
}

/// An action for Phoebus after some time in alarm. tahti stores it but does not run it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The title.
    pub title: String,
    /// The action.
    pub details: String,
    /// Seconds in alarm before the action.
    pub delay: u32,
}

/// Help for an alarm or area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Help {
    /// Instructions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<Guide>,
    /// Displays to open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub displays: Vec<Guide>,
    /// Commands, stored for Phoebus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Guide>,
    /// Actions, stored for Phoebus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
}

/// An area of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// Names from the top.
    pub path: Vec<String>,
    /// Its help.
    pub help: Help,
}

/// Configuration of an alarm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    /// The channel. One of PVAccess begins with [`PVACCESS`].
    pub channel: String,
    /// Names of its areas from the top.
    pub area: Vec<String>,
    /// Its description.
    pub description: String,
    /// Whether it is evaluated.
    pub enabled: bool,
    /// Its rules.
    pub rules: Rules,
    /// Its filter: a condition under which the alarm is relevant.
    pub filter: Option<Filter>,
    /// Text of the filter.
    pub filter_text: String,
    /// Its help.
    pub help: Help,
}

/// Configuration of all alarms.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the set of alarms.
    pub name: String,
    /// Folder of the journal.
    pub folder: PathBuf,
    /// Maximum age of the journal's files, in days.
    pub keep_days: u32,
    /// Maximum size of the journal.
    pub keep_size: Size,
    /// Users that may read and act, by name or number.
    pub operators: Vec<String>,
    /// Users that may only read, by name or number.
    pub viewers: Vec<String>,
    /// Maximum time for shelving.
    pub shelve_max: DurNs,
    /// Time after the start at which a disconnected channel becomes an alarm.
    pub connect_within: DurNs,
    /// Destinations of notifications.
    pub notify: Vec<Destination>,
    /// Areas that have help.
    pub areas: Vec<Area>,
    /// The alarms.
    pub alarms: Vec<Spec>,
}

/// Default name of a set of alarms.
pub const DEFAULT_NAME: &str = "alarms";

impl Config {
    /// Name of the server's socket: the configured name, or the plant's if none is configured, so that several plants can run.
    #[must_use]
    pub fn served_as<'a>(&'a self, plant: Option<&'a str>) -> &'a str {
        plant.filter(|_| self.name == DEFAULT_NAME).unwrap_or(&self.name)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            folder: PathBuf::new(),
            keep_days: 90,
            keep_size: Size(1 << 30),
            operators: Vec::new(),
            viewers: Vec::new(),
            shelve_max: DAY,
            connect_within: DurNs::from_secs(30),
            notify: Vec::new(),
            areas: Vec::new(),
            alarms: Vec::new(),
        }
    }
}

impl Spec {
    /// The name of its channel, without the protocol.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(&self.channel)
    }
}

impl Config {
    /// Path of an alarm in the tree.
    #[must_use]
    pub fn path(&self, spec: &Spec) -> String {
        format!(
            "/{}",
            joined([self.name.as_str()].into_iter().chain(spec.area.iter().map(String::as_str)).chain([spec.name()]))
        )
    }
}

/// Joins names with `/`. As in Phoebus, a `/` within a name is written `\\/`.
pub(crate) fn joined(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    names.into_iter().map(|name| name.as_ref().replace('/', "\\/")).collect::<Vec<_>>().join("/")
}

/// Splits a path into names.
pub(crate) fn split(path: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, names.last_mut()) {
            ('\\', Some(name)) if letters.next_if_eq(&'/').is_some() => name.push('/'),
            ('/', _) => names.push(String::new()),
            (letter, Some(name)) => name.push(letter),
            (_, None) => {}
        }
    }
    names
}

/// Parses an alarm file, or the equivalent tables of a plant file. Returns the configuration, unless there is an error, and all
/// findings. Other tables of a plant file are ignored. A plant file needs no `[[alarm]]`, because its processes are alarms too.
#[must_use]
pub fn read(text: &str) -> (Option<Config>, Vec<Diagnostic>) {
    read_of(text, false)
}

/// Parses the tables that a plant passes to its alarm server: as in an alarm file, but `[[alarm]]` is optional.
#[must_use]
pub fn read_told(text: &str) -> (Option<Config>, Vec<Diagnostic>) {
    read_of(text, true)
}

/// Checks alarms defined in a plant file. No findings if the text is not TOML, or refers to an alarm file.
#[must_use]
pub fn check_plant(joined: &Joined) -> Vec<Diagnostic> {
    let text = joined.text();
    let (root, errors) = DeTable::parse_recoverable(text);
    let alarms = root.get_ref().get("alarms").and_then(|alarms| alarms.get_ref().as_table());
    match alarms {
        Some(alarms) if errors.is_empty() && alarms.get("folder").is_some() && alarms.get("file").is_none() => {
            read_into(Diagnostics::of(joined), text, false).1
        }
        _ => Vec::new(),
    }
}

fn read_of(text: &str, is_told: bool) -> (Option<Config>, Vec<Diagnostic>) {
    read_into(Diagnostics::new(text), text, is_told)
}

fn read_into<'a>(mut found: Diagnostics<'a>, text: &'a str, is_told: bool) -> (Option<Config>, Vec<Diagnostic>) {
    if text.len() > TEXT_BYTES_MAX {
        found.error(
            0..0,
            format!("the file has {} bytes", text.len()),
            format!("at most {TEXT_BYTES_MAX}"),
            "split it",
        );
        return (None, found.finish());
    }
    let sound = found.sound(text);
    let (root, _) = DeTable::parse_recoverable(&sound);
    let root = root.get_ref();
    const KNOWN: [&str; 3] = ["alarms", "area", "alarm"];
    let is_plants = root.get("plant").is_some();
    for (key, _) in root.iter().filter(|(key, _)| !is_plants && !KNOWN.contains(&&**key.get_ref())) {
        let message = format!("unknown table `{}`", table::clipped(key.get_ref()));
        found.error(key.span(), message, "[alarms], [[area]], [[alarm]]", "remove it");
    }
    let mut config = match tables(root, "alarms", false, &mut found).into_iter().next() {
        Some((table, span)) if is_plants => {
            // The other keys belong to the process.
            let is_ours = |key: &str| IN_PLANT.keys.iter().any(|known| known.name == key);
            let own = table.iter().filter(|(key, _)| is_ours(key.get_ref()));
            let own: DeTable<'_> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
            alarms(&Section::open(&own, span, &IN_PLANT, "[alarms]", &mut found), "tree", &mut found)
        }
        Some((table, span)) => alarms(&Section::open(table, span, &ALARMS, "[alarms]", &mut found), "name", &mut found),
        None => {
            found.error(0..0, "`[alarms]` is missing", "[alarms]", "add [alarms] with `folder`");
            Config::default()
        }
    };
    for (table, span) in tables(root, "area", true, &mut found) {
        let section = Section::open(table, span, &AREA, "[[area]]", &mut found);
        if section.value("path").is_none() {
            section.missing("path", &mut found);
        }
        let (path, help) = (names(&section, "path", &mut found), help(&section, &mut found));
        config.areas.push(Area { path, help });
    }
    let mut channels = HashSet::new();
    for (table, span) in tables(root, "alarm", true, &mut found) {
        let section = Section::open(table, span, &ALARM, "[[alarm]]", &mut found);
        alarm(&section, &mut config, &mut channels, &mut found);
    }
    if config.alarms.is_empty() && !is_plants && !is_told {
        found.error(0..0, "the file has no alarm", "[[alarm]]", "add [[alarm]] with `channels`");
    }
    let found = found.finish();
    let is_good = found.iter().all(|finding| finding.severity != Severity::Error);
    (is_good.then_some(config), found)
}

/// `called` is the key with the set's name.
fn alarms(section: &Section<'_>, called: &str, found: &mut Diagnostics<'_>) -> Config {
    let mut config = Config::default();
    if let Some((name, span)) = section.words(called, found) {
        if !is_name(name) {
            found.error(span, format!("{:?} is not a valid name", table::clipped(name)), name_expected(), "");
        }
        config.name = name.to_owned();
    }
    match section.words("folder", found) {
        Some((folder, _)) => config.folder = folder.into(),
        None if section.value("folder").is_none() => section.missing("folder", found),
        None => {}
    }
    if let Some((days, _)) = section.number("keep_days", 1, 36_500, found) {
        config.keep_days = days as u32;
    }
    if let Some((size, span)) = section.parsed::<Size>("keep_size", found) {
        if size < KEEP_SIZE_MIN {
            found.error(span, format!("`keep_size` cannot be {size}"), format!("at least {KEEP_SIZE_MIN}"), "");
        }
        config.keep_size = size;
    }
    let mut users = |key: &str| -> Vec<String> {
        section.texts(key, found).unwrap_or_default().into_iter().map(|(user, _)| user.to_owned()).collect()
    };
    (config.operators, config.viewers) = (users("operators"), users("viewers"));
    let month = DurNs::from_secs(30 * 86_400);
    if let Some((time, _)) = section.time("shelve_max", DurNs::from_secs(1), month, found) {
        config.shelve_max = time;
    }
    if let Some((time, _)) = section.time("connect_within", DurNs::from_secs(1), DurNs::from_secs(3600), found) {
        config.connect_within = time;
    }
    config.notify = destination::read(section, found);
    config
}

fn alarm(section: &Section<'_>, config: &mut Config, channels: &mut HashSet<String>, found: &mut Diagnostics<'_>) {
    let mut spec = Spec {
        area: names(section, "area", found),
        description: section.text("description", found).map_or(String::new(), |(text, _)| text.to_owned()),
        enabled: section.flag("enabled", found).unwrap_or(true),
        rules: rules(section, found),
        help: help(section, found),
        ..Spec::default()
    };
    if let Some((text, span)) = section.words("filter", found) {
        match Filter::parse(text) {
            Ok(filter) => spec.filter = Some(filter),
            Err(why @ FilterError::Unsupported { .. }) => found.warning(
                span,
                format!("`filter` is stored but not evaluated, so the alarm is never suppressed: {why}"),
                "evaluate the rest in a record, and use its channel here",
            ),
            Err(why) => found.error(
                span,
                format!("`filter` cannot be used: {why}"),
                "a formula such as \"'RF:POWER' > 10\"",
                "",
            ),
        }
        spec.filter_text = text.to_owned();
    }
    match section.words("phoebus_filter", found) {
        Some((_, span)) if !spec.filter_text.is_empty() => {
            found.error(span, "both `filter` and `phoebus_filter`", "one of them", "remove `phoebus_filter`");
        }
        Some((text, span)) => {
            found.warning(
                span,
                "`phoebus_filter` is stored but not evaluated, so the alarm is never suppressed",
                "write its formula as `filter`",
            );
            spec.filter_text = text.to_owned();
        }
        None => {}
    }
    let Some(given) = section.texts("channels", found) else {
        if section.value("channels").is_none() {
            section.missing("channels", found);
        }
        return;
    };
    for (channel, span) in given {
        if !is_name(name_of(channel)) {
            found.error(span, format!("{:?} is not a channel name", table::clipped(channel)), name_expected(), "");
        } else if !channels.insert(name_of(channel).to_owned()) {
            found.error(span, format!("`{channel}` is named twice"), "list each channel once", "remove one");
        } else {
            config.alarms.push(Spec { channel: channel.to_owned(), ..spec.clone() });
        }
    }
}

fn rules(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Rules {
    let mut rules = Rules::default();
    if let Some(flag) = section.flag("latching", found) {
        rules.latching = flag;
    }
    if let Some(flag) = section.flag("annunciating", found) {
        rules.annunciating = flag;
    }
    let mut time = |name: &str, most, to: &mut DurNs| {
        if let Some((time, _)) = section.time(name, DurNs(0), most, found) {
            *to = time;
        }
    };
    time("delay", DAY, &mut rules.delay);
    time("off_delay", DAY, &mut rules.off_delay);
    time("realarm", DurNs(DAY.0 * 30), &mut rules.realarm);
    if let Some((count, span)) = section.number("count", 0, 1000, found) {
        rules.count = count as u32;
        if count > 0 && rules.delay.0 == 0 {
            found.error(span, "`count` needs `delay`, which is missing", "a `delay`", "add `delay = \"60s\"`");
        }
    }
    if let Some(value) = section.value("deadband") {
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match number.filter(|number| number.is_finite() && *number >= 0.0) {
            Some(number) => rules.deadband = number,
            None => section.wrong("deadband", value, "a number that is not negative", found),
        }
    }
    rules
}

/// Parses names separated by `/`.
fn names(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Vec<String> {
    let Some((path, span)) = section.words(name, found) else { return Vec::new() };
    let names = split(path);
    if names.len() > DEPTH_MAX || names.iter().any(|name| !is_name(name)) {
        let message = format!("`{name}` cannot be {:?}", table::clipped(path));
        found.error(
            span,
            message,
            format!("at most {DEPTH_MAX} names with / between them"),
            "for example \"RF/Cavity\"",
        );
    }
    names
}

/// The name of a channel without `pva://`.
pub(crate) fn name_of(channel: &str) -> &str {
    channel.strip_prefix(PVACCESS).unwrap_or(channel)
}

/// Whether a text is a valid name of an area or channel, which is a part of a path.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.trim() == name
        // Before a `/`, it would look like an escaped slash.
        && !name.ends_with('\\')
        && !name.chars().any(char::is_control)
}

fn name_expected() -> String {
    format!("1 to {NAME_BYTES_MAX} bytes without control characters, blanks at its ends and `\\\\` at its end")
}

fn help(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Help {
    let mut guides = |name: &str| -> Vec<Guide> {
        actions(section, name, found)
            .into_iter()
            .map(|Action { title, details, .. }| Guide { title, details })
            .collect()
    };
    let (guidance, displays, commands) = (guides("guidance"), guides("displays"), guides("commands"));
    Help { guidance, displays, commands, actions: actions(section, "actions", found) }
}

fn actions(section: &Section<'_>, name: &str, found: &mut Diagnostics<'_>) -> Vec<Action> {
    let Some(value) = section.value(name) else { return Vec::new() };
    let DeValue::Array(items) = value.get_ref() else {
        section.wrong(name, value, "a list of tables", found);
        return Vec::new();
    };
    let mut actions = Vec::new();
    for item in items.iter() {
        let DeValue::Table(table) = item.get_ref() else {
            section.wrong(name, item, "a table such as { title = \"…\", details = \"…\" }", found);
            continue;
        };
        let one = Section::open(table, item.span(), &GUIDE, name, found);
        let text = |key: &str, found: &mut Diagnostics<'_>| {
            one.text(key, found).map_or(String::new(), |(text, _)| text.to_owned())
        };
        actions.push(Action {
            title: text("title", found),
            details: text("details", found),
            delay: one.number("delay", 0, 86_400, found).map_or(0, |(delay, _)| delay as u32),
        });
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_defines_the_alarms() {
        let text = r#"
[alarms]
name = "ring"
folder = "/a"
operators = ["alice"]
[[area]]
path = "RF"
guidance = [{ title = "Call", details = "4711" }]
[[alarm]]
channels = ["A", "B"]
area = "RF/Cavity"
delay = "15s"
count = 3
deadband = 0.5
filter = "'P' > 10"
actions = [{ title = "m", details = "mailto:a@b.c", delay = 10 }]
[[alarm]]
channels = ["C"]
latching = false
"#;
        let (config, found) = read(text);
        assert!(found.is_empty(), "{found:?}");
        let config = config.unwrap();
        let paths: Vec<String> = config.alarms.iter().map(|spec| config.path(spec)).collect();
        assert_eq!(paths, ["/ring/RF/Cavity/A", "/ring/RF/Cavity/B", "/ring/C"]);
        let (first, last) = (&config.alarms[0], &config.alarms[2]);
        assert_eq!((first.rules.delay, first.rules.count, first.rules.latching), (DurNs::from_secs(15), 3, true));
        assert_eq!(first.filter.as_ref().unwrap().channels(), ["P"]);
        assert_eq!(first.help.actions, [Action { title: "m".into(), details: "mailto:a@b.c".into(), delay: 10 }]);
        assert!(!last.rules.latching && last.help == Help::default());
        assert_eq!(config.areas[0].help.guidance[0].details, "4711");
    }

    #[test]
    fn a_plant_file_defines_alarms_in_its_tables() {
        let plant = "[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\n[alarms]\nname = \"the-process\"\nnice = 5\ntree = \"ring\"\nfolder = \"j\"\n";
        let rows = "[[alarm]]\nchannels = [\"A\"]\n[[alarm.guidance]]\ntitle = \"Call\"\n";
        let (config, found) = read(&format!("{plant}{rows}"));
        assert!(found.is_empty(), "{found:?}");
        let config = config.unwrap();
        assert_eq!((config.name.as_str(), config.path(&config.alarms[0]).as_str()), ("ring", "/ring/A"));
        assert_eq!(config.alarms[0].help.guidance[0].title, "Call");
        assert!(read(plant).0.is_some(), "its processes are alarms");
        let told = "[alarms]\nname = \"ring\"\nfolder = \"j\"\n";
        assert!(read_told(told).0.is_some() && read(told).0.is_none());

        let lines =
            |text: &str| check_plant(&Joined::single("", text)).iter().map(|finding| finding.line).collect::<Vec<_>>();
        let wrong = "[[alarm]]\nchannels = [\"B\"]\ncount = 2\ntiles = 1";
        assert_eq!(lines(&format!("{plant}{wrong}")), [12, 13]);
        assert_eq!(lines(&format!("{plant}keep_days = 0\n[[alarm]]\n")), [10, 11]);
        assert!(lines("[plant]\n[alarms]\nfile = \"a\"\n").is_empty());
        assert!(lines("[plant").is_empty());
    }

    #[test]
    fn every_finding_is_reported_at_once_with_its_line() {
        let text = "[alarms]\nname = \" a\"\n[[alarm]]\nchannels = [\"A\", \"A\", \" x\"]\ncount = 2\nfilter = \"1 +\"\ndeadband = -1\n[[alarm]]\nlatchin = true\n[other]\n";
        let (config, found) = read(text);
        assert!(config.is_none());
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 4, 4, 5, 6, 7, 8, 9, 10], "{found:?}");
    }
}
