//! New lines of all logs of a plant, merged by time.
//!
//! Bounds: the first read takes the last [`FIRST_BYTES`] of each log, each later read at most [`READ_BYTES`] of it. A line is
//! cut after [`LINE_BYTES_MAX`].

use super::rundir::RunDir;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes of each log that the first read takes, from its end.
const FIRST_BYTES: u64 = 64 << 10;
/// Bytes of each log that a later read takes. If there are more, the oldest are skipped.
const READ_BYTES: u64 = 256 << 10;
/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 2048;
/// Maximum number of logs.
const LOGS_MAX: usize = 256;
/// Length of the time stamp of a line, such as `2026-11-21T06:07:14.567Z`.
const STAMP_BYTES: usize = 24;

/// Origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Standard output of a process.
    Output,
    /// Standard error of a process.
    Error,
    /// The supervisor, or the keeper of a process.
    Tahti,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// UTC, ISO 8601 with milliseconds. Stamps sort as text. A line without a stamp has that of the line before it.
    pub stamp: String,
    /// Name of the process; empty for the supervisor.
    pub process: String,
    /// Its origin.
    pub origin: Origin,
    /// The text, without control characters at its end.
    pub text: String,
}

impl Line {
    /// Parses a line of the log of `process`. `before` is the stamp of the line before it.
    #[must_use]
    pub fn parse(process: &str, bytes: &[u8], before: &str) -> Self {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LINE_BYTES_MAX)]);
        let text = text.trim_end();
        let (stamp, rest) = match text.split_at_checked(STAMP_BYTES) {
            Some((stamp, rest)) if is_stamp(stamp) => (stamp, rest.strip_prefix(' ').unwrap_or(rest)),
            _ => (before, text),
        };
        let (origin, text) = if process.is_empty() {
            (Origin::Tahti, rest)
        } else if let Some(text) = rest.strip_prefix("[err] ") {
            (Origin::Error, text)
        } else if let Some(text) = rest.strip_prefix("@@@ ") {
            (Origin::Tahti, text)
        } else {
            (Origin::Output, rest)
        };
        Self { stamp: stamp.to_owned(), process: process.to_owned(), origin, text: text.to_owned() }
    }
}

fn is_stamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == STAMP_BYTES && bytes[0].is_ascii_digit() && bytes[10] == b'T' && bytes[STAMP_BYTES - 1] == b'Z'
}

/// A log that is read from time to time.
#[derive(Debug)]
struct Followed {
    path: PathBuf,
    file: File,
    /// Position behind the last complete line.
    at: u64,
    stamp: String,
}

impl Followed {
    fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let at = file.metadata()?.len().saturating_sub(bytes);
        Ok(Self { path: path.to_owned(), file, at, stamp: String::new() })
    }

    /// Appends the complete lines since the last call to `lines`. Continues with the new file after a rotation.
    fn read(&mut self, process: &str, most: u64, lines: &mut Vec<Line>) -> io::Result<()> {
        self.rest(process, most, lines)?;
        let here = self.file.metadata()?.ino();
        if std::fs::metadata(&self.path).is_ok_and(|there| there.ino() != here) {
            // Lines may have been appended between the read and the rotation.
            self.rest(process, most, lines)?;
            (self.file, self.at) = (File::open(&self.path)?, 0);
            self.rest(process, most, lines)?;
        }
        Ok(())
    }

    fn rest(&mut self, process: &str, most: u64, lines: &mut Vec<Line>) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        // A file that was truncated starts again.
        let from = if length < self.at { 0 } else { self.at.max(length.saturating_sub(most)) };
        self.file.seek(SeekFrom::Start(from.saturating_sub(1)))?;
        let mut bytes = Vec::new();
        self.file.by_ref().take(most + 1).read_to_end(&mut bytes)?;
        // The first byte belongs to the line before, unless the read began at the start of the file.
        let begins = match from {
            0 => 0,
            _ => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1),
        };
        let Some(ends) = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1).filter(|ends| *ends > begins)
        else {
            return Ok(());
        };
        self.at = from.saturating_sub(1) + ends as u64;
        for line in bytes[begins..ends - 1].split(|byte| *byte == b'\n') {
            let line = Line::parse(process, line, &self.stamp);
            self.stamp.clone_from(&line.stamp);
            lines.push(line);
        }
        Ok(())
    }
}

/// Reads the new lines of all logs of a plant.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    logs: BTreeMap<String, Followed>,
    unreadable: Vec<String>,
}

impl Reader {
    /// For a plant that need not exist yet.
    #[must_use]
    pub fn new(run: &RunDir) -> Self {
        Self::of_folder(run.path().join("log"))
    }

    /// For a folder with logs.
    #[must_use]
    pub fn of_folder(folder: PathBuf) -> Self {
        Self { folder, logs: BTreeMap::new(), unreadable: Vec::new() }
    }

