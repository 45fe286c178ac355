//! Links over PVAccess, with the behaviour of QSRV's.
//!
//! Links to the same channel with the same queue share a monitor. Writes of such links are sent together: one is in progress
//! at a time, and meanwhile each link keeps its newest value. A put remains open at the server, so a write is one request.

use super::{LinkId, News, connected, disconnected, meta, written};
use crate::job::OwnerRequest;
use base::{Alarm, Array, FieldType, MonoNs, Stamp, Status, Value};
use canet::Waker;
use db::{PvaLink, PvaProcess, RemoteRequest, RemoteUpdate};
use pva::client::{Action, ChannelId, Event, OpId};
use pva::codec::{self, Mask, Type};
use pva::nt::{Parts, Place, from_base, is_enum};
use pva::request::Request;
use pvanet::session::Session;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

/// Opens the client. `get` reads EPICS' variables.
pub(super) fn open(get: impl Fn(&str) -> Option<String>, bell: Waker) -> io::Result<Client> {
    let mut session = Session::open(get)?;
    session.complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
    session.listen_to(bell);
    Ok(Client { session, by_key: HashMap::new(), targets: HashMap::new(), links: HashMap::new(), ops: HashMap::new() })
}

/// Links with the same name, queue and flow control share a channel.
type Key = (String, u32, bool);

/// Processing that a write requests, and whether its answer waits for the end of it.
type Mode = (&'static str, bool);

/// A link to a channel.
struct User {
    id: LinkId,
    link: Arc<PvaLink>,
    reads: bool,
    /// Where its value is, while the channel has one.
    parts: Option<Parts>,
}

/// A write in progress.
struct Busy {
    op: OpId,
    /// Values that are written again after a loss of the connection.
    retried: Vec<(LinkId, Value)>,
    /// Links that wait for its end.
    waiting: Vec<LinkId>,
}

/// A channel used by links.
struct Target {
    key: Key,
    /// In the order in which they are processed.
    users: Vec<User>,
    monitor: Option<OpId>,
    has_value: bool,
    puts: Vec<(Mode, OpId)>,
    /// Newest unsent value of each link.
    held: BTreeMap<LinkId, Value>,
    /// Links that wait for the end of the next write.
    waiting: Vec<LinkId>,
    /// A write must be sent: a value that is not deferred, or the request to process.
    due: bool,
    /// The target is processed even without a value; kept without connection if the link retries.
    process: Option<LinkId>,
    busy: Option<Busy>,
    /// The last reported error, which is not repeated.
    complaint: String,
}

impl Target {
    fn new(key: Key) -> Self {
        Self {
            key,
            users: Vec::new(),
            monitor: None,
            has_value: false,
            puts: Vec::new(),
            held: BTreeMap::new(),
            waiting: Vec::new(),
            due: false,
            process: None,
            busy: None,
            complaint: String::new(),
        }
    }

    fn user(&self, id: LinkId) -> Option<&User> {
        self.users.iter().find(|user| user.id == id)
    }

    fn retries(&self, id: LinkId) -> bool {
        self.user(id).is_some_and(|user| user.link.retry)
    }

    fn complain(&mut self, text: String) {
        if self.complaint != text {
            eprintln!("PVAccess link to {}: {text}", self.key.0);
            self.complaint = text;
        }
    }

    /// The mode of a write of the held values. If links disagree, one that processes decides, as in C.
    fn mode(&self) -> Mode {
        let held = self.held.keys().filter_map(|id| Some(self.user(*id)?.link.process));
        let (mut always, mut never) = (self.process.is_some(), false);
        for process in held {
            match process {
                PvaProcess::Always | PvaProcess::Change | PvaProcess::ChangeIfPassive => always = true,
                PvaProcess::Never => never = true,
                PvaProcess::Default => {}
            }
        }
        let process = match (always, never) {
            (true, _) => "true",
            (false, true) => "false",
            (false, false) => "passive",
        };
        (process, !self.waiting.is_empty())
    }

    /// Drops what cannot be written without connection.
    fn drop_unsent(&mut self, news: &mut News) {
        let held = std::mem::take(&mut self.held);
        self.held = held.into_iter().filter(|(id, _)| self.retries(*id)).collect();
        self.process = self.process.filter(|id| self.retries(*id));
        let waiting = std::mem::take(&mut self.waiting);
        let (kept, failed): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|id| self.held.contains_key(id));
        news.extend(failed.into_iter().map(|id| written(id, false)));
        self.waiting = kept;
    }

    /// The link's values of an update. Links with the same holder are delivered together, in their order.
    fn deliver(&mut self, ty: &Type, changed: &Mask, value: &codec::Value, only: Option<LinkId>, news: &mut News) {
        let mut batches: Vec<(super::Holder, bool, Vec<RemoteUpdate>)> = Vec::new();
        let mut lost = Vec::new();
        for user in self.users.iter_mut().filter(|user| user.reads && only.is_none_or(|id| id == user.id)) {
            let is_new = user.parts.is_none();
            if is_new {
                user.parts = Parts::of(ty, &user.link.field);
            }
            let Some(parts) = &user.parts else {
                lost.push(user.link.field.clone());
                continue;
            };
            if is_new || parts.properties_are_in(changed, ty) {
                news.push(meta(user.id, parts.meta(value)));
            }
            let severity = parts.severity(value);
            let status = if severity == base::Severity::None { Status::None } else { Status::Link };
            let update = RemoteUpdate {
                id: user.id.1,
                // A structure without a value cannot be read.
                value: Some(parts.value(value).unwrap_or_else(|| Value::Array(Array::zeros(FieldType::I32, 0)))),
                alarm: Alarm { severity, status },
                stamp: parts.stamp(value).unwrap_or(Stamp::EPOCH),
                tag: parts.tag(value),
            };
            let (holder, atomic) = (user.id.0, user.link.atomic);
            match batches.iter_mut().find(|batch| (batch.0, batch.1) == (holder, atomic)) {
                Some(batch) => batch.2.push(update),
                None => batches.push((holder, atomic, vec![update])),
            }
        }
        // Those that are processed together are first, as in C.
        batches.sort_by_key(|batch| !batch.1);
        let requests = batches.into_iter();
        news.extend(requests.map(|(holder, atomic, updates)| (holder, OwnerRequest::Updates { updates, atomic })));
        lost.into_iter().for_each(|field| self.complain(format!("it has no field \"{field}\"")));
    }
}

