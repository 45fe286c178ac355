//! One promise with its state, its history and its incidents.

use super::promise::Promise;
use base::{DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Transitions that a row keeps; older ones are counted only.
const TRANSITIONS_MAX: usize = 16;

/// A row without an observation for so many of its intervals is not observed.
const INTERVALS_MAX: i64 = 2;

/// What an observer found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// As promised.
    Kept,
    /// Something happened within the limit of the plant file: what.
    Within(String),
    /// The machine does not provide it: what, with the remedy.
    Absent(String),
    /// Not as promised: found and expected.
    Broken(String),
    /// The promise does not hold at present: why.
    NotDue(String),
}

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No observation yet, and it is too early for one.
    Pending,
    /// As promised.
    Kept,
    /// Something happened within the limit of the plant file.
    Within,
    /// The machine does not provide it.
    Absent,
    /// Not as promised.
    Broken,
    /// No observation for two intervals.
    NotObserved,
    /// The promise does not hold at present.
    NotDue,
}

impl State {
    /// Whether a promise is not kept now.
    #[must_use]
    pub fn is_wrong(self) -> bool {
        matches!(self, Self::Broken | Self::NotObserved)
    }

    /// The word for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "not observed yet",
            Self::Kept => "kept",
            Self::Within => "within its limit",
            Self::Absent => "unavailable",
            Self::Broken => "broken",
            Self::NotObserved => "not observed",
            Self::NotDue => "not due",
        }
    }
}

/// How bad a state is for the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Degraded,
    Failed,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// When.
    pub at: MonoNs,
    /// The new state.
    pub to: State,
    /// What was found.
    pub evidence: String,
}

/// All incidents of one severity in the life of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Incidents {
    /// How many.
    pub(super) count: u64,
    /// Start of the first.
    pub(super) first: MonoNs,
    /// What was found, see [`Row::enter`].
    pub(super) evidence: String,
    /// Length of those that are over.
    pub(super) lasted: DurNs,
    /// Start of the present one.
    pub(super) open: Option<MonoNs>,
}

impl Incidents {
    fn begin(&mut self, at: MonoNs) {
        if self.count == 0 {
            self.first = at;
        }
        if self.open.is_none() {
            self.count = self.count.saturating_add(1);
            self.open = Some(at);
        }
    }

    fn end(&mut self, at: MonoNs) {
        if let Some(begun) = self.open.take() {
            self.lasted = DurNs(self.lasted.0.saturating_add((at - begun).max(DurNs::ZERO).0));
        }
    }
}

/// One promise as it is observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The promise.
    pub promise: Promise,
    /// Its state.
    pub state: State,
    /// Since when it has this state.
    pub since: MonoNs,
    /// What was found last; empty if there is nothing to add.
    pub evidence: String,
    /// The last observation, or the time at which the row was made.
    pub observed: MonoNs,
    /// The last transitions, oldest first.
    pub history: VecDeque<Transition>,
    /// All transitions.
    pub transitions: u64,
    pub(super) failed: Incidents,
    pub(super) degraded: Incidents,
}

impl Row {
    pub(super) fn new(now: MonoNs, promise: Promise) -> Self {
        Self {
            promise,
            state: State::Pending,
            since: now,
            evidence: String::new(),
            observed: now,
            history: VecDeque::new(),
            transitions: 0,
            failed: Incidents::default(),
            degraded: Incidents::default(),
        }
    }

    /// Takes an observation; whether the state changed.
    pub(super) fn observe(&mut self, now: MonoNs, seen: Observation) -> bool {
        let gap = self.judge(now);
        self.observed = now;
        let (state, evidence) = match seen {
            Observation::Kept => (State::Kept, String::new()),
            Observation::Within(what) => (State::Within, what),
            Observation::Absent(what) => (State::Absent, what),
            Observation::Broken(what) => (State::Broken, what),
            Observation::NotDue(why) => (State::NotDue, why),
        };
        let turned = state != self.state;
        if turned {
            self.turn(now, state, evidence);
        } else if evidence != self.evidence {
            self.evidence = evidence;
        }
        self.enter(now);
        gap || turned
    }

    /// Whether an observation is overdue now; the row is *not observed* from the last one on then.
    pub(super) fn judge(&mut self, now: MonoNs) -> bool {
        let due = !matches!(self.state, State::NotDue | State::NotObserved);
        let patience = DurNs(self.promise.interval.0.saturating_mul(INTERVALS_MAX));
        if !due || now - self.observed <= patience {
            return false;
        }
        let evidence = format!("no observation for more than {patience}");
        self.turn(self.observed, State::NotObserved, evidence);
        self.enter(self.observed);
        true
    }

    fn turn(&mut self, at: MonoNs, to: State, evidence: String) {
        self.failed.end(at);
        self.degraded.end(at);
        (self.state, self.since) = (to, at);
        self.evidence.clone_from(&evidence);
        self.transitions = self.transitions.saturating_add(1);
        if self.history.len() == TRANSITIONS_MAX {
            self.history.pop_front();
        }
        self.history.push_back(Transition { at, to, evidence });
    }

    /// Counts an incident of the present state. Of failures the first evidence is kept, for it is the cause of others; of
    /// the rest the last, which has the sum.
    fn enter(&mut self, at: MonoNs) {
        match self.severity() {
            Some(Severity::Failed) => {
                if self.failed.count == 0 {
                    self.failed.evidence.clone_from(&self.evidence);
                }
                self.failed.begin(at);
            }
            Some(Severity::Degraded) => {
                self.degraded.evidence.clone_from(&self.evidence);
                self.degraded.begin(at);
            }
            None => {}
        }
    }

    /// What the present state means for the outcome.
    pub(super) fn severity(&self) -> Option<Severity> {
        let Promise { optional, required, .. } = self.promise;
        match self.state {
            State::Pending | State::Kept | State::NotDue => None,
            State::Within => Some(Severity::Degraded),
            State::Absent if !required => Some(Severity::Degraded),
            State::Absent | State::Broken | State::NotObserved if optional => Some(Severity::Degraded),
            State::Absent | State::Broken | State::NotObserved => Some(Severity::Failed),
        }
    }
}
