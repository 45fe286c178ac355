//! Export to the JSON of Chrome's tracing (`chrome://tracing`), which many other tools read too.

use super::{Picture, Track};
use crate::stored::{Stored, StoredError};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// "Process" ids in the JSON.
const CPUS: u32 = 1;
const INSIDE: u32 = 2;
const LATE: u32 = 3;
const PROGRAM: u32 = 4;

/// Converts a recording. Times are in microseconds from the first event, with three decimals.
///
/// # Errors
/// If the recording's format files are not supported.
pub fn chrome(stored: &Stored<'_>) -> Result<String, StoredError> {
    let picture = Picture::of(stored)?;
    let mut all = Vec::new();
    for (pid, name) in [
        (CPUS, "CPUs"),
        (INSIDE, "interrupts and work items"),
        (LATE, "late wake-ups"),
        (PROGRAM, "events of programs"),
    ] {
        all.push(json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": name } }));
    }
    let spans = picture.spans();
    let reported: Vec<_> = picture.reported().collect();
    let firsts = spans.iter().map(|span| span.from).chain(reported.iter().map(|(event, ..)| event.at));
    let begin = firsts.min().unwrap_or_default();
    let us = |ns: u64| ns as f64 / 1e3;
    let (mut named, mut rows) = (BTreeSet::new(), BTreeMap::new());
    for span in spans {
        let (pid, tid, name) = match span.track {
            Track::Cpu(cpu) => (CPUS, u64::from(cpu), format!("CPU {cpu}")),
            Track::Inside(cpu) => (INSIDE, u64::from(cpu), format!("CPU {cpu}")),
            Track::Late(tid, lane) => {
                let thread = stored.head.threads.iter().find(|thread| thread.tid == tid);
                let name = thread.map_or("thread", |thread| &thread.name);
                // Readers keep only 32 bits of a thread id: number the rows, and put thread ids into their names.
                let next = rows.len() as u64 + 1;
                (LATE, *rows.entry((tid, lane)).or_insert(next), format!("{name} ({tid})"))
            }
        };
        if named.insert((pid, tid)) {
            all.push(json!({ "ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": { "name": name } }));
        }
        let args: Map<String, Value> =
            span.details.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        all.push(json!({
            "ph": "X",
            "pid": pid,
            "tid": tid,
            "ts": us(span.from.0 - begin.0),
            "dur": us(span.to.0.saturating_sub(span.from.0)),
            "name": span.name,
            "args": args,
        }));
    }
    for (event, name, value) in reported {
        let (tid, name, ts) = (event.tid, name.to_string(), us(event.at.0 - begin.0));
        all.push(json!({ "ph": "i", "s": "t", "pid": PROGRAM, "tid": tid, "ts": ts, "name": name, "args": { "value": value } }));
    }
    let whole = json!({
        "displayTimeUnit": "ns",
        "otherData": { "kernel": stored.head.kernel, "reason": stored.head.reason, "began_ns": begin.0 },
        "traceEvents": all,
    });
    Ok(whole.to_string())
}
