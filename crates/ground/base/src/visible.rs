//! Displays untrusted text on a terminal, with control sequences made visible.
//!
//! A terminal executes the control sequences that it receives: it overwrites text, renames its window, or types an answer
//! as if the user had. So programs' output, names of threads and texts of peers are never printed unchanged.

use core::fmt;

/// Displays text so that all of it is visible on a terminal: control characters as `\x1b`, and those that change the
/// direction of writing as `\u202e`. Line ends and tabs are unchanged. A carriage return before a line end is removed.
#[derive(Clone, Copy, Debug)]
pub struct Visible<'a> {
    /// The text.
    pub text: &'a str,
    /// Whether sequences for bold, dim and coloured letters pass ([`colour`]). Otherwise they are removed.
    pub colours: bool,
}

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.text;
        while let Some(at) = rest.find(steers) {
            let (plain, there) = rest.split_at(at);
            f.write_str(plain)?;
            let length = colour(there);
            let (mark, after) = there.split_at(length.max(there.chars().next().map_or(0, char::len_utf8)));
            match mark.chars().next() {
                _ if length > 0 && self.colours => f.write_str(mark)?,
                _ if length > 0 => {}
                Some('\r') if after.starts_with('\n') => {}
                Some(control @ '\0'..='\x1f') => write!(f, "\\x{:02x}", u32::from(control))?,
                Some(other) => write!(f, "\\u{:04x}", u32::from(other))?,
                None => {}
            }
            rest = after;
        }
        f.write_str(rest)
    }
}

/// Displays a name from outside, of a thread or program, on one line: every control character as `\x1b` or `\u0085`,
/// including line ends, tabs and colours. For files as well as terminals.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(|letter| steers(letter) || letter.is_control()) {
            match part.char_indices().next_back().filter(|(_, last)| steers(*last) || last.is_control()) {
                Some((at, last @ '\0'..='\x7f')) => write!(f, "{}\\x{:02x}", &part[..at], u32::from(last))?,
                Some((at, last)) => write!(f, "{}\\u{:04x}", &part[..at], u32::from(last))?,
                None => f.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// A control character, or one that reverses the direction of the following text.
fn steers(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

/// Length in bytes of the colour sequence at the start of a text: bold, dim, red to cyan, and back, such as `ESC [1;31m`.
/// Excludes hidden letters and backgrounds. 0 if the text starts with anything else.
#[must_use]
pub fn colour(text: &str) -> usize {
    let Some(words) = text.strip_prefix("\x1b[") else { return 0 };
    let Some(length) = words.bytes().take(16).position(|byte| byte == b'm') else { return 0 };
    let harmless = |word: &str| {
        matches!(word, "" | "0" | "1" | "2" | "22" | "39") || matches!(word.as_bytes(), [b'3' | b'9', b'1'..=b'6'])
    };
    if words[..length].split(';').all(harmless) { length + 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        Visible { text, colours: true }.to_string()
    }

    #[test]
    fn a_name_is_one_line_without_control_characters_or_colours() {
        let shown = |name: &str| OneLine(name).to_string();
        assert_eq!(shown("a\x1b[31mred\n\t\u{85}\u{202e}z"), "a\\x1b[31mred\\x0a\\x09\\u0085\\u202ez");
        assert_eq!((shown("worker/0 é"), shown(""), shown("\x7f")), ("worker/0 é".into(), "".into(), "\\x7f".into()));
    }

    #[test]
    fn terminal_control_sequences_are_shown_escaped() {
        assert_eq!(shown("a\x1b]0;title\x07b"), "a\\x1b]0;title\\x07b");
        assert_eq!(shown("\x1b[2J\x1b[6n\x1b[8mhidden"), "\\x1b[2J\\x1b[6n\\x1b[8mhidden");
        assert_eq!(shown("\u{9b}2J\u{7f}\u{202e}txt"), "\\u009b2J\\u007f\\u202etxt");
        assert_eq!(shown("100 %\rdone\r\n\tnext\n"), "100 %\\x0ddone\n\tnext\n");
    }

    #[test]
    fn colours_pass_if_enabled_and_are_removed_otherwise() {
        let text = "\x1b[1;31mred\x1b[0m µs \x1b[mplain";
        assert_eq!(shown(text), text);
        assert_eq!(Visible { text, colours: false }.to_string(), "red µs plain");
        // Black on black, and a sequence that does not end.
        assert_eq!(shown("\x1b[30m\x1b[40m\x1b[31"), "\\x1b[30m\\x1b[40m\\x1b[31");
    }

    proptest! {
        #[test]
        fn no_text_keeps_terminal_control_sequences(text in any::<String>(), colours: bool) {
            let shown = Visible { text: &text, colours }.to_string();
            let mut rest = shown.as_str();
            while let Some(at) = rest.find(steers) {
                prop_assert!(colours && colour(&rest[at..]) > 0, "{shown:?}");
                rest = &rest[at + colour(&rest[at..])..];
            }
        }
    }
}
