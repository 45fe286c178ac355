//! Partitions on the real machine: limits that several processes share. They are set before the first process starts
//! and removed after the last has ended.
//!
//! `host::partition` decides. This module records its steps in the plant's folder, executes them with the shield's
//! executor, and verifies them. If this process is killed at any moment, the next [`raise`] or [`lower`] continues from
//! the journal.

mod ground;
mod journal;
mod standing;
mod traffic;

pub use ground::{ground, resctrl};
pub use standing::{Processor, Sending, Stands};
pub(crate) use traffic::{read, write};

use crate::RunDir;
use crate::group::Group;
use crate::shield::executor::{Stopped, execute};
use crate::shield::machine::Machine;
use base::DurNs;
use host::partition::{
    DIR_BEGINS, Ground, Home, Lack, RequestedValue, Version, drift, dropped, homes, made, plan, wanted,
};
use host::plan::{Drift, Plan, revert};
use host::plant::Partition;
use host::snapshot::{Target, Value};
use journal::{Journal, JournalError};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

/// Rounds: directories, files in them, verification without steps, and one spare.
const ROUNDS_MAX: usize = 4;
/// Number of attempts to remove a directory while its last members end, and the pause between them.
const ENDINGS: usize = 100;
const PAUSE: DurNs = DurNs::from_ms(10);

/// Active partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    each: Vec<Standing>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    name: String,
    homes: Vec<Home>,
    wanted: Vec<RequestedValue>,
}

/// Result of raising partitions.
#[derive(Debug, Default)]
pub struct Raised {
    /// Active partitions.
    pub partitions: Partitions,
    /// Missing limits of partitions that are not required.
    pub lacks: Vec<String>,
    /// Writes that succeeded.
    pub writes: usize,
}

/// Result of removing partitions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lowered {
    /// Targets that remain, with the reason.
    pub left: Vec<String>,
}

/// Reason why partitions are not active. Everything created was removed.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The machine lacks something.
    #[error("partition {name:?} cannot have these bounds: {}", words(.lacks))]
    Lacks {
        /// The partition.
        name: String,
        /// The missing things.
        lacks: Vec<Lack>,
    },
    /// The kernel refused a step, or another program wrote in between.
    #[error("partitions cannot have these bounds: {0}; everything was restored")]
    Refused(String),
    /// The kernel accepted a value, but the file reads otherwise.
    #[error("{} was set to {}, but reads {}; everything was restored", .0.label, .0.expected, .0.found)]
    Differs(Box<Drift>),
    /// The partition is to be removed, but has processes.
    #[error("partition {0:?} is to be removed, but has processes; stop them first (`tahti stop`)")]
    StillOccupied(String),
    /// The processes would have to move to other control groups.
    #[error("partition {name:?} needs control groups that its processes are not in ({}); stop them first (`tahti stop`), or use `tahti down` and `tahti up`", .dirs.join(", "))]
    Occupied {
        /// The partition.
        name: String,
        /// The groups.
        dirs: Vec<String>,
    },
    /// The old values cannot be recorded.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The machine cannot be read.
    #[error(transparent)]
    Machine(#[from] sys::Error),
}

