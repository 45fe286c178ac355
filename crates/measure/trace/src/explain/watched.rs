//! History of a watched thread.

use super::TIME_SHARING;
use crate::culprit::Occasion;
use crate::event::{Name, ProgramEvent};
use base::{CpuId, MonoNs};
use std::collections::VecDeque;

/// Maximum state changes kept.
const SPANS_MAX: usize = 4096;
/// Maximum page faults kept.
const FAULTS_MAX: usize = 1 << 16;
/// Maximum events of a program displayed with a delay.
pub const PROGRAM_EVENTS_SHOWN: usize = 4;
/// Maximum events of a program kept of a thread.
const PROGRAM_EVENTS_MAX: usize = 64;

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// No event yet.
    Unknown,
    Running(CpuId),
    /// Runnable but not running.
    Ready {
        cpu: CpuId,
        since: MonoNs,
    },
    /// Waiting for its timer.
    Asleep,
    /// Waiting for its timer, which is due; its interrupt has not arrived at that CPU. Until `latest`, the kernel is allowed to
    /// delay it.
    TimerLate {
        cpu: CpuId,
        latest: MonoNs,
    },
    /// The timer's interrupt has arrived; the thread is not woken yet.
    TimerFires(CpuId),
    /// Waiting for another thread to wake it.
    Blocked {
        waker: i32,
    },
    /// Stopped by a signal.
    Stopped,
}

/// A wake-up that has not led to a run yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Woken {
    pub(super) due: MonoNs,
    pub(super) occasion: Occasion,
}

/// A watched thread.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) tid: i32,
    pub(super) name: Name,
    pub(super) prio: i32,
    /// Whether its delays count in a time-sharing class too.
    pub(super) every_class: bool,
    /// The timer it armed last.
    pub(super) timer: Option<u64>,
    pub(super) woken: Option<Woken>,
    /// Start of its cycle.
    pub(super) cycle: Option<MonoNs>,
    /// Kernel stack at its last wake-up.
    pub(super) stack: Vec<u64>,
    /// CPU of the wake-up, if that was the last event.
    waking_on: Option<CpuId>,
    spans: VecDeque<(MonoNs, State)>,
    faults: VecDeque<MonoNs>,
    reported: VecDeque<ProgramEvent>,
}

impl Watched {
    pub(super) fn new(tid: i32, name: Name) -> Self {
        Self {
            tid,
            name,
            prio: 120,
            every_class: false,
            timer: None,
            woken: None,
            cycle: None,
            stack: Vec::new(),
            waking_on: None,
            spans: VecDeque::new(),
            faults: VecDeque::new(),
            reported: VecDeque::new(),
        }
    }

    /// Whether a delay with this kernel priority counts.
    pub(super) fn counts(&self, prio: i32) -> bool {
        self.every_class || prio < TIME_SHARING
    }

    /// The thread reported an event.
    pub(super) fn reports(&mut self, event: ProgramEvent) {
        if self.reported.len() == PROGRAM_EVENTS_MAX {
            self.reported.pop_front();
        }
        self.reported.push_back(event);
    }

    /// The last events that it reported until `at`, in order.
    pub(super) fn reported_until(&self, at: MonoNs) -> Vec<ProgramEvent> {
        let until: Vec<_> = self.reported.iter().filter(|event| event.at <= at).collect();
        until[until.len().saturating_sub(PROGRAM_EVENTS_SHOWN)..].iter().map(|event| (*event).clone()).collect()
    }

    /// Time of its first known state.
    pub(super) fn known_since(&self) -> Option<MonoNs> {
        self.spans.front().map(|(at, _)| *at)
    }

    /// Present state.
    pub(super) fn state(&self) -> State {
        self.spans.back().map_or(State::Unknown, |(_, state)| *state)
    }

    /// Changes the state at `at`.
    pub(super) fn enter(&mut self, at: MonoNs, state: State) {
        if self.spans.len() >= SPANS_MAX {
            self.spans.pop_front();
        }
        self.waking_on = None;
        // Keep the order: after lost events, times may precede known ones.
        let at = self.spans.back().map_or(at, |(last, _)| at.max(*last));
        self.spans.push_back((at, state));
    }

    /// The thread is woken by an event on CPU `by`, to run on `target`. `due` is its timer's earliest and latest expiry; the
    /// timer's interrupt arrived at `interrupted_at`.
    pub(super) fn wakes(
        &mut self,
        at: MonoNs,
        by: CpuId,
        target: CpuId,
        due: Option<(MonoNs, MonoNs)>,
        interrupted_at: MonoNs,
        waker: i32,
    ) {
        let was = self.state();
        if matches!(was, State::Running(_) | State::Ready { .. }) {
            return;
        }
        let slept_at = self.spans.back().map_or(at, |(at, _)| *at);
        let timed = due.filter(|_| !matches!(was, State::Stopped));
        match timed {
            Some((due, latest)) => {
                let late_from = due.max(slept_at);
                let came = interrupted_at.clamp(late_from.min(at), at);
                if was == State::Unknown {
                    self.enter(due.min(at), State::Asleep);
                }
                self.enter(late_from.min(at), State::TimerLate { cpu: by, latest });
                self.enter(came, State::TimerFires(by));
                self.woken = Some(Woken { due: due.min(at), occasion: Occasion::Timer });
            }
            None => {
                if let Some((_, state @ State::Blocked { .. })) = self.spans.back_mut() {
                    *state = State::Blocked { waker };
                }
                // A stopped thread resumes where it was. Its lateness is reported at its next sleep.
                self.woken = (was != State::Stopped).then_some(Woken { due: at, occasion: Occasion::Event });
            }
        }
        self.timer = None;
        self.stack.clear();
        self.enter(at, State::Ready { cpu: target, since: at });
        self.waking_on = Some(by);
    }

    /// Whether its last event was a wake-up on CPU `cpu`.
    pub(super) fn wakes_now(&self, cpu: CpuId) -> bool {
        self.waking_on == Some(cpu) && self.stack.is_empty()
    }

    /// The thread is moved to another CPU.
    pub(super) fn goes_to(&mut self, at: MonoNs, to: CpuId) {
        if let State::Ready { since, .. } = self.state() {
            let waking_on = self.waking_on;
            self.enter(at, State::Ready { cpu: to, since });
            self.waking_on = waking_on;
        }
    }

    /// Records a page fault.
    pub(super) fn faults(&mut self, at: MonoNs) {
        if self.faults.len() >= FAULTS_MAX {
            self.faults.pop_front();
        }
        self.faults.push_back(at);
    }

    /// Number of page faults in an interval.
    pub(super) fn faults_between(&self, from: MonoNs, to: MonoNs) -> u32 {
        let [from, to] = [from, to].map(|at| self.faults.partition_point(|fault| *fault < at));
        (to - from.min(to)) as u32
    }

    /// Its states in an interval, as contiguous pieces.
    pub(super) fn between(&self, from: MonoNs, to: MonoNs, mut each: impl FnMut(State, MonoNs, MonoNs)) {
        let first = self.spans.partition_point(|(at, _)| *at <= from);
        let mut state = first.checked_sub(1).map_or(State::Unknown, |index| self.spans[index].1);
        let mut at = from;
        for (begin, next) in self.spans.range(first..) {
            if *begin >= to {
                break;
            }
            if at < *begin {
                each(state, at, *begin);
                at = *begin;
            }
            state = *next;
        }
        if at < to {
            each(state, at, to);
        }
    }
}
