//! The server's side: connections, channels and operations.
//!
//! A [`Server`] contains all connections of a process. The caller passes in received bytes ([`Server::handle_bytes`]), posts
//! ([`Server::post`]), answers ([`Server::answer`]) and completed writes ([`Server::put_done`]). [`Server::poll_touched`] then
//! returns the connections with bytes to send. Values come from a [`Source`].
//!
//! While a connection has room, each update of a monitor is sent at once. Without room, or if the client's window is closed,
//! updates wait in the monitor's queue. If the queue is full, an update replaces the newest one in it, and the fields that
//! were replaced are marked as overrun.

mod conn;
mod handle;
mod monitor;
mod ops;
mod rpc;
mod structure;

#[cfg(test)]
mod tests;

use crate::codec::{Mask, Order, Status, Struct, Type, Writer};
use crate::nt::{Hints, Layout, Shape, View, Written};
use crate::search::{Identity, SearchCounters};
use crate::wire;
use base::{Alarm, Annotation, DurNs, EventMask, MonoNs, NumberHash, Stamp, Value};
use conn::Conn;
use std::collections::HashMap;
use std::sync::Arc;

pub use structure::{Options, Snapshot, StructureGet};

/// The number of a connection in its [`Server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// The access rights of a client to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The client may read and subscribe.
    pub read: bool,
    /// The client may write.
    pub write: bool,
}

/// A channel opened by the source.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The source's identifier of the channel.
    pub handle: u64,
    /// The identifier of its posts. Channels to the same field have the same one.
    pub watch: u64,
    /// Its shape. For [`Shape::Structure`], [`Source::structure`] returns the type.
    pub shape: Shape,
    /// The access rights of this client.
    pub access: Access,
}

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// The account that the client sent, as access security uses it.
    pub user: &'a str,
    /// The client's network address and port.
    pub address: &'a str,
}

/// Identifies a request with a pending answer or completion. Below 2⁶¹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The result of a read.
#[derive(Clone, Copy, Debug)]
pub enum Get<'a> {
    /// The value.
    Done(View<'a>),
    /// [`Server::answer`] follows.
    Sent,
    /// The value cannot be read.
    Failed,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// The write is complete.
    Done,
    /// The write was refused, with the reason.
    Failed(String),
    /// Accepted; [`Server::put_done`] follows.
    Later,
    /// [`Server::written`] follows.
    Sent,
}

/// What a client writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A value. It processes the record as a write over Channel Access does.
    Value(Written),
    /// Fields of a structure.
    Structure {
        /// The fields.
        marks: Mask,
        /// A value of the whole type.
        value: crate::codec::Value,
        /// The request of the client.
        options: Options,
    },
    /// A value. Whether it processes the record is given.
    ValueAs(Written, bool),
    /// Processes the record.
    Process,
}

/// A value with its type: the argument or the result of a call.
pub type Typed = (Type, crate::codec::Value);

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// The result.
    Done(Typed),
    /// [`Server::answer_call`] follows.
    Sent,
    /// The call failed or was refused. The client receives this status.
    Failed(Status),
}

/// The source of the served values. Called from [`Server`]'s methods, so it must not block.
pub trait Source {
    /// Returns whether a channel with this name can be opened.
    fn exists(&mut self, name: &[u8]) -> bool;
    /// Opens a channel.
    fn open(&mut self, name: &[u8], peer: Peer<'_>) -> Option<Opened>;
    /// The access rights of a client to an open channel.
    fn access(&mut self, handle: u64, peer: Peer<'_>) -> Access;
    /// The channel is no longer used.
    fn close(&mut self, handle: u64);
    /// Reads the field, if `properties` is set with its properties. Without a token the answer must be immediate, from the
    /// available data.
    fn read(&mut self, handle: u64, properties: bool, token: Option<Token>) -> Get<'_>;
    /// How the field of an open channel is shown.
    fn hints(&self, handle: u64) -> Hints {
        let _ = handle;
        Hints::NONE
    }
    /// The type of an open channel that is no record's field.
    fn structure(&self, handle: u64) -> Option<Arc<Struct>> {
        let _ = handle;
        None
    }
    /// Reads a structure that is no record's field.
    fn read_structure(&mut self, handle: u64, options: Options, token: Token) -> StructureGet {
        let _ = (handle, options, token);
        StructureGet::Failed(Status::error("the source has no structures"))
    }
    /// Whether an open channel is a function that clients can call.
    fn is_function(&self, handle: u64) -> bool {
        let _ = handle;
        false
    }
    /// Calls a function for a client that may read the channel.
    fn call(&mut self, handle: u64, peer: Peer<'_>, argument: Option<Typed>, token: Token) -> Call {
        let _ = (handle, peer, argument, token);
        Call::Failed(Status::error("the source has no functions"))
    }
    /// Warnings about the last write for its client.
    fn take_warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Writes. With `wait` the client requests the answer when all processing is complete.
    fn write(&mut self, handle: u64, peer: Peer<'_>, write: Write, token: Token, wait: bool) -> Put;
    /// The completion of a write, or the result of a call, is no longer needed.
    fn forget(&mut self, token: Token);
    /// A client subscribes; posts are needed from now on. Called once per monitor.
    fn watch(&mut self, handle: u64);
    /// A monitor ended.
    fn unwatch(&mut self, handle: u64);
    /// The names of all channels.
    fn names(&self) -> Vec<String>;
}

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size in bytes of a received message.
    pub message_bytes: usize,
    /// Number of unsent bytes of a connection above which updates and requests wait.
    pub out_bytes: usize,
    /// Maximum number of channels of a connection.
    pub channels: usize,
    /// Maximum number of operations of a connection.
    pub operations: usize,
    /// Maximum number of updates in the queue of a monitor.
    pub queue: usize,
    /// Maximum number of bytes of the values in all queues of a connection. Beyond it each monitor keeps its newest update.
    pub queued_bytes: usize,
    /// A connection without received bytes for this time is closed.
    pub quiet_max: DurNs,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            out_bytes: 64 << 10,
            channels: 1 << 17,
            operations: 1 << 17,
            queue: 64,
            queued_bytes: 4 << 20,
            quiet_max: DurNs::from_secs(40),
        }
    }
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of sent updates.
    pub updates: u64,
    /// Number of updates that were replaced by newer ones before they were sent.
    pub replaced: u64,
    /// Number of connections closed because of invalid bytes.
    pub faults: u64,
    /// Number of requests refused because of a limit.
    pub refused: u64,
}

