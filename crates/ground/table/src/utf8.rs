//! The bytes of a file as text.

use std::fmt;

/// Bytes that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUtf8 {
    /// The line of the first invalid byte, from 1.
    line: usize,
    /// Its place in the line, in characters from 1.
    column: usize,
    found: NonUtf8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NonUtf8 {
    /// UTF-16 or UTF-32, by its mark or by the zero bytes of its first letter: the name of the encoding for `iconv`.
    Wide(&'static str),
    /// A byte of a single-byte encoding such as Latin-1.
    Byte(u8),
    /// A zero byte, which no text has.
    Zero,
}

impl NotUtf8 {
    fn at(bytes: &[u8], at: usize, found: NonUtf8) -> Self {
        let before = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default());
        let column = before.chars().rev().take_while(|it| *it != '\n').count() + 1;
        Self { line: before.matches('\n').count() + 1, column, found }
    }

    /// The same place, in a text that starts after `lines` lines of its file.
    #[must_use]
    pub const fn after(mut self, lines: usize) -> Self {
        self.line += lines;
        self
    }
}

impl fmt::Display for NotUtf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        let from = match self.found {
            NonUtf8::Wide(name) => {
                write!(f, "the file is {}", name.to_uppercase())?;
                name
            }
            NonUtf8::Byte(byte) => {
                write!(f, "byte 0x{byte:02x} is no UTF-8; in Latin-1 it is {:?}", char::from(byte))?;
                "latin1"
            }
            NonUtf8::Zero => {
                return f.write_str("byte 0x00 is no text; expected UTF-8: restore the file, or remove these bytes");
            }
        };
        write!(f, "; expected UTF-8: `iconv -f {from} -t utf-8 FILE > NEW` makes it")
    }
}

impl std::error::Error for NotUtf8 {}

/// Checks that a text has one byte for each ASCII letter: neither UTF-16 nor UTF-32, with or without a mark, and no zero byte.
/// Single-byte encodings such as Latin-1 pass.
///
/// # Errors
/// It has not: with the place, the encoding and a remedy.
pub fn one_byte_letters(bytes: &[u8]) -> Result<(), NotUtf8> {
    let wide = match bytes {
        [0, 0, 0, 0, ..] => None,
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Some("utf-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("utf-16"),
        [_, 0, 0, 0, ..] => Some("utf-32le"),
        [0, 0, 0, _, ..] => Some("utf-32be"),
        [_, 0, ..] => Some("utf-16le"),
        [0, _, ..] => Some("utf-16be"),
        _ => None,
    };
    if let Some(name) = wide {
        return Err(NotUtf8 { line: 1, column: 1, found: NonUtf8::Wide(name) });
    }
    let zero = bytes.iter().position(|byte| *byte == 0);
    zero.map_or(Ok(()), |at| Err(NotUtf8::at(bytes, at, NonUtf8::Zero)))
}

/// The text of a file.
///
/// # Errors
/// The text is not UTF-8: with the place, the probable encoding and a remedy.
pub fn utf8(bytes: Vec<u8>) -> Result<String, NotUtf8> {
    one_byte_letters(&bytes)?;
    utf8_part(bytes)
}

/// The text of a part of a file, which may have zero bytes.
///
/// # Errors
/// The text is not UTF-8: with the place in the part, the probable encoding and a remedy.
pub fn utf8_part(bytes: Vec<u8>) -> Result<String, NotUtf8> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let found = NonUtf8::Byte(error.as_bytes().get(at).copied().unwrap_or_default());
        NotUtf8::at(error.as_bytes(), at, found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_another_encoding_is_named_with_place_and_remedy() {
        assert_eq!(utf8("[plant] # é\n".into()).unwrap(), "[plant] # é\n");
        assert_eq!(utf8(Vec::new()).unwrap(), "");
        let why = utf8(b"[plant]\n# \xc3\xa9\nname = \"caf\xe9\"\n".to_vec()).unwrap_err().to_string();
        let expected = "line 3, column 12: byte 0xe9 is no UTF-8; in Latin-1 it is 'é'; expected UTF-8: `iconv -f latin1 -t utf-8 FILE > NEW` makes it";
        assert_eq!(why, expected);
        for (bytes, name) in [
            (&b"\xff\xfe[\0p\0"[..], "utf-16"),
            (b"\xfe\xff\0[\0p", "utf-16"),
            (b"[\0p\0", "utf-16le"),
            (b"\0[\0p", "utf-16be"),
            (b"\xff\xfe\0\0[\0\0\0", "utf-32"),
            (b"\0\0\xfe\xff\0\0\0[", "utf-32"),
            (b"[\0\0\0p\0\0\0", "utf-32le"),
            (b"\0\0\0[\0\0\0p", "utf-32be"),
        ] {
            let why = utf8(bytes.to_vec()).unwrap_err().to_string();
            let remedy = format!(" {}; expected UTF-8: `iconv -f {name} -t utf-8 FILE", name.to_uppercase());
            assert!(why.starts_with("line 1, column 1: ") && why.contains(&remedy), "{why}");
            assert_eq!(one_byte_letters(bytes).unwrap_err().to_string(), why);
        }
        let zero = one_byte_letters(b"caf\xe9\na \0").unwrap_err().after(2).to_string();
        assert!(zero.starts_with("line 4, column 3: byte 0x00"), "{zero}");
        assert_eq!(one_byte_letters(b"caf\xe9\n"), Ok(()));
        assert!(utf8(b"a\xe9".to_vec()).unwrap_err().to_string().starts_with("line 1, column 2"), "a truncated letter");
    }
}
