//! The machine as a plain value. Plans are computed from it, compared with it, and tried on it.
//!
//! `keep::machine` reads a snapshot below a root directory in a single pass; tests construct snapshots. A snapshot
//! never changes the machine: [`Snapshot::set`] changes only the value, as the kernel would change the machine.

mod cache;
mod cgroup_v2;
mod key;
mod task;
mod value;

pub use cache::{Cache, Share};
pub use key::{BadKey, IrqKey, TaskKey};
pub use task::{Class, Placement, Task};
pub use value::{Form, Target, Value};

use base::{CpuId, CpuSet};
use proc::version::Version;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A machine at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Boot ID of the kernel (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The boot line.
    pub boot_line: String,
    /// Whole seconds since boot.
    #[serde(default)]
    pub uptime_s: u64,
    /// CPUs and their topology.
    pub cpus: Cpus,
    /// The cpuset controller that places tasks on CPUs.
    pub cgroup: Cgroup,
    /// Absolute paths of cpuset directories. For version 2, all cgroups that were read.
    pub dirs: BTreeSet<String>,
    /// Files with a value that a plan may read or write, by absolute path. A file that is missing here does not exist
    /// on the machine.
    pub files: BTreeMap<String, Value>,
    /// Every thread.
    pub tasks: BTreeMap<TaskKey, Task>,
    /// Every interrupt with a handler.
    pub irqs: BTreeMap<IrqKey, Irq>,
    /// The running irqbalance.
    pub irqbalance: Option<Irqbalance>,
}

/// The CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// CPUs that may exist.
    pub possible: CpuSet,
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs that the boot line excluded from load balancing (`isolcpus=`).
    pub isolated: CpuSet,
    /// CPUs that may stop their tick according to the boot line (`nohz_full=`).
    pub nohz_full: CpuSet,
    /// Groups of two or more hardware threads that share a core.
    pub siblings: Vec<CpuSet>,
    /// NUMA nodes by number.
    pub nodes: BTreeMap<u16, CpuSet>,
}

impl Cpus {
    /// The other hardware threads of the cores of `cpus`.
    #[must_use]
    pub fn siblings_of(&self, cpus: &CpuSet) -> CpuSet {
        let shared = self.siblings.iter().filter(|group| group.intersects(cpus));
        shared.fold(CpuSet::EMPTY, |all, group| all.or(group)).minus(cpus)
    }
}

/// The cpuset controller of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cgroup {
    /// No cpusets. Tasks can only be placed by affinity.
    #[default]
    None,
    /// The cpuset controller of version 1.
    V1 {
        /// Mount point of its hierarchy.
        mount: String,
    },
    /// The cpuset controller of version 2.
    V2 {
        /// Mount point of the hierarchy.
        mount: String,
        /// Whether systemd is PID 1 and owns the tree.
        systemd: bool,
    },
}

/// One interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// Its present number, which can change when its device reappears.
    pub number: u32,
    /// The requested CPUs.
    pub requested: CpuSet,
    /// The CPUs that the kernel delivers it to, updated at the next occurrence of the interrupt. Read only if a kernel
    /// thread follows the interrupt; `None` if the kernel does not report it.
    pub effective: Option<CpuSet>,
    /// Number of occurrences since boot, by CPU, if the interrupt cannot be moved. Empty for all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stuck: BTreeMap<CpuId, u64>,
}

/// A running irqbalance. Its settings are read through its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irqbalance {
    /// Its process ID.
    pub pid: i32,
    /// The CPUs that it excludes.
    pub banned: CpuSet,
}

impl Snapshot {
    /// Version of the kernel; 0.0 if the release cannot be parsed.
    #[must_use]
    pub fn version(&self) -> Version {
        self.kernel.parse().unwrap_or(Version::new(0, 0))
    }

    /// The CPUs in a file.
    #[must_use]
    pub fn file_cpus(&self, path: &str) -> Option<CpuSet> {
        self.files.get(path)?.cpus()
    }

