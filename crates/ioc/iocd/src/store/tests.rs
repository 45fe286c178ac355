//! Runs the same script with a field of the housekeeping shard and a field of a scan group's owner, which the test simulates.

use super::*;
use crate::groups::divide;
use crate::job::OwnerEvent;
use crate::owner::{Ends, OwnerShared};
use crate::scans::{Scans, scan_one};
use db::Macros;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;

const PEER: Peer<'_> = Peer { user: "ann", host: "desk", address: "10.0.0.9:4000" };
const TOKEN: Token = Token(7);

const RECORDS: &str = r#"
record(ao, "here") {}
record(ao, "there") { field(SCAN, ".1 second") }
record(stringout, "there:text") { field(SCAN, ".1 second") }
record(waveform, "there:w") { field(SCAN, ".1 second") field(FTVL, "LONG") field(NELM, "8") }
"#;

/// A simulated owner of a scan group, without a thread.
struct Owner {
    db: Db,
    subs: Subscriptions,
    jobs: Consumer<Box<Job>>,
    out: Producer<OwnerEvent>,
}

impl Owner {
    fn turn(&mut self, now: Now) {
        self.hand_out();
        while let Ok(mut job) = self.jobs.pop() {
            job.outcome = execute(&mut self.db, &mut self.subs, &mut job.request, &mut job.reading, now);
            self.hand_out();
            assert!(self.out.push(OwnerEvent::Done(job)).is_ok());
        }
    }

    fn hand_out(&mut self) {
        while let Some((_, db::Posted { token: key, value, alarm, stamp, note, mask })) =
            self.db.next_posted(self.subs.queue)
        {
            assert!(self.out.push(OwnerEvent::Post { key, value, alarm, stamp, note, mask }).is_ok());
        }
    }

    fn scan(&mut self, now: Now) {
        let mut scans = Scans::default();
        scans.plan(&self.db, now);
        scan_one(&mut self.db, scans.clocks()[0].index, now);
    }
}

/// A store with a simulated owner, and the answers received so far.
pub(super) struct Ioc {
    pub(super) store: Store,
    owner: Owner,
    posts: Vec<(u64, Value)>,
    readings: Vec<Value>,
    puts: Vec<PutOutcome>,
}

impl Ioc {
    pub(super) fn new() -> Self {
        let mut db = Db::new();
        db.load_records(RECORDS, "test.db", &Macros::default(), &mut |_| None).unwrap();
        let shard = divide(&mut db, &mut [".1 second=other".parse().unwrap()]).unwrap().remove(0);
        db.init(Now::default());
        let mut store = Store::new(db);
        let (to, jobs) = RingBuffer::new(64);
        let (out, from) = RingBuffer::new(64);
        let ends = Ends { jobs: to, out: from, shared: Arc::new(OwnerShared::default()) };
        store.shards.push(ShardPort::new("scans".into(), 0, ends, Scans::default()));
        let mut db = shard;
        let queue = db.open_queue(QUEUE_ROOM);
        let owner = Owner { db, subs: Subscriptions::new(queue, 0), jobs, out };
        Self { store, owner, posts: Vec::new(), readings: Vec::new(), puts: Vec::new() }
    }

    fn open(&mut self, name: &str) -> u64 {
        self.store.open(name.as_bytes(), PEER).unwrap().handle
    }

    /// Processes a record of the owner as its scan does.
    pub(super) fn scan(&mut self) {
        self.owner.scan(self.store.now);
    }

    /// Writes a field on its owner's thread.
    pub(super) fn put_there(&mut self, name: &str, value: Value) {
        let channel = self.owner.db.find(name).unwrap();
        self.owner.db.put(&channel, &value, self.store.now).unwrap();
    }

    /// Reads a field on its owner's thread.
    pub(super) fn get_there(&mut self, name: &str) -> Value {
        let channel = self.owner.db.find(name).unwrap();
        self.owner.db.get(&channel, usize::MAX)
    }

    /// Does the engine's work until nothing is left.
    pub(super) fn settle(&mut self) {
        loop {
            let posts = self.store.take_posts();
            self.posts.extend(posts.iter().map(|post| (post.watch, post.value.clone())));
            posts.iter().for_each(|post| self.store.posted_to_groups(post));
            self.store.recycle(posts);
            self.owner.turn(self.store.now);
            let mut taken = Vec::new();
            self.store.shards[0].take(&mut taken);
            if taken.is_empty() {
                return;
            }
            taken.into_iter().for_each(|out| self.take(out));
        }
    }

