//! The file of the message log. A full file is renamed, and the oldest is deleted, so that the total size is bounded.

use super::log::Clock;
use base::{DurNs, MonoNs};
use rustix::fs::OFlags;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Size limit of the message log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimit {
    /// Maximum bytes of each file. A longer line gets its own file.
    pub bytes: u64,
    /// Number of full files kept in addition to the current one. `.1` is the newest.
    pub keep: u32,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self { bytes: 64 << 20, keep: 4 }
    }
}

/// Time between two attempts to write after a failure.
const AGAIN: DurNs = DurNs::from_secs(5);

/// Interval of checks, while there are no lines, whether the file is still at its path.
const CHECK: DurNs = DurNs::from_secs(1);

pub(super) struct LogFile {
    path: PathBuf,
    limit: LogLimit,
    file: File,
    bytes: u64,
    /// Whether it is a regular file and its folder allows renaming it.
    movable: bool,
    moved: u64,
    /// The file ends with an incomplete line.
    torn: bool,
    outage: Option<Outage>,
    unwritten: u64,
    /// Time of the next check without lines.
    check: MonoNs,
}

/// The file cannot be written at present.
struct Outage {
    why: io::Error,
    since: MonoNs,
    again: MonoNs,
    /// Lines lost that the log does not report yet.
    lines: u64,
}

/// A change in the state of a message log.
pub(super) enum LogNotice {
    Trouble(String),
    Mended(String),
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    // Other accounts must not read the messages.
    File::options().create(true).append(true).mode(0o640).custom_flags(flags.bits().cast_signed()).open(path)
}

fn count(lines: &str) -> u64 {
    lines.bytes().filter(|byte| *byte == b'\n').count() as u64
}

impl LogFile {
    /// Opens the file and appends to it if it exists.
    pub(super) fn open(path: PathBuf, limit: LogLimit) -> io::Result<Self> {
        let file = open(&path, OFlags::empty())?;
        let metadata = file.metadata()?;
        Ok(Self {
            path,
            limit,
            file,
            bytes: metadata.len(),
            movable: metadata.is_file(),
            moved: 0,
            torn: false,
            outage: None,
            unwritten: 0,
            check: MonoNs(0),
        })
    }

    /// Writes whole lines. If they would exceed the size limit, the file is renamed first; if it cannot be renamed, it
    /// keeps growing. If the file cannot be written, lines are lost and counted. Writing is tried again every 5 s, also
    /// without new lines; on success, a log line contains the number of lost lines. A file that is no longer at its
    /// path is created again, also without new lines. `tell` receives each change of state once.
    pub(super) fn write(&mut self, now: MonoNs, unix_now_ns: u64, lines: &str, tell: &mut dyn FnMut(LogNotice)) {
        let mut text = Cow::Borrowed("");
        match &self.outage {
            Some(outage) if now < outage.again => return self.lose(count(lines)),
            Some(Outage { why, since, lines, .. }) => {
                let mut line = String::new();
                Clock::default().write(unix_now_ns, &mut line);
                let long = whole_seconds(now - *since);
                // Writing into a `String` cannot fail.
                let _ = writeln!(line, " message-log lost={lines}: the file could not be written for {long}: {why}");
                text = line.into();
            }
            None if lines.is_empty() => {
                if now < self.check {
                    return;
                }
                self.check = now + CHECK;
                if self.is_in_place() {
                    return;
                }
            }
            None => {}
        }
        let told = text.len();
        text += lines;
        let result = if self.outage.is_some() || !self.is_in_place() { self.open_again() } else { Ok(()) };
        let result = result.and_then(|()| self.make_room(text.len() as u64, tell));
        let (written, result) = match result {
            Ok(()) => self.put(&text),
            Err(error) => (0, Err(error)),
        };
        let path = self.path.display();
        match (result, &mut self.outage) {
            (Ok(()), None) => {}
            (Ok(()), Some(outage)) => {
                let (lines, long) = (outage.lines, whole_seconds(now - outage.since));
                tell(LogNotice::Mended(format!(
                    "message log {path}: written again; {lines} lines were lost within {long}"
                )));
                self.outage = None;
            }
            (Err(why), None) => {
                tell(LogNotice::Trouble(format!(
                    "message log {path}: {why}; its lines are lost until it can be written, which is tried again every {AGAIN}"
                )));
                self.outage = Some(Outage { why, since: now, again: now + AGAIN, lines: 0 });
                self.lose(count(&text[written..]));
            }
            (Err(why), Some(outage)) => {
                // Lines lost earlier have been reported now.
                if written >= told {
                    (outage.since, outage.lines) = (now, 0);
                }
                (outage.why, outage.again) = (why, now + AGAIN);
                self.lose(count(&text[written.max(told)..]));
            }
        }
    }

    /// Number of full files renamed.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    /// Lines lost because the file could not be written.
    pub(super) fn unwritten(&self) -> u64 {
        self.unwritten
    }

    /// The present fault.
    pub(super) fn fault(&self) -> Option<String> {
        let Outage { why, lines, .. } = self.outage.as_ref()?;
        Some(format!("the message log {} cannot be written: {why}; {lines} lines lost", self.path.display()))
    }