/// State of the thread.
pub(super) struct Client {
    session: Session,
    by_key: HashMap<Key, ChannelId>,
    targets: HashMap<ChannelId, Target>,
    links: HashMap<LinkId, ChannelId>,
    /// The channel of each operation.
    ops: HashMap<OpId, ChannelId>,
}

impl super::Client for Client {
    type Event = Event;

    fn request(&mut self, id: LinkId, request: RemoteRequest, news: &mut News) {
        match request {
            RemoteRequest::Connect { pva: Some(link), monitor, .. } => self.connect(id, link, monitor, news),
            RemoteRequest::Connect { .. } | RemoteRequest::Get { .. } => {}
            RemoteRequest::Put { value, notify, .. } => {
                let Some((channel, target)) = self.target(id) else { return };
                target.held.insert(id, value);
                if notify {
                    target.waiting.push(id);
                }
                target.due |= target.user(id).is_some_and(|user| !user.link.defer);
                self.flush(channel, news);
            }
            RemoteRequest::Process { .. } => {
                let Some((channel, target)) = self.target(id) else { return };
                (target.process, target.due) = (Some(id), true);
                self.flush(channel, news);
            }
            RemoteRequest::Disconnect { .. } => self.release(id),
        }
    }

    fn write_held(&mut self, _: &mut News) {
        // The end of a write sends the next one.
    }

    fn step(&mut self, until: MonoNs) -> io::Result<Option<Event>> {
        self.session.step(until)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.session.client.poll_event()
    }

    fn event(&mut self, event: Event, news: &mut News) {
        match event {
            Event::Connected(channel) => {
                self.follow(channel);
                let Some(target) = self.targets.get_mut(&channel) else { return };
                target.complaint.clear();
                news.extend(target.users.iter().filter(|user| !user.reads).map(|user| connected(user.id, 1)));
                self.flush(channel, news);
            }
            Event::Disconnected(channel) => self.gone(channel, news),
            Event::Refused(channel, status) => {
                let Some(target) = self.targets.get_mut(&channel) else { return };
                target.complain(format!("the server refused the channel: {}", status.message));
            }
            Event::Value { op, changed, .. } => self.updated(op, &changed, None, news),
            Event::Ready(op) => {
                if let Some(channel) = self.ops.get(&op).copied() {
                    self.flush(channel, news);
                }
            }
            Event::Written(op, status) => self.put_done(op, &status, news),
            Event::Done(op) => self.ended(op, "the server ended the monitor", news),
            Event::Failed(op, status) => self.ended(op, &status.message, news),
            Event::Message(op, text) => {
                let target = self.ops.get(&op).and_then(|channel| self.targets.get_mut(channel));
                target.into_iter().for_each(|target| target.complain(format!("the server reports: {text}")));
            }
            Event::Described(..) | Event::Returned(..) => {}
        }
    }

