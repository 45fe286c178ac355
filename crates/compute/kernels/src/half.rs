//! Half-precision numbers, for storage.

/// An IEEE 754 number of 16 bits: 11 bits of precision, range 6.1e-5 to 65504, with less precision down to 6.0e-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// Difference between the exponent biases of the two formats, as a factor.
pub(crate) const REBIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);

impl F16 {
    /// Rounds to the nearest half-precision number, ties to even. Infinite from 65520 on.
    #[must_use]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let rounded = if magnitude > f32::INFINITY.to_bits() {
            0x7e00
        } else if magnitude >= 65536f32.to_bits() {
            0x7c00
        } else if magnitude < 0x3880_0000 {
            // Below 2^-14 the spacing is 2^-24, the same as between 0.5 and 1, so the addition rounds correctly.
            (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
        } else {
            (magnitude + 0xfff + (magnitude >> 13 & 1) - (112 << 23)) >> 13
        };
        Self((bits >> 16 & 0x8000) as u16 | rounded as u16)
    }

    /// Converts to single precision, exactly.
    #[must_use]
    pub fn to_f32(self) -> f32 {
        let bits = u32::from(self.0);
        let magnitude = (f32::from_bits((bits & 0x7fff) << 13) * REBIAS).to_bits();
        let unbounded = if bits & 0x7c00 == 0x7c00 { f32::INFINITY.to_bits() } else { 0 };
        f32::from_bits(magnitude | unbounded | (bits & 0x8000) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_precision_number_survives_conversion_to_single_precision() {
        for bits in 0..=u16::MAX {
            let (number, back) = (F16(bits).to_f32(), F16::from_f32(F16(bits).to_f32()));
            assert!(back.0 == bits || number.is_nan() && back.to_f32().is_nan(), "{bits:#x}: {number} {back:?}");
        }
    }

    #[test]
    fn single_precision_is_rounded_to_the_nearest_and_to_even_between_two() {
        for bits in 0..0x7bffu16 {
            let (low, high) = (F16(bits).to_f32(), F16(bits + 1).to_f32());
            let middle = (low + high) / 2.0;
            let even = bits + (bits & 1);
            assert_eq!(F16::from_f32(middle).0, even, "{middle}");
            assert_eq!(F16::from_f32(f32::from_bits(middle.to_bits() - 1)).0, bits, "just below {middle}");
            assert_eq!(F16::from_f32(-f32::from_bits(middle.to_bits() + 1)).0, 0x8000 | (bits + 1));
        }
        assert_eq!(F16::from_f32(65519.0).0, 0x7bff);
        assert_eq!(F16::from_f32(65520.0).0, 0x7c00);
        assert_eq!(F16::from_f32(f32::NEG_INFINITY).0, 0xfc00);
    }
}
