//! Reads `[[guest]]`. A virtual machine is a process whose command line is generated from the table.

use super::keys::{Key, PROCESS, Table, key, with_process};
use super::model::{Ready, ReadyCondition, Signal, StopStep};
use super::process::{self, GeneratedCommand, PlacedProcess};
use base::{DurNs, Policy, RtLevel, Size};
use core::net::SocketAddr;
use std::ops::Range;
use table::{Diagnostics, Section};

/// Output of `tahti guest serve` when the guest runs.
const RUNS: &str = " runs, ";
/// Time limit for that output. Locked memory is populated first.
const BEGIN_WITHIN: DurNs = DurNs::from_secs(60);
/// Default time limit for the shutdown of a guest.
const STOP_WITHIN: DurNs = DurNs::from_secs(30);
/// Additional time if the guest does not shut down: QEMU is asked to quit, then killed.
const STOP_MORE: DurNs = DurNs::from_secs(15);

const OWN: [Key; 23] = [
    key("vcpus", "2", "number, 1 to 64", "`1`", "Number of virtual CPUs. Each is one thread of QEMU."),
    key(
        "memory",
        r#""1GiB""#,
        "size, 16MiB to 1TiB",
        "`512MiB`",
        "Memory of the guest, in whole MiB. QEMU needs more than that; `memory_max` limits both together.",
    ),
    key(
        "mlock",
        "true",
        "true or false",
        "`false`",
        "Lock all memory of QEMU and the guest. Needs CAP_IPC_LOCK or `limits = { locked = … }`.",
    ),
    key("kernel", r#""vmlinuz""#, "path", "the first disk boots", "Linux kernel to boot directly."),
    key("initrd", r#""initrd.img""#, "path", "none", "Initial RAM disk of `kernel`."),
    key(
        "append",
        r#""console=ttyS0""#,
        "text",
        "none",
        "Command line of `kernel`. The console is the first serial line.",
    ),
    key(
        "disks",
        r#"["hmi.qcow2"]"#,
        "list of paths",
        "none",
        "Disk images, as virtio disks in this order. Files named `.qcow2` are qcow2, all others are raw; tahti never guesses the format from the \
         content.",
    ),
    key(
        "disk_rate",
        r#""20MiB""#,
        "size, 64KiB to 1TiB",
        "no bound",
        "Maximum bytes read and written per second, all disks together.",
    ),
    key(
        "disk_operations",
        "500",
        "number, 1 to 10000000",
        "no bound",
        "Maximum reads and writes per second, all disks together.",
    ),
    key(
        "network",
        r#""user""#,
        "`none` or `user`",
        "`user` with `allow`, else `none`",
        "`user`: a network card in a private network without other hosts. The guest is 10.0.2.15 (DHCP). 10.0.2.2 leads to the addresses in `allow`.",
    ),
    key(
        "allow",
        r#"["dashboard", "80=127.0.0.1:8900"]"#,
        "list of `dashboard`, `ca`, `messages` or `[udp:][PORT=]ADDRESS:PORT`",
        "nothing",
        "Addresses that the guest can reach, each at the same port of 10.0.2.2 (or at `PORT`). `dashboard`: the address of `[dashboard]`, which \
         needs `names = [\"10.0.2.2\"]`. `ca`: 127.0.0.1:5064, searches and circuits. `messages`: `tahti msg zmq` at 127.0.0.1:5555.",
    ),
    key(
        "network_rate",
        r#""12MiB""#,
        "size, 64KiB to 1TiB",
        "no bound",
        "Maximum bytes per second of its network card, both directions together.",
    ),
    key(
        "profile",
        r#""windows""#,
        "`linux` or `windows`",
        "`linux`",
        "`windows`: SATA disks and an Intel network card (e1000e) instead of virtio, a clock in local time, and with KVM the Hyper-V interfaces.",
    ),
    key("firmware", r#""OVMF_CODE.fd""#, "path", "the board's BIOS", "UEFI firmware (Debian: package `ovmf`)."),
    key(
        "firmware_variables",
        r#""hmi-variables.fd""#,
        "path",
        "none: they are lost",
        "UEFI variables, which the guest writes: a separate copy of `OVMF_VARS.fd`. Needs `firmware`.",
    ),
    key(
        "screen",
        "true",
        "true or false",
        "`false`",
        "Add screen, keyboard and mouse, through VNC on the Unix socket `guest/NAME/screen` in the plant's folder in `/run/tahti`.",
    ),
    key(
        "accel",
        r#""kvm""#,
        "`auto`, `kvm` or `emulated`",
        "`auto`",
        "Run the guest with KVM, or with an emulator, which is many times slower. `auto` uses KVM if `/dev/kvm` can be opened and can run the guest. \
         The log shows the choice.",
    ),
    key(
        "processor",
        r#""qemu64""#,
        "one of `qemu-system-x86_64 -cpu help`, with its flags",
        "all features that KVM or the emulator supports",
        "Processor model of the guest.",
    ),
    key(
        "vcpu_cpus",
        r#""0-1""#,
        "CPU list or `shield`",
        "as `cpus`",
        "CPUs of the virtual CPUs' threads, a subset of `cpus`, or `shield`: only these threads are on the shield. If the shield is a cgroup v2 \
         partition, which takes whole processes, set `cpus = \"shield\"` instead. QEMU's other threads stay on `cpus`.",
    ),
    key(
        "vcpu_class",
        r#""other:5""#,
        "as `class`, but not `deadline`",
        "as `class`",
        "Class of the virtual CPUs' threads. QEMU's other threads have `class`.",
    ),
    key(
        "stop_within",
        r#""30s""#,
        "time, 100ms to 1h",
        "`30s`",
        "Maximum time to shut down after the power button was pressed. Then tahti makes QEMU quit, then kills it.",
    ),
    key(
        "program",
        r#""/opt/qemu/bin/qemu-system-x86_64""#,
        "path or name",
        "QEMU for this processor",
        "QEMU program to start.",
    ),
    key(
        "stop",
        r#"["TERM 60s"]"#,
        "as for `[[process]]`",
        "`TERM` with `stop_within` plus 15s",
        "A second `TERM` skips the wait for the guest.",
    ),
];

const SHAPE: [Key; OWN.len() + PROCESS.keys.len() - 3] = with_process(&OWN, &["command", "mlock", "stop"]);

/// `[[guest]]`, for the documentation.
pub(crate) const GUEST: Table = Table {
    header: "[[guest]]",
    doc: "A virtual machine in a separate QEMU process ([guests](../partitions.md#run-a-virtual-machine)). All keys of `[[process]]` except `command` \
          are valid here. `cpus` and `class` apply to all threads of QEMU; `memory_max` and `tasks_max` to QEMU and the guest together.",
    keys: &OWN,
};

pub(super) const READ: Table = Table { header: "[[guest]]", doc: "", keys: &SHAPE };

/// Reads a guest as a process. The tuple has the plant's name, the address of its dashboard, and whether it has a
/// shield.
pub(crate) fn read(
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    called: &str,
    (plant, dashboard, has_shield): (&str, Option<SocketAddr>, bool),
    found: &mut Diagnostics<'_>,
) -> PlacedProcess {
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
                format!("{called} has nothing to boot"),
                "`kernel` or `disks`",
                "add one of them",
            );
        }
        if let Some(key) = ["initrd", "append"].into_iter().find(|key| section.value(key).is_some()) {
            found.error(
                section.range(),
                format!("`{key}` without a kernel"),
                "`kernel`",
                "add it, or set this in the disk's boot loader",
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
    let network = one_of("network", &["none", "user"], found);
    if let Some(network) = &network {
        say("network", network);
    }
    for (word, span) in section.texts("allow", found).unwrap_or_default() {
        if network.as_deref() == Some("none") {
            found.error(span.clone(), "`allow` needs a network", "network = \"user\"", "remove `network = \"none\"`");
        }
        match rules(word, dashboard) {
            Ok(rules) => rules.iter().for_each(|rule| say("allow", rule)),
            Err(Wrong::NoDashboard) => {
                found.error(span, "`allow` names the dashboard, but the plant has no dashboard", "", "add [dashboard]");
            }
            Err(Wrong::Form) => found.error(
                span,
                format!("`allow` cannot be {:?}", table::clipped(word)),
                "dashboard, ca, messages, or [udp:][PORT=]ADDRESS:PORT such as 80=127.0.0.1:8900",
                "",
            ),
        }
    }
    for key in ["disk_rate", "network_rate"] {
        if let Some((rate, span)) = section.parsed::<Size>(key, found) {
            if !(64 << 10..=1 << 40).contains(&rate.0) {
                found.error(span, format!("`{key}` cannot be {rate}"), "size, 64KiB to 1TiB, a second", "");
            }
            say(&key.replace('_', "-"), &rate);
        }
    }
    if let Some((operations, _)) = section.number("disk_operations", 1, 10_000_000, found) {
        say("disk-operations", &operations);
    }
    if let Some(profile) = one_of("profile", &["linux", "windows"], found) {
        say("profile", &profile);
    }
    for name in ["firmware", "firmware_variables"] {
        if let Some((text, span)) = section.words(name, found) {
            if section.value("firmware").is_none() {
                found.error(span, format!("`{name}` without `firmware`"), "", "add `firmware`");
            }
            say(&name.replace('_', "-"), &text);
        }
    }
    if section.flag("screen", found).unwrap_or(false) {
        command.push("--screen".into());
    }
    let mut say = |option: &str, value: &dyn std::fmt::Display| command.push(format!("--{option}={value}"));
    if let Some(accel) = one_of("accel", &["auto", "kvm", "emulated"], found) {
        say("accel", &accel);
    }
    let in_shield = section.value("vcpu_cpus").filter(|value| value.get_ref().as_str() == Some("shield"));
    if let Some(value) = in_shield {
        if !has_shield {
            found.error(value.span(), "`vcpu_cpus` names the shield, but the plant has no shield", "", "add [shield]");
        }
        say("vcpu-cpus", &"shield");
    } else if let Some((cpus, _)) = section.cpu_list("vcpu_cpus", found) {
        say("vcpu-cpus", &cpus);
    }
    if let Some((processor, _)) = section.words("processor", found) {
        say("processor", &processor);
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
    let has_own_priorities = vcpu_class.is_some_and(|(class, _)| matches!(class.level(), RtLevel::Fixed(_)));
    let made = GeneratedCommand { command, has_own_priorities };
    let mut read = process::read(&section, called, has_shield, Some(made), found);
    // Only QEMU's memory is locked, and QEMU locks it.
    read.process.mlock = false;
    if section.value("stop").is_none() {
        let within = stop_within.map_or(STOP_WITHIN, |(time, _)| time);
        let wait = DurNs(within.0.saturating_add(STOP_MORE.0));
        read.process.stop = vec![StopStep { signal: Signal::TERM, wait }];
    }
    if section.value("ready").is_none() {
        read.process.ready = Ready { when: ReadyCondition::Line(RUNS.to_owned()), within: BEGIN_WITHIN };
    }
    read
}

/// Why a word is not a valid rule.
enum Wrong {
    Form,
    NoDashboard,
}

/// Arguments of `tahti guest serve --allow` for a word of `allow`.
fn rules(word: &str, dashboard: Option<SocketAddr>) -> Result<Vec<String>, Wrong> {
    match word {
        "dashboard" => return dashboard.map(|listen| vec![listen.to_string()]).ok_or(Wrong::NoDashboard),
        "ca" => return Ok(["127.0.0.1:5064", "udp:127.0.0.1:5064"].map(str::to_owned).into()),
        "messages" => return Ok(vec!["127.0.0.1:5555".to_owned()]),
        _ => {}
    }
    let rest = word.strip_prefix("udp:").unwrap_or(word);
    let (port, to) = rest.split_once('=').map_or((None, rest), |(port, to)| (Some(port), to));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    let leads = to.parse::<SocketAddr>().is_ok_and(|to| to.port() > 0);
    if is_port && leads { Ok(vec![word.to_owned()]) } else { Err(Wrong::Form) }
}
