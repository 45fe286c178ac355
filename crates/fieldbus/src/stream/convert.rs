//! Conversions: one `%` of a protocol, written and read.

use crate::checksum::{self, Crc};
use base::Directive;

/// Widest field that is read.
const WIDTH_MAX: usize = 1 << 16;

/// A value on its way between a line and whoever uses it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `%f` and its kin.
    Float(f64),
    /// `%d` and its kin.
    Int(i64),
    /// `%s`, `%c`, `%[…]`.
    Text(Vec<u8>),
    /// `%{…}`.
    Enum(i64),
}

/// What a conversion does.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// `f e g E G`.
    Float(u8),
    /// `d i u x X o`.
    Int(u8),
    /// `s`: a word.
    Text,
    /// `c`: bytes, white space among them.
    Chars,
    /// `[set]`: bytes of the set; what is in it.
    Set(Box<[bool; 256]>),
    /// `{a|b}`: texts with their numbers.
    Enum(Vec<(Vec<u8>, i64)>),
    /// `b`: binary digits.
    Bits,
    /// `r`: bytes of a number as they are.
    Raw,
    /// `<name>`: a checksum of the message so far.
    Sum(Sum),
}

/// A checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// The sum of so many bytes' width.
    Plain(u8),
    /// The two's complement of the sum.
    Negative(u8),
    /// All bytes by exclusive or.
    Xor,
    /// A redundancy check.
    Crc(Crc),
    /// Adler-32.
    Adler,
}

/// A conversion with its flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Format {
    /// What it does.
    pub conversion: Conversion,
    skip: bool,
    compare: bool,
    fixed: bool,
    default: bool,
    directive: Directive,
}

fn number(bytes: &[u8]) -> (usize, usize) {
    let len = bytes.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
    (bytes[..len].iter().fold(0, |value, byte| value * 10 + usize::from(byte - b'0')), len)
}

impl Format {
    /// Reads what stands behind a `%`; the conversion, and how many bytes it has.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, usize), String> {
        let mut directive = Directive::default();
        let (mut skip, mut compare, mut fixed, mut default) = (false, false, false, false);
        let mut at = 0;
        if bytes.first() == Some(&b'(') {
            return Err("redirection to other records, %(…), is not known here".to_owned());
        }
        while let Some(flag) = bytes.get(at) {
            match flag {
                b'*' => skip = true,
                b'#' => directive.alternate = true,
                b'+' => directive.plus = true,
                b'-' => directive.left = true,
                b'0' => directive.zero = true,
                b' ' => directive.blank = true,
                b'?' => default = true,
                b'=' => compare = true,
                b'!' => fixed = true,
                _ => break,
            }
            at += 1;
        }
        let (width, len) = number(&bytes[at..]);
        directive.width = width.min(WIDTH_MAX);
        at += len;
        if bytes.get(at) == Some(&b'.') {
            let (precision, len) = number(&bytes[at + 1..]);
            directive.precision = Some(precision);
            at += 1 + len;
        }
        let letter = *bytes.get(at).ok_or("a % at the end of a text; expected a conversion")?;
        at += 1;
        let rest = &bytes[at..];
        let until = |close: u8, what: &str| {
            rest.iter().position(|byte| *byte == close).ok_or_else(|| format!("%{} that is not closed", what))
        };
        let conversion = match letter {
            b'f' | b'e' | b'E' | b'g' | b'G' => Conversion::Float(letter),
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => Conversion::Int(letter),
            b's' => Conversion::Text,
            b'c' => Conversion::Chars,
            b'b' => Conversion::Bits,
            b'r' => Conversion::Raw,
            b'[' => {
                // A closing bracket at the start belongs to the set.
                let first = usize::from(rest.first() == Some(&b'^'));
                let from = first + usize::from(rest.get(first) == Some(&b']'));
                let end = rest.iter().skip(from).position(|byte| *byte == b']').ok_or("%[ that is not closed")? + from;
                at += end + 1;
                Conversion::Set(Box::new(set(&rest[..end])))
            }
            b'{' => {
                let end = until(b'}', "{")?;
                at += end + 1;
                Conversion::Enum(choices(&rest[..end], directive.alternate)?)
            }
            b'<' => {
                let end = until(b'>', "<")?;
                at += end + 1;
                Conversion::Sum(sum(&rest[..end])?)
            }
            other => return Err(format!("conversion %{} is not known here", other.escape_ascii())),
        };
        if compare {
            return Err("comparing with %= is not known here".to_owned());
        }
        Ok((Self { conversion, skip, compare, fixed, default, directive }, at))
    }

    /// Whether a value goes or comes with it.
    #[must_use]
    pub const fn takes_value(&self) -> bool {
        !self.skip && !matches!(self.conversion, Conversion::Sum(_))
    }

    /// Writes a value; `None` where it does not fit.
    pub(super) fn print(&self, value: &Value, out: &mut Vec<u8>) -> Option<()> {
        let directive = &self.directive;
        match (&self.conversion, value) {
            (Conversion::Float(letter), Value::Float(value)) => directive.float(out, *value, *letter),
            (Conversion::Int(b'd' | b'i'), Value::Int(value)) => directive.signed(out, *value),
            (Conversion::Int(letter), Value::Int(value)) => {
                // Negative numbers are written with the 32 bits that a record's raw value has.
                let bits =
                    if *value < 0 && *value >= i64::from(i32::MIN) { *value as u32 as u64 } else { *value as u64 };
                directive.unsigned(out, bits, *letter);
            }
            (Conversion::Text | Conversion::Set(_), Value::Text(text)) => directive.text(out, text),
            (Conversion::Chars, Value::Text(text)) => directive.text(out, text),
            (Conversion::Chars, Value::Int(value)) => out.push(u8::try_from(*value).ok()?),
            (Conversion::Enum(choices), Value::Enum(value)) => {
                let (text, _) = choices.iter().find(|(_, number)| number == value)?;
                out.extend_from_slice(text);
            }
            (Conversion::Bits, Value::Int(value)) => {
                let digits =
                    directive.precision.unwrap_or(0).clamp(1, 64).max(64 - (*value as u64).leading_zeros() as usize);
                let text: Vec<u8> = (0..digits).rev().map(|bit| b'0' + (*value as u64 >> bit & 1) as u8).collect();
                let fill = directive.width.min(256).saturating_sub(text.len());
                out.extend(std::iter::repeat_n(if directive.zero { b'0' } else { b' ' }, fill));
                out.extend(text);
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
            _ => return None,
        }
        Some(())
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
    fn summed(&self, sum: Sum, line: &[u8], at: usize) -> Option<Vec<u8>> {
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
            Conversion::Float(_) => Value::Float(0.0),
            Conversion::Text | Conversion::Chars | Conversion::Set(_) => Value::Text(Vec::new()),
            Conversion::Enum(_) => Value::Enum(0),
            _ => Value::Int(0),
        }
    }

    fn scan_value(&self, rest: &[u8]) -> Option<(usize, Value)> {
        let blanks = match self.conversion {
            Conversion::Chars | Conversion::Set(_) | Conversion::Enum(_) | Conversion::Raw => 0,
            _ => rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count(),
        };
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
            Conversion::Text => {
                let len = while_in(&|byte| !byte.is_ascii_whitespace());
                (len, Value::Text(field[..len].to_vec()))
            }
            Conversion::Chars => {
                let len = self.directive.width.max(1);
                (len, Value::Text(body.get(..len)?.to_vec()))
            }
            Conversion::Set(set) => {
                let len = while_in(&|byte| set[usize::from(byte)]);
                (len, Value::Text(field[..len].to_vec()))
            }
            Conversion::Enum(choices) => {
                // The first that fits, as they stand.
                let (text, number) = choices.iter().find(|(text, _)| field.starts_with(text))?;
                return Some((text.len(), Value::Enum(*number)));
            }
            Conversion::Bits => {
                let len = while_in(&|byte| matches!(byte, b'0' | b'1')).min(64);
                let bits = field[..len].iter().fold(0u64, |bits, byte| bits << 1 | u64::from(*byte == b'1'));
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
            Conversion::Sum(_) => return None,
        };
        (len > 0).then_some((blanks + len, value))
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

fn set(text: &[u8]) -> [bool; 256] {
    let (negated, text) = match text.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, text),
    };
    let mut set = [negated; 256];
    let mut at = 0;
    while at < text.len() {
        let (from, to) = match text.get(at + 1..at + 3) {
            Some([b'-', to]) => (text[at], *to),
            _ => (text[at], text[at]),
        };
        at += if text.get(at + 1) == Some(&b'-') && at + 2 < text.len() { 3 } else { 1 };
        for byte in from..=to {
            set[usize::from(byte)] = !negated;
        }
    }
    set
}

