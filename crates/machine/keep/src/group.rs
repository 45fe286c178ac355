//! Control groups of supervised processes. They find and end all descendants of a process after its keeper has ended,
//! including daemons and processes that ignore signals.
//!
//! Each keeper creates a separate control group for its child and writes the group's path to its folder. The group is
//! in version 2, which needs no controller. If the shield needs version 2 for the same process, the group is in the
//! freezer hierarchy of version 1. If the process has [`bounds`], the group is created where the controllers are.
//!
//! A living keeper holds a lock of its group's directories. A keeper that creates a group removes the empty groups beside it
//! whose lock is free: their keepers were killed.
//!
//! If no group can be created, or if a descendant has left the group, the [`MARK`] in its environment identifies it. All
//! descendants inherit the mark.

mod bounds;

use bounds::Bound;
pub use bounds::Standing;
pub(crate) use bounds::{MEMORY, TASKS};

use crate::launch::Shortfall;
use base::DurNs;
use host::plant::Bounds;
use proc::cgroup::{Membership, keyed, memberships};
use proc::mountinfo::{Mount, mounts};
use rustix::fs::Access;
use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sys::lock::FileLock;
use sys::process::Process;
use sys::root::RootDir;
use sys::signal::SIGKILL;

/// Environment variable with the path of the keeper's folder. All descendants of the keeper inherit it.
pub(crate) const MARK: &str = "TAHTI_KEEPER";
/// File in the keeper's folder with the path of its group.
const NOTE: &str = "group";
/// Maximum groups read below one group.
const GROUPS_MAX: usize = 1000;
/// Maximum rounds of killing. Each round catches processes that were forked before the previous kill took effect.
const ROUNDS: usize = 100;
/// Ending of the names of groups of keepers.
const ENDING: &str = ".process";
/// Pause between two rounds. A process needs a moment to end.
const PAUSE: DurNs = DurNs::from_ms(5);

/// A control group that holds a process and its descendants, in one hierarchy or in several hierarchies of version 1.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Its directories. Members are killed as one through the first.
    dirs: Vec<PathBuf>,
    /// The locks of its directories, held until it is dropped, if this process created it.
    _locks: Vec<Arc<FileLock>>,
}

impl Group {
    /// Creates the group of the keeper in `folder` and notes it there. May be called again.
    ///
    /// `joined` are groups that the child joins anyway. `within` are the groups of its partition; its own groups are
    /// created in them. The group is `None` if none may be created; descendants then have only the mark. The second
    /// value lists the `bounds` that could not be set.
    pub(crate) fn make(
        folder: &Path,
        name: &str,
        joined: &[PathBuf],
        within: &[PathBuf],
        bounds: Bounds,
    ) -> (Option<Self>, Vec<Shortfall>) {
        // Plants of the same name may run in several run directories.
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        let name = format!("tahti-{}-{:08x}{ENDING}", name.replace('/', "_"), hasher.finish() as u32);
        let in_v2 = |dir: &PathBuf| dir.join("cgroup.procs").exists() && !dir.join("tasks").exists();
        let v2_is_taken = joined.iter().any(in_v2);
        let places = OwnGroups { v2_is_taken, within: within.to_vec(), ..OwnGroups::machine() };
        let wanted = bounds::wanted(bounds);
        let below = |parent: PathBuf| Self::below(&parent, &name);
        let (mut dirs, mut locks): (Vec<PathBuf>, Vec<_>) =
            places.for_killing(&wanted).into_iter().find_map(below).into_iter().unzip();
        for bound in &wanted {
            if !dirs.iter().any(|dir| bound.controller.is_in(dir)) {
                let partition = within.iter().find(|dir| dir.join("tasks").exists() && bound.controller.is_in(dir));
                let made = partition.cloned().or_else(|| places.of_v1(bound.controller.name())).and_then(below);
                let (dir, lock): (Vec<_>, Vec<_>) = made.into_iter().unzip();
                dirs.extend(dir);
                locks.extend(lock);
            }
        }
        let group = Self { dirs, _locks: locks };
        let lacking = wanted.iter().filter_map(|bound| group.set(bound, &places).err()).collect();
        // A group that is not noted cannot be found later. The mark works without a note.
        let noted = group.dirs.iter().map(|dir| dir.as_os_str().as_encoded_bytes()).collect::<Vec<_>>().join(&b'\n');
        let kept = !group.dirs.is_empty() && std::fs::write(folder.join(NOTE), noted).is_ok();
        (kept.then_some(group), lacking)
    }

