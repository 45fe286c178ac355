//! Messages of servers, and requests of the caller.

use super::circuit::Circuit;
use super::{Action, ChannelId, CircuitId, Client, Event, NAME_SERVER_GAP, Op, OpId, REFUSED_GAP, SEARCH_GAP};
use crate::codec::{Fault, Kind, Mask, Reader, Status, Struct, Type, TypeTable, Value};
use crate::search::{Address, SearchResponse};
use crate::wire::{self, Inbox, Message, Side, command, sub};
use base::MonoNs;
use core::net::IpAddr;

impl Action {
    /// The command of its messages.
    const fn command(self) -> u8 {
        match self {
            Self::Get => command::GET,
            Self::Put => command::PUT,
            Self::PutGet => command::PUT_GET,
            Self::Monitor => command::MONITOR,
            Self::Describe => command::GET_FIELD,
            Self::Rpc => command::RPC,
        }
    }
}

impl Client {
    /// A datagram has arrived: answers to searches.
    pub fn handle_datagram(&mut self, from: Address, bytes: &[u8]) {
        for message in wire::datagram(bytes, Some(Side::Server)) {
            if message.header.command != command::SEARCH_RESPONSE {
                continue;
            }
            let Ok(Some(found)) = SearchResponse::read(message.payload, message.header.order()) else { continue };
            self.found(&found, from.ip, 0);
        }
    }

    /// An answer to a search. A server without address or port is the one that answered.
    fn found(&mut self, found: &SearchResponse, ip: IpAddr, port: u16) {
        let ip = if found.server.ip.is_unspecified() { ip } else { found.server.ip };
        let port = if found.server.port == 0 { port } else { found.server.port };
        for id in &found.ids {
            if self.channels.get(id).is_some_and(|channel| channel.circuit.is_none()) {
                self.assign(*id, Address { ip, port });
            }
        }
    }

    /// A connection is open.
    pub fn connected_to(&mut self, now: MonoNs, id: CircuitId) {
        if let Some(circuit) = self.circuits.get_mut(&id.0) {
            circuit.hear(now);
        }
    }

    /// A connection has ended, or could not be opened.
    pub fn closed(&mut self, now: MonoNs, id: CircuitId) {
        let Some(circuit) = self.circuits.remove(&id.0) else { return };
        for server in self.name_servers.iter_mut().filter(|server| server.circuit == Some(id.0)) {
            (server.circuit, server.retry_at) = (None, now + NAME_SERVER_GAP);
        }
        for (cid, channel) in &mut self.channels {
            if channel.circuit != Some(id.0) {
                continue;
            }
            channel.circuit = None;
            // A server that does not accept connections is not asked again at once.
            let wait = if circuit.ready { SEARCH_GAP } else { REFUSED_GAP };
            (channel.gap, channel.next_search) = (SEARCH_GAP, now + wait);
            if channel.sid.take().is_some() {
                self.events.push_back(Event::Disconnected(ChannelId(*cid)));
            }
        }
        self.reset_ops(now, |client, op| client.channels.get(&op.channel).is_none_or(|channel| channel.sid.is_none()));
    }

    /// Operations that the server no longer knows start again, except those that write.
    fn reset_ops(&mut self, now: MonoNs, lost: impl Fn(&Self, &Op) -> bool) {
        let ids: Vec<u32> =
            self.ops.iter().filter(|(_, op)| op.ty.is_some() && lost(self, op)).map(|it| *it.0).collect();
        for id in ids {
            let Some(op) = self.ops.get_mut(&id) else { continue };
            op.ty = None;
            if op.stays {
                if std::mem::take(&mut op.writes) {
                    self.events.push_back(Event::Written(OpId(id), Status::error("disconnected")));
                }
            } else if op.writes || op.action == Action::Rpc {
                self.fail(now, id, Status::error("disconnected"));
            }
        }
    }

    /// Received bytes of a connection.
    pub fn handle_bytes(&mut self, now: MonoNs, id: CircuitId, bytes: &[u8]) {
        let Some(circuit) = self.circuits.get_mut(&id.0) else { return };
        circuit.hear(now);
        circuit.inbox.feed(bytes);
        while let Some(circuit) = self.circuits.get_mut(&id.0).filter(|circuit| !circuit.closing) {
            let mut inbox = std::mem::replace(&mut circuit.inbox, Inbox::new(Side::Server, 0));
            let handled = match inbox.next_message() {
                Ok(Some(message)) => self.message(now, id.0, &message).map(|()| true),
                Ok(None) => Ok(false),
                Err(fault) => Err(fault),
            };
            let Some(circuit) = self.circuits.get_mut(&id.0) else { return };
            circuit.inbox = inbox;
            match handled {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => circuit.closing = true,
            }
        }
        self.touched.push_back(id.0);
    }

