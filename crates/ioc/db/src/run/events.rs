//! Subscriptions and their bounded queues.
//!
//! The rules are those of EPICS. If a queue runs out of room or its flow is stopped, a new event replaces the subscription's
//! newest waiting event, and the replacement is counted. Each subscription always has room for one event.

use crate::model::id::RecId;
use crate::rec::message::Message;
use crate::run::channel::Channel;
use crate::run::engine::Db;
use crate::run::filter::Watch;
use crate::run::link::remote::RemoteId;
use base::{Alarm, Annotation, EventMask, Scalar, Stamp, Value};
use std::collections::VecDeque;

/// Number of an event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// Not a queue: events of these subscriptions go directly to the link that the token names.
pub(crate) const LINKS: QueueId = QueueId(u32::MAX);

/// Number of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubId(pub u32);

/// One update of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Token given by the subscriber.
    pub token: u64,
    /// Value at the time of the event. Arrays and long texts are read later, when the event is drained, as in EPICS.
    pub value: Value,
    /// Alarm of the record at the time of the event.
    pub alarm: Alarm,
    /// Time stamp of the record.
    pub stamp: Stamp,
    /// User tag and alarm message of the record.
    pub note: Annotation,
    /// Reasons for the event.
    pub mask: EventMask,
}

/// An event as queued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Posted {
    /// Token given by the subscriber.
    pub token: u64,
    /// Value at the time of the event; `None` for arrays and long texts, which are read when sent.
    pub value: Option<Scalar>,
    /// Alarm of the record at the time of the event.
    pub alarm: Alarm,
    /// Time stamp of the record.
    pub stamp: Stamp,
    /// User tag and alarm message of the record.
    pub note: Annotation,
    /// Reasons for the event.
    pub mask: EventMask,
}

struct Sub {
    channel: Channel,
    mask: EventMask,
    queue: u32,
    token: u64,
    /// Number of the record's next subscription, plus one. The list is circular.
    next: u32,
    /// Number of waiting events.
    waiting: u32,
    /// Number of the newest waiting event, counted since the queue was opened.
    newest: u64,
    alive: bool,
    /// Whether the value is read when the event is drained.
    late: bool,
    /// State of the filters that act before the queue.
    watch: Option<Box<Watch>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Entry {
    sub: u32,
    pub(crate) value: Scalar,
    alarm: Alarm,
    pub(crate) stamp: Stamp,
    pub(crate) utag: u64,
    message: Message,
    pub(crate) mask: EventMask,
}

/// Replaces the subscription number in a waiting event whose subscription ended.
const ENDED: u32 = u32::MAX;

struct Queue {
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    capacity: usize,
    subs: usize,
    stopped: bool,
    replaced: u64,
}

impl Queue {
    /// Removes the event at the front.
    #[inline]
    fn pop(&mut self) {
        self.entries.pop_front();
        self.first += 1;
    }
}

/// All subscriptions and queues.
#[derive(Default)]
pub(crate) struct Events {
    subs: Vec<Sub>,
    free: Vec<u32>,
    queues: Vec<Option<Queue>>,
}

/// Queue capacity added per subscription.
const ROOM_PER_SUB: usize = 4;

impl Db {
    /// Opens a queue for at least `capacity` events, plus four per subscription.
    pub fn open_queue(&mut self, capacity: usize) -> QueueId {
        let queue = Queue {
            entries: VecDeque::with_capacity(capacity),
            first: 0,
            capacity,
            subs: 0,
            stopped: false,
            replaced: 0,
        };
        let number = self.events.queues.iter().position(Option::is_none).unwrap_or(self.events.queues.len());
        if number == self.events.queues.len() {
            self.events.queues.push(Some(queue));
        } else {
            self.events.queues[number] = Some(queue);
        }
        QueueId(number as u32)
    }

