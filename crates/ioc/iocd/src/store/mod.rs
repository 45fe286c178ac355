//! The database, as accessed by Channel Access and PVAccess. Every field has an owner, and requests use one path. The housekeeping shard
//! belongs to the network thread and answers immediately. Other owners answer with jobs that return finished.

pub(crate) mod groups;
mod mirror;
pub(crate) mod pva;

use crate::bridge::Holder;
use crate::execute::{Subscriptions, execute, read, write_to};
use crate::guard::Guard;
use crate::job::{Job, JobResult, Logged, MemberPart, OwnerRequest, Requester};
use crate::putlog::PutLog;
use crate::sequencer::Programs;
use crate::shard_port::ShardPort;
use base::{Alarm, Annotation, Array, EventMask, FieldType, Meta, NumberHash, Scalar, Stamp, Value};
use ca::encode::{Needs, Reading};
use ca::server::{Access, Backend, Get, Opened, Peer, Post, PutOutcome, Token, Write};
use ca::{Basic, Eca};
use db::{Channel, Db, FieldInfo, Now, Processing, RecId, RemoteId};
use groups::Groups;
use mirror::{Fetch, Mirror, Next};
use std::collections::HashMap;

/// Events that can wait between two drains, in addition to four per subscription.
const QUEUE_ROOM: usize = 10_000;
/// Number of events forwarded at once, so small that they are still in the first-level cache when they are sent.
const DRAIN_MAX: usize = 64;

/// Placeholder if the value is allocated during the read, in the field's type.
const NO_ROOM: Value = Value::Scalar(Scalar::F64(0.0));

/// Identity of a channel. Channels with filters are not shared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key(u64);

impl Key {
    fn of(channel: &Channel) -> Self {
        let flags = u64::from(channel.long_string) << 1 | u64::from(channel.type_name);
        Self(u64::from(channel.record.0) << 32 | u64::from(channel.field) << 16 | flags)
    }
}

/// A field that one or more clients have open.
struct Entry {
    channel: Channel,
    key: Key,
    native: Basic,
    channels: u32,
    watchers: u32,
    /// Number of the field for its owner. It distinguishes the field from an earlier one with the same handle.
    number: u64,
    /// Location and state, if another thread owns it.
    remote: Option<Box<Remote>>,
}

/// A field that another thread owns.
struct Remote {
    shard: usize,
    channel: Channel,
    info: FieldInfo,
    mirror: Mirror,
}

impl Entry {
    /// Its owner, and its channel in the owner's database.
    fn there(&self) -> (Holder, &Channel) {
        match &self.remote {
            None => (None, &self.channel),
            Some(remote) => (Some(remote.shard), &remote.channel),
        }
    }

    /// Memory for the field's value, allocated here because its owner must not allocate.
    fn room(&self) -> Value {
        match &self.remote {
            Some(remote) if remote.info.array => {
                let mut array = Array::zeros(element(remote.info.kind), remote.info.elements_max as usize);
                array.truncate(0);
                Value::Array(array)
            }
            _ => NO_ROOM,
        }
    }
}

/// Element type in which an array field is read.
const fn element(kind: FieldType) -> FieldType {
    match kind {
        FieldType::Menu | FieldType::Device => FieldType::Enum,
        FieldType::Link => FieldType::String,
        kind => kind,
    }
}

/// The database, with the fields that its clients have open.
pub struct Store {
    /// The database.
    pub db: Db,
    /// Time of the current operation.
    pub now: Now,
    /// Access rules.
    pub guard: Guard,
    /// Log of writes.
    pub put_log: Option<PutLog>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32, NumberHash>,
    subs: Subscriptions,
    /// Buffer for readings without a requester: the value before a logged write.
    scratch: Reading,
    /// Buffer for readings of PVAccess clients.
    pva_reading: Reading,
    drained: Vec<Post>,
    /// Shards of the database that other threads own.
    pub shards: Vec<ShardPort>,
    /// Channels of SNL programs.
    pub(crate) programs: Programs,
    /// Groups of PVAccess.
    pub(crate) groups: Groups,
    opened: u64,
}

