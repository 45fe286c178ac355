//! The manifest: lists the files of an archive and their contents, as a log of changes.
//!
//! It is a file of blocks and is only appended to. Each block has a checksum and the digest of all bytes before it, so a changed,
//! removed or moved block is detected. When most entries are about files that no longer exist, the whole manifest is rewritten.
//!
//! The order of writes makes damage distinguishable from a crash:
//! - A segment's file is created, then listed, then written.
//! - A closing mark is written, then listed.
//! - A pack is created, then listed, then the files that it replaces are removed.

use crate::error::StoreError;
use crate::files::Files;
use crate::part::{Numbers, UNFINISHED};
use segment::block::{self, BlockKind};
use segment::manifest::{Contents, Digest, Name, Record, read_records, write_records};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};

/// Name of the file.
pub(crate) const MANIFEST: &str = "manifest";

/// Maximum size that is read, in bytes.
const LEN_MAX: u64 = 1 << 30;

/// A manifest of at most this many bytes is not rewritten.
const ENOUGH: u64 = 2 << 10;

/// Approximate size of an entry in bytes.
const ENTRY: u64 = 80;

/// Serializes appends of the logger's and the packing threads. The archive's lock excludes other processes.
static APPENDING: Mutex<()> = Mutex::new(());

/// State of a listed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// `None` while it is written.
    pub(crate) contents: Option<Contents>,
    /// The file is damaged; it is not packed.
    pub(crate) is_damaged: bool,
}

/// Damage of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    #[error("its beginning is missing")]
    Beginning,
    #[error("an entry is cut off or changed")]
    Changed,
    #[error("a block is none of a manifest")]
    Foreign,
    #[error("an entry cannot be understood")]
    Entry,
    #[error("entries before this one are missing or changed")]
    Before,
    #[error("an entry is at another place than it was written to, or of another archive")]
    Place,
}

/// Contents of the manifest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifest {
    /// Number of the archive; `None` if there is no manifest, or its beginning is unreadable.
    pub(crate) archive: Option<u64>,
    pub(crate) live: BTreeMap<Numbers, Listed>,
    /// Files that were removed or replaced by a pack.
    pub(crate) gone: HashSet<Numbers>,
    pub(crate) is_rebuilt: bool,
    /// Offset and description of the first damage.
    pub(crate) damage: Option<(u64, Damage)>,
    /// Only its end is damaged, as after a crash.
    pub(crate) is_torn: bool,
    pub(crate) len: u64,
    blocks: u32,
    digest: Digest,
    /// The end of the file is in an unknown state: rewrite it next time.
    is_unsure: bool,
}

impl Manifest {
    /// Reads the manifest; empty if there is none.
    ///
    /// # Errors
    /// The operating system's error.
    pub(crate) fn load<F: Files>(files: &F) -> Result<Self, StoreError> {
        Self::read(files).map_err(StoreError::io(MANIFEST, "read"))
    }

