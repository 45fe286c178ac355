//! The keeper process: one thread with one poll loop, which wakes only for events.

use super::console::{Client, Kind};
use super::log::{Log, Stream};
use super::protocol::*;
use super::running::Running;
use super::silence::Silence;
use crate::group::{Group, MARK};
use crate::launch::{self, Shortfall, Terminal, start_ticks};
use crate::notify::{self, Notification, Notify, NotifyError};
use crate::supervisor::logs::Level;
use base::MonoNs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use sys::child::Waited;
use sys::peer::Peer;
use sys::signal::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGTERM, SignalFd};

/// Bytes of earlier output sent to a new console.
const BACKLOG_BYTES: usize = 4096;
/// Maximum number of connections. More are refused.
const CLIENTS_MAX: usize = 64;
/// Maximum reads per stream before the other descriptors are served.
const CHUNKS: usize = 16;

const KILL_KEY: u8 = 0x18; // ^X
const TOGGLE_KEY: u8 = 0x14; // ^T
const START_KEY: u8 = 0x12; // ^R

/// A reason why a keeper cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was not started by tahti.
    #[error("a keeper is started by tahti itself, with its directory")]
    Usage,
    /// Its spec cannot be read.
    #[error("{}: {error}", .path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// The error returned.
        error: std::io::Error,
    },
    /// Its socket cannot be made.
    #[error("cannot make the keeper's socket in {}: {error}", .dir.display())]
    Socket {
        /// Its directory.
        dir: PathBuf,
        /// The error returned.
        error: std::io::Error,
    },
    /// Its notify socket cannot be made.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// The keeper's own process cannot be read.
    #[error("/proc is not mounted")]
    NoProc,
    /// A connection cannot be used.
    #[error(transparent)]
    Client(#[from] std::io::Error),
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
}

/// Runs a keeper until it receives [`Request::Quit`] or ends with its child. `first` is the connection of the process that
/// started it.
///
/// # Errors
/// The keeper's directory, socket or signals are unavailable.
pub fn serve(spec: KeeperSpec, first: Option<UnixStream>) -> Result<(), ServeError> {
    let mut keeper = Keeper::new(spec, first)?;
    keeper.start();
    sys::mem::trim();
    while !keeper.over {
        keeper.turn()?;
    }
    // A socket left behind would mislead. An error means that it is already gone.
    let _ = std::fs::remove_file(keeper.spec.dir.join(SOCKET_NAME));
    if let Some(group) = &keeper.group {
        group.remove();
    }
    Ok(())
}

const NOTIFY_NAME: &str = "notify";

pub(super) struct Keeper {
    pub(super) spec: KeeperSpec,
    own: ChildId,
    signals: SignalFd,
    listener: UnixListener,
    notify: Option<Notify>,
    clients: Vec<Client>,
    pub(super) child: Option<Running>,
    /// The child, held before its program starts.
    pub(super) held: Option<launch::HeldProcess>,
    /// Control group of the child and its descendants, if one could be created.
    pub(super) group: Option<Group>,
    /// Limits that could not be set on the group.
    unbounded: Vec<Shortfall>,
    pub(super) log: Log,
    backlog: VecDeque<u8>,
    started: Option<MonoNs>,
    pub(super) last_exit: Option<ExitRecord>,
    launch_error: Option<String>,
    starts: u32,
    auto_restart: bool,
    console_bytes_lost: u64,
    /// Whether the keeper ends together with the child.
    pub(super) leaving: bool,
    pub(super) over: bool,
    /// The check of the supervisor.
    pub(super) silence: Silence,
}

fn socket_at(path: PathBuf) -> PathBuf {
    // The socket of a killed keeper would make the bind fail.
    let _ = std::fs::remove_file(&path);
    path
}

/// Restricts connections to the socket's owner and, if given, the members of a group.
pub(crate) fn open_to(socket: &Path, group: Option<u32>) -> std::io::Result<()> {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(if group.is_some() { 0o660 } else { 0o600 });
    if group.is_some() {
        std::os::unix::fs::chown(socket, None, group)?;
    }
    std::fs::set_permissions(socket, mode)
}

pub(super) fn unix_ms() -> u64 {
    sys::clock::wall_ns() / 1_000_000
}

