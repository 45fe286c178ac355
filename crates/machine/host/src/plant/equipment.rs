//! Reads `[[equipment]]`. An equipment manager is a process whose command line is generated from the table.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyCondition};
use super::process::{self, GeneratedCommand, PlacedProcess};
use base::DurNs;
use std::ops::Range;
use table::{Diagnostics, Section};

/// Output of `tahti em serve` when it serves.
const SERVING: &str = " serves ";
/// Time limit for that output. The message server may start later.
const READY_WITHIN: DurNs = DurNs::from_secs(60);

const OWN: [Key; 4] = [
    key(
        "file",
        r#""magnets.toml""#,
        "file",
        "",
        "Table file of the manager ([equipment](../equipment.md)), relative to `dir`.",
    ),
    key("server", r#""main""#, "text", "`main`", "Message server to use."),
    key(
        "require_rt",
        "true",
        "true or false",
        "`false`",
        "Exit if the class, CPU or memory lock of its lane is unavailable.",
    ),
    key("ready", r#"{ line = "armed" }"#, "table, see *ready*", "it serves, within 60s", "As in `[[process]]`."),
];

/// `[[equipment]]`, for the documentation.
pub(crate) const EQUIPMENT: Table = Table {
    header: "[[equipment]]",
    doc: "An equipment manager ([equipment](../equipment.md)). It is a process: all keys of `[[process]]` except `command` are valid here. Names are \
          unique among all processes. Its table file sets the class of its real-time lane. After SIGHUP (`tahti signal`) it reads its tables again.",
    keys: &OWN,
};

pub(super) const READ: Table = Table { header: "[[equipment]]", doc: "", keys: &SHAPE };

// `command` is generated, and `ready` has a different default.
const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 2] = with_process(&OWN, &["command", "ready"]);

/// Reads an equipment manager as a process.
pub(crate) fn read(
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    called: &str,
    has_shield: bool,
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
    let section = Section::open(table, span, &READ, called, found);
    if section.value("file").is_none() {
        section.missing("file", found);
    }
    let placed = section.words("file", found).map(|(file, span)| (file.to_owned(), span));
    let file = placed.as_ref().map_or(String::new(), |(file, _)| file.clone());
    let server = section.words("server", found).map_or("main".to_owned(), |(server, _)| server.to_owned());
    let mut command: Vec<String> = ["tahti", "em", "serve"].map(str::to_owned).into();
    command.extend([file, "--server".to_owned(), server]);
    if section.flag("require_rt", found).unwrap_or(false) {
        command.push("--require-rt".into());
    }
    // The manager's file sets the class of its real-time lane. The file can be reloaded at any time.
    let made = GeneratedCommand { command, has_own_priorities: true };
    let mut read = process::read(&section, called, has_shield, Some(made), found);
    read.files.extend(placed);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(SERVING.to_owned()), within: READY_WITHIN };
    }
    read
}
