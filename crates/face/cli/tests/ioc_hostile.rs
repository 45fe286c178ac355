//! Malicious and faulty clients: memory stays bounded, counters count them, the IOC does not crash, and other clients
//! are served.

use ca::wire::{Header, command};
use harness::circuit::{Circuit, double};
use harness::ioc::Ioc;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};

const DATABASE: &str = r#"
record(ao, "X:ao") { field(VAL, "7") }
record(calc, "X:fast") { field(CALC, "VAL+1") field(SCAN, ".1 second") }
record(stringout, "X:text") { field(VAL, "words") }
record(waveform, "X:big") { field(FTVL, "DOUBLE") field(NELM, "200000") }
record(waveform, "X:small") { field(FTVL, "SHORT") field(NELM, "5") }
"#;

const MIB: u64 = 1 << 20;

fn start() -> Ioc {
    Ioc::start(&[("test.db", DATABASE)], &["-d", "test.db"])
}

/// Peak memory of the process so far, in bytes.
fn memory_peak(ioc: &Ioc) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", ioc.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Another client connects, writes and reads.
fn serves(ioc: &Ioc, value: f64) {
    let mut other = Circuit::connect(ioc.port);
    let sid = other.create("X:ao");
    other.put(sid, value);
    other.ask(sid, 1);
    assert_eq!(double(&other.receive(command::READ_NOTIFY).1), value);
}

/// The number before `word` in the last line of `casr 2`.
fn counted(ioc: &mut Ioc, word: &str) -> u64 {
    let said = ioc.say("casr 2");
    let line = said.lines().find(|line| line.contains("names searched")).unwrap();
    let place = line.find(word).unwrap_or_else(|| panic!("no {word:?} in {line}"));
    line[..place].trim().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Pseudo-random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn message(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.write(&mut out);
    out.extend_from_slice(payload);
    out
}

#[test]
fn a_client_that_stops_reading_large_arrays_costs_bounded_memory() {
    let mut ioc = start();
    ioc.say("dbpf X:big 1");
    let mut other = Circuit::connect(ioc.port);
    let big = other.create("X:big");
    let ones: Vec<u8> = (0..200_000).flat_map(|_| 1f64.to_be_bytes()).collect();
    other.send(Header::bare(command::WRITE, 6, 200_000, big, 1), &ones);
    other.ask(big, 1);
    other.receive(command::READ_NOTIFY);
    // Reads the first update of each of its 1.6 MB subscriptions, then stops reading.
    let mut lazy = Circuit::connect(ioc.port);
    let sid = lazy.create("X:big");
    for id in 0..60 {
        let mut payload = [0; 16];
        payload[13] = 5;
        lazy.send(Header::bare(command::EVENT_ADD, 6, 200_000, sid, id), &payload);
        assert_eq!(lazy.receive(command::EVENT_ADD).0.p2, id);
    }
    let before = memory_peak(&ioc);
    for _ in 0..5 {
        other.send(Header::bare(command::WRITE, 6, 200_000, big, 1), &ones);
        other.ask(big, 1);
        other.receive(command::READ_NOTIFY);
    }
    assert!(counted(&mut ioc, " replaced") >= 60);
    let grown = memory_peak(&ioc) - before;
    assert!(grown < 40 * MIB, "{} MiB for updates that no client reads", grown / MIB);
    serves(&ioc, 1.5);
    // When it reads again it gets the newest update of each subscription.
    let mut seen = [false; 60];
    while !seen.iter().all(|seen| *seen) {
        seen[lazy.receive(command::EVENT_ADD).0.p2 as usize] = true;
    }
}

#[test]
fn a_client_that_stops_updates_of_large_arrays_costs_bounded_memory() {
    let ioc = start();
    let mut off = Circuit::connect(ioc.port);
    let sid = off.create("X:big");
    for id in 0..60 {
        let mut payload = [0; 16];
        payload[13] = 5;
        off.send(Header::bare(command::EVENT_ADD, 6, 200_000, sid, id), &payload);
        assert_eq!(off.receive(command::EVENT_ADD).0.p2, id);
    }
    off.send(Header::bare(command::EVENTS_OFF, 0, 0, 0, 0), &[]);
    off.ask(sid, 1);
    off.receive(command::READ_NOTIFY);
    let before = memory_peak(&ioc);
    let mut other = Circuit::connect(ioc.port);
    let big = other.create("X:big");
    other.send(Header::bare(command::WRITE, 6, 1, big, 1), &5f64.to_be_bytes());
    other.ask(big, 1);
    other.receive(command::READ_NOTIFY);
    let grown = memory_peak(&ioc) - before;
    assert!(grown < 40 * MIB, "{} MiB for updates that no client requests", grown / MIB);
    off.send(Header::bare(command::EVENTS_ON, 0, 0, 0, 0), &[]);
    for id in 0..60 {
        let (header, payload) = off.receive(command::EVENT_ADD);
        assert_eq!((header.p2, double(&payload)), (id, 5.0));
    }
}

#[test]
fn requests_without_reading_the_answers_cost_bounded_memory() {
    let ioc = start();
    let mut greedy = Circuit::connect(ioc.port);
    let sid = greedy.create("X:big");
    greedy.ask(sid, 1);
    greedy.receive(command::READ_NOTIFY);
    let before = memory_peak(&ioc);
    // Requests for 20,000 answers of 1.6 MB each.
    for _ in 0..2_000 {
        let asks: Vec<u8> =
            (0..10).flat_map(|id| message(Header::bare(command::READ_NOTIFY, 6, 200_000, sid, id), &[])).collect();
        greedy.send_some(&asks);
    }
    serves(&ioc, 2.5);
    let grown = memory_peak(&ioc) - before;
    assert!(grown < 40 * MIB, "{} MiB for answers that no client reads", grown / MIB);
}

#[test]
fn half_open_and_slow_circuits_cost_little_memory_and_exclude_no_client() {
    let mut ioc = start();
    let before = memory_peak(&ioc);
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(("127.0.0.1", ioc.port)).unwrap()).collect();
    // Each client announces a message of 60 MB and sends a part of it. The server must not store it, because no value
    // is that large.
    let slow: Vec<TcpStream> = (0..40)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", ioc.port)).unwrap();
            let kind = [command::ECHO, command::WRITE, command::CREATE_CHAN, command::SEARCH][number % 4];
            let mut bytes = message(Header::bare(command::VERSION, 0, 13, 0, 0), &[]);
            bytes.extend(message(
                Header { command: kind, size: 60_000_000, kind: 6, count: 7_500_000, p1: 1, p2: 13 },
                &[],
            ));
            stream.write_all(&bytes).unwrap();
            stream.write_all(&vec![7; 4 << 20]).unwrap();
            stream
        })
        .collect();
    // A client that sends single bytes, stops in the middle of a header, and stays connected.
    let mut loris = TcpStream::connect(("127.0.0.1", ioc.port)).unwrap();
    for byte in message(Header::bare(command::VERSION, 0, 13, 0, 0), &[]).iter().take(15) {
        loris.write_all(&[*byte]).unwrap();
    }
    serves(&ioc, 3.5);
    ioc.until("casr", |said| said.contains("241 clients") || said.contains("242 clients"));
    assert!(counted(&mut ioc, " errors") >= 40, "each client received the error for a too large message");
    let grown = memory_peak(&ioc) - before;
    assert!(grown < 40 * MIB, "{} MiB for 241 circuits without a request", grown / MIB);
    drop((silent, slow, loris));
    ioc.until("casr", |said| said.contains("No clients"));
}

