//! Converts messages from keepers and the guard, and the results of polling, into events.

use super::{Engine, Waits};
use crate::evidence::describe;
use crate::guard::{EventKind, GuardEvent};
use crate::keeper::protocol::{self, ChildId, ExitRecord, Request};
use crate::keeper::{Keeper, SPEC_NAME};
use crate::notify;
use crate::page::Page;
use crate::supervisor::connection::{self, Asker, Connection, ConnectionError};
use crate::supervisor::incidents;
use crate::supervisor::inputs;
use crate::supervisor::pulses::{Pulses, ReportedValue, shortfall_told, shown, status_told, trouble_told};
use base::{DurNs, MonoNs};
use host::plant::ReadyCondition;
use host::supervise::{End, Event, Id, State};
use std::collections::BTreeMap;
use sys::clock::mono_now;

/// Interval for checking loop pages for missed hard deadlines.
const HARD_LOOK_EVERY: DurNs = DurNs::from_ms(20);

impl Engine {
    /// Continues with a keeper that another supervisor started.
    fn followed(&mut self, id: Id, keeper: Keeper, status: protocol::Status) {
        // If the spec cannot be read, the keeper is replaced at the next start.
        let spec = std::fs::read(keeper.dir().join(SPEC_NAME)).ok();
        let spec = spec.and_then(|text| serde_json::from_slice(&text).ok());
        self.processes[id].link = Connection::adopted(keeper, spec, status.keeper.pid);
        if let Some(child) = status.child.or(status.held) {
            let same = self.processes[id].child == Some(child);
            self.processes.all.take_up(mono_now(), id, same);
        }
        let alive = self.processes.state(id).is_alive();
        self.processes[id].child = status.child;
        self.processes[id].last_line = status.last_exit.as_ref().and_then(|exit| exit.last_line.clone());
        self.note_shortfalls(id, &status);
        if let Some(child) = status.held {
            return self.held(id, child);
        }
        match (status.child, status.launch_error, status.last_exit) {
            (Some(child), ..) => {
                self.begin_life(id, child, true);
                if let Some(interval) = status.interval {
                    // Logged when the process set it.
                    let _ = self.processes[id].watch.set_interval(interval);
                }
                self.processes.event(Event::Started(id));
                if status.ready {
                    self.ready(id);
                }
            }
            (None, Some(why), _) => self.processes.event(Event::StartFailed(id, why)),
            (None, None, Some(exit)) if alive => {
                self.processes.event(Event::Started(id));
                self.exited(id, exit);
            }
            // The keeper is about to start its child.
            (None, None, _) => {}
        }
    }

    pub(super) fn note_shortfalls(&mut self, id: Id, status: &protocol::Status) {
        self.processes[id].shortfalls = status.shortfalls.iter().map(ToString::to_string).collect();
        self.processes[id].status_text = status.said.as_deref().and_then(shown);
        for text in &self.processes[id].shortfalls {
            self.tell.shortfall(self.processes.name(id), text.clone());
        }
    }

    /// Notes a shortfall that a process reports itself, once and up to a bound.
    fn note_reported_shortfall(&mut self, id: Id, shortfall: String) {
        /// Maximum number of shortfalls of a process.
        const SHORTFALLS_MAX: usize = 16;
        let known = &mut self.processes[id].shortfalls;
        if known.len() < SHORTFALLS_MAX && !known.contains(&shortfall) {
            known.push(shortfall.clone());
            self.tell.shortfall(self.processes.name(id), shortfall);
        }
    }

    /// A process exists and waits. It is released once it is watched.
    fn held(&mut self, id: Id, child: ChildId) {
        self.processes[id].child = Some(child);
        self.begin_life(id, child, true);
        if self.reshield.is_some() {
            // The process is not watched yet, and its CPUs may be about to change.
            return self.waits.push(Waits::Go(id));
        }
        // The result arrives as an event. A keeper that is gone is detected separately.
        let _ = self.processes[id].link.request(&Request::Go, Asker::Own);
    }

    /// Sets up a process that has just been started or was found running.
    fn begin_life(&mut self, id: Id, child: ChildId, watch: bool) {
        let keeper = self.site.run.keeper(self.processes.name(id));
        let one = &mut self.processes[id];
        self.evidence.begin_life(id, &keeper, one);
        one.close_minors();
        one.watch.begin_life();
        if let Some(process) = self.site.process(self.processes.name(id)) {
            self.watcher.new_rules(&mut self.processes[id], process, &self.site);
            self.processes[id].input = inputs::version(&self.site, process);
        }
        // The guard is stopped while the shield is changed. The watch starts afterwards.
        if watch && self.reshield.is_none() {
            self.watch(id, child);
        }
    }

    /// Has the guard watch a process, and waits for the guard's answer.
    fn watch(&mut self, id: Id, child: ChildId) {
        self.step("waiting for the guard");
        self.watcher.watch(id, child, &self.site, &mut self.processes, &mut self.tell);
        self.step("messages of keepers");
    }

