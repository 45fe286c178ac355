//! Client and server connected by a simulated network in virtual time. Datagrams are lost, duplicated and reordered,
//! connections break, readers are slow.

use super::*;
use crate::search::{self, SearchCounters};
use crate::server::{self, Backend, Get, Limits, Opened, Peer, Post, PutOutcome, Server, Token, Write};
use base::{Alarm, Annotation, Scalar, Stamp};
use proptest::prelude::*;

const SERVER: Address = Address { ip: 0x7F00_0001, port: 5064 };

/// Values of the variables, and the rights of clients.
struct Values(Vec<Value>, Access);

const ALL: Access = Access { read: true, write: true };

impl Backend for Values {
    fn exists(&mut self, name: &[u8]) -> bool {
        index(name).is_some_and(|index| index < self.0.len())
    }
    fn open(&mut self, name: &[u8], _: Peer<'_>) -> Option<Opened> {
        let index = index(name).filter(|index| *index < self.0.len())?;
        Some(Opened {
            handle: index as u64,
            watch: index as u64,
            native: Basic::native_of(self.0[index].kind()),
            count: self.0[index].len() as u32,
            access: self.1,
            posted: true,
            lane: 0,
        })
    }
    fn access(&mut self, _: u64, _: Peer<'_>) -> Access {
        self.1
    }

    fn record_name(&self, _: u64) -> &str {
        "record"
    }
    fn close(&mut self, _: u64) {}
    fn read(
        &mut self,
        handle: u64,
        _: crate::encode::Needs,
        reading: &mut Reading,
        _: Option<Token>,
    ) -> Result<Get, Eca> {
        reading.value = self.0[handle as usize].clone();
        Ok(Get::Done)
    }
    fn write(&mut self, handle: u64, _: Peer<'_>, write: Write, _: Token, _: bool) -> PutOutcome {
        let Write::Value(value) = write else { return PutOutcome::Failed };
        self.0[handle as usize] = value;
        PutOutcome::Done
    }
    fn forget(&mut self, _: Token) {}
    fn watch(&mut self, _: u64) -> bool {
        true
    }
    fn unwatch(&mut self, _: u64) {}
}

fn index(name: &[u8]) -> Option<usize> {
    std::str::from_utf8(name).ok()?.strip_prefix("pv")?.parse().ok()
}

/// Both ends and the connections between them.
struct Pair {
    now: MonoNs,
    client: Client,
    server: Server,
    values: Values,
    /// Open connections: the client's number and the server's.
    links: Vec<(CircuitId, server::CircuitId)>,
    datagrams: Vec<Vec<u8>>,
    random: u64,
    /// Percentage of datagrams that are lost.
    loss: u64,
    /// Number of bytes that pass at once.
    chunk: usize,
    up: bool,
    events: Vec<Event>,
}

