//! The oscilloscope: each client that uses it has a desk with its captures, and one thread sets loops up, fetches what they
//! captured and makes of it what each client wants to see. It is the client that `tahti scope` is.
//!
//! A loop samples for one at a time. Viewers set up one that nobody holds; to take it from somebody needs an operator.

mod desk;
mod forcing;
mod picture;

use crate::access::Role;
use crate::alarms::Alarms;
use crate::shares::{Jobs, Party, Queue, Shares, Taken, queue};
use crate::signals::{Done, Outcome};
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

pub use forcing::{Forcing, ForcingError, Servers};
pub use picture::View;

/// Questions that wait, of all clients together.
const WAITING_MAX: usize = 32;
/// Clients that may use it at once.
const DESKS_MAX: usize = 8;
/// Bytes of a file that is opened again: a loop's largest capture as a table fits.
const FILE_BYTES_MAX: usize = 12 << 20;
/// How often it is looked whether loops have captured something.
const LOOK: Duration = Duration::from_millis(50);
/// How often it is looked whether clients are gone, where no loop is looked at.
const IDLE: Duration = Duration::from_secs(1);
/// From which age on a desk that looks at a loop is stale.
const STALE: DurNs = DurNs::from_secs(2);

/// What a client asks of the oscilloscope.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Act {
    /// Which variables there are.
    List,
    /// Sets a loop up: what `tahti scope` takes.
    Arm(Arm),
    /// Shows what a loop captures for somebody else, as `tahti scope --fetch` does.
    Look {
        /// The segment.
        segment: String,
    },
    /// Begins a capture now.
    Force,
    /// Ends sampling.
    Stop,
    /// What is to be shown from now on.
    View(View),
    /// A capture as a file: it comes as a binary message.
    Export {
        /// Its number.
        capture: u32,
        /// `csv`, `npy` or `json`.
        kind: String,
    },
    /// A file is opened: binary messages follow until all its bytes are there, and then the answer.
    Open {
        /// Its name, which ends in `.csv`, `.npy` or `.json`.
        name: String,
        /// How many bytes.
        bytes: usize,
    },
    /// Takes a capture from the list.
    Forget {
        /// Its number.
        capture: u32,
    },
}

/// How a loop is set up.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The segment whose variables are sampled.
    pub segment: String,
    /// Their names.
    pub channels: Vec<String>,
    /// What begins a capture.
    pub trigger: Option<String>,
    /// `single`, `normal`, `auto` or `roll`.
    pub mode: String,
    /// Percent of a capture before its trigger.
    pub pre: f64,
    /// Rows of a capture.
    pub length: u64,
    /// A row in each of so many cycles.
    pub every: u64,
    /// Cycles after a trigger in which no other one counts.
    pub holdoff: u64,
    /// Captures that are kept.
    pub keep: usize,
}

/// What the thread has for a client: the newest of each kind.
#[derive(Debug, Default)]
struct Out {
    /// How things stand, where that is new.
    status: Option<String>,
    /// The picture.
    view: Option<Vec<u8>>,
    /// Files, in parts: so that a long one holds up nothing else on a slow line.
    parts: VecDeque<Vec<u8>>,
    /// Whether the next to go is a part of a file, where there is a picture, too.
    part_is_next: bool,
    /// Pictures that newer ones took the place of.
    replaced: u64,
    /// When the thread last looked at the loop; `None` where it looks at none.
    looked: Option<MonoNs>,
}

/// Where the thread leaves what is for a client.
type Shared = Arc<Mutex<Out>>;

/// A client's side of the oscilloscope.
pub(crate) struct Scope {
    scopes: Arc<Scopes>,
    out: Shared,
    party: Party,
    who: String,
    /// A file on its way: its name, how many bytes it has, those that are there, and who waits.
    opening: Option<(String, usize, Vec<u8>, Done)>,
}

/// What is asked of the thread.
struct Job {
    of: Weak<Mutex<Out>>,
    party: Party,
    who: String,
    what: What,
    done: Done,
}

enum What {
    Act(Act),
    Opened(String, Vec<u8>),
}

/// Whom triggers outside a loop ask.
struct Around {
    alarms: Alarms,
    messages: String,
}

impl Around {
    /// Looks for what begins captures of `segment` outside its loop.
    fn forcing(&mut self, beside: &Beside, segment: &str) -> Result<Forcing, String> {
        let alarms = match beside {
            Beside::Alarm(_) => self.alarms.server().map_err(|why| why.to_string())?,
            Beside::Message(_) => String::new(),
        };
        let servers = Servers { alarms, messages: self.messages.clone() };
        Forcing::start(beside, segment, &servers).map_err(|why| why.to_string())
    }
}

/// The thread.
pub(crate) struct Scopes {
    jobs: Queue<Job>,
}

impl Scopes {
    /// Starts it; it ends with the process.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(plant: &str, messages: &str) -> io::Result<Self> {
        let (queue, jobs) = queue(WAITING_MAX);
        let mut around = Around { alarms: Alarms::new(plant), messages: messages.to_owned() };
        std::thread::Builder::new().name("dash-scope".to_owned()).spawn(move || work(&jobs, &mut around))?;
        Ok(Self { jobs: queue })
    }
}

impl Scope {
    pub(crate) fn new(scopes: Arc<Scopes>, party: Party, who: String) -> Self {
        Self { scopes, out: Arc::default(), party, who, opening: None }
    }

