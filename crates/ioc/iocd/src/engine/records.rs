//! Adding and removing records at run time.

use super::{Engine, now};
use crate::job::OwnerRequest;
use crate::owner::SHARDS_MAX;
use crate::scans::Scans;
use crate::shard::Shard;
use crate::shard_port::ShardPort;
use db::{Db, FindError, RemoteRequest};

/// Number of records searched for links to a removed record, before scans are served.
const UNLINK_MAX: u32 = 64;

/// Reason why a record cannot be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// The name is that of a field.
    #[error("\"{name}\" names a field; the record's name alone removes it: {record}")]
    Field {
        /// The given name.
        name: String,
        /// The record of the field.
        record: String,
    },
    /// The record does not exist.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Its lock set has breakpoints, so it may be stopped.
    #[error("{name} is of a lock set with breakpoints: dbd them first, dbstat shows them")]
    Breakpoints {
        /// The record.
        name: String,
    },
}

impl Engine {
    /// Starts the records loaded since the last call. Records of a scan group are initialised here, including PINI, while the
    /// group's scans continue. They then go to the owner with the records that they link to, or else to the owner with the
    /// fewest records. Links between records loaded at different times are links between owners. The other records go to the
    /// housekeeping shard. Links that waited for the new names are connected.
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

    /// Removes a record. Clients of its fields are notified, links to it are disconnected.
    ///
    /// # Errors
    /// If the record does not exist, the name is that of a field, or the record's lock set has breakpoints.
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
        if let Some(pvaccess) = &mut self.pvaccess {
            let groups = self.store.drop_groups(&gone);
            let is_gone = |handle: u64| gone.contains(&handle) || groups.contains(&handle);
            pvaccess.server.drop_channels(is_gone, &mut self.store);
            groups.iter().for_each(|group| self.store.end_group(*group));
            self.deliver_groups();
        }
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
        // Split into several jobs, so that the owner can scan in between.
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

    /// Asks the owner to return a later shard that has no records left.
    fn retire_if_empty(&mut self, shard: usize) {
        let later = self.store.shards.get(shard).is_some_and(|of| of.owner != shard);
        if later && self.store.db.last_of(shard).is_none() {
            self.ask(Some(shard), OwnerRequest::Retire);
        }
    }

    /// Frees shards without records, after their last events were handled.
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
