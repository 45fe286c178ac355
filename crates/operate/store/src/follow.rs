//! Following a log for transfer to another store: each sample once, in the order in which it was logged.

use crate::archive::Span;
use crate::catalogue::{Catalogue, Entry, Problem};
use crate::error::StoreError;
use crate::files::Files;
use crate::part::{Numbers, Part};
use crate::scan::{Scan, ScanItem};
use segment::block::{BlockKind, HEADER};
use segment::parquet;
use segment::rows::{self, Cause, Gap, Signal};
use segment::{Bad, Chunk};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes read at a time while seeking a position.
const ENOUGH: u64 = 1 << 20;

/// Maximum samples of a portion, per MiB of the portion.
const SAMPLES_ENOUGH: i64 = 1 << 18;

/// Maximum samples of a portion of `bytes`. The last block may exceed it.
fn enough(bytes: u64) -> i64 {
    SAMPLES_ENOUGH * i64::try_from(bytes >> 20).unwrap_or(1).max(1)
}

/// A position in the log, between two blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the file's first segment.
    pub segment: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

impl Position {
    /// After any block.
    pub const END: Self = Self { segment: u64::MAX, offset: 0 };
}

/// A chunk as it was logged.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The signal's name.
    pub name: Arc<str>,
    /// Number of the first sample; the following samples have consecutive numbers. See [`Window`].
    pub number: i64,
    /// First stamp, last stamp, number of samples.
    pub span: (i64, i64, usize),
    base: i64,
    bytes: Vec<u8>,
}

impl Logged {
    /// Decodes the samples.
    ///
    /// # Errors
    /// If the bytes are not a valid chunk.
    pub fn chunk(&self) -> Result<Chunk, Bad> {
        Chunk::decode(&self.bytes, self.base)
    }
}

/// Contents of a log between two positions.
///
/// Samples and gaps are numbered. Numbers ascend, are unique in a log, and are the same on each read: segment · 2³² plus the
/// number of preceding samples and gaps in the file.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Start.
    pub from: Position,
    /// Start of the next window.
    pub to: Position,
    /// Number of the first sample or gap.
    pub number: i64,
    /// Rows of signals.
    pub signals: Vec<Signal>,
    /// Samples.
    pub chunks: Vec<Logged>,
    /// Gaps: number, signal name (`None`: all signals), gap.
    pub gaps: Vec<(i64, Option<Arc<str>>, Gap)>,
    /// Damaged bytes, which were skipped.
    pub damaged: u64,
    /// Segments that were removed before they were read.
    pub missed: u64,
}

/// The file that is being read.
struct Open<F: Files> {
    file: F::File,
    name: String,
    numbers: Numbers,
    known: FileState,
    /// The file belongs to another archive; nothing in it is read.
    is_foreign: bool,
    /// The manifest lists it.
    is_listed: bool,
    /// Its damage was found when it was opened.
    is_checked: bool,
    /// The file as an opened pack; `None` for a segment.
    pack: Option<Part<F>>,
}

/// State derived from the part of a file read so far.
struct FileState {
    /// Signal names by the file's signal numbers.
    names: HashMap<u32, Arc<str>>,
    /// Number of the next sample or gap.
    next: i64,
    /// Latest stamp so far.
    latest: i64,
}

/// Reads a log from a position on. Memory: one window, and the signal names of one file.
pub struct Follow<F: Files> {
    files: F,
    position: Position,
    open: Option<Open<F>>,
    missed: u64,
    /// Gaps from damage that was found before the file was read; for the next window.
    damage: Vec<(i64, Gap)>,
}

impl<F: Files> Follow<F> {
    /// Starts at the end of an earlier [`Window`], or at the beginning of the log.
    #[must_use]
    pub const fn new(files: F, position: Position) -> Self {
        Self { files, position, open: None, missed: 0, damage: Vec::new() }
    }

