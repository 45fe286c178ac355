//! Messages of a client.

use super::conn::{Channel, Conn, Op, OpKind, announce};
use super::monitor::Monitor;
use super::structure::{Options, StructureOp};
use super::{ConnId, Server, Source};
use crate::codec::{Fault, Reader, Status, StatusKind, Type, Value};
use crate::nt::Shape;
use crate::request::Request;
use crate::search::{self, Search};
use crate::wire::{self, Inbox, Message, NAME_MAX, Side, command, flag, sub};
use base::MonoNs;

/// Maximum number of bytes of an account that a client sends.
const USER_MAX: usize = 256;

impl Server {
    /// Handles received bytes. Requests wait while the connection has no room for their answers.
    pub fn handle_bytes(&mut self, now: MonoNs, id: ConnId, bytes: &[u8], source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        conn.heard = now;
        conn.inbox.feed(bytes);
        self.resume(now, id.0, source);
    }

    /// Handles messages as long as there is room for answers.
    pub(super) fn resume(&mut self, _now: MonoNs, id: u32, source: &mut impl Source) {
        while let Some(conn) = self.conns.get_mut(&id) {
            if conn.closing || !conn.has_room(&self.limits) {
                break;
            }
            let empty = Inbox::new(Side::Client, self.limits.message_bytes);
            let mut inbox = std::mem::replace(&mut conn.inbox, empty);
            let handled = match inbox.next_message() {
                Ok(Some(message)) => self.message(id, &message, source).map(|()| true),
                Ok(None) => Ok(false),
                Err(fault) => Err(fault),
            };
            let Some(conn) = self.conns.get_mut(&id) else { return };
            conn.inbox = inbox;
            match handled {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.counters.faults += 1;
                    conn.closing = true;
                }
            }
        }
        self.touch(id);
    }

    fn message(&mut self, id: u32, message: &Message<'_>, source: &mut impl Source) -> Result<(), Fault> {
        let Message { header, payload } = *message;
        if header.is_control() {
            return Ok(());
        }
        let mut reader = Reader::new(payload, header.order());
        match header.command {
            command::VALIDATION => self.validation(id, &mut reader, source),
            command::ECHO => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    wire::message(&mut conn.out, Side::Server, command::ECHO, |out| {
                        out.bytes.extend_from_slice(payload)
                    });
                }
                Ok(())
            }
            command::SEARCH => self.search(id, payload, header.flags, source),
            command::CREATE_CHANNEL => self.create_channels(id, &mut reader, source),
            command::DESTROY_CHANNEL => {
                let sid = reader.u32()?;
                if let Some(conn) = self.conns.get_mut(&id)
                    && !conn.close_server(sid)
                {
                    conn.destroy_channel(id, sid, &mut self.watchers, source);
                }
                Ok(())
            }
            command::GET_FIELD => self.get_field(id, &mut reader),
            command::DESTROY_REQUEST => {
                let (_, ioid) = (reader.u32()?, reader.u32()?);
                if let Some(conn) = self.conns.get_mut(&id)
                    && !conn.calls.remove(&ioid)
                {
                    conn.end_op(id, ioid, &mut self.watchers, source);
                }
                Ok(())
            }
            command::CANCEL_REQUEST => {
                let (_, ioid) = (reader.u32()?, reader.u32()?);
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.cancel(ioid, source);
                }
                Ok(())
            }
            command::GET | command::PUT | command::PUT_GET | command::MONITOR | command::PROCESS => {
                self.operation(id, header.command, &mut reader, source)
            }
            command::RPC => self.rpc(id, &mut reader, source),
            command::ARRAY => self.unsupported(id, &mut reader),
            // Commands of later versions are skipped.
            _ => Ok(()),
        }
    }

    fn validation(&mut self, id: u32, reader: &mut Reader<'_>, source: &mut impl Source) -> Result<(), Fault> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        reader.take(4 + 2 + 2)?;
        let method = reader.text()?.into_owned();
        // Some clients send nothing after `anonymous`.
        let mut user = None;
        if !reader.rest().is_empty()
            && let Some(ty) = reader.ty_or_null(&mut conn.received)?
        {
            let value = reader.value_with(&ty, &mut conn.received)?;
            let named = ty.fields().and_then(|fields| value.field(fields, "user"));
            user = named.and_then(|(value, _)| value.as_text().map(str::to_owned));
        }
        let user = user.filter(|user| user.len() <= USER_MAX);
        let status = match (method.as_str(), user) {
            ("ca", Some(user)) => {
                conn.user = user.rsplit('/').next().unwrap_or_default().to_owned();
                Status::OK
            }
            ("anonymous", _) => {
                conn.user = "anonymous".into();
                Status::OK
            }
            _ => Status::error("this authentication is not supported, expected \"ca\" with a user or \"anonymous\""),
        };
        wire::message(&mut conn.out, Side::Server, command::VALIDATED, |out| out.status(&status));
        // Channels may have been opened before.
        self.refresh_access_of(id, source);
        Ok(())
    }

    fn search(&mut self, id: u32, payload: &[u8], flags: u8, source: &mut impl Source) -> Result<(), Fault> {
        let order = if flags & flag::BIG == 0 { crate::codec::Order::Little } else { crate::codec::Order::Big };
        let search = Search::read(payload, order)?;
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let exists = |name: &[u8]| source.exists(name);
        let _ = search::answer(&search, self.identity, &mut self.searches, exists, &mut conn.out);
        Ok(())
    }

    fn create_channels(&mut self, id: u32, reader: &mut Reader<'_>, source: &mut impl Source) -> Result<(), Fault> {
        for _ in 0..reader.u16()? {
            let (cid, name) = (reader.u32()?, reader.text_bytes()?);
            let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
            let full = conn.channels.len() + conn.describes.len() >= self.limits.channels;
            if name == super::rpc::NAME && !full {
                conn.open_server(cid);
                continue;
            }
            let opened = if full || name.len() > NAME_MAX { None } else { source.open(name, conn.peer()) };
            let layout = opened.map(|opened| self.layout(&opened, source));
            let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
            let status = match opened {
                Some(_) => Status::OK,
                None if full => {
                    self.counters.refused += 1;
                    Status::error(format!("too many channels on one connection, at most {}", self.limits.channels))
                }
                None => Status { kind: StatusKind::Fatal, ..Status::error("no such channel") },
            };
            let mut sid = u32::MAX;
            if let (Some(opened), Some(layout)) = (opened, layout) {
                sid = conn.next_sid;
                conn.next_sid = (conn.next_sid + 1) & 0x7FFF_FFFF;
                let hints = source.hints(opened.handle);
                let is_function = source.is_function(opened.handle);
                conn.channels.insert(sid, Channel { cid, opened, layout, hints, is_function });
            }
            wire::message(&mut conn.out, Side::Server, command::CREATE_CHANNEL, |out| {
                out.u32(cid);
                out.u32(sid);
                out.status(&status);
            });
            if let Some(channel) = conn.channels.get(&sid) {
                announce(&mut conn.out, cid, channel.rights());
            }
        }
        Ok(())
    }

    fn get_field(&mut self, id: u32, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let (sid, ioid, name) = (reader.u32()?, reader.u32()?, reader.text()?);
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let Some(layout) = conn.channels.get(&sid).map(|channel| channel.layout.clone()) else {
            refuse_field(conn, ioid, "bad channel id");
            return Ok(());
        };
        let mut ty = layout.ty();
        for part in name.split('.').filter(|part| !part.is_empty()) {
            let Some((_, _, inner)) = ty.fields().and_then(|fields| fields.field(part)) else {
                refuse_field(conn, ioid, &format!("the channel has no field \"{name}\""));
                return Ok(());
            };
            ty = inner;
        }
        let start = wire::begin(&mut conn.out, Side::Server, command::GET_FIELD);
        conn.out.u32(ioid);
        conn.out.status(&Status::OK);
        match ty {
            Type::Struct(fields) => conn.out.numbered(fields, &mut conn.sent),
            ty => conn.out.ty(ty),
        }
        wire::end(&mut conn.out, start);
        Ok(())
    }

    /// Answers an operation that is not implemented. Types in it are read, because later messages may refer to them.
    fn unsupported(&mut self, id: u32, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let (_, ioid, sub) = (reader.u32()?, reader.u32()?, reader.u8()?);
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        if sub & sub::INIT != 0 {
            read_request(reader, &mut conn.received)?;
        }
        conn.refuse(command::ARRAY, ioid, sub, "array is not supported by this server");
        Ok(())
    }

    fn operation(
        &mut self,
        id: u32,
        command: u8,
        reader: &mut Reader<'_>,
        source: &mut impl Source,
    ) -> Result<(), Fault> {
        let (sid, ioid, sub) = (reader.u32()?, reader.u32()?, reader.u8()?);
        if sub & sub::INIT == 0 {
            return self.execute(id, command, ioid, sub, reader, source);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let request = read_request(reader, &mut conn.received)?;
        let Some(channel) = conn.channels.get(&sid) else {
            conn.refuse(command, ioid, sub, "bad channel id");
            return Ok(());
        };
        let layout = channel.layout.clone();
        let (handle, watch) = (channel.opened.handle, channel.opened.watch);
        let is_hidden = command == command::MONITOR && !channel.opened.access.read;
        let select = layout.select(request.fields.iter().map(String::as_str));
        let refused = if conn.ops.contains_key(&ioid) {
            Some("the operation id is in use".to_owned())
        } else if conn.ops.len() >= self.limits.operations {
            self.counters.refused += 1;
            Some(format!("too many operations on one connection, at most {}", self.limits.operations))
        } else if is_hidden {
            Some(super::ops::NO_READ.to_owned())
        } else if select.is_none() {
            Some(format!("the channel has none of the fields {}", request.fields.join(", ")))
        } else {
            process_option(&request, layout.shape()).err().map(|wrong| wrong.to_string())
        };
        if let Some(refused) = refused {
            conn.refuse(command, ioid, sub, &refused);
            return Ok(());
        }
        let wait = request.is_set("block");
        let process = process_option(&request, layout.shape()).ok().flatten();
        let kind = match command {
            command::GET => OpKind::Get,
            command::PUT => OpKind::Put { wait, process },
            command::PUT_GET => OpKind::PutGet { wait, process },
            command::PROCESS => OpKind::Process { wait },
            _ => {
                let credit = if sub & sub::ACK != 0 { Some(reader.u32()?) } else { None };
                let (monitor, warning) = Monitor::new(&request, credit, &self.limits);
                if let Some(warning) = warning {
                    conn.warn(ioid, &warning);
                }
                let list = self.watchers.entry(watch).or_default();
                let place = list.partition_point(|entry| *entry < (id, ioid));
                list.insert(place, (id, ioid));
                source.watch(handle);
                OpKind::Monitor(Box::new(monitor))
            }
        };
        let selected = select.unwrap_or_default();
        let structure = (layout.shape() == Shape::Structure).then(|| {
            let atomic = request.option("atomic").map(|_| request.is_set("atomic"));
            Box::new(StructureOp { select: selected.clone(), options: Options { atomic } })
        });
        let select = selected.words().first().copied().unwrap_or(0);
        let op = Op { sid, kind, busy: None, later: Default::default(), select, structure };
        conn.ops.insert(ioid, op);
        let start = wire::begin(&mut conn.out, Side::Server, command);
        conn.out.u32(ioid);
        conn.out.u8(sub);
        conn.out.status(&Status::OK);
        if command != command::PROCESS
            && let Type::Struct(fields) = layout.ty()
        {
            conn.out.numbered(fields, &mut conn.sent);
            // The written and the read value have the same type.
            if command == command::PUT_GET {
                conn.out.numbered(fields, &mut conn.sent);
            }
        }
        wire::end(&mut conn.out, start);
        Ok(())
    }
}

