//! C's `printf` and `sscanf`.

use crate::ast::Prim;
use crate::memory::{Memory, Trap, cast};
use base::text;
use std::fmt::Write as _;

/// Maximum number of bytes of a text.
const TEXT_MAX: usize = 64 << 10;
const TOO_LONG: Trap = Trap::Argument("found output of more than 64 KiB, expected a shorter text");

/// A conversion of a format.
#[derive(Default)]
struct Spec {
    left: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    /// Number of `h` (negative) or `l`.
    length: i8,
    skip: bool,
}

/// Formats as `printf`. Bit n of `floats` is set if argument n is floating point.
pub(crate) fn print(memory: &Memory<'_>, format: u64, arguments: &[u64], floats: u32) -> Result<Vec<u8>, Trap> {
    let format = memory.text(format)?.to_vec();
    let mut out = Vec::new();
    let mut next = 0;
    let mut take = |as_float: bool| {
        let word = arguments.get(next).copied().ok_or(Trap::Argument("found fewer arguments than the format has"))?;
        let is_float = floats & (1 << next) != 0;
        next += 1;
        Ok(match (is_float, as_float) {
            (true, false) => cast(Prim::F64, Prim::I64, word),
            (false, true) => cast(Prim::I64, Prim::F64, word),
            _ => word,
        })
    };
    let mut bytes = format.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if out.len() > TEXT_MAX {
            return Err(TOO_LONG);
        }
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut spec = Spec::default();
        while let Some(flag) = bytes.next_if(|byte| matches!(byte, b'-' | b'+' | b' ' | b'#' | b'0')) {
            match flag {
                b'-' => spec.left = true,
                b'+' => spec.plus = true,
                b' ' => spec.blank = true,
                b'#' => spec.alternate = true,
                _ => spec.zeros = true,
            }
        }
        let mut count = |bytes: &mut std::iter::Peekable<_>| -> Result<i64, Trap> {
            if bytes.next_if_eq(&b'*').is_some() {
                return Ok(take(false)? as i64);
            }
            let mut count = 0i64;
            while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
                count = (count * 10 + i64::from(digit - b'0')).min(TEXT_MAX as i64);
            }
            Ok(count)
        };
        let width = count(&mut bytes)?;
        spec.left |= width < 0;
        spec.width = width.unsigned_abs().min(TEXT_MAX as u64) as usize;
        if bytes.next_if_eq(&b'.').is_some() {
            spec.precision = usize::try_from(count(&mut bytes)?).ok().map(|count| count.min(1_000));
        }
        while let Some(length) = bytes.next_if(|byte| matches!(byte, b'h' | b'l' | b'L' | b'z' | b'j' | b't' | b'q')) {
            spec.length = spec.length.saturating_add(if length == b'h' { -1 } else { 1 });
        }
        let Some(kind) = bytes.next() else { break };
        match kind {
            b'%' => out.push(b'%'),
            b'c' => pad(&mut out, &spec, &[take(false)? as u8], false),
            b's' => {
                let at = take(false)?;
                let text = if at == 0 { b"(null)" } else { memory.text(at)? };
                let len = spec.precision.map_or(text.len(), |most| most.min(text.len()));
                pad(&mut out, &spec, &text[..len], false);
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' => {
                let value = f64::from_bits(take(true)?);
                pad(&mut out, &spec, real(&spec, kind, value).as_bytes(), value.is_finite());
            }
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' | b'p' => {
                let digits = whole(&spec, kind, take(false)?);
                pad(&mut out, &spec, digits.as_bytes(), spec.precision.is_none());
            }
            other => out.extend([b'%', other]),
        }
    }
    if out.len() > TEXT_MAX { Err(TOO_LONG) } else { Ok(out) }
}

fn sign(spec: &Spec, negative: bool) -> &'static str {
    match (negative, spec.plus, spec.blank) {
        (true, ..) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    }
}

