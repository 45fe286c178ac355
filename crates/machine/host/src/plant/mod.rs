//! The plant file: converts its text to a [`Plant`], or to a list of all errors in it.
//!
//! Must never panic on any text, never access the machine directly (facts about it come through [`Surroundings`]), and
//! never accept a text that it does not understand.

mod across;
mod alarms;
pub mod archive;
mod as_written;
mod channels;
mod dashboard;
mod deadline;
mod doc;
mod environment;
mod equipment;
mod frames;
mod guest;
mod hygiene;
mod ioc;
mod join;
pub mod keys;
pub mod messages;
mod model;
mod partition;
mod places;
mod process;
mod profiles;
mod recorder;
mod schema;
mod signal;
mod variables;

pub use alarms::{ALARM_KEYS, NOTIFY};
pub use channels::channels;
pub use deadline::DeadlineRule;
pub use doc::{Page, document, pages};
pub use frames::FRAME;
pub use ioc::place_of_rate;
pub use join::{Files, Unreadable, join};
pub use model::*;
pub use partition::{BitRate, CpuMax, IoMax, Network, Partition, Queue};
pub use places::Places;
pub use process::{CAPABILITIES, NAME, is_name};
pub use profiles::{Inactive, Profiles};
pub use schema::schema;
pub use table::{Diagnostic, Diagnostics, Joined, NotUtf8, Severity, render_all, utf8};

use crate::suggest::Choice;
use base::{CpuSet, DurNs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use table::{Section, clipped, tables};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a plant file in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of processes in a plant.
pub const PROCESSES_MAX: usize = 256;

/// A requirement that the machine does not meet, with the remedy if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The number of CPUs that a shield requests.
    #[error(transparent)]
    Cpus(#[from] crate::suggest::TooMany),
    /// Files that list the existing CPUs, with the error of the caller that read them.
    #[error("{0}")]
    Unreadable(String),
    /// The cpuset controller, which partitions of CPUs need.
    #[error("mount the cgroup file system with its cpuset controller, or use fifo")]
    Cpuset,
    /// An existing file that can be executed.
    #[error("{} is no executable file", .0.display())]
    Executable(PathBuf),
    /// The interpreter of a script.
    #[error("{} names the interpreter {name:?}, which does not exist", .script.display())]
    Interpreter {
        /// The script.
        script: PathBuf,
        /// The interpreter in its first line.
        name: String,
    },
    /// Permission of the process's user.
    #[error("user {user:?} may not {} {}", if *.is_folder { "enter" } else { "execute" }, .path.display())]
    Permission {
        /// The file, or a folder of its path.
        path: PathBuf,
        /// Whether the path is a folder.
        is_folder: bool,
        /// The user.
        user: String,
    },
    /// An existing file.
    #[error("{} does not exist", .0.display())]
    File(PathBuf),
    /// A folder; the path is something else.
    #[error("{} is no folder", .0.display())]
    NoFolder(PathBuf),
    /// A file system that stores files, in contrast to `/proc` and `/sys`.
    #[error("{} is in a file system of the kernel, which keeps no files", .0.display())]
    KernelFiles(PathBuf),
    /// A writable folder.
    #[error("{} is not writable: {why}", .path.display())]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// The kernel's error.
        why: String,
    },
    /// A requirement of a partition's limits.
    #[error(transparent)]
    Bound(#[from] crate::partition::Lack),
    /// A program in `PATH`.
    #[error("{name:?} is in no folder of PATH ({path})")]
    Program {
        /// Name in the command.
        name: String,
        /// The folders that were searched.
        path: String,
    },
}

/// Facts about the machine that the checks need.
pub trait Surroundings {
    /// The CPUs that are online; `None` if unknown.
    fn online(&self) -> Option<CpuSet>;
    /// The best `count` CPUs for a shield. The default is the first CPUs, for a machine about which nothing is known.
    ///
    /// # Errors
    /// The machine has too few CPUs.
    fn choose(&self, count: usize) -> Result<CpuSet, Missing> {
        Ok(CpuSet::first(count))
    }
    /// Whether the machine has this NUMA node.
    fn has_node(&self, node: u16) -> bool;
    /// Whether DEADLINE tasks can get a separate root domain.
    ///
    /// # Errors
    /// The reason, with its remedy.
    fn partition(&self) -> Result<(), Missing>;
    /// Whether `program` can be started from folder `dir`, and whether `user`, if given, has the permission, according to the
    /// mode bits.
    ///
    /// # Errors
    /// The missing program or file, or the first file or folder without permission.
    fn program(&self, program: &str, dir: Option<&str>, user: Option<&str>) -> Result<(), Missing>;
    /// Missing requirements of a partition. `on_shield` names its processes that run on the shield.
    fn bound(&self, _partition: &Partition, _on_shield: &[String]) -> Vec<Missing> {
        Vec::new()
    }
    /// Whether this user exists.
    fn has_user(&self, user: &str) -> bool;
    /// Whether files can be stored in this folder, which may not exist yet. A relative path begins in the plant file's
    /// folder.
    ///
    /// # Errors
    /// The obstacle.
    fn can_hold(&self, _folder: &Path) -> Result<(), Missing> {
        Ok(())
    }
    /// Whether this folder exists, so that a process can work in it. A relative path begins in the plant file's folder.
    ///
    /// # Errors
    /// Why the path is not a usable folder.
    fn is_folder(&self, _folder: &Path) -> Result<(), Missing> {
        Ok(())
    }
    /// Whether this file exists. A relative path begins in the plant file's folder.
    ///
    /// # Errors
    /// The missing file.
    fn is_file(&self, _file: &Path) -> Result<(), Missing> {
        Ok(())
    }
    /// Limits of the kernel for DEADLINE reservations.
    fn reservations(&self) -> Reservations {
        Reservations::default()
    }
}

/// Limits of the kernel for DEADLINE reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// Minimum period (`kernel.sched_deadline_period_min_us`).
    pub period_min: DurNs,
    /// Maximum period (`kernel.sched_deadline_period_max_us`).
    pub period_max: DurNs,
    /// Maximum share of each CPU for all reservations together, in thousandths (`kernel.sched_rt_runtime_us`).
    pub share_milli: u32,
}

