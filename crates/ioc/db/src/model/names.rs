//! Names of records and aliases: one block of bytes and one hash table of offsets into it.
//!
//! A lookup needs one access to the table and one to the block, which stores the record next to the name. The table stores
//! the hashes, so that probing and growing do not access the block.

use crate::model::id::RecId;

/// All names, indexed by hash.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// For each name: its record (4 bytes), its length (1 byte), its bytes.
    block: Vec<u8>,
    count: usize,
    /// Open addressing: hash, and offset in the block plus one. The length is a power of two.
    table: Vec<(u32, u32)>,
}

/// Bytes stored before each name in the block.
const HEAD: usize = 5;

fn hash(name: &[u8]) -> u32 {
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
    (state ^ (state >> 32)) as u32
}

impl Names {
    /// Record and name at an offset.
    fn at(&self, number: u32) -> (RecId, &[u8]) {
        let entry = &self.block[number as usize..];
        let record = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        (RecId(record), &entry[HEAD..HEAD + usize::from(entry[4])])
    }

    /// The name with this number.
    pub(crate) fn name(&self, number: u32) -> &[u8] {
        self.at(number).1
    }

    /// The same as text; names are ASCII.
    pub(crate) fn text(&self, number: u32) -> &str {
        std::str::from_utf8(self.name(number)).unwrap_or_default()
    }

    /// Number of a name, and its record.
    pub(crate) fn find(&self, name: &[u8]) -> Option<(u32, RecId)> {
        self.find_hashed(name, hash(name))
    }

    fn find_hashed(&self, name: &[u8], hash: u32) -> Option<(u32, RecId)> {
        let mask = self.table.len().checked_sub(1)?;
        let mut at = hash as usize & mask;
        loop {
            match self.table[at] {
                (_, 0) => return None,
                (same, place) if same == hash => {
                    let (record, found) = self.at(place - 1);
                    if found == name {
                        return Some((place - 1, record));
                    }
                }
                _ => {}
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a name (at most 255 bytes) or assigns an existing name to another record. Returns its number.
    pub(crate) fn add(&mut self, name: &[u8], record: RecId) -> u32 {
        let hash = hash(name);
        if let Some((number, _)) = self.find_hashed(name, hash) {
            self.block[number as usize..number as usize + 4].copy_from_slice(&record.0.to_le_bytes());
            return number;
        }
        if (self.count + 1) * 2 > self.table.len() {
            let larger = vec![(0, 0); (self.table.len() * 2).max(64)];
            for entry in std::mem::replace(&mut self.table, larger).into_iter().filter(|(_, place)| *place != 0) {
                self.insert(entry);
            }
        }
        let number = self.block.len() as u32;
        self.block.extend_from_slice(&record.0.to_le_bytes());
        self.block.push(name.len() as u8);
        self.block.extend_from_slice(name);
        self.count += 1;
        self.insert((hash, number + 1));
        number
    }

    /// Detaches a name: it then refers to record 0, the prototype of a type, which lookups do not return.
    pub(crate) fn free(&mut self, number: u32) {
        self.block[number as usize..number as usize + 4].copy_from_slice(&0u32.to_le_bytes());
    }

    fn insert(&mut self, entry: (u32, u32)) {
        let mask = self.table.len() - 1;
        let mut at = entry.0 as usize & mask;
        while self.table[at].1 != 0 {
            at = (at + 1) & mask;
        }
        self.table[at] = entry;
    }

    /// Numbers of all names and their records, in order of definition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, RecId)> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            if next >= self.block.len() {
                return None;
            }
            let number = next as u32;
            let (record, name) = self.at(number);
            next += HEAD + name.len();
            Some((number, record))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stored_names_are_found() {
        let mut names = Names::default();
        assert_eq!(names.find(b"x"), None);
        let numbers: Vec<u32> = (0..5_000)
            .map(|record| names.add(format!("ring:magnet{record}:current").as_bytes(), RecId(record)))
            .collect();
        for (record, number) in (0..5_000).zip(&numbers) {
            let name = format!("ring:magnet{record}:current");
            assert_eq!(names.find(name.as_bytes()), Some((*number, RecId(record))));
            assert_eq!(names.name(*number), name.as_bytes());
        }
        assert_eq!(names.find(b"ring:magnet5000:current"), None);
        assert_eq!(names.add(b"ring:magnet17:current", RecId(9_000)), numbers[17]);
        let expected =
            numbers.iter().zip(0..).map(|(number, record)| (*number, RecId(if record == 17 { 9_000 } else { record })));
        assert!(names.iter().eq(expected));
    }
}
