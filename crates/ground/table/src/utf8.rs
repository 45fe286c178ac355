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
    /// A mark of UTF-16, or a zero byte in each letter.
    Utf16,
    /// A byte of a single-byte encoding such as Latin-1.
    Byte(u8),
}

impl fmt::Display for NotUtf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        let from = match self.found {
            NonUtf8::Utf16 => {
                f.write_str("the file is UTF-16")?;
                "utf-16"
            }
            NonUtf8::Byte(byte) => {
                write!(f, "byte 0x{byte:02x} is no UTF-8; in Latin-1 it is {:?}", char::from(byte))?;
                "latin1"
            }
        };
        write!(f, "; expected UTF-8: `iconv -f {from} -t utf-8 FILE > NEW` makes it")
    }
}

impl std::error::Error for NotUtf8 {}

/// The text of a file.
///
/// # Errors
/// The text is not UTF-8: with the place, the probable encoding and a remedy.
pub fn utf8(bytes: Vec<u8>) -> Result<String, NotUtf8> {
    let is_utf16 = matches!(bytes[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..]);
    if is_utf16 {
        return Err(NotUtf8 { line: 1, column: 1, found: NonUtf8::Utf16 });
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = String::from_utf8_lossy(&bytes[..at]);
        let (line, column) =
            (before.matches('\n').count() + 1, before.chars().rev().take_while(|it| *it != '\n').count() + 1);
        NotUtf8 { line, column, found: NonUtf8::Byte(bytes.get(at).copied().unwrap_or_default()) }
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
        for utf16 in [&b"\xff\xfe[\0p\0"[..], b"\xfe\xff\0[\0p", b"[\0p\0", b"\0[\0p"] {
            let why = utf8(utf16.to_vec()).unwrap_err().to_string();
            assert!(why.contains("UTF-16; expected UTF-8: `iconv -f utf-16 -t utf-8"), "{why}");
        }
        assert!(utf8(b"a\xe9".to_vec()).unwrap_err().to_string().starts_with("line 1, column 2"), "a truncated letter");
    }
}
