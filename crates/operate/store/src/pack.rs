//! Packing: makes packs from segments, and larger packs from packs. A pack stores each signal's samples together, with an index.

use crate::archive::{Archive, Span};
use crate::catalogue::{Catalogue, Entry};
use crate::error::StoreError;
use crate::files::Files;
use crate::manifest::Manifest;
use crate::mark;
use crate::part::{Numbers, UNFINISHED};
use output::Output;
use segment::manifest::{Closing, Contents, Record};
use segment::pack::{DirectoryEntry, Trailer};
use segment::rows::{Gap, Head, Signal};
use segment::{Chunk, Full, block::BlockKind};

mod output;
mod parquet;

/// Number of files that are packed into one.
pub const PACKED_AT_ONCE: usize = 8;

/// Maximum total size in bytes of the files packed into one; larger runs are left as they are.
const ENOUGH: u64 = 1 << 30;

/// Samples per chunk. Small chunks limit the reading where an interval begins within one; smaller ones would not pay for their
/// summary.
const CHUNK: usize = 1_024;

/// Result of packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Name of the new file.
    pub name: String,
    /// Number of files it replaces.
    pub files: usize,
    /// Their total size in bytes.
    pub before: u64,
    /// Its size in bytes.
    pub after: u64,
    /// Number of samples in it.
    pub samples: u64,
}

/// Selects files that should become one pack, as the range of their segment numbers. Normally these are eight consecutive files
/// of similar size. With `all`, they are any closed segments that are not packed yet. Segments from
/// `open_from` on (still written) and from a [`Mark`](crate::Mark) on are never selected.
///
/// # Errors
/// If the files cannot be listed.
pub fn due<F: Files>(files: &F, open_from: u64, all: bool) -> Result<Option<(u64, u64)>, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    let open_from = mark::held_from(files, &listed)?.map_or(open_from, |held| held.min(open_from));
    let runs = Catalogue::read(files)?.packable(open_from);
    let ends = |some: &[(Numbers, u64)]| Some((some.first()?.0.first, some.last()?.0.last));
    let size = |some: &[(Numbers, u64)]| some.iter().map(|(_, len)| len).sum::<u64>();
    if all {
        return Ok(runs.iter().find_map(|run| {
            let first = run.iter().position(|(numbers, _)| !numbers.is_pack)?;
            let count = run[first..].iter().take_while(|(numbers, _)| !numbers.is_pack).count();
            ends(&run[first..first + count.min(PACKED_AT_ONCE)])
        }));
    }
    // Smallest first: each byte is rewritten once per eightfold growth.
    let windows = runs.iter().flat_map(|run| run.windows(PACKED_AT_ONCE)).filter(|some| size(some) <= ENOUGH);
    let even = |some: &&[(Numbers, u64)]| {
        let (least, most) = (some.iter().map(|(_, len)| *len).min(), some.iter().map(|(_, len)| *len).max());
        most.unwrap_or(0) <= least.unwrap_or(0).max(1 << 16).saturating_mul(PACKED_AT_ONCE as u64)
    };
    Ok(windows.filter(even).min_by_key(|some| size(some)).and_then(ends))
}

/// Total bytes of the files that are [`due`] with `all`.
///
/// # Errors
/// If the files cannot be listed.
pub fn unpacked<F: Files>(files: &F, open_from: u64) -> Result<u64, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    let open_from = mark::held_from(files, &listed)?.map_or(open_from, |held| held.min(open_from));
    let runs = Catalogue::read(files)?.packable(open_from);
    Ok(runs.iter().flatten().filter(|(numbers, _)| !numbers.is_pack).map(|(_, len)| len).sum())
}

/// Packs the files with segments `first` to `last` into one, and removes them. After a crash, either they or the pack are in use.
/// Memory: the segments to be packed, 64 bytes per chunk of them, and overlapping chunks. Also one row group and
/// 100 bytes per chunk.
///
/// # Errors
/// If a file cannot be read or written; the files are then unchanged. A damaged file is not packed. The manifest marks it, so
/// that it is no longer [`due`] and the files next to it are packed without it.
pub fn pack<F: Files>(files: &F, first: u64, last: u64) -> Result<Packed, StoreError> {
    let catalogue = Catalogue::read(files)?;
    let target = Numbers::pack(first, last);
    let inputs = inputs(&catalogue, target)?;
    let before = inputs.iter().map(|entry| entry.len).sum();
    if let [Entry { numbers, len, listed: Some(listed), .. }] = inputs[..]
        && numbers == target
    {
        let samples = listed.contents.map_or(0, |contents| contents.closing.samples);
        return Ok(Packed { name: target.name(), files: 1, before, after: len, samples });
    }
    let mut manifest = catalogue.manifest;
    let made = make(files, &mut manifest, &inputs, target);
    if let Err(StoreError::Damaged { name, .. }) = &made
        && let Some(damaged) = inputs.iter().find(|entry| entry.numbers.name() == *name)
    {
        // If this fails, the next run finds the damage again.
        let _ = manifest.append(files, &[Record::Damaged(damaged.numbers.code())]);
    }
    let contents = made?;
    for entry in &inputs {
        let name = entry.numbers.name();
        files.remove(&name).map_err(StoreError::io(&name, "remove"))?;
    }
    files.sync_names().map_err(StoreError::io("", "sync"))?;
    let (after, samples) = (contents.len, contents.closing.samples);
    Ok(Packed { name: target.name(), files: inputs.len(), before, after, samples })
}

