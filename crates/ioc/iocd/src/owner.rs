//! The thread that owns shards of the database: it runs their scans and does jobs for the network between them.
//!
//! It shares no lock with anybody. Jobs come through a bounded ring, answers and posts go through another; where that has
//! no room, jobs wait in theirs and posts in the database's queue, under EPICS' rule and counted. Jobs between two looks
//! at the clock are one, between two turns of callbacks at most [`JOBS_MAX`].

use crate::engine::now;
use crate::job::{Job, OwnerEvent, OwnerRequest};
use crate::scans::Scans;
use crate::shard::{ADVANCE_MAX, Shard};
use base::MonoNs;
use canet::Waker;
use rtrb::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::bell::Bell;

/// Jobs of a shard that an owner takes before callbacks and posts have their turn.
const JOBS_MAX: usize = 64;
/// Shards that one thread owns at most: each costs it some hundred nanoseconds a turn.
pub(crate) const SHARDS_MAX: usize = 64;

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

/// What a thread owns.
pub(crate) struct Owner {
    /// The first is there from the start.
    #[expect(clippy::vec_box, reason = "the boxes in which they travel: none is copied here")]
    shards: Vec<Box<Shard>>,
    scans: Scans,
    net: Waker,
    shared: Arc<OwnerShared>,
    posted: bool,
    /// A shard that had its turn has something to say again.
    again: bool,
}

/// The network's ends of a shard's rings.
pub(crate) struct Ends {
    pub(crate) jobs: Producer<Box<Job>>,
    pub(crate) out: Consumer<OwnerEvent>,
    pub(crate) shared: Arc<OwnerShared>,
}

impl Owner {
    /// Takes its first shard over; its scans, for those who read what is measured.
    pub(crate) fn new(first: Shard, net: Waker, shared: Arc<OwnerShared>) -> (Self, Scans) {
        let mut scans = Scans::default();
        scans.plan(&first.db, now());
        let mut shards = Vec::with_capacity(SHARDS_MAX);
        shards.push(Box::new(first));
        (Self { shards, scans: scans.clone(), net, shared, posted: false, again: false }, scans)
    }

    /// Runs until it is told to stop.
    ///
    /// Real-time: scanning neither allocates, locks nor blocks; jobs do what clients and commands ask.
    pub(crate) fn run(mut self) {
        self.scans.align(now());
        let before = allocations();
        while !self.shared.stop.load(Ordering::Acquire) {
            let more = self.turn();
            let sum = |of: fn(&Shard) -> u64| self.shards.iter().map(|shard| of(shard)).sum();
            self.shared.allocations.store(allocations() - before, Ordering::Relaxed);
            self.shared.processed.store(sum(|shard| shard.db.counters().processed), Ordering::Relaxed);
            self.shared.replaced.store(sum(|shard| shard.db.replaced(shard.subs.queue)), Ordering::Relaxed);
            let shards = &self.shards;
            let records = |scan| shards.iter().map(|shard| shard.db.scanned(scan)).sum();
            let scans = self.scans.next(sys::clock::mono_now(), records);
            if !more {
                let until = self.shards.iter().map(|shard| shard.db.next_deadline());
                let until = until.chain([scans]).flatten().min();
                self.shared.bell.wait(until);
            }
        }
    }

    /// Everything that is due, each kind in bounded measure; whether there is more.
    fn turn(&mut self) -> bool {
        let mut more = false;
        let mut nth = 0;
        // Jobs may put further shards behind this one.
        while nth < self.shards.len() {
            self.run_due(nth);
            more |= self.serve(nth);
            nth += 1;
        }
        self.give_back();
        if std::mem::take(&mut self.posted) {
            self.net.wake();
        }
        std::mem::take(&mut self.again) || more
    }

