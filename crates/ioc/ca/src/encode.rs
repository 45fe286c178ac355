//! Encodes values in payloads of the wire: any field type as any of the 39 types, converted as in EPICS.

use crate::dbr::{Basic, Class, Dbr};
use crate::eca::Eca;
use base::{Alarm, Annotation, Array, Characters, Meta, Scalar, Severity, Stamp, Str40, Value};

/// A field with all data that a payload may contain.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The value in the type of the field.
    pub value: Value,
    /// The meaning of the value, if it consists of the characters of a text.
    pub characters: Characters,
    /// The record's alarm.
    pub alarm: Alarm,
    /// The time when the record was last processed.
    pub stamp: Stamp,
    /// User tag and alarm message of the record. Only PVAccess sends them.
    pub note: Annotation,
    /// Transient alarms need acknowledgement.
    pub ackt: bool,
    /// The highest severity that is not acknowledged.
    pub acks: Severity,
    /// The record's type, e.g. `ai`.
    pub record_type: Str40,
    /// The record's description. Only PVAccess sends it; set if [`Needs::All`] was requested.
    pub description: Str40,
    /// Units, precision, limits, state names. Meta data, acknowledgement and record type are used only if [`needs`] returns
    /// [`Needs::All`]; the text of a value also uses precision and state names.
    pub meta: Meta,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            value: Value::Scalar(Scalar::F64(0.0)),
            characters: Characters::Array,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            note: Annotation::NONE,
            ackt: true,
            acks: Severity::None,
            record_type: Str40::EMPTY,
            description: Str40::EMPTY,
            meta: Meta::default(),
        }
    }
}

/// The data that encoding uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Value, alarm and time stamp.
    Value,
    /// Also the data for the text of the value: digits after the point, state names.
    Text,
    /// All data.
    All,
}

/// The data that are needed to encode a field of type `native` as `dbr`.
#[must_use]
pub fn needs(dbr: Dbr, native: Basic) -> Needs {
    match dbr.basic() {
        _ if dbr.wants_meta() || matches!(dbr, Dbr::STSACK_STRING | Dbr::CLASS_NAME) => Needs::All,
        Basic::String if native != Basic::String => Needs::Text,
        _ => Needs::Value,
    }
}

/// Appends the payload for `count` elements, padded with zero elements. If `count` is zero, it has as many elements as the
/// value. Returns the number of elements for the header. Does not pad the payload to eight bytes.
///
/// # Errors
/// `BADTYPE` for the two types that can only be written, `GETFAIL` for a text that is not a number. `out` is unchanged after
/// an error.
pub fn encode(dbr: Dbr, count: u32, reading: &Reading, out: &mut Vec<u8>) -> Result<u32, Eca> {
    let start = out.len();
    let other = if reading.characters == Characters::Array { None } else { other(dbr, reading)? };
    let value = other.as_ref().unwrap_or(&reading.value);
    let elements = if count == 0 { value.len() as u32 } else { count };
    out.reserve(dbr.size(elements));
    head(dbr, reading, out)?;
    let first = out.len();
    let taken = value.len().min(elements as usize);
    if dbr == Dbr::CLASS_NAME {
        out.extend_from_slice(reading.record_type.padded());
    } else if let Err(error) = values(dbr.basic(), value, taken, &reading.meta, out) {
        out.truncate(start);
        return Err(error);
    }
    if reading.characters != Characters::Array && dbr.basic() == Basic::Char && taken < value.len() {
        out.pop();
        out.push(0);
    }
    out.resize(first + dbr.basic().size() * elements as usize, 0);
    Ok(elements)
}

/// The converted value of a text or a link that is read as another type; `None` if no conversion is needed.
#[cold]
fn other(dbr: Dbr, reading: &Reading) -> Result<Option<Value>, Eca> {
    let text = match &reading.value {
        Value::Array(Array::I8(text)) => Some(text),
        _ => None,
    };
    Ok(match (reading.characters, dbr.basic(), text) {
        // With an alarm, C reads the bytes as unsigned numbers, not as a text.
        (Characters::Text(_), Basic::Char, _) if matches!(dbr.parts(), Some((Class::Plain | Class::Time, _))) => None,
        (Characters::Text(size), _, Some(text)) => {
            let mut all = text.clone();
            all.resize(size as usize, 0);
            Some(Value::from(all))
        }
        (Characters::Link, Basic::String, Some(text)) => {
            let bytes: Vec<u8> = text.iter().map(|byte| *byte as u8).collect();
            Some(Value::Scalar(Scalar::String(Str40::new(&bytes))))
        }
        (Characters::Link, Basic::Char, None) => Some(Value::Scalar(Scalar::U8(0))),
        (Characters::Link, Basic::Double, _) => Some(Value::Scalar(Scalar::F64(f64::NAN))),
        (Characters::Link, Basic::Short | Basic::Float | Basic::Enum | Basic::Long, _) => return Err(Eca::GETFAIL),
        _ => None,
    })
}

