//! The client's side: finding servers, circuits, channels, reads, writes, subscriptions.
//!
//! The shell opens the connections that [`Client::poll_connect`] asks for, moves bytes and datagrams, and says
//! what time it is; what has happened comes out of [`Client::poll_event`]. Channels are searched again with
//! growing gaps until they are found, and anew after a circuit was lost; subscriptions come back by
//! themselves.

mod circuit;
#[cfg(test)]
mod large;
#[cfg(test)]
mod lossy;
mod search;
#[cfg(test)]
mod tests;

use crate::dbr::{Basic, Dbr};
use crate::eca::Eca;
use crate::encode::Reading;
use crate::server::Access;
use crate::slab::Numbered;
use crate::wire::{self, Header, command, padded};
use base::{DurNs, EventMask, MonoNs, Value};
use circuit::Circuit;
use search::Search;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// An IPv4 address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The IPv4 address.
    pub ip: u32,
    /// The port.
    pub port: u16,
}

/// A channel, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// A circuit, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitId(pub u32);

/// A read, write or subscription, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u32);

/// Who the client is and how it searches.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The user's name.
    pub user: String,
    /// The host's name.
    pub host: String,
    /// Longest gap between searches of one name.
    pub search_period_max: DurNs,
    /// After this time without a word from a server it is asked for one.
    pub quiet_max: DurNs,
    /// Servers that are asked for names over a circuit.
    pub name_servers: Vec<Address>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            user: String::new(),
            host: String::new(),
            search_period_max: DurNs::from_secs(300),
            quiet_max: DurNs::from_secs(30),
            name_servers: Vec::new(),
        }
    }
}

/// What a connected channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelInfo {
    /// Type of its elements.
    pub native: Basic,
    /// Most elements that it has.
    pub count: u32,
    /// What may be done.
    pub access: Access,
    /// Where it was found.
    pub server: Address,
}

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A channel is connected, for the first time or again.
    Connected(ChannelId),
    /// A channel has lost its server; it is searched again.
    Disconnected(ChannelId),
    /// What may be done with a connected channel has changed.
    AccessChanged(ChannelId),
    /// A read has ended.
    Read {
        /// Which.
        io: IoId,
        /// Of which channel.
        channel: ChannelId,
        /// The type and the reading, or why there is none.
        result: Result<(Dbr, Reading), Eca>,
    },
    /// A write with completion has ended.
    Written {
        /// Which.
        io: IoId,
        /// To which channel.
        channel: ChannelId,
        /// Whether it was done.
        result: Result<(), Eca>,
    },
    /// A subscription has an update.
    Update {
        /// Which.
        io: IoId,
        /// Of which channel.
        channel: ChannelId,
        /// The type and the reading, or why there is none.
        result: Result<(Dbr, Reading), Eca>,
    },
    /// A server has complained about a request without an answer of its own.
    Complaint {
        /// What it was about, if it says so.
        channel: Option<ChannelId>,
        /// The request's header, as the server repeats it.
        request: Header,
        /// The status.
        status: Eca,
        /// The server's words.
        text: String,
    },
    /// The same name was found on a second server, which is not used.
    Duplicate {
        /// The channel.
        channel: ChannelId,
        /// The server in use.
        used: Address,
        /// The other one.
        other: Address,
    },
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The channel is not connected.
    Disconnected,
    /// The type cannot be used so, or the value not be sent as it.
    BadType,
    /// More elements than the channel has.
    BadCount,
    /// Not allowed.
    NoAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Searching,
    /// Asked for on a circuit.
    Creating(CircuitId),
    Connected(CircuitId, u32),
}

struct Channel {
    name: String,
    priority: u16,
    state: State,
    info: Option<ChannelInfo>,
}

impl Channel {
    /// The circuit that it has, or is to have.
    const fn circuit(&self) -> Option<CircuitId> {
        match self.state {
            State::Searching => None,
            State::Creating(circuit) | State::Connected(circuit, _) => Some(circuit),
        }
    }
}

/// A request, first its channel. A count of 0 asks for as many elements as there are.
#[derive(Clone, Copy)]
enum Io {
    Read(u32, Dbr, u32),
    Write(u32),
    Sub(u32, Dbr, u32, EventMask),
}

impl Io {
    const fn channel(&self) -> u32 {
        match *self {
            Self::Read(channel, ..) | Self::Write(channel) | Self::Sub(channel, ..) => channel,
        }
    }
}

/// Largest message that a client takes, unless [`Client::bound_messages`] sets another size.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Any number of channels to any number of servers.
pub struct Client {
    config: ClientConfig,
    channels: Numbered<Channel>,
    circuits: Numbered<Circuit>,
    by_server: HashMap<(Address, u16), u32>,
    ios: Numbered<Io>,
    /// Each of `ios` with its channel before it: a channel that is lost or cleared looks at its own alone.
    by_channel: BTreeSet<(u32, u32)>,
    search: Search,
    /// When name servers are called again that are not connected.
    call_again: Option<MonoNs>,
    connects: VecDeque<(CircuitId, Address)>,
    events: VecDeque<Event>,
    touched: Vec<u32>,
    /// Memory of a large request that was sent, for the next.
    spare: Vec<u8>,
    message_bytes: usize,
}

