//! Number formats in registers, with the names of the EPICS modbus module.

use std::fmt;
use std::str::FromStr;

/// A number read from registers or written to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Number {
    /// Converts to floating point. Whole numbers beyond 2⁵³ are rounded.
    #[must_use]
    pub const fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// Converts to a whole number: rounded, and clamped to 64 bits.
    #[must_use]
    pub fn to_i64(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => value.round() as i64,
        }
    }
}

/// The type of a number in registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataType {
    /// 16 bits, unsigned.
    #[default]
    Uint16,
    /// 16 bits, two's complement.
    Int16,
    /// 16 bits, the highest one the sign.
    Int16Sm,
    /// Four decimal digits.
    BcdUnsigned,
    /// Three decimal digits and a sign.
    BcdSigned,
    /// Several registers.
    Wide {
        /// The type of the number.
        kind: Wide,
        /// The first register is the most significant one.
        big_endian: bool,
        /// The bytes in each register are swapped.
        swapped: bool,
    },
}

/// The type of a number that occupies several registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the Rust type of its name")]
pub enum Wide {
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

const WIDE: [(&str, Wide); 6] = [
    ("INT32", Wide::I32),
    ("UINT32", Wide::U32),
    ("INT64", Wide::I64),
    ("UINT64", Wide::U64),
    ("FLOAT32", Wide::F32),
    ("FLOAT64", Wide::F64),
];

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uint16 => f.write_str("UINT16"),
            Self::Int16 => f.write_str("INT16"),
            Self::Int16Sm => f.write_str("INT16SM"),
            Self::BcdUnsigned => f.write_str("BCD_UNSIGNED"),
            Self::BcdSigned => f.write_str("BCD_SIGNED"),
            Self::Wide { kind, big_endian, swapped } => {
                let name = WIDE.iter().find(|(_, known)| known == kind).map_or("", |(name, _)| name);
                let order = if *big_endian { "BE" } else { "LE" };
                write!(f, "{name}_{order}{}", if *swapped { "_BS" } else { "" })
            }
        }
    }
}

/// An unknown data type name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "data type \"{0}\"; expected UINT16, INT16, INT16SM, BCD_UNSIGNED, BCD_SIGNED, or one of INT32 UINT32 INT64 UINT64 \
     FLOAT32 FLOAT64 with _LE, _BE, _LE_BS or _BE_BS"
)]
pub struct NoDataType(String);

impl NoDataType {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl FromStr for DataType {
    type Err = NoDataType;

    fn from_str(text: &str) -> Result<Self, NoDataType> {
        let plain = [Self::Uint16, Self::Int16, Self::Int16Sm, Self::BcdUnsigned, Self::BcdSigned];
        if let Some(found) = plain.into_iter().find(|plain| plain.to_string() == text) {
            return Ok(found);
        }
        let (name, order) = text.split_once('_').unwrap_or((text, ""));
        let kind = WIDE.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        let (big_endian, swapped) = match order {
            "LE" => (false, false),
            "BE" => (true, false),
            "LE_BS" => (false, true),
            "BE_BS" => (true, true),
            _ => return Err(NoDataType(text.to_owned())),
        };
        let kind = kind.ok_or_else(|| NoDataType(text.to_owned()))?;
        Ok(Self::Wide { kind, big_endian, swapped })
    }
}

impl DataType {
    /// Number of registers that one number occupies.
    #[must_use]
    pub const fn registers(self) -> usize {
        match self {
            Self::Wide { kind: Wide::I64 | Wide::U64 | Wide::F64, .. } => 4,
            Self::Wide { .. } => 2,
            _ => 1,
        }
    }

