//! Execution of operations, and their answers.

use super::conn::{Busy, Conn, Op, OpKind, Step};
use super::{Get, Put, Server, Source, Token, Write};
use crate::codec::{Fault, Reader, Status};
use crate::nt::{Hints, Layout, View};
use crate::wire::{self, Side, command, sub};

/// Maximum number of writes of an operation that wait for the one that is being executed.
const LATER_MAX: usize = 16;

pub(super) const NO_READ: &str = "no read access";
const NO_WRITE: &str = "no write access";
const NOT_READ: &str = "the value cannot be read";

impl Server {
    /// Executes a request of an existing operation.
    pub(super) fn execute(
        &mut self,
        id: u32,
        command: u8,
        ioid: u32,
        sub: u8,
        reader: &mut Reader<'_>,
        source: &mut impl Source,
    ) -> Result<(), Fault> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let Some(op) = conn.ops.get_mut(&ioid).filter(|op| op.kind.command() == command) else {
            // An operation that has just ended gets no answer in a monitor: a late acknowledgement is normal.
            if command != command::MONITOR {
                conn.refuse(command, ioid, sub, "bad request id");
            }
            return Ok(());
        };
        if op.structure.is_some() {
            return self.execute_structure(id, ioid, sub, reader, source);
        }
        let Some(channel) = conn.channels.get(&op.sid) else { return Ok(()) };
        match &op.kind {
            OpKind::Monitor(_) => return self.monitor_request(id, ioid, sub, reader, source),
            OpKind::Get => self.read(id, ioid, sub, source),
            kind if kind.reads_back(sub) => self.read(id, ioid, sub, source),
            OpKind::Put { process, .. } | OpKind::PutGet { process, .. } => {
                let process = *process;
                let layout = channel.layout.clone();
                let mask = reader.mask()?;
                match layout.read_written(&mask, reader, &mut conn.received)? {
                    Ok(written) => {
                        let write = match (written, process) {
                            (Some(value), None) => Write::Value(value),
                            (Some(value), Some(process)) => Write::ValueAs(value, process),
                            // Nothing is written and nothing processed.
                            (None, Some(false)) => {
                                self.finish(id, ioid, sub, &Status::OK, source);
                                return Ok(());
                            }
                            (None, _) => Write::Process,
                        };
                        self.write(id, ioid, sub, write, source);
                    }
                    Err(unfit) => self.finish(id, ioid, sub, &Status::error(unfit.to_string()), source),
                }
            }
            OpKind::Process { .. } => self.write(id, ioid, sub, Write::Process, source),
            // Executed by `rpc`.
            OpKind::Call => {}
        }
        Ok(())
    }

    /// Reads the value and replies with it, now or when the source answers.
    fn read(&mut self, id: u32, ioid: u32, sub: u8, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let token = conn.token(id);
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        if !channel.opened.access.read {
            return self.finish(id, ioid, sub, &Status::error(NO_READ), source);
        }
        if op.busy.is_some() {
            return conn.refuse(
                op_command(conn, ioid),
                ioid,
                sub & !sub::DESTROY,
                "the previous request is not complete",
            );
        }
        let (layout, marks) = (channel.layout.clone(), op.select & channel.layout.all());
        match source.read(channel.opened.handle, marks & layout.properties() != 0, Some(token)) {
            Get::Done(view) => {
                reply_value(conn, ioid, sub, &layout, marks, &view);
                self.ended(id, ioid, sub, source);
            }
            Get::Sent => {
                op.busy = Some(Busy { token, sub, step: Step::Read });
                conn.pending.insert(token.0, ioid);
            }
            Get::Failed => self.finish(id, ioid, sub, &Status::error(NOT_READ), source),
        }
    }

    /// Starts a write, after earlier ones of the same operation.
    pub(super) fn write(&mut self, id: u32, ioid: u32, sub: u8, write: Write, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let token = conn.token(id);
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        if op.busy.is_some() {
            if op.later.len() < LATER_MAX {
                op.later.push_back((write, sub));
                return;
            }
            self.counters.refused += 1;
            let message = format!("too many writes wait on one operation, at most {LATER_MAX}");
            return conn.refuse(op_command(conn, ioid), ioid, sub & !sub::DESTROY, &message);
        }
        if !channel.opened.access.write {
            return self.finish(id, ioid, sub, &Status::error(NO_WRITE), source);
        }
        let handle = channel.opened.handle;
        let wait = op.kind.waits();
        // A completion may arrive before the source returns.
        op.busy = Some(Busy { token, sub, step: Step::Write });
        conn.pending.insert(token.0, ioid);
        let put = source.write(handle, conn.peer(), write, token, wait);
        source.take_warnings().iter().for_each(|warning| conn.warn(ioid, warning));
        self.written(token, put, source);
    }

    /// The result of a write that was [`Put::Sent`].
    pub fn written(&mut self, token: Token, put: Put, source: &mut impl Source) {
        match put {
            Put::Done => self.put_done(token, true, source),
            Put::Failed(message) => self.complete(token, &Status::error(message), source),
            Put::Later | Put::Sent => {}
        }
    }

    /// A write with completion has ended.
    pub fn put_done(&mut self, token: Token, ok: bool, source: &mut impl Source) {
        let status = if ok { Status::OK } else { Status::error("the record could not complete the write") };
        self.complete(token, &status, source);
    }

    fn complete(&mut self, token: Token, status: &Status, source: &mut impl Source) {
        let id = (token.0 >> 32) as u32;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(ioid) = conn.pending.remove(&token.0) else { return };
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let Some(busy) = op.busy.take() else { return };
        match op.kind {
            OpKind::PutGet { .. } if status.is_success() && op.structure.is_some() => {
                self.read_structure(id, ioid, busy.sub, source);
            }
            OpKind::PutGet { .. } if status.is_success() => self.read(id, ioid, busy.sub, source),
            _ => self.finish(id, ioid, busy.sub, status, source),
        }
        self.touch(id);
    }

    /// The answer to a read that was [`Get::Sent`]; `None` if it failed.
    pub fn answer(&mut self, token: Token, view: Option<View<'_>>, source: &mut impl Source) {
        let id = (token.0 >> 32) as u32;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(ioid) = conn.pending.remove(&token.0) else { return };
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let Some(Busy { sub, step, .. }) = op.busy.take() else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        let (layout, marks) = (channel.layout.clone(), op.select & channel.layout.all());
        match (view, step) {
            (Some(view), Step::First) => self.first_answer(id, ioid, &view),
            (Some(view), _) => {
                reply_value(conn, ioid, sub, &layout, marks, &view);
                self.ended(id, ioid, sub, source);
            }
            (None, _) => self.finish(id, ioid, sub, &Status::error(NOT_READ), source),
        }
        self.touch(id);
    }

    /// Replies without data.
    pub(super) fn finish(&mut self, id: u32, ioid: u32, sub: u8, status: &Status, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.reply(op_command(conn, ioid), ioid, sub, status, |_| {});
        self.ended(id, ioid, sub, source);
    }

    /// A request was answered: its operation ends, or continues with the next write.
    pub(super) fn ended(&mut self, id: u32, ioid: u32, sub: u8, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if sub & sub::DESTROY != 0 {
            return conn.end_op(id, ioid, &mut self.watchers, source);
        }
        if let Some((write, sub)) = conn.ops.get_mut(&ioid).and_then(|op| op.later.pop_front()) {
            self.write(id, ioid, sub, write, source);
        }
    }
}

