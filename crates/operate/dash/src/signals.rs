//! Signals over Channel Access: one thread and session for all clients, which share subscriptions.

use crate::access::Role;
use crate::shares::{Party, Shares, Unit};
use base::{Array, DurNs, EventMask, MonoNs, Scalar, Str40, Value};
use ca::client::{ChannelId, Event, IoId};
use ca::encode::Reading;
use ca::{Basic, Class, Dbr};
use canet::Waker;
use canet::session::Session;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::clock::mono_now;

/// Maximum samples kept per signal. The oldest are dropped; each client counts what it missed.
const SAMPLES_MAX: usize = 1024;
/// Maximum signals of all clients together.
pub(crate) const SIGNALS_MAX: usize = 2000;
/// Maximum queued commands.
const COMMANDS_MAX: usize = 4096;
/// Maximum pending reads and writes of all clients: each may cause a network search.
const ASKED_MAX: usize = 256;
/// Timeout of a read or write, including the search for the server.
const PATIENCE: DurNs = DurNs::from_secs(5);
/// Maximum length of a displayed text or array, in characters.
const TEXT_MAX: usize = 200;

/// A sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at_ns: i64,
    pub(crate) value: f64,
    pub(crate) severity: u8,
}

/// Data of a signal, shared by the thread and the clients.
#[derive(Debug, Default)]
pub(crate) struct Series {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    samples: VecDeque<Sample>,
    /// Number of the first sample.
    first: u64,
    /// Number of changes of the non-numeric properties below.
    changes: u64,
    is_connected: bool,
    about: About,
    text: Option<String>,
    severity: u8,
}

/// Metadata of a signal.
#[derive(Clone, Debug, Default)]
struct About {
    units: String,
    labels: Vec<String>,
}

impl Series {
    /// Reads the samples from number `next` on, in order, and advances it. Returns the number of missed samples.
    pub(crate) fn read(&self, next: &mut u64, mut take: impl FnMut(&Sample)) -> u64 {
        let inner = self.lock();
        let missed = inner.first.saturating_sub(*next);
        let from = next.saturating_sub(inner.first) as usize;
        inner.samples.iter().skip(from).for_each(&mut take);
        *next = inner.first + inner.samples.len() as u64;
        missed
    }

    /// Number of the last sample; a new client starts with it.
    pub(crate) fn last(&self) -> u64 {
        let inner = self.lock();
        inner.first + (inner.samples.len() as u64).saturating_sub(1)
    }

