//! Buckets of the samples that an upload sends: each is written once when it begins and once when it has ended.
//!
//! The extent of a bucket is counted in memory from its beginning. A bucket that an earlier upload has begun is counted in the
//! cluster at its end, so no sample is counted twice after a crash. A sample that is older than its bucket's end begins the
//! bucket again.

use crate::client::{BucketState, Failure, Sink};
use crate::put::{Bucket, Extent};
use crate::schema::Form;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of buckets in memory. Above it they are forgotten: they stay open in the cluster, where readers count them.
const BUCKETS_MAX: usize = 1_000_000;

/// Minimum number of buckets that end with a portion, and the minimum share of those that wait. At the end of an hour all signals
/// wait together.
const ENDS: (usize, usize) = (256, 16);

/// Extent of a bucket; `None` if an earlier upload has begun it.
type Counted = Option<Extent>;

/// A statement or two about a bucket. Can be repeated.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// Its first samples, with this extent, were sent.
    Begin(Bucket, Extent),
    /// It receives no further samples.
    End(Bucket, Counted),
}

impl Job {
    /// Returns the bucket that has begun, with the extent to count from, and others of the signal that earlier uploads have left open.
    pub(crate) async fn run(&self, writer: &impl Sink) -> Result<Vec<(Bucket, Counted)>, Failure> {
        match self {
            Self::Begin(bucket, extent) => {
                let (state, others) = writer.state(bucket).await?;
                if state != BucketState::Open {
                    writer.begin(bucket, state).await?;
                }
                let (name, form, _) = bucket;
                let others = others.into_iter().map(|begin| ((name.clone(), *form, begin), None));
                let counted = (state == BucketState::Missing).then_some(*extent);
                Ok(others.chain([(bucket.clone(), counted)]).collect())
            }
            Self::End(bucket, counted) => {
                let extent = match counted {
                    Some(extent) => Some(*extent),
                    None => writer.extent(bucket).await?,
                };
                if let Some(extent) = extent {
                    writer.end(bucket, extent).await?;
                }
                Ok(Vec::new())
            }
        }
    }
}

/// Buckets that may get more samples, and buckets that wait for their end.
#[derive(Default)]
pub(crate) struct Buckets {
    open: BTreeMap<Bucket, Counted>,
    waiting: BTreeMap<Bucket, Counted>,
}

impl Buckets {
    /// Counts the samples of a portion that was sent. Returns the jobs that begin its new buckets; call [`begun`](Self::begun) for
    /// their results.
    pub(crate) fn count(&mut self, extents: BTreeMap<Bucket, Extent>) -> Vec<Job> {
        if self.open.len() > BUCKETS_MAX {
            self.open.clear();
        }
        let mut new = Vec::new();
        for (bucket, extent) in extents {
            if let Some(counted) = self.waiting.remove(&bucket) {
                self.open.insert(bucket.clone(), counted);
            }
            match self.open.get_mut(&bucket) {
                Some(counted) => counted.iter_mut().for_each(|counted| counted.join(extent)),
                None => new.push(Job::Begin(bucket, extent)),
            }
        }
        new
    }

    /// Adds a bucket that has begun, or one that an earlier upload has left open. All buckets of its signal that end before the
    /// newest one begins wait for their end.
    pub(crate) fn begun(&mut self, bucket: Bucket, counted: Counted) {
        let name = bucket.0.clone();
        let is_left = counted.is_none() && (self.open.contains_key(&bucket) || self.waiting.contains_key(&bucket));
        if !is_left {
            self.open.insert(bucket, counted);
        }
        let own: Vec<Bucket> = Form::ALL.iter().flat_map(|form| self.of(&name, *form)).collect();
        let newest = own.iter().map(|(_, _, begin)| *begin).max().unwrap_or(i64::MIN);
        for bucket in own.into_iter().filter(|(_, form, begin)| form.end(*begin) <= newest) {
            if let Some(counted) = self.open.remove(&bucket) {
                self.waiting.insert(bucket, counted);
            }
        }
    }

    /// The open buckets of a signal.
    fn of(&self, name: &Arc<str>, form: Form) -> Vec<Bucket> {
        let bound = |begin| Bound::Included((name.clone(), form, begin));
        self.open.range((bound(i64::MIN), bound(i64::MAX))).map(|(bucket, _)| bucket.clone()).collect()
    }

