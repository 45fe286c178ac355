//! Remains of a shield without a journal: its creator was killed, and its run directory is gone.

use super::{Backend, Step, affinity, cgroup_v2, cpuset_v1};
use crate::knob::CACHE_GROUP;
use crate::snapshot::{Cgroup, Snapshot, Target, Value};
use std::fmt;

/// Maximum threads that are named.
const NAMED_MAX: usize = 3;

/// A directory of a shield that is in use. It belongs to another program, although this run directory has no journal of
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The directory.
    pub dir: String,
    /// Its user.
    pub by: User,
}

/// User of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// Some of the threads in it, and the number of all.
    Threads(Vec<(i32, String)>, usize),
    /// A directory in it that no shield creates.
    Dir(String),
    /// Its CPUs are isolated from all other tasks.
    Partition,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(named, all) => {
                write!(f, "{} in it:", base::text::Counted(*all, "thread"))?;
                named.iter().try_for_each(|(tid, comm)| write!(f, " {comm} ({tid})"))?;
                if *all > named.len() { f.write_str(" ...") } else { Ok(()) }
            }
            Self::Dir(dir) => write!(f, "{dir} is in it"),
            Self::Partition => f.write_str("its CPUs are isolated"),
        }
    }
}

/// The empty directories of a shield without a journal, as the steps that created them. Reverting the steps removes
/// them.
///
/// # Errors
/// A directory is in use.
pub fn orphans(snapshot: &Snapshot) -> Result<Vec<Step>, InUse> {
    let backend: &dyn Backend = match snapshot.cgroup {
        Cgroup::V1 { .. } => &cpuset_v1::CpusetV1,
        Cgroup::V2 { .. } => &cgroup_v2::CgroupV2,
        Cgroup::None => &affinity::Affinity,
    };
    let own = backend.own_dirs(snapshot);
    let there = own.iter().filter(|dir| snapshot.dirs.contains(*dir));
    let mut steps = Vec::new();
    for dir in there {
        if let Some(by) = user(snapshot, dir, &own) {
            return Err(InUse { dir: dir.clone(), by });
        }
        steps.push(made(dir));
    }
    if snapshot.is_cache_group(CACHE_GROUP) {
        steps.push(made(CACHE_GROUP));
    }
    Ok(steps)
}

fn made(dir: &str) -> Step {
    Step {
        target: Target::Dir { path: dir.to_owned() },
        label: dir.to_owned(),
        from: Value::Absent,
        to: Value::Present,
        why: "left empty by a shield without a journal".to_owned(),
        may_refuse: None,
    }
}

fn user(snapshot: &Snapshot, dir: &str, own: &[String]) -> Option<User> {
    let inside = |path: &str, dir: &str| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
    if let Some(other) = snapshot.dirs.iter().find(|other| inside(other, dir) && !own.contains(other)) {
        return Some(User::Dir(other.clone()));
    }
    let state = snapshot.file_text(&format!("{dir}/cpuset.cpus.partition")).unwrap_or("member");
    if state != "member" && !state.contains("invalid") {
        return Some(User::Partition);
    }
    let cpuset = snapshot.cpuset_of_dir(dir)?;
    let members = snapshot
        .tasks
        .iter()
        .filter(|(_, task)| task.cpuset.as_deref().is_some_and(|of| of == cpuset || inside(of, cpuset)));
    let members: Vec<(i32, String)> = members.map(|(key, task)| (key.tid, task.comm.clone())).collect();
    let all = members.len();
    (all > 0).then(|| User::Threads(members.into_iter().take(NAMED_MAX).collect(), all))
}
