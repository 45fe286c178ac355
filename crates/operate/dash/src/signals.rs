//! Signals over Channel Access, and those named `pva://NAME` over PVAccess: for each protocol one thread and session for all
//! clients, which share subscriptions.

mod channel_access;
mod pvaccess;

use crate::access::Role;
use crate::shares::{Party, Shares, Unit};
use base::{DurNs, Meta, Stamp};
use canet::Waker;
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::rounds::Rounds;

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
/// Maximum time between checks for expired operations.
const LOOK_EVERY: DurNs = DurNs::from_ms(200);
/// A thread that finishes no round of its loop for longer than this hangs.
const HANGS_AFTER: DurNs = DurNs::from_secs(15);
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

/// A command to a thread. Names are without `pva://`.
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

/// The clients' interface to the threads.
#[derive(Clone)]
pub(crate) struct Signals {
    ca: Line,
    pva: Line,
    watched: Arc<Mutex<Watched>>,
    watches: Shares,
    questions: Shares,
}

/// The queues of a thread.
#[derive(Clone)]
struct Line {
    commands: SyncSender<Command>,
    /// Operators' requests; viewers cannot fill this queue.
    urgent: SyncSender<Command>,
    bell: Waker,
}

/// The other ends of the queues of a thread.
struct Orders {
    urgent: Receiver<Command>,
    commands: Receiver<Command>,
}

impl Line {
    fn new() -> io::Result<(Self, Orders)> {
        let ((commands, receives), (urgent, first)) = (sync_channel(COMMANDS_MAX), sync_channel(ASKED_MAX));
        Ok((Self { commands, urgent, bell: Waker::new()? }, Orders { urgent: first, commands: receives }))
    }
}

impl Orders {
    fn next(&self) -> Option<Command> {
        self.urgent.try_recv().or_else(|_| self.commands.try_recv()).ok()
    }
}

impl Signals {
    /// Starts the threads, which end with the process.
    pub(crate) fn start() -> io::Result<Self> {
        let ((ca, ca_orders), (pva, pva_orders)) = (Line::new()?, Line::new()?);
        let mut thread = channel_access::Thread::new(ca.bell.clone(), ca_orders)?;
        begin("dash-signals", move |rounds| thread.run(rounds))?;
        let mut thread = pvaccess::Thread::new(pva.bell.clone(), pva_orders)?;
        begin("dash-pvaccess", move |rounds| thread.run(rounds))?;
        Ok(Self::new(ca, pva))
    }

    fn new(ca: Line, pva: Line) -> Self {
        let watches = Shares::new("signals that are watched", "close some", SIGNALS_MAX);
        let questions = Shares::new("questions that wait for servers", "try again when they are answered", ASKED_MAX);
        Self { ca, pva, watched: Arc::default(), watches, questions }
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
        self.command(name, |name| Command::Watch(name, series.clone()))?;
        watched.insert(name.to_owned(), (series.clone(), 1, taken));
        Ok(series)
    }

    /// Removes a client from a signal.
    pub(crate) fn leave(&self, name: &str) {
        let mut watched = self.watched();
        let Some((_, clients, _)) = watched.get_mut(name) else { return };
        *clients -= 1;
        if *clients == 0 && self.command(name, Command::Leave).is_ok() {
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
        let is_urgent = party.role == Role::Operator;
        self.send(name, is_urgent, |name| Command::Once(name, what, Box::new(done)))
    }

    /// Watched names that match a pattern.
    pub(crate) fn names(&self, pattern: &str) -> Vec<String> {
        self.watched().keys().filter(|name| base::glob(pattern, name)).cloned().collect()
    }

    fn command(&self, name: &str, command: impl FnOnce(String) -> Command) -> Result<(), String> {
        self.send(name, false, command)
    }

    /// Sends a command about a signal to the thread of its protocol.
    fn send(&self, name: &str, is_urgent: bool, command: impl FnOnce(String) -> Command) -> Result<(), String> {
        let (line, name) = match name.strip_prefix(pva::SCHEME) {
            Some(name) => (&self.pva, name),
            None => (&self.ca, name),
        };
        let queue = if is_urgent { &line.urgent } else { &line.commands };
        let sent = queue.try_send(command(name.to_owned()));
        line.bell.wake();
        sent.map_err(|error| match error {
            TrySendError::Full(_) => "too much is asked of signals at once; try again".to_owned(),
            TrySendError::Disconnected(_) => {
                "the dashboard's client for this signal has ended; its log says why".to_owned()
            }
        })
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a watched thread.
fn begin(name: &str, run: impl FnOnce(&Rounds) + Send + 'static) -> io::Result<()> {
    let rounds = Rounds::watch(name, HANGS_AFTER);
    std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&rounds)).map(drop)
}

/// Cuts a text for display.
fn cut(text: String) -> String {
    if text.chars().count() > TEXT_MAX { text.chars().take(TEXT_MAX).chain(['…']).collect() } else { text }
}

/// Nanoseconds since 1970.
fn unix_ns(stamp: Stamp) -> i64 {
    let (secs, nanos) = stamp.to_unix();
    i64::try_from(secs).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.into())
}

