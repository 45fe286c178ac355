//! The equipment manager's side of a connection.

use crate::end::{ClientError, End, Waker, greet};
use crate::greeting::{Hello, VERSION};
use crate::memory::Half;
use crate::message_buffer::{MessageBuffer, Packing, put};
use crate::pool::{POOL_BYTES_MAX, Pools, Room};
use base::{DurNs, MonoNs};
use msg::{
    Answer, BODY_BYTES_MAX, Band, Code, Failure, Flags, Header, Hop, Kind, ManagerRequest, Pooled, Request, TextBuffer,
    Ticket,
};
use ring::StreamWriter;
use sys::clock::mono_now;

/// Registration with a message server.
pub struct Manager;

impl Manager {
    /// Connects to the server `server` as manager `name` of the objects in `serves`. `sr_mag` covers `sr_mag` and
    /// `sr_mag_ps_b`, but not `sr_magnet`. Returns one lane for each band, in the same order. Each lane can run in a
    /// separate thread.
    ///
    /// # Errors
    /// No server is running, or it refuses: another manager has one of the objects, or a rule forbids it.
    pub fn connect(server: &str, name: &str, serves: &[&str], bands: &[Band]) -> Result<Vec<ManagerLane>, ClientError> {
        Self::greeting(server, name, serves, bands, 0)
    }

    /// Like [`connect`](Self::connect), for a manager that accepts bodies of up to `bytes`. Bodies above 16 KiB are
    /// copied out of the client's pool before the handler runs. Answers above 16 KiB are written into the room of their
    /// request.
    ///
    /// Real-time: each lane reserves its memory here, and first touches it when a body of that length arrives.
    ///
    /// # Errors
    /// As `connect`.
    pub fn with_bodies(
        server: &str,
        name: &str,
        serves: &[&str],
        bands: &[Band],
        bytes: u64,
    ) -> Result<Vec<ManagerLane>, ClientError> {
        if bytes > POOL_BYTES_MAX {
            return Err(ClientError::Message(format!("bodies of {bytes} bytes, expected at most {POOL_BYTES_MAX}")));
        }
        let mut lanes = Self::greeting(server, name, serves, bands, 1)?;
        lanes.iter_mut().for_each(|lane| lane.copied = Some(Copied::new(bytes as usize)));
        Ok(lanes)
    }

    /// Like [`connect`](Self::connect), for a manager that reads and writes bodies above 16 KiB in place, in
    /// [rooms](Replies::room).
    ///
    /// # Errors
    /// As `connect`.
    pub fn with_rooms(
        server: &str,
        name: &str,
        serves: &[&str],
        bands: &[Band],
    ) -> Result<Vec<ManagerLane>, ClientError> {
        Self::greeting(server, name, serves, bands, 1)
    }

    fn greeting(
        server: &str,
        name: &str,
        serves: &[&str],
        bands: &[Band],
        pool: u64,
    ) -> Result<Vec<ManagerLane>, ClientError> {
        let hello = Hello {
            version: VERSION,
            name: name.into(),
            bands: bands.iter().map(|band| band.number()).collect(),
            serves: serves.iter().map(|&object| object.to_owned()).collect(),
            host: String::new(),
            pool,
        };
        let ends = greet(server, &hello)?;
        Ok(ends.into_iter().map(|end| ManagerLane::new(name, end)).collect())
    }
}

/// One band of a manager. Requests arrive in order; answers may be sent in any order.
///
/// Real-time: neither [`serve`](Self::serve) nor the values that it passes to the handler allocate or lock. `serve`
/// sleeps on a futex.
pub struct ManagerLane {
    name: String,
    end: End,
    buffer: MessageBuffer,
    packing: Packing,
    line: TextBuffer,
    pools: Option<Pools>,
    copied: Option<Copied>,
    /// Time of the last check for announcements of pools.
    heard: MonoNs,
    expired: u64,
}

/// Time between two checks of an idle lane for announcements of pools, which cost a system call each.
const HEAR: DurNs = DurNs::from_ms(50);

/// Maximum number of unanswered requests with rooms per lane.
const KEPT_MAX: usize = 1024;

/// State of a lane that copies large bodies for its handler.
struct Copied {
    /// The body of the current request.
    body: Box<[u8]>,
    /// Rooms of unanswered requests, with their ids and deadlines.
    kept: Vec<(u64, MonoNs, Room)>,
}

impl Copied {
    fn new(bytes: usize) -> Self {
        Self { body: vec![0; bytes].into_boxed_slice(), kept: Vec::with_capacity(KEPT_MAX) }
    }

    /// Copies a body, and keeps its room for the answer.
    fn take(&mut self, id: u64, deadline: MonoNs, now: MonoNs, room: Room) -> Result<usize, (Code, &'static str)> {
        let Self { body, kept } = self;
        if room.len() > body.len() {
            return Err((Code::Malformed, "the body is larger than this manager takes; nothing was done"));
        }
        if kept.len() == KEPT_MAX {
            // The server has answered expired requests itself.
            kept.retain(|(_, until, _)| *until > now);
        }
        if kept.len() == KEPT_MAX {
            return Err((Code::Overload, "this manager holds too many large bodies; nothing was done"));
        }
        let bytes = room.copy_to(body);
        kept.push((id, deadline, room));
        Ok(bytes)
    }
}