    /// The text in a file.
    #[must_use]
    pub fn file_text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text()
    }

    /// The present value of a target, as in the `from` of a step.
    #[must_use]
    pub fn get(&self, target: &Target) -> Value {
        match target {
            Target::Dir { path } if self.dirs.contains(path) || self.is_cache_group(path) => Value::Present,
            Target::Dir { .. } => Value::Absent,
            Target::File { path, .. } => self.files.get(path).cloned().unwrap_or(Value::Absent),
            Target::Irq { key } => self.irqs.get(key).map_or(Value::Absent, |irq| Value::Cpus(irq.requested)),
            Target::Task { key } => self.tasks.get(key).map_or(Value::Absent, |task| Value::Place(task.place())),
            Target::Class { key } => {
                self.tasks.get(key).map_or(Value::Absent, |task| Value::Text(task.class.to_string()))
            }
            // A shield does not use these targets.
            Target::Traffic { .. } | Target::TrafficClass { .. } | Target::Sender { .. } => Value::Absent,
            Target::Irqbalance => self.irqbalance.as_ref().map_or(Value::Absent, |it| Value::Cpus(it.banned)),
        }
    }

    /// The CPUs that the cpuset at `path` gives its tasks. `path` is relative to the mount point, as in
    /// `/proc/PID/cgroup`; `/` is the top.
    #[must_use]
    pub fn effective(&self, path: &str) -> CpuSet {
        let (mount, list) = match &self.cgroup {
            Cgroup::None => return self.cpus.online,
            Cgroup::V1 { mount } => (mount, "cpuset.cpus"),
            Cgroup::V2 { mount, .. } => (mount, "cpuset.cpus.effective"),
        };
        // A cpuset without an online CPU has the CPUs of its nearest ancestor. The root has every CPU.
        let online =
            |path: &str| self.file_cpus(&format!("{mount}{path}/{list}")).map(|cpus| cpus.and(&self.cpus.online));
        let mut path = path.trim_end_matches('/');
        loop {
            match online(path) {
                Some(cpus) if !cpus.is_empty() => return cpus,
                _ if path.is_empty() => return self.cpus.online,
                _ => path = &path[..path.rfind('/').unwrap_or(0)],
            }
        }
    }

    /// The path of the cpuset in directory `dir`, relative to the mount point.
    #[must_use]
    pub fn cpuset_of_dir<'a>(&self, dir: &'a str) -> Option<&'a str> {
        let (Cgroup::V1 { mount } | Cgroup::V2 { mount, .. }) = &self.cgroup else { return None };
        match dir.strip_prefix(mount.as_str())? {
            "" => Some("/"),
            path => path.starts_with('/').then_some(path),
        }
    }

    /// Sets a target as a successful step would. This is the model of the kernel for trying plans.
    pub fn set(&mut self, target: &Target, value: &Value) {
        match (target, value) {
            (Target::Dir { path }, Value::Present) => self.make_dir(path),
            (Target::Dir { path }, _) => {
                self.dirs.remove(path);
                let inside = format!("{path}/");
                self.files.retain(|file, _| !file.starts_with(&inside));
            }
            (Target::File { path, .. }, Value::Absent) => {
                self.files.remove(path);
            }
            (Target::File { path, .. }, value) => self.set_file(path, value),
            (Target::Irq { key }, Value::Cpus(cpus)) => {
                if let Some(irq) = self.irqs.get_mut(key) {
                    irq.requested = *cpus;
                }
            }
            (Target::Task { key }, Value::Place(place)) => self.set_place(*key, place),
            (Target::Class { key }, Value::Text(text)) => {
                if let (Some(task), Ok(policy)) = (self.tasks.get_mut(key), text.parse()) {
                    task.class = Class::Of(policy);
                }
            }
            (Target::Irqbalance, Value::Cpus(cpus)) => {
                if let Some(irqbalance) = &mut self.irqbalance {
                    irqbalance.banned = *cpus;
                }
            }
            _ => {}
        }
    }

    /// Whether a resctrl group exists.
    pub(crate) fn is_cache_group(&self, path: &str) -> bool {
        path == crate::knob::CACHE_GROUP && self.files.contains_key(&format!("{path}/cpus_list"))
    }

    /// Creates a directory with the kernel's files: a cpuset without CPUs, or a resctrl group with all ways and no CPU.
    fn make_dir(&mut self, path: &str) {
        if path == crate::knob::CACHE_GROUP {
            let ways = self.files.get("/sys/fs/resctrl/schemata").cloned();
            self.files.insert(format!("{path}/cpus_list"), Value::Cpus(CpuSet::EMPTY));
            self.files.extend(ways.map(|ways| (format!("{path}/schemata"), ways)));
            return;
        }
        if !self.dirs.insert(path.to_owned()) {
            return;
        }
        let fresh: &[(&str, Value)] = match self.cgroup {
            Cgroup::None => &[],
            Cgroup::V1 { .. } => &[
                ("cpuset.cpus", Value::Cpus(CpuSet::EMPTY)),
                ("cpuset.mems", Value::Text(String::new())),
                ("cpuset.cpu_exclusive", Value::Text(String::from("0"))),
                ("cpuset.sched_load_balance", Value::Text(String::from("1"))),
            ],
            Cgroup::V2 { .. } => return self.v2_make_dir(path),
        };
        for (name, value) in fresh {
            self.files.insert(format!("{path}/{name}"), value.clone());
        }
    }

    /// Writes a file. A new CPU list of a cpuset applies to the tasks in it.
    fn set_file(&mut self, path: &str, value: &Value) {
        let changed = path.strip_suffix("/cpuset.cpus").and_then(|dir| self.cpuset_of_dir(dir)).map(str::to_owned);
        self.files.insert(path.to_owned(), value.clone());
        if let (Cgroup::V2 { .. }, Some((dir, name))) = (&self.cgroup, path.rsplit_once('/')) {
            return self.v2_changed(dir, name);
        }
        let Some(cpuset) = changed else { return };
        let inside = |task: &Task| {
            task.cpuset.as_deref().is_some_and(|place| {
                place == cpuset || place.strip_prefix(cpuset.as_str()).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        let keys: Vec<TaskKey> = self.tasks.iter().filter(|(_, task)| inside(task)).map(|(key, _)| *key).collect();
        for key in keys {
            let effective = self.tasks[&key].cpuset.as_deref().map(|cpuset| self.effective(cpuset));
            if let (Some(task), Some(effective)) = (self.tasks.get_mut(&key), effective) {
                task.follow(&effective);
            }
        }
    }

    fn set_place(&mut self, key: TaskKey, place: &Placement) {
        let effective = place.cpuset.as_deref().map_or(self.cpus.online, |cpuset| self.effective(cpuset));
        let Some(task) = self.tasks.get_mut(&key) else { return };
        if place.own {
            task.own = Some(place.cpus);
        } else if task.cpuset == place.cpuset {
            // The task has no other cpuset to follow, so only its mask can be restored.
            task.own = None;
            task.cpus = place.cpus;
            return;
        }
        task.cpuset.clone_from(&place.cpuset);
        task.follow(&effective);
    }
}
