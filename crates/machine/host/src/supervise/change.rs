//! Differences between two plant files, and the effect of each.

use crate::plant::{Partition, Plant, Process};
use serde::Serialize;
use std::fmt;

/// Effect of a change on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The process keeps running.
    Live,
    /// The process is stopped and started.
    Restart,
}

/// Presence of an item in two plant files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// Only in the new file.
    New,
    /// In both files.
    Both,
    /// Only in the old file.
    Gone,
}

/// One difference between two plant files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Another plant name, which means another plant.
    Name {
        /// The new name.
        to: String,
    },
    /// A new process.
    Added {
        /// Its name.
        name: String,
    },
    /// A removed process.
    Removed {
        /// Its name.
        name: String,
    },
    /// A process with other settings.
    Process {
        /// Its name.
        name: String,
        /// The keys that differ.
        keys: Vec<&'static str>,
        /// Effect of the change.
        effect: Effect,
    },
    /// Another shield.
    Shield {
        /// The old and the new one, for users.
        text: String,
    },
    /// A partition that was added, removed or changed.
    Partition {
        /// Its name.
        name: String,
        /// The keys that differ; for a new partition all its keys.
        keys: Vec<&'static str>,
        /// Whether it was added, removed or changed.
        is: Presence,
    },
    /// Another watchdog.
    Watchdog,
    /// Another place for logs and evidence.
    Records,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { to } => write!(f, "~ plant: another name, {to}"),
            Self::Added { name } => write!(f, "+ {name}: starts"),
            Self::Removed { name } => write!(f, "- {name}: stops"),
            Self::Process { name, keys, effect } => {
                let effect = match effect {
                    Effect::Live => "continues",
                    Effect::Restart => "restarts",
                };
                write!(f, "~ {name}: {effect} (changed: {})", keys.join(", "))
            }
            Self::Shield { text } => write!(f, "~ shield: {text}"),
            Self::Partition { name, is: Presence::New, .. } => write!(f, "+ partition {name}: added"),
            Self::Partition { name, is: Presence::Gone, .. } => write!(f, "- partition {name}: removed"),
            Self::Partition { name, keys, .. } => {
                write!(f, "~ partition {name}: limits change in place ({})", keys.join(", "))
            }
            Self::Watchdog => f.write_str("~ watchdog"),
            Self::Records => f.write_str("~ records: from the next `tahti up` on"),
        }
    }
}

/// All differences, in the order of the files.
#[must_use]
pub fn diff(old: &Plant, new: &Plant) -> Vec<Change> {
    let mut changes = Vec::new();
    if old.name != new.name {
        changes.push(Change::Name { to: new.name.clone() });
    }
    if old.shield != new.shield {
        let text =
            |plant: &Plant| plant.shield.as_ref().map_or("none".to_owned(), |shield| format!("CPUs {}", shield.cpus));
        changes.push(Change::Shield { text: format!("{} -> {}", text(old), text(new)) });
    }
    changes.extend(partitions(&old.partitions, &new.partitions));
    if old.watchdog != new.watchdog {
        changes.push(Change::Watchdog);
    }
    if old.records != new.records {
        changes.push(Change::Records);
    }
    for process in &old.processes {
        match new.process(&process.name) {
            None => changes.push(Change::Removed { name: process.name.clone() }),
            Some(changed) => {
                let (keys, effect) = keys(process, changed);
                if !keys.is_empty() {
                    changes.push(Change::Process { name: process.name.clone(), keys, effect });
                }
            }
        }
    }
    let added = new.processes.iter().filter(|process| old.process(&process.name).is_none());
    changes.extend(added.map(|process| Change::Added { name: process.name.clone() }));
    changes
}

fn partitions(old: &[Partition], new: &[Partition]) -> Vec<Change> {
    let change = |name: &str, keys, is| Change::Partition { name: name.to_owned(), keys, is };
    let in_new = |one: &Partition| match new.iter().find(|other| other.name == one.name) {
        None => Some(change(&one.name, Vec::new(), Presence::Gone)),
        Some(other) if other != one => Some(change(&one.name, bounds(one, other), Presence::Both)),
        Some(_) => None,
    };
    let added = new.iter().filter(|one| !old.iter().any(|other| other.name == one.name));
    let added = added.map(|one| change(&one.name, bounds(&Partition::default(), one), Presence::New));
    old.iter().filter_map(in_new).chain(added).collect()
}