    /// Preallocates a queue for `count` further subscriptions.
    pub fn reserve_subscriptions(&mut self, queue: QueueId, count: usize) {
        self.events.subs.reserve(count);
        self.events.free.reserve(count);
        if let Some(queue) = self.events.queues.get_mut(queue.0 as usize).and_then(Option::as_mut) {
            queue.entries.reserve((queue.subs + count) * ROOM_PER_SUB);
        }
    }

    /// Closes a queue and ends its subscriptions.
    pub fn close_queue(&mut self, queue: QueueId) {
        let subs: Vec<u32> = (0..self.events.subs.len() as u32)
            .filter(|sub| self.events.subs[*sub as usize].alive && self.events.subs[*sub as usize].queue == queue.0)
            .collect();
        for sub in subs {
            self.unsubscribe(SubId(sub));
        }
        if let Some(slot) = self.events.queues.get_mut(queue.0 as usize) {
            *slot = None;
        }
    }

    /// Subscribes to a field. The current value is not sent; read it with [`Db::get`]. Exception: if filters
    /// [decide](crate::Filters::decide) about events, the current value is the first event, and is sent if they pass it.
    pub fn subscribe(&mut self, queue: QueueId, channel: &Channel, mask: EventMask, token: u64) -> SubId {
        let rec = channel.record;
        let late = channel.long_string
            || self.records.is_array(rec, channel.field)
            || self.records.is_long_text(rec, channel.field);
        let mut watch = channel.filters.watch();
        let first = watch.as_mut().and_then(|watch| {
            let value = self.read_scalar(rec, channel.field).unwrap_or(Scalar::I8(0));
            // The first event is sent whatever the mask. It is not a property event, because filters ignore those.
            let first = self.entry(0, rec, value, mask & (EventMask::VALUE | EventMask::LOG | EventMask::ALARM));
            watch.pass(first, late, &self.states, self.time.now.wall).map(|passed| Entry { mask, ..passed })
        });
        let sub = Sub {
            channel: channel.clone(),
            mask,
            queue: queue.0,
            token,
            next: 0,
            waiting: 0,
            newest: 0,
            alive: true,
            late,
            watch,
        };
        let number = match self.events.free.pop() {
            Some(number) => {
                self.events.subs[number as usize] = sub;
                number
            }
            None => {
                self.events.subs.push(sub);
                self.events.subs.len() as u32 - 1
            }
        };
        self.append_monitor(rec, number);
        if let Some(queue) = self.events.queues.get_mut(queue.0 as usize).and_then(Option::as_mut) {
            queue.subs += 1;
            let room = queue.capacity.max(queue.subs * ROOM_PER_SUB);
            queue.capacity = room;
            queue.entries.reserve(room.saturating_sub(queue.entries.len()));
        }
        if let Some(first) = first {
            self.hand_on(number, Entry { sub: number, ..first });
        }
        SubId(number)
    }

    /// Ends a subscription and drops its waiting events.
    pub fn unsubscribe(&mut self, sub: SubId) {
        let Some(found) = self.events.subs.get(sub.0 as usize).filter(|found| found.alive) else { return };
        let (rec, queue, next) = (found.channel.record, found.queue, found.next);
        let (own, last) = (sub.0 + 1, self.records[rec].monitors);
        let mut before = last;
        while before != 0 && self.events.subs[before as usize - 1].next != own {
            before = self.events.subs[before as usize - 1].next;
        }
        if before == own {
            self.records[rec].monitors = 0;
        } else if before != 0 {
            self.events.subs[before as usize - 1].next = next;
            if last == own {
                self.records[rec].monitors = before;
            }
        }
        self.events.subs[sub.0 as usize].alive = false;
        if let Some(queue) = self.events.queues.get_mut(queue as usize).and_then(Option::as_mut) {
            queue.subs -= 1;
            // Entry numbers must not change, so dropped entries are only marked.
            for entry in queue.entries.iter_mut().filter(|entry| entry.sub == sub.0) {
                entry.sub = ENDED;
            }
        }
        self.events.free.push(sub.0);
    }

