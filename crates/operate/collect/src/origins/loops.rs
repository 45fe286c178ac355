//! Wake-up latencies and result values of a plant's loops, as reported by its supervisor.

use super::{more, next_second, quantiles};
use crate::interval::Interval;
use crate::origin::{Item, Origin, array};
use base::{MonoNs, Tally};
use keep::supervisor::control::{Client, LoopHistogram, ProcessStatus, Reply, Request};
use keep::supervisor::rundir::RunDir;
use segment::Sample;
use segment::rows::Cause;
use std::collections::BTreeMap;

pub(crate) struct Loops {
    plant: String,
    client: Option<Client>,
    known: BTreeMap<String, LoopState>,
    /// Totals of the result values per process with deadlines, at the last poll.
    worth: BTreeMap<String, Tally>,
    due: MonoNs,
}

/// The reason why a supervisor gives no figures.
#[derive(Debug, thiserror::Error)]
enum NoFigures {
    #[error("its supervisor does not answer: {0}")]
    Lost(#[from] std::io::Error),
    /// Its reason.
    #[error("{0}")]
    Refused(String),
    #[error("its supervisor answers {0:?}")]
    Other(Box<(Reply, Reply)>),
}

/// Previous state of a loop.
struct LoopState {
    /// Due time of its first pulse; it identifies a run of the process.
    first: MonoNs,
    misses: u64,
    wake: Interval,
}

impl Loops {
    pub(crate) fn new(plant: &str) -> Self {
        Self { plant: plant.to_owned(), client: None, known: BTreeMap::new(), worth: BTreeMap::new(), due: MonoNs(0) }
    }

    fn ask(&mut self) -> Result<(Vec<ProcessStatus>, Vec<LoopHistogram>), NoFigures> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&RunDir::find(&self.plant).socket())?,
        };
        let status = client.ask(&Request::Status)?;
        let histograms = client.ask(&Request::Histograms)?;
        self.client = Some(client);
        match (status, histograms) {
            (Reply::Status(status), Reply::Histograms(all)) => Ok((status.processes, all)),
            (Reply::Refused(why), _) | (_, Reply::Refused(why)) => Err(NoFigures::Refused(why)),
            other => Err(NoFigures::Other(Box::new(other))),
        }
    }

    /// Adds the figures of one loop since the last poll.
    fn one(&mut self, process: &ProcessStatus, histogram: &LoopHistogram, at: i64, found: &mut Vec<Item>) {
        let Some(page) = &process.loop_page else { return };
        let prefix = format!("{}/", process.name);
        let begin = || LoopState { first: page.first, misses: page.misses, wake: Interval::default() };
        let known = self.known.entry(process.name.clone()).or_insert_with(begin);
        if known.first != page.first {
            found.push(Item::Gap { prefix: prefix.clone(), cause: Cause::Restarted, lost: 0 });
            *known = begin();
        }
        // Entries beyond the last bucket are at most the maximum.
        let beyond = (i64::MAX - 1, page.wake.max.map_or(i64::MAX, |max| max.0), histogram.beyond);
        let beyond = Some(beyond).filter(|(.., count)| *count > 0);
        let Some(figures) = known.wake.look(histogram.buckets.iter().copied().chain(beyond)) else { return };
        let misses = more(page.misses, std::mem::replace(&mut known.misses, page.misses));
        if figures.is_new {
            return;
        }
        found.push(Item::number(format!("{prefix}count"), "", at, more(figures.count(), 0)));
        found.push(Item::number(format!("{prefix}misses"), "", at, misses));
        quantiles(&prefix, &figures, at, found);
        found.push(Item::value(format!("{prefix}histogram"), "ns", Sample::new(at, array(figures.flat()))));
    }
}

/// Value of the results since the last poll in percent of the maximum, and the number of late ones. `None` if no result was due
/// or the totals were reset.
fn since(before: Tally, now: Tally) -> Option<(f64, i64)> {
    let due = now.due.checked_sub(before.due).filter(|due| *due > 0)?;
    let worth = now.worth.checked_sub(before.worth)?;
    let late = i64::try_from(now.late.checked_sub(before.late)?).unwrap_or(i64::MAX);
    Some((worth as f64 / due as f64 / 10_000.0, late))
}

impl Origin for Loops {
    fn look(&mut self, found: &mut Vec<Item>) -> Result<(), String> {
        next_second(&mut self.due);
        let (processes, histograms) = self.ask().map_err(|error| {
            self.known.clear();
            self.worth.clear();
            error.to_string()
        })?;
        let at = crate::serve::wall();
        for process in &processes {
            // Message servers and frames have result values too, but no wake-up histogram.
            let Some(value) = &process.value else { continue };
            let before = self.worth.insert(process.name.clone(), value.tally);
            if let Some((worth, late)) = before.and_then(|before| since(before, value.tally)) {
                let name = |what: &str| format!("{}/{what}", process.name);
                found.push(Item::value(name("worth"), "%", Sample::new(at, worth)));
                found.push(Item::number(name("late"), "", at, late));
            }
        }
        let has = |name: &str| histograms.iter().any(|one| one.name == name);
        let gone: Vec<String> = self.known.keys().filter(|name| !has(name)).cloned().collect();
        for name in gone {
            self.known.remove(&name);
            found.push(Item::Gap { prefix: format!("{name}/"), cause: Cause::Disconnected, lost: 0 });
        }
        for histogram in &histograms {
            if let Some(process) = processes.iter().find(|process| process.name == histogram.name) {
                self.one(process, histogram, at, found);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_second_is_relative_to_the_results_due_in_it() {
        let tally = |due, late, worth| Tally { due, late, worth };
        let before = tally(1_000, 3, 998_500_000);
        assert_eq!(since(before, tally(1_100, 7, 1_096_500_000)), Some((98.0, 4)));
        assert_eq!(since(before, before), None, "no cycle was due");
        assert_eq!(since(before, tally(10, 0, 10_000_000)), None, "another supervisor counts from zero");
    }
}
