//! The journal: one line of JSON per event, in files that start with the present state.
//!
//! A file is created atomically with its beginning; afterwards lines are only appended. A kill or a power cut leaves at most one
//! incomplete line. Each line ends with its checksum. Readers skip incomplete and damaged lines.
//!
//! After a failed write or sync, the state of all lines since the last sync is unknown. A later successful sync proves nothing,
//! because the kernel may have dropped the pages. So nothing more is appended to that file. These lines and the following ones
//! are kept in memory and written to the next file, after the state of all alarms.

use alarm::{Entry, Now, Panel, Wall};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use sys::lock::FileLock;
use sys::whole::Survives;

/// Size in bytes at which a new file is started.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Maximum bytes of unsynced lines kept in memory; beyond that the oldest are dropped.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Text before and after the checksum of a line: CRC-32C of everything before this text, as eight hexadecimal digits.
const SUM_BEGINS: &[u8] = b",\"crc32c\":\"";
const SUM_ENDS: &[u8] = b"\"}";
/// Maximum length of a line.
const LINE_BYTES_MAX: u64 = 1 << 20;
const DAY_SECS: u64 = 86_400;
const SUFFIX: &str = ".journal";
/// Maximum file number: with one file per second, it is reached after 300 years.
const NUMBER_MAX: u64 = 9_999_999_999;

/// Error of the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Error of the operating system.
    #[error("{}: failed to {doing}: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// Another process writes this journal.
    #[error("{}: another process writes this journal; end it, or set another `folder`", .0.display())]
    Taken(PathBuf),
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> JournalError {
    move |error| JournalError::Io { path: path.to_owned(), doing, error }
}

/// Retention of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Age in days at which a file is removed.
    pub days: u32,
    /// Maximum size of all files in bytes. The oldest are removed first; the present file and the previous one are kept.
    pub bytes: u64,
}

/// Writer of a journal.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    /// Held while the journal is written.
    lock: FileLock,
    /// `None` if no file could be created yet.
    file: Option<File>,
    number: u64,
    length: u64,
    /// Synced bytes of the file.
    safe_length: u64,
    /// Unsynced lines, oldest first, and their size.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Reason why nothing more is appended to the file.
    failed: Option<String>,
    keep: Retention,
    sync: fn(&File) -> io::Result<()>,
}

/// Result of opening a journal.
#[derive(Debug)]
pub struct JournalReport {
    /// Number of lines that could not be read.
    pub unread: u64,
    /// Reason why no new file could be created, for example a full disk; [`Journal::renew`] tries again.
    pub unwritten: Option<JournalError>,
}

impl Journal {
    /// Restores `panel` from the last file in `folder`, and creates a new file if the disk has room.
    ///
    /// # Errors
    /// If the folder cannot be used; [`JournalError::Taken`].
    pub fn open(
        folder: &Path,
        keep: Retention,
        panel: &mut Panel,
        now: Now,
    ) -> Result<(Self, JournalReport), JournalError> {
        let lock = take(folder)?;
        let numbers = numbers(folder).map_err(failed(folder, "read it"))?;
        let mut unread = 0;
        if let Some(last) = numbers.last() {
            let path = file_of(folder, *last);
            unread = each_line(&path, &mut |entry| panel.restore(entry, now)).map_err(failed(&path, "read it"))?;
        }
        let last = numbers.last().copied().unwrap_or_default();
        let (folder, file) = (folder.to_owned(), None);
        let mut journal = Self {
            folder,
            lock,
            file,
            number: last,
            length: 0,
            safe_length: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            failed: None,
            keep,
            sync: File::sync_data,
        };
        let unwritten = journal.begin(panel, true, now).and_then(|()| journal.forget(now)).err();
        Ok((journal, JournalReport { unread, unwritten }))
    }

