//! Writes to groups: all members are checked before the first one is written.

use super::read::chunks;
use super::{Call, GroupResult, WAITING_MAX, Waiting, index_of};
use crate::bridge::Holder;
use crate::execute::members;
use crate::job::{Logged, MemberAction, MemberPart, MemberStep};
use crate::store::pva::Unfit;
use crate::store::{Backend, NO_ROOM, Store, log_part};
use base::FieldType;
use ca::encode::{Needs, Reading};
use ca::server::{Peer, PutOutcome, Token};
use pva::codec::{Mask, Value as Tree};
use pva::group::{MemberWrite, Refused};
use pva::server::{self, Put};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Tokens with this bit, among those of PVAccess, belong to members of groups.
const COMPLETIONS: u64 = 1 << 61;

/// The completion of a token, if it belongs to a member of a group.
pub(crate) const fn completion_of(token: Token) -> Option<u64> {
    if token.0 >> 61 == 3 { Some(token.0) } else { None }
}

/// A write in progress.
pub(super) struct Writing {
    group: usize,
    pub(super) token: server::Token,
    /// The members to write, in their order, with the owners of their fields. Those in a job are absent.
    parts: Vec<(Holder, Option<MemberPart>)>,
    /// Names of the fields.
    names: Vec<String>,
    /// Names of those that were written.
    written: Vec<String>,
    /// The current round is a check of all members.
    checks: bool,
    /// The rounds that follow: indexes of parts.
    rounds: VecDeque<Vec<usize>>,
    /// Number of jobs without an answer.
    jobs: usize,
    /// The reason why a member was refused.
    failed: Option<String>,
    /// Members whose processing has not ended.
    pending: HashSet<u64>,
}

