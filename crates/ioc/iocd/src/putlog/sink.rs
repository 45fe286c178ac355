//! Targets of log lines: a file, or a log server over TCP.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::fs::MetadataExt as _;
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
    /// Why lines cannot be written.
    pub(super) fault: Option<String>,
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
        Ok(Self { target, open, fault: None })
    }

    /// Opens the target unless it is open. A file that was removed or replaced is opened again.
    pub(super) fn check(&mut self) {
        if self.open.as_ref().is_none_or(|open| !open.is_current(&self.target)) {
            let (open, result) = match Open::to(&self.target) {
                Ok(open) => (Some(open), Ok(())),
                Err(error) => (None, Err(error)),
            };
            self.open = open;
            self.note(result);
        }
    }

    /// Notes the result of an attempt to write. Returns whether it succeeded.
    fn note(&mut self, result: io::Result<()>) -> bool {
        let fault = result.err().map(|error| format!("put log {}: {error}", self.target));
        if let (Some(fault), None) = (&fault, &self.fault) {
            eprintln!("{fault}; entries are lost until it can be written again (counted)");
        }
        self.fault = fault;
        self.fault.is_none()
    }

    /// Writes whole lines. Returns whether they were sent. Reconnects once if the server has closed the connection.
    pub(super) fn write(&mut self, lines: &[u8]) -> bool {
        if let Target::File(_) = self.target {
            self.check();
        }
        let mut result =
            self.open.as_mut().ok_or(io::ErrorKind::NotConnected.into()).and_then(|open| open.write(lines));
        if result.is_err() {
            result = Open::to(&self.target).and_then(|open| self.open.insert(open).write(lines));
        }
        if result.is_err() {
            self.open = None;
        }
        self.note(result)
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

    /// Whether the file has still its name, or the server has not closed the connection.
    fn is_current(&self, target: &Target) -> bool {
        match (self, target) {
            (Self::File(file), Target::File(path)) => file.metadata().is_ok_and(|open| {
                fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()))
            }),
            (Self::Server(stream), _) => {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                poll(&mut [PollFd::new(stream, PollFlags::empty())], Some(&now)) == Ok(0)
            }
            (Self::File(_), Target::Server(_)) => false,
        }
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

    #[test]
    fn a_server_that_does_not_listen_is_a_fault_before_the_first_line() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an IPv4 address") };
        drop(listener);
        let mut sink = Sink::new(Target::Server(address)).unwrap();
        sink.check();
        assert_eq!(sink.fault.unwrap(), format!("put log {address}: Connection refused (os error 111)"));
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_is_opened_again_and_is_a_fault_if_it_cannot() {
        let path = std::env::temp_dir().join(format!("tahti-sink-{}", std::process::id()));
        let mut sink = Sink::new(Target::File(path.to_str().unwrap().into())).unwrap();
        assert!(sink.write(b"one\n"));
        fs::remove_file(&path).unwrap();
        assert!(sink.write(b"two\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(!sink.write(b"three\n"));
        assert_eq!(sink.fault.as_deref(), Some(&*format!("put log {}: Is a directory (os error 21)", path.display())));
        fs::remove_dir(&path).unwrap();
        sink.check();
        assert_eq!(sink.fault, None);
        fs::remove_file(&path).unwrap();
    }
}