impl Default for Reservations {
    /// The default limits of the kernel.
    fn default() -> Self {
        Self { period_min: DurNs::from_us(100), period_max: DurNs::from_us(4_194_304), share_milli: 950 }
    }
}

/// A machine about which nothing is known. All requirements count as met.
#[derive(Clone, Copy, Debug)]
pub struct Anywhere;

impl Surroundings for Anywhere {
    fn online(&self) -> Option<CpuSet> {
        None
    }
    fn has_node(&self, _: u16) -> bool {
        true
    }
    fn partition(&self) -> Result<(), Missing> {
        Ok(())
    }
    fn program(&self, _: &str, _: Option<&str>, _: Option<&str>) -> Result<(), Missing> {
        Ok(())
    }
    fn has_user(&self, _: &str) -> bool {
        true
    }
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The plant, if there is no error.
    pub plant: Option<Plant>,
    /// If there is an error, the processes that could be read. Their files can still be checked.
    pub readable: Vec<Process>,
    /// All errors and warnings, in the order of the file.
    pub found: Vec<Diagnostic>,
    /// Inactive members, and the profiles of the file.
    pub inactive: Inactive,
}

/// Reads and checks the text of a plant file that has no `include`. No profile is active.
#[must_use]
pub fn check(text: &str, around: &dyn Surroundings) -> Checked {
    check_joined(&Joined::single("plant.toml", text), &Profiles::default(), around)
}

