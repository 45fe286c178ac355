//! Calls: of channels that are functions of the source, and of the channel `server`, which describes the server: its functions
//! return the names of channels and the program.

use super::conn::{Busy, Conn, Op, OpKind, Step};
use super::handle::call_argument;
use super::{Call, Server, Source, Token, Typed};
use crate::codec::{Array, Fault, Kind, Reader, Status, Struct, Type, Value};
use crate::wire::{self, Side, command, sub};

/// The name of the channel. It is not found by searches.
pub(super) const NAME: &[u8] = b"server";

impl Server {
    /// Creates or executes a call.
    pub(super) fn rpc(&mut self, id: u32, reader: &mut Reader<'_>, source: &mut impl Source) -> Result<(), Fault> {
        let (sid, ioid, sub) = (reader.u32()?, reader.u32()?, reader.u8()?);
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        // Types are read in any case, because later messages may refer to them.
        let argument = call_argument(reader, &mut conn.received)?;
        if !conn.describes.contains_key(&sid) {
            if sub & sub::INIT != 0 {
                self.create_call(id, sid, ioid);
            } else {
                self.call(id, ioid, sub, argument, source);
            }
            return Ok(());
        }
        let refused = if sub & sub::INIT == 0 && !conn.calls.contains(&ioid) {
            Some("bad request id")
        } else if sub & sub::INIT != 0 && conn.calls.len() >= self.limits.operations {
            self.counters.refused += 1;
            Some("too many operations on one connection")
        } else {
            None
        };
        if let Some(refused) = refused {
            conn.refuse(command::RPC, ioid, sub, refused);
            return Ok(());
        }
        if sub & sub::INIT != 0 {
            conn.calls.insert(ioid);
            conn.reply(command::RPC, ioid, sub, &Status::OK, |_| {});
            return Ok(());
        }
        let op = argument.as_ref().and_then(|(ty, value)| {
            let (query, ty) = value.field(ty.fields()?, "query")?;
            query.field(ty.fields()?, "op")?.0.as_text()
        });
        match answer(op.unwrap_or("help"), source) {
            Some((ty, value)) => conn.reply(command::RPC, ioid, sub, &Status::OK, |out| {
                out.ty(&ty);
                out.value(&value);
            }),
            None => {
                let message = format!("op=\"{}\" is unknown, expected channels, info or help", op.unwrap_or_default());
                conn.refuse(command::RPC, ioid, sub, &message);
            }
        }
        if sub & sub::DESTROY != 0 {
            conn.calls.remove(&ioid);
        }
        Ok(())
    }
}

impl Server {
    /// Creates an operation that calls a function of the source.
    fn create_call(&mut self, id: u32, sid: u32, ioid: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let refused = if !conn.channels.get(&sid).is_some_and(|channel| channel.is_function) {
            Some("RPC is not supported by this channel")
        } else if conn.ops.contains_key(&ioid) {
            Some("the operation id is in use")
        } else if conn.ops.len() >= self.limits.operations {
            self.counters.refused += 1;
            Some("too many operations on one connection")
        } else {
            None
        };
        if let Some(refused) = refused {
            return conn.refuse(command::RPC, ioid, sub::INIT, refused);
        }
        let op = Op { sid, kind: OpKind::Call, busy: None, later: Default::default(), select: 0, structure: None };
        conn.ops.insert(ioid, op);
        conn.reply(command::RPC, ioid, sub::INIT, &Status::OK, |_| {});
    }

    /// Calls a function of the source.
    fn call(&mut self, id: u32, ioid: u32, sub: u8, argument: Option<Typed>, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let token = conn.token(id);
        let Some(op) = conn.ops.get_mut(&ioid).filter(|op| matches!(op.kind, OpKind::Call)) else {
            return conn.refuse(command::RPC, ioid, sub, "bad request id");
        };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        if !channel.opened.access.read {
            return self.finish(id, ioid, sub, &Status::error(super::ops::NO_READ), source);
        }
        if op.busy.is_some() {
            return conn.refuse(command::RPC, ioid, sub & !sub::DESTROY, "the previous request is not complete");
        }
        let handle = channel.opened.handle;
        op.busy = Some(Busy { token, sub, step: Step::Call });
        conn.pending.insert(token.0, ioid);
        match source.call(handle, conn.peer(), argument, token) {
            Call::Done(result) => self.answer_call(token, Ok(result), source),
            Call::Sent => {}
            Call::Failed(status) => self.answer_call(token, Err(status), source),
        }
    }

    /// The result of a call that was [`Call::Sent`], or the status that the client receives instead.
    pub fn answer_call(&mut self, token: Token, answer: Result<Typed, Status>, source: &mut impl Source) {
        let id = (token.0 >> 32) as u32;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(ioid) = conn.pending.remove(&token.0) else { return };
        let Some(Busy { sub, .. }) = conn.ops.get_mut(&ioid).and_then(|op| op.busy.take()) else { return };
        match answer {
            Ok((ty, value)) => conn.reply(command::RPC, ioid, sub, &Status::OK, |out| {
                out.ty(&ty);
                out.value(&value);
            }),
            Err(status) => conn.reply(command::RPC, ioid, sub, &status, |_| {}),
        }
        self.ended(id, ioid, sub, source);
        self.touch(id);
    }
}

/// The result of a function; `None` if it does not exist.
fn answer(op: &str, source: &mut impl Source) -> Option<Typed> {
    let text = |text: &str| Value::Text(text.to_owned());
    let field = |name: &str, ty| (name.to_owned(), ty);
    let (id, fields, values) = match op {
        "channels" => {
            let names = Value::Array(Array::Text(source.names()));
            ("epics:nt/NTScalarArray:1.0", vec![field("value", Type::Array(Kind::Text))], vec![names])
        }
        "info" => {
            let kind = Type::Scalar(Kind::Text);
            let fields = vec![field("implLang", kind.clone()), field("version", kind)];
            ("", fields, vec![text("rust"), text(concat!("tahti ", env!("CARGO_PKG_VERSION")))])
        }
        "help" => {
            let help = "op=channels returns the names of channels, op=info describes the server";
            ("epics:nt/NTScalar:1.0", vec![field("value", Type::Scalar(Kind::Text))], vec![text(help)])
        }
        _ => return None,
    };
    Some((Type::Struct(Struct::new(id, fields).ok()?), Value::Struct(values)))
}

impl Conn {
    /// Opens the channel `server`.
    pub(super) fn open_server(&mut self, cid: u32) {
        let sid = self.next_sid;
        self.next_sid = (self.next_sid + 1) & 0x7FFF_FFFF;
        self.describes.insert(sid, cid);
        wire::message(&mut self.out, Side::Server, command::CREATE_CHANNEL, |out| {
            out.u32(cid);
            out.u32(sid);
            out.status(&Status::OK);
        });
    }

    /// Closes the channel `server`. Returns whether it is that channel.
    pub(super) fn close_server(&mut self, sid: u32) -> bool {
        let Some(cid) = self.describes.remove(&sid) else { return false };
        wire::message(&mut self.out, Side::Server, command::DESTROY_CHANNEL, |out| {
            out.u32(sid);
            out.u32(cid);
        });
        true
    }
}
