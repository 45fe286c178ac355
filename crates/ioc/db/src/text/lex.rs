//! Lexer of `.db` and `.dbd` files; each token has a position.

use crate::text::error::{FileError, Position};
use std::borrow::Cow;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A bare word, or a quoted text with its escapes.
    Word { text: Cow<'a, str>, quoted: bool },
    /// One of `(){},`, and `=` in `.substitutions` files.
    Punct(u8),
    /// End of the text.
    End,
}

/// Splits a text into words.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
    file: &'a str,
    peeked: Option<(Token<'a>, Position)>,
    /// Lexes a `.substitutions` file: `=` is a token and texts may have single quotes.
    substitutions: bool,
}

const fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'+' | b':' | b'.' | b'/' | b'\\' | b'[' | b']' | b'<' | b'>' | b';')
        || byte >= 0x80
}

/// [`is_bare`] for each byte value.
static BARE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = is_bare(byte as u8);
        byte += 1;
    }
    table
};

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a str, file: &'a str) -> Self {
        Self { text, at: 0, line: 1, line_start: 0, file, peeked: None, substitutions: false }
    }

    pub(crate) fn of_substitutions(text: &'a str, file: &'a str) -> Self {
        Self { substitutions: true, ..Self::new(text, file) }
    }

    /// Position of the next byte.
    pub(crate) fn place(&self) -> Position {
        Position { line: self.line, column: (self.at - self.line_start + 1) as u32 }
    }

    pub(crate) fn error(&self, place: Position, what: impl Into<String>) -> FileError {
        FileError { file: self.file.to_owned(), place, what: what.into() }
    }

    fn skip_blank(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                }
                b'#' => self.at += bytes[self.at..].iter().position(|b| *b == b'\n').unwrap_or(bytes.len() - self.at),
                b'%' if self.text[self.line_start..self.at].trim().is_empty() => {
                    self.at += bytes[self.at..].iter().position(|b| *b == b'\n').unwrap_or(bytes.len() - self.at);
                }
                b' ' | b'\t' | b'\r' | b'\x0c' => self.at += 1,
                _ => break,
            }
        }
    }

    /// Next token and its position.
    pub(crate) fn next(&mut self) -> Result<(Token<'a>, Position), FileError> {
        if let Some(peeked) = self.peeked.take() {
            return Ok(peeked);
        }
        self.skip_blank();
        let place = self.place();
        let bytes = self.text.as_bytes();
        let Some(&first) = bytes.get(self.at) else { return Ok((Token::End, place)) };
        match first {
            b'(' | b')' | b'{' | b'}' | b',' => {
                self.at += 1;
                Ok((Token::Punct(first), place))
            }
            b'=' if self.substitutions => {
                self.at += 1;
                Ok((Token::Punct(first), place))
            }
            b'"' | b'\'' if first == b'"' || self.substitutions => {
                let text = self.quoted(place)?;
                Ok((Token::Word { text: Cow::Borrowed(text), quoted: true }, place))
            }
            byte if BARE[usize::from(byte)] || self.begins_macro() => {
                let start = self.at;
                self.skip_bare();
                while self.begins_macro() {
                    self.skip_macro()?;
                    self.skip_bare();
                }
                Ok((Token::Word { text: Cow::Borrowed(&self.text[start..self.at]), quoted: false }, place))
            }
            _ => {
                let found = self.text[self.at..].chars().next().unwrap_or('?');
                Err(self.error(place, format!("found {found:?}, expected a word, a quoted text or one of ( ) {{ }} ,")))
            }
        }
    }

    fn skip_bare(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| !BARE[usize::from(*byte)]).unwrap_or(rest.len());
    }

    /// Whether a macro starts here that can be part of a word. Only `.substitutions` files contain unexpanded macros.
    fn begins_macro(&self) -> bool {
        self.substitutions && matches!(self.text.as_bytes().get(self.at..self.at + 2), Some(b"$(" | b"${"))
    }

    /// Skips a macro, including nested ones.
    fn skip_macro(&mut self) -> Result<(), FileError> {
        let place = self.place();
        let bytes = self.text.as_bytes();
        let (open, close) = if bytes.get(self.at + 1) == Some(&b'(') { (b'(', b')') } else { (b'{', b'}') };
        let mut depth = 0u32;
        for (at, byte) in bytes.iter().enumerate().skip(self.at + 1) {
            match *byte {
                b'\n' => break,
                byte if byte == open => depth += 1,
                byte if byte == close => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at = at + 1;
                return Ok(());
            }
        }
        Err(self.error(place, format!("this macro is not closed on its line, expected {}", char::from(close))))
    }

    /// The text between two quotes, with its escapes.
    fn quoted(&mut self, place: Position) -> Result<&'a str, FileError> {
        let bytes = self.text.as_bytes();
        let quote = bytes[self.at];
        let start = self.at + 1;
        let mut at = start;
        loop {
            match bytes.get(at) {
                Some(byte) if *byte == quote => break,
                Some(b'\\') if bytes.get(at + 1).is_some_and(|byte| *byte != b'\n') => at += 2,
                None | Some(b'\n') => {
                    return Err(self.error(
                        place,
                        format!("this quoted text does not end on its line, expected a closing {}", char::from(quote)),
                    ));
                }
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok(&self.text[start..at])
    }

    /// Expects the type of a record. The type of a record that exists may be an unquoted `*`, which is not a word; its place is
    /// `start`.
    pub(crate) fn record_type(&mut self, start: Position) -> Result<(Cow<'a, str>, Position), FileError> {
        self.word("a record type or \"*\"").or_else(|error| {
            if !error.what.contains("'*'") {
                return Err(error);
            }
            if self.text.as_bytes().get(self.at) == Some(&b'*') {
                self.at += 1;
            }
            Ok((Cow::Borrowed("*"), start))
        })
    }

    pub(crate) fn peek(&mut self) -> Result<&Token<'a>, FileError> {
        let next = self.next()?;
        Ok(&self.peeked.insert(next).0)
    }

    /// Expects a word, bare or quoted.
    pub(crate) fn word(&mut self, expected: &str) -> Result<(Cow<'a, str>, Position), FileError> {
        match self.next()? {
            (Token::Word { text, .. }, place) => Ok((text, place)),
            (found, place) => Err(self.error(place, format!("found {}, expected {expected}", show(&found)))),
        }
    }

    /// Expects the punctuation `wanted`.
    pub(crate) fn punct(&mut self, wanted: u8, after: &str) -> Result<(), FileError> {
        if self.take(wanted) {
            return Ok(());
        }
        let (found, place) = self.next()?;
        Err(self.error(place, format!("found {}, expected \"{}\" {after}", show(&found), char::from(wanted))))
    }

    /// Consumes the next token if it is the punctuation `wanted`. Returns whether it was.
    pub(crate) fn take(&mut self, wanted: u8) -> bool {
        // Every second token of a file is punctuation known in advance. It is compared directly, without making a token.
        if let Some((peeked, _)) = &self.peeked {
            let there = *peeked == Token::Punct(wanted);
            if there {
                self.peeked = None;
            }
            return there;
        }
        self.skip_blank();
        let there = self.text.as_bytes().get(self.at) == Some(&wanted);
        self.at += usize::from(there);
        there
    }

    /// Expects a value: a word, or a JSON map or list as written.
    pub(crate) fn value(&mut self, expected: &str) -> Result<(Cow<'a, str>, bool, Position), FileError> {
        if self.peeked.is_none() {
            self.skip_blank();
            let byte = self.text.as_bytes().get(self.at).copied();
            if byte == Some(b'{') || byte == Some(b'[') {
                let place = self.place();
                let start = self.at;
                self.balanced(place)?;
                return Ok((Cow::Owned(compact(&self.text[start..self.at])), false, place));
            }
        }
        match self.next()? {
            (Token::Word { text, quoted }, place) => Ok((text, quoted, place)),
            (found, place) => Err(self.error(place, format!("found {}, expected {expected}", show(&found)))),
        }
    }

    /// Skips a bracketed JSON text.
    fn balanced(&mut self, place: Position) -> Result<(), FileError> {
        let bytes = self.text.as_bytes();
        let mut depth = 0u32;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'"' => {
                    let here = self.place();
                    self.quoted(here)?;
                    continue;
                }
                b'\'' => {
                    let end = bytes[self.at + 1..].iter().position(|b| *b == b'\'' || *b == b'\n');
                    self.at += 1 + end.unwrap_or(0);
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b'\n' => {
                    self.line += 1;
                    self.line_start = self.at + 1;
                }
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.error(place, "this JSON value is not closed, expected its } or ]"))
    }
}

