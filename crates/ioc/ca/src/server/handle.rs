//! Handles the messages of a circuit. Checks are in the same order as in EPICS' `rsrv`, and answers are the same.

use super::answer::{About, access_rights, build, refuse, write_old, write_read, write_reply, written};
use super::circuit::{Channel, Circuit, PUT_WAIT_NS, PendingReply, Wait};
use super::subscribe::update_now;
use super::{Access, Answer, Backend, CircuitId, Get, Limits, Opened, PutOutcome, Server, Token, Write};
use crate::dbr::{Class, Dbr};
use crate::decode;
use crate::eca::Eca;
use crate::encode;
use crate::wire::{
    self, DO_REPLY, HEADER_BYTES, HEADER_BYTES_MAX, Header, HeaderParse, MINOR_MIN, NONE, command, padded,
};
use base::{DurNs, MonoNs};

/// The action after a message.
pub(super) enum Next {
    /// Continue with the next message.
    Go,
    /// Retry the same message later.
    Wait,
    /// Close the circuit.
    Close,
}

/// Maximum length in bytes of a user or host name.
const NAME_BYTES_MAX: usize = 512;

impl Server {
    /// Processes bytes received on a circuit. Complete messages are handled immediately, unless the circuit waits for room, for a
    /// put or for pending answers. [`sent`](Self::sent), [`put_done`](Self::put_done) or [`answer`](Self::answer) then continue.
    pub fn handle_bytes(&mut self, now: MonoNs, id: CircuitId, bytes: &[u8], backend: &mut impl Backend) {
        let Some(circuit) = self.circuits.get_mut(id.0) else { return };
        if circuit.input.is_empty() {
            let taken = self.consume(now, id.0, bytes, backend);
            if let Some(circuit) = self.circuits.get_mut(id.0) {
                circuit.input.extend_from_slice(&bytes[taken..]);
            }
        } else {
            circuit.input.extend_from_slice(bytes);
            self.resume(now, id, backend);
        }
        self.touch(id.0);
    }

    /// Continues with buffered input.
    pub(super) fn resume(&mut self, now: MonoNs, id: CircuitId, backend: &mut impl Backend) {
        let Some(circuit) = self.circuits.get_mut(id.0) else { return };
        if circuit.input.is_empty() || circuit.is_paused(&self.limits) {
            return;
        }
        let mut input = std::mem::take(&mut circuit.input);
        let taken = self.consume(now, id.0, &input, backend);
        if let Some(circuit) = self.circuits.get_mut(id.0) {
            input.drain(..taken);
            if input.is_empty() && input.capacity() > 4096 {
                input = Vec::new();
            }
            circuit.input = input;
        }
        self.touch(id.0);
    }

