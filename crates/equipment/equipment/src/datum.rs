//! Values on their way between a complement and a device, and what may go wrong there.

use base::DurNs;
use msg::Code;
use std::borrow::Cow;
use std::fmt;

/// A value: a number (whole numbers are exact to 2^53), or a text. Labels borrow from the tables, so that nothing is
/// allocated for them.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<'a> {
    /// A number.
    Number(f64),
    /// A text, or the label of an enumeration.
    Text(Cow<'a, str>),
}

impl Datum<'_> {
    /// The number that it is or that its text says.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Text(text) => msg::quantity(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value),
        }
    }

    /// The same value, owned.
    #[must_use]
    pub fn into_owned(self) -> Datum<'static> {
        match self {
            Self::Number(value) => Datum::Number(value),
            Self::Text(text) => Datum::Text(Cow::Owned(text.into_owned())),
        }
    }
}

impl fmt::Display for Datum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => match f.precision() {
                Some(precision) => write!(f, "{value:.precision$}"),
                None => write!(f, "{value}"),
            },
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Why a request was not carried out. Formatting it allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault<'a> {
    /// No row knows the object.
    NoObject,
    /// The object does not have this verb.
    NoVerb {
        /// The verbs that it has.
        has: &'a str,
    },
    /// None of the object's rows has such a complement, whatever its value.
    NoAttribute {
        /// Which one may have been meant.
        meant: Option<&'a str>,
        /// What they have.
        expected: &'a str,
    },
    /// A row has such a complement, but does not take the value in it.
    NoValue {
        /// Which label may have been meant.
        meant: Option<&'a str>,
        /// What the object takes.
        expected: &'a str,
    },
    /// The number has no unit that fits.
    Unit {
        /// The unit of the row.
        expected: &'a str,
    },
    /// A number outside of the row's limits, or where its conversion ends.
    Range {
        /// The number, in the row's unit.
        value: f64,
        /// The limits.
        low: f64,
        /// The limits.
        high: f64,
        /// Their unit.
        unit: &'a str,
    },
    /// No number where one is needed, or a text that does not have the form of its template.
    Form {
        /// What would have been right.
        expected: &'a str,
    },
    /// The device did not do it.
    Device(DeviceFault),
    /// The value was not reached in time.
    NotReached {
        /// Where it stood last.
        stood: f64,
        /// How long it was waited for.
        after: DurNs,
        /// The unit of both.
        unit: &'a str,
    },
}

/// What a device answered instead of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceFault {
    /// It is not there, or did not answer in time: nothing is known of the value.
    Silent(Cow<'static, str>),
    /// It refused, with its reason.
    Refused(Cow<'static, str>),
    /// It is busy; asking again later may help.
    Busy(Cow<'static, str>),
}

impl Fault<'_> {
    /// The reply code that belongs to it.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::NoObject => Code::NoObject,
            Self::NoVerb { .. } | Self::NoAttribute { .. } => Code::NoVerb,
            Self::NoValue { .. } | Self::Unit { .. } | Self::Range { .. } | Self::Form { .. } => Code::Range,
            Self::Device(DeviceFault::Busy(_)) => Code::Busy,
            Self::Device(_) => Code::Device,
            Self::NotReached { .. } => Code::Timeout,
        }
    }
}

/// What may have been meant, in words.
struct Meant<'a>(Option<&'a str>);

impl fmt::Display for Meant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |meant| write!(f, " (did you mean {meant:?}?)"))
    }
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) | Self::Refused(why) | Self::Busy(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoObject => f.write_str("no such object here"),
            Self::NoVerb { has } => write!(f, "the object does not have this verb; expected one of {has}"),
            Self::NoAttribute { meant, expected } => {
                write!(f, "no such attribute{}; expected {expected}", Meant(*meant))
            }
            Self::NoValue { meant, expected } => write!(f, "no such value{}; expected {expected}", Meant(*meant)),
            Self::Unit { expected: "" } => f.write_str("a unit where none belongs; expected a bare number"),
            Self::Unit { expected } => write!(f, "the unit does not fit; expected {expected}, or what converts to it"),
            Self::Range { value, low, high, unit } => {
                write!(f, "{value}{unit} is out of range; expected {low}{unit} to {high}{unit}")
            }
            Self::Form { expected } => write!(f, "not understood; expected {expected}"),
            Self::Device(fault) => fault.fmt(f),
            Self::NotReached { stood, after, unit } => {
                write!(f, "not reached within {after}; the value is {stood}{unit}")
            }
        }
    }
}
