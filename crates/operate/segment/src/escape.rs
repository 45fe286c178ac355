//! Lossless representation of bytes as text.

use std::fmt::Write as _;

/// Converts bytes to text: a backslash is doubled, an invalid UTF-8 byte becomes `\xNN`.
#[must_use]
pub fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// The inverse of [`escaped`]; `None` if a backslash starts anything else.
#[must_use]
pub fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        let plain = rest.iter().position(|byte| *byte == b'\\').unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        rest = match rest.get(plain..)? {
            [] => return Some(out),
            [b'\\', b'\\', rest @ ..] => {
                out.push(b'\\');
                rest
            }
            [b'\\', b'x', high, low, rest @ ..] => {
                out.push(digit(*high)? << 4 | digit(*low)?);
                rest
            }
            _ => return None,
        };
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}
