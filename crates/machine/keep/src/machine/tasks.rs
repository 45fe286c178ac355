//! Every thread of the machine, with as few files as it takes: one a thread, and one a cpuset for who is in it.

use super::cpuset_path;
use base::CpuSet;
use host::snapshot::{Cgroup, Class, Snapshot, Task, TaskKey};
use proc::status;
use proc::task_stat::{self, Stat};
use std::collections::HashMap;
use sys::Result;
use sys::kernel::Kernel;

/// Reads all threads; the cpusets are there already.
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

/// Reads the places of all threads, and everything about those that were not there `before`.
///
/// Without cpusets nobody lists the threads but `/proc`, and then all is read anew.
pub(super) fn read_again(root: &impl Kernel, snapshot: &mut Snapshot, before: &Snapshot) {
    let mut places = Cpusets::new(root, snapshot);
    let known: HashMap<i32, (&TaskKey, &Task)> = before.tasks.iter().map(|entry| (entry.0.tid, entry)).collect();
    if places.members.is_empty() {
        // /proc can be listed: it was a moment ago.
        let _ = read(root, snapshot);
        return;
    }
    let newcomers: Vec<i32> = places.members.keys().filter(|tid| !known.contains_key(tid)).copied().collect();
    for (key, task) in known.into_values() {
        // Who left every cpuset is ending, or is seen from inside a container, where they do not list everybody.
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

/// Which cpuset each thread is in, and what the cpusets offer.
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

    /// Completes the task with its place; leaves it out if it has ended.
    fn put(&mut self, root: &impl Kernel, snapshot: &mut Snapshot, key: TaskKey, mut task: Task) {
        let folder = if key.tid == task.tgid {
            format!("/proc/{}", key.tid)
        } else {
            format!("/proc/{}/task/{}", task.tgid, key.tid)
        };
        // One call instead of a file that takes the kernel longer to write than all the rest.
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
            // A hierarchy that is seen from inside a container does not list everybody.
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
        // What is said of CPUs that are off, nobody can read back.
        task.cpus = allowed.and(&snapshot.cpus.online);
        task.own = (task.cpus != offered).then_some(task.cpus);
        snapshot.tasks.insert(key, task);
    }
}
