//! Values, alarms, time stamps and properties of received structures, as records have them.

use crate::codec::{Array, Kind, Mask, Struct, Type, Value};
use base::{Meta, Scalar, Severity, Stamp, Status, Str40};
use std::sync::Arc;

/// A field of a type, found by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index in each structure on the path.
    path: Vec<usize>,
    /// Bit of the field in a mask.
    pub bit: u32,
    /// Type of the field.
    pub ty: Type,
}

impl Place {
    /// The field at a path such as `alarm.severity`; the whole value at an empty one.
    #[must_use]
    pub fn find(ty: &Type, path: &str) -> Option<Self> {
        let mut place = Self { path: Vec::new(), bit: 0, ty: ty.clone() };
        for name in path.split('.').filter(|name| !name.is_empty()) {
            place = place.child(name)?;
        }
        Some(place)
    }

    /// The field of this structure.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<Self> {
        let (index, bit, ty) = self.ty.fields()?.field(name)?;
        let mut path = self.path.clone();
        path.push(index);
        Some(Self { path, bit: self.bit + bit, ty: ty.clone() })
    }

    /// The field in a value.
    #[must_use]
    pub fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(value, |value, index| match value {
            Value::Struct(fields) => fields.get(*index),
            _ => None,
        })
    }

    /// The field in a value, for changing it.
    pub fn of_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        self.path.iter().try_fold(value, |value, index| match value {
            Value::Struct(fields) => fields.get_mut(*index),
            _ => None,
        })
    }

    /// Whether a mask has the field, a part of it, or a structure around it.
    #[must_use]
    pub fn is_in(&self, mask: &Mask, top: &Type) -> bool {
        let mut around = (top, 0);
        for index in &self.path {
            if mask.has(around.1) {
                return true;
            }
            let Some(fields) = around.0.fields() else { return false };
            let before: u32 = fields.fields()[..*index].iter().map(|(_, ty)| ty.nodes()).sum();
            around = (&fields.fields()[*index].1, around.1 + 1 + before);
        }
        mask.meets(self.bit, self.bit + self.ty.nodes())
    }
}

/// The parts of a structure that are read like a record's field: value, alarm, time stamp and properties.
#[derive(Clone, Debug)]
pub struct Parts {
    value: Option<Place>,
    severity: Option<Place>,
    status: Option<Place>,
    message: Option<Place>,
    seconds: Option<Place>,
    nanos: Option<Place>,
    tag: Option<Place>,
    /// The structures with properties.
    properties: Vec<Place>,
    choices: Option<Place>,
}

impl Parts {
    /// The parts of the field at a path. A structure has its value in its field `value`; any other field is its own value
    /// and has no other parts. `None` if the field does not exist.
    #[must_use]
    pub fn of(ty: &Type, path: &str) -> Option<Self> {
        let root = Place::find(ty, path)?;
        let mut parts = Self {
            value: None,
            severity: None,
            status: None,
            message: None,
            seconds: None,
            nanos: None,
            tag: None,
            properties: Vec::new(),
            choices: None,
        };
        if root.ty.fields().is_none_or(is_enum) {
            parts.choices = root.child("choices");
            parts.value = Some(root);
            return Some(parts);
        }
        let nested = |first: &str, second: &str| root.child(first)?.child(second);
        parts.value = root.child("value");
        parts.choices = nested("value", "choices");
        parts.severity = nested("alarm", "severity");
        parts.status = nested("alarm", "status");
        parts.message = nested("alarm", "message");
        parts.seconds = nested("timeStamp", "secondsPastEpoch");
        parts.nanos = nested("timeStamp", "nanoseconds");
        parts.tag = nested("timeStamp", "userTag");
        parts.properties = ["display", "control", "valueAlarm"].iter().filter_map(|name| root.child(name)).collect();
        Some(parts)
    }

    /// The value as a record's field has it. Texts are cut after 39 bytes. `None` if it is a structure, or has no value.
    #[must_use]
    pub fn value(&self, top: &Value) -> Option<base::Value> {
        let place = self.value.as_ref()?;
        to_base(&place.ty, place.of(top)?)
    }

    /// The severity of the alarm; none if the structure has no alarm.
    #[must_use]
    pub fn severity(&self, top: &Value) -> Severity {
        let severity = self.number(self.severity.as_ref(), top).unwrap_or(0);
        u16::try_from(severity).map_or(Severity::Invalid, Severity::from_index)
    }

