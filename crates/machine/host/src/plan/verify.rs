//! Verification of a plan: compares the machine with the values that were written.

use super::Step;
use crate::snapshot::{Snapshot, Target, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A value that differs from the written one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// The target.
    pub target: Target,
    /// Name of the value for users.
    pub label: String,
    /// The written value.
    pub expected: Value,
    /// The value found.
    pub found: Value,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wrote {}, found {}", self.label, self.expected, self.found)
    }
}

/// Compares a machine with the executed steps. Tasks that ended and devices that were removed do not count as drift.
#[must_use]
pub fn verify(snapshot: &Snapshot, steps: &[Step]) -> Vec<Drift> {
    let last: BTreeMap<&Target, &Step> = steps.iter().map(|step| (&step.target, step)).collect();
    let drift = |step: &&Step| {
        let found = snapshot.get(&step.target);
        let gone = found == Value::Absent && !matches!(step.target, Target::Dir { .. } | Target::File { .. });
        (!gone && !found.agrees(&step.to) && !is_led(snapshot, step, &found)).then(|| Drift {
            target: step.target.clone(),
            label: step.label.clone(),
            expected: step.to.clone(),
            found,
        })
    };
    steps
        .iter()
        .filter(|step| last.get(&step.target).is_some_and(|it| std::ptr::eq(*it, *step)))
        .filter(|step| !step.remembers())
        .filter_map(|step| drift(&step))
        .collect()
}

/// Whether another program or the kernel narrowed the value legitimately: irqbalance distributes an interrupt over some
/// of the CPUs that the step left, and the kernel moves an interrupt's thread to the CPU of the interrupt.
fn is_led(snapshot: &Snapshot, step: &Step, found: &Value) -> bool {
    let cpus = |value: &Value| match value {
        Value::Place(place) => Some(place.cpus),
        value => value.cpus(),
    };
    let within = cpus(found).zip(cpus(&step.to)).is_some_and(|(found, left)| found.is_subset(&left));
    let somebody_leads = match &step.target {
        Target::Irq { .. } => snapshot.irqbalance.is_some(),
        Target::Task { key } => snapshot.tasks.get(key).is_some_and(|task| task.handles_irq().is_some()),
        _ => false,
    };
    somebody_leads && within
}
