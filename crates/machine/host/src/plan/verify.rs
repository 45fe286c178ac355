//! What is not as planned, found by looking again.

use super::Step;
use crate::snapshot::{Snapshot, Target, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A value that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// Where.
    pub target: Target,
    /// Its name for people.
    pub label: String,
    /// What was written.
    pub expected: Value,
    /// What stands there.
    pub found: Value,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wrote {}, found {}", self.label, self.expected, self.found)
    }
}

/// Compares a machine with the steps that were taken; tasks that ended and devices that went are no drift.
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

/// Whether this is an interrupt that irqbalance has spread over some of the CPUs that the step left it, or the thread of a handler that
/// the kernel has led to where its interrupt goes.
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
