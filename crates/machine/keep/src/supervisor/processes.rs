//! The plant's processes: the state machine's state and the supervisor's own data of each.

use super::connection::Connection;
use super::incidents::Incident;
use super::inputs;
use super::probe;
use super::pulses::{Pulses, ReportedValue};
use super::reporter::Reporter;
use super::safe_output::SafeOutputRuns;
use super::watch::Watched;
use crate::keeper::protocol::{ChildId, ExitRecord};
use crate::page::{Page, PageError};
use base::{DurNs, MonoNs, ResultDeadline, Tally};
use host::plant::{Plant, Process, ReadyCondition};
use host::supervise::{Event, Id, State, Supervision, Unit};
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut, Range};
use std::path::Path;
use sys::clock::mono_now;

/// All processes, indexed by their ids.
#[derive(Debug)]
pub(crate) struct Processes {
    /// The state machine: events in, actions out.
    pub(crate) all: Supervision,
    each: Vec<Supervised>,
}

impl Processes {
    pub(crate) fn new(all: Supervision) -> Self {
        let mut processes = Self { all, each: Vec::new() };
        processes.fit();
        processes
    }

    /// Passes an event to the state machine.
    pub(crate) fn event(&mut self, event: Event) {
        self.all.handle(mono_now(), event);
    }

    /// Applies a changed plant file.
    pub(crate) fn reload(&mut self, now: MonoNs, old: &Plant, new: &Plant) {
        self.all.reload(now, old, new);
        self.fit();
    }

    /// Adds a running process that is not in the plant file.
    pub(crate) fn stray(&mut self, name: &str) -> Id {
        let id = self.all.stray(name);
        self.fit();
        id
    }

    /// Adds empty entries for new processes.
    fn fit(&mut self) {
        self.each.resize_with(self.all.units().len(), Supervised::default);
    }

    pub(crate) fn ids(&self) -> Range<Id> {
        0..self.each.len()
    }

    pub(crate) fn unit(&self, id: Id) -> &Unit {
        &self.all.units()[id]
    }

    pub(crate) fn name(&self, id: Id) -> &str {
        &self.unit(id).spec.name
    }

    pub(crate) fn state(&self, id: Id) -> State {
        self.unit(id).state
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Unit, &Supervised)> {
        self.all.units().iter().zip(&self.each)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Unit, &mut Supervised)> {
        self.all.units().iter().zip(&mut self.each)
    }

    /// Whether background work on the keeper of this process is running, or on that of a previous process with the same
    /// name.
    pub(crate) fn is_busy(&self, id: Id) -> bool {
        self.iter().any(|(unit, one)| one.link.is_busy() && unit.spec.name == self.name(id))
    }

    /// List of the processes that are still running while the plant goes down, with the time until SIGKILL.
    pub(crate) fn departures(&self, now: MonoNs) -> String {
        let alive = self.ids().filter(|id| self.state(*id).is_alive());
        let word = |id: Id| match self.all.killed_at(id) {
            Some(at) => {
                format!("{} (SIGKILL in {} s)", self.name(id), ((at - now).0.max(0) + 999_999_999) / 1_000_000_000)
            }
            None => format!("{} (waits for those)", self.name(id)),
        };
        let words: Vec<String> = alive.map(word).collect();
        if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
    }
}

impl Index<Id> for Processes {
    type Output = Supervised;

    fn index(&self, id: Id) -> &Supervised {
        &self.each[id]
    }
}

impl IndexMut<Id> for Processes {
    fn index_mut(&mut self, id: Id) -> &mut Supervised {
        &mut self.each[id]
    }
}

/// The supervisor's own data of a process, in addition to the state machine's.
#[derive(Debug, Default)]
pub(crate) struct Supervised {
    /// Connection to its keeper.
    pub(crate) link: Connection,
    pub(crate) child: Option<ChildId>,
    /// Settings that it requested but did not get.
    pub(crate) shortfalls: Vec<String>,
    pub(crate) exit: Option<ExitRecord>,
    /// Last line of output before its last end.
    pub(crate) last_line: Option<String>,
    /// Its loop page, if it may have a loop.
    pub(crate) page: Option<Page>,
    /// Pulses of its earlier lives.
    past: Pulses,
    /// Minor frames of its current life, if it is a frame.
    pub(crate) minors: Option<Pulses>,
    /// Value of the results of its earlier lives.
    past_value: Tally,
    /// Reported value of the results of its current life.
    pub(crate) told_value: Option<ReportedValue>,
    /// Fault that it reported in its current life.
    pub(crate) trouble: Option<String>,
    /// Its last status (`STATUS=`) in its current life.
    pub(crate) status_text: Option<String>,
    /// Number of reports of its working loop, if it is a service of tahti.
    pub(crate) rounds: u64,
    /// Bytes of its output that its keeper could not write to the log.
    pub(crate) log_bytes_lost: u64,
    /// Missed hard deadlines at the last check, and the time of the last report.
    pub(crate) hard: HardMisses,
    /// The guard's data of it.
    pub(crate) watch: Watched,
    /// Runs of its safe-output command.
    pub(crate) safe_outputs: SafeOutputRuns,
    /// Its current or last incident.
    pub(crate) incident: Incident,
    /// Version of its alarm file at the beginning of its life.
    pub(crate) input: inputs::Version,
    /// Signs of readiness that existed before it was started.
    before: Before,
}

