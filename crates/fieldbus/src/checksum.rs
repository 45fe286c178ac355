//! Checksums of line protocols and of Modbus RTU.

/// The parameters of a cyclic redundancy check, in the usual catalogue's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc {
    /// Bits of the result, 8, 16 or 32.
    pub bits: u8,
    /// The polynomial without its highest term.
    pub poly: u32,
    /// What the register holds at the start.
    pub init: u32,
    /// Whether bits are taken and given lowest first.
    pub reflected: bool,
    /// What the result is combined with by exclusive or.
    pub xor_out: u32,
}

impl Crc {
    /// CRC-16/MODBUS.
    pub const MODBUS: Self = Self { bits: 16, poly: 0x8005, init: 0xffff, reflected: true, xor_out: 0 };
    /// CRC-8.
    pub const CRC8: Self = Self { bits: 8, poly: 0x07, init: 0, reflected: false, xor_out: 0 };
    /// CRC-16/ARC.
    pub const CRC16_REFLECTED: Self = Self { bits: 16, poly: 0x8005, init: 0, reflected: true, xor_out: 0 };
    /// CRC-16 as above, highest bit first.
    pub const CRC16: Self = Self { bits: 16, poly: 0x8005, init: 0, reflected: false, xor_out: 0 };
    /// CRC-16 with CCITT's polynomial and all ones at the start.
    pub const CCITT16: Self = Self { bits: 16, poly: 0x1021, init: 0xffff, reflected: false, xor_out: 0 };
    /// CRC-16/XMODEM.
    pub const XMODEM: Self = Self { bits: 16, poly: 0x1021, init: 0, reflected: false, xor_out: 0 };
    /// CRC-32 of Ethernet and zip, lowest bit first.
    pub const CRC32_REFLECTED: Self =
        Self { bits: 32, poly: 0x04c1_1db7, init: u32::MAX, reflected: true, xor_out: u32::MAX };
    /// CRC-32, highest bit first.
    pub const CRC32: Self = Self { bits: 32, poly: 0x04c1_1db7, init: u32::MAX, reflected: false, xor_out: u32::MAX };

    /// The check of these bytes.
    #[must_use]
    pub fn of(&self, bytes: &[u8]) -> u32 {
        let mask = u32::MAX >> (32 - u32::from(self.bits));
        let top = 1u32 << (self.bits - 1);
        let mut register = self.init & mask;
        for byte in bytes {
            let byte = if self.reflected { byte.reverse_bits() } else { *byte };
            register ^= u32::from(byte) << (self.bits - 8);
            for _ in 0..8 {
                let carry = register & top != 0;
                register = (register << 1) & mask;
                if carry {
                    register ^= self.poly;
                }
            }
        }
        if self.reflected {
            register = register.reverse_bits() >> (32 - u32::from(self.bits));
        }
        (register ^ self.xor_out) & mask
    }
}

/// The sum of all bytes.
#[must_use]
pub fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}

/// All bytes by exclusive or.
#[must_use]
pub fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Modbus ASCII's check: the two's complement of the sum.
#[must_use]
pub fn lrc(bytes: &[u8]) -> u8 {
    (sum(bytes) as u8).wrapping_neg()
}

/// Adler-32.
#[must_use]
pub fn adler32(bytes: &[u8]) -> u32 {
    let step = |(a, b): (u32, u32), byte: &u8| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_have_the_values_of_the_catalogues() {
        let digits = b"123456789";
        let crcs = [
            (Crc::MODBUS, 0x4b37),
            (Crc::CRC8, 0xf4),
            (Crc::CRC16_REFLECTED, 0xbb3d),
            (Crc::CRC16, 0xfee8),
            (Crc::CCITT16, 0x29b1),
            (Crc::XMODEM, 0x31c3),
            (Crc::CRC32_REFLECTED, 0xcbf4_3926),
            (Crc::CRC32, 0xfc89_1918),
        ];
        for (crc, expected) in crcs {
            assert_eq!(crc.of(digits), expected, "{crc:?}");
        }
        assert_eq!((sum(digits), xor(digits), lrc(digits)), (0x1dd, 0x31, 0x23));
        assert_eq!((adler32(b"Wikipedia"), Crc::MODBUS.of(&[])), (0x11e6_0398, 0xffff));
    }
}
