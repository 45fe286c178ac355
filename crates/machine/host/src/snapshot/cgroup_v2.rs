//! Model of cgroup version 2: effects of a change of a cgroup's partition or controllers on all other cgroups and
//! tasks.

use super::{Cgroup, Snapshot, Task, TaskKey, Value};
use base::CpuSet;
use proc::version::Version;
use std::collections::BTreeMap;

/// Files of a cgroup whose parent enables the cpuset controller, with their initial values.
fn cpuset_files(remote: bool) -> Vec<(&'static str, Value)> {
    let none = || Value::Cpus(CpuSet::EMPTY);
    let mut files = vec![
        ("cpuset.cpus", none()),
        ("cpuset.cpus.effective", none()),
        ("cpuset.mems", Value::Text(String::new())),
        ("cpuset.cpus.partition", Value::Text("member".to_owned())),
    ];
    if remote {
        files.extend([("cpuset.cpus.exclusive", none()), ("cpuset.cpus.exclusive.effective", none())]);
    }
    files
}

impl Snapshot {
    fn v2_mount(&self) -> Option<String> {
        match &self.cgroup {
            Cgroup::V2 { mount, .. } => Some(mount.clone()),
            _ => None,
        }
    }

    /// Creates a cgroup of version 2.
    pub(super) fn v2_make_dir(&mut self, dir: &str) {
        self.files.insert(format!("{dir}/cgroup.subtree_control"), Value::Text("-cpuset".to_owned()));
        let above = dir.rsplit_once('/').map_or("", |(above, _)| above);
        if self.file_text(&format!("{above}/cgroup.subtree_control")) == Some("+cpuset") {
            self.v2_controller(dir, true);
        }
        self.v2_hand_out();
    }

    /// Handles a change of the file `name` in the cgroup `dir` of version 2.
    pub(super) fn v2_changed(&mut self, dir: &str, name: &str) {
        match name {
            "cgroup.subtree_control" => {
                let on = self.file_text(&format!("{dir}/{name}")) == Some("+cpuset");
                let children: Vec<String> = self.dirs.iter().filter(|it| is_child(it, dir)).cloned().collect();
                children.iter().for_each(|child| self.v2_controller(child, on));
            }
            "cpuset.cpus" | "cpuset.cpus.exclusive" | "cpuset.cpus.partition" => {}
            _ => return,
        }
        self.v2_hand_out();
    }

    /// Creates or removes the files of the cpuset controller in `dir`.
    fn v2_controller(&mut self, dir: &str, on: bool) {
        let remote =
            self.v2_mount().is_some_and(|mount| self.files.contains_key(&format!("{mount}/cpuset.cpus.isolated")));
        for (name, value) in cpuset_files(remote) {
            let path = format!("{dir}/{name}");
            if on {
                self.files.entry(path).or_insert(value);
            } else {
                self.files.remove(&path);
            }
        }
    }

    /// Distributes the CPUs: first to the partitions, the rest to all other cgroups.
    fn v2_hand_out(&mut self) {
        let Some(mount) = self.v2_mount() else { return };
        let list =
            |snapshot: &Self, dir: &str, name: &str| snapshot.file_cpus(&format!("{dir}/{name}")).unwrap_or_default();
        let wanted = |snapshot: &Self, dir: &str| {
            let exclusive = list(snapshot, dir, "cpuset.cpus.exclusive");
            if exclusive.is_empty() { list(snapshot, dir, "cpuset.cpus") } else { exclusive }
        };
        let is_partition = |snapshot: &Self, dir: &str| {
            matches!(snapshot.file_text(&format!("{dir}/cpuset.cpus.partition")), Some("isolated" | "root"))
        };
        let dirs: Vec<String> = self.dirs.iter().cloned().collect();
        let partitions = dirs.iter().filter(|dir| is_partition(self, dir));
        let taken = partitions.fold(CpuSet::EMPTY, |all, dir| all.or(&wanted(self, dir)));
        let mut effective: BTreeMap<&str, CpuSet> = BTreeMap::new();
        for dir in &dirs {
            let above = effective.get(dir.rsplit_once('/').map_or("", |(above, _)| above));
            let cpus = match above {
                _ if *dir == mount => self.cpus.online.minus(&taken),
                _ if is_partition(self, dir) => wanted(self, dir).and(&self.cpus.online),
                Some(above) => {
                    let own = list(self, dir, "cpuset.cpus").and(above);
                    if own.is_empty() { *above } else { own }
                }
                None => continue,
            };
            effective.insert(dir, cpus);
        }
        let mut changed = false;
        for (dir, cpus) in effective {
            if let Some(file) = self.files.get_mut(&format!("{dir}/cpuset.cpus.effective")) {
                changed |= *file != Value::Cpus(cpus);
                *file = Value::Cpus(cpus);
            }
        }
        if changed {
            self.v2_follow();
        }
    }

    /// Applies the effective CPUs of cgroups to their tasks. Own masks are lost where the kernel forgets them.
    fn v2_follow(&mut self) {
        let version = self.version();
        let forgets = |task: &Task| {
            if task.kernel { version < Version::new(7, 0) } else { version < Version::new(6, 2) }
        };
        let places: BTreeMap<TaskKey, CpuSet> = (self.tasks.iter())
            .filter_map(|(key, task)| Some((*key, self.effective(task.cpuset.as_deref()?))))
            .collect();
        for (key, effective) in places {
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            if forgets(task) && !task.bound {
                task.own = None;
            }
            task.follow(&effective);
        }
    }
}

/// Whether `dir` is directly below `above`.
fn is_child(dir: &str, above: &str) -> bool {
    dir.strip_prefix(above).and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| !name.contains('/'))
}
