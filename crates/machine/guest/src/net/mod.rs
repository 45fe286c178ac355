//! A guest's network. It contains only the guest's card and this process. Connections and datagrams to the destinations
//! of the rules are forwarded one by one. There is no other route.
//!
//! Needs no privilege: frames pass through a socket pair with QEMU, and smoltcp provides TCP and IP. One thread, which
//! ends with [`Running`].

mod card;
mod dhcp;
mod rule;

pub use rule::Rule;

use base::{DurNs, MonoNs, Size};
use card::{Bucket, Card};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpCidr, IpEndpoint, Ipv4Address, Ipv4Cidr};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use sys::clock::mono_now;
use sys::rounds::Rounds;

/// Address of this process in the guest's network.
pub const GATEWAY: Ipv4Address = Ipv4Address::new(10, 0, 2, 2);
/// Address of the guest, assigned by DHCP.
pub const GUEST: Ipv4Address = Ipv4Address::new(10, 0, 2, 15);
/// Bits of the network mask.
const MASK_BITS: u8 = 24;
/// MAC address of the gateway.
const ADDRESS: EthernetAddress = EthernetAddress([0x52, 0x55, 10, 0, 2, 2]);

/// Maximum simultaneous connections. More are refused.
const CONNECTIONS_MAX: usize = 64;
/// Listening sockets per TCP rule.
const WAITING: usize = 4;
/// The thread hangs if it finishes no round of its loop for longer than this.
const HANGS_AFTER: DurNs = DurNs::from_secs(4);
/// Buffer of a connection per direction, in bytes.
const STREAM_BYTES: usize = 64 << 10;
/// Buffer of a UDP rule per direction, in bytes.
const DATAGRAM_BYTES: usize = 64 << 10;
const DATAGRAMS: usize = 64;
/// Maximum clients of UDP rules. A new client replaces the one that was silent longest.
const FLOWS_MAX: usize = 32;
/// Interval of keep-alive probes to a guest, and the time without an answer after which its connection is closed.
const ASK: Duration = Duration::from_secs(20);
const GIVE_UP: Duration = Duration::from_secs(60);

/// A running network and its messages.
pub struct Running {
    log: Receiver<String>,
    /// The thread holds another reference. It ends when this one is dropped.
    _used: Arc<()>,
}

impl Running {
    /// Messages since the last call.
    pub fn log(&self) -> impl Iterator<Item = String> {
        self.log.try_iter()
    }
}

/// Creates the socket pair: QEMU's end, which a started program inherits, and ours.
///
/// # Errors
/// The kernel's error.
pub fn wire() -> io::Result<(OwnedFd, UnixDatagram)> {
    let kind = SocketType::DGRAM;
    let (theirs, ours) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let ours = UnixDatagram::from(ours);
    ours.set_nonblocking(true)?;
    Ok((theirs, ours))
}

/// Serves our end of the socket pair. The thread ends at most 1 s after the returned value is dropped.
///
/// # Errors
/// The thread could not be started.
pub fn start(rules: &[Rule], rate: Option<Size>, ours: UnixDatagram) -> io::Result<Running> {
    let (tell, log) = channel();
    let used = Arc::new(());
    let mine = used.clone();
    let mut network = Network::new(rules, rate, ours);
    let rounds = Rounds::watch("network", HANGS_AFTER);
    let serve = move || {
        while Arc::strong_count(&mine) > 1 && network.turn(&tell) {
            rounds.count();
        }
    };
    std::thread::Builder::new().name("network".into()).spawn(serve)?;
    Ok(Running { log, _used: used })
}

struct Network {
    card: Card,
    stack: Interface,
    sockets: SocketSet<'static>,
    rules: Vec<Serving>,
    links: Vec<Link>,
    flows: Vec<Flow>,
    dhcp: SocketHandle,
}

/// A rule and its listening sockets.
struct Serving {
    rule: Rule,
    waiting: Vec<SocketHandle>,
}

/// A connection of the guest and its destination.
struct Link {
    near: SocketHandle,
    far: TcpStream,
    /// Whether the destination has closed its direction.
    far_is_over: bool,
    /// Whether the destination was informed that the guest has closed its direction.
    near_is_over: bool,
    /// Whether the destination's buffer is full at present.
    is_full: bool,
}

/// A client of a UDP rule.
struct Flow {
    near: SocketHandle,
    client: IpEndpoint,
    far: UdpSocket,
    at: MonoNs,
}

fn stack_time(now: MonoNs) -> Instant {
    Instant::from_micros(now.0 as i64 / 1000)
}

