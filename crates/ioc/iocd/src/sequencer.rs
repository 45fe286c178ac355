//! SNL programs of the IOC: a thread for each, whose channels are links like those of records.
//!
//! The rules of the language are in `snl`. A thread takes events, lets the program run, and sends its requests to the engine.
//! Records of this IOC are reached directly, others over Channel Access.

use crate::bridge::Holder;
use crate::engine::{self, Engine, Mailbox};
use crate::job::OwnerRequest;
use base::MonoNs;
use db::{RemoteId, RemoteRequest};
use snl::{Action, Event, Machine, Program, Stage};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sys::rounds::{ROUND, Rounds};

/// Holder of the links of all programs.
pub(crate) const SEQUENCER: Holder = Some(usize::MAX - 1);
/// Waiting events of a program above which a monitor replaces the waiting one of its channel.
const EVENTS_MAX: usize = 1_000;

/// The next number of a link.
static NEXT_LINK: AtomicU32 = AtomicU32::new(0);

/// Events on their way to the thread of a program.
#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    bell: Condvar,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<(RemoteId, Event)>,
    stop: bool,
    /// Monitors that a newer one replaced.
    replaced: u64,
}

/// The protected data stays valid if a thread panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    fn put(&self, id: RemoteId, event: Event) {
        let mut waiting = lock(&self.waiting);
        if waiting.events.len() >= EVENTS_MAX
            && matches!(event, Event::Monitor(..))
            && let Some((_, old)) = waiting.events.iter_mut().rev().find(|(of, _)| *of == id)
        {
            *old = event;
            waiting.replaced += 1;
            return;
        }
        waiting.events.push_back((id, event));
        self.bell.notify_one();
    }

    /// Waits for events, a stop or `until`. Returns the events and whether the program must stop.
    fn take(&self, until: Option<MonoNs>, stopped: bool, rounds: &Rounds) -> (VecDeque<(RemoteId, Event)>, bool) {
        let mut waiting = lock(&self.waiting);
        loop {
            rounds.count();
            let now = sys::clock::mono_now();
            if !waiting.events.is_empty() || waiting.stop && !stopped || until.is_some_and(|until| until <= now) {
                return (std::mem::take(&mut waiting.events), waiting.stop);
            }
            let pause = until.map_or(ROUND, |until| Duration::from_nanos(until.0 - now.0).min(ROUND));
            waiting = self.bell.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The engine's side: the program, the channel, and whether it is the channel's monitor, for each link.
#[derive(Default)]
pub(crate) struct Programs {
    links: HashMap<RemoteId, (Arc<Inbox>, u32, bool)>,
}

impl Programs {
    /// Forwards a change of a link.
    pub(crate) fn tell(&mut self, request: OwnerRequest) {
        let (OwnerRequest::Update { id, .. }
        | OwnerRequest::Got { id, .. }
        | OwnerRequest::Connect { id, .. }
        | OwnerRequest::Meta { id, .. }
        | OwnerRequest::Written { id, .. }) = request
        else {
            return;
        };
        let Some((inbox, channel, monitor)) = self.links.get(&id) else { return };
        let channel = *channel;
        let event = match (request, monitor) {
            (OwnerRequest::Update { value: Some(value), alarm, stamp, .. }, true) => {
                Event::Monitor(channel, value, alarm, stamp)
            }
            (OwnerRequest::Got { value: Some(value), alarm, stamp, .. }, _) => {
                Event::Read(channel, value, alarm, stamp)
            }
            (OwnerRequest::Got { value: None, .. }, _) => Event::Unread(channel),
            (OwnerRequest::Connect { connected: true, count, .. }, false) => Event::Connected(channel, count),
            (OwnerRequest::Connect { connected: false, .. }, false) => Event::Disconnected(channel),
            (OwnerRequest::Meta { meta: Some(meta), .. }, false) => Event::Properties(channel, meta),
            (OwnerRequest::Written { ok, .. }, false) => Event::Written(channel, ok),
            // The channel's other link reports these, too.
            _ => return,
        };
        inbox.put(id, event);
    }
}

/// The numbers of the links of a channel: for reads and writes, and of its monitor.
#[derive(Clone, Copy, Default)]
struct Links {
    plain: Option<RemoteId>,
    monitor: Option<RemoteId>,
}

/// A request to the engine.
enum Request {
    Open { id: RemoteId, channel: u32, monitor: bool, name: String },
    Close(RemoteId),
    Other(RemoteRequest),
}

/// A program that was started.
pub struct Running {
    /// Number of the instance.
    pub number: usize,
    /// Name of the thread.
    pub thread: String,
    /// Its state.
    pub machine: Arc<Mutex<Machine>>,
    inbox: Arc<Inbox>,
}

impl Running {
    /// Starts an instance on a thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(number: usize, program: Arc<Program>, params: &str, mailbox: Mailbox) -> io::Result<Self> {
        let machine = Machine::new(program.clone(), params, now());
        let thread = machine.parameter("name").unwrap_or_else(|| program.name()).replace('\0', "");
        let machine = Arc::new(Mutex::new(machine));
        let inbox = Arc::<Inbox>::default();
        let mut runner = Runner {
            machine: Arc::clone(&machine),
            inbox: Arc::clone(&inbox),
            mailbox,
            links: Vec::new(),
            open: HashSet::new(),
            names: Vec::new(),
            rounds: Rounds::watch(&thread, crate::SLOW_HANGS_AFTER),
        };
        std::thread::Builder::new().name(thread.clone()).spawn(move || runner.run())?;
        Ok(Self { number, thread, machine, inbox })
    }

    /// Asks the program to end. Its actions in progress and its exit block still run.
    pub fn stop(&self) {
        lock(&self.inbox.waiting).stop = true;
        self.inbox.bell.notify_one();
    }

    /// Runs `report` with the program's state.
    pub fn with<T>(&self, report: impl FnOnce(&Machine) -> T) -> T {
        report(&lock(&self.machine))
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.with(Machine::stage) != Stage::Ended
    }

    /// Number of monitors that a newer one replaced before the program took them.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        lock(&self.inbox.waiting).replaced
    }
}

