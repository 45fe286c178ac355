//! Records as normative types: `NTScalar`, `NTScalarArray` and `NTEnum`, with alarm, time stamp and properties.
//!
//! A [`Layout`] is the type that a field is served as. Sets of its fields are 64-bit masks, because it has fewer than 64
//! nodes. [`Layout::encode`] writes fields from a [`View`] of the record without intermediate values.

use crate::codec::{Kind, Mask, Order, Reader, Struct, Type, Value, Writer};
use base::{Alarm, Annotation, EventMask, Meta, Scalar, Severity, Stamp, Status, Str40};
use std::sync::Arc;

mod read;
mod written;

pub use read::{Parts, Place, from_base, is_enum};
pub use written::{Unfit, Written, short_text};

/// The choices of `display.form`.
const FORMS: [&str; 7] = ["Default", "String", "Binary", "Decimal", "Hex", "Exponential", "Engineering"];

/// The shape of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One value.
    Scalar(Kind),
    /// A variable number of values.
    Array(Kind),
    /// A number with names of its states.
    Enum,
    /// A structure that is no record's field, such as a group. Its values are not encoded by a [`Layout`].
    Structure,
}

/// The `info` tags of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Number of the lowest bits of the nanoseconds that are the user tag, by `Q:time:tag`.
    pub tag_bits: u8,
    /// Index of the choice of `display.form`, by `Q:form`.
    pub form: u8,
}

impl Hints {
    /// No tags.
    pub const NONE: Self = Self { tag_bits: 0, form: 0 };

    /// The number of bits of `Q:time:tag`, such as `nsec:lsb:20`; `None` if the text has another form.
    #[must_use]
    pub fn tag_bits(text: &str) -> Option<u8> {
        text.strip_prefix("nsec:lsb:")?.parse().ok().filter(|bits| *bits <= 31)
    }

    /// The index of `Q:form`, such as `Hex`; `None` if it is none of the choices.
    #[must_use]
    pub fn form(text: &str) -> Option<u8> {
        FORMS.iter().position(|form| *form == text).map(|index| index as u8)
    }
}

/// A record's field with all data that may be sent.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The value in the type of the field.
    pub value: &'a base::Value,
    /// The record's alarm.
    pub alarm: Alarm,
    /// The time when the record was last processed.
    pub stamp: Stamp,
    /// The record's user tag and alarm message.
    pub note: Annotation,
    /// How the field is shown.
    pub hints: Hints,
    /// Units, limits and names of states. Used only for properties.
    pub meta: &'a Meta,
    /// The record's description. Used only for properties.
    pub description: Str40,
}

/// No properties, for updates without them.
const NO_META: &Meta = &Meta {
    units: Str40::EMPTY,
    precision: 0,
    text_precision: None,
    display: base::Range { low: 0.0, high: 0.0 },
    control: base::Range { low: 0.0, high: 0.0 },
    alarm: base::AlarmLimits::NONE,
    labels: Vec::new(),
    beyond: None,
};

impl<'a> View<'a> {
    /// A value without properties.
    #[must_use]
    pub const fn of_value(value: &'a base::Value, alarm: Alarm, stamp: Stamp, note: Annotation) -> Self {
        Self { value, alarm, stamp, note, hints: Hints::NONE, meta: NO_META, description: Str40::EMPTY }
    }
}

/// The type that a field is served as, with the places of its parts.
#[derive(Debug)]
pub struct Layout {
    shape: Shape,
    ty: Type,
    value: u64,
    alarm: u64,
    time: u64,
    properties: u64,
}

/// Bits from `first` up to but not including `end`.
const fn bits(first: u32, end: u32) -> u64 {
    ((1 << (end - first)) - 1) << first
}

/// A structure of few fields.
///
/// # Panics
/// If there are more fields than a structure may have.
#[must_use]
pub fn structure(id: &str, fields: &[(&str, Type)]) -> Arc<Struct> {
    let fields = fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())).collect();
    Struct::new(id, fields).unwrap_or_else(|_| unreachable!("these types have few fields"))
}

