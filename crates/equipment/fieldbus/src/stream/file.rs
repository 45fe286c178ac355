//! Protocol files: tokens, assignments, protocols.

use super::protocol::{Builder, Protocol};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum nesting of blocks.
const DEPTH_MAX: usize = 16;
/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: usize = 1 << 20;

/// An error in a protocol file, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in bytes.
    pub column: usize,
    /// Message: the text that was found, and what was expected.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)
    }
}

impl std::error::Error for Error {}

/// A position in a file; line and column count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    /// The start of a file.
    pub(super) const START: Self = Self { line: 1, column: 1 };

    fn error<T>(self, what: impl Into<String>) -> Result<T, Wrong> {
        Err((self, what.into()))
    }
}

/// An error: its position and text.
pub(super) type Wrong = (Position, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word, a number, or the name of a byte. Case does not matter.
    Word(String),
    /// A text in quotes, with its escapes: the quote character and the bytes between the quotes.
    Text(u8, Vec<u8>),
    /// `$name`, `${name}`, `$1`.
    Reference(String),
    /// `@name`.
    Handler(String),
    /// `{ } = ; ( ) ,`.
    Sign(char),
}

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) place: Position,
    /// The token follows the previous one without white space.
    pub(super) glued: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// `name = value;`
    Assign(String, Vec<Placed>),
    /// `command arguments;`, or the name of another protocol.
    Command(String, Vec<Placed>, Position),
    /// `@name { … }`
    Handler(String, Vec<Self>, Position),
}

/// A protocol file.
#[derive(Clone, Debug)]
pub struct File {
    pub(super) name: String,
    /// Assignments and handlers outside protocols, in order.
    pub(super) globals: Vec<Statement>,
    pub(super) protocols: BTreeMap<String, Body>,
}

/// The body of a protocol.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) statements: Vec<Statement>,
    pub(super) place: Position,
    /// The number of globals before the protocol. Only these apply to it.
    pub(super) globals: usize,
}

impl File {
    /// Parses a protocol file of arbitrary bytes. `name` appears in errors.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, Error> {
        Self::read(text, name).map_err(|(place, what)| Error {
            file: name.to_owned(),
            line: place.line,
            column: place.column,
            what,
        })
    }

    fn read(text: &[u8], name: &str) -> Result<Self, Wrong> {
        if text.len() > FILE_BYTES_MAX {
            return Position::START.error(format!("{} bytes; expected at most {FILE_BYTES_MAX}", text.len()));
        }
        let mut reader = Reader { tokens: tokens(text)?, at: 0 };
        let mut file = Self { name: name.to_owned(), globals: Vec::new(), protocols: BTreeMap::new() };
        while let Some(Placed { token, place, .. }) = reader.next() {
            if token == Token::Sign(';') {
                continue;
            }
            let behind = reader.next().map(|placed| placed.token);
            match (token, behind) {
                (Token::Word(word), Some(Token::Sign('='))) => {
                    let value = reader.until_semicolon(place)?;
                    file.globals.push(Statement::Assign(word, value));
                }
                (Token::Handler(name), Some(Token::Sign('{'))) => {
                    let body = reader.block(0)?;
                    file.globals.push(Statement::Handler(name, body, place));
                }
                (Token::Word(word), Some(Token::Sign('{'))) => {
                    let body = Body { statements: reader.block(0)?, place, globals: file.globals.len() };
                    if file.protocols.insert(word.clone(), body).is_some() {
                        return place.error(format!("protocol \"{word}\" is already defined"));
                    }
                }
                (Token::Word(word), _) => {
                    return place.error(format!("found \"{word}\" alone, expected = or {{ behind it"));
                }
                (token, _) => {
                    let found = show(&token);
                    return place.error(format!("found {found}, expected a protocol's name, a variable or a handler"));
                }
            }
        }
        Ok(file)
    }

    /// One protocol, with its arguments substituted.
    ///
    /// # Errors
    /// There is no such protocol, or it has an error.
    pub fn protocol(&self, name: &str, arguments: &[String]) -> Result<Protocol, Error> {
        Builder::new(self, name, arguments).build(name)
    }

    /// The names of the protocols in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.protocols.keys().map(String::as_str)
    }
}

pub(super) fn show(token: &Token) -> String {
    match token {
        Token::Word(word) => format!("\"{word}\""),
        Token::Text(_, text) => format!("the text \"{}\"", text.escape_ascii()),
        Token::Reference(name) => format!("${name}"),
        Token::Handler(name) => format!("@{name}"),
        Token::Sign(sign) => format!("'{sign}'"),
    }
}

/// The unread bytes of a file and their position.
struct Bytes<'a> {
    left: &'a [u8],
    place: Position,
}

