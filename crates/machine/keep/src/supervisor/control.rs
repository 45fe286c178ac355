//! The control socket: requests of `tahti ps`, `down`, `restart` … to the supervisor, one JSON object per line.

pub use crate::group::Standing;
pub use crate::partition::{Processor, Stands};
use base::{CpuSet, DurNs, MonoNs, Policy, Size};
pub use host::health::{Claim, Outcome, Reason, RowStatus, State as RowState};
use host::supervise::{Cause, Phase};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Maximum size of a request in bytes. A longer one is refused and the connection closed.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Maximum size of an answer in bytes that a client reads.
pub const REPLY_BYTES_MAX: u64 = 4 << 20;

/// Maximum time a client waits for an answer. It is short because the supervisor's loop never blocks.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The same for requests that change the shield or wait for a keeper.
const LONG_ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// Maximum number of connections. More are closed at once.
const CLIENTS_MAX: usize = 32;

/// Maximum number of bytes queued for a client that does not read. Beyond that the connection is closed.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Requests to a supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Return the status: [`Reply::Status`].
    Status,
    /// Return the wake-up latency of all loops: [`Reply::Histograms`].
    Histograms,
    /// Show a line on the terminal on which the plant was brought up. The line is not stored elsewhere, because it may
    /// contain a secret.
    Say {
        /// Origin of the line.
        who: String,
        /// The line.
        what: String,
    },
    /// Take the plant down: [`Reply::Done`] at once, and [`Reply::Verdict`] once it is down.
    Down,
    /// Stop and start a process, or reset its fault.
    Restart {
        /// Its name.
        name: String,
    },
    /// Stop processes. They stay down until they are started.
    Stop {
        /// Their names, which must include the processes that depend on them.
        names: Vec<String>,
    },
    /// Start processes that were stopped, have finished or have failed.
    Start {
        /// Their names.
        names: Vec<String>,
    },
    /// Send a signal to a process.
    Signal {
        /// Name of the process.
        name: String,
        /// Signal number.
        signal: u8,
    },
    /// Read the plant file again and apply the differences: [`Reply::Changes`].
    Reload {
        /// Only list the changes, do not apply them.
        dry_run: bool,
    },
    /// Replace the supervisor's program by another one. The processes keep running.
    Upgrade {
        /// The new program.
        program: std::path::PathBuf,
    },
}

impl Request {
    /// Whether the answer depends on more than the supervisor itself.
    fn takes_long(&self) -> bool {
        matches!(self, Self::Reload { .. } | Self::Signal { .. })
    }

    /// Whether the request only reads: it changes nothing and prints nothing on another terminal.
    fn only_looks(&self) -> bool {
        matches!(self, Self::Status | Self::Histograms)
    }
}

/// Answers of a supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request was carried out or accepted.
    Done,
    /// The request was not carried out, for this reason.
    Refused(String),
    /// The status of the plant.
    Status(Box<Status>),
    /// The histograms of the loops that have started.
    Histograms(Vec<LoopHistogram>),
    /// The changes made by a reload, as text for display.
    Changes(Vec<String>),
    /// The plant is down.
    Verdict {
        /// Verdict on the whole life of the plant.
        outcome: Outcome,
        /// Lines for display.
        text: String,
    },
}

/// A request that is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("not a request: {0}")]
    Malformed(serde_json::Error),
    #[error("operators may only read here: this needs root or the plant's own user")]
    Operator,
}

