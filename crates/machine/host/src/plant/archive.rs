//! Reading `[archive]` and `[[signal]]`: what is logged, where and how safely. In a plant the logger is a process whose
//! command line holds these tables as they stand in the file; beside a plant a file of its own has nothing else.

use super::as_written::as_written;
use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyWhen};
use super::process::{self, Made, Read};
use base::{Cluster, DurNs, Size};
use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use table::{Diagnostic, Diagnostics, Section, Severity, clipped, tables};
use toml::de::{DeTable, DeValue};

/// Most bytes of a file with these tables alone.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Longest time after which a cluster forgets: what Cassandra takes, 20 years.
const TTL_MAX: DurNs = DurNs::from_secs(7_300 * 86_400);
/// Most bytes of a signal's name.
const NAME_BYTES_MAX: usize = 1_024;

/// What `tahti archive serve` prints once it logs.
const LOGS: &str = "tahti archive: logs ";
/// How long that may take: what is in the archive already is looked at.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(60);

const OWN: [Key; 11] = [
    key(
        "folder",
        r#""/var/lib/tahti/archive""#,
        "path",
        "",
        "Where the archive is; it is made where it does not exist.",
    ),
    key(
        "sync",
        r#""200ms""#,
        "time, 1ms to 1min",
        "`200ms`",
        "Within what time samples are safe on the disk: what a power cut costs at most.",
    ),
    key("segment_size", r#""16MiB""#, "size, 64KiB to 1GiB", "`16MiB`", "Bytes from which on a new segment is begun."),
    key("segment_age", r#""1h""#, "time, 1s to 24h", "`1h`", "Time after which a new segment is begun."),
    key("total_max", r#""20GiB""#, "size", "none", "Most bytes of all files."),
    key("keep_free", r#""1GiB""#, "size", "`0B`", "Bytes of the disk that are left free."),
    key(
        "when_full",
        r#""stop""#,
        "`remove-oldest` or `stop`",
        "`remove-oldest`",
        "What is done when there is no room: the oldest file goes, or nothing is written until there is room again, and a gap tells how many samples are missing.",
    ),
    key(
        "pack",
        r#""compact""#,
        "`parquet` or `compact`",
        "`parquet`",
        "What closed segments become: Parquet files, which DuckDB, pandas and polars read as they lie in the folder, or packs of the archive's own form, which are smaller.",
    ),
    key(
        "engine",
        r#""cassandra://db1,db2/plant?credentials=/etc/tahti/cassandra""#,
        "`files` or `cassandra://HOST[:PORT],…/KEYSPACE[?credentials=FILE]`",
        "`files`",
        "Where samples go from the folder, which they wait in while the cluster is away. Needs a build with the feature `cassandra`.",
    ),
    key(
        "replication",
        "3",
        "number, 1 to 9",
        "1",
        "How many nodes of each data centre keep a sample; counts when the keyspace is made. Only with a cluster.",
    ),
    key(
        "ttl",
        r#""8760h""#,
        "time, 1h to 175200h",
        "never",
        "After what time the cluster forgets samples. Only with a cluster.",
    ),
];

/// What `engine` is where samples stay in the folder.
const FILES: &str = "files";

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 1] = with_process(&OWN, &["command"]);

/// `[archive]`, as the documentation shows it.
pub const ARCHIVE: Table = Table {
    header: "[archive]",
    doc: "Where samples are kept, and how safely (see docs/operate.md). In a plant the logger is a process: every key of `[[process]]` but \
          `command` holds here too.",
    keys: &OWN,
};

/// In a plant.
const MEMBER: Table = Table { header: "[archive]", doc: "", keys: &SHAPE };

/// `[[signal]]`, as the documentation shows it.
pub const SIGNAL: Table = Table {
    header: "[[signal]]",
    doc: "What is archived alike. Channel Access servers are found by `EPICS_CA_ADDR_LIST` and its kin, as by all clients.",
    keys: &[
        key("names", r#"["RF:TEMP", "RF:GRAD"]"#, "list of names", "none", "Variables of Channel Access servers."),
        key(
            "variables",
            r#"["llrf/*", "sr-values/sr_now_rf/voltage"]"#,
            "list of `PAGE/NAME`, the name with `*` and `?`",
            "none",
            "Exported variables of processes of this machine: loops, frames, polls. Each sample that was written is kept, with its pulse number.",
        ),
        key(
            "loops",
            r#"["llrf/*", "llrf/poller/p99"]"#,
            "list of `PLANT/PATTERN`, the pattern with `*` and `?`",
            "none",
            "How late the loops of a plant's processes woke up in each second: `PROCESS/count`, `p50`, `p99`, `p999`, `max`, `misses`, `histogram`; what results were worth that have a `deadline`: `worth`, `late`.",
        ),
        key(
            "frames",
            r#"["llrf/*", "llrf/fast/overruns"]"#,
            "list of `PLANT/PATTERN`, the pattern with `*` and `?`",
            "none",
            "How a plant's frames did in each second: `FRAME/minors`, `lost`, `overruns`, `underruns`, `absences`, how late minors began (`late-p99` and such), the dispatcher's work (`work-…`), and of each activity `FRAME/ACTIVITY/calls`, its faults and its own work.",
        ),
        key(
            "messages",
            r#"["main/put/sr_*"]"#,
            "list of `SERVER/VERBS/OBJECTS`, verbs and objects with `*` and `?`",
            "none",
            "What passed a message server, as its log and `tahti msg watch` have it: a text for each request.",
        ),
        key(
            "alarms",
            r#"["llrf/*"]"#,
            "list of `NAME/PATTERN`, the pattern with `*` and `?`",
            "none",
            "Alarms of `[alarms]` of this name, by their path: `PATH/state` with severity and acknowledgement, `PATH/message`, `PATH/value`.",
        ),
        key(
            "deadband",
            "0.1",
            "number that is not negative",
            "0",
            "A value is kept where it differs from the last one kept by more than this, or its alarm does.",
        ),
        key(
            "scan",
            r#""1s""#,
            "time, 1ms to 24h",
            "every update is kept",
            "Only the newest value is kept, so often; not together with `deadband`.",
        ),
        key(
            "on_fault",
            r#""5s""#,
            "time, 1ms to 60s",
            "kept all the time",
            "Nothing is kept until something goes wrong, then every update of the time before: the process or server is gone, or an alarm of MAJOR or INVALID begins, such as a safe value that stands. Not together with `deadband` or `scan`.",
        ),
    ],
};

/// What is archived, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    /// The archive's folder.
    pub folder: PathBuf,
    /// Within what time samples are safe on the disk.
    pub sync: DurNs,
    /// Bytes from which on a new segment is begun.
    pub segment_size: Size,
    /// Time after which a new segment is begun.
    pub segment_age: DurNs,
    /// Most bytes of all files.
    pub total_max: Option<Size>,
    /// Bytes of the disk that are left free.
    pub keep_free: Size,
    /// Whether logging stops when there is no room, rather than that the oldest file goes.
    pub stops_when_full: bool,
    /// Whether packs are Parquet files.
    pub packs_as_parquet: bool,
    /// The cluster that samples go to; none where they stay in the folder.
    pub cluster: Option<Cluster>,
    /// What is archived.
    pub signals: Vec<Signal>,
}

/// Something that is archived.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// Where it comes from.
    pub source: Source,
    /// Its name; of all but Channel Access servers whom to ask, a slash and a pattern.
    pub name: String,
    /// Which values are kept.
    pub policy: Policy,
}

impl Signal {
    /// Page and pattern of exported variables.
    #[must_use]
    pub fn variables(&self) -> Option<(&str, &str)> {
        (self.source == Source::Variables).then(|| self.name.split_once('/'))?
    }

    /// The pattern of the names in the archive; `None` of a variable of a Channel Access server, which is its name.
    fn archived_as(&self) -> Option<String> {
        let kind = match self.source {
            Source::ChannelAccess => return None,
            Source::Variables => return Some(self.name.clone()),
            Source::Loops => "loops",
            Source::Frames => "frames",
            Source::Messages => "messages",
            Source::Alarms => "alarms",
        };
        Some(format!("{kind}/{}", self.name))
    }

    /// Whom to ask: the plant, message server or alarms in front of the first slash; the name itself where there is none.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(owner, _)| owner)
    }
}

/// Where something comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A Channel Access server.
    ChannelAccess,
    /// Memory that a process of this machine shares.
    Variables,
    /// Wake-up latency of the loops that a supervisor looks after.
    Loops,
    /// Statistics of frames.
    Frames,
    /// What passes a message server.
    Messages,
    /// Alarms of an alarm process.
    Alarms,
}

