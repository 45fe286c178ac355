//! The connection of one client: its channels, operations and unsent bytes.

use super::monitor::Monitor;
use super::structure::StructureOp;
use super::{Access, ClientInfo, Limits, Opened, Peer, Source, Token, Write, unlink};
use crate::codec::{Order, SentTypes, Status, TypeTable, Writer};
use crate::nt::{Hints, Layout};
use crate::wire::{self, Inbox, Side, command, right};
use base::{MonoNs, NumberHash};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A channel that a client has open.
pub(super) struct Channel {
    pub(super) cid: u32,
    pub(super) opened: Opened,
    pub(super) layout: Arc<Layout>,
    pub(super) hints: Hints,
    pub(super) is_function: bool,
}

impl Channel {
    /// The rights of the client that it can be told, see [`right`].
    pub(super) const fn rights(&self) -> u8 {
        let Access { read, write } = self.opened.access;
        let put = if write { right::PUT | right::PUT_GET } else { 0 };
        put | if read && self.is_function { right::RPC } else { 0 }
    }
}

/// Appends the rights of a client to a channel.
pub(super) fn announce(out: &mut Writer, cid: u32, rights: u8) {
    wire::message(out, Side::Server, command::ACL_CHANGE, |out| {
        out.u32(cid);
        out.u8(rights);
    });
}

/// An operation on a channel.
pub(super) struct Op {
    pub(super) sid: u32,
    pub(super) kind: OpKind,
    /// The request that is being executed.
    pub(super) busy: Option<Busy>,
    /// Writes that wait for the one that is being executed, with their sub-commands.
    pub(super) later: VecDeque<(Write, u8)>,
    /// The fields that the client selected.
    pub(super) select: u64,
    /// Only for structures that are no field.
    pub(super) structure: Option<Box<StructureOp>>,
}

pub(super) enum OpKind {
    Get,
    /// A write, with whether its answer waits for the end of processing, and whether it processes the record instead of
    /// what the record specifies.
    Put {
        wait: bool,
        process: Option<bool>,
    },
    /// A write, and a read after it.
    PutGet {
        wait: bool,
        process: Option<bool>,
    },
    Process {
        wait: bool,
    },
    Monitor(Box<Monitor>),
    /// Calls of a channel that is a function.
    Call,
}

/// A request with a pending answer.
#[derive(Clone, Copy)]
pub(super) struct Busy {
    pub(super) token: Token,
    /// The sub-command of the request.
    pub(super) sub: u8,
    pub(super) step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Read,
    Write,
    /// The first update of a monitor.
    First,
    Call,
}

pub(super) struct Conn {
    pub(super) out: Writer,
    /// Number of bytes of `out` that were sent.
    head: usize,
    pub(super) inbox: Inbox,
    pub(super) received: TypeTable,
    pub(super) sent: SentTypes,
    pub(super) channels: HashMap<u32, Channel, NumberHash>,
    pub(super) next_sid: u32,
    pub(super) ops: HashMap<u32, Op, NumberHash>,
    /// Open channels of the name `server`, with the client's numbers.
    pub(super) describes: HashMap<u32, u32, NumberHash>,
    /// Operations on them.
    pub(super) calls: HashSet<u32, NumberHash>,
    /// Operations by the token of their pending answer.
    pub(super) pending: HashMap<u64, u32, NumberHash>,
    pub(super) tokens: u32,
    /// Monitors with updates that may be sent when there is room.
    pub(super) waiting: VecDeque<u32>,
    /// Bytes of the values in all queues.
    pub(super) queued: usize,
    pub(super) user: String,
    pub(super) address: String,
    pub(super) heard: MonoNs,
    pub(super) closing: bool,
    pub(super) touched: bool,
}

impl Conn {
    /// A new connection, with the greeting to send.
    pub(super) fn new(now: MonoNs, address: &str, limits: &Limits) -> Self {
        let mut out = Writer::new(Order::Little);
        wire::set_order(&mut out, Side::Server);
        wire::message(&mut out, Side::Server, command::VALIDATION, |out| {
            out.u32(0x1_0000);
            out.u16(0x7FFF);
            // The weakest method first, because old clients use the last one that they know.
            out.size(2);
            out.text("anonymous");
            out.text("ca");
        });
        Self {
            out,
            head: 0,
            inbox: Inbox::new(Side::Client, limits.message_bytes),
            received: TypeTable::default(),
            sent: SentTypes::default(),
            channels: HashMap::default(),
            next_sid: 1,
            ops: HashMap::default(),
            describes: HashMap::default(),
            calls: HashSet::default(),
            pending: HashMap::default(),
            tokens: 0,
            waiting: VecDeque::new(),
            queued: 0,
            user: "anonymous".into(),
            address: address.into(),
            heard: now,
            closing: false,
            touched: false,
        }
    }

