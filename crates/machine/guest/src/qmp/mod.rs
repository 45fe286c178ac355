//! QEMU's machine protocol: one command at a time over a Unix socket, each with a deadline.

pub mod codec;

use base::{DurNs, MonoNs};
use codec::{Decoder, Malformed, Message};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use sys::clock::mono_now;

/// How long QEMU may take to answer.
pub const ANSWER_WITHIN: DurNs = DurNs::from_secs(3);

/// Events that wait to be taken; the oldest goes for the next.
const EVENTS_MAX: usize = 64;

/// Bytes taken between two looks at the clock.
const READ_BYTES: usize = 4096;

/// Why QEMU did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// It is not there.
    #[error("QMP: {0}; has QEMU ended?")]
    Io(#[from] io::Error),
    /// The connection ended.
    #[error("QMP: QEMU closed the connection, an answer was expected")]
    Closed,
    /// It says nothing.
    #[error("QMP: no answer to {command} within {within}; QEMU hangs, or somebody else has the connection")]
    Silent {
        /// What it was told.
        command: String,
        /// How long was waited.
        within: DurNs,
    },
    /// What it says is not QMP.
    #[error("QMP: {0}; is something else behind the socket?")]
    Malformed(#[from] Malformed),
    /// It refuses.
    #[error("QMP: {command} was refused: {}", visible(.why))]
    Refused {
        /// What it was told.
        command: String,
        /// Its reason.
        why: String,
    },
}

/// As a terminal may show it.
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
    events: VecDeque<String>,
    /// Events that there was no room for.
    dropped: u64,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Client {
    /// Connects and is greeted; that and each command may take `within`.
    ///
    /// # Errors
    /// QEMU is not there, does not answer, or is no QEMU.
    pub fn connect(path: &Path, within: DurNs) -> Result<Self, QmpError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(io::Error::from)?;
        let address = SocketAddrUnix::new(path).map_err(io::Error::from)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            // Others wait to be accepted already.
            Err(Errno::AGAIN) => return Err(QmpError::Silent { command: "a connection".into(), within }),
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let (decoder, events) = (Decoder::default(), VecDeque::new());
        let mut client = Self { stream: socket.into(), decoder, last: 0, within, events, dropped: 0 };
        let end = mono_now() + within;
        while client.next_message(end, "a connection")? != Message::Greeting {
            client.in_time(end, "a connection")?;
        }
        client.call("qmp_capabilities")?;
        Ok(client)
    }

    /// Has QEMU do something; what it answers.
    ///
    /// # Errors
    /// QEMU refuses, does not answer, or has gone.
    pub fn call(&mut self, command: &str) -> Result<Value, QmpError> {
        let end = mono_now() + self.within;
        self.last += 1;
        self.stream.write_all(codec::command(self.last, command).as_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => self.silent(command),
            _ => error.into(),
        })?;
        loop {
            match self.next_message(end, command)? {
                Message::Answer { id, result } if id == Some(self.last) => {
                    return result.map_err(|why| QmpError::Refused { command: command.to_owned(), why });
                }
                // The answer to a command that was given up, which is of no use any more.
                Message::Answer { .. } | Message::Greeting => {}
                Message::Event(name) => self.keep(name),
            }
            self.in_time(end, command)?;
        }
    }

    /// What has happened, without waiting: names of events.
    ///
    /// # Errors
    /// QEMU has gone, or says what is not QMP.
    pub fn events(&mut self) -> Result<Vec<String>, QmpError> {
        // Bounded, however fast somebody talks.
        for _ in 0..EVENTS_MAX {
            match self.next_message(MonoNs(0), "nothing") {
                Ok(Message::Event(name)) => self.keep(name),
                Ok(_) => {}
                Err(QmpError::Silent { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.events.drain(..).collect())
    }

    /// Events that were dropped because nobody took them.
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

    fn silent(&self, command: &str) -> QmpError {
        QmpError::Silent { command: command.to_owned(), within: self.within }
    }

    /// Somebody who talks without end gets no more time than who says nothing.
    fn in_time(&self, end: MonoNs, command: &str) -> Result<(), QmpError> {
        if mono_now() < end { Ok(()) } else { Err(self.silent(command)) }
    }

    /// The next message until then; what is there already comes also when it is too late.
    fn next_message(&mut self, end: MonoNs, command: &str) -> Result<Message, QmpError> {
        let mut bytes = [0; READ_BYTES];
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(message);
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
                Err(error) => return Err(error.into()),
            }
        }
    }
}
