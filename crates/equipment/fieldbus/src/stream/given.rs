//! The values that a protocol writes and reads.

use super::convert::{Conversion, Format, Kind, Value};
use super::time::Zone;
use base::{Array, Scalar};

/// The values for one run of a protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunInputs {
    /// The value.
    pub value: Option<base::Value>,
    /// The raw value, for `%d` and related conversions. If it is `None`, the value is converted to a whole number.
    pub raw: Option<i64>,
    /// The state that corresponds to the value, for records with states.
    pub state: Option<State>,
    /// The number of values that the record accepts.
    pub takes: Takes,
    /// The fields that `%(…)` names ([`Protocol::fields`](super::Protocol::fields)).
    pub fields: Vec<Field>,
    /// The local time zone, for `%T(…)`.
    pub zone: Zone,
}

/// A state of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The number for `%{…}`.
    pub number: i64,
    /// The name for `%s`. A state without a name cannot be written with `%s`.
    pub name: Option<Vec<u8>>,
}

/// The number of values that a record or field accepts from one conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takes {
    /// One.
    #[default]
    One,
    /// An array of up to this many elements.
    Many(usize),
    /// An array of up to this many characters; it accepts one text.
    Characters(usize),
}

impl Takes {
    const fn most(self, kind: Kind) -> usize {
        match (self, kind) {
            (Self::One, _) | (Self::Characters(_), Kind::Text) => 1,
            (Self::Many(most) | Self::Characters(most), _) => most,
        }
    }
}

/// A field of a record that a protocol names with `%(…)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// `FIELD`, `RECORD` or `RECORD.FIELD`.
    pub name: String,
    /// The kind of value that the conversion reads or writes.
    pub kind: Kind,
    /// The value to write; `None` if it is only read or was unavailable.
    pub value: Option<base::Value>,
    /// The number of values that the field accepts.
    pub takes: Takes,
}

/// The values that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOutputs {
    /// The values of the record that runs the protocol.
    pub values: Vec<Value>,
    /// The values of fields named by `%(…)`, in the order of reception.
    pub fields: Vec<(String, Vec<Value>)>,
}

/// The number of elements written in sequence; `None` for a single value, or for characters that form one text.
fn elements(value: &base::Value, kind: Kind) -> Option<usize> {
    match value {
        base::Value::Scalar(_) => None,
        base::Value::Array(Array::U8(_) | Array::I8(_)) if kind == Kind::Text => None,
        base::Value::Array(values) => Some(values.len()),
    }
}

fn float(scalar: Scalar) -> Option<f64> {
    match scalar {
        Scalar::F64(value) => Some(value),
        Scalar::F32(value) => Some(value.into()),
        other => whole(other).map(|value| value as f64),
    }
}

fn whole(scalar: Scalar) -> Option<i64> {
    Some(match scalar {
        // Truncates towards zero, as C does.
        Scalar::F64(value) => value as i64,
        Scalar::F32(value) => value as i64,
        Scalar::I8(value) => value.into(),
        Scalar::U8(value) => value.into(),
        Scalar::I16(value) => value.into(),
        Scalar::U16(value) | Scalar::Enum(value) => value.into(),
        Scalar::I32(value) => value.into(),
        Scalar::U32(value) => value.into(),
        Scalar::I64(value) => value,
        Scalar::U64(value) => i64::try_from(value).ok()?,
        Scalar::String(text) => text.to_str().trim().parse().ok()?,
    })
}

/// The text up to its first zero byte.
fn text(value: &base::Value, element: usize) -> Option<Vec<u8>> {
    let ended = |bytes: &mut dyn Iterator<Item = u8>| bytes.take_while(|byte| *byte != 0).collect();
    match value {
        base::Value::Array(Array::U8(bytes)) => Some(ended(&mut bytes.iter().copied())),
        base::Value::Array(Array::I8(bytes)) => Some(ended(&mut bytes.iter().map(|byte| *byte as u8))),
        _ => Some(base::text::scalar(value.get(element)?, 6).bytes().to_vec()),
    }
}

impl RunInputs {
    fn field(&self, format: &Format) -> Option<&Field> {
        let name = format.field()?;
        self.fields.iter().find(|field| field.name == name && field.kind == format.kind())
    }

    /// The number of values that a conversion reads from a line.
    pub(super) fn takes(&self, format: &Format) -> usize {
        let takes = match format.field() {
            Some(_) => self.field(format).map_or(Takes::One, |field| field.takes),
            None => self.takes,
        };
        takes.most(format.kind())
    }

    /// Writes all elements of a conversion's value. Returns `None` if there is no value or it does not fit.
    pub(super) fn print(&self, format: &Format, separator: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let value = match format.field() {
            Some(_) => self.field(format)?.value.as_ref()?,
            None => self.value.as_ref()?,
        };
        let own = format.field().is_none();
        let elements = elements(value, format.kind());
        for element in 0..elements.unwrap_or(1) {
            if element > 0 {
                out.extend_from_slice(separator);
            }
            let scalar = || value.get(element);
            let plain = own && elements.is_none();
            let value = match &format.conversion {
                Conversion::Float(_) | Conversion::Mantissa | Conversion::RawFloat => Value::Float(float(scalar()?)?),
                Conversion::Time(time) => {
                    time.print(float(scalar()?)?, self.zone, out)?;
                    continue;
                }
                Conversion::Enum(_) => {
                    let number = self.state.as_ref().map(|state| state.number).or(self.raw).filter(|_| plain);
                    Value::Enum(number.or_else(|| whole(scalar()?))?)
                }
                Conversion::Text | Conversion::Set(_) => Value::Text(match self.state.as_ref().filter(|_| plain) {
                    Some(state) => state.name.clone()?,
                    None => text(value, element)?,
                }),
                Conversion::Sum(_) | Conversion::Substitute(_) | Conversion::Regex(_) => return None,
                Conversion::Int(_) | Conversion::Chars | Conversion::Bits(_) | Conversion::Raw | Conversion::Bcd => {
                    Value::Int(self.raw.filter(|_| plain).or_else(|| whole(scalar()?))?)
                }
            };
            format.print(&value, out)?;
        }
        Some(())
    }
}
