//! Links of records to other IOCs: a Channel Access client on a separate thread.
//!
//! The engine forwards requests of its database ([`db::RemoteRequest`]). Values, alarms and connection changes return in
//! bounded batches. Links to the same process variable share a channel and a subscription. As in C's `dbCa`, values are
//! subscribed in the native type of their server, and units and limits are read at each connection.

use crate::bridge::{Holder, tell};
use crate::engine::Mailbox;
use crate::job::OwnerRequest;
use base::{Alarm, DurNs, EventMask, Meta, Stamp, Value};
use ca::client::{ChannelId, Event, IoId};
use ca::encode::{Reading, encode};
use ca::server::Access;
use ca::{Basic, Class, Dbr};
use canet::Waker;
use canet::session::Session;
use db::{RemoteId, RemoteRequest};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use sys::notify::Supervisor;

/// Maximum number of request batches waiting for the thread.
const BATCHES_MAX: usize = 64;
/// Maximum number of waiting requests. Further writes are dropped.
const WAITING_MAX: usize = 100_000;
/// Maximum number of changes sent to the engine at once.
const NEWS_MAX: usize = 1_000;
/// Unsent bytes of a circuit above which a write replaces the waiting write of the same link.
const BACKLOG_BYTES: usize = 64 << 10;
/// Maximum time between two checks of the thread.
const PAUSE: DurNs = DurNs::from_secs(1);

/// A link, identified by its holder and its number there.
type LinkId = (Holder, RemoteId);

/// Requests of links.
type Batch = Vec<(Holder, RemoteRequest)>;

/// Changes of links.
type News = Vec<(Holder, OwnerRequest)>;

fn update((holder, id): LinkId, value: Value, alarm: Alarm, stamp: Stamp) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Update { id, value: Some(value), alarm, stamp })
}

fn meta((holder, id): LinkId, meta: Meta) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Meta { id, meta: Some(Box::new(meta)) })
}

const fn connected((holder, id): LinkId, connected: bool) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Connect { id, connected })
}

const fn written((holder, id): LinkId, ok: bool) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Written { id, ok })
}

/// Server and access rights of process variables in other IOCs.
pub(crate) type Servers = HashMap<String, (String, Access)>;

/// The engine's side.
pub struct Links {
    /// Environment for the thread, which the first link starts.
    environment: BTreeMap<String, String>,
    mailbox: Mailbox,
    thread: Option<(SyncSender<Batch>, Waker)>,
    /// Requests waiting for room.
    waiting: Batch,
    servers: Arc<Mutex<Servers>>,
    /// Number of writes dropped because the queue was full.
    pub lost: u64,
}

impl Links {
    /// Creates the links. Their client reads EPICS parameters from `environment` and sends changes through `mailbox`.
    #[must_use]
    pub fn new(mailbox: Mailbox, environment: BTreeMap<String, String>) -> Self {
        Self { environment, mailbox, thread: None, waiting: Vec::new(), servers: Arc::default(), lost: 0 }
    }

    /// Servers of the connected process variables, by name.
    pub(crate) fn servers(&self) -> Servers {
        self.servers.lock().map(|servers| servers.clone()).unwrap_or_default()
    }

    /// Queues a link's request. A write beyond the limit is dropped and counted.
    pub(crate) fn ask(&mut self, holder: Holder, request: RemoteRequest) {
        if self.waiting.len() >= WAITING_MAX && matches!(request, RemoteRequest::Put { .. }) {
            self.lost += 1;
        } else {
            self.waiting.push((holder, request));
        }
    }

