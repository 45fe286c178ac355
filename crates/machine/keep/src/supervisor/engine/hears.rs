//! Turning news from keepers, files and clocks into events.

use super::{Asker, Before, Engine, Kid, Waits};
use crate::keeper::protocol::{self, ChildId, ExitRecord, Request};
use crate::keeper::{Keeper, SPEC_NAME};
use crate::page::Page;
use crate::supervisor::probe;
use crate::supervisor::pulses::Pulses;
use base::MonoNs;
use host::plant::ReadyWhen;
use host::supervise::{Event, Id, State};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use sys::clock::mono_now;

impl Engine {
    /// Takes up the connection to a keeper that another supervisor started.
    fn followed(&mut self, id: Id, status: protocol::Status) {
        if let Some(child) = status.child.or(status.held) {
            self.all.take_up(mono_now(), id, self.kids[id].child == Some(child));
        }
        let alive = self.all.units()[id].state.is_alive();
        self.kids[id].keeper_pid = Some(status.keeper.pid);
        self.kids[id].child = status.child;
        self.stands(id, &status);
        if let Some(child) = status.held {
            return self.held(id, child);
        }
        match (status.child, status.launch_error, status.last_exit) {
            (Some(child), ..) => {
                self.begin_life(id);
                self.new_rules(id);
                self.watch(id, child);
                self.event(Event::Started(id));
                if status.ready {
                    self.ready(id);
                }
            }
            (None, Some(why), _) => self.event(Event::StartFailed(id, why)),
            (None, None, Some(exit)) if alive => {
                self.event(Event::Started(id));
                self.exited(id, exit);
            }
            // It is about to start its child.
            (None, None, _) => {}
        }
    }

    pub(super) fn stands(&mut self, id: Id, status: &protocol::Status) {
        self.kids[id].shortfalls = status.shortfalls.iter().map(ToString::to_string).collect();
        for text in self.kids[id].shortfalls.clone() {
            self.shortfall(&self.name(id), text);
        }
    }

    /// A process exists and waits: watched first, then let go.
    fn held(&mut self, id: Id, child: ChildId) {
        self.kids[id].child = Some(child);
        self.begin_life(id);
        self.new_rules(id);
        self.watch(id, child);
        if self.reshield.is_some() {
            // Unwatched as yet, and its CPUs may be others in a moment.
            return self.waits.push(Waits::Go(id));
        }
        // Whether it runs or not comes as an event; a keeper that is gone is noticed by itself.
        let _ = self.tell_keeper(id, &Request::Go, Asker::Own);
    }

    pub(super) fn keeper_event(&mut self, now: MonoNs, id: Id, event: protocol::Event) {
        match event {
            protocol::Event::Held(child) => self.held(id, child),
            protocol::Event::Started(child) => {
                if self.kids[id].child.replace(child) != Some(child) {
                    self.begin_life(id);
                    self.new_rules(id);
                }
                self.event(Event::Started(id));
                // What it could not have is in the status; a keeper that is gone will be noticed.
                let _ = self.tell_keeper(id, &Request::Status, Asker::Own);
            }
            protocol::Event::LaunchFailed(why) => {
                self.kids[id].child = None;
                self.event(Event::StartFailed(id, why));
            }
            protocol::Event::Ready => self.ready(id),
            protocol::Event::Notify(text) => {
                if text.lines().any(|line| line == "WATCHDOG=1") {
                    self.kids[id].signs.counted.fetch_add(1, Ordering::Relaxed);
                }
                if self.all.units()[id].spec.ends_first
                    && let Some(minors) = Pulses::of_frame(&text)
                {
                    self.kids[id].minors = Some(minors);
                }
            }
            protocol::Event::Exited(exit) => self.exited(id, exit),
            protocol::Event::ConsoleKill => self.tell.event(now, &self.name(id), "killed from a console"),
            protocol::Event::ConsoleStart => {
                self.tell.event(now, &self.name(id), "start asked for at a console");
                self.event(Event::Restart(id));
            }
            protocol::Event::AutoRestart { on } => {
                let word = if on { "on" } else { "off: its next failure is latched" };
                self.tell.event(now, &self.name(id), &format!("automatic restart switched {word}"));
                self.event(Event::AutoRestart(id, on));
            }
        }
    }

    /// A sign of readiness by line or notification counts where the plant file asks for one.
    pub(super) fn ready(&mut self, id: Id) {
        let asked = self.process(id).map(|process| &process.ready.when);
        if matches!(asked, Some(ReadyWhen::Line(_) | ReadyWhen::Notify)) {
            self.event(Event::Ready(id));
        }
    }

