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
use lane::{Change, Connection, Return, Seen};
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

/// How often it is told what answers were worth.
const VALUE_EVERY: DurNs = DurNs::from_ms(20);
/// How often the log is written and counters are looked at.
const ROUND: DurNs = DurNs::from_ms(50);
/// Changes on their way to a lane.
const CHANGES: usize = 64;
/// Longest that the control thread waits for lanes to take over tables.
const SETTLE: DurNs = DurNs::from_secs(1);
/// And how often it looks at least: a machine that stopped for that long has stopped the lanes too.
const SETTLE_LOOKS: u32 = 1_000;
/// Room of a lane's log in words, 2 MiB, and of its queues to and from the control thread, 512 KiB each.
const LOG_WORDS: usize = 1 << 18;
const CONTROL_WORDS: usize = 1 << 16;
type Inside = memory::Inside;

/// What the server tells its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It serves from now on; what real-time properties were not obtained.
    Ready(Vec<String>),
    /// Somebody has come.
    Joined(String),
    /// Somebody has gone.
    Left(String),
    /// Somebody was cut off for breaking the rules of shared memory or messages.
    CutOff(String),
    /// Something of the server itself does not work.
    Trouble(String),
    /// Something that did not work does again.
    Mended(String),
    /// What the answers with a deadline were worth so far, and how many hard deadlines were missed.
    Value(Tally, u64),
    /// The control thread has gone round once more, at most every 50 ms if nothing happens.
    Round,
}

/// A lane, as the control thread sees it.
struct Lanes {
    band: Band,
    gate: Arc<WakeGate>,
    changes: Producer<Change>,
    returns: Consumer<Return>,
    /// Taken from `returns` while there was something to change.
    back: Vec<Return>,
    to_control: StreamReader<Inside>,
    from_control: StreamWriter<Inside>,
    log: StreamReader<Inside>,
    /// Records that found no room, as far as the log says so.
    lost: u64,
    seen: Arc<Seen>,
    sent: u64,
}

/// Somebody who is connected.
struct Peer {
    conn: Conn,
    /// Where the lanes of a manager hear of pools.
    news: Vec<News>,
    caller: Caller,
    name: Arc<str>,
    bands: Vec<Band>,
    since: MonoNs,
}

/// Somebody who watches.
struct Watcher {
    conn: Conn,
    band: Band,
    id: u64,
    user: u32,
    objects: String,
    verbs: String,
}

/// The part of the server that knows everybody and waits for nobody in particular.
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
    /// What is to be written to it.
    text: String,
    clock: log::Clock,
    unseen_events: u64,
    /// How often somebody was refused something of which its user, or all, had as much as they may.
    over_share: u64,
    /// The kernel lets nobody in, which was told.
    accept_failed: bool,
    /// What bands burnt beyond their allowance, as far as it was told, and when.
    naps_told: (u64, MonoNs),
    /// What answers were worth, as far as it was told, and when.
    value_told: (Tally, MonoNs),
    packing: Packing,
    say: &'a mut dyn FnMut(Event),
}

/// Serves until `stop` is set.
///
/// # Errors
/// Somebody else serves under this name, the log cannot be written, or threads or memory cannot be had.
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
    // The lanes end after the control thread, which waits for them whenever somebody goes.
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
        (control.say)(Event::Round);
    }
    lanes_stop.store(true, Ordering::Relaxed);
    control.lanes.iter().for_each(|lane| lane.gate.wake());
    running.join();
    // Its last chance, where it could not be written.
    control.log.iter_mut().for_each(LogFile::hurry);
    while control.write_log() {}
    Ok(())
}