/// The keys in which two descriptions of a partition differ.
fn bounds(old: &Partition, new: &Partition) -> Vec<&'static str> {
    // Destructured without `..`, so that a new key cannot be forgotten here.
    let Partition { name: _, cpu_max, cpu_weight, bounds, io_max, cache, memory_bandwidth, network, required, inner } =
        old;
    let rows = [
        ("cpu_max", *cpu_max != new.cpu_max),
        ("cpu_weight", *cpu_weight != new.cpu_weight),
        ("memory_max", bounds.memory_max != new.bounds.memory_max),
        ("tasks_max", bounds.tasks_max != new.bounds.tasks_max),
        ("io_max", *io_max != new.io_max),
        ("cache", *cache != new.cache),
        ("memory_bandwidth", *memory_bandwidth != new.memory_bandwidth),
        ("network", *network != new.network),
        ("required", *required != new.required),
        ("bounds of its processes", *inner != new.inner),
    ];
    rows.iter().filter(|(_, differs)| *differs).map(|(key, _)| *key).collect()
}

/// The keys that differ between two versions of a process, and the strongest effect among them.
fn keys(old: &Process, new: &Process) -> (Vec<&'static str>, Effect) {
    // Destructured without `..`, so that a new key cannot be forgotten here.
    let Process {
        name: _,
        command,
        class,
        cpus,
        numa,
        mlock,
        limits,
        bounds,
        partition,
        user,
        capabilities,
        env,
        automatic,
        dir,
        after,
        ready,
        restart,
        stop,
        hygiene,
        on_fault,
        log,
        heartbeat,
        budget,
        ladder,
        threads,
        miss_ratio_max,
        deadline,
        // Derived from the command.
        has_own_priorities: _,
        own_threads: _,
        optional: _,
    } = old;
    let rows = [
        ("command", *command != new.command, Effect::Restart),
        ("class", *class != new.class, Effect::Restart),
        ("cpus", *cpus != new.cpus, Effect::Restart),
        ("numa", *numa != new.numa, Effect::Restart),
        ("mlock", *mlock != new.mlock, Effect::Restart),
        ("limits", *limits != new.limits, Effect::Restart),
        ("memory_max", bounds.memory_max != new.bounds.memory_max, Effect::Restart),
        ("tasks_max", bounds.tasks_max != new.bounds.tasks_max, Effect::Restart),
        ("partition", *partition != new.partition, Effect::Restart),
        ("user", *user != new.user, Effect::Restart),
        ("capabilities", *capabilities != new.capabilities, Effect::Restart),
        ("env", (env, automatic) != (&new.env, &new.automatic), Effect::Restart),
        ("dir", *dir != new.dir, Effect::Restart),
        ("log", *log != new.log, Effect::Restart),
        ("heartbeat", *heartbeat != new.heartbeat, Effect::Restart),
        ("budget", *budget != new.budget, Effect::Restart),
        ("ladder", *ladder != new.ladder, Effect::Restart),
        ("threads", *threads != new.threads, Effect::Restart),
        ("pass_environment", hygiene.pass_environment != new.hygiene.pass_environment, Effect::Restart),
        ("nice", hygiene.nice != new.hygiene.nice, Effect::Restart),
        ("umask", hygiene.umask != new.hygiene.umask, Effect::Restart),
        ("oom_score_adjust", hygiene.oom_score_adjust != new.hygiene.oom_score_adjust, Effect::Restart),
        ("no_new_privileges", hygiene.no_new_privileges != new.hygiene.no_new_privileges, Effect::Restart),
        ("sandbox", hygiene.sandbox != new.hygiene.sandbox, Effect::Restart),
        ("deadline", *deadline != new.deadline, Effect::Restart),
        ("after", *after != new.after, Effect::Live),
        ("ready", *ready != new.ready, Effect::Live),
        ("restart", *restart != new.restart, Effect::Live),
        ("stop", *stop != new.stop, Effect::Live),
        ("miss_ratio_max", *miss_ratio_max != new.miss_ratio_max, Effect::Live),
        ("on_fault", *on_fault != new.on_fault, Effect::Live),
    ];
    let differing = rows.iter().filter(|(_, differs, _)| *differs);
    let effect = differing.clone().map(|(.., effect)| *effect).max().unwrap_or(Effect::Live);
    (differing.map(|(key, ..)| *key).collect(), effect)
}