fn words(lacks: &[Lack]) -> String {
    lacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Directory name of a partition. The hash separates plants of the same name in several run directories.
fn dir_name(dir: &RunDir, partition: &str) -> String {
    let mut hasher = DefaultHasher::new();
    dir.path().hash(&mut hasher);
    let plant = dir.path().file_name().unwrap_or_default().to_string_lossy();
    format!("{DIR_BEGINS}{plant}.{partition}-{:08x}", hasher.finish() as u32)
}

/// Things that the machine lacks for a partition whose processes in `on_shield` use the shield. Nothing is written.
#[must_use]
pub fn lacking(ground: &Ground, partition: &Partition, on_shield: &[String]) -> Vec<Lack> {
    let (homes, mut lacks) = homes(ground, &partition.name, partition);
    // If version 1 is available, the shield's groups are in version 1, and version 2 only identifies senders.
    let is_shields =
        |home: &Home| home.version == Version::V2 && (!home.controllers.is_empty() || ground.v1.is_empty());
    if homes.iter().any(is_shields) {
        lacks.extend(on_shield.iter().cloned().map(Lack::OnShield));
    }
    lacks
}

/// Sets up the partitions of the plant whose folder is `dir`. May be called again; continues after a kill.
///
/// # Errors
/// A required partition is impossible. Then none is left, unless processes are in them.
pub fn raise(
    machine: &mut dyn Machine,
    dir: &RunDir,
    partitions: &[Partition],
    ground: Ground,
    all_required: bool,
) -> Result<Raised, PartitionError> {
    let boot = machine.boot_id();
    let found = Journal::load(dir, &boot)?;
    if partitions.is_empty() && found.is_none() {
        return Ok(Raised::default());
    }
    // With a journal, directories stay where they are: processes may be running in them.
    let mut journal = found.unwrap_or_else(|| Journal::new(&boot, ground.clone()));
    (journal.ground.devices, journal.ground.links) = (ground.devices, ground.links);
    journal.ground.resctrl = ground.resctrl;
    let outcome = raise_noted(machine, dir, partitions, &mut journal, all_required);
    if outcome.is_err() {
        // Targets that cannot be removed now stay in the journal.
        let _ = take_back(machine, dir, &journal, 1);
    }
    outcome
}

/// Changes the partitions of a running plant from `old` to `new`. Limits change in place, including those that another
/// program has overwritten. Removed limits are restored to their old values. `occupied` are the partitions with
/// processes.
///
/// # Errors
/// The reason. The partitions are then as in `old`, as far as the kernel allows.
pub fn change(
    machine: &mut dyn Machine,
    dir: &RunDir,
    [old, new]: [&[Partition]; 2],
    occupied: &BTreeSet<String>,
    ground: Ground,
    all_required: bool,
) -> Result<Raised, PartitionError> {
    let boot = machine.boot_id();
    let mut journal = Journal::load(dir, &boot)?.unwrap_or_else(|| Journal::new(&boot, ground.clone()));
    (journal.ground.devices, journal.ground.links) = (ground.devices, ground.links);
    journal.ground.resctrl = ground.resctrl;
    let dirs = |list: &[Partition], name: &str| -> BTreeSet<String> {
        let one = list.iter().find(|one| one.name == name);
        let homes = one.map(|one| homes(&journal.ground, &dir_name(dir, name), one).0);
        homes.into_iter().flatten().map(|home| home.dir).collect()
    };
    let mut kept = BTreeSet::new();
    for name in occupied {
        let (had, wants) = (dirs(old, name), dirs(new, name));
        let more: Vec<String> = wants.difference(&had).cloned().collect();
        if !more.is_empty() {
            return Err(PartitionError::Occupied { name: name.clone(), dirs: more });
        }
        // Also directories that an earlier change left, because the processes are in them.
        let called = format!("/{}", dir_name(dir, name));
        kept.extend(journal.dirs().into_iter().filter(|dir| dir.ends_with(&called)));
    }
    let outcome = change_noted(machine, dir, new, &kept, &mut journal, all_required);
    if outcome.is_err() {
        // The refusal is returned. Restoring `old` should succeed, because it was set before.
        let _ = change_noted(machine, dir, old, &kept, &mut journal, all_required);
    }
    outcome
}

fn change_noted(
    machine: &mut dyn Machine,
    dir: &RunDir,
    partitions: &[Partition],
    kept: &BTreeSet<String>,
    journal: &mut Journal,
    all_required: bool,
) -> Result<Raised, PartitionError> {
    let wants = |one: &Partition| {
        let (homes, _) = homes(&journal.ground, &dir_name(dir, &one.name), one);
        wanted(&journal.ground, &homes, one, partitions)
    };
    let wanted: Vec<RequestedValue> = partitions.iter().flat_map(wants).collect();
    let noted = journal.steps();
    let mut seen = BTreeMap::new();
    for step in &noted {
        seen.insert(step.target.clone(), machine.read(&step.target)?);
    }
    let plan = dropped(&noted, &wanted, kept, &seen);
    let mut writes = 0;
    if !plan.steps.is_empty() {
        for step in &plan.steps {
            if let (Target::Dir { path }, Value::Absent) = (&step.target, &step.to) {
                Group::remove_below(&PathBuf::from(path));
            }
        }
        journal.rounds.push(plan.steps);
        journal.save(dir)?;
        let executed = execute(machine, journal.rounds.last().map_or(&[], Vec::as_slice));
        writes = executed.writes;
        match executed.stopped {
            None => {}
            Some(Stopped::Refused(refused)) => return Err(PartitionError::Refused(refused.answer)),
            Some(Stopped::Moved { label, expected, found }) => {
                let why = format!("{label} changed meanwhile: expected {expected}, found {found}");
                return Err(PartitionError::Refused(why));
            }
        }
    }
    // A value that is as it was before needs no restore step.
    let stays = |target: &Target| {
        let is_kept = matches!(target, Target::Dir { path } if kept.contains(path));
        is_kept || wanted.iter().any(|one| one.target == *target)
    };
    journal.rounds.iter_mut().for_each(|steps| steps.retain(|step| stays(&step.target)));
    journal.rounds.retain(|steps| !steps.is_empty());
    if journal.rounds.is_empty() {
        Journal::remove(dir)?;
    } else {
        journal.save(dir)?;
    }
    let mut raised = raise_noted(machine, dir, partitions, journal, all_required)?;
    raised.writes += writes;
    Ok(raised)
}

fn raise_noted(
    machine: &mut dyn Machine,
    dir: &RunDir,
    partitions: &[Partition],
    journal: &mut Journal,
    all_required: bool,
) -> Result<Raised, PartitionError> {
    let mut raised = Raised::default();
    for partition in partitions {
        let required = partition.required || all_required;
        let (homes, lacks) = homes(&journal.ground, &dir_name(dir, &partition.name), partition);
        if required && !lacks.is_empty() {
            return Err(PartitionError::Lacks { name: partition.name.clone(), lacks });
        }
        let lacks = lacks.into_iter().map(|lack| format!("partition {:?}: {lack}", partition.name));
        raised.lacks.extend(lacks);
        let mut wanted = wanted(&journal.ground, &homes, partition, partitions);
        let mut refused: Vec<Target> = Vec::new();
        for round in 0..=ROUNDS_MAX {
            let seen = look(machine, &wanted)?;
            let plan = match plan(&seen, &wanted, &journal.targets(), required) {
                Ok(plan) => plan.without(refused.iter()),
                Err(lacks) if required => return Err(PartitionError::Lacks { name: partition.name.clone(), lacks }),
                Err(lacks) => {
                    let paths = lacks.iter().filter_map(lost).collect::<BTreeSet<_>>();
                    wanted.retain(|one| !matches!(&one.target, Target::File { path, .. } | Target::Dir { path } if paths.iter().any(|lost| path.starts_with(*lost))));
                    raised.lacks.extend(lacks.iter().map(|lack| format!("partition {:?}: {lack}", partition.name)));
                    continue;
                }
            };
            if plan.steps.is_empty() {
                break;
            }
            if round == ROUNDS_MAX {
                let first = drift(&seen, &wanted).into_iter().next();
                let Some(drift) = first else { break };
                if required {
                    return Err(PartitionError::Differs(Box::new(drift)));
                }
                raised.lacks.push(format!("{} reads {}, expected {}", drift.label, drift.found, drift.expected));
                break;
            }
            journal.rounds.push(plan.steps);
            journal.save(dir)?;
            let executed = execute(machine, journal.rounds.last().map_or(&[], Vec::as_slice));
            raised.writes += executed.writes;
            let said =
                |one: &crate::shield::journal::Refused| format!("partition {:?}: {}", partition.name, one.answer);
            raised.lacks.extend(executed.refused.iter().map(said));
            refused.extend(executed.refused.into_iter().map(|one| one.target));
            match executed.stopped {
                None => {}
                Some(Stopped::Refused(refused)) => return Err(PartitionError::Refused(refused.answer)),
                Some(Stopped::Moved { label, expected, found }) => {
                    let why = format!("{label} changed meanwhile: expected {expected}, found {found}");
                    return Err(PartitionError::Refused(why));
                }
            }
        }
        wanted.retain(|one| !refused.contains(&one.target));
        raised.partitions.each.push(Standing { name: partition.name.clone(), homes, wanted });
    }
    Ok(raised)
}

/// The path that a lack makes unusable.
fn lost(lack: &Lack) -> Option<&str> {
    match lack {
        Lack::File { path, .. } | Lack::Foreign(path) => Some(path),
        _ => None,
    }
}

/// Removes everything that the journal in `dir` lists, after all members have ended.
///
/// # Errors
/// The journal cannot be read or removed. Targets that cannot be removed are returned and stay in the journal.
pub fn lower(machine: &mut dyn Machine, dir: &RunDir) -> Result<Lowered, PartitionError> {
    match Journal::load(dir, &machine.boot_id())? {
        None => Ok(Lowered::default()),
        Some(journal) => take_back(machine, dir, &journal, ENDINGS),
    }
}

fn take_back(
    machine: &mut dyn Machine,
    dir: &RunDir,
    journal: &Journal,
    endings: usize,
) -> Result<Lowered, PartitionError> {
    let steps = made(&journal.steps());
    let mut back = revert(&Plan { steps, ..Plan::default() }).steps;
    back.iter_mut().for_each(|step| step.may_refuse = Some("a process may be in it".to_owned()));
    let mut left = Vec::new();
    for ending in 0..endings {
        if ending > 0 {
            // A killed process needs a moment to end.
            std::thread::sleep(PAUSE.to_std());
        }
        // Groups of processes whose keepers were killed.
        journal.dirs().into_iter().for_each(|dir| Group::remove_below(&PathBuf::from(dir)));
        let executed = execute(machine, &back);
        left = executed.refused.into_iter().map(|refused| refused.answer).collect();
        let stopped = executed.stopped.into_iter().map(|stopped| match stopped {
            Stopped::Moved { label, expected, found } => format!("{label}: expected {expected}, found {found}"),
            Stopped::Refused(refused) => refused.answer,
        });
        left.extend(stopped);
        if left.is_empty() {
            Journal::remove(dir)?;
            break;
        }
    }
    Ok(Lowered { left })
}

fn look(machine: &mut dyn Machine, wanted: &[RequestedValue]) -> Result<BTreeMap<Target, Value>, sys::Error> {
    wanted.iter().map(|one| Ok((one.target.clone(), machine.read(&one.target)?))).collect()
}

impl Partitions {
    /// Whether there are no partitions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// The directories that a process of this partition joins.
    #[must_use]
    pub fn dirs(&self, name: &str) -> Vec<PathBuf> {
        let one = self.each.iter().find(|one| one.name == name);
        one.map_or(Vec::new(), |one| one.homes.iter().map(|home| PathBuf::from(&home.dir)).collect())
    }

    /// Values that differ from the written ones because another program changed them.
    ///
    /// # Errors
    /// The machine cannot be read.
    pub fn drift(&self, machine: &mut dyn Machine) -> Result<Vec<(String, Drift)>, sys::Error> {
        let mut all = Vec::new();
        for one in &self.each {
            let seen = look(machine, &one.wanted)?;
            all.extend(drift(&seen, &one.wanted).into_iter().map(|drift| (one.name.clone(), drift)));
        }
        Ok(all)
    }

    /// Use and limits of each partition.
    #[must_use]
    pub fn stand(&self) -> Vec<Stands> {
        self.each.iter().map(|one| standing::of(&one.name, &one.homes, &one.wanted)).collect()
    }
}
