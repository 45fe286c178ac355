//! One database into several, each with an owner of its own: whole lock sets go to the scan groups that scan them.
//!
//! A lock set is what links of the database join (CA, CP and CPP links join nothing, as in C). The database that is split
//! keeps the names of all records and what does not change about them: it is the directory. Links that lead from one
//! shard to another become links elsewhere, as over Channel Access.

use crate::model::id::{PerRecord, RecId};
use crate::model::link::{self, CA, CP, CPP, LinkText};
use crate::rec::Kind;
use crate::run::engine::Db;
use crate::run::scan::period;
use crate::text::error::SplitError;
use std::collections::{BTreeSet, HashMap};

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
pub struct RecordLocation {
    /// Number of the shard, as [`Db::split`] returned them.
    pub shard: usize,
    /// The record's number there.
    pub record: RecId,
}

/// Sets of records that links join (union by size, paths halved).
pub(crate) struct Sets {
    parent: PerRecord<RecId>,
    size: PerRecord<u32>,
}

impl Sets {
    /// Of records that nothing joins yet.
    pub(crate) fn of(records: impl Iterator<Item = RecId> + Clone) -> Self {
        Self { size: records.clone().map(|_| 1).collect(), parent: records.collect() }
    }

    /// The record that stands for a record's set.
    pub(crate) fn find(&mut self, mut at: RecId) -> RecId {
        while self.parent[at] != at {
            let above = self.parent[self.parent[at]];
            self.parent[at] = above;
            at = above;
        }
        at
    }

    pub(crate) fn join(&mut self, a: RecId, b: RecId) {
        let (mut large, mut small) = (self.find(a), self.find(b));
        if large == small {
            return;
        }
        if self.size[large] < self.size[small] {
            std::mem::swap(&mut large, &mut small);
        }
        self.parent[small] = large;
        self.size[large] += self.size[small];
    }
}

/// How a database was divided, for records that are loaded later.
pub(crate) struct Division {
    /// The group that each claimed choice of menuScan belongs to.
    claims: HashMap<u16, usize>,
    /// The scans of each group, for notices.
    scans: Vec<String>,
    /// The group of each owner.
    groups: Vec<usize>,
    /// The owner of each shard. The first shards are one for each owner; later ones hold what was loaded later.
    owners: Vec<usize>,
}

/// Which records other databases own, where this one was divided, and which shard it is of another.
#[derive(Default)]
pub(crate) struct Split {
    pub(crate) locations: HashMap<RecId, RecordLocation>,
    pub(crate) division: Option<Division>,
    /// Its number, where this is a shard of a database that was divided.
    pub(crate) shard: Option<u32>,
}

/// Who reaches a lock set that is to be assigned.
#[derive(Default)]
struct Reach {
    /// Records of it that are to be assigned.
    records: usize,
    groups: BTreeSet<usize>,
    /// Owners of records that are in it already.
    owners: BTreeSet<usize>,
}

impl Db {
    /// Splits a loaded database that was not initialised yet. `groups` stand in the order of their priority, highest
    /// first: a lock set that several reach goes to the first of them, which is said in a notice. A group's lock sets
    /// are shared out among its owners, largest first, each to the owner with the fewest records.
    ///
    /// Returns the shards, group by group, owner by owner; what belongs to no group stays here. Initialise the shards,
    /// then call [`learn`](Self::learn) for each, then initialise this one.
    ///
    /// # Errors
    /// A scan that menuScan does not have, or that two groups claim.
    pub fn split(&mut self, groups: &[ScanGroup]) -> Result<Vec<Self>, SplitError> {
        let of_owners: Vec<usize> =
            groups.iter().enumerate().flat_map(|(number, group)| vec![number; group.owners.max(1)]).collect();
        let division = Division {
            claims: self.claims(groups)?,
            scans: groups.iter().map(|group| group.scans.join("\", \"")).collect(),
            owners: (0..of_owners.len()).collect(),
            groups: of_owners,
        };
        let assigned = self.assign(Kind::FIRST_LOADED, &division);
        let shards = (0..division.groups.len()).map(|owner| self.take_shard(owner, owner, &assigned)).collect();
        self.split.division = Some(division);
        Ok(shards)
    }

