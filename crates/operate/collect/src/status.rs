//! Status of a logger, sent over a socket. The logger answers every trusted connection and reads nothing from it.

use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use sys::handover::Counter;

/// Maximum size of a status. It fits into a socket's buffer, so the logger does not wait for slow readers.
const BYTES_MAX: usize = 64 << 10;

/// Connections answered per poll.
const AT_ONCE: usize = 16;

/// Timeout for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum length of a reported error, in characters.
const ERROR_MAX: usize = 2_000;

/// Status of a logger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Start time: nanoseconds since 1970, UTC.
    pub since: i64,
    /// Configured and known signals.
    pub signals: Signals,
    /// Samples accepted per second, averaged over the last seconds.
    pub samples_per_s: f64,
    /// Samples since the start.
    pub samples: Samples,
    /// Nanoseconds since the last sync; `None` before the first.
    pub last_sync: Option<i64>,
    /// Error of the last file operation that failed.
    pub last_error: Option<String>,
    /// Its files.
    pub disk: Disk,
    /// Upload to a cluster; `None` if samples stay in the folder.
    pub cluster: Option<Cluster>,
}

/// State of the upload to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Whether the cluster accepts samples.
    pub connected: bool,
    /// Samples acknowledged since the start.
    pub sent: u64,
    /// Bytes of the log not sent yet.
    pub waiting: u64,
    /// Requests that failed and were repeated.
    pub again: u64,
    /// Values too long for the cluster.
    pub refused: u64,
    /// Segments removed by retention before they were sent.
    pub missed: u64,
    /// Error of the last request that failed.
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
    /// Names and patterns in the configuration file.
    pub named: usize,
    /// Known signals, including each one found by a pattern.
    pub known: usize,
    /// Channels of Channel Access servers.
    pub channels: usize,
    /// Connected channels.
    pub connected: usize,
}

/// Counts of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Accepted.
    pub taken: u64,
    /// Accepted and safe on the disk.
    pub safe: u64,
    /// Accepted, but lost because the disk was full or failed.
    pub lost_on_disk: u64,
    /// Accepted, but in files whose sync failed.
    pub unsure: u64,
    /// Lost because newer ones replaced them before they were read.
    pub lost_by_overflow: u64,
    /// Refused because the value was too long.
    pub refused: u64,
    /// Ignored because they repeated the previous sample.
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
    /// Free space on the disk, in bytes.
    pub free: u64,
    /// Files removed since the start.
    pub removed: u64,
    /// Segments in them that an upload had not sent.
    #[serde(default)]
    pub unsent: u64,
}

/// Name of a folder's status socket. It depends on the folder's identity, not on its path.
fn socket(folder: &Path) -> io::Result<String> {
    let about = std::fs::metadata(folder)?;
    Ok(format!("tahti-archive-{}-{}", about.dev(), about.ino()))
}

/// Requests the status of a folder's logger.
///
/// # Errors
/// `ConnectionRefused` if no logger uses the folder. Also if the process that answers does not belong to root, the own user or a
/// user in `TAHTI_PEERS`, or if the connection breaks.
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

/// The logger's end of the status socket.
pub(crate) struct StatusServer(Counter);

impl StatusServer {
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

    /// Answers pending requests. Never blocks: an answer fits into a new socket's buffer.
    pub(crate) fn answer(&self, status: impl Fn() -> Status) {
        for _ in 0..AT_ONCE {
            let Ok(Some(caller)) = self.0.accept_anyone() else { return };
            let mut stream = UnixStream::from(caller.connection);
            if !sys::peer::is_believed(caller.uid) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Ok(text) = serde_json::to_vec(&status()) {
                // The client may have gone already.
                let _ = stream.write_all(&text);
            }
        }
    }
}

/// Truncates an error to the maximum length.
pub(crate) fn clipped(error: &str) -> String {
    error.chars().take(ERROR_MAX).collect()
}
