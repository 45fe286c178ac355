//! Sets of fields: one bit for each node of a type, depth first.

use super::Type;

/// A set of nodes. Bit 0 is the whole value. The bit of a structure includes all its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    words: Vec<u64>,
}

impl Mask {
    /// The set of these bits.
    #[must_use]
    pub fn of(bits: impl IntoIterator<Item = u32>) -> Self {
        let mut mask = Self::default();
        bits.into_iter().for_each(|bit| mask.set(bit));
        mask
    }

    /// From words, least significant first.
    #[must_use]
    pub fn from_words(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    /// The words, least significant first. The last one is not zero.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a bit. The caller limits `bit` to the nodes of a type.
    pub fn set(&mut self, bit: u32) {
        let word = bit as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (bit % 64);
    }

    /// Whether the bit is in the set.
    #[must_use]
    pub fn has(&self, bit: u32) -> bool {
        self.words.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// The bits in both sets. The bit of a structure includes only itself here; see [`leaves`](Self::leaves).
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::from_words(self.words.iter().zip(&other.words).map(|(one, other)| one & other).collect())
    }

    /// Adds the bits of another set.
    pub fn add(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(one, other)| *one |= other);
    }

    /// Whether a bit from `first` up to but not including `end` is in the set.
    #[must_use]
    pub fn meets(&self, first: u32, end: u32) -> bool {
        (first..end).any(|bit| self.has(bit))
    }

    /// Whether no bit is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The fields without fields that the set includes, directly or by the bit of a structure around them.
    #[must_use]
    pub fn leaves(&self, ty: &Type) -> Self {
        fn walk(from: &Mask, ty: &Type, bit: u32, all: bool, out: &mut Mask) {
            let all = all || from.has(bit);
            let Some(fields) = ty.fields() else {
                if all {
                    out.set(bit);
                }
                return;
            };
            let mut next = bit + 1;
            for (_, ty) in fields.fields() {
                walk(from, ty, next, all, out);
                next += ty.nodes();
            }
        }
        let mut out = Self::default();
        walk(self, ty, 0, false, &mut out);
        out
    }
}
