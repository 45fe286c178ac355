//! Limits on memory and tasks of all processes in a group: set in the hierarchy that has the controller, read back, and
//! counted.

use super::{Group, OwnGroups};
use crate::launch::Shortfall;
use base::Size;
use host::partition::{Counted, Version};
use host::plant::Bounds;
use proc::cgroup::keyed;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A controller that limits a resource, with its files in cgroup versions 2 and 1.
#[derive(Debug)]
pub(crate) struct Controller {
    kind: host::partition::Controller,
    /// Key in the plant file.
    key: &'static str,
}

/// Memory.
pub(crate) const MEMORY: Controller = Controller { kind: host::partition::Controller::Memory, key: "memory_max" };

/// Processes and threads.
pub(crate) const TASKS: Controller = Controller { kind: host::partition::Controller::Pids, key: "tasks_max" };

/// Version 1 reports at least this value if no limit is set: the largest number of whole pages.
const UNBOUNDED: u64 = 1 << 62;

/// A limit to be set.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(super) controller: &'static Controller,
    value: u64,
}

/// State of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Current use.
    pub used: u64,
    /// Limit that the kernel enforces.
    pub max: u64,
    /// Peak use; `None` if the kernel does not record it.
    #[serde(default)]
    pub peak: Option<u64>,
    /// Times the limit took effect: processes killed for lack of memory, or refused starts.
    pub met: u64,
}

/// Limits that `bounds` requests.
pub(super) fn wanted(bounds: Bounds) -> Vec<Bound> {
    let memory = bounds.memory_max.map(|Size(value)| Bound { controller: &MEMORY, value });
    let tasks = bounds.tasks_max.map(|value| Bound { controller: &TASKS, value });
    memory.into_iter().chain(tasks).collect()
}

impl Controller {
    /// Name of the controller, the same in both versions.
    pub(super) fn name(&self) -> &'static str {
        self.kind.name(Version::V2)
    }

    /// Whether the group in this directory has the controller.
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        self.files_in(dir).is_some()
    }

    fn files_in(&self, dir: &Path) -> Option<&'static Counted> {
        self.kind.counted().iter().find(|files| dir.join(files.max).exists())
    }
}

impl Bound {
    /// Key and value for messages.
    fn words(&self) -> String {
        match self.controller.kind {
            host::partition::Controller::Memory => format!("{} of {}", self.controller.key, Size(self.value)),
            _ => format!("{} of {}", self.controller.key, self.value),
        }
    }
}

impl Group {
    fn bounded_by(&self, controller: &'static Controller) -> Option<(&PathBuf, &'static Counted)> {
        self.dirs.iter().find_map(|dir| Some((dir, controller.files_in(dir)?)))
    }

    /// Sets a limit and verifies it by reading it back.
    pub(super) fn set(&self, bound: &Bound, places: &OwnGroups) -> Result<(), Shortfall> {
        let lacking =
            |found: String, remedy: &str| Shortfall { wanted: bound.words(), found, remedy: remedy.to_owned() };
        let Some((dir, files)) = self.bounded_by(bound.controller) else {
            let (found, remedy) = places.why_not(bound.controller.name());
            return Err(lacking(found, &remedy));
        };
        let file = dir.join(files.max);
        std::fs::write(&file, bound.value.to_string())
            .map_err(|error| lacking(format!("{}: {error}", file.display()), "run as root"))?;
        match self.standing(bound.controller) {
            // The kernel rounds down to whole pages.
            Some(Standing { max, .. }) if max <= bound.value => Ok(()),
            found => {
                let found = found.map_or("none".to_owned(), |found| found.max.to_string());
                Err(lacking(format!("{} reads {found}", file.display()), "see the kernel's log"))
            }
        }
    }

    /// Members that the kernel killed for lack of memory; `None` if the kernel does not count them.
    pub(crate) fn out_of_memory_kills(&self) -> Option<u64> {
        let (dir, files) = self.bounded_by(&MEMORY)?;
        keyed(&std::fs::read_to_string(dir.join(files.met.0)).ok()?, files.met.1)
    }

