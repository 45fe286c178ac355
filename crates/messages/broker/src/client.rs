//! The client's side of a connection.

use crate::end::{ClientError, End, Waker, greet};
use crate::greeting::{Hello, VERSION};
use crate::message_buffer::{MessageBuffer, Packing, put};
use crate::pool::{POOL_BYTES_MAX, Pool, Room, Rooms};
use base::{DurNs, MonoNs};
use msg::{BODY_BYTES_MAX, Band, Code, Failure, Flags, Header, Hop, Kind, Lines, Pooled, Request, Subject, Verb};
use std::collections::VecDeque;
use std::sync::Arc;
use sys::clock::mono_now;

/// Connects a client. Returns the connection, and the pool if it requested one.
fn enter(server: &str, hello: &Hello) -> Result<(End, Option<Pool>), ClientError> {
    let mut end = greet(server, hello)?.pop().ok_or(ClientError::Lost)?;
    let pool = end.pool.take().map(|fd| Pool::new(fd, Some(end.connection()))).transpose()?;
    Ok((end, pool))
}

/// Parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending<'a> {
    /// Time from now after which it must not be executed.
    pub limit: DurNs,
    /// Properties of the request. Verbs that only read are always idempotent.
    pub flags: Flags,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
    /// Body, usually MessagePack, or empty. A body above 16 KiB is sent through the client's pool.
    pub body: &'a [u8],
    /// Maximum bytes of the answer's body. Above 16 KiB, room for it is reserved in the client's pool.
    pub answer: u64,
    /// Sender of the request, if this connection [represents another host](Client::for_host). Otherwise the server sets
    /// it.
    pub subject: Subject,
}

impl Default for Sending<'_> {
    fn default() -> Self {
        Self {
            limit: DurNs::from_secs(5),
            flags: Flags::NONE,
            pulse: 0,
            body: &[],
            answer: 0,
            subject: Subject::default(),
        }
    }
}

/// A received reply or event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The id returned by [`Client::send`]. For an event: the id of its `watch` request.
    pub id: u64,
    /// Whether this is an event of a watch.
    pub event: bool,
    /// Result of the request.
    pub code: Code,
    /// The value, or the reason of a failure, as plain text.
    pub text: String,
    /// The body.
    pub body: Vec<u8>,
    /// The room that was sent with the request. Contains the answer's body if the manager wrote one there.
    pub room: Option<Arc<Room>>,
    /// The pulse to which it belongs, 0 for none.
    pub pulse: u64,
}

impl Received {
    /// The lines in the body, as in the reply to a batch or a list; `None` if it has none.
    pub fn lines(&self) -> Option<Vec<&str>> {
        Lines::read(&self.body).ok()?.collect::<Result<_, _>>().ok()
    }

    /// The words of the body's lines, or of the text if there are no lines: the entries of a list.
    pub fn words(&self) -> Vec<&str> {
        self.lines().unwrap_or_else(|| vec![&*self.text]).into_iter().flat_map(str::split_whitespace).collect()
    }
}

/// Served objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Their names, sorted. If a manager did not answer, the names that it claims.
    pub objects: Vec<String>,
    /// Managers that did not list their objects, with the code and text of the replies.
    pub lacking: Vec<(String, Code, String)>,
}

/// Maximum number of requests in flight at once. Below the server's limit per client.
const OUTSTANDING_MAX: usize = 128;

struct Outstanding {
    id: u64,
    header: Header,
    line: String,
    body: Vec<u8>,
    since: MonoNs,
    repeats: bool,
    room: Option<Room>,
    /// The caller does not know about the room: its body is copied out.
    copies: bool,
    /// It writes and was sent again: even if the second attempt fails, the first may have been executed.
    perhaps: bool,
}

impl Outstanding {
    /// The meaning of a reply for the caller.
    fn mean(&self, code: Code, text: String) -> (Code, String) {
        match self.perhaps && code != Code::Ok && !code.may_have_happened() {
            true => (
                Code::Unknown,
                format!("message server: lost after it got the request; sent again then: {code}: {text}"),
            ),
            false => (code, text),
        }
    }

    /// A reply made by the client itself. A receiver of the request may still write into its room, which is therefore
    /// lost.
    fn answered(self, failure: &Failure<'_>) -> Received {
        if let Some(room) = self.room {
            room.lose();
        }
        Received {
            id: self.id,
            event: false,
            code: failure.code(),
            text: failure.to_string(),
            body: Vec::new(),
            room: None,
            pulse: self.header.pulse,
        }
    }
}

