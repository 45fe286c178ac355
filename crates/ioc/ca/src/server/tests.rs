use super::*;
use crate::dbr::Dbr;
use crate::wire::{self, Header, command};
use base::{Alarm, Annotation, Scalar, Stamp};
use proptest::prelude::*;

mod dropped;

/// A few values by name. The index is also the channel.
#[derive(Default)]
struct Values {
    values: Vec<(&'static str, Value)>,
    access: Option<Access>,
    later: bool,
    /// The channels with these names answer later, on this lane.
    lane: Option<(&'static [&'static str], u16)>,
    asked: Vec<(Token, u64, Option<Write>)>,
    pending: Vec<Token>,
    watched: i32,
    open: i32,
}

const ALL: Access = Access { read: true, write: true };

impl Backend for Values {
    fn exists(&mut self, name: &[u8]) -> bool {
        self.values.iter().any(|(known, _)| known.as_bytes() == name)
    }
    fn open(&mut self, name: &[u8], _: Peer<'_>) -> Option<Opened> {
        let index = self.values.iter().position(|(known, _)| known.as_bytes() == name)?;
        let value = &self.values[index].1;
        self.open += 1;
        Some(Opened {
            handle: index as u64,
            watch: index as u64,
            native: Basic::native_of(value.kind()),
            count: value.len() as u32,
            access: self.access.unwrap_or(ALL),
            posted: matches!(value, Value::Scalar(_)),
            lane: self.lane.filter(|_| self.is_apart(index as u64)).map_or(0, |(_, lane)| lane),
        })
    }
    fn access(&mut self, _: u64, _: Peer<'_>) -> Access {
        self.access.unwrap_or(ALL)
    }

    fn record_name(&self, _: u64) -> &str {
        "record"
    }
    fn close(&mut self, _: u64) {
        self.open -= 1;
    }
    fn read(&mut self, handle: u64, _: Needs, reading: &mut Reading, token: Option<Token>) -> Result<Get, Eca> {
        if let (true, Some(token)) = (self.is_apart(handle), token) {
            self.asked.push((token, handle, None));
            return Ok(Get::Sent);
        }
        reading.value = self.values[handle as usize].1.clone();
        Ok(Get::Done)
    }
    fn write(&mut self, handle: u64, _: Peer<'_>, write: Write, token: Token, notify: bool) -> PutOutcome {
        if self.is_apart(handle) {
            self.asked.push((token, handle, Some(write)));
            return PutOutcome::Sent;
        }
        if self.later && notify {
            self.pending.push(token);
            return PutOutcome::Later;
        }
        match write {
            Write::Value(value @ Value::Scalar(Scalar::F64(_))) => self.values[handle as usize].1 = value,
            _ => return PutOutcome::Failed,
        }
        PutOutcome::Done
    }
    fn forget(&mut self, token: Token) {
        self.pending.retain(|pending| *pending != token);
    }
    fn watch(&mut self, _: u64) -> bool {
        self.watched += 1;
        true
    }
    fn unwatch(&mut self, _: u64) {
        self.watched -= 1;
    }
}

impl Values {
    fn is_apart(&self, handle: u64) -> bool {
        self.lane.is_some_and(|(known, _)| known.contains(&self.values[handle as usize].0))
    }
}

struct Bench {
    server: Server,
    values: Values,
    id: CircuitId,
}

impl Bench {
    fn new() -> Self {
        let values = Values {
            values: vec![
                ("x", Value::from(1.5)),
                ("text", Value::from("hello")),
                ("wave", Value::from(vec![1i16, 2, 3])),
            ],
            ..Values::default()
        };
        let mut server = Server::new(Limits { out_bytes: 400, ..Limits::default() });
        let id = server.accept("here");
        let mut bench = Self { server, values, id };
        bench.send(Header::bare(command::VERSION, 10, 13, 0, 0), &[]);
        assert_eq!(bench.receive(), [(Header::bare(command::VERSION, 0, 13, 0, 0), vec![])]);
        bench
    }

