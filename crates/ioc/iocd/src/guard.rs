//! Access security at run time: the rules and their inputs, which are links like those of records.

use crate::bridge::Holder;
use base::{Alarm, Severity, Value};
use ca::server::{Access, Peer};
use db::{Channel, Db, FieldInfo, Grant, RecId, RemoteId, RemoteRequest, Rights, Security};

/// Holder of the links of the rules' inputs, like a shard that holds the links of its records.
pub(crate) const GUARD: Holder = Some(usize::MAX);

/// Connection state of an input's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Never,
    Now,
    Before,
}

/// Access rules of this IOC. Without rules, every client has full access.
#[derive(Default)]
pub struct Guard {
    rules: Option<Security>,
    /// Whether hosts are identified by the address of their connection instead of the name that the client reports.
    by_address: bool,
    /// Monitored inputs by group and letter. Their links are numbered from `first` on.
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

    /// Sets new rules. Call [`follow`](Self::follow) next.
    pub(crate) fn set(&mut self, rules: Security, by_address: bool) {
        self.rules = Some(rules);
        self.by_address = by_address;
        self.changed = true;
    }

    /// Requests to connect the inputs, to records of this IOC or of another. The inputs keep their values until updates
    /// arrive.
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
            asked.push(RemoteRequest::Connect { id, name, monitor: true, pva: None });
        }
        asked
    }

    /// Sets the value of an input; `None` if it is disconnected.
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

    /// Names of the inputs and their connection states.
    pub(crate) fn inputs(&self) -> Vec<(String, Reached)> {
        let groups = self.rules.iter().flat_map(Security::groups);
        let names = groups.flat_map(|group| group.inputs.iter().map(|it| it.channel.clone()));
        names.zip(self.watched.iter().map(|(.., reached)| *reached)).collect()
    }

    /// Whether rights may have changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Rights that the rules grant; `None` without rules.
    #[must_use]
    pub fn rights(&self, db: &Db, record: RecId, level: u8, peer: Peer<'_>) -> Option<Rights> {
        let rules = self.rules.as_ref()?;
        let group = rules.group_of(db.access_group(record));
        Some(rules.rights(group, level, peer.user, self.host(peer)))
    }

    /// Host name or address by which the rules identify a client.
    #[must_use]
    pub fn host<'a>(&self, peer: Peer<'a>) -> &'a str {
        if self.by_address { peer.address.rsplit_once(':').map_or(peer.address, |(ip, _)| ip) } else { peer.host }
    }

    /// Access of a client to a channel.
    #[must_use]
    pub fn access(&self, db: &Db, channel: &Channel, info: &FieldInfo, peer: Peer<'_>) -> Access {
        let grant = self.rights(db, channel.record, info.level, peer).map_or(Grant::Write, |rights| rights.grant);
        Access { read: grant >= Grant::Read, write: grant >= Grant::Write && info.writable }
    }
}