    /// The time of the next call to [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoNs> {
        self.next_wait
    }

    /// Cancels puts that have delayed their channel for too long.
    pub fn handle_timeout(&mut self, now: MonoNs, backend: &mut impl Backend) {
        for id in self.circuits.keys() {
            let Some(circuit) = self.circuits.get_mut(id) else { continue };
            let Some(wait) = circuit.wait.filter(|wait| wait.until <= now) else { continue };
            circuit.wait = None;
            if let Some(token) = circuit.channels.get_mut(wait.channel).and_then(|channel| channel.put.take())
                && let Some(put) = circuit.puts.remove(&token)
            {
                backend.forget(Token(token));
                circuit.send(write_reply(&put.header, Eca::PUTCBINPROG));
            }
            self.touch(id);
            self.resume(now, CircuitId(id), backend);
        }
        self.next_wait = self.circuits.iter().filter_map(|(_, circuit)| Some(circuit.wait?.until)).min();
    }

    /// Completes a write that was [`PutOutcome::Later`].
    pub fn put_done(&mut self, now: MonoNs, token: Token, ok: bool, backend: &mut impl Backend) {
        let id = (token.0 >> 32) as u32;
        let Some(circuit) = self.circuits.get_mut(id) else { return };
        let Some(put) = circuit.puts.remove(&token.0) else { return };
        circuit.send(write_reply(&put.header, if ok { Eca::NORMAL } else { Eca::PUTFAIL }));
        if let Some(channel) = circuit.channels.get_mut(put.channel) {
            channel.put = None;
        }
        if circuit.wait.is_some_and(|wait| wait.channel == put.channel) {
            circuit.wait = None;
        }
        self.touch(id);
        self.resume(now, CircuitId(id), backend);
    }

    /// Checks the access rights of all open channels again after a change. If they differ, the client is informed and its
    /// subscriptions receive the value or the refusal.
    pub fn refresh_access(&mut self, backend: &mut impl Backend) {
        let limits = self.limits;
        for id in self.circuits.keys() {
            let Some(circuit) = self.circuits.get_mut(id) else { continue };
            let peer = circuit.peer();
            let changed: Vec<(u32, Access)> = circuit
                .channels
                .iter()
                .map(|(key, channel)| (key, channel.opened.access, backend.access(channel.opened.handle, peer)))
                .filter_map(|(key, old, new)| (old != new).then_some((key, new)))
                .collect();
            for &(key, new) in &changed {
                let Some(channel) = circuit.channels.get_mut(key) else { continue };
                channel.opened.access = new;
                let (cid, subs): (u32, Vec<u32>) = (channel.cid, circuit.subs_of(key, None).collect());
                circuit.send(access_rights(cid, new));
                for sub in subs {
                    if let Some(sub) = circuit.subs.get_mut(sub) {
                        sub.readable = new.read;
                    }
                    let token = next_token(&mut self.tokens, id);
                    update_now(circuit, sub, token, &mut self.scratch, &mut self.message, &limits, backend);
                }
            }
            if !changed.is_empty() {
                self.touch(id);
            }
        }
    }

    /// Closes channels to records that no longer exist. Their clients are informed and search again.
    pub fn drop_channels(&mut self, gone: impl Fn(u64) -> bool, backend: &mut impl Backend) {
        for id in self.circuits.keys() {
            let Some(circuit) = self.circuits.get(id) else { continue };
            let channels = circuit.channels.iter().filter(|(_, channel)| gone(channel.opened.handle));
            let keys: Vec<u32> = channels.map(|(key, _)| key).collect();
            for key in keys {
                let Some(cid) = self.remove_channel(id, key, backend) else { continue };
                if let Some(circuit) = self.circuits.get_mut(id) {
                    circuit.send(Header::bare(command::SERVER_DISCONN, 0, 0, cid, 0));
                }
                self.touch(id);
            }
        }
    }

    /// Handles the complete messages in `bytes` and returns the number of processed bytes.
    fn consume(&mut self, now: MonoNs, id: u32, bytes: &[u8], backend: &mut impl Backend) -> usize {
        let mut at = 0;
        loop {
            let Some(circuit) = self.circuits.get_mut(id) else { return bytes.len() };
            if circuit.closing {
                return bytes.len();
            }
            if circuit.skip > 0 {
                let skipped = circuit.skip.min(bytes.len() - at);
                circuit.skip -= skipped;
                at += skipped;
            }
            if circuit.is_paused(&self.limits) {
                return at;
            }
            let HeaderParse::Header(header, head) = Header::read(&bytes[at..]) else { return at };
            if header.command != command::VERSION && circuit.minor < MINOR_MIN {
                let text = format!("CAS: Client version {} too old", circuit.minor);
                circuit.send_error(&header, Eca::DEFUNCT, &text);
                circuit.skip = head + header.size as usize;
                continue;
            }
            if !header.size.is_multiple_of(8) {
                circuit.send_error(&header, Eca::INTERNAL, "CAS: Missaligned protocol rejected");
                circuit.closing = true;
                return bytes.len();
            }
            let len = head + header.size as usize;
            if let Some(most) = circuit.too_large(len, &header, &self.limits) {
                let text = format!("CAS: Server unable to load large request message. Max bytes={most}");
                circuit.send_error(&header, Eca::TOLARGE, &text);
                circuit.skip = len;
                continue;
            }
            let Some(payload) = bytes.get(at + head..at + len) else { return at };
            if circuit.must_wait(&header) {
                circuit.blocked = true;
                return at;
            }
            circuit.counters.requests += 1;
            match self.handle(now, id, &header, payload, backend) {
                Next::Go => at += len,
                Next::Wait => return at,
                Next::Close => {
                    if let Some(circuit) = self.circuits.get_mut(id) {
                        circuit.closing = true;
                    }
                    return bytes.len();
                }
            }
        }
    }

    fn handle(&mut self, now: MonoNs, id: u32, header: &Header, payload: &[u8], backend: &mut impl Backend) -> Next {
        let Some(circuit) = self.circuits.get_mut(id) else { return Next::Close };
        match header.command {
            command::READ_NOTIFY => self.read_notify(id, header, backend),
            command::WRITE | command::WRITE_NOTIFY => self.write(now, id, header, payload, backend),
            command::READ => self.read(id, header, backend),
            command::EVENT_ADD => self.event_add(id, header, payload, backend),
            command::EVENT_CANCEL => self.event_cancel(id, header, backend),
            command::CREATE_CHAN => self.create_channel(id, header, payload, backend),
            command::CLEAR_CHANNEL => {
                if circuit.channels.get(header.p1).is_none() {
                    return bad_id(circuit, header);
                }
                circuit.send(Header::bare(command::CLEAR_CHANNEL, header.kind, header.count, header.p1, header.p2));
                self.remove_channel(id, header.p1, backend);
                Next::Go
            }
            command::VERSION => {
                circuit.minor = header.count.min(u16::MAX.into()) as u16;
                circuit.priority = header.kind.min(99);
                if circuit.minor < MINOR_MIN || header.kind > 99 { Next::Close } else { Next::Go }
            }
            command::ECHO => {
                circuit.send(*header);
                circuit.out.vec().extend_from_slice(payload);
                Next::Go
            }
            command::EVENTS_OFF => {
                circuit.events_off = true;
                Next::Go
            }
            command::EVENTS_ON => {
                circuit.events_off = false;
                circuit.release_held();
                if circuit.stale > 0 {
                    self.refresh(id, backend);
                }
                Next::Go
            }
            command::READ_SYNC => {
                circuit.send(Header::bare(command::READ_SYNC, header.kind, header.count, header.p1, header.p2));
                Next::Go
            }
            command::CLIENT_NAME | command::HOST_NAME => name(circuit, header, payload),
            command::SEARCH => {
                if header.count < MINOR_MIN.into() {
                    return Next::Close;
                }
                if header.size <= 1 {
                    return Next::Go;
                }
                if backend.exists(wire::text_of(payload)) {
                    circuit.send(Header::bare(command::SEARCH, self.tcp_port, 0, NONE, header.p2));
                } else if header.kind == DO_REPLY {
                    circuit.send(Header { command: command::NOT_FOUND, size: 0, ..*header });
                }
                Next::Go
            }
            _ => {
                circuit.send_error(header, Eca::INTERNAL, "invalid (damaged?) request code from TCP");
                Next::Close
            }
        }
    }

    fn create_channel(&mut self, id: u32, header: &Header, payload: &[u8], backend: &mut impl Backend) -> Next {
        let Some(circuit) = self.circuits.get_mut(id) else { return Next::Close };
        circuit.minor = header.p2.min(u16::MAX.into()) as u16;
        if circuit.minor < MINOR_MIN {
            return Next::Close;
        }
        if header.size <= 1 {
            return Next::Go;
        }
        if circuit.channels.len() >= self.limits.channels {
            circuit.send_error(header, Eca::ALLOCMEM, "too many channels on one circuit");
            return Next::Close;
        }
        let peer = circuit.peer();
        let Some(opened) = backend.open(wire::text_of(payload), peer) else {
            circuit.send(Header::bare(command::CREATE_CH_FAIL, 0, 0, header.p1, 0));
            return Next::Go;
        };
        let sid = circuit.channels.insert(Channel { cid: header.p1, opened, put: None });
        circuit.send(access_rights(header.p1, opened.access));
        let count = if circuit.minor < 9 { opened.count.min(0xFFFE) } else { opened.count };
        circuit.send(Header::bare(command::CREATE_CHAN, opened.native as u16, count, header.p1, sid));
        Next::Go
    }

    fn read_notify(&mut self, id: u32, header: &Header, backend: &mut impl Backend) -> Next {
        let Some(circuit) = self.circuits.get_mut(id) else { return Next::Close };
        let Some(dbr) = Dbr::from_wire(header.kind) else { return Next::Close };
        let Some(channel) = circuit.channels.get(header.p1) else {
            return bad_id(circuit, header);
        };
        let opened = channel.opened;
        if is_too_large(dbr, header.count, opened.count, &self.limits) {
            let what = "read (or subscription update)";
            let text = too_large(what, header, &opened, backend.record_name(opened.handle), &self.limits);
            circuit.send_error(header, Eca::TOLARGE, &text);
            return Next::Go;
        }
        // The type name is in the first element. The payload has the maximum number of elements.
        let count = if header.count == 0 && dbr == Dbr::CLASS_NAME { opened.count } else { header.count };
        let header = &Header { count, ..*header };
        let token = next_token(&mut self.tokens, id);
        let reading = if opened.access.read {
            let needs = encode::needs(dbr, opened.native);
            backend.read(opened.handle, needs, &mut self.scratch, Some(token))
        } else {
            Err(Eca::NORDACCESS)
        };
        match reading {
            Ok(Get::Sent) => circuit.owe(opened.lane, token.0, PendingReply::Get { header: *header, dbr }),
            done => write_read(circuit, *header, dbr, done.map(|_| &self.scratch), &mut self.spare),
        }
        Next::Go
    }

    fn read(&mut self, id: u32, header: &Header, backend: &mut impl Backend) -> Next {
        let Some(circuit) = self.circuits.get_mut(id) else { return Next::Close };
        let Some(channel) = circuit.channels.get(header.p1) else {
            return bad_id(circuit, header);
        };
        let (opened, cid) = (channel.opened, channel.cid);
        let Some(dbr) = Dbr::from_wire(header.kind) else {
            circuit.send_error(header, Eca::BADTYPE, backend.record_name(opened.handle));
            return Next::Close;
        };
        if is_too_large(dbr, header.count.max(1), opened.count, &self.limits) {
            let text = too_large("read", header, &opened, backend.record_name(opened.handle), &self.limits);
            circuit.send_error(header, Eca::TOLARGE, &text);
            return Next::Go;
        }
        if !opened.access.read {
            circuit.send_error(header, Eca::NORDACCESS, backend.record_name(opened.handle));
            return Next::Go;
        }
        let token = next_token(&mut self.tokens, id);
        let needs = encode::needs(dbr, opened.native);
        match backend.read(opened.handle, needs, &mut self.scratch, Some(token)) {
            Ok(Get::Sent) => circuit.owe(opened.lane, token.0, PendingReply::Get { header: *header, dbr }),
            done => {
                let about = About { header: *header, dbr, cid, record: backend.record_name(opened.handle) };
                write_old(circuit, &about, done.map(|_| &self.scratch), &mut self.message);
            }
        }
        Next::Go
    }

    fn write(&mut self, now: MonoNs, id: u32, header: &Header, payload: &[u8], backend: &mut impl Backend) -> Next {
        let Some(circuit) = self.circuits.get_mut(id) else { return Next::Close };
        let Some(channel) = circuit.channels.get(header.p1) else {
            return bad_id(circuit, header);
        };
        let (opened, busy) = (channel.opened, channel.put.is_some());
        let notify = header.command == command::WRITE_NOTIFY;
        let Some(dbr) = Dbr::from_wire(header.kind) else {
            refuse(circuit, header, Eca::BADTYPE, backend);
            return Next::Close;
        };
        if !opened.access.write {
            refuse(circuit, header, Eca::NOWTACCESS, backend);
            return Next::Go;
        }
        if notify && busy {
            let until = now + DurNs(PUT_WAIT_NS);
            circuit.wait = Some(Wait { channel: header.p1, until });
            self.next_wait = Some(self.next_wait.map_or(until, |next| next.min(until)));
            return Next::Wait;
        }
        let write = match dbr {
            Dbr::PUT_ACKT | Dbr::PUT_ACKS if payload.len() < 2 => Err(Eca::BADCOUNT),
            Dbr::PUT_ACKT => Ok(Write::AckT(payload[..2] != [0, 0])),
            Dbr::PUT_ACKS => Ok(Write::AckS(u16::from_be_bytes([payload[0], payload[1]]))),
            Dbr::STSACK_STRING | Dbr::CLASS_NAME => Err(Eca::PUTFAIL),
            // Values with additional data are accepted only without notification.
            _ if notify && !matches!(dbr.parts(), Some((Class::Plain, _))) => Err(Eca::PUTFAIL),
            _ => decode::value(dbr, header.count, payload).map(Write::Value),
        };
        let write = match write {
            Ok(write) => write,
            Err(status) => {
                refuse(circuit, header, status, backend);
                return Next::Go;
            }
        };
        let token = next_token(&mut self.tokens, id);
        let peer = circuit.peer();
        let put = backend.write(opened.handle, peer, write, token, notify);
        if notify
            && matches!(put, PutOutcome::Later | PutOutcome::Sent)
            && let Some(channel) = circuit.channels.get_mut(header.p1)
        {
            channel.put = Some(token.0);
        }
        if put == PutOutcome::Sent {
            circuit.owe(opened.lane, token.0, PendingReply::Put { header: *header });
        } else {
            written(circuit, header, token, put, backend);
        }
        Next::Go
    }

    /// Sends the answer to a request that a lane has processed. The circuit then continues with waiting messages.
    pub fn answer(&mut self, now: MonoNs, token: Token, answer: Answer<'_>, backend: &mut impl Backend) {
        let id = (token.0 >> 32) as u32;
        let Some(circuit) = self.circuits.get_mut(id) else { return };
        let Some(place) = circuit.owed.iter().position(|(owed, _)| *owed == token.0) else { return };
        let Some((_, owed)) = circuit.owed.remove(place) else { return };
        circuit.blocked = false;
        match (owed, answer) {
            // If the channel was dropped in the meantime, the client was informed and does not wait.
            (PendingReply::Get { header, .. } | PendingReply::Put { header }, _)
                if circuit.channels.get(header.p1).is_none() =>
            {
                backend.forget(token);
            }
            (PendingReply::Get { header, dbr }, Answer::Read(reading)) if header.command == command::READ_NOTIFY => {
                write_read(circuit, header, dbr, reading, &mut self.spare);
            }
            (PendingReply::Get { header, dbr }, Answer::Read(reading)) => {
                let channel = circuit.channels.get(header.p1);
                let (cid, record) =
                    channel.map_or((NONE, ""), |channel| (channel.cid, backend.record_name(channel.opened.handle)));
                write_old(circuit, &About { header, dbr, cid, record }, reading, &mut self.message);
            }
            (PendingReply::Update { sub: key }, Answer::Read(reading)) => {
                if let Some(sub) = circuit.subs.get(key) {
                    self.message.clear();
                    build(sub.dbr, sub.count, reading, &mut self.message);
                    circuit.push_update(key, &self.message, &self.limits);
                }
            }
            (PendingReply::Put { header }, Answer::Write(put)) => written(circuit, &header, token, put, backend),
            // If the backend gives an answer of the wrong kind, the client receives a failure.
            (PendingReply::Get { header, .. } | PendingReply::Put { header }, _) => {
                circuit.send_error(&header, Eca::INTERNAL, "")
            }
            (PendingReply::Update { .. }, _) => {}
        }
        self.touch(id);
        self.resume(now, CircuitId(id), backend);
    }

    /// Removes a channel with its subscriptions and requests. Returns the client's id of the channel.
    fn remove_channel(&mut self, id: u32, key: u32, backend: &mut impl Backend) -> Option<u32> {
        let circuit = self.circuits.get_mut(id)?;
        let channel = circuit.channels.remove(key)?;
        if let Some(wait) = circuit.wait.as_mut().filter(|wait| wait.channel == key) {
            // The pending put has ended with its channel.
            wait.until = MonoNs(0);
            self.next_wait = Some(MonoNs(0));
        }
        if let Some(token) = channel.put {
            circuit.puts.remove(&token);
            backend.forget(Token(token));
        }
        let subs: Vec<u32> = circuit.subs_of(key, None).collect();
        for sub in subs.iter().filter_map(|sub| circuit.remove_sub(*sub)) {
            backend.unwatch(sub.handle);
        }
        subs.into_iter().for_each(|sub| self.unlink_one(channel.opened.watch, id, sub));
        backend.close(channel.opened.handle);
        Some(channel.cid)
    }
}

