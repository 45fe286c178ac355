//! A Channel Access client with its sockets, driven by calls to [`Session::step`].

use crate::config::{Complaint, addresses, message_bytes, multicast_ttl};
use crate::streams::Streams;
use crate::waker::Waker;
use base::{DurNs, MonoNs};
use ca::client::{Address, CircuitId, Client, ClientConfig, Event};
use ca::wire::{self, Header, command};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

crate::client_protocol!(Bytes, Client, CircuitId);

/// Interval between attempts to register with the repeater, and their maximum number.
const REGISTER_GAP: DurNs = DurNs::from_secs(1);
const REGISTER_TRIES_MAX: u32 = 50;

/// The user name for access security: the user of this process, independent of the environment. A user without a name is sent
/// as an empty name, as in C clients.
fn user_name(complaints: &mut Vec<Complaint>) -> String {
    let (uid, name) = sys::users::own();
    name.unwrap_or_else(|| {
        complaints.push(Complaint(format!(
            "user {uid} has no name on this host: servers see an empty one, which no UAG of access security holds; \
             give it a line in /etc/passwd"
        )));
        String::new()
    })
}

/// A client with its sockets.
pub struct Session {
    /// The protocol implementation.
    pub client: Client,
    udp: UdpSocket,
    search_to: Vec<SocketAddrV4>,
    repeater: SocketAddrV4,
    /// The time of the next registration with the repeater and the number of attempts; `None` after its confirmation.
    register: Option<(MonoNs, u32)>,
    streams: Streams<CircuitId>,
    bell: Option<Waker>,
    beside: Option<OwnedFd>,
    /// Invalid values in the environment.
    pub complaints: Vec<Complaint>,
    buffer: Vec<u8>,
}

impl Session {
    /// Opens the socket for searches and reads EPICS' variables with `get`.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open(get: impl Fn(&str) -> Option<String>) -> io::Result<Self> {
        let mut complaints = Vec::new();
        let port = |name: &str, default: u16| get(name).and_then(|text| text.trim().parse().ok()).unwrap_or(default);
        let server_port = port("EPICS_CA_SERVER_PORT", wire::SERVER_PORT);
        let repeater = SocketAddrV4::new(Ipv4Addr::LOCALHOST, crate::repeater::port(&get));
        let list = |name: &str, complaints: &mut Vec<Complaint>| {
            get(name).map_or_else(Vec::new, |text| addresses(name, &text, server_port, complaints))
        };
        let mut search_to = list("EPICS_CA_ADDR_LIST", &mut complaints);
        let automatic = get("EPICS_CA_AUTO_ADDR_LIST").is_none_or(|text| !text.trim().eq_ignore_ascii_case("no"));
        if automatic {
            let broadcasts = sys::interfaces::list().map_err(io::Error::other)?;
            let broadcasts = broadcasts.iter().filter_map(|interface| interface.broadcast);
            // Servers on this host that listen only on loopback receive no broadcasts.
            let all = std::iter::once(Ipv4Addr::LOCALHOST).chain(broadcasts);
            search_to.extend(all.map(|ip| SocketAddrV4::new(ip, server_port)));
        }
        let name_servers = list("EPICS_CA_NAME_SERVERS", &mut complaints);
        let seconds = |name: &str, default: f64| {
            let given = get(name).and_then(|text| text.trim().parse::<f64>().ok()).filter(|value| *value > 0.0);
            DurNs((given.unwrap_or(default).min(1e6) * 1e9) as i64)
        };
        let config = ClientConfig {
            user: user_name(&mut complaints),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            search_period_max: seconds("EPICS_CA_MAX_SEARCH_PERIOD", 300.0).max(DurNs::from_secs(60)),
            quiet_max: seconds("EPICS_CA_CONN_TMO", 30.0),
            name_servers: name_servers.iter().map(|to| Address { ip: (*to.ip()).into(), port: to.port() }).collect(),
        };
        let udp = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        udp.set_broadcast(true)?;
        udp.set_multicast_ttl_v4(multicast_ttl(&get, &mut complaints))?;
        udp.set_nonblocking(true)?;
        let mut client = Client::new(config);
        if let Some(bytes) = message_bytes(&get) {
            client.bound_messages(bytes);
        }
        Ok(Self {
            client,
            udp,
            search_to,
            repeater,
            register: Some((Self::now(), 0)),
            streams: Streams::default(),
            bell: None,
            beside: None,
            complaints,
            buffer: vec![0; 65_536],
        })
    }

    /// The current time.
    #[must_use]
    pub fn now() -> MonoNs {
        sys::clock::mono_now()
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
    /// bell, or if the additional file descriptor is readable.
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
            if now >= until {
                return Ok(None);
            }
            let register = self.register.map(|(at, _)| at);
            let others = [self.streams.poll_timeout(), self.client.poll_timeout(), register];
            let wake = others.into_iter().flatten().fold(until, MonoNs::min);
            if self.wait(now, wake)? {
                return Ok(None);
            }
        }
    }

    /// Sends all queued bytes and datagrams.
    fn pump(&mut self) {
        let now = Self::now();
        self.client.handle_timeout(now);
        self.register(now);
        while let Some(datagram) = self.client.poll_datagram(now) {
            for to in &self.search_to {
                // Lost searches are repeated.
                let _ = self.udp.send_to(&datagram, to);
            }
        }
        self.streams.pump(&mut Bytes(&mut self.client), now);
    }

    /// Registers with the repeater of this host, which forwards beacons. Without a repeater, lost servers are found by searching.
    fn register(&mut self, now: MonoNs) {
        if let Some((_, tries)) = self.register.filter(|(at, _)| *at <= now) {
            let mut message = Vec::new();
            Header::bare(command::REPEATER_REGISTER, 0, 0, 0, Ipv4Addr::LOCALHOST.into()).write(&mut message);
            let _ = self.udp.send_to(&message, self.repeater);
            self.register = (tries < REGISTER_TRIES_MAX).then_some((now + REGISTER_GAP, tries + 1));
        }
    }

    /// Waits until a socket is ready or `until` is reached, and processes the input. Returns whether the bell woke it.
    fn wait(&mut self, now: MonoNs, until: MonoNs) -> io::Result<bool> {
        let others = self.beside.as_ref().map(AsFd::as_fd).into_iter().chain(self.bell.as_ref().map(Waker::fd));
        let others: Vec<_> = std::iter::once(self.udp.as_fd()).chain(others).collect();
        let ready = self.streams.wait(&Bytes(&mut self.client), &others, now, until)?;
        let rung = ready.others[1..].contains(&true);
        if let Some(bell) = self.bell.as_ref().filter(|_| rung) {
            bell.answer();
        }
        let now = Self::now();
        if ready.others[0] {
            while let Ok((len, SocketAddr::V4(from))) = self.udp.recv_from(&mut self.buffer) {
                let confirms = |(header, _): (Header, &[u8])| header.command == command::REPEATER_CONFIRM;
                if from.port() == self.repeater.port() && wire::messages(&self.buffer[..len]).any(confirms) {
                    self.register = None;
                }
                let from = Address { ip: (*from.ip()).into(), port: from.port() };
                self.client.handle_datagram(now, from, &self.buffer[..len]);
            }
        }
        self.streams.serve(&mut Bytes(&mut self.client), now, &ready);
        Ok(rung)
    }
}
