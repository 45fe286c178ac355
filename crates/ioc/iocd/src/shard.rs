//! A shard of the database with its rings: records that were loaded together and belong to one owner.
//!
//! An owner starts with one shard, and gets further ones for records loaded at run time. The network thread prepares them: it
//! initialises the records and allocates all memory. The owner then appends them to its list.

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

/// Maximum number of records processed by callbacks and delays in a turn.
pub(crate) const ADVANCE_MAX: usize = 100;
/// Maximum number of jobs waiting for an owner.
const JOBS_ROOM: usize = 4_096;
/// Maximum number of answers and posts waiting for the network.
const OUT_ROOM: usize = 16_384;
/// Posts that wait in the database if the ring is full, in addition to four per subscription.
const QUEUE_ROOM: usize = 1_024;
/// Number of device threads that can feed an owner before it allocates memory.
const FEEDS_ROOM: usize = 64;
/// Ring capacity per record of a shard loaded later; the first shard has full capacity.
const ROOM_PER_RECORD: usize = 16;

/// A shard of the database, with its rings to the network and to the devices.
pub(crate) struct Shard {
    pub(crate) db: Db,
    /// Number of the shard.
    pub(crate) number: usize,
    pub(crate) jobs: Consumer<Box<Job>>,
    /// A finished job whose answer found no room.
    pub(crate) held: Option<Box<Job>>,
    pub(crate) out: Producer<OwnerEvent>,
    pub(crate) feeds: Vec<Feed>,
    pub(crate) requests: Requests,
    pub(crate) subs: Subscriptions,
    /// Whether the shard has no records left.
    pub(crate) retired: bool,
}

impl Shard {
    /// Creates a shard from an initialised database, and preallocates memory for typical work. `first` marks the first shard
    /// of an owner.
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
        // Typical clients subscribe to one or two fields of each record.
        db.reserve_subscriptions(queue, 2 * records + 64);
        db.share_signals();
        db.reserve_arrays();
        let mut feeds = Vec::with_capacity(FEEDS_ROOM);
        feeds.extend(devices.feeds);
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

    /// Next event for the network. Does not allocate.
    pub(crate) fn next_out(&mut self) -> Option<OwnerEvent> {
        if let Some((_, posted)) = self.db.next_posted(self.subs.queue) {
            let db::Posted { token: key, value, alarm, stamp, note, mask } = posted;
            Some(OwnerEvent::Post { key, value, alarm, stamp, note, mask })
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

    /// Takes the deliveries of devices, a bounded number per feeder. Returns whether there are more.
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
        if matches!(job.request, OwnerRequest::Write { .. } | OwnerRequest::Members { .. })
            && self.db.next_deadline() == Some(MonoNs(0))
        {
            self.db.advance(now, ADVANCE_MAX);
        }
    }
}
