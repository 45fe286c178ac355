//! Arrays: setting, selecting and converting elements in existing memory.

use crate::text::conv;
use base::{Array, FieldType, Scalar, Value};

/// A text up to its NUL.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}

/// Sets one element of an array. Returns whether the value fits.
pub(crate) fn set_element(array: &mut Array, at: usize, value: Scalar) -> bool {
    macro_rules! arms {
        ($($variant:ident)*) => {
            match array {
                $(Array::$variant(elements) => match (elements.get_mut(at), conv::number(value)) {
                    (Some(place), Some(number)) => *place = number,
                    _ => return false,
                },)*
                Array::String(elements) => match elements.get_mut(at) {
                    Some(place) => *place = base::text::scalar(value, 6),
                    None => return false,
                },
                Array::Enum(elements) => match (elements.get_mut(at), conv::number(value)) {
                    (Some(place), Some(number)) => *place = number,
                    _ => return false,
                },
            }
        };
    }
    arms!(I8 U8 I16 U16 I32 U32 I64 U64 F32 F64);
    true
}

/// Truncates an array, or extends it with zeros.
pub(crate) fn resize(array: &mut Array, len: usize) {
    macro_rules! arms {
        ($($variant:ident)*) => {
            match array {
                $(Array::$variant(elements) => elements.resize(len, Default::default()),)*
            }
        };
    }
    arms!(String I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Enum);
}

/// Converts at most `max` elements to the type of `into`, in its memory. Returns whether all of them fit.
pub(crate) fn convert_into(from: &Array, max: usize, precision: u16, into: &mut Array) -> bool {
    if from.kind() == into.kind() {
        copy_into(from, 0, 1, from.len(), max, into);
        return true;
    }
    let len = from.len().min(max);
    resize(into, len);
    (0..len).all(|at| match (from.get(at), &mut *into) {
        (Some(scalar), Array::String(texts)) => {
            texts[at] = base::text::scalar(scalar, precision);
            true
        }
        (Some(scalar), into) => set_element(into, at, scalar),
        (None, _) => false,
    })
}

/// Converts at most `max` elements to another type; `None` if one does not fit.
pub(crate) fn convert_array(from: &Array, kind: FieldType, max: usize, precision: u16) -> Option<Array> {
    let mut out = Array::zeros(kind, 0);
    convert_into(from, max, precision, &mut out).then_some(out)
}

/// Converts a value to at most `max` elements of a type; `None` if it does not fit.
pub(crate) fn array_of(value: &Value, kind: FieldType, max: usize, precision: u16) -> Option<Array> {
    match value {
        Value::Array(array) => convert_array(array, kind, max, precision),
        Value::Scalar(scalar) => {
            let mut one = Array::zeros(kind, 1);
            set_element(&mut one, 0, *scalar).then_some(one)
        }
    }
}

/// Start and end (exclusive) of a range over `len` elements; `None` if it is empty. Negative indices count from the end.
pub(crate) fn slice(len: usize, first: i32, last: i32) -> Option<(usize, usize)> {
    let index = |at: i32| if at < 0 { len as i64 + i64::from(at) } else { i64::from(at) };
    let from = index(first).max(0);
    let to = index(last).max(0).min(len as i64 - 1);
    (from <= to).then(|| (from as usize, to as usize + 1))
}

/// Every `step`th element from `from` up to, but not including, `to`.
pub(crate) fn pick(array: &Array, from: usize, step: usize, to: usize) -> Array {
    macro_rules! arms {
        ($($variant:ident)*) => {
            match array {
                $(Array::$variant(elements) => Array::$variant(elements[from..to].iter().step_by(step).copied().collect()),)*
            }
        };
    }
    arms!(String I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Enum)
}

/// Copies at most `max` elements, every `step`th from `from` up to, but not including, `to`, into another array's memory.
pub(crate) fn copy_into(array: &Array, from: usize, step: usize, to: usize, max: usize, into: &mut Array) {
    macro_rules! arms {
        ($($variant:ident)*) => {
            match (array, into) {
                $((Array::$variant(elements), Array::$variant(into)) => {
                    into.clear();
                    if step == 1 {
                        into.extend_from_slice(&elements[from..to.min(from + max.min(to - from))]);
                    } else {
                        into.extend(elements[from..to].iter().step_by(step).take(max).copied());
                    }
                })*
                (array, into) => {
                    *into = pick(array, from, step, to);
                    into.truncate(max);
                }
            }
        };
    }
    arms!(String I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Enum);
}

/// Copies `count` elements from `first` on into another array's memory, wrapping at the end of the source.
pub(crate) fn copy_ring(array: &Array, first: usize, count: usize, into: &mut Array) {
    let (len, behind) = (array.len(), (array.len() - first).min(count));
    copy_into(array, first, 1, len, behind, into);
    macro_rules! arms {
        ($($variant:ident)*) => {
            match (array, into) {
                $((Array::$variant(elements), Array::$variant(into)) => into.extend_from_slice(&elements[..count - behind]),)*
                _ => {}
            }
        };
    }
    arms!(String I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Enum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_from_both_ends() {
        assert_eq!(slice(10, 2, 4), Some((2, 5)));
        assert_eq!(slice(10, -3, -1), Some((7, 10)));
        assert_eq!(slice(3, 5, 9), None);
        assert_eq!((slice(0, 1, 4), slice(0, 0, -1), slice(0, i32::MIN, i32::MAX)), (None, None, None));
    }
}
