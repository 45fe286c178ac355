//! The message server.

mod config;
mod desk;
mod lane;
mod log;

pub use config::{BandConfig, Config};

use crate::door::Door;
use crate::greeting::{BYTES_MAX, CLAIMS_MAX, Hello, Welcome, socket_name};
use crate::memory::{self, Spares};
use crate::parcel::{Packing, Parcel};
use crate::pool::{ALIGNED, POOL_BYTES_MAX, POOLS_BYTES_MAX};
use base::{DurNs, MonoNs};
use lane::{Change, LaneThread, Return, Seat, Seen};
use msg::{Band, Conn, Lane, Line, Object, Route, Subject, Tables};
use ring::{Stream, StreamReader, StreamWriter};
use rt::{LoopSpec, Rt};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::EventfdFlags;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::mono_now;
use sys::handover::{Caller, Counter};
use sys::shm::SharedWords;

/// How often the log is written and counters are looked at.
const ROUND: DurNs = DurNs::from_ms(50);
/// Changes on their way to a lane.
const CHANGES: usize = 64;
/// Longest that the desk waits for lanes to take over tables.
const SETTLE: DurNs = DurNs::from_secs(1);
/// How long somebody may take to introduce itself, and how many may be at that.
const GREETING: DurNs = DurNs::from_secs(2);
const GREETINGS_MAX: usize = 64;
/// Room of a lane's log in words, 2 MiB, and of its queues to and from the desk, 512 KiB each.
const LOG_WORDS: usize = 1 << 18;
const DESK_WORDS: usize = 1 << 16;
/// Records taken from one band's log before the others have their turn, such turns before all else has its own, and bytes
/// that are written at once.
const LOG_TURN: usize = 64;
const LOG_TURNS: usize = 64;
const LOG_BYTES: usize = 1 << 16;

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
}

/// A lane, as the desk sees it.
struct Lanes {
    band: Band,
    door: Arc<Door>,
    changes: Producer<Change>,
    returns: Consumer<Return>,
    /// Taken from `returns` while there was something to change.
    back: Vec<Return>,
    to_desk: StreamReader<Inside>,
    from_desk: StreamWriter<Inside>,
    log: StreamReader<Inside>,
    /// Records that found no room, as far as the log says so.
    lost: u64,
    seen: Arc<Seen>,
    sent: u64,
}

/// Somebody who is connected.
struct Peer {
    conn: Conn,
    /// A client's pool.
    pool: Option<Pool>,
    /// Where the lanes of a manager hear of pools.
    news: Vec<(Band, OwnedFd)>,
    caller: Caller,
    name: Arc<str>,
    bands: Vec<Band>,
    since: MonoNs,
}

/// A client's pool, which this process never maps.
struct Pool {
    fd: OwnedFd,
    bytes: u64,
}

/// Somebody who watches.
struct Watcher {
    conn: Conn,
    band: Band,
    id: u64,
    objects: String,
    verbs: String,
}

/// The part of the server that knows everybody and waits for nobody in particular.
struct Desk<'a> {
    name: String,
    began: MonoNs,
    counter: Counter,
    bell: Arc<OwnedFd>,
    lanes: Vec<Lanes>,
    peers: Vec<Option<Peer>>,
    turns: Vec<u32>,
    spares: Spares,
    greetings: Vec<(Caller, MonoNs)>,
    tables: Tables,
    watchers: Vec<Watcher>,
    log: Option<File>,
    /// What is to be written to it.
    text: String,
    unseen_events: u64,
    packing: Packing,
    say: &'a mut dyn FnMut(Event),
}

