//! Short texts in shared words.

use crate::Words;
use crate::sync::Ordering;

/// A text of at most `N` bytes, read from shared words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    pub(crate) fn read(words: &Words) -> Self {
        let mut bytes = [0; N];
        for (to, word) in bytes.chunks_mut(8).zip(words) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..to.len()]);
        }
        Self { bytes }
    }

    /// The text, up to the first zero or the first invalid UTF-8.
    #[must_use]
    pub fn as_str(&self) -> &str {
        until_broken(&self.bytes)
    }
}

/// The text in `bytes`, up to the first zero or the first invalid UTF-8.
pub(crate) fn until_broken(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    match core::str::from_utf8(&bytes[..end]) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// Writes a text, padded with zeros. A text that is too long is cut.
pub(crate) fn write(words: &Words, text: &str) {
    let mut bytes = text.bytes();
    for word in words {
        word.store(u64::from_le_bytes(core::array::from_fn(|_| bytes.next().unwrap_or(0))), Ordering::Relaxed);
    }
}
