//! Stores evidence on a separate thread, because inspecting a process stops each of its threads briefly, and disks may
//! block. The equipment is brought into its safe state first, and watchdogs are petted meanwhile.

use super::background::{Bell, start_thread};
use crate::evidence::{EvidenceError, Incident, Kind};
use crate::guard::GuardEvent;
use crate::keeper::protocol::{ChildId, ExitRecord};
use base::{DurNs, MonoNs};
use host::supervise::Id;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Maximum number of queued jobs. Further evidence is lost, which is reported.
const JOBS_MAX: usize = 256;

/// Maximum time without progress at the end. After it, the recorder is abandoned.
const PATIENCE: DurNs = DurNs::from_secs(10);

/// The folder of the plant's flight recorder, if it has one.
const FLIGHT: &str = "recorder";

/// Evidence to store.
#[derive(Debug)]
pub(crate) enum Job {
    /// An incident begins: the process is inspected now.
    Begin(Id, Box<Begin>),
    /// An event of the guard.
    Guard(Id, GuardEvent),
    /// The process ended.
    Exit(Id, Box<ExitRecord>),
    /// The incident is over. The next fault is a new incident.
    Close(Id),
}

/// Start of an incident.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) child: ChildId,
    pub(crate) at: MonoNs,
    pub(crate) summary: String,
    pub(crate) cycles: Vec<serde_json::Value>,
}

/// A completed job.
#[derive(Debug)]
pub(crate) struct CompletedJob {
    /// The process.
    pub(crate) id: Id,
    /// Whether it began an incident.
    pub(crate) began: bool,
    /// The written folder, if any.
    pub(crate) written: Option<Result<PathBuf, EvidenceError>>,
}

/// The recorder's handle. After it is dropped, the thread completes its queued jobs.
#[derive(Debug)]
pub(crate) struct Recorder {
    jobs: SyncSender<Job>,
    done: Receiver<CompletedJob>,
    bell: Bell,
    /// Jobs without an answer.
    owed: usize,
    /// Time of the last progress.
    since: MonoNs,
}

impl Recorder {
    /// Starts the recorder. Evidence is stored below `base`.
    ///
    /// # Errors
    /// The thread or the descriptor cannot be created.
    pub(crate) fn start(base: PathBuf) -> sys::Result<Self> {
        let bell = Bell::new()?;
        let (jobs, todo) = sync_channel(JOBS_MAX);
        // Room for the answers of all queued jobs and the running one.
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

    /// Queues a job; false if the queue is full.
    pub(crate) fn take(&mut self, job: Job, now: MonoNs) -> bool {
        let taken = self.jobs.try_send(job).is_ok();
        if taken {
            self.since = if self.owed == 0 { now } else { self.since };
            self.owed += 1;
        }
        taken
    }

    /// The next completed job; never waits.
    pub(crate) fn next_done(&mut self, now: MonoNs) -> Option<CompletedJob> {
        self.bell.heard();
        let done = self.done.try_recv().ok()?;
        (self.owed, self.since) = (self.owed.saturating_sub(1), now);
        Some(done)
    }

    /// Time until which to wait for it; `None` if it is idle.
    pub(crate) fn waited_for(&self) -> Option<MonoNs> {
        (self.owed > 0).then(|| self.since + PATIENCE)
    }
}

impl AsFd for Recorder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

fn perform(job: Job, open: &mut BTreeMap<Id, Incident>, base: &Path) -> CompletedJob {
    let (id, began) = match job {
        Job::Begin(id, begin) => {
            let Begin { kind, name, child, at, summary, cycles } = *begin;
            let mut incident = Incident::new(kind, &name, child, at, summary, cycles);
            // In the plant's folder, next to the evidence.
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
    CompletedJob { id, began, written: open.get(&id).map(|incident| incident.write(base)) }
}
