//! Reading an archive.

use crate::bins::{self, Bin, Bins};
use crate::catalogue::{Catalogue, Entry, Problem};
use crate::error::StoreError;
use crate::files::Files;
use crate::merge::Merge;
use crate::part::{Part, Ref};
use segment::rows::{Gap, Signal};
use segment::{Chunk, Sample};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum attempts to open an archive while files are packed or removed.
const TRIES: usize = 100;

/// A span of time, both ends included: nanoseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First instant.
    pub from: i64,
    /// Last instant.
    pub to: i64,
}

impl Span {
    /// All times.
    pub const ALL: Self = Self { from: i64::MIN, to: i64::MAX };
}

/// Description of a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalInfo {
    /// Its name.
    pub name: String,
    /// Its rows (type, unit, limits), one per change, oldest first.
    pub rows: Vec<Signal>,
    /// Number of samples.
    pub count: u64,
    /// First and last stamp; `None` if there are no samples.
    pub span: Option<Span>,
}

/// Snapshot of an archive at the time it was opened. To see what the logger has appended since, open it again.
pub struct Archive<F: Files> {
    files: F,
    parts: Vec<Part<F>>,
    /// Damage found so far.
    problems: Problems,
}

/// Problems of an archive. Reading adds to them.
#[derive(Default)]
pub(crate) struct Problems(Mutex<Vec<Problem>>);

impl Problems {
    fn all(&self) -> MutexGuard<'_, Vec<Problem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, problem: Problem) {
        let mut all = self.all();
        if !all.contains(&problem) {
            all.push(problem);
        }
    }

    /// Records damage.
    ///
    /// # Errors
    /// Any error other than damage is returned unchanged.
    pub(crate) fn note(&self, error: StoreError) -> Result<(), StoreError> {
        let problem = error.problem().ok_or(error)?;
        self.add(problem);
        Ok(())
    }
}