/// Status of a plant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The plant's name.
    pub name: String,
    /// The plant file.
    pub file: std::path::PathBuf,
    /// The active profiles.
    #[serde(default)]
    pub profiles: host::plant::Profiles,
    /// Current phase.
    pub phase: Phase,
    /// The supervisor's PID.
    pub supervisor: u32,
    /// Time at which the plant was brought up.
    pub since: MonoNs,
    /// Time at which this status was taken.
    pub now: MonoNs,
    /// State of the shield in a few words.
    pub shield: String,
    /// Requested settings that are unavailable, each with its remedy.
    pub shortfalls: Vec<String>,
    /// The verdict so far, with its reasons.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// All promises of the plant file with their observed state.
    #[serde(default)]
    pub health: Vec<RowStatus>,
    /// The plant's processes.
    pub processes: Vec<ProcessStatus>,
    /// The plant's partitions, each with the limits shared by its processes.
    #[serde(default)]
    pub partitions: Vec<Stands>,
}

/// Status of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its name.
    pub name: String,
    /// One word for its state.
    pub state: String,
    /// Its PID while it is running.
    pub pid: Option<i32>,
    /// PID of its keeper.
    pub keeper: Option<i32>,
    /// Actual scheduling class of its most urgent thread; the configured one while it is down.
    pub class: Policy,
    /// CPUs on which that thread may actually run; the configured ones while it is down.
    pub cpus: CpuSet,
    /// Processor time used.
    pub cpu: DurNs,
    /// Resident memory.
    pub memory: Size,
    /// Threads.
    pub threads: u32,
    /// Totals of the process and all its running descendants; `None` while it is down.
    #[serde(default)]
    pub family: Option<Family>,
    /// Time of its last start.
    pub started: Option<MonoNs>,
    /// Number of starts.
    pub starts: u64,
    /// Number of automatic restarts.
    pub restarts: u64,
    /// Time and cause of its last end.
    pub ended: Option<(MonoNs, Cause)>,
    /// Its last line of output before that end, if the end was a failure.
    #[serde(default)]
    pub last_line: Option<String>,
    /// Environment variables set for it so that it finds other parts of the plant.
    #[serde(default)]
    pub automatic: std::collections::BTreeMap<String, String>,
    /// Settings that it requested but did not get.
    pub shortfalls: Vec<String>,
    /// Fault reported by the process itself.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Its own line about its present state (`STATUS=` of `sd_notify(3)`).
    #[serde(default)]
    pub status_text: Option<String>,
    /// Directory with the evidence of its last incident.
    pub evidence: Option<std::path::PathBuf>,
    /// Status of its loop, if it publishes one.
    #[serde(rename = "loop")]
    pub loop_page: Option<LoopStatus>,
    /// Value of its results over all its lives, if it has deadlines for them.
    #[serde(default)]
    pub value: Option<Value>,
    /// For a guest: a note that it is emulated although the processor's virtualization was requested, or that it is paused.
    #[serde(default)]
    pub guest: Option<String>,
}

impl ProcessStatus {
    /// Processor time of the process and all its descendants.
    #[must_use]
    pub fn family_cpu(&self) -> DurNs {
        self.family.map_or(self.cpu, |family| family.cpu)
    }

    /// Resident memory of the process and all its descendants.
    #[must_use]
    pub fn family_memory(&self) -> Size {
        self.family.map_or(self.memory, |family| family.memory)
    }

    /// Number of threads of the process and all its descendants.
    #[must_use]
    pub fn family_threads(&self) -> u32 {
        self.family.map_or(self.threads, |family| family.threads)
    }

    /// Cause of its last end, with the last line of output if the end was a failure.
    #[must_use]
    pub fn last_end(&self, now: MonoNs) -> Option<String> {
        let (at, cause) = self.ended.as_ref()?;
        let line = cause.behind(self.last_line.as_deref());
        Some(format!("{cause}, {} ago{line}", super::short(now - *at)))
    }
}

/// Value of the results of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The deadline as written in the plant file; `None` if there are several.
    pub deadline: Option<String>,
    /// Minimum share of the value, if the plant file sets one.
    #[serde(default)]
    pub least: Option<base::Worth>,
    /// Number of results due, number of late results, and total value in millionths of one full result.
    #[serde(flatten)]
    pub tally: base::Tally,
    /// Share of the full value that was obtained, in millionths; `None` before the first result was due.
    pub share: Option<base::Worth>,
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.share {
            Some(share) => write!(f, "{share} of the full value obtained")?,
            None => f.write_str("no result was due")?,
        }
        let by = self.deadline.as_ref().map_or(String::new(), |deadline| format!(", deadline {deadline}"));
        write!(f, " ({} of {} results late{by})", self.tally.late, self.tally.due)
    }
}

