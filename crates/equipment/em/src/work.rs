//! Threads of devices that may block.

use crate::job::{Job, JobResult, Slip};
use crate::polls::Polls;
use base::{DurNs, MonoNs};
use broker::Waker;
use equipment::{Answer, Answers, Fault, Lane};
use rtrb::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::clock::mono_now;

/// Maximum number of queued requests from one band to one lane: one whole batch. A further one is answered `OVERLOAD`.
pub(crate) const JOBS_MAX: usize = msg::BATCH_LINES_MAX;
/// Maximum number of unanswered requests of one band in one lane, including those that wait for their value.
pub(crate) const OUTSTANDING_MAX: usize = 1024;
/// Maximum number of requests from one band before the next band is served.
const TURN: usize = 64;
/// Maximum time between two checks of an idle thread.
const PAUSE: DurNs = DurNs::from_ms(200);

/// The origin of a request in a lane: index of its band among the manager's bands, and its slip.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    pub(crate) front: usize,
    pub(crate) slip: Slip,
}

/// The rings between a lane and the bands.
pub(crate) struct Rings {
    /// Requests of each band, the least urgent band first.
    pub(crate) jobs: Vec<Consumer<Job>>,
    /// Answers for each band, and the waker of its thread.
    pub(crate) done: Vec<(Producer<JobResult>, Waker)>,
}

impl Rings {
    /// Passes an answer to the thread of the band. There is always room: the ring holds as many answers as a band may
    /// have unanswered requests.
    pub(crate) fn give(&mut self, front: usize, done: JobResult) {
        let (ring, waker) = &mut self.done[front];
        let full = ring.push(done).is_err();
        debug_assert!(!full, "a band counts what it has outstanding");
        waker.wake();
    }

    /// Runs queued requests, the most urgent band first, at most [`TURN`] per band. Runs at least one, and continues while `more`
    /// returns `true`. Returns whether there was a request.
    pub(crate) fn drain(&mut self, mut more: impl FnMut() -> bool, mut run: impl FnMut(&mut Self, Id, &Job)) -> bool {
        let mut any = false;
        for front in (0..self.jobs.len()).rev() {
            for _ in 0..TURN {
                let Ok(job) = self.jobs[front].pop() else { break };
                any = true;
                run(self, Id { front, slip: job.slip }, &job);
                if !more() {
                    return any;
                }
            }
        }
        any
    }
}

struct LaneAnswers<'a> {
    rings: &'a mut Rings,
    polls: &'a Polls,
}

impl Answers<Id> for LaneAnswers<'_> {
    fn answer(&mut self, id: Id, answer: Result<Answer<'_>, Fault<'_>>) {
        self.rings.give(id.front, JobResult::of(id.slip, &answer));
    }

    fn expired(&mut self, id: Id) {
        self.rings.give(id.front, JobResult::expired(id.slip));
    }

    fn polled(&mut self, poll: usize, entry: usize, value: Option<f64>, pulse: u64, _: MonoNs) {
        // The device may have been slow, so the time is read again.
        self.polls.set(poll, entry, value, pulse, mono_now());
    }
}

/// Runs a lane with a device that may block until `stop` is set, then returns the lane. New lanes arrive in `changes`.
pub(crate) fn run(
    mut lane: Box<Lane<Id>>,
    mut rings: Rings,
    polls: &Polls,
    mut changes: Consumer<Box<Lane<Id>>>,
    stop: &Arc<AtomicBool>,
) -> Box<Lane<Id>> {
    while !stop.load(Ordering::Acquire) {
        if let Ok(new) = changes.pop() {
            let mut old = std::mem::replace(&mut lane, new);
            lane.take_over(&mut old, mono_now(), &mut LaneAnswers { rings: &mut rings, polls });
        }
        let any = rings.drain(
            || true,
            |rings, id, job| {
                let (now, mut out) = (mono_now(), LaneAnswers { rings, polls });
                lane.request(id, job.verb, job.object(), job.complement(), Some(job.deadline), now, &mut out);
            },
        );
        let now = mono_now();
        if lane.due().is_some_and(|due| due <= now) {
            lane.run(now, &mut LaneAnswers { rings: &mut rings, polls });
        } else if !any {
            let until = lane.due().map_or(PAUSE, |due| (due - now).min(PAUSE));
            // A request that arrived in the meantime has already unparked this thread.
            std::thread::park_timeout(Duration::from_nanos(until.0.max(0) as u64));
        }
    }
    lane
}