fn now() -> snl::Now {
    let db::Now { mono, wall } = engine::now();
    snl::Now { mono, wall }
}

/// The thread of a program.
struct Runner {
    machine: Arc<Mutex<Machine>>,
    inbox: Arc<Inbox>,
    mailbox: Mailbox,
    links: Vec<Links>,
    /// All links.
    open: HashSet<RemoteId>,
    names: Vec<String>,
    rounds: Rounds,
}

impl Runner {
    fn run(&mut self) {
        lock(&self.machine).start(now());
        let (mut events, mut stop) = (VecDeque::new(), false);
        loop {
            let mut machine = lock(&self.machine);
            // Events of links that were closed meanwhile are dropped: the channel is assigned to another process variable.
            let open = |(id, _): &(RemoteId, Event)| self.open.contains(id);
            events.drain(..).filter(open).for_each(|(_, event)| machine.handle(event));
            if stop {
                machine.stop();
            }
            let wake = machine.step(now());
            let actions = machine.take_actions();
            let ended = machine.stage() == Stage::Ended;
            drop(machine);
            if !self.act(actions) || ended {
                return;
            }
            (events, stop) = self.inbox.take(wake, stop, &self.rounds);
        }
    }

    /// Returns whether the IOC still runs.
    fn act(&mut self, actions: Vec<Action>) -> bool {
        let mut requests = Vec::new();
        for action in actions {
            match action {
                Action::Print(bytes) => print(&bytes),
                Action::Log(text) => eprintln!("{text}"),
                Action::Connect(channel, name) => {
                    let id = new_link();
                    let links = self.links_of(channel);
                    links.plain = Some(id);
                    requests.push(Request::Open { id, channel, monitor: false, name: name.clone() });
                    self.names[channel as usize] = name;
                }
                Action::Disconnect(channel) => {
                    let links = std::mem::take(self.links_of(channel));
                    requests.extend(links.plain.into_iter().chain(links.monitor).map(Request::Close));
                }
                Action::Monitor(channel, true) => {
                    let id = new_link();
                    let old = self.links_of(channel).monitor.replace(id);
                    requests.extend(old.map(Request::Close));
                    let name = self.names[channel as usize].clone();
                    requests.push(Request::Open { id, channel, monitor: true, name });
                }
                Action::Monitor(channel, false) => {
                    requests.extend(self.links_of(channel).monitor.take().map(Request::Close));
                }
                Action::Read(channel) => {
                    let id = self.links_of(channel).plain;
                    requests.extend(id.map(|id| Request::Other(RemoteRequest::Get { id })));
                }
                Action::Write(channel, value, notify) => {
                    let id = self.links_of(channel).plain;
                    requests.extend(id.map(|id| Request::Other(RemoteRequest::Put { id, value, notify })));
                }
            }
        }
        if requests.is_empty() {
            return true;
        }
        for request in &requests {
            match request {
                Request::Open { id, .. } => _ = self.open.insert(*id),
                Request::Close(id) => _ = self.open.remove(id),
                Request::Other(_) => {}
            }
        }
        let inbox = Arc::clone(&self.inbox);
        self.mailbox.tell(move |engine| requests.into_iter().for_each(|request| handle(engine, &inbox, request)))
    }

    fn links_of(&mut self, channel: u32) -> &mut Links {
        let channel = channel as usize;
        if self.links.len() <= channel {
            self.links.resize(channel + 1, Links::default());
            self.names.resize(channel + 1, String::new());
        }
        &mut self.links[channel]
    }
}

fn new_link() -> RemoteId {
    RemoteId(NEXT_LINK.fetch_add(1, Ordering::Relaxed))
}

/// Handles a request on the engine's thread.
fn handle(engine: &mut Engine, inbox: &Arc<Inbox>, request: Request) {
    match request {
        Request::Open { id, channel, monitor, name } => {
            engine.store.programs.links.insert(id, (Arc::clone(inbox), channel, monitor));
            engine.remote(SEQUENCER, RemoteRequest::Connect { id, name, monitor, pva: None });
        }
        Request::Close(id) => {
            engine.remote(SEQUENCER, RemoteRequest::Disconnect { id });
            engine.store.programs.links.remove(&id);
        }
        Request::Other(request) => engine.remote(SEQUENCER, request),
    }
}

/// Prints the output of a program.
fn print(bytes: &[u8]) {
    let text = base::raw::decode(bytes);
    if let Err(error) = sys::out::tell(format_args!("{text}"))
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("output: {error}");
    }
}
