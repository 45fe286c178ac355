//! Server side of the socket: connections, requests and answers.

use alarm::Actor;
use alarm::wire::{Look, REQUEST_BYTES_MAX, Reply, Request};
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use sys::handover::Counter;
use sys::peer::Peer;

/// Maximum connections; further ones are closed immediately.
const CLIENTS_MAX: usize = 64;
/// Maximum bytes queued for a client; beyond that the connection is closed.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Maximum connections accepted at a time, so that clients that reconnect constantly cannot delay the alarms.
const ACCEPTED_AT_ONCE: usize = 16;
/// Maximum bytes read from a client at a time, for the same reason.
const READ_AT_ONCE: usize = 64 << 10;
/// Epoll id of the listener.
const LISTENER: u64 = 0;

/// A request with its client, or the error of parsing it.
pub(crate) struct ClientRequest {
    pub(crate) client: u64,
    pub(crate) by: Actor,
    pub(crate) request: Result<Request, NotARequest>,
    /// Whether the client may act.
    pub(crate) may_act: bool,
}

/// The line is not a valid request.
#[derive(Debug, thiserror::Error)]
#[error("not a request: {0}; expected such as {{\"do\":\"list\"}}")]
pub(crate) struct NotARequest(#[from] serde_json::Error);

/// The connected clients.
pub(crate) struct Clients {
    listener: Counter,
    epoll: OwnedFd,
    /// Additional users who may act, and who may read. Root and the user of this process always may.
    operators: Vec<String>,
    viewers: Vec<String>,
    clients: BTreeMap<u64, Client>,
    next: u64,
}

struct Client {
    stream: UnixStream,
    by: Actor,
    may_act: bool,
    read: Vec<u8>,
    write: Vec<u8>,
    watches: bool,
    /// Close it when everything is written.
    ends: bool,
}

impl Clients {
    /// Listens under a name.
    ///
    /// # Errors
    /// The kernel's error: `EADDRINUSE` if another process uses the name.
    pub(crate) fn listen(socket: &str, operators: &[String], viewers: &[String]) -> io::Result<Self> {
        let listener =
            Counter::open_stream(socket).map_err(|error| io::Error::new(io::Error::from(error.errno).kind(), error))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        let (operators, viewers) = (operators.to_vec(), viewers.to_vec());
        Ok(Self { listener, epoll, operators, viewers, clients: BTreeMap::new(), next: LISTENER + 1 })
    }

    /// Reason why clients with another run folder may not find this socket, or why any user could have taken its name.
    pub(crate) fn shortfall(&self) -> Option<&str> {
        self.listener.shortfall()
    }

    /// A descriptor that is readable when [`serve`](Self::serve) has work.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn ready(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// Accepts connections and reads requests, without blocking.
    pub(crate) fn serve(&mut self) -> Vec<ClientRequest> {
        let mut asked = Vec::new();
        let mut events =
            [const { epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) } }; 32];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(count) = epoll::wait(&self.epoll, &mut events, Some(&at_once)) else { return asked };
        for event in &events[..count] {
            let data = event.data;
            match data.u64() {
                LISTENER => self.accept(),
                id => {
                    self.read(id, &mut asked);
                    self.flush(id);
                }
            }
        }
        asked
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Ok(Some(caller)) = self.listener.accept_anyone() else { return };
            let (stream, peer) = (UnixStream::from(caller.connection), Peer { pid: caller.pid, uid: caller.uid });
            if self.clients.len() >= CLIENTS_MAX || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let user = sys::users::name_of(peer.uid).unwrap_or_else(|| peer.uid.to_string());
            let among = |users: &[String]| users.iter().any(|one| *one == user || *one == peer.uid.to_string());
            let may_act = peer.is_believed() || among(&self.operators);
            let welcome = may_act || among(&self.viewers);
            let id = self.next;
            self.next += 1;
            let by = Actor { user, uid: peer.uid, pid: peer.pid, on_behalf_of: String::new() };
            let (read, write) = (Vec::new(), Vec::new());
            let client = Client { stream, by, may_act, read, write, watches: false, ends: false };
            let (data, flags) = (epoll::EventData::new_u64(id), epoll::EventFlags::IN);
            if epoll::add(&self.epoll, &client.stream, data, flags).is_ok() {
                self.clients.insert(id, client);
                if !welcome {
                    let why = format!(
                        "{peer} may neither read nor act; add the user to `viewers` or `operators` of [alarms]"
                    );
                    self.answer(id, &Reply::Refused(why));
                    self.end(id);
                }
            }
        }
    }

    fn read(&mut self, id: u64, asked: &mut Vec<ClientRequest>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let mut bytes = [0u8; 4096];
        let mut taken = 0;
        loop {
            if taken >= READ_AT_ONCE {
                // The rest is read next time.
                return;
            }
            match client.stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(got) => {
                    taken += got;
                    client.read.extend_from_slice(&bytes[..got]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
            while let Some(end) = client.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = client.read.drain(..=end).collect();
                if client.ends {
                    continue;
                }
                let mut by = client.by.clone();
                let request = parse(&line, &mut by);
                client.watches |= matches!(request, Ok(Request::Look(Look::Watch)));
                asked.push(ClientRequest { client: id, by, request, may_act: client.may_act });
            }
            if client.read.len() > REQUEST_BYTES_MAX {
                break;
            }
        }
        self.clients.remove(&id);
    }

    /// Sends an answer. A client that does not read is disconnected.
    pub(crate) fn answer(&mut self, id: u64, reply: &Reply) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match serde_json::to_vec(reply) {
            Ok(text) if client.write.len() + text.len() < WAITING_BYTES_MAX => {
                client.write.extend(text);
                client.write.push(b'\n');
                self.flush(id);
            }
            _ => drop(self.clients.remove(&id)),
        }
    }

    /// Sends to all clients that watch.
    pub(crate) fn broadcast(&mut self, reply: &Reply) {
        let watchers = self.clients.iter().filter(|(_, client)| client.watches).map(|(id, _)| *id);
        for id in watchers.collect::<Vec<_>>() {
            self.answer(id, reply);
        }
    }

    fn end(&mut self, id: u64) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.ends = true;
        }
        self.flush(id);
    }

    fn flush(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let waited = !client.write.is_empty();
        let gone = loop {
            if client.write.is_empty() {
                break client.ends;
            }
            match client.stream.write(&client.write) {
                Ok(0) => break true,
                Ok(sent) => drop(client.write.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => break false,
                Err(_) => break true,
            }
        };
        if gone {
            self.clients.remove(&id);
        } else if waited {
            let room = if client.write.is_empty() { epoll::EventFlags::empty() } else { epoll::EventFlags::OUT };
            // If this fails, the rest is sent with the next answer.
            let _ =
                epoll::modify(&self.epoll, &client.stream, epoll::EventData::new_u64(id), epoll::EventFlags::IN | room);
        }
    }
}

