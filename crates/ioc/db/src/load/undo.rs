//! Undo log of a file, applied when the file is rejected.

use crate::model::id::RecId;
use crate::model::schema::Schema;
use crate::model::slot::{Slot, with_number};
use crate::run::engine::Db;
use crate::text::conv::number;
use crate::text::error::{FileError, FileErrors};
use base::Scalar;
use std::sync::Arc;

/// Maximum number of errors reported per file.
const ERRORS_LIMIT: usize = 100;

/// Previous state of everything that the file has changed.
pub(super) struct Undo {
    /// Errors found so far, at most [`ERRORS_LIMIT`].
    pub(super) errors: Vec<FileError>,
    /// Number of errors beyond the limit.
    untold: usize,
    records: RecId,
    links: usize,
    texts: usize,
    schema: Arc<Schema>,
    /// Changes to existing records, oldest first.
    changes: Vec<Change>,
}

enum Change {
    /// A field's previous value, and whether the record was undefined.
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

    /// Records an error. Loading continues, so that one run reports all errors.
    pub(super) fn wrong(&mut self, error: FileError) {
        match self.errors.len() {
            0..ERRORS_LIMIT => self.errors.push(error),
            _ => self.untold += 1,
        }
    }

    /// Called before a field is written.
    pub(super) fn field(&mut self, db: &mut Db, rec: RecId, field: u16) {
        if rec >= self.records {
            return;
        }
        let udf = db.records[rec].udf;
        let slot = db.records.slot(rec, field);
        let old = match &slot {
            Slot::Text(text) => Some(Old::Text(text.bytes().to_vec())),
            // Links are set at database start. Until then, dropping the pending links is enough.
            slot => slot.scalar().map(Old::Scalar),
        };
        let Some(old) = old else { return };
        self.changes.push(Change::Field { rec, field, old, udf });
    }

    /// Called before a record's tags are written.
    pub(super) fn info(&mut self, rec: RecId, tags: &[(String, String)]) {
        if rec < self.records {
            self.changes.push(Change::Info { rec, tags: tags.to_vec() });
        }
    }

    /// Called after a record is removed.
    pub(super) fn removed(&mut self, rec: RecId) {
        self.changes.push(Change::Removed(rec));
    }

    /// Called after a name became an alias, with the number of the name.
    pub(super) fn alias(&mut self, name: u32) {
        self.changes.push(Change::Alias(name));
    }

    /// Keeps the changes, or reverts them if the database is strict and the file has errors.
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
                    // The file may have assigned the name to another record.
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
