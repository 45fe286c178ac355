//! Plans the release of a shield from the present state of the machine.
//!
//! A value is restored if it is still the shield's. A value that another program wrote is kept and reported. The
//! release can be planned again at any time: after a kill it contains exactly the remaining steps.

use super::{Plan, Step};
use crate::snapshot::{Placement, Snapshot, Target, Task, TaskKey, Value};
use base::CpuSet;
use proc::version::Version;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum ancestors searched for the cpuset of a task that was started under the shield.
const GENERATIONS_MAX: usize = 64;

/// Plan of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Steps that remain to be executed.
    pub plan: Plan,
    /// Values that another program changed, and that are kept.
    pub kept: Vec<ForeignValue>,
}

/// A value that is neither the old one nor the shield's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignValue {
    /// The target.
    pub target: Target,
    /// Name of the value for users.
    pub label: String,
    /// The value before the shield.
    pub before: Value,
    /// The shield's value.
    pub ours: Value,
    /// The other program's value, which is kept.
    pub found: Value,
}

/// Steps of all rounds on one target.
struct Story<'a> {
    first: &'a Step,
    ours: Vec<&'a Value>,
}

/// Plans the release from `steps` (all rounds in order) and the present state of the machine. `force` also overwrites
/// values of other programs.
#[must_use]
pub fn release(snapshot: &Snapshot, steps: &[Step], force: bool) -> Release {
    let made = made_dirs(steps);
    let mut stories: BTreeMap<&Target, Story<'_>> = BTreeMap::new();
    let mut order = Vec::new();
    for step in steps {
        if needs_no_way_back(step, &made) {
            continue;
        }
        let story = stories.entry(&step.target).or_insert_with(|| {
            order.push(&step.target);
            Story { first: step, ours: Vec::new() }
        });
        story.ours.push(&step.to);
    }
    let mut out = Release::default();
    let newcomers = newcomers(snapshot, &stories, &made);
    let mut newcomers_done = false;
    for target in order.iter().rev() {
        // Tasks started under the shield leave before its directories are removed and before cpusets grow.
        if !newcomers_done && matches!(target, Target::Dir { .. } | Target::Task { .. }) {
            out.plan.steps.extend(newcomers.iter().cloned());
            newcomers_done = true;
        }
        let story = &stories[*target];
        match target {
            Target::Task { key } => {
                let brought_in =
                    snapshot.tasks.get(key).is_some_and(|task| was_brought_in(snapshot, task, story, &made));
                if !(brought_in && story.first.remembers()) {
                    task(snapshot, *key, story, force || brought_in, &mut out);
                }
            }
            _ => value(snapshot, story, force, &mut out),
        }
    }
    out
}

/// The steps in reverse, last one first, without those that the removal of a directory undoes.
pub(super) fn turned(steps: &[Step]) -> Vec<Step> {
    let made = made_dirs(steps);
    let back = |step: &Step| Step {
        target: step.target.clone(),
        label: step.label.clone(),
        from: step.to.clone(),
        to: step.from.clone(),
        why: "as it was before".to_owned(),
        may_refuse: step.may_refuse.clone(),
    };
    steps.iter().rev().filter(|step| !needs_no_way_back(step, &made)).map(back).collect()
}

/// Directories that the steps created.
fn made_dirs(steps: &[Step]) -> BTreeSet<&str> {
    let made = |step: &'_ Step| step.from == Value::Absent && step.to == Value::Present;
    let dirs = steps.iter().filter(|step| made(step)).filter_map(|step| match &step.target {
        Target::Dir { path } => Some(path.as_str()),
        _ => None,
    });
    dirs.collect()
}

/// Whether removing the directory undoes this step: the file was empty when its directory was created.
fn needs_no_way_back(step: &Step, made: &BTreeSet<&str>) -> bool {
    let Target::File { path, .. } = &step.target else { return false };
    let empty = match &step.from {
        Value::Text(text) => text.is_empty(),
        Value::Cpus(cpus) => cpus.is_empty(),
        _ => false,
    };
    empty && path.rfind('/').is_some_and(|at| made.contains(&path[..at]))
}

/// Plans the release of everything except tasks.
fn value(snapshot: &Snapshot, story: &Story<'_>, force: bool, out: &mut Release) {
    let step = story.first;
    let found = snapshot.get(&step.target);
    if found == step.from || (found == Value::Absent && step.from != Value::Absent) {
        return;
    }
    let ours = story.ours.contains(&&found);
    if !ours && !force {
        // irqbalance distributes interrupts by its own rules, before and after the shield.
        if matches!(step.target, Target::Irq { .. }) && snapshot.irqbalance.is_some() {
            return;
        }
        out.kept.push(ForeignValue {
            target: step.target.clone(),
            label: step.label.clone(),
            before: step.from.clone(),
            ours: (*story.ours.last().unwrap_or(&&step.to)).clone(),
            found,
        });
        return;
    }
    out.plan.steps.push(back(step, found, step.from.clone()));
}