/// Parses a request. Sets `by.on_behalf_of` if the request contains it.
fn parse(line: &[u8], by: &mut Actor) -> Result<Request, NotARequest> {
    let mut value: serde_json::Value = serde_json::from_slice(line)?;
    if let Some(name) = value.as_object_mut().and_then(|object| object.remove("on_behalf_of")) {
        name.as_str().unwrap_or_default().clone_into(&mut by.on_behalf_of);
    }
    match value["do"].as_str() {
        Some("list" | "watch") => Ok(Request::Look(serde_json::from_value(value)?)),
        _ => Ok(Request::Act(serde_json::from_value(value)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_connect_or_send_without_end_are_served_in_turns() {
        let name = format!("tahti-alarms-test-turns-{}", std::process::id());
        let mut clients = Clients::listen(&name, &[], &[]).unwrap();
        let mut streams: Vec<UnixStream> =
            (0..ACCEPTED_AT_ONCE + 1).map(|_| sys::handover::connect_stream(&name).unwrap()).collect();
        for accepted in [ACCEPTED_AT_ONCE, ACCEPTED_AT_ONCE + 1] {
            assert!(clients.serve().is_empty());
            assert_eq!(clients.clients.len(), accepted);
        }
        let request = b"{\"do\":\"list\"}\n";
        let (each, beyond) = (READ_AT_ONCE / request.len(), 4096 / request.len() + 1);
        streams[0].set_nonblocking(true).unwrap();
        let sent = streams[0].write(&request.repeat(each + 2 * beyond)).unwrap();
        assert!(sent > (each + beyond) * request.len(), "{sent} bytes are no more than one turn");
        let first = clients.serve();
        assert!((each..each + beyond).contains(&first.len()) && first.iter().all(|asked| asked.request.is_ok()));
        assert!(!clients.serve().is_empty(), "the rest is served in the next turn");
    }
}