    /// Sends queued requests to the thread, as far as there is room.
    ///
    /// # Errors
    /// If the client cannot be started.
    pub(crate) fn hand_on(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self.thread.is_none() {
            self.thread =
                Some(start(self.mailbox.clone(), std::mem::take(&mut self.environment), Arc::clone(&self.servers))?);
        }
        if let Some((sender, bell)) = &self.thread {
            match sender.try_send(std::mem::take(&mut self.waiting)) {
                Ok(()) => bell.wake(),
                Err(TrySendError::Full(batch)) => self.waiting = batch,
                Err(TrySendError::Disconnected(_)) => {
                    return Err(io::Error::other("the thread of the links to other IOCs has ended"));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // Dropping the sender ends the thread, which notices when it is woken.
        if let Some((sender, bell)) = self.thread.take() {
            drop(sender);
            bell.wake();
        }
    }
}

fn start(
    mailbox: Mailbox,
    environment: BTreeMap<String, String>,
    servers: Arc<Mutex<Servers>>,
) -> io::Result<(SyncSender<Batch>, Waker)> {
    let mut session = Session::open(|name| environment.get(name).cloned())?;
    // Without a repeater, an IOC that returns is found by searching, which takes longer.
    if let Err(error) = canet::repeater::start(|name| environment.get(name).cloned()) {
        eprintln!("the repeater of beacons cannot be started: {error}");
    }
    session.complaints.iter().for_each(|complaint| eprintln!("{}", complaint.0));
    let bell = Waker::new()?;
    session.listen_to(bell.clone());
    let (sender, requests) = sync_channel(BATCHES_MAX);
    let mut client = Client {
        session,
        by_name: HashMap::new(),
        channels: HashMap::new(),
        links: HashMap::new(),
        awaited: HashMap::new(),
        servers,
        supervisor: Supervisor::from_env(),
    };
    std::thread::Builder::new().name("ca-links".into()).spawn(move || {
        if let Err(error) = client.run(&requests, &mailbox) {
            eprintln!("links to other IOCs: {error}");
        }
    })?;
    Ok((sender, bell))
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
struct Client {
    session: Session,
    by_name: HashMap<String, ChannelId>,
    channels: HashMap<ChannelId, Target>,
    links: HashMap<LinkId, ChannelId>,
    /// Link that waits for each write in progress.
    awaited: HashMap<IoId, LinkId>,
    servers: Arc<Mutex<Servers>>,
    /// Receives the links that are not connected.
    supervisor: Supervisor,
}

impl Client {
    /// Runs until the engine drops its side.
    fn run(&mut self, requests: &Receiver<Batch>, mailbox: &Mailbox) -> io::Result<()> {
        let mut news = Vec::new();
        loop {
            loop {
                match requests.try_recv() {
                    Ok(batch) => {
                        batch.into_iter().for_each(|(holder, request)| self.request(holder, request, &mut news))
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            self.write_held(&mut news);
            self.supervisor.status(Session::now(), || self.session.client.unconnected());
            if !hand_over(&mut news, mailbox) {
                return Ok(());
            }
            let mut event = self.session.step(Session::now() + PAUSE)?;
            while let Some(now) = event {
                self.event(now, &mut news);
                if news.len() >= NEWS_MAX {
                    break;
                }
                event = self.session.client.poll_event();
            }
        }
    }

    fn request(&mut self, holder: Holder, request: RemoteRequest, news: &mut News) {
        match request {
            RemoteRequest::Connect { id, name, monitor } => {
                let channel = match self.by_name.get(&name) {
                    Some(channel) => *channel,
                    None => {
                        let channel = self.session.client.channel(Session::now(), &name, 0);
                        self.by_name.insert(name.clone(), channel);
                        self.channels.insert(channel, Target { name, ..Target::default() });
                        channel
                    }
                };
                let id = (holder, id);
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
                    if self.session.client.info(channel).is_some_and(|info| info.access.write) {
                        news.push(connected(id, true));
                    }
                }
            }
            RemoteRequest::Put { id, value, notify } => {
                let id = (holder, id);
                if let Some(channel) = self.links.get(&id).copied() {
                    self.put(channel, id, value, notify, news);
                }
            }
            // This request only concerns records of this IOC.
            RemoteRequest::Process { .. } => {}
            RemoteRequest::Disconnect { id } => self.release((holder, id)),
        }
    }

    fn release(&mut self, id: LinkId) {
        let Some(channel) = self.links.remove(&id) else { return };
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
                eprintln!("link to {name}: the server says {text}");
            }
            // A link that was removed or already disconnected does not wait any longer.
            Event::Written { io, result, .. } => {
                news.extend(self.awaited.remove(&io).map(|id| written(id, result.is_ok())));
            }
            Event::Read { .. } => {}
        }
    }

    /// Stores for reports which server has a channel, or that it is disconnected.
    fn note_server(&self, channel: ChannelId) {
        let (name, info) = (self.session.client.name(channel), self.session.client.info(channel));
        let Ok(mut servers) = self.servers.lock() else { return };
        match info {
            Some(info) => drop(servers.insert(name.to_owned(), (address(info.server), info.access))),
            None => drop(servers.remove(name)),
        }
    }

    /// Reports to output links whether they can be written.
    fn writable(&self, channel: ChannelId, news: &mut News) {
        let Some(target) = self.channels.get(&channel) else { return };
        let may = self.session.client.info(channel).is_some_and(|info| info.access.write);
        news.extend(target.writers.iter().map(|id| connected(*id, may)));
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
        news.extend(target.readers.iter().map(|id| connected(*id, false)));
        if writers {
            news.extend(target.writers.iter().map(|id| connected(*id, false)));
        }
    }
}

fn address(at: ca::client::Address) -> String {
    format!("{}:{}", std::net::Ipv4Addr::from(at.ip), at.port)
}

/// Sends changes to the engine, waiting if it is busy. Returns whether the engine still exists.
fn hand_over(news: &mut News, mailbox: &Mailbox) -> bool {
    if news.is_empty() {
        return true;
    }
    let batch = std::mem::take(news);
    mailbox.tell(move |engine| batch.into_iter().for_each(|(holder, request)| tell(&mut engine.store, holder, request)))
}
