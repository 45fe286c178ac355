//! Links to fields of this database with modifiers: `rec.VAL$`, `rec.VAL[1:3]`, `rec.VAL{"ts":{"num":"sec"}}`.

use crate::model::id::RecId;
use crate::model::link::ResolvedLink;
use crate::model::values::array_of;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::run::link::LinkError;
use crate::text::conv::{self, Number};
use base::{Array, FieldType, Value};

/// Channels of these links. Slots of removed links are reused.
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

    /// Reads a link with modifiers; `None` if its source failed or `take` finds no suitable value. Severity is inherited only
    /// if the value could be read.
    fn through_get<T>(&mut self, rec: RecId, link: ResolvedLink, take: impl FnOnce(Value) -> Option<T>) -> Option<T> {
        let bare = self.bare(link)?;
        if Self::is_pp(link.flags) && self.process_passive(rec, bare.record()) {
            return None;
        }
        let channel = self.links.modified.get(link.target)?.clone();
        let value = self.get(&channel, usize::MAX);
        let taken = take(value)?;
        self.inherit_from(rec, bare);
        Some(taken)
    }

    /// First element as a number; `None` for a text that is not a number, and for an empty array.
    pub(crate) fn through_number<T: Number>(&mut self, rec: RecId, link: ResolvedLink) -> Option<T> {
        self.through_get(rec, link, |value| conv::number(value.get(0)?))
    }

    /// At most `max` elements, converted to another type.
    pub(crate) fn through_array(
        &mut self,
        rec: RecId,
        link: ResolvedLink,
        kind: FieldType,
        max: usize,
    ) -> Option<Array> {
        let source = self.bare(link)?;
        let precision = self.precision_of(source.record(), source.field);
        self.through_get(rec, link, |value| array_of(&value, kind, max, precision))
    }

    /// Writes a link with modifiers: `$` applies, filters are ignored.
    pub(crate) fn through_put(&mut self, rec: RecId, link: ResolvedLink, value: &Value) -> Result<(), LinkError> {
        let (Some(bare), Some(channel)) = (self.bare(link), self.links.modified.get(link.target).cloned()) else {
            return Err(LinkError);
        };
        let done = self.put_value(&channel, value);
        self.after_put(rec, bare, done.is_ok())
    }
}
