//! Division of a database into several, each with its own owner. A lock set goes as a whole to the scan group that scans it.
//!
//! A lock set is a set of records joined by database links. CA, CP and CPP links do not join records, as in C. The database
//! that is divided keeps the names of all records and their constant properties, as a directory. Links between shards become
//! remote links, as over Channel Access.

use crate::model::id::{PerRecord, RecId};
use crate::model::link::{self, CA, CP, CPP, LinkField, LinkText};
use crate::rec::Kind;
use crate::run::engine::Db;
use crate::run::scan::period;
use crate::text::error::SplitError;
use std::collections::{BTreeSet, HashMap};

/// A scan group. Lock sets with records of these scans belong to an owner of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanGroup {
    /// Choices of menuScan, such as `.1 second`; also `Event`, `I/O Intr`, and `Passive` for lock sets without a scan.
    pub scans: Vec<String>,
    /// Number of owners that share the group's lock sets.
    pub owners: usize,
}

/// Location of a record that another database owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// Number of the shard, as returned by [`Db::split`].
    pub shard: usize,
    /// Number of the record in the shard.
    pub record: RecId,
}

/// Union-find structure of lock sets (union by size, path halving).
pub(crate) struct Sets {
    parent: PerRecord<RecId>,
    size: PerRecord<u32>,
}

impl Sets {
    /// Sets of one record each.
    pub(crate) fn of(records: impl Iterator<Item = RecId> + Clone) -> Self {
        Self { size: records.clone().map(|_| 1).collect(), parent: records.collect() }
    }

    /// Representative record of a record's set.
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

/// Result of dividing a database, used for records loaded later.
pub(crate) struct Division {
    /// Scan group of each claimed menuScan choice.
    claims: HashMap<u16, usize>,
    /// Scans of each group, for notices.
    scans: Vec<String>,
    /// Group of each owner.
    groups: Vec<usize>,
    /// Owner of each shard. The first shards are one per owner. Later shards hold records loaded later.
    owners: Vec<usize>,
}

/// Locations of records that other databases own, and this database's shard number.
#[derive(Default)]
pub(crate) struct Split {
    pub(crate) locations: HashMap<RecId, RecordLocation>,
    pub(crate) division: Option<Division>,
    /// Shard number, if this is a shard of a divided database.
    pub(crate) shard: Option<u32>,
}

/// Groups and owners that reach a lock set to be assigned.
#[derive(Default)]
struct Reach {
    /// Number of its records to be assigned.
    records: usize,
    groups: BTreeSet<usize>,
    /// Owners of records that are already in it.
    owners: BTreeSet<usize>,
}

impl Db {
    /// Divides a loaded database before it is initialised. `groups` are ordered by priority, highest first. A lock set
    /// reached by several groups goes to the first of them, and a notice reports that. A group's lock sets are assigned
    /// largest first, each to the owner with the fewest records.
    ///
    /// Returns the shards by group and owner. Records without a group stay here. Initialise the shards, then call
    /// [`learn`](Self::learn) for each, then initialise this database.
    ///
    /// # Errors
    /// If menuScan does not have a scan, or two groups claim it.
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

    /// Divides the records loaded since the last [`init`](Self::init) by the same rule. A lock set with links to records of
    /// owners goes to the first of these owners, as if it had been present before. Records that have an owner stay with it.
    /// `number_for` returns the number of an owner's next shard, or `None` if the owner is full. In that case its records
    /// stay here, and a notice reports that.
    ///
    /// Returns the shards with their owners and numbers. Treat them like those of [`split`](Self::split).
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

    /// Owner of each record from `first` on that belongs to a scan group.
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

    /// Scan group of each claimed menuScan choice.
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

    /// Joins records that are connected by database links.
    fn lock_sets(&self) -> Sets {
        let mut sets = Sets::of(self.records.common.ids());
        // Holders of atomic PVAccess links to one channel are processed together, so they need one owner.
        let mut atomic: HashMap<String, RecId> = HashMap::new();
        for item in &self.links.pending.links {
            let Some(link_field) = self.records.def(item.rec, item.field).link_field() else { continue };
            let text = self.links.pending.text_of(item);
            match link::read(text, link_field) {
                Ok(LinkText::Pv(name, flags)) if flags & (CA | CP | CPP) == 0 => {
                    self.join_name(&mut sets, item.rec, name)
                }
                // JSON links name records inside expressions, so every word that is a record name counts.
                Ok(LinkText::Json(text, _)) => text
                    .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '{' | '}' | '[' | ']' | ':'))
                    .chain(text.split(['"', '\'']))
                    .for_each(|word| self.join_name(&mut sets, item.rec, word.split_whitespace().next().unwrap_or(""))),
                Ok(LinkText::Pva(_, link, _)) if link.atomic && link_field == LinkField::In => {
                    sets.join(item.rec, *atomic.entry(link.pv).or_insert(item.rec));
                }
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

    /// Moves the records assigned to an owner into a shard with this number.
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

    /// Copies from a shard the properties that clients request before they read: types, sizes, access groups.
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

    /// Location of a record that another database owns.
    #[must_use]
    pub fn location_of(&self, record: RecId) -> Option<RecordLocation> {
        if !self.records[record].is_remote {
            return None;
        }
        self.split.locations.get(&record).copied()
    }

    /// Updates the access security group of a record of another owner.
    pub fn regroup_remote(&mut self, location: RecordLocation, group: base::Str40) {
        if let Some((rec, _)) = self.split.locations.iter().find(|(_, known)| **known == location) {
            self.records[*rec].rare.asg.set(group.bytes());
            self.outbox.regrouped.insert(*rec);
        }
    }

    /// Forgets a record that was removed by its owner.
    pub fn remove_remote(&mut self, record: RecId) {
        self.records[record].removed = true;
        self.split.locations.remove(&record);
    }

    /// Last record of a shard, as numbered in the shard; `None` if all were removed.
    #[must_use]
    pub fn last_of(&self, shard: usize) -> Option<RecId> {
        self.split.locations.values().filter(|location| location.shard == shard).map(|location| location.record).max()
    }

    /// Number of records in each shard.
    #[must_use]
    pub fn shards(&self) -> HashMap<usize, usize> {
        self.split.locations.values().fold(HashMap::new(), |mut counts, location| {
            *counts.entry(location.shard).or_default() += 1;
            counts
        })
    }
}
