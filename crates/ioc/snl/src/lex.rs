//! Scanner: text to tokens, as in C, with embedded C code as one token.

use crate::error::{Pos, SnlError};
use std::rc::Rc;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    Name(Rc<str>),
    /// A number as written.
    Number(Rc<str>),
    Text(Rc<[u8]>),
    Char(u8),
    Sign(&'static str),
    /// A line of the preprocessor, without its `#`.
    Directive(Rc<str>),
    /// Embedded C code.
    Code(Rc<str>),
    /// End of the replacement of a macro, which may be expanded again after it.
    EndMacro(Rc<str>),
    End,
}

/// A token, its place, and whether blanks precede it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) tok: Tok,
    pub(crate) pos: Pos,
    pub(crate) space: bool,
}

impl Tok {
    /// The token as written, for messages and for the operators of macros.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Name(text) | Self::Number(text) => text.to_string(),
            Self::Text(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            Self::Char(byte) => format!("'{}'", byte.escape_ascii()),
            Self::Sign(sign) => (*sign).to_owned(),
            Self::Directive(line) => format!("#{line}"),
            Self::Code(_) => "embedded C code".to_owned(),
            Self::EndMacro(_) => String::new(),
            Self::End => "the end of the file".to_owned(),
        }
    }
}

/// Operators, longest first.
const SIGNS: [&str; 47] = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=",
    "%=", "&=", "|=", "^=", "##", "+", "-", "*", "/", "%", "=", "<", ">", "!", "&", "|", "^", "~", "?", ":", ";", ",",
    ".", "(", ")", "{", "}", "[", "]",
];

