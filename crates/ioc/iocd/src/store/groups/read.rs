//! Reads of groups, for clients and for updates.

use super::{Call, GROUPS, GroupResult, MEMBERS_MAX, WAITING_MAX, Waiting, complete, index_of};
use crate::execute::read;
use crate::job::{Job, MemberPart, MemberStep, OwnerRequest, Requester};
use crate::store::pva::view;
use crate::store::{Store, entry};
use base::EventMask;
use ca::encode::Needs;
use ca::server::{Post, PutOutcome};
use pva::codec::{Mask, Status};
use pva::nt::View;
use pva::server::{Options, Snapshot, StructureGet, Token};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A read with jobs in progress.
pub(super) struct Reading {
    group: usize,
    /// The client and whether it reads atomically; `None` for an update.
    client: Option<(Token, bool)>,
    marks: Mask,
    /// Number of jobs without an answer.
    jobs: usize,
}

impl Store {
    /// Reads a group for a client.
    pub(crate) fn read_group(&mut self, handle: u64, options: Options, token: Token) -> StructureGet {
        let Some(index) = index_of(handle) else { return StructureGet::Failed(Status::error("this is no group")) };
        let Some(Some(state)) = self.groups.list.get_mut(index) else {
            return StructureGet::Failed(Status::error("the group has ended"));
        };
        let atomic = options.atomic.unwrap_or(state.group.atomic);
        if state.held {
            if state.waiting.len() >= WAITING_MAX {
                return StructureGet::Failed(Status::error(format!(
                    "{WAITING_MAX} requests wait for a write to the group"
                )));
            }
            state.waiting.push_back(Waiting::Read(token, atomic));
            return StructureGet::Sent;
        }
        self.start_read(index, token, atomic).map_or(StructureGet::Sent, StructureGet::Done)
    }

    /// Reads all members. Returns the value, unless it arrives with jobs.
    pub(super) fn start_read(&mut self, index: usize, token: Token, atomic: bool) -> Option<Snapshot> {
        let state = self.groups.list.get(index)?.as_ref()?;
        let all = (0..state.group.members.len()).map(|member| state.group.everything(member)).collect();
        let marks = self.read_parts(index, all, Mask::default(), Some((token, atomic)))?;
        Some(complete(self.groups.list.get(index)?.as_ref()?, marks, atomic))
    }

    /// Reads parts of members into the current value. Returns what was read, unless it arrives with jobs.
    fn read_parts(
        &mut self,
        index: usize,
        parts: Vec<u64>,
        mut marks: Mask,
        client: Option<(Token, bool)>,
    ) -> Option<Mask> {
        let Self { db, entries, groups, pva_reading, .. } = self;
        let state = groups.list.get_mut(index)?.as_mut()?;
        let mut remote: BTreeMap<usize, Vec<MemberPart>> = BTreeMap::new();
        for (member, bits) in parts.into_iter().enumerate().filter(|(_, bits)| *bits != 0) {
            let Some(entry) = state.fields[member].and_then(|field| entry(entries, field)) else { continue };
            let needs = if state.group.needs_properties(member, bits) { Needs::All } else { Needs::Value };
            let (owner, channel) = entry.there();
            let Some(shard) = owner else {
                read(db, channel, needs, pva_reading);
                let view = View { hints: state.hints[member], ..view(pva_reading) };
                state.group.patch(member, bits, &view, Arc::make_mut(&mut state.current), &mut marks);
                continue;
            };
            let mut part = MemberPart {
                member,
                bits,
                channel: channel.clone(),
                needs,
                reading: ca::encode::Reading::default(),
                write: None,
                notify: None,
                log: None,
                outcome: Ok(PutOutcome::Done),
                written: false,
            };
            part.reading.value = entry.room();
            remote.entry(shard).or_default().push(part);
        }
        if remote.is_empty() {
            return Some(marks);
        }
        let jobs: Vec<(usize, Vec<MemberPart>)> =
            remote.into_iter().flat_map(|(shard, parts)| chunks(shard, parts)).collect();
        let call = self.groups.call(Call::Read(Reading { group: index, client, marks, jobs: jobs.len() }));
        for (shard, parts) in jobs {
            self.send_members(call, shard, parts, MemberStep::Read);
        }
        None
    }

