//! Reporting of disk failures: their beginning, once a minute while they continue, and their end.

use store::Account;

/// Interval of repeated reports.
const AGAIN_NS: i64 = 60_000_000_000;

/// State of the last report.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    failures: u64,
    /// Safe samples at the last failure.
    safe: u64,
    /// Reason of the last failure.
    why: String,
    /// Time of the last report; `None` if nothing fails.
    told_at: Option<i64>,
}

impl Troubles {
    /// The present failure.
    pub(crate) fn stands(&self) -> Option<&str> {
        self.told_at.map(|_| self.why.as_str())
    }

    /// The message to log now, if any. `why` is the reason of the last failure.
    pub(crate) fn news(&mut self, account: &Account, why: &str, now: i64) -> Option<String> {
        let so_far = format!("{} samples lost, {} files removed so far", account.lost, account.removed);
        if account.failures > self.failures {
            (self.failures, self.safe) = (account.failures, account.safe);
            self.why = format!("{why}; {} samples lost so far", account.lost);
            if self.told_at.is_some_and(|at| now < at + AGAIN_NS) {
                return None;
            }
            self.told_at = Some(now);
            return Some(format!("{why}; {so_far}"));
        }
        // A retry without a failure is not enough: samples must have become safe.
        if account.safe > self.safe && self.told_at.take().is_some() {
            return Some(format!("samples are safe again; {so_far}"));
        }
        None
    }
}

/// Reports of segments that were removed before an upload had sent them.
#[derive(Debug, Default)]
pub(crate) struct UnsentReports {
    reported: u64,
    again: RateLimit,
}

impl UnsentReports {
    /// The message to log now, if any. `last` is the last removed file.
    pub(crate) fn news(&mut self, account: &Account, last: Option<&str>, now: i64) -> Option<String> {
        let last = last.filter(|_| account.unsent > self.reported && self.again.is_due(now))?;
        self.reported = account.unsent;
        Some(format!(
            "{last} was removed to make room before the upload had sent it; {} such segments so far. Their samples are \
             lost: set a larger total_max, or see why the upload is slow",
            account.unsent
        ))
    }
}

/// A report that is made at most once a minute.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    reported_at: Option<i64>,
}

impl RateLimit {
    /// Whether to report now; if so, the time is recorded.
    pub(crate) fn is_due(&mut self, now: i64) -> bool {
        let is_due = self.reported_at.is_none_or(|at| now.saturating_sub(at) >= AGAIN_NS);
        if is_due {
            self.reported_at = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_to_pack_is_reported_once_a_minute() {
        let mut again = RateLimit::default();
        let reported: Vec<i64> = (0..200).filter(|second| again.is_due(second * 1_000_000_000)).collect();
        assert_eq!(reported, [0, 60, 120, 180]);
    }

    #[test]
    fn segments_that_were_removed_unsent_are_reported_with_their_number_at_most_once_a_minute() {
        let mut unsent = UnsentReports::default();
        let mut account = Account::default();
        assert_eq!(unsent.news(&account, None, 0), None);
        let mut reports = Vec::new();
        for second in 0..70 {
            account.unsent += 1;
            reports.extend(unsent.news(&account, Some("0000000007.segment"), second * 1_000_000_000));
        }
        let begin = |number: u64| {
            format!("0000000007.segment was removed to make room before the upload had sent it; {number} such segments")
        };
        assert_eq!(reports.len(), 2);
        assert!(reports[0].starts_with(&begin(1)) && reports[1].starts_with(&begin(61)), "{reports:?}");
    }

    #[test]
    fn failures_are_reported_when_they_begin_each_minute_and_when_they_end() {
        let mut troubles = Troubles::default();
        let mut account = Account::default();
        let second = 1_000_000_000;
        account.safe = 5;
        assert_eq!(troubles.news(&account, "", 0), None);
        let mut told = Vec::new();
        for at in 0..100 {
            account.failures += 1;
            account.lost += 10;
            told.extend(troubles.news(&account, "disk full", at * second).map(|text| (at, text)));
            // Polled once more before the next attempt.
            told.extend(troubles.news(&account, "disk full", at * second + 1).map(|text| (at, text)));
        }
        assert_eq!(troubles.stands(), Some("disk full; 1000 samples lost so far"));
        account.safe += 1;
        told.extend(troubles.news(&account, "disk full", 100 * second).map(|text| (100, text)));
        told.extend(troubles.news(&account, "disk full", 101 * second).map(|text| (101, text)));
        assert_eq!(troubles.stands(), None);
        let expected = [
            (0, "disk full; 10 samples lost, 0 files removed so far"),
            (60, "disk full; 610 samples lost, 0 files removed so far"),
            (100, "samples are safe again; 1000 samples lost, 0 files removed so far"),
        ];
        assert_eq!(told, expected.map(|(at, text)| (at, text.to_owned())));
    }
}