    /// Reads a number from the first registers. Returns `None` if there are too few registers or if a BCD digit exceeds 9.
    /// Unsigned numbers of more than 63 bits are returned as floating point.
    #[must_use]
    pub fn decode(self, registers: &[u16]) -> Option<Number> {
        let registers = registers.get(..self.registers())?;
        let first = registers[0];
        let signed = |magnitude: i64| if first & 0x8000 != 0 { -magnitude } else { magnitude };
        Some(match self {
            Self::Uint16 => Number::Int(first.into()),
            Self::Int16 => Number::Int((first as i16).into()),
            Self::Int16Sm => Number::Int(signed((first & 0x7fff).into())),
            Self::BcdUnsigned => Number::Int(from_bcd(first)?),
            Self::BcdSigned => Number::Int(signed(from_bcd(first & 0x7fff)?)),
            Self::Wide { kind, big_endian, swapped } => {
                let word = |value: u16| u64::from(if swapped { value.swap_bytes() } else { value });
                let bits = if big_endian {
                    registers.iter().fold(0, |bits, value| bits << 16 | word(*value))
                } else {
                    registers.iter().rev().fold(0, |bits, value| bits << 16 | word(*value))
                };
                match kind {
                    Wide::I32 => Number::Int((bits as i32).into()),
                    Wide::U32 => Number::Int((bits as u32).into()),
                    Wide::I64 => Number::Int(bits as i64),
                    Wide::U64 => i64::try_from(bits).map_or(Number::Float(bits as f64), Number::Int),
                    Wide::F32 => Number::Float(f32::from_bits(bits as u32).into()),
                    Wide::F64 => Number::Float(f64::from_bits(bits)),
                }
            }
        })
    }

    /// Appends the registers of a number. Returns `false` for an integer type that cannot hold the number, and appends nothing.
    #[must_use]
    pub fn encode(self, number: Number, out: &mut Vec<u16>) -> bool {
        let whole = number.to_i64();
        let (magnitude, sign) = (whole.unsigned_abs(), u16::from(whole < 0) << 15);
        let finite = matches!(number, Number::Int(_)) || number.to_f64().is_finite();
        let one = match self {
            Self::Uint16 => u16::try_from(whole).ok(),
            Self::Int16 => i16::try_from(whole).ok().map(|value| value as u16),
            Self::Int16Sm => u16::try_from(magnitude).ok().filter(|value| *value < 0x8000).map(|value| value | sign),
            Self::BcdUnsigned => u16::try_from(whole).ok().and_then(|value| to_bcd(value, 9999)),
            Self::BcdSigned => {
                u16::try_from(magnitude).ok().and_then(|value| to_bcd(value, 7999)).map(|value| value | sign)
            }
            Self::Wide { kind, big_endian, swapped } => {
                let bits = match kind {
                    Wide::I32 => i32::try_from(whole).ok().map(|value| u64::from(value as u32)),
                    Wide::U32 => u32::try_from(whole).ok().map(u64::from),
                    Wide::I64 => Some(whole as u64),
                    Wide::U64 => u64::try_from(whole).ok(),
                    Wide::F32 => Some(u64::from((number.to_f64() as f32).to_bits())),
                    Wide::F64 => Some(number.to_f64().to_bits()),
                };
                let float = matches!(kind, Wide::F32 | Wide::F64);
                let Some(bits) = bits.filter(|_| float || finite) else { return false };
                let count = self.registers();
                out.extend((0..count).map(|at| {
                    let shift = 16 * if big_endian { count - 1 - at } else { at };
                    let value = (bits >> shift) as u16;
                    if swapped { value.swap_bytes() } else { value }
                }));
                return true;
            }
        };
        out.extend(one.filter(|_| finite));
        one.is_some() && finite
    }
}

fn from_bcd(word: u16) -> Option<i64> {
    (0..4).rev().try_fold(0, |value, digit| {
        let digit = i64::from(word >> (4 * digit) & 0xf);
        (digit <= 9).then_some(value * 10 + digit)
    })
}

fn to_bcd(value: u16, max: u16) -> Option<u16> {
    let digits = [1000, 100, 10, 1].iter().fold(0, |word, unit| word << 4 | (value / unit % 10));
    (value <= max).then_some(digits)
}
