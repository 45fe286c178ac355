//! Numbers and texts into each other, as EPICS' C code does it on this machine.
//!
//! Out-of-range numbers give what x86's conversion instructions give: that is what users' databases run on today.

use base::{Scalar, Str40, Str40Writer};
use std::fmt::Write;

/// As C's `(int64_t)` on x86-64.
#[inline]
pub(crate) fn to_i64(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) { value as i64 } else { i64::MIN }
}

/// As C's `(int32_t)` on x86-64.
#[inline]
pub(crate) fn to_i32(value: f64) -> i32 {
    if value > -2_147_483_649.0 && value < 2_147_483_648.0 { value as i32 } else { i32::MIN }
}

/// As C's `(uint32_t)` on x86-64.
#[inline]
pub(crate) fn to_u32(value: f64) -> u32 {
    to_i64(value) as u32
}

/// As C's `(uint64_t)` on x86-64.
#[inline]
pub(crate) fn to_u64(value: f64) -> u64 {
    if value >= 9_223_372_036_854_775_808.0 {
        (to_i64(value - 9_223_372_036_854_775_808.0) as u64) ^ (1 << 63)
    } else {
        to_i64(value) as u64
    }
}

/// Numbers that every field type can become.
pub(crate) trait Number: Copy {
    /// From a double, as C casts.
    fn from_f64(value: f64) -> Self;
    /// From an integer, as C casts.
    fn from_i64(value: i64) -> Self;
    /// From an unsigned integer, as C casts.
    fn from_u64(value: u64) -> Self;
    /// From text; `None` where the text is no such number.
    fn parse(text: &str) -> Option<Self>;
    /// The number at the start of a text, for floating point types (`None`: not such a type).
    fn parse_float_prefix(_: &str) -> Option<Option<Self>> {
        None
    }
    /// Whether it is a floating point type.
    const FLOAT: bool;
    /// Whether it is u32 or u64, whose texts may be written like doubles.
    const WIDE_UNSIGNED: bool;
    /// The largest value.
    const MAX_F64: f64;
}

macro_rules! number {
    ($($type:ty, $cast:expr, $parse:expr;)*) => {
        $(impl Number for $type {
            #[inline]
            fn from_f64(value: f64) -> Self {
                $cast(value) as Self
            }
            #[inline]
            fn from_i64(value: i64) -> Self {
                value as Self
            }
            #[inline]
            fn from_u64(value: u64) -> Self {
                value as Self
            }
            fn parse(text: &str) -> Option<Self> {
                $parse(text)
            }
            fn parse_float_prefix(text: &str) -> Option<Option<Self>> {
                Self::FLOAT.then(|| strtod(text.as_bytes()).map(|(value, _)| value as Self))
            }
            const FLOAT: bool = 0.5 as Self > 0 as Self;
            const WIDE_UNSIGNED: bool = !Self::FLOAT && size_of::<Self>() >= 4 && Self::MAX as f64 > 4e9 && Self::MIN as f64 == 0.0;
            const MAX_F64: f64 = Self::MAX as f64;
        })*
    };
}
number! {
    i8, to_i32, |text| parse_i64(text).and_then(|v| i8::try_from(v).ok());
    u8, to_i32, |text| parse_u64(text).and_then(|v| narrow(v, 0xff)).map(|v| v as u8);
    i16, to_i32, |text| parse_i64(text).and_then(|v| i16::try_from(v).ok());
    u16, to_i32, |text| parse_u64(text).and_then(|v| narrow(v, 0xffff)).map(|v| v as u16);
    i32, to_i32, |text| parse_i64(text).and_then(|v| i32::try_from(v).ok());
    u32, to_u32, |text| parse_u64(text).and_then(|v| narrow(v, 0xffff_ffff)).map(|v| v as u32);
    i64, to_i64, parse_i64;
    u64, to_u64, parse_u64;
    f32, |v: f64| v, |text| parse_f64(text).map(|v| v as f32);
    f64, |v: f64| v, parse_f64;
}

/// Small negative numbers wrap, as strtoul has it; others must fit.
fn narrow(value: u64, max: u64) -> Option<u64> {
    (value <= max || value > !max).then_some(value)
}

