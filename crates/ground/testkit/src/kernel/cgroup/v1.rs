//! Cgroup version 1: nested cpusets, into which tasks are moved one by one.

use crate::kernel::{Answer, cpus, line};
use base::CpuSet;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The cpuset hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct V1 {
    mount: String,
    groups: BTreeMap<String, Group>,
}

#[derive(Clone, Debug, PartialEq)]
struct Group {
    cpus: CpuSet,
    mems: String,
    cpu_exclusive: bool,
    sched_load_balance: bool,
    effective: CpuSet,
}

impl V1 {
    /// Reads the hierarchy whose root has `cpuset.sched_load_balance`, with its groups.
    pub(in crate::kernel) fn from_files(files: &BTreeMap<String, String>, online: &CpuSet) -> Option<Self> {
        let suffix = "/cpuset.sched_load_balance";
        let top = files.keys().filter(|path| path.ends_with(suffix)).min_by_key(|path| path.len())?;
        let mount = top.strip_suffix(suffix)?.to_owned();
        let mut groups = BTreeMap::new();
        for path in files.keys() {
            let Some(directory) = path.strip_suffix(suffix).filter(|directory| directory.starts_with(&mount)) else {
                continue;
            };
            let file = |name: &str| files.get(&format!("{directory}/{name}")).map_or("", |text| text.trim());
            let list = cpus(file("cpuset.cpus")).expect(path);
            let group = Group {
                cpus: list,
                mems: file("cpuset.mems").to_owned(),
                cpu_exclusive: file("cpuset.cpu_exclusive") == "1",
                sched_load_balance: file("cpuset.sched_load_balance") != "0",
                effective: list.and(online),
            };
            groups.insert(directory.to_owned(), group);
        }
        Some(Self { mount, groups })
    }

    pub(super) fn mount(&self) -> &str {
        &self.mount
    }

