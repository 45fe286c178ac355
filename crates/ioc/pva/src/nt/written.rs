//! Values that clients write.

use super::{Layout, Shape};
use crate::codec::{Array, Fault, Mask, Reader, TypeTable, Value};
use base::{Scalar, Str40};
use std::fmt;

/// Maximum size of a short text in bytes.
const TEXT_MAX: usize = 39;

/// A value that a client wrote.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// Numbers, or texts of at most 39 bytes.
    Value(base::Value),
    /// A text of any length.
    Text(String),
}

/// The reason why a value does not fit a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A state with this number cannot exist.
    State(i64),
    /// The text has this number of bytes, more than the field holds.
    Text(usize),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(state) => write!(f, "state {state} does not exist, expected 0 to {}", u16::MAX),
            Self::Text(bytes) => write!(f, "the text has {bytes} bytes, the field holds {TEXT_MAX}"),
        }
    }
}

impl std::error::Error for Unfit {}

impl Layout {
    /// The value that a client wrote, from a value of this type; `None` if `marks` has no field that is written.
    ///
    /// # Errors
    /// The value does not fit the field.
    pub fn written(&self, marks: &Mask, value: Value) -> Result<Option<Written>, Unfit> {
        let marked = marks.leaves(&self.ty);
        let Value::Struct(fields) = value else { return Ok(None) };
        if marked.words().first().is_none_or(|word| word & self.value == 0) {
            return Ok(None);
        }
        match fields.into_iter().next() {
            Some(Value::Struct(parts)) => parts.into_iter().next().map_or(Ok(None), |index| self.written_leaf(index)),
            Some(value) => self.written_leaf(value),
            None => Ok(None),
        }
    }

    /// Decodes the fields that a client wrote, and returns the value as [`written`](Self::written) does. The usual write, of the
    /// value alone, needs no value of the whole type.
    ///
    /// # Errors
    /// The bytes are not values of these fields; or, inside, the value does not fit the field.
    pub(crate) fn read_written(
        &self,
        marks: &Mask,
        reader: &mut Reader<'_>,
        table: &mut TypeTable,
    ) -> Result<Result<Option<Written>, Unfit>, Fault> {
        if marks.words() == [self.value]
            && let Some(ty) = super::leaf_type(&self.ty, self.value.trailing_zeros())
        {
            return Ok(self.written_leaf(reader.value_with(ty, table)?));
        }
        let mut value = Value::zero(&self.ty);
        reader.fields_of(&self.ty, marks, &mut value, table)?;
        Ok(self.written(marks, value))
    }

    /// Like [`written`](Self::written), from the value alone: of an enumeration, the number of the state.
    ///
    /// # Errors
    /// The value does not fit the field.
    pub(crate) fn written_leaf(&self, value: Value) -> Result<Option<Written>, Unfit> {
        Ok(Some(match (self.shape, value) {
            (_, Value::Any(Some(any))) => return self.written_leaf(any.1),
            (Shape::Enum, index) => {
                let index = index.to_i64().unwrap_or(0);
                let state = u16::try_from(index).map_err(|_| Unfit::State(index))?;
                Written::Value(base::Value::Scalar(Scalar::Enum(state)))
            }
            (_, Value::Text(text)) => Written::Text(text),
            (_, Value::Array(array)) => Written::Value(base::Value::Array(elements(array)?)),
            (_, value) => match one(&value) {
                Some(scalar) => Written::Value(base::Value::Scalar(scalar)),
                None => return Ok(None),
            },
        }))
    }
}

pub(super) fn one(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Bool(value) => Scalar::U8((*value).into()),
        Value::I8(value) => Scalar::I8(*value),
        Value::I16(value) => Scalar::I16(*value),
        Value::I32(value) => Scalar::I32(*value),
        Value::I64(value) => Scalar::I64(*value),
        Value::U8(value) => Scalar::U8(*value),
        Value::U16(value) => Scalar::U16(*value),
        Value::U32(value) => Scalar::U32(*value),
        Value::U64(value) => Scalar::U64(*value),
        Value::F32(value) => Scalar::F32(*value),
        Value::F64(value) => Scalar::F64(*value),
        _ => return None,
    })
}

fn elements(array: Array) -> Result<base::Array, Unfit> {
    Ok(match array {
        Array::Bool(values) => base::Array::U8(values.into_iter().map(u8::from).collect()),
        Array::I8(values) => base::Array::I8(values),
        Array::I16(values) => base::Array::I16(values),
        Array::I32(values) => base::Array::I32(values),
        Array::I64(values) => base::Array::I64(values),
        Array::U8(values) => base::Array::U8(values),
        Array::U16(values) => base::Array::U16(values),
        Array::U32(values) => base::Array::U32(values),
        Array::U64(values) => base::Array::U64(values),
        Array::F32(values) => base::Array::F32(values),
        Array::F64(values) => base::Array::F64(values),
        Array::Text(texts) => base::Array::String(texts.iter().map(|text| short_text(text)).collect::<Result<_, _>>()?),
    })
}

/// A text of at most 39 bytes.
///
/// # Errors
/// It is longer.
pub fn short_text(text: &str) -> Result<Str40, Unfit> {
    if text.len() > TEXT_MAX {
        return Err(Unfit::Text(text.len()));
    }
    Ok(Str40::new(text.as_bytes()))
}
