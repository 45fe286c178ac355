//! Scan lists: periodic, event, and interrupt sources. [`Db::advance`] processes the records of events and sources.

use crate::model::id::RecId;
use crate::rec::message::Message as AlarmMessage;
use crate::run::callback::Callbacks;
use crate::run::engine::{Db, Now};
use base::{Alarm, DurNs, Stamp, Str40, Value};
use std::collections::{HashMap, VecDeque};

/// A periodic scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Number in menuScan, for [`Db::scan`].
    pub index: u16,
    /// Choice text in menuScan.
    pub name: String,
    /// Period.
    pub period: DurNs,
    /// Number of records with this scan.
    pub records: usize,
}

/// Number of an interrupt source, to which device supports post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// A sample from an interrupt source or device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSample {
    /// The value; `None` if it is unavailable, or after a write.
    pub value: Option<Value>,
    /// Its alarm.
    pub alarm: Alarm,
    /// Message of the alarm (AMSG).
    pub message: AlarmMessage,
    /// Time of the sample: the record's stamp if its TSE is −2.
    pub stamp: Stamp,
    /// The record's UTAG: number of the pulse of the sample, or 0.
    pub tag: u64,
}

/// A signal for all databases of an IOC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// An event was posted.
    Event(Str40),
    /// A state was set or cleared.
    State(Str40, bool),
}

/// Maximum number of signals waiting for the other databases.
const SIGNALS_MAX: usize = 1_024;

/// Number of priorities (PRIO): low, medium, high.
pub(crate) const PRIORITIES: usize = 3;

/// Records processed by one event or source: one list per PRIO, each sorted by PHAS.
pub(crate) type Group = [Vec<RecId>; PRIORITIES];

/// All scan lists.
#[derive(Default)]
pub(crate) struct Scans {
    /// Periodic scan lists by number in menuScan, each sorted by PHAS.
    lists: Vec<Vec<RecId>>,
    /// Event and I/O Intr groups, by number.
    pub(crate) groups: Vec<Group>,
    events: HashMap<Vec<u8>, u32>,
    sources: HashMap<Vec<u8>, u32>,
    /// Interrupt source of each record whose device support has one.
    listens: HashMap<RecId, u32>,
    /// Last sample of each source, by group number.
    fed: Vec<Option<DeviceSample>>,
    /// Whether a group is being walked. `left` has the records that left their group during the walk.
    pub(crate) walking: bool,
    pub(crate) left: Vec<RecId>,
    pub(crate) callbacks: Callbacks,
    /// Whether records with unknown event times are stamped with the wall clock.
    pub(crate) last_resort: bool,
    /// Signals for the other databases of the IOC; `None` if there are none.
    signals: Option<VecDeque<Signal>>,
}

impl Scans {
    /// Interrupt source of a record.
    pub(crate) fn source_of(&self, rec: RecId) -> Option<SourceId> {
        self.listens.get(&rec).copied().map(SourceId)
    }

    /// Last sample of a record's source.
    pub(crate) fn fed_to(&self, rec: RecId) -> Option<&DeviceSample> {
        let group = self.listens.get(&rec)?;
        self.fed.get(*group as usize)?.as_ref()
    }

    fn new_group(&mut self) -> u32 {
        self.groups.push(Group::default());
        self.fed.push(None);
        self.groups.len() as u32 - 1
    }
}

/// Normalized name of an event: without surrounding blanks, and a number without its fraction, as in EPICS.
pub(crate) fn event_name(text: &[u8]) -> Option<Vec<u8>> {
    let name = text.trim_ascii();
    if name.is_empty() {
        return None;
    }
    if let Some((number, len)) = base::text::parse_double(name)
        && len == name.len()
        && (0.0..256.0).contains(&number)
    {
        let number = number as u32;
        return (number > 0).then(|| number.to_string().into_bytes());
    }
    Some(name.to_vec())
}

/// Period of a menuScan choice, such as `.1 second`, `5 Hz`, `2 minutes`.
pub(crate) fn period(choice: &str) -> Option<DurNs> {
    let (number, len) = base::text::parse_double(choice.trim().as_bytes())?;
    let unit = choice.trim()[len..].trim().to_ascii_lowercase();
    let seconds = match unit.as_str() {
        "second" | "seconds" => number,
        "minute" | "minutes" => number * 60.0,
        "hour" | "hours" => number * 3600.0,
        "hz" | "hertz" if number > 0.0 => 1.0 / number,
        _ => return None,
    };
    (seconds > 0.0 && seconds < 1e9).then(|| DurNs((seconds * 1e9).round() as i64))
}

