//! Room for what is logged: the bounds of an archive, and what is removed when they are reached.
//!
//! Old files are removed for the archive's own growth alone. If another user of the disk fills it, removing files of the archive would
//! only give that user room: then nothing is removed, and the logger reports it.

use super::Logger;
use crate::account::WhenFull;
use crate::catalogue::Catalogue;
use crate::files::Files;
use segment::manifest::Record;
use std::io::{self, ErrorKind};

/// What the file system may need for a file beyond its blocks, bytes.
const FILE_OVERHEAD: u64 = 1 << 10;

impl<F: Files> Logger<F> {
    /// Keeps to the bounds of all files and of the disk, before a segment is begun.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        let size = self.config.segment_size.0;
        let keep = self.config.keep_free.0;
        self.reach = self.reach.max(self.within_reach()?);
        loop {
            let total: u64 = self.files.list()?.iter().map(|(_, len)| len).sum();
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

    /// Bytes of the archive and of the disk's free space.
    fn within_reach(&self) -> io::Result<u64> {
        Ok(self.files.used()?.saturating_add(self.files.free()?))
    }

    /// Removes the oldest file below a number because the disk is full, if that is the rule, and if the archive has filled it; whether a
    /// file was removed.
    pub(super) fn frees_room(&mut self, below: u64) -> bool {
        if self.config.when_full == WhenFull::Stop {
            return false;
        }
        match self.taken_by_others() {
            Ok(0) => self.remove_oldest(below),
            Ok(bytes) => {
                let why = format!(
                    "another user of the disk has taken {bytes} bytes; nothing of the archive is removed for that: free \
                     some room, or move the archive to a disk of its own"
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

    /// By how many bytes archive and free space became fewer since a segment was begun with the most; 0 where that may be what the file
    /// system needs for itself.
    fn taken_by_others(&self) -> io::Result<u64> {
        let files = self.files.list()?.len() as u64;
        let missing = self.reach.saturating_sub(self.within_reach()?);
        let overhead = files * FILE_OVERHEAD + self.reach / 64;
        Ok(if missing > overhead { missing } else { 0 })
    }

    /// Removes the oldest file whose segments are all below a number; whether there was one.
    pub(super) fn remove_oldest(&mut self, below: u64) -> bool {
        let Ok(catalogue) = Catalogue::read(&self.files) else { return false };
        let is_old = |listed: &crate::catalogue::Entry| listed.listed.is_some() && listed.numbers.last < below;
        let Some(oldest) = catalogue.used.into_iter().find(is_old).map(|entry| entry.numbers) else { return false };
        self.records.push(Record::Removed(oldest.code()));
        // Without room for the entry the file makes room for it.
        let is_listed = self.try_list().is_ok();
        match self.files.remove(&oldest.name()).and_then(|()| self.files.sync_names()) {
            Ok(()) => self.account.removed += 1,
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