    fn read<F: Files>(files: &F) -> io::Result<Self> {
        let mut manifest = Self::default();
        let file = match files.open(MANIFEST) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(manifest),
            opened => opened?,
        };
        let len = files.len(&file)?;
        if len > LEN_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("it has {len} bytes, expected {LEN_MAX} at most"),
            ));
        }
        let mut bytes = vec![0; len as usize];
        let read = files.read_at(&file, 0, &mut bytes)?;
        bytes.truncate(read);
        manifest.take(&bytes);
        if manifest.archive.is_none() {
            manifest.damage.get_or_insert((0, Damage::Beginning));
        }
        Ok(manifest)
    }

    /// Whether the file still has the length that was read.
    pub(crate) fn is_current<F: Files>(&self, files: &F) -> bool {
        !self.is_unsure && files.open(MANIFEST).and_then(|file| files.len(&file)).is_ok_and(|len| len == self.len)
    }

    /// Takes the blocks that follow those already read.
    fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = self.len;
            let whole = block::read(rest);
            let why = match &whole {
                Ok((header, payload, after)) => match self.block(header, payload) {
                    Ok(()) => {
                        let len = rest.len() - after.len();
                        self.digest.add(&rest[..len]);
                        self.len += len as u64;
                        self.blocks += 1;
                        rest = after;
                        continue;
                    }
                    Err(why) => why,
                },
                Err(_) => Damage::Changed,
            };
            // Complete entries after the damage are read too.
            let next =
                (1..rest.len()).find(|at| rest[*at..].starts_with(&block::MAGIC) && block::read(&rest[*at..]).is_ok());
            self.damage.get_or_insert((offset, why));
            self.is_torn = next.is_none() && whole.is_err();
            let len = next.unwrap_or(rest.len());
            self.digest.add(&rest[..len]);
            self.len += len as u64;
            rest = &rest[len..];
            if let Ok((header, payload, _)) = block::read(rest) {
                // Continue from this block's number, so that the damage is reported only once.
                self.blocks = header.number;
                self.adopt(&header, payload);
                let whole = header.whole() as usize;
                self.digest.add(&rest[..whole]);
                self.len += whole as u64;
                self.blocks += 1;
                rest = &rest[whole..];
            }
        }
    }

    /// Takes a block that must be the next one.
    fn block(&mut self, header: &block::Header, payload: &[u8]) -> Result<(), Damage> {
        if header.kind != BlockKind::Manifest {
            return Err(Damage::Foreign);
        }
        let Ok((before, records)) = read_records(payload) else { return Err(Damage::Entry) };
        if self.damage.is_none() && before != self.digest.value() {
            return Err(Damage::Before);
        }
        if header.number != self.blocks || self.archive.is_some_and(|archive| archive != header.segment) {
            return Err(Damage::Place);
        }
        if self.archive.is_none()
            && !matches!(records.first(), Some(Record::Begins { archive, .. }) if *archive == header.segment)
        {
            return Err(Damage::Beginning);
        }
        records.iter().for_each(|record| self.apply(record));
        Ok(())
    }

    /// Takes a complete block that follows damage.
    fn adopt(&mut self, header: &block::Header, payload: &[u8]) {
        if header.kind != BlockKind::Manifest || self.archive.is_some_and(|archive| archive != header.segment) {
            return;
        }
        self.archive = Some(header.segment);
        if let Ok((_, records)) = read_records(payload) {
            records.iter().for_each(|record| self.apply(record));
        }
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Begins { archive, is_rebuilt } => (self.archive, self.is_rebuilt) = (Some(*archive), *is_rebuilt),
            Record::Opened(name) => {
                if let Some(numbers) = Numbers::named(*name) {
                    self.live.insert(numbers, Listed { contents: None, is_damaged: false });
                }
            }
            Record::Closed(name, contents) => {
                let Some(numbers) = Numbers::named(*name) else { return };
                let replaced: Vec<Numbers> =
                    self.live.keys().copied().filter(|other| *other != numbers && numbers.holds(*other)).collect();
                for other in replaced {
                    self.live.remove(&other);
                    self.gone.insert(other);
                }
                self.gone.remove(&numbers);
                self.live.insert(numbers, Listed { contents: Some(*contents), is_damaged: false });
            }
            Record::Removed(name) => {
                if let Some(numbers) = Numbers::named(*name) {
                    self.live.remove(&numbers);
                    self.gone.insert(numbers);
                }
            }
            Record::Damaged(name) => {
                let listed = Numbers::named(*name).and_then(|numbers| self.live.get_mut(&numbers));
                listed.into_iter().for_each(|listed| listed.is_damaged = true);
            }
        }
    }

    /// Appends entries. They are safe on the disk when this returns.
    ///
    /// # Errors
    /// The disk's error. The entries are then in memory but not in the file; [`rewrite`](Self::rewrite) writes all of them.
    pub(crate) fn append<F: Files>(&mut self, files: &F, records: &[Record]) -> io::Result<()> {
        let _one = APPENDING.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have appended since the last read.
        if !self.is_current(files) {
            let there = Self::read(files)?;
            if there.archive.is_none() && self.len == 0 {
                // A new archive: the manifest was never written.
                records.iter().for_each(|record| self.apply(record));
                return self.replace(files);
            }
            if there.archive.is_none() {
                self.replace(files)?;
                return Err(io::Error::new(ErrorKind::NotFound, "it was missing or unreadable, and was written again"));
            }
            *self = there;
        }
        let Some(archive) = self.archive else { return Err(ErrorKind::NotFound.into()) };
        let is_packed =
            |name: &Name| Numbers::named(*name).is_some_and(|numbers| !numbers.is_pack && self.is_packed(numbers));
        // After a failure, entries may be appended twice. A file may have been packed in between.
        let records: Vec<Record> = records
            .iter()
            .filter(|record| !matches!(record, Record::Opened(name) | Record::Closed(name, _) if is_packed(name)))
            .copied()
            .collect();
        records.iter().for_each(|record| self.apply(record));
        if self.damage.is_some() || self.is_long() {
            return self.replace(files);
        }
        let mut bytes = Vec::new();
        let payload = write_records(self.digest.value(), &records);
        block::write(&mut bytes, BlockKind::Manifest, archive, self.blocks, 0, &payload);
        self.is_unsure = true;
        let mut file = files.append_to(MANIFEST)?;
        if let Err(error) = files.append(&mut file, &bytes) {
            // Readers should not find half an entry. If this fails too, they do, until the manifest is rewritten.
            let _ = files.cut(MANIFEST, self.len);
            return Err(error);
        }
        files.sync(&file)?;
        self.is_unsure = false;
        self.digest.add(&bytes);
        self.len += bytes.len() as u64;
        self.blocks += 1;
        Ok(())
    }

    /// Whether a pack has replaced a file.
    fn is_packed(&self, numbers: Numbers) -> bool {
        self.gone.contains(&numbers)
            || self.live.keys().any(|pack| *pack != numbers && pack.is_pack && pack.holds(numbers))
    }

    /// Whether most entries are about files that no longer exist.
    fn is_long(&self) -> bool {
        self.len > ENOUGH && self.len > 4 * ENTRY * (self.live.len() as u64 + 2)
    }

    /// Manifest of a new archive, or a replacement for a missing one, with a given archive number. It is not written yet.
    pub(crate) fn new(archive: Option<u64>, is_rebuilt: bool) -> Self {
        let archive = archive.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
        Self { archive: Some(archive), is_rebuilt, is_unsure: true, ..Self::default() }
    }

    /// Rewrites the manifest from the present state, replacing the file.
    pub(crate) fn rewrite<F: Files>(&mut self, files: &F) -> Result<(), StoreError> {
        let _one = APPENDING.lock().unwrap_or_else(PoisonError::into_inner);
        self.replace(files).map_err(StoreError::io(MANIFEST, "write"))
    }

    fn replace<F: Files>(&mut self, files: &F) -> io::Result<()> {
        let Some(archive) = self.archive else { return Err(ErrorKind::NotFound.into()) };
        let mut records = vec![Record::Begins { archive, is_rebuilt: self.is_rebuilt }];
        for (numbers, listed) in &self.live {
            let name = numbers.code();
            records.push(listed.contents.map_or(Record::Opened(name), |contents| Record::Closed(name, contents)));
            records.extend(listed.is_damaged.then_some(Record::Damaged(name)));
        }
        let (mut bytes, mut digest, mut blocks) = (Vec::new(), Digest::default(), 0);
        for some in records.chunks(1 << 12) {
            let begin = bytes.len();
            let payload = write_records(digest.value(), some);
            block::write(&mut bytes, BlockKind::Manifest, archive, blocks, 0, &payload);
            digest.add(&bytes[begin..]);
            blocks += 1;
        }
        self.is_unsure = true;
        let unfinished = format!("{MANIFEST}{UNFINISHED}");
        // May be left from a crash.
        let _ = files.remove(&unfinished);
        let written = (|| {
            let mut file = files.create(&unfinished)?;
            files.append(&mut file, &bytes)?;
            files.sync(&file)?;
            files.rename(&unfinished, MANIFEST)?;
            files.sync_names()
        })();
        if written.is_err() {
            // The first error is the one to report.
            let _ = files.remove(&unfinished);
            return written;
        }
        (self.len, self.blocks, self.digest) = (bytes.len() as u64, blocks, digest);
        (self.damage, self.is_torn, self.is_unsure) = (None, false, false);
        self.gone.clear();
        Ok(())
    }
}

/// Code of a pack in the manifest; that of a segment is 0.
const PACK_CODE: u8 = 2;

impl Numbers {
    /// Code of the file in the manifest.
    pub(crate) const fn code(self) -> (u64, u64, u8) {
        (self.first, self.last, if self.is_pack { PACK_CODE } else { 0 })
    }

    fn named((first, last, code): (u64, u64, u8)) -> Option<Self> {
        matches!(code, 0 | PACK_CODE).then_some(Self { first, last, is_pack: code == PACK_CODE })
    }

    /// Whether this file's range of segments includes the other's.
    pub(crate) const fn holds(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}
