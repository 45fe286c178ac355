//! Functions and operators of texts.

use super::run::{Computed, NoValue, nint};
use super::{Binary, Item, Unary, scan};
use crate::text::conv::to_i64;
use crate::text::lex::unescape_bytes;
use base::{Directive, Str40};

/// Position of a text in another.
fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    whole.windows(part.len()).position(|window| window == part)
}

/// Joins texts, cut at 39 bytes.
fn joined(parts: &[&[u8]]) -> Str40 {
    Str40::new(&parts.concat())
}

/// The number that starts with the first digit of a text, with a sign and point before it; 0 if there is no digit.
pub(super) fn first_number(text: Str40) -> f64 {
    let bytes = text.bytes();
    let Some(mut at) = bytes.iter().position(u8::is_ascii_digit) else { return 0.0 };
    for sign in [b'.', b'-'] {
        if at > 0 && bytes[at - 1] == sign {
            at -= 1;
        }
    }
    base::text::parse_double(&bytes[at..]).map_or(0.0, |(value, _)| value)
}

/// Operators of two texts; `None` if the texts are treated as numbers.
pub(super) fn binary(code: Binary, left: Str40, right: Str40) -> Option<Item> {
    let (a, b) = (left.bytes(), right.bytes());
    let truth = |yes| Some(Item::Number(super::run::truth(yes)));
    match code {
        Binary::Equal => truth(a == b),
        Binary::NotEq => truth(a != b),
        Binary::Less => truth(a < b),
        Binary::LessEq => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterEq => truth(a >= b),
        Binary::Larger => Some(Item::Text(if a < b { right } else { left })),
        Binary::Smaller => Some(Item::Text(if a > b { right } else { left })),
        Binary::Add => Some(Item::Text(joined(&[a, b]))),
        Binary::Sub | Binary::SubLast => {
            let found = match code {
                _ if b.is_empty() => None,
                Binary::Sub => find(a, b),
                _ => a.windows(b.len()).rposition(|window| window == b),
            };
            Some(Item::Text(found.map_or(left, |at| joined(&[&a[..at], &a[at + b.len()..]]))))
        }
        _ => None,
    }
}

/// `text >> n`, `text << n`: shifts the characters.
pub(super) fn shift(text: Str40, by: f64, right: bool) -> Str40 {
    let by = nint(by).clamp(0.0, 40.0) as usize;
    let bytes = text.bytes();
    if right { joined(&[&[b' '; 40][..by], bytes]) } else { Str40::new(bytes.get(by..).unwrap_or(&[])) }
}

/// `text[i,j]`. A negative index counts from the end. A text instead of an index means the place after its first match
/// (start), or before it (end).
pub(super) fn range(text: Str40, first: &Item, last: &Item) -> Str40 {
    let bytes = text.bytes();
    let len = bytes.len() as i64;
    let index = |value: f64| {
        let index = i64::from(base::text::to_i32(value));
        if index < 0 { index + len } else { index }
    };
    let start = match first {
        Item::Text(part) => find(bytes, part.bytes()).map_or(0, |at| (at + part.bytes().len()) as i64),
        other => index(other.number()),
    };
    let end = match last {
        Item::Text(part) if part.bytes().is_empty() => len,
        Item::Text(part) => find(bytes, part.bytes()).map_or(len, |at| at as i64 - 1),
        other => index(other.number()),
    };
    let (start, end) = (start.clamp(0, len) as usize, (end + 1).clamp(0, len) as usize);
    Str40::new(bytes.get(start..end).unwrap_or(&[]))
}

/// `text{old,new}`: replaces the first match.
pub(super) fn replace(text: Str40, old: Str40, new: Str40) -> Str40 {
    let bytes = text.bytes();
    let found = find(bytes, old.bytes());
    found.map_or(text, |at| joined(&[&bytes[..at], new.bytes(), &bytes[at + old.bytes().len()..]]))
}

/// Functions of one text. Most leave a number as it is.
pub(super) fn unary(code: Unary, operand: Item) -> Computed {
    let Item::Text(text) = operand else {
        return Ok(if code == Unary::Str { Item::Text(operand.text()) } else { operand });
    };
    let bytes = text.bytes();
    let raw = unescape_bytes(bytes);
    Ok(match code {
        Unary::Byte => Item::Number(f64::from(bytes.first().map_or(0, |byte| *byte as i8))),
        Unary::Escape => Item::Text(escaped(bytes)),
        Unary::Unescape => Item::Text(Str40::new(&raw)),
        Unary::Lrc => Item::Text(Str40::new(lrc(bytes).as_bytes())),
        Unary::AsciiModbus => Item::Text(joined(&[b":", bytes, lrc(bytes).as_bytes()])),
        // An empty text has no checksum.
        _ if raw.is_empty() => Item::Text(text),
        Unary::Crc16 => Item::Text(hex(&crc16(&raw))),
        Unary::Modbus => Item::Text(joined(&[bytes, hex(&crc16(&raw)).bytes()])),
        Unary::Xor8 => Item::Text(hex(&[xor8(&raw)])),
        Unary::AddXor8 => Item::Text(joined(&[bytes, hex(&[xor8(&raw)]).bytes()])),
        _ => Item::Text(text),
    })
}

