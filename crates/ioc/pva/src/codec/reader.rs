//! Decodes borrowed bytes.

use super::{
    Array, DEPTH_MAX, Fault, Kind, Mask, NODES_MAX, Order, Status, StatusKind, Struct, Type, TypeTable, Value,
};
use std::borrow::Cow;

/// Number of nodes that a value may have in addition to twice the bytes of its message. Empty structures have no bytes.
const NODES_FREE: usize = 4_096;

/// The rest of a message.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    order: Order,
    /// Number of nodes of values that may still be decoded.
    nodes: usize,
}

macro_rules! number {
    ($($name:ident $type:ty),*) => {
        $(
            /// A number in the byte order of the message.
            ///
            /// # Errors
            /// The message is too short.
            pub fn $name(&mut self) -> Result<$type, Fault> {
                let bytes = self.array()?;
                Ok(match self.order {
                    Order::Little => <$type>::from_le_bytes(bytes),
                    Order::Big => <$type>::from_be_bytes(bytes),
                })
            }
        )*
    };
}

macro_rules! elements {
    ($reader:expr, $count:expr, $type:ty) => {{
        const SIZE: usize = size_of::<$type>();
        let bytes = $reader.take($count.checked_mul(SIZE).ok_or(Fault::Size)?)?;
        let each = bytes.chunks_exact(SIZE).map(|chunk| chunk.try_into().unwrap_or([0; SIZE]));
        match $reader.order {
            Order::Little => each.map(<$type>::from_le_bytes).collect(),
            Order::Big => each.map(<$type>::from_be_bytes).collect(),
        }
    }};
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8], order: Order) -> Self {
        let nodes = bytes.len().saturating_mul(2).saturating_add(NODES_FREE);
        Self { bytes, order, nodes }
    }

    /// The bytes that were not decoded yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// The message is too short.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Fault::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Fault::Short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    number!(u8 u8, u16 u16, u32 u32, u64 u64, i8 i8, i16 i16, i32 i32, i64 i64, f32 f32, f64 f64);

    /// A size; `None` for null.
    ///
    /// # Errors
    /// The message is too short, or the size is 2³¹ or more.
    pub fn size_or_null(&mut self) -> Result<Option<usize>, Fault> {
        Ok(match self.u8()? {
            255 => None,
            254 => Some(usize::try_from(self.u32()?).ok().filter(|size| *size < 1 << 31).ok_or(Fault::Size)?),
            size => Some(size.into()),
        })
    }

    /// A size; null is an error.
    ///
    /// # Errors
    /// As [`size_or_null`](Self::size_or_null).
    pub fn size(&mut self) -> Result<usize, Fault> {
        self.size_or_null()?.ok_or(Fault::Size)
    }

    /// A number of elements that need at least `each` bytes.
    fn count(&mut self, each: usize) -> Result<usize, Fault> {
        let count = self.size()?;
        if count > self.bytes.len() / each { Err(Fault::Size) } else { Ok(count) }
    }

    /// The bytes of a text. Null is an empty text.
    ///
    /// # Errors
    /// The message is too short.
    pub fn text_bytes(&mut self) -> Result<&'a [u8], Fault> {
        let size = self.size_or_null()?.unwrap_or(0);
        self.take(size)
    }

    /// A text. Bytes that are not UTF-8 are decoded as Latin-1.
    ///
    /// # Errors
    /// The message is too short.
    pub fn text(&mut self) -> Result<Cow<'a, str>, Fault> {
        Ok(base::raw::readable(self.text_bytes()?))
    }

    /// A status.
    ///
    /// # Errors
    /// The message is too short, or the kind is unknown.
    pub fn status(&mut self) -> Result<Status, Fault> {
        let kind = match self.u8()? {
            0xFF => return Ok(Status::OK),
            0 => StatusKind::Ok,
            1 => StatusKind::Warning,
            2 => StatusKind::Error,
            3 => StatusKind::Fatal,
            kind => return Err(Fault::StatusKind(kind)),
        };
        Ok(Status { kind, message: self.text()?.into_owned(), tree: self.text()?.into_owned() })
    }

    /// A set of fields. Only the bits that a type can have are kept.
    ///
    /// # Errors
    /// The message is too short.
    pub fn mask(&mut self) -> Result<Mask, Fault> {
        let size = self.size()?;
        let bytes = self.take(size)?;
        let bytes = &bytes[..size.min(NODES_MAX as usize / 8)];
        let whole = bytes.chunks_exact(8);
        let mut last = [0; 8];
        last[..whole.remainder().len()].copy_from_slice(whole.remainder());
        let mut words: Vec<u64> = whole
            .map(|chunk| {
                let bytes = chunk.try_into().unwrap_or([0; 8]);
                if self.order == Order::Big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
            })
            .collect();
        words.push(u64::from_le_bytes(last));
        Ok(Mask::from_words(words))
    }

    /// A type. `None` for no type.
    ///
    /// # Errors
    /// The description is invalid, or refers to a type that is not in the table.
    pub fn ty_or_null(&mut self, table: &mut TypeTable) -> Result<Option<Type>, Fault> {
        if self.bytes.first() == Some(&0xFF) {
            self.u8()?;
            return Ok(None);
        }
        self.ty(table).map(Some)
    }

    /// A type.
    ///
    /// # Errors
    /// The description is invalid, or refers to a type that is not in the table.
    pub fn ty(&mut self, table: &mut TypeTable) -> Result<Type, Fault> {
        self.ty_at(table, DEPTH_MAX)
    }

    fn ty_at(&mut self, table: &mut TypeTable, depth: u32) -> Result<Type, Fault> {
        let depth = depth.checked_sub(1).ok_or(Fault::Depth)?;
        let code = self.u8()?;
        match code {
            0xFE => {
                let id = self.u16()?;
                table.get(id)
            }
            0xFD => {
                let id = self.u16()?;
                let before = self.bytes.len();
                let ty = self.ty_at(table, depth)?;
                table.put(id, ty.clone(), before - self.bytes.len())?;
                Ok(ty)
            }
            0x80 => Ok(Type::Struct(self.fields(table, depth)?)),
            0x81 => Ok(Type::Union(self.fields(table, depth)?)),
            0x82 => Ok(Type::Any),
            0x88 | 0x89 => {
                let element = self.ty_at(table, depth)?;
                match (code, element) {
                    (0x88, Type::Struct(fields)) => Ok(Type::StructArray(fields)),
                    (0x89, Type::Union(fields)) => Ok(Type::UnionArray(fields)),
                    _ => Err(Fault::TypeCode(code)),
                }
            }
            0x8A => Ok(Type::AnyArray),
            // A text with a maximum length. The two tables of the specification disagree about its code; this one occurs.
            0x83 => {
                self.size()?;
                Ok(Type::Scalar(Kind::Text))
            }
            code => {
                let kind = Kind::of_code(code & !0x18).ok_or(Fault::TypeCode(code))?;
                match code & 0x18 {
                    0 => Ok(Type::Scalar(kind)),
                    0x08 => Ok(Type::Array(kind)),
                    // With a maximum or a fixed number of elements. Values have a count all the same.
                    _ => {
                        self.size()?;
                        Ok(Type::Array(kind))
                    }
                }
            }
        }
    }

    fn fields(&mut self, table: &mut TypeTable, depth: u32) -> Result<std::sync::Arc<Struct>, Fault> {
        let id = self.text()?.into_owned();
        let count = self.count(2)?;
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            let name = self.text()?.into_owned();
            fields.push((name, self.ty_at(table, depth)?));
        }
        Struct::new(id, fields)
    }

    /// A value of a type.
    ///
    /// # Errors
    /// The bytes are not a value of this type.
    pub fn value(&mut self, ty: &Type) -> Result<Value, Fault> {
        self.value_with(ty, &mut TypeTable::default())
    }

    /// A value of a type. `table` has the numbered types that variants may refer to.
    ///
    /// # Errors
    /// The bytes are not a value of this type.
    pub fn value_with(&mut self, ty: &Type, table: &mut TypeTable) -> Result<Value, Fault> {
        self.value_at(ty, table, DEPTH_MAX)
    }

    fn value_at(&mut self, ty: &Type, table: &mut TypeTable, depth: u32) -> Result<Value, Fault> {
        let depth = depth.checked_sub(1).ok_or(Fault::Depth)?;
        self.nodes = self.nodes.checked_sub(1).ok_or(Fault::Nodes)?;
        Ok(match ty {
            Type::Scalar(kind) => self.scalar(*kind)?,
            Type::Array(kind) => Value::Array(self.scalars(*kind)?),
            Type::Struct(fields) => {
                let each = fields.fields().iter().map(|(_, ty)| self.value_at(ty, table, depth));
                Value::Struct(each.collect::<Result<_, _>>()?)
            }
            Type::Union(members) => match self.size_or_null()? {
                None => Value::Union(None),
                Some(index) => {
                    let (_, ty) = members.fields().get(index).ok_or(Fault::Selector)?;
                    Value::Union(Some((index as u32, Box::new(self.value_at(ty, table, depth)?))))
                }
            },
            Type::Any => match self.ty_or_null(table)? {
                None => Value::Any(None),
                Some(ty) => {
                    let value = self.value_at(&ty, table, depth)?;
                    Value::Any(Some(Box::new((ty, value))))
                }
            },
            Type::StructArray(fields) => self.elements(&Type::Struct(fields.clone()), table, depth)?,
            Type::UnionArray(members) => self.elements(&Type::Union(members.clone()), table, depth)?,
            Type::AnyArray => self.elements(&Type::Any, table, depth)?,
        })
    }

    fn elements(&mut self, ty: &Type, table: &mut TypeTable, depth: u32) -> Result<Value, Fault> {
        let count = self.count(1)?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(if self.u8()? == 0 { None } else { Some(self.value_at(ty, table, depth)?) });
        }
        Ok(Value::Elements(elements))
    }

    fn scalar(&mut self, kind: Kind) -> Result<Value, Fault> {
        Ok(match kind {
            Kind::Bool => Value::Bool(self.u8()? != 0),
            Kind::I8 => Value::I8(self.i8()?),
            Kind::I16 => Value::I16(self.i16()?),
            Kind::I32 => Value::I32(self.i32()?),
            Kind::I64 => Value::I64(self.i64()?),
            Kind::U8 => Value::U8(self.u8()?),
            Kind::U16 => Value::U16(self.u16()?),
            Kind::U32 => Value::U32(self.u32()?),
            Kind::U64 => Value::U64(self.u64()?),
            Kind::F32 => Value::F32(self.f32()?),
            Kind::F64 => Value::F64(self.f64()?),
            Kind::Text => Value::Text(self.text()?.into_owned()),
        })
    }

    fn scalars(&mut self, kind: Kind) -> Result<Array, Fault> {
        let count = self.count(kind.size_min())?;
        Ok(match kind {
            Kind::Bool => Array::Bool(self.take(count)?.iter().map(|byte| *byte != 0).collect()),
            Kind::I8 => Array::I8(elements!(self, count, i8)),
            Kind::I16 => Array::I16(elements!(self, count, i16)),
            Kind::I32 => Array::I32(elements!(self, count, i32)),
            Kind::I64 => Array::I64(elements!(self, count, i64)),
            Kind::U8 => Array::U8(self.take(count)?.to_vec()),
            Kind::U16 => Array::U16(elements!(self, count, u16)),
            Kind::U32 => Array::U32(elements!(self, count, u32)),
            Kind::U64 => Array::U64(elements!(self, count, u64)),
            Kind::F32 => Array::F32(elements!(self, count, f32)),
            Kind::F64 => Array::F64(elements!(self, count, f64)),
            Kind::Text => {
                let mut texts = Vec::with_capacity(count);
                for _ in 0..count {
                    texts.push(self.text()?.into_owned());
                }
                Array::Text(texts)
            }
        })
    }

    /// Decodes the fields in `mask` into `value`, which is a value of the type. Other fields keep their values.
    ///
    /// # Errors
    /// The bytes are not values of these fields. `value` may have changed then.
    pub fn fields_of(&mut self, ty: &Type, mask: &Mask, value: &mut Value, table: &mut TypeTable) -> Result<(), Fault> {
        self.fields_at(ty, mask, 0, value, table)
    }

    fn fields_at(
        &mut self,
        ty: &Type,
        mask: &Mask,
        bit: u32,
        value: &mut Value,
        table: &mut TypeTable,
    ) -> Result<(), Fault> {
        if mask.has(bit) {
            *value = self.value_with(ty, table)?;
            return Ok(());
        }
        let (Type::Struct(fields), Value::Struct(values)) = (ty, value) else { return Ok(()) };
        let mut next = bit + 1;
        for ((_, ty), value) in fields.fields().iter().zip(values) {
            self.fields_at(ty, mask, next, value, table)?;
            next += ty.nodes();
        }
        Ok(())
    }
}
