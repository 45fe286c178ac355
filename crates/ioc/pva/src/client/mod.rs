//! The client's side: searches, connections, channels and operations.
//!
//! A [`Client`] finds channels by datagrams ([`Client::poll_datagram`], [`Client::handle_datagram`]), opens one connection per
//! server ([`Client::poll_connect`], [`Client::connected_to`], [`Client::closed`]) and transfers bytes
//! ([`Client::poll_touched`], [`Client::output`], [`Client::sent`], [`Client::handle_bytes`]). Results are [`Event`]s.
//!
//! Names are also searched over connections to name servers ([`ClientConfig::name_servers`]), which are kept open.
//!
//! Operations on a channel that is not connected wait for it. After a loss of the connection, monitors and reads start again;
//! writes fail, because the server may have executed them. [`Client::renew`] requests a monitor again that its server ended.

mod circuit;
mod handle;
mod renew;

#[cfg(test)]
mod tests;

use crate::codec::{Mask, Order, Status, Struct, Type, Value, Writer};
use crate::request::Request;
use crate::search::{self, Address, DATAGRAM_BYTES_MAX};
use crate::wire;
use base::{DurNs, MonoNs};
use circuit::Circuit;
use renew::Renewals;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The gap after the first search for a name; it doubles up to [`SEARCH_GAP_MAX`].
const SEARCH_GAP: DurNs = DurNs::from_ms(100);
/// Maximum gap between searches for a name.
const SEARCH_GAP_MAX: DurNs = DurNs::from_secs(10);
/// Time until a name is searched again after its server refused the channel or the connection.
const REFUSED_GAP: DurNs = DurNs::from_secs(30);
/// Time until a lost connection to a name server is opened again.
const NAME_SERVER_GAP: DurNs = DurNs::from_secs(10);
/// Maximum number of names in one request to a name server.
const NAMES_MAX: usize = 1_000;
/// Maximum size of a received message.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Number of updates that a server may send before an acknowledgement, if the request does not set `queueSize`.
const WINDOW_DEFAULT: u32 = 4;

/// A channel of a [`Client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// An operation of a [`Client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);

/// A connection of a [`Client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitId(pub u32);

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads the value once.
    Get,
    /// Writes. The caller reads the present value with [`Client::read`] if it needs it, then calls [`Client::write`].
    Put,
    /// Writes like [`Put`](Self::Put), and reads the value after the write: [`Event::Returned`].
    PutGet,
    /// Receives updates.
    Monitor,
    /// Describes the type.
    Describe,
    /// Calls the channel as a function, see [`Client::call`].
    Rpc,
}

/// A result for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The channel has a server.
    Connected(ChannelId),
    /// The channel lost its server. The client searches for it again.
    Disconnected(ChannelId),
    /// The server refused the channel.
    Refused(ChannelId, Status),
    /// A put may be written, see [`Client::ty`].
    Ready(OpId),
    /// A value was received, see [`Client::value`]: the changed fields, and those that changed more than once.
    Value {
        /// The operation.
        op: OpId,
        /// Fields that were received.
        changed: Mask,
        /// Fields of which values were lost.
        overrun: Mask,
    },
    /// The type of a channel, as requested by [`Action::Describe`].
    Described(OpId, Type),
    /// A function returned a value, or a put-get read one, with its type.
    Returned(OpId, Type, Value),
    /// A write is complete, or a monitor has ended at the server. The operation has ended, except a monitor with
    /// [`Client::renew`].
    Done(OpId),
    /// A write with [`Client::write_again`] has ended. The operation remains.
    Written(OpId, Status),
    /// The operation failed. It has ended, except a monitor with [`Client::renew`].
    Failed(OpId, Status),
    /// A text of the server about an operation.
    Message(OpId, String),
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The account that is sent to servers.
    pub user: String,
    /// The host name that is sent to servers.
    pub host: String,
    /// A connection without received bytes for this time is closed. Half of it after the last byte, an echo is requested.
    pub quiet_max: DurNs,
    /// Servers that are searched over a connection.
    pub name_servers: Vec<Address>,
}

/// A server that is searched over a connection.
struct NameServer {
    server: Address,
    circuit: Option<u32>,
    /// The time of the next attempt, without a connection.
    retry_at: MonoNs,
}

