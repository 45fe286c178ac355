//! Types that a peer has numbered, one table for each direction of a connection.

use super::{Fault, Struct, Type};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum memory of a table, in bytes of descriptions.
const BYTES_MAX: usize = 4 << 20;
/// Maximum number of types that are sent under a number. Further ones are sent in full.
const SENT_MAX: u16 = 0x7FFF;

/// The types that the peer has sent with a number. A connection starts with an empty table.
#[derive(Debug, Default)]
pub struct TypeTable {
    types: HashMap<u16, (Type, usize)>,
    bytes: usize,
}

impl TypeTable {
    /// The type with a number.
    ///
    /// # Errors
    /// The peer has not defined it.
    pub(super) fn get(&self, id: u16) -> Result<Type, Fault> {
        self.types.get(&id).map(|(ty, _)| ty.clone()).ok_or(Fault::UnknownType(id))
    }

    /// Stores a type whose description had this many bytes. It replaces an earlier one with the same number.
    ///
    /// # Errors
    /// The table is full.
    pub(super) fn put(&mut self, id: u16, ty: Type, bytes: usize) -> Result<(), Fault> {
        let before = self.types.insert(id, (ty, bytes)).map_or(0, |(_, bytes)| bytes);
        self.bytes = self.bytes + bytes - before;
        if self.bytes > BYTES_MAX { Err(Fault::TableFull) } else { Ok(()) }
    }
}

/// The structures that this side has sent with a number.
#[derive(Debug, Default)]
pub struct SentTypes {
    /// Numbers by address. The structures are kept, so that an address is not used again.
    ids: HashMap<usize, (u16, Arc<Struct>)>,
}

impl SentTypes {
    /// The number of a structure, and whether its description must be sent too; `None` if all numbers are used.
    pub(super) fn number(&mut self, ty: &Arc<Struct>) -> Option<(u16, bool)> {
        let key = Arc::as_ptr(ty) as usize;
        if let Some((id, _)) = self.ids.get(&key) {
            return Some((*id, false));
        }
        let id = u16::try_from(self.ids.len()).ok().filter(|id| *id < SENT_MAX)? + 1;
        self.ids.insert(key, (id, ty.clone()));
        Some((id, true))
    }
}
