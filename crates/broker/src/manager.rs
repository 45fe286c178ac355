//! An equipment manager's end.

use crate::client::{ClientError, End, Waker, greet};
use crate::greeting::{Hello, VERSION};
use crate::memory::Half;
use crate::parcel::{Packing, Parcel, put};
use crate::pool::{Pools, Room};
use base::DurNs;
use msg::{Answer, Asked, Band, Code, Failure, Flags, Header, Hop, Kind, Line, Pooled, Request, Ticket};
use ring::StreamWriter;
use sys::clock::mono_now;

/// Registering with a message server.
pub struct Manager;

impl Manager {
    /// Connects to the server `server` as manager `name` for the objects whose names are or begin with `serves`
    /// (`sr_mag` stands for `sr_mag` and `sr_mag_ps_b`, not for `sr_magnet`); one lane for each band, in their order,
    /// each for a thread of its own.
    ///
    /// # Errors
    /// Nobody serves, or the server refuses: another manager has one of the objects, or a rule forbids it.
    pub fn connect(server: &str, name: &str, serves: &[&str], bands: &[Band]) -> Result<Vec<ManagerLane>, ClientError> {
        Self::greeting(server, name, serves, bands, 0)
    }

    /// As [`connect`](Self::connect), for a manager that takes bodies above 16 KiB, which lie in [rooms](Desk::room). In
    /// the name of others such requests are refused.
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

/// One band of a manager: requests come in order, answers go back in any.
///
/// Real-time: neither [`serve`](Self::serve) nor what it hands out allocates or locks; it sleeps on a futex.
pub struct ManagerLane {
    name: String,
    end: End,
    parcel: Parcel,
    packing: Packing,
    line: Line,
    pools: Option<Pools>,
    expired: u64,
}

/// Where a manager puts its answers.
pub struct Desk<'a> {
    band: Band,
    up: &'a mut StreamWriter<Half>,
    packing: &'a mut Packing,
    line: &'a mut Line,
    room: Option<Room>,
    put: bool,
}

impl Desk<'_> {
    /// Takes the room that came with the request which is being handled, with its body; `None` if none did. It may be
    /// kept until the request is answered.
    pub fn room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// As [`answer`](Self::answer) with [`Code::Ok`] and the body that lies in the request's own room.
    pub fn answer_room(&mut self, ticket: Ticket, complement: &str, room: &Room) -> bool {
        let header = Header { kind: Kind::Reply, flags: Flags::POOLED, ..Header::request(self.band, ticket.id) };
        self.line.reply(Code::Ok, complement);
        self.put = true;
        put(self.up, self.packing, header, self.line.text(), &room.place().to_bytes()) == Ok(true)
    }

    /// Answers a request. An answer that is too long or finds no room is replaced by one that says so, never dropped;
    /// `false` only if not even that fits because the server does not take answers any more.
    pub fn answer(&mut self, ticket: Ticket, answer: &Answer<'_>) -> bool {
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
            parcel: Parcel::new(),
            packing: Packing::new(),
            line: Line::new(),
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

    /// Requests that came after their deadline and were answered `EXPIRED` without being executed.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Takes requests until there are none, handing each to `handle`, which answers it at the desk now, or keeps its
    /// ticket and answers later. Where there is nothing at first, waits: for a request, a [`Waker`], or at most `limit`.
    /// Says how many were handed over.
    ///
    /// # Errors
    /// `Lost`: the server is gone; connect anew. What is not answered by now has been answered `UNKNOWN`.
    pub fn serve(
        &mut self,
        limit: DurNs,
        mut handle: impl FnMut(&Asked<'_>, &mut Desk<'_>),
    ) -> Result<usize, ClientError> {
        let until = mono_now() + limit;
        loop {
            let bell = self.end.bell();
            let taken = self.take(&mut handle)?;
            if self.end.was_rung() || taken > 0 || mono_now() >= until {
                return Ok(taken);
            }
            self.end.wait(until, bell)?;
        }
    }

    /// Answers with nothing asked: for answers that were kept.
    pub fn desk(&mut self, answer: impl FnOnce(&mut Desk<'_>)) {
        let Self { end, packing, line, .. } = self;
        let mut desk = Desk { band: end.band, up: &mut end.up, packing, line, room: None, put: false };
        answer(&mut desk);
        if desk.put {
            end.knock();
        }
    }

    fn take(&mut self, handle: &mut impl FnMut(&Asked<'_>, &mut Desk<'_>)) -> Result<usize, ClientError> {
        let Self { name, end, parcel, packing, line, pools, expired, .. } = self;
        let (mut taken, mut put) = (0, false);
        while parcel.take(&mut end.down)? {
            let frame = parcel.frame().map_err(|_| ClientError::Lost)?;
            let Header { kind: Kind::Request, id, band, deadline, subject, pulse, flags, .. } = frame.header else {
                continue;
            };
            let mut desk = Desk { band: end.band, up: &mut end.up, packing, line, room: None, put: false };
            let ticket = Ticket { id, band };
            let now = mono_now();
            match (Request::parse(frame.text), deadline.unwrap_or(now)) {
                (Err(_), _) => {
                    desk.answer(ticket, &Answer::failed(Code::Malformed, "no request that can be understood"));
                }
                (Ok(_), deadline) if deadline < now => {
                    *expired += 1;
                    let late = Failure::TooLate { hop: Hop::Manager(name), by: now - deadline };
                    let header = Header { kind: Kind::Reply, ..Header::request(band, id) };
                    desk.line.reply(late.code(), late);
                    let _ = crate::parcel::put(desk.up, desk.packing, header, desk.line.text(), &[]);
                    desk.put = true;
                }
                (Ok(_), _) if flags.has(Flags::POOLED) && pools.is_none() => {
                    let why = "this manager takes no bodies above 16 KiB; nothing was done";
                    desk.answer(ticket, &Answer::failed(Code::Malformed, why));
                }
                (Ok(request), deadline) => {
                    let mut body = frame.body;
                    if let Some(pools) = pools.as_mut().filter(|_| flags.has(Flags::POOLED)) {
                        desk.room = Pooled::from_bytes(std::mem::take(&mut body)).and_then(|place| pools.room(place));
                        if desk.room.is_none() {
                            let why = "this manager was not told of the client's pool; connect anew";
                            desk.answer(ticket, &Answer::failed(Code::Internal, why));
                            put |= desk.put;
                            continue;
                        }
                    }
                    handle(&Asked { ticket, subject, deadline, pulse, flags, request, body }, &mut desk);
                    taken += 1;
                }
            }
            put |= desk.put;
        }
        if put {
            end.knock();
        }
        Ok(taken)
    }
}
