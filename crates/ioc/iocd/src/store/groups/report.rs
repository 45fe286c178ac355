//! Groups for reports.

use super::Groups;
use std::fmt::Write as _;

impl Groups {
    /// The groups whose names match, in the format of QSRV2's `pvxgl`: level 1 adds the number of members, 2 the members, 3 their
    /// triggers.
    pub(crate) fn report(&self, level: u64, pattern: &str) -> String {
        let mut out = String::new();
        for (name, index) in self.by_name.iter().filter(|(name, _)| pattern.is_empty() || base::glob(pattern, name)) {
            let Some(Some(state)) = self.list.get(*index) else { continue };
            let group = &state.group;
            let _ = writeln!(out, "{name}");
            if level == 0 {
                continue;
            }
            let atomic = if group.atomic { "yes" } else { "no" };
            let _ = writeln!(out, "  Atomic Get/Put:{atomic} Atomic Members:{}", group.members.len());
            for member in group.members.iter().filter(|_| level > 1) {
                let shown = |name: &str| if name.is_empty() { "/".to_owned() } else { name.to_owned() };
                let _ = write!(out, "  {}\t<{}>", shown(&member.name), member.mapping.name());
                if !member.id.is_empty() {
                    let _ = write!(out, " id={}", member.id);
                }
                if let Some(channel) = &member.channel {
                    let _ = write!(out, " chan={channel}");
                }
                out.push_str(if member.triggers.is_empty() { "\n" } else { " has triggers\n" });
                let mut targets: Vec<&str> =
                    member.triggers.iter().map(|target| group.members[*target].name.as_str()).collect();
                targets.sort_unstable();
                for target in targets.into_iter().filter(|_| level > 2) {
                    let _ = writeln!(out, "    {}", shown(target));
                }
            }
        }
        out
    }
}
