//! Parquet's DELTA_BINARY_PACKED encoding. A block has 128 differences: their minimum, and the excess over it, bit-packed in
//! groups of 32.

use crate::bits::{pack, unpack};
use crate::bytes::{Bad, Input, put_varint, put_zigzag};

const BLOCK: usize = 128;
const MINI: usize = 32;

/// Writes numbers.
pub(super) fn put(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = i64>) {
    [BLOCK, BLOCK / MINI, values.len()].iter().for_each(|number| put_varint(out, *number as u64));
    let mut values = values.peekable();
    let Some(mut before) = values.next() else { return put_zigzag(out, 0) };
    put_zigzag(out, before);
    let mut deltas = Vec::with_capacity(BLOCK);
    while values.peek().is_some() {
        deltas.clear();
        deltas.extend(values.by_ref().take(BLOCK).map(|value| {
            let delta = value.wrapping_sub(before);
            before = value;
            delta
        }));
        let least = deltas.iter().copied().min().unwrap_or(0);
        put_zigzag(out, least);
        let above = |delta: &i64| delta.wrapping_sub(least) as u64;
        let widths = out.len();
        out.resize(widths + BLOCK / MINI, 0);
        for (index, some) in deltas.chunks(MINI).enumerate() {
            let width = 64 - some.iter().map(above).max().unwrap_or(0).leading_zeros();
            out[widths + index] = width as u8;
            let begin = out.len();
            out.resize(begin + MINI * width as usize / 8, 0);
            pack(&mut out[begin..], width, some.iter().map(above));
        }
    }
}

/// Reads `count` numbers that [`put`] wrote.
pub(super) fn get(input: &mut Input<'_>, count: usize) -> Result<Vec<i64>, Bad> {
    let head = [input.varint()?, input.varint()?, input.varint()?];
    if head != [BLOCK as u64, (BLOCK / MINI) as u64, count as u64] {
        return Err(Bad::Number);
    }
    let mut value = input.zigzag()?;
    let mut values = Vec::with_capacity(count);
    if count > 0 {
        values.push(value);
    }
    while values.len() < count {
        let least = input.zigzag()?;
        let widths: [u8; BLOCK / MINI] = input.array()?;
        for width in widths.map(u32::from) {
            let left = (count - values.len()).min(MINI);
            if left == 0 {
                break;
            }
            if width > 64 {
                return Err(Bad::Number);
            }
            let packed = input.take(MINI * width as usize / 8)?;
            values.extend((0..left).map(|index| {
                value = value.wrapping_add(least).wrapping_add(unpack(packed, width, index) as i64);
                value
            }));
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
        fn numbers_survive_a_round_trip(values in prop::collection::vec(prop_oneof![Just(0i64), -3i64..300, any::<i64>()], 0..400)) {
            let mut out = Vec::new();
            put(&mut out, values.iter().copied());
            let mut input = Input(&out);
            prop_assert_eq!(get(&mut input, values.len()), Ok(values));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 0..300usize) {
            let _ = get(&mut Input(&bytes), count);
        }
    }
}
