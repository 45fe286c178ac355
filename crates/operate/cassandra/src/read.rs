//! Reader of archives written by an upload.

use crate::cell::Cell;
use crate::client::{EntryRow, ExtentRow, Failure, extent_in, prepare, session};
use crate::put::Extent;
use crate::samples::{Page, Partitions, Samples};
use crate::schema::{self, Form, cql};
use base::Cluster;
use scylla::client::session::Session;
use scylla::response::PagingState;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use segment::pack::{self, Entry};
use segment::rows::{About, Cause, Gap, Signal};
use segment::{Chunk, Kind, Sample};
use std::cell::OnceCell;
use std::ops::ControlFlow;
use store::{Bin, Bins, Reader, SignalInfo, Span, StoreError, Stream};
use tokio::runtime::Runtime;

/// Columns of a sample, in the order of the query.
type Row = (i64, i64, i8, Option<f64>, Option<i64>, Option<String>, Option<Vec<u8>>, i8, i32, Option<i64>);

/// An archive in a cluster. Each call blocks on the network, at most ten seconds per response. Memory is bounded by a page of 5,000 rows and by
/// overlapping chunks.
pub struct Archive {
    cluster: Cluster,
    runtime: Runtime,
    session: Session,
    names: PreparedStatement,
    signal: PreparedStatement,
    buckets: PreparedStatement,
    samples: PreparedStatement,
    last: PreparedStatement,
    extent: PreparedStatement,
    entries: PreparedStatement,
    chunk: PreparedStatement,
    gaps: PreparedStatement,
    known: OnceCell<Vec<String>>,
}

/// A partition of samples. All of them are between `first` and `last`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) form: Form,
    pub(crate) begin: i64,
    /// Number of samples; `None` if it may get more.
    pub(crate) count: Option<i64>,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Bucket {
    /// A bucket that ends with its time, unless its extent is known.
    fn new(form: Form, begin: i64, extent: Option<Extent>) -> Self {
        let ns = |ms: i64| ms.saturating_mul(1_000_000);
        let (first, last) =
            extent.map_or((ns(begin), ns(form.end(begin)).saturating_sub(1)), |extent| (extent.first, extent.last));
        Self { form, begin, count: extent.map(|extent| extent.count), first, last }
    }
}

/// Key and index entry of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct ChunkRow {
    pub(crate) hour: i64,
    pub(crate) at: i64,
    pub(crate) number: i64,
    pub(crate) entry: Entry,
}

