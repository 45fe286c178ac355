//! State machine of one band of a message server. It routes each message, and ensures that each request gets exactly
//! one reply.

use crate::batch::Lines;
use crate::code::{Code, Failure, Hop};
use crate::header::{Band, Flags, Header, Kind};
use crate::share::{Excess, Share};
use crate::tables::{Access, Conn, Route, Tables};
use crate::text::{Request, TextError};
use crate::text_buffer::TextBuffer;
use crate::wheel::Wheel;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use base::verb::ServedBy;
use base::{DurNs, Lateness, MonoNs, ResultDeadline, Tally, Verb, Worth};
use core::fmt;

/// Maximum number of claims compared with an unknown object to suggest a similar name.
const NEAR_MAX: usize = 32;
/// Bytes of a request's line that are kept for the log until its reply.
const KEPT_BYTES: usize = 128;

/// Limits of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum outstanding requests in the lane, shared by all users. Further ones are answered `OVERLOAD`.
    pub outstanding: usize,
    /// Maximum outstanding requests per connection. Further ones are answered `OVERLOAD`.
    pub outstanding_each: u32,
    /// Maximum number of connections.
    pub conns: usize,
    /// Deadline of requests without one, counted from their arrival at the server.
    pub default_deadline: DurNs,
}

impl Default for Limits {
    fn default() -> Self {
        Self { outstanding: 4096, outstanding_each: 256, conns: 512, default_deadline: DurNs::from_secs(5) }
    }
}

/// Counters of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests received.
    pub requests: u64,
    /// Requests forwarded.
    pub forwarded: u64,
    /// Replies of managers passed back.
    pub replied: u64,
    /// Replies given by the server, in the order of [`Code::ALL`].
    pub answered: [u64; Code::ALL.len()],
    /// Unexpected messages: second answers, answers after the deadline, messages that are neither request nor reply.
    pub strays: u64,
    /// Requests whose client disconnected before the reply.
    pub orphaned: u64,
    /// Requests refused because a user, or all users, had reached their share of a resource.
    pub over_share: u64,
    /// Tally of the answers with a deadline.
    pub value: Tally,
    /// Missed hard deadlines of answers.
    pub hard_missed: u64,
}

/// A finished request, with the reply to pass back.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The receiver of the reply.
    pub to: Conn,
    /// The reply's header.
    pub header: Header,
    /// The start of the request's line, for the log.
    pub asked: &'a str,
    /// Arrival of the request at the server.
    pub since: MonoNs,
    /// Whether to log it.
    pub log: bool,
}

/// Action for a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Forward it with this header. If that fails, call [`Lane::refused`].
    Forward {
        /// The receiver; [`Conn::SERVER`] is the server itself.
        to: Conn,
        /// The new header.
        header: Header,
    },
    /// Reply with the text in the line buffer.
    Done(Completion<'a>),
}

impl Conn {
    /// The server itself. It answers `list`, `lock`, `watch`, and requests to the object `server`.
    pub const SERVER: Self = Self { slot: u32::MAX, turn: 0 };
}

/// State of a connection, by slot.
#[derive(Clone, Copy, Default)]
struct ConnState {
    /// Its user, as reported by the kernel.
    user: u32,
    /// Number of its outstanding requests.
    requests: u32,
    /// Whether a request with a room ended in any way other than a reply of its manager.
    lost_room: bool,
}

#[derive(Clone, Copy)]
struct Pending {
    turn: u32,
    held: bool,
    client: Conn,
    manager: Conn,
    header: Header,
    since: MonoNs,
    writes: bool,
    deadline: Option<ResultDeadline>,
    kept: [u8; KEPT_BYTES],
    kept_bytes: u8,
}

/// Displays the bands of a route as a list.
struct Bands<'a>(&'a Route);

impl fmt::Display for Bands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for band in Band::all().filter(|band| self.0.is_on(*band)) {
            write!(f, "{before}{band}")?;
            before = ",";
        }
        Ok(())
    }
}