    /// Reads the next window; `None` if there is nothing new. A window ends after `portion` bytes (the last block may exceed it),
    /// after 262,144 samples per MiB of the portion, at the end of a file, or at `limit` (see [`Logger::safe_to`]). To read a
    /// window again completely, pass its end as `limit` and no portion.
    ///
    /// [`Logger::safe_to`]: crate::Logger::safe_to
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn window(&mut self, limit: Position, portion: Option<u64>) -> Result<Option<Window>, StoreError> {
        while self.position < limit {
            if self.open.is_none() && !self.begin(limit)? {
                return Ok(self.missing_before(limit));
            }
            let mut window =
                Window { from: self.position, missed: std::mem::take(&mut self.missed), ..Window::default() };
            window.gaps.extend(self.damage.drain(..).map(|(number, gap)| (number, None, gap)));
            let is_closed = self.open.as_ref().is_some_and(|open| open.numbers.first < limit.segment);
            let has_ended = self.read(&mut window, limit, portion)?;
            if has_ended && is_closed {
                let last = self.open.take().map_or(self.position.segment, |open| open.numbers.last);
                let catalogue = Catalogue::read(&self.files)?;
                let next = catalogue.used.iter().map(|entry| entry.numbers.first).find(|first| *first > last);
                let next = next.unwrap_or(limit.segment);
                let missing = missing(&catalogue, last + 1, next.min(limit.segment));
                window.gaps.extend(missing.into_iter().map(|(number, gap)| (number, None, gap)));
                self.position = Position { segment: next, offset: 0 };
                if self.position > limit {
                    self.position = limit;
                }
            }
            window.to = self.position;
            if window.from < window.to {
                return Ok(Some(window));
            }
            if has_ended {
                self.missed = window.missed;
                self.damage.extend(window.gaps.iter().map(|(number, _, gap)| (*number, *gap)));
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The gaps of missing files if no file follows; `None` if none is missing.
    fn missing_before(&mut self, limit: Position) -> Option<Window> {
        let gaps: Vec<_> = self.damage.drain(..).map(|(number, gap)| (number, None, gap)).collect();
        let number = gaps.first()?.0;
        let missed = std::mem::take(&mut self.missed);
        let window = Window { from: self.position, to: limit, number, missed, gaps, ..Window::default() };
        self.position = limit;
        Some(window)
    }

    /// The present position.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Opens the file at the position, or the next one after it. Returns false if there is none.
    fn begin(&mut self, limit: Position) -> Result<bool, StoreError> {
        let catalogue = Catalogue::read(&self.files)?;
        let used = &catalogue.used;
        let next = used.iter().copied().find(|entry| entry.numbers.first >= self.position.segment);
        let Some(entry) = next.filter(|entry| entry.numbers.first <= limit.segment) else {
            self.damage = missing(&catalogue, self.position.segment, limit.segment);
            return Ok(false);
        };
        let numbers = entry.numbers;
        // Retention removes the oldest files first, so only a missing beginning counts as missed. A hole after other files is a
        // segment that never held data.
        let oldest = used.first().map_or(0, |entry| entry.numbers.first);
        self.damage.extend(missing(&catalogue, self.position.segment, numbers.first));
        if numbers.first > self.position.segment {
            if oldest == numbers.first && self.position > Position::default() {
                self.missed += numbers.first - self.position.segment;
            }
            self.position = Position { segment: numbers.first, offset: 0 };
        }
        let name = numbers.name();
        let (mut names, mut pack) = (HashMap::new(), None);
        let mut next = i64::try_from(numbers.first << 32).unwrap_or(i64::MAX);
        let is_known = entry.listed.is_some_and(|listed| listed.contents.is_none());
        let part = (!is_known).then(|| Part::open(&self.files, &entry, 0, &|_| false)).transpose()?;
        let latest = entry.contents().map_or(0, |contents| contents.closing.span.0);
        let problems = part.as_ref().map_or(&[][..], |part| &part.problems);
        for gap in problems.iter().filter_map(|problem| problem.gap(Span::ALL)) {
            if self.position.offset == 0 {
                self.damage.push((next, gap));
            }
            next += 1;
        }
        let is_foreign = part.as_ref().is_some_and(|part| part.is_foreign);
        let (is_listed, is_checked) = (entry.listed.is_some(), part.is_some());
        if let Some(part) = part.filter(|_| numbers.is_pack) {
            // In a pack the dictionary follows the samples.
            names.extend(part.signals.iter().flat_map(|(name, rows)| {
                let name: Arc<str> = name.as_str().into();
                rows.iter().map(move |row| (row.id, name.clone()))
            }));
            pack = Some(part);
        }
        let begin = pack.as_ref().map_or(0, Part::blocks_begin);
        let file = self.files.open(&name).map_err(StoreError::io(&name, "open"))?;
        self.open = Some(Open {
            file,
            name,
            numbers,
            is_foreign,
            is_listed,
            is_checked,
            known: FileState { names, next, latest },
            pack,
        });
        // The blocks before the position define signal names and numbers.
        let position = std::mem::replace(&mut self.position, Position { segment: numbers.first, offset: begin });
        while self.position < position && !self.read(&mut Window::default(), position, Some(ENOUGH))? {}
        Ok(true)
    }

    /// Reads blocks up to the limit. Returns true if the file ended.
    fn read(&mut self, window: &mut Window, limit: Position, portion: Option<u64>) -> Result<bool, StoreError> {
        let Some(open) = &mut self.open else { return Ok(true) };
        let known = &mut open.known;
        window.number = known.next;
        if open.is_foreign {
            return Ok(true);
        }
        let begin = self.position.offset;
        let end = if open.numbers.first < limit.segment { u64::MAX } else { limit.offset };
        let blocks_end = open.pack.as_ref().map_or(u64::MAX, |pack| pack.blocks_end);
        let segment = if open.pack.is_some() { open.numbers.last } else { open.numbers.first };
        let scan = Scan::between(&self.files, &open.file, &open.name, begin, None)?;
        let mut scan = scan.of(segment).until(blocks_end);
        let is_enough =
            |bytes: u64, samples: i64| portion.is_some_and(|portion| bytes >= portion || samples >= enough(portion));
        while self.position.offset < end && !is_enough(self.position.offset - begin, known.next - window.number) {
            match scan.next()? {
                Some(ScanItem::Block { offset, header }) => {
                    if offset + header.whole() > end {
                        return Ok(true);
                    }
                    match &open.pack {
                        Some(pack) if header.kind == BlockKind::Pages => {
                            known.take_pages(&self.files, pack, &scan.payload, window);
                        }
                        _ => known.take(header.kind, header.base, &scan.payload, window),
                    }
                    self.position.offset = offset + header.whole();
                }
                Some(ScanItem::Damage { offset, len, .. }) => {
                    window.damaged += len;
                    if open.pack.is_some() || !open.is_checked {
                        known.damaged(None, (known.latest, 0), window);
                    }
                    self.position.offset = offset + len;
                }
                Some(ScanItem::Tail { .. }) if !open.is_listed && end == u64::MAX => {
                    known.damaged(None, (known.latest, 0), window);
                    return Ok(true);
                }
                Some(ScanItem::Tail { .. }) | None => return Ok(true),
            }
        }
        Ok(self.position.offset >= end)
    }
}

impl FileState {
    /// Records that samples are missing from an instant on, with their number if known.
    fn damaged(&mut self, id: Option<u32>, (at, lost): (i64, u64), window: &mut Window) {
        let name = id.and_then(|id| self.names.get(&id).cloned());
        window.gaps.push((self.next, name, Gap { id, at, cause: Cause::Damaged, lost }));
    }

    /// Takes the contents of a block.
    fn take(&mut self, kind: BlockKind, base: i64, payload: &[u8], window: &mut Window) {
        match kind {
            BlockKind::Dictionary => {
                for signal in rows::signals(payload).map_while(Result::ok) {
                    self.names.insert(signal.id, signal.name.as_str().into());
                    window.signals.push(signal);
                }
            }
            BlockKind::Gaps => {
                for gap in rows::gaps(payload, base).map_while(Result::ok) {
                    let name = gap.id.and_then(|id| self.names.get(&id).cloned());
                    if gap.id.is_none() || name.is_some() {
                        window.gaps.push((self.next, name, gap));
                    }
                    self.next += 1;
                }
            }
            BlockKind::Samples => {
                for (id, _, bytes) in rows::chunks(payload).map_while(Result::ok) {
                    let Ok(span) = Chunk::span(bytes, base) else { continue };
                    if let Some(name) = self.names.get(&id) {
                        let (name, bytes) = (name.clone(), bytes.to_vec());
                        window.chunks.push(Logged { name, number: self.next, span, base, bytes });
                    } else {
                        window.damaged += (HEADER + bytes.len()) as u64;
                        self.damaged(None, (span.0, span.2 as u64), window);
                    }
                    self.latest = self.latest.max(span.1);
                    self.next += span.2 as i64;
                }
            }
            _ => {}
        }
    }
}

impl FileState {
    /// Takes the chunks of a Parquet file that an index block lists, converted to the form of the log.
    fn take_pages<F: Files>(&mut self, files: &F, pack: &Part<F>, payload: &[u8], window: &mut Window) {
        let Ok((id, entries)) = parquet::entries(payload) else {
            window.damaged += (HEADER + payload.len()) as u64;
            self.damaged(None, (self.latest, 0), window);
            return;
        };
        for entry in entries {
            let span = (entry.first, entry.last, entry.count as usize);
            match (self.names.get(&id), pack.of_pages(files, &entry)) {
                (Some(name), Ok(chunk)) => {
                    let (name, mut bytes) = (name.clone(), Vec::new());
                    let base = entry.first.div_euclid(1_000_000_000).saturating_mul(1_000_000_000);
                    chunk.encode(base, &mut bytes);
                    window.chunks.push(Logged { name, number: self.next, span, base, bytes });
                }
                _ => {
                    window.damaged += entry.pages.iter().map(|page| u64::from(page.len)).sum::<u64>();
                    self.damaged(Some(id), (span.0, span.2 as u64), window);
                }
            }
            self.latest = self.latest.max(span.1);
            self.next += span.2 as i64;
        }
    }
}

/// Gaps for missing files from segment `from` up to, but not including, `to`.
fn missing(catalogue: &Catalogue, from: u64, to: u64) -> Vec<(i64, Gap)> {
    let is_used = |numbers: &Numbers| catalogue.used.iter().any(|entry| entry.numbers == *numbers);
    let between = catalogue.manifest.live.iter().filter(|(numbers, _)| (from..to).contains(&numbers.first));
    let gap = |(numbers, listed): (&Numbers, &crate::manifest::Listed)| {
        let gap = Problem::whole(*numbers, listed.contents, "").gap(Span::ALL)?;
        Some((i64::try_from(numbers.first << 32).unwrap_or(i64::MAX), gap))
    };
    between.filter(|(numbers, _)| !is_used(numbers)).filter_map(gap).collect()
}

/// Bytes of the log between two positions.
///
/// # Errors
/// If the files cannot be listed.
pub fn behind<F: Files>(files: &F, position: Position, limit: Position) -> Result<u64, StoreError> {
    let bytes = |Entry { numbers, len, .. }: Entry| {
        let end = if numbers.first < limit.segment { len } else { limit.offset };
        let begin = if numbers.first == position.segment { position.offset } else { 0 };
        end.saturating_sub(begin)
    };
    let is_waiting = |entry: &Entry| (position.segment..=limit.segment).contains(&entry.numbers.first);
    let waits = Catalogue::read(files)?.used.into_iter().filter(is_waiting);
    Ok(waits.map(bytes).sum())
}

/// Beginning of the log: its oldest file, or the first one that will be written.
///
/// # Errors
/// If the files cannot be listed.
pub fn begin<F: Files>(files: &F) -> Result<Position, StoreError> {
    let catalogue = Catalogue::read(files)?;
    let segment = catalogue.used.first().map_or_else(|| catalogue.next(), |entry| entry.numbers.first);
    Ok(Position { segment, offset: 0 })
}

/// Present end of the log, synced or not, for processes other than its logger. Includes missing files after the last one.
///
/// # Errors
/// If the files cannot be listed.
pub fn written_to<F: Files>(files: &F) -> Result<Position, StoreError> {
    let catalogue = Catalogue::read(files)?;
    let last = catalogue.used.last().map_or(Position::default(), |Entry { numbers, len, .. }| {
        if numbers.is_pack {
            Position { segment: numbers.last + 1, offset: 0 }
        } else {
            Position { segment: numbers.first, offset: *len }
        }
    });
    let missing = catalogue.manifest.live.keys().filter(|numbers| numbers.first > last.segment);
    Ok(missing.map(|numbers| Position { segment: numbers.last + 1, offset: 0 }).max().unwrap_or(last))
}
