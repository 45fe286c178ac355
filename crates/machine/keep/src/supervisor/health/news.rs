//! Rows that broke or are kept again, for the terminal and the log.

use crate::supervisor::logs::Level;
use crate::supervisor::reporter::short;
use base::MonoNs;
use host::health::{Claim, Row, State, Table};
use std::collections::BTreeMap;

/// A line about a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) level: Level,
    /// The subject of the promise.
    pub(crate) who: String,
    pub(crate) text: String,
}

/// The rows that were reported as broken, each with the start of that state.
#[derive(Debug, Default)]
pub(super) struct Broken {
    all: BTreeMap<(String, Claim), MonoNs>,
    /// Number of state changes of the table at the last call.
    changes: u64,
}

impl Broken {
    /// What has changed since the last call. `is_faulted`: whether a process's fault is latched, which its own line reports.
    pub(super) fn news(&mut self, now: MonoNs, table: &Table, is_faulted: impl Fn(&str) -> bool) -> Vec<News> {
        if std::mem::replace(&mut self.changes, table.changes()) == table.changes() {
            return Vec::new();
        }
        table
            .rows()
            .iter()
            .filter(|row| !has_own_line(row, &is_faulted))
            .filter_map(|row| self.of_row(now, row))
            .collect()
    }

    fn of_row(&mut self, now: MonoNs, row: &Row) -> Option<News> {
        let (who, words) = (row.promise.subject.clone(), &row.promise.words);
        let key = (who.clone(), row.promise.claim);
        if row.state.is_wrong() {
            let is_new = self.all.insert(key, row.since) != Some(row.since);
            let text = format!("{}: {} [{words}]", row.state.word(), row.evidence);
            return is_new.then_some(News { level: Level::Error, who, text });
        }
        let since = self.all.remove(&key)?;
        // The process may have ended meanwhile.
        let is_kept = matches!(row.state, State::Kept | State::Within);
        let text = format!("kept again after {} [{words}]", short(now - since));
        is_kept.then_some(News { level: Level::Info, who, text })
    }
}

/// Whether another line reports what breaks the row: the trouble or the latched fault of a process.
fn has_own_line(row: &Row, is_faulted: &impl Fn(&str) -> bool) -> bool {
    match row.promise.claim {
        Claim::Ready | Claim::Heartbeat | Claim::Budget | Claim::Deadline | Claim::Restarts | Claim::SafeOutput => true,
        Claim::Runs => is_faulted(&row.promise.subject),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::health::{Observation, Table, promises};
    use host::plant::{Anywhere, check};

    fn second(count: u64) -> MonoNs {
        MonoNs(count * 1_000_000_000)
    }

    #[test]
    fn a_row_is_reported_when_it_breaks_and_when_it_is_kept_again_and_not_in_between() {
        let plant =
            check("[plant]\nname = \"p\"\n[[process]]\nname = \"a\"\ncommand = \"x\"\n", &Anywhere).plant.unwrap();
        let mut table = Table::new(second(0));
        table.promise(second(0), promises(&plant, false));
        let mut broken = Broken::default();
        let mut pass = |at: u64, seen: Observation, is_faulted: bool| -> Vec<String> {
            table.observe(second(at), "a", Claim::Runs, seen);
            let news = broken.news(second(at), &table, |_| is_faulted);
            news.into_iter().map(|one| format!("{} {}: {}", one.level.word(), one.who, one.text)).collect()
        };
        let stopped = || Observation::Broken("stopped by a signal (state T)".to_owned());
        assert_eq!(pass(1, Observation::Kept, false), [""; 0]);
        assert_eq!(pass(2, stopped(), false), ["error a: broken: stopped by a signal (state T) [runs]"]);
        assert_eq!(pass(3, stopped(), false), [""; 0]);
        assert_eq!(pass(5, Observation::Kept, false), ["info a: kept again after 3.0 s [runs]"]);
        assert_eq!(pass(6, stopped(), true), [""; 0], "the latched fault has its own line");
        assert_eq!(pass(7, Observation::NotDue("it is down".to_owned()), false), [""; 0]);
    }
}