/// The state machine of one band. It allocates only when it is created.
pub struct Lane {
    limits: Limits,
    /// The server's own user.
    owner: u32,
    tables: Arc<Tables>,
    pending: Vec<Pending>,
    free: Vec<u32>,
    held: Vec<ConnState>,
    wheel: Wheel,
    counters: Counters,
    /// Slot at which [`gone`](Self::gone) continues.
    looked: u32,
}

impl Lane {
    /// A lane without connections, of a server that runs as user `owner`.
    #[must_use]
    pub fn new(limits: Limits, owner: u32, tables: Arc<Tables>) -> Self {
        let unconnected = Conn { slot: 0, turn: 0 };
        let empty = Pending {
            turn: 0,
            held: false,
            client: unconnected,
            manager: unconnected,
            header: Header::request(Band::DEFAULT, 0),
            since: MonoNs(0),
            writes: false,
            deadline: None,
            kept: [0; KEPT_BYTES],
            kept_bytes: 0,
        };
        Self {
            tables,
            pending: vec![empty; limits.outstanding],
            free: (0..limits.outstanding as u32).rev().collect(),
            held: vec![ConnState::default(); limits.conns],
            wheel: Wheel::new(limits.outstanding),
            counters: Counters::default(),
            looked: 0,
            limits,
            owner,
        }
    }

    /// Registers a connection of a user, as reported by the kernel.
    pub fn come(&mut self, conn: Conn, user: u32) {
        if let Some(held) = self.held.get_mut(conn.slot as usize) {
            held.user = user;
        }
    }

