//! CPU shielding as a value: each write, with the old value, the new value and the reason.
//!
//! [`plan`] computes every write from a snapshot; nothing here writes. The executor of a plan makes no decisions.
//! [`model`] returns the machine after a plan, [`revert`] the inverse plan, [`verify()`] the differences from a plan,
//! and [`release()`] the way back from the present state.
//!
//! A [`Backend`] decides where tasks are kept; each is in a separate file (`cpuset_v1`, `cgroup_v2`, `affinity`). To
//! add one, implement the trait in a new file and name it in [`backend`]. Interrupts, knobs, order, errors and
//! properties are shared.
//!
//! ```
//! use base::CpuSet;
//! use host::plan::{Want, model, plan, revert};
//! use host::snapshot::{Form, Snapshot};
//!
//! // A machine of two CPUs, of which one work queue's CPUs are known.
//! let mut snapshot = Snapshot::default();
//! snapshot.cpus.possible = CpuSet::first(2);
//! snapshot.cpus.online = CpuSet::first(2);
//! snapshot.files.insert("/sys/devices/virtual/workqueue/cpumask".into(), Form::List.read("0-1"));
//!
//! let want = Want { cpus: CpuSet::single(1), ..Want::default() };
//! let there = plan(&snapshot, &want)?;
//! assert!(there.steps.iter().any(|step| step.label.ends_with("workqueue/cpumask") && step.to.to_string() == "0"));
//! let shielded = model(&snapshot, &there);
//! assert!(plan(&shielded, &want)?.steps.is_empty());
//! assert_eq!(model(&shielded, &revert(&there)), snapshot);
//! # Ok::<(), host::plan::PlanErrors>(())
//! ```

mod affinity;
mod cgroup_v2;
mod cpuset_v1;
mod draft;
mod error;
mod irq;
mod orphan;
mod release;
mod spare;
mod step;
mod verify;
mod want;

pub use draft::{Context, Draft, GUARD};
pub use error::{PlanError, PlanErrors, Reserved};
pub use orphan::{InUse, User, orphans};
pub use release::{ForeignValue, Release, release};
pub use spare::Spare;
pub use step::{Note, Plan, Step};
pub use verify::{Drift, verify};
pub use want::{Placed, Profile, ShieldPart, ShieldParts, Spared, SparedList, Want, WordError};

use crate::knob;
use crate::snapshot::{Cgroup, Snapshot, Target, Task};
use crate::suggest;
use base::CpuSet;
use std::fmt::Debug;

/// A method of keeping tasks off the shielded CPUs.
pub trait Backend: Debug + Sync {
    /// Name for users.
    fn name(&self) -> &'static str;

