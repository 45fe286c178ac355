//! Client of QEMU's machine protocol (QMP): commands over a Unix socket, each with a deadline, blocking or not.

pub mod codec;

use base::{DurNs, MonoNs};
use codec::{Decoder, Malformed, Message, Refusal};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use sys::clock::mono_now;

/// Time QEMU has to answer.
pub const ANSWER_WITHIN: DurNs = DurNs::from_secs(3);

/// Maximum pending events. A new event replaces the oldest.
const EVENTS_MAX: usize = 64;

/// Maximum bytes per read, between two checks of the deadline.
const READ_BYTES: usize = 4096;

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No connection.
    #[error("QMP: {0}; has QEMU ended?")]
    Io(#[from] io::Error),
    /// QEMU closed the connection.
    #[error("QMP: QEMU closed the connection, an answer was expected")]
    Closed,
    /// QEMU did not answer in time.
    #[error("QMP: no answer to {command} within {within}; QEMU hangs, or another client has the connection")]
    Silent {
        /// The command.
        command: String,
        /// The time limit.
        within: DurNs,
    },
    /// The answer is not QMP.
    #[error("QMP: {0}; is something else behind the socket?")]
    Malformed(#[from] Malformed),
    /// QEMU refused the command.
    #[error("QMP: {command} was refused: {}", visible(.why))]
    Refused {
        /// The command.
        command: String,
        /// QEMU's reason.
        why: String,
    },
}

/// Makes the text safe for a terminal.
const fn visible(text: &str) -> base::Visible<'_> {
    base::Visible { text, colours: false }
}

/// A connection to QEMU.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    decoder: Decoder,
    last: u64,
    within: DurNs,
    greeting: Greeting,
    events: VecDeque<String>,
    /// Events dropped because the queue was full.
    dropped: u64,
}

/// State of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    Awaited,
    /// The answer to the first command, with this number, is awaited.
    Answered(u64),
    Over,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Client {
    /// Connects without blocking. [`Client::take`] completes the handshake.
    ///
    /// # Errors
    /// QEMU is not running, or its queue of connections is full.
    pub fn begin(path: &Path, within: DurNs) -> Result<Self, QmpError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(io::Error::from)?;
        let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Err(QmpError::Silent { command: "a connection".into(), within }),
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let (decoder, events) = (Decoder::default(), VecDeque::new());
        let greeting = Greeting::Awaited;
        Ok(Self { stream: socket.into(), decoder, last: 0, within, greeting, events, dropped: 0 })
    }

    /// Connects and completes the handshake. The handshake and each command have the time limit `within`.
    ///
    /// # Errors
    /// QEMU is not running, does not answer, or the peer is not QEMU.
    pub fn connect(path: &Path, within: DurNs) -> Result<Self, QmpError> {
        let mut client = Self::begin(path, within)?;
        let end = mono_now() + within;
        while !client.is_ready() {
            if let Some(Message::Event(name)) = client.next_message(end, "a connection")? {
                client.keep(name);
            }
            client.in_time(end, "a connection")?;
        }
        Ok(client)
    }

    /// Whether the handshake is complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.greeting == Greeting::Over
    }

    /// Executes a command and returns its result.
    ///
    /// # Errors
    /// QEMU refuses, does not answer, or has ended.
    pub fn call(&mut self, command: &str) -> Result<Value, QmpError> {
        self.call_with(command, None)
    }

    /// Like [`Client::call`], with arguments.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub fn call_with(&mut self, command: &str, arguments: Option<&Value>) -> Result<Value, QmpError> {
        let end = mono_now() + self.within;
        let sent = self.send(command, arguments)?;
        loop {
            match self.next_message(end, command)? {
                Some(Message::Answer { id, result }) if id == Some(sent) => {
                    return result.map_err(|Refusal(why)| QmpError::Refused { command: command.to_owned(), why });
                }
                Some(Message::Event(name)) => self.keep(name),
                // The answer to an earlier command that timed out is ignored.
                Some(Message::Answer { .. } | Message::Greeting) | None => {}
            }
            self.in_time(end, command)?;
        }
    }

    /// Sends a command without blocking. [`Client::take`] returns the answer with the returned number.
    ///
    /// # Errors
    /// QEMU's socket is full, or QEMU has ended.
    pub fn send(&mut self, command: &str, arguments: Option<&Value>) -> Result<u64, QmpError> {
        self.last += 1;
        let sent = self.stream.write_all(codec::command(self.last, command, arguments).as_bytes());
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => self.silent(command),
            _ => gone(error),
        })?;
        Ok(self.last)
    }

    /// The next answer or event that has arrived, without blocking.
    ///
    /// # Errors
    /// QEMU has ended, or its output is not QMP.
    pub fn take(&mut self) -> Result<Option<Message>, QmpError> {
        if let Some(name) = self.events.pop_front() {
            return Ok(Some(Message::Event(name)));
        }
        loop {
            match self.next_message(MonoNs(0), "nothing") {
                Err(QmpError::Silent { .. }) => return Ok(None),
                // The greeting, which comes once.
                Ok(None) => {}
                other => return other,
            }
        }
    }

    /// Events that were dropped because the caller did not take them.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    fn keep(&mut self, event: String) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }

    /// The error of a command, or of the handshake, that timed out.
    #[must_use]
    pub fn silent(&self, command: &str) -> QmpError {
        QmpError::Silent { command: command.to_owned(), within: self.within }
    }

    /// Checks the deadline. It also limits a peer that never stops sending.
    fn in_time(&self, end: MonoNs, command: &str) -> Result<(), QmpError> {
        if mono_now() < end { Ok(()) } else { Err(self.silent(command)) }
    }

    /// The next message before `end`; a message that has already arrived is returned even after it. `None` for the
    /// greeting and for the answer to the first command.
    fn next_message(&mut self, end: MonoNs, command: &str) -> Result<Option<Message>, QmpError> {
        let mut bytes = [0; READ_BYTES];
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return self.greeted(message);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(QmpError::Closed),
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = end - mono_now();
                    if left <= DurNs::ZERO {
                        return Err(self.silent(command));
                    }
                    sys::poll::is_readable(self.stream.as_fd(), left);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(gone(error)),
            }
        }
    }

    fn greeted(&mut self, message: Message) -> Result<Option<Message>, QmpError> {
        match (self.greeting, message) {
            (Greeting::Awaited, Message::Greeting) => {
                self.greeting = Greeting::Answered(self.send("qmp_capabilities", None)?);
                Ok(None)
            }
            (Greeting::Answered(first), Message::Answer { id, result }) if id == Some(first) => {
                let refused = |Refusal(why)| QmpError::Refused { command: "qmp_capabilities".into(), why };
                result.map_err(refused)?;
                self.greeting = Greeting::Over;
                Ok(None)
            }
            (_, message) => Ok(Some(message)),
        }
    }
}

/// If QEMU ends before it has read everything, the connection is reset.
fn gone(error: io::Error) -> QmpError {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => QmpError::Closed,
        _ => error.into(),
    }
}
