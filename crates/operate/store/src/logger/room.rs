//! Limits of an archive's size, and removal of old files when they are reached.
//!
//! Old files are removed only to compensate for the archive's own growth. If another user of the disk fills it, removing files of
//! the archive would only give that user room. Then nothing is removed, and the logger reports it.

use super::Logger;
use crate::account::WhenFull;
use crate::catalogue::Catalogue;
use crate::files::Files;
use crate::mark;
use crate::part::is_own;
use segment::manifest::Record;
use std::io::{self, ErrorKind};

/// Assumed overhead of the file system per file, in bytes, in addition to its blocks.
const FILE_OVERHEAD: u64 = 1 << 10;

impl<F: Files> Logger<F> {
    /// Enforces the limits of total size and free space before a new segment.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        let size = self.config.segment_size.0;
        let keep = self.config.keep_free.0;
        self.reach = self.reach.max(self.within_reach()?);
        loop {
            let total: u64 = self.files.list()?.iter().filter(|(name, _)| is_own(name)).map(|(_, len)| len).sum();
            let is_too_much = self.config.total_max.is_some_and(|max| total.saturating_add(size) > max.0);
            let is_too_little = keep > 0 && self.files.free()? < keep.saturating_add(size);
            if !is_too_much && !is_too_little {
                return Ok(());
            }
            let is_removed = if is_too_much {
                self.config.when_full == WhenFull::RemoveOldest && self.remove_oldest(self.next)
            } else {
                self.frees_room(self.next)
            };
            if !is_removed {
                return Err(ErrorKind::StorageFull.into());
            }
        }
    }

    /// Size of the archive plus free space, in bytes.
    fn within_reach(&self) -> io::Result<u64> {
        Ok(self.files.used()?.saturating_add(self.files.free()?))
    }

    /// Removes the oldest file below a number because the disk is full, if so configured and if the archive itself has filled the
    /// disk. Returns true if a file was removed.
    pub(super) fn frees_room(&mut self, below: u64) -> bool {
        if self.config.when_full == WhenFull::Stop {
            return false;
        }
        match self.taken_by_others() {
            Ok(0) => self.remove_oldest(below),
            Ok(bytes) => {
                let why = format!(
                    "other files have taken {bytes} bytes since the archive's start; nothing of the archive is removed for \
                     that: free some room, or move the archive to a disk of its own"
                );
                self.failed("make room", &io::Error::new(ErrorKind::StorageFull, why));
                false
            }
            Err(error) => {
                self.failed("ask for the free space", &error);
                false
            }
        }
    }

    /// By how many bytes the sum of archive and free space has shrunk from its maximum at the start of a segment. 0 if the
    /// overhead of the file system may explain it.
    fn taken_by_others(&self) -> io::Result<u64> {
        let files = self.files.list()?.iter().filter(|(name, _)| is_own(name)).count() as u64;
        let missing = self.reach.saturating_sub(self.within_reach()?);
        let overhead = files * FILE_OVERHEAD + self.reach / 64;
        Ok(if missing > overhead { missing } else { 0 })
    }

    /// Removes the oldest file whose segments are all below a number. Returns false if there is none.
    pub(super) fn remove_oldest(&mut self, below: u64) -> bool {
        let Ok(catalogue) = Catalogue::read(&self.files) else { return false };
        let is_old = |listed: &crate::catalogue::Entry| listed.listed.is_some() && listed.numbers.last < below;
        let Some(oldest) = catalogue.used.into_iter().find(is_old).map(|entry| entry.numbers) else { return false };
        let unsent = mark::unsent(&self.files, oldest);
        self.records.push(Record::Removed(oldest.code()));
        // If there is no room for the entry, the removal makes room, and the entry is written after it.
        let is_listed = self.try_list().is_ok();
        match self.files.remove(&oldest.name()).and_then(|()| self.files.sync_names()) {
            Ok(()) => {
                self.account.removed += 1;
                if unsent > 0 {
                    self.account.unsent += unsent;
                    self.last_unsent = Some(oldest.name());
                }
            }
            Err(error) => {
                self.failed("remove", &error);
                return false;
            }
        }
        if !is_listed {
            self.list();
        }
        true
    }
}