    /// Stops or resumes the flow. While it is stopped, each subscription keeps only its newest event.
    pub fn flow_control(&mut self, queue: QueueId, stopped: bool) {
        if let Some(queue) = self.events.queues.get_mut(queue.0 as usize).and_then(Option::as_mut) {
            queue.stopped = stopped;
        }
    }

    /// Number of events in a queue that were replaced by newer ones.
    #[must_use]
    pub fn replaced(&self, queue: QueueId) -> u64 {
        self.events.queues.get(queue.0 as usize).and_then(Option::as_ref).map_or(0, |queue| queue.replaced)
    }

    /// Number of waiting events in a queue.
    #[must_use]
    pub fn waiting(&self, queue: QueueId) -> usize {
        self.events.queues.get(queue.0 as usize).and_then(Option::as_ref).map_or(0, |queue| queue.entries.len())
    }

    /// Passes at most `max` events of a queue to `take`, oldest first. Returns their number.
    pub fn drain(&mut self, queue: QueueId, max: usize, mut take: impl FnMut(SubId, Event)) -> usize {
        let mut count = 0;
        while count < max
            && let Some((sub, waiting)) = self.events.next(queue)
        {
            // Each event is copied once. Further copies of a value that was just written would stall on the preceding copy.
            let Entry { sub: number, value, alarm, stamp, utag, message, mask } = waiting.entries[0];
            let note = Annotation { user_tag: utag, message: message.text() };
            let mut event = Event { token: sub.token, value: Value::Scalar(value), alarm, stamp, note, mask };
            let plain = !sub.late && sub.channel.filters.is_empty();
            sub.waiting -= 1;
            waiting.pop();
            if !plain {
                event.value = self.value_now(number, event.value, stamp);
            }
            take(SubId(number), event);
            count += 1;
        }
        count
    }

    /// Current value for an event whose subscription reads late or has filters.
    #[cold]
    fn value_now(&mut self, sub: u32, value: Value, stamp: Stamp) -> Value {
        let sub = &self.events.subs[sub as usize];
        if !sub.late {
            return sub.channel.filters.apply(value, stamp, self.time.local);
        }
        let channel = sub.channel.clone();
        let plain = self.get_plain(&channel, usize::MAX);
        self.filtered(&channel, plain, stamp)
    }

    /// Removes and returns the oldest event of a queue, without reading late values. Does not allocate.
    pub fn next_posted(&mut self, queue: QueueId) -> Option<(SubId, Posted)> {
        let (sub, waiting) = self.events.next(queue)?;
        let Entry { sub: number, value, alarm, stamp, utag, message, mask } = waiting.entries[0];
        let note = Annotation { user_tag: utag, message: message.text() };
        sub.waiting -= 1;
        waiting.pop();
        let value = match (sub.late, sub.channel.filters.is_empty()) {
            (true, _) => None,
            (false, true) => Some(value),
            (false, false) => match sub.channel.filters.apply(Value::Scalar(value), stamp, self.time.local) {
                Value::Scalar(scalar) => Some(scalar),
                Value::Array(_) => None,
            },
        };
        Some((SubId(number), Posted { token: sub.token, value, alarm, stamp, note, mask }))
    }

    /// Posts an event to the subscribers of a field (db_post_events).
    #[inline]
    pub(crate) fn post(&mut self, rec: RecId, field: u16, mask: EventMask) {
        if self.records[rec].monitors != 0 {
            self.post_to(rec, Some(field), mask);
        }
    }

    /// Posts an event to all subscribers of a record whose mask matches.
    pub(crate) fn post_all(&mut self, rec: RecId, mask: EventMask) {
        if self.records[rec].monitors != 0 {
            self.post_to(rec, None, mask);
        }
    }

