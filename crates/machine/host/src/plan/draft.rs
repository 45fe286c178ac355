//! A plan under construction.

use super::{Backend, Note, Plan, Reserved, Spare, Step, Want, housekeeping};
use crate::snapshot::{Class, Snapshot, Target, Task, TaskKey, Value};
use base::CpuSet;
use proc::version::Version;

/// Name of the guard's thread in every process of tahti that has one.
pub const GUARD: &str = "tahti-guard";

/// Inputs of all parts of a plan.
#[derive(Debug)]
pub struct Context<'a> {
    /// The machine.
    pub snapshot: &'a Snapshot,
    /// The requested shield.
    pub want: &'a Want,
    /// The CPUs for all other tasks.
    pub housekeeping: CpuSet,
    /// Tasks that must not be touched.
    pub spare: Spare,
    /// Path of the shield's cpuset, as in the `cgroup` files of tasks.
    pub shield_cpuset: Option<String>,
}

impl<'a> Context<'a> {
    /// Creates the context for `snapshot` and `want`.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, want: &'a Want, backend: &dyn Backend) -> Self {
        let dir = backend.shield_dir(snapshot);
        Self {
            snapshot,
            want,
            housekeeping: housekeeping(snapshot, &want.cpus),
            spare: Spare::new(snapshot, want),
            shield_cpuset: dir.and_then(|dir| snapshot.cpuset_of_dir(&dir).map(str::to_owned)),
        }
    }

    /// Whether a task belongs to the shield, because it was put into the shield's cpuset.
    #[must_use]
    pub fn is_resident(&self, task: &Task) -> bool {
        let (Some(own), Some(cpuset)) = (&self.shield_cpuset, &task.cpuset) else { return false };
        cpuset == own || cpuset.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Tasks that may run on the shielded CPUs but do not belong to the shield.
    pub fn intruders(&self) -> impl Iterator<Item = (&TaskKey, &Task)> {
        let on_shield = |task: &Task| task.cpus.intersects(&self.want.cpus) && !self.is_resident(task);
        self.snapshot.tasks.iter().filter(move |(_, task)| on_shield(task))
    }

    /// DEADLINE threads that may run on the shielded CPUs. The kernel refuses to take CPUs from them. Guards of tahti
    /// are excluded: their reservations are suspended while a shield changes.
    pub fn deadline_in_the_way(&self) -> impl Iterator<Item = Reserved> {
        let is_foreign =
            |task: &Task| task.class == Class::Deadline && task.comm != GUARD && !self.spare.contains(task);
        let deadline = self.intruders().filter(move |(_, task)| is_foreign(task));
        let named =
            |pid: i32| self.snapshot.tasks.iter().find(|(key, _)| key.tid == pid).map(|(_, task)| task.comm.clone());
        deadline.map(move |(key, task)| {
            let process = (task.tgid, named(task.tgid).unwrap_or_else(|| task.comm.clone()));
            Reserved { tid: key.tid, comm: task.comm.clone(), process, plant: None }
        })
    }

    /// Notes kernel threads that the kernel bound and that therefore stay, kernel threads whose mask will stick, and
    /// spared threads.
    pub fn note_bound(&self, draft: &mut Draft) {
        let bound: Vec<&str> = self.intruders().filter(|(_, task)| task.bound).map(|(_, task)| &*task.comm).collect();
        if !bound.is_empty() {
            let text = format!("{} are bound to these CPUs by the kernel and stay: {}", bound.len(), bound.join(" "));
            draft.note("kernel threads", text);
        }
        let sticks = |task: &&Task| task.kernel && !task.bound && task.own.is_some() && !self.spare.contains(task);
        let sticky: Vec<&str> = self.snapshot.tasks.values().filter(sticks).map(|task| &*task.comm).collect();
        if !sticky.is_empty() && self.snapshot.version() >= Version::new(6, 2) {
            let text = format!(
                "kernel threads with CPUs of their own may get them back as a mask, which since Linux 6.2 sticks: they no \
                 longer follow CPUs that come later ({})",
                sticky.join(" ")
            );
            draft.note("sticking masks", text);
        }
        let spared = self.intruders().filter(|(_, task)| self.spare.contains(task)).count();
        if spared > 0 {
            draft.note("spared tasks", format!("{spared} spared threads may run on the shielded CPUs"));
        }
    }
}

/// Steps and notes collected so far.
#[derive(Debug, Default)]
pub struct Draft {
    steps: Vec<Step>,
    notes: Vec<Note>,
}

impl Draft {
    /// Adds a step, unless the value is already set.
    pub fn step(
        &mut self,
        context: &Context<'_>,
        target: Target,
        to: Value,
        label: &str,
        why: &str,
    ) -> Option<&mut Step> {
        let from = context.snapshot.get(&target);
        if from == to {
            return None;
        }
        let step = Step { target, label: label.to_owned(), from, to, why: why.to_owned(), may_refuse: None };
        self.steps.push(step);
        self.steps.last_mut()
    }

    /// Adds a step whose old value is known to be `from` although the snapshot does not contain it yet.
    pub fn step_from(&mut self, target: Target, from: Value, to: Value, label: &str, why: &str) {
        if from != to {
            let step = Step { target, label: label.to_owned(), from, to, why: why.to_owned(), may_refuse: None };
            self.steps.push(step);
        }
    }

    /// Adds a step that writes nothing but records the value, so that the release restores it.
    pub fn remember(&mut self, context: &Context<'_>, target: Target, label: &str, why: &str) {
        let value = context.snapshot.get(&target);
        let (label, why) = (label.to_owned(), why.to_owned());
        self.steps.push(Step { target, label, from: value.clone(), to: value, why, may_refuse: None });
    }

    /// Adds a note.
    pub fn note(&mut self, about: &str, text: String) {
        self.notes.push(Note { about: about.to_owned(), text });
    }

    pub(super) fn finish(self, backend: &str, boot: Vec<Note>) -> Plan {
        Plan { backend: backend.to_owned(), steps: self.steps, notes: self.notes, boot }
    }
}
