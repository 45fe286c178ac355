//! Plans the steps from the present state to the requested one.

use super::{Controller, Ground, Home, Lack, Version, files};
use crate::plan::{Drift, Plan, Step};
use crate::plant::Partition;
use crate::snapshot::{Form, Target, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A requested value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedValue {
    /// The target.
    pub target: Target,
    /// The value.
    pub value: Value,
    /// The reason, with the name of the partition.
    pub why: String,
    /// Required option of the kernel configuration.
    pub option: &'static str,
}

/// All requested values of a partition, in the order in which they must be set.
#[must_use]
pub fn wanted(
    ground: &Ground,
    homes: &[Home],
    partition: &Partition,
    all_partitions: &[Partition],
) -> Vec<RequestedValue> {
    let mut all = Vec::new();
    let why = format!("partition {:?}", partition.name);
    let pass = |dir: &str, controller: Controller| RequestedValue {
        target: Target::File { path: format!("{dir}/cgroup.subtree_control"), form: Form::Passes { controller } },
        value: Value::Text(format!("+{controller}")),
        why: why.clone(),
        option: "CONFIG_CGROUPS",
    };
    for home in homes {
        if let Some((above, controllers)) = &home.passes {
            all.extend(controllers.iter().map(|controller| pass(above, *controller)));
        }
        let target = Target::Dir { path: home.dir.clone() };
        all.push(RequestedValue { target, value: Value::Present, why: why.clone(), option: "CONFIG_CGROUPS" });
        if home.version == Version::Resctrl {
            all.extend(super::resctrl::wanted(ground, &home.dir, partition));
        }
        for controller in &home.controllers {
            all.extend(files::bounds(ground, home, *controller, partition));
        }
        if home.version == Version::V2 {
            // For the separate limits of its processes.
            let inner = partition.inner.iter().filter(|controller| home.controllers.contains(controller));
            all.extend(inner.map(|controller| pass(&home.dir, *controller)));
        }
    }
    if let Some(home) = homes.iter().find(|home| home.version == Version::V2)
        && network_stands(ground, partition)
    {
        all.extend(super::network::wanted(&home.dir, partition, all_partitions));
    }
    all
}

/// Whether nothing prevents a class on its network device.
fn network_stands(ground: &Ground, partition: &Partition) -> bool {
    partition.network.as_ref().is_some_and(|network| super::network::lacks(ground, network).is_empty())
}

/// The remaining steps from the present values (`seen`) to the requested ones. Files in a directory that does not exist
/// yet wait for the next round. `ours` are the targets in the journal.
///
/// Without `required` the kernel may refuse a step.
///
/// # Errors
/// Missing requirements, and targets that belong to another program.
pub fn plan(
    seen: &BTreeMap<Target, Value>,
    wanted: &[RequestedValue],
    ours: &BTreeSet<Target>,
    required: bool,
) -> Result<Plan, Vec<Lack>> {
    let mut lacks = Vec::new();
    let mut steps = Vec::new();
    let of = |target: &Target| seen.get(target).cloned().unwrap_or(Value::Absent);
    for one in wanted {
        let from = of(&one.target);
        match &one.target {
            Target::Dir { path } if from == Value::Present && !ours.contains(&one.target) => {
                lacks.push(Lack::Foreign(path.clone()));
                continue;
            }
            Target::Traffic { device, handle } if from != Value::Absent && !ours.contains(&one.target) => {
                lacks.push(Lack::Traffic { device: device.clone(), kind: from.to_string(), number: handle >> 16 });
                continue;
            }
            // Its group is created first.
            Target::Sender { .. } if from == Value::Absent => continue,
            Target::File { path, .. } if from == Value::Absent => {
                let dir = path.rfind('/').map_or("", |at| &path[..at]);
                let is_made = wanted.iter().any(|other| other.target == Target::Dir { path: dir.to_owned() });
                if !is_made || of(&Target::Dir { path: dir.to_owned() }) == Value::Present {
                    lacks.push(Lack::File { path: path.clone(), option: one.option });
                }
                continue;
            }
            _ => {}
        }
        if from != one.value {
            let may_refuse = (!required).then(|| "the partition is not required".to_owned());
            let (target, label) = (one.target.clone(), one.target.to_string());
            steps.push(Step { target, label, from, to: one.value.clone(), why: one.why.clone(), may_refuse });
        }
    }
    if lacks.is_empty() { Ok(Plan { steps, ..Plan::default() }) } else { Err(lacks) }
}

/// The steps that revert recorded steps (`noted`, round by round) that are no longer requested, from the present values
/// (`seen`). Directories in `kept` stay, because they contain processes; their limits get the values from their
/// creation.
#[must_use]
pub fn dropped(
    noted: &[Step],
    wanted: &[RequestedValue],
    kept: &BTreeSet<String>,
    seen: &BTreeMap<Target, Value>,
) -> Plan {
    let is_wanted = |target: &Target| wanted.iter().any(|one| one.target == *target);
    let stays = |path: &str| kept.contains(path) || is_wanted(&Target::Dir { path: path.to_owned() });
    let goes = |path: &str| !stays(path) && noted.iter().any(|step| dir(&step.target) == Some(path));
    let mut done = BTreeSet::new();
    let mut steps = Vec::new();
    for first in noted.iter().filter(|step| !is_wanted(&step.target) && done.insert(&step.target)) {
        let goes_along = match &first.target {
            Target::Dir { path } => stays(path),
            Target::File { path, .. } => path.rfind('/').is_some_and(|at| goes(&path[..at])),
            Target::Sender { path } => goes(path),
            _ => false,
        };
        let from = seen.get(&first.target).cloned().unwrap_or(Value::Absent);
        if goes_along || from == first.from || from == Value::Absent {
            continue;
        }
        steps.push(Step { from, to: first.from.clone(), may_refuse: None, ..first.clone() });
    }
    steps.reverse();
    Plan { steps, ..Plan::default() }
}

/// Differences between present and requested values.
#[must_use]
pub fn drift(seen: &BTreeMap<Target, Value>, wanted: &[RequestedValue]) -> Vec<Drift> {
    let differs = |one: &&RequestedValue| seen.get(&one.target).unwrap_or(&Value::Absent) != &one.value;
    let drift = |one: &RequestedValue| Drift {
        target: one.target.clone(),
        label: one.target.to_string(),
        expected: one.value.clone(),
        found: seen.get(&one.target).cloned().unwrap_or(Value::Absent),
    };
    wanted.iter().filter(differs).map(drift).collect()
}

/// The steps that a removal must revert: directories, root disciplines of devices, and targets outside them. Everything
/// inside is removed with them.
#[must_use]
pub fn made(steps: &[Step]) -> Vec<Step> {
    let dirs: BTreeSet<&str> = steps.iter().filter_map(|step| dir(&step.target)).collect();
    let within = |path: &str| path.rfind('/').is_some_and(|at| dirs.contains(&path[..at]));
    // Everything below a device's root discipline is removed with it.
    let ordered = |device: &str| {
        let bucket = Target::Traffic { device: device.to_owned(), handle: super::network::BUCKET };
        steps.iter().any(|step| step.target == bucket)
    };
    let stays = |step: &&Step| match &step.target {
        Target::File { path, .. } => !within(path),
        Target::Sender { path } => !dirs.contains(path.as_str()),
        Target::TrafficClass { device, .. } => !ordered(device),
        Target::Traffic { device, handle } => *handle == super::network::BUCKET || !ordered(device),
        _ => true,
    };
    steps.iter().filter(stays).cloned().collect()
}

fn dir(target: &Target) -> Option<&str> {
    match target {
        Target::Dir { path } => Some(path),
        _ => None,
    }
}
