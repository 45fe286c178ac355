//! Status of an active shield: what reaches its CPUs, and what has changed since.

use super::journal::{Journal, State};
use super::machine::{Machine, RealMachine};
use super::{Applied, Error, ShieldGroup, current, drift, here, repair_on};
use crate::RunDir;
use base::text::Counted;
use base::{CpuId, CpuSet};
use host::plan::{self, Drift, ForeignValue, Note, Step, Want};
use host::reach::{CpuReach, reach};
use host::snapshot::{Snapshot, Task, TaskKey};
use host::suggest::{self, Reason};
use serde::Serialize;
use std::time::Duration;
use sys::root::RootDir;

/// Something that stays on shielded CPUs, or a change that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unmoved {
    /// The CPU; `None` if it concerns the whole shield.
    pub cpu: Option<CpuId>,
    /// The interrupt, task or setting.
    pub what: String,
    /// Why it stays.
    pub reason: String,
}

/// Status of a shield.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The requested shield; `None` if no shield is active.
    pub want: Option<Want>,
    /// Length of the counting window in milliseconds.
    pub window_ms: u64,
    /// Counts per CPU.
    pub cpus: Vec<CpuReach>,
    /// Values that differ from the written ones.
    pub drift: Vec<Drift>,
    /// New tasks and other changes, as the steps that would move them away.
    pub newcomers: Vec<Step>,
    /// Interrupts, tasks and settings that the shield could not move or change.
    pub unmoved: Vec<Unmoved>,
    /// State and CPUs of a shield that is not active.
    pub leftover: Option<(State, CpuSet)>,
    /// Values that another program changed.
    pub kept: Vec<ForeignValue>,
    /// Control groups of a shield without a journal.
    pub orphans: Vec<String>,
}

/// Counts what reaches the CPUs over `window`, and compares the machine with the journal.
///
/// # Errors
/// The machine or the journal cannot be read.
pub fn status(root: &RootDir, dir: &RunDir, window: Duration) -> Result<Status, Error> {
    let (journal, left) = match here(root, dir)? {
        Some(journal) if journal.state == State::Applied => (Some(journal), None),
        left => (None, left),
    };
    let want = journal.as_ref().map(|journal| journal.want.clone());
    let cpus = want.as_ref().map(|want| want.cpus).unwrap_or_default();
    let snapshot = RealMachine::at(root).snapshot(&cpus)?;
    let may_come = |task: &Task| task.cpus.intersects(&cpus);
    let keys: Vec<TaskKey> = snapshot.tasks.iter().filter(|(_, task)| may_come(task)).map(|(key, _)| *key).collect();
    let before = crate::machine::sample(root, keys.iter());
    std::thread::sleep(window);
    let after = crate::machine::sample(root, keys.iter());
    let place = journal.as_ref().map(|journal| journal.place.clone()).unwrap_or_default();
    let reached = reach(&snapshot, &cpus, |task| is_resident(&snapshot, &place, &cpus, task), &before, &after);
    let (drift, newcomers, unmoved) = match &journal {
        Some(journal) => (drift(&snapshot, journal), newcomers(&snapshot, journal), unmoved(&snapshot, journal)),
        None => (Vec::new(), Vec::new(), Vec::new()),
    };
    let (leftover, kept) = left.map_or((None, Vec::new()), |left| (Some((left.state, left.want.cpus)), left.kept));
    let orphans = match plan::orphans(&snapshot) {
        _ if want.is_some() || leftover.is_some() => Vec::new(),
        Ok(steps) => steps.into_iter().map(|step| step.label).collect(),
        Err(in_use) => vec![format!("{}, in use ({})", in_use.dir, in_use.by)],
    };
    let window_ms = window.as_millis() as u64;
    Ok(Status { want, window_ms, cpus: reached, drift, newcomers, unmoved, leftover, kept, orphans })
}

/// Whether a task belongs to the shield.
fn is_resident(snapshot: &Snapshot, place: &ShieldGroup, cpus: &CpuSet, task: &Task) -> bool {
    match place {
        ShieldGroup::Affinity => !task.kernel && task.cpus.is_subset(cpus),
        ShieldGroup::CpusetV1 { dir } | ShieldGroup::CgroupV2 { dir } => {
            snapshot.cpuset_of_dir(dir).zip(task.cpuset.as_deref()).is_some_and(|(own, cpuset)| {
                cpuset == own || cpuset.strip_prefix(own).is_some_and(|rest| rest.starts_with('/'))
            })
        }
    }
}

