//! Monitors: their options, queues and flow control.

use super::conn::{Busy, Conn, OpKind, Step};
use super::structure::write_queued;
use super::{Get, Limits, Post, Server, Source};
use crate::codec::{Array, Fault, Mask, Reader, Value as Tree, Writer};
use crate::nt::{Layout, View};
use crate::request::Request;
use crate::wire::{self, Side, command, sub};
use base::{Alarm, Annotation, EventMask, Stamp, Value};
use std::collections::VecDeque;
use std::sync::Arc;

/// Length of a queue if the client does not request one.
const QUEUE_DEFAULT: usize = 4;

/// A subscription.
pub(super) struct Monitor {
    /// The events for which the value is sent.
    events: EventMask,
    pub(super) running: bool,
    queue: VecDeque<Update>,
    queue_max: usize,
    /// Number of updates that the client can take; `None` without flow control.
    credit: Option<u32>,
    /// Bytes of the values in the queue.
    pub(super) bytes: usize,
    /// It is in the connection's list of monitors with updates to send.
    listed: bool,
}

/// An update that waits.
pub(super) struct Update {
    pub(super) marks: u64,
    /// Fields that were replaced before they were sent.
    pub(super) overrun: u64,
    pub(super) content: Content,
}

/// The values of an update.
pub(super) enum Content {
    Field {
        value: Value,
        alarm: Alarm,
        stamp: Stamp,
        note: Annotation,
    },
    /// Of a structure that is no field, with its own marks. The value is shared.
    Structure {
        marks: Mask,
        overrun: Mask,
        value: Arc<Tree>,
    },
}

impl Update {
    fn field(marks: u64, view: &View<'_>) -> Self {
        let View { alarm, stamp, note, .. } = *view;
        Self { marks, overrun: 0, content: Content::Field { value: view.value.clone(), alarm, stamp, note } }
    }

    /// Memory of its value, for the limit of a connection's queues.
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Field { value, .. } => bytes_of(value),
            Content::Structure { value, .. } => tree_bytes(value),
        }
    }

    /// Takes over the marks of an update that this one replaces.
    fn replace(&mut self, newest: &Self) {
        self.overrun |= newest.overrun | (newest.marks & self.marks);
        self.marks |= newest.marks;
        if let (
            Content::Structure { marks, overrun, .. },
            Content::Structure { marks: before, overrun: overrun_before, .. },
        ) = (&mut self.content, &newest.content)
        {
            overrun.add(overrun_before);
            overrun.add(&marks.and(before));
            marks.add(before);
        }
    }
}

impl Monitor {
    /// A stopped monitor, and a warning for the client if an option is not used.
    pub(super) fn new(request: &Request, credit: Option<u32>, limits: &Limits) -> (Self, Option<String>) {
        let mut warning = None;
        let mut queue_max = QUEUE_DEFAULT;
        if let Some(text) = request.option("queueSize") {
            match text.parse::<usize>() {
                Ok(size) if size >= 1 => queue_max = size.min(limits.queue),
                _ => warning = Some(format!("queueSize={text} is not a number above 0, using {QUEUE_DEFAULT}")),
            }
        }
        let mut events = EventMask::VALUE | EventMask::ALARM;
        if let Some(text) = request.option("DBE") {
            match events_of(text) {
                Some(given) => events = given,
                None => warning = Some(format!("DBE={text} selects no event, using VALUE|ALARM")),
            }
        }
        let monitor =
            Self { events, running: false, queue: VecDeque::new(), queue_max, credit, bytes: 0, listed: false };
        (monitor, warning)
    }

    /// Whether an update may be sent at once.
    pub(super) fn is_open(&self) -> bool {
        self.may_send() && self.queue.is_empty()
    }

    pub(super) const fn queue_max(&self) -> usize {
        self.queue_max
    }

    const fn may_send(&self) -> bool {
        !matches!(self.credit, Some(0))
    }

    pub(super) fn take_credit(&mut self) {
        if let Some(credit) = &mut self.credit {
            *credit = credit.saturating_sub(1);
        }
    }

    /// Removes the oldest update from the queue.
    fn pop(&mut self) -> Option<Update> {
        let update = self.queue.pop_front()?;
        self.bytes -= update.bytes();
        Some(update)
    }

    /// Queues an update. If the queue is full, it replaces the newest one. Returns whether it did.
    fn push(&mut self, mut update: Update, is_full: bool) -> bool {
        let full = is_full || self.queue.len() >= self.queue_max;
        let newest = if full { self.queue.pop_back() } else { None };
        if let Some(newest) = &newest {
            self.bytes -= newest.bytes();
            update.replace(newest);
        }
        self.bytes += update.bytes();
        self.queue.push_back(update);
        newest.is_some()
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }
}

/// Events from a number or from names: `VALUE`, `ARCHIVE` or `LOG`, `ALARM`.
fn events_of(text: &str) -> Option<EventMask> {
    let mut events = EventMask::NONE;
    if let Ok(number) = text.trim().parse::<u8>() {
        events = EventMask(number & 7);
    } else {
        let upper = text.to_ascii_uppercase();
        for (name, event) in [
            ("VALUE", EventMask::VALUE),
            ("ARCHIVE", EventMask::LOG),
            ("LOG", EventMask::LOG),
            ("ALARM", EventMask::ALARM),
        ] {
            if upper.contains(name) {
                events |= event;
            }
        }
    }
    (!events.is_empty()).then_some(events)
}

