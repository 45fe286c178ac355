//! The network thread: it serves circuits in bounded bursts, and runs the housekeeping shard of the database, whose scans go
//! first.

mod mail;
mod records;
mod stops;
mod traffic;

pub use mail::Mailbox;

use crate::bridge::{Bridges, Holder};
use crate::devices::{Devices, Requests};
use crate::faults::Faults;
use crate::feed::{self, Feed, Feeder};
use crate::guard::GUARD;
use crate::job::{OwnerEvent, OwnerRequest, Work};
use crate::links::Links;
use crate::scans::{OverrunWatch, Scans, scan_one};
use crate::shard::Shard;
use crate::shard_port::ShardPort;
use crate::store::Store;
use base::{MonoNs, Stamp};
use ca::beacon::Beacon;
use ca::client::Address;
use ca::search::{self, SearchCounters};
use ca::server::{CircuitId, Limits, Server};
use canet::config::ServerConfig;
use canet::net::{Net, Ready, SendOutcome};
use db::{Db, Now, Security};
use pvanet::server::PvAccess;
use std::cmp::Reverse;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use sys::notify::Supervisor;

use mail::Mail;

/// Maximum number of waiting requests to the engine.
const MAIL_MAX: usize = 64;
/// Maximum number of waiting ends of deferred function calls.
const FINISHED_MAX: usize = 10_000;
/// Maximum number of records processed by callbacks and delays before the network is served.
const ADVANCE_MAX: usize = 1_000;
/// Maximum number of link requests handled in a row. One may cause the next, endlessly.
const REQUESTS_MAX: usize = 10_000;
/// Maximum number of datagrams taken from one socket in a row.
const DATAGRAMS_MAX: usize = 64;
/// Maximum number of sends of one circuit in a row.
const SENDS_MAX: usize = 4;

/// Circuits, sockets and the housekeeping shard of the database, owned by one thread; and the ports to the other shards.
pub struct Engine {
    /// The database and the fields that clients have open.
    pub store: Store,
    /// All circuits.
    pub server: Server,
    /// All sockets.
    pub net: Net,
    /// Periodic scans of the housekeeping shard.
    pub scans: Scans,
    /// Counters of names searched by datagram.
    pub searches: SearchCounters,
    pub(crate) config: Option<ServerConfig>,
    /// The server of PVAccess, if it is enabled.
    pub(crate) pvaccess: Option<PvAccess>,
    beacon: Option<Beacon>,
    mail: Receiver<Mail>,
    finished: Receiver<db::Token>,
    feeds: Vec<Feed>,
    /// Devices of the records, with the ring ends to them.
    devices: Option<Devices>,
    requests: Option<Requests>,
    /// Shards returned by their owners.
    #[expect(clippy::vec_box, reason = "the boxes in which they travel")]
    retiring: Vec<Box<Shard>>,
    /// Events taken from the shards. The vector is reused.
    taken: Vec<OwnerEvent>,
    bridges: Bridges,
    /// Links to other IOCs.
    links: Option<Links>,
    /// Threads of lock sets with breakpoints.
    steppers: Vec<stops::Stepper>,
    ready: Vec<Ready>,
    again: Vec<CircuitId>,
    /// Circuits with data to send. The vector is reused.
    touched: Vec<CircuitId>,
    /// Monitors that this thread, which runs no real-time scan, makes progress.
    supervisor: Supervisor,
    /// Faults of the parts of the IOC.
    pub(crate) faults: Faults,
    overruns: OverrunWatch,
    stop: bool,
}

/// Current time of both clocks.
#[must_use]
pub fn now() -> Now {
    Now { wall: wall(), mono: sys::clock::mono_now() }
}

/// Current wall-clock time as a record stamp.
#[must_use]
pub fn wall() -> Stamp {
    let now = sys::clock::wall_ns();
    Stamp::from_unix(now / 1_000_000_000, (now % 1_000_000_000) as u32)
}

