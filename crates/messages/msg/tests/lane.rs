//! One band of a message server with a simulated network and virtual time.

use base::{DurNs, MonoNs};
use msg::{
    Band, Code, Completion, Conn, Flags, Header, Kind, Lane, Limits, Reply, Route, Step, Subject, Tables, TextBuffer,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const CLIENTS: [Conn; 2] = [Conn { slot: 0, turn: 1 }, Conn { slot: 1, turn: 1 }];
/// The server's own user.
const OWNER: u32 = 1000;
const MANAGERS: [Conn; 2] = [Conn { slot: 2, turn: 1 }, Conn { slot: 3, turn: 1 }];
const OBJECTS: [&str; 3] = ["sr_mag_ps", "sr_rf", "nobody_here"];

/// The next step of a test.
#[derive(Clone, Debug)]
enum Step_ {
    /// A client sends a request. `ahead_us` is the time to its deadline in microseconds (0: none, 1: already past).
    Send { client: usize, object: usize, ahead_us: u64, full: bool },
    /// A manager takes its oldest request and answers it `times` times.
    Answer { manager: usize, times: usize },
    /// A manager answers an id that it never received.
    Invent { manager: usize, id: u64 },
    /// Time passes.
    Wait { us: u64 },
    /// A manager ends.
    Die { manager: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step_>> {
    let step = prop_oneof![
        6 => (0..2usize, 0..3usize, prop_oneof![Just(0u64), Just(1), 500..9_000_000u64], proptest::bool::weighted(0.1))
            .prop_map(|(client, object, ahead_us, full)| Step_::Send { client, object, ahead_us, full }),
        5 => (0..2usize, 0..3usize).prop_map(|(manager, times)| Step_::Answer { manager, times }),
        1 => (0..2usize, any::<u64>()).prop_map(|(manager, id)| Step_::Invent { manager, id }),
        3 => (0..3_000_000u64).prop_map(|us| Step_::Wait { us }),
        1 => (0..2usize).prop_map(|manager| Step_::Die { manager }),
    ];
    proptest::collection::vec(step, 0..120)
}

fn tables(alive: [bool; 2]) -> Arc<Tables> {
    // Without a rule, other users may only read.
    let mut tables = Tables::default();
    tables.rules.push("allow".parse().unwrap());
    for (at, prefix) in ["sr_mag", "sr"].into_iter().enumerate().filter(|(at, _)| alive[*at]) {
        let route = Route { prefix: prefix.into(), to: MANAGERS[at], manager: format!("manager{at}"), bands: 0xff };
        tables.add_route(route).unwrap();
    }
    Arc::new(tables)
}

/// A lane with its clients and managers, and the replies that it owes.
struct World {
    lane: Lane,
    line: TextBuffer,
    now: MonoNs,
    alive: [bool; 2],
    /// Requests that each manager has received and not answered.
    queues: [VecDeque<Header>; 2],
    /// Requests without a reply: client and id, with the deadline that the server must keep.
    owed: BTreeMap<(u32, u64), MonoNs>,
    next_id: u64,
}

impl World {
    fn new() -> Self {
        let limits = Limits { outstanding: 24, outstanding_each: 8, conns: 6, ..Limits::default() };
        let mut lane = Lane::new(limits, OWNER, tables([true; 2]));
        // The first two clients are different foreign users.
        CLIENTS.into_iter().zip([7, 8]).for_each(|(client, user)| lane.come(client, user));
        Self {
            lane,
            line: TextBuffer::new(),
            now: MonoNs(1_000_000_000_000),
            alive: [true; 2],
            queues: Default::default(),
            owed: BTreeMap::new(),
            next_id: 1,
        }
    }

    /// Records a reply: it must be owed, and carry a code.
    fn given(owed: &mut BTreeMap<(u32, u64), MonoNs>, done: &Completion<'_>, text: &str) -> Code {
        assert_eq!(done.header.kind, Kind::Reply);
        assert!(owed.remove(&(done.to.slot, done.header.id)).is_some(), "a reply without a waiting request: {done:?}");
        Reply::parse(text).unwrap().code
    }

    fn settle(&mut self) {
        while let Some(done) = self.lane.due(self.now, &mut self.line) {
            let code = Self::given(&mut self.owed, &done, self.line.text());
            assert_eq!(code, Code::Timeout);
        }
        // The deadline rule: at most one tick late.
        let tick = DurNs::from_ms(1);
        assert!(self.owed.values().all(|deadline| *deadline + tick > self.now), "a deadline was missed");
        assert_eq!(self.lane.outstanding(), self.owed.len());
    }

    fn step(&mut self, step: &Step_) {
        match *step {
            Step_::Send { client, object, ahead_us, full } => {
                let deadline = match ahead_us {
                    0 => None,
                    1 => Some(MonoNs(self.now.0 - 1)),
                    us => Some(MonoNs(self.now.0 + us * 1000)),
                };
                let id = self.next_id;
                self.next_id += 1;
                let subject = Subject { uid: 7, pid: 8, host: 0 };
                let header = Header { deadline, subject, ..Header::request(Band::DEFAULT, id) };
                let text = format!("put/{}/{id}", OBJECTS[object]);
                self.owed.insert((CLIENTS[client].slot, id), deadline.unwrap_or(self.now + DurNs::from_secs(5)));
                let passed = match self.lane.request(self.now, CLIENTS[client], &header, &text, &[], &mut self.line) {
                    Step::Done(done) => {
                        let code = Self::given(&mut self.owed, &done, self.line.text());
                        assert!(!code.may_have_happened(), "{code}");
                        assert!(deadline.is_none_or(|at| at > self.now) || code == Code::Expired);
                        None
                    }
                    Step::Forward { to, header } => Some((to, header)),
                };
                if let Some((to, header)) = passed {
                    assert!(header.deadline.is_some_and(|at| at > self.now), "expired requests are not passed on");
                    let at = MANAGERS.iter().position(|manager| *manager == to).unwrap();
                    assert!(self.alive[at]);
                    if full {
                        let done = self.lane.refused(header.id, None, &mut self.line).unwrap();
                        assert_eq!(Self::given(&mut self.owed, &done, self.line.text()), Code::Overload);
                    } else {
                        self.queues[at].push_back(header);
                    }
                }
            }
            Step_::Answer { manager, times } => {
                let Some(header) = self.queues[manager].pop_front() else { return };
                for _ in 0..times {
                    if let Some(done) = self.lane.reply(self.now, MANAGERS[manager], &header.reply(), "OK/1") {
                        Self::given(&mut self.owed, &done, "OK/1");
                    }
                }
            }
            Step_::Invent { manager, id } => {
                let theirs = self.queues[manager].iter().any(|header| header.id == id);
                let header = Header { kind: Kind::Reply, ..Header::request(Band::DEFAULT, id) };
                assert!(theirs || self.lane.reply(self.now, MANAGERS[manager], &header, "OK/").is_none());
            }
            Step_::Wait { us } => self.now = self.now + DurNs::from_us(us as i64),
            Step_::Die { manager } => {
                self.alive[manager] = false;
                self.queues[manager].clear();
                while let Some(done) = self.lane.gone(self.now, MANAGERS[manager], "it", &mut self.line) {
                    assert_eq!(Self::given(&mut self.owed, &done, self.line.text()), Code::Unknown);
                }
                drop(self.lane.replace(tables(self.alive)));
            }
        }
    }
}

proptest! {
    #[test]
    fn every_request_gets_exactly_one_reply_and_no_deadline_is_missed(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.settle();
        }
        world.now = world.now + DurNs::from_secs(60);
        world.settle();
        prop_assert!(world.owed.is_empty(), "without a reply: {:?}", world.owed);
    }

    #[test]
    fn requests_of_a_band_reach_a_manager_in_the_order_in_which_they_were_sent(count in 1usize..12) {
        let mut world = World::new();
        for at in 0..count {
            world.step(&Step_::Send { client: at % 2, object: 0, ahead_us: 0, full: false });
        }
        // The order of the original ids shows what was sent: replies in the managers' order return them.
        let mut last = 0;
        while let Some(header) = world.queues[0].pop_front() {
            let done = world.lane.reply(world.now, MANAGERS[0], &header.reply(), "OK/").unwrap();
            prop_assert!(done.header.id > last);
            last = done.header.id;
        }
        prop_assert_eq!(last, count as u64);
    }
}

#[test]
fn one_client_cannot_take_all_places_of_a_band() {
    let mut world = World::new();
    for _ in 0..10 {
        world.step(&Step_::Send { client: 0, object: 0, ahead_us: 0, full: false });
    }
    assert_eq!(world.queues[0].len(), 8);
    world.step(&Step_::Send { client: 1, object: 0, ahead_us: 0, full: false });
    assert_eq!(world.queues[0].len(), 9);
}

#[test]
fn one_user_with_many_clients_has_half_of_a_bands_places_and_the_refusal_has_its_reason() {
    let mut world = World::new();
    let clients: [Conn; 6] = std::array::from_fn(|slot| Conn { slot: slot as u32, turn: 2 });
    for (client, user) in clients.into_iter().zip([7, 7, 8, 9, OWNER, 0]) {
        world.lane.come(client, user);
    }
    let send = |world: &mut World, client: usize, times: u64| {
        let header = Header::request(Band::DEFAULT, 1);
        let ask = |_| match world.lane.request(world.now, clients[client], &header, "put/sr_rf/1", &[], &mut world.line)
        {
            Step::Forward { header, .. } => Some(header),
            Step::Done(_) => None,
        };
        (0..times).filter_map(ask).collect::<Vec<_>>()
    };
    assert_eq!((send(&mut world, 0, 8).len(), send(&mut world, 1, 8).len()), (8, 4));
    let why = "OVERLOAD/message server: user 7 has 12 of 24 requests outstanding on this band and 1 more are requested, \
               expected at most 12; take replies first";
    assert_eq!(world.line.text(), why);
    let third = send(&mut world, 2, 8);
    assert_eq!((third.len(), send(&mut world, 3, 8).len()), (6, 0), "foreign users together have three quarters");
    assert_eq!(
        (send(&mut world, 4, 8).len(), send(&mut world, 5, 1).len()),
        (6, 0),
        "requests of the server's own user find room until the last slot"
    );
    assert_eq!(world.lane.counters().over_share, 4 + 2 + 8 + 2 + 1);
    // A slot that one client's reply frees is available to another client.
    assert!(world.lane.reply(world.now, MANAGERS[1], &third[0].reply(), "OK/").is_some());
    assert_eq!(send(&mut world, 3, 2).len(), 1);
}

#[test]
fn answers_are_valued_by_their_lateness_and_a_request_ends_when_its_answer_has_no_value() {
    let world = |rule: &str| {
        let mut world = World::new();
        let mut tables = (*tables([true; 2])).clone();
        tables.deadlines = vec![rule.parse().unwrap(), "1ns firm objects=sr_*".parse().unwrap()];
        drop(world.lane.replace(Arc::new(tables)));
        world
    };
    // Sends a request, lets `after` pass, and answers. Returns whether a client was still waiting.
    let answer = |world: &mut World, after: DurNs| {
        let before = world.queues[0].len();
        world.step(&Step_::Send { client: 0, object: 0, ahead_us: 0, full: false });
        let header = world.queues[0].remove(before).unwrap();
        world.now = world.now + after;
        world.settle();
        world.lane.reply(world.now, MANAGERS[0], &header.reply(), "OK/1").is_some_and(|done| {
            World::given(&mut world.owed, &done, "OK/1");
            true
        })
    };
    let ms = DurNs::from_ms;
    let mut soft = world("5ms soft linear 100ms objects=sr_mag_*");
    assert!(answer(&mut soft, ms(5)) && answer(&mut soft, ms(30)), "in time, and late");
    let value = soft.lane.counters().value;
    assert_eq!((value.due, value.late, value.worth), (2, 1, 1_750_000));
    assert!(!answer(&mut soft, ms(300)), "it was answered without value");
    let value = soft.lane.counters().value;
    assert_eq!((value.due, value.late, value.worth, soft.lane.counters().hard_missed), (3, 2, 1_750_000, 0));
    for (kind, hard) in [("firm", 0), ("hard", 1)] {
        let mut world = world(&format!("5ms {kind} objects=sr_mag_*"));
        assert!(answer(&mut world, ms(1)) && !answer(&mut world, ms(200)), "{kind}: a late reply is not awaited");
        let counters = world.lane.counters();
        assert_eq!((counters.value.due, counters.value.late, counters.value.worth), (2, 1, 1_000_000), "{kind}");
        assert_eq!(counters.hard_missed, hard, "{kind}");
    }
    let mut other = world("5ms firm objects=somebody_else");
    other.step(&Step_::Send { client: 0, object: 0, ahead_us: 0, full: false });
    assert_eq!(other.lane.counters().value.due, 0, "not before it was answered");
}

#[test]
fn steps_of_the_system_clock_do_not_change_deadlines() {
    // The system clock steps, back to 1970 or beyond its range. Deadlines use a clock that never steps.
    for origin_unix_ns in [0, 1, 1_800_000_000_000_000_000, u64::MAX] {
        let mut world = World::new();
        let now = world.now;
        for (id, deadline) in [(1, now + DurNs::from_ms(5)), (2, MonoNs(u64::MAX)), (3, MonoNs(now.0 - 1))] {
            let header = Header { origin_unix_ns, deadline: Some(deadline), ..Header::request(Band::DEFAULT, id) };
            let step = world.lane.request(now, CLIENTS[0], &header, "put/sr_rf/1", &[], &mut world.line);
            match step {
                Step::Forward { to, header } => {
                    assert_eq!((to, header.deadline, id < 3), (MANAGERS[1], Some(deadline), true));
                }
                Step::Done(done) => {
                    assert_eq!(done.header.id, 3);
                    assert_eq!(Reply::parse(world.line.text()).unwrap().code, Code::Expired);
                }
            }
        }
        let later = now + DurNs::from_secs(3600);
        let due = world.lane.due(later, &mut world.line).map(|done| done.header.id);
        assert_eq!(due, Some(1));
        assert!(world.lane.due(later, &mut world.line).is_none(), "the other request has time left");
    }
}

#[test]
fn a_room_is_lost_if_its_request_ended_without_the_reply_of_its_manager() {
    let mut world = World::new();
    let (client, mut id, later) = (CLIENTS[0], 0, world.now + DurNs::from_secs(3600));
    let mut send = |world: &mut World, flags| {
        id += 1;
        let header = Header { flags, ..Header::request(Band::DEFAULT, id) };
        match world.lane.request(world.now, client, &header, "put/sr_rf/1", &[], &mut world.line) {
            Step::Forward { header, .. } => header,
            step => panic!("{step:?}"),
        }
    };
    for flags in [Flags::POOLED, Flags::NONE] {
        let header = send(&mut world, flags);
        assert!(world.lane.reply(world.now, MANAGERS[1], &header.reply(), "OK/1").is_some());
        let header = send(&mut world, flags);
        assert!(world.lane.refused(header.id, None, &mut world.line).is_some());
        assert!(!world.lane.has_lost_rooms(client), "no client has them");
        let lost = flags == Flags::POOLED;
        send(&mut world, flags);
        assert!(world.lane.due(later, &mut world.line).is_some());
        assert_eq!([(); 2].map(|()| world.lane.has_lost_rooms(client)), [lost, false], "reported once");
        send(&mut world, flags);
        assert!(world.lane.gone(world.now, MANAGERS[1], "it", &mut world.line).is_some());
        assert!(world.lane.gone(world.now, MANAGERS[1], "it", &mut world.line).is_none());
        assert_eq!(world.lane.has_lost_rooms(client), lost);
        send(&mut world, flags);
        assert!(world.lane.gone(world.now, client, "it", &mut world.line).is_none());
        assert_eq!(world.lane.has_lost_rooms(client), lost);
    }
}
