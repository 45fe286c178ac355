//! Put callbacks: completion when all processing started by a put has ended.

use crate::model::id::RecId;
use crate::run::channel::Channel;
use crate::run::engine::{Db, Now};
use crate::run::link::remote::RemoteId;
use crate::text::error::PutError;
use base::Value;
use std::collections::{HashMap, VecDeque};

/// A put callback that has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Token given by the caller.
    pub token: u64,
    /// Reason why the value was not written, if the put had to wait and then failed.
    pub error: Option<PutError>,
}

/// State of a put callback after it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyState {
    /// All processing has already ended.
    Done,
    /// In progress. [`Db::take_completed`] will return its token.
    Pending,
}

struct Waiting {
    whom: Requester,
    /// Number of records that have not finished.
    records: u32,
    /// Whether the put itself is still running.
    starting: bool,
}

/// Requester of a put callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A client, with the token that it gave.
    Client(u64),
    /// A record of this database that processes its source before reading it (Async Soft Channel).
    Reader(RecId),
    /// The holder of a link that writes with completion (Async Soft Channel).
    Link(RemoteId),
}

/// All put callbacks in progress.
#[derive(Default)]
pub(crate) struct Notifies {
    next: u32,
    waiting: HashMap<u32, Waiting>,
    completed: VecDeque<Completed>,
    /// Puts that wait for a record busy with another put.
    queued: Vec<(RecId, Channel, Value, Requester)>,
}

/// Preallocated number of put callbacks.
const ROOM: usize = 1_024;

impl Notifies {
    /// Preallocates memory for typical use.
    pub(crate) fn reserve(&mut self) {
        self.waiting.reserve(ROOM);
        self.completed.reserve(ROOM);
        self.queued.reserve(ROOM);
    }
}

impl Db {
    /// Writes like [`Db::put`] and reports completion when all processing that it started has ended.
    ///
    /// # Errors
    /// As [`Db::put`]. No completion follows then.
    pub fn put_notify(
        &mut self,
        channel: &Channel,
        value: &Value,
        token: u64,
        now: Now,
    ) -> Result<NotifyState, PutError> {
        self.put_notify_for(channel, value, Requester::Client(token), now)
    }

    /// Like [`put_notify`](Self::put_notify), for any requester.
    pub(crate) fn put_notify_for(
        &mut self,
        channel: &Channel,
        value: &Value,
        whom: Requester,
        now: Now,
    ) -> Result<NotifyState, PutError> {
        let rec = channel.record;
        let common = &self.records[rec];
        if common.notify != 0 || (common.pact != 0 && !common.broken) {
            // The record is busy. The put waits and is restarted later, as in EPICS.
            self.check_put(channel)?;
            self.notifies.queued.push((rec, channel.clone(), value.clone(), whom));
            return Ok(NotifyState::Pending);
        }
        let id = self.start_notify(rec, whom);
        let before = self.counters.processed;
        if let Err(error) = self.put(channel, value, now) {
            self.records[rec].notify = 0;
            self.notifies.waiting.remove(&id);
            return Err(error);
        }
        // A put that processed nothing is complete, unless a breakpoint holds the record.
        let held = self.counters.processed != before && self.records.holds_puts(rec);
        if self.records[rec].notify == id && self.records[rec].pact == 0 && !held && !self.waits(rec) {
            self.notify_completion(rec);
        }
        let Some(waiting) = self.notifies.waiting.get_mut(&id) else { return Ok(NotifyState::Done) };
        waiting.starting = false;
        if waiting.records == 0 {
            self.notifies.waiting.remove(&id);
            return Ok(NotifyState::Done);
        }
        Ok(NotifyState::Pending)
    }

    fn start_notify(&mut self, rec: RecId, whom: Requester) -> u32 {
        self.notifies.next = self.notifies.next.wrapping_add(1).max(1);
        let id = self.notifies.next;
        self.notifies.waiting.insert(id, Waiting { whom, records: 1, starting: true });
        self.records[rec].notify = id;
        id
    }

    /// Cancels a put callback. Its completion is not reported.
    pub fn cancel_notify(&mut self, token: u64) {
        let whom = Requester::Client(token);
        self.notifies.queued.retain(|queued| queued.3 != whom);
        let ids: Vec<u32> =
            self.notifies.waiting.iter().filter(|(_, waiting)| waiting.whom == whom).map(|(id, _)| *id).collect();
        for id in ids {
            self.notifies.waiting.remove(&id);
            for common in self.records.common.iter_mut().filter(|common| common.notify == id) {
                common.notify = 0;
            }
        }
        self.notifies.completed.retain(|completed| completed.token != token);
    }

    /// Put callbacks that completed since the last call.
    pub fn take_completed(&mut self) -> Vec<Completed> {
        self.notifies.completed.drain(..).collect()
    }

    /// Next completed put callback that was not returned yet. Does not allocate.
    pub fn next_completed(&mut self) -> Option<Completed> {
        self.notifies.completed.pop_front()
    }