/// Sends a manager's answers.
pub struct Replies<'a> {
    band: Band,
    up: &'a mut StreamWriter<Half>,
    packing: &'a mut Packing,
    line: &'a mut TextBuffer,
    room: Option<Room>,
    kept: Option<&'a mut Vec<(u64, MonoNs, Room)>>,
    put: bool,
}

impl Replies<'_> {
    /// Takes the room with the body of the current request; `None` if it has none. The room may be kept until the
    /// request is answered.
    pub fn room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// Like [`answer`](Self::answer) with [`Code::Ok`] and the body in the request's room.
    pub fn answer_room(&mut self, ticket: Ticket, complement: &str, room: &Room) -> bool {
        self.put_room(ticket, Code::Ok, complement, room)
    }

    fn put_room(&mut self, ticket: Ticket, code: Code, complement: &str, room: &Room) -> bool {
        let header = Header { kind: Kind::Reply, flags: Flags::POOLED, ..Header::request(self.band, ticket.id) };
        self.line.reply(code, complement);
        self.put = true;
        put(self.up, self.packing, header, self.line.text(), &room.place().to_bytes()) == Ok(true)
    }

    /// The room kept for the answer to a request that has a large body or expects one. The handler can write the answer
    /// there without a copy, and send it by [`answer_made`](Self::answer_made).
    #[must_use]
    pub fn kept(&self, ticket: Ticket) -> Option<&Room> {
        self.kept.as_ref()?.iter().find(|(id, ..)| *id == ticket.id).map(|(_, _, room)| room)
    }

    /// Like [`answer`](Self::answer), with the first `bytes` of the [kept](Self::kept) room as body. Also returns
    /// `false` if no room is kept or `bytes` exceeds it.
    pub fn answer_made(&mut self, ticket: Ticket, code: Code, complement: &str, bytes: usize) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        let Some(at) = kept.iter().position(|(id, ..)| *id == ticket.id) else { return false };
        if !kept[at].2.set_filled(bytes as u64) {
            return false;
        }
        let (_, _, room) = kept.swap_remove(at);
        self.put_room(ticket, code, complement, &room)
    }

    /// Answers a request. If the answer is too long or does not fit into the queue, sends a short answer that reports
    /// this. Returns `false` only if even that does not fit, because the server no longer takes answers.
    pub fn answer(&mut self, ticket: Ticket, answer: &Answer<'_>) -> bool {
        if let Some(kept) = &mut self.kept
            && let Some(at) = kept.iter().position(|(id, ..)| *id == ticket.id)
        {
            let (_, _, mut room) = kept.swap_remove(at);
            if answer.body.len() > BODY_BYTES_MAX && room.write(answer.body) {
                return self.put_room(ticket, answer.code, answer.complement, &room);
            }
        }
        let header = Header { kind: Kind::Reply, ..Header::request(self.band, ticket.id) };
        self.line.reply(answer.code, answer.complement);
        self.put = true;
        if put(self.up, self.packing, header, self.line.text(), answer.body) == Ok(true) {
            return true;
        }
        let bytes = answer.body.len();
        self.line
            .reply(Code::Unknown, format_args!("the reply with a body of {bytes} bytes found no room; ask with get"));
        put(self.up, self.packing, header, self.line.text(), &[]) == Ok(true)
    }
}

impl ManagerLane {
    fn new(name: &str, mut end: End) -> Self {
        Self {
            name: name.into(),
            pools: end.pool.take().map(Pools::new),
            end,
            buffer: MessageBuffer::new(),
            packing: Packing::new(),
            line: TextBuffer::new(),
            copied: None,
            heard: MonoNs(0),
            expired: 0,
        }
    }

    /// The band.
    #[must_use]
    pub fn band(&self) -> Band {
        self.end.band
    }