    fn unusable(&self) -> String {
        self.session.client.unconnected()
    }
}

impl Client {
    fn target(&mut self, id: LinkId) -> Option<(ChannelId, &mut Target)> {
        let channel = *self.links.get(&id)?;
        Some((channel, self.targets.get_mut(&channel)?))
    }

    fn connect(&mut self, id: LinkId, link: Arc<PvaLink>, reads: bool, news: &mut News) {
        let key = (link.pv.clone(), link.queue, link.pipeline);
        let channel = match self.by_key.get(&key) {
            Some(channel) => *channel,
            None => {
                let channel = self.session.client.channel(Session::now(), &link.pv);
                self.by_key.insert(key.clone(), channel);
                self.targets.insert(channel, Target::new(key));
                channel
            }
        };
        self.links.insert(id, channel);
        let Some(target) = self.targets.get_mut(&channel) else { return };
        target.users.push(User { id, link, reads, parts: None });
        target.users.sort_by_key(|user| user.link.order);
        if !reads {
            if self.session.client.server(channel).is_some() {
                news.push(connected(id, 1));
            }
            return;
        }
        match (target.monitor, target.has_value) {
            (Some(monitor), true) => self.updated(monitor, &Mask::default(), Some(id), news),
            _ => self.follow(channel),
        }
    }

    /// Monitors a channel that is read.
    fn follow(&mut self, channel: ChannelId) {
        let Some(target) = self.targets.get_mut(&channel) else { return };
        if target.monitor.is_some() || !target.users.iter().any(|user| user.reads) {
            return;
        }
        let (_, queue, pipeline) = target.key;
        let mut request = Request::default();
        let mut option = |name: &str, value: String| request.options.push((name.to_owned(), value));
        option("pipeline", pipeline.to_string());
        option("atomic", "true".to_owned());
        option("queueSize", queue.to_string());
        let op = self.session.client.start(channel, Action::Monitor, &request);
        self.session.client.renew(op);
        target.monitor = Some(op);
        self.ops.insert(op, channel);
    }

    fn release(&mut self, id: LinkId) {
        let Some(channel) = self.links.remove(&id) else { return };
        let Some(target) = self.targets.get_mut(&channel) else { return };
        target.users.retain(|user| user.id != id);
        target.held.remove(&id);
        target.waiting.retain(|other| *other != id);
        if !target.users.iter().any(|user| user.reads)
            && let Some(monitor) = target.monitor.take()
        {
            target.has_value = false;
            self.ops.remove(&monitor);
            self.session.client.end(monitor);
        }
        if target.users.is_empty() {
            self.by_key.remove(&target.key);
            self.targets.remove(&channel);
            self.ops.retain(|_, of| *of != channel);
            self.session.client.close(channel);
        }
    }

    /// A monitor has a value. Delivers it to all links, or to one.
    fn updated(&mut self, op: OpId, changed: &Mask, only: Option<LinkId>, news: &mut News) {
        let Some(target) = self.ops.get(&op).and_then(|channel| self.targets.get_mut(channel)) else { return };
        if target.monitor != Some(op) {
            return;
        }
        let client = &self.session.client;
        let (Some(ty), Some(value)) = (client.ty(op), client.value(op)) else { return };
        target.has_value = true;
        target.deliver(ty, changed, value, only, news);
    }

    /// A channel lost its server.
    fn gone(&mut self, channel: ChannelId, news: &mut News) {
        let Some(target) = self.targets.get_mut(&channel) else { return };
        target.has_value = false;
        for user in &mut target.users {
            user.parts = None;
            news.push(disconnected(user.id));
        }
        if let Some(busy) = target.busy.take() {
            for (id, value) in busy.retried {
                target.held.entry(id).or_insert(value);
            }
        }
        target.drop_unsent(news);
        target.due = target.process.is_some() || !target.held.is_empty();
    }

