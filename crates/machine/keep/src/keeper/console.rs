//! Connections to a keeper's socket, with bounded buffers.

use super::protocol::{LINE_BYTES_MAX, Reply, line};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::unix::net::UnixStream;

/// Maximum number of bytes queued for a slow reader. More are dropped (console) or close the connection (control).
const WAITING_BYTES_MAX: usize = 64 << 10;

/// Mode of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Requests and replies, and events if the client follows.
    Control {
        /// Whether events are sent.
        follows: bool,
    },
    /// Raw bytes to and from the child.
    Console {
        /// Whether its input is ignored.
        read_only: bool,
    },
}

/// A client connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: UnixStream,
    pub(super) kind: Kind,
    pub(super) operator: bool,
    received: Vec<u8>,
    waiting: VecDeque<u8>,
    /// The peer no longer reads. Input that it sent before is still read.
    deaf: bool,
    gone: bool,
}

impl Client {
    /// `operator`: the client is limited to what [`Operators`](super::protocol::Operators) allows.
    pub(super) fn new(stream: UnixStream, follows: bool, operator: bool) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let kind = Kind::Control { follows };
        Ok(Self { stream, kind, operator, received: Vec::new(), waiting: VecDeque::new(), deaf: false, gone: false })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether queued bytes wait for the socket.
    pub(super) fn wants_to_write(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads the bytes that have arrived.
    pub(super) fn receive(&mut self) {
        let mut bytes = [0u8; 4096];
        match rustix::io::read(&self.stream, &mut bytes) {
            Ok(0) => self.gone = true,
            Ok(got) => self.received.extend_from_slice(&bytes[..got]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.gone = true,
        }
        let control = matches!(self.kind, Kind::Control { .. });
        if control && self.received.len() > LINE_BYTES_MAX && !self.received.contains(&b'\n') {
            self.reply(&Reply::Refused(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
            self.gone = true;
        }
    }

    /// The next complete line of a control connection.
    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        let rest = self.received.split_off(end + 1);
        Some(std::mem::replace(&mut self.received, rest))
    }

    /// Takes all input of a console.
    pub(super) fn typed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    pub(super) fn reply(&mut self, reply: &Reply) {
        if self.send(&line(reply)) > 0 {
            // A control client that does not read would miss an answer. Close the connection; the client must reconnect.
            self.gone = true;
        }
    }

    /// Sends or queues bytes. Returns the number of bytes dropped for lack of room.
    pub(super) fn send(&mut self, bytes: &[u8]) -> u64 {
        let room = WAITING_BYTES_MAX - self.waiting.len().min(WAITING_BYTES_MAX);
        let taken = if room >= bytes.len() && !self.deaf { bytes.len() } else { 0 };
        self.waiting.extend(&bytes[..taken]);
        self.flush();
        (bytes.len() - taken) as u64
    }

    /// Writes as many queued bytes as the socket accepts.
    pub(super) fn flush(&mut self) {
        while !self.waiting.is_empty() {
            let (front, _) = self.waiting.as_slices();
            match rustix::net::send(&self.stream, front, rustix::net::SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.waiting.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Input that the peer has already sent is read first, to its end.
                    self.deaf = true;
                    self.waiting.clear();
                }
            }
        }
        self.waiting.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_that_does_not_read_loses_bytes_and_they_are_counted() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours, false, false).unwrap();
        client.kind = Kind::Console { read_only: true };
        let lost: u64 = (0..1000).map(|_| client.send(&[b'x'; 4096])).sum();
        assert!(lost > 0 && lost.is_multiple_of(4096) && !client.is_gone(), "{lost}");
        assert!(client.waiting.len() <= WAITING_BYTES_MAX);
    }

    #[test]
    fn input_of_a_console_that_has_left_is_still_read() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours, false, false).unwrap();
        client.kind = Kind::Console { read_only: false };
        client.send(b"the answer");
        std::io::Write::write_all(&mut (&theirs), b"beam\n").unwrap();
        drop(theirs);
        client.send(b"the banner");
        assert!(!client.is_gone() && !client.wants_to_write());
        client.receive();
        assert_eq!((client.typed(), client.is_gone()), (b"beam\n".to_vec(), false));
        client.receive();
        assert!(client.is_gone());
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut client = Client::new(ours, false, false).unwrap();
        std::thread::spawn(move || std::io::Write::write_all(&mut (&theirs), &[b'x'; LINE_BYTES_MAX + 8192]));
        while !client.is_gone() {
            client.receive();
        }
        assert!(client.received.len() <= LINE_BYTES_MAX + 4096);
    }
}
