//! Carrying out actions: starts, signals, safe-output commands, notes.

use super::{Engine, Waits};
use crate::keeper::protocol::{self, KeeperSpec, Request, Target};
use crate::launch::{self, CapabilityError, InheritedFd};
use crate::page::PageError;
use crate::supervisor::connection::{Asker, ConnectionError};
use crate::supervisor::logs::Level;
use crate::supervisor::reporter::short;
use crate::supervisor::status;
use base::DurNs;
use host::health::own_service;
use host::plant::Signal;
use host::supervise::{Cause, Event, Id, Note};
use sys::clock::mono_now;
use sys::signal::SIGCONT;

/// A reason why a process did not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the plant file no longer has it")]
    Retired,
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    #[error(transparent)]
    Page(#[from] PageError),
    #[error(transparent)]
    Thread(#[from] sys::Error),
}

impl Engine {
    pub(super) fn start(&mut self, id: Id) {
        if self.reshield.is_some() || self.processes.is_busy(id) {
            return self.waits.push(Waits::Start(id));
        }
        let name = self.processes.name(id).to_owned();
        self.step(format!("starting {name}"));
        if let Err(why) = self.try_start(id) {
            self.processes.event(Event::StartFailed(id, why.to_string()));
        }
    }

    fn try_start(&mut self, id: Id) -> Result<(), StartError> {
        let spec = self.keeper_spec(id)?;
        let one = &mut self.processes[id];
        // The same keeper is reused for a restart, which keeps its consoles attached. The result arrives as an event.
        if one.link.fits(&spec) && one.link.request(&Request::Start, Asker::Start).is_ok() {
            return Ok(());
        }
        (one.child, one.exit) = (None, None);
        Ok(one.link.begin(spec, &self.site.program)?)
    }

    /// The keeper's spec: the plant file's settings, and a loop page if the process may have a loop.
    fn keeper_spec(&mut self, id: Id) -> Result<KeeperSpec, StartError> {
        let process = self.site.process(self.processes.name(id)).ok_or(StartError::Retired)?;
        let one = &mut self.processes[id];
        one.look_before(process, &self.site.dir(process), &mut self.tell);
        one.hard.begin_life();
        let mut spec = self.site.keeper(process)?;
        let users = self.site.plant.processes.iter().filter_map(|one| one.user.as_deref());
        let users = launch::users::numbers(users);
        if !users.is_empty() {
            spec.launch.env.entry(sys::peer::PEERS.to_owned()).or_insert(users);
        }
        let deadline = process.deadline.map(|deadline| deadline.result);
        if process.class.is_real_time() || process.heartbeat.is_some() {
            spec.launch.inherit =
                vec![InheritedFd { variable: ring::LOOP_FD.to_owned(), fd: one.fresh_page(deadline)? }];
        }
        Ok(spec)
    }

    pub(super) fn send(&mut self, id: Id, signal: Signal) {
        let to = if signal == Signal::KILL { Target::All } else { Target::Group };
        let now = mono_now();
        self.tell.event(now, self.processes.name(id), &format!("{signal} sent"));
        let link = &mut self.processes[id].link;
        if signal == Signal::KILL && link.owes_too_long(now) {
            return self.end_keeper(id, true, &ConnectionError::Killed);
        }
        // A keeper that is gone is detected separately.
        let _ = link.request(&Request::Signal { signal: signal.0.into(), to }, Asker::Own);
        if signal != Signal::KILL {
            // A stopped process runs its signal handler or dumps core only after SIGCONT.
            let _ = link.request(&Request::Signal { signal: SIGCONT, to }, Asker::Own);
        }
    }

    /// Whether SIGABRT must wait until the threads of the process have been recorded. If so, it is sent later.
    pub(super) fn look_first(&mut self, id: Id) -> bool {
        self.evidence.look_first(id, &mut self.processes[id], self.site.run.path(), &mut self.tell)
    }

    /// Handles the recorder's completed jobs, and sends SIGABRTs that waited for them.
    pub(super) fn recorded(&mut self, now: base::MonoNs) {
        self.evidence.recorded(now, &mut self.processes, &mut self.tell);
        for id in self.processes.ids() {
            if self.processes[id].incident.abort_at.take_if(|at| now >= *at).is_some() {
                self.send(id, Signal::ABRT);
            }
        }
    }

    pub(super) fn run_fault_command(&mut self, id: Id) {
        if let Some(process) = self.site.process(self.processes.name(id)) {
            let runs = &mut self.processes[id].safe_outputs;
            self.safe_outputs.start(id, process, &self.site, runs, &mut self.tell);
        }
    }

    pub(super) fn note(&mut self, id: Id, note: &Note) {
        let unit = self.processes.unit(id);
        let text = match note {
            Note::Ready(_) if unit.spec.ready_within.is_none() => "started".to_owned(),
            Note::Ready(after) => format!("ready {} after its start", short(*after)),
            Note::Ended(cause @ Cause::NoStart(_)) => cause.to_string(),
            Note::Ended(cause) => {
                let line = cause.behind(status::last_line(unit, &self.processes[id]).as_deref());
                format!("ended: {cause}{}{line}", self.detail(id))
            }
            Note::RestartIn(pause, used) => format!("restart {used} of {} in {pause}", unit.spec.restart.limit),
            Note::Latched(cause) => format!(
                "FAULT ({cause}): `tahti logs {0}` shows its output; stays down until `tahti start {0}`",
                unit.spec.name
            ),
            Note::Trouble(cause) => {
                let when = self.site.process(&unit.spec.name).map(|process| &process.ready.when);
                let missing = when.filter(|_| *cause == Cause::NotReady).and_then(|when| when.missing());
                format!("trouble: {cause}{}", missing.map_or(String::new(), |missing| format!(": {missing}")))
            }
            Note::GroupStop => format!("failed to start: the plant goes down{}", self.files_check(&unit.spec.name)),
        };
        let level = match note {
            Note::Ended(cause) if !cause.is_failure() && !matches!(cause, Cause::NoStart(_)) => Level::Info,
            Note::Ready(_) => Level::Info,
            Note::RestartIn(..) | Note::Trouble(_) => Level::Warning,
            Note::Ended(_) | Note::Latched(_) | Note::GroupStop => Level::Error,
        };
        self.tell.message(level, mono_now(), &unit.spec.name, &text);
    }

    /// The command that lists all errors in the files of a service, for a service whose files it checks.
    fn files_check(&self, name: &str) -> String {
        let service = self.site.process(name).and_then(own_service).map(|service| service.command);
        match service {
            Some("ioc" | "em" | "guest") => {
                format!("; `tahti check {}` lists all errors in its files", self.site.file.display())
            }
            _ => String::new(),
        }
    }

    /// Resources used by the process that ended last, for the log.
    fn detail(&self, id: Id) -> String {
        self.processes[id].exit.as_ref().map_or(String::new(), |exit| {
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
}
