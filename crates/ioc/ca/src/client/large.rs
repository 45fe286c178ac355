//! Large messages from servers: in pieces of any size, too slow, or larger than requested.

use super::*;

const SERVER: Address = Address { ip: 0x7F00_0001, port: 5064 };
const NOW: MonoNs = MonoNs(1_000_000_000);
const DOUBLE: Dbr = Dbr::plain(Basic::Double);

/// A client with one channel to an array of doubles.
struct Bench {
    client: Client,
    circuit: CircuitId,
    channel: ChannelId,
}

fn answer(command: u16, io: IoId, count: u32, value: f64) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { command, size: 8 * count, kind: 6, count, p1: 1, p2: io.0 }.write(&mut bytes);
    (0..count).for_each(|_| bytes.extend_from_slice(&value.to_be_bytes()));
    bytes
}

impl Bench {
    fn new(count: u32) -> Self {
        let mut client = Client::new(ClientConfig::default());
        let channel = client.channel(NOW, "array", 0);
        let mut found = Vec::new();
        let reply = Header::bare(command::SEARCH, SERVER.port, 0, wire::NONE, channel.0);
        reply.write(&mut found);
        client.handle_datagram(NOW, SERVER, &found);
        let (circuit, _) = client.poll_connect().unwrap();
        client.connected_to(NOW, circuit);
        let mut bytes = Vec::new();
        Header::bare(command::ACCESS_RIGHTS, 0, 0, channel.0, 3).write(&mut bytes);
        Header::bare(command::CREATE_CHAN, 6, count, channel.0, 7).write(&mut bytes);
        client.handle_bytes(NOW, circuit, &bytes);
        assert!(matches!(client.poll_event(), Some(Event::Connected(_))));
        Self { client, circuit, channel }
    }

    fn read(&mut self, count: u32) -> IoId {
        self.client.read(self.channel, DOUBLE, count).unwrap()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.client.handle_bytes(NOW, self.circuit, bytes);
    }

    /// The number of elements of the value read, or the error.
    fn result(&mut self) -> Option<Result<usize, Eca>> {
        match self.client.poll_event()? {
            Event::Read { result, .. } | Event::Update { result, .. } => {
                Some(result.map(|(_, reading)| reading.value.len()))
            }
            other => panic!("{other:?}"),
        }
    }

    /// The memory for an incomplete message in bytes.
    fn held(&self) -> usize {
        self.client.circuits.get(self.circuit.0).unwrap().input.capacity()
    }
}

#[test]
fn a_message_in_pieces_is_not_copied_again_with_each_piece() {
    let count = 1 << 20;
    let mut bench = Bench::new(count);
    let io = bench.read(0);
    let message = answer(command::READ_NOTIFY, io, count, 2.5);
    let (mut moves, mut held) = (0, 0);
    for piece in message.chunks(4096) {
        bench.take(piece);
        moves += usize::from(bench.held() != held);
        held = bench.held();
    }
    assert_eq!(bench.result(), Some(Ok(count as usize)));
    assert!(moves < 32, "moved {moves} times in {} pieces", message.len() / 4096);
    assert!(bench.held() <= wire::MESSAGE_BYTES, "its memory is given back");
}

#[test]
fn a_large_request_is_sent_in_pieces_without_moving_the_rest_each_time() {
    let mut bench = Bench::new(1 << 20);
    bench.client.write(bench.channel, &Value::from(vec![0.5; 1 << 20]), false).unwrap();
    let mut end = bench.client.output(bench.circuit).as_ptr_range().end;
    let mut moves = 0;
    while !bench.client.output(bench.circuit).is_empty() {
        bench.client.sent(bench.circuit, 4096);
        let now = bench.client.output(bench.circuit).as_ptr_range().end;
        moves += usize::from(now != end);
        end = now;
    }
    assert!(moves < 32, "moved {moves} times");
}

#[test]
fn a_value_larger_than_requested_ends_its_request_and_is_not_kept() {
    let mut bench = Bench::new(1 << 20);
    let (large, small) = (bench.read(10), bench.read(10));
    for piece in answer(command::READ_NOTIFY, large, 1 << 20, 2.5).chunks(1 << 14) {
        bench.take(piece);
        assert!(bench.held() <= 1 << 14);
    }
    bench.take(&answer(command::READ_NOTIFY, small, 10, 2.5));
    assert_eq!([bench.result(), bench.result(), bench.result()], [Some(Err(Eca::TOLARGE)), Some(Ok(10)), None]);
}

#[test]
fn a_value_larger_than_the_bound_of_the_client_is_refused_and_the_circuit_stays_open() {
    let mut bench = Bench::new(1 << 20);
    bench.client.bound_messages(1 << 20);
    let sub = bench.client.subscribe(bench.channel, DOUBLE, 0, EventMask::VALUE);
    for count in [1 << 20, 1000] {
        answer(command::EVENT_ADD, sub, count, 1.0).chunks(1 << 14).for_each(|piece| bench.take(piece));
    }
    assert_eq!([bench.result(), bench.result(), bench.result()], [Some(Err(Eca::TOLARGE)), Some(Ok(1000)), None]);
}

#[test]
fn the_rest_of_an_update_is_discarded_if_its_subscription_ends() {
    let mut bench = Bench::new(1 << 20);
    let sub = bench.client.subscribe(bench.channel, DOUBLE, 0, EventMask::VALUE);
    let message = answer(command::EVENT_ADD, sub, 1 << 20, 1.0);
    bench.take(&message[..1 << 20]);
    bench.client.unsubscribe(sub);
    message[1 << 20..].chunks(1 << 14).for_each(|piece| bench.take(piece));
    let io = bench.read(10);
    bench.take(&answer(command::READ_NOTIFY, io, 10, 2.5));
    assert_eq!([bench.result(), bench.result()], [Some(Ok(10)), None]);
}

#[test]
fn a_large_message_without_a_request_ends_the_circuit() {
    let mut bench = Bench::new(10);
    let mut head = Vec::new();
    Header { command: command::ERROR, size: 256 << 20, kind: 0, count: 0, p1: 0, p2: 0 }.write(&mut head);
    bench.take(&head);
    assert!(bench.client.is_closing(bench.circuit));
}

/// Sends a message of 8 MiB in pieces of `bytes` per second while the circuit is open. Returns the second in which the client
/// closed it.
fn dribble(bytes: usize) -> Option<i64> {
    let mut bench = Bench::new(1 << 20);
    let io = bench.read(0);
    let message = answer(command::READ_NOTIFY, io, 1 << 20, 2.5);
    for (second, piece) in (0..).zip(message.chunks(bytes)) {
        let now = NOW + DurNs::from_secs(second);
        bench.client.handle_bytes(now, bench.circuit, piece);
        if bench.client.poll_timeout().is_some_and(|at| at <= now) {
            bench.client.handle_timeout(now);
        }
        if bench.client.is_closing(bench.circuit) {
            return Some(second);
        }
    }
    assert_eq!(bench.result(), Some(Ok(1 << 20)));
    None
}

#[test]
fn a_server_whose_message_hardly_progresses_is_disconnected() {
    assert_eq!(dribble(100), Some(35));
    assert_eq!(dribble(4096), None, "a slow one is waited for");
}