    /// The class of the alarm's cause, see [`class`](super::class), and its message.
    #[must_use]
    pub fn cause<'a>(&self, top: &'a Value) -> (i64, &'a str) {
        let message = self.message.as_ref().and_then(|place| place.of(top)?.as_text());
        (self.number(self.status.as_ref(), top).unwrap_or(0), message.unwrap_or_default())
    }

    /// The status of the alarm: the one whose name is the message, as QSRV sends it, else one of the class of its cause.
    #[must_use]
    pub fn status(&self, top: &Value) -> Status {
        if self.severity(top) == Severity::None {
            return Status::None;
        }
        let (class, message) = self.cause(top);
        let named = Status::ALL.iter().find(|status| status.name() == message);
        named.copied().unwrap_or(match class {
            1 => Status::State,
            2 => Status::Comm,
            3 => Status::Soft,
            4 => Status::Disable,
            _ => Status::Udf,
        })
    }

    /// The text of the value, uncut; `None` if it is not a text.
    #[must_use]
    pub fn text<'a>(&self, top: &'a Value) -> Option<&'a str> {
        self.value.as_ref()?.of(top)?.as_text()
    }

    /// Whether a mask has value, alarm or time stamp.
    #[must_use]
    pub fn is_update(&self, mask: &Mask, ty: &Type) -> bool {
        let parts = [&self.value, &self.severity, &self.status, &self.message, &self.seconds, &self.nanos];
        parts.into_iter().flatten().any(|place| place.is_in(mask, ty))
    }

    /// The time stamp, if the structure has one.
    #[must_use]
    pub fn stamp(&self, top: &Value) -> Option<Stamp> {
        let seconds = self.number(self.seconds.as_ref(), top)?;
        let nanos = self.number(self.nanos.as_ref(), top).unwrap_or(0);
        let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000).unwrap_or(0);
        Some(Stamp::from_unix(u64::try_from(seconds).unwrap_or(0), nanos))
    }

    /// The user tag of the time stamp.
    #[must_use]
    pub fn tag(&self, top: &Value) -> u64 {
        self.number(self.tag.as_ref(), top).map_or(0, |tag| u64::from(tag as u32))
    }

    /// Whether a mask has properties.
    #[must_use]
    pub fn properties_are_in(&self, mask: &Mask, ty: &Type) -> bool {
        self.properties.iter().chain(&self.choices).any(|place| place.is_in(mask, ty))
    }

    /// Units, precision, limits and names of states.
    #[must_use]
    pub fn meta(&self, top: &Value) -> Meta {
        let mut meta = Meta::default();
        for place in &self.properties {
            let number = |name: &str| place.child(name).and_then(|place| place.of(top)?.to_f64());
            let range = |range: &mut base::Range| {
                range.low = number("limitLow").unwrap_or(range.low);
                range.high = number("limitHigh").unwrap_or(range.high);
            };
            if let Some(Value::Text(units)) = place.child("units").and_then(|place| place.of(top).cloned()) {
                meta.units = Str40::from(units.as_str());
            }
            meta.precision = number("precision").map_or(meta.precision, |precision| precision as i16);
            match place.child("lowAlarmLimit") {
                Some(_) => {
                    let limit = |name: &str| number(name).unwrap_or(f64::NAN);
                    meta.alarm.lolo = limit("lowAlarmLimit");
                    meta.alarm.low = limit("lowWarningLimit");
                    meta.alarm.high = limit("highWarningLimit");
                    meta.alarm.hihi = limit("highAlarmLimit");
                }
                None if place.child("minStep").is_some() => range(&mut meta.control),
                None => range(&mut meta.display),
            }
        }
        if let Some(Value::Array(Array::Text(choices))) = self.choices.as_ref().and_then(|place| place.of(top)) {
            meta.labels = choices.iter().map(|choice| Str40::from(choice.as_str())).collect();
        }
        meta
    }

    fn number(&self, place: Option<&Place>, top: &Value) -> Option<i64> {
        place?.of(top)?.to_i64()
    }
}

/// Whether a structure is a number with names of its states.
#[must_use]
pub fn is_enum(fields: &Arc<Struct>) -> bool {
    fields.field("choices").is_some_and(|(_, _, ty)| *ty == Type::Array(Kind::Text)) && fields.field("index").is_some()
}