impl Keeper {
    fn new(spec: KeeperSpec, first: Option<UnixStream>) -> Result<Self, ServeError> {
        let listen = || -> std::io::Result<UnixListener> {
            let listener = UnixListener::bind(socket_at(spec.dir.join(SOCKET_NAME)))?;
            listener.set_nonblocking(true)?;
            open_to(&spec.dir.join(SOCKET_NAME), spec.operators.map(|operators| operators.group))?;
            Ok(listener)
        };
        let listener = listen().map_err(|error| ServeError::Socket { dir: spec.dir.clone(), error })?;
        let notify = if spec.notify {
            Some(Notify::open(spec.dir.join(NOTIFY_NAME), launch::user_of(&spec.launch))?)
        } else {
            None
        };
        let signals = SignalFd::new(&[SIGCHLD, SIGTERM, SIGINT, SIGHUP])?;
        sys::child::become_subreaper()?;
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let own = ChildId { pid, start_ticks: start_ticks(pid).ok_or(ServeError::NoProc)? };
        let clients = first.into_iter().map(|stream| Client::new(stream, true, false)).collect::<Result<_, _>>()?;
        Ok(Self {
            silence: Silence::new(spec.supervisor.clone(), sys::clock::mono_now()),
            log: Log::open(spec.log.clone(), &spec.launch.name),
            clients,
            spec,
            own,
            signals,
            listener,
            notify,
            child: None,
            held: None,
            group: None,
            unbounded: Vec::new(),
            backlog: VecDeque::new(),
            started: None,
            last_exit: None,
            launch_error: None,
            starts: 0,
            auto_restart: true,
            console_bytes_lost: 0,
            leaving: false,
            over: false,
        })
    }

    /// Waits for events and handles them.
    fn turn(&mut self) -> Result<(), ServeError> {
        let mut ready: Vec<bool> = Vec::new();
        {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
            fds.extend(self.notify.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
            for client in &self.clients {
                let write = if client.wants_to_write() { PollFlags::OUT } else { PollFlags::empty() };
                fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), PollFlags::IN | write));
            }
            for fd in self.child.iter().flat_map(Running::descriptors) {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            fds.extend(
                self.child.iter().filter_map(Running::main).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            match poll(&mut fds, self.wait_at_most().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(sys::Error { doing: "wait for news".to_owned(), errno }.into()),
            }
            ready.extend(fds.iter().map(|fd| !fd.revents().is_empty()));
        }
        let mut ready = ready.into_iter();
        let mut next = || ready.next().unwrap_or(false);
        let (signalled, connecting) = (next(), next());
        let notified = self.notify.is_some() && next();
        let talking: Vec<bool> = self.clients.iter().map(|_| next()).collect();
        self.output(CHUNKS);
        if notified {
            self.notified();
        }
        for (index, _) in talking.iter().enumerate().filter(|(_, talks)| **talks) {
            self.clients[index].flush();
            self.clients[index].receive();
            self.listen_to(index);
        }
        if connecting {
            self.connect();
        }
        if signalled {
            self.signalled()?;
        }
        if let Some(text) = self.silence.check(sys::clock::mono_now()) {
            self.say(&text);
        }
        self.look_for_main()?;
        self.wind_up();
        self.clients.retain(|client| !client.is_gone());
        Ok(())
    }

    /// Starts the child. The outcome is sent to followers and logged.
    fn start(&mut self) {
        if self.child.is_some() || self.held.is_some() {
            return;
        }
        let mut launch = self.spec.launch.clone();
        // Created at each start: another program may have removed the empty group.
        let within = &self.spec.within;
        // Its lock would keep out the new one.
        self.group = None;
        let made = Group::make(&self.spec.dir, &launch.name, &launch.cgroups, within, self.spec.bounds);
        (self.group, self.unbounded) = made;
        launch.cgroups.extend(Group::joins(self.group.as_ref(), within));
        launch.env.insert(MARK.to_owned(), self.spec.dir.display().to_string());
        if let Some(notify) = &self.notify {
            launch.env.insert("NOTIFY_SOCKET".to_owned(), notify.path().display().to_string());
            if launch.terminal == Terminal::Pty {
                // It may name another process of its session as the main process, and end.
                launch.terminal = Terminal::FreePty;
            }
        }
        match launch::hold(&launch) {
            Ok(held) if self.spec.held => {
                let child = held.child();
                self.held = Some(held);
                self.tell(&Event::Held(child));
            }
            Ok(held) => self.go(held),
            Err(error) => self.launch_failed(error.to_string()),
        }
    }