impl Network {
    fn new(rules: &[Rule], rate: Option<Size>, ours: UnixDatagram) -> Self {
        let now = mono_now();
        let mut card = Card::new(ours, Bucket::new(rate, now), rules.to_vec());
        let mut config = Config::new(ADDRESS.into());
        config.random_seed = now.0 as u64;
        let mut stack = Interface::new(config, &mut card, stack_time(now));
        stack.update_ip_addrs(|addresses| {
            // There is space for one address.
            let _ = addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(GATEWAY, MASK_BITS)));
        });
        let mut sockets = SocketSet::new(Vec::new());
        let dhcp = sockets.add(datagrams(67));
        let serving = |rule: &Rule| {
            let waiting = if rule.udp { vec![sockets.add(datagrams(rule.port))] } else { Vec::new() };
            Serving { rule: *rule, waiting }
        };
        let rules = rules.iter().map(serving).collect();
        Self { card, stack, sockets, rules, links: Vec::new(), flows: Vec::new(), dhcp }
    }

    /// One pass over all sockets. Bounded, however busy the guest is. Returns whether there is another pass.
    fn turn(&mut self, tell: &Sender<String>) -> bool {
        let now = mono_now();
        self.listen();
        self.card.turn(now);
        self.stack.poll(stack_time(now), &mut self.card, &mut self.sockets);
        self.accept();
        self.addresses();
        self.datagrams(now);
        self.links.iter_mut().for_each(|link| link.pass_on(self.sockets.get_mut(link.near)));
        let sockets = &mut self.sockets;
        self.links.retain(|link| {
            let near = sockets.get::<tcp::Socket<'_>>(link.near);
            let lives = near.is_open() || near.remote_endpoint().is_some();
            if !lives {
                sockets.remove(link.near);
            }
            lives
        });
        self.stack.poll_egress(stack_time(mono_now()), &mut self.card, &mut self.sockets);
        // No receiver: the process ends.
        let heard = self.card.wanted.drain(..).try_for_each(|line| tell.send(line)).is_ok();
        if self.card.gone || !heard {
            return false;
        }
        self.wait();
        true
    }

    /// Keeps sockets listening while more connections are allowed.
    fn listen(&mut self) {
        for Serving { rule, waiting } in self.rules.iter_mut().filter(|serving| !serving.rule.udp) {
            let room = CONNECTIONS_MAX.saturating_sub(self.links.len()).min(WAITING);
            while waiting.len() < room {
                let buffer = || tcp::SocketBuffer::new(vec![0; STREAM_BYTES]);
                let mut socket = tcp::Socket::new(buffer(), buffer());
                socket.set_nagle_enabled(false);
                socket.set_keep_alive(Some(ASK));
                socket.set_timeout(Some(GIVE_UP));
                if socket.listen(rule.port).is_err() {
                    return;
                }
                waiting.push(self.sockets.add(socket));
            }
        }
    }

    /// Accepts new connections.
    fn accept(&mut self) {
        for Serving { rule, waiting } in self.rules.iter_mut().filter(|serving| !serving.rule.udp) {
            waiting.retain(|handle| {
                let near = self.sockets.get_mut::<tcp::Socket<'_>>(*handle);
                if matches!(near.state(), tcp::State::Listen | tcp::State::SynReceived) {
                    return true;
                }
                match connect(rule.to) {
                    Ok(far) => self.links.push(Link {
                        near: *handle,
                        far,
                        far_is_over: false,
                        near_is_over: false,
                        is_full: false,
                    }),
                    Err(_) => {
                        near.abort();
                        // Sends the reset before the socket is removed.
                        self.stack.poll_egress(stack_time(mono_now()), &mut self.card, &mut self.sockets);
                        self.sockets.remove(*handle);
                    }
                }
                false
            });
        }
    }

    /// Answers DHCP requests.
    fn addresses(&mut self) {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.dhcp);
        while let Ok((asked, _)) = socket.recv() {
            if let Some(answer) = dhcp::answer(asked) {
                // A lost answer is requested again.
                let _ = socket.send_slice(&answer, IpEndpoint::new(Ipv4Address::BROADCAST.into(), 68));
            }
        }
    }

    /// Forwards datagrams in both directions.
    fn datagrams(&mut self, now: MonoNs) {
        for Serving { rule, waiting } in self.rules.iter().filter(|serving| serving.rule.udp) {
            for near in waiting {
                let socket = self.sockets.get_mut::<udp::Socket<'_>>(*near);
                while let Ok((bytes, about)) = socket.recv() {
                    if let Some(flow) = flow(&mut self.flows, *near, about.endpoint, rule, now) {
                        // As in a network, delivery is not guaranteed.
                        let _ = flow.far.send(bytes);
                    }
                }
            }
        }
        let mut bytes = [0; 2048];
        for Flow { near, client, far, .. } in &self.flows {
            let socket = self.sockets.get_mut::<udp::Socket<'_>>(*near);
            for _ in 0..DATAGRAMS {
                match far.recv(&mut bytes) {
                    Ok(count) => {
                        // A datagram without buffer space is lost, as in a network.
                        let _ = socket.send_slice(&bytes[..count], *client);
                    }
                    Err(_) => break,
                }
            }
        }
    }

    fn wait(&mut self) {
        let mut limit = DurNs::from_secs(1);
        if let Some(delay) = self.stack.poll_delay(stack_time(mono_now()), &self.sockets) {
            limit = limit.min(DurNs::from_us(i64::try_from(delay.total_micros()).unwrap_or(i64::MAX / 1000)));
        }
        let is_open = self.card.bucket.is_open();
        if !is_open {
            // Frames that the stack wants to send wait for it, too.
            limit = self.card.bucket.wait();
        }
        let mut fds = Vec::with_capacity(1 + self.links.len() + self.flows.len());
        fds.push(PollFd::new(&self.card.socket, if is_open { PollFlags::IN } else { PollFlags::empty() }));
        for link in &self.links {
            let near = self.sockets.get::<tcp::Socket<'_>>(link.near);
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !link.far_is_over && near.can_send());
            flags.set(PollFlags::OUT, link.is_full);
            if !flags.is_empty() {
                fds.push(PollFd::from_borrowed_fd(link.far.as_fd(), flags));
            }
        }
        fds.extend(self.flows.iter().map(|flow| PollFd::from_borrowed_fd(flow.far.as_fd(), PollFlags::IN)));
        let ns = limit.0.max(0);
        let limit = rustix::time::Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
        // An interrupted wait counts as no event.
        let _ = poll(&mut fds, Some(&limit));
    }
}

