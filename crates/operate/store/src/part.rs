//! One file of an archive, opened for reading.

use crate::archive::Span;
use crate::catalogue::{Entry, Problem, span_of};
use crate::error::StoreError;
use crate::files::Files;
use crate::logger::LOCK;
use crate::manifest::{MANIFEST, Manifest};
use crate::mark::MARK;
use crate::scan::{Scan, ScanItem};
use segment::block::{self, BlockKind, HEADER, Header, NoBlock};
use segment::manifest::{CLOSING, Closing, Contents, Digest};
use segment::pack::{self, DirectoryEntry, TRAILER, Trailer};
use segment::parquet::{self, Page, Pages, SUM_LEN};
use segment::rows::{self, Gap, Signal};
use segment::{Chunk, Summary};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// File name extension of segments.
const SEGMENT: &str = ".segment";
/// File name extension of packs, which are Parquet files.
pub const PACK: &str = ".parquet";
/// Extension of files that are not complete yet.
pub(crate) const UNFINISHED: &str = ".unfinished";

/// Maximum segment number: one segment per second for 30,000 years.
const NUMBER_MAX: u64 = 1_000_000_000_000;

/// Problem of a segment whose closing mark is not in the manifest.
pub(crate) const CLOSED_UNLISTED: &str = "it has a closing mark that the manifest does not list: the manifest's end is missing, or the logger was killed between the two";

/// Range of segments in a file, and whether it is a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Numbers {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) is_pack: bool,
}

impl Numbers {
    pub(crate) const fn segment(number: u64) -> Self {
        Self { first: number, last: number, is_pack: false }
    }

    pub(crate) const fn pack(first: u64, last: u64) -> Self {
        Self { first, last, is_pack: true }
    }

    /// Parses a file name. `None` for other files, including similar ones such as `1.segment`, whose canonical name would differ.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::parsed(name)
            .filter(|numbers| numbers.first <= numbers.last && numbers.last <= NUMBER_MAX && numbers.name() == name)
    }

    fn parsed(name: &str) -> Option<Self> {
        if let Some(number) = name.strip_suffix(SEGMENT) {
            return number.parse().ok().map(Self::segment);
        }
        let (first, last) = name.strip_suffix(PACK)?.split_once('-')?;
        Some(Self::pack(first.parse().ok()?, last.parse().ok()?))
    }

    pub(crate) fn name(self) -> String {
        match self.is_pack {
            true => format!("{:010}-{:010}{PACK}", self.first, self.last),
            false => format!("{:010}{SEGMENT}", self.first),
        }
    }

    /// Whether this pack includes all of `other`.
    pub(crate) fn covers(self, other: Self) -> bool {
        self.is_pack && self != other && self.holds(other)
    }
}

/// Whether a file belongs to an archive, by its name, also if it is not complete yet.
pub(crate) fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
    matches!(name, MANIFEST | LOCK) || name.ends_with(MARK) || Numbers::of(name).is_some()
}

/// Splits the files of an archive into those in use, oldest first, and those that a pack includes. The latter remain if a crash
/// occurs between writing the pack and removing them.
pub(crate) fn parts(listed: Vec<(String, u64)>) -> (Vec<(Numbers, u64)>, Vec<Numbers>) {
    let known = |(name, len): &(String, u64)| Some((Numbers::of(name)?, *len));
    let all: Vec<(Numbers, u64)> = listed.iter().filter_map(known).collect();
    let covered = |part: &Numbers| all.iter().any(|(pack, _)| pack.covers(*part));
    let (left, mut used): (Vec<_>, Vec<_>) = all.iter().partition(|(part, _)| covered(part));
    used.sort_by_key(|(part, _)| part.first);
    (used, left.into_iter().map(|(part, _)| part).collect())
}

/// Position and summary of a chunk.
#[derive(Clone, Debug)]
pub(crate) struct Ref {
    /// Index of the part in the archive.
    pub(crate) part: usize,
    /// Offset in the file of the chunk's bytes. Unused in a pack.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Base of its stamps. Unused in a pack.
    pub(crate) base: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) count: u32,
    pub(crate) summary: Option<Box<Summary>>,
    /// Position of its pages in a pack.
    pub(crate) pages: Option<Box<Pages>>,
}