/// Memory of a value, for the limit of a connection's queues.
fn bytes_of(value: &Value) -> usize {
    let each = match value.kind() {
        base::FieldType::String => 40,
        _ => 8,
    };
    value.len() * each
}

/// Memory of the value of a structure.
fn tree_bytes(value: &Tree) -> usize {
    match value {
        Tree::Text(text) => text.len(),
        Tree::Array(Array::Text(texts)) => texts.iter().map(String::len).sum(),
        Tree::Array(array) => array.len() * 8,
        Tree::Struct(fields) => fields.iter().map(tree_bytes).sum(),
        Tree::Elements(elements) => elements.iter().flatten().map(tree_bytes).sum(),
        Tree::Any(Some(any)) => tree_bytes(&any.1),
        Tree::Union(Some(one)) => tree_bytes(&one.1),
        _ => 8,
    }
}

impl Server {
    /// Starts, stops, acknowledges or ends a monitor.
    pub(super) fn monitor_request(
        &mut self,
        id: u32,
        ioid: u32,
        sub: u8,
        reader: &mut Reader<'_>,
        source: &mut impl Source,
    ) -> Result<(), Fault> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let Some(OpKind::Monitor(monitor)) = conn.ops.get_mut(&ioid).map(|op| &mut op.kind) else { return Ok(()) };
        let mut starts = false;
        if sub & sub::ACK != 0 {
            let more = reader.u32()?;
            if let Some(credit) = &mut monitor.credit {
                *credit = credit.saturating_add(more);
            }
        }
        if sub & sub::START_STOP != 0 {
            starts = sub & sub::GET != 0 && !monitor.running;
            monitor.running = sub & sub::GET != 0;
            if !monitor.running {
                conn.queued -= monitor.bytes;
                monitor.clear();
            }
        }
        conn.list(ioid);
        if sub & sub::DESTROY != 0 {
            conn.end_op(id, ioid, &mut self.watchers, source);
        } else if starts {
            self.first_update(id, ioid, source);
        }
        self.flush_monitors(id, source);
        Ok(())
    }

    /// Sends the present value with all selected fields.
    pub(super) fn first_update(&mut self, id: u32, ioid: u32, source: &mut impl Source) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.ops.get(&ioid).is_some_and(|op| op.structure.is_some()) {
            return self.first_structure(id, ioid, source);
        }
        let token = conn.token(id);
        let Some(op) = conn.ops.get_mut(&ioid).filter(|op| op.busy.is_none()) else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        let properties = op.select & channel.layout.properties() != 0;
        match source.read(channel.opened.handle, properties, Some(token)) {
            Get::Done(view) => self.first_answer(id, ioid, &view),
            Get::Sent => {
                op.busy = Some(Busy { token, sub: 0, step: Step::First });
                conn.pending.insert(token.0, ioid);
            }
            // The next post is the first update then.
            Get::Failed => {}
        }
    }

    /// Sends or queues the first update.
    pub(super) fn first_answer(&mut self, id: u32, ioid: u32, view: &View<'_>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let room = conn.has_room(&self.limits);
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        let (layout, hints) = (channel.layout.clone(), channel.hints);
        let marks = op.select & layout.all();
        let OpKind::Monitor(monitor) = &mut op.kind else { return };
        if !monitor.running {
            return;
        }
        if room && monitor.is_open() {
            monitor.take_credit();
            self.counters.updates += 1;
            let view = View { hints, ..*view };
            write_update(&mut conn.out, ioid, marks, 0, |out| layout.encode(marks, &view, out));
        } else {
            let update = Update::field(marks, view);
            self.counters.replaced += u64::from(conn.queue(ioid, update, self.limits.queued_bytes));
        }
        self.touch(id);
    }

    /// Sends a post to the monitors of its field. Fields that are the same for several clients are encoded once.
    pub fn post(&mut self, post: &Post<'_>, source: &mut impl Source) {
        let Some(list) = self.watchers.get_mut(&post.watch).map(std::mem::take) else { return };
        let mut shared = None;
        for &(id, ioid) in &list {
            self.post_to(id, ioid, post, &mut shared, source);
            self.touch(id);
        }
        if let Some(place) = self.watchers.get_mut(&post.watch) {
            *place = list;
        }
    }

    fn post_to(
        &mut self,
        id: u32,
        ioid: u32,
        post: &Post<'_>,
        shared: &mut Option<(u64, *const Layout)>,
        source: &mut impl Source,
    ) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.closing) else { return };
        let room = conn.has_room(&self.limits);
        let Some(op) = conn.ops.get_mut(&ioid) else { return };
        let OpKind::Monitor(monitor) = &mut op.kind else { return };
        let Some(channel) = conn.channels.get(&op.sid) else { return };
        let events = monitor.events | EventMask::PROPERTY;
        let layout = &channel.layout;
        let marks = layout.changed(post.mask & events) & op.select & layout.all();
        // The answer to the first read contains all posts before it.
        if marks == 0 || !monitor.running || op.busy.is_some() {
            return;
        }
        let Post { alarm, stamp, note, value, .. } = *post;
        let view = View { hints: channel.hints, ..View::of_value(value, alarm, stamp, note) };
        if !(room && monitor.is_open()) {
            let update = Update::field(marks, &view);
            self.counters.replaced += u64::from(conn.queue(ioid, update, self.limits.queued_bytes));
            return;
        }
        self.counters.updates += 1;
        monitor.take_credit();
        if marks & layout.properties() != 0 {
            write_properties(&mut conn.out, ioid, marks, 0, layout, channel.opened.handle, &view, source);
            return;
        }
        if *shared != Some((marks, Arc::as_ptr(layout))) {
            *shared = Some((marks, Arc::as_ptr(layout)));
            self.shared.bytes.clear();
            layout.encode(marks, &view, &mut self.shared);
        }
        let encoded = &self.shared.bytes;
        write_update(&mut conn.out, ioid, marks, 0, |out| out.bytes.extend_from_slice(encoded));
    }

    /// Sends updates that wait, one of each monitor at a time, as long as there is room.
    pub(super) fn flush_monitors(&mut self, id: u32, source: &mut impl Source) {
        while let Some(conn) = self.conns.get_mut(&id)
            && conn.has_room(&self.limits)
            && let Some(ioid) = conn.waiting.pop_front()
        {
            let Some(op) = conn.ops.get_mut(&ioid) else { continue };
            let Some(channel) = conn.channels.get(&op.sid) else { continue };
            let OpKind::Monitor(monitor) = &mut op.kind else { continue };
            monitor.listed = false;
            if !monitor.may_send() {
                continue;
            }
            let before = monitor.bytes;
            let Some(update) = monitor.pop() else { continue };
            conn.queued -= before - monitor.bytes;
            monitor.take_credit();
            self.counters.updates += 1;
            let Update { marks, overrun, content } = &update;
            let (value, alarm, stamp, note) = match content {
                Content::Field { value, alarm, stamp, note } => (value, alarm, stamp, note),
                Content::Structure { marks, overrun, value } => {
                    let queue = monitor.queue_max;
                    write_queued(&mut conn.out, ioid, channel.layout.ty(), (marks, overrun), value, queue);
                    conn.list(ioid);
                    continue;
                }
            };
            let view = View { hints: channel.hints, ..View::of_value(value, *alarm, *stamp, *note) };
            let (layout, handle) = (&channel.layout, channel.opened.handle);
            if marks & layout.properties() == 0 {
                write_update(&mut conn.out, ioid, *marks, *overrun, |out| layout.encode(*marks, &view, out));
            } else {
                write_properties(&mut conn.out, ioid, *marks, *overrun, layout, handle, &view, source);
            }
            conn.list(ioid);
        }
        self.touch(id);
    }
}

