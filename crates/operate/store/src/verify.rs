//! Reading all of an archive, to say what is damaged.

use crate::error::StoreError;
use crate::files::Files;
use crate::part::{Form, Numbers, Part, end_of, parts};
use crate::scan::{Scan, Seen};
use segment::block::BlockKind;
use segment::{Bad, Chunk};
use segment::{pack, parquet, rows};
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
    parts(listed).0.iter().map(|(numbers, _)| file(files, *numbers)).collect()
}

/// Reads one file.
fn file<F: Files>(files: &F, numbers: Numbers) -> Result<Checked, StoreError> {
    let name = &numbers.name();
    let open = files.open(name).map_err(StoreError::io(name, "open"))?;
    let bytes = files.len(&open).map_err(StoreError::io(name, "ask for its length"))?;
    let mut checked = Checked { name: name.to_owned(), bytes, ..Checked::default() };
    let mut ids = HashSet::new();
    let mut last = None;
    let is_pack = numbers.is_pack();
    let part = (numbers.form == Some(Form::Parquet)).then(|| Part::open(files, numbers, 0, &|_| true)).transpose()?;
    let (begin, end) = part.as_ref().map_or((0, u64::MAX), |part| (part.blocks_begin(), part.blocks_end));
    let mut scan = Scan::between(files, &open, name, begin, None)?.until(end);
    while let Some(seen) = scan.next()? {
        match seen {
            Seen::Block { offset, header } => {
                checked.blocks += 1;
                last = Some(header.kind);
                if let (Some(part), BlockKind::Pages) = (&part, header.kind) {
                    pages(files, part, (offset, &scan.payload), &mut checked);
                } else if let Err(why) =
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
    if part.is_some() && checked.damage.is_empty() && !is_as_written(files, &open, name)? {
        // What an archive's readers need is whole.
        let why = "the file's checksum is another: its table may tell other programs something else".into();
        checked.damage.push(Damage { offset: 0, len: bytes, why });
    }
    Ok(checked)
}

/// Reads the chunks that a block of an index tells of.
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

/// Whether all of a Parquet file is as its checksum says.
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

/// Bytes that are summed at a time.
const PIECE: usize = 1 << 20;

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
        BlockKind::Pages => drop(parquet::entries(payload)?),
        BlockKind::Directory => drop(pack::directory(payload)?),
        BlockKind::Trailer => drop(pack::Trailer::read(payload)?),
    }
    Ok(())
}
