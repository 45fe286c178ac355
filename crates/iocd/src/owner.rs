//! The thread that owns a part of the database: it runs the part's scans and does jobs for the network between them.
//!
//! It shares no lock with anybody. Jobs come through a bounded ring, answers and posts go through another; where that has
//! no room, jobs wait in theirs and posts in the database's queue, under EPICS' rule and counted. Jobs between two looks
//! at the clock are one, between two turns of callbacks at most [`JOBS_MAX`].

use crate::devices::{OwnerEnds, Requests};
use crate::engine::now;
use crate::feed::Feed;
use crate::job::{Ask, Job, Out, Outcome};
use crate::net::Waker;
use crate::scans::Scans;
use base::{EventMask, MonoNs, Severity, Str40};
use ca::Eca;
use ca::server::{Put, Write};
use db::{Channel, Db, NotifyState, Now, QueueId, SubId};
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::bell::Bell;

/// Jobs that an owner takes before callbacks and posts have their turn.
const JOBS_MAX: usize = 64;
/// Records that callbacks and delays may process in a turn.
const ADVANCE_MAX: usize = 100;
/// Jobs that may wait for an owner.
const JOBS_ROOM: usize = 4_096;
/// Answers and posts that may wait for the network.
const OUT_ROOM: usize = 16_384;
/// Posts that wait in the database where the ring has no room, besides four for each subscription.
const QUEUE_ROOM: usize = 1_024;
/// Devices' threads that may feed an owner without its asking for memory.
const FEEDS_ROOM: usize = 64;

/// What an owner and the network share besides the rings.
#[derive(Debug, Default)]
pub struct OwnerShared {
    pub(crate) bell: Bell,
    pub(crate) stop: AtomicBool,
    /// The owner waits for room in the ring to the network.
    pub(crate) starved: AtomicBool,
    jobs: AtomicU64,
    no_room: AtomicU64,
    replaced: AtomicU64,
    allocations: AtomicU64,
    processed: AtomicU64,
}

/// What an owner has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounters {
    /// Jobs done for clients and commands.
    pub jobs: u64,
    /// Times that the ring to the network was full.
    pub no_room: u64,
    /// Posts replaced by newer ones before the network took them.
    pub replaced: u64,
    /// Allocations on the thread since it began; 0 also where the program does not count them.
    pub allocations: u64,
    /// Records processed.
    pub processed: u64,
}

impl OwnerShared {
    /// What the owner has done so far.
    #[must_use]
    pub fn counters(&self) -> OwnerCounters {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        OwnerCounters {
            jobs: read(&self.jobs),
            no_room: read(&self.no_room),
            replaced: read(&self.replaced),
            allocations: read(&self.allocations),
            processed: read(&self.processed),
        }
    }
}

/// A part of the database with all that its thread needs.
pub(crate) struct Owner {
    db: Db,
    scans: Scans,
    jobs: Consumer<Box<Job>>,
    /// Done, but there was no room to say so.
    held: Option<Box<Job>>,
    out: Producer<Out>,
    feeds: Vec<Feed>,
    requests: Requests,
    queue: QueueId,
    subs: HashMap<u64, SubId>,
    net: Waker,
    shared: Arc<OwnerShared>,
    told: bool,
}

/// The network's ends of an owner's rings.
pub(crate) struct Ends {
    pub(crate) jobs: Producer<Box<Job>>,
    pub(crate) out: Consumer<Out>,
    pub(crate) shared: Arc<OwnerShared>,
    pub(crate) scans: Scans,
}

