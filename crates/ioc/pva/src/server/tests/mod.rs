//! A server with two fields, and clients that write bytes.

use super::*;
use crate::codec::{Fault, Mask, Reader, Status, Type, TypeTable, Value as Tree};
use crate::request::Request;
use crate::wire::{self, Inbox, Side, command};
use base::{Meta, Scalar};
use proptest::prelude::*;

mod calls;
mod monitor;
mod structure;

/// A number and an array. `later` makes reads and writes answer later.
#[derive(Default)]
struct Values {
    number: f64,
    meta: Meta,
    later: bool,
    access: Option<Access>,
    asked: Vec<Token>,
    writes: Vec<(u64, Write, bool)>,
    watched: i32,
    open: i32,
    forgotten: Vec<Token>,
    value: Option<Value>,
    structure: structure::Shared,
    warnings: Vec<String>,
}

const ALL: Access = Access { read: true, write: true };

impl Source for Values {
    fn exists(&mut self, name: &[u8]) -> bool {
        matches!(name, b"n" | b"a")
    }
    fn open(&mut self, name: &[u8], _: Peer<'_>) -> Option<Opened> {
        use crate::codec::Kind::F64;
        let (handle, shape) = match name {
            b"n" => (0, Shape::Scalar(F64)),
            b"a" => (1, Shape::Array(F64)),
            b"s" => (2, Shape::Structure),
            b"f" => (calls::FUNCTION, Shape::Scalar(F64)),
            _ => return None,
        };
        self.open += 1;
        Some(Opened { handle, watch: handle, shape, access: self.access.unwrap_or(ALL) })
    }
    fn access(&mut self, _: u64, peer: Peer<'_>) -> Access {
        if peer.user == "guest" && self.access.is_none() {
            Access { read: true, write: false }
        } else {
            self.access.unwrap_or(ALL)
        }
    }
    fn close(&mut self, _: u64) {
        self.open -= 1;
    }
    fn read(&mut self, handle: u64, _: bool, token: Option<Token>) -> Get<'_> {
        if let (true, Some(token)) = (self.later, token) {
            self.asked.push(token);
            return Get::Sent;
        }
        self.value = Some(if handle == 0 { Value::from(self.number) } else { Value::from(vec![self.number; 1000]) });
        Get::Done(self.view())
    }
    fn write(&mut self, handle: u64, _: Peer<'_>, write: Write, token: Token, wait: bool) -> Put {
        self.writes.push((handle, write, wait));
        self.asked.push(token);
        if wait { Put::Later } else { Put::Done }
    }
    fn structure(&self, handle: u64) -> Option<Arc<Struct>> {
        (handle == 2).then(|| self.structure.0.clone())
    }
    fn read_structure(&mut self, _: u64, options: Options, token: Token) -> StructureGet {
        if self.later {
            self.asked.push(token);
            return StructureGet::Sent;
        }
        StructureGet::Done(structure::snapshot(self.number, options.atomic))
    }
    fn is_function(&self, handle: u64) -> bool {
        handle == calls::FUNCTION
    }
    fn call(&mut self, _: u64, _: Peer<'_>, argument: Option<Typed>, token: Token) -> Call {
        self.asked.push(token);
        if self.later { Call::Sent } else { calls::doubled(argument) }
    }
    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
    fn forget(&mut self, token: Token) {
        self.forgotten.push(token);
    }
    fn watch(&mut self, _: u64) {
        self.watched += 1;
    }
    fn unwatch(&mut self, _: u64) {
        self.watched -= 1;
    }
    fn names(&self) -> Vec<String> {
        vec!["n".into(), "a".into()]
    }
}

impl Values {
    fn view(&self) -> View<'_> {
        let value = self.value.as_ref().unwrap();
        View {
            value,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            note: Annotation::NONE,
            hints: Hints::NONE,
            meta: &self.meta,
            description: "it".into(),
        }
    }
}