    pub(super) fn exited(&mut self, id: Id, exit: ExitRecord) {
        let end = self.end_of(id, &exit);
        let kid = &mut self.kids[id];
        // Its watch ends by itself, once the guard has told everything.
        (kid.child, kid.exit, kid.abort_at) = (None, Some(exit.clone()), None);
        self.event(Event::Exited(id, end));
        self.exit_evidence(id, &exit);
    }

    /// Looks for signs of readiness that nobody sends.
    pub(super) fn look(&mut self) {
        for id in 0..self.kids.len() {
            let Some(process) = self.process(id) else { continue };
            match (self.all.units()[id].state, &process.ready.when) {
                (State::Warming { .. }, ReadyWhen::File(file)) => {
                    let found = probe::file_id(&self.common.dir(process).join(file));
                    if found.is_some() && found != self.kids[id].before.file {
                        self.event(Event::Ready(id));
                    }
                }
                (State::Warming { .. }, ReadyWhen::Port(port))
                    if !probe::listeners(*port).is_subset(&self.kids[id].before.listeners) =>
                {
                    self.event(Event::Ready(id));
                }
                _ => {}
            }
        }
    }

    /// Remembers what looks like a sign of readiness before the process is started; people are told.
    pub(super) fn look_before(&mut self, id: Id) {
        self.kids[id].before = Before::default();
        let Some(process) = self.process(id) else { return };
        let told = match &process.ready.when {
            ReadyWhen::File(file) => {
                let path = self.common.dir(process).join(file);
                self.kids[id].before.file = probe::file_id(&path);
                let is_there = self.kids[id].before.file.is_some();
                is_there.then(|| format!("{} is there already: it counts once it is written anew", path.display()))
            }
            ReadyWhen::Port(port) => {
                let port = *port;
                self.kids[id].before.listeners = probe::listeners(port);
                let is_there = !self.kids[id].before.listeners.is_empty();
                is_there.then(|| format!("somebody else listens on port {port} already: that is no sign of it"))
            }
            ReadyWhen::Started | ReadyWhen::Line(_) | ReadyWhen::Notify => None,
        };
        if let Some(text) = told {
            self.tell.event(mono_now(), &self.name(id), &text);
        }
    }

    /// Lets processes with a latched fault start again.
    pub(crate) fn reset(&mut self) {
        for id in 0..self.kids.len() {
            if self.all.units()[id].state == State::Faulted {
                self.event(Event::Restart(id));
            }
        }
    }

    /// Continues what another supervisor began: connects to the keepers that live.
    pub(crate) fn adopt(&mut self, children: &BTreeMap<String, ChildId>) {
        let mut lost = Vec::new();
        for id in 0..self.kids.len() {
            let unit = &self.all.units()[id];
            let (name, alive) = (unit.spec.name.clone(), unit.state.is_alive());
            self.kids[id].child = children.get(&name).copied();
            match self.reach(&name) {
                Ok(Some((keeper, status))) => {
                    // Without its spec it is replaced at the next start.
                    let spec = std::fs::read(keeper.dir().join(SPEC_NAME)).ok();
                    self.kids[id].spec = spec.and_then(|text| serde_json::from_slice(&text).ok());
                    self.kids[id].page = Page::adopt(status.keeper.pid);
                    self.kids[id].keeper = Some(keeper);
                    self.followed(id, status);
                }
                Ok(None) if alive => lost.push((id, "its keeper did not survive".to_owned())),
                Err(why) if alive => lost.push((id, why)),
                Ok(None) | Err(_) => {}
            }
        }
        for (id, why) in lost {
            self.keeper_gone(id, &why);
        }
        self.adopt_strays();
    }

    /// Reaches the keeper of a process that another supervisor started, if it serves.
    fn reach(&mut self, name: &str) -> Result<Option<(Keeper, protocol::Status)>, String> {
        let folder = self.run.keeper(name);
        self.beside("tahti-adopt", move || Keeper::adopt(&folder))?.map_err(|error| error.to_string())
    }

    /// Takes up keepers whose processes the plant does not know: they are stopped, so that nothing runs unsupervised.
    fn adopt_strays(&mut self) {
        for name in self.run.keepers() {
            if self.all.units().iter().any(|unit| unit.spec.name == name) {
                continue;
            }
            // Nobody serves there, or nobody who keeps to the protocol.
            let Ok(Some((keeper, status))) = self.reach(&name) else { continue };
            let Some(child) = status.child.or(status.held) else {
                // Without a thread for it it stays behind, idle.
                let _ = self.beside("tahti-keeper", move || super::keepers::dismiss(keeper));
                continue;
            };
            self.tell.event(mono_now(), &name, &format!("runs (process {}), but the plant has it no more", child.pid));
            let id = self.all.stray(&name);
            self.kids.resize_with(id + 1, Kid::default);
            self.kids[id].keeper = Some(keeper);
            self.followed(id, status);
        }
    }
}
