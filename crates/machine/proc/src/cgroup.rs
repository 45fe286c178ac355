//! `/proc/PID/cgroup`: the control groups that a task is in.

/// A task's group in one hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    /// Number of the hierarchy; 0 is version 2.
    pub hierarchy: u32,
    /// Controllers of a version 1 hierarchy, comma-separated, or `name=…`; empty for version 2.
    pub controllers: &'a str,
    /// The group below the hierarchy's root.
    pub path: &'a str,
}

impl Membership<'_> {
    /// Whether this is the version 2 hierarchy.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.hierarchy == 0 && self.controllers.is_empty()
    }

    /// Whether this version 1 hierarchy has a controller.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|name| name == controller)
    }
}

/// All of a task's groups; lines of another form are passed over.
pub fn memberships(text: &str) -> impl Iterator<Item = Membership<'_>> {
    text.lines().filter_map(|line| {
        let (hierarchy, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(Membership { hierarchy: hierarchy.parse().ok()?, controllers, path })
    })
}

/// A number of a file of `name number` lines, such as `memory.events`.
#[must_use]
pub fn keyed(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(' ').filter(|(key, _)| *key == name)?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_versions_are_read() {
        let text = "3:cpuset:/\n2:cpu,cpuacct:/a:b\n1:name=systemd:/\n0::/user.slice\nbad\n";
        let all: Vec<_> = memberships(text).collect();
        assert_eq!(all.len(), 4);
        assert!(all[1].has("cpu") && !all[1].has("acct"));
        assert_eq!(all[1].path, "/a:b");
        assert!(all[3].is_v2() && !all[0].is_v2());
    }

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let text = "oom 3\noom_kill_disable 0\noom_kill 2\nunder_oom x\n";
        assert_eq!((keyed(text, "oom_kill"), keyed(text, "oom")), (Some(2), Some(3)));
        assert_eq!((keyed(text, "under_oom"), keyed(text, "max")), (None, None));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9:a-z,/\n]{0,60}") {
            memberships(&text).for_each(drop);
            prop_assert!(keyed(&text, "not there").is_none());
        }
    }
}
