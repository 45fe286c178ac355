//! A histogram of fixed size for latencies.

use crate::unit::DurNs;

/// Sub-buckets per power of two: each bucket is at most 1/32 of its value wide.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Values of `2^RANGE_BITS` ns (about 68.7 s) and more are counted as overflow.
const RANGE_BITS: u32 = 36;
const BUCKETS: usize = (RANGE_BITS - SUB_BITS + 1) as usize * SUB;

/// Counts of times in nanoseconds: log-linear buckets (error at most 3.2 %), exact minimum, maximum,
/// sum and count, and separate counters for early values and values beyond the range.
///
/// Holds 8 KiB by value; put it into preallocated memory before a real-time thread runs.
///
/// Real-time: [`record`](Self::record) neither allocates nor blocks; a dozen instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    early: u64,
    overflow: u64,
    sum_ns: i128,
    min_ns: i64,
    max_ns: i64,
}

/// Figures of a histogram in addition to its buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Negative values, also counted in the lowest bucket.
    pub early: u64,
    /// Values beyond the range.
    pub overflow: u64,
    /// Sum of all values.
    pub sum_ns: i64,
    /// Exact smallest value.
    pub min_ns: i64,
    /// Exact largest value.
    pub max_ns: i64,
}

/// A percentile, or the reason why it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The upper edge of the bucket that contains it, limited to the exact maximum.
    At(DurNs),
    /// It is beyond the range. This is a lower bound.
    Beyond(DurNs),
    /// Nothing was recorded.
    Empty,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, early: 0, overflow: 0, sum_ns: 0, min_ns: i64::MAX, max_ns: i64::MIN }
    }

    /// Number of buckets between zero and the end of the range.
    pub const BUCKETS: usize = BUCKETS;

    /// The bucket that counts `value` (a negative one: the lowest), or `None` beyond the range.
    #[must_use]
    pub fn bucket_of(value: DurNs) -> Option<usize> {
        Some(index_of(value.0.max(0) as u64)).filter(|&index| index < BUCKETS)
    }

    /// A histogram from the counts of a shared page, in rising order. Missing counts are zero, surplus ones are ignored.
    /// `outside` is called after the last count was read, and the total is the sum of the counts. So the result is
    /// consistent even if another process writes the page during the read.
    #[must_use]
    pub fn from_parts(counts: impl IntoIterator<Item = u64>, outside: impl FnOnce() -> Outside) -> Self {
        let mut hist = Self::new();
        hist.buckets.iter_mut().zip(counts).for_each(|(bucket, count)| *bucket = count);
        let outside = outside();
        (hist.early, hist.overflow) = (outside.early, outside.overflow);
        hist.count = hist.buckets.iter().fold(outside.overflow, |sum, &count| sum.saturating_add(count));
        if hist.count > 0 {
            (hist.sum_ns, hist.min_ns, hist.max_ns) = (i128::from(outside.sum_ns), outside.min_ns, outside.max_ns);
        }
        hist
    }

    /// Counts one value. A negative one (an early wake-up) is counted in the lowest bucket and as early.
    pub fn record(&mut self, value: DurNs) {
        let ns = value.0;
        self.count += 1;
        self.sum_ns += i128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.early += u64::from(ns < 0);
        match self.buckets.get_mut(index_of(ns.max(0) as u64)) {
            Some(bucket) => *bucket += 1,
            None => self.overflow += 1,
        }
    }

    /// Adds another histogram's counts to this one's.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.early += other.early;
        self.overflow += other.overflow;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Number of negative values.
    #[must_use]
    pub fn early(&self) -> u64 {
        self.early
    }

    /// Number of values beyond the range.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// The exact smallest value.
    #[must_use]
    pub fn min(&self) -> Option<DurNs> {
        (self.count > 0).then_some(DurNs(self.min_ns))
    }

    /// The exact largest value.
    #[must_use]
    pub fn max(&self) -> Option<DurNs> {
        (self.count > 0).then_some(DurNs(self.max_ns))
    }

    /// The mean, rounded towards zero.
    #[must_use]
    pub fn mean(&self) -> Option<DurNs> {
        (self.count > 0).then(|| DurNs((self.sum_ns / i128::from(self.count)) as i64))
    }

    /// The value that the fraction `num/den` of the values does not exceed, e.g. `(999, 1000)` for p99.9.
    #[must_use]
    pub fn quantile(&self, num: u64, den: u64) -> Quantile {
        if self.count == 0 || den == 0 {
            return Quantile::Empty;
        }
        let wanted = (u128::from(self.count) * u128::from(num)).div_ceil(u128::from(den)).max(1);
        let mut seen = 0u128;
        for (index, &bucket) in self.buckets.iter().enumerate() {
            seen += u128::from(bucket);
            if seen >= wanted {
                return Quantile::At(DurNs((upper_of(index) as i64).min(self.max_ns)));
            }
        }
        Quantile::Beyond(DurNs(1 << RANGE_BITS))
    }

    /// The non-empty buckets in rising order: lower edge, upper edge (inclusive), count.
    pub fn buckets(&self) -> impl Iterator<Item = (DurNs, DurNs, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|&(_, &count)| count > 0);
        filled.map(|(index, &count)| (DurNs(lower_of(index) as i64), DurNs(upper_of(index) as i64), count))
    }
}