const PASSIVE: u16 = 0;
const EVENT: u16 = 1;
pub(crate) const IO_INTR: u16 = 2;

impl Db {
    /// The periodic scans in menuScan order.
    #[must_use]
    pub fn scans(&self) -> Vec<Scan> {
        let choices =
            self.records.schema.menu_index("menuScan").map_or(&[][..], |menu| &self.records.schema.menus[menu].choices);
        choices
            .iter()
            .enumerate()
            .skip(3)
            .filter_map(|(index, name)| {
                let records = self.scanned(index as u16);
                Some(Scan { index: index as u16, name: name.clone(), period: period(name)?, records })
            })
            .collect()
    }

    /// Number of records in a periodic scan.
    #[must_use]
    pub fn scanned(&self, index: u16) -> usize {
        self.scans.lists.get(usize::from(index)).map_or(0, Vec::len)
    }

    /// Records of a periodic scan in processing order.
    #[must_use]
    pub fn scan_list(&self, index: u16) -> Vec<RecId> {
        self.scans.lists.get(usize::from(index)).map_or_else(Vec::new, |list| list.clone())
    }

    /// Event names and their records, higher PRIO first.
    pub fn event_lists(&self) -> impl Iterator<Item = (&str, Vec<RecId>)> + '_ {
        self.groups_of(&self.scans.events)
    }

    /// Interrupt source names and their I/O Intr records, higher PRIO first.
    pub fn source_lists(&self) -> impl Iterator<Item = (&str, Vec<RecId>)> + '_ {
        self.groups_of(&self.scans.sources)
    }

    fn groups_of<'a>(&'a self, names: &'a HashMap<Vec<u8>, u32>) -> impl Iterator<Item = (&'a str, Vec<RecId>)> + 'a {
        names.iter().map(|(name, group)| {
            let lists = self.scans.groups[*group as usize].iter().rev();
            (std::str::from_utf8(name).unwrap_or_default(), lists.flatten().copied().collect())
        })
    }

    /// Runs one pass of a periodic scan.
    pub fn scan(&mut self, index: u16, now: Now) {
        self.time.now = now;
        let index = usize::from(index);
        let Some(list) = self.scans.lists.get_mut(index).map(std::mem::take) else { return };
        for rec in &list {
            if usize::from(self.records[*rec].scan) == index {
                self.run(*rec);
            }
        }
        // Records added during the pass are in the new list.
        let added = std::mem::replace(&mut self.scans.lists[index], list);
        self.scans.lists[index].retain(|rec| usize::from(self.records[*rec].scan) == index && !added.contains(rec));
        for rec in added {
            self.insert_by_phase(index, rec);
        }
    }

    fn insert_by_phase(&mut self, index: usize, rec: RecId) {
        let phase = self.records[rec].phas;
        let common = &self.records.common;
        let list = &mut self.scans.lists[index];
        let at = list.partition_point(|other| common[*other].phas <= phase);
        list.insert(at, rec);
    }

    /// Inserts a record into the list that its SCAN selects.
    pub(crate) fn scan_add(&mut self, rec: RecId) {
        if !self.start.running {
            return;
        }
        let common = &self.records[rec];
        let scan = common.scan;
        match scan {
            PASSIVE => {}
            EVENT => {
                let Some(name) = event_name(common.rare.evnt.bytes()) else { return };
                let group = match self.scans.events.get(&name) {
                    Some(group) => *group,
                    None => {
                        let group = self.scans.new_group();
                        self.scans.events.insert(name, group);
                        group
                    }
                };
                self.join_group(group, rec);
            }
            IO_INTR => match self.scans.listens.get(&rec) {
                Some(group) => self.join_group(*group, rec),
                None => self.refuse_interrupts(rec),
            },
            index => {
                let index = usize::from(index);
                if self.scans.lists.len() <= index {
                    self.scans.lists.resize(index + 1, Vec::new());
                }
                self.insert_by_phase(index, rec);
            }
        }
    }

    /// Changes SCAN from "I/O Intr" to Passive if the device support has no interrupts, as in C.
    pub(crate) fn refuse_interrupts(&mut self, rec: RecId) {
        if self.records[rec].scan == IO_INTR && !self.scans.listens.contains_key(&rec) {
            let name = self.records.name(rec).to_owned();
            self.notice(format!(
                "{name}: SCAN is \"I/O Intr\", but the device support has no interrupts; SCAN set to Passive"
            ));
            self.records[rec].scan = PASSIVE;
        }
    }

    pub(crate) fn join_group(&mut self, group: u32, rec: RecId) {
        let common = &self.records.common;
        let (phase, prio) = (common[rec].phas, priority(common[rec].prio));
        let list = &mut self.scans.groups[group as usize][prio];
        let at = list.partition_point(|other| common[*other].phas <= phase);
        list.insert(at, rec);
    }

    fn leave_group(&mut self, group: u32, rec: RecId) {
        if self.scans.walking {
            self.scans.left.push(rec);
        }
        self.scans.groups[group as usize].iter_mut().for_each(|list| list.retain(|other| *other != rec));
    }

    /// Fills all lists at start. Sorting once is faster than inserting one by one.
    pub(crate) fn fill_scans(&mut self) {
        let choices =
            self.records.schema.menu_index("menuScan").map_or(0, |menu| self.records.schema.menus[menu].choices.len());
        self.scans.lists = vec![Vec::new(); choices.max(3)];
        self.scans.callbacks.reserve();
        self.scans.left.reserve(64);
        self.notifies.reserve();
        self.links.remotes.reserve();
        for rec in self.records.common.ids() {
            let common = &self.records[rec];
            let scan = if common.is_remote || common.removed { 0 } else { usize::from(common.scan) };
            if scan > 2 && scan < self.scans.lists.len() {
                self.scans.lists[scan].push(rec);
            } else if scan > 0 {
                self.scan_add(rec);
            }
        }
        for list in &mut self.scans.lists {
            list.sort_by_key(|rec| self.records[*rec].phas);
        }
    }

    /// Removes a record from its list.
    pub(crate) fn scan_delete(&mut self, rec: RecId) {
        let common = &self.records[rec];
        match common.scan {
            PASSIVE => {}
            EVENT => {
                let group = event_name(common.rare.evnt.bytes()).and_then(|name| self.scans.events.get(&name).copied());
                if let Some(group) = group {
                    self.leave_group(group, rec);
                }
            }
            IO_INTR => {
                if let Some(group) = self.scans.listens.get(&rec).copied() {
                    self.leave_group(group, rec);
                }
            }
            index => {
                if let Some(list) = self.scans.lists.get_mut(usize::from(index)) {
                    list.retain(|other| *other != rec);
                }
            }
        }
    }

    /// The interrupt source with this name; created if it does not exist. Device supports choose the names.
    pub fn source(&mut self, name: &str) -> SourceId {
        let group = match self.scans.sources.get(name.as_bytes()) {
            Some(group) => *group,
            None => {
                let group = self.scans.new_group();
                self.scans.sources.insert(name.as_bytes().to_vec(), group);
                group
            }
        };
        SourceId(group)
    }

    /// Sets the source that a record's device support listens to (`get_ioint_info`); `None` removes it. With a source, SCAN
    /// may be "I/O Intr". Call it when the record starts and when its link changes.
    pub fn listen(&mut self, rec: RecId, source: Option<SourceId>) {
        let waits = self.start.running && self.records[rec].scan == IO_INTR;
        if waits {
            self.scan_delete(rec);
        }
        match source {
            Some(source) => self.scans.listens.insert(rec, source.0),
            None => self.scans.listens.remove(&rec),
        };
        if waits {
            self.scan_add(rec);
        }
    }

    /// Stores a new value of a source and [interrupts](Self::interrupt). Returns the previous value, so that its memory can
    /// be reused and is not freed on a real-time thread.
    ///
    /// Real-time: neither allocates nor blocks.
    pub fn feed(&mut self, source: SourceId, fed: DeviceSample) -> Option<DeviceSample> {
        let before = self.scans.fed.get_mut(source.0 as usize)?.replace(fed);
        self.interrupt(source);
        before
    }

    /// Last sample of a record's source.
    #[must_use]
    pub fn fed(&self, record: RecId) -> Option<&DeviceSample> {
        self.scans.fed_to(record)
    }

    /// Queues the I/O Intr records of a source, each list by its PRIO (`scanIoRequest`). [`Db::advance`] processes them.
    /// Requests beyond the queue's limit are lost and counted.
    ///
    /// Real-time: neither allocates nor blocks.
    pub fn interrupt(&mut self, source: SourceId) {
        if (source.0 as usize) < self.scans.groups.len() {
            self.queue_group(source.0);
        }
    }

    /// Posts an event by name or number. [`advance`](Self::advance) processes its records, each list by its PRIO.
    pub fn post_event(&mut self, name: &str) {
        self.post_event_bytes(name.as_bytes());
    }

    /// Posts an event of a record (event, calcout).
    pub(crate) fn post_event_bytes(&mut self, name: &[u8]) {
        self.signal(Signal::Event(Str40::new(name)));
        self.post_here(name);
    }

    fn post_here(&mut self, name: &[u8]) {
        let name = name.trim_ascii();
        // Names nearly always match exactly, which avoids an allocation.
        let group = match self.scans.events.get(name) {
            Some(group) => Some(*group),
            None => event_name(name).and_then(|name| self.scans.events.get(&name).copied()),
        };
        if let Some(group) = group {
            self.queue_group(group);
        }
    }

    /// Starts collecting events and states for the other databases; see [`next_signal`](Self::next_signal).
    pub fn share_signals(&mut self) {
        self.scans.signals.get_or_insert_with(|| VecDeque::with_capacity(SIGNALS_MAX));
    }

    /// Next signal for the other databases. Does not allocate.
    pub fn next_signal(&mut self) -> Option<Signal> {
        self.scans.signals.as_mut()?.pop_front()
    }

    /// Handles a signal of another database of the IOC.
    pub fn take_signal(&mut self, signal: &Signal) {
        match signal {
            Signal::Event(name) => self.post_here(name.bytes()),
            Signal::State(name, on) => {
                if let Some(state) = self.states.get_mut(name.to_str()) {
                    *state = *on;
                } else {
                    self.states.insert(name.to_str().to_owned(), *on);
                }
            }
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let Some(signals) = &mut self.scans.signals else { return };
        if signals.len() < SIGNALS_MAX {
            signals.push_back(signal);
        } else {
            self.counters.signals_lost += 1;
        }
    }

    /// Stamps records with the wall clock if their TSE is an event (or −1) without a time. Otherwise their stamps do not
    /// change and are initially undefined.
    pub const fn stamp_events_last_resort(&mut self) {
        self.scans.last_resort = true;
    }

    /// Reports records, loaded from `first` on, whose TSE is an event without a time.
    pub(crate) fn tell_unstamped(&mut self, first: RecId) {
        for rec in first.to(self.records.common.end()) {
            let common = &self.records[rec];
            let tse = common.tse;
            let known = matches!(tse, 0 | -2) || self.scans.last_resort;
            if !(known || common.removed || common.is_remote) {
                let name = self.records.name(rec);
                let what =
                    format!("{name}.TSE = {tse}: nothing gives the time of this event, the stamp stays undefined");
                self.notice(format!("{what} (installLastResortEventProvider before iocInit: it is the wall clock's)"));
            }
        }
    }
}

/// Queue index of a PRIO.
pub(crate) fn priority(prio: u16) -> usize {
    usize::from(prio).min(PRIORITIES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_choices_have_periods() {
        assert_eq!(period(".1 second"), Some(DurNs::from_ms(100)));
        assert_eq!(period("10 second"), Some(DurNs::from_secs(10)));
        assert_eq!(period("4 Hz"), Some(DurNs::from_ms(250)));
        assert_eq!(period("2 minutes"), Some(DurNs::from_secs(120)));
        assert_eq!(period("I/O Intr"), None);
    }

    #[test]
    fn event_names_are_trimmed_and_numbers_cut() {
        assert_eq!(event_name(b" hello "), Some(b"hello".to_vec()));
        assert_eq!(event_name(b"5.7"), Some(b"5".to_vec()));
        assert_eq!(event_name(b"0"), None);
        assert_eq!(event_name(b""), None);
    }
}
