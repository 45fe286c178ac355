//! Processes and their threads, with the processor time that they take now.

use super::status;
use base::{DurNs, MonoNs};
use keep::supervisor::control::{LoopStatus, ProcessStatus, RowStatus, Status};
use keep::supervisor::{phase_word, short};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Threads of one process that are shown.
const THREADS_MAX: usize = 64;

/// What a look is compared with.
pub(super) struct Processes {
    plant: String,
    at: MonoNs,
    /// Processor time of processes by their number, and of threads by theirs below zero: the first thread has its process's.
    used: BTreeMap<i32, DurNs>,
}

impl Processes {
    pub(super) fn new(plant: &str) -> Self {
        Self { plant: plant.to_owned(), at: MonoNs(0), used: BTreeMap::new() }
    }

    pub(super) fn look(&mut self) -> Value {
        match status(&self.plant) {
            Ok(status) => self.shown(&status),
            Err(why) => json!({
                "words": format!("NOT KNOWN: the supervisor does not answer ({why})"), "processes": [], "shortfalls": [],
                "outcome": "unknown", "reasons": [], "broken": [],
            }),
        }
    }

    fn shown(&mut self, status: &Status) -> Value {
        let mut used = BTreeMap::new();
        let processes: Vec<Value> = status.processes.iter().map(|one| self.process(status, one, &mut used)).collect();
        (self.at, self.used) = (status.now, used);
        let since = short(status.now - status.since);
        json!({
            "words": format!("{} for {since}, {}, {}", phase_word(status.phase), status.outcome.word(), status.shield),
            "outcome": status.outcome.word(),
            "reasons": status.outcome.reasons().iter().map(|reason| reason.words(short)).collect::<Vec<_>>(),
            "broken": status.health.iter().filter(|row| row.state.is_wrong()).map(broken).collect::<Vec<_>>(),
            "processes": processes,
            "shortfalls": status.shortfalls,
        })
    }

    fn process(&self, status: &Status, one: &ProcessStatus, used: &mut BTreeMap<i32, DurNs>) -> Value {
        let percent = one.pid.map(|pid| self.percent(status.now, pid, one.cpu, used));
        let threads = one.pid.map(keep::supervisor::threads).unwrap_or_default();
        let thread = |thread: &keep::supervisor::Thread, used: &mut _| {
            json!({
                "tid": thread.tid, "name": thread.name, "class": thread.class.to_string(), "cpus": thread.cpus.to_string(),
                "cpu_percent": self.percent(status.now, -thread.tid, thread.cpu, used),
            })
        };
        let threads: Vec<Value> = threads.iter().take(THREADS_MAX).map(|one| thread(one, used)).collect();
        let ended = one.ended.as_ref();
        json!({
            "name": one.name, "state": one.state, "pid": one.pid, "class": one.class.to_string(), "cpus": one.cpus.to_string(),
            "cpu_percent": percent, "memory": one.memory.0, "restarts": one.restarts, "shortfalls": one.shortfalls,
            "ended": ended.map(|(at, cause)| json!({ "ago_ns": (status.now - *at).0, "cause": cause.to_string() })),
            "loop": one.loop_page.as_ref().map(figures), "value": one.value,
            "threads": threads,
        })
    }

    /// Percent of one CPU since the last look; nothing at the first.
    fn percent(&self, now: MonoNs, key: i32, time: DurNs, used: &mut BTreeMap<i32, DurNs>) -> Option<f64> {
        used.insert(key, time);
        let before = self.used.get(&key)?;
        let span = (now - self.at).0;
        // Two clocks that count in different steps.
        (span > 0).then(|| 100.0 * (time.0 - before.0).max(0) as f64 / span as f64)
    }
}

/// A promise that is not kept now.
fn broken(row: &RowStatus) -> String {
    format!("{} {}: {} [{}]", row.subject, row.state.word(), row.evidence, row.promise)
}

fn figures(page: &LoopStatus) -> Value {
    let ns = |time: Option<DurNs>| time.map(|time| time.0);
    let wake = page.wake;
    json!({
        "cycles": page.cycles, "period_ns": page.period.0, "misses": page.misses,
        "wake": { "p50": ns(wake.p50), "p99": ns(wake.p99), "p999": ns(wake.p999), "max": ns(wake.max) },
    })
}
