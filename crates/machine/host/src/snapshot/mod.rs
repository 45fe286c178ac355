//! The machine as a plain value: what a plan is made from, compared with, and tried on.
//!
//! `keep::machine` reads one below a root directory in a single pass; tests invent them. Never does a
//! snapshot act on anything: [`Snapshot::set`] changes the value, as the kernel would change the machine.

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

/// A machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The kernel's name for this boot (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The boot line.
    pub boot_line: String,
    /// Whole seconds since boot.
    #[serde(default)]
    pub uptime_s: u64,
    /// CPUs and how they hang together.
    pub cpus: Cpus,
    /// Who places tasks on CPUs.
    pub cgroup: Cgroup,
    /// Cpuset directories, absolute; for version 2 the whole tree as far as it was read.
    pub dirs: BTreeSet<String>,
    /// Files with a value that a plan may read or write, by absolute path; a file that is missing here is
    /// missing there.
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
    /// Those that may ever come.
    pub possible: CpuSet,
    /// Those that run.
    pub online: CpuSet,
    /// Those that the boot line took out of balancing (`isolcpus=`).
    pub isolated: CpuSet,
    /// Those whose tick the boot line lets stop.
    pub nohz_full: CpuSet,
    /// Groups of hardware threads that share a core, of two or more.
    pub siblings: Vec<CpuSet>,
    /// NUMA nodes by number.
    pub nodes: BTreeMap<u16, CpuSet>,
}

impl Cpus {
    /// The other hardware threads of the cores that `cpus` lie on.
    #[must_use]
    pub fn siblings_of(&self, cpus: &CpuSet) -> CpuSet {
        let shared = self.siblings.iter().filter(|group| group.intersects(cpus));
        shared.fold(CpuSet::EMPTY, |all, group| all.or(group)).minus(cpus)
    }
}

/// How tasks are placed on CPUs here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cgroup {
    /// No cpuset at all: plain affinity is left.
    #[default]
    None,
    /// The cpuset controller of version 1.
    V1 {
        /// Where its hierarchy is mounted.
        mount: String,
    },
    /// The cpuset controller of version 2.
    V2 {
        /// Where the hierarchy is mounted.
        mount: String,
        /// Whether systemd is PID 1 and owns the tree.
        systemd: bool,
    },
}

/// One interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irq {
    /// Its number at the moment (numbers move when a device comes back).
    pub number: u32,
    /// The CPUs that were asked for.
    pub requested: CpuSet,
    /// The CPUs that it really goes to; lags behind until the next interrupt. Only read where a kernel thread
    /// follows it there, and `None` where the kernel does not tell.
    pub effective: Option<CpuSet>,
    /// Where one comes that nobody can move: how often since boot, by CPU. Empty for all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stuck: BTreeMap<CpuId, u64>,
}

/// A running irqbalance, told through its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Irqbalance {
    /// Its process.
    pub pid: i32,
    /// The CPUs that it keeps away from.
    pub banned: CpuSet,
}

impl Snapshot {
    /// The kernel's version; 0.0 if the release cannot be read.
    #[must_use]
    pub fn version(&self) -> Version {
        self.kernel.parse().unwrap_or(Version::new(0, 0))
    }

    /// A file that holds CPUs.
    #[must_use]
    pub fn file_cpus(&self, path: &str) -> Option<CpuSet> {
        self.files.get(path)?.cpus()
    }

    /// A file that holds text.
    #[must_use]
    pub fn file_text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text()
    }

    /// The value of a target as a step would see it.
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
            // Of no shield.
            Target::Traffic { .. } | Target::TrafficClass { .. } | Target::Sender { .. } => Value::Absent,
            Target::Irqbalance => self.irqbalance.as_ref().map_or(Value::Absent, |it| Value::Cpus(it.banned)),
        }
    }

    /// The CPUs that the cpuset at `path` (as tasks name it, `/` at the top) lets its tasks use.
    #[must_use]
    pub fn effective(&self, path: &str) -> CpuSet {
        let (mount, list) = match &self.cgroup {
            Cgroup::None => return self.cpus.online,
            Cgroup::V1 { mount } => (mount, "cpuset.cpus"),
            Cgroup::V2 { mount, .. } => (mount, "cpuset.cpus.effective"),
        };
        // Where a cpuset has no list of its own, that of its nearest ancestor holds.
        let mut path = path;
        while !path.is_empty() && path != "/" {
            match self.file_cpus(&format!("{mount}{path}/{list}")) {
                Some(cpus) if !cpus.is_empty() => return cpus.and(&self.cpus.online),
                _ => path = &path[..path.rfind('/').unwrap_or(0)],
            }
        }
        self.file_cpus(&format!("{mount}/{list}")).map_or(self.cpus.online, |cpus| cpus.and(&self.cpus.online))
    }

    /// The path of the cpuset in directory `dir`, as tasks name it.
    #[must_use]
    pub fn cpuset_of_dir<'a>(&self, dir: &'a str) -> Option<&'a str> {
        let (Cgroup::V1 { mount } | Cgroup::V2 { mount, .. }) = &self.cgroup else { return None };
        match dir.strip_prefix(mount.as_str())? {
            "" => Some("/"),
            path => path.starts_with('/').then_some(path),
        }
    }

    /// Sets a target as a successful step would: the model of the kernel that plans are tried on.
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

    /// Whether a group of resctrl is there.
    pub(crate) fn is_cache_group(&self, path: &str) -> bool {
        path == crate::knob::CACHE_GROUP && self.files.contains_key(&format!("{path}/cpus_list"))
    }

    /// A new cpuset comes with the kernel's files in it, a new group of resctrl with all ways and no CPU.
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

    /// A cpuset's new list reaches the tasks in it.
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
            // Without another cpuset to follow, only the mask itself can be put back.
            task.own = None;
            task.cpus = place.cpus;
            return;
        }
        task.cpuset.clone_from(&place.cpuset);
        task.follow(&effective);
    }

    /// Whether a CPU's number may be used in a path of this machine.
    #[must_use]
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.cpus.online.contains(cpu)
    }
}
