//! A column of words, most of which repeat consecutively: a dictionary, and runs of indices.

use super::leaf::{Leaf, Press, dictionary, levels};
use super::{Encoding, runs};
use crate::bytes::Bad;
use std::collections::HashMap;

/// Words of a row group.
#[derive(Default)]
pub(super) struct Words {
    index: HashMap<Box<str>, u32>,
    words: Vec<Box<str>>,
    runs: Vec<(Option<u32>, u64)>,
}

impl Words {
    /// Appends `rows` rows with a word or without.
    pub(super) fn add(&mut self, word: Option<&str>, rows: u64) {
        let number = word.map(|word| {
            self.index.get(word).copied().unwrap_or_else(|| {
                let number = self.words.len() as u32;
                self.index.insert(word.into(), number);
                self.words.push(word.into());
                number
            })
        });
        match self.runs.last_mut() {
            Some((last, so_far)) if *last == number => *so_far += rows,
            _ => self.runs.push((number, rows)),
        }
    }

    /// The smallest and the largest word in byte order.
    pub(super) fn ends(&self) -> Option<(&str, &str)> {
        Some((self.words.iter().min()?, self.words.iter().max()?))
    }

    /// Writes the column's pages and clears the words. Returns the dictionary page and its uncompressed size, if there are words.
    pub(super) fn close(&mut self, press: &mut Press, leaf: &mut Leaf) -> Option<(Vec<u8>, u64)> {
        let rows: u64 = self.runs.iter().map(|(_, rows)| rows).sum();
        let missing = self.runs.iter().filter(|(word, _)| word.is_none()).map(|(_, rows)| rows).sum();
        let mut body = Vec::new();
        levels(&mut body, 1, self.runs.iter().map(|(word, rows)| (word.is_some().into(), *rows)));
        let made = if self.words.is_empty() {
            leaf.page(press, rows, missing, Encoding::Plain, &body);
            None
        } else {
            let width = width(self.words.len());
            body.push(width as u8);
            runs::put(&mut body, width, self.runs.iter().filter_map(|(word, rows)| Some(((*word)?, *rows))));
            leaf.page(press, rows, missing, Encoding::Dictionary, &body);
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            self.words.iter().for_each(|word| put_bytes(&mut plain, word.as_bytes()));
            let page = dictionary(press, leaf.column, self.words.len(), &plain, &mut out);
            Some((out, page.offset + plain.len() as u64))
        };
        self.index.clear();
        self.words.clear();
        self.runs.clear();
        made
    }
}

/// Bits of a dictionary index; at least 1, because some readers do not accept 0.
pub(super) const fn width(words: usize) -> u32 {
    match words {
        0..=2 => 1,
        _ => usize::BITS - (words - 1).leading_zeros(),
    }
}

/// Writes bytes in the PLAIN encoding.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads what [`put_bytes`] wrote.
pub(super) fn bytes<'a>(input: &mut crate::bytes::Input<'a>) -> Result<&'a [u8], Bad> {
    let len = input.u32()?;
    input.take(len as usize)
}
