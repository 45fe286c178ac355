//! Difference between two readings of a cumulative histogram.

use std::collections::BTreeMap;

/// Upper edge and count of each bucket, by lower edge.
type Buckets = BTreeMap<i64, (i64, u64)>;

/// Computes the growth of a histogram between polls.
#[derive(Default)]
pub(crate) struct Interval {
    before: Option<Buckets>,
}

/// Growth of a histogram in one interval: buckets by lower edge.
pub(crate) struct Figures {
    buckets: Buckets,
    /// The histogram was reset during the interval.
    pub(crate) is_new: bool,
}

impl Interval {
    /// Growth since the last poll; `None` on the first poll, whose interval is unknown.
    pub(crate) fn look(&mut self, buckets: impl Iterator<Item = (i64, i64, u64)>) -> Option<Figures> {
        let now: Buckets = buckets.map(|(from, to, count)| (from, (to, count))).collect();
        let before = self.before.replace(now.clone())?;
        let less = |(from, (_, count)): (&i64, &(i64, u64))| now.get(from).is_none_or(|(_, now)| now < count);
        if before.iter().any(less) {
            return Some(Figures { buckets: now, is_new: true });
        }
        let had = |from: &i64| before.get(from).map_or(0, |(_, count)| *count);
        let more = now.into_iter().map(|(from, (to, count))| (from, (to, count - had(&from))));
        Some(Figures { buckets: more.filter(|(_, (_, count))| *count > 0).collect(), is_new: false })
    }
}

impl Figures {
    /// Total count.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.values().map(|(_, count)| count).sum()
    }

    /// Upper edge of the bucket that contains the quantile `num`/`den`; `None` if the count is 0.
    pub(crate) fn quantile(&self, num: u64, den: u64) -> Option<i64> {
        let wanted = (u128::from(self.count()) * u128::from(num)).div_ceil(u128::from(den)).max(1);
        let mut seen = 0;
        self.buckets.values().find_map(|(to, count)| {
            seen += u128::from(*count);
            (seen >= wanted).then_some(*to)
        })
    }

    /// Lower edge, upper edge and count of each non-empty bucket, in sequence.
    pub(crate) fn flat(&self) -> Vec<i64> {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.buckets.iter().flat_map(|(from, (to, many))| [*from, *to, count(*many)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_counts_since_the_last_poll_and_detects_a_restarted_histogram() {
        let mut interval = Interval::default();
        assert!(interval.look([(0, 9, 5)].into_iter()).is_none(), "its start is unknown");
        let figures = interval.look([(0, 9, 6), (10, 19, 98), (90, 99, 1)].into_iter()).unwrap();
        assert_eq!((figures.count(), figures.is_new), (100, false));
        assert_eq!([1, 50, 99, 100].map(|percent| figures.quantile(percent, 100)), [9, 19, 19, 99].map(Some));
        assert_eq!(figures.flat(), [0, 9, 1, 10, 19, 98, 90, 99, 1]);
        let nothing = interval.look([(0, 9, 6), (10, 19, 98), (90, 99, 1)].into_iter()).unwrap();
        assert_eq!((nothing.count(), nothing.quantile(99, 100)), (0, None));
        let anew = interval.look([(10, 19, 99)].into_iter()).unwrap();
        assert_eq!((anew.is_new, anew.count()), (true, 99));
    }
}
