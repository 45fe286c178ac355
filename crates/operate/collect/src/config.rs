//! The file that says what is archived.

use crate::gate::Policy;
use base::{DurNs, Size};
use std::collections::HashSet;
use std::path::PathBuf;
use store::{Config, WhenFull};
use table::{Diagnostic, Diagnostics, Key, Section, Severity, Table, key, tables};
use toml::de::{DeTable, DeValue};

/// Most bytes of the file.
const TEXT_BYTES_MAX: usize = 16 << 20;

const ARCHIVE_KEYS: [Key; 7] = [
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
];

/// `[archive]`.
const ARCHIVE: Table =
    Table { header: "[archive]", doc: "Where samples are kept, and how safely.", keys: &ARCHIVE_KEYS };

const SIGNAL_KEYS: [Key; 3] = [
    key("names", r#"["RF:TEMP", "RF:GRAD"]"#, "list of names", "", "Variables of Channel Access servers."),
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
];

/// `[[signal]]`.
const SIGNAL: Table = Table {
    header: "[[signal]]",
    doc: "Variables that are archived alike. Servers are found by `EPICS_CA_ADDR_LIST` and its kin, as with all clients.",
    keys: &SIGNAL_KEYS,
};

/// The tables of the file, which are its documentation.
pub const DOCUMENT: [Table; 2] = [ARCHIVE, SIGNAL];

/// What is archived, where.
#[derive(Clone, Debug)]
pub struct Collect {
    /// The archive's folder.
    pub folder: PathBuf,
    /// How it is written.
    pub log: Config,
    /// The variables.
    pub signals: Vec<Wanted>,
}

/// A variable, and which of its values are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Which values.
    pub policy: Policy,
}

/// Reads the file: what it says, unless a finding is an error, and all findings.
#[must_use]
pub fn read(text: &str) -> (Option<Collect>, Vec<Diagnostic>) {
    let mut found = Diagnostics::new(text);
    if text.len() > TEXT_BYTES_MAX {
        found.error(
            0..0,
            format!("the file has {} bytes", text.len()),
            format!("at most {TEXT_BYTES_MAX}"),
            "split it",
        );
        return (None, found.finish());
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        found.error(error.span().unwrap_or(0..0), error.message().trim(), "TOML", "see https://toml.io");
    }
    let root = root.get_ref();
    for (key, _) in root.iter().filter(|(key, _)| !["archive", "signal"].contains(&&**key.get_ref())) {
        let message = format!("unknown table `{}`", table::clipped(key.get_ref()));
        found.error(key.span(), message, "[archive], [[signal]]", "remove it");
    }
    let archive = match tables(root, "archive", false, &mut found).into_iter().next() {
        Some((table, span)) => archive(&Section::open(table, span, &ARCHIVE, "[archive]", &mut found), &mut found),
        None => {
            found.error(0..0, "`[archive]` is missing", "[archive]", "add [archive] with `folder`");
            None
        }
    };
    let (mut signals, mut names) = (Vec::new(), HashSet::new());
    for (table, span) in tables(root, "signal", true, &mut found) {
        let section = Section::open(table, span, &SIGNAL, "[[signal]]", &mut found);
        signal(&section, &mut signals, &mut names, &mut found);
    }
    if signals.is_empty() {
        found.error(0..0, "no variable is named", "[[signal]]", "add [[signal]] with `names`");
    }
    let found = found.finish();
    let is_good = found.iter().all(|finding| finding.severity != Severity::Error);
    let collect = archive.map(|(folder, log)| Collect { folder, log, signals });
    (collect.filter(|_| is_good), found)
}

