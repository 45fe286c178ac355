//! The guard's side: who is watched, and what its news mean.

use super::{Engine, Kid};
use crate::evidence::describe;
use crate::guard::{Beats, Guard, GuardEvent, WatchSpec, What};
use crate::keeper::protocol::ChildId;
use crate::supervisor::spec::is_watched;
use crate::threads::{ThreadRule, ThreadRules};
use base::MonoNs;
use host::guard::STARVED_AFTER;
use host::plant::Budget;
use host::supervise::{Event, Id, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sys::clock::mono_now;

/// Signs of life of a process, counted where the guard can read them.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// Messages to its notify socket, and every look while silence does not count.
    pub(super) counted: AtomicU64,
    /// Whether silence counts.
    pub(super) expected: AtomicBool,
}

impl Engine {
    /// Starts the guard; the shield must not change while it lives: its reservation would be in the way.
    pub(crate) fn start_guard(&mut self) {
        // While the shield changes there is none: it follows.
        if self.reshield.is_some() || !self.plant.processes.iter().any(is_watched) {
            return;
        }
        match Guard::start(&self.common.isolated) {
            Ok((guard, lacks)) => {
                self.guard = Some(guard);
                for lack in lacks {
                    self.shortfall("guard", lack.to_string());
                }
            }
            Err(error) => self.shortfall("guard", format!("no guard against runaways: {error}")),
        }
        for id in 0..self.kids.len() {
            if let Some(child) = self.kids[id].child {
                self.watch(id, child);
            }
        }
    }

    /// Ends the guard; processes go on unwatched.
    pub(crate) fn stop_guard(&mut self) {
        self.guard = None;
        for kid in &mut self.kids {
            kid.watch = None;
        }
    }

    /// Has a process watched from before its first instruction on. Returns when the guard knows it, or what
    /// it lacks without it has been told.
    pub(super) fn watch(&mut self, id: Id, child: ChildId) {
        let Some(process) = self.process(id).filter(|process| is_watched(process)).cloned() else { return };
        if self.guard.is_none() {
            // The first process that needs it, taken over by a reload.
            return self.start_guard();
        }
        let kid = &mut self.kids[id];
        let running = self.all.units()[id].state == State::Running;
        // The start is the first sign: the guard counts silence from one on.
        kid.signs = Arc::new(Signs { counted: AtomicU64::new(1), expected: AtomicBool::new(running) });
        let spec = WatchSpec {
            child,
            ancestor: kid.keeper_pid.unwrap_or(child.pid),
            budget: process.budget,
            ladder: process.ladder.clone(),
            heartbeat: process.heartbeat.map(|heartbeat| (beats(kid), heartbeat.within)),
            freezer: None,
            starved_after: STARVED_AFTER,
        };
        let Some(guard) = &mut self.guard else { return };
        match guard.watch(spec) {
            Ok(watch) => kid.watch = Some(watch),
            // A process that is gone already needs no watch; its end is on the way.
            Err(error) if error.errno == rustix::io::Errno::SRCH => {}
            Err(error) => self.shortfall("guard", format!("process {:?} is not watched: {error}", process.name)),
        }
    }

    /// Silence counts while a process is running: not before it is ready, nor once it was asked to end.
    pub(super) fn expect_signs(&mut self) {
        for (unit, kid) in self.all.units().iter().zip(&self.kids) {
            kid.signs.expected.store(unit.state == State::Running, Ordering::Relaxed);
        }
    }

    /// Gives threads the class and CPUs that the plant file says for their names.
    pub(super) fn rule_threads(&mut self, now: MonoNs) {
        if now < self.next_threads {
            return;
        }
        self.next_threads = now + super::THREADS_EVERY;
        for id in 0..self.kids.len() {
            let Some(child) = self.kids[id].child.filter(|_| !self.kids[id].rules.is_empty()) else { continue };
            for applied in self.kids[id].rules.apply(child.pid) {
                let text = format!("thread {} ({}) has class and CPUs by its rule", applied.tid, applied.name);
                self.tell.event(now, &self.name(id), &text);
                for lack in applied.shortfalls {
                    self.shortfall(&self.name(id), lack.to_string());
                }
            }
        }
    }

    /// The rules for the threads of a process that has just been started.
    pub(super) fn new_rules(&mut self, id: Id) {
        let Some(process) = self.process(id) else { return };
        let rules = process.threads.iter().map(|rule| ThreadRule {
            pattern: rule.pattern.clone(),
            policy: rule.class,
            cpus: rule.cpus.map(|cpus| self.common.resolve(cpus)),
        });
        self.kids[id].rules = ThreadRules::new(rules.collect());
        self.next_threads = MonoNs(0);
    }

    /// Takes the guard's news; whether there was any.
    pub(super) fn guard_news(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.guard.as_mut().and_then(Guard::next_event) {
            any = true;
            let id = self.kids.iter().position(|kid| kid.watch == Some(event.watch));
            if let Some(id) = id {
                self.guard_event(id, &event);
            }
        }
        any
    }

    /// Whether a process has no budget: then its silence is the runaway, and the guard acts on it.
    pub(super) fn polls(&self, id: Id) -> bool {
        self.process(id).is_some_and(|process| process.budget == Budget::None)
    }

    fn guard_event(&mut self, id: Id, event: &GuardEvent) {
        if matches!(event.what, What::Gone { by_ladder: false }) {
            return;
        }
        self.tell.event(mono_now(), &self.name(id), &format!("guard: {}", describe(&event.what)));
        self.guard_evidence(id, event);
        let polls = self.polls(id);
        match event.what {
            What::Runaway { .. } => self.event(Event::Runaway(id)),
            What::Silent { .. } if polls => self.event(Event::Runaway(id)),
            What::Silent { .. } => self.event(Event::HeartbeatLost(id)),
            What::Starved { .. } => self.event(Event::Starved(id)),
            _ => {}
        }
    }
}

/// What the guard calls to count signs of life: those of the loop page and of the notify socket together.
pub(super) fn beats(kid: &Kid) -> Beats {
    let signs = kid.signs.clone();
    let page = kid.page.as_ref().map(super::Page::watcher);
    Box::new(move || {
        if !signs.expected.load(Ordering::Relaxed) {
            return signs.counted.fetch_add(1, Ordering::Relaxed);
        }
        let of_page = page.as_ref().map_or(0, |page| page.beats());
        signs.counted.load(Ordering::Relaxed).wrapping_add(of_page)
    })
}