struct Bench {
    server: Server,
    values: Values,
    id: ConnId,
    types: TypeTable,
    /// Received messages that were not examined yet.
    inbox: Inbox,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let mut server = Server::new(limits, Identity { guid: [7; 12], ip: crate::search::SENDER, port: 5075 });
        let id = server.accept(MonoNs(0), "10.0.0.9:4000");
        let mut bench = Self {
            server,
            values: Values { number: 1.5, ..Values::default() },
            id,
            types: TypeTable::default(),
            inbox: Inbox::new(Side::Server, 1 << 24),
        };
        assert_eq!(bench.take(), [(command::SET_ORDER, vec![]), (command::VALIDATION, bench_greeting())]);
        bench
    }

    fn send(&mut self, command: u8, body: impl FnOnce(&mut Writer)) {
        let mut out = Writer::new(Order::Little);
        wire::message(&mut out, Side::Client, command, body);
        self.server.handle_bytes(MonoNs(1), self.id, &out.bytes, &mut self.values);
    }

    /// The messages that the server has sent.
    fn take(&mut self) -> Vec<(u8, Vec<u8>)> {
        let out = self.server.output(self.id).to_vec();
        self.inbox.feed(&out);
        self.server.sent(MonoNs(1), self.id, out.len(), &mut self.values);
        let mut all = Vec::new();
        while let Some(message) = self.inbox.next_message().unwrap() {
            all.push((message.header.command, message.payload.to_vec()));
        }
        all
    }

    fn one(&mut self) -> (u8, Vec<u8>) {
        let mut all = self.take();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn create(&mut self, cid: u32, name: &str) -> u32 {
        self.send(command::CREATE_CHANNEL, |out| {
            out.u16(1);
            out.u32(cid);
            out.text(name);
        });
        let mut all = self.take();
        let (_, payload) = all.remove(0);
        let mut reader = Reader::new(&payload, Order::Little);
        assert_eq!(reader.u32(), Ok(cid));
        let sid = reader.u32().unwrap();
        let announced: Vec<u8> = all.iter().map(|(command, _)| *command).collect();
        assert_eq!(announced, if sid == u32::MAX { vec![] } else { vec![command::ACL_CHANGE] });
        sid
    }

    /// Creates an operation. Returns its status and type.
    fn init(&mut self, command: u8, sid: u32, ioid: u32, request: &str, credit: Option<u32>) -> (Status, Option<Type>) {
        let (ty, value) = Request::parse(request).unwrap().to_value().unwrap();
        self.send(command, |out| {
            out.u32(sid);
            out.u32(ioid);
            out.u8(if credit.is_some() { 0x88 } else { 0x08 });
            out.ty(&Type::Struct(ty));
            out.value(&value);
            if let Some(credit) = credit {
                out.u32(credit);
            }
        });
        let (replied, payload) = self.take().pop().unwrap();
        assert_eq!(replied, command);
        let mut reader = Reader::new(&payload, Order::Little);
        assert_eq!(reader.u32(), Ok(ioid));
        reader.u8().unwrap();
        let status = reader.status().unwrap();
        let ty = if reader.rest().is_empty() { None } else { Some(reader.ty(&mut self.types).unwrap()) };
        (status, ty)
    }

    fn ask(&mut self, command: u8, sid: u32, ioid: u32, sub: u8) {
        self.send(command, |out| {
            out.u32(sid);
            out.u32(ioid);
            out.u8(sub);
        });
    }

    fn put(&mut self, sid: u32, ioid: u32, value: f64) {
        self.send(command::PUT, |out| {
            out.u32(sid);
            out.u32(ioid);
            out.u8(0);
            out.mask64(2);
            out.f64(value);
        });
    }

    fn post(&mut self, value: f64) {
        self.values.number = value;
        let value = Value::from(value);
        let mask = EventMask::VALUE | EventMask::LOG;
        let post =
            Post { watch: 0, mask, alarm: Alarm::NONE, stamp: Stamp::EPOCH, note: Annotation::NONE, value: &value };
        self.server.post(&post, &mut self.values);
    }
}

