//! A client and a server that exchange bytes without sockets.

use super::*;
use crate::codec::Kind;
use crate::nt::{Shape, View, Written};
use crate::search::Identity;
use crate::server::{self, Access, ConnId, Get, Limits, Opened, Peer, Put, Server, Source, Token, Write};
use base::{Alarm, EventMask, Meta, Scalar, Stamp};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SERVER: Address = Address { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 5075 };
const SERVER_V6: Address = Address { ip: IpAddr::V6(Ipv6Addr::LOCALHOST), port: 5075 };

/// One number with the name `n`.
#[derive(Default)]
struct Number {
    value: Option<base::Value>,
    meta: Meta,
    users: Vec<String>,
    refuses: bool,
}

impl Number {
    fn set(&mut self, value: f64) {
        self.value = Some(base::Value::from(value));
    }
}

impl Source for Number {
    fn exists(&mut self, name: &[u8]) -> bool {
        name == b"n"
    }
    fn open(&mut self, name: &[u8], peer: Peer<'_>) -> Option<Opened> {
        self.users.push(peer.user.to_owned());
        let access = Access { read: true, write: !self.refuses };
        (name == b"n").then_some(Opened { handle: 0, watch: 0, shape: Shape::Scalar(Kind::F64), access })
    }
    fn access(&mut self, _: u64, _: Peer<'_>) -> Access {
        Access { read: true, write: !self.refuses }
    }
    fn close(&mut self, _: u64) {}
    fn read(&mut self, _: u64, _: bool, _: Option<Token>) -> Get<'_> {
        match &self.value {
            Some(value) => Get::Done(View {
                value,
                alarm: Alarm::NONE,
                stamp: Stamp::EPOCH,
                note: base::Annotation::NONE,
                hints: crate::nt::Hints::NONE,
                meta: &self.meta,
                description: "it".into(),
            }),
            None => Get::Failed,
        }
    }
    fn write(&mut self, _: u64, _: Peer<'_>, write: Write, _: Token, _: bool) -> Put {
        if let Write::Value(Written::Value(base::Value::Scalar(Scalar::F64(value)))) = write {
            self.set(value);
        }
        Put::Done
    }
    fn forget(&mut self, _: Token) {}
    fn watch(&mut self, _: u64) {}
    fn unwatch(&mut self, _: u64) {}
    fn names(&self) -> Vec<String> {
        vec!["n".into()]
    }
}

/// Both sides and the network between them.
struct Pair {
    client: Client,
    server: Server,
    number: Number,
    /// The client's and the server's number of the connection.
    line: Option<(CircuitId, ConnId)>,
    now: MonoNs,
    events: Vec<Event>,
    /// Datagrams are lost.
    deaf: bool,
    /// The address of the server.
    at: Address,
}

impl Pair {
    fn new() -> Self {
        Self::with(Vec::new())
    }

    fn with(name_servers: Vec<Address>) -> Self {
        let quiet_max = DurNs::from_secs(40);
        let config = ClientConfig { user: "ann".into(), host: "desk".into(), quiet_max, name_servers };
        let mut number = Number::default();
        number.set(1.5);
        Self {
            client: Client::new(config),
            server: Server::new(Limits::default(), Identity { guid: [7; 12], ip: search::SENDER, port: SERVER.port }),
            number,
            line: None,
            now: MonoNs(1),
            events: Vec::new(),
            deaf: false,
            at: SERVER,
        }
    }

