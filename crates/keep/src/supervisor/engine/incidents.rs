//! Keeping evidence: one folder for each incident, below the plant's folder.

use super::Engine;
use crate::evidence::{Incident, Kind, describe, kind_of_end, out_of_memory_kills, out_of_memory_line};
use crate::guard::{GuardEvent, What};
use crate::keeper::protocol::{self, ChildId, ExitRecord};
use crate::page::Page;
use base::MonoNs;
use host::plant::Signal;
use host::supervise::{Cause, End, Id};
use sys::clock::mono_now;

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
        if let (Some(kind), Some(child), None) = (kind, self.kids[id].child, &self.kids[id].incident) {
            let incident = self.begin(id, kind, child, event.at, describe(&event.what));
            self.kids[id].incident = Some(incident);
        }
        let Some(mut incident) = self.kids[id].incident.take() else { return };
        incident.add(event);
        self.write(id, &incident);
        // Who starves or was tamed goes on: the next trouble is another incident.
        let over = kind == Some(Kind::Starved) || matches!(event.what, What::Tamed);
        self.kids[id].incident = Some(incident).filter(|_| !over);
    }

    /// Remembers how often memory had run out before, where a process has just been started.
    pub(super) fn begin_life(&mut self, id: Id) {
        self.kids[id].kills = out_of_memory_kills(self.kids[id].keeper_pid.unwrap_or(0));
        self.kids[id].incident = None;
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
        // Of the keeper, which is in the same control group and still there.
        let (before, after) = (self.kids[id].kills, out_of_memory_kills(self.kids[id].keeper_pid.unwrap_or(0)));
        let line = if after > before { out_of_memory_line(exit.child.pid) } else { Ok(None) };
        kind_of_end(exit.end, before, after, line.ok().map(|line| line.is_some()))
    }

    /// Keeps evidence of an end that nobody asked for.
    pub(super) fn exit_evidence(&mut self, id: Id, exit: &ExitRecord) {
        let cause = self.all.units()[id].history.ended.as_ref().map(|(_, cause)| cause.clone());
        let open = self.kids[id].incident.take();
        let Some(cause) = cause.filter(|cause| !matches!(cause, Cause::Asked(_))) else { return };
        let incident = open.or_else(|| {
            let kind = self.kind_of_end(id, exit)?;
            let line = if kind == Kind::OutOfMemory { out_of_memory_line(exit.child.pid) } else { Ok(None) };
            let summary = line.ok().flatten().map_or(cause.to_string(), |line| format!("{cause}: {line}"));
            Some(self.begin(id, kind, exit.child, exit.ended, summary))
        });
        if let Some(mut incident) = incident {
            incident.exit = Some(exit.clone());
            self.write(id, &incident);
            // The guard acts first and tells then: what ended it may still be on the way.
            self.kids[id].incident = Some(incident);
        }
    }

    fn begin(&mut self, id: Id, kind: Kind, child: ChildId, at: MonoNs, summary: String) -> Incident {
        let cycles = self.kids[id].page.as_ref().map_or(Vec::new(), Page::evidence);
        Incident::new(kind, &self.name(id), child, at, summary, cycles)
    }

    fn write(&mut self, id: Id, incident: &Incident) {
        match incident.write(&self.run.path().join("evidence")) {
            Ok(dir) => {
                if self.kids[id].evidence.as_ref() != Some(&dir) {
                    self.tell.event(mono_now(), &self.name(id), &format!("evidence in {}", dir.display()));
                }
                self.kids[id].evidence = Some(dir);
            }
            Err(why) => self.shortfall(&self.name(id), why),
        }
    }
}
