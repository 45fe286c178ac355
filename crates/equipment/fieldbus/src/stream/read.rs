//! Reading of values with conversions.

use super::convert::{Conversion, Format, Value};
use super::time::Zone;
use crate::checksum::Checksum;

impl Format {
    /// Reads a value at position `at` of a line. Returns the number of bytes consumed and the value.
    pub(super) fn scan(&self, line: &[u8], at: usize, zone: Zone) -> Option<(usize, Option<Value>)> {
        match self.scan_value(line.get(at..)?, zone) {
            Some((len, value)) => (!self.fixed || len == self.directive.width).then_some((len, Some(value))),
            None if self.default => Some((0, Some(self.nothing()))),
            None => None,
        }
    }

    /// Compares the checksum at position `at` of a line. Returns its length in bytes.
    pub(super) fn check(&self, sum: &Checksum, line: &[u8], at: usize) -> Option<usize> {
        let expected = self.summed(sum, line, at);
        let found = line.get(at..)?.get(..expected.len())?;
        let same = if self.directive.zero { found.eq_ignore_ascii_case(&expected) } else { found == expected };
        if same { Some(expected.len()) } else { self.default.then_some(0) }
    }

    /// The value that the flag `?` returns for missing input.
    fn nothing(&self) -> Value {
        match self.conversion {
            Conversion::Float(_) | Conversion::Mantissa | Conversion::RawFloat | Conversion::Time(_) => {
                Value::Float(0.0)
            }
            Conversion::Text | Conversion::Chars | Conversion::Set(_) | Conversion::Regex(_) => Value::Text(Vec::new()),
            Conversion::Enum(_) => Value::Enum(0),
            _ => Value::Int(0),
        }
    }

