//! Making packs of segments, and larger packs of packs: the samples of each signal together, with an index.

use crate::archive::{Archive, Span};
use crate::error::StoreError;
use crate::files::Files;
use crate::mark;
use crate::part::{Form, Numbers, UNFINISHED, parts};
use output::Output;
use segment::pack::{DirectoryEntry, Trailer};
use segment::rows::{Gap, Head, Signal};
use segment::{Chunk, Full, block::BlockKind};

mod compact;
mod output;
mod parquet;

/// How many files become one pack.
pub const PACKED_AT_ONCE: usize = 8;

/// Bytes of files from which on they are left as they are.
const ENOUGH: u64 = 1 << 30;

/// Samples of a chunk: as few as its summary is worth, so that little is read where a span of time begins within one.
const CHUNK: usize = 1_024;

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
/// where `all` is wanted, and packs of another form. `open_from` is the first segment that is still written; what is behind a [`Mark`](crate::Mark) stays
/// as it is, too.
///
/// # Errors
/// Where files cannot be listed.
pub fn due<F: Files>(files: &F, open_from: u64, form: Form, all: bool) -> Result<Option<(u64, u64)>, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    let open_from = mark::held_from(files, &listed)?.map_or(open_from, |held| held.min(open_from));
    let (used, _) = parts(listed);
    let closed: Vec<_> = used.into_iter().filter(|(numbers, _)| numbers.last < open_from).collect();
    let ends = |some: &[(Numbers, u64)]| Some((some.first()?.0.first, some.last()?.0.last));
    let size = |some: &[(Numbers, u64)]| some.iter().map(|(_, len)| len).sum::<u64>();
    if all {
        let first = closed.iter().position(|(numbers, _)| !numbers.is_pack());
        let segments = |first: usize| closed[first..].iter().take_while(|(numbers, _)| !numbers.is_pack()).count();
        let segments = first.and_then(|first| ends(&closed[first..first + segments(first).min(PACKED_AT_ONCE)]));
        let other = closed.iter().find(|(numbers, _)| numbers.form.is_some_and(|other| other != form));
        return Ok(segments.or_else(|| other.map(|(numbers, _)| (numbers.first, numbers.last))));
    }
    // The smallest first: so each byte is written again once for each eightfold of size.
    let windows = closed.windows(PACKED_AT_ONCE).filter(|some| size(some) <= ENOUGH);
    let even = |some: &&[(Numbers, u64)]| {
        let (least, most) = (some.iter().map(|(_, len)| *len).min(), some.iter().map(|(_, len)| *len).max());
        most.unwrap_or(0) <= least.unwrap_or(0).max(1 << 16).saturating_mul(PACKED_AT_ONCE as u64)
    };
    Ok(windows.filter(even).min_by_key(|some| size(some)).and_then(ends))
}

/// The form of the newest pack; `None` where there is none.
///
/// # Errors
/// Where files cannot be listed.
pub fn form<F: Files>(files: &F) -> Result<Option<Form>, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    Ok(parts(listed).0.iter().rev().find_map(|(numbers, _)| numbers.form))
}

/// Makes one pack, in a form, of the files that hold the segments from one number to another, and removes them. A crash leaves either
/// them or the pack in use. Memory: the segments among them, where their chunks are (64 bytes
/// each), chunks that overlap; for a Parquet file a group of rows and where its chunks are (a hundred bytes each).
///
/// # Errors
/// Where something cannot be read or written; the files are as they were then. What is damaged is not packed: it stays, for
/// `verify` to tell.
pub fn pack<F: Files>(files: &F, first: u64, last: u64, form: Form) -> Result<Packed, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    let (used, _) = parts(listed);
    let inputs: Vec<(Numbers, u64)> =
        used.into_iter().filter(|(numbers, _)| first <= numbers.first && numbers.last <= last).collect();
    let archive = Archive::open_whole(files.clone(), &inputs)?;
    let target = Numbers::pack(first, last, form).name();
    let unfinished = format!("{target}{UNFINISHED}");
    let made = write(files, &archive, &unfinished, (first..=last, form)).and_then(|made| {
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

/// A signal, and what stands for it in the pack.
struct Packing<'a> {
    id: u32,
    name: &'a str,
}

/// Writes the pack; its length and how many samples are in it.
fn write<F: Files>(
    files: &F,
    archive: &Archive<F>,
    name: &str,
    (numbers, form): (std::ops::RangeInclusive<u64>, Form),
) -> Result<(u64, u64), StoreError> {
    let mut out = Output::create(files, name, *numbers.end())?;
    let head = |out: &mut Output<'_, F>| {
        let mut head = Vec::new();
        Head { begun: 0, sync_ns: 0, merged: vec![*numbers.start(), *numbers.end()] }.write(&mut head);
        out.put(BlockKind::Head, 0, &head)
    };
    let (mut dictionary, mut gaps) = (Vec::new(), archive.gaps("", Span::ALL));
    let names = archive.names();
    let signals = || (0u32..).zip(&names).map(|(id, name)| Packing { id, name });
    for Packing { id, name } in signals() {
        dictionary.extend(archive.rows(name).into_iter().map(|row| Signal { id, ..row }));
        let own = archive.gaps(name, Span::ALL).into_iter().filter(|gap| gap.id.is_some());
        gaps.extend(own.map(|gap| Gap { id: Some(id), ..gap }));
    }
    gaps.sort_by_key(|gap| gap.at);
    let (signals, table) = match form {
        Form::Compact => {
            head(&mut out)?;
            (compact::samples(&mut out, archive, signals())?, None)
        }
        Form::Parquet => {
            let (table, chunks) = parquet::samples(&mut out, archive, signals(), &dictionary, &gaps)?;
            head(&mut out)?;
            (parquet::index(&mut out, chunks)?, Some(table))
        }
    };
    let dictionary_at = out.offset();
    out.rows(BlockKind::Dictionary, &dictionary, Signal::write)?;
    let gaps_at = out.offset();
    out.rows(BlockKind::Gaps, &gaps, |gap, out| gap.write(0, out))?;
    let directory = out.offset();
    out.rows(BlockKind::Directory, &signals, DirectoryEntry::write)?;
    let trailer = Trailer { dictionary: dictionary_at, gaps: gaps_at, directory };
    out.put(BlockKind::Trailer, 0, &trailer.write())?;
    out.append()?;
    if let Some(table) = table {
        let end = table.end(out.sum);
        out.raw(&end)?;
        out.append()?;
    }
    let len = out.sync()?;
    Ok((len, signals.iter().map(|signal| signal.count).sum()))
}

/// Hands on the samples of a signal in chunks.
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
                // An empty chunk takes what the one before had no room for.
                let _ = chunk.push(&sample);
            }
        }
    }
    next.filter(|chunk| !chunk.is_empty()).map_or(Ok(()), |chunk| take(&chunk))
}
