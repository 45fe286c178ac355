//! The circuit of one client: its channels, subscriptions and unsent messages.

use super::{Limits, Opened, Peer};
use crate::buffer::Out;
use crate::dbr::Dbr;
use crate::eca::Eca;
use crate::encode::Needs;
use crate::slab::Slab;
use crate::wire::{Header, MESSAGE_BYTES, MINOR, command, padded};
use base::{EventMask, MonoNs};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Maximum time that a put-callback delays the next one on its channel, as in EPICS (60 s).
pub(super) const PUT_WAIT_NS: i64 = 60_000_000_000;

/// Counters of a server or a circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received.
    pub requests: u64,
    /// Updates queued.
    pub updates: u64,
    /// Updates that replaced an older one of the same subscription.
    pub replaced: u64,
    /// Errors sent.
    pub errors: u64,
}

impl Counters {
    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.updates += other.updates;
        self.replaced += other.replaced;
        self.errors += other.errors;
    }
}

/// The state of a circuit, for reports.
#[derive(Clone, Copy, Debug)]
pub struct CircuitInfo<'a> {
    /// The user name that the client sent.
    pub user: &'a str,
    /// The host name that the client sent.
    pub host: &'a str,
    /// The client's network address.
    pub address: &'a str,
    /// Priority, 0 to 99.
    pub priority: u16,
    /// The client's minor version of the protocol.
    pub minor: u16,
    /// Number of open channels.
    pub channels: usize,
    /// Number of subscriptions.
    pub subscriptions: usize,
    /// Number of unsent bytes.
    pub unsent: usize,
    /// The client has suspended updates.
    pub events_off: bool,
    /// Counters.
    pub counters: Counters,
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) cid: u32,
    pub(super) opened: Opened,
    /// The put-callback in progress.
    pub(super) put: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Sub {
    pub(super) id: u32,
    pub(super) sid: u32,
    pub(super) handle: u64,
    pub(super) watch: u64,
    pub(super) dbr: Dbr,
    pub(super) count: u32,
    pub(super) mask: EventMask,
    pub(super) readable: bool,
    /// Posts contain the value of the channel.
    pub(super) posted: bool,
    pub(super) needs: Needs,
    /// Position of its last update in the stream.
    pub(super) last: u64,
    pub(super) last_len: usize,
    /// The value must be read again and sent when there is room.
    pub(super) stale: bool,
    /// The newest update while the client has suspended updates.
    pub(super) held: Vec<u8>,
    /// The room in bytes that it adds to the queue of its circuit.
    pub(super) queue: usize,
}

impl Sub {
    /// Returns whether its last update is unsent.
    fn is_waiting(&self, out: &Out) -> bool {
        self.last_len > 0 && out.is_waiting(self.last)
    }
}

/// Maximum number of queued updates of one subscription, as in EPICS.
const QUEUE_UPDATES: usize = 4;
/// Maximum size of a queued update in bytes. Larger updates contain arrays, which EPICS does not queue either.
const QUEUED_BYTES_MAX: usize = 512;

/// The room that a subscription with updates of `message_bytes` adds to the queue of its circuit.
pub(super) const fn queue_bytes(message_bytes: usize) -> usize {
    if message_bytes > QUEUED_BYTES_MAX { 0 } else { QUEUE_UPDATES * message_bytes }
}

/// A write with pending completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWrite {
    pub(super) channel: u32,
    pub(super) header: Header,
}

/// A pending answer of a lane to a circuit.
#[derive(Clone, Copy, Debug)]
pub(super) enum PendingReply {
    Get {
        header: Header,
        dbr: Dbr,
    },
    /// A value for a subscription.
    Update {
        sub: u32,
    },
    Put {
        header: Header,
    },
}

/// Maximum number of pending answers of a circuit. Further requests wait.
pub(super) const OWED_MAX: usize = 256;

/// The reason why the next message has to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) channel: u32,
    pub(super) until: MonoNs,
}

