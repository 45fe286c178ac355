//! The server's side: circuits, channels and subscriptions.
//!
//! A [`Server`] contains all circuits of a process. The caller passes in received bytes ([`Server::handle_bytes`]), posts
//! ([`Server::post`]) and completed puts ([`Server::put_done`]). [`Server::poll_touched`] then returns the circuits with
//! bytes to send. Values come from a [`Backend`], which does not convert them.
//!
//! Subscription queues follow EPICS' rule: while a circuit has room, each update is queued. Without room the newest update
//! replaces the last queued one of its subscription. Server and circuit count the replaced updates.

mod answer;
mod circuit;
mod handle;
mod post;
mod subscribe;

pub use circuit::{CircuitInfo, Counters};

use crate::dbr::Basic;
use crate::eca::Eca;
use crate::encode::{Needs, Reading};
use crate::slab::{NUMBER_BITS, SLOTS_MAX, Slab};
use base::{EventMask, MonoNs, NumberHash, Value};
use circuit::Circuit;
use std::collections::HashMap;

/// The number of a circuit in its [`Server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitId(pub u32);

/// The access rights of a client to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The client may read and subscribe.
    pub read: bool,
    /// The client may write.
    pub write: bool,
}

impl Access {
    /// Reading and subscribing only.
    pub const READ: Self = Self { read: true, write: false };
}

/// A channel opened by the backend.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The backend's identifier of the channel.
    pub handle: u64,
    /// The identifier of its posts. Channels to the same field have the same one.
    pub watch: u64,
    /// Type of its elements on the wire.
    pub native: Basic,
    /// Maximum number of elements.
    pub count: u32,
    /// The access rights of this client.
    pub access: Access,
    /// Posts contain the value of the channel. Otherwise each update is read from the backend.
    pub posted: bool,
    /// The lane that answers for the channel. 0 answers immediately, others later by [`Server::answer`], in order per lane.
    pub lane: u16,
}

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The user name that the client sent.
    pub user: &'a str,
    /// The host name that the client sent; before that its address.
    pub host: &'a str,
    /// The client's network address.
    pub address: &'a str,
}

/// The content of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A value, in the type that the client sent.
    Value(Value),
    /// Transient alarms need acknowledgement, or not.
    AckT(bool),
    /// Acknowledges alarms up to this severity.
    AckS(u16),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The write is complete.
    Done,
    /// The write was refused.
    Failed,
    /// Accepted; [`Server::put_done`] follows. Only for writes with notification.
    Later,
    /// Passed to a lane; [`Server::answer`] follows. Only for a channel with a lane.
    Sent,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Get {
    /// The value was read.
    Done,
    /// Passed to a lane; [`Server::answer`] follows with the value. Only for a channel with a lane, and if a token was given.
    Sent,
}

/// Identifies a request with a pending answer or completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// The tokens of the server are below this number. The backend may use the others for its own requests.
    pub const END: u64 = 1 << (32 + NUMBER_BITS);
}

/// The answer to a request that was [`Get::Sent`] or [`PutOutcome::Sent`].
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// The value, or the error for the client.
    Read(Result<&'a Reading, Eca>),
    /// The result of the write. After `Later`, [`Server::put_done`] must follow.
    Write(PutOutcome),
}

