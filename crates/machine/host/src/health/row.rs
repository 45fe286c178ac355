//! One promise with its state, its history and its incidents.

use super::promise::Promise;
use super::table::NO_PASS;
use base::{DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Transitions that a row stores; older ones are only counted.
const TRANSITIONS_MAX: usize = 16;

/// Intervals without an observation after which a row is not observed.
const INTERVALS_MAX: i64 = 2;

/// Result of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// As promised.
    Kept,
    /// Something happened within the limit of the plant file: a description.
    Within(String),
    /// The machine does not provide it: a description with the remedy.
    Absent(String),
    /// Not as promised: found and expected value.
    Broken(String),
    /// The promise can no longer be observed: the reason. It counts as not kept.
    NotObserved(String),
    /// The promise does not apply at present: the reason.
    NotDue(String),
}

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No observation yet, and none is due.
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
    /// The promise does not apply at present.
    NotDue,
}

impl State {
    /// Whether the promise is not kept now.
    #[must_use]
    pub fn is_wrong(self) -> bool {
        matches!(self, Self::Broken | Self::NotObserved)
    }

    /// The word for users.
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

/// Effect of a state on the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Degraded,
    Failed,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Time of the transition.
    pub at: MonoNs,
    /// The new state.
    pub to: State,
    /// The observation.
    pub evidence: String,
}

/// All incidents of one severity in the life of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Incidents {
    /// Number of incidents.
    pub(super) count: u64,
    /// Number of incidents that were gaps of the supervisor.
    #[serde(default)]
    pub(super) gaps: u64,
    /// Start of the first incident.
    pub(super) first: MonoNs,
    /// The observation; see [`Row::enter`].
    pub(super) evidence: String,
    /// Total duration of closed incidents.
    pub(super) lasted: DurNs,
    /// Start of the open incident.
    pub(super) open: Option<MonoNs>,
}

impl Incidents {
    fn begin(&mut self, at: MonoNs, is_gap: bool) {
        if self.count == 0 {
            self.first = at;
        }
        if self.open.is_none() {
            self.count = self.count.saturating_add(1);
            self.gaps = self.gaps.saturating_add(u64::from(is_gap));
            self.open = Some(at);
        }
    }

    fn end(&mut self, at: MonoNs) {
        if let Some(begun) = self.open.take() {
            self.lasted = DurNs(self.lasted.0.saturating_add((at - begun).max(DurNs::ZERO).0));
        }
    }
}

/// A promise under observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The promise.
    pub promise: Promise,
    /// Its state.
    pub state: State,
    /// Start of the present state.
    pub since: MonoNs,
    /// Last observation; empty if there is nothing to add.
    pub evidence: String,
    /// Time of the last observation, or of the creation of the row.
    pub observed: MonoNs,
    /// The last transitions, oldest first.
    pub history: VecDeque<Transition>,
    /// Number of all transitions.
    pub transitions: u64,
    pub(super) failed: Incidents,
    pub(super) degraded: Incidents,
    /// Totals at the last call of [`Table::grown`](super::Table::grown).
    #[serde(default)]
    pub(super) counted: [u64; 2],
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
            counted: [0; 2],
        }
    }

    /// Handles an observation. Returns whether the state changed.
    pub(super) fn observe(&mut self, now: MonoNs, seen: Observation) -> bool {
        let gap = self.judge(now);
        self.observed = now;
        let (state, evidence) = match seen {
            Observation::Kept => (State::Kept, String::new()),
            Observation::Within(what) => (State::Within, what),
            Observation::Absent(what) => (State::Absent, what),
            Observation::Broken(what) => (State::Broken, what),
            Observation::NotObserved(why) => (State::NotObserved, why),
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

    /// Checks whether an observation is overdue. The row is then *not observed*, beginning at the last observation.
    /// Returns whether the state changed.
    pub(super) fn judge(&mut self, now: MonoNs) -> bool {
        self.judge_with(now, None)
    }

    /// Like [`judge`](Self::judge), with the reason why there was no observation.
    pub(super) fn judge_with(&mut self, now: MonoNs, cause: Option<&str>) -> bool {
        let due = !matches!(self.state, State::NotDue | State::NotObserved);
        let patience = DurNs(self.promise.interval.0.saturating_mul(INTERVALS_MAX));
        if !due || now - self.observed <= patience {
            return false;
        }
        let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
        let evidence = format!("no observation for more than {patience}{cause}");
        self.turn(self.observed, State::NotObserved, evidence);
        self.enter(self.observed);
        true
    }

    /// Ends the row. If it was never observed, it becomes *not observed*. Returns whether the state changed.
    pub(super) fn close(&mut self) -> bool {
        let is_never = self.state == State::Pending;
        if is_never {
            self.turn(self.observed, State::NotObserved, "never observed".to_owned());
            self.enter(self.observed);
        }
        is_never
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

    /// Counts an incident of the present state. For failures the first evidence is stored, because it is the cause of
    /// later ones; otherwise the last, which has the total.
    fn enter(&mut self, at: MonoNs) {
        let is_gap = self.state == State::NotObserved && self.evidence.ends_with(NO_PASS);
        match self.severity() {
            Some(Severity::Failed) => {
                if self.failed.count == 0 {
                    self.failed.evidence.clone_from(&self.evidence);
                }
                self.failed.begin(at, is_gap);
            }
            Some(Severity::Degraded) => {
                self.degraded.evidence.clone_from(&self.evidence);
                self.degraded.begin(at, is_gap);
            }
            None => {}
        }
    }

    /// Effect of the present state on the outcome.
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
