//! Conversions: the syntax after a `%` in a protocol.

use super::format::{Coded, whole};
use super::regex::{Regex, Substitution};
use super::syntax::Syntax;
use super::time::TimeFormat;
use crate::checksum::Checksum;
use base::Directive;

/// Maximum width of a field.
const WIDTH_MAX: usize = 1 << 16;

/// A value that a conversion reads or writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `%f` and related conversions.
    Float(f64),
    /// `%d` and related conversions.
    Int(i64),
    /// `%s`, `%c`, `%[…]`.
    Text(Vec<u8>),
    /// `%{…}`.
    Enum(i64),
}

/// The type of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// `f e g E G`.
    Float(u8),
    /// `m`: digits followed by their power of ten, as in `+123-4`.
    Mantissa,
    /// `d i u x X o`.
    Int(u8),
    /// `s`: a word.
    Text,
    /// `c`: bytes including white space.
    Chars,
    /// `[set]`: bytes of the set. The array marks its members.
    Set(Box<[bool; 256]>),
    /// `{a|b}`: texts with their numbers.
    Enum(Choices),
    /// `b`, `Bzo`: binary digits; the two bytes for 0 and 1.
    Bits([u8; 2]),
    /// `r`: an integer as raw bytes.
    Raw,
    /// `R`: a floating-point number as raw bytes.
    RawFloat,
    /// `D`: packed decimal digits.
    Bcd,
    /// `T(format)`: a time, as seconds since 1970.
    Time(TimeFormat),
    /// `<name>`: a checksum of the message so far.
    Sum(Checksum),
    /// `/regex/`: the match of a regular expression.
    Regex(Regex),
    /// `#/regex/text/`: replaces the matches of a regular expression.
    Substitute(Substitution),
}

/// The texts of `%{…}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// The texts, each with its number; `None` matches any byte.
    pub(super) known: Vec<(Vec<Option<u8>>, i64)>,
    /// `=?`: the text written for numbers that are not in the list.
    pub(super) otherwise: Option<Vec<Option<u8>>>,
}

/// The kind of value that a conversion uses for a field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A floating-point number.
    Float,
    /// A whole number.
    Int,
    /// A text: state names, or numbers in the format of EPICS.
    Text,
}

/// A conversion with its flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Format {
    /// The type of the conversion.
    pub conversion: Conversion,
    skip: bool,
    compare: bool,
    pub(super) fixed: bool,
    pub(super) default: bool,
    pub(super) directive: Directive,
    /// `%(FIELD)…`, `%(RECORD.FIELD)…`: the field used instead of the value of the record that runs the protocol.
    field: Option<Box<str>>,
}

/// A decimal number and its number of digits.
fn number(coded: &[Coded]) -> (usize, usize) {
    let digit = |coded: &Coded| coded.plain().filter(u8::is_ascii_digit).map(|digit| usize::from(digit - b'0'));
    coded.iter().take(6).map_while(digit).fold((0, 0), |(value, len), digit| (value * 10 + digit, len + 1))
}

/// The characters before the next unescaped `close`.
pub(super) fn until(coded: &[Coded], close: u8) -> Option<&[Coded]> {
    coded.iter().position(|coded| coded.plain() == Some(close)).map(|end| &coded[..end])
}

/// Parses the field named by `%(…)`. Also returns its length in characters with the parentheses.
fn field(coded: &[Coded]) -> Result<(Option<Box<str>>, usize), Syntax> {
    if coded.first().and_then(|first| first.plain()) != Some(b'(') {
        return Ok((None, 0));
    }
    let name = until(&coded[1..], b')').ok_or(Syntax::Open(b'('))?;
    let bytes: Vec<u8> = name.iter().filter_map(|coded| coded.byte()).collect();
    let text = std::str::from_utf8(&bytes).map_err(|_| Syntax::FieldNotUtf8)?.trim();
    if text.is_empty() {
        return Err(Syntax::NoField);
    }
    Ok((Some(text.into()), name.len() + 2))
}

