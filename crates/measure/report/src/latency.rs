//! Latencies of a report: every sample is in a bucket, minimum and maximum are exact.

use crate::Figure;
use base::{Histogram, Quantile};
use serde::{Deserialize, Serialize};

/// The percentiles of a report, as fractions.
const PERCENTILES: [(u64, u64); 5] = [(1, 2), (9, 10), (99, 100), (999, 1000), (9999, 10_000)];

/// Latencies in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Samples with a negative latency.
    pub early: u64,
    /// Samples beyond the last bucket.
    pub overflow: u64,
    /// The exact minimum.
    pub min_ns: Option<i64>,
    /// The mean.
    pub mean_ns: Option<i64>,
    /// The standard deviation, if single samples were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd_ns: Option<i64>,
    /// The exact maximum.
    pub max_ns: Option<i64>,
    /// Percentiles with enough samples.
    pub percentiles: Vec<Percentile>,
    /// Lower end, upper end and samples of each bucket that has any.
    pub buckets: Vec<(i64, i64, u64)>,
}

/// A percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// The percentage, such as 99.9.
    pub percent: f64,
    /// Its value, or the end of the histogram.
    pub ns: i64,
    /// Whether it is beyond the histogram: then `ns` is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub beyond: bool,
}

impl From<&Histogram> for Latency {
    fn from(hist: &Histogram) -> Self {
        let percentile = |(num, den): (u64, u64)| {
            let percent = num as f64 * 100.0 / den as f64;
            match hist.quantile(num, den) {
                // With less than one sample above it, the percentile would be the maximum.
                _ if hist.count() < den / (den - num).max(1) => None,
                Quantile::At(time) => Some(Percentile { percent, ns: time.0, beyond: false }),
                Quantile::Beyond(time) => Some(Percentile { percent, ns: time.0, beyond: true }),
                Quantile::Empty => None,
            }
        };
        Self {
            count: hist.count(),
            early: hist.early(),
            overflow: hist.overflow(),
            min_ns: hist.min().map(|time| time.0),
            mean_ns: hist.mean().map(|time| time.0),
            sd_ns: None,
            max_ns: hist.max().map(|time| time.0),
            percentiles: PERCENTILES.into_iter().filter_map(percentile).collect(),
            buckets: hist.buckets().map(|(low, high, count)| (low.0, high.0, count)).collect(),
        }
    }
}

impl Latency {
    /// From single times in nanoseconds, which it sorts: percentiles are exact.
    #[must_use]
    pub fn of_times(times_ns: &mut [u64]) -> Self {
        times_ns.sort_unstable();
        let mut hist = Histogram::new();
        times_ns.iter().for_each(|ns| hist.record(base::DurNs(i64::try_from(*ns).unwrap_or(i64::MAX))));
        let count = times_ns.len().max(1) as f64;
        let mean = times_ns.iter().map(|ns| *ns as f64).sum::<f64>() / count;
        let spread = times_ns.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / count;
        let exact = |percentile: Percentile| {
            let above = (times_ns.len() as f64 * (1.0 - percentile.percent / 100.0)) as usize;
            let at = times_ns.len().checked_sub(1 + above).and_then(|place| times_ns.get(place));
            let ns = at.map_or(percentile.ns, |ns| i64::try_from(*ns).unwrap_or(i64::MAX));
            Percentile { ns, beyond: false, ..percentile }
        };
        let all = Self::from(&hist);
        let percentiles = all.percentiles.iter().copied().map(exact).collect();
        Self { sd_ns: Some(spread.sqrt() as i64), percentiles, ..all }
    }

    /// A percentile, if there were enough samples.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Percentile> {
        self.percentiles.iter().copied().find(|known| (known.percent - percent).abs() < 1e-6)
    }

    /// The 99th percentile in microseconds.
    #[must_use]
    pub fn p99(&self) -> Option<Figure> {
        let p99 = self.percentile(99.0)?;
        Some(Figure { value: p99.ns as f64 / 1e3, beyond: p99.beyond, samples: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DurNs;

    #[test]
    fn a_percentile_beyond_the_histogram_is_a_bound() {
        let mut hist = Histogram::new();
        (0..200).for_each(|_| hist.record(DurNs::from_secs(100)));
        let latency = Latency::from(&hist);
        assert_eq!(latency.overflow, 200);
        assert!(latency.p99().is_some_and(|p99| p99.beyond));
        assert_eq!(latency.max_ns, Some(100_000_000_000));
    }

    #[test]
    fn a_percentile_of_too_few_samples_is_not_given() {
        let mut hist = Histogram::new();
        (0..50).for_each(|us| hist.record(DurNs::from_us(us)));
        assert_eq!(Latency::from(&hist).p99(), None);
        assert!(Latency::from(&hist).percentile(90.0).is_some());
    }

    #[test]
    fn single_times_give_exact_percentiles() {
        let mut times: Vec<u64> = (1..=1000).rev().map(|n| n * 1001).collect();
        let latency = Latency::of_times(&mut times);
        assert_eq!(latency.percentile(50.0).map(|half| half.ns), Some(499 * 1001 + 1001));
        assert_eq!(latency.percentile(99.0).map(|p99| p99.ns), Some(990 * 1001));
        assert_eq!(latency.percentile(99.99), None);
    }
}