    /// Feeds, jobs, callbacks and delays of one shard, each in bounded measure; whether there is more.
    fn serve(&mut self, nth: usize) -> bool {
        let more = self.shards[nth].take_feeds();
        let mut room = self.hand_out(nth);
        for _ in 0..JOBS_MAX {
            if !room {
                break;
            }
            if self.scans.is_due(sys::clock::mono_now()) {
                self.run_due(nth + 1);
                room = self.hand_out(nth);
                continue;
            }
            let job = match self.shards[nth].held.take() {
                Some(done) => done,
                None => match self.shards[nth].jobs.pop() {
                    Ok(mut job) => {
                        self.do_job(nth, &mut job);
                        job
                    }
                    Err(_) => break,
                },
            };
            // What the job has posted goes before its answer.
            room = self.hand_out(nth);
            if room {
                self.tell(nth, OwnerEvent::Done(job));
            } else {
                self.shards[nth].held = Some(job);
            }
        }
        let now = now();
        let shard = &mut self.shards[nth];
        if shard.db.next_deadline().is_some_and(|at| at <= now.mono) {
            shard.db.advance(now, ADVANCE_MAX);
            room = self.hand_out(nth);
        }
        let shard = &mut self.shards[nth];
        shard.requests.hand_on(&mut shard.db);
        room && (more || !shard.jobs.is_empty() || shard.db.next_deadline() == Some(MonoNs(0)))
    }

    /// Scans that are due, when so many shards have had their turn.
    fn run_due(&mut self, served: usize) {
        if self.scans.is_due(sys::clock::mono_now()) {
            self.again |= served > 0 && self.shards.len() > 1;
            let shards = &mut self.shards;
            for nth in 0..self.scans.clocks().len() {
                self.scans.run(nth, now, |scan, now| {
                    shards.iter_mut().map(|shard| crate::scans::scan_one(&mut shard.db, scan, now)).sum()
                });
            }
        }
    }

    fn do_job(&mut self, nth: usize, job: &mut Job) {
        self.shared.jobs.fetch_add(1, Ordering::Relaxed);
        match &mut job.request {
            OwnerRequest::Pause(on) => {
                self.again = true;
                let shards = &mut self.shards;
                self.scans.pause(*on, |pini, now| {
                    shards.iter_mut().for_each(|shard| shard.db.process_pini(pini, now));
                });
            }
            // There is room: the network counts them.
            OwnerRequest::Adopt(shard) => self.shards.extend(shard.take()),
            _ => self.shards[nth].do_job(job),
        }
    }

    fn tell(&mut self, nth: usize, out: OwnerEvent) {
        self.posted = true;
        // There is room: it was looked for, and nobody else writes.
        let pushed = self.shards[nth].out.push(out);
        debug_assert!(pushed.is_ok(), "a slot that was free");
    }

    /// Sends what processing has left, as far as there is room; whether all is sent and there is room for an answer.
    fn hand_out(&mut self, nth: usize) -> bool {
        let mut room = self.shards[nth].out.slots();
        while room > 1 {
            let Some(out) = self.shards[nth].next_out() else { return true };
            if let OwnerEvent::Signal(signal) = &out {
                // Its own shards need not wait for the network.
                let others = self.shards.iter_mut().enumerate().filter(|(other, _)| *other != nth);
                others.for_each(|(_, shard)| shard.db.take_signal(signal));
            }
            self.tell(nth, out);
            room -= 1;
        }
        self.shared.no_room.fetch_add(1, Ordering::Relaxed);
        self.shared.starved.store(true, Ordering::Release);
        self.posted = true;
        false
    }

    /// Gives shards without records back to the network, which frees them.
    fn give_back(&mut self) {
        if let Some(nth) = self.shards.iter().position(|shard| shard.retired && shard.held.is_none())
            && self.shards[0].out.slots() > 1
        {
            let shard = self.shards.remove(nth);
            self.tell(0, OwnerEvent::Retired(shard));
        }
    }
}

fn allocations() -> u64 {
    sys::alloc::thread_counts().map_or(0, |counts| counts.taken)
}
