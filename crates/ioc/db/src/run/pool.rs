//! Array memory for transfers between records, so that processing does not allocate.

use crate::model::slot::Slot;
use crate::run::engine::Db;
use base::{Array, FieldType};

/// Number of element types.
const KINDS: usize = FieldType::Enum as usize + 1;

/// One array per element type, to be lent and returned.
#[derive(Default)]
pub(crate) struct Pool([Option<Array>; KINDS]);

impl Db {
    /// Lends an empty array of a type. Return it with [`recycle_array`](Self::recycle_array).
    pub(crate) fn lend_array(&mut self, kind: FieldType) -> Array {
        let mut array =
            self.pool.0.get_mut(kind as usize).and_then(Option::take).unwrap_or_else(|| Array::zeros(kind, 0));
        array.truncate(0);
        array
    }

    /// Takes an array back. Of two arrays of a type, the larger one is kept.
    pub(crate) fn recycle_array(&mut self, array: Array) {
        let Some(place) = self.pool.0.get_mut(array.kind() as usize) else { return };
        if place.as_ref().is_none_or(|kept| room(kept) < room(&array)) {
            *place = Some(array);
        }
    }

    /// Preallocates arrays for transfers between all present records. Afterwards processing does not allocate for them.
    pub fn reserve_arrays(&mut self) {
        // Scalars can be read as arrays of one element.
        for kind in [FieldType::F64, FieldType::U8, FieldType::String] {
            self.pool.0[kind as usize].get_or_insert_with(|| Array::zeros(kind, 40));
        }
        for rec in self.records.common.ids() {
            let val = self.records.type_of(rec).val;
            let long_text = self.records.is_long_text(rec, val);
            if self.records[rec].removed || !(long_text || self.records.is_array(rec, val)) {
                continue;
            }
            let most = self.records.capacity(rec, val) as usize;
            let kind = if long_text { FieldType::U8 } else { self.records.element_type(rec, val) };
            for field in [Some(val), self.records.type_of(rec).field("OVAL")].into_iter().flatten() {
                if let (true, Slot::Array(Array::U8(bytes))) = (long_text, self.records.slot(rec, field)) {
                    bytes.reserve(most.saturating_sub(bytes.len()));
                }
            }
            if self.pool.0.get(kind as usize).is_some_and(|kept| kept.as_ref().map_or(0, room) < most) {
                self.pool.0[kind as usize] = Some(Array::zeros(kind, most));
            }
        }
    }
}

/// Capacity of an array in elements.
fn room(array: &Array) -> usize {
    macro_rules! arms {
        ($($variant:ident)*) => {
            match array {
                $(Array::$variant(elements) => elements.capacity(),)*
            }
        };
    }
    arms!(String I8 U8 I16 U16 I32 U32 I64 U64 F32 F64 Enum)
}
