//! Bytes of texts that need not be UTF-8, such as Latin-1 in older databases, as `str` and back.
//!
//! A byte that is not part of a UTF-8 character becomes one of 128 characters of a private plane, unused otherwise.
//! [`encode`] restores the same bytes that [`decode`] read, so parsers between them need no special case.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// Byte 0 of the private characters; only 0x80 to 0xFF occur.
const FIRST: u32 = 0x10_FF00;
/// First bytes of their UTF-8 form.
const BEGINS: u8 = 0xF4;

/// Bytes as a text that [`encode`] turns into the same bytes. Allocates only if they are not UTF-8.
#[must_use]
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = core::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().filter_map(|byte| char::from_u32(FIRST + u32::from(*byte))));
    }
    Cow::Owned(out)
}

/// The bytes of a text from [`decode`]. Allocates only if they are not UTF-8.
#[must_use]
pub fn encode(text: &str) -> Cow<'_, [u8]> {
    if !text.as_bytes().contains(&BEGINS) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    for char in text.chars() {
        match u32::from(char).checked_sub(FIRST).and_then(|byte| u8::try_from(byte).ok()) {
            Some(byte @ 0x80..) => out.push(byte),
            _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(out)
}

/// A readable text: UTF-8 unchanged, otherwise Latin-1, which old files use for degree signs and superscript twos.
#[must_use]
pub fn readable(bytes: &[u8]) -> Cow<'_, str> {
    match core::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_through_a_text_unchanged() {
        for bytes in [&b"plain"[..], b"m\xb2/s", "m²/s".as_bytes(), b"\xff\xfe\x80 \xc3", "😀\u{10FF00}".as_bytes()]
        {
            assert_eq!(&*encode(&decode(bytes)), bytes);
        }
        assert_eq!(decode(b"a\xb2b").chars().count(), 3);
        assert!(matches!(decode(b"plain"), Cow::Borrowed(_)) && matches!(encode("m²"), Cow::Borrowed(_)));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_read_as_latin_1() {
        assert_eq!((readable(b"m\xb2/s"), readable("m²/s".as_bytes())), ("m²/s".into(), "m²/s".into()));
    }
}