/// Reads and checks a plant of one or several files ([`join()`]).
#[must_use]
pub fn check_joined(joined: &Joined, profiles: &Profiles, around: &dyn Surroundings) -> Checked {
    let text = joined.text();
    let mut found = Diagnostics::with_faults(joined);
    if text.len() > TEXT_BYTES_MAX {
        found.error(0..0, format!("the file has {} bytes", text.len()), format!("at most {TEXT_BYTES_MAX}"), "");
        return Checked { plant: None, readable: Vec::new(), found: found.finish(), inactive: Inactive::default() };
    }
    let sound = found.sound(text);
    let (mut root, _) = DeTable::parse_recoverable(&sound);
    let inactive = profiles::remove_inactive(root.get_mut(), profiles, &mut found);
    let plant = read_plant(root.get_ref(), joined, &inactive, around, &mut found);
    let found = found.finish();
    let broken = found.iter().any(|one| one.severity == Severity::Error);
    match plant {
        Ok(plant) if !broken => Checked { plant: Some(*plant), readable: Vec::new(), found, inactive },
        Ok(plant) => Checked { plant: None, readable: plant.processes, found, inactive },
        Err(readable) => Checked { plant: None, readable, found, inactive },
    }
}

/// Reads the plant. If its name or shield is unusable, the error contains the processes that could be read.
fn read_plant(
    root: &DeTable<'_>,
    joined: &Joined,
    inactive: &Inactive,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) -> Result<Box<Plant>, Vec<Process>> {
    let text = joined.text();
    const KNOWN: [&str; 18] = [
        "plant",
        "shield",
        "process",
        "partition",
        "ioc",
        "equipment",
        "frame",
        "messages",
        "recorder",
        "alarms",
        "area",
        "alarm",
        "archive",
        "signal",
        "dashboard",
        "guest",
        "watchdog",
        "records",
    ];
    const TABLES: &str = "[plant], [shield], [[process]], [[partition]], [[ioc]], [[equipment]], [[frame]], [messages], [recorder], [alarms], [[area]], [[alarm]], [archive], [[signal]], [dashboard], [[guest]], [watchdog], [records]";
    for (key, _) in root {
        let word: &str = key.get_ref();
        if KNOWN.contains(&word) {
            continue;
        }
        if matches!(word, "include" | "variables") {
            // In a plant of several files these keys have already been replaced by blanks.
            found.error(
                key.span(),
                format!("`{word}` in a plant that is not read from a file"),
                "a plant file",
                "remove it",
            );
            continue;
        }
        if let Some((_, what)) = keys::RESERVED.iter().find(|(name, _)| *name == word) {
            let message = format!("`{word}` ({what}) is not in this version");
            found.error(key.span(), message, TABLES, "remove it");
            continue;
        }
        let remedy = match base::nearest(word, KNOWN) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if keys::PROCESS.keys.iter().any(|known| known.name == word) => {
                format!("`{word}` belongs below a [[process]] line")
            }
            None => "remove it".to_owned(),
        };
        let message = format!("unknown table `{}`", clipped(word));
        found.error(key.span(), message, TABLES, remedy);
    }

    let (mut operators, mut env) = (None, BTreeMap::new());
    let name = match tables(root, "plant", false, found).first() {
        Some((table, span)) => {
            let section = Section::open(table, span.clone(), &keys::PLANT, "[plant]", found);
            operators = hygiene::operators(&section, found);
            env = process::env(&section, found);
            process::name(&section, found).map(|(name, span)| {
                // The plant's folder is in the same directory as other files of tahti, such as `shield.json`.
                if name.contains('.') {
                    let message = format!("`name` of [plant] cannot be {name:?}");
                    found.error(span, message, "no `.` in it", format!("for example {:?}", name.replace('.', "-")));
                }
                name
            })
        }
        None => {
            if !root.iter().any(|(key, _)| *key.get_ref() == "plant") {
                found.error(0..0, "the [plant] table is missing", "", "begin with `[plant]` and `name = \"…\"`");
            }
            None
        }
    };
    let shield = tables(root, "shield", false, found)
        .first()
        .map(|(table, span)| Section::open(table, span.clone(), &keys::SHIELD, "[shield]", found))
        .map(|section| (read_shield(&section, around, found), section));
    let mut partitions = partition::read_all(root, found);
    let mut reads = Vec::new();
    let processes = tables(root, "process", true, found);
    let iocs = tables(root, "ioc", true, found);
    let managers = tables(root, "equipment", true, found);
    let guests = tables(root, "guest", true, found);
    // A plant with only frames is allowed: the activities are processes that are started elsewhere.
    let runs = |key: &str| matches!(key, "process" | "ioc" | "equipment" | "messages" | "frame" | "archive" | "guest");
    if processes.is_empty() && !root.iter().any(|(key, _)| runs(key.get_ref().as_ref())) {
        let remedy = match inactive.known.iter().next() {
            Some(profile) => format!("use `--profile {profile}`, or add `[[process]]` without `profiles`"),
            None => "add `[[process]]` with name and command".to_owned(),
        };
        found.error(
            0..0,
            "the plant has no process",
            "at least one [[process]], [[ioc]], [[equipment]], [[frame]] or [messages]",
            remedy,
        );
    }
    let count = processes.len() + iocs.len() + managers.len() + guests.len();
    if let Some((_, span)) = processes.iter().chain(&iocs).chain(&managers).chain(&guests).nth(PROCESSES_MAX) {
        let message = format!("the plant has {count} processes");
        found.error(span.clone(), message, format!("at most {PROCESSES_MAX}"), "split the plant");
    }
    let called = |table: &DeTable<'_>, what: &str| {
        let named =
            table.iter().find(|(key, _)| *key.get_ref() == "name").and_then(|(_, name)| name.get_ref().as_str());
        named.map_or(format!("a {what}"), |name| format!("{what} {:?}", clipped(name)))
    };
    for (table, span) in processes.into_iter().take(PROCESSES_MAX) {
        let called = called(table, "process");
        let section = Section::open(table, span, &keys::PROCESS, &called, found);
        reads.push(process::read(&section, &called, shield.is_some(), None, found));
    }
    for (table, span) in iocs.into_iter().take(PROCESSES_MAX.saturating_sub(reads.len())) {
        reads.push(ioc::read(table, span, &called(table, "ioc"), shield.is_some(), found));
    }
    if let Some((table, span)) = tables(root, "messages", false, found).into_iter().next() {
        reads.push(messages::read(table, span, shield.is_some(), found));
    }
    if let Some((table, span)) = tables(root, "recorder", false, found).into_iter().next() {
        let cpus = shield.as_ref().and_then(|(shield, _)| Some(shield.as_ref()?.cpus));
        reads.push(recorder::read(table, span, (name.as_deref().unwrap_or_default(), cpus), found));
    }
    let plant_called = name.as_deref().unwrap_or_default();
    reads.extend(alarms::member(root, text, (plant_called, shield.is_some()), found));
    reads.extend(archive::member(root, text, shield.is_some(), found));
    let around_dashboard = dashboard::PlantContext::of(root, plant_called, shield.is_some());
    let says_dashboard = root.iter().any(|(key, _)| *key.get_ref() == "dashboard");
    let mut own_dashboard = None;
    if let Some((table, span)) = tables(root, "dashboard", false, found).into_iter().next() {
        let read = dashboard::read(table, span, &around_dashboard, found);
        own_dashboard = read.as_ref().map(|read| read.process.name.clone());
        reads.extend(read);
    }
    for (table, span) in managers.into_iter().take(PROCESSES_MAX.saturating_sub(reads.len())) {
        reads.push(equipment::read(table, span, &called(table, "manager"), shield.is_some(), found));
    }
    for (table, span) in guests.into_iter().take(PROCESSES_MAX.saturating_sub(reads.len())) {
        let plant = (name.as_deref().unwrap_or_default(), dashboard::listens(root), shield.is_some());
        reads.push(guest::read(table, span, &called(table, "guest"), plant, found));
    }
    let watchdog = tables(root, "watchdog", false, found).first().map(|(table, span)| {
        let section = Section::open(table, span.clone(), &keys::WATCHDOG, "[watchdog]", found);
        let (second, hour) = (DurNs::from_secs(1), DurNs::from_secs(3600));
        (
            Watchdog {
                device: section.words("device", found).map_or("/dev/watchdog".to_owned(), |(path, _)| path.to_owned()),
                timeout: section.time("timeout", second, hour, found).map_or(DurNs::from_secs(10), |(t, _)| t),
            },
            span.clone(),
        )
    });
    let records = tables(root, "records", false, found).first().map_or(Records::default(), |(table, span)| {
        let section = Section::open(table, span.clone(), &keys::RECORDS, "[records]", found);
        Records {
            folder: section.words("folder", found).map(|(path, _)| path.to_owned()),
            also: section.parsed("also", found).map(|(also, _)| also),
        }
    });
    for (table, key, folder) in [
        ("archive", "folder", archive::folder(root)),
        ("records", "folder", records.folder.as_ref().map(PathBuf::from)),
    ] {
        let Some(Err(why)) = folder.map(|folder| around.can_hold(&folder)) else { continue };
        let table = root.get(table).and_then(|found| found.get_ref().as_table());
        let span = table.and_then(|table| table.get(key)).map_or(0..0, Spanned::span);
        let remedy = "name a folder on a disk, or make that one writable";
        found.error(span, format!("`{key}` cannot hold files: {why}"), "a folder that can be made and written", remedy);
    }
    let isolated = shield.as_ref().and_then(|(shield, section)| {
        let cpus = shield.as_ref()?.cpus;
        Some((cpus, section.value("cpus").map_or(section.range(), Spanned::span)))
    });
    let isolated_cpus = isolated.as_ref().map(|(cpus, _)| *cpus);
    // The content of a table with a syntax error is unknown, so errors about names and sums are not reported.
    reads.retain(|read| !found.is_broken(&read.header));
    if found.has_syntax_errors() {
        return Err(reads.into_iter().map(|read| read.process).collect());
    }
    across::check(
        &reads,
        shield.is_some(),
        isolated,
        watchdog.as_ref().map(|(_, span)| span.clone()),
        inactive,
        around,
        found,
    );
    partition::check(&mut partitions, &reads, isolated_cpus, around, found);
    let frames = frames::read_all(root, isolated_cpus, &reads, around, found);
    let process = |(frame, ratio): &_| frames::process(frame, *ratio, isolated_cpus.as_ref());
    let mut all: Vec<Process> = frames.iter().map(process).collect();
    all.extend(reads.into_iter().map(|read| read.process));
    let mut dashboard = match own_dashboard {
        Some(own) => all.iter().position(|process| process.name == own).map(|at| all.remove(at)),
        None if says_dashboard => None,
        None => {
            let is_taken = |name: &str| all.iter().any(|process| process.name == name);
            Some(dashboard::by_default(&around_dashboard, is_taken))
        }
    };
    let mut every: Vec<&mut Process> = all.iter_mut().chain(dashboard.as_mut()).collect();
    environment::complete(&env, alarms::server(root, name.as_deref()), &mut every);
    let shield = match shield {
        Some((shield, _)) => shield.map(Some),
        None => Some(None),
    };
    let (Some(name), Some(shield)) = (name, shield) else { return Err(all) };
    Ok(Box::new(Plant {
        dashboard: dashboard.map(Box::new),
        name,
        operators,
        shield,
        processes: all,
        partitions: partitions.into_iter().map(|(partition, _)| partition).collect(),
        frames: frames.into_iter().map(|(frame, _)| frame).collect(),
        watchdog: watchdog.map(|(watchdog, _)| watchdog),
        records,
        places: Places::of(root, joined),
    }))
}

