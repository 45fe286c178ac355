//! Evidence: one folder per incident, below the plant's folder. Jobs are collected here and passed to the recorder after the
//! state machine's actions, so that the safe-output command runs first.

use super::processes::{Processes, Supervised};
use super::recorder::{Begin, Job, Recorder};
use super::reporter::Reporter;
use super::site::Site;
use crate::evidence::{Kind, describe, kind_of_end, out_of_memory_kills, out_of_memory_line};
use crate::group::{Group, MEMORY};
use crate::guard::{EventKind, GuardEvent};
use crate::keeper::protocol::{self, ChildId, ExitRecord};
use crate::page::Page;
use base::{DurNs, MonoNs};
use host::plant::{Budget, Process, Signal};
use host::supervise::{Cause, End, Id};
use rustix::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use sys::clock::mono_now;

/// Maximum time that SIGABRT waits until the threads it ends have been recorded.
const LOOK_WITHIN: DurNs = DurNs::from_secs(1);

/// Pending evidence jobs, and the recorder that stores them.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    jobs: Vec<Job>,
    recorder: Option<Recorder>,
}

/// An incident of a process.
#[derive(Debug, Default)]
pub(crate) struct Incident {
    /// Whether an incident is open, for which evidence is stored.
    open: bool,
    /// Latest time of a SIGABRT that waits until the threads have been recorded.
    pub(crate) abort_at: Option<MonoNs>,
    /// Directory with the evidence of the last incident.
    pub(crate) evidence: Option<PathBuf>,
    /// Number of out-of-memory kills when the process was started.
    kills: u64,
}

/// Whether a process has no budget. Then a missing heartbeat counts as a runaway, and the guard acts on it.
pub(crate) fn polls(process: Option<&Process>) -> bool {
    process.is_some_and(|process| process.budget == Budget::None)
}

impl Evidence {
    /// Adds a guard event to the incident of a process. Opens an incident if needed.
    pub(crate) fn guard(&mut self, id: Id, event: &GuardEvent, polls: bool, processes: &mut Processes) {
        let kind = match event.what {
            EventKind::Runaway { .. } => Some(Kind::Runaway),
            EventKind::Silent { .. } if polls => Some(Kind::Runaway),
            EventKind::Silent { .. } => Some(Kind::Hang),
            EventKind::Starved { .. } => Some(Kind::Starved),
            _ => None,
        };
        if let (Some(kind), Some(child), false) = (kind, processes[id].child, processes[id].incident.open) {
            self.begin(id, kind, child, event.at, describe(&event.what), processes);
        }
        if !processes[id].incident.open {
            return;
        }
        self.jobs.push(Job::Guard(id, *event));
        // A starved or tamed process continues. Its next fault is a new incident.
        if kind == Some(Kind::Starved) || matches!(event.what, EventKind::Tamed) {
            self.close(id, &mut processes[id]);
        }
    }

    /// Records the number of out-of-memory kills at the start of a process.
    pub(crate) fn begin_life(&mut self, id: Id, keeper: &Path, one: &mut Supervised) {
        one.incident.kills = kills(keeper, one);
        self.close(id, one);
    }

    /// Stores evidence of an end that was not requested.
    pub(crate) fn exit(&mut self, id: Id, exit: &ExitRecord, site: &Site, processes: &mut Processes) {
        let cause = processes.unit(id).history.ended.as_ref().map(|(_, cause)| cause.clone());
        let Some(cause) = cause.filter(|cause| !matches!(cause, Cause::Asked(_))) else {
            return self.close(id, &mut processes[id]);
        };
        if !processes[id].incident.open {
            let keeper = site.run.keeper(processes.name(id));
            let Some(kind) = kind_of(&keeper, &processes[id], exit) else { return };
            let reasons = match kind {
                Kind::OutOfMemory => out_of_memory(&keeper, &processes[id], site.process(processes.name(id)), exit),
                _ => Vec::new(),
            };
            let summary = std::iter::once(cause.to_string()).chain(reasons).collect::<Vec<_>>().join(": ");
            self.begin(id, kind, exit.child, exit.ended, summary, processes);
        }
        // The incident stays open, because guard events that caused the end may still arrive: the guard acts before it
        // reports.
        self.jobs.push(Job::Exit(id, Box::new(exit.clone())));
    }

    fn begin(&mut self, id: Id, kind: Kind, child: ChildId, at: MonoNs, summary: String, processes: &mut Processes) {
        let cycles = processes[id].page.as_ref().map_or(Vec::new(), Page::evidence);
        let begin = Begin { kind, name: processes.name(id).to_owned(), child, at, summary, cycles };
        self.jobs.push(Job::Begin(id, Box::new(begin)));
        processes[id].incident.open = true;
    }

    fn close(&mut self, id: Id, one: &mut Supervised) {
        if std::mem::take(&mut one.incident.open) {
            self.jobs.push(Job::Close(id));
        }
    }

