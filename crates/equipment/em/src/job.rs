//! Messages between the threads of a manager: requests and answers of fixed size, passed by value.

use base::MonoNs;
use equipment::{Answer, Fault};
use msg::{Code, Ticket};
use std::fmt::{self, Write as _};

/// Maximum length of object and complement together in bytes. Longer requests are refused.
pub(crate) const TEXT_BYTES: usize = 512;

/// The end of a truncated text.
const CUT: &str = "…";

/// The request of an answer: a whole request, or one line of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slip {
    pub(crate) ticket: Ticket,
    pub(crate) line: Option<u16>,
}

/// A text of bounded length. A longer text is truncated at a character boundary and ends with an ellipsis.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; TEXT_BYTES + CUT.len()],
    len: u16,
    cut: bool,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; TEXT_BYTES + CUT.len()], len: 0, cut: false }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    fn put(&mut self, text: &str) {
        let from = usize::from(self.len);
        self.bytes[from..from + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len() as u16;
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.cut {
            return Ok(());
        }
        let mut take = text.len().min(TEXT_BYTES - usize::from(self.len));
        while !text.is_char_boundary(take) {
            take -= 1;
        }
        self.put(&text[..take]);
        if take < text.len() {
            self.put(CUT);
            self.cut = true;
        }
        Ok(())
    }
}

/// A request for the lane of another thread.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) slip: Slip,
    pub(crate) verb: msg::Verb,
    pub(crate) deadline: MonoNs,
    object: u16,
    text: Text,
}

impl Job {
    /// Returns `None` if the texts are too long.
    pub(crate) fn new(slip: Slip, verb: msg::Verb, deadline: MonoNs, object: &str, complement: &str) -> Option<Self> {
        let mut text = Text::new();
        if object.len() + complement.len() > TEXT_BYTES {
            return None;
        }
        // Writing to a `Text` cannot fail.
        let _ = write!(text, "{object}{complement}");
        Some(Self { slip, verb, deadline, object: object.len() as u16, text })
    }

    pub(crate) fn object(&self) -> &str {
        &self.text.as_str()[..usize::from(self.object)]
    }

    pub(crate) fn complement(&self) -> &str {
        &self.text.as_str()[usize::from(self.object)..]
    }
}

/// An answer for the thread of the band.
#[derive(Clone, Copy)]
pub(crate) struct JobResult {
    pub(crate) slip: Slip,
    pub(crate) code: Code,
    pub(crate) text: Text,
}

impl JobResult {
    /// The answer of a lane as text. Does not allocate.
    pub(crate) fn of(slip: Slip, answer: &Result<Answer<'_>, Fault<'_>>) -> Self {
        let mut text = Text::new();
        // Writing to a `Text` cannot fail.
        let (code, _) = match answer {
            Ok(Answer::Ok) => (Code::Ok, Ok(())),
            Ok(Answer::Value(value, unit, Some(precision))) => (Code::Ok, write!(text, "{value:.precision$}{unit}")),
            Ok(Answer::Value(value, unit, None)) => (Code::Ok, write!(text, "{value}{unit}")),
            Err(fault) => (fault.code(), write!(text, "{fault}")),
        };
        Self { slip, code, text }
    }

    /// An answer with a fixed text.
    pub(crate) fn said(slip: Slip, code: Code, words: &str) -> Self {
        let mut text = Text::new();
        // Writing to a `Text` cannot fail.
        let _ = text.write_str(words);
        Self { slip, code, text }
    }

    /// The answer to a request whose deadline passed before the lane executed it.
    pub(crate) fn expired(slip: Slip) -> Self {
        let why = "the deadline passed before the access, or while waiting for the value";
        Self::said(slip, Code::Expired, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_truncated_with_an_ellipsis() {
        let mut text = Text::new();
        write!(text, "{}ä and more", "a".repeat(511)).unwrap();
        assert_eq!(text.as_str(), format!("{}…", "a".repeat(511)));
        let mut exact = Text::new();
        write!(exact, "{}", "b".repeat(512)).unwrap();
        assert_eq!(exact.as_str(), "b".repeat(512));
    }
}
