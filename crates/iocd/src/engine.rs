//! The engine thread: scans at their absolute times, network work in bounded bursts between them.

use crate::config::ServerConfig;
use crate::feed::{self, Feed, Feeder};
use crate::net::{Net, Ready, Sent, Waker};
use crate::store::Store;
use base::{DurNs, Histogram, MonoNs, Stamp};
use ca::beacon::Beacon;
use ca::search::{self, SearchCounters};
use ca::server::{CircuitId, Limits, Server, Token};
use db::{Db, Now};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// Requests to the engine that may wait.
const MAIL_MAX: usize = 64;
/// Records that callbacks and delays may process before the network has its turn.
const ADVANCE_MAX: usize = 1_000;
/// Datagrams taken from one socket in a row.
const DATAGRAMS_MAX: usize = 64;
/// Times in a row that one circuit may send before the others have their turn.
const SENDS_MAX: usize = 4;

/// Work for the engine thread.
type Mail = Box<dyn FnOnce(&mut Engine) + Send>;

/// Sends work to the engine from other threads.
#[derive(Clone)]
pub struct Mailbox {
    sender: SyncSender<Mail>,
    waker: Waker,
}

impl Mailbox {
    /// Does something on the engine thread and waits for its result; `None` when the engine has ended.
    pub fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Engine) -> T + Send + 'static) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        let mail: Mail = Box::new(move |engine| {
            // Nobody waits any more: nobody needs the answer.
            let _ = reply.send(work(engine));
        });
        self.sender.send(mail).ok()?;
        self.waker.wake();
        answer.recv().ok()
    }
}

/// A periodic scan with what it has measured.
pub struct ScanClock {
    /// Number in menuScan.
    pub index: u16,
    /// The choice in menuScan.
    pub name: String,
    /// Time between two passes.
    pub period: DurNs,
    /// Start after the planned time, of each pass.
    pub lateness: Box<Histogram>,
    /// How long each pass took.
    pub duration: Box<Histogram>,
    /// Passes left out because the one before took too long.
    pub overruns: u64,
    next: MonoNs,
}

