//! What is watched, the newest of each kind: written by those who watch, read by all clients.

use base::{DurNs, MonoNs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topic {
    /// Processes, their threads and loops.
    Plant,
    /// Wake-up latency of loops, bucket by bucket.
    Histograms,
    /// The last late wake-ups, explained.
    Late,
    /// What reaches each CPU.
    Shield,
    /// Frames.
    Frames,
    /// Alarms that stand or are put aside.
    Alarms,
}

impl Topic {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Plant, Self::Histograms, Self::Late, Self::Shield, Self::Frames, Self::Alarms];

    /// How often it is looked at while somebody watches.
    pub(crate) const fn every(self) -> DurNs {
        match self {
            Self::Plant | Self::Histograms | Self::Late | Self::Frames | Self::Alarms => DurNs::from_secs(1),
            // Counting takes a second, and reading every thread of the machine some of its time.
            Self::Shield => DurNs::from_secs(3),
        }
    }

    /// From which age on it is stale: two looks that did not come.
    const fn stale_after(self) -> DurNs {
        DurNs(2 * self.every().0)
    }
}

/// The newest of one topic.
#[derive(Clone, Debug, Default)]
struct Newest {
    number: u64,
    at: MonoNs,
    text: Arc<str>,
}

/// All topics.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    newest: [Mutex<Newest>; Topic::ALL.len()],
    watchers: [AtomicUsize; Topic::ALL.len()],
}

impl Hub {
    /// Puts something new in place of the old.
    pub(crate) fn publish(&self, topic: Topic, text: String, now: MonoNs) {
        let mut newest = self.lock(topic);
        newest.number += 1;
        newest.at = now;
        newest.text = text.into();
    }

    /// What is newer than number `than`, with its own number.
    pub(crate) fn newer(&self, topic: Topic, than: u64) -> Option<(u64, Arc<str>)> {
        let newest = self.lock(topic);
        (newest.number > than).then(|| (newest.number, newest.text.clone()))
    }

    /// Whether what is there is older than it should be while somebody watches.
    pub(crate) fn is_stale(&self, topic: Topic, now: MonoNs) -> bool {
        let newest = self.lock(topic);
        newest.number > 0 && now - newest.at > topic.stale_after()
    }

    /// One more client watches, or one less.
    pub(crate) fn watch(&self, topic: Topic, more: bool) {
        let watchers = &self.watchers[topic as usize];
        if more {
            watchers.fetch_add(1, Ordering::Relaxed);
        } else {
            watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether anybody watches.
    pub(crate) fn is_watched(&self, topic: Topic) -> bool {
        self.watchers[topic as usize].load(Ordering::Relaxed) > 0
    }

    fn lock(&self, topic: Topic) -> MutexGuard<'_, Newest> {
        self.newest[topic as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_takes_the_place_of_the_old_and_is_stale_after_two_looks() {
        let (hub, then) = (Hub::default(), MonoNs(5_000_000_000));
        assert!(hub.newer(Topic::Plant, 0).is_none() && !hub.is_stale(Topic::Plant, MonoNs(u64::MAX / 2)));
        hub.publish(Topic::Plant, "old".into(), then);
        hub.publish(Topic::Plant, "new".into(), then);
        let (number, text) = hub.newer(Topic::Plant, 0).unwrap();
        assert_eq!((number, &*text), (2, "new"));
        assert!(hub.newer(Topic::Plant, 2).is_none() && hub.newer(Topic::Shield, 0).is_none());
        assert!(!hub.is_stale(Topic::Plant, then + DurNs::from_secs(2)));
        assert!(hub.is_stale(Topic::Plant, then + DurNs::from_secs(2) + DurNs(1)));
    }
}
