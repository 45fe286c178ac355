//! All late wake-ups together: who is to blame for how much.

use crate::culprit::{Culprit, Late};
use base::{DurNs, Histogram};
use serde::Serialize;
use std::collections::BTreeMap;

/// Culprits that are told apart; what is beyond is counted as unexplained.
const CULPRITS_MAX: usize = 1024;

/// What one culprit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Tally {
    /// All its parts together, in nanoseconds.
    pub total_ns: u64,
    /// In how many delays it had a part.
    pub delays: u64,
    /// The most that it took of one, in nanoseconds.
    pub longest_ns: u64,
}

/// All wake-ups of all watched threads.
#[derive(Clone, Debug)]
pub struct Summary {
    /// How late each wake-up was.
    pub delays: Histogram,
    /// Those beyond the threshold.
    pub late: u64,
    /// Of these, all delay together, in nanoseconds.
    pub late_ns: u64,
    /// Who.
    pub culprits: BTreeMap<Culprit, Tally>,
    /// The longest, the worst first.
    pub worst: Vec<Late>,
    worst_max: usize,
}

impl Summary {
    /// An empty one, that will keep the `worst_max` longest.
    #[must_use]
    pub fn new(worst_max: usize) -> Self {
        let (delays, culprits, worst) = (Histogram::new(), BTreeMap::new(), Vec::new());
        Self { delays, late: 0, late_ns: 0, culprits, worst, worst_max }
    }

    /// Counts a wake-up, late or not.
    pub fn woke(&mut self, delay_ns: u64) {
        self.delays.record(DurNs(i64::try_from(delay_ns).unwrap_or(i64::MAX)));
    }

    /// Adds one that was late.
    pub fn add(&mut self, late: Late) {
        self.late += 1;
        // Times of a damaged trace may be anything.
        self.late_ns = self.late_ns.saturating_add(late.delay_ns());
        for (culprit, ns) in late.by_culprit() {
            let known = self.culprits.contains_key(culprit) || self.culprits.len() < CULPRITS_MAX;
            let culprit = if known { culprit } else { &Culprit::Unexplained };
            let tally = self.culprits.entry(culprit.clone()).or_default();
            tally.total_ns = tally.total_ns.saturating_add(ns);
            tally.delays += 1;
            tally.longest_ns = tally.longest_ns.max(ns);
        }
        let at = self.worst.partition_point(|other| other.delay_ns() >= late.delay_ns());
        if at < self.worst_max {
            self.worst.insert(at, late);
            self.worst.truncate(self.worst_max);
        }
    }

    /// Culprits, the one with the most delay first.
    #[must_use]
    pub fn ranked(&self) -> Vec<(&Culprit, Tally)> {
        let mut all: Vec<_> = self.culprits.iter().map(|(culprit, tally)| (culprit, *tally)).collect();
        all.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.total_ns));
        all
    }

    /// What of all late delay `which` culprits took, in percent.
    #[must_use]
    pub fn share(&self, which: impl Fn(&Culprit) -> bool) -> f64 {
        let ns: u64 = self
            .culprits
            .iter()
            .filter(|(culprit, _)| which(culprit))
            .map(|(_, tally)| tally.total_ns)
            .fold(0, u64::saturating_add);
        if self.late_ns == 0 { 0.0 } else { 100.0 * ns as f64 / self.late_ns as f64 }
    }
}
