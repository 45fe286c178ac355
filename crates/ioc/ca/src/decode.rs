//! Decodes payloads of the wire: values that clients write and servers answer.

use crate::dbr::{Basic, Class, Dbr};
use crate::eca::Eca;
use crate::encode::Reading;
use base::{Alarm, AlarmLimits, Array, Meta, Range, Scalar, Severity, Stamp, Status, Str40, Value};

/// Decodes the value in a payload of `count` elements: a scalar for one element, else an array.
///
/// # Errors
/// `BADCOUNT` if the payload is too short for `count` elements.
pub fn value(dbr: Dbr, count: u32, payload: &[u8]) -> Result<Value, Eca> {
    let basic = dbr.basic();
    let start = dbr.value_offset();
    let Some(bytes) = payload.get(start..) else {
        return Err(Eca::BADCOUNT);
    };
    let size = basic.size();
    if count == 1 {
        // A single text may be sent without padding to 40 bytes.
        if basic == Basic::String {
            return Ok(Value::Scalar(Scalar::String(Str40::new(&bytes[..bytes.len().min(40)]))));
        }
        let element = bytes.get(..size).ok_or(Eca::BADCOUNT)?;
        return Ok(Value::Scalar(scalar(basic, element)));
    }
    let bytes = (count as usize).checked_mul(size).and_then(|len| bytes.get(..len)).ok_or(Eca::BADCOUNT)?;
    let each = bytes.chunks_exact(size);
    Ok(Value::Array(match basic {
        Basic::String => Array::String(each.map(Str40::new).collect()),
        Basic::Short => Array::I16(each.map(short).collect()),
        Basic::Float => Array::F32(each.map(|element| f32::from_bits(word(element))).collect()),
        Basic::Enum => Array::Enum(each.map(|element| short(element) as u16).collect()),
        Basic::Char => Array::U8(bytes.to_vec()),
        Basic::Long => Array::I32(each.map(|element| word(element) as i32).collect()),
        Basic::Double => Array::F64(each.map(double).collect()),
    }))
}

/// Decodes the complete payload.
///
/// # Errors
/// `BADCOUNT` if the payload is too short.
pub fn reading(dbr: Dbr, count: u32, payload: &[u8]) -> Result<Reading, Eca> {
    let mut reading = Reading { value: value(dbr, count, payload)?, ..Reading::default() };
    if dbr == Dbr::CLASS_NAME {
        reading.record_type = Str40::new(&payload[..payload.len().min(40)]);
        return Ok(reading);
    }
    let at = |from: usize, len: usize| payload.get(from..from + len).ok_or(Eca::BADCOUNT);
    if dbr == Dbr::STSACK_STRING {
        reading.alarm = alarm(at(0, 4)?);
        reading.ackt = short(at(4, 2)?) != 0;
        reading.acks = Severity::from_index(short(at(6, 2)?) as u16);
        return Ok(reading);
    }
    let Some((class, basic)) = dbr.parts() else {
        return Err(Eca::BADTYPE);
    };
    if class == Class::Plain {
        return Ok(reading);
    }
    reading.alarm = alarm(at(0, 4)?);
    match (class, basic) {
        (Class::Time, _) => reading.stamp = Stamp { secs: word(at(4, 4)?), nanos: word(at(8, 4)?) },
        (Class::Gr | Class::Ctrl, Basic::Enum) => {
            let labels = (short(at(4, 2)?) as u16).min(16);
            for index in 0..usize::from(labels) {
                reading.meta.labels.push(Str40::new(at(6 + index * 26, 26)?));
            }
        }
        (Class::Gr | Class::Ctrl, Basic::String) | (Class::Sts | Class::Plain, _) => {}
        (Class::Gr | Class::Ctrl, _) => reading.meta = meta(class, basic, payload)?,
    }
    Ok(reading)
}

fn meta(class: Class, basic: Basic, payload: &[u8]) -> Result<Meta, Eca> {
    let at = |from: usize, len: usize| payload.get(from..from + len).ok_or(Eca::BADCOUNT);
    let real = matches!(basic, Basic::Float | Basic::Double);
    let precision = if real { short(at(4, 2)?) } else { 0 };
    let units = if real { 8 } else { 4 };
    let size = basic.size();
    let mut limits = [0.0; 8];
    for (index, limit) in limits.iter_mut().enumerate().take(if class == Class::Ctrl { 8 } else { 6 }) {
        let bytes = at(units + 8 + index * size, size)?;
        *limit = match basic {
            Basic::Char => f64::from(bytes[0]),
            basic => scalar(basic, bytes).to_f64().unwrap_or(0.0),
        };
    }
    let [high, low, hihi, warn_high, warn_low, lolo, control_high, control_low] = limits;
    Ok(Meta {
        units: Str40::new(at(units, 8)?),
        precision,
        display: Range { low, high },
        control: Range { low: control_low, high: control_high },
        alarm: AlarmLimits { lolo, low: warn_low, high: warn_high, hihi },
        labels: Vec::new(),
        text_precision: None,
        beyond: None,
    })
}

