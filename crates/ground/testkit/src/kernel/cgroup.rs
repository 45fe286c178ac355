//! Cgroup file systems: the cpuset controller of version 2 with partitions, and of version 1.

mod v1;
mod v2;

pub(super) use v1::V1;
pub(super) use v2::V2;

use super::{Answer, FakeKernel};
use base::CpuSet;
use rustix::io::Errno;

impl FakeKernel {
    /// The path is a cgroup's directory.
    pub(super) fn is_group(&self, path: &str) -> bool {
        let v2 = self.v2.as_ref().is_some_and(|v2| v2.group(path).is_some());
        v2 || self.v1.as_ref().is_some_and(|v1| v1.group(path).is_some())
    }

    /// CPUs that a cgroup's tasks may use.
    pub(super) fn group_effective(&self, cgroup: &str) -> CpuSet {
        match (&self.v2, &self.v1) {
            (Some(v2), _) => v2.effective(cgroup),
            (None, Some(v1)) => v1.effective(cgroup),
            (None, None) => self.online,
        }
    }

    /// CPUs that partitions currently isolate.
    pub(super) fn isolated_now(&self) -> CpuSet {
        self.v2.as_ref().map_or(CpuSet::EMPTY, V2::taken)
    }

    /// Content of `/proc/TID/cgroup` for a task in this cgroup.
    pub(super) fn cgroup_lines(&self, cgroup: &str) -> String {
        match (&self.v2, &self.v1) {
            (Some(_), _) => format!("0::{cgroup}\n"),
            (None, Some(_)) => format!("1:cpuset:{cgroup}\n0::/\n"),
            (None, None) => "0::/\n".to_owned(),
        }
    }

    /// Applies all effects of a change of CPUs or cgroups.
    pub(super) fn recompute(&mut self) {
        for cgroup in self.hand_out() {
            self.follow(&cgroup);
        }
        self.exclude_workqueues();
    }

    /// Distributes the CPUs among the cgroups. Returns those with a changed set of CPUs.
    pub(super) fn hand_out(&mut self) -> Vec<String> {
        let (online, version, boot_isolated) = (self.online, self.version, self.boot_isolated);
        let occupied: Vec<String> = self.tasks.values().map(|task| task.cgroup.clone()).collect();
        match (&mut self.v2, &mut self.v1) {
            (Some(v2), _) => v2.recompute(&online, version, &boot_isolated, &occupied),
            (None, Some(v1)) => v1.recompute(&online),
            (None, None) => Vec::new(),
        }
    }

    pub(super) fn make_group(&mut self, path: &str) -> Option<Answer<()>> {
        let online = self.online;
        if let Some(v2) = self.v2.as_mut().filter(|v2| v2.holds(path)) {
            let answer = v2.make(path);
            self.recompute();
            return Some(answer);
        }
        self.v1.as_mut().filter(|v1| v1.holds(path)).map(|v1| v1.make(path, &online))
    }

    pub(super) fn remove_group(&mut self, path: &str) -> Option<Answer<()>> {
        let mount = self.group_mount(path)?;
        let cgroup = path.strip_prefix(&mount)?.to_owned();
        if self.tasks.values().any(|task| task.cgroup == cgroup) {
            return Some(Err(Errno::BUSY));
        }
        let answer = match (&mut self.v2, &mut self.v1) {
            (Some(v2), _) => v2.remove(path),
            (None, Some(v1)) => v1.remove(path),
            (None, None) => return None,
        };
        self.recompute();
        Some(answer)
    }

    pub(super) fn read_group(&self, path: &str) -> Option<Answer<String>> {
        let mount = self.group_mount(path)?;
        let (directory, name) = path.rsplit_once('/')?;
        if name == "cgroup.procs" || name == "tasks" || name == "cgroup.threads" {
            let cgroup = directory.strip_prefix(&mount)?;
            let cgroup = if cgroup.is_empty() { "/" } else { cgroup };
            if !self.is_group(directory) {
                return Some(Err(Errno::NOENT));
            }
            let ids = self.tasks.iter().filter(|(_, task)| task.cgroup == cgroup).map(|(tid, task)| (*tid, task.tgid));
            let ids = ids.filter_map(
                |(tid, tgid)| if name == "cgroup.procs" { (tid == tgid).then_some(tgid) } else { Some(tid) },
            );
            return Some(Ok(ids.map(|id| format!("{id}\n")).collect()));
        }
        match (&self.v2, &self.v1) {
            (Some(v2), _) => v2.read(directory, name, &self.boot_isolated),
            (None, Some(v1)) => v1.read(directory, name),
            (None, None) => None,
        }
    }

    pub(super) fn write_group(&mut self, path: &str, value: &str) -> Option<Answer<()>> {
        let mount = self.group_mount(path)?;
        let (directory, name) = path.rsplit_once('/')?;
        let value = value.trim();
        if name == "cgroup.procs" || name == "tasks" {
            let cgroup = directory.strip_prefix(&mount)?;
            let cgroup = if cgroup.is_empty() { "/" } else { cgroup }.to_owned();
            return Some(self.attach(directory, &cgroup, value, name == "cgroup.procs"));
        }
        let (possible, boot_isolated) = (self.possible, self.boot_isolated);
        let busy = |cgroup: &str| self.tasks.values().any(|task| task.cgroup == cgroup);
        let cgroup = directory.strip_prefix(&mount)?;
        let busy = busy(if cgroup.is_empty() { "/" } else { cgroup });
        let answer = match (&mut self.v2, &mut self.v1) {
            (Some(v2), _) => v2.write(directory, name, value, &possible, &boot_isolated, busy),
            (None, Some(v1)) => v1.write(directory, name, value, &possible, busy),
            (None, None) => return None,
        };
        self.recompute();
        answer
    }

    /// Moves a process or a thread into a cgroup.
    fn attach(&mut self, directory: &str, cgroup: &str, value: &str, whole: bool) -> Answer<()> {
        if !self.is_group(directory) {
            return Err(Errno::NOENT);
        }
        let tid: u32 = value.parse().map_err(|_| Errno::INVAL)?;
        let task = self.tasks.get(&tid).ok_or(Errno::SRCH)?;
        if task.kind == super::TaskKind::KernelBound
            || (task.kind == super::TaskKind::Kernel && task.comm == "kthreadd")
        {
            return Err(Errno::INVAL);
        }
        match (&self.v2, &self.v1) {
            (Some(v2), _) => v2.may_attach(directory)?,
            (None, Some(v1)) => v1.may_attach(directory)?,
            (None, None) => return Err(Errno::NOENT),
        }
        let tgid = task.tgid;
        let moved: Vec<u32> = self
            .tasks
            .iter()
            .filter(|(id, task)| if whole { task.tgid == tgid } else { **id == tid })
            .map(|(id, _)| *id)
            .collect();
        for tid in moved {
            self.enter(tid, cgroup);
        }
        Ok(())
    }

    /// The mount point that contains the path.
    fn group_mount(&self, path: &str) -> Option<String> {
        let v2 = self.v2.as_ref().filter(|v2| v2.holds(path)).map(|v2| v2.mount().to_owned());
        v2.or_else(|| self.v1.as_ref().filter(|v1| v1.holds(path)).map(|v1| v1.mount().to_owned()))
    }

    pub(super) fn group_files(&self) -> Vec<String> {
        let v2 = self.v2.iter().flat_map(V2::files);
        v2.chain(self.v1.iter().flat_map(V1::files)).collect()
    }
}