/// A source as `[[signal]]` names it.
struct Form {
    key: &'static str,
    source: Source,
    /// What a name that is not of its form is no name of, and the form; empty where any name will do.
    what: &'static str,
    form: &'static str,
    /// Parts of the form, with slashes between them.
    parts: usize,
}

const fn form(key: &'static str, source: Source, what: &'static str, form: &'static str, parts: usize) -> Form {
    Form { key, source, what, form, parts }
}

const FORMS: [Form; 6] = [
    form("names", Source::ChannelAccess, "variable", "", 1),
    form("variables", Source::Variables, "exported variable", "PAGE/NAME, such as llrf/*", 2),
    form("loops", Source::Loops, "loop of a plant", "PLANT/PATTERN, such as llrf/*/p99", 2),
    form("frames", Source::Frames, "frame of a plant", "PLANT/PATTERN, such as llrf/*/overruns", 2),
    form("messages", Source::Messages, "message of a server", "SERVER/VERBS/OBJECTS, such as main/put/*", 3),
    form("alarms", Source::Alarms, "alarm", "NAME/PATTERN, such as llrf/*", 2),
];

impl Form {
    /// Whether a name has all parts; whom to ask is one, and no pattern.
    fn fits(&self, name: &str) -> bool {
        let parts: Vec<&str> = name.splitn(self.parts, '/').collect();
        let is_whole = parts.len() == self.parts && parts.iter().all(|part| !part.is_empty());
        self.parts == 1 || is_whole && !parts[0].contains(['*', '?'])
    }
}

