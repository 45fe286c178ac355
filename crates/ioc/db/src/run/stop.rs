//! Breakpoints, like `dbb` in C: the processing of a lock set stops at a record.
//!
//! An attempt to process a record of such a lock set is stored as an entry point, and the caller continues. [`Db::run_stops`]
//! processes the entry points on a separate thread, to which the database's owner lends the database. At a breakpoint it
//! calls the hook with the database, deep inside the processing. The hook returns the database to its owner but keeps its
//! stack. It returns to the processing when it gets the database again. So the owner never waits for the operator, and other
//! lock sets keep running.
//!
//! Records of such lock sets have marks among their rare fields. Other records have no extra cost, because the test for
//! unallocated rare fields exists anyway.

use crate::model::id::RecId;
use crate::run::engine::{Db, Now, Pass};
use base::Stamp;

/// Mark of a record with a breakpoint.
pub(crate) const BREAK: u8 = 1;
/// Mark of a record that is printed after processing.
pub(crate) const PRINT: u8 = 2;
/// Mark of a record whose lock set has breakpoints, or had and has not finished yet.
pub(crate) const STOPS: u8 = 4;
/// Mark of a record whose processing continues after a stop.
const PASSES: u8 = 8;

/// Whether a record with these marks must be processed by [`Db::process_stoppable`].
pub(crate) const fn stops(marks: u8) -> bool {
    marks & (STOPS | PASSES) == STOPS
}

/// Reason for calling the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Processing stopped before a record.
    At {
        /// The record.
        record: RecId,
        /// The entry point at which processing began.
        entry: RecId,
    },
    /// A record with the print mark was processed.
    Print(RecId),
}

/// Called with the database when processing stops. It returns the current time when processing is to continue.
pub type Hook = Box<dyn FnMut(&mut Db, Stop) -> Now + Send>;

/// A record at which the processing of a lock set with breakpoints begins.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record.
    pub record: RecId,
    /// Number of attempts to process it.
    pub count: u64,
    /// Time of the first attempt.
    pub since: Stamp,
    waits: bool,
}

/// A lock set with breakpoints.
#[derive(Clone, Debug)]
pub struct StopSet {
    /// Its number among all lock sets.
    pub number: u32,
    /// Records with breakpoints, in the order in which they were set.
    pub breaks: Vec<RecId>,
    /// Entry points of its processing.
    pub entries: Vec<Entry>,
    /// The record before which processing is stopped.
    pub stopped: Option<RecId>,
    /// Records of the lock set, sorted.
    members: Vec<RecId>,
    steps: bool,
    entry: RecId,
}

/// All lock sets with breakpoints. The one that stopped last is first.
#[derive(Default)]
pub(crate) struct Stops {
    sets: Vec<StopSet>,
    /// Number of the set being processed by [`Db::run_stops`].
    inside: Option<u32>,
    hook: Option<Hook>,
}

impl Stops {
    fn of(&mut self, rec: RecId) -> Option<&mut StopSet> {
        self.sets.iter_mut().find(|set| set.members.binary_search(&rec).is_ok())
    }
}

impl Db {
    /// All lock sets with breakpoints. The one that stopped last is first.
    pub fn stop_sets(&self) -> &[StopSet] {
        self.stops.as_ref().map_or(&[], |stops| &stops.sets)
    }

    /// The lock set of a record, if it has breakpoints.
    #[must_use]
    pub fn stop_set_of(&self, record: RecId) -> Option<&StopSet> {
        self.stop_sets().iter().find(|set| set.members.binary_search(&record).is_ok())
    }

    /// Whether a record has a breakpoint (1), is printed after processing (2), or both (3): the field BKPT.
    #[must_use]
    pub fn break_marks(&self, record: RecId) -> u8 {
        self.records[record].rare.marks & (BREAK | PRINT)
    }

