//! Protocol files: tokens, assignments, protocols.

use super::protocol::{Builder, Protocol};
use std::collections::BTreeMap;
use std::fmt;

/// Deepest nesting of blocks.
const DEPTH_MAX: usize = 16;
/// Largest file that is read.
const FILE_BYTES_MAX: usize = 1 << 20;

/// What is wrong with a protocol file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Found and expected.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word, a number, or a byte's name; small letters and capitals are the same.
    Word(String),
    /// A quoted text, with its escapes.
    Text(String),
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
    pub(super) line: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// `name = value;`
    Assign(String, Vec<Placed>),
    /// `command arguments;`, or the name of another protocol.
    Command(String, Vec<Placed>, usize),
    /// `@name { … }`
    Handler(String, Vec<Self>, usize),
}

/// A protocol file.
#[derive(Clone, Debug)]
pub struct File {
    pub(super) name: String,
    /// Assignments and handlers outside of protocols, in order.
    pub(super) globals: Vec<Statement>,
    pub(super) protocols: BTreeMap<String, Body>,
}

/// What a file says of a protocol.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) statements: Vec<Statement>,
    pub(super) line: usize,
    /// How many of the globals stand before it: they hold for it.
    pub(super) globals: usize,
}

impl File {
    /// Reads a protocol file; `name` is for errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str, name: &str) -> Result<Self, Error> {
        let error = |line, what: String| Error { file: name.to_owned(), line, what };
        if text.len() > FILE_BYTES_MAX {
            return Err(error(1, format!("{} bytes; expected at most {FILE_BYTES_MAX}", text.len())));
        }
        let tokens = tokens(text).map_err(|(line, what)| error(line, what))?;
        let mut reader = Reader { tokens, at: 0 };
        let mut file = Self { name: name.to_owned(), globals: Vec::new(), protocols: BTreeMap::new() };
        while let Some(Placed { token, line }) = reader.next() {
            let behind = reader.next().map(|placed| placed.token);
            match (token, behind) {
                (Token::Word(word), Some(Token::Sign('='))) => {
                    let value = reader.until_semicolon().map_err(|what| error(line, what))?;
                    file.globals.push(Statement::Assign(word, value));
                }
                (Token::Handler(name), Some(Token::Sign('{'))) => {
                    let body = reader.block(0).map_err(|(line, what)| error(line, what))?;
                    file.globals.push(Statement::Handler(name, body, line));
                }
                (Token::Word(word), Some(Token::Sign('{'))) => {
                    let statements = reader.block(0).map_err(|(line, what)| error(line, what))?;
                    let body = Body { statements, line, globals: file.globals.len() };
                    if file.protocols.insert(word.clone(), body).is_some() {
                        return Err(error(line, format!("protocol \"{word}\" is there already")));
                    }
                }
                (Token::Word(word), _) => {
                    return Err(error(line, format!("found \"{word}\" alone, expected = or {{ behind it")));
                }
                (token, _) => {
                    let found = show(&token);
                    return Err(error(
                        line,
                        format!("found {found}, expected a protocol's name, a variable or a handler"),
                    ));
                }
            }
        }
        Ok(file)
    }

    /// One protocol, with its arguments put in.
    ///
    /// # Errors
    /// No such protocol, or what is wrong with it.
    pub fn protocol(&self, name: &str, arguments: &[String]) -> Result<Protocol, Error> {
        Builder::new(self, name, arguments).build(name)
    }
}

pub(super) fn show(token: &Token) -> String {
    match token {
        Token::Word(word) => format!("\"{word}\""),
        Token::Text(text) => format!("the text \"{text}\""),
        Token::Reference(name) => format!("${name}"),
        Token::Handler(name) => format!("@{name}"),
        Token::Sign(sign) => format!("'{sign}'"),
    }
}

fn tokens(text: &str) -> Result<Vec<Placed>, (usize, String)> {
    let mut out = Vec::new();
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.next() {
        let here = line;
        let token = match next {
            '\n' => {
                line += 1;
                continue;
            }
            next if next.is_whitespace() => continue,
            '#' => {
                while chars.peek().is_some_and(|next| *next != '\n') {
                    chars.next();
                }
                continue;
            }
            '{' | '}' | '=' | ';' | '(' | ')' | ',' => Token::Sign(next),
            '"' | '\'' => {
                let mut quoted = String::new();
                loop {
                    match chars.next() {
                        None | Some('\n') => return Err((here, format!("a quote {next} that is not closed"))),
                        Some(found) if found == next => break,
                        Some('\\') => {
                            quoted.push('\\');
                            quoted.extend(chars.next_if(|next| *next != '\n'));
                        }
                        Some(found) => quoted.push(found),
                    }
                }
                Token::Text(quoted)
            }
            '$' if chars.next_if_eq(&'{').is_some() => {
                let mut name = String::new();
                loop {
                    match chars.next() {
                        Some('}') => break,
                        Some(found) if found != '\n' => name.push(found),
                        _ => return Err((here, "\"${\" that is not closed".to_owned())),
                    }
                }
                Token::Reference(name)
            }
            first => {
                let mut word = String::new();
                if !matches!(first, '$' | '@') {
                    word.push(first);
                }
                let ends = |next: char| next.is_whitespace() || "{}=;(),\"'$@#".contains(next);
                while let Some(found) = chars.next_if(|next| !ends(*next)) {
                    word.push(found);
                }
                match first {
                    '$' => Token::Reference(word),
                    '@' => Token::Handler(word.to_ascii_lowercase()),
                    _ => Token::Word(word.to_ascii_lowercase()),
                }
            }
        };
        out.push(Placed { token, line: here });
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

    fn until_semicolon(&mut self) -> Result<Vec<Placed>, String> {
        let mut value = Vec::new();
        loop {
            match self.next() {
                Some(Placed { token: Token::Sign(';'), .. }) => return Ok(value),
                // The last ; of a block may be left out.
                Some(Placed { token: Token::Sign('}'), .. }) => {
                    self.at -= 1;
                    return Ok(value);
                }
                Some(Placed { token: Token::Sign(sign @ ('{' | '=')), line }) => {
                    return Err(format!("found '{sign}' in line {line}, expected ; before it"));
                }
                Some(placed) => value.push(placed),
                None => return Err("the file ends, expected ;".to_owned()),
            }
        }
    }

    fn block(&mut self, depth: usize) -> Result<Vec<Statement>, (usize, String)> {
        let last = self.tokens.last().map_or(1, |placed| placed.line);
        if depth > DEPTH_MAX {
            return Err((last, format!("blocks nested more than {DEPTH_MAX} deep")));
        }
        let mut body = Vec::new();
        loop {
            let Some(Placed { token, line }) = self.next() else {
                return Err((last, "the file ends, expected }".to_owned()));
            };
            match token {
                Token::Sign('}') => return Ok(body),
                Token::Sign(';') => {}
                Token::Handler(name) => match self.next().map(|placed| placed.token) {
                    Some(Token::Sign('{')) => body.push(Statement::Handler(name, self.block(depth + 1)?, line)),
                    _ => return Err((line, format!("found @{name} alone, expected {{ behind it"))),
                },
                Token::Word(word) => {
                    let assigns = self.tokens.get(self.at).is_some_and(|next| next.token == Token::Sign('='));
                    self.at += usize::from(assigns);
                    let value = self.until_semicolon().map_err(|what| (line, what))?;
                    body.push(if assigns {
                        Statement::Assign(word, value)
                    } else {
                        Statement::Command(word, value, line)
                    });
                }
                other => return Err((line, format!("found {}, expected a command or a variable", show(&other)))),
            }
        }
    }
}
