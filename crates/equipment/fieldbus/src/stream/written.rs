//! Writing of values with conversions.

use super::convert::{Conversion, Format, Value};
use crate::checksum::Checksum;
use base::Directive;

/// A number without a sign. A negative number is cut to 32 bits, the size of a record's raw value, if it fits.
const fn unsigned(value: i64) -> u64 {
    if value < 0 && value >= i32::MIN as i64 { value as u32 as u64 } else { value as u64 }
}

impl Format {
    /// Writes a value. Returns `None` if it does not fit the conversion.
    pub(super) fn print(&self, value: &Value, out: &mut Vec<u8>) -> Option<()> {
        let directive = &self.directive;
        match (&self.conversion, value) {
            (Conversion::Float(letter), Value::Float(value)) => directive.float(out, *value, *letter),
            (Conversion::Mantissa, Value::Float(value)) => self.mantissa(*value, out),
            (Conversion::Int(b'd' | b'i'), Value::Int(value)) => directive.signed(out, *value),
            (Conversion::Int(letter), Value::Int(value)) => {
                let mut bits = unsigned(*value);
                // The width limits the number of hexadecimal digits.
                if matches!(letter, b'x' | b'X') && (1..16).contains(&directive.width) {
                    bits &= (1 << (4 * directive.width)) - 1;
                }
                directive.unsigned(out, bits, *letter);
            }
            (Conversion::Text | Conversion::Set(_), Value::Text(text)) => {
                let from = out.len();
                directive.text(out, text);
                let fill = (out.len() - from).saturating_sub(directive.precision.unwrap_or(usize::MAX).min(text.len()));
                if directive.zero {
                    let from = if directive.left { out.len() - fill } else { from };
                    out[from..from + fill].fill(0);
                }
            }
            (Conversion::Chars, Value::Text(text)) => directive.text(out, text),
            (Conversion::Chars, Value::Int(value)) => directive.text(out, &[*value as u8]),
            (Conversion::Enum(choices), Value::Enum(value)) => {
                let known = choices.known.iter().find(|(_, number)| number == value).map(|(text, _)| text);
                out.extend(known.or(choices.otherwise.as_ref())?.iter().flatten());
            }
            (Conversion::Bits(digits), Value::Int(value)) => {
                let bits = unsigned(*value);
                let needed = (64 - bits.leading_zeros() as usize).max(1);
                let count = directive.precision.unwrap_or(needed).clamp(1, 64);
                let mut text: Vec<u8> = (0..count).rev().map(|bit| digits[(bits >> bit & 1) as usize]).collect();
                let mut fill = if directive.zero { digits[0] } else { b' ' };
                // With `#` the lowest bit comes first and the fill is at the other side, next to the highest bits.
                if directive.alternate {
                    text.reverse();
                }
                if directive.alternate != directive.left {
                    fill = b' ';
                }
                let fill = std::iter::repeat_n(fill, directive.width.saturating_sub(count));
                if directive.left { out.extend(text.into_iter().chain(fill)) } else { out.extend(fill.chain(text)) }
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

    /// The last decimal digits of a number, two per byte, padded with zero bytes. The precision is the number of digits.
    fn packed(&self, value: i64) -> Vec<u8> {
        let directive = &self.directive;
        let digits = directive.precision.unwrap_or(16).clamp(1, 20);
        let signed = directive.plus || directive.blank;
        let len = directive.width.clamp((digits + usize::from(signed)).div_ceil(2), 64);
        let mut rest = if signed { value.unsigned_abs() } else { unsigned(value) };
        let mut bytes = vec![0u8; len];
        for digit in 0..digits {
            // Lowest digit first.
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

    /// Writes digits without a point and then the power of ten. The precision is the number of digits.
    fn mantissa(&self, value: f64, out: &mut Vec<u8>) {
        let directive = &self.directive;
        let digits = directive.precision.filter(|digits| *digits > 0).unwrap_or(6).min(40);
        let plain = Directive { precision: Some(digits - 1), ..Directive::default() };
        let mut text = Vec::new();
        plain.float(&mut text, value.abs() / 10f64.powi(digits as i32 - 1), b'e');
        text.retain(|byte| !matches!(byte, b'.' | b'e'));
        let sign = match (value < 0.0, directive.plus, directive.blank) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        text.splice(0..0, sign.bytes());
        Directive { precision: None, ..*directive }.text(out, &text);
    }

    /// Writes a conversion without a value: a checksum or a substitution. Other conversions write nothing.
    pub(super) fn print_own(&self, out: &mut Vec<u8>) {
        match &self.conversion {
            Conversion::Sum(sum) => {
                let bytes = self.summed(sum, out, out.len());
                out.extend(bytes);
            }
            Conversion::Substitute(substitution) => substitution.replace(&self.directive, out, 0),
            _ => {}
        }
    }

    /// The checksum of a message up to `at`, in the form that is sent. Width and precision exclude bytes at the beginning and at
    /// the end.
    pub(super) fn summed(&self, sum: &Checksum, line: &[u8], at: usize) -> Vec<u8> {
        let directive = &self.directive;
        let end = at.saturating_sub(directive.precision.unwrap_or(0));
        let value = sum.of(line.get(directive.width..end).unwrap_or_default());
        let bytes = usize::from(sum.bytes());
        if directive.plus {
            // The number of digits of the maximum value.
            let digits = (bytes + 1) * 25 / 10 - 2;
            return format!("{value:0digits$}").into_bytes();
        }
        let mut raw = value.to_be_bytes()[4 - bytes..].to_vec();
        if directive.alternate {
            raw.reverse();
        }
        match (directive.zero, directive.left) {
            (true, _) => raw.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect(),
            (_, true) => raw.iter().flat_map(|byte| [0x30 | byte >> 4, 0x30 | byte & 15]).collect(),
            _ => raw,
        }
    }
}
