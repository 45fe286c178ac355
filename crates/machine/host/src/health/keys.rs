//! All keys of the plant file, each with the rows that it promises or the reason why it has none.
//!
//! A new key without an entry fails the test below.

use super::Claim::{self, *};

/// Meaning of a key for the health table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Rows with these claims.
    Rows(&'static [Claim]),
    /// No row, with the reason.
    None(&'static str),
}

use Meaning::{None as No, Rows};

/// A name, a path or a choice that other keys refer to.
const NAMES: Meaning = No("a name; the named object has its own rows");
/// Set by the kernel at the start; without it the process does not start.
const AT_START: Meaning =
    No("set before the first instruction, or the process does not start; later changes by root are not observed");
/// A rule for the supervisor.
const RULE: Meaning = No("a rule for the supervisor, not a promise about the machine");
/// A choice of members. A member that is not chosen is not part of the plant.
const PROFILES: Meaning = No("it decides whether the member is part of the plant; its other keys have the rows");
/// Configuration of a tahti service. The service checks it at its start and reports from its main loop.
const SERVICE: Meaning = Rows(&[Runs, Ready, Serves]);
/// Configuration of a service that reports its faults.
const REPORTED: Meaning = Rows(&[Serves]);
const BOUND: Meaning = Rows(&[Bounds]);
/// A kernel limit on the process alone.
const LIMIT: Meaning = Rows(&[Bounds, Available]);

/// Keys by table. The keys of an entry are separated by blanks.
pub const MEANINGS: &[(&str, &[(&str, Meaning)])] = &[
    ("[plant]", &[("name operators operators_may_type env", NAMES)]),
    (
        "[shield]",
        &[
            ("cpus parts irqs", Rows(&[Isolated, Journal, Restored])),
            ("profile", Rows(&[Isolated, Available, Restored])),
            ("spare", No("it excludes processes from a promise")),
            ("required", No("it turns an unavailable shield into an error")),
        ],
    ),
    (
        "[[process]]",
        &[
            ("name command env pass_environment dir user after", NAMES),
            ("profiles", PROFILES),
            ("class nice", Rows(&[Class])),
            ("cpus", Rows(&[Cpus])),
            ("threads", Rows(&[Threads, Class, Cpus])),
            ("mlock", Rows(&[Memory])),
            ("numa capabilities umask no_new_privileges sandbox", AT_START),
            ("limits", LIMIT),
            ("partition", Rows(&[Available])),
            ("memory_max tasks_max", Rows(&[Bounds, Fits, Available])),
            ("oom_score_adjust", BOUND),
            ("ready", Rows(&[Ready])),
            ("restart", Rows(&[Runs, Restarts])),
            ("stop", Rows(&[Stops])),
            ("ladder", RULE),
            ("on_fault", Rows(&[SafeOutput])),
            ("log", Rows(&[Records])),
            ("heartbeat", Rows(&[Heartbeat])),
            ("budget", Rows(&[Budget])),
            ("miss_ratio_max", Rows(&[Skipped])),
            ("deadline", Rows(&[Value, Deadline])),
        ],
    ),
    ("ready", &[("line file port notify within", Rows(&[Ready]))]),
    ("restart", &[("policy limit window", Rows(&[Runs, Restarts])), ("backoff backoff_max", RULE)]),
    ("heartbeat", &[("within", Rows(&[Heartbeat])), ("critical", Rows(&[Heartbeat, Available]))]),
    ("deadline", &[("at kind value least", Rows(&[Value, Deadline]))]),
    ("threads", &[("match", Rows(&[Threads])), ("class", Rows(&[Class])), ("cpus", Rows(&[Cpus]))]),
    ("limits", &[("files core locked memory stack rttime", LIMIT)]),
    ("sandbox", &[("private_tmp protect_system protect_home read_write_paths inaccessible_paths", AT_START)]),
    ("log", &[("size keep", Rows(&[Records]))]),
    (
        "[[partition]]",
        &[
            ("name", NAMES),
            ("cpu_max cpu_weight memory_max tasks_max io_max cache memory_bandwidth network", BOUND),
            ("required", No("it turns an unavailable bound into an error")),
        ],
    ),
    ("io_max", &[("device read write read_ops write_ops", BOUND)]),
    ("network", &[("device link rate max delay queue", BOUND)]),
    (
        "[[ioc]]",
        &[
            ("load access scan port protocols pvaccess strict script", SERVICE),
            ("require_rt", Rows(&[Available])),
            ("ready", Rows(&[Ready])),
        ],
    ),
    ("[[equipment]]", &[("file server", REPORTED), ("require_rt", Rows(&[Available])), ("ready", Rows(&[Ready]))]),
    ("scan", &[("rates class cpus", SERVICE)]),
    ("port", &[("name address baud bits parity stop", SERVICE)]),
    (
        "[messages]",
        &[
            ("bands rules message_log message_log_size message_log_keep", SERVICE),
            ("deadlines", Rows(&[Value, Deadline])),
            ("require_rt", Rows(&[Available])),
        ],
    ),
    ("bands", &[("number class cpu", SERVICE)]),
    ("rules", &[("access objects verbs bands users hosts", SERVICE)]),
    ("deadlines", &[("objects verbs bands at kind value", Rows(&[Value, Deadline]))]),
    ("[recorder]", &[("record watch above cycle_above window_before window_after keep window_size", SERVICE)]),
    (
        "[alarms]",
        &[
            ("file tree folder keep_days keep_size operators viewers shelve_max connect_within notify", SERVICE),
            ("ready", Rows(&[Ready])),
        ],
    ),
    ("notify", &[("name to token_file from relay ca severity paths delay repeat", REPORTED)]),
    (
        "[archive]",
        &[
            ("folder sync segment_size segment_age total_max keep_free when_full", REPORTED),
            ("engine replication ttl", SERVICE),
        ],
    ),
    ("[[signal]]", &[("names variables loops frames messages alarms streams deadband scan every on_fault", REPORTED)]),
    (
        "[dashboard]",
        &[
            ("enabled", No("without a dashboard nothing is promised about it")),
            ("name listen names certificate key write archive retrieval pvaccess settings messages", SERVICE),
        ],
    ),
    (
        "[[guest]]",
        &[
            (
                "vcpus memory mlock kernel initrd append disks disk_rate disk_operations network allow network_rate profile firmware \
                 firmware_variables screen accel processor vcpu_cpus vcpu_class program",
                SERVICE,
            ),
            ("stop_within stop", RULE),
        ],
    ),
    (
        "[[frame]]",
        &[
            ("name activity mode", NAMES),
            ("profiles", PROFILES),
            ("cpu class base minors period lengths reserve join_within", SERVICE),
            ("miss_ratio_max", Rows(&[Skipped])),
        ],
    ),
    (
        "[[frame.activity]]",
        &[
            ("name", NAMES),
            ("budget minors discipline recovery tolerate", Rows(&[Skipped])),
            ("deadline", Rows(&[Value, Deadline])),
        ],
    ),
    ("[[frame.mode]]", &[("name activities", NAMES)]),
    ("[watchdog]", &[("device timeout", Rows(&[Available]))]),
    ("[records]", &[("folder also", Rows(&[Records]))]),
    ("include", &[("include", No("it names files; their content has rows with their lines"))]),
    ("[variables]", &[("NAME", No("it is a part of other values, whose keys have rows"))]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::keys::TABLES;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_of_the_plant_file_has_its_promise_or_the_reason_why_it_has_none() {
        let mut missing = Vec::new();
        let (mut keys, mut promised) = (0, BTreeSet::new());
        for table in TABLES {
            let entries =
                MEANINGS.iter().find(|(header, _)| *header == table.header).map_or(&[][..], |(_, entries)| *entries);
            for key in table.keys {
                keys += 1;
                match entries.iter().find(|(names, _)| names.split_whitespace().any(|name| name == key.name)) {
                    Some((_, Rows(claims))) if !claims.is_empty() => promised.extend(claims.iter().copied()),
                    Some((_, No(why))) if why.len() > 20 => {}
                    Some(_) | None => missing.push(format!("{} {}", table.header, key.name)),
                }
            }
            for (names, _) in entries {
                for name in names.split_whitespace() {
                    assert!(table.keys.iter().any(|key| key.name == name), "{} has no key {name}", table.header);
                }
            }
        }
        println!("{keys} keys, {} claims", promised.len());
        assert!(missing.is_empty(), "keys without a promise or a reason: {missing:?}");
        for header in MEANINGS.iter().map(|(header, _)| *header) {
            assert!(TABLES.iter().any(|table| table.header == header), "no table {header}");
        }
    }
}
