//! Prints values, alarms and properties in the format of the EPICS tools.

use super::options::Options;
use base::text::{exponent, general};
use base::{Scalar, Stamp, Value};
use ca::encode::Reading;
use ca::{Basic, Class, Dbr};
use std::fmt::Write as _;

/// Number format of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integers {
    Decimal,
    Hex,
    Octal,
    Binary,
}

/// Number format of floating-point values, with the number of digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reals {
    General(usize),
    Exponent(usize),
    Fixed(usize),
}

/// One element of a value as text; empty if the index is out of range.
pub(super) fn element(options: &Options, dbr: Dbr, reading: &Reading, index: usize) -> String {
    let Some(scalar) = reading.value.get(index) else { return String::new() };
    match scalar {
        Scalar::String(text) => escaped(text.bytes()),
        Scalar::F32(value) => real(options, value.into()),
        Scalar::F64(value) => real(options, value),
        Scalar::U8(value) => (value as i8).to_string(),
        Scalar::I16(value) => integer(value.into(), options.integers),
        Scalar::I32(value) => integer(value, options.integers),
        Scalar::Enum(value) if dbr.wants_meta() && !options.enums_as_numbers => {
            match reading.meta.labels.get(usize::from(value)) {
                Some(label) => String::from_utf8_lossy(label.bytes()).into_owned(),
                None if value >= 16 => format!("Illegal Value ({value})"),
                None => format!("Enum Index Overflow ({value})"),
            }
        }
        Scalar::Enum(value) => value.to_string(),
        other => base::text::scalar(other, 0).to_string(),
    }
}

fn real(options: &Options, value: f64) -> String {
    if let Some(format) = options.rounded {
        let rounded = (if value > 0.0 { value + 0.5 } else { value - 0.5 }).trunc();
        // A value that does not fit becomes `i32::MIN`, as the C tools print it on x86.
        let fits = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&rounded);
        return integer(if fits { rounded as i32 } else { i32::MIN }, format);
    }
    match options.reals {
        Reals::General(digits) => general(value, digits),
        Reals::Exponent(digits) => exponent(value, digits),
        Reals::Fixed(digits) if value.is_finite() => format!("{value:.digits$}"),
        Reals::Fixed(_) => general(value, 6),
    }
}

fn integer(value: i32, format: Integers) -> String {
    match format {
        Integers::Decimal => value.to_string(),
        Integers::Hex => format!("0x{value:X}"),
        Integers::Octal => format!("0o{value:o}"),
        // EPICS prefixes hexadecimal and octal numbers, but not binary ones.
        Integers::Binary => format!("{value:b}"),
    }
}

/// Text with C escape sequences.
pub(super) fn escaped(text: &[u8]) -> String {
    let mut out = String::new();
    for &byte in text {
        match byte {
            b'\x07' => out.push_str("\\a"),
            b'\x08' => out.push_str("\\b"),
            b'\x0c' => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'\x0b' => out.push_str("\\v"),
            b'\\' => out.push_str("\\\\"),
            b'\'' => out.push_str("\\'"),
            b'"' => out.push_str("\\\""),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => drop(write!(out, "\\x{byte:02x}")),
        }
    }
    out
}

/// Replaces C escape sequences in user input. The result is bytes, because the text may not be UTF-8.
pub(super) fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let raw = base::raw::encode(text);
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'a') => out.push(7),
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'v') => out.push(11),
            Some(b'x') => {
                let mut value = 0u8;
                for _ in 0..2 {
                    let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(16)) else { break };
                    value = value << 4 | digit as u8;
                    bytes.next();
                }
                out.push(value);
            }
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(next @ b'0'..=b'7') = bytes.peek().copied() else { break };
                    value = value << 3 | u32::from(next - b'0');
                    bytes.next();
                }
                out.push(value as u8);
            }
            Some(other) => out.push(other),
            // A backslash at the end is dropped, as in EPICS.
            None => {}
        }
    }
    out
}

/// An array of characters as text, if the options ask for that; otherwise `None`.
pub(super) fn long_text(options: &Options, reading: &Reading, one_is_array: bool) -> Option<String> {
    if !options.chars_as_text || !(one_is_array || reading.value.len() > 1) {
        return None;
    }
    match &reading.value {
        Value::Array(base::Array::U8(bytes)) => {
            Some(escaped(bytes.split(|byte| *byte == 0).next().unwrap_or_default()))
        }
        Value::Scalar(Scalar::U8(byte)) => Some(escaped(&[*byte][..usize::from(*byte != 0)])),
        _ => None,
    }
}

/// All elements, joined by the separator.
pub(super) fn elements(options: &Options, dbr: Dbr, reading: &Reading) -> String {
    let each = (0..reading.value.len()).map(|index| element(options, dbr, reading, index));
    each.collect::<Vec<_>>().join(&options.separator.to_string())
}