    /// Sets a breakpoint. Returns whether it is new, and the number of its lock set if it is the first breakpoint there.
    pub fn set_break(&mut self, record: RecId) -> (bool, Option<u32>) {
        if self.break_marks(record) & BREAK != 0 {
            return (false, None);
        }
        self.records[record].rare.marks |= BREAK;
        if let Some(set) = self.stops.as_mut().and_then(|stops| stops.of(record)) {
            set.breaks.push(record);
            return (true, None);
        }
        let sets = self.lock_set_members();
        let found = sets.into_iter().zip(1..).find(|(members, _)| members.contains(&record));
        let (mut members, number) = found.unwrap_or_else(|| (vec![record], 0));
        members.sort_unstable();
        members.iter().for_each(|member| self.records[*member].rare.marks |= STOPS);
        let set = StopSet {
            number,
            breaks: vec![record],
            entries: Vec::new(),
            stopped: None,
            members,
            steps: false,
            entry: record,
        };
        self.stops.get_or_insert_default().sets.push(set);
        (true, Some(number))
    }

    /// Removes a breakpoint. Returns whether it existed. A lock set without breakpoints returns to normal once it has
    /// finished.
    pub fn clear_break(&mut self, record: RecId) -> bool {
        let had = self.break_marks(record) & BREAK != 0;
        self.mark(record, BREAK, false);
        if let Some(set) = self.stops.as_mut().and_then(|stops| stops.of(record)) {
            set.breaks.retain(|other| *other != record);
        }
        had
    }

    /// Toggles printing of a record after processing, which takes effect while its lock set has breakpoints. Returns the new
    /// state.
    pub fn toggle_print(&mut self, record: RecId) -> bool {
        let on = self.break_marks(record) & PRINT == 0;
        self.mark(record, PRINT, on);
        on
    }

    fn mark(&mut self, rec: RecId, mark: u8, on: bool) {
        let rare = &mut self.records[rec].rare;
        if on {
            rare.marks |= mark;
        } else if !rare.rests() {
            rare.marks &= !mark;
            rare.settle();
        }
    }

    /// Lets a stopped lock set continue to its next breakpoint, or with `step` to its next record.
    /// [`run_stops`](Self::run_stops) or the hook must then continue.
    pub fn go_on(&mut self, number: u32, step: bool) {
        let sets = self.stops.iter_mut().flat_map(|stops| &mut stops.sets);
        sets.filter(|set| set.number == number).for_each(|set| set.steps &= step);
    }

    /// Number of a lock set to be run by [`run_stops`](Self::run_stops): it is not stopped, and it has an entry point to
    /// process or no breakpoints left.
    #[inline]
    #[must_use]
    pub fn stop_due(&self) -> Option<u32> {
        let sets = &self.stops.as_ref()?.sets;
        let due = |set: &&StopSet| {
            set.stopped.is_none() && (set.breaks.is_empty() || set.entries.iter().any(|entry| entry.waits))
        };
        sets.iter().find(due).map(|set| set.number)
    }

    /// Processes the entry points of a lock set with breakpoints, including those added meanwhile. Returns the hook, and
    /// whether the lock set has no breakpoints left and is back to normal.
    pub fn run_stops(&mut self, number: u32, now: Now, hook: Hook) -> (Option<Hook>, bool) {
        self.time.now = now;
        if let Some(stops) = &mut self.stops {
            stops.hook = Some(hook);
            stops.inside = Some(number);
        }
        let mut next = 0;
        while let Some(set) = self.set(number) {
            let Some(entry) = set.entries.get(next) else { break };
            let (rec, waits) = (entry.record, entry.waits);
            if waits {
                set.entry = rec;
                self.run(rec);
            }
            if let Some(set) = self.set(number) {
                set.steps &= !waits;
                set.stopped = None;
                // Attempts during the processing count as done, as in C.
                if let Some(entry) = set.entries.get_mut(next) {
                    entry.waits = false;
                }
            }
            next += 1;
        }
        let ended = self.set(number).is_none_or(|set| set.breaks.is_empty());
        let members = if ended { self.set(number).map(|set| std::mem::take(&mut set.members)) } else { None };
        members.into_iter().flatten().for_each(|member| self.mark(member, STOPS, false));
        let mut hook = None;
        if let Some(stops) = &mut self.stops {
            stops.inside = None;
            hook = stops.hook.take();
            stops.sets.retain(|set| !ended || set.number != number);
        }
        self.stops.take_if(|stops| stops.sets.is_empty());
        (hook, ended)
    }