/// Serves until `stop` is set.
///
/// # Errors
/// Somebody else serves under this name, the log cannot be written, or threads or memory cannot be had.
pub fn serve(config: Config, stop: &Arc<AtomicBool>, say: &mut dyn FnMut(Event)) -> Result<(), String> {
    let text = |error: sys::Error| error.to_string();
    let socket = socket_name(&config.name);
    let counter = Counter::open(&socket).map_err(|error| {
        format!("{error}; another message server {:?} runs, or give this one another name", config.name)
    })?;
    let log = config.log.as_ref().map(|path| {
        let file = File::options().create(true).append(true).open(path);
        file.map_err(|error| format!("message log {}: {error}", path.display()))
    });
    let log = log.transpose()?;
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let bell = Arc::new(bell.map_err(|error| format!("make an eventfd: {error}"))?);
    let mut tables = Tables::default();
    tables.rules.clone_from(&config.rules);
    let mut threads = Vec::new();
    let mut lanes = Vec::new();
    for band in Band::all() {
        let (thread, lane) = lane(&config, band, &tables, &bell, stop).map_err(text)?;
        threads.push(thread);
        lanes.push(lane);
    }
    let running = Running::start(&config, threads, stop)?;
    say(Event::Ready(running.missing()));
    let mut desk = Desk {
        name: config.name,
        began: mono_now(),
        counter,
        bell,
        lanes,
        peers: (0..config.limits.conns).map(|_| None).collect(),
        turns: vec![0; config.limits.conns],
        spares: Spares::default(),
        greetings: Vec::new(),
        tables,
        watchers: Vec::new(),
        log,
        text: String::with_capacity(2 * LOG_BYTES),
        unseen_events: 0,
        packing: Packing::new(),
        say,
    };
    let mut parcel = Parcel::new();
    while !stop.load(Ordering::Relaxed) {
        desk.round(&mut parcel);
    }
    desk.lanes.iter().for_each(|lane| lane.door.knock());
    running.join();
    while desk.write_log() {}
    Ok(())
}

/// A lane's thread and what the desk keeps of it.
fn lane(
    config: &Config,
    band: Band,
    tables: &Tables,
    bell: &Arc<OwnedFd>,
    stop: &Arc<AtomicBool>,
) -> sys::Result<(LaneThread, Lanes)> {
    let both = |room| {
        let words = memory::inside(room);
        let first = Stream::format(words.clone()).expect("long enough");
        let second = Stream::attach(words).expect("just made");
        (first.writer(), second.reader())
    };
    let (changes, changes_in) = RingBuffer::new(CHANGES);
    let (returns, returns_in) = RingBuffer::new(CHANGES);
    let ((to_desk, to_desk_in), (from_desk, from_desk_in), (log, log_in)) =
        (both(DESK_WORDS), both(DESK_WORDS), both(LOG_WORDS));
    let (door, seen) = (Arc::new(Door::new()?), Arc::new(Seen::default()));
    let thread = LaneThread {
        lane: Lane::new(config.limits, Arc::new(tables.clone())),
        door: door.clone(),
        seats: (0..config.limits.conns).map(|_| None).collect(),
        used: 0,
        changes: changes_in,
        returns,
        to_desk,
        from_desk: from_desk_in,
        log,
        logged: 0,
        desk_bell: bell.clone(),
        seen: seen.clone(),
        stop: stop.clone(),
        line: Line::new(),
        packing: Packing::new(),
    };
    let seen_by_desk = Lanes {
        band,
        door,
        changes,
        returns: returns_in,
        back: Vec::new(),
        to_desk: to_desk_in,
        from_desk,
        log: log_in,
        lost: 0,
        seen,
        sent: 0,
    };
    Ok((thread, seen_by_desk))
}

/// The threads of the lanes: plain ones, or a real-time part where the configuration asks for that.
enum Running {
    Plain(Vec<std::thread::JoinHandle<()>>),
    RealTime(Rt<rt::Armed>),
}

impl Running {
    fn start(config: &Config, threads: Vec<LaneThread>, stop: &Arc<AtomicBool>) -> Result<Self, String> {
        let name = |at: usize| format!("band-{at}");
        if config.bands.iter().all(|band| band.class.is_none() && band.cpu.is_none()) {
            let spawned = threads
                .into_iter()
                .enumerate()
                .map(|(at, thread)| std::thread::Builder::new().name(name(at)).spawn(move || thread.run()));
            let spawned: Result<Vec<_>, _> = spawned.collect();
            return spawned.map(Self::Plain).map_err(|error| {
                stop.store(true, Ordering::Relaxed);
                format!("start a thread: {error}")
            });
        }
        let mut rt = Rt::new();
        for (at, thread) in threads.into_iter().enumerate() {
            let wanted = config.bands.iter().find(|wanted| usize::from(wanted.band.number()) == at);
            let spec = LoopSpec::new(name(at), ROUND);
            let (class, cpu) = wanted.map_or((None, None), |wanted| (wanted.class, wanted.cpu));
            let entry = wanted.and_then(|wanted| wanted.entry.clone());
            rt.add_task(LoopSpec { class, cpu, entry, ..spec }, move || thread.run());
        }
        let mut armed = rt.arm().map_err(|error| error.to_string())?;
        armed.start(DurNs::ZERO);
        Ok(Self::RealTime(armed))
    }

    fn missing(&self) -> Vec<String> {
        match self {
            Self::Plain(_) => Vec::new(),
            Self::RealTime(armed) => armed.missing().map(ToString::to_string).collect(),
        }
    }