/// Creates a token: the upper half is the circuit number, the lower half distinguishes its requests.
pub(super) fn next_token(tokens: &mut u32, id: u32) -> Token {
    *tokens = tokens.wrapping_add(1);
    Token(u64::from(id) << 32 | u64::from(*tokens))
}

/// Returns whether an answer would exceed the maximum message size.
pub(super) fn is_too_large(dbr: Dbr, asked: u32, native: u32, limits: &Limits) -> bool {
    let count = if asked == 0 { native } else { asked };
    let payload = padded(dbr.size(count));
    let wide = payload >= 0xFFFF || count >= 0xFFFF;
    payload + if wide { HEADER_BYTES_MAX } else { HEADER_BYTES } > limits.message_bytes
}

/// The text of EPICS' C server for such an answer.
pub(super) fn too_large(what: &str, header: &Header, opened: &Opened, name: &str, limits: &Limits) -> String {
    format!(
        "server unable to load {what} response into protocol buffer PV=\"{name}\" dbf={} count={} avail={} max bytes={}",
        header.kind,
        if header.count == 0 { opened.count } else { header.count },
        header.p2,
        limits.message_bytes,
    )
}

fn name(circuit: &mut Circuit, header: &Header, payload: &[u8]) -> Next {
    let is_host = header.command == command::HOST_NAME;
    let what = if is_host { "host" } else { "user" };
    if circuit.channels.len() > 0 {
        let text =
            format!("attempts to use protocol to set {what} name after creating first channel ignored by server");
        circuit.send_error(header, Eca::INTERNAL, &text);
        return Next::Go;
    }
    let text = wire::text_of(payload);
    if text.len() >= NAME_BYTES_MAX || text.len() == payload.len() {
        circuit.send_error(
            header,
            Eca::INTERNAL,
            if is_host { "bad (very long) host name" } else { "a very long user name was specified" },
        );
        return Next::Close;
    }
    let text = String::from_utf8_lossy(text).into_owned();
    *(if is_host { &mut circuit.host } else { &mut circuit.user }) = text;
    Next::Go
}

pub(super) fn bad_id(circuit: &mut Circuit, header: &Header) -> Next {
    circuit.send_error(header, Eca::INTERNAL, &format!("Bad Resource ID={}", header.p1));
    Next::Close
}