    /// Releases the child to run its program.
    fn go(&mut self, held: launch::HeldProcess) {
        match held.go() {
            Ok(mut started) => {
                started.shortfalls.append(&mut self.unbounded);
                let now = sys::clock::mono_now();
                let ended = started.ended;
                let child = Running::new(started, self.notify.is_some(), now);
                (self.starts, self.started, self.launch_error) = (self.starts + 1, Some(now), None);
                let word = if ended { "ended before its first instruction" } else { "started" };
                self.say(&format!("{} (PID {}) {word}", self.spec.launch.name, child.id.pid));
                for shortfall in &child.shortfalls {
                    self.log.append(Stream::Keeper, format!("{shortfall}\n").as_bytes(), unix_ms());
                }
                let id = child.id;
                self.child = Some(child);
                if !ended {
                    self.tell(&Event::Started(id));
                }
                // If it has ended already, it is reaped as usual, and its end is reported then.
            }
            Err(error) => self.launch_failed(error.to_string()),
        }
    }

    pub(super) fn launch_failed(&mut self, why: String) {
        self.say_as(Level::Error, &why);
        self.launch_error = Some(why.clone());
        self.tell(&Event::LaunchFailed(why));
    }

    /// Passes the child's output to log, backlog and consoles.
    pub(super) fn output(&mut self, chunks: usize) {
        let Some(mut child) = self.child.take() else { return };
        let wanted = self.spec.ready_line.clone().filter(|_| !child.ready);
        let mut arrived: Vec<u8> = Vec::new();
        let now = unix_ms();
        child.drain(chunks, |stream, bytes| {
            self.log.append(stream, bytes, now);
            self.show(bytes);
            if wanted.is_some() {
                arrived.extend_from_slice(bytes);
            }
        });
        let became_ready = wanted.is_some_and(|text| child.shows(&arrived, &text));
        child.ready |= became_ready;
        self.child = Some(child);
        if became_ready {
            self.tell(&Event::Ready);
        }
    }

    /// Sends bytes to every console.
    fn show(&mut self, bytes: &[u8]) {
        self.backlog.extend(bytes);
        let surplus = self.backlog.len().saturating_sub(BACKLOG_BYTES);
        self.backlog.drain(..surplus);
        self.backlog.shrink_to(BACKLOG_BYTES);
        for client in self.clients.iter_mut().filter(|client| matches!(client.kind, Kind::Console { .. })) {
            self.console_bytes_lost += client.send(bytes);
        }
    }

    /// Prints a message of the keeper in the log and on consoles.
    pub(super) fn say(&mut self, text: &str) {
        self.say_as(Level::Info, text);
    }

    /// Prints a message of this severity in the log and on consoles.
    pub(super) fn say_as(&mut self, level: Level, text: &str) {
        self.log.append(Stream::Keeper, format!("{}{text}\n", level.mark()).as_bytes(), unix_ms());
        self.show(format!("@@@ {text}\r\n").as_bytes());
    }

    pub(super) fn tell(&mut self, event: &Event) {
        let reply = Reply::Event(event.clone());
        for client in self.clients.iter_mut().filter(|client| client.kind == (Kind::Control { follows: true })) {
            client.reply(&reply);
        }
    }

    fn followers(&self) -> usize {
        self.clients
            .iter()
            .filter(|client| client.kind == (Kind::Control { follows: true }) && !client.is_gone())
            .count()
    }

