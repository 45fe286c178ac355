//! Reads `[recorder]`. The flight recorder is a process whose command line is generated from the table.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyCondition};
use super::process::{self, GeneratedCommand, PlacedProcess};
use base::{CpuSet, DurNs, Size};
use std::ops::Range;
use table::{Diagnostics, Section};

/// Output of `tahti trace serve` when it records.
const RECORDS: &str = "tahti trace: records";
/// Time limit for that output. Enabling tracepoints waits for every CPU.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(30);

const OWN: [Key; 8] = [
    key("record", r#""2-3""#, "CPU list", "those of the shield, else all", "CPUs to record."),
    key(
        "watch",
        r#""scan-*""#,
        "name with `*` and `?`",
        "loops and real-time threads of the plant",
        "Names of the threads to watch, in any class (`ps -eLo pid,lwp,comm`).",
    ),
    key(
        "above",
        r#""200us""#,
        "time, 1us to 1s",
        "`200us`",
        "Explain wake-ups later than this, and store their windows.",
    ),
    key("cycle_above", r#""500us""#, "time, 1us to 1s", "none", "The same for cycles longer than this."),
    key("window_before", r#""2s""#, "time, 1ms to 60s", "`2s`", "Length of a window before its event."),
    key("window_after", r#""100ms""#, "time, 1ms to 10s", "`100ms`", "Length of a window after its event."),
    key("keep", "20", "number, 1 to 10000", "`20`", "Number of windows to keep; the oldest is deleted."),
    key("window_size", r#""4MiB""#, "size, 64KiB to 1GiB", "`4MiB`", "Size of a window per CPU."),
];

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 1] = with_process(&OWN, &["command"]);

/// `[recorder]`, for the documentation.
pub(crate) const RECORDER: Table = Table {
    header: "[recorder]",
    doc: "A flight recorder ([measuring](../measuring.md)). It records the kernel's activity on the real-time CPUs all the time, and names the cause of \
          each late wake-up of the watched threads. If it watches no thread for 30 s, the plant is *degraded*. It stores the window around a delay, a missed deadline, a fault that the supervisor detects, or a command. It is a \
          process: all keys of `[[process]]` except `command` are valid here. It needs root.",
    keys: &OWN,
};

pub(super) const READ: Table = Table { header: "[recorder]", doc: "", keys: &SHAPE };

/// Reads the recorder as a process. `plant` is the plant's name, `shield` contains its isolated CPUs.
pub(crate) fn read(
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    (plant, shield): (&str, Option<CpuSet>),
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
    let called = "[recorder]";
    let section = Section::open(table, span, &READ, called, found);
    let mut command: Vec<String> = ["tahti", "trace", "serve", "--plant", plant].map(str::to_owned).into();
    if let Some(cpus) = section.cpu_list("record", found).map(|(cpus, _)| cpus).or(shield) {
        command.push(format!("--cpus={cpus}"));
    }
    if let Some((pattern, _)) = section.words("watch", found) {
        command.extend(["--name".into(), pattern.to_owned()]);
    }
    let (least, most) = (DurNs::from_us(1), DurNs::from_secs(1));
    let millisecond = DurNs::from_ms(1);
    let mut time = |name: &str, word: &str, least, most| {
        if let Some((time, _)) = section.time(name, least, most, found) {
            command.push(format!("{word}={time}"));
        }
    };
    time("above", "--above", least, most);
    time("cycle_above", "--cycle-above", least, most);
    time("window_before", "--before", millisecond, DurNs::from_secs(60));
    time("window_after", "--after", millisecond, DurNs::from_secs(10));
    if let Some((keep, _)) = section.number("keep", 1, 10_000, found) {
        command.push(format!("--keep={keep}"));
    }
    if let Some((size, span)) = section.parsed::<Size>("window_size", found) {
        if !(64 << 10..=1 << 30).contains(&size.0) {
            found.error(span, format!("`window_size` cannot be {size}"), "size, 64KiB to 1GiB", "");
        }
        command.push(format!("--window-kb={}", size.0 / 1024));
    }
    let made = GeneratedCommand { command, has_own_priorities: false };
    let mut read = process::read(&section, called, shield.is_some(), Some(made), found);
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(RECORDS.to_owned()), within: BEGIN_WITHIN };
    }
    read
}