    fn below(parent: &Path, name: &str) -> Option<(PathBuf, Arc<FileLock>)> {
        rustix::fs::access(parent.join("cgroup.procs"), Access::WRITE_OK).ok()?;
        Self::sweep(parent);
        let dir = parent.join(name);
        // An empty group left by a killed keeper may still have limits.
        let _ = std::fs::remove_dir(&dir);
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        // A group below a threaded group accepts no processes.
        let kind = std::fs::read_to_string(dir.join("cgroup.type"));
        if kind.is_ok_and(|kind| kind.trim() != "domain") {
            let _ = std::fs::remove_dir(&dir);
            return None;
        }
        let lock = (0..ROUNDS).find_map(|_| {
            let lock = Self::lock(&dir);
            if lock.is_none() {
                // Another keeper has the lock for a moment, and may remove the group.
                std::thread::sleep(PAUSE.to_std());
                let _ = std::fs::create_dir(&dir);
            }
            lock
        })?;
        Some((dir, Arc::new(lock)))
    }

    /// Takes the lock of a directory; `None` if it is taken or the directory was removed.
    fn lock(dir: &Path) -> Option<FileLock> {
        let lock = FileLock::try_take(File::open(dir).ok()?).ok()?;
        let (locked, found) = (lock.file().metadata().ok()?, std::fs::metadata(dir).ok()?);
        (locked.ino() == found.ino()).then_some(lock)
    }