/// Which values are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Those that differ from the last one kept by more than the deadband, or in their alarm; all with a deadband of 0.
    Monitor {
        /// In the variable's units.
        deadband: f64,
    },
    /// The newest, so often.
    Scan {
        /// How often.
        period: DurNs,
    },
    /// All of a time before something goes wrong.
    OnFault {
        /// How long.
        before: DurNs,
    },
}

/// Reads a file that has these tables alone: what it says, unless a finding is an error, and all findings.
#[must_use]
pub fn read(text: &str) -> (Option<Archive>, Vec<Diagnostic>) {
    let mut found = Diagnostics::new(text);
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the file has {} bytes", text.len());
        found.error(0..0, message, format!("at most {TEXT_BYTES_MAX}"), "split it");
        return (None, found.finish());
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        found.error(error.span().unwrap_or(0..0), error.message().trim(), "TOML", "see https://toml.io");
    }
    let root = root.get_ref();
    for (key, _) in root.iter().filter(|(key, _)| !["archive", "signal"].contains(&&**key.get_ref())) {
        let message = format!("unknown table `{}`", clipped(key.get_ref()));
        found.error(key.span(), message, "[archive], [[signal]]", "remove it");
    }
    let archive = match tables(root, "archive", false, &mut found).into_iter().next() {
        Some((table, span)) => place(&Section::open(table, span, &ARCHIVE, "[archive]", &mut found), &mut found),
        None => {
            found.error(0..0, "`[archive]` is missing", "[archive]", "add [archive] with `folder`");
            None
        }
    };
    let signals = signals(root, 0..0, &mut found);
    let found = found.finish();
    let is_good = found.iter().all(|finding| finding.severity != Severity::Error);
    (archive.map(|archive| Archive { signals, ..archive }).filter(|_| is_good), found)
}

