//! Merges a signal's chunks in order of time. Chunks overlap if the clock was set back.

use crate::archive::Span;
use crate::error::StoreError;
use crate::files::Files;
use crate::part::{Part, Ref};
use segment::Chunk;
use std::ops::Range;

/// A chunk that is being read.
struct Open {
    chunk: Chunk,
    next: usize,
    /// Samples with equal stamps are returned in the order in which they were written.
    order: (usize, u64),
}

impl Open {
    fn stamp(&self) -> Option<i64> {
        self.chunk.stamps().get(self.next).copied()
    }
}

/// Reads chunks on demand. Memory is bounded by the number of overlapping chunks.
pub(crate) struct Merge<'a, F: Files> {
    files: &'a F,
    parts: &'a [Part<F>],
    refs: std::iter::Peekable<std::vec::IntoIter<Ref>>,
    open: Vec<Open>,
    span: Span,
}

impl<'a, F: Files> Merge<'a, F> {
    pub(crate) fn new(files: &'a F, parts: &'a [Part<F>], mut refs: Vec<Ref>, span: Span) -> Self {
        refs.retain(|place| place.last >= span.from && place.first <= span.to);
        refs.sort_by_key(|place| (place.first, place.part, place.offset));
        Self { files, parts, refs: refs.into_iter().peekable(), open: Vec::new(), span }
    }

    /// The next run of samples from one chunk. An unreadable chunk yields one error; the next call continues after it.
    pub(crate) fn run(&mut self) -> Result<Option<(&Chunk, Range<usize>)>, StoreError> {
        self.open.retain(|open| open.stamp().is_some_and(|at| at <= self.span.to));
        while let Some(first) = self.refs.peek().map(|place| place.first) {
            if self.first().is_some_and(|(at, ..)| first > at) {
                break;
            }
            let Some(place) = self.refs.next() else { break };
            let chunk = self.parts[place.part].chunk(self.files, &place)?;
            let next = chunk.stamps().partition_point(|at| *at < self.span.from);
            let order = (place.part, place.offset);
            let open = Open { chunk, next, order };
            if open.stamp().is_some_and(|at| at <= self.span.to) {
                self.open.push(open);
            }
        }
        let Some((_, _, index)) = self.first() else { return Ok(None) };
        let others =
            self.open.iter().enumerate().filter(|(other, _)| *other != index).filter_map(|(_, open)| open.stamp());
        let limit = others.chain(self.refs.peek().map(|place| place.first)).min();
        let open = &mut self.open[index];
        let begin = open.next;
        let stamps = open.chunk.stamps();
        let before = limit.map_or(stamps.len(), |limit| stamps.partition_point(|at| *at < limit));
        let end = before.min(stamps.partition_point(|at| *at <= self.span.to)).max(begin + 1);
        open.next = end;
        Ok(Some((&self.open[index].chunk, begin..end)))
    }

    /// Earliest stamp of the open chunks, with its order and the index of its chunk.
    fn first(&self) -> Option<(i64, (usize, u64), usize)> {
        let stamps = self.open.iter().enumerate().filter_map(|(index, open)| Some((open.stamp()?, open.order, index)));
        stamps.min()
    }
}