/// `a|b|c`, numbered from 0; with the flag `#` each may say `=number`.
fn choices(text: &[u8], numbered: bool) -> Result<Vec<(Vec<u8>, i64)>, String> {
    let mut choices = Vec::new();
    let mut next = 0;
    let mut current = Vec::new();
    let mut bytes = text.iter();
    let mut finish = |current: &mut Vec<u8>| -> Result<(), String> {
        let mut text = std::mem::take(current);
        let at = text.iter().rposition(|byte| *byte == b'=').filter(|_| numbered);
        if let Some(at) = at {
            let number = String::from_utf8_lossy(&text[at + 1..]).trim().to_owned();
            next = number.parse().map_err(|_| format!("\"={number}\" in %#{{}}; expected a whole number"))?;
            text.truncate(at);
        }
        choices.push((text, next));
        next += 1;
        Ok(())
    };
    while let Some(byte) = bytes.next() {
        match byte {
            b'|' => finish(&mut current)?,
            b'\\' => current.extend(bytes.next()),
            byte => current.push(*byte),
        }
    }
    finish(&mut current)?;
    Ok(choices)
}

fn sum(name: &[u8]) -> Result<Sum, String> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok(match name.as_str() {
        "sum" | "sum8" => Sum::Plain(1),
        "sum16" => Sum::Plain(2),
        "sum32" => Sum::Plain(4),
        "negsum" | "nsum" | "-sum" | "negsum8" | "nsum8" | "-sum8" => Sum::Negative(1),
        "negsum16" | "nsum16" | "-sum16" => Sum::Negative(2),
        "negsum32" | "nsum32" | "-sum32" => Sum::Negative(4),
        "xor" | "xor8" => Sum::Xor,
        "crc8" => Sum::Crc(Crc::CRC8),
        "crc16" => Sum::Crc(Crc::CRC16),
        "crc16r" => Sum::Crc(Crc::CRC16_REFLECTED),
        "modbus" => Sum::Crc(Crc::MODBUS),
        "ccitt16" => Sum::Crc(Crc::CCITT16),
        "xmodem" | "ccitt16x" => Sum::Crc(Crc::XMODEM),
        "crc32" => Sum::Crc(Crc::CRC32),
        "crc32r" => Sum::Crc(Crc::CRC32_REFLECTED),
        "adler32" => Sum::Adler,
        other => {
            return Err(format!(
                "checksum %<{other}>; expected sum, sum16, sum32, negsum, negsum16, negsum32, xor, crc8, crc16, crc16r, \
                 modbus, ccitt16, xmodem, crc32, crc32r or adler32"
            ));
        }
    })
}
