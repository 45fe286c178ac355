//! The connection to a server: its bytes, and messages without the state of channels.

use super::MESSAGE_BYTES_MAX;
use crate::codec::{Order, TypeTable, Writer};
use crate::search::{self, Address};
use crate::wire::{self, Inbox, Side, command};
use base::{DurNs, MonoNs};

pub(super) struct Circuit {
    pub(super) server: Address,
    pub(super) out: Writer,
    /// Number of bytes of `out` that were sent.
    head: usize,
    pub(super) inbox: Inbox,
    pub(super) received: TypeTable,
    /// The server has accepted the client.
    pub(super) ready: bool,
    pub(super) closing: bool,
    /// The time of the last received byte; `None` before the connection is open.
    pub(super) heard: Option<MonoNs>,
    /// An echo was requested since then.
    asked: bool,
}

impl Circuit {
    pub(super) fn new(server: Address) -> Self {
        Self {
            server,
            out: Writer::new(Order::Little),
            head: 0,
            inbox: Inbox::new(Side::Server, MESSAGE_BYTES_MAX),
            received: TypeTable::default(),
            ready: false,
            closing: false,
            heard: None,
            asked: false,
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
        }
    }

    /// Notes that bytes have arrived.
    pub(super) fn hear(&mut self, now: MonoNs) {
        self.heard = Some(now);
        self.asked = false;
    }

    pub(super) fn next_check(&self, quiet: DurNs) -> Option<MonoNs> {
        let limit = if self.asked { quiet } else { DurNs(quiet.0 / 2) };
        self.heard.filter(|_| !self.closing).map(|heard| heard + limit)
    }

    /// Requests an echo from a silent server, or gives it up. Returns whether there is something to do for the caller.
    pub(super) fn check(&mut self, now: MonoNs, quiet: DurNs) -> bool {
        if self.next_check(quiet).is_none_or(|at| at > now) {
            return false;
        }
        if self.asked {
            self.closing = true;
        } else {
            self.asked = true;
            wire::message(&mut self.out, Side::Client, command::ECHO, |out| out.bytes.extend_from_slice(b"tahti"));
        }
        true
    }

    /// Appends the request to open a channel. One channel per message: some servers accept no more.
    pub(super) fn create(&mut self, cid: u32, name: &str) {
        wire::message(&mut self.out, Side::Client, command::CREATE_CHANNEL, |out| {
            out.u16(1);
            out.u32(cid);
            out.text(name);
        });
    }

    /// Appends a search for names. The answer arrives over this connection.
    pub(super) fn search(&mut self, sequence: u32, names: &[(u32, &str)]) {
        search::write_search(&mut self.out, sequence, 0, Address { ip: search::SENDER, port: 0 }, names);
    }

    /// Appends the request to close a channel.
    pub(super) fn destroy(&mut self, sid: u32, cid: u32) {
        wire::message(&mut self.out, Side::Client, command::DESTROY_CHANNEL, |out| {
            out.u32(sid);
            out.u32(cid);
        });
    }

    /// Appends the first part of a request of an operation, and then its data.
    pub(super) fn operate(&mut self, command: u8, sid: u32, ioid: u32, sub: u8, data: impl FnOnce(&mut Writer)) {
        wire::message(&mut self.out, Side::Client, command, |out| {
            out.u32(sid);
            out.u32(ioid);
            out.u8(sub);
            data(out);
        });
    }
}