/// The flow of a client; a new one if the client has none.
fn flow<'a>(
    flows: &'a mut Vec<Flow>,
    near: SocketHandle,
    client: IpEndpoint,
    rule: &Rule,
    now: MonoNs,
) -> Option<&'a mut Flow> {
    let known = flows.iter().position(|flow| flow.near == near && flow.client == client);
    let at = match known {
        Some(at) => at,
        None => {
            if flows.len() == FLOWS_MAX {
                let oldest = (0..flows.len()).min_by_key(|at| flows[*at].at)?;
                flows.swap_remove(oldest);
            }
            let any = if rule.to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let far = UdpSocket::bind(any).ok()?;
            far.connect(rule.to).ok()?;
            far.set_nonblocking(true).ok()?;
            flows.push(Flow { near, client, far, at: now });
            flows.len() - 1
        }
    };
    let flow = flows.get_mut(at)?;
    flow.at = now;
    Some(flow)
}

fn datagrams(port: u16) -> udp::Socket<'static> {
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; DATAGRAMS], vec![0; DATAGRAM_BYTES]);
    let mut socket = udp::Socket::new(buffer(), buffer());
    // Cannot fail: the socket is new and the port is not 0.
    let _ = socket.bind(port);
    socket
}

/// Starts a connection without waiting for it.
fn connect(to: std::net::SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the operation must be tried again later.
fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected)
}

impl Link {
    /// Forwards bytes in both directions, as far as both sides accept them.
    fn pass_on(&mut self, near: &mut tcp::Socket<'_>) {
        self.is_full = false;
        while near.can_recv() {
            let passed = near.recv(|bytes| match self.far.write(bytes) {
                Ok(count) => (count, Ok(count)),
                Err(error) => (0, Err(error)),
            });
            match passed {
                Ok(Ok(count)) if count > 0 => {}
                Ok(Err(error)) if waits(&error) => {
                    self.is_full = true;
                    break;
                }
                _ => return near.abort(),
            }
        }
        if !near.may_recv() && !near.can_recv() && !self.near_is_over {
            // A closed connection is detected by the next read.
            let _ = self.far.shutdown(Shutdown::Write);
            self.near_is_over = true;
        }
        while !self.far_is_over && near.can_send() {
            let passed = near.send(|room| match self.far.read(room) {
                Ok(count) => (count, Ok(count)),
                Err(error) => (0, Err(error)),
            });
            match passed {
                Ok(Ok(0)) => {
                    self.far_is_over = true;
                    near.close();
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) if waits(&error) => break,
                _ => return near.abort(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