    /// Takes some of the buckets that wait for their end.
    pub(crate) fn ended(&mut self) -> Vec<Job> {
        let count = ENDS.0.max(self.waiting.len() / ENDS.1);
        std::iter::from_fn(|| self.waiting.pop_first())
            .take(count)
            .map(|(bucket, known)| Job::End(bucket, known))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn bucket(name: &str, form: Form, begin: i64) -> Bucket {
        (name.into(), form, begin)
    }

    fn extent(count: i64) -> Extent {
        Extent { count, first: 0, last: 1 }
    }

    /// Counts samples, and begins their buckets as a cluster without them does.
    fn count(buckets: &mut Buckets, bucket: &Bucket, samples: i64) -> usize {
        let jobs = buckets.count(BTreeMap::from([(bucket.clone(), extent(samples))]));
        for job in &jobs {
            let Job::Begin(bucket, extent) = job else { panic!("{job:?}") };
            buckets.begun(bucket.clone(), Some(*extent));
        }
        jobs.len()
    }

    fn ended(buckets: &mut Buckets) -> Vec<(i64, Option<i64>)> {
        let end = |job| match job {
            Job::End((_, _, begin), counted) => (begin, counted.map(|extent| extent.count)),
            Job::Begin(..) => panic!("{job:?}"),
        };
        buckets.ended().into_iter().map(end).collect()
    }

    #[test]
    fn a_bucket_begins_once_and_ends_when_its_signal_has_a_newer_one() {
        let mut buckets = Buckets::default();
        let [first, second] = [0, HOUR].map(|begin| bucket("A", Form::Chunks, begin));
        assert_eq!((count(&mut buckets, &first, 3), count(&mut buckets, &first, 4)), (1, 0));
        assert_eq!(count(&mut buckets, &bucket("B", Form::Chunks, HOUR), 1), 1);
        assert_eq!(ended(&mut buckets), [], "another signal has a newer one");
        assert_eq!(count(&mut buckets, &second, 5), 1);
        assert_eq!(ended(&mut buckets), [(0, Some(7))]);
        assert_eq!(ended(&mut buckets), []);
    }

    #[test]
    fn a_late_sample_is_counted_in_a_bucket_that_waits_and_begins_one_that_has_ended() {
        let mut buckets = Buckets::default();
        let [first, second] = [0, HOUR].map(|begin| bucket("A", Form::Chunks, begin));
        for one in [&first, &second] {
            assert_eq!(count(&mut buckets, one, 1), 1);
        }
        assert_eq!(count(&mut buckets, &first, 1), 0, "it waits for its end");
        assert_eq!(count(&mut buckets, &bucket("A", Form::Chunks, 2 * HOUR), 1), 1);
        assert_eq!(ended(&mut buckets), [(0, Some(2)), (HOUR, Some(1))]);
        assert_eq!(count(&mut buckets, &first, 1), 1);
        assert_eq!(ended(&mut buckets), [(0, Some(1))]);
    }

    #[test]
    fn a_day_of_rows_ends_when_chunks_of_the_next_day_begin() {
        let mut buckets = Buckets::default();
        assert_eq!(count(&mut buckets, &bucket("A", Form::Rows, 0), 9), 1);
        assert_eq!(count(&mut buckets, &bucket("A", Form::Chunks, 23 * HOUR), 1), 1);
        assert_eq!(ended(&mut buckets), []);
        assert_eq!(count(&mut buckets, &bucket("A", Form::Chunks, 24 * HOUR), 1), 1);
        assert_eq!(ended(&mut buckets), [(0, Some(9)), (23 * HOUR, Some(1))]);
    }

    #[test]
    fn of_many_buckets_that_wait_a_sixteenth_ends_with_a_portion() {
        let mut buckets = Buckets::default();
        for begin in [0, HOUR] {
            for signal in 0..16_000 {
                count(&mut buckets, &bucket(&format!("S{signal}"), Form::Chunks, begin), 1);
            }
        }
        assert_eq!((buckets.ended().len(), buckets.ended().len()), (1_000, 937));
    }
}
