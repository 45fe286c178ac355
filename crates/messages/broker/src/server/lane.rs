//! The thread of one band: takes messages from the queues, runs the state machine, and puts messages into other queues.

use super::allowance::{Allowance, Naps};
use crate::memory::{Half, Inside, ROOM_WORDS};
use crate::message_buffer::{Fault, MessageBuffer, Packing, prefix};
use crate::server::pools::Lent;
use crate::server::queued::Queued;
use crate::server::refusals::{Refusals, Withheld};
use crate::spin::Spin;
use crate::wake_gate::{Sleeper, WakeGate};
use base::{DurNs, MonoNs, Tally};
use msg::{
    Band, Code, Completion, Conn, Counters, Excess, Flags, HEADER_WORDS, Header, Kind, Lane, Pooled, Reply, Step,
    Subject, Tables, TextBuffer,
};
use ring::{Damaged, StreamReader, StreamWriter};
use rtrb::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::alloc::Counting;
use sys::clock::mono_now;
use sys::rounds::Rounds;
use sys::shm::SharedWords;

/// Messages taken from one client per round.
const TURN: usize = 32;
/// Maximum number of messages that a queue can hold.
const LAST_REPLIES: usize = ROOM_WORDS / HEADER_WORDS;
/// Words kept free in a client's queue, so that a short reply to each of its outstanding requests always fits.
const SPARE_WORDS: usize = 1 << 13;
/// Maximum words of an answer made by the server itself, including its length word.
const ANSWER_WORDS: usize = 1 + HEADER_WORDS + msg::TEXT_BYTES_MAX / 8;
/// Longest sleep. It bounds the delay if a wake-up is lost for any reason. Unit tests use an hour, so that they fail
/// then.
const SLEEP: DurNs = if cfg!(test) { DurNs::from_secs(3600) } else { DurNs::from_ms(100) };
/// Bytes quoted of a manager's answer that is not a valid reply.
const NO_REPLY_BYTES: usize = 24;
/// Words of a log record before its texts.
pub(crate) const RECORD_WORDS: usize = 3 + HEADER_WORDS;
/// Flag of a log record: it holds the client's name and a batch with its body as received.
pub(crate) const BATCH_RECORD: u64 = 1 << 63;
/// Flag of a log record: it holds no request, but the number of records of a user that were withheld, and the time
/// span.
pub(crate) const WITHHELD_RECORD: u64 = 1 << 62;
/// Words logged after which the control thread is woken: a quarter of the queue's capacity.
const LOGGED_WORDS: usize = super::LOG_WORDS / 4;

/// A client or manager with queues on this band.
pub(crate) struct Connection {
    pub(crate) conn: Conn,
    pub(crate) subject: Subject,
    pub(crate) name: Arc<str>,
    /// Whether this is a manager.
    pub(crate) serves: bool,
    pub(crate) pool: Option<Lent>,
    pub(crate) memory: Arc<SharedWords>,
    pub(crate) up: StreamReader<Half>,
    pub(crate) down: StreamWriter<Half>,
    /// Messages in `down` that a manager has not taken yet.
    pub(crate) queued: Queued,
    /// Something was put into `down` since its reader was last woken.
    pub(crate) put: bool,
    /// Set if its shared memory can no longer be trusted.
    pub(crate) broken: Option<Fault>,
    /// Messages taken from this connection, and their number at the last check of the thread's allowance.
    pub(crate) heard: (u64, u64),
}

impl Connection {
    /// Number of messages that may be taken from this connection now. A client that does not take its replies is not
    /// served until it does, so that each reply has room. Its requests wait in its own queue. Replies of managers are
    /// always taken.
    fn turn(&self) -> Result<usize, Damaged> {
        if self.broken.is_some() || self.up.is_empty() {
            return Ok(0);
        }
        if self.serves {
            return Ok(TURN);
        }
        let free = self.down.free(SPARE_WORDS + TURN * ANSWER_WORDS)?;
        Ok(TURN.min(free.saturating_sub(SPARE_WORDS) / ANSWER_WORDS))
    }
}