    pub(super) fn keeper_event(&mut self, now: MonoNs, id: Id, event: protocol::Event) {
        match event {
            protocol::Event::Held(child) => self.held(id, child),
            protocol::Event::Started(child) => {
                if self.processes[id].child.replace(child) != Some(child) {
                    self.begin_life(id, child, false);
                }
                self.processes.event(Event::Started(id));
                // The status contains the settings that it did not get. A keeper that is gone is detected separately.
                let _ = self.processes[id].link.request(&Request::Status, Asker::Own);
            }
            protocol::Event::LaunchFailed(why) => {
                self.processes[id].child = None;
                self.processes.event(Event::StartFailed(id, why));
            }
            protocol::Event::Ready => self.ready(id),
            protocol::Event::Main(child) => self.main_named(now, id, child),
            protocol::Event::Notify(text) => {
                if text.lines().any(|line| line == "WATCHDOG=1") {
                    self.processes[id].watch.sign();
                }
                if let Some(interval) = notify::interval(&text) {
                    // Also a sign of life, as for systemd.
                    self.processes[id].watch.sign();
                    if let Some(what) = self.processes[id].watch.set_interval(interval) {
                        self.tell.event(now, self.processes.name(id), &what);
                    }
                }
                if notify::hangs(&text) {
                    self.tell.warning(now, self.processes.name(id), "reports that it hangs (WATCHDOG=trigger)");
                    self.processes.event(Event::HeartbeatLost(id));
                }
                if text.lines().any(|line| line == sys::notify::WORKS) {
                    self.processes[id].rounds = self.processes[id].rounds.wrapping_add(1);
                }
                if let Some(more) = notify::extension(&text) {
                    self.processes.event(Event::Extend(id, more));
                }
                if self.processes.unit(id).spec.ends_first
                    && let Some(minors) = Pulses::of_frame(&text)
                {
                    self.processes[id].minors = Some(minors);
                }
                if let Some(trouble) = trouble_told(&text) {
                    self.processes[id].trouble = trouble;
                }
                if let Some(shortfall) = shortfall_told(&text) {
                    self.note_reported_shortfall(id, shortfall);
                }
                if let Some(status) = status_told(&text) {
                    self.processes[id].status_text = status;
                }
                if let Some(told) = ReportedValue::of(&text) {
                    self.processes[id].told_value = Some(told);
                    self.hard_misses(now, id);
                }
            }
            protocol::Event::Exited(exit) => self.exited(id, exit),
            protocol::Event::ConsoleKill => self.tell.event(now, self.processes.name(id), "killed from a console"),
            protocol::Event::ConsoleStart => {
                self.tell.event(now, self.processes.name(id), "start requested at a console");
                self.processes.event(Event::Restart(id));
            }
            protocol::Event::AutoRestart { on } => {
                let word = if on { "on" } else { "off: its next failure is latched" };
                self.tell.event(now, self.processes.name(id), &format!("automatic restart switched {word}"));
                self.processes.event(Event::AutoRestart(id, on));
            }
        }
    }

    /// The process has announced its main process, which is supervised and watched instead.
    fn main_named(&mut self, now: MonoNs, id: Id, child: ChildId) {
        self.tell.event(now, self.processes.name(id), &format!("its main process is PID {} now", child.pid));
        self.processes[id].child = Some(child);
        if let Some(process) = self.site.process(self.processes.name(id)) {
            self.watcher.new_rules(&mut self.processes[id], process, &self.site);
        }
        self.watcher.unwatch(&mut self.processes[id]);
        if self.reshield.is_none() {
            self.watch(id, child);
        }
    }

    /// Readiness by line or notification counts only if the plant file configures it.
    fn ready(&mut self, id: Id) {
        let asked = self.site.process(self.processes.name(id)).map(|process| &process.ready.when);
        if matches!(asked, Some(ReadyCondition::Line(_) | ReadyCondition::Notify)) {
            self.processes.event(Event::Ready(id));
        }
    }

    fn exited(&mut self, id: Id, exit: ExitRecord) {
        let keeper = self.site.run.keeper(self.processes.name(id));
        let end = incidents::end_of(&keeper, &self.processes[id], &exit);
        let used_up = match end {
            // The last line of output is not the reason for such an end.
            End::OutOfMemory => {
                incidents::used_up(&keeper, &self.processes[id], self.site.process(self.processes.name(id)))
            }
            _ => None,
        };
        let one = &mut self.processes[id];
        // The watch ends by itself, after the guard has reported everything.
        one.last_line = if end == End::OutOfMemory { used_up } else { exit.last_line.clone() };
        // Its last output, after the last regular status.
        one.log_bytes_lost = exit.log_bytes_lost;
        (one.child, one.exit, one.incident.abort_at) = (None, Some(exit.clone()), None);
        self.processes.event(Event::Exited(id, end));
        self.evidence.exit(id, &exit, &self.site, &mut self.processes);
    }

