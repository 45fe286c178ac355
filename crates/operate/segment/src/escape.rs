//! Bytes as texts that hold them all.

use std::fmt::Write as _;

/// Bytes as text: a backslash is doubled, a byte that is no UTF-8 becomes `\xNN`.
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

/// What [`escaped`] was made of; `None` where a backslash begins something else.
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