/// A client of a message server, for use by one thread. If the server restarts, the client reconnects. Requests that
/// may be repeated are sent again; all others are answered `UNKNOWN`.
///
/// Allocates for each request and reply. Real-time threads use a [`ManagerLane`](crate::ManagerLane).
pub struct Client {
    server: String,
    hello: Hello,
    end: Option<End>,
    pool: Option<Pool>,
    next_id: u64,
    outstanding: VecDeque<Outstanding>,
    /// Replies made by the client itself, or received while waiting for another one.
    given: VecDeque<Received>,
    buffer: MessageBuffer,
    packing: Packing,
    reconnections: u64,
}

impl Client {
    /// Connects to the server `server` (usually `main`) as client `name`.
    ///
    /// # Errors
    /// No server is running, or it refuses.
    pub fn connect(server: &str, name: &str, band: Band) -> Result<Self, ClientError> {
        Self::greeting(server, name, band, "", 0)
    }

    /// Like [`connect`](Self::connect), with a pool of `bytes` (at most 256 MiB) for bodies above 16 KiB.
    /// [`send`](Self::send) copies them into the pool; in a [room](Self::room) they are written in place.
    ///
    /// # Errors
    /// Like `connect`, or the server's pools together have reached their limit.
    pub fn with_pool(server: &str, name: &str, band: Band, bytes: u64) -> Result<Self, ClientError> {
        if bytes == 0 {
            return Err(ClientError::Message(format!("a pool of 0 bytes, expected 1 to {POOL_BYTES_MAX}")));
        }
        Self::greeting(server, name, band, "", bytes)
    }

    /// Like [`connect`](Self::connect), for a link that forwards requests of processes on another host. Access rules
    /// treat them as coming from `host`. `pool` is the size of the pool in bytes, 0 for none. Requires root or the
    /// server's own user.
    ///
    /// # Errors
    /// No server is running, or it refuses.
    pub fn for_host(server: &str, name: &str, band: Band, host: &str, pool: u64) -> Result<Self, ClientError> {
        Self::greeting(server, name, band, host, pool)
    }

    fn greeting(server: &str, name: &str, band: Band, host: &str, pool: u64) -> Result<Self, ClientError> {
        if pool > POOL_BYTES_MAX {
            return Err(ClientError::Message(format!("a pool of {pool} bytes, expected 1 to {POOL_BYTES_MAX}")));
        }
        let bands = vec![band.number()];
        let hello = Hello { version: VERSION, name: name.into(), bands, serves: Vec::new(), host: host.into(), pool };
        let (end, pool) = enter(server, &hello)?;
        Ok(Self {
            server: server.into(),
            hello,
            end: Some(end),
            pool,
            next_id: 1,
            outstanding: VecDeque::new(),
            given: VecDeque::new(),
            buffer: MessageBuffer::new(),
            packing: Packing::new(),
            reconnections: 0,
        })
    }

    /// Sends a request without waiting. Returns its id. [`flush`](Self::flush) or the next wait wakes the server.
    ///
    /// # Errors
    /// The line is not a request, the queue is full, the pool has no room for the body or its answer, or the server has
    /// gone and cannot be reached.
    pub fn send(&mut self, line: &str, sending: &Sending<'_>) -> Result<u64, ClientError> {
        let bytes = sending.answer.max(sending.body.len() as u64);
        if bytes <= BODY_BYTES_MAX as u64 {
            return self.put(line, sending, &mut None, false);
        }
        if self.outstanding.is_empty() && self.pool.as_ref().is_some_and(|pool| pool.has_lost() && !pool.fits(bytes)) {
            // No request is pending, so a new connection with a new pool loses nothing.
            let (end, pool) = enter(&self.server, &self.hello)?;
            (self.end, self.pool) = (Some(end), pool);
        }
        let mut room = self.room(bytes)?;
        // Cannot fail: the room has this size.
        let _ = room.write(sending.body);
        self.put(line, sending, &mut Some(room), true)
    }

    /// Allocates a room of at least `bytes` in this client's pool, for the bodies of a request and its answer.
    ///
    /// # Errors
    /// [`NoRoom`](ClientError::NoRoom), also if the client has no pool.
    pub fn room(&self, bytes: u64) -> Result<Room, ClientError> {
        self.pool.as_ref().and_then(|pool| pool.room(bytes)).ok_or(ClientError::NoRoom(bytes))
    }

    /// Allocator of rooms in this client's pool, usable from any thread; `None` while there is no pool. Each connection
    /// has a separate pool.
    #[must_use]
    pub fn rooms(&self) -> Option<Rooms> {
        self.pool.clone().map(Rooms)
    }

