//! Reduction of many samples to a summary per interval of equal length.

use crate::archive::{Problems, Span};
use crate::error::StoreError;
use crate::files::Files;
use crate::part::{Part, Ref};
use segment::{Chunk, Sample, Summary};

/// Maximum number of intervals.
const BINS_MAX: usize = 1_000_000;

/// Consecutive intervals of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bins {
    from: i64,
    width: u64,
    count: usize,
}

/// An interval and the summary of its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Start: nanoseconds since 1970, UTC.
    pub at: i64,
    /// Summary of its numbers.
    pub summary: Summary,
}

impl Bins {
    /// Divides the time from `from` to `to` into `count` intervals (clamped to 1 … 1,000,000). The last one may end after `to`.
    #[must_use]
    pub fn count(from: i64, to: i64, count: usize) -> Self {
        let count = count.clamp(1, BINS_MAX);
        let whole = to.saturating_sub(from).max(0) as u64 + 1;
        Self { from, width: whole.div_ceil(count as u64), count }
    }

    /// Intervals of `width` nanoseconds from `from` to `to`, aligned to multiples of `width` since 1970. `None` if there would be
    /// more than a million, or if `width` is not positive.
    #[must_use]
    pub fn every(from: i64, to: i64, width: i64) -> Option<Self> {
        if width <= 0 {
            return None;
        }
        let begin = from.div_euclid(width).checked_mul(width)?;
        let count = (i128::from(to) - i128::from(begin)) / i128::from(width) + 1;
        let count = usize::try_from(count).ok().filter(|count| (1..=BINS_MAX).contains(count))?;
        Some(Self { from: begin, width: width as u64, count })
    }

    /// Index of the interval that contains an instant.
    fn index(&self, at: i64) -> Option<usize> {
        let since = u64::try_from(i128::from(at) - i128::from(self.from)).ok()?;
        usize::try_from(since / self.width).ok().filter(|index| *index < self.count)
    }

    fn begin(&self, index: usize) -> i64 {
        (i128::from(self.from) + i128::from(self.width) * index as i128).min(i128::from(i64::MAX)) as i64
    }
}

/// Intervals being filled.
pub struct Filling {
    bins: Bins,
    filled: Vec<Summary>,
}

impl Bins {
    /// From the first to the last instant that is in an interval.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { from: self.from, to: self.begin(self.count).saturating_sub(1) }
    }

    /// Passes the first or the last sample of each interval to `take`, with the start of the interval. Works for any type,
    /// including those without a mean, such as arrays. `samples` must be in order of time; only one is held in memory.
    ///
    /// # Errors
    /// The first error among the samples.
    pub fn pick(
        &self,
        samples: impl Iterator<Item = Result<Sample, StoreError>>,
        last: bool,
        mut take: impl FnMut(i64, Sample),
    ) -> Result<(), StoreError> {
        let mut held: Option<(usize, Sample)> = None;
        for sample in samples {
            let sample = sample?;
            let Some(index) = self.index(sample.at) else { continue };
            match &mut held {
                Some((before, kept)) if *before == index => {
                    if last {
                        *kept = sample;
                    }
                }
                _ => {
                    if let Some((before, kept)) = held.replace((index, sample)) {
                        take(self.begin(before), kept);
                    }
                }
            }
        }
        if let Some((index, kept)) = held {
            take(self.begin(index), kept);
        }
        Ok(())
    }

    /// Empty summaries for these intervals.
    #[must_use]
    pub fn filling(self) -> Filling {
        Filling { bins: self, filled: vec![Summary::default(); self.count] }
    }
}

impl Filling {
    /// Adds a number.
    pub fn number(&mut self, at: i64, value: f64, severity: u8) {
        if let Some(index) = self.bins.index(at) {
            self.filled[index].add(at, value, severity);
        }
    }

    /// Adds a summary of the samples from stamp `first` to `last` if they are all in one interval. Returns false, and adds
    /// nothing, if not.
    pub fn summary(&mut self, first: i64, last: i64, summary: &Summary) -> bool {
        match self.bins.index(first) {
            Some(index) if self.bins.index(last) == Some(index) => {
                self.filled[index].join(summary);
                true
            }
            _ => false,
        }
    }

    /// Adds the numbers of a chunk.
    pub fn chunk(&mut self, chunk: &Chunk) {
        let (bins, stamps) = (self.bins, chunk.stamps());
        let mut next = stamps.partition_point(|at| *at < bins.from);
        while let Some(index) = stamps.get(next).and_then(|at| bins.index(*at)) {
            let end = bins.begin(index + 1);
            let end = next + stamps[next..].partition_point(|at| *at < end);
            if let Some(summary) = chunk.summary(next..end) {
                self.filled[index].join(&summary);
            }
            // `i64::MAX` is inside the last interval, whose end is clamped to it: step over that stamp, or the loop does not end.
            next = end.max(next + 1);
        }
    }

    /// The intervals that contain numbers.
    #[must_use]
    pub fn done(self) -> Vec<Bin> {
        let bin = |(index, summary)| Bin { at: self.bins.begin(index), summary };
        let filled = self.filled.into_iter().enumerate();
        filled.filter(|(_, summary)| summary.count + summary.nans > 0).map(bin).collect()
    }
}

/// Fills the intervals from chunks.
pub(crate) fn collect<F: Files>(
    files: &F,
    parts: &[Part<F>],
    mut refs: Vec<Ref>,
    bins: Bins,
    problems: &Problems,
) -> Result<Vec<Bin>, StoreError> {
    let end = bins.begin(bins.count);
    refs.retain(|place| place.last >= bins.from && place.first < end);
    refs.sort_by_key(|place| (place.first, place.part, place.offset));
    let mut filling = bins.filling();
    for place in &refs {
        let summary = place.summary.as_deref();
        if !summary.is_some_and(|summary| filling.summary(place.first, place.last, summary)) {
            match parts[place.part].chunk(files, place) {
                Ok(chunk) => filling.chunk(&chunk),
                Err(error) => problems.note(error)?,
            }
        }
    }
    Ok(filling.done())
}
