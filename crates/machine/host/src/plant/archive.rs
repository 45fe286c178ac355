//! Reads `[archive]`: where and how safely samples are stored, and the `[[signal]]`s that are archived
//! ([`signal`](super::signal)).
//!
//! In a plant the logger is a process whose command line contains these tables as in the plant file. Without a plant, a
//! separate file contains only these tables.

use super::as_written::as_written;
use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyCondition};
use super::process::{self, GeneratedCommand, PlacedProcess};
use super::signal::signals;
pub use super::signal::{Policy, SIGNAL, Signal, Source};
use base::{Cluster, DurNs, Size};
use std::path::PathBuf;
use table::{Diagnostic, Diagnostics, Section, Severity, clipped, tables};
use toml::de::DeTable;

/// Maximum size in bytes of a file that contains only these tables.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Maximum time until a cluster deletes samples: the limit of Cassandra, 20 years.
const TTL_MAX: DurNs = DurNs::from_secs(7_300 * 86_400);

/// Output of `tahti archive serve` when it logs.
const LOGS: &str = "tahti archive: logs ";
/// Time limit for that output. The logger first reads the existing archive.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(60);

const OWN: [Key; 10] = [
    key("folder", r#""/var/lib/tahti/archive""#, "path", "", "Folder of the archive; created if missing."),
    key(
        "sync",
        r#""200ms""#,
        "time, 1ms to 1min",
        "`200ms`",
        "Maximum time until samples are safe on the disk. A power failure loses at most this much.",
    ),
    key("segment_size", r#""16MiB""#, "size, 64KiB to 1GiB", "`16MiB`", "Size at which a new segment starts."),
    key("segment_age", r#""1h""#, "time, 1s to 24h", "`1h`", "Age at which a new segment starts."),
    key("total_max", r#""20GiB""#, "size", "none", "Maximum size of all files."),
    key("keep_free", r#""1GiB""#, "size", "`0B`", "Space to leave free on the disk."),
    key(
        "when_full",
        r#""stop""#,
        "`remove-oldest` or `stop`",
        "`remove-oldest`",
        "Reaction to a full disk or archive. `remove-oldest`: delete the oldest file, unless other files have filled the disk. `stop`: write nothing \
         until space is free; a gap then records the number of missing samples.",
    ),
    key(
        "engine",
        r#""cassandra://db1,db2/plant?credentials=/etc/tahti/cassandra""#,
        "`files` or `cassandra://HOST[:PORT],…/KEYSPACE[?credentials=FILE]`",
        "`files`",
        "Storage engine. `files`: samples stay in the folder. With a cluster they are uploaded, and wait in the folder while the cluster is \
         unavailable. A cluster needs a build with `--features cassandra`.",
    ),
    key(
        "replication",
        "3",
        "number, 1 to 9",
        "1",
        "Number of nodes per data centre that store a sample. Used when the keyspace is created. Only with a cluster.",
    ),
    key(
        "ttl",
        r#""8760h""#,
        "time, 1h to 175200h",
        "never",
        "The cluster deletes samples older than this. Only with a cluster.",
    ),
];

/// Value of `engine` if samples stay in the folder.
const FILES: &str = "files";

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 1] = with_process(&OWN, &["command"]);

/// `[archive]`, for the documentation.
pub const ARCHIVE: Table = Table {
    header: "[archive]",
    doc: "Storage of samples ([archive](../archive.md)). In a plant the logger is a process: all keys of `[[process]]` except `command` are valid here.",
    keys: &OWN,
};

/// `[archive]` in a plant.
pub(super) const MEMBER: Table = Table { header: "[archive]", doc: "", keys: &SHAPE };

/// Signals to archive, and the place of the archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    /// The archive's folder.
    pub folder: PathBuf,
    /// Time within which samples are safe on the disk.
    pub sync: DurNs,
    /// Size in bytes at which a new segment begins.
    pub segment_size: Size,
    /// Age at which a new segment begins.
    pub segment_age: DurNs,
    /// Maximum size in bytes of all files.
    pub total_max: Option<Size>,
    /// Bytes of the disk that the archive leaves free.
    pub keep_free: Size,
    /// Whether logging stops when there is no room. If not, the oldest file is removed.
    pub stops_when_full: bool,
    /// The cluster that gets the samples; `None` if they stay in the folder.
    pub cluster: Option<Cluster>,
    /// The archived signals.
    pub signals: Vec<Signal>,
}

/// Reads a file that contains only these tables. Returns the archive, unless a finding is an error, and all findings.
#[must_use]
pub fn read(text: &str) -> (Option<Archive>, Vec<Diagnostic>) {
    let mut found = Diagnostics::new(text);
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the file has {} bytes", text.len());
        found.error(0..0, message, format!("at most {TEXT_BYTES_MAX}"), "split it");
        return (None, found.finish());
    }
    let sound = found.sound(text);
    let (root, _) = DeTable::parse_recoverable(&sound);
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

/// Reads the archive of a plant as a process; `None` if the plant has no archive.
pub(crate) fn member(
    root: &DeTable<'_>,
    text: &str,
    has_shield: bool,
    found: &mut Diagnostics<'_>,
) -> Option<PlacedProcess> {
    let Some((table, span)) = tables(root, "archive", false, found).into_iter().next() else {
        if let Some((key, _)) = root.iter().find(|(key, _)| *key.get_ref() == "signal") {
            let remedy = "add `[archive]` with name and folder";
            found.error(key.span(), "[[signal]] in a plant without an archive", "[archive]", remedy);
        }
        return None;
    };
    let section = Section::open(table, span, &MEMBER, "[archive]", found);
    // Checked here, so that errors are reported before the logger starts.
    place(&section, found);
    signals(root, section.range(), found);
    let mut command: Vec<String> = ["tahti", "archive", "serve"].map(str::to_owned).into();
    let own = |name: &str| OWN.iter().any(|key| key.name == name).then(|| name.to_owned());
    command.extend(["--table".to_owned(), as_written(ARCHIVE.header, table, text, own)]);
    for (table, _) in tables(root, "signal", true, found) {
        command.extend(["--table".to_owned(), as_written(SIGNAL.header, table, text, |name| Some(name.to_owned()))]);
    }
    let made = GeneratedCommand { command, has_own_priorities: false };
    let mut read = process::read(&section, "[archive]", has_shield, Some(made), found);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(LOGS.to_owned()), within: BEGIN_WITHIN };
    }
    Some(read)
}

/// Folder of a plant's archive, relative to the plant file's folder; `None` if the plant has no archive or the table
/// has no `folder`.
pub(crate) fn folder(root: &DeTable<'_>) -> Option<PathBuf> {
    let table = root.get("archive")?.get_ref().as_table()?;
    let text = |key: &str| table.get(key)?.get_ref().as_str();
    // The logger resolves `folder` against its working directory.
    Some(text("dir").map(PathBuf::from).unwrap_or_default().join(text("folder")?))
}

/// Reads the place of the archive, without its signals.
fn place(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<Archive> {
    let mut archive = Archive {
        folder: PathBuf::new(),
        sync: DurNs::from_ms(200),
        segment_size: Size(16 << 20),
        segment_age: DurNs::from_secs(3_600),
        total_max: None,
        keep_free: Size(0),
        stops_when_full: false,
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
            found.error(span, format!("`total_max` cannot be {size}"), format!("at least {least} (two segments)"), "");
        }
        size
    });
    if let Some((size, _)) = section.parsed::<Size>("keep_free", found) {
        archive.keep_free = size;
    }
    archive.stops_when_full = is_second("when_full", ["remove-oldest", "stop"], section, found);
    archive.cluster = cluster(section, found);
    archive.folder = PathBuf::from(folder?.0);
    Some(archive)
}

