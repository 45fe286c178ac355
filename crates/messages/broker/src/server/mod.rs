//! The message server.

mod allowance;
mod built_in;
mod checked;
mod config;
mod greetings;
mod lane;
mod log;
mod log_file;
mod places;
mod pools;
mod queued;
mod refusal;
mod refusals;
mod threads;

pub use crate::error::ServeError;
pub use config::{BandConfig, Config};
pub use log_file::LogLimit;

use crate::greeting::{BYTES_MAX, Hello, Welcome, socket_name};
use crate::memory::{self, Spares};
use crate::message_buffer::{MessageBuffer, Packing};
use crate::wake_gate::WakeGate;
use base::{DurNs, MonoNs, Tally};
use checked::Checked;
use greetings::{GREETINGS_MAX, Greetings};
use lane::{Change, Connection, LaneStatus, Return};
use log_file::LogFile;
use msg::{Band, Conn, Route, Subject, Tables};
use pools::{Lent, News, Pools};
use queued::Queued;
use refusal::Refusal;
use ring::{StreamReader, StreamWriter};
use rtrb::{Consumer, Producer};
use rustix::event::EventfdFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::mono_now;
use sys::handover::{Caller, Counter};
use threads::{Running, lane};

/// Minimum time between two reports of the tally.
const VALUE_EVERY: DurNs = DurNs::from_ms(20);
/// Maximum time between two rounds of the control thread, each of which writes the log and checks counters.
const ROUND: DurNs = DurNs::from_ms(50);
/// Capacity of the queue of changes to a lane.
const CHANGES: usize = 64;
/// Maximum time that the control thread waits for the lanes to apply changes.
const SETTLE: DurNs = DurNs::from_secs(1);
/// Minimum number of checks before that time counts: if the whole machine stopped, the lanes stopped too.
const SETTLE_LOOKS: u32 = 1_000;
/// Words of a lane's log queue (2 MiB), and of its queues to and from the control thread (512 KiB each).
const LOG_WORDS: usize = 1 << 18;
const CONTROL_WORDS: usize = 1 << 16;
/// A band's thread that finishes no round of its loop for longer than this hangs. It sleeps at most 0.1 s.
const HANGS_AFTER: DurNs = DurNs::from_secs(4);
type Inside = memory::Inside;

/// Event that the server reports to its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server is ready. Lists real-time properties that were not obtained.
    Ready(Vec<String>),
    /// A client or manager has connected.
    Joined(String),
    /// A client or manager has disconnected.
    Left(String),
    /// A connection was closed because it broke the rules of shared memory or messages.
    CutOff(String),
    /// A fault of the server itself.
    Trouble(String),
    /// A fault has ended.
    Mended(String),
    /// Tally of answers with a deadline so far, and the number of missed hard deadlines.
    Value(Tally, u64),
    /// The control thread has finished a round, with the present fault: bands' threads that hang, or a log that cannot be
    /// written. Rounds are at most 50 ms apart if nothing happens.
    Round(Option<String>),
}

/// The control thread's side of a lane.
struct Lanes {
    band: Band,
    gate: Arc<WakeGate>,
    changes: Producer<Change>,
    returns: Consumer<Return>,
    /// Taken from `returns` while changes were sent.
    back: Vec<Return>,
    to_control: StreamReader<Inside>,
    from_control: StreamWriter<Inside>,
    log: StreamReader<Inside>,
    /// Lost records that the log has already reported.
    lost: u64,
    seen: Arc<LaneStatus>,
    sent: u64,
}

/// A connected client or manager.
struct Peer {
    conn: Conn,
    /// A manager's channels for announcements of pools, one per band.
    news: Vec<News>,
    caller: Caller,
    name: Arc<str>,
    bands: Vec<Band>,
    since: MonoNs,
}

/// A watch of a client.
struct Watcher {
    conn: Conn,
    band: Band,
    id: u64,
    user: u32,
    objects: String,
    verbs: String,
}

