//! Reading `[alarms]`: who looks after the alarms is a process whose command line is made from what the table says.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyWhen};
use super::process::{self, Read};
use base::DurNs;
use std::ops::Range;
use table::{Diagnostics, Section};

/// What `tahti alarm serve` prints once it serves.
const SERVING: &str = " alarms at @";
/// How long that may take: it waits for the supervisor to tell of the processes.
const READY_WITHIN: DurNs = DurNs::from_secs(60);

const OWN: [Key; 2] = [
    key("file", r#""alarms.toml""#, "file", "", "The alarms (see docs/alarms.md), sought from `dir`."),
    key("ready", r#"{ line = "armed" }"#, "table, see *ready*", "it serves, within 60s", "As in `[[process]]`."),
];

/// `[alarms]`, as the documentation shows it.
pub(crate) const ALARMS: Table = Table {
    header: "[alarms]",
    doc: "Alarms (see docs/alarms.md): those of a file, and one for each process of the plant, which is in alarm where the process fails, is \
          restarted, runs away or misses deadlines. It is a process: every key of `[[process]]` but `command` holds here too.",
    keys: &OWN,
};

const READ: Table = Table { header: "[alarms]", doc: "", keys: &SHAPE };

// `command` is made, and `ready` has a default of its own.
const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 2] = with_process(&OWN, &["command", "ready"]);

/// Reads the alarms as the process that they are; `plant` is the plant's name.
pub(crate) fn read(
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    plant: &str,
    has_shield: bool,
    found: &mut Diagnostics<'_>,
) -> Read {
    let called = "[alarms]";
    let section = Section::open(table, span, &READ, called, found);
    if section.value("file").is_none() {
        section.missing("file", found);
    }
    let file = section.words("file", found).map_or(String::new(), |(file, _)| file.to_owned());
    let mut command: Vec<String> = ["tahti", "alarm", "serve"].map(str::to_owned).into();
    command.extend([file, "--plant".to_owned(), plant.to_owned()]);
    let mut read = process::read(&section, called, has_shield, Some((command, section.range())), found);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyWhen::Line(SERVING.to_owned()), within: READY_WITHIN };
    }
    read
}
