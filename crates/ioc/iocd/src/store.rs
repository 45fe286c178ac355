//! The database as Channel Access sees it: the housekeeping part at once, the others by jobs.

use crate::guard::Guard;
use crate::job::{Ask, Job, Logged, Outcome, Whom};
use crate::parts::Part;
use crate::piece::{read_rest, write_to};
use crate::putlog::PutLog;
use base::{Array, EventMask, FieldType, NumberHash, Value};
use ca::encode::{Needs, Reading};
use ca::server::{Access, Backend, Get, Opened, Peer, Post, Put, Token, Write};
use ca::{Basic, Eca};
use db::{Away, Channel, Db, FieldInfo, Now, QueueId, RecId, SubId};
use std::collections::HashMap;

/// Events that wait between two drains, besides four for each subscription.
const QUEUE_ROOM: usize = 10_000;
/// Events that are handed on at once: so few that they are still in the first-level cache when they are sent.
const DRAIN_MAX: usize = 64;

/// What tells two channels apart; those with filters are not shared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key(u64);

impl Key {
    fn of(channel: &Channel) -> Self {
        let flags = u64::from(channel.long_string) << 1 | u64::from(channel.type_name);
        Self(u64::from(channel.record.0) << 32 | u64::from(channel.field) << 16 | flags)
    }
}

/// A field that clients have open, however many they are.
struct Entry {
    channel: Channel,
    key: Key,
    native: Basic,
    channels: u32,
    watchers: u32,
    sub: Option<SubId>,
    /// Where it is, if another thread owns it.
    apart: Option<Box<Apart>>,
}

/// A field that another thread owns.
struct Apart {
    part: usize,
    channel: Channel,
    info: FieldInfo,
    /// Tells the field from an earlier one with the same handle.
    key: u64,
    /// The newest that is known here; its properties answer monitors that want them.
    newest: Reading,
    /// Whether `newest` holds anything.
    known: bool,
    /// Elements or properties are being asked for, and whether again, and why.
    asking: bool,
    again: EventMask,
}

impl Apart {
    /// A reading with memory for the field's value.
    fn room(&self) -> Reading {
        let mut reading = Reading::default();
        if self.info.array {
            let mut array = Array::zeros(element(self.info.kind), self.info.elements_max as usize);
            array.truncate(0);
            reading.value = Value::Array(array);
        }
        reading
    }

    fn read(&self, whom: Whom, needs: Needs) -> Box<Job> {
        let mut job = Job::new(whom, Ask::Read { channel: self.channel.clone(), needs });
        job.reading = self.room();
        job
    }
}

/// Type of the elements that an array field is read as.
const fn element(kind: FieldType) -> FieldType {
    match kind {
        FieldType::Menu | FieldType::Device => FieldType::Enum,
        FieldType::Link => FieldType::String,
        kind => kind,
    }
}

/// The database with what its clients have open.
pub struct Store {
    /// The database.
    pub db: Db,
    /// The time of what is being done.
    pub now: Now,
    /// Who may do what.
    pub guard: Guard,
    /// Where writes are logged.
    pub put_log: Option<PutLog>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32, NumberHash>,
    queue: QueueId,
    drained: Vec<Post>,
    /// The parts of the database that other threads own.
    pub parts: Vec<Part>,
    opened: u64,
}

