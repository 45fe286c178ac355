//! The journal: a line of JSON for each thing that has happened, in files that begin with the state at that time.
//!
//! A file is there as a whole with its beginning, or not at all; then lines are only ever added. What a kill or a power cut
//! leaves is a line that was begun, which readers pass over.

use alarm::{Entry, Now, Panel, Wall};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use sys::whole::Survives;

/// From so many bytes on a new file is begun.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// A longer line is none of ours.
const LINE_BYTES_MAX: u64 = 1 << 20;
const DAY_SECS: u64 = 86_400;
const SUFFIX: &str = ".journal";
/// No file has a greater number: a new one each second would come to it in three centuries.
const NUMBER_MAX: u64 = 9_999_999_999;

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The kernel's.
    #[error("{}: failed to {doing}: {error}", .path.display())]
    Io {
        /// Of what.
        path: PathBuf,
        /// What.
        doing: &'static str,
        /// Why.
        error: io::Error,
    },
    /// Somebody else writes it.
    #[error("{}: another process writes this journal; end it, or give another `folder`", .0.display())]
    Taken(PathBuf),
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> JournalError {
    move |error| JournalError::Io { path: path.to_owned(), doing, error }
}

/// A journal that is written.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    /// Held for as long as it is written.
    _lock: File,
    /// None where none could be begun yet.
    file: Option<File>,
    number: u64,
    length: u64,
    /// The last line may be incomplete.
    torn: bool,
    /// Something was written that is not on the disk yet.
    unsynced: bool,
    keep_days: u32,
}

/// How it went to open a journal.
#[derive(Debug)]
pub struct Opened {
    /// Lines that could not be read.
    pub unread: u64,
    /// Why no new file could be begun, as on a full disk: [`Journal::renew`] tries it again.
    pub unwritten: Option<JournalError>,
}

impl Journal {
    /// Gives `panel` what the last life of the journal in `folder` knew, and begins a new file, where the disk has room.
    ///
    /// # Errors
    /// The folder's; [`JournalError::Taken`].
    pub fn open(folder: &Path, keep_days: u32, panel: &mut Panel, now: Now) -> Result<(Self, Opened), JournalError> {
        DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(failed(folder, "make it"))?;
        let path = folder.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o640).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let lock = options.open(&path).map_err(failed(&path, "open it"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(JournalError::Taken(folder.to_owned())),
            Err(errno) => return Err(failed(&path, "lock it")(errno.into())),
        }
        let numbers = numbers(folder).map_err(failed(folder, "read it"))?;
        let mut unread = 0;
        if let Some(last) = numbers.last() {
            let path = file_of(folder, *last);
            unread = each_line(&path, &mut |entry| panel.restore(entry, now)).map_err(failed(&path, "read it"))?;
        }
        let last = numbers.last().copied().unwrap_or_default();
        let (folder, file) = (folder.to_owned(), None);
        let (torn, unsynced, length, number) = (false, false, 0, last);
        let mut journal = Self { folder, _lock: lock, file, number, length, torn, unsynced, keep_days };
        let unwritten = journal.begin(panel, true, now).and_then(|()| journal.forget(now)).err();
        Ok((journal, Opened { unread, unwritten }))
    }

    /// Adds a line. With `safe` it is on the disk when this returns; else after [`sync`](Self::sync).
    ///
    /// # Errors
    /// The disk's: the line is not there, or may not survive a power cut.
    pub fn add(&mut self, entry: &Entry, safe: bool) -> Result<(), JournalError> {
        let mut line = Vec::new();
        if self.torn {
            line.push(b'\n');
        }
        // A value of ours always has a text form.
        serde_json::to_writer(&mut line, entry).map_err(|error| self.failed("write it")(error.into()))?;
        line.push(b'\n');
        let failed = self.failed("write it");
        let Some(file) = &mut self.file else {
            return Err(failed(io::Error::other("it could not be begun")));
        };
        self.torn = true;
        file.write_all(&line).map_err(failed)?;
        self.torn = false;
        self.length += line.len() as u64;
        self.unsynced = true;
        if safe { self.sync() } else { Ok(()) }
    }

    /// Has all that was added be on the disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        if let Some(file) = self.file.as_ref().filter(|_| self.unsynced) {
            file.sync_data().map_err(self.failed("write it to the disk"))?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Begins a new file where this one is long, and removes those that are too old.
    ///
    /// # Errors
    /// The disk's; the old file is written on then.
    pub fn turn(&mut self, panel: &Panel, now: Now) -> Result<(), JournalError> {
        if self.length < FILE_BYTES_MAX {
            return Ok(());
        }
        self.sync()?;
        self.renew(panel, now)
    }