/// Appends the data before the value.
fn head(dbr: Dbr, reading: &Reading, out: &mut Vec<u8>) -> Result<(), Eca> {
    let start = out.len();
    let short = |out: &mut Vec<u8>, value: u16| out.extend_from_slice(&value.to_be_bytes());
    let Some((class, basic)) = dbr.parts() else {
        return match dbr {
            Dbr::STSACK_STRING => {
                alarm(reading, out);
                short(out, u16::from(reading.ackt));
                short(out, reading.acks as u16);
                Ok(())
            }
            Dbr::CLASS_NAME => Ok(()),
            _ => Err(Eca::GETFAIL),
        };
    };
    if class == Class::Plain {
        return Ok(());
    }
    alarm(reading, out);
    let meta = &reading.meta;
    match (class, basic) {
        (Class::Time, _) => {
            let both = u64::from(reading.stamp.secs) << 32 | u64::from(reading.stamp.nanos);
            out.extend_from_slice(&both.to_be_bytes());
        }
        (Class::Gr | Class::Ctrl, Basic::Enum) => {
            let labels = &meta.labels[..meta.labels.len().min(16)];
            short(out, labels.len() as u16);
            for index in 0..16 {
                let label = labels.get(index).copied().unwrap_or_default();
                let bytes = &label.bytes()[..label.bytes().len().min(25)];
                out.extend_from_slice(bytes);
                out.resize(out.len() + 26 - bytes.len(), 0);
            }
        }
        (Class::Gr | Class::Ctrl, Basic::Short | Basic::Char | Basic::Long | Basic::Float | Basic::Double) => {
            if matches!(basic, Basic::Float | Basic::Double) {
                short(out, meta.precision as u16);
                short(out, 0);
            }
            let units = &meta.units.bytes()[..meta.units.bytes().len().min(7)];
            out.extend_from_slice(units);
            out.resize(out.len() + 8 - units.len(), 0);
            limits(class, basic, meta, out);
        }
        _ => {}
    }
    out.resize(start + dbr.value_offset(), 0);
    Ok(())
}

fn alarm(reading: &Reading, out: &mut Vec<u8>) {
    let both = (reading.alarm.status as u32) << 16 | reading.alarm.severity as u32;
    out.extend_from_slice(&both.to_be_bytes());
}

fn limits(class: Class, basic: Basic, meta: &Meta, out: &mut Vec<u8>) {
    let (alarm, shown, control) = (&meta.alarm, &meta.display, &meta.control);
    let all = [shown.high, shown.low, alarm.hihi, alarm.high, alarm.low, alarm.lolo, control.high, control.low];
    for (nth, &limit) in all[..if class == Class::Ctrl { 8 } else { 6 }].iter().enumerate() {
        match basic {
            Basic::Double => out.extend_from_slice(&limit.to_be_bytes()),
            Basic::Float => out.extend_from_slice(&c_float(limit).to_be_bytes()),
            _ => {
                // C checks only alarm limits before the cast.
                let is_of_alarm = (2..6).contains(&nth);
                let whole = if is_of_alarm && !limit.is_finite() { 0 } else { c_long(limit) };
                match basic {
                    Basic::Long => out.extend_from_slice(&whole.to_be_bytes()),
                    Basic::Short => out.extend_from_slice(&(whole as i16).to_be_bytes()),
                    _ => out.push(whole as u8),
                }
            }
        }
    }
}

/// Number of elements that are byte-swapped at once: one block in the first-level cache, which the compiler vectorizes.
const BLOCK: usize = 256;

macro_rules! same {
    ($out:ident, $elements:ident, $taken:ident) => {{
        let mut block = [[0; _]; BLOCK];
        for elements in $elements[..$taken].chunks(BLOCK) {
            block.iter_mut().zip(elements).for_each(|(bytes, element)| *bytes = element.to_be_bytes());
            $out.extend_from_slice(block[..elements.len()].as_flattened());
        }
        return Ok(());
    }};
}

