//! Quantities with units: times, rates, sizes, as in files and on command lines.

use core::fmt;
use core::ops::{Add, Sub};
use core::str::FromStr;

/// A time span in nanoseconds. Negative if an event was early. Parses `250us`, `1.5ms`, `60s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DurNs(pub i64);

/// An instant of `CLOCK_MONOTONIC`, in nanoseconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct MonoNs(pub u64);

/// A rate in millihertz, so that 0.1 Hz is exact. Parses `1kHz`, `50 Hz`, `0.5Hz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hz {
    /// Thousandths of a hertz.
    pub milli: u64,
}

/// An amount of memory in bytes. Parses `64KiB`, `1MiB`, `2G` (powers of 1024) and plain bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// Error of a text that is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseUnitError {
    /// No decimal number at the start.
    Number {
        /// The expected form.
        example: &'static str,
    },
    /// A unit that this quantity does not have.
    Unit {
        /// The units of this quantity.
        expected: &'static str,
    },
    /// Too large, or finer than the smallest step.
    Range {
        /// The limits.
        expected: &'static str,
    },
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { example } => write!(f, "expected a number with its unit, such as \"{example}\""),
            Self::Unit { expected } => write!(f, "expected one of the units {expected}"),
            Self::Range { expected } => write!(f, "out of range: {expected}"),
        }
    }
}

impl core::error::Error for ParseUnitError {}

impl DurNs {
    /// A span of zero.
    pub const ZERO: Self = Self(0);

    /// Whole microseconds.
    #[must_use]
    pub const fn from_us(us: i64) -> Self {
        Self(us * 1_000)
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// The same span as `std`'s type. A negative one becomes zero.
    #[must_use]
    pub const fn to_std(self) -> core::time::Duration {
        core::time::Duration::from_nanos(if self.0 < 0 { 0 } else { self.0 as u64 })
    }
}

impl Add<DurNs> for MonoNs {
    type Output = Self;
    /// Saturates at both ends of the clock.
    fn add(self, span: DurNs) -> Self {
        Self(self.0.saturating_add_signed(span.0))
    }
}

impl Sub for MonoNs {
    type Output = DurNs;
    /// Time since `other`; saturates beyond 292 years.
    fn sub(self, other: Self) -> DurNs {
        let span = i128::from(self.0) - i128::from(other.0);
        DurNs(span.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }
}

impl Hz {
    /// The period of this rate, rounded to the nanosecond.
    ///
    /// # Panics
    /// Never: a parsed or made rate is not zero.
    #[must_use]
    pub fn period(self) -> DurNs {
        DurNs(((1_000_000_000_000 + self.milli / 2) / self.milli.max(1)) as i64)
    }
}

/// A decimal number in units of `10^-9`, and the rest of the text.
fn decimal(text: &str) -> Option<(i128, &str)> {
    let text = text.trim();
    let (negative, body) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let (digits, unit) = body.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 20 || fraction.len() > 9 {
        return None;
    }
    let digit = |value: i128, byte: u8| value * 10 + i128::from(byte - b'0');
    let whole = whole.bytes().fold(0, digit);
    let fraction = fraction.bytes().chain(core::iter::repeat_n(b'0', 9 - fraction.len())).fold(0, digit);
    let value = whole * 1_000_000_000 + fraction;
    Some((if negative { -value } else { value }, unit.trim()))
}

impl FromStr for DurNs {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (value, unit) = decimal(text).ok_or(ParseUnitError::Number { example: "250us" })?;
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "min" | "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" if value == 0 => 1,
            _ => return Err(ParseUnitError::Unit { expected: "ns, us, ms, s, min, h" }),
        };
        let ns = value.checked_mul(scale).and_then(|scaled| i64::try_from(scaled / 1_000_000_000).ok());
        ns.map(Self).ok_or(ParseUnitError::Range { expected: "at most 292 years" })
    }
}

impl fmt::Display for DurNs {
    /// Prints with the largest unit that needs at most three decimals: `1.5ms`, `250us`, `60s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0.unsigned_abs() {
            0 => return f.write_str("0s"),
            n if n >= 1_000_000_000 && n % 1_000_000 == 0 => (1_000_000_000, "s"),
            n if n >= 1_000_000 && n % 1_000 == 0 => (1_000_000, "ms"),
            n if n >= 1_000 => (1_000, "us"),
            _ => (1, "ns"),
        };
        let magnitude = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (magnitude / scale, magnitude % scale * 1_000 / scale);
        match rest {
            0 => write!(f, "{sign}{whole}{unit}"),
            r if r % 100 == 0 => write!(f, "{sign}{whole}.{}{unit}", r / 100),
            r if r % 10 == 0 => write!(f, "{sign}{whole}.{:02}{unit}", r / 10),
            r => write!(f, "{sign}{whole}.{r:03}{unit}"),
        }
    }
}

