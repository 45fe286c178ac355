//! An equipment manager's end.

use crate::client::{ClientError, End, Waker, greet};
use crate::greeting::{Hello, VERSION};
use crate::memory::Half;
use crate::parcel::{Packing, Parcel, put};
use base::DurNs;
use msg::{Answer, Asked, Band, Code, Failure, Header, Hop, Kind, Line, Request, Ticket};
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
        let hello = Hello {
            version: VERSION,
            name: name.into(),
            bands: bands.iter().map(|band| band.number()).collect(),
            serves: serves.iter().map(|&object| object.to_owned()).collect(),
            host: 0,
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
    expired: u64,
}

/// Where a manager puts its answers.
pub struct Desk<'a> {
    band: Band,
    up: &'a mut StreamWriter<Half>,
    packing: &'a mut Packing,
    line: &'a mut Line,
    put: bool,
}

impl Desk<'_> {
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
    fn new(name: &str, end: End) -> Self {
        Self { name: name.into(), end, parcel: Parcel::new(), packing: Packing::new(), line: Line::new(), expired: 0 }
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
        let mut desk = Desk { band: end.band, up: &mut end.up, packing, line, put: false };
        answer(&mut desk);
        if desk.put {
            end.knock();
        }
    }

    fn take(&mut self, handle: &mut impl FnMut(&Asked<'_>, &mut Desk<'_>)) -> Result<usize, ClientError> {
        let Self { name, end, parcel, packing, line, expired, .. } = self;
        let (mut taken, mut put) = (0, false);
        while parcel.take(&mut end.down)? {
            let frame = parcel.frame().map_err(|_| ClientError::Lost)?;
            let Header { kind: Kind::Request, id, band, deadline, subject, pulse, flags, .. } = frame.header else {
                continue;
            };
            let mut desk = Desk { band: end.band, up: &mut end.up, packing, line, put: false };
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
                (Ok(request), deadline) => {
                    handle(&Asked { ticket, subject, deadline, pulse, flags, request, body: frame.body }, &mut desk);
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