    fn join(self) {
        match self {
            Self::Plain(threads) => threads.into_iter().for_each(|thread| {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }),
            Self::RealTime(mut armed) => armed.stop(),
        }
    }
}

impl Desk<'_> {
    /// Waits until something is to be done, and does it.
    fn round(&mut self, parcel: &mut Parcel) {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.counter.as_fd(), self.bell.as_fd()];
        fds.extend(self.greetings.iter().map(|(caller, _)| caller.connection.as_fd()));
        let first_peer = fds.len();
        let slots: Vec<usize> = (0..self.peers.len()).filter(|slot| self.peers[*slot].is_some()).collect();
        fds.extend(self.peers.iter().flatten().map(|peer| peer.caller.connection.as_fd()));
        let ready = sys::poll::readable(&fds, ROUND);
        drop(fds);
        // A bell that was not rung reads as EAGAIN.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8][..]);
        self.requests(parcel);
        self.returns();
        if self.write_log() {
            lane::ring_desk(&self.bell);
        }
        // Nothing is said after the greeting: who is readable has gone.
        for (slot, _) in slots.iter().zip(&ready[first_peer..]).filter(|(_, ready)| **ready) {
            self.leave(*slot);
        }
        let now = mono_now();
        for at in (0..self.greetings.len()).rev() {
            if ready[2 + at] {
                let (caller, _) = self.greetings.swap_remove(at);
                self.greet(caller);
            } else if now - self.greetings[at].1 > GREETING {
                self.greetings.swap_remove(at);
            }
        }
        while self.greetings.len() < GREETINGS_MAX {
            match self.counter.accept_anyone() {
                Ok(Some(caller)) => self.greetings.push((caller, now)),
                Ok(None) => break,
                Err(error) => {
                    (self.say)(Event::Trouble(error.to_string()));
                    break;
                }
            }
        }
    }

    /// Hears who somebody is, and gives it its queues.
    fn greet(&mut self, caller: Caller) {
        if let Err(why) = self.try_greet(&caller) {
            let text = serde_json::to_vec(&Welcome::Refused(why)).unwrap_or_default();
            // Who has gone meanwhile needs no answer.
            let _ = sys::handover::send(caller.connection.as_fd(), &text, &[]);
        }
    }

    fn try_greet(&mut self, caller: &Caller) -> Result<(), String> {
        let mut bytes = [0; BYTES_MAX];
        let text = |error: sys::Error| error.to_string();
        let received = sys::handover::receive(caller.connection.as_fd(), &mut bytes).map_err(text)?;
        let Some((length, _)) = received else { return Err("it went away".to_owned()) };
        let hello = Hello::read(&bytes[..length])?;
        let hello = Checked::new(hello)?;
        if !hello.serves.is_empty() && !caller.is_ours() {
            return Err(format!(
                "user {} may not serve objects here; only the server's own user and root may",
                caller.uid
            ));
        }
        if !hello.host.is_empty() && !caller.is_ours() {
            return Err(format!(
                "user {} may not speak for other hosts; only the server's own user and root may",
                caller.uid
            ));
        }
        let slot = self.peers.iter().position(Option::is_none);
        let slot =
            slot.ok_or_else(|| format!("{} are connected already, more than that are not served", self.peers.len()))?;
        self.turns[slot] = self.turns[slot].wrapping_add(1);
        let conn = Conn { slot: slot as u32, turn: self.turns[slot] };
        let name: Arc<str> = hello.name.as_str().into();
        let mut tables = self.tables.clone();
        let host = match &*hello.host {
            "" => 0,
            host => tables.number(host).ok_or_else(|| format!("host {host}: too many others are known already"))?,
        };
        for prefix in &hello.serves {
            let bands = hello.bands.iter().fold(0, |bands, band| bands | 1 << band.number());
            let route = Route { prefix: prefix.clone(), to: conn, manager: hello.name.clone(), bands };
            tables
                .add_route(route)
                .map_err(|taken| format!("{prefix} is served by manager {} already", taken.manager))?;
        }
        let connection = caller.connection.try_clone().map_err(|error| error.to_string())?;
        let subject = Subject { uid: caller.uid, pid: caller.pid as u32, host };
        let is_manager = !hello.serves.is_empty();
        let pool = if is_manager { None } else { self.pool(hello.pool)? };
        let seated = self.seat(conn, &hello, subject, &connection, pool.as_ref());
        let news = seated.inspect_err(|_| self.unseat(conn, &name, &hello.bands))?;
        if let Some(pool) = &pool {
            let lanes = self.peers.iter().flatten().flat_map(|peer| &peer.news);
            let heard = lanes.filter(|(band, _)| hello.bands.contains(band));
            heard.for_each(|(_, news)| tell_pool(news, conn, pool));
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
        self.peers[slot] = Some(Peer { conn, pool, news, caller, name, bands: hello.bands, since: mono_now() });
        Ok(())
    }

    /// Gives somebody a place on each of its bands, and what it needs to use it; what tells a manager of pools.
    fn seat(
        &mut self,
        conn: Conn,
        hello: &Checked,
        subject: Subject,
        connection: &OwnedFd,
        pool: Option<&Pool>,
    ) -> Result<Vec<(Band, OwnedFd)>, String> {
        let text = |error: sys::Error| error.to_string();
        let name: Arc<str> = hello.name.as_str().into();
        let mut news = Vec::new();
        for band in &hello.bands {
            let memory = self.spares.take(subject.uid).map_err(text)?;
            let [up, down] = memory::format(&memory).map_err(|error| error.to_string())?;
            let lane = &mut self.lanes[usize::from(band.number())];
            let (up, down) = (up.reader(), down.writer());
            let (name, pool_bytes) = (name.clone(), pool.map_or(0, |pool| pool.bytes));
            let fd = memory.clone();
            let seat = Seat { conn, subject, name, pool: pool_bytes, memory, up, down, put: false, broken: None };
            lane.change(Change::Join(Box::new(seat)));
            let lane = &self.lanes[usize::from(band.number())];
            let welcome = serde_json::to_vec(&Welcome::Band(band.number())).unwrap_or_default();
            let mut fds = vec![fd.fd(), lane.door.fd()];
            fds.extend(pool.map(|pool| pool.fd.as_fd()));
            let far = match !hello.serves.is_empty() && hello.pool > 0 {
                true => {
                    let [near, far] = sys::handover::pair().map_err(text)?;
                    self.tell_pools(&near, *band);
                    news.push((*band, near));
                    Some(far)
                }
                false => None,
            };
            fds.extend(far.as_ref().map(AsFd::as_fd));
            sys::handover::send(connection.as_fd(), &welcome, &fds).map_err(text)?;
        }
        Ok(news)
    }

    /// Takes somebody's places back.
    fn unseat(&mut self, conn: Conn, name: &Arc<str>, bands: &[Band]) {
        for lane in self.lanes.iter_mut().filter(|lane| bands.contains(&lane.band)) {
            lane.change(Change::Gone(conn, name.clone()));
        }
    }

    /// Memory for a client's pool, if it wants one and the limit allows it.
    fn pool(&self, bytes: u64) -> Result<Option<Pool>, String> {
        if bytes == 0 {
            return Ok(None);
        }
        let pools = self.peers.iter().flatten().filter_map(|peer| peer.pool.as_ref());
        let taken: u64 = pools.map(|pool| pool.bytes).sum();
        if bytes > POOL_BYTES_MAX || taken + bytes > POOLS_BYTES_MAX {
            return Err(format!(
                "a pool of {bytes} bytes, expected at most {POOL_BYTES_MAX} each and {POOLS_BYTES_MAX} together, of which {taken} are taken"
            ));
        }
        let bytes = bytes.next_multiple_of(ALIGNED);
        let fd = SharedWords::unmapped("tahti-pool", bytes as usize / 8).map_err(|error| error.to_string())?;
        Ok(Some(Pool { fd, bytes }))
    }

    /// Tells a manager's new lane of all pools.
    fn tell_pools(&self, news: &OwnedFd, band: Band) {
        for peer in self.peers.iter().flatten().filter(|peer| peer.bands.contains(&band)) {
            if let Some(pool) = &peer.pool {
                tell_pool(news, peer.conn, pool);
            }
        }
    }

    /// Forgets somebody who has gone.
    fn leave(&mut self, slot: usize) {
        let Some(peer) = self.peers[slot].take() else { return };
        // Before the routes go, so that the lanes still know the name.
        self.unseat(peer.conn, &peer.name, &peer.bands);
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
        let until = mono_now() + SETTLE;
        while self.lanes.iter().any(|lane| lane.seen.adopted.load(Ordering::Acquire) < lane.sent) {
            if mono_now() > until {
                (self.say)(Event::Trouble(
                    "a lane has not taken over its tables within 1s: its class or CPU starves it".into(),
                ));
                return false;
            }
            self.lanes.iter().for_each(|lane| lane.door.knock());
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
                    Return::Seat(seat) => self.spares.keep_seat(*seat),
                    Return::Refused(seat) => {
                        broken.push((seat.conn, "its place was taken".to_owned()));
                        self.spares.keep_seat(*seat);
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

    /// Writes what the lanes logged, and tells those who watch: the most urgent band first, and again after each turn of
    /// another, so that none loses records by a flood on a less urgent one. Says whether there is more than it took.
    fn write_log(&mut self) -> bool {
        let mut words = vec![0; lane::RECORD_WORDS + log::TEXTS_WORDS];
        for _ in 0..LOG_TURNS {
            let Some(at) = (0..self.lanes.len()).rev().find(|at| !self.lanes[*at].log.is_empty()) else { break };
            self.log_turn(at, &mut words);
            if self.text.len() >= LOG_BYTES {
                self.flush_log();
            }
        }
        for at in 0..self.lanes.len() {
            let Lanes { band, log, lost, .. } = &mut self.lanes[at];
            let refused = log.stream().refused();
            if refused != *lost {
                self.text += &log::lost(*band, refused - *lost, crate::client::unix_now_ns());
                *lost = refused;
            }
        }
        self.flush_log();
        self.lanes.iter().any(|lane| !lane.log.is_empty())
    }

    /// Takes some records of a lane.
    fn log_turn(&mut self, at: usize, words: &mut [u64]) {
        let (now, unix_now) = (mono_now(), crate::client::unix_now_ns());
        for _ in 0..LOG_TURN {
            let Ok(Some(length)) = self.lanes[at].log.pop(words) else { break };
            let Some(record) = log::Record::read(&words[..length], now, unix_now) else { continue };
            let line = record.line(self.tables.host(record.header.subject));
            if record.is_wanted() {
                self.text += &line;
                self.text.push('\n');
            }
            // Who watches is told of the batch when it has ended.
            if record.parts.is_none() {
                self.tell_watchers(&record, &line);
            }
        }
    }

    fn flush_log(&mut self) {
        if let Some(file) = self.log.as_mut().filter(|_| !self.text.is_empty())
            && let Err(error) = file.write_all(self.text.as_bytes())
        {
            (self.say)(Event::Trouble(format!("message log: {error}; it ends here")));
            self.log = None;
        }
        self.text.clear();
    }
}

/// Hands a pool to a manager's lane. One that does not take the news answers requests with such bodies `INTERNAL`.
fn tell_pool(news: &OwnedFd, conn: Conn, pool: &Pool) {
    let _ = sys::handover::send(news.as_fd(), &conn.number().to_le_bytes(), &[pool.fd.as_fd()]);
}

impl Spares {
    /// Keeps the memory of somebody who has gone.
    fn keep_seat(&mut self, Seat { memory, subject, broken, .. }: Seat) {
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
                self.door.knock();
                sys::clock::sleep_until(mono_now() + DurNs::from_us(50));
            }
        }
        self.sent += 1;
        self.door.knock();
    }
}

/// A greeting that can be.
struct Checked {
    name: String,
    bands: Vec<Band>,
    serves: Vec<String>,
    host: String,
    pool: u64,
}

impl Checked {
    fn new(hello: Hello) -> Result<Self, String> {
        let Hello { version: _, name, bands, serves, host, pool } = hello;
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("name {name:?}, expected 1 to 64 printable ASCII characters without blanks"));
        }
        let known: Option<Vec<Band>> = bands.iter().map(|number| Band::new(*number)).collect();
        let known = known.filter(|known| !known.is_empty() && known.len() <= msg::BANDS);
        let known = known.ok_or_else(|| format!("bands {bands:?}, expected one or more of 0 to 7"))?;
        if (1..known.len()).any(|at| known[..at].contains(&known[at])) {
            return Err(format!("bands {bands:?}, expected each once"));
        }
        if serves.len() > CLAIMS_MAX {
            return Err(format!("{} objects to serve, expected at most {CLAIMS_MAX}", serves.len()));
        }
        for object in &serves {
            Object::new(object).map_err(|error| format!("object {object:?}: {error}"))?;
            if object == "server" || object.starts_with("server_") {
                return Err("object server is the message server itself".to_owned());
            }
        }
        if !host.is_empty() && (!msg::is_host(&host) || matches!(&*host, "local" | "other")) {
            return Err(format!(
                "host {host:?}, expected 1 to 48 letters, digits, '-', '_' and '.', and not local or other"
            ));
        }
        if !host.is_empty() && !serves.is_empty() {
            return Err("a link speaks for another host or serves its objects, by two connections".to_owned());
        }
        Ok(Self { name, bands: known, serves, host, pool })
    }
}
