//! Limits of a process as the plant file declares them, and whether a control group freezes it.

use super::threads::lacking;
use crate::group::{Group, MEMORY, TASKS};
use host::health::Observation;
use host::plant::Process;
use proc::cgroup::keyed;
use proc::limits::{Limit, limit};
use std::path::PathBuf;
use sys::root::RootDir;

/// Shortfalls of a start that concern the limits of the process's group.
const BOUNDS: [&str; 2] = ["no memory_max", "no tasks_max"];
/// The kernel rounds a limit of memory down to whole pages, which have at most this size.
const PAGE_MAX: u64 = 64 << 10;

/// Compares the declared limits with those in the kernel. `group`: the process's own control group.
pub(super) fn limits(
    root: &RootDir,
    pid: i32,
    process: &Process,
    group: Option<&Group>,
    shortfalls: &[String],
) -> Observation {
    let mut wrong = resources(root, pid, process);
    if let Some(expected) = process.hygiene.oom_score_adjust
        && let Ok(found) = root.read(&format!("/proc/{pid}/oom_score_adj"))
        && found.trim() != expected.to_string()
    {
        wrong.push(format!("oom_score_adjust is {}, expected {expected}", found.trim()));
    }
    let lacks = lacking(shortfalls, &BOUNDS);
    let max = |controller| Some(group?.standing(controller)?.max);
    if lacks.is_none() {
        let bounds = process.bounds;
        wrong.extend(bounds.memory_max.and_then(|size| bound("memory_max", max(&MEMORY), size.0, PAGE_MAX)));
        wrong.extend(bounds.tasks_max.and_then(|tasks| bound("tasks_max", max(&TASKS), tasks, 1)));
        let is_bounded = bounds.memory_max.is_some() || bounds.tasks_max.is_some();
        let is_outside = |dir: &PathBuf| !Group::at(vec![dir.clone()]).members().contains(&pid);
        if is_bounded && group.is_some_and(|group| group.dirs().iter().any(is_outside)) {
            wrong.push("it was moved out of its control group".to_owned());
        }
    }
    match (wrong.is_empty(), lacks) {
        (false, _) => Observation::Broken(wrong.join(", ")),
        (true, Some(lacks)) => Observation::Absent(lacks),
        (true, None) => Observation::Kept,
    }
}

/// The resource limits (`prlimit(2)`) that differ. A process that has just ended has none.
fn resources(root: &RootDir, pid: i32, process: &Process) -> Vec<String> {
    let declared = &process.limits;
    let rows = [
        ("files", "Max open files", declared.files),
        ("core", "Max core file size", declared.core.map(|size| size.0)),
        ("locked", "Max locked memory", declared.locked.map(|size| size.0)),
        ("memory", "Max address space", declared.memory.map(|size| size.0)),
        ("stack", "Max stack size", declared.stack.map(|size| size.0)),
        ("rttime", "Max realtime timeout", declared.rttime.map(|time| time.0.unsigned_abs() / 1000)),
    ];
    if rows.iter().all(|(.., value)| value.is_none()) {
        return Vec::new();
    }
    let Ok(text) = root.read(&format!("/proc/{pid}/limits")) else { return Vec::new() };
    let shown = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), |value| value.to_string());
    let differ = |(key, name, expected): (&str, &str, Option<u64>)| {
        let (expected, Limit { soft, hard }) = (expected?, limit(&text, name).ok()?);
        (soft != Some(expected) || hard != Some(expected))
            .then(|| format!("limit of {key} is {} (hard {}), expected {expected}", shown(soft), shown(hard)))
    };
    rows.into_iter().filter_map(differ).collect()
}

/// The difference of a limit of the group, if any.
fn bound(key: &str, found: Option<u64>, expected: u64, page: u64) -> Option<String> {
    match found {
        Some(max) if max <= expected && expected - max < page => None,
        Some(max) => Some(format!("{key} is {max}, expected {expected}")),
        None => Some(format!("no {key}, expected {expected}")),
    }
}

/// A description, if the group or one above it is frozen.
pub(super) fn frozen(group: &Group) -> Option<String> {
    let dir = group.dirs().first()?;
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let is_frozen = keyed(&read("cgroup.events"), "frozen") == Some(1) || read("freezer.state").trim() == "FROZEN";
    is_frozen.then(|| format!("frozen: its control group {} or one above it is frozen", dir.display()))
}