/// Missed hard deadlines of a process.
#[derive(Debug, Default)]
pub(crate) struct HardMisses {
    seen: Option<u64>,
    told: Option<MonoNs>,
}

/// Minimum time between reports of missed hard deadlines: a loop may miss thousands per second.
const HARD_EVERY: DurNs = DurNs::from_secs(1);

impl HardMisses {
    /// Updates the number. Returns whether the misses must be reported.
    pub(crate) fn look(&mut self, now: MonoNs, missed: u64) -> bool {
        // Misses from before this supervisor started were reported by the previous one.
        let seen = *self.seen.get_or_insert(missed);
        let tell = missed > seen && self.told.is_none_or(|at| now - at >= HARD_EVERY);
        if tell {
            (self.seen, self.told) = (Some(missed), Some(now));
        }
        tell
    }

    /// Starts a new life, which has no misses yet.
    pub(crate) fn begin_life(&mut self) {
        self.seen = Some(0);
    }
}

/// Signs of readiness that do not count, because they existed before the start.
#[derive(Debug, Default)]
struct Before {
    /// Identity of the file.
    file: Option<probe::FileId>,
    /// Inodes of the sockets that listened on the port.
    listeners: BTreeSet<u64>,
}

impl Supervised {
    /// The pulses of all its lives.
    pub(crate) fn pulses(&self) -> Pulses {
        let page = self.page.as_ref().and_then(Page::status);
        let page = page.map(|page| Pulses { ran: page.cycles, given_up: page.misses, overran: 0 });
        [page, self.minors].into_iter().flatten().fold(self.past, Pulses::plus)
    }

    /// The value of the results of all its lives; `None` if it has no deadline.
    pub(crate) fn value(&self) -> Option<Tally> {
        let page = self.page.as_ref().and_then(Page::tally);
        let told = self.told_value.map(|told| told.tally);
        let has = page.is_some() || told.is_some() || self.past_value != Tally::default();
        has.then(|| [page, told].into_iter().flatten().fold(self.past_value, Tally::plus))
    }

    /// Number of hard deadlines missed in this life; `None` if it has none.
    pub(crate) fn hard_misses(&self, now: MonoNs) -> Option<u64> {
        let page = self.page.as_ref().and_then(|page| page.hard_misses(now));
        page.or(self.told_value.map(|told| told.hard))
    }

    /// Begins a new life: adds the minor frames and result values of the previous one to the totals.
    pub(crate) fn close_minors(&mut self) {
        (self.trouble, self.status_text) = (None, None);
        self.past = self.minors.take().map_or(self.past, |minors| self.past.plus(minors));
        if let Some(told) = self.told_value.take() {
            self.past_value = self.past_value.plus(told.tally);
        }
    }

    /// The descriptor of its loop page, cleared for a new life, with the deadline of its results.
    ///
    /// # Errors
    /// The page cannot be created or cleared.
    pub(crate) fn fresh_page(&mut self, deadline: Option<ResultDeadline>) -> Result<i32, PageError> {
        self.past = self.pulses();
        self.past_value = self.past_value.plus(self.page.as_ref().and_then(Page::tally).unwrap_or_default());
        self.hard.begin_life();
        let page = match self.page.take() {
            // Clear the data of the previous life.
            Some(page) => page.clear()?,
            None => {
                // The current keeper holds another page, so it cannot be reused.
                self.link.replace_keeper();
                Page::create()?
            }
        };
        page.set_deadline(deadline);
        Ok(self.page.insert(page).fd())
    }

    /// Whether the file or port that signals readiness has appeared. Such signs are polled, because no event announces them.
    pub(crate) fn looks_ready(&self, process: &Process, dir: &Path) -> bool {
        match &process.ready.when {
            ReadyCondition::File(file) => {
                let found = probe::file_id(&dir.join(file));
                found.is_some() && found != self.before.file
            }
            ReadyCondition::Port(port) => !probe::listeners(*port).is_subset(&self.before.listeners),
            ReadyCondition::Started | ReadyCondition::Line(_) | ReadyCondition::Notify => false,
        }
    }

    /// Records the signs of readiness that exist before the start, and reports them.
    pub(crate) fn look_before(&mut self, process: &Process, dir: &Path, tell: &mut Reporter) {
        self.before = Before::default();
        let text = match &process.ready.when {
            ReadyCondition::File(file) => {
                let path = dir.join(file);
                self.before.file = probe::file_id(&path);
                let is_there = self.before.file.is_some();
                is_there.then(|| {
                    format!("{} exists already: the process is ready once it writes the file again", path.display())
                })
            }
            ReadyCondition::Port(port) => {
                self.before.listeners = probe::listeners(*port);
                let is_there = !self.before.listeners.is_empty();
                is_there
                    .then(|| format!("another process already listens on port {port}: that does not count as ready"))
            }
            ReadyCondition::Started | ReadyCondition::Line(_) | ReadyCondition::Notify => None,
        };
        if let Some(text) = text {
            tell.warning(mono_now(), &process.name, &text);
        }
    }
}
