//! A PVAccess client with its sockets, driven by calls to [`Session::step`].

use crate::config::quiet_max;
use base::{DurNs, MonoNs};
use canet::config::{Complaint, addresses, port_of};
use canet::session::connect;
use pva::client::{CircuitId, Client, ClientConfig, Event};
use pva::search::{self, Address};
use pva::wire;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};

/// Maximum time to open a connection.
const CONNECT_MAX: DurNs = DurNs::from_secs(5);

/// A connection to a server.
struct Conn {
    stream: TcpStream,
    /// The deadline for opening; `None` once it is open.
    opening: Option<MonoNs>,
}

/// A client with its sockets.
pub struct Session {
    /// The protocol implementation.
    pub client: Client,
    udp: UdpSocket,
    reply_port: u16,
    /// Destinations of searches, each with whether it is the address of one host.
    search_to: Vec<(SocketAddrV4, bool)>,
    conns: HashMap<CircuitId, Conn>,
    /// Invalid values in the environment.
    pub complaints: Vec<Complaint>,
    buffer: Vec<u8>,
    datagrams: Vec<(Address, Vec<u8>)>,
    keeps_datagrams: bool,
}

impl Session {
    /// Opens the socket for searches and reads EPICS' variables with `get`.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open(get: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        let mut complaints = Vec::new();
        let port = port_of(&get, &["EPICS_PVA_BROADCAST_PORT"], wire::BROADCAST_PORT, &mut complaints);
        let listed = get("EPICS_PVA_ADDR_LIST");
        let mut to =
            listed.map_or_else(Vec::new, |text| addresses("EPICS_PVA_ADDR_LIST", &text, port, &mut complaints));
        let interfaces = sys::interfaces::list().map_err(io::Error::other)?;
        let broadcasts: Vec<Ipv4Addr> = interfaces.iter().filter_map(|interface| interface.broadcast).collect();
        if get("EPICS_PVA_AUTO_ADDR_LIST").is_none_or(|text| !text.trim().eq_ignore_ascii_case("no")) {
            // Servers on this host that listen only on loopback receive no broadcasts.
            let all = std::iter::once(Ipv4Addr::LOCALHOST).chain(broadcasts.iter().copied());
            to.extend(all.map(|ip| SocketAddrV4::new(ip, port)));
        }
        let is_one = |ip: &Ipv4Addr| !ip.is_multicast() && !ip.is_broadcast() && !broadcasts.contains(ip);
        let search_to = to.into_iter().map(|to| (to, is_one(to.ip()))).collect();
        let (uid, user) = sys::users::own();
        let config = ClientConfig {
            user: user.unwrap_or_else(|| uid.to_string()),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            quiet_max: quiet_max(&get, &mut complaints),
        };
        let udp = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        udp.set_broadcast(true)?;
        udp.set_nonblocking(true)?;
        Ok(Self {
            client: Client::new(config),
            reply_port: udp.local_addr()?.port(),
            udp,
            search_to,
            conns: HashMap::new(),
            complaints,
            buffer: vec![0; 65_536],
            datagrams: Vec::new(),
            keeps_datagrams: false,
        })
    }

    /// The current time.
    #[must_use]
    pub fn now() -> MonoNs {
        sys::clock::mono_now()
    }

    /// Searches for all servers: each answers with a datagram, see [`take_datagrams`](Self::take_datagrams).
    pub fn search_servers(&mut self) {
        self.keeps_datagrams = true;
        let datagram = search::servers(self.reply_port);
        self.send(datagram);
    }

    /// The datagrams that have arrived, with their senders, after [`search_servers`](Self::search_servers).
    pub fn take_datagrams(&mut self) -> Vec<(Address, Vec<u8>)> {
        std::mem::take(&mut self.datagrams)
    }

    /// Transfers bytes until there is an event or `until` is reached. Returns `None` after `until`, or if a datagram arrived
    /// after [`search_servers`](Self::search_servers).
    ///
    /// # Errors
    /// An error from the kernel while waiting.
    pub fn step(&mut self, until: MonoNs) -> io::Result<Option<Event>> {
        loop {
            self.pump();
            if let Some(event) = self.client.poll_event() {
                return Ok(Some(event));
            }
            let now = Self::now();
            if now >= until || !self.datagrams.is_empty() {
                return Ok(None);
            }
            let openings = self.conns.values().filter_map(|conn| conn.opening);
            let wake = openings.chain(self.client.poll_timeout()).fold(until, MonoNs::min);
            self.wait(now, wake)?;
        }
    }

    fn send(&self, mut datagram: Vec<u8>) {
        for (to, is_one) in &self.search_to {
            search::set_unicast(&mut datagram, *is_one);
            // Lost searches are repeated.
            let _ = self.udp.send_to(&datagram, to);
        }
    }

    /// Sends all queued bytes and datagrams.
    fn pump(&mut self) {
        let now = Self::now();
        self.client.handle_timeout(now);
        while let Some(datagram) = self.client.poll_datagram(now, self.reply_port) {
            self.send(datagram);
        }
        while let Some((id, server)) = self.client.poll_connect() {
            match connect(SocketAddrV4::new(server.ip.into(), server.port)) {
                Ok(stream) => {
                    self.conns.insert(id, Conn { stream, opening: Some(now + CONNECT_MAX) });
                }
                Err(_) => self.client.closed(now, id),
            }
        }
        let late = |conn: &Conn| conn.opening.is_some_and(|until| until <= now);
        let late: Vec<CircuitId> = self.conns.iter().filter(|(_, conn)| late(conn)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.close(id));
        while let Some(id) = self.client.poll_touched() {
            self.flush(id);
        }
    }

    fn flush(&mut self, id: CircuitId) {
        if self.client.is_closing(id) {
            return self.close(id);
        }
        let Some(Conn { stream, opening: None }) = self.conns.get_mut(&id) else { return };
        loop {
            let out = self.client.output(id);
            if out.is_empty() {
                return;
            }
            match stream.write(out) {
                Ok(len) => self.client.sent(id, len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(id),
            }
        }
    }

    fn close(&mut self, id: CircuitId) {
        self.conns.remove(&id);
        self.client.closed(Self::now(), id);
    }

    /// Waits until a socket is ready or `until` is reached, and processes the input.
    fn wait(&mut self, now: MonoNs, until: MonoNs) -> io::Result<()> {
        let left = (until - now).0.max(0);
        let timeout = Timespec { tv_sec: left / 1_000_000_000, tv_nsec: left % 1_000_000_000 };
        let ids: Vec<CircuitId> = self.conns.keys().copied().collect();
        let (udp_ready, ready) = {
            let mut fds = vec![PollFd::new(&self.udp, PollFlags::IN)];
            for id in &ids {
                let conn = &self.conns[id];
                let writes = conn.opening.is_some() || !self.client.output(*id).is_empty();
                let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
                fds.push(PollFd::new(&conn.stream, flags));
            }
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            (is_ready(&fds[0]), fds[1..].iter().map(is_ready).collect::<Vec<bool>>())
        };
        if udp_ready {
            while let Ok((len, SocketAddr::V4(from))) = self.udp.recv_from(&mut self.buffer) {
                let from = Address { ip: (*from.ip()).into(), port: from.port() };
                if self.keeps_datagrams {
                    self.datagrams.push((from, self.buffer[..len].to_vec()));
                }
                self.client.handle_datagram(from, &self.buffer[..len]);
            }
        }
        let now = Self::now();
        for (id, _) in ids.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            self.serve(now, id);
        }
        Ok(())
    }

    /// Handles a connection that has opened, failed to open, or received bytes.
    fn serve(&mut self, now: MonoNs, id: CircuitId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.opening.is_some() {
            if !matches!(conn.stream.take_error(), Ok(None)) {
                return self.close(id);
            }
            conn.opening = None;
            self.client.connected_to(now, id);
        }
        self.flush(id);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.stream.read(&mut self.buffer) {
            Ok(0) => self.close(id),
            Ok(len) => self.client.handle_bytes(now, id, &self.buffer[..len]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.close(id),
        }
    }
}