/// Resources used by a process and all its descendants, that is, by all members of its control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Number of running processes.
    pub processes: u32,
    /// Processor time used, including that of ended children that were waited for.
    pub cpu: DurNs,
    /// Resident memory. Memory shared by several processes is counted for each of them.
    pub memory: Size,
    /// Number of threads.
    pub threads: u32,
    /// Memory in bytes, compared with `memory_max` as set in the kernel; `None` if there is no limit.
    #[serde(default)]
    pub memory_bound: Option<Standing>,
    /// Processes and threads, compared with `tasks_max`.
    #[serde(default)]
    pub tasks_bound: Option<Standing>,
}

/// Status of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopStatus {
    /// The thread that its page names; 0 if a supervisor of an earlier version reported it.
    #[serde(default)]
    pub thread: i32,
    /// Number of cycles since its start.
    pub cycles: u64,
    /// Time at which its first pulse was due.
    pub first: MonoNs,
    /// Its period.
    pub period: DurNs,
    /// Wake-up latency.
    pub wake: crate::page::Figures,
    /// Number of pulses skipped because the loop was late.
    pub misses: u64,
}

/// Wake-up latency histogram of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopHistogram {
    /// Name of the process.
    pub name: String,
    /// Non-empty buckets in rising order: lower edge, upper edge (inclusive) in nanoseconds, count.
    pub buckets: Vec<(i64, i64, u64)>,
    /// Number of wake-ups beyond the last possible bucket.
    pub beyond: u64,
    /// Sum of all latencies, rounded down to a multiple of the count in nanoseconds.
    #[serde(default)]
    pub sum: DurNs,
}

/// A connection to a supervisor, for commands.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    /// The part of an answer that has arrived.
    part: Vec<u8>,
}

impl Client {
    /// Connects to a supervisor.
    ///
    /// # Errors
    /// The kernel's error: no supervisor listens, or access is denied.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self { stream: BufReader::new(stream), part: Vec::new() })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// The connection breaks, the answer cannot be read, or none arrives in time (`WouldBlock`).
    pub fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        let mut text = serde_json::to_vec(request)?;
        text.push(b'\n');
        let within = if request.takes_long() { LONG_ANSWER_WITHIN } else { ANSWER_WITHIN };
        self.stream.get_ref().set_read_timeout(Some(within))?;
        self.stream.get_mut().write_all(&text)?;
        self.hear()?.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the supervisor closed the connection"))
    }

    /// The next answer; `None` if the supervisor has closed the connection.
    ///
    /// # Errors
    /// The connection breaks, the answer cannot be read, or none arrives in time (`WouldBlock`). After `WouldBlock` the call
    /// may be repeated.
    pub fn hear(&mut self) -> io::Result<Option<Reply>> {
        let room = REPLY_BYTES_MAX.saturating_sub(self.part.len() as u64);
        self.stream.by_ref().take(room).read_until(b'\n', &mut self.part)?;
        let line = std::mem::take(&mut self.part);
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }
}

/// The supervisor's end of the socket.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    /// Whether clients admitted only by the socket's mode may send read-only requests.
    operators: bool,
    clients: Vec<Peer>,
    next: u64,
}

/// A connected client.
#[derive(Debug)]
struct Peer {
    id: u64,
    operator: bool,
    stream: UnixStream,
    read: Vec<u8>,
    write: VecDeque<u8>,
    done: bool,
}

