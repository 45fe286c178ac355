//! A shard of the database with its rings: what was loaded at once and belongs to one owner.
//!
//! An owner begins with one, and takes further ones for records that are loaded while the IOC runs. They are made ready
//! on the network's thread, initialised and with all the memory that they need; the owner puts them beside the others.

use crate::devices::{OwnerEnds, Requests};
use crate::engine::now;
use crate::execute::{Subscriptions, execute};
use crate::feed::Feed;
use crate::job::{Job, OwnerEvent, OwnerRequest};
use crate::owner::{Ends, OwnerShared};
use base::MonoNs;
use db::Db;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;

/// Records that callbacks and delays may process in a turn.
pub(crate) const ADVANCE_MAX: usize = 100;
/// Jobs that may wait for an owner.
const JOBS_ROOM: usize = 4_096;
/// Answers and posts that may wait for the network.
const OUT_ROOM: usize = 16_384;
/// Posts that wait in the database where the ring has no room, besides four for each subscription.
const QUEUE_ROOM: usize = 1_024;
/// Devices' threads that may feed an owner without its asking for memory.
const FEEDS_ROOM: usize = 64;
/// Room in the rings for each record of a shard that is loaded later; the first has all of it.
const ROOM_PER_RECORD: usize = 16;

/// A shard of the database, its rings to the network and to the devices.
pub(crate) struct Shard {
    pub(crate) db: Db,
    /// Its number.
    pub(crate) number: usize,
    pub(crate) jobs: Consumer<Box<Job>>,
    /// Done, but there was no room to say so.
    pub(crate) held: Option<Box<Job>>,
    pub(crate) out: Producer<OwnerEvent>,
    pub(crate) feeds: Vec<Feed>,
    pub(crate) requests: Requests,
    pub(crate) subs: Subscriptions,
    /// It has no records any more.
    pub(crate) retired: bool,
}

impl Shard {
    /// Takes an initialised shard over, and all memory that usual work needs. `first` is the one that an owner begins
    /// with.
    pub(crate) fn new(
        mut db: Db,
        number: usize,
        first: bool,
        devices: OwnerEnds,
        shared: &Arc<OwnerShared>,
    ) -> (Self, Ends) {
        let records = db.records().count();
        let room = |most: usize| if first { most } else { most.min(64 + records * ROOM_PER_RECORD) };
        let (to, jobs) = RingBuffer::new(room(JOBS_ROOM));
        let (out, from) = RingBuffer::new(room(OUT_ROOM));
        let queue = db.open_queue(room(QUEUE_ROOM));
        // Usual clients watch a field or two of each record.
        db.reserve_subscriptions(queue, 2 * records + 64);
        db.share_signals();
        db.reserve_arrays();
        let mut feeds = Vec::with_capacity(FEEDS_ROOM);
        feeds.push(devices.feed);
        let bell = shared.clone();
        devices.wake.set(move || bell.bell.ring());
        let shard = Self {
            db,
            number,
            jobs,
            held: None,
            out,
            feeds,
            requests: devices.requests,
            subs: Subscriptions::new(queue, 2 * records + 64),
            retired: false,
        };
        (shard, Ends { jobs: to, out: from, shared: shared.clone() })
    }

    /// What is to be told next. Does not allocate.
    pub(crate) fn next_out(&mut self) -> Option<OwnerEvent> {
        if let Some((_, posted)) = self.db.next_posted(self.subs.queue) {
            let db::Posted { token: key, value, alarm, stamp, mask, .. } = posted;
            Some(OwnerEvent::Post { key, value, alarm, stamp, mask })
        } else if let Some(completed) = self.db.next_completed() {
            Some(OwnerEvent::Completed(completed))
        } else if let Some(request) = self.db.next_remote() {
            Some(OwnerEvent::Remote(request))
        } else if let Some(signal) = self.db.next_signal() {
            Some(OwnerEvent::Signal(signal))
        } else {
            self.db.next_regrouped().map(|(record, group)| OwnerEvent::Regrouped(record, group))
        }
    }

    /// Takes what devices have delivered, each feeder's a bounded number; whether there is more.
    pub(crate) fn take_feeds(&mut self) -> bool {
        let mut more = false;
        for feed in &mut self.feeds {
            more |= feed.take(&mut self.db);
        }
        self.feeds.retain(|feed| !feed.is_over());
        more
    }

    /// Does a job for the network.
    pub(crate) fn do_job(&mut self, job: &mut Job) {
        let now = now();
        match &mut job.request {
            OwnerRequest::Feed(feed) => self.feeds.extend(feed.take()),
            OwnerRequest::Retire => self.retired = true,
            request => job.outcome = execute(&mut self.db, &mut self.subs, request, &mut job.reading, now),
        }
        if matches!(job.request, OwnerRequest::Write { .. }) && self.db.next_deadline() == Some(MonoNs(0)) {
            self.db.advance(now, ADVANCE_MAX);
        }
    }
}
