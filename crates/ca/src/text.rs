//! Numbers as text and back, digit by digit as EPICS' own conversions do.

use base::{Scalar, Str40, Str40Writer};
use std::fmt::Write as _;

/// A double as text with `precision` digits after the point.
///
/// Like EPICS: truncating arithmetic with one guard digit up to ±10,000,000, then `%f` with at most three
/// digits, then `%e`.
#[must_use]
pub fn double(value: f64, precision: i16) -> Str40 {
    let precision = precision as u16;
    if value.is_nan() || precision > 8 || value.abs() > 1e7 {
        if precision > 8 || value.abs() > 1e16 {
            let precision = precision.min(17);
            return exponent(value, precision, usize::from(precision) + 7);
        }
        return fixed(value, precision.min(3));
    }
    let whole = value.abs() as i32;
    digits(
        value < 0.0,
        whole,
        ((value.abs() - f64::from(whole)) * SCALES[usize::from(precision)] * 10.0) as i32,
        precision,
    )
}

/// A float as text with `precision` digits after the point.
#[must_use]
pub fn float(value: f32, precision: i16) -> Str40 {
    let precision = precision as u16;
    if value.is_nan() || precision > 8 || value.abs() > 1e7 {
        if precision > 8 || value.abs() >= 1e8 {
            let precision = precision.min(12);
            return exponent(f64::from(value), precision, usize::from(precision) + 6);
        }
        return fixed(f64::from(value), precision.min(3));
    }
    let whole = value.abs() as i32;
    let fraction = value.abs() - whole as f32;
    let scale = SCALES[usize::from(precision)] as i32 as f32;
    digits(value < 0.0, whole, (fraction * scale * 10.0) as i32, precision)
}

const SCALES: [f64; 9] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];

fn digits(negative: bool, mut whole: i32, guarded: i32, precision: u16) -> Str40 {
    let scale = SCALES[usize::from(precision)] as i32;
    let mut fraction = (guarded.wrapping_add(5)) / 10;
    if fraction / scale >= 1 {
        whole += 1;
        fraction -= scale;
    }
    let sign = if negative { "-" } else { "" };
    let mut out = Str40Writer::new();
    let _ = if precision == 0 {
        write!(out, "{sign}{whole}")
    } else {
        write!(out, "{sign}{whole}.{fraction:0width$}", width = usize::from(precision))
    };
    out.finish()
}

fn fixed(value: f64, precision: u16) -> Str40 {
    let mut out = Str40Writer::new();
    let _ = if value.is_nan() {
        write!(out, "{}", not_a_number(value))
    } else if value.is_infinite() {
        write!(out, "{}", if value > 0.0 { "inf" } else { "-inf" })
    } else {
        write!(out, "{value:.width$}", width = usize::from(precision))
    };
    out.finish()
}

const fn not_a_number(value: f64) -> &'static str {
    if value.is_sign_negative() { "-nan" } else { "nan" }
}

/// C's `%*.*e`.
fn exponent(value: f64, precision: u16, width: usize) -> Str40 {
    let mut out = Str40Writer::new();
    let _ = write!(out, "{:>width$}", c_exponent(value, usize::from(precision)));
    out.finish()
}