    /// Splits off what was loaded since the last [`init`](Self::init) and belongs to scan groups, by the same rule; a lock
    /// set whose links lead to records of owners goes to the first of these, as if it had been there before. Records
    /// that have an owner stay where they are. `number_for` gives the number of an owner's next shard, or `None` where the
    /// owner can take no more: then its records stay here, which is said in a notice.
    ///
    /// Returns the shards with their owners and numbers, to be treated as those of [`split`](Self::split).
    pub fn split_new(&mut self, mut number_for: impl FnMut(usize) -> Option<usize>) -> Vec<(usize, usize, Self)> {
        let Some(mut division) = self.split.division.take() else { return Vec::new() };
        let assigned = self.assign(self.start.first_new, &division);
        let mut shards = Vec::new();
        for owner in 0..division.groups.len() {
            let count = assigned.iter().filter(|(_, to)| **to == Some(owner)).count();
            if count == 0 {
                continue;
            }
            let Some(number) = number_for(owner) else {
                self.notice(format!(
                    "{count} records stay out of the scan group with \"{}\": its thread has taken records up too often; \
                     load more with one command, or start the IOC anew",
                    division.scans[division.groups[owner]]
                ));
                continue;
            };
            division.owners.resize(division.owners.len().max(number + 1), owner);
            division.owners[number] = owner;
            shards.push((owner, number, self.take_shard(number, owner, &assigned)));
        }
        self.split.division = Some(division);
        shards
    }

    /// The owner of each record from `first` on that belongs to a scan group.
    fn assign(&mut self, first: RecId, division: &Division) -> PerRecord<Option<usize>> {
        let new = first.to(self.records.common.end());
        let mut sets = self.lock_sets();
        let mut reached: HashMap<RecId, Reach> = HashMap::new();
        for rec in new.clone() {
            let common = &self.records[rec];
            if !common.removed {
                let reach = reached.entry(sets.find(rec)).or_default();
                reach.records += 1;
                reach.groups.extend(division.claims.get(&common.scan));
            }
        }
        let mut load = vec![0; division.groups.len()];
        for (rec, location) in &self.split.locations {
            let owner = division.owners[location.shard];
            load[owner] += 1;
            if let Some(reach) = reached.get_mut(&sets.find(*rec)) {
                reach.groups.insert(division.groups[owner]);
                reach.owners.insert(owner);
            }
        }
        let mut owned: Vec<(RecId, Reach)> =
            reached.into_iter().filter(|(_, reach)| !reach.groups.is_empty()).collect();
        owned.sort_by_key(|(set, reach)| (std::cmp::Reverse(reach.records), *set));
        let mut owner_of: HashMap<RecId, usize> = HashMap::new();
        for (set, reach) in owned {
            let Some(group) = reach.groups.first() else { continue };
            if reach.groups.len() > 1 {
                let record = new.clone().find(|rec| sets.find(*rec) == set).unwrap_or(set);
                self.notice(format!(
                    "{}: its lock set ({} records) is scanned by {} scan groups; all of it goes to the first, with \"{}\"",
                    self.records.name(record),
                    reach.records,
                    reach.groups.len(),
                    division.scans[*group]
                ));
            }
            let of_group = |owner: &usize| division.groups[*owner] == *group;
            let known = reach.owners.iter().copied().find(of_group);
            let least = (0..load.len()).filter(of_group).min_by_key(|owner| load[*owner]);
            if let Some(owner) = known.or(least) {
                load[owner] += reach.records;
                owner_of.insert(set, owner);
            }
        }
        self.records
            .common
            .ids()
            .map(|rec| if rec < first { None } else { owner_of.get(&sets.find(rec)).copied() })
            .collect()
    }