    fn send(&mut self, mut header: Header, payload: &[u8]) {
        let mut out = Vec::new();
        let size = wire::padded(payload.len());
        header.size = size as u32;
        header.write(&mut out);
        out.extend_from_slice(payload);
        out.resize(out.len() + size - payload.len(), 0);
        self.server.handle_bytes(MonoNs(0), self.id, &out, &mut self.values);
    }

    fn receive(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let bytes = self.server.output(self.id).to_vec();
            if bytes.is_empty() {
                return all;
            }
            all.extend(wire::messages(&bytes).map(|(header, payload)| (header, payload.to_vec())));
            self.server.sent(MonoNs(0), self.id, bytes.len(), &mut self.values);
        }
    }

    fn create(&mut self, name: &str, cid: u32) -> u32 {
        let mut payload = name.as_bytes().to_vec();
        payload.push(0);
        self.send(Header::bare(command::CREATE_CHAN, 0, 0, cid, 13), &payload);
        self.receive().last().unwrap().0.p2
    }

    fn subscribe(&mut self, sid: u32, kind: u16, id: u32) {
        let mut payload = [0; 16];
        payload[13] = 5;
        self.send(Header::bare(command::EVENT_ADD, kind, 0, sid, id), &payload);
    }

    /// Answers the oldest request to a channel with a lane.
    fn answer(&mut self) {
        let (token, handle, write) = self.values.asked.remove(0);
        let reading = Reading { value: self.values.values[handle as usize].1.clone(), ..Reading::default() };
        let answer = match write {
            None => Answer::Read(Ok(&reading)),
            Some(Write::Value(value)) => {
                self.values.values[handle as usize].1 = value;
                Answer::Write(PutOutcome::Done)
            }
            Some(_) => Answer::Write(PutOutcome::Failed),
        };
        self.server.answer(MonoNs(0), token, answer, &mut self.values);
    }

    fn post(&mut self, watch: u64, value: f64) {
        self.values.values[watch as usize].1 = Value::from(value);
        let post = Post {
            watch,
            mask: EventMask::VALUE,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            note: Annotation::NONE,
            value: Value::from(value),
        };
        self.server.post(&post, &mut self.values);
    }
}

fn doubles(messages: &[(Header, Vec<u8>)]) -> Vec<f64> {
    messages.iter().map(|(_, payload)| f64::from_be_bytes(payload[..8].try_into().unwrap())).collect()
}

#[test]
fn a_channel_is_created_read_written_and_cleared() {
    let mut bench = Bench::new();
    bench.send(Header::bare(command::CREATE_CHAN, 0, 0, 7, 13), b"x\0");
    let made = bench.receive();
    assert_eq!(made[0].0, Header::bare(command::ACCESS_RIGHTS, 0, 0, 7, 3));
    let sid = made[1].0.p2;
    assert_eq!(made[1].0, Header::bare(command::CREATE_CHAN, 6, 1, 7, sid));
    bench.send(Header::bare(command::WRITE, 6, 1, sid, 1), &2.5f64.to_be_bytes());
    bench.send(Header::bare(command::READ_NOTIFY, 6, 0, sid, 99), &[]);
    let read = bench.receive();
    assert_eq!((read[0].0.p1, read[0].0.p2, read[0].0.count), (Eca::NORMAL.0, 99, 1));
    assert_eq!(doubles(&read), [2.5]);
    bench.send(Header::bare(command::CLEAR_CHANNEL, 0, 0, sid, 7), &[]);
    assert_eq!(bench.receive()[0].0, Header::bare(command::CLEAR_CHANNEL, 0, 0, sid, 7));
    assert_eq!(bench.values.open, 0);
}

#[test]
fn an_unknown_name_fails_and_the_circuit_stays_open() {
    let mut bench = Bench::new();
    bench.send(Header::bare(command::CREATE_CHAN, 0, 0, 7, 13), b"nobody\0");
    assert_eq!(bench.receive()[0].0, Header::bare(command::CREATE_CH_FAIL, 0, 0, 7, 0));
    assert!(!bench.server.is_closing(bench.id));
}