/// Change sent by the control thread to a lane.
pub(crate) enum Change {
    Join(Box<Connection>),
    Gone(Conn, Arc<str>),
    Tables(Arc<Tables>),
}

/// Objects that a lane returns to be freed by the control thread, and connections that it no longer serves.
pub(crate) enum Return {
    /// A closed connection, and whether another process may still write into a room of its pool.
    Connection(Box<Connection>, bool),
    Tables(Arc<Tables>),
    Broken(Conn, String),
    /// A connection whose slot is occupied.
    Refused(Box<Connection>),
}

/// State of a lane that other threads can read.
#[derive(Default)]
pub(crate) struct LaneStatus {
    /// Number of changes applied.
    pub(crate) adopted: AtomicU64,
    counters: [AtomicU64; COUNTERS],
    over_share: AtomicU64,
    /// Results of answers with a deadline: due, late, worth, hard deadlines missed.
    value: [AtomicU64; 4],
    pub(super) naps: Naps,
}

const COUNTERS: usize = 9;
/// Names of the counters, as `describe/server` prints them. The last counts allocator calls, if the program counts
/// them.
pub(crate) const COUNTER_NAMES: [&str; COUNTERS] =
    ["requests", "forwarded", "replied", "answered", "strays", "orphaned", "unlogged", "withheld", "allocations"];

