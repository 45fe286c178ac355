//! Small integers in Parquet's hybrid of runs and bit packing: levels and dictionary indices.

use crate::bits::{pack, unpack};
use crate::bytes::{Bad, Input, put_varint};

/// Writes runs of equal numbers.
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

/// Writes bit-packed numbers, padded with zeros to a multiple of eight.
pub(super) fn put_packed(out: &mut Vec<u8>, width: u32, values: &[u32]) {
    put_varint(out, (values.len().div_ceil(8) as u64) << 1 | 1);
    let begin = out.len();
    out.resize(begin + values.len().div_ceil(8) * width as usize, 0);
    pack(&mut out[begin..], width, values.iter().map(|value| (*value).into()));
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
        fn numbers_survive_a_round_trip(width in 1..17u32, values in prop::collection::vec(any::<u16>(), 1..200)) {
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
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), width in 0..33u32) {
            let _ = get(&mut Input(&bytes), width, 100);
        }
    }
}