#[test]
fn bad_ids_commands_and_alignment_end_the_circuit_with_an_error() {
    for header in [
        Header::bare(command::READ_NOTIFY, 6, 1, 55, 0),
        Header::bare(command::CLEAR_CHANNEL, 0, 0, 55, 0),
        Header::bare(99, 0, 0, 0, 0),
    ] {
        let mut bench = Bench::new();
        bench.send(header, &[]);
        let error = bench.receive();
        assert_eq!((error[0].0.command, error[0].0.p2), (command::ERROR, Eca::INTERNAL.0), "{header:?}");
        assert!(bench.server.is_closing(bench.id));
    }
    let mut bench = Bench::new();
    let mut odd = Vec::new();
    Header { command: command::ECHO, size: 5, ..Header::default() }.write(&mut odd);
    bench.server.handle_bytes(MonoNs(0), bench.id, &odd, &mut bench.values);
    assert!(bench.server.is_closing(bench.id));
}

#[test]
fn a_forbidden_request_is_refused_in_the_form_of_its_command() {
    let mut bench = Bench::new();
    bench.values.access = Some(Access { read: false, write: false });
    let sid = bench.create("x", 1);
    bench.send(Header::bare(command::WRITE, 6, 1, sid, 4), &[0; 8]);
    bench.send(Header::bare(command::WRITE_NOTIFY, 6, 1, sid, 5), &[0; 8]);
    bench.send(Header::bare(command::READ_NOTIFY, 6, 1, sid, 6), &[]);
    let answers = bench.receive();
    assert_eq!((answers[0].0.command, answers[0].0.p1, answers[0].0.p2), (command::ERROR, 1, Eca::NOWTACCESS.0));
    assert_eq!((answers[1].0.command, answers[1].0.p1, answers[1].0.p2), (command::WRITE_NOTIFY, Eca::NOWTACCESS.0, 5));
    assert_eq!((answers[2].0.p1, doubles(&answers[2..])), (Eca::NORDACCESS.0, vec![0.0]));
    bench.values.access = None;
    bench.server.refresh_access(&mut bench.values);
    assert_eq!(bench.receive()[0].0, Header::bare(command::ACCESS_RIGHTS, 0, 0, 1, 3));
}

#[test]
fn a_put_callback_waits_for_the_one_before_it() {
    let mut bench = Bench::new();
    bench.values.later = true;
    let sid = bench.create("x", 1);
    bench.send(Header::bare(command::WRITE_NOTIFY, 6, 1, sid, 1), &[0; 8]);
    bench.send(Header::bare(command::WRITE_NOTIFY, 6, 1, sid, 2), &[0; 8]);
    bench.send(Header::bare(command::READ_SYNC, 0, 0, 0, 0), &[]);
    assert!(bench.receive().is_empty() && bench.values.pending.len() == 1);
    assert!(!bench.server.wants_input(bench.id));
    let token = bench.values.pending.remove(0);
    bench.server.put_done(MonoNs(5), token, true, &mut bench.values);
    let answers = bench.receive();
    assert_eq!((answers[0].0.p1, answers[0].0.p2), (Eca::NORMAL.0, 1));
    assert_eq!(answers[1].0.command, command::READ_SYNC);
    // The second put is cancelled after a third one has waited for a minute.
    bench.send(Header::bare(command::WRITE_NOTIFY, 6, 1, sid, 3), &[0; 8]);
    let until = bench.server.poll_timeout().unwrap();
    bench.server.handle_timeout(until, &mut bench.values);
    assert_eq!((bench.receive()[0].0.p1, bench.values.pending.len()), (Eca::PUTCBINPROG.0, 1));
}

#[test]
fn a_subscription_sends_the_value_at_once_then_each_post_until_cancelled() {
    let mut bench = Bench::new();
    let sid = bench.create("x", 1);
    bench.subscribe(sid, 6, 42);
    bench.post(0, 2.0);
    bench.post(0, 3.0);
    let updates = bench.receive();
    assert!(updates.iter().all(|(header, _)| (header.command, header.p1, header.p2) == (1, 1, 42)));
    assert_eq!(doubles(&updates), [1.5, 2.0, 3.0]);
    bench.send(Header::bare(command::EVENT_CANCEL, 6, 0, sid, 42), &[]);
    bench.post(0, 4.0);
    assert_eq!(bench.receive(), [(Header::bare(command::EVENT_ADD, 6, 0, sid, 42), vec![])]);
    assert_eq!(bench.values.watched, 0);
}

