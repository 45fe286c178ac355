//! Cgroup version 2: partitions are created, refused, shrunk and dissolved as in kernels 6.1 and 6.12.

use crate::kernel::{Answer, cpus, line};
use base::CpuSet;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The unified hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kernel) struct V2 {
    mount: String,
    /// The kernel has `cpuset.cpus.exclusive` and remote partitions (6.7).
    exclusive: bool,
    groups: BTreeMap<String, Group>,
    /// CPUs in valid isolated or root partitions below the root.
    taken: CpuSet,
    /// Boot-isolated CPUs of dissolved remote partitions. Dissolving one removes them from the list of isolated CPUs.
    forgotten: CpuSet,
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    /// Controllers enabled for its children.
    subtree: Vec<String>,
    cpus: CpuSet,
    exclusive: CpuSet,
    mems: String,
    kind: Kind,
    /// Reason why a partition is invalid.
    invalid: Option<&'static str>,
    effective: CpuSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    #[default]
    Member,
    Root,
    Isolated,
}

/// Controllers that a group may enable for its children although it has tasks itself.
const THREADED: [&str; 3] = ["cpuset", "cpu", "pids"];

const NOT_EXCLUSIVE: &str = "Cpu list in cpuset.cpus not exclusive";
const NOTHING_LEFT: &str = "Parent unable to distribute cpu downstream";
const HOUSEKEEPING: &str = "partition config conflicts with housekeeping setup";
const EMPTY_OLD: &str = "cpuset.cpus is empty";
const EMPTY: &str = "cpuset.cpus and cpuset.cpus.exclusive are empty";
const NO_PARTITION_ABOVE: &str = "Parent is not a partition root";

impl Group {
    /// CPUs that the group requests exclusively.
    fn wanted(&self) -> CpuSet {
        if self.exclusive.is_empty() { self.cpus } else { self.exclusive }
    }

    fn valid(&self) -> bool {
        self.kind != Kind::Member && self.invalid.is_none()
    }
}

impl V2 {
    /// Reads the hierarchy whose `cgroup.controllers` includes `cpuset`, with the groups that have files there.
    pub(in crate::kernel) fn from_files(
        files: &BTreeMap<String, String>,
        version: (u32, u32),
        boot_isolated: &CpuSet,
    ) -> Option<Self> {
        let offers = |path: &&String| {
            path.ends_with("/cgroup.controllers") && files[*path].split_whitespace().any(|word| word == "cpuset")
        };
        let top = files.keys().filter(offers).min_by_key(|path| path.len())?;
        let mount = top.strip_suffix("/cgroup.controllers")?.to_owned();
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for (path, text) in files {
            let Some((directory, name)) = path.strip_prefix(&mount).and_then(|_| path.rsplit_once('/')) else {
                continue;
            };
            let group = groups.entry(directory.to_owned()).or_default();
            match name {
                "cgroup.subtree_control" => group.subtree = text.split_whitespace().map(str::to_owned).collect(),
                "cpuset.cpus" => group.cpus = cpus(text).expect(path),
                "cpuset.cpus.exclusive" => group.exclusive = cpus(text).expect(path),
                "cpuset.mems" => text.trim().clone_into(&mut group.mems),
                "cpuset.cpus.partition" => {
                    group.kind = kind(text.split_whitespace().next().unwrap_or_default()).expect(path);
                }
                _ => {}
            }
        }
        let told = files.get(&format!("{mount}/cpuset.cpus.isolated")).map(|text| cpus(text).expect("a CPU list"));
        let forgotten = told.map_or(CpuSet::EMPTY, |told| boot_isolated.minus(&told));
        Some(Self { mount, exclusive: version >= (6, 7), groups, taken: CpuSet::EMPTY, forgotten })
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

    /// CPUs of valid partitions.
    pub(super) fn taken(&self) -> CpuSet {
        self.taken
    }

    /// CPUs that the tasks of a group may use. The group is named as in `/proc/TID/cgroup`. An unknown group has those of the root.
    pub(super) fn effective(&self, cgroup: &str) -> CpuSet {
        let path = if cgroup == "/" { self.mount.clone() } else { format!("{}{cgroup}", self.mount) };
        self.groups.get(&path).or_else(|| self.groups.get(&self.mount)).map_or(CpuSet::EMPTY, |group| group.effective)
    }

    /// The group has the files of the cpuset controller, because its parent enables it.
    fn has_cpuset(&self, path: &str) -> bool {
        path == self.mount
            || self.parent(path).is_some_and(|above| self.groups[&above].subtree.iter().any(|name| name == "cpuset"))
    }

    fn parent(&self, path: &str) -> Option<String> {
        if path == self.mount {
            return None;
        }
        let above = path.rsplit_once('/')?.0;
        self.groups.contains_key(above).then(|| above.to_owned())
    }

    fn siblings<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a String, &'a Group)> {
        let above = self.parent(path);
        self.groups
            .iter()
            .filter(move |(other, _)| other.as_str() != path && self.parent(other) == above && above.is_some())
    }

