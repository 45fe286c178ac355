//! Decoded values.

use super::{Kind, Struct, Type};

/// Elements of one kind.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the Rust type of its name")]
pub enum Array {
    Bool(Vec<bool>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Text(Vec<String>),
}

impl Array {
    /// The values as an array. Those of another kind are left out.
    #[must_use]
    pub fn of(kind: Kind, values: Vec<Value>) -> Self {
        macro_rules! all {
            ($variant:ident) => {
                Self::$variant(
                    values
                        .into_iter()
                        .filter_map(|value| if let Value::$variant(it) = value { Some(it) } else { None })
                        .collect(),
                )
            };
        }
        match kind {
            Kind::Bool => all!(Bool),
            Kind::I8 => all!(I8),
            Kind::I16 => all!(I16),
            Kind::I32 => all!(I32),
            Kind::I64 => all!(I64),
            Kind::U8 => all!(U8),
            Kind::U16 => all!(U16),
            Kind::U32 => all!(U32),
            Kind::U64 => all!(U64),
            Kind::F32 => all!(F32),
            Kind::F64 => all!(F64),
            Kind::Text => all!(Text),
        }
    }

    /// An array without elements.
    #[must_use]
    pub const fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(Vec::new()),
            Kind::I8 => Self::I8(Vec::new()),
            Kind::I16 => Self::I16(Vec::new()),
            Kind::I32 => Self::I32(Vec::new()),
            Kind::I64 => Self::I64(Vec::new()),
            Kind::U8 => Self::U8(Vec::new()),
            Kind::U16 => Self::U16(Vec::new()),
            Kind::U32 => Self::U32(Vec::new()),
            Kind::U64 => Self::U64(Vec::new()),
            Kind::F32 => Self::F32(Vec::new()),
            Kind::F64 => Self::F64(Vec::new()),
            Kind::Text => Self::Text(Vec::new()),
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bool(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Value> {
        Some(match self {
            Self::Bool(values) => Value::Bool(*values.get(index)?),
            Self::I8(values) => Value::I8(*values.get(index)?),
            Self::I16(values) => Value::I16(*values.get(index)?),
            Self::I32(values) => Value::I32(*values.get(index)?),
            Self::I64(values) => Value::I64(*values.get(index)?),
            Self::U8(values) => Value::U8(*values.get(index)?),
            Self::U16(values) => Value::U16(*values.get(index)?),
            Self::U32(values) => Value::U32(*values.get(index)?),
            Self::U64(values) => Value::U64(*values.get(index)?),
            Self::F32(values) => Value::F32(*values.get(index)?),
            Self::F64(values) => Value::F64(*values.get(index)?),
            Self::Text(values) => Value::Text(values.get(index)?.clone()),
        })
    }
}

/// A value of any type. The type is separate.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the scalars are the Rust types of their names")]
pub enum Value {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
    Text(String),
    /// An array of scalars.
    Array(Array),
    /// The fields of a structure, in the order of its type.
    Struct(Vec<Self>),
    /// The selected member of a union and its value; `None` for no selection.
    Union(Option<(u32, Box<Self>)>),
    /// A value with its type; `None` for null.
    Any(Option<Box<(Type, Self)>>),
    /// The elements of an array of structures, unions or variants; `None` for null.
    Elements(Vec<Option<Self>>),
}

impl Value {
    /// The zero of a type: 0, an empty text, an empty array, no selection.
    #[must_use]
    pub fn zero(ty: &Type) -> Self {
        match ty {
            Type::Scalar(kind) => match kind {
                Kind::Bool => Self::Bool(false),
                Kind::I8 => Self::I8(0),
                Kind::I16 => Self::I16(0),
                Kind::I32 => Self::I32(0),
                Kind::I64 => Self::I64(0),
                Kind::U8 => Self::U8(0),
                Kind::U16 => Self::U16(0),
                Kind::U32 => Self::U32(0),
                Kind::U64 => Self::U64(0),
                Kind::F32 => Self::F32(0.0),
                Kind::F64 => Self::F64(0.0),
                Kind::Text => Self::Text(String::new()),
            },
            Type::Array(kind) => Self::Array(Array::empty(*kind)),
            Type::Struct(fields) => Self::Struct(fields.fields().iter().map(|(_, ty)| Self::zero(ty)).collect()),
            Type::Union(_) => Self::Union(None),
            Type::Any => Self::Any(None),
            Type::StructArray(_) | Type::UnionArray(_) | Type::AnyArray => Self::Elements(Vec::new()),
        }
    }

    /// The field of a structure with this name.
    #[must_use]
    pub fn field<'a>(&'a self, ty: &'a Struct, name: &str) -> Option<(&'a Self, &'a Type)> {
        let (index, _, ty) = ty.field(name)?;
        if let Self::Struct(fields) = self { Some((fields.get(index)?, ty)) } else { None }
    }

    /// The number as a double; `None` if it is not a number.
    #[must_use]
    pub const fn to_f64(&self) -> Option<f64> {
        Some(match self {
            Self::Bool(value) => *value as u8 as f64,
            Self::I8(value) => *value as f64,
            Self::I16(value) => *value as f64,
            Self::I32(value) => *value as f64,
            Self::I64(value) => *value as f64,
            Self::U8(value) => *value as f64,
            Self::U16(value) => *value as f64,
            Self::U32(value) => *value as f64,
            Self::U64(value) => *value as f64,
            Self::F32(value) => *value as f64,
            Self::F64(value) => *value,
            _ => return None,
        })
    }

    /// The integer; `None` if it is not an integer or exceeds 64 bits with sign.
    #[must_use]
    pub fn to_i64(&self) -> Option<i64> {
        Some(match self {
            Self::Bool(value) => i64::from(*value),
            Self::I8(value) => i64::from(*value),
            Self::I16(value) => i64::from(*value),
            Self::I32(value) => i64::from(*value),
            Self::I64(value) => *value,
            Self::U8(value) => i64::from(*value),
            Self::U16(value) => i64::from(*value),
            Self::U32(value) => i64::from(*value),
            Self::U64(value) => i64::try_from(*value).ok()?,
            _ => return None,
        })
    }

    /// The text; `None` if it is not a text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}
