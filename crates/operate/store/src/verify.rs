//! Verification: reads a whole archive and reports damage.

use crate::catalogue::{Catalogue, Entry, Problem};
use crate::error::StoreError;
use crate::files::Files;
use crate::part::{CLOSED_UNLISTED, Part, end_of};
use crate::scan::{Scan, ScanItem};
use segment::block::{BlockKind, HEADER};
use segment::manifest::{CLOSING, Closing, Digest};
use segment::pack::TRAILER;
use segment::{Bad, Chunk};
use segment::{pack, parquet, rows};
use std::collections::HashSet;
use std::io::ErrorKind;

/// Bytes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Description of the fault.
    pub why: String,
}

/// Result of verifying a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Name of the file.
    pub name: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Valid blocks.
    pub blocks: u64,
    /// Samples in them.
    pub samples: u64,
    /// Damage found.
    pub damage: Vec<Damage>,
    /// Bytes after the last complete block, as after a crash or while a logger is active.
    pub tail: u64,
}

/// Verifies all files of an archive: the checksum of each block, the structure of each row and chunk, the digest of each file,
/// and the manifest. Missing files and a damaged manifest have their own entries.
///
/// # Errors
/// If a file cannot be read at all.
pub fn verify<F: Files>(files: &F) -> Result<Vec<Checked>, StoreError> {
    Ok(verify_while(files, |_| true)?.0)
}

/// As [`verify`], but stops when `goes_on` returns false. `goes_on` is called after each piece of a few MiB with the completed
/// share, 0 to 1. Returns the results, and whether they are complete.
///
/// # Errors
/// As [`verify`].
pub fn verify_while<F: Files>(files: &F, goes_on: impl FnMut(f64) -> bool) -> Result<(Vec<Checked>, bool), StoreError> {
    let catalogue = Catalogue::read(files)?;
    let mut all = Vec::new();
    let total = catalogue.used.iter().map(|entry| entry.len).sum();
    let mut watch = Watch { before: 0, total, goes_on };
    for entry in &catalogue.used {
        match file(files, entry, &mut watch) {
            // Packed or removed since the files were listed.
            Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                if Catalogue::read(files)?.used.iter().any(|other| other.numbers == entry.numbers) {
                    return Err(StoreError::io(&entry.numbers.name(), "open")(source));
                }
            }
            Ok(None) => return Ok((all, false)),
            Ok(Some(checked)) if entry.contents().is_none() && !checked.damage.is_empty() => {
                // The segment may have been closed since.
                let again = Catalogue::read(files)?.used.into_iter().find(|other| other.numbers == entry.numbers);
                let again = again.map(|entry| file(files, &entry, &mut watch)).transpose()?;
                match again.unwrap_or(Some(checked)) {
                    Some(checked) => all.push(checked),
                    None => return Ok((all, false)),
                }
            }
            checked => all.extend(checked?),
        }
        watch.before += entry.len;
    }
    for Problem { name, place: (offset, len), why, lost, .. } in catalogue.problems {
        let why = if lost > 0 { format!("{why}; {lost} samples are missing") } else { why };
        let damage = Damage { offset, len, why };
        match all.iter_mut().find(|checked| checked.name == name) {
            Some(checked) => checked.damage.insert(0, damage),
            None => all.push(Checked { name, damage: vec![damage], ..Checked::default() }),
        }
    }
    Ok((all, true))
}

/// Progress in bytes over all files.
struct Watch<G> {
    /// Bytes of the files before this one.
    before: u64,
    total: u64,
    goes_on: G,
}

impl<G: FnMut(f64) -> bool> Watch<G> {
    /// Reports progress, `at` bytes into a file. Returns false to stop.
    fn goes_on(&mut self, at: u64) -> bool {
        (self.goes_on)((self.before + at) as f64 / self.total.max(1) as f64)
    }
}