    /// Like [`send`](Self::send), with the body in `room` instead of `sending.body`. The reply returns the room, into
    /// which the manager may have written the answer's body. After `TIMEOUT` and `UNKNOWN` the room is lost, because
    /// another process may still write into it. A new connection has a new pool.
    ///
    /// # Errors
    /// Like `send`, or the room belongs to a closed connection.
    pub fn send_room(&mut self, line: &str, sending: &Sending<'_>, room: Room) -> Result<u64, ClientError> {
        self.send_room_or_keep(line, sending, &mut Some(room))
    }

    /// Like [`send_room`](Self::send_room), but on failure the room stays in the option.
    ///
    /// # Errors
    /// Like `send_room`, or the option is `None`.
    pub fn send_room_or_keep(
        &mut self,
        line: &str,
        sending: &Sending<'_>,
        room: &mut Option<Room>,
    ) -> Result<u64, ClientError> {
        let Some(own) = room else { return Err(ClientError::Message("the room has been sent".to_owned())) };
        if !self.pool.as_ref().is_some_and(|pool| pool.owns(own)) {
            let why = "the room belongs to the pool of a closed connection; take a new one";
            return Err(ClientError::Message(why.to_owned()));
        }
        self.put(line, sending, room, false)
    }

    fn put(
        &mut self,
        line: &str,
        sending: &Sending<'_>,
        room: &mut Option<Room>,
        copies: bool,
    ) -> Result<u64, ClientError> {
        let request = Request::parse(line).map_err(|error| ClientError::Message(error.to_string()))?;
        let end = self.end.as_mut().ok_or(ClientError::Lost)?;
        let (id, since) = (self.next_id, mono_now());
        let header = Header {
            flags: if room.is_some() { sending.flags.with(Flags::POOLED) } else { sending.flags },
            deadline: Some(since + sending.limit),
            pulse: sending.pulse,
            subject: sending.subject,
            origin_unix_ns: sys::clock::wall_ns(),
            ..Header::request(end.band, id)
        };
        let place = room.as_ref().map(|room| room.place().to_bytes());
        let body = place.as_ref().map_or(sending.body, |place| place);
        let put = put(&mut end.up, &mut self.packing, header, line, body);
        if !put.map_err(|error| ClientError::Message(error.to_string()))? {
            end.wake();
            return Err(ClientError::Full);
        }
        self.next_id += 1;
        // A room is valid only on its connection, so such a request cannot be repeated.
        let repeats = room.is_none() && (request.verb.row().idempotent || sending.flags.has(Flags::IDEMPOTENT));
        let body = if repeats { sending.body.to_vec() } else { Vec::new() };
        let line = if repeats { line.to_owned() } else { String::new() };
        let (perhaps, room) = (false, room.take());
        self.outstanding.push_back(Outstanding { id, header, line, body, since, repeats, room, copies, perhaps });
        Ok(id)
    }

    /// Wakes the server if it sleeps.
    pub fn flush(&self) {
        if let Some(end) = &self.end {
            end.wake();
        }
    }

    /// Wakes this client from another thread; `None` while it is not connected. Each connection has a separate waker.
    #[must_use]
    pub fn waker(&self) -> Option<Waker> {
        self.end.as_ref().map(End::waker)
    }

    fn was_rung(&mut self) -> bool {
        self.end.as_mut().is_some_and(End::was_rung)
    }

    /// Number of requests without a reply.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Waits for the next reply or event, a [`Waker`], or at most `limit`.
    ///
    /// # Errors
    /// `Lost`: the server has gone, all outstanding requests have been answered, and reconnecting failed.
    pub fn next(&mut self, limit: DurNs) -> Result<Option<Received>, ClientError> {
        self.flush();
        let mut until = None;
        self.next_until(|now| *until.get_or_insert(now + limit))
    }

    /// Like [`next`](Self::next), without [`flush`](Self::flush). `until` is called with the current time if no message
    /// is available.
    fn next_until(&mut self, mut until: impl FnMut(MonoNs) -> MonoNs) -> Result<Option<Received>, ClientError> {
        loop {
            if let Some(given) = self.given.pop_front() {
                return Ok(Some(given));
            }
            let bell = self.end.as_ref().map_or(0, End::bell);
            let taken = self.take();
            if let Ok(Some(received)) = taken {
                return Ok(Some(received));
            }
            let now = mono_now();
            let until = until(now);
            let waited = match taken {
                Ok(_) if now >= until || self.was_rung() => return Ok(None),
                Ok(_) => self.end.as_mut().map_or(Err(ClientError::Lost), |end| end.wait(now, until, bell)),
                Err(error) => Err(error),
            };
            if waited.is_err() {
                self.lost();
                if self.given.is_empty() {
                    self.reconnect(until)?;
                }
            }
        }
    }