fn whole(spec: &Spec, kind: u8, word: u64) -> String {
    let width = match spec.length {
        ..=-2 => 1,
        -1 => 2,
        0 if kind != b'p' => 4,
        _ => 8,
    };
    let shift = 64 - 8 * width;
    let (mark, digits) = match kind {
        b'd' | b'i' => {
            let value = ((word << shift) as i64) >> shift;
            (sign(spec, value < 0), value.unsigned_abs().to_string())
        }
        _ => {
            let value = (word << shift) >> shift;
            match kind {
                b'u' => ("", value.to_string()),
                b'o' => (if spec.alternate { "0" } else { "" }, format!("{value:o}")),
                b'X' => (if spec.alternate && value != 0 { "0X" } else { "" }, format!("{value:X}")),
                _ => (if kind == b'p' || spec.alternate && value != 0 { "0x" } else { "" }, format!("{value:x}")),
            }
        }
    };
    format!("{mark}{digits:0>width$}", width = spec.precision.unwrap_or(1))
}

fn real(spec: &Spec, kind: u8, value: f64) -> String {
    let precision = spec.precision.unwrap_or(6);
    let mut out = sign(spec, value.is_sign_negative()).to_owned();
    // Writing to a text does not fail.
    let _ = match kind.to_ascii_lowercase() {
        _ if value.is_nan() => out.write_str("nan"),
        _ if value.is_infinite() => out.write_str("inf"),
        b'f' => text::write_fixed(&mut out, value.abs(), precision),
        b'e' => text::write_exponent(&mut out, value.abs(), precision),
        _ => text::write_general(&mut out, value.abs(), precision, spec.alternate),
    };
    if kind.is_ascii_uppercase() { out.to_ascii_uppercase() } else { out }
}

/// Appends a text in its width; `zeros` whether zeros may be inserted after the sign.
fn pad(out: &mut Vec<u8>, spec: &Spec, text: &[u8], zeros: bool) {
    let missing = spec.width.saturating_sub(text.len());
    if spec.left {
        out.extend_from_slice(text);
        out.extend(std::iter::repeat_n(b' ', missing));
    } else if spec.zeros && zeros {
        let sign = text.iter().take_while(|byte| matches!(byte, b'-' | b'+' | b' ')).count();
        out.extend_from_slice(&text[..sign]);
        out.extend(std::iter::repeat_n(b'0', missing));
        out.extend_from_slice(&text[sign..]);
    } else {
        out.extend(std::iter::repeat_n(b' ', missing));
        out.extend_from_slice(text);
    }
}