/// The type of the field `alarm`.
#[must_use]
pub fn alarm_type() -> Type {
    let (int, text) = (Type::Scalar(Kind::I32), Type::Scalar(Kind::Text));
    Type::Struct(structure("alarm_t", &[("severity", int.clone()), ("status", int), ("message", text)]))
}

/// The type of the field `timeStamp`.
#[must_use]
pub fn time_type() -> Type {
    let (int, seconds) = (Type::Scalar(Kind::I32), Type::Scalar(Kind::I64));
    let fields = [("secondsPastEpoch", seconds), ("nanoseconds", int.clone()), ("userTag", int)];
    Type::Struct(structure("time_t", &fields))
}

impl Layout {
    /// The type of a shape.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        let (int, text) = (Type::Scalar(Kind::I32), Type::Scalar(Kind::Text));
        let part = |id: &str, fields: &[(&str, Type)]| Type::Struct(structure(id, fields));
        let choices = [("index", int.clone()), ("choices", Type::Array(Kind::Text))];
        let choices = part("enum_t", &choices);
        let (id, kind, value) = match shape {
            Shape::Scalar(kind) => ("epics:nt/NTScalar:1.0", Some(kind), Type::Scalar(kind)),
            Shape::Array(kind) => ("epics:nt/NTScalarArray:1.0", Some(kind), Type::Array(kind)),
            Shape::Enum => ("epics:nt/NTEnum:1.0", None, choices.clone()),
            Shape::Structure => return Self::of_structure(structure("", &[])),
        };
        let mut fields = vec![("value", value), ("alarm", alarm_type()), ("timeStamp", time_type())];
        let properties = match kind {
            None => {
                fields.push(("display", part("", &[("description", text)])));
                bits(3, 4) | bits(13, 14)
            }
            Some(Kind::Text) => {
                fields.push(("display", part("", &[("description", text.clone()), ("units", text)])));
                bits(11, 13)
            }
            Some(kind) => {
                let limit = Type::Scalar(kind);
                let display = [
                    ("limitLow", limit.clone()),
                    ("limitHigh", limit.clone()),
                    ("description", text.clone()),
                    ("units", text),
                    ("precision", int.clone()),
                    ("form", choices),
                ];
                let control = [("limitLow", limit.clone()), ("limitHigh", limit.clone()), ("minStep", limit.clone())];
                let alarms = [
                    ("active", Type::Scalar(Kind::Bool)),
                    ("lowAlarmLimit", limit.clone()),
                    ("lowWarningLimit", limit.clone()),
                    ("highWarningLimit", limit.clone()),
                    ("highAlarmLimit", limit),
                    ("lowAlarmSeverity", int.clone()),
                    ("lowWarningSeverity", int.clone()),
                    ("highWarningSeverity", int.clone()),
                    ("highAlarmSeverity", int),
                    ("hysteresis", Type::Scalar(Kind::F64)),
                ];
                fields.push(("display", part("", &display)));
                fields.push(("control", part("", &control)));
                fields.push(("valueAlarm", part("", &alarms)));
                let precision = if matches!(kind, Kind::F32 | Kind::F64) { bits(15, 16) } else { 0 };
                bits(11, 15) | precision | bits(17, 19) | bits(20, 22) | bits(25, 29)
            }
        };
        // An enumeration has two nodes more in its value.
        let shift = if kind.is_none() { 2 } else { 0 };
        let value = if kind.is_none() { bits(2, 3) } else { bits(1, 2) };
        let (alarm, time) = (bits(3 + shift, 6 + shift), bits(7 + shift, 10 + shift));
        Self { shape, ty: Type::Struct(structure(id, &fields)), value, alarm, time, properties }
    }

    /// The layout of a structure that is no record's field, such as a group.
    #[must_use]
    pub(crate) const fn of_structure(ty: Arc<Struct>) -> Self {
        Self { shape: Shape::Structure, ty: Type::Struct(ty), value: 0, alarm: 0, time: 0, properties: 0 }
    }

    /// The shape of the field.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// The bit of the value.
    pub(crate) const fn value(&self) -> u64 {
        self.value
    }

    /// The bits of the alarm.
    pub(crate) const fn alarm(&self) -> u64 {
        self.alarm
    }

    /// The bits of the time stamp.
    pub(crate) const fn time(&self) -> u64 {
        self.time
    }

    /// The fields that are ever sent, with the names that lead to them.
    pub(crate) fn leaves(&self) -> Vec<(u32, Vec<&str>)> {
        fn walk<'a>(ty: &'a Type, bit: u32, path: &[&'a str], out: &mut Vec<(u32, Vec<&'a str>)>) {
            let Some(fields) = ty.fields() else {
                out.push((bit, path.to_vec()));
                return;
            };
            let mut next = bit + 1;
            for (name, ty) in fields.fields() {
                walk(ty, next, &[path, &[name.as_str()]].concat(), out);
                next += ty.nodes();
            }
        }
        let mut out = Vec::new();
        walk(&self.ty, 0, &[], &mut out);
        out.retain(|(bit, _)| self.all() >> bit & 1 == 1);
        out
    }

    /// One of the [`leaves`](Self::leaves) as a type and a value.
    pub(crate) fn leaf(&self, bit: u32, view: &View<'_>) -> (Type, Value) {
        let mut out = Writer::new(Order::Little);
        self.encode(1 << bit, view, &mut out);
        let ty = leaf_type(&self.ty, bit).cloned().unwrap_or(Type::Any);
        let value = Reader::new(&out.bytes, Order::Little).value(&ty);
        debug_assert!(value.is_ok(), "what is encoded can be decoded");
        let value = value.unwrap_or_else(|_| Value::zero(&ty));
        (ty, value)
    }

    /// The type.
    #[must_use]
    pub const fn ty(&self) -> &Type {
        &self.ty
    }

    /// All fields that are ever sent. The others are always zero.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.value | self.alarm | self.time | self.properties
    }

    /// The fields whose values come from properties of the record.
    #[must_use]
    pub const fn properties(&self) -> u64 {
        self.properties
    }

    /// The fields to which names like `value` or `alarm.severity` refer. No name selects all; `None` if no name exists.
    #[must_use]
    pub fn select<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<Mask> {
        let (mut mask, mut any, mut found) = (Mask::default(), false, false);
        for name in names {
            any = true;
            if let Some(bit) = self.bit(name) {
                found = true;
                mask.set(bit);
            }
        }
        match (any, found) {
            (false, _) => Some(Mask::of([0]).leaves(&self.ty)),
            (true, false) => None,
            (true, true) => Some(mask.leaves(&self.ty)),
        }
    }

    fn bit(&self, name: &str) -> Option<u32> {
        let (mut ty, mut at) = (&self.ty, 0);
        for part in name.split('.') {
            let (_, bit, inner) = ty.fields()?.field(part)?;
            at += bit;
            ty = inner;
        }
        Some(at)
    }

    /// The fields that an event changes.
    #[must_use]
    pub const fn changed(&self, event: EventMask) -> u64 {
        let mut changed = 0;
        if event.meets(EventMask(EventMask::VALUE.0 | EventMask::LOG.0)) {
            changed |= self.value | self.time;
        }
        if event.meets(EventMask::ALARM) {
            changed |= self.value | self.alarm | self.time;
        }
        if event.meets(EventMask::PROPERTY) {
            changed |= self.properties;
        }
        changed
    }

    /// Appends the fields in `marks`, which is a subset of [`all`](Self::all).
    pub fn encode(&self, marks: u64, view: &View<'_>, out: &mut Writer) {
        let mut rest = marks;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            match self.shape {
                Shape::Enum => match bit {
                    2 => out.i32(view.value.get(0).and_then(Scalar::to_f64).unwrap_or(0.0) as i32),
                    3 => {
                        out.size(view.meta.labels.len());
                        view.meta.labels.iter().for_each(|label| out.text(&label.readable()));
                    }
                    13 => out.text(&view.description.readable()),
                    bit => common(bit - 2, view, out),
                },
                Shape::Scalar(kind) if bit == 1 => scalar(kind, view.value, out),
                Shape::Array(kind) if bit == 1 => array(kind, view.value, out),
                Shape::Scalar(Kind::Text) | Shape::Array(Kind::Text) => match bit {
                    11 => out.text(&view.description.readable()),
                    12 => out.text(&view.meta.units.readable()),
                    bit => common(bit, view, out),
                },
                Shape::Scalar(kind) | Shape::Array(kind) => property(kind, bit, view, out),
                Shape::Structure => debug_assert!(false, "a structure has no view"),
            }
        }
    }
}