#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) user: String,
    pub(super) host: String,
    pub(super) address: String,
    pub(super) minor: u16,
    pub(super) priority: u16,
    pub(super) channels: Slab<Channel>,
    pub(super) subs: Slab<Sub>,
    /// The subscriptions by channel and client's number, for fast lookup among very many.
    pub(super) subs_of: BTreeSet<(u32, u32, u32)>,
    pub(super) puts: HashMap<u64, PendingWrite>,
    pub(super) input: Vec<u8>,
    /// Number of bytes of a too large message that are still to be discarded.
    pub(super) skip: usize,
    pub(super) out: Out,
    /// Room for updates in addition to the common limit: the queues of all subscriptions.
    pub(super) queues: usize,
    /// Number of subscriptions that must be read again.
    pub(super) stale: usize,
    pub(super) events_off: bool,
    pub(super) wait: Option<Wait>,
    /// The requests that `lane` has not answered, oldest first. Meanwhile only requests to the same lane are accepted, which keeps
    /// the answers in the order of the requests.
    pub(super) owed: VecDeque<(u64, PendingReply)>,
    pub(super) lane: u16,
    /// The next message waits for the answers in `owed`.
    pub(super) blocked: bool,
    pub(super) closing: bool,
    pub(super) touched: bool,
    pub(super) counters: Counters,
}

impl Circuit {
    pub(super) fn new(address: &str) -> Self {
        let mut circuit = Self {
            user: String::new(),
            host: address.to_owned(),
            address: address.to_owned(),
            minor: 0,
            priority: 0,
            channels: Slab::default(),
            subs: Slab::default(),
            subs_of: BTreeSet::new(),
            puts: HashMap::new(),
            input: Vec::new(),
            skip: 0,
            out: Out::default(),
            queues: 0,
            stale: 0,
            events_off: false,
            wait: None,
            owed: VecDeque::new(),
            lane: 0,
            blocked: false,
            closing: false,
            touched: false,
            counters: Counters::default(),
        };
        circuit.send(Header::bare(command::VERSION, 0, MINOR as u32, 0, 0));
        circuit
    }

    /// The subscriptions to a channel: all, or those with one number of the client.
    pub(super) fn subs_of(&self, sid: u32, id: Option<u32>) -> impl Iterator<Item = u32> {
        let (first, last) = id.map_or((0, u32::MAX), |id| (id, id));
        self.subs_of.range((sid, first, 0)..=(sid, last, u32::MAX)).map(|(_, _, key)| *key)
    }

    /// Removes a subscription.
    pub(super) fn remove_sub(&mut self, key: u32) -> Option<Sub> {
        let sub = self.subs.remove(key)?;
        self.subs_of.remove(&(sub.sid, sub.id, key));
        self.stale -= usize::from(sub.stale);
        self.queues -= sub.queue;
        Some(sub)
    }