fn about(meta: &Meta) -> About {
    About { units: meta.units.to_string(), labels: meta.labels.iter().map(ToString::to_string).collect() }
}

/// Description of a signal. Absent parts are unknown.
fn description(
    ty: Option<String>,
    elements: Option<usize>,
    meta: &Meta,
    may_set: Option<bool>,
    server: Option<String>,
) -> serde_json::Value {
    let range = |low: f64, high: f64| (low != 0.0 || high != 0.0).then(|| format!("{low} to {high}"));
    let limit = |limit: f64| (!limit.is_nan() && limit != 0.0).then_some(limit);
    let about = about(meta);
    json!({
        "type": ty, "elements": elements,
        "units": about.units, "states": if about.labels.is_empty() { None } else { Some(about.labels) },
        "display": range(meta.display.low, meta.display.high), "control": range(meta.control.low, meta.control.high),
        "lolo": limit(meta.alarm.lolo), "low": limit(meta.alarm.low), "high": limit(meta.alarm.high), "hihi": limit(meta.alarm.hihi),
        "may be set": may_set.map(|may| if may { "yes" } else { "no" }),
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

    /// With the ends of the queues of Channel Access and PVAccess.
    fn signals() -> (Signals, [Orders; 2]) {
        let [(ca, first), (pva, second)] = [Line::new().unwrap(), Line::new().unwrap()];
        (Signals::new(ca, pva), [first, second])
    }

    #[test]
    fn the_scheme_of_a_name_selects_the_protocol() {
        let (signals, orders) = signals();
        for (name, at) in [("A", 0), ("pva://A", 1)] {
            signals.watch(party(Role::Viewer, 1), name).unwrap();
            assert!(matches!(orders[at].next(), Some(Command::Watch(name, _)) if name == "A"));
            signals.put(party(Role::Operator, 1), name, "1", Box::new(drop)).unwrap();
            assert!(matches!(orders[at].next(), Some(Command::Once(name, Once::Put(_), _)) if name == "A"));
        }
        assert_eq!(signals.names("*A").len(), 2);
    }

    #[test]
    fn requests_of_viewers_leave_room_for_those_of_operators() {
        let (signals, [orders, _]) = signals();
        let ask = |party| signals.describe(party, "NO:SUCH", Box::new(drop));
        for user in 0..8 {
            (0..100).for_each(|_| drop(ask(party(Role::Viewer, user))));
        }
        let why = ask(party(Role::Viewer, 9)).unwrap_err();
        assert!(why.contains("all viewers together have 192 of 256 questions that wait for servers"), "{why}");
        let done = Box::new(drop);
        signals.put(party(Role::Operator, 1), "A", "1", done).unwrap();
        assert!(orders.urgent.try_recv().is_ok(), "it precedes the requests of viewers");
        // One is answered; the other is dropped without an answer.
        let Ok(Command::Once(_, _, done)) = orders.commands.recv() else { panic!("a question") };
        done(Ok(json!({})));
        drop(orders.commands.recv());
        assert!(ask(party(Role::Viewer, 9)).is_ok());
    }

    #[test]
    fn a_flood_of_viewers_commands_leaves_room_for_a_write_of_an_operator() {
        let (signals, _ends) = signals();
        let viewer = party(Role::Viewer, 1);
        // Each takes a place in the thread's queue, which is not read here.
        while signals.watch(viewer, "A").is_ok() && signals.command("A", Command::Leave).is_ok() {
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
}
