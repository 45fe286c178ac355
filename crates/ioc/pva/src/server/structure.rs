//! Structures that are no record's field, such as groups. Their values are trees, because their types vary.

use super::conn::{Busy, Conn, OpKind, Step};
use super::monitor::{Content, Update};
use super::{Server, Source, Token, Write};
use crate::codec::{Fault, Mask, Reader, Status, Type, Value, Writer};
use crate::group;
use crate::wire::{self, Side, command, sub};
use std::sync::Arc;

/// A value of a structure, with the fields that are valid or have changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The fields.
    pub marks: Mask,
    /// The whole value.
    pub value: Arc<Value>,
}

/// The request of a client for a structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to read or write all fields at once; `None` for the choice of the source.
    pub atomic: Option<bool>,
}

/// The result of reading a structure.
#[derive(Clone, Debug, PartialEq)]
pub enum StructureGet {
    /// The value.
    Done(Snapshot),
    /// [`Server::answer_structure`] follows.
    Sent,
    /// The value cannot be read. The client receives this status.
    Failed(Status),
}

/// The state of an operation on a structure.
pub(super) struct StructureOp {
    /// The fields that the client selected.
    pub(super) select: Mask,
    pub(super) options: Options,
}

impl Server {
    /// Executes a request of an operation on a structure.
    pub(super) fn execute_structure(
        &mut self,
        id: u32,
        ioid: u32,
        sub: u8,
        reader: &mut Reader<'_>,
        source: &mut impl Source,
    ) -> Result<(), Fault> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let Some(op) = conn.ops.get_mut(&ioid) else { return Ok(()) };
        let Some(channel) = conn.channels.get(&op.sid) else { return Ok(()) };
        match &op.kind {
            OpKind::Monitor(_) => return self.monitor_request(id, ioid, sub, reader, source),
            OpKind::Get => self.read_structure(id, ioid, sub, source),
            kind if kind.reads_back(sub) => self.read_structure(id, ioid, sub, source),
            OpKind::Put { .. } | OpKind::PutGet { .. } => {
                let layout = channel.layout.clone();
                let marks = reader.mask()?;
                let mut value = Value::zero(layout.ty());
                reader.fields_of(layout.ty(), &marks, &mut value, &mut conn.received)?;
                let options = op.structure.as_ref().map_or_else(Options::default, |structure| structure.options);
                self.write(id, ioid, sub, Write::Structure { marks, value, options }, source);
            }
            OpKind::Process { .. } => self.write(id, ioid, sub, Write::Process, source),
            OpKind::Call => {}
        }
        Ok(())
    }

    pub(super) fn read_structure(&mut self, id: u32, ioid: u32, sub: u8, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let token = conn.token(id);
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        if !channel.opened.access.read {
            return self.finish(id, ioid, sub, &Status::error(super::ops::NO_READ), source);
        }
        if op.busy.is_some() {
            let command = op.kind.command();
            return conn.refuse(command, ioid, sub & !sub::DESTROY, "the previous request is not complete");
        }
        let options = op.structure.as_ref().map_or_else(Options::default, |structure| structure.options);
        let handle = channel.opened.handle;
        op.busy = Some(Busy { token, sub, step: Step::Read });
        conn.pending.insert(token.0, ioid);
        match source.read_structure(handle, options, token) {
            StructureGet::Done(snapshot) => self.answer_structure(token, Ok(snapshot), source),
            StructureGet::Sent => {}
            StructureGet::Failed(status) => self.answer_structure(token, Err(status), source),
        }
    }

    /// The answer to a read that was [`StructureGet::Sent`], or the status that the client receives instead.
    pub fn answer_structure(&mut self, token: Token, answer: Result<Snapshot, Status>, source: &mut impl Source) {
        let id = (token.0 >> 32) as u32;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(ioid) = conn.pending.remove(&token.0) else { return };
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let Some(Busy { sub, step, .. }) = op.busy.take() else { return };
        match (answer, step) {
            (Ok(snapshot), Step::First) => self.first_snapshot(id, ioid, snapshot),
            // The next change is the first update then.
            (Err(_), Step::First) => {}
            (Ok(snapshot), _) => {
                reply_snapshot(conn, ioid, sub, &snapshot);
                self.ended(id, ioid, sub, source);
            }
            (Err(status), _) => self.finish(id, ioid, sub, &status, source),
        }
        self.touch(id);
    }

    /// Requests the first update of a monitor.
    pub(super) fn first_structure(&mut self, id: u32, ioid: u32, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let token = conn.token(id);
        let Some(op) = conn.ops.get_mut(&ioid).filter(|op| op.busy.is_none()) else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        let handle = channel.opened.handle;
        op.busy = Some(Busy { token, sub: 0, step: Step::First });
        conn.pending.insert(token.0, ioid);
        // Updates are always read at once.
        match source.read_structure(handle, Options { atomic: Some(true) }, token) {
            StructureGet::Done(snapshot) => self.answer_structure(token, Ok(snapshot), source),
            StructureGet::Sent => {}
            StructureGet::Failed(status) => self.answer_structure(token, Err(status), source),
        }
    }

    fn first_snapshot(&mut self, id: u32, ioid: u32, mut snapshot: Snapshot) {
        if group::has_options(&snapshot.value) {
            snapshot.marks.set(group::QUEUE_SIZE_BIT);
        }
        self.send_snapshot(id, ioid, &snapshot, &mut None);
    }

    /// Sends a changed value to the monitors of a structure. Fields that are the same for several clients are encoded once.
    pub fn post_structure(&mut self, watch: u64, snapshot: &Snapshot) {
        let Some(list) = self.watchers.get(&watch).cloned() else { return };
        let mut shared = None;
        for (id, ioid) in list {
            // The answer to the first read contains all changes before it.
            let is_busy = self.conns.get(&id).and_then(|conn| conn.ops.get(&ioid)).is_none_or(|op| op.busy.is_some());
            if !is_busy {
                self.send_snapshot(id, ioid, snapshot, &mut shared);
            }
        }
    }

    /// Sends or queues an update. `shared` has the encoded fields of the previous client.
    fn send_snapshot(&mut self, id: u32, ioid: u32, snapshot: &Snapshot, shared: &mut Option<Mask>) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.closing) else { return };
        let room = conn.has_room(&self.limits);
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let (OpKind::Monitor(monitor), Some(structure)) = (&mut op.kind, &op.structure) else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        let marks = snapshot.marks.and(&structure.select);
        if marks.is_empty() || !monitor.running {
            return;
        }
        if room && monitor.is_open() {
            monitor.take_credit();
            self.counters.updates += 1;
            let queue = monitor.queue_max();
            if shared.as_ref() != Some(&marks) || has_queue_size(&marks, &snapshot.value) {
                self.shared.bytes.clear();
                write_fields(&mut self.shared, channel.layout.ty(), &marks, &snapshot.value, queue);
                *shared = Some(marks.clone());
            }
            let encoded = &self.shared.bytes;
            write_update(&mut conn.out, ioid, &marks, &Mask::default(), |out| out.bytes.extend_from_slice(encoded));
        } else {
            let content = Content::Structure { marks, overrun: Mask::default(), value: snapshot.value.clone() };
            let update = Update { marks: 0, overrun: 0, content };
            self.counters.replaced += u64::from(conn.queue(ioid, update, self.limits.queued_bytes));
        }
        self.touch(id);
    }
}