/// A scalar as a number; text is read as clients' puts are, and `None` where it is no number.
#[inline]
pub(crate) fn number<T: Number>(scalar: Scalar) -> Option<T> {
    Some(match scalar {
        Scalar::F64(v) => T::from_f64(v),
        Scalar::F32(v) => T::from_f64(f64::from(v)),
        Scalar::I8(v) => T::from_i64(i64::from(v)),
        Scalar::U8(v) => T::from_u64(u64::from(v)),
        Scalar::I16(v) => T::from_i64(i64::from(v)),
        Scalar::U16(v) | Scalar::Enum(v) => T::from_u64(u64::from(v)),
        Scalar::I32(v) => T::from_i64(i64::from(v)),
        Scalar::U32(v) => T::from_u64(u64::from(v)),
        Scalar::I64(v) => T::from_i64(v),
        Scalar::U64(v) => T::from_u64(v),
        Scalar::String(text) => {
            let text = text.to_str();
            // An empty text is zero.
            if text.is_empty() { T::from_i64(0) } else { crate::put::prefix(text, 10)? }
        }
    })
}

/// A whole number with C's prefixes (`0x`, leading `0`); blanks around it.
pub(crate) fn parse_i64(text: &str) -> Option<i64> {
    let (negative, magnitude) = integer(text)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// As [`parse_i64`], unsigned; negative numbers wrap as strtoul has it.
pub(crate) fn parse_u64(text: &str) -> Option<u64> {
    let (negative, magnitude) = integer(text)?;
    Some(if negative { magnitude.wrapping_neg() } else { magnitude })
}

fn integer(text: &str) -> Option<(bool, u64)> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok().map(|magnitude| (negative, magnitude))
}

/// A number as EPICS reads it: all of the text, blanks around it, hexadecimal too.
pub(crate) fn parse_f64(text: &str) -> Option<f64> {
    let text = text.trim();
    let (value, len) = strtod(text.as_bytes())?;
    (len == text.len()).then_some(value)
}

/// The number at the start of a text, and its length; `None` where there is none or it is out of range.
pub(crate) fn strtod(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let negative = text.first() == Some(&b'-');
    let body = &text[sign..];
    let word = |word: &[u8]| body.len() >= word.len() && body[..word.len()].eq_ignore_ascii_case(word);
    let signed = |value: f64| if negative { -value } else { value };
    if word(b"infinity") {
        return Some((signed(f64::INFINITY), sign + 8));
    }
    if word(b"inf") {
        return Some((signed(f64::INFINITY), sign + 3));
    }
    if word(b"nan") {
        return Some((f64::NAN, sign + 3));
    }
    if word(b"0x") && body.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let digits = body[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let value = body[2..2 + digits]
            .iter()
            .fold(0.0, |sum, byte| sum * 16.0 + f64::from(char::from(*byte).to_digit(16).unwrap_or(0)));
        return Some((signed(value), sign + 2 + digits));
    }
    let digits = |from: usize| body[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    let mut fraction = 0;
    if body.get(end) == Some(&b'.') {
        fraction = digits(end + 1);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if whole + fraction == 0 {
        return None;
    }
    if matches!(body.get(end), Some(b'e' | b'E')) {
        let exponent_sign = usize::from(matches!(body.get(end + 1), Some(b'+' | b'-')));
        let exponent = body
            .get(end + 1 + exponent_sign..)
            .map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
        if exponent > 0 {
            end += 1 + exponent_sign + exponent;
        }
    }
    let value: f64 = std::str::from_utf8(&body[..end]).ok()?.parse().ok()?;
    let mantissa = body[..end].split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let nonzero = mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte));
    if value.is_infinite() || (value == 0.0 && nonzero) {
        return None;
    }
    Some((signed(value), sign + end))
}

/// `printf("%.*e")`, right-aligned in `width`.
fn exponent_form(out: &mut impl Write, value: f64, precision: usize, width: usize) {
    let mut text = String::with_capacity(32);
    write_exponent(&mut text, value, precision);
    // A text that is too long is cut by the receiver, as EPICS cuts it.
    let _ = write!(out, "{text:>width$}");
}

/// `printf("%.*e")`.
pub(crate) fn write_exponent(out: &mut String, value: f64, precision: usize) {
    if !value.is_finite() {
        write_plain(out, value, 0);
        return;
    }
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    let _ = write!(out, "{mantissa}e{sign}{digits:0>2}");
}

/// `printf("%.*f")`.
pub(crate) fn write_plain(out: &mut impl Write, value: f64, precision: usize) {
    let _ = match value {
        v if v.is_nan() => out.write_str(if v.is_sign_negative() { "-nan" } else { "nan" }),
        v if v.is_infinite() => out.write_str(if v < 0.0 { "-inf" } else { "inf" }),
        v => write!(out, "{v:.precision$}"),
    };
}