    /// Transfers everything until both sides are quiet.
    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(datagram) = self.client.poll_datagram(self.now, 4000) {
                quiet = false;
                for message in wire::datagram(&datagram, None).filter(|_| !self.deaf) {
                    let search = search::Search::read(message.payload, message.header.order()).unwrap();
                    let mut out = Writer::new(Order::Big);
                    let mut counters = search::SearchCounters::default();
                    let exists = |name: &[u8]| self.number.exists(name);
                    if search::answer(&search, self.server.identity, &mut counters, exists, &mut out).is_some() {
                        self.client.handle_datagram(self.at, &out.bytes);
                    }
                }
            }
            while let Some((id, server)) = self.client.poll_connect() {
                quiet = false;
                assert_eq!(server, self.at);
                self.line = Some((id, self.server.accept(self.now, "127.0.0.1:4000")));
                self.client.connected_to(self.now, id);
            }
            while self.client.poll_touched().is_some() {}
            while self.server.poll_touched().is_some() {}
            if let Some((id, conn)) = self.line {
                let out = self.client.output(id).to_vec();
                self.client.sent(id, out.len());
                if !out.is_empty() {
                    quiet = false;
                    self.server.handle_bytes(self.now, conn, &out, &mut self.number);
                }
                let out = self.server.output(conn).to_vec();
                self.server.sent(self.now, conn, out.len(), &mut self.number);
                // In pieces, as a network delivers them.
                for piece in out.chunks(7) {
                    quiet = false;
                    self.client.handle_bytes(self.now, id, piece);
                }
            }
            self.events.extend(std::iter::from_fn(|| self.client.poll_event()));
            if quiet {
                return;
            }
        }
    }

    fn channel(&mut self) -> ChannelId {
        self.client.channel(self.now, "n")
    }

    fn start(&mut self, id: ChannelId, action: Action, request: &str) -> OpId {
        let op = self.client.start(id, action, &Request::parse(request).unwrap());
        self.settle();
        op
    }

    fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn number(&self, op: OpId) -> Option<f64> {
        let Type::Struct(fields) = self.client.ty(op)? else { return None };
        self.client.value(op)?.field(fields, "value")?.0.to_f64()
    }

    fn post(&mut self, value: f64) {
        self.number.set(value);
        let value = base::Value::from(value);
        let mask = EventMask::VALUE | EventMask::LOG;
        let post = server::Post {
            watch: 0,
            mask,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            note: base::Annotation::NONE,
            value: &value,
        };
        self.server.post(&post, &mut self.number);
        self.settle();
    }

    fn write_again(&mut self, put: OpId, number: f64) {
        let mut value = self.client.value(put).cloned().unwrap();
        if let Value::Struct(parts) = &mut value {
            parts[0] = Value::F64(number);
        }
        self.client.write_again(put, &Mask::of([1]), &value);
        self.settle();
    }

    /// The server ends a monitor, with the last value or without.
    fn end_monitor(&mut self, op: OpId, last: &[u8]) {
        let (circuit, _) = self.line.unwrap();
        let mut out = Writer::new(Order::Little);
        wire::message(&mut out, wire::Side::Server, wire::command::MONITOR, |out| {
            out.u32(self.client.ops[&op.0].ioid);
            out.u8(wire::sub::DESTROY);
            out.status(&Status::OK);
            out.bytes.extend_from_slice(last);
        });
        self.client.handle_bytes(self.now, circuit, &out.bytes);
        self.settle();
    }

    /// Time passes until the client has something to do, other than on a silent connection.
    fn wait(&mut self, gap: DurNs) {
        assert_eq!(self.client.poll_timeout(), Some(self.now + gap));
        self.now = self.now + gap;
        self.client.handle_timeout(self.now);
        self.settle();
    }

    /// The connection is lost.
    fn cut(&mut self) {
        if let Some((id, conn)) = self.line.take() {
            self.server.close(conn, &mut self.number);
            self.client.closed(self.now, id);
        }
    }
}

#[test]
fn a_channel_is_found_by_its_name_and_read() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let get = pair.start(id, Action::Get, "");
    assert_eq!(pair.client.server(id), Some(SERVER));
    assert_eq!(pair.number.users, ["ann"]);
    let events = pair.take();
    assert_eq!(events[0], Event::Connected(id));
    let Event::Value { op, changed, .. } = &events[1] else { panic!("{events:?}") };
    assert!(*op == get && changed.has(1) && changed.has(13));
    assert_eq!(pair.number(get), Some(1.5));
    // A second read uses the type that the server sent before.
    let other = pair.start(id, Action::Get, "field(value)");
    assert_eq!(pair.number(other), Some(1.5));
}

