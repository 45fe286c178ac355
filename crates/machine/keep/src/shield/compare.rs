//! Compares the active shield with its journal: settings, control groups, interrupts, and tasks that were moved away.
//!
//! One pass reads the journal and one file per setting and interrupt, and makes one system call per moved task.

use super::journal::Journal;
use super::machine::{Machine as _, RealMachine};
use super::{Error, ShieldGroup};
use base::CpuSet;
use host::plan::{Drift, Step};
use host::snapshot::{Placement, Target, TaskKey, Value};
use proc::interrupts::{Interrupts, Row};
use proc::task_stat::Stat;
use std::collections::{BTreeMap, BTreeSet};
use sys::kernel::Kernel;

/// Maximum interrupts read in one pass.
const IRQS_MAX: usize = 4096;

/// Maximum tasks read in one pass.
const TASKS_MAX: usize = 1 << 16;

/// Differences from the written values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// Settings, control groups, interrupts and tasks whose value differs from the written one.
    pub drift: Vec<Drift>,
    /// New interrupts that the kernel does not allow to be moved.
    pub unavailable: Vec<String>,
}

/// Compares the machine with a shield's journal. Steps that the kernel refused are not compared.
///
/// # Errors
/// A setting cannot be read.
pub fn compare<K: Kernel + Clone>(root: &K, journal: &Journal) -> Result<Compared, Error> {
    let mut compared = Compared::default();
    let steps = journal.steps();
    let refused: BTreeSet<&Target> = journal.refused.iter().map(|refused| &refused.target).collect();
    let last: BTreeMap<&Target, &Step> = steps.iter().map(|step| (&step.target, step)).collect();
    let is_wanted = |step: &&Step| !step.remembers() && !refused.contains(&step.target);
    let mut machine = RealMachine::new(root.clone());
    for step in last.values().copied().filter(is_wanted) {
        if !matches!(step.target, Target::File { .. } | Target::Dir { .. } | Target::Class { .. }) {
            continue;
        }
        let found = machine.read(&step.target)?;
        let has_ended = found == Value::Absent && matches!(step.target, Target::Class { .. });
        if !has_ended && !found.agrees(&step.to) {
            compared.drift.push(drift(step, found));
        }
    }
    if journal.want.parts.interrupts {
        interrupts(root, journal, &refused, &mut compared);
    }
    if journal.want.parts.tasks {
        let moved = last.values().copied().filter(is_wanted).filter_map(|step| match (&step.target, &step.to) {
            (Target::Task { key }, Value::Place(to)) => Some((step, *key, to)),
            _ => None,
        });
        for (step, key, to) in moved.take(TASKS_MAX) {
            compared.drift.extend(task(root, journal, (step, key, to)));
        }
    }
    Ok(compared)
}

fn drift(step: &Step, found: Value) -> Drift {
    Drift { target: step.target.clone(), label: step.label.clone(), expected: step.to.clone(), found }
}

/// Checks every interrupt, including those that no step moved. Only interrupts placed on a shielded CPU may go to it.
fn interrupts(root: &impl Kernel, journal: &Journal, refused: &BTreeSet<&Target>, compared: &mut Compared) {
    let shield = &journal.want.cpus;
    let text = root.read("/proc/interrupts").unwrap_or_default();
    let Ok(table) = Interrupts::parse(&text) else { return };
    let rows: BTreeMap<u32, &Row<'_>> = table.rows.iter().filter_map(|row| Some((row.number()?, row))).collect();
    for (key, number) in crate::machine::irq_keys(&table).into_iter().take(IRQS_MAX) {
        let file = format!("/proc/irq/{number}/smp_affinity_list");
        // A removed device has no file.
        let Some(found) = root.read(&file).ok().and_then(|text| text.parse::<CpuSet>().ok()) else { continue };
        let placed = journal.want.irqs.iter().find(|placed| key.0.contains(&placed.words));
        let expected = match placed {
            Some(placed) => CpuSet::single(placed.cpu),
            None => found.minus(shield),
        };
        if found == expected {
            continue;
        }
        let label = format!("interrupt {number} ({key})");
        let target = Target::Irq { key };
        if refused.contains(&target) {
            continue;
        }
        let is_stuck =
            root.is_writable(&file) == Some(false) || rows.get(&number).is_some_and(|row| row.is_known_to_be_managed());
        if is_stuck {
            compared.unavailable.push(format!("{label} goes to CPUs {found}, and the kernel does not move it"));
        } else {
            let (expected, found) = (Value::Cpus(expected), Value::Cpus(found));
            compared.drift.push(Drift { target, label, expected, found });
        }
    }
}

/// A moved task that may run on the shielded CPUs again. A task that its owner moved into the shield belongs there.
fn task(root: &impl Kernel, journal: &Journal, moved: (&Step, TaskKey, &Placement)) -> Option<Drift> {
    let (step, key, to) = moved;
    let shield = &journal.want.cpus;
    let cpus = root.affinity(key.tid).ok()?;
    if !cpus.intersects(shield) || to.cpus.intersects(shield) {
        return None;
    }
    let stat = Stat::parse(&root.read(&format!("/proc/{}/stat", key.tid)).ok()?)?;
    // An interrupt thread follows its interrupt, which is compared itself.
    let is_other = stat.start != key.start || stat.is_dead() || stat.comm.starts_with("irq/");
    if is_other || is_resident(root, &journal.place, key.tid, shield, &cpus) {
        return None;
    }
    let found = Placement { cpuset: to.cpuset.clone(), cpus, own: to.own };
    Some(drift(step, Value::Place(found)))
}

/// Whether a task is in the group of the shield's own tasks.
fn is_resident(root: &impl Kernel, place: &ShieldGroup, tid: i32, shield: &CpuSet, cpus: &CpuSet) -> bool {
    match place {
        ShieldGroup::Affinity => cpus.is_subset(shield),
        ShieldGroup::CpusetV1 { dir } | ShieldGroup::CgroupV2 { dir } => {
            let text = root.read(&format!("/proc/{tid}/cgroup")).unwrap_or_default();
            let name = dir.rsplit('/').next().unwrap_or(dir);
            proc::cgroup::memberships(&text).any(|one| one.path.split('/').any(|part| part == name))
        }
    }
}
