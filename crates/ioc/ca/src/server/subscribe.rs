//! Subscriptions: creation, cancellation and first update.

use super::answer::build;
use super::circuit::{Circuit, PendingReply, Sub, queue_bytes};
use super::handle::{Next, bad_id, is_too_large, next_token, too_large};
use super::{Backend, Get, Limits, Server, Token};
use crate::dbr::Dbr;
use crate::eca::Eca;
use crate::encode::{self, Reading};
use crate::wire::{Header, command, padded};
use base::EventMask;

impl Server {
    pub(super) fn event_add(&mut self, id: u32, header: &Header, payload: &[u8], backend: &mut impl Backend) -> Next {
        let Some(circuit) = self.circuits.get_mut(id) else { return Next::Close };
        let Some(dbr) = Dbr::from_wire(header.kind) else { return Next::Close };
        let Some(channel) = circuit.channels.get(header.p1) else {
            return bad_id(circuit, header);
        };
        let opened = channel.opened;
        let mask = payload.get(12..14).map_or(0, |mask| u16::from_be_bytes([mask[0], mask[1]]));
        let wrong = if mask == 0 || mask > 0xFF {
            Some(format!("subscription install into record {} failed", backend.record_name(opened.handle)))
        } else if circuit.subs.len() >= self.limits.subscriptions {
            Some("too many subscriptions on one circuit".into())
        } else {
            None
        };
        if let Some(text) = wrong {
            circuit.send_error(header, Eca::ALLOCMEM, &text);
            return Next::Close;
        }
        if is_too_large(dbr, header.count, opened.count, &self.limits) {
            let what = "read (or subscription update)";
            let text = too_large(what, header, &opened, backend.record_name(opened.handle), &self.limits);
            circuit.send_error(header, Eca::TOLARGE, &text);
            return Next::Go;
        }
        let elements = if header.count == 0 { opened.count } else { header.count };
        let queue = queue_bytes(16 + padded(dbr.size(elements)));
        circuit.queues += queue;
        let sub = circuit.subs.insert(Sub {
            id: header.p2,
            sid: header.p1,
            handle: opened.handle,
            watch: opened.watch,
            dbr,
            count: header.count,
            mask: EventMask(mask as u8),
            readable: opened.access.read,
            posted: opened.posted,
            needs: encode::needs(dbr, opened.native),
            last: 0,
            last_len: 0,
            stale: false,
            held: Vec::new(),
            queue,
        });
        circuit.subs_of.insert((header.p1, header.p2, sub));
        let now = backend.watch(opened.handle) || !opened.access.read;
        let list = self.watchers.entry(opened.watch).or_default();
        let place = list.partition_point(|entry| *entry < (id, sub));
        list.insert(place, (id, sub));
        if now {
            let limits = self.limits;
            let token = next_token(&mut self.tokens, id);
            update_now(circuit, sub, token, &mut self.scratch, &mut self.message, &limits, backend);
        }
        Next::Go
    }

    pub(super) fn event_cancel(&mut self, id: u32, header: &Header, backend: &mut impl Backend) -> Next {
        let Some(circuit) = self.circuits.get_mut(id) else { return Next::Close };
        let Some(handle) = circuit.channels.get(header.p1).map(|channel| channel.opened.handle) else {
            return bad_id(circuit, header);
        };
        let key = circuit.subs_of(header.p1, Some(header.p2)).next();
        let Some((key, sub)) = key.and_then(|key| Some((key, circuit.remove_sub(key)?))) else {
            circuit.send_error(header, Eca::BADMONID, backend.record_name(handle));
            return Next::Close;
        };
        circuit.send(Header::bare(command::EVENT_ADD, sub.dbr.wire(), sub.count, sub.sid, sub.id));
        self.unlink_one(sub.watch, id, key);
        backend.unwatch(sub.handle);
        Next::Go
    }
}

/// Reads the channel of a subscription and queues an update.
pub(super) fn update_now(
    circuit: &mut Circuit,
    index: u32,
    token: Token,
    scratch: &mut Reading,
    message: &mut Vec<u8>,
    limits: &Limits,
    backend: &mut impl Backend,
) {
    let Some(sub) = circuit.subs.get(index) else { return };
    let reading =
        if sub.readable { backend.read(sub.handle, sub.needs, scratch, Some(token)) } else { Err(Eca::NORDACCESS) };
    if reading == Ok(Get::Sent) {
        let lane = circuit.channels.get(sub.sid).map_or(0, |channel| channel.opened.lane);
        circuit.owe(lane, token.0, PendingReply::Update { sub: index });
        return;
    }
    message.clear();
    build(sub.dbr, sub.count, reading.map(|_| &*scratch), message);
    circuit.push_update(index, message, limits);
}