#[test]
fn a_server_with_an_ipv6_address_is_found_by_datagram_by_its_answer_and_over_tcp() {
    for (names_itself, name_servers) in [(false, vec![]), (true, vec![]), (false, vec![SERVER_V6])] {
        let mut pair = Pair::with(name_servers.clone());
        (pair.at, pair.deaf) = (SERVER_V6, !name_servers.is_empty());
        if names_itself {
            pair.server.identity.ip = SERVER_V6.ip;
        }
        let id = pair.channel();
        pair.client.handle_timeout(pair.now);
        let get = pair.start(id, Action::Get, "");
        assert_eq!((pair.client.server(id), pair.number(get)), (Some(SERVER_V6), Some(1.5)));
        assert_eq!(pair.client.server(id).unwrap().to_string(), "[::1]:5075");
    }
}

#[test]
fn a_put_reads_before_it_writes() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let put = pair.start(id, Action::Put, "record[block=true]");
    assert_eq!(pair.take(), [Event::Connected(id), Event::Ready(put)]);
    pair.client.read(put);
    pair.settle();
    assert!(matches!(pair.take()[..], [Event::Value { .. }]));
    let Some(Type::Struct(fields)) = pair.client.ty(put).cloned() else { panic!("it has a type") };
    let mut value = pair.client.value(put).cloned().unwrap();
    if let Value::Struct(parts) = &mut value {
        parts[0] = Value::F64(4.5);
    }
    let (_, bit, _) = fields.field("value").unwrap();
    pair.client.write(put, &Mask::of([bit]), &value);
    pair.settle();
    assert_eq!((pair.take(), &pair.number.value), (vec![Event::Done(put)], &Some(base::Value::from(4.5))));
}

#[test]
fn a_put_get_returns_the_value_after_the_write() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let put = pair.start(id, Action::PutGet, "record[block=true]");
    assert_eq!(pair.take(), [Event::Connected(id), Event::Ready(put)]);
    pair.client.read(put);
    pair.settle();
    assert!(matches!(pair.take()[..], [Event::Value { op, .. }] if op == put));
    assert_eq!(pair.number(put), Some(1.5), "the value before the write");
    pair.write_again(put, 3.5);
    assert_eq!(pair.take(), [], "it ends with its write");
    let mut value = pair.client.value(put).cloned().unwrap();
    if let Value::Struct(parts) = &mut value {
        parts[0] = Value::F64(4.5);
    }
    pair.client.write(put, &Mask::of([1]), &value);
    pair.settle();
    let events = pair.take();
    let [Event::Returned(op, Type::Struct(fields), value)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*op, value.field(fields, "value").unwrap().0), (put, &Value::F64(4.5)));
    assert_eq!((&pair.number.value, pair.server.size()), (&Some(base::Value::from(4.5)), (1, 1, 0)));

    pair.number.refuses = true;
    pair.server.refresh_access(&mut pair.number);
    for is_lost in [false, true] {
        let put = pair.start(id, Action::PutGet, "");
        pair.take();
        pair.client.write(put, &Mask::of([1]), value);
        if is_lost {
            pair.cut();
        }
        pair.settle();
        let why = if is_lost { "disconnected" } else { "no write access" };
        let failed = |event: &Event| matches!(event, Event::Failed(op, status) if *op == put && status.message == why);
        assert!(pair.take().iter().any(failed), "{why}");
    }
}

