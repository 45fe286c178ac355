//! The state of a logger, and how it is asked for: who connects to its socket is told, and nothing is read from them.

use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use sys::handover::Counter;

/// A longer answer is not read; it fits into a socket's buffer, so that nobody waits for who does not read.
const BYTES_MAX: usize = 64 << 10;

/// Connections that are answered at a time.
const AT_ONCE: usize = 16;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Letters of an error that are told.
const ERROR_MAX: usize = 2_000;

/// The state of a logger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Since when it logs: nanoseconds since 1970, UTC.
    pub since: i64,
    /// What it was told to log.
    pub signals: Signals,
    /// Samples taken in the last seconds, for each of them.
    pub samples_per_s: f64,
    /// Samples since the start.
    pub samples: Samples,
    /// How many nanoseconds ago samples were made safe last; none where none were yet.
    pub last_sync: Option<i64>,
    /// Why the last operation on files failed that did.
    pub last_error: Option<String>,
    /// Its files.
    pub disk: Disk,
    /// The cluster that samples go to; none where they stay in the folder.
    pub cluster: Option<Cluster>,
}

/// What goes to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Whether it takes what is sent.
    pub connected: bool,
    /// Samples that it has acknowledged since the start.
    pub sent: u64,
    /// Bytes of the log that wait.
    pub waiting: u64,
    /// Requests that failed and were sent again.
    pub again: u64,
    /// Values that are longer than nodes take.
    pub refused: u64,
    /// Segments that were removed, for want of room, before they were sent.
    pub missed: u64,
    /// Why the last request failed that did.
    pub last_error: Option<String>,
}

impl From<cassandra::Status> for Cluster {
    fn from(status: cassandra::Status) -> Self {
        Self {
            connected: status.is_connected,
            sent: status.samples,
            waiting: status.waiting,
            again: status.again,
            refused: status.refused,
            missed: status.missed,
            last_error: status.error.as_deref().map(clipped),
        }
    }
}

/// Counts of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// Names and patterns in the file.
    pub named: usize,
    /// Signals that are known: each that a pattern found is one.
    pub known: usize,
    /// Channels of Channel Access servers, and how many of them are connected.
    pub channels: usize,
    /// Of the channels, those that are connected.
    pub connected: usize,
}

/// Counts of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Taken.
    pub taken: u64,
    /// Of those, safe on the disk.
    pub safe: u64,
    /// Of those, lost because the disk was full or failed.
    pub lost_on_disk: u64,
    /// Of those, in files that could not be made safe.
    pub unsure: u64,
    /// Lost because newer ones were in their place before they were taken.
    pub lost_by_overflow: u64,
    /// Not taken because their value was too long.
    pub refused: u64,
    /// Not taken because they were there already.
    pub repeated: u64,
}

/// Files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Segments.
    pub segments: usize,
    /// Packs.
    pub packs: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that the disk has free.
    pub free: u64,
    /// Files removed since the start.
    pub removed: u64,
}

/// Where the logger of a folder is asked: the folder, by whatever path it is called.
fn socket(folder: &Path) -> io::Result<String> {
    let about = std::fs::metadata(folder)?;
    Ok(format!("tahti-archive-{}-{}", about.dev(), about.ino()))
}

/// The state of the logger of a folder.
///
/// # Errors
/// `ConnectionRefused` where nobody logs there; somebody else than root, one's own user and those of `TAHTI_PEERS` answers;
/// or the connection breaks.
pub fn ask(folder: &Path) -> io::Result<Status> {
    let socket = socket(folder)?;
    let stream = sys::handover::connect_stream(&socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    let read = (&stream).take(BYTES_MAX as u64).read_to_end(&mut text);
    read.map_err(|error| sys::peer::explained(stream.as_fd(), error))?;
    if text.is_empty() {
        let why = "the logger closed the connection: only root, its own user and the users in TAHTI_PEERS may read its status";
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    Ok(serde_json::from_slice(&text)?)
}

/// The logger's end of the socket.
pub(crate) struct Asked(Counter);

impl Asked {
    pub(crate) fn listen(folder: &Path) -> io::Result<Self> {
        let socket = socket(folder)?;
        let listener = Counter::open_stream(&socket).map_err(|error| {
            let kind = io::Error::from(error.errno).kind();
            match kind {
                ErrorKind::AddrInUse => io::Error::new(kind, format!("{error}; it is tried again until it is free")),
                _ => io::Error::new(kind, error),
            }
        })?;
        Ok(Self(listener))
    }

    /// Tells those who have asked meanwhile. Never waits: an answer fits into a new socket's buffer.
    pub(crate) fn answer(&self, status: impl Fn() -> Status) {
        for _ in 0..AT_ONCE {
            let Ok(Some(caller)) = self.0.accept_anyone() else { return };
            let mut stream = UnixStream::from(caller.connection);
            if !sys::peer::is_believed(caller.uid) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Ok(text) = serde_json::to_vec(&status()) {
                // Who is gone already needs no answer.
                let _ = stream.write_all(&text);
            }
        }
    }
}

/// An error, not longer than is told.
pub(crate) fn clipped(error: &str) -> String {
    error.chars().take(ERROR_MAX).collect()
}