    /// The client at the other end.
    pub(super) fn peer(&self) -> Peer<'_> {
        Peer { user: &self.user, host: &self.host, address: &self.address }
    }

    pub(super) fn info(&self) -> CircuitInfo<'_> {
        CircuitInfo {
            user: &self.user,
            host: &self.host,
            address: &self.address,
            priority: self.priority,
            minor: self.minor,
            channels: self.channels.len(),
            subscriptions: self.subs.len(),
            unsent: self.out.len(),
            events_off: self.events_off,
            counters: self.counters,
        }
    }

    /// The open channels, each with the number of its subscriptions.
    pub(super) fn opened(&self) -> impl Iterator<Item = (Opened, usize)> {
        self.channels.iter().map(|(sid, channel)| (channel.opened, self.subs_of(sid, None).count()))
    }

    /// Returns whether requests must wait.
    pub(super) fn is_paused(&self, limits: &Limits) -> bool {
        self.wait.is_some() || self.blocked || self.out.len() >= self.room(limits)
    }

    /// Number of unsent bytes above which requests wait and updates replace older ones.
    pub(super) const fn room(&self, limits: &Limits) -> usize {
        limits.out_bytes + self.queues
    }

    /// If `len` exceeds the maximum size of a valid message of this kind, returns that size. Such a message is not buffered.
    pub(super) fn too_large(&self, len: usize, header: &Header, limits: &Limits) -> Option<usize> {
        if len <= MESSAGE_BYTES.min(limits.message_bytes) {
            return None;
        }
        let value = match header.command {
            command::WRITE | command::WRITE_NOTIFY => {
                let channel = self.channels.get(header.p1).zip(Dbr::from_wire(header.kind));
                channel.map_or(0, |(channel, dbr)| dbr.size(channel.opened.count))
            }
            _ => 0,
        };
        Some(value.saturating_add(MESSAGE_BYTES).min(limits.message_bytes)).filter(|most| len > *most)
    }

    /// Returns whether a request must wait for the pending answers.
    pub(super) fn must_wait(&self, request: &Header) -> bool {
        if self.owed.is_empty() {
            return false;
        }
        let lane = match request.command {
            command::READ | command::READ_NOTIFY | command::WRITE | command::WRITE_NOTIFY | command::EVENT_ADD => {
                self.channels.get(request.p1).map_or(0, |channel| channel.opened.lane)
            }
            _ => 0,
        };
        lane != self.lane || self.owed.len() >= OWED_MAX
    }

    /// Records a pending answer.
    pub(super) fn owe(&mut self, lane: u16, token: u64, owed: PendingReply) {
        self.lane = lane;
        self.owed.push_back((token, owed));
    }

    /// Queues a message without payload.
    pub(super) fn send(&mut self, header: Header) {
        header.write(self.out.vec());
    }

    /// Queues an error message about `request`.
    pub(super) fn send_error(&mut self, request: &Header, status: Eca, text: &str) {
        let cid = match request.command {
            command::EVENT_ADD
            | command::EVENT_CANCEL
            | command::READ
            | command::READ_NOTIFY
            | command::WRITE
            | command::WRITE_NOTIFY => self.channels.get(request.p1).map_or(u32::MAX, |channel| channel.cid),
            command::SEARCH => request.p1,
            _ => u32::MAX,
        };
        let text = &text.as_bytes()[..text.len().min(400)];
        let inner = if request.is_wide() { 24 } else { 16 };
        let size = padded(inner + text.len() + 1);
        let out = self.out.vec();
        Header { command: command::ERROR, size: size as u32, kind: 0, count: 0, p1: cid, p2: status.0 }.write(out);
        request.write(out);
        out.extend_from_slice(text);
        out.resize(out.len() + size - inner - text.len(), 0);
        self.counters.errors += 1;
    }

    /// Queues an update of a subscription by EPICS' rule. `message` is complete except for the number of the subscription.
    pub(super) fn push_update(&mut self, index: u32, message: &[u8], limits: &Limits) {
        let Some(sub) = self.subs.get_mut(index) else { return };
        self.counters.updates += 1;
        if sub.stale {
            self.counters.replaced += 1;
            return;
        }
        // As in EPICS, arrays are not queued. When there is room again, the client receives the array of that time.
        let large = message.len() > QUEUED_BYTES_MAX;
        if self.events_off && !large {
            self.counters.replaced += u64::from(!sub.held.is_empty());
            sub.held.clear();
            sub.held.extend_from_slice(message);
            sub.held[12..16].copy_from_slice(&sub.id.to_be_bytes());
            return;
        }
        let full = self.out.len() >= limits.out_bytes + self.queues;
        let waiting = if full { self.out.waiting(sub.last, sub.last_len) } else { None };
        if let Some(waiting) = waiting.filter(|waiting| waiting.len() == message.len()) {
            self.counters.replaced += 1;
            waiting.copy_from_slice(message);
            waiting[12..16].copy_from_slice(&sub.id.to_be_bytes());
            return;
        }
        if self.events_off || (full && (large || sub.is_waiting(&self.out))) {
            self.counters.replaced += 1;
            sub.stale = true;
            self.stale += 1;
            return;
        }
        sub.last = self.out.end();
        sub.last_len = message.len();
        let out = self.out.vec();
        let start = out.len();
        out.extend_from_slice(message);
        out[start + 12..start + 16].copy_from_slice(&sub.id.to_be_bytes());
    }

    /// Queues the updates that were held while the client had suspended updates.
    pub(super) fn release_held(&mut self) {
        for index in self.subs.keys() {
            if let Some(sub) = self.subs.get_mut(index)
                && !sub.held.is_empty()
            {
                let held = std::mem::take(&mut sub.held);
                sub.last = self.out.end();
                sub.last_len = held.len();
                self.out.vec().extend_from_slice(&held);
            }
        }
    }
}
