//! All rows of a plant.

use super::outcome::{Outcome, Reason};
use super::promise::{Claim, Promise};
use super::row::{Incidents, Observation, Row, Severity, State};
use base::{DurNs, MonoNs};
use serde::{Deserialize, Serialize};

/// Maximum reasons stored for rows that a reload removed.
const PAST_MAX: usize = 256;

/// Cause of a gap in every row but the supervisor's own.
pub(super) const NO_PASS: &str = "the supervisor made no pass";

/// All rows of a plant, in the order of its promises.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    begun: MonoNs,
    rows: Vec<Row>,
    /// Reasons of rows that a reload removed.
    past: Vec<(bool, Reason)>,
    /// Number of state changes of all rows.
    changes: u64,
}

/// A row for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowStatus {
    /// The subject: a process, or a part of the plant.
    pub subject: String,
    /// Kind of promise, as one word.
    pub claim: Claim,
    /// The promise, as in the plant file.
    pub promise: String,
    /// Line of the plant file; `None` for a default.
    pub line: Option<u32>,
    /// The included file of the line; `None` for the plant file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The state.
    pub state: State,
    /// Start of the state.
    pub since: MonoNs,
    /// Time of the last observation.
    pub observed: MonoNs,
    /// The observation.
    pub evidence: String,
    /// Number of state changes.
    pub transitions: u64,
}

impl Table {
    /// An empty table of a plant that was started at `begun`.
    #[must_use]
    pub fn new(begun: MonoNs) -> Self {
        Self { begun, ..Self::default() }
    }

    /// Sets the promises of a plant. Remaining rows keep their state. Reasons of removed rows are stored.
    pub fn promise(&mut self, now: MonoNs, promises: Vec<Promise>) {
        let mut old = std::mem::take(&mut self.rows);
        for promise in promises {
            let is_same = |row: &Row| row.promise.claim == promise.claim && row.promise.subject == promise.subject;
            match old.iter().position(is_same) {
                Some(at) => self.rows.push(Row { promise, ..old.swap_remove(at) }),
                None => self.rows.push(Row::new(now, promise)),
            }
        }
        old.iter_mut().for_each(|row| _ = row.close());
        let gone = old.iter().flat_map(|row| self.reasons_of(row, now)).collect::<Vec<_>>();
        self.past.extend(gone);
        // Failures decide the outcome, so they are the last to be dropped.
        self.past.sort_by_key(|(is_failed, _)| !is_failed);
        self.past.truncate(PAST_MAX);
        self.changes += 1;
    }

    /// Continues the table of another supervisor. `last_pass` is the time of its last pass, which the table may not
    /// contain.
    pub fn resume(&mut self, last_pass: Option<MonoNs>) {
        let Some(last_pass) = last_pass else { return };
        for row in &mut self.rows {
            row.observed = row.observed.max(last_pass);
        }
    }