/// A double as EPICS prints it with PREC digits.
pub(crate) fn f64_to_text(value: f64, precision: u16) -> Str40 {
    let mut out = Str40Writer::new();
    if value.is_nan() || precision > 8 || value.abs() > 10_000_000.0 {
        if precision > 8 || value.abs() > 1e16 {
            let precision = usize::from(precision.min(17));
            exponent_form(&mut out, value, precision, precision + 7);
        } else {
            write_plain(&mut out, value, usize::from(precision.min(3)));
        }
    } else {
        fixed(&mut out, value.abs(), value < 0.0, precision, |fraction, scale| {
            to_i32(fraction * f64::from(scale) * 10.0)
        });
    }
    out.finish()
}

/// A float as EPICS prints it with PREC digits.
pub(crate) fn f32_to_text(value: f32, precision: u16) -> Str40 {
    let mut out = Str40Writer::new();
    if value.is_nan() || precision > 8 || value.abs() > 10_000_000.0 {
        if precision > 8 || value.abs() >= 1e8 {
            let precision = usize::from(precision.min(12));
            exponent_form(&mut out, f64::from(value), precision, precision + 6);
        } else {
            write_plain(&mut out, f64::from(value), usize::from(precision.min(3)));
        }
    } else {
        let scale = |fraction: f64, scale: i32| to_i32(f64::from(fraction as f32 * scale as f32 * 10.0));
        fixed(&mut out, f64::from(value.abs()), value < 0.0, precision, scale);
    }
    out.finish()
}

/// Fixed point with EPICS' own rounding, half up on one digit more than is shown.
fn fixed(out: &mut impl Write, value: f64, negative: bool, precision: u16, tenths: impl Fn(f64, i32) -> i32) {
    let mut whole = to_i32(value);
    let scale = 10i32.pow(u32::from(precision));
    let mut fraction = (tenths(value - f64::from(whole), scale).wrapping_add(5)) / 10;
    if fraction / scale >= 1 {
        whole += 1;
        fraction -= scale;
    }
    let sign = if negative { "-" } else { "" };
    let width = usize::from(precision);
    // What does not fit 39 bytes is cut: a whole number of 8 and a fraction of 8 digits always fit.
    let _ = if precision > 0 { write!(out, "{sign}{whole}.{fraction:0width$}") } else { write!(out, "{sign}{whole}") };
}

/// A number as text; `precision` counts for floating point.
pub(crate) fn scalar_to_text(scalar: Scalar, precision: u16) -> Str40 {
    let mut out = Str40Writer::new();
    // Integers of 64 bits have at most 20 digits: nothing is cut.
    let _ = match scalar {
        Scalar::String(text) => return text,
        Scalar::F64(v) => return f64_to_text(v, precision),
        Scalar::F32(v) => return f32_to_text(v, precision),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_print_as_epics_prints_them() {
        for (value, precision, expected) in [
            (0.0, 0, "0"),
            (1.5, 0, "2"),
            (2.5, 0, "3"),
            (-1.25, 1, "-1.3"),
            (2.46913, 3, "2.469"),
            (0.999, 2, "1.00"),
            (1e7, 2, "10000000.00"),
            (12345678.125, 2, "12345678.12"),
            (1e17, 2, " 1.00e+17"),
            (1.5, 9, " 1.500000000e+00"),
            (f64::NAN, 2, "nan"),
            (f64::INFINITY, 2, "      inf"),
        ] {
            assert_eq!(f64_to_text(value, precision).to_str(), expected, "{value} with {precision}");
        }
    }

    #[test]
    fn out_of_range_numbers_become_what_x86_makes_of_them() {
        assert_eq!((to_i32(1e10), to_i32(f64::NAN), to_i32(-2_147_483_648.5)), (i32::MIN, i32::MIN, i32::MIN));
        assert_eq!((to_u32(-1.0), to_u32(4_294_967_296.0)), (u32::MAX, 0));
        assert_eq!(<u16 as Number>::from_f64(65_537.0), 1);
        assert_eq!(<u8 as Number>::from_f64(-1.0), 255);
    }

    #[test]
    fn texts_become_numbers() {
        assert_eq!(parse_f64(" 1e3 "), Some(1000.0));
        assert_eq!(parse_f64("0x10"), Some(16.0));
        assert_eq!(parse_f64("1e999"), None);
        assert_eq!(parse_f64("1x"), None);
        assert_eq!(parse_i64("-010"), Some(-8));
        assert_eq!(<u8 as Number>::parse("256"), None);
        assert_eq!(<u8 as Number>::parse("-1"), Some(255));
        assert_eq!(number::<f64>(Scalar::String(Str40::EMPTY)), Some(0.0));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = parse_f64(&text);
            let _ = parse_i64(&text);
            let _ = parse_u64(&text);
        }
    }
}
