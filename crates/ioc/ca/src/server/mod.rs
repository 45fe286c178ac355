//! The server's side: circuits, channels, subscriptions.
//!
//! A [`Server`] holds every circuit of a process. The shell hands in bytes ([`Server::handle_bytes`]),
//! posts ([`Server::post`]) and finished puts ([`Server::put_done`]); afterwards [`Server::poll_touched`]
//! names the circuits that have something to send. Values come from a [`Backend`], which converts nothing.
//!
//! Subscription queues follow EPICS' rule: while a circuit has room each update is queued; short of room
//! the newest replaces the last queued of its subscription, and both server and circuit count it.

mod answer;
mod circuit;
mod handle;
mod post;
mod subscribe;

pub use circuit::{CircuitInfo, Counters};

use crate::dbr::Basic;
use crate::eca::Eca;
use crate::encode::{Needs, Reading};
use crate::slab::{SLOTS_MAX, Slab};
use base::{EventMask, MonoNs, NumberHash, Value};
use circuit::Circuit;
use std::collections::HashMap;

/// A circuit's number in its [`Server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CircuitId(pub u32);

/// What a client may do with a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// May read and subscribe.
    pub read: bool,
    /// May write.
    pub write: bool,
}

/// A channel as the backend sees it.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The backend's own name for the channel.
    pub handle: u64,
    /// Under which name its posts come; channels to the same field share it.
    pub watch: u64,
    /// Type of its elements on the wire.
    pub native: Basic,
    /// Most elements that it can have.
    pub count: u32,
    /// What this client may do.
    pub access: Access,
    /// Whether a post's value is the channel's value. If not, each update is read from the backend.
    pub posted: bool,
    /// Who answers for the channel: 0 at once, others later by [`Server::answer`], each in the order of what was asked.
    pub lane: u16,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The user's name, as the client says.
    pub user: &'a str,
    /// The host's name, as the client says; its address until it does.
    pub host: &'a str,
    /// The address from which it is connected.
    pub address: &'a str,
}

/// What a client writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A value, in the type that the client sent.
    Value(Value),
    /// Whether transient alarms need acknowledgement.
    AckT(bool),
    /// Acknowledge alarms up to this severity.
    AckS(u16),
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// Done.
    Done,
    /// Refused.
    Failed,
    /// Taken; [`Server::put_done`] follows. Only for writes whose end is awaited.
    Later,
    /// Handed on; [`Server::answer`] says how it went. Only from a channel with a lane.
    Sent,
}

/// How a reading went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Get {
    /// Done.
    Done,
    /// Handed on; [`Server::answer`] brings the value. Only from a channel with a lane, and where a token was given.
    Sent,
}

/// Names a request whose answer or end is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What became of a request that was [`Get::Sent`] or [`Put::Sent`].
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// The value, or what the client is told instead.
    Read(Result<&'a Reading, Eca>),
    /// How the write went; `Later` promises [`Server::put_done`].
    Write(Put),
}

/// What a server serves. Calls come from within [`Server`]'s methods and must not block.
pub trait Backend {
    /// Whether a channel of this name could be opened.
    fn exists(&mut self, name: &[u8]) -> bool;
    /// Opens a channel.
    fn open(&mut self, name: &[u8], peer: Peer<'_>) -> Option<Opened>;
    /// What a client may do with an open channel, asked again after [`Server::refresh_access`].
    fn access(&mut self, handle: u64, peer: Peer<'_>) -> Access;
    /// What errors about a channel name: its record.
    fn record_name(&self, handle: u64) -> &str;
    /// A channel is no longer used.
    fn close(&mut self, handle: u64);
    /// Reads value, alarm and stamp, and as much of the rest as is needed. Without a token the answer is given at once,
    /// from what is at hand.
    ///
    /// # Errors
    /// What the client is told.
    fn read(&mut self, handle: u64, needs: Needs, reading: &mut Reading, token: Option<Token>) -> Result<Get, Eca>;
    /// Writes; with `notify` the client wants to know when all that follows from it is done.
    fn write(&mut self, handle: u64, peer: Peer<'_>, write: Write, token: Token, notify: bool) -> Put;
    /// The end of a write is no longer awaited.
    fn forget(&mut self, token: Token);
    /// Somebody subscribes: posts are wanted from now on. Called once per subscription. Says whether the current value is
    /// to be sent now; else it is posted, or held back by filters.
    fn watch(&mut self, handle: u64) -> bool;
    /// A subscription ended.
    fn unwatch(&mut self, handle: u64);
}

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest message that is taken or sent, header included.
    pub message_bytes: usize,
    /// Unsent bytes of a circuit above which updates replace each other and requests wait, besides four updates of
    /// each subscription to a single value.
    pub out_bytes: usize,
    /// Channels of a circuit.
    pub channels: usize,
    /// Subscriptions of a circuit.
    pub subscriptions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes: 64 << 20, out_bytes: 64 << 10, channels: 1 << 20, subscriptions: 1 << 20 }
    }
}