fn bench_greeting() -> Vec<u8> {
    let mut out = vec![0, 0, 1, 0, 0xFF, 0x7F, 2, 9];
    out.extend_from_slice(b"anonymous\x02ca");
    out
}

/// The status of a reply.
fn status(payload: &[u8]) -> Status {
    Reader::new(&payload[5..], Order::Little).status().unwrap()
}

/// An update: changed fields, the value, overrun fields.
fn update(ty: &Type, payload: &[u8]) -> (Mask, f64, Mask) {
    let mut reader = Reader::new(&payload[5..], Order::Little);
    let mask = reader.mask().unwrap();
    let mut value = Tree::zero(ty);
    reader.fields_of(ty, &mask, &mut value, &mut TypeTable::default()).unwrap();
    let overrun = reader.mask().unwrap();
    assert!(reader.rest().is_empty());
    let number = value.field(ty.fields().unwrap(), "value").unwrap().0.to_f64().unwrap();
    (mask, number, overrun)
}

#[test]
fn a_channel_is_read_with_its_selected_fields() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(5, "n");
    let (created, ty) = bench.init(command::GET, sid, 1, "field(value)", None);
    assert_eq!(created, Status::OK);
    let ty = ty.unwrap();
    assert_eq!(ty.fields().unwrap().id(), "epics:nt/NTScalar:1.0");
    for number in [1.5, 2.5] {
        bench.values.number = number;
        bench.ask(command::GET, sid, 1, 0);
        let (_, payload) = bench.one();
        let expected = [&[1, 0, 0, 0, 0, 0xFF, 1, 2][..], &number.to_le_bytes()].concat();
        assert_eq!(payload, expected);
    }
    // The type of the second operation is its number: 9 bytes after the header.
    let (ty2, value) = Request::default().to_value().unwrap();
    bench.send(command::GET, |out| {
        out.u32(sid);
        out.u32(2);
        out.u8(8);
        out.ty(&Type::Struct(ty2));
        out.value(&value);
    });
    assert_eq!(bench.one().1, [2, 0, 0, 0, 8, 0xFF, 0xFE, 1, 0]);
    // A request with the last bit ends the operation.
    bench.ask(command::GET, sid, 1, 0x10);
    bench.take();
    bench.ask(command::GET, sid, 1, 0);
    assert_eq!(status(&bench.one().1), Status::error("bad request id"));
}

#[test]
fn impossible_requests_are_answered_with_an_error() {
    let mut bench = Bench::new(Limits { operations: 2, channels: 1, ..Limits::default() });
    assert_eq!(bench.create(1, "nothing"), u32::MAX);
    let sid = bench.create(1, "n");
    assert_eq!(bench.create(2, "n"), u32::MAX, "too many channels");
    assert!(!bench.init(command::GET, 99, 1, "", None).0.is_success(), "a channel that does not exist");
    assert!(!bench.init(command::GET, sid, 1, "field(nothing)", None).0.is_success());
    assert!(!bench.init(command::PUT, sid, 1, "record[process=maybe]", None).0.is_success());
    assert!(bench.init(command::GET, sid, 1, "", None).0.is_success());
    assert!(!bench.init(command::GET, sid, 1, "", None).0.is_success(), "an operation that exists");
    assert!(bench.init(command::PUT, sid, 2, "", None).0.is_success());
    assert!(!bench.init(command::GET, sid, 3, "", None).0.is_success(), "too many operations");
    for command in [command::ARRAY, command::RPC] {
        let (status, _) = bench.init(command, sid, 4, "", None);
        assert!(status.message.contains("not supported"), "{status}");
    }
    assert_eq!(bench.server.counters.refused, 2);
}

