//! Tasks: their CPU masks, and the effect of changes of their cpuset.

use super::{Answer, FakeKernel, cpus};
use base::{CpuSet, Policy};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A thread of a process.
    User,
    /// A kernel thread that may be moved.
    Kernel,
    /// A kernel thread that is bound to its CPU (`PF_NO_SETAFFINITY`).
    KernelBound,
}

/// A task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Process id.
    pub tgid: u32,
    /// Name.
    pub comm: String,
    /// Kind of the task.
    pub kind: TaskKind,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Cgroup (version 2, or the cpuset of version 1); `/` for the root.
    pub cgroup: String,
    /// CPUs on which the scheduler may run it now.
    pub mask: CpuSet,
    /// Mask that user space set with `sched_setaffinity`. Kernels since 6.2 remember it, but it cannot be read.
    pub set: Option<CpuSet>,
    /// Scheduling policy.
    pub policy: Policy,
}

/// `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// `PF_NO_SETAFFINITY`.
const NO_SET_AFFINITY: u32 = 0x0400_0000;

/// Reads the tasks from a fixture's files `/proc/TID/model`: `TGID COMM user|kernel|bound START CGROUP MASK|- [set] [CLASS]`.
pub(super) fn from_files(files: &BTreeMap<String, String>, possible: &CpuSet) -> BTreeMap<u32, Task> {
    let mut tasks = BTreeMap::new();
    for (path, text) in files {
        let Some(tid) = path.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/model")) else { continue };
        let Ok(tid) = tid.parse() else { continue };
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[tgid, comm, kind, start, cgroup, allowed, ref rest @ ..] = &words[..] else {
            panic!("{path}: expected TGID COMM KIND START CGROUP MASK, found {text:?}")
        };
        let kind = match kind {
            "user" => TaskKind::User,
            "kernel" => TaskKind::Kernel,
            "bound" => TaskKind::KernelBound,
            other => panic!("{path}: expected user, kernel or bound, found {other}"),
        };
        let mask = if allowed == "-" { *possible } else { cpus(allowed).expect(path) };
        let set = rest.contains(&"set").then_some(mask);
        let policy = rest.iter().find(|word| **word != "set").map_or(Policy::OTHER, |word| word.parse().expect(path));
        let number = |word: &str| word.parse().expect("a fixture's numbers are numbers");
        let task = Task {
            tgid: u32::try_from(number(tgid)).expect("a fixture's pids are small"),
            comm: comm.to_owned(),
            kind,
            start_ticks: number(start),
            cgroup: cgroup.to_owned(),
            mask,
            set,
            policy,
        };
        tasks.insert(tid, task);
    }
    tasks
}

impl FakeKernel {
    /// The task with this id.
    #[must_use]
    pub fn task(&self, tid: u32) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// All tasks with their ids.
    pub fn tasks(&self) -> impl Iterator<Item = (u32, &Task)> {
        self.tasks.iter().map(|(&tid, task)| (tid, task))
    }

    /// Forks a process or creates a thread. The new task inherits cgroup and masks of its parent.
    ///
    /// # Panics
    /// The parent does not exist, or `tid` is in use.
    pub fn fork(&mut self, parent: u32, tid: u32, as_thread: bool) {
        let mut task = self.tasks.get(&parent).expect("the parent runs").clone();
        task.tgid = if as_thread { task.tgid } else { tid };
        task.start_ticks += u64::from(tid);
        assert!(self.tasks.insert(tid, task).is_none(), "tid {tid} is taken");
    }

    /// Starts a task of any kind.
    ///
    /// # Panics
    /// `tid` is in use.
    pub fn start(&mut self, tid: u32, task: Task) {
        assert!(self.tasks.insert(tid, task).is_none(), "tid {tid} is taken");
    }

    /// Ends a task.
    pub fn exit(&mut self, tid: u32) {
        self.tasks.remove(&tid);
    }