/// A client in a report.
#[derive(Clone, Debug)]
pub struct ClientInfo<'a> {
    /// The client's network address and port.
    pub address: &'a str,
    /// The account that the client sent.
    pub user: &'a str,
    /// The handles of its channels, with their numbers of monitors.
    pub channels: Vec<(u64, usize)>,
    /// Number of operations.
    pub operations: usize,
    /// Number of bytes that wait to be sent.
    pub unsent: usize,
}

/// A value at the time of its post.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// The field, as in [`Opened::watch`].
    pub watch: u64,
    /// The kinds of change.
    pub mask: EventMask,
    /// The alarm of the record.
    pub alarm: Alarm,
    /// The time stamp of the record.
    pub stamp: Stamp,
    /// The record's user tag and alarm message.
    pub note: Annotation,
    /// The value.
    pub value: &'a Value,
}

/// A server with all its connections.
pub struct Server {
    /// The identity in answers to searches over TCP.
    pub identity: Identity,
    /// Counters of names searched over TCP.
    pub searches: SearchCounters,
    /// Counters of all connections.
    pub counters: Counters,
    limits: Limits,
    conns: HashMap<u32, Conn, NumberHash>,
    next_id: u32,
    /// Monitors by the identifier of their posts: connection and operation.
    watchers: HashMap<u64, Vec<(u32, u32)>, NumberHash>,
    /// Connections with bytes to send or to close; each occurs once.
    touched: Vec<u32>,
    layouts: HashMap<Shape, Arc<Layout>>,
    /// The encoded fields of the current post and what they are. They are the same for all clients.
    shared: Writer,
    next_check: Option<MonoNs>,
}

impl Server {
    /// A server without connections.
    #[must_use]
    pub fn new(limits: Limits, identity: Identity) -> Self {
        Self {
            identity,
            searches: SearchCounters::default(),
            counters: Counters::default(),
            limits,
            conns: HashMap::default(),
            next_id: 0,
            watchers: HashMap::default(),
            touched: Vec::new(),
            layouts: HashMap::new(),
            shared: Writer::new(Order::Little),
            next_check: None,
        }
    }

    /// Adds a client that has connected from `address`.
    pub fn accept(&mut self, now: MonoNs, address: &str) -> ConnId {
        // Numbers are below 2²⁹, so that tokens are below 2⁶¹.
        while self.conns.contains_key(&self.next_id) {
            self.next_id = (self.next_id + 1) & 0x1FFF_FFFF;
        }
        let id = self.next_id;
        self.next_id = (self.next_id + 1) & 0x1FFF_FFFF;
        let conn = Conn::new(now, address, &self.limits);
        self.next_check.get_or_insert(now + self.limits.quiet_max);
        self.conns.insert(id, conn);
        self.touch(id);
        ConnId(id)
    }

    /// The connection has ended: closes its channels and operations.
    pub fn close(&mut self, id: ConnId, source: &mut impl Source) {
        let Some(mut conn) = self.conns.remove(&id.0) else { return };
        let ops: Vec<u32> = conn.ops.keys().copied().collect();
        ops.into_iter().for_each(|ioid| conn.end_op(id.0, ioid, &mut self.watchers, source));
        conn.channels.values().for_each(|channel| source.close(channel.opened.handle));
    }

