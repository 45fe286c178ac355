//! Export of recordings to other formats: Perfetto and Chrome's tracing.

mod chrome;
mod perfetto;
mod protobuf;

pub use chrome::chrome;
pub use perfetto::perfetto;

use crate::event::{Event, EventKind, Name, Task};
use crate::merge::Item;
use crate::stored::{Stored, StoredError};
use crate::symbols::Symbols;
use crate::timeline::softirq_name;
use crate::{Explainer, Late};
use base::{CpuId, MonoNs};
use std::collections::BTreeMap;

/// A decoded recording, the basis of both formats.
struct Picture {
    events: Vec<Item>,
    lates: Vec<Late>,
    explainer: Explainer,
    symbols: Symbols,
}

/// The track that a span is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    /// The task on a CPU.
    Cpu(CpuId),
    /// Interrupts and work items on a CPU.
    Inside(CpuId),
    /// Delays of a thread. Overlapping delays use further lanes.
    Late(i32, usize),
}

/// A named interval. Spans of a track are nested or consecutive.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    track: Track,
    from: MonoNs,
    to: MonoNs,
    name: String,
    details: Vec<(&'static str, String)>,
}

impl Picture {
    fn of(stored: &Stored<'_>) -> Result<Self, StoredError> {
        let events = stored.events()?;
        let (explainer, lates) = stored.explain(&events, 0);
        Ok(Self { events, lates, explainer, symbols: stored.symbols() })
    }

    /// All spans; each precedes the spans nested in it.
    fn spans(&self) -> Vec<Span> {
        let mut all = Vec::new();
        let mut cpus: BTreeMap<CpuId, Cpu> = BTreeMap::new();
        for (at, cpu, event) in &self.events {
            let state = cpus.entry(*cpu).or_default();
            match event {
                Some(event) => state.take(*at, *cpu, &event.what, &self.symbols, &mut all),
                None => state.end(*at, *cpu, &mut all),
            }
        }
        let last = self.events.last().map_or(MonoNs(0), |(at, ..)| *at);
        cpus.iter_mut().for_each(|(cpu, state)| state.end(last, *cpu, &mut all));
        self.late(&mut all);
        all.sort_by_key(|span| (span.track, span.from, std::cmp::Reverse(span.to)));
        all
    }

    /// Events that threads themselves reported: event, name, number.
    fn reported(&self) -> impl Iterator<Item = (&Event, Name, i64)> {
        self.events.iter().filter_map(|(.., event)| match event.as_ref()? {
            event @ Event { what: EventKind::Program { name, value }, .. } => Some((event, *name, *value)),
            _ => None,
        })
    }

    /// Adds each delay, with its parts nested in it.
    fn late(&self, all: &mut Vec<Span>) {
        let mut lanes: BTreeMap<i32, Vec<MonoNs>> = BTreeMap::new();
        let mut lates: Vec<&Late> = self.lates.iter().collect();
        lates.sort_by_key(|late| late.due);
        for late in lates {
            let ends = lanes.entry(late.tid).or_default();
            let lane = ends.iter().position(|end| *end <= late.due).unwrap_or(ends.len());
            match ends.get_mut(lane) {
                Some(end) => *end = late.ran,
                None => ends.push(late.ran),
            }
            let track = Track::Late(late.tid, lane);
            let worst = late.worst().map_or_else(String::new, ToString::to_string);
            let details = vec![
                ("thread", format!("{} ({})", late.name, late.tid)),
                ("delay", format!("{:.3} us", late.delay_ns() as f64 / 1e3)),
                ("culprit", worst.clone()),
                ("priority", self.explainer.prio(late.tid).map_or_else(String::new, class)),
            ];
            let name = format!("late: {worst}");
            all.push(Span { track, from: late.due, to: late.ran, name, details });
            for part in &late.parts {
                let to = MonoNs(part.from.0.saturating_add(part.ns));
                all.push(Span { track, from: part.from, to, name: part.culprit.to_string(), details: Vec::new() });
            }
        }
    }
}

/// Present state of a CPU.
#[derive(Default)]
struct Cpu {
    task: Option<(MonoNs, Task)>,
    open: Vec<(MonoNs, EventKind, String)>,
}

impl Cpu {
    fn take(&mut self, at: MonoNs, cpu: CpuId, what: &EventKind, symbols: &Symbols, all: &mut Vec<Span>) {
        let name = match what {
            EventKind::Switch { to, .. } => {
                self.end(at, cpu, all);
                self.task = Some((at, *to));
                return;
            }
            EventKind::VectorEntry(vector) => format!("{} interrupt", vector.name()),
            EventKind::IrqEntry { irq, name } => format!("interrupt {irq} ({name})"),
            EventKind::SoftirqEntry { vec } => format!("softirq {}", softirq_name(*vec)),
            EventKind::TimerFire { function, .. } => symbols.show(*function),
            EventKind::WorkStart { function } => format!("work item {}", symbols.show(*function)),
            _ => {
                if let Some(from) = self.open.iter().rposition(|(_, begun, _)| ends(begun, what)) {
                    self.open.drain(from..).for_each(|open| all.push(inside(open, at, cpu)));
                }
                return;
            }
        };
        self.open.push((at, what.clone(), name));
    }

    fn end(&mut self, at: MonoNs, cpu: CpuId, all: &mut Vec<Span>) {
        self.open.drain(..).for_each(|open| all.push(inside(open, at, cpu)));
        if let Some((from, task)) = self.task.take()
            && task.tid != 0
        {
            let details = vec![("tid", task.tid.to_string()), ("priority", class(task.prio))];
            all.push(Span { track: Track::Cpu(cpu), from, to: at, name: task.name.to_string(), details });
        }
    }
}

fn inside((from, _, name): (MonoNs, EventKind, String), to: MonoNs, cpu: CpuId) -> Span {
    Span { track: Track::Inside(cpu), from, to, name, details: Vec::new() }
}

/// Whether `end` matches `begun`.
fn ends(begun: &EventKind, end: &EventKind) -> bool {
    match (begun, end) {
        (EventKind::VectorEntry(one), EventKind::VectorExit(other)) => one == other,
        (EventKind::IrqEntry { irq: one, .. }, EventKind::IrqExit { irq: other }) => one == other,
        (EventKind::SoftirqEntry { vec: one }, EventKind::SoftirqExit { vec: other }) => one == other,
        (EventKind::TimerFire { timer: one, .. }, EventKind::TimerFired { timer: other }) => one == other,
        (EventKind::WorkStart { .. }, EventKind::WorkEnd) => true,
        _ => false,
    }
}

/// A kernel priority in words.
fn class(prio: i32) -> String {
    crate::explain::class(prio)
}