impl Engine {
    /// Creates an engine for an initialised database, and opens the sockets if there is a configuration.
    ///
    /// # Errors
    /// If a socket cannot be opened.
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
            pvaccess: None,
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
            faults: Faults::default(),
            overruns: OverrunWatch::default(),
            stop: false,
        };
        engine.plan_scans();
        Ok((engine, mailbox))
    }

    /// Also serves the database over PVAccess.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub fn serve_pvaccess(&mut self, config: ServerConfig, limits: pva::server::Limits) -> io::Result<()> {
        let now = now();
        let pvaccess = PvAccess::open(config, limits, now.mono, now.wall)?;
        self.net.nest(&pvaccess.net)?;
        self.pvaccess = Some(pvaccess);
        Ok(())
    }

    /// Serves groups of fields over PVAccess. Returns what is wrong with definitions.
    pub fn define_groups(&mut self, definitions: pva::group::Definitions) -> Vec<String> {
        self.store.define_groups(definitions)
    }

    /// Connects links to other IOCs.
    pub fn follow_links(&mut self, links: Links) {
        self.links = Some(links);
    }

    /// Connects the records of the housekeeping shard to their devices.
    pub(crate) fn use_devices(&mut self, devices: &Devices) {
        let ends = devices.ends(0);
        self.devices = Some(devices.clone());
        let waker = self.net.waker();
        ends.wake.set(move || waker.wake());
        self.feeds.extend(ends.feeds);
        self.requests = Some(ends.requests);
    }

    /// Reads the periodic scans from the database. Measurements of existing scans are kept.
    pub fn plan_scans(&mut self) {
        self.scans.plan(&self.store.db, now());
    }

    /// Adds the ports to the shards that other threads own.
    pub fn add_shards(&mut self, shards: Vec<ShardPort>) {
        if !shards.is_empty() {
            self.store.db.share_signals();
        }
        self.store.shards = shards;
    }

    /// Whether periodic scans are paused.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.scans.is_paused()
    }

    /// Sends a request to an owner, without waiting for its end. All requests take this path. Requests to the housekeeping
    /// shard are executed immediately. Another owner executes them between two of its scans; it is woken at the end of this
    /// thread's turn.
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

    /// A function that wakes an owner.
    fn waker_of(&self, owner: Holder) -> Box<dyn Fn() + Send> {
        if let Some(shard) = owner.and_then(|shard| self.store.shards.get(shard)) {
            let shared = shard.shared.clone();
            return Box::new(move || shared.bell.ring());
        }
        let waker = self.net.waker();
        Box::new(move || waker.wake())
    }

    /// Pauses or resumes the periodic scans of all owners.
    pub fn pause(&mut self, on: bool) {
        let others = self.store.live().filter(|(number, shard)| shard.owner == *number).map(|(number, _)| Some(number));
        let owners: Vec<Holder> = [None].into_iter().chain(others).collect();
        owners.into_iter().for_each(|owner| self.ask(owner, OwnerRequest::Pause(on)));
    }

    /// Sets new access rules. Clients are notified of changed rights.
    pub fn secure(&mut self, rules: Security, by_address: bool) {
        self.store.guard.set(rules, by_address);
        self.follow_inputs();
    }

    /// Reconnects the inputs of the rules after records were added or removed.
    pub fn follow_inputs(&mut self) {
        for request in self.store.guard.follow() {
            self.remote(GUARD, request);
        }
    }

    /// Runs `work` with the database that owns a record, on its owner's thread. Uses the housekeeping shard if the record
    /// does not exist.
    pub fn call(&mut self, record: &str, work: Work) {
        let owner = self.store.owner_of(record);
        self.ask(owner, OwnerRequest::Call(work));
        if owner.is_none() {
            self.plan_scans();
        }
    }

    /// Creates a ring for at most `bound` deliveries from a device thread to the records of one owner: the owner of `record`,
    /// or the housekeeping shard if the record does not exist. Drop the feeder to close it.
    pub fn feeder(&mut self, record: &str, bound: usize) -> Feeder {
        let owner = self.store.owner_of(record);
        let (feeder, feed) = feed::ring(bound, self.waker_of(owner));
        self.ask(owner, OwnerRequest::Feed(Some(feed)));
        feeder
    }

    /// Takes the deliveries of devices, a bounded number per feeder.
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

    /// Resumes records whose deferred function calls have ended, a bounded number.
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

    /// Runs until [`stop`](Self::stop) is called.
    ///
    /// # Errors
    /// The kernel's, while waiting.
    pub fn run(&mut self) -> io::Result<()> {
        self.settle();
        while !self.stop {
            let now = sys::clock::mono_now();
            let until = self.next_deadline(now);
            let mut ready = std::mem::take(&mut self.ready);
            let more = !self.again.is_empty() || self.pvaccess.as_ref().is_some_and(PvAccess::has_more);
            let until = if more { Some(MonoNs(0)) } else { until };
            self.net.wait(now, until, &mut ready)?;
            self.run_due();
            // Circuits of high priority are first. Each gets a bounded burst.
            ready.sort_by_key(|ready| match ready {
                Ready::Timer | Ready::Mail => (0, 0),
                Ready::Circuit { id, .. } => (1, 99 - i32::from(self.server.priority(*id))),
                Ready::Nested => (1, 99),
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
            if let Some(pvaccess) = &mut self.pvaccess {
                pvaccess.flush_again(self.store.now.mono, &mut self.store);
            }
            self.settle();
            self.check_scans();
            self.supervisor.works(self.store.now.mono, self.faults.text().as_deref());
        }
        Ok(())
    }

    /// Reports scans that skip passes.
    fn check_scans(&mut self) {
        let declared = self.store.shards.iter().map(|shard| (true, &shard.scans));
        let all = std::iter::once((false, &self.scans)).chain(declared);
        for (thread, text) in self.overruns.check(self.store.now.mono, all) {
            self.faults.lack(&format!("scans {thread}"), text);
        }
    }

    fn next_deadline(&mut self, now: MonoNs) -> Option<MonoNs> {
        let scans = self.scans.next(now, |scan| self.store.db.scanned(scan));
        let beacon = self.beacon.as_ref().map(Beacon::poll_timeout);
        let pvaccess = self.pvaccess.as_ref().map(PvAccess::poll_timeout);
        let sign = self.supervisor.due();
        let own = [scans, beacon, self.store.db.next_deadline(), self.server.poll_timeout(), pvaccess, sign];
        own.into_iter().flatten().min()
    }

    /// Runs scans, delays, beacons and timeouts that are due.
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
        if let Some(pvaccess) = self.pvaccess.as_mut().filter(|pvaccess| pvaccess.poll_timeout() <= now.mono) {
            pvaccess.run_due(now.mono);
            pvaccess.flush_touched(self.store.now.mono, &mut self.store);
        }
        if self.server.poll_timeout().is_some_and(|until| until <= now.mono) {
            self.server.handle_timeout(now.mono, &mut self.store);
        }
        if self.store.db.next_deadline().is_some_and(|until| until <= now.mono) {
            self.store.db.advance(now, ADVANCE_MAX);
            self.settle();
        }
    }

    /// Forwards the results of processing: posts, completed puts, bytes.
    fn settle(&mut self) {
        self.run_stops();
        loop {
            let posts = self.store.take_posts();
            let empty = posts.is_empty();
            posts.iter().for_each(|post| self.post(post));
            self.store.recycle(posts);
            if empty {
                break;
            }
        }
        self.deliver_groups();
        let regrouped = !self.store.db.take_regrouped().is_empty();
        if self.store.guard.take_changed() || regrouped {
            self.server.refresh_access(&mut self.store);
            if let Some(pvaccess) = &mut self.pvaccess {
                pvaccess.server.refresh_access(&mut self.store);
            }
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
            let mut none = touched.is_empty();
            touched.clear();
            self.touched = touched;
            none &= !self
                .pvaccess
                .as_mut()
                .is_some_and(|pvaccess| pvaccess.flush_touched(self.store.now.mono, &mut self.store));
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
            Ready::Nested => self.pvaccess_events(),
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

    /// Handles the events of PVAccess. Scans that are due go between them.
    fn pvaccess_events(&mut self) {
        let Some(Ok(ready)) = self.pvaccess.as_mut().map(|pvaccess| pvaccess.events(self.store.now.mono, MonoNs(0)))
        else {
            return;
        };
        for &item in &ready {
            self.store.now = now();
            if let Some(pvaccess) = &mut self.pvaccess {
                pvaccess.handle(self.store.now.mono, item, &mut self.store);
            }
            if self.store.db.next_deadline().is_some_and(|until| until <= self.store.now.mono) {
                self.store.db.advance(self.store.now, ADVANCE_MAX);
            }
            self.settle();
            if self.scans.is_due(sys::clock::mono_now()) {
                self.run_due();
            }
        }
        if let Some(pvaccess) = &mut self.pvaccess {
            pvaccess.recycle(ready);
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

    /// Sends the waiting data of a circuit, as much as the kernel accepts.
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
                SendOutcome::Bytes(len) => self.server.sent(self.store.now.mono, id, len, &mut self.store),
                SendOutcome::Full => {
                    self.net.interest(id, self.server.wants_input(id), true);
                    return;
                }
                SendOutcome::Gone => {
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
            if self.config.as_ref().is_some_and(|config| config.ignored.iter().any(|ignored| from.ip() == *ignored)) {
                continue;
            }
            let (net, store) = (&self.net, &mut self.store);
            search::answer(
                net.bytes(len),
                Address { ip: net.reply_address(socket).into(), port: net.tcp_port },
                &mut self.searches,
                |name| ca::server::Backend::exists(store, name),
                |bytes| net.answer(socket, from, bytes),
            );
        }
    }
}
