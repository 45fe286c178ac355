//! The thread "devices": passes requests of records to their devices.

use super::RecordDevice;
use crate::engine::now;
use crate::feed::{self, Feed, Feeder};
use base::{DurNs, MonoNs, Status};
use db::{Db, DeviceSample, Output, RecId, Request};
use rtrb::{Consumer, Producer, RingBuffer};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use sys::bell::Bell;
use sys::rounds::{ROUND_EVERY, Rounds};

/// Maximum number of requests in transit from one owner. Further requests wait in its database.
const REQUESTS_ROOM: usize = 4_096;
/// Maximum number of deliveries in transit to one owner.
const DELIVERIES_ROOM: usize = 16_384;
/// Ring sizes of one shard.
struct Room {
    requests: usize,
    deliveries: usize,
}

/// Ring sizes of an owner's first shard.
const ALL_ROOM: Room = Room { requests: REQUESTS_ROOM, deliveries: DELIVERIES_ROOM };
/// Maximum number of deliveries in transit of a record with a thread of its own.
const OWN_ROOM: usize = 256;
/// Time between two checks of the ports.
const WATCH_EVERY: DurNs = DurNs::from_secs(1);
/// Delay before an owner without room is tried again.
const AGAIN: DurNs = DurNs::from_ms(5);

/// A panic while the lock is held cannot leave the protected data inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// Deliveries to one owner, shared by the threads that answer its records. None of them is a real-time thread.
struct Outlet {
    feeder: Feeder,
    /// Answers that found no room. A record waits for each. At most one per record.
    held: VecDeque<(RecId, DeviceSample)>,
}

impl Outlet {
    fn flush(&mut self) -> bool {
        while let Some((record, fed)) = self.held.pop_front() {
            if let Err(fed) = self.feeder.answer_or_refuse(record, fed) {
                self.held.push_front((record, fed));
                return false;
            }
        }
        true
    }
}

/// Ring ends for the thread that owns a shard.
pub(crate) struct OwnerEnds {
    /// The first is shared by the threads that answer; each other one belongs to a thread.
    pub(crate) feeds: Vec<Feed>,
    pub(crate) requests: Requests,
    pub(crate) wake: WakeSlot,
}

/// Wakes an owner, once it runs.
#[derive(Clone, Default)]
pub(crate) struct WakeSlot(Arc<OnceLock<Wake>>);

impl WakeSlot {
    pub(crate) fn set(&self, wake: impl Fn() + Send + Sync + 'static) {
        // An owner starts once.
        let _ = self.0.set(Box::new(wake));
    }

    fn wake(&self) {
        if let Some(wake) = self.0.get() {
            wake();
        }
    }
}

/// The owner's end of the request ring.
pub(crate) struct Requests {
    to: Producer<Request>,
    hub: Arc<Bell>,
}

impl Requests {
    /// Sends records' requests to the devices thread. Requests without room stay in the database.
    ///
    /// Real-time: neither allocates nor blocks.
    pub(crate) fn hand_on(&mut self, db: &mut Db) {
        let mut any = false;
        while !self.to.is_full()
            && let Some(request) = db.next_request()
        {
            // The push succeeds, because the free room was checked and this is the only producer.
            any |= self.to.push(request).is_ok();
        }
        if any {
            self.hub.ring();
        }
    }
}

struct Owner {
    requests: Consumer<Request>,
    outlet: Arc<Mutex<Outlet>>,
}

struct Record {
    device: Option<Box<dyn RecordDevice>>,
    /// The ring of its own thread, if it has one.
    own: Option<Arc<Mutex<Outlet>>>,
    started: bool,
    /// End of its current period.
    due: Option<MonoNs>,
}

#[derive(Default)]
struct Inside {
    owners: HashMap<usize, Owner>,
    /// Ring ends not taken by their owners yet.
    ends: HashMap<usize, OwnerEnds>,
    records: HashMap<(usize, RecId), Record>,
    /// Records to be started.
    fresh: Vec<(usize, RecId)>,
    /// Ends of periods. An entry that differs from the record's `due` is outdated.
    timers: BinaryHeap<Reverse<(MonoNs, usize, RecId)>>,
}