    fn message(&mut self, now: MonoNs, id: u32, message: &Message<'_>) -> Result<(), Fault> {
        let Message { header, payload } = *message;
        let Some(circuit) = self.circuits.get_mut(&id) else { return Ok(()) };
        if header.is_control() {
            if header.command == command::SET_ORDER {
                circuit.out.set_order(header.order());
            }
            return Ok(());
        }
        let mut reader = Reader::new(payload, header.order());
        match header.command {
            command::VALIDATION => {
                reader.take(4 + 2)?;
                let mut methods = Vec::new();
                for _ in 0..reader.size()? {
                    methods.push(reader.text()?.into_owned());
                }
                self.introduce(id, methods.iter().any(|method| method == "ca"));
                Ok(())
            }
            command::VALIDATED => {
                // Some servers refuse an account, but then accept its requests without rights.
                reader.status()?;
                circuit.ready = true;
                let mine = self.channels.iter().filter(|(_, channel)| channel.circuit == Some(id));
                mine.for_each(|(cid, channel)| circuit.create(*cid, &channel.name));
                if self.name_servers.iter().any(|server| server.circuit == Some(id)) {
                    self.search_all_at(id);
                }
                Ok(())
            }
            command::SEARCH_RESPONSE => {
                let Address { ip, port } = circuit.server;
                if let Some(found) = SearchResponse::read(payload, header.order())? {
                    self.found(&found, ip, port);
                }
                Ok(())
            }
            command::CREATE_CHANNEL => self.created(now, id, &mut reader),
            command::ACL_CHANGE => {
                let (cid, rights) = (reader.u32()?, reader.u8()?);
                if let Some(channel) = self.channels.get_mut(&cid).filter(|channel| channel.circuit == Some(id)) {
                    channel.rights = Some(rights);
                }
                Ok(())
            }
            command::DESTROY_CHANNEL => {
                let (_, cid) = (reader.u32()?, reader.u32()?);
                if let Some(channel) = self.channels.get_mut(&cid).filter(|channel| channel.circuit == Some(id)) {
                    (channel.circuit, channel.sid) = (None, None);
                    (channel.gap, channel.next_search) = (SEARCH_GAP, now);
                    self.events.push_back(Event::Disconnected(ChannelId(cid)));
                    self.reset_ops(now, |_, op| op.channel == cid);
                }
                Ok(())
            }
            command::MESSAGE => {
                let (ioid, _, text) = (reader.u32()?, reader.u8()?, reader.text()?);
                self.events.push_back(Event::Message(OpId(self.renewals.key_of(ioid)), text.into_owned()));
                Ok(())
            }
            command::GET_FIELD => {
                let (ioid, status) = (reader.u32()?, reader.status()?);
                let ty = if status.is_success() { Some(reader.ty(&mut circuit.received)?) } else { None };
                match ty {
                    Some(ty) if self.ops.remove(&ioid).is_some() => {
                        self.events.push_back(Event::Described(OpId(ioid), ty));
                    }
                    Some(_) => {}
                    None => self.fail(now, ioid, status),
                }
                Ok(())
            }
            command::GET | command::PUT | command::PUT_GET | command::MONITOR | command::RPC => {
                self.answer(now, id, header.command, &mut reader)
            }
            _ => Ok(()),
        }
    }

    /// Sends the account of the client.
    fn introduce(&mut self, id: u32, named: bool) {
        let (user, host) = (self.config.user.clone(), self.config.host.clone());
        let Some(circuit) = self.circuits.get_mut(&id) else { return };
        wire::message(&mut circuit.out, Side::Client, command::VALIDATION, |out| {
            out.u32(0x1_0000);
            out.u16(0x7FFF);
            out.u16(0);
            let text = |name: &str| (name.to_owned(), Type::Scalar(Kind::Text));
            match Struct::new("", vec![text("user"), text("host")]) {
                Ok(account) if named => {
                    out.text("ca");
                    out.ty(&Type::Struct(account));
                    out.text(&user);
                    out.text(&host);
                }
                _ => {
                    out.text("anonymous");
                    out.u8(0xFF);
                }
            }
        });
    }