    /// Appends a line. With `safe`, it is synced before this returns; otherwise by the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// The disk's error. A line with `safe` is then dropped. Any other line is written to the next file that
    /// [`renew`](Self::renew) creates.
    pub fn add(&mut self, entry: &Entry, safe: bool) -> Result<(), JournalError> {
        let mut line = Vec::new();
        write_line(&mut line, entry).map_err(self.failed("write it"))?;
        let written = self.write(&line);
        self.wait(line);
        let written = written.and_then(|()| if safe { self.sync() } else { Ok(()) });
        if written.is_err() && safe {
            self.waiting_bytes -= self.waiting.pop_back().map_or(0, |line| line.len());
        }
        written
    }

    fn write(&mut self, line: &[u8]) -> Result<(), JournalError> {
        let failed = self.failed("write it");
        if let Some(why) = &self.failed {
            return Err(failed(io::Error::other(format!("nothing is added to this file since: {why}"))));
        }
        let Some(file) = &mut self.file else {
            return Err(failed(io::Error::other("it could not be begun")));
        };
        match file.write_all(line) {
            Ok(()) => {
                self.length += line.len() as u64;
                Ok(())
            }
            Err(error) => Err(self.give_up("write it", error)),
        }
    }

    /// Keeps a line until it is synced, within the memory limit.
    fn wait(&mut self, line: Vec<u8>) {
        self.waiting_bytes += line.len();
        self.waiting.push_back(line);
        while self.waiting_bytes > WAITING_BYTES_MAX && self.waiting.len() > 1 {
            self.waiting_bytes -= self.waiting.pop_front().map_or(0, |line| line.len());
        }
    }

    /// Stops appending to the file.
    fn give_up(&mut self, doing: &'static str, error: io::Error) -> JournalError {
        self.failed.get_or_insert_with(|| format!("failed to {doing}: {error}"));
        self.failed(doing)(error)
    }

    /// Checks that the file and the lock are the ones at their paths, and that the file has the length that was written.
    fn check_place(&mut self) -> Result<(), JournalError> {
        let Some(file) = self.file.as_ref().filter(|_| self.failed.is_none()) else { return Ok(()) };
        let found = sys::whole::is_at(file, &file_of(&self.folder, self.number))
            .and_then(|is_there| Ok(is_there && sys::whole::is_at(self.lock.file(), &lock_of(&self.folder))?))
            .and_then(|is_there| Ok((is_there, file.metadata()?.len())));
        let why = match found {
            Ok((true, length)) if length == self.length => return Ok(()),
            Ok((_, length)) => {
                // When the next file begins, this one is truncated to its safe length, which must not extend it.
                self.safe_length = self.safe_length.min(length);
                io::Error::other(
                    "another program removed, replaced or changed it or its folder; restore earlier events from a copy",
                )
            }
            Err(error) => error,
        };
        Err(self.give_up("continue it", why))
    }

    /// Syncs all appended lines.
    ///
    /// # Errors
    /// The disk's error, or that another program changed the file or its folder.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.check_place()?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        let failed = self.failed("write it to the disk");
        if let Some(why) = &self.failed {
            return Err(failed(io::Error::other(format!("nothing is added to this file since: {why}"))));
        }
        let Some(file) = &self.file else { return Err(failed(io::Error::other("it could not be begun"))) };
        (self.sync)(file).map_err(|error| self.give_up("write it to the disk", error))?;
        self.safe_length = self.length;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    /// If the file has reached its maximum size, starts a new one and removes old files.
    ///
    /// # Errors
    /// The disk's error; the present file then remains in use.
    pub fn turn(&mut self, panel: &Panel, now: Now) -> Result<(), JournalError> {
        if self.length < FILE_BYTES_MAX {
            return Ok(());
        }
        self.sync()?;
        self.renew(panel, now)
    }

    /// Starts a new file with the state of all alarms and the unsynced lines, for example after a time of disk errors. If
    /// another program removed or replaced the folder, the file is in the folder at the path, which is created if missing.
    ///
    /// # Errors
    /// The disk's error; the present file then remains in use.
    pub fn renew(&mut self, panel: &Panel, now: Now) -> Result<(), JournalError> {
        if !sys::whole::is_at(self.lock.file(), &lock_of(&self.folder)).unwrap_or(true) {
            self.lock = take(&self.folder)?;
            let there = numbers(&self.folder).map_err(failed(&self.folder, "read it"))?;
            self.number = self.number.max(there.last().copied().unwrap_or_default());
        }
        // If there is no file yet, this is the start of the journal.
        self.begin(panel, self.file.is_none(), now)?;
        self.forget(now)
    }