    /// Begins a new file with the state of all alarms, as after a time in which nothing could be written.
    ///
    /// # Errors
    /// The disk's; the old file is written on then.
    pub fn renew(&mut self, panel: &Panel, now: Now) -> Result<(), JournalError> {
        // One that was never begun is begun now.
        self.begin(panel, self.file.is_none(), now)?;
        self.forget(now)
    }

    fn begin(&mut self, panel: &Panel, started: bool, now: Now) -> Result<(), JournalError> {
        let (file, length) = begin(&self.folder, self.number + 1, panel, started, now)?;
        (self.file, self.length) = (Some(file), length);
        (self.number, self.torn, self.unsynced) = (self.number + 1, false, false);
        Ok(())
    }

    fn forget(&mut self, now: Now) -> Result<(), JournalError> {
        let keep = u64::from(self.keep_days) * DAY_SECS;
        let oldest = (now.wall.0.max(0) as u64 / 1_000_000_000).saturating_sub(keep);
        for number in numbers(&self.folder).map_err(failed(&self.folder, "read it"))? {
            let path = file_of(&self.folder, number);
            if number < self.number && written_secs(&path).is_some_and(|secs| secs < oldest) {
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

/// Each entry from `from` on, oldest first, with whether it is only the state when a file began; how many lines
/// could not be read. Also while it is written.
///
/// # Errors
/// The folder's.
pub fn read(folder: &Path, from: Wall, entry: &mut dyn FnMut(Entry, bool)) -> Result<u64, JournalError> {
    let mut unread = 0;
    for number in numbers(folder).map_err(failed(folder, "read it"))? {
        let path = file_of(folder, number);
        // What was last written before that time has nothing to say.
        if written_secs(&path).is_some_and(|secs| (secs as i64) < from.0.div_euclid(1_000_000_000)) {
            continue;
        }
        let mut standing = 0;
        unread += each_line(&path, &mut |one| {
            let is_snapshot = standing > 0;
            standing = match one.what {
                alarm::What::Begins { states, .. } => states,
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

/// When a file was written last, seconds since 1970.
fn written_secs(path: &Path) -> Option<u64> {
    let modified = std::fs::metadata(path).ok()?.modified().ok()?;
    Some(modified.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
}

fn file_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:010}{SUFFIX}"))
}

/// The numbers of the files, ascending. Names that are none of ours are passed over: those that are written otherwise, and
/// numbers that no journal will ever come to, behind which there would be no room for the next.
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

/// A new file, with the state of all alarms; its length.
fn begin(folder: &Path, number: u64, panel: &Panel, started: bool, now: Now) -> Result<(File, u64), JournalError> {
    let path = file_of(folder, number);
    let mut text = Vec::new();
    for entry in panel.snapshot(started, now) {
        serde_json::to_writer(&mut text, &entry).map_err(|error| failed(&path, "write it")(error.into()))?;
        text.push(b'\n');
    }
    sys::whole::replace(&path, &text, 0o640, Survives::PowerLoss).map_err(failed(&path, "begin it"))?;
    let file = OpenOptions::new().append(true).open(&path).map_err(failed(&path, "open it"))?;
    Ok((file, text.len() as u64))
}

/// Gives each entry of a file; how many lines are none.
fn each_line(path: &Path, entry: &mut dyn FnMut(Entry)) -> io::Result<u64> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut line, mut unread) = (Vec::new(), 0);
    loop {
        line.clear();
        if file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(unread);
        }
        match serde_json::from_slice(&line) {
            Ok(one) => entry(one),
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(_) => unread += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::MonoNs;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let place = Self(std::env::temp_dir().join(format!("tahti-journal-{}-{name}", std::process::id())));
            std::fs::create_dir_all(&place.0).unwrap();
            place
        }

        fn open(&self) -> Result<Journal, JournalError> {
            let now = Now { mono: MonoNs(0), wall: Wall(0) };
            let config = alarm::read("[alarms]\nfolder = \"x\"\n[[alarm]]\nchannels = [\"A\"]\n").0.unwrap();
            Journal::open(&self.0, 1, &mut Panel::new(&config, now), now).map(|(journal, _)| journal)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_whose_names_are_none_of_ours_are_neither_read_nor_counted_from() {
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
    fn a_journal_has_one_writer_and_its_lock_is_no_way_to_another_file() {
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
}