    /// An operation has ended. The client requests a monitor again.
    fn ended(&mut self, op: OpId, why: &str, news: &mut News) {
        let Some(channel) = self.ops.get(&op).copied() else { return };
        let Some(target) = self.targets.get_mut(&channel) else { return };
        let is_repeated = !target.has_value && target.complaint == why;
        target.complain(why.to_owned());
        if target.monitor == Some(op) {
            target.has_value = false;
            for user in target.users.iter_mut().filter(|user| user.reads && !is_repeated) {
                user.parts = None;
                news.push(disconnected(user.id));
            }
            return;
        }
        self.ops.remove(&op);
        target.puts.retain(|(_, put)| *put != op);
        let busy = target.busy.take().map(|busy| busy.waiting);
        let waiting = std::mem::take(&mut target.waiting);
        news.extend(busy.into_iter().flatten().chain(waiting).map(|id| written(id, false)));
        target.held.clear();
        (target.due, target.process) = (false, None);
    }

    /// Sends the held values, unless a write is in progress or the channel is not connected.
    fn flush(&mut self, channel: ChannelId, news: &mut News) {
        let client = &mut self.session.client;
        let Some(target) = self.targets.get_mut(&channel).filter(|target| target.due && target.busy.is_none()) else {
            return;
        };
        if client.server(channel).is_none() {
            return target.drop_unsent(news);
        }
        let mode = target.mode();
        let Some((_, op)) = target.puts.iter().find(|(of, _)| *of == mode) else {
            let op = client.start(channel, Action::Put, &request(mode));
            target.puts.push((mode, op));
            self.ops.insert(op, channel);
            return;
        };
        let op = *op;
        let (Some(ty), Some(mut value)) = (client.ty(op).cloned(), client.value(op).cloned()) else { return };
        let (mut mask, mut retried) = (Mask::default(), Vec::new());
        for (id, new) in std::mem::take(&mut target.held) {
            let Some(user) = target.user(id) else { continue };
            match assign(&ty, &user.link.field, &new, &mut value, &mut mask) {
                Ok(()) if user.link.retry => retried.push((id, new)),
                Ok(()) => {}
                Err(error) => {
                    target.complain(error.to_string());
                    if target.waiting.contains(&id) {
                        target.waiting.retain(|other| *other != id);
                        news.push(written(id, false));
                    }
                }
            }
        }
        target.due = false;
        if mask.is_empty() && target.process.is_none() {
            return;
        }
        target.process = None;
        client.write_again(op, &mask, &value);
        target.busy = Some(Busy { op, retried, waiting: std::mem::take(&mut target.waiting) });
    }

    /// A write has ended.
    fn put_done(&mut self, op: OpId, status: &codec::Status, news: &mut News) {
        let Some(channel) = self.ops.get(&op).copied() else { return };
        let Some(target) = self.targets.get_mut(&channel) else { return };
        let Some(busy) = target.busy.take_if(|busy| busy.op == op) else { return };
        let ok = status.is_success();
        news.extend(busy.waiting.into_iter().map(|id| written(id, ok)));
        if ok {
            target.complaint.clear();
        } else {
            target.complain(format!("the server refused a write: {}", status.message));
        }
        self.flush(channel, news);
    }
}

/// The request of a put.
fn request((process, waits): Mode) -> Request {
    let options = [("block", waits.to_string()), ("process", process.to_owned())];
    Request { options: options.map(|(name, value)| (name.to_owned(), value)).to_vec(), ..Request::default() }
}

/// The reason why a link's value cannot be assigned.
#[derive(Debug, thiserror::Error)]
enum Unassignable {
    #[error("it has no field \"{0}\"")]
    NoField(String),
    #[error("the value does not fit the type of the field")]
    Type,
}

/// Assigns a link's value to the field that it writes. A structure is written in its field `value`, a state by its number.
fn assign(ty: &Type, field: &str, new: &Value, value: &mut codec::Value, mask: &mut Mask) -> Result<(), Unassignable> {
    let mut place = Place::find(ty, field).ok_or_else(|| Unassignable::NoField(field.to_owned()))?;
    let is_state = |place: &Place| place.ty.fields().is_some_and(is_enum);
    if !is_state(&place)
        && let Some(inner) = place.child("value")
    {
        place = inner;
    }
    if is_state(&place)
        && let Some(index) = place.child("index")
    {
        place = index;
    }
    let new = from_base(&place.ty, new).ok_or(Unassignable::Type)?;
    if let Some(room) = place.of_mut(value) {
        *room = new;
        mask.set(place.bit);
    }
    Ok(())
}
