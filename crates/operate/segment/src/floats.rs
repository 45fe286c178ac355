//! Encoding of floating-point values. The shortest of four encodings is used:
//! - plain;
//! - changes: the bytes that differ from the previous value;
//! - decimal: if all values have few decimals, as readings of most instruments do, integers scaled by a power of ten;
//! - bit-packed: differences of those integers, or the values' bits without common trailing zeros.

use crate::bytes::{Bad, Input, put_varint};
use crate::{bits, ints};

/// Encoding of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatEncoding {
    Plain = 0,
    Changes = 1,
    Decimal = 2,
    Packed = 3,
}

impl FloatEncoding {
    pub(crate) const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Plain),
            1 => Some(Self::Changes),
            2 => Some(Self::Decimal),
            3 => Some(Self::Packed),
            _ => None,
        }
    }
}

/// Single or double precision.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Four = 4,
    Eight = 8,
}

/// Powers of ten by which decimals may be scaled.
const TENS: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// Integers up to this value are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Width {
    fn to_f64(self, bits: u64) -> f64 {
        match self {
            Self::Four => f64::from(f32::from_bits(bits as u32)),
            Self::Eight => f64::from_bits(bits),
        }
    }

    fn to_bits(self, value: f64) -> u64 {
        match self {
            Self::Four => u64::from((value as f32).to_bits()),
            Self::Eight => value.to_bits(),
        }
    }
}

/// Minimum number of values for trying the bit-packed encoding.
const PACKED_FROM: usize = 16;

/// Flag in place of the exponent: the bits of the values are packed, not scaled integers.
const BITS: u8 = 0x80;

/// Writes values in the shortest encoding.
pub(crate) fn put(out: &mut Vec<u8>, width: Width, bits: &[u64]) -> FloatEncoding {
    let begin = out.len();
    let mut best = (FloatEncoding::Plain, bits.len() * width as usize);
    let wholes = wholes(width, bits);
    if let Some((tens, wholes)) = &wholes {
        out.push(*tens);
        ints::put_deltas(out, wholes.iter().copied());
        let len = out.len() - begin;
        if len < best.1 {
            best = (FloatEncoding::Decimal, len);
        } else {
            out.truncate(begin);
        }
    }
    if wholes.is_none() || best.1 >= bits.len() * 2 {
        let changes = out.len();
        put_changes(out, bits);
        let len = out.len() - changes;
        if len < best.1 {
            best = (FloatEncoding::Changes, len);
            out.drain(begin..changes);
        } else {
            out.truncate(changes);
        }
    }
    // For mostly equal values, runs are shorter.
    if bits.len() >= PACKED_FROM && best.1 * 4 > bits.len() {
        let (head, packed) = match wholes {
            Some((tens, wholes)) => (tens, steps(&wholes)),
            None => frame(bits),
        };
        if 1 + bits::len(&packed) < best.1 {
            out.truncate(begin);
            out.push(head);
            bits::put(out, &packed);
            return FloatEncoding::Packed;
        }
    }
    if best.0 == FloatEncoding::Plain {
        bits.iter().for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()[..width as usize]));
    }
    best.0
}

/// Differences of consecutive integers.
fn steps(wholes: &[i64]) -> Vec<i64> {
    let mut before = 0i64;
    let step = |whole: &i64| whole.wrapping_sub(std::mem::replace(&mut before, *whole));
    wholes.iter().map(step).collect()
}

/// Removes the trailing zero bits common to all values. Returns their number with [`BITS`] set.
fn frame(bits: &[u64]) -> (u8, Vec<i64>) {
    let zeros = bits.iter().fold(0, |all, bits| all | bits).trailing_zeros() % 64;
    (BITS | zeros as u8, bits.iter().map(|bits| (*bits >> zeros) as i64).collect())
}

/// Reads `count` values.
pub(crate) fn get(input: &mut Input<'_>, width: Width, way: FloatEncoding, count: usize) -> Result<Vec<u64>, Bad> {
    match way {
        FloatEncoding::Plain => {
            let bytes = input.take(count * width as usize)?;
            Ok(match width {
                Width::Four => {
                    let (words, _) = bytes.as_chunks::<4>();
                    words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).collect()
                }
                Width::Eight => {
                    let (words, _) = bytes.as_chunks::<8>();
                    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
                }
            })
        }
        FloatEncoding::Changes => changes(input, count),
        FloatEncoding::Decimal => {
            let tens = TENS.get(usize::from(input.u8()?)).ok_or(Bad::Number)?;
            let mut values = Vec::with_capacity(count);
            ints::deltas(input, count, |whole| values.push(width.to_bits(whole as f64 / tens)))?;
            Ok(values)
        }
        FloatEncoding::Packed => {
            let head = input.u8()?;
            let mut values = Vec::with_capacity(count);
            if head & BITS != 0 {
                let zeros = u32::from(head & !BITS);
                if zeros >= 64 {
                    return Err(Bad::Number);
                }
                bits::get(input, count, |bits| values.push((bits as u64) << zeros))?;
            } else {
                let tens = TENS.get(usize::from(head)).ok_or(Bad::Number)?;
                let mut whole = 0i64;
                bits::get(input, count, |step| {
                    whole = whole.wrapping_add(step);
                    values.push(width.to_bits(whole as f64 / tens));
                })?;
            }
            Ok(values)
        }
    }
}

