//! State of an upload, for display.

use base::{DurNs, MonoNs, Size};
use std::fmt;

/// Interval at which waiting samples are reported again.
const AGAIN: DurNs = DurNs::from_secs(60);

/// State of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The cluster accepts requests.
    pub is_connected: bool,
    /// Samples acknowledged by the cluster since the start.
    pub samples: u64,
    /// Bytes of the log not yet sent.
    pub waiting: u64,
    /// Failed requests that were repeated.
    pub again: u64,
    /// Current maximum number of concurrent requests. Halved by each failure.
    pub at_once: usize,
    /// Samples with a value that is too long for a node. Each is stored as a gap.
    pub refused: u64,
    /// Segments removed for lack of space before they were sent.
    pub missed: u64,
    /// Damaged places in the log. Each is stored as a gap.
    pub damaged: u64,
    /// Damage of the log's manifest, found at the start. It names no samples: the files are sent as they are.
    pub manifest: Option<String>,
    /// Error of the last failed request, or of the last failed read of the log.
    pub error: Option<String>,
}

/// One line of text for display.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = Size(self.waiting);
        if self.is_connected {
            write!(f, "the cluster accepts the logged samples, {waiting} wait")?;
        } else {
            let why = self.error.as_deref().unwrap_or("it was not reached yet");
            write!(f, "the cluster takes nothing ({why}), {waiting} wait in the log")?;
        }
        if self.missed > 0 {
            write!(f, "; {} segments were removed before they were sent, because the space was used up", self.missed)?;
        }
        if self.damaged > 0 {
            write!(f, "; {} places of the log are damaged, each is a gap: see tahti archive verify", self.damaged)?;
        }
        if let Some(why) = &self.manifest {
            write!(f, "; damaged: {why}: see tahti archive verify")?;
        }
        if self.refused > 0 {
            write!(f, "; {} values are longer than nodes take, each is a gap", self.refused)?;
        }
        Ok(())
    }
}

/// Last reported state of an upload. Suppresses repeated reports.
#[derive(Debug, Default)]
pub struct News {
    printed: Option<(bool, u64, u64)>,
    again_at: MonoNs,
}

impl News {
    /// A report is due: the connection state has changed, more segments or values are missing, or samples have been waiting for another minute.
    pub fn is_due(&mut self, status: &Status, now: MonoNs) -> bool {
        if !status.is_connected && status.error.is_none() {
            // Nothing is known yet.
            return false;
        }
        let what = (status.is_connected, status.missed, status.refused + status.damaged);
        let waits_still = !status.is_connected && now >= self.again_at;
        let is_due = self.printed != Some(what) || waits_still;
        if is_due {
            *self = Self { printed: Some(what), again_at: now + AGAIN };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_status_are_reported_once_and_waiting_samples_each_minute() {
        let at = |secs: i64| MonoNs(0) + DurNs::from_secs(secs);
        let mut news = News::default();
        let mut status = Status::default();
        assert!(!news.is_due(&status, at(1)), "no state is known yet");
        status.error = Some("refused".into());
        assert_eq!([1, 2, 60, 61, 62].map(|secs| news.is_due(&status, at(secs))), [true, false, false, true, false]);
        status.is_connected = true;
        assert_eq!([63, 500].map(|secs| news.is_due(&status, at(secs))), [true, false]);
        status.missed = 1;
        assert!(news.is_due(&status, at(501)));
        assert!(
            status
                .to_string()
                .ends_with("1 segments were removed before they were sent, because the space was used up")
        );
    }
}
