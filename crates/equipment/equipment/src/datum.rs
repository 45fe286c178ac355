//! Values between a complement and a device, and their errors.

use base::DurNs;
use msg::Code;
use std::borrow::Cow;
use std::fmt;

/// A value: a number (whole numbers are exact to 2^53) or a text. Labels borrow from the tables, which avoids an allocation.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<'a> {
    /// A number.
    Number(f64),
    /// A text, or the label of an enumeration.
    Text(Cow<'a, str>),
}

impl Datum<'_> {
    /// The number, or the number in the text.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Text(text) => msg::quantity(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value),
        }
    }

    /// Converts to an owned value.
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

/// The reason why a request was not executed. Formatting it does not allocate.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault<'a> {
    /// No row has the object.
    NoObject,
    /// The object does not have this verb.
    NoVerb {
        /// The verbs that the object has.
        has: &'a str,
    },
    /// No row of the object has a complement of this form.
    NoAttribute {
        /// The closest known attribute.
        meant: Option<&'a str>,
        /// The complements that the object accepts.
        expected: &'a str,
    },
    /// A row has a complement of this form, but does not accept its value.
    NoValue {
        /// The closest known label.
        meant: Option<&'a str>,
        /// The complements that the object accepts.
        expected: &'a str,
    },
    /// The unit of the number cannot be converted.
    Unit {
        /// The unit of the row.
        expected: &'a str,
    },
    /// A number outside the row's limits, or outside the range of the conversion.
    Range {
        /// The number, in the row's unit.
        value: f64,
        /// The minimum.
        low: f64,
        /// The maximum.
        high: f64,
        /// The unit of the numbers.
        unit: &'a str,
    },
    /// A missing number, or a text that does not match its template.
    Form {
        /// The expected form.
        expected: &'a str,
    },
    /// The device reported an error.
    Device(DeviceFault),
    /// The value was not reached in time.
    NotReached {
        /// The last value.
        stood: f64,
        /// The time waited.
        after: DurNs,
        /// The unit of the value.
        unit: &'a str,
    },
}

/// The error of an access to a device.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceFault {
    /// The device is absent or did not answer in time. The state of the value is unknown.
    Silent(Cow<'static, str>),
    /// The device refused, with a reason.
    Refused(Cow<'static, str>),
    /// The device is busy. A later retry may succeed.
    Busy(Cow<'static, str>),
}

impl Fault<'_> {
    /// The reply code for this fault.
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

/// The suggestion in a message, if there is one.
struct Suggestion<'a>(Option<&'a str>);

impl fmt::Display for Suggestion<'_> {
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
                write!(f, "no such attribute{}; expected {expected}", Suggestion(*meant))
            }
            Self::NoValue { meant, expected } => write!(f, "no such value{}; expected {expected}", Suggestion(*meant)),
            Self::Unit { expected: "" } => f.write_str("a unit where none belongs; expected a bare number"),
            Self::Unit { expected } => {
                write!(f, "the unit does not fit; expected {expected} or a unit that converts to {expected}")
            }
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