/// C's `%.{precision}e`: at least two digits of exponent, with sign.
#[must_use]
pub fn c_exponent(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return not_a_number(value).to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// C's `%.{precision}g`.
#[must_use]
pub fn c_general(value: f64, precision: usize) -> String {
    let precision = precision.max(1);
    if !value.is_finite() {
        return c_exponent(value, 0);
    }
    let probe = c_exponent(value, precision - 1);
    let exponent: i32 = probe.split_once('e').and_then(|(_, text)| text.parse().ok()).unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let (mantissa, tail) = probe.split_once('e').unwrap_or((&probe, "+00"));
        return format!("{}e{tail}", without_zeros(mantissa));
    }
    let text = format!("{value:.width$}", width = (precision as i32 - 1 - exponent).max(0) as usize);
    without_zeros(&text).to_owned()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// A number as text; state names are the caller's business.
#[must_use]
pub fn scalar(value: Scalar, precision: i16) -> Str40 {
    let mut out = Str40Writer::new();
    let _ = match value {
        Scalar::String(text) => return text,
        Scalar::F64(v) => return double(v, precision),
        Scalar::F32(v) => return float(v, precision),
        Scalar::I8(v) => write!(out, "{v}"),
        Scalar::U8(v) => write!(out, "{v}"),
        Scalar::I16(v) => write!(out, "{v}"),
        Scalar::U16(v) | Scalar::Enum(v) => write!(out, "{v}"),
        Scalar::I32(v) => write!(out, "{v}"),
        Scalar::U32(v) => write!(out, "{v}"),
        Scalar::I64(v) => write!(out, "{v}"),
        Scalar::U64(v) => write!(out, "{v}"),
    };
    out.finish()
}

/// A floating-point number at the start of `text` (blanks before it allowed), C's `strtod`: decimal,
/// hexadecimal, `inf`, `nan`. Returns the number and the bytes read.
#[must_use]
pub fn parse_double(text: &[u8]) -> Option<(f64, usize)> {
    let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let body = &text[blanks..];
    let signed = matches!(body.first(), Some(b'+' | b'-'));
    let negative = body.first() == Some(&b'-');
    let digits = &body[usize::from(signed)..];
    let start = blanks + usize::from(signed);
    let apply = |value: f64| if negative { -value } else { value };
    let starts = |word: &[u8]| digits.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    for (word, value) in [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)] {
        if starts(word) {
            return Some((apply(value), start + word.len()));
        }
    }
    if starts(b"0x") {
        let hex = digits[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let value = digits[2..2 + hex]
            .iter()
            .fold(0.0, |sum, &byte| sum * 16.0 + f64::from((byte as char).to_digit(16).unwrap_or(0)));
        return if hex == 0 { Some((0.0, start + 1)) } else { Some((apply(value), start + 2 + hex)) };
    }
    let mut end = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut any = end > 0;
    if digits.get(end) == Some(&b'.') {
        let fraction = digits[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        any |= fraction > 0;
        end += usize::from(any) + fraction;
    }
    if !any {
        return None;
    }
    if matches!(digits.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(digits.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits[end + 1 + sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let value: f64 = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    Some((apply(value), start + end))
}

/// A whole decimal number at the start of `text`, within `low..=high`; what follows it is ignored.
#[must_use]
pub fn parse_int(text: &[u8], low: i128, high: i128) -> Option<i128> {
    let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let body = &text[blanks..];
    let negative = body.first() == Some(&b'-');
    let digits = &body[usize::from(matches!(body.first(), Some(b'+' | b'-')))..];
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if len == 0 {
        return None;
    }
    let mut value = 0i128;
    for byte in &digits[..len] {
        value = value.saturating_mul(10).saturating_add(i128::from(byte - b'0'));
    }
    let value = if negative { -value } else { value };
    (low..=high).contains(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_print_as_epics_prints_them() {
        for (value, precision, printed) in [
            (1.5, 0, "2"),
            (1.234_567, 3, "1.235"),
            (-0.05, 1, "-0.1"),
            (0.999_9, 2, "1.00"),
            (9_999_999.0, 0, "9999999"),
            (12_345_678.9, 1, "12345678.9"),
            (12_345_678.912_3, 8, "12345678.912"),
            (1e17, 2, " 1.00e+17"),
            (1.0, 9, "     1.000000000e+00"),
            (f64::NAN, 2, "nan"),
            (f64::INFINITY, 2, "      inf"),
            (0.0, 0, "0"),
        ] {
            assert_eq!(double(value, precision).to_str().trim_start(), printed.trim_start(), "{value} {precision}");
        }
        assert_eq!(double(1e17, 2).to_str(), " 1.00e+17");
    }

    #[test]
    fn general_format_is_that_of_c() {
        for (value, precision, printed) in [
            (0.1, 6, "0.1"),
            (1e6, 6, "1e+06"),
            (123_456.0, 6, "123456"),
            (1e-5, 6, "1e-05"),
            (3.0, 15, "3"),
            (0.0, 6, "0"),
        ] {
            assert_eq!(c_general(value, precision), printed);
        }
    }

    #[test]
    fn numbers_are_read_as_strtod_reads_them() {
        for (text, expected) in [
            ("1.5e3V", Some((1500.0, 5))),
            (" -2", Some((-2.0, 3))),
            (".5", Some((0.5, 2))),
            ("5.", Some((5.0, 2))),
            ("0x10", Some((16.0, 4))),
            ("1e", Some((1.0, 1))),
            ("volt", None),
            ("", None),
            (".", None),
        ] {
            assert_eq!(parse_double(text.as_bytes()), expected, "{text:?}");
        }
        assert!(parse_double(b"NaN").unwrap().0.is_nan());
    }

    proptest! {
        #[test]
        fn no_text_and_no_number_panics(text in ".{0,50}", value: f64, narrow: f32, precision: i16) {
            let _ = parse_double(text.as_bytes());
            let _ = parse_int(text.as_bytes(), -5, 5);
            let _ = (double(value, precision), float(narrow, precision), c_general(value, 6));
        }

        #[test]
        fn moderate_numbers_stay_within_half_a_digit(value in -1e6f64..1e6, precision in 0i16..6) {
            let shown: f64 = double(value, precision).to_str().parse().unwrap();
            prop_assert!((shown - value).abs() <= 0.51 * 10f64.powi(-i32::from(precision)), "{} {}", shown, value);
        }
    }
}
