//! The value of a result as a function of its completion time.
//!
//! A punctual result has the whole value, [`Worth::WHOLE`]. The value of a late result distinguishes hard, firm and soft real time. These are
//! the time/utility functions of Jensen, Locke and Tokuda (1985), limited to those that fall at a deadline. A missing result has no value.

use crate::{DurNs, ParseUnitError};
use core::fmt;
use core::str::FromStr;

/// A share of a result's value, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Worth(pub u32);

/// Decrease of a result's value after its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Fall {
    /// Linear, to zero after this time.
    Linear(DurNs),
    /// Half-life. Linear between two halvings.
    Half(DurNs),
}

/// Meaning of a late result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Lateness {
    /// The system has failed: no value, and the output must become safe.
    Hard,
    /// No value; the result is discarded.
    Firm,
    /// The value decreases with lateness.
    Soft(Fall),
}

/// The deadline of a result, and the meaning of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ResultDeadline {
    /// Relative deadline, from the time of the request.
    pub at: DurNs,
    /// Meaning of a later result.
    pub late: Lateness,
}

/// Total value of a number of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tally {
    /// Results that were due, including missing ones.
    pub due: u64,
    /// Results after their deadline.
    pub late: u64,
    /// Sum of the values, in millionths of a whole result.
    pub worth: u64,
}

/// Maximum time of a decrease that fits into the encoded form: 2^61 ns.
const SPAN_MAX: u64 = 1 << 61;

impl Worth {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The whole value.
    pub const WHOLE: Self = Self(1_000_000);
}

impl fmt::Display for Worth {
    /// In percent, rounded down, so that an incomplete value is never displayed as 100 %.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} %", self.0 / 10_000, self.0 / 100 % 100)
    }
}

impl Fall {
    /// Remaining value at this time after the deadline.
    #[must_use]
    pub fn at(self, behind: DurNs) -> Worth {
        const WHOLE: u128 = Worth::WHOLE.0 as u128;
        let behind = behind.0.max(0).unsigned_abs();
        let (Self::Linear(span) | Self::Half(span)) = self;
        let span = span.0.max(1).unsigned_abs();
        let left = match self {
            Self::Linear(_) => WHOLE * u128::from(span.saturating_sub(behind)) / u128::from(span),
            Self::Half(_) => {
                let halvings = u32::try_from(behind / span).unwrap_or(u32::MAX);
                // Between two halvings the value falls linearly by half of its value at the first one.
                let (within, whole) = (u128::from(behind % span), 2 * u128::from(span));
                let left = WHOLE * (whole - within) / whole;
                left.checked_shr(halvings).unwrap_or(0)
            }
        };
        Worth(left as u32)
    }
}

impl ResultDeadline {
    /// Value of a result that took this long after its request.
    ///
    /// Real-time: a comparison, and two divisions after the deadline.
    #[must_use]
    pub fn worth(&self, took: DurNs) -> Worth {
        if took <= self.at {
            return Worth::WHOLE;
        }
        match self.late {
            Lateness::Hard | Lateness::Firm => Worth::NONE,
            Lateness::Soft(fall) => fall.at(DurNs(took.0.saturating_sub(self.at.0))),
        }
    }

    /// Time after the request at which a result has no value and must not be output.
    #[must_use]
    pub fn void_after(&self) -> DurNs {
        let longer = match self.late {
            Lateness::Hard | Lateness::Firm => 0,
            Lateness::Soft(Fall::Linear(span)) => span.0,
            // 2^20 is more than a million.
            Lateness::Soft(Fall::Half(span)) => span.0.saturating_mul(20),
        };
        DurNs(self.at.0.saturating_add(longer))
    }

    /// Encoded as two words for shared memory. The first is never 0.
    #[must_use]
    pub fn to_words(&self) -> [u64; 2] {
        let span = |time: DurNs| time.0.max(0).unsigned_abs().min(SPAN_MAX - 1) << 2;
        let late = match self.late {
            Lateness::Hard => 0,
            Lateness::Firm => 1,
            Lateness::Soft(Fall::Linear(time)) => span(time) | 2,
            Lateness::Soft(Fall::Half(time)) => span(time) | 3,
        };
        [self.at.0.max(1).unsigned_abs(), late]
    }

    /// Decodes two words; `None` if the first is 0.
    #[must_use]
    pub fn of_words([at, late]: [u64; 2]) -> Option<Self> {
        let time = DurNs((late >> 2) as i64);
        let late = match late & 3 {
            0 => Lateness::Hard,
            1 => Lateness::Firm,
            2 => Lateness::Soft(Fall::Linear(time)),
            _ => Lateness::Soft(Fall::Half(time)),
        };
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        (at != 0).then_some(Self { at: DurNs(at), late })
    }
}

impl fmt::Display for ResultDeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.late {
            Lateness::Hard => write!(f, "{} hard", self.at),
            Lateness::Firm => write!(f, "{} firm", self.at),
            Lateness::Soft(fall) => write!(f, "{} soft {fall}", self.at),
        }
    }
}

impl fmt::Display for Fall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linear(time) => write!(f, "linear {time}"),
            Self::Half(time) => write!(f, "half {time}"),
        }
    }
}

/// A decrease that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFallError(Option<ParseUnitError>);

impl fmt::Display for ParseFallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected `linear TIME` (nothing is left after it) or `half TIME` (half is left after it, a quarter after twice as long)")?;
        self.0.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