/// Verifies one file; `None` if it was stopped.
fn file<F: Files>(
    files: &F,
    entry: &Entry,
    watch: &mut Watch<impl FnMut(f64) -> bool>,
) -> Result<Option<Checked>, StoreError> {
    let numbers = entry.numbers;
    let name = &numbers.name();
    let open = files.open(name).map_err(StoreError::io(name, "open"))?;
    let bytes = files.len(&open).map_err(StoreError::io(name, "ask for its length"))?;
    let mut checked = Checked { name: name.to_owned(), bytes, ..Checked::default() };
    let mut ids = HashSet::new();
    let mut last = None;
    let is_pack = numbers.is_pack;
    let part = is_pack.then(|| Part::open(files, entry, 0, &|_| true)).transpose()?;
    let (begin, end) = part.as_ref().map_or((0, u64::MAX), |part| (part.blocks_begin(), part.blocks_end));
    let scan = Scan::between(files, &open, name, begin, (!is_pack).then_some((numbers.first, 0)))?;
    let mut scan = if is_pack { scan.of(numbers.last) } else { scan }.until(end);
    let proven = entry.contents().filter(|contents| contents.is_left).map(|contents| contents.len);
    let mut own = part.as_ref().and_then(|part| part.closing);
    let mut is_foreign = false;
    while let Some(seen) = scan.next()? {
        match seen {
            ScanItem::Block { offset, header } => {
                // Each file is read twice: for its blocks and for its digest.
                if !watch.goes_on(offset / 2) {
                    return Ok(None);
                }
                checked.blocks += 1;
                last = Some(header.kind);
                match header.kind {
                    BlockKind::Closing => own = Closing::read(&scan.payload).ok(),
                    BlockKind::Head if entry.archive.is_some() => {
                        is_foreign |= rows::Head::read(&scan.payload).ok().map(|head| head.archive) != entry.archive;
                    }
                    _ => {}
                }
                if let (Some(part), BlockKind::Pages) = (&part, header.kind) {
                    pages(files, part, (offset, &scan.payload), &mut checked);
                } else if let Err(why) =
                    rows_of(header.kind, header.base, &scan.payload, &mut ids, &mut checked.samples, is_pack)
                {
                    checked.damage.push(Damage { offset, len: header.whole(), why: why.to_string() });
                }
            }
            // Not yet safe when the logger abandoned the file.
            ScanItem::Damage { offset, len, .. } if proven.is_some_and(|proven| offset >= proven) => {
                checked.tail += len
            }
            ScanItem::Tail { offset, len, .. }
                if !is_pack && entry.may_be_torn() && proven.is_none_or(|proven| offset >= proven) =>
            {
                checked.tail += len;
            }
            ScanItem::Damage { offset, len, why } | ScanItem::Tail { offset, len, why } => {
                checked.damage.push(Damage { offset, len, why: why.to_string() });
            }
        }
    }
    if is_pack && last != Some(BlockKind::Trailer) {
        checked.damage.push(Damage { offset: bytes, len: 0, why: "the trailer is missing".into() });
    }
    let mut whole = |why: String| checked.damage.push(Damage { offset: 0, len: bytes, why });
    if is_foreign {
        whole("the file belongs to another archive".into());
    }
    if let Some(contents) = entry.contents() {
        let is_long = bytes > contents.len && !contents.is_left;
        if bytes < contents.len || is_long {
            whole(format!("the file has {bytes} bytes, expected {}", contents.len));
        }
        if !contents.is_left && own != Some(contents.closing) {
            whole("the file is another than the one that the manifest lists (its closing mark differs)".into());
        }
    }
    if own.is_some() && entry.listed.is_some() && entry.contents().is_none() {
        whole(CLOSED_UNLISTED.into());
    }
    let expected = entry.contents().map(|contents| contents.closing).or(own);
    if let Some(expected) = expected {
        let is_due = |at: u64| watch.goes_on(bytes / 2 + at / 2);
        let Some(found) = digest(files, &open, name, digested(entry, bytes, end), is_due)? else { return Ok(None) };
        if found != expected.digest {
            whole("the file's digest is another than when it was written".into());
        }
    }
    if is_pack && checked.damage.is_empty() && !is_as_written(files, &open, name)? {
        // The archive's own data are valid.
        let why = "the file's checksum differs: other programs may read its table differently".into();
        checked.damage.push(Damage { offset: 0, len: bytes, why });
    }
    Ok(Some(checked))
}

/// Number of bytes, from the beginning of a file, that its digest covers.
fn digested(entry: &Entry, bytes: u64, end: u64) -> u64 {
    match entry.contents().filter(|contents| contents.is_left) {
        Some(contents) => contents.len.min(bytes),
        None => {
            let mark = if entry.numbers.is_pack { TRAILER } else { CLOSING };
            bytes.min(end).saturating_sub((HEADER + mark) as u64)
        }
    }
}

