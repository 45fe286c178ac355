//! Evidence: one folder for each incident, below the plant's folder. What is to be kept is gathered here and
//! given to the recorder once the state machine's actions are done, the safe-output command first.

use super::Engine;
use crate::evidence::{Kind, describe, kind_of_end, out_of_memory_kills, out_of_memory_line};
use crate::group::{Group, MEMORY};
use crate::guard::{GuardEvent, What};
use crate::keeper::protocol::{self, ChildId, ExitRecord};
use crate::page::Page;
use crate::supervisor::recorder::{Begin, Job, Recorder};
use base::{DurNs, MonoNs};
use host::plant::Signal;
use host::supervise::{Cause, End, Id};
use sys::clock::mono_now;

/// SIGABRT waits so long for a look at the threads that it ends.
const LOOK_WITHIN: DurNs = DurNs::from_secs(1);

impl Engine {
    /// Takes what the guard tells into the incident, which it may begin.
    pub(super) fn guard_evidence(&mut self, id: Id, event: &GuardEvent) {
        let kind = match event.what {
            What::Runaway { .. } => Some(Kind::Runaway),
            What::Silent { .. } if self.polls(id) => Some(Kind::Runaway),
            What::Silent { .. } => Some(Kind::Hang),
            What::Starved { .. } => Some(Kind::Starved),
            _ => None,
        };
        if let (Some(kind), Some(child), false) = (kind, self.kids[id].child, self.kids[id].incident) {
            self.begin(id, kind, child, event.at, describe(&event.what));
        }
        if !self.kids[id].incident {
            return;
        }
        self.to_record.push(Job::Guard(id, *event));
        // Who starves or was tamed goes on: the next trouble is another incident.
        if kind == Some(Kind::Starved) || matches!(event.what, What::Tamed) {
            self.close(id);
        }
    }

    /// Remembers how often memory had run out before, where a process has just been started.
    pub(super) fn begin_life(&mut self, id: Id) {
        self.kids[id].kills = self.kills(id);
        if let Some(minors) = self.kids[id].minors.take() {
            self.kids[id].past = self.kids[id].past.plus(minors);
        }
        self.close(id);
    }

    /// How often memory has run out: in the process's own control group, or in that of its keeper, which is still there
    /// after it.
    fn kills(&self, id: Id) -> u64 {
        let own = Group::noted(&self.run.keeper(&self.name(id))).and_then(|group| group.out_of_memory_kills());
        own.unwrap_or_else(|| out_of_memory_kills(self.kids[id].keeper_pid.unwrap_or(0)))
    }

    /// How a process ended, as the state machine knows it.
    pub(super) fn end_of(&self, id: Id, exit: &ExitRecord) -> End {
        match (exit.end, self.kind_of_end(id, exit)) {
            (_, Some(Kind::OutOfMemory)) => End::OutOfMemory,
            (protocol::End::Exit(code), _) => End::Exit(code),
            (protocol::End::Signal { signal, .. }, _) => End::Signal(Signal(signal as u8)),
        }
    }

    fn kind_of_end(&self, id: Id, exit: &ExitRecord) -> Option<Kind> {
        let (before, after) = (self.kids[id].kills, self.kills(id));
        let line = if after > before { out_of_memory_line(exit.child.pid) } else { Ok(None) };
        kind_of_end(exit.end, before, after, line.ok().map(|line| line.is_some()))
    }

    /// Keeps evidence of an end that nobody asked for.
    pub(super) fn exit_evidence(&mut self, id: Id, exit: &ExitRecord) {
        let cause = self.all.units()[id].history.ended.as_ref().map(|(_, cause)| cause.clone());
        let Some(cause) = cause.filter(|cause| !matches!(cause, Cause::Asked(_))) else { return self.close(id) };
        if !self.kids[id].incident {
            let Some(kind) = self.kind_of_end(id, exit) else { return };
            let reasons = if kind == Kind::OutOfMemory { self.out_of_memory(id, exit) } else { Vec::new() };
            let summary = std::iter::once(cause.to_string()).chain(reasons).collect::<Vec<_>>().join(": ");
            self.begin(id, kind, exit.child, exit.ended, summary);
        }
        // It stays open: the guard acts first and tells then, and what ended it may still be on the way.
        self.to_record.push(Job::Exit(id, Box::new(exit.clone())));
    }

