//! Totals of late wake-ups by culprit.

use crate::culprit::{Culprit, Late};
use base::{DurNs, Histogram};
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of distinct culprits; further ones count as unexplained.
const CULPRITS_MAX: usize = 1024;

/// Totals of a culprit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Tally {
    /// Sum of its parts, in nanoseconds.
    pub total_ns: u64,
    /// Number of delays in which it had a part.
    pub delays: u64,
    /// Its maximum share of one delay, in nanoseconds.
    pub longest_ns: u64,
}

/// Totals of all wake-ups of the watched threads.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Distribution of wake-up delays.
    pub delays: Histogram,
    /// Number of delays above the threshold.
    pub late: u64,
    /// Sum of those delays, in nanoseconds.
    pub late_ns: u64,
    /// Totals by culprit.
    pub culprits: BTreeMap<Culprit, Tally>,
    /// The longest delays, longest first.
    pub worst: Vec<Late>,
    worst_max: usize,
}

impl Summary {
    /// An empty summary that keeps the `worst_max` longest delays.
    #[must_use]
    pub fn new(worst_max: usize) -> Self {
        let (delays, culprits, worst) = (Histogram::new(), BTreeMap::new(), Vec::new());
        Self { delays, late: 0, late_ns: 0, culprits, worst, worst_max }
    }

    /// Counts a wake-up, late or not.
    pub fn woke(&mut self, delay_ns: u64) {
        self.delays.record(DurNs(i64::try_from(delay_ns).unwrap_or(i64::MAX)));
    }

    /// Adds a delay above the threshold.
    pub fn add(&mut self, late: Late) {
        self.late += 1;
        // Times in a damaged trace may be arbitrary.
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

    /// Culprits by total delay, largest first.
    #[must_use]
    pub fn ranked(&self) -> Vec<(&Culprit, Tally)> {
        let mut all: Vec<_> = self.culprits.iter().map(|(culprit, tally)| (culprit, *tally)).collect();
        all.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.total_ns));
        all
    }

    /// Share of the total delay caused by the selected culprits, in percent.
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
