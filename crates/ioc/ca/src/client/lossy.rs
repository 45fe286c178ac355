//! A client and two servers in virtual time. The network loses, duplicates, delays and reorders datagrams, breaks circuits at
//! any byte, and reports this late or never. In all cases every existing channel is finally connected exactly once, every
//! request is answered at most once on its own channel, and nothing is written twice.

use super::*;
use crate::search::{self, SearchCounters};
use crate::server::{self, Backend, Get, Limits, Opened, Peer, PutOutcome, Server, Token, Write};
use base::Scalar;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const HOSTS: [Address; 2] = [Address { ip: 0x0A00_0001, port: 5064 }, Address { ip: 0x0A00_0002, port: 5064 }];
/// The channels `pv0` to `pv11`: even ones on the first host, odd ones on the second. The value is the number.
const NAMES: u32 = 12;
const DOUBLE: Dbr = Dbr::plain(Basic::Double);

/// The values of a host, and the values written to it.
struct Values {
    host: u32,
    written: Vec<f64>,
    /// Writes in progress: time of completion and token.
    pending: Vec<(MonoNs, Token)>,
    later: DurNs,
    now: MonoNs,
}

impl Values {
    fn number(&self, name: &[u8]) -> Option<u32> {
        let number: u32 = std::str::from_utf8(name).ok()?.strip_prefix("pv")?.parse().ok()?;
        (number < NAMES && number % 2 == self.host).then_some(number)
    }
}

impl Backend for Values {
    fn exists(&mut self, name: &[u8]) -> bool {
        self.number(name).is_some()
    }
    fn open(&mut self, name: &[u8], _: Peer<'_>) -> Option<Opened> {
        let number = u64::from(self.number(name)?);
        let access = Access { read: true, write: true };
        Some(Opened { handle: number, watch: number, native: Basic::Double, count: 1, access, posted: true, lane: 0 })
    }
    fn access(&mut self, _: u64, _: Peer<'_>) -> Access {
        Access { read: true, write: true }
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
        reading.value = Value::from(handle as f64);
        Ok(Get::Done)
    }
    fn write(&mut self, _: u64, _: Peer<'_>, write: Write, token: Token, _: bool) -> PutOutcome {
        let Write::Value(Value::Scalar(Scalar::F64(value))) = write else { panic!("{write:?}") };
        self.written.push(value);
        if self.later == DurNs(0) {
            return PutOutcome::Done;
        }
        self.pending.push((self.now + self.later, token));
        PutOutcome::Later
    }
    fn forget(&mut self, token: Token) {
        self.pending.retain(|(_, other)| *other != token);
    }
    fn watch(&mut self, _: u64) -> bool {
        true
    }
    fn unwatch(&mut self, _: u64) {}
}

struct Host {
    server: Server,
    values: Values,
    up: bool,
}

/// A connection: its numbers in the client and in the server.
struct Link {
    here: CircuitId,
    host: usize,
    there: server::CircuitId,
    /// Bytes in transit.
    out: VecDeque<u8>,
    back: VecDeque<u8>,
    /// No bytes pass, and neither end is informed.
    dead: bool,
    /// The server has closed its end. Bytes in transit still arrive.
    ended: bool,
}

enum Datagram {
    Search(usize, Vec<u8>),
    Answer(usize, Vec<u8>),
}

#[derive(Clone, Debug)]
enum Step {
    Create(u32),
    Clear(usize),
    Read(usize),
    Put(usize),
    Subscribe(usize),
    Unsubscribe(usize),
    /// A connection ends: reported to the server and later to the client, to the client immediately, or to neither.
    Break(usize, u8),
    /// The program on a host ends: its kernel reports it, or the power was cut.
    Crash(usize, bool),
    Start(usize),
    /// Milliseconds without a request.
    Wait(u64),
}

struct World {
    now: MonoNs,
    random: u64,
    client: Client,
    hosts: [Host; 2],
    links: Vec<Link>,
    air: Vec<(MonoNs, Datagram)>,
    /// Percentage of datagrams that are lost.
    loss: u64,
    calm: bool,
    /// The view of the client's user: channels with their numbers and connection state, requests, values.
    channels: BTreeMap<ChannelId, (u32, bool)>,
    reads: BTreeMap<IoId, ChannelId>,
    puts: BTreeMap<IoId, (ChannelId, f64)>,
    subs: BTreeMap<IoId, ChannelId>,
    confirmed: Vec<f64>,
    next_value: f64,
}

