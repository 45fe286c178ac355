//! Cpusets of cgroup version 1: all other tasks move to a housekeeping cpuset; the shield gets a separate one.
//!
//! Moving a task sets no mask, so nothing sticks to it. After it is moved back, it follows its old cpuset again.

use super::{Backend, Context, Draft, PlanError};
use crate::snapshot::{Cgroup, Form, Placement, Snapshot, Target, Task, TaskKey, Value};
use base::CpuSet;
use proc::version::Version;
use std::collections::{HashMap, HashSet};

/// The cpuset for all other tasks.
const HOUSEKEEPING: &str = "tahti.housekeeping";
/// The cpuset of the shield's own tasks.
const SHIELD: &str = "tahti.shield";

/// The back-end for cgroup version 1.
#[derive(Debug)]
pub(super) struct CpusetV1;

fn mount(snapshot: &Snapshot) -> &str {
    match &snapshot.cgroup {
        Cgroup::V1 { mount } => mount,
        _ => "",
    }
}

/// Other programs' cpusets that contain shielded CPUs, the deepest first.
fn others<'a>(context: &'a Context<'_>) -> Vec<(&'a str, CpuSet)> {
    let mount = mount(context.snapshot);
    let own = CpusetV1.own_dirs(context.snapshot);
    let inside_own = |dir: &str| own.iter().any(|own| dir == own || dir.starts_with(&format!("{own}/")));
    let mut found: Vec<(&str, CpuSet)> = (context.snapshot.dirs.iter())
        .filter(|dir| *dir != mount && !inside_own(dir))
        .filter_map(|dir| Some((dir.as_str(), context.snapshot.file_cpus(&format!("{dir}/cpuset.cpus"))?)))
        .filter(|(_, cpus)| cpus.intersects(&context.want.cpus))
        .collect();
    found.sort_by_key(|(dir, _)| std::cmp::Reverse(dir.matches('/').count()));
    found
}

/// Cpusets that contain a spared task, directly or in a cpuset below. Found in one pass over the tasks.
struct HoldSpared<'a>(HashSet<&'a str>);

impl<'a> HoldSpared<'a> {
    fn new(context: &'a Context<'_>) -> Self {
        let mut held = HashSet::new();
        if context.spare.is_empty() {
            return Self(held);
        }
        for task in context.snapshot.tasks.values().filter(|task| context.spare.contains(task)) {
            let mut path = task.cpuset.as_deref().unwrap_or_default();
            // The cpusets above are in the set already.
            while !path.is_empty() && held.insert(path) {
                path = &path[..path.rfind('/').unwrap_or(0)];
            }
        }
        Self(held)
    }

    fn contains(&self, context: &Context<'_>, dir: &str) -> bool {
        context.snapshot.cpuset_of_dir(dir).is_some_and(|path| self.0.contains(path))
    }
}

impl Backend for CpusetV1 {
    fn name(&self) -> &'static str {
        "cpuset (cgroup v1)"
    }

    fn check(&self, context: &Context<'_>, errors: &mut Vec<PlanError>) {
        let hold_spared = HoldSpared::new(context);
        for (dir, cpus) in others(context) {
            let exclusive = context.snapshot.file_text(&format!("{dir}/cpuset.cpu_exclusive")) == Some("1");
            if hold_spared.contains(context, dir) {
                continue;
            }
            if exclusive {
                let cpus = cpus.and(&context.want.cpus);
                errors.push(PlanError::Overlap { dir: dir.to_owned(), cpus });
            } else if cpus.is_subset(&context.want.cpus) {
                errors.push(PlanError::OnlyHere { dir: dir.to_owned(), cpus });
            }
        }
        let blocked: Vec<_> = context.deadline_in_the_way().collect();
        if !blocked.is_empty() {
            errors.push(PlanError::Deadline { tasks: blocked });
        }
    }

    fn steps(&self, context: &Context<'_>, draft: &mut Draft) {
        let (mount, shield) = (mount(context.snapshot), &context.want.cpus);
        let mems = context.snapshot.file_text(&format!("{mount}/cpuset.mems")).unwrap_or("0").to_owned();
        for (name, cpus, why) in [
            (HOUSEKEEPING, context.housekeeping, "all other tasks move here"),
            (SHIELD, *shield, "the shield's own tasks belong here"),
        ] {
            let dir = format!("{mount}/{name}");
            cpuset(context, draft, &dir, cpus, &mems, why);
        }
        let spared = shrink_others(context, draft);
        move_tasks(context, draft);
        balance(context, draft, spared);
        context.note_bound(draft);
    }

    fn shield_dir(&self, snapshot: &Snapshot) -> Option<String> {
        Some(format!("{}/{SHIELD}", mount(snapshot)))
    }

    fn own_dirs(&self, snapshot: &Snapshot) -> Vec<String> {
        let mount = mount(snapshot);
        vec![format!("{mount}/{HOUSEKEEPING}"), format!("{mount}/{SHIELD}")]
    }
}

