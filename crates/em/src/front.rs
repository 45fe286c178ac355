//! Threads of bands: they take requests from the message server, answer what the tables tell, and hand the rest to lanes.

use crate::job::{Done, Job};
use crate::polls::Polls;
use crate::work::{Id, OUTSTANDING_MAX, Rings};
use base::{DurNs, MonoNs};
use broker::{Desk, ManagerLane, Waker};
use equipment::{Answers, Fault, Lane, Tables};
use msg::{Asked, Code, Flags, Ticket, Verb};
use rtrb::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use sys::clock::mono_now;

/// A thread without anything to do looks about at least so often.
const PAUSE: DurNs = DurNs::from_ms(200);

/// How a band's thread reaches a lane.
pub(crate) enum Call {
    /// The lane's thread serves a band itself.
    Band(Waker),
    /// It sleeps by itself.
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

/// One lane as a band sees it.
pub(crate) struct Way {
    pub(crate) jobs: Producer<Job>,
    pub(crate) done: Consumer<Done>,
    pub(crate) call: Call,
    /// Requests that it has of this band.
    pub(crate) outstanding: usize,
}

/// What a band's thread has.
pub(crate) struct Front {
    pub(crate) requests: ManagerLane,
    pub(crate) tables: Arc<Tables>,
    /// The ways to the lanes; `None` to the lane that is this thread's own.
    pub(crate) ways: Vec<Option<Way>>,
}

/// The lane that a band's thread runs itself.
pub(crate) struct Own {
    pub(crate) lane: Box<Lane<Id>>,
    pub(crate) rings: Rings,
    pub(crate) polls: Polls,
    pub(crate) changes: Consumer<Box<Lane<Id>>>,
    /// Lanes that are over, for somebody else to free.
    pub(crate) over: Producer<Box<Lane<Id>>>,
}

/// Which of the manager's bands is served by the lane's own thread: the last.
struct Out<'a, 'd> {
    desk: &'a mut Desk<'d>,
    rings: &'a mut Rings,
    polls: &'a Polls,
}

impl Answers<Id> for Out<'_, '_> {
    fn answer(&mut self, id: Id, answer: Result<equipment::Answer<'_>, Fault<'_>>) {
        self.give(id, Done::of(id.ticket, &answer));
    }

    fn expired(&mut self, id: Id) {
        self.give(id, Done::expired(id.ticket));
    }