impl Pair {
    fn new(count: usize, seed: u64, loss: u64) -> Self {
        Self {
            now: MonoNs(1),
            client: Client::new(ClientConfig { user: "me".into(), host: "here".into(), ..ClientConfig::default() }),
            server: Server::new(Limits { out_bytes: 2048, ..Limits::default() }),
            values: Values((0..count).map(|n| Value::from(n as f64)).collect(), ALL),
            links: Vec::new(),
            datagrams: Vec::new(),
            random: seed | 1,
            loss,
            chunk: 64,
            up: true,
            events: Vec::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// One round: all connections transfer some bytes, then time advances to the next timer.
    fn step(&mut self) {
        while let Some(datagram) = self.client.poll_datagram(self.now) {
            self.datagrams.push(datagram);
        }
        let mut replies = Vec::new();
        while !self.datagrams.is_empty() {
            let pick = self.random(self.datagrams.len() as u64) as usize;
            let datagram = self.datagrams.swap_remove(pick);
            let (lost, doubled) = (self.random(100) < self.loss, self.random(100) < 10);
            for _ in 0..if lost || !self.up { 0 } else { 1 + usize::from(doubled) } {
                let values = &mut self.values;
                search::answer(
                    &datagram,
                    Address { ip: 0, ..SERVER },
                    &mut SearchCounters::default(),
                    |name| values.exists(name),
                    |out| {
                        replies.push(out.to_vec());
                    },
                );
            }
        }
        for reply in replies {
            if self.random(100) >= self.loss {
                self.client.handle_datagram(self.now, SERVER, &reply);
            }
        }
        while let Some((id, _)) = self.client.poll_connect() {
            if self.up {
                self.links.push((id, self.server.accept("here")));
                self.client.connected_to(self.now, id);
            } else {
                self.client.closed(self.now, id);
            }
        }
        for (here, there) in self.links.clone() {
            let out: Vec<u8> = self.client.output(here).iter().copied().take(self.chunk).collect();
            self.client.sent(here, out.len());
            self.server.handle_bytes(self.now, there, &out, &mut self.values);
            let back: Vec<u8> = self.server.output(there).iter().copied().take(self.chunk).collect();
            self.server.sent(self.now, there, back.len(), &mut self.values);
            if !back.is_empty() {
                self.client.handle_bytes(self.now, here, &back);
            }
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push(event);
        }
        self.now = self.now + DurNs::from_ms(1);
        self.client.handle_timeout(self.now);
    }

    fn run(&mut self, rounds: usize) {
        (0..rounds).for_each(|_| self.step());
    }

    fn run_until(&mut self, rounds: usize, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..rounds {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("not done after {rounds} rounds: {:?}", self.events.last());
    }

    fn crash(&mut self) {
        self.up = false;
        for (here, there) in std::mem::take(&mut self.links) {
            self.server.close(there, &mut self.values);
            self.client.closed(self.now, here);
        }
    }

    fn post(&mut self, watch: u64, value: f64) {
        self.values.0[watch as usize] = Value::from(value);
        let (alarm, stamp) = (Alarm::NONE, Stamp::EPOCH);
        let post =
            Post { watch, mask: EventMask::VALUE, alarm, stamp, note: Annotation::NONE, value: Value::from(value) };
        self.server.post(&post, &mut self.values);
    }

    fn updates(&self) -> Vec<f64> {
        let each = self.events.iter().filter_map(|event| match event {
            Event::Update { result: Ok((_, reading)), .. } => reading.value.get(0)?.to_f64(),
            _ => None,
        });
        each.collect()
    }

    fn connected(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Connected(_))).count()
    }
}

const DOUBLE: Dbr = Dbr::plain(Basic::Double);

#[test]
fn every_channel_is_found_through_loss_and_reordering() {
    for seed in 1..20 {
        let mut pair = Pair::new(200, seed * 7919, 40);
        for n in 0..200 {
            pair.client.channel(pair.now, &format!("pv{n}"), 0);
        }
        pair.chunk = 4096;
        pair.run_until(20_000, |pair| pair.connected() == 200);
        assert_eq!(pair.links.len(), 1, "one circuit for all");
    }
}

#[test]
fn writes_and_reads_of_a_channel_complete_in_order() {
    let mut pair = Pair::new(1, 5, 0);
    let id = pair.client.channel(pair.now, "pv0", 0);
    pair.run_until(1000, |pair| pair.client.info(id).is_some());
    assert_eq!(pair.client.info(id).map(|info| (info.native, info.count)), Some((Basic::Double, 1)));
    pair.client.write(id, &Value::from(7.5), true).unwrap();
    pair.client.read(id, DOUBLE, 0).unwrap();
    assert_eq!(pair.client.read(id, DOUBLE, 2), Err(RequestError::BadCount));
    pair.run(50);
    let ended: Vec<&Event> = pair.events.iter().filter(|event| !matches!(event, Event::Connected(_))).collect();
    assert!(matches!(ended[0], Event::Written { result: Ok(()), .. }), "{ended:?}");
    let Event::Read { result: Ok((_, reading)), .. } = ended[1] else { panic!("{ended:?}") };
    assert_eq!(reading.value, Value::Scalar(Scalar::F64(7.5)));
}

#[test]
fn subscriptions_are_restored_after_the_server_returns() {
    let mut pair = Pair::new(1, 3, 20);
    let id = pair.client.channel(pair.now, "pv0", 5);
    pair.client.subscribe(id, DOUBLE, 0, EventMask::VALUE);
    pair.run_until(5000, |pair| !pair.updates().is_empty());
    pair.client.read(id, DOUBLE, 0).unwrap();
    pair.crash();
    pair.run(100);
    assert!(pair.events.iter().any(|event| matches!(event, Event::Disconnected(_))));
    assert!(pair.events.iter().any(|event| matches!(event, Event::Read { result: Err(Eca::DISCONN), .. })));
    pair.up = true;
    pair.run_until(60_000, |pair| pair.connected() == 2);
    pair.events.clear();
    pair.run(100);
    pair.post(0, 4.25);
    pair.run(100);
    assert_eq!(pair.updates().last(), Some(&4.25));
}

#[test]
fn requests_of_a_channel_end_with_it_and_those_of_other_channels_complete() {
    let mut pair = Pair::new(2, 3, 0);
    let [gone, stays] = ["pv0", "pv1"].map(|name| pair.client.channel(pair.now, name, 0));
    pair.run_until(1000, |pair| pair.connected() == 2);
    pair.events.clear();
    let mut ask = |id| {
        pair.client.subscribe(id, DOUBLE, 0, EventMask::VALUE);
        pair.client.write(id, &Value::from(1.0), true).unwrap();
        pair.client.read(id, DOUBLE, 0).unwrap()
    };
    let [_, read] = [gone, stays].map(&mut ask);
    pair.client.clear(gone);
    pair.run(50);
    let ended = |event: &Event| match event {
        Event::Read { io, channel, result: Ok(_) } => Some((*channel, Some(*io))),
        Event::Written { channel, result: Ok(()), .. } | Event::Update { channel, result: Ok(_), .. } => {
            Some((*channel, None))
        }
        other => panic!("{other:?}"),
    };
    let ended: Vec<_> = pair.events.iter().filter_map(ended).collect();
    assert!(ended.len() >= 3 && ended.iter().all(|(channel, _)| *channel == stays), "{ended:?}");
    assert!(ended.contains(&(stays, Some(read))), "{ended:?}");
    // A lost circuit ends reads and writes. The subscription remains, without a value for some time.
    pair.events.clear();
    pair.client.read(stays, DOUBLE, 0).unwrap();
    pair.client.write(stays, &Value::from(2.0), true).unwrap();
    pair.crash();
    pair.run(1);
    let lost = |event: &&Event| {
        matches!(
            event,
            Event::Read { result: Err(Eca::DISCONN), .. }
                | Event::Written { result: Err(Eca::DISCONN), .. }
                | Event::Update { result: Err(Eca::DISCONN), .. }
        )
    };
    assert_eq!(pair.events.iter().filter(lost).count(), 3, "{:?}", pair.events);
    pair.events.clear();
    pair.up = true;
    pair.run_until(60_000, |pair| pair.updates() == [2.0] || pair.updates() == [1.0]);
}

#[test]
fn a_silent_server_is_disconnected_after_an_unanswered_echo() {
    let mut pair = Pair::new(1, 3, 0);
    let id = pair.client.channel(pair.now, "pv0", 0);
    pair.run_until(1000, |pair| pair.client.info(id).is_some());
    let (here, _) = pair.links[0];
    pair.now = pair.now + DurNs::from_secs(31);
    pair.client.handle_timeout(pair.now);
    assert_eq!(pair.client.output(here).len(), 16, "an echo is requested");
    assert!(!pair.client.is_closing(here));
    pair.now = pair.now + DurNs::from_secs(6);
    pair.client.handle_timeout(pair.now);
    assert!(pair.client.is_closing(here));
}

#[test]
fn names_without_a_server_are_searched_at_growing_intervals() {
    let mut client = Client::new(ClientConfig::default());
    client.channel(MonoNs(0), "nobody", 0);
    let mut times = Vec::new();
    while times.len() < 24 {
        let now = client.poll_timeout().unwrap();
        if client.poll_datagram(now).is_some() {
            times.push(now.0 / 1_000_000);
        }
    }
    assert_eq!(times[..4], [0, 32, 96, 224]);
    assert_eq!(times[23] - times[22], 300_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn slow_readers_get_a_rising_sequence_that_ends_with_the_newest(seed: u64, chunk in 8usize..200, posts in 1usize..400, rounds in 1usize..4) {
        let mut pair = Pair::new(1, seed, 10);
        let id = pair.client.channel(pair.now, "pv0", 0);
        pair.client.subscribe(id, DOUBLE, 0, EventMask::VALUE);
        pair.run_until(20_000, |pair| !pair.updates().is_empty());
        pair.chunk = chunk;
        for n in 1..=posts {
            pair.post(0, n as f64);
            if n % 16 == 0 {
                pair.run(rounds);
            }
        }
        pair.chunk = 4096;
        pair.run(50);
        let updates = pair.updates();
        prop_assert!(updates.windows(2).all(|two| two[0] < two[1]), "{:?}", updates);
        prop_assert_eq!(updates.last().copied(), Some(posts as f64));
        let counters = pair.server.counters();
        prop_assert_eq!(counters.updates - counters.replaced, updates.len() as u64);
    }

    #[test]
    fn no_server_can_make_a_client_panic(noise in proptest::collection::vec(any::<u8>(), 0..200), messages in proptest::collection::vec((0u16..30, 0u16..40, 0u32..5, 0u32..3, 0u32..3), 0..40)) {
        let mut pair = Pair::new(2, 9, 0);
        let id = pair.client.channel(pair.now, "pv0", 0);
        pair.client.subscribe(id, DOUBLE, 0, EventMask::VALUE);
        pair.run_until(1000, |pair| pair.client.info(id).is_some());
        let (here, _) = pair.links[0];
        for (command, kind, count, p1, p2) in messages {
            let mut bytes = Vec::new();
            Header { command, size: 16, kind, count, p1, p2 }.write(&mut bytes);
            bytes.extend_from_slice(&[0; 16]);
            pair.client.handle_bytes(pair.now, here, &bytes);
        }
        pair.client.handle_bytes(pair.now, here, &noise);
        pair.client.handle_datagram(pair.now, SERVER, &noise);
    }
}

#[test]
fn channels_without_the_needed_rights_are_reported_like_those_that_are_not_connected() {
    let mut pair = Pair::new(2, 1, 0);
    let ids = ["pv0", "pv1", "missing"].map(|name| pair.client.channel(pair.now, name, 0));
    let text = |pair: &Pair| pair.client.unusable(|id| if id == ids[1] { ALL } else { Access::READ });
    assert_eq!(text(&pair), "3 of 3 variables not connected: pv0, pv1, missing");
    pair.run_until(1000, |pair| pair.connected() == 2);
    assert_eq!(text(&pair), "1 of 3 variables not connected: missing");
    for (rights, expected) in [
        (Access::READ, "; 1 of 3 variables not writable: pv1"),
        (Access { read: false, write: false }, "; 2 of 3 variables not readable: pv0, pv1"),
        (ALL, ""),
    ] {
        pair.values.1 = rights;
        pair.server.refresh_access(&mut pair.values);
        pair.run(100);
        assert_eq!(text(&pair), format!("1 of 3 variables not connected: missing{expected}"));
    }
}