    /// Makes the next [`write`](Self::write) try again immediately.
    pub(super) fn hurry(&mut self) {
        self.outage.iter_mut().for_each(|outage| outage.again = MonoNs(0));
    }

    /// Opens the file that is now at the path, or creates it. If that fails, the next [`write`](Self::write) reports
    /// it.
    pub(super) fn reopen(&mut self) {
        let _ = self.open_again();
    }

    /// Whether the open file is still the one at the path. Another program may have moved or removed it.
    fn is_in_place(&self) -> bool {
        !self.movable || sys::whole::is_at(&self.file, &self.path).unwrap_or(false)
    }

    fn lose(&mut self, lines: u64) {
        self.unwritten += lines;
        self.outage.iter_mut().for_each(|outage| outage.lines += lines);
    }

    /// Writes as much as possible. Returns the bytes written in whole lines, and the error if some are missing.
    fn put(&mut self, text: &str) -> (usize, io::Result<()>) {
        let (mut at, mut result) = (0, Ok(()));
        if self.torn {
            result = self.file.write_all(b"\n");
            self.torn = result.is_err();
        }
        while result.is_ok() && at < text.len() {
            match self.file.write(&text.as_bytes()[at..]) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => at += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
        }
        let whole = text.as_bytes()[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.bytes += whole as u64;
        if whole < at {
            // Removes the incomplete line. If that fails, the next write starts with a newline.
            self.torn = !self.movable || self.file.set_len(self.bytes).is_err();
        }
        (whole, result)
    }

    /// Opens the path again: the file, its folder or its disk may have been replaced. A pipe stays open, because
    /// opening one blocks until it has a reader.
    fn open_again(&mut self) -> io::Result<()> {
        if self.file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return Ok(());
        }
        let file = open(&self.path, OFlags::NONBLOCK)?;
        let metadata = file.metadata()?;
        (self.file, self.bytes, self.movable) = (file, metadata.len(), metadata.is_file());
        Ok(())
    }

    /// Renames the file if `bytes` more would exceed its limit.
    fn make_room(&mut self, bytes: u64, tell: &mut dyn FnMut(LogNotice)) -> io::Result<()> {
        if !self.movable || self.bytes == 0 || self.bytes + bytes <= self.limit.bytes {
            return Ok(());
        }
        if let Err(error) = self.move_aside() {
            self.movable = false;
            let (path, LogLimit { bytes, .. }) = (self.path.display(), self.limit);
            tell(LogNotice::Trouble(format!(
                "message log {path}: it has {bytes} bytes and cannot be moved aside: {error}; it grows on: let this user write \
                 its folder"
            )));
            return Ok(());
        }
        self.moved += 1;
        self.file = open(&self.path, OFlags::empty())?;
        self.bytes = 0;
        Ok(())
    }