#[test]
fn a_put_stays_open_for_further_writes_and_after_a_loss_of_the_connection() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let put = pair.start(id, Action::Put, "");
    pair.take();
    for number in [4.5, 5.5] {
        pair.write_again(put, number);
        assert_eq!(pair.take(), [Event::Written(put, Status::OK)]);
        assert_eq!(pair.number.value, Some(base::Value::from(number)));
    }
    pair.number.refuses = true;
    pair.server.refresh_access(&mut pair.number);
    pair.write_again(put, 6.5);
    assert!(matches!(&pair.take()[..], [Event::Written(op, status)] if *op == put && !status.is_success()));
    pair.number.refuses = false;
    let value = pair.client.value(put).cloned().unwrap();
    pair.client.write_again(put, &Mask::of([1]), &value);
    pair.cut();
    pair.settle();
    let lost = Event::Written(put, Status::error("disconnected"));
    assert_eq!(pair.take(), [Event::Disconnected(id), lost]);
    pair.now = pair.client.poll_timeout().unwrap();
    pair.settle();
    assert_eq!(pair.take(), [Event::Connected(id), Event::Ready(put)]);
    pair.write_again(put, 7.5);
    assert_eq!(pair.take(), [Event::Written(put, Status::OK)]);
}

#[test]
fn a_closed_channel_is_closed_at_the_server() {
    let mut pair = Pair::new();
    let id = pair.channel();
    pair.start(id, Action::Monitor, "");
    assert_eq!(pair.server.size(), (1, 1, 1));
    assert_eq!(pair.client.unconnected(), "");
    pair.client.close(id);
    pair.settle();
    assert_eq!(pair.server.size(), (1, 0, 0));
    pair.client.channel(pair.now, "missing");
    assert_eq!(pair.client.unconnected(), "1 of 1 PVAccess channels not connected: missing");
}

#[test]
fn a_refused_write_and_an_unknown_field_fail_with_the_reason() {
    let mut pair = Pair::new();
    pair.number.refuses = true;
    let id = pair.channel();
    let put = pair.start(id, Action::Put, "");
    let value = pair.client.value(put).cloned().unwrap();
    pair.client.write(put, &Mask::of([1]), &value);
    let get = pair.start(id, Action::Get, "field(nothing)");
    let failed = |event: &Event| match event {
        Event::Failed(op, status) => Some((*op, status.message.clone())),
        _ => None,
    };
    let failed: Vec<_> = pair.take().iter().filter_map(failed).collect();
    assert_eq!(failed[0], (put, "no write access".into()));
    assert!(failed[1].0 == get && failed[1].1.contains("nothing"), "{failed:?}");
}

#[test]
fn a_monitor_acknowledges_and_continues_after_a_loss_of_the_connection() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let monitor = pair.start(id, Action::Monitor, "field(value)record[pipeline=true,queueSize=2]");
    for number in 2..20 {
        pair.post(f64::from(number));
        assert_eq!(pair.number(monitor), Some(f64::from(number)), "the window is opened again");
    }
    pair.take();
    pair.cut();
    pair.settle();
    assert_eq!(pair.take(), [Event::Disconnected(id)]);
    pair.now = pair.client.poll_timeout().unwrap();
    pair.settle();
    pair.post(30.0);
    let events = pair.take();
    assert_eq!(events[0], Event::Connected(id));
    assert_eq!((pair.number(monitor), events.len()), (Some(30.0), 3), "{events:?}");
}

#[test]
fn each_event_of_a_burst_has_its_own_value() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let monitor = pair.start(id, Action::Monitor, "");
    pair.take();
    let (circuit, conn) = pair.line.unwrap();
    for number in [2.0, 3.0, 4.0] {
        pair.number.set(number);
        let (value, mask) = (base::Value::from(number), EventMask::VALUE);
        let post = server::Post {
            watch: 0,
            mask,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            value: &value,
            note: base::Annotation::NONE,
        };
        pair.server.post(&post, &mut pair.number);
    }
    let out = pair.server.output(conn).to_vec();
    pair.server.sent(pair.now, conn, out.len(), &mut pair.number);
    pair.client.handle_bytes(pair.now, circuit, &out);
    let mut seen = Vec::new();
    while let Some(event) = pair.client.poll_event() {
        assert!(matches!(event, Event::Value { op, .. } if op == monitor));
        seen.push(pair.number(monitor));
    }
    assert_eq!(seen, [Some(2.0), Some(3.0), Some(4.0)]);
    pair.post(5.0);
    assert_eq!(pair.number(monitor), Some(5.0));
}

