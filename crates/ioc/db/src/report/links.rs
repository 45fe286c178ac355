//! Data for reports: links, lock sets, queues.

use crate::model::id::RecId;
use crate::model::link::{LinkKind, MS_BITS, PP};
use crate::model::pva_link::PvaLink;
use crate::model::slot::Slot;
use crate::run::engine::Db;
use crate::run::split::Sets;
use std::collections::HashMap;
use std::sync::Arc;

/// A link field that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Name of the field.
    pub field: String,
    /// Its type: `INLINK`, `OUTLINK`, `FWDLINK`.
    pub dbf: String,
    /// The link as written.
    pub text: String,
    /// The record that a database link leads to.
    pub target: Option<RecId>,
    /// Whether it processes its passive target.
    pub pp: bool,
    /// `NMS`, `MS`, `MSI` or `MSS`.
    pub severity: &'static str,
    /// Whether it is JSON.
    pub json: bool,
    /// Its channel if it uses Channel Access (`CA`, `CP`, `CPP`), even to a record of this database, or PVAccess.
    pub channel: Option<LinkChannel>,
}

/// Channel of a link that uses Channel Access or PVAccess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChannel {
    /// Name of the process variable.
    pub name: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Number of disconnects.
    pub disconnects: u32,
    /// Options of a link over PVAccess; `None` for Channel Access.
    pub pva: Option<Arc<PvaLink>>,
}

impl Db {
    /// A record's links in field order.
    pub fn links_of(&mut self, rec: RecId) -> Vec<LinkInfo> {
        let fields: Vec<(u16, String, String)> = self
            .records
            .type_of(rec)
            .fields
            .iter()
            .enumerate()
            .filter(|(_, def)| def.link_field().is_some())
            .map(|(number, def)| (number as u16, def.name.clone(), def.dbf.clone()))
            .collect();
        let mut links = Vec::new();
        for (number, field, dbf) in fields {
            let Slot::Link(link) = self.records.peek(rec, number) else { continue };
            let brief = link.brief();
            let text = self.link_text(rec, number);
            if text.is_empty() {
                continue;
            }
            let severity = match brief.flags & MS_BITS {
                crate::model::link::MS => "MS",
                crate::model::link::MSI => "MSI",
                crate::model::link::MSS => "MSS",
                _ => "NMS",
            };
            let channel = match brief.kind {
                LinkKind::Remote => self.remote_state(brief.target).map(|(name, connected, disconnects)| {
                    let pva = self.links.remotes.pva(brief.target).cloned();
                    LinkChannel { name: name.to_owned(), connected, disconnects, pva }
                }),
                _ => None,
            };
            links.push(LinkInfo {
                channel,
                field,
                dbf,
                json: text.trim_start().starts_with('{'),
                text,
                target: (brief.kind == LinkKind::Db).then_some(brief.record()),
                pp: brief.flags & PP != 0,
                severity,
            });
        }
        links
    }

    /// All lock sets: records joined by database links, in the order in which they were loaded.
    pub fn lock_set_members(&mut self) -> Vec<Vec<RecId>> {
        let records: Vec<RecId> = self.records().filter(|record| self.location_of(*record).is_none()).collect();
        let mut joined = Sets::of(self.records.common.ids());
        for record in &records {
            for target in self.links_of(*record).into_iter().filter_map(|link| link.target) {
                joined.join(*record, target);
            }
        }
        // Sorted by the first record of each set.
        let (mut sets, mut place) = (Vec::<Vec<RecId>>::new(), HashMap::new());
        for record in records {
            let at = *place.entry(joined.find(record)).or_insert(sets.len());
            sets.resize_with(sets.len().max(at + 1), Vec::new);
            sets[at].push(record);
        }
        sets
    }
}
