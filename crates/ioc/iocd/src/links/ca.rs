//! Links over Channel Access.
//!
//! Links to the same process variable share a channel and a subscription. As in C's `dbCa`, values are subscribed in the
//! native type of their server, and units and limits are read at each connection.

use super::{LinkId, News, Shared, connected, disconnected, meta, written};
use crate::job::OwnerRequest;
use crate::sequencer::SEQUENCER;
use base::{Alarm, EventMask, Meta, MonoNs, Stamp, Value};
use ca::client::{ChannelId, Event, IoId};
use ca::encode::{Reading, encode};
use ca::server::Access;
use ca::{Basic, Class, Dbr};
use canet::Waker;
use canet::session::Session;
use db::RemoteRequest;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

/// Unsent bytes of a circuit above which a write replaces the waiting write of the same link.
const BACKLOG_BYTES: usize = 64 << 10;

fn update((holder, id): LinkId, value: Value, alarm: Alarm, stamp: Stamp) -> (super::Holder, OwnerRequest) {
    (holder, OwnerRequest::Update { id, value: Some(value), alarm, stamp })
}

/// The end of a read; `None` if it failed.
fn got((holder, id): LinkId, reading: Option<Reading>) -> (super::Holder, OwnerRequest) {
    let (alarm, stamp) = reading.as_ref().map_or_else(Default::default, |reading| (reading.alarm, reading.stamp));
    (holder, OwnerRequest::Got { id, value: reading.map(|reading| reading.value), alarm, stamp })
}

/// Whether a link without monitor is connected: output links of records need the right to write.
fn is_connected((holder, _): LinkId, access: Access) -> bool {
    access.write || holder == SEQUENCER
}

/// Opens the client. `get` reads EPICS' variables.
pub(super) fn open(get: impl Fn(&str) -> Option<String>, bell: Waker, shared: Arc<Shared>) -> io::Result<Client> {
    let mut session = Session::open(&get)?;
    // Without a repeater, an IOC that returns is found by searching, which takes longer.
    if let Err(error) = canet::repeater::start(&get) {
        eprintln!("the repeater of beacons cannot be started: {error}");
    }
    session.complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
    session.listen_to(bell);
    Ok(Client {
        session,
        by_name: HashMap::new(),
        channels: HashMap::new(),
        links: HashMap::new(),
        awaited: HashMap::new(),
        shared,
    })
}

/// A process variable used by links.
#[derive(Default)]
struct Target {
    name: String,
    readers: Vec<LinkId>,
    writers: Vec<LinkId>,
    /// The subscription and its data type.
    sub: Option<(IoId, Dbr)>,
    last: Option<(Value, Alarm, Stamp)>,
    meta: Option<Meta>,
    /// While the circuit accepts no further writes: the newest write of each link, and whether it has completion.
    held: BTreeMap<LinkId, (Value, bool)>,
}

/// State of the thread.
pub(super) struct Client {
    session: Session,
    by_name: HashMap<String, ChannelId>,
    channels: HashMap<ChannelId, Target>,
    links: HashMap<LinkId, ChannelId>,
    /// Link that waits for each read or write in progress.
    awaited: HashMap<IoId, LinkId>,
    shared: Arc<Shared>,
}

impl super::Client for Client {
    type Event = Event;

    fn request(&mut self, id: LinkId, request: RemoteRequest, news: &mut News) {
        match request {
            RemoteRequest::Connect { name, monitor, .. } => {
                let channel = match self.by_name.get(&name) {
                    Some(channel) => *channel,
                    None => {
                        let channel = self.session.client.channel(Session::now(), &name, 0);
                        self.by_name.insert(name.clone(), channel);
                        self.channels.insert(channel, Target { name, ..Target::default() });
                        channel
                    }
                };
                self.links.insert(id, channel);
                let Some(target) = self.channels.get_mut(&channel) else { return };
                news.extend(target.meta.clone().map(|found| meta(id, found)));
                if monitor {
                    target.readers.push(id);
                    let last = target.last.clone();
                    news.extend(last.map(|(value, alarm, stamp)| update(id, value, alarm, stamp)));
                    self.subscribe(channel);
                } else {
                    target.writers.push(id);
                    if let Some(info) = self.session.client.info(channel)
                        && is_connected(id, info.access)
                    {
                        news.push(connected(id, info.count));
                    }
                }
            }
            RemoteRequest::Put { value, notify, .. } => {
                if let Some(channel) = self.links.get(&id).copied() {
                    self.put(channel, id, value, notify, news);
                }
            }
            RemoteRequest::Get { .. } => self.get(id, news),
            // This request only concerns records of this IOC.
            RemoteRequest::Process { .. } => {}
            RemoteRequest::Disconnect { .. } => self.release(id),
        }
    }