impl Format {
    /// Parses a conversion after the `%`. Also returns its length in characters.
    pub(super) fn parse(coded: &[Coded]) -> Result<(Self, usize), Syntax> {
        let mut directive = Directive::default();
        let (mut skip, mut compare, mut fixed, mut default) = (false, false, false, false);
        let (field, mut at) = field(coded)?;
        while let Some(flag) = coded.get(at).and_then(|coded| coded.plain()) {
            match flag {
                b'*' => skip = true,
                b'#' => directive.alternate = true,
                b'+' => directive.plus = true,
                b'-' => directive.left = true,
                b'0' => directive.zero = true,
                b' ' => directive.blank = true,
                b'?' => default = true,
                b'=' => compare = true,
                b'!' => fixed = true,
                _ => break,
            }
            at += 1;
        }
        let (width, len) = number(&coded[at..]);
        directive.width = width.min(WIDTH_MAX);
        at += len;
        if coded.get(at) == Some(&Coded::Plain(b'.')) {
            let (precision, len) = number(&coded[at + 1..]);
            directive.precision = Some(precision);
            at += 1 + len;
        }
        let letter = coded.get(at).ok_or(Syntax::NoConversion)?;
        let letter = letter.byte().ok_or(Syntax::WildConversion)?;
        at += 1;
        let (conversion, len) = Conversion::parse(letter, &directive, &coded[at..])?;
        let format = Self { conversion, skip, compare, fixed, default, directive, field };
        if format.field.is_some() && !format.is_of_value() {
            return Err(Syntax::FieldWithoutValue);
        }
        Ok((format, at + len))
    }

    /// Returns whether the conversion reads or writes a value of the record that runs the protocol.
    #[must_use]
    pub const fn takes_value(&self) -> bool {
        self.has_value() && self.field.is_none()
    }

    /// Returns whether the conversion reads or writes a value, of this record or of a field.
    pub(super) const fn has_value(&self) -> bool {
        !self.skip && self.is_of_value()
    }

    const fn is_of_value(&self) -> bool {
        !matches!(self.conversion, Conversion::Sum(_) | Conversion::Substitute(_))
    }

    /// The field named by `%(…)`.
    pub(super) fn field(&self) -> Option<&str> {
        self.field.as_deref().filter(|_| !self.skip)
    }

    /// `%=`: returns whether the input must equal the text that would be written.
    pub(super) const fn compares(&self) -> bool {
        self.compare && self.has_value()
    }

    pub(super) const fn kind(&self) -> Kind {
        match self.conversion {
            Conversion::Float(_) | Conversion::Mantissa | Conversion::RawFloat | Conversion::Time(_) => Kind::Float,
            Conversion::Text | Conversion::Set(_) | Conversion::Regex(_) => Kind::Text,
            _ => Kind::Int,
        }
    }
}