    /// A summary for reports.
    pub(super) fn info(&self) -> ClientInfo<'_> {
        let monitors = |sid: u32| {
            let ops = self.ops.values().filter(|op| op.sid == sid);
            ops.filter(|op| matches!(op.kind, OpKind::Monitor(_))).count()
        };
        let mut channels: Vec<(u32, u64)> = self.channels.iter().map(|(sid, it)| (*sid, it.opened.handle)).collect();
        channels.sort_unstable();
        ClientInfo {
            address: &self.address,
            user: &self.user,
            channels: channels.into_iter().map(|(sid, handle)| (handle, monitors(sid))).collect(),
            operations: self.ops.len(),
            unsent: self.unsent().len(),
        }
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.out.bytes[self.head..]
    }

    pub(super) fn take_sent(&mut self, len: usize) {
        self.head = (self.head + len).min(self.out.bytes.len());
        if self.head == self.out.bytes.len() {
            self.out.bytes.clear();
            self.head = 0;
            // The memory of a large message is not kept for small ones.
            self.out.bytes.shrink_to(1 << 20);
        } else if self.head > 1 << 16 && self.head > self.out.bytes.len() / 2 {
            self.out.bytes.drain(..self.head);
            self.head = 0;
        }
    }

    pub(super) fn has_room(&self, limits: &Limits) -> bool {
        self.out.bytes.len() - self.head < limits.out_bytes
    }

    /// Closes the connection without sending the rest.
    pub(super) fn abandon(&mut self) {
        self.closing = true;
        self.out.bytes.clear();
        self.head = 0;
    }

    pub(super) fn peer(&self) -> Peer<'_> {
        Peer { user: &self.user, address: &self.address }
    }

    /// A new token of the connection with this number.
    pub(super) fn token(&mut self, id: u32) -> Token {
        self.tokens = self.tokens.wrapping_add(1);
        Token(u64::from(id) << 32 | u64::from(self.tokens))
    }

    /// Appends a reply: operation, sub-command, status, and data after success.
    pub(super) fn reply(&mut self, command: u8, ioid: u32, sub: u8, status: &Status, data: impl FnOnce(&mut Writer)) {
        wire::message(&mut self.out, Side::Server, command, |out| {
            out.u32(ioid);
            out.u8(sub);
            out.status(status);
            if status.is_success() {
                data(out);
            }
        });
    }

    /// Appends a reply with an error.
    pub(super) fn refuse(&mut self, command: u8, ioid: u32, sub: u8, message: &str) {
        self.reply(command, ioid, sub, &Status::error(message), |_| {});
    }

    /// Appends a warning about an operation.
    pub(super) fn warn(&mut self, ioid: u32, text: &str) {
        wire::message(&mut self.out, Side::Server, command::MESSAGE, |out| {
            out.u32(ioid);
            out.u8(1);
            out.text(text);
        });
    }

    /// Ends an operation: its pending answer is no longer needed, and a monitor no longer gets posts.
    pub(super) fn end_op(
        &mut self,
        id: u32,
        ioid: u32,
        watchers: &mut HashMap<u64, Vec<(u32, u32)>, NumberHash>,
        source: &mut impl Source,
    ) {
        let Some(op) = self.ops.remove(&ioid) else { return };
        if let Some(busy) = op.busy {
            self.pending.remove(&busy.token.0);
            if matches!(busy.step, Step::Write | Step::Call) {
                source.forget(busy.token);
            }
        }
        if let OpKind::Monitor(monitor) = op.kind {
            self.queued -= monitor.bytes;
            self.waiting.retain(|other| *other != ioid);
            if let Some(channel) = self.channels.get(&op.sid) {
                unlink(watchers, channel.opened.watch, (id, ioid));
                source.unwatch(channel.opened.handle);
            }
        }
    }

    /// Ends a channel with its operations, and reports it to the client.
    pub(super) fn destroy_channel(
        &mut self,
        id: u32,
        sid: u32,
        watchers: &mut HashMap<u64, Vec<(u32, u32)>, NumberHash>,
        source: &mut impl Source,
    ) {
        let ops: Vec<u32> = self.ops.iter().filter(|(_, op)| op.sid == sid).map(|(ioid, _)| *ioid).collect();
        ops.into_iter().for_each(|ioid| self.end_op(id, ioid, watchers, source));
        let Some(channel) = self.channels.remove(&sid) else { return };
        source.close(channel.opened.handle);
        wire::message(&mut self.out, Side::Server, command::DESTROY_CHANNEL, |out| {
            out.u32(sid);
            out.u32(channel.cid);
        });
    }

    /// Asks for the access rights of all channels again, and announces those that changed. Returns the monitors of channels
    /// that the client may no longer read.
    pub(super) fn refresh_access(&mut self, source: &mut impl Source) -> Vec<u32> {
        let mut lost = Vec::new();
        let peer = Peer { user: &self.user, address: &self.address };
        for (sid, channel) in &mut self.channels {
            let (access, before) = (source.access(channel.opened.handle, peer), channel.rights());
            if channel.opened.access.read && !access.read {
                let ops = self.ops.iter().filter(|(_, op)| op.sid == *sid && matches!(op.kind, OpKind::Monitor(_)));
                lost.extend(ops.map(|(ioid, _)| *ioid));
            }
            channel.opened.access = access;
            if channel.rights() != before {
                announce(&mut self.out, channel.cid, channel.rights());
            }
        }
        lost
    }
}

impl OpKind {
    /// The command of its messages.
    pub(super) const fn command(&self) -> u8 {
        match self {
            Self::Get => command::GET,
            Self::Put { .. } => command::PUT,
            Self::PutGet { .. } => command::PUT_GET,
            Self::Process { .. } => command::PROCESS,
            Self::Monitor(_) => command::MONITOR,
            Self::Call => command::RPC,
        }
    }
}
