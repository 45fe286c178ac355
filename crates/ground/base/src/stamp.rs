//! Time stamps in EPICS' epoch.

use core::fmt;

/// Seconds from 1970-01-01 to 1990-01-01, the start of EPICS' time.
pub const EPICS_EPOCH_UNIX_SECS: u64 = 631_152_000;

/// An instant of wall-clock time: seconds since 1990-01-01 UTC and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Seconds since 1990-01-01 00:00:00 UTC.
    pub secs: u32,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

impl Stamp {
    /// The epoch itself, which means "never".
    pub const EPOCH: Self = Self { secs: 0, nanos: 0 };

    /// From Unix time; an instant before 1990 becomes the epoch.
    #[must_use]
    pub const fn from_unix(secs: u64, nanos: u32) -> Self {
        if secs < EPICS_EPOCH_UNIX_SECS {
            return Self::EPOCH;
        }
        Self { secs: (secs - EPICS_EPOCH_UNIX_SECS) as u32, nanos }
    }

    /// Seconds since 1970, and nanoseconds.
    #[must_use]
    pub const fn to_unix(self) -> (u64, u32) {
        (self.secs as u64 + EPICS_EPOCH_UNIX_SECS, self.nanos)
    }

    /// Microseconds within the second, rounded as EPICS prints them, but never up to the next second.
    #[must_use]
    pub const fn rounded_micros(self) -> u32 {
        let rounded = (self.nanos + 500) / 1_000;
        if rounded < 1_000_000 { rounded } else { 999_999 }
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.secs as u64 * 1_000_000_000 + self.nanos as u64
    }

    /// This instant plus `nanos` nanoseconds.
    #[must_use]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        let total = self.as_nanos().saturating_add(nanos);
        Self { secs: (total / 1_000_000_000) as u32, nanos: (total % 1_000_000_000) as u32 }
    }

    /// Seconds from `earlier` to this instant, negative when `earlier` is later.
    #[must_use]
    pub fn secs_since(self, earlier: Self) -> f64 {
        (self.as_nanos() as f64 - earlier.as_nanos() as f64) / 1e9
    }
}

/// A date and time of the proleptic Gregorian calendar, in UTC, without leap seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    /// The year.
    pub year: u64,
    /// The month, from 1.
    pub month: u64,
    /// The day of the month, from 1.
    pub day: u64,
    /// The hour, from 0.
    pub hour: u64,
    /// The minute.
    pub minute: u64,
    /// The second, below 60.
    pub second: u64,
}

impl Utc {
    /// The date and time at `unix_secs` seconds since 1970 (Howard Hinnant's `civil_from_days`). Neither allocates nor
    /// fails.
    #[must_use]
    pub const fn of(unix_secs: u64) -> Self {
        let (days, rest) = (unix_secs / 86_400, unix_secs % 86_400);
        // Years start in March, so that a leap day is the last.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: year_of_era + era * 400 + (month <= 2) as u64,
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            hour: rest / 3_600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }
}

/// Days from 1970 to a date, negative before 1970 (Howard Hinnant's `days_from_civil`): the inverse of [`Utc::of`].
/// `month` is 1 to 12. A day after the end of its month counts into the next month. Neither allocates nor fails.
#[must_use]
pub const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March, so that a leap day is the last.
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

impl fmt::Display for Stamp {
    /// `YYYY-MM-DD HH:MM:SS.nnnnnnnnn` in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unix, nanos) = self.to_unix();
        let Utc { year, month, day, hour, minute, second } = Utc::of(unix);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{nanos:09}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn stamps_print_as_utc_dates() {
        for (unix, printed) in [
            (631_152_000, "1990-01-01 00:00:00.000000000"),
            (951_782_400, "2000-02-29 00:00:00.000000000"),
            (1_795_240_867, "2026-11-21 06:01:07.000000000"),
            (4_102_444_799, "2099-12-31 23:59:59.000000000"),
        ] {
            assert_eq!(Stamp::from_unix(unix, 0).to_string(), printed);
        }
    }

    #[test]
    fn microseconds_are_rounded_but_not_into_the_next_second() {
        let micros = |nanos| Stamp { secs: 1, nanos }.rounded_micros();
        assert_eq!([499, 500, 999_999_499, 999_999_500].map(micros), [0, 1, 999_999, 999_999]);
    }

    #[test]
    fn an_instant_before_1990_is_the_epoch() {
        assert_eq!(Stamp::from_unix(5, 7), Stamp::EPOCH);
        assert_eq!(Stamp::from_unix(631_152_001, 7).to_unix(), (631_152_001, 7));
    }
}
