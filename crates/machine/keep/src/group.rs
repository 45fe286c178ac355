//! Everything that descends from a supervised process, also what made itself a daemon and ignores signals: found
//! when its keeper is gone, and ended as a whole.
//!
//! Each keeper makes a control group of its own for its child, and notes in its folder where: version 2 where the
//! shield does not need it for the same process, else the freezer of version 1. It needs no controller. Without the
//! right to make one, and for whoever has left it, there is the [`MARK`] that every descendant inherits in its
//! environment.

use crate::launch::start_ticks;
use base::DurNs;
use proc::cgroup::memberships;
use proc::mountinfo::mounts;
use rustix::fs::Access;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use sys::root::RootDir;

/// The variable that names the keeper's folder in the environment of everything below it.
pub(crate) const MARK: &str = "TAHTI_KEEPER";
/// Where the keeper notes its group, in its folder.
const NOTE: &str = "group";
/// Groups below one that are looked at.
const GROUPS_MAX: usize = 1000;
/// How often the survivors of a kill are looked for: each look catches what the one before forked meanwhile.
const ROUNDS: usize = 100;
/// The pause between two looks; a process needs a moment to die.
const PAUSE: DurNs = DurNs::from_ms(5);

/// A control group that holds a process and its descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    dir: PathBuf,
}

impl Group {
    /// Makes the group of the keeper in `folder` and notes it there; again is fine. `joined` are the groups that the
    /// child joins anyway. `None` where no group may be made: the mark is left then.
    pub(crate) fn make(folder: &Path, name: &str, joined: &[PathBuf]) -> Option<Self> {
        // Plants of the same name may be up in several trees.
        let mut hasher = DefaultHasher::new();
        folder.hash(&mut hasher);
        let name = format!("tahti-{}-{:08x}", name.replace('/', "_"), hasher.finish() as u32);
        let in_v2 = |dir: &PathBuf| dir.join("cgroup.procs").exists() && !dir.join("tasks").exists();
        let parents = parents(&RootDir::machine(), joined.iter().any(in_v2));
        let group = parents.into_iter().find_map(|parent| Self::below(&parent, &name))?;
        // Where it cannot be noted nobody would find it; the mark is found without.
        std::fs::write(folder.join(NOTE), group.dir.as_os_str().as_encoded_bytes()).ok()?;
        Some(group)
    }

    fn below(parent: &Path, name: &str) -> Option<Self> {
        rustix::fs::access(parent.join("cgroup.procs"), Access::WRITE_OK).ok()?;
        let dir = parent.join(name);
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        let group = Self { dir };
        // Below a threaded group it would take no process.
        let usable = group.read("cgroup.type").is_none_or(|kind| kind.trim() == "domain");
        if !usable {
            group.remove();
        }
        usable.then_some(group)
    }