    pub(super) fn make(&mut self, path: &str) -> Answer<()> {
        if self.groups.contains_key(path) {
            return Err(Errno::EXIST);
        }
        let above = path.rsplit_once('/').ok_or(Errno::INVAL)?.0;
        if !self.groups.contains_key(above) {
            return Err(Errno::NOENT);
        }
        self.groups.insert(path.to_owned(), Group::default());
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> Answer<()> {
        let inside = format!("{path}/");
        if path == self.mount || self.groups.keys().any(|other| other.starts_with(&inside)) {
            return Err(Errno::BUSY);
        }
        self.groups.remove(path).map(|_| ()).ok_or(Errno::NOENT)
    }

    pub(super) fn may_attach(&self, path: &str) -> Answer<()> {
        let group = self.groups.get(path).ok_or(Errno::NOENT)?;
        let crowded = path != self.mount && group.subtree.iter().any(|name| !THREADED.contains(&name.as_str()));
        if crowded { Err(Errno::BUSY) } else { Ok(()) }
    }

    pub(super) fn read(&self, directory: &str, name: &str, boot_isolated: &CpuSet) -> Option<Answer<String>> {
        let group = self.groups.get(directory)?;
        let top = directory == self.mount;
        let cpuset = self.has_cpuset(directory);
        Some(Ok(match name {
            "cgroup.controllers" if top => "cpuset cpu memory pids\n".to_owned(),
            "cgroup.controllers" => if cpuset { "cpuset\n" } else { "\n" }.to_owned(),
            "cgroup.subtree_control" => group.subtree.join(" ") + "\n",
            "cpuset.cpus.effective" if cpuset => line(&group.effective),
            "cpuset.cpus.isolated" if top && self.exclusive => {
                line(&self.taken.or(&boot_isolated.minus(&self.forgotten)))
            }
            "cpuset.cpus" if cpuset && !top => line(&group.cpus),
            "cpuset.mems" if cpuset && !top => format!("{}\n", group.mems),
            "cpuset.cpus.exclusive" if cpuset && !top && self.exclusive => line(&group.exclusive),
            "cpuset.cpus.exclusive.effective" if cpuset && !top && self.exclusive => {
                line(&if group.valid() { group.wanted() } else { group.exclusive })
            }
            "cpuset.cpus.partition" if cpuset && !top => {
                let word = match group.kind {
                    Kind::Member => "member",
                    Kind::Root => "root",
                    Kind::Isolated => "isolated",
                };
                match group.invalid {
                    None => format!("{word}\n"),
                    Some("") => format!("{word} invalid\n"),
                    Some(why) => format!("{word} invalid ({why})\n"),
                }
            }
            _ => return Some(Err(Errno::NOENT)),
        }))
    }

    pub(super) fn write(
        &mut self,
        directory: &str,
        name: &str,
        value: &str,
        possible: &CpuSet,
        boot_isolated: &CpuSet,
        busy: bool,
    ) -> Option<Answer<()>> {
        self.groups.get(directory)?;
        let below_top = directory != self.mount && self.has_cpuset(directory);
        Some(match name {
            "cgroup.subtree_control" => self.enable(directory, value, busy),
            "cpuset.cpus" if below_top => self.set_cpus(directory, value, possible),
            "cpuset.mems" if below_top => {
                self.groups.entry(directory.to_owned()).and_modify(|group| value.clone_into(&mut group.mems));
                Ok(())
            }
            "cpuset.cpus.exclusive" if below_top && self.exclusive => self.set_exclusive(directory, value, possible),
            "cpuset.cpus.partition" if below_top => kind(value).map(|kind| {
                if self.parent(directory).is_some_and(|above| above != self.mount) && kind == Kind::Member {
                    let had = self.groups[directory].wanted().and(boot_isolated);
                    self.forgotten = self.forgotten.or(&had.and(&self.taken));
                }
                // Before 6.7, an invalid partition can be created again only after it was a member.
                let broken =
                    !self.exclusive && self.groups[directory].invalid.is_some() && self.groups[directory].kind == kind;
                if let Some(group) = self.groups.get_mut(directory).filter(|_| !broken) {
                    group.kind = kind;
                    group.invalid = None;
                }
            }),
            "cpuset.cpus.effective" | "cpuset.cpus.isolated" => Err(Errno::ACCESS),
            _ => Err(Errno::NOENT),
        })
    }

    fn enable(&mut self, directory: &str, value: &str, busy: bool) -> Answer<()> {
        let top = directory == self.mount;
        let inside = format!("{directory}/");
        let used = self
            .groups
            .iter()
            .any(|(path, group)| path.starts_with(&inside) && group.subtree.iter().any(|name| name == "cpuset"));
        let available = self.has_cpuset(directory);
        let group = self.groups.get_mut(directory).ok_or(Errno::NOENT)?;
        for word in value.split_whitespace() {
            match word.split_at_checked(1) {
                Some(("+", "cpuset")) if !available => return Err(Errno::NOENT),
                Some(("+", name)) if !top && busy && !THREADED.contains(&name) => return Err(Errno::BUSY),
                Some(("+", name)) if group.subtree.iter().all(|other| other != name) => {
                    group.subtree.push(name.to_owned())
                }
                Some(("+", _)) => {}
                Some(("-", "cpuset")) if used => return Err(Errno::BUSY),
                Some(("-", name)) => group.subtree.retain(|other| other != name),
                _ => return Err(Errno::INVAL),
            }
        }
        Ok(())
    }

    fn set_cpus(&mut self, directory: &str, value: &str, possible: &CpuSet) -> Answer<()> {
        let new = cpus(value)?;
        if !new.is_subset(possible) {
            return Err(Errno::INVAL);
        }
        // A list that overlaps a sibling partition invalidates that partition. The write succeeds.
        let broken: Vec<String> = self
            .siblings(directory)
            .filter(|(_, group)| group.valid() && group.wanted().intersects(&new))
            .map(|(path, _)| path.clone())
            .collect();
        // Kernels with exclusive CPUs give no reason here.
        let why = if self.exclusive { "" } else { NOT_EXCLUSIVE };
        for path in broken {
            self.groups.entry(path).and_modify(|group| group.invalid = Some(why));
        }
        self.groups.entry(directory.to_owned()).and_modify(|group| {
            group.cpus = new;
            group.invalid = None;
        });
        Ok(())
    }

    fn set_exclusive(&mut self, directory: &str, value: &str, possible: &CpuSet) -> Answer<()> {
        let new = cpus(value)?;
        if !new.is_subset(possible) {
            return Err(Errno::INVAL);
        }
        let clash = |group: &Group| {
            group.exclusive.intersects(&new)
                || (!group.cpus.is_empty() && !new.is_empty() && group.cpus.is_subset(&new))
        };
        if self.siblings(directory).any(|(_, group)| clash(group)) {
            return Err(Errno::INVAL);
        }
        self.groups.entry(directory.to_owned()).and_modify(|group| {
            group.exclusive = new;
            group.invalid = None;
        });
        Ok(())
    }

    /// Validates every partition from the top down and distributes the CPUs. Returns the groups with a changed set of CPUs, named as in
    /// `/proc/TID/cgroup`.
    pub(super) fn recompute(
        &mut self,
        online: &CpuSet,
        version: (u32, u32),
        boot_isolated: &CpuSet,
        occupied: &[String],
    ) -> Vec<String> {
        let before: BTreeMap<String, CpuSet> =
            self.groups.iter().map(|(path, group)| (path.clone(), group.effective)).collect();
        self.taken = CpuSet::EMPTY;
        // A path sorts after its ancestors.
        let paths: Vec<String> = self.groups.keys().cloned().collect();
        for path in &paths {
            let group = &self.groups[path];
            if group.kind == Kind::Member || path == &self.mount {
                continue;
            }
            let verdict = group.invalid.or_else(|| self.refusal(path, online, version, boot_isolated, occupied));
            let wanted = group.wanted();
            self.groups.entry(path.clone()).and_modify(|group| group.invalid = verdict);
            if verdict.is_none() {
                self.taken = self.taken.or(&wanted);
            }
        }
        for path in &paths {
            let group = &self.groups[path];
            let effective = match self.parent(path) {
                None => online.minus(&self.taken),
                Some(_) if group.valid() => group.wanted().and(online),
                Some(above) => {
                    let above = self.groups[&above].effective;
                    let own = group.cpus.and(&above);
                    if own.is_empty() || !self.has_cpuset(path) { above } else { own }
                }
            };
            self.groups.entry(path.clone()).and_modify(|group| group.effective = effective);
        }
        let name = |path: &String| {
            let rest = path.strip_prefix(&self.mount).unwrap_or(path);
            if rest.is_empty() { "/".to_owned() } else { rest.to_owned() }
        };
        self.groups
            .iter()
            .filter(|(path, group)| before.get(*path) != Some(&group.effective))
            .map(|(path, _)| name(path))
            .collect()
    }

    /// Reason why the group cannot be the requested partition.
    fn refusal(
        &self,
        path: &str,
        online: &CpuSet,
        version: (u32, u32),
        boot_isolated: &CpuSet,
        occupied: &[String],
    ) -> Option<&'static str> {
        let group = &self.groups[path];
        let above = self.parent(path)?;
        let local = above == self.mount || self.groups[&above].valid();
        let wanted = group.wanted();
        if !local {
            if !self.exclusive {
                return Some(if wanted.is_empty() { EMPTY_OLD } else { NO_PARTITION_ABOVE });
            }
            let mut ancestor = Some(above);
            while let Some(path) = ancestor.filter(|path| *path != self.mount) {
                if group.exclusive.is_empty() || !group.exclusive.is_subset(&self.groups[&path].exclusive) {
                    return Some(NO_PARTITION_ABOVE);
                }
                ancestor = self.parent(&path);
            }
            return None;
        }
        if wanted.is_empty() {
            return Some(if self.exclusive { EMPTY } else { EMPTY_OLD });
        }
        if self.siblings(path).any(|(_, other)| other.cpus.intersects(&wanted) || other.exclusive.intersects(&wanted)) {
            return Some(NOT_EXCLUSIVE);
        }
        if self.exclusive && version < (6, 14) && wanted.intersects(boot_isolated) {
            return Some(HOUSEKEEPING);
        }
        let has_tasks = above == self.mount || occupied.iter().any(|cgroup| format!("{}{cgroup}", self.mount) == above);
        if has_tasks && online.minus(&self.taken).is_subset(&wanted) {
            return Some(NOTHING_LEFT);
        }
        None
    }

    pub(super) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for path in self.groups.keys() {
            let mut add = |name: &str| files.push(format!("{path}/{name}"));
            for name in ["cgroup.controllers", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
                add(name);
            }
            let names: &[&str] = match (path == &self.mount, self.exclusive) {
                (true, true) => &["cpuset.cpus.effective", "cpuset.cpus.isolated"],
                (true, false) => &["cpuset.cpus.effective"],
                (false, true) => &[
                    "cpuset.cpus",
                    "cpuset.cpus.effective",
                    "cpuset.cpus.exclusive",
                    "cpuset.cpus.exclusive.effective",
                    "cpuset.cpus.partition",
                    "cpuset.mems",
                ],
                (false, false) => &["cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.partition", "cpuset.mems"],
            };
            if self.has_cpuset(path) {
                names.iter().for_each(|name| add(name));
            }
        }
        files
    }
}

fn kind(word: &str) -> Answer<Kind> {
    match word {
        "member" => Ok(Kind::Member),
        "root" => Ok(Kind::Root),
        "isolated" => Ok(Kind::Isolated),
        _ => Err(Errno::INVAL),
    }
}