fn alarm(bytes: &[u8]) -> Alarm {
    let status = Status::from_index(short(&bytes[..2]) as u16).unwrap_or(Status::Udf);
    Alarm { status, severity: Severity::from_index(short(&bytes[2..]) as u16) }
}

/// Decodes one element; `bytes` has exactly its size.
fn scalar(basic: Basic, bytes: &[u8]) -> Scalar {
    match basic {
        Basic::String => Scalar::String(Str40::new(bytes)),
        Basic::Short => Scalar::I16(short(bytes)),
        Basic::Float => Scalar::F32(f32::from_bits(word(bytes))),
        Basic::Enum => Scalar::Enum(short(bytes) as u16),
        Basic::Char => Scalar::U8(bytes[0]),
        Basic::Long => Scalar::I32(word(bytes) as i32),
        Basic::Double => Scalar::F64(double(bytes)),
    }
}

fn short(bytes: &[u8]) -> i16 {
    bytes.first_chunk::<2>().map_or(0, |bytes| i16::from_be_bytes(*bytes))
}

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn double(bytes: &[u8]) -> f64 {
    bytes.first_chunk::<8>().map_or(0.0, |bytes| f64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::encode;
    use proptest::prelude::*;

    #[test]
    fn a_payload_that_is_too_short_is_refused() {
        assert_eq!(value(Dbr::plain(Basic::Double), 2, &[0; 15]), Err(Eca::BADCOUNT));
        assert_eq!(value(Dbr::plain(Basic::Long), u32::MAX, &[0; 15]), Err(Eca::BADCOUNT));
        assert_eq!(value(Dbr::plain(Basic::String), 1, b"abc\0"), Ok(Value::from("abc")));
    }

    fn values() -> impl Strategy<Value = (Basic, Value)> {
        let count = 2usize..9;
        prop_oneof![
            proptest::collection::vec(-1e300f64..1e300, count.clone()).prop_map(|v| (Basic::Double, Value::from(v))),
            proptest::collection::vec(any::<i32>(), count.clone()).prop_map(|v| (Basic::Long, Value::from(v))),
            proptest::collection::vec(any::<i16>(), count.clone()).prop_map(|v| (Basic::Short, Value::from(v))),
            proptest::collection::vec(any::<u8>(), count.clone()).prop_map(|v| (Basic::Char, Value::from(v))),
            proptest::collection::vec("[a-z]{0,39}", count.clone())
                .prop_map(|v| (Basic::String, Value::from(v.iter().map(|s| Str40::from(&**s)).collect::<Vec<_>>()))),
            any::<u16>().prop_map(|v| (Basic::Enum, Value::Scalar(Scalar::Enum(v)))),
            (-1e30f32..1e30).prop_map(|v| (Basic::Float, Value::from(v))),
        ]
    }

    proptest! {
        #[test]
        fn values_survive_encoding_and_decoding((basic, value) in values(), class in 0u16..5, secs: u32, nanos in 0u32..1_000_000_000, limit in -100.0f64..100.0) {
            let dbr = Dbr::from_wire(class * 7 + basic as u16).unwrap();
            let mut given = Reading { value, alarm: Alarm { status: Status::Link, severity: Severity::Invalid }, ..Reading::default() };
            given.stamp = Stamp { secs, nanos };
            given.meta.display.high = limit.trunc();
            given.meta.units = Str40::from("mA");
            let mut out = Vec::new();
            let count = encode(dbr, 0, &given, &mut out).unwrap();
            let read = reading(dbr, count, &out).unwrap();
            prop_assert_eq!(&read.value, &given.value);
            if class > 0 {
                prop_assert_eq!(read.alarm, given.alarm);
            }
            if class == 2 {
                prop_assert_eq!(read.stamp, given.stamp);
            }
            if class > 2 && matches!(basic, Basic::Double | Basic::Long | Basic::Short) {
                prop_assert_eq!(read.meta.display.high, given.meta.display.high);
                prop_assert_eq!(read.meta.units, given.meta.units);
            }
        }

        #[test]
        fn no_payload_panics(number in 0u16..39, count: u32, small in 0u32..20, payload in proptest::collection::vec(any::<u8>(), 0..500)) {
            let dbr = Dbr::from_wire(number).unwrap();
            let _ = reading(dbr, count, &payload);
            let _ = reading(dbr, small, &payload);
        }
    }
}