    fn row_mut(&mut self, subject: &str, claim: Claim) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.promise.claim == claim && row.promise.subject == subject)
    }

    /// Handles an observation. It is ignored if there is no such promise.
    pub fn observe(&mut self, now: MonoNs, subject: &str, claim: Claim, seen: Observation) {
        let row = self.row_mut(subject, claim);
        if row.is_some_and(|row| row.observe(now, seen)) {
            self.changes += 1;
        }
    }

    /// Observes a row again as at its last observation, which can no longer change; *not due* without one.
    pub fn repeat(&mut self, now: MonoNs, subject: &str, claim: Claim, without: &str) {
        let row = self.row_mut(subject, claim);
        let Some(row) = row else { return };
        let seen = match row.state {
            State::Kept => Observation::Kept,
            State::Within => Observation::Within(row.evidence.clone()),
            State::Absent => Observation::Absent(row.evidence.clone()),
            State::Broken => Observation::Broken(row.evidence.clone()),
            State::Pending | State::NotObserved | State::NotDue => Observation::NotDue(without.to_owned()),
        };
        self.changes += u64::from(row.observe(now, seen));
    }

    /// Whether a promise of the plant file was never observed. `false` for a default.
    #[must_use]
    pub fn is_unobserved(&self, subject: &str, claim: Claim) -> bool {
        let row = self.rows.iter().find(|row| row.promise.claim == claim && row.promise.subject == subject);
        row.is_some_and(|row| row.promise.line.is_some() && row.transitions <= u64::from(row.state == State::NotDue))
    }

    /// Growth of a total since the last call, by this or an earlier supervisor. A row has two totals; `nth` selects one. 0 if
    /// there is no such promise.
    pub fn grown(&mut self, subject: &str, claim: Claim, nth: usize, total: u64) -> u64 {
        let row = self.row_mut(subject, claim);
        let Some(counted) = row.and_then(|row| row.counted.get_mut(nth)) else { return 0 };
        let more = total.saturating_sub(std::mem::replace(counted, total));
        self.changes += u64::from(more > 0);
        more
    }

    /// Finds rows with an overdue observation.
    pub fn judge(&mut self, now: MonoNs) {
        let overdue = self.rows.iter_mut().map(|row| row.judge(now)).filter(|turned| *turned).count();
        self.changes += overdue as u64;
    }

    /// Ends the life of the plant: a row that was never observed is not kept.
    pub fn close(&mut self) {
        let never = self.rows.iter_mut().map(Row::close).filter(|turned| *turned).count();
        self.changes += never as u64;
    }

    /// Handles a gap between two passes of the supervisor, before the observations of the second one. `cause`: why there was
    /// no pass, for the row of the supervisor; the other rows refer to it.
    pub fn gap(&mut self, now: MonoNs, cause: &str) {
        for row in &mut self.rows {
            let is_own = row.promise.claim == Claim::Observes;
            let cause = if is_own { cause } else { NO_PASS };
            self.changes += u64::from(row.judge_with(now, Some(cause)));
        }
    }

    /// Number of state changes. If it is the same, no row has changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows for display.
    #[must_use]
    pub fn status(&self) -> Vec<RowStatus> {
        let shown = |row: &Row| RowStatus {
            subject: row.promise.subject.clone(),
            claim: row.promise.claim,
            promise: row.promise.words.clone(),
            line: row.promise.line,
            file: row.promise.file.clone(),
            state: row.state,
            since: row.since,
            observed: row.observed,
            evidence: row.evidence.clone(),
            transitions: row.transitions,
        };
        self.rows.iter().map(shown).collect()
    }

    /// The outcome over the whole life until now.
    #[must_use]
    pub fn outcome(&self, now: MonoNs) -> Outcome {
        let (mut failed, mut degraded) = (Vec::new(), Vec::new());
        let present = self.rows.iter().flat_map(|row| self.reasons_of(row, now));
        for (is_failed, reason) in self.past.iter().cloned().chain(present) {
            let reason = Reason { is_failure: is_failed, ..reason };
            if is_failed { failed.push(reason) } else { degraded.push(reason) }
        }
        if !failed.is_empty() {
            failed.extend(degraded);
            return Outcome::Failed(failed);
        }
        if degraded.is_empty() { Outcome::Good } else { Outcome::Degraded(degraded) }
    }

    /// Reasons of a row against a good outcome, failures first.
    fn reasons_of(&self, row: &Row, now: MonoNs) -> Vec<(bool, Reason)> {
        if row.promise.whole_life {
            let Some(severity) = row.severity() else { return Vec::new() };
            let incident =
                Incidents { count: 1, first: row.since, evidence: row.evidence.clone(), ..Incidents::default() };
            return vec![(severity == Severity::Failed, self.reason(row, &incident, now))];
        }
        let both = [(true, &row.failed), (false, &row.degraded)];
        both.into_iter()
            .filter(|(_, all)| all.count > 0)
            .map(|(failed, all)| (failed, self.reason(row, all, now)))
            .collect()
    }

    fn reason(&self, row: &Row, all: &Incidents, now: MonoNs) -> Reason {
        let open = all.open.map_or(DurNs::ZERO, |begun| (now - begun).max(DurNs::ZERO));
        Reason {
            subject: row.promise.subject.clone(),
            promise: row.promise.words.clone(),
            line: row.promise.line,
            file: row.promise.file.clone(),
            found: all.evidence.clone(),
            from: (all.first - self.begun).max(DurNs::ZERO),
            lasted: DurNs(all.lasted.0.saturating_add(open.0)),
            lasts: all.open.is_some(),
            count: all.count,
            whole_life: row.promise.whole_life,
            gaps: all.gaps,
            is_failure: false,
        }
    }
}