    /// The group that a keeper noted in its folder, if there is one still.
    pub(crate) fn noted(folder: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join(NOTE)).ok()?;
        let group = Self { dir: PathBuf::from(text) };
        // Nothing but what `make` makes is ever ended by this.
        let own = group.dir.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"tahti-"));
        (own && group.dir.join("cgroup.procs").exists()).then_some(group)
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.dir.join(name)).ok()
    }

    /// It and the groups below it, itself first.
    fn whole(&self) -> Vec<PathBuf> {
        let mut found = vec![self.dir.clone()];
        let mut next = 0;
        while let Some(dir) = found.get(next).cloned().filter(|_| found.len() < GROUPS_MAX) {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            found.extend(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|it| it.path()));
            next += 1;
        }
        found
    }

    /// Its processes, those of groups below included; none of them is a zombie.
    pub(crate) fn members(&self) -> Vec<i32> {
        let lists = self.whole().into_iter().map(|dir| std::fs::read_to_string(dir.join("cgroup.procs")));
        lists.flatten().flat_map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
    }

    /// Sends SIGKILL to all members at once, so that none can fork meanwhile.
    pub(crate) fn kill(&self) {
        if std::fs::write(self.dir.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        // Kernels before 5.14, and version 1: frozen, nobody forks, and no number becomes somebody else's.
        let (file, freeze, thaw) = match self.dir.join("freezer.state") {
            v1 if v1.exists() => (v1, "FROZEN", "THAWED"),
            _ => (self.dir.join("cgroup.freeze"), "1", "0"),
        };
        // Who cannot be frozen can be killed all the same; the callers look again.
        let _ = std::fs::write(&file, freeze);
        for pid in self.members() {
            let _ = sys::child::kill(pid, 9);
        }
        let _ = std::fs::write(&file, thaw);
    }

    /// Removes it, if nobody is left in it.
    pub(crate) fn remove(&self) {
        for dir in self.whole().iter().rev() {
            // One that is not empty stays, and is found by the next keeper in the same folder.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Ends everything that the keeper in `folder` has left behind, which must be gone; returns how many there were.
/// Waits for their end, half a second at most: what hangs in the kernel longer is found at the next call.
pub(crate) fn end_family(folder: &Path) -> usize {
    let group = Group::noted(folder);
    let mut ended = BTreeSet::new();
    for _ in 0..ROUNDS {
        let members = group.as_ref().map_or(Vec::new(), Group::members);
        if let Some(group) = group.as_ref().filter(|_| !members.is_empty()) {
            group.kill();
        }
        let marked = kill_marked(folder);
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

/// Kills every process that carries the mark of this folder; who they were.
fn kill_marked(folder: &Path) -> Vec<i32> {
    let mut wanted = format!("{MARK}=").into_bytes();
    wanted.extend(folder.as_os_str().as_encoded_bytes());
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let root = RootDir::machine();
    let pids = root.list("/proc").unwrap_or_default();
    let pids = pids.iter().filter_map(|name| name.parse::<i32>().ok()).filter(|pid| *pid != own);
    let marked = |pid: i32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == wanted))
    };
    let kill = |pid: i32| {
        let before = start_ticks(pid)?;
        let fd = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // The descriptor stands for the process that was looked at, and for no later one of its number.
        let same = start_ticks(pid) == Some(before) && marked(pid);
        (same && rustix::process::pidfd_send_signal(&fd, Signal::KILL).is_ok()).then_some(pid)
    };
    pids.filter(|pid| marked(*pid)).filter_map(kill).collect()
}

/// Where groups may be made: below the caller's own, in the order of preference.
fn parents(root: &RootDir, v2_is_taken: bool) -> Vec<PathBuf> {
    let (Ok(mounted), Ok(own)) = (root.read("/proc/self/mountinfo"), root.read("/proc/self/cgroup")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for v2 in [true, false] {
        if v2 && v2_is_taken {
            continue;
        }
        let mount = mounts(&mounted).find(|mount| match v2 {
            true => mount.kind == "cgroup2",
            false => mount.kind == "cgroup" && mount.has("freezer"),
        });
        let member = memberships(&own).find(|member| if v2 { member.is_v2() } else { member.has("freezer") });
        let (Some(mount), Some(member)) = (mount, member) else { continue };
        // Seen from inside a container the path may lead out of what is mounted.
        let below = match &*mount.root {
            "/" => Some(member.path),
            top => member.path.strip_prefix(top),
        };
        if let Some(below) = below.filter(|path| !path.contains("..")) {
            found.push(Path::new(&*mount.point).join(below.trim_start_matches('/')));
        }
    }
    found
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
    fn groups_are_made_below_the_own_one_in_version_2_first_and_then_in_the_freezer() {
        let both = "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let (root, dir) = machine("both", both, "6:freezer:/a\n0::/system.slice/x.service\n");
        let v2 = PathBuf::from("/sys/fs/cgroup/unified/system.slice/x.service");
        let v1 = PathBuf::from("/sys/fs/cgroup/freezer/a");
        assert_eq!(parents(&root, false), [v2, v1.clone()]);
        assert_eq!(parents(&root, true), [v1]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_path_that_leads_out_of_a_container_is_not_followed() {
        let inside = "41 31 0:38 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let (root, dir) = machine("inside", inside, "0::/docker/a/b\n");
        assert_eq!(parents(&root, false), [PathBuf::from("/sys/fs/cgroup/b")]);
        fs::write(dir.join("proc/self/cgroup"), "0::/../x\n").unwrap();
        assert!(parents(&root, false).is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn who_carries_the_mark_of_a_keeper_that_is_gone_is_ended() {
        let folder = std::env::temp_dir().join(format!("tahti-group-mark-{}", std::process::id()));
        let other = folder.join("other");
        let start = |mark: &Path| std::process::Command::new("sleep").arg("1000").env(MARK, mark).spawn().unwrap();
        let (mut marked, mut free) = (start(&folder), start(&other));
        // At the very end of `exec` the environment is empty for a moment.
        let environment = || fs::read(format!("/proc/{}/environ", marked.id())).unwrap();
        while environment().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(end_family(&folder), 1);
        assert!(!marked.wait().unwrap().success());
        assert!(free.try_wait().unwrap().is_none(), "the mark of another folder is another mark");
        free.kill().unwrap();
        free.wait().unwrap();
    }
}