/// The type of the node at a bit.
fn leaf_type(ty: &Type, bit: u32) -> Option<&Type> {
    if bit == 0 {
        return Some(ty);
    }
    let mut next = 1;
    for (_, ty) in ty.fields()?.fields() {
        if bit < next + ty.nodes() {
            return leaf_type(ty, bit - next);
        }
        next += ty.nodes();
    }
    None
}

/// Alarm and time stamp, by their bits in types without an enumeration.
fn common(bit: u32, view: &View<'_>, out: &mut Writer) {
    let (seconds, nanos) = view.stamp.to_unix();
    let tag_mask = (1u32 << view.hints.tag_bits.min(31)) - 1;
    match bit {
        3 => out.i32(view.alarm.severity as i32),
        4 => out.i32(class(view.alarm.status)),
        5 if !view.note.message.is_empty() => out.text(view.note.message),
        5 if view.alarm.severity == Severity::None && view.alarm.status == Status::None => out.text(""),
        5 => out.text(view.alarm.status.name()),
        7 => out.i64(seconds as i64),
        8 => out.i32((nanos & !tag_mask) as i32),
        9 if tag_mask == 0 => out.i32(view.note.user_tag as i32),
        9 => out.i32((nanos & tag_mask) as i32),
        bit => debug_assert!(false, "bit {bit} is never marked"),
    }
}