/// A whole number at the start of a text, as `strtol`: the value and the number of bytes.
pub(crate) fn parse_whole(text: &[u8], radix: u32) -> Option<(i64, usize)> {
    let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let rest = &text[blanks..];
    let signs = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
    let negative = rest.first() == Some(&b'-');
    let rest = &rest[signs..];
    let hex = matches!(rest, [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit());
    let (radix, prefix) = match radix {
        0 | 16 if hex => (16, 2),
        0 if rest.first() == Some(&b'0') => (8, 0),
        0 => (10, 0),
        radix => (radix.clamp(2, 36), 0),
    };
    let digits = rest[prefix..].iter().take_while(|byte| char::from(**byte).is_digit(radix)).count();
    let number = rest[prefix..prefix + digits].iter().fold(0i64, |sum, byte| {
        let digit = i64::from(char::from(*byte).to_digit(radix).unwrap_or(0));
        sum.saturating_mul(i64::from(radix)).saturating_add(digit)
    });
    (digits > 0).then_some((if negative { -number } else { number }, blanks + signs + prefix + digits))
}

/// Scans as `sscanf`. Returns the number of converted fields; -1 at the end of the text before the first.
pub(crate) fn scan(memory: &mut Memory<'_>, text: u64, format: u64, arguments: &[u64]) -> Result<i64, Trap> {
    let (text, format) = (memory.text(text)?.to_vec(), memory.text(format)?.to_vec());
    let (mut at, mut done) = (0, 0i64);
    let mut targets = arguments.iter().copied();
    let mut bytes = format.iter().copied().peekable();
    let blanks = |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    while let Some(byte) = bytes.next() {
        if byte.is_ascii_whitespace() {
            at += blanks(at);
            continue;
        }
        if byte != b'%' {
            if text.get(at) != Some(&byte) {
                break;
            }
            at += 1;
            continue;
        }
        let mut spec = Spec { skip: bytes.next_if_eq(&b'*').is_some(), ..Spec::default() };
        while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
            spec.width = (spec.width * 10 + usize::from(digit - b'0')).min(TEXT_MAX);
        }
        while let Some(length) = bytes.next_if(|byte| matches!(byte, b'h' | b'l' | b'L')) {
            spec.length = spec.length.saturating_add(if length == b'h' { -1 } else { 1 });
        }
        let Some(kind) = bytes.next() else { break };
        if !matches!(kind, b'c' | b'[' | b'n') {
            at += blanks(at);
        }
        let limit = if spec.width == 0 { text.len() } else { text.len().min(at + spec.width) };
        let rest = &text[at.min(limit)..limit];
        if rest.is_empty() && !matches!(kind, b'n' | b'%') {
            return Ok(if done == 0 { -1 } else { done });
        }
        let target = |targets: &mut dyn Iterator<Item = u64>| {
            targets.next().ok_or(Trap::Argument("found fewer arguments than the format has"))
        };
        let len = match kind {
            b'd' | b'u' | b'i' | b'x' | b'X' | b'o' => {
                let radix = match kind {
                    b'i' => 0,
                    b'x' | b'X' => 16,
                    b'o' => 8,
                    _ => 10,
                };
                let Some((value, len)) = parse_whole(rest, radix) else { break };
                if !spec.skip {
                    let prim = match spec.length {
                        ..=-2 => Prim::I8,
                        -1 => Prim::I16,
                        0 => Prim::I32,
                        _ => Prim::I64,
                    };
                    memory.store(prim, target(&mut targets)?, value as u64)?;
                }
                len
            }
            b'f' | b'e' | b'g' | b'E' | b'G' => {
                let Some((value, len)) = text::parse_double(rest) else { break };
                if !spec.skip {
                    let prim = if spec.length > 0 { Prim::F64 } else { Prim::F32 };
                    memory.store(prim, target(&mut targets)?, value.to_bits())?;
                }
                len
            }
            b's' | b'c' | b'[' => {
                let len = match kind {
                    b'c' => spec.width.max(1).min(rest.len()),
                    b's' => rest.iter().take_while(|byte| !byte.is_ascii_whitespace()).count(),
                    _ => {
                        let not = bytes.next_if_eq(&b'^').is_some();
                        let (mut set, mut last) = ([false; 256], None);
                        if let Some(byte) = bytes.next_if_eq(&b']') {
                            (set[usize::from(byte)], last) = (true, Some(byte));
                        }
                        while let Some(byte) = bytes.next_if(|byte| *byte != b']') {
                            match (byte, bytes.peek(), last) {
                                (b'-', Some(&end), Some(from)) if end != b']' => {
                                    (from..=end).for_each(|byte| set[usize::from(byte)] = true);
                                }
                                _ => (set[usize::from(byte)], last) = (true, Some(byte)),
                            }
                        }
                        bytes.next();
                        rest.iter().take_while(|byte| set[usize::from(**byte)] != not).count()
                    }
                };
                if len == 0 {
                    break;
                }
                if !spec.skip {
                    let to = target(&mut targets)?;
                    match kind {
                        b'c' => memory.bytes_mut(to, len)?.copy_from_slice(&rest[..len]),
                        _ => memory.set_text(to, &rest[..len])?,
                    }
                }
                len
            }
            b'n' => {
                memory.store(Prim::I32, target(&mut targets)?, at as u64)?;
                continue;
            }
            b'%' if text.get(at) == Some(&b'%') => {
                at += 1;
                continue;
            }
            _ => break,
        };
        at += len;
        done += i64::from(!spec.skip);
    }
    Ok(done)
}