    fn begin(&mut self, panel: &Panel, started: bool, now: Now) -> Result<(), JournalError> {
        let lines = self.waiting.make_contiguous();
        let (file, length) = begin(&self.folder, self.number + 1, panel, started, lines, now)?;
        if let Some(before) = self.file.replace(file).filter(|_| !self.waiting.is_empty()) {
            // The unsynced lines are in the new file. If this fails, they may be in both.
            let _ = before.set_len(self.safe_length);
        }
        (self.length, self.safe_length, self.number) = (length, length, self.number + 1);
        (self.failed, self.waiting_bytes) = (None, 0);
        self.waiting.clear();
        Ok(())
    }

    /// Removes files that exceed the maximum age or total size.
    fn forget(&mut self, now: Now) -> Result<(), JournalError> {
        let keep = u64::from(self.keep.days) * DAY_SECS;
        let oldest = (now.wall.0.max(0) as u64 / 1_000_000_000).saturating_sub(keep);
        let mut bytes = 0_u64;
        for number in numbers(&self.folder).map_err(failed(&self.folder, "read it"))?.into_iter().rev() {
            let path = file_of(&self.folder, number);
            bytes = bytes.saturating_add(std::fs::metadata(&path).map_or(0, |data| data.len()));
            let is_old = number < self.number && written_secs(&path).is_some_and(|secs| secs < oldest);
            if is_old || number + 1 < self.number && bytes > self.keep.bytes {
                sys::whole::remove(&path).map_err(failed(&path, "remove it"))?;
            }
        }
        Ok(())
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> JournalError + use<> {
        let path = file_of(&self.folder, self.number);
        move |error| JournalError::Io { path, doing, error }
    }
}

/// Passes all entries from time `from` on to `entry`, oldest first, with whether the entry is part of the state at the start of a
/// file. Returns the number of unreadable lines. Works while the journal is being written.
///
/// # Errors
/// If the folder cannot be read.
pub fn read(folder: &Path, from: Wall, entry: &mut dyn FnMut(Entry, bool)) -> Result<u64, JournalError> {
    let mut unread = 0;
    for number in numbers(folder).map_err(failed(folder, "read it"))? {
        let path = file_of(folder, number);
        // A file last written before that time has no later entries.
        if written_secs(&path).is_some_and(|secs| (secs as i64) < from.0.div_euclid(1_000_000_000)) {
            continue;
        }
        let mut standing = 0;
        unread += each_line(&path, &mut |one| {
            let is_snapshot = standing > 0;
            standing = match one.what {
                alarm::EntryContent::Begins { states, .. } => states,
                _ => standing.saturating_sub(1),
            };
            if one.at >= from {
                entry(one, is_snapshot);
            }
        })
        .map_err(failed(&path, "read it"))?;
    }
    Ok(unread)
}

/// Time of a file's last write, in seconds since 1970.
fn written_secs(path: &Path) -> Option<u64> {
    let modified = std::fs::metadata(path).ok()?.modified().ok()?;
    Some(modified.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.join("lock")
}

/// Creates the folder if it is missing, and takes its lock.
fn take(folder: &Path) -> Result<FileLock, JournalError> {
    DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(failed(folder, "make it"))?;
    let path = lock_of(folder);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o640).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let lock = options.open(&path).map_err(failed(&path, "open it"))?;
    FileLock::try_take(lock).map_err(|(error, _)| match error.kind() {
        io::ErrorKind::WouldBlock => JournalError::Taken(folder.to_owned()),
        _ => failed(&path, "lock it")(error),
    })
}

fn file_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:010}{SUFFIX}"))
}

/// The file numbers, ascending. Skips names that the journal does not generate: non-canonical ones, and numbers above the
/// maximum, after which there would be no next number.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let digits = path.file_name().and_then(|name| name.to_str()?.strip_suffix(SUFFIX));
        let number = digits.and_then(|digits| digits.parse::<u64>().ok());
        numbers.extend(number.filter(|number| *number <= NUMBER_MAX && file_of(folder, *number) == path));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Creates a file with the state of all alarms and some lines. Returns it with its length.
