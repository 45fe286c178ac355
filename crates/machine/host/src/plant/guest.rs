//! Reading `[[guest]]`: a virtual machine is a process whose command line is made from what the table says.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyWhen, Signal, StopStep};
use super::process::{self, Read};
use base::{DurNs, Policy, RtLevel, Size};
use std::ops::Range;
use table::{Diagnostics, Section};

/// What `tahti guest serve` prints once the guest runs.
const RUNS: &str = " runs, ";
/// How long that may take: locked memory is all brought in first.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(60);
/// How long a guest may take to shut down, where nothing is said.
const STOP_WITHIN: DurNs = DurNs::from_secs(30);
/// For what follows where it does not: QEMU's quitting and killing.
const STOP_MORE: DurNs = DurNs::from_secs(15);

const OWN: [Key; 14] = [
    key("vcpus", "2", "number, 1 to 64", "`1`", "Virtual CPUs, a thread of QEMU each."),
    key(
        "memory",
        r#""1GiB""#,
        "size, 16MiB to 1TiB",
        "`512MiB`",
        "Its memory, in whole MiB. QEMU needs some for itself: `memory_max` bounds both.",
    ),
    key(
        "mlock",
        "true",
        "true or false",
        "`false`",
        "Whether all memory of QEMU is locked, the guest's included. Needs CAP_IPC_LOCK or `limits = { locked = … }`.",
    ),
    key("kernel", r#""vmlinuz""#, "path", "what the first disk boots", "A Linux kernel that is started directly."),
    key("initrd", r#""initrd.img""#, "path", "none", "The initial RAM disk of `kernel`."),
    key(
        "append",
        r#""console=ttyS0""#,
        "text",
        "none",
        "The command line of `kernel`; the console is the first serial line.",
    ),
    key(
        "disks",
        r#"["hmi.qcow2"]"#,
        "list of paths",
        "none",
        "Disk images, as virtio disks in this order: `.qcow2` by its name, all others as they are (raw). What they hold is never looked at to find out.",
    ),
    key(
        "network",
        r#""user""#,
        "`none` or `user`",
        "`none`",
        "`user` is a card behind QEMU's own network, which leads nowhere (`restrict=on`): neither to this machine nor beyond.",
    ),
    key(
        "accel",
        r#""kvm""#,
        "`auto`, `kvm` or `emulated`",
        "`auto`",
        "What runs its instructions: the processor by KVM, or an emulator, many times slower. `auto` takes KVM where `/dev/kvm` can be opened; the log says which it was.",
    ),
    key(
        "vcpu_cpus",
        r#""0-1""#,
        "CPU list",
        "as `cpus`",
        "CPUs of the virtual CPUs' threads, among those of `cpus`. QEMU's other threads stay on `cpus`.",
    ),
    key(
        "vcpu_class",
        r#""other:5""#,
        "as `class`, but `deadline`",
        "as `class`",
        "Class of the virtual CPUs' threads. QEMU's other threads have `class`.",
    ),
    key(
        "stop_within",
        r#""30s""#,
        "time, 100ms to 1h",
        "`30s`",
        "How long it may take to shut down once its power button was pressed. Then QEMU is told to quit, then killed.",
    ),
    key(
        "program",
        r#""/opt/qemu/bin/qemu-system-x86_64""#,
        "path or name",
        "QEMU for this processor",
        "The QEMU that is started.",
    ),
    key(
        "stop",
        r#"["TERM 60s"]"#,
        "as for `[[process]]`",
        "`TERM`, and `stop_within` and 15s more",
        "A second `TERM` skips the wait for the guest.",
    ),
];

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 3] = with_process(&OWN, &["command", "mlock", "stop"]);

/// `[[guest]]`, as the documentation shows it.
pub(crate) const GUEST: Table = Table {
    header: "[[guest]]",
    doc: "A virtual machine beside the real-time part, in a QEMU of its own (see docs/partitions.md). It is a process: every key of `[[process]]` but \
          `command` holds here too, `cpus` and `class` for all threads of QEMU, `memory_max` and `tasks_max` for all that it takes.",
    keys: &OWN,
};

const READ: Table = Table { header: "[[guest]]", doc: "", keys: &SHAPE };

/// Reads a guest as the process that it is; with the plant's name, and whether it has a shield.
pub(crate) fn read(
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    called: &str,
    (plant, has_shield): (&str, bool),
    found: &mut Diagnostics<'_>,
) -> Read {
    let section = Section::open(table, span, &READ, called, found);
    let mut command: Vec<String> = ["tahti", "guest", "serve"].map(str::to_owned).into();
    let mut say = |option: &str, value: &dyn std::fmt::Display| command.push(format!("--{option}={value}"));
    say("plant", &plant);
    if let Some((vcpus, _)) = section.number("vcpus", 1, 64, found) {
        say("vcpus", &vcpus);
    }
    if let Some((memory, span)) = section.parsed::<Size>("memory", found) {
        if !(16 << 20..=1 << 40).contains(&memory.0) || memory.0 % (1 << 20) != 0 {
            found.error(span, format!("`memory` cannot be {memory}"), "size, 16MiB to 1TiB, in whole MiB", "");
        }
        say("memory", &memory);
    }
    if section.flag("mlock", found).unwrap_or(false) {
        command.push("--mlock".into());
    }
    let mut say = |option: &str, value: &dyn std::fmt::Display| command.push(format!("--{option}={value}"));
    for name in ["kernel", "initrd", "append"] {
        if let Some((text, _)) = section.words(name, found) {
            say(name, &text);
        }
    }
    let disks = section.texts("disks", found).unwrap_or_default();
    disks.iter().for_each(|(disk, _)| say("disk", disk));
    if section.value("kernel").is_none() {
        if disks.is_empty() {
            found.error(
                section.range(),
                format!("{called} boots from nothing"),
                "`kernel` or `disks`",
                "add one of them",
            );
        }
        if let Some(key) = ["initrd", "append"].into_iter().find(|key| section.value(key).is_some()) {
            found.error(
                section.range(),
                format!("`{key}` without a kernel"),
                "`kernel`",
                "add it, or let the disk's loader say it",
            );
        }
    }
    let one_of = |name: &str, words: &[&str], found: &mut Diagnostics<'_>| {
        let (word, span) = section.words(name, found)?;
        if !words.contains(&word) {
            found.error(span, format!("`{name}` cannot be {:?}", table::clipped(word)), words.join(", "), "");
        }
        Some(word.to_owned())
    };
    if let Some(network) = one_of("network", &["none", "user"], found) {
        say("network", &network);
    }
    if let Some(accel) = one_of("accel", &["auto", "kvm", "emulated"], found) {
        say("accel", &accel);
    }
    if let Some((cpus, _)) = section.cpu_list("vcpu_cpus", found) {
        say("vcpu-cpus", &cpus);
    }
    let vcpu_class = section.parsed::<Policy>("vcpu_class", found);
    if let Some((class, span)) = &vcpu_class {
        if matches!(class, Policy::Deadline(_)) {
            found.error(span.clone(), "`vcpu_class` cannot be deadline", "fifo, rr, other, batch or idle", "");
        }
        say("vcpu-class", class);
    }
    let stop_within = section.time("stop_within", DurNs::from_ms(100), DurNs::from_secs(3600), found);
    if let Some((time, _)) = &stop_within {
        say("stop-within", time);
    }
    if let Some((program, _)) = section.words("program", found) {
        say("program", &program);
    }
    command.push(section.text("name", found).map_or(String::new(), |(name, _)| name.to_owned()));
    let mut read = process::read(&section, called, has_shield, Some((command, section.range())), found);
    // QEMU's memory is what is locked, by QEMU.
    read.process.mlock = false;
    read.process.has_own_priorities = vcpu_class.is_some_and(|(class, _)| matches!(class.level(), RtLevel::Fixed(_)));
    if section.value("stop").is_none() {
        let within = stop_within.map_or(STOP_WITHIN, |(time, _)| time);
        let wait = DurNs(within.0.saturating_add(STOP_MORE.0));
        read.process.stop = vec![StopStep { signal: Signal::TERM, wait }];
    }
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyWhen::Line(RUNS.to_owned()), within: BEGIN_WITHIN };
    }
    read
}
