//! Executes the steps of a plan in order. It makes no decisions.

use super::journal::Refused;
use super::machine::{Machine, is_gone};
use host::plan::Step;
use host::snapshot::{Target, Value};

/// Result of executing a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// Writes that succeeded.
    pub writes: usize,
    /// Steps whose value was already set, or whose target was gone.
    pub skipped: usize,
    /// Indices of steps whose task or interrupt was not where the plan had it. A new kernel thread is still being
    /// placed, or irqbalance moves interrupts after a setting. Nothing was written; the next read decides.
    pub strayed: Vec<usize>,
    /// Optional steps that the kernel refused.
    pub refused: Vec<Refused>,
    /// Reason why the remaining steps were not executed.
    pub stopped: Option<Stopped>,
}

/// Reason why a plan was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The present value is not the one that the plan was made from.
    Moved {
        /// Name of the value for users.
        label: String,
        /// Value that the plan was made from.
        expected: String,
        /// Value found.
        found: String,
    },
    /// The kernel refused.
    Refused(Refused),
}

/// Executes `steps` in order and stops at the first required step that fails.
pub fn execute(machine: &mut dyn Machine, steps: &[Step]) -> Executed {
    let mut outcome = Executed::default();
    for (index, step) in steps.iter().enumerate() {
        if step.remembers() {
            outcome.skipped += 1;
            continue;
        }
        let found = match machine.read(&step.target) {
            Ok(found) => found,
            Err(error) if is_gone(error.errno) => Value::Absent,
            Err(error) => {
                if !refuse(&mut outcome, step, &error) {
                    return outcome;
                }
                continue;
            }
        };
        if found.agrees(&step.to) || (found == Value::Absent && step.from != Value::Absent) {
            outcome.skipped += 1;
            continue;
        }
        if !found.agrees(&step.from) {
            if matches!(step.target, Target::Task { .. } | Target::Irq { .. }) {
                outcome.strayed.push(index);
                continue;
            }
            let (label, expected) = (step.label.clone(), step.from.to_string());
            outcome.stopped = Some(Stopped::Moved { label, expected, found: found.to_string() });
            return outcome;
        }
        match machine.write(step).and_then(|()| proven(machine, step)) {
            Ok(()) => outcome.writes += 1,
            Err(error) if is_gone(error.errno) && matches!(step.to, Value::Place(_)) => outcome.skipped += 1,
            Err(error) => {
                if !refuse(&mut outcome, step, &error) {
                    return outcome;
                }
            }
        }
    }
    outcome
}

/// A partition file accepts every state and then reports the result: only reading it back proves success.
fn proven(machine: &mut dyn Machine, step: &Step) -> Result<(), sys::Error> {
    let (Target::File { path, .. }, Value::Text(wanted)) = (&step.target, &step.to) else { return Ok(()) };
    if !path.ends_with("/cpuset.cpus.partition") {
        return Ok(());
    }
    let found = machine.read(&step.target)?;
    if found == step.to {
        return Ok(());
    }
    let doing = format!("make {path} {wanted}: the kernel accepted the write, but the file reads {found}");
    Err(sys::Error { doing, errno: rustix::io::Errno::INVAL })
}

/// Records a refusal. Returns whether the plan continues.
fn refuse(outcome: &mut Executed, step: &Step, error: &sys::Error) -> bool {
    let refused = Refused {
        target: step.target.clone(),
        label: step.label.clone(),
        answer: error.to_string(),
        why: step.may_refuse.clone().unwrap_or_default(),
    };
    if step.may_refuse.is_some() {
        outcome.refused.push(refused);
        return true;
    }
    outcome.stopped = Some(Stopped::Refused(refused));
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::CpuSet;
    use host::snapshot::{Placement, Snapshot, TaskKey};

    /// A machine on which every target has the same value. A write fails the test.
    struct Stone(Value);

    impl Machine for Stone {
        fn boot_id(&mut self) -> String {
            String::new()
        }

        fn snapshot(&mut self, _: &CpuSet) -> Result<Snapshot, sys::Error> {
            Ok(Snapshot::default())
        }

        fn look_again(&mut self, before: &Snapshot, _: &[Step]) -> Result<Snapshot, sys::Error> {
            Ok(before.clone())
        }

        fn read(&mut self, _: &Target) -> Result<Value, sys::Error> {
            Ok(self.0.clone())
        }

        fn write(&mut self, step: &Step) -> Result<(), sys::Error> {
            panic!("written: {step:?}")
        }
    }

    fn step(target: Target, from: Value, to: Value) -> Step {
        Step { target, label: "it".into(), from, to, why: String::new(), may_refuse: None }
    }

    #[test]
    fn a_task_that_moved_itself_is_left_to_the_next_round_and_a_changed_file_stops_the_plan() {
        let place = |cpus: &str| Value::Place(Placement { cpuset: None, cpus: cpus.parse().unwrap(), own: true });
        let task = Target::Task { key: TaskKey { tid: 7, start: 1 } };
        let outcome = execute(&mut Stone(place("1")), &[step(task, place("0-3"), place("0"))]);
        assert_eq!(outcome, Executed { strayed: vec![0], ..Executed::default() });
        let text = |text: &str| Value::Text(text.to_owned());
        let file = Target::File { path: "/proc/sys/vm/swappiness".into(), form: host::snapshot::Form::Text };
        let outcome = execute(&mut Stone(text("7")), &[step(file, text("60"), text("0"))]);
        assert!(matches!(outcome.stopped, Some(Stopped::Moved { .. })), "{outcome:?}");
    }
}