    fn connect(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let allowed = Peer::of(stream.as_fd()).is_ok_and(|peer| peer.is_ours());
            let Ok(mut client) = Client::new(stream, false, !allowed) else { continue };
            // The mode of the socket admits only root, the owner and operators.
            if !allowed && self.spec.operators.is_none() {
                client.reply(&Reply::Refused("only root and the keeper's user may connect to a keeper".to_owned()));
            } else if self.clients.len() >= CLIENTS_MAX {
                client.reply(&Reply::Refused(format!("{CLIENTS_MAX} connections are open already")));
            } else {
                self.clients.push(client);
            }
        }
    }

    fn listen_to(&mut self, index: usize) {
        if let Kind::Console { read_only } = self.clients[index].kind {
            let typed = self.clients[index].typed();
            if !read_only {
                self.typed(&typed);
            }
            return;
        }
        while let Some(line) = self.clients[index].next_line() {
            let reply = match parse::<Request>(&line) {
                Ok(request) => self.obey(index, request),
                Err(why) => Reply::Refused(why.to_string()),
            };
            self.clients[index].reply(&reply);
            if let Kind::Console { read_only } = self.clients[index].kind {
                return self.welcome(index, read_only);
            }
        }
    }

    fn obey(&mut self, index: usize, request: Request) -> Reply {
        let operators = self.spec.operators.filter(|_| self.clients[index].operator);
        if let Some(why) = operators.and_then(|operators| operators.refuse(&request)) {
            return Reply::Refused(why.to_owned());
        }
        let sent = |outcome: sys::Result<usize>| match outcome {
            Ok(_) => Reply::Done,
            Err(error) => Reply::Refused(error.to_string()),
        };
        match request {
            Request::Status => Reply::Status(Box::new(self.status())),
            Request::Follow => {
                self.clients[index].kind = Kind::Control { follows: true };
                Reply::Status(Box::new(self.status()))
            }
            Request::Signal { signal, to } => match &mut self.child {
                Some(child) => sent(child.signal(signal, to, self.group.as_ref())),
                None => Reply::Refused("the process is not running".to_owned()),
            },
            Request::Start if self.child.is_some() || self.held.is_some() => {
                Reply::Refused("the process is already running".to_owned())
            }
            Request::Start => {
                self.launch_error = None;
                self.start();
                self.launched()
            }
            Request::Go => match self.held.take() {
                Some(held) => {
                    self.launch_error = None;
                    self.go(held);
                    self.launched()
                }
                None => Reply::Refused("no process waits for a start permission".to_owned()),
            },
            Request::ReopenLog => {
                self.log.reopen();
                Reply::Done
            }
            Request::AutoRestart { on } => {
                self.auto_restart = on;
                Reply::Done
            }
            Request::Attach { read_only, size } => {
                // A read-only console changes nothing, including the terminal size.
                if let (Some(child), Some(size), false) = (&self.child, size, read_only) {
                    child.resize(size.rows, size.columns);
                }
                self.clients[index].kind = Kind::Console { read_only };
                Reply::Status(Box::new(self.status()))
            }
            Request::Resize { size } => {
                if let Some(child) = &self.child {
                    child.resize(size.rows, size.columns);
                }
                Reply::Done
            }
            Request::Quit if self.child.is_some() => Reply::Refused("its process still runs".to_owned()),
            Request::Quit => {
                self.over = true;
                Reply::Done
            }
        }
    }

    fn launched(&self) -> Reply {
        self.launch_error.clone().map_or(Reply::Done, Reply::Refused)
    }

    fn welcome(&mut self, index: usize, read_only: bool) {
        let state = match &self.child {
            Some(child) => format!("PID {}", child.id.pid),
            None if self.held.is_some() => "waits for the supervisor".to_owned(),
            None => "not running".to_owned(),
        };
        let keys = if read_only {
            "read only".to_owned()
        } else {
            let restart = if self.auto_restart { "on" } else { "off" };
            format!("^X kills it, ^T toggles the automatic restart (now {restart}), ^R starts it when it is down")
        };
        let banner = format!("@@@ {} ({state}): {keys}\r\n", self.spec.launch.name);
        let client = &mut self.clients[index];
        client.send(banner.as_bytes());
        client.send(self.backlog.make_contiguous());
    }

    /// Handles console input; the procServ control keys are interpreted.
    fn typed(&mut self, bytes: &[u8]) {
        for piece in bytes.chunk_by(|a, b| !is_key(*a) && !is_key(*b)) {
            match (piece[0], &mut self.child) {
                (KILL_KEY, Some(child)) => {
                    let (name, pid) = (&self.spec.launch.name, child.id.pid);
                    let text = format!("^X: {name} (PID {pid}) is killed");
                    // An error means that the child is already gone.
                    let _ = child.signal(SIGKILL, Target::All, self.group.as_ref());
                    self.say(&text);
                    self.tell(&Event::ConsoleKill);
                }
                (KILL_KEY | START_KEY, None) => {
                    self.tell(&Event::ConsoleStart);
                    if self.followers() == 0 {
                        self.start();
                    }
                }
                (TOGGLE_KEY, _) => {
                    self.auto_restart = !self.auto_restart;
                    let on = self.auto_restart;
                    self.say(&format!("^T: automatic restart is now {}", if on { "on" } else { "off" }));
                    self.tell(&Event::AutoRestart { on });
                }
                (_, Some(child)) => self.console_bytes_lost += child.type_in(piece) as u64,
                (_, None) => {}
            }
        }
    }

    fn notified(&mut self) {
        for heard in self.notify.as_mut().map_or(Vec::new(), Notify::hear) {
            let text = match heard {
                Notification::Message(text) => text,
                Notification::Fault(why) => {
                    self.say(&why);
                    continue;
                }
            };
            if let Some(pid) = notify::main_process(&text) {
                self.name_main(pid);
            }
            let mut became_ready = false;
            if let Some(child) = &mut self.child {
                became_ready = !child.ready && text.lines().any(|line| line == "READY=1");
                child.ready |= became_ready;
                if let Some(said) = text.lines().find_map(|line| line.strip_prefix("STATUS=")) {
                    child.said = Some(said.to_owned());
                }
                child.interval = notify::interval(&text).or(child.interval);
            }
            self.tell(&Event::Notify(text));
            if became_ready {
                self.tell(&Event::Ready);
            }
        }
    }

    /// Handles an announced main process (`MAINPID=`), which must be a descendant of the keeper.
    fn name_main(&mut self, pid: i32) {
        let Some(child) = self.child.as_mut().filter(|child| child.ended.is_none() && child.id.pid != pid) else {
            return;
        };
        let before = child.id.pid;
        let named = crate::family::descendant(self.own.pid, pid).zip(start_ticks(pid));
        let Some((process, start_ticks)) = named else {
            return self.say(&format!(
                "MAINPID={pid}: not a descendant of this keeper; PID {before} remains the main process"
            ));
        };
        let id = ChildId { pid, start_ticks };
        child.take_main(id, process);
        self.say(&format!("PID {pid} is the main process now; it replaces PID {before}"));
        self.tell(&Event::Main(id));
    }

    fn signalled(&mut self) -> sys::Result<()> {
        while let Some(arrived) = self.signals.read()? {
            match arrived.signal {
                SIGCHLD => continue,
                // Another program has moved the log file.
                SIGHUP => {
                    self.log.reopen();
                    continue;
                }
                _ => {}
            }
            self.leaving = true;
            match &mut self.child {
                // An error means that the child is already gone.
                Some(child) => {
                    drop(child.signal(SIGTERM, Target::Group, None));
                    // A stopped process runs its signal handler only after SIGCONT.
                    drop(child.signal(SIGCONT, Target::Group, None));
                }
                None => self.over = true,
            }
        }
        self.reap()
    }

    /// Reaps the child and orphans that have ended.
    pub(super) fn reap(&mut self) -> sys::Result<()> {
        loop {
            match sys::child::look(-1, false)? {
                Waited::Ended(ended) => self.reaped(ended),
                Waited::Nothing | Waited::NoChildren => return Ok(()),
                Waited::Stopped(..) | Waited::Continued(_) => {}
            }
        }
    }

    fn status(&self) -> Status {
        let child = self.child.as_ref();
        Status {
            name: self.spec.launch.name.clone(),
            keeper: self.own,
            child: child.map(|child| child.id),
            held: self.held.as_ref().map(launch::HeldProcess::child),
            started: self.started,
            last_exit: self.last_exit.clone(),
            launch_error: self.launch_error.clone(),
            shortfalls: child.map(|child| child.shortfalls.clone()).unwrap_or_default(),
            starts: self.starts,
            ready: child.is_some_and(|child| child.ready),
            said: child.and_then(|child| child.said.clone()),
            interval: child.and_then(|child| child.interval),
            auto_restart: self.auto_restart,
            consoles: self.clients.iter().filter(|client| matches!(client.kind, Kind::Console { .. })).count() as u32,
            log_bytes_lost: self.log.lost(),
            console_bytes_lost: self.console_bytes_lost,
        }
    }
}

fn is_key(byte: u8) -> bool {
    matches!(byte, KILL_KEY | TOGGLE_KEY | START_KEY)
}