impl LaneStatus {
    fn publish(&self, counters: &Counters, [unlogged, withheld, allocations]: [u64; 3]) {
        let answered = counters.answered.iter().sum();
        let Counters { requests, forwarded, replied, strays, orphaned, over_share, .. } = *counters;
        self.over_share.store(over_share, Ordering::Relaxed);
        let Tally { due, late, worth } = counters.value;
        for (to, value) in self.value.iter().zip([due, late, worth, counters.hard_missed]) {
            to.store(value, Ordering::Relaxed);
        }
        let values = [requests, forwarded, replied, answered, strays, orphaned, unlogged, withheld, allocations];
        for (to, value) in self.counters.iter().zip(values) {
            to.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> [u64; COUNTERS] {
        std::array::from_fn(|at| self.counters[at].load(Ordering::Relaxed))
    }

    /// Tally of answers with a deadline, and the number of missed hard deadlines.
    pub(crate) fn value(&self) -> (Tally, u64) {
        let [due, late, worth, hard] = std::array::from_fn(|at| self.value[at].load(Ordering::Relaxed));
        (Tally { due, late, worth }, hard)
    }

    /// Number of requests refused because a user exceeded its share.
    pub(crate) fn over_share(&self) -> u64 {
        self.over_share.load(Ordering::Relaxed)
    }
}

/// State of a lane's thread.
pub(crate) struct LaneThread {
    pub(crate) band: Band,
    pub(crate) lane: Lane,
    pub(crate) gate: Arc<WakeGate>,
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    /// One more than the highest slot ever used.
    pub(crate) used: usize,
    pub(crate) changes: Consumer<Change>,
    pub(crate) returns: Producer<Return>,
    pub(crate) to_control: StreamWriter<Inside>,
    /// Messages in `to_control` that the control thread has not taken yet.
    pub(crate) queued: Queued,
    pub(crate) from_control: StreamReader<Inside>,
    pub(crate) log: StreamWriter<Inside>,
    pub(super) refusals: Refusals,
    /// Words logged since the control thread was last woken.
    pub(crate) logged: usize,
    pub(crate) control_bell: Arc<rustix::fd::OwnedFd>,
    pub(crate) seen: Arc<LaneStatus>,
    pub(crate) stop: Arc<AtomicBool>,
    /// Number of rounds, for the supervisor.
    pub(crate) rounds: Rounds,
    pub(crate) line: TextBuffer,
    pub(crate) packing: Packing,
    /// Whether an [`Allowance`] limits the thread if its class is real time.
    pub(crate) is_bounded: bool,
}

impl LaneThread {
    /// Serves until `stop` is set.
    ///
    /// Real-time: does not allocate; work between two sleeps is bounded by the capacity of the queues.
    pub(crate) fn run(mut self) {
        let mut buffer = MessageBuffer::new();
        let (mut spin, mut sleeper) = (Spin::new(), Sleeper::default());
        let mut allowance = self.is_bounded.then(Allowance::of_this_thread).flatten();
        let before = Counting::calls();
        while !self.stop.load(Ordering::Relaxed) {
            self.rounds.count();
            let now = self.keep_to(&mut allowance, mono_now());
            self.change(now, &mut buffer);
            self.answers(&mut buffer);
            self.clients(&mut buffer);
            self.due(now);
            self.wake();
            if self.logged > LOGGED_WORDS {
                self.logged = 0;
                wake_control(&self.control_bell);
            }
            self.withheld(now, false);
            let counts = [self.log.stream().refused(), self.refusals.withheld(), Counting::calls() - before];
            self.seen.publish(self.lane.counters(), counts);
            let now = match &allowance {
                Some(allowance) if !allowance.spins() => (!self.has_work()).then(mono_now),
                _ => spin.until(mono_now(), || self.has_work()),
            };
            let Some(now) = now else { continue };
            let limit = self.lane.next_look().map_or(SLEEP, |look| (look - now).max(DurNs(1)).min(SLEEP));
            self.gate.sleep(&mut sleeper, now, limit, || self.has_work());
        }
        self.withheld(mono_now(), true);
    }

    /// Logs the number of withheld records of refused requests.
    fn withheld(&mut self, now: MonoNs, is_end: bool) {
        while let Some(Withheld { user, records, within }) = self.refusals.due(now, is_end) {
            let (uid, host) = user.unwrap_or((u32::MAX, 0));
            let subject = Subject { uid, pid: 0, host };
            let header = Header { subject, ..Header::request(self.band, 0) };
            let head = [now.0, within.0.max(0) as u64, WITHHELD_RECORD | records.min(WITHHELD_RECORD - 1)];
            record(&mut self.log, &mut self.logged, &[&head, &header.to_words()]);
        }
    }

    /// Whether there is work before the next deadline.
    fn has_work(&self) -> bool {
        self.changes.slots() > 0
            || !self.from_control.is_empty()
            || self.stop.load(Ordering::Relaxed)
            || self.taken().iter().flatten().any(|connection| connection.turn() != Ok(0))
    }

    /// The connections up to the highest slot ever used.
    fn taken(&self) -> &[Option<Box<Connection>>] {
        &self.connections[..self.used]
    }

    fn change(&mut self, now: MonoNs, buffer: &mut MessageBuffer) {
        // Room is kept to cut off each connection once.
        while self.returns.slots() > self.connections.len()
            && let Ok(change) = self.changes.pop()
        {
            let back = match change {
                Change::Tables(tables) => Some(Return::Tables(self.lane.replace(tables))),
                Change::Join(connection) => match self.connections.get_mut(connection.conn.slot as usize) {
                    Some(place @ None) => {
                        self.used = self.used.max(connection.conn.slot as usize + 1);
                        self.lane.come(connection.conn, connection.subject.uid);
                        *place = Some(connection);
                        None
                    }
                    _ => Some(Return::Refused(connection)),
                },
                Change::Gone(conn, name) => {
                    self.last_replies(conn, buffer);
                    let place = self.connections.get_mut(conn.slot as usize);
                    let connection = place.and_then(|place| place.take_if(|connection| connection.conn == conn));
                    self.gone(now, conn, &name);
                    let lost = self.lane.has_lost_rooms(conn);
                    connection.map(|connection| Return::Connection(connection, lost))
                }
            };
            if let Some(back) = back {
                // The loop condition ensures that there is room.
                let _ = self.returns.push(back);
            }
            self.seen.adopted.fetch_add(1, Ordering::Release);
        }
    }

    /// Delivers the replies that a manager sent before it disconnected. Bounded by the capacity of its queue, whatever
    /// is written there meanwhile.
    fn last_replies(&mut self, conn: Conn, buffer: &mut MessageBuffer) {
        for _ in 0..LAST_REPLIES {
            let Some(Some(connection)) = self.connections.get_mut(conn.slot as usize) else { return };
            if connection.conn != conn
                || connection.broken.is_some()
                || !matches!(buffer.take(&mut connection.up), Ok(true))
            {
                return;
            }
            let who = (connection.conn, connection.subject, connection.pool);
            let is_reply = buffer.frame().is_ok_and(|frame| frame.header.kind != Kind::Request);
            if is_reply && self.message(who, buffer).is_err() {
                return;
            }
        }
    }

    fn gone(&mut self, now: MonoNs, conn: Conn, name: &str) {
        let Self { lane, connections, line, packing, log, refusals, logged, .. } = self;
        while let Some(done) = lane.gone(now, conn, name, line) {
            let mut out = Outgoing { connections, packing, log, refusals, logged, now };
            out.give(&done, line.text(), &[]);
        }
    }

    fn due(&mut self, now: MonoNs) {
        let Self { lane, connections, line, packing, log, refusals, logged, .. } = self;
        while let Some(done) = lane.due(now, line) {
            let mut out = Outgoing { connections, packing, log, refusals, logged, now };
            out.give(&done, line.text(), &[]);
        }
    }

    /// Delivers replies and events of the control thread.
    fn answers(&mut self, buffer: &mut MessageBuffer) {
        let Self { lane, connections, packing, log, refusals, logged, from_control, .. } = self;
        // Both ends belong to this process, so damage here is a bug of the server.
        while let Some((conn, _)) = buffer.take_prefixed(from_control).expect("a queue within the server") {
            let Ok(frame) = buffer.frame() else { continue };
            let mut out = Outgoing { connections, packing, log, refusals, logged, now: mono_now() };
            if frame.header.kind == Kind::Event {
                out.put(conn, &frame.header, buffer.rest(), SPARE_WORDS);
            } else if let Some(done) = lane.reply(mono_now(), Conn::SERVER, &frame.header, frame.text) {
                out.pass(&done, frame.text, frame.body.len(), buffer.rest());
            }
        }
    }

    fn clients(&mut self, buffer: &mut MessageBuffer) {
        for slot in 0..self.used {
            let turn = self.connections[slot].as_ref().map_or(Ok(0), |connection| connection.turn());
            if let Err(damaged) = turn {
                self.cut_off(slot, damaged.into());
            }
            for _ in 0..turn.unwrap_or(0) {
                let Some(connection) = &mut self.connections[slot] else { break };
                connection.heard.0 += 1;
                let taken = buffer.take(&mut connection.up).map_err(Fault::from);
                let who = (connection.conn, connection.subject, connection.pool);
                match taken.and_then(|taken| if taken { self.message(who, buffer).map(|()| true) } else { Ok(false) }) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(fault) => {
                        self.cut_off(slot, fault);
                        break;
                    }
                }
            }
        }
    }

    /// Stops serving a connection; the control thread closes it.
    fn cut_off(&mut self, slot: usize, fault: Fault) {
        if let Some(connection) = &mut self.connections[slot] {
            // The only allocation of this thread: at most once per connection, if it breaks the rules. Room for it was
            // kept.
            let _ = self.returns.push(Return::Broken(connection.conn, fault.to_string()));
            connection.broken = Some(fault);
            wake_control(&self.control_bell);
        }
    }

    fn message(
        &mut self,
        (from, subject, pool): (Conn, Subject, Option<Lent>),
        buffer: &MessageBuffer,
    ) -> Result<(), Fault> {
        let frame = buffer.frame()?;
        let pooled = match frame.header.kind == Kind::Request && frame.header.flags.has(Flags::POOLED) {
            true => Some(pool_place(pool, frame.body).ok_or(Fault::Pool)?),
            false => None,
        };
        let now = mono_now();
        let Self { lane, connections, line, packing, log, refusals, logged, to_control, queued, control_bell, .. } =
            self;
        let mut out = Outgoing { connections, packing, log, refusals, logged, now };
        match frame.header.kind {
            Kind::Request => {
                let user = subject.uid;
                // The remote host identified the sender of a request that comes by a link. For all others the kernel
                // did.
                let (subject, hops) = match subject.host {
                    0 => (subject, 0),
                    host => (Subject { host, ..frame.header.subject }, 1),
                };
                let header = Header { subject, hops, ..frame.header };
                match lane.request(now, from, &header, frame.text, frame.body, line) {
                    Step::Done(done) => out.give(&done, line.text(), &[]),
                    Step::Forward { to, header } => {
                        let rest = buffer.rest();
                        let passed = if to == Conn::SERVER {
                            let parts: [&[u64]; 3] = [&prefix(from, frame.header.id), &header.to_words(), rest];
                            let passed = queued.push(user, to_control, &parts, |user| lane.is_ours(user));
                            wake_control(control_bell);
                            passed
                        } else {
                            out.forward(to, user, (header, frame.text), rest, pooled, |user| lane.is_ours(user))
                        };
                        match passed {
                            Ok(()) if frame.text.starts_with("batch/") => out.log_batch(from, &header, rest),
                            Ok(()) => {}
                            Err(excess) => {
                                if let Some(done) = lane.refused(header.id, excess, line) {
                                    out.give(&done, line.text(), &[]);
                                }
                            }
                        }
                    }
                }
            }
            _ => {
                let is_reply = Reply::parse(frame.text).is_ok();
                let Some(done) = lane.reply(now, from, &frame.header, frame.text) else { return Ok(()) };
                match is_reply {
                    false => {
                        let begins = &frame.text[..frame.text.floor_char_boundary(NO_REPLY_BYTES)];
                        line.reply(Code::Internal, format_args!("the manager sent an invalid reply: {begins:?}"));
                        out.give(&done, line.text(), &[]);
                    }
                    true => out.pass(&done, frame.text, frame.body.len(), buffer.rest()),
                }
            }
        }
        Ok(())
    }

    /// Wakes each reader that received messages and sleeps.
    fn wake(&mut self) {
        for connection in self.connections[..self.used].iter_mut().flatten().filter(|connection| connection.put) {
            connection.put = false;
            if connection.down.stream().is_asleep() {
                sys::futex::count_up(connection.down.stream().bell(), 1);
            }
        }
    }
}

/// Location of a request's body, with the number of its client's pool; `None` if it is not within the pool.
fn pool_place(pool: Option<Lent>, body: &[u8]) -> Option<Pooled> {
    let Lent { number, bytes } = pool?;
    let place = Pooled::from_bytes(body).filter(|place| place.is_within(bytes))?;
    Some(Pooled { pool: number, ..place })
}

/// Wakes the control thread.
pub(crate) fn wake_control(bell: &rustix::fd::OwnedFd) {
    // Fails only after 2^64 unread rings.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Output of a lane: queues and log.
struct Outgoing<'a> {
    connections: &'a mut [Option<Box<Connection>>],
    packing: &'a mut Packing,
    log: &'a mut StreamWriter<Inside>,
    refusals: &'a mut Refusals,
    logged: &'a mut usize,
    now: MonoNs,
}

impl Outgoing<'_> {
    fn put(&mut self, to: Conn, header: &Header, rest: &[u64], spare: usize) -> bool {
        let connection = self.connections.get_mut(to.slot as usize).and_then(Option::as_mut);
        let Some(connection) = connection.filter(|connection| connection.conn == to && connection.broken.is_none())
        else {
            return false;
        };
        let put = connection.down.push_leaving_or_refuse(&[&header.to_words(), rest], spare);
        connection.put |= put;
        put
    }

