//! Access security at work: the rules with their inputs in the database.

use base::{EventMask, Severity};
use ca::server::{Access, Peer};
use db::{Channel, Db, Event, FieldInfo, Grant, QueueId, RecId, Rights, Security, SubId};

/// Events with a token from here up are of inputs, not of clients' subscriptions.
const INPUT_TOKENS: u64 = 1 << 62;

/// An input of a group, and what follows its channel.
struct Watched {
    group: usize,
    letter: u8,
    sub: Option<SubId>,
}

/// The rules of this IOC; without rules everybody may do everything.
#[derive(Default)]
pub struct Guard {
    rules: Option<Security>,
    /// Whether clients' hosts are known by the address of their connection instead of the name that they give.
    by_address: bool,
    watched: Vec<Watched>,
    changed: bool,
}

impl Guard {
    /// The rules, for reports.
    #[must_use]
    pub const fn rules(&self) -> Option<&Security> {
        self.rules.as_ref()
    }

    /// Takes new rules.
    pub fn set(&mut self, rules: Security, by_address: bool, db: &mut Db, queue: QueueId) {
        self.detach(db);
        self.rules = Some(rules);
        self.by_address = by_address;
        self.attach(db, queue);
        self.changed = true;
    }

    /// Ends following the inputs, before records are removed.
    pub fn detach(&mut self, db: &mut Db) {
        self.watched.drain(..).filter_map(|watched| watched.sub).for_each(|sub| db.unsubscribe(sub));
    }

    /// Follows the inputs that are records of this IOC, from their values of now on. The others stay invalid.
    pub fn attach(&mut self, db: &mut Db, queue: QueueId) {
        let Some(rules) = &mut self.rules else { return };
        self.watched.clear();
        let inputs: Vec<(usize, u8, Option<Channel>)> = rules
            .groups()
            .iter()
            .enumerate()
            .flat_map(|(number, group)| group.inputs.iter().map(move |input| (number, input)))
            .map(|(number, input)| (number, input.letter, db.find(&input.channel).ok()))
            .collect();
        for (group, letter, channel) in inputs {
            let token = INPUT_TOKENS + self.watched.len() as u64;
            let sub = channel
                .as_ref()
                .map(|channel| db.subscribe(queue, channel, EventMask::VALUE | EventMask::ALARM, token));
            let value = channel.and_then(|channel| {
                let valid = db.alarm(channel.record).severity != Severity::Invalid;
                db.get(&channel, 1).get(0).and_then(base::Scalar::to_f64).filter(|_| valid)
            });
            self.changed |= rules.set_input(group, letter, value);
            self.watched.push(Watched { group, letter, sub });
        }
    }

    /// Takes an event if it is of an input.
    pub fn take(&mut self, event: &Event) -> bool {
        let Some(index) = event.token.checked_sub(INPUT_TOKENS) else { return false };
        if let (Some(watched), Some(rules)) = (self.watched.get(index as usize), &mut self.rules) {
            let valid = event.alarm.severity != Severity::Invalid;
            let value = event.value.get(0).and_then(base::Scalar::to_f64).filter(|_| valid);
            self.changed |= rules.set_input(watched.group, watched.letter, value);
        }
        true
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
