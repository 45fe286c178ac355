//! The database as Channel Access sees it.

use crate::guard::Guard;
use base::{EventMask, Severity, Str40};
use ca::encode::Reading;
use ca::server::{Access, Backend, Get, Opened, Peer, Post, Put, Token, Write};
use ca::{Basic, Eca};
use db::{Channel, Db, NotifyState, Now, QueueId, RecId, Security, SubId};
use std::collections::HashMap;

/// Events that wait between two drains, besides four for each subscription.
const QUEUE_ROOM: usize = 10_000;
/// Events that are handed on at once.
const DRAIN_MAX: usize = 4_096;

/// What tells two channels apart.
type Key = (u32, u16, bool, bool, Option<(i32, u32, i32)>);

/// A field that clients have open, however many they are.
struct Entry {
    channel: Channel,
    key: Key,
    native: Basic,
    channels: u32,
    watchers: u32,
    sub: Option<SubId>,
}

/// The database with what its clients have open.
pub struct Store {
    /// The database.
    pub db: Db,
    /// The time of what is being done.
    pub now: Now,
    /// Who may do what.
    pub guard: Guard,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32>,
    queue: QueueId,
    drained: Vec<Post>,
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
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            queue,
            drained: Vec::new(),
        }
    }

    /// Takes rules of access; [`Guard::take_changed`] says that clients are to be told.
    pub fn secure(&mut self, rules: Security, by_address: bool) {
        self.guard.set(rules, by_address, &mut self.db, self.queue);
    }

    /// Follows the inputs of the rules anew, after records came; before records go, [`Guard::detach`].
    pub fn follow_inputs(&mut self) {
        self.guard.detach(&mut self.db);
        self.guard.attach(&mut self.db, self.queue);
    }

    /// The field behind a handle.
    #[must_use]
    pub fn channel(&self, handle: u64) -> Option<&Channel> {
        Some(&self.entries.get(handle as usize)?.as_ref()?.channel)
    }

    /// The posts since the last call, oldest first; at most a bounded number. Give the vector back with
    /// [`recycle`](Self::recycle).
    pub fn take_posts(&mut self) -> Vec<Post> {
        let mut posts = std::mem::take(&mut self.drained);
        posts.clear();
        let guard = &mut self.guard;
        self.db.drain(self.queue, DRAIN_MAX, |_, event| {
            if guard.take(&event) {
                return;
            }
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

/// The channel name as text; EPICS names are ASCII.
fn text(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}

impl Backend for Store {
    fn exists(&mut self, name: &[u8]) -> bool {
        text(name).is_some_and(|name| self.db.find(name).is_ok())
    }

    fn open(&mut self, name: &[u8], peer: Peer<'_>) -> Option<Opened> {
        let channel = self.db.find(text(name)?).ok()?;
        let info = self.db.info(&channel);
        let access = self.guard.access(&self.db, &channel, &info, peer);
        let key = (channel.record.0, channel.field, channel.long_string, channel.type_name, channel.range);
        let handle = *self.by_key.entry(key).or_insert_with(|| {
            let native = Basic::native_of(info.kind);
            let entry = Entry { channel, key, native, channels: 0, watchers: 0, sub: None };
            match self.free.pop() {
                Some(slot) => {
                    self.entries[slot as usize] = Some(entry);
                    slot
                }
                None => {
                    self.entries.push(Some(entry));
                    (self.entries.len() - 1) as u32
                }
            }
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
            lane: 0,
        })
    }

    fn access(&mut self, handle: u64, peer: Peer<'_>) -> Access {
        let none = Access { read: false, write: false };
        self.channel(handle).map_or(none, |channel| self.guard.access(&self.db, channel, &self.db.info(channel), peer))
    }

    fn close(&mut self, handle: u64) {
        let Some(slot) = self.entries.get_mut(handle as usize) else { return };
        let Some(entry) = slot else { return };
        entry.channels -= 1;
        if entry.channels == 0 {
            self.by_key.remove(&entry.key);
            *slot = None;
            self.free.push(handle as u32);
        }
    }

    fn read(&mut self, handle: u64, meta: bool, reading: &mut Reading, _: Option<Token>) -> Result<Get, Eca> {
        let entry = self.entries.get(handle as usize).and_then(Option::as_ref).ok_or(Eca::GETFAIL)?;
        let record = entry.channel.record;
        reading.value = self.db.get(&entry.channel, usize::MAX);
        reading.alarm = self.db.alarm(record);
        reading.stamp = self.db.stamp(record).0;
        if meta {
            let (ackt, acks) = self.db.acknowledge_state(record);
            reading.ackt = ackt != 0;
            reading.acks = Severity::from_index(acks);
            reading.record_type = Str40::from(self.db.type_name(record));
            reading.meta = self.db.meta(&entry.channel);
        }
        Ok(Get::Done)
    }

    fn write(&mut self, handle: u64, _: Peer<'_>, write: Write, token: Token, notify: bool) -> Put {
        let Some(entry) = self.entries.get(handle as usize).and_then(Option::as_ref) else { return Put::Failed };
        let value = match write {
            Write::Value(value) => value,
            Write::AckT(transient) => {
                self.db.put_ackt(&entry.channel, transient);
                return Put::Done;
            }
            Write::AckS(severity) => {
                self.db.put_acks(&entry.channel, severity);
                return Put::Done;
            }
        };
        if !notify {
            return self.db.put(&entry.channel, &value, self.now).map_or(Put::Failed, |()| Put::Done);
        }
        match self.db.put_notify(&entry.channel, &value, token.0, self.now) {
            Ok(NotifyState::Done) => Put::Done,
            Ok(NotifyState::Pending) => Put::Later,
            Err(_) => Put::Failed,
        }
    }

    fn forget(&mut self, token: Token) {
        self.db.cancel_notify(token.0);
    }

    fn watch(&mut self, handle: u64) {
        let queue = self.queue;
        let Some(entry) = self.entries.get_mut(handle as usize).and_then(Option::as_mut) else { return };
        entry.watchers += 1;
        if entry.sub.is_none() {
            let all = EventMask::VALUE | EventMask::LOG | EventMask::ALARM | EventMask::PROPERTY;
            entry.sub = Some(self.db.subscribe(queue, &entry.channel, all, handle));
        }
    }

    fn unwatch(&mut self, handle: u64) {
        let Some(entry) = self.entries.get_mut(handle as usize).and_then(Option::as_mut) else { return };
        entry.watchers -= 1;
        if entry.watchers == 0
            && let Some(sub) = entry.sub.take()
        {
            self.db.unsubscribe(sub);
        }
    }
}
