//! The last line of a child's output, which is often the reason for its end.

use crate::supervisor::brief;
use base::{OneLine, Visible};

/// Bytes kept of a line.
const BYTES_MAX: usize = 1024;
/// Maximum number of characters displayed.
const LETTERS_MAX: usize = 200;

/// Keeps the last non-blank line of a stream, at most 1 KiB of it.
#[derive(Debug, Default)]
pub(super) struct LastLine {
    /// The current, incomplete line.
    open: Vec<u8>,
    /// The last complete line.
    ended: Vec<u8>,
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
                }
                self.open.clear();
            }
        }
    }

    /// The line for display: at most 200 characters, without colours, control characters as `\x07`.
    pub(super) fn text(&self) -> Option<String> {
        // A prompt that waits for input is no reason.
        let blank = matches!(self.open.trim_ascii(), b"" | b"epics>" | b"$" | b"#" | b">" | b">>>");
        let line = String::from_utf8_lossy(if blank { &self.ended } else { &self.open }).replace('\t', " ");
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
    fn a_line_is_bounded_and_never_controls_a_terminal() {
        assert_eq!(last(&[b"\x1b[31merror\x1b[0m:\tno\x07 \x1b]0;title\n"]).unwrap(), "error: no\\x07 \\x1b]0;title");
        let long = last(&[&b"word ".repeat(1000), b"\n"]).unwrap();
        assert!(long.chars().count() <= LETTERS_MAX && long.ends_with('…'), "{long}");
        let latin = last(&[b"caf\xe9\n"]).unwrap();
        assert_eq!(latin, "caf\u{fffd}");
    }
}