impl Store {
    /// Takes a database over.
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
            queue,
            drained: Vec::new(),
            parts: Vec::new(),
            opened: 0,
        }
    }

    /// Processes the record of an open field if it is passive.
    pub(crate) fn process_if_passive(&mut self, handle: u64) {
        let Some(entry) = self.entries.get(handle as usize).and_then(Option::as_ref) else { return };
        match &entry.apart {
            None => self.db.process_if_passive(entry.channel.record, self.now),
            Some(apart) => {
                let record = apart.channel.record;
                if let Some(part) = self.parts.get_mut(apart.part) {
                    part.ask(Ask::Call(Box::new(move |db, now| db.process_if_passive(record, now))));
                }
            }
        }
    }

    /// The parts that have an owner, with their numbers.
    pub fn live(&self) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().enumerate().filter(|(_, part)| !part.retired)
    }

    /// Whether a client's writes to a field are to be logged.
    fn is_trapped(&self, channel: &Channel, peer: Peer<'_>) -> bool {
        let level = self.db.info(channel).level;
        self.guard.rights(&self.db, channel.record, level, peer).is_some_and(|rights| rights.trap)
    }

    /// The field behind a handle.
    #[must_use]
    pub fn channel(&self, handle: u64) -> Option<&Channel> {
        Some(&self.entries.get(handle as usize)?.as_ref()?.channel)
    }

    /// Logs a write that another owner has done: what was there before is in the job's reading.
    pub(crate) fn log_done(&self, job: &mut Job) {
        let Ask::Write { log: logged, .. } = &mut job.ask else { return };
        if let (Some(log), Some(logged)) = (&self.put_log, logged.take())
            && !matches!(job.outcome, Outcome::Write(Put::Failed))
        {
            let Logged { user, host, address, channel, new } = *logged;
            let peer = Peer { user: &user, host: &host, address: &address };
            log.log(self.now.wall, peer, channel, Some(&job.reading.value), Some(&new));
        }
    }

    /// The posts since the last call, oldest first; at most a bounded number. Give the vector back with
    /// [`recycle`](Self::recycle).
    pub fn take_posts(&mut self) -> Vec<Post> {
        let mut posts = std::mem::take(&mut self.drained);
        posts.clear();
        self.db.drain(self.queue, DRAIN_MAX, |_, event| {
            posts.push(Post {
                watch: event.token,
                mask: event.mask,
                alarm: event.alarm,
                stamp: event.stamp,
                value: event.value,
            });
        });
        posts
    }

    /// Where a record is by name, if another thread owns it.
    #[must_use]
    pub fn away(&self, name: &str) -> Option<Away> {
        self.db.away(self.db.find(name).ok()?.record)
    }

    /// What an owner has posted becomes a post, or a job that fetches its elements or properties first.
    pub(crate) fn posted(&mut self, key: u64, mask: EventMask, value: Option<Value>, post: Post) -> Option<Post> {
        let Self { entries, parts, .. } = self;
        let (handle, apart) = apart_of(entries, key)?;
        let changed = mask.meets(EventMask::PROPERTY);
        match value {
            Some(value) if !changed => {
                apart.newest.alarm = post.alarm;
                apart.newest.stamp = post.stamp;
                apart.newest.value.clone_from(&value);
                Some(Post { watch: handle, mask, value, ..post })
            }
            _ if apart.asking => {
                // One answer serves for several posts, as arrays are read when they are sent.
                apart.again |= mask;
                None
            }
            _ => {
                apart.asking = true;
                let job = apart.read(Whom::Watch { key, mask }, with_properties(changed));
                if let Some(part) = parts.get_mut(apart.part) {
                    part.send(job);
                }
                None
            }
        }
    }

    /// The elements or properties that were fetched, as a post.
    pub(crate) fn fetched(&mut self, key: u64, mask: EventMask, job: Box<Job>) -> Option<Post> {
        let Self { entries, parts, .. } = self;
        let (handle, apart) = apart_of(entries, key)?;
        let with_meta = matches!(job.ask, Ask::Read { needs: Needs::All, .. });
        let before = std::mem::replace(&mut apart.newest, job.reading);
        if !with_meta {
            (apart.newest.meta, apart.newest.record_type) = (before.meta, before.record_type);
            (apart.newest.ackt, apart.newest.acks) = (before.ackt, before.acks);
        }
        apart.known = true;
        apart.asking = false;
        if !apart.again.is_empty() {
            let mask = std::mem::take(&mut apart.again);
            apart.asking = true;
            let job = apart.read(Whom::Watch { key, mask }, with_properties(mask.meets(EventMask::PROPERTY)));
            if let Some(part) = parts.get_mut(apart.part) {
                part.send(job);
            }
        }
        let Reading { alarm, stamp, .. } = apart.newest;
        (!mask.is_empty()).then(|| Post { watch: handle, mask, alarm, stamp, value: apart.newest.value.clone() })
    }

    /// Asks for a watched field's value; it comes as a post.
    pub(crate) fn fetch(&mut self, handle: u64) {
        let Some(apart) = self.entries.get(handle as usize).and_then(Option::as_ref).and_then(|it| it.apart.as_deref())
        else {
            return;
        };
        let key = apart.key;
        let post = Post {
            watch: handle,
            mask: EventMask::VALUE,
            alarm: apart.newest.alarm,
            stamp: apart.newest.stamp,
            value: apart.newest.value.clone(),
        };
        self.posted(key, EventMask::VALUE, None, post);
    }

    /// Rings the owners that were sent something.
    pub(crate) fn flush_parts(&mut self) {
        self.parts.iter_mut().for_each(Part::flush);
    }

    /// Takes the vector of [`take_posts`](Self::take_posts) back.
    pub fn recycle(&mut self, posts: Vec<Post>) {
        self.drained = posts;
    }

    /// Handles of what clients have open of a record.
    pub fn handles_of(&self, record: RecId) -> impl Iterator<Item = u64> + '_ {
        let open = self.entries.iter().enumerate();
        open.filter(move |(_, entry)| entry.as_ref().is_some_and(|entry| entry.channel.record == record))
            .map(|(handle, _)| handle as u64)
    }

    /// Posts replaced by newer ones before they were handed on.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.db.replaced(self.queue)
    }
}

/// The field that a key belongs to, unless it was closed meanwhile.
fn apart_of(entries: &mut [Option<Entry>], key: u64) -> Option<(u64, &mut Apart)> {
    let handle = key & u64::from(u32::MAX);
    let apart = entries.get_mut(handle as usize)?.as_mut()?.apart.as_deref_mut()?;
    (apart.key == key).then_some((handle, apart))
}

/// What a field that another thread owns is asked for.
const fn with_properties(all: bool) -> Needs {
    if all { Needs::All } else { Needs::Value }
}

/// The channel name as text; EPICS names are ASCII.
fn text(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}

