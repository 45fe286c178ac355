//! Parsing and printing of instants.

use base::{DurNs, Stamp};
use std::fmt;

/// A text that is not a valid instant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoInstant(String);

impl fmt::Display for NoInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no instant; expected now, a time before now such as -1h or -7d, or a date and time such as 2026-11-23T14:30:05Z, in UTC unless it ends with a zone such as +01:00",
            self.0
        )
    }
}

impl std::error::Error for NoInstant {}

/// Parses an instant, in nanoseconds since the Unix epoch: `now`, a time before now (`-90min`, `-7d`), or a date and
/// time (`2026-11-23T14:30:05.5Z`). Trailing parts of the time may be omitted. UTC, unless the text ends with a time
/// zone (`+01:00`).
pub(crate) fn parse(text: &str, now: i64) -> Result<i64, NoInstant> {
    let expected = || NoInstant(text.to_owned());
    if text == "now" {
        return Ok(now);
    }
    if text.starts_with('-') {
        // Days are parsed as 24 times the same number of hours.
        let (text, times) = text.strip_suffix('d').map_or((text.to_owned(), 1), |days| (format!("{days}h"), 24));
        let span: DurNs = text.parse().map_err(|_| expected())?;
        return Ok(now.saturating_add(span.0.saturating_mul(times)));
    }
    let (date, time) = text.strip_suffix('Z').unwrap_or(text).split_once(['T', ' ']).unwrap_or((text, ""));
    let (time, zone_secs) = match time.find(['+', '-']) {
        Some(_) if text.ends_with('Z') => return Err(expected()),
        Some(at) => (&time[..at], zone(&time[at..]).ok_or_else(expected)?),
        None => (time, 0),
    };
    let date: Vec<i64> = date.split('-').map(|word| number(word).ok_or_else(expected)).collect::<Result<_, _>>()?;
    let [year, month, day] = date[..] else { return Err(expected()) };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let clock: Vec<i64> = match clock {
        "" => Vec::new(),
        _ => clock.split(':').map(|word| number(word).ok_or_else(expected)).collect::<Result<_, _>>()?,
    };
    let part = |index: usize| clock.get(index).copied().unwrap_or(0);
    let (hour, minute, second) = (part(0), part(1), part(2));
    let is_date = (1970..2262).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || clock.len() > 3 || hour > 23 || minute > 59 || second > 60 || fraction.len() > 9 {
        return Err(expected());
    }
    let nanos = if fraction.is_empty() {
        0
    } else {
        number(fraction).ok_or_else(expected)? * 10i64.pow(9 - fraction.len() as u32)
    };
    let secs = base::days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - zone_secs;
    secs.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(nanos)).ok_or_else(expected)
}

/// Offset of a time zone from UTC in seconds, positive if ahead: `+01:00`, `-0530`, `+1`.
fn zone(text: &str) -> Option<i64> {
    let (sign, digits) = (if text.starts_with('-') { -1 } else { 1 }, &text[1..]);
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 && digits.is_ascii() => digits.split_at(2),
        None => (digits, "0"),
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// An instant as text, in UTC.
pub(crate) fn show(at: i64) -> String {
    let (secs, nanos) = (at.div_euclid(1_000_000_000), at.rem_euclid(1_000_000_000));
    match u64::try_from(secs) {
        Ok(secs) if secs >= base::EPICS_EPOCH_UNIX_SECS => {
            format!("{}Z", Stamp::from_unix(secs, nanos as u32)).replace(' ', "T")
        }
        // Before the EPICS epoch (1990): no valid clock. Print plain seconds.
        _ => format!("{secs}.{nanos:09}"),
    }
}

fn number(word: &str) -> Option<i64> {
    (word.len() <= 9 && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| word.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_parsed_in_their_displayed_form() {
        for at in
            [631_152_000_000_000_000, 951_782_400_123_456_789, 1_795_240_867_000_000_001, 4_102_444_799_999_999_999]
        {
            assert_eq!(parse(&show(at), 0), Ok(at), "{}", show(at));
        }
        let now = 10_000_000_000_000;
        assert_eq!(parse("-1h", now), Ok(now - 3_600_000_000_000));
        assert_eq!(parse("-1.5d", now), parse("-36h", now));
        assert_eq!(parse("2026-11-21", 0), parse("2026-11-21T00:00:00.0Z", 0));
        assert_eq!(parse("2026-11-21 06:01", 0), parse("2026-11-21T06:01:00Z", 0));
        for text in ["2026-11-21T07:01+01:00", "2026-11-21T00:31:00.0-0530", "2026-11-21 08:01:00+2"] {
            assert_eq!(parse(text, 0), parse("2026-11-21T06:01:00Z", 0), "{text}");
        }
    }

    #[test]
    fn malformed_instants_are_refused_with_the_expected_form() {
        for text in [
            "",
            "yesterday",
            "-1",
            "-d",
            "-1hd",
            "2026",
            "2026-13-01",
            "2026-11-21T25:00",
            "2026-11-21T1:2:3:4",
            "2026-11-21T00:00:00+15:00",
            "2026-11-21T00:00:00+01:00Z",
            "2026-11-21T00:00:00+1:2:3",
            "2026-11-21T00:00:00+",
            "99999-01-01",
        ] {
            assert!(parse(text, 0).unwrap_err().to_string().contains("expected now"), "{text}");
        }
    }
}