    fn move_aside(&self) -> io::Result<()> {
        for number in (1..self.limit.keep).rev() {
            match std::fs::rename(self.name(number), self.name(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match self.limit.keep {
            0 => std::fs::remove_file(&self.path),
            _ => std::fs::rename(&self.path, self.name(1)),
        }
    }

    fn name(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn whole_seconds(time: DurNs) -> DurNs {
    DurNs(time.0 / 1_000_000_000 * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    struct Folder(PathBuf);

    impl Folder {
        fn new(what: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("tahti-{what}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn read(&self, name: &str) -> String {
            std::fs::read_to_string(self.0.join(name)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const NOW: MonoNs = MonoNs(1_000_000_000_000);
    /// 2026-11-22T06:19:12Z.
    const UNIX: u64 = 1_795_328_352_000_000_000;

    fn write(log: &mut LogFile, line: &str) {
        log.write(NOW, UNIX, line, &mut |_| panic!("it has no fault"));
    }

    #[test]
    fn a_log_file_that_was_moved_is_created_with_the_next_line_or_on_reopen() {
        let folder = Folder::new("log-elsewhere");
        let (path, aside) = (folder.0.join("log"), folder.0.join("aside"));
        let mut log = LogFile::open(path.clone(), LogLimit::default()).unwrap();
        write(&mut log, "one\n");
        std::fs::rename(&path, &aside).unwrap();
        write(&mut log, "two\n");
        assert_eq!((folder.read("aside").as_str(), folder.read("log").as_str()), ("one\n", "two\n"));
        std::fs::remove_file(&path).unwrap();
        log.reopen();
        assert_eq!(folder.read("log"), "");
        write(&mut log, "three\n");
        assert_eq!(folder.read("log"), "three\n");
    }

    #[test]
    fn a_removed_folder_is_a_fault_of_the_log_also_without_lines_until_it_is_back() {
        let folder = Folder::new("log-folder");
        let within = folder.0.join("logs");
        std::fs::create_dir_all(&within).unwrap();
        let mut log = LogFile::open(within.join("log"), LogLimit::default()).unwrap();
        let mut at = |secs: i64, lines: &str| {
            log.write(NOW + DurNs::from_secs(secs), UNIX, lines, &mut |_| ());
            log.fault()
        };
        assert_eq!(at(0, "one\n"), None);
        std::fs::remove_dir_all(&within).unwrap();
        let path = within.join("log");
        let fault = |lines| {
            let why = "No such file or directory (os error 2)";
            Some(format!("the message log {} cannot be written: {why}; {lines} lines lost", path.display()))
        };
        assert_eq!([at(1, ""), at(2, "two\nthree\n")], [fault(0), fault(2)]);
        std::fs::create_dir_all(&within).unwrap();
        assert_eq!(at(7, ""), None);
        let says = "message-log lost=2: the file could not be written for 6s: No such file or directory (os error 2)";
        assert_eq!(folder.read("logs/log"), format!("2026-11-22T06:19:12.000000Z {says}\n"));
    }

    #[test]
    fn a_full_log_file_is_rotated_and_the_oldest_one_deleted() {
        let folder = Folder::new("full");
        let path = folder.0.join("log");
        let limit = LogLimit { bytes: 8, keep: 2 };
        let mut log = LogFile::open(path.clone(), limit).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            write(&mut log, line);
        }
        assert_eq!(
            [folder.read("log"), folder.read("log.1"), folder.read("log.2")],
            ["four\n", "three\n", "one\ntwo\n"]
        );
        // The next server appends where this one ended. A line that is too long is kept whole.
        let mut log = LogFile::open(path, limit).unwrap();
        write(&mut log, "far too long\n");
        assert_eq!(folder.names(), ["log", "log.1", "log.2"]);
        assert_eq!([folder.read("log"), folder.read("log.2")], ["far too long\n", "three\n"]);
        assert_eq!(log.moved(), 1);
        let mode = std::fs::metadata(folder.0.join("log")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "it contains messages of others");
    }

    #[test]
    fn no_rotated_file_is_kept_if_none_is_configured() {
        let folder = Folder::new("none");
        let mut log = LogFile::open(folder.0.join("log"), LogLimit { bytes: 8, keep: 0 }).unwrap();
        ["one\n", "two\n", "three\n"].iter().for_each(|line| write(&mut log, line));
        assert_eq!((folder.names(), folder.read("log")), (vec!["log".to_owned()], "three\n".to_owned()));
    }

    #[test]
    fn a_failed_rotation_is_reported_once_and_no_line_is_lost() {
        let folder = Folder::new("stuck");
        let mut log = LogFile::open(folder.0.join("log"), LogLimit { bytes: 4, keep: 1 }).unwrap();
        // A non-empty folder blocks the rename.
        std::fs::create_dir_all(folder.0.join("log.1/in-the-way")).unwrap();
        let mut told = vec![];
        let mut tell = |what| match what {
            LogNotice::Trouble(why) => told.push(why),
            LogNotice::Mended(_) => panic!("it has no fault"),
        };
        ["one\n", "two\n", "three\n"].iter().for_each(|line| log.write(NOW, UNIX, line, &mut tell));
        assert_eq!(folder.read("log"), "one\ntwo\nthree\n");
        assert!(told.len() == 1 && told[0].contains("cannot be moved aside"), "{told:?}");
    }

    #[test]
    fn a_failed_log_write_is_retried_and_the_log_counts_the_lost_lines() {
        let folder = Folder::new("outage");
        let (path, spare) = (folder.0.join("log"), folder.0.join("spare"));
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut log = LogFile::open(path.clone(), LogLimit { bytes: 1 << 20, keep: 1 }).unwrap();
        let mut told = vec![];
        let mut at = |ms: i64, lines: &str| {
            let mut tell = |what| {
                told.push(match what {
                    LogNotice::Trouble(why) => format!("trouble: {why}"),
                    LogNotice::Mended(what) => format!("fixed: {what}"),
                });
            };
            log.write(NOW + DurNs::from_ms(ms), UNIX, lines, &mut tell);
            (log.unwritten(), log.fault().is_some(), std::mem::take(&mut told))
        };
        assert_eq!(at(0, ""), (0, false, vec![]), "no line for an empty text");
        let (lost, fails, told) = at(10, "one\ntwo\n");
        assert!(lost == 2 && fails && told.len() == 1, "{told:?}");
        assert!(
            told[0].starts_with("trouble: ") && told[0].contains("No space left") && told[0].ends_with("every 5s"),
            "{told:?}"
        );
        // Writing is not tried before its time, and a repeated failure is not reported again.
        assert_eq!(at(5_009, "three\n"), (3, true, vec![]));
        assert_eq!(at(5_010, "four\n"), (4, true, vec![]));
        // The path is opened again, because the file may have been replaced.
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&spare, &path).unwrap();
        assert_eq!(at(10_009, "five\n"), (5, true, vec![]));
        let fixed = format!("fixed: message log {}: written again; 5 lines were lost within 10s", path.display());
        assert_eq!(at(10_010, "six\n"), (5, false, vec![fixed]));
        assert_eq!(at(10_020, "seven\n"), (5, false, vec![]));
        let says = "message-log lost=5: the file could not be written for 10s: No space left on device (os error 28)";
        assert_eq!(folder.read("spare"), format!("2026-11-22T06:19:12.000000Z {says}\nsix\nseven\n"));
    }
}