    /// Like [`post`](Self::post), for VAL.
    #[inline]
    pub(crate) fn post_value(&mut self, rec: RecId, mask: EventMask) {
        if self.records[rec].monitors != 0 {
            let val = self.records.type_of(rec).val;
            self.post_to(rec, Some(val), mask);
        }
    }

    /// Like [`post`](Self::post), for a field given by name, other than VAL.
    #[inline]
    pub(crate) fn post_named(&mut self, rec: RecId, field: &str, mask: EventMask) {
        if self.records[rec].monitors != 0
            && self.is_watched_beyond_val(rec)
            && let Some(field) = self.records.type_of(rec).field(field)
        {
            self.post_to(rec, Some(field), mask);
        }
    }

    /// Whether any subscription is to a field other than VAL. Most records have none, and need no name lookup.
    fn is_watched_beyond_val(&self, rec: RecId) -> bool {
        let val = self.records.type_of(rec).val;
        let mut at = self.monitor_after(rec, 0);
        while at != 0 {
            if self.events.subs[at as usize - 1].channel.field != val {
                return true;
            }
            at = self.monitor_after(rec, at);
        }
        false
    }

    /// Appends a subscription to those of its record. As in C, the oldest subscription is served first. A record stores the
    /// last one, whose next is the first.
    fn append_monitor(&mut self, rec: RecId, number: u32) {
        let last = std::mem::replace(&mut self.records[rec].monitors, number + 1);
        let first = match last {
            0 => number + 1,
            last => std::mem::replace(&mut self.events.subs[last as usize - 1].next, number + 1),
        };
        self.events.subs[number as usize].next = first;
    }

    /// Number of the record's subscription after `at` (the first for 0); 0 after the last. Numbers start at 1.
    #[inline(always)]
    fn monitor_after(&self, rec: RecId, at: u32) -> u32 {
        let last = self.records[rec].monitors;
        match at {
            _ if last == 0 || at == last => 0,
            0 => self.events.subs[last as usize - 1].next,
            at => self.events.subs[at as usize - 1].next,
        }
    }

    /// Like [`post_named`](Self::post_named), for common fields.
    #[inline]
    pub(crate) fn post_common(&mut self, rec: RecId, field: &str, mask: EventMask) {
        self.post_named(rec, field, mask);
    }

    fn post_to(&mut self, rec: RecId, field: Option<u16>, mask: EventMask) {
        let mut at = self.monitor_after(rec, 0);
        let mut last: Option<(u16, Scalar)> = None;
        while at != 0 {
            let number = at - 1;
            at = self.monitor_after(rec, at);
            let sub = &self.events.subs[number as usize];
            let own = sub.channel.field;
            if !sub.mask.meets(mask) || field.is_some_and(|field| field != own) || sub.channel.type_name {
                continue;
            }
            // Building the entry in the queue costs half as much as building it here and moving it.
            match self.double_val(rec, own) {
                Some(value) if sub.watch.is_none() => {
                    let entry = self.entry(number, rec, Scalar::F64(value), mask);
                    self.hand_on(number, entry);
                }
                _ => self.post_other(number, rec, mask, &mut last),
            }
        }
    }

    /// Queues an event with a value of any type, if the filters pass it. `last` caches the field read last.
    #[inline(never)]
    fn post_other(&mut self, number: u32, rec: RecId, mask: EventMask, last: &mut Option<(u16, Scalar)>) {
        let sub = &self.events.subs[number as usize];
        let (field, late) = (sub.channel.field, sub.late);
        let value = match *last {
            _ if late => Scalar::I8(0),
            Some((read, value)) if read == field => value,
            _ => {
                let value = self.read_scalar(rec, field).unwrap_or(Scalar::I8(0));
                *last = Some((field, value));
                value
            }
        };
        let mut entry = self.entry(number, rec, value, mask);
        if let Some(watch) = &mut self.events.subs[number as usize].watch {
            match watch.pass(entry, late, &self.states, self.time.now.wall) {
                Some(passed) => entry = passed,
                None => return,
            }
        }
        self.hand_on(number, entry);
    }

