//! Substitution of variables and arguments in the words of a protocol.

use super::file::{self, Placed, Position, Token, Wrong, show};
use super::format::{self, Coded};
use super::syntax::Syntax;
use std::collections::BTreeMap;

/// Maximum nesting of arguments that refer to arguments.
const DEPTH_MAX: usize = 8;
/// Maximum length of a variable's value, and of a message after substitution.
const LEN_MAX: usize = 1 << 16;

/// The variables and arguments of a protocol.
pub(super) struct Words<'a> {
    variables: BTreeMap<String, Vec<Placed>>,
    name: &'a str,
    arguments: &'a [String],
}

/// The number of an argument, if `name` is one.
fn argument_number(name: &str) -> Option<usize> {
    name.parse().ok().filter(|number| *number < 10)
}

/// A part of a quoted text: bytes with their escapes, or the name in `\$…`.
enum TextItem<'a> {
    Bytes(&'a [u8]),
    Reference(&'a str),
}

/// Splits a quoted text into its parts.
fn items(text: &[u8]) -> Result<Vec<TextItem<'_>>, Syntax> {
    let (mut items, mut from, mut at) = (Vec::new(), 0, 0);
    while let Some(escape) = text[at..].iter().position(|byte| *byte == b'\\').map(|found| at + found) {
        if text.get(escape + 1) != Some(&b'$') {
            at = (escape + 2).min(text.len());
            continue;
        }
        items.push(TextItem::Bytes(&text[from..escape]));
        let rest = &text[escape + 2..];
        let (name, len) = match rest {
            [b'{', inner @ ..] => {
                let end = inner.iter().position(|byte| *byte == b'}').ok_or(Syntax::OpenVariable)?;
                (inner[..end].trim_ascii(), end + 2)
            }
            [digit, ..] if digit.is_ascii_digit() => (&rest[..1], 1),
            _ => {
                let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
                let end = end.unwrap_or(rest.len());
                (&rest[..end], end)
            }
        };
        let name = std::str::from_utf8(name).map_err(|_| Syntax::VariableNotUtf8)?;
        items.push(TextItem::Reference(name));
        from = escape + 2 + len;
        at = from;
    }
    items.push(TextItem::Bytes(&text[from..]));
    Ok(items)
}

impl<'a> Words<'a> {
    pub(super) const fn new(name: &'a str, arguments: &'a [String]) -> Self {
        Self { variables: BTreeMap::new(), name, arguments }
    }

    /// A variable.
    pub(super) fn get(&self, name: &str) -> Option<&Vec<Placed>> {
        self.variables.get(&name.to_ascii_lowercase())
    }

    /// Sets a variable. Variables in its value are replaced by their present values.
    pub(super) fn assign(&mut self, name: &str, value: &[Placed]) -> Result<(), Wrong> {
        let resolved = self.resolved(value)?;
        self.variables.insert(name.to_owned(), resolved);
        Ok(())
    }

    fn variable(&self, name: &str, place: Position) -> Result<&Vec<Placed>, Wrong> {
        self.get(name).ok_or_else(|| (place, format!("variable ${name} is used, but not set")))
    }

    fn argument(&self, number: usize, place: Position) -> Result<&str, Wrong> {
        let given = match number {
            0 => Some(self.name),
            number => self.arguments.get(number - 1).map(String::as_str),
        };
        given.ok_or_else(|| (place, format!("argument ${number} is used, but was not given")))
    }

    /// A value with its variables substituted. Arguments remain.
    fn resolved(&self, value: &[Placed]) -> Result<Vec<Placed>, Wrong> {
        let mut out: Vec<Placed> = Vec::new();
        for placed in value {
            match &placed.token {
                Token::Reference(name) if argument_number(name).is_none() => {
                    let inner = self.variable(name, placed.place)?.iter().cloned();
                    let first = out.len();
                    out.extend(inner);
                    if let Some(first) = out.get_mut(first) {
                        first.glued = placed.glued;
                    }
                }
                Token::Text(quote, text) => {
                    let mut resolved = Vec::new();
                    for item in items(text).map_err(|wrong| (placed.place, wrong.to_string()))? {
                        match item {
                            TextItem::Bytes(bytes) => resolved.extend_from_slice(bytes),
                            TextItem::Reference(name) => match argument_number(name) {
                                Some(number) => resolved.extend(format!("\\${number}").bytes()),
                                None => self.shown(self.variable(name, placed.place)?, &mut resolved),
                            },
                        }
                    }
                    out.push(Placed { token: Token::Text(*quote, resolved), ..placed.clone() });
                }
                _ => out.push(placed.clone()),
            }
            let len: usize =
                out.iter().map(|placed| if let Token::Text(_, text) = &placed.token { text.len() } else { 1 }).sum();
            if len > LEN_MAX {
                return Err((placed.place, format!("more than {LEN_MAX} bytes with all variables put in")));
            }
        }
        Ok(out)
    }

