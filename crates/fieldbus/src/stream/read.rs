//! Conversions as they are read.

use super::convert::{Conversion, Format, Value};

impl Format {
    /// Reads a value from a line at `at`: how many bytes it took, and the value.
    pub(super) fn scan(&self, line: &[u8], at: usize) -> Option<(usize, Option<Value>)> {
        let rest = line.get(at..)?;
        if let Conversion::Sum(sum) = self.conversion {
            let expected = self.summed(sum, line, at)?;
            let found = rest.get(..expected.len())?;
            return found
                .eq_ignore_ascii_case(&expected)
                .then_some((expected.len(), None))
                .filter(|_| self.directive.zero || found == expected);
        }
        match self.scan_value(rest) {
            Some((len, value)) => (!self.fixed || len == self.directive.width).then_some((len, Some(value))),
            None if self.default => Some((0, Some(self.nothing()))),
            None => None,
        }
    }

    /// What `?` gives for input that is missing.
    fn nothing(&self) -> Value {
        match self.conversion {
            Conversion::Float(_) | Conversion::RawFloat => Value::Float(0.0),
            Conversion::Text | Conversion::Chars | Conversion::Set(_) => Value::Text(Vec::new()),
            Conversion::Enum(_) => Value::Enum(0),
            _ => Value::Int(0),
        }
    }

    fn scan_value(&self, rest: &[u8]) -> Option<(usize, Value)> {
        let blanks = match self.conversion {
            Conversion::Float(_) | Conversion::Int(_) | Conversion::Bits(_) | Conversion::Text => {
                rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
            }
            _ => 0,
        };
        // With the flag blank, white space is part of a text.
        let blanks = if self.directive.blank && self.conversion == Conversion::Text { 0 } else { blanks };
        let body = &rest[blanks..];
        let most = if self.directive.width == 0 { body.len() } else { body.len().min(self.directive.width) };
        let field = &body[..most];
        let while_in = |inside: &dyn Fn(u8) -> bool| field.iter().take_while(|byte| inside(**byte)).count();
        let (len, value) = match &self.conversion {
            Conversion::Float(_) => {
                let len = float_len(field);
                let text = std::str::from_utf8(&field[..len]).ok()?;
                (len, Value::Float(text.parse().ok()?))
            }
            Conversion::Int(letter) => integer(field, *letter)?,
            // Texts may be empty.
            Conversion::Text => {
                let lead = if self.directive.blank { while_in(&|byte| byte.is_ascii_whitespace()) } else { 0 };
                let word = |byte: u8| byte != 0 && (self.directive.alternate || !byte.is_ascii_whitespace());
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
                // The first that fits, as they stand.
                let (text, number) = choices.known.iter().find(|(text, _)| field.starts_with(text))?;
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
                let len = self.directive.width.clamp(1, 8);
                let mut bytes = body.get(..len)?.to_vec();
                if self.directive.alternate {
                    bytes.reverse();
                }
                let bits = bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
                let shift = 64 - 8 * len as u32;
                let value = if self.directive.zero { bits as i64 } else { ((bits << shift) as i64) >> shift };
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
            Conversion::Sum(_) => return None,
        };
        (len > 0).then_some((blanks + len, value))
    }

    /// Packed decimal digits: as many bytes as the width says, up to one that holds none.
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

/// The whole number at the start: its length and value, which keeps within 64 bits.
fn integer(field: &[u8], letter: u8) -> Option<(usize, Value)> {
    let sign = usize::from(matches!(field.first(), Some(b'+' | b'-')));
    let hex = field.len() >= sign + 2 && field[sign] == b'0' && matches!(field[sign + 1], b'x' | b'X');
    let hex = hex && field.get(sign + 2).is_some_and(u8::is_ascii_hexdigit);
    let (radix, skip) = match letter {
        b'x' | b'X' => (16, if hex { 2 } else { 0 }),
        b'o' => (8, 0),
        b'i' if hex => (16, 2),
        b'i' if field.get(sign) == Some(&b'0') => (8, 0),
        _ => (10, 0),
    };
    let digits = field[sign + skip..].iter().map_while(|byte| char::from(*byte).to_digit(radix));
    let (value, count) = digits.fold((Some(0i64), 0), |(value, count), digit| {
        (value.and_then(|value| value.checked_mul(radix.into())?.checked_add(digit.into())), count + 1)
    });
    if count == 0 {
        return None;
    }
    let value = if field.first() == Some(&b'-') { -value? } else { value? };
    Some((sign + skip + count, Value::Int(value)))
}
