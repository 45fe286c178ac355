//! The logger's disk side: writes blocks to segments, makes room for them, and accounts for losses while the disk is full or
//! fails.

use super::Logger;
use crate::archive::Archive;
use crate::catalogue::Catalogue;
use crate::files::Files;
use crate::part::Numbers;
use segment::Kind;
use segment::block::{self, BlockKind};
use segment::manifest::{Closing, Contents, Digest, Record};
use segment::rows::{Cause, Gap, Head, Signal};
use std::io::{self, ErrorKind};

/// Name of the lock file.
pub(crate) const LOCK: &str = "lock";

/// Maximum consecutive segment numbers that are skipped because a file of that name exists.
const TAKEN_MAX: u64 = 1_000;

/// Pause after a disk error before the next attempt.
const PAUSE_NS: i64 = 1_000_000_000;

/// Maximum gaps kept in memory while the disk fails.
const GAPS_KEPT_MAX: usize = 1_024;

/// The segment being written.
pub(super) struct Segment<T> {
    pub(super) file: T,
    pub(super) number: u64,
    blocks: u32,
    pub(super) len: u64,
    /// Bytes that are safe on the disk.
    pub(super) safe_len: u64,
    /// Summary of the appended contents. The digest is kept in `digest`.
    closing: Closing,
    digest: Digest,
    /// Summary of the contents that are safe.
    safe: Closing,
    /// Monotonic time at which it is closed.
    pub(super) until: i64,
    /// Appended data that are not safe yet; `None` if all are.
    pub(super) waiting: Option<Waiting>,
}

impl<T> Segment<T> {
    /// The contents that are safe, without a closing mark.
    pub(super) const fn safe_contents(&self) -> Contents {
        Contents { len: self.safe_len, is_left: true, closing: self.safe }
    }
}

/// The last successful sync of a segment. A file system that fails at that moment may have dropped the data despite the
/// success: ext4 reports success for a transaction that it aborts (Linux 6.18, about 1 of 40 failures during a sync).
pub(super) struct Confirmed {
    number: u64,
    /// Length with the confirmed samples.
    len: u64,
    /// State before them.
    before: (u64, Closing),
    /// The data of that sync, so that its gaps and rows can be written again.
    data: Waiting,
}

/// Data that were appended to a segment and are not safe yet. Of samples only the number is kept. Gaps and rows are kept
/// completely, so that they can be written again.
#[derive(Default)]
pub(super) struct Waiting {
    count: u64,
    /// The first stamp.
    first: Option<i64>,
    gaps: Vec<Gap>,
    rows: Vec<Signal>,
    trouble: Option<Gap>,
    unsure: Option<Gap>,
}

impl Waiting {
    /// Limits the memory that is kept after a sync.
    fn keep_within_bounds(&mut self) {
        self.gaps.truncate(GAPS_KEPT_MAX);
        self.gaps.shrink_to_fit();
        self.rows.truncate(GAPS_KEPT_MAX);
        self.rows.shrink_to_fit();
    }
}

impl<F: Files> Logger<F> {
    /// Syncs the segment. If that fails, the state of everything appended since the last sync is unknown. A second sync proves
    /// nothing, because the kernel may have dropped the pages. So the segment is abandoned. Its unconfirmed gaps and rows are
    /// written again to the next segment, with a gap for the samples.
    pub(super) fn make_safe(&mut self) {
        let Some(segment) = &mut self.segment else { return };
        let Some(mut waiting) = segment.waiting.take() else { return };
        match self.files.sync(&segment.file) {
            Ok(()) => {
                self.account.safe += waiting.count;
                waiting.keep_within_bounds();
                let (number, len, before) = (segment.number, segment.len, (segment.safe_len, segment.safe));
                self.confirmed = Some(Confirmed { number, len, before, data: waiting });
                segment.safe_len = segment.len;
                segment.safe = Closing { digest: segment.digest.value(), ..segment.closing };
                self.safe_at = Some(self.now);
            }
            Err(error) => {
                self.failed("sync", &error);
                self.leave_segment();
                self.take_back(waiting, &error);
            }
        }
    }