#[test]
fn in_a_full_queue_the_newest_update_replaces_the_last_one_and_is_counted() {
    let mut bench = Bench::new();
    let sid = bench.create("x", 1);
    bench.subscribe(sid, 6, 42);
    (0..1000).for_each(|n| bench.post(0, f64::from(n)));
    let updates = doubles(&bench.receive());
    assert!(updates.len() < 25, "bounded: {}", updates.len());
    assert_eq!(updates.last(), Some(&999.0));
    assert!(updates.windows(2).all(|pair| pair[0] <= pair[1] || pair[0] == 1.5), "in order: {updates:?}");
    let counters = bench.server.counters();
    assert_eq!(counters.updates, 1001);
    assert_eq!(counters.replaced as usize, 1001 - updates.len());
}

#[test]
fn each_subscription_may_have_four_updates_queued_as_in_epics() {
    let mut bench = Bench::new();
    let sid = bench.create("x", 1);
    (0..200).for_each(|id| bench.subscribe(sid, 6, id));
    assert_eq!(bench.receive().len(), 200);
    (0..4).for_each(|n| bench.post(0, f64::from(n)));
    assert_eq!((bench.receive().len(), bench.server.counters().replaced), (800, 0));
    (0..1000).for_each(|id| bench.send(Header::bare(command::EVENT_CANCEL, 6, 0, sid, id % 200), &[]));
    bench.receive();
    (0..1000).for_each(|n| bench.post(0, f64::from(n)));
    assert!(bench.receive().is_empty());
}

#[test]
fn subscriptions_end_in_any_order_and_the_others_continue() {
    let mut bench = Bench::new();
    let (sid, other) = (bench.create("x", 1), bench.create("x", 2));
    for id in 0..1000 {
        bench.subscribe(if id % 2 == 0 { sid } else { other }, 6, id);
        bench.receive();
    }
    for id in (0..1000).rev().filter(|id| id % 10 != 4 && id % 2 == 0) {
        bench.send(Header::bare(command::EVENT_CANCEL, 6, 0, sid, id), &[]);
    }
    bench.receive();
    bench.send(Header::bare(command::CLEAR_CHANNEL, 0, 0, other, 2), &[]);
    bench.receive();
    bench.post(0, 2.0);
    let mut ids: Vec<u32> = bench.receive().iter().map(|(header, _)| header.p2).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..1000).filter(|id| id % 10 == 4).collect::<Vec<_>>());
    assert_eq!(bench.values.watched, 100);
    // A cancelled subscription cannot be cancelled again.
    bench.send(Header::bare(command::EVENT_CANCEL, 6, 0, sid, 0), &[]);
    assert_eq!(bench.receive()[0].0.p2, Eca::BADMONID.0);
}

#[test]
fn with_events_off_only_the_last_value_is_kept() {
    let mut bench = Bench::new();
    let sid = bench.create("x", 1);
    bench.subscribe(sid, 6, 42);
    bench.receive();
    bench.send(Header::bare(command::EVENTS_OFF, 0, 0, 0, 0), &[]);
    (0..10).for_each(|n| bench.post(0, f64::from(n)));
    assert!(bench.receive().is_empty());
    bench.send(Header::bare(command::EVENTS_ON, 0, 0, 0, 0), &[]);
    assert_eq!(doubles(&bench.receive()), [9.0]);
}

#[test]
fn a_client_that_never_reads_stays_bounded_and_is_not_served_further() {
    let mut bench = Bench::new();
    let sid = bench.create("x", 1);
    (0..1000).for_each(|_| bench.send(Header::bare(command::READ_NOTIFY, 6, 1, sid, 1), &[]));
    assert!(bench.server.output(bench.id).len() < 500);
    assert!(!bench.server.wants_input(bench.id));
    assert_eq!(bench.receive().len(), 1000);
}

