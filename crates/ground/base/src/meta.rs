//! Properties of a value in addition to its number: units, precision, limits, state names.

use crate::value::Str40;
use alloc::vec::Vec;

/// A lower and an upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// Limits at which alarms start. NaN if the record has no such limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlarmLimits {
    /// Lower alarm limit.
    pub lolo: f64,
    /// Lower warning limit.
    pub low: f64,
    /// Upper warning limit.
    pub high: f64,
    /// Upper alarm limit.
    pub hihi: f64,
}

impl AlarmLimits {
    /// No limits.
    pub const NONE: Self = Self { lolo: f64::NAN, low: f64::NAN, high: f64::NAN, hihi: f64::NAN };
}

/// The properties of a field, as control and display clients request them.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// Engineering units.
    pub units: Str40,
    /// Digits after the point.
    pub precision: i16,
    /// Digits after the point in texts of the field's numbers, if different.
    pub text_precision: Option<u16>,
    /// Display limits.
    pub display: Range,
    /// Control limits.
    pub control: Range,
    /// Alarm limits.
    pub alarm: AlarmLimits,
    /// Names of the states of an enumeration, by number.
    pub labels: Vec<Str40>,
    /// Text for a number beyond all states; if `None`, the number itself.
    pub beyond: Option<Str40>,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            units: Str40::EMPTY,
            precision: 0,
            text_precision: None,
            display: Range::default(),
            control: Range::default(),
            alarm: AlarmLimits::NONE,
            labels: Vec::new(),
            beyond: None,
        }
    }
}