/// State of the control thread. It knows all connections and never blocks on a single one.
struct Control<'a> {
    name: String,
    began: MonoNs,
    counter: Counter,
    bell: Arc<OwnedFd>,
    lanes: Vec<Lanes>,
    peers: Vec<Option<Peer>>,
    turns: Vec<u32>,
    spares: Spares,
    pools: Pools,
    greetings: Greetings,
    tables: Tables,
    watchers: Vec<Watcher>,
    log: Option<LogFile>,
    reopen_log: Arc<AtomicBool>,
    /// Text to be written to the log.
    text: String,
    clock: log::Clock,
    unseen_events: u64,
    /// Number of refusals because a user, or all users, had reached their share.
    over_share: u64,
    /// Accepting connections fails, and this was reported.
    accept_failed: bool,
    /// Number of naps at the last report, and its time.
    naps_told: (u64, MonoNs),
    /// Tally at the last report, and its time.
    value_told: (Tally, MonoNs),
    packing: Packing,
    say: &'a mut dyn FnMut(Event),
}

/// Serves until `stop` is set.
///
/// # Errors
/// Another server has this name, the log cannot be written, or threads or memory are unavailable.
pub fn serve(config: Config, stop: &Arc<AtomicBool>, say: &mut dyn FnMut(Event)) -> Result<(), ServeError> {
    let socket = socket_name(&config.name);
    let counter = Counter::open(&socket).map_err(|source| ServeError::Name { name: config.name.clone(), source })?;
    let log = config.log.as_ref().map(|path| {
        let file = LogFile::open(path.clone(), config.log_limit);
        file.map_err(|source| ServeError::Log { path: path.clone(), source })
    });
    let log = log.transpose()?;
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let bell = Arc::new(bell.map_err(|errno| sys::Error { doing: "make an eventfd".to_owned(), errno })?);
    let mut tables = Tables::default();
    tables.rules.clone_from(&config.rules);
    tables.deadlines.clone_from(&config.deadlines);
    let mut threads = Vec::new();
    let mut lanes = Vec::new();
    // The lanes end after the control thread, which waits for them whenever a client disconnects.
    let lanes_stop = Arc::new(AtomicBool::new(false));
    for band in Band::all() {
        let (thread, lane) = lane(&config, band, &tables, &bell, &lanes_stop)?;
        threads.push(thread);
        lanes.push(lane);
    }
    let running = Running::start(&config, threads, &lanes_stop)?;
    say(Event::Ready(running.missing()?));
    if let Some(shortfall) = counter.shortfall() {
        say(Event::Trouble(shortfall.to_owned()));
    }
    if let Err(why) = places::raise_files(config.limits.conns) {
        say(Event::Trouble(why.to_string()));
    }
    let mut control = Control {
        name: config.name,
        began: mono_now(),
        counter,
        bell,
        lanes,
        peers: (0..config.limits.conns).map(|_| None).collect(),
        turns: vec![0; config.limits.conns],
        spares: Spares::default(),
        pools: Pools::default(),
        greetings: Greetings::default(),
        tables,
        watchers: Vec::new(),
        log,
        reopen_log: config.reopen_log,
        text: String::with_capacity(2 * log::LOG_BYTES),
        clock: log::Clock::default(),
        unseen_events: 0,
        over_share: 0,
        accept_failed: false,
        naps_told: (0, MonoNs(0)),
        value_told: (Tally::default(), MonoNs(0)),
        packing: Packing::new(),
        say,
    };
    let mut buffer = MessageBuffer::new();
    while !stop.load(Ordering::Relaxed) {
        control.round(&mut buffer);
        let fault = control.log_fault();
        (control.say)(Event::Round(fault));
    }
    lanes_stop.store(true, Ordering::Relaxed);
    control.lanes.iter().for_each(|lane| lane.gate.wake());
    running.join();
    // Last attempt to write a log that could not be written.
    control.log.iter_mut().for_each(LogFile::hurry);
    while control.write_log() {}
    let fault = control.log_fault();
    (control.say)(Event::Round(fault));
    Ok(())
}