impl Owner {
    /// Takes an initialised part over, and all memory that usual work needs.
    pub(crate) fn new(mut db: Db, net: Waker, devices: OwnerEnds) -> (Self, Ends) {
        let (to, jobs) = RingBuffer::new(JOBS_ROOM);
        let (out, from) = RingBuffer::new(OUT_ROOM);
        let shared = Arc::new(OwnerShared::default());
        let queue = db.open_queue(QUEUE_ROOM);
        let records = db.records().count();
        // Usual clients watch a field or two of each record.
        db.reserve_subscriptions(queue, 2 * records + 64);
        db.share_signals();
        db.reserve_arrays();
        let mut scans = Scans::default();
        scans.plan(&db, now());
        let mut feeds = Vec::with_capacity(FEEDS_ROOM);
        feeds.push(devices.feed);
        let bell = shared.clone();
        devices.wake.set(move || bell.bell.ring());
        let ends = Ends { jobs: to, out: from, shared: shared.clone(), scans: scans.clone() };
        let owner = Self {
            db,
            scans,
            jobs,
            held: None,
            out,
            feeds,
            requests: devices.requests,
            queue,
            subs: HashMap::with_capacity(2 * records + 64),
            net,
            shared,
            told: false,
        };
        (owner, ends)
    }

    /// Runs until it is told to stop.
    ///
    /// Real-time: scanning neither allocates, locks nor blocks; jobs do what clients and commands ask.
    pub(crate) fn run(mut self) {
        self.scans.align(now());
        let before = allocations();
        while !self.shared.stop.load(Ordering::Acquire) {
            let more = self.turn();
            self.shared.allocations.store(allocations() - before, Ordering::Relaxed);
            self.shared.processed.store(self.db.counters().processed, Ordering::Relaxed);
            self.shared.replaced.store(self.db.replaced(self.queue), Ordering::Relaxed);
            if !more {
                let until = [self.scans.next(), self.db.next_deadline()].into_iter().flatten().min();
                self.shared.bell.wait(until);
            }
        }
    }

    /// Everything that is due, each kind in bounded measure; whether there is more.
    fn turn(&mut self) -> bool {
        self.run_due();
        let mut more = false;
        for feed in &mut self.feeds {
            more |= feed.take(&mut self.db);
        }
        self.feeds.retain(|feed| !feed.is_over());
        let mut room = self.hand_out();
        for _ in 0..JOBS_MAX {
            if !room {
                break;
            }
            if self.scans.is_due(sys::clock::mono_now()) {
                self.run_due();
                room = self.hand_out();
                continue;
            }
            let job = match self.held.take() {
                Some(done) => done,
                None => match self.jobs.pop() {
                    Ok(mut job) => {
                        self.do_job(&mut job);
                        job
                    }
                    Err(_) => break,
                },
            };
            // What the job has posted goes before its answer.
            room = self.hand_out();
            if room {
                self.tell(Out::Done(job));
            } else {
                self.held = Some(job);
            }
        }
        let now = now();
        if self.db.next_deadline().is_some_and(|at| at <= now.mono) {
            self.db.advance(now, ADVANCE_MAX);
            room = self.hand_out();
        }
        self.requests.hand_on(&mut self.db);
        if std::mem::take(&mut self.told) {
            self.net.wake();
        }
        room && (more || !self.jobs.is_empty() || self.db.next_deadline() == Some(MonoNs(0)))
    }

    fn run_due(&mut self) {
        if self.scans.is_due(sys::clock::mono_now()) {
            for nth in 0..self.scans.clocks().len() {
                self.scans.run(nth, &mut self.db, now);
            }
        }
    }

    fn tell(&mut self, out: Out) {
        self.told = true;
        // There is room: it was looked for, and nobody else writes.
        let pushed = self.out.push(out);
        debug_assert!(pushed.is_ok(), "a slot that was free");
    }

    /// Sends what processing has left, as far as there is room; whether all is sent and there is room for an answer.
    fn hand_out(&mut self) -> bool {
        let mut room = self.out.slots();
        while room > 1 {
            let out = if let Some((_, posted)) = self.db.next_posted(self.queue) {
                let db::Posted { token: key, value, alarm, stamp, mask, .. } = posted;
                Out::Post { key, value, alarm, stamp, mask }
            } else if let Some(completed) = self.db.next_completed() {
                Out::Completed(completed)
            } else if let Some(request) = self.db.next_remote() {
                Out::Remote(request)
            } else if let Some(signal) = self.db.next_signal() {
                Out::Signal(signal)
            } else if let Some((record, group)) = self.db.next_regrouped() {
                Out::Regrouped(record, group)
            } else {
                return true;
            };
            self.tell(out);
            room -= 1;
        }
        self.shared.no_room.fetch_add(1, Ordering::Relaxed);
        self.shared.starved.store(true, Ordering::Release);
        self.told = true;
        false
    }