struct Channel {
    name: String,
    /// Its server, from the search on.
    circuit: Option<u32>,
    /// The server's number of the channel, while it is connected.
    sid: Option<u32>,
    /// The rights that the server announced, see [`wire::right`]; `None` if it announced none.
    rights: Option<u8>,
    next_search: MonoNs,
    gap: DurNs,
}

struct Op {
    channel: u32,
    action: Action,
    /// Its number in messages.
    ioid: u32,
    /// The type and value of the request; `None` for an empty one.
    request: Option<(Arc<Struct>, Value)>,
    /// Number of updates that the server may send before an acknowledgement.
    window: Option<u32>,
    received: u32,
    /// The argument of a call.
    argument: Option<(Type, Value)>,
    /// The type of the value that a put-get reads after its write.
    returned: Option<Type>,
    ty: Option<Type>,
    value: Value,
    /// Number of updates whose event the caller has not taken yet.
    unpolled: usize,
    /// Values of those updates except the newest, oldest first.
    older: VecDeque<Value>,
    /// The value of the event that the caller took last, if a newer one has arrived.
    shown: Option<Value>,
    /// The server executes a write.
    writes: bool,
    /// A write does not end it.
    stays: bool,
    /// The client requests it again after its end.
    renews: bool,
    /// The time of its next request, after its end.
    renew_at: Option<MonoNs>,
}

/// A client with all its connections.
pub struct Client {
    config: ClientConfig,
    name_servers: Vec<NameServer>,
    channels: BTreeMap<u32, Channel>,
    ops: BTreeMap<u32, Op>,
    circuits: BTreeMap<u32, Circuit>,
    next: u32,
    sequence: u32,
    events: VecDeque<Event>,
    connects: VecDeque<(u32, Address)>,
    touched: VecDeque<u32>,
    renewals: Renewals,
}

impl Client {
    /// A client without channels.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        let servers = config.name_servers.iter();
        let name_servers = servers.map(|server| NameServer { server: *server, circuit: None, retry_at: MonoNs(0) });
        Self {
            name_servers: name_servers.collect(),
            config,
            channels: BTreeMap::new(),
            ops: BTreeMap::new(),
            circuits: BTreeMap::new(),
            next: 1,
            sequence: 0,
            events: VecDeque::new(),
            connects: VecDeque::new(),
            touched: VecDeque::new(),
            renewals: Renewals::default(),
        }
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Searches for a channel, and keeps it connected.
    pub fn channel(&mut self, now: MonoNs, name: &str) -> ChannelId {
        let id = self.number();
        let channel = Channel {
            name: name.to_owned(),
            circuit: None,
            sid: None,
            rights: None,
            next_search: now,
            gap: SEARCH_GAP,
        };
        self.channels.insert(id, channel);
        ChannelId(id)
    }

    /// Opens a channel of a known server, without a search.
    pub fn channel_at(&mut self, name: &str, server: Address) -> ChannelId {
        let id = self.number();
        let channel = Channel {
            name: name.to_owned(),
            circuit: None,
            sid: None,
            rights: None,
            next_search: MonoNs(u64::MAX),
            gap: SEARCH_GAP_MAX,
        };
        self.channels.insert(id, channel);
        self.assign(id, server);
        ChannelId(id)
    }

    /// Whether the server permits writing. True unless it announced otherwise: most servers announce nothing.
    #[must_use]
    pub fn may_write(&self, id: ChannelId) -> bool {
        let rights = self.channels.get(&id.0).and_then(|channel| channel.rights);
        rights.is_none_or(|rights| rights & wire::right::PUT != 0)
    }

    /// Closes a channel and ends its operations.
    pub fn close(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.remove(&id.0) else { return };
        self.ops.retain(|_, op| op.channel != id.0);
        self.renewals.retain(&self.ops);
        if let (Some(number), Some(sid)) = (channel.circuit, channel.sid)
            && let Some(circuit) = self.circuits.get_mut(&number)
        {
            circuit.destroy(sid, id.0);
            self.touched.push_back(number);
        }
    }