impl Store {
    /// Creates a store for a database.
    #[must_use]
    pub fn new(mut db: Db) -> Self {
        let queue = db.open_queue(QUEUE_ROOM);
        Self {
            db,
            now: Now::default(),
            guard: Guard::default(),
            put_log: None,
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::default(),
            subs: Subscriptions::new(queue, 0),
            scratch: Reading::default(),
            pva_reading: Reading::default(),
            drained: Vec::new(),
            shards: Vec::new(),
            programs: Programs::default(),
            groups: Groups::default(),
            opened: 0,
        }
    }

    /// Processes the record of an open field if it is passive.
    pub(crate) fn process_if_passive(&mut self, handle: u64) {
        let Some((owner, channel)) = self.entry(handle).map(Entry::there) else { return };
        let record = channel.record;
        self.ask(owner, OwnerRequest::Process(record));
    }

    /// Sends a request to an owner, without waiting for its end.
    pub(crate) fn ask(&mut self, owner: Holder, request: OwnerRequest) {
        self.submit(owner, Requester::Nobody, request, NO_ROOM, None);
    }

    /// Sends a request to an owner. The housekeeping shard executes it immediately: the result is returned, and the value is
    /// read into `reading`. Another owner executes it between two of its scans: the job returns to the engine, with the value
    /// in `room`.
    fn submit(
        &mut self,
        owner: Holder,
        requester: Requester,
        mut request: OwnerRequest,
        room: Value,
        reading: Option<&mut Reading>,
    ) -> Option<JobResult> {
        let Some(shard) = owner else {
            // Readings reuse the memory of the previous value.
            let reading = match reading {
                Some(reading) => reading,
                None => {
                    self.scratch.value = room;
                    &mut self.scratch
                }
            };
            let outcome = execute(&mut self.db, &mut self.subs, &mut request, reading, self.now);
            log_write(self.put_log.as_ref(), self.now, &mut request, &outcome, reading);
            return Some(outcome);
        };
        let Some(shard) = self.shards.get_mut(shard) else { return Some(JobResult::Nothing) };
        let mut job = Job::new(requester, request);
        job.reading.value = room;
        shard.send(job);
        None
    }

    fn entry(&self, handle: u64) -> Option<&Entry> {
        entry(&self.entries, handle)
    }

    /// Opens a channel to a field.
    fn open_channel(&mut self, channel: Channel, peer: Peer<'_>) -> Option<Opened> {
        // As in C, searches find fields without a type, but channels to them fail.
        if !self.db.has_value(&channel) {
            return None;
        }
        let info = self.db.info(&channel);
        let access = self.guard.access(&self.db, &channel, &info, peer);
        let location = self.db.location_of(channel.record);
        let key = Key::of(&channel);
        let shared = channel.filters.is_empty();
        let known = self.by_key.get(&key).copied().filter(|_| shared);
        let handle = known.unwrap_or_else(|| {
            let native = Basic::native_of(info.kind);
            let slot = self.free.pop().unwrap_or_else(|| {
                self.entries.push(None);
                self.entries.len() as u32 - 1
            });
            self.opened += 1;
            let remote = location.map(|location| {
                let channel = Channel { record: location.record, ..channel.clone() };
                Box::new(Remote { shard: location.shard, channel, info, mirror: Mirror::default() })
            });
            let number = self.opened << 32 | u64::from(slot);
            let entry = Entry { channel, key, native, channels: 0, watchers: 0, number, remote };
            self.entries[slot as usize] = Some(entry);
            if shared {
                self.by_key.insert(key, slot);
            }
            slot
        });
        let entry = self.entries.get_mut(handle as usize)?.as_mut()?;
        entry.channels += 1;
        Some(Opened {
            handle: handle.into(),
            watch: handle.into(),
            native: entry.native,
            count: info.elements_max,
            access,
            posted: true,
            lane: location.map_or(0, |location| location.shard as u16 + 1),
        })
    }

