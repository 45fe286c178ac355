//! The samples of a signal, merged from its partitions in order of time.

use crate::read::{Bucket, ChunkRow};
use crate::schema::Form;
use scylla::response::PagingState;
use segment::{Chunk, Sample};
use std::collections::VecDeque;
use store::{Span, StoreError};

/// A sample with its number, which breaks ties between equal times.
pub(crate) type Numbered = (i64, Sample);

/// Rows of a page, each a sample or the reason why it is unreadable, and the state for the next page.
pub(crate) type Page = (Vec<Result<Numbered, StoreError>>, Option<PagingState>);

/// A source of partitions. An outer error means that the cluster has not answered, an inner one that its answer is
/// damaged.
pub(crate) trait Partitions {
    /// One page of a partition of rows.
    fn page(&self, name: &str, bucket: i64, span: Span, state: PagingState) -> Result<Page, StoreError>;

    /// Chunks of a partition that begin at or before `until`.
    fn chunk_rows(&self, name: &str, hour: i64, until: i64) -> Result<Vec<Result<ChunkRow, StoreError>>, StoreError>;

    /// One chunk.
    fn read_chunk(&self, name: &str, row: &ChunkRow) -> Result<Result<Chunk, StoreError>, StoreError>;
}

/// A source of samples, opened when it is reached.
#[derive(Clone, Copy)]
enum Source {
    Bucket(Bucket),
    Chunk(ChunkRow),
}

impl Source {
    const fn first(&self) -> i64 {
        match self {
            Self::Bucket(bucket) => bucket.first,
            Self::Chunk(row) => row.at,
        }
    }
}

/// Pending samples of one source, in order.
struct Open {
    ready: VecDeque<Numbered>,
    /// Partition, and state of its next page.
    more: Option<(i64, PagingState)>,
}

/// Samples in order of time, merged from sources that may overlap.
///
/// A damaged row or chunk yields one error, and the samples behind it follow. If the cluster does not answer, the samples that it
/// has sent before follow the error, and then the iteration ends.
pub(crate) struct Samples<'a, P> {
    partitions: &'a P,
    name: String,
    span: Span,
    /// Unopened sources, ordered by their first sample.
    waits: VecDeque<Source>,
    open: Vec<Open>,
    /// Errors that are due before the next sample.
    errors: VecDeque<StoreError>,
}

impl<'a, P: Partitions> Samples<'a, P> {
    /// Merges the samples of partitions that are ordered by their first sample.
    pub(crate) fn new(partitions: &'a P, name: &str, span: Span, buckets: Vec<Bucket>) -> Self {
        let waits = buckets.into_iter().map(Source::Bucket).collect();
        Self { partitions, name: name.to_owned(), span, waits, open: Vec::new(), errors: VecDeque::new() }
    }

    fn open(&mut self, source: Source) -> Result<(), StoreError> {
        match source {
            Source::Bucket(Bucket { form: Form::Rows, begin, .. }) => {
                self.fill(Open { ready: VecDeque::new(), more: Some((begin, PagingState::start())) });
            }
            Source::Bucket(Bucket { form: Form::Chunks, begin, .. }) => {
                for row in self.partitions.chunk_rows(&self.name, begin, self.span.to)? {
                    match row {
                        Ok(row) if row.entry.last >= self.span.from => self.waits.push_back(Source::Chunk(row)),
                        Ok(_) => {}
                        Err(error) => self.errors.push_back(error),
                    }
                }
                self.waits.make_contiguous().sort_by_key(Source::first);
            }
            Source::Chunk(row) => {
                let chunk = match self.partitions.read_chunk(&self.name, &row)? {
                    Ok(chunk) => chunk,
                    Err(damage) => {
                        self.errors.push_back(damage);
                        return Ok(());
                    }
                };
                let span = self.span.from..=self.span.to;
                let ready = (row.number..).zip(chunk.iter()).filter(|(_, sample)| span.contains(&sample.at)).collect();
                self.open.push(Open { ready, more: None });
            }
        }
        Ok(())
    }