fn archive(section: &Section<'_>, found: &mut Diagnostics<'_>) -> Option<(PathBuf, Config)> {
    let mut config = Config::default();
    let folder = section.words("folder", found);
    if section.value("folder").is_none() {
        section.missing("folder", found);
    }
    let minute = DurNs::from_secs(60);
    if let Some((sync, _)) = section.time("sync", DurNs::from_ms(1), minute, found) {
        config.sync = sync;
    }
    if let Some((age, _)) = section.time("segment_age", DurNs::from_secs(1), DurNs::from_secs(86_400), found) {
        config.segment_age = age;
    }
    if let Some((size, span)) = section.parsed::<Size>("segment_size", found) {
        if !(64 << 10..=1 << 30).contains(&size.0) {
            found.error(span, format!("`segment_size` cannot be {size}"), "64KiB to 1GiB", "");
        }
        config.segment_size = size;
    }
    config.total_max = section.parsed::<Size>("total_max", found).map(|(size, span)| {
        let least = Size(config.segment_size.0.saturating_mul(2));
        if size < least {
            found.error(span, format!("`total_max` cannot be {size}"), format!("{least} at least: two segments"), "");
        }
        size
    });
    if let Some((size, _)) = section.parsed::<Size>("keep_free", found) {
        config.keep_free = size;
    }
    if let Some((word, span)) = section.words("when_full", found) {
        match word {
            "remove-oldest" => config.when_full = WhenFull::RemoveOldest,
            "stop" => config.when_full = WhenFull::Stop,
            other => {
                let message = format!("`when_full` cannot be {:?}", table::clipped(other));
                found.error(span, message, "remove-oldest, stop", "");
            }
        }
    }
    folder.map(|(folder, _)| (PathBuf::from(folder), config))
}

fn signal(section: &Section<'_>, signals: &mut Vec<Wanted>, names: &mut HashSet<String>, found: &mut Diagnostics<'_>) {
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
    let policy = match (scan, deadband) {
        (Some((_, span)), Some(_)) => {
            found.error(span, "`scan` and `deadband` stand together", "one of them", "remove one");
            return;
        }
        (Some((period, _)), None) => Policy::Scan { period },
        (None, deadband) => Policy::Monitor { deadband: deadband.unwrap_or(0.0) },
    };
    let Some(given) = section.texts("names", found) else {
        if section.value("names").is_none() {
            section.missing("names", found);
        }
        return;
    };
    for (name, span) in given {
        if name.is_empty() || name.len() > segment::rows::NAME_MAX || name.chars().any(char::is_control) {
            let expected = format!("1 to {} bytes, no control characters", segment::rows::NAME_MAX);
            found.error(span, format!("{:?} is no variable's name", table::clipped(name)), expected, "");
        } else if !names.insert(name.to_owned()) {
            found.error(span, format!("`{name}` is named twice"), "each variable once", "remove one");
        } else {
            signals.push(Wanted { name: name.to_owned(), policy });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_archived() {
        let text = "[archive]\nfolder = \"/a\"\nsync = \"1s\"\nwhen_full = \"stop\"\n[[signal]]\nnames = [\"A\", \"B\"]\ndeadband = 0.5\n[[signal]]\nnames = [\"C\"]\nscan = \"10s\"\n";
        let (collect, found) = read(text);
        assert!(found.is_empty(), "{found:?}");
        let collect = collect.unwrap();
        assert_eq!((collect.log.sync, collect.log.when_full), (DurNs::from_secs(1), WhenFull::Stop));
        let (monitor, scan) = (Policy::Monitor { deadband: 0.5 }, Policy::Scan { period: DurNs::from_secs(10) });
        let wanted = |name: &str, policy| Wanted { name: name.into(), policy };
        assert_eq!(collect.signals, [wanted("A", monitor), wanted("B", monitor), wanted("C", scan)]);
    }

    #[test]
    fn every_finding_is_told_at_once_with_its_line() {
        let text = "[archive]\nsync = \"2h\"\ntotal_max = \"1KiB\"\nwhen_full = \"burn\"\n[[signal]]\nnames = [\"A\", \"A\", \"\"]\ndeadband = -1\n[[signal]]\nnames = [\"B\"]\nscan = \"1s\"\ndeadband = 1\n[other]\n";
        let (collect, found) = read(text);
        assert!(collect.is_none());
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 6, 6, 7, 10, 12], "{found:?}");
    }
}
