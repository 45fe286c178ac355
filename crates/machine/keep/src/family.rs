//! Processes and those that they have started, by who is whose parent.

use sys::root::RootDir;

/// These processes and every process below them, parents before their children. Takes one look at all processes of the
/// machine; one that starts meanwhile may be missing.
#[must_use]
pub fn family(mut of: Vec<i32>) -> Vec<i32> {
    let root = RootDir::machine();
    let parent_of = |pid: i32| -> Option<i32> {
        let text = root.read(&format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let all = root.list("/proc").unwrap_or_default();
    let parents: Vec<(i32, i32)> =
        all.iter().filter_map(|name| name.parse().ok()).filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut next = 0;
    while let Some(parent) = of.get(next).copied() {
        let children = parents.iter().filter(|(_, parent_of)| *parent_of == parent).map(|(pid, _)| *pid);
        let fresh: Vec<i32> = children.filter(|pid| !of.contains(pid)).collect();
        of.extend(fresh);
        next += 1;
    }
    of
}
