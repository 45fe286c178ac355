//! The line of a child's output that is the probable reason for its end.
//!
//! On a terminal, standard output and standard error are one stream, in the order of the writes. The line is then the
//! message of the last crash report, or else the last line. Crash reports go to standard error only, and their last line is
//! often a note or a part of a stack. With pipes, it is the same of standard error, or of standard output if nothing is
//! there.

use crate::supervisor::brief;
use base::{OneLine, Visible};

/// Bytes kept of a line.
const BYTES_MAX: usize = 1024;
/// Maximum number of characters displayed.
const LETTERS_MAX: usize = 200;
/// Lines after the message of a crash report, such as its stack, within which the report is the reason for the end.
const REPORT_LINES: u32 = 100;

/// Keeps the last non-blank line and the message of the last crash report of a stream, at most 1 KiB of each.
#[derive(Debug, Default)]
pub(super) struct LastLine {
    /// The current, incomplete line.
    open: Vec<u8>,
    /// The last complete line.
    ended: Vec<u8>,
    /// The message of the last crash report, and the number of lines since.
    report: Option<(Vec<u8>, u32)>,
    /// The message of a crash report is expected.
    begun: Option<Report>,
}

/// The form of a crash report whose message is in a line after its head.
#[derive(Clone, Copy, Debug)]
enum Report {
    /// Rust: the next line.
    Panic,
    /// Python: the next line that is not indented.
    Traceback,
    /// C++: the next line, if it starts with `what():`.
    Terminate,
}

impl Report {
    /// The form of the report that this line begins.
    fn of(line: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(line);
        match text.trim_end() {
            text if text.starts_with("thread '") && text.contains(" panicked at ") && text.ends_with(':') => {
                Some(Self::Panic)
            }
            text if text.starts_with("Traceback (most recent call last)") => Some(Self::Traceback),
            text if text.starts_with("terminate called after throwing") => Some(Self::Terminate),
            _ => None,
        }
    }

    /// Whether this line, after the head, is the message.
    fn has_message(self, line: &[u8]) -> bool {
        match self {
            Self::Panic => true,
            Self::Traceback => !line.starts_with(b" "),
            Self::Terminate => line.trim_ascii_start().starts_with(b"what():"),
        }
    }
}

impl LastLine {
    /// Adds output. A carriage return also ends a line, because a progress bar prints no newline.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let text = piece.strip_suffix(b"\n").or_else(|| piece.strip_suffix(b"\r")).unwrap_or(piece);
            let room = BYTES_MAX - self.open.len();
            self.open.extend_from_slice(&text[..text.len().min(room)]);
            if text.len() < piece.len() {
                if !self.open.trim_ascii().is_empty() {
                    std::mem::swap(&mut self.open, &mut self.ended);
                    self.inspect();
                }
                self.open.clear();
            }
        }
    }

    /// Searches the last complete line for a part of a crash report.
    fn inspect(&mut self) {
        let line = &self.ended;
        let is_message = match self.begun {
            Some(report) => report.has_message(line),
            // Rust before 1.73, and Go.
            None => {
                let is_old_panic =
                    line.starts_with(b"thread '") && line.windows(14).any(|part| part == b" panicked at '");
                is_old_panic || line.starts_with(b"panic: ") || line.starts_with(b"fatal error: ")
            }
        };
        if is_message {
            (self.report, self.begun) = (Some((line.clone(), 0)), None);
            return;
        }
        match Report::of(line) {
            // Without a message, the head is the message.
            Some(report) => (self.report, self.begun) = (Some((line.clone(), 0)), Some(report)),
            None => {
                self.begun = self.begun.filter(|report| matches!(report, Report::Traceback));
                self.report.as_mut().into_iter().for_each(|(_, lines)| *lines += 1);
                self.report.take_if(|(_, lines)| *lines > REPORT_LINES);
            }
        }
    }

    /// The line for display: at most 200 characters, without colours, control characters as `\x07`.
    pub(super) fn text(&self) -> Option<String> {
        // A prompt that waits for input is no reason.
        let blank = matches!(self.open.trim_ascii(), b"" | b"epics>" | b"$" | b"#" | b">" | b">>>");
        let last = if blank { &self.ended } else { &self.open };
        let line = self.report.as_ref().map_or(last, |(message, _)| message);
        let line = String::from_utf8_lossy(line).replace('\t', " ");
        let plain = Visible { text: line.trim(), colours: false }.to_string();
        let line = OneLine(plain.trim()).to_string();
        (!line.is_empty()).then(|| brief(&line, LETTERS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(pieces: &[&[u8]]) -> Option<String> {
        let mut line = LastLine::default();
        pieces.iter().for_each(|piece| line.take(piece));
        line.text()
    }

    #[test]
    fn the_last_line_is_kept_across_reads_and_blank_lines() {
        assert_eq!(last(&[b"one\r\ntwo: no su", b"ch file\r\n", b"\r\n  \n"]).unwrap(), "two: no such file");
        assert_eq!(last(&[b"one\nwithout an end"]).unwrap(), "without an end");
        assert_eq!(last(&[b"10 %\r20 %\r"]).unwrap(), "20 %");
        assert_eq!(last(&[b"no such record\nepics> "]).unwrap(), "no such record");
        assert_eq!((last(&[]), last(&[b"\n \n"])), (None, None));
    }

    #[test]
    fn the_message_of_a_crash_report_comes_before_its_notes_its_stack_and_a_farewell() {
        let note = b"note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        for head in
            ["thread 'main' panicked at src/main.rs:2:5:\n", "\nthread 'pump' (77) panicked at src/main.rs:2:5:\r\n"]
        {
            assert_eq!(
                last(&[b"starts\n", head.as_bytes(), b"no pressure\nin tank 2\n", note]).unwrap(),
                "no pressure"
            );
        }
        let old = "thread 'main' panicked at 'no pressure', src/main.rs:2:5";
        assert_eq!(last(&[old.as_bytes(), b"\n", note]).unwrap(), old);
        let python = b"Traceback (most recent call last):\n  File \"x\", line 1, in <module>\n    f()\nValueError: no pressure\n";
        assert_eq!(last(&[python, b"goodbye\n"]).unwrap(), "ValueError: no pressure");
        let what = b"terminate called after throwing an instance of 'std::out_of_range'\n  what():  no pressure\n";
        assert_eq!(last(&[what]).unwrap(), "what(): no pressure".replace(": ", ":  "));
        assert_eq!(
            last(&[b"terminate called after throwing an instance of 'int'\nAborted\n"]).unwrap(),
            "terminate called after throwing an instance of 'int'"
        );
        let go = b"panic: no pressure\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:2 +0x18\nexit status 2\n";
        assert_eq!(last(&[go]).unwrap(), "panic: no pressure");
        // A program that continued for long did not end for that reason.
        let lines = b"works\n".repeat(REPORT_LINES as usize + 1);
        assert_eq!(last(&[python, &lines]).unwrap(), "works");
    }

    #[test]
    fn a_line_is_bounded_and_never_controls_a_terminal() {
        assert_eq!(last(&[b"\x1b[31merror\x1b[0m:\tno\x07 \x1b]0;title\n"]).unwrap(), "error: no\\x07 \\x1b]0;title");
        let long = last(&[&b"word ".repeat(1000), b"\n"]).unwrap();
        assert!(long.chars().count() <= LETTERS_MAX && long.ends_with('…'), "{long}");
        let latin = last(&[b"caf\xe9\n"]).unwrap();
        assert_eq!(latin, "caf\u{fffd}");
    }
}