    /// Reads further pages until samples are pending or the source ends.
    fn fill(&mut self, mut open: Open) {
        while open.ready.is_empty()
            && let Some((begin, state)) = open.more.take()
        {
            match self.partitions.page(&self.name, begin, self.span, state) {
                Ok((rows, next)) => {
                    open.more = next.map(|state| (begin, state));
                    for row in rows {
                        match row {
                            Ok(sample) => open.ready.push_back(sample),
                            Err(error) => self.errors.push_back(error),
                        }
                    }
                }
                Err(error) => self.unanswered(error),
            }
        }
        if !open.ready.is_empty() {
            self.open.push(open);
        }
    }

    /// Ends the iteration after the samples that were read.
    fn unanswered(&mut self, error: StoreError) {
        self.errors.push_back(error);
        self.waits.clear();
        self.open.iter_mut().for_each(|open| open.more = None);
    }

    /// Time, number and index of the source with the earliest sample.
    fn first(&self) -> Option<(i64, i64, usize)> {
        let key =
            |(index, open): (usize, &Open)| open.ready.front().map(|(number, sample)| (sample.at, *number, index));
        self.open.iter().enumerate().filter_map(key).min()
    }
}

impl<P: Partitions> Iterator for Samples<'_, P> {
    type Item = Result<Sample, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.errors.pop_front() {
                return Some(Err(error));
            }
            let first = self.first();
            if let Some(source) = self.waits.front().copied()
                && first.is_none_or(|(at, ..)| source.first() <= at)
            {
                self.waits.pop_front();
                if let Err(error) = self.open(source) {
                    self.unanswered(error);
                }
                continue;
            }
            let (_, _, index) = first?;
            let (_, sample) = self.open[index].ready.pop_front()?;
            if self.open[index].ready.is_empty() {
                let open = self.open.swap_remove(index);
                self.fill(open);
            }
            return Some(Ok(sample));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two partitions of rows. The first one has two pages; the second page cannot be read.
    struct Broken;

    const SECOND_PAGE: &[u8] = b"2";

    fn error(source: &str) -> StoreError {
        StoreError::Database { place: "db/plant".into(), doing: "read samples", source: source.into() }
    }

    fn rows(stamps: &[i64]) -> Vec<Result<Numbered, StoreError>> {
        stamps.iter().map(|at| Ok((*at, Sample::new(*at, *at as f64)))).collect()
    }

    impl Partitions for Broken {
        fn page(&self, _: &str, bucket: i64, _: Span, state: PagingState) -> Result<Page, StoreError> {
            let is_first = state.as_bytes_slice().is_none();
            match (bucket, is_first) {
                (0, true) => {
                    let next = PagingState::new_from_raw_bytes(SECOND_PAGE);
                    let mut rows = rows(&[1, 5]);
                    rows.insert(1, Err(error("a row")));
                    Ok((rows, Some(next)))
                }
                (0, false) => Err(error("a page")),
                (10, _) => Ok((rows(&[2, 6, 7]), None)),
                _ => panic!("partition {bucket} is read from a cluster that no longer answers"),
            }
        }

        fn chunk_rows(&self, _: &str, _: i64, _: i64) -> Result<Vec<Result<ChunkRow, StoreError>>, StoreError> {
            Ok(vec![Err(error("an entry"))])
        }

        fn read_chunk(&self, _: &str, _: &ChunkRow) -> Result<Result<Chunk, StoreError>, StoreError> {
            Ok(Err(error("a chunk")))
        }
    }

    #[test]
    fn a_damaged_row_or_a_page_without_an_answer_is_one_error_and_costs_no_sample_that_was_read() {
        let bucket = |begin, first, last| Bucket { form: Form::Rows, begin, count: Some(3), first, last };
        let chunks = Bucket { form: Form::Chunks, ..bucket(0, 3, 4) };
        let buckets = vec![bucket(0, 1, 9), bucket(10, 2, 7), chunks, bucket(20, 8, 9)];
        let samples = Samples::new(&Broken, "A", Span::ALL, buckets);
        let found: Vec<_> =
            samples.map(|found| found.map(|sample| sample.at).map_err(|error| error.to_string())).collect();
        let failed = |what: &str| Err(error(what).to_string());
        let expected = [failed("a row"), Ok(1), Ok(2), failed("an entry"), Ok(5), failed("a page"), Ok(6), Ok(7)];
        assert_eq!(found, expected);
    }
}