/// The bucket of a value; beyond [`BUCKETS`] for an overflow.
fn index_of(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let exponent = ns.ilog2() - SUB_BITS;
    ((exponent as usize) << SUB_BITS) + (ns >> exponent) as usize
}

fn lower_of(index: usize) -> u64 {
    if index < 2 * SUB {
        return index as u64;
    }
    let exponent = (index >> SUB_BITS) - 1;
    ((index - (exponent << SUB_BITS)) as u64) << exponent
}

fn upper_of(index: usize) -> u64 {
    lower_of(index + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_falls_between_the_edges_of_its_bucket() {
        for ns in (0..70_000).chain([u64::from(u32::MAX), (1 << 36) - 1]) {
            let index = index_of(ns);
            assert!(lower_of(index) <= ns && ns <= upper_of(index), "{ns} in {index}");
            assert!((upper_of(index) - lower_of(index)) * 32 <= ns.max(32), "{ns}: bucket too wide");
        }
        assert_eq!(index_of((1 << 36) - 1), BUCKETS - 1);
        assert_eq!(index_of(1 << 36), BUCKETS);
    }

    #[test]
    fn a_percentile_in_the_overflow_is_returned_as_beyond_the_range() {
        let mut hist = Histogram::new();
        hist.record(DurNs(5));
        hist.record(DurNs::from_secs(100));
        assert_eq!(hist.quantile(1, 2), Quantile::At(DurNs(5)));
        assert_eq!(hist.quantile(99, 100), Quantile::Beyond(DurNs(1 << 36)));
        assert_eq!((hist.overflow(), hist.max()), (1, Some(DurNs::from_secs(100))));
    }

    #[test]
    fn early_values_are_counted_and_keep_the_exact_minimum() {
        let mut hist = Histogram::new();
        hist.record(DurNs(-40));
        hist.record(DurNs(40));
        assert_eq!((hist.early(), hist.min(), hist.mean()), (1, Some(DurNs(-40)), Some(DurNs(0))));
    }

    #[test]
    fn an_empty_histogram_claims_nothing() {
        let hist = Histogram::new();
        assert_eq!((hist.quantile(1, 2), hist.max(), hist.mean()), (Quantile::Empty, None, None));
    }

    proptest! {
        #[test]
        fn a_histogram_is_rebuilt_from_its_parts(values in proptest::collection::vec(-50i64..1 << 37, 0..50)) {
            let (mut hist, mut counts, mut outside) = (Histogram::new(), std::vec![0; Histogram::BUCKETS], Outside::default());
            for &ns in &values {
                hist.record(DurNs(ns));
                match Histogram::bucket_of(DurNs(ns)) { Some(index) => counts[index] += 1, None => outside.overflow += 1 }
                outside.early += u64::from(ns < 0);
                outside.sum_ns += ns;
            }
            (outside.min_ns, outside.max_ns) = (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(Histogram::from_parts(counts, || outside), hist);
        }

        #[test]
        fn quantiles_match_a_sorted_list_within_a_bucket(mut values in proptest::collection::vec(0i64..10_000_000, 1..300), num in 1u64..1000) {
            let mut hist = Histogram::new();
            values.iter().for_each(|&ns| hist.record(DurNs(ns)));
            values.sort_unstable();
            let rank = (values.len() as u64 * num).div_ceil(1000).max(1) as usize;
            let exact = values[rank - 1];
            let Quantile::At(DurNs(found)) = hist.quantile(num, 1000) else { panic!("known") };
            prop_assert!(found >= exact && found <= exact + exact / 32 + 1, "{exact} {found}");
        }

        #[test]
        fn merging_is_recording_both(a in proptest::collection::vec(-50i64..1_000_000, 0..50), b in proptest::collection::vec(-50i64..1_000_000, 0..50)) {
            let fill = |values: &[i64]| { let mut h = Histogram::new(); values.iter().for_each(|&ns| h.record(DurNs(ns))); h };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            let both: std::vec::Vec<i64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged, fill(&both));
        }
    }
}