/// Alarm, time stamp and properties of a number.
fn property(kind: Kind, bit: u32, view: &View<'_>, out: &mut Writer) {
    let meta = view.meta;
    match bit {
        11 => number(kind, meta.display.low, out),
        12 => number(kind, meta.display.high, out),
        13 => out.text(&view.description.readable()),
        14 => out.text(&meta.units.readable()),
        15 => out.i32(meta.precision.into()),
        17 => out.i32(view.hints.form.into()),
        18 => {
            out.size(FORMS.len());
            FORMS.iter().for_each(|form| out.text(form));
        }
        20 => number(kind, meta.control.low, out),
        21 => number(kind, meta.control.high, out),
        25 => number(kind, meta.alarm.lolo, out),
        26 => number(kind, meta.alarm.low, out),
        27 => number(kind, meta.alarm.high, out),
        28 => number(kind, meta.alarm.hihi, out),
        bit => common(bit, view, out),
    }
}

/// The class of an alarm's cause, as in `alarm_t`.
#[must_use]
pub const fn class(status: Status) -> i32 {
    match status {
        Status::None => 0,
        Status::Read
        | Status::Write
        | Status::Hihi
        | Status::High
        | Status::Lolo
        | Status::Low
        | Status::State
        | Status::Cos
        | Status::HwLimit => 1,
        Status::Comm | Status::Timeout | Status::Udf => 2,
        Status::Calc | Status::Scan | Status::Link | Status::Soft | Status::BadSub => 3,
        Status::Disable | Status::Simm | Status::ReadAccess | Status::WriteAccess => 4,
    }
}

