//! One connection to a server on one band, shared by clients and managers.

use crate::greeting::{BYTES_MAX, FEWER, Hello, WELCOME_BYTES_MAX, Welcome, socket_name};
use crate::memory::{self, Half};
use crate::spin::Spin;
use crate::wake_gate::LaneWaker;
use base::{DurNs, MonoNs};
use msg::Band;
use ring::{Damaged, StreamReader, StreamWriter};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::shm::SharedWords;

/// Time between two checks of a sleeping end whether the server is alive. Unit tests use an hour, so that a missed
/// wake-up makes them fail.
pub(crate) const ALIVE: DurNs = if cfg!(test) { DurNs::from_secs(3600) } else { DurNs::from_ms(50) };

/// Error of connecting or sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The kernel refused a system call. Usually no server is running.
    System(String),
    /// The server refused the connection.
    Refused(String),
    /// The message cannot be sent as it is.
    Message(String),
    /// The queue to the server is full: take replies first.
    Full,
    /// The pool has no room of that many bytes: drop rooms first, or connect with a larger pool.
    NoRoom(u64),
    /// The server is gone.
    Lost,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(why) | Self::Message(why) => f.write_str(why),
            Self::Refused(why) => write!(f, "the message server refused: {why}"),
            Self::Full => f.write_str("the queue to the message server is full; take replies first"),
            Self::NoRoom(bytes) => write!(
                f,
                "the pool of this client has no room of {bytes} bytes; drop rooms first, or connect with a larger pool"
            ),
            Self::Lost => f.write_str("the message server has ended"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<sys::Error> for ClientError {
    fn from(error: sys::Error) -> Self {
        Self::System(error.to_string())
    }
}

impl From<Damaged> for ClientError {
    fn from(_: Damaged) -> Self {
        Self::Lost
    }
}

/// A connection to a server on one band.
pub(crate) struct End {
    pub(crate) band: Band,
    pub(crate) up: StreamWriter<Half>,
    pub(crate) down: StreamReader<Half>,
    gate: LaneWaker,
    spin: Spin,
    /// The third descriptor of the welcome, if the greeting asked for one.
    pub(crate) pool: Option<OwnedFd>,
    connection: Arc<OwnedFd>,
    pub(crate) memory: Arc<SharedWords>,
    rung: Arc<AtomicU64>,
    seen: u64,
}

/// Wakes one end of a connection from another thread of its process.
#[derive(Clone)]
pub struct Waker {
    memory: Arc<SharedWords>,
    rung: Arc<AtomicU64>,
}

impl Waker {
    /// Makes [`ManagerLane::serve`](crate::ManagerLane::serve) or [`Client::next`](crate::Client::next) return: the
    /// current call, or the next one.
    pub fn wake(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        if let Ok([_, down]) = memory::attach(&self.memory) {
            sys::futex::count_up(down.bell(), 1);
        }
    }
}

/// Connects to the server `server` and sends the greeting. Returns one end per band.
pub(crate) fn greet(server: &str, hello: &Hello) -> Result<Vec<End>, ClientError> {
    let socket = socket_name(server);
    let unavailable = |error: sys::Error| match error.errno {
        // Another user's process has the name.
        sys::Errno::PERM => ClientError::System(error.to_string()),
        _ => ClientError::System(format!(
            "{error}; no message server {server:?} runs here: start `tahti msg serve --name {server}` or a plant with such a \
             server, or name another one with --server or TAHTI_MESSAGES"
        )),
    };
    let connection = Arc::new(sys::handover::connect(&socket).map_err(unavailable)?);
    let text = serde_json::to_vec(hello).map_err(|error| ClientError::Message(error.to_string()))?;
    if text.len() > BYTES_MAX {
        return Err(ClientError::Message(format!(
            "the greeting of {} has {} bytes with {} objects to serve, expected at most {BYTES_MAX}; {FEWER}",
            hello.name,
            text.len(),
            hello.serves.len()
        )));
    }
    sys::handover::send(connection.as_fd(), &text, &[])?;
    let mut ends = Vec::new();
    loop {
        let mut bytes = [0; WELCOME_BYTES_MAX];
        let (length, fds) = sys::handover::receive(connection.as_fd(), &mut bytes)?.ok_or(ClientError::Lost)?;
        let welcome = serde_json::from_slice(&bytes[..length])
            .map_err(|error| ClientError::Refused(format!("invalid message from the server: {error}")))?;
        let mut fds = fds.into_iter();
        match (welcome, fds.next(), fds.next(), fds.next()) {
            (Welcome::Refused(why), ..) => return Err(ClientError::Refused(why)),
            (Welcome::Ready, ..) => return Ok(ends),
            (Welcome::Band(number), Some(memory), Some(gate), pool) if ends.len() < msg::BANDS => {
                let band = Band::new(number).ok_or(ClientError::Lost)?;
                let memory = Arc::new(SharedWords::attach(memory)?);
                let [up, down] = memory::attach(&memory).map_err(|error| ClientError::System(error.to_string()))?;
                let gate = LaneWaker::new(gate)?;
                ends.push(End {
                    band,
                    up: up.writer(),
                    down: down.reader(),
                    gate,
                    spin: Spin::new(),
                    pool,
                    connection: connection.clone(),
                    memory,
                    rung: Arc::default(),
                    seen: 0,
                });
            }
            (Welcome::Band(_), ..) => return Err(ClientError::Lost),
        }
    }
}

impl End {
    /// Wakes the server's lane. Call it after putting messages into `up`.
    pub(crate) fn wake(&self) {
        self.gate.wake();
    }

    /// The socket whose end of file shows the server that this end has gone.
    pub(crate) fn connection(&self) -> Arc<OwnedFd> {
        self.connection.clone()
    }

    /// Whether the server is alive.
    pub(crate) fn is_alive(&self) -> bool {
        sys::handover::is_alive(self.connection.as_fd())
    }

    /// Wakes this end from another thread.
    pub(crate) fn waker(&self) -> Waker {
        Waker { memory: self.memory.clone(), rung: self.rung.clone() }
    }

    /// Whether a [`Waker`] was used since the last call.
    pub(crate) fn was_rung(&mut self) -> bool {
        let rung = self.rung.load(Ordering::Acquire);
        std::mem::replace(&mut self.seen, rung) != rung
    }

    /// Current value of the bell, for [`wait`](Self::wait). Read it before checking for the work that rings it.
    pub(crate) fn bell(&self) -> u64 {
        self.down.stream().bell().load(Ordering::Acquire)
    }

    /// Waits from `now` until there is a message, the bell differs from `bell`, or the time `until`. Spins first if
    /// spinning has paid off before.
    ///
    /// # Errors
    /// `Lost` if the server is gone and all that it sent has been read.
    pub(crate) fn wait(&mut self, now: MonoNs, until: MonoNs, bell: u64) -> Result<(), ClientError> {
        let Self { down, spin, .. } = self;
        let rung = |down: &StreamReader<Half>| down.stream().bell().load(Ordering::Acquire) != bell;
        let Some(now) = spin.until(now, || !down.is_empty() || rung(down)) else { return Ok(()) };
        down.fall_asleep();
        if down.is_empty() && until > now {
            sys::futex::wait(down.stream().bell(), bell, Some(ALIVE.min(until - now)));
        }
        self.down.wake_up();
        let lost = self.down.is_empty() && !self.is_alive() && self.down.is_empty();
        if lost { Err(ClientError::Lost) } else { Ok(()) }
    }
}
