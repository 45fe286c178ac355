//! Conversions between numbers and texts, identical to the C code of EPICS on x86-64.
//!
//! Out-of-range numbers give the result of the x86 conversion instructions, which existing databases rely on.

use base::Scalar;
use base::text::{parse_double, to_i32};

/// Like C's `(int64_t)` on x86-64.
#[inline]
pub(crate) fn to_i64(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) { value as i64 } else { i64::MIN }
}

/// Like C's `(uint32_t)` on x86-64.
#[inline]
pub(crate) fn to_u32(value: f64) -> u32 {
    to_i64(value) as u32
}

/// Like C's `(uint64_t)` on x86-64.
#[inline]
pub(crate) fn to_u64(value: f64) -> u64 {
    if value >= 9_223_372_036_854_775_808.0 {
        (to_i64(value - 9_223_372_036_854_775_808.0) as u64) ^ (1 << 63)
    } else {
        to_i64(value) as u64
    }
}

/// Number types of fields.
pub(crate) trait Number: Copy {
    /// From a double, as a C cast.
    fn from_f64(value: f64) -> Self;
    /// From an integer, as a C cast.
    fn from_i64(value: i64) -> Self;
    /// From an unsigned integer, as a C cast.
    fn from_u64(value: u64) -> Self;
    /// Parses text; `None` if it is not a number of this type.
    fn parse(text: &str) -> Option<Self>;
    /// Parses text of a database file. Whole numbers that do not fit lose their upper bits, as in C.
    fn from_file(text: &str) -> Option<Self>;
    /// The number at the start of a text, for floating point types (`None` for other types).
    fn parse_float_prefix(_: &str) -> Option<Option<Self>> {
        None
    }
    /// Whether it is a floating point type.
    const FLOAT: bool;
    /// Whether the type is u32 or u64, whose texts may be written like doubles.
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
            fn from_file(text: &str) -> Option<Self> {
                match Self::MIN as f64 {
                    _ if Self::FLOAT => Self::parse(text),
                    0.0 => parse_u64(text).map(Self::from_u64),
                    _ => parse_i64(text).map(Self::from_i64),
                }
            }
            fn parse_float_prefix(text: &str) -> Option<Option<Self>> {
                Self::FLOAT.then(|| parse_double(text.as_bytes()).map(|(value, _)| value as Self))
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

/// Narrows an unsigned number. Small negative numbers wrap, as in strtoul; others must fit.
fn narrow(value: u64, max: u64) -> Option<u64> {
    (value <= max || value > !max).then_some(value)
}

/// Converts a scalar to a number. Text is parsed as in client puts; `None` if it is not a number.
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
            if text.is_empty() { T::from_i64(0) } else { prefix(text, 10)? }
        }
    })
}

/// The number at the start of a text. `base` 0 accepts C prefixes.
pub(crate) fn prefix<T: Number>(text: &str, base: u32) -> Option<T> {
    let text = text.trim_start();
    if let Some(value) = T::parse_float_prefix(text) {
        return value;
    }
    let sign = usize::from(text.starts_with(['+', '-']));
    let body = &text[sign..];
    let hex = base == 0 && (body.starts_with("0x") || body.starts_with("0X"));
    let digits = if hex {
        2 + body[2..].bytes().take_while(u8::is_ascii_hexdigit).count()
    } else {
        body.bytes().take_while(u8::is_ascii_digit).count()
    };
    let rest = &body[digits..];
    let whole = |digits: usize| {
        if base == 0 {
            return T::parse(&text[..sign + digits]);
        }
        let number = body[..digits].trim_start_matches('0');
        let number = if number.is_empty() { "0" } else { number };
        T::parse(&format!("{}{number}", if text.starts_with('-') { "-" } else { "" }))
    };
    if digits == 0 || (T::WIDE_UNSIGNED && rest.starts_with(['.', 'e', 'E'])) {
        // EPICS reads an unsigned field through a double if the text is written like one and not negative.
        let (value, _) = parse_double(text.as_bytes()).filter(|_| T::WIDE_UNSIGNED)?;
        let fits = value >= 0.0 && value <= T::MAX_F64;
        return if fits { Some(T::from_f64(value)) } else { whole(digits).filter(|_| digits > 0) };
    }
    whole(digits)
}

/// Parses a whole number with C prefixes (`0x`, leading `0`), surrounded by optional blanks.
pub(crate) fn parse_i64(text: &str) -> Option<i64> {
    let (negative, magnitude) = integer(text)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Like [`parse_i64`], unsigned. Negative numbers wrap, as in strtoul.
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

/// Parses a number as EPICS does: the whole text, surrounded by optional blanks, decimal or hexadecimal.
pub(crate) fn parse_f64(text: &str) -> Option<f64> {
    let text = text.trim();
    let (value, len) = parse_double(text.as_bytes())?;
    (len == text.len()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Str40;
    use proptest::prelude::*;

    #[test]
    fn puts_read_decimal_numbers_and_ignore_units() {
        assert_eq!(prefix::<i32>("012 mm", 10), Some(12));
        assert_eq!(prefix::<i32>("0x12", 0), Some(18));
        assert_eq!(prefix::<f64>("1.5V", 10), Some(1.5));
        assert_eq!(prefix::<u32>("1.5e3", 10), Some(1500));
        assert_eq!(prefix::<i16>("40000", 10), None);
        assert_eq!(prefix::<i16>("x", 10), None);
        assert_eq!(prefix::<u8>("-1", 10), Some(255));
        assert_eq!(prefix::<u32>("-2.25", 0), Some(u32::MAX - 1));
    }

    #[test]
    fn out_of_range_numbers_are_converted_as_on_x86() {
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
        assert_eq!(
            (<i32 as Number>::from_file("0xffffffff"), <i16 as Number>::from_file("40000")),
            (Some(-1), Some(-25536))
        );
        assert_eq!((<u8 as Number>::from_file("300"), <u16 as Number>::from_file("-1")), (Some(44), Some(65535)));
        assert_eq!((<i32 as Number>::from_file("1.5"), <f64 as Number>::from_file("1.5")), (None, Some(1.5)));
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