    fn polled(&mut self, poll: usize, entry: usize, value: Option<f64>, now: MonoNs) {
        self.polls.set(poll, entry, value, now);
    }
}

impl Out<'_, '_> {
    fn give(&mut self, id: Id, done: Done) {
        if id.front < self.rings.done.len() {
            self.rings.give(id.front, done);
        } else {
            answer(self.desk, &done);
        }
    }
}

fn answer(desk: &mut Desk<'_>, done: &Done) {
    // Only a server that is gone takes no answer; then nobody waits for it.
    let _ = desk.answer(done.ticket, &msg::Answer { code: done.code, complement: done.text.as_str(), body: &[] });
}

/// Serves a band until `stop`.
///
/// # Errors
/// The message server is gone.
pub(crate) fn serve(
    mut front: Front,
    tables: &mut Consumer<Arc<Tables>>,
    stop: &Arc<AtomicBool>,
) -> Result<(), String> {
    while !stop.load(Ordering::Acquire) {
        while let Ok(new) = tables.pop() {
            front.tables = new;
        }
        let Front { requests, tables, ways } = &mut front;
        requests
            .serve(PAUSE, |asked, desk| {
                if let Some((lane, job)) = look(tables, asked, desk) {
                    hand_over(&mut ways[lane], job, desk);
                }
            })
            .map_err(|error| error.to_string())?;
        requests.desk(|desk| collect(ways, desk));
    }
    Ok(())
}

/// As [`serve`] for the thread that also runs a lane: rt-safe devices, loops, polls.
///
/// Real-time: neither allocates nor locks, but for texts that are neither numbers nor labels.
///
/// Returns the lane when `stop` is set or the message server is gone.
pub(crate) fn serve_lane(mut front: Front, mut own: Own, stop: &Arc<AtomicBool>) -> Box<Lane<Id>> {
    let own_front = own.rings.done.len();
    while !stop.load(Ordering::Acquire) {
        if let Ok(new) = own.changes.pop() {
            front.tables = new.tables().clone();
            let mut old = std::mem::replace(&mut own.lane, new);
            let Own { lane, rings, polls, .. } = &mut own;
            front.requests.desk(|desk| lane.take_over(&mut old, mono_now(), &mut Out { desk, rings, polls }));
            // The ring is as long as the one by which new lanes come.
            let _ = own.over.push(old);
        }
        let now = mono_now();
        let limit = own.lane.due().map_or(PAUSE, |due| (due - now).min(PAUSE)).max(DurNs::ZERO);
        let (Front { requests, tables, ways }, Own { lane, rings, polls, .. }) = (&mut front, &mut own);
        let served = requests.serve(limit, |asked, desk| match look(tables, asked, desk) {
            Some((0, job)) => {
                let id = Id { front: own_front, ticket: job.ticket };
                let (object, complement) = (job.object(), job.complement());
                let mut out = Out { desk, rings, polls };
                lane.request(id, job.verb, object, complement, Some(job.deadline), mono_now(), &mut out);
            }
            Some((other, job)) => hand_over(&mut ways[other], job, desk),
            None => {}
        });
        if served.is_err() {
            break;
        }
        requests.desk(|desk| {
            rings.drain(|rings, id, job| {
                let mut out = Out { desk: &mut *desk, rings, polls };
                lane.request(id, job.verb, job.object(), job.complement(), Some(job.deadline), mono_now(), &mut out);
            });
            let now = mono_now();
            if lane.due().is_some_and(|due| due <= now) {
                lane.run(now, &mut Out { desk: &mut *desk, rings, polls });
            }
            collect(ways, desk);
        });
    }
    own.lane
}

/// Answers what the tables can answer; else says which lane is to run it.
fn look(tables: &Tables, asked: &Asked<'_>, desk: &mut Desk<'_>) -> Option<(usize, Job)> {
    let (ticket, request) = (asked.ticket, &asked.request);
    let object = request.object.text();
    let mut refuse = |code: Code, why: &str| {
        let _ = desk.answer(ticket, &msg::Answer::failed(code, why));
    };
    if matches!(request.verb, Verb::Describe | Verb::List) {
        match tables.describe(object) {
            Some(text) => drop(desk.answer(ticket, &msg::Answer::ok(text))),
            None => refuse(Code::NoObject, "no such object here"),
        }
        return None;
    }
    // Borrowed unless something is escaped.
    let complement = request.complement.text();
    let faulty = |fault: Fault<'_>, desk: &mut Desk<'_>| {
        answer(desk, &Done::of(ticket, &Err(fault)));
    };
    let entry = match tables.interpret(request.verb, object, &complement) {
        Ok((entry, _)) => entry,
        Err(fault) => {
            faulty(fault, desk);
            return None;
        }
    };
    if asked.flags.has(Flags::DRY_RUN) {
        let _ = desk.answer(ticket, &msg::Answer::ok(""));
        return None;
    }
    match Job::new(ticket, request.verb, asked.deadline, object, &complement) {
        Some(job) => Some((tables.lane(entry), job)),
        None => {
            refuse(Code::Range, "object and complement are longer than 512 bytes together");
            None
        }
    }
}

/// Gives a request to another thread's lane, or refuses it: exactly one of both.
fn hand_over(way: &mut Option<Way>, job: Job, desk: &mut Desk<'_>) {
    let ticket: Ticket = job.ticket;
    let Some(way) = way else { return };
    if way.outstanding < OUTSTANDING_MAX && way.jobs.push(job).is_ok() {
        way.outstanding += 1;
        way.call.wake();
        return;
    }
    let why = "the device has 64 requests of this band before it, or 1024 altogether; nothing was executed";
    let _ = desk.answer(ticket, &msg::Answer::failed(Code::Overload, why));
}

/// Answers what lanes have done.
fn collect(ways: &mut [Option<Way>], desk: &mut Desk<'_>) {
    for way in ways.iter_mut().flatten() {
        while let Ok(done) = way.done.pop() {
            way.outstanding -= 1;
            answer(desk, &done);
        }
    }
}