    fn scan_value(&self, rest: &[u8], zone: Zone) -> Option<(usize, Value)> {
        let directive = &self.directive;
        let skips = match self.conversion {
            Conversion::Float(_) | Conversion::Int(_) | Conversion::Mantissa => true,
            // With the blank flag, white space is part of a text.
            Conversion::Text => !directive.blank,
            Conversion::Bits(digits) => !digits.iter().any(u8::is_ascii_whitespace),
            _ => false,
        };
        let blanks = if skips { rest.iter().take_while(|byte| is_space(**byte)).count() } else { 0 };
        let body = &rest[blanks..];
        let most = match directive.width {
            0 => body.len(),
            // With the blank flag, white space before a number counts towards the width.
            width if directive.blank => body.len().min(width.saturating_sub(blanks)),
            width => body.len().min(width),
        };
        let field = &body[..most];
        let while_in = |inside: &dyn Fn(u8) -> bool| field.iter().take_while(|byte| inside(**byte)).count();
        let (len, value) = match &self.conversion {
            Conversion::Float(_) => {
                let (sign, negative) = self.sign(field)?;
                let (len, value) = float(&field[sign..])?;
                (sign + len, Value::Float(if negative { -value } else { value }))
            }
            Conversion::Int(letter) => {
                let (sign, negative) = self.sign(field)?;
                // Hexadecimal and octal numbers may be negative only with the flag `-`.
                if negative && (*letter == b'u' || !matches!(letter, b'd' | b'i') && !directive.left) {
                    return None;
                }
                let (len, value) = integer(&field[sign..], *letter)?;
                (sign + len, Value::Int(if negative { value.wrapping_neg() } else { value }))
            }
            Conversion::Mantissa => mantissa(field)?,
            Conversion::Regex(regex) => {
                let (len, text) = regex.scan(directive, !self.has_value(), rest)?;
                return Some((len, Value::Text(text)));
            }
            // A text may be empty.
            Conversion::Text => {
                let lead = if self.directive.blank { while_in(&|byte| is_space(byte)) } else { 0 };
                let word = |byte: u8| byte != 0 && (self.directive.alternate || !is_space(byte));
                let len = lead + field[lead..].iter().take_while(|byte| word(**byte)).count();
                return Some((blanks + len, Value::Text(field[..len].to_vec())));
            }
            Conversion::Chars => {
                let field = &body[..body.len().min(self.directive.width.max(1))];
                let len = field.iter().take_while(|byte| **byte != 0).count();
                return Some((len, Value::Text(field[..len].to_vec())));
            }
            Conversion::Set(set) => {
                let len = while_in(&|byte| set[usize::from(byte)]);
                return Some((len, Value::Text(field[..len].to_vec())));
            }
            Conversion::Enum(choices) => {
                // The first match in the order of the protocol.
                let fits = |text: &[Option<u8>]| {
                    body.len() >= text.len()
                        && text.iter().zip(body).all(|(wanted, found)| wanted.is_none_or(|wanted| wanted == *found))
                };
                let (text, number) = choices.known.iter().find(|(text, _)| fits(text))?;
                return Some((text.len(), Value::Enum(*number)));
            }
            Conversion::Bits([zero, one]) => {
                let len = while_in(&|byte| byte == *zero || byte == *one).min(64);
                let add = |bits: u64, byte: &u8| bits << 1 | u64::from(byte == one);
                let digits = &field[..len];
                let bits = match self.directive.alternate {
                    true => digits.iter().rev().fold(0, add),
                    false => digits.iter().fold(0, add),
                };
                (len, Value::Int(bits as i64))
            }
            Conversion::Raw => {
                let len = directive.width.max(1);
                let mut bytes = body.get(..len)?.to_vec();
                if directive.alternate {
                    bytes.reverse();
                }
                // If there are more than 8 bytes, the lowest 8 count.
                let bits = bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
                let shift = 64 - 8 * len.min(8) as u32;
                let value = if directive.zero { bits as i64 } else { ((bits << shift) as i64) >> shift };
                (len, Value::Int(value))
            }
            Conversion::RawFloat => {
                let mut bytes = body.get(..if self.directive.width == 8 { 8 } else { 4 })?.to_vec();
                if self.directive.alternate {
                    bytes.reverse();
                }
                let value = match <[u8; 8]>::try_from(bytes.as_slice()) {
                    Ok(eight) => f64::from_be_bytes(eight),
                    Err(_) => f32::from_be_bytes(bytes.try_into().ok()?).into(),
                };
                return Some((if self.directive.width == 8 { 8 } else { 4 }, Value::Float(value)));
            }
            Conversion::Bcd => self.packed_number(body)?,
            Conversion::Time(time) => {
                let (len, secs) = time.scan(field, zone)?;
                (len, Value::Float(secs))
            }
            Conversion::Sum(_) | Conversion::Substitute(_) => return None,
        };
        (len > 0).then_some((blanks + len, value))
    }

    /// Length of a number's sign with the white space after it, which needs the flag `#`; and whether the sign is a minus.
    fn sign(&self, field: &[u8]) -> Option<(usize, bool)> {
        let sign = usize::from(matches!(field.first(), Some(b'+' | b'-')));
        let blanks = field[sign..].iter().take_while(|byte| is_space(**byte)).count();
        (blanks == 0 || self.directive.alternate).then_some((sign + blanks, field.first() == Some(&b'-')))
    }

    /// Packed decimal digits: as many bytes as the width, ending before the first byte that is not decimal.
    fn packed_number(&self, body: &[u8]) -> Option<(usize, Value)> {
        let width = self.directive.width.clamp(1, 9);
        let bytes = body.get(..width)?;
        let highest = if self.directive.alternate { width - 1 } else { 0 };
        let signed = self.directive.plus || self.directive.blank;
        let (mut value, mut len, mut factor, mut negative) = (0i64, 0, 1i64, false);
        for (at, byte) in bytes.iter().enumerate() {
            let (mut tens, ones) = (byte >> 4, byte & 15);
            if signed && at == highest && tens != 0 {
                (negative, tens) = (true, 0);
            }
            if tens > 9 || ones > 9 {
                break;
            }
            let two = i64::from(10 * tens + ones);
            if self.directive.alternate {
                value += two * factor;
                factor = factor.saturating_mul(100);
            } else {
                value = value * 100 + two;
            }
            len += 1;
        }
        (len > 0).then_some((len, Value::Int(if negative { -value } else { value })))
    }
}

/// White space as defined by C's `isspace`.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 11 | 12 | b'\r')
}