    /// A connection with bytes to send or to close. Each is returned once until touched again.
    #[must_use]
    pub fn poll_touched(&mut self) -> Option<ConnId> {
        while let Some(id) = self.touched.pop() {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.touched = false;
                return Some(ConnId(id));
            }
        }
        None
    }

    /// The unsent bytes of a connection.
    #[must_use]
    pub fn output(&self, id: ConnId) -> &[u8] {
        self.conns.get(&id.0).map_or(&[], |conn| conn.unsent())
    }

    /// Removes the first `len` bytes of the output after they were sent. Then sends updates and handles requests that waited.
    pub fn sent(&mut self, now: MonoNs, id: ConnId, len: usize, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id.0) else { return };
        conn.take_sent(len);
        self.flush_monitors(id.0, source);
        self.resume(now, id.0, source);
    }

    /// Returns whether the caller may read from the socket of this connection.
    #[must_use]
    pub fn wants_input(&self, id: ConnId) -> bool {
        self.conns.get(&id.0).is_some_and(|conn| !conn.closing && conn.has_room(&self.limits))
    }

    /// Returns whether the connection must be closed when its output is sent.
    #[must_use]
    pub fn is_closing(&self, id: ConnId) -> bool {
        self.conns.get(&id.0).is_none_or(|conn| conn.closing)
    }

    /// Number of connections, channels and operations, for reports.
    #[must_use]
    pub fn size(&self) -> (usize, usize, usize) {
        let sum = |of: fn(&Conn) -> usize| self.conns.values().map(of).sum();
        (self.conns.len(), sum(|conn| conn.channels.len()), sum(|conn| conn.ops.len()))
    }

    /// The clients, for reports, in the order of their addresses.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientInfo<'_>> {
        let mut clients: Vec<ClientInfo<'_>> = self.conns.values().map(Conn::info).collect();
        clients.sort_unstable_by_key(|client| client.address);
        clients
    }

    /// The time of the next call to [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<MonoNs> {
        self.next_check
    }

    /// Closes connections that have been silent too long.
    pub fn handle_timeout(&mut self, now: MonoNs) {
        if self.next_check.is_none_or(|at| at > now) {
            return;
        }
        let quiet = self.limits.quiet_max;
        let late: Vec<u32> =
            self.conns.iter().filter(|(_, conn)| conn.heard + quiet <= now).map(|(id, _)| *id).collect();
        for id in late {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.abandon();
            }
            self.touch(id);
        }
        // One that closes still waits until its output is sent.
        let open = self.conns.values().filter(|conn| !conn.closing || !conn.unsent().is_empty());
        self.next_check = open.map(|conn| conn.heard + quiet).min();
    }

    /// The channels for which `gone` returns true no longer exist. Their clients are notified and search again.
    pub fn drop_channels(&mut self, gone: impl Fn(u64) -> bool, source: &mut impl Source) {
        let ids: Vec<u32> = self.conns.keys().copied().collect();
        for id in ids {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            let dead = conn.channels.iter().filter(|(_, channel)| gone(channel.opened.handle));
            let dead: Vec<u32> = dead.map(|(sid, _)| *sid).collect();
            if dead.is_empty() {
                continue;
            }
            for sid in dead {
                conn.destroy_channel(id, sid, &mut self.watchers, source);
            }
            self.touch(id);
        }
    }

    /// Asks the source for the access rights again. Clients receive those that changed. A monitor whose client may no longer
    /// read ends with an error.
    pub fn refresh_access(&mut self, source: &mut impl Source) {
        let ids: Vec<u32> = self.conns.keys().copied().collect();
        ids.into_iter().for_each(|id| self.refresh_access_of(id, source));
    }

    fn refresh_access_of(&mut self, id: u32, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        for ioid in conn.refresh_access(source) {
            self.finish(id, ioid, wire::sub::DESTROY, &Status::error(ops::NO_READ), source);
        }
        self.touch(id);
    }

    fn layout(&mut self, opened: &Opened, source: &impl Source) -> Arc<Layout> {
        let (shape, layouts) = (opened.shape, &mut self.layouts);
        match source.structure(opened.handle).filter(|_| shape == Shape::Structure) {
            Some(ty) => Arc::new(Layout::of_structure(ty)),
            None => layouts.entry(shape).or_insert_with(|| Arc::new(Layout::new(shape))).clone(),
        }
    }

    fn touch(&mut self, id: u32) {
        if let Some(conn) = self.conns.get_mut(&id)
            && !conn.touched
        {
            conn.touched = true;
            self.touched.push(id);
        }
    }
}

/// Removes a monitor from the list of a field.
fn unlink(watchers: &mut HashMap<u64, Vec<(u32, u32)>, NumberHash>, watch: u64, monitor: (u32, u32)) {
    if let Some(list) = watchers.get_mut(&watch) {
        if let Ok(place) = list.binary_search(&monitor) {
            list.remove(place);
        }
        if list.is_empty() {
            watchers.remove(&watch);
        }
    }
}