    /// Shards that have an owner, with their numbers.
    pub fn live(&self) -> impl Iterator<Item = (usize, &ShardPort)> {
        self.shards.iter().enumerate().filter(|(_, shard)| !shard.retired)
    }

    /// Whether a client's writes to a field are logged.
    fn is_trapped(&self, channel: &Channel, peer: Peer<'_>) -> bool {
        let level = self.db.info(channel).level;
        self.guard.rights(&self.db, channel.record, level, peer).is_some_and(|rights| rights.trap)
    }

    /// The field of a handle.
    #[must_use]
    pub fn channel(&self, handle: u64) -> Option<&Channel> {
        Some(&self.entry(handle)?.channel)
    }

    /// Logs a write executed by another owner.
    pub(crate) fn log_done(&self, job: &mut Job) {
        log_write(self.put_log.as_ref(), self.now, &mut job.request, &job.outcome, &job.reading);
    }

    /// Posts since the last call, oldest first, at most a bounded number. Return the vector with [`recycle`](Self::recycle).
    pub fn take_posts(&mut self) -> Vec<Post> {
        let mut posts = std::mem::take(&mut self.drained);
        posts.clear();
        self.db.drain(self.subs.queue, DRAIN_MAX, |_, event| {
            posts.push(Post {
                watch: handle_of(event.token),
                mask: event.mask,
                alarm: event.alarm,
                stamp: event.stamp,
                note: event.note,
                value: event.value,
            });
        });
        posts
    }

    /// Owner of a record; the housekeeping shard if the record does not exist.
    #[must_use]
    pub(crate) fn owner_of(&self, name: &str) -> Holder {
        Some(self.db.location_of(self.db.find(name).ok()?.record)?.shard)
    }

    /// Converts an event of an owner to a post. Elements or properties are requested first if necessary.
    pub(crate) fn posted(
        &mut self,
        key: u64,
        mask: EventMask,
        value: Option<Scalar>,
        (alarm, stamp, note): (Alarm, Stamp, Annotation),
    ) -> Option<Post> {
        match self.mirror(key)?.posted(mask, value, (alarm, stamp, note)) {
            Next::Post(value) => {
                Some(Post { watch: handle_of(key), mask, alarm, stamp, note, value: Value::Scalar(value) })
            }
            Next::Fetch(fetch) => {
                self.send(key, fetch);
                None
            }
            Next::Wait => None,
        }
    }

    /// Converts requested elements or properties to a post.
    pub(crate) fn fetched(&mut self, key: u64, mask: EventMask, job: Box<Job>) -> Option<Post> {
        let Job { request: OwnerRequest::Read { needs, .. }, reading, .. } = *job else { return None };
        let post = (!mask.is_empty()).then(|| Post {
            watch: handle_of(key),
            mask,
            alarm: reading.alarm,
            stamp: reading.stamp,
            note: reading.note,
            value: reading.value.clone(),
        });
        let next = self.mirror(key)?.fetched(needs, reading);
        if let Some(fetch) = next {
            self.send(key, fetch);
        }
        post
    }

    /// Requests the value of a monitored field, which arrives as a post.
    pub(crate) fn fetch(&mut self, handle: u64) {
        let Some(number) = self.entry(handle).map(|entry| entry.number) else { return };
        let post = self.posted(number, EventMask::VALUE, None, (Alarm::NONE, Stamp::EPOCH, Annotation::NONE));
        debug_assert!(post.is_none(), "nothing to hand on without a value");
    }

    /// Requests the properties of a link's target. They are returned now, or arrive with a job for the link. A text has none.
    pub(crate) fn ask_properties(&mut self, handle: u64, holder: Holder, id: RemoteId) -> Option<Meta> {
        let entry = self.entry(handle).filter(|entry| entry.native != Basic::String)?;
        let (owner, channel) = entry.there();
        let (request, room) = (OwnerRequest::Read { channel: channel.clone(), needs: Needs::All }, entry.room());
        let mut reading = Reading { value: NO_ROOM, ..Reading::default() };
        self.submit(owner, Requester::Link(holder, id), request, room, Some(&mut reading))?;
        Some(reading.meta)
    }

