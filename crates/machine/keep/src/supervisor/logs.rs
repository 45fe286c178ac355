//! New lines of all logs of a plant, merged by time.
//!
//! Bounds: the first read takes the last [`FIRST_BYTES`] of each log, each later read at most [`READ_BYTES`] of it.
//! [`Reader::past`] reads whole logs and keeps a given number of lines. A line is cut after [`LINE_BYTES_MAX`].

use super::rundir::RunDir;
use base::Utc;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
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
/// Maximum number of rotated files of a log.
const ROTATED_MAX: u32 = 100;
/// Length of the time stamp of a line, such as `2026-11-21T06:07:14.567Z`.
const STAMP_BYTES: usize = 24;

/// The time stamp of a line, from milliseconds since 1970.
#[must_use]
pub fn stamp(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let Utc { year, month, day, hour, minute, second } = Utc::of(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing unusual.
    Info,
    /// A warning, or a line of the standard error.
    Warning,
    /// An error.
    Error,
}

impl Level {
    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The mark of a line that tahti writes itself.
    #[must_use]
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::Info => "",
            Self::Warning => "[warning] ",
            Self::Error => "[error] ",
        }
    }

    /// The severity by the mark at the start of a line that tahti wrote, and the rest of the line.
    fn of_mark(text: &str) -> (Self, &str) {
        let marked = |level: Self| text.strip_prefix(level.mark()).map(|rest| (level, rest));
        marked(Self::Error).or_else(|| marked(Self::Warning)).unwrap_or((Self::Info, text))
    }
}

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
    /// Its severity.
    pub level: Level,
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
        let (level, text) = match origin {
            Origin::Tahti => Level::of_mark(text),
            Origin::Output | Origin::Error => (Self::level_of(origin, text), text),
        };
        Self { stamp: stamp.to_owned(), process: process.to_owned(), origin, level, text: text.to_owned() }
    }

    /// Severity of a line of a process, from the first word, as in `[ERROR] no water`, and the origin. A line such as `0 errors`
    /// is neither an error nor a warning.
    fn level_of(origin: Origin, text: &str) -> Level {
        let mut words = text.split(|one: char| !one.is_alphanumeric());
        let first = words.find(|word| !word.is_empty()).unwrap_or_default();
        let is = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(first));
        if is(&["error", "err", "fatal", "critical", "panic", "fault", "failed"]) {
            Level::Error
        } else if origin == Origin::Error || is(&["warning", "warn"]) {
            Level::Warning
        } else {
            Level::Info
        }
    }

    /// Whether the text contains `lower`, a text in lower case, in any case.
    #[must_use]
    pub fn contains(&self, lower: &str) -> bool {
        self.text.to_lowercase().contains(lower)
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

/// The last `most` complete lines of a file that pass the filter, the position behind the last line, and the stamps of the
/// first and last lines.
struct FileLines {
    lines: VecDeque<Line>,
    at: u64,
    first: Option<String>,
    last: String,
}

impl FileLines {
    fn read(file: File, process: &str, most: usize, fits: &dyn Fn(&Line) -> bool) -> io::Result<Self> {
        let mut all = Self { lines: VecDeque::new(), at: 0, first: None, last: String::new() };
        let (mut reader, mut behind) = (BufReader::new(file), 0);
        let (mut start, mut part) = (Vec::new(), Vec::new());
        loop {
            part.clear();
            let read = reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut part)?;
            if read == 0 {
                return Ok(all);
            }
            behind += read as u64;
            // Of a long line, the start is kept.
            if start.is_empty() {
                start.clone_from(&part);
            }
            if part.last() == Some(&b'\n') {
                all.push(Line::parse(process, start.strip_suffix(b"\n").unwrap_or(&start), &all.last), most, fits);
                all.at = behind;
                start.clear();
            }
        }
    }

    fn push(&mut self, line: Line, most: usize, fits: &dyn Fn(&Line) -> bool) {
        self.last.clone_from(&line.stamp);
        self.first.get_or_insert_with(|| line.stamp.clone());
        if fits(&line) {
            self.lines.push_back(line);
        }
        if self.lines.len() > most {
            self.lines.pop_front();
        }
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
        self.each(Self::read)
    }

    /// The last `most` lines that pass the filter, from the stamp `since` on, in the order of their stamps, also from rotated
    /// files. [`fresh`](Self::fresh) then continues behind them. Keeps at most `most` lines of each log in memory.
    ///
    /// # Errors
    /// The folder of the logs cannot be read.
    pub fn past(&mut self, since: &str, most: usize, fits: &dyn Fn(&Line) -> bool) -> io::Result<Vec<Line>> {
        let fits = |line: &Line| line.stamp.as_str() >= since && fits(line);
        let mut lines = self.each(|reader, path, process, lines| {
            let (file, mut wanted) = (File::open(path)?, VecDeque::new());
            let now = FileLines::read(file.try_clone()?, process, most, &fits)?;
            let followed = Followed { path: path.to_owned(), file, at: now.at, stamp: now.last };
            reader.logs.insert(process.to_owned(), followed);
            let (mut first, mut number) = (now.first, 0);
            wanted.push_front(now.lines);
            let enough = |wanted: &VecDeque<VecDeque<Line>>| wanted.iter().map(VecDeque::len).sum::<usize>() >= most;
            // Older files are read only if they can contain further lines.
            while !enough(&wanted) && first.as_deref().is_none_or(|first| first >= since) && number < ROTATED_MAX {
                number += 1;
                let mut older = path.as_os_str().to_owned();
                older.push(format!(".{number}"));
                let file = match File::open(&older) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    file => file?,
                };
                let before = FileLines::read(file, process, most, &fits)?;
                first = before.first.or(first);
                wanted.push_front(before.lines);
            }
            lines.extend(wanted.into_iter().flatten());
            Ok(())
        })?;
        lines.drain(..lines.len().saturating_sub(most));
        Ok(lines)
    }

    /// Reads every log by `read(reader, path, process, lines)`, and sorts the lines by their stamps.
    fn each(
        &mut self,
        read: impl Fn(&mut Self, &Path, &str, &mut Vec<Line>) -> io::Result<()>,
    ) -> io::Result<Vec<Line>> {
        let mut lines = Vec::new();
        self.unreadable.clear();
        let paths = std::fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "log")).take(LOGS_MAX) {
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
            if let Err(error) = read(self, path, if name == "_supervisor" { "" } else { name }, &mut lines) {
                self.unreadable.push(format!("{}: {error}", path.display()));
            }
        }
        lines.sort_by(|one, other| one.stamp.cmp(&other.stamp));
        Ok(lines)
    }

    fn read(&mut self, path: &Path, process: &str, lines: &mut Vec<Line>) -> io::Result<()> {
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
    fn the_past_of_all_logs_has_the_wanted_lines_of_rotated_files_and_new_lines_follow() {
        let log = folder("past");
        let write = |name: &str, text: String| std::fs::write(log.join(name), text).unwrap();
        write("a.log.2", line(0, "water too old"));
        write("a.log.1", line(1, "water 1") + &line(2, "air 2"));
        write("a.log", line(5, "Water 5") + &line(6, &"x".repeat(9000)) + "2026-11-27T05:00:07.000Z water not comp");
        write("b.log", line(3, "[err] water 3"));
        let since = "2026-11-27T05:00:01.000Z";
        let past = |most| {
            let mut reader = Reader::of_folder(log.clone());
            let lines = reader.past(since, most, &|line| line.contains("water")).unwrap();
            (reader, lines.into_iter().map(|line| line.text).collect::<Vec<_>>())
        };
        assert_eq!(past(2).1, ["water 3", "Water 5"]);
        let (mut reader, texts) = past(100);
        assert_eq!(texts, ["water 1", "water 3", "Water 5"]);
        let all = Reader::of_folder(log.clone()).past("", 100, &|_| true).unwrap();
        assert_eq!((all.len(), all[0].text.as_str(), all[5].text.len()), (6, "water too old", LINE_BYTES_MAX - 25));
        std::fs::OpenOptions::new().append(true).open(log.join("a.log")).unwrap().write_all(b"lete\n").unwrap();
        let fresh: Vec<_> = reader.fresh().unwrap().into_iter().map(|line| line.text).collect();
        assert_eq!(fresh, ["water not complete"]);
        std::fs::remove_dir_all(log).unwrap();
    }

    #[test]
    fn only_the_first_word_of_a_line_makes_it_an_error_or_a_warning() {
        let of = Line::level_of;
        for text in ["error: no water", "[ERROR] no water", "  Fatal", "Failed to open"] {
            assert_eq!(of(Origin::Output, text), Level::Error, "{text}");
        }
        for text in ["warning: slow", "[WARN] slow"] {
            assert_eq!(of(Origin::Output, text), Level::Warning, "{text}");
        }
        for text in ["0 errors", "errors: 0", "no error", "warned of nothing", "", "---"] {
            assert_eq!(of(Origin::Output, text), Level::Info, "{text}");
        }
        assert_eq!(of(Origin::Error, "0 errors"), Level::Warning);
    }

    #[test]
    fn a_line_that_tahti_wrote_has_the_severity_of_its_mark_and_not_of_its_words() {
        let of = |process: &str, text: &str| {
            let line = Line::parse(process, format!("2026-11-27T05:00:01.000Z {text}").as_bytes(), "");
            (line.level, line.text)
        };
        let seen = |level, text: &str| (level, text.to_owned());
        assert_eq!(of("", "[error] a: ended: exit 3"), seen(Level::Error, "a: ended: exit 3"));
        assert_eq!(of("", "[warning] a: restart 1 of 5 in 1s"), seen(Level::Warning, "a: restart 1 of 5 in 1s"));
        assert_eq!(of("", "error: started"), seen(Level::Info, "error: started"), "a process can be called \"error\"");
        let ended = "a (PID 7) ended: signal 9";
        assert_eq!(of("a", &format!("@@@ [error] {ended}")), seen(Level::Error, ended));
        assert_eq!(of("a", "[error] no water"), seen(Level::Error, "[error] no water"), "a process's own text");
    }

    #[test]
    fn stamps_follow_the_calendar() {
        for (unix_ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_241_234_567, "2026-11-21T06:07:14.567Z"),
        ] {
            assert_eq!(stamp(unix_ms), expected);
        }
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