impl<F: Files> Archive<F> {
    /// Opens an archive for all its signals. Segments that are not packed yet are read completely, once. The positions of their
    /// chunks stay in memory, about 64 bytes each.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn open(files: F) -> Result<Self, StoreError> {
        Self::open_for(files, |_| true)
    }

    /// Opens an archive for some of its signals. Other signals appear to have samples only in packs.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn open_for(files: F, wanted: impl Fn(&str) -> bool) -> Result<Self, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let catalogue = Catalogue::read(&files)?;
            let open = |(index, entry): (usize, &Entry)| Part::open(&files, entry, index, &wanted);
            match catalogue.used.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>() {
                // The logger closed a segment after the manifest was read.
                Ok(parts) if tries < TRIES && parts.iter().any(|part| part.is_closed_since(&files)) => {}
                Ok(parts) => {
                    let problems = Problems::default();
                    let of_parts = parts.iter().flat_map(|part| &part.problems).cloned();
                    catalogue.problems.into_iter().chain(of_parts).for_each(|problem| problems.add(problem));
                    return Ok(Self { files, parts, problems });
                }
                Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound && tries < TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens some of an archive's files to read them completely. Segments are loaded into memory.
    ///
    /// # Errors
    /// If a file cannot be read or a block is damaged.
    pub(crate) fn open_whole(files: F, some: &[Entry]) -> Result<Self, StoreError> {
        let mut parts = Vec::new();
        for (index, entry) in some.iter().enumerate() {
            let mut part = Part::open(&files, entry, index, &|_| true)?;
            if let Some(problem) = part.problems.first() {
                return Err(StoreError::damaged(&part.name, problem.place.0, &problem.why));
            }
            part.load(&files, entry)?;
            parts.push(part);
        }
        Ok(Self { files, parts, problems: Problems::default() })
    }

    /// Files that are damaged, missing or foreign, as far as known, limited to problems that may affect samples in a span.
    /// Opening an archive finds missing and exchanged files, and damage in segments. Damage in packs is found only when they are
    /// read.
    #[must_use]
    pub fn problems(&self, span: Span) -> Vec<Problem> {
        let mut problems = self.problems.all().clone();
        problems.retain(|problem| problem.is_about(span));
        problems
    }

    /// Names of all signals, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.parts.iter().flat_map(|part| part.signals.keys()).collect();
        names.into_iter().cloned().collect()
    }

    /// Names that match a pattern with `*` and `?`, sorted.
    #[must_use]
    pub fn matching(&self, pattern: &str) -> Vec<String> {
        let mut names = self.names();
        names.retain(|name| name == pattern || base::glob(pattern, name));
        names
    }

    /// Describes a signal; `None` if the archive has no signal of that name.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn about(&self, name: &str) -> Result<Option<SignalInfo>, StoreError> {
        let rows = self.rows(name);
        if rows.is_empty() {
            return Ok(None);
        }
        let refs = self.refs(name)?;
        let count = refs.iter().map(|place| u64::from(place.count)).sum();
        let first = refs.iter().map(|place| place.first).min();
        let last = refs.iter().map(|place| place.last).max();
        let span = first.zip(last).map(|(from, to)| Span { from, to });
        Ok(Some(SignalInfo { name: name.to_owned(), rows, count, span }))
    }

    /// Rows of a signal, one per change, oldest first. If several have the same instant, only the last is returned.
    #[must_use]
    pub fn rows(&self, name: &str) -> Vec<Signal> {
        let mut rows: Vec<Signal> =
            self.parts.iter().filter_map(|part| part.signals.get(name)).flatten().cloned().collect();
        rows.sort_by_key(|row| row.since);
        rows.dedup_by(|later, earlier| {
            let is_same = later.since == earlier.since;
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
        rows.dedup_by(|later, earlier| later.kind == earlier.kind && later.about == earlier.about);
        rows
    }

    /// The samples of a signal within a span, in order of time. Chunks are read on demand. Memory is bounded by the number of
    /// overlapping chunks, which is small unless the clock was set back many times.
    ///
    /// # Errors
    /// If an index cannot be read. A chunk that cannot be read later is an error item of the iterator, which then continues after
    /// it.
    pub fn samples(&self, name: &str, span: Span) -> Result<Samples<'_, F>, StoreError> {
        let merge = Merge::new(&self.files, &self.parts, self.refs(name)?, span);
        Ok(Samples { merge, run: Vec::new().into_iter(), problems: &self.problems })
    }

    /// Passes the samples of a signal within a span to `take`, chunk by chunk; the range selects the samples within the span.
    /// Damaged chunks are skipped and added to the [problems](Self::problems).
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn chunks(
        &self,
        name: &str,
        span: Span,
        mut take: impl FnMut(&Chunk, std::ops::Range<usize>),
    ) -> Result<(), StoreError> {
        let mut merge = Merge::new(&self.files, &self.parts, self.refs(name)?, span);
        loop {
            match merge.run() {
                Ok(None) => return Ok(()),
                Ok(Some((chunk, range))) => take(chunk, range),
                Err(error) => self.problems.note(error)?,
            }
        }
    }

    /// The newest sample of a signal at an instant or before it.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn at(&self, name: &str, at: i64) -> Result<Option<Sample>, StoreError> {
        let mut refs = self.refs(name)?;
        refs.retain(|place| place.first <= at);
        refs.sort_by_key(|place| (place.last.min(at), place.part, place.offset));
        let mut best: Option<Sample> = None;
        for place in refs.iter().rev() {
            if best.as_ref().is_some_and(|best| place.last.min(at) <= best.at) {
                break;
            }
            let chunk = match self.parts[place.part].chunk(&self.files, place) {
                Ok(chunk) => chunk,
                Err(error) => {
                    self.problems.note(error)?;
                    continue;
                }
            };
            let index = chunk.stamps().partition_point(|stamp| *stamp <= at);
            let found = index.checked_sub(1).and_then(|index| chunk.get(index));
            if found.as_ref().map(|found| found.at) > best.as_ref().map(|best| best.at) {
                best = found;
            }
        }
        Ok(best)
    }

    /// Gaps of a signal within a span, in order of time: its own gaps, those that apply to all signals, and damage found so far.
    #[must_use]
    pub fn gaps(&self, name: &str, span: Span) -> Vec<Gap> {
        let of = |part: &Part<F>| {
            let id = part.id(name);
            part.gaps.iter().filter(move |gap| gap.id.is_none() || gap.id == id).copied().collect::<Vec<_>>()
        };
        let mut gaps: Vec<Gap> = self.parts.iter().flat_map(of).collect();
        gaps.retain(|gap| (span.from..=span.to).contains(&gap.at));
        gaps.extend(self.problems.all().iter().filter_map(|problem| problem.gap(span)));
        gaps.sort_by_key(|gap| gap.at);
        gaps
    }

    /// Summaries of a signal's numbers in intervals of equal length. If a chunk is within one interval, its stored summary is
    /// used and the chunk is not read. Intervals without numbers are omitted.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn bins(&self, name: &str, bins: Bins) -> Result<Vec<Bin>, StoreError> {
        bins::collect(&self.files, &self.parts, self.refs(name)?, bins, &self.problems)
    }

    fn refs(&self, name: &str) -> Result<Vec<Ref>, StoreError> {
        let (mut refs, mut problems) = (Vec::new(), Vec::new());
        for (index, part) in self.parts.iter().enumerate() {
            part.refs(&self.files, index, name, (&mut refs, &mut problems))?;
        }
        problems.into_iter().for_each(|problem| self.problems.add(problem));
        Ok(refs)
    }
}

/// Samples in order of time.
pub struct Samples<'a, F: Files> {
    merge: Merge<'a, F>,
    problems: &'a Problems,
    run: std::vec::IntoIter<Sample>,
}

impl<F: Files> Iterator for Samples<'_, F> {
    type Item = Result<Sample, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(sample) = self.run.next() {
                return Some(Ok(sample));
            }
            match self.merge.run() {
                Ok(None) => return None,
                Ok(Some((chunk, range))) => {
                    let run: Vec<Sample> = range.filter_map(|index| chunk.get(index)).collect();
                    self.run = run.into_iter();
                }
                Err(error) => {
                    error.problem().into_iter().for_each(|problem| self.problems.add(problem));
                    return Some(Err(error));
                }
            }
        }
    }
}
