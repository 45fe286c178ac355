//! A child's log file: stamped lines, rotated by size.
//!
//! If the disk is full, lines are lost; the log reports how many once it can be written again. The child is never stopped.
//! Lines without end are split, so that the size limit holds. A file that was moved or removed is created again.

use super::protocol::LogSpec;
use crate::appended::Appended;
use crate::forward::{self, Forward};
use std::io;
use std::path::PathBuf;

/// A full file is rotated at the end of a line, or after this many more bytes of an unfinished line.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The log of one child. Without a spec all output is discarded.
#[derive(Debug)]
pub(super) struct Log {
    spec: Option<LogSpec>,
    file: Option<Appended>,
    lost: u64,
    /// Lost lines that the log does not report yet.
    outage: Option<Outage>,
    /// A part of the line was lost, so the next output starts with a stamp.
    broken: bool,
    /// The stream with an unfinished line. Output of another stream starts a new line.
    open_line: Option<Stream>,
    line: Vec<u8>,
    /// The system journal, and the unfinished line for it.
    journal: Option<(Forward, Vec<u8>)>,
}

/// Lines that could not be written.
#[derive(Debug)]
struct Outage {
    why: io::Error,
    lines: usize,
    bytes: usize,
}

/// Origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Terminal or standard output.
    Output,
    /// Standard error.
    Error,
    /// The keeper itself.
    Keeper,
}

impl Stream {
    fn mark(self) -> &'static [u8] {
        match self {
            Self::Output => b"",
            Self::Error => b"[err] ",
            Self::Keeper => b"@@@ ",
        }
    }
}

impl Log {
    /// The log of process `name`.
    pub(super) fn open(spec: Option<LogSpec>, name: &str) -> Self {
        let also = spec.as_ref().and_then(|spec| spec.also.as_ref());
        let journal = also.map(|(also, plant)| (Forward::new(*also, plant, name), Vec::new()));
        let file = spec.as_ref().map(|spec| Appended::open(spec.path.clone()));
        Self { spec, file, lost: 0, outage: None, broken: false, open_line: None, line: Vec::new(), journal }
    }

    /// Number of bytes that could not be written.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Opens the file at the configured path, or creates it, after another program has moved it.
    pub(super) fn reopen(&mut self) {
        if let Some(file) = &mut self.file {
            // If this fails, the next write reports the error.
            let _ = file.reopen();
        }
    }

    /// Appends output; `now` is the wall clock in milliseconds since 1970.
    pub(super) fn append(&mut self, stream: Stream, bytes: &[u8], now_unix_ms: u64) {
        if self.spec.is_none() {
            return;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Some((journal, line)) = &mut self.journal {
                if self.open_line.is_some_and(|open| open != stream) {
                    journal.line(&std::mem::take(line));
                }
                line.extend_from_slice(piece.strip_suffix(b"\n").unwrap_or(piece));
                while line.len() > forward::LINE_BYTES_MAX {
                    let rest = line.split_off(forward::LINE_BYTES_MAX);
                    journal.line(&std::mem::replace(line, rest));
                }
                if piece.ends_with(b"\n") {
                    let line = std::mem::take(line);
                    journal.line(line.strip_suffix(b"\r").unwrap_or(&line));
                }
            }
            if self.open_line != Some(stream) || self.broken {
                if self.open_line.is_some() && !self.broken {
                    self.line.push(b'\n');
                }
                self.line.extend_from_slice(&stamp(now_unix_ms));
                self.line.extend_from_slice(stream.mark());
                self.broken = false;
            }
            let ended = piece.ends_with(b"\n");
            // A terminal ends lines with CR LF.
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.line.extend_from_slice(if ended { text.strip_suffix(b"\r").unwrap_or(text) } else { text });
            if ended {
                self.line.push(b'\n');
            }
            self.open_line = (!ended).then_some(stream);
            self.flush(now_unix_ms);
        }
    }

    fn flush(&mut self, now_unix_ms: u64) {
        self.flush_line(now_unix_ms);
        let Some(spec) = &self.spec else { return };
        let allowed = spec.size.0 + if self.open_line.is_some() { LINE_BYTES_MAX } else { 0 };
        if self.file.as_ref().is_some_and(|file| file.size() >= allowed) {
            if self.open_line.take().is_some() {
                // The rest of the line gets its own stamp in the next file.
                self.line.push(b'\n');
                self.flush_line(now_unix_ms);
            }
            self.rotate();
        }
    }