    /// Takes the next message. Also returns `None` for a reply whose request is no longer outstanding; then more may
    /// follow.
    fn take(&mut self) -> Result<Option<Received>, ClientError> {
        let end = self.end.as_mut().ok_or(ClientError::Lost)?;
        if !self.buffer.take(&mut end.down)? {
            return Ok(None);
        }
        let frame = self.buffer.frame().map_err(|_| ClientError::Lost)?;
        let id = frame.header.id;
        let event = frame.header.kind == Kind::Event;
        let at = self.outstanding.iter().position(|waiting| waiting.id == id);
        let waiting = at.filter(|_| !event).and_then(|at| self.outstanding.remove(at));
        if !event && waiting.is_none() {
            return Ok(None);
        }
        let (mut code, mut text) = match (event, msg::Reply::parse(frame.text)) {
            (true, _) => (Code::Ok, frame.text.to_owned()),
            (false, Ok(reply)) => (reply.code, reply.complement.text().into_owned()),
            (false, Err(error)) => (Code::Internal, format!("invalid reply: {error}")),
        };
        if let Some(waiting) = &waiting {
            (code, text) = waiting.mean(code, text);
        }
        let mut body = frame.body;
        let (mut room, copies) = waiting.map_or((None, false), |waiting| (waiting.room, waiting.copies));
        if frame.header.flags.has(Flags::POOLED) {
            // Only the length is taken from the reply. The location of the room is known here.
            let bytes = Pooled::from_bytes(std::mem::take(&mut body)).map_or(u64::MAX, |place| place.bytes);
            if !room.as_mut().is_some_and(|room| room.set_filled(bytes)) {
                (code, text) = (Code::Internal, "the reply's body is in a room that the request did not have".into());
            }
        } else if let Some(room) = &mut room {
            room.set_filled(0);
        }
        if matches!(code, Code::Timeout | Code::Unknown)
            && let Some(room) = room.take()
        {
            room.lose();
        }
        let (mut body, pulse) = (body.to_vec(), frame.header.pulse);
        if let Some(room) = room.take_if(|_| copies)
            && !room.is_empty()
        {
            body.resize(room.len(), 0);
            room.copy_to(&mut body);
        }
        Ok(Some(Received { id, event, code, text, body, room: room.map(Arc::new), pulse }))
    }

    /// Handles the loss of the server: answers the requests that must not be repeated.
    fn lost(&mut self) {
        self.end = None;
        let now = mono_now();
        let (repeat, over): (VecDeque<_>, VecDeque<_>) = self
            .outstanding
            .drain(..)
            .partition(|waiting| waiting.repeats && waiting.header.deadline.is_none_or(|deadline| deadline > now));
        self.outstanding = repeat;
        self.given.extend(over.into_iter().map(|waiting| {
            let failure = Failure::Died { hop: Hop::Server, after: now - waiting.since };
            waiting.answered(&failure)
        }));
    }

    /// Reconnects and repeats the remaining requests.
    fn reconnect(&mut self, until: MonoNs) -> Result<(), ClientError> {
        loop {
            match enter(&self.server, &self.hello) {
                Ok((end, pool)) => {
                    (self.end, self.pool) = (Some(end), pool);
                    self.reconnections += 1;
                    break;
                }
                Err(_) if mono_now() < until => sys::clock::sleep_until(mono_now() + DurNs::from_ms(20)),
                Err(_) => return Err(ClientError::Lost),
            }
        }
        let Some(end) = &mut self.end else { return Err(ClientError::Lost) };
        for mut waiting in std::mem::take(&mut self.outstanding) {
            waiting.perhaps = Request::parse(&waiting.line).is_ok_and(|request| request.verb.writes());
            match put(&mut end.up, &mut self.packing, waiting.header, &waiting.line, &waiting.body) {
                Ok(true) => self.outstanding.push_back(waiting),
                // More requests were outstanding than fit into the queue at once.
                _ => {
                    let failure = Failure::Died { hop: Hop::Server, after: mono_now() - waiting.since };
                    self.given.push_back(waiting.answered(&failure));
                }
            }
        }
        end.wake();
        Ok(())
    }

