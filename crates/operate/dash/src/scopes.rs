//! The oscilloscope. Each client that uses it has a desk with its captures. One thread sets up loops, fetches their captures, and
//! renders what each client displays. It uses the same interface as `tahti scope`.
//!
//! A loop samples for one client at a time. Viewers may set up a loop that is free; only operators may take one from another
//! client.

mod desk;
mod forcing;
mod picture;

use crate::access::Role;
use crate::alarms::Alarms;
use crate::refused::Refused;
use crate::shares::{Jobs, Party, Queue, Shares, Unit, queue};
use crate::signals::Callback;
use crate::work::audit;
use base::{DurNs, MonoNs};
use desk::Desk;
use scope::{Beside, Capture, Kind};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use sys::clock::mono_now;
use sys::rounds::Rounds;

pub(crate) use desk::{OPENED_MAX, VALUES_MAX};
pub use forcing::{Forcing, ForcingError, Servers};
pub use picture::View;

/// Maximum queued requests of all clients.
const WAITING_MAX: usize = 32;
/// Maximum clients that use the oscilloscope at a time.
const DESKS_MAX: usize = 8;
/// Maximum size of an opened file in bytes: the largest capture of a loop as a table.
pub(crate) const FILE_BYTES_MAX: usize = 12 << 20;
/// Polling interval for captures of loops.
const LOOK: Duration = Duration::from_millis(50);
/// Interval of checks for clients that have gone, if no loop is polled.
const IDLE: Duration = Duration::from_secs(1);
/// A thread that finishes no round of its loop for longer than this hangs.
const HANGS_AFTER: DurNs = DurNs::from_secs(30);
/// Age at which a desk that follows a loop is stale.
const STALE: DurNs = DurNs::from_secs(2);

/// A request of a client to the oscilloscope.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// List the variables.
    List,
    /// Set up a loop, as `tahti scope` does.
    Arm(Arm),
    /// Follow the captures of another client's setup, as `tahti scope --fetch` does.
    Look {
        /// Name of the segment.
        segment: String,
    },
    /// Force a capture now.
    Force,
    /// Stop sampling.
    Stop,
    /// Set what is displayed.
    View(View),
    /// Export a capture as a file, sent as binary messages.
    Export {
        /// Number of the capture.
        capture: u32,
        /// `csv`, `npy` or `json`.
        kind: String,
    },
    /// Open a file. Binary messages with its bytes follow; the answer is sent after the last one.
    Open {
        /// Its name, which ends in `.csv`, `.npy` or `.json`.
        name: String,
        /// Its size in bytes.
        bytes: usize,
    },
    /// Remove a capture from the list.
    Forget {
        /// Number of the capture.
        capture: u32,
    },
}

/// Setup of a loop.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Segment whose variables are sampled.
    pub segment: String,
    /// Names of the variables.
    pub channels: Vec<String>,
    /// Trigger of a capture.
    pub trigger: Option<String>,
    /// `single`, `normal`, `auto` or `roll`.
    pub mode: String,
    /// Part of a capture before its trigger, in percent.
    pub pre: f64,
    /// Rows of a capture.
    pub length: u64,
    /// Cycles per row.
    pub every: u64,
    /// Cycles after a trigger in which further triggers are ignored.
    pub holdoff: u64,
    /// Number of captures to keep.
    pub keep: usize,
}

/// Output of the thread for a client: the newest of each kind.
#[derive(Debug, Default)]
struct Out {
    /// Status, if changed.
    status: Option<String>,
    /// The picture.
    view: Option<Vec<u8>>,
    /// Files in parts, so that a large one does not delay other data on a slow connection.
    parts: VecDeque<Vec<u8>>,
    /// Alternates between pictures and parts of a file.
    part_is_next: bool,
    /// Pictures replaced by newer ones.
    replaced: u64,
    /// Time of the thread's last poll of the loop; `None` if it polls none.
    looked: Option<MonoNs>,
}

/// Output shared by the thread and a client.
type Shared = Arc<Mutex<Out>>;

/// A client's side of the oscilloscope.
pub(crate) struct Scope {
    scopes: Arc<Scopes>,
    out: Shared,
    party: Party,
    who: String,
    /// A file being received: name, size, bytes so far, and callback.
    opening: Option<(String, usize, Vec<u8>, Callback)>,
}

