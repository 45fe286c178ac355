//! Passing descriptors between processes over named Unix sockets.
//!
//! A name is a file in the run folder (`TAHTI_RUN`, `/run/tahti`), which clients try first, and an abstract name in
//! addition (`place`). Both ends check the user of the other end here.

mod place;

use crate::error::{Doing, Error, Result};
use crate::peer::{self, Peer};
pub use crate::peer::{is_ours, own_user};
use base::DurNs;
use place::{Place, SocketFile};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Maximum number of descriptors in one message.
const FDS_MAX: usize = 4;
/// Maximum time that a client waits for the connection and for each answer. Servers answer immediately, so one that
/// does not is stopped or starved of CPU time.
const PATIENCE: DurNs = DurNs::from_secs(5);

/// Maximum number of connections waiting to be accepted, for messages and for byte streams.
const BACKLOG: i32 = 8;
const STREAM_BACKLOG: i32 = 128;

const fn backlog(kind: SocketType) -> i32 {
    if kind.as_raw() == SocketType::STREAM.as_raw() { STREAM_BACKLOG } else { BACKLOG }
}

/// A listening socket at which clients ask for a descriptor.
#[derive(Debug)]
pub struct Counter {
    file: Option<SocketFile>,
    abstract_socket: Option<OwnedFd>,
    /// Readable while a client waits at one of them.
    ready: OwnedFd,
    name: String,
    shortfall: Option<String>,
}

fn address(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).doing(|| format!("name a socket @{name}"))
}

fn socket(place: &str, kind: SocketType, flags: SocketFlags) -> Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).doing(|| format!("make a socket {place}"))
}

impl Counter {
    /// Opens the socket `name`. Its operations do not block.
    ///
    /// # Errors
    /// `EADDRINUSE`, with the process, if another process has it open in this run folder. If the socket cannot be
    /// created there, the same applies to the abstract name.
    pub fn open(name: &str) -> Result<Self> {
        Self::of(name, SocketType::SEQPACKET)
    }

    /// Like [`open`](Self::open), for byte streams: see [`connect_stream`].
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn open_stream(name: &str) -> Result<Self> {
        Self::of(name, SocketType::STREAM)
    }

    fn of(name: &str, kind: SocketType) -> Result<Self> {
        let file = match SocketFile::listen(name, kind, backlog(kind)) {
            Err(error) if error.errno == Errno::ADDRINUSE => return Err(taken(name, owner(name, kind), error)),
            file => file,
        };
        let (file, abstract_socket, shortfall) = match (file, listen_abstract(name, kind)) {
            (Ok(file), Ok(socket)) => (Some(file), Some(socket), None),
            (Ok(file), Err(why)) => {
                (Some(file), None, Some(format!("only processes with this run folder find {name}: {why}")))
            }
            (Err(why), Ok(socket)) => {
                let only = format!("{name} has only an abstract socket, whose name any account can take first");
                (None, Some(socket), Some(format!("{only}: {why}")))
            }
            (Err(_), Err(why)) => return Err(why),
        };
        let doing = || format!("wait for callers at @{name}");
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).doing(doing)?;
        let sockets = file.iter().map(|file| &file.socket).chain(&abstract_socket);
        for (number, socket) in sockets.enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&ready, socket, data, epoll::EventFlags::IN).doing(doing)?;
        }
        Ok(Self { file, abstract_socket, ready, name: name.to_owned(), shortfall })
    }

    /// Why one of its two sockets is missing. Either another process has the abstract name, so that clients with
    /// another run folder do not find this one. Or the run folder permits no socket, so that any account could have
    /// taken the name.
    #[must_use]
    pub fn shortfall(&self) -> Option<&str> {
        self.shortfall.as_deref()
    }

    /// Accepts one client, if there is one, and sends it `fd` if it runs as this user or root. While the returned
    /// connection is open, the client sees that the owner is alive.
    ///
    /// # Errors
    /// The kernel's.
    pub fn serve(&self, fd: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
        let Some(caller) = self.accept()? else { return Ok(None) };
        Ok(send(caller.connection.as_fd(), b"1", &[fd])?.then_some(caller.connection))
    }

    /// The next client that runs as this user or root, if there is one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept(&self) -> Result<Option<Caller>> {
        let caller = self.accept_anyone()?;
        Ok(caller.filter(Caller::is_ours))
    }

    /// The next client of any user, if there is one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept_anyone(&self) -> Result<Option<Caller>> {
        let doing = || format!("serve a caller at @{}", self.name);
        for socket in self.file.iter().map(|file| &file.socket).chain(&self.abstract_socket) {
            let connection = match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
                Ok(connection) => connection,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(errno).doing(doing),
            };
            let Peer { pid, uid } = Peer::of(connection.as_fd())?;
            return Ok(Some(Caller { connection, pid, uid }));
        }
        Ok(None)
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

