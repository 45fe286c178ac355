//! Conversions: what stands behind a `%` of a protocol.

use crate::checksum::Crc;
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
    Enum(Choices),
    /// `b`, `Bzo`: binary digits, as these two bytes.
    Bits([u8; 2]),
    /// `r`: bytes of a number as they are.
    Raw,
    /// `R`: bytes of a floating-point number as they are.
    RawFloat,
    /// `D`: packed decimal digits.
    Bcd,
    /// `<name>`: a checksum of the message so far.
    Sum(Sum),
}

/// The texts of `%{…}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Each with its number.
    pub(super) known: Vec<(Vec<u8>, i64)>,
    /// `=?`: what is written for numbers that are not there.
    pub(super) otherwise: Option<Vec<u8>>,
}

/// What a conversion makes of a field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A floating-point number.
    Float,
    /// A whole number.
    Int,
    /// A text: the names of states, numbers as EPICS prints them.
    Text,
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
    pub(super) fixed: bool,
    pub(super) default: bool,
    pub(super) directive: Directive,
    /// `%(FIELD)…`, `%(RECORD.FIELD)…`: whose value it is, if not the record's that runs the protocol.
    field: Option<Box<str>>,
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
        let mut field = None;
        if bytes.first() == Some(&b'(') {
            let end = bytes.iter().position(|byte| *byte == b')').ok_or("%( that is not closed")?;
            let name = std::str::from_utf8(&bytes[1..end]).map_err(|_| "%(…) with bytes that are no UTF-8")?.trim();
            if name.is_empty() {
                return Err("%() without a name; expected a field or a record".to_owned());
            }
            field = Some(name.into());
            at = end + 1;
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
            b'b' => Conversion::Bits(*b"01"),
            b'B' => {
                let (zero, len) = bit(rest)?;
                let (one, more) = bit(&rest[len..])?;
                at += len + more;
                Conversion::Bits([zero, one])
            }
            b'r' => Conversion::Raw,
            b'R' if matches!(directive.width, 0 | 4 | 8) => Conversion::RawFloat,
            b'R' => return Err(format!("%{}R; expected 4 or 8 bytes", directive.width)),
            b'D' => Conversion::Bcd,
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
        if field.is_some() && matches!(conversion, Conversion::Sum(_)) {
            return Err("a field of a record with a checksum; a checksum takes no value".to_owned());
        }
        Ok((Self { conversion, skip, compare, fixed, default, directive, field }, at))
    }

    /// Whether a value of the record that runs the protocol goes or comes with it.
    #[must_use]
    pub const fn takes_value(&self) -> bool {
        self.has_value() && self.field.is_none()
    }

    /// Whether a value goes or comes with it, anybody's.
    pub(super) const fn has_value(&self) -> bool {
        !self.skip && !matches!(self.conversion, Conversion::Sum(_))
    }

    /// The field that `%(…)` names.
    pub(super) fn field(&self) -> Option<&str> {
        self.field.as_deref().filter(|_| !self.skip)
    }

    /// `%=`: what comes is to be what would be written.
    pub(super) const fn compares(&self) -> bool {
        self.compare && self.has_value()
    }

    pub(super) const fn kind(&self) -> Kind {
        match self.conversion {
            Conversion::Float(_) | Conversion::RawFloat => Kind::Float,
            Conversion::Text | Conversion::Set(_) => Kind::Text,
            _ => Kind::Int,
        }
    }
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

/// A byte of `%Bzo`, perhaps escaped; how many bytes it has here.
fn bit(rest: &[u8]) -> Result<(u8, usize), String> {
    match rest {
        [b'\\', escaped @ ..] => match super::format::escape(escaped) {
            (super::format::Piece::Byte(byte), len) => Ok((byte, 1 + len)),
            _ => Err("a wild card behind %B; expected two bytes".to_owned()),
        },
        [byte, ..] => Ok((*byte, 1)),
        [] => Err("%B at the end of a text; expected two bytes behind it".to_owned()),
    }
}

/// `a|b|c`, numbered from 0; with the flag `#` each may say `=number`, the last `=?`.
fn choices(text: &[u8], numbered: bool) -> Result<Choices, String> {
    let mut choices = Choices { known: Vec::new(), otherwise: None };
    let mut next = 0;
    // A text so far, and what stands behind its =.
    let (mut current, mut number): (Vec<u8>, Option<Vec<u8>>) = (Vec::new(), None);
    let mut bytes = text.iter();
    loop {
        let byte = bytes.next();
        match byte {
            None | Some(b'|') => {
                let (name, given) = (std::mem::take(&mut current), number.take());
                let given = given.map(|given| String::from_utf8_lossy(&given).trim().to_owned());
                match given.as_deref() {
                    Some("?") if byte.is_none() => {
                        choices.otherwise = Some(name);
                        return Ok(choices);
                    }
                    Some("?") => return Err("\"=?\" before the last text of %#{}".to_owned()),
                    Some(given) => {
                        next =
                            whole(given).ok_or_else(|| format!("\"={given}\" in %#{{}}; expected a whole number"))?;
                    }
                    None => {}
                }
                choices.known.push((name, next));
                next += 1;
                if byte.is_none() {
                    return Ok(choices);
                }
            }
            Some(b'=') if numbered && number.is_none() => number = Some(Vec::new()),
            Some(b'\\') => number.as_mut().unwrap_or(&mut current).extend(bytes.next()),
            Some(byte) => number.as_mut().unwrap_or(&mut current).push(*byte),
        }
    }
}

/// A decimal or hexadecimal number.
fn whole(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
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
