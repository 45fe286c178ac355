//! Links over channels to fields of this database: what `CA`, `CP` and `CPP` ask for.
//!
//! As C's `dbCa` has them they take no part in what their record does: values come as the field's monitors show them, and
//! a write is done after the chain that asked for it, as a client's would be, with a completion of its own.

use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::run::events::LINKS;
use crate::run::link::remote::RemoteId;
use crate::run::notify::{NotifyState, Requester};
use base::{Array, EventMask, FieldType, Scalar, Value};

/// Something that a link asks for, to be done soon.
#[derive(Debug)]
pub(crate) enum Chore {
    /// Its first value, where it reads, and what follows.
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
        /// Whether its holder waits for the end.
        notify: bool,
    },
}

impl Db {
    /// Connects the links that wait for it.
    pub(crate) fn connect_links(&mut self) {
        while matches!(self.links.remotes.chores.front(), Some(Chore::Connect { .. })) {
            self.do_chore();
        }
    }

    /// Does the oldest thing that a link into this database asks for; whether there was one.
    pub(crate) fn do_chore(&mut self) -> bool {
        let Some(chore) = self.links.remotes.chores.pop_front() else { return false };
        let (Chore::Connect { id, .. } | Chore::Put { id, .. }) = chore;
        // A link that has ended meanwhile leads nowhere.
        let Some(channel) = self.links.remotes.source(id.0).cloned() else { return true };
        match chore {
            Chore::Connect { monitor: false, .. } => {
                self.note_properties(id, &channel);
                self.remote_connect(id);
            }
            Chore::Connect { monitor: true, .. } => self.connect_input(id, &channel),
            // Without completion nobody hears of a failure, as over the network.
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

    /// The properties of what a link leads to, as they are when it is connected.
    fn note_properties(&mut self, id: RemoteId, channel: &Channel) {
        let is_text = matches!(self.info(channel).kind, FieldType::String | FieldType::Link);
        let mut meta = (!is_text).then(|| Box::new(self.meta(channel)));
        self.remote_meta(id, &mut meta);
    }

    fn connect_input(&mut self, id: RemoteId, channel: &Channel) {
        self.note_properties(id, channel);
        self.subscribe(LINKS, channel, EventMask::VALUE | EventMask::ALARM, u64::from(id.0));
        // Filters that decide about events have let the first pass already, or not.
        if !channel.filters.decide() {
            let (alarm, (stamp, _)) = (self.alarm(channel.record), self.stamp_of(channel));
            let value = match self.get(channel, usize::MAX) {
                Value::Array(array) => Value::Array(self.with_room(channel, array)),
                scalar => as_sent(scalar),
            };
            self.remote_update(id, value, alarm, stamp);
        }
    }

    /// An array with room for all elements that its field can have: what follows is not to take memory.
    fn with_room(&self, channel: &Channel, array: Array) -> Array {
        let mut room = Array::zeros(array.kind(), self.info(channel).elements_max as usize);
        room.truncate(0);
        crate::model::values::copy_into(&array, 0, 1, array.len(), usize::MAX, &mut room);
        room
    }

    /// Whether a value can become one of the field that a link leads to, where that is known here.
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

/// A number as Channel Access carries it, which knows no unsigned 16 bits, no unsigned 32 and no 64.
pub(crate) fn as_sent(value: Value) -> Value {
    match value {
        Value::Scalar(Scalar::U16(number)) => Value::Scalar(Scalar::I32(number.into())),
        Value::Scalar(Scalar::U32(number)) => Value::Scalar(Scalar::F64(number.into())),
        Value::Scalar(Scalar::I64(number)) => Value::Scalar(Scalar::F64(number as f64)),
        Value::Scalar(Scalar::U64(number)) => Value::Scalar(Scalar::F64(number as f64)),
        other => other,
    }
}
