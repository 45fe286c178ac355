//! The network's side of the shards that other threads own.

use crate::job::{Job, OwnerEvent, OwnerRequest, Requester};
use crate::owner::Ends;
pub use crate::owner::{OwnerCounters, OwnerShared};
use crate::scans::Scans;
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of events taken from a shard before the sockets are served.
const TAKE_MAX: usize = 4_096;

/// A shard, as accessed by the network thread.
pub struct ShardPort {
    /// Name of its owner in reports: scans and CPU.
    pub name: String,
    /// Scans of its owner with their measurements. Those of a later shard are in its owner's first shard.
    pub scans: Scans,
    /// Number of its owner's first shard, possibly this one.
    pub owner: usize,
    /// Whether it has no records and no owner left, and accepts no jobs.
    pub retired: bool,
    /// Counters and flags shared with its owner.
    pub shared: Arc<OwnerShared>,
    jobs: Producer<Box<Job>>,
    /// Jobs that found the ring full. Bounded: a circuit has a limited number of open requests ([`ca`]), a monitored field
    /// has two.
    waiting: VecDeque<Box<Job>>,
    out: Consumer<OwnerEvent>,
    rang: bool,
}

impl ShardPort {
    pub(crate) fn new(name: String, owner: usize, ends: Ends, scans: Scans) -> Self {
        let Ends { jobs, out, shared } = ends;
        Self { name, scans, owner, retired: false, shared, jobs, waiting: VecDeque::new(), out, rang: true }
    }

    /// Drops its rings.
    pub(crate) fn retire(&mut self) {
        self.retired = true;
        self.waiting.clear();
        self.jobs = RingBuffer::new(0).0;
        self.out = RingBuffer::new(0).1;
    }

    /// Sends a job. [`flush`](Self::flush) wakes the owner.
    pub(crate) fn send(&mut self, job: Box<Job>) {
        if self.retired {
            return;
        }
        self.rang = false;
        if self.waiting.is_empty() {
            match self.jobs.push(job) {
                Ok(()) => {}
                Err(rtrb::PushError::Full(job)) => self.waiting.push_back(job),
            }
        } else {
            self.waiting.push_back(job);
        }
    }

    pub(crate) fn ask(&mut self, request: OwnerRequest) {
        self.send(Job::new(Requester::Nobody, request));
    }

    /// Wakes the owner if a job was sent since the last call.
    pub(crate) fn flush(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            if let Err(rtrb::PushError::Full(job)) = self.jobs.push(job) {
                self.waiting.push_front(job);
                break;
            }
        }
        if !std::mem::replace(&mut self.rang, true) {
            self.shared.bell.ring();
        }
    }

    /// Takes the events of the owner into `all`. Returns whether there are more.
    pub(crate) fn take(&mut self, all: &mut Vec<OwnerEvent>) -> bool {
        let count = self.out.slots().min(TAKE_MAX);
        all.extend((0..count).map_while(|_| self.out.pop().ok()));
        if self.shared.starved.swap(false, Ordering::AcqRel) || !self.waiting.is_empty() {
            self.rang = false;
            self.flush();
        }
        !self.out.is_empty()
    }

    /// Ends the owner's thread.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.bell.ring();
    }
}