    /// Has it done; why it is not even begun is said.
    pub(crate) fn ask(&mut self, act: Act, done: Done) -> Result<(), String> {
        if let Act::Open { name, bytes } = act {
            kind(&name)?;
            if bytes == 0 || bytes > FILE_BYTES_MAX {
                return Err(format!("a file of {bytes} bytes; expected 1 to {FILE_BYTES_MAX}"));
            }
            self.opening = Some((name, bytes, Vec::new(), done));
            return Ok(());
        }
        self.give(What::Act(act), done)
    }

    /// Takes a part of the file that is opened.
    pub(crate) fn bytes(&mut self, part: &[u8]) -> Result<(), String> {
        let (name, whole, mut there, done) = self.opening.take().ok_or("bytes came; expected `open` before them")?;
        there.extend_from_slice(part);
        if there.len() < whole {
            self.opening = Some((name, whole, there, done));
            return Ok(());
        }
        there.truncate(whole);
        self.give(What::Opened(name, there), done)
    }

    fn give(&self, what: What, done: Done) -> Result<(), String> {
        let job = Job { of: Arc::downgrade(&self.out), party: self.party, who: self.who.clone(), what, done };
        self.scopes.jobs.push(self.party, job)
    }

    /// How things stand, where that is new.
    pub(crate) fn changed(&self) -> Option<String> {
        lock(&self.out).status.take()
    }

    /// A picture or a part of a file, by turns where there is both.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let mut out = lock(&self.out);
        let part_is_next = std::mem::replace(&mut out.part_is_next, false);
        if !part_is_next && let Some(picture) = out.view.take() {
            out.part_is_next = true;
            return Some(picture);
        }
        out.parts.pop_front().or_else(|| out.view.take())
    }

    /// Pictures that newer ones took the place of since this was asked.
    pub(crate) fn replaced(&self) -> u64 {
        std::mem::take(&mut lock(&self.out).replaced)
    }

    /// Whether the thread looks at a loop and has not for too long.
    pub(crate) fn is_stale(&self, now: MonoNs) -> bool {
        lock(&self.out).looked.is_some_and(|looked| now - looked > STALE)
    }
}

fn lock(out: &Mutex<Out>) -> std::sync::MutexGuard<'_, Out> {
    out.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which kind of file a name stands for.
fn kind(name: &str) -> Result<Kind, String> {
    Kind::of_name(name).ok_or_else(|| format!("{name:?}; expected a name that ends in .csv, .npy or .json"))
}

/// Does what clients ask, and reads what loops have captured. Ends with the process.
fn work(jobs: &Jobs<Job>, around: &mut Around) -> ! {
    let mut desks = Desks::default();
    loop {
        let pace = if desks.all.values().any(|(desk, _)| desk.is_live()) { LOOK } else { IDLE };
        if let Some(job) = jobs.next_within(pace) {
            let outcome = one(&mut desks, around, &job);
            (job.done)(outcome);
        }
        // A client that is gone leaves its loop free.
        desks.tidy();
        desks.all.values_mut().for_each(|(desk, _)| desk.look(mono_now()));
    }
}

/// The desks of clients, each with its share.
struct Desks {
    all: BTreeMap<usize, (Desk, Taken)>,
    shares: Shares,
}

impl Default for Desks {
    fn default() -> Self {
        let shares = Shares::new("desks at the oscilloscope", "close another page that uses it", DESKS_MAX);
        Self { all: BTreeMap::new(), shares }
    }
}

impl Desks {
    /// Drops the desks of clients that are gone.
    fn tidy(&mut self) {
        self.all.retain(|_, (desk, _)| desk.is_there());
    }

    /// The desk of a client, a new one if it has none.
    fn of(&mut self, of: &Weak<Mutex<Out>>, party: Party) -> Result<&mut Desk, String> {
        self.tidy();
        let (desk, _) = match self.all.entry(of.as_ptr() as usize) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert((Desk::new(of.clone()), self.shares.take(party)?)),
        };
        Ok(desk)
    }
}

fn one(desks: &mut Desks, around: &mut Around, job: &Job) -> Outcome {
    if let What::Act(Act::List) = job.what {
        return desk::list();
    }
    let desk = desks.of(&job.of, job.party)?;
    match &job.what {
        What::Opened(name, bytes) => {
            let capture = Capture::from_bytes(kind(name)?, bytes).map_err(|error| format!("{name}: {error}"))?;
            desk.opened(name, capture).map(|id| json!({ "capture": id }))
        }
        What::Act(act) => acted(desk, around, act, job),
    }
}

fn acted(desk: &mut Desk, around: &mut Around, act: &Act, job: &Job) -> Outcome {
    let is_operator = job.party.role == Role::Operator;
    let empty = |(): ()| json!({});
    let audited = |text: String, outcome: Result<(), String>| {
        audit(&job.who, &text, outcome.as_ref().err());
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

/// A setup as the log has it.
fn said(arm: &Arm) -> String {
    let trigger = arm.trigger.as_deref().unwrap_or("no trigger");
    format!("{} of {} variables, {} rows, {trigger}", arm.mode, arm.channels.len(), arm.length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::tests::party;

    #[test]
    fn viewers_leave_desks_to_operators() {
        let mut desks = Desks::default();
        let clients: Vec<Shared> = (0..DESKS_MAX).map(|_| Arc::default()).collect();
        let refused = (0..)
            .zip(&clients)
            .filter(|(user, client)| desks.of(&Arc::downgrade(client), party(Role::Viewer, *user)).is_err());
        assert_eq!(refused.count(), DESKS_MAX / 4);
        let operator = Shared::default();
        desks.of(&Arc::downgrade(&operator), party(Role::Operator, 9)).unwrap();
        // A client that is gone gives its desk back.
        drop(clients);
        desks.tidy();
        assert_eq!(desks.all.len(), 1);
    }
}
