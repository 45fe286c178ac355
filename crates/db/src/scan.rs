//! Scan lists, delays, callbacks, events.

use crate::access::RecId;
use crate::engine::{Db, Now};
use base::{DurNs, MonoNs, Stamp};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// A periodic scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Number in menuScan; what [`Db::scan`] takes.
    pub index: u16,
    /// The choice in menuScan.
    pub name: String,
    /// Time between two passes.
    pub period: DurNs,
    /// How many records are scanned so.
    pub records: usize,
}

/// What a record waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Callback {
    /// The second half of an asynchronous processing.
    Resume,
    /// Something of the record type's own, by number.
    Own(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: MonoNs,
    serial: u64,
    rec: u32,
    callback: Callback,
}

/// How many scan-once requests and callbacks may wait.
const ONCE_LIMIT: usize = 10_000;
const CALLBACK_LIMIT: usize = 10_000;
const TIMER_ROOM: usize = 1_024;

/// Lists of what is processed when.
#[derive(Default)]
pub(crate) struct Scans {
    /// By number in menuScan, ordered by phase.
    lists: Vec<Vec<u32>>,
    /// By name of event, ordered by phase.
    events: HashMap<Vec<u8>, Vec<u32>>,
    once: VecDeque<u32>,
    callbacks: VecDeque<(u32, Callback)>,
    timers: BinaryHeap<Reverse<Timer>>,
    posted: Vec<Vec<u8>>,
    serial: u64,
    event_stamps: HashMap<i16, Stamp>,
}

impl Scans {
    /// The stamp of a time event, where the shell has set one.
    pub(crate) fn event_stamp(&self, event: i16) -> Option<Stamp> {
        self.event_stamps.get(&event).copied()
    }
}

/// The name of an event, without blanks round it; a number without its fraction, as EPICS reads it.
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

/// Period of a choice of menuScan, such as `.1 second`, `5 Hz`, `2 minutes`.
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
const IO_INTR: u16 = 2;

impl Db {
    /// The periodic scans, fast and slow as menuScan has them.
    #[must_use]
    pub fn scans(&self) -> Vec<Scan> {
        let choices = self.schema.menu_index("menuScan").map_or(&[][..], |menu| &self.schema.menus[menu].choices);
        choices
            .iter()
            .enumerate()
            .skip(3)
            .filter_map(|(index, name)| {
                let records = self.scans.lists.get(index).map_or(0, Vec::len);
                Some(Scan { index: index as u16, name: name.clone(), period: period(name)?, records })
            })
            .collect()
    }

    /// Records of a scan list, in the order in which they are processed.
    #[must_use]
    pub fn scan_list(&self, index: u16) -> Vec<RecId> {
        self.scans
            .lists
            .get(usize::from(index))
            .map_or_else(Vec::new, |list| list.iter().map(|rec| RecId(*rec)).collect())
    }