    /// The channels that are not connected, for users, as for Channel Access: `2 of 12 channels not connected: A, B`. Empty
    /// if all are connected. Goes through all channels.
    #[must_use]
    pub fn unconnected(&self) -> String {
        const NAMES_MAX: usize = 3;
        let missing = self.channels.values().filter(|channel| channel.sid.is_none());
        let names: Vec<&str> = missing.map(|channel| channel.name.as_str()).collect();
        if names.is_empty() {
            return String::new();
        }
        let more = if names.len() > NAMES_MAX { ", …" } else { "" };
        let shown = names[..names.len().min(NAMES_MAX)].join(", ");
        format!("{} of {} PVAccess channels not connected: {shown}{more}", names.len(), self.channels.len())
    }

    /// The name of a channel.
    #[must_use]
    pub fn name(&self, id: ChannelId) -> &str {
        self.channels.get(&id.0).map_or("", |channel| &channel.name)
    }

    /// The server of a connected channel.
    #[must_use]
    pub fn server(&self, id: ChannelId) -> Option<Address> {
        let channel = self.channels.get(&id.0).filter(|channel| channel.sid.is_some())?;
        Some(self.circuits.get(&channel.circuit?)?.server)
    }

    /// Starts an operation. It waits for its channel.
    pub fn start(&mut self, id: ChannelId, action: Action, request: &Request) -> OpId {
        let window = (action == Action::Monitor && request.is_set("pipeline")).then(|| {
            let size = request.option("queueSize").and_then(|size| size.parse().ok());
            size.filter(|size| *size > 0).unwrap_or(WINDOW_DEFAULT)
        });
        // A request with more fields than a type may have selects all of them.
        let request = request.to_value().or_else(|| Request::default().to_value());
        self.create(id, action, request, window, None)
    }

    /// Calls a channel with an argument.
    pub fn call(&mut self, id: ChannelId, request: &Request, ty: Type, argument: Value) -> OpId {
        self.create(id, Action::Rpc, request.to_value(), None, Some((ty, argument)))
    }

    fn create(
        &mut self,
        id: ChannelId,
        action: Action,
        request: Option<(Arc<Struct>, Value)>,
        window: Option<u32>,
        argument: Option<(Type, Value)>,
    ) -> OpId {
        let number = self.number();
        let op = Op {
            channel: id.0,
            action,
            ioid: number,
            request,
            window,
            received: 0,
            argument,
            returned: None,
            ty: None,
            value: Value::Any(None),
            unpolled: 0,
            older: VecDeque::new(),
            shown: None,
            writes: false,
            stays: false,
            renews: false,
            renew_at: None,
        };
        self.ops.insert(number, op);
        self.init(number);
        OpId(number)
    }

    /// The channel of an operation.
    #[must_use]
    pub fn channel_of(&self, op: OpId) -> Option<ChannelId> {
        self.ops.get(&op.0).map(|op| ChannelId(op.channel))
    }

    /// The type of an operation's values, once it is known.
    #[must_use]
    pub fn ty(&self, op: OpId) -> Option<&Type> {
        self.ops.get(&op.0)?.ty.as_ref()
    }

    /// The value of an operation, as of the last [`Event::Value`] that was taken.
    #[must_use]
    pub fn value(&self, op: OpId) -> Option<&Value> {
        self.ops.get(&op.0).map(|op| op.shown.as_ref().unwrap_or(&op.value))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if let Some(Event::Value { op, .. }) = &event
            && let Some(op) = self.ops.get_mut(&op.0)
        {
            op.unpolled = op.unpolled.saturating_sub(1);
            op.shown = op.older.pop_front();
        }
        event
    }

    /// The next connection to open.
    pub fn poll_connect(&mut self) -> Option<(CircuitId, Address)> {
        self.connects.pop_front().map(|(id, server)| (CircuitId(id), server))
    }

    /// A connection with bytes to send or to close.
    pub fn poll_touched(&mut self) -> Option<CircuitId> {
        self.touched.pop_front().map(CircuitId)
    }

    /// The unsent bytes of a connection.
    #[must_use]
    pub fn output(&self, id: CircuitId) -> &[u8] {
        self.circuits.get(&id.0).map_or(&[], Circuit::unsent)
    }

    /// Removes bytes of the output after they were sent.
    pub fn sent(&mut self, id: CircuitId, len: usize) {
        if let Some(circuit) = self.circuits.get_mut(&id.0) {
            circuit.take_sent(len);
        }
    }