fn to_base(ty: &Type, value: &Value) -> Option<base::Value> {
    match (ty, value) {
        (Type::Struct(fields), value) if is_enum(fields) => {
            let index = value.field(fields, "index")?.0.to_i64()?;
            Some(base::Value::Scalar(Scalar::Enum(index as u16)))
        }
        (Type::Union(members), Value::Union(Some((index, value)))) => {
            to_base(&members.fields().get(*index as usize)?.1, value)
        }
        (_, Value::Any(Some(any))) => to_base(&any.0, &any.1),
        (_, Value::Text(text)) => Some(base::Value::Scalar(Scalar::String(Str40::from(text.as_str())))),
        (_, Value::Array(array)) => Some(base::Value::Array(elements(array))),
        (_, value) => super::written::one(value).map(base::Value::Scalar),
    }
}

fn elements(array: &Array) -> base::Array {
    match array {
        Array::Bool(values) => base::Array::U8(values.iter().map(|value| u8::from(*value)).collect()),
        Array::I8(values) => base::Array::I8(values.clone()),
        Array::I16(values) => base::Array::I16(values.clone()),
        Array::I32(values) => base::Array::I32(values.clone()),
        Array::I64(values) => base::Array::I64(values.clone()),
        Array::U8(values) => base::Array::U8(values.clone()),
        Array::U16(values) => base::Array::U16(values.clone()),
        Array::U32(values) => base::Array::U32(values.clone()),
        Array::U64(values) => base::Array::U64(values.clone()),
        Array::F32(values) => base::Array::F32(values.clone()),
        Array::F64(values) => base::Array::F64(values.clone()),
        Array::Text(texts) => base::Array::String(texts.iter().map(|text| Str40::from(text.as_str())).collect()),
    }
}

/// A value of a record's field as a value of a type: numbers convert like in C, texts are parsed. `None` if it does not fit.
#[must_use]
pub fn from_base(ty: &Type, value: &base::Value) -> Option<Value> {
    match ty {
        Type::Scalar(kind) => scalar(*kind, value.get(0)?),
        Type::Array(kind) => {
            let all = (0..value.len()).map(|at| scalar(*kind, value.get(at)?));
            Some(Value::Array(Array::of(*kind, all.collect::<Option<Vec<_>>>()?)))
        }
        _ => None,
    }
}

