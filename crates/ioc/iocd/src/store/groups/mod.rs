//! Groups of PVAccess: fields of several records as one structure.
//!
//! A request on a group becomes at most one job per owner of its records, so what an owner has is read or written without a
//! scan in between. Jobs to an owner keep their order. A write that needs several rounds holds later requests on its group until
//! it is complete, so that no client sees a part of it.

mod read;
mod report;
mod write;

#[cfg(test)]
mod tests;

use super::{Backend, Store};
use ca::server::{Peer, Post};
use pva::codec::{Mask, Status, Struct, Value as Tree};
use pva::group::{Definitions, Group, Mapping};
use pva::nt::{Hints, Shape};
use pva::server::{self, Access, Opened, Put, Snapshot};
use read::Reading;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use write::Writing;

pub(crate) use write::completion_of;

/// Handles of groups have this bit. Those of fields are below it.
const GROUPS: u64 = 1 << 32;
/// Maximum number of members of an atomic group that one thread with scans owns, so that a job takes a bounded time.
const MEMBERS_MAX: usize = 64;
/// Maximum number of requests that wait for a write to a group.
const WAITING_MAX: usize = 256;

/// A result for the server of PVAccess.
pub(crate) enum GroupResult {
    /// The answer to a read.
    Answer(server::Token, Result<Snapshot, Status>),
    /// The answer to a write.
    Written(server::Token, Put),
    /// A changed value.
    Post(u64, Snapshot),
}

/// All groups, with the requests in progress.
#[derive(Default)]
pub(crate) struct Groups {
    list: Vec<Option<State>>,
    by_name: BTreeMap<String, usize>,
    /// Groups and members by the handle of a field.
    by_field: HashMap<u64, Vec<(usize, usize)>, base::NumberHash>,
    calls: HashMap<u64, Call, base::NumberHash>,
    next_call: u64,
    /// Writes by the token of a completion that they wait for.
    completions: HashMap<u64, u64, base::NumberHash>,
    next_completion: u64,
    results: VecDeque<GroupResult>,
    warnings: Vec<String>,
}

/// A group with its values.
struct State {
    group: Group,
    /// Handles of the members' fields.
    fields: Vec<Option<u64>>,
    hints: Vec<Hints>,
    current: Arc<Tree>,
    /// Number of monitors.
    monitors: u32,
    /// Parts of the members to read for the next update, as bits of their layouts.
    due: Vec<u64>,
    /// A read for an update is in progress.
    updates: bool,
    /// A write with several rounds is in progress. Requests wait for its end.
    held: bool,
    waiting: VecDeque<Waiting>,
}

/// A request that waits for a write.
enum Waiting {
    Read(server::Token, bool),
    Write(Box<Writing>),
}

/// A request with jobs in progress.
enum Call {
    Read(Reading),
    Write(Box<Writing>),
}

impl Groups {
    fn get(&self, handle: u64) -> Option<&State> {
        self.list.get(index_of(handle)?)?.as_ref()
    }

    /// The type of a group.
    pub(crate) fn ty(&self, handle: u64) -> Option<Arc<Struct>> {
        self.get(handle).map(|state| state.group.ty().clone())
    }

    /// Whether a name is that of a group.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The names of all groups.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The next result.
    pub(crate) fn next_result(&mut self) -> Option<GroupResult> {
        self.results.pop_front()
    }

    /// Warnings about the last write.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn call(&mut self, call: Call) -> u64 {
        self.next_call += 1;
        self.calls.insert(self.next_call, call);
        self.next_call
    }
}

/// Whether a handle is that of a group.
pub(crate) const fn is_group(handle: u64) -> bool {
    handle & GROUPS != 0
}

fn index_of(handle: u64) -> Option<usize> {
    is_group(handle).then_some((handle & !GROUPS) as usize)
}

/// An atomic group has more fields of one thread than a job may read.
#[derive(Debug, thiserror::Error)]
#[error(
    "found {count} fields that the thread of \"{owner}\" owns, expected at most {MEMBERS_MAX} in an atomic group\n  try: \"+atomic\": false"
)]
struct TooMany {
    count: usize,
    owner: String,
}

