//! Newest data of each topic, written by the watching threads and read by all clients.

use base::{DurNs, MonoNs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A topic to subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Topic {
    /// Processes, their threads and loops.
    Plant,
    /// Wake-up latency of loops, bucket by bucket.
    Histograms,
    /// The last explained delays.
    Late,
    /// Disturbances of each CPU.
    Shield,
    /// Frames.
    Frames,
    /// Active and hidden alarms.
    Alarms,
    /// The archive's sample rate, last sync and disk.
    Archive,
}

impl Topic {
    /// All of them.
    pub(crate) const ALL: [Self; 7] =
        [Self::Plant, Self::Histograms, Self::Late, Self::Shield, Self::Frames, Self::Alarms, Self::Archive];

    /// Polling interval while a client is subscribed.
    pub(crate) const fn every(self) -> DurNs {
        match self {
            Self::Plant | Self::Histograms | Self::Late | Self::Frames | Self::Alarms | Self::Archive => {
                DurNs::from_secs(1)
            }
            // The measurement takes 1 s, and reading all threads of the machine some more.
            Self::Shield => DurNs::from_secs(3),
        }
    }

    /// Age at which the data are stale: two missed polls.
    const fn stale_after(self) -> DurNs {
        DurNs(2 * self.every().0)
    }
}

/// Newest data of a topic, and its number of subscribers.
#[derive(Clone, Debug, Default)]
struct Newest {
    number: u64,
    at: MonoNs,
    text: Arc<str>,
    watchers: usize,
    /// Time of the first subscription.
    watched: MonoNs,
}

/// All topics.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    newest: [Mutex<Newest>; Topic::ALL.len()],
}

impl Hub {
    /// Replaces the data of a topic.
    pub(crate) fn publish(&self, topic: Topic, text: String, now: MonoNs) {
        let mut newest = self.lock(topic);
        newest.number += 1;
        newest.at = now;
        newest.text = text.into();
    }

    /// The data if newer than version `than`, with their version.
    pub(crate) fn newer(&self, topic: Topic, than: u64) -> Option<(u64, Arc<str>)> {
        let newest = self.lock(topic);
        (newest.number > than).then(|| (newest.number, newest.text.clone()))
    }

    /// Whether the data are older than they should be with subscribers, or have never been published.
    pub(crate) fn is_stale(&self, topic: Topic, now: MonoNs) -> bool {
        let newest = self.lock(topic);
        now - newest.at.max(newest.watched) > topic.stale_after()
    }

    /// Adds or removes a subscriber.
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

    /// Whether there are subscribers.
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
    fn new_data_replace_old_data_and_are_stale_after_two_poll_periods() {
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
    fn missing_data_are_stale_once_a_subscriber_has_waited_two_poll_periods() {
        let (hub, came, look) = (Hub::default(), MonoNs(900_000_000_000), DurNs::from_secs(2));
        hub.watch(Topic::Alarms, true, came);
        hub.watch(Topic::Alarms, true, came + look);
        assert!(hub.is_watched(Topic::Alarms) && !hub.is_stale(Topic::Alarms, came + look));
        assert!(hub.is_stale(Topic::Alarms, came + look + DurNs(1)));
        (0..2).for_each(|_| hub.watch(Topic::Alarms, false, came));
        assert!(!hub.is_watched(Topic::Alarms));
        // Data that became old without subscribers count as stale only after a new subscriber has waited.
        hub.publish(Topic::Alarms, "old".into(), came);
        hub.watch(Topic::Alarms, true, came + look + look);
        assert!(!hub.is_stale(Topic::Alarms, came + look + look + look));
    }
}
