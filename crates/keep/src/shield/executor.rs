//! Takes the steps of a plan in order. It makes no choice: what a plan does not say is not done.

use super::journal::Refused;
use super::machine::{Machine, is_gone};
use host::plan::Step;
use host::snapshot::{Target, Value};

/// How a plan ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Writes that succeeded.
    pub writes: usize,
    /// Steps that found their value there already, or their target gone.
    pub skipped: usize,
    /// Steps that the kernel refused, and may.
    pub refused: Vec<Refused>,
    /// Why the rest was not done.
    pub stopped: Option<Stopped>,
}

/// Why a plan was not carried on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The value before was not the one that the plan was made from.
    Moved {
        /// Its name for people.
        label: String,
        /// What the plan was made from.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// The kernel refused.
    Refused(Refused),
}

/// Takes `steps` in order and stops at the first that cannot be taken.
pub fn execute(machine: &mut dyn Machine, steps: &[Step]) -> Outcome {
    let mut outcome = Outcome::default();
    for step in steps {
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

/// A partition's file takes every state and then says what came of it: only reading back proves it.
fn proven(machine: &mut dyn Machine, step: &Step) -> Result<(), sys::Error> {
    let (Target::File { path, .. }, Value::Text(wanted)) = (&step.target, &step.to) else { return Ok(()) };
    if !path.ends_with("/cpuset.cpus.partition") {
        return Ok(());
    }
    let found = machine.read(&step.target)?;
    if found == step.to {
        return Ok(());
    }
    let doing = format!("make {path} {wanted}: the kernel took the word, but it reads {found}");
    Err(sys::Error { doing, errno: rustix::io::Errno::INVAL })
}

/// Notes a refusal; says whether the plan goes on.
fn refuse(outcome: &mut Outcome, step: &Step, error: &sys::Error) -> bool {
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