impl Conn {
    /// Queues an update of a monitor. Returns whether it replaced another.
    pub(super) fn queue(&mut self, ioid: u32, update: Update, queued_max: usize) -> bool {
        let is_full = self.queued >= queued_max;
        let Some(OpKind::Monitor(monitor)) = self.ops.get_mut(&ioid).map(|op| &mut op.kind) else { return false };
        self.queued -= monitor.bytes;
        let replaced = monitor.push(update, is_full);
        self.queued += monitor.bytes;
        self.list(ioid);
        replaced
    }

    /// Notes that a monitor may have updates to send.
    fn list(&mut self, ioid: u32) {
        if let Some(OpKind::Monitor(monitor)) = self.ops.get_mut(&ioid).map(|op| &mut op.kind)
            && !monitor.listed
            && monitor.may_send()
            && !monitor.queue.is_empty()
        {
            monitor.listed = true;
            self.waiting.push_back(ioid);
        }
    }
}

/// Appends an update: changed fields, their values, overrun fields.
fn write_update(out: &mut Writer, ioid: u32, marks: u64, overrun: u64, fields: impl FnOnce(&mut Writer)) {
    wire::message(out, Side::Server, command::MONITOR, |out| {
        out.u32(ioid);
        out.u8(0);
        out.mask64(marks);
        fields(out);
        out.mask64(overrun);
    });
}

/// Appends an update with properties, which are read now. If that is impossible, it has only the other fields.
#[expect(clippy::too_many_arguments, reason = "the parts of an update, from two callers")]
fn write_properties(
    out: &mut Writer,
    ioid: u32,
    marks: u64,
    overrun: u64,
    layout: &Layout,
    handle: u64,
    update: &View<'_>,
    source: &mut impl Source,
) {
    match source.read(handle, true, None) {
        Get::Done(now) => {
            let view = View { meta: now.meta, description: now.description, ..*update };
            write_update(out, ioid, marks, overrun, |out| layout.encode(marks, &view, out));
        }
        Get::Sent | Get::Failed => {
            let marks = marks & !layout.properties();
            write_update(out, ioid, marks, overrun, |out| layout.encode(marks, update, out));
        }
    }
}
