//! A PVAccess server on its sockets. The caller's thread waits for them, alone or [nested](Net::nest) in others.

use base::{MonoNs, Stamp};
use canet::config::ServerConfig;
use canet::net::{CircuitId, Net, Ready, SendOutcome};
use pva::codec::{Order, Writer};
use pva::search::{self, Address, Beacons, Identity, Search, SearchCounters};
use pva::server::{ConnId, Limits, Server, Source};
use pva::wire::{self, Side, command};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};

/// Maximum number of datagrams handled before connections are served.
const DATAGRAMS_MAX: usize = 64;
/// Maximum number of writes to one connection before others are served.
const SENDS_MAX: usize = 4;

/// The server of PVAccess, with its sockets.
pub struct PvAccess {
    /// Connections, channels and operations.
    pub server: Server,
    /// The sockets.
    pub net: Net,
    /// The configuration.
    pub config: ServerConfig,
    /// Counters of names searched by datagram.
    pub searches: SearchCounters,
    beacons: Beacons,
    again: Vec<ConnId>,
    /// Connections with data to send. The vector is reused.
    touched: Vec<ConnId>,
    ready: Vec<Ready>,
}

impl PvAccess {
    /// Opens the sockets. `wall` is the time of the start, which identifies the server with its process.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn open(config: ServerConfig, limits: Limits, now: MonoNs, wall: Stamp) -> io::Result<Self> {
        let net = Net::open(Some(&config))?;
        // Answers to programs that search a broadcast address come from another address than the one that is served.
        let ip = match config.interfaces[..] {
            [one] if one.is_loopback() && config.interfaces_v6.iter().all(Ipv6Addr::is_loopback) => one.into(),
            _ => search::SENDER,
        };
        let identity = Identity { guid: guid(wall), ip, port: net.tcp_port };
        Ok(Self {
            server: Server::new(limits, identity),
            net,
            searches: SearchCounters::default(),
            beacons: Beacons::new(now, config.beacon_period),
            config,
            again: Vec::new(),
            touched: Vec::new(),
            ready: Vec::new(),
        })
    }

    /// Whether connections have more to send, although the kernel has room.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// The time of the next call to [`run_due`](Self::run_due).
    #[must_use]
    pub fn poll_timeout(&self) -> MonoNs {
        self.server.poll_timeout().map_or(self.beacons.poll_timeout(), |at| at.min(self.beacons.poll_timeout()))
    }

    /// Sends beacons and closes silent connections, if due.
    pub fn run_due(&mut self, now: MonoNs) {
        if let Some(beacon) = self.beacons.poll(now, self.server.identity) {
            self.net.beacon(&self.config.beacons, &beacon);
            self.net.share(&beacon);
        }
        self.server.handle_timeout(now);
    }

    /// Waits for events of the sockets until a time, or not if it has passed. Return the vector with
    /// [`recycle`](Self::recycle).
    ///
    /// # Errors
    /// An error from the kernel.
    pub fn events(&mut self, now: MonoNs, until: MonoNs) -> io::Result<Vec<Ready>> {
        let mut ready = std::mem::take(&mut self.ready);
        self.net.wait(now, Some(until), &mut ready)?;
        Ok(ready)
    }

    /// Takes back the vector of [`events`](Self::events).
    pub fn recycle(&mut self, ready: Vec<Ready>) {
        self.ready = ready;
    }

    /// Handles an event of the sockets.
    pub fn handle(&mut self, now: MonoNs, ready: Ready, source: &mut impl Source) {
        match ready {
            Ready::Timer | Ready::Mail | Ready::Nested => {}
            Ready::Listener(listener) => {
                while let Some((stream, peer)) = self.net.accept(listener) {
                    let id = self.server.accept(now, &peer.to_string());
                    if self.net.attach(CircuitId(id.0), stream).is_err() {
                        self.server.close(id, source);
                    }
                }
            }
            Ready::Datagrams(socket) => self.datagrams(socket, source),
            Ready::Circuit { id, read, write } => {
                if read {
                    match self.net.read(id) {
                        Some(len) => {
                            let bytes = self.net.bytes(len);
                            self.server.handle_bytes(now, ConnId(id.0), bytes, source);
                        }
                        None => self.hang_up(ConnId(id.0), source),
                    }
                }
                if write {
                    self.flush(now, ConnId(id.0), source);
                }
            }
        }
    }

    /// Sends the waiting data of all connections, as much as the kernel accepts. Returns whether there was any.
    pub fn flush_touched(&mut self, now: MonoNs, source: &mut impl Source) -> bool {
        let mut touched = std::mem::take(&mut self.touched);
        touched.extend(std::iter::from_fn(|| self.server.poll_touched()));
        touched.iter().for_each(|id| self.flush(now, *id, source));
        let any = !touched.is_empty();
        touched.clear();
        self.touched = touched;
        any
    }

    /// Continues to send on connections that have more to send.
    pub fn flush_again(&mut self, now: MonoNs, source: &mut impl Source) {
        std::mem::take(&mut self.again).into_iter().for_each(|id| self.flush(now, id, source));
    }

    fn flush(&mut self, now: MonoNs, id: ConnId, source: &mut impl Source) {
        let circuit = CircuitId(id.0);
        for _ in 0..SENDS_MAX {
            let bytes = self.server.output(id);
            if bytes.is_empty() {
                if self.server.is_closing(id) {
                    self.hang_up(id, source);
                } else {
                    self.net.interest(circuit, self.server.wants_input(id), false);
                }
                return;
            }
            match self.net.send(circuit, bytes) {
                SendOutcome::Bytes(len) => self.server.sent(now, id, len, source),
                SendOutcome::Full => {
                    self.net.interest(circuit, self.server.wants_input(id), true);
                    return;
                }
                SendOutcome::Gone => {
                    self.hang_up(id, source);
                    return;
                }
            }
        }
        self.net.interest(circuit, self.server.wants_input(id), false);
        self.again.push(id);
    }

    fn hang_up(&mut self, id: ConnId, source: &mut impl Source) {
        self.net.detach(CircuitId(id.0));
        self.server.close(id, source);
    }

    fn datagrams(&mut self, socket: usize, source: &mut impl Source) {
        for _ in 0..DATAGRAMS_MAX {
            let Some((len, from)) = self.net.receive(socket) else { return };
            if !self.config.ignored.iter().any(|ignored| from.ip() == *ignored) {
                self.datagram(socket, len, from, source);
            }
        }
    }

    /// Answers the searches of a datagram. A search that only one of the servers of this host received is shared with the
    /// others. This server answers it when it arrives there.
    fn datagram(&mut self, socket: usize, len: usize, from: SocketAddr, source: &mut impl Source) {
        let shared = self.net.is_local_group(socket);
        let mut messages = wire::datagram(self.net.bytes(len), Some(Side::Client)).peekable();
        let tagged = messages.peek().is_some_and(|first| first.header.command == command::ORIGIN_TAG);
        // Shared searches count only from this host, and only on the socket for them.
        if tagged != shared || (shared && !from.ip().is_loopback()) {
            return;
        }
        let mut out = Writer::new(Order::Big);
        for message in messages.filter(|message| message.header.command == command::SEARCH) {
            let order = message.header.order();
            let Ok(search) = Search::read(message.payload, order) else { return };
            let sender = Address::from(from);
            if search.flags & search::UNICAST != 0
                && !shared
                // Sockets of IPv4 answer shared searches.
                && from.is_ipv4()
                && self.net.shares()
                && let Some(copy) = search::forwarded(&search, message.payload, order, sender, sender.ip)
            {
                self.net.share(&copy);
                continue;
            }
            out.bytes.clear();
            let exists = |name: &[u8]| source.exists(name);
            let own = self.server.identity;
            let identity = if from.is_ipv4() { own } else { Identity { ip: search::SENDER, ..own } };
            if search::answer(&search, identity, &mut self.searches, exists, &mut out).is_some() {
                let mut to = from;
                to.set_port(search.reply_to.port);
                if !search.reply_to.ip.is_unspecified() {
                    to.set_ip(search.reply_to.ip);
                }
                self.net.answer(socket, to, &out.bytes);
            }
        }
    }
}

/// A number of this server that is new at each start: its time and its process.
fn guid(wall: Stamp) -> [u8; 12] {
    let mut guid = [0; 12];
    guid[..4].copy_from_slice(&wall.secs.to_le_bytes());
    guid[4..8].copy_from_slice(&wall.nanos.to_le_bytes());
    guid[8..].copy_from_slice(&std::process::id().to_le_bytes());
    guid
}
