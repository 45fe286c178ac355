//! The archive's own pack format: one block per chunk, and an index of chunks per signal.

use super::{Output, Packing, each_chunk};
use crate::archive::Archive;
use crate::error::StoreError;
use crate::files::Files;
use segment::Chunk;
use segment::block::{BlockKind, HEADER};
use segment::pack::{DirectoryEntry, Entry};
use segment::rows;

/// Writes the samples of all signals, each followed by its index. Returns the directory.
pub(super) fn samples<'a, F: Files>(
    out: &mut Output<'_, F>,
    archive: &Archive<F>,
    signals: impl Iterator<Item = Packing<'a>>,
) -> Result<Vec<DirectoryEntry>, StoreError> {
    let mut directory = Vec::new();
    for Packing { id, name } in signals {
        let mut entries = Vec::new();
        each_chunk(archive, name, |chunk| {
            entries.extend(block(out, id, chunk)?);
            Ok(())
        })?;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
        let count = entries.iter().map(|entry| u64::from(entry.count)).sum();
        let (first, last, index) = (first.first, last.last, out.offset());
        let blocks = out.rows(BlockKind::Index, &entries, Entry::write)?;
        directory.push(DirectoryEntry { id, blocks, index, first, last, count });
    }
    Ok(directory)
}

fn block<F: Files>(out: &mut Output<'_, F>, id: u32, chunk: &Chunk) -> Result<Option<Entry>, StoreError> {
    let (Some(&first), Some(&last)) = (chunk.stamps().first(), chunk.stamps().last()) else { return Ok(None) };
    let base = first.div_euclid(1_000_000_000).saturating_mul(1_000_000_000);
    let (mut bytes, mut payload) = (Vec::new(), Vec::new());
    chunk.encode(base, &mut bytes);
    rows::put_chunk(&mut payload, id, &bytes);
    let (offset, len) = (out.offset(), (HEADER + payload.len()) as u32);
    out.put(BlockKind::Samples, base, &payload)?;
    Ok(Some(Entry { offset, len, count: chunk.len() as u32, first, last, summary: chunk.summary(0..chunk.len()) }))
}
