//! Carrying actions out: starts, signals, safe-output commands, notes.

use super::{Asker, Engine, FAULT_COMMAND_WITHIN, FaultRun, Waits};
use crate::keeper::protocol::{self, KeeperSpec, Request, Target};
use crate::launch::{self, InheritedFd, Terminal};
use crate::page::Page;
use crate::supervisor::tell::short;
use base::{DurNs, MonoNs};
use host::plant::Signal;
use host::supervise::{Cause, Event, Id, Note};
use sys::child::{Waited, look};
use sys::clock::mono_now;

impl Engine {
    pub(super) fn start(&mut self, id: Id) {
        if self.reshield.is_some() || self.is_beside(id) {
            return self.waits.push(Waits::Start(id));
        }
        self.look_before(id);
        let started = self.keeper_spec(id).and_then(|spec| self.start_as(id, spec));
        if let Err(why) = started {
            self.event(Event::StartFailed(id, why));
        }
    }

    /// What its keeper is told: the plant file's words, and a loop page where there may be a loop.
    fn keeper_spec(&mut self, id: Id) -> Result<KeeperSpec, String> {
        let process = self.process(id).ok_or("the plant file no longer has it")?;
        let mut spec = self.common.keeper(&self.run, process)?;
        let users = launch::users::numbers(self.plant.processes.iter().filter_map(|one| one.user.as_deref()));
        if !users.is_empty() {
            spec.launch.env.entry(sys::peer::PEERS.to_owned()).or_insert(users);
        }
        if process.class.is_real_time() || process.heartbeat.is_some() {
            self.kids[id].past = self.kids[id].pulses();
            let page = match self.kids[id].page.take() {
                // What the last life left in it is over.
                Some(page) => page.clear()?,
                None => {
                    // A keeper that holds another page is of no use.
                    self.kids[id].spec = None;
                    Page::create()?
                }
            };
            spec.launch.inherit = vec![InheritedFd { variable: ring::LOOP_FD.to_owned(), fd: page.fd() }];
            self.kids[id].page = Some(page);
        }
        Ok(spec)
    }

    pub(super) fn start_as(&mut self, id: Id, spec: KeeperSpec) -> Result<(), String> {
        let kid = &mut self.kids[id];
        // The same keeper keeps its consoles over a restart.
        if kid.keeper.is_some() && kid.spec.as_ref().is_some_and(|old| same(old, &spec)) {
            // Whether it runs or not comes as an event.
            if self.tell_keeper(id, &Request::Start, Asker::Start).is_ok() {
                return Ok(());
            }
        }
        self.begin_keeper(id, spec)
    }

    pub(super) fn send(&mut self, id: Id, signal: Signal) {
        let to = if signal == Signal::KILL { Target::All } else { Target::Group };
        self.tell.event(mono_now(), &self.name(id), &format!("{signal} sent"));
        if signal == Signal::KILL && self.is_deaf(id, mono_now()) {
            return self.give_up_keeper(id, "its keeper does not answer: killed with everything below it");
        }
        // A keeper that is gone is noticed by itself.
        let _ = self.tell_keeper(id, &Request::Signal { signal: signal.0.into(), to }, Asker::Own);
    }

    pub(super) fn note(&mut self, id: Id, note: &Note) {
        let restart = self.all.units()[id].spec.restart;
        let text = match note {
            Note::Ready(_) if self.all.units()[id].spec.ready_within.is_none() => "started".to_owned(),
            Note::Ready(after) => format!("ready {} after its start", short(*after)),
            Note::Ended(cause @ Cause::NoStart(_)) => cause.to_string(),
            Note::Ended(cause) => format!("ended: {cause}{}", self.detail(id)),
            Note::RestartIn(pause, used) => format!("restart {used} of {} in {pause}", restart.limit),
            Note::Latched(cause) => format!("FAULT ({cause}): stays down until `tahti start {}`", self.name(id)),
            Note::Trouble(cause) => format!("trouble: {cause}"),
            Note::GroupStop => "failed to start: the plant goes down".to_owned(),
        };
        self.tell.event(mono_now(), &self.name(id), &text);
    }

    /// What the last exit used, for the log.
    pub(super) fn detail(&self, id: Id) -> String {
        self.kids[id].exit.as_ref().map_or(String::new(), |exit| {
            let used = exit.used;
            let cpu = DurNs(used.user.0 + used.system.0);
            let core = matches!(exit.end, protocol::End::Signal { core: true, .. });
            let core = if core { ", core dumped" } else { "" };
            let left = match exit.left_behind {
                0 => String::new(),
                left => format!(", {left} processes that it left behind ended"),
            };
            format!(
                " after {}, {} CPU, {} at most{core}{left}",
                short(exit.ended - exit.started),
                short(cpu),
                used.resident_max
            )
        })
    }

    /// Puts the equipment into a safe state, beside everything else that goes on: as the process's own user, for the
    /// folder in which it is looked up may be that user's.
    pub(super) fn run_fault_command(&mut self, id: Id) {
        let Some(process) = self.process(id) else { return };
        let Some(command) = &process.on_fault else { return };
        let started = self.common.launch(&self.run, process, command).and_then(|mut spec| {
            spec.terminal = Terminal::Null;
            spec.output = Some(self.run.log(Some(&process.name)));
            launch::start(&spec).map_err(|error| error.to_string())
        });
        let now = mono_now();
        match started {
            Ok(started) => {
                let (pid, until) = (started.child.pid, now + FAULT_COMMAND_WITHIN);
                self.faults.push(FaultRun { id, pid, until, killed: false });
            }
            Err(why) => {
                let text = format!("SAFE-OUTPUT COMMAND DID NOT START: {why}");
                self.tell.event(now, &self.name(id), &text);
            }
        }
    }

    /// Reaps safe-output commands, and ends those that take too long.
    pub(super) fn faults(&mut self, now: MonoNs) {
        let mut told = Vec::new();
        self.faults.retain_mut(|run| {
            let (text, goes_on) = match look(run.pid, false) {
                Ok(Waited::Ended(ended)) if run.killed || ended.status == 0 => {
                    (if run.killed { String::new() } else { "safe-output command done".to_owned() }, false)
                }
                Ok(Waited::Ended(ended)) => {
                    (format!("SAFE-OUTPUT COMMAND FAILED: {}", protocol::End::of(ended.status)), false)
                }
                Err(error) => (format!("SAFE-OUTPUT COMMAND LOST: {error}"), false),
                Ok(_) if now < run.until => return true,
                Ok(_) if run.killed => ("SAFE-OUTPUT COMMAND LOST: it does not die of SIGKILL".to_owned(), false),
                Ok(_) => {
                    // With what it started: the group is its own.
                    let _ = sys::child::kill(-run.pid, Signal::KILL.0.into());
                    (run.killed, run.until) = (true, now + FAULT_COMMAND_WITHIN);
                    (format!("SAFE-OUTPUT COMMAND KILLED after {FAULT_COMMAND_WITHIN}"), true)
                }
            };
            told.push((run.id, text));
            goes_on
        });
        for (id, text) in told.into_iter().filter(|(_, text)| !text.is_empty()) {
            self.tell.event(now, &self.name(id), &text);
        }
    }
}

/// Whether two specs make the same process; numbers of descriptors differ from start to start.
fn same(old: &KeeperSpec, new: &KeeperSpec) -> bool {
    let mut old = old.clone();
    for (to, from) in old.launch.inherit.iter_mut().zip(&new.launch.inherit) {
        to.fd = from.fd;
    }
    old == *new
}
