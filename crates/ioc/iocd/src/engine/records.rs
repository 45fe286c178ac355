//! Records that come and go while the IOC runs.

use super::{Engine, now};
use crate::job::OwnerRequest;
use crate::owner::SHARDS_MAX;
use crate::scans::Scans;
use crate::shard::Shard;
use crate::shard_port::ShardPort;
use db::{Db, FindError, RemoteRequest};

/// Records that are looked through for links to a removed one, before scans have their turn.
const UNLINK_MAX: u32 = 64;

/// Why a record stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// The name is that of a field.
    #[error("\"{name}\" names a field; the record's name alone removes it: {record}")]
    Field {
        /// The name that was given.
        name: String,
        /// Its record.
        record: String,
    },
    /// There is no such record.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Its lock set may stand at a breakpoint.
    #[error("{name} is of a lock set with breakpoints: dbd them first, dbstat shows them")]
    Breakpoints {
        /// The record.
        name: String,
    },
}

impl Engine {
    /// Starts what was loaded since the last time. What belongs to a scan group is initialised here, PINI and all, and
    /// then goes to an owner of the group, whose scans meanwhile go on: to the one that has the records that it links to,
    /// else to the one with the fewest. Links between what was loaded at different times are links between owners.
    /// The rest goes to the housekeeping shard. Links that waited for such names are connected.
    pub fn take_up(&mut self) {
        self.store.now = now();
        let shards = &self.store.shards;
        let mut next = shards.len();
        let fresh = self.store.db.split_new(|owner| {
            let shards = shards.iter().filter(|shard| shard.owner == owner && !shard.retired).count();
            (shards < SHARDS_MAX).then(|| {
                next += 1;
                next - 1
            })
        });
        for (owner, number, db) in fresh {
            self.adopt(owner, number, db);
        }
        self.store.db.init(self.store.now);
        for (holder, connect) in self.bridges.found(&self.store) {
            if let (Some(links), RemoteRequest::Connect { id, .. }) = (&mut self.links, &connect) {
                links.ask(holder, RemoteRequest::Disconnect { id: *id });
            }
            self.remote(holder, connect);
        }
        self.follow_inputs();
        self.plan_scans();
    }

    /// Gives an owner a further shard.
    fn adopt(&mut self, owner: usize, number: usize, mut db: Db) {
        let Some(devices) = &self.devices else { return };
        devices.open(number + 1, db.records().count());
        db.init(self.store.now);
        self.store.db.learn(number, &db);
        let Some(first) = self.store.shards.get_mut(owner) else { return };
        let (shard, ends) = Shard::new(db, number, false, devices.ends(number + 1), &first.shared);
        first.ask(OwnerRequest::Adopt(Some(Box::new(shard))));
        first.flush();
        let port = ShardPort::new(format!("{}, loaded later", first.name), owner, ends, Scans::default());
        self.store.shards.push(port);
    }

    /// Removes a record; clients of its fields are told, links to it are disconnected.
    ///
    /// # Errors
    /// When there is no such record, the name is that of a field, or its lock set has breakpoints.
    pub fn remove_record(&mut self, name: &str) -> Result<(), RemoveError> {
        if let Some((record, _)) = name.split_once('.') {
            return Err(RemoveError::Field { name: name.to_owned(), record: record.to_owned() });
        }
        let record = self.store.db.find(name)?.record;
        if self.store.db.stop_set_of(record).is_some() {
            return Err(RemoveError::Breakpoints { name: name.to_owned() });
        }
        let store = &self.store;
        let gone: Vec<u64> = store.handles_of(record).collect();
        self.server.drop_channels(|handle| gone.contains(&handle), &mut self.store);
        let asked = self.bridges.drop_handles(&gone, &mut self.store);
        let db = &mut self.store.db;
        let (owner, there, last) = match db.location_of(record) {
            None => (None, record, db.records().last()),
            Some(location) => {
                let last = db.last_of(location.shard);
                db.remove_remote(record);
                (Some(location.shard), location.record, last)
            }
        };
        self.ask(owner, OwnerRequest::Call(Box::new(move |db, _| db.remove_record(there))));
        // In jobs between which its owner scans.
        for from in (0..=last.map_or(0, |last| last.0)).step_by(UNLINK_MAX as usize) {
            self.ask(owner, OwnerRequest::Call(Box::new(move |db, _| db.unlink(there, from, UNLINK_MAX))));
        }
        match owner {
            None => self.plan_scans(),
            Some(shard) => self.retire_if_empty(shard),
        }
        for (holder, connect) in asked {
            self.remote(holder, connect);
        }
        self.follow_inputs();
        Ok(())
    }

    /// Has a shard without records that was loaded later given back by its owner.
    fn retire_if_empty(&mut self, shard: usize) {
        let later = self.store.shards.get(shard).is_some_and(|of| of.owner != shard);
        if later && self.store.db.last_of(shard).is_none() {
            self.ask(Some(shard), OwnerRequest::Retire);
        }
    }

    /// Frees shards that have no records any more, after what they still had to say.
    pub(super) fn free_retired(&mut self) {
        for shard in std::mem::take(&mut self.retiring) {
            let mut rest = Vec::new();
            while let Some(port) = self.store.shards.get_mut(shard.number)
                && (port.take(&mut rest) || !rest.is_empty())
            {
                for out in rest.drain(..) {
                    self.take_out(shard.number, out);
                }
            }
            if let Some(port) = self.store.shards.get_mut(shard.number) {
                port.retire();
            }
            if let Some(devices) = &self.devices {
                devices.close(shard.number + 1);
            }
        }
    }
}