/// The values as integers scaled by a power of ten; `None` if that is not exact for all.
fn wholes(width: Width, bits: &[u64]) -> Option<(u8, Vec<i64>)> {
    let whole = |bits: u64, tens: f64| {
        let whole = (width.to_f64(bits) * tens).round_ties_even();
        // Converts through an integer, which has no negative zero.
        (whole.abs() < EXACT && width.to_bits(whole as i64 as f64 / tens) == bits).then_some(whole as i64)
    };
    let mut exponent = 0;
    for value in bits {
        while whole(*value, TENS[exponent]).is_none() {
            exponent += 1;
            if exponent == TENS.len() {
                return None;
            }
        }
    }
    // The power for a later value may not be exact for an earlier one: check all again.
    let tens = TENS[exponent];
    let all = bits.iter().map(|value| whole(*value, tens)).collect::<Option<_>>()?;
    Some((exponent as u8, all))
}

/// For each value that differs from the previous one: number of leading zero bytes of the XOR (4 bits), number of following bytes
/// (4 bits), and these bytes. For equal values: a zero byte and their number.
fn put_changes(out: &mut Vec<u8>, bits: &[u64]) {
    let (mut before, mut same) = (0u64, 0u64);
    let run = |out: &mut Vec<u8>, same: &mut u64| {
        if *same > 0 {
            out.push(0);
            put_varint(out, *same);
            *same = 0;
        }
    };
    for value in bits {
        let change = value ^ before;
        before = *value;
        if change == 0 {
            same += 1;
            continue;
        }
        run(out, &mut same);
        let lead = change.leading_zeros() / 8;
        let trail = change.trailing_zeros() / 8;
        let len = 8 - lead - trail;
        out.push((lead << 4 | len) as u8);
        out.extend_from_slice(&(change >> (8 * trail)).to_le_bytes()[..len as usize]);
    }
    run(out, &mut same);
}

fn changes(input: &mut Input<'_>, count: usize) -> Result<Vec<u64>, Bad> {
    let mut values = Vec::with_capacity(count);
    let mut value = 0u64;
    while values.len() < count {
        let control = input.u8()?;
        if control == 0 {
            let run = input.varint()?;
            if run == 0 || run > (count - values.len()) as u64 {
                return Err(Bad::Number);
            }
            values.resize(values.len() + run as usize, value);
            continue;
        }
        let (lead, len) = (u32::from(control >> 4), u32::from(control & 15));
        if len == 0 || lead + len > 8 {
            return Err(Bad::Number);
        }
        let mut word = [0; 8];
        word[..len as usize].copy_from_slice(input.take(len as usize)?);
        value ^= u64::from_le_bytes(word) << (8 * (8 - lead - len));
        values.push(value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn there_and_back(width: Width, bits: &[u64]) -> (FloatEncoding, usize) {
        let mut out = Vec::new();
        let way = put(&mut out, width, bits);
        let mut input = Input(&out);
        assert_eq!(get(&mut input, width, way, bits.len()).as_deref(), Ok(bits));
        assert!(input.is_empty());
        (way, out.len())
    }

    #[test]
    fn each_series_is_stored_in_its_smallest_encoding() {
        let of = |value: fn(u64) -> f64| -> Vec<u64> { (0..1000).map(|k| value(k).to_bits()).collect() };
        let temperature = of(|k| (2_000 + (k * 7 % 11)) as f64 / 100.0);
        assert_eq!(there_and_back(Width::Eight, &temperature), (FloatEncoding::Packed, 593));
        let converter = of(|k| f64::from((k * 7_919 % 401) as u16 + 20_000) * 10.0 / 32_768.0);
        assert_eq!(there_and_back(Width::Eight, &converter), (FloatEncoding::Packed, 1_469));
        let set_point = of(|k| if k < 400 { 1.0 / 3.0 } else { 2.0 / 3.0 });
        assert_eq!(there_and_back(Width::Eight, &set_point), (FloatEncoding::Changes, 17));
        let noise = of(|k| (k as f64 * 12.9898).sin() * 43758.5453);
        assert_eq!(there_and_back(Width::Eight, &noise), (FloatEncoding::Plain, 8_000));
        let near = of(|k| 100.0 + (k as f64 * 12.9898).sin().abs() * 1e-4);
        assert_eq!(there_and_back(Width::Eight, &near), (FloatEncoding::Packed, 4_308));
    }

    #[test]
    fn zero_keeps_its_sign_and_nan_its_bits() {
        let odd = [0.0, -0.0, f64::NAN, f64::INFINITY, -f64::NAN, f64::MIN_POSITIVE, f64::MAX].map(f64::to_bits);
        there_and_back(Width::Eight, &odd);
        there_and_back(Width::Eight, &[f64::NAN.to_bits() | 1]);
    }

    proptest! {
        #[test]
        fn doubles_survive_a_round_trip(bits in prop::collection::vec(prop_oneof![any::<u64>(), any::<i16>().prop_map(|v| (f64::from(v) / 1000.0).to_bits())], 0..100)) {
            there_and_back(Width::Eight, &bits);
        }

        #[test]
        fn singles_survive_a_round_trip(bits in prop::collection::vec(prop_oneof![any::<u32>(), any::<i16>().prop_map(|v| (f32::from(v) / 100.0).to_bits())], 0..100)) {
            let bits: Vec<u64> = bits.into_iter().map(u64::from).collect();
            there_and_back(Width::Four, &bits);
        }
    }
}
