//! Processes that must not be touched.

use super::{Spared, Want};
use crate::snapshot::{Snapshot, Task};
use std::collections::{BTreeMap, BTreeSet};

/// A longer chain of parents is a loop in a damaged snapshot.
const GENERATIONS_MAX: usize = 4096;

/// The processes that a shield does not touch.
///
/// A spared process keeps its threads, and with `PID+` its descendants. For descendants the nearest named ancestor
/// decides: a descendant of the requesting process, or of its parent, is not spared if only an ancestor further up is
/// spared.
#[derive(Clone, Debug, Default)]
pub struct Spare {
    processes: BTreeSet<i32>,
}

impl Spare {
    /// Determines the spared processes.
    #[must_use]
    pub fn new(snapshot: &Snapshot, want: &Want) -> Self {
        if want.spare.is_empty() {
            return Self::default();
        }
        let named = |wanted: fn(&Spared) -> bool| {
            let pids: BTreeSet<i32> = want.spare.iter().filter(|one| wanted(one)).map(|one| one.pid).collect();
            // The ID may be that of a thread.
            let leaders = snapshot.tasks.iter().filter(|(key, _)| pids.contains(&key.tid)).map(|(_, task)| task.tgid);
            leaders.chain(pids.iter().copied()).collect::<BTreeSet<i32>>()
        };
        let (named, roots) = (named(|_| true), named(|one| one.descendants));
        let own: BTreeSet<i32> = want.own.iter().copied().filter(|pid| !named.contains(pid)).collect();
        let users = snapshot.tasks.values().filter(|task| !task.kernel);
        let parents: BTreeMap<i32, i32> = users.map(|task| (task.tgid, task.ppid)).collect();
        let spared = |&process: &i32| {
            let mut at = process;
            for _ in 0..GENERATIONS_MAX {
                if roots.contains(&at) {
                    return true;
                }
                if own.contains(&at) {
                    return false;
                }
                match parents.get(&at) {
                    Some(&parent) if parent != at => at = parent,
                    _ => return false,
                }
            }
            false
        };
        let descend = |process: &i32| named.contains(process) || (!roots.is_empty() && spared(process));
        let kernel = snapshot.tasks.values().filter(|task| task.kernel && named.contains(&task.tgid));
        let kernel = kernel.map(|task| task.tgid);
        Self { processes: parents.keys().copied().filter(descend).chain(kernel).collect() }
    }

    /// Whether no process is spared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Whether this task must not be touched.
    #[must_use]
    pub fn contains(&self, task: &Task) -> bool {
        self.processes.contains(&task.tgid)
    }

    /// Whether the parent of this task's process is spared. The process then starts in the same cpuset as its parent.
    #[must_use]
    pub fn contains_parent(&self, task: &Task) -> bool {
        self.processes.contains(&task.ppid)
    }
}
