//! Field properties for displays: units, precision, limits.

use crate::model::deadband::Limits;
use crate::model::link::{Link, ResolvedLink};
use crate::model::slot::Inline;
use base::{AlarmLimits, FieldType, Range, Str40};

/// Properties of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    pub(crate) units: Str40,
    /// Digits after the point; `None` if the record type does not define them.
    pub(crate) precision: Option<i16>,
    /// Whether the field's numeric type limits the digits: 0 for integers, at most 15 for others.
    pub(crate) bounded: bool,
    /// Display range; `None` means the range of the field's numeric type.
    pub(crate) display: Option<Range>,
    /// Control range; `None` means the range of the field's numeric type.
    pub(crate) control: Option<Range>,
    pub(crate) alarm: AlarmLimits,
    /// Input link of the field. Units, precision, display and alarm limits are taken from the link's target, if it has them.
    pub(crate) link: Option<ResolvedLink>,
}

/// Field number that represents all common fields.
pub(crate) const COMMON: u16 = u16::MAX;

impl Properties {
    /// Properties of a type that defines none.
    pub(crate) const NONE: Self = Self {
        units: Str40::EMPTY,
        precision: None,
        bounded: false,
        display: Some(Range { low: 0.0, high: 0.0 }),
        control: Some(Range { low: 0.0, high: 0.0 }),
        alarm: AlarmLimits::NONE,
        link: None,
    };

    /// Properties of a type that leaves undefined ones to the field's numeric type.
    pub(crate) const BOUNDED: Self = Self { bounded: true, display: None, control: None, ..Self::NONE };

    /// Properties of a field with an input link.
    pub(crate) const fn of_link(link: &Link) -> Self {
        Self { link: Some(link.brief()), control: None, ..Self::NONE }
    }

    /// Properties of a delay in seconds (control range 0 to 100,000 s).
    pub(crate) fn of_delay(display: Range) -> Self {
        let control = Some(Range { low: 0.0, high: 100_000.0 });
        Self { units: Str40::from("s"), precision: Some(2), display: Some(display), control, ..Self::NONE }
    }

    /// Sets the precision to PREC. `is_value`: the field is a value of the record, so its type does not limit the digits.
    pub(crate) const fn digits(self, prec: i16, is_value: bool) -> Self {
        Self { precision: Some(prec), bounded: !is_value, ..self }
    }

    /// Sets the same range for display and control.
    pub(crate) const fn within(self, low: f64, high: f64) -> Self {
        let range = Some(Range { low, high });
        Self { display: range, control: range, ..self }
    }
}

/// A numeric type with alarm limits.
pub(crate) trait Limit: Copy {
    /// Type of the fields that have the record's units.
    const KIND: FieldType;
    /// Whether limits without an alarm severity are reported too.
    const ALWAYS: bool = false;
    fn number(self) -> f64;
    /// The number as an alarm limit.
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
    /// C converts the limit to float, because the other branch of its conditional is a float.
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

/// Properties of a field of a record with a numeric VAL. `ranged`: the limits of the field are LOPR and HOPR, given in
/// `range`.
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

/// Properties of a field of a record with a numeric VAL. `$more` lists further fields with the range of VAL.
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
