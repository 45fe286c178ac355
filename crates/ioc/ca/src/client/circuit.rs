//! Circuits and their messages.

use super::{Address, ChannelId, ChannelInfo, CircuitId, Client, Event, Io, IoId, State};
use crate::buffer::Out;
use crate::dbr::{Basic, Dbr};
use crate::decode;
use crate::eca::Eca;
use crate::encode::Reading;
use crate::server::Access;
use crate::wire::{self, Header, HeaderParse, MESSAGE_BYTES, MINOR, NONE, command};
use base::{DurNs, MonoNs};
use std::collections::BTreeSet;

/// Maximum time for the reply to an echo request.
const ECHO_WAIT: DurNs = DurNs::from_secs(5);
/// Delay before a name server is connected again after it disconnected or did not answer.
const CALL_GAP: DurNs = DurNs::from_secs(5);
/// Delay before a name is searched again after a server offered the channel and then refused it.
const REFUSED_GAP: DurNs = DurNs::from_secs(5);
/// Minimum number of bytes of an incomplete message that a server must send within the silence limit.
const PROGRESS_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) server: Address,
    pub(super) priority: u16,
    pub(super) name_server: bool,
    pub(super) connected: bool,
    pub(super) closing: bool,
    pub(super) touched: bool,
    pub(super) channels: BTreeSet<u32>,
    pub(super) out: Out,
    /// The start of an incomplete message.
    pub(super) input: Vec<u8>,
    /// Number of bytes of an unwanted message that are still to be discarded.
    skip: usize,
    /// The time by which an incomplete message must have progressed, and the bytes received in this interval.
    progress: Option<(MonoNs, usize)>,
    /// The time of the last received bytes.
    heard: MonoNs,
    /// The time of the pending echo request.
    asked: Option<MonoNs>,
}

impl Circuit {
    /// The time of the next action because of silence or of a message without progress.
    pub(super) fn deadline(&self, quiet_max: DurNs) -> Option<MonoNs> {
        if !self.connected {
            return None;
        }
        let silence = self.asked.map_or(self.heard + quiet_max, |asked| asked + ECHO_WAIT);
        Some(self.progress.map_or(silence, |(until, _)| until.min(silence)))
    }

    /// Records that `bytes` were received, and whether they completed a message.
    fn progressed(&mut self, now: MonoNs, bytes: usize, ended: bool, quiet_max: DurNs) {
        if self.input.is_empty() && self.skip == 0 {
            self.progress = None;
            return;
        }
        let before = self.progress.filter(|_| !ended).map(|(until, sum)| (until, sum + bytes));
        self.progress =
            before.filter(|(_, sum)| *sum < PROGRESS_BYTES).or_else(|| Some((now + quiet_max + ECHO_WAIT, 0)));
    }
}

impl Client {
    /// The circuit to a server. If there is none, creates it and requests its connection.
    pub(super) fn circuit_to(&mut self, now: MonoNs, server: Address, priority: u16) -> u32 {
        if let Some(id) = self.by_server.get(&(server, priority)) {
            return *id;
        }
        let mut out = Out::default();
        Header::bare(command::VERSION, priority, MINOR.into(), 0, 0).write(out.vec());
        let user = Header::bare(command::CLIENT_NAME, 0, 0, 0, 0);
        wire::write_text(user, self.config.user.as_bytes(), out.vec());
        let host = Header::bare(command::HOST_NAME, 0, 0, 0, 0);
        wire::write_text(host, self.config.host.as_bytes(), out.vec());
        let id = self.circuits.insert(Circuit {
            server,
            priority,
            name_server: false,
            connected: false,
            closing: false,
            touched: false,
            channels: BTreeSet::new(),
            out,
            input: Vec::new(),
            skip: 0,
            progress: None,
            heard: now,
            asked: None,
        });
        self.by_server.insert((server, priority), id);
        self.connects.push_back((CircuitId(id), server));
        id
    }

    /// The connection of a circuit is open.
    pub fn connected_to(&mut self, now: MonoNs, id: CircuitId) {
        if let Some(circuit) = self.circuits.get_mut(id.0) {
            circuit.connected = true;
            circuit.heard = now;
            if circuit.name_server {
                // It may know names that were searched without success.
                self.search.hurry(now);
            }
            self.touch(id.0);
        }
    }

