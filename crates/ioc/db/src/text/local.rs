//! Time stamps as local-time text, in the format of `epicsTimeToStrftime`.

use base::{Stamp, Utc};
use std::io::Write as _;

/// Formats a Unix time with a `strftime` format into `out` and returns the number of bytes written; `None` if it does not
/// fit.
///
/// Only the operating system knows local time, so the owner of the database supplies this function. It is called when records
/// with `Soft Timestamp` are processed and when the filter `ts` writes a text.
pub type LocalText = fn(unix: u64, format: &str, out: &mut [u8]) -> Option<usize>;

/// Default if no function is supplied: UTC, with `%Y %m %d %H %M %S %z %%`; other text is copied. Does not allocate.
pub(crate) fn utc(unix: u64, format: &str, mut out: &mut [u8]) -> Option<usize> {
    let Utc { year, month, day, hour, minute, second } = Utc::of(unix);
    let room = out.len();
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        let code = if char == '%' { chars.next() } else { None };
        let written = match code {
            Some('Y') => write!(out, "{year:04}"),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('H') => write!(out, "{hour:02}"),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('z') => write!(out, "+0000"),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
            None => write!(out, "{char}"),
        };
        written.ok()?;
    }
    Some(room - out.len())
}

/// Formats a stamp with a `strftime` format plus the EPICS fractions of a second `%f` and `%1f` to `%9f`. Returns the number
/// of bytes written. Does not allocate.
///
/// As in EPICS, text between two fractions is omitted as a whole if it does not fit. A fraction that does not fit becomes
/// stars. Fractions are rounded, but never up to the next second.
pub(crate) fn write(stamp: Stamp, format: &str, out: &mut [u8], local: LocalText) -> usize {
    let (unix, _) = stamp.to_unix();
    let mut at = 0;
    let mut rest = format;
    loop {
        let fraction = find_fraction(rest);
        let plain = fraction.map_or(rest, |(from, ..)| &rest[..from]);
        at += local(unix, plain, &mut out[at..]).unwrap_or(0);
        let Some((_, to, digits)) = fraction else { return at };
        rest = &rest[to..];
        let unit = 10_u32.pow(9 - digits);
        let parts = (stamp.nanos + unit / 2).min(999_999_999) / unit;
        let room = &mut out[at..];
        let width = digits as usize;
        at += match room.get_mut(..width) {
            Some(mut room) => write!(room, "{parts:0width$}").map_or(0, |()| width),
            None => {
                room.fill(b'*');
                room.len()
            }
        };
    }
}

/// Formats a stamp with a `strftime` format plus `%f` of EPICS, at most 255 bytes, with times converted by `local`.
#[must_use]
pub fn stamp_text(stamp: Stamp, format: &str, local: LocalText) -> String {
    let mut out = [0; 255];
    let len = write(stamp, format, &mut out, local);
    String::from_utf8_lossy(&out[..len]).into_owned()
}

/// Start, end and number of digits of the next fraction in a format.
fn find_fraction(format: &str) -> Option<(usize, usize, u32)> {
    let bytes = format.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes.get(at..)?.iter().position(|byte| *byte == b'%') {
        let from = at + found;
        let digits = bytes[from + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let to = from + 1 + digits;
        if bytes.get(to) == Some(&b'f') {
            match &format[from + 1..to] {
                "" => return Some((from, to + 1, 9)),
                // Not a number of digits: copied as it is.
                width if width.bytes().all(|byte| byte == b'0') => {}
                width => return Some((from, to + 1, width.parse::<u32>().map_or(9, |width| width.min(9)))),
            }
        }
        // Skips the letter, which may itself be a percent sign.
        at = to + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: &str, nanos: u32) -> String {
        let mut out = [0; 39];
        let length = write(Stamp::from_unix(1_700_000_000, nanos), format, &mut out, utc);
        String::from_utf8(out[..length].to_vec()).unwrap()
    }

    #[test]
    fn stamps_are_written_as_epics_writes_them() {
        for (format, nanos, expected) in [
            ("%Y-%m-%d %H:%M:%S.%03f", 123_456_489, "2023-11-14 22:13:20.123"),
            ("%f %6f %0f", 666_341_276, "666341276 666341 %0f"),
            ("%12f", 5, "000000005"),
            // Observed with softIoc 7.0.8.1.
            ("%09f %f %6f %0f %12f", 666_341_276, "666341276 666341276 666341 %0f ********"),
            ("a text of more letters than a value can have %3f", 666_403_422, "666"),
            ("%%f %1f", 960_000_000, "%f 9"),
            ("%3f", 999_999_999, "999"),
            ("%", 0, "%"),
            ("", 0, ""),
        ] {
            assert_eq!(text(format, nanos), expected, "{format}");
        }
    }

    #[test]
    fn no_format_panics() {
        for format in ["%99999999999999f", "%9", "%ü%3f", "%%%%%3", "%3", "ü%"] {
            text(format, 1);
        }
    }
}
