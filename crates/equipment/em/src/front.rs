//! Threads of bands: they receive requests from the message server, answer from the tables, and pass the other requests to lanes.

use crate::batch::Batches;
use crate::job::{Job, JobResult, Slip};
use crate::polls::Polls;
use crate::work::{Id, OUTSTANDING_MAX, Rings};
use base::{DurNs, MonoNs};
use broker::{ClientError, ManagerLane, Replies, Waker};
use equipment::{Answers, Fault, Lane, Tables};
use msg::{Code, Flags, Lines, ManagerRequest, Request, Verb};
use rt::frames::Member;
use rtrb::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use sys::clock::mono_now;
use sys::rounds::Rounds;

/// Maximum time between two checks of an idle thread.
const PAUSE: DurNs = DurNs::from_ms(200);

/// The way to wake a lane's thread.
pub(crate) enum Call {
    /// The lane's thread serves a band itself.
    Band(Waker),
    /// The thread is parked.
    Parked(Thread),
}

impl Call {
    fn wake(&self) {
        match self {
            Self::Band(waker) => waker.wake(),
            Self::Parked(thread) => thread.unpark(),
        }
    }
}

/// The connection from a band to one lane.
pub(crate) struct LaneLink {
    pub(crate) jobs: Producer<Job>,
    pub(crate) done: Consumer<JobResult>,
    pub(crate) call: Call,
    /// Number of requests of this band that the lane has not answered.
    pub(crate) outstanding: usize,
}

/// The data of a band's thread.
pub(crate) struct Front {
    pub(crate) requests: ManagerLane,
    pub(crate) tables: Arc<Tables>,
    /// The connections to the lanes; `None` for the lane of this thread.
    pub(crate) ways: Vec<Option<LaneLink>>,
    pub(crate) batches: Batches,
    /// Number of rounds of the band's thread, for the supervisor.
    pub(crate) rounds: Rounds,
}

/// A connection to the message server for the lane's thread, which serves the last band.
pub(crate) struct Connection {
    pub(crate) front: Front,
    pub(crate) rings: Rings,
    /// Set to make the thread return the connection.
    pub(crate) hang_up: Arc<AtomicBool>,
}

/// The data of the lane's thread.
pub(crate) struct Own {
    pub(crate) lane: Box<Lane<Id>>,
    pub(crate) polls: Polls,
    pub(crate) changes: Consumer<Box<Lane<Id>>>,
    /// Replaced lanes. Another thread frees them.
    pub(crate) over: Producer<Box<Lane<Id>>>,
    pub(crate) connections: Consumer<Box<Connection>>,
    /// Ended connections. Another thread frees them.
    pub(crate) back: Producer<Box<Connection>>,
    /// Number of rounds, for the supervisor.
    pub(crate) rounds: Rounds,
}

/// Discards answers while there is no server.
pub(crate) struct Nobody<'a>(pub(crate) &'a Polls);

impl Answers<Id> for Nobody<'_> {
    fn answer(&mut self, _: Id, _: Result<equipment::Answer<'_>, Fault<'_>>) {}
    fn expired(&mut self, _: Id) {}
    fn polled(&mut self, poll: usize, entry: usize, value: Option<f64>, pulse: u64, now: MonoNs) {
        self.0.set(poll, entry, value, pulse, now);
    }
}

/// Sends answers from the lane's thread to its own band (the last one) and to the other bands.
struct BandAnswers<'a, 'd> {
    replies: &'a mut Replies<'d>,
    batches: &'a mut Batches,
    rings: &'a mut Rings,
    polls: &'a Polls,
}

impl Answers<Id> for BandAnswers<'_, '_> {
    fn answer(&mut self, id: Id, answer: Result<equipment::Answer<'_>, Fault<'_>>) {
        self.give(id, JobResult::of(id.slip, &answer));
    }

    fn expired(&mut self, id: Id) {
        self.give(id, JobResult::expired(id.slip));
    }

    fn polled(&mut self, poll: usize, entry: usize, value: Option<f64>, pulse: u64, now: MonoNs) {
        self.polls.set(poll, entry, value, pulse, now);
    }
}

impl BandAnswers<'_, '_> {
    fn give(&mut self, id: Id, done: JobResult) {
        if id.front < self.rings.done.len() {
            self.rings.give(id.front, done);
        } else {
            self.batches.answer(done, self.replies);
        }
    }
}

/// Serves a band until `stop` is set.
///
/// # Errors
/// The connection to the message server is lost.
pub(crate) fn serve(
    mut front: Front,
    tables: &mut Consumer<Arc<Tables>>,
    stop: &Arc<AtomicBool>,
) -> Result<(), ClientError> {
    while !stop.load(Ordering::Acquire) {
        front.rounds.count();
        while let Ok(new) = tables.pop() {
            front.tables = new;
        }
        let Front { requests, tables, ways, batches, .. } = &mut front;
        requests.serve(PAUSE, |asked, replies| {
            look(tables, asked, batches, replies, &mut |lane, job, batches, replies| {
                hand_over(&mut ways[lane], job, batches, replies);
            });
        })?;
        requests.replies(|replies| collect(ways, batches, replies));
    }
    Ok(())
}