    /// Writes a field for a client, and processes its record as `processing` specifies.
    fn write_processing(
        &mut self,
        handle: u64,
        peer: Peer<'_>,
        write: Write,
        (token, notify): (Token, bool),
        processing: Processing,
    ) -> PutOutcome {
        let Some(entry) = entry(&self.entries, handle) else { return PutOutcome::Failed };
        let trapped = self.put_log.is_some() && self.is_trapped(&entry.channel, peer);
        if entry.remote.is_none() && !trapped && processing == Processing::Passive {
            return write_to(&mut self.db, &entry.channel, &write, notify.then_some(token.0), self.now);
        }
        let log = trapped.then(|| Box::new(Logged::new(peer, self.db.channel_name(&entry.channel), entry.room())));
        let room = if trapped { entry.room() } else { NO_ROOM };
        let (owner, channel) = entry.there();
        let channel = Channel { processing, ..channel.clone() };
        let request = OwnerRequest::Write { channel, write, notify: notify.then_some(token.0), log };
        match self.submit(owner, Requester::Client(token), request, room, None) {
            None => PutOutcome::Sent,
            Some(JobResult::Write(put)) => put,
            Some(_) => PutOutcome::Failed,
        }
    }

    /// Sends a mirror's request to the owner of its field.
    fn send(&mut self, key: u64, Fetch { needs, mask }: Fetch) {
        let Some(entry) = self.entry(handle_of(key)) else { return };
        let (owner, channel) = entry.there();
        let (request, room) = (OwnerRequest::Read { channel: channel.clone(), needs }, entry.room());
        self.submit(owner, Requester::Watch { key, mask }, request, room, None);
    }

    /// Mirror of the remote field with this number, unless it was closed.
    fn mirror(&mut self, key: u64) -> Option<&mut Mirror> {
        let entry = self.entries.get_mut(handle_of(key) as usize)?.as_mut()?;
        (entry.number == key).then_some(&mut entry.remote.as_deref_mut()?.mirror)
    }

    /// Wakes the owners that were sent something.
    pub(crate) fn flush_shards(&mut self) {
        self.shards.iter_mut().for_each(ShardPort::flush);
    }

    /// Takes back the vector of [`take_posts`](Self::take_posts).
    pub fn recycle(&mut self, posts: Vec<Post>) {
        self.drained = posts;
    }

    /// Handles of the open fields of a record.
    pub fn handles_of(&self, record: RecId) -> impl Iterator<Item = u64> + '_ {
        let open = self.entries.iter().enumerate();
        open.filter(move |(_, entry)| entry.as_ref().is_some_and(|entry| entry.channel.record == record))
            .map(|(handle, _)| handle as u64)
    }

    /// Number of posts replaced by newer ones before they were forwarded.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.db.replaced(self.subs.queue)
    }
}

/// Handle of the field with a number.
const fn handle_of(number: u64) -> u64 {
    number & u32::MAX as u64
}

/// Logs a completed write, if logging is requested. `before` has the previous value.
fn log_write(log: Option<&PutLog>, now: Now, request: &mut OwnerRequest, outcome: &JobResult, before: &Reading) {
    let OwnerRequest::Write { log: logged, .. } = request else { return };
    if !matches!(outcome, JobResult::Write(PutOutcome::Failed)) {
        log_one(log, now, logged, before);
    }
}

/// Logs a write to a member of a group, if it was made and logging is requested.
fn log_part(log: Option<&PutLog>, now: Now, part: &mut MemberPart) {
    if part.written {
        log_one(log, now, &mut part.log, &part.reading);
    }
}

fn log_one(log: Option<&PutLog>, now: Now, logged: &mut Option<Box<Logged>>, before: &Reading) {
    if let (Some(log), Some(logged)) = (log, logged.take()) {
        let Logged { user, host, address, channel, new } = *logged;
        let peer = Peer { user: &user, host: &host, address: &address };
        log.log(now.wall, peer, channel, Some(&before.value), Some(&new));
    }
}

