//! Small whole numbers as Parquet's hybrid of runs and packed bits: levels, and what stands for words of a dictionary.

use crate::bytes::{Bad, Input, put_varint};

/// Writes runs of equal numbers, each as one.
pub(super) fn put(out: &mut Vec<u8>, width: u32, runs: impl IntoIterator<Item = (u32, u64)>) {
    let mut open: Option<(u32, u64)> = None;
    let write = |out: &mut Vec<u8>, (value, count): (u32, u64)| {
        put_varint(out, count << 1);
        out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
    };
    for (value, count) in runs {
        match &mut open {
            Some((last, so_far)) if *last == value => *so_far += count,
            _ => open.replace((value, count)).into_iter().for_each(|run| write(out, run)),
        }
    }
    open.into_iter().filter(|(_, count)| *count > 0).for_each(|run| write(out, run));
}

/// Writes numbers side by side; those that fill the last eight are zeros.
pub(super) fn put_packed(out: &mut Vec<u8>, width: u32, values: &[u32]) {
    put_varint(out, (values.len().div_ceil(8) as u64) << 1 | 1);
    let begin = out.len();
    out.resize(begin + values.len().div_ceil(8) * width as usize, 0);
    pack(&mut out[begin..], width, values.iter().map(|value| (*value).into()));
}

/// Puts numbers side by side, the first into the lowest bits.
pub(super) fn pack(out: &mut [u8], width: u32, values: impl Iterator<Item = u64>) {
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

/// The number at `index` of numbers side by side, of 64 bits at most; what is beyond the bytes is zero.
#[inline]
pub(super) fn unpack(bytes: &[u8], width: u32, index: usize) -> u64 {
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

/// Reads `count` numbers of `width` bits.
pub(super) fn get(input: &mut Input<'_>, width: u32, count: usize) -> Result<Vec<u32>, Bad> {
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        let head = input.varint()?;
        let left = count - values.len();
        if head & 1 == 0 {
            let mut word = [0; 4];
            let bytes = width.div_ceil(8) as usize;
            word[..bytes].copy_from_slice(input.take(bytes)?);
            let run = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            if run == 0 || run > left {
                return Err(Bad::Number);
            }
            values.resize(values.len() + run, u32::from_le_bytes(word));
        } else {
            let bytes = usize::try_from(head >> 1).ok().and_then(|groups| groups.checked_mul(width as usize));
            let packed = input.take(bytes.ok_or(Bad::Short)?)?;
            let held = if width == 0 { left } else { packed.len() * 8 / width as usize };
            if held == 0 {
                return Err(Bad::Number);
            }
            values.extend((0..held.min(left)).map(|index| unpack(packed, width, index) as u32));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(width in 1..17u32, values in prop::collection::vec(any::<u16>(), 1..200)) {
            let values: Vec<u32> = values.into_iter().map(|value| u32::from(value) & ((1 << width) - 1)).collect();
            let mut out = Vec::new();
            put(&mut out, width, values.iter().map(|value| (*value, 1)));
            put_packed(&mut out, width, &values);
            let mut input = Input(&out);
            prop_assert_eq!(get(&mut input, width, values.len()), Ok(values.clone()));
            prop_assert_eq!(get(&mut input, width, values.len()), Ok(values));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn wide_numbers_come_back(width in 1..65u32, values in prop::collection::vec(any::<u64>(), 1..50)) {
            let mask = u64::MAX >> (64 - width);
            let mut out = vec![0; (values.len() * width as usize).div_ceil(8)];
            pack(&mut out, width, values.iter().map(|value| value & mask));
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(unpack(&out, width, index), value & mask);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), width in 0..33u32) {
            let _ = get(&mut Input(&bytes), width, 100);
        }
    }
}