/// A double as a number of a kind, limited to its range.
fn number(kind: Kind, value: f64, out: &mut Writer) {
    match kind {
        Kind::Bool => out.u8((value != 0.0).into()),
        Kind::I8 => out.i8(value as i8),
        Kind::I16 => out.i16(value as i16),
        Kind::I32 => out.i32(value as i32),
        Kind::I64 => out.i64(value as i64),
        Kind::U8 => out.u8(value as u8),
        Kind::U16 => out.u16(value as u16),
        Kind::U32 => out.u32(value as u32),
        Kind::U64 => out.u64(value as u64),
        Kind::F32 => out.f32(value as f32),
        Kind::F64 => out.f64(value),
        Kind::Text => out.text(""),
    }
}

fn scalar(kind: Kind, value: &base::Value, out: &mut Writer) {
    if kind == Kind::Text {
        return text(value, out);
    }
    match (kind, value.get(0)) {
        (Kind::I8, Some(Scalar::I8(value))) => out.i8(value),
        (Kind::I16, Some(Scalar::I16(value))) => out.i16(value),
        (Kind::I32, Some(Scalar::I32(value))) => out.i32(value),
        (Kind::I64, Some(Scalar::I64(value))) => out.i64(value),
        (Kind::U8, Some(Scalar::U8(value))) => out.u8(value),
        (Kind::U16, Some(Scalar::U16(value) | Scalar::Enum(value))) => out.u16(value),
        (Kind::U32, Some(Scalar::U32(value))) => out.u32(value),
        (Kind::U64, Some(Scalar::U64(value))) => out.u64(value),
        (Kind::F32, Some(Scalar::F32(value))) => out.f32(value),
        (Kind::F64, Some(Scalar::F64(value))) => out.f64(value),
        // An array without elements, or a filter that changes the type.
        (kind, other) => number(kind, other.and_then(Scalar::to_f64).unwrap_or(0.0), out),
    }
}

/// A text: a short one, or the characters of a long one up to its zero.
fn text(value: &base::Value, out: &mut Writer) {
    let bytes: Vec<u8> = match value {
        base::Value::Array(base::Array::I8(bytes)) => bytes.iter().map(|byte| *byte as u8).collect(),
        base::Value::Array(base::Array::U8(bytes)) => bytes.clone(),
        value => match value.get(0) {
            Some(Scalar::String(text)) => return out.text(&text.readable()),
            Some(other) => return out.text(&base::text::scalar(other, 6).readable()),
            None => Vec::new(),
        },
    };
    out.text(&base::raw::readable(bytes.split(|byte| *byte == 0).next().unwrap_or_default()));
}

fn array(kind: Kind, value: &base::Value, out: &mut Writer) {
    match (kind, value) {
        (Kind::I8, base::Value::Array(base::Array::I8(values))) => out.i8s(values),
        (Kind::I16, base::Value::Array(base::Array::I16(values))) => out.i16s(values),
        (Kind::I32, base::Value::Array(base::Array::I32(values))) => out.i32s(values),
        (Kind::I64, base::Value::Array(base::Array::I64(values))) => out.i64s(values),
        (Kind::U8, base::Value::Array(base::Array::U8(values))) => out.u8s(values),
        (Kind::U16, base::Value::Array(base::Array::U16(values) | base::Array::Enum(values))) => out.u16s(values),
        (Kind::U32, base::Value::Array(base::Array::U32(values))) => out.u32s(values),
        (Kind::U64, base::Value::Array(base::Array::U64(values))) => out.u64s(values),
        (Kind::F32, base::Value::Array(base::Array::F32(values))) => out.f32s(values),
        (Kind::F64, base::Value::Array(base::Array::F64(values))) => out.f64s(values),
        (Kind::Text, base::Value::Array(base::Array::String(texts))) => {
            out.size(texts.len());
            texts.iter().for_each(|text| out.text(&text.readable()));
        }
        // A filter that changes the type.
        (kind, other) => {
            out.size(other.len());
            for index in 0..other.len() {
                number(kind, other.get(index).and_then(Scalar::to_f64).unwrap_or(0.0), out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
