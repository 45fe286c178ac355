//! Checksums of line protocols and of Modbus RTU.

/// The parameters of a cyclic redundancy check, with the names of the usual CRC catalogues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc {
    /// Bits of the result, 8, 16 or 32.
    pub bits: u8,
    /// The polynomial without its highest term.
    pub poly: u32,
    /// Initial value of the register.
    pub init: u32,
    /// Input and result bits are reflected: the lowest bit comes first.
    pub reflected: bool,
    /// The final register is combined with this value by exclusive or.
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

    /// Computes the CRC of `bytes`.
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

/// The exclusive or of all bytes.
#[must_use]
pub fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Modbus ASCII's check: the two's complement of the sum.
#[must_use]
pub fn lrc(bytes: &[u8]) -> u8 {
    (sum(bytes) as u8).wrapping_neg()
}

/// Adler-32 with a start value, normally 1.
#[must_use]
pub fn adler32(bytes: &[u8], init: u32) -> u32 {
    let step = |(a, b): (u32, u32), byte: &u8| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    };
    let (a, b) = bytes.iter().fold((init & 0xffff, init >> 16), step);
    b << 16 | a
}

/// The sum of all hexadecimal digits. Ignores other bytes.
fn hex_sum(bytes: &[u8]) -> u32 {
    bytes.iter().filter_map(|byte| char::from(*byte).to_digit(16)).sum()
}

/// The longitudinal check over bytes written as pairs of hexadecimal digits.
fn hex_lrc(bytes: &[u8]) -> u32 {
    let (mut sum, mut high) = (0u32, 0);
    for (at, byte) in bytes.iter().enumerate() {
        let Some(digit) = char::from(*byte).to_digit(16) else { continue };
        // A digit is a high or low nibble by the parity of the number of bytes after it.
        if (bytes.len() - 1 - at) % 2 == 1 {
            high = digit << 4;
        } else {
            sum = sum.wrapping_add(digit + std::mem::take(&mut high));
        }
    }
    sum.wrapping_neg() & 0xff
}

/// The algorithm of a named checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sum,
    Xor,
    Xor7,
    Crc(Crc),
    Adler,
    HexSum,
    Cpi,
    Leybold,
    Brooks,
    Lrc,
    HexLrc,
    Bits,
    Spellman,
}

/// A checksum, selected by its name in protocol files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    algorithm: Algorithm,
    init: u32,
    xor_out: u32,
    bytes: u8,
}

const CRC_CCITT8: Crc = Crc { bits: 8, poly: 0x31, init: 0, reflected: true, xor_out: 0 };

/// The known checksums: name, algorithm, initial value, final exclusive or, result length in bytes.
const NAMED: &[(&str, Algorithm, u32, u32, u8)] = &[
    ("sum", Algorithm::Sum, 0, 0, 1),
    ("sum8", Algorithm::Sum, 0, 0, 1),
    ("sum16", Algorithm::Sum, 0, 0, 2),
    ("sum32", Algorithm::Sum, 0, 0, 4),
    ("xor", Algorithm::Xor, 0, 0, 1),
    ("xor8", Algorithm::Xor, 0, 0, 1),
    ("xor8ff", Algorithm::Xor, 0, 0xff, 1),
    ("xor7", Algorithm::Xor7, 0, 0, 1),
    ("crc8", Algorithm::Crc(Crc::CRC8), 0, 0, 1),
    ("ccitt8", Algorithm::Crc(CRC_CCITT8), 0, 0, 1),
    ("crc16", Algorithm::Crc(Crc::CRC16), 0, 0, 2),
    ("crc16r", Algorithm::Crc(Crc::CRC16_REFLECTED), 0, 0, 2),
    ("modbus", Algorithm::Crc(Crc::MODBUS), 0xffff, 0, 2),
    ("ccitt16", Algorithm::Crc(Crc::CCITT16), 0xffff, 0, 2),
    ("ccitt16a", Algorithm::Crc(Crc::CCITT16), 0x1d0f, 0, 2),
    ("ccitt16x", Algorithm::Crc(Crc::XMODEM), 0, 0, 2),
    ("crc16c", Algorithm::Crc(Crc::XMODEM), 0, 0, 2),
    ("xmodem", Algorithm::Crc(Crc::XMODEM), 0, 0, 2),
    ("crc32", Algorithm::Crc(Crc::CRC32), u32::MAX, u32::MAX, 4),
    ("crc32r", Algorithm::Crc(Crc::CRC32_REFLECTED), u32::MAX, u32::MAX, 4),
    ("jamcrc", Algorithm::Crc(Crc::CRC32_REFLECTED), u32::MAX, 0, 4),
    ("adler32", Algorithm::Adler, 1, 0, 4),
    ("hexsum8", Algorithm::HexSum, 0, 0, 1),
    ("cpi", Algorithm::Cpi, 0, 0, 1),
    ("leybold", Algorithm::Leybold, 0, 0, 1),
    ("brkscryo", Algorithm::Brooks, 0, 0, 1),
    ("lrc", Algorithm::Lrc, 0, 0, 1),
    ("hexlrc", Algorithm::HexLrc, 0, 0, 1),
    ("bitsum", Algorithm::Bits, 0, 0, 1),
    ("bitsum8", Algorithm::Bits, 0, 0, 1),
    ("bitsum16", Algorithm::Bits, 0, 0, 2),
    ("bitsum32", Algorithm::Bits, 0, 0, 4),
    ("hv_mps", Algorithm::Spellman, 0xff, 0, 1),
];