#[test]
fn a_write_processes_as_its_option_says() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    let value = Written::Value(Value::Scalar(Scalar::F64(3.0)));
    for (ioid, option, expected) in [
        (1, "passive", Write::Value(value.clone())),
        (2, "true", Write::ValueAs(value.clone(), true)),
        (3, "false", Write::ValueAs(value, false)),
    ] {
        assert!(bench.init(command::PUT, sid, ioid, &format!("record[process={option}]"), None).0.is_success());
        bench.put(sid, ioid, 3.0);
        assert_eq!(bench.values.writes.last(), Some(&(0, expected, false)), "{option}");
    }
    let count = bench.values.writes.len();
    bench.send(command::PUT, |out| {
        out.u32(sid);
        out.u32(3);
        out.u8(0);
        out.mask64(0);
    });
    assert_eq!(bench.values.writes.len(), count, "nothing to write and nothing to process");
}

#[test]
fn writes_that_wait_for_processing_are_executed_in_order_and_each_is_answered() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    bench.init(command::PUT, sid, 1, "record[block=true]", None);
    bench.put(sid, 1, 3.0);
    bench.put(sid, 1, 4.0);
    let written = |value: f64| Write::Value(Written::Value(Value::Scalar(Scalar::F64(value))));
    assert_eq!(bench.values.writes, [(0, written(3.0), true)], "the second one waits");
    assert!(bench.take().is_empty());
    bench.server.put_done(bench.values.asked[0], true, &mut bench.values);
    assert_eq!(status(&bench.one().1), Status::OK);
    assert_eq!(bench.values.writes[1], (0, written(4.0), true));
    bench.server.put_done(bench.values.asked[1], false, &mut bench.values);
    assert!(!status(&bench.one().1).is_success());
    // A write without a marked value processes.
    bench.send(command::PUT, |out| {
        out.u32(sid);
        out.u32(1);
        out.u8(0);
        out.mask64(0);
    });
    assert_eq!(bench.values.writes[2], (0, Write::Process, true));
    bench.send(command::DESTROY_REQUEST, |out| {
        out.u32(sid);
        out.u32(1);
    });
    assert_eq!(bench.values.forgotten, [bench.values.asked[2]]);
    bench.server.put_done(bench.values.asked[2], true, &mut bench.values);
    assert!(bench.take().is_empty());
}

#[test]
fn a_put_get_answers_with_the_value_after_the_write() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    let (ty, value) = Request::parse("field(value)record[block=true]").unwrap().to_value().unwrap();
    bench.send(command::PUT_GET, |out| {
        out.u32(sid);
        out.u32(1);
        out.u8(0x08);
        out.ty(&Type::Struct(ty));
        out.value(&value);
    });
    let (replied, payload) = bench.one();
    let mut reader = Reader::new(&payload[5..], Order::Little);
    assert_eq!((replied, reader.status()), (command::PUT_GET, Ok(Status::OK)));
    let types = [reader.ty(&mut bench.types).unwrap(), reader.ty(&mut bench.types).unwrap()];
    assert!(types[0] == types[1] && reader.rest().is_empty(), "the types of both sides");
    let put = |out: &mut Writer, value: f64| {
        out.u32(sid);
        out.u32(1);
        out.u8(0);
        out.mask64(2);
        out.f64(value);
    };
    bench.send(command::PUT_GET, |out| put(out, 3.0));
    bench.send(command::PUT_GET, |out| put(out, 4.0));
    assert!(bench.take().is_empty(), "processing has not ended");
    bench.values.number = 3.5;
    bench.server.put_done(bench.values.asked[0], true, &mut bench.values);
    assert_eq!(bench.one().1, [&[1, 0, 0, 0, 0, 0xFF, 1, 2][..], &3.5f64.to_le_bytes()].concat());
    bench.server.put_done(bench.values.asked[1], false, &mut bench.values);
    assert!(!status(&bench.one().1).is_success(), "a failed write is not read");
    for sub in [0x40, 0x80] {
        bench.ask(command::PUT_GET, sid, 1, sub);
        assert_eq!(bench.one().1[..8], [1, 0, 0, 0, sub, 0xFF, 1, 2]);
    }
    assert_eq!(bench.values.writes.len(), 2);
}

