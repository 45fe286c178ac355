//! Statistical summary of samples.

use crate::bytes::{Bad, Input};

/// A value at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Time stamp: nanoseconds since 1970, UTC.
    pub at: i64,
    /// The value.
    pub value: f64,
}

/// Summary of the numbers in an interval. The result does not depend on the order in which samples and summaries are added,
/// except for rounding. Of values with equal stamps, the one added first is `first`, and the one added last is `last`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values without NaN.
    pub count: u64,
    /// Number of NaN values.
    pub nans: u64,
    /// The first value. This and the fields below are meaningless if `count` is 0.
    pub first: Point,
    /// The last value.
    pub last: Point,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sum of squared deviations from the mean.
    pub squares: f64,
    /// Maximum severity, including that of NaN values.
    pub severity: u8,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            count: 0,
            nans: 0,
            first: Point { at: i64::MAX, value: f64::NAN },
            last: Point { at: i64::MIN, value: f64::NAN },
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            mean: 0.0,
            squares: 0.0,
            severity: 0,
        }
    }
}

impl Summary {
    /// Adds a sample. Does not allocate.
    #[inline]
    pub fn add(&mut self, at: i64, value: f64, severity: u8) {
        self.severity = self.severity.max(severity);
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        if self.count == 0 || at < self.first.at {
            self.first = Point { at, value };
        }
        if self.count == 0 || at >= self.last.at {
            self.last = Point { at, value };
        }
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        // Welford's algorithm: a plain sum of squares loses small variations on a large offset.
        let from_mean = value - self.mean;
        self.mean += from_mean / self.count as f64;
        self.squares += from_mean * (value - self.mean);
    }

    /// Summarizes numbers in two passes, which is several times faster than one by one. Does not allocate.
    ///
    /// `values` must return the same numbers on each call, one per stamp.
    pub(crate) fn of<V: DoubleEndedIterator<Item = f64> + ExactSizeIterator>(
        stamps: &[i64],
        values: impl Fn() -> V,
        severity: u8,
    ) -> Self {
        let mut summary = Self { severity, ..Self::default() };
        let numbers = || values().filter(|value| !value.is_nan());
        let mut sum = 0.0;
        for value in numbers() {
            summary.count += 1;
            sum += value;
            summary.min = summary.min.min(value);
            summary.max = summary.max.max(value);
        }
        summary.nans = stamps.len() as u64 - summary.count;
        let points = || stamps.iter().zip(values()).map(|(at, value)| Point { at: *at, value });
        let is_number = |point: &Point| !point.value.is_nan();
        if let (Some(first), Some(last)) = (points().find(is_number), points().rfind(is_number)) {
            (summary.first, summary.last) = (first, last);
            summary.mean = sum / summary.count as f64;
            summary.squares = numbers().map(|value| (value - summary.mean).powi(2)).sum();
        }
        summary
    }

    /// Merges another summary (Chan's method for variances). Does not allocate.
    pub fn join(&mut self, other: &Self) {
        self.severity = self.severity.max(other.severity);
        self.nans += other.nans;
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = Self { severity: self.severity, nans: self.nans, ..*other };
            return;
        }
        if other.first.at < self.first.at {
            self.first = other.first;
        }
        if other.last.at >= self.last.at {
            self.last = other.last;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        let (ours, theirs) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.mean += apart * theirs / (ours + theirs);
        self.squares += other.squares + apart * apart * ours * theirs / (ours + theirs);
        self.count += other.count;
    }

    /// Appends it.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.severity);
        self.write_numbers(out);
    }

    pub(crate) fn read(input: &mut Input<'_>) -> Result<Self, Bad> {
        let severity = input.u8()?;
        Self::read_numbers(input, severity)
    }

    /// Appends all but the severity.
    pub(crate) fn write_numbers(&self, out: &mut Vec<u8>) {
        for count in [self.count, self.nans] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        // First and last exclude NaN, so they may differ from the chunk's first and last sample.
        for point in [self.first, self.last] {
            out.extend_from_slice(&point.at.to_le_bytes());
            out.extend_from_slice(&point.value.to_le_bytes());
        }
        for value in [self.min, self.max, self.mean, self.squares] {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn read_numbers(input: &mut Input<'_>, severity: u8) -> Result<Self, Bad> {
        let (count, nans) = (input.u64()?, input.u64()?);
        let mut point = || Ok(Point { at: input.i64()?, value: input.f64()? });
        let (first, last) = (point()?, point()?);
        let mut next = || input.f64();
        let (min, max, mean, squares) = (next()?, next()?, next()?, next()?);
        Ok(Self { count, nans, first, last, min, max, mean, squares, severity })
    }

    /// Sample standard deviation (divided by n - 1); 0 for fewer than two values.
    #[must_use]
    pub fn std(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares.max(0.0) / (self.count - 1) as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[(i64, f64)]) -> Summary {
        let mut summary = Summary::default();
        values.iter().for_each(|(at, value)| summary.add(*at, *value, 0));
        summary
    }

    proptest! {
        #[test]
        fn joined_summaries_equal_that_of_the_whole(values in prop::collection::vec(-1e6f64..1e6, 1..100), cut: prop::sample::Index) {
            let values: Vec<(i64, f64)> = (0..).zip(values).collect();
            let (early, late) = values.split_at(cut.index(values.len()));
            let whole = of(&values);
            for (one, other) in [(early, late), (late, early)] {
                let mut joined = of(one);
                joined.join(&of(other));
                prop_assert_eq!((joined.count, joined.min, joined.max), (whole.count, whole.min, whole.max));
                prop_assert_eq!((joined.first, joined.last), (whole.first, whole.last));
                prop_assert!((joined.mean - whole.mean).abs() < 1e-6 && (joined.std() - whole.std()).abs() < 1e-6);
            }
        }
    }

    proptest! {
        #[test]
        fn a_slice_gives_the_same_summary_as_single_samples(values in prop::collection::vec(prop_oneof![4 => -1e3f64..1e3, 1 => Just(f64::NAN)], 0..50)) {
            let stamps: Vec<i64> = (0..values.len() as i64).collect();
            let all = Summary::of(&stamps, || values.iter().copied(), 2);
            let one = of(&stamps.iter().copied().zip(values.iter().copied()).collect::<Vec<_>>());
            prop_assert_eq!((all.count, all.nans, all.min, all.max), (one.count, one.nans, one.min, one.max));
            if all.count > 0 {
                prop_assert_eq!((all.first, all.last), (one.first, one.last));
            }
            prop_assert!((all.mean - one.mean).abs() < 1e-9 && (all.std() - one.std()).abs() < 1e-9);
        }
    }

    #[test]
    fn small_changes_on_a_large_offset_keep_their_deviation() {
        let summary = of(&(0..1000).map(|k| (k, 1e9 + (k % 2) as f64)).collect::<Vec<_>>());
        assert!((summary.std() - 0.500_250).abs() < 1e-6, "{}", summary.std());
    }

    #[test]
    fn nan_is_counted_separately() {
        let mut summary = of(&[(1, f64::NAN), (2, 5.0)]);
        summary.add(3, f64::NAN, 3);
        assert_eq!((summary.count, summary.nans, summary.severity, summary.min, summary.last.at), (1, 2, 3, 5.0, 2));
    }
}