impl Archive {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// The cluster is unreachable, or has no such archive.
    pub fn open(cluster: Cluster) -> Result<Self, StoreError> {
        let wrong =
            |error: Failure| StoreError::Database { place: cluster.to_string(), doing: "open it", source: error };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| wrong(error.into()))?;
        let connected = runtime.block_on(async {
            let session = session(&cluster).await?;
            let mut prepared = Vec::new();
            for text in [
                cql::GET_NAMES,
                cql::GET_SIGNAL,
                cql::GET_BUCKETS,
                cql::GET_SAMPLES,
                cql::GET_LAST,
                cql::GET_EXTENT,
                cql::GET_ENTRIES,
                cql::GET_CHUNK,
                cql::GET_GAPS,
            ] {
                prepared.push(prepare(&session, &cluster, text).await?);
            }
            let prepared: [PreparedStatement; 9] = prepared.try_into().map_err(|_| "a statement is missing")?;
            Ok::<_, Failure>((session, prepared))
        });
        let (session, [names, signal, buckets, samples, last, extent, entries, chunk, gaps]) =
            connected.map_err(wrong)?;
        let known = OnceCell::new();
        Ok(Self {
            cluster,
            runtime,
            session,
            names,
            signal,
            buckets,
            samples,
            last,
            extent,
            entries,
            chunk,
            gaps,
            known,
        })
    }

    fn wrong(&self, doing: &'static str) -> impl FnOnce(Failure) -> StoreError {
        let place = self.cluster.to_string();
        move |source| StoreError::Database { place, doing, source }
    }

    /// One page of a query's rows, and the state for the next page.
    fn query_page<R>(
        &self,
        statement: &PreparedStatement,
        values: &impl scylla::serialize::row::SerializeRow,
        state: PagingState,
    ) -> Result<(Vec<R>, Option<PagingState>), Failure>
    where
        R: for<'r> scylla::deserialize::row::DeserializeRow<'r, 'r>,
    {
        let asked = self.session.execute_single_page(statement, values, state);
        let (found, next) = self.runtime.block_on(asked)?;
        let rows = found.into_rows_result()?;
        let rows = rows.rows::<R>()?.collect::<Result<Vec<R>, _>>()?;
        Ok((
            rows,
            match next.into_paging_control_flow() {
                ControlFlow::Continue(state) => Some(state),
                ControlFlow::Break(()) => None,
            },
        ))
    }

    /// All rows of a query.
    fn all<R>(
        &self,
        statement: &PreparedStatement,
        values: &impl scylla::serialize::row::SerializeRow,
    ) -> Result<Vec<R>, Failure>
    where
        R: for<'r> scylla::deserialize::row::DeserializeRow<'r, 'r>,
    {
        let (mut all, mut state) = (Vec::new(), Some(PagingState::start()));
        while let Some(from) = state {
            let (rows, next) = self.query_page(statement, values, from)?;
            all.extend(rows);
            state = next;
        }
        Ok(all)
    }

    /// Partitions of a signal, ordered by their first sample.
    fn buckets(&self, name: &str) -> Result<Vec<Bucket>, StoreError> {
        type Row = (i8, CqlTimestamp, Option<i64>, Option<i64>, Option<i64>);
        let rows: Vec<Row> = self.all(&self.buckets, &(name,)).map_err(self.wrong("read which samples there are"))?;
        let bucket = |(form, begin, count, first, last): Row| {
            let extent = count.and_then(|count| extent_in((count, first, last)));
            Some(Bucket::new(Form::from_code(form)?, begin.0, extent))
        };
        let mut buckets: Vec<Bucket> = rows.into_iter().filter_map(bucket).collect();
        buckets.sort_by_key(|bucket| (bucket.first, bucket.begin, bucket.form));
        Ok(buckets)
    }

    /// The bucket with its extent, which is counted if it is not written yet. `None` if all samples have expired.
    fn counted(&self, name: &str, bucket: Bucket) -> Result<Option<Bucket>, StoreError> {
        if bucket.count.is_some() {
            return Ok(Some(bucket));
        }
        let extent = match bucket.form {
            Form::Rows => {
                let values = (name, CqlTimestamp(bucket.begin));
                let rows: Vec<ExtentRow> =
                    self.all(&self.extent, &values).map_err(self.wrong("count the samples of a day"))?;
                rows.into_iter().next().and_then(extent_in)
            }
            Form::Chunks => {
                let rows = self.chunk_rows(name, bucket.begin, i64::MAX)?;
                Extent::of_all(rows.into_iter().flatten().map(|row| Extent::of_entry(&row.entry)))
            }
        };
        Ok(extent.map(|extent| Bucket::new(bucket.form, bucket.begin, Some(extent))))
    }

    fn damaged(&self, name: &str, at: i64, why: String) -> StoreError {
        let source = format!("{name}, sample of {at} ns since 1970: {why}").into();
        self.wrong("interpret the row, which another program wrote")(source)
    }

    fn sample(&self, name: &str, row: Row) -> Result<(i64, Sample), StoreError> {
        let (at, number, kind, value, whole, words, bytes, severity, status, pulse) = row;
        let cell = Cell { kind, value, whole, words, bytes };
        let datum = cell.datum().map_err(|why| self.damaged(name, at, why.to_string()))?;
        let (severity, status) = (severity as u8, status as u16);
        Ok((number, Sample { at, datum, severity, status, pulse: pulse.map(|pulse| pulse as u64) }))
    }
}

impl Partitions for Archive {
    fn page(&self, name: &str, bucket: i64, span: Span, state: PagingState) -> Result<Page, StoreError> {
        let values = (name, CqlTimestamp(bucket), span.from, span.to);
        let (rows, next) = self.query_page::<Row>(&self.samples, &values, state).map_err(self.wrong("read samples"))?;
        Ok((rows.into_iter().map(|row| self.sample(name, row)).collect(), next))
    }

