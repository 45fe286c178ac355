//! What passes between a manager's threads: requests and answers of fixed size, by value.

use base::MonoNs;
use equipment::{Answer, Fault};
use msg::{Code, Ticket};
use std::fmt::{self, Write as _};

/// Bytes of object and complement together; longer requests are refused.
pub(crate) const TEXT_BYTES: usize = 512;

/// A text of bounded length; what does not fit is cut at a character.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; TEXT_BYTES],
    len: u16,
}

impl Text {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; TEXT_BYTES], len: 0 }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let from = usize::from(self.len);
        let mut take = text.len().min(TEXT_BYTES - from);
        while !text.is_char_boundary(take) {
            take -= 1;
        }
        self.bytes[from..from + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take as u16;
        Ok(())
    }
}

/// A request for another thread's lane.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) ticket: Ticket,
    pub(crate) verb: msg::Verb,
    pub(crate) deadline: MonoNs,
    object: u16,
    text: Text,
}

impl Job {
    /// `None` if the texts are too long.
    pub(crate) fn new(
        ticket: Ticket,
        verb: msg::Verb,
        deadline: MonoNs,
        object: &str,
        complement: &str,
    ) -> Option<Self> {
        let mut text = Text::new();
        if object.len() + complement.len() > TEXT_BYTES {
            return None;
        }
        // Writing to a `Text` cannot fail.
        let _ = write!(text, "{object}{complement}");
        Some(Self { ticket, verb, deadline, object: object.len() as u16, text })
    }

    pub(crate) fn object(&self) -> &str {
        &self.text.as_str()[..usize::from(self.object)]
    }

    pub(crate) fn complement(&self) -> &str {
        &self.text.as_str()[usize::from(self.object)..]
    }
}

/// An answer for the thread that has the band.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub(crate) ticket: Ticket,
    pub(crate) code: Code,
    pub(crate) text: Text,
}

impl Done {
    /// What a lane answers, as text. Does not allocate.
    pub(crate) fn of(ticket: Ticket, answer: &Result<Answer<'_>, Fault<'_>>) -> Self {
        let mut text = Text::new();
        // Writing to a `Text` cannot fail.
        let (code, _) = match answer {
            Ok(Answer::Ok) => (Code::Ok, Ok(())),
            Ok(Answer::Value(value, unit, Some(precision))) => (Code::Ok, write!(text, "{value:.precision$}{unit}")),
            Ok(Answer::Value(value, unit, None)) => (Code::Ok, write!(text, "{value}{unit}")),
            Err(fault) => (fault.code(), write!(text, "{fault}")),
        };
        Self { ticket, code, text }
    }

    /// An answer whose deadline passed before the lane came to it.
    pub(crate) fn expired(ticket: Ticket) -> Self {
        let mut text = Text::new();
        let _ = text.write_str("the deadline had passed before anything was done, or while the value was waited for");
        Self { ticket, code: Code::Expired, text }
    }
}