fn read_shield(section: &Section<'_>, around: &dyn Surroundings, found: &mut Diagnostics<'_>) -> Option<Shield> {
    if section.value("cpus").is_none() {
        section.missing("cpus", found);
    }
    let profile = section.parsed("profile", found).map_or(crate::plan::Profile::ControlLoop, |(profile, _)| profile);
    let required = section.flag("required", found).unwrap_or(false);
    let irqs = section.texts("irqs", found).unwrap_or_default();
    let mut spare = Vec::new();
    if let Some(value) = section.value("spare") {
        match value.get_ref() {
            DeValue::Array(items) => {
                for item in items.iter() {
                    let text = match item.get_ref() {
                        DeValue::Integer(number) => Some(number.as_str()),
                        DeValue::String(text) => Some(text.as_ref()),
                        _ => None,
                    };
                    match text.and_then(|text| text.parse().ok()) {
                        Some(one) => spare.push(one),
                        None => section.wrong("spare", item, "process ids such as 1234, or \"1234+\"", found),
                    }
                }
            }
            _ => section.wrong("spare", value, "a list of process ids", found),
        }
    }
    let (cpus, span) = shield_cpus(section, around, found)?;
    if let Some(online) = around.online() {
        let absent = cpus.minus(&online);
        if !absent.is_empty() {
            let message = not_online(&absent, "to be isolated");
            found.error(span, message, format!("CPUs of this machine: {online}"), "");
        } else if online.is_subset(&cpus) {
            let expected = format!("at least one of CPUs {online} for other tasks");
            let remedy = if online.count() == 1 {
                "with one CPU there is nothing to isolate: remove [shield]".to_owned()
            } else {
                let rest = online.minus(&CpuSet::single(online.lowest().unwrap_or_default()));
                format!("for example `cpus = \"{rest}\"`")
            };
            found.error(span, "every CPU of the machine would be isolated", expected, remedy);
        }
    }
    let mut placed = Vec::new();
    for (text, span) in irqs {
        match text.parse::<crate::plan::Placed>() {
            Ok(irq) if cpus.contains(irq.cpu) => placed.push(irq),
            Ok(irq) => {
                let message = format!("CPU {} of interrupt {:?} is not isolated", irq.cpu, irq.words);
                found.error(span, message, format!("one of CPUs {cpus}"), "");
            }
            Err(why) => found.error(span, why.to_string(), "WORDS=CPU", ""),
        }
    }
    let parts = section.parsed("parts", found).map_or(crate::plan::ShieldParts::default(), |(parts, _)| parts);
    Some(Shield { cpus, profile, spare, required, irqs: placed, parts })
}

