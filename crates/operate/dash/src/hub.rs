//! What is watched, the newest of each kind: written by those who watch, read by all clients.

use base::{DurNs, MonoNs};
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
    /// The archive's rate, its last synced sample and its disk.
    Archive,
}

impl Topic {
    /// All of them.
    pub(crate) const ALL: [Self; 7] =
        [Self::Plant, Self::Histograms, Self::Late, Self::Shield, Self::Frames, Self::Alarms, Self::Archive];

    /// How often it is looked at while somebody watches.
    pub(crate) const fn every(self) -> DurNs {
        match self {
            Self::Plant | Self::Histograms | Self::Late | Self::Frames | Self::Alarms | Self::Archive => {
                DurNs::from_secs(1)
            }
            // Counting takes a second, and reading every thread of the machine some of its time.
            Self::Shield => DurNs::from_secs(3),
        }
    }

    /// From which age on it is stale: two looks that did not come.
    const fn stale_after(self) -> DurNs {
        DurNs(2 * self.every().0)
    }
}

/// The newest of one topic, and who waits for the next.
#[derive(Clone, Debug, Default)]
struct Newest {
    number: u64,
    at: MonoNs,
    text: Arc<str>,
    watchers: usize,
    /// When the first of them came.
    watched: MonoNs,
}

/// All topics.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    newest: [Mutex<Newest>; Topic::ALL.len()],
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

    /// Whether what is there is older than it should be while somebody watches, or has never come.
    pub(crate) fn is_stale(&self, topic: Topic, now: MonoNs) -> bool {
        let newest = self.lock(topic);
        now - newest.at.max(newest.watched) > topic.stale_after()
    }

    /// One more client watches, or one less.
    pub(crate) fn watch(&self, topic: Topic, more: bool, now: MonoNs) {
        let mut newest = self.lock(topic);
        if more {
            if newest.watchers == 0 {
                newest.watched = now;
            }
            newest.watchers += 1;
        } else {
            newest.watchers -= 1;
        }
    }

    /// Whether anybody watches.
    pub(crate) fn is_watched(&self, topic: Topic) -> bool {
        self.lock(topic).watchers > 0
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
        assert!(hub.newer(Topic::Plant, 0).is_none());
        hub.publish(Topic::Plant, "old".into(), then);
        hub.publish(Topic::Plant, "new".into(), then);
        let (number, text) = hub.newer(Topic::Plant, 0).unwrap();
        assert_eq!((number, &*text), (2, "new"));
        assert!(hub.newer(Topic::Plant, 2).is_none() && hub.newer(Topic::Shield, 0).is_none());
        assert!(!hub.is_stale(Topic::Plant, then + DurNs::from_secs(2)));
        assert!(hub.is_stale(Topic::Plant, then + DurNs::from_secs(2) + DurNs(1)));
    }
    #[test]
    fn what_never_comes_is_stale_as_soon_as_somebody_has_waited_for_two_looks() {
        let (hub, came, look) = (Hub::default(), MonoNs(900_000_000_000), DurNs::from_secs(2));
        hub.watch(Topic::Alarms, true, came);
        hub.watch(Topic::Alarms, true, came + look);
        assert!(hub.is_watched(Topic::Alarms) && !hub.is_stale(Topic::Alarms, came + look));
        assert!(hub.is_stale(Topic::Alarms, came + look + DurNs(1)));
        (0..2).for_each(|_| hub.watch(Topic::Alarms, false, came));
        assert!(!hub.is_watched(Topic::Alarms));
        // What nobody wanted meanwhile is as old as the first who wants it again has waited.
        hub.publish(Topic::Alarms, "old".into(), came);
        hub.watch(Topic::Alarms, true, came + look + look);
        assert!(!hub.is_stale(Topic::Alarms, came + look + look + look));
    }
}