impl Bytes<'_> {
    fn peek(&self) -> Option<u8> {
        self.left.first().copied()
    }

    fn next_if(&mut self, wanted: impl FnOnce(u8) -> bool) -> Option<u8> {
        let (first, rest) = self.left.split_first()?;
        if !wanted(*first) {
            return None;
        }
        self.left = rest;
        self.place = match first {
            b'\n' => Position { line: self.place.line + 1, column: 1 },
            _ => Position { column: self.place.column + 1, ..self.place },
        };
        Some(*first)
    }

    fn next(&mut self) -> Option<u8> {
        self.next_if(|_| true)
    }

    fn word(&mut self) -> String {
        let mut word = Vec::new();
        while let Some(next) = self.next_if(|next| !next.is_ascii_whitespace() && !b"{}=;(),\"'$@#".contains(&next)) {
            word.push(next);
        }
        String::from_utf8_lossy(&word).into_owned()
    }

    /// Reads the rest of a text after its opening quote.
    fn quoted(&mut self, quote: u8, from: Position) -> Result<Token, Wrong> {
        let mut text = Vec::new();
        loop {
            match self.next() {
                None | Some(b'\n') => {
                    return from.error(format!("a quote {} that is not closed", char::from(quote)));
                }
                Some(found) if found == quote => return Ok(Token::Text(quote, text)),
                Some(b'\\') => {
                    text.push(b'\\');
                    text.extend(self.next_if(|next| next != b'\n'));
                }
                Some(found) => text.push(found),
            }
        }
    }

    /// Reads the name of a reference after the `$`.
    fn reference(&mut self, from: Position) -> Result<Token, Wrong> {
        // An argument number has one digit.
        if let Some(digit) = self.next_if(|next| next.is_ascii_digit()) {
            return Ok(Token::Reference(char::from(digit).to_string()));
        }
        if self.next_if(|next| next == b'{').is_none() {
            return match self.word() {
                name if name.is_empty() => from.error("\"$\" without a name; expected a variable or an argument"),
                name => Ok(Token::Reference(name)),
            };
        }
        let mut name = Vec::new();
        loop {
            match self.next() {
                Some(b'}') => return Ok(Token::Reference(String::from_utf8_lossy(&name).trim().to_owned())),
                Some(found) if found != b'\n' => name.push(found),
                _ => return from.error("\"${\" that is not closed"),
            }
        }
    }
}

/// Splits a file or an argument into words, texts and signs.
pub(super) fn tokens(text: &[u8]) -> Result<Vec<Placed>, Wrong> {
    let mut out = Vec::new();
    let mut bytes = Bytes { left: text, place: Position::START };
    let mut glued = false;
    while let Some(next) = bytes.peek() {
        let place = bytes.place;
        if next.is_ascii_whitespace() || next == b'#' {
            bytes.next();
            while next == b'#' && bytes.next_if(|next| next != b'\n').is_some() {}
            glued = false;
            continue;
        }
        let token = match next {
            b'{' | b'}' | b'=' | b';' | b'(' | b')' | b',' | b'"' | b'\'' | b'$' | b'@' => {
                bytes.next();
                match next {
                    b'"' | b'\'' => bytes.quoted(next, place)?,
                    b'$' => bytes.reference(place)?,
                    b'@' => Token::Handler(bytes.word().to_ascii_lowercase()),
                    sign => Token::Sign(char::from(sign)),
                }
            }
            _ => Token::Word(bytes.word().to_ascii_lowercase()),
        };
        out.push(Placed { token, place, glued });
        glued = true;
    }
    Ok(out)
}

struct Reader {
    tokens: Vec<Placed>,
    at: usize,
}

impl Reader {
    fn next(&mut self) -> Option<Placed> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    /// Reads the value of the statement at `of`.
    fn until_semicolon(&mut self, of: Position) -> Result<Vec<Placed>, Wrong> {
        let mut value = Vec::new();
        loop {
            match self.next() {
                Some(Placed { token: Token::Sign(';'), .. }) => return Ok(value),
                // The last `;` of a block is optional.
                Some(Placed { token: Token::Sign('}'), .. }) => {
                    self.at -= 1;
                    return Ok(value);
                }
                Some(Placed { token: Token::Sign(sign @ ('{' | '=')), place, .. }) => {
                    return place.error(format!("found '{sign}', expected ; before it"));
                }
                Some(placed) => value.push(placed),
                None => return of.error("the file ends, expected ;"),
            }
        }
    }

    fn block(&mut self, depth: usize) -> Result<Vec<Statement>, Wrong> {
        let last = self.tokens.last().map_or(Position::START, |placed| placed.place);
        if depth > DEPTH_MAX {
            return last.error(format!("blocks nested more than {DEPTH_MAX} deep"));
        }
        let mut body = Vec::new();
        loop {
            let Some(Placed { token, place, .. }) = self.next() else {
                return last.error("the file ends, expected }");
            };
            match token {
                Token::Sign('}') => return Ok(body),
                Token::Sign(';') => {}
                Token::Handler(name) => match self.next().map(|placed| placed.token) {
                    Some(Token::Sign('{')) => body.push(Statement::Handler(name, self.block(depth + 1)?, place)),
                    _ => return place.error(format!("found @{name} alone, expected {{ behind it")),
                },
                Token::Word(word) => {
                    let assigns = self.tokens.get(self.at).is_some_and(|next| next.token == Token::Sign('='));
                    self.at += usize::from(assigns);
                    let value = self.until_semicolon(place)?;
                    body.push(if assigns {
                        Statement::Assign(word, value)
                    } else {
                        Statement::Command(word, value, place)
                    });
                }
                other => return place.error(format!("found {}, expected a command or a variable", show(&other))),
            }
        }
    }
}