impl Control<'_> {
    /// The present fault of the message log.
    fn log_fault(&self) -> Option<String> {
        self.log.as_ref().and_then(LogFile::fault)
    }

    /// Waits for work, and does it.
    fn round(&mut self, buffer: &mut MessageBuffer) {
        // While accepting fails, a waiting connection would wake this thread again at once.
        let callers = if self.accept_failed { self.bell.as_fd() } else { self.counter.as_fd() };
        let mut fds: Vec<BorrowedFd<'_>> = vec![callers, self.bell.as_fd()];
        fds.extend(self.greetings.fds());
        let first_peer = fds.len();
        let slots: Vec<usize> = (0..self.peers.len()).filter(|slot| self.peers[*slot].is_some()).collect();
        fds.extend(self.peers.iter().flatten().map(|peer| peer.caller.connection.as_fd()));
        let ready = sys::poll::readable(&fds, ROUND);
        drop(fds);
        // A bell that was not rung returns EAGAIN.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8][..]);
        let mut more = self.requests(buffer);
        self.returns();
        self.tell_pools();
        self.tell_naps();
        self.tell_value();
        more |= self.write_log();
        if more {
            lane::wake_control(&self.bell);
        }
        // Peers send nothing after the greeting: a readable connection has been closed.
        for (slot, _) in slots.iter().zip(&ready[first_peer..]).filter(|(_, ready)| **ready) {
            self.leave(*slot);
        }
        let now = mono_now();
        for caller in self.greetings.hear(now, &ready[2..first_peer]) {
            self.greet(caller);
        }
        // A connection that sends no greeting must not keep others from connecting.
        for _ in 0..GREETINGS_MAX {
            if self.greetings.is_full() {
                if !ready[0] || !self.greetings.hang_up_on_one() {
                    break;
                }
                self.over_share += 1;
            }
            match self.counter.accept_anyone() {
                Ok(Some(caller)) => self.greetings.push(caller, now),
                Ok(None) => {
                    self.accept_failed = false;
                    break;
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.accept_failed, true) {
                        (self.say)(Event::Trouble(error.to_string()));
                    }
                    break;
                }
            }
        }
    }

    /// Reads a greeting, and connects the client or answers with the reason for a refusal.
    fn greet(&mut self, caller: Caller) {
        if let Err(why) = self.try_greet(&caller) {
            let text = serde_json::to_vec(&Welcome::Refused(why.to_string())).unwrap_or_default();
            // A client that has gone needs no answer.
            let _ = sys::handover::send(caller.connection.as_fd(), &text, &[]);
        }
    }

    fn try_greet(&mut self, caller: &Caller) -> Result<(), Refusal> {
        let mut bytes = vec![0; BYTES_MAX];
        let received = sys::handover::receive(caller.connection.as_fd(), &mut bytes)?;
        let Some((length, _)) = received else { return Err(Refusal::Gone) };
        let hello = Hello::read(&bytes[..length])?;
        let hello = Checked::new(hello)?;
        if !hello.serves.is_empty() && !caller.is_ours() {
            return Err(Refusal::MayNotServe(caller.uid));
        }
        if !hello.host.is_empty() && !caller.is_ours() {
            return Err(Refusal::MayNotSpeak(caller.uid));
        }
        self.admit(caller.uid, hello.bands.len())?;
        let slot = self.peers.iter().position(Option::is_none).ok_or(Refusal::NoPlace)?;
        self.turns[slot] = self.turns[slot].wrapping_add(1);
        let conn = Conn { slot: slot as u32, turn: self.turns[slot] };
        let name: Arc<str> = hello.name.as_str().into();
        let mut tables = self.tables.clone();
        let host = match &*hello.host {
            "" => 0,
            host => tables.number(host).ok_or_else(|| Refusal::Hosts(host.to_owned()))?,
        };
        for prefix in &hello.serves {
            let bands = hello.bands.iter().fold(0, |bands, band| bands | 1 << band.number());
            let route = Route { prefix: prefix.clone(), to: conn, manager: hello.name.clone(), bands };
            tables
                .add_route(route)
                .map_err(|taken| Refusal::Claimed { prefix: prefix.clone(), manager: taken.manager })?;
        }
        let connection = caller.connection.try_clone().map_err(Refusal::Socket)?;
        let subject = Subject { uid: caller.uid, pid: caller.pid as u32, host };
        let pool = match hello.serves.is_empty() && hello.pool > 0 {
            true => Some(self.pools.take(subject.uid, &hello.bands, hello.pool).inspect_err(|_| self.over_share += 1)?),
            false => None,
        };
        let connected = self.connect(conn, &hello, subject, &connection, pool.map(|(pool, _)| pool));
        let news = connected.inspect_err(|_| {
            self.disconnect(conn, &name, &hello.bands);
            pool.iter().for_each(|(pool, _)| self.pools.forget(pool.number));
        })?;
        if let Some((pool, true)) = pool {
            let lanes = self.peers.iter_mut().flatten().flat_map(|peer| &mut peer.news);
            lanes.for_each(|news| news.add(&hello.bands, pool.number));
            self.tell_pools();
        }
        if tables != self.tables {
            self.tables = tables;
            self.spread();
        }
        self.settle();
        let ready = serde_json::to_vec(&Welcome::Ready).unwrap_or_default();
        // If the client has gone, the next round notices it.
        let _ = sys::handover::send(connection.as_fd(), &ready, &[]);
        let caller = Caller { connection, pid: caller.pid, uid: caller.uid };
        (self.say)(Event::Joined(format!("{} (user {}, process {})", hello.name, caller.uid, caller.pid)));
        self.peers[slot] = Some(Peer { conn, news, caller, name, bands: hello.bands, since: mono_now() });
        Ok(())
    }

    /// Adds a connection to each of its bands, and sends the descriptors of its queues. Returns a manager's channels
    /// for pools.
    fn connect(
        &mut self,
        conn: Conn,
        hello: &Checked,
        subject: Subject,
        socket: &OwnedFd,
        pool: Option<Lent>,
    ) -> Result<Vec<News>, Refusal> {
        let name: Arc<str> = hello.name.as_str().into();
        let mut news = Vec::new();
        for band in &hello.bands {
            let memory = self.spares.take(subject.uid)?;
            let [up, down] = memory::format(&memory)?;
            let lane = &mut self.lanes[usize::from(band.number())];
            let (up, down) = (up.reader(), down.writer());
            let (name, serves, fd) = (name.clone(), !hello.serves.is_empty(), memory.clone());
            let queued = if serves { Queued::of_manager() } else { Queued::of_no_manager() };
            let connection = Connection {
                conn,
                subject,
                name,
                serves,
                pool,
                memory,
                up,
                down,
                queued,
                put: false,
                broken: None,
                heard: (0, 0),
            };
            lane.change(Change::Join(Box::new(connection)));
            let lane = &self.lanes[usize::from(band.number())];
            let welcome = serde_json::to_vec(&Welcome::Band(band.number())).unwrap_or_default();
            let mut fds = vec![fd.fd(), lane.gate.fd()];
            fds.extend(pool.and_then(|pool| self.pools.fd(pool.number)));
            let far = match serves && hello.pool > 0 {
                true => {
                    let [near, far] = sys::handover::pair()?;
                    let mut lane_news = News::new(*band, near, &self.pools);
                    lane_news.tell(&self.pools);
                    news.push(lane_news);
                    Some(far)
                }
                false => None,
            };
            fds.extend(far.as_ref().map(AsFd::as_fd));
            sys::handover::send(socket.as_fd(), &welcome, &fds)?;
        }
        Ok(news)
    }

    /// Removes a connection from its bands.
    fn disconnect(&mut self, conn: Conn, name: &Arc<str>, bands: &[Band]) {
        for lane in self.lanes.iter_mut().filter(|lane| bands.contains(&lane.band)) {
            lane.change(Change::Gone(conn, name.clone()));
        }
    }

    /// Tally of answers with a deadline on all bands, and the number of missed hard deadlines.
    fn value(&self) -> (Tally, u64) {
        let all = self.lanes.iter().map(|lane| lane.seen.value());
        all.fold((Tally::default(), 0), |(tally, missed), (more, hard)| (tally.plus(more), missed + hard))
    }

    /// Reports the tally if it has changed.
    fn tell_value(&mut self) {
        let ((tally, hard), now) = (self.value(), mono_now());
        if tally != self.value_told.0 && now - self.value_told.1 >= VALUE_EVERY {
            self.value_told = (tally, now);
            (self.say)(Event::Value(tally, hard));
        }
    }

    /// Announces pools to managers that do not know them yet.
    fn tell_pools(&mut self) {
        self.peers.iter_mut().flatten().flat_map(|peer| &mut peer.news).for_each(|news| news.tell(&self.pools));
    }

    /// Removes a peer that has disconnected.
    fn leave(&mut self, slot: usize) {
        let Some(peer) = self.peers[slot].take() else { return };
        // Before the routes are removed, so that the lanes still know the name.
        self.disconnect(peer.conn, &peer.name, &peer.bands);
        let before = self.tables.clone();
        self.tables.forget(peer.conn);
        self.watchers.retain(|watcher| watcher.conn != peer.conn);
        self.tables.watched = [!self.watchers.is_empty(); msg::BANDS];
        if self.tables != before {
            self.spread();
        }
        self.settle();
        self.returns();
        (self.say)(Event::Left(peer.name.to_string()));
    }

    /// Sends the current tables to all lanes.
    fn spread(&mut self) {
        for lane in &mut self.lanes {
            lane.change(Change::Tables(Arc::new(self.tables.clone())));
        }
    }

    /// Waits until all lanes have applied their changes, so that the next answer holds on every band. Returns `false`
    /// after 1 s.
    fn settle(&mut self) -> bool {
        let (until, mut looks) = (mono_now() + SETTLE, 0);
        while self.lanes.iter().any(|lane| lane.seen.adopted.load(Ordering::Acquire) < lane.sent) {
            looks += 1;
            if mono_now() > until && looks > SETTLE_LOOKS {
                (self.say)(Event::Trouble(
                    "a lane has not taken over its tables within 1s: its class or CPU starves it".into(),
                ));
                return false;
            }
            self.lanes.iter().for_each(|lane| lane.gate.wake());
            sys::clock::sleep_until(mono_now() + DurNs::from_us(50));
        }
        true
    }

    /// Frees what the lanes return, and closes connections that they no longer serve.
    fn returns(&mut self) {
        let mut broken = Vec::new();
        for lane in &mut self.lanes {
            while let Ok(back) = lane.returns.pop() {
                lane.back.push(back);
            }
            for back in lane.back.drain(..) {
                match back {
                    Return::Broken(conn, why) => broken.push((conn, why)),
                    Return::Tables(tables) => drop(tables),
                    Return::Connection(connection, lost) => {
                        let lost = lost || connection.broken.is_some();
                        connection.pool.iter().for_each(|pool| self.pools.give_back(pool.number, lost));
                        self.spares.keep_queues(*connection);
                    }
                    Return::Refused(connection) => {
                        broken.push((connection.conn, "its place was taken".to_owned()));
                        connection.pool.iter().for_each(|pool| self.pools.forget(pool.number));
                        self.spares.keep_queues(*connection);
                    }
                }
            }
        }
        for (conn, why) in broken {
            let slot = conn.slot as usize;
            if let Some(peer) = self.peers.get(slot).and_then(Option::as_ref).filter(|peer| peer.conn == conn) {
                (self.say)(Event::CutOff(format!("{} (process {}): {why}", peer.name, peer.caller.pid)));
                sys::handover::hang_up(peer.caller.connection.as_fd());
                self.leave(slot);
            }
        }
    }
}

impl Spares {
    /// Keeps the memory of a closed connection for reuse.
    fn keep_queues(&mut self, Connection { memory, subject, broken, .. }: Connection) {
        self.keep(broken.is_none().then_some(subject.uid), memory);
    }
}

impl Lanes {
    /// Sends a change to the lane. Waits while the queue is full.
    fn change(&mut self, change: Change) {
        let mut change = Some(change);
        while let Some(next) = change.take() {
            if let Err(rtrb::PushError::Full(back)) = self.changes.push(next) {
                change = Some(back);
                while let Ok(back) = self.returns.pop() {
                    self.back.push(back);
                }
                self.gate.wake();
                sys::clock::sleep_until(mono_now() + DurNs::from_us(50));
            }
        }
        self.sent += 1;
        self.gate.wake();
    }
}