    /// Removes the empty groups of killed keepers in a directory.
    fn sweep(parent: &Path) {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().take(GROUPS_MAX);
        let is_own = |name: &str| name.starts_with("tahti-") && name.ends_with(ENDING);
        for dir in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_own)).map(|entry| entry.path()) {
            if let Some(_lock) = Self::lock(&dir) {
                // Fails if it has members or groups below it.
                let _ = std::fs::remove_dir(dir);
            }
        }
    }

    /// The group that a keeper noted in its folder, if it still exists.
    pub(crate) fn noted(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join(NOTE)).ok()?;
        // Accepts only names that `make` creates, so that no other group is ever killed.
        let own = |dir: &PathBuf| {
            let name = dir.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"tahti-"));
            name && dir.join("cgroup.procs").exists()
        };
        let dirs: Vec<PathBuf> = text.lines().map(PathBuf::from).filter(own).collect();
        (!dirs.is_empty()).then_some(Self::at(dirs))
    }

    /// The directories that members join.
    pub(crate) fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// An existing group in these directories.
    pub(crate) fn at(dirs: Vec<PathBuf>) -> Self {
        Self { dirs, _locks: Vec::new() }
    }

    /// Groups that a member joins: its own, and those of its partition that contain none of its own.
    pub(crate) fn joins(group: Option<&Self>, within: &[PathBuf]) -> Vec<PathBuf> {
        let own = group.map_or(&[][..], Self::dirs);
        let outside = within.iter().filter(|dir| !own.iter().any(|own| own.starts_with(dir)));
        outside.chain(own).cloned().collect()
    }

    /// Removes the empty groups that keepers left below a directory.
    pub(crate) fn remove_below(dir: &Path) {
        for dir in Self::whole(dir).into_iter().skip(1).rev() {
            // Removing a group that is not empty fails; it stays.
            let _ = std::fs::remove_dir(dir);
        }
    }

    fn first(&self) -> &Path {
        self.dirs.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// A directory and all groups below it, the directory itself first.
    fn whole(dir: &Path) -> Vec<PathBuf> {
        let mut found = vec![dir.to_owned()];
        let mut next = 0;
        while let Some(dir) = found.get(next).cloned().filter(|_| found.len() < GROUPS_MAX) {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            found.extend(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|it| it.path()));
            next += 1;
        }
        found
    }

    /// Processes in the group and in groups below it. Zombies are not listed.
    pub(crate) fn members(&self) -> Vec<i32> {
        let lists = Self::whole(self.first()).into_iter().map(|dir| std::fs::read_to_string(dir.join("cgroup.procs")));
        lists.flatten().flat_map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
    }

    /// Processor time of all present and former members; only version 2 counts it.
    pub(crate) fn cpu(&self) -> Option<DurNs> {
        let stat = |dir: &PathBuf| std::fs::read_to_string(dir.join("cpu.stat")).ok();
        let used = self.dirs.iter().filter_map(stat).find_map(|stat| keyed(&stat, "usage_usec"))?;
        Some(DurNs(i64::try_from(used).unwrap_or(i64::MAX).saturating_mul(1000)))
    }

    /// Sends SIGKILL to all members at once, so that none can fork in between.
    pub(crate) fn kill(&self) {
        if std::fs::write(self.first().join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Kernels before 5.14, and version 1: a frozen process cannot fork.
        let (file, freeze, thaw) = match self.first().join("freezer.state") {
            v1 if v1.exists() => (v1, "FROZEN", "THAWED"),
            _ => (self.first().join("cgroup.freeze"), "1", "0"),
        };
        // A process that cannot be frozen can still be killed. The callers check again.
        let _ = std::fs::write(&file, freeze);
        let opened: Vec<Process> = self.members().into_iter().filter_map(|pid| Process::open(pid).ok()).collect();
        // Listed again after the handles are open: a PID that was reused in between is not a member.
        let still: BTreeSet<i32> = self.members().into_iter().collect();
        for process in opened.iter().filter(|process| still.contains(&process.pid())) {
            let _ = process.signal(SIGKILL);
        }
        let _ = std::fs::write(&file, thaw);
    }

    /// Removes the group if it is empty.
    pub(crate) fn remove(&self) {
        for dir in self.dirs.iter().flat_map(|dir| Self::whole(dir).into_iter().rev()) {
            // A group that is not empty stays. The next keeper in the same folder finds it.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Ends all descendants that the keeper in `folder` left behind, and returns their number. The keeper must have ended.
/// Waits at most 0.5 s for their end. A process that hangs in the kernel longer is found by the next call.
pub(crate) fn end_family(folder: &Path) -> usize {
    let (group, wanted) = (Group::noted(folder), mark(folder));
    let mut ended = BTreeSet::new();
    for _ in 0..ROUNDS {
        let members = group.as_ref().map_or(Vec::new(), Group::members);
        if let Some(group) = group.as_ref().filter(|_| !members.is_empty()) {
            group.kill();
        }
        let marked = kill_marked(|variable| variable == wanted);
        if members.is_empty() && marked.is_empty() {
            break;
        }
        ended.extend(members.into_iter().chain(marked));
        std::thread::sleep(PAUSE.to_std());
    }
    if let Some(group) = group {
        group.remove();
    }
    ended.len()
}

/// Ends all processes that have the mark of a keeper below the folder `keepers`, and returns their number. Called if no
/// supervisor and no keeper is left, so that no process runs twice.
pub(crate) fn end_strays(keepers: &Path) -> usize {
    let mut wanted = mark(keepers);
    wanted.push(b'/');
    let mut ended = BTreeSet::new();
    for _ in 0..ROUNDS {
        let killed = kill_marked(|variable| variable.starts_with(&wanted));
        if killed.is_empty() {
            break;
        }
        ended.extend(killed);
        std::thread::sleep(PAUSE.to_std());
    }
    ended.len()
}

/// The variable that marks the descendants of the keeper in `folder`.
fn mark(folder: &Path) -> Vec<u8> {
    let mut variable = format!("{MARK}=").into_bytes();
    variable.extend(folder.as_os_str().as_encoded_bytes());
    variable
}

/// Kills every process with a variable for which `is_mark` holds, and returns their PIDs.
fn kill_marked(is_mark: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let root = RootDir::machine();
    let pids = root.list("/proc").unwrap_or_default();
    let pids = pids.iter().filter_map(|name| name.parse::<i32>().ok()).filter(|pid| *pid != own);
    let marked = |pid: i32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(&is_mark))
    };
    let kill = |pid: i32| {
        let process = Process::open(pid).ok()?;
        // Checked while the handle is open and the process lives, so the mark belongs to the process that gets the
        // signal.
        let is_meant = marked(pid) && !process.has_ended();
        (is_meant && process.signal(SIGKILL).is_ok()).then_some(pid)
    };
    pids.filter(|pid| marked(*pid)).filter_map(kill).collect()
}

/// Places where groups may be created, relative to the caller's own groups.
pub(crate) struct OwnGroups {
    root: RootDir,
    /// Directories of the partition.
    within: Vec<PathBuf>,
    /// The member is in another group of version 2, and therefore cannot join a new one there.
    v2_is_taken: bool,
}

impl OwnGroups {
    /// Places on this machine, for a member that is in no other group.
    pub(crate) fn machine() -> Self {
        Self { root: RootDir::machine(), within: Vec::new(), v2_is_taken: false }
    }

    /// Candidate parents of a group that can be killed as a whole, in order of preference: a group of version 2 that
    /// enables all controllers for `wanted`, then the caller's own group, then the freezer of version 1.
    fn for_killing(&self, wanted: &[Bound]) -> Vec<PathBuf> {
        let own = self.of_v2();
        // A process with a partition in version 2 must stay in it.
        let partition = self.within.iter().find(|dir| !self.v2_is_taken && !dir.join("tasks").exists());
        if let Some(partition) = partition {
            return vec![partition.clone()];
        }
        let passes = |dir: &&Path| {
            let passed = self.root.read(&format!("{}/cgroup.subtree_control", dir.display())).unwrap_or_default();
            let passed: Vec<&str> = passed.split_whitespace().collect();
            !wanted.is_empty() && wanted.iter().all(|bound| passed.contains(&bound.controller.name()))
        };
        let above = own.iter().flat_map(|own| own.dir.ancestors().take_while(|dir| dir.starts_with(&own.top)));
        let bounding = above.filter(passes).map(Path::to_owned).next();
        bounding.into_iter().chain(own.iter().map(|own| own.dir.clone())).chain(self.of_v1("freezer")).collect()
    }

    /// The caller's own group in version 2.
    pub(crate) fn of_v2(&self) -> Option<Own> {
        if self.v2_is_taken {
            return None;
        }
        self.own(|mount| mount.kind == "cgroup2", |member| member.is_v2())
    }

    /// The caller's own group in the version 1 hierarchy that has this controller.
    pub(crate) fn of_v1(&self, controller: &str) -> Option<PathBuf> {
        let own = self.own(|mount| mount.kind == "cgroup" && mount.has(controller), |member| member.has(controller));
        own.map(|own| own.dir)
    }

    fn own(&self, is_mount: impl Fn(&Mount<'_>) -> bool, is_member: impl Fn(&Membership<'_>) -> bool) -> Option<Own> {
        let mounted = self.root.read("/proc/self/mountinfo").ok()?;
        let groups = self.root.read("/proc/self/cgroup").ok()?;
        let mount = mounts(&mounted).find(is_mount)?;
        let member = memberships(&groups).find(is_member)?;
        // Inside a container the path may be outside the mounted part.
        let below = match &*mount.root {
            "/" => Some(member.path),
            top => member.path.strip_prefix(top),
        };
        let below = below.filter(|path| !path.contains(".."))?.trim_matches('/');
        let top = PathBuf::from(&*mount.point);
        let dir = if below.is_empty() { top.clone() } else { top.join(below) };
        Some(Own { top, dir })
    }
}

/// The caller's own group in a hierarchy.
pub(crate) struct Own {
    /// The hierarchy's mount point.
    pub(crate) top: PathBuf,
    pub(crate) dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(name: &str, mountinfo: &str, cgroup: &str) -> (RootDir, PathBuf) {
        let dir = std::env::temp_dir().join(format!("tahti-group-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("proc/self")).unwrap();
        fs::write(dir.join("proc/self/mountinfo"), mountinfo).unwrap();
        fs::write(dir.join("proc/self/cgroup"), cgroup).unwrap();
        (RootDir::at(&dir), dir)
    }

    #[test]
    fn groups_are_created_below_the_present_one_in_version_2_first_and_then_in_the_freezer() {
        let both = "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let (root, dir) = machine("both", both, "6:freezer:/a\n0::/system.slice/x.service\n");
        let v2 = PathBuf::from("/sys/fs/cgroup/unified/system.slice/x.service");
        let v1 = PathBuf::from("/sys/fs/cgroup/freezer/a");
        let places = OwnGroups { root, ..OwnGroups::machine() };
        assert_eq!(places.for_killing(&[]), [v2, v1.clone()]);
        assert_eq!(OwnGroups { v2_is_taken: true, ..places }.for_killing(&[]), [v1]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_path_that_leads_out_of_a_container_is_not_followed() {
        let inside = "41 31 0:38 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let (root, dir) = machine("inside", inside, "0::/docker/a/b\n");
        let places = OwnGroups { root, ..OwnGroups::machine() };
        assert_eq!(places.for_killing(&[]), [PathBuf::from("/sys/fs/cgroup/b")]);
        fs::write(dir.join("proc/self/cgroup"), "0::/../x\n").unwrap();
        assert!(places.for_killing(&[]).is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_bounded_process_gets_its_group_where_version_2_enables_the_controllers() {
        let (root, dir) = machine("bounds", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n", "0::/a/b/c\n");
        for (group, passed) in [("", "memory pids"), ("/a", "cpu memory pids"), ("/a/b", "pids"), ("/a/b/c", "")] {
            fs::create_dir_all(dir.join(format!("cg{group}"))).unwrap();
            fs::write(dir.join(format!("cg{group}/cgroup.subtree_control")), passed).unwrap();
        }
        let places = OwnGroups { root, ..OwnGroups::machine() };
        let first = |bounds| places.for_killing(&bounds::wanted(bounds))[0].clone();
        let memory = Bounds { memory_max: Some(base::Size(1 << 20)), ..Bounds::default() };
        let tasks = Bounds { tasks_max: Some(3), ..Bounds::default() };
        assert_eq!(first(Bounds::default()), Path::new("/cg/a/b/c"));
        assert_eq!(first(tasks), Path::new("/cg/a/b"));
        assert_eq!(first(memory), Path::new("/cg/a"));
        assert_eq!(first(Bounds { tasks_max: Some(3), ..memory }), Path::new("/cg/a"));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_new_group_removes_the_empty_ones_of_killed_keepers_beside_it() {
        let parent = std::env::temp_dir().join(format!("tahti-group-sweep-{}", std::process::id()));
        fs::create_dir_all(parent.join("tahti-p.hmi-1234abcd")).unwrap();
        fs::write(parent.join("cgroup.procs"), "").unwrap();
        let make = |name: &str| Group::below(&parent, &format!("tahti-{name}-0{ENDING}")).unwrap();
        let (living, killed, full) = (make("living"), make("killed"), make("full"));
        fs::create_dir(full.0.join("below")).unwrap();
        // The kernel releases the locks of a killed keeper.
        drop((killed.1, full.1));
        let new = make("new");
        assert_eq!([&living.0, &killed.0, &full.0, &new.0].map(|dir| dir.exists()), [true, false, true, true]);
        assert!(parent.join("tahti-p.hmi-1234abcd").exists(), "a partition is no group of a keeper");
        // The same keeper makes its group again.
        drop(new);
        assert!(make("new").0.exists());
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn processes_with_the_mark_of_an_ended_keeper_are_killed() {
        let folder = std::env::temp_dir().join(format!("tahti-group-mark-{}", std::process::id()));
        let other = folder.join("other");
        let start = |mark: &Path| std::process::Command::new("sleep").arg("1000").env(MARK, mark).spawn().unwrap();
        let (mut marked, mut free) = (start(&folder), start(&other));
        // At the end of `exec` the environment is empty for a moment.
        let environment = || fs::read(format!("/proc/{}/environ", marked.id())).unwrap();
        while environment().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(end_family(&folder), 1);
        assert!(!marked.wait().unwrap().success());
        assert_eq!(end_strays(&folder.join("oth")), 0, "a name that begins in the same way is another name");
        assert!(free.try_wait().unwrap().is_none(), "the mark of another folder is another mark");
        assert_eq!(end_strays(&folder), 1, "keepers below a folder");
        assert!(!free.wait().unwrap().success());
    }
}