#[test]
fn a_flood_of_searches_for_unknown_names_costs_no_memory_and_is_counted() {
    let mut ioc = start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let before = memory_peak(&ioc);
    let mut sent = 0;
    // The kernel may drop datagrams if the server is slow: send until 100,000 searches were received.
    while counted(&mut ioc, " names searched") < 100_000 {
        for burst in 0..40 {
            let mut datagram = message(Header::bare(command::VERSION, 0, 13, 0, 0), &[]);
            for name in 0..40 {
                let text = format!("nobody:{sent:07}{burst:02}{name:02}\0\0\0\0\0\0");
                let header = Header { command: command::SEARCH, size: 24, kind: 5, count: 13, p1: name, p2: name };
                datagram.extend(message(header, &text.as_bytes()[..24]));
            }
            socket.send_to(&datagram, ("127.0.0.1", ioc.port)).unwrap();
        }
        sent += 1;
        serves(&ioc, f64::from(sent));
    }
    assert_eq!(counted(&mut ioc, " found"), 0);
    let grown = memory_peak(&ioc) - before;
    assert!(grown < 8 * MIB, "{} MiB for names that do not exist", grown / MIB);
}

#[test]
fn no_message_stops_the_server() {
    let mut ioc = start();
    let before = memory_peak(&ioc);
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..400 {
        let mut circuit = Circuit::connect(ioc.port);
        let name = ["X:ao", "X:text", "X:small", "X:fast.DESC$", "X:small.{\"arr\":{\"s\":1}}"][round % 5];
        let sid = circuit.create(name);
        let mut bytes = Vec::new();
        for _ in 0..30 {
            let odd = |dice: &mut Dice| match dice.below(5) {
                0 => 0,
                1 => u32::MAX,
                2 => 0xFFFF,
                3 => sid,
                _ => dice.below(64) as u32,
            };
            let len = [0, 8, 16, 40, 400][dice.below(5) as usize];
            let size = if dice.below(20) == 0 { odd(&mut dice) } else { len as u32 };
            let payload: Vec<u8> = (0..len).map(|_| dice.below(256) as u8).collect();
            let header = Header {
                command: dice.below(30) as u16,
                size,
                kind: if dice.below(10) == 0 { dice.below(1 << 16) as u16 } else { dice.below(40) as u16 },
                count: odd(&mut dice),
                p1: if dice.below(3) == 0 { odd(&mut dice) } else { sid },
                p2: odd(&mut dice),
            };
            bytes.extend(message(header, &payload));
        }
        circuit.send_some(&bytes);
        // The same bytes in a datagram.
        let _ = socket.send_to(&bytes, ("127.0.0.1", ioc.port));
    }
    serves(&ioc, 4.5);
    assert!(counted(&mut ioc, " errors") > 100);
    let grown = memory_peak(&ioc) - before;
    assert!(grown < 40 * MIB, "{} MiB for nonsense", grown / MIB);
    ioc.until("casr", |said| said.contains("No clients"));
    assert_eq!(ioc.exit(), Some(0));
}

#[test]
fn an_oversized_message_is_refused_and_the_circuit_stays_open() {
    let ioc = start();
    let mut circuit = Circuit::connect(ioc.port);
    let sid = circuit.create("X:small");
    // More than any value of this waveform holds: the case in which C exceeds EPICS_CA_MAX_ARRAY_BYTES.
    circuit.send(Header::bare(command::WRITE, 6, 100_000, sid, 1), &vec![0; 800_000]);
    let (header, _) = circuit.receive(command::ERROR);
    assert_eq!(header.p2, ca::Eca::TOLARGE.0);
    circuit.ask(sid, 1);
    circuit.receive(command::READ_NOTIFY);
}