impl Control<'_> {
    /// Waits until something is to be done, and does it.
    fn round(&mut self, buffer: &mut MessageBuffer) {
        // Who waits while nobody can be let in would wake this thread again at once.
        let callers = if self.accept_failed { self.bell.as_fd() } else { self.counter.as_fd() };
        let mut fds: Vec<BorrowedFd<'_>> = vec![callers, self.bell.as_fd()];
        fds.extend(self.greetings.fds());
        let first_peer = fds.len();
        let slots: Vec<usize> = (0..self.peers.len()).filter(|slot| self.peers[*slot].is_some()).collect();
        fds.extend(self.peers.iter().flatten().map(|peer| peer.caller.connection.as_fd()));
        let ready = sys::poll::readable(&fds, ROUND);
        drop(fds);
        // A bell that was not rung reads as EAGAIN.
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
        // Nothing is said after the greeting: who is readable has gone.
        for (slot, _) in slots.iter().zip(&ready[first_peer..]).filter(|(_, ready)| **ready) {
            self.leave(*slot);
        }
        let now = mono_now();
        for caller in self.greetings.hear(now, &ready[2..first_peer]) {
            self.greet(caller);
        }
        // One who says nothing, at the greeting, must not keep others from coming.
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

    /// Hears who somebody is, and gives it its queues.
    fn greet(&mut self, caller: Caller) {
        if let Err(why) = self.try_greet(&caller) {
            let text = serde_json::to_vec(&Welcome::Refused(why.to_string())).unwrap_or_default();
            // Who has gone meanwhile needs no answer.
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
        // Whoever has gone meanwhile is found gone in the next round.
        let _ = sys::handover::send(connection.as_fd(), &ready, &[]);
        let caller = Caller { connection, pid: caller.pid, uid: caller.uid };
        (self.say)(Event::Joined(format!("{} (user {}, process {})", hello.name, caller.uid, caller.pid)));
        self.peers[slot] = Some(Peer { conn, news, caller, name, bands: hello.bands, since: mono_now() });
        Ok(())
    }

    /// Gives somebody a place on each of its bands, and what it needs to use it; what tells a manager of pools.
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
            let queued = if serves { Queued::of_manager() } else { Queued::of_nobody() };
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

    /// Takes somebody's places back.
    fn disconnect(&mut self, conn: Conn, name: &Arc<str>, bands: &[Band]) {
        for lane in self.lanes.iter_mut().filter(|lane| bands.contains(&lane.band)) {
            lane.change(Change::Gone(conn, name.clone()));
        }
    }

    /// What answers with a deadline were worth on all bands, and hard deadlines that were missed.
    fn value(&self) -> (Tally, u64) {
        let all = self.lanes.iter().map(|lane| lane.seen.value());
        all.fold((Tally::default(), 0), |(tally, missed), (more, hard)| (tally.plus(more), missed + hard))
    }

    /// Tells what answers were worth where that is new.
    fn tell_value(&mut self) {
        let ((tally, hard), now) = (self.value(), mono_now());
        if tally != self.value_told.0 && now - self.value_told.1 >= VALUE_EVERY {
            self.value_told = (tally, now);
            (self.say)(Event::Value(tally, hard));
        }
    }

    /// Tells managers of the pools that they do not know yet.
    fn tell_pools(&mut self) {
        self.peers.iter_mut().flatten().flat_map(|peer| &mut peer.news).for_each(|news| news.tell(&self.pools));
    }

    /// Forgets somebody who has gone.
    fn leave(&mut self, slot: usize) {
        let Some(peer) = self.peers[slot].take() else { return };
        // Before the routes go, so that the lanes still know the name.
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

    /// Gives the tables as they are now to all lanes.
    fn spread(&mut self) {
        for lane in &mut self.lanes {
            lane.change(Change::Tables(Arc::new(self.tables.clone())));
        }
    }

    /// Waits until all lanes have taken over what was given to them, so that what is answered next holds everywhere.
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

    /// Frees what the lanes give back, and ends connections that they do not hear any more.
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
    /// Keeps the memory of somebody who has gone.
    fn keep_queues(&mut self, Connection { memory, subject, broken, .. }: Connection) {
        self.keep(broken.is_none().then_some(subject.uid), memory);
    }
}

impl Lanes {
    /// Gives the lane something to change.
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