    fn chunk_rows(&self, name: &str, hour: i64, until: i64) -> Result<Vec<Result<ChunkRow, StoreError>>, StoreError> {
        let values = (name, CqlTimestamp(hour), until);
        let rows: Vec<EntryRow> =
            self.all(&self.entries, &values).map_err(self.wrong("read which chunks there are"))?;
        let row = |(at, number, entry): EntryRow| {
            let damaged = |why: &dyn ToString| self.damaged(name, at, why.to_string());
            let entries = pack::entries(&entry).map_err(|why| damaged(&why))?;
            let entry = *entries.first().ok_or_else(|| damaged(&"no entry"))?;
            Ok(ChunkRow { hour, at, number, entry })
        };
        Ok(rows.into_iter().map(row).collect())
    }

    fn read_chunk(&self, name: &str, row: &ChunkRow) -> Result<Result<Chunk, StoreError>, StoreError> {
        let values = (name, CqlTimestamp(row.hour), row.at, row.number);
        let rows: Vec<(Vec<u8>,)> = self.all(&self.chunk, &values).map_err(self.wrong("read a chunk"))?;
        let Some((data,)) = rows.into_iter().next() else {
            return Ok(Err(self.damaged(name, row.at, "it is gone".into())));
        };
        Ok(Chunk::decode(&data, row.at).map_err(|why| self.damaged(name, row.at, why.to_string())))
    }
}

impl Reader for Archive {
    fn names(&self) -> Result<Vec<String>, StoreError> {
        if let Some(known) = self.known.get() {
            return Ok(known.clone());
        }
        let mut names = Vec::new();
        for shard in 0..schema::SHARDS {
            let rows: Vec<(String,)> = self.all(&self.names, &(shard,)).map_err(self.wrong("read names"))?;
            names.extend(rows.into_iter().map(|(name,)| name));
        }
        names.sort_unstable();
        names.dedup();
        Ok(self.known.get_or_init(|| names).clone())
    }

    fn rows(&self, name: &str) -> Result<Vec<Signal>, StoreError> {
        type Row = (i64, i8, String, Option<i32>, Option<Vec<String>>);
        let values = (schema::shard(name), name);
        let rows: Vec<Row> = self.all(&self.signal, &values).map_err(self.wrong("read what a signal is"))?;
        let signal = |(since, kind, units, precision, labels): Row| {
            let kind = Kind::from_code(kind as u8).map_err(|why| self.damaged(name, since, why.to_string()))?;
            let precision = precision.and_then(|digits| u16::try_from(digits).ok());
            let about = About { units, precision, labels: labels.unwrap_or_default() };
            Ok(Signal { id: 0, since, kind, name: name.to_owned(), about })
        };
        let mut rows = rows.into_iter().map(signal).collect::<Result<Vec<_>, StoreError>>()?;
        rows.dedup_by(|later, earlier| later.kind == earlier.kind && later.about == earlier.about);
        Ok(rows)
    }

    fn about(&self, name: &str) -> Result<Option<SignalInfo>, StoreError> {
        let rows = Reader::rows(self, name)?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut buckets = Vec::new();
        for bucket in self.buckets(name)? {
            buckets.extend(self.counted(name, bucket)?);
        }
        let counts = buckets.iter().map(|bucket| bucket.count.unwrap_or(0).max(0) as u64);
        let count = counts.fold(0, u64::saturating_add);
        let first = buckets.iter().map(|bucket| bucket.first).min();
        let last = buckets.iter().map(|bucket| bucket.last).max();
        let span = first.zip(last).map(|(from, to)| Span { from, to });
        Ok(Some(SignalInfo { name: name.to_owned(), rows, count, span }))
    }

