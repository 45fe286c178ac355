//! Text of bounded length on the stack.

use crate::code::Code;
use crate::frame::TEXT_BYTES_MAX;
use crate::text::Escaped;
use core::fmt::{self, Write};

/// A text of at most [`TEXT_BYTES_MAX`] bytes. Text beyond that is cut.
///
/// Real-time: does not allocate.
#[derive(Clone)]
pub struct TextBuffer {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl Default for TextBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl TextBuffer {
    /// An empty text.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; TEXT_BYTES_MAX], length: 0 }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// Clears the text.
    pub const fn clear(&mut self) {
        self.length = 0;
    }

    /// Sets the text to a reply.
    pub fn reply(&mut self, code: Code, complement: impl fmt::Display) {
        self.clear();
        // Text beyond the limit is cut. An escape sequence that would be cut in the middle is removed.
        let _ = write!(self, "{code}/{}", Escaped(complement));
        if self.length == TEXT_BYTES_MAX
            && let Some(at) = self.bytes[self.length - 2..].iter().position(|byte| *byte == b'%')
        {
            self.length = self.length - 2 + at;
        }
    }
}

impl Write for TextBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_BYTES_MAX - self.length;
        let take = text.floor_char_boundary(room);
        self.bytes[self.length..self.length + take].copy_from_slice(&text.as_bytes()[..take]);
        self.length += take;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Reply;
    use std::string::String;

    #[test]
    fn a_long_reply_is_truncated_at_a_valid_place() {
        for filling in ["/", "ä", "a/", "aa/", "aaa/", "%\n"] {
            let mut line = TextBuffer::new();
            let text: String = filling.repeat(TEXT_BYTES_MAX);
            line.reply(Code::Device, &text);
            let reply = Reply::parse(line.text()).unwrap();
            assert!(text.starts_with(&*reply.complement.text()) && line.text().len() > TEXT_BYTES_MAX - 4, "{filling}");
        }
    }
}