/// Creates one of the shield's cpusets. The initial values of a new cpuset are known.
fn cpuset(context: &Context<'_>, draft: &mut Draft, dir: &str, cpus: CpuSet, mems: &str, why: &str) {
    let fresh = !context.snapshot.dirs.contains(dir);
    draft.step(context, Target::Dir { path: dir.to_owned() }, Value::Present, dir, why);
    for (name, form, empty, to) in [
        ("cpuset.mems", Form::Text, Value::Text(String::new()), Value::Text(mems.to_owned())),
        ("cpuset.cpus", Form::List, Value::Cpus(CpuSet::EMPTY), Value::Cpus(cpus)),
    ] {
        let target = Target::File { path: format!("{dir}/{name}"), form };
        let from = if fresh { empty } else { context.snapshot.get(&target) };
        draft.step_from(target, from, to, &format!("{dir}/{name}"), why);
    }
}

/// Removes the shielded CPUs from other programs' cpusets. Returns whether a cpuset had to keep them.
fn shrink_others(context: &Context<'_>, draft: &mut Draft) -> bool {
    let mut left = false;
    let (hold_spared, members) = (HoldSpared::new(context), forgetful_by_cpuset(context));
    for (dir, cpus) in others(context) {
        if hold_spared.contains(context, dir) {
            draft.note(dir, "keeps the shielded CPUs: it holds tasks that are to be spared".to_owned());
            left = true;
            continue;
        }
        let path = format!("{dir}/cpuset.cpus");
        let target = Target::File { path: path.clone(), form: Form::List };
        let rest = cpus.minus(&context.want.cpus);
        let forgetful = forgetful(context, &members, dir, &rest);
        for (key, task, place) in &forgetful {
            let given = Placement { cpus: rest, ..place.clone() };
            let label = format!("task {} ({})", key.tid, task.comm);
            let why = "this kernel forgets its own mask when its cpuset shrinks: the old one is kept here";
            draft.step(context, Target::Task { key: **key }, Value::Place(given), &label, why);
        }
        draft.step(context, target, Value::Cpus(rest), &path, "its tasks may run on the shielded CPUs");
        for (key, task, place) in forgetful {
            let given = Placement { cpus: rest, ..place.clone() };
            let label = format!("task {} ({})", key.tid, task.comm);
            let target = Target::Task { key: *key };
            draft.step_from(target, Value::Place(given), Value::Place(place), &label, "its own mask again");
        }
    }
    left
}

/// Per cpuset, the tasks whose own mask the kernel forgets when the cpuset changes.
type Forgetful<'a> = HashMap<&'a str, Vec<(&'a TaskKey, &'a Task)>>;

fn forgetful_by_cpuset<'a>(context: &'a Context<'_>) -> Forgetful<'a> {
    let mut members = Forgetful::new();
    let forgets = |task: &Task| !task.bound && task.own.is_some() && forgets(context, task);
    for (key, task) in context.snapshot.tasks.iter().filter(|(_, task)| forgets(task)) {
        members.entry(task.cpuset.as_deref().unwrap_or_default()).or_default().push((key, task));
    }
    members
}