    /// Sends a job to the owner of a shard.
    pub(super) fn send_members(&mut self, call: u64, shard: usize, parts: Vec<MemberPart>, step: MemberStep) {
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.send(Job::new(Requester::Group(call), OwnerRequest::Members { parts, step }));
        }
    }

    /// A job of a group has returned.
    pub(crate) fn group_done(&mut self, call: u64, job: Job) {
        let OwnerRequest::Members { parts, .. } = job.request else { return };
        match self.groups.calls.remove(&call) {
            Some(Call::Read(reading)) => self.read_done(call, reading, parts),
            Some(Call::Write(writing)) => self.write_done(call, writing, parts),
            None => {}
        }
    }

    fn read_done(&mut self, call: u64, mut reading: Reading, parts: Vec<MemberPart>) {
        let Some(Some(state)) = self.groups.list.get_mut(reading.group) else { return };
        for part in &parts {
            let value = Arc::make_mut(&mut state.current);
            let view = View { hints: state.hints[part.member], ..view(&part.reading) };
            state.group.patch(part.member, part.bits, &view, value, &mut reading.marks);
        }
        reading.jobs -= 1;
        if reading.jobs > 0 {
            self.groups.calls.insert(call, Call::Read(reading));
            return;
        }
        if let Some((token, atomic)) = reading.client {
            let snapshot = complete(state, reading.marks, atomic);
            self.groups.results.push_back(GroupResult::Answer(token, Ok(snapshot)));
            return;
        }
        state.updates = false;
        self.post_group(reading.group, reading.marks);
        self.update_group(reading.group, None);
    }

    fn post_group(&mut self, index: usize, marks: Mask) {
        let Some(Some(state)) = self.groups.list.get(index) else { return };
        if !marks.is_empty() {
            let snapshot = Snapshot { marks, value: state.current.clone() };
            self.groups.results.push_back(GroupResult::Post(index as u64 | GROUPS, snapshot));
        }
    }

    /// A member of a group was posted. Its targets are read and sent together.
    pub(super) fn posted_to_group(&mut self, index: usize, member: usize, post: &Post) {
        let Some(Some(state)) = self.groups.list.get_mut(index) else { return };
        if state.monitors == 0 {
            return;
        }
        let group = &state.group;
        let all = EventMask::VALUE | EventMask::ALARM;
        let mut any = false;
        if group.is_trigger(member, post.mask) {
            for target in &group.members[member].triggers {
                let event = if *target == member { EventMask(post.mask.0 & all.0) } else { all };
                state.due[*target] |= group.changed(*target, event);
                any = true;
            }
        }
        let properties = group.changed(member, EventMask(post.mask.0 & EventMask::PROPERTY.0));
        state.due[member] |= properties;
        if any || properties != 0 {
            self.update_group(index, Some((member, post)));
        }
    }

    /// Reads and sends what is due, unless a read or write is in progress. The posted field itself need not be read.
    pub(super) fn update_group(&mut self, index: usize, posted: Option<(usize, &Post)>) {
        let Some(Some(state)) = self.groups.list.get_mut(index) else { return };
        if state.held || state.updates || state.due.iter().all(|bits| *bits == 0) {
            return;
        }
        let mut parts = std::mem::replace(&mut state.due, vec![0; state.group.members.len()]);
        let mut marks = Mask::default();
        if let Some((member, post)) = posted
            && !state.group.needs_properties(member, parts[member])
        {
            let view = View::of_value(&post.value, post.alarm, post.stamp, post.note);
            let view = View { hints: state.hints[member], ..view };
            let value = Arc::make_mut(&mut state.current);
            state.group.patch(member, std::mem::take(&mut parts[member]), &view, value, &mut marks);
        }
        state.updates = true;
        if let Some(marks) = self.read_parts(index, parts, marks, None) {
            if let Some(Some(state)) = self.groups.list.get_mut(index) {
                state.updates = false;
            }
            self.post_group(index, marks);
        }
    }
}

/// Parts for one owner, in jobs of a bounded size.
pub(super) fn chunks(shard: usize, mut parts: Vec<MemberPart>) -> Vec<(usize, Vec<MemberPart>)> {
    let mut jobs = Vec::new();
    while parts.len() > MEMBERS_MAX {
        let rest = parts.split_off(MEMBERS_MAX);
        jobs.push((shard, std::mem::replace(&mut parts, rest)));
    }
    jobs.push((shard, parts));
    jobs
}