/// The open field of a handle.
fn entry(entries: &[Option<Entry>], handle: u64) -> Option<&Entry> {
    entries.get(handle as usize)?.as_ref()
}

/// Channel name as text; EPICS names are ASCII.
fn text(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}

impl Backend for Store {
    fn exists(&mut self, name: &[u8]) -> bool {
        text(name).is_some_and(|name| self.db.has_field(name))
    }

    fn open(&mut self, name: &[u8], peer: Peer<'_>) -> Option<Opened> {
        let channel = self.db.find(text(name)?).ok()?;
        self.open_channel(channel, peer)
    }

    fn access(&mut self, handle: u64, peer: Peer<'_>) -> Access {
        let none = Access { read: false, write: false };
        self.channel(handle).map_or(none, |channel| self.guard.access(&self.db, channel, &self.db.info(channel), peer))
    }

    fn record_name(&self, handle: u64) -> &str {
        self.channel(handle).map_or("", |channel| self.db.name_of(channel.record))
    }

    fn close(&mut self, handle: u64) {
        let Some(slot) = self.entries.get_mut(handle as usize) else { return };
        let Some(entry) = slot else { return };
        entry.channels -= 1;
        if entry.channels == 0 {
            if entry.channel.filters.is_empty() {
                self.by_key.remove(&entry.key);
            }
            *slot = None;
            self.free.push(handle as u32);
        }
    }

    fn read(&mut self, handle: u64, needs: Needs, reading: &mut Reading, token: Option<Token>) -> Result<Get, Eca> {
        let entry = entry(&self.entries, handle).ok_or(Eca::GETFAIL)?;
        if let (Some(remote), None) = (&entry.remote, token) {
            reading.clone_from(remote.mirror.newest().ok_or(Eca::GETFAIL)?);
            return Ok(Get::Done);
        }
        let (owner, channel) = entry.there();
        // Fast path for the housekeeping shard. Building a request would copy the channel, which costs a tenth of a get.
        if owner.is_none() {
            read(&mut self.db, channel, needs, reading);
            return Ok(Get::Done);
        }
        let (request, room) = (OwnerRequest::Read { channel: channel.clone(), needs }, entry.room());
        self.submit(owner, token.map_or(Requester::Nobody, Requester::Client), request, room, None);
        Ok(Get::Sent)
    }

    fn write(&mut self, handle: u64, peer: Peer<'_>, write: Write, token: Token, notify: bool) -> PutOutcome {
        self.write_processing(handle, peer, write, (token, notify), Processing::Passive)
    }

    fn forget(&mut self, token: Token) {
        let shards = 0..self.shards.len();
        [None].into_iter().chain(shards.map(Some)).for_each(|owner| self.ask(owner, OwnerRequest::Forget(token.0)));
    }

    fn watch(&mut self, handle: u64) -> bool {
        let Some(entry) = self.entries.get_mut(handle as usize).and_then(Option::as_mut) else { return true };
        entry.watchers += 1;
        if entry.watchers > 1 {
            return true;
        }
        let fetch = entry.remote.as_deref_mut().map(|remote| remote.mirror.watched());
        // If filters decide about events, the first subscription gets its first event that way. Later ones of the same
        // channel only read.
        let posted = entry.channel.filters.decide();
        let (number, (owner, channel)) = (entry.number, entry.there());
        let request = OwnerRequest::Watch { channel: channel.clone(), key: number };
        self.ask(owner, request);
        if let Some(fetch) = fetch {
            self.send(number, fetch);
        }
        !posted
    }

    fn unwatch(&mut self, handle: u64) {
        let Some(entry) = self.entries.get_mut(handle as usize).and_then(Option::as_mut) else { return };
        entry.watchers -= 1;
        if entry.watchers > 0 {
            return;
        }
        let (owner, key) = (entry.there().0, entry.number);
        self.ask(owner, OwnerRequest::Unwatch { key });
    }
}

#[cfg(test)]
mod tests;