    /// Forwards a user's request to its manager, with the location of a body in a pool. `Err(None)`: there is no room;
    /// `Err(Some)`: the user exceeds its share.
    fn forward(
        &mut self,
        to: Conn,
        user: u32,
        (header, text): (Header, &str),
        rest: &[u64],
        pooled: Option<Pooled>,
        is_ours: impl Fn(u32) -> bool,
    ) -> Result<(), Option<Excess>> {
        let connection = self.connections.get_mut(to.slot as usize).and_then(Option::as_mut);
        let Some(connection) = connection.filter(|connection| connection.conn == to && connection.broken.is_none())
        else {
            return Err(None);
        };
        let (head, rest) = match pooled {
            Some(place) => self.packing.pack(header, text, &place.to_bytes()).map_err(|_| None)?,
            None => (header.to_words(), rest),
        };
        connection.queued.push(user, &mut connection.down, &[&head, rest], is_ours)?;
        connection.put = true;
        Ok(())
    }

    /// Passes a manager's reply on unchanged. If it does not fit because the client has not taken earlier replies,
    /// sends a short reply that reports this. Room for a short reply is always reserved.
    fn pass(&mut self, done: &Completion<'_>, text: &str, body_bytes: usize, rest: &[u64]) {
        let header = Header { text_bytes: text.len() as u16, body_bytes: body_bytes as u32, ..done.header };
        if self.put(done.to, &header, rest, SPARE_WORDS)
            || text.len() + body_bytes < 128 && self.put(done.to, &header, rest, 0)
        {
            self.log(done, text);
        } else {
            let mut line = TextBuffer::new();
            line.reply(Code::Unknown, "message server: done, but the reply found no room because replies before it were not taken; ask with get");
            self.give(done, line.text(), &[]);
        }
    }