/// JSON in the form in which EPICS stores it: without blanks between words, and with quotes around bare words.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '"' | '\'' => {
                let mut escaped = false;
                let ends = |next: char| {
                    let before = escaped;
                    escaped = next == '\\' && !before;
                    next == first && !before
                };
                let len = rest[1..].find(ends).map_or(rest.len(), |end| end + 2);
                out.push_str(&rest[..len]);
                len
            }
            _ if is_json_bare(first) => {
                let len = rest.find(|next| !is_json_bare(next)).unwrap_or(rest.len());
                let (word, behind) = rest.split_at(len);
                let is_key = behind.trim_start().starts_with(':');
                let is_number = || crate::text::conv::parse_f64(word).is_some();
                let plain = if is_key {
                    !word.contains(['+', '-', '.'])
                } else {
                    matches!(word, "null" | "true" | "false") || is_number()
                };
                let quote = if plain { "" } else { "\"" };
                out.extend([quote, word, quote]);
                len
            }
            _ => {
                out.extend(Some(first).filter(|next| !next.is_whitespace()));
                first.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    out
}

/// Whether a bare JSON word may contain this character.
const fn is_json_bare(next: char) -> bool {
    next.is_ascii_alphanumeric() || matches!(next, '_' | '-' | '+' | '.')
}

