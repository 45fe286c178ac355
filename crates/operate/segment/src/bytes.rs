//! Variable-length numbers, and a bounds-checked reader.

use std::fmt;

/// Reason why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The bytes end too early.
    Short,
    /// A number has more than 64 bits, or a run exceeds its container.
    Number,
    /// Unknown type.
    Kind(u8),
    /// Too many items.
    Count {
        /// Number found.
        found: u64,
        /// Maximum number.
        max: u64,
    },
    /// A text that is not UTF-8.
    Text,
    /// Unread bytes remain.
    Rest,
    /// The checksum differs.
    Sum,
    /// A page uses a form that this crate does not write.
    Page,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the bytes end too early"),
            Self::Number => f.write_str("a number or a run is too long"),
            Self::Kind(code) => write!(f, "there is no type {code}"),
            Self::Count { found, max } => write!(f, "found {found} of them, expected {max} at most"),
            Self::Text => f.write_str("a name is not UTF-8"),
            Self::Rest => f.write_str("bytes are left over"),
            Self::Sum => f.write_str("its checksum is another"),
            Self::Page => f.write_str("a page is in another form than is written here"),
        }
    }
}

impl std::error::Error for Bad {}

/// The bytes that remain to be read.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Bad::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a length (varint), then that many bytes.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Bad> {
        let len = self.varint()?;
        self.take(usize::try_from(len).map_err(|_| Bad::Short)?)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Bad> {
        std::str::from_utf8(self.sized()?).map_err(|_| Bad::Text)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Bad::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Bad> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Bad> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Bad> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Bad> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, Bad> {
        self.array().map(f64::from_le_bytes)
    }

    /// Reads a varint. Most have one byte, or fit into 8 bytes that are decoded as one word.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Bad> {
        match self.0 {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.0 = rest;
                return Ok(u64::from(*byte));
            }
            _ => {}
        }
        let Some((word, _)) = self.0.split_first_chunk::<8>() else { return self.varint_by_byte() };
        let word = u64::from_le_bytes(*word);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            return self.varint_by_byte();
        }
        let bits = ends.trailing_zeros() + 1;
        self.0 = &self.0[bits as usize / 8..];
        // Join the seven bits of each byte: first pairs, then fours, then eights.
        let x = word & (u64::MAX >> (64 - bits)) & 0x7F7F_7F7F_7F7F_7F7F;
        let x = (x & 0x007F_007F_007F_007F) | (x & 0x7F00_7F00_7F00_7F00) >> 1;
        let x = (x & 0x0000_3FFF_0000_3FFF) | (x & 0x3FFF_0000_3FFF_0000) >> 2;
        Ok((x & 0x0000_0000_0FFF_FFFF) | (x & 0x0FFF_FFFF_0000_0000) >> 4)
    }

    fn varint_by_byte(&mut self) -> Result<u64, Bad> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return Err(Bad::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Bad::Number)
    }

    #[inline]
    pub(crate) fn zigzag(&mut self) -> Result<i64, Bad> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub(crate) fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

pub(crate) fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive_a_round_trip(value: u64, signed: i64, shift in 0..64u32) {
            let mut out = Vec::new();
            put_varint(&mut out, value >> shift);
            put_zigzag(&mut out, signed);
            put_zigzag(&mut out, signed >> shift);
            let mut input = Input(&out);
            prop_assert_eq!(input.varint(), Ok(value >> shift));
            prop_assert_eq!(input.zigzag(), Ok(signed));
            prop_assert_eq!(input.zigzag(), Ok(signed >> shift));
            prop_assert!(input.is_empty());
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(Input(&[0xFF; 9]).varint(), Err(Bad::Short));
        assert_eq!(Input(&[0xFF; 12]).varint(), Err(Bad::Number));
        assert_eq!(Input(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]).varint(), Err(Bad::Number));
    }
}