#[test]
fn a_server_that_drops_a_channel_is_searched_again() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let monitor = pair.start(id, Action::Monitor, "");
    pair.take();
    pair.server.drop_channels(|_| true, &mut pair.number);
    pair.settle();
    let events = pair.take();
    assert_eq!(events[..2], [Event::Disconnected(id), Event::Connected(id)]);
    assert!(matches!(events[2], Event::Value { op, .. } if op == monitor), "{events:?}");
}

#[test]
fn a_monitor_that_its_server_ends_or_refuses_is_requested_again_after_10_seconds_if_the_caller_wants() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let once = pair.start(id, Action::Monitor, "");
    let always = pair.start(id, Action::Monitor, "");
    pair.client.renew(always);
    pair.take();
    // The end may carry the last value: bits, value, bits of lost values.
    let last = [&[1, 2][..], &7.5f64.to_le_bytes(), &[0]].concat();
    pair.end_monitor(once, &[]);
    pair.end_monitor(always, &last);
    let events = pair.take();
    assert!(matches!(events[1], Event::Value { op, .. } if op == always), "{events:?}");
    assert_eq!([&events[0], &events[2]], [&Event::Done(once), &Event::Done(always)]);
    assert_eq!((pair.client.ty(once), pair.number(always)), (None, Some(7.5)));

    pair.wait(renew::RENEWAL_GAP);
    assert!(matches!(pair.take()[..], [Event::Value { op, .. }] if op == always), "under the same name");
    pair.post(8.5);
    assert_eq!(pair.number(always), Some(8.5));
    pair.take();

    let refused = pair.client.start(id, Action::Monitor, &Request::parse("field(nothing)").unwrap());
    pair.client.renew(refused);
    pair.settle();
    let is_refused = |events: &[Event]| matches!(events, [Event::Failed(op, _)] if *op == refused);
    assert!(is_refused(&pair.take()));
    pair.wait(renew::RENEWAL_GAP);
    assert!(is_refused(&pair.take()));
    pair.client.end(refused);
    pair.wait(renew::RENEWAL_GAP);
    assert_eq!(pair.take(), [], "the caller ended it");
}

#[test]
fn a_new_connection_requests_an_ended_monitor_at_once_and_only_once() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let monitor = pair.start(id, Action::Monitor, "");
    pair.client.renew(monitor);
    pair.end_monitor(monitor, &[]);
    pair.cut();
    pair.settle();
    pair.take();
    pair.wait(SEARCH_GAP);
    let events = pair.take();
    assert!(matches!(events[..], [Event::Connected(_), Event::Value { .. }]), "{events:?}");
    pair.wait(DurNs(renew::RENEWAL_GAP.0 - SEARCH_GAP.0));
    assert_eq!((pair.take(), pair.server.size()), (vec![], (1, 1, 1)));
    pair.end_monitor(monitor, &[]);
    pair.wait(renew::RENEWAL_GAP);
    pair.client.close(id);
    pair.settle();
    assert_eq!(pair.server.size(), (1, 0, 0));
}

#[test]
fn a_name_server_is_searched_over_its_connection_and_found_again() {
    let mut pair = Pair::with(vec![SERVER]);
    pair.deaf = true;
    let early = pair.channel();
    pair.client.handle_timeout(pair.now);
    pair.settle();
    assert_eq!(pair.take(), [Event::Connected(early)], "a name from before the connection");
    let late = pair.channel();
    pair.settle();
    assert_eq!(pair.take(), [Event::Connected(late)]);
    assert_eq!(pair.server.size().0, 1, "the name server is the server, on the same connection");
    pair.cut();
    pair.settle();
    assert_eq!(pair.take().len(), 2);
    for _ in 0..100 {
        pair.now = pair.client.poll_timeout().unwrap();
        pair.client.handle_timeout(pair.now);
        pair.settle();
        if pair.line.is_some() {
            break;
        }
    }
    assert!(pair.now >= MonoNs(1) + NAME_SERVER_GAP);
    assert_eq!(pair.take().len(), 2, "both are connected again");
}

