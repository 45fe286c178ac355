//! Processes and those that they have started, by who is whose parent.

use sys::process::Process;
use sys::root::RootDir;

/// Who is whose parent among all processes of the machine, as they were at one moment: one that started meanwhile may be
/// missing.
pub(crate) struct Parents(Vec<(i32, i32)>);

impl Parents {
    /// Looks at all processes.
    pub(crate) fn look() -> Self {
        let root = RootDir::machine();
        let parent_of = |pid: i32| -> Option<i32> {
            let text = root.read(&format!("/proc/{pid}/stat")).ok()?;
            text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
        };
        let all = root.list("/proc").unwrap_or_default();
        Self(all.iter().filter_map(|name| name.parse().ok()).filter_map(|pid| Some((pid, parent_of(pid)?))).collect())
    }

    /// These processes and every process below them, parents before their children.
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

/// These processes and every process below them, parents before their children. Takes one look at all processes of the
/// machine; one that starts meanwhile may be missing.
#[must_use]
pub fn family(of: Vec<i32>) -> Vec<i32> {
    Parents::look().family(of)
}

/// Handles on every process below `ancestor` that has not ended.
pub(crate) fn descendants(ancestor: i32) -> Vec<Process> {
    let below = || family(vec![ancestor]).into_iter().skip(1);
    let mut found: Vec<Process> = below().filter_map(|pid| Process::open(pid).ok()).collect();
    if found.is_empty() {
        return found;
    }
    // Looked at again once the handles are open: a number that another process has taken meanwhile is not below it.
    let still: std::collections::BTreeSet<i32> = below().collect();
    found.retain(|process| still.contains(&process.pid()) && !process.has_ended());
    found
}

/// A handle on process `pid`, if it is below `ancestor` and has not ended.
pub(crate) fn descendant(ancestor: i32, pid: i32) -> Option<Process> {
    let process = Process::open(pid).ok()?;
    // Looked at once the handle is open, and while it lives.
    let is_below = pid != ancestor && crate::launch::is_below(pid, ancestor);
    (is_below && !process.has_ended()).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_every_generation_once_and_nobody_else() {
        let parents = Parents(vec![(1, 0), (7, 1), (9, 7), (8, 7), (12, 9), (5, 1), (13, 12)]);
        assert_eq!(parents.family(vec![7]), [7, 9, 8, 12, 13]);
        assert_eq!(parents.family(vec![7, 9]), [7, 9, 8, 12, 13]);
        assert_eq!(parents.family(vec![99]), [99]);
    }
}