    /// Keeps the unconfirmed gaps and rows for the next segment.
    pub(super) fn take_back(&mut self, waiting: Waiting, error: &io::Error) {
        self.account.unsure += waiting.count;
        self.trouble = join(waiting.trouble, self.trouble.take());
        let at = waiting.first.unwrap_or(i64::MAX);
        let new = Gap { id: None, at, cause: Cause::Unsure, lost: waiting.count };
        let new = Some(new).filter(|gap| gap.lost > 0);
        self.unsure = join(join(waiting.unsure, self.unsure.take()), new);
        self.gaps.splice(0..0, waiting.gaps);
        self.rows.splice(0..0, waiting.rows);
        self.keep_within_bounds();
        self.repeat_at = self.now.saturating_add(PAUSE_NS);
        if is_full(error) {
            // Some file systems report a full disk only on sync.
            self.unsure.iter_mut().for_each(|gap| gap.cause = Cause::DiskFull);
            let before = self.open_from();
            if !self.frees_room(before) {
                self.retry_at = self.repeat_at;
            }
        }
    }

    /// Limits the memory used while the disk fails.
    fn keep_within_bounds(&mut self) {
        self.gaps.truncate(GAPS_KEPT_MAX);
        self.rows.truncate(GAPS_KEPT_MAX);
    }

    /// Appends the block with gaps and the required dictionary rows. After an error the samples are tried once more, in a new
    /// segment, and are then counted as lost. While the disk fails, there is one attempt per second.
    pub(super) fn write(&mut self) {
        let is_new = !(self.samples.is_empty() && self.gaps.is_empty() && self.rows.is_empty());
        let is_again = (self.trouble.is_some() || self.unsure.is_some()) && self.now >= self.repeat_at;
        if !is_new && !is_again {
            return;
        }
        let is_paused = self.now < self.retry_at;
        match if is_paused { Err(None) } else { self.try_write().map_err(Some) } {
            Ok(()) => (self.repeat_at, self.retry_at) = (i64::MIN, i64::MIN),
            Err(error) => {
                let cause =
                    error.as_ref().map(|error| if is_full(error) { Cause::DiskFull } else { Cause::DiskFailed });
                // After a failed sync there is a pause only if the disk was full.
                let new = Gap { id: None, at: self.first, cause: Cause::DiskFull, lost: 0 };
                let trouble = self.trouble.get_or_insert(new);
                trouble.cause = cause.unwrap_or(trouble.cause);
                trouble.at = trouble.at.min(self.first);
                if cause == Some(Cause::DiskFailed) {
                    self.lock = None;
                    self.is_archive_away |= self.archive.take().is_some();
                }
                trouble.lost += self.count;
                self.account.lost += self.count;
                if !is_paused {
                    self.retry_at = self.now.saturating_add(PAUSE_NS);
                    self.repeat_at = self.retry_at;
                }
                self.keep_within_bounds();
            }
        }
        self.samples.clear();
        self.ids.clear();
        self.count = 0;
        (self.first, self.last) = (i64::MAX, i64::MIN);
    }

    fn try_write(&mut self) -> io::Result<()> {
        if self.lock.is_none() {
            self.regain().inspect_err(|error| self.failed("take the lock again", error))?;
        }
        let before = self.open_from();
        let mut is_second = false;
        loop {
            let Err(error) = self.append() else { return Ok(()) };
            self.failed("append", &error);
            self.give_up_segment(is_full(&error));
            if is_full(&error) {
                if !self.frees_room(before) {
                    return Err(error);
                }
            } else if std::mem::replace(&mut is_second, true) {
                return Err(error);
            }
        }
    }

    /// Takes the lock again after a disk failure, and continues after the existing files. A missing lock file means that the
    /// archive is not there: the folder may be an empty mount point.
    fn regain(&mut self) -> io::Result<()> {
        let listed = self.files.list()?;
        if listed.iter().all(|(name, _)| name != LOCK) {
            return Err(io::Error::new(ErrorKind::NotFound, "the archive is missing"));
        }
        let lock = self.files.lock(LOCK)?;
        self.next = self.next.max(Catalogue::read(&self.files).map_err(io::Error::other)?.next());
        if self.is_archive_away {
            self.archive = Some(Archive::open(self.files.clone()).map_err(io::Error::other)?);
            self.is_archive_away = false;
        }
        self.recall_confirmed()?;
        self.lock = Some(lock);
        Ok(())
    }

