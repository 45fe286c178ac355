//! Tests of the network. A separate IP stack at the other end of the socket pair plays the guest.

use super::*;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

/// A guest without a machine.
struct Guest {
    card: Card,
    stack: Interface,
    sockets: SocketSet<'static>,
    network: Running,
}

impl Guest {
    fn new(rules: &[Rule], rate: Option<Size>) -> Self {
        let (theirs, ours) = wire().unwrap();
        let network = start(rules, rate, ours).unwrap();
        let theirs = UnixDatagram::from(theirs);
        theirs.set_nonblocking(true).unwrap();
        let now = mono_now();
        let mut card = Card::new(theirs, Bucket::new(None, now), Vec::new());
        let address = EthernetAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        let mut stack = Interface::new(Config::new(address.into()), &mut card, stack_time(now));
        stack.update_ip_addrs(|addresses| addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(GUEST, MASK_BITS))).unwrap());
        Self { card, stack, sockets: SocketSet::new(Vec::new()), network }
    }

    /// Runs passes until `what` returns a value.
    fn until<T>(&mut self, mut what: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = mono_now() + DurNs::from_secs(60);
        loop {
            assert!(mono_now() < end, "the network hangs");
            self.card.turn(mono_now());
            self.stack.poll(stack_time(mono_now()), &mut self.card, &mut self.sockets);
            if let Some(found) = what(self) {
                return found;
            }
            sys::poll::is_readable(self.card.socket.as_fd(), DurNs::from_ms(1));
        }
    }

    fn connect(&mut self, to: Ipv4Address, port: u16) -> SocketHandle {
        let buffer = || tcp::SocketBuffer::new(vec![0; 8192]);
        let handle = self.sockets.add(tcp::Socket::new(buffer(), buffer()));
        let from = 40_000 + self.sockets.iter().count() as u16;
        self.sockets.get_mut::<tcp::Socket<'_>>(handle).connect(self.stack.context(), (to, port), from).unwrap();
        handle
    }

    fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }
}

/// A server that echoes what one client sends, until the client closes.
fn echo() -> (SocketAddr, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            match stream.read(&mut bytes).unwrap() {
                0 => return all.len(),
                count => {
                    all.extend_from_slice(&bytes[..count]);
                    stream.write_all(&bytes[..count]).unwrap();
                }
            }
        }
    };
    (address, std::thread::spawn(serve))
}

fn tcp_rule(port: u16, to: SocketAddr) -> Rule {
    Rule { udp: false, port, to }
}

#[test]
fn an_allowed_connection_carries_all_bytes_both_ways_and_ends_on_both_sides() {
    const BYTES: usize = 300_000;
    let (address, server) = echo();
    let mut guest = Guest::new(&[tcp_rule(7, address)], None);
    let handle = guest.connect(GATEWAY, 7);
    let (mut sent, mut back) = (0, Vec::new());
    guest.until(|guest| {
        let socket = guest.socket(handle);
        if socket.can_send() && sent < BYTES {
            let bytes: Vec<u8> = (sent..BYTES.min(sent + 4096)).map(|at| (at % 251) as u8).collect();
            sent += socket.send_slice(&bytes).unwrap();
        }
        if socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), back.extend_from_slice(bytes))).unwrap();
        }
        (back.len() == BYTES).then_some(())
    });
    assert!(back.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    guest.socket(handle).close();
    guest.until(|guest| (!guest.socket(handle).may_recv()).then_some(()));
    assert_eq!(server.join().unwrap(), BYTES);
}

#[test]
fn a_connection_without_a_rule_is_refused_and_reported_once() {
    let (address, _server) = echo();
    let mut guest = Guest::new(&[tcp_rule(7, address)], None);
    for (to, port) in [(GATEWAY, address.port()), (GATEWAY, 22), (GATEWAY, 22)] {
        let handle = guest.connect(to, port);
        guest.until(|guest| (guest.socket(handle).state() == tcp::State::Closed).then_some(()));
    }
    // No host has any other address, so not even a refusal arrives.
    guest.connect(Ipv4Address::new(10, 0, 2, 3), 80);
    let mut log = Vec::new();
    guest.until(|guest| {
        log.extend(guest.network.log());
        (log.len() == 2).then_some(())
    });
    assert_eq!(log[0], format!("the guest wants tcp 10.0.2.2:{}, which `allow` does not name", address.port()));
    assert_eq!(log[1], "the guest wants tcp 10.0.2.2:22, which `allow` does not name");
}

#[test]
fn a_connection_without_a_listener_is_refused() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut guest = Guest::new(&[tcp_rule(7, nobody)], None);
    let handle = guest.connect(GATEWAY, 7);
    guest.until(|guest| (guest.socket(handle).state() == tcp::State::Closed).then_some(()));
    assert_eq!(guest.network.log().count(), 0);
}

#[test]
fn surplus_connections_are_refused_and_the_others_continue() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut guest = Guest::new(&[tcp_rule(7, listener.local_addr().unwrap())], None);
    let mut far = Vec::new();
    let first = guest.connect(GATEWAY, 7);
    guest.until(|guest| guest.socket(first).may_send().then_some(()));
    far.push(listener.accept().unwrap());
    for _ in 1..CONNECTIONS_MAX {
        let handle = guest.connect(GATEWAY, 7);
        guest.until(|guest| guest.socket(handle).may_send().then_some(()));
        far.push(listener.accept().unwrap());
    }
    // Sockets that listen already may still accept a connection. Each ends in time.
    let more: Vec<_> = (0..2 * WAITING).map(|_| guest.connect(GATEWAY, 7)).collect();
    guest.until(|guest| more.iter().any(|one| guest.socket(*one).state() == tcp::State::Closed).then_some(()));
    far[0].0.write_all(b"still").unwrap();
    guest.until(|guest| guest.socket(first).can_recv().then_some(()));
}

#[test]
fn datagrams_reach_their_service_and_answers_return() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut guest = Guest::new(&[Rule { udp: true, port: 5064, to: server.local_addr().unwrap() }], None);
    let handle = guest.sockets.add(datagrams(1234));
    let socket = guest.sockets.get_mut::<udp::Socket<'_>>(handle);
    socket.send_slice(b"search", IpEndpoint::new(GATEWAY.into(), 5064)).unwrap();
    let asked = std::thread::spawn(move || {
        let mut bytes = [0; 64];
        let (count, from) = server.recv_from(&mut bytes).unwrap();
        server.send_to(b"I", from).unwrap();
        bytes[..count].to_vec()
    });
    let answer = guest.until(|guest| {
        let (bytes, about) = guest.sockets.get_mut::<udp::Socket<'_>>(handle).recv().ok()?;
        Some((bytes.to_vec(), about.endpoint))
    });
    assert_eq!(answer, (b"I".to_vec(), IpEndpoint::new(GATEWAY.into(), 5064)));
    assert_eq!(asked.join().unwrap(), b"search");
}

#[test]
fn the_network_ends_with_its_guest() {
    let guest = Guest::new(&[], None);
    let used = Arc::downgrade(&guest.network._used);
    drop(guest);
    let end = mono_now() + DurNs::from_secs(60);
    while used.strong_count() > 0 {
        assert!(mono_now() < end, "the network outlives its guest");
        std::thread::yield_now();
    }
}