/// Tasks directly in the cpuset of `dir` whose own mask the kernel forgets when the cpuset shrinks to `rest`, each with
/// its placement after that.
fn forgetful<'a>(
    context: &Context<'_>,
    members: &Forgetful<'a>,
    dir: &str,
    rest: &CpuSet,
) -> Vec<(&'a TaskKey, &'a Task, Placement)> {
    let forgetful =
        context.snapshot.cpuset_of_dir(dir).and_then(|path| members.get(path)).into_iter().flatten().copied();
    let place = |(key, task): (&'a TaskKey, &'a Task)| {
        let own = task.own?.and(rest);
        (!own.is_empty() && own != *rest).then(|| {
            let place = Placement { cpuset: task.cpuset.clone(), cpus: own, own: true };
            (key, task, place)
        })
    };
    forgetful.filter_map(place).collect()
}

/// Whether the kernel forgets the task's own mask when its cpuset changes. Since 6.2 the kernel remembers the masks of
/// user tasks.
fn forgets(context: &Context<'_>, task: &Task) -> bool {
    task.kernel || context.snapshot.version() < Version::new(6, 2)
}

/// Moves tasks of the top cpuset to the housekeeping cpuset. Tasks in other cpusets followed when these shrank.
fn move_tasks(context: &Context<'_>, draft: &mut Draft) {
    for (key, task) in context.intruders() {
        let at_top = task.cpuset.as_deref() == Some("/");
        if context.spare.contains(task) || task.bound || !at_top || stays(key.tid, task) {
            continue;
        }
        let mut there = task.clone();
        there.cpuset = Some(format!("/{HOUSEKEEPING}"));
        there.follow(&context.housekeeping);
        let own = forgets(context, task) && task.own.is_some_and(|own| own.intersects(&context.housekeeping));
        let label = format!("task {} ({})", key.tid, task.comm);
        let why = "it may run on the shielded CPUs";
        let place = Value::Place(Placement { own, ..there.place() });
        let step = draft.step(context, Target::Task { key: *key }, place, &label, why);
        if let Some(step) = step {
            step.may_refuse = Some(
                if task.kernel { "some kernel threads refuse to be moved" } else { "the task may be ending" }
                    .to_owned(),
            );
        }
    }
}

/// Whether a task must not move. kthreadd never moves: the kernel, not kthreadd, places the threads that it starts. The
/// thread of an interrupt follows its interrupt.
fn stays(tid: i32, task: &Task) -> bool {
    task.kernel && (tid == 2 || task.comm.starts_with("irq/"))
}

/// Makes the shield's CPUs exclusive and excludes them from load balancing.
fn balance(context: &Context<'_>, draft: &mut Draft, spared_cpuset: bool) {
    let (mount, snapshot) = (mount(context.snapshot), context.snapshot);
    let spared_at_top = snapshot
        .tasks
        .values()
        .any(|task| context.spare.contains(task) && task.cpuset.as_deref() == Some("/") && task.cpus.count() > 1);
    if spared_cpuset || spared_at_top {
        draft.note(
            "load balancing",
            "stays on across the shield: tasks that are to be spared use all CPUs and need it".to_owned(),
        );
        return;
    }
    let shield = format!("{mount}/{SHIELD}");
    let fresh = !snapshot.dirs.contains(&shield);
    for (dir, name, initial, to, why) in [
        (shield.as_str(), "cpuset.cpu_exclusive", "0", "1", "no other cpuset may take these CPUs"),
        (
            shield.as_str(),
            "cpuset.sched_load_balance",
            "1",
            "0",
            "the balancer brings work to idle CPUs, and costs time",
        ),
        (mount, "cpuset.sched_load_balance", "1", "0", "or the top cpuset would balance across the shield"),
    ] {
        let target = Target::File { path: format!("{dir}/{name}"), form: Form::Text };
        let from = if fresh && dir == shield { Value::Text(initial.into()) } else { snapshot.get(&target) };
        if from != Value::Absent {
            draft.step_from(target, from, Value::Text(to.into()), &format!("{dir}/{name}"), why);
        }
    }
}