/// All records with devices.
pub struct Hub {
    bell: Arc<Bell>,
    stop: AtomicBool,
    inside: Mutex<Inside>,
}

/// Answers one request. A request dropped without an answer fails with COMM.
pub struct Reply {
    outlet: Arc<Mutex<Outlet>>,
    record: RecId,
    sent: bool,
}

/// Delivers values that the record did not request. They process the record if its SCAN is `I/O Intr`.
#[derive(Clone)]
pub struct Interrupt {
    outlet: Arc<Mutex<Outlet>>,
    record: RecId,
    /// Whether no other record uses the ring.
    own: bool,
}

impl Reply {
    /// Sends the answer.
    pub fn send(mut self, fed: DeviceSample) {
        self.answer(fed);
    }

    /// The request needs no answer: no record waits for it.
    pub(super) fn withdraw(mut self) {
        self.sent = true;
    }

    fn answer(&mut self, fed: DeviceSample) {
        self.sent = true;
        let mut outlet = lock(&self.outlet);
        outlet.held.push_back((self.record, fed));
        outlet.flush();
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.sent {
            self.answer(DeviceSample::failed(Status::Comm));
        }
    }
}

impl Interrupt {
    /// Whether the record has a ring of its own ([`RecordDevice::has_thread`]): a real-time thread then waits for no lock.
    pub(super) const fn is_own(&self) -> bool {
        self.own
    }

    /// Delivers a new value. Returns whether the owner had room; if not, the value is refused and counted.
    pub fn feed_or_refuse(&self, fed: DeviceSample) -> bool {
        lock(&self.outlet).feeder.feed_record_or_refuse(self.record, fed)
    }
}

impl Interrupt {
    /// Sets the initial value of an output record. Returns whether the owner had room; if not, the value is refused and
    /// counted.
    pub fn start_or_refuse(&self, fed: DeviceSample) -> bool {
        lock(&self.outlet).feeder.start_or_refuse(self.record, fed)
    }

    /// Sets the value of an output record after a connect. Returns whether the owner had room; if not, the value is refused
    /// and counted.
    pub fn refresh_or_refuse(&self, fed: DeviceSample) -> bool {
        lock(&self.outlet).feeder.refresh_or_refuse(self.record, fed)
    }
}

impl Hub {
    pub(super) fn new() -> Self {
        Self { bell: Arc::new(Bell::new()), stop: AtomicBool::new(false), inside: Mutex::default() }
    }