    /// The non-numeric properties, if they have changed since change `seen`.
    pub(crate) fn changed(&self, seen: &mut u64, stream: u16) -> Option<serde_json::Value> {
        let inner = self.lock();
        if inner.changes <= *seen {
            return None;
        }
        *seen = inner.changes;
        let state = if inner.is_connected { "connected" } else { "disconnected" };
        Some(json!({
            "stream": stream, "state": state, "units": inner.about.units, "labels": inner.about.labels,
            "text": inner.text, "severity": inner.severity,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, sample: Sample) {
        let mut inner = self.lock();
        if inner.samples.len() == SAMPLES_MAX {
            inner.samples.pop_front();
            inner.first += 1;
        }
        inner.samples.push_back(sample);
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        change(&mut inner);
        inner.changes += 1;
    }
}

/// Result of a request about a signal.
pub(crate) type Outcome = Result<serde_json::Value, String>;

/// Callback for a result.
pub(crate) type Callback = Box<dyn FnOnce(Outcome) + Send>;

/// A command to the thread.
enum Command {
    Watch(String, Arc<Series>),
    Leave(String),
    Once(String, Once, Callback),
}

/// A single operation.
enum Once {
    Describe,
    Put(String),
}

/// Watched signals, each with its number of clients and the share of the first one.
type Watched = HashMap<String, (Arc<Series>, usize, Unit)>;

/// The clients' interface to the thread.
#[derive(Clone)]
pub(crate) struct Signals {
    commands: SyncSender<Command>,
    /// Operators' requests; viewers cannot fill this queue.
    urgent: SyncSender<Command>,
    bell: Waker,
    watched: Arc<Mutex<Watched>>,
    watches: Shares,
    questions: Shares,
}

impl Signals {
    /// Starts the thread, which ends with the process.
    pub(crate) fn start() -> io::Result<Self> {
        let bell = Waker::new()?;
        let mut session = Session::open(|name| std::env::var(name).ok())?;
        session.listen_to(bell.clone());
        let ((commands, receives), (urgent, first)) = (sync_channel(COMMANDS_MAX), sync_channel(ASKED_MAX));
        let mut thread = Thread { session, first, receives, channels: HashMap::new(), names: HashMap::new() };
        std::thread::Builder::new().name("dash-signals".to_owned()).spawn(move || thread.run())?;
        Ok(Self::new(commands, urgent, bell))
    }

    fn new(commands: SyncSender<Command>, urgent: SyncSender<Command>, bell: Waker) -> Self {
        let watches = Shares::new("signals that are watched", "close some", SIGNALS_MAX);
        let questions = Shares::new("questions that wait for servers", "try again when they are answered", ASKED_MAX);
        Self { commands, urgent, bell, watched: Arc::default(), watches, questions }
    }

    /// Adds a client to a signal.
    pub(crate) fn watch(&self, party: Party, name: &str) -> Result<Arc<Series>, String> {
        let mut watched = self.watched();
        if let Some((series, clients, _)) = watched.get_mut(name) {
            *clients += 1;
            return Ok(series.clone());
        }
        let taken = self.watches.take(party)?;
        let series = Arc::<Series>::default();
        self.command(Command::Watch(name.to_owned(), series.clone()))?;
        watched.insert(name.to_owned(), (series.clone(), 1, taken));
        Ok(series)
    }

    /// Removes a client from a signal.
    pub(crate) fn leave(&self, name: &str) {
        let mut watched = self.watched();
        let Some((_, clients, _)) = watched.get_mut(name) else { return };
        *clients -= 1;
        if *clients == 0 && self.command(Command::Leave(name.to_owned())).is_ok() {
            watched.remove(name);
        }
    }

    /// Reads units, limits and state names of a signal.
    pub(crate) fn describe(&self, party: Party, name: &str, done: Callback) -> Result<(), String> {
        self.once(party, name, Once::Describe, done)
    }

    /// Writes a signal.
    pub(crate) fn put(&self, party: Party, name: &str, value: &str, done: Callback) -> Result<(), String> {
        self.once(party, name, Once::Put(value.to_owned()), done)
    }

    fn once(&self, party: Party, name: &str, what: Once, done: Callback) -> Result<(), String> {
        let taken = self.questions.take(party)?;
        let done = move |outcome| {
            drop(taken);
            done(outcome);
        };
        let way = if party.role == Role::Operator { &self.urgent } else { &self.commands };
        self.send(way, Command::Once(name.to_owned(), what, Box::new(done)))
    }

    /// Watched names that match a pattern.
    pub(crate) fn names(&self, pattern: &str) -> Vec<String> {
        self.watched().keys().filter(|name| base::glob(pattern, name)).cloned().collect()
    }

    fn command(&self, command: Command) -> Result<(), String> {
        self.send(&self.commands, command)
    }

    fn send(&self, way: &SyncSender<Command>, command: Command) -> Result<(), String> {
        let sent = way.try_send(command);
        self.bell.wake();
        sent.map_err(|error| match error {
            TrySendError::Full(_) => "too much is asked of signals at once; try again".to_owned(),
            TrySendError::Disconnected(_) => "the dashboard's Channel Access has ended; its log says why".to_owned(),
        })
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel with its users.
struct Channel {
    name: String,
    series: Option<Arc<Series>>,
    is_subscribed: bool,
    once: Vec<Waiting>,
}

struct Waiting {
    what: Once,
    until: MonoNs,
    /// The pending request to the server.
    io: Option<IoId>,
    done: Callback,
}

struct Thread {
    session: Session,
    /// Receives before the other queue.
    first: Receiver<Command>,
    receives: Receiver<Command>,
    channels: HashMap<ChannelId, Channel>,
    names: HashMap<String, ChannelId>,
}

impl Thread {
    fn run(&mut self) {
        loop {
            while let Ok(command) = self.first.try_recv().or_else(|_| self.receives.try_recv()) {
                self.command(command);
            }
            let until = mono_now() + DurNs::from_ms(200);
            match self.session.step(until) {
                Ok(Some(event)) => self.event(event),
                Ok(None) => self.give_up(),
                Err(error) => {
                    eprintln!("tahti dash: signals have stopped: Channel Access: {error}");
                    return;
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Watch(name, series) => {
                let id = self.channel(&name);
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.series = Some(series);
                }
                self.connected(id);
            }
            Command::Leave(name) => {
                let Some(id) = self.names.get(&name).copied() else { return };
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.series = None;
                }
                self.tidy(id);
            }
            Command::Once(name, what, done) => {
                let id = self.channel(&name);
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.once.push(Waiting { what, until: mono_now() + PATIENCE, io: None, done });
                }
                self.connected(id);
            }
        }
    }

    fn channel(&mut self, name: &str) -> ChannelId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.session.client.channel(Session::now(), name, 0);
        let channel = Channel { name: name.to_owned(), series: None, is_subscribed: false, once: Vec::new() };
        self.channels.insert(id, channel);
        self.names.insert(name.to_owned(), id);
        id
    }

    /// Closes a channel without users.
    fn tidy(&mut self, id: ChannelId) {
        if self.channels.get(&id).is_some_and(|channel| channel.series.is_none() && channel.once.is_empty())
            && let Some(channel) = self.channels.remove(&id)
        {
            self.names.remove(&channel.name);
            self.session.client.clear(id);
        }
    }

    /// Sends the pending requests of a connected channel.
    fn connected(&mut self, id: ChannelId) {
        let Some(info) = self.session.client.info(id) else { return };
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let class = |class| if info.native == Basic::String { Class::Sts } else { class };
        if channel.series.is_some() && !channel.is_subscribed {
            channel.is_subscribed = true;
            // Metadata first. Fails only if the channel is gone again, which has its own event.
            let _ = self.session.client.read(id, Dbr::new(class(Class::Ctrl), info.native), 1);
            let mask = EventMask(EventMask::VALUE.0 | EventMask::ALARM.0);
            self.session.client.subscribe(id, Dbr::new(Class::Time, info.native), info.count.min(16), mask);
        }
        for waiting in channel.once.iter_mut().filter(|waiting| waiting.io.is_none()) {
            let sent = match &waiting.what {
                Once::Describe => self.session.client.read(id, Dbr::new(class(Class::Ctrl), info.native), 1).map(Some),
                Once::Put(text) => {
                    let value = Value::Scalar(Scalar::String(Str40::new(text.as_bytes())));
                    self.session.client.write(id, &value, true)
                }
            };
            match sent {
                Ok(io) => waiting.io = io,
                // Ends by timeout, unless the channel reconnects.
                Err(_) => continue,
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected(id) => {
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.is_subscribed = false;
                    if let Some(series) = &channel.series {
                        series.change(|inner| inner.is_connected = true);
                    }
                }
                self.connected(id);
            }
            Event::Disconnected(id) => {
                let Some(channel) = self.channels.get_mut(&id) else { return };
                channel.once.iter_mut().for_each(|waiting| waiting.io = None);
                if let Some(series) = &channel.series {
                    series.change(|inner| inner.is_connected = false);
                }
            }
            Event::Read { io, channel, result } => {
                let described = result.map(|(_, reading)| reading);
                let series = self.channels.get(&channel).and_then(|channel| channel.series.as_ref());
                if let (Some(series), Ok(reading)) = (series, &described) {
                    let about = about(reading);
                    series.change(|inner| inner.about = about);
                }
                let server = self.session.client.info(channel);
                self.ended(channel, io, || match described {
                    Ok(reading) => Ok(description(&reading, server)),
                    Err(status) => Err(format!("its server answers {status}")),
                });
            }
            Event::Written { io, channel, result } => {
                self.ended(channel, io, || {
                    result.map(|()| json!({})).map_err(|status| format!("its server refuses: {status}"))
                });
            }
            Event::Update { channel, result: Ok((_, reading)), .. } => {
                if let Some(series) = self.channels.get(&channel).and_then(|channel| channel.series.as_ref()) {
                    update(series, &reading);
                }
            }
            _ => {}
        }
    }

    /// Completes a single operation.
    fn ended(&mut self, id: ChannelId, io: IoId, outcome: impl FnOnce() -> Outcome) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Some(at) = channel.once.iter().position(|waiting| waiting.io == Some(io)) {
            (channel.once.remove(at).done)(outcome());
            self.tidy(id);
        }
    }

    /// Ends operations whose timeout has expired.
    fn give_up(&mut self) {
        let now = mono_now();
        let mut ids = Vec::new();
        for (id, channel) in &mut self.channels {
            let (late, rest): (Vec<_>, _) =
                std::mem::take(&mut channel.once).into_iter().partition(|waiting: &Waiting| waiting.until < now);
            channel.once = rest;
            for waiting in late {
                let why = if waiting.io.is_some() { "its server does not answer" } else { "no server has it" };
                (waiting.done)(Err(format!("{why} (within {PATIENCE}); EPICS_CA_ADDR_LIST says where it is searched")));
                ids.push(*id);
            }
        }
        ids.into_iter().for_each(|id| self.tidy(id));
    }
}

fn update(series: &Series, reading: &Reading) {
    let severity = reading.alarm.severity as u8;
    let (secs, nanos) = reading.stamp.to_unix();
    let at_ns = i64::try_from(secs).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.into());
    let number = match &reading.value {
        Value::Scalar(scalar) => scalar.to_f64(),
        Value::Array(_) => None,
    };
    match number {
        Some(value) => series.push(Sample { at_ns, value, severity }),
        None => {
            let text = text(&reading.value);
            series.change(|inner| (inner.text, inner.severity) = (Some(text), severity));
        }
    }
}

/// Text of a non-numeric value, truncated.
fn text(value: &Value) -> String {
    let one = |scalar: Scalar| match scalar {
        Scalar::String(text) => text.to_string(),
        number => number.to_f64().map_or_else(String::new, |number| number.to_string()),
    };
    let all = match value {
        Value::Scalar(scalar) => one(*scalar),
        Value::Array(Array::I8(_) | Array::U8(_)) => {
            let bytes = (0..value.len()).filter_map(|at| value.get(at)?.to_f64()).map(|byte| byte as u8 as char);
            bytes.take_while(|letter| *letter != '\0').collect()
        }
        Value::Array(_) => {
            let elements: Vec<String> = (0..value.len()).filter_map(|at| value.get(at)).map(one).collect();
            format!("[{}]", elements.join(", "))
        }
    };
    if all.chars().count() > TEXT_MAX { all.chars().take(TEXT_MAX).chain(['…']).collect() } else { all }
}

fn about(reading: &Reading) -> About {
    let labels = reading.meta.labels.iter().map(ToString::to_string);
    About { units: reading.meta.units.to_string(), labels: labels.collect() }
}

fn description(reading: &Reading, info: Option<ca::client::ChannelInfo>) -> serde_json::Value {
    let range = |low: f64, high: f64| (low != 0.0 || high != 0.0).then(|| format!("{low} to {high}"));
    let limit = |limit: f64| (!limit.is_nan() && limit != 0.0).then_some(limit);
    let (meta, about) = (&reading.meta, about(reading));
    let server = info.map(|info| format!("{}:{}", std::net::Ipv4Addr::from(info.server.ip), info.server.port));
    json!({
        "type": info.map(|info| format!("{:?}", info.native).to_lowercase()),
        "elements": info.map(|info| info.count),
        "units": about.units, "states": if about.labels.is_empty() { None } else { Some(about.labels) },
        "display": range(meta.display.low, meta.display.high), "control": range(meta.control.low, meta.control.high),
        "lolo": limit(meta.alarm.lolo), "low": limit(meta.alarm.low), "high": limit(meta.alarm.high), "hihi": limit(meta.alarm.hihi),
        "may be set": info.map(|info| if info.access.write { "yes" } else { "no" }),
        "server": server,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::tests::party;

    #[test]
    fn a_slow_client_misses_the_oldest_samples_and_gets_their_number() {
        let series = Series::default();
        let sample = |value: f64| Sample { at_ns: 0, value, severity: 0 };
        let (mut next, mut seen) = (0, Vec::new());
        (0..3).for_each(|at| series.push(sample(at.into())));
        assert_eq!(series.read(&mut next, |sample| seen.push(sample.value)), 0);
        assert_eq!((seen.as_slice(), series.last()), (&[0.0, 1.0, 2.0][..], 2));
        (0..SAMPLES_MAX as u32 + 5).for_each(|at| series.push(sample(at.into())));
        seen.clear();
        assert_eq!(series.read(&mut next, |sample| seen.push(sample.value)), 5);
        assert_eq!((seen.len(), seen[0]), (SAMPLES_MAX, 5.0));
        assert_eq!(series.read(&mut next, |_| unreachable!()), 0);
    }

    fn signals() -> (Signals, [Receiver<Command>; 2]) {
        let ((commands, receives), (urgent, first)) = (sync_channel(COMMANDS_MAX), sync_channel(ASKED_MAX));
        (Signals::new(commands, urgent, Waker::new().unwrap()), [receives, first])
    }

    #[test]
    fn requests_of_viewers_leave_room_for_those_of_operators() {
        let (signals, [receives, first]) = signals();
        let ask = |party| signals.describe(party, "NO:SUCH", Box::new(drop));
        for user in 0..8 {
            (0..100).for_each(|_| drop(ask(party(Role::Viewer, user))));
        }
        let why = ask(party(Role::Viewer, 9)).unwrap_err();
        assert!(why.contains("all viewers together have 192 of 256 questions that wait for servers"), "{why}");
        let done = Box::new(drop);
        signals.put(party(Role::Operator, 1), "A", "1", done).unwrap();
        assert!(first.try_recv().is_ok(), "it precedes the requests of viewers");
        // One is answered; the other is dropped without an answer.
        let Ok(Command::Once(_, _, done)) = receives.recv() else { panic!("a question") };
        done(Ok(json!({})));
        drop(receives.recv());
        assert!(ask(party(Role::Viewer, 9)).is_ok());
    }

    #[test]
    fn a_flood_of_viewers_commands_leaves_room_for_a_write_of_an_operator() {
        let (signals, _ends) = signals();
        let viewer = party(Role::Viewer, 1);
        // Each takes a place in the thread's queue, which is not read here.
        while signals.watch(viewer, "A").is_ok() && signals.command(Command::Leave("A".into())).is_ok() {
            signals.watched().clear();
        }
        assert!(signals.watch(viewer, "B").unwrap_err().contains("too much is asked"));
        signals.put(party(Role::Operator, 1), "A", "1", Box::new(drop)).unwrap();
    }

    #[test]
    fn signals_of_viewers_leave_room_for_those_of_operators() {
        let (signals, _ends) = signals();
        for user in 0..3 {
            for at in 0..SIGNALS_MAX {
                drop(signals.watch(party(Role::Viewer, user), &format!("A:{user}:{at}")));
            }
        }
        assert_eq!(signals.watched().len(), SIGNALS_MAX / 4 * 3);
        assert!(
            signals.watch(party(Role::Viewer, 1), "A:1:0").is_ok(),
            "a signal that is already watched needs no capacity"
        );
        assert!(signals.watch(party(Role::Operator, 1), "B").is_ok());
    }

    #[test]
    fn texts_and_arrays_are_shown_truncated() {
        let array = |array| text(&Value::Array(array));
        assert_eq!(array(Array::F64(vec![1.5, 2.0])), "[1.5, 2]");
        assert_eq!(array(Array::U8(b"beam\0on".to_vec())), "beam");
        assert_eq!(text(&Value::Scalar(Scalar::String("idle".into()))), "idle");
        assert_eq!(array(Array::U8(vec![b'x'; 1000])).chars().count(), TEXT_MAX + 1);
    }
}
