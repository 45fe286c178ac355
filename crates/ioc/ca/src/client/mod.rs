//! The client's side: search, circuits, channels, reads, writes and subscriptions.
//!
//! The caller opens the connections from [`Client::poll_connect`], transfers bytes and datagrams, and passes in the time.
//! Events come from [`Client::poll_event`]. A channel is searched with increasing intervals until it is found, and again after
//! its circuit is lost. Its subscriptions are then restored automatically.

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

impl From<Address> for core::net::SocketAddr {
    fn from(address: Address) -> Self {
        Self::new(core::net::Ipv4Addr::from(address.ip).into(), address.port)
    }
}

/// The number of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// The number of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitId(pub u32);

/// The number of a read, write or subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u32);

/// The identity and search parameters of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// User name.
    pub user: String,
    /// Host name.
    pub host: String,
    /// Maximum interval between searches of one name.
    pub search_period_max: DurNs,
    /// Maximum silence of a server before an echo request.
    pub quiet_max: DurNs,
    /// Servers that are searched over a circuit.
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

/// The properties of a connected channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelInfo {
    /// Type of the elements.
    pub native: Basic,
    /// Maximum number of elements.
    pub count: u32,
    /// The access rights.
    pub access: Access,
    /// The server of the channel.
    pub server: Address,
}

/// An event of a client.
#[derive(Clone, Debug)]
pub enum Event {
    /// A channel is connected, for the first time or again.
    Connected(ChannelId),
    /// A channel has lost its server and is searched again.
    Disconnected(ChannelId),
    /// The access rights of a connected channel have changed.
    AccessChanged(ChannelId),
    /// A read has ended.
    Read {
        /// The read.
        io: IoId,
        /// Its channel.
        channel: ChannelId,
        /// The type and the reading, or the error.
        result: Result<(Dbr, Reading), Eca>,
    },
    /// A write with completion has ended.
    Written {
        /// The write.
        io: IoId,
        /// Its channel.
        channel: ChannelId,
        /// The status of the write.
        result: Result<(), Eca>,
    },
    /// A subscription has an update.
    Update {
        /// The subscription.
        io: IoId,
        /// Its channel.
        channel: ChannelId,
        /// The type and the reading, or the error.
        result: Result<(Dbr, Reading), Eca>,
    },
    /// A server has reported an error about a request that has no other answer.
    Complaint {
        /// The channel, if the server specifies it.
        channel: Option<ChannelId>,
        /// The header of the request, as repeated by the server.
        request: Header,
        /// The status.
        status: Eca,
        /// The server's text.
        text: String,
    },
    /// The same name was found on a second server. That server is ignored.
    Duplicate {
        /// The channel.
        channel: ChannelId,
        /// The server in use.
        used: Address,
        /// The other one.
        other: Address,
    },
}

/// The reason why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The channel is not connected.
    Disconnected,
    /// The type cannot be used for this request, or the value cannot be encoded in it.
    BadType,
    /// The request has more elements than the channel.
    BadCount,
    /// Access denied.
    NoAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Searching,
    /// The channel was requested on a circuit.
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
    /// The circuit on which the channel is or will be.
    const fn circuit(&self) -> Option<CircuitId> {
        match self.state {
            State::Searching => None,
            State::Creating(circuit) | State::Connected(circuit, _) => Some(circuit),
        }
    }
}

/// A request, with its channel first. A count of 0 requests all elements.
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

/// Default maximum size in bytes of a received message; see [`Client::bound_messages`].
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// A client for any number of channels on any number of servers.
pub struct Client {
    config: ClientConfig,
    channels: Numbered<Channel>,
    circuits: Numbered<Circuit>,
    by_server: HashMap<(Address, u16), u32>,
    ios: Numbered<Io>,
    /// The requests in `ios` by channel. A lost or cleared channel checks only its own.
    by_channel: BTreeSet<(u32, u32)>,
    search: Search,
    /// The time of the next connection attempt to lost name servers.
    call_again: Option<MonoNs>,
    connects: VecDeque<(CircuitId, Address)>,
    events: VecDeque<Event>,
    touched: Vec<u32>,
    /// The buffer of a sent large request, reused for the next one.
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

    /// Limits the size in bytes of messages from servers, including the header. A larger value ends its request with `TOLARGE`.
    /// The default is 256 MiB.
    pub const fn bound_messages(&mut self, bytes: usize) {
        self.message_bytes = bytes;
    }

    /// Opens circuits to the name servers without one.
    fn call_name_servers(&mut self, now: MonoNs) {
        for server in self.config.name_servers.clone() {
            let id = self.circuit_to(now, server, 0);
            if let Some(circuit) = self.circuits.get_mut(id) {
                circuit.name_server = true;
            }
        }
    }