    /// State of a limit; `None` if none is set.
    pub(crate) fn standing(&self, controller: &'static Controller) -> Option<Standing> {
        let (dir, files) = self.bounded_by(controller)?;
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let max = number(files.max).filter(|max| *max < UNBOUNDED)?;
        let (file, name) = files.met;
        let met = read(file).and_then(|text| keyed(&text, name)).unwrap_or(0);
        Some(Standing { used: number(files.used)?, max, peak: number(files.peak), met })
    }
}

impl OwnGroups {
    /// Reason why no group has this controller, and the remedy.
    fn why_not(&self, controller: &str) -> (String, String) {
        if let Some(parent) = self.of_v1(controller) {
            let found = format!("cannot create a control group in {}", parent.display());
            return (found, "run as root, or have that directory delegated".to_owned());
        }
        if self.v2_is_taken {
            let found = format!(
                "its version 2 control group belongs to the shield, and version 1 does not have the {controller} controller"
            );
            return (found, "move the process off the shield, or use `limits`".to_owned());
        }
        match self.of_v2() {
            Some(own) => {
                let dir = own.dir.display();
                let found =
                    format!("no writable group above {dir} enables the {controller} controller for its children");
                (found, format!("echo +{controller} > {}/cgroup.subtree_control, as root", own.top.display()))
            }
            None => {
                let found = format!("no mounted control group hierarchy has the {controller} controller");
                (found, "see /proc/cgroups and the boot line (cgroup_disable)".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use sys::root::RootDir;

    fn dir(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("tahti-bounds-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("proc/self")).unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        dir
    }

    #[test]
    fn bounds_are_written_to_the_files_of_either_version_and_read_with_the_usage() {
        let v2 = [("memory.max", "max\n"), ("memory.current", "4096\n"), ("memory.events", "oom 2\noom_kill 1\n")];
        let v1 = [("pids.max", "max\n"), ("pids.current", "2\n"), ("pids.events", "max 7\n")];
        let dirs = vec![dir("v2", &v2), dir("v1", &v1)];
        let group = Group::at(dirs.clone());
        assert_eq!((group.standing(&MEMORY), group.standing(&TASKS)), (None, None), "no bound is set");
        let places = OwnGroups { root: RootDir::at(&dirs[0]), ..OwnGroups::machine() };
        let bounds = Bounds { memory_max: Some(Size(1 << 20)), tasks_max: Some(3) };
        wanted(bounds).iter().for_each(|bound| group.set(bound, &places).unwrap());
        assert_eq!(group.standing(&MEMORY), Some(Standing { used: 4096, max: 1 << 20, peak: None, met: 1 }));
        assert_eq!(group.standing(&TASKS), Some(Standing { used: 2, max: 3, peak: None, met: 7 }));
        fs::write(dirs[1].join("pids.max"), u64::MAX.to_string()).unwrap();
        assert_eq!(group.standing(&TASKS), None, "version 1 represents no bound as a number");
        dirs.iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    }

    #[test]
    fn an_unavailable_bound_is_reported_with_the_reason_and_the_remedy() {
        let none = Group::at(Vec::new());
        let bound = &wanted(Bounds { memory_max: Some(Size(1 << 20)), tasks_max: None })[0];
        let why = |name: &str, mounts: &str, groups: &str, v2_is_taken: bool| {
            let dir = dir(name, &[("proc/self/mountinfo", mounts), ("proc/self/cgroup", groups)]);
            let told = none
                .set(bound, &OwnGroups { root: RootDir::at(&dir), v2_is_taken, ..OwnGroups::machine() })
                .unwrap_err()
                .to_string();
            fs::remove_dir_all(dir).unwrap();
            told
        };
        let v2 = "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n";
        let v1 = "42 31 0:39 / /mem rw - cgroup cgroup rw,memory\n";
        let told = why("none", "", "", false);
        assert!(told.starts_with("no memory_max of 1MiB: no mounted control group hierarchy has the memory"), "{told}");
        let told = why("not-passed", v2, "0::/a\n", false);
        assert!(told.contains("no writable group above /cg/a enables the memory controller"), "{told}");
        assert!(told.contains("echo +memory > /cg/cgroup.subtree_control"), "{told}");
        let told = why("shield", v2, "0::/a\n", true);
        assert!(told.contains("belongs to the shield") && told.contains("`limits`"), "{told}");
        let told = why("refused", v1, "3:memory:/x\n", false);
        assert!(told.contains("cannot create a control group in /mem/x"), "{told}");
    }
}