    /// Checks the files and ports that signal readiness, which have no event.
    pub(super) fn look(&mut self) {
        for id in self.processes.ids() {
            let Some(process) = self.site.process(self.processes.name(id)) else { continue };
            if matches!(self.processes.state(id), State::Warming { .. })
                && self.processes[id].looks_ready(process, &self.site.dir(process))
            {
                self.processes.event(Event::Ready(id));
            }
        }
    }

    /// Checks for missed hard deadlines of loops, which report them only in their pages.
    pub(super) fn look_for_hard_misses(&mut self, now: MonoNs) {
        if now < self.next_hard {
            return;
        }
        self.next_hard = now + HARD_LOOK_EVERY;
        for id in self.processes.ids() {
            self.hard_misses(now, id);
        }
    }

    fn hard_misses(&mut self, now: MonoNs, id: Id) {
        let one = &mut self.processes[id];
        let missed = one.hard_misses(now).filter(|_| one.child.is_some());
        if missed.is_some_and(|missed| one.hard.look(now, missed)) {
            self.processes.event(Event::DeadlineMissed(id));
        }
    }

    /// Time of the next check for missed hard deadlines.
    pub(super) fn next_hard_look(&self) -> Option<MonoNs> {
        let is_hard = |process: &host::plant::Process| process.deadline.is_some_and(|deadline| deadline.is_hard());
        self.site.plant.processes.iter().any(is_hard).then_some(self.next_hard)
    }

    /// Handles the guard's events. Returns whether there were any.
    pub(super) fn guard_news(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.watcher.next_event() {
            any = true;
            let id = self.processes.ids().find(|id| self.processes[*id].watch.is(event.watch));
            if let Some(id) = id {
                self.guard_event(id, &event);
            }
        }
        any
    }

    fn guard_event(&mut self, id: Id, event: &GuardEvent) {
        if matches!(event.what, EventKind::Gone { by_ladder: false }) {
            return;
        }
        let name = self.processes.name(id);
        self.tell.warning(mono_now(), name, &format!("guard: {}", describe(&event.what)));
        let polls = incidents::polls(self.site.process(name));
        self.evidence.guard(id, event, polls, &mut self.processes);
        match event.what {
            EventKind::Runaway { .. } => self.processes.event(Event::Runaway(id)),
            EventKind::Silent { .. } if polls => self.processes.event(Event::Runaway(id)),
            EventKind::Silent { .. } => self.processes.event(Event::HeartbeatLost(id)),
            EventKind::Starved { .. } => self.processes.event(Event::Starved(id)),
            EventKind::Unwatched { .. } => self.tell.shortfall(self.processes.name(id), describe(&event.what)),
            _ => {}
        }
    }

    /// Restarts processes with a latched fault.
    pub(crate) fn reset(&mut self) {
        for id in self.processes.ids() {
            if self.processes.state(id) == State::Faulted {
                self.processes.event(Event::Restart(id));
            }
        }
    }

    /// Continues another supervisor's plant: connects to the keepers that are still running.
    pub(crate) fn adopt(&mut self, children: &BTreeMap<String, ChildId>) {
        let mut lost = Vec::new();
        for id in self.processes.ids() {
            let alive = self.processes.state(id).is_alive();
            let name = self.processes.name(id).to_owned();
            self.processes[id].child = children.get(&name).copied();
            match self.reach(&name) {
                Ok(Some((keeper, status))) => {
                    self.processes[id].page = Page::adopt(status.keeper.pid);
                    self.followed(id, keeper, status);
                }
                Ok(None) if alive => lost.push((id, ConnectionError::NotFound)),
                Err(why) if alive => lost.push((id, why)),
                Ok(None) | Err(_) => {}
            }
        }
        for (id, why) in lost {
            self.end_keeper(id, false, &why);
        }
        self.adopt_strays();
    }

    /// Connects to the keeper of a process that another supervisor started, if it serves.
    fn reach(&mut self, name: &str) -> Result<Option<(Keeper, protocol::Status)>, ConnectionError> {
        let folder = self.site.run.keeper(name);
        Ok(self.beside("tahti-adopt", move || Keeper::adopt(&folder))??)
    }

    /// Adopts keepers whose processes are not in the plant file. The processes are stopped, so that none runs unsupervised.
    fn adopt_strays(&mut self) {
        for name in self.site.run.keepers() {
            if self.processes.all.units().iter().any(|unit| unit.spec.name == name) {
                continue;
            }
            // No keeper serves there, or it violates the protocol.
            let Ok(Some((keeper, status))) = self.reach(&name) else { continue };
            let Some(child) = status.child.or(status.held) else {
                // If no thread can be started, the keeper stays idle.
                let _ = self.beside("tahti-keeper", move || connection::dismiss(keeper));
                continue;
            };
            self.tell.warning(
                mono_now(),
                &name,
                &format!("runs (process {}), but the plant file no longer contains it", child.pid),
            );
            let id = self.processes.stray(&name);
            self.followed(id, keeper, status);
        }
    }
}