/// Access rules apply to the IOC as they do to a local user without a name.
const SELF: Peer<'_> = Peer { user: "", host: "", address: "" };

impl Store {
    /// Defines groups. Returns what is wrong with definitions. Groups without a fault are served.
    pub(crate) fn define_groups(&mut self, definitions: Definitions) -> Vec<String> {
        let built =
            definitions.build(|name| self.db.find(name).is_ok(), |channel| super::pva::shape_of(&self.db, channel));
        let mut faults = built.faults;
        for group in built.groups {
            let name = group.name.clone();
            if let Err(fault) = self.add_group(group) {
                faults.push(format!("group \"{name}\": {fault}"));
            }
        }
        faults
    }

    /// Checks definitions of groups without serving them.
    pub(crate) fn check_groups(db: &db::Db, definitions: Definitions) -> Vec<String> {
        let shape = |channel: &str| super::pva::shape_of(db, channel);
        definitions.build(|name| db.find(name).is_ok(), shape).faults
    }

    fn add_group(&mut self, group: Group) -> Result<(), TooMany> {
        let mut owned: HashMap<usize, usize> = HashMap::new();
        let channels: Vec<Option<db::Channel>> = group
            .members
            .iter()
            .map(|member| super::pva::channel_of(&self.db, member.channel.as_deref()?.as_bytes()))
            .collect();
        for channel in channels.iter().flatten() {
            if let Some(location) = self.db.location_of(channel.record) {
                *owned.entry(location.shard).or_default() += 1;
            }
        }
        if let Some((shard, count)) = owned.iter().find(|(_, count)| **count > MEMBERS_MAX && group.atomic) {
            let owner = self.shards.get(*shard).map_or("a scan group", |shard| shard.name.as_str());
            return Err(TooMany { count: *count, owner: owner.to_owned() });
        }
        let index = self.groups.list.len();
        let mut fields = Vec::new();
        let shown = |channel: &Option<db::Channel>| {
            channel.as_ref().map_or(Hints::NONE, |channel| super::pva::hints(&self.db, channel))
        };
        let hints = channels.iter().map(shown).collect();
        for (member, channel) in channels.into_iter().enumerate() {
            let opened = channel.and_then(|channel| self.open_channel(channel, SELF));
            if let Some(opened) = opened {
                self.groups.by_field.entry(opened.handle).or_default().push((index, member));
            }
            fields.push(opened.map(|opened| opened.handle));
        }
        let state = State {
            current: Arc::new(group.template().clone()),
            monitors: 0,
            due: vec![0; group.members.len()],
            updates: false,
            held: false,
            waiting: VecDeque::new(),
            fields,
            hints,
            group,
        };
        self.groups.by_name.insert(state.group.name.clone(), index);
        self.groups.list.push(Some(state));
        Ok(())
    }

    /// Opens a group for a client.
    pub(crate) fn open_group(&self, name: &str, peer: Peer<'_>) -> Option<Opened> {
        let handle = *self.groups.by_name.get(name)? as u64 | GROUPS;
        Some(Opened { handle, watch: handle, shape: Shape::Structure, access: self.group_access(handle, peer) })
    }

    /// A client's rights to a group: it may read if it may read all members. Writes are checked for each member.
    pub(crate) fn group_access(&self, handle: u64, peer: Peer<'_>) -> Access {
        let fields = self.groups.get(handle).map_or(&[][..], |state| &state.fields);
        let channels = fields.iter().flatten().filter_map(|field| self.channel(*field));
        let read = channels.into_iter().all(|channel| {
            let info = self.db.info(channel);
            self.guard.access(&self.db, channel, &info, peer).read
        });
        Access { read, write: true }
    }

    /// The name of a channel, for reports.
    pub(crate) fn name_of_handle(&self, handle: u64) -> String {
        match self.groups.get(handle) {
            Some(state) => state.group.name.clone(),
            None => self.channel(handle).map_or_else(String::new, |channel| self.db.channel_name(channel)),
        }
    }

