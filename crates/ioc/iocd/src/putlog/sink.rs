//! Targets of log lines: a file, or a log server over TCP.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// Timeout of connecting to a server, and of sending a line to it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time to wait for a server's refusal of a line: 20 ms. A later refusal is not noticed, and the line is lost.
const REFUSED_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Target of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, opened for appending.
    File(String),
    /// A log server: `iocLogServer` of C, or any program that reads lines.
    Server(SocketAddrV4),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Server(address) => address.fmt(f),
        }
    }
}

/// A target, opened or not.
pub(super) struct Sink {
    target: Target,
    open: Option<Open>,
    /// Whether the write failure was reported.
    said: bool,
}

enum Open {
    File(File),
    Server(TcpStream),
}

impl Sink {
    /// Creates a sink. A file is opened immediately, so that errors are found. A server is connected when there are lines to
    /// send.
    pub(super) fn new(target: Target) -> io::Result<Self> {
        let open = match &target {
            Target::File(_) => Some(Open::to(&target)?),
            Target::Server(_) => None,
        };
        Ok(Self { target, open, said: false })
    }

    /// Writes whole lines. Returns whether they were sent. Reconnects once if the server has closed the connection.
    pub(super) fn write(&mut self, lines: &[u8]) -> bool {
        let mut result =
            self.open.as_mut().ok_or(io::ErrorKind::NotConnected.into()).and_then(|open| open.write(lines));
        if result.is_err() {
            result = Open::to(&self.target).and_then(|open| self.open.insert(open).write(lines));
        }
        if let Err(error) = &result {
            self.open = None;
            if !self.said {
                eprintln!("put log {}: {error}; entries are lost until it can be written again (counted)", self.target);
            }
        }
        self.said = result.is_err();
        result.is_ok()
    }
}

impl Open {
    fn to(target: &Target) -> io::Result<Self> {
        Ok(match target {
            Target::File(path) => Self::File(OpenOptions::new().create(true).append(true).open(path)?),
            Target::Server(address) => {
                let stream = TcpStream::connect_timeout(&SocketAddr::V4(*address), PATIENCE)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Self::Server(stream)
            }
        })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(lines),
            Self::Server(stream) => {
                stream.write_all(lines)?;
                // A closed connection is detected here. End of file alone means nothing, because the server of C sends no
                // data at all.
                match poll(&mut [PollFd::new(stream, PollFlags::empty())], Some(&REFUSED_WITHIN))? {
                    0 => Ok(()),
                    _ => Err(stream.take_error()?.unwrap_or(io::ErrorKind::ConnectionReset.into())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::{Shutdown, TcpListener};

    #[test]
    fn a_server_that_has_disconnected_is_reconnected() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an IPv4 address") };
        let mut sink = Sink::new(Target::Server(address)).unwrap();
        for line in ["one\n", "two\n"] {
            assert!(sink.write(line.as_bytes()));
            let stream = listener.accept().unwrap().0;
            stream.shutdown(Shutdown::Write).unwrap();
            let mut heard = BufReader::new(stream).lines();
            assert_eq!(heard.next().unwrap().unwrap() + "\n", line);
            assert!(sink.write(line.as_bytes()), "it still listens");
            assert_eq!(heard.next().unwrap().unwrap() + "\n", line);
        }
        drop(listener);
        assert!(!sink.write(b"three\n"), "no listener");
    }
}
