//! Numbers as text and back, with the same digits as EPICS' C code; and counts with their nouns.
//!
//! Only [`general`] and [`exponent`] allocate: they return a `String`.

use crate::{Scalar, Str40, Str40Writer};
use alloc::string::String;
use core::fmt::{self, Write};

/// As C's `(int32_t)` on x86-64: a value out of range becomes the smallest number.
#[inline]
#[must_use]
pub fn to_i32(value: f64) -> i32 {
    if value > -2_147_483_649.0 && value < 2_147_483_648.0 { value as i32 } else { i32::MIN }
}

/// A count with its noun: `1 round`, `2 rounds`.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a>(pub usize, pub &'a str);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// Maximum number of digits after the point. A double has up to 1074.
pub const DIGITS_MAX: usize = 100;

/// Text on the stack, truncated if too long. A double has up to 309 digits before the point.
pub(crate) struct Scratch {
    bytes: [u8; 512],
    len: usize,
}

impl Scratch {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }

    pub(crate) fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for Scratch {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let take = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// `printf("%.*f")`.
///
/// # Errors
/// Those of `out`.
pub fn write_fixed(out: &mut impl Write, value: f64, precision: usize) -> fmt::Result {
    match value {
        v if v.is_nan() => out.write_str(if v.is_sign_negative() { "-nan" } else { "nan" }),
        v if v.is_infinite() => out.write_str(if v < 0.0 { "-inf" } else { "inf" }),
        v => write!(out, "{v:.*}", precision.min(DIGITS_MAX)),
    }
}

/// `printf("%.*e")`.
///
/// # Errors
/// Those of `out`.
pub fn write_exponent(out: &mut impl Write, value: f64, precision: usize) -> fmt::Result {
    if !value.is_finite() {
        return write_fixed(out, value, 0);
    }
    let mut scratch = Scratch::new();
    write!(scratch, "{value:.*e}", precision.min(DIGITS_MAX))?;
    let (mantissa, exponent) = scratch.text().split_once('e').unwrap_or((scratch.text(), "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    write!(out, "{mantissa}e{sign}{digits:0>2}")
}

/// `printf("%.*g")`; with `zeros` as `%#.*g`, which keeps trailing zeros.
///
/// # Errors
/// Those of `out`.
pub fn write_general(out: &mut impl Write, value: f64, precision: usize, zeros: bool) -> fmt::Result {
    let precision = precision.clamp(1, DIGITS_MAX);
    if !value.is_finite() {
        return write_fixed(out, value, 0);
    }
    let trim = |text: &str| -> usize {
        if zeros || !text.contains('.') {
            return text.len();
        }
        text.trim_end_matches('0').trim_end_matches('.').len()
    };
    let mut probe = Scratch::new();
    write_exponent(&mut probe, value, precision - 1)?;
    let (mantissa, tail) = probe.text().split_once('e').unwrap_or((probe.text(), "+00"));
    let exponent: i32 = tail.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        return write!(out, "{}e{tail}", &mantissa[..trim(mantissa)]);
    }
    let mut plain = Scratch::new();
    write_fixed(&mut plain, value, (precision as i32 - 1 - exponent).max(0) as usize)?;
    out.write_str(&plain.text()[..trim(plain.text())])
}

/// `printf("%.*e")`: at least two digits of exponent, with sign.
#[must_use]
pub fn exponent(value: f64, precision: usize) -> String {
    let mut out = String::new();
    // Writing into a `String` cannot fail.
    let _ = write_exponent(&mut out, value, precision);
    out
}

/// `printf("%.*g")`.
#[must_use]
pub fn general(value: f64, precision: usize) -> String {
    let mut out = String::new();
    // Writing into a `String` cannot fail.
    let _ = write_general(&mut out, value, precision, false);
    out
}

/// `printf("%*.*e")`, truncated after 39 bytes as in EPICS.
fn exponent_form(value: f64, precision: usize, width: usize) -> Str40 {
    let mut scratch = Scratch::new();
    let mut out = Str40Writer::new();
    // Neither can fail: both truncate.
    let _ = write_exponent(&mut scratch, value, precision);
    let _ = write!(out, "{:>width$}", scratch.text());
    out.finish()
}

fn fixed_form(value: f64, precision: usize) -> Str40 {
    let mut out = Str40Writer::new();
    // Cannot fail: it truncates.
    let _ = write_fixed(&mut out, value, precision);
    out.finish()
}

/// A double as EPICS prints it with PREC digits: truncating arithmetic with one digit more up to ±10,000,000, then
/// `%f` with at most three digits, then `%e`.
#[must_use]
pub fn double(value: f64, precision: u16) -> Str40 {
    if value.is_nan() || precision > 8 || value.abs() > 10_000_000.0 {
        if precision > 8 || value.abs() > 1e16 {
            let precision = usize::from(precision.min(17));
            return exponent_form(value, precision, precision + 7);
        }
        return fixed_form(value, usize::from(precision.min(3)));
    }
    rounded(value.abs(), value < 0.0, precision, |fraction, scale| to_i32(fraction * f64::from(scale) * 10.0))
}

/// A float as EPICS prints it with PREC digits.
#[must_use]
pub fn float(value: f32, precision: u16) -> Str40 {
    if value.is_nan() || precision > 8 || value.abs() > 10_000_000.0 {
        if precision > 8 || value.abs() >= 1e8 {
            let precision = usize::from(precision.min(12));
            return exponent_form(f64::from(value), precision, precision + 6);
        }
        return fixed_form(f64::from(value), usize::from(precision.min(3)));
    }
    let scale = |fraction: f64, scale: i32| to_i32(f64::from(fraction as f32 * scale as f32 * 10.0));
    rounded(f64::from(value.abs()), value < 0.0, precision, scale)
}

/// Fixed point with EPICS' rounding: half up, on one more digit than is printed.
fn rounded(value: f64, negative: bool, precision: u16, tenths: impl Fn(f64, i32) -> i32) -> Str40 {
    let mut whole = to_i32(value);
    let scale = 10i32.pow(u32::from(precision));
    let mut fraction = (tenths(value - f64::from(whole), scale).wrapping_add(5)) / 10;
    if fraction / scale >= 1 {
        whole += 1;
        fraction -= scale;
    }
    // A whole number of 8 and a fraction of 8 digits always fit.
    let mut digits = Digits::new();
    if precision > 0 {
        digits.number(u64::from(fraction.unsigned_abs()), usize::from(precision));
        digits.byte(b'.');
    }
    digits.number(u64::from(whole.unsigned_abs()), 1);
    digits.finish(negative)
}

/// Digits from the last to the first. `core::fmt` takes several times as long.
struct Digits {
    bytes: [u8; 32],
    from: usize,
}

impl Digits {
    const fn new() -> Self {
        Self { bytes: [0; 32], from: 32 }
    }

    /// Prepends a byte, if there is room.
    fn byte(&mut self, byte: u8) {
        if self.from > 0 {
            self.from -= 1;
            self.bytes[self.from] = byte;
        }
    }

    /// Prepends a number, with at least `width` digits.
    fn number(&mut self, mut number: u64, width: usize) {
        let end = self.from;
        while number > 0 || end - self.from < width {
            self.byte(b'0' + (number % 10) as u8);
            number /= 10;
        }
    }

    fn finish(mut self, negative: bool) -> Str40 {
        if negative {
            self.byte(b'-');
        }
        Str40::new(&self.bytes[self.from..])
    }
}

/// A whole number as text.
fn whole_text(negative: bool, magnitude: u64) -> Str40 {
    let mut digits = Digits::new();
    digits.number(magnitude, 1);
    digits.finish(negative)
}

/// A value as text. `precision` applies to floating point. State numbers are not replaced by their names.
#[must_use]
pub fn scalar(scalar: Scalar, precision: u16) -> Str40 {
    // An integer of 64 bits has up to 20 digits, so it is not truncated.
    let signed = |value: i64| whole_text(value < 0, value.unsigned_abs());
    let unsigned = |value: u64| whole_text(false, value);
    match scalar {
        Scalar::String(text) => text,
        Scalar::F64(v) => double(v, precision),
        Scalar::F32(v) => float(v, precision),
        Scalar::I8(v) => signed(v.into()),
        Scalar::U8(v) => unsigned(v.into()),
        Scalar::I16(v) => signed(v.into()),
        Scalar::U16(v) | Scalar::Enum(v) => unsigned(v.into()),
        Scalar::I32(v) => signed(v.into()),
        Scalar::U32(v) => unsigned(v.into()),
        Scalar::I64(v) => signed(v),
        Scalar::U64(v) => unsigned(v),
    }
}

/// The floating-point number at the start of a text, which may have leading blanks, and the number of bytes read, as by
/// C's `strtod`: decimal, hexadecimal, `inf`, `nan`. `None` if there is no number, or it is out of a double's range.
#[must_use]
pub fn parse_double(text: &[u8]) -> Option<(f64, usize)> {
    let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let start = blanks + usize::from(matches!(text.get(blanks), Some(b'+' | b'-')));
    let negative = text.get(blanks) == Some(&b'-');
    let body = &text[start..];
    let word = |word: &[u8]| body.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    let signed = |value: f64| if negative { -value } else { value };
    // Most texts are numbers or names, and few of them need three comparisons.
    if matches!(body.first(), Some(b'i' | b'I' | b'n' | b'N')) {
        let words = [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)];
        return words.iter().find(|(name, _)| word(name)).map(|(name, value)| (signed(*value), start + name.len()));
    }
    let count =
        |from: usize, is: fn(&u8) -> bool| body.get(from..).map_or(0, |b| b.iter().take_while(|b| is(b)).count());
    if word(b"0x") {
        let digits = count(2, u8::is_ascii_hexdigit);
        if digits > 0 {
            let hex = body[2..2 + digits].iter();
            let value = hex.fold(0.0, |sum, byte| sum * 16.0 + f64::from(char::from(*byte).to_digit(16).unwrap_or(0)));
            return Some((signed(value), start + 2 + digits));
        }
    }
    let whole = count(0, u8::is_ascii_digit);
    let mut end = whole;
    let mut fraction = 0;
    if body.get(end) == Some(&b'.') {
        fraction = count(end + 1, u8::is_ascii_digit);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if whole + fraction == 0 {
        return None;
    }
    let mantissa = &body[..end];
    if matches!(body.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(body.get(end + 1), Some(b'+' | b'-')));
        let digits = count(end + 1 + sign, u8::is_ascii_digit);
        if digits > 0 {
            end += 1 + sign + digits;
        }
    }
    let value: f64 = core::str::from_utf8(&body[..end]).ok()?.parse().ok()?;
    let nonzero = mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte));
    if value.is_infinite() || (value == 0.0 && nonzero) {
        return None;
    }
    Some((signed(value), start + end))
}