/// The source of the served values. Called from [`Server`]'s methods, so it must not block.
pub trait Backend {
    /// Returns whether a channel with this name can be opened.
    fn exists(&mut self, name: &[u8]) -> bool;
    /// Opens a channel.
    fn open(&mut self, name: &[u8], peer: Peer<'_>) -> Option<Opened>;
    /// The access rights of a client to an open channel. Called again after [`Server::refresh_access`].
    fn access(&mut self, handle: u64, peer: Peer<'_>) -> Access;
    /// The name in error messages about a channel: its record.
    fn record_name(&self, handle: u64) -> &str;
    /// The channel is no longer used.
    fn close(&mut self, handle: u64);
    /// Reads value, alarm and time stamp, and the other data in `needs`. Without a token the answer must be immediate, from the
    /// available data.
    ///
    /// # Errors
    /// The error for the client.
    fn read(&mut self, handle: u64, needs: Needs, reading: &mut Reading, token: Option<Token>) -> Result<Get, Eca>;
    /// Writes a value. With `notify` the client requests a notification when all processing is complete.
    fn write(&mut self, handle: u64, peer: Peer<'_>, write: Write, token: Token, notify: bool) -> PutOutcome;
    /// The completion of a write is no longer needed.
    fn forget(&mut self, token: Token);
    /// A client subscribes; posts are needed from now on. Called once per subscription. Returns whether the current value must be
    /// sent now. If not, it is posted later or filters suppress it.
    fn watch(&mut self, handle: u64) -> bool;
    /// A subscription ended.
    fn unwatch(&mut self, handle: u64);
}

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size in bytes of a received or sent message, including the header.
    pub message_bytes: usize,
    /// Number of unsent bytes of a circuit above which updates replace older ones and requests wait. Each subscription to a single
    /// value adds room for four updates.
    pub out_bytes: usize,
    /// Maximum number of channels of a circuit.
    pub channels: usize,
    /// Maximum number of subscriptions of a circuit.
    pub subscriptions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes: 64 << 20, out_bytes: 64 << 10, channels: 1 << 20, subscriptions: 1 << 20 }
    }
}

/// A server with all its circuits.
#[derive(Default)]
pub struct Server {
    /// The TCP port in search replies over TCP.
    pub tcp_port: u16,
    limits: Limits,
    circuits: Slab<Circuit>,
    /// Subscriptions by the identifier of their posts: circuit and subscription, sorted.
    watchers: HashMap<u64, Vec<(u32, u32)>, NumberHash>,
    /// Circuits with bytes to send or to close; each occurs once.
    touched: Vec<u32>,
    scratch: Reading,
    message: Vec<u8>,
    /// The buffer of a sent large message, reused for the next one.
    spare: Vec<u8>,
    tokens: u32,
    /// The earliest time at which a waiting put may expire.
    next_wait: Option<MonoNs>,
    closed: Counters,
}

impl Server {
    /// A server without circuits. Limits channels and subscriptions to 2²⁰ per circuit.
    #[must_use]
    pub fn new(mut limits: Limits) -> Self {
        limits.channels = limits.channels.min(SLOTS_MAX);
        limits.subscriptions = limits.subscriptions.min(SLOTS_MAX);
        Self { limits, ..Self::default() }
    }

    /// Adds a client that has connected from `address`, which replaces its host name until it sends one. The caller must limit
    /// circuits to fewer than 2²⁰.
    pub fn accept(&mut self, address: &str) -> CircuitId {
        let id = self.circuits.insert(Circuit::new(address));
        self.touch(id);
        CircuitId(id)
    }

    /// The connection has ended: closes its channels and subscriptions.
    pub fn close(&mut self, id: CircuitId, backend: &mut impl Backend) {
        let Some(mut circuit) = self.circuits.remove(id.0) else { return };
        let mut watched = Vec::new();
        for key in circuit.subs.keys() {
            if let Some(sub) = circuit.subs.remove(key) {
                backend.unwatch(sub.handle);
                watched.push(sub.watch);
            }
        }
        watched.sort_unstable();
        watched.dedup();
        watched.into_iter().for_each(|watch| self.unlink(watch, id.0));
        for (token, _) in circuit.puts.drain() {
            backend.forget(Token(token));
        }
        for key in circuit.channels.keys() {
            if let Some(channel) = circuit.channels.remove(key) {
                backend.close(channel.opened.handle);
            }
        }
        self.closed.add(&circuit.counters);
    }

    /// A circuit with bytes to send or to close. Each is returned once until touched again.
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

    /// The unsent bytes of a circuit.
    #[must_use]
    pub fn output(&self, id: CircuitId) -> &[u8] {
        self.circuits.get(id.0).map_or(&[], |circuit| circuit.out.unsent())
    }

