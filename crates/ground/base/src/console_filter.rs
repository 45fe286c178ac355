//! Filter for a console's bytes before they reach a terminal: passes drawing sequences, removes all others.
//!
//! A terminal answers queries for its identity, cursor position or title by typing the answer as if the user had. Other
//! sequences set the clipboard, print, or resize. Programs do not need them to draw.

use alloc::vec::Vec;

/// Longer sequences are removed.
const SEQUENCE_BYTES_MAX: usize = 64;

/// Modes that a program may switch: cursor keys, wrapping, cursor shape, alternate screen, bracketed paste.
const MODES: &[&[u8]] = &[b"1", b"7", b"12", b"25", b"47", b"1047", b"1048", b"1049", b"2004"];

/// Position in a sequence after the last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After 0xc2, the first byte of C1 controls in UTF-8.
    Latin,
    Escape,
    /// Before the final byte of a character-set or line sequence.
    Named,
    Control,
    /// In a title, clipboard or device string, which is removed up to its end.
    Words,
    /// After ESC in such a string; a backslash ends it.
    WordsEnd,
}

/// Filters a console's bytes in pieces of any size. Memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct ConsoleFilter {
    state: State,
    /// The sequence so far.
    sequence: Vec<u8>,
}

impl ConsoleFilter {
    /// The bytes that may reach a terminal.
    #[must_use]
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.step(*byte, &mut out);
        }
        out
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        let next = match (self.state, byte) {
            // CAN and SUB cancel any sequence.
            (_, 0x18 | 0x1a) => State::Text,
            (State::Words, 0x07) => State::Text,
            (State::Words, 0x1b) => State::WordsEnd,
            (State::Words, _) => State::Words,
            (State::WordsEnd, b'\\') => State::Text,
            (State::WordsEnd, 0x1b) => State::WordsEnd,
            (State::WordsEnd, _) => State::Words,
            (_, 0x1b) => State::Escape,
            (State::Text, 0xc2) => State::Latin,
            (State::Text, 0x07..=0x0d) => self.put(byte, out),
            (State::Text, 0x00..=0x1f | 0x7f) => State::Text,
            (State::Text, _) => self.put(byte, out),
            (State::Latin, 0x80..=0x9f) => State::Text,
            (State::Latin, _) => {
                out.push(0xc2);
                self.state = State::Text;
                return self.step(byte, out);
            }
            (State::Escape, b'[') => State::Control,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_' | b'k') => State::Words,
            (State::Escape, b'(' | b')' | b'*' | b'+') => State::Named,
            (State::Escape, b'7' | b'8' | b'=' | b'>' | b'D' | b'E' | b'M') => {
                self.sequence.push(byte);
                self.emit(b"\x1b", out)
            }
            (State::Escape, _) => State::Text,
            (State::Named, b'0' | b'A' | b'B') => {
                self.sequence.push(byte);
                self.emit(b"\x1b", out)
            }
            (State::Named, _) => State::Text,
            (State::Control, 0x20..=0x3f) if self.sequence.len() < SEQUENCE_BYTES_MAX => State::Control,
            (State::Control, 0x40..=0x7e) if draws(&self.sequence, byte) => {
                self.sequence.push(byte);
                self.emit(b"\x1b[", out)
            }
            // Any other sequence is removed.
            (State::Control, _) => State::Text,
        };
        match (self.state, next) {
            (State::Control, State::Control) | (State::Escape, State::Named) => self.sequence.push(byte),
            _ => self.sequence.clear(),
        }
        self.state = next;
    }

    fn put(&self, byte: u8, out: &mut Vec<u8>) -> State {
        out.push(byte);
        self.state
    }

    fn emit(&self, head: &[u8], out: &mut Vec<u8>) -> State {
        out.extend_from_slice(head);
        out.extend_from_slice(&self.sequence);
        State::Text
    }
}

/// A control sequence with these parameters and this final byte only moves, erases or colours.
fn draws(parameters: &[u8], end: u8) -> bool {
    let plain = parameters.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
    match end {
        b'@' | b'A'..=b'H' | b'J'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`' | b'a' | b'd'..=b'g' => plain,
        b'm' | b'r' | b's' | b'u' => plain,
        b'h' | b'l' => modes(parameters),
        b'q' => parameters.strip_suffix(b" ").is_some_and(|shape| shape.iter().all(u8::is_ascii_digit)),
        _ => false,
    }
}

/// Whether every mode that is named is one of [`MODES`].
fn modes(parameters: &[u8]) -> bool {
    let named = parameters.strip_prefix(b"?");
    named.is_some_and(|list| list.split(|byte| *byte == b';').all(|mode| MODES.contains(&mode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn passed(bytes: &[u8]) -> Vec<u8> {
        ConsoleFilter::default().pass(bytes)
    }

    #[test]
    fn sequences_that_only_draw_pass() {
        for drawing in [
            "plain µs é \u{a0}\r\n\t\x07\x08".as_bytes(),
            b"\x1b[H\x1b[2J\x1b[1;31mred\x1b[0m\x1b[38;2;1;2;3m",
            b"\x1b[?25l\x1b[?1049h\x1b[?2004h\x1b[2 q\x1b(0\x1b(B\x1b7\x1b8\x1b[3;10r",
        ] {
            assert_eq!(passed(drawing), drawing);
        }
    }

    #[test]
    fn sequences_that_do_more_than_draw_are_removed() {
        for mean in [
            &b"\x1b[6n"[..],
            b"\x1b[c\x1b[>c\x1b[0x\x1bZ\x05",
            b"\x1b[21t\x1b[8;1;1t",
            b"\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x1b\\",
            b"\x1bP$q q\x1b\\\x1b_apc\x1b\\\x1bkname\x1b\\",
            b"\x1b[?1000h\x1b[?25;1004h\x1b[?1$p\x1b[>q\x1b[?u\x1b[5i\x1bc",
            "\u{9b}6n".as_bytes(),
        ] {
            let left = passed(&[mean, b"ok"].concat());
            assert!(
                left.ends_with(b"ok") && !left.contains(&0x1b),
                "{:?}",
                alloc::string::String::from_utf8_lossy(&left)
            );
        }
    }

    proptest! {
        #[test]
        fn a_stream_in_pieces_is_filtered_as_a_whole(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b'm')], 0..200), at in 0usize..200) {
            let at = at.min(bytes.len());
            let mut pieces = ConsoleFilter::default();
            let mut both = pieces.pass(&bytes[..at]);
            both.extend(pieces.pass(&bytes[at..]));
            prop_assert_eq!(&both, &passed(&bytes));
            // Text that has passed is not changed by a second pass.
            prop_assert_eq!(&passed(&both), &both);
            prop_assert!(pieces.sequence.len() <= SEQUENCE_BYTES_MAX);
        }
    }

    #[test]
    fn a_sequence_without_end_takes_no_memory() {
        let mut filter = ConsoleFilter::default();
        for _ in 0..1000 {
            assert!(
                filter
                    .pass(b"\x1b[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1")
                    .len()
                    < 100
            );
        }
        assert_eq!(filter.pass(b"\x18x"), vec![b'x']);
    }
}