    fn samples<'a>(&'a self, name: &str, span: Span) -> Result<Stream<'a>, StoreError> {
        let mut buckets = self.buckets(name)?;
        buckets.retain(|bucket| bucket.last >= span.from && bucket.first <= span.to);
        Ok(Box::new(Samples::new(self, name, span, buckets)))
    }

    fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, StoreError> {
        let mut buckets = self.buckets(name)?;
        buckets.retain(|bucket| bucket.first <= at);
        buckets.sort_by_key(|bucket| bucket.last.min(at));
        let mut best: Option<(i64, Sample)> = None;
        let is_older = |best: &Option<(i64, Sample)>, last: i64| best.as_ref().is_some_and(|(_, best)| last < best.at);
        let better = |best: &mut Option<(i64, Sample)>, number: i64, sample: Sample| {
            if best.as_ref().is_none_or(|(known, best)| (best.at, *known) < (sample.at, number)) {
                *best = Some((number, sample));
            }
        };
        for bucket in buckets.iter().rev() {
            if is_older(&best, bucket.last.min(at)) {
                break;
            }
            match bucket.form {
                Form::Rows => {
                    let values = (name, CqlTimestamp(bucket.begin), i64::MIN, at);
                    let rows: Vec<Row> = self.all(&self.last, &values).map_err(self.wrong("read a sample"))?;
                    for row in rows {
                        let (number, sample) = self.sample(name, row)?;
                        better(&mut best, number, sample);
                    }
                }
                Form::Chunks => {
                    let rows = self.chunk_rows(name, bucket.begin, at)?;
                    let mut chunks = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
                    chunks.sort_by_key(|row| (row.entry.last.min(at), row.number));
                    for row in chunks.iter().rev() {
                        if is_older(&best, row.entry.last.min(at)) {
                            break;
                        }
                        let chunk = self.read_chunk(name, row)??;
                        let index = chunk.stamps().partition_point(|stamp| *stamp <= at);
                        if let Some(sample) = index.checked_sub(1).and_then(|index| chunk.get(index)) {
                            better(&mut best, row.number, sample);
                        }
                    }
                }
            }
        }
        Ok(best.map(|(_, sample)| sample))
    }

    fn gaps(&self, name: &str, span: Span) -> Result<Vec<Gap>, StoreError> {
        let mut gaps = Vec::new();
        let own = (!name.is_empty()).then_some((name, Some(0)));
        for (owner, id) in own.into_iter().chain([(schema::ALL, None)]) {
            let rows: Vec<(i64, i64, i8, i64)> =
                self.all(&self.gaps, &(owner, span.from, span.to)).map_err(self.wrong("read gaps"))?;
            gaps.extend(rows.into_iter().map(|(at, number, cause, lost)| {
                (number, Gap { id, at, cause: Cause::from_code(cause as u8), lost: lost.max(0) as u64 })
            }));
        }
        gaps.sort_by_key(|(number, gap)| (gap.at, *number));
        Ok(gaps.into_iter().map(|(_, gap)| gap).collect())
    }

    fn bins(&self, name: &str, bins: Bins) -> Result<Vec<Bin>, StoreError> {
        let (span, mut filling) = (bins.span(), bins.filling());
        let mut buckets = self.buckets(name)?;
        buckets.retain(|bucket| bucket.last >= span.from && bucket.first <= span.to);
        for bucket in buckets {
            match bucket.form {
                Form::Rows => {
                    let values = (name, CqlTimestamp(bucket.begin), span.from, span.to);
                    let mut state = Some(PagingState::start());
                    while let Some(from) = state {
                        let (rows, next) =
                            self.query_page::<Row>(&self.samples, &values, from).map_err(self.wrong("read samples"))?;
                        for row in rows {
                            let (_, sample) = self.sample(name, row)?;
                            if let Some(value) = sample.datum.to_f64() {
                                filling.number(sample.at, value, sample.severity);
                            }
                        }
                        state = next;
                    }
                }
                Form::Chunks => {
                    for row in self.chunk_rows(name, bucket.begin, span.to)? {
                        let row = row?;
                        let entry = row.entry;
                        let summary = entry.summary.as_ref();
                        let is_added = summary.is_some_and(|sum| filling.summary(entry.first, entry.last, sum));
                        if !is_added && entry.last >= span.from {
                            filling.chunk(&self.read_chunk(name, &row)??);
                        }
                    }
                }
            }
        }
        Ok(filling.done())
    }
}
