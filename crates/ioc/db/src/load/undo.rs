//! What a file has changed, to be taken back where the file is refused.

use crate::model::id::RecId;
use crate::model::schema::Schema;
use crate::model::slot::{Slot, with_number};
use crate::run::engine::Db;
use crate::text::conv::number;
use crate::text::error::{FileError, FileErrors};
use base::Scalar;
use std::sync::Arc;

/// So many errors of a file are told.
const ERRORS_LIMIT: usize = 100;

/// The database before a file, as far as the file has changed it.
pub(super) struct Undo {
    /// What is wrong with the file so far.
    pub(super) errors: Vec<FileError>,
    /// Errors beyond those.
    untold: usize,
    records: RecId,
    links: usize,
    texts: usize,
    schema: Arc<Schema>,
    /// Of records that were there before, oldest first.
    changes: Vec<Change>,
}

enum Change {
    /// A field and whether the record was undefined.
    Field {
        rec: RecId,
        field: u16,
        old: Old,
        udf: u8,
    },
    Info {
        rec: RecId,
        tags: Vec<(String, String)>,
    },
    Removed(RecId),
    Alias(u32),
}

enum Old {
    Scalar(Scalar),
    Text(Vec<u8>),
}

impl Undo {
    pub(super) fn begin(db: &Db) -> Self {
        Self {
            errors: Vec::new(),
            untold: 0,
            records: db.records.common.end(),
            links: db.links.pending.links.len(),
            texts: db.links.pending.text.len(),
            schema: Arc::clone(&db.records.schema),
            changes: Vec::new(),
        }
    }

    /// Something in the file is wrong; the rest of it is read all the same, for whoever mends it wants to know of all.
    pub(super) fn wrong(&mut self, error: FileError) {
        match self.errors.len() {
            0..ERRORS_LIMIT => self.errors.push(error),
            _ => self.untold += 1,
        }
    }

    /// A field is about to be written.
    pub(super) fn field(&mut self, db: &mut Db, rec: RecId, field: u16) {
        if rec >= self.records {
            return;
        }
        let udf = db.records[rec].udf;
        let slot = db.records.slot(rec, field);
        let old = match &slot {
            Slot::Text(text) => Some(Old::Text(text.bytes().to_vec())),
            // Links are written when the database starts.
            slot => slot.scalar().map(Old::Scalar),
        };
        let Some(old) = old else { return };
        self.changes.push(Change::Field { rec, field, old, udf });
    }

    /// A record's tags are about to be written.
    pub(super) fn info(&mut self, rec: RecId, tags: &[(String, String)]) {
        if rec < self.records {
            self.changes.push(Change::Info { rec, tags: tags.to_vec() });
        }
    }

    /// A record was removed.
    pub(super) fn removed(&mut self, rec: RecId) {
        self.changes.push(Change::Removed(rec));
    }

    /// A name, by its number, became an alias.
    pub(super) fn alias(&mut self, name: u32) {
        self.changes.push(Change::Alias(name));
    }

    /// Leaves the database as the file has made it, or, where it is strict and something was wrong, as it was before.
    pub(super) fn end(mut self, db: &mut Db) -> Result<(), FileErrors> {
        let Some(last) = self.errors.last_mut() else { return Ok(()) };
        if self.untold > 0 {
            last.what = format!("{}; the file has {} more errors", last.what, self.untold);
        }
        if !db.strict {
            return Err(FileErrors(self.errors));
        }
        for change in self.changes.into_iter().rev() {
            match change {
                Change::Field { rec, field, old, udf } => {
                    db.records[rec].udf = udf;
                    put_back(db.records.slot(rec, field), old);
                }
                Change::Info { rec, tags } => drop(db.records.info.insert(rec, tags)),
                Change::Removed(rec) => {
                    db.records[rec].removed = false;
                    // The file may have given its name to another one.
                    let name = db.records.name(rec).to_owned();
                    db.records.names.add(name.as_bytes(), rec);
                }
                Change::Alias(name) => db.records.names.free(name),
            }
        }
        db.records.common.since_mut(self.records).iter_mut().for_each(|common| common.removed = true);
        db.links.pending.links.truncate(self.links);
        db.links.pending.text.truncate(self.texts);
        db.records.info.retain(|rec, _| *rec < self.records);
        db.records.schema = self.schema;
        Err(FileErrors(self.errors))
    }
}

fn put_back(slot: Slot<'_>, old: Old) {
    match (slot, old) {
        (Slot::Text(slot), Old::Text(old)) => slot.set(&old),
        (Slot::Str(slot), Old::Scalar(Scalar::String(old))) => *slot = old,
        (slot, Old::Scalar(old)) => with_number!(slot, place => *place = number(old).unwrap_or_default(), _ => {}),
        _ => {}
    }
}
