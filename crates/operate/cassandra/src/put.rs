//! Statements for a window of the log.

use crate::schema::Form;
use segment::pack::Entry;
use segment::rows::{Cause, Gap, Signal};
use segment::{Chunk, Datum, Kind, Sample};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::{Logged, Window};

/// Maximum rows of a batch. All rows are in one partition, in which a batch costs as little as a single row.
const BATCH_ROWS: usize = 100;

/// Size of the values, in bytes, at which a batch is full.
const BATCH_BYTES: usize = 64 << 10;

/// Maximum size of a value, in bytes. Nodes refuse mutations larger than half a commit log segment, 16 MiB.
const VALUE_MAX: usize = 8 << 20;

/// Rate above which a signal is fast, in samples per second. Fast signals are stored as chunks, at 1/30 of the cost of rows.
const FAST_HZ: i128 = 20;

/// Up to this number, samples are stored as rows at any rate.
const FEW: usize = 32;

/// Number of signals in a window from which slow signals are stored as chunks, too, from [`CROWD_FEW`] samples on. A node then stores one row
/// for the samples of a portion instead of one for each.
const CROWD: usize = 5_000;
const CROWD_FEW: usize = 4;

/// One statement, or a batch within one partition. Can be repeated.
#[derive(Clone, Debug)]
pub(crate) enum Put {
    Signal(Signal),
    Gap { name: Option<Arc<str>>, number: i64, gap: Gap },
    Rows { name: Arc<str>, bucket: i64, rows: Vec<(i64, Sample)> },
    Chunk { name: Arc<str>, bucket: i64, number: i64, at: i64, entry: Vec<u8>, data: Vec<u8> },
}

/// Pending rows of one signal and bucket.
#[derive(Default)]
struct Batch {
    bucket: i64,
    bytes: usize,
    rows: Vec<(i64, Sample)>,
}

/// Number and time span of the samples of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) count: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Extent {
    /// Extent of several sets of samples together; `None` without one.
    pub(crate) fn of_all(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|mut sum, one| {
            sum.join(one);
            sum
        })
    }

    /// Extent of a chunk.
    pub(crate) fn of_entry(entry: &Entry) -> Self {
        Self { count: entry.count.into(), first: entry.first, last: entry.last }
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}

/// Key of a partition: signal, form, start of the bucket.
pub(crate) type Bucket = (Arc<str>, Form, i64);

/// Iterator over the statements for a window, signal by signal, deterministic. Memory: the window, and the statements for one signal.
pub(crate) struct Puts<'a> {
    groups: std::vec::IntoIter<Vec<&'a Logged>>,
    /// The window has [`CROWD`] signals or more.
    is_crowd: bool,
    ready: VecDeque<Put>,
    /// Extents of the generated statements, by bucket.
    pub(crate) extents: BTreeMap<Bucket, Extent>,
    /// Samples with a value that is too long.
    pub(crate) refused: u64,
    /// Unreadable chunks.
    pub(crate) damaged: u64,
}

impl<'a> Puts<'a> {
    pub(crate) fn new(window: &'a Window) -> Self {
        let mut groups: BTreeMap<&str, Vec<&Logged>> = BTreeMap::new();
        window.chunks.iter().for_each(|logged| groups.entry(&logged.name).or_default().push(logged));
        let signals = window.signals.iter().cloned().map(Put::Signal);
        let gaps = window.gaps.iter().cloned().map(|(number, name, gap)| Put::Gap { name, number, gap });
        // Segments removed before they were sent are reported as a gap of all signals.
        let chunks = window.chunks.iter().map(|logged| logged.span.0).min();
        let other = || {
            let gaps = window.gaps.iter().map(|(_, _, gap)| gap.at);
            gaps.chain(window.signals.iter().map(|signal| signal.since)).min()
        };
        let missed = chunks.or_else(other).filter(|_| window.missed > 0).map(|at| {
            let gap = Gap { id: None, at, cause: Cause::DiskFull, lost: 0 };
            Put::Gap { name: None, number: window.number, gap }
        });
        Self {
            is_crowd: groups.len() >= CROWD,
            groups: groups.into_values().collect::<Vec<_>>().into_iter(),
            ready: signals.chain(missed).chain(gaps).collect(),
            extents: BTreeMap::new(),
            refused: 0,
            damaged: 0,
        }
    }