/// Reads the archive of a plant as the process that it is; `None` where the plant has none.
pub(crate) fn member(root: &DeTable<'_>, text: &str, has_shield: bool, found: &mut Diagnostics<'_>) -> Option<Read> {
    let Some((table, span)) = tables(root, "archive", false, found).into_iter().next() else {
        if let Some((key, _)) = root.iter().find(|(key, _)| *key.get_ref() == "signal") {
            let remedy = "add `[archive]` with name and folder";
            found.error(key.span(), "[[signal]] stands in a plant without an archive", "[archive]", remedy);
        }
        return None;
    };
    let section = Section::open(table, span, &MEMBER, "[archive]", found);
    // Looked at here so that nothing wrong is found only when the logger starts.
    place(&section, found);
    signals(root, section.range(), found);
    let mut command: Vec<String> = ["tahti", "archive", "serve"].map(str::to_owned).into();
    let own = |name: &str| OWN.iter().any(|key| key.name == name).then(|| name.to_owned());
    command.extend(["--table".to_owned(), as_written(ARCHIVE.header, table, text, own)]);
    for (table, _) in tables(root, "signal", true, found) {
        command.extend(["--table".to_owned(), as_written(SIGNAL.header, table, text, |name| Some(name.to_owned()))]);
    }
    let made = Made { command, has_own_priorities: false };
    let mut read = process::read(&section, "[archive]", has_shield, Some(made), found);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyWhen::Line(LOGS.to_owned()), within: BEGIN_WITHIN };
    }
    Some(read)
}

/// Where a plant's archive is, from the plant file's folder; `None` where it has none, or does not say.
pub(crate) fn folder(root: &DeTable<'_>) -> Option<PathBuf> {
    let table = root.get("archive")?.get_ref().as_table()?;
    let text = |key: &str| table.get(key)?.get_ref().as_str();
    // The logger finds it from the folder that it runs in.
    Some(text("dir").map(PathBuf::from).unwrap_or_default().join(text("folder")?))
}

