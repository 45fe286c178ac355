//! The sockets of a server: readiness, input and output. The crates of the protocols interpret the bytes.

use crate::config::{Complaint, ServerConfig, join};
use crate::spin::Spin;
use crate::waker::Waker;
use base::{MonoNs, NumberHash};
pub use ca::server::CircuitId;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};

/// Maximum number of bytes read from one circuit before other circuits and scans are served.
const BURST_BYTES: usize = 16 << 10;
/// Maximum number of sockets that one wait reports.
const EVENTS_MAX: usize = 256;
/// Maximum number of connections. Further ones are refused and counted.
const CIRCUITS_MAX: usize = 16_384;
/// Maximum number of connections of IPv6 that wait to be accepted.
const WAITING_MAX: i32 = 4_096;

const TAG_TIMER: u64 = 1 << 40;
const TAG_MAIL: u64 = 2 << 40;
const TAG_LISTEN: u64 = 3 << 40;
const TAG_UDP: u64 = 4 << 40;
const TAG_CIRCUIT: u64 = 5 << 40;
const TAG_NESTED: u64 = 6 << 40;

/// An event of [`Net::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The timer has expired.
    Timer,
    /// Another thread called the [`waker`](Net::waker).
    Mail,
    /// A client is connecting; the index of the listener.
    Listener(usize),
    /// Datagrams have arrived; the index of the socket.
    Datagrams(usize),
    /// The [nested](Net::nest) sockets have events.
    Nested,
    /// A circuit can be read or written, or has ended.
    Circuit {
        /// The circuit.
        id: CircuitId,
        /// Bytes or the end have arrived.
        read: bool,
        /// The kernel has room for output.
        write: bool,
    },
}

/// The result of sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// This many bytes were sent.
    Bytes(usize),
    /// The kernel's buffer is full. The circuit is reported when there is room.
    Full,
    /// The connection has ended.
    Gone,
}

struct Conn {
    stream: TcpStream,
    flags: EventFlags,
}

/// The multicast group by which the servers of this host share searches.
struct LocalGroup {
    /// Index of the socket that receives its datagrams.
    index: usize,
    sender: UdpSocket,
    to: SocketAddrV4,
}

/// All sockets of a server.
pub struct Net {
    epoll: OwnedFd,
    timer: OwnedFd,
    mail: Waker,
    listeners: Vec<TcpListener>,
    datagrams: Vec<UdpSocket>,
    beacons: Option<UdpSocket>,
    local: Option<LocalGroup>,
    /// Sockets that take datagrams of one address of this host only.
    own_only: HashMap<usize, Ipv4Addr, NumberHash>,
    conns: HashMap<CircuitId, Conn, NumberHash>,
    /// Number of connections refused because of the limit or a lack of file descriptors.
    pub refused: u64,
    /// A file descriptor that is released when none is free.
    reserve: Option<OwnedFd>,
    /// The TCP port of the listeners.
    pub tcp_port: u16,
    /// The configured port was in use, so the kernel chose another one.
    pub port_taken: bool,
    /// Parts of the configuration that were not obtained.
    pub complaints: Vec<Complaint>,
    armed: Option<MonoNs>,
    /// The timer has expired and was not set since. Setting it clears the expiry, which saves a read.
    rung: bool,
    buffer: Box<[u8]>,
    spin: Spin,
}

impl Net {
    /// Opens the sockets. `None` opens no sockets for clients.
    ///
    /// # Errors
    /// A socket cannot be opened; the error contains its address.
    pub fn open(config: Option<&ServerConfig>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let mail = Waker::new()?;
        let mut net = Self {
            reserve: rustix::io::dup(&epoll).ok(),
            epoll,
            timer,
            mail,
            listeners: Vec::new(),
            datagrams: Vec::new(),
            beacons: None,
            local: None,
            own_only: HashMap::default(),
            conns: HashMap::default(),
            refused: 0,
            tcp_port: 0,
            port_taken: false,
            complaints: Vec::new(),
            armed: None,
            rung: false,
            buffer: vec![0; 65_536].into(),
            spin: Spin::default(),
        };
        add(&net.epoll, &net.timer, TAG_TIMER)?;
        add(&net.epoll, net.mail.fd(), TAG_MAIL)?;
        if let Some(config) = config {
            net.listen(config)?;
        }
        Ok(net)
    }