    fn do_job(&mut self, job: &mut Job) {
        let now = now();
        self.shared.jobs.fetch_add(1, Ordering::Relaxed);
        let db = &mut self.db;
        match &mut job.ask {
            Ask::Read { channel, meta } => {
                let record = channel.record;
                db.get_into(channel, usize::MAX, &mut job.reading.value);
                job.reading.alarm = db.alarm(record);
                job.reading.stamp = db.stamp_of(channel).0;
                if *meta {
                    let (ackt, acks) = db.acknowledge_state(record);
                    job.reading.ackt = ackt != 0;
                    job.reading.acks = Severity::from_index(acks);
                    job.reading.record_type = Str40::from(db.type_name(record));
                    job.reading.meta = db.meta(channel);
                }
                job.outcome = Outcome::Read(Ok::<(), Eca>(()));
            }
            Ask::Write { channel, write, notify, log } => {
                if log.is_some() {
                    db.get_into(channel, usize::MAX, &mut job.reading.value);
                }
                job.outcome = Outcome::Write(write_to(db, channel, write, *notify, now));
                if let Some(log) = log {
                    db.get_into(channel, usize::MAX, &mut log.new);
                }
            }
            Ask::Forget(token) => db.cancel_notify(*token),
            Ask::Watch { channel, key } => {
                let all = EventMask::VALUE | EventMask::LOG | EventMask::ALARM | EventMask::PROPERTY;
                let sub = db.subscribe(self.queue, channel, all, *key);
                self.subs.insert(*key, sub);
            }
            Ask::Unwatch { key } => {
                if let Some(sub) = self.subs.remove(key) {
                    db.unsubscribe(sub);
                }
            }
            Ask::Update { id, value, alarm, stamp } => {
                if let Some(new) = value.take() {
                    *value = db.remote_update(*id, new, *alarm, *stamp);
                }
            }
            Ask::Meta { id, meta } => db.remote_meta(*id, meta),
            Ask::Connect { id, connected: true } => db.remote_connect(*id),
            Ask::Connect { id, connected: false } => db.remote_disconnect(*id),
            Ask::Written { id, ok } => db.remote_written(*id, *ok),
            Ask::Signal(signal) => db.take_signal(signal),
            Ask::Finish(token) => drop(db.finish_function(*token)),
            Ask::Pause(on) => self.scans.pause(*on, db),
            Ask::Feed(feed) => self.feeds.extend(feed.take()),
            Ask::Call(work) => {
                work(db, now);
                // It may have changed what is scanned.
                self.scans.plan(db, now);
            }
        }
        if matches!(job.ask, Ask::Write { .. }) && self.db.next_deadline() == Some(MonoNs(0)) {
            self.db.advance(now, ADVANCE_MAX);
        }
    }
}

/// Writes for a client.
pub(crate) fn write_to(db: &mut Db, channel: &Channel, write: &Write, notify: Option<u64>, now: Now) -> Put {
    let value = match write {
        Write::Value(value) => value,
        Write::AckT(transient) => {
            db.put_ackt(channel, *transient);
            return Put::Done;
        }
        Write::AckS(severity) => {
            db.put_acks(channel, *severity);
            return Put::Done;
        }
    };
    match notify {
        None => db.put(channel, value, now).map_or(Put::Failed, |()| Put::Done),
        Some(token) => match db.put_notify(channel, value, token, now) {
            Ok(NotifyState::Done) => Put::Done,
            Ok(NotifyState::Pending) => Put::Later,
            Err(_) => Put::Failed,
        },
    }
}

fn allocations() -> u64 {
    sys::alloc::thread_counts().map_or(0, |counts| counts.taken)
}