/// The files within a pack's range.
///
/// # Errors
/// If one is missing or not listed. Packing would hide that.
fn inputs(catalogue: &Catalogue, target: Numbers) -> Result<Vec<Entry>, StoreError> {
    let inputs: Vec<Entry> = catalogue.used.iter().filter(|entry| target.holds(entry.numbers)).copied().collect();
    let unlisted =
        inputs.iter().find(|entry| entry.listed.is_none()).map(|entry| (entry.numbers, "not in the manifest"));
    let is_there = |numbers: &Numbers| inputs.iter().any(|entry| entry.numbers == *numbers);
    let missing = catalogue.manifest.live.keys().find(|numbers| target.holds(**numbers) && !is_there(numbers));
    match unlisted.or(missing.map(|numbers| (*numbers, "missing"))) {
        Some((numbers, what)) => Err(StoreError::damaged(&numbers.name(), 0, format!("the file is {what}"))),
        None => Ok(inputs),
    }
}

/// Writes the pack and lists it.
fn make<F: Files>(
    files: &F,
    manifest: &mut Manifest,
    inputs: &[Entry],
    target: Numbers,
) -> Result<Contents, StoreError> {
    let archive = Archive::open_whole(files.clone(), inputs)?;
    let name = target.name();
    let unfinished = format!("{name}{UNFINISHED}");
    let own = manifest.archive.unwrap_or_default();
    let made = write(files, &archive, &unfinished, target.first..=target.last, own).and_then(|contents| {
        files.rename(&unfinished, &name).map_err(StoreError::io(&unfinished, "rename"))?;
        files.sync_names().map_err(StoreError::io("", "sync"))?;
        let record = Record::Closed(target.code(), contents);
        manifest.append(files, &[record]).map_err(StoreError::io(crate::manifest::MANIFEST, "append"))?;
        Ok(contents)
    });
    made.inspect_err(|_| {
        // Either of the two files may exist. The first error is the one to report.
        let _ = files.remove(&unfinished);
        if Manifest::load(files).is_ok_and(|there| !there.live.contains_key(&target)) {
            let _ = files.remove(&name);
        }
    })
}

/// A signal with its number in the pack.
struct Packing<'a> {
    id: u32,
    name: &'a str,
}

/// Writes the pack. Returns its contents.
fn write<F: Files>(
    files: &F,
    archive: &Archive<F>,
    name: &str,
    numbers: std::ops::RangeInclusive<u64>,
    own: u64,
) -> Result<Contents, StoreError> {
    let mut out = Output::create(files, name, *numbers.end())?;
    let (mut dictionary, mut gaps) = (Vec::new(), archive.gaps("", Span::ALL));
    let names = archive.names();
    let signals = || (0u32..).zip(&names).map(|(id, name)| Packing { id, name });
    for Packing { id, name } in signals() {
        dictionary.extend(archive.rows(name).into_iter().map(|row| Signal { id, ..row }));
        let own = archive.gaps(name, Span::ALL).into_iter().filter(|gap| gap.id.is_some());
        gaps.extend(own.map(|gap| Gap { id: Some(id), ..gap }));
    }
    gaps.sort_by_key(|gap| gap.at);
    let (table, chunks) = parquet::samples(&mut out, archive, signals(), &dictionary, &gaps)?;
    let mut head = Vec::new();
    Head { begun: 0, sync_ns: 0, merged: vec![*numbers.start(), *numbers.end()], archive: own }.write(&mut head);
    out.put(BlockKind::Head, 0, &head)?;
    let signals = parquet::index(&mut out, chunks)?;
    let dictionary_at = out.offset();
    out.rows(BlockKind::Dictionary, &dictionary, Signal::write)?;
    let gaps_at = out.offset();
    out.rows(BlockKind::Gaps, &gaps, |gap, out| gap.write(0, out))?;
    let directory = out.offset();
    out.rows(BlockKind::Directory, &signals, DirectoryEntry::write)?;
    out.append()?;
    let mut closing = Closing { archive: own, digest: out.digest.value(), samples: 0, span: Closing::NO_SPAN };
    for signal in &signals {
        closing.samples += signal.count;
        closing.reach(signal.first, signal.last);
    }
    let trailer = Trailer { dictionary: dictionary_at, gaps: gaps_at, directory, closing };
    out.put(BlockKind::Trailer, 0, &trailer.write())?;
    out.append()?;
    let end = table.end(out.sum);
    out.raw(&end)?;
    out.append()?;
    let len = out.sync()?;
    Ok(Contents { len, is_left: false, closing })
}

/// Passes the samples of a signal to `take` in chunks of up to `CHUNK` samples.
fn each_chunk<F: Files>(
    archive: &Archive<F>,
    name: &str,
    mut take: impl FnMut(&Chunk) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut next: Option<Chunk> = None;
    for sample in archive.samples(name, Span::ALL)? {
        let sample = sample?;
        let chunk = next.get_or_insert_with(|| Chunk::new(sample.datum.kind()));
        let pushed = if chunk.len() >= CHUNK { Err(Full::Count) } else { chunk.push(&sample) };
        match pushed {
            Ok(()) => {}
            Err(Full::TooLong) => return Err(StoreError::damaged(name, 0, "a value is longer than a chunk takes")),
            Err(_) => {
                take(chunk)?;
                chunk.reset(sample.datum.kind());
                // An empty chunk has room for any sample.
                let _ = chunk.push(&sample);
            }
        }
    }
    next.filter(|chunk| !chunk.is_empty()).map_or(Ok(()), |chunk| take(&chunk))
}