impl Bench {
    /// A hundred subscriptions to one long array. Their first updates have been read.
    fn with_long_array() -> Self {
        let mut bench = Self::new();
        bench.values.values.push(("long", Value::from(vec![0f64; 1000])));
        let sid = bench.create("long", 9);
        for id in 0..100 {
            bench.subscribe(sid, 6, id);
            assert_eq!(bench.receive().len(), 1);
        }
        bench
    }

    fn post_long(&mut self, value: f64) {
        self.values.values[3].1 = Value::from(vec![value; 1000]);
        let value = Value::from(0i32);
        let post = Post {
            watch: 3,
            mask: EventMask::VALUE,
            alarm: Alarm::NONE,
            stamp: Stamp::EPOCH,
            note: Annotation::NONE,
            value,
        };
        self.server.post(&post, &mut self.values);
    }
}

#[test]
fn long_arrays_for_a_client_that_does_not_read_are_not_stored_but_read_when_it_does() {
    let mut bench = Bench::with_long_array();
    for number in 1..=10 {
        bench.post_long(f64::from(number));
    }
    let kept = bench.server.output(bench.id).len();
    assert!(kept < 400 + 3 * 8100, "{kept} bytes for a client that does not read");
    let updates = bench.receive();
    let newest = updates.iter().filter(|(_, payload)| payload[..8] == 10f64.to_be_bytes()).count();
    assert_eq!(newest, 100, "each subscription gets the newest");
    let counters = bench.server.counters();
    assert_eq!(counters.updates - counters.replaced, 100 + updates.len() as u64);
}

#[test]
fn long_arrays_are_read_when_events_are_switched_on_again() {
    let mut bench = Bench::with_long_array();
    bench.send(Header::bare(command::EVENTS_OFF, 0, 0, 0, 0), &[]);
    bench.post_long(1.0);
    bench.post_long(2.0);
    bench.send(Header::bare(command::READ_SYNC, 0, 0, 0, 0), &[]);
    assert_eq!(bench.receive().len(), 1, "no update in between");
    bench.send(Header::bare(command::EVENTS_ON, 0, 0, 0, 0), &[]);
    assert_eq!(doubles(&bench.receive()), [2.0; 100]);
}

#[test]
fn a_message_larger_than_any_value_of_its_channel_is_refused_before_it_is_complete() {
    let mut bench = Bench::new();
    let sid = bench.create("x", 1);
    for (kind, p1) in [(command::WRITE, sid), (command::WRITE_NOTIFY, 77), (command::ECHO, 0)] {
        let mut head = Vec::new();
        Header { command: kind, size: 1 << 20, kind: 6, count: 1 << 17, p1, p2: 0 }.write(&mut head);
        bench.server.handle_bytes(MonoNs(0), bench.id, &head, &mut bench.values);
        let answers = bench.receive();
        assert_eq!((answers[0].0.command, answers[0].0.p2), (command::ERROR, Eca::TOLARGE.0));
        (0..256).for_each(|_| bench.server.handle_bytes(MonoNs(0), bench.id, &[9; 4096], &mut bench.values));
    }
    bench.send(Header::bare(command::READ_SYNC, 0, 0, 0, 0), &[]);
    assert_eq!(bench.receive()[0].0.command, command::READ_SYNC);
}

