//! A PVAccess client with its sockets, driven by calls to [`Session::step`].

use crate::config::{name_servers, quiet_max};
use base::MonoNs;
use canet::Waker;
use canet::config::{Complaint, addresses_of_both, port_of};
use canet::streams::Streams;
use pva::client::{CircuitId, Client, ClientConfig, Event};
use pva::search::{self, Address};
use pva::wire;
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

canet::client_protocol!(Bytes, Client, CircuitId);

/// A client with its sockets.
pub struct Session {
    /// The protocol implementation.
    pub client: Client,
    udp: UdpSocket,
    reply_port: u16,
    /// The socket for searches of addresses of IPv6, with its port, if there are any.
    udp_v6: Option<(UdpSocket, u16)>,
    /// Destinations of searches, each with whether it is the address of one host.
    search_to: Vec<(SocketAddr, bool)>,
    streams: Streams<CircuitId>,
    bell: Option<Waker>,
    beside: Option<OwnedFd>,
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
            listed.map_or_else(Vec::new, |text| addresses_of_both("EPICS_PVA_ADDR_LIST", &text, port, &mut complaints));
        let interfaces = sys::interfaces::list().map_err(io::Error::other)?;
        let broadcasts: Vec<Ipv4Addr> = interfaces.iter().filter_map(|interface| interface.broadcast).collect();
        if get("EPICS_PVA_AUTO_ADDR_LIST").is_none_or(|text| !text.trim().eq_ignore_ascii_case("no")) {
            // Servers on this host that listen only on loopback receive no broadcasts.
            let all = std::iter::once(Ipv4Addr::LOCALHOST).chain(broadcasts.iter().copied());
            to.extend(all.map(|ip| SocketAddr::from((ip, port))));
        }
        let is_one = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast() && !broadcasts.contains(&ip),
            IpAddr::V6(ip) => !ip.is_multicast(),
        };
        let search_to: Vec<(SocketAddr, bool)> = to.into_iter().map(|to| (to, is_one(to.ip()))).collect();
        let udp_v6 = if search_to.iter().any(|(to, _)| to.is_ipv6()) { Some(open_v6()?) } else { None };
        let (uid, user) = sys::users::own();
        let config = ClientConfig {
            user: user.unwrap_or_else(|| uid.to_string()),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            quiet_max: quiet_max(&get, &mut complaints),
            name_servers: name_servers(&get, &mut complaints),
        };
        let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        udp.set_broadcast(true)?;
        udp.set_nonblocking(true)?;
        Ok(Self {
            client: Client::new(config),
            reply_port: udp.local_addr()?.port(),
            udp,
            udp_v6,
            search_to,
            streams: Streams::default(),
            bell: None,
            beside: None,
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

    /// Makes [`step`](Self::step) return after `bell.wake()`.
    pub fn listen_to(&mut self, bell: Waker) {
        self.bell = Some(bell);
    }

    /// Makes [`step`](Self::step) return while `fd` is readable. For callers with other sockets.
    pub fn look_beside(&mut self, fd: OwnedFd) {
        self.beside = Some(fd);
    }

    /// Transfers bytes until there is an event or `until` is reached. Returns `None` after `until`, after a wake-up by the
    /// bell, if the additional file descriptor is readable, or if a datagram arrived after
    /// [`search_servers`](Self::search_servers).
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
            let others = [self.streams.poll_timeout(), self.client.poll_timeout()];
            let wake = others.into_iter().flatten().fold(until, MonoNs::min);
            if self.wait(now, wake)? {
                return Ok(None);
            }
        }
    }

    fn send(&self, mut datagram: Vec<u8>) {
        for (to, is_one) in &self.search_to {
            search::set_unicast(&mut datagram, *is_one);
            let (udp, port) = match &self.udp_v6 {
                Some((udp, port)) if to.is_ipv6() => (udp, *port),
                _ => (&self.udp, self.reply_port),
            };
            search::set_reply_port(&mut datagram, port);
            // Lost searches are repeated.
            let _ = udp.send_to(&datagram, to);
        }
    }

    /// Sends all queued bytes and datagrams.
    fn pump(&mut self) {
        let now = Self::now();
        self.client.handle_timeout(now);
        while let Some(datagram) = self.client.poll_datagram(now, self.reply_port) {
            self.send(datagram);
        }
        self.streams.pump(&mut Bytes(&mut self.client), now);
    }

    /// Waits until a socket is ready or `until` is reached, and processes the input. Returns whether the caller was woken.
    fn wait(&mut self, now: MonoNs, until: MonoNs) -> io::Result<bool> {
        let others = self.beside.as_ref().map(AsFd::as_fd).into_iter().chain(self.bell.as_ref().map(Waker::fd));
        let sockets: Vec<&UdpSocket> =
            std::iter::once(&self.udp).chain(self.udp_v6.as_ref().map(|(udp, _)| udp)).collect();
        let others: Vec<_> = sockets.iter().map(|udp| udp.as_fd()).chain(others).collect();
        let ready = self.streams.wait(&Bytes(&mut self.client), &others, now, until)?;
        let rung = ready.others[sockets.len()..].contains(&true);
        if let Some(bell) = self.bell.as_ref().filter(|_| rung) {
            bell.answer();
        }
        for (udp, _) in sockets.into_iter().zip(&ready.others).filter(|(_, is_ready)| **is_ready) {
            while let Ok((len, from)) = udp.recv_from(&mut self.buffer) {
                let from = Address::from(from);
                if self.keeps_datagrams {
                    self.datagrams.push((from, self.buffer[..len].to_vec()));
                }
                self.client.handle_datagram(from, &self.buffer[..len]);
            }
        }
        self.streams.serve(&mut Bytes(&mut self.client), Self::now(), &ready);
        Ok(rung)
    }
}

/// A socket for searches of addresses of IPv6, and its port.
fn open_v6() -> io::Result<(UdpSocket, u16)> {
    let udp = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
    udp.set_nonblocking(true)?;
    let port = udp.local_addr()?.port();
    Ok((udp, port))
}
