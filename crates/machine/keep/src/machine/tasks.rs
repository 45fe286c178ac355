//! Reads every thread of the machine with one file per thread, and one file per cpuset for its members.

use super::cpuset_path;
use base::CpuSet;
use host::snapshot::{Cgroup, Class, Snapshot, Task, TaskKey};
use proc::status;
use proc::task_stat::{self, Stat};
use std::collections::HashMap;
use sys::Result;
use sys::kernel::Kernel;

/// Reads all threads. The cpusets must already be in the snapshot.
pub(super) fn read(root: &impl Kernel, snapshot: &mut Snapshot) -> Result<()> {
    let mut places = Cpusets::new(root, snapshot);
    for name in root.list("/proc")? {
        let Ok(pid) = name.parse::<i32>() else { continue };
        let leader = format!("/proc/{pid}");
        let Some(stat) = stat(root, &leader) else { continue };
        let several = stat.threads != 1;
        places.add(root, snapshot, pid, stat);
        if several {
            for tid in root.list(&format!("{leader}/task")).unwrap_or_default() {
                let folder = format!("{leader}/task/{tid}");
                match self::stat(root, &folder) {
                    Some(stat) if stat.tid != pid => places.add(root, snapshot, pid, stat),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Reads the placement of all threads, and everything about threads that are not in `before`.
///
/// Without cpusets only `/proc` lists the threads. Then everything is read again.
pub(super) fn read_again(root: &impl Kernel, snapshot: &mut Snapshot, before: &Snapshot) {
    let mut places = Cpusets::new(root, snapshot);
    let known: HashMap<i32, (&TaskKey, &Task)> = before.tasks.iter().map(|entry| (entry.0.tid, entry)).collect();
    if places.members.is_empty() {
        // /proc was readable a moment ago, so the error is ignored.
        let _ = read(root, snapshot);
        return;
    }
    let newcomers: Vec<i32> = places.members.keys().filter(|tid| !known.contains_key(tid)).copied().collect();
    for (key, task) in known.into_values() {
        // A thread in no listed cpuset is ending, or tahti runs in a container, where the cpusets do not list all
        // threads.
        let listed = places.members.contains_key(&key.tid);
        if !listed && stat(root, &format!("/proc/{}", key.tid)).is_none_or(|stat| stat.is_dead()) {
            continue;
        }
        places.put(root, snapshot, *key, task.clone());
    }
    for tid in newcomers {
        let folder = format!("/proc/{tid}");
        let leader = || status::field(&root.read(&format!("{folder}/status")).ok()?, "Tgid")?.parse().ok();
        if let (Some(stat), Some(tgid)) = (stat(root, &folder), leader()) {
            places.add(root, snapshot, tgid, stat);
        }
    }
}

fn stat(root: &impl Kernel, folder: &str) -> Option<Stat> {
    Stat::parse(&root.read(&format!("{folder}/stat")).ok()?)
}

/// The cpuset of each thread, and the CPUs that each cpuset offers.
struct Cpusets {
    members: HashMap<i32, String>,
    offered: HashMap<String, CpuSet>,
}

impl Cpusets {
    fn new(root: &impl Kernel, snapshot: &Snapshot) -> Self {
        let file = match snapshot.cgroup {
            Cgroup::None => None,
            Cgroup::V1 { .. } => Some("tasks"),
            Cgroup::V2 { .. } => Some("cgroup.threads"),
        };
        let mut members = HashMap::new();
        for (dir, file) in snapshot.dirs.iter().filter_map(|dir| Some((dir, file?))) {
            let Some(path) = snapshot.cpuset_of_dir(dir) else { continue };
            for tid in root.read(&format!("{dir}/{file}")).unwrap_or_default().lines() {
                if let Ok(tid) = tid.parse() {
                    members.insert(tid, path.to_owned());
                }
            }
        }
        Self { members, offered: HashMap::new() }
    }

    fn add(&mut self, root: &impl Kernel, snapshot: &mut Snapshot, tgid: i32, stat: Stat) {
        if stat.is_dead() {
            return;
        }
        let task = Task {
            tgid,
            ppid: stat.ppid,
            kernel: stat.flags & task_stat::KTHREAD != 0,
            bound: stat.is_bound(),
            class: Class::of(&stat),
            own: None,
            cpus: CpuSet::EMPTY,
            comm: stat.comm,
            cpuset: None,
        };
        self.put(root, snapshot, TaskKey { tid: stat.tid, start: stat.start }, task);
    }

    /// Adds the task with its placement. Omits it if it has ended.
    fn put(&mut self, root: &impl Kernel, snapshot: &mut Snapshot, key: TaskKey, mut task: Task) {
        let folder = if key.tid == task.tgid {
            format!("/proc/{}", key.tid)
        } else {
            format!("/proc/{}/task/{}", task.tgid, key.tid)
        };
        // One system call instead of `status`, which takes the kernel longer than all other files together.
        let allowed = if root.is_machine() {
            root.affinity(key.tid).ok()
        } else {
            let text = root.read(&format!("{folder}/status")).ok();
            text.and_then(|text| status::cpus_allowed(&text).ok())
        };
        let Some(allowed) = allowed else { return };
        task.cpuset = match (self.members.get(&key.tid), &snapshot.cgroup) {
            (Some(path), _) => Some(path.clone()),
            (None, Cgroup::None) => None,
            // Inside a container the hierarchy does not list all threads.
            (None, cgroup) => {
                let text = root.read(&format!("{folder}/cgroup")).unwrap_or_default();
                cpuset_path(&text, cgroup).map(str::to_owned)
            }
        };
        let offered = match &task.cpuset {
            None => snapshot.cpus.online,
            Some(path) => match self.offered.get(path) {
                Some(offered) => *offered,
                None => {
                    let offered = snapshot.effective(path);
                    self.offered.insert(path.clone(), offered);
                    offered
                }
            },
        };
        // Affinity to offline CPUs cannot be read back.
        task.cpus = allowed.and(&snapshot.cpus.online);
        task.own = (task.cpus != offered).then_some(task.cpus);
        snapshot.tasks.insert(key, task);
    }
}