/// An unknown checksum name. The message lists the known names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "checksum %<{name}>; expected one of {}, with neg or n before it for its negative, not or ~ for its inverse",
    NAMED.iter().map(|known| known.0).collect::<Vec<_>>().join(" ")
)]
pub struct UnknownChecksum {
    /// The name.
    pub name: String,
}

impl Checksum {
    /// Finds a checksum by name. The prefix `neg`, `n` or `-` selects the negative, `not` or `~` the inverse. An abbreviated
    /// name selects the first entry of the list that begins with it. Case does not matter.
    ///
    /// # Errors
    /// No known name begins with `name`. The error lists the known names.
    pub fn named(name: &str) -> Result<Self, UnknownChecksum> {
        let lower = name.to_ascii_lowercase();
        let mut rest = lower.as_str();
        let mut take = |prefixes: [&str; 2]| {
            let stripped = prefixes.into_iter().find_map(|prefix| rest.strip_prefix(prefix));
            rest = stripped.unwrap_or(rest);
            stripped.is_some()
        };
        let (mut negative, inverse) = (take(["neg", "-"]), take(["not", "~"]));
        let known = |name: &str| NAMED.iter().find(|known| !name.is_empty() && known.0.starts_with(name));
        let short = || rest.strip_prefix('n').and_then(known).inspect(|_| negative = true);
        let Some((_, algorithm, init, xor_out, bytes)) = known(rest).or_else(short) else {
            return Err(UnknownChecksum { name: name.to_owned() });
        };
        let flip = if negative { u32::MAX } else { 0 };
        let invert = if inverse { u32::MAX } else { 0 };
        Ok(Self { algorithm: *algorithm, init: init ^ flip, xor_out: xor_out ^ flip ^ invert, bytes: *bytes })
    }

    /// Length of the result in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u8 {
        self.bytes
    }

    /// Computes the checksum of `bytes`.
    #[must_use]
    pub fn of(&self, bytes: &[u8]) -> u32 {
        let init = self.init;
        let value = match self.algorithm {
            Algorithm::Sum => sum(bytes).wrapping_add(init),
            Algorithm::Xor => u32::from(xor(bytes)) ^ init,
            Algorithm::Xor7 => (u32::from(xor(bytes)) ^ init) & 0x7f,
            Algorithm::Crc(crc) => Crc { init, xor_out: 0, ..crc }.of(bytes),
            Algorithm::Adler => adler32(bytes, init),
            Algorithm::HexSum => hex_sum(bytes).wrapping_add(init),
            Algorithm::Cpi => {
                let blanks = (bytes.len() as u32) << 5;
                init.wrapping_sub(blanks).wrapping_add(sum(bytes)) % 95 + 32
            }
            Algorithm::Leybold => match !sum(bytes).wrapping_add(init) & 0xff {
                low @ 0..32 => low + 32,
                value => value,
            },
            Algorithm::Brooks => {
                let sum = bytes.iter().fold(init, |sum, byte| sum.wrapping_add(u32::from(byte & 0x7f)));
                ((sum >> 6 ^ sum) & 0x3f) + 0x30
            }
            Algorithm::Lrc => sum(bytes).wrapping_add(init).wrapping_neg() & 0xff,
            Algorithm::HexLrc => hex_lrc(bytes).wrapping_sub(init) & 0xff,
            Algorithm::Bits => bytes.iter().fold(init, |sum, byte| sum.wrapping_add(byte.count_ones())),
            Algorithm::Spellman => !sum(bytes).wrapping_add(init) & 0x7f | 0x40,
        };
        (value ^ self.xor_out) & (u32::MAX >> (32 - 8 * u32::from(self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_have_the_values_of_the_catalogues() {
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
        assert_eq!((adler32(b"Wikipedia", 1), Crc::MODBUS.of(&[])), (0x11e6_0398, 0xffff));
    }
}
