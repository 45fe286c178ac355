//! `memory_max` and `tasks_max` of a process, once they have taken effect.

use crate::group::{Group, MEMORY, TASKS};
use host::health::Observation;

/// How often the limits of a process took effect.
#[derive(Debug, Default)]
pub(super) struct Reached {
    /// Counters of its present control group at the last pass: ended for lack of memory, refused starts.
    last: [u64; 2],
    /// Totals over all its groups.
    total: [u64; 2],
}

impl Reached {
    /// Observes the limits. `group`: its control group, if there is one.
    pub(super) fn observe(&mut self, group: Option<&Group>) -> Observation {
        let Some(group) = group else { return Observation::NotDue("it has no control group".to_owned()) };
        let met = [&MEMORY, &TASKS].map(|controller| group.standing(controller).map(|standing| standing.met));
        if met == [None, None] {
            // Refusals of the kernel have a row.
            return Observation::NotDue("it has no limit".to_owned());
        }
        self.count(met.map(Option::unwrap_or_default))
    }

    fn count(&mut self, met: [u64; 2]) -> Observation {
        let before = std::mem::replace(&mut self.last, met);
        // Each start of the process makes a new group, whose counters begin at 0.
        let grown = |nth: usize| met[nth].checked_sub(before[nth]).unwrap_or(met[nth]);
        let grown = [grown(0), grown(1)];
        if grown == [0, 0] {
            return Observation::Kept;
        }
        self.total = [0, 1].map(|nth: usize| self.total[nth].saturating_add(grown[nth]));
        let what = ["of its processes ended for lack of memory (memory_max)", "starts refused (tasks_max)"];
        let named = self.total.into_iter().zip(what).filter(|(total, _)| *total > 0);
        Observation::Within(named.map(|(total, what)| format!("{total} {what}")).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_takes_effect_degrades_the_plant_also_in_the_next_control_group() {
        let (mut reached, within) = (Reached::default(), |text: &str| Observation::Within(text.to_owned()));
        assert_eq!(reached.count([0, 0]), Observation::Kept);
        assert_eq!(reached.count([0, 3]), within("3 starts refused (tasks_max)"));
        assert_eq!(reached.count([0, 3]), Observation::Kept);
        let both = "1 of its processes ended for lack of memory (memory_max), 5 starts refused (tasks_max)";
        assert_eq!(reached.count([1, 2]), within(both), "the group is new: its counters began at 0");
        assert_eq!(reached.count([0, 0]), Observation::Kept);
    }

    #[test]
    fn the_counters_of_a_control_group_are_read() {
        let folder = std::env::temp_dir().join(format!("tahti-reached-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("pids.max", "3\n"), ("pids.current", "3\n"), ("pids.events", "max 7\n")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let mut reached = Reached::default();
        let seen = reached.observe(Some(&Group::at(vec![folder.clone()])));
        assert_eq!(seen, Observation::Within("7 starts refused (tasks_max)".to_owned()));
        assert!(matches!(reached.observe(None), Observation::NotDue(_)));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