    fn created(&mut self, now: MonoNs, id: u32, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let (cid, sid, status) = (reader.u32()?, reader.u32()?, reader.status()?);
        let Some(channel) = self.channels.get_mut(&cid).filter(|channel| channel.circuit == Some(id)) else {
            // It was closed before the server opened it.
            if let Some(circuit) = self.circuits.get_mut(&id).filter(|_| status.is_success()) {
                circuit.destroy(sid, cid);
            }
            return Ok(());
        };
        if !status.is_success() {
            channel.circuit = None;
            channel.next_search = now + REFUSED_GAP;
            self.events.push_back(Event::Refused(ChannelId(cid), status));
            return Ok(());
        }
        // The server announces the rights after this.
        (channel.sid, channel.rights) = (Some(sid), None);
        self.events.push_back(Event::Connected(ChannelId(cid)));
        let waiting: Vec<u32> = self.ops.iter().filter(|(_, op)| op.channel == cid).map(|(ioid, _)| *ioid).collect();
        waiting.into_iter().for_each(|ioid| self.init(ioid));
        Ok(())
    }

    /// The connection and the server's number of an operation's channel, if it is connected.
    fn place(&mut self, key: u32) -> Option<(&mut Op, &mut Circuit, u32)> {
        let op = self.ops.get_mut(&key)?;
        let channel = self.channels.get(&op.channel)?;
        let (id, sid) = (channel.circuit?, channel.sid?);
        self.touched.push_back(id);
        Some((op, self.circuits.get_mut(&id)?, sid))
    }

    /// Creates an operation at the server, if its channel is connected.
    pub(super) fn init(&mut self, key: u32) {
        let Some((op, circuit, sid)) = self.place(key) else { return };
        (op.received, op.renew_at) = (0, None);
        let ioid = op.ioid;
        if op.action == Action::Describe {
            wire::message(&mut circuit.out, Side::Client, command::GET_FIELD, |out| {
                out.u32(sid);
                out.u32(ioid);
                out.text("");
            });
            return;
        }
        let ack = if op.window.is_some() { sub::ACK } else { 0 };
        circuit.operate(op.action.command(), sid, ioid, sub::INIT | ack, |out| {
            match &op.request {
                Some((ty, value)) => {
                    out.ty(&Type::Struct(ty.clone()));
                    out.value(value);
                }
                None => out.u8(0xFF),
            }
            if let Some(window) = op.window {
                out.u32(window);
            }
        });
    }

    fn answer(&mut self, now: MonoNs, id: u32, command: u8, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let (ioid, sub) = (reader.u32()?, reader.u8()?);
        let key = self.renewals.key_of(ioid);
        let is_init = sub & sub::INIT != 0;
        let is_update = command == command::MONITOR && !is_init;
        let status = if is_update && sub & sub::DESTROY == 0 { Status::OK } else { reader.status()? };
        let Some(circuit) = self.circuits.get_mut(&id) else { return Ok(()) };
        let op = self.ops.get_mut(&key).filter(|op| op.ioid == ioid && op.action.command() == command);
        if command == command::PUT && !is_init && sub & sub::GET == 0 && op.as_ref().is_some_and(|op| op.stays) {
            op.into_iter().for_each(|op| op.writes = false);
            self.events.push_back(Event::Written(OpId(key), status));
            return Ok(());
        }
        if !status.is_success() {
            if op.is_some() {
                self.fail(now, key, status);
            }
            return Ok(());
        }
        if is_init {
            // Also types for operations that have ended: later messages refer to them.
            let ty = if command == command::RPC { Type::Any } else { reader.ty(&mut circuit.received)? };
            let returned = if command == command::PUT_GET { Some(reader.ty(&mut circuit.received)?) } else { None };
            if let Some(op) = op {
                op.returned = returned;
                op.keep_value();
                op.unpolled = 0;
                op.value = Value::zero(&ty);
                op.ty = Some(ty);
                self.opened(key);
            }
            return Ok(());
        }
        if command == command::RPC {
            let ty = reader.ty_or_null(&mut circuit.received)?.unwrap_or(Type::Any);
            let value = reader.value_with(&ty, &mut circuit.received)?;
            if op.is_some() {
                self.ops.remove(&key);
                self.events.push_back(Event::Returned(OpId(key), ty, value));
            }
            return Ok(());
        }
        let Some(op) = op else { return Ok(()) };
        let is_last = is_update && sub & sub::DESTROY != 0;
        if is_last && reader.rest().is_empty() {
            self.finish(now, key, Event::Done(OpId(key)));
            return Ok(());
        }
        if command == command::PUT_GET && sub & sub::GET_PUT == 0 {
            let ty = op.returned.clone().unwrap_or(Type::Any);
            let (changed, mut value) = (reader.mask()?, Value::zero(&ty));
            reader.fields_of(&ty, &changed, &mut value, &mut circuit.received)?;
            self.ops.remove(&key);
            self.events.push_back(Event::Returned(OpId(key), ty, value));
            return Ok(());
        }
        if command == command::PUT && sub & sub::GET == 0 {
            self.ops.remove(&key);
            self.events.push_back(Event::Done(OpId(key)));
            return Ok(());
        }
        let changed = op.take(reader, &mut circuit.received)?;
        let overrun = if is_update { reader.mask()? } else { Mask::default() };
        self.events.push_back(Event::Value { op: OpId(key), changed, overrun });
        if is_last {
            self.finish(now, key, Event::Done(OpId(key)));
        } else if is_update {
            self.acknowledge(key);
        }
        Ok(())
    }