    /// Passes the pending jobs to the recorder, which writes below `folder`.
    pub(crate) fn record(&mut self, folder: &Path, tell: &mut Reporter) {
        let jobs = std::mem::take(&mut self.jobs);
        if jobs.is_empty() {
            return;
        }
        let now = mono_now();
        if self.recorder.is_none() {
            match Recorder::start(folder.join("evidence")) {
                Ok(recorder) => self.recorder = Some(recorder),
                Err(why) => return tell.shortfall("evidence", format!("evidence is not stored: {why}")),
            }
        }
        let Some(recorder) = &mut self.recorder else { return };
        let lost = jobs.into_iter().filter_map(|job| (!recorder.take(job, now)).then_some(())).count();
        if lost > 0 {
            let why = "evidence is lost: it arrived faster than the disk could store it";
            tell.shortfall("evidence", why.to_owned());
        }
    }

    /// Whether SIGABRT must wait until the threads of the process have been recorded. If so, it is sent later.
    pub(crate) fn look_first(&mut self, id: Id, one: &mut Supervised, folder: &Path, tell: &mut Reporter) -> bool {
        let begins = |job: &Job| matches!(job, Job::Begin(of, _) if *of == id);
        if !self.jobs.iter().any(begins) {
            return false;
        }
        self.record(folder, tell);
        let looks = self.recorder.as_ref().is_some_and(|recorder| recorder.waited_for().is_some());
        one.incident.abort_at = looks.then(|| mono_now() + LOOK_WITHIN);
        looks
    }

    /// Handles the recorder's completed jobs. A SIGABRT that waited for one becomes due.
    pub(crate) fn recorded(&mut self, now: MonoNs, processes: &mut Processes, tell: &mut Reporter) {
        while let Some(done) = self.recorder.as_mut().and_then(|recorder| recorder.next_done(now)) {
            if done.began && processes[done.id].incident.abort_at.is_some() {
                processes[done.id].incident.abort_at = Some(now);
            }
            match done.written {
                Some(Ok(dir)) => {
                    if processes[done.id].incident.evidence.as_ref() != Some(&dir) {
                        tell.event(now, processes.name(done.id), &format!("evidence in {}", dir.display()));
                    }
                    processes[done.id].incident.evidence = Some(dir);
                }
                Some(Err(why)) => tell.shortfall(processes.name(done.id), why.to_string()),
                None => {}
            }
        }
    }

    /// Time limit for evidence that is being stored.
    pub(crate) fn until(&self, now: MonoNs) -> Option<MonoNs> {
        self.recorder.as_ref().and_then(Recorder::waited_for).filter(|until| now < *until)
    }

    /// The descriptor to poll.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.recorder.as_ref().map(Recorder::as_fd)
    }
}

/// Converts the end of a process for the state machine. `keeper` is the directory of its keeper.
pub(crate) fn end_of(keeper: &Path, one: &Supervised, exit: &ExitRecord) -> End {
    match (exit.end, kind_of(keeper, one, exit)) {
        (_, Some(Kind::OutOfMemory)) => End::OutOfMemory,
        (protocol::End::Exit(code), _) => End::Exit(code),
        (protocol::End::Signal { signal, .. }, _) => End::Signal(Signal(signal as u8)),
        (protocol::End::Unseen, _) => End::Unseen,
    }
}

/// Number of out-of-memory kills, read from the process's own control group or from that of its keeper, which outlives the
/// process.
fn kills(keeper: &Path, one: &Supervised) -> u64 {
    let own = Group::noted(keeper).and_then(|group| group.out_of_memory_kills());
    own.unwrap_or_else(|| out_of_memory_kills(one.link.pid.unwrap_or(0)))
}

fn kind_of(keeper: &Path, one: &Supervised, exit: &ExitRecord) -> Option<Kind> {
    let (before, after) = (one.incident.kills, kills(keeper, one));
    let line = if after > before { out_of_memory_line(exit.child.pid) } else { Ok(None) };
    kind_of_end(exit.end, before, after, line.ok().map(|line| line.is_some()))
}

/// Details of an out-of-memory kill: the limit that was reached, and the kernel's log line.
fn out_of_memory(keeper: &Path, one: &Supervised, process: Option<&Process>, exit: &ExitRecord) -> Vec<String> {
    let line = out_of_memory_line(exit.child.pid).ok().flatten();
    used_up(keeper, one, process).into_iter().chain(line).collect()
}

/// The limit that an out-of-memory kill enforced; `None` if the process has none.
pub(crate) fn used_up(keeper: &Path, one: &Supervised, process: Option<&Process>) -> Option<String> {
    let is_bounded = || Group::noted(keeper).is_some_and(|group| group.standing(&MEMORY).is_some());
    let bound = process.and_then(|process| process.bounds.memory_max);
    let bound = bound.filter(|_| kills(keeper, one) > one.incident.kills && is_bounded());
    bound.map(|max| format!("it used its memory_max of {max}"))
}