#[test]
fn messages_may_arrive_in_any_pieces() {
    let mut bench = Bench::new();
    let sid = bench.create("wave", 1);
    let mut bytes = Vec::new();
    for _ in 0..3 {
        Header::bare(command::READ_NOTIFY, 1, 5, sid, 1).write(&mut bytes);
    }
    for byte in bytes {
        bench.server.handle_bytes(MonoNs(0), bench.id, &[byte], &mut bench.values);
    }
    let answers = bench.receive();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0].1, [0, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn closing_a_circuit_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let sid = bench.create("x", 1);
    bench.create("wave", 2);
    bench.subscribe(sid, 6, 1);
    bench.server.close(bench.id, &mut bench.values);
    assert_eq!((bench.values.open, bench.values.watched, bench.server.watchers.len()), (0, 0, 0));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_all_resources_are_released(
        messages in proptest::collection::vec((0u16..30, 0u16..40, 0u32..6, 0u32..4, 0u32..4, proptest::collection::vec(any::<u8>(), 0..40)), 0..60),
        noise in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut bench = Bench::new();
        bench.create("x", 1);
        bench.create("wave", 2);
        for (command, kind, count, p1, p2, payload) in messages {
            bench.send(Header { command, size: 0, kind, count, p1, p2 }, &payload);
            bench.post(0, 1.0);
        }
        bench.server.handle_bytes(MonoNs(0), bench.id, &noise, &mut bench.values);
        let _ = bench.receive();
        bench.server.close(bench.id, &mut bench.values);
        prop_assert_eq!((bench.values.open, bench.values.watched), (0, 0));
        prop_assert_eq!(Dbr::from_wire(39), None);
    }
}

fn apart() -> (Bench, u32, u32) {
    let mut bench = Bench::new();
    bench.values.lane = Some((&["x"], 3));
    let (x, text) = (bench.create("x", 1), bench.create("text", 2));
    (bench, x, text)
}

#[test]
fn a_read_after_a_write_to_a_remote_channel_returns_the_written_value() {
    let (mut bench, x, _) = apart();
    bench.send(Header::bare(command::WRITE, 6, 1, x, 1), &2.5f64.to_be_bytes());
    bench.send(Header::bare(command::READ_NOTIFY, 6, 1, x, 2), &[]);
    assert_eq!((bench.receive().len(), bench.values.asked.len()), (0, 2), "both requests are open at once");
    bench.answer();
    assert!(bench.receive().is_empty(), "a write is only answered when it failed");
    bench.answer();
    let answers = bench.receive();
    assert_eq!((answers[0].0.p2, doubles(&answers)), (2, vec![2.5]));
}

#[test]
fn requests_to_other_channels_wait_until_a_remote_channel_has_answered() {
    let (mut bench, x, text) = apart();
    bench.send(Header::bare(command::READ_NOTIFY, 6, 1, x, 1), &[]);
    bench.send(Header::bare(command::READ_NOTIFY, 0, 1, text, 2), &[]);
    bench.send(Header::bare(command::READ, 6, 1, x, 3), &[]);
    assert!(bench.receive().is_empty() && !bench.server.wants_input(bench.id));
    bench.answer();
    assert_eq!(bench.receive().iter().map(|(header, _)| header.p2).collect::<Vec<_>>(), [1, 2]);
    bench.answer();
    assert_eq!(bench.receive()[0].0.p2, 3);
    assert!(bench.server.wants_input(bench.id));
}

#[test]
fn pending_answers_of_a_circuit_are_bounded() {
    let (mut bench, x, _) = apart();
    for number in 0..1000 {
        bench.send(Header::bare(command::READ_NOTIFY, 6, 1, x, number), &[]);
    }
    assert_eq!(bench.values.asked.len(), circuit::OWED_MAX);
    let mut seen = Vec::new();
    while !bench.values.asked.is_empty() {
        bench.answer();
        seen.extend(bench.receive().iter().map(|(header, _)| header.p2));
    }
    assert_eq!(seen, (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_subscription_to_a_remote_channel_begins_with_its_answer_and_a_failed_put_is_reported() {
    let (mut bench, x, _) = apart();
    bench.subscribe(x, 6, 42);
    bench.answer();
    bench.post(0, 4.0);
    assert_eq!(doubles(&bench.receive()), [1.5, 4.0]);
    bench.send(Header::bare(command::WRITE_NOTIFY, 36, 1, x, 7), &[0; 8]);
    bench.answer();
    assert_eq!((bench.receive()[0].0.p1), Eca::PUTFAIL.0);
    // An answer to an unknown request is ignored.
    bench.server.answer(MonoNs(0), Token(77), Answer::Write(PutOutcome::Done), &mut bench.values);
    assert!(bench.receive().is_empty());
}