impl Ref {
    pub(crate) fn of_pages(part: usize, mut pages: Pages) -> Self {
        let offset = pages.pages.first().map_or(0, |page| page.offset);
        let (first, last, count, summary) = (pages.first, pages.last, pages.count, pages.summary.take().map(Box::new));
        let pages = Some(Box::new(pages));
        Self { part, offset, len: 0, base: 0, first, last, count, summary, pages }
    }
}

/// A file of an archive.
pub(crate) struct Part<F: Files> {
    pub(crate) numbers: Numbers,
    pub(crate) name: String,
    pub(crate) file: F::File,
    /// Rows of each signal, by name.
    pub(crate) signals: BTreeMap<String, Vec<Signal>>,
    pub(crate) gaps: Vec<Gap>,
    /// Damage found so far.
    pub(crate) problems: Vec<Problem>,
    /// Contents of the file, if loaded into memory.
    bytes: Option<Vec<u8>>,
    /// Packs: positions of the signals.
    directory: HashMap<u32, DirectoryEntry>,
    /// Segments: chunks of the requested signals.
    refs: HashMap<u32, Vec<Ref>>,
    /// End of the last block, if other data follow it.
    pub(crate) blocks_end: u64,
    /// Packs: offset of the dictionary.
    dictionary_at: u64,
    /// Packs: the value dictionary that was read last, and its offset.
    dictionary: Mutex<Option<Numbered>>,
    /// Number of the archive in the file's head.
    pub(crate) archive: Option<u64>,
    /// Closing record at the end of the file.
    pub(crate) closing: Option<Closing>,
    /// The file belongs to another archive; its contents are hidden.
    pub(crate) is_foreign: bool,
    /// Packs without a directory: total number of samples.
    counted: u64,
}

/// Offset of a value dictionary, and its values.
type Numbered = (u64, Arc<[u64]>);