    /// Names of events and the records that wait for them.
    pub fn event_lists(&self) -> impl Iterator<Item = (&str, Vec<RecId>)> + '_ {
        self.scans.events.iter().map(|(name, list)| {
            (std::str::from_utf8(name).unwrap_or_default(), list.iter().map(|rec| RecId(*rec)).collect())
        })
    }

    /// One pass of a periodic scan.
    pub fn scan(&mut self, index: u16, now: Now) {
        self.now = now;
        let index = usize::from(index);
        let Some(list) = self.scans.lists.get_mut(index).map(std::mem::take) else { return };
        for rec in &list {
            if usize::from(self.common[*rec as usize].scan) == index {
                self.run(*rec);
            }
        }
        // Records that came to the list during the pass stand in the new one.
        let added = std::mem::replace(&mut self.scans.lists[index], list);
        self.scans.lists[index]
            .retain(|rec| usize::from(self.common[*rec as usize].scan) == index && !added.contains(rec));
        for rec in added {
            self.insert_by_phase(index, rec);
        }
    }

    fn insert_by_phase(&mut self, index: usize, rec: u32) {
        let phase = self.common[rec as usize].phas;
        let common = &self.common;
        let list = &mut self.scans.lists[index];
        let at = list.partition_point(|other| common[*other as usize].phas <= phase);
        list.insert(at, rec);
    }

    /// Sorts a record into the list that its SCAN asks for.
    pub(crate) fn scan_add(&mut self, rec: u32) {
        if !self.running {
            return;
        }
        let common = &self.common[rec as usize];
        let scan = common.scan;
        match scan {
            PASSIVE => {}
            EVENT => {
                let Some(name) = event_name(common.evnt.bytes()) else { return };
                let phase = common.phas;
                let list = self.scans.events.entry(name).or_default();
                let at = list.partition_point(|other| self.common[*other as usize].phas <= phase);
                list.insert(at, rec);
            }
            IO_INTR => {
                if !crate::dev::has_interrupt(self, rec) {
                    let name = self.record_name(rec).to_owned();
                    self.notice(format!(
                        "{name}: SCAN is \"I/O Intr\", but the device support has no interrupts; SCAN set to Passive"
                    ));
                    self.common[rec as usize].scan = PASSIVE;
                }
            }
            index => {
                let index = usize::from(index);
                if self.scans.lists.len() <= index {
                    self.scans.lists.resize(index + 1, Vec::new());
                }
                self.insert_by_phase(index, rec);
            }
        }
    }

    /// Fills all lists at start: sorted once instead of inserted one by one.
    pub(crate) fn fill_scans(&mut self) {
        let choices = self.schema.menu_index("menuScan").map_or(0, |menu| self.schema.menus[menu].choices.len());
        self.scans.lists = vec![Vec::new(); choices.max(3)];
        self.scans.once.reserve(ONCE_LIMIT);
        self.scans.callbacks.reserve(CALLBACK_LIMIT);
        self.scans.timers.reserve(TIMER_ROOM);
        for rec in 0..self.common.len() as u32 {
            let scan = usize::from(self.common[rec as usize].scan);
            if scan > 2 && scan < self.scans.lists.len() {
                self.scans.lists[scan].push(rec);
            } else if scan > 0 {
                self.scan_add(rec);
            }
        }
        for list in &mut self.scans.lists {
            list.sort_by_key(|rec| self.common[*rec as usize].phas);
        }
    }

    /// Takes a record out of its list.
    pub(crate) fn scan_delete(&mut self, rec: u32) {
        let common = &self.common[rec as usize];
        match common.scan {
            PASSIVE | IO_INTR => {}
            EVENT => {
                if let Some(list) = event_name(common.evnt.bytes()).and_then(|name| self.scans.events.get_mut(&name)) {
                    list.retain(|other| *other != rec);
                }
            }
            index => {
                if let Some(list) = self.scans.lists.get_mut(usize::from(index)) {
                    list.retain(|other| *other != rec);
                }
            }
        }
    }

    /// Asks for one processing soon (scanOnce).
    pub(crate) fn scan_once(&mut self, rec: u32) {
        if self.scans.once.len() >= ONCE_LIMIT {
            self.counters.once_lost += 1;
            return;
        }
        self.scans.once.push_back(rec);
    }

    /// Asks for the second half of an asynchronous processing soon.
    pub(crate) fn call_back(&mut self, rec: u32, callback: Callback) {
        if self.scans.callbacks.len() >= CALLBACK_LIMIT {
            self.counters.callback_lost += 1;
            return;
        }
        self.scans.callbacks.push_back((rec, callback));
    }

    /// As [`call_back`](Self::call_back), after a delay.
    pub(crate) fn call_back_after(&mut self, rec: u32, callback: Callback, seconds: f64) {
        let delay = DurNs((seconds.clamp(0.0, 9e9) * 1e9) as i64);
        self.scans.serial += 1;
        let timer = Timer { at: self.now.mono + delay, serial: self.scans.serial, rec, callback };
        self.scans.timers.push(Reverse(timer));
    }

    /// Gives up a record's delays of one kind.
    pub(crate) fn cancel_delay(&mut self, rec: u32, callback: Callback) {
        self.scans.timers.retain(|Reverse(timer)| timer.rec != rec || timer.callback != callback);
    }

    /// Posts an event by name or number: records that wait for it are processed by [`advance`](Self::advance).
    pub fn post_event(&mut self, name: &str) {
        if let Some(name) = event_name(name.as_bytes()) {
            self.scans.posted.push(name);
        }
    }

    /// Posts an event from a record (event, calcout).
    pub(crate) fn post_event_bytes(&mut self, name: &[u8]) {
        if let Some(name) = event_name(name).filter(|name| self.scans.events.contains_key(name)) {
            self.scans.posted.push(name);
        }
    }

    /// Sets the stamp that records with this TSE (1 to 255, or −1) get.
    pub fn set_event_stamp(&mut self, event: i16, stamp: Stamp) {
        self.scans.event_stamps.insert(event, stamp);
    }

    /// Does what is due: posted events, scan-once, callbacks and delays, at most `limit` processings; how many it did.
    pub fn advance(&mut self, now: Now, limit: usize) -> usize {
        self.now = now;
        let mut done = 0;
        while done < limit {
            if let Some(name) = self.scans.posted.pop() {
                let list = self.scans.events.get(&name).cloned().unwrap_or_default();
                for rec in list {
                    if self.common[rec as usize].scan == EVENT {
                        self.run(rec);
                        done += 1;
                    }
                }
                continue;
            }
            if let Some(rec) = self.scans.once.pop_front() {
                self.run(rec);
                done += 1;
                continue;
            }
            if let Some((rec, callback)) = self.scans.callbacks.pop_front() {
                self.called(rec, callback);
                done += 1;
                continue;
            }
            match self.scans.timers.peek() {
                Some(Reverse(timer)) if timer.at <= now.mono => {
                    if let Some(Reverse(timer)) = self.scans.timers.pop() {
                        self.called(timer.rec, timer.callback);
                        done += 1;
                    }
                }
                _ => break,
            }
        }
        self.restart_notifies(now);
        done
    }

    fn called(&mut self, rec: u32, callback: Callback) {
        if self.common[rec as usize].removed {
            return;
        }
        match callback {
            Callback::Resume if self.common[rec as usize].pact != 0 => self.resume(rec),
            Callback::Resume => {}
            Callback::Own(number) => crate::rec::own_callback(self, rec, number),
        }
    }

    /// When [`advance`](Self::advance) has something to do next: at once, at an instant, or never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonoNs> {
        if !self.scans.once.is_empty() || !self.scans.callbacks.is_empty() || !self.scans.posted.is_empty() {
            return Some(MonoNs(0));
        }
        self.scans.timers.peek().map(|Reverse(timer)| timer.at)
    }
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
