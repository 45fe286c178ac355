//! Processes and those that they have started, by who is whose parent.

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
