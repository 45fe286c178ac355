//! One database into several, each with an owner of its own: whole lock sets go to the scan groups that scan them.
//!
//! A lock set is what links of the database join (CA, CP and CPP links join nothing, as in C). The database that is split
//! keeps the names of all records and what does not change about them: it is the directory. Links that lead from one
//! part to another become links elsewhere, as over Channel Access.

use crate::channel::RecId;
use crate::engine::Db;
use crate::link::{self, CA, CP, CPP, LinkText};
use crate::load::PendingLink;
use crate::scan::period;
use std::collections::HashMap;

/// A scan group: lock sets with records of these scans get an owner of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanGroup {
    /// Choices of menuScan, such as `.1 second`; also `Event`, `I/O Intr`, and `Passive` for what nothing scans.
    pub scans: Vec<String>,
    /// How many owners share the group's lock sets.
    pub owners: usize,
}

/// Where a record is that another database owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// Number of the part, as [`Db::split`] returned them.
    pub part: usize,
    /// The record's number there.
    pub record: RecId,
}

/// Sets of records that links join (union by size, paths halved).
struct Sets {
    parent: Vec<u32>,
    size: Vec<u32>,
}

impl Sets {
    fn new(count: usize) -> Self {
        Self { parent: (0..count as u32).collect(), size: vec![1; count] }
    }

    fn find(&mut self, mut at: u32) -> u32 {
        while self.parent[at as usize] != at {
            let above = self.parent[self.parent[at as usize] as usize];
            self.parent[at as usize] = above;
            at = above;
        }
        at
    }

    fn join(&mut self, a: u32, b: u32) {
        let (mut large, mut small) = (self.find(a), self.find(b));
        if large == small {
            return;
        }
        if self.size[large as usize] < self.size[small as usize] {
            std::mem::swap(&mut large, &mut small);
        }
        self.parent[small as usize] = large;
        self.size[large as usize] += self.size[small as usize];
    }
}

impl Db {
    /// Splits a loaded database that was not initialised yet. `groups` stand in the order of their priority, highest
    /// first: a lock set that several reach goes to the first of them, which is said in a notice. A group's lock sets
    /// are shared out among its owners, largest first, each to the owner with the fewest records.
    ///
    /// Returns the parts, group by group, owner by owner; what belongs to no group stays here. Initialise the parts,
    /// then call [`learn`](Self::learn) for each, then initialise this one.
    ///
    /// # Errors
    /// A scan that menuScan does not have, or that two groups claim.
    pub fn split(&mut self, groups: &[ScanGroup]) -> Result<Vec<Self>, String> {
        let claims = self.claims(groups)?;
        let count = self.common.len();
        let first = crate::record::Kind::ALL.len() as u32;
        let mut sets = self.lock_sets();
        // Which groups reach each set; the first is the one that it goes to.
        let mut reached: HashMap<u32, Vec<usize>> = HashMap::new();
        for rec in first..count as u32 {
            let common = &self.common[rec as usize];
            if common.removed {
                continue;
            }
            if let Some(group) = claims.get(&common.scan) {
                let by = reached.entry(sets.find(rec)).or_default();
                if !by.contains(group) {
                    by.push(*group);
                }
            }
        }
        let mut owned: Vec<(u32, usize)> = Vec::new();
        for (set, mut by) in reached {
            by.sort_unstable();
            if by.len() > 1 {
                let record = (first..count as u32).find(|rec| sets.find(*rec) == set).unwrap_or(set);
                self.notice(format!(
                    "{}: its lock set ({} records) is scanned by {} scan groups; all of it goes to the first, with \"{}\"",
                    self.record_name(record),
                    sets.size[set as usize],
                    by.len(),
                    groups[by[0]].scans.join("\", \"")
                ));
            }
            owned.push((set, by[0]));
        }
        owned.sort_by_key(|(set, _)| (std::cmp::Reverse(sets.size[*set as usize]), *set));
        let mut load: Vec<Vec<usize>> = groups.iter().map(|group| vec![0; group.owners.max(1)]).collect();
        let starts: Vec<usize> = load
            .iter()
            .scan(0, |sum, owners| {
                let start = *sum;
                *sum += owners.len();
                Some(start)
            })
            .collect();
        let mut part_of: HashMap<u32, usize> = HashMap::new();
        for (set, group) in owned {
            let owners = &mut load[group];
            let least = (0..owners.len()).min_by_key(|owner| owners[*owner]).unwrap_or(0);
            owners[least] += sets.size[set as usize] as usize;
            part_of.insert(set, starts[group] + least);
        }
        let parts = load.iter().map(Vec::len).sum();
        let assigned: Vec<Option<usize>> = (0..count as u32).map(|rec| part_of.get(&sets.find(rec)).copied()).collect();
        Ok((0..parts).map(|part| self.take_part(part, &assigned)).collect())
    }

    /// The group that each claimed choice of menuScan belongs to.
    fn claims(&self, groups: &[ScanGroup]) -> Result<HashMap<u16, usize>, String> {
        let choices = self.schema.menu_index("menuScan").map_or(&[][..], |menu| &self.schema.menus[menu].choices);
        let mut claims = HashMap::new();
        for (number, group) in groups.iter().enumerate() {
            for scan in &group.scans {
                let wanted = period(scan);
                // `.1 second`, `0.1 second` and `10 Hz` are the same rate.
                let found = choices
                    .iter()
                    .enumerate()
                    .find(|(_, choice)| *choice == scan || (wanted.is_some() && period(choice) == wanted));
                let Some((index, _)) = found else {
                    let known = choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>();
                    return Err(format!("scan \"{scan}\" is not in menuScan; expected one of {}", known.join(", ")));
                };
                if claims.insert(index as u16, number).is_some() {
                    return Err(format!("scan \"{scan}\" is claimed twice"));
                }
            }
        }
        Ok(claims)
    }

