//! Why there were no samples, reported with the next one.

use segment::rows::{Cause, Gap};
use std::iter::Peekable;
use std::vec::IntoIter;

const SECOND: i64 = 1_000_000_000;

/// The gaps of a signal that were not reported yet.
pub(crate) struct Gaps {
    left: Peekable<IntoIter<Gap>>,
    /// All before it were reported.
    reported: i64,
    /// What could not be read since the last sample.
    unread: Option<String>,
}

impl Gaps {
    /// Those after an instant.
    pub(crate) fn after(at: i64, mut gaps: Vec<Gap>) -> Self {
        gaps.retain(|gap| gap.at > at);
        Self { left: gaps.into_iter().peekable(), reported: at, unread: None }
    }

    /// The gaps are known better: reading has found damage.
    pub(crate) fn renew(&mut self, mut gaps: Vec<Gap>) {
        gaps.retain(|gap| gap.at > self.reported);
        self.left = gaps.into_iter().peekable();
    }

    /// Samples are missing because they could not be read.
    pub(crate) fn unread(&mut self, why: String) {
        self.unread = Some(why);
    }

    /// What is reported with a sample: fields by the Archiver Appliance's names, where it has one for the cause (connection lost and
    /// regained, start, resumption), and all causes in words as `gap`.
    pub(crate) fn before_sample(&mut self, at: i64) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let mut field = |name: &str, value: String| {
            if !fields.iter().any(|(known, _)| known == name) {
                fields.push((name.to_owned(), value));
            }
        };
        let (mut causes, mut lost) = (Vec::new(), 0u64);
        self.reported = self.reported.max(at);
        while let Some(gap) = self.left.next_if(|gap| gap.at <= at) {
            match gap.cause {
                Cause::Disconnected => {
                    field("cnxlostepsecs", gap.at.div_euclid(SECOND).to_string());
                    field("cnxregainedepsecs", at.div_euclid(SECOND).to_string());
                }
                Cause::Started => field("startup", "true".into()),
                Cause::Paused => field("resume", "true".into()),
                _ => {}
            }
            causes.push(gap.cause.to_string());
            lost = lost.saturating_add(gap.lost);
        }
        causes.extend(self.unread.take());
        causes.dedup();
        if !causes.is_empty() {
            field("gap", causes.join(", "));
        }
        if lost > 0 {
            field("lost", lost.to_string());
        }
        fields
    }

    /// What is reported with a bin that ends before an instant: that there was a gap in it or before it.
    pub(crate) fn before_bin_ends(&mut self, end: i64) -> Vec<(String, String)> {
        let reported = self.before_sample(end.saturating_sub(1));
        let mut fields: Vec<_> = reported.into_iter().filter(|(name, _)| name == "gap" || name == "lost").collect();
        if !fields.is_empty() {
            fields.insert(0, ("connectionChange".into(), "true".into()));
        }
        fields
    }
}
