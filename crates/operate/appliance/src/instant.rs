//! Instants and durations in ISO 8601.

use base::{Utc, days_from_civil};

const SECOND: i64 = 1_000_000_000;

/// Parses `2026-11-23T14:30:05.5Z` to nanoseconds since 1970. Accepts an offset (`+01:00`, `+0100`, `+01`), with a space in place of an
/// unencoded plus sign. `None` if the text is invalid or the result does not fit into 64 bits.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.trim_end().split_once(['T', 't'])?;
    let zone = rest.find(['Z', 'z', '+', '-', ' '])?;
    let (clock, zone) = rest.split_at(zone);
    let offset = offset(zone)?;
    let mut date = date.split('-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, "0"));
    // Digits beyond nanoseconds are ignored. The split position may be within a multi-byte character.
    let (nanos, beyond) = fraction.split_at_checked(fraction.len().min(9))?;
    let mut clock = clock.split(':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next().unwrap_or(Some(0))?);
    let is_over = date.next().is_some() || clock.next().is_some();
    let days_of_month = days_from_civil(year + month / 12, month % 12 + 1, 1) - days_from_civil(year, month, 1);
    let is_date = (1..=12).contains(&month) && (1..=days_of_month).contains(&day);
    if is_over || !is_date || hour > 23 || minute > 59 || second > 60 || fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let nanos = number(nanos)? * 10i64.pow(9 - nanos.len() as u32);
    number(beyond).or(beyond.is_empty().then_some(0))?;
    let secs = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    secs.checked_mul(SECOND)?.checked_add(nanos)
}

/// Offset of a zone from UTC, in seconds.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits = zone.get(1..)?;
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None => digits.split_at_checked(2)?,
    };
    let minutes = if minutes.is_empty() { 0 } else { number(minutes)? };
    let hours = number(hours)?;
    (hours <= 18 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Parses up to nine decimal digits without sign.
fn number(word: &str) -> Option<i64> {
    (word.len() <= 9 && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| word.parse().ok())?
}

/// Parses a duration (`P1D`, `PT90S`, `P1DT12H`) to nanoseconds. Refuses months and years, because their length varies.
pub(crate) fn parse_span(text: &str) -> Option<i64> {
    let (mut sum, mut is_time, mut parts) = (0i64, false, 0);
    let mut digits = String::new();
    for letter in text.strip_prefix('P')?.chars() {
        let unit = match (letter, is_time) {
            ('0'..='9', _) => {
                digits.push(letter);
                continue;
            }
            ('T', false) if digits.is_empty() => {
                is_time = true;
                continue;
            }
            ('W', false) => 604_800,
            ('D', false) => 86_400,
            ('H', true) => 3_600,
            ('M', true) => 60,
            ('S', true) => 1,
            _ => return None,
        };
        sum = number(&digits)?.checked_mul(unit * SECOND)?.checked_add(sum)?;
        digits.clear();
        parts += 1;
    }
    (digits.is_empty() && parts > 0).then_some(sum)
}

/// Formats an instant in UTC: `2026-11-23T14:30:05.500000000Z`. Before 1970: seconds.
pub(crate) fn show(at: i64) -> String {
    let (secs, nanos) = (at.div_euclid(SECOND), at.rem_euclid(SECOND));
    let Ok(secs) = u64::try_from(secs) else { return format!("{secs}.{nanos:09}") };
    let Utc { year, month, day, hour, minute, second } = Utc::of(secs);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_instant_is_the_same_in_every_zone_and_with_a_plus_sign_decoded_as_a_blank() {
        let at = Some(1_795_444_205_500_000_000);
        for text in [
            "2026-11-23T14:30:05.5Z",
            "2026-11-23T14:30:05.500000000000z",
            "2026-11-23T15:30:05.5+01:00",
            "2026-11-23T15:30:05.5 01:00",
            "2026-11-23T15:30:05.500+0100",
            "2026-11-23T09:30:05.5-05",
            "2026-11-23T09:00:05.50-05:30",
        ] {
            assert_eq!(parse(text), at, "{text}");
        }
        assert_eq!(parse("2026-11-23T14:30Z"), Some(1_795_444_200_000_000_000));
        assert_eq!(parse("1969-12-31T23:59:59Z"), Some(-SECOND));
    }

    #[test]
    fn malformed_instants_are_refused() {
        for text in [
            "",
            "now",
            "2026-11-23",
            "2026-11-23T14:30:05",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-23T24:00:00Z",
            "2026-11-23T14:30:05.Z",
            "2026-11-23T14:30:05+25:00",
            "2026-11-23T14:30:05Zulu",
            "9999-01-01T00:00:00Z",
            "2026-11-23T1:2:3:4Z",
            "2026-11-23T14:30:05.12345678é9Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_read() {
        assert_eq!(parse_span("P5D"), Some(432_000 * SECOND));
        assert_eq!(parse_span("P1DT1H1M1S"), Some(90_061 * SECOND));
        assert_eq!(parse_span("P2W"), Some(1_209_600 * SECOND));
        for wrong in ["", "P", "PT", "5D", "P1Y", "P1M", "PT1D", "P1D5", "P999999999W"] {
            assert_eq!(parse_span(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn instants_survive_a_round_trip(at in 0..i64::MAX) {
            prop_assert_eq!(parse(&show(at)), Some(at));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", digits in "[0-9TZ:+. -]{0,40}") {
            let _ = (parse(&text), parse_span(&text), parse(&digits));
        }
    }
}
