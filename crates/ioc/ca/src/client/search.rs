//! The search schedule: each name has its own increasing interval, and a datagram contains as many names as fit.

use super::Channel;
use crate::slab::Numbered;
use crate::wire::{self, DONT_REPLY, Header, MINOR, command};
use base::{DurNs, MonoNs};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The interval after the first search of a name. It doubles with each search.
const FIRST_GAP: DurNs = DurNs::from_ms(32);
/// Minimum interval after a burst of datagrams.
const DATAGRAM_GAP: DurNs = DurNs(2_000_000);
/// Number of datagrams in a burst.
const BURST: u32 = 8;
/// Maximum size of a datagram in bytes, as in EPICS.
const DATAGRAM_BYTES_MAX: usize = 1024;

/// The names that are not found yet.
#[derive(Debug)]
pub(super) struct Search {
    due: BinaryHeap<Reverse<(MonoNs, u32)>>,
    /// For each channel, the interval after the next search and the time of that search.
    gaps: HashMap<u32, (DurNs, MonoNs)>,
    period_max: DurNs,
    sequence: u32,
    /// The earliest time of the next datagram.
    free_at: MonoNs,
    burst: u32,
}

impl Search {
    pub(super) fn new(period_max: DurNs) -> Self {
        Self { due: BinaryHeap::new(), gaps: HashMap::new(), period_max, sequence: 0, free_at: MonoNs(0), burst: 0 }
    }

    /// Searches a channel from `now` on.
    pub(super) fn add(&mut self, now: MonoNs, channel: u32) {
        self.gaps.insert(channel, (FIRST_GAP, now));
        self.due.push(Reverse((now, channel)));
    }

    /// Ends the search for a channel.
    pub(super) fn remove(&mut self, channel: u32) {
        self.gaps.remove(&channel);
    }

    /// A server was started or stopped: names with a long interval are searched soon.
    pub(super) fn hurry(&mut self, now: MonoNs) {
        let soon = DurNs::from_secs(5);
        let waiting: Vec<u32> =
            self.gaps.iter().filter(|(_, (gap, next))| *gap > soon && *next > now + soon).map(|(id, _)| *id).collect();
        for channel in waiting {
            self.gaps.insert(channel, (soon, now));
            self.due.push(Reverse((now, channel)));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<MonoNs> {
        let Reverse((at, _)) = self.due.peek()?;
        Some((*at).max(self.free_at))
    }

    /// The next datagram, if one is due.
    pub(super) fn poll(&mut self, now: MonoNs, channels: &Numbered<Channel>) -> Option<Vec<u8>> {
        if now < self.free_at {
            return None;
        }
        let mut out = Vec::new();
        while let Some(&Reverse((at, id))) = self.due.peek() {
            if at > now {
                break;
            }
            let current = self.gaps.get(&id).is_some_and(|(_, next)| *next == at);
            let Some(channel) = channels.get(id).filter(|_| current) else {
                // Found in the meantime, or rescheduled.
                self.due.pop();
                continue;
            };
            if !out.is_empty() && out.len() + 17 + channel.name.len() + 8 > DATAGRAM_BYTES_MAX {
                break;
            }
            self.due.pop();
            if out.is_empty() {
                self.sequence = self.sequence.wrapping_add(1);
                Header::bare(command::VERSION, 1, MINOR.into(), self.sequence, 0).write(&mut out);
            }
            let header = Header::bare(command::SEARCH, DONT_REPLY, MINOR.into(), id, id);
            wire::write_text(header, channel.name.as_bytes(), &mut out);
            if let Some((gap, next)) = self.gaps.get_mut(&id) {
                *next = now + *gap;
                self.due.push(Reverse((*next, id)));
                *gap = DurNs(gap.0 * 2).min(self.period_max);
            }
        }
        if out.is_empty() {
            return None;
        }
        self.burst += 1;
        if self.burst >= BURST {
            self.burst = 0;
            self.free_at = now + DATAGRAM_GAP;
        }
        Some(out)
    }
}