    /// Finds the obstacles to this shield before the first write.
    fn check(&self, context: &Context<'_>, errors: &mut Vec<PlanError>);

    /// Adds the steps that move tasks off the CPUs, in order.
    fn steps(&self, context: &Context<'_>, draft: &mut Draft);

    /// Directory of the shield's own tasks, if the back-end has one.
    fn shield_dir(&self, snapshot: &Snapshot) -> Option<String>;

    /// Directories that the back-end creates, the shield's last. Tasks found in them at the release are moved back.
    fn own_dirs(&self, snapshot: &Snapshot) -> Vec<String>;
}

/// The back-end for this machine and shield.
#[must_use]
pub fn backend(snapshot: &Snapshot, want: &Want) -> &'static dyn Backend {
    match snapshot.cgroup {
        Cgroup::V1 { .. } => &cpuset_v1::CpusetV1,
        // A partition takes its CPUs from all tasks: no task can be spared.
        Cgroup::V2 { .. } if !spared_on_shield(snapshot, want) => &cgroup_v2::CgroupV2,
        Cgroup::None | Cgroup::V2 { .. } => &affinity::Affinity,
    }
}

/// Whether a spared task may run on the requested CPUs.
fn spared_on_shield(snapshot: &Snapshot, want: &Want) -> bool {
    let spare = Spare::new(snapshot, want);
    let stands_there = |task: &Task| !task.bound && spare.contains(task) && task.cpus.intersects(&want.cpus);
    !spare.is_empty() && snapshot.tasks.values().any(stands_there)
}

/// Plans the requested shield. An empty plan means that it is active.
///
/// # Errors
/// All obstacles at once.
pub fn plan(snapshot: &Snapshot, want: &Want) -> Result<Plan, PlanErrors> {
    let backend = backend(snapshot, want);
    let context = Context::new(snapshot, want, backend);
    let mut errors = Vec::new();
    want.check(&context, &mut errors);
    if errors.is_empty() && want.only.is_none() && want.parts.tasks {
        backend.check(&context, &mut errors);
    }
    if !errors.is_empty() {
        return Err(PlanErrors(errors));
    }
    let mut draft = Draft::default();
    if let Some(name) = &want.only {
        knob::ALL.iter().filter(|knob| knob.name() == name).for_each(|knob| knob.steps(&context, &mut draft));
        return Ok(draft.finish("one knob alone", Vec::new()));
    }
    if want.parts.interrupts {
        irq::irqbalance(&context, &mut draft);
    }
    if want.parts.tasks {
        backend.steps(&context, &mut draft);
    }
    if want.parts.interrupts {
        irq::interrupts(&context, &mut draft);
    }
    knob::steps(&context, &mut draft);
    note_choice(&context, &mut draft);
    let siblings = snapshot.cpus.siblings_of(&want.cpus).and(&snapshot.cpus.online);
    if !siblings.is_empty() {
        draft.note(
            "hardware threads",
            format!(
                "CPUs {siblings} share their cores with the shield and slow it down when they work; \
                 shield them too (--cpus {}), or switch them off",
                want.cpus.or(&siblings)
            ),
        );
    }
    let name = if want.parts.tasks { backend.name() } else { "nothing: tasks stay where they are" };
    Ok(draft.finish(name, knob::boot::parameters(&context)))
}

/// Notes whether other CPUs are a better choice.
fn note_choice(context: &Context<'_>, draft: &mut Draft) {
    let Some((better, reasons)) = suggest::better(context.snapshot, &context.want.cpus) else { return };
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    let count = context.want.cpus.count();
    draft.note(
        "choice of CPUs",
        format!(
            "{}; fewer of these remain on CPUs {better} (--cpus {better}, or auto:{count}; tahti shield suggest)",
            reasons.join(", ")
        ),
    );
}

/// The inverse plan: each step reversed, the last one first.
///
/// Steps inside a directory that the plan created are undone by the removal of the directory.
#[must_use]
pub fn revert(plan: &Plan) -> Plan {
    Plan { steps: release::turned(&plan.steps), ..Plan::default() }
}

/// The machine after all steps succeeded.
#[must_use]
pub fn model(snapshot: &Snapshot, plan: &Plan) -> Snapshot {
    let mut machine = snapshot.clone();
    for step in &plan.steps {
        machine.set(&step.target, &step.to);
    }
    machine
}

/// The plan without tasks that spared processes have started. Spared processes keep starting tasks, so further rounds
/// would never end. The next apply moves them away.
#[must_use]
pub fn without_children_of_spared(mut plan: Plan, snapshot: &Snapshot, want: &Want) -> Plan {
    let spare = Spare::new(snapshot, want);
    plan.steps.retain(|step| match &step.target {
        Target::Task { key } => !snapshot.tasks.get(key).is_some_and(|task| spare.contains_parent(task)),
        _ => true,
    });
    plan
}

/// Threads of other programs that may run on the shielded CPUs now: spared, or started since the apply.
#[must_use]
pub fn strangers(snapshot: &Snapshot, want: &Want) -> Vec<(i32, String)> {
    let context = Context::new(snapshot, want, backend(snapshot, want));
    let own = |task: &Task| want.own.contains(&task.tgid);
    let users = context.intruders().filter(|(_, task)| !task.kernel && !own(task));
    users.map(|(key, task)| (key.tid, task.comm.clone())).collect()
}

/// The CPUs for all other tasks.
#[must_use]
pub fn housekeeping(snapshot: &Snapshot, shield: &CpuSet) -> CpuSet {
    let left = snapshot.cpus.online.minus(shield);
    let balanced = left.minus(&snapshot.cpus.isolated);
    if balanced.is_empty() { left } else { balanced }
}

#[cfg(test)]
mod tests;
