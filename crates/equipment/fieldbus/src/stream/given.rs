//! What a protocol writes, and what its lines bring.

use super::convert::{Conversion, Format, Kind, Value};
use super::time::Zone;
use base::{Array, Scalar};

/// What a protocol writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// The value.
    pub value: Option<base::Value>,
    /// The raw value, for `%d` and its kin; without, the value as a whole number.
    pub raw: Option<i64>,
    /// The state that the value is, for records that have states.
    pub state: Option<State>,
    /// How many values it takes.
    pub takes: Takes,
    /// The fields that `%(…)` names ([`Protocol::fields`](super::Protocol::fields)).
    pub fields: Vec<Field>,
    /// Local time, for `%T(…)`.
    pub zone: Zone,
}

/// A state of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// For `%{…}`.
    pub number: i64,
    /// For `%s`; a state without one cannot be written so.
    pub name: Option<Vec<u8>>,
}

/// How many values a record or a field takes from one conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takes {
    /// One.
    #[default]
    One,
    /// An array of so many.
    Many(usize),
    /// An array of so many characters: of texts it takes one.
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
    /// What it is read as.
    pub kind: Kind,
    /// Its value, where it is written and could be read.
    pub value: Option<base::Value>,
    /// How many values it takes.
    pub takes: Takes,
}

/// What lines brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// The values of the record that runs the protocol.
    pub values: Vec<Value>,
    /// The values of fields that `%(…)` names, in the order in which they came.
    pub fields: Vec<(String, Vec<Value>)>,
}

/// The elements that are written one after the other; `None` for a single value, or characters that are one text.
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
        // As C converts: towards zero.
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

/// A text up to its end.
fn text(value: &base::Value, element: usize) -> Option<Vec<u8>> {
    let ended = |bytes: &mut dyn Iterator<Item = u8>| bytes.take_while(|byte| *byte != 0).collect();
    match value {
        base::Value::Array(Array::U8(bytes)) => Some(ended(&mut bytes.iter().copied())),
        base::Value::Array(Array::I8(bytes)) => Some(ended(&mut bytes.iter().map(|byte| *byte as u8))),
        _ => Some(base::text::scalar(value.get(element)?, 6).bytes().to_vec()),
    }
}

impl Given {
    fn field(&self, format: &Format) -> Option<&Field> {
        let name = format.field()?;
        self.fields.iter().find(|field| field.name == name && field.kind == format.kind())
    }

    /// How many values a conversion takes from a line.
    pub(super) fn takes(&self, format: &Format) -> usize {
        let takes = match format.field() {
            Some(_) => self.field(format).map_or(Takes::One, |field| field.takes),
            None => self.takes,
        };
        takes.most(format.kind())
    }

    /// Writes all elements of a conversion's value; `None` where there is none, or it does not fit.
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