impl core::error::Error for ParseFallError {}

impl FromStr for Fall {
    type Err = ParseFallError;

    /// Reads `linear 10ms` or `half 2ms`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (word, time) = text.trim().split_once(' ').ok_or(ParseFallError(None))?;
        let time: DurNs = time.trim().parse().map_err(|error| ParseFallError(Some(error)))?;
        match word {
            _ if time <= DurNs::ZERO => Err(ParseFallError(None)),
            "linear" => Ok(Self::Linear(time)),
            "half" => Ok(Self::Half(time)),
            _ => Err(ParseFallError(None)),
        }
    }
}

impl Tally {
    /// Adds a result that was due, with its value.
    pub fn add(&mut self, worth: Worth, late: bool) {
        self.due = self.due.saturating_add(1);
        self.late = self.late.saturating_add(late.into());
        self.worth = self.worth.saturating_add(worth.0.into());
    }

    /// Adds another tally.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            due: self.due.saturating_add(more.due),
            late: self.late.saturating_add(more.late),
            worth: self.worth.saturating_add(more.worth),
        }
    }

    /// Obtained share of the maximum value, rounded down; `None` if no result was due.
    #[must_use]
    pub fn share(&self) -> Option<Worth> {
        let share = self.worth.checked_div(self.due)?;
        Some(Worth(u32::try_from(share).unwrap_or(u32::MAX).min(Worth::WHOLE.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString as _;

    const AT: DurNs = DurNs::from_ms(5);

    fn worth(late: Lateness, took_us: i64) -> u32 {
        ResultDeadline { at: AT, late }.worth(DurNs::from_us(took_us)).0
    }

    #[test]
    fn a_result_in_time_has_the_full_value_and_a_late_one_the_value_of_its_kind() {
        let (linear, half) = (Fall::Linear(DurNs::from_ms(10)), Fall::Half(DurNs::from_ms(2)));
        for late in [Lateness::Hard, Lateness::Firm, Lateness::Soft(linear), Lateness::Soft(half)] {
            assert_eq!((worth(late, 0), worth(late, 5_000)), (1_000_000, 1_000_000), "{late:?}");
        }
        assert_eq!((worth(Lateness::Hard, 5_001), worth(Lateness::Firm, 5_001)), (0, 0));
        let soft = |took| worth(Lateness::Soft(linear), took);
        assert_eq!([7_500, 10_000, 15_000, 60_000].map(soft), [750_000, 500_000, 0, 0]);
        let soft = |took| worth(Lateness::Soft(half), took);
        assert_eq!([6_000, 7_000, 9_000, 11_000, 900_000_000].map(soft), [750_000, 500_000, 250_000, 125_000, 0]);
    }

    #[test]
    fn falls_survive_a_round_trip_and_others_are_refused() {
        for text in ["linear 10ms", "half 250us"] {
            assert_eq!(text.parse::<Fall>().unwrap().to_string(), text);
        }
        for text in ["", "linear", "linear 0s", "half -1ms", "step 1ms", "half 1 parsec"] {
            assert!(text.parse::<Fall>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn less_than_the_full_value_is_never_displayed_as_100_percent() {
        let mut tally = Tally::default();
        assert_eq!(tally.share(), None);
        (0..999_999).for_each(|_| tally.add(Worth::WHOLE, false));
        tally.add(Worth::NONE, true);
        assert_eq!(tally.share().unwrap().to_string(), "99.99 %");
        assert_eq!((Worth::WHOLE.to_string(), Worth(973_456).to_string()), ("100.00 %".into(), "97.34 %".into()));
    }

    fn any_deadline() -> impl Strategy<Value = ResultDeadline> {
        let span = (1i64..=1 << 50).prop_map(DurNs);
        let late = prop_oneof![
            Just(Lateness::Hard),
            Just(Lateness::Firm),
            span.clone().prop_map(|time| Lateness::Soft(Fall::Linear(time))),
            span.clone().prop_map(|time| Lateness::Soft(Fall::Half(time))),
        ];
        (span, late).prop_map(|(at, late)| ResultDeadline { at, late })
    }

    proptest! {
        #[test]
        fn the_value_of_a_result_never_grows_with_its_lateness(deadline in any_deadline(), took in 0i64..=i64::MAX, more in 0i64..=1 << 52) {
            let (sooner, later) = (deadline.worth(DurNs(took)), deadline.worth(DurNs(took.saturating_add(more))));
            prop_assert!(later <= sooner && sooner <= Worth::WHOLE);
            prop_assert!(took <= deadline.void_after().0 || sooner == Worth::NONE);
        }

        #[test]
        fn the_value_falls_without_a_step_at_a_soft_deadline_and_at_each_halving(span in 1_000_000i64..=1 << 50, halvings in 0i64..40) {
            let fall = Fall::Half(DurNs(span));
            let border = span * halvings;
            let (before, after) = (fall.at(DurNs(border - 1)).0, fall.at(DurNs(border + 1)).0);
            prop_assert!(before - after <= 3, "{before} {after}");
        }

        #[test]
        fn a_deadline_survives_a_round_trip(deadline in any_deadline()) {
            prop_assert_eq!(ResultDeadline::of_words(deadline.to_words()), Some(deadline));
        }

        #[test]
        fn no_words_panic(at: u64, late: u64, took: i64) {
            let _ = ResultDeadline::of_words([at, late]).map(|deadline| deadline.worth(DurNs(took)));
        }
    }
}