impl Conversion {
    /// Parses the part of a conversion after its letter. Also returns the length of that part in characters.
    fn parse(letter: u8, directive: &Directive, rest: &[Coded]) -> Result<(Self, usize), Syntax> {
        let closed = |close: u8| until(rest, close).ok_or(Syntax::Open(letter));
        Ok(match letter {
            b'f' | b'e' | b'E' | b'g' | b'G' => (Self::Float(letter), 0),
            b'm' => (Self::Mantissa, 0),
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => (Self::Int(letter), 0),
            b's' => (Self::Text, 0),
            b'c' => (Self::Chars, 0),
            b'b' => (Self::Bits(*b"01"), 0),
            b'B' => match rest {
                [zero, one, ..] => {
                    let byte = |coded: &Coded| coded.byte().ok_or(Syntax::WildBits);
                    (Self::Bits([byte(zero)?, byte(one)?]), 2)
                }
                _ => return Err(Syntax::NoBits),
            },
            b'r' => (Self::Raw, 0),
            b'R' if matches!(directive.width, 0 | 4 | 8) => (Self::RawFloat, 0),
            b'R' => return Err(Syntax::RawFloat(directive.width)),
            b'D' => (Self::Bcd, 0),
            b'T' => {
                let inside = rest.strip_prefix(&[Coded::Plain(b'(')]).and_then(|rest| until(rest, b')'));
                let inside = inside.ok_or(Syntax::NoTimeFormat)?;
                (Self::Time(TimeFormat::parse(inside)?), inside.len() + 2)
            }
            b'[' => {
                // A closing bracket at the start is a member of the set.
                let first = usize::from(rest.first() == Some(&Coded::Plain(b'^')));
                let from = first + usize::from(rest.get(first) == Some(&Coded::Plain(b']')));
                let end = from + until(&rest[from..], b']').ok_or(Syntax::Open(letter))?.len();
                (Self::Set(Box::new(set(&rest[..end]))), end + 1)
            }
            b'{' => {
                let inside = closed(b'}')?;
                (Self::Enum(choices(inside, directive.alternate)?), inside.len() + 1)
            }
            b'<' => {
                let inside = closed(b'>')?;
                let name: Vec<u8> = inside.iter().filter_map(|coded| coded.byte()).collect();
                (Self::Sum(Checksum::named(&String::from_utf8_lossy(&name))?), inside.len() + 1)
            }
            b'/' => {
                let pattern = closed(b'/')?;
                // In a substitution the precision selects the matches to replace.
                let regex = Regex::new(pattern, directive.precision.filter(|_| !directive.alternate))?;
                let len = pattern.len() + 1;
                if directive.alternate {
                    let text = until(&rest[len..], b'/').ok_or(Syntax::OpenSubstitution)?;
                    (Self::Substitute(Substitution { regex, text: text.to_vec() }), len + text.len() + 1)
                } else {
                    (Self::Regex(regex), len)
                }
            }
            other => return Err(Syntax::Conversion(other)),
        })
    }
}

fn set(text: &[Coded]) -> [bool; 256] {
    let (negated, mut rest) = match text.split_first() {
        Some((Coded::Plain(b'^'), rest)) => (true, rest),
        _ => (false, text),
    };
    let mut set = [negated; 256];
    while let Some((from, behind)) = rest.split_first() {
        rest = behind;
        let Some(from) = from.byte() else { continue };
        let mut to = from;
        if let [Coded::Plain(b'-'), last, ..] = behind
            && let Some(last) = last.byte()
        {
            (to, rest) = (last, &behind[2..]);
        }
        for byte in from.min(to)..=from.max(to) {
            set[usize::from(byte)] = !negated;
        }
    }
    set
}

/// `a|b|c`, numbered from 0. With the flag `#` each may have `=number`, and the last may have `=?`.
fn choices(text: &[Coded], numbered: bool) -> Result<Choices, Syntax> {
    let mut choices = Choices { known: Vec::new(), otherwise: None };
    let mut next = 0;
    let mut rest = Some(text);
    while let Some(left) = rest {
        let choice = until(left, b'|').unwrap_or(left);
        rest = left.get(choice.len() + 1..);
        let name = if numbered { until(choice, b'=').unwrap_or(choice) } else { choice };
        let given = choice.get(name.len() + 1..);
        let name = name.iter().map(|coded| coded.byte()).collect();
        if let Some(given) = given {
            let given: String = given.iter().map(|coded| coded.byte().map_or('?', char::from)).collect();
            match given.trim() {
                "?" if rest.is_none() => {
                    choices.otherwise = Some(name);
                    return Ok(choices);
                }
                "?" => return Err(Syntax::EarlyDefault),
                given => next = whole(given).ok_or_else(|| Syntax::Number(given.to_owned()))?,
            }
        }
        choices.known.push((name, next));
        next = next.wrapping_add(1);
    }
    Ok(choices)
}