fn op_command(conn: &Conn, ioid: u32) -> u8 {
    conn.ops.get(&ioid).map_or(command::GET, |op: &Op| op.kind.command())
}

/// Appends a reply with the fields in `marks`.
fn reply_value(conn: &mut Conn, ioid: u32, sub: u8, layout: &Layout, marks: u64, view: &View<'_>) {
    let command = op_command(conn, ioid);
    let channel = conn.ops.get(&ioid).and_then(|op| conn.channels.get(&op.sid));
    let view = View { hints: channel.map_or(Hints::NONE, |channel| channel.hints), ..*view };
    let start = wire::begin(&mut conn.out, Side::Server, command);
    let out = &mut conn.out;
    out.u32(ioid);
    out.u8(sub);
    out.status(&Status::OK);
    out.mask64(marks);
    layout.encode(marks, &view, out);
    wire::end(out, start);
}

impl OpKind {
    /// Whether the answer to a write waits for the end of processing.
    const fn waits(&self) -> bool {
        matches!(self, Self::Put { wait: true, .. } | Self::PutGet { wait: true, .. } | Self::Process { wait: true })
    }

    /// Whether a request reads the value that a write would change.
    pub(super) const fn reads_back(&self, sub: u8) -> bool {
        match self {
            Self::Put { .. } => sub & sub::GET != 0,
            Self::PutGet { .. } => sub & (sub::GET | sub::GET_PUT) != 0,
            _ => false,
        }
    }
}

impl Conn {
    /// Cancels the request that an operation executes. The operation remains.
    pub(super) fn cancel(&mut self, ioid: u32, source: &mut impl Source) {
        let Some(op) = self.ops.get_mut(&ioid) else { return };
        op.later.clear();
        if let Some(busy) = op.busy.take_if(|busy| busy.step != Step::First) {
            self.pending.remove(&busy.token.0);
            if matches!(busy.step, Step::Write | Step::Call) {
                source.forget(busy.token);
            }
        }
    }
}
