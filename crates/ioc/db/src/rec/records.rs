//! The records of a database.

use super::common::{Common, KindCell};
use super::{Bodies, Body, Kind, Stored, builtin};
use crate::model::id::{PerRecord, RecId};
use crate::model::names::Names;
use crate::model::schema::{At, FieldDef, Schema, TypeDef};
use crate::model::slot::{Layout, Slot};
use base::FieldType;
use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// The records: types, names, fields and tags. A record number indexes the common part, a body index the type-specific part.
pub(crate) struct Records {
    /// Shared with the databases split off from this one.
    pub(crate) schema: Arc<Schema>,
    pub(crate) names: Names,
    pub(crate) common: PerRecord<Common>,
    pub(crate) bodies: Bodies,
    pub(crate) info: HashMap<RecId, Vec<(String, String)>>,
}

impl Index<RecId> for Records {
    type Output = Common;
    #[inline]
    fn index(&self, rec: RecId) -> &Common {
        &self.common[rec]
    }
}

impl IndexMut<RecId> for Records {
    #[inline]
    fn index_mut(&mut self, rec: RecId) -> &mut Common {
        &mut self.common[rec]
    }
}

impl<T: Stored> Index<Body<T>> for Records {
    type Output = T;
    #[inline]
    fn index(&self, body: Body<T>) -> &T {
        &self.bodies[body]
    }
}

impl<T: Stored> IndexMut<Body<T>> for Records {
    #[inline]
    fn index_mut(&mut self, body: Body<T>) -> &mut T {
        &mut self.bodies[body]
    }
}

impl Records {
    /// No records; the record types of EPICS 7.
    pub(crate) fn new() -> Self {
        let (names, common, bodies, info) = Default::default();
        Self { schema: builtin(), names, common, bodies, info }
    }

    /// Common part and body of a record, borrowed separately.
    #[inline]
    pub(crate) fn both<T: Stored>(&mut self, rec: RecId, body: Body<T>) -> (&mut Common, &mut T) {
        (&mut self.common[rec], &mut self.bodies[body])
    }

    /// Creates a record of a type.
    pub(crate) fn create(&mut self, kind: Kind, name: &[u8]) -> RecId {
        let mut common = self[kind.first()].clone();
        common.removed = false;
        common.body = self.bodies.push_like_first(kind);
        common.name = self.names.add(name, self.common.end());
        self.common.push(common)
    }

    /// Creates the prototype of a type. Its fields must be set afterwards.
    pub(crate) fn create_first(&mut self, kind: Kind) -> RecId {
        let body = self.bodies.push_like_first(kind);
        let name = self.names.add(b"", kind.first());
        self.common.push(Common { kind: KindCell(kind), body, name, removed: true, ..Default::default() })
    }

    /// Moves a record with its fields and tags from a database with the same types, and returns its number here. The other
    /// database keeps the record's number and name.
    pub(crate) fn take(&mut self, from: &mut Self, rec: RecId) -> RecId {
        let kind = from[rec].kind();
        let new = self.create(kind, from.names.name(from[rec].name));
        let Common { body, name, .. } = self[new];
        self.bodies.swap(kind, body, &mut from.bodies, from.common[rec].body);
        self[new] = Common { body, name, ..from[rec].clone() };
        if let Some(tags) = from.info.get(&rec) {
            self.info.insert(new, tags.clone());
        }
        new
    }

    /// Copies the fields of a record from another database. The copy has no subscriptions.
    pub(crate) fn copy(&mut self, rec: RecId, from: &Self, there: RecId) {
        let Common { body, name, .. } = self[rec];
        self[rec] = Common { body, name, monitors: 0, notify: 0, ..from[there].clone() };
        self.bodies.copy(from[there].kind(), body, &from.bodies, from[there].body);
    }

    /// The name of a record.
    pub(crate) fn name(&self, rec: RecId) -> &str {
        self.names.text(self[rec].name)
    }

    /// The type of a record.
    #[inline]
    pub(crate) fn type_of(&self, rec: RecId) -> &TypeDef {
        &self.schema.types[self[rec].kind() as usize]
    }

    /// The definition of a field.
    #[inline]
    pub(crate) fn def(&self, rec: RecId, field: u16) -> &FieldDef {
        &self.type_of(rec).fields[usize::from(field)]
    }

    /// Where a field is stored.
    #[inline]
    fn at(&self, kind: Kind, field: u16) -> At {
        self.schema.types[kind as usize].fields.get(usize::from(field)).map_or(At::Nowhere, |def| def.at)
    }

    /// A field, borrowed for reading. Does not allocate a field that is at its initial value.
    #[inline]
    pub(crate) fn peek(&mut self, rec: RecId, field: u16) -> Slot<'_> {
        let common = &self[rec];
        let kind = common.kind();
        let rests = match self.at(kind, field) {
            At::Common(slot) => common.rests(usize::from(slot)),
            At::Body(slot) => self.bodies.rests(kind, common.body, slot),
            At::Nowhere => false,
        };
        // The prototype of each type has all fields at their initial values.
        self.slot(if rests { kind.first() } else { rec }, field)
    }

    /// A field, borrowed. Allocates it if necessary.
    #[inline]
    pub(crate) fn slot(&mut self, rec: RecId, field: u16) -> Slot<'_> {
        let kind = self[rec].kind();
        let at = self.at(kind, field);
        let common = &mut self.common[rec];
        match at {
            At::Common(slot) => common.slot(usize::from(slot)),
            At::Body(slot) => self.bodies.slot(kind, common.body, slot),
            At::Nowhere => Slot::None,
        }
    }

    /// Whether a field holds a variable number of elements.
    #[inline]
    pub(crate) fn is_array(&self, rec: RecId, field: u16) -> bool {
        let def = self.def(rec, field);
        def.kind.is_none() && def.at != At::Nowhere && !self.is_long_text(rec, field)
    }

    /// Capacity of an array field in elements (bytes for a long text).
    pub(crate) fn capacity(&self, rec: RecId, field: u16) -> u32 {
        self.shape(rec, field).0
    }

    /// Element type of a field.
    pub(crate) fn element_type(&self, rec: RecId, field: u16) -> FieldType {
        match self.def(rec, field).kind {
            Some(FieldType::Enum) if self.is_plain_number(rec) => FieldType::U16,
            Some(kind) => kind,
            None if self.is_long_text(rec, field) => FieldType::String,
            None => self.shape(rec, field).1,
        }
    }
}