    fn write_held(&mut self, news: &mut News) {
        let ready = |(channel, target): (&ChannelId, &Target)| {
            (!target.held.is_empty() && self.session.client.backlog(*channel) <= BACKLOG_BYTES).then_some(*channel)
        };
        let ready: Vec<ChannelId> = self.channels.iter().filter_map(ready).collect();
        for channel in ready {
            let held = self.channels.get_mut(&channel).map(|target| std::mem::take(&mut target.held));
            held.into_iter().flatten().for_each(|(id, (value, notify))| self.put(channel, id, value, notify, news));
        }
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
                self.note_server(channel);
                self.ask_properties(channel);
                self.subscribe(channel);
                self.writable(channel, news);
            }
            Event::AccessChanged(channel) => {
                self.note_server(channel);
                self.writable(channel, news);
                if !self.session.client.info(channel).is_some_and(|info| info.access.read) {
                    self.gone(channel, false, news);
                }
            }
            Event::Disconnected(channel) => {
                self.note_server(channel);
                self.gone(channel, true, news);
            }
            Event::Update { channel, result, .. } => match result {
                Ok((_, reading)) => {
                    let Some(target) = self.channels.get_mut(&channel) else { return };
                    let Reading { value, alarm, stamp, .. } = reading;
                    for id in &target.readers {
                        news.push(update(*id, value.clone(), alarm, stamp));
                    }
                    target.last = Some((value, alarm, stamp));
                }
                Err(_) => self.gone(channel, false, news),
            },
            Event::Read { io, result, .. } if self.awaited.contains_key(&io) => {
                let Some(id) = self.awaited.remove(&io) else { return };
                news.push(got(id, result.ok().map(|(_, reading)| reading)));
            }
            Event::Read { channel, result: Ok((_, reading)), .. } => {
                let Some(target) = self.channels.get_mut(&channel) else { return };
                let links = target.readers.iter().chain(&target.writers);
                news.extend(links.map(|id| meta(*id, reading.meta.clone())));
                target.meta = Some(reading.meta);
            }
            Event::Duplicate { channel, used, other } => {
                let name = self.session.client.name(channel);
                eprintln!(
                    "link to {name}: served by {}, and also by {}, which is not used",
                    address(used),
                    address(other)
                );
            }
            Event::Complaint { channel, text, .. } => {
                let name = channel.map_or("", |channel| self.session.client.name(channel));
                eprintln!("link to {name}: the server reports {text}");
            }
            // A link that was removed or already disconnected does not wait any longer.
            Event::Written { io, result, .. } => {
                news.extend(self.awaited.remove(&io).map(|id| written(id, result.is_ok())));
            }
            Event::Read { .. } => {}
        }
    }

    fn unusable(&self) -> String {
        self.session.client.unusable(|channel| match self.channels.get(&channel) {
            Some(target) => Access {
                read: !target.readers.is_empty(),
                write: target.writers.iter().any(|(holder, _)| *holder != SEQUENCER),
            },
            None => Access { read: false, write: false },
        })
    }
}

impl Client {
    fn release(&mut self, id: LinkId) {
        let Some(channel) = self.links.remove(&id) else { return };
        self.awaited.retain(|_, awaited| *awaited != id);
        let Some(target) = self.channels.get_mut(&channel) else { return };
        target.readers.retain(|reader| *reader != id);
        target.writers.retain(|writer| *writer != id);
        target.held.remove(&id);
        if target.readers.is_empty()
            && let Some((sub, _)) = target.sub.take()
        {
            target.last = None;
            self.session.client.unsubscribe(sub);
        }
        if target.readers.is_empty() && target.writers.is_empty() {
            self.by_name.remove(&target.name);
            self.channels.remove(&channel);
            self.session.client.clear(channel);
        }
    }

