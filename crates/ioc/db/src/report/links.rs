//! What reports ask of a database: links, lock sets, queues.

use crate::model::link::{LinkKind, MS_BITS, PP};
use crate::model::slot::Slot;
use crate::run::channel::RecId;
use crate::run::engine::Db;

/// A link field that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Name of the field.
    pub field: String,
    /// Its type: `INLINK`, `OUTLINK`, `FWDLINK`.
    pub dbf: String,
    /// The link as it was written.
    pub text: String,
    /// The record that a database link leads to.
    pub target: Option<RecId>,
    /// Whether it processes its passive target.
    pub pp: bool,
    /// `NMS`, `MS`, `MSI` or `MSS`.
    pub severity: &'static str,
    /// Whether it is JSON.
    pub json: bool,
    /// What it asks for as over Channel Access, also where its record is of this database (`CA`, `CP`, `CPP`).
    pub channel: Option<LinkChannel>,
}

/// What a link reads or writes as over Channel Access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChannel {
    /// Name of the process variable.
    pub name: String,
    /// Whether it can be used now.
    pub connected: bool,
    /// How often it was lost.
    pub disconnects: u32,
}

impl Db {
    /// A record's links, in the order of its fields.
    pub fn links_of(&mut self, record: RecId) -> Vec<LinkInfo> {
        let rec = record.0;
        let fields: Vec<(u16, String, String)> = self
            .type_of(rec)
            .fields
            .iter()
            .enumerate()
            .filter(|(_, def)| def.link_field().is_some())
            .map(|(number, def)| (number as u16, def.name.clone(), def.dbf.clone()))
            .collect();
        let mut links = Vec::new();
        for (number, field, dbf) in fields {
            let Slot::Link(link) = self.peek(rec, number) else { continue };
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
            let channel =
                match brief.kind {
                    LinkKind::Remote => self.remote_state(brief.target).map(|(name, connected, disconnects)| {
                        LinkChannel { name: name.to_owned(), connected, disconnects }
                    }),
                    _ => None,
                };
            links.push(LinkInfo {
                channel,
                field,
                dbf,
                json: text.trim_start().starts_with('{'),
                text,
                target: (brief.kind == LinkKind::Db).then_some(RecId(brief.target)),
                pp: brief.flags & PP != 0,
                severity,
            });
        }
        links
    }

    /// All lock sets: records that database links join, each in the order in which they were loaded.
    pub fn lock_set_members(&mut self) -> Vec<Vec<RecId>> {
        let records: Vec<RecId> = self.records().filter(|record| self.away(*record).is_none()).collect();
        let mut set_of: Vec<u32> = (0..self.common.len() as u32).collect();
        fn top(set_of: &mut [u32], mut rec: u32) -> u32 {
            while set_of[rec as usize] != rec {
                set_of[rec as usize] = set_of[set_of[rec as usize] as usize];
                rec = set_of[rec as usize];
            }
            rec
        }
        for record in &records {
            for target in self.links_of(*record).into_iter().filter_map(|link| link.target) {
                let (a, b) = (top(&mut set_of, record.0), top(&mut set_of, target.0));
                set_of[a.max(b) as usize] = a.min(b);
            }
        }
        let mut sets: std::collections::BTreeMap<u32, Vec<RecId>> = std::collections::BTreeMap::new();
        for record in records {
            sets.entry(top(&mut set_of, record.0)).or_default().push(record);
        }
        sets.into_values().collect()
    }
}