impl FromStr for Hz {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (value, unit) = decimal(text).ok_or(ParseUnitError::Number { example: "1kHz" })?;
        let scale = match unit {
            "Hz" => 1_000,
            "kHz" => 1_000_000,
            "MHz" => 1_000_000_000,
            _ => return Err(ParseUnitError::Unit { expected: "Hz, kHz, MHz" }),
        };
        match value.checked_mul(scale).and_then(|scaled| u64::try_from(scaled / 1_000_000_000).ok()) {
            Some(milli) if (1..=1_000_000_000_000).contains(&milli) => Ok(Self { milli }),
            _ => Err(ParseUnitError::Range { expected: "0.001 Hz to 1000 MHz" }),
        }
    }
}

impl fmt::Display for Hz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.milli {
            m if m >= 1_000_000 && m % 1_000_000 == 0 => write!(f, "{}kHz", m / 1_000_000),
            m if m % 1_000 == 0 => write!(f, "{}Hz", m / 1_000),
            m => write!(f, "{}.{:03}Hz", m / 1_000, m % 1_000),
        }
    }
}

impl FromStr for Size {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (value, unit) = decimal(text).ok_or(ParseUnitError::Number { example: "64MiB" })?;
        let shift: u32 = match unit {
            "" | "B" => 0,
            "K" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            "T" | "TiB" => 40,
            _ => return Err(ParseUnitError::Unit { expected: "B, KiB, MiB, GiB, TiB" }),
        };
        let bytes = value.checked_mul(1_i128 << shift).and_then(|scaled| u64::try_from(scaled / 1_000_000_000).ok());
        bytes.map(Self).ok_or(ParseUnitError::Range { expected: "0 to 16 EiB" })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 30 && n % (1 << 30) == 0 => write!(f, "{}GiB", n >> 30),
            n if n >= 1 << 20 && n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}B"),
        }
    }
}

#[cfg(feature = "serde")]
mod as_text {
    use super::{DurNs, Hz, Size};

    macro_rules! as_text {
        ($type:ty, $expecting:literal) => {
            impl serde::Serialize for $type {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
            impl<'de> serde::Deserialize<'de> for $type {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Visitor;
                    impl serde::de::Visitor<'_> for Visitor {
                        type Value = $type;
                        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                            f.write_str($expecting)
                        }
                        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                            text.parse().map_err(E::custom)
                        }
                    }
                    deserializer.deserialize_str(Visitor)
                }
            }
        };
    }

    as_text!(DurNs, "a time such as \"250us\"");
    as_text!(Hz, "a rate such as \"1kHz\"");
    as_text!(Size, "a size such as \"64MiB\"");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn times_are_read_and_printed_in_one_canonical_form() {
        for (given, ns, printed) in [
            ("250us", 250_000, "250us"),
            ("1.5 ms", 1_500_000, "1.5ms"),
            ("60s", 60_000_000_000, "60s"),
            ("1min", 60_000_000_000, "60s"),
            ("-3us", -3_000, "-3us"),
            ("0", 0, "0s"),
            ("1234567ns", 1_234_567, "1234.567us"),
            ("7ns", 7, "7ns"),
        ] {
            let parsed: DurNs = given.parse().unwrap();
            assert_eq!((parsed.0, parsed.to_string().as_str()), (ns, printed), "{given}");
        }
    }

    #[test]
    fn a_time_without_its_unit_is_refused() {
        assert_eq!("250".parse::<DurNs>(), Err(ParseUnitError::Unit { expected: "ns, us, ms, s, min, h" }));
        assert!("us".parse::<DurNs>().is_err());
        assert!("1e3s".parse::<DurNs>().is_err());
        assert!("99999999999h".parse::<DurNs>().is_err());
    }

    #[test]
    fn a_rate_is_converted_to_its_period() {
        assert_eq!("1kHz".parse::<Hz>().unwrap().period(), DurNs::from_ms(1));
        assert_eq!("4001 Hz".parse::<Hz>().unwrap().period(), DurNs(249_938));
        assert_eq!("0.5Hz".parse::<Hz>().unwrap().period(), DurNs::from_secs(2));
        assert!("0Hz".parse::<Hz>().is_err());
    }

    #[test]
    fn sizes_count_in_powers_of_1024() {
        assert_eq!("64KiB".parse::<Size>().unwrap(), Size(65_536));
        assert_eq!("1.5M".parse::<Size>().unwrap().to_string(), "1536KiB");
        assert!("-1B".parse::<Size>().is_err());
        let (nearly_all, too_much) = ("18446744073709551615", "99999999999999999999TiB");
        assert_eq!(nearly_all.parse(), Ok(Size(u64::MAX)), "twenty digits are read, and printed sizes read back");
        assert_eq!(too_much.parse::<Size>(), Err(ParseUnitError::Range { expected: "0 to 16 EiB" }));
    }

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        assert_eq!(MonoNs(5) + DurNs(-9), MonoNs(0));
        assert_eq!(MonoNs(u64::MAX) - MonoNs(0), DurNs(i64::MAX));
        assert_eq!(MonoNs(3) - MonoNs(10), DurNs(-7));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = text.parse::<DurNs>();
            let _ = text.parse::<Hz>();
            let _ = text.parse::<Size>();
        }

        #[test]
        fn printed_times_are_read_back_exactly_below_a_second(ns in -999_999_999i64..999_999_999) {
            let printed = DurNs(ns).to_string();
            prop_assert_eq!(printed.parse::<DurNs>().unwrap(), DurNs(ns));
        }
    }
}