/// Appends the first `taken` elements.
fn values(basic: Basic, value: &Value, taken: usize, meta: &Meta, out: &mut Vec<u8>) -> Result<(), Eca> {
    let array = match value {
        Value::Scalar(scalar) if taken == 1 => return element(basic, *scalar, meta, out),
        Value::Scalar(_) => return Ok(()),
        Value::Array(array) => array,
    };
    match (basic, array) {
        (Basic::Double, Array::F64(elements)) => same!(out, elements, taken),
        (Basic::Float, Array::F32(elements)) => same!(out, elements, taken),
        (Basic::Long, Array::I32(elements)) => same!(out, elements, taken),
        (Basic::Short, Array::I16(elements)) => same!(out, elements, taken),
        (Basic::Char, Array::I8(elements)) => same!(out, elements, taken),
        (Basic::Char, Array::U8(elements)) => out.extend_from_slice(&elements[..taken]),
        (Basic::Enum, Array::Enum(elements)) => same!(out, elements, taken),
        _ => {
            for index in 0..taken {
                let scalar = array.get(index).ok_or(Eca::GETFAIL)?;
                element(basic, scalar, meta, out)?;
            }
        }
    }
    Ok(())
}

/// Appends one element.
fn element(basic: Basic, scalar: Scalar, meta: &Meta, out: &mut Vec<u8>) -> Result<(), Eca> {
    if let Scalar::String(text) = scalar {
        return from_text(basic, &text, out);
    }
    match basic {
        Basic::Double => out.extend_from_slice(&scalar.to_f64().unwrap_or(0.0).to_be_bytes()),
        Basic::Float => match scalar {
            Scalar::F32(value) => out.extend_from_slice(&value.to_be_bytes()),
            Scalar::F64(value) => out.extend_from_slice(&c_float(value).to_be_bytes()),
            _ => out.extend_from_slice(&(scalar.to_f64().unwrap_or(0.0) as f32).to_be_bytes()),
        },
        Basic::Long => out.extend_from_slice(&long(scalar).to_be_bytes()),
        Basic::Short => out.extend_from_slice(&(long(scalar) as i16).to_be_bytes()),
        Basic::Enum => out.extend_from_slice(&(long(scalar) as u16).to_be_bytes()),
        Basic::Char => out.push(long(scalar) as u8),
        Basic::String => {
            let text = match scalar {
                // The number of a state, in a field of a record without states.
                Scalar::Enum(_) if meta.labels.is_empty() && meta.beyond.is_none() => return Err(Eca::GETFAIL),
                Scalar::Enum(index) => label(meta, index),
                _ => base::text::scalar(scalar, meta.text_precision.unwrap_or(meta.precision as u16)),
            };
            out.extend_from_slice(text.padded());
        }
    }
    Ok(())
}

/// The name of a state.
#[must_use]
pub fn label(meta: &Meta, index: u16) -> Str40 {
    match meta.labels.get(usize::from(index)) {
        Some(label) => *label,
        None => match meta.beyond {
            None => base::text::scalar(Scalar::U16(index), 0),
            // Records with sixteen states return an empty text for a state without a name. The others have only two states.
            Some(beyond) if index < 2 || (index < 16 && beyond == Str40::from("Illegal Value")) => Str40::EMPTY,
            Some(beyond) => beyond,
        },
    }
}

fn from_text(basic: Basic, text: &Str40, out: &mut Vec<u8>) -> Result<(), Eca> {
    let bytes = text.bytes();
    let whole = |low: i128, high: i128| {
        if bytes.is_empty() { Ok(0) } else { base::text::parse_int(bytes, low, high).ok_or(Eca::GETFAIL) }
    };
    let real = || {
        if bytes.is_empty() {
            Ok(0.0)
        } else {
            base::text::parse_double(bytes).map(|(value, _)| value).ok_or(Eca::GETFAIL)
        }
    };
    match basic {
        Basic::String => out.extend_from_slice(text.padded()),
        Basic::Double => out.extend_from_slice(&real()?.to_be_bytes()),
        Basic::Float => out.extend_from_slice(&(real()? as f32).to_be_bytes()),
        Basic::Long => out.extend_from_slice(&(whole(i32::MIN.into(), i32::MAX.into())? as i32).to_be_bytes()),
        Basic::Short => out.extend_from_slice(&(whole(i16::MIN.into(), i16::MAX.into())? as i16).to_be_bytes()),
        // Only the record can convert a state name to its number; the text of another field cannot be converted.
        Basic::Enum => return Err(Eca::GETFAIL),
        Basic::Char => out.push(whole(i8::MIN.into(), u8::MAX.into())? as u8),
    }
    Ok(())
}