    /// Whether the connection must be closed now.
    #[must_use]
    pub fn is_closing(&self, id: CircuitId) -> bool {
        self.circuits.get(&id.0).is_none_or(|circuit| circuit.closing)
    }

    /// The time of the next call to [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoNs> {
        let searched = self.channels.values().filter(|channel| channel.circuit.is_none());
        let searches = searched.map(|channel| channel.next_search);
        let checks = self.circuits.values().filter_map(|circuit| circuit.next_check(self.config.quiet_max));
        let servers = self.name_servers.iter().filter(|server| server.circuit.is_none());
        let others = servers.map(|server| server.retry_at).chain(self.renewals.next());
        searches.chain(checks).chain(others).min()
    }

    /// Opens connections to name servers, renews monitors, requests echos on silent connections, and gives up those that do not
    /// answer.
    pub fn handle_timeout(&mut self, now: MonoNs) {
        self.request_renewals(now);
        for nth in 0..self.name_servers.len() {
            let NameServer { server, circuit: None, retry_at } = self.name_servers[nth] else { continue };
            if retry_at <= now {
                self.name_servers[nth].circuit = Some(self.circuit_to(server));
            }
        }
        let quiet = self.config.quiet_max;
        for (id, circuit) in &mut self.circuits {
            if circuit.check(now, quiet) {
                self.touched.push_back(*id);
            }
        }
    }

    /// The next datagram with searches that are due. Send it to all servers; [`search::set_unicast`] adapts it to a destination.
    pub fn poll_datagram(&mut self, now: MonoNs, reply_port: u16) -> Option<Vec<u8>> {
        let due = |channel: &&mut Channel| channel.circuit.is_none() && channel.next_search <= now;
        let mut names: Vec<(u32, String)> = Vec::new();
        let mut room = DATAGRAM_BYTES_MAX - 48;
        for (id, channel) in &mut self.channels {
            let Some(channel) = Some(channel).filter(due) else { continue };
            let size = channel.name.len() + 7;
            if size > room {
                break;
            }
            room -= size;
            channel.next_search = now + channel.gap;
            channel.gap = DurNs(channel.gap.0 * 2).min(SEARCH_GAP_MAX);
            names.push((*id, channel.name.clone()));
        }
        if names.is_empty() {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let names: Vec<(u32, &str)> = names.iter().map(|(id, name)| (*id, name.as_str())).collect();
        for id in self.name_servers.iter().filter_map(|server| server.circuit) {
            if let Some(circuit) = self.circuits.get_mut(&id).filter(|circuit| circuit.ready) {
                circuit.search(self.sequence, &names);
                self.touched.push_back(id);
            }
        }
        let mut out = Writer::new(Order::Big);
        let reply_to = Address { ip: search::SENDER, port: reply_port };
        search::write_search(&mut out, self.sequence, 0, reply_to, &names);
        Some(out.bytes)
    }

    /// The connection to a server, a new one if there is none.
    fn circuit_to(&mut self, server: Address) -> u32 {
        let known = self.circuits.iter().find(|(_, circuit)| circuit.server == server && !circuit.closing);
        if let Some((id, _)) = known {
            return *id;
        }
        let id = self.number();
        self.circuits.insert(id, Circuit::new(server));
        self.connects.push_back((id, server));
        id
    }

    /// Searches all channels without a server at a name server that has just been connected.
    fn search_all_at(&mut self, id: u32) {
        let Some(circuit) = self.circuits.get_mut(&id) else { return };
        let missing = self.channels.iter().filter(|(_, channel)| channel.circuit.is_none());
        let names: Vec<(u32, &str)> = missing.map(|(id, channel)| (*id, channel.name.as_str())).collect();
        names.chunks(NAMES_MAX).for_each(|names| circuit.search(self.sequence, names));
        self.touched.push_back(id);
    }

    /// Assigns a channel to a server, with a new connection if there is none.
    fn assign(&mut self, cid: u32, server: Address) {
        let id = self.circuit_to(server);
        let Some(channel) = self.channels.get_mut(&cid) else { return };
        channel.circuit = Some(id);
        if let Some(circuit) = self.circuits.get_mut(&id).filter(|circuit| circuit.ready) {
            circuit.create(cid, &channel.name);
            self.touched.push_back(id);
        }
    }
}