/// Whether a key has the second of two words. A missing key means the first.
fn is_second(name: &str, words: [&str; 2], section: &Section<'_>, found: &mut Diagnostics<'_>) -> bool {
    let Some((word, span)) = section.words(name, found) else { return false };
    if !words.contains(&word) {
        found.error(span, format!("`{name}` cannot be {:?}", clipped(word)), words.join(", "), "");
    }
    word == words[1]
}

/// The cluster that gets the samples; `None` if they stay in the folder.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_defines_the_archived_signals() {
        let text = "[archive]\nfolder = \"/a\"\nsync = \"1s\"\nwhen_full = \"stop\"\n[[signal]]\nnames = [\"A\", \"B\"]\ndeadband = 0.5\n[[signal]]\nnames = [\"C\"]\nscan = \"10s\"\n";
        let (archive, found) = read(text);
        assert!(found.is_empty(), "{found:?}");
        let archive = archive.unwrap();
        assert_eq!((archive.sync, archive.stops_when_full), (DurNs::from_secs(1), true));
        let (monitor, scan) = (Policy::Monitor { deadband: 0.5 }, Policy::Scan { period: DurNs::from_secs(10) });
        let wanted = |name: &str, policy| Signal { source: Source::ChannelAccess, name: name.into(), policy };
        assert_eq!(archive.signals, [wanted("A", monitor), wanted("B", monitor), wanted("C", scan)]);
    }

    #[test]
    fn a_name_selects_its_protocol_and_one_name_has_one_source() {
        let text = |names: &str| format!("[archive]\nfolder = \"/a\"\n[[signal]]\nnames = [{names}]\n");
        let (archive, found) = read(&text("\"A\", \"pva://B/c\", \"ca://D\""));
        assert!(found.is_empty(), "{found:?}");
        let signals: Vec<_> = archive.unwrap().signals.into_iter().map(|signal| (signal.source, signal.name)).collect();
        let expected = [(Source::ChannelAccess, "A"), (Source::PvAccess, "B/c"), (Source::ChannelAccess, "D")];
        assert_eq!(signals, expected.map(|(source, name)| (source, name.to_owned())));
        for names in ["\"A\", \"ca://A\"", "\"A\", \"pva://A\"", "\"pva://A\", \"pva://A\""] {
            assert_eq!(read(&text(names)).1.len(), 1, "{names}");
        }
    }

    #[test]
    fn every_finding_is_reported_at_once_with_its_line() {
        let text = "[archive]\nsync = \"2h\"\ntotal_max = \"1KiB\"\nwhen_full = \"burn\"\n[[signal]]\nnames = [\"A\", \"A\", \"\"]\ndeadband = -1\n[[signal]]\nnames = [\"B\"]\nscan = \"1s\"\ndeadband = 1\n[other]\n";
        let (archive, found) = read(text);
        assert!(archive.is_none());
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 6, 6, 7, 10, 12], "{found:?}");
    }

    #[test]
    fn a_cluster_is_configured_as_engine_and_its_keys_are_refused_without_one() {
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

    const PLANT: &str = "[plant]\nname = \"p\"\n[archive]\nname = \"archive\"\nfolder = '''a \"b\"'''\nsync = \"1s\" # often\nrestart = { limit = 3 }\n[[signal]]\nnames = [\n  \"A\", # first\n  \"B\",\n]\n[[signal]]\nnames = [\"C\"]\nscan = \"10s\"\n";

    #[test]
    fn the_archive_of_a_plant_is_a_process_that_receives_its_tables() {
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
    fn a_plant_whose_archive_cannot_be_served_is_refused() {
        let lines = |text: &str| -> Vec<usize> {
            super::super::check(text, &super::super::Anywhere).found.iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines(&PLANT.replace("1s", "1h")), [6]);
        assert_eq!(lines(&PLANT.replace("\"C\"", "\"A\"")), [14]);
        assert_eq!(lines("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = \"a\"\n[[signal]]\n"), [6]);
        assert_eq!(lines("[plant]\nname = \"p\"\n[archive]\nname = \"a\"\nfolder = \"a\"\n"), [3]);
    }
}