fn refuse_field(conn: &mut Conn, ioid: u32, message: &str) {
    wire::message(&mut conn.out, Side::Server, command::GET_FIELD, |out| {
        out.u32(ioid);
        out.status(&Status::error(message));
    });
}

/// Reads a request: its type, and its value unless the type is null.
fn read_request(reader: &mut Reader<'_>, table: &mut crate::codec::TypeTable) -> Result<Request, Fault> {
    Ok(match reader.ty_or_null(table)? {
        None => Request::default(),
        Some(ty) => {
            let value: Value = reader.value_with(&ty, table)?;
            Request::of(&ty, &value)
        }
    })
}

/// Reads the argument of a call, or the request that creates one.
pub(super) fn call_argument(
    reader: &mut Reader<'_>,
    table: &mut crate::codec::TypeTable,
) -> Result<Option<(Type, Value)>, Fault> {
    let Some(ty) = reader.ty_or_null(table)? else { return Ok(None) };
    let value = reader.value_with(&ty, table)?;
    Ok(Some((ty, value)))
}

/// A value of the option `process` that is refused.
#[derive(Debug, thiserror::Error)]
enum WrongProcess {
    #[error("record[process={0}] of a group is not supported, expected passive")]
    OfGroup(String),
    #[error("record[process={0}] is unknown, expected true, false or passive")]
    Unknown(String),
}

/// The option `process`: whether a write processes the record; `None` if the record specifies it. In a group, each record does.
fn process_option(request: &Request, shape: Shape) -> Result<Option<bool>, WrongProcess> {
    match request.option("process") {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("passive") => Ok(None),
        Some(text) if shape == Shape::Structure => Err(WrongProcess::OfGroup(text.to_owned())),
        Some(_) if request.is_set("process") => Ok(Some(true)),
        Some(text) if text.eq_ignore_ascii_case("false") || text == "0" => Ok(Some(false)),
        Some(text) => Err(WrongProcess::Unknown(text.to_owned())),
    }
}
