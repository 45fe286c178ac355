//! One `%` directive of C's printf: the format of a value as text.

use crate::text::{self, Scratch};
use alloc::vec::Vec;
use core::fmt::Write;

/// Maximum width of a field. C has no such limit, but it bounds the memory.
pub const WIDTH_MAX: usize = 4096;

/// Flags, width and precision of a directive such as `%-8.3f`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directive {
    /// `-`: blanks follow the value.
    pub left: bool,
    /// `+`: positive numbers have a sign too.
    pub plus: bool,
    /// Blank: positive numbers have a blank in the place of their sign.
    pub blank: bool,
    /// `#`: prefixes of octal and hexadecimal numbers, zeros of `%g`.
    pub alternate: bool,
    /// `0`: numbers are filled with zeros.
    pub zero: bool,
    /// Minimum number of bytes, up to [`WIDTH_MAX`].
    pub width: usize,
    /// Digits after the point, minimum digits of an integer, or maximum bytes of a text.
    pub precision: Option<usize>,
}

impl Directive {
    /// Writes sign or prefix, padding and digits.
    fn number(&self, out: &mut Vec<u8>, prefix: &str, digits: &str, zeros: bool) {
        let len = prefix.len() + digits.len();
        let fill = self.width.min(WIDTH_MAX).saturating_sub(len);
        let zeros = self.zero && !self.left && zeros;
        if !self.left && !zeros {
            out.extend(core::iter::repeat_n(b' ', fill));
        }
        out.extend_from_slice(prefix.as_bytes());
        if zeros {
            out.extend(core::iter::repeat_n(b'0', fill));
        }
        out.extend_from_slice(digits.as_bytes());
        if self.left {
            out.extend(core::iter::repeat_n(b' ', fill));
        }
    }

    const fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.blank) {
            (true, _, _) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    /// `%d`, `%i`.
    pub fn signed(&self, out: &mut Vec<u8>, value: i64) {
        let mut digits = Scratch::new();
        let least = self.precision.unwrap_or(1).min(text::DIGITS_MAX);
        if value != 0 || least > 0 {
            // Cannot fail: the scratch truncates, and it is large enough.
            let _ = write!(digits, "{:0least$}", value.unsigned_abs());
        }
        self.number(out, self.sign(value < 0), digits.text(), self.precision.is_none());
    }

    /// `%u`, `%o`, `%x`, `%X`. Any other letter counts as `u`.
    pub fn unsigned(&self, out: &mut Vec<u8>, value: u64, conversion: u8) {
        let mut digits = Scratch::new();
        let least = self.precision.unwrap_or(1).min(text::DIGITS_MAX);
        if value != 0 || least > 0 {
            // Cannot fail: the scratch truncates, and it is large enough.
            let _ = match conversion {
                b'o' => write!(digits, "{value:0least$o}"),
                b'x' => write!(digits, "{value:0least$x}"),
                b'X' => write!(digits, "{value:0least$X}"),
                _ => write!(digits, "{value:0least$}"),
            };
        }
        let prefix = match (self.alternate, conversion) {
            (true, b'x') if value != 0 => "0x",
            (true, b'X') if value != 0 => "0X",
            (true, b'o') if !digits.text().starts_with('0') => "0",
            _ => "",
        };
        self.number(out, prefix, digits.text(), self.precision.is_none());
    }

    /// `%f`, `%e`, `%g` and their capitals. Any other letter counts as `g`.
    pub fn float(&self, out: &mut Vec<u8>, value: f64, conversion: u8) {
        let mut digits = Scratch::new();
        let precision = self.precision.unwrap_or(6);
        let magnitude = value.abs();
        // Cannot fail: the scratch truncates, and it is large enough.
        let _ = match conversion.to_ascii_lowercase() {
            b'f' => text::write_fixed(&mut digits, magnitude, precision),
            b'e' => text::write_exponent(&mut digits, magnitude, precision),
            _ => text::write_general(&mut digits, magnitude, precision, self.alternate),
        };
        if self.alternate && value.is_finite() && !digits.text().contains('.') {
            let mut pointed = Scratch::new();
            let at = digits.text().find('e').unwrap_or(digits.text().len());
            let _ = write!(pointed, "{}.{}", &digits.text()[..at], &digits.text()[at..]);
            digits = pointed;
        }
        let before = out.len();
        self.number(out, self.sign(value.is_sign_negative()), digits.text(), value.is_finite());
        if conversion.is_ascii_uppercase() {
            out[before..].make_ascii_uppercase();
        }
    }

    /// `%s`.
    pub fn text(&self, out: &mut Vec<u8>, value: &[u8]) {
        let value = &value[..value.len().min(self.precision.unwrap_or(usize::MAX))];
        let fill = self.width.min(WIDTH_MAX).saturating_sub(value.len());
        if !self.left {
            out.extend(core::iter::repeat_n(b' ', fill));
        }
        out.extend_from_slice(value);
        if self.left {
            out.extend(core::iter::repeat_n(b' ', fill));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    const PLAIN: Directive =
        Directive { left: false, plus: false, blank: false, alternate: false, zero: false, width: 0, precision: None };

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_laid_out_as_printf_does_it() {
        let check = |directive: Directive, value: i64, expected: &str| {
            assert_eq!(shown(|out| directive.signed(out, value)), expected, "{directive:?} {value}");
        };
        check(Directive { width: 5, ..PLAIN }, 42, "   42");
        check(Directive { width: 5, zero: true, ..PLAIN }, -42, "-0042");
        check(Directive { width: 5, left: true, zero: true, ..PLAIN }, 42, "42   ");
        check(Directive { plus: true, ..PLAIN }, 42, "+42");
        check(Directive { precision: Some(4), width: 6, zero: true, ..PLAIN }, 42, "  0042");
        check(Directive { precision: Some(0), ..PLAIN }, 0, "");
        assert_eq!(shown(|out| Directive { alternate: true, ..PLAIN }.unsigned(out, 255, b'x')), "0xff");
        assert_eq!(shown(|out| Directive { alternate: true, ..PLAIN }.unsigned(out, 8, b'o')), "010");
        assert_eq!(shown(|out| PLAIN.float(out, 1.5, b'f')), "1.500000");
        assert_eq!(
            shown(|out| Directive { precision: Some(3), width: 10, ..PLAIN }.float(out, -1e10, b'E')),
            "-1.000E+10"
        );
        assert_eq!(shown(|out| Directive { alternate: true, ..PLAIN }.float(out, 1.0, b'g')), "1.00000");
        assert_eq!(shown(|out| Directive { zero: true, width: 5, ..PLAIN }.float(out, f64::INFINITY, b'f')), "  inf");
    }

    #[test]
    fn texts_are_cut_and_padded() {
        assert_eq!(shown(|out| Directive { width: 6, precision: Some(3), ..PLAIN }.text(out, b"abcdef")), "   abc");
        assert_eq!(shown(|out| Directive { width: 4, left: true, ..PLAIN }.text(out, b"ab")), "ab  ");
    }
}
