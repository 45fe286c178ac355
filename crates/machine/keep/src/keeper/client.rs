//! The supervisor's end of the connection to a keeper.

use super::protocol::*;
use super::serve::ServeError;
use crate::supervisor::SERVICE_VARIABLES;
use base::{DurNs, MonoNs};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::spawn::{PlannedStep, Prepared, Step, above};

/// Maximum time for an answer. A keeper that takes longer counts as hung.
pub const ANSWER_WITHIN: DurNs = DurNs::from_secs(5);

/// File in the keeper's directory with the spec it was started with.
pub const SPEC_NAME: &str = "spec.json";

/// First argument that makes the binary a keeper. The second is the keeper's directory, the third the descriptor number of
/// its first connection.
pub const SUBCOMMAND: &str = "keeper";

/// A keeper cannot be started or reached, or violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperError {
    /// The keeper's directory.
    pub dir: PathBuf,
    /// The fault, and what to do.
    pub what: String,
}

impl fmt::Display for KeeperError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keeper {}: {}", self.dir.display(), self.what)
    }
}

impl std::error::Error for KeeperError {}

/// The reason why a keeper refuses a request, in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// A message from a keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An event.
    Event(Event),
    /// The status, as an answer to a request.
    Status(Box<Status>),
    /// Outcome of the oldest pending request; an error is the keeper's refusal.
    Answer(Result<(), Refusal>),
}

/// A control connection to a keeper, on which the keeper pushes its events.
///
/// A supervisor must not wait for one keeper among many. It sends requests with [`Keeper::tell`] and receives the answers as
/// [`News`]. All other calls wait, at most [`ANSWER_WITHIN`]. Dropping the handle leaves keeper and child running.
#[derive(Debug)]
pub struct Keeper {
    dir: PathBuf,
    /// The keeper's process, once a status has been received.
    process: Option<ChildId>,
    stream: UnixStream,
    received: Vec<u8>,
    news: VecDeque<News>,
    /// Send times of the requests without an answer, oldest first.
    pending: VecDeque<MonoNs>,
    lost: bool,
}