    /// Subscribes to a channel that is read, in the server's native type.
    fn subscribe(&mut self, channel: ChannelId) {
        let client = &mut self.session.client;
        let (Some(target), Some(info)) = (self.channels.get_mut(&channel), client.info(channel)) else { return };
        let dbr = Dbr::new(Class::Time, info.native);
        if target.readers.is_empty() || target.sub.is_some_and(|(_, known)| known == dbr) {
            return;
        }
        if let Some((old, _)) = target.sub.take() {
            client.unsubscribe(old);
        }
        target.sub = Some((client.subscribe(channel, dbr, 0, EventMask::VALUE | EventMask::ALARM), dbr));
    }

    /// Requests units, limits and state names. As in links of C, those of a number are read as double.
    fn ask_properties(&mut self, channel: ChannelId) {
        let client = &mut self.session.client;
        let basic = match client.info(channel).map(|info| info.native) {
            None | Some(Basic::String) => return,
            Some(Basic::Enum) => Basic::Enum,
            Some(_) => Basic::Double,
        };
        // Refused without read access. The link then has no properties.
        let _ = client.read(channel, Dbr::new(Class::Ctrl, basic), 1);
    }

    fn put(&mut self, channel: ChannelId, id: LinkId, value: Value, notify: bool, news: &mut News) {
        let Some(target) = self.channels.get_mut(&channel) else { return };
        if self.session.client.backlog(channel) > BACKLOG_BYTES {
            target.held.insert(id, (value, notify));
            return;
        }
        target.held.remove(&id);
        let info = self.session.client.info(channel);
        let sent = info.and_then(|info| {
            let dbr = Dbr::plain(Basic::native_of(value.kind()));
            let count = (value.len() as u32).min(info.count);
            let mut payload = Vec::new();
            encode(dbr, count, &Reading { value, ..Reading::default() }, &mut payload).ok()?;
            self.session.client.write_raw(channel, dbr, count, &payload, notify).ok()
        });
        match sent {
            Some(Some(io)) => drop(self.awaited.insert(io, id)),
            // A lost channel is reported separately.
            Some(None) => {}
            None if notify => news.push(written(id, false)),
            None => {}
        }
    }

    /// Reads the present value of a channel.
    fn get(&mut self, id: LinkId, news: &mut News) {
        let asked = self.links.get(&id).copied().and_then(|channel| {
            let sub = self.channels.get(&channel)?.sub;
            let client = &mut self.session.client;
            let info = client.info(channel)?;
            let dbr = sub.map_or_else(|| Dbr::new(Class::Time, info.native), |(_, dbr)| dbr);
            client.read(channel, dbr, 0).ok()
        });
        match asked {
            Some(io) => drop(self.awaited.insert(io, id)),
            None => news.push(got(id, None)),
        }
    }

    /// Stores for reports which server has a channel, or that it is disconnected.
    fn note_server(&self, channel: ChannelId) {
        let (name, info) = (self.session.client.name(channel), self.session.client.info(channel));
        let Ok(mut servers) = self.shared.servers.lock() else { return };
        match info {
            Some(info) => drop(servers.insert(name.to_owned(), (address(info.server), info.access))),
            None => drop(servers.remove(name)),
        }
    }

    /// Reports to output links whether they can be written.
    fn writable(&self, channel: ChannelId, news: &mut News) {
        let Some(target) = self.channels.get(&channel) else { return };
        let info = self.session.client.info(channel);
        news.extend(target.writers.iter().map(|id| match &info {
            Some(info) if is_connected(*id, info.access) => connected(*id, info.count),
            _ => disconnected(*id),
        }));
    }

    /// Reports to input links that they have no value, and with `writers` to output links that they are disconnected.
    fn gone(&mut self, channel: ChannelId, writers: bool, news: &mut News) {
        let Some(target) = self.channels.get_mut(&channel) else { return };
        target.last = None;
        if writers {
            target.meta = None;
        }
        target.held.clear();
        let links = &self.links;
        self.awaited.retain(|_, id| links.get(id) != Some(&channel));
        news.extend(target.readers.iter().map(|id| disconnected(*id)));
        if writers {
            news.extend(target.writers.iter().map(|id| disconnected(*id)));
        }
    }
}

fn address(at: ca::client::Address) -> String {
    format!("{}:{}", std::net::Ipv4Addr::from(at.ip), at.port)
}
