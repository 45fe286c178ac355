//! Links of records to other IOCs: clients of Channel Access and PVAccess, each on a separate thread.
//!
//! The engine forwards requests of its database ([`db::RemoteRequest`]). Values, alarms and connection changes return in
//! bounded batches. A thread starts with the first link over its protocol.

mod ca;
mod pva;

use crate::bridge::{Holder, tell};
use crate::engine::Mailbox;
use crate::job::OwnerRequest;
use ::ca::server::Access;
use base::{DurNs, Meta, MonoNs};
use canet::Waker;
use db::{RemoteId, RemoteRequest};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use sys::notify::Supervisor;
use sys::rounds::Rounds;

/// Maximum number of request batches waiting for a thread.
const BATCHES_MAX: usize = 64;
/// Maximum number of waiting requests. Further writes are dropped.
const WAITING_MAX: usize = 100_000;
/// Maximum number of changes sent to the engine at once.
const NEWS_MAX: usize = 1_000;
/// Maximum time between two checks of a thread.
const PAUSE: DurNs = DurNs::from_secs(1);

/// A link, identified by its holder and its number there.
type LinkId = (Holder, RemoteId);

/// Requests of links.
type Batch = Vec<(Holder, RemoteRequest)>;

/// Changes of links.
type News = Vec<(Holder, OwnerRequest)>;

fn meta((holder, id): LinkId, meta: Meta) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Meta { id, meta: Some(Box::new(meta)) })
}

const fn connected((holder, id): LinkId, count: u32) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Connect { id, connected: true, count })
}

const fn disconnected((holder, id): LinkId) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Connect { id, connected: false, count: 0 })
}

const fn written((holder, id): LinkId, ok: bool) -> (Holder, OwnerRequest) {
    (holder, OwnerRequest::Written { id, ok })
}

/// Server and access rights of process variables in other IOCs.
pub(crate) type Servers = HashMap<String, (String, Access)>;

/// The protocol of a thread.
trait Client: Send + 'static {
    type Event;
    /// Handles a request of a link.
    fn request(&mut self, link: LinkId, request: RemoteRequest, news: &mut News);
    /// Sends writes that waited for room.
    fn write_held(&mut self, news: &mut News);
    /// Waits for an event until `until`.
    fn step(&mut self, until: MonoNs) -> io::Result<Option<Self::Event>>;
    /// The next event that has already arrived.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// Handles an event.
    fn event(&mut self, event: Self::Event, news: &mut News);
    /// The channels that are not connected, or without the access rights that the links need, for users.
    fn unusable(&self) -> String;
}

/// Data of the threads for other threads.
#[derive(Default)]
struct Shared {
    /// Servers of the process variables over Channel Access.
    servers: Mutex<Servers>,
    status: Mutex<Status>,
}

/// The links that are not connected, for the supervisor.
#[derive(Default)]
struct Status {
    supervisor: Option<Supervisor>,
    /// Text of each thread.
    texts: BTreeMap<&'static str, String>,
}

impl Status {
    fn report(&mut self, now: MonoNs, thread: &'static str, text: String) {
        self.texts.insert(thread, text);
        let texts = self.texts.values().filter(|text| !text.is_empty());
        let all = || texts.cloned().collect::<Vec<_>>().join("; ");
        self.supervisor.get_or_insert_with(Supervisor::from_env).status(now, all);
    }
}

/// Access to the status of the IOC, for other threads whose connections are part of it.
#[derive(Clone)]
pub(crate) struct Reports(Arc<Shared>);

impl Reports {
    /// Sets the text of a thread about what is not connected; empty: nothing.
    pub(crate) fn report(&self, now: MonoNs, thread: &'static str, text: String) {
        if let Ok(mut status) = self.0.status.lock() {
            status.report(now, thread, text);
        }
    }
}

/// The engine's side of a thread.
#[derive(Default)]
struct Side {
    thread: Option<(SyncSender<Batch>, Waker)>,
    /// Requests waiting for room.
    waiting: Batch,
}

impl Side {
    /// Sends queued requests to the thread, as far as there is room. `start` starts it.
    fn hand_on(&mut self, start: impl FnOnce() -> io::Result<(SyncSender<Batch>, Waker)>) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let (sender, bell) = match &mut self.thread {
            Some(thread) => thread,
            none => none.insert(start()?),
        };
        match sender.try_send(std::mem::take(&mut self.waiting)) {
            Ok(()) => bell.wake(),
            Err(TrySendError::Full(batch)) => self.waiting = batch,
            Err(TrySendError::Disconnected(_)) => {
                return Err(io::Error::other("the thread of the links to other IOCs has ended"));
            }
        }
        Ok(())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Dropping the sender ends the thread, which notices when it is woken.
        if let Some((sender, bell)) = self.thread.take() {
            drop(sender);
            bell.wake();
        }
    }
}

