//! Hash of trusted numbers: a multiplication instead of SipHash.

use core::hash::{BuildHasherDefault, Hasher};

const PRIME: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes numbers. Not for untrusted numbers, which could be chosen to collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Hash tables use the highest and the lowest bits: both must depend on all bits of the number.
        let mixed = (self.0 ^ number).wrapping_mul(PRIME);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// Makes [`NumberHasher`]s.
pub type NumberHash = BuildHasherDefault<NumberHasher>;

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::BuildHasher;

    #[test]
    fn neighbours_differ_in_their_lowest_and_in_their_highest_bits() {
        let hash = |number: u64| NumberHash::default().hash_one(number);
        for step in [1, 1 << 16, 1 << 32] {
            let mut low = [0u32; 128];
            let mut high = [0u32; 128];
            for number in 0..1_280 {
                let hash = hash(number * step);
                low[(hash & 127) as usize] += 1;
                high[(hash >> 57) as usize] += 1;
            }
            assert!(low.iter().chain(&high).all(|count| *count < 40), "{step}: {low:?} {high:?}");
        }
    }
}
