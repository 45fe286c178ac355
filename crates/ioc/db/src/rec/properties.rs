//! What record types say of their fields to displays: units, digits after the point, limits.

use crate::model::deadband::Limits;
use crate::model::link::{Link, ResolvedLink};
use crate::model::slot::Inline;
use base::{AlarmLimits, FieldType, Range, Str40};

/// What a record says of one of its fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    pub(crate) units: Str40,
    /// Digits after the point; `None` where the type says nothing of them.
    pub(crate) precision: Option<i16>,
    /// Whether the type of the field's numbers bounds the digits: whole ones have none, others at most 15.
    pub(crate) bounded: bool,
    /// What a display should show; `None`: what the type of the field's numbers can hold.
    pub(crate) display: Option<Range>,
    /// What may be written; `None` as above.
    pub(crate) control: Option<Range>,
    pub(crate) alarm: AlarmLimits,
    /// The link that feeds the field: units, digits, limits of display and alarm are those of what it leads to, where that
    /// has them.
    pub(crate) link: Option<ResolvedLink>,
}

/// Stands for every field that all records have.
pub(crate) const COMMON: u16 = u16::MAX;

impl Properties {
    /// Of types that say nothing.
    pub(crate) const NONE: Self = Self {
        units: Str40::EMPTY,
        precision: None,
        bounded: false,
        display: Some(Range { low: 0.0, high: 0.0 }),
        control: Some(Range { low: 0.0, high: 0.0 }),
        alarm: AlarmLimits::NONE,
        link: None,
    };

    /// Of types that leave what they do not know to the type of the field's numbers.
    pub(crate) const BOUNDED: Self = Self { bounded: true, display: None, control: None, ..Self::NONE };

    /// Of a field that a link feeds.
    pub(crate) const fn of_link(link: &Link) -> Self {
        Self { link: Some(link.brief()), control: None, ..Self::NONE }
    }

    /// Of a time in seconds that may be as long as a day.
    pub(crate) fn of_delay(display: Range) -> Self {
        let control = Some(Range { low: 0.0, high: 100_000.0 });
        Self { units: Str40::from("s"), precision: Some(2), display: Some(display), control, ..Self::NONE }
    }

    /// With PREC, as it is for the values of the record.
    pub(crate) const fn digits(self, prec: i16, is_value: bool) -> Self {
        Self { precision: Some(prec), bounded: !is_value, ..self }
    }

    /// With the same limits for display and writing.
    pub(crate) const fn within(self, low: f64, high: f64) -> Self {
        let range = Some(Range { low, high });
        Self { display: range, control: range, ..self }
    }
}

/// A number that has limits of alarms.
pub(crate) trait Limit: Copy {
    /// The fields that the record's units are those of.
    const KIND: FieldType;
    /// Whether limits are given that lead to no alarm.
    const ALWAYS: bool = false;
    fn number(self) -> f64;
    /// As a limit of an alarm.
    fn limit(self) -> f64 {
        self.number()
    }
}

impl Limit for f64 {
    const KIND: FieldType = FieldType::F64;
    fn number(self) -> f64 {
        self
    }
}

impl Limit for i32 {
    const KIND: FieldType = FieldType::I32;
    fn number(self) -> f64 {
        self.into()
    }
    /// C's conditional has a float in its other branch.
    fn limit(self) -> f64 {
        (self as f32).into()
    }
}

impl Limit for i64 {
    const KIND: FieldType = FieldType::I64;
    const ALWAYS: bool = true;
    fn number(self) -> f64 {
        self as f64
    }
}

/// Of a field of a record with a number in VAL; `ranged`: LOPR and HOPR, which are `range`, are its limits.
pub(crate) fn of_number<T: Limit>(
    kind: Option<FieldType>,
    [is_val, ranged]: [bool; 2],
    range: [T; 2],
    egu: &Inline<16>,
    limits: &Limits<T>,
) -> Properties {
    let given = |severity: u16, limit: T| if T::ALWAYS || severity != 0 { limit.limit() } else { f64::NAN };
    let mut of = Properties::BOUNDED;
    if kind == Some(T::KIND) {
        of.units = Str40::new(egu.bytes());
    }
    if is_val {
        of.alarm = AlarmLimits {
            hihi: given(limits.hhsv, limits.hihi),
            high: given(limits.hsv, limits.high),
            low: given(limits.lsv, limits.low),
            lolo: given(limits.llsv, limits.lolo),
        };
    }
    if ranged { of.within(range[0].number(), range[1].number()) } else { of }
}

/// The properties of a field of a record with a number in VAL; `$more`: what is in the same units as VAL.
macro_rules! number_properties {
    ($r:ident, $field:ident, $kind:ident $(, $more:pat)?) => {{
        let ranged = matches!(
            $field,
            Self::VAL | Self::HIHI | Self::HIGH | Self::LOW | Self::LOLO | Self::LALM | Self::ALST | Self::MLST
        ) $(|| matches!($field, $more))?;
        let is_val = $field == Self::VAL;
        crate::rec::properties::of_number($kind, [is_val, ranged], [$r.lopr, $r.hopr], &$r.egu, &$r.limits)
    }};
}
pub(crate) use number_properties;
