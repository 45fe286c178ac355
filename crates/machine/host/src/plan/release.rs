//! The way back from what is there now.
//!
//! A value goes back where it is still ours. What somebody else wrote meanwhile is left and reported. The
//! way back can be planned again at any time: after a kill in the middle it holds just what is left to do.

use super::{Plan, Step};
use crate::snapshot::{Placement, Snapshot, Target, Task, TaskKey, Value};
use base::CpuSet;
use proc::version::Version;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Ancestors looked at to find where a task born under the shield belongs.
const GENERATIONS_MAX: usize = 64;

/// The way back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// What is left to write.
    pub plan: Plan,
    /// What somebody else changed meanwhile, and stays so.
    pub kept: Vec<Kept>,
}

/// A value that is neither the old one nor ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Where.
    pub target: Target,
    /// Its name for people.
    pub label: String,
    /// The value before the shield.
    pub before: Value,
    /// The shield's value.
    pub ours: Value,
    /// Somebody else's value, which stays.
    pub found: Value,
}

/// What the rounds of a shield did to one target.
struct Story<'a> {
    first: &'a Step,
    ours: Vec<&'a Value>,
}

/// Plans the way back from `steps` (all rounds in order), as the machine stands now. `force` writes old
/// values over other people's too.
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
        // Who was born under the shield leaves before its directories go and before cpusets grow.
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

/// Steps turned round, the last one first, without those that a removed directory takes along.
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

/// Directories that the steps made.
fn made_dirs(steps: &[Step]) -> BTreeSet<&str> {
    let made = |step: &'_ Step| step.from == Value::Absent && step.to == Value::Present;
    let dirs = steps.iter().filter(|step| made(step)).filter_map(|step| match &step.target {
        Target::Dir { path } => Some(path.as_str()),
        _ => None,
    });
    dirs.collect()
}

/// A list that was empty in a new directory goes with the directory.
fn needs_no_way_back(step: &Step, made: &BTreeSet<&str>) -> bool {
    let Target::File { path, .. } = &step.target else { return false };
    let empty = match &step.from {
        Value::Text(text) => text.is_empty(),
        Value::Cpus(cpus) => cpus.is_empty(),
        _ => false,
    };
    empty && path.rfind('/').is_some_and(|at| made.contains(&path[..at]))
}

/// The way back for everything but tasks.
fn value(snapshot: &Snapshot, story: &Story<'_>, force: bool, out: &mut Release) {
    let step = story.first;
    let found = snapshot.get(&step.target);
    if found == step.from || (found == Value::Absent && step.from != Value::Absent) {
        return;
    }
    let ours = story.ours.contains(&&found);
    if !ours && !force {
        // irqbalance spreads interrupts as it likes, before the shield and after it.
        if matches!(step.target, Target::Irq { .. }) && snapshot.irqbalance.is_some() {
            return;
        }
        out.kept.push(Kept {
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

/// Whether the task is in a directory of the shield into which no step put it: its owner did, and it leaves with the
/// shield, along with what was set for it there.
fn was_brought_in(snapshot: &Snapshot, task: &Task, story: &Story<'_>, made: &BTreeSet<&str>) -> bool {
    let Some(cpuset) = task.cpuset.as_deref() else { return false };
    let put =
        story.ours.iter().any(|value| matches!(value, Value::Place(place) if place.cpuset.as_deref() == Some(cpuset)));
    let inside = made.iter().filter_map(|dir| snapshot.cpuset_of_dir(dir)).any(|dir| dir == cpuset);
    inside && (story.first.remembers() || !put)
}

/// The way back for a task: its cpuset, then its mask if it had one of its own.
fn task(snapshot: &Snapshot, key: TaskKey, story: &Story<'_>, force: bool, out: &mut Release) {
    let (Some(task), Value::Place(before)) = (snapshot.tasks.get(&key), &story.first.from) else { return };
    let ours =
        || story.ours.iter().filter_map(|value| if let Value::Place(place) = value { Some(place) } else { None });
    let found = task.place();
    let home = existing(snapshot, before.cpuset.as_deref());
    let there = home.as_deref().map_or(snapshot.cpus.online, |cpuset| snapshot.effective(cpuset));
    let by_cpuset = found.cpuset == home || ours().any(|place| place.cpuset == found.cpuset);
    // A mask that is just what the cpuset offers is nobody's choice.
    let offered = found.cpuset.as_deref().map(|cpuset| snapshot.effective(cpuset));
    if let (true, Some(number)) = (story.first.remembers(), task.handles_irq()) {
        // It follows its interrupt, unless a partition that was dissolved gave it every CPU.
        let follows = snapshot.irqs.values().find(|irq| irq.number == number).and_then(|irq| irq.effective);
        // An interrupt that is switched off goes nowhere.
        let follows = follows.map(|cpus| cpus.and(&snapshot.cpus.online)).filter(|cpus| !cpus.is_empty());
        let cpus = follows.unwrap_or(before.cpus);
        let to = Placement { cpus, own: true, ..found.clone() };
        if offered == Some(found.cpus) && to.cpus != found.cpus {
            let step = back(story.first, Value::Place(found), Value::Place(to));
            out.plan.steps.push(Step { may_refuse: Some("the thread may be ending".into()), ..step });
        }
        return;
    }
    // The thread of an interrupt's handler: the kernel leads it to the one CPU that the interrupt goes to, when the next one comes after it
    // was moved. That is nobody's choice either.
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
        out.kept.push(Kept {
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

/// The cpuset that a story put its task into.
fn story_cpuset(story: &Story<'_>) -> Option<String> {
    match story.ours.last() {
        Some(Value::Place(place)) => place.cpuset.clone(),
        _ => None,
    }
}

/// Those of `cpus` that run; all of them if none does, for the kernel to refuse.
fn usable(cpus: &CpuSet, online: &CpuSet) -> CpuSet {
    let usable = cpus.and(online);
    if usable.is_empty() { *cpus } else { usable }
}

/// The cpuset, or its nearest ancestor that still exists.
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

/// Tasks found in directories that the shield made, and never moved there by a step: each gets what its
/// parent had.
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
    // The nearest ancestor that was moved, or one that never was: then its cpuset as it is.
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
    // Whose mask is only remembered was never moved by us: somebody brought it in.
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
            // It was there before the shield, and its mask is known.
            _ if let Some(Value::Place(before)) = own_story => Placement { cpuset: home, ..before.clone() },
            // Its mask is the one that it was born with: it gets what its parent had before.
            Some((before, ours)) if ours.cpus == task.cpus => {
                Placement { cpus: if before.own { before.cpus } else { offered }, cpuset: home, own: before.own }
            }
            // A mask that was set since stays; newer kernels remember it better than it can be read.
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
