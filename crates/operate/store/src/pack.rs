//! Making packs of segments, and larger packs of packs: the samples of each signal together, with an index.

use crate::archive::{Archive, Span};
use crate::error::StoreError;
use crate::files::Files;
use crate::mark;
use crate::part::{Numbers, UNFINISHED, parts};
use segment::block::{self, BlockKind, HEADER};
use segment::pack::{DirectoryEntry, Entry, Trailer};
use segment::rows::{self, Gap, Head, Signal};
use segment::{Chunk, Full};

/// How many files become one pack.
pub const PACKED_AT_ONCE: usize = 8;

/// Bytes of files from which on they are left as they are.
const ENOUGH: u64 = 1 << 30;

/// Samples of a chunk: as few as its summary is worth, so that little is read where a span of time begins within one.
const CHUNK: usize = 1_024;

/// Bytes that are gathered before they are appended.
const GATHERED: usize = 1 << 20;

/// Bytes of rows in a block.
const ROWS: usize = 1 << 20;

/// What packing did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The file that was made.
    pub name: String,
    /// How many files it replaces.
    pub files: usize,
    /// Bytes of those.
    pub before: u64,
    /// Its own bytes.
    pub after: u64,
    /// How many samples are in it.
    pub samples: u64,
}

/// Which files should become one pack: neighbours, eight of about the same size, or all that are closed and not packed yet
/// where `all` is wanted. `open_from` is the first segment that is still written; what is behind a [`Mark`](crate::Mark) stays
/// as it is, too.
///
/// # Errors
/// Where files cannot be listed.
pub fn due<F: Files>(files: &F, open_from: u64, all: bool) -> Result<Option<(u64, u64)>, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    let open_from = mark::held_from(files, &listed)?.map_or(open_from, |held| held.min(open_from));
    let (used, _) = parts(listed);
    let closed: Vec<_> = used.into_iter().filter(|(numbers, _)| numbers.last < open_from).collect();
    let ends = |some: &[(Numbers, u64)]| Some((some.first()?.0.first, some.last()?.0.last));
    let size = |some: &[(Numbers, u64)]| some.iter().map(|(_, len)| len).sum::<u64>();
    if all {
        let first = closed.iter().position(|(numbers, _)| !numbers.is_pack);
        let segments = |first: usize| closed[first..].iter().take_while(|(numbers, _)| !numbers.is_pack).count();
        return Ok(first.and_then(|first| ends(&closed[first..first + segments(first).min(PACKED_AT_ONCE)])));
    }
    // The smallest first: so each byte is written again once for each eightfold of size.
    let windows = closed.windows(PACKED_AT_ONCE).filter(|some| size(some) <= ENOUGH);
    let even = |some: &&[(Numbers, u64)]| {
        let (least, most) = (some.iter().map(|(_, len)| *len).min(), some.iter().map(|(_, len)| *len).max());
        most.unwrap_or(0) <= least.unwrap_or(0).max(1 << 16).saturating_mul(PACKED_AT_ONCE as u64)
    };
    Ok(windows.filter(even).min_by_key(|some| size(some)).and_then(ends))
}

/// Makes one pack of the files that hold the segments from one number to another, and removes them. A crash leaves either
/// them or the pack in use. Memory: the segments among them, where their chunks are (64 bytes each), chunks that overlap.
///
/// # Errors
/// Where something cannot be read or written; the files are as they were then. What is damaged is not packed: it stays, for
/// `verify` to tell.
pub fn pack<F: Files>(files: &F, first: u64, last: u64) -> Result<Packed, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    let (used, _) = parts(listed);
    let inputs: Vec<(Numbers, u64)> =
        used.into_iter().filter(|(numbers, _)| first <= numbers.first && numbers.last <= last).collect();
    let archive = Archive::open_whole(files.clone(), &inputs)?;
    let target = Numbers::pack(first, last).name();
    let unfinished = format!("{target}{UNFINISHED}");
    let made = write(files, &archive, &unfinished, first..=last).and_then(|made| {
        files.rename(&unfinished, &target).map_err(StoreError::io(&unfinished, "rename"))?;
        files.sync_names().map_err(StoreError::io("", "sync"))?;
        Ok(made)
    });
    let (after, samples) = match made {
        Ok(made) => made,
        Err(error) => {
            // It may not be there yet; the error that counts is the first one.
            let _ = files.remove(&unfinished);
            return Err(error);
        }
    };
    for (numbers, _) in inputs.iter().filter(|(numbers, _)| numbers.name() != target) {
        let name = numbers.name();
        files.remove(&name).map_err(StoreError::io(&name, "remove"))?;
    }
    files.sync_names().map_err(StoreError::io("", "sync"))?;
    let before = inputs.iter().map(|(_, len)| len).sum();
    Ok(Packed { name: target, files: inputs.len(), before, after, samples })
}

/// What is being written.
struct Output<'a, F: Files> {
    files: &'a F,
    file: F::File,
    name: &'a str,
    segment: u64,
    block: u32,
    gathered: Vec<u8>,
    /// Bytes appended before those.
    appended: u64,
}

