//! Bodies of `batch`: a MessagePack array of texts. A request has the lines of its parts, a reply those of their
//! replies.

use alloc::vec::Vec;
use core::fmt;

/// Maximum number of lines of a batch.
pub const BATCH_LINES_MAX: usize = 256;

/// The body is not an array of texts, or has too many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// Byte offset of the error in the body.
    pub at: usize,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        write!(f, "byte {at} of a batch's body, expected a MessagePack array of at most {BATCH_LINES_MAX} texts")
    }
}

impl core::error::Error for BatchError {}

/// Iterator over the lines of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    body: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Lines<'a> {
    /// Starts reading.
    ///
    /// # Errors
    /// The body is not an array, or has too many texts.
    pub fn read(body: &'a [u8]) -> Result<Self, BatchError> {
        let (left, at) = match body {
            [head @ 0x90..=0x9f, ..] => (usize::from(head & 15), 1),
            [0xdc, high, low, ..] => (usize::from(u16::from_be_bytes([*high, *low])), 3),
            _ => return Err(BatchError { at: 0 }),
        };
        if left > BATCH_LINES_MAX { Err(BatchError { at: 0 }) } else { Ok(Self { body, at, left }) }
    }

    fn line(&mut self) -> Result<&'a str, BatchError> {
        let error = BatchError { at: self.at };
        let rest = self.body.get(self.at..).unwrap_or_default();
        let (length, head) = match rest {
            [head @ 0xa0..=0xbf, ..] => (usize::from(head & 31), 1),
            [0xd9, length, ..] => (usize::from(*length), 2),
            [0xda, high, low, ..] => (usize::from(u16::from_be_bytes([*high, *low])), 3),
            _ => return Err(error),
        };
        let bytes = rest.get(head..head + length).ok_or(error)?;
        self.at += head + length;
        core::str::from_utf8(bytes).map_err(|_| error)
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a str, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let line = self.line();
        if line.is_err() {
            self.left = 0;
        }
        Some(line)
    }
}

/// Appends lines as the body of a batch. The caller must pass at most [`BATCH_LINES_MAX`] lines of at most 65535 bytes;
/// otherwise [`Lines`] rejects the body.
pub fn write_lines<'a>(lines: impl ExactSizeIterator<Item = &'a str>, out: &mut Vec<u8>) {
    out.push(0xdc);
    out.extend_from_slice(&(lines.len() as u16).to_be_bytes());
    for line in lines {
        out.push(0xda);
        out.extend_from_slice(&(line.len() as u16).to_be_bytes());
        out.extend_from_slice(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    proptest! {
        #[test]
        fn lines_of_a_batch_survive_a_round_trip(lines in proptest::collection::vec(".{0,40}", 0..20)) {
            let mut body = Vec::new();
            write_lines(lines.iter().map(String::as_str), &mut body);
            let read: Result<Vec<&str>, _> = Lines::read(&body).unwrap().collect();
            prop_assert_eq!(read.unwrap(), lines);
        }

        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(lines) = Lines::read(&body) {
                prop_assert!(lines.count() <= BATCH_LINES_MAX);
            }
        }
    }
}
