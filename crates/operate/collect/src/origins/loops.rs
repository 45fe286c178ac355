//! How late the loops of a plant's processes woke up, as their supervisor reads it from their pages.

use super::{more, next_second, quantiles};
use crate::interval::Interval;
use crate::origin::{Found, Origin, array};
use base::MonoNs;
use keep::supervisor::control::{Client, LoopHistogram, ProcessStatus, Reply, Request};
use keep::supervisor::rundir::RunDir;
use segment::Sample;
use segment::rows::Cause;
use std::collections::BTreeMap;

pub(crate) struct Loops {
    plant: String,
    client: Option<Client>,
    known: BTreeMap<String, Known>,
    due: MonoNs,
}

/// A loop as it was.
struct Known {
    /// When its first pulse was due: what tells it from the one before.
    first: MonoNs,
    misses: u64,
    wake: Interval,
}

impl Loops {
    pub(crate) fn new(plant: &str) -> Self {
        Self { plant: plant.to_owned(), client: None, known: BTreeMap::new(), due: MonoNs(0) }
    }

    fn ask(&mut self) -> Result<(Vec<ProcessStatus>, Vec<LoopHistogram>), String> {
        let lost = |error: std::io::Error| format!("its supervisor does not answer: {error}");
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&RunDir::find(&self.plant).socket()).map_err(lost)?,
        };
        let status = client.ask(&Request::Status).map_err(lost)?;
        let histograms = client.ask(&Request::Histograms).map_err(lost)?;
        self.client = Some(client);
        match (status, histograms) {
            (Reply::Status(status), Reply::Histograms(all)) => Ok((status.processes, all)),
            (Reply::Refused(why), _) | (_, Reply::Refused(why)) => Err(why),
            other => Err(format!("its supervisor answers {other:?}")),
        }
    }

    /// What one loop did since the last look.
    fn one(&mut self, process: &ProcessStatus, histogram: &LoopHistogram, at: i64, found: &mut Vec<Found>) {
        let Some(page) = &process.loop_page else { return };
        let prefix = format!("{}/", process.name);
        let begin = || Known { first: page.first, misses: page.misses, wake: Interval::default() };
        let known = self.known.entry(process.name.clone()).or_insert_with(begin);
        if known.first != page.first {
            found.push(Found::Gap { prefix: prefix.clone(), cause: Cause::Restarted, lost: 0 });
            *known = begin();
        }
        // What is beyond the last bucket is not longer than the longest that there was.
        let beyond = (i64::MAX - 1, page.wake.max.map_or(i64::MAX, |max| max.0), histogram.beyond);
        let beyond = Some(beyond).filter(|(.., count)| *count > 0);
        let Some(figures) = known.wake.look(histogram.buckets.iter().copied().chain(beyond)) else { return };
        let misses = more(page.misses, std::mem::replace(&mut known.misses, page.misses));
        if figures.is_new {
            return;
        }
        found.push(Found::number(format!("{prefix}count"), "", at, more(figures.count(), 0)));
        found.push(Found::number(format!("{prefix}misses"), "", at, misses));
        quantiles(&prefix, &figures, at, found);
        found.push(Found::value(format!("{prefix}histogram"), "ns", Sample::new(at, array(figures.flat()))));
    }
}

impl Origin for Loops {
    fn look(&mut self, found: &mut Vec<Found>) -> Result<(), String> {
        next_second(&mut self.due);
        let (processes, histograms) = self.ask().inspect_err(|_| self.known.clear())?;
        let at = crate::serve::wall();
        let has = |name: &str| histograms.iter().any(|one| one.name == name);
        let gone: Vec<String> = self.known.keys().filter(|name| !has(name)).cloned().collect();
        for name in gone {
            self.known.remove(&name);
            found.push(Found::Gap { prefix: format!("{name}/"), cause: Cause::Disconnected, lost: 0 });
        }
        for histogram in &histograms {
            if let Some(process) = processes.iter().find(|process| process.name == histogram.name) {
                self.one(process, histogram, at, found);
            }
        }
        Ok(())
    }
}