    /// Writes a value for use in a quoted text: in the form of the file, with its quotes.
    fn shown(&self, value: &[Placed], out: &mut Vec<u8>) {
        for (at, placed) in value.iter().enumerate() {
            if at > 0 && !placed.glued {
                out.push(b' ');
            }
            match &placed.token {
                Token::Word(word) => out.extend(word.bytes()),
                Token::Text(quote, text) => {
                    out.push(*quote);
                    out.extend_from_slice(text);
                    out.push(*quote);
                }
                Token::Reference(name) => out.extend(format!("\\${name}").bytes()),
                Token::Handler(name) => out.extend(format!("@{name}").bytes()),
                Token::Sign(sign) => out.push(*sign as u8),
            }
        }
    }

    /// Evaluates a value that is a word or a number: its parts are concatenated.
    pub(super) fn plain(&self, value: &[Placed], place: Position) -> Result<String, Wrong> {
        let mut out = String::new();
        for placed in self.resolved(value)? {
            match &placed.token {
                Token::Word(word) => out.push_str(word),
                Token::Text(_, text) => out.push_str(&String::from_utf8_lossy(text)),
                Token::Reference(name) => {
                    let number = argument_number(name).unwrap_or_default();
                    out.push_str(self.argument(number, placed.place)?.trim());
                }
                Token::Sign(',') => {}
                other => return Err((placed.place, format!("found {}, expected a number or a word", show(other)))),
            }
        }
        if out.is_empty() { Err((place, "a value is missing".to_owned())) } else { Ok(out) }
    }

    /// Evaluates the characters of a message.
    pub(super) fn coded(&self, value: &[Placed]) -> Result<Vec<Coded>, Wrong> {
        let mut out = Vec::new();
        self.append(&self.resolved(value)?, 0, &mut out)?;
        Ok(out)
    }

    fn append(&self, value: &[Placed], depth: usize, out: &mut Vec<Coded>) -> Result<(), Wrong> {
        let mut rest = value;
        while let Some((placed, behind)) = rest.split_first() {
            rest = behind;
            let wrong = |what: String| (placed.place, what);
            if depth > DEPTH_MAX || out.len() > LEN_MAX {
                return Err(wrong(format!("more than {LEN_MAX} bytes, or arguments more than {DEPTH_MAX} deep")));
            }
            match &placed.token {
                Token::Text(_, text) => self.quoted(text, placed.place, out)?,
                Token::Word(word) => match self.joined(word, behind) {
                    Some((byte, used)) => {
                        out.push(Coded::Literal(byte));
                        rest = &behind[used..];
                    }
                    None => out.push(format::byte(word).map_err(|what| wrong(what.to_string()))?),
                },
                Token::Reference(name) => {
                    let number = argument_number(name).unwrap_or_default();
                    let argument = self.argument(number, placed.place)?;
                    let inner = file::tokens(argument.as_bytes()).map_err(|(_, what)| wrong(what))?;
                    let put_in = |(_, what)| {
                        wrong(format!("${number} is {what}; write \"\\${number}\" for \"{argument}\" as a text"))
                    };
                    let inner: Vec<Placed> =
                        inner.into_iter().map(|inner| Placed { place: placed.place, ..inner }).collect();
                    self.append(&inner, depth + 1, out).map_err(put_in)?;
                }
                Token::Sign(',') => {}
                other => return Err(wrong(format!("found {}, expected a text or a byte", show(other)))),
            }
        }
        Ok(())
    }

    /// The byte of a hexadecimal number whose last digit is an argument, as in `0x8$1`, and the number of tokens used.
    fn joined(&self, word: &str, behind: &[Placed]) -> Option<(u8, usize)> {
        let digits = word.strip_prefix("0x")?;
        let mut joined = digits.to_owned();
        let mut found = None;
        for (at, placed) in behind.iter().enumerate().take_while(|(_, placed)| placed.glued) {
            match &placed.token {
                Token::Word(more) => joined.push_str(more),
                Token::Reference(name) => joined.push_str(self.argument(argument_number(name)?, placed.place).ok()?),
                _ => break,
            }
            if joined.len() > 2 || !joined.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                break;
            }
            found = u8::from_str_radix(&joined, 16).ok().map(|byte| (byte, at + 1));
        }
        found
    }

    /// Appends a quoted text with its arguments substituted and its escapes decoded.
    fn quoted(&self, text: &[u8], place: Position, out: &mut Vec<Coded>) -> Result<(), Wrong> {
        let mut whole = Vec::new();
        for item in items(text).map_err(|wrong| (place, wrong.to_string()))? {
            match item {
                TextItem::Bytes(bytes) => whole.extend_from_slice(bytes),
                TextItem::Reference(name) => {
                    let number = argument_number(name).unwrap_or_default();
                    whole.extend(self.argument(number, place)?.bytes());
                }
            }
        }
        let mut rest = &whole[..];
        while let Some((first, behind)) = rest.split_first() {
            let (coded, len) = match first {
                b'\\' => format::escape(behind).map_err(|wrong| (place, wrong.to_string()))?,
                byte => (Coded::Plain(*byte), 0),
            };
            out.push(coded);
            rest = &behind[len..];
        }
        Ok(())
    }
}
