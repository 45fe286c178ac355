//! A histogram that one thread fills while others read it.

use crate::Words;
use crate::sync::{Ordering, add_own};
use base::{DurNs, Histogram, Outside};

const EARLY: usize = 0;
const OVERFLOW: usize = 1;
const SUM: usize = 2;
const MIN: usize = 3;
const MAX: usize = 4;
const BUCKETS: usize = 8;
/// loom explores orders, not values. With a thousand words per histogram it would not finish.
const BUCKETS_HELD: usize = if cfg!(loom) { 1 } else { Histogram::BUCKETS };

/// [`base::Histogram`] in shared words, with the same buckets, exact minimum and maximum, and a single writer.
///
/// A reader may see a count before the corresponding sum. Counts and percentiles are always consistent with each other.
#[derive(Clone, Copy)]
pub struct SharedHistogram<'a> {
    words: &'a Words,
}

impl<'a> SharedHistogram<'a> {
    /// Size of a histogram, in words.
    pub const WORDS: usize = BUCKETS + BUCKETS_HELD;

    /// The histogram at the start of `words`, or `None` if there are too few. New memory must be [cleared](Self::clear).
    #[must_use]
    pub fn over(words: &'a Words) -> Option<Self> {
        (words.len() >= Self::WORDS).then_some(Self { words })
    }

    pub(crate) fn bare(words: &'a Words) -> Self {
        Self { words }
    }

    /// Resets the histogram. To be called by the only writer.
    pub fn clear(&self) {
        self.words[..Self::WORDS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.words[MIN].store(i64::MAX as u64, Ordering::Relaxed);
        self.words[MAX].store(i64::MIN as u64, Ordering::Relaxed);
    }

    /// Counts one value. To be called by the only writer.
    pub fn record(&self, value: DurNs) {
        let ns = value.0;
        add_own(&self.words[SUM], ns as u64);
        if ns < self.words[MIN].load(Ordering::Relaxed) as i64 {
            self.words[MIN].store(ns as u64, Ordering::Relaxed);
        }
        if ns > self.words[MAX].load(Ordering::Relaxed) as i64 {
            self.words[MAX].store(ns as u64, Ordering::Relaxed);
        }
        if ns < 0 {
            add_own(&self.words[EARLY], 1);
        }
        match Histogram::bucket_of(value).filter(|index| *index < BUCKETS_HELD) {
            // A release store, so that a reader which sees the count also sees the maximum.
            Some(index) => {
                let bucket = &self.words[BUCKETS + index];
                bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
            }
            None => add_own(&self.words[OVERFLOW], 1),
        }
    }

    /// Sum of all values in ns.
    #[must_use]
    pub fn sum_ns(&self) -> i64 {
        self.words[SUM].load(Ordering::Relaxed) as i64
    }

    /// A copy of the present content.
    #[must_use]
    pub fn read(&self) -> Histogram {
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        let counts = self.words[BUCKETS..Self::WORDS].iter().map(|word| word.load(Ordering::Acquire));
        Histogram::from_parts(counts, || Outside {
            early: word(EARLY),
            overflow: word(OVERFLOW),
            sum_ns: word(SUM) as i64,
            min_ns: word(MIN) as i64,
            max_ns: word(MAX) as i64,
        })
    }
}