    /// Starts the search for a channel. `priority` is 0 to 99.
    pub fn channel(&mut self, now: MonoNs, name: &str, priority: u16) -> ChannelId {
        let channel =
            Channel { name: name.to_owned(), priority: priority.min(99), state: State::Searching, info: None };
        let id = self.channels.insert(channel);
        self.search.add(now, id);
        ChannelId(id)
    }

    /// Removes a channel with its subscriptions and requests.
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

    /// The name of a channel.
    #[must_use]
    pub fn name(&self, id: ChannelId) -> &str {
        self.channels.get(id.0).map_or("", |channel| &channel.name)
    }

    /// The channels that cannot be used, for users: `2 of 12 variables not connected: A, B; 1 of 12 variables not readable: C`.
    /// Empty if all are connected with the rights that `needed` returns. Goes through all channels.
    #[must_use]
    pub fn unusable(&self, needed: impl Fn(ChannelId) -> Access) -> String {
        let mut all = 0;
        let mut lists = ["connected", "readable", "writable"].map(|word| (word, 0, Vec::new()));
        for (id, channel) in self.channels.iter() {
            all += 1;
            let needed = needed(ChannelId(id));
            let access = match (channel.state, channel.info) {
                (State::Connected(..), Some(info)) => info.access,
                _ => {
                    add(&mut lists[0], &channel.name);
                    continue;
                }
            };
            if needed.read && !access.read {
                add(&mut lists[1], &channel.name);
            } else if needed.write && !access.write {
                add(&mut lists[2], &channel.name);
            }
        }
        let text = |(word, count, names): (&str, usize, Vec<&str>)| {
            let more = if count > names.len() { ", …" } else { "" };
            (count > 0).then(|| format!("{count} of {all} variables not {word}: {}{more}", names.join(", ")))
        };
        lists.into_iter().filter_map(text).collect::<Vec<_>>().join("; ")
    }

    /// The number of unsent bytes on the circuit of a channel.
    #[must_use]
    pub fn backlog(&self, id: ChannelId) -> usize {
        match self.channels.get(id.0).map(|channel| channel.state) {
            Some(State::Connected(circuit, _) | State::Creating(circuit)) => {
                self.circuits.get(circuit.0).map_or(0, |circuit| circuit.out.len())
            }
            _ => 0,
        }
    }

    /// The properties of a channel; `None` while it is not connected.
    #[must_use]
    pub fn info(&self, id: ChannelId) -> Option<ChannelInfo> {
        let channel = self.channels.get(id.0)?;
        if matches!(channel.state, State::Connected(..)) { channel.info } else { None }
    }

    /// Requests a value. A `count` of 0 requests all elements.
    ///
    /// # Errors
    /// The request was not sent.
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

    /// Writes a value. With `notify`, an [`Event::Written`] follows. The type on the wire is the type of the value.
    ///
    /// # Errors
    /// The request was not sent.
    pub fn write(&mut self, id: ChannelId, value: &Value, notify: bool) -> Result<Option<IoId>, RequestError> {
        let dbr = Dbr::plain(Basic::native_of(value.kind()));
        let reading = Reading { value: value.clone(), ..Reading::default() };
        let mut payload = Vec::new();
        let count = crate::encode::encode(dbr, 0, &reading, &mut payload).map_err(|_| RequestError::BadType)?;
        self.write_raw(id, dbr, count, &payload, notify)
    }

    /// Writes an encoded payload, for example an acknowledgement.
    ///
    /// # Errors
    /// The request was not sent.
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

    /// Subscribes. The subscription remains when the channel is disconnected. A `count` of 0 requests all elements of each update.
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

    /// The next event, oldest first.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A connection to open. The caller must then call [`Client::connected_to`] or [`Client::closed`].
    #[must_use]
    pub fn poll_connect(&mut self) -> Option<(CircuitId, Address)> {
        self.connects.pop_front()
    }

    /// A circuit with bytes to send or to close.
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

    /// The datagram to send to all search addresses, if one is due.
    #[must_use]
    pub fn poll_datagram(&mut self, now: MonoNs) -> Option<Vec<u8>> {
        let datagram = self.search.poll(now, &self.channels)?;
        // The same searches are sent to name servers.
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

    /// The time of the next call to [`handle_timeout`](Self::handle_timeout) and [`poll_datagram`](Self::poll_datagram).
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

    /// The reads, writes and subscriptions of a channel, in increasing order.
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

/// Adds a channel to a list with its number of channels and their first names.
fn add<'a>((_, count, names): &mut (&str, usize, Vec<&'a str>), name: &'a str) {
    const NAMES_MAX: usize = 3;
    *count += 1;
    if names.len() < NAMES_MAX {
        names.push(name);
    }
}