    fn set(&mut self, number: u32) -> Option<&mut StopSet> {
        self.stops.as_mut()?.sets.iter_mut().find(|set| set.number == number)
    }

    /// Stores an entry point if a record is processed from outside; `None` if the set is being processed by
    /// [`Db::run_stops`].
    fn hold(&mut self, rec: RecId) -> Option<()> {
        let wall = self.time.now.wall;
        let is_active = self.records[rec].pact != 0;
        let stops = self.stops.as_mut()?;
        let inside = stops.inside;
        let set = stops.of(rec).filter(|set| inside != Some(set.number))?;
        let at = set.entries.iter().position(|entry| entry.record == rec).unwrap_or_else(|| {
            set.entries.push(Entry { record: rec, count: 0, since: wall, waits: false });
            set.entries.len() - 1
        });
        let entry = &mut set.entries[at];
        entry.count = entry.count.saturating_add(1);
        entry.waits |= !is_active;
        Some(())
    }

    /// Whether an attempt to process an active record is stored as an entry point instead of being counted.
    pub(crate) fn is_held(&mut self, rec: RecId) -> bool {
        let common = &self.records[rec];
        if common.disa == common.disv {
            return false;
        }
        let _ = self.hold(rec);
        true
    }

    /// Whether a record is an entry point that has not been processed yet.
    pub(crate) fn waits(&self, rec: RecId) -> bool {
        let set = self.stop_set_of(rec);
        set.is_some_and(|set| set.entries.iter().any(|entry| entry.record == rec && entry.waits))
    }

    /// Like `process_one`, for a record whose lock set has breakpoints.
    #[cold]
    pub(crate) fn process_stoppable(&mut self, rec: RecId) -> Option<RecId> {
        if !self.records[rec].rare.sdis.is_constant() {
            self.read_sdis(rec);
        }
        let common = &self.records[rec];
        // A disabled record does not stop or wait, and is not printed.
        let enabled = common.disa != common.disv;
        if enabled {
            if self.hold(rec).is_some() {
                return None;
            }
            self.stop_before(rec);
            if self.records[rec].pact != 0 {
                return None;
            }
        }
        self.mark(rec, PASSES, true);
        let next = self.process_one(rec, false);
        self.mark(rec, PASSES, false);
        if !enabled || self.break_marks(rec) & PRINT == 0 {
            return next;
        }
        let failed = self.pass.failed;
        if let Some(next) = next {
            self.follow(rec, next);
        }
        self.call_hook(Stop::Print(rec));
        self.pass.failed = failed;
        None
    }

    /// Stops before a record with a breakpoint, or before each record in single-step mode.
    fn stop_before(&mut self, rec: RecId) {
        let breaks = self.records[rec].rare.marks & BREAK != 0;
        let Some(stops) = &mut self.stops else { return };
        let Some(at) = stops.sets.iter().position(|set| set.members.binary_search(&rec).is_ok()) else { return };
        stops.sets[at].steps |= breaks;
        if !stops.sets[at].steps {
            return;
        }
        let mut set = stops.sets.remove(at);
        set.stopped = Some(rec);
        let entry = set.entry;
        stops.sets.insert(0, set);
        self.call_hook(Stop::At { record: rec, entry });
    }

    /// Calls the hook. The owner may use the database during the call, so this stack's processing state is saved and
    /// restored.
    fn call_hook(&mut self, stop: Stop) {
        let Some((mut hook, inside)) = self.stops.as_mut().and_then(|stops| stops.hook.take().zip(stops.inside.take()))
        else {
            return;
        };
        let pass = std::mem::take(&mut self.pass);
        self.time.now = hook(self, stop);
        self.pass = Pass { failed: false, ..pass };
        if let Some(stops) = &mut self.stops {
            stops.hook = Some(hook);
            stops.inside = Some(inside);
        }
    }
}