    /// Names of the processes that have a log. The supervisor has the empty name.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.logs.keys().map(String::as_str).collect()
    }

    /// The logs that the last call of [`fresh`](Self::fresh) could not read, each with the reason.
    #[must_use]
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// The lines since the last call, in the order of their stamps. The first call returns the last lines of each log.
    ///
    /// A log that cannot be read is in [`unreadable`](Self::unreadable); the others are read.
    ///
    /// # Errors
    /// The folder of the logs cannot be read.
    pub fn fresh(&mut self) -> io::Result<Vec<Line>> {
        let mut lines = Vec::new();
        self.unreadable.clear();
        let paths = std::fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "log")).take(LOGS_MAX) {
            if let Err(error) = self.read(path, &mut lines) {
                self.unreadable.push(format!("{}: {error}", path.display()));
            }
        }
        lines.sort_by(|one, other| one.stamp.cmp(&other.stamp));
        Ok(lines)
    }

    fn read(&mut self, path: &Path, lines: &mut Vec<Line>) -> io::Result<()> {
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { return Ok(()) };
        let process = if name == "_supervisor" { "" } else { name };
        if let Some(log) = self.logs.get_mut(process) {
            return log.read(process, READ_BYTES, lines);
        }
        let log = self.logs.entry(process.to_owned()).or_insert(Followed::open(path, FIRST_BYTES)?);
        log.read(process, FIRST_BYTES, lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn line(stamp: u32, text: &str) -> String {
        format!("2026-11-27T05:00:{stamp:02}.000Z {text}\n")
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tahti-logs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn new_lines_of_all_logs_are_merged_by_time_also_across_a_rotation() {
        let log = folder("merged");
        let write = |name: &str, text: &str| {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(log.join(name));
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        write("a.log", &(line(1, "one") + &line(4, "[err] four")));
        write("_supervisor.log", &line(2, "a: started"));
        write("b.log", &(line(3, "@@@ three") + "2026-11-27T05:00:05.000Z not comp"));
        let mut reader = Reader::of_folder(log.clone());
        let texts =
            |lines: Vec<Line>| lines.into_iter().map(|one| (one.process, one.origin, one.text)).collect::<Vec<_>>();
        let expected = |all: &[(&str, Origin, &str)]| {
            all.iter().map(|(name, origin, text)| ((*name).to_owned(), *origin, (*text).to_owned())).collect::<Vec<_>>()
        };
        let first = texts(reader.fresh().unwrap());
        let all = [
            ("a", Origin::Output, "one"),
            ("", Origin::Tahti, "a: started"),
            ("b", Origin::Tahti, "three"),
            ("a", Origin::Error, "four"),
        ];
        assert_eq!(first, expected(&all));
        assert_eq!(reader.names(), ["", "a", "b"]);
        write("b.log", "lete\n");
        write("a.log", &line(6, "six"));
        std::fs::rename(log.join("a.log"), log.join("a.log.1")).unwrap();
        write("a.log", &line(7, "seven"));
        let all = [("b", Origin::Output, "not complete"), ("a", Origin::Output, "six"), ("a", Origin::Output, "seven")];
        assert_eq!(texts(reader.fresh().unwrap()), expected(&all));
        assert_eq!(reader.fresh().unwrap(), []);
        std::fs::remove_dir_all(log).unwrap();
    }

    #[test]
    fn a_log_that_cannot_be_read_is_reported_and_the_others_are_read() {
        let log = folder("unreadable");
        std::fs::create_dir_all(log.join("a.log")).unwrap();
        std::fs::write(log.join("b.log"), line(1, "one")).unwrap();
        let mut reader = Reader::of_folder(log.clone());
        for expected in [1, 0] {
            assert_eq!(reader.fresh().unwrap().len(), expected);
            assert!(matches!(reader.unreadable(), [one] if one.contains("a.log: ")), "{:?}", reader.unreadable());
        }
        std::fs::remove_dir(log.join("a.log")).unwrap();
        reader.fresh().unwrap();
        assert_eq!(reader.unreadable(), [""; 0]);
        std::fs::remove_dir_all(log).unwrap();
    }

    #[test]
    fn only_the_end_of_a_long_log_is_read_and_long_lines_are_cut() {
        let log = folder("long");
        let many = (0..5000).map(|at| line(at % 60, &format!("line {at}"))).collect::<String>();
        std::fs::write(log.join("a.log"), many + &line(59, &"x".repeat(9000))).unwrap();
        let lines = Reader::of_folder(log.clone()).fresh().unwrap();
        assert!((100..4999).contains(&lines.len()), "{}", lines.len());
        assert!(lines.iter().all(|line| line.text.len() <= LINE_BYTES_MAX && !line.stamp.is_empty()));
        std::fs::remove_dir_all(log).unwrap();
    }
}