    /// The server has created an operation: executes it.
    fn opened(&mut self, key: u32) {
        let Some((op, circuit, sid)) = self.place(key) else { return };
        let ioid = op.ioid;
        match op.action {
            Action::Get => circuit.operate(command::GET, sid, ioid, 0, |_| {}),
            Action::Monitor => circuit.operate(command::MONITOR, sid, ioid, sub::START_STOP | sub::GET, |_| {}),
            Action::Put | Action::PutGet => self.events.push_back(Event::Ready(OpId(key))),
            Action::Rpc => {
                let Some((ty, value)) = &op.argument else { return };
                circuit.operate(command::RPC, sid, ioid, sub::DESTROY, |out| {
                    out.ty(ty);
                    out.value(value);
                });
            }
            Action::Describe => {}
        }
    }

    /// Acknowledges updates when half of the window is used.
    fn acknowledge(&mut self, key: u32) {
        let Some((op, circuit, sid)) = self.place(key) else { return };
        let Some(window) = op.window else { return };
        op.received += 1;
        if op.received * 2 >= window {
            let received = std::mem::take(&mut op.received);
            circuit.operate(command::MONITOR, sid, op.ioid, sub::ACK, |out| out.u32(received));
        }
    }

    /// Reads the present value of a put that is [`Event::Ready`].
    pub fn read(&mut self, id: OpId) {
        let Some((op, circuit, sid)) = self.place(id.0) else { return };
        let sub = match op.action {
            Action::Put => sub::GET,
            Action::PutGet => sub::GET_PUT,
            _ => return,
        };
        circuit.operate(op.action.command(), sid, id.0, sub, |_| {});
    }

    /// Writes the fields in `mask` of a put that is [`Event::Ready`], and ends it. `value` is of the type of the operation.
    pub fn write(&mut self, id: OpId, mask: &Mask, value: &Value) {
        self.execute_put(id, mask, value, sub::DESTROY);
    }

    /// Like [`write`](Self::write), but the put, which is no put-get, remains for further writes, and is [`Event::Ready`] again after each loss of
    /// the connection. [`Event::Written`] follows. The caller waits for it before the next write: some servers ignore a
    /// second one.
    pub fn write_again(&mut self, id: OpId, mask: &Mask, value: &Value) {
        self.execute_put(id, mask, value, 0);
    }

    fn execute_put(&mut self, id: OpId, mask: &Mask, value: &Value, sub: u8) {
        let Some((op, circuit, sid)) = self.place(id.0) else { return };
        let Some(ty) = &op.ty else { return };
        if op.action != Action::Put && (op.action != Action::PutGet || sub == 0) {
            return;
        }
        (op.writes, op.stays) = (true, sub == 0);
        circuit.operate(op.action.command(), sid, id.0, sub, |out| {
            out.mask(mask);
            out.fields_of(ty, mask, value);
        });
    }

    /// Ends an operation.
    pub fn end(&mut self, id: OpId) {
        if let Some((op, circuit, sid)) = self.place(id.0) {
            wire::message(&mut circuit.out, Side::Client, command::DESTROY_REQUEST, |out| {
                out.u32(sid);
                out.u32(op.ioid);
            });
        }
        self.ops.remove(&id.0);
        self.renewals.retain(&self.ops);
    }

    fn fail(&mut self, now: MonoNs, key: u32, status: Status) {
        self.finish(now, key, Event::Failed(OpId(key), status));
    }
}

impl Op {
    /// Takes received fields into the value. Returns them.
    fn take(&mut self, reader: &mut Reader<'_>, table: &mut TypeTable) -> Result<Mask, Fault> {
        let ty = self.ty.clone().unwrap_or(Type::Any);
        let changed = reader.mask()?;
        self.keep_value();
        self.unpolled += 1;
        reader.fields_of(&ty, &changed, &mut self.value, table)?;
        Ok(changed)
    }

    /// Keeps the value for its event, if the caller has not taken that yet.
    fn keep_value(&mut self) {
        if self.unpolled > 0 {
            self.older.push_back(self.value.clone());
        }
    }
}