impl<F: Files> Output<'_, F> {
    /// Where the next block begins.
    fn offset(&self) -> u64 {
        self.appended + self.gathered.len() as u64
    }

    fn put(&mut self, kind: BlockKind, base: i64, payload: &[u8]) -> Result<(), StoreError> {
        block::write(&mut self.gathered, kind, self.segment, self.block, base, payload);
        self.block += 1;
        if self.gathered.len() >= GATHERED { self.append() } else { Ok(()) }
    }

    fn append(&mut self) -> Result<(), StoreError> {
        self.files.append(&mut self.file, &self.gathered).map_err(StoreError::io(self.name, "append"))?;
        self.appended += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }

    /// Rows in blocks of bounded length; how many blocks.
    fn rows<T>(&mut self, kind: BlockKind, rows: &[T], write: impl Fn(&T, &mut Vec<u8>)) -> Result<u32, StoreError> {
        let (mut payload, mut blocks) = (Vec::new(), 0);
        for (index, row) in rows.iter().enumerate() {
            write(row, &mut payload);
            if payload.len() >= ROWS || index + 1 == rows.len() {
                self.put(kind, 0, &payload)?;
                payload.clear();
                blocks += 1;
            }
        }
        Ok(blocks)
    }
}

/// Writes the pack; its length and how many samples are in it.
fn write<F: Files>(
    files: &F,
    archive: &Archive<F>,
    name: &str,
    numbers: std::ops::RangeInclusive<u64>,
) -> Result<(u64, u64), StoreError> {
    let file = files.create(name).map_err(StoreError::io(name, "create"))?;
    let segment = *numbers.end();
    let mut out = Output { files, file, name, segment, block: 0, gathered: Vec::new(), appended: 0 };
    let mut head = Vec::new();
    Head { begun: 0, sync_ns: 0, merged: vec![*numbers.start(), *numbers.end()] }.write(&mut head);
    out.put(BlockKind::Head, 0, &head)?;
    let (mut dictionary, mut signals, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    let mut samples = 0;
    for (id, name) in (0u32..).zip(archive.names()) {
        dictionary.extend(archive.rows(&name).into_iter().map(|row| Signal { id, ..row }));
        let own = archive.gaps(&name, Span::ALL).into_iter().filter(|gap| gap.id.is_some());
        gaps.extend(own.map(|gap| Gap { id: Some(id), ..gap }));
        let entries = chunks(&mut out, archive, &name, id)?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
        let count = entries.iter().map(|entry| u64::from(entry.count)).sum();
        samples += count;
        let (first, last, index) = (first.first, last.last, out.offset());
        let blocks = out.rows(BlockKind::Index, &entries, Entry::write)?;
        signals.push(DirectoryEntry { id, blocks, index, first, last, count });
    }
    gaps.extend(archive.gaps("", Span::ALL));
    gaps.sort_by_key(|gap| gap.at);
    let dictionary_at = out.offset();
    out.rows(BlockKind::Dictionary, &dictionary, Signal::write)?;
    let gaps_at = out.offset();
    out.rows(BlockKind::Gaps, &gaps, |gap, out| gap.write(0, out))?;
    let directory = out.offset();
    out.rows(BlockKind::Directory, &signals, DirectoryEntry::write)?;
    let trailer = Trailer { dictionary: dictionary_at, gaps: gaps_at, directory };
    out.put(BlockKind::Trailer, 0, &trailer.write())?;
    out.append()?;
    files.sync(&out.file).map_err(StoreError::io(name, "sync"))?;
    Ok((out.appended, samples))
}

/// Writes the samples of a signal; where its chunks are.
fn chunks<F: Files>(
    out: &mut Output<'_, F>,
    archive: &Archive<F>,
    name: &str,
    id: u32,
) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    let mut next: Option<Chunk> = None;
    for sample in archive.samples(name, Span::ALL)? {
        let sample = sample?;
        let chunk = next.get_or_insert_with(|| Chunk::new(sample.datum.kind()));
        let pushed = if chunk.len() >= CHUNK { Err(Full::Count) } else { chunk.push(&sample) };
        match pushed {
            Ok(()) => {}
            Err(Full::TooLong) => return Err(StoreError::damaged(name, 0, "a value is longer than a chunk takes")),
            Err(_) => {
                entries.extend(chunk_block(out, id, chunk)?);
                chunk.reset(sample.datum.kind());
                // An empty chunk takes what the one before had no room for.
                let _ = chunk.push(&sample);
            }
        }
    }
    if let Some(chunk) = next {
        entries.extend(chunk_block(out, id, &chunk)?);
    }
    Ok(entries)
}

fn chunk_block<F: Files>(out: &mut Output<'_, F>, id: u32, chunk: &Chunk) -> Result<Option<Entry>, StoreError> {
    let (Some(&first), Some(&last)) = (chunk.stamps().first(), chunk.stamps().last()) else { return Ok(None) };
    let base = first.div_euclid(1_000_000_000).saturating_mul(1_000_000_000);
    let (mut bytes, mut payload) = (Vec::new(), Vec::new());
    chunk.encode(base, &mut bytes);
    rows::put_chunk(&mut payload, id, &bytes);
    let (offset, len) = (out.offset(), (HEADER + payload.len()) as u32);
    out.put(BlockKind::Samples, base, &payload)?;
    Ok(Some(Entry { offset, len, count: chunk.len() as u32, first, last, summary: chunk.summary(0..chunk.len()) }))
}