/// Whether the task is in a directory of the shield although no step put it there. Its owner did; it leaves with the
/// shield, and loses what was set for it there.
fn was_brought_in(snapshot: &Snapshot, task: &Task, story: &Story<'_>, made: &BTreeSet<&str>) -> bool {
    let Some(cpuset) = task.cpuset.as_deref() else { return false };
    let put =
        story.ours.iter().any(|value| matches!(value, Value::Place(place) if place.cpuset.as_deref() == Some(cpuset)));
    let inside = made.iter().filter_map(|dir| snapshot.cpuset_of_dir(dir)).any(|dir| dir == cpuset);
    inside && (story.first.remembers() || !put)
}

/// Plans the release of a task: its cpuset, then its mask if it had one of its own.
fn task(snapshot: &Snapshot, key: TaskKey, story: &Story<'_>, force: bool, out: &mut Release) {
    let (Some(task), Value::Place(before)) = (snapshot.tasks.get(&key), &story.first.from) else { return };
    let ours =
        || story.ours.iter().filter_map(|value| if let Value::Place(place) = value { Some(place) } else { None });
    let found = task.place();
    let home = existing(snapshot, before.cpuset.as_deref());
    let there = home.as_deref().map_or(snapshot.cpus.online, |cpuset| snapshot.effective(cpuset));
    let by_cpuset = found.cpuset == home || ours().any(|place| place.cpuset == found.cpuset);
    // A mask equal to the cpuset's CPUs was not set by any program.
    let offered = found.cpuset.as_deref().map(|cpuset| snapshot.effective(cpuset));
    if let (true, Some(number)) = (story.first.remembers(), task.handles_irq()) {
        // The thread follows its interrupt, unless a dissolved partition gave it every CPU.
        let follows = snapshot.irqs.values().find(|irq| irq.number == number).and_then(|irq| irq.effective);
        // A disabled interrupt has no effective CPU.
        let follows = follows.map(|cpus| cpus.and(&snapshot.cpus.online)).filter(|cpus| !cpus.is_empty());
        let cpus = follows.unwrap_or(before.cpus);
        let to = Placement { cpus, own: true, ..found.clone() };
        if offered == Some(found.cpus) && to.cpus != found.cpus {
            let step = back(story.first, Value::Place(found), Value::Place(to));
            out.plan.steps.push(Step { may_refuse: Some("the thread may be ending".into()), ..step });
        }
        return;
    }
    // After an interrupt was moved, its next occurrence makes the kernel move its thread to the CPU of the interrupt.
    // No program set this mask either.
    let handled = task.handles_irq().and_then(|number| snapshot.irqs.values().find(|irq| irq.number == number));
    let is_led = handled.is_some_and(|irq| found.cpus.count() == 1 && found.cpus.is_subset(&irq.requested));
    let by_mask = is_led
        || found.cpus == before.cpus
        || offered == Some(found.cpus)
        || ours().any(|place| place.cpus == found.cpus);
    let plain = before.cpuset == story_cpuset(story);
    let to = if by_mask || force {
        let cpus = if before.own || plain { usable(&before.cpus, &snapshot.cpus.online) } else { there };
        Placement { cpuset: home, cpus, own: before.own }
    } else {
        let kept = found.cpus.and(&there);
        Placement { cpuset: home, cpus: if kept.is_empty() { there } else { kept }, own: true }
    };
    if !(force || by_cpuset && by_mask) {
        out.kept.push(ForeignValue {
            target: story.first.target.clone(),
            label: story.first.label.clone(),
            before: story.first.from.clone(),
            ours: (*story.ours.last().unwrap_or(&&story.first.to)).clone(),
            found: Value::Place(found.clone()),
        });
        if !by_cpuset {
            return;
        }
    }
    if !found.agrees(&to) {
        let step = back(story.first, Value::Place(found), Value::Place(to));
        out.plan.steps.push(Step { may_refuse: Some("the task may be ending".into()), ..step });
    }
}

/// The cpuset that the steps put the task into.
fn story_cpuset(story: &Story<'_>) -> Option<String> {
    match story.ours.last() {
        Some(Value::Place(place)) => place.cpuset.clone(),
        _ => None,
    }
}