/// Interrupts that stay on the shielded CPUs, refused steps, and the remarks of the plan, with their reasons.
fn unmoved(snapshot: &Snapshot, journal: &Journal) -> Vec<Unmoved> {
    let shielded = suggest::rank(snapshot).into_iter().filter(|rated| journal.want.cpus.contains(rated.cpu));
    let interrupts = shielded.flat_map(|rated| {
        let cpu = Some(rated.cpu);
        rated.reasons.into_iter().filter_map(move |reason| match reason {
            Reason::Interrupt { name, count } => {
                let count = Counted(usize::try_from(count).unwrap_or(usize::MAX), "time");
                let reason = format!("the kernel or its driver does not let it move; {count} here since boot");
                Some(Unmoved { cpu, what: format!("interrupt {name}"), reason })
            }
            Reason::First | Reason::Sibling { .. } => None,
        })
    });
    let refused = journal.refused.iter().map(|refused| {
        let why = if refused.why.is_empty() { String::new() } else { format!("; {}", refused.why) };
        Unmoved { cpu: None, what: refused.label.clone(), reason: format!("{}{why}", refused.answer) }
    });
    let note = |note: &Note| Unmoved { cpu: None, what: note.about.clone(), reason: note.text.clone() };
    let mut all: Vec<Unmoved> = interrupts.collect();
    all.sort_by_key(|one| one.cpu);
    all.extend(refused.chain(journal.notes.iter().map(note)));
    all
}

/// Steps that an apply would execute now.
fn newcomers(snapshot: &Snapshot, journal: &Journal) -> Vec<Step> {
    let refused = journal.refused.iter().map(|refused| &refused.target);
    plan::plan(snapshot, &journal.want).map(|plan| plan.without(refused).steps).unwrap_or_default()
}

/// One check: finds drift and new tasks, and with `repair` corrects them. Returns `None` if no shield is active, or if
/// it was released before the repair.
///
/// # Errors
/// The machine or the journal cannot be read, or the repair fails.
pub fn look(root: &RootDir, dir: &RunDir, repair: bool) -> Result<Option<Look>, Error> {
    let Some(journal) = current(root, dir)? else { return Ok(None) };
    let snapshot = RealMachine::at(root).snapshot(&journal.want.cpus)?;
    let newcomers = newcomers(&snapshot, &journal);
    let drift = drift(&snapshot, &journal);
    let mut repaired = None;
    if repair && !newcomers.is_empty() {
        let _guards = super::guards::SuspendedGuards::suspend(root);
        repaired = repair_on(&mut RealMachine::at(root), dir)?;
        if repaired.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(Look { drift, newcomers, repaired }))
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Look {
    /// Values that differ from the written ones.
    pub drift: Vec<Drift>,
    /// New tasks and other changes, as the steps that would move them away.
    pub newcomers: Vec<Step>,
    /// Result of the repair, if there was one.
    pub repaired: Option<Applied>,
}

#[cfg(test)]
mod tests {
    use super::super::journal::Refused;
    use super::*;
    use host::snapshot::{Irq, IrqKey, Target};

    #[test]
    fn interrupts_refusals_and_remarks_are_listed_with_the_reason_why_they_stay() {
        let mut snapshot = Snapshot::default();
        snapshot.cpus.online = "0-3".parse().unwrap();
        let irq = |number, stuck| Irq { number, stuck, ..Irq::default() };
        snapshot.irqs.insert(IrqKey("virtio0-req.2".into()), irq(37, [(3, 9)].into()));
        snapshot.irqs.insert(IrqKey("virtio0-req.1".into()), irq(36, [(2, 1), (0, 5)].into()));
        snapshot.irqs.insert(IrqKey("eth0".into()), irq(38, [].into()));
        let want = Want { cpus: "2-3".parse().unwrap(), ..Want::default() };
        let mut journal = Journal::new("boot", &want, "cgroup v2", ShieldGroup::Affinity);
        journal.refused.push(Refused {
            target: Target::Irqbalance,
            label: "watchdog".into(),
            answer: "Invalid argument".into(),
            why: "the kernel has no watchdog".into(),
        });
        journal.notes.push(Note { about: "kernel threads".into(), text: "2 are bound".into() });
        let lines: Vec<String> = unmoved(&snapshot, &journal)
            .iter()
            .map(|one| format!("{:?} {}: {}", one.cpu, one.what, one.reason))
            .collect();
        let stays = "the kernel or its driver does not let it move";
        assert_eq!(
            lines,
            [
                format!("Some(2) interrupt 36 (virtio0-req.1): {stays}; 1 time here since boot"),
                format!("Some(3) interrupt 37 (virtio0-req.2): {stays}; 9 times here since boot"),
                "None watchdog: Invalid argument; the kernel has no watchdog".to_owned(),
                "None kernel threads: 2 are bound".to_owned(),
            ]
        );
    }
}
