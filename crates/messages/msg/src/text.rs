//! Text lines of requests and replies: their parts, and the escapes in the complement.

use crate::code::{Code, CodeError};
use crate::object::{Object, ObjectError};
use alloc::borrow::Cow;
use alloc::string::String;
use base::{Verb, VerbError};
use core::fmt::{self, Write};

/// The last part of a line: a value, a name, a text. In its wire form `/`, `%` and control characters are escaped as
/// `%2F`, `%25`, `%0A` and so on. Any other `%` is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complement<'a>(&'a str);

impl<'a> Complement<'a> {
    /// The empty complement.
    pub const EMPTY: Self = Self("");

    /// Checks the wire form.
    ///
    /// # Errors
    /// A slash, a control character, or a `%` that does not start an escape.
    pub fn from_wire(raw: &'a str) -> Result<Self, TextError<'a>> {
        let bytes = raw.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'/' => return Err(TextError::Slash { at }),
                b'%' if escape(&bytes[at..]).is_none() => return Err(TextError::Escape { at }),
                0..=0x1f | 0x7f => return Err(TextError::Control { found: *byte, at }),
                _ => {}
            }
        }
        Ok(Self(raw))
    }

    /// The wire form.
    #[must_use]
    pub const fn wire(self) -> &'a str {
        self.0
    }

    /// The unescaped text. Allocates only if there are escapes.
    #[must_use]
    pub fn text(self) -> Cow<'a, str> {
        if !self.0.contains('%') {
            return Cow::Borrowed(self.0);
        }
        let mut out = String::with_capacity(self.0.len());
        // Writing into a `String` cannot fail.
        let _ = write!(out, "{self}");
        Cow::Owned(out)
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Decodes the escape at the start of `bytes`. Only ASCII is permitted, so that the unescaped text is valid UTF-8.
fn escape(bytes: &[u8]) -> Option<u8> {
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let value = (digit(1)? * 16 + digit(2)?) as u8;
    (bytes[0] == b'%' && value < 0x80).then_some(value)
}

impl fmt::Display for Complement<'_> {
    /// Writes the unescaped text, without allocation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find('%') {
            f.write_str(&rest[..at])?;
            let meant = escape(&rest.as_bytes()[at..]).ok_or(fmt::Error)?;
            f.write_char(char::from(meant))?;
            rest = &rest[at + 3..];
        }
        f.write_str(rest)
    }
}

/// Escapes a text for use in a complement.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Out<'a, 'f>(&'a mut fmt::Formatter<'f>);
        impl Write for Out<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let mut done = 0;
                for (at, byte) in text.bytes().enumerate() {
                    if matches!(byte, b'/' | b'%' | 0..=0x1f | 0x7f) {
                        write!(self.0, "{}%{byte:02X}", &text[done..at])?;
                        done = at + 1;
                    }
                }
                self.0.write_str(&text[done..])
            }
        }
        write!(Out(f), "{}", self.0)
    }
}

/// Splits a line at its first slash. For parts of a few bytes this is faster than `split_once`.
fn cut(line: &str) -> Option<(&str, &str)> {
    let at = line.bytes().position(|byte| byte == b'/')?;
    Some((&line[..at], &line[at + 1..]))
}

/// Line of a request: verb, object, complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The verb.
    pub verb: Verb,
    /// The object. For `list`, `watch` and `unwatch` it may contain `*` and `?`.
    pub object: Object<'a>,
    /// A value for `set` and `put`, an attribute for `get`; empty if not needed.
    pub complement: Complement<'a>,
}

impl<'a> Request<'a> {
    /// Parses a line. The complement and its slash are optional.
    ///
    /// # Errors
    /// The line is invalid. The error contains the most similar valid word, if there is one.
    ///
    /// Real-time: allocates for an error only; bounded by the length of the line.
    pub fn parse(line: &'a str) -> Result<Self, TextError<'a>> {
        let (word, rest) = cut(line).ok_or(TextError::Parts { found: line })?;
        let verb: Verb = word.parse().map_err(|error| TextError::Verb { found: word, error })?;
        let (name, raw) = cut(rest).unwrap_or((rest, ""));
        let object = if verb.row().patterns { Object::wild(name) } else { Object::new(name) };
        let object = object.map_err(|error| TextError::Object { found: name, error })?;
        Ok(Self { verb, object, complement: Complement::from_wire(raw)? })
    }
}

impl fmt::Display for Request<'_> {
    /// Writes the wire form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.verb, self.object, self.complement.wire())
    }
}

/// Line of a reply: code, complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The result.
    pub code: Code,
    /// The value read or reached; for a failure, what was found, what was expected, and what to do.
    pub complement: Complement<'a>,
}

