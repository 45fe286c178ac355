//! Conversions as they are written.

use super::convert::{Conversion, Format, Sum, Value};
use crate::checksum;

impl Format {
    /// Writes a value; `None` where it does not fit.
    pub(super) fn print(&self, value: &Value, out: &mut Vec<u8>) -> Option<()> {
        let directive = &self.directive;
        match (&self.conversion, value) {
            (Conversion::Float(letter), Value::Float(value)) => directive.float(out, *value, *letter),
            (Conversion::Int(b'd' | b'i'), Value::Int(value)) => directive.signed(out, *value),
            (Conversion::Int(letter), Value::Int(value)) => {
                // Negative numbers are written with the 32 bits that a record's raw value has, hexadecimal ones with as
                // many digits as there is room for.
                let mut bits =
                    if *value < 0 && *value >= i64::from(i32::MIN) { *value as u32 as u64 } else { *value as u64 };
                if matches!(letter, b'x' | b'X') && (1..16).contains(&directive.width) {
                    bits &= (1 << (4 * directive.width)) - 1;
                }
                directive.unsigned(out, bits, *letter);
            }
            (Conversion::Text | Conversion::Set(_), Value::Text(text)) => directive.text(out, text),
            (Conversion::Chars, Value::Text(text)) => directive.text(out, text),
            (Conversion::Chars, Value::Int(value)) => out.push(u8::try_from(*value).ok()?),
            (Conversion::Enum(choices), Value::Enum(value)) => {
                let known = choices.known.iter().find(|(_, number)| number == value).map(|(text, _)| text);
                out.extend_from_slice(known.or(choices.otherwise.as_ref())?);
            }
            (Conversion::Bits(digits), Value::Int(value)) => {
                let needed = 64 - (*value as u64).leading_zeros() as usize;
                let count = directive.precision.unwrap_or(needed).clamp(1, 64);
                let digit = |bit: usize| digits[(*value as u64 >> bit & 1) as usize];
                let fill = vec![if directive.zero { digits[0] } else { b' ' }; directive.width.saturating_sub(count)];
                // `#`: the lowest bit comes first, and what is filled with zeros are the highest ones.
                let text: Vec<u8> = if directive.alternate {
                    (0..count).map(digit).collect()
                } else {
                    (0..count).rev().map(digit).collect()
                };
                let behind = directive.left || directive.alternate && directive.zero;
                if behind { out.extend(text.into_iter().chain(fill)) } else { out.extend(fill.into_iter().chain(text)) }
            }
            (Conversion::Raw, Value::Int(value)) => {
                let count = directive.precision.unwrap_or(1).clamp(1, 8);
                let width = directive.width.clamp(count, 8);
                let bytes = value.to_be_bytes();
                let filled: Vec<u8> = (0..width)
                    .rev()
                    .map(|at| {
                        if at < count {
                            bytes[7 - at]
                        } else if *value < 0 && !directive.zero {
                            0xff
                        } else {
                            0
                        }
                    })
                    .collect();
                if directive.alternate { out.extend(filled.iter().rev()) } else { out.extend(filled) }
            }
            (Conversion::RawFloat, Value::Float(value)) => {
                let mut bytes = match directive.width {
                    8 => value.to_be_bytes().to_vec(),
                    _ => (*value as f32).to_be_bytes().to_vec(),
                };
                if directive.alternate {
                    bytes.reverse();
                }
                out.extend(bytes);
            }
            (Conversion::Bcd, Value::Int(value)) => out.extend(self.packed(*value)),
            _ => return None,
        }
        Some(())
    }

    /// A number's last digits, as many as the precision says, two to a byte, filled with zero bytes.
    fn packed(&self, value: i64) -> Vec<u8> {
        let directive = &self.directive;
        let digits = directive.precision.unwrap_or(16).clamp(1, 20);
        let signed = directive.plus || directive.blank;
        let len = directive.width.clamp((digits + usize::from(signed)).div_ceil(2), 64);
        let mut rest = if signed { value.unsigned_abs() } else { value as u64 };
        let mut bytes = vec![0u8; len];
        for digit in 0..digits {
            // Lowest first.
            bytes[digit / 2] |= ((rest % 10) as u8) << (4 * (digit % 2));
            rest /= 10;
        }
        if signed && value < 0 {
            bytes[len - 1] |= 0xf0;
        }
        if !directive.alternate {
            bytes.reverse();
        }
        bytes
    }

    /// Writes what needs no value: a checksum. Nothing else is written without one.
    pub(super) fn print_own(&self, out: &mut Vec<u8>) -> Option<()> {
        let Conversion::Sum(sum) = self.conversion else { return Some(()) };
        let bytes = self.summed(sum, out, out.len())?;
        out.extend(bytes);
        Some(())
    }

    /// The checksum of a message up to `at`, as it stands on the line. Width and precision leave bytes out at the
    /// beginning and at the end.
    pub(super) fn summed(&self, sum: Sum, line: &[u8], at: usize) -> Option<Vec<u8>> {
        let end = at.checked_sub(self.directive.precision.unwrap_or(0))?;
        let body = line.get(self.directive.width..end)?;
        let (value, width) = match sum {
            Sum::Plain(width) => (checksum::sum(body), width),
            Sum::Negative(width) => (checksum::sum(body).wrapping_neg(), width),
            Sum::Xor => (checksum::xor(body).into(), 1),
            Sum::Crc(crc) => (crc.of(body), crc.bits / 8),
            Sum::Adler => (checksum::adler32(body), 4),
        };
        let all = value.to_be_bytes();
        let mut bytes = all[4 - usize::from(width)..].to_vec();
        if self.directive.alternate {
            bytes.reverse();
        }
        if !self.directive.zero {
            return Some(bytes);
        }
        Some(bytes.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect())
    }
}
