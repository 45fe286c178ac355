//! The control socket: what `tahti ps`, `down`, `restart` … say to the supervisor, one JSON object a line.

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

/// A longer request is refused and the connection closed.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A longer answer is not read by clients.
pub const REPLY_BYTES_MAX: u64 = 4 << 20;

/// How long a client waits for an answer: the supervisor's loop never waits for others.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The same for requests that change the shield or wait for a keeper.
const LONG_ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// More connections than this are closed at once.
const CLIENTS_MAX: usize = 32;

/// Bytes waiting for a client that does not read; beyond it the connection is closed.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// What can be asked of a supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How things stand: [`Reply::Status`].
    Status,
    /// Wake-up latency of all loops: [`Reply::Histograms`].
    Histograms,
    /// Show a line where the plant was brought up, and nowhere else: it may hold a secret.
    Say {
        /// Of whom it is.
        who: String,
        /// The line.
        what: String,
    },
    /// Take the plant down: [`Reply::Done`], and [`Reply::Verdict`] when it is.
    Down,
    /// Stop and start a process, or reset its fault.
    Restart {
        /// Its name.
        name: String,
    },
    /// Stop processes, which stay down until they are started.
    Stop {
        /// Their names: those that run after them among them.
        names: Vec<String>,
    },
    /// Start processes that were stopped, have finished or failed.
    Start {
        /// Their names.
        names: Vec<String>,
    },
    /// Send a process a signal.
    Signal {
        /// Its name.
        name: String,
        /// The signal's number.
        signal: u8,
    },
    /// Read the plant file again and take over what differs: [`Reply::Changes`].
    Reload {
        /// Only tell.
        dry_run: bool,
    },
    /// Replace the supervisor's program by another one; the processes go on.
    Upgrade {
        /// The new program.
        program: std::path::PathBuf,
    },
}

impl Request {
    /// Whether its answer waits for more than the supervisor itself.
    fn takes_long(&self) -> bool {
        matches!(self, Self::Reload { .. } | Self::Signal { .. })
    }

    /// Whether it changes nothing and shows nothing to others.
    fn only_looks(&self) -> bool {
        matches!(self, Self::Status | Self::Histograms)
    }
}

/// What a supervisor answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Done, or begun.
    Done,
    /// Not done, and why.
    Refused(String),
    /// How things stand.
    Status(Box<Status>),
    /// The histograms of the loops that have begun.
    Histograms(Vec<LoopHistogram>),
    /// What a reload changed, as people read it.
    Changes(Vec<String>),
    /// The plant is down.
    Verdict {
        /// The outcome of its life.
        outcome: Outcome,
        /// Lines for people.
        text: String,
    },
}

/// A request that is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("not a request: {0}")]
    Malformed(serde_json::Error),
    #[error("operators may only read here: this needs root or the plant's own user")]
    Operator,
}

/// How a plant stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: std::path::PathBuf,
    /// What it does.
    pub phase: Phase,
    /// The supervisor's process id.
    pub supervisor: u32,
    /// When the plant was brought up.
    pub since: MonoNs,
    /// When this was written.
    pub now: MonoNs,
    /// How the shield stands, in a few words.
    pub shield: String,
    /// What could not be had, each with its remedy.
    pub shortfalls: Vec<String>,
    /// The outcome so far, with its reasons.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// All promises of the plant file, as they are observed.
    #[serde(default)]
    pub health: Vec<RowStatus>,
    /// Its processes.
    pub processes: Vec<ProcessStatus>,
    /// Bounds that processes share.
    #[serde(default)]
    pub partitions: Vec<Stands>,
}

/// How a process stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its name.
    pub name: String,
    /// The word for its state.
    pub state: String,
    /// Its process id while it lives.
    pub pid: Option<i32>,
    /// Its keeper's process id.
    pub keeper: Option<i32>,
    /// The class that its most urgent thread really has; the wanted one while it is down.
    pub class: Policy,
    /// The CPUs on which that thread may really run; the wanted ones while it is down.
    pub cpus: CpuSet,
    /// Processor time used.
    pub cpu: DurNs,
    /// Resident memory.
    pub memory: Size,
    /// Threads.
    pub threads: u32,
    /// All that descends from it and lives, itself included; `None` while it is down.
    #[serde(default)]
    pub family: Option<Family>,
    /// Last start.
    pub started: Option<MonoNs>,
    /// Times started.
    pub starts: u64,
    /// Restarts that nobody asked for.
    pub restarts: u64,
    /// Last end, and why.
    pub ended: Option<(MonoNs, Cause)>,
    /// The last line that it wrote before, if that end was a failure.
    #[serde(default)]
    pub last_line: Option<String>,
    /// Variables that it got so that it finds other parts of the plant.
    #[serde(default)]
    pub automatic: std::collections::BTreeMap<String, String>,
    /// What it wanted and could not have.
    pub shortfalls: Vec<String>,
    /// What it says is wrong with it.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Where evidence of the last trouble lies.
    pub evidence: Option<std::path::PathBuf>,
    /// Its loop, if it publishes one.
    #[serde(rename = "loop")]
    pub loop_page: Option<LoopStatus>,
    /// What its results were worth over all its lives, where it has deadlines for them.
    #[serde(default)]
    pub value: Option<Value>,
    /// Of a guest: that it is emulated where the processor was wished for, or that it stands still.
    #[serde(default)]
    pub guest: Option<String>,
}

impl ProcessStatus {
    /// Processor time of it and of all that it has started.
    #[must_use]
    pub fn family_cpu(&self) -> DurNs {
        self.family.map_or(self.cpu, |family| family.cpu)
    }

    /// Resident memory of it and of all that it has started.
    #[must_use]
    pub fn family_memory(&self) -> Size {
        self.family.map_or(self.memory, |family| family.memory)
    }

