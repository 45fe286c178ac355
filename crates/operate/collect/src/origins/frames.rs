//! Statistics of a plant's frames, from their shared pages.

use super::{more, next_second, quantiles};
use crate::interval::Interval;
use crate::origin::{Item, Origin};
use base::{Histogram, MonoNs};
use ring::{ActivityCounter, FrameCounter, FramePage};
use rt::frames::Watcher;
use segment::rows::Cause;
use std::collections::{BTreeMap, BTreeSet};

const COUNTERS: [(&str, FrameCounter); 5] = [
    ("minors", FrameCounter::Minors),
    ("lost", FrameCounter::Lost),
    ("overruns", FrameCounter::Overruns),
    ("underruns", FrameCounter::Underruns),
    ("absences", FrameCounter::Absences),
];

const OF_ACTIVITIES: [(&str, ActivityCounter); 5] = [
    ("calls", ActivityCounter::Calls),
    ("overruns", ActivityCounter::Overruns),
    ("underruns", ActivityCounter::Underruns),
    ("absences", ActivityCounter::Absences),
    ("over-budget", ActivityCounter::OverBudget),
];

pub(crate) struct Frames {
    /// Prefix of the frames' socket names.
    prefix: String,
    plant: String,
    known: BTreeMap<String, Frame>,
    due: MonoNs,
}

/// A watched frame and its previous figures.
struct Frame {
    watcher: Watcher,
    counters: BTreeMap<String, u64>,
    histograms: BTreeMap<String, Interval>,
}

impl Frames {
    pub(crate) fn new(plant: &str) -> Self {
        let prefix = rt::frames::address(&format!("{plant}/"));
        Self { prefix, plant: plant.to_owned(), known: BTreeMap::new(), due: MonoNs(0) }
    }

    /// Names of the plant's running frames, from their sockets.
    fn running(&self) -> std::io::Result<BTreeSet<String>> {
        let names = sys::handover::names(&self.prefix)?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(&self.prefix)).map(str::to_owned).collect())
    }
}

impl Origin for Frames {
    fn look(&mut self, found: &mut Vec<Item>) -> Result<(), String> {
        next_second(&mut self.due);
        let running = self.running().map_err(|error| {
            self.known.clear();
            format!("/proc/net/unix: {error}")
        })?;
        let is_gone = |(name, frame): &(&String, &Frame)| !running.contains(*name) || !frame.watcher.is_alive();
        let gone: Vec<String> = self.known.iter().filter(is_gone).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.known.remove(&name);
            found.push(Item::Gap { prefix: format!("{name}/"), cause: Cause::Disconnected, lost: 0 });
        }
        for name in running {
            // Fails if the frame is just ending; it is not listed next time.
            if !self.known.contains_key(&name)
                && let Ok(watcher) = Watcher::open(&format!("{}/{name}", self.plant))
            {
                let (counters, histograms) = (BTreeMap::new(), BTreeMap::new());
                self.known.insert(name, Frame { watcher, counters, histograms });
            }
        }
        if self.known.is_empty() {
            return Err("none runs".to_owned());
        }
        let at = crate::serve::wall();
        self.known.iter_mut().for_each(|(name, frame)| frame.look(name, at, found));
        Ok(())
    }
}

impl Frame {
    fn look(&mut self, name: &str, at: i64, found: &mut Vec<Item>) {
        let Self { watcher, counters, histograms } = self;
        let page: FramePage<'_> = watcher.page();
        let mut count = |name: String, now: u64| {
            // On the first poll the interval is unknown.
            if let Some(before) = counters.insert(name.clone(), now) {
                found.push(Item::number(name, "", at, more(now, before)));
            }
        };
        COUNTERS.iter().for_each(|(word, counter)| count(format!("{name}/{word}"), page.counter(*counter)));
        for activity in 0..page.shape().activities {
            let of = page.activity_name(activity);
            for (word, counter) in &OF_ACTIVITIES {
                count(format!("{name}/{}/{word}", of.as_str()), page.activity_counter(activity, *counter));
            }
        }
        let mut times = |prefix: String, now: &Histogram| {
            let buckets = now.buckets().map(|(from, to, count)| (from.0, to.0, count));
            let beyond = now.max().map(|max| (i64::MAX - 1, max.0, now.overflow())).filter(|(.., count)| *count > 0);
            if let Some(figures) = histograms.entry(prefix.clone()).or_default().look(buckets.chain(beyond)) {
                quantiles(&prefix, &figures, at, found);
            }
        };
        times(format!("{name}/late-"), &page.late().read());
        times(format!("{name}/work-"), &page.dispatch().read());
        for activity in 0..page.shape().activities {
            times(format!("{name}/{}/work-", page.activity_name(activity).as_str()), &page.exec(activity).read());
        }
    }
}
