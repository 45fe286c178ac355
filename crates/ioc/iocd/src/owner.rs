//! The thread that owns shards of the database. It runs their scans and, in between, does jobs for the network.
//!
//! It shares no lock with other threads. Jobs arrive through a bounded ring; answers and posts leave through another. If that
//! ring is full, jobs wait in their ring and posts wait in the database's queue, under the rules of EPICS and counted. The
//! thread does one job between two readings of the clock, and at most [`JOBS_MAX`] between two turns of callbacks.

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
use sys::rounds::{ROUND_EVERY, Rounds};

/// Maximum number of jobs of a shard before callbacks and posts are served.
const JOBS_MAX: usize = 64;
/// Maximum number of shards of one thread. Each costs some hundred nanoseconds per turn.
pub(crate) const SHARDS_MAX: usize = 64;

/// Data shared by an owner and the network, apart from the rings.
#[derive(Debug, Default)]
pub struct OwnerShared {
    pub(crate) bell: Bell,
    pub(crate) stop: AtomicBool,
    /// Whether the owner waits for room in the ring to the network.
    pub(crate) starved: AtomicBool,
    jobs: AtomicU64,
    no_room: AtomicU64,
    replaced: AtomicU64,
    allocations: AtomicU64,
    processed: AtomicU64,
    /// Rounds of the owner's loop, at least one per second.
    rounds: Rounds,
}

/// Counters of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounters {
    /// Jobs done for clients and commands.
    pub jobs: u64,
    /// Number of times that the ring to the network was full.
    pub no_room: u64,
    /// Posts replaced by newer ones before the network took them.
    pub replaced: u64,
    /// Allocations on the thread since it started; 0 if the program does not count them.
    pub allocations: u64,
    /// Records processed.
    pub processed: u64,
}

impl OwnerShared {
    /// With a counter of the rounds.
    pub(crate) fn counted(rounds: Rounds) -> Self {
        Self { rounds, ..Self::default() }
    }

    /// Current values of the counters.
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

/// State of an owner's thread.
pub(crate) struct Owner {
    /// The shards. The first one exists from the start.
    #[expect(clippy::vec_box, reason = "the boxes in which they travel: none is copied here")]
    shards: Vec<Box<Shard>>,
    scans: Scans,
    net: Waker,
    shared: Arc<OwnerShared>,
    posted: bool,
    /// Whether a shard that was served has new output.
    again: bool,
}

/// The network's ends of a shard's rings.
pub(crate) struct Ends {
    pub(crate) jobs: Producer<Box<Job>>,
    pub(crate) out: Consumer<OwnerEvent>,
    pub(crate) shared: Arc<OwnerShared>,
}

impl Owner {
    /// Creates an owner with its first shard. Also returns its scans, for reading their measurements.
    pub(crate) fn new(first: Shard, net: Waker, shared: Arc<OwnerShared>) -> (Self, Scans) {
        let mut scans = Scans::default();
        scans.plan(&first.db, now());
        let mut shards = Vec::with_capacity(SHARDS_MAX);
        shards.push(Box::new(first));
        (Self { shards, scans: scans.clone(), net, shared, posted: false, again: false }, scans)
    }

    /// Runs until it is stopped.
    ///
    /// Real-time: scanning neither allocates, locks nor blocks. Jobs do whatever clients and commands request.
    pub(crate) fn run(mut self) {
        self.scans.align(now());
        let before = allocations();
        while !self.shared.stop.load(Ordering::Acquire) {
            let more = self.turn();
            self.shared.rounds.count();
            let sum = |of: fn(&Shard) -> u64| self.shards.iter().map(|shard| of(shard)).sum();
            self.shared.allocations.store(allocations() - before, Ordering::Relaxed);
            self.shared.processed.store(sum(|shard| shard.db.counters().processed), Ordering::Relaxed);
            self.shared.replaced.store(sum(|shard| shard.db.replaced(shard.subs.queue)), Ordering::Relaxed);
            let shards = &self.shards;
            let records = |scan| shards.iter().map(|shard| shard.db.scanned(scan)).sum();
            let scans = self.scans.next(sys::clock::mono_now(), records);
            if !more {
                let until = self.shards.iter().map(|shard| shard.db.next_deadline());
                let round = sys::clock::mono_now() + ROUND_EVERY;
                let until = until.chain([scans]).flatten().fold(round, MonoNs::min);
                self.shared.bell.wait(Some(until));
            }
        }
    }

    /// Runs everything that is due, each kind in bounded amounts. Returns whether there is more.
    fn turn(&mut self) -> bool {
        let mut more = false;
        let mut nth = 0;
        // Jobs may append further shards.
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

    /// Serves feeds, jobs, callbacks and delays of one shard, each in bounded amounts. Returns whether there is more.
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
            // Posts of the job must be sent before its answer.
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

    /// Runs scans that are due, after `served` shards were served.
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
            // There is room, because the network counts the shards.
            OwnerRequest::Adopt(shard) => self.shards.extend(shard.take()),
            _ => self.shards[nth].do_job(job),
        }
    }

    fn tell(&mut self, nth: usize, out: OwnerEvent) {
        self.posted = true;
        // The push succeeds, because the free room was checked and this is the only producer.
        let pushed = self.shards[nth].out.push(out);
        debug_assert!(pushed.is_ok(), "a slot that was free");
    }

    /// Sends the results of processing, as far as there is room. Returns whether all are sent and there is room for an
    /// answer.
    fn hand_out(&mut self, nth: usize) -> bool {
        let mut room = self.shards[nth].out.slots();
        while room > 1 {
            let Some(out) = self.shards[nth].next_out() else { return true };
            if let OwnerEvent::Signal(signal) = &out {
                // Signals go directly to this thread's other shards, without the network.
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

    /// Returns shards without records to the network, which frees them.
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
