//! `SSCANF`, and `READ` and `WRITE` of binary numbers in the order of the machine.

use super::Item;
use super::run::{Computed, NoValue, nint};
use crate::text::conv::to_i64;
use base::Str40;

/// A directive of a format.
struct Directive<'a> {
    /// `*`: the value is skipped.
    skipped: bool,
    width: Option<usize>,
    /// `h` or `l`.
    size: Option<u8>,
    letter: u8,
    /// Characters of `%[…]`.
    set: &'a [u8],
}

/// Parses the directive after a `%`. Returns it and its length. The letter may be missing at the end: it is then 0.
fn directive(format: &[u8]) -> Computed<(Directive<'_>, usize)> {
    let mut at = 0;
    let skipped = format.first() == Some(&b'*');
    at += usize::from(skipped);
    let digits = format[at..].iter().take_while(|byte| byte.is_ascii_digit());
    let (mut number, mut count) = (0usize, 0);
    for byte in digits {
        number = (number * 10 + usize::from(byte - b'0')).min(1_000);
        count += 1;
    }
    at += count;
    let width = (count > 0).then_some(number);
    let size = format.get(at).copied().filter(|byte| matches!(byte, b'h' | b'l'));
    at += usize::from(size.is_some());
    let letter = format.get(at).copied().filter(|byte| *byte != b'%').unwrap_or(0);
    at += usize::from(letter != 0);
    let mut set: &[u8] = &[];
    if letter == b'[' {
        // `]` as the first character belongs to the set.
        let first = usize::from(format.get(at) == Some(&b'^'));
        let rest = format.get(at + first + 1..).ok_or(NoValue)?;
        let end = rest.iter().position(|byte| *byte == b']').ok_or(NoValue)? + first + 1;
        set = &format[at..at + end];
        at += end + 1;
    }
    Ok((Directive { skipped, width, size, letter, set }, at))
}

/// Whether a byte belongs to the characters of `%[…]`: `^` excludes, `a-z` is a range.
fn in_set(set: &[u8], byte: u8) -> bool {
    let (wanted, set) = match set.split_first() {
        Some((b'^', rest)) => (false, rest),
        _ => (true, set),
    };
    let mut at = 0;
    let mut found = false;
    while let Some(first) = set.get(at) {
        match (set.get(at + 1), set.get(at + 2)) {
            (Some(b'-'), Some(last)) => {
                found |= (*first..=*last).contains(&byte);
                at += 3;
            }
            _ => {
                found |= *first == byte;
                at += 1;
            }
        }
    }
    found == wanted
}

/// Reads the one value of a format from a text, like C's `sscanf`.
pub(super) fn scanf(text: &[u8], format: &[u8]) -> Computed {
    let blanks = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let (mut rest, mut found) = (text, None);
    // After a mismatch the format is still checked: it must have exactly one value.
    let (mut at, mut matches, mut values) = (0, true, 0);
    while let Some(byte) = format.get(at) {
        at += 1;
        if byte.is_ascii_whitespace() {
            rest = &rest[blanks(rest)..];
        } else if *byte != b'%' || format.get(at) == Some(&b'%') {
            at += usize::from(*byte == b'%');
            if *byte == b'%' {
                rest = &rest[blanks(rest)..];
            }
            matches &= rest.first() == Some(byte);
            rest = rest.get(1..).unwrap_or(&[]);
        } else {
            let (parsed, len) = directive(&format[at..])?;
            at += len;
            values += usize::from(!parsed.skipped);
            if !b"cdiouxXeEfgGs[".contains(&parsed.letter) {
                return Err(NoValue);
            }
            match convert(rest, &parsed).filter(|_| matches) {
                Some((value, used)) => {
                    rest = &rest[used..];
                    if !parsed.skipped {
                        found = Some(value);
                    }
                }
                None => matches = false,
            }
        }
    }
    found.filter(|_| values == 1).ok_or(NoValue)
}

/// Reads one value. Returns it and the number of bytes read.
fn convert(text: &[u8], directive: &Directive<'_>) -> Option<(Item, usize)> {
    let is_raw = matches!(directive.letter, b'c' | b'[');
    let blanks = if is_raw { 0 } else { text.iter().take_while(|byte| byte.is_ascii_whitespace()).count() };
    let body = &text[blanks..];
    let default = if directive.letter == b'c' { 1 } else { usize::MAX };
    let body = &body[..body.len().min(directive.width.unwrap_or(default))];
    let taken = |count: usize| (count > 0).then(|| (Item::Text(Str40::new(&body[..count])), blanks + count));
    match directive.letter {
        b'c' if body.len() < directive.width.unwrap_or(1) => None,
        b'c' => taken(body.len()),
        b's' => taken(body.iter().take_while(|byte| !byte.is_ascii_whitespace()).count()),
        b'[' => taken(body.iter().take_while(|byte| in_set(directive.set, **byte)).count()),
        b'e' | b'E' | b'f' | b'g' | b'G' => {
            let (value, len) = base::text::parse_double(body)?;
            let value = if directive.size == Some(b'l') { value } else { f64::from(value as f32) };
            Some((Item::Number(value), blanks + len))
        }
        letter => {
            let (value, len) = whole(body, letter)?;
            Some((Item::Number(cut(value, letter, directive.size)), blanks + len))
        }
    }
}