    /// The connection of a circuit has ended, or could not be opened.
    pub fn closed(&mut self, now: MonoNs, id: CircuitId) {
        let Some(circuit) = self.circuits.remove(id.0) else { return };
        self.by_server.remove(&(circuit.server, circuit.priority));
        if circuit.name_server && self.call_again.is_none() {
            self.call_again = Some(now + CALL_GAP);
        }
        for channel in circuit.channels {
            self.lost(now, channel, now);
        }
    }

    /// A channel has lost its server. It is searched again from `again` on.
    fn lost(&mut self, now: MonoNs, id: u32, again: MonoNs) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        let was = std::mem::replace(&mut channel.state, State::Searching);
        self.search.add(again.max(now), id);
        if !matches!(was, State::Connected(..)) {
            return;
        }
        self.events.push_back(Event::Disconnected(ChannelId(id)));
        for key in self.ios_of(id) {
            let Some(io) = self.ios.get(key).copied() else { continue };
            let (io_id, channel) = (IoId(key), ChannelId(id));
            match io {
                Io::Read(..) => {
                    self.remove_io(key);
                    self.events.push_back(Event::Read { io: io_id, channel, result: Err(Eca::DISCONN) });
                }
                Io::Write(_) => {
                    self.remove_io(key);
                    self.events.push_back(Event::Written { io: io_id, channel, result: Err(Eca::DISCONN) });
                }
                Io::Sub(..) => self.events.push_back(Event::Update { io: io_id, channel, result: Err(Eca::DISCONN) }),
            }
        }
    }

    /// The unsent bytes of a circuit; empty before it is connected.
    #[must_use]
    pub fn output(&self, id: CircuitId) -> &[u8] {
        self.circuits.get(id.0).filter(|circuit| circuit.connected).map_or(&[], |circuit| circuit.out.unsent())
    }

    /// The first `len` bytes of the output have been sent.
    pub fn sent(&mut self, id: CircuitId, len: usize) {
        if let Some(circuit) = self.circuits.get_mut(id.0) {
            circuit.out.sent(len, &mut self.spare);
        }
    }

    /// Returns whether the caller must close a circuit and then call [`closed`](Self::closed).
    #[must_use]
    pub fn is_closing(&self, id: CircuitId) -> bool {
        self.circuits.get(id.0).is_none_or(|circuit| circuit.closing)
    }

    /// Sends echo requests to silent servers, closes circuits without reply or without progress, and reconnects to lost name
    /// servers.
    pub fn handle_timeout(&mut self, now: MonoNs) {
        if self.call_again.is_some_and(|at| at <= now) {
            self.call_again = None;
            self.call_name_servers(now);
        }
        for id in self.circuits.keys() {
            let quiet = self.config.quiet_max;
            let Some(circuit) = self.circuits.get_mut(id) else { continue };
            if circuit.deadline(quiet).is_none_or(|deadline| deadline > now) {
                continue;
            }
            let stuck = circuit.progress.is_some_and(|(until, _)| until <= now);
            if stuck || circuit.asked.is_some() {
                circuit.closing = true;
            } else {
                circuit.asked = Some(now);
                Header::bare(command::ECHO, 0, 0, 0, 0).write(circuit.out.vec());
            }
            self.touch(id);
        }
    }

    /// Processes a datagram: answers to searches, or a beacon.
    pub fn handle_datagram(&mut self, now: MonoNs, from: Address, bytes: &[u8]) {
        for (header, _) in wire::messages(bytes) {
            match header.command {
                command::SEARCH => {
                    let ip = if header.p1 == NONE || header.p1 == 0 { from.ip } else { header.p1 };
                    self.found(now, header.p2, Address { ip, port: header.kind });
                }
                command::RSRV_IS_UP if header.p1 < 3 => self.search.hurry(now),
                _ => {}
            }
        }
    }

    fn found(&mut self, now: MonoNs, id: u32, server: Address) {
        let Some(channel) = self.channels.get(id) else { return };
        let (priority, name) = (channel.priority, channel.name.clone());
        match channel.state {
            State::Searching => {}
            State::Creating(circuit) | State::Connected(circuit, _) => {
                let used = self.circuits.get(circuit.0).map(|circuit| circuit.server);
                if let Some(used) = used.filter(|used| *used != server) {
                    self.events.push_back(Event::Duplicate { channel: ChannelId(id), used, other: server });
                }
                return;
            }
        }
        self.search.remove(id);
        let circuit = self.circuit_to(now, server, priority);
        let mut message = Vec::new();
        wire::write_text(Header::bare(command::CREATE_CHAN, 0, 0, id, MINOR.into()), name.as_bytes(), &mut message);
        if let Some(to) = self.circuits.get_mut(circuit) {
            to.out.vec().extend_from_slice(&message);
            to.channels.insert(id);
        }
        if let Some(channel) = self.channels.get_mut(id) {
            channel.state = State::Creating(CircuitId(circuit));
        }
        self.touch(circuit);
    }

    /// Processes bytes received on a circuit.
    pub fn handle_bytes(&mut self, now: MonoNs, id: CircuitId, bytes: &[u8]) {
        let Some(circuit) = self.circuits.get_mut(id.0) else { return };
        circuit.heard = now;
        circuit.asked = None;
        let mut input = std::mem::take(&mut circuit.input);
        // Bytes are copied only if they belong to an incomplete message.
        let taken = if input.is_empty() {
            let taken = self.consume(now, id, bytes);
            input.extend_from_slice(&bytes[taken..]);
            taken
        } else {
            input.extend_from_slice(bytes);
            let taken = self.consume(now, id, &input);
            input.drain(..taken);
            taken
        };
        if input.is_empty() && input.capacity() > MESSAGE_BYTES {
            input = Vec::new();
        }
        let quiet = self.config.quiet_max;
        let Some(circuit) = self.circuits.get_mut(id.0) else { return };
        circuit.input = input;
        circuit.progressed(now, bytes.len(), taken > 0 && circuit.skip == 0, quiet);
    }

    /// Handles the complete messages in `bytes` and returns the number of processed bytes.
    fn consume(&mut self, now: MonoNs, id: CircuitId, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let Some(circuit) = self.circuits.get_mut(id.0).filter(|circuit| !circuit.closing) else {
                return bytes.len();
            };
            let skipped = circuit.skip.min(bytes.len() - at);
            circuit.skip -= skipped;
            at += skipped;
            let HeaderParse::Header(header, head) = Header::read(&bytes[at..]) else { return at };
            let len = head + header.size as usize;
            if len > MESSAGE_BYTES && len > self.largest(id, &header) {
                self.refuse(id, &header, len);
                continue;
            }
            let Some(payload) = bytes.get(at + head..at + len) else { return at };
            self.handle(now, id, &header, payload);
            at += len;
        }
    }

    /// A pending request that was sent on this circuit.
    fn asked_on(&self, id: CircuitId, io: u32) -> Option<Io> {
        let io = self.ios.get(io).copied()?;
        let channel = self.channels.get(io.channel())?;
        (channel.circuit() == Some(id)).then_some(io)
    }

    /// The size in bytes of the largest requested message of this kind.
    fn largest(&self, id: CircuitId, header: &Header) -> usize {
        let asked = match (header.command, self.asked_on(id, header.p2)) {
            (command::READ_NOTIFY, Some(Io::Read(channel, dbr, count)))
            | (command::EVENT_ADD, Some(Io::Sub(channel, dbr, count, _))) => {
                let info = self.channels.get(channel).and_then(|channel| channel.info);
                let all = info.map_or(0, |info| info.count);
                dbr.size(if count == 0 { all } else { count })
            }
            _ => 0,
        };
        asked.saturating_add(MESSAGE_BYTES).min(self.message_bytes)
    }

    /// Discards a message of `len` bytes that exceeds the request or the limit. The answer to a cancelled request is not a fault;
    /// any other unrequested message closes the circuit.
    fn refuse(&mut self, id: CircuitId, header: &Header, len: usize) {
        let (io, result) = (IoId(header.p2), Err(Eca::TOLARGE));
        match (header.command, self.asked_on(id, header.p2)) {
            (command::READ_NOTIFY, Some(Io::Read(channel, ..))) => {
                self.remove_io(header.p2);
                self.events.push_back(Event::Read { io, channel: ChannelId(channel), result });
            }
            (command::EVENT_ADD, Some(Io::Sub(channel, ..))) => {
                self.events.push_back(Event::Update { io, channel: ChannelId(channel), result });
            }
            (command::READ_NOTIFY | command::EVENT_ADD, _) => {}
            _ => {
                if let Some(circuit) = self.circuits.get_mut(id.0) {
                    circuit.closing = true;
                }
                self.touch(id.0);
                return;
            }
        }
        if let Some(circuit) = self.circuits.get_mut(id.0) {
            circuit.skip = len;
        }
    }

    fn handle(&mut self, now: MonoNs, id: CircuitId, header: &Header, payload: &[u8]) {
        match header.command {
            command::CREATE_CHAN => self.created(id, header),
            // Messages about a channel that has left this circuit are outdated.
            command::ACCESS_RIGHTS | command::CREATE_CH_FAIL | command::SERVER_DISCONN
                if self.channels.get(header.p1).is_none_or(|channel| channel.circuit() != Some(id)) => {}
            command::ACCESS_RIGHTS => {
                let access = Access { read: header.p2 & 1 != 0, write: header.p2 & 2 != 0 };
                let Some(server) = self.circuits.get(id.0).map(|circuit| circuit.server) else { return };
                let Some(channel) = self.channels.get_mut(header.p1) else { return };
                let info = ChannelInfo { native: Basic::Double, count: 0, access, server };
                channel.info = Some(channel.info.map_or(info, |info| ChannelInfo { access, ..info }));
                if matches!(channel.state, State::Connected(..)) {
                    self.events.push_back(Event::AccessChanged(ChannelId(header.p1)));
                }
            }
            command::CREATE_CH_FAIL | command::SERVER_DISCONN => {
                if let Some(circuit) = self.circuits.get_mut(id.0) {
                    circuit.channels.remove(&header.p1);
                }
                let refused = header.command == command::CREATE_CH_FAIL;
                self.lost(now, header.p1, if refused { now + REFUSED_GAP } else { now });
            }
            command::READ_NOTIFY => {
                let Some(Io::Read(channel, ..)) = self.asked_on(id, header.p2) else { return };
                self.remove_io(header.p2);
                let result = answer(header, payload);
                self.events.push_back(Event::Read { io: IoId(header.p2), channel: ChannelId(channel), result });
            }
            command::EVENT_ADD => {
                let Some(Io::Sub(channel, ..)) = self.asked_on(id, header.p2) else { return };
                if header.size == 0 {
                    return;
                }
                let result = answer(header, payload);
                self.events.push_back(Event::Update { io: IoId(header.p2), channel: ChannelId(channel), result });
            }
            command::WRITE_NOTIFY => {
                let Some(Io::Write(channel)) = self.asked_on(id, header.p2) else { return };
                self.remove_io(header.p2);
                let status = Eca(header.p1);
                let result = if status.is_ok() { Ok(()) } else { Err(status) };
                self.events.push_back(Event::Written { io: IoId(header.p2), channel: ChannelId(channel), result });
            }
            command::SEARCH => {
                let Some(server) = self.circuits.get(id.0).map(|circuit| circuit.server) else { return };
                let ip = if header.p1 == NONE || header.p1 == 0 { server.ip } else { header.p1 };
                self.found(now, header.p2, Address { ip, port: header.kind });
            }
            command::ERROR => {
                let HeaderParse::Header(request, head) = Header::read(payload) else { return };
                let text = String::from_utf8_lossy(wire::text_of(&payload[head..])).into_owned();
                let channel =
                    (header.p1 != NONE && self.channels.get(header.p1).is_some()).then_some(ChannelId(header.p1));
                let status = Eca(header.p2);
                self.events.push_back(Event::Complaint { channel, request, status, text });
            }
            // Other messages need no reaction.
            _ => {}
        }
    }

    fn created(&mut self, id: CircuitId, header: &Header) {
        let Some(server) = self.circuits.get(id.0).map(|circuit| circuit.server) else { return };
        let (Some(dbr), true) = (Dbr::from_wire(header.kind), header.kind < 7) else { return };
        let Some(channel) = self.channels.get_mut(header.p1) else {
            // The channel was cleared in the meantime.
            self.send(id.0, Header::bare(command::CLEAR_CHANNEL, 0, 0, header.p2, header.p1), &[]);
            return;
        };
        if channel.state != State::Creating(id) {
            return;
        }
        let access = channel.info.map_or(Access { read: true, write: true }, |info| info.access);
        channel.info = Some(ChannelInfo { native: dbr.basic(), count: header.count, access, server });
        channel.state = State::Connected(id, header.p2);
        self.events.push_back(Event::Connected(ChannelId(header.p1)));
        // Reads and writes ended when the channel was lost. Only subscriptions remain.
        for io in self.ios_of(header.p1) {
            self.send_subscription(id.0, header.p2, io);
        }
    }
}

fn answer(header: &Header, payload: &[u8]) -> Result<(Dbr, Reading), Eca> {
    let status = Eca(header.p1);
    if !status.is_ok() {
        return Err(status);
    }
    let dbr = Dbr::from_wire(header.kind).ok_or(Eca::BADTYPE)?;
    Ok((dbr, decode::reading(dbr, header.count, payload)?))
}
