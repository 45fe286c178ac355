//! Requests to a flight recorder, sent as datagrams to the socket in its folder.
//!
//! `freeze LABEL REASON` keeps the window around the present as `LABEL.trace`. `explain TID FROM TO WHAT` adds the attribution of
//! a thread's time to the status. `stop` ends the recorder.

use base::MonoNs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Name of the socket in the folder.
pub const SOCKET: &str = "socket";
/// Maximum size of a request; longer ones are truncated.
const BYTES_MAX: usize = 1024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Keep the window around the present.
    Freeze {
        /// Its label.
        label: String,
        /// The reason.
        reason: String,
    },
    /// Attribute a thread's time to causes.
    Explain(Call),
    /// End the recorder.
    Stop,
}

/// An interval of a thread that took too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The thread.
    pub tid: i32,
    /// Start.
    pub from: MonoNs,
    /// End, or a time at which it had not ended.
    pub to: MonoNs,
    /// Description.
    pub what: String,
}

impl Call {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let tid = words.next()?.parse().ok()?;
        let mut moment = || words.next()?.parse().ok().map(MonoNs);
        let (from, to) = (moment()?, moment()?);
        (from < to).then(|| Self { tid, from, to, what: words.next().unwrap_or_default().to_owned() })
    }
}

impl Request {
    /// Parses a datagram; `None` if it is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            None if text == "stop" => Some(Self::Stop),
            Some(("freeze", rest)) => {
                let (label, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                Some(Self::Freeze { label: label.to_owned(), reason: reason.to_owned() })
            }
            Some(("explain", rest)) => Call::parse(rest).map(Self::Explain),
            _ => None,
        }
    }

    /// Encodes as a datagram.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Stop => "stop".into(),
            Self::Explain(Call { tid, from, to, what }) => format!("explain {tid} {} {} {what}", from.0, to.0),
            Self::Freeze { label, reason } => format!("freeze {} {reason}", label.replace(' ', "_")),
        }
    }

    /// Sends to the recorder in `folder`. Never blocks.
    ///
    /// # Errors
    /// If no recorder is running, or its queue is full.
    pub fn send(&self, folder: &Path) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to(self.text().as_bytes(), folder.join(SOCKET)).map(|_| ())
    }
}

/// The recorder's socket; its file is removed on drop.
#[derive(Debug)]
pub struct Requests {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Requests {
    /// Listens in `folder`, whose lock the caller holds. Removes a socket left by an earlier recorder.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listen(folder: &Path) -> io::Result<Self> {
        let path = folder.join(SOCKET);
        sys::whole::remove(&path)?;
        let socket = UnixDatagram::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path })
    }

    /// The next valid request; skips invalid ones. Never blocks.
    pub fn next(&self) -> Option<Request> {
        let mut bytes = [0; BYTES_MAX];
        loop {
            let length = self.socket.recv(&mut bytes).ok()?;
            if let Some(request) = Request::parse(&String::from_utf8_lossy(&bytes[..length])) {
                return Some(request);
            }
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_a_round_trip_and_others_are_skipped() {
        let freeze = Request::Freeze { label: "fault 1".into(), reason: "loop: hang of it".into() };
        assert_eq!(freeze.text(), "freeze fault_1 loop: hang of it");
        let read = Request::Freeze { label: "fault_1".into(), reason: "loop: hang of it".into() };
        assert_eq!(Request::parse(&freeze.text()), Some(read));
        assert_eq!(Request::parse("stop"), Some(Request::Stop));
        let call = Call { tid: 7, from: MonoNs(5), to: MonoNs(9), what: "fast/control overrun".into() };
        assert_eq!(Request::parse(&Request::Explain(call.clone()).text()), Some(Request::Explain(call)));
        for text in ["", "stop now", "freeze", "thaw x", "explain", "explain 7 9 5 x", "explain 7 a 5", "explain 7 1"] {
            assert_eq!(Request::parse(text), None, "{text}");
        }
        let folder = std::env::temp_dir().join(format!("tahti-requests-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(Request::Stop.send(&folder).is_err());
        let requests = Requests::listen(&folder).unwrap();
        let odd = UnixDatagram::unbound().unwrap();
        odd.send_to(b"\xff\xfe", folder.join(SOCKET)).unwrap();
        Request::Stop.send(&folder).unwrap();
        assert_eq!(requests.next(), Some(Request::Stop));
        assert_eq!(requests.next(), None);
        drop(requests);
        std::fs::remove_dir(&folder).unwrap();
    }
}