    /// The group that each claimed choice of menuScan belongs to.
    fn claims(&self, groups: &[ScanGroup]) -> Result<HashMap<u16, usize>, SplitError> {
        let choices =
            self.records.schema.menu_index("menuScan").map_or(&[][..], |menu| &self.records.schema.menus[menu].choices);
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
                    let known = choices.iter().map(ToString::to_string).collect();
                    return Err(SplitError::NoScan { scan: scan.clone(), known });
                };
                if claims.insert(index as u16, number).is_some() {
                    return Err(SplitError::ClaimedTwice { scan: scan.clone() });
                }
            }
        }
        Ok(claims)
    }

    /// Joins the records that links of the database join.
    fn lock_sets(&self) -> Sets {
        let mut sets = Sets::of(self.records.common.ids());
        for item in &self.links.pending.links {
            let Some(link_field) = self.records.def(item.rec, item.field).link_field() else { continue };
            let text = self.links.pending.text_of(item);
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

    fn join_name(&self, sets: &mut Sets, rec: RecId, name: &str) {
        let record = name.split('.').next().unwrap_or_default();
        if let Some((_, other)) = self.records.names.find(record.as_bytes()).filter(|_| !record.is_empty()) {
            sets.join(rec, other);
        }
    }

    /// Moves the records that are assigned to an owner out, into a shard of this number.
    fn take_shard(&mut self, shard: usize, owner: usize, assigned: &PerRecord<Option<usize>>) -> Self {
        let mut to = Self::new();
        to.records.schema = self.records.schema.clone();
        to.time.clock = self.time.clock;
        to.scans.last_resort = self.scans.last_resort;
        to.time.local = self.time.local;
        to.environment = self.environment.clone();
        to.states = self.states.clone();
        to.functions = self.functions.clone();
        to.start.restores = self.start.restores.clone();
        to.split.shard = Some(shard as u32);
        to.supports = self.supports.for_shard();
        for (rec, _) in assigned.iter().filter(|(_, to)| **to == Some(owner)) {
            let new = to.records.take(&mut self.records, rec);
            self.split.locations.insert(rec, RecordLocation { shard, record: new });
            self.records[rec].is_remote = true;
        }
        for (number, rec) in self.records.names.iter() {
            if assigned[rec] == Some(owner)
                && let Some(location) = self.split.locations.get(&rec)
            {
                to.records.names.add(self.records.names.name(number), location.record);
            }
        }
        let mut links = std::mem::take(&mut self.links.pending.links);
        links.retain(|item| {
            let goes = assigned[item.rec] == Some(owner);
            if goes && let Some(location) = self.split.locations.get(&item.rec) {
                to.links.pending.add(location.record, item.field, self.links.pending.text_of(item).as_bytes());
            }
            !goes
        });
        self.links.pending.links = links;
        to
    }

    /// Takes over what clients are told about a shard's records before they read them: types, sizes, access groups.
    pub fn learn(&mut self, shard: usize, from: &Self) {
        let locations: Vec<(RecId, RecordLocation)> = self
            .split
            .locations
            .iter()
            .filter(|(_, location)| location.shard == shard)
            .map(|(rec, location)| (*rec, *location))
            .collect();
        for (rec, location) in locations {
            self.records.copy(rec, &from.records, location.record);
            self.records[rec].is_remote = true;
        }
    }

    /// Where a record is, if another database owns it.
    #[must_use]
    pub fn location_of(&self, record: RecId) -> Option<RecordLocation> {
        if !self.records[record].is_remote {
            return None;
        }
        self.split.locations.get(&record).copied()
    }

    /// Learns that a record of another owner has changed its access security group.
    pub fn regroup_remote(&mut self, location: RecordLocation, group: base::Str40) {
        if let Some((rec, _)) = self.split.locations.iter().find(|(_, known)| **known == location) {
            self.records[*rec].rare.asg.set(group.bytes());
            self.outbox.regrouped.insert(*rec);
        }
    }

    /// Forgets a record that the database which owned it has removed.
    pub fn remove_remote(&mut self, record: RecId) {
        self.records[record].removed = true;
        self.split.locations.remove(&record);
    }

    /// The last record of a shard, by its number there; `None` where all were removed.
    #[must_use]
    pub fn last_of(&self, shard: usize) -> Option<RecId> {
        self.split.locations.values().filter(|location| location.shard == shard).map(|location| location.record).max()
    }

    /// How many records belong to each shard.
    #[must_use]
    pub fn shards(&self) -> HashMap<usize, usize> {
        self.split.locations.values().fold(HashMap::new(), |mut counts, location| {
            *counts.entry(location.shard).or_default() += 1;
            counts
        })
    }
}