impl Server {
    /// Starts to listen. Removes an old socket first; the caller holds the plant's lock. Members of `operators` may send
    /// read-only requests.
    pub(crate) fn listen(path: &Path, operators: Option<u32>) -> io::Result<Self> {
        sys::whole::remove(path)?;
        let listener = UnixListener::bind(path)?;
        crate::keeper::open_to(path, operators)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, operators: operators.is_some(), clients: Vec::new(), next: 0 })
    }

    /// The descriptors to poll, each with a flag that is set if data waits to be written.
    pub(crate) fn fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let clients = self.clients.iter().map(|peer| (peer.stream.as_fd(), !peer.write.is_empty()));
        std::iter::once((self.listener.as_fd(), false)).chain(clients)
    }

    /// Reads the requests that have arrived, without waiting. Each is returned with the id of its client.
    pub(crate) fn serve(&mut self) -> Vec<(u64, Result<Request, RequestError>)> {
        while let Ok((stream, _)) = self.listener.accept() {
            let operator = !may_talk(&stream);
            // Operators get half of the connections, so that root and the owner always find room.
            let most = if operator { CLIENTS_MAX / 2 } else { CLIENTS_MAX };
            let welcome = !operator || self.operators;
            if self.clients.len() < most && welcome && stream.set_nonblocking(true).is_ok() {
                let (read, write) = (Vec::new(), VecDeque::new());
                self.clients.push(Peer { id: self.next, operator, stream, read, write, done: false });
                self.next += 1;
            }
        }
        let mut requests = Vec::new();
        for peer in &mut self.clients {
            peer.read_lines(&mut requests);
            peer.flush();
        }
        self.clients.retain(|peer| !peer.done);
        requests
    }

    /// Answers a client. Does nothing if the client is gone; closes the connection if it does not read.
    pub(crate) fn answer(&mut self, client: u64, reply: &Reply) {
        let Some(peer) = self.clients.iter_mut().find(|peer| peer.id == client) else { return };
        match serde_json::to_vec(reply) {
            Ok(text) if peer.write.len() + text.len() < WAITING_BYTES_MAX => {
                peer.write.extend(text);
                peer.write.push_back(b'\n');
                peer.flush();
            }
            // The client does not read, or the reply cannot be encoded. The client sees the closed connection.
            _ => peer.done = true,
        }
    }

    /// Gives each client up to 200 ms to receive its last answer.
    pub(crate) fn drain(&mut self) {
        for peer in &mut self.clients {
            let _ = peer.stream.set_nonblocking(false);
            let _ = peer.stream.set_write_timeout(Some(Duration::from_millis(200)));
            peer.flush();
        }
    }
}

/// Whether the client's user is root or the supervisor's own user. These users may send all requests.
fn may_talk(stream: &UnixStream) -> bool {
    sys::peer::Peer::of(stream.as_fd()).is_ok_and(|peer| peer.is_ours())
}

impl Peer {
    fn read_lines(&mut self, requests: &mut Vec<(u64, Result<Request, RequestError>)>) {
        let mut bytes = [0u8; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.done = true,
                Ok(got) => {
                    self.read.extend_from_slice(&bytes[..got]);
                    while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = self.read.drain(..=end).collect();
                        let request = match serde_json::from_slice::<Request>(&line) {
                            Ok(request) if self.operator && !request.only_looks() => Err(RequestError::Operator),
                            Ok(request) => Ok(request),
                            Err(error) => Err(RequestError::Malformed(error)),
                        };
                        requests.push((self.id, request));
                    }
                    if self.read.len() <= REQUEST_BYTES_MAX {
                        continue;
                    }
                    self.done = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.done = true,
            }
            return;
        }
    }

    fn flush(&mut self) {
        while !self.write.is_empty() {
            let (front, _) = self.write.as_slices();
            match rustix::io::write(&self.stream, front) {
                Ok(0) => self.done = true,
                Ok(sent) => {
                    self.write.drain(..sent);
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.done = true,
            }
            return;
        }
    }
}