/// Runs the real-time lane with its rt-safe devices, loops and polls. Serves the last band while there is a connection.
///
/// Real-time: neither allocates nor locks, except for texts that are neither numbers nor labels.
///
/// As a `member` of a frame it runs one round per call, with the time of the minor frame's border as `now`. Loops with a
/// period that is a multiple of the minor frame therefore stay exactly in step. Loops run first. Requests are accepted during
/// three quarters of the activity's budget, or of the rest of the minor frame if it has none. At least one is accepted in each
/// call. The last quarter is for the execution of the last request.
///
/// Returns `true` when `stop` is set, and `false` when the frame has ended.
pub(crate) fn run_lane(mut own: Own, mut member: Option<Member>, stop: &Arc<AtomicBool>) -> bool {
    let mut connection: Option<Box<Connection>> = None;
    while !stop.load(Ordering::Acquire) {
        own.rounds.count();
        let turn = match &mut member {
            Some(member) => match member.next_turn() {
                Some(turn) => {
                    let now = mono_now();
                    let time = member.budget().unwrap_or(turn.end - now);
                    Some(Turn { due: turn.due, until: now + DurNs(time.0 / 4 * 3) })
                }
                None => return false,
            },
            None => None,
        };
        if connection.is_none() {
            connection = own.connections.pop().ok();
        }
        if let Ok(new) = own.changes.pop() {
            let mut old = std::mem::replace(&mut own.lane, new);
            let Own { lane, polls, .. } = &mut own;
            match &mut connection {
                Some(present) => {
                    let Connection { front, rings, .. } = &mut **present;
                    front.tables = lane.tables().clone();
                    let Front { requests, batches, .. } = front;
                    requests.replies(|replies| {
                        lane.take_over(&mut old, mono_now(), &mut BandAnswers { replies, batches, rings, polls });
                    });
                }
                None => lane.take_over(&mut old, mono_now(), &mut Nobody(polls)),
            }
            // There is room: this ring is as long as the ring of new lanes.
            let _ = own.over.push(old);
        }
        let now = mono_now();
        let limit = match turn {
            Some(_) => DurNs::ZERO,
            None => own.lane.due().map_or(PAUSE, |due| (due - now).min(PAUSE)).max(DurNs::ZERO),
        };
        let lost = match &mut connection {
            Some(present) => !round(present, &mut own, turn, limit),
            None => {
                if turn.is_none() && limit > DurNs::ZERO {
                    std::thread::park_timeout(std::time::Duration::from_nanos(limit.0 as u64));
                }
                let now = turn.map_or_else(mono_now, |turn| turn.due);
                if own.lane.due().is_some_and(|due| due <= now) {
                    own.lane.run(now, &mut Nobody(&own.polls));
                }
                false
            }
        };
        if lost && let Some(over) = connection.take() {
            // The message server has answered the waiting `set` requests. There is room: only one connection exists at a time.
            own.lane.forget();
            let _ = own.back.push(over);
        }
    }
    true
}

/// A call of the activity in a frame.
#[derive(Clone, Copy)]
struct Turn {
    /// The due time of its minor frame.
    due: MonoNs,
    /// The end of the time for requests.
    until: MonoNs,
}

/// One round with a connection: requests of the own band, requests of other bands, then due work. In a frame, due work also
/// runs first. Returns `false` when the connection has ended.
fn round(connection: &mut Connection, own: &mut Own, turn: Option<Turn>, limit: DurNs) -> bool {
    let Connection { front: Front { requests, tables, ways, batches, .. }, rings, hang_up } = connection;
    let Own { lane, polls, .. } = own;
    if hang_up.load(Ordering::Acquire) {
        return false;
    }
    let own_front = rings.done.len();
    if let Some(Turn { due, .. }) = turn
        && lane.due().is_some_and(|at| at <= due)
    {
        requests.replies(|replies| {
            lane.run(due, &mut BandAnswers { replies, batches: &mut *batches, rings: &mut *rings, polls });
        });
    }
    let mut handle = |asked: &ManagerRequest<'_>, replies: &mut Replies<'_>| {
        look(tables, asked, batches, replies, &mut |at, job, batches, replies| {
            if at > 0 {
                return hand_over(&mut ways[at], job, batches, replies);
            }
            let id = Id { front: own_front, slip: job.slip };
            let mut out = BandAnswers { replies, batches, rings, polls };
            lane.request(id, job.verb, job.object(), job.complement(), Some(job.deadline), mono_now(), &mut out);
        });
    };
    let served = match turn {
        Some(turn) => requests.serve_until(turn.until, &mut handle),
        None => requests.serve(limit, &mut handle),
    };
    requests.replies(|replies| {
        let more = || turn.is_none_or(|turn| mono_now() < turn.until);
        rings.drain(more, |rings, id, job| {
            let mut out = BandAnswers { replies: &mut *replies, batches: &mut *batches, rings, polls };
            lane.request(id, job.verb, job.object(), job.complement(), Some(job.deadline), mono_now(), &mut out);
        });
        // Waiting `set` requests and deadlines. In a frame `now` is its border, so that loops do not run twice.
        let now = turn.map_or_else(mono_now, |turn| turn.due);
        if lane.due().is_some_and(|due| due <= now) {
            lane.run(now, &mut BandAnswers { replies: &mut *replies, batches: &mut *batches, rings, polls });
        }
        collect(ways, batches, replies);
    });
    served.is_ok()
}