    pub(super) fn holds(&self, path: &str) -> bool {
        path.strip_prefix(&self.mount).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(super) fn group(&self, path: &str) -> Option<()> {
        self.groups.get(path).map(|_| ())
    }

    pub(super) fn effective(&self, cgroup: &str) -> CpuSet {
        let path = if cgroup == "/" { self.mount.clone() } else { format!("{}{cgroup}", self.mount) };
        self.groups.get(&path).map_or(CpuSet::EMPTY, |group| group.effective)
    }

    fn parent(&self, path: &str) -> Option<&Group> {
        if path == self.mount { None } else { self.groups.get(path.rsplit_once('/')?.0) }
    }

    fn beside(&self, path: &str) -> impl Iterator<Item = &Group> {
        let above = path.rsplit_once('/').map(|(above, _)| above.to_owned());
        let path = path.to_owned();
        self.groups
            .iter()
            .filter(move |(other, _)| {
                **other != path && other.rsplit_once('/').map(|(above, _)| above) == above.as_deref()
            })
            .map(|(_, group)| group)
    }

    fn below(&self, path: &str) -> impl Iterator<Item = &Group> {
        self.groups
            .iter()
            .filter(move |(other, _)| other.rsplit_once('/').is_some_and(|(above, _)| above == path))
            .map(|(_, group)| group)
    }

    pub(super) fn make(&mut self, path: &str, _online: &CpuSet) -> Answer<()> {
        if self.groups.contains_key(path) {
            return Err(Errno::EXIST);
        }
        if self.parent(path).is_none() {
            return Err(Errno::NOENT);
        }
        let group = Group {
            cpus: CpuSet::EMPTY,
            mems: String::new(),
            cpu_exclusive: false,
            sched_load_balance: true,
            effective: CpuSet::EMPTY,
        };
        self.groups.insert(path.to_owned(), group);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> Answer<()> {
        if path == self.mount || self.below(path).next().is_some() {
            return Err(Errno::BUSY);
        }
        self.groups.remove(path).map(|_| ()).ok_or(Errno::NOENT)
    }

    /// A cpuset without CPUs or memory nodes accepts no task.
    pub(super) fn may_attach(&self, path: &str) -> Answer<()> {
        let group = self.groups.get(path).ok_or(Errno::NOENT)?;
        if group.effective.is_empty() || group.mems.is_empty() { Err(Errno::NOSPC) } else { Ok(()) }
    }

    pub(super) fn read(&self, directory: &str, name: &str) -> Option<Answer<String>> {
        let group = self.groups.get(directory)?;
        let flag = |on: bool| format!("{}\n", u8::from(on));
        Some(Ok(match name {
            "cpuset.cpus" => line(&group.cpus),
            "cpuset.effective_cpus" => line(&group.effective),
            "cpuset.mems" => format!("{}\n", group.mems),
            "cpuset.cpu_exclusive" => flag(group.cpu_exclusive),
            "cpuset.sched_load_balance" => flag(group.sched_load_balance),
            _ => return Some(Err(Errno::NOENT)),
        }))
    }

    pub(super) fn write(
        &mut self,
        directory: &str,
        name: &str,
        value: &str,
        possible: &CpuSet,
        busy: bool,
    ) -> Option<Answer<()>> {
        let group = self.groups.get(directory)?.clone();
        let top = directory == self.mount;
        let answer = match name {
            "cpuset.cpus" if top => Err(Errno::ACCESS),
            "cpuset.cpus" => cpus(value).and_then(|new| {
                self.may_set(directory, &group, &new, possible, busy).map(|()| Group { cpus: new, ..group })
            }),
            "cpuset.mems" if top => Err(Errno::ACCESS),
            "cpuset.mems" if value.is_empty() && busy => Err(Errno::NOSPC),
            "cpuset.mems" => Ok(Group { mems: value.to_owned(), ..group }),
            "cpuset.cpu_exclusive" => flag(value).and_then(|on| {
                let parent = self.parent(directory).is_none_or(|parent| parent.cpu_exclusive);
                let clash = self.beside(directory).any(|other| other.cpus.intersects(&group.cpus));
                if on && !parent {
                    Err(Errno::ACCESS)
                } else if on && clash {
                    Err(Errno::INVAL)
                } else {
                    Ok(Group { cpu_exclusive: on, ..group })
                }
            }),
            "cpuset.sched_load_balance" => flag(value).map(|on| Group { sched_load_balance: on, ..group }),
            _ => return Some(Err(Errno::NOENT)),
        };
        Some(answer.map(|group| {
            self.groups.insert(directory.to_owned(), group);
        }))
    }

    /// Checks that the group may have these CPUs.
    fn may_set(&self, directory: &str, group: &Group, new: &CpuSet, possible: &CpuSet, busy: bool) -> Answer<()> {
        if !new.is_subset(possible) {
            return Err(Errno::INVAL);
        }
        if self.below(directory).any(|child| !child.cpus.is_subset(new)) {
            return Err(Errno::BUSY);
        }
        if self.parent(directory).is_some_and(|parent| !new.is_subset(&parent.cpus)) {
            return Err(Errno::ACCESS);
        }
        if self
            .beside(directory)
            .any(|other| (other.cpu_exclusive || group.cpu_exclusive) && other.cpus.intersects(new))
        {
            return Err(Errno::INVAL);
        }
        if busy && new.is_empty() { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Returns the groups with a changed set of CPUs.
    pub(super) fn recompute(&mut self, online: &CpuSet) -> Vec<String> {
        let mut changed = Vec::new();
        // A path sorts after its ancestors. A cpuset that has lost its last CPU uses those of its parent.
        for path in self.groups.keys().cloned().collect::<Vec<_>>() {
            let above = self.parent(&path).map(|parent| parent.effective);
            let Some(group) = self.groups.get_mut(&path) else { continue };
            let own = group.cpus.and(online);
            let effective = if own.is_empty() && !group.cpus.is_empty() { above.unwrap_or(own) } else { own };
            if effective != group.effective {
                group.effective = effective;
                let name = path.strip_prefix(&self.mount).unwrap_or(&path);
                changed.push(if name.is_empty() { "/".to_owned() } else { name.to_owned() });
            }
        }
        changed
    }

    pub(super) fn files(&self) -> Vec<String> {
        let names = [
            "cpuset.cpus",
            "cpuset.effective_cpus",
            "cpuset.mems",
            "cpuset.cpu_exclusive",
            "cpuset.sched_load_balance",
            "cgroup.procs",
            "tasks",
        ];
        self.groups.keys().flat_map(|path| names.map(|name| format!("{path}/{name}"))).collect()
    }
}

fn flag(value: &str) -> Answer<bool> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Errno::INVAL),
    }
}
