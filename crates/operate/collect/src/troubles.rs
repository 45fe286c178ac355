//! What of the disk's failures is told: that they have begun, once a minute that they go on, and that they are over.

use store::Account;

/// How often it is told that they go on.
const AGAIN_NS: i64 = 60_000_000_000;

/// What was told last.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    failures: u64,
    /// Samples that were safe when the last failure was seen.
    safe: u64,
    /// Why the last one failed.
    why: String,
    /// When it was told that something fails; `None` where nothing does.
    told_at: Option<i64>,
}

impl Troubles {
    /// What fails, while it does.
    pub(crate) fn stands(&self) -> Option<&str> {
        self.told_at.map(|_| self.why.as_str())
    }

    /// What is to be told now, if anything; `why` is the last failure's reason.
    pub(crate) fn news(&mut self, account: &Account, why: &str, now: i64) -> Option<String> {
        let so_far = format!("{} samples lost, {} files removed so far", account.lost, account.removed);
        if account.failures > self.failures {
            (self.failures, self.safe) = (account.failures, account.safe);
            why.clone_into(&mut self.why);
            if self.told_at.is_some_and(|at| now < at + AGAIN_NS) {
                return None;
            }
            self.told_at = Some(now);
            return Some(format!("{why}; {so_far}"));
        }
        // Trying again without a failure is not enough: something must have become safe.
        if account.safe > self.safe && self.told_at.take().is_some() {
            return Some(format!("samples are safe again; {so_far}"));
        }
        None
    }
}

/// What is reported once a minute at most.
#[derive(Debug, Default)]
pub(crate) struct Again {
    reported_at: Option<i64>,
}

impl Again {
    /// Whether it is to be reported now; if so, it was.
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
        let mut again = Again::default();
        let reported: Vec<i64> = (0..200).filter(|second| again.is_due(second * 1_000_000_000)).collect();
        assert_eq!(reported, [0, 60, 120, 180]);
    }

    #[test]
    fn failures_are_told_when_they_begin_each_minute_and_when_they_are_over() {
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
            // Looked at once more before the next try.
            told.extend(troubles.news(&account, "disk full", at * second + 1).map(|text| (at, text)));
        }
        assert_eq!(troubles.stands(), Some("disk full"));
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