    /// After a disk failure, checks that the data of the last successful sync are on the disk. If not, its samples are lost, and
    /// its gaps and rows are written again.
    fn recall_confirmed(&mut self) -> io::Result<()> {
        let Some(Confirmed { number, len, .. }) = &self.confirmed else { return Ok(()) };
        let name = Numbers::segment(*number);
        let is_there = match self.files.open(&name.name()) {
            Ok(file) => self.files.len(&file)? >= *len,
            // Packed or removed since. If the disk has dropped the whole file, the manifest names it as missing.
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        let Some(Confirmed { before, data, .. }) = self.confirmed.take().filter(|_| !is_there) else { return Ok(()) };
        let Waiting { count, first, gaps, rows, trouble, unsure } = data;
        self.account.safe -= count;
        self.account.lost += count;
        let gap = Gap { id: None, at: first.unwrap_or(i64::MAX), cause: Cause::DiskFailed, lost: count };
        self.trouble = join(Some(gap).filter(|gap| gap.lost > 0), self.trouble.take());
        self.gaps.splice(0..0, trouble.into_iter().chain(unsure).chain(gaps));
        self.rows.splice(0..0, rows);
        for record in &mut self.records {
            if let Record::Closed(code, contents) = record
                && *code == name.code()
            {
                (contents.len, contents.closing) = before;
            }
        }
        Ok(())
    }

    /// Abandons the segment: a part of a block may be at its end, so nothing may follow. If it contains no complete block, its
    /// file is removed, or stays in use, empty, if the disk is full: there may be no room to list the removal.
    fn give_up_segment(&mut self, is_full: bool) {
        self.make_safe();
        let Some(segment) = self.segment.take_if(|segment| segment.len == 0) else {
            self.leave_segment();
            return;
        };
        let name = Numbers::segment(segment.number);
        if is_full && self.files.cut(&name.name(), 0).is_ok() {
            // Their rows are not in it.
            self.signals.iter_mut().filter(|state| state.row_in == segment.number).for_each(|state| state.row_in = 0);
            self.segment = Some(segment);
            return;
        }
        match self.files.remove(&name.name()) {
            Ok(()) => self.records.push(Record::Removed(name.code())),
            Err(error) => {
                self.failed("remove", &error);
                self.segment = Some(segment);
                self.leave_segment();
            }
        }
    }

    /// Records how much of the segment is safe. The segment gets no closing mark.
    pub(super) fn leave_segment(&mut self) {
        let Some(segment) = self.segment.take() else { return };
        self.records.push(Record::Closed(Numbers::segment(segment.number).code(), segment.safe_contents()));
    }

    /// Appends the closing mark to a segment that is completely safe.
    pub(super) fn close_segment(&mut self) {
        let Some(segment) = &mut self.segment else { return };
        if segment.len == 0 {
            return self.leave_segment();
        }
        let (mut bytes, mut payload) = (Vec::new(), Vec::new());
        segment.safe.write(&mut payload);
        block::write(&mut bytes, BlockKind::Closing, segment.number, segment.blocks, 0, &payload);
        let written = self.files.append(&mut segment.file, &bytes).and_then(|()| self.files.sync(&segment.file));
        if let Err(error) = written {
            self.failed("close a segment", &error);
            self.leave_segment();
            return;
        }
        let len = segment.len + bytes.len() as u64;
        let contents = Contents { len, is_left: false, closing: segment.safe };
        let (name, left) = (Numbers::segment(segment.number), segment.safe_contents());
        self.records.push(Record::Closed(name.code(), contents));
        self.account.bytes += bytes.len() as u64;
        self.segment = None;
        // If the disk has no room for the entry, readers must not find a closing mark that is not listed.
        if self.try_list().is_err_and(|error| is_full(&error)) && self.files.cut(&name.name(), left.len).is_ok() {
            self.records.pop();
            self.records.push(Record::Closed(name.code(), left));
        }
    }

    /// Appends pending entries to the manifest. They remain pending until this succeeds; each sync tries again.
    pub(super) fn list(&mut self) {
        // While samples are lost or unsure, the last error must remain the one that explains it.
        if !self.is_losing()
            && self.lock.is_some()
            && let Err(error) = self.try_list()
        {
            self.failed("write the manifest", &error);
        }
    }

    pub(super) fn try_list(&mut self) -> io::Result<()> {
        if !self.records.is_empty() {
            self.manifest.append(&self.files, &self.records)?;
            self.records.clear();
        }
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let mut out = Vec::with_capacity(self.samples.len() + 4_096);
        if self.segment.is_none() {
            self.make_room()?;
            self.begin()?;
        }
        let Some(segment) = &mut self.segment else { return Err(ErrorKind::NotFound.into()) };
        let (number, mut block) = (segment.number, segment.blocks);
        let mut put = |out: &mut Vec<u8>, kind, base, payload: &[u8]| {
            block::write(out, kind, number, block, base, payload);
            block += 1;
        };
        if segment.len == 0 {
            let mut head = Vec::new();
            let archive = self.manifest.archive.unwrap_or_default();
            let sync_ns = self.config.sync.0 as u64;
            Head { begun: self.base, sync_ns, merged: Vec::new(), archive }.write(&mut head);
            put(&mut out, BlockKind::Head, 0, &head);
        }
        let mut dictionary = Vec::new();
        self.rows.iter().for_each(|row| row.write(&mut dictionary));
        for id in self.ids.iter().copied().chain(self.gaps.iter().filter_map(|gap| gap.id)) {
            let state = &mut self.signals[id as usize];
            if state.row_in == number {
                continue;
            }
            match state.row(id) {
                Some(row) => {
                    row.write(&mut dictionary);
                    state.row_in = number;
                }
                // A signal without a value has no type yet. Its first value replaces this guess.
                None => {
                    let (name, about) = (state.name.clone(), state.about.clone());
                    let kind = Kind::Number(base::FieldType::F64);
                    Signal { id, since: state.since, kind, name, about }.write(&mut dictionary);
                }
            }
        }
        if !dictionary.is_empty() {
            put(&mut out, BlockKind::Dictionary, 0, &dictionary);
        }
        let mut gaps = Vec::new();
        let all = || self.gaps.iter().chain(&self.trouble).chain(&self.unsure);
        let base = all().next().map_or(0, |gap| gap.at);
        all().for_each(|gap| gap.write(base, &mut gaps));
        if !gaps.is_empty() {
            put(&mut out, BlockKind::Gaps, base, &gaps);
        }
        if !self.samples.is_empty() {
            put(&mut out, BlockKind::Samples, self.base, &self.samples);
        }
        self.files.append(&mut segment.file, &out)?;
        let waiting = segment.waiting.get_or_insert_default();
        segment.blocks = block;
        segment.len += out.len() as u64;
        segment.digest.add(&out);
        if self.count > 0 {
            segment.closing.samples += self.count;
            segment.closing.reach(self.first, self.last);
        }
        waiting.count += self.count;
        waiting.first = waiting.first.or((self.count > 0).then_some(self.first));
        waiting.gaps.append(&mut self.gaps);
        waiting.rows.append(&mut self.rows);
        waiting.trouble = join(waiting.trouble, self.trouble.take());
        waiting.unsure = join(waiting.unsure, self.unsure.take());
        self.account.bytes += out.len() as u64;
        Ok(())
    }

    /// Creates an empty segment.
    fn begin(&mut self) -> io::Result<()> {
        let mut number = self.next;
        let file = loop {
            match self.files.create(&Numbers::segment(number).name()) {
                // Something that is not a segment has this name: leave it alone and use the next number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number - self.next < TAKEN_MAX => number += 1,
                made => break made,
            }
        };
        self.next = number + 1;
        let file = file?;
        if let Err(error) = self.files.sync_names() {
            // The file is empty.
            let _ = self.files.remove(&Numbers::segment(number).name());
            return Err(error);
        }
        self.records.push(Record::Opened(Numbers::segment(number).code()));
        // Samples do not wait for the manifest. A failed entry is tried again after the samples are safe.
        let _ = self.try_list();
        let archive = self.manifest.archive.unwrap_or_default();
        let until = self.now.saturating_add(self.config.segment_age.0);
        let closing = Closing { archive, digest: 0, samples: 0, span: Closing::NO_SPAN };
        let digest = Digest::default();
        let safe = Closing { digest: digest.value(), ..closing };
        self.segment =
            Some(Segment { file, number, blocks: 0, len: 0, safe_len: 0, closing, digest, safe, until, waiting: None });
        Ok(())
    }

    pub(super) fn failed(&mut self, what: &str, error: &io::Error) {
        self.account.failures += 1;
        self.last_error = Some(format!("failed to {what}: {error}; folder {}", self.files.place()));
    }
}

/// Merges two gaps: starts at the earlier instant and counts the samples of both.
fn join(one: Option<Gap>, other: Option<Gap>) -> Option<Gap> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Gap { at: one.at.min(other.at), lost: one.lost + other.lost, ..one }),
        (one, other) => one.or(other),
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}
