//! Breakpoints: lock sets whose processing stops at a record, as C's `dbb` has it.
//!
//! What would process a record of such a lock set notes it as an entry point and goes on with other things. Entry points
//! are processed by [`Db::run_stops`], on a thread of their own, to which the database's owner lends the database. At a
//! record with a breakpoint the hook is called with the database, deep in the processing: it gives the database back to its
//! owner, keeps its own stack, and returns when it is lent the database again. So the owner never waits for the person at
//! the breakpoint, and other lock sets go on.
//!
//! Records of such lock sets have a mark among their rare fields, so that others pay nothing: what looks whether rare fields
//! rest was there before.

use crate::model::id::RecId;
use crate::run::engine::{Db, Now, Pass};
use base::Stamp;

/// Mark of a record: it has a breakpoint.
pub(crate) const BREAK: u8 = 1;
/// It is printed after it was processed.
pub(crate) const PRINT: u8 = 2;
/// Its lock set has breakpoints, or had and is not through yet.
pub(crate) const STOPS: u8 = 4;
/// Processing goes on from where it stood before it.
const PASSES: u8 = 8;

/// Whether a record with these marks is to be processed by [`Db::process_stoppable`].
pub(crate) const fn stops(marks: u8) -> bool {
    marks & (STOPS | PASSES) == STOPS
}

/// Why the hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Processing stands before a record, on its way from an entry point.
    At {
        /// The record.
        record: RecId,
        /// Where processing began.
        entry: RecId,
    },
    /// A record that is to be printed was processed.
    Print(RecId),
}

/// Is called with the database where processing stops, and returns when it is to go on, with the time.
pub type Hook = Box<dyn FnMut(&mut Db, Stop) -> Now + Send>;

/// A record from which a lock set with breakpoints is processed.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The record.
    pub record: RecId,
    /// How often it was to be processed.
    pub count: u64,
    /// When it was for the first time.
    pub since: Stamp,
    waits: bool,
}

/// A lock set with breakpoints.
#[derive(Clone, Debug)]
pub struct StopSet {
    /// Its number among the lock sets.
    pub number: u32,
    /// Records with breakpoints, in the order in which they were set.
    pub breaks: Vec<RecId>,
    /// Where its processing begins.
    pub entries: Vec<Entry>,
    /// The record before which its processing stands.
    pub stopped: Option<RecId>,
    /// Sorted.
    members: Vec<RecId>,
    steps: bool,
    entry: RecId,
}

/// All lock sets with breakpoints, the one that stopped last first.
#[derive(Default)]
pub(crate) struct Stops {
    sets: Vec<StopSet>,
    /// The set that is being processed by [`Db::run_stops`].
    inside: Option<u32>,
    hook: Option<Hook>,
}

impl Stops {
    fn of(&mut self, rec: RecId) -> Option<&mut StopSet> {
        self.sets.iter_mut().find(|set| set.members.binary_search(&rec).is_ok())
    }
}

impl Db {
    /// The lock sets with breakpoints, the one that stopped last first.
    pub fn stop_sets(&self) -> &[StopSet] {
        self.stops.as_ref().map_or(&[], |stops| &stops.sets)
    }

    /// The lock set with breakpoints to which a record belongs.
    #[must_use]
    pub fn stop_set_of(&self, record: RecId) -> Option<&StopSet> {
        self.stop_sets().iter().find(|set| set.members.binary_search(&record).is_ok())
    }

    /// Whether a record has a breakpoint (1), is printed after processing (2), or both: the field BKPT.
    #[must_use]
    pub fn break_marks(&self, record: RecId) -> u8 {
        self.records[record].rare.marks & (BREAK | PRINT)
    }

    /// Sets a breakpoint; the number of its lock set, where that is the first there. Whether there was none yet.
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

    /// Removes a breakpoint; whether there was one. Without any, a lock set goes on as others do once it is through.
    pub fn clear_break(&mut self, record: RecId) -> bool {
        let had = self.break_marks(record) & BREAK != 0;
        self.mark(record, BREAK, false);
        if let Some(set) = self.stops.as_mut().and_then(|stops| stops.of(record)) {
            set.breaks.retain(|other| *other != record);
        }
        had
    }

    /// Has a record printed after processing, while its lock set has breakpoints, or not any more; whether it is now.
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

    /// Has a lock set that stands go on to its next breakpoint, or to its next record; [`run_stops`](Self::run_stops) or the
    /// hook goes on then.
    pub fn go_on(&mut self, number: u32, step: bool) {
        let sets = self.stops.iter_mut().flat_map(|stops| &mut stops.sets);
        sets.filter(|set| set.number == number).for_each(|set| set.steps &= step);
    }

    /// A lock set that is to be run: it does not stand, and something of it is to be processed, or its last breakpoint is
    /// gone.
    #[inline]
    #[must_use]
    pub fn stop_due(&self) -> Option<u32> {
        let sets = &self.stops.as_ref()?.sets;
        let due = |set: &&StopSet| {
            set.stopped.is_none() && (set.breaks.is_empty() || set.entries.iter().any(|entry| entry.waits))
        };
        sets.iter().find(due).map(|set| set.number)
    }

    /// Processes the entry points of a lock set with breakpoints, those that come meanwhile included. Gives the hook back,
    /// and whether the lock set has no breakpoints any more: then it is as others.
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
                // What came while it was processed counts as done, as in C.
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

    /// Notes an entry point where a record is processed from outside; `None` where it is being stepped through.
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

    /// Whether a record that is active is not to be told that it was asked for once more.
    pub(crate) fn is_held(&mut self, rec: RecId) -> bool {
        let common = &self.records[rec];
        if common.disa == common.disv {
            return false;
        }
        let _ = self.hold(rec);
        true
    }

    /// Whether a record is an entry point that is still to be processed.
    pub(crate) fn waits(&self, rec: RecId) -> bool {
        let set = self.stop_set_of(rec);
        set.is_some_and(|set| set.entries.iter().any(|entry| entry.record == rec && entry.waits))
    }

    /// As `process_one`, for a record whose lock set has breakpoints.
    #[cold]
    pub(crate) fn process_stoppable(&mut self, rec: RecId) -> Option<RecId> {
        if !self.records[rec].rare.sdis.is_constant() {
            self.read_sdis(rec);
        }
        let common = &self.records[rec];
        // A record that is disabled neither stops nor waits, nor is it printed.
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

    /// Stops before a record with a breakpoint, or while its lock set is stepped through.
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

    /// Meanwhile the owner may have the database: what belongs to this stack is set aside.
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
