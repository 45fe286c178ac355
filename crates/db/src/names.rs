//! Names of records and aliases: one block of bytes and one table of numbers.

use std::hash::{BuildHasherDefault, Hasher};

/// A record or an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameEntry {
    start: u32,
    len: u8,
    /// The record that the name denotes.
    pub(crate) record: u32,
}

/// All names, by hash.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    entries: Vec<NameEntry>,
    /// Open addressing, number of the entry plus one; a power of two long.
    table: Vec<u32>,
}

fn hash(name: &[u8]) -> u64 {
    const PRIME: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut state = name.len() as u64;
    let mut chunks = name.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = (state.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(PRIME);
    }
    let mut word = [0; 8];
    word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    state = (state.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(PRIME);
    state ^ (state >> 29)
}

impl Names {
    /// The name of an entry.
    pub(crate) fn name(&self, entry: u32) -> &[u8] {
        let entry = self.entries[entry as usize];
        &self.bytes[entry.start as usize..entry.start as usize + usize::from(entry.len)]
    }

    /// The entry of a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(u32, NameEntry)> {
        if self.table.is_empty() {
            return None;
        }
        let mask = self.table.len() - 1;
        let mut at = hash(name) as usize & mask;
        loop {
            match self.table[at] {
                0 => return None,
                number if self.name(number - 1) == name => {
                    return Some((number - 1, self.entries[number as usize - 1]));
                }
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Adds a name (at most 255 bytes), or lets one that is there denote another record; its number.
    pub(crate) fn add(&mut self, name: &[u8], record: u32) -> u32 {
        if let Some((number, _)) = self.find(name) {
            self.entries[number as usize].record = record;
            return number;
        }
        if (self.entries.len() + 1) * 2 > self.table.len() {
            self.grow();
        }
        let number = self.entries.len() as u32;
        self.entries.push(NameEntry { start: self.bytes.len() as u32, len: name.len() as u8, record });
        self.bytes.extend_from_slice(name);
        self.insert(number);
        number
    }

    fn insert(&mut self, number: u32) {
        let mask = self.table.len() - 1;
        let mut at = hash(self.name(number)) as usize & mask;
        while self.table[at] != 0 {
            at = (at + 1) & mask;
        }
        self.table[at] = number + 1;
    }

    fn grow(&mut self) {
        self.table = vec![0; (self.table.len() * 2).max(64)];
        for number in 0..self.entries.len() as u32 {
            self.insert(number);
        }
    }

    /// All entries with their names, in the order of their definition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, NameEntry)> + '_ {
        self.entries.iter().enumerate().map(|(number, entry)| (number as u32, *entry))
    }
}

/// A hasher for numbers that are already well spread, such as packed field names.
#[derive(Default)]
pub(crate) struct PlainHasher(u64);

impl Hasher for PlainHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0.rotate_left(8) ^ u64::from(*byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }
    fn write_u64(&mut self, number: u64) {
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Makes [`PlainHasher`]s.
pub(crate) type PlainHash = BuildHasherDefault<PlainHasher>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_again_and_no_other() {
        let mut names = Names::default();
        assert_eq!(names.find(b"x"), None);
        for number in 0..5_000u32 {
            names.add(format!("ring:magnet{number}:current").as_bytes(), number);
        }
        for number in 0..5_000u32 {
            let (entry, found) = names.find(format!("ring:magnet{number}:current").as_bytes()).unwrap();
            assert_eq!((entry, found.record), (number, number));
        }
        assert_eq!(names.find(b"ring:magnet5000:current"), None);
        assert_eq!(names.name(17), b"ring:magnet17:current");
    }
}
