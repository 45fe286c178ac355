//! Time stamps as texts in local time, as EPICS' `epicsTimeToStrftime` writes them.

use base::{Stamp, Utc};
use std::io::Write as _;

/// Writes a Unix time by a format of `strftime` into `out`, and says how many bytes it took; `None` where they do not fit.
///
/// What local time is only the operating system knows: whoever owns the database gives this. It is called where records
/// with `Soft Timestamp` are processed and where the filter `ts` writes a text.
pub type LocalText = fn(unix: u64, format: &str, out: &mut [u8]) -> Option<usize>;

/// UTC for whoever gave nothing better: `%Y %m %d %H %M %S %z %%`; anything else stays as it is. Does not allocate.
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

/// Writes a stamp by a format of `strftime` with EPICS' `%f` and `%1f` to `%9f`, parts of a second, and says how many
/// bytes it took. Does not allocate.
///
/// As in EPICS, what stands between two parts of a second is left out whole where it does not fit, a part of a second
/// that does not fit is stars, and parts are rounded, but never up to the next second.
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

/// A stamp by a format of `strftime` with EPICS' `%f`, at most 255 bytes; times as `local` has them.
#[must_use]
pub fn stamp_text(stamp: Stamp, format: &str, local: LocalText) -> String {
    let mut out = [0; 255];
    let len = write(stamp, format, &mut out, local);
    String::from_utf8_lossy(&out[..len]).into_owned()
}

/// Where the next part of a second stands in a format, and how many digits it has.
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
                // No number of digits: it stays as it is.
                width if width.bytes().all(|byte| byte == b'0') => {}
                width => return Some((from, to + 1, width.parse::<u32>().map_or(9, |width| width.min(9)))),
            }
        }
        // Past the letter, which may be a percent sign of its own.
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
            // Seen in softIoc 7.0.8.1.
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