    /// `sched_getaffinity`.
    ///
    /// # Errors
    /// `ESRCH` if the task does not exist.
    pub fn affinity(&self, tid: u32) -> Answer<CpuSet> {
        self.tasks.get(&tid).map(|task| task.mask.and(&self.online)).ok_or(Errno::SRCH)
    }

    /// `sched_setaffinity`.
    ///
    /// # Errors
    /// `ESRCH` if the task does not exist. `EINVAL` for a bound kernel thread, or if no CPU of its cpuset remains. `EBUSY` for a task with a
    /// DEADLINE reservation that would lose a CPU.
    pub fn set_affinity(&mut self, tid: u32, wanted: CpuSet) -> Answer<()> {
        self.call(format!("affinity of {tid} <- {wanted}"), |kernel| {
            let allowed = kernel.allowed(tid)?;
            let remembers = kernel.remembers_masks();
            let task = kernel.tasks.get_mut(&tid).ok_or(Errno::SRCH)?;
            if task.kind == TaskKind::KernelBound || !wanted.intersects(&allowed) {
                return Err(Errno::INVAL);
            }
            if matches!(task.policy, Policy::Deadline(_)) && !task.mask.is_subset(&wanted) {
                return Err(Errno::BUSY);
            }
            task.mask = wanted.and(&allowed);
            task.set = remembers.then_some(wanted);
            Ok(())
        })
    }

    /// `sched_setattr`. A real kernel also refuses a real-time class in a group without runtime; the model has no such group.
    ///
    /// # Errors
    /// `ESRCH` if the task does not exist. `EINVAL` for a reservation of a kernel thread. `EPERM` for a reservation of a thread that may not
    /// run on all CPUs outside of partitions.
    pub fn set_policy(&mut self, tid: u32, policy: Policy) -> Answer<()> {
        self.call(format!("class of {tid} <- {policy}"), |kernel| {
            let all = kernel.online.minus(&kernel.isolated_now());
            let task = kernel.tasks.get_mut(&tid).ok_or(Errno::SRCH)?;
            if matches!(policy, Policy::Deadline(_)) && task.kind != TaskKind::User {
                return Err(Errno::INVAL);
            }
            if matches!(policy, Policy::Deadline(_)) && !all.is_subset(&task.mask) {
                return Err(Errno::PERM);
            }
            task.policy = policy;
            Ok(())
        })
    }

    /// Kernels since 6.2 remember the mask that user space set, and restore it.
    fn remembers_masks(&self) -> bool {
        self.version >= (6, 2)
    }

    /// CPUs that a task's cpuset permits.
    fn allowed(&self, tid: u32) -> Answer<CpuSet> {
        let task = self.tasks.get(&tid).ok_or(Errno::SRCH)?;
        if task.kind != TaskKind::User && task.cgroup == "/" {
            return Ok(self.possible);
        }
        Ok(self.group_effective(&task.cgroup))
    }

    /// Updates the masks of a cpuset's tasks after its CPUs changed.
    pub(super) fn follow(&mut self, cgroup: &str) {
        let isolated = self.isolated_now();
        let effective = self.group_effective(cgroup);
        // Tasks in the root keep CPUs that go offline.
        let top = self.possible.minus(&isolated);
        let remembers = self.remembers_masks();
        let keeps_kernel_threads = self.version >= (7, 0);
        for task in self.tasks.values_mut().filter(|task| task.cgroup == cgroup) {
            let new = match task.kind {
                TaskKind::KernelBound => continue,
                TaskKind::Kernel if keeps_kernel_threads && cgroup == "/" => continue,
                TaskKind::Kernel | TaskKind::User if cgroup == "/" && self.v2.is_some() => top,
                TaskKind::Kernel if cgroup == "/" => continue,
                TaskKind::Kernel | TaskKind::User => effective,
            };
            let kept = task.set.filter(|_| remembers).map(|set| set.and(&new)).filter(|kept| !kept.is_empty());
            task.mask = kept.unwrap_or(new);
        }
    }