fn listen_abstract(name: &str, kind: SocketType) -> Result<OwnedFd> {
    let socket = socket(name, kind, SocketFlags::NONBLOCK)?;
    let bound = rustix::net::bind(&socket, &address(name)?);
    let bound = bound.doing(|| format!("open @{name}"));
    bound.map_err(|error| match error.errno {
        Errno::ADDRINUSE => taken(name, owner_at(&Place::Abstract(name.to_owned()), kind), error),
        _ => error,
    })?;
    rustix::net::listen(&socket, backlog(kind)).doing(|| format!("listen at @{name}"))?;
    Ok(socket)
}

/// Adds the owner of a name to the error.
fn taken(name: &str, owner: Option<Peer>, error: Error) -> Error {
    let doing = match owner {
        Some(owner) => format!("open @{name}, which {owner} has open; end that process, or use another name"),
        None => format!("open @{name}"),
    };
    Error { doing, ..error }
}

/// Names with the prefix `prefix` under which processes listen in this process's run folder; also in root's if
/// `TAHTI_RUN` is not set.
#[must_use]
pub fn names_here(prefix: &str) -> Vec<String> {
    place::names(prefix)
}

/// Names with the prefix `prefix` under which processes listen: in the run folders, and abstract ones.
///
/// # Errors
/// The kernel's, if `/proc/net/unix` cannot be read.
pub fn names(prefix: &str) -> io::Result<Vec<String>> {
    // Any account can choose arbitrary bytes as the name of a socket. Names that are not UTF-8 are never tahti's.
    let sockets = std::fs::read("/proc/net/unix")?;
    let sockets = String::from_utf8_lossy(&sockets);
    let abstract_names = sockets.lines().filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let mut all: Vec<String> = abstract_names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect();
    all.extend(names_here(prefix));
    // Connections are listed with the same name.
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// A connected client.
#[derive(Debug)]
pub struct Caller {
    /// The connection to it.
    pub connection: OwnedFd,
    /// Its process, as reported by the kernel.
    pub pid: i32,
    /// Its user, as reported by the kernel.
    pub uid: u32,
}

impl Caller {
    /// Whether it runs as this user or root.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        is_ours(self.uid)
    }
}