impl Client {
    /// A client without channels.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        let mut client = Self {
            search: Search::new(config.search_period_max),
            channels: Numbered::default(),
            circuits: Numbered::default(),
            by_server: HashMap::new(),
            ios: Numbered::default(),
            by_channel: BTreeSet::new(),
            call_again: None,
            connects: VecDeque::new(),
            events: VecDeque::new(),
            touched: Vec::new(),
            spare: Vec::new(),
            message_bytes: MESSAGE_BYTES_MAX,
            config,
        };
        client.call_name_servers(MonoNs(0));
        client
    }

    /// Bounds the messages that servers may send, header included; a larger value ends its request with `TOLARGE`.
    /// Without this call the bound is 256 MiB.
    pub const fn bound_messages(&mut self, bytes: usize) {
        self.message_bytes = bytes;
    }

    /// Opens circuits to the name servers that have none.
    fn call_name_servers(&mut self, now: MonoNs) {
        for server in self.config.name_servers.clone() {
            let id = self.circuit_to(now, server, 0);
            if let Some(circuit) = self.circuits.get_mut(id) {
                circuit.name_server = true;
            }
        }
    }

    /// Starts to search for a channel. `priority` is 0 to 99.
    pub fn channel(&mut self, now: MonoNs, name: &str, priority: u16) -> ChannelId {
        let channel =
            Channel { name: name.to_owned(), priority: priority.min(99), state: State::Searching, info: None };
        let id = self.channels.insert(channel);
        self.search.add(now, id);
        ChannelId(id)
    }

    /// Gives a channel up with its subscriptions and requests.
    pub fn clear(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.remove(id.0) else { return };
        self.search.remove(id.0);
        for io in self.ios_of(id.0) {
            self.remove_io(io);
        }
        if let State::Connected(circuit, sid) = channel.state {
            self.send(circuit.0, Header::bare(command::CLEAR_CHANNEL, 0, 0, sid, id.0), &[]);
        }
        if let State::Connected(circuit, _) | State::Creating(circuit) = channel.state
            && let Some(circuit) = self.circuits.get_mut(circuit.0)
        {
            circuit.channels.remove(&id.0);
        }
    }

    /// A channel's name.
    #[must_use]
    pub fn name(&self, id: ChannelId) -> &str {
        self.channels.get(id.0).map_or("", |channel| &channel.name)
    }

    /// Bytes that wait to be sent on a channel's circuit.
    #[must_use]
    pub fn backlog(&self, id: ChannelId) -> usize {
        match self.channels.get(id.0).map(|channel| channel.state) {
            Some(State::Connected(circuit, _) | State::Creating(circuit)) => {
                self.circuits.get(circuit.0).map_or(0, |circuit| circuit.out.len())
            }
            _ => 0,
        }
    }

    /// What a channel is; `None` while it is not connected.
    #[must_use]
    pub fn info(&self, id: ChannelId) -> Option<ChannelInfo> {
        let channel = self.channels.get(id.0)?;
        if matches!(channel.state, State::Connected(..)) { channel.info } else { None }
    }

    /// Asks for a value; `count` 0 asks for as many elements as there are.
    ///
    /// # Errors
    /// When it was not sent.
    pub fn read(&mut self, id: ChannelId, dbr: Dbr, count: u32) -> Result<IoId, RequestError> {
        let (circuit, sid, info) = self.connected(id)?;
        if !info.access.read {
            return Err(RequestError::NoAccess);
        }
        if count > info.count {
            return Err(RequestError::BadCount);
        }
        let io = self.insert_io(Io::Read(id.0, dbr, count));
        self.send(circuit.0, Header::bare(command::READ_NOTIFY, dbr.wire(), count, sid, io), &[]);
        Ok(IoId(io))
    }

    /// Writes a value; with `notify` a [`Event::Written`] follows. The type on the wire is the value's own.
    ///
    /// # Errors
    /// When it was not sent.
    pub fn write(&mut self, id: ChannelId, value: &Value, notify: bool) -> Result<Option<IoId>, RequestError> {
        let dbr = Dbr::plain(Basic::native_of(value.kind()));
        let reading = Reading { value: value.clone(), ..Reading::default() };
        let mut payload = Vec::new();
        let count = crate::encode::encode(dbr, 0, &reading, &mut payload).map_err(|_| RequestError::BadType)?;
        self.write_raw(id, dbr, count, &payload, notify)
    }

    /// Writes a payload as it stands: for acknowledgements.
    ///
    /// # Errors
    /// When it was not sent.
    pub fn write_raw(
        &mut self,
        id: ChannelId,
        dbr: Dbr,
        count: u32,
        payload: &[u8],
        notify: bool,
    ) -> Result<Option<IoId>, RequestError> {
        let (circuit, sid, info) = self.connected(id)?;
        if !info.access.write {
            return Err(RequestError::NoAccess);
        }
        if count > info.count {
            return Err(RequestError::BadCount);
        }
        let io = notify.then(|| self.insert_io(Io::Write(id.0)));
        let command = if notify { command::WRITE_NOTIFY } else { command::WRITE };
        self.send(circuit.0, Header::bare(command, dbr.wire(), count, sid, io.unwrap_or(0)), payload);
        Ok(io.map(IoId))
    }

    /// Subscribes; the subscription outlives the channel's connection. `count` 0 asks for as many elements as
    /// there are each time.
    pub fn subscribe(&mut self, id: ChannelId, dbr: Dbr, count: u32, mask: EventMask) -> IoId {
        let io = self.insert_io(Io::Sub(id.0, dbr, count, mask));
        if let Some(State::Connected(circuit, sid)) = self.channels.get(id.0).map(|channel| channel.state) {
            self.send_subscription(circuit.0, sid, io);
        }
        IoId(io)
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, io: IoId) {
        let Some(Io::Sub(channel, dbr, count, _)) = self.ios.get(io.0).copied() else { return };
        self.remove_io(io.0);
        if let Some(State::Connected(circuit, sid)) = self.channels.get(channel).map(|channel| channel.state) {
            self.send(circuit.0, Header::bare(command::EVENT_CANCEL, dbr.wire(), count, sid, io.0), &[]);
        }
    }

    /// What has happened, oldest first.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A connection to be opened. [`Client::connected_to`] or [`Client::closed`] follow.
    #[must_use]
    pub fn poll_connect(&mut self) -> Option<(CircuitId, Address)> {
        self.connects.pop_front()
    }

    /// A circuit that has something to send or is to be closed.
    #[must_use]
    pub fn poll_touched(&mut self) -> Option<CircuitId> {
        while let Some(id) = self.touched.pop() {
            if let Some(circuit) = self.circuits.get_mut(id) {
                circuit.touched = false;
                return Some(CircuitId(id));
            }
        }
        None
    }

    /// A datagram for every search address, if one is due.
    #[must_use]
    pub fn poll_datagram(&mut self, now: MonoNs) -> Option<Vec<u8>> {
        let datagram = self.search.poll(now, &self.channels)?;
        // Name servers are asked the same.
        for id in self.circuits.keys() {
            if self.circuits.get(id).is_some_and(|circuit| circuit.name_server && circuit.connected) {
                let searches: Vec<(Header, Vec<u8>)> = wire::messages(&datagram)
                    .filter(|(header, _)| header.command == command::SEARCH)
                    .map(|(header, payload)| (header, payload.to_vec()))
                    .collect();
                for (header, payload) in searches {
                    self.send(id, header, &payload);
                }
            }
        }
        Some(datagram)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) and [`poll_datagram`](Self::poll_datagram).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoNs> {
        let circuits = self.circuits.iter().filter_map(|(_, circuit)| circuit.deadline(self.config.quiet_max));
        circuits.chain(self.search.poll_timeout()).chain(self.call_again).min()
    }

    fn connected(&self, id: ChannelId) -> Result<(CircuitId, u32, ChannelInfo), RequestError> {
        let channel = self.channels.get(id.0).ok_or(RequestError::Disconnected)?;
        match (channel.state, channel.info) {
            (State::Connected(circuit, sid), Some(info)) => Ok((circuit, sid, info)),
            _ => Err(RequestError::Disconnected),
        }
    }

    fn insert_io(&mut self, io: Io) -> u32 {
        let number = self.ios.insert(io);
        self.by_channel.insert((io.channel(), number));
        number
    }

    fn remove_io(&mut self, number: u32) -> Option<Io> {
        let io = self.ios.remove(number)?;
        self.by_channel.remove(&(io.channel(), number));
        Some(io)
    }

    /// A channel's reads, writes and subscriptions, in rising order.
    fn ios_of(&self, channel: u32) -> Vec<u32> {
        self.by_channel.range((channel, 0)..=(channel, u32::MAX)).map(|(_, io)| *io).collect()
    }

    fn send_subscription(&mut self, circuit: u32, sid: u32, io: u32) {
        let Some(Io::Sub(_, dbr, count, mask)) = self.ios.get(io).copied() else { return };
        let mut payload = [0; 16];
        payload[12..14].copy_from_slice(&u16::from(mask.0).to_be_bytes());
        self.send(circuit, Header::bare(command::EVENT_ADD, dbr.wire(), count, sid, io), &payload);
    }

    fn send(&mut self, circuit: u32, mut header: Header, payload: &[u8]) {
        let Some(to) = self.circuits.get_mut(circuit) else { return };
        header.size = padded(payload.len()) as u32;
        let out = to.out.vec();
        header.write(out);
        out.extend_from_slice(payload);
        out.resize(out.len() + header.size as usize - payload.len(), 0);
        self.touch(circuit);
    }

    fn touch(&mut self, id: u32) {
        if let Some(circuit) = self.circuits.get_mut(id)
            && !circuit.touched
        {
            circuit.touched = true;
            self.touched.push(id);
        }
    }
}