/// A request to the thread.
struct Job {
    of: Weak<Mutex<Out>>,
    party: Party,
    who: String,
    what: ScopeCommand,
    done: Callback,
}

enum ScopeCommand {
    Act(Act),
    Opened(String, Vec<u8>),
}

/// Servers for triggers outside the loop.
struct TriggerServers {
    alarms: Alarms,
    messages: String,
}

impl TriggerServers {
    /// Starts watching a trigger outside the loop of `segment`.
    fn forcing(&mut self, beside: &Beside, segment: &str) -> Result<Forcing, Refused> {
        let alarms = match beside {
            Beside::Alarm(_) => self.alarms.server()?,
            Beside::Message(_) => String::new(),
        };
        let servers = Servers { alarms, messages: self.messages.clone() };
        Ok(Forcing::start(beside, segment, &servers)?)
    }
}

/// The oscilloscope thread.
pub(crate) struct Scopes {
    jobs: Queue<Job>,
}

impl Scopes {
    /// Starts the thread, which ends with the process.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(plant: &str, messages: &str) -> io::Result<Self> {
        let (queue, jobs) = queue(WAITING_MAX);
        let mut around = TriggerServers { alarms: Alarms::new(plant), messages: messages.to_owned() };
        let rounds = Rounds::watch("dash-scope", HANGS_AFTER);
        std::thread::Builder::new().name("dash-scope".to_owned()).spawn(move || work(&jobs, &mut around, &rounds))?;
        Ok(Self { jobs: queue })
    }
}

impl Scope {
    pub(crate) fn new(scopes: Arc<Scopes>, party: Party, who: String) -> Self {
        Self { scopes, out: Arc::default(), party, who, opening: None }
    }

    /// Passes a request to the thread. An error means that it was not started.
    pub(crate) fn ask(&mut self, act: Act, done: Callback) -> Result<(), Refused> {
        if let Act::Open { name, bytes } = act {
            kind(&name)?;
            if bytes == 0 || bytes > FILE_BYTES_MAX {
                return Err(Refused::FileBytes(bytes));
            }
            self.opening = Some((name, bytes, Vec::new(), done));
            return Ok(());
        }
        self.give(ScopeCommand::Act(act), done)
    }

    /// Takes a part of the file being opened.
    pub(crate) fn bytes(&mut self, part: &[u8]) -> Result<(), Refused> {
        let (name, whole, mut there, done) = self.opening.take().ok_or(Refused::NotOpened)?;
        there.extend_from_slice(part);
        if there.len() < whole {
            self.opening = Some((name, whole, there, done));
            return Ok(());
        }
        there.truncate(whole);
        self.give(ScopeCommand::Opened(name, there), done)
    }

    fn give(&self, what: ScopeCommand, done: Callback) -> Result<(), Refused> {
        let job = Job { of: Arc::downgrade(&self.out), party: self.party, who: self.who.clone(), what, done };
        self.scopes.jobs.push(self.party, job)
    }

    /// Status, if changed.
    pub(crate) fn changed(&self) -> Option<String> {
        lock(&self.out).status.take()
    }

    /// A picture or a part of a file, alternating if both are available.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let mut out = lock(&self.out);
        let part_is_next = std::mem::replace(&mut out.part_is_next, false);
        if !part_is_next && let Some(picture) = out.view.take() {
            out.part_is_next = true;
            return Some(picture);
        }
        out.parts.pop_front().or_else(|| out.view.take())
    }

    /// Pictures replaced by newer ones since the last call.
    pub(crate) fn replaced(&self) -> u64 {
        std::mem::take(&mut lock(&self.out).replaced)
    }

    /// Whether the thread follows a loop but has not polled it recently.
    pub(crate) fn is_stale(&self, now: MonoNs) -> bool {
        lock(&self.out).looked.is_some_and(|looked| now - looked > STALE)
    }
}

fn lock(out: &Mutex<Out>) -> std::sync::MutexGuard<'_, Out> {
    out.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Type of a file, from its name.
fn kind(name: &str) -> Result<Kind, Refused> {
    Kind::of_name(name).ok_or_else(|| Refused::FileName(name.to_owned()))
}

