//! Access security at work: the rules with their inputs, which are links as those of records are.

use crate::bridge::Holder;
use base::{Alarm, Severity, Value};
use ca::server::{Access, Peer};
use db::{Channel, Db, FieldInfo, Grant, RecId, RemoteId, RemoteRequest, Rights, Security};

/// Holds the links of the rules' inputs, as a shard holds those of its records.
pub(crate) const GUARD: Holder = Some(usize::MAX);

/// Whether an input's channel is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Never,
    Now,
    Before,
}

/// The rules of this IOC; without rules everybody may do everything.
#[derive(Default)]
pub struct Guard {
    rules: Option<Security>,
    /// Whether clients' hosts are known by the address of their connection instead of the name that they give.
    by_address: bool,
    /// The inputs that are followed, by group and letter; their links are numbered from `first` on.
    watched: Vec<(usize, u8, Reached)>,
    first: u32,
    changed: bool,
}

impl Guard {
    /// The rules, for reports.
    #[must_use]
    pub const fn rules(&self) -> Option<&Security> {
        self.rules.as_ref()
    }

    /// Takes new rules; [`follow`](Self::follow) comes next.
    pub(crate) fn set(&mut self, rules: Security, by_address: bool) {
        self.rules = Some(rules);
        self.by_address = by_address;
        self.changed = true;
    }

    /// What to ask for so that the inputs are followed anew: links to records of this IOC or of another. Until news come
    /// the values stay.
    pub(crate) fn follow(&mut self) -> Vec<RemoteRequest> {
        let old = self.watched.len() as u32;
        let mut asked: Vec<RemoteRequest> =
            (0..old).map(|nth| RemoteRequest::Disconnect { id: RemoteId(self.first + nth) }).collect();
        self.first = self.first.wrapping_add(old);
        self.watched.clear();
        let Some(rules) = &self.rules else { return asked };
        let groups = rules.groups().iter().enumerate();
        let inputs: Vec<(usize, u8, String)> = groups
            .flat_map(|(number, group)| group.inputs.iter().map(move |it| (number, it.letter, it.channel.clone())))
            .collect();
        for (group, letter, name) in inputs {
            let id = RemoteId(self.first.wrapping_add(self.watched.len() as u32));
            self.watched.push((group, letter, Reached::Never));
            asked.push(RemoteRequest::Connect { id, name, monitor: true });
        }
        asked
    }

    /// An input has a value; `None` where it is lost.
    pub(crate) fn update(&mut self, id: RemoteId, value: Option<(&Value, Alarm)>) {
        let watched = self.watched.get_mut(id.0.wrapping_sub(self.first) as usize);
        if let (Some((group, letter, reached)), Some(rules)) = (watched, &mut self.rules) {
            *reached = match (value, *reached) {
                (Some(_), _) => Reached::Now,
                (None, Reached::Never) => Reached::Never,
                (None, _) => Reached::Before,
            };
            let valid = value.filter(|(_, alarm)| alarm.severity != Severity::Invalid);
            let value = valid.and_then(|(value, _)| value.get(0)).and_then(base::Scalar::to_f64);
            self.changed |= rules.set_input(*group, *letter, value);
        }
    }

    /// The inputs by name, and whether each is connected.
    pub(crate) fn inputs(&self) -> Vec<(String, Reached)> {
        let groups = self.rules.iter().flat_map(Security::groups);
        let names = groups.flat_map(|group| group.inputs.iter().map(|it| it.channel.clone()));
        names.zip(self.watched.iter().map(|(.., reached)| *reached)).collect()
    }

    /// Whether anybody's rights may have changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What the rules grant; `None` without rules.
    #[must_use]
    pub fn rights(&self, db: &Db, record: RecId, level: u8, peer: Peer<'_>) -> Option<Rights> {
        let rules = self.rules.as_ref()?;
        let group = rules.group_of(db.access_group(record));
        Some(rules.rights(group, level, peer.user, self.host(peer)))
    }

    /// By what name the rules know a client's host.
    #[must_use]
    pub fn host<'a>(&self, peer: Peer<'a>) -> &'a str {
        if self.by_address { peer.address.rsplit_once(':').map_or(peer.address, |(ip, _)| ip) } else { peer.host }
    }

    /// What a client may do with a channel.
    #[must_use]
    pub fn access(&self, db: &Db, channel: &Channel, info: &FieldInfo, peer: Peer<'_>) -> Access {
        let grant = self.rights(db, channel.record, info.level, peer).map_or(Grant::Write, |rights| rights.grant);
        Access { read: grant >= Grant::Read, write: grant >= Grant::Write && info.writable }
    }
}
