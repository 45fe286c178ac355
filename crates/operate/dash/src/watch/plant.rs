//! Processes and their threads, with their present processor time.

use super::status;
use crate::hub::News;
use crate::metrics::Source;
use base::{DurNs, MonoNs};
use keep::supervisor::control::{Claim, LoopStatus, Outcome, ProcessStatus, Reason, RowState, RowStatus, Status};
use keep::supervisor::{phase_word, short};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum threads displayed per process.
const THREADS_MAX: usize = 64;

/// Maximum promises displayed.
const ATTENTION_MAX: usize = 50;

/// State for comparison with the previous poll.
pub(super) struct Processes {
    plant: String,
    at: MonoNs,
    /// Processor time by process id, and by negative thread id, because the first thread has the id of its process.
    used: BTreeMap<i32, DurNs>,
}

impl Processes {
    pub(super) fn new(plant: &str) -> Self {
        Self { plant: plant.to_owned(), at: MonoNs(0), used: BTreeMap::new() }
    }

    /// Reads the processes, `with_threads` or without.
    pub(super) fn look(&mut self, with_threads: bool) -> News {
        match status(&self.plant) {
            Ok(status) => {
                News { page: self.shown(&status, with_threads), source: Some(Source::Plant(Box::new(status))) }
            }
            Err(why) => News {
                source: None,
                page: json!({
                    "words": format!("NOT KNOWN: the supervisor does not answer ({why})"), "processes": [], "shortfalls": [],
                    "outcome": "unknown", "reasons": [], "attention": [], "within": [],
                }),
            },
        }
    }

    fn shown(&mut self, status: &Status, with_threads: bool) -> Value {
        let mut used = BTreeMap::new();
        let processes: Vec<Value> =
            status.processes.iter().map(|one| self.process(status, one, with_threads, &mut used)).collect();
        (self.at, self.used) = (status.now, used);
        let since = short(status.now - status.since);
        json!({
            "words": format!("{} for {since}, {}, {}", phase_word(status.phase), status.outcome.word(), status.shield),
            "phase": phase_word(status.phase), "up_ns": (status.now - status.since).0, "promises": status.health.len(),
            "outcome": status.outcome.word(),
            "reasons": reasons(&status.outcome),
            "attention": attention(&status.health, status.now), "within": within(&status.health),
            "processes": processes,
            "shortfalls": status.shortfalls,
        })
    }

    fn process(
        &self,
        status: &Status,
        one: &ProcessStatus,
        with_threads: bool,
        used: &mut BTreeMap<i32, DurNs>,
    ) -> Value {
        let percent = one.pid.map(|pid| self.percent(status.now, pid, one.family_cpu(), used));
        let threads = one.pid.filter(|_| with_threads).map(keep::supervisor::threads).unwrap_or_default();
        let thread = |thread: &keep::supervisor::Thread, used: &mut _| {
            json!({
                "tid": thread.tid, "name": thread.name, "class": thread.class.to_string(), "cpus": thread.cpus.to_string(),
                "cpu_percent": self.percent(status.now, -thread.tid, thread.cpu, used),
            })
        };
        let threads: Vec<Value> = threads.iter().take(THREADS_MAX).map(|one| thread(one, used)).collect();
        json!({
            "name": one.name, "state": one.state, "pid": one.pid, "class": one.class.to_string(), "cpus": one.cpus.to_string(),
            "cpu_percent": percent, "memory": one.family_memory().0, "restarts": one.restarts, "starts": one.starts, "shortfalls": one.shortfalls,
            "trouble": one.trouble, "evidence": one.evidence, "started_ns": one.started.map(|at| (status.now - at).0),
            "environment": one.automatic,
            "ended": one.ended.as_ref().map(|(at, cause)| {
                json!({ "ago_ns": (status.now - *at).0, "cause": cause.to_string(), "detail": cause.behind(one.last_line.as_deref()) })
            }),
            "loop": one.loop_page.as_ref().map(figures), "value": one.value,
            "threads": threads,
        })
    }