/// Appends an update that waited.
pub(super) fn write_queued(
    out: &mut Writer,
    ioid: u32,
    ty: &Type,
    (marks, overrun): (&Mask, &Mask),
    value: &Arc<Value>,
    queue: usize,
) {
    write_update(out, ioid, marks, overrun, |out| write_fields(out, ty, marks, value, queue));
}

/// Whether the fields include the length of the queue.
fn has_queue_size(marks: &Mask, value: &Value) -> bool {
    marks.has(group::QUEUE_SIZE_BIT) && group::has_options(value)
}

/// Appends fields. The length of the queue is that of the monitor.
fn write_fields(out: &mut Writer, ty: &Type, marks: &Mask, value: &Arc<Value>, queue: usize) {
    if has_queue_size(marks, value) {
        let mut value = Value::clone(value);
        group::set_queue_size(&mut value, queue as i32);
        out.fields_of(ty, marks, &value);
    } else {
        out.fields_of(ty, marks, value);
    }
}

fn write_update(out: &mut Writer, ioid: u32, marks: &Mask, overrun: &Mask, fields: impl FnOnce(&mut Writer)) {
    wire::message(out, Side::Server, command::MONITOR, |out| {
        out.u32(ioid);
        out.u8(0);
        out.mask(marks);
        fields(out);
        out.mask(overrun);
    });
}

/// Appends a reply with the selected fields of a value.
fn reply_snapshot(conn: &mut Conn, ioid: u32, sub: u8, snapshot: &Snapshot) {
    let Some(op) = conn.ops.get(&ioid) else { return };
    let (Some(structure), Some(channel)) = (&op.structure, conn.channels.get(&op.sid)) else { return };
    let marks = snapshot.marks.and(&structure.select);
    let layout = channel.layout.clone();
    conn.reply(op.kind.command(), ioid, sub, &Status::OK, |out| {
        out.mask(&marks);
        out.fields_of(layout.ty(), &marks, &snapshot.value);
    });
}