    /// Threads of it and of all that it has started.
    #[must_use]
    pub fn family_threads(&self) -> u32 {
        self.family.map_or(self.threads, |family| family.threads)
    }

    /// How it ended last, with the last line that it wrote if that was a failure.
    #[must_use]
    pub fn last_end(&self, now: MonoNs) -> Option<String> {
        let (at, cause) = self.ended.as_ref()?;
        let line = self.last_line.as_ref().map_or(String::new(), |line| format!(": {line}"));
        Some(format!("{cause}, {} ago{line}", super::short(now - *at)))
    }
}

/// What the results of a process were worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Its deadline, as the plant file says it; `None` where there are several.
    pub deadline: Option<String>,
    /// The share that must be obtained, where the plant file says one.
    #[serde(default)]
    pub least: Option<base::Worth>,
    /// Results that were due, those that were late, the value of all in millionths of a whole one.
    #[serde(flatten)]
    pub tally: base::Tally,
    /// The share of the possible value that was obtained, in millionths; `None` before the first was due.
    pub share: Option<base::Worth>,
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.share {
            Some(share) => write!(f, "{share} of the possible value obtained")?,
            None => f.write_str("no result was due")?,
        }
        let by = self.deadline.as_ref().map_or(String::new(), |deadline| format!(", deadline {deadline}"));
        write!(f, " ({} of {} results late{by})", self.tally.late, self.tally.due)
    }
}

/// What a process and all that it has started use together: everybody in its control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Processes that live.
    pub processes: u32,
    /// Processor time that they have used, with that of their children that have ended and were waited for.
    pub cpu: DurNs,
    /// Resident memory; what several of them share counts for each.
    pub memory: Size,
    /// Threads.
    pub threads: u32,
    /// Memory, in bytes, of `memory_max`, as the kernel has it; `None` where nothing bounds it.
    #[serde(default)]
    pub memory_bound: Option<Standing>,
    /// Processes and threads, of `tasks_max`.
    #[serde(default)]
    pub tasks_bound: Option<Standing>,
}

/// How a loop stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopStatus {
    /// Cycles since its start.
    pub cycles: u64,
    /// When its first pulse was due.
    pub first: MonoNs,
    /// Its period.
    pub period: DurNs,
    /// Wake-up latency.
    pub wake: crate::page::Figures,
    /// Pulses that were given up because the loop was late.
    pub misses: u64,
}

/// How late a loop woke up, how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopHistogram {
    /// The process.
    pub name: String,
    /// Buckets that are not empty, rising: lower edge, upper edge (inclusive) in nanoseconds, count.
    pub buckets: Vec<(i64, i64, u64)>,
    /// Wake-ups beyond the last bucket that there can be.
    pub beyond: u64,
}

/// A connection to a supervisor, for commands.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    /// The part of an answer that has come.
    part: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The kernel's: nobody listens, or not for us.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self { stream: BufReader::new(stream), part: Vec::new() })
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// If the connection breaks, the answer cannot be read, or none comes in time (`WouldBlock`).
    pub fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        let mut text = serde_json::to_vec(request)?;
        text.push(b'\n');
        let within = if request.takes_long() { LONG_ANSWER_WITHIN } else { ANSWER_WITHIN };
        self.stream.get_ref().set_read_timeout(Some(within))?;
        self.stream.get_mut().write_all(&text)?;
        self.hear()?.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the supervisor closed the connection"))
    }

    /// The next answer, `None` when the supervisor has closed the connection.
    ///
    /// # Errors
    /// If the connection breaks, the answer cannot be read, or none comes in time (`WouldBlock`): it may be called again.
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
    /// Whether who is let in by the socket's mode alone may look.
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
    /// Listens; an old socket at the place is removed first (the caller holds the plant's lock).
    /// Members of `operators` may ask how things stand.
    pub(crate) fn listen(path: &Path, operators: Option<u32>) -> io::Result<Self> {
        sys::whole::remove(path)?;
        let listener = UnixListener::bind(path)?;
        crate::keeper::open_to(path, operators)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, operators: operators.is_some(), clients: Vec::new(), next: 0 })
    }

    /// The descriptors to poll, each with whether it waits to be written to.
    pub(crate) fn fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let clients = self.clients.iter().map(|peer| (peer.stream.as_fd(), !peer.write.is_empty()));
        std::iter::once((self.listener.as_fd(), false)).chain(clients)
    }

    /// Takes in what has come, without waiting; the requests with the client that sent each.
    pub(crate) fn serve(&mut self) -> Vec<(u64, Result<Request, RequestError>)> {
        while let Ok((stream, _)) = self.listener.accept() {
            let operator = !may_talk(&stream);
            // They leave room for those who may do more.
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

    /// Answers a client; one that is gone or does not read gets nothing.
    pub(crate) fn answer(&mut self, client: u64, reply: &Reply) {
        let Some(peer) = self.clients.iter_mut().find(|peer| peer.id == client) else { return };
        match serde_json::to_vec(reply) {
            Ok(text) if peer.write.len() + text.len() < WAITING_BYTES_MAX => {
                peer.write.extend(text);
                peer.write.push_back(b'\n');
                peer.flush();
            }
            // A client that does not read, or a reply that has no text form: the closed connection tells.
            _ => peer.done = true,
        }
    }

    /// Gives the last answers a moment to leave.
    pub(crate) fn drain(&mut self) {
        for peer in &mut self.clients {
            let _ = peer.stream.set_nonblocking(false);
            let _ = peer.stream.set_write_timeout(Some(Duration::from_millis(200)));
            peer.flush();
        }
    }
}

/// Root and the supervisor's own user may talk to it.
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