/// Database, circuits and sockets, owned by one thread.
pub struct Engine {
    /// The database and what clients have open.
    pub store: Store,
    /// All circuits.
    pub server: Server,
    /// All sockets.
    pub net: Net,
    /// The periodic scans that have records.
    pub scans: Vec<ScanClock>,
    /// Names searched by datagram.
    pub searches: SearchCounters,
    config: Option<ServerConfig>,
    beacon: Option<Beacon>,
    mail: Receiver<Mail>,
    feeds: Vec<Feed>,
    ready: Vec<Ready>,
    again: Vec<CircuitId>,
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
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp::from_unix(since.as_secs(), since.subsec_nanos())
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
        let mailbox = Mailbox { sender, waker: net.waker() };
        let beacon = config.as_ref().map(|config| Beacon::new(now().mono, config.beacon_period));
        let mut engine = Self {
            store: Store::new(db),
            server,
            net,
            scans: Vec::new(),
            searches: SearchCounters::default(),
            config,
            beacon,
            mail,
            feeds: Vec::new(),
            ready: Vec::new(),
            again: Vec::new(),
            stop: false,
        };
        engine.plan_scans();
        Ok((engine, mailbox))
    }

    /// Reads the periodic scans from the database; what was measured of those that stay is kept.
    pub fn plan_scans(&mut self) {
        let now = now();
        let mut old = std::mem::take(&mut self.scans);
        for scan in self.store.db.scans() {
            let kept = old.iter().position(|clock| clock.index == scan.index).map(|at| old.swap_remove(at));
            self.scans.push(kept.unwrap_or_else(|| ScanClock {
                index: scan.index,
                name: scan.name,
                period: scan.period,
                lateness: Box::default(),
                duration: Box::default(),
                overruns: 0,
                next: aligned(now, scan.period),
            }));
        }
        // Where several are due the fastest goes first.
        self.scans.sort_by_key(|scan| scan.period);
    }

    /// Removes a record; clients of its fields are told.
    ///
    /// # Errors
    /// When there is no such record.
    pub fn remove_record(&mut self, name: &str) -> Result<(), String> {
        let record = self.store.db.find(name).map_err(|error| error.to_string())?.record;
        let store = &self.store;
        let gone: Vec<u64> = store.handles_of(record).collect();
        self.server.drop_channels(|handle| gone.contains(&handle), &mut self.store);
        self.store.guard.detach(&mut self.store.db);
        self.store.db.remove_record(record);
        self.store.follow_inputs();
        self.plan_scans();
        Ok(())
    }

    /// A ring for at most `bound` deliveries of a device's thread to the records; give it up by dropping it.
    pub fn feeder(&mut self, bound: usize) -> Feeder {
        let waker = self.net.waker();
        let (feeder, feed) = feed::ring(bound, move || waker.wake());
        self.feeds.push(feed);
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

    /// Ends [`run`](Self::run).
    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// The kernel's, from waiting.
    pub fn run(&mut self) -> io::Result<()> {
        self.settle();
        while !self.stop {
            let until = self.next_deadline();
            let mut ready = std::mem::take(&mut self.ready);
            let until = if self.again.is_empty() { until } else { Some(MonoNs(0)) };
            self.net.wait(sys::clock::mono_now(), until, &mut ready)?;
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
                if self.scans.first().is_some_and(|_| self.is_due()) {
                    self.run_due();
                }
            }
            self.ready = ready;
            for id in std::mem::take(&mut self.again) {
                self.flush(id);
            }
            self.settle();
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        let now = sys::clock::mono_now();
        self.scans.iter().any(|scan| scan.next <= now)
    }

    fn next_deadline(&self) -> Option<MonoNs> {
        let scans = self.scans.iter().map(|scan| scan.next).min();
        let beacon = self.beacon.as_ref().map(Beacon::poll_timeout);
        [scans, beacon, self.store.db.next_deadline(), self.server.poll_timeout()].into_iter().flatten().min()
    }

    /// Scans, delays, beacons and timeouts whose time has come.
    fn run_due(&mut self) {
        for index in 0..self.scans.len() {
            let start = now();
            let scan = &mut self.scans[index];
            if scan.next > start.mono {
                continue;
            }
            scan.lateness.record(start.mono - scan.next);
            let (number, period) = (scan.index, scan.period);
            self.store.now = start;
            self.store.db.scan(number, start);
            let end = sys::clock::mono_now();
            let scan = &mut self.scans[index];
            scan.duration.record(end - start.mono);
            scan.next = scan.next + period;
            if scan.next <= end {
                let missed = ((end - scan.next).0 / period.0) as u64 + 1;
                scan.overruns += missed;
                scan.next = scan.next + DurNs(missed as i64 * period.0);
            }
            self.settle();
        }
        let now = now();
        self.store.now = now;
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
        loop {
            let posts = self.store.take_posts();
            let empty = posts.is_empty();
            for post in &posts {
                self.server.post(post, &mut self.store);
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
            self.server.put_done(self.store.now.mono, Token(done.token), true, &mut self.store);
        }
        while let Some(id) = self.server.poll_touched() {
            self.flush(id);
        }
    }

    fn handle(&mut self, ready: Ready) {
        match ready {
            Ready::Timer => {}
            Ready::Mail => {
                self.take_feeds();
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

/// The first multiple of `period` of the wall clock that is still to come, on the monotonic clock.
fn aligned(now: Now, period: DurNs) -> MonoNs {
    let period = period.0.max(1) as u64;
    let wall = now.wall.as_nanos();
    now.mono + DurNs((period - wall % period) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_start_at_whole_multiples_of_their_period() {
        let now = Now { wall: Stamp { secs: 100, nanos: 250_000_000 }, mono: MonoNs(5_000_000_000) };
        assert_eq!(aligned(now, DurNs::from_secs(1)), MonoNs(5_750_000_000));
        assert_eq!(aligned(now, DurNs::from_ms(100)), MonoNs(5_050_000_000));
    }
}