    /// Wakes this lane from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.end.waker()
    }

    /// Number of requests that arrived after their deadline. They were answered `EXPIRED` and not executed.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Passes all queued requests to `handle`, which answers each at once, or keeps its ticket and answers later. If
    /// the queue is empty, waits for a request, a [`Waker`], or at most `limit`. Returns the number of requests
    /// handled.
    ///
    /// # Errors
    /// `Lost`: the server has gone and the manager must connect again. Requests not answered by then have been answered
    /// `UNKNOWN`.
    pub fn serve(
        &mut self,
        limit: DurNs,
        mut handle: impl FnMut(&ManagerRequest<'_>, &mut Replies<'_>),
    ) -> Result<usize, ClientError> {
        let mut until = None;
        loop {
            let bell = self.end.bell();
            let taken = self.take(|| true, &mut handle)?;
            if self.end.was_rung() || taken > 0 {
                return Ok(taken);
            }
            let now = mono_now();
            let until = *until.get_or_insert(now + limit);
            if now >= until {
                return Ok(0);
            }
            if now - self.heard > HEAR {
                self.heard = now;
                self.hear();
            }
            self.end.wait(now, until, bell)?;
        }
    }

    /// Like [`serve`](Self::serve), but does not wait. After `until` it takes at most one request, for callers with a
    /// time budget. Other requests stay in the queue, where their deadlines may pass.
    ///
    /// # Errors
    /// As `serve`.
    pub fn serve_until(
        &mut self,
        until: MonoNs,
        mut handle: impl FnMut(&ManagerRequest<'_>, &mut Replies<'_>),
    ) -> Result<usize, ClientError> {
        let mut first = true;
        let taken = self.take(|| std::mem::take(&mut first) || mono_now() < until, &mut handle)?;
        if taken == 0 {
            self.hear();
        }
        Ok(taken)
    }

    /// Reads announcements of pools, and releases rooms whose requests the server has answered after their deadline.
    /// Called if the lane is idle.
    fn hear(&mut self) {
        if let Some(pools) = &mut self.pools {
            pools.hear();
        }
        if let Some(copied) = self.copied.as_mut().filter(|copied| !copied.kept.is_empty()) {
            let now = mono_now();
            copied.kept.retain(|(_, until, _)| *until > now);
        }
    }

    /// Sends answers outside of a handler, for tickets that were kept.
    pub fn replies(&mut self, answer: impl FnOnce(&mut Replies<'_>)) {
        let Self { end, packing, line, copied, .. } = self;
        let kept = copied.as_mut().map(|copied| &mut copied.kept);
        let mut replies = Replies { band: end.band, up: &mut end.up, packing, line, room: None, kept, put: false };
        answer(&mut replies);
        if replies.put {
            end.wake();
        }
    }

    fn take(
        &mut self,
        mut more: impl FnMut() -> bool,
        handle: &mut impl FnMut(&ManagerRequest<'_>, &mut Replies<'_>),
    ) -> Result<usize, ClientError> {
        let Self { name, end, buffer, packing, line, pools, copied, expired, .. } = self;
        let (mut taken, mut put) = (0, false);
        while more() && buffer.take(&mut end.down)? {
            let frame = buffer.frame().map_err(|_| ClientError::Lost)?;
            let Header { kind: Kind::Request, id, band, deadline, subject, pulse, mut flags, .. } = frame.header else {
                continue;
            };
            let mut replies =
                Replies { band: end.band, up: &mut end.up, packing, line, room: None, kept: None, put: false };
            let ticket = Ticket { id, band };
            let now = mono_now();
            match (Request::parse(frame.text), deadline.unwrap_or(now)) {
                (Err(_), _) => {
                    replies.answer(ticket, &Answer::failed(Code::Malformed, "no request that can be understood"));
                }
                (Ok(_), deadline) if deadline < now => {
                    *expired += 1;
                    let late = Failure::TooLate { hop: Hop::Manager(name), by: now - deadline };
                    let header = Header { kind: Kind::Reply, ..Header::request(band, id) };
                    replies.line.reply(late.code(), late);
                    let _ = crate::message_buffer::put(replies.up, replies.packing, header, replies.line.text(), &[]);
                    replies.put = true;
                }
                (Ok(_), _) if flags.has(Flags::POOLED) && pools.is_none() => {
                    let why = "this manager takes no bodies above 16 KiB; nothing was done";
                    replies.answer(ticket, &Answer::failed(Code::Malformed, why));
                }
                (Ok(request), deadline) => {
                    let (mut body, mut answer_bytes_max) = (frame.body, BODY_BYTES_MAX as u64);
                    let mut large = Ok(None);
                    if let Some(pools) = pools.as_mut().filter(|_| flags.has(Flags::POOLED)) {
                        let room = Pooled::from_bytes(std::mem::take(&mut body)).and_then(|place| pools.room(place));
                        answer_bytes_max = answer_bytes_max.max(room.as_ref().map_or(0, Room::room) as u64);
                        // A handler that gets whole bodies need not know about the pool.
                        flags = if copied.is_some() { flags.without(Flags::POOLED) } else { flags };
                        large = match (room, copied.as_mut()) {
                            (None, _) => {
                                Err((Code::Internal, "this manager does not have the client's pool; connect again"))
                            }
                            (Some(room), Some(copied)) => copied.take(id, deadline, now, room).map(Some),
                            (room, None) => {
                                replies.room = room;
                                Ok(None)
                            }
                        };
                    }
                    match (large, copied.as_mut()) {
                        (Err((code, why)), _) => {
                            replies.answer(ticket, &Answer::failed(code, why));
                            put |= replies.put;
                            continue;
                        }
                        (Ok(length), Some(Copied { body: copy, kept })) => {
                            replies.kept = Some(kept);
                            body = length.map_or(body, |length| &copy[..length]);
                        }
                        (Ok(_), None) => {}
                    }
                    let asked =
                        ManagerRequest { ticket, subject, deadline, pulse, flags, request, body, answer_bytes_max };
                    handle(&asked, &mut replies);
                    taken += 1;
                }
            }
            put |= replies.put;
        }
        if put {
            end.wake();
        }
        Ok(taken)
    }
}