impl Keeper {
    /// Starts a keeper, which starts its child at once. The first event is [`Event::Held`], [`Event::Started`] or
    /// [`Event::LaunchFailed`]. `program` is the tahti binary (`/proc/self/exe`). Keeper and child are detached from the
    /// caller and outlive it.
    ///
    /// # Errors
    /// The directory or the keeper cannot be created, or another keeper serves in that directory.
    pub fn start(spec: &KeeperSpec, program: &Path) -> Result<Self, KeeperError> {
        let failed = |what: String| KeeperError { dir: spec.dir.clone(), what };
        if UnixStream::connect(spec.dir.join(SOCKET_NAME)).is_ok() {
            return Err(failed("another keeper already serves there: adopt it, or end it first".to_owned()));
        }
        if spec.dir.join(SOCKET_NAME).exists() {
            // A keeper removes its socket when it ends normally. This one was killed, and its child may still run.
            crate::group::end_family(&spec.dir);
        }
        sys::run_folder::make(&spec.dir, 0o711)
            .map_err(|error| failed(format!("its directory cannot be made: {error}")))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed(error.to_string()))?;
        let high = |fd| above(fd).map_err(|error| failed(error.to_string()));
        let theirs = high(theirs.as_raw_fd())?;
        let mut handed = spec.clone();
        let mut steps = vec![Step::Detach, Step::ResetSignals, Step::NewSession, Step::CloseFrom(3)];
        steps.push(Step::Descriptor(theirs.as_raw_fd(), 3));
        let mut open = Vec::new();
        for (number, inherited) in (4..).zip(&mut handed.launch.inherit) {
            let fd = high(inherited.fd)?;
            steps.push(Step::Descriptor(fd.as_raw_fd(), number));
            inherited.fd = number;
            open.push(fd);
        }
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
        let null = high(null.map_err(|error| failed(format!("/dev/null: {error}")))?.as_raw_fd())?;
        steps.extend((0..3).map(|to| Step::Descriptor(null.as_raw_fd(), to)));
        write_spec(&handed).map_err(|error| failed(format!("{SPEC_NAME} cannot be written: {error}")))?;
        let steps = steps.into_iter().map(|step| PlannedStep { step, required: true }).collect();
        let word = |text: &[u8]| CString::new(text).map_err(|_| failed("its path holds a zero byte".to_owned()));
        let argv =
            vec![word(b"tahti")?, word(SUBCOMMAND.as_bytes())?, word(spec.dir.as_os_str().as_bytes())?, word(b"3")?];
        // The variables that systemd sets for the supervisor are not passed to its children.
        let for_children = std::env::vars_os().filter(|(name, _)| !SERVICE_VARIABLES.iter().any(|own| name == own));
        let environment = for_children.map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            word(name.as_bytes())
        });
        let environment = environment.collect::<Result<Vec<_>, _>>()?;
        let prepared = Prepared::new(word(program.as_os_str().as_bytes())?, argv, environment, steps);
        let spawned = prepared.spawn().map_err(|error| failed(error.to_string()))?;
        if let Some(refusal) = spawned.refused.last() {
            let cause = std::io::Error::from(refusal.errno);
            return Err(failed(format!("{} cannot be started: {cause}", program.display())));
        }
        // The intermediate child ends once it has forked the keeper.
        while let Some(first) = &spawned.child
            && matches!(sys::child::look(first.pid(), false), Ok(sys::child::Waited::Nothing))
        {
            std::thread::yield_now();
        }
        let mut keeper = Self::over(spec.dir.clone(), ours)?;
        // The answer proves that the keeper serves: it can be adopted if this handle is dropped.
        keeper.status()?;
        Ok(keeper)
    }

    /// Connects to the keeper that serves in `dir`; `None` if there is none.
    ///
    /// # Errors
    /// The process at the socket does not answer as a keeper.
    pub fn adopt(dir: &Path) -> Result<Option<(Self, Status)>, KeeperError> {
        let Ok(stream) = UnixStream::connect(dir.join(SOCKET_NAME)) else { return Ok(None) };
        let mut keeper = Self::over(dir.to_owned(), stream)?;
        match keeper.follow() {
            Ok(status) => Ok(Some((keeper, status))),
            // The keeper was ending: its socket still existed, but the connection was closed.
            Err(_) if keeper.lost => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn over(dir: PathBuf, stream: UnixStream) -> Result<Self, KeeperError> {
        let limit = Some(ANSWER_WITHIN.to_std());
        let limited = stream.set_read_timeout(limit).and(stream.set_write_timeout(limit));
        let (news, pending) = (VecDeque::new(), VecDeque::new());
        let keeper = Self { dir, process: None, stream, received: Vec::new(), news, pending, lost: false };
        limited.map_err(|error| keeper.failed(error.to_string()))?;
        Ok(keeper)
    }

    /// The keeper's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The keeper's process; `None` before the first status.
    #[must_use]
    pub fn process(&self) -> Option<ChildId> {
        self.process
    }

    /// Sends a request without waiting. Its outcome arrives as [`News`], in the order of the requests.
    ///
    /// # Errors
    /// The keeper is gone, or the socket is full because the keeper does not read.
    pub fn tell(&mut self, request: &Request, now: MonoNs) -> Result<(), KeeperError> {
        use rustix::net::SendFlags;
        let text = line(request);
        match rustix::net::send(&self.stream, &text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == text.len() => {
                self.pending.push_back(now);
                Ok(())
            }
            Err(rustix::io::Errno::AGAIN) => Err(self.failed("it does not read its requests".to_owned())),
            // A partly sent request cannot be taken back.
            Ok(_) | Err(_) => {
                self.lost = true;
                Err(self.failed("it cannot be reached".to_owned()))
            }
        }
    }

    /// Send time of the oldest request without an answer; `None` if there is none.
    #[must_use]
    pub fn silent_since(&self) -> Option<MonoNs> {
        self.pending.front().copied()
    }

    /// Requests the status of keeper and child.
    ///
    /// # Errors
    /// The keeper is gone or hung.
    pub fn status(&mut self) -> Result<Status, KeeperError> {
        self.asked_status(&Request::Status)
    }

    fn follow(&mut self) -> Result<Status, KeeperError> {
        self.asked_status(&Request::Follow)
    }

    fn asked_status(&mut self, request: &Request) -> Result<Status, KeeperError> {
        match self.ask(request)? {
            Reply::Status(status) => {
                self.process = Some(status.keeper);
                Ok(*status)
            }
            Reply::Refused(why) => Err(self.failed(why)),
            other => Err(self.failed(format!("it answered the status request with {other:?}"))),
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The kernel or the keeper refused.
    pub fn signal(&mut self, signal: i32, to: Target) -> Result<(), KeeperError> {
        self.command(&Request::Signal { signal, to })
    }

    /// Starts the child again after it has ended.
    ///
    /// # Errors
    /// The child cannot be started. [`Event::LaunchFailed`] reports the same to all followers.
    pub fn start_child(&mut self) -> Result<(), KeeperError> {
        self.command(&Request::Start)
    }

    /// Releases a child that waits ([`Event::Held`]).
    ///
    /// # Errors
    /// No child waits, or it cannot be started; [`Event::LaunchFailed`] reports that to all followers.
    pub fn go(&mut self) -> Result<(), KeeperError> {
        self.command(&Request::Go)
    }

    /// Sets whether the child is restarted; the keeper displays this on consoles.
    ///
    /// # Errors
    /// The keeper is gone or hung.
    pub fn auto_restart(&mut self, on: bool) -> Result<(), KeeperError> {
        self.command(&Request::AutoRestart { on })
    }

    /// Ends the keeper. Its child must be down.
    ///
    /// # Errors
    /// The child is running, or the keeper is gone or hung.
    pub fn quit(mut self) -> Result<(), KeeperError> {
        self.command(&Request::Quit)
    }

    fn command(&mut self, request: &Request) -> Result<(), KeeperError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            Reply::Refused(why) => Err(self.failed(why)),
            other => Err(self.failed(format!("it answered {other:?}"))),
        }
    }

    /// Sends one request and waits for its answer. Other messages are kept for [`Keeper::next_news`].
    fn ask(&mut self, request: &Request) -> Result<Reply, KeeperError> {
        if let Err(error) = (&self.stream).write_all(&line(request)) {
            use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
            self.lost |= matches!(error.kind(), BrokenPipe | ConnectionReset);
            return Err(self.failed(format!("it cannot be reached: {error}")));
        }
        loop {
            let reply = self.next_reply(true)?.ok_or_else(|| self.failed("it ended".to_owned()))?;
            if self.pending.is_empty() && !matches!(reply, Reply::Event(_)) {
                return Ok(reply);
            }
            let news = self.news_of(reply)?;
            self.news.push_back(news);
        }
    }

    /// The next message that has arrived. Never waits. Poll the descriptor ([`AsFd`]) for readability, then call this until
    /// it returns `None`.
    ///
    /// # Errors
    /// The keeper violates the protocol.
    pub fn next_news(&mut self) -> Result<Option<News>, KeeperError> {
        if let Some(news) = self.news.pop_front() {
            return Ok(Some(news));
        }
        self.next_reply(false)?.map(|reply| self.news_of(reply)).transpose()
    }

    fn news_of(&mut self, reply: Reply) -> Result<News, KeeperError> {
        if let Reply::Event(event) = reply {
            return Ok(News::Event(event));
        }
        if self.pending.pop_front().is_none() {
            return Err(self.failed(format!("it sent {reply:?} without a request")));
        }
        Ok(match reply {
            Reply::Event(event) => News::Event(event),
            Reply::Status(status) => News::Status(status),
            Reply::Done => News::Answer(Ok(())),
            Reply::Refused(why) => News::Answer(Err(Refusal(why))),
        })
    }

    /// Waits for the next event, at most `within`; `None` if none arrived. Other messages are discarded.
    ///
    /// # Errors
    /// As [`Keeper::next_news`].
    pub fn wait_event(&mut self, within: Duration) -> Result<Option<Event>, KeeperError> {
        let until = std::time::Instant::now() + within;
        loop {
            while let Some(news) = self.next_news()? {
                if let News::Event(event) = news {
                    return Ok(Some(event));
                }
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || self.lost {
                return Ok(None);
            }
            let wait = rustix::time::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [rustix::event::PollFd::new(&self.stream, rustix::event::PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(self.failed(format!("poll: {errno}"))),
            }
        }
    }

    /// Whether the keeper has closed the connection, which means that it has ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    fn next_reply(&mut self, wait: bool) -> Result<Option<Reply>, KeeperError> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let rest = self.received.split_off(end + 1);
                let text = std::mem::replace(&mut self.received, rest);
                return parse(&text).map(Some).map_err(|why| self.failed(why.to_string()));
            }
            if self.received.len() > LINE_BYTES_MAX {
                return Err(self.failed(format!("a line of more than {LINE_BYTES_MAX} bytes")));
            }
            let mut bytes = [0u8; 4096];
            let flags = if wait { rustix::net::RecvFlags::empty() } else { rustix::net::RecvFlags::DONTWAIT };
            let got = if wait {
                (&self.stream).read(&mut bytes)
            } else {
                rustix::net::recv(&self.stream, &mut bytes, flags).map(|(got, _)| got).map_err(Into::into)
            };
            match got {
                Ok(0) => {
                    self.lost = true;
                    return Ok(None);
                }
                Ok(got) => self.received.extend_from_slice(&bytes[..got]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && !wait => return Ok(None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(self.failed(format!("no answer within {ANSWER_WITHIN}")));
                }
                Err(_) => {
                    self.lost = true;
                    return Ok(None);
                }
            }
        }
    }

    fn failed(&self, what: String) -> KeeperError {
        KeeperError { dir: self.dir.clone(), what }
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn write_spec(spec: &KeeperSpec) -> std::io::Result<()> {
    // The environment in the spec may contain secrets.
    let path = spec.dir.join(SPEC_NAME);
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&line(spec))
}

/// Main function of a keeper process. `words` are the arguments after [`SUBCOMMAND`]. Reads the spec from its directory,
/// serves, and returns when the keeper ends.
///
/// # Errors
/// The keeper cannot serve.
pub fn run(words: &[OsString]) -> Result<(), ServeError> {
    let (dir, fd) = match words {
        [dir, fd] => (Path::new(dir), fd.to_str().and_then(|fd| fd.parse().ok())),
        [dir] => (Path::new(dir), None),
        _ => return Err(ServeError::Usage),
    };
    let first = fd.map(sys::spawn::inherited).transpose()?.map(UnixStream::from);
    let starter = first.as_ref().and_then(|stream| stream.try_clone().ok());
    serve_in(dir, first).inspect_err(|why| {
        if let Some(mut stream) = starter {
            // A keeper has no terminal: this connection is the only place to report the error.
            let _ = stream.write_all(&line(&Reply::Refused(why.to_string())));
        }
    })
}

fn serve_in(dir: &Path, first: Option<UnixStream>) -> Result<(), ServeError> {
    let path = dir.join(SPEC_NAME);
    let spec = std::fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<KeeperSpec>(&text)?));
    super::serve(spec.map_err(|error| ServeError::Spec { path, error })?, first)
}