    /// Why the kernel ended a process for lack of memory: its bound, and the kernel's own words.
    fn out_of_memory(&self, id: Id, exit: &ExitRecord) -> Vec<String> {
        let bound = self.process(id).and_then(|process| process.bounds.memory_max);
        let bound = bound.filter(|_| self.kills(id) > self.kids[id].kills && self.is_bounded(id));
        let line = out_of_memory_line(exit.child.pid).ok().flatten();
        bound.map(|max| format!("it used its memory_max of {max}")).into_iter().chain(line).collect()
    }

    fn is_bounded(&self, id: Id) -> bool {
        Group::noted(&self.run.keeper(&self.name(id))).is_some_and(|group| group.standing(&MEMORY).is_some())
    }

    fn begin(&mut self, id: Id, kind: Kind, child: ChildId, at: MonoNs, summary: String) {
        let cycles = self.kids[id].page.as_ref().map_or(Vec::new(), Page::evidence);
        let begin = Begin { kind, name: self.name(id), child, at, summary, cycles };
        self.to_record.push(Job::Begin(id, Box::new(begin)));
        self.kids[id].incident = true;
    }

    fn close(&mut self, id: Id) {
        if std::mem::take(&mut self.kids[id].incident) {
            self.to_record.push(Job::Close(id));
        }
    }

    /// Gives what has gathered to the recorder.
    pub(super) fn record(&mut self) {
        let jobs = std::mem::take(&mut self.to_record);
        if jobs.is_empty() {
            return;
        }
        let now = mono_now();
        if self.recorder.is_none() {
            match Recorder::start(self.run.path().join("evidence")) {
                Ok(recorder) => self.recorder = Some(recorder),
                Err(why) => return self.shortfall("evidence", format!("no evidence is kept: {why}")),
            }
        }
        let Some(recorder) = &mut self.recorder else { return };
        let lost = jobs.into_iter().filter_map(|job| (!recorder.take(job, now)).then_some(())).count();
        if lost > 0 {
            let why = "evidence is lost: what was to be kept came faster than its disk takes it";
            self.shortfall("evidence", why.to_owned());
        }
    }

    /// Whether a process is to be looked at before it gets SIGABRT: then the signal follows.
    pub(super) fn look_first(&mut self, id: Id, now: MonoNs) -> bool {
        let begins = |job: &Job| matches!(job, Job::Begin(of, _) if *of == id);
        if !self.to_record.iter().any(begins) {
            return false;
        }
        self.record();
        let looks = self.recorder.as_ref().is_some_and(|recorder| recorder.waited_for().is_some());
        self.kids[id].abort_at = looks.then(|| now + LOOK_WITHIN);
        looks
    }

    /// Hears what the recorder has done, and sends signals that waited for it.
    pub(super) fn recorded(&mut self, now: MonoNs) {
        while let Some(done) = self.recorder.as_mut().and_then(|recorder| recorder.next_done(now)) {
            if done.began && self.kids[done.id].abort_at.is_some() {
                self.kids[done.id].abort_at = Some(now);
            }
            match done.written {
                Some(Ok(dir)) => {
                    if self.kids[done.id].evidence.as_ref() != Some(&dir) {
                        self.tell.event(now, &self.name(done.id), &format!("evidence in {}", dir.display()));
                    }
                    self.kids[done.id].evidence = Some(dir);
                }
                Some(Err(why)) => self.shortfall(&self.name(done.id), why),
                None => {}
            }
        }
        for id in 0..self.kids.len() {
            if self.kids[id].abort_at.take_if(|at| now >= *at).is_some() {
                self.send(id, Signal::ABRT);
            }
        }
    }

    /// Until when evidence is waited for that is being kept.
    pub(super) fn evidence_until(&self, now: MonoNs) -> Option<MonoNs> {
        self.recorder.as_ref().and_then(Recorder::waited_for).filter(|until| now < *until)
    }
}
