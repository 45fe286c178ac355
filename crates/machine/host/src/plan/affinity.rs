//! Plain affinity: without cpusets, each task gets a CPU mask.
//!
//! Since Linux 6.2 a mask that was set sticks to its task. After the release the task has its old CPUs, but it no
//! longer follows when CPUs are added or its cpuset grows. The plan notes this. While the shield is active, a task
//! whose mask is completely within the shield is treated as the shield's own and not moved away.

use super::{Backend, Context, Draft, PlanError};
use crate::snapshot::{Placement, Snapshot, Target, Value};

/// The back-end of last resort.
#[derive(Debug)]
pub(super) struct Affinity;

impl Backend for Affinity {
    fn name(&self) -> &'static str {
        "plain affinity"
    }

    fn check(&self, context: &Context<'_>, errors: &mut Vec<PlanError>) {
        let blocked: Vec<_> = context.deadline_in_the_way().collect();
        if !blocked.is_empty() {
            errors.push(PlanError::Deadline { tasks: blocked });
        }
    }

    fn steps(&self, context: &Context<'_>, draft: &mut Draft) {
        let mut moved = 0;
        for (key, task) in context.intruders() {
            if context.spare.contains(task) || task.bound || task.cpus.is_subset(&context.want.cpus) {
                continue;
            }
            let place = Placement { cpuset: task.cpuset.clone(), cpus: task.cpus.minus(&context.want.cpus), own: true };
            let label = format!("task {} ({})", key.tid, task.comm);
            let step = draft.step(
                context,
                Target::Task { key: *key },
                Value::Place(place),
                &label,
                "it may run on the shielded CPUs",
            );
            if let Some(step) = step {
                step.may_refuse = task.kernel.then(|| "kernel threads may refuse a mask".to_owned());
                moved += 1;
            }
        }
        if moved > 0 {
            draft.note(
                "plain affinity",
                "no cpuset here: each task gets a mask, which since Linux 6.2 sticks to it; after the release it \
                 has its CPUs back, but no longer follows CPUs that come later"
                    .to_owned(),
            );
        }
        context.note_bound(draft);
    }

    fn shield_dir(&self, _: &Snapshot) -> Option<String> {
        None
    }

    fn own_dirs(&self, _: &Snapshot) -> Vec<String> {
        Vec::new()
    }
}