    fn group(&mut self, group: &[&Logged]) {
        let form = form(group, self.is_crowd);
        // Pending chunk: the number of its first sample, and samples of one bucket.
        let mut open: Option<(i64, Chunk)> = None;
        let mut batch = Batch::default();
        for logged in group {
            let Ok(chunk) = logged.chunk() else {
                self.damaged += 1;
                continue;
            };
            if form == Form::Rows {
                self.rows(&mut batch, logged, &chunk);
                continue;
            }
            for (number, sample) in (logged.number..).zip(chunk.iter()) {
                if self.is_too_long(&logged.name, number, &sample) {
                    continue;
                }
                if let Some((_, open)) = &mut open
                    && open.stamps().first().is_some_and(|first| form.bucket(*first) == form.bucket(sample.at))
                    && open.push(&sample).is_ok()
                {
                    continue;
                }
                if let Some((number, full)) = open.take() {
                    self.chunk(&logged.name, number, &full);
                }
                let mut next = Chunk::new(sample.datum.kind());
                if next.push(&sample).is_ok() {
                    open = Some((number, next));
                } else {
                    self.damaged += 1;
                }
            }
        }
        let Some(logged) = group.first() else { return };
        if let Some((number, full)) = open {
            self.chunk(&logged.name, number, &full);
        }
        self.batch(&logged.name, batch);
    }

    /// Adds a chunk's samples to the batch, and emits each batch that is full. With many signals, chunks in the log have only a few samples, so
    /// a batch spans several of them.
    fn rows(&mut self, batch: &mut Batch, logged: &Logged, chunk: &Chunk) {
        for (number, sample) in (logged.number..).zip(chunk.iter()) {
            if self.is_too_long(&logged.name, number, &sample) {
                continue;
            }
            let bucket = Form::Rows.bucket(sample.at);
            if bucket != batch.bucket || batch.rows.len() >= BATCH_ROWS || batch.bytes >= BATCH_BYTES {
                self.batch(&logged.name, std::mem::take(batch));
            }
            batch.bucket = bucket;
            batch.bytes += len(&sample.datum);
            batch.rows.push((number, sample));
        }
    }

    fn batch(&mut self, name: &Arc<str>, batch: Batch) {
        let stamps = || batch.rows.iter().map(|(_, sample)| sample.at);
        let (Some(first), Some(last)) = (stamps().min(), stamps().max()) else { return };
        self.count(name, Form::Rows, batch.bucket, Extent { count: batch.rows.len() as i64, first, last });
        self.ready.push_back(Put::Rows { name: name.clone(), bucket: batch.bucket, rows: batch.rows });
    }

    fn chunk(&mut self, name: &Arc<str>, number: i64, chunk: &Chunk) {
        let (Some(&first), Some(&last)) = (chunk.stamps().first(), chunk.stamps().last()) else { return };
        let (mut data, mut entry) = (Vec::new(), Vec::new());
        chunk.encode(first, &mut data);
        let (count, len) = (chunk.len() as u32, u32::try_from(data.len()).unwrap_or(u32::MAX));
        Entry { offset: 0, len, count, first, last, summary: chunk.summary(0..chunk.len()) }.write(&mut entry);
        let bucket = Form::Chunks.bucket(first);
        self.count(name, Form::Chunks, bucket, Extent { count: count.into(), first, last });
        self.ready.push_back(Put::Chunk { name: name.clone(), bucket, number, at: first, entry, data });
    }

    fn count(&mut self, name: &Arc<str>, form: Form, bucket: i64, extent: Extent) {
        self.extents.entry((name.clone(), form, bucket)).and_modify(|known| known.join(extent)).or_insert(extent);
    }

    /// Returns true if the value is too long for a node. A gap is then stored instead.
    fn is_too_long(&mut self, name: &Arc<str>, number: i64, sample: &Sample) -> bool {
        if len(&sample.datum) <= VALUE_MAX {
            return false;
        }
        self.refused += 1;
        let gap = Gap { id: None, at: sample.at, cause: Cause::Refused, lost: 1 };
        self.ready.push_back(Put::Gap { name: Some(name.clone()), number, gap });
        true
    }
}

impl Iterator for Puts<'_> {
    type Item = Put;

    fn next(&mut self) -> Option<Put> {
        loop {
            if let Some(put) = self.ready.pop_front() {
                return Some(put);
            }
            let group = self.groups.next()?;
            self.group(&group);
        }
    }
}

/// Form in which a signal's samples of a window are stored.
fn form(group: &[&Logged], is_crowd: bool) -> Form {
    let count: usize = group.iter().map(|logged| logged.span.2).sum();
    let first = group.iter().map(|logged| logged.span.0).min().unwrap_or(0);
    let last = group.iter().map(|logged| logged.span.1).max().unwrap_or(0);
    let took = i128::from(last) - i128::from(first);
    let is_fast = count > FEW && count as i128 * 1_000_000_000 > FAST_HZ * took;
    if is_fast || is_crowd && count >= CROWD_FEW { Form::Chunks } else { Form::Rows }
}

/// Approximate size of a value, in bytes.
fn len(datum: &Datum) -> usize {
    match datum {
        Datum::Text(bytes) | Datum::Blob(bytes) => bytes.len(),
        Datum::Array(array) => array.len() * element(datum.kind()),
        Datum::Bool(_) | Datum::Number(_) => 8,
    }
}

/// Maximum size of an array element, in bytes.
const fn element(kind: Kind) -> usize {
    match kind {
        Kind::Array(base::FieldType::String) => 41,
        _ => 8,
    }
}