    /// Joins the records that links of the database join.
    fn lock_sets(&self) -> Sets {
        let mut sets = Sets::new(self.common.len());
        for item in &self.pending {
            let Some(link_field) = self.def(item.rec, item.field).link_field() else { continue };
            let text = self.pending_text(item);
            match link::parse(text, link_field) {
                Ok(LinkText::Pv(name, flags)) if flags & (CA | CP | CPP) == 0 => {
                    self.join_name(&mut sets, item.rec, name)
                }
                // JSON links name records inside of expressions: whatever is the name of a record counts.
                Ok(LinkText::Json(text, _)) => text
                    .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '{' | '}' | '[' | ']' | ':'))
                    .chain(text.split(['"', '\'']))
                    .for_each(|word| self.join_name(&mut sets, item.rec, word.split_whitespace().next().unwrap_or(""))),
                _ => {}
            }
        }
        sets
    }

    fn join_name(&self, sets: &mut Sets, rec: u32, name: &str) {
        let record = name.split('.').next().unwrap_or_default();
        if let Some((_, other)) = self.names.find(record.as_bytes()).filter(|_| !record.is_empty()) {
            sets.join(rec, other);
        }
    }

    fn pending_text(&self, item: &PendingLink) -> &str {
        std::str::from_utf8(&self.pending_text[item.start as usize..(item.start + item.len) as usize])
            .unwrap_or_default()
    }

    /// Moves the records of a part out.
    fn take_part(&mut self, part: usize, assigned: &[Option<usize>]) -> Self {
        let mut to = Self::new();
        to.schema = self.schema.clone();
        to.clock = self.clock;
        to.environment = self.environment.clone();
        to.states = self.states.clone();
        to.functions = self.functions.clone();
        to.restores = self.restores.clone();
        to.part = Some(part as u32);
        to.supports = self.supports.for_part();
        for rec in (0..assigned.len()).filter(|rec| assigned[*rec] == Some(part)) {
            let rec = rec as u32;
            let kind = self.common[rec as usize].kind();
            let name = self.names.name(self.common[rec as usize].name).to_vec();
            let new = to.create(kind, &name);
            self.bodies.swap(kind, self.common[rec as usize].body, &mut to.bodies, to.common[new as usize].body);
            let (body, number) = (to.common[new as usize].body, to.common[new as usize].name);
            to.common[new as usize] = self.common[rec as usize].clone();
            to.common[new as usize].body = body;
            to.common[new as usize].name = number;
            if let Some(tags) = self.info.get(&rec) {
                to.info.insert(new, tags.clone());
            }
            self.away.insert(rec, Away { part, record: RecId(new) });
            self.common[rec as usize].away = true;
        }
        for (number, rec) in self.names.iter() {
            if assigned.get(rec as usize) == Some(&Some(part))
                && let Some(away) = self.away.get(&rec)
            {
                to.names.add(self.names.name(number), away.record.0);
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for item in &pending {
            if assigned.get(item.rec as usize) == Some(&Some(part))
                && let Some(away) = self.away.get(&item.rec)
            {
                let start = to.pending_text.len() as u32;
                to.pending_text.extend_from_slice(self.pending_text(item).as_bytes());
                to.pending.push(PendingLink { rec: away.record.0, field: item.field, start, len: item.len });
            }
        }
        self.pending = pending.into_iter().filter(|item| assigned[item.rec as usize] != Some(part)).collect();
        to
    }

    /// Takes over what clients are told about a part's records before they read them: types, sizes, access groups.
    pub fn learn(&mut self, part: usize, from: &Self) {
        let away: Vec<(u32, Away)> =
            self.away.iter().filter(|(_, away)| away.part == part).map(|(rec, away)| (*rec, *away)).collect();
        for (rec, away) in away {
            let there = &from.common[away.record.0 as usize];
            let here = &mut self.common[rec as usize];
            let (body, name) = (here.body, here.name);
            *here = there.clone();
            (here.body, here.name, here.away, here.cold) = (body, name, true, true);
            (here.monitors, here.notify) = (0, 0);
            self.bodies.copy(here.kind(), body, &from.bodies, there.body);
        }
    }

    /// Where a record is, if another database owns it.
    #[must_use]
    pub fn away(&self, record: RecId) -> Option<Away> {
        if !self.common[record.0 as usize].away {
            return None;
        }
        self.away.get(&record.0).copied()
    }

    /// Learns that a record of another owner has changed its access security group.
    pub fn regroup_away(&mut self, away: Away, group: base::Str40) {
        if let Some((rec, _)) = self.away.iter().find(|(_, known)| **known == away) {
            self.common[*rec as usize].rare.asg.set(group.bytes());
            self.regrouped.insert(*rec);
        }
    }

    /// Forgets a record that the database which owned it has removed.
    pub fn remove_away(&mut self, record: RecId) {
        self.common[record.0 as usize].removed = true;
        self.away.remove(&record.0);
    }

    /// How many records belong to each part.
    #[must_use]
    pub fn parts(&self) -> HashMap<usize, usize> {
        self.away.values().fold(HashMap::new(), |mut counts, away| {
            *counts.entry(away.part).or_default() += 1;
            counts
        })
    }
}