    /// Removes the first `len` bytes of the output after they were sent. Then handles requests that waited for room.
    pub fn sent(&mut self, now: MonoNs, id: CircuitId, len: usize, backend: &mut impl Backend) {
        let Some(circuit) = self.circuits.get_mut(id.0) else { return };
        circuit.out.sent(len, &mut self.spare);
        if circuit.out.len() >= circuit.room(&self.limits) / 2 {
            return;
        }
        if circuit.stale > 0 && !circuit.events_off {
            self.refresh(id.0, backend);
        }
        self.resume(now, id, backend);
    }

    /// Returns whether the caller may read from the socket of this circuit.
    #[must_use]
    pub fn wants_input(&self, id: CircuitId) -> bool {
        self.circuits.get(id.0).is_some_and(|circuit| !circuit.closing && !circuit.is_paused(&self.limits))
    }

    /// Returns whether the circuit must be closed when its output is sent.
    #[must_use]
    pub fn is_closing(&self, id: CircuitId) -> bool {
        self.circuits.get(id.0).is_none_or(|circuit| circuit.closing)
    }

    /// The priority that the client requested, 0 to 99.
    #[must_use]
    pub fn priority(&self, id: CircuitId) -> u16 {
        self.circuits.get(id.0).map_or(0, |circuit| circuit.priority)
    }

    /// The circuits, for reports.
    pub fn circuits(&self) -> impl Iterator<Item = (CircuitId, CircuitInfo<'_>)> {
        self.circuits.iter().map(|(id, circuit)| (CircuitId(id), circuit.info()))
    }

    /// All open channels with their clients.
    pub fn channels(&self) -> impl Iterator<Item = (Peer<'_>, Opened)> {
        self.circuits
            .iter()
            .flat_map(|(_, circuit)| circuit.channels.iter().map(|(_, channel)| (circuit.peer(), channel.opened)))
    }

    /// The open channels of a circuit with their client and number of subscriptions.
    pub fn channels_of(&self, id: CircuitId) -> impl Iterator<Item = (Peer<'_>, Opened, usize)> {
        let circuit = self.circuits.get(id.0).into_iter();
        circuit.flat_map(|circuit| circuit.opened().map(|(opened, subs)| (circuit.peer(), opened, subs)))
    }

    /// The sum of the counters of all circuits, including closed ones.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = self.closed;
        self.circuits.iter().for_each(|(_, circuit)| sum.add(&circuit.counters));
        sum
    }

    fn touch(&mut self, id: u32) {
        if let Some(circuit) = self.circuits.get_mut(id)
            && !circuit.touched
        {
            circuit.touched = true;
            self.touched.push(id);
        }
    }

    /// Removes one subscription from the list of a field.
    fn unlink_one(&mut self, watch: u64, id: u32, key: u32) {
        if let Some(list) = self.watchers.get_mut(&watch) {
            if let Ok(place) = list.binary_search(&(id, key)) {
                list.remove(place);
            }
            if list.is_empty() {
                self.watchers.remove(&watch);
            }
        }
    }

    /// Removes subscriptions that no longer exist from the list of a field.
    fn unlink(&mut self, watch: u64, id: u32) {
        if let Some(list) = self.watchers.get_mut(&watch) {
            let circuits = &self.circuits;
            list.retain(|(other, sub)| {
                *other != id || circuits.get(*other).is_some_and(|circuit| circuit.subs.get(*sub).is_some())
            });
            if list.is_empty() {
                self.watchers.remove(&watch);
            }
        }
    }
}

/// A value at the time of its post.
#[derive(Clone, Debug)]
pub struct Post {
    /// The field, as in [`Opened::watch`].
    pub watch: u64,
    /// The kinds of change.
    pub mask: EventMask,
    /// The alarm of the record.
    pub alarm: base::Alarm,
    /// The time stamp of the record.
    pub stamp: base::Stamp,
    /// User tag and alarm message of the record. Only PVAccess sends them.
    pub note: base::Annotation,
    /// The value; used only for channels with [`Opened::posted`].
    pub value: Value,
}

#[cfg(test)]
mod tests;