impl<F: Files> Part<F> {
    /// Opens a file. Of a segment, reads all blocks and keeps the positions of the `wanted` signals' chunks. Of a pack, reads
    /// dictionary and directory. Damage is added to the part's problems.
    pub(crate) fn open(
        files: &F,
        entry: &Entry,
        index: usize,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Self, StoreError> {
        let (numbers, name) = (entry.numbers, entry.numbers.name());
        let file = files.open(&name).map_err(StoreError::io(&name, "open"))?;
        let (signals, directory, refs) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        let (gaps, dictionary, blocks_end) = (Vec::new(), Mutex::new(None), u64::MAX);
        let mut part = Self {
            numbers,
            name,
            file,
            signals,
            gaps,
            problems: Vec::new(),
            bytes: None,
            directory,
            refs,
            blocks_end,
            dictionary_at: 0,
            dictionary,
            archive: None,
            closing: None,
            is_foreign: false,
            counted: 0,
        };
        if numbers.is_pack
            && let Some(end) = end_of(files, &part.file, &part.name)?
        {
            part.blocks_end = end;
        }
        let has_directory = numbers.is_pack && part.directory(files)?;
        if !has_directory {
            part.scan(files, entry, index, wanted)?;
        }
        part.compare(files, entry, has_directory)?;
        Ok(part)
    }

    /// Whether the manifest has listed the segment as closed since it was read.
    pub(crate) fn is_closed_since(&self, files: &F) -> bool {
        let is_unlisted = self.problems.iter().any(|problem| problem.why == CLOSED_UNLISTED);
        let is_closed =
            |manifest: Manifest| manifest.live.get(&self.numbers).is_none_or(|listed| listed.contents.is_some());
        is_unlisted && Manifest::load(files).is_ok_and(is_closed)
    }

    /// Compares the file's closing record with the manifest.
    fn compare(&mut self, files: &F, entry: &Entry, has_directory: bool) -> Result<(), StoreError> {
        let Some(contents) = entry.contents() else {
            let is_open = entry.listed.is_some_and(|listed| listed.contents.is_none());
            if is_open && self.closing.is_some() && self.problems.is_empty() {
                // No samples are missing.
                self.problems.push(Problem::new(&self.name, (0, entry.len), CLOSED_UNLISTED));
            }
            let own = self.closing.map(|closing| closing.archive).filter(|_| entry.archive.is_some());
            if own.is_some() && own != entry.archive {
                self.is_of_another_archive(entry);
            }
            if self.numbers.is_pack && !has_directory {
                self.problems.push(Problem::whole(self.numbers, None, "the pack's end is missing"));
            }
            return Ok(());
        };
        let closing = self.closing.filter(|_| self.problems.is_empty());
        if closing.is_some_and(|closing| closing.archive != contents.closing.archive) {
            self.is_of_another_archive(entry);
        } else if entry.len < contents.len || (!contents.is_left && entry.len != contents.len) {
            let why = format!("the file has {} bytes, expected {}", entry.len, contents.len);
            let counted = self.count(files, has_directory)?;
            self.rest_is_missing(contents, counted, why);
        } else if !contents.is_left && closing != Some(contents.closing) && self.problems.is_empty() {
            let why = "the file is another than the one that the manifest lists (its closing mark differs)";
            let counted = self.count(files, has_directory)?;
            self.rest_is_missing(contents, counted, why.into());
        } else if !self.problems.is_empty() {
            let lost = contents.closing.samples.saturating_sub(self.count(files, has_directory)?);
            self.problems.iter_mut().take(1).for_each(|problem| problem.lost = lost);
        }
        Ok(())
    }

    /// Number of readable samples, of all signals.
    fn count(&self, files: &F, has_directory: bool) -> Result<u64, StoreError> {
        if self.numbers.is_pack {
            let in_directory = self.directory.values().map(|entry| entry.count).sum();
            return Ok(if has_directory { in_directory } else { self.counted });
        }
        let scan = Scan::between(files, &self.file, &self.name, 0, None)?;
        let (mut scan, mut known, mut count) = (scan.of(self.numbers.first), HashSet::new(), 0);
        while let Some(seen) = scan.next()? {
            let ScanItem::Block { header, .. } = seen else { continue };
            match header.kind {
                BlockKind::Dictionary => {
                    known.extend(rows::signals(&scan.payload).map_while(Result::ok).map(|signal| signal.id));
                }
                BlockKind::Samples => {
                    let chunks =
                        rows::chunks(&scan.payload).map_while(Result::ok).filter(|(id, ..)| known.contains(id));
                    let spans = chunks.filter_map(|(_, _, bytes)| Chunk::span(bytes, header.base).ok());
                    count += spans.map(|(_, _, count)| count as u64).sum::<u64>();
                }
                _ => {}
            }
        }
        Ok(count)
    }

    fn rest_is_missing(&mut self, contents: Contents, readable: u64, why: String) {
        let lost = contents.closing.samples.saturating_sub(readable);
        let problem = Problem::whole(self.numbers, Some(contents), why);
        self.problems.insert(0, Problem { lost, ..problem });
    }

    /// Hides the contents of a file of another archive.
    fn is_of_another_archive(&mut self, entry: &Entry) {
        let why = "the file belongs to another archive";
        self.problems = vec![Problem::whole(self.numbers, entry.contents(), why)];
        self.is_foreign = true;
        self.signals.clear();
        self.gaps.clear();
        self.directory.clear();
        self.refs.clear();
    }

    /// Offset of a pack's first block, after the samples.
    pub(crate) fn blocks_begin(&self) -> u64 {
        self.directory.values().map(|entry| entry.index).min().unwrap_or(self.dictionary_at)
    }

    /// Reads the directory at a pack's end. Returns false if it is missing or damaged.
    fn directory(&mut self, files: &F) -> Result<bool, StoreError> {
        let len = files.len(&self.file).map_err(StoreError::io(&self.name, "ask for its length"))?;
        let mut bytes = [0; HEADER + TRAILER];
        let end = len.min(self.blocks_end);
        let Some(offset) = end.checked_sub(bytes.len() as u64) else { return Ok(false) };
        files.read_at(&self.file, offset, &mut bytes).map_err(StoreError::io(&self.name, "read"))?;
        let Ok((Header { kind: BlockKind::Trailer, segment, .. }, payload, _)) = block::read(&bytes) else {
            return Ok(false);
        };
        if segment != self.numbers.last {
            return Ok(false);
        }
        let Ok(trailer) = Trailer::read(payload) else { return Ok(false) };
        let name = self.name.clone();
        let mut scan = Scan::between(files, &self.file, &name, trailer.dictionary, None)?.of(segment).until(end);
        let (mut signals, mut gaps, mut directory) = (BTreeMap::new(), Vec::new(), HashMap::new());
        while let Some(seen) = scan.next()? {
            let ScanItem::Block { header, .. } = seen else { return Ok(false) };
            match header.kind {
                BlockKind::Dictionary => take_signals(&mut signals, &scan.payload),
                BlockKind::Gaps => gaps.extend(rows::gaps(&scan.payload, header.base).map_while(Result::ok)),
                BlockKind::Directory => {
                    let Ok(found) = pack::directory(&scan.payload) else { return Ok(false) };
                    directory.extend(found.into_iter().map(|entry| (entry.id, entry)));
                }
                _ => {}
            }
        }
        (self.signals, self.gaps, self.directory) = (signals, gaps, directory);
        self.dictionary_at = trailer.dictionary;
        self.closing = Some(trailer.closing);
        Ok(true)
    }

    /// Reads all blocks.
    fn scan(&mut self, files: &F, entry: &Entry, part: usize, wanted: &dyn Fn(&str) -> bool) -> Result<(), StoreError> {
        let name = self.name.clone();
        // In a pack, the dictionary follows the samples.
        let is_pack = self.numbers.is_pack;
        let expected = (!is_pack).then_some((self.numbers.first, 0));
        let mut scan = Scan::between(files, &self.file, &name, 0, expected)?.until(self.blocks_end);
        let mut is_wanted: HashMap<u32, bool> = HashMap::new();
        let proven =
            entry.contents().map_or(u64::MAX, |contents| if contents.is_left { contents.len } else { u64::MAX });
        let span = entry.contents().and_then(|contents| span_of(&contents.closing)).unwrap_or(Span::ALL);
        // Damage cannot be earlier than the file's first sample.
        let (mut latest, end) = (span.from, span.to);
        while let Some(seen) = scan.next()? {
            let (offset, header) = match seen {
                ScanItem::Block { offset, header } => (offset, header),
                // Another version of tahti can read this: fail, and do not treat it as damage.
                ScanItem::Damage { offset, why, .. } | ScanItem::Tail { offset, why, .. }
                    if matches!(why, NoBlock::Version(_)) =>
                {
                    let why = format!("{why}: it was written by another version of tahti; use that one");
                    return Err(StoreError::damaged(&name, offset, why));
                }
                ScanItem::Tail { .. } if entry.may_be_torn() && !is_pack && proven == u64::MAX => continue,
                ScanItem::Damage { offset, .. } | ScanItem::Tail { offset, .. } if offset >= proven => continue,
                ScanItem::Damage { offset, len, why } | ScanItem::Tail { offset, len, why } => {
                    let span = Some(Span { from: latest, to: end.max(latest) });
                    self.problems.push(Problem { span, ..Problem::new(&name, (offset, len), why) });
                    continue;
                }
            };
            if header.kind == BlockKind::Samples {
                // Stamps of a block start within the second at its base.
                let first = header.base.saturating_add(1_000_000_000);
                let before = self.problems.last_mut().and_then(|problem| problem.span.as_mut());
                before.into_iter().for_each(|span| span.to = span.to.min(first.max(span.from)));
                latest = latest.max(header.base);
            }
            match header.kind {
                BlockKind::Dictionary => {
                    for signal in rows::signals(&scan.payload).map_while(Result::ok) {
                        is_wanted.insert(signal.id, wanted(&signal.name));
                        self.signals.entry(signal.name.clone()).or_default().push(signal);
                    }
                }
                BlockKind::Gaps => self.gaps.extend(rows::gaps(&scan.payload, header.base).map_while(Result::ok)),
                BlockKind::Samples => {
                    for (id, begin, bytes) in rows::chunks(&scan.payload).map_while(Result::ok) {
                        if !is_wanted.get(&id).copied().unwrap_or(false) {
                            continue;
                        }
                        let Ok((first, last, count)) = Chunk::span(bytes, header.base) else { continue };
                        latest = latest.max(last);
                        self.refs.entry(id).or_default().push(Ref {
                            part,
                            offset: offset + (HEADER + begin) as u64,
                            len: bytes.len() as u32,
                            base: header.base,
                            first,
                            last,
                            count: count as u32,
                            summary: None,
                            pages: None,
                        });
                    }
                }
                BlockKind::Pages => {
                    let Ok((id, entries)) = parquet::entries(&scan.payload) else { continue };
                    self.refs
                        .entry(id)
                        .or_default()
                        .extend(entries.into_iter().map(|entry| Ref::of_pages(part, entry)));
                }
                BlockKind::Closing => self.closing = Closing::read(&scan.payload).ok(),
                BlockKind::Head => {
                    let own = rows::Head::read(&scan.payload).map(|head| head.archive).ok();
                    self.archive = own;
                    if entry.archive.is_some() && own != entry.archive {
                        self.is_of_another_archive(entry);
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        if is_pack {
            let names: Vec<u32> = self.signals.values().flatten().map(|signal| signal.id).collect();
            let known = self.refs.iter().filter(|(id, _)| names.contains(id));
            self.counted = known.flat_map(|(_, refs)| refs).map(|place| u64::from(place.count)).sum();
        }
        self.refs.retain(|id, _| is_wanted.get(id).copied().unwrap_or(false));
        Ok(())
    }

    /// The signal's number in this file.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        Some(self.signals.get(name)?.first()?.id)
    }

    /// Adds the chunks of a signal, and any damage of its index.
    pub(crate) fn refs(
        &self,
        files: &F,
        part: usize,
        name: &str,
        (refs, problems): (&mut Vec<Ref>, &mut Vec<Problem>),
    ) -> Result<(), StoreError> {
        let Some(id) = self.id(name) else { return Ok(()) };
        refs.extend(self.refs.get(&id).into_iter().flatten().cloned());
        let Some(entry) = self.directory.get(&id) else { return Ok(()) };
        let before = refs.len();
        let Err(error) = self.index(files, part, entry, refs) else { return Ok(()) };
        let Some(problem) = error.problem() else { return Err(error) };
        let there: u64 = refs[before..].iter().map(|place| u64::from(place.count)).sum();
        let from = refs[before..].iter().map(|place| place.last).max().unwrap_or(entry.first);
        let span = Some(Span { from, to: entry.last.max(from) });
        problems.push(Problem { span, lost: entry.count.saturating_sub(there), ..problem });
        Ok(())
    }

    /// Adds the chunks from a pack's index.
    fn index(&self, files: &F, part: usize, entry: &DirectoryEntry, refs: &mut Vec<Ref>) -> Result<(), StoreError> {
        let segment = self.numbers.last;
        let scan = Scan::between(files, &self.file, &self.name, entry.index, None)?;
        let mut scan = scan.of(segment).until(self.blocks_end);
        for _ in 0..entry.blocks {
            let damaged = |offset: u64, why: String| StoreError::damaged(&self.name, offset, why);
            let offset = match scan.next()? {
                Some(ScanItem::Block { offset, header }) if header.kind == BlockKind::Pages => offset,
                Some(ScanItem::Damage { offset, why, .. } | ScanItem::Tail { offset, why, .. }) => {
                    return Err(damaged(offset, why.to_string()));
                }
                _ => return Err(damaged(entry.index, "an index is missing".into())),
            };
            let (_, entries) = parquet::entries(&scan.payload).map_err(|why| damaged(offset, why.to_string()))?;
            refs.extend(entries.into_iter().map(|entry| Ref::of_pages(part, entry)));
        }
        Ok(())
    }

    /// Loads a segment into memory, because its chunks are read in a different order from that in the file.
    pub(crate) fn load(&mut self, files: &F, entry: &Entry) -> Result<(), StoreError> {
        if !self.numbers.is_pack {
            let len = files.len(&self.file).map_err(StoreError::io(&self.name, "ask for its length"))?;
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            let read = files.read_at(&self.file, 0, &mut bytes).map_err(StoreError::io(&self.name, "read"))?;
            bytes.truncate(read);
            if let Some(contents) = entry.contents() {
                let mark = if contents.is_left { 0 } else { HEADER + CLOSING };
                let proven = usize::try_from(contents.len).unwrap_or(usize::MAX).saturating_sub(mark);
                let mut digest = Digest::default();
                digest.add(&bytes[..proven.min(bytes.len())]);
                if digest.value() != contents.closing.digest {
                    return Err(StoreError::damaged(&self.name, 0, "its digest is another than the manifest's"));
                }
            }
            self.bytes = Some(bytes);
        }
        Ok(())
    }

    /// Reads a chunk.
    pub(crate) fn chunk(&self, files: &F, place: &Ref) -> Result<Chunk, StoreError> {
        let chunk = self.read_chunk(files, place);
        chunk.map_err(|error| error.about((place.first, place.last), place.count.into()))
    }

    fn read_chunk(&self, files: &F, place: &Ref) -> Result<Chunk, StoreError> {
        if let Some(pages) = &place.pages {
            return self.of_pages(files, pages);
        }
        let damaged = |why: String| StoreError::damaged(&self.name, place.offset, why);
        if place.len as usize > block::PAYLOAD_MAX + HEADER {
            return Err(damaged("a chunk is longer than there are".into()));
        }
        let decode = |chunk: &[u8]| Chunk::decode(chunk, place.base).map_err(|why| damaged(why.to_string()));
        if let Some(bytes) = &self.bytes {
            let begin = usize::try_from(place.offset).unwrap_or(usize::MAX);
            let chunk = begin.checked_add(place.len as usize).and_then(|end| bytes.get(begin..end));
            return decode(chunk.ok_or_else(|| damaged("the file has become shorter".into()))?);
        }
        let mut bytes = vec![0; place.len as usize];
        let len = files.read_at(&self.file, place.offset, &mut bytes).map_err(StoreError::io(&self.name, "read"))?;
        decode(&bytes[..len])
    }
}

impl<F: Files> Part<F> {
    /// Reads a chunk of a pack.
    pub(crate) fn of_pages(&self, files: &F, pages: &Pages) -> Result<Chunk, StoreError> {
        let at = pages.pages.first().map_or(0, |page| page.offset);
        let damaged = |why: segment::Bad| StoreError::damaged(&self.name, at, why);
        let read = |page: &Page| {
            let mut bytes = vec![0; page.len as usize];
            let len = files.read_at(&self.file, page.offset, &mut bytes).map_err(StoreError::io(&self.name, "read"))?;
            bytes.truncate(len);
            Ok::<_, StoreError>(bytes)
        };
        let numbers = match &pages.dictionary {
            None => None,
            Some((page, count)) => {
                let known = self.dictionary.lock().unwrap_or_else(PoisonError::into_inner).clone();
                match known.filter(|(offset, _)| *offset == page.offset) {
                    Some((_, numbers)) => Some(numbers),
                    None => {
                        let numbers: Arc<[u64]> = Pages::numbers(page, *count, &read(page)?).map_err(damaged)?.into();
                        let mut known = self.dictionary.lock().unwrap_or_else(PoisonError::into_inner);
                        *known = Some((page.offset, numbers.clone()));
                        Some(numbers)
                    }
                }
            }
        };
        let pressed = pages.pages.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        pages.decode(&pressed, numbers.as_deref()).map_err(damaged)
    }
}

/// Offset of a Parquet file's footer; `None` if it has none.
pub(crate) fn end_of<F: Files>(files: &F, file: &F::File, name: &str) -> Result<Option<u64>, StoreError> {
    let len = files.len(file).map_err(StoreError::io(name, "ask for its length"))?;
    let mut last = [0; SUM_LEN as usize];
    let Some(at) = len.checked_sub(SUM_LEN) else { return Ok(None) };
    files.read_at(file, at, &mut last).map_err(StoreError::io(name, "read"))?;
    Ok(parquet::end_of(len, &last))
}

fn take_signals(signals: &mut BTreeMap<String, Vec<Signal>>, payload: &[u8]) {
    for signal in rows::signals(payload).map_while(Result::ok) {
        signals.entry(signal.name.clone()).or_default().push(signal);
    }
}