    /// Replaces the tables. Returns the previous ones, to be freed by another thread.
    #[must_use]
    pub fn replace(&mut self, tables: Arc<Tables>) -> Arc<Tables> {
        core::mem::replace(&mut self.tables, tables)
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether another process may still write into a room of the previous client in this slot: a request with a room
    /// was answered on behalf of its manager, or outlived the client. The flag is cleared. Call once, after the client
    /// has [gone](Self::gone).
    pub fn has_lost_rooms(&mut self, client: Conn) -> bool {
        self.held.get_mut(client.slot as usize).is_some_and(|held| core::mem::take(&mut held.lost_room))
    }

    /// Number of outstanding requests.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    /// Latest time of the next call of [`due`](Self::due), if nothing else happens before.
    #[must_use]
    pub fn next_look(&self) -> Option<MonoNs> {
        self.wheel.next_look()
    }

    /// Routes a client's request. The caller has set the subject in the header. If the server answers, the reply's text
    /// is in `line`.
    pub fn request<'a>(
        &mut self,
        now: MonoNs,
        from: Conn,
        header: &Header,
        text: &'a str,
        body: &[u8],
        line: &mut TextBuffer,
    ) -> Step<'a> {
        self.counters.requests += 1;
        match self.route(now, from, header, text, body, line) {
            Ok((to, verb, weighed)) => {
                let asked = header.deadline.unwrap_or(now + self.limits.default_deadline);
                // The request's deadline is at most the time when the answer's value becomes zero: a later one is useless.
                let deadline = weighed.map_or(asked, |deadline| asked.min(now + deadline.void_after()));
                let id = self.hold(now, from, to, Header { deadline: Some(deadline), ..*header }, verb, text);
                self.pending[id as u32 as usize].deadline = weighed;
                self.counters.forwarded += 1;
                Step::Forward { to, header: Header { id, deadline: Some(deadline), ..*header } }
            }
            Err(code) => {
                self.counters.answered[code as usize] += 1;
                Step::Done(Completion {
                    to: from,
                    header: header.reply(),
                    asked: text,
                    since: now,
                    log: self.logs(header, true),
                })
            }
        }
    }

    /// The receiver of a request, or the code of the server's reply.
    fn route(
        &mut self,
        now: MonoNs,
        from: Conn,
        header: &Header,
        text: &str,
        body: &[u8],
        line: &mut TextBuffer,
    ) -> Result<(Conn, Verb, Option<ResultDeadline>), Code> {
        let mut no = |code: Code, why: fmt::Arguments<'_>| {
            line.reply(code, why);
            code
        };
        let request = match Request::parse(text) {
            Ok(request) => request,
            Err(error @ TextError::Verb { .. }) => return Err(no(Code::NoVerb, format_args!("{error}"))),
            Err(error) => return Err(no(Code::Malformed, format_args!("{error}"))),
        };
        if let Some(late) = header.deadline.filter(|at| *at <= now) {
            let failure = Failure::TooLate { hop: Hop::Server, by: now - late };
            return Err(no(failure.code(), format_args!("{failure}")));
        }
        let (held, each) = (self.held.get(from.slot as usize), self.limits.outstanding_each);
        if held.is_none_or(|held| held.requests >= each) {
            return Err(no(
                Code::Overload,
                format_args!("message server: {each} requests of this client are outstanding; take replies first"),
            ));
        }
        if let Err(excess) = self.admit(from) {
            self.counters.over_share += 1;
            return Err(no(Code::Overload, format_args!("message server: {excess}")));
        }
        let to = self.allowed(from, header, &request, &mut no)?;
        if request.verb == Verb::Batch {
            let lines = Lines::read(body).map_err(|error| no(Code::Malformed, format_args!("{error}")))?;
            for (at, item) in lines.enumerate() {
                let at = at + 1;
                let item = item.map_err(|error| no(Code::Malformed, format_args!("{error}")))?;
                let item = Request::parse(item).map_err(|error| {
                    no(Code::Malformed, format_args!("line {at} of the batch: {error}; nothing was done"))
                })?;
                if !item.verb.row().batchable {
                    return Err(no(
                        Code::NoVerb,
                        format_args!("line {at} of the batch: {} cannot be part of one; nothing was done", item.verb),
                    ));
                }
                if self.allowed(from, header, &item, &mut no)? != to {
                    return Err(no(
                        Code::NoObject,
                        format_args!(
                            "line {at} of the batch: {} is served by another manager than {}; send it separately; nothing was executed",
                            item.object, request.object
                        ),
                    ));
                }
            }
        }
        Ok((to, request.verb, self.tables.deadline(header.band, request.verb, request.object.text())))
    }

    /// Checks whether a connection's user may have one more outstanding request.
    fn admit(&self, from: Conn) -> Result<(), Excess> {
        let all = self.limits.outstanding as u64;
        let share = Share { what: "requests outstanding on this band", all, remedy: "take replies first" };
        if share.is_plenty(self.outstanding() as u64, 1) {
            return Ok(());
        }
        let user = self.held[from.slot as usize].user;
        let taken = self.held.iter().map(|held| (held.user, held.requests.into()));
        share.admit(taken, user, 1, |user| self.is_ours(user))
    }

    /// Whether a user is root or the server's own user.
    #[must_use]
    pub fn is_ours(&self, user: u32) -> bool {
        user == self.owner || user == 0
    }

    /// The connection that serves a request, if rules and locks permit it.
    fn allowed(
        &self,
        from: Conn,
        header: &Header,
        request: &Request<'_>,
        no: &mut impl FnMut(Code, fmt::Arguments<'_>) -> Code,
    ) -> Result<Conn, Code> {
        let (verb, object) = (request.verb, request.object.text());
        let who = self.tables.who(header.subject);
        match self.tables.rule(header.subject, header.band, verb, object) {
            Some(Access::Allow) => {}
            Some(Access::Deny) => {
                return Err(no(Code::Denied, format_args!("a rule keeps {who} from {verb} {object}")));
            }
            None => {
                let is_ours = self.is_ours(header.subject.uid);
                if Tables::without_rule(header.subject, verb, is_ours) == Access::Deny {
                    return Err(no(
                        Code::Denied,
                        format_args!(
                            "no rule allows {who} to {verb} {object}; without a rule only the server's user and root may"
                        ),
                    ));
                }
            }
        }
        if verb.writes()
            && let Some(lock) = self.tables.lock_against(from, object)
        {
            return Err(no(Code::Locked, format_args!("{} holds a lock on {}", lock.subject, lock.object)));
        }
        // The literal part of a pattern. A claim ends at a word boundary, so an incomplete last word is dropped.
        let wild = object.bytes().position(|byte| matches!(byte, b'*' | b'?'));
        let literal = wild.map(|at| object[..at].rfind('_').map_or("", |end| &object[..end]));
        let own = verb.is_servers() || object == "server";
        match self.tables.route(literal.unwrap_or(object)) {
            _ if own => Ok(Conn::SERVER),
            Some(route) if !route.is_on(header.band) => Err(no(
                Code::NoObject,
                format_args!(
                    "no manager serves {object} on band {}; manager {} does on band {}",
                    header.band,
                    route.manager,
                    Bands(route)
                ),
            )),
            Some(route) => Ok(route.to),
            None if verb.row().served_by == ServedBy::ManagerOrServer => Ok(Conn::SERVER),
            None => {
                let near = |prefix: &&str| prefix.len().abs_diff(object.len()) <= object.len().max(3) / 3;
                let known = self.tables.routes().iter().map(|route| route.prefix.as_str());
                let known = known.filter(near).take(NEAR_MAX);
                Err(match base::nearest(object, known) {
                    Some(near) => no(Code::NoObject, format_args!("no manager serves {object}; did you mean {near}?")),
                    None => {
                        no(Code::NoObject, format_args!("no manager serves {object}; \"list/*\" lists the objects"))
                    }
                })
            }
        }
    }

    fn logs(&self, header: &Header, wanted: bool) -> bool {
        wanted || self.tables.watched[usize::from(header.band.number())]
    }

    /// Stores a request until its reply. Returns its id on this server.
    fn hold(&mut self, now: MonoNs, client: Conn, manager: Conn, header: Header, verb: Verb, text: &str) -> u64 {
        let slot = self.free.pop().unwrap_or_default();
        let pending = &mut self.pending[slot as usize];
        let kept = text.floor_char_boundary(KEPT_BYTES);
        pending.kept[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        pending.kept_bytes = kept as u8;
        pending.turn = pending.turn.wrapping_add(1);
        (pending.held, pending.client, pending.manager, pending.header) = (true, client, manager, header);
        (pending.since, pending.writes, pending.deadline) = (now, verb.writes(), None);
        self.held[client.slot as usize].requests += 1;
        self.wheel.insert(slot, header.deadline.unwrap_or(now));
        u64::from(pending.turn) << 32 | u64::from(slot)
    }

    /// Frees an outstanding request. It must have been removed from the wheel.
    fn free(&mut self, slot: u32, log: bool) -> Completion<'_> {
        let pending = &mut self.pending[slot as usize];
        pending.held = false;
        self.held[pending.client.slot as usize].requests -= 1;
        self.free.push(slot);
        let pending = &self.pending[slot as usize];
        Completion {
            to: pending.client,
            header: pending.header.reply(),
            asked: core::str::from_utf8(&pending.kept[..pending.kept_bytes.into()]).unwrap_or_default(),
            since: pending.since,
            log: self.logs(&pending.header, log || pending.writes),
        }
    }

    fn find(&self, id: u64) -> Option<u32> {
        let pending = self.pending.get((id & u64::from(u32::MAX)) as usize)?;
        (pending.held && pending.turn == (id >> 32) as u32).then_some(id as u32)
    }

    /// Adds an answer to the tally, given the time it took; `None`: there was no answer.
    fn weigh(&mut self, slot: u32, took: Option<DurNs>) {
        let Some(deadline) = self.pending[slot as usize].deadline else { return };
        let late = took.is_none_or(|took| took > deadline.at);
        self.counters.value.add(took.map_or(Worth::NONE, |took| deadline.worth(took)), late);
        self.counters.hard_missed += u64::from(late && deadline.late == Lateness::Hard);
    }

    /// Matches a manager's reply to its request. `text` begins with the code. `None` if no request is waiting for it.
    pub fn reply(&mut self, now: MonoNs, from: Conn, header: &Header, text: &str) -> Option<Completion<'_>> {
        let held = self.find(header.id).filter(|slot| self.pending[*slot as usize].manager == from);
        let Some(slot) = held.filter(|_| header.kind == Kind::Reply) else {
            self.counters.strays += 1;
            return None;
        };
        self.wheel.remove(slot);
        self.counters.replied += 1;
        self.weigh(slot, Some(now - self.pending[slot as usize].since));
        let mut done = self.free(slot, !text.starts_with("OK/"));
        (done.header.flags, done.header.pulse) = (header.flags, header.pulse);
        Some(done)
    }

    /// Marks a room as lost, because the receiver of the request may still write into it.
    fn lose_room(&mut self, slot: u32) {
        let pending = &self.pending[slot as usize];
        self.held[pending.client.slot as usize].lost_room |= pending.header.flags.has(Flags::POOLED);
    }

    /// Answers a request on behalf of its manager.
    fn answer(&mut self, slot: u32, failure: Failure<'_>, line: &mut TextBuffer) -> Completion<'_> {
        self.lose_room(slot);
        self.weigh(slot, None);
        self.counters.answered[failure.code() as usize] += 1;
        line.reply(failure.code(), failure);
        self.free(slot, true)
    }

    /// Answers `OVERLOAD` for a request that could not be forwarded, because the queue is full or the user exceeds its
    /// share.
    pub fn refused(&mut self, id: u64, excess: Option<Excess>, line: &mut TextBuffer) -> Option<Completion<'_>> {
        let slot = self.find(id)?;
        self.wheel.remove(slot);
        self.weigh(slot, None);
        self.counters.answered[Code::Overload as usize] += 1;
        let hop = self.hop(self.pending[slot as usize].manager);
        match excess {
            Some(excess) => line.reply(Code::Overload, format_args!("{hop}: {excess}; nothing was done")),
            None => line.reply(Code::Overload, format_args!("{hop}: its queue is full, nothing was done")),
        }
        self.counters.over_share += u64::from(excess.is_some());
        Some(self.free(slot, true))
    }

    /// Answers one request whose deadline has passed. Call until it returns `None`.
    pub fn due(&mut self, now: MonoNs, line: &mut TextBuffer) -> Option<Completion<'_>> {
        let slot = self.wheel.due(now)?;
        let pending = &self.pending[slot as usize];
        let after = now - pending.since;
        // The cloned tables own the name, so that `self` can be borrowed mutably.
        let tables = self.tables.clone();
        let hop = hop(&tables, pending.manager);
        Some(self.answer(slot, Failure::NoAnswer { hop, after }, line))
    }

    /// Handles the end of a connection. Frees the requests that it sent, and answers one of those that it was
    /// executing. Call until it returns `None`.
    pub fn gone(&mut self, now: MonoNs, conn: Conn, name: &str, line: &mut TextBuffer) -> Option<Completion<'_>> {
        for slot in core::mem::take(&mut self.looked)..self.pending.len() as u32 {
            let pending = &self.pending[slot as usize];
            if !pending.held || (pending.client != conn && pending.manager != conn) {
                continue;
            }
            let (orphan, after) = (pending.client == conn, now - pending.since);
            self.wheel.remove(slot);
            if orphan {
                self.counters.orphaned += 1;
                self.lose_room(slot);
                self.free(slot, false);
            } else {
                self.looked = slot + 1;
                return Some(self.answer(slot, Failure::Died { hop: Hop::Manager(name), after }, line));
            }
        }
        None
    }

    fn hop(&self, manager: Conn) -> Hop<'_> {
        hop(&self.tables, manager)
    }
}

fn hop(tables: &Tables, manager: Conn) -> Hop<'_> {
    let route = tables.routes().iter().find(|route| route.to == manager);
    route.map_or(Hop::Server, |route| Hop::Manager(&route.manager))
}