/// A whole decimal number at the start of a text, within `low..=high`. The text after it is ignored.
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

/// [`parse_int`] within 64 bits, as C's `scanf` reads it.
#[must_use]
pub fn leading_int(text: &str) -> Option<i64> {
    parse_int(text.as_bytes(), i64::MIN.into(), i64::MAX.into()).and_then(|value| value.try_into().ok())
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
            (-0.05, 1, "-0.1"),
            (2.46913, 3, "2.469"),
            (0.999, 2, "1.00"),
            (9_999_999.0, 0, "9999999"),
            (1e7, 2, "10000000.00"),
            (12_345_678.125, 2, "12345678.12"),
            (12_345_678.912_3, 8, "12345678.912"),
            (1e17, 2, " 1.00e+17"),
            (1.5, 9, " 1.500000000e+00"),
            (f64::NAN, 2, "nan"),
            (f64::INFINITY, 2, "      inf"),
        ] {
            assert_eq!(double(value, precision).to_str(), expected, "{value} with {precision}");
        }
    }

    #[test]
    fn the_general_format_is_that_of_c() {
        for (value, precision, printed) in [
            (0.1, 6, "0.1"),
            (1e6, 6, "1e+06"),
            (123_456.0, 6, "123456"),
            (1e-5, 6, "1e-05"),
            (3.0, 15, "3"),
            (0.0, 6, "0"),
        ] {
            assert_eq!(general(value, precision), printed);
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
            ("0xg", Some((0.0, 1))),
            ("1e", Some((1.0, 1))),
            ("1e999", None),
            ("1e-999", None),
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
        fn no_text_and_no_number_panics(text in ".{0,50}", value: f64, narrow: f32, precision: u16) {
            let _ = parse_double(text.as_bytes());
            let _ = parse_int(text.as_bytes(), -5, 5);
            let _ = (double(value, precision), float(narrow, precision), general(value, usize::from(precision)));
        }

        #[test]
        fn whole_numbers_are_written_as_rust_writes_them(signed: i64, unsigned: u64, narrow: i8) {
            let all = [Scalar::I64(signed), Scalar::U64(unsigned), Scalar::I8(narrow)].map(|value| scalar(value, 0));
            let expected = alloc::format!("{signed} {unsigned} {narrow}");
            prop_assert_eq!(alloc::format!("{} {} {}", all[0], all[1], all[2]), expected);
        }

        #[test]
        fn moderate_numbers_stay_within_half_a_digit(value in -1e6f64..1e6, precision in 0u16..6) {
            let shown: f64 = double(value, precision).to_str().parse().unwrap();
            prop_assert!((shown - value).abs() <= 0.51 * 10f64.powi(-i32::from(precision)), "{} {}", shown, value);
        }

        #[test]
        fn a_double_printed_with_seventeen_digits_is_read_back_the_same(value: f64) {
            prop_assume!(value.is_finite() && (value == 0.0 || value.is_normal()));
            prop_assert_eq!(parse_double(general(value, 17).as_bytes()).map(|(read, _)| read), Some(value));
        }
    }
}
