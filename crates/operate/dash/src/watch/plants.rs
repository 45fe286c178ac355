//! The plants of this machine, each with its verdict.

use crate::hub::News;
use keep::supervisor::neighbors::{Neighbor, Summary, neighbors};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The last summary of each plant, by run folder.
#[derive(Debug, Default)]
pub(super) struct Plants {
    known: BTreeMap<PathBuf, Summary>,
    /// The plant that is asked first in the next round.
    first: usize,
}

impl Plants {
    pub(super) fn look(&mut self) -> News {
        self.round(&neighbors(), Neighbor::summary)
    }

    /// Asks the plants, beginning with the one after the last that did not answer in time. Such a plant ends the round, because a
    /// round may not wait for several.
    fn round(&mut self, found: &[Neighbor], ask: impl Fn(&Neighbor) -> (Summary, bool)) -> News {
        self.known.retain(|path, _| found.iter().any(|one| one.run.path() == path));
        for step in 0..found.len() {
            let at = (self.first + step) % found.len();
            let (summary, is_silent) = ask(&found[at]);
            self.known.insert(found[at].run.path().to_owned(), summary);
            if is_silent {
                self.first = at + 1;
                break;
            }
        }
        let own = sys::peer::own_user();
        let shown = found.iter().map(|one| {
            let not_asked = || one.unknown("not asked yet".to_owned());
            let summary = self.known.get(one.run.path()).cloned().unwrap_or_else(not_asked);
            let Summary { name, user, outcome, state, why } = summary;
            json!({ "name": name, "user": user, "is_own": user == own, "outcome": outcome, "state": state, "why": why })
        });
        News { page: json!({ "plants": shown.collect::<Vec<_>>() }), source: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keep::supervisor::rundir::RunDir;
    use std::cell::RefCell;

    #[test]
    fn a_supervisor_that_does_not_answer_delays_one_round_and_no_other_plant_stays_unasked() {
        let found: Vec<Neighbor> =
            ["a", "b", "c"].map(|name| Neighbor { run: RunDir::of(name), user: sys::peer::own_user() }).into();
        let asked = RefCell::new(Vec::new());
        let ask = |one: &Neighbor| {
            asked.borrow_mut().push(one.run.name().to_owned());
            let is_silent = one.run.name() == "b";
            let answer = Summary { outcome: "good", state: "up for 3 s".to_owned(), ..one.unknown(String::new()) };
            (if is_silent { one.unknown("silent".to_owned()) } else { answer }, is_silent)
        };
        let mut plants = Plants::default();
        let outcomes = |news: News| -> Vec<String> {
            let all = news.page["plants"].as_array().unwrap().clone();
            all.iter()
                .map(|one| format!("{} {} {}", one["name"], one["outcome"], one["why"]).replace('"', ""))
                .collect()
        };
        assert_eq!(outcomes(plants.round(&found, ask)), ["a good ", "b unknown silent", "c unknown not asked yet"]);
        assert_eq!(outcomes(plants.round(&found, ask)), ["a good ", "b unknown silent", "c good "]);
        assert_eq!(*asked.borrow(), ["a", "b", "c", "a", "b"]);
        assert_eq!(outcomes(plants.round(&found[..1], ask)), ["a good "], "plants that are down are not listed");
        assert_eq!(outcomes(plants.round(&[], ask)), [""; 0]);
    }
}