/// Functions with a format.
pub(super) fn function(code: Binary, left: &Item, right: &Item) -> Computed {
    match (code, left, right) {
        (Binary::Printf, Item::Text(format), value) => printf(*format, value).map(Item::Text),
        (Binary::Write, Item::Text(format), value) => {
            scan::write(format.bytes(), value.number()).map(|b| Item::Text(escaped(&b)))
        }
        (Binary::Scanf, Item::Text(text), Item::Text(format)) => scan::scanf(text.bytes(), format.bytes()),
        (Binary::Read, Item::Text(text), Item::Text(format)) => {
            scan::read(&unescape_bytes(text.bytes()), format.bytes()).map(Item::Number)
        }
        _ => Err(NoValue),
    }
}

/// The format with its directive replaced by the value. A format without a directive stays as it is.
fn printf(format: Str40, value: &Item) -> Computed<Str40> {
    let format = format.bytes();
    let mut out = Vec::with_capacity(80);
    let (mut at, mut used) = (0, false);
    while let Some(byte) = format.get(at) {
        at += 1;
        if *byte != b'%' {
            out.push(*byte);
        } else if format.get(at) == Some(&b'%') {
            out.push(b'%');
            at += 1;
        } else {
            // C would read an argument that it was not given.
            if std::mem::replace(&mut used, true) {
                return Err(NoValue);
            }
            at += one(&format[at..], value, &mut out)?;
        }
    }
    Ok(Str40::new(if used { &out } else { format }))
}

/// Formats a value by the directive after a `%`. Returns its length.
fn one(directive: &[u8], value: &Item, out: &mut Vec<u8>) -> Computed<usize> {
    let mut layout = Directive::default();
    let (mut width, mut precision): (usize, Option<usize>) = (0, None);
    let mut sizes = Vec::new();
    for (at, byte) in directive.iter().enumerate() {
        match byte {
            b'-' => layout.left = true,
            b'+' => layout.plus = true,
            b' ' => layout.blank = true,
            b'#' => layout.alternate = true,
            b'.' => precision = Some(0),
            b'0' if width == 0 && precision.is_none() => layout.zero = true,
            b'0'..=b'9' => {
                let number = precision.as_mut().unwrap_or(&mut width);
                // The text is cut at 39 bytes anyway.
                *number = (*number * 10 + usize::from(byte - b'0')).min(100);
            }
            b'h' | b'l' => sizes.push(*byte),
            b's' => {
                (layout.width, layout.precision) = (width, precision);
                layout.text(out, value.text().bytes());
                return Ok(at + 1);
            }
            b'c' | b'd' | b'i' | b'o' | b'u' | b'x' | b'X' => {
                (layout.width, layout.precision) = (width, precision);
                let number = to_i64(nint(value.number()));
                match (byte, sizes.as_slice()) {
                    (b'c', _) => layout.text(out, &[number as u8]),
                    (b'd' | b'i', [b'l', ..]) => layout.signed(out, number),
                    (b'd' | b'i', [b'h', ..]) => layout.signed(out, i64::from(number as i16)),
                    (b'd' | b'i', _) => layout.signed(out, i64::from(number as i32)),
                    (_, [b'l', ..]) => layout.unsigned(out, number as u64, *byte),
                    (_, [b'h', ..]) => layout.unsigned(out, u64::from(number as u16), *byte),
                    _ => layout.unsigned(out, u64::from(number as u32), *byte),
                }
                return Ok(at + 1);
            }
            b'e' | b'E' | b'f' | b'g' | b'G' => {
                (layout.width, layout.precision) = (width, precision);
                layout.float(out, value.number(), *byte);
                return Ok(at + 1);
            }
            _ => return Err(NoValue),
        }
    }
    Err(NoValue)
}

/// Bytes as text in which C escapes replace those that do not print.
pub(crate) fn escaped(bytes: &[u8]) -> Str40 {
    let mut out = Vec::with_capacity(80);
    for byte in bytes {
        match byte {
            7 => out.extend(b"\\a"),
            8 => out.extend(b"\\b"),
            12 => out.extend(b"\\f"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            11 => out.extend(b"\\v"),
            0 => out.extend(b"\\0"),
            b'\\' | b'\'' | b'"' => out.extend([b'\\', *byte]),
            b' '..=b'~' => out.push(*byte),
            other => out.extend(format!("\\x{other:02x}").bytes()),
        }
    }
    Str40::new(&out)
}

/// Bytes as hexadecimal escapes.
fn hex(bytes: &[u8]) -> Str40 {
    let text: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    Str40::new(text.as_bytes())
}

/// Checksum of Modbus RTU, low byte first.
fn crc16(bytes: &[u8]) -> [u8; 2] {
    let shifted = |crc: u16| if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
    let crc = bytes.iter().fold(0xffff, |crc, byte| (0..8).fold(crc ^ u16::from(*byte), |crc, _| shifted(crc)));
    crc.to_le_bytes()
}

/// Checksum of Modbus ASCII over pairs of hexadecimal digits.
fn lrc(digits: &[u8]) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0);
    let sum: u32 = digits.chunks_exact(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).sum();
    format!("{:02X}", (sum as u8).wrapping_neg())
}

fn xor8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}