/// Sends one message with descriptors. `false` if the other end has closed the connection.
///
/// # Errors
/// The kernel's; `ETIMEDOUT` if the other end of a connection made by [`connect`] does not receive.
pub fn send(connection: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool> {
    send_with(connection, bytes, fds, SendFlags::empty())
}

/// Like [`send`], but does not wait for room.
///
/// # Errors
/// `ETIMEDOUT` if there is no room; the kernel's.
pub fn send_now(connection: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool> {
    send_with(connection, bytes, fds, SendFlags::DONTWAIT)
}

fn send_with(connection: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> Result<bool> {
    let doing = || format!("send a message of {} bytes", bytes.len());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error { doing: doing(), errno: Errno::NOBUFS });
    }
    match rustix::net::sendmsg(connection, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL) {
        Ok(_) => Ok(true),
        Err(Errno::PIPE | Errno::CONNRESET) => Ok(false),
        Err(errno) => Err(timed_out(errno)).doing(doing),
    }
}

/// Maps the error of a socket whose [`PATIENCE`] is exceeded to the clearer `ETIMEDOUT`.
fn timed_out(errno: Errno) -> Errno {
    if errno == Errno::AGAIN { Errno::TIMEDOUT } else { errno }
}

/// Receives one message with descriptors; `None` if the other end has closed the connection. A longer message is cut.
///
/// # Errors
/// The kernel's; `ETIMEDOUT` if nothing arrives for 5 s on a connection made by [`connect`].
pub fn receive(connection: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Option<(usize, Vec<OwnedFd>)>> {
    receive_with(connection, bytes, RecvFlags::empty())
}

/// Like [`receive`], but does not wait.
///
/// # Errors
/// `ETIMEDOUT` if no message is available; the kernel's.
pub fn receive_now(connection: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Option<(usize, Vec<OwnedFd>)>> {
    receive_with(connection, bytes, RecvFlags::DONTWAIT)
}

fn receive_with(
    connection: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(connection, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    });
    let length = match received {
        Ok(message) => message.bytes,
        Err(Errno::CONNRESET) => 0,
        Err(Errno::AGAIN) if !flags.contains(RecvFlags::DONTWAIT) => {
            let silence = peer::silence(connection).map_or_else(String::new, |why| format!(": {why}"));
            return Err(Errno::TIMEDOUT).doing(|| format!("receive an answer{silence}"));
        }
        Err(errno) => return Err(timed_out(errno)).doing(|| "receive an answer".to_owned()),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    Ok((length > 0).then_some((length, fds)))
}

/// A pair of connected sockets without a name. Sending on the first one never blocks: if the other end does not
/// receive, the error is `ETIMEDOUT`.
///
/// # Errors
/// The kernel's.
pub fn pair() -> Result<[OwnedFd; 2]> {
    let doing = || "make a pair of sockets".to_owned();
    let flags = SocketFlags::CLOEXEC;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).doing(doing)?;
    rustix::io::ioctl_fionbio(&near, true).doing(doing)?;
    Ok([near, far])
}

/// Closes a connection for both ends, even if copies of its descriptor are open.
pub fn hang_up(connection: BorrowedFd<'_>) {
    // Fails only if it is already closed.
    let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
}

/// Connects to the socket `name` if its owner is [trusted](Peer::is_believed). Blocks for at most 5 s; so does each
/// receive on the connection.
///
/// # Errors
/// `ECONNREFUSED` if no process has it open; `ETIMEDOUT` if its owner does not accept; `EPERM`, with the process, if
/// another user owns it.
pub fn connect(name: &str) -> Result<OwnedFd> {
    connect_within(name, SocketType::SEQPACKET, PATIENCE)
}

/// Connects to the byte stream socket `name`. Reads and writes on it have no time limit.
///
/// # Errors
/// Like [`connect`].
pub fn connect_stream(name: &str) -> io::Result<UnixStream> {
    let connection = connect_within(name, SocketType::STREAM, PATIENCE);
    let stream =
        UnixStream::from(connection.map_err(|error| io::Error::new(io::Error::from(error.errno).kind(), error))?);
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}

fn connect_within(name: &str, kind: SocketType, patience: DurNs) -> Result<OwnedFd> {
    let mut last = Err(Error { doing: format!("connect to @{name}"), errno: Errno::CONNREFUSED });
    for place in place::places(name) {
        last = connect_at(&place, kind, patience);
        // No process listens there, or it is not accessible: tries the next location.
        if !matches!(&last, Err(Error { errno: Errno::NOENT | Errno::CONNREFUSED | Errno::ACCESS | Errno::NOTDIR, .. }))
        {
            break;
        }
    }
    last
}

fn connect_at(place: &Place, kind: SocketType, patience: DurNs) -> Result<OwnedFd> {
    let doing = || format!("connect to {place}");
    let connection = socket(&place.to_string(), kind, SocketFlags::empty())?;
    for side in [Timeout::Recv, Timeout::Send] {
        let limit = Duration::from_nanos(patience.0 as u64);
        rustix::net::sockopt::set_socket_timeout(&connection, side, Some(limit)).doing(doing)?;
    }
    let connected = rustix::net::connect(&connection, &place.at()?.address).map_err(timed_out);
    if let Err(Errno::PROTOTYPE | Errno::TIMEDOUT) = connected
        && let Some(other) = owner_at(place, kind)
    {
        // A socket of another type, or a process that does not accept connections.
        other.must_be_believed(place)?;
    }
    connected.doing(doing)?;
    Peer::of(connection.as_fd())?.must_be_believed(place)?;
    Ok(connection)
}

/// The process that has `name` open, if it can be determined.
fn owner(name: &str, kind: SocketType) -> Option<Peer> {
    place::places(name).find_map(|place| owner_at(&place, kind))
}

fn owner_at(place: &Place, kind: SocketType) -> Option<Peer> {
    let asked = socket(&place.to_string(), kind, SocketFlags::NONBLOCK).ok().and_then(|socket| {
        rustix::net::connect(&socket, &place.at().ok()?.address).ok()?;
        Peer::of(socket.as_fd()).ok()
    });
    let Place::Abstract(name) = place else { return asked };
    asked.or_else(|| peer::holder(name))
}

/// Whether the other end of a connection is still open.
#[must_use]
pub fn is_alive(connection: BorrowedFd<'_>) -> bool {
    let mut byte = [0u8; 1];
    matches!(rustix::net::recv(connection, &mut byte[..], RecvFlags::DONTWAIT), Err(Errno::AGAIN | Errno::INTR))
}

/// Receives the descriptor from the owner of `name`. Returns it with the connection to the owner.
///
/// # Errors
/// Like [`connect`]; also `ETIMEDOUT` if the owner does not answer within 5 s, because it is stopped.
pub fn ask(name: &str) -> Result<(OwnedFd, OwnedFd)> {
    ask_within(name, PATIENCE)
}

fn ask_within(name: &str, patience: DurNs) -> Result<(OwnedFd, OwnedFd)> {
    let connection = connect_within(name, SocketType::SEQPACKET, patience)?;
    let doing = || format!("connect to @{name}");
    let refused = || Error { doing: doing(), errno: Errno::CONNREFUSED };
    let received = receive(connection.as_fd(), &mut [0]).map_err(|error| Error { doing: doing(), ..error })?;
    let (_, fds) = received.ok_or_else(refused)?;
    let fd = fds.into_iter().next().ok_or_else(refused)?;
    Ok((fd, connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_to_a_full_listener_times_out() {
        let name = format!("tahti-stream-{}", std::process::id());
        let refused = connect_stream(&name).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let listener = socket(&name, SocketType::STREAM, SocketFlags::empty()).unwrap();
        rustix::net::bind(&listener, &address(&name).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let calls: Vec<_> = (0..4).map(|_| connect_within(&name, SocketType::STREAM, DurNs::from_ms(1))).collect();
        assert!(calls[0].is_ok(), "{calls:?}");
        assert_eq!(calls[3].as_ref().unwrap_err().errno, Errno::TIMEDOUT);
    }

    #[test]
    fn a_request_to_a_stopped_server_times_out() {
        let name = format!("tahti-stopped-{}", std::process::id());
        let _counter = Counter::open(&name).unwrap();
        // No process accepts: first no answer arrives; when the backlog is full, connecting fails as well.
        let calls: Vec<_> = (0..12).map(|_| connect_within(&name, SocketType::SEQPACKET, DurNs::from_ms(1))).collect();
        assert!(calls[0].is_ok());
        assert_eq!(calls[11].as_ref().unwrap_err().errno, Errno::TIMEDOUT);
        drop(calls);
        let name = format!("tahti-silent-{}", std::process::id());
        let _counter = Counter::open(&name).unwrap();
        let error = ask_within(&name, DurNs::from_ms(1)).unwrap_err();
        assert_eq!((error.errno, error.doing), (Errno::TIMEDOUT, format!("connect to @{name}")));
    }

    #[test]
    fn shared_memory_is_handed_over_and_the_end_of_its_owner_is_detected() {
        let name = format!("tahti-test-{}", std::process::id());
        assert_eq!(ask(&name).unwrap_err().errno, Errno::CONNREFUSED);
        let counter = Counter::open(&name).unwrap();
        let taken = Counter::open(&name).unwrap_err();
        let said = format!("open @{name}, which user {}, process {} (", own_user(), std::process::id());
        assert!(taken.errno == Errno::ADDRINUSE && taken.doing.starts_with(&said), "{taken}");
        let memory = crate::shm::SharedWords::create("handover", 8).unwrap();
        assert!(counter.serve(memory.fd()).unwrap().is_none(), "no request");
        let asked = std::thread::spawn({
            let name = name.clone();
            move || ask(&name).unwrap()
        });
        let held = loop {
            if let Some(held) = counter.serve(memory.fd()).unwrap() {
                break held;
            }
            std::thread::yield_now();
        };
        let (fd, connection) = asked.join().unwrap();
        let theirs = crate::shm::SharedWords::attach_read_only(fd).unwrap();
        memory.words()[3].store(9, std::sync::atomic::Ordering::Release);
        assert_eq!(theirs.words()[3].load(std::sync::atomic::Ordering::Acquire), 9);
        assert!(is_alive(connection.as_fd()));
        drop(held);
        assert!(!is_alive(connection.as_fd()));
    }
}