/// The online CPUs of `cpus`; all of `cpus` if none is online, so that the kernel refuses.
fn usable(cpus: &CpuSet, online: &CpuSet) -> CpuSet {
    let usable = cpus.and(online);
    if usable.is_empty() { *cpus } else { usable }
}

/// The cpuset, or its nearest existing ancestor.
fn existing(snapshot: &Snapshot, cpuset: Option<&str>) -> Option<String> {
    let mut path = cpuset?;
    let (crate::snapshot::Cgroup::V1 { mount } | crate::snapshot::Cgroup::V2 { mount, .. }) = &snapshot.cgroup else {
        return Some(path.to_owned());
    };
    while path != "/" && !path.is_empty() && !snapshot.dirs.contains(&format!("{mount}{path}")) {
        path = &path[..path.rfind('/').unwrap_or(0)];
    }
    Some(if path.is_empty() { "/".to_owned() } else { path.to_owned() })
}

/// Steps for tasks that are in directories of the shield although no step moved them there. Each gets the placement
/// that its parent had.
fn newcomers(snapshot: &Snapshot, stories: &BTreeMap<&Target, Story<'_>>, made: &BTreeSet<&str>) -> Vec<Step> {
    let inside: Vec<&str> = made.iter().filter_map(|dir| snapshot.cpuset_of_dir(dir)).collect();
    let in_made = |cpuset: &str| {
        inside.iter().any(|dir| cpuset == *dir || cpuset.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/')))
    };
    let story = |key: &TaskKey| {
        let story = stories.get(&Target::Task { key: *key })?;
        match (&story.first.from, story.ours.last()) {
            (Value::Place(before), Some(Value::Place(ours))) => Some((before, ours)),
            _ => None,
        }
    };
    let leaders: BTreeMap<i32, (&TaskKey, &Task)> =
        snapshot.tasks.iter().filter(|(key, task)| key.tid == task.tgid).map(|entry| (entry.1.tgid, entry)).collect();
    // The nearest ancestor that was moved, or one that never was; then its present cpuset.
    let parent = |task: &Task| {
        let mut at = task.tgid;
        for _ in 0..GENERATIONS_MAX {
            let (key, leader) = leaders.get(&at)?;
            match (story(key), leader.cpuset.as_deref()) {
                (Some((before, ours)), _) => return Some((before.cpuset.clone(), Some((before, ours)))),
                (None, Some(cpuset)) if !in_made(cpuset) => return Some((Some(cpuset.to_owned()), None)),
                _ => at = leader.ppid,
            }
        }
        None
    };
    let remembered = snapshot.version() >= Version::new(6, 2);
    // A task whose mask is only recorded was not moved by the shield; another program moved it in.
    let moved = |key: &TaskKey| stories.get(&Target::Task { key: *key }).is_some_and(|story| !story.first.remembers());
    let mut steps = Vec::new();
    for (key, task) in &snapshot.tasks {
        let new = task.cpuset.as_deref().is_some_and(in_made) && !moved(key);
        if !new {
            continue;
        }
        let (home, inherited) = parent(task).unwrap_or((None, None));
        let home = existing(snapshot, Some(home.as_deref().unwrap_or("/")));
        let offered = home.as_deref().map_or(snapshot.cpus.online, |cpuset| snapshot.effective(cpuset));
        let own_story = stories.get(&Target::Task { key: *key }).map(|story| &story.first.from);
        let to = match inherited {
            // The task existed before the shield, so its mask is known.
            _ if let Some(Value::Place(before)) = own_story => Placement { cpuset: home, ..before.clone() },
            // The task still has the mask that it inherited, so it gets the mask that its parent had before.
            Some((before, ours)) if ours.cpus == task.cpus => {
                Placement { cpus: if before.own { before.cpus } else { offered }, cpuset: home, own: before.own }
            }
            // A mask that was set since is kept. Newer kernels remember it more precisely than it can be read.
            _ => {
                let mut there = task.clone();
                there.follow(&offered);
                Placement { cpuset: home, cpus: there.cpus, own: there.own.is_some() && !remembered }
            }
        };
        steps.push(Step {
            target: Target::Task { key: *key },
            label: format!("task {} ({})", key.tid, task.comm),
            from: Value::Place(task.place()),
            to: Value::Place(to),
            why: "it was born under the shield, and gets what its parent had".to_owned(),
            may_refuse: Some("the task may be ending".to_owned()),
        });
    }
    steps
}

fn back(step: &Step, from: Value, to: Value) -> Step {
    Step {
        target: step.target.clone(),
        label: step.label.clone(),
        from,
        to,
        why: "as it was before".to_owned(),
        may_refuse: step.may_refuse.clone(),
    }
}
