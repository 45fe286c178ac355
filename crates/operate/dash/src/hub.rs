//! Newest data of each topic, written by the watching threads and read by all clients, with the history of its figures.

use crate::history::History;
use crate::metrics::Source;
use base::{DurNs, MonoNs};
use serde_json::{Value, json};
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
    /// Counters of the message server.
    MessageServer,
    /// All plants of this machine.
    Plants,
}

impl Topic {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Plant,
        Self::Histograms,
        Self::Late,
        Self::Shield,
        Self::Frames,
        Self::Alarms,
        Self::Archive,
        Self::MessageServer,
        Self::Plants,
    ];

    /// Its name in the protocol.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Plant => "plant",
            Self::Histograms => "histograms",
            Self::Late => "late",
            Self::Shield => "shield",
            Self::Frames => "frames",
            Self::Alarms => "alarms",
            Self::Archive => "archive",
            Self::MessageServer => "message-server",
            Self::Plants => "plants",
        }
    }

    /// Polling interval without a subscribed client, for history and metrics.
    pub(crate) const fn every_alone(self) -> DurNs {
        match self {
            Self::Shield => DurNs::from_secs(15),
            _ => self.every(),
        }
    }

    /// Polling interval while a client is subscribed.
    pub(crate) const fn every(self) -> DurNs {
        match self {
            Self::Plant | Self::Histograms | Self::Late | Self::Frames | Self::Alarms | Self::Archive => {
                DurNs::from_secs(1)
            }
            // The measurement takes 1 s, and reading all threads of the machine some more.
            Self::Shield => DurNs::from_secs(3),
            Self::MessageServer | Self::Plants => DurNs::from_secs(5),
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
    source: Option<Arc<Source>>,
    watchers: usize,
    /// Time of the first subscription.
    watched: MonoNs,
}

/// New data of a topic.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// As the page receives them.
    pub(crate) page: Value,
    /// For metrics; `None` if the source is unavailable.
    pub(crate) source: Option<Source>,
}

/// All topics.
#[derive(Default)]
pub(crate) struct Hub {
    newest: [Mutex<Newest>; Topic::ALL.len()],
    history: Mutex<History>,
}

impl Hub {
    /// Replaces the data of a topic and adds its figures to the history. `second` is the time in seconds since 1970.
    pub(crate) fn publish(&self, topic: Topic, news: News, now: MonoNs, second: i64) {
        let figures = self.history().collect(topic, &news.page, second);
        let text = json!({ "topic": topic, "data": news.page, "figures": figures }).to_string();
        let mut newest = self.lock(topic);
        newest.source = news.source.map(Arc::new);
        newest.number += 1;
        newest.at = now;
        newest.text = text.into();
    }

    /// The data if newer than version `than`, with their version.
    pub(crate) fn newer(&self, topic: Topic, than: u64) -> Option<(u64, Arc<str>)> {
        let newest = self.lock(topic);
        (newest.number > than).then(|| (newest.number, newest.text.clone()))
    }

    /// The typed data of a topic.
    pub(crate) fn source(&self, topic: Topic) -> Option<Arc<Source>> {
        self.lock(topic).source.clone()
    }

    /// The typed data if newer than version `than`, with their version; `None` inside if the source is unavailable.
    pub(crate) fn newer_source(&self, topic: Topic, than: u64) -> Option<(u64, Option<Arc<Source>>)> {
        let newest = self.lock(topic);
        (newest.number > than).then(|| (newest.number, newest.source.clone()))
    }

    /// Time of the newest data; `None` before the first.
    pub(crate) fn published(&self, topic: Topic) -> Option<MonoNs> {
        let newest = self.lock(topic);
        (newest.number > 0).then_some(newest.at)
    }

    /// The last 15 minutes of all figures.
    pub(crate) fn past(&self) -> Value {
        self.history().past()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn news(text: &str) -> News {
        News { page: text.into(), source: None }
    }

    #[test]
    fn topics_have_the_names_of_the_protocol() {
        for topic in Topic::ALL {
            assert_eq!(json!(topic), topic.word());
        }
    }

    #[test]
    fn new_data_replace_old_data_and_are_stale_after_two_poll_periods() {
        let (hub, then) = (Hub::default(), MonoNs(5_000_000_000));
        assert!(hub.newer(Topic::Late, 0).is_none());
        hub.publish(Topic::Late, news("old"), then, 5);
        hub.publish(Topic::Late, news("new"), then, 5);
        let (number, text) = hub.newer(Topic::Late, 0).unwrap();
        let text: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((number, &text["data"]), (2, &json!("new")));
        assert!(hub.newer(Topic::Late, 2).is_none() && hub.newer(Topic::Shield, 0).is_none());
        assert_eq!((hub.published(Topic::Late), hub.published(Topic::Shield)), (Some(then), None));
        assert!(!hub.is_stale(Topic::Late, then + DurNs::from_secs(2)));
        assert!(hub.is_stale(Topic::Late, then + DurNs::from_secs(2) + DurNs(1)));
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
        hub.publish(Topic::Alarms, news("old"), came, 5);
        hub.watch(Topic::Alarms, true, came + look + look);
        assert!(!hub.is_stale(Topic::Alarms, came + look + look + look));
    }
}