/// Passes a job to the lane with this number.
type Give<'a> = dyn FnMut(usize, Job, &mut Batches, &mut Replies<'_>) + 'a;

/// Answers a request from the tables, or passes it to a lane. A batch is processed line by line.
fn look(
    tables: &Tables,
    asked: &ManagerRequest<'_>,
    batches: &mut Batches,
    replies: &mut Replies<'_>,
    give: &mut Give<'_>,
) {
    let ticket = asked.ticket;
    let whole = Slip { ticket, line: None };
    match asked.request.verb {
        Verb::List => {
            let object = asked.request.object.text();
            batches.list(ticket, tables.named(object), replies);
        }
        Verb::Describe => {
            // At most as long as a message.
            let answer = match tables.describe(asked.request.object.text()) {
                Some(text) => msg::Answer::ok(text),
                None => msg::Answer::failed(Code::NoObject, "no such object here"),
            };
            let _ = replies.answer(ticket, &answer);
        }
        Verb::Batch => {
            let Ok(lines) = Lines::read(asked.body) else {
                return batches.answer(JobResult::said(whole, Code::Malformed, "no body of lines"), replies);
            };
            let count = lines.count();
            if count == 0 {
                return batches.answer(JobResult::said(whole, Code::Ok, ""), replies);
            }
            if !batches.begin(ticket, count) {
                let why = "two batches of this band are being executed; this one was not";
                return batches.answer(JobResult::said(whole, Code::Overload, why), replies);
            }
            for (at, line) in lines.enumerate() {
                let slip = Slip { ticket, line: Some(at as u16) };
                // The message server has already checked each line.
                match line.map(Request::parse) {
                    Ok(Ok(request)) => look_at(tables, slip, &request, asked, batches, replies, give),
                    _ => batches.answer(JobResult::said(slip, Code::Malformed, "not understood"), replies),
                }
            }
        }
        _ => look_at(tables, whole, &asked.request, asked, batches, replies, give),
    }
}

/// The same as [`look`], for a single request.
fn look_at(
    tables: &Tables,
    slip: Slip,
    request: &Request<'_>,
    asked: &ManagerRequest<'_>,
    batches: &mut Batches,
    replies: &mut Replies<'_>,
    give: &mut Give<'_>,
) {
    let object = request.object.text();
    let mut answer = |code: Code, words: &str| batches.answer(JobResult::said(slip, code, words), replies);
    if request.verb == Verb::Ping {
        // `ping` tests the manager, not the device. The device is not accessed.
        return match tables.named(object).next() {
            Some(_) => answer(Code::Ok, &tables.name),
            None => answer(Code::NoObject, "no such object here"),
        };
    }
    if request.verb == Verb::Describe {
        return match tables.describe(object) {
            Some(text) => answer(Code::Ok, text),
            None => answer(Code::NoObject, "no such object here"),
        };
    }
    // Borrowed unless it contains an escape.
    let complement = request.complement.text();
    let entry = match tables.interpret(request.verb, object, &complement) {
        Ok((entry, _)) => entry,
        Err(fault) => return batches.answer(JobResult::of(slip, &Err(fault)), replies),
    };
    if asked.flags.has(Flags::DRY_RUN) {
        return answer(Code::Ok, "");
    }
    match Job::new(slip, request.verb, asked.deadline, object, &complement) {
        Some(job) => give(tables.lane(entry), job, batches, replies),
        None => answer(Code::Range, "object and complement are longer than 512 bytes together"),
    }
}

/// Passes a request to the lane of another thread, or refuses it; never both.
fn hand_over(way: &mut Option<LaneLink>, job: Job, batches: &mut Batches, replies: &mut Replies<'_>) {
    let Some(way) = way else { return };
    let slip = job.slip;
    if way.outstanding < OUTSTANDING_MAX && way.jobs.push(job).is_ok() {
        way.outstanding += 1;
        way.call.wake();
        return;
    }
    let why = "the device has 256 requests of this band before it, or 1024 altogether; nothing was executed";
    batches.answer(JobResult::said(slip, Code::Overload, why), replies);
}

/// Sends the answers of lanes.
fn collect(ways: &mut [Option<LaneLink>], batches: &mut Batches, replies: &mut Replies<'_>) {
    for way in ways.iter_mut().flatten() {
        while let Ok(done) = way.done.pop() {
            way.outstanding -= 1;
            batches.answer(done, replies);
        }
    }
}
