//! Finding what was logged.

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

/// How often opening begins anew because a file was packed or removed meanwhile.
const TRIES: usize = 100;

/// A span of time, both ends included: nanoseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub from: i64,
    /// Its end.
    pub to: i64,
}

impl Span {
    /// All times.
    pub const ALL: Self = Self { from: i64::MIN, to: i64::MAX };
}

/// What is known of a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// What it has been, oldest first.
    pub rows: Vec<Signal>,
    /// How many samples.
    pub count: u64,
    /// Its first and its last stamp, where there is a sample.
    pub span: Option<Span>,
}

/// An archive as it was when it was opened; what a logger appends since is seen by opening it again.
pub struct Archive<F: Files> {
    files: F,
    parts: Vec<Part<F>>,
    /// What is damaged, as far as it was read.
    problems: Problems,
}

/// Problems, to which reading adds.
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

    /// Notes damage.
    ///
    /// # Errors
    /// What is no damage.
    pub(crate) fn note(&self, error: StoreError) -> Result<(), StoreError> {
        let problem = error.problem().ok_or(error)?;
        self.add(problem);
        Ok(())
    }
}

impl<F: Files> Archive<F> {
    /// Opens an archive for all its signals. A segment that is not packed yet is read once, all of it, and where its chunks
    /// are is remembered: about 64 bytes each.
    ///
    /// # Errors
    /// Where files cannot be read.
    pub fn open(files: F) -> Result<Self, StoreError> {
        Self::open_for(files, |_| true)
    }

    /// Opens an archive for some of its signals; others seem to have no samples outside packs.
    ///
    /// # Errors
    /// Where files cannot be read.
    pub fn open_for(files: F, wanted: impl Fn(&str) -> bool) -> Result<Self, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let catalogue = Catalogue::read(&files)?;
            let open = |(index, entry): (usize, &Entry)| Part::open(&files, entry, index, &wanted);
            match catalogue.used.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>() {
                // It was closed since the manifest was read.
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

    /// Opens some of an archive's files to read all of them, segments in memory.
    ///
    /// # Errors
    /// Also where a block is damaged.
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

    /// What is damaged, missing or not the archive's, as far as it was read, and as far as samples of a span may be missing for it.
    /// Opening an archive finds what is missing or exchanged, and what is damaged in segments; in packs, reading does.
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

    /// Names that a pattern with `*` and `?` means, sorted.
    #[must_use]
    pub fn matching(&self, pattern: &str) -> Vec<String> {
        let mut names = self.names();
        names.retain(|name| name == pattern || base::glob(pattern, name));
        names
    }

    /// What is known of a signal; `None` where there is none of that name.
    ///
    /// # Errors
    /// Where files cannot be read.
    pub fn about(&self, name: &str) -> Result<Option<Found>, StoreError> {
        let rows = self.rows(name);
        if rows.is_empty() {
            return Ok(None);
        }
        let refs = self.refs(name)?;
        let count = refs.iter().map(|place| u64::from(place.count)).sum();
        let first = refs.iter().map(|place| place.first).min();
        let last = refs.iter().map(|place| place.last).max();
        let span = first.zip(last).map(|(from, to)| Span { from, to });
        Ok(Some(Found { name: name.to_owned(), rows, count, span }))
    }

    /// What a signal has been, each change once, oldest first; of several changes at an instant the last one.
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

    /// The samples of a signal within a span, in order of time. Chunks are read when their turn comes; memory is bounded by
    /// those that overlap, a few unless clocks were set back again and again.
    ///
    /// # Errors
    /// Where an index cannot be read. What cannot be read later is an item of the iterator, and passed over.
    pub fn samples(&self, name: &str, span: Span) -> Result<Samples<'_, F>, StoreError> {
        let merge = Merge::new(&self.files, &self.parts, self.refs(name)?, span);
        Ok(Samples { merge, run: Vec::new().into_iter(), problems: &self.problems })
    }

    /// Hands on the samples of a signal within a span as they stand in chunks: what is in the range. What is damaged is passed over, and
    /// one of the [problems](Self::problems).
    ///
    /// # Errors
    /// Where something cannot be read.
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
    /// Where something cannot be read.
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

    /// Why there are no samples of a signal, within a span: its own gaps, those of all signals, and damage as far as it was read, in
    /// order of time.
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

    /// What the numbers of a signal are together, in spans of equal length. Of a chunk that is within one span alone its
    /// summary is used: it is not read. Spans without a number are left out.
    ///
    /// # Errors
    /// Where something cannot be read.
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