    /// All lines of `list/PATTERN`, with as many requests as needed, and the last reply. Its code shows whether the
    /// list is complete.
    ///
    /// # Errors
    /// Like [`ask`](Self::ask).
    pub fn list(&mut self, pattern: &str, sending: &Sending<'_>) -> Result<(Vec<String>, Received), ClientError> {
        let (mut lines, mut from) = (Vec::new(), 0);
        loop {
            let line = if from == 0 { format!("list/{pattern}") } else { format!("list/{pattern}/{from}") };
            let received = self.ask(&line, sending)?;
            // An incomplete reply's text begins with the number of lines so far and the total: `N of TOTAL`.
            let next = received.text.split_once(" of ").and_then(|(next, _)| next.parse::<usize>().ok());
            match received.lines() {
                Some(more) if received.code == Code::Ok => lines.extend(more.into_iter().map(str::to_owned)),
                _ => return Ok((lines, received)),
            }
            match next.filter(|next| *next > from) {
                Some(next) => from = next,
                None => return Ok((lines, received)),
            }
        }
    }

    /// Number of reconnections. After one, every [watch](msg::Verb::Watch) must be requested again.
    #[must_use]
    pub const fn reconnections(&self) -> u64 {
        self.reconnections
    }

    /// Subscribes to requests that pass the server. `pattern` is `VERBS/OBJECTS`, or `OBJECTS` for all verbs.
    /// [`next`](Self::next) returns the events.
    ///
    /// # Errors
    /// Like [`ask`](Self::ask).
    pub fn watch(&mut self, pattern: &str, sending: &Sending<'_>) -> Result<Received, ClientError> {
        let (verbs, objects) = pattern.split_once('/').unwrap_or(("*", pattern));
        self.ask(&format!("{}/{objects}/{verbs}", Verb::Watch), sending)
    }

    /// All served objects, as listed by their managers. Up to 128 requests are in flight at once, so that one hanging
    /// manager costs a single `sending.limit`.
    ///
    /// # Errors
    /// Like [`ask`](Self::ask). A refusal by a manager or the server is returned in [`Served::lacking`].
    pub fn served(&mut self, sending: &Sending<'_>) -> Result<Served, ClientError> {
        let (claims, last) = self.list("*", sending)?;
        let mut served = Served::default();
        if last.code != Code::Ok {
            served.lacking.push(("message server".to_owned(), last.code, last.text));
        }
        let words = claims.iter().flat_map(|line| line.split_whitespace());
        let mut claims = words.filter_map(|word| word.split_once('='));
        let mut asked: Vec<(u64, &str, &str)> = Vec::new();
        loop {
            while self.outstanding() < OUTSTANDING_MAX
                && let Some((claim, manager)) = claims.next()
            {
                asked.push((self.send(&format!("{}/{claim}", Verb::List), sending)?, claim, manager));
            }
            if self.outstanding() == 0 {
                break;
            }
            let Some(received) = self.next(sending.limit)? else { continue };
            let Some((_, claim, manager)) = asked.iter().find(|(id, ..)| *id == received.id) else { continue };
            if received.code == Code::Ok {
                served.objects.extend(received.words().into_iter().map(str::to_owned));
                continue;
            }
            // Its claim is the only known part.
            served.objects.push((*claim).to_owned());
            if !served.lacking.iter().any(|(name, ..)| name == manager) {
                served.lacking.push(((*manager).to_owned(), received.code, received.text));
            }
        }
        served.objects.sort_unstable();
        served.objects.dedup();
        Ok(served)
    }

    /// Sends a request and waits for its reply. Other replies and events that arrive meanwhile are kept for
    /// [`next`](Self::next).
    ///
    /// # Errors
    /// Like [`send`](Self::send) and [`next`](Self::next). A reply that reports a failure of the request is not an
    /// error here.
    pub fn ask(&mut self, line: &str, sending: &Sending<'_>) -> Result<Received, ClientError> {
        let id = self.send(line, sending)?;
        let mut others = VecDeque::new();
        // The server answers at the deadline. The extra second guards against a server that hangs.
        let patience = self.outstanding.back().map_or_else(mono_now, |waiting| waiting.since)
            + sending.limit
            + DurNs::from_secs(1);
        self.flush();
        let found = loop {
            match self.next_until(|_| patience) {
                Ok(Some(received)) if received.id == id && !received.event => break Ok(received),
                Ok(Some(other)) => others.push_back(other),
                // A waker was used.
                Ok(None) if mono_now() < patience => {}
                Ok(None) => {
                    let failure = Failure::NoAnswer { hop: Hop::Server, after: sending.limit };
                    let at = self.outstanding.iter().position(|waiting| waiting.id == id);
                    if let Some(waiting) = at.and_then(|at| self.outstanding.remove(at)) {
                        break Ok(waiting.answered(&failure));
                    }
                }
                Err(error) => break Err(error),
            }
        };
        others.extend(self.given.drain(..));
        self.given = others;
        found
    }
}

#[cfg(test)]
mod tests;
