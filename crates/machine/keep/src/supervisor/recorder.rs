//! Keeps evidence beside the loop: looking at a process stops its threads for a moment each, and disks take their
//! time. The equipment is brought into its safe state first, and watchdogs are petted meanwhile.

use super::aside::{Bell, start_thread};
use crate::evidence::{EvidenceError, Incident, Kind};
use crate::guard::GuardEvent;
use crate::keeper::protocol::{ChildId, ExitRecord};
use base::{DurNs, MonoNs};
use host::supervise::Id;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Jobs that may wait; evidence beyond that is lost, which is told.
const JOBS_MAX: usize = 256;

/// A recorder that makes no progress for so long is not waited for at the end.
const PATIENCE: DurNs = DurNs::from_secs(10);

/// The folder of the plant's flight recorder, if it has one.
const FLIGHT: &str = "recorder";

/// What is to be kept.
#[derive(Debug)]
pub(crate) enum Job {
    /// An incident begins: the process is looked at now.
    Begin(Id, Box<Begin>),
    /// The guard saw or did something.
    Guard(Id, GuardEvent),
    /// The process ended.
    Exit(Id, Box<ExitRecord>),
    /// The incident is over: the next trouble is another one.
    Close(Id),
}

/// How an incident begins.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) child: ChildId,
    pub(crate) at: MonoNs,
    pub(crate) summary: String,
    pub(crate) cycles: Vec<serde_json::Value>,
}

/// A job that is done.
#[derive(Debug)]
pub(crate) struct Done {
    /// Whose.
    pub(crate) id: Id,
    /// Whether an incident began with it.
    pub(crate) began: bool,
    /// The folder that was written, if there was something to write.
    pub(crate) written: Option<Result<PathBuf, EvidenceError>>,
}

/// The recorder's handle. Dropping it lets the thread finish what it has.
#[derive(Debug)]
pub(crate) struct Recorder {
    jobs: SyncSender<Job>,
    done: Receiver<Done>,
    bell: Bell,
    /// Jobs without an answer.
    owed: usize,
    /// The last sign of progress.
    since: MonoNs,
}

impl Recorder {
    /// Starts it; evidence goes below `base`.
    ///
    /// # Errors
    /// No thread or descriptor could be made.
    pub(crate) fn start(base: PathBuf) -> sys::Result<Self> {
        let bell = Bell::new()?;
        let (jobs, todo) = sync_channel(JOBS_MAX);
        // As many answers as there can be jobs, and the one at hand.
        let (tells, done) = sync_channel(JOBS_MAX + 1);
        let rings = bell.clone();
        start_thread("tahti-evidence", move || {
            let mut open = BTreeMap::new();
            for job in todo {
                if tells.send(perform(job, &mut open, &base)).is_err() {
                    return;
                }
                rings.ring();
            }
        })?;
        Ok(Self { jobs, done, bell, owed: 0, since: MonoNs(0) })
    }

    /// Gives it something to do; false if it has too much already.
    pub(crate) fn take(&mut self, job: Job, now: MonoNs) -> bool {
        let taken = self.jobs.try_send(job).is_ok();
        if taken {
            self.since = if self.owed == 0 { now } else { self.since };
            self.owed += 1;
        }
        taken
    }

    /// What it has done; never waits.
    pub(crate) fn next_done(&mut self, now: MonoNs) -> Option<Done> {
        self.bell.heard();
        let done = self.done.try_recv().ok()?;
        (self.owed, self.since) = (self.owed.saturating_sub(1), now);
        Some(done)
    }

    /// Until when it is waited for; `None` if it has nothing to do.
    pub(crate) fn waited_for(&self) -> Option<MonoNs> {
        (self.owed > 0).then(|| self.since + PATIENCE)
    }
}

impl AsFd for Recorder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

fn perform(job: Job, open: &mut BTreeMap<Id, Incident>, base: &Path) -> Done {
    let (id, began) = match job {
        Job::Begin(id, begin) => {
            let Begin { kind, name, child, at, summary, cycles } = *begin;
            let mut incident = Incident::new(kind, &name, child, at, summary, cycles);
            // Beside the evidence, in the plant's folder.
            incident.ask_recorder(&base.with_file_name(FLIGHT));
            open.insert(id, incident);
            (id, true)
        }
        Job::Guard(id, event) => {
            open.entry(id).and_modify(|incident| incident.add(&event));
            (id, false)
        }
        Job::Exit(id, exit) => {
            open.entry(id).and_modify(|incident| incident.exit = Some(*exit));
            (id, false)
        }
        Job::Close(id) => {
            open.remove(&id);
            (id, false)
        }
    };
    Done { id, began, written: open.get(&id).map(|incident| incident.write(base)) }
}