fn show(token: &Token<'_>) -> String {
    match token {
        Token::Word { text, .. } => format!("\"{}\"", text.escape_debug()),
        Token::Punct(byte) => format!("\"{}\"", char::from(*byte)),
        Token::End => "the end of the file".into(),
    }
}

/// Replaces C escapes (`
/// `, `\"`, `\x41`, `\101`). Bytes that were not valid UTF-8 get their original values back.
#[must_use]
pub fn unescape(text: &str) -> Cow<'_, [u8]> {
    let raw = base::raw::encode(text);
    if text.contains('\\') { Cow::Owned(unescape_bytes(&raw)) } else { raw }
}

/// Like [`unescape`], for bytes.
pub(crate) fn unescape_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' || at + 1 == bytes.len() {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        at += 2;
        match bytes[at - 1] {
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            digit @ b'0'..=b'7' => {
                let mut value = u32::from(digit - b'0');
                let end = (at + 2).min(bytes.len());
                while at < end && (b'0'..=b'7').contains(&bytes[at]) {
                    value = value * 8 + u32::from(bytes[at] - b'0');
                    at += 1;
                }
                out.push(value as u8);
            }
            b'x' => {
                let mut value = 0u32;
                let end = (at + 2).min(bytes.len());
                while at < end && bytes[at].is_ascii_hexdigit() {
                    value = value * 16 + char::from(bytes[at]).to_digit(16).unwrap_or(0);
                    at += 1;
                }
                out.push(value as u8);
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_json_are_quoted_if_necessary() {
        for (given, kept) in [
            ("{ state : s }", "{state:\"s\"}"),
            (
                "{calc:{expr:\"A + 1\", args:[1.5, -2, 0x1f, {const:5}]}}",
                "{calc:{expr:\"A + 1\",args:[1.5,-2,0x1f,{const:5}]}}",
            ),
            ("[one, 'two words', \"a\\\" b\", true, a-b]", "[\"one\",'two words',\"a\\\" b\",true,\"a-b\"]"),
            ("{a.b:{ }}", "{\"a.b\":{}}"),
        ] {
            assert_eq!(compact(given), kept);
        }
    }

    #[test]
    fn words_carry_their_place() {
        let mut lexer = Lexer::new("record(ai,\n  \"a b\") # note\n{ }", "t.db");
        let mut seen = Vec::new();
        loop {
            let (token, place) = lexer.next().unwrap();
            if token == Token::End {
                break;
            }
            seen.push((show(&token), place.line, place.column));
        }
        let expected = [
            ("\"record\"", 1, 1),
            ("\"(\"", 1, 7),
            ("\"ai\"", 1, 8),
            ("\",\"", 1, 10),
            ("\"a b\"", 2, 3),
            ("\")\"", 2, 8),
            ("\"{\"", 3, 1),
            ("\"}\"", 3, 3),
        ];
        assert_eq!(seen, expected.map(|(text, line, column)| (text.to_owned(), line, column)));
    }

    #[test]
    fn an_unterminated_text_is_reported_at_its_start() {
        let error = Lexer::new("\n \"abc\n", "t.db").next().unwrap_err();
        assert_eq!(error.to_string(), "t.db:2:2: this quoted text does not end on its line, expected a closing \"");
    }

    #[test]
    fn escapes_are_decoded_as_in_c() {
        assert_eq!(&*unescape(r#"a\n\"\x41\101\q"#), b"a\n\"AAq");
    }
}