impl Backend for Store {
    fn exists(&mut self, name: &[u8]) -> bool {
        text(name).is_some_and(|name| self.db.has_field(name))
    }

    fn open(&mut self, name: &[u8], peer: Peer<'_>) -> Option<Opened> {
        let channel = self.db.find(text(name)?).ok()?;
        // As C, whose searches answer for fields without a type but whose channels to them fail.
        if !self.db.has_value(&channel) {
            return None;
        }
        let info = self.db.info(&channel);
        let access = self.guard.access(&self.db, &channel, &info, peer);
        let away = self.db.away(channel.record);
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
            let apart = away.map(|away| {
                Box::new(Apart {
                    part: away.part,
                    channel: Channel { record: away.record, ..channel.clone() },
                    info,
                    key: self.opened << 32 | u64::from(slot),
                    newest: Reading::default(),
                    known: false,
                    asking: false,
                    again: EventMask::NONE,
                })
            });
            let entry = Entry { channel, key, native, channels: 0, watchers: 0, sub: None, apart };
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
            lane: away.map_or(0, |away| away.part as u16 + 1),
        })
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
        let entry = self.entries.get(handle as usize).and_then(Option::as_ref).ok_or(Eca::GETFAIL)?;
        match (&entry.apart, token) {
            (None, _) => {}
            (Some(apart), Some(token)) => {
                self.parts.get_mut(apart.part).ok_or(Eca::GETFAIL)?.send(apart.read(Whom::Client(token), needs));
                return Ok(Get::Sent);
            }
            (Some(apart), None) if apart.known => {
                reading.clone_from(&apart.newest);
                return Ok(Get::Done);
            }
            (Some(_), None) => return Err(Eca::GETFAIL),
        }
        self.db.get_into(&entry.channel, usize::MAX, &mut reading.value);
        read_rest(&mut self.db, &entry.channel, needs, reading);
        Ok(Get::Done)
    }

    fn write(&mut self, handle: u64, peer: Peer<'_>, write: Write, token: Token, notify: bool) -> Put {
        let Some(entry) = self.entries.get(handle as usize).and_then(Option::as_ref) else { return Put::Failed };
        let trapped = self.put_log.is_some() && self.is_trapped(&entry.channel, peer);
        let notify = notify.then_some(token.0);
        let Some(apart) = &entry.apart else {
            let old = trapped.then(|| self.db.get(&entry.channel, usize::MAX));
            let put = write_to(&mut self.db, &entry.channel, &write, notify, self.now);
            if let (Some(log), Some(old)) = (&self.put_log, old)
                && put != Put::Failed
            {
                let new = self.db.get(&entry.channel, usize::MAX);
                log.log(self.now.wall, peer, self.db.channel_name(&entry.channel), Some(&old), Some(&new));
            }
            return put;
        };
        let Some(part) = self.parts.get_mut(apart.part) else { return Put::Failed };
        let log =
            trapped.then(|| Box::new(Logged::new(peer, self.db.channel_name(&entry.channel), apart.room().value)));
        let mut job = Job::new(Whom::Client(token), Ask::Write { channel: apart.channel.clone(), write, notify, log });
        if trapped {
            job.reading = apart.room();
        }
        part.send(job);
        Put::Sent
    }

    fn forget(&mut self, token: Token) {
        self.db.cancel_notify(token.0);
        self.parts.iter_mut().for_each(|part| part.ask(Ask::Forget(token.0)));
    }

    fn watch(&mut self, handle: u64) -> bool {
        let queue = self.queue;
        let Some(entry) = self.entries.get_mut(handle as usize).and_then(Option::as_mut) else { return true };
        entry.watchers += 1;
        // Where filters decide, the first subscription has the first event; later ones of the same channel just read.
        let posted = entry.watchers == 1 && entry.channel.filters.decide();
        if let Some(apart) = &mut entry.apart {
            let Some(part) = self.parts.get_mut(apart.part).filter(|_| entry.watchers == 1) else { return !posted };
            part.ask(Ask::Watch { channel: apart.channel.clone(), key: apart.key });
            // Its properties, for monitors that send them along.
            apart.asking = true;
            part.send(apart.read(Whom::Watch { key: apart.key, mask: EventMask::NONE }, Needs::All));
        } else if entry.sub.is_none() {
            let all = EventMask::VALUE | EventMask::LOG | EventMask::ALARM | EventMask::PROPERTY;
            entry.sub = Some(self.db.subscribe(queue, &entry.channel, all, handle));
        }
        !posted
    }

    fn unwatch(&mut self, handle: u64) {
        let Some(entry) = self.entries.get_mut(handle as usize).and_then(Option::as_mut) else { return };
        entry.watchers -= 1;
        if entry.watchers > 0 {
            return;
        }
        if let Some(apart) = &mut entry.apart {
            if let Some(part) = self.parts.get_mut(apart.part) {
                part.ask(Ask::Unwatch { key: apart.key });
            }
        } else if let Some(sub) = entry.sub.take() {
            self.db.unsubscribe(sub);
        }
    }
}