fn scalar(kind: Kind, value: Scalar) -> Option<Value> {
    if kind == Kind::Text {
        let text = match value {
            Scalar::String(text) => text.readable().into_owned(),
            Scalar::Enum(index) => index.to_string(),
            other => base::text::scalar(other, 6).readable().trim().to_owned(),
        };
        return Some(Value::Text(text));
    }
    // Integers keep all their digits.
    let (float, whole) = match value {
        Scalar::String(text) => {
            let word = text.readable();
            let word = word.trim();
            let whole = word.parse::<i128>().ok();
            (word.parse::<f64>().ok()?, whole)
        }
        Scalar::I64(number) => (number as f64, Some(i128::from(number))),
        Scalar::U64(number) => (number as f64, Some(i128::from(number))),
        other => (other.to_f64()?, None),
    };
    let whole = whole.unwrap_or(float as i128);
    Some(match kind {
        Kind::Bool => Value::Bool(float != 0.0),
        Kind::I8 => Value::I8(whole as i8),
        Kind::I16 => Value::I16(whole as i16),
        Kind::I32 => Value::I32(whole as i32),
        Kind::I64 => Value::I64(whole as i64),
        Kind::U8 => Value::U8(whole as u8),
        Kind::U16 => Value::U16(whole as u16),
        Kind::U32 => Value::U32(whole as u32),
        Kind::U64 => Value::U64(whole as u64),
        Kind::F32 => Value::F32(float as f32),
        Kind::F64 => Value::F64(float),
        Kind::Text => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nt::{Layout, Shape};

    fn number() -> (Type, Value) {
        let ty = Layout::new(Shape::Scalar(Kind::F64)).ty().clone();
        let mut value = Value::zero(&ty);
        for (path, part) in [
            ("value", Value::F64(1.5)),
            ("alarm.severity", Value::I32(2)),
            ("alarm.message", Value::Text("HIHI".into())),
            ("timeStamp.secondsPastEpoch", Value::I64(1_800_000_000)),
            ("timeStamp.nanoseconds", Value::I32(7)),
            ("timeStamp.userTag", Value::I32(-1)),
            ("display.units", Value::Text("mm".into())),
            ("display.precision", Value::I32(3)),
            ("display.limitHigh", Value::F64(9.0)),
            ("control.limitLow", Value::F64(-8.0)),
            ("valueAlarm.highWarningLimit", Value::F64(7.0)),
        ] {
            *Place::find(&ty, path).unwrap().of_mut(&mut value).unwrap() = part;
        }
        (ty, value)
    }

    #[test]
    fn a_structure_is_read_like_a_record() {
        let (ty, value) = number();
        let parts = Parts::of(&ty, "").unwrap();
        assert_eq!(parts.value(&value), Some(base::Value::from(1.5)));
        assert_eq!((parts.severity(&value), parts.cause(&value)), (Severity::Major, (0, "HIHI")));
        assert_eq!(parts.stamp(&value), Some(Stamp::from_unix(1_800_000_000, 7)));
        assert_eq!(parts.tag(&value), 0xFFFF_FFFF);
        let meta = parts.meta(&value);
        assert_eq!((meta.units, meta.precision), ("mm".into(), 3));
        assert_eq!((meta.display.high, meta.control.low, meta.alarm.high), (9.0, -8.0, 7.0));
    }

    #[test]
    fn a_field_is_read_by_its_path() {
        let (ty, value) = number();
        let parts = Parts::of(&ty, "display.precision").unwrap();
        assert_eq!(parts.value(&value), Some(base::Value::Scalar(Scalar::I32(3))));
        assert_eq!((parts.severity(&value), parts.stamp(&value)), (Severity::None, None), "it has no meta data");
        assert!(Parts::of(&ty, "display.nothing").is_none());
        let alarm = Parts::of(&ty, "alarm").unwrap();
        assert_eq!(alarm.value(&value), None, "a structure without a field value");
    }

    #[test]
    fn a_state_has_its_number_and_the_names_of_all_states() {
        let ty = Layout::new(Shape::Enum).ty().clone();
        let mut value = Value::zero(&ty);
        *Place::find(&ty, "value.index").unwrap().of_mut(&mut value).unwrap() = Value::I32(1);
        let choices = Value::Array(Array::Text(vec!["off".into(), "on".into()]));
        *Place::find(&ty, "value.choices").unwrap().of_mut(&mut value).unwrap() = choices;
        for path in ["", "value"] {
            let parts = Parts::of(&ty, path).unwrap();
            assert_eq!(parts.value(&value), Some(base::Value::Scalar(Scalar::Enum(1))));
            assert_eq!(parts.meta(&value).labels, [Str40::from("off"), Str40::from("on")]);
            assert!(parts.properties_are_in(&Mask::of([3]), &ty) && !parts.properties_are_in(&Mask::of([2]), &ty));
        }
    }

    #[test]
    fn a_mask_has_a_field_through_the_structures_around_it() {
        let (ty, _) = number();
        let place = Place::find(&ty, "alarm.severity").unwrap();
        for (bits, expected) in [(vec![0], true), (vec![2], true), (vec![3], true), (vec![1, 4, 6], false)] {
            assert_eq!(place.is_in(&Mask::of(bits), &ty), expected);
        }
        let alarm = Place::find(&ty, "alarm").unwrap();
        assert!(alarm.is_in(&Mask::of([4]), &ty));
    }

    #[test]
    fn numbers_and_texts_convert_to_the_type_of_the_target() {
        let text = |text: &str| base::Value::Scalar(Scalar::String(text.into()));
        for (kind, value, expected) in [
            (Kind::I32, base::Value::from(2.9), Some(Value::I32(2))),
            (Kind::I64, base::Value::Scalar(Scalar::I64(i64::MAX)), Some(Value::I64(i64::MAX))),
            (Kind::F64, text(" 2.5 "), Some(Value::F64(2.5))),
            (Kind::I32, text("two"), None),
            (Kind::Text, base::Value::from(42i32), Some(Value::Text("42".into()))),
            (Kind::Bool, base::Value::from(3.0), Some(Value::Bool(true))),
        ] {
            assert_eq!(from_base(&Type::Scalar(kind), &value), expected, "{value:?}");
        }
        let array = from_base(&Type::Array(Kind::U8), &base::Value::from(vec![1, 2]));
        assert_eq!(array, Some(Value::Array(Array::U8(vec![1, 2]))));
        assert_eq!(from_base(&Type::Any, &base::Value::from(1.0)), None);
        let empty = base::Value::Array(base::Array::F64(Vec::new()));
        assert_eq!(from_base(&Type::Scalar(Kind::F64), &empty), None);
    }
}