impl World {
    fn new(seed: u64, loss: u64, name_servers: bool) -> Self {
        let name_servers = if name_servers { HOSTS.to_vec() } else { Vec::new() };
        let host = |host: u32| {
            let (written, pending) = Default::default();
            let values = Values { host, written, pending, later: DurNs(0), now: MonoNs(0) };
            let mut server = Server::new(Limits::default());
            server.tcp_port = HOSTS[host as usize].port;
            Host { server, values, up: true }
        };
        Self {
            now: MonoNs(1),
            random: seed | 1,
            // A client with name servers must not depend on datagrams.
            loss: if name_servers.is_empty() { loss } else { 100 },
            client: Client::new(ClientConfig { name_servers, ..ClientConfig::default() }),
            hosts: [host(0), host(1)],
            links: Vec::new(),
            air: Vec::new(),
            calm: false,
            channels: BTreeMap::new(),
            reads: BTreeMap::new(),
            puts: BTreeMap::new(),
            subs: BTreeMap::new(),
            confirmed: Vec::new(),
            next_value: 0.0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Sends a datagram: zero, one or two copies, each with a delay that is sometimes long.
    fn throw(&mut self, datagram: impl Fn() -> Datagram) {
        let copies = if self.random(100) < self.loss { 0 } else { 1 + u64::from(self.random(10) == 0) };
        for _ in 0..copies {
            let delay = if self.random(8) == 0 { self.random(20_000) } else { self.random(30) };
            self.air.push((self.now + DurNs::from_ms(delay as i64), datagram()));
        }
    }

    /// The channel of a step, if there is any.
    fn pick(&self, nth: usize) -> Option<ChannelId> {
        self.channels.keys().nth(nth % self.channels.len().max(1)).copied()
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Create(number) => {
                let id = self.client.channel(self.now, &format!("pv{number}"), (number % 3) as u16);
                assert!(self.channels.insert(id, (number, false)).is_none(), "a number in use was given out");
            }
            Step::Clear(nth) => {
                let Some(id) = self.pick(nth) else { return };
                self.client.clear(id);
                self.channels.remove(&id);
                self.reads.retain(|_, channel| *channel != id);
                self.puts.retain(|_, (channel, _)| *channel != id);
                self.subs.retain(|_, channel| *channel != id);
            }
            Step::Read(nth) => {
                let Some(id) = self.pick(nth) else { return };
                if let Ok(io) = self.client.read(id, DOUBLE, 0) {
                    assert!(self.reads.insert(io, id).is_none() && !self.puts.contains_key(&io));
                }
            }
            Step::Put(nth) => {
                let Some(id) = self.pick(nth) else { return };
                self.next_value += 1.0;
                if let Ok(io) = self.client.write(id, &Value::from(self.next_value), true) {
                    assert!(self.puts.insert(io.unwrap(), (id, self.next_value)).is_none());
                }
            }
            Step::Subscribe(nth) => {
                let Some(id) = self.pick(nth) else { return };
                let io = self.client.subscribe(id, DOUBLE, 0, EventMask::VALUE);
                self.subs.insert(io, id);
            }
            Step::Unsubscribe(nth) => {
                let Some(io) = self.subs.keys().nth(nth % self.subs.len().max(1)).copied() else { return };
                self.client.unsubscribe(io);
                self.subs.remove(&io);
            }
            Step::Break(nth, how) => {
                let Some(place) = nth.checked_rem(self.links.len()) else { return };
                match how {
                    0 => self.end(place),
                    1 => self.drop_link(place),
                    _ => self.links[place].dead = true,
                }
            }
            Step::Crash(host, said) => {
                for place in 0..self.links.len() {
                    if self.links[place].host == host {
                        self.end(place);
                        self.links[place].dead |= !said;
                    }
                }
                self.hosts[host].up = false;
            }
            Step::Start(host) => {
                if !std::mem::replace(&mut self.hosts[host].up, true) {
                    let mut beacon = crate::beacon::Beacon::new(self.now, DurNs::from_secs(15));
                    let bytes = beacon.poll(self.now, HOSTS[host].port).unwrap();
                    self.throw(|| Datagram::Answer(host, bytes.clone()));
                }
            }
            Step::Wait(ms) => self.run_until(self.now + DurNs::from_ms(ms as i64)),
        }
        self.move_on();
    }

    /// The server's end of a connection closes.
    fn end(&mut self, place: usize) {
        let link = &mut self.links[place];
        if !std::mem::replace(&mut link.ended, true) {
            let host = &mut self.hosts[link.host];
            host.server.close(link.there, &mut host.values);
        }
    }

    /// Both ends of a connection close.
    fn drop_link(&mut self, place: usize) {
        self.end(place);
        let link = self.links.remove(place);
        self.client.closed(self.now, link.here);
    }

    /// Runs everything that is due, then advances by a millisecond.
    fn move_on(&mut self) {
        self.client.handle_timeout(self.now);
        while let Some(datagram) = self.client.poll_datagram(self.now) {
            (0..2).for_each(|host| self.throw(|| Datagram::Search(host, datagram.clone())));
        }
        let (due, later) = std::mem::take(&mut self.air).into_iter().partition(|(at, _)| *at <= self.now);
        self.air = later;
        for (_, datagram) in due {
            self.land(datagram);
        }
        while let Some((id, to)) = self.client.poll_connect() {
            let host = HOSTS.iter().position(|host| *host == to).expect("only hosts that answered");
            if self.hosts[host].up && (self.calm || self.random(5) > 0) {
                let there = self.hosts[host].server.accept("here");
                self.client.connected_to(self.now, id);
                let (out, back) = Default::default();
                self.links.push(Link { here: id, host, there, out, back, dead: false, ended: false });
            } else {
                self.client.closed(self.now, id);
            }
        }
        for place in (0..self.links.len()).rev() {
            self.carry(place);
        }
        for host in &mut self.hosts {
            let (done, pending) = host.values.pending.iter().partition(|(at, _)| *at <= self.now);
            host.values.pending = pending;
            for (_, token) in done {
                host.server.put_done(self.now, token, true, &mut host.values);
            }
            host.server.handle_timeout(self.now, &mut host.values);
        }
        self.listen();
        self.now = self.now + DurNs::from_ms(1);
    }

    fn land(&mut self, datagram: Datagram) {
        match datagram {
            Datagram::Search(host, bytes) if self.hosts[host].up => {
                let (values, mut answers) = (&mut self.hosts[host].values, Vec::new());
                let counters = &mut SearchCounters::default();
                search::answer(
                    &bytes,
                    Address { ip: 0, ..HOSTS[host] },
                    counters,
                    |name| values.exists(name),
                    |answer| answers.push(answer.to_vec()),
                );
                answers.iter().for_each(|answer| self.throw(|| Datagram::Answer(host, answer.clone())));
            }
            Datagram::Search(..) => {}
            Datagram::Answer(host, bytes) => self.client.handle_datagram(self.now, HOSTS[host], &bytes),
        }
    }

    /// Transfers bytes on a connection, in pieces of any size.
    fn carry(&mut self, place: usize) {
        let (piece, later) = (1 + self.random(200) as usize, self.random(3));
        let link = &mut self.links[place];
        let host = &mut self.hosts[link.host];
        if self.client.is_closing(link.here) {
            self.drop_link(place);
            return;
        }
        let out = self.client.output(link.here).to_vec();
        self.client.sent(link.here, out.len());
        link.out.extend(out);
        if link.dead {
            return;
        }
        if !link.ended {
            (host.values.later, host.values.now) = (DurNs::from_ms(700 * later as i64), self.now);
            let bytes: Vec<u8> = link.out.drain(..piece.min(link.out.len())).collect();
            host.server.handle_bytes(self.now, link.there, &bytes, &mut host.values);
            let back = host.server.output(link.there).to_vec();
            host.server.sent(self.now, link.there, back.len(), &mut host.values);
            link.back.extend(back);
        }
        let bytes: Vec<u8> = link.back.drain(..piece.min(link.back.len())).collect();
        if !bytes.is_empty() {
            self.client.handle_bytes(self.now, link.here, &bytes);
        }
        if link.ended && link.back.is_empty() || host.server.is_closing(link.there) {
            self.drop_link(place);
        }
    }

    /// Compares the client's events with the view of its user.
    fn listen(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Connected(id) => {
                    let (number, connected) = self.channels.get_mut(&id).expect("a channel that is there");
                    assert!(!std::mem::replace(connected, true), "connected twice");
                    // The channel may have been lost again before this event is read.
                    let server = self.client.info(id).map_or(HOSTS[*number as usize % 2], |info| info.server);
                    assert_eq!(server, HOSTS[*number as usize % 2]);
                }
                Event::Disconnected(id) => {
                    let (_, connected) = self.channels.get_mut(&id).expect("a channel that is there");
                    assert!(std::mem::replace(connected, false), "lost what was not connected");
                }
                Event::Read { io, channel, result } => {
                    assert_eq!(self.reads.remove(&io), Some(channel), "a read is answered once");
                    result.iter().for_each(|(_, reading)| self.fits(channel, reading));
                }
                Event::Written { io, channel, result } => {
                    let (asked, value) = self.puts.remove(&io).expect("a write is answered once");
                    assert_eq!(asked, channel);
                    self.confirmed.extend(result.is_ok().then_some(value));
                }
                Event::Update { io, channel, result } => {
                    assert_eq!(self.subs.get(&io), Some(&channel));
                    result.iter().for_each(|(_, reading)| self.fits(channel, reading));
                }
                Event::Duplicate { .. } | Event::Complaint { .. } => panic!("{event:?}"),
                Event::AccessChanged(_) => {}
            }
        }
    }

    fn fits(&self, channel: ChannelId, reading: &Reading) {
        assert_eq!(reading.value, Value::from(f64::from(self.channels[&channel].0)), "the value of its own channel");
    }

    /// Runs until `end`, from event to event.
    fn run_until(&mut self, end: MonoNs) {
        while self.now < end {
            self.move_on();
            let busy = |link: &Link| link.ended || !(link.dead || link.out.is_empty() && link.back.is_empty());
            if self.links.iter().any(busy) {
                continue;
            }
            let air = self.air.iter().map(|(at, _)| *at);
            let pending = self.hosts.iter().flat_map(|host| host.values.pending.iter().map(|(at, _)| *at));
            let waits = self.hosts.iter().filter_map(|host| host.server.poll_timeout());
            let next = air.chain(pending).chain(waits).chain(self.client.poll_timeout()).fold(end, MonoNs::min);
            self.now = self.now.max(next);
        }
    }

    /// Ends the faults: all hosts run, and datagrams are lost only at random.
    fn settle(&mut self) {
        (self.calm, self.loss) = (true, self.loss.min(50) + 50 * u64::from(self.loss == 100));
        (0..2).for_each(|host| self.take(&Step::Start(host)));
        // Dead servers are detected, requests are answered, and lost channels are searched again.
        self.run_until(self.now + DurNs::from_secs(180));
        let until = self.now + DurNs::from_secs(100_000);
        let open = |world: &Self| world.channels.values().any(|(_, connected)| !connected);
        while open(self) && self.now < until {
            self.run_until(self.now + DurNs::from_secs(60));
        }
        let lost: Vec<_> = self.channels.iter().filter(|(_, (_, connected))| !connected).collect();
        assert!(lost.is_empty(), "not connected: {lost:?}");
        let wanted =
            |host: usize| self.channels.values().map(|(number, _)| *number).filter(move |n| *n as usize % 2 == host);
        for (host, Host { server, values, .. }) in self.hosts.iter().enumerate() {
            let mut open: Vec<u32> = server.channels().map(|(_, opened)| opened.handle as u32).collect();
            let mut wanted: Vec<u32> = wanted(host).collect();
            open.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(open, wanted, "each channel is open at host {host} as often as the client has it");
            let distinct: BTreeSet<u64> = values.written.iter().map(|value| *value as u64).collect();
            assert_eq!(distinct.len(), values.written.len(), "nothing is written twice");
        }
        assert!(self.reads.is_empty() && self.puts.is_empty(), "not answered: {:?} {:?}", self.reads, self.puts);
        let written: BTreeSet<u64> =
            self.hosts.iter().flat_map(|host| &host.values.written).map(|v| *v as u64).collect();
        assert!(self.confirmed.iter().all(|value| written.contains(&(*value as u64))), "what is confirmed was written");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let nth = 0usize..64;
    let step = prop_oneof![
        4 => (0..NAMES).prop_map(Step::Create),
        2 => nth.clone().prop_map(Step::Clear),
        3 => nth.clone().prop_map(Step::Read),
        3 => nth.clone().prop_map(Step::Put),
        2 => nth.clone().prop_map(Step::Subscribe),
        1 => nth.clone().prop_map(Step::Unsubscribe),
        2 => (nth, 0u8..3).prop_map(|(link, how)| Step::Break(link, how)),
        1 => (0usize..2, any::<bool>()).prop_map(|(host, said)| Step::Crash(host, said)),
        1 => (0usize..2).prop_map(Step::Start),
        5 => prop_oneof![0u64..20, 0u64..200, 0u64..50_000].prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn every_channel_connects_once_and_no_request_is_answered_or_executed_twice(
        seed: u64, loss in 0u64..70, name_servers in prop::bool::weighted(0.3), steps in steps()
    ) {
        let mut world = World::new(seed, loss, name_servers);
        steps.iter().for_each(|step| world.take(step));
        world.settle();
    }
}