    /// The rings to and from an owner, created if necessary.
    fn owner<'a>(&self, inside: &'a mut Inside, shard: usize, room: Room) -> &'a Owner {
        let Inside { owners, ends, .. } = inside;
        owners.entry(shard).or_insert_with(|| {
            let wake = WakeSlot::default();
            let (to, requests) = RingBuffer::new(room.requests);
            let woken = wake.clone();
            let (feeder, feed) = feed::ring(room.deliveries, Box::new(move || woken.wake()));
            ends.insert(
                shard,
                OwnerEnds { feeds: vec![feed], requests: Requests { to, hub: self.bell.clone() }, wake },
            );
            Owner { requests, outlet: Arc::new(Mutex::new(Outlet { feeder, held: VecDeque::new() })) }
        })
    }

    /// Ring ends for the owner of a shard. Each can be taken once.
    ///
    /// # Panics
    /// If they were taken before.
    pub(crate) fn ends(&self, shard: usize) -> OwnerEnds {
        let mut inside = lock(&self.inside);
        self.owner(&mut inside, shard, ALL_ROOM);
        inside.ends.remove(&shard).expect("each owner takes its ends once")
    }

    /// Creates the rings of a shard with `records` records. Call it before its records start.
    pub(crate) fn open(&self, shard: usize, records: usize) {
        let room = |most: usize, each: usize| most.min(16 + each * records);
        let room = Room { requests: room(REQUESTS_ROOM, 1), deliveries: room(DELIVERIES_ROOM, 8) };
        self.owner(&mut lock(&self.inside), shard, room);
    }

    /// Removes a shard that has no records left.
    pub(crate) fn close(&self, shard: usize) {
        let mut inside = lock(&self.inside);
        inside.owners.remove(&shard);
        inside.ends.remove(&shard);
        inside.records.retain(|(of, _), _| *of != shard);
    }

    pub(super) fn attach(&self, shard: usize, record: RecId, device: Box<dyn RecordDevice>) {
        let mut inside = lock(&self.inside);
        self.owner(&mut inside, shard, ALL_ROOM);
        // Not after the owner has taken its ends: records loaded at run time share the first ring.
        let own = inside.ends.get_mut(&shard).filter(|_| device.has_thread()).map(|ends| {
            let woken = ends.wake.clone();
            let (feeder, feed) = feed::ring(OWN_ROOM, Box::new(move || woken.wake()));
            ends.feeds.push(feed);
            Arc::new(Mutex::new(Outlet { feeder, held: VecDeque::new() }))
        });
        inside.records.insert((shard, record), Record { device: Some(device), own, started: false, due: None });
        inside.fresh.push((shard, record));
        drop(inside);
        self.bell.ring();
    }

    pub(super) fn detach(&self, shard: usize, record: RecId) {
        lock(&self.inside).records.remove(&(shard, record));
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Main loop of the thread. `watch` is called once per [`WATCH_EVERY`] while it returns true, otherwise in each round.
    pub(super) fn run(&self, rounds: &Rounds, mut watch: impl FnMut(MonoNs) -> bool) {
        let mut watch_at = MonoNs(0);
        while !self.stop.load(Ordering::Acquire) {
            rounds.count();
            let next = self.turn();
            let instant = now().mono;
            if instant >= watch_at && watch(instant) {
                watch_at = instant + WATCH_EVERY;
            }
            let round = instant + ROUND_EVERY;
            let watch_at = Some(watch_at).filter(|at| *at > instant);
            self.bell.wait(next.into_iter().chain(watch_at).chain([round]).min());
        }
        lock(&self.inside).records.clear();
    }

    /// Starts records, sends requests and polls devices that are due. Returns the time of the next action.
    fn turn(&self) -> Option<MonoNs> {
        let fresh = std::mem::take(&mut lock(&self.inside).fresh);
        for key in fresh {
            self.with(key, |record, interrupt| {
                let Some(device) = &mut record.device else { return };
                if !std::mem::replace(&mut record.started, true) {
                    device.start(now(), interrupt);
                }
                record.due = device.period().map(|_| now().mono);
            });
        }
        while let Some((shard, request)) = self.next_request() {
            let Request { record, output, initial } = request;
            let Some(outlet) = lock(&self.inside).owners.get(&shard).map(|owner| owner.outlet.clone()) else {
                continue;
            };
            let reply = Reply { outlet, record, sent: false };
            self.ask((shard, record), initial, output, reply);
        }
        self.poll();
        let mut inside = lock(&self.inside);
        let mut next = inside.timers.peek().map(|Reverse((due, ..))| *due);
        for owner in inside.owners.values_mut() {
            if !lock(&owner.outlet).flush() {
                next = [next, Some(now().mono + AGAIN)].into_iter().flatten().min();
            }
        }
        next
    }

    /// Polls the devices that are due.
    fn poll(&self) {
        let instant = now().mono;
        loop {
            let key = {
                let mut inside = lock(&self.inside);
                let Some(Reverse((due, shard, record))) = inside.timers.peek().copied() else { return };
                if due > instant {
                    return;
                }
                inside.timers.pop();
                let confirmed = inside.records.get(&(shard, record)).is_some_and(|known| known.due == Some(due));
                confirmed.then_some((shard, record))
            };
            let Some(key) = key else { continue };
            self.with(key, |record, _| {
                let Some(device) = &mut record.device else { return };
                device.poll(now());
                // Missed periods are skipped; the phase is kept.
                record.due = device.period().zip(record.due).map(|(period, due)| {
                    let period = period.max(DurNs::from_ms(1));
                    let behind = (now().mono - due).0.max(0) / period.0 + 1;
                    due + DurNs(period.0 * behind)
                });
            });
        }
    }

    fn next_request(&self) -> Option<(usize, Request)> {
        let mut inside = lock(&self.inside);
        inside.owners.iter_mut().find_map(|(shard, owner)| owner.requests.pop().ok().map(|request| (*shard, request)))
    }

    fn ask(&self, key: (usize, RecId), initial: bool, output: Option<Output>, reply: Reply) {
        let mut asked = Some((output, reply));
        self.with(key, |record, _| {
            if let (Some(device), Some((output, reply))) = (&mut record.device, asked.take()) {
                match initial {
                    true => device.request_initial(now(), output, reply),
                    false => device.request(now(), output, reply),
                }
            }
        });
    }

    /// Runs `work` with a record's device, which is taken out meanwhile, because the record may get a new address at any
    /// time.
    fn with(&self, key: (usize, RecId), work: impl FnOnce(&mut Record, Interrupt)) {
        let (mut record, outlet, before) = {
            let mut inside = lock(&self.inside);
            let Some(outlet) = inside.owners.get(&key.0).map(|owner| owner.outlet.clone()) else { return };
            let Some(record) = inside.records.get_mut(&key) else { return };
            let (device, own) = (record.device.take(), record.own.clone());
            let taken = Record { device, own, started: record.started, due: record.due };
            let before = taken.due;
            (taken, outlet, before)
        };
        if record.device.is_none() {
            return;
        }
        let interrupt = match &record.own {
            Some(own) => Interrupt { outlet: own.clone(), record: key.1, own: true },
            None => Interrupt { outlet, record: key.1, own: false },
        };
        work(&mut record, interrupt);
        let mut inside = lock(&self.inside);
        if let Some(place) = inside.records.get_mut(&key)
            && place.device.is_none()
        {
            *place = record;
            if let Some(due) = place.due.filter(|due| Some(*due) != before) {
                inside.timers.push(Reverse((due, key.0, key.1)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// A device with a thread, which passes its interrupt on.
    struct Threaded(Sender<Interrupt>);

    impl RecordDevice for Threaded {
        fn start(&mut self, _: db::Now, interrupt: Interrupt) {
            self.0.send(interrupt).unwrap();
        }

        fn has_thread(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_device_with_a_thread_has_a_ring_of_its_own_unless_it_is_loaded_at_run_time() {
        let (hub, (sender, started)) = (Hub::new(), channel());
        let attach = |record| hub.attach(1, RecId(record), Box::new(Threaded(sender.clone())));
        attach(1);
        let mut ends = hub.ends(1);
        assert_eq!(ends.feeds.len(), 2);
        attach(2);
        hub.turn();
        let [early, late] = [(); 2].map(|()| started.recv().unwrap());
        assert_eq!([early.is_own(), late.is_own()], [true, false]);
        assert!(early.feed_or_refuse(DeviceSample::failed(Status::Comm)));
        // The second ring ends with its record and its thread.
        assert!(!ends.feeds[1].is_over());
        drop((early, hub));
        let mut db = Db::new();
        db.load_records(
            "record(longin, \"a\") {} record(longin, \"b\") {}",
            "a.db",
            &db::Macros::default(),
            &mut |_| None,
        )
        .unwrap();
        ends.feeds[1].take(&mut db);
        assert!(ends.feeds[1].is_over() && !ends.feeds[0].is_over());
        drop(late);
        assert!(ends.feeds[0].is_over());
    }
}
