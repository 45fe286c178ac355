//! Startup: handles files that an earlier logger left open, that a crash left behind, or that the manifest does not list.

use crate::catalogue::{Catalogue, Entry};
use crate::error::StoreError;
use crate::files::Files;
use crate::manifest::Manifest;
use crate::part::{Numbers, Part};
use segment::block::{self, BlockKind};
use segment::manifest::{Closing, Contents, Digest, Record};
use segment::{Chunk, rows};

/// Message when the manifest was rebuilt.
const REBUILT: &str = "the archive's manifest was missing or damaged, and was written again from the present files: files that are \
                       missing cannot be detected";

/// State after startup.
pub(super) struct StartState {
    pub(super) manifest: Manifest,
    /// Entries to append to the manifest.
    pub(super) records: Vec<Record>,
    /// Message to report.
    pub(super) note: Option<&'static str>,
}

/// Brings the manifest and the files into agreement: removes leftovers, and gives each file that was left open an entry with its
/// digest.
pub(super) fn start_state<F: Files>(files: &F, catalogue: Catalogue) -> Result<StartState, StoreError> {
    let Catalogue { mut manifest, used, left, .. } = catalogue;
    if !left.is_empty() {
        // Sync the names of packs before the files that they replace are removed.
        files.sync_names().map_err(StoreError::io("", "sync"))?;
    }
    for numbers in left {
        let name = numbers.name();
        files.remove(&name).map_err(StoreError::io(&name, "remove"))?;
    }
    let is_damaged = manifest.damage.is_some() && !manifest.is_torn;
    let was_rebuilt = manifest.is_rebuilt;
    if manifest.archive.is_none() {
        let known = used.iter().find_map(|entry| archive_of(files, entry).transpose()).transpose()?;
        manifest = Manifest::new(known, !used.is_empty());
    } else if is_damaged {
        manifest.is_rebuilt = true;
    }
    let mut records = Vec::new();
    for entry in used.iter().filter(|entry| entry.contents().is_none()) {
        let is_ours = entry.listed.is_some() || archive_of(files, entry)? == manifest.archive;
        if is_ours && let Some(contents) = contents_of(files, entry.numbers, manifest.archive.unwrap_or_default())? {
            records.push(Record::Closed(entry.numbers.code(), contents));
        }
    }
    if manifest.damage.is_some() || manifest.len == 0 {
        // If this fails, each new entry tries again.
        let _ = manifest.rewrite(files);
    }
    let is_news = manifest.is_rebuilt && !was_rebuilt;
    Ok(StartState { manifest, records, note: is_news.then_some(REBUILT) })
}

/// The archive number that a file contains.
fn archive_of<F: Files>(files: &F, entry: &Entry) -> Result<Option<u64>, StoreError> {
    let part = Part::open(files, &Entry { archive: None, listed: None, ..*entry }, 0, &|_| false)?;
    Ok(part.closing.map(|closing| closing.archive).or(part.archive))
}

/// Contents of a file that has no entry; `None` for a pack without an end, which is damaged.
fn contents_of<F: Files>(files: &F, numbers: Numbers, archive: u64) -> Result<Option<Contents>, StoreError> {
    let name = numbers.name();
    let file = files.open(&name).map_err(StoreError::io(&name, "open"))?;
    let len = files.len(&file).map_err(StoreError::io(&name, "ask for its length"))?;
    if numbers.is_pack {
        let entry = Entry { numbers, len, archive: None, listed: None };
        let part = Part::open(files, &entry, 0, &|_| false)?;
        return Ok(part.closing.map(|closing| Contents { len, is_left: false, closing }));
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let read = files.read_at(&file, 0, &mut bytes).map_err(StoreError::io(&name, "read"))?;
    bytes.truncate(read);
    Ok(Some(of_segment(&bytes, archive)))
}

/// Contents of a segment up to its closing mark, or up to its last complete block.
fn of_segment(bytes: &[u8], archive: u64) -> Contents {
    let mut closing = Closing { archive, digest: 0, samples: 0, span: Closing::NO_SPAN };
    let (mut at, mut proven) = (0, 0);
    while at < bytes.len() {
        let Ok((header, payload, rest)) = block::read(&bytes[at..]) else {
            let next = bytes[at + 1..].windows(block::MAGIC.len()).position(|some| some == block::MAGIC);
            at = next.map_or(bytes.len(), |next| at + 1 + next);
            continue;
        };
        if header.kind == BlockKind::Closing
            && rest.is_empty()
            && let Ok(closing) = Closing::read(payload)
        {
            return Contents { len: bytes.len() as u64, is_left: false, closing };
        }
        if header.kind == BlockKind::Samples {
            for (_, _, chunk) in rows::chunks(payload).map_while(Result::ok) {
                let Ok((first, last, count)) = Chunk::span(chunk, header.base) else { continue };
                closing.samples += count as u64;
                closing.reach(first, last);
            }
        }
        at = bytes.len() - rest.len();
        proven = at;
    }
    let mut digest = Digest::default();
    digest.add(&bytes[..proven]);
    Contents { len: proven as u64, is_left: true, closing: Closing { digest: digest.value(), ..closing } }
}