    /// A monitor of a group starts.
    pub(crate) fn watch_group(&mut self, handle: u64) {
        for field in self.count_monitor(handle, true) {
            Backend::watch(self, field);
        }
    }

    /// A monitor of a group ended.
    pub(crate) fn unwatch_group(&mut self, handle: u64) {
        for field in self.count_monitor(handle, false) {
            Backend::unwatch(self, field);
        }
    }

    /// Counts a monitor. Returns the fields whose posts are needed from now on, or no longer.
    fn count_monitor(&mut self, handle: u64, starts: bool) -> Vec<u64> {
        let state = index_of(handle).and_then(|index| self.groups.list.get_mut(index)?.as_mut());
        let Some(state) = state else { return Vec::new() };
        let before = state.monitors;
        state.monitors = if starts { before + 1 } else { before.saturating_sub(1) };
        if before.max(state.monitors) != 1 {
            return Vec::new();
        }
        let members = state.group.members.iter().zip(&state.fields);
        let posted = members.filter(|(member, _)| !member.triggers.is_empty() || member.mapping == Mapping::Scalar);
        posted.filter_map(|(_, field)| *field).collect()
    }

    /// Forwards a post of a field to the groups that it is in.
    pub(crate) fn posted_to_groups(&mut self, post: &Post) {
        let Some(places) = self.groups.by_field.get(&post.watch).cloned() else { return };
        for (index, member) in places {
            self.posted_to_group(index, member, post);
        }
    }

    /// Groups with fields of a record that is removed end. Returns their handles.
    pub(crate) fn drop_groups(&mut self, gone: &[u64]) -> Vec<u64> {
        let is_gone = |state: &State| state.fields.iter().flatten().any(|field| gone.contains(field));
        let states = self.groups.list.iter().enumerate();
        let dead = states.filter(|(_, state)| state.as_ref().is_some_and(is_gone));
        dead.map(|(index, _)| index as u64 | GROUPS).collect()
    }

    /// Forgets a group. Its monitors have ended.
    pub(crate) fn end_group(&mut self, handle: u64) {
        let state = index_of(handle).and_then(|index| self.groups.list.get_mut(index)?.take());
        let Some(state) = state else { return };
        self.groups.by_name.remove(&state.group.name);
        let index = index_of(handle).unwrap_or(usize::MAX);
        for field in state.fields.into_iter().flatten() {
            if let Some(places) = self.groups.by_field.get_mut(&field) {
                places.retain(|(group, _)| *group != index);
                if places.is_empty() {
                    self.groups.by_field.remove(&field);
                }
            }
            Backend::close(self, field);
        }
        for waiting in state.waiting {
            self.groups.results.push_back(match waiting {
                Waiting::Read(token, _) => GroupResult::Answer(token, Err(Status::error("the group has ended"))),
                Waiting::Write(writing) => {
                    GroupResult::Written(writing.token, Put::Failed("the group has ended".into()))
                }
            });
        }
    }

    /// Continues with the requests that waited for a write.
    fn release_group(&mut self, index: usize) {
        let Some(Some(state)) = self.groups.list.get_mut(index) else { return };
        state.held = false;
        while let Some(Some(state)) = self.groups.list.get_mut(index)
            && !state.held
        {
            match state.waiting.pop_front() {
                None => break,
                Some(Waiting::Read(token, atomic)) => {
                    if let Some(snapshot) = self.start_read(index, token, atomic) {
                        self.groups.results.push_back(GroupResult::Answer(token, Ok(snapshot)));
                    }
                }
                Some(Waiting::Write(writing)) => self.start_writing(*writing),
            }
        }
        self.update_group(index, None);
    }
}

/// Marks and value of a read: constants and the option are part of it.
fn complete(state: &State, mut marks: Mask, atomic: bool) -> Snapshot {
    marks.add(state.group.constants());
    marks.set(pva::group::ATOMIC_BIT);
    let mut value = state.current.clone();
    if atomic != state.group.atomic {
        pva::group::set_atomic(Arc::make_mut(&mut value), atomic);
    }
    Snapshot { marks, value }
}