/// Everything that is served over circuits.
#[derive(Default)]
pub struct Server {
    /// Port that search replies over TCP name.
    pub tcp_port: u16,
    limits: Limits,
    circuits: Slab<Circuit>,
    /// Subscriptions by the name under which posts come: circuit and subscription, in this order.
    watchers: HashMap<u64, Vec<(u32, u32)>, NumberHash>,
    /// Circuits with something to send or to close, each once.
    touched: Vec<u32>,
    scratch: Reading,
    message: Vec<u8>,
    /// Memory of a large message that was sent, for the next.
    spare: Vec<u8>,
    tokens: u32,
    /// When the first circuit may have waited long enough for a put; at the latest then.
    next_wait: Option<MonoNs>,
    closed: Counters,
}

impl Server {
    /// A server without circuits. At most 2²⁰ channels and as many subscriptions of a circuit are served.
    #[must_use]
    pub fn new(mut limits: Limits) -> Self {
        limits.channels = limits.channels.min(SLOTS_MAX);
        limits.subscriptions = limits.subscriptions.min(SLOTS_MAX);
        Self { limits, ..Self::default() }
    }

    /// A client has connected from `address`, which stands for its host until it gives a name. The caller keeps fewer than
    /// 2²⁰ circuits.
    pub fn accept(&mut self, address: &str) -> CircuitId {
        let id = self.circuits.insert(Circuit::new(address));
        self.touch(id);
        CircuitId(id)
    }

    /// The connection is gone: channels are closed, subscriptions ended.
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

    /// A circuit that has something to send or wants to be closed; each is named once until touched again.
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

    /// What waits to be sent on a circuit.
    #[must_use]
    pub fn output(&self, id: CircuitId) -> &[u8] {
        self.circuits.get(id.0).map_or(&[], |circuit| circuit.out.unsent())
    }

    /// The first `len` bytes of the output have been sent. Requests that waited for room are then handled.
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

    /// Whether the shell may read from this circuit's socket now.
    #[must_use]
    pub fn wants_input(&self, id: CircuitId) -> bool {
        self.circuits.get(id.0).is_some_and(|circuit| !circuit.closing && !circuit.is_paused(&self.limits))
    }

    /// Whether the circuit is to be closed once its output is sent.
    #[must_use]
    pub fn is_closing(&self, id: CircuitId) -> bool {
        self.circuits.get(id.0).is_none_or(|circuit| circuit.closing)
    }

    /// The priority that the client asked for, 0 to 99.
    #[must_use]
    pub fn priority(&self, id: CircuitId) -> u16 {
        self.circuits.get(id.0).map_or(0, |circuit| circuit.priority)
    }

    /// The circuits, for reports.
    pub fn circuits(&self) -> impl Iterator<Item = (CircuitId, CircuitInfo<'_>)> {
        self.circuits.iter().map(|(id, circuit)| (CircuitId(id), circuit.info()))
    }

    /// All open channels: who has them, and the backend's name for each.
    pub fn channels(&self) -> impl Iterator<Item = (Peer<'_>, Opened)> {
        self.circuits
            .iter()
            .flat_map(|(_, circuit)| circuit.channels.iter().map(|(_, channel)| (circuit.peer(), channel.opened)))
    }

    /// A circuit's open channels: who has them, the backend's name for each and the number of its subscriptions.
    pub fn channels_of(&self, id: CircuitId) -> impl Iterator<Item = (Peer<'_>, Opened, usize)> {
        let circuit = self.circuits.get(id.0).into_iter();
        circuit.flat_map(|circuit| circuit.opened().map(|(opened, subs)| (circuit.peer(), opened, subs)))
    }

    /// Counters of all circuits, past ones included.
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

    /// Takes one subscription out of the list of a field.
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

    /// Takes subscriptions that are no longer there out of the list of a field.
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

/// A value at the moment when its record posted it.
#[derive(Clone, Debug)]
pub struct Post {
    /// The field, as in [`Opened::watch`].
    pub watch: u64,
    /// What happened to it.
    pub mask: EventMask,
    /// Its record's alarm.
    pub alarm: base::Alarm,
    /// Its record's time stamp.
    pub stamp: base::Stamp,
    /// Its value; looked at only where [`Opened::posted`].
    pub value: Value,
}

#[cfg(test)]
mod tests;