/// The floating-point number at the start, in the syntax of C's `strtod`: its length and value.
fn float(field: &[u8]) -> Option<(usize, f64)> {
    if let [b'0', b'x' | b'X', digits @ ..] = field
        && let Some((len, value)) = hexadecimal(digits)
    {
        return Some((2 + len, value));
    }
    let len = float_len(field);
    let text = std::str::from_utf8(&field[..len]).ok()?;
    Some((len, text.parse().ok()?))
}

/// The hexadecimal number at the start, with an optional fraction and an optional `p` with a power of two.
fn hexadecimal(field: &[u8]) -> Option<(usize, f64)> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(f64::from);
    let count = |from: usize| field.get(from..).unwrap_or_default().iter().map_while(digit).count();
    let whole = count(0);
    let fraction = if field.get(whole) == Some(&b'.') { count(whole + 1) } else { 0 };
    if whole + fraction == 0 {
        return None;
    }
    let mut len = if fraction > 0 { whole + 1 + fraction } else { whole };
    let mut value = field[..whole].iter().filter_map(digit).fold(0.0, |value, digit| value * 16.0 + digit);
    let places = field.get(whole + 1..whole + 1 + fraction).unwrap_or_default();
    value += places.iter().filter_map(digit).rev().fold(0.0, |value, digit| (value + digit) / 16.0);
    if matches!(field.get(len), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(field.get(len + 1), Some(b'+' | b'-')));
        let digits = field[(len + 1 + sign).min(field.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let power = std::str::from_utf8(&field[len + 1..len + 1 + sign + digits]).ok()?.parse::<i32>();
        if let (true, Ok(power)) = (digits > 0, power) {
            value *= 2f64.powi(power);
            len += 1 + sign + digits;
        }
    }
    Some((len, value))
}

/// Two whole numbers, the second a power of ten.
fn mantissa(field: &[u8]) -> Option<(usize, Value)> {
    let number = |from: usize| {
        let blanks = field[from..].iter().take_while(|byte| is_space(**byte)).count();
        let field = &field[from + blanks..];
        let sign = usize::from(matches!(field.first(), Some(b'+' | b'-')));
        let digits = field[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let value = std::str::from_utf8(&field[..sign + digits]).ok()?.parse::<i32>().ok()?;
        Some((blanks + sign + digits, value))
    };
    let (len, digits) = number(0)?;
    let (more, power) = number(len)?;
    Some((len + more, Value::Float(f64::from(digits) * 10f64.powi(power))))
}

/// Length of the floating-point number at the start.
fn float_len(field: &[u8]) -> usize {
    let digits = |from: usize| field[from.min(field.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let sign = usize::from(matches!(field.first(), Some(b'+' | b'-')));
    for word in [&b"infinity"[..], b"inf", b"nan"] {
        if field[sign..].len() >= word.len() && field[sign..sign + word.len()].eq_ignore_ascii_case(word) {
            return sign + word.len();
        }
    }
    let whole = digits(sign);
    let mut len = sign + whole;
    let mut fraction = 0;
    if field.get(len) == Some(&b'.') {
        fraction = digits(len + 1);
        len += 1 + fraction;
    }
    if whole + fraction == 0 {
        return 0;
    }
    if matches!(field.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(field.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    len
}

/// The whole number at the start, without a sign: its length and value. Returns `None` if it exceeds 64 bits.
fn integer(field: &[u8], letter: u8) -> Option<(usize, i64)> {
    let hex = matches!(field, [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit());
    let (radix, skip) = match letter {
        b'x' | b'X' => (16, if hex { 2 } else { 0 }),
        b'o' => (8, 0),
        b'i' if hex => (16, 2),
        b'i' if field.first() == Some(&b'0') => (8, 0),
        _ => (10, 0),
    };
    let digits = field[skip..].iter().map_while(|byte| char::from(*byte).to_digit(radix));
    let (value, count) = digits.fold((Some(0u64), 0), |(value, count), digit| {
        (value.and_then(|value| value.checked_mul(radix.into())?.checked_add(digit.into())), count + 1)
    });
    (count > 0).then_some((skip + count, value? as i64))
}