/// The engine's side of all links.
pub struct Links {
    environment: BTreeMap<String, String>,
    mailbox: Mailbox,
    ca: Side,
    pva: Side,
    /// The links over PVAccess.
    over_pva: HashSet<LinkId>,
    shared: Arc<Shared>,
    /// Number of writes dropped because the queue was full.
    pub lost: u64,
}

impl Links {
    /// Creates the links. Their clients read EPICS parameters from `environment` and send changes through `mailbox`.
    #[must_use]
    pub fn new(mailbox: Mailbox, environment: BTreeMap<String, String>) -> Self {
        Self {
            environment,
            mailbox,
            ca: Side::default(),
            pva: Side::default(),
            over_pva: HashSet::new(),
            shared: Arc::default(),
            lost: 0,
        }
    }

    /// Access to the status of the IOC.
    pub(crate) fn reports(&self) -> Reports {
        Reports(self.shared.clone())
    }

    /// Servers of the connected process variables, by name.
    pub(crate) fn servers(&self) -> Servers {
        self.shared.servers.lock().map(|servers| servers.clone()).unwrap_or_default()
    }

    /// Queues a link's request. A write beyond the limit is dropped and counted.
    pub(crate) fn ask(&mut self, holder: Holder, request: RemoteRequest) {
        let over_pva = match &request {
            RemoteRequest::Connect { id, pva: Some(_), .. } => {
                self.over_pva.insert((holder, *id));
                true
            }
            RemoteRequest::Disconnect { id } => self.over_pva.remove(&(holder, *id)),
            RemoteRequest::Connect { id, .. }
            | RemoteRequest::Put { id, .. }
            | RemoteRequest::Get { id }
            | RemoteRequest::Process { id } => self.over_pva.contains(&(holder, *id)),
        };
        let side = if over_pva { &mut self.pva } else { &mut self.ca };
        if side.waiting.len() >= WAITING_MAX && matches!(request, RemoteRequest::Put { .. }) {
            self.lost += 1;
        } else {
            side.waiting.push((holder, request));
        }
    }

    /// Sends queued requests to the threads, as far as there is room.
    ///
    /// # Errors
    /// If a client cannot be started.
    pub(crate) fn hand_on(&mut self) -> io::Result<()> {
        let (mailbox, shared) = (&self.mailbox, &self.shared);
        let get = |name: &str| self.environment.get(name).cloned();
        self.ca.hand_on(|| start("ca-links", mailbox, shared, |bell| ca::open(get, bell, Arc::clone(shared))))?;
        self.pva.hand_on(|| start("pva-links", mailbox, shared, |bell| pva::open(get, bell)))
    }
}

/// Starts the thread of a client.
fn start<C: Client>(
    name: &'static str,
    mailbox: &Mailbox,
    shared: &Arc<Shared>,
    open: impl FnOnce(Waker) -> io::Result<C>,
) -> io::Result<(SyncSender<Batch>, Waker)> {
    let bell = Waker::new()?;
    let mut client = open(bell.clone())?;
    let (sender, requests) = sync_channel(BATCHES_MAX);
    let (mailbox, shared) = (mailbox.clone(), Arc::clone(shared));
    let rounds = Rounds::watch(name, crate::SLOW_HANGS_AFTER);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        if let Err(error) = run((name, &rounds), &mut client, &requests, &mailbox, &shared) {
            eprintln!("links to other IOCs: {error}");
        }
    })?;
    Ok((sender, bell))
}

/// Runs until the engine drops its side.
fn run(
    (name, rounds): (&'static str, &Rounds),
    client: &mut impl Client,
    requests: &Receiver<Batch>,
    mailbox: &Mailbox,
    shared: &Shared,
) -> io::Result<()> {
    let mut news = Vec::new();
    let mut report_at = MonoNs(0);
    loop {
        rounds.count();
        loop {
            match requests.try_recv() {
                Ok(batch) => batch.into_iter().for_each(|(holder, request)| {
                    let (RemoteRequest::Connect { id, .. }
                    | RemoteRequest::Put { id, .. }
                    | RemoteRequest::Get { id }
                    | RemoteRequest::Process { id }
                    | RemoteRequest::Disconnect { id }) = request;
                    client.request((holder, id), request, &mut news);
                }),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        client.write_held(&mut news);
        let now = sys::clock::mono_now();
        if now >= report_at
            && let Ok(mut status) = shared.status.lock()
        {
            report_at = now + PAUSE;
            status.report(now, name, client.unusable());
        }
        if !hand_over(&mut news, mailbox) {
            return Ok(());
        }
        let mut event = client.step(now + PAUSE)?;
        while let Some(now) = event {
            client.event(now, &mut news);
            if news.len() >= NEWS_MAX {
                break;
            }
            event = client.poll_event();
        }
    }
}

/// Sends changes to the engine, waiting if it is busy. Returns whether the engine still exists.
fn hand_over(news: &mut News, mailbox: &Mailbox) -> bool {
    if news.is_empty() {
        return true;
    }
    let batch = std::mem::take(news);
    mailbox.tell(move |engine| batch.into_iter().for_each(|(holder, request)| tell(&mut engine.store, holder, request)))
}
