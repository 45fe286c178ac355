//! Links to fields of this database with modifiers: `rec.VAL$`, `rec.VAL[1:3]`, `rec.VAL{"ts":{"num":"sec"}}`.

use crate::model::id::RecId;
use crate::model::link::ResolvedLink;
use crate::model::values::array_of;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::run::link::LinkError;
use base::{Array, FieldType, Scalar, Value};

/// The channels of such links; places of those that ended are used again.
#[derive(Default)]
pub(crate) struct ModifiedLinks {
    channels: Vec<Option<Channel>>,
    free: Vec<u32>,
}

impl ModifiedLinks {
    pub(crate) fn add(&mut self, channel: Channel) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.channels[id as usize] = Some(channel);
                id
            }
            None => {
                self.channels.push(Some(channel));
                self.channels.len() as u32 - 1
            }
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Channel> {
        self.channels.get(id as usize)?.as_ref()
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.channels[id as usize] = None;
        self.free.push(id);
    }
}

impl Db {
    /// The same link without its modifiers.
    pub(crate) fn bare(&self, link: ResolvedLink) -> Option<ResolvedLink> {
        let channel = self.links.modified.get(link.target)?;
        Some(ResolvedLink::to_field(link.flags, channel.field, channel.record))
    }

    /// Reads such a link; `None` where its source failed.
    pub(crate) fn through_get(&mut self, rec: RecId, link: ResolvedLink) -> Option<Value> {
        let bare = self.bare(link)?;
        if Self::is_pp(link.flags) && self.process_passive(rec, bare.record()) {
            return None;
        }
        let channel = self.links.modified.get(link.target)?.clone();
        let value = self.get(&channel, usize::MAX);
        self.inherit_from(rec, bare);
        Some(value)
    }

    /// As [`through_get`](Self::through_get), the first element.
    pub(crate) fn through_scalar(&mut self, rec: RecId, link: ResolvedLink) -> Option<Scalar> {
        self.through_get(rec, link)?.get(0)
    }

    /// As [`through_get`](Self::through_get), at most `max` elements of another type.
    pub(crate) fn through_array(
        &mut self,
        rec: RecId,
        link: ResolvedLink,
        kind: FieldType,
        max: usize,
    ) -> Option<Array> {
        let source = self.bare(link)?;
        let precision = self.precision_of(source.record(), source.field);
        array_of(&self.through_get(rec, link)?, kind, max, precision)
    }

    /// Writes such a link: `$` counts, filters do not.
    pub(crate) fn through_put(&mut self, rec: RecId, link: ResolvedLink, value: &Value) -> Result<(), LinkError> {
        let (Some(bare), Some(channel)) = (self.bare(link), self.links.modified.get(link.target).cloned()) else {
            return Err(LinkError);
        };
        let done = self.put_value(&channel, value);
        self.after_put(rec, bare, done.is_ok())
    }
}