    fn listen(&mut self, config: &ServerConfig) -> io::Result<()> {
        self.tcp_port = config.port;
        let v4 = config.interfaces.iter().map(|address| IpAddr::V4(*address));
        for address in v4.chain(config.interfaces_v6.iter().map(|address| IpAddr::V6(*address))) {
            let listener = match listener(address, self.tcp_port) {
                Ok(listener) => listener,
                // Another server uses the port. Any other port is possible, because search replies contain it.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && self.listeners.is_empty() => {
                    self.port_taken = true;
                    listener(address, 0).map_err(|error| named(error, address, 0))?
                }
                Err(error) => return Err(named(error, address, self.tcp_port)),
            };
            self.tcp_port = listener.local_addr()?.port();
            listener.set_nonblocking(true)?;
            add(&self.epoll, &listener, TAG_LISTEN | self.listeners.len() as u64)?;
            self.listeners.push(listener);
        }
        // A socket that is bound to the address of one interface receives no broadcasts. They need separate sockets.
        let named_ones: Vec<Ipv4Addr> =
            config.interfaces.iter().copied().filter(|address| !address.is_unspecified()).collect();
        let broadcasts = crate::config::broadcasts_of(&named_ones);
        let port = config.search_port;
        for &address in config.interfaces.iter().chain(&broadcasts) {
            let socket = shared_udp(address.into(), port).map_err(|error| named(error, address.into(), port))?;
            if address.is_unspecified() {
                config.groups.iter().for_each(|group| self.join(config, &socket, *group, address));
            }
            self.hear(socket)?;
        }
        for &address in &config.interfaces_v6 {
            let socket = shared_udp(address.into(), port).map_err(|error| named(error, address.into(), port))?;
            self.hear(socket)?;
        }
        // It receives no multicasts either. A socket bound to the unspecified address receives those of all joined groups.
        if !config.interfaces.iter().any(Ipv4Addr::is_unspecified) {
            for &group in &config.groups {
                let socket = shared_udp(group.into(), port).map_err(|error| named(error, group.into(), port))?;
                config.interfaces.iter().for_each(|address| self.join(config, &socket, group, *address));
                self.hear(socket)?;
            }
        }
        for &(broadcast, own) in &config.own_broadcasts {
            match shared_udp(broadcast.into(), port) {
                Ok(socket) => {
                    self.own_only.insert(self.datagrams.len(), own);
                    self.hear(socket)?;
                }
                Err(error) => {
                    let what = format!("programs on this host that search {broadcast}:{port} do not find this server");
                    self.complaints.push(Complaint(format!("{what}: {error}")));
                }
            }
        }
        if let Some(group) = config.local_group.filter(|_| !config.interfaces.is_empty())
            && let Err(error) = self.share_in(group, port)
        {
            let what = format!("of several servers on this host only one gets the searches: {group}:{port}: {error}");
            self.complaints.push(Complaint(what));
        }
        let beacons = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        beacons.set_broadcast(true)?;
        beacons.set_multicast_ttl_v4(config.multicast_ttl)?;
        beacons.set_nonblocking(true)?;
        self.beacons = Some(beacons);
        Ok(())
    }

    /// Joins a multicast group. A failure is not fatal, because other groups may work.
    fn join(&mut self, config: &ServerConfig, socket: &UdpSocket, group: Ipv4Addr, interface: Ipv4Addr) {
        if let Err(error) = join(socket, group, interface) {
            let what = format!("searches to the multicast group {group} are not heard on {interface}: {error}");
            self.complaints.push(Complaint(format!("{}: {what}", config.interfaces_variable)));
        }
    }

    /// Joins the group by which the servers of this host share searches.
    fn share_in(&mut self, group: Ipv4Addr, port: u16) -> io::Result<()> {
        let socket = shared_udp(group.into(), port)?;
        join(&socket, group, Ipv4Addr::LOCALHOST)?;
        // The kernel sends multicasts from this address on the loopback interface.
        let sender = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        sender.set_nonblocking(true)?;
        self.local = Some(LocalGroup { index: self.datagrams.len(), sender, to: SocketAddrV4::new(group, port) });
        self.hear(socket)
    }

    /// Makes [`wait`](Self::wait) report events of other sockets as [`Ready::Nested`]. The caller then waits for those without
    /// blocking.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn nest(&self, inner: &Self) -> io::Result<()> {
        add(&self.epoll, &inner.epoll, TAG_NESTED)
    }

    /// Receives datagrams on a socket.
    fn hear(&mut self, socket: UdpSocket) -> io::Result<()> {
        add(&self.epoll, &socket, TAG_UDP | self.datagrams.len() as u64)?;
        self.datagrams.push(socket);
        Ok(())
    }

    /// A handle that wakes [`wait`](Self::wait) from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.mail.clone()
    }

    /// Waits until something is ready or `until` is reached, and lists the ready events. `None` waits without limit; a time in the
    /// past does not wait.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn wait(&mut self, now: MonoNs, until: Option<MonoNs>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let passed = until.is_some_and(|until| until <= now);
        if !passed && (self.rung || self.armed != until) {
            let at = until.unwrap_or_default();
            let value = Timespec { tv_sec: (at.0 / 1_000_000_000) as i64, tv_nsec: (at.0 % 1_000_000_000) as i64 };
            let spec = Itimerspec { it_interval: zero, it_value: value };
            rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
            self.armed = until;
            self.rung = false;
        }
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let spin_until = if passed { None } else { self.spin.until(now) };
        let found = loop {
            let spins = spin_until.is_some_and(|until| sys::clock::mono_now() < until);
            match epoll::wait(&self.epoll, &mut events[..], (passed || spins).then_some(&zero)) {
                Ok((found, _)) if found.is_empty() && spins => {}
                Ok((found, _)) => break found,
                Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        };
        for event in found {
            let flags = event.flags;
            let (tag, index) = (event.data.u64() & !0xFF_FFFF_FFFF, (event.data.u64() & 0xFF_FFFF_FFFF) as usize);
            ready.push(match tag {
                TAG_TIMER => {
                    self.rung = true;
                    Ready::Timer
                }
                TAG_MAIL => {
                    self.mail.answer();
                    Ready::Mail
                }
                TAG_LISTEN => Ready::Listener(index),
                TAG_UDP => Ready::Datagrams(index),
                TAG_NESTED => Ready::Nested,
                _ => Ready::Circuit {
                    id: CircuitId(index as u32),
                    read: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP),
                    write: flags.contains(EventFlags::OUT),
                },
            });
        }
        let asked = ready.iter().any(|ready| matches!(ready, Ready::Circuit { read: true, .. } | Ready::Nested));
        self.spin.ended(now, sys::clock::mono_now(), asked);
        Ok(())
    }

    /// Accepts one connection. Its stream must be passed to [`attach`](Self::attach).
    pub fn accept(&mut self, listener: usize) -> Option<(TcpStream, SocketAddr)> {
        let waiting = self.listeners.get(listener)?;
        let (stream, peer) = match waiting.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                let no_room = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
                if rustix::io::Errno::from_io_error(&error).is_some_and(|errno| no_room.contains(&errno)) {
                    // A connection left in the queue would wake this thread again immediately. Releasing the reserve frees a
                    // file descriptor to accept the connection and close it.
                    self.reserve = None;
                    self.refused += u64::from(waiting.accept().is_ok());
                    self.reserve = rustix::io::dup(&self.epoll).ok();
                }
                return None;
            }
        };
        if self.conns.len() >= CIRCUITS_MAX {
            self.refused += 1;
            return None;
        }
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let ready = ready.and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(&stream, true)?));
        ready.ok().map(|()| (stream, peer))
    }

    /// Watches a connection with the number of its circuit.
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn attach(&mut self, id: CircuitId, stream: TcpStream) -> io::Result<()> {
        add(&self.epoll, &stream, TAG_CIRCUIT | u64::from(id.0))?;
        self.conns.insert(id, Conn { stream, flags: EventFlags::IN });
        Ok(())
    }

    /// Closes a connection.
    pub fn detach(&mut self, id: CircuitId) {
        if let Some(conn) = self.conns.remove(&id) {
            let _ = epoll::delete(&self.epoll, &conn.stream);
        }
    }

    /// Reads one burst from a circuit into the common buffer. Returns `None` if the connection has ended.
    pub fn read(&mut self, id: CircuitId) -> Option<usize> {
        let conn = self.conns.get_mut(&id)?;
        match conn.stream.read(&mut self.buffer[..BURST_BYTES]) {
            Ok(0) => None,
            Ok(len) => {
                self.spin.read(len);
                Some(len)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Some(0),
            Err(_) => None,
        }
    }

    /// The bytes from the last [`read`](Self::read) or [`receive`](Self::receive).
    #[must_use]
    pub fn bytes(&self, len: usize) -> &[u8] {
        &self.buffer[..len]
    }

    /// Sends as many bytes on a circuit as the kernel accepts without blocking.
    pub fn send(&mut self, id: CircuitId, bytes: &[u8]) -> SendOutcome {
        let Some(conn) = self.conns.get_mut(&id) else { return SendOutcome::Gone };
        match conn.stream.write(bytes) {
            Ok(len) => SendOutcome::Bytes(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => SendOutcome::Full,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => SendOutcome::Bytes(0),
            Err(_) => SendOutcome::Gone,
        }
    }

    /// Sets the events that [`wait`](Self::wait) reports for a circuit: readable, writable.
    pub fn interest(&mut self, id: CircuitId, read: bool, write: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, read);
        flags.set(EventFlags::OUT, write);
        if conn.flags != flags {
            conn.flags = flags;
            let data = EventData::new_u64(TAG_CIRCUIT | u64::from(id.0));
            let _ = epoll::modify(&self.epoll, &conn.stream, data, flags);
        }
    }

    /// Receives one datagram.
    pub fn receive(&mut self, socket: usize) -> Option<(usize, SocketAddr)> {
        let (len, from) = self.datagrams.get(socket)?.recv_from(&mut self.buffer).ok()?;
        let is_other = self.own_only.get(&socket).is_some_and(|own| from.ip() != *own);
        // Without its bytes, so that the caller counts it against its limit.
        Some((if is_other { 0 } else { len }, from))
    }

    /// Address of the TCP listeners that a search reply on this socket contains. Unspecified (0.0.0.0): the client uses the reply's source address.
    #[must_use]
    pub fn reply_address(&self, socket: usize) -> Ipv4Addr {
        let of_listener = |listener: &TcpListener| match listener.local_addr() {
            Ok(SocketAddr::V4(address)) => *address.ip(),
            _ => Ipv4Addr::LOCALHOST,
        };
        match self.own_only.contains_key(&socket) {
            true => self.listeners.first().map_or(Ipv4Addr::LOCALHOST, of_listener),
            false => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// Answers a datagram. Datagrams may be lost; the client then repeats its request.
    pub fn answer(&self, socket: usize, to: SocketAddr, bytes: &[u8]) {
        if let Some(socket) = self.datagrams.get(socket) {
            let _ = socket.send_to(bytes, to);
        }
    }

    /// Whether this socket receives the datagrams that servers of this host share.
    #[must_use]
    pub fn is_local_group(&self, socket: usize) -> bool {
        self.local.as_ref().is_some_and(|local| local.index == socket)
    }

    /// Whether datagrams can be shared with the other servers of this host.
    #[must_use]
    pub const fn shares(&self) -> bool {
        self.local.is_some()
    }

    /// Sends a datagram to all servers of this host, including this one. Datagrams may be lost.
    pub fn share(&self, bytes: &[u8]) {
        if let Some(local) = &self.local {
            let _ = local.sender.send_to(bytes, local.to);
        }
    }

    /// Sends a beacon to each address. Errors are ignored, because beacons are repeated.
    pub fn beacon(&self, to: &[SocketAddrV4], bytes: &[u8]) {
        if let Some(socket) = &self.beacons {
            to.iter().for_each(|address| {
                let _ = socket.send_to(bytes, address);
            });
        }
    }

    /// Number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.conns.len()
    }
}

fn add(epoll: &OwnedFd, fd: impl AsFd, tag: u64) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(tag), EventFlags::IN)?)
}

fn named(error: io::Error, address: IpAddr, port: u16) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {}: {error}", SocketAddr::new(address, port)))
}

/// A socket for an address. One of IPv6 takes no connections or datagrams of IPv4, which have their own.
fn socket(address: IpAddr, kind: rustix::net::SocketType) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

/// Listens on an address.
fn listener(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    if address.is_ipv4() {
        return TcpListener::bind(SocketAddr::new(address, port));
    }
    let socket = socket(address, rustix::net::SocketType::STREAM)?;
    rustix::net::bind(&socket, &SocketAddr::new(address, port))?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket.into())
}

/// A UDP socket on a port that several programs of the host share. It does not block, and may broadcast.
///
/// # Errors
/// The kernel refuses the socket or the address.
pub fn shared_udp(address: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let socket = socket(address, rustix::net::SocketType::DGRAM)?;
    rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::sockopt::set_socket_broadcast(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::new(address, port))?;
    Ok(socket.into())
}
