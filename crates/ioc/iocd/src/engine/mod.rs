//! The network's thread: circuits in bounded bursts, and the housekeeping shard of the database, its scans first.

mod mail;
mod records;
mod stops;
mod traffic;

pub use mail::Mailbox;

use crate::bridge::{Bridges, Holder};
use crate::devices::{Devices, Requests};
use crate::feed::{self, Feed, Feeder};
use crate::guard::GUARD;
use crate::job::{OwnerEvent, OwnerRequest, Work};
use crate::links::Links;
use crate::scans::{Scans, scan_one};
use crate::shard::Shard;
use crate::shard_port::ShardPort;
use crate::store::Store;
use base::{MonoNs, Stamp};
use ca::beacon::Beacon;
use ca::search::{self, SearchCounters};
use ca::server::{CircuitId, Limits, Server};
use canet::config::ServerConfig;
use canet::net::{Net, Ready, Sent};
use db::{Db, Now, Security};
use std::cmp::Reverse;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use sys::notify::Supervisor;

use mail::Mail;

/// Requests to the engine that may wait.
const MAIL_MAX: usize = 64;
/// Ends of functions' calls that may wait for the engine.
const FINISHED_MAX: usize = 10_000;
/// Records that callbacks and delays may process before the network has its turn.
const ADVANCE_MAX: usize = 1_000;
/// Requests of links to elsewhere that are done in a row: one may lead to the next, for ever.
const REQUESTS_MAX: usize = 10_000;
/// Datagrams taken from one socket in a row.
const DATAGRAMS_MAX: usize = 64;
/// Times in a row that one circuit may send before the others have their turn.
const SENDS_MAX: usize = 4;

/// Circuits, sockets and the housekeeping shard of the database, owned by one thread; the ways to the other shards.
pub struct Engine {
    /// The database and what clients have open.
    pub store: Store,
    /// All circuits.
    pub server: Server,
    /// All sockets.
    pub net: Net,
    /// The periodic scans of the housekeeping shard.
    pub scans: Scans,
    /// Names searched by datagram.
    pub searches: SearchCounters,
    pub(crate) config: Option<ServerConfig>,
    beacon: Option<Beacon>,
    mail: Receiver<Mail>,
    finished: Receiver<db::Token>,
    feeds: Vec<Feed>,
    /// The records' devices, and the way to them.
    devices: Option<Devices>,
    requests: Option<Requests>,
    /// What owners have given back.
    #[expect(clippy::vec_box, reason = "the boxes in which they travel")]
    retiring: Vec<Box<Shard>>,
    /// What was taken from the shards, in one vector that is used again.
    taken: Vec<OwnerEvent>,
    bridges: Bridges,
    /// Links to other IOCs.
    links: Option<Links>,
    /// Threads of lock sets with breakpoints.
    steppers: Vec<stops::Stepper>,
    ready: Vec<Ready>,
    again: Vec<CircuitId>,
    /// Circuits that have something to send, in one vector that is used again.
    touched: Vec<CircuitId>,
    /// Hears that this thread, which runs no real-time scan, goes round.
    supervisor: Supervisor,
    stop: bool,
}

/// The clocks now.
#[must_use]
pub fn now() -> Now {
    Now { wall: wall(), mono: sys::clock::mono_now() }
}

/// The wall clock as a record's stamp.
#[must_use]
pub fn wall() -> Stamp {
    let now = sys::clock::wall_ns();
    Stamp::from_unix(now / 1_000_000_000, (now % 1_000_000_000) as u32)
}