/// The message about CPUs that are not online.
fn not_online(absent: &CpuSet, of: &str) -> String {
    if absent.count() == 1 {
        format!("CPU {absent} {of} is not online")
    } else {
        format!("CPUs {absent} {of} are not online")
    }
}

/// The listed CPUs, or the best ones of this machine.
fn shield_cpus(
    section: &Section<'_>,
    around: &dyn Surroundings,
    found: &mut Diagnostics<'_>,
) -> Option<(CpuSet, std::ops::Range<usize>)> {
    let auto =
        section.value("cpus").filter(|value| value.get_ref().as_str().is_some_and(|text| text.starts_with("auto")));
    let Some(value) = auto else { return section.cpu_list("cpus", found) };
    let text = value.get_ref().as_str().unwrap_or_default();
    let chosen = match text.parse() {
        Ok(Choice::Cpus(cpus)) => Ok(cpus),
        Ok(Choice::Auto(count)) => around.choose(count).map_err(|why| why.to_string()),
        Err(why) => Err(why.to_string()),
    };
    match chosen {
        Ok(cpus) => Some((cpus, value.span())),
        Err(why) => {
            found.error(value.span(), why, "a CPU list such as \"2-3\", or \"auto:2\" for the two best", "");
            None
        }
    }
}

#[cfg(test)]
mod join_tests;
#[cfg(test)]
mod tests;