/// A time stamp in local time, with microseconds.
pub(super) fn stamp(stamp: Stamp) -> String {
    if stamp == Stamp::EPOCH {
        return "<undefined>".into();
    }
    let offset = sys::clock::local_offset_secs(stamp.to_unix().0 as i64);
    let secs = i64::from(stamp.secs).saturating_add(offset).clamp(0, u32::MAX.into()) as u32;
    let local = Stamp { secs, nanos: stamp.rounded_micros() * 1_000 };
    let mut text = local.to_string();
    text.truncate(text.len() - 3);
    text
}

/// The line "name time value status severity" of wide output.
pub(super) fn wide(options: &Options, name: &str, times: &str, dbr: Dbr, reading: &Reading) -> String {
    let separator = options.separator;
    let mut out = lead(options, name, reading.value.len());
    out.push_str(times);
    match long_text(options, reading, options.count > 0) {
        Some(text) => drop(write!(out, "{separator}{text}")),
        None => {
            if options.count > 0 || reading.value.len() > 1 {
                let _ = write!(out, "{separator}{}", reading.value.len());
            }
            for index in 0..reading.value.len() {
                let _ = write!(out, "{separator}{}", element(options, dbr, reading, index));
            }
        }
    }
    let alarm = reading.alarm;
    if alarm == base::Alarm::NONE {
        let _ = write!(out, "{separator}{separator}");
    } else {
        let _ = write!(out, "{separator}{}{separator}{}", alarm.status, alarm.severity);
    }
    out
}

/// The start of a line: the name, padded to a column if there is one value, and the separator.
pub(super) fn lead(options: &Options, name: &str, elements: usize) -> String {
    let separator = options.separator;
    if elements <= 1 && separator == ' ' { format!("{name:<30}{separator}") } else { format!("{name}{separator}") }
}

/// Formats the attributes of a DBR type other than its value.
pub(super) fn details(dbr: Dbr, reading: &Reading) -> String {
    let alarm = reading.alarm;
    let mut out = String::new();
    let parts = dbr.parts();
    if matches!(parts, Some((Class::Time, _))) {
        let _ = writeln!(out, "    Timestamp:        {}", stamp(reading.stamp));
    }
    let _ = write!(out, "    Status:           {}\n    Severity:         {}", alarm.status, alarm.severity);
    if dbr == Dbr::STSACK_STRING {
        let transient = if reading.ackt { "YES" } else { "NO" };
        let _ = write!(out, "\n    Ack transient?:   {transient}\n    Ack severity:     {}", reading.acks);
    }
    let Some((class @ (Class::Gr | Class::Ctrl), basic)) = parts else { return out };
    let meta = &reading.meta;
    match basic {
        Basic::String => return out,
        Basic::Enum => {
            let _ = write!(out, "\n    Enums:            ({:2})", meta.labels.len());
            for (index, label) in meta.labels.iter().enumerate() {
                let _ = write!(out, "\n                      [{index:2}] {}", String::from_utf8_lossy(label.bytes()));
            }
            return out;
        }
        _ => {}
    }
    let _ = write!(out, "\n    Units:            {}", String::from_utf8_lossy(meta.units.bytes()));
    if matches!(basic, Basic::Float | Basic::Double) {
        let _ = write!(out, "\n    Precision:        {}", meta.precision);
    }
    let limit = |value: f64| match basic {
        Basic::Float | Basic::Double => general(value, 6),
        Basic::Char => format!("{:8}", value as u8 as i8),
        _ => format!("{:8}", value as i64),
    };
    let _ = write!(
        out,
        "\n    Lo disp limit:    {}\n    Hi disp limit:    {}\n    Lo alarm limit:   {}\n    Lo warn limit:    {}\
         \n    Hi warn limit:    {}\n    Hi alarm limit:   {}",
        limit(meta.display.low),
        limit(meta.display.high),
        limit(meta.alarm.lolo),
        limit(meta.alarm.low),
        limit(meta.alarm.high),
        limit(meta.alarm.hihi)
    );
    if class == Class::Ctrl {
        let _ = write!(
            out,
            "\n    Lo ctrl limit:    {}\n    Hi ctrl limit:    {}",
            limit(meta.control.low),
            limit(meta.control.high)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::options::{self, Tool};
    use super::*;

    #[test]
    fn escapes_survive_a_round_trip() {
        for text in ["a\tb\n\"q\" \\ '", "\x01\x7f", "plain"] {
            assert_eq!(unescaped(&escaped(text.as_bytes())), text.as_bytes());
        }
        assert_eq!(unescaped("\\101\\x42\\"), b"AB");
    }

    #[test]
    fn numbers_outside_of_32_bits_are_rounded_as_in_c() {
        let rounded = |value: f64| {
            let words = ["-lx".to_owned(), "a".into()];
            let tool = Tool { name: "caget", letters: "l:", anywhere: true, usage: "" };
            real(&options::parse(&tool, &words).unwrap(), value)
        };
        assert_eq!(rounded(2_147_483_646.6), "0x7FFFFFFF");
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e20, 2_147_483_647.5, -2_147_483_648.0] {
            assert_eq!(rounded(value), "0x80000000", "{value}");
        }
    }
}