/// An integer at the start of a text, in the base of the directive.
fn whole(text: &[u8], letter: u8) -> Option<(i64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let body = &text[sign..];
    let has_hex =
        body.len() > 2 && body[0] == b'0' && body[1].eq_ignore_ascii_case(&b'x') && body[2].is_ascii_hexdigit();
    let (radix, prefix) = match letter {
        b'o' => (8, 0),
        b'x' | b'X' => (16, if has_hex { 2 } else { 0 }),
        b'i' if has_hex => (16, 2),
        b'i' if body.first() == Some(&b'0') => (8, 0),
        _ => (10, 0),
    };
    let digits = body[prefix..].iter().map_while(|byte| char::from(*byte).to_digit(radix));
    let (mut value, mut count) = (0i64, 0);
    for digit in digits {
        value = value.wrapping_mul(i64::from(radix)).wrapping_add(i64::from(digit));
        count += 1;
    }
    let value = if text.first() == Some(&b'-') { value.wrapping_neg() } else { value };
    (count > 0).then_some((value, sign + prefix + count))
}

/// An integer of the size of the directive.
fn cut(value: i64, letter: u8, size: Option<u8>) -> f64 {
    match (letter, size) {
        (b'd' | b'i', Some(b'h')) => f64::from(value as i16),
        (b'd' | b'i', Some(b'l')) => value as f64,
        (b'd' | b'i', _) => f64::from(value as i32),
        (_, Some(b'h')) => f64::from(value as u16),
        (_, Some(b'l')) => value as u64 as f64,
        _ => f64::from(value as u32),
    }
}

/// Bytes of a binary number.
fn width_of(letter: u8, size: Option<u8>) -> usize {
    match (letter, size) {
        (b'd' | b'i' | b'o' | b'u' | b'x' | b'X', Some(b'h')) => 2,
        (b'd' | b'i' | b'o' | b'u' | b'x' | b'X', _) => 4,
        (b'e' | b'E' | b'f' | b'g' | b'G', Some(b'l')) => 8,
        (b'e' | b'E' | b'f' | b'g' | b'G', _) => 4,
        _ => 1,
    }
}

/// The first directive of a format at or after `at`, and its end.
fn next(format: &[u8], mut at: usize) -> Computed<(Directive<'_>, usize)> {
    loop {
        let start =
            at + format.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'%')).ok_or(NoValue)? + 1;
        if format.get(start) != Some(&b'%') {
            let (parsed, len) = directive(&format[start..])?;
            return Ok((parsed, start + len));
        }
        at = start + 1;
    }
}

/// `WRITE(format, value)`: the bytes of a number.
pub(super) fn write(format: &[u8], value: f64) -> Computed<Vec<u8>> {
    let (parsed, _) = next(format, 0)?;
    let whole = to_i64(nint(value));
    Ok(match (parsed.letter, width_of(parsed.letter, parsed.size)) {
        _ if parsed.skipped => return Err(NoValue),
        (b'c', _) => vec![whole as u8],
        (b'd' | b'i' | b'o' | b'u' | b'x' | b'X', 2) => (whole as i16).to_ne_bytes().to_vec(),
        (b'd' | b'i' | b'o' | b'u' | b'x' | b'X', _) => (whole as i32).to_ne_bytes().to_vec(),
        (b'e' | b'E' | b'f' | b'g' | b'G', 8) => value.to_ne_bytes().to_vec(),
        (b'e' | b'E' | b'f' | b'g' | b'G', _) => (value as f32).to_ne_bytes().to_vec(),
        _ => return Err(NoValue),
    })
}

/// `READ(text, format)`: a number from the bytes of a text. Missing bytes are 0.
pub(super) fn read(bytes: &[u8], format: &[u8]) -> Computed<f64> {
    let (mut skip, mut at) = (0, 0);
    let parsed = loop {
        let (parsed, end) = next(format, at)?;
        at = end;
        if !parsed.skipped {
            break parsed;
        }
        skip += parsed.width.unwrap_or(1) * width_of(parsed.letter, parsed.size);
    };
    let mut raw = [0; 8];
    let rest = bytes.get(skip..).unwrap_or(&[]);
    raw.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
    let [a, b, c, d, ..] = raw;
    Ok(match (parsed.letter, parsed.size) {
        (b'd' | b'i', Some(b'h')) => f64::from(i16::from_ne_bytes([a, b])),
        (b'd' | b'i', _) => f64::from(i32::from_ne_bytes([a, b, c, d])),
        (b'o' | b'u' | b'x' | b'X', Some(b'h')) => f64::from(u16::from_ne_bytes([a, b])),
        (b'o' | b'u' | b'x' | b'X', _) => f64::from(u32::from_ne_bytes([a, b, c, d])),
        (b'e' | b'E' | b'f' | b'g' | b'G', Some(b'l')) => f64::from_ne_bytes(raw),
        (b'e' | b'E' | b'f' | b'g' | b'G', _) => f64::from(f32::from_ne_bytes([a, b, c, d])),
        (b'c', _) => f64::from(a as i8),
        _ => return Err(NoValue),
    })
}
