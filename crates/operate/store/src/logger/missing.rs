//! Detection of archive files that another program removed, changed or replaced while the logger runs.

use super::Logger;
use super::disk::LOCK;
use crate::catalogue::Entry;
use crate::error::StoreError;
use crate::files::Files;
use crate::manifest::{Listed, MANIFEST, Manifest};
use crate::part::{Numbers, Part};
use segment::manifest::{Contents, Record};
use std::collections::HashSet;
use std::io::{self, ErrorKind};

impl<F: Files> Logger<F> {
    /// Checks that the folder at the archive's path is the one whose lock is held, and that the open segment is a file of this
    /// folder with the length that was written. Otherwise the segment is abandoned, and the next one is in the folder at the path.
    pub(super) fn check_place(&mut self) {
        let Some(lock) = &self.lock else { return };
        let fault = match self.files.is_in_place(F::locked(lock), LOCK) {
            Ok(true) => None,
            Ok(false) => {
                let why = "another program moved, removed or replaced the archive's folder; restore the folder with all files";
                Some(io::Error::other(why))
            }
            Err(error) => Some(error),
        };
        if let Some(error) = fault {
            self.abandon("continue", &error);
            self.lock = None;
            self.is_archive_away |= self.archive.take().is_some();
            return;
        }
        let Some(segment) = &self.segment else { return };
        let name = Numbers::segment(segment.number).name();
        let found = self.files.is_in_place(&segment.file, &name).and_then(|is_in_place| match is_in_place {
            true => self.files.len(&segment.file).map(Some),
            false => Ok(None),
        });
        let error = match found {
            Ok(Some(len)) if len == segment.len => return,
            Ok(Some(len)) => {
                let expected = segment.len;
                io::Error::other(format!(
                    "another program changed it: {len} bytes, expected {expected}; restore it from a copy"
                ))
            }
            Ok(None) => io::Error::other("another program removed or replaced it; restore it from a copy"),
            Err(error) => error,
        };
        self.abandon(&format!("continue {name}"), &error);
    }

    /// Abandons the open segment because another program changed it. Unconfirmed gaps and rows are written again.
    fn abandon(&mut self, doing: &str, error: &io::Error) {
        self.failed(doing, error);
        let Some(segment) = &mut self.segment else { return };
        self.changed = Some((Numbers::segment(segment.number), segment.safe_contents()));
        let waiting = segment.waiting.take();
        self.confirmed = None;
        self.leave_segment();
        if let Some(waiting) = waiting {
            self.take_back(waiting, error);
        }
    }

    /// Counts the safe samples that can no longer be read in an abandoned segment as lost. Waits until the folder is available.
    pub(super) fn count_changed(&mut self) {
        let Some((numbers, contents)) = self.changed.filter(|_| self.lock.is_some()) else { return };
        match self.lost_in(numbers, contents) {
            Ok(lost) => {
                self.changed = None;
                self.account.safe = self.account.safe.saturating_sub(lost);
                self.account.lost += lost;
            }
            Err(error) => self.failed("count the lost samples", &io::Error::other(error)),
        }
    }

    /// Counts the safe samples of an abandoned segment as unsure, because the logger ends before its folder is available again.
    pub(super) fn leave_changed(&mut self) {
        let Some((_, contents)) = self.changed.take() else { return };
        let count = contents.closing.samples.min(self.account.safe);
        self.account.safe -= count;
        self.account.unsure += count;
    }

    /// Number of a segment's samples that cannot be read.
    fn lost_in(&self, numbers: Numbers, contents: Contents) -> Result<u64, StoreError> {
        let name = numbers.name();
        let len = match self.files.open(&name).and_then(|file| self.files.len(&file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(contents.closing.samples),
            len => len.map_err(StoreError::io(&name, "open"))?,
        };
        let listed = Some(Listed { contents: Some(contents), is_damaged: false });
        let entry = Entry { numbers, len, archive: self.manifest.archive, listed };
        let part = Part::open(&self.files, &entry, 0, &|_| false)?;
        Ok(part.problems.iter().map(|problem| problem.lost).sum::<u64>().min(contents.closing.samples))
    }

    /// Names of files that the manifest lists and the folder does not contain. Packing may run at the same time, so a file counts
    /// only if the manifest listed it both at the previous call and now. The first call therefore finds none. Lists the folder,
    /// and reads the manifest if it has changed.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn missing(&mut self) -> Result<Vec<String>, StoreError> {
        if self.lock.is_none() {
            // The disk fails; that is reported separately.
            return Ok(Vec::new());
        }
        // List before reading the manifest: packing lists a new file before it removes the old ones.
        let listed = self.files.list().map_err(StoreError::io("", "list"))?;
        let listed: HashSet<&str> = listed.iter().map(|(name, _)| name.as_str()).collect();
        let before = self.inspected.take();
        let is_same = before.as_ref().is_some_and(|before| before.is_current(&self.files));
        let now = if is_same { None } else { Some(Manifest::load(&self.files)?) };
        let Some(old) = before.as_ref() else {
            self.inspected = now;
            return Ok(Vec::new());
        };
        let new = now.as_ref().unwrap_or(old);
        // The logger may remove a file before it writes the manifest's entry.
        let is_removed =
            |file: Numbers| self.records.iter().any(|one| matches!(one, Record::Removed(name) if *name == file.code()));
        let both = new.live.keys().copied().filter(|file| old.live.contains_key(file) && !is_removed(*file));
        let mut missing: Vec<String> = both.map(Numbers::name).filter(|name| !listed.contains(&**name)).collect();
        if old.archive.is_some() && !listed.contains(MANIFEST) {
            missing.push(MANIFEST.to_owned());
        }
        self.inspected = now.or(before);
        Ok(missing)
    }
}