/// The reason why a group is not written.
#[derive(Debug, thiserror::Error)]
enum NoWrite {
    #[error("the group has ended")]
    Ended,
    #[error(transparent)]
    Value(#[from] Refused),
    #[error("{0}: {1}")]
    Member(String, NoMember),
}

/// The reason why a member of a group is not written.
#[derive(Debug, thiserror::Error)]
enum NoMember {
    #[error("the record was removed")]
    Removed,
    #[error("no write access to {0}")]
    Access(String),
    #[error("found a link, expected a value field")]
    Link,
    #[error(transparent)]
    Value(#[from] Unfit),
    #[error(transparent)]
    NotFound(#[from] db::FindError),
}

impl Store {
    /// Writes members of a group. The result may follow later.
    pub(crate) fn write_group(
        &mut self,
        handle: u64,
        peer: Peer<'_>,
        (marks, value): (&Mask, &Tree),
        token: server::Token,
        wait: bool,
    ) -> Put {
        let Some(group) = index_of(handle) else { return Put::Failed("the group has ended".into()) };
        let (parts, names) = match self.plan_write(handle, peer, (marks, value), wait) {
            Ok(planned) => planned,
            Err(why) => return Put::Failed(why.to_string()),
        };
        if parts.is_empty() {
            return Put::Done;
        }
        let rounds = rounds(self.groups.list[group].as_ref().map_or(&[][..], |state| &state.group.members), &parts);
        let owners: HashSet<Holder> = parts.iter().map(|(owner, _)| *owner).collect();
        let checks = owners.len() > 1;
        let parts = parts.into_iter().map(|(owner, part)| (owner, Some(part))).collect();
        let writing = Writing {
            group,
            token,
            parts,
            names,
            written: Vec::new(),
            checks,
            rounds,
            jobs: 0,
            failed: None,
            pending: HashSet::new(),
        };
        if let Some(Some(state)) = self.groups.list.get_mut(group)
            && state.held
        {
            if state.waiting.len() >= WAITING_MAX {
                return Put::Failed(format!("{WAITING_MAX} requests wait for a write to the group"));
            }
            state.waiting.push_back(Waiting::Write(Box::new(writing)));
            return Put::Sent;
        }
        self.start_writing(writing);
        // A write to records of this thread alone has ended already.
        match self.groups.results.back() {
            Some(GroupResult::Written(written, _)) if *written == token => match self.groups.results.pop_back() {
                Some(GroupResult::Written(_, put)) => put,
                _ => Put::Sent,
            },
            _ => Put::Sent,
        }
    }

    /// The members to write with their owners, and their names.
    #[expect(clippy::type_complexity, reason = "both lists are used at once by the only caller")]
    fn plan_write(
        &mut self,
        handle: u64,
        peer: Peer<'_>,
        (marks, value): (&Mask, &Tree),
        wait: bool,
    ) -> Result<(Vec<(Holder, MemberPart)>, Vec<String>), NoWrite> {
        let state = self.groups.get(handle).ok_or(NoWrite::Ended)?;
        let (writes, ignored) = state.group.writes(marks, value)?;
        let members: Vec<(String, Option<u64>, Option<String>)> = writes
            .iter()
            .map(|write| {
                let member = &state.group.members[write.member];
                (member.name.clone(), state.fields[write.member], member.channel.clone())
            })
            .collect();
        self.groups.warnings = ignored.iter().map(|name| format!("{name}: no putorder, ignore write")).collect();
        let (mut parts, mut names) = (Vec::new(), Vec::new());
        for (write, (name, field, channel)) in writes.into_iter().zip(members) {
            let Some(field) = field else { continue };
            let part = self.plan_member(write, field, peer, wait);
            let part = part.map_err(|why| NoWrite::Member(name.clone(), why))?;
            parts.push(part);
            names.push(channel.unwrap_or(name));
        }
        Ok((parts, names))
    }

    fn plan_member(
        &mut self,
        write: MemberWrite,
        field: u64,
        peer: Peer<'_>,
        wait: bool,
    ) -> Result<(Holder, MemberPart), NoMember> {
        let entry = self.entry(field).ok_or(NoMember::Removed)?;
        let channel = entry.channel.clone();
        let (owner, there) = entry.there();
        let mut there = there.clone();
        let info = self.db.info(&channel);
        if !self.guard.access(&self.db, &channel, &info, peer).write {
            return Err(NoMember::Access(self.db.channel_name(&channel)));
        }
        let trapped = self.put_log.is_some() && self.is_trapped(&channel, peer);
        let (mut log, mut reading) = (None, Reading { value: NO_ROOM, ..Reading::default() });
        let action = match write.value {
            Some(_) if info.kind == FieldType::Link => return Err(NoMember::Link),
            Some(written) => {
                let value = self.value_of(field, written)?;
                if trapped && let Some(entry) = self.entry(field) {
                    log = Some(Box::new(Logged::new(peer, self.db.channel_name(&channel), entry.room())));
                    reading.value = entry.room();
                }
                MemberAction::Value(value)
            }
            None => {
                let record = self.db.name_of(channel.record).to_owned();
                let process = self.db.find(&format!("{record}.PROC"))?;
                let always = process.field == channel.field;
                let passive = self.db.fields(channel.record).get(usize::from(channel.field));
                let processes = always || passive.is_some_and(|def| def.process_passive);
                there.field = process.field;
                there.long_string = false;
                there.filters = Default::default();
                if processes { MemberAction::Process { always } } else { MemberAction::Nothing }
            }
        };
        let notify = wait.then(|| {
            self.groups.next_completion += 1;
            COMPLETIONS | 1 << 62 | self.groups.next_completion
        });
        let part = MemberPart {
            member: write.member,
            bits: 0,
            channel: there,
            needs: Needs::Value,
            reading,
            write: Some(action),
            notify,
            log,
            outcome: Ok(PutOutcome::Done),
            written: false,
        };
        Ok((owner, part))
    }

    /// Starts a write.
    pub(super) fn start_writing(&mut self, mut writing: Writing) {
        if writing.rounds.len() > 1
            && let Some(Some(state)) = self.groups.list.get_mut(writing.group)
        {
            state.held = true;
        }
        let first = match writing.checks {
            true => (0..writing.parts.len()).collect(),
            false => writing.rounds.pop_front().unwrap_or_default(),
        };
        self.round(Box::new(writing), first);
    }

    /// Executes a round: on this thread at once, on others with jobs.
    fn round(&mut self, mut writing: Box<Writing>, indexes: Vec<usize>) {
        let step = if writing.checks { MemberStep::Check } else { MemberStep::Write };
        let mut owners: BTreeMap<Holder, Vec<MemberPart>> = BTreeMap::new();
        for index in indexes {
            let (owner, part) = &mut writing.parts[index];
            if let Some(mut part) = part.take() {
                // The member's index in the write, so that it returns to its place.
                part.bits = index as u64;
                owners.entry(*owner).or_default().push(part);
            }
        }
        let mut here = owners.remove(&None);
        if let Some(parts) = &mut here {
            members(&mut self.db, parts, step, self.now);
        }
        let jobs: Vec<(usize, Vec<MemberPart>)> = owners
            .into_iter()
            .filter_map(|(owner, parts)| Some((owner?, parts)))
            .flat_map(|(shard, parts)| chunks(shard, parts))
            .collect();
        writing.jobs = jobs.len() + 1;
        self.groups.next_call += 1;
        let call = self.groups.next_call;
        jobs.into_iter().for_each(|(shard, parts)| self.send_members(call, shard, parts, step));
        self.write_done(call, writing, here.unwrap_or_default());
    }

    /// Members of a write were checked or written.
    pub(super) fn write_done(&mut self, call: u64, mut writing: Box<Writing>, parts: Vec<MemberPart>) {
        for mut part in parts {
            let index = part.bits as usize;
            let name = writing.names.get(index).cloned().unwrap_or_default();
            let failed = match &part.outcome {
                Err(error) => Some(error.to_string()),
                Ok(PutOutcome::Failed) => Some("the processing of the record failed".into()),
                Ok(PutOutcome::Later) => {
                    writing.pending.extend(part.notify);
                    None
                }
                Ok(_) => None,
            };
            if let Some(failed) = failed {
                writing.failed.get_or_insert_with(|| format!("{name}: {failed}"));
            }
            if part.written {
                writing.written.push(name);
            }
            if !writing.checks {
                log_part(self.put_log.as_ref(), self.now, &mut part);
            }
            if let Some((_, place)) = writing.parts.get_mut(index) {
                *place = Some(part);
            }
        }
        writing.jobs -= 1;
        if writing.jobs > 0 {
            self.groups.calls.insert(call, Call::Write(writing));
            return;
        }
        if writing.failed.is_none() {
            writing.checks = false;
            if let Some(next) = writing.rounds.pop_front() {
                return self.round(writing, next);
            }
        }
        self.written(call, writing);
    }

    /// All rounds of a write have ended. Processing may continue.
    fn written(&mut self, call: u64, writing: Box<Writing>) {
        let (group, token) = (writing.group, writing.token);
        if writing.failed.is_none() && !writing.pending.is_empty() {
            for completion in &writing.pending {
                self.groups.completions.insert(*completion, call);
            }
            self.groups.calls.insert(call, Call::Write(writing));
        } else {
            let put = match writing.failed {
                Some(reason) if writing.written.is_empty() => Put::Failed(reason),
                Some(reason) => Put::Failed(format!("{reason}; written: {}", writing.written.join(", "))),
                None => Put::Done,
            };
            self.groups.results.push_back(GroupResult::Written(token, put));
        }
        if matches!(self.groups.list.get(group), Some(Some(state)) if state.held) {
            self.release_group(group);
        }
    }

    /// The processing of a member has ended.
    pub(crate) fn group_completed(&mut self, completion: u64, ok: bool) {
        let Some(call) = self.groups.completions.remove(&completion) else { return };
        let Some(Call::Write(mut writing)) = self.groups.calls.remove(&call) else { return };
        writing.pending.remove(&completion);
        if !ok {
            writing.failed.get_or_insert_with(|| "a record could not complete the write".into());
        }
        if !writing.pending.is_empty() {
            self.groups.calls.insert(call, Call::Write(writing));
            return;
        }
        let put = writing.failed.map_or(Put::Done, Put::Failed);
        self.groups.results.push_back(GroupResult::Written(writing.token, put));
    }

    /// The completion of a write is no longer needed.
    pub(crate) fn forget_group(&mut self, token: server::Token) {
        let calls = self.groups.calls.iter();
        let pending: Vec<u64> = calls
            .filter_map(|(_, call)| match call {
                Call::Write(writing) if writing.token == token => Some(writing.pending.iter().copied()),
                _ => None,
            })
            .flatten()
            .collect();
        for completion in pending {
            self.groups.completions.remove(&completion);
            Backend::forget(self, Token(completion));
        }
        self.groups
            .calls
            .retain(|_, call| !matches!(call, Call::Write(writing) if writing.token == token && writing.jobs == 0));
    }
}

/// The rounds of a write. Members of one owner are written in one round. Those of several owners are too, unless their order
/// differs.
fn rounds(members: &[pva::group::Member], parts: &[(Holder, MemberPart)]) -> VecDeque<Vec<usize>> {
    let mut rounds: VecDeque<(Option<i64>, HashSet<Holder>, Vec<usize>)> = VecDeque::new();
    for (index, (owner, part)) in parts.iter().enumerate() {
        let order = members.get(part.member).and_then(|member| member.put_order);
        match rounds.back_mut() {
            Some((last, owners, round)) if *last == order || (owners.len() == 1 && owners.contains(owner)) => {
                *last = order;
                owners.insert(*owner);
                round.push(index);
            }
            _ => rounds.push_back((order, HashSet::from([*owner]), vec![index])),
        }
    }
    rounds.into_iter().map(|(.., round)| round).collect()
}