    /// Percentage of one CPU since the last poll; `None` on the first.
    fn percent(&self, now: MonoNs, key: i32, time: DurNs, used: &mut BTreeMap<i32, DurNs>) -> Option<f64> {
        used.insert(key, time);
        let before = self.used.get(&key)?;
        let span = (now - self.at).0;
        // The two clocks have different resolutions.
        (span > 0).then(|| 100.0 * (time.0 - before.0).max(0) as f64 / span as f64)
    }
}

/// Reasons of the outcome, each with the word that it alone would give.
fn reasons(outcome: &Outcome) -> Value {
    let shown = |reason: &Reason| json!({ "outcome": reason.word(), "words": reason.words(short) });
    outcome.summary().iter().map(shown).collect()
}

/// Promises that are broken or not observed, with the age of that state.
fn attention(rows: &[RowStatus], now: MonoNs) -> Value {
    let shown = |row: &RowStatus| {
        json!({
            "subject": row.subject, "claim": row.claim, "promise": row.promise, "state": row.state.word(),
            "evidence": row.evidence, "line": row.line, "since_ns": (now - row.since).0,
        })
    };
    rows.iter().filter(|row| row.state.is_wrong()).take(ATTENTION_MAX).map(shown).collect()
}

/// Claims for which something happened within the limit.
fn within(rows: &[RowStatus]) -> Vec<Claim> {
    rows.iter().filter(|row| row.state == RowState::Within).map(|row| row.claim).collect()
}

fn figures(page: &LoopStatus) -> Value {
    let ns = |time: Option<DurNs>| time.map(|time| time.0);
    let wake = page.wake;
    json!({
        "cycles": page.cycles, "period_ns": page.period.0, "misses": page.misses,
        "wake": { "p50": ns(wake.p50), "p99": ns(wake.p99), "p999": ns(wake.p999), "max": ns(wake.max) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, state: RowState) -> RowStatus {
        RowStatus {
            subject: subject.to_owned(),
            claim: Claim::Runs,
            promise: "runs".to_owned(),
            line: Some(7),
            file: None,
            state,
            since: MonoNs(2_000_000_000),
            observed: MonoNs(5_000_000_000),
            evidence: "stopped by a signal".to_owned(),
            transitions: 1,
        }
    }

    #[test]
    fn each_reason_has_the_word_that_it_alone_would_give() {
        let reason = |subject: &str, is_failure| Reason {
            subject: subject.to_owned(),
            promise: "runs".to_owned(),
            line: None,
            file: None,
            found: "stopped".to_owned(),
            from: DurNs(0),
            lasted: DurNs(0),
            lasts: true,
            count: 1,
            gaps: 0,
            whole_life: true,
            is_failure,
        };
        let shown = reasons(&Outcome::Failed(vec![reason("pump", true), reason("loop", false)]));
        assert_eq!(
            shown,
            json!([
                { "outcome": "failed", "words": "pump: stopped [runs]" },
                { "outcome": "degraded", "words": "loop: stopped [runs]" },
            ])
        );
    }

    #[test]
    fn a_broken_promise_needs_attention_with_its_age_and_a_kept_one_does_not() {
        assert_eq!(within(&[row("late", RowState::Within), row("held", RowState::Broken)]), [Claim::Runs]);
        let rows = [row("good", RowState::Kept), row("held", RowState::Broken), row("lost", RowState::NotObserved)];
        let shown = attention(&rows, MonoNs(5_000_000_000));
        let subjects: Vec<_> = shown.as_array().unwrap().iter().map(|one| one["subject"].as_str().unwrap()).collect();
        assert_eq!(subjects, ["held", "lost"]);
        let first = &shown[0];
        assert_eq!((&first["since_ns"], &first["line"]), (&json!(3_000_000_000_i64), &json!(7)));
        assert_eq!((&first["state"], &first["evidence"]), (&json!("broken"), &json!("stopped by a signal")));
    }
}
