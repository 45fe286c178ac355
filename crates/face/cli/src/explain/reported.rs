//! Events that the watched programs themselves report.

use base::MonoNs;
use rt::ProgramEvents;
use std::collections::{BTreeMap, BTreeSet};
use std::thread::JoinHandle;
use trace::{Name, ProgramEvent};

/// Events of processes, by process.
type Opened = Vec<(i32, ProgramEvents)>;

/// The processes whose events are read.
pub(crate) struct Reported {
    /// Earlier events are ignored.
    since: MonoNs,
    open: BTreeMap<i32, ProgramEvents>,
    /// Thread that opens events. A stopped process answers late, while the kernel's buffers fill.
    opening: Option<JoinHandle<Opened>>,
    /// Lost events of processes that have ended.
    lost_before: u64,
}

impl Reported {
    pub(crate) fn since(since: MonoNs) -> Self {
        Self { since, open: BTreeMap::new(), opening: None, lost_before: 0 }
    }

    /// Starts to open the events of these processes, and closes those of others. A process without events is tried again by the next call.
    pub(crate) fn search(&mut self, pids: &BTreeSet<i32>) {
        self.take_opened();
        let lost = &mut self.lost_before;
        self.open.retain(|pid, events| {
            let is_kept = pids.contains(pid) && events.is_alive();
            *lost += if is_kept { 0 } else { events.lost() };
            is_kept
        });
        let missing: Vec<i32> = pids.iter().filter(|pid| !self.open.contains_key(pid)).copied().collect();
        if self.opening.is_none() && !missing.is_empty() {
            let open = |pid| ProgramEvents::open(pid).ok().map(|events| (pid, events));
            self.opening = Some(std::thread::spawn(move || missing.into_iter().filter_map(open).collect()));
        }
    }

    fn take_opened(&mut self) {
        if self.opening.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(Ok(opened)) = self.opening.take().map(JoinHandle::join)
        {
            self.open.extend(opened);
        }
    }

    /// The new events, in order of time.
    pub(crate) fn read(&mut self) -> Vec<ProgramEvent> {
        self.take_opened();
        let mut all = Vec::new();
        for events in self.open.values_mut() {
            events.read(|event| {
                if event.at >= self.since {
                    let name = Name(event.name).to_string();
                    all.push(ProgramEvent { at: event.at, cpu: event.cpu, tid: event.tid, name, value: event.value });
                }
            });
        }
        all.sort_by_key(|event| event.at);
        all
    }

    /// Number of events that were overwritten before they were read.
    pub(crate) fn lost(&self) -> u64 {
        self.open.values().fold(self.lost_before, |sum, events| sum.saturating_add(events.lost()))
    }
}