    /// Adds the target of a record's link to the record's put (dbNotifyAdd).
    #[cold]
    pub(crate) fn notify_add(&mut self, source: RecId, target: RecId) {
        let id = self.records[source].notify;
        let to = &mut self.records[target];
        if to.notify != 0 || to.pact != 0 || to.scan != 0 {
            return;
        }
        to.notify = id;
        if let Some(waiting) = self.notifies.waiting.get_mut(&id) {
            waiting.records += 1;
        }
    }

    /// Marks a record's part of a put as finished (dbNotifyCompletion).
    pub(crate) fn notify_completion(&mut self, rec: RecId) {
        let id = std::mem::take(&mut self.records[rec].notify);
        if id == 0 {
            return;
        }
        if let Some(waiting) = self.notifies.waiting.get_mut(&id) {
            waiting.records -= 1;
            if waiting.records == 0 && !waiting.starting {
                let whom = waiting.whom;
                self.notifies.waiting.remove(&id);
                self.tell(whom, None);
            }
        }
    }

    /// Reports the end of a put to its requester.
    fn tell(&mut self, whom: Requester, error: Option<PutError>) {
        match whom {
            Requester::Client(token) => self.notifies.completed.push_back(Completed { token, error }),
            Requester::Reader(rec) => self.call_back(rec, crate::run::callback::Callback::Resume),
            Requester::Link(link) => self.remote_written(link, error.is_none()),
        }
    }

    /// Starts puts that waited for a busy record.
    pub(crate) fn restart_notifies(&mut self, now: Now) {
        if self.notifies.queued.is_empty() {
            return;
        }
        let mut at = 0;
        while at < self.notifies.queued.len() {
            let rec = self.notifies.queued[at].0;
            let common = &self.records[rec];
            if common.notify != 0 || common.pact != 0 {
                at += 1;
                continue;
            }
            let (_, channel, value, whom) = self.notifies.queued.remove(at);
            match self.put_notify_for(&channel, &value, whom, now) {
                Ok(NotifyState::Pending) => {}
                Ok(NotifyState::Done) => self.tell(whom, None),
                Err(error) => self.tell(whom, Some(error)),
            }
        }
    }
}

/// Result of an asynchronous read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReadResult<T> {
    /// The link is constant, so nothing is read.
    Constant,
    /// The source is processing; a callback resumes the record.
    Pending,
    /// The source cannot be read; the READ alarm is raised.
    Failed,
    /// The value.
    Value(T),
}

impl Db {
    /// Processes a link's source, waits for completion, then reads it (Async Soft Channel).
    pub(crate) fn async_get<T: crate::text::conv::Number>(
        &mut self,
        rec: RecId,
        link: crate::model::link::ResolvedLink,
        resumed: bool,
    ) -> ReadResult<T> {
        match self.async_ready(rec, link, resumed) {
            ReadResult::Value(()) => match self.read_number::<T>(link.record(), link.field) {
                Some(value) => ReadResult::Value(value),
                None => self.async_failed(rec),
            },
            ReadResult::Constant => ReadResult::Constant,
            ReadResult::Pending => ReadResult::Pending,
            ReadResult::Failed => ReadResult::Failed,
        }
    }

    /// Like [`async_get`](Self::async_get), for text.
    pub(crate) fn async_get_text(
        &mut self,
        rec: RecId,
        link: crate::model::link::ResolvedLink,
        resumed: bool,
    ) -> ReadResult<base::Str40> {
        match self.async_ready(rec, link, resumed) {
            ReadResult::Value(()) => match self.read_text(link.record(), link.field) {
                Some(value) => ReadResult::Value(value),
                None => self.async_failed(rec),
            },
            ReadResult::Constant => ReadResult::Constant,
            ReadResult::Pending => ReadResult::Pending,
            ReadResult::Failed => ReadResult::Failed,
        }
    }

    fn async_failed<T>(&mut self, rec: RecId) -> ReadResult<T> {
        self.records[rec].raise(base::Status::Read, 3);
        ReadResult::Failed
    }

    fn async_ready(&mut self, rec: RecId, link: crate::model::link::ResolvedLink, resumed: bool) -> ReadResult<()> {
        use crate::model::link::LinkKind;
        match link.kind {
            LinkKind::Constant => return ReadResult::Constant,
            LinkKind::Db => {}
            _ => return self.async_failed(rec),
        }
        if resumed {
            let source = &self.records[link.record()];
            let (status, severity) = (source.stat, source.sevr);
            self.inherit(rec, link.flags, status, severity);
            return ReadResult::Value(());
        }
        let target = &self.records[link.record()];
        if target.scan == 0 && target.notify == 0 && target.pact == 0 {
            let id = self.start_notify(link.record(), Requester::Reader(rec));
            self.records[link.record()].putf = 1;
            self.run(link.record());
            if self.records[link.record()].notify == id && self.records[link.record()].pact == 0 {
                self.notify_completion(link.record());
            }
            match self.notifies.waiting.get_mut(&id) {
                Some(waiting) if waiting.records > 0 => waiting.starting = false,
                _ => {
                    self.notifies.waiting.remove(&id);
                    self.call_back(rec, crate::run::callback::Callback::Resume);
                }
            }
        } else {
            self.call_back(rec, crate::run::callback::Callback::Resume);
        }
        ReadResult::Pending
    }
}