    /// Sends a reply to a client and logs it.
    fn give(&mut self, done: &Completion<'_>, text: &str, body: &[u8]) {
        let Ok((head, rest)) = self.packing.pack(done.header, text, body) else { return };
        let connection = self.connections.get_mut(done.to.slot as usize).and_then(Option::as_mut);
        if let Some(connection) =
            connection.filter(|connection| connection.conn == done.to && connection.broken.is_none())
        {
            connection.put |= connection.down.push_or_refuse(&[&head, rest]);
        }
        self.log(done, text);
    }

    fn log(&mut self, done: &Completion<'_>, text: &str) {
        if !done.log || !self.refusals.is_logged(done.header.subject, done.asked, text, self.now) {
            return;
        }
        let Self { connections, packing, log, logged, now, .. } = self;
        let name = name(connections, done.to);
        let lengths = done.asked.len() as u64 | (text.len() as u64) << 16 | (name.len() as u64) << 32;
        let head = [done.since.0, now.0, lengths];
        record(log, logged, &[&head, &done.header.to_words(), packing.texts([done.asked, text, name])]);
    }

    /// Logs the requests of a batch as received. The result is logged with the reply.
    fn log_batch(&mut self, from: Conn, header: &Header, rest: &[u64]) {
        let Self { connections, packing, log, logged, now, .. } = self;
        let name = name(connections, from);
        let head = [now.0, now.0, BATCH_RECORD | (name.len() as u64) << 32];
        record(log, logged, &[&head, &header.to_words(), packing.texts([name, "", ""]), rest]);
    }
}

/// Writes a log record. If the queue is full, the record is refused and counted.
fn record(log: &mut StreamWriter<Inside>, logged: &mut usize, parts: &[&[u64]]) {
    log.push_or_refuse(parts);
    *logged += parts.iter().map(|part| part.len()).sum::<usize>();
}

/// Name of a connected client; empty if it has gone.
fn name(connections: &[Option<Box<Connection>>], conn: Conn) -> &str {
    let connection =
        connections.get(conn.slot as usize).and_then(Option::as_ref).filter(|connection| connection.conn == conn);
    connection.map_or("", |connection| &connection.name)
}
