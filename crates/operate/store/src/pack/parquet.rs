//! A pack as a Parquet file: row groups for other programs, and an index of the pages of each chunk.

use super::{Output, Packing, each_chunk};
use crate::archive::Archive;
use crate::error::StoreError;
use crate::files::Files;
use segment::block::BlockKind;
use segment::pack::DirectoryEntry;
use segment::parquet::{MAGIC, Pages, Table};
use segment::rows::{Gap, Signal};
use std::collections::HashMap;

/// Bytes per index block. Kept small because a follower of the log reads all chunks of a block at once.
const INDEX: usize = 8 << 10;

/// Chunks with the numbers of their signals, grouped by signal.
type Chunks = Vec<(u32, Pages)>;

/// Writes a row for each sample and each gap. Returns the table, to be ended later, and the positions of the chunks.
pub(super) fn samples<'a, F: Files>(
    out: &mut Output<'_, F>,
    archive: &Archive<F>,
    signals: impl Iterator<Item = Packing<'a>>,
    rows: &[Signal],
    gaps: &[Gap],
) -> Result<(Table, Chunks), StoreError> {
    let (mut table, mut chunks) = (Table::new(), Vec::new());
    out.raw(&MAGIC)?;
    let mut gaps_of: HashMap<Option<u32>, Vec<&Gap>> = HashMap::new();
    gaps.iter().for_each(|gap| gaps_of.entry(gap.id).or_default().push(gap));
    let mut rows = rows.chunk_by(|one, next| one.id == next.id).peekable();
    for Packing { id, name } in signals {
        group(out, &mut table, true, &mut chunks)?;
        table.signal(name, rows.next_if(|rows| rows.first().is_some_and(|row| row.id == id)).unwrap_or_default());
        each_chunk(archive, name, |chunk| {
            group(out, &mut table, false, &mut chunks)?;
            table.chunk(id, chunk);
            Ok(())
        })?;
        gaps_of.get(&Some(id)).into_iter().flatten().for_each(|gap| table.gap(gap, false));
    }
    gaps_of.get(&None).into_iter().flatten().for_each(|gap| table.gap(gap, true));
    let mut bytes = Vec::new();
    chunks.extend(table.group(&mut bytes));
    out.raw(&bytes)?;
    Ok((table, chunks))
}

/// Writes the row group if it is full.
fn group<F: Files>(
    out: &mut Output<'_, F>,
    table: &mut Table,
    is_signals_end: bool,
    chunks: &mut Chunks,
) -> Result<(), StoreError> {
    if !table.is_full(is_signals_end) {
        return Ok(());
    }
    let mut bytes = Vec::new();
    chunks.extend(table.group(&mut bytes));
    out.raw(&bytes)
}

/// Writes the index of the chunks. Returns the directory.
pub(super) fn index<F: Files>(out: &mut Output<'_, F>, chunks: Chunks) -> Result<Vec<DirectoryEntry>, StoreError> {
    let mut directory = Vec::new();
    for some in chunks.chunk_by(|(one, _), (next, _)| one == next) {
        let [(id, first), ..] = some else { continue };
        let last = some.last().map_or(first.last, |(_, last)| last.last);
        let count = some.iter().map(|(_, pages)| u64::from(pages.count)).sum();
        let index = out.offset();
        let blocks =
            out.rows_of(BlockKind::Pages, (&id.to_le_bytes(), INDEX), some, |(_, pages), out| pages.write(out))?;
        directory.push(DirectoryEntry { id: *id, blocks, index, first: first.first, last, count });
    }
    Ok(directory)
}