#[test]
fn a_client_without_rights_neither_reads_nor_writes() {
    let mut bench = Bench::new(Limits::default());
    bench.send(command::VALIDATION, |out| {
        out.u32(0x1_0000);
        out.u16(0x7FFF);
        out.u16(0);
        out.text("ca");
        out.bytes.extend_from_slice(b"\x80\0\x01\x04user\x60\x0blocal/guest");
    });
    bench.take();
    let sid = bench.create(1, "n");
    bench.init(command::PUT, sid, 1, "", None);
    bench.server.refresh_access(&mut bench.values);
    assert_eq!(bench.one(), (command::ACL_CHANGE, vec![1, 0, 0, 0, 0]));
    bench.put(sid, 1, 3.0);
    assert_eq!(status(&bench.one().1), Status::error("no write access"), "the account is the part after the slash");
    bench.values.access = Some(Access { read: false, write: false });
    bench.server.refresh_access(&mut bench.values);
    bench.put(sid, 1, 3.0);
    assert_eq!(status(&bench.one().1), Status::error("no write access"));
    bench.init(command::GET, sid, 2, "", None);
    bench.ask(command::GET, sid, 2, 0);
    assert_eq!(status(&bench.one().1), Status::error("no read access"));
    assert!(bench.values.writes.is_empty());
}

#[test]
fn answers_that_come_later_go_to_their_operations() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    bench.values.later = true;
    bench.init(command::GET, sid, 1, "field(value)", None);
    bench.ask(command::GET, sid, 1, 0x10);
    let (_, ty) = bench.init(command::MONITOR, sid, 2, "field(value)", None);
    bench.ask(command::MONITOR, sid, 2, 0x44);
    bench.post(9.0);
    assert!(bench.take().is_empty(), "the first value has not been read");
    let value = Value::from(7.0);
    let tokens = bench.values.asked.clone();
    let meta = Meta::default();
    let view = View {
        value: &value,
        alarm: Alarm::NONE,
        stamp: Stamp::EPOCH,
        note: Annotation::NONE,
        hints: Hints::NONE,
        meta: &meta,
        description: "".into(),
    };
    for token in &tokens {
        bench.server.answer(*token, Some(view), &mut bench.values);
    }
    let seen = bench.take();
    assert_eq!(seen.iter().map(|(command, _)| *command).collect::<Vec<_>>(), [command::GET, command::MONITOR]);
    assert_eq!(update(&ty.unwrap(), &seen[1].1).1, 7.0);
    assert_eq!(bench.server.size(), (1, 1, 1), "the get has ended");
}

#[test]
fn clients_are_notified_of_channels_that_no_longer_exist() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(5, "n");
    bench.init(command::MONITOR, sid, 1, "", None);
    bench.server.drop_channels(|handle| handle == 0, &mut bench.values);
    let (command, payload) = bench.one();
    assert_eq!((command, payload), (command::DESTROY_CHANNEL, [sid.to_le_bytes(), 5u32.to_le_bytes()].concat()));
    assert_eq!((bench.values.watched, bench.values.open), (0, 0));
}

#[test]
fn a_silent_client_is_disconnected_and_an_echo_keeps_it() {
    let mut bench = Bench::new(Limits::default());
    bench.send(command::ECHO, |out| out.bytes.extend_from_slice(b"hello"));
    assert_eq!(bench.one(), (command::ECHO, b"hello".to_vec()));
    let late = bench.server.poll_timeout().unwrap();
    bench.server.handle_timeout(late);
    assert!(!bench.server.is_closing(bench.id), "it has sent something since");
    let late = bench.server.poll_timeout().unwrap();
    bench.server.handle_timeout(late);
    assert!(bench.server.is_closing(bench.id));
    assert_eq!(bench.server.poll_timeout(), None);
}

