//! Processes and their descendants.

use sys::process::Process;
use sys::root::RootDir;

/// Parent of each process of the machine at one moment. A process that started during the read may be missing.
pub(crate) struct Parents(Vec<(i32, i32)>);

impl Parents {
    /// Reads all processes.
    pub(crate) fn look() -> Self {
        let root = RootDir::machine();
        let parent_of = |pid: i32| -> Option<i32> {
            let text = root.read(&format!("/proc/{pid}/stat")).ok()?;
            text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
        };
        let all = root.list("/proc").unwrap_or_default();
        Self(all.iter().filter_map(|name| name.parse().ok()).filter_map(|pid| Some((pid, parent_of(pid)?))).collect())
    }

    /// These processes and all their descendants, parents before their children.
    pub(crate) fn family(&self, mut of: Vec<i32>) -> Vec<i32> {
        let mut next = 0;
        while let Some(parent) = of.get(next).copied() {
            let children = self.0.iter().filter(|(_, parent_of)| *parent_of == parent).map(|(pid, _)| *pid);
            let fresh: Vec<i32> = children.filter(|pid| !of.contains(pid)).collect();
            of.extend(fresh);
            next += 1;
        }
        of
    }
}

/// These processes and all their descendants, parents before their children. Reads all processes of the machine once; a
/// process that starts during the read may be missing.
#[must_use]
pub fn family(of: Vec<i32>) -> Vec<i32> {
    Parents::look().family(of)
}

/// Each of these processes with its descendants. Reads all processes of the machine once.
#[must_use]
pub fn families(of: &[i32]) -> Vec<Vec<i32>> {
    let parents = Parents::look();
    of.iter().map(|pid| parents.family(vec![*pid])).collect()
}

/// Handles on all descendants of `ancestor` that have not ended.
pub(crate) fn descendants(ancestor: i32) -> Vec<Process> {
    let below = || family(vec![ancestor]).into_iter().skip(1);
    let mut found: Vec<Process> = below().filter_map(|pid| Process::open(pid).ok()).collect();
    if found.is_empty() {
        return found;
    }
    // Checked again after the handles are open: a PID that was reused in between is not a descendant.
    let still: std::collections::BTreeSet<i32> = below().collect();
    found.retain(|process| still.contains(&process.pid()) && !process.has_ended());
    found
}

/// A handle on process `pid` if it descends from `ancestor` and has not ended.
pub(crate) fn descendant(ancestor: i32, pid: i32) -> Option<Process> {
    let process = Process::open(pid).ok()?;
    // Checked while the handle is open and the process lives.
    let is_below = pid != ancestor && crate::launch::is_below(pid, ancestor);
    (is_below && !process.has_ended()).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_every_descendant_once_and_no_other_process() {
        let parents = Parents(vec![(1, 0), (7, 1), (9, 7), (8, 7), (12, 9), (5, 1), (13, 12)]);
        assert_eq!(parents.family(vec![7]), [7, 9, 8, 12, 13]);
        assert_eq!(parents.family(vec![7, 9]), [7, 9, 8, 12, 13]);
        assert_eq!(parents.family(vec![99]), [99]);
    }
}