impl Engine {
    /// Opens the sockets, if there is a configuration, round a database that is already initialised.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub fn new(db: Db, config: Option<ServerConfig>) -> io::Result<(Self, Mailbox)> {
        let net = Net::open(config.as_ref())?;
        let mut limits = Limits::default();
        if let Some(bytes) = config.as_ref().and_then(|config| config.message_bytes) {
            limits.message_bytes = bytes;
        }
        let mut server = Server::new(limits);
        server.tcp_port = net.tcp_port;
        let (sender, mail) = sync_channel(MAIL_MAX);
        let (finish, finished) = sync_channel(FINISHED_MAX);
        let mailbox = Mailbox { sender, finished: finish, waker: net.waker() };
        let beacon = config.as_ref().map(|config| Beacon::new(now().mono, config.beacon_period));
        let mut engine = Self {
            store: Store::new(db),
            server,
            net,
            scans: Scans::default(),
            searches: SearchCounters::default(),
            config,
            beacon,
            mail,
            finished,
            feeds: Vec::new(),
            devices: None,
            requests: None,
            retiring: Vec::new(),
            taken: Vec::new(),
            bridges: Bridges::default(),
            links: None,
            steppers: Vec::new(),
            ready: Vec::new(),
            again: Vec::new(),
            touched: Vec::new(),
            supervisor: Supervisor::from_env(),
            stop: false,
        };
        engine.plan_scans();
        Ok((engine, mailbox))
    }

    /// Has links to other IOCs followed.
    pub fn follow_links(&mut self, links: Links) {
        self.links = Some(links);
    }

    /// Has the housekeeping shard's records served by their devices.
    pub(crate) fn use_devices(&mut self, devices: &Devices) {
        let ends = devices.ends(0);
        self.devices = Some(devices.clone());
        let waker = self.net.waker();
        ends.wake.set(move || waker.wake());
        self.feeds.push(ends.feed);
        self.requests = Some(ends.requests);
    }

    /// Reads the periodic scans from the database; what was measured of those that stay is kept.
    pub fn plan_scans(&mut self) {
        self.scans.plan(&self.store.db, now());
    }

    /// Takes the ways to the shards of the database that other threads own.
    pub fn add_shards(&mut self, shards: Vec<ShardPort>) {
        if !shards.is_empty() {
            self.store.db.share_signals();
        }
        self.store.shards = shards;
    }

    /// Whether periodic scans hold.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.scans.is_paused()
    }

    /// Has an owner do something of which nobody waits for the end: the one way to all of them. What the housekeeping shard is
    /// asked this thread does, at once; another owner does it between two of its scans, and looks when this thread's turn ends.
    pub(crate) fn ask(&mut self, owner: Holder, request: OwnerRequest) {
        match (owner, request) {
            (None, OwnerRequest::Pause(on)) => {
                let db = &mut self.store.db;
                self.scans.pause(on, |pini, now| db.process_pini(pini, now));
            }
            (None, OwnerRequest::Feed(feed)) => self.feeds.extend(feed),
            (owner, request) => self.store.ask(owner, request),
        }
    }

    /// What makes an owner look at what it was sent.
    fn waker_of(&self, owner: Holder) -> Box<dyn Fn() + Send> {
        if let Some(shard) = owner.and_then(|shard| self.store.shards.get(shard)) {
            let shared = shard.shared.clone();
            return Box::new(move || shared.bell.ring());
        }
        let waker = self.net.waker();
        Box::new(move || waker.wake())
    }

    /// Lets the periodic scans of all owners hold, or go on.
    pub fn pause(&mut self, on: bool) {
        let others = self.store.live().filter(|(number, shard)| shard.owner == *number).map(|(number, _)| Some(number));
        let owners: Vec<Holder> = [None].into_iter().chain(others).collect();
        owners.into_iter().for_each(|owner| self.ask(owner, OwnerRequest::Pause(on)));
    }

    /// Takes rules of access; clients are told what changes for them.
    pub fn secure(&mut self, rules: Security, by_address: bool) {
        self.store.guard.set(rules, by_address);
        self.follow_inputs();
    }

    /// Follows the inputs of the rules anew, after records came or went.
    pub fn follow_inputs(&mut self) {
        for request in self.store.guard.follow() {
            self.remote(GUARD, request);
        }
    }

    /// Does something with the database that owns a record, on its owner's thread; with the housekeeping shard when
    /// there is no such record.
    pub fn call(&mut self, record: &str, work: Work) {
        let owner = self.store.owner_of(record);
        self.ask(owner, OwnerRequest::Call(work));
        if owner.is_none() {
            self.plan_scans();
        }
    }

    /// A ring for at most `bound` deliveries of a device's thread to the records of one owner: the one that owns `record`,
    /// the housekeeping shard where there is no such record. Give it up by dropping it.
    pub fn feeder(&mut self, record: &str, bound: usize) -> Feeder {
        let owner = self.store.owner_of(record);
        let (feeder, feed) = feed::ring(bound, self.waker_of(owner));
        self.ask(owner, OwnerRequest::Feed(Some(feed)));
        feeder
    }

    /// Takes what devices have delivered, each feeder's a bounded number.
    fn take_feeds(&mut self) {
        let mut more = false;
        for feed in &mut self.feeds {
            more |= feed.take(&mut self.store.db);
        }
        self.feeds.retain(|feed| !feed.is_over());
        if more {
            self.net.waker().wake();
        }
    }

    /// Functions' calls that have ended, a bounded number: their records go on.
    fn take_finished(&mut self) {
        for token in self.finished.try_iter().take(FINISHED_MAX) {
            self.store.ask(token.shard.map(|shard| shard as usize), OwnerRequest::Finish(token));
        }
    }

    /// Ends [`run`](Self::run).
    pub fn stop(&mut self) {
        self.stop = true;
        self.store.shards.iter().for_each(ShardPort::stop);
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// The kernel's, from waiting.
    pub fn run(&mut self) -> io::Result<()> {
        self.settle();
        while !self.stop {
            let now = sys::clock::mono_now();
            let until = self.next_deadline(now);
            let mut ready = std::mem::take(&mut self.ready);
            let until = if self.again.is_empty() { until } else { Some(MonoNs(0)) };
            self.net.wait(now, until, &mut ready)?;
            self.run_due();
            // Circuits of high priority first; each gets a bounded burst.
            ready.sort_by_key(|ready| match ready {
                Ready::Timer | Ready::Mail => (0, 0),
                Ready::Circuit { id, .. } => (1, 99 - i32::from(self.server.priority(*id))),
                Ready::Listener(_) => (2, 0),
                Ready::Datagrams(_) => (3, 0),
            });
            for &item in &ready {
                self.handle(item);
                if self.scans.is_due(sys::clock::mono_now()) {
                    self.run_due();
                }
            }
            self.ready = ready;
            let mut again = std::mem::take(&mut self.again);
            again.sort_unstable_by_key(|id| Reverse(self.server.priority(*id)));
            again.into_iter().for_each(|id| self.flush(id));
            self.settle();
            self.supervisor.works(self.store.now.mono, None);
        }
        Ok(())
    }

    fn next_deadline(&mut self, now: MonoNs) -> Option<MonoNs> {
        let scans = self.scans.next(now, |scan| self.store.db.scanned(scan));
        let beacon = self.beacon.as_ref().map(Beacon::poll_timeout);
        let sign = self.supervisor.due();
        [scans, beacon, self.store.db.next_deadline(), self.server.poll_timeout(), sign].into_iter().flatten().min()
    }

    /// Scans, delays, beacons and timeouts whose time has come.
    fn run_due(&mut self) {
        self.store.now = now();
        if self.scans.is_due(self.store.now.mono) {
            for nth in 0..self.scans.clocks().len() {
                self.store.now = now();
                let db = &mut self.store.db;
                if self.scans.run(nth, now, |scan, now| scan_one(db, scan, now)) {
                    self.settle();
                }
            }
            self.store.now = now();
        }
        let now = self.store.now;
        if let (Some(beacon), Some(config)) = (&mut self.beacon, &self.config)
            && let Some(bytes) = beacon.poll(now.mono, self.net.tcp_port)
        {
            self.net.beacon(&config.beacons, &bytes);
        }
        if self.server.poll_timeout().is_some_and(|until| until <= now.mono) {
            self.server.handle_timeout(now.mono, &mut self.store);
        }
        if self.store.db.next_deadline().is_some_and(|until| until <= now.mono) {
            self.store.db.advance(now, ADVANCE_MAX);
            self.settle();
        }
    }

    /// Hands on what processing has left: posts, finished puts, bytes.
    fn settle(&mut self) {
        self.run_stops();
        loop {
            let posts = self.store.take_posts();
            let empty = posts.is_empty();
            for post in &posts {
                self.server.post(post, &mut self.store);
                self.bridges.post(post, &mut self.store);
            }
            self.store.recycle(posts);
            if empty {
                break;
            }
        }
        let regrouped = !self.store.db.take_regrouped().is_empty();
        if self.store.guard.take_changed() || regrouped {
            self.server.refresh_access(&mut self.store);
        }
        let completed = self.store.db.take_completed();
        for done in completed {
            self.completed(&done);
        }
        for _ in 0..REQUESTS_MAX {
            let Some(request) = self.store.db.next_remote() else { break };
            self.remote(None, request);
        }
        if self.store.db.asks_elsewhere() {
            self.net.waker().wake();
        }
        while let Some(signal) = self.store.db.next_signal() {
            self.signal(None, signal);
        }
        if let Some(requests) = &mut self.requests {
            requests.hand_on(&mut self.store.db);
        }
        self.store.flush_shards();
        loop {
            let mut touched = std::mem::take(&mut self.touched);
            touched.extend(std::iter::from_fn(|| self.server.poll_touched()));
            touched.sort_unstable_by_key(|id| Reverse(self.server.priority(*id)));
            touched.iter().for_each(|id| self.flush(*id));
            let none = touched.is_empty();
            touched.clear();
            self.touched = touched;
            if none {
                break;
            }
        }
        if let Some(Err(error)) = self.links.as_mut().map(Links::hand_on) {
            eprintln!("links to other IOCs no longer work: {error}");
            self.links = None;
        }
    }

    fn handle(&mut self, ready: Ready) {
        match ready {
            Ready::Timer => {}
            Ready::Mail => {
                self.take_feeds();
                self.take_finished();
                self.take_parts();
                while let Ok(work) = self.mail.try_recv() {
                    self.store.now = now();
                    work(self);
                    self.settle();
                }
            }
            Ready::Listener(listener) => {
                while let Some((stream, peer)) = self.net.accept(listener) {
                    let id = self.server.accept(&peer.to_string());
                    if self.net.attach(id, stream).is_err() {
                        self.server.close(id, &mut self.store);
                    }
                }
                self.settle();
            }
            Ready::Datagrams(socket) => self.datagrams(socket),
            Ready::Circuit { id, read, write } => {
                if read {
                    self.read(id);
                }
                if write {
                    self.flush(id);
                }
            }
        }
    }

    fn read(&mut self, id: CircuitId) {
        let Some(len) = self.net.read(id) else {
            self.hang_up(id);
            return;
        };
        self.store.now = now();
        let bytes = self.net.bytes(len);
        self.server.handle_bytes(self.store.now.mono, id, bytes, &mut self.store);
        if self.store.db.next_deadline().is_some_and(|until| until <= self.store.now.mono) {
            self.store.db.advance(self.store.now, ADVANCE_MAX);
        }
        self.settle();
    }

    /// Sends what waits on a circuit, as far as the kernel takes it.
    fn flush(&mut self, id: CircuitId) {
        for _ in 0..SENDS_MAX {
            let bytes = self.server.output(id);
            if bytes.is_empty() {
                if self.server.is_closing(id) {
                    self.hang_up(id);
                } else {
                    self.net.interest(id, self.server.wants_input(id), false);
                }
                return;
            }
            match self.net.send(id, bytes) {
                Sent::Bytes(len) => self.server.sent(self.store.now.mono, id, len, &mut self.store),
                Sent::Full => {
                    self.net.interest(id, self.server.wants_input(id), true);
                    return;
                }
                Sent::Gone => {
                    self.hang_up(id);
                    return;
                }
            }
        }
        self.net.interest(id, self.server.wants_input(id), false);
        self.again.push(id);
    }

    fn hang_up(&mut self, id: CircuitId) {
        self.net.detach(id);
        self.server.close(id, &mut self.store);
    }

    fn datagrams(&mut self, socket: usize) {
        for _ in 0..DATAGRAMS_MAX {
            let Some((len, from)) = self.net.receive(socket) else { return };
            if self.config.as_ref().is_some_and(|config| config.ignored.contains(from.ip())) {
                continue;
            }
            let (net, store) = (&self.net, &mut self.store);
            search::answer(
                net.bytes(len),
                net.tcp_port,
                &mut self.searches,
                |name| ca::server::Backend::exists(store, name),
                |bytes| net.answer(socket, from, bytes),
            );
        }
    }
}