    fn take(&mut self, out: OwnerEvent) {
        let post = match out {
            OwnerEvent::Post { key, value, alarm, stamp, note, mask } => {
                self.store.posted(key, mask, value, (alarm, stamp, note))
            }
            OwnerEvent::Done(job) => match (job.requester, &job.outcome) {
                (Requester::Group(call), _) => {
                    self.store.group_done(call, *job);
                    None
                }
                (Requester::Client(TOKEN), JobResult::Read(read)) => {
                    assert!(read.is_ok());
                    self.readings.push(job.reading.value);
                    None
                }
                (Requester::Client(TOKEN), JobResult::Write(put)) => {
                    self.puts.push(*put);
                    None
                }
                (Requester::Watch { key, mask }, JobResult::Read(_)) => self.store.fetched(key, mask, job),
                _ => None,
            },
            _ => None,
        };
        post.iter().for_each(|post| self.store.posted_to_groups(post));
        self.posts.extend(post.map(|post| (post.watch, post.value)));
    }

    fn read(&mut self, handle: u64) -> Value {
        let mut reading = Reading::default();
        if self.store.read(handle, Needs::All, &mut reading, Some(TOKEN)).unwrap() == Get::Done {
            return reading.value;
        }
        self.settle();
        self.readings.pop().unwrap()
    }

    fn write(&mut self, handle: u64, value: Value) -> PutOutcome {
        match self.store.write(handle, PEER, Write::Value(value), TOKEN, false) {
            PutOutcome::Sent => {
                self.settle();
                self.puts.pop().unwrap()
            }
            put => put,
        }
    }
}

#[test]
fn a_field_is_read_written_and_watched_in_the_same_way_for_any_owner() {
    for name in ["here.ADEL", "there.ADEL"] {
        let mut ioc = Ioc::new();
        let handle = ioc.open(name);
        assert_eq!(ioc.write(handle, Value::from(2.5)), PutOutcome::Done, "{name}");
        assert_eq!(ioc.read(handle), Value::from(2.5), "{name}");
        assert!(ioc.store.watch(handle), "{name}: the value of now is sent");
        ioc.settle();
        assert_eq!(ioc.posts, [], "{name}");
        for value in [3.5, 4.5] {
            ioc.write(handle, Value::from(value));
        }
        ioc.settle();
        assert_eq!(ioc.posts, [(handle, Value::from(3.5)), (handle, Value::from(4.5))], "{name}");
        let mut known = Reading::default();
        assert_eq!(ioc.store.read(handle, Needs::Value, &mut known, None), Ok(Get::Done), "{name}");
        assert_eq!(known.value, Value::from(4.5), "{name}");
        ioc.store.unwatch(handle);
        ioc.write(handle, Value::from(5.5));
        ioc.settle();
        assert_eq!(ioc.posts.len(), 2, "{name}: no watcher remains");
    }
}

#[test]
fn elements_posted_faster_than_they_are_fetched_are_fetched_once_more() {
    let mut ioc = Ioc::new();
    let handle = ioc.open("there:w");
    ioc.store.watch(handle);
    ioc.settle();
    ioc.write(handle, Value::from(vec![1, 2, 3]));
    for _ in 0..3 {
        ioc.owner.scan(Now::default());
        ioc.owner.turn(Now::default());
        let mut taken = Vec::new();
        ioc.store.shards[0].take(&mut taken);
        // The posts arrive before the answers.
        taken.into_iter().for_each(|out| ioc.take(out));
    }
    ioc.settle();
    let elements = Value::from(vec![1, 2, 3]);
    assert!(!ioc.posts.is_empty() && ioc.posts.iter().all(|post| *post == (handle, elements.clone())));
}

#[test]
fn answers_for_a_closed_field_reach_no_other_field() {
    let mut ioc = Ioc::new();
    let old = ioc.open("there.ADEL");
    ioc.store.watch(old);
    ioc.store.unwatch(old);
    ioc.store.close(old);
    let new = ioc.open("there.MDEL");
    assert_eq!(new, old, "the handle is reused");
    ioc.settle();
    let mut reading = Reading::default();
    assert_eq!(ioc.store.read(new, Needs::Value, &mut reading, None), Err(Eca::GETFAIL), "no value is known");
}

#[test]
fn a_read_fails_while_the_owner_of_its_field_has_not_answered() {
    let mut ioc = Ioc::new();
    let (here, there) = (ioc.open("here"), ioc.open("there"));
    let mut reading = Reading::default();
    assert_eq!(ioc.store.read(here, Needs::Value, &mut reading, None), Ok(Get::Done));
    assert_eq!(ioc.store.read(there, Needs::Value, &mut reading, None), Err(Eca::GETFAIL));
}
