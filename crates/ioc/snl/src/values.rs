//! Values of process variables in the memory of a program, converted as a server converts them for its clients.

use crate::ast::Prim;
use crate::code::{ChannelDef, Element};
use crate::memory::{DATA, cast};
use base::{Array, FieldType, Meta, Scalar, Str40, Value, text};

/// Bytes of a channel's variable in the data of a view.
pub(crate) fn range(def: &ChannelDef) -> std::ops::Range<usize> {
    let from = (def.address - DATA) as usize;
    from..from + def.element.size() as usize * def.count as usize
}

fn prim_of(kind: FieldType) -> Prim {
    match kind {
        FieldType::I8 => Prim::I8,
        FieldType::U8 => Prim::U8,
        FieldType::I16 => Prim::I16,
        FieldType::U16 | FieldType::Enum | FieldType::Menu | FieldType::Device => Prim::U16,
        FieldType::I32 => Prim::I32,
        FieldType::U32 => Prim::U32,
        FieldType::I64 => Prim::I64,
        FieldType::U64 => Prim::U64,
        FieldType::F32 => Prim::F32,
        FieldType::F64 | FieldType::String | FieldType::Link => Prim::F64,
    }
}

/// An element as a word of its type.
fn word(scalar: Scalar) -> u64 {
    match scalar {
        Scalar::String(text) => text::parse_double(text.bytes()).map_or(0.0, |(value, _)| value).to_bits(),
        Scalar::I8(value) => i64::from(value) as u64,
        Scalar::U8(value) => u64::from(value),
        Scalar::I16(value) => i64::from(value) as u64,
        Scalar::U16(value) | Scalar::Enum(value) => u64::from(value),
        Scalar::I32(value) => i64::from(value) as u64,
        Scalar::U32(value) => u64::from(value),
        Scalar::I64(value) => value as u64,
        Scalar::U64(value) => value,
        Scalar::F32(value) => f64::from(value).to_bits(),
        Scalar::F64(value) => value.to_bits(),
    }
}

fn text_of(scalar: Scalar, meta: Option<&Meta>) -> Str40 {
    match (scalar, meta) {
        (Scalar::Enum(number), Some(meta)) if !meta.labels.is_empty() => {
            let label = meta.labels.get(usize::from(number)).copied().or(meta.beyond);
            label.unwrap_or_else(|| text::scalar(scalar, 0))
        }
        (_, meta) => {
            let precision = |meta: &Meta| meta.text_precision.unwrap_or(meta.precision.clamp(0, 17) as u16);
            text::scalar(scalar, meta.map_or(0, precision))
        }
    }
}

/// Stores a value into the bytes of a variable. Elements that the value does not have stay.
pub(crate) fn store(def: &ChannelDef, bytes: &mut [u8], value: &Value, meta: Option<&Meta>) {
    let size = def.element.size() as usize;
    let from = prim_of(value.kind());
    for (nth, room) in bytes.chunks_exact_mut(size).enumerate().take(value.len()) {
        let Some(scalar) = value.get(nth) else { return };
        match def.element {
            Element::Str => room.copy_from_slice(text_of(scalar, meta).padded()),
            Element::Prim(prim) => {
                let bits = match cast(from, prim, word(scalar)) {
                    bits if prim == Prim::F32 => u64::from((f64::from_bits(bits) as f32).to_bits()),
                    bits => bits,
                };
                room.copy_from_slice(&bits.to_le_bytes()[..size]);
            }
        }
    }
}

/// The value of a variable, for a write of at most `count` elements.
pub(crate) fn load(def: &ChannelDef, bytes: &[u8], count: u32) -> Value {
    let size = def.element.size() as usize;
    let rooms = bytes.chunks_exact(size).take(def.count.min(count.max(1)) as usize);
    if def.count == 1 {
        let scalar = rooms.map(|room| scalar(def.element, room)).next();
        return Value::Scalar(scalar.unwrap_or(Scalar::I32(0)));
    }
    macro_rules! array {
        ($($prim:ident),*) => {
            match def.element {
                Element::Str => Value::Array(Array::String(rooms.map(Str40::new).collect())),
                $(Element::Prim(Prim::$prim) => Value::Array(Array::$prim(
                    rooms.filter_map(|room| match scalar(def.element, room) {
                        Scalar::$prim(value) => Some(value),
                        _ => None,
                    }).collect(),
                )),)*
            }
        };
    }
    array!(I8, U8, I16, U16, I32, U32, I64, U64, F32, F64)
}

fn scalar(element: Element, room: &[u8]) -> Scalar {
    let mut raw = [0; 8];
    let Element::Prim(prim) = element else { return Scalar::String(Str40::new(room)) };
    raw[..room.len()].copy_from_slice(room);
    let bits = u64::from_le_bytes(raw);
    match prim {
        Prim::I8 => Scalar::I8(bits as i8),
        Prim::U8 => Scalar::U8(bits as u8),
        Prim::I16 => Scalar::I16(bits as i16),
        Prim::U16 => Scalar::U16(bits as u16),
        Prim::I32 => Scalar::I32(bits as i32),
        Prim::U32 => Scalar::U32(bits as u32),
        Prim::I64 => Scalar::I64(bits as i64),
        Prim::U64 => Scalar::U64(bits),
        Prim::F32 => Scalar::F32(f32::from_bits(bits as u32)),
        Prim::F64 => Scalar::F64(f64::from_bits(bits)),
    }
}