#[test]
fn a_type_is_described() {
    let mut pair = Pair::new();
    let id = pair.channel();
    let op = pair.start(id, Action::Describe, "");
    let events = pair.take();
    let Event::Described(described, Type::Struct(fields)) = &events[1] else { panic!("{events:?}") };
    assert_eq!((*described, fields.id()), (op, "epics:nt/NTScalar:1.0"));
}

#[test]
fn the_channel_server_lists_the_names_of_channels() {
    let mut pair = Pair::new();
    let id = pair.client.channel_at("server", SERVER);
    for (op, expected) in [("channels", Some("n")), ("info", Some("rust")), ("nothing", None)] {
        let text = ("op".to_owned(), Type::Scalar(Kind::Text));
        let query = Struct::new("", vec![text]).unwrap();
        let ty = Type::Struct(Struct::new("epics:nt/NTURI:1.0", vec![("query".into(), Type::Struct(query))]).unwrap());
        let argument = Value::Struct(vec![Value::Struct(vec![Value::Text(op.into())])]);
        let call = pair.client.call(id, &Request::default(), ty, argument);
        pair.settle();
        let events = pair.take();
        match (events.last().unwrap(), expected) {
            (Event::Returned(returned, _, value), Some(expected)) => {
                assert!(*returned == call && format!("{value:?}").contains(expected), "{value:?}");
            }
            (Event::Failed(_, status), None) => assert!(status.message.contains("nothing"), "{status}"),
            other => panic!("{op}: {other:?}"),
        }
    }
    let get = pair.start(id, Action::Get, "");
    assert!(matches!(pair.take()[..], [Event::Failed(failed, _)] if failed == get), "it has no value");
}

#[test]
fn a_silent_server_is_asked_for_an_echo_and_then_given_up() {
    let mut pair = Pair::new();
    let id = pair.channel();
    pair.settle();
    for _ in 0..5 {
        pair.now = pair.client.poll_timeout().unwrap();
        pair.client.handle_timeout(pair.now);
        pair.settle();
        assert!(pair.client.server(id).is_some(), "it answers");
    }
    let (circuit, _) = pair.line.unwrap();
    for asked in [false, true] {
        pair.now = pair.client.poll_timeout().unwrap();
        assert!(!pair.client.is_closing(circuit), "{asked}");
        pair.client.handle_timeout(pair.now);
    }
    assert!(pair.client.is_closing(circuit));
}

proptest::proptest! {
    #[test]
    fn no_bytes_of_a_server_panic(
        messages in proptest::collection::vec((0u8..24, proptest::collection::vec(0u8..12, 0..40)), 0..30),
    ) {
        let mut pair = Pair::new();
        let id = pair.channel();
        for action in [Action::Get, Action::Put, Action::PutGet, Action::Monitor, Action::Describe] {
            pair.start(id, action, "");
        }
        let Some((circuit, _)) = pair.line else { return Ok(()) };
        for (command, payload) in messages {
            let mut out = Writer::new(Order::Little);
            wire::message(&mut out, wire::Side::Server, command, |out| out.bytes.extend_from_slice(&payload));
            pair.client.handle_bytes(pair.now, circuit, &out.bytes);
            pair.client.handle_datagram(SERVER, &out.bytes);
        }
        pair.client.closed(pair.now, circuit);
    }
}

#[test]
fn the_rights_that_a_server_announces_are_known_before_a_write() {
    let mut pair = Pair::new();
    let id = pair.channel();
    pair.client.handle_timeout(pair.now);
    assert!(pair.client.may_write(id), "nothing is announced yet");
    pair.number.refuses = true;
    pair.settle();
    assert!(!pair.client.may_write(id));
    pair.number.refuses = false;
    pair.server.refresh_access(&mut pair.number);
    pair.settle();
    assert!(pair.client.may_write(id));
}