/// The scanner of one file.
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    pub(crate) file: u16,
    pub(crate) line: u32,
    line_start: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(text: &'a str, file: u16, line: u32) -> Self {
        Self { bytes: text.as_bytes(), at: 0, file, line, line_start: true }
    }

    /// Lets the text begin within a line.
    pub(crate) const fn not_at_line_start(&mut self) {
        self.line_start = false;
    }

    pub(crate) const fn pos(&self) -> Pos {
        Pos { file: self.file, line: self.line }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn starts(&self, text: &str) -> bool {
        self.bytes[self.at..].starts_with(text.as_bytes())
    }

    fn step(&mut self, count: usize) {
        let end = (self.at + count).min(self.bytes.len());
        self.line += self.bytes[self.at..end].iter().filter(|byte| **byte == b'\n').count() as u32;
        self.at = end;
    }

    /// Moves behind the next `text`, or to the end. Returns whether it was found.
    fn step_over(&mut self, text: &str) -> bool {
        let rest = &self.bytes[self.at..];
        let found = rest.windows(text.len()).position(|window| window == text.as_bytes());
        self.step(found.map_or(rest.len(), |at| at + text.len()));
        found.is_some()
    }

    /// Skips the rest of the line.
    pub(crate) fn skip_line(&mut self) {
        self.step_over("\n");
        self.line_start = true;
    }

    fn skip_blanks(&mut self) -> Result<bool, SnlError> {
        let from = self.at;
        loop {
            match self.peek(0) {
                b'\n' => {
                    self.line_start = true;
                    self.step(1);
                }
                b' ' | b'\t' | b'\r' | 0x0c | 0x0b => self.step(1),
                b'\\' if self.peek(1) == b'\n' => self.step(2),
                b'\\' if self.starts("\\\r\n") => self.step(3),
                b'/' if self.peek(1) == b'*' => {
                    let pos = self.pos();
                    self.step(2);
                    if !self.step_over("*/") {
                        return Err(SnlError::new(pos, "found a comment without end, expected \"*/\""));
                    }
                }
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                _ => return Ok(self.at > from),
            }
        }
    }

    /// The next token.
    pub(crate) fn next(&mut self) -> Result<Token, SnlError> {
        let space = self.skip_blanks()?;
        let (pos, first) = (self.pos(), std::mem::take(&mut self.line_start));
        let token = |tok| Token { tok, pos, space };
        if self.at >= self.bytes.len() {
            return Ok(token(Tok::End));
        }
        let byte = self.peek(0);
        if first && byte == b'#' {
            self.step(1);
            return Ok(token(Tok::Directive(self.directive().into())));
        }
        if byte == b'%' && matches!(self.peek(1), b'%' | b'{') {
            return self.code().map(token);
        }
        if byte.is_ascii_alphabetic() || byte == b'_' {
            return Ok(token(Tok::Name(self.word(|byte, _| byte.is_ascii_alphanumeric() || byte == b'_'))));
        }
        if byte.is_ascii_digit() || byte == b'.' && self.peek(1).is_ascii_digit() {
            let part = |byte: u8, last: u8| {
                byte.is_ascii_alphanumeric()
                    || matches!(byte, b'.' | b'_')
                    || matches!(byte, b'+' | b'-') && matches!(last, b'e' | b'E')
            };
            return Ok(token(Tok::Number(self.number(part))));
        }
        if byte == b'"' || byte == b'\'' {
            return self.quoted(byte).map(token);
        }
        match SIGNS.into_iter().chain(["#"]).find(|sign| self.starts(sign)) {
            Some(sign) => {
                self.step(sign.len());
                Ok(token(Tok::Sign(sign)))
            }
            None => {
                self.step(1);
                Err(SnlError::new(pos, format!("found the character '{}', expected SNL", byte.escape_ascii())))
            }
        }
    }

    fn word(&mut self, part: impl Fn(u8, u8) -> bool) -> Rc<str> {
        let from = self.at;
        let mut last = 0;
        while self.at < self.bytes.len() && part(self.peek(0), last) {
            last = self.peek(0);
            self.at += 1;
        }
        String::from_utf8_lossy(&self.bytes[from..self.at]).into()
    }

    /// A number. A hexadecimal one has no exponent, so that `0xe+1` is a sum.
    fn number(&mut self, part: impl Fn(u8, u8) -> bool) -> Rc<str> {
        let hex = self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X');
        self.word(|byte, last| part(byte, if hex { 0 } else { last }))
    }

    fn quoted(&mut self, quote: u8) -> Result<Tok, SnlError> {
        let pos = self.pos();
        self.step(1);
        let mut bytes = Vec::new();
        loop {
            match self.peek(0) {
                b'\\' if self.peek(1) == b'\n' => self.step(2),
                b'\\' => {
                    self.step(1);
                    bytes.push(self.escape());
                }
                byte if byte == quote => break self.step(1),
                b'\n' | 0 => {
                    let what = format!("found a text without end, expected the quote {}", char::from(quote));
                    return Err(SnlError::new(pos, what));
                }
                byte => {
                    bytes.push(byte);
                    self.step(1);
                }
            }
        }
        match (quote, bytes.as_slice()) {
            (b'"', _) => Ok(Tok::Text(bytes.into())),
            (_, [byte]) => Ok(Tok::Char(*byte)),
            _ => Err(SnlError::new(pos, format!("found {} characters in quotes, expected one", bytes.len()))),
        }
    }

    fn escape(&mut self) -> u8 {
        let byte = self.peek(0);
        let digits = |from: &Self, most: usize, radix: u32| {
            (0..most).take_while(|nth| char::from(from.peek(*nth)).is_digit(radix)).count()
        };
        let (skip, count, radix) = match byte {
            b'x' => (
                1,
                {
                    self.at += 1;
                    let count = digits(self, 2, 16);
                    self.at -= 1;
                    count
                },
                16,
            ),
            b'0'..=b'7' => (0, digits(self, 3, 8), 8),
            _ => (0, 0, 10),
        };
        if count > 0 {
            let text = &self.bytes[self.at + skip..self.at + skip + count];
            let value = text.iter().fold(0, |sum, digit| sum * radix + char::from(*digit).to_digit(radix).unwrap_or(0));
            self.step(skip + count);
            return value as u8;
        }
        self.step(1);
        match byte {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            other => other,
        }
    }

    /// Embedded C code. Includes of C headers are accepted, because their functions are known here.
    fn code(&mut self) -> Result<Tok, SnlError> {
        let pos = self.pos();
        let block = self.peek(1) == b'{';
        self.step(2);
        let from = self.at;
        if block {
            if !self.step_over("}%") {
                return Err(SnlError::new(pos, "found embedded C code without end, expected \"}%\""));
            }
            return Ok(Tok::Code(String::from_utf8_lossy(&self.bytes[from..self.at - 2]).into()));
        }
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            self.at += 1;
        }
        Ok(Tok::Code(String::from_utf8_lossy(&self.bytes[from..self.at]).into()))
    }

    /// The rest of a line of the preprocessor, without comments, with the lines that continue it.
    fn directive(&mut self) -> String {
        let mut line = Vec::new();
        let mut quoted = false;
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            if self.starts("\\\n") || self.starts("\\\r\n") {
                self.step_over("\n");
                line.push(b' ');
            } else if !quoted && self.starts("//") {
                while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                    self.at += 1;
                }
            } else if !quoted && self.starts("/*") {
                self.step(2);
                self.step_over("*/");
                line.push(b' ');
            } else {
                let escaped = line.last() == Some(&b'\\');
                quoted ^= self.peek(0) == b'"' && !escaped;
                line.push(self.peek(0));
                self.step(1);
            }
        }
        String::from_utf8_lossy(&line).trim().to_owned()
    }
}