/// Digest of the first bytes of a file; `None` if it was stopped.
fn digest<F: Files>(
    files: &F,
    file: &F::File,
    name: &str,
    len: u64,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Result<Option<u128>, StoreError> {
    let (mut digest, mut at, mut piece) = (Digest::default(), 0, vec![0; PIECE]);
    while at < len {
        if !goes_on(at) {
            return Ok(None);
        }
        let room = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
        let read = files.read_at(file, at, &mut piece[..room]).map_err(StoreError::io(name, "read"))?;
        if read == 0 {
            break;
        }
        digest.add(&piece[..read]);
        at += read as u64;
    }
    Ok(Some(digest.value()))
}

/// Reads the chunks that an index block lists.
fn pages<F: Files>(files: &F, part: &Part<F>, (offset, payload): (u64, &[u8]), checked: &mut Checked) {
    let entries = match parquet::entries(payload) {
        Ok((_, entries)) => entries,
        Err(why) => {
            checked.damage.push(Damage { offset, len: payload.len() as u64, why: why.to_string() });
            return;
        }
    };
    for entry in entries {
        match part.of_pages(files, &entry) {
            Ok(chunk) => checked.samples += chunk.len() as u64,
            Err(why) => {
                let why = match why {
                    StoreError::Damaged { why, .. } => why,
                    other => other.to_string(),
                };
                let begin = entry.pages.first().map_or(0, |page| page.offset);
                let len = entry.pages.iter().map(|page| u64::from(page.len)).sum();
                checked.damage.push(Damage { offset: begin, len, why: format!("of {} samples: {why}", entry.count) });
            }
        }
    }
}

/// Whether a Parquet file matches its checksum.
fn is_as_written<F: Files>(files: &F, file: &F::File, name: &str) -> Result<bool, StoreError> {
    let len = files.len(file).map_err(StoreError::io(name, "ask for its length"))?;
    let Some(body) = end_of(files, file, name)? else { return Ok(false) };
    let (mut sum, mut at, mut piece) = (0, 0, vec![0; PIECE]);
    while at < body {
        let room = usize::try_from(body - at).unwrap_or(PIECE).min(PIECE);
        let read = files.read_at(file, at, &mut piece[..room]).map_err(StoreError::io(name, "read"))?;
        if read == 0 {
            return Ok(false);
        }
        sum = parquet::sum(sum, &piece[..read]);
        at += read as u64;
    }
    let mut end = vec![0; usize::try_from(len - body).unwrap_or(usize::MAX)];
    let read = files.read_at(file, body, &mut end).map_err(StoreError::io(name, "read"))?;
    Ok(parquet::is_as_written(&end[..read], sum))
}

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// Reason why a block's rows cannot be read.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Bytes(#[from] Bad),
    #[error("no row names the signal {0}")]
    Unknown(u32),
    #[error("a block of a manifest")]
    Manifest,
}

/// Checks that all rows of a block are readable. In a segment, a chunk's signal must be defined before it.
fn rows_of(
    kind: BlockKind,
    base: i64,
    payload: &[u8],
    ids: &mut HashSet<u32>,
    samples: &mut u64,
    is_pack: bool,
) -> Result<(), Unreadable> {
    match kind {
        BlockKind::Head => drop(rows::Head::read(payload)?),
        BlockKind::Dictionary => {
            for row in rows::signals(payload) {
                ids.insert(row?.id);
            }
        }
        BlockKind::Gaps => rows::gaps(payload, base).try_for_each(|row| row.map(drop))?,
        BlockKind::Samples => {
            for row in rows::chunks(payload) {
                let (id, _, bytes) = row?;
                let chunk = Chunk::decode(bytes, base)?;
                if !is_pack && !ids.contains(&id) {
                    return Err(Unreadable::Unknown(id));
                }
                *samples += chunk.len() as u64;
            }
        }
        BlockKind::Pages => drop(parquet::entries(payload)?),
        BlockKind::Directory => drop(pack::directory(payload)?),
        BlockKind::Trailer => drop(pack::Trailer::read(payload)?),
        BlockKind::Closing => drop(Closing::read(payload)?),
        BlockKind::Manifest => return Err(Unreadable::Manifest),
    }
    Ok(())
}
