//! Monitors that are requested again after their server ended or refused them.

use super::{Action, Client, Event, Op, OpId};
use base::{DurNs, MonoNs};
use std::collections::{BTreeMap, VecDeque};

/// Time from the end of a monitor to its next request.
pub(super) const RENEWAL_GAP: DurNs = DurNs::from_secs(10);

#[derive(Default)]
pub(super) struct Renewals {
    /// Ended monitors with the times of their next requests, in order.
    due: VecDeque<(MonoNs, u32)>,
    /// Renewed monitors by their present numbers in messages.
    keys: BTreeMap<u32, u32>,
}

impl Renewals {
    /// The operation with a number in messages.
    pub(super) fn key_of(&self, ioid: u32) -> u32 {
        self.keys.get(&ioid).copied().unwrap_or(ioid)
    }

    /// The time of the next request.
    pub(super) fn next(&self) -> Option<MonoNs> {
        self.due.front().map(|(at, _)| *at)
    }

    /// Forgets all other operations.
    pub(super) fn retain(&mut self, ops: &BTreeMap<u32, Op>) {
        self.keys.retain(|_, key| ops.contains_key(key));
    }
}

impl Client {
    /// Makes the client request a monitor again 10 s after its server ended or refused it. [`Event::Done`] and [`Event::Failed`]
    /// do not end such a monitor.
    pub fn renew(&mut self, id: OpId) {
        if let Some(op) = self.ops.get_mut(&id.0).filter(|op| op.action == Action::Monitor) {
            op.renews = true;
        }
    }

    /// Ends an operation, or notes the time of its next request.
    pub(super) fn finish(&mut self, now: MonoNs, key: u32, event: Event) {
        let Some(op) = self.ops.get_mut(&key) else { return };
        if op.renews {
            let at = now + RENEWAL_GAP;
            op.renew_at = Some(at);
            self.renewals.due.push_back((at, key));
        } else {
            self.ops.remove(&key);
        }
        self.events.push_back(event);
    }

    /// Requests monitors whose time has come. Each gets a new number: servers may still know the previous one.
    pub(super) fn request_renewals(&mut self, now: MonoNs) {
        while let Some((at, key)) = self.renewals.due.pop_front_if(|(at, _)| *at <= now) {
            let number = self.number();
            // A new connection requests it earlier.
            let Some(op) = self.ops.get_mut(&key).filter(|op| op.renew_at == Some(at)) else { continue };
            self.renewals.keys.remove(&op.ioid);
            self.renewals.keys.insert(number, key);
            op.ioid = number;
            self.init(key);
        }
    }
}
