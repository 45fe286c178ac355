//! JSON as EPICS reads it in links, channel names and group files: JSON5 with bare keys, single quotes, trailing commas and
//! JSON5 numbers.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the JSON value of its name")]
pub enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    List(Vec<Self>),
    /// Entries in the order of the text.
    Map(Vec<(String, Self)>),
}

/// Maximum nesting depth of lists and maps.
const DEPTH_LIMIT: u32 = 32;

/// Position and reason of a syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Offset of the error in bytes.
    pub at: usize,
    /// The found and the expected text.
    pub what: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JSON, byte {}: {}", self.at + 1, self.what)
    }
}

impl core::error::Error for JsonError {}

/// Parses one value, which must be the whole text.
///
/// # Errors
/// The text is not a JSON value.
pub fn parse(text: &str) -> Result<Json, JsonError> {
    Reader { text, at: 0, comments: false }.whole()
}

/// Like [`parse`], with comments: `/* … */` and `// …` to the end of the line.
///
/// # Errors
/// As [`parse`].
pub fn parse_commented(text: &str) -> Result<Json, JsonError> {
    Reader { text, at: 0, comments: true }.whole()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    comments: bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn whole(mut self) -> Result<Json, JsonError> {
        let value = self.value(0)?;
        self.blank();
        if self.at < self.text.len() { Err(self.error("nothing more")) } else { Ok(value) }
    }

    fn blank(&mut self) {
        loop {
            while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
                self.at += 1;
            }
            let rest = &self.text[self.at..];
            let end = match rest.get(..2) {
                Some("/*") if self.comments => rest[2..].find("*/").map(|end| end + 4),
                Some("//") if self.comments => Some(rest.find('\n').unwrap_or(rest.len())),
                _ => return,
            };
            self.at += end.unwrap_or(rest.len());
        }
    }

    fn error(&self, expected: &str) -> JsonError {
        let found = self.text[self.at..].chars().next().map_or("the end".to_owned(), |c| format!("{c:?}"));
        JsonError { at: self.at, what: format!("found {found}, expected {expected}") }
    }

    fn take(&mut self, wanted: u8) -> bool {
        self.blank();
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: u32) -> Result<Json, JsonError> {
        self.blank();
        if depth > DEPTH_LIMIT {
            return Err(JsonError { at: self.at, what: format!("nested deeper than {DEPTH_LIMIT}") });
        }
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.map(depth)
            }
            Some(b'[') => {
                self.at += 1;
                self.list(depth)
            }
            Some(quote @ (b'"' | b'\'')) => self.text(quote).map(Json::Text),
            Some(byte) if byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.') => self.number(),
            Some(byte) if byte.is_ascii_alphabetic() => self.word(),
            _ => Err(self.error("a value")),
        }
    }

    fn map(&mut self, depth: u32) -> Result<Json, JsonError> {
        let mut entries = Vec::new();
        loop {
            if self.take(b'}') {
                return Ok(Json::Map(entries));
            }
            let key = match self.peek() {
                Some(quote @ (b'"' | b'\'')) => self.text(quote)?,
                _ => self.bare_key()?,
            };
            if !self.take(b':') {
                return Err(self.error("':' after the key"));
            }
            entries.push((key, self.value(depth + 1)?));
            if !self.take(b',') && self.peek() != Some(b'}') {
                return Err(self.error("',' or '}'"));
            }
        }
    }

    fn list(&mut self, depth: u32) -> Result<Json, JsonError> {
        let mut items = Vec::new();
        loop {
            if self.take(b']') {
                return Ok(Json::List(items));
            }
            items.push(self.value(depth + 1)?);
            if !self.take(b',') && self.peek() != Some(b']') {
                return Err(self.error("',' or ']'"));
            }
        }
    }

    fn run(&mut self, is: fn(u8) -> bool) -> &str {
        let start = self.at;
        while self.peek().is_some_and(is) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn bare_key(&mut self) -> Result<String, JsonError> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$')) {
            return Err(self.error("a key or '}'"));
        }
        Ok(self.run(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')).to_owned())
    }

    fn word(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        let value = match self.run(|byte| byte.is_ascii_alphanumeric()) {
            "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            "Infinity" | "infinity" => Json::Real(f64::INFINITY),
            "NaN" | "nan" => Json::Real(f64::NAN),
            _ => {
                self.at = start;
                return Err(self.error("a value"));
            }
        };
        Ok(value)
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        let text = self.run(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'));
        let body = text.strip_prefix(['-', '+']).unwrap_or(text);
        let negative = text.starts_with('-');
        let hex = body.strip_prefix("0x").or_else(|| body.strip_prefix("0X"));
        let whole = hex.map_or_else(|| body.parse::<i64>().ok(), |hex| i64::from_str_radix(hex, 16).ok());
        let whole = whole.filter(|_| !body.starts_with(['-', '+']));
        if let Some(value) = whole {
            return Ok(Json::Int(if negative { -value } else { value }));
        }
        match crate::text::parse_double(text.as_bytes()) {
            Some((value, len)) if len == text.len() && hex.is_none() => Ok(Json::Real(value)),
            _ => {
                self.at = start;
                Err(self.error("a number"))
            }
        }
    }

    fn text(&mut self, quote: u8) -> Result<String, JsonError> {
        let start = self.at;
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(byte) = self.peek() else {
                self.at = start;
                return Err(JsonError { at: start, what: "this text does not end".into() });
            };
            self.at += 1;
            match byte {
                byte if byte == quote => return Ok(crate::raw::decode(&out).into_owned()),
                b'\\' => self.escape(&mut out)?,
                byte => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let Some(letter) = self.peek() else { return Err(self.error("an escape")) };
        self.at += 1;
        match letter {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0' => out.push(0),
            b'\n' => {}
            b'x' => out.push(self.hex(2)? as u8),
            b'u' => {
                let first = self.hex(4)?;
                let code = if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let second = self.hex(4)?;
                    0x10000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff)
                } else {
                    first
                };
                let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(other),
        }
        Ok(())
    }

    fn hex(&mut self, digits: usize) -> Result<u32, JsonError> {
        let text = self.text.get(self.at..self.at + digits);
        let code = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = code.and_then(|text| u32::from_str_radix(text, 16).ok());
        self.at += code.map_or(0, |_| digits);
        code.ok_or_else(|| self.error("hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn comments_are_skipped_only_where_they_are_allowed() {
        let text = "/* a */ {a: 1, // one\n b: /* two */ 2} // end";
        let expected = Json::Map(vec![("a".into(), Json::Int(1)), ("b".into(), Json::Int(2))]);
        assert_eq!(parse_commented(text), Ok(expected));
        assert!(parse(text).is_err());
        assert!(parse_commented("1 /* no end").is_ok());
    }

    #[test]
    fn json_is_read_with_the_freedoms_of_json5() {
        let list = |items: Vec<Json>| Json::List(items);
        for (text, expected) in [
            ("1", Json::Int(1)),
            ("-0x10", Json::Int(-16)),
            (" +.5 ", Json::Real(0.5)),
            ("1e3", Json::Real(1000.0)),
            ("'it\\'s'", Json::Text("it's".into())),
            ("\"\\u00e4\\n\"", Json::Text("ä\n".into())),
            ("[1,'a',]", list(vec![Json::Int(1), Json::Text("a".into())])),
            (
                "{a:true,\"b\":[null]}",
                Json::Map(vec![("a".into(), Json::Bool(true)), ("b".into(), list(vec![Json::Null]))]),
            ),
            ("Infinity", Json::Real(f64::INFINITY)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_json_names_the_byte() {
        for (text, expected) in [
            ("{a}", "JSON, byte 3: found '}', expected ':' after the key"),
            ("[1 2]", "JSON, byte 4: found '2', expected ',' or ']'"),
            ("1 x", "JSON, byte 3: found 'x', expected nothing more"),
            ("'a", "JSON, byte 1: this text does not end"),
            ("1x", "JSON, byte 1: found '1', expected a number"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}:,'\"\\\\a-zu0-9 .+-]{0,40}|.{0,20}") {
            let _ = parse(&text);
            let _ = parse_commented(&text);
        }
    }
}