    /// Moves a task into another group and gives it the group's CPUs.
    pub(super) fn enter(&mut self, tid: u32, cgroup: &str) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        if task.cgroup == cgroup {
            return;
        }
        cgroup.clone_into(&mut task.cgroup);
        let new = match (&self.v2, cgroup) {
            // Before 6.7, a task moved to the root also gets the CPUs of partitions.
            (Some(_), "/") if self.version < (6, 7) => self.possible,
            (Some(_), "/") => self.possible.minus(&self.isolated_now()),
            _ => self.group_effective(cgroup),
        };
        let remembers = self.remembers_masks();
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let kept = task.set.filter(|_| remembers).map(|set| set.and(&new)).filter(|kept| !kept.is_empty());
        task.mask = kept.unwrap_or(new);
    }

    pub(super) fn read_task(&self, path: &str) -> Option<Answer<String>> {
        let rest = path.strip_prefix("/proc/")?;
        let (first, rest) = rest.split_once('/')?;
        let first: u32 = first.parse().ok()?;
        let (tid, name) = match rest.strip_prefix("task/") {
            Some(rest) => {
                let (tid, name) = rest.split_once('/')?;
                (tid.parse().ok()?, name)
            }
            None => (first, rest),
        };
        let Some(task) = self.tasks.get(&tid).filter(|task| task.tgid == first || tid == first) else {
            return Some(Err(Errno::NOENT));
        };
        Some(Ok(match name {
            "comm" => format!("{}\n", task.comm),
            "cgroup" => self.cgroup_lines(&task.cgroup),
            "status" => {
                format!("Name:\t{}\nTgid:\t{}\nPid:\t{tid}\nCpus_allowed_list:\t{}\n", task.comm, task.tgid, task.mask)
            }
            "stat" => {
                let flags = match task.kind {
                    TaskKind::User => 0,
                    TaskKind::Kernel => KERNEL_THREAD,
                    TaskKind::KernelBound => KERNEL_THREAD | NO_SET_AFFINITY,
                };
                let parent = u32::from(tid != 1 && task.kind == TaskKind::User)
                    + 2 * u32::from(tid > 2 && task.kind != TaskKind::User);
                let cpu = task.mask.lowest().unwrap_or_default();
                let zeros = |count: usize| vec!["0"; count].join(" ");
                let (number, priority, nice) = numbers(task.policy);
                let threads = self.tasks.values().filter(|other| other.tgid == task.tgid).count();
                // Fields 1-9, 10-18, 19 (nice), 20 (threads), 21, 22 (start), 23-38, 39 (CPU), 40-41 (class), 42-52.
                format!(
                    "{tid} ({}) S {parent} {} 0 0 -1 {flags} {} {nice} {threads} 0 {} {} {cpu} {priority} {number} {}\n",
                    task.comm,
                    task.tgid,
                    zeros(9),
                    task.start_ticks,
                    zeros(16),
                    zeros(11)
                )
            }
            "cmdline" if task.kind == TaskKind::User => format!("{}\0", task.comm),
            "cmdline" => String::new(),
            _ => return Some(self.files.get(path).cloned().ok_or(Errno::NOENT)),
        }))
    }

    pub(super) fn task_files(&self) -> impl Iterator<Item = String> + '_ {
        const NAMES: [&str; 5] = ["comm", "cgroup", "status", "stat", "cmdline"];
        self.tasks.iter().flat_map(|(tid, task)| {
            let own = (task.tgid == *tid).then(|| NAMES.map(|name| format!("/proc/{tid}/{name}")));
            let thread = NAMES.map(|name| format!("/proc/{}/task/{tid}/{name}", task.tgid));
            own.into_iter().flatten().chain(thread)
        })
    }
}

/// A policy as in `stat`: class number, real-time priority and nice value.
fn numbers(policy: Policy) -> (u8, u8, i8) {
    match policy {
        Policy::Other { nice } => (0, 0, nice),
        Policy::Fifo(priority) => (1, priority.0, 0),
        Policy::Rr(priority) => (2, priority.0, 0),
        Policy::Batch { nice } => (3, 0, nice),
        Policy::Idle => (5, 0, 0),
        Policy::Deadline(_) => (6, 0, 0),
    }
}
