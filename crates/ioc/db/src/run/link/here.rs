//! Links over channels to fields of this database, selected by `CA`, `CP` and `CPP`.
//!
//! As in C's `dbCa`, they are not part of the record's processing. Values arrive like monitors of the field. A write is done
//! after the current chain, like a client's put, with its own completion.

use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::run::events::LINKS;
use crate::run::link::remote::RemoteId;
use crate::run::notify::{NotifyState, Requester};
use base::{Array, EventMask, FieldType, Scalar, Value};

/// A deferred operation of a link.
#[derive(Debug)]
pub(crate) enum Chore {
    /// Connects the link and, if it reads, gets its first value and starts monitoring.
    Connect {
        /// Number of the link.
        id: RemoteId,
        /// Whether it reads.
        monitor: bool,
    },
    /// A write.
    Put {
        /// Number of the link.
        id: RemoteId,
        /// The value.
        value: Value,
        /// Whether the holder waits for completion.
        notify: bool,
    },
}

impl Db {
    /// Connects the waiting links.
    pub(crate) fn connect_links(&mut self) {
        while matches!(self.links.remotes.chores.front(), Some(Chore::Connect { .. })) {
            self.do_chore();
        }
    }

    /// Runs the oldest deferred operation. Returns whether there was one.
    pub(crate) fn do_chore(&mut self) -> bool {
        let Some(chore) = self.links.remotes.chores.pop_front() else { return false };
        let (Chore::Connect { id, .. } | Chore::Put { id, .. }) = chore;
        // The link was removed in the meantime.
        let Some(channel) = self.links.remotes.source(id.0).cloned() else { return true };
        match chore {
            Chore::Connect { monitor: false, .. } => {
                self.note_properties(id, &channel);
                self.remote_connect(id);
            }
            Chore::Connect { monitor: true, .. } => self.connect_input(id, &channel),
            // Without completion, a failed write is not reported, as over the network.
            Chore::Put { value, notify: false, .. } => drop(self.put(&channel, &value, self.time.now)),
            Chore::Put { value, notify: true, .. } => {
                match self.put_notify_for(&channel, &value, Requester::Link(id), self.time.now) {
                    Ok(NotifyState::Pending) => {}
                    Ok(NotifyState::Done) => self.remote_written(id, true),
                    Err(_) => self.remote_written(id, false),
                }
            }
        }
        true
    }

    /// Stores the properties of a link's target at connection time.
    fn note_properties(&mut self, id: RemoteId, channel: &Channel) {
        let is_text = matches!(self.info(channel).kind, FieldType::String | FieldType::Link);
        let mut meta = (!is_text).then(|| Box::new(self.meta(channel)));
        self.remote_meta(id, &mut meta);
    }

    fn connect_input(&mut self, id: RemoteId, channel: &Channel) {
        self.note_properties(id, channel);
        self.subscribe(LINKS, channel, EventMask::VALUE | EventMask::ALARM, u64::from(id.0));
        // If filters decide about events, they have already passed or dropped the first value.
        if !channel.filters.decide() {
            let (alarm, (stamp, _)) = (self.alarm(channel.record), self.stamp_of(channel));
            let value = match self.get(channel, usize::MAX) {
                Value::Array(array) => Value::Array(self.with_room(channel, array)),
                scalar => as_sent(scalar),
            };
            self.remote_update(id, value, alarm, stamp);
        }
    }

    /// Reserves capacity for all elements of the field in an array, so that later updates do not allocate.
    fn with_room(&self, channel: &Channel, array: Array) -> Array {
        let mut room = Array::zeros(array.kind(), self.info(channel).elements_max as usize);
        room.truncate(0);
        crate::model::values::copy_into(&array, 0, 1, array.len(), usize::MAX, &mut room);
        room
    }

    /// Whether a value can be converted to the type of the link's target, if the target is local.
    pub(crate) fn fits(&self, link: u32, value: &Value) -> bool {
        let (Some(source), Value::Scalar(scalar @ Scalar::String(_))) = (self.links.remotes.source(link), value) else {
            return true;
        };
        match self.info(source).kind {
            FieldType::String | FieldType::Link | FieldType::Enum | FieldType::Menu | FieldType::Device => true,
            _ => crate::text::conv::number::<f64>(*scalar).is_some(),
        }
    }
}

/// Converts a number to a type of Channel Access, which has no unsigned 16 and 32 bit types and no 64 bit types.
pub(crate) fn as_sent(value: Value) -> Value {
    match value {
        Value::Scalar(Scalar::U16(number)) => Value::Scalar(Scalar::I32(number.into())),
        Value::Scalar(Scalar::U32(number)) => Value::Scalar(Scalar::F64(number.into())),
        Value::Scalar(Scalar::I64(number)) => Value::Scalar(Scalar::F64(number as f64)),
        Value::Scalar(Scalar::U64(number)) => Value::Scalar(Scalar::F64(number as f64)),
        other => other,
    }
}
