//! Reading all of an archive, to say what is damaged.

use crate::error::StoreError;
use crate::files::Files;
use crate::part::{Numbers, parts};
use crate::scan::{Scan, Seen};
use segment::block::BlockKind;
use segment::{Bad, Chunk};
use segment::{pack, rows};
use std::collections::HashSet;

/// Bytes that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin in the file.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// What is wrong with them.
    pub why: String,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Blocks that are whole.
    pub blocks: u64,
    /// Samples in them.
    pub samples: u64,
    /// What is damaged.
    pub damage: Vec<Damage>,
    /// Bytes after the last whole block, as a crash leaves them, or as a logger that is not done yet.
    pub tail: u64,
}

/// Reads all files of an archive: each block by its checksum, each row and chunk as what it is.
///
/// # Errors
/// Where a file cannot be read at all.
pub fn verify<F: Files>(files: &F) -> Result<Vec<Checked>, StoreError> {
    let listed = files.list().map_err(StoreError::io("", "list"))?;
    parts(listed).0.iter().map(|(numbers, _)| file(files, &numbers.name())).collect()
}

/// Reads one file.
pub(crate) fn file<F: Files>(files: &F, name: &str) -> Result<Checked, StoreError> {
    let open = files.open(name).map_err(StoreError::io(name, "open"))?;
    let bytes = files.len(&open).map_err(StoreError::io(name, "ask for its length"))?;
    let mut checked = Checked { name: name.to_owned(), bytes, ..Checked::default() };
    let mut ids = HashSet::new();
    let mut last = None;
    let mut scan = Scan::new(files, &open, name)?;
    let is_pack = Numbers::of(name).is_some_and(|numbers| numbers.is_pack);
    while let Some(seen) = scan.next()? {
        match seen {
            Seen::Block { offset, header } => {
                checked.blocks += 1;
                last = Some(header.kind);
                if let Err(why) =
                    rows_of(header.kind, header.base, &scan.payload, &mut ids, &mut checked.samples, is_pack)
                {
                    checked.damage.push(Damage { offset, len: header.whole(), why: why.to_string() });
                }
            }
            Seen::Damage { offset, len, why } => checked.damage.push(Damage { offset, len, why: why.to_string() }),
            // A pack was whole before it had its name.
            Seen::Tail { offset, len, why } if is_pack => {
                checked.damage.push(Damage { offset, len, why: why.to_string() });
            }
            Seen::Tail { len, .. } => checked.tail = len,
        }
    }
    if is_pack && last != Some(BlockKind::Trailer) {
        checked.damage.push(Damage { offset: bytes, len: 0, why: "the trailer is missing".into() });
    }
    Ok(checked)
}

/// Why a block's rows cannot be read.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Bytes(#[from] Bad),
    #[error("no row says which signal {0} is")]
    Unknown(u32),
}

/// Whether all rows of a block can be read; in a segment a chunk's signal must be known by then.
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
        BlockKind::Index => drop(pack::entries(payload)?),
        BlockKind::Directory => drop(pack::directory(payload)?),
        BlockKind::Trailer => drop(pack::Trailer::read(payload)?),
    }
    Ok(())
}
