//! Bit packing: numbers of a fixed width side by side, and integers in groups of 32 with the smallest sufficient width.

use crate::bytes::{Bad, Input, put_zigzag, zigzag};

/// Numbers per group of equal width.
const MINI: usize = 32;

/// Packs numbers side by side, the first in the lowest bits.
pub(crate) fn pack(out: &mut [u8], width: u32, values: impl Iterator<Item = u64>) {
    let (mut word, mut bits, mut at) = (0u128, 0, 0);
    for value in values {
        word |= u128::from(value) << bits;
        bits += width;
        while bits >= 8 {
            out[at] = word as u8;
            at += 1;
            word >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out[at] = word as u8;
    }
}

/// Unpacks the number at `index`; `width` is at most 64 bits. Bits beyond the end of `bytes` read as 0.
#[inline]
pub(crate) fn unpack(bytes: &[u8], width: u32, index: usize) -> u64 {
    let bit = index * width as usize;
    let (byte, shift) = (bit / 8, (bit % 8) as u32);
    let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
    if let Some((word, rest)) = bytes.get(byte..).and_then(|bytes| bytes.split_first_chunk::<8>()) {
        let low = u64::from_le_bytes(*word) >> shift;
        let high = match (shift + width > 64, rest.first()) {
            (true, Some(byte)) => u64::from(*byte) << (64 - shift),
            _ => 0,
        };
        return (low | high) & mask;
    }
    let mut word = [0; 16];
    let rest = bytes.get(byte..).unwrap_or_default();
    let len = rest.len().min(9);
    word[..len].copy_from_slice(&rest[..len]);
    (u128::from_le_bytes(word) >> shift) as u64 & mask
}

/// The minimum of some numbers, and the number of bits for the largest difference from it.
fn frame(some: &[i64]) -> (i64, u32) {
    let least = some.iter().copied().min().unwrap_or(0);
    let above = some.iter().map(|value| value.wrapping_sub(least) as u64).fold(0, |all, above| all | above);
    (least, 64 - above.leading_zeros())
}

/// Number of bytes that [`put`] would write.
pub(crate) fn len(values: &[i64]) -> usize {
    let mut before = 0i64;
    let mini = |some: &[i64]| {
        let (least, width) = frame(some);
        let head = zigzag(least.wrapping_sub(before)).max(1).ilog2() as usize / 7 + 2;
        before = least;
        head + (some.len() * width as usize).div_ceil(8)
    };
    values.chunks(MINI).map(mini).sum()
}

/// Writes numbers in groups of 32: the difference of the group's minimum from the previous one, the width, and each number minus
/// the minimum.
pub(crate) fn put(out: &mut Vec<u8>, values: &[i64]) {
    let mut before = 0i64;
    for some in values.chunks(MINI) {
        let (least, width) = frame(some);
        put_zigzag(out, least.wrapping_sub(before));
        before = least;
        out.push(width as u8);
        let begin = out.len();
        out.resize(begin + (some.len() * width as usize).div_ceil(8), 0);
        pack(&mut out[begin..], width, some.iter().map(|value| value.wrapping_sub(least) as u64));
    }
}

/// Reads `count` numbers written by [`put`], and passes each to `take`.
pub(crate) fn get(input: &mut Input<'_>, count: usize, mut take: impl FnMut(i64)) -> Result<(), Bad> {
    let (mut least, mut left) = (0i64, count);
    while left > 0 {
        let some = left.min(MINI);
        least = least.wrapping_add(input.zigzag()?);
        let width = u32::from(input.u8()?);
        if width > 64 {
            return Err(Bad::Number);
        }
        let packed = input.take((some * width as usize).div_ceil(8))?;
        (0..some).for_each(|index| take(least.wrapping_add(unpack(packed, width, index) as i64)));
        left -= some;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn wide_numbers_survive_a_round_trip(width in 1..65u32, values in prop::collection::vec(any::<u64>(), 1..50)) {
            let mask = u64::MAX >> (64 - width);
            let mut out = vec![0; (values.len() * width as usize).div_ceil(8)];
            pack(&mut out, width, values.iter().map(|value| value & mask));
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(unpack(&out, width, index), value & mask);
            }
        }

        #[test]
        fn numbers_survive_a_round_trip(values in prop::collection::vec(prop_oneof![Just(7i64), -3i64..300, any::<i64>()], 0..200)) {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            put(&mut out, &values);
            prop_assert_eq!(out.len(), len(&values));
            let mut input = Input(&out);
            get(&mut input, values.len(), |value| back.push(value)).unwrap();
            prop_assert!(input.is_empty());
            prop_assert_eq!(back, values);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 0..300usize) {
            let _ = get(&mut Input(&bytes), count, |_| ());
        }
    }
}