/// Casts any number to a 32-bit integer as C does on this processor family.
fn long(scalar: Scalar) -> i32 {
    match scalar {
        Scalar::I8(value) => value.into(),
        Scalar::U8(value) => value.into(),
        Scalar::I16(value) => value.into(),
        Scalar::U16(value) | Scalar::Enum(value) => value.into(),
        Scalar::I32(value) => value,
        Scalar::U32(value) => value as i32,
        Scalar::I64(value) => value as i32,
        Scalar::U64(value) => value as i32,
        Scalar::F32(value) => c_long(value.into()),
        Scalar::F64(value) => c_long(value),
        Scalar::String(_) => 0,
    }
}

/// C's cast of a double to a 32-bit integer. A value out of range becomes the minimum.
fn c_long(value: f64) -> i32 {
    if value > -2_147_483_649.0 && value < 2_147_483_648.0 { value as i32 } else { i32::MIN }
}

/// EPICS' cast of a double to a float. A value out of range becomes the largest or smallest float.
fn c_float(value: f64) -> f32 {
    if value == 0.0 || !value.is_finite() {
        return value as f32;
    }
    let sign = if value > 0.0 { 1.0 } else { -1.0 };
    if value.abs() >= f64::from(f32::MAX) {
        sign * f32::MAX
    } else if value.abs() <= f64::from(f32::MIN_POSITIVE) {
        sign * f32::MIN_POSITIVE
    } else {
        value as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{AlarmLimits, Range, Status};
    use proptest::prelude::*;

    fn reading() -> Reading {
        Reading {
            value: Value::from(1.25),
            alarm: Alarm { status: Status::Hihi, severity: Severity::Major },
            stamp: Stamp { secs: 7, nanos: 9 },
            meta: Meta {
                units: Str40::from("mm"),
                precision: 2,
                display: Range { low: -1.0, high: 10.0 },
                control: Range { low: 0.0, high: 5.0 },
                alarm: AlarmLimits { hihi: 9.0, high: 8.0, ..AlarmLimits::NONE },
                ..Meta::default()
            },
            ..Reading::default()
        }
    }

    #[test]
    fn acknowledgement_and_record_type_need_the_whole_record_even_as_strings() {
        assert_eq!([Dbr::STSACK_STRING, Dbr::CLASS_NAME].map(|dbr| needs(dbr, Basic::String)), [Needs::All; 2]);
        assert_eq!(needs(Dbr::new(Class::Time, Basic::Double), Basic::Double), Needs::Value);
        assert_eq!(needs(Dbr::plain(Basic::String), Basic::Double), Needs::Text);
        assert_eq!(needs(Dbr::new(Class::Ctrl, Basic::Double), Basic::Double), Needs::All);
    }

    #[test]
    fn characters_of_a_text_end_with_a_zero_and_are_the_whole_field_in_other_types() {
        let value = Value::from(vec![104i8, 105, 0]);
        let text = Reading { value, characters: Characters::Text(5), ..Reading::default() };
        let sent = |basic, count| {
            let mut out = Vec::new();
            (encode(Dbr::plain(basic), count, &text, &mut out), out)
        };
        assert_eq!(sent(Basic::Char, 0), (Ok(3), vec![104, 105, 0]));
        assert_eq!(sent(Basic::Char, 2), (Ok(2), vec![104, 0]));
        assert_eq!(sent(Basic::Char, 4), (Ok(4), vec![104, 105, 0, 0]));
        assert_eq!(sent(Basic::Short, 0), (Ok(5), vec![0, 104, 0, 105, 0, 0, 0, 0, 0, 0]));
        let link = Reading { characters: Characters::Link, ..text.clone() };
        let mut out = Vec::new();
        assert_eq!(encode(Dbr::plain(Basic::String), 0, &link, &mut out), Ok(1));
        assert_eq!(out, Str40::from("hi").padded());
    }

    #[test]
    fn every_type_has_the_size_of_its_table() {
        for number in (0..=38).filter(|number| ![35, 36].contains(number)) {
            let dbr = Dbr::from_wire(number).unwrap();
            let mut out = Vec::new();
            assert_eq!(encode(dbr, 3, &reading(), &mut out), Ok(3), "{}", dbr.name());
            assert_eq!(out.len(), if dbr == Dbr::CLASS_NAME { 120 } else { dbr.size(3) }, "{}", dbr.name());
        }
        let mut out = Vec::new();
        assert_eq!(encode(Dbr::PUT_ACKS, 1, &reading(), &mut out), Err(Eca::GETFAIL));
        assert!(out.is_empty());
    }

    #[test]
    fn alarm_stamp_and_limits_have_the_offsets_of_c() {
        let mut out = Vec::new();
        encode(Dbr::new(Class::Time, Basic::Double), 0, &reading(), &mut out).unwrap();
        assert_eq!(&out[..16], &[0, 3, 0, 2, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0]);
        assert_eq!(&out[16..], &1.25f64.to_be_bytes());
        out.clear();
        encode(Dbr::new(Class::Ctrl, Basic::Short), 0, &reading(), &mut out).unwrap();
        assert_eq!(&out[4..7], b"mm\0");
        assert_eq!(&out[12..30], &[0, 10, 255, 255, 0, 9, 0, 8, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1]);
        out.clear();
        encode(Dbr::new(Class::Gr, Basic::Double), 0, &reading(), &mut out).unwrap();
        assert!(f64::from_be_bytes(out[56..64].try_into().unwrap()).is_nan());
    }

    #[test]
    fn values_convert_as_c_converts_them() {
        let labels = vec![Str40::from("off"), Str40::from("on")];
        let check = |value: Value, basic: Basic, expected: &[u8]| {
            let reading = Reading {
                value,
                meta: Meta {
                    precision: 1,
                    labels: labels.clone(),
                    beyond: Some("Illegal_Value".into()),
                    ..Meta::default()
                },
                ..Reading::default()
            };
            let mut out = Vec::new();
            encode(Dbr::plain(basic), 0, &reading, &mut out).unwrap();
            assert_eq!(out, expected);
        };
        check(Value::from(2.76), Basic::String, Str40::from("2.8").padded());
        check(Value::from(-2.9), Basic::Long, &(-2i32).to_be_bytes());
        check(Value::from(1e20), Basic::Long, &i32::MIN.to_be_bytes());
        check(Value::from(1e300), Basic::Float, &f32::MAX.to_be_bytes());
        check(Value::Scalar(Scalar::Enum(1)), Basic::String, Str40::from("on").padded());
        check(Value::Scalar(Scalar::Enum(2)), Basic::String, Str40::from("Illegal_Value").padded());
        check(Value::from("12"), Basic::Short, &12i16.to_be_bytes());
        check(Value::from("1.5 V"), Basic::Double, &1.5f64.to_be_bytes());
        check(Value::from(vec![1u8, 2]), Basic::Char, &[1, 2]);
        check(Value::from(vec![65i16, -1]), Basic::Enum, &[0, 65, 255, 255]);
        check(Value::from(""), Basic::Long, &[0; 4]);
        let none = Reading { value: Value::from(""), ..Reading::default() };
        assert_eq!(encode(Dbr::plain(Basic::Enum), 0, &none, &mut Vec::new()), Err(Eca::GETFAIL));
        let mut out = vec![7];
        let text = Reading { value: Value::from("volt"), ..Reading::default() };
        assert_eq!(encode(Dbr::plain(Basic::Double), 0, &text, &mut out), Err(Eca::GETFAIL));
        assert_eq!(out, [7]);
    }

    proptest! {
        #[test]
        fn no_value_panics_and_sizes_hold(number in 0u16..39, count in 0u32..20, length in 0usize..10, value: f64) {
            let dbr = Dbr::from_wire(number).unwrap();
            for value in [Value::from(vec![value; length]), Value::from(value), Value::from(vec![Str40::from("7"); length])] {
                let reading = Reading { value, ..reading() };
                let mut out = Vec::new();
                if let Ok(elements) = encode(dbr, count, &reading, &mut out)
                    && dbr != Dbr::CLASS_NAME {
                    prop_assert_eq!(out.len(), dbr.size(elements));
                }
            }
        }
    }
}
