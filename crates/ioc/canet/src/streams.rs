//! The connections of a client, for any protocol.

use base::{DurNs, MonoNs};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::time::Timespec;
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Maximum time to open a connection.
const CONNECT_MAX: DurNs = DurNs::from_secs(5);

/// The part of a client that exchanges bytes with its servers.
pub trait Protocol {
    /// The number of a connection.
    type Id: Copy + Eq + Hash;
    /// The next connection to open.
    fn poll_connect(&mut self) -> Option<(Self::Id, SocketAddr)>;
    /// A connection with bytes to send or to close.
    fn poll_touched(&mut self) -> Option<Self::Id>;
    /// The unsent bytes of a connection.
    fn output(&self, id: Self::Id) -> &[u8];
    /// Bytes of the output were sent.
    fn sent(&mut self, id: Self::Id, len: usize);
    /// Whether the connection must be closed now.
    fn is_closing(&self, id: Self::Id) -> bool;
    /// A connection is open.
    fn connected_to(&mut self, now: MonoNs, id: Self::Id);
    /// A connection has ended, or could not be opened.
    fn closed(&mut self, now: MonoNs, id: Self::Id);
    /// Received bytes of a connection.
    fn handle_bytes(&mut self, now: MonoNs, id: Self::Id, bytes: &[u8]);
}

/// The connection of a circuit.
struct Conn {
    stream: TcpStream,
    /// The deadline for opening; `None` once it is open.
    opening: Option<MonoNs>,
}

/// The connections of a client.
pub struct Streams<Id> {
    conns: HashMap<Id, Conn>,
    buffer: Vec<u8>,
}

/// Result of [`Streams::wait`].
pub struct Readiness<Id> {
    /// For each of the other file descriptors, whether it is readable.
    pub others: Vec<bool>,
    streams: Vec<Id>,
}

impl<Id> Default for Streams<Id> {
    fn default() -> Self {
        Self { conns: HashMap::new(), buffer: vec![0; 65_536] }
    }
}

impl<Id: Copy + Eq + Hash> Streams<Id> {
    /// The earliest deadline of a connection that is being opened.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<MonoNs> {
        self.conns.values().filter_map(|conn| conn.opening).min()
    }

    /// Opens the requested connections, ends those that did not open in time, and sends all queued bytes.
    pub fn pump(&mut self, client: &mut impl Protocol<Id = Id>, now: MonoNs) {
        while let Some((id, server)) = client.poll_connect() {
            match connect(server) {
                Ok(stream) => {
                    self.conns.insert(id, Conn { stream, opening: Some(now + CONNECT_MAX) });
                }
                Err(_) => client.closed(now, id),
            }
        }
        let late = |conn: &Conn| conn.opening.is_some_and(|until| until <= now);
        let late: Vec<Id> = self.conns.iter().filter(|(_, conn)| late(conn)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| self.close(client, now, id));
        while let Some(id) = client.poll_touched() {
            self.flush(client, now, id);
        }
    }

    fn flush(&mut self, client: &mut impl Protocol<Id = Id>, now: MonoNs, id: Id) {
        if client.is_closing(id) {
            return self.close(client, now, id);
        }
        let Some(Conn { stream, opening: None }) = self.conns.get_mut(&id) else { return };
        loop {
            let out = client.output(id);
            if out.is_empty() {
                return;
            }
            match stream.write(out) {
                Ok(len) => client.sent(id, len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(client, now, id),
            }
        }
    }

    fn close(&mut self, client: &mut impl Protocol<Id = Id>, now: MonoNs, id: Id) {
        self.conns.remove(&id);
        client.closed(now, id);
    }

    /// Waits from `now` until `until`, or until a connection or one of `others` is ready. Then call [`serve`](Self::serve).
    ///
    /// # Errors
    /// An error from the kernel while waiting.
    pub fn wait(
        &self,
        client: &impl Protocol<Id = Id>,
        others: &[BorrowedFd<'_>],
        now: MonoNs,
        until: MonoNs,
    ) -> io::Result<Readiness<Id>> {
        let left = (until - now).0.max(0);
        let timeout = Timespec { tv_sec: left / 1_000_000_000, tv_nsec: left % 1_000_000_000 };
        let mut fds: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let mut ids = Vec::with_capacity(self.conns.len());
        for (id, conn) in &self.conns {
            let writes = conn.opening.is_some() || !client.output(*id).is_empty();
            let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&conn.stream, flags));
            ids.push(*id);
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (others, streams) = ready.split_at(others.len());
        let streams = ids.into_iter().zip(streams).filter(|(_, ready)| **ready).map(|(id, _)| id).collect();
        Ok(Readiness { others: others.to_vec(), streams })
    }

    /// Handles the connections that have opened, failed to open, or received bytes.
    pub fn serve(&mut self, client: &mut impl Protocol<Id = Id>, now: MonoNs, ready: &Readiness<Id>) {
        ready.streams.iter().for_each(|id| self.serve_one(client, now, *id));
    }

    fn serve_one(&mut self, client: &mut impl Protocol<Id = Id>, now: MonoNs, id: Id) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.opening.is_some() {
            if !matches!(conn.stream.take_error(), Ok(None)) {
                return self.close(client, now, id);
            }
            conn.opening = None;
            client.connected_to(now, id);
        }
        self.flush(client, now, id);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.stream.read(&mut self.buffer) {
            Ok(0) => self.close(client, now, id),
            Ok(len) => client.handle_bytes(now, id, &self.buffer[..len]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.close(client, now, id),
        }
    }
}

/// Starts to open a connection, without waiting: the socket becomes writable when it is open or has failed. Sends small
/// messages at once, and detects a dead peer by keepalive.
///
/// # Errors
/// The kernel refuses the socket or the destination.
fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    match rustix::net::connect(&socket, &server) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// Implements [`Protocol`] for a client whose methods have the same names.
#[macro_export]
macro_rules! client_protocol {
    ($wrapper:ident, $client:ty, $id:ty) => {
        /// The client, as its connections see it.
        struct $wrapper<'a>(&'a mut $client);

        impl $crate::streams::Protocol for $wrapper<'_> {
            type Id = $id;
            fn poll_connect(&mut self) -> Option<($id, std::net::SocketAddr)> {
                let (id, server) = self.0.poll_connect()?;
                Some((id, server.into()))
            }
            fn poll_touched(&mut self) -> Option<$id> {
                self.0.poll_touched()
            }
            fn output(&self, id: $id) -> &[u8] {
                self.0.output(id)
            }
            fn sent(&mut self, id: $id, len: usize) {
                self.0.sent(id, len);
            }
            fn is_closing(&self, id: $id) -> bool {
                self.0.is_closing(id)
            }
            fn connected_to(&mut self, now: base::MonoNs, id: $id) {
                self.0.connected_to(now, id);
            }
            fn closed(&mut self, now: base::MonoNs, id: $id) {
                self.0.closed(now, id);
            }
            fn handle_bytes(&mut self, now: base::MonoNs, id: $id, bytes: &[u8]) {
                self.0.handle_bytes(now, id, bytes);
            }
        }
    };
}