#[test]
fn a_client_that_sent_invalid_bytes_and_reads_nothing_is_disconnected() {
    let mut bench = Bench::new(Limits::default());
    bench.send(command::ECHO, |out| out.bytes.extend_from_slice(b"hello"));
    let other = bench.server.accept(MonoNs(0), "10.0.0.9:4001");
    bench.server.close(other, &mut bench.values);
    let first = bench.server.poll_timeout().unwrap();
    bench.server.handle_bytes(MonoNs(first.0 - 1), bench.id, b"GET /", &mut bench.values);
    assert!(bench.server.is_closing(bench.id) && !bench.server.output(bench.id).is_empty());
    bench.server.handle_timeout(first);
    let late = bench.server.poll_timeout().expect("its output was not sent");
    bench.server.handle_timeout(late);
    assert!(bench.server.output(bench.id).is_empty());
    assert_eq!(bench.server.poll_timeout(), None);
}

#[test]
fn searches_are_answered_over_tcp() {
    let mut bench = Bench::new(Limits::default());
    let mut out = Writer::new(Order::Little);
    let reply_to = crate::search::Address { ip: crate::search::SENDER, port: 0 };
    crate::search::write_search(&mut out, 3, 0, reply_to, &[(9, "n"), (10, "x")]);
    bench.server.handle_bytes(MonoNs(1), bench.id, &out.bytes, &mut bench.values);
    let (command, payload) = bench.one();
    assert_eq!(command, command::SEARCH_RESPONSE);
    assert_eq!(crate::search::SearchResponse::read(&payload, Order::Little).unwrap().unwrap().ids, [9]);
}

#[test]
fn types_are_described_with_and_without_a_field() {
    let mut bench = Bench::new(Limits::default());
    let sid = bench.create(1, "n");
    for (name, ok) in [("", true), ("alarm", true), ("value", true), ("nothing", false)] {
        bench.send(command::GET_FIELD, |out| {
            out.u32(sid);
            out.u32(1);
            out.text(name);
        });
        let (_, payload) = bench.one();
        let mut reader = Reader::new(&payload[4..], Order::Little);
        assert_eq!(reader.status().unwrap().is_success(), ok, "{name}");
        if ok {
            let ty: Result<Type, Fault> = reader.ty(&mut bench.types);
            assert_eq!(ty.unwrap().fields().is_some(), name != "value");
        }
        assert!(reader.rest().is_empty());
    }
}

proptest! {
    #[test]
    fn no_bytes_of_a_client_panic(
        messages in proptest::collection::vec((0u8..24, proptest::collection::vec(0u8..12, 0..40)), 0..30),
        later in any::<bool>(),
    ) {
        let mut bench = Bench::new(Limits { out_bytes: 4096, ..Limits::default() });
        let sid = bench.create(1, "n");
        for (ioid, command) in [command::GET, command::PUT, command::MONITOR].into_iter().enumerate() {
            bench.init(command, sid, ioid as u32, "", None);
        }
        bench.values.later = later;
        for (command, payload) in messages {
            bench.send(command, |out| {
                if payload.len() % 2 == 0 {
                    out.u32(sid);
                }
                out.bytes.extend_from_slice(&payload);
            });
            bench.post(1.0);
            for token in std::mem::take(&mut bench.values.asked) {
                bench.server.put_done(token, true, &mut bench.values);
                bench.values.value = Some(Value::from(1.0));
                let values = std::mem::take(&mut bench.values);
                bench.server.answer(token, Some(values.view()), &mut Values::default());
                bench.values = values;
            }
        }
        bench.server.close(bench.id, &mut bench.values);
    }
}
