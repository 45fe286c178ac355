//! What became of one watched thread, as far back as its delays reach.

use crate::culprit::Occasion;
use crate::event::Name;
use base::{CpuId, MonoNs};
use std::collections::VecDeque;

/// Changes of a thread's state that are kept.
const SPANS_MAX: usize = 4096;
/// Page faults that are kept.
const FAULTS_MAX: usize = 1 << 16;

/// What a thread is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// Nothing was seen of it yet.
    Unknown,
    Running(CpuId),
    /// Would run if it were let.
    Ready {
        cpu: CpuId,
        since: MonoNs,
    },
    /// Waits for its timer.
    Asleep,
    /// Waits for its timer, which was due: its interrupt had not come yet to that CPU. What is earlier than `latest` the
    /// kernel was free to wait.
    TimerLate {
        cpu: CpuId,
        latest: MonoNs,
    },
    /// The timer's interrupt had come, the waking not yet.
    TimerFires(CpuId),
    /// Waits for somebody else, who wakes it.
    Blocked {
        waker: i32,
    },
    /// Stopped by a signal.
    Stopped,
}

/// A waking that has not led to a run yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Woken {
    pub(super) due: MonoNs,
    pub(super) occasion: Occasion,
}

/// One watched thread.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) tid: i32,
    pub(super) name: Name,
    pub(super) prio: i32,
    /// The timer that it armed last.
    pub(super) timer: Option<u64>,
    pub(super) woken: Option<Woken>,
    /// When its cycle began.
    pub(super) cycle: Option<MonoNs>,
    /// Where the kernel was at its last waking.
    pub(super) stack: Vec<u64>,
    /// Where it was woken just now.
    waking_on: Option<CpuId>,
    spans: VecDeque<(MonoNs, State)>,
    faults: VecDeque<MonoNs>,
}

impl Watched {
    pub(super) fn new(tid: i32, name: Name) -> Self {
        Self {
            tid,
            name,
            prio: 120,
            timer: None,
            woken: None,
            cycle: None,
            stack: Vec::new(),
            waking_on: None,
            spans: VecDeque::new(),
            faults: VecDeque::new(),
        }
    }

    /// Since when anything is known of it.
    pub(super) fn known_since(&self) -> Option<MonoNs> {
        self.spans.front().map(|(at, _)| *at)
    }

    /// What it is at.
    pub(super) fn state(&self) -> State {
        self.spans.back().map_or(State::Unknown, |(_, state)| *state)
    }

    /// It is at something else from `at` on.
    pub(super) fn enter(&mut self, at: MonoNs, state: State) {
        if self.spans.len() >= SPANS_MAX {
            self.spans.pop_front();
        }
        self.waking_on = None;
        // Never before what is known already: lost events leave times behind that cannot be put in order.
        let at = self.spans.back().map_or(at, |(last, _)| at.max(*last));
        self.spans.push_back((at, state));
    }

    /// It was woken by what happens on CPU `by`, to run on `target`. `due`: when its timer was due, and till when the kernel
    /// was free to wait; the timer's interrupt had come at `interrupted_at`.
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
                // Whoever was stopped goes on where it was: what it was late for is told when it sleeps again.
                self.woken = (was != State::Stopped).then_some(Woken { due: at, occasion: Occasion::Event });
            }
        }
        self.timer = None;
        self.stack.clear();
        self.enter(at, State::Ready { cpu: target, since: at });
        self.waking_on = Some(by);
    }

    /// Whether the last event of CPU `cpu` that concerns it was its waking.
    pub(super) fn wakes_now(&self, cpu: CpuId) -> bool {
        self.waking_on == Some(cpu) && self.stack.is_empty()
    }

    /// It is taken to another CPU.
    pub(super) fn goes_to(&mut self, at: MonoNs, to: CpuId) {
        if let State::Ready { since, .. } = self.state() {
            let waking_on = self.waking_on;
            self.enter(at, State::Ready { cpu: to, since });
            self.waking_on = waking_on;
        }
    }

    /// It faulted a page in.
    pub(super) fn faults(&mut self, at: MonoNs) {
        if self.faults.len() >= FAULTS_MAX {
            self.faults.pop_front();
        }
        self.faults.push_back(at);
    }

    /// How many pages it faulted in between two moments.
    pub(super) fn faults_between(&self, from: MonoNs, to: MonoNs) -> u32 {
        let [from, to] = [from, to].map(|at| self.faults.partition_point(|fault| *fault < at));
        (to - from.min(to)) as u32
    }

    /// What it was at between two moments, piece by piece without a gap.
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