impl<'a> Reply<'a> {
    /// Parses a line.
    ///
    /// # Errors
    /// The line is invalid.
    pub fn parse(line: &'a str) -> Result<Self, TextError<'a>> {
        let (word, raw) = cut(line).unwrap_or((line, ""));
        let code = word.parse().map_err(|error| TextError::Code { found: word, error })?;
        Ok(Self { code, complement: Complement::from_wire(raw)? })
    }
}

impl fmt::Display for Reply<'_> {
    /// Writes the wire form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.code, self.complement.wire())
    }
}

/// A line that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError<'a> {
    /// No slash in a request.
    Parts {
        /// The line.
        found: &'a str,
    },
    /// Invalid verb of a request.
    Verb {
        /// The word.
        found: &'a str,
        /// The error.
        error: VerbError,
    },
    /// Invalid code of a reply.
    Code {
        /// The word.
        found: &'a str,
        /// The error.
        error: CodeError,
    },
    /// Invalid object of a request.
    Object {
        /// The name.
        found: &'a str,
        /// The error.
        error: ObjectError,
    },
    /// A slash in a complement.
    Slash {
        /// Its byte offset in the complement.
        at: usize,
    },
    /// A `%` that is not followed by two hexadecimal digits of an ASCII character.
    Escape {
        /// Its byte offset in the complement.
        at: usize,
    },
    /// A control character.
    Control {
        /// Its code.
        found: u8,
        /// Its byte offset in the complement.
        at: usize,
    },
}

impl fmt::Display for TextError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts { found } => {
                write!(f, "{found:?} is no request, expected verb/object or verb/object/complement")
            }
            Self::Verb { found, error } => write!(f, "{found:?} is no verb; {error}"),
            Self::Code { found, error: CodeError { nearest: Some(code) } } => {
                write!(f, "{found:?} is no reply code; did you mean \"{code}\"?")
            }
            Self::Code { found, .. } => write!(f, "{found:?} is no reply code"),
            Self::Object { found, error } => write!(f, "{found:?} names no object: {error}"),
            Self::Slash { at } => write!(f, "slash at byte {at} of the complement; write it as %2F"),
            Self::Escape { at } => {
                write!(
                    f,
                    "% at byte {at} of the complement, expected two hexadecimal digits of an ASCII character behind it; write a percent sign as %25"
                )
            }
            Self::Control { found, at } => {
                write!(f, "control character {found:#04x} at byte {at} of the complement; write it as %{found:02X}")
            }
        }
    }
}

impl core::error::Error for TextError<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn a_line_has_a_verb_an_object_and_perhaps_a_complement() {
        let request = Request::parse("get/sr_mag_ps_b/current_adc").unwrap();
        assert_eq!(
            (request.verb, request.object.text(), request.complement.wire()),
            (Verb::Get, "sr_mag_ps_b", "current_adc")
        );
        assert_eq!(Request::parse("ping/server").unwrap().complement, Complement::EMPTY);
        assert_eq!(Request::parse("list/sr_*").unwrap().object.text(), "sr_*");
    }

    #[test]
    fn a_malformed_line_is_refused_with_the_correct_form() {
        for (line, says) in [
            ("gte/sr_a/b", "\"gte\" is no verb; did you mean \"get\"?"),
            ("hello", "\"hello\" is no request, expected verb/object or verb/object/complement"),
            (
                "get/sr_*/b",
                "\"sr_*\" names no object: '*' at byte 3 of an object's name, expected lower-case letters, digits and underscores",
            ),
            ("put/sr_a/1/2", "slash at byte 1 of the complement; write it as %2F"),
            (
                "put/sr_a/5%",
                "% at byte 1 of the complement, expected two hexadecimal digits of an ASCII character behind it; write a percent sign as %25",
            ),
            (
                "put/sr_a/%C3%A4",
                "% at byte 0 of the complement, expected two hexadecimal digits of an ASCII character behind it; write a percent sign as %25",
            ),
            ("put/sr_a/a\nb", "control character 0x0a at byte 1 of the complement; write it as %0A"),
        ] {
            assert_eq!(Request::parse(line).unwrap_err().to_string(), says);
        }
        assert_eq!(Reply::parse("ok/1").unwrap_err().to_string(), "\"ok\" is no reply code; did you mean \"OK\"?");
    }

    proptest! {
        #[test]
        fn any_text_survives_in_a_complement(text in any::<String>()) {
            let wire = std::format!("put/sr_a/{}", Escaped(&text));
            let request = Request::parse(&wire).unwrap();
            prop_assert_eq!(&request.complement.text(), &text);
            prop_assert_eq!(request.to_string(), wire);
        }

        #[test]
        fn no_line_panics(line in any::<String>()) {
            if let Ok(request) = Request::parse(&line) {
                let wire = request.to_string();
                prop_assert_eq!(Request::parse(&wire), Ok(request));
            }
            if let Ok(reply) = Reply::parse(&line) {
                let _ = reply.complement.text();
            }
        }
    }
}