/// Where samples are kept; without signals yet.
fn place(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Archive> {
    let mut archive = Archive {
        folder: PathBuf::new(),
        sync: DurNs::from_ms(200),
        segment_size: Size(16 << 20),
        segment_age: DurNs::from_secs(3_600),
        total_max: None,
        keep_free: Size(0),
        stops_when_full: false,
        packs_as_parquet: true,
        cluster: None,
        signals: Vec::new(),
    };
    let folder = section.words("folder", found);
    if section.value("folder").is_none() {
        section.missing("folder", found);
    }
    if let Some((sync, _)) = section.time("sync", DurNs::from_ms(1), DurNs::from_secs(60), found) {
        archive.sync = sync;
    }
    if let Some((age, _)) = section.time("segment_age", DurNs::from_secs(1), DurNs::from_secs(86_400), found) {
        archive.segment_age = age;
    }
    if let Some((size, span)) = section.parsed::<Size>("segment_size", found) {
        if !(64 << 10..=1 << 30).contains(&size.0) {
            found.error(span, format!("`segment_size` cannot be {size}"), "64KiB to 1GiB", "");
        }
        archive.segment_size = size;
    }
    archive.total_max = section.parsed::<Size>("total_max", found).map(|(size, span)| {
        let least = Size(archive.segment_size.0.saturating_mul(2));
        if size < least {
            found.error(span, format!("`total_max` cannot be {size}"), format!("{least} at least: two segments"), "");
        }
        size
    });
    if let Some((size, _)) = section.parsed::<Size>("keep_free", found) {
        archive.keep_free = size;
    }
    archive.stops_when_full = is_second("when_full", ["remove-oldest", "stop"], section, found);
    archive.packs_as_parquet = !is_second("pack", ["parquet", "compact"], section, found);
    archive.cluster = cluster(section, found);
    archive.folder = PathBuf::from(folder?.0);
    Some(archive)
}

/// Whether a key has the second of two words; the first one counts without it.
fn is_second(name: &str, words: [&str; 2], section: &Section<'_>, found: &mut Diagnostics<'_>) -> bool {
    let Some((word, span)) = section.words(name, found) else { return false };
    if !words.contains(&word) {
        found.error(span, format!("`{name}` cannot be {:?}", clipped(word)), words.join(", "), "");
    }
    word == words[1]
}

/// Where samples go from the folder; none where they stay there.
fn cluster(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Cluster> {
    let is_named = section.words("engine", found).is_some_and(|(word, _)| word != FILES);
    let cluster = if is_named { section.parsed::<Cluster>("engine", found) } else { None };
    let replication = section.number("replication", 1, 9, found);
    let ttl = section.time("ttl", DurNs::from_secs(3_600), TTL_MAX, found);
    let spans = replication.iter().map(|(_, span)| ("replication", span));
    for (name, span) in spans.chain(ttl.iter().map(|(_, span)| ("ttl", span))).filter(|_| !is_named) {
        let remedy = format!("name it in `engine`, or remove `{name}`");
        found.error(span.clone(), format!("`{name}` without a cluster"), "engine = \"cassandra://…\"", remedy);
    }
    let (mut cluster, _) = cluster?;
    cluster.replication = replication.map_or(cluster.replication, |(number, _)| number as u8);
    cluster.ttl = ttl.map(|(time, _)| time);
    Some(cluster)
}

/// All signals; `archive` is where it stands that there is none.
fn signals(root: &DeTable<'_>, archive: Range<usize>, found: &mut Diagnostics<'_>) -> Vec<Signal> {
    let (mut signals, mut spans, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let listed = tables(root, "signal", true, found);
    if listed.is_empty() {
        found.error(archive, "nothing is archived", "[[signal]]", "add [[signal]] with `names` or `variables`");
    }
    for (table, span) in listed {
        let section = Section::open(table, span, &SIGNAL, "[[signal]]", found);
        let Some(policy) = policy(&section, found) else { continue };
        if FORMS.iter().all(|form| section.value(form.key).is_none()) {
            section.missing("names", found);
        }
        for form in &FORMS {
            for (name, span) in section.texts(form.key, found).unwrap_or_default() {
                if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
                    let expected = format!("1 to {NAME_BYTES_MAX} bytes, no control characters");
                    found.error(span, format!("{:?} is no variable's name", clipped(name)), expected, "");
                } else if !form.fits(name) {
                    let message = format!("{:?} names no {}", clipped(name), form.what);
                    found.error(span, message, form.form, "");
                } else if !names.insert((form.source, name.to_owned())) {
                    found.error(span, format!("`{name}` is named twice"), "each variable once", "remove one");
                } else {
                    signals.push(Signal { source: form.source, name: name.to_owned(), policy });
                    spans.push(span);
                }
            }
        }
    }
    named_twice(&spans, &signals, found);
    signals
}

/// Finds variables of Channel Access servers that other sources give under the same name: they would be one signal.
fn named_twice(spans: &[Range<usize>], signals: &[Signal], found: &mut Diagnostics<'_>) {
    let others: Vec<(&Signal, String)> =
        signals.iter().filter_map(|other| Some((other, other.archived_as()?))).collect();
    for (signal, span) in signals.iter().zip(spans).filter(|(signal, _)| signal.source == Source::ChannelAccess) {
        let is_same = |(_, pattern): &&(&Signal, String)| *pattern == signal.name || base::glob(pattern, &signal.name);
        if let Some((other, _)) = others.iter().find(is_same) {
            let message = format!("`{}` would be archived as the signal that `{}` gives", signal.name, other.name);
            found.error(span.clone(), message, "each signal from one source", "remove one");
        }
    }
}

fn policy(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Policy> {
    let scan = section.time("scan", DurNs::from_ms(1), DurNs::from_secs(86_400), found);
    let deadband = section.value("deadband").and_then(|value| {
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        if number.is_none_or(|number| !number.is_finite() || number < 0.0) {
            section.wrong("deadband", value, "a number that is not negative", found);
        }
        number
    });
    let fault = section.time("on_fault", DurNs::from_ms(1), DurNs::from_secs(60), found);
    match (scan, deadband, fault) {
        (Some((_, span)), Some(_), _) => {
            found.error(span, "`scan` and `deadband` stand together", "one of them", "remove one");
            None
        }
        (Some(_), _, Some((_, span))) | (_, Some(_), Some((_, span))) => {
            found.error(span, "`on_fault` stands beside `scan` or `deadband`", "one of them", "remove one");
            None
        }
        (Some((period, _)), None, None) => Some(Policy::Scan { period }),
        (None, None, Some((before, _))) => Some(Policy::OnFault { before }),
        (None, deadband, None) => Some(Policy::Monitor { deadband: deadband.unwrap_or(0.0) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_archived() {
        let text = "[archive]\nfolder = \"/a\"\nsync = \"1s\"\nwhen_full = \"stop\"\npack = \"parquet\"\n[[signal]]\nnames = [\"A\", \"B\"]\ndeadband = 0.5\n[[signal]]\nnames = [\"C\"]\nscan = \"10s\"\n";
        let (archive, found) = read(text);
        assert!(found.is_empty(), "{found:?}");
        let archive = archive.unwrap();
        assert_eq!((archive.sync, archive.stops_when_full), (DurNs::from_secs(1), true));
        assert!(archive.packs_as_parquet && !read(&text.replace("parquet", "compact")).0.unwrap().packs_as_parquet);
        assert_eq!(read(&text.replace("parquet", "zip")).1.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5]);
        let (monitor, scan) = (Policy::Monitor { deadband: 0.5 }, Policy::Scan { period: DurNs::from_secs(10) });
        let wanted = |name: &str, policy| Signal { source: Source::ChannelAccess, name: name.into(), policy };
        assert_eq!(archive.signals, [wanted("A", monitor), wanted("B", monitor), wanted("C", scan)]);
    }

    #[test]
    fn every_finding_is_told_at_once_with_its_line() {
        let text = "[archive]\nsync = \"2h\"\ntotal_max = \"1KiB\"\nwhen_full = \"burn\"\n[[signal]]\nnames = [\"A\", \"A\", \"\"]\ndeadband = -1\n[[signal]]\nnames = [\"B\"]\nscan = \"1s\"\ndeadband = 1\n[other]\n";
        let (archive, found) = read(text);
        assert!(archive.is_none());
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 6, 6, 7, 10, 12], "{found:?}");
    }

    #[test]
    fn a_cluster_is_named_as_engine_and_what_is_said_of_none_is_refused() {
        let text = "[archive]\nfolder = \"/a\"\nengine = \"cassandra://db1/plant\"\nreplication = 3\nttl = \"8760h\"\n[[signal]]\nnames = [\"A\"]\n";
        let (archive, found) = read(text);
        let cluster = archive.unwrap_or_else(|| panic!("{found:?}")).cluster.unwrap();
        assert_eq!((cluster.to_string().as_str(), cluster.replication), ("cassandra://db1:9042/plant", 3));
        assert_eq!(cluster.ttl, Some(DurNs::from_secs(8_760 * 3_600)));
        let lines = |text: &str| read(text).1.iter().map(|finding| finding.line).collect::<Vec<_>>();
        assert_eq!(lines(&text.replace("cassandra://db1/plant", "files")), [4, 5]);
        assert_eq!(lines(&text.replace("cassandra://db1/plant", "mysql")), [3]);
        assert_eq!(lines(&text.replace("= 3", "= 0").replace("8760h", "1s")), [4, 5]);
    }

    #[test]
    fn variables_are_named_with_their_page_and_kept_on_a_fault() {
        let text = "[archive]\nfolder = \"/a\"\n[[signal]]\nvariables = [\"llrf/*\", \"A\"]\non_fault = \"5s\"\n[[signal]]\nnames = [\"llrf\"]\non_fault = \"5s\"\nscan = \"1s\"\n";
        let (_, found) = read(text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4, 8], "{found:?}");
        let (archive, found) = read(&text.replace(", \"A\"", "").replace("scan = \"1s\"\n", ""));
        let signals = archive.unwrap_or_else(|| panic!("{found:?}")).signals;
        assert_eq!((signals[0].variables(), signals[1].variables()), (Some(("llrf", "*")), None));
        assert_eq!(signals[0].policy, Policy::OnFault { before: DurNs::from_secs(5) });
    }

    #[test]
    fn every_source_has_its_form_and_whom_to_ask_is_no_pattern() {
        let text = "[archive]\nfolder = \"/a\"\n[[signal]]\nloops = [\"p/*\", \"p\"]\nframes = [\"*/a\"]\nmessages = [\"main/put\"]\nalarms = [\"p/\"]\n";
        let (_, found) = read(text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4, 5, 6, 7], "{found:?}");
        let good = text.replace(", \"p\"", "").replace("*/a", "p/*/lost").replace("main/put", "main/put/*");
        let (archive, found) = read(&good.replace("p/\"", "p/*\""));
        let signals = archive.unwrap_or_else(|| panic!("{found:?}")).signals;
        let sources: Vec<_> = signals.iter().map(|signal| (signal.source, signal.owner())).collect();
        let wanted = [(Source::Loops, "p"), (Source::Frames, "p"), (Source::Messages, "main"), (Source::Alarms, "p")];
        assert_eq!(sources, wanted);
    }

    #[test]
    fn a_variable_that_would_be_another_sources_signal_is_refused_with_its_line() {
        let text = "[archive]\nfolder = \"/a\"\n[[signal]]\nvariables = [\"llrf/a*\", \"llrf/amplitude\"]\nloops = [\"p/*\"]\n[[signal]]\nnames = [\n  \"llrf/amplitude\",\n  \"loops/p/x/p99\",\n  \"llrf/beam\",\n]\n";
        let (archive, found) = read(text);
        assert!(archive.is_none());
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [8, 9], "{found:?}");
        assert!(found[0].message.contains("`llrf/a*` gives"), "{found:?}");
    }

    const PLANT: &str = "[plant]\nname = \"p\"\n[archive]\nname = \"archive\"\nfolder = '''a \"b\"'''\nsync = \"1s\" # often\nrestart = { limit = 3 }\n[[signal]]\nnames = [\n  \"A\", # first\n  \"B\",\n]\n[[signal]]\nnames = [\"C\"]\nscan = \"10s\"\n";

    #[test]
    fn the_archive_of_a_plant_is_a_process_that_is_told_its_tables_as_they_stand_in_the_file() {
        let checked = super::super::check(PLANT, &super::super::Anywhere);
        assert!(checked.found.is_empty(), "{:?}", checked.found);
        let plant = checked.plant.unwrap();
        let process = plant.process("archive").unwrap();
        assert_eq!((process.restart.limit, process.cpus), (3, super::super::Cpus::Housekeeping));
        assert_eq!(process.command[..3], ["tahti", "archive", "serve"]);
        let told = process.command[3..].chunks(2).map(|pair| pair[1].as_str()).collect::<Vec<_>>().join("\n");
        let (archive, found) = read(&told);
        assert!(found.is_empty(), "{told}: {found:?}");
        let archive = archive.unwrap();
        assert_eq!((archive.folder, archive.sync), (PathBuf::from("a \"b\""), DurNs::from_secs(1)));
        let names: Vec<&str> = archive.signals.iter().map(|signal| signal.name.as_str()).collect();
        assert_eq!(names, ["A", "B", "C"]);
    }

    #[test]
    fn a_plant_is_refused_whose_archive_could_not_be_served() {
        let lines = |text: &str| -> Vec<usize> {
            super::super::check(text, &super::super::Anywhere).found.iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines(&PLANT.replace("1s", "1h")), [6]);
        assert_eq!(lines(&PLANT.replace("\"C\"", "\"A\"")), [14]);
        assert_eq!(lines("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = \"a\"\n[[signal]]\n"), [6]);
        assert_eq!(lines("[plant]\nname = \"p\"\n[archive]\nname = \"a\"\nfolder = \"a\"\n"), [3]);
    }
}