fn begin(
    folder: &Path,
    number: u64,
    panel: &Panel,
    started: bool,
    lines: &[Vec<u8>],
    now: Now,
) -> Result<(File, u64), JournalError> {
    let path = file_of(folder, number);
    let mut text = Vec::new();
    for entry in panel.snapshot(started, now) {
        write_line(&mut text, &entry).map_err(failed(&path, "write it"))?;
    }
    lines.iter().for_each(|line| text.extend_from_slice(line));
    sys::whole::replace(&path, &text, 0o640, Survives::PowerLoss).map_err(failed(&path, "begin it"))?;
    let file = OpenOptions::new().append(true).open(&path).map_err(failed(&path, "open it"))?;
    Ok((file, text.len() as u64))
}

/// Whether a process writes the journal in `folder`. False if that cannot be determined.
#[must_use]
pub fn is_written(folder: &Path) -> bool {
    let lock = OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(lock_of(folder));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Appends the line of an entry, with its checksum.
fn write_line(line: &mut Vec<u8>, entry: &Entry) -> io::Result<()> {
    let from = line.len();
    serde_json::to_writer(&mut *line, entry)?;
    // The closing brace follows the checksum.
    line.pop();
    let sum = crc32c::crc32c(&line[from..]);
    line.extend_from_slice(SUM_BEGINS);
    write!(line, "{sum:08x}")?;
    line.extend_from_slice(SUM_ENDS);
    line.push(b'\n');
    Ok(())
}

/// Splits a line into the text of its entry, without the closing brace, and the checksum.
fn split_sum(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.trim_ascii_end().strip_suffix(SUM_ENDS)?;
    let (text, sum) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    Some((text.strip_suffix(SUM_BEGINS)?, sum))
}

/// Parses a line. A line without a checksum is from an earlier version, and valid only if no previous line of the file has one.
fn read_line(line: &[u8], has_sums: &mut bool) -> Option<Entry> {
    let Some((text, sum)) = split_sum(line) else {
        return if *has_sums { None } else { serde_json::from_slice(line).ok() };
    };
    *has_sums = true;
    if format!("{:08x}", crc32c::crc32c(text)).as_bytes() != sum {
        return None;
    }
    serde_json::from_slice(&[text, b"}"].concat()).ok()
}

/// Passes each entry of a file to `entry`. Returns the number of unreadable lines.
fn each_line(path: &Path, entry: &mut dyn FnMut(Entry)) -> io::Result<u64> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut line, mut unread, mut has_sums) = (Vec::new(), 0, false);
    loop {
        line.clear();
        if file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(unread);
        }
        match read_line(&line, &mut has_sums) {
            Some(one) => entry(one),
            None if line.trim_ascii().is_empty() => {}
            None => unread += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alarm::{Act, Actor, EntryContent};
    use base::MonoNs;
    use rustix::io::Errno;

    const KEEP: Retention = Retention { days: 1, bytes: 1000 };

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = Self(std::env::temp_dir().join(format!("tahti-journal-{}-{name}", std::process::id())));
            std::fs::create_dir_all(&place.0).unwrap();
            place
        }

        fn open(&self) -> Result<Journal, JournalError> {
            Journal::open(&self.0, KEEP, &mut panel(), NOW).map(|(journal, _)| journal)
        }

        /// Paths of the entries, in the order of the files.
        fn acts(&self) -> Vec<String> {
            let mut acts = Vec::new();
            read(&self.0, Wall(0), &mut |entry, _| acts.extend(Some(entry.path).filter(|path| !path.is_empty())))
                .unwrap();
            acts
        }
    }

    const NOW: Now = Now { mono: MonoNs(0), wall: Wall(0) };

    fn panel() -> Panel {
        let config = alarm::read("[alarms]\nfolder = \"x\"\n[[alarm]]\nchannels = [\"A\"]\n").0.unwrap();
        Panel::new(&config, NOW)
    }

    fn entry(path: &str) -> Entry {
        let by = Actor { uid: 0, user: "root".into(), pid: 1, on_behalf_of: String::new() };
        Entry { at: NOW.wall, path: path.into(), what: EntryContent::Act { by, act: Act::Maintenance { on: true } } }
    }

    #[test]
    fn after_a_failed_sync_lines_are_safe_only_in_a_new_file() {
        let place = Place::new("sync");
        let mut journal = place.open().unwrap();
        journal.add(&entry("one"), true).unwrap();
        journal.sync = |_| Err(io::Error::from(Errno::IO));
        journal.add(&entry("two"), false).unwrap();
        assert!(journal.sync().is_err());
        // As after EIO: the kernel has dropped the pages and reports success afterwards.
        journal.sync = |_| Ok(());
        let refused = journal.sync().unwrap_err().to_string();
        assert!(refused.contains("nothing is added to this file since: failed to write it to the disk"), "{refused}");
        assert!(journal.add(&entry("three"), false).is_err());
        assert!(journal.add(&entry("refused"), true).is_err(), "a line that must be safe");
        journal.renew(&panel(), NOW).unwrap();
        assert_eq!(journal.number, 2);
        journal.add(&entry("four"), true).unwrap();
        assert_eq!(place.acts(), ["one", "two", "three", "four"]);
        let last = std::fs::read_to_string(file_of(&place.0, 2)).unwrap();
        assert!(["two", "three", "four"].iter().all(|path| last.contains(path)), "{last}");
    }

    /// Replaces `place` by what `change` makes of it, and checks that the next sync reports it, also without new lines, and that
    /// the present state and later lines are then in a new file at the path.
    fn continues_after(name: &str, change: impl FnOnce(&Path)) -> Vec<String> {
        let place = Place::new(name);
        let mut journal = place.open().unwrap();
        journal.add(&entry("one"), true).unwrap();
        change(&place.0);
        let why = journal.sync().unwrap_err().to_string();
        assert!(why.contains("another program removed, replaced or changed it or its folder"), "{name}: {why}");
        assert!(journal.add(&entry("two"), false).is_err(), "{name}");
        journal.renew(&panel(), NOW).unwrap();
        journal.add(&entry("three"), true).unwrap();
        assert!(matches!(place.open(), Err(JournalError::Taken(_))), "{name}");
        assert_eq!(journal.number, 2, "{name}");
        place.acts()
    }

    #[test]
    fn a_journal_that_another_program_removes_replaces_or_changes_continues_in_a_new_file_and_is_reported() {
        let file = |folder: &Path| file_of(folder, 1);
        assert_eq!(continues_after("gone", |place| std::fs::remove_dir_all(place).unwrap()), ["two", "three"]);
        assert_eq!(continues_after("no-file", |place| std::fs::remove_file(file(place)).unwrap()), ["two", "three"]);
        let exchange = |place: &Path| {
            let copy = std::fs::read(file(place)).unwrap();
            std::fs::remove_dir_all(place).unwrap();
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("lock"), "").unwrap();
            std::fs::write(file(place), copy).unwrap();
        };
        assert_eq!(continues_after("exchanged", exchange), ["one", "two", "three"]);
        assert_eq!(continues_after("cut", |place| std::fs::write(file(place), "").unwrap()), ["two", "three"]);
    }

    #[test]
    fn lines_that_cannot_be_written_are_bounded_and_the_newest_are_kept() {
        let place = Place::new("bound");
        let mut journal = place.open().unwrap();
        journal.sync = |_| Err(io::Error::from(Errno::IO));
        let long = "x".repeat(100_000);
        for k in 0..50 {
            // Only the first call reports the failure.
            let _ = journal.add(&entry(&format!("{k}-{long}")), false).and_then(|()| journal.sync());
        }
        assert!(journal.waiting_bytes <= WAITING_BYTES_MAX);
        journal.renew(&panel(), NOW).unwrap();
        let kept = std::fs::read_to_string(file_of(&place.0, 2)).unwrap();
        assert!(kept.contains("49-x") && !kept.contains("20-x"));
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_with_foreign_names_are_not_read_and_do_not_affect_the_numbering() {
        let place = Place::new("names");
        for name in ["18446744073709551615", "99999999999", "7", "+000000007", "x"] {
            std::fs::write(place.0.join(format!("{name}.journal")), "no line\n").unwrap();
        }
        assert_eq!(place.open().unwrap().number, 1);
        assert_eq!(place.open().unwrap().number, 2);
        assert_eq!(numbers(&place.0).unwrap(), [1, 2]);
        assert!(place.0.join("7.journal").exists());
    }

    #[test]
    fn a_journal_has_one_writer_and_its_lock_file_follows_no_link() {
        let place = Place::new("lock");
        let first = place.open().unwrap();
        assert!(matches!(place.open(), Err(JournalError::Taken(_))));
        drop(first);
        std::fs::remove_file(place.0.join("lock")).unwrap();
        std::os::unix::fs::symlink(place.0.join("elsewhere"), place.0.join("lock")).unwrap();
        let refused = place.open().unwrap_err().to_string();
        assert!(refused.contains("lock: failed to open it"), "{refused}");
        assert!(!place.0.join("elsewhere").exists());
    }

    fn stopped(secs: i64) -> Entry {
        Entry { at: Wall(secs * 1_000_000_000), path: "/a/é".to_owned(), what: EntryContent::Stopped }
    }

    fn entries(path: &Path) -> (Vec<Entry>, u64) {
        let mut entries = Vec::new();
        let unread = each_line(path, &mut |entry| entries.push(entry)).unwrap();
        (entries, unread)
    }

    #[test]
    fn a_flipped_bit_costs_its_line_and_no_other() {
        let place = Place::new("sums");
        let path = place.0.join("x");
        let all: Vec<Entry> = (0..3).map(stopped).collect();
        let (mut good, mut ends) = (Vec::new(), Vec::new());
        for entry in &all {
            write_line(&mut good, entry).unwrap();
            ends.push(good.len());
        }
        std::fs::write(&path, &good).unwrap();
        assert_eq!(entries(&path), (all.clone(), 0));
        let line = String::from_utf8(good[..ends[0]].to_vec()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["crc32c"].as_str().map(str::len), Some(8), "each line is JSON: {line}");
        // Every bit of the second line except its newline, which would join it with the third.
        for at in ends[0]..ends[1] - 1 {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                std::fs::write(&path, &bytes).unwrap();
                let (read, unread) = entries(&path);
                assert!(unread >= 1, "bit {bit} of byte {at}");
                assert_eq!(read, [all[0].clone(), all[2].clone()], "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn lines_without_a_checksum_are_read_if_no_line_has_one() {
        let place = Place::new("old");
        let path = place.0.join("x");
        let old = |secs| format!("{}\n", serde_json::json!(stopped(secs)));
        std::fs::write(&path, old(0) + &old(1)).unwrap();
        assert_eq!(entries(&path), (vec![stopped(0), stopped(1)], 0));
        let mut new = Vec::new();
        write_line(&mut new, &stopped(2)).unwrap();
        std::fs::write(&path, [&new[..], old(3).as_bytes()].concat()).unwrap();
        assert_eq!(entries(&path), (vec![stopped(2)], 1));
    }

    #[test]
    fn the_oldest_files_are_deleted_when_there_are_too_many_bytes() {
        let place = Place::new("bytes");
        let mut journal = place.open().unwrap();
        let panel = panel();
        for secs in 0..50 {
            while journal.length < 400 {
                journal.add(&stopped(secs), false).unwrap();
            }
            journal.renew(&panel, NOW).unwrap();
        }
        let kept = numbers(&place.0).unwrap();
        assert_eq!(kept.last(), Some(&journal.number));
        let bytes: u64 = kept.iter().map(|number| std::fs::metadata(file_of(&place.0, *number)).unwrap().len()).sum();
        assert!(kept.len() >= 2 && bytes <= KEEP.bytes, "{kept:?}: {bytes}");
        assert!(is_written(&place.0));
        drop(journal);
        assert!(!is_written(&place.0));
    }
}
