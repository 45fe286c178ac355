//! Threads of devices that may block.

use crate::job::{Done, Job, Slip};
use crate::polls::Polls;
use base::{DurNs, MonoNs};
use broker::Waker;
use equipment::{Answer, Answers, Fault, Lane};
use rtrb::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::clock::mono_now;

/// Requests from one band that wait for one lane, a whole batch; one more is answered `OVERLOAD`.
pub(crate) const JOBS_MAX: usize = msg::BATCH_LINES_MAX;
/// Requests of one band that one lane may have altogether, those that wait for their value included.
pub(crate) const OUTSTANDING_MAX: usize = 1024;
/// Requests taken from one band before the next one's turn.
const TURN: usize = 64;
/// A thread without anything to do looks about at least so often.
const PAUSE: DurNs = DurNs::from_ms(200);

/// A request on its way through a lane: its band's place among the manager's bands, and its slip.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    pub(crate) front: usize,
    pub(crate) slip: Slip,
}

/// The rings between a lane and the bands.
pub(crate) struct Rings {
    /// Requests of each band, the least urgent first.
    pub(crate) jobs: Vec<Consumer<Job>>,
    /// Answers for each band, and how to wake its thread.
    pub(crate) done: Vec<(Producer<Done>, Waker)>,
}

impl Rings {
    /// Hands an answer to the thread that has the band. There is always room: a band has no more requests
    /// outstanding than the ring holds.
    pub(crate) fn give(&mut self, front: usize, done: Done) {
        let (ring, waker) = &mut self.done[front];
        let full = ring.push(done).is_err();
        debug_assert!(!full, "a band counts what it has outstanding");
        waker.wake();
    }

    /// Runs what bands have for the lane at least one and then as long as there is time for `more`, the most urgent band first, at
    /// most [`TURN`] of each.
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
        self.rings.give(id.front, Done::of(id.slip, &answer));
    }

    fn expired(&mut self, id: Id) {
        self.rings.give(id.front, Done::expired(id.slip));
    }

    fn polled(&mut self, poll: usize, entry: usize, value: Option<f64>, pulse: u64, _: MonoNs) {
        // The device may have taken its time.
        self.polls.set(poll, entry, value, pulse, mono_now());
    }
}

/// Runs a lane whose device may block, until `stop`; then gives it back. New lanes come by `changes`.
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
            // A request that came meanwhile has unparked this thread already.
            std::thread::park_timeout(Duration::from_nanos(until.0.max(0) as u64));
        }
    }
    lane
}