/// Main loop of the thread: handles requests and polls loops. Ends with the process.
fn work(jobs: &Jobs<Job>, around: &mut TriggerServers, rounds: &Rounds) -> ! {
    let mut desks = Desks::default();
    loop {
        rounds.count();
        let pace = if desks.all.values().any(|(desk, _)| desk.is_live()) { LOOK } else { IDLE };
        if let Some(job) = jobs.next_within(pace) {
            let outcome = one(&mut desks, around, &job);
            (job.done)(outcome.map_err(String::from));
        }
        // A loop of a client that has gone becomes free.
        desks.tidy();
        desks.all.values_mut().for_each(|(desk, _)| desk.look(mono_now()));
    }
}

/// The clients' desks, each with its share.
struct Desks {
    all: BTreeMap<usize, (Desk, Unit)>,
    shares: Shares,
}

impl Default for Desks {
    fn default() -> Self {
        let shares = Shares::new("desks at the oscilloscope", "close another page that uses it", DESKS_MAX);
        Self { all: BTreeMap::new(), shares }
    }
}

impl Desks {
    /// Removes desks of clients that have gone.
    fn tidy(&mut self) {
        self.all.retain(|_, (desk, _)| desk.is_there());
    }

    /// The desk of a client; a new one if it has none.
    fn of(&mut self, of: &Weak<Mutex<Out>>, party: Party) -> Result<&mut Desk, Refused> {
        self.tidy();
        let (desk, _) = match self.all.entry(of.as_ptr() as usize) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert((Desk::new(of.clone()), self.shares.take(party)?)),
        };
        Ok(desk)
    }
}

fn one(desks: &mut Desks, around: &mut TriggerServers, job: &Job) -> Result<Value, Refused> {
    if let ScopeCommand::Act(Act::List) = job.what {
        return desk::list();
    }
    let desk = desks.of(&job.of, job.party)?;
    match &job.what {
        ScopeCommand::Opened(name, bytes) => {
            let capture =
                Capture::from_bytes(kind(name)?, bytes).map_err(|error| Refused::File(name.clone(), error))?;
            desk.opened(name, capture).map(|id| json!({ "capture": id }))
        }
        ScopeCommand::Act(act) => acted(desk, around, act, job),
    }
}

fn acted(desk: &mut Desk, around: &mut TriggerServers, act: &Act, job: &Job) -> Result<Value, Refused> {
    let is_operator = job.party.role == Role::Operator;
    let empty = |(): ()| json!({});
    let audited = |text: String, outcome: Result<(), Refused>| {
        audit(&job.who, &text, outcome.as_ref().err().map(ToString::to_string).as_ref());
        outcome.map(empty)
    };
    match act {
        Act::Arm(arm) => {
            audited(format!("oscilloscope of {:?}: {}", arm.segment, said(arm)), desk.arm(arm, around, is_operator))
        }
        Act::Force => audited("oscilloscope: force".into(), desk.force(is_operator)),
        Act::Stop => audited("oscilloscope: stop".into(), desk.stop(is_operator)),
        Act::Look { segment } => desk.follow(segment).map(empty),
        Act::View(view) => desk.show(view).map(empty),
        Act::Export { capture, kind: word } => desk.export(*capture, kind(word)?).map(empty),
        Act::Forget { capture } => desk.forget(*capture).map(empty),
        Act::List | Act::Open { .. } => Ok(Value::Null),
    }
}

/// Describes a setup for the log.
fn said(arm: &Arm) -> String {
    let trigger = arm.trigger.as_deref().unwrap_or("no trigger");
    format!("{} of {} variables, {} rows, {trigger}", arm.mode, arm.channels.len(), arm.length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::tests::party;

    #[test]
    fn viewers_leave_oscilloscopes_to_operators() {
        let mut desks = Desks::default();
        let clients: Vec<Shared> = (0..DESKS_MAX).map(|_| Arc::default()).collect();
        let refused = (0..)
            .zip(&clients)
            .filter(|(user, client)| desks.of(&Arc::downgrade(client), party(Role::Viewer, *user)).is_err());
        assert_eq!(refused.count(), DESKS_MAX / 4);
        let operator = Shared::default();
        desks.of(&Arc::downgrade(&operator), party(Role::Operator, 9)).unwrap();
        // A client that has gone releases its desk.
        drop(clients);
        desks.tidy();
        assert_eq!(desks.all.len(), 1);
    }
}