    /// Queues an event, or feeds it to its link.
    #[inline(always)]
    fn hand_on(&mut self, number: u32, entry: Entry) {
        if self.events.subs[number as usize].queue == LINKS.0 {
            self.feed_link(number, entry);
        } else {
            self.events.add_or_replace_newest(number, entry);
        }
    }

    /// Feeds the value of an event to the link of its subscription. Does not allocate, except for filters of arrays.
    #[inline(never)]
    fn feed_link(&mut self, number: u32, entry: Entry) {
        let sub = &self.events.subs[number as usize];
        let link = RemoteId(sub.token as u32);
        let value = if sub.channel.filters.is_empty() && sub.late {
            let channel = sub.channel.clone();
            let mut value = self.links.remotes.take_value(link.0).unwrap_or(Value::Scalar(entry.value));
            self.get_into(&channel, usize::MAX, &mut value);
            value
        } else if sub.channel.filters.is_empty() {
            Value::Scalar(entry.value)
        } else {
            self.value_now(number, Value::Scalar(entry.value), entry.stamp)
        };
        self.remote_update(link, crate::run::link::here::as_sent(value), entry.alarm, entry.stamp);
    }

    #[inline]
    fn entry(&self, sub: u32, rec: RecId, value: Scalar, mask: EventMask) -> Entry {
        let common = &self.records[rec];
        Entry { sub, value, alarm: common.alarm(), stamp: common.time, utag: common.utag, message: common.amsg, mask }
    }

    /// Ends the subscription of a link.
    pub(crate) fn end_watch(&mut self, source: RecId, link: u32) {
        let mut at = self.monitor_after(source, 0);
        while at != 0 {
            let sub = &self.events.subs[at as usize - 1];
            if sub.queue == LINKS.0 && sub.token == u64::from(link) {
                self.unsubscribe(SubId(at - 1));
                return;
            }
            at = self.monitor_after(source, at);
        }
    }

    /// Ends all subscriptions of a removed record.
    pub(crate) fn end_subscriptions(&mut self, record: RecId) {
        loop {
            // The first subscription is always found without a search.
            match self.monitor_after(record, 0) {
                0 => return,
                first => self.unsubscribe(SubId(first - 1)),
            }
        }
    }
}

impl Events {
    /// The queue if it has an event at its front, and that event's subscription. Does not allocate.
    #[inline]
    fn next(&mut self, queue: QueueId) -> Option<(&mut Sub, &mut Queue)> {
        let waiting = self.queues.get_mut(queue.0 as usize)?.as_mut()?;
        while waiting.entries.front().is_some_and(|entry| entry.sub == ENDED) {
            waiting.pop();
        }
        let Some(entry) = waiting.entries.front() else {
            // Clearing lets the next pass fill the same memory, which is still in the caches, instead of the next part of the
            // ring.
            waiting.entries.clear();
            return None;
        };
        Some((self.subs.get_mut(entry.sub as usize)?, waiting))
    }

    /// Queues an event. If the queue is full, it replaces the subscription's newest waiting event.
    #[inline(always)]
    fn add_or_replace_newest(&mut self, number: u32, entry: Entry) {
        let sub = &mut self.subs[number as usize];
        let Some(queue) = self.queues.get_mut(sub.queue as usize).and_then(Option::as_mut) else { return };
        if sub.waiting > 0 && (queue.stopped || queue.entries.len() + queue.subs >= queue.capacity) {
            if let Some(newest) = queue.entries.get_mut((sub.newest - queue.first) as usize) {
                let mask = newest.mask | entry.mask;
                *newest = Entry { mask, ..entry };
            }
            queue.replaced += 1;
            return;
        }
        sub.newest = queue.first + queue.entries.len() as u64;
        sub.waiting += 1;
        queue.entries.push_back(entry);
    }
}