    /// Writes the buffered line, after a report of earlier losses. Bytes that cannot be written are counted.
    fn flush_line(&mut self, now_unix_ms: u64) {
        let Some(file) = &mut self.file else { return self.line.clear() };
        let told = self.outage.as_ref().map_or(Vec::new(), |outage| outage.line(now_unix_ms));
        let (written, result) =
            if told.is_empty() { file.append(&self.line) } else { file.append(&[&told[..], &self.line[..]].concat()) };
        if written >= told.len() {
            self.outage = None;
        }
        if let Err(why) = result {
            let lost = &self.line[written.saturating_sub(told.len()).min(self.line.len())..];
            let outage = self.outage.get_or_insert(Outage { why, lines: 0, bytes: 0 });
            outage.lines += lost.iter().filter(|byte| **byte == b'\n').count();
            outage.bytes += lost.len();
            (self.lost, self.broken) = (self.lost + lost.len() as u64, true);
        }
        self.line.clear();
        self.line.shrink_to(4096);
    }

    fn rotate(&mut self) {
        let Some(spec) = &self.spec else { return };
        let name = |number: u32| -> PathBuf {
            if number == 0 {
                return spec.path.clone();
            }
            let mut name = spec.path.clone().into_os_string();
            name.push(format!(".{number}"));
            name.into()
        };
        // A missing older file is normal. A file that cannot be renamed is overwritten by the next rotation.
        for number in (0..spec.keep).rev() {
            let _ = std::fs::rename(name(number), name(number + 1));
        }
        if spec.keep == 0 {
            let _ = std::fs::remove_file(&spec.path);
        }
        self.reopen();
    }
}

impl Outage {
    fn line(&self, now_unix_ms: u64) -> Vec<u8> {
        let Self { why, lines, bytes } = self;
        let mut text = stamp(now_unix_ms);
        text.extend_from_slice(Stream::Keeper.mark());
        text.extend_from_slice(format!("{lines} lines ({bytes} bytes) were lost: {why}\n").as_bytes());
        text
    }
}

/// `2026-11-21T06:00:00.123Z `.
fn stamp(unix_ms: u64) -> Vec<u8> {
    (crate::supervisor::logs::stamp(unix_ms) + " ").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Size;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("tahti-log-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn lines_are_stamped_once_and_streams_do_not_mix() {
        let dir = folder("lines");
        let path = dir.join("log");
        let mut log = Log::open(Some(LogSpec { path: path.clone(), size: Size(1 << 20), keep: 1, also: None }), "a");
        log.append(Stream::Output, b"one\r\ntw", 0);
        log.append(Stream::Output, b"o", 0);
        log.append(Stream::Error, b"oops\n", 0);
        log.append(Stream::Keeper, b"bye\n", 0);
        let text = std::fs::read_to_string(&path).unwrap().replace("1970-01-01T00:00:00.000Z", "T");
        assert_eq!(text, "T one\nT two\nT [err] oops\nT @@@ bye\n");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_full_file_is_rotated_and_the_oldest_deleted() {
        let dir = folder("rotate");
        let path = dir.join("log");
        let mut log = Log::open(Some(LogSpec { path: path.clone(), size: Size(50), keep: 2, also: None }), "a");
        for word in ["first\n", "second\n", "third\n", "fourth\n"] {
            log.append(Stream::Output, word.as_bytes(), 0);
            log.append(Stream::Output, b"filler\n", 0);
        }
        let first = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert!(first("log.1").contains("fourth") && first("log.2").contains("third"));
        assert_eq!((first("log").as_str(), dir.join("log.3").exists(), log.lost()), ("", false, 0));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_line_that_never_ends_is_split_when_the_file_is_full() {
        let dir = folder("endless");
        let path = dir.join("log");
        let mut log = Log::open(Some(LogSpec { path: path.clone(), size: Size(1000), keep: 1, also: None }), "a");
        for _ in 0..1000 {
            log.append(Stream::Output, &b"50 %\r".repeat(100), 0);
        }
        for name in ["log", "log.1"] {
            let length = std::fs::metadata(dir.join(name)).unwrap().len();
            assert!(length <= 1000 + LINE_BYTES_MAX + 1000, "{name}: {length} bytes");
        }
        let first = std::fs::read(dir.join("log.1")).unwrap();
        assert!(first.starts_with(b"1970-") && first.ends_with(b"\r\n"), "each piece has its stamp and its end");
        assert!(!dir.join("log.2").exists() && log.lost() == 0);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn bytes_that_cannot_be_written_are_counted() {
        let mut log =
            Log::open(Some(LogSpec { path: "/proc/no/log".into(), size: Size(30), keep: 2, also: None }), "a");
        log.append(Stream::Output, b"lost\n", 0);
        assert_eq!(log.lost(), 30);
    }
}
