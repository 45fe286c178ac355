//! Descriptions of types.

use super::{DEPTH_MAX, Fault, NODES_MAX, Value};
use std::sync::Arc;

/// The type of a scalar or of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the Rust type of its name")]
pub enum Kind {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Text,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Bool,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::Text,
    ];

    /// The first byte of its description.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Bool => 0,
            Self::I8 => 0x20,
            Self::I16 => 0x21,
            Self::I32 => 0x22,
            Self::I64 => 0x23,
            Self::U8 => 0x24,
            Self::U16 => 0x25,
            Self::U32 => 0x26,
            Self::U64 => 0x27,
            Self::F32 => 0x42,
            Self::F64 => 0x43,
            Self::Text => 0x60,
        }
    }

    /// The kind with this first byte, without the bits of an array.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The value that a text means; `None` if it is out of range or has another form. Integers may be hexadecimal, booleans are
    /// words or 0 and 1.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<Value> {
        let word = text.trim();
        let whole = || {
            let (sign, digits) = word.strip_prefix('-').map_or((1, word), |digits| (-1, digits));
            let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
            let number: Option<u64> = hex.map_or_else(|| digits.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
            Some(sign * i128::from(number?))
        };
        macro_rules! number {
            ($variant:ident $ty:ty) => {
                <$ty>::try_from(whole()?).map(Value::$variant).ok()
            };
        }
        match self {
            Self::Bool => match word.to_ascii_lowercase().as_str() {
                "true" | "1" => Some(Value::Bool(true)),
                "false" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::I8 => number!(I8 i8),
            Self::I16 => number!(I16 i16),
            Self::I32 => number!(I32 i32),
            Self::I64 => number!(I64 i64),
            Self::U8 => number!(U8 u8),
            Self::U16 => number!(U16 u16),
            Self::U32 => number!(U32 u32),
            Self::U64 => number!(U64 u64),
            Self::F32 => word.parse().map(Value::F32).ok(),
            Self::F64 => word.parse().map(Value::F64).ok(),
            Self::Text => Some(Value::Text(text.to_owned())),
        }
    }

    /// Minimum number of bytes of an element.
    #[must_use]
    pub const fn size_min(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 | Self::Text => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The name that EPICS' tools print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::I8 => "byte",
            Self::I16 => "short",
            Self::I32 => "int",
            Self::I64 => "long",
            Self::U8 => "ubyte",
            Self::U16 => "ushort",
            Self::U32 => "uint",
            Self::U64 => "ulong",
            Self::F32 => "float",
            Self::F64 => "double",
            Self::Text => "string",
        }
    }
}

/// A description of values. Structures are shared, so copies are cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// One value.
    Scalar(Kind),
    /// A variable number of values of one kind.
    Array(Kind),
    /// Named fields.
    Struct(Arc<Struct>),
    /// One of several named members, or none.
    Union(Arc<Struct>),
    /// A value that carries its type.
    Any,
    /// Structures of one type.
    StructArray(Arc<Struct>),
    /// Unions of one type.
    UnionArray(Arc<Struct>),
    /// Values that carry their types.
    AnyArray,
}

impl Type {
    /// Number of nodes, which is the number of bits in a mask: one for a field, and for a structure those of its fields too.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        if let Self::Struct(fields) = self { fields.nodes } else { 1 }
    }

    /// Number of nested descriptions, at least 1.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self {
            Self::Struct(fields) | Self::Union(fields) | Self::StructArray(fields) | Self::UnionArray(fields) => {
                fields.depth
            }
            _ => 1,
        }
    }

    /// The structure, if it is one.
    #[must_use]
    pub fn fields(&self) -> Option<&Arc<Struct>> {
        if let Self::Struct(fields) = self { Some(fields) } else { None }
    }
}

/// The named fields of a structure, or the members of a union.
#[derive(Debug, PartialEq, Eq)]
pub struct Struct {
    id: String,
    fields: Vec<(String, Type)>,
    nodes: u32,
    /// Nodes including those inside of unions and elements of arrays.
    weight: u32,
    depth: u32,
}

impl Struct {
    /// A structure with a type identifier, which may be empty.
    ///
    /// # Errors
    /// It is nested too deep or has too many nodes.
    pub fn new(id: impl Into<String>, fields: Vec<(String, Type)>) -> Result<Arc<Self>, Fault> {
        let (mut nodes, mut weight, mut depth) = (1u32, 1u32, 1u32);
        for (_, ty) in &fields {
            nodes = nodes.saturating_add(ty.nodes());
            weight = weight.saturating_add(match ty {
                Type::Struct(inner) | Type::Union(inner) | Type::StructArray(inner) | Type::UnionArray(inner) => {
                    inner.weight.saturating_add(1)
                }
                _ => 1,
            });
            depth = depth.max(ty.depth() + 1);
        }
        if depth > DEPTH_MAX {
            return Err(Fault::Depth);
        }
        if weight > NODES_MAX {
            return Err(Fault::Nodes);
        }
        Ok(Arc::new(Self { id: id.into(), fields, nodes, weight, depth }))
    }

    /// The type identifier, e.g. `epics:nt/NTScalar:1.0`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Names and types, in order.
    #[must_use]
    pub fn fields(&self) -> &[(String, Type)] {
        &self.fields
    }

    /// Number of nodes, including the structure itself.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The field with a name: its index, its first bit relative to this structure, and its type.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<(usize, u32, &Type)> {
        let mut bit = 1;
        for (index, (own, ty)) in self.fields.iter().enumerate() {
            if own == name {
                return Some((index, bit, ty));
            }
            bit += ty.nodes();
        }
        None
    }
}
