//! The loop that runs the state machine: events from keepers, clocks and operators in, actions out.
//!
//! `does` carries actions out, `hears` turns news into events, `serves` answers operators.

mod compares;
mod does;
mod guards;
mod hears;
mod incidents;
mod keepers;
mod reshields;
mod serves;
pub(crate) mod service;
mod watchdog;

use super::aside::Aside;
use super::compare::Compare;
use super::control::{Reply, Server};
use super::pulses::Pulses;
use super::recorder::{Job, Recorder};
use super::rundir::{Lock, RunDir, RunDirError, Saved};
use super::spec::Common;
use super::tell::Teller;
use super::{probe, shielding};
use crate::guard::{Guard, WatchId};
use crate::keeper::Keeper;
use crate::keeper::protocol::{ChildId, ExitRecord, KeeperSpec};
use crate::page::Page;
use crate::threads::ThreadRules;
use base::{DurNs, MonoNs};
use host::plant::{Plant, ReadyWhen, Signal};
use host::supervise::{Action, Event, Id, Phase, State, Supervision};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use sys::clock::mono_now;
use sys::signal::SignalFd;

/// How often a file or port is looked for while a process gets ready.
const LOOK_EVERY: DurNs = DurNs::from_ms(10);

/// How often the threads of a process with rules for them are looked at.
const THREADS_EVERY: DurNs = DurNs::from_ms(500);

/// How long a safe-output command may take.
const FAULT_COMMAND_WITHIN: DurNs = DurNs::from_secs(10);

/// A process as the shell knows it, beside what the state machine knows.
#[derive(Debug, Default)]
pub(crate) struct Kid {
    pub(crate) keeper: Option<Keeper>,
    /// What the keeper was told and has not answered, oldest first.
    told: VecDeque<Asker>,
    /// What is done about its keeper beside the loop.
    beside: Option<keepers::Beside>,
    /// Whether people know that the keeper does not answer.
    silence_told: bool,
    /// What its keeper was told; `None` for one that was adopted.
    spec: Option<KeeperSpec>,
    pub(crate) child: Option<ChildId>,
    pub(crate) keeper_pid: Option<i32>,
    pub(crate) shortfalls: Vec<String>,
    pub(crate) exit: Option<ExitRecord>,
    /// Its loop page, if it is one that may have a loop.
    pub(crate) page: Option<Page>,
    /// Pulses of its earlier lives.
    past: Pulses,
    /// Minors of its present life, if it is a frame.
    minors: Option<Pulses>,
    /// Signs of life that it sent, for the guard.
    signs: Arc<guards::Signs>,
    /// The guard's watch over it.
    watch: Option<WatchId>,
    /// Class and CPUs of its threads by name.
    rules: ThreadRules,
    /// Whether it is in trouble, of which evidence is kept.
    incident: bool,
    /// What looked like a sign of its readiness before it was started.
    before: Before,
    /// When SIGABRT follows at the latest, which waits for a look at its threads.
    abort_at: Option<MonoNs>,
    /// Where evidence of its last trouble lies.
    pub(crate) evidence: Option<PathBuf>,
    /// How often memory had run out when it was started.
    kills: u64,
}

impl Kid {
    /// The pulses of all its lives.
    pub(crate) fn pulses(&self) -> Pulses {
        let page = self.page.as_ref().and_then(Page::status);
        let page = page.map(|page| Pulses { ran: page.cycles, given_up: page.misses, overran: 0 });
        [page, self.minors].into_iter().flatten().fold(self.past, Pulses::plus)
    }
}

/// Whose request a keeper has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// The engine's, which learns from events whether it helped.
    Own,
    /// To start its process.
    Start,
    /// An operator's, who waits.
    Operator(u64),
}

/// Signs of readiness that are none: they were there before.
#[derive(Debug, Default)]
struct Before {
    /// The file, as it was.
    file: Option<probe::FileId>,
    /// Who listened on the port: sockets.
    listeners: BTreeSet<u64>,
}

/// What waits until the shield stands again, a start also for what is done about its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// A start.
    Start(Id),
    /// A process that exists, until it is let go.
    Go(Id),
}

/// A safe-output command that runs.
#[derive(Debug)]
struct FaultRun {
    id: Id,
    pid: i32,
    until: MonoNs,
    killed: bool,
}

/// What the loop works on.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) run: RunDir,
    pub(crate) _lock: Lock,
    pub(crate) file: PathBuf,
    pub(crate) plant: Plant,
    pub(crate) common: Common,
    pub(crate) all: Supervision,
    pub(crate) kids: Vec<Kid>,
    pub(crate) server: Server,
    pub(crate) signals: SignalFd,
    pub(crate) tell: Teller,
    pub(crate) shield: shielding::Shielding,
    pub(crate) since: MonoNs,
    /// When to go down by itself.
    pub(crate) until: Option<MonoNs>,
    /// What could not be had, said once.
    pub(crate) shortfalls: Vec<String>,
    guard: Option<Guard>,
    watchdog: Option<watchdog::Armed>,
    service: Option<service::Service>,
    /// Whether it was tried and could not be opened.
    watchdog_refused: bool,
    pub(crate) compare: Option<Compare>,
    faults: Vec<FaultRun>,
    /// What is to be recorded once the actions at hand are done.
    to_record: Vec<Job>,
    recorder: Option<Recorder>,
    /// A change of the shield that is under way, and what waits for its end.
    reshield: Option<reshields::Reshield>,
    waits: Vec<Waits>,
    /// Clients that wait for the end.
    waiting: Vec<u64>,
    /// The state that was saved last, as text would be: only changes are written.
    saved: Option<Supervision>,
    save_failed: bool,
    /// Whether a shield that is found is this plant's, which is just raising it.
    raising: bool,
    next_live: MonoNs,
    next_threads: MonoNs,
    upgrade: Option<PathBuf>,
    /// Whether Ctrl-C came again while the plant went down.
    impatient: bool,
}

/// Why the loop ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Every process is down.
    Down,
    /// This program takes over; everything goes on.
    Upgrade(PathBuf),
}

/// What an engine starts from.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) run: RunDir,
    pub(crate) lock: Lock,
    pub(crate) file: PathBuf,
    pub(crate) plant: Plant,
    pub(crate) common: Common,
    pub(crate) all: Supervision,
    pub(crate) server: Server,
    pub(crate) signals: SignalFd,
    pub(crate) tell: Teller,
    pub(crate) shield: shielding::Shielding,
    pub(crate) since: MonoNs,
    pub(crate) until: Option<MonoNs>,
}

impl Engine {
    pub(crate) fn new(start: Start) -> Self {
        let Start { run, lock, file, plant, common, all, server, signals, tell, shield, since, until } = start;
        let kids = all.units().iter().map(|_| Kid::default()).collect();
        let service = service::Service::new(|name| std::env::var(name).ok());
        let mut engine = Self {
            run,
            _lock: lock,
            file,
            plant,
            common,
            all,
            kids,
            server,
            signals,
            tell,
            shield,
            since,
            until,
            shortfalls: Vec::new(),
            guard: None,
            watchdog: None,
            service: None,
            watchdog_refused: false,
            compare: None,
            faults: Vec::new(),
            to_record: Vec::new(),
            recorder: None,
            reshield: None,
            waits: Vec::new(),
            waiting: Vec::new(),
            saved: None,
            save_failed: false,
            raising: false,
            next_live: MonoNs(0),
            next_threads: MonoNs(0),
            upgrade: None,
            impatient: false,
        };
        match service {
            Ok(service) => engine.service = service,
            Err(why) => engine.shortfall("tahti", why),
        }
        engine
    }

    /// Says once what could not be had.
    pub(crate) fn shortfall(&mut self, who: &str, text: String) {
        if !self.shortfalls.contains(&text) {
            self.tell.shortfall(mono_now(), who, &text);
            self.shortfalls.push(text);
        }
    }

    /// Hands an event to the state machine.
    pub(crate) fn event(&mut self, event: Event) {
        self.all.handle(mono_now(), event);
    }

    /// Runs until the plant is down or another program takes over.
    pub(crate) fn run(&mut self) -> Left {
        loop {
            self.reshielded();
            self.keepers_beside();
            // Behind everything that may want something done, for nobody wakes the loop for that.
            self.act();
            self.recorded(mono_now());
            self.tell_service(mono_now());
            if self.all.phase() != Phase::Starting {
                self.tell.say_where_more_is(mono_now());
            }
            // What is done beside the loop would be lost.
            let beside = self.reshield.is_some() || self.kids.iter().any(|kid| kid.beside.is_some());
            let busy = beside || self.evidence_until(mono_now()).is_some();
            if !busy && let Some(program) = self.upgrade.take() {
                return Left::Upgrade(program);
            }
            if !busy && self.all.phase() == Phase::Down && self.faults.is_empty() {
                return Left::Down;
            }
            // News that came with an answer does not wait in a socket, where poll would see it.
            let news = self.keepers(mono_now());
            self.silent_keepers(mono_now());
            if self.guard_news() || news {
                continue;
            }
            // What begins when the plant is up must not wait for the next event.
            self.compare(mono_now());
            self.watchdog(mono_now());
            self.wait();
            let now = mono_now();
            self.signals(now);
            self.look();
            self.rule_threads(now);
            self.faults(now);
            for (client, request) in self.server.serve() {
                let reply = match request {
                    Ok(request) => self.serve(client, request),
                    Err(why) => Some(Reply::Refused(why)),
                };
                if let Some(reply) = reply {
                    self.server.answer(client, &reply);
                }
            }
            if self.until.is_some_and(|until| now >= until) {
                self.until = None;
                self.tell.event(now, "tahti", "time is up");
                self.event(Event::Down);
            }
            self.all.handle(now, Event::Tick);
            self.live(now);
        }
    }

    /// Does what the state machine wants. What it decided is on disk first, so that whoever continues after a
    /// SIGKILL expects a process that may exist rather than starting a second copy.
    fn act(&mut self) {
        loop {
            let mut actions = Vec::new();
            while let Some(action) = self.all.next_action() {
                actions.push(action);
            }
            self.save();
            self.expect_signs();
            if actions.is_empty() {
                self.retire();
                self.record();
                return;
            }
            for action in actions {
                // Each is bounded, but there may be many.
                self.watchdog(mono_now());
                match action {
                    Action::Start(id) => self.start(id),
                    Action::Signal(id, Signal::ABRT) if self.look_first(id, mono_now()) => {}
                    Action::Signal(id, signal) => self.send(id, signal),
                    Action::RunFaultCommand(id) => self.run_fault_command(id),
                    Action::Note(id, note) => self.note(id, &note),
                }
            }
        }
    }

    /// Ends the keepers of processes that the plant file no longer has.
    fn retire(&mut self) {
        for (unit, kid) in self.all.units().iter().zip(&mut self.kids) {
            if unit.retired
                && !unit.state.is_alive()
                && let Some(keeper) = kid.keeper.take()
            {
                // Without a thread it stays behind, idle, until the plant is down.
                kid.beside = keepers::dismiss_beside(keeper);
            }
        }
    }

    /// Writes the state if it has changed.
    pub(crate) fn save(&mut self) {
        if self.saved.as_ref() == Some(&self.all) {
            return;
        }
        let children: BTreeMap<String, ChildId> = self
            .all
            .units()
            .iter()
            .zip(&self.kids)
            .filter_map(|(unit, kid)| Some((unit.spec.name.clone(), kid.child?)))
            .collect();
        let mut saved = Saved::new(
            self.file.clone(),
            self.plant.clone(),
            self.all.clone(),
            self.shield.is_ours() || self.raising,
            self.since,
        );
        saved.children = children;
        match self.run.save(&saved) {
            Ok(()) => {
                self.saved = Some(saved.supervision);
                if std::mem::take(&mut self.save_failed) {
                    self.tell.event(mono_now(), "tahti", "the state can be written again");
                }
            }
            Err(error) => {
                // The plant goes on; only a supervisor killed now would be continued from an older state.
                if !std::mem::replace(&mut self.save_failed, true) {
                    self.tell.event(mono_now(), "tahti", &error.to_string());
                }
            }
        }
    }

    /// The process that the plant file describes under this id; none once it is retired.
    fn process(&self, id: Id) -> Option<&host::plant::Process> {
        self.plant.process(&self.all.units()[id].spec.name)
    }

    pub(crate) fn name(&self, id: Id) -> String {
        self.all.units()[id].spec.name.clone()
    }

    /// Waits for whatever comes first.
    fn wait(&mut self) {
        let now = mono_now();
        let dog = self.watchdog.as_ref().map(|dog| dog.next);
        let sign = self.service.as_ref().and_then(service::Service::due);
        let ours = [dog, sign, self.until, self.next_look(now), self.next_compare(), self.next_silent()];
        let aborts = self.kids.iter().filter_map(|kid| kid.abort_at).chain(self.evidence_until(now));
        let ours = ours.into_iter().flatten().chain(aborts);
        let mut wake = ours.chain(self.all.next_wake()).min().unwrap_or(MonoNs(u64::MAX));
        if self.live_every().is_some() {
            wake = wake.min(self.next_live);
        }
        if self.kids.iter().any(|kid| kid.child.is_some() && !kid.rules.is_empty()) {
            wake = wake.min(self.next_threads);
        }
        if let Some(until) = self.faults.iter().map(|run| run.until).min() {
            wake = wake.min(until).min(now + LOOK_EVERY);
        }
        let span = (wake - now).max(DurNs::ZERO);
        let timeout = Timespec { tv_sec: span.0 / 1_000_000_000, tv_nsec: (span.0 % 1_000_000_000) as _ };
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        for (fd, writing) in self.server.fds() {
            let flags = if writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let keepers = self.kids.iter().filter_map(|kid| kid.keeper.as_ref());
        fds.extend(keepers.map(|keeper| PollFd::new(keeper, PollFlags::IN)));
        if let Some(guard) = &self.guard {
            fds.push(PollFd::new(guard, PollFlags::IN));
        }
        let beside = self.kids.iter().filter_map(|kid| kid.beside.as_ref());
        fds.extend(beside.map(|beside| PollFd::from_borrowed_fd(beside.bell(), PollFlags::IN)));
        fds.extend(self.recorder.as_ref().map(|recorder| PollFd::new(recorder, PollFlags::IN)));
        fds.extend(self.reshield.as_ref().map(|change| PollFd::new(&change.work, PollFlags::IN)));
        // An interrupted or failed wait is a wait that ended early: everything is looked at without blocking.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// When to look again for what nobody can poll for.
    fn next_look(&self, now: MonoNs) -> Option<MonoNs> {
        let looked_for = |id: Id| {
            matches!(self.all.units()[id].state, State::Warming { .. })
                && self
                    .process(id)
                    .is_some_and(|process| matches!(process.ready.when, ReadyWhen::File(_) | ReadyWhen::Port(_)))
        };
        (0..self.kids.len()).any(looked_for).then(|| now + LOOK_EVERY)
    }

    fn signals(&mut self, now: MonoNs) {
        while let Ok(Some(arrived)) = self.signals.read() {
            let signal = Signal(arrived.signal as u8);
            match arrived.signal {
                libc_signal::CHLD => {}
                libc_signal::HUP => {
                    self.tell.event(now, "tahti", "SIGHUP: the terminal is gone, the plant goes on");
                }
                libc_signal::INT if matches!(self.all.phase(), Phase::Stopping(_)) => self.impatient(now),
                _ => {
                    self.tell.event(now, "tahti", &format!("{signal}: the plant goes down"));
                    self.event(Event::Down);
                }
            }
        }
    }

    /// Ctrl-C while the plant goes down already: says who is waited for, then waits for nobody.
    fn impatient(&mut self, now: MonoNs) {
        let left = self.departures(now);
        if std::mem::replace(&mut self.impatient, true) {
            self.tell.event(now, "tahti", &format!("Ctrl-C again: SIGKILL for {left}"));
            self.event(Event::Force);
        } else {
            self.tell.event(now, "tahti", &format!("still there: {left}; Ctrl-C once more kills them now"));
        }
    }

    /// Raises the plant's shield, if it wants one. That it is about to is on disk first, so that whoever
    /// continues after a SIGKILL gives back what it finds.
    ///
    /// # Errors
    /// Why not, where it is required.
    pub(crate) fn raise_shield(&mut self, ours: bool, required: bool) -> Result<(), String> {
        let Some(wanted) = self.plant.shield.clone() else {
            self.start_guard();
            return Ok(());
        };
        self.raising = ours || !shielding::stands_already();
        self.save();
        let want = wanted.clone();
        let raised = self.beside("tahti-shield", move || shielding::Shielding::raise(&want, ours));
        let raised = raised.unwrap_or_else(|why| shielding::Raised {
            shield: shielding::Shielding::Lacking,
            said: Vec::new(),
            lacks: vec![format!("no shield on CPUs {}: {why}", wanted.cpus)],
        });
        (self.shield, self.raising) = (raised.shield, false);
        (self.common.isolated, self.common.shield_groups) = (self.shield.cpus(), self.shield.groups());
        for line in raised.said {
            self.tell.event(mono_now(), "shield", &line);
        }
        if self.common.isolated.is_empty() && (required || wanted.required) {
            return Err(raised.lacks.join("; "));
        }
        for line in raised.lacks {
            self.shortfall("shield", line);
        }
        self.saved = None;
        self.start_guard();
        Ok(())
    }

    /// Everything is down: ends the keepers, gives the machine back, tells how it went; whether all was well.
    pub(crate) fn finish(&mut self) -> Result<bool, RunDirError> {
        self.dismiss();
        self.disarm_watchdog();
        self.stop_guard();
        let lowered = self.lower_shield();
        for line in &lowered.said {
            self.tell.event(mono_now(), "shield", line);
        }
        let (good, text) = self.verdict(&lowered);
        self.tell.line(&text);
        // A shield that could not be given back is still this plant's: the next supervisor tries again.
        let forgotten = if self.shield.is_ours() { Ok(()) } else { self.run.forget() };
        self.farewell(good, &text);
        forgotten.map(|()| good)
    }

    fn lower_shield(&mut self) -> shielding::Lowered {
        let mut standing = self.shield.clone();
        let outcome = self.beside("tahti-shield", move || (standing.lower(), standing));
        match outcome {
            Ok((lowered, shield)) => {
                self.shield = shield;
                lowered
            }
            Err(why) => shielding::Lowered {
                whole: false,
                said: vec![format!("THE SHIELD MAY STILL STAND: {why}; try `tahti shield release`")],
            },
        }
    }

    /// Has something done that may take its time, and waits for it here: before there is a plant to look after, or
    /// after. Watchdogs are petted meanwhile.
    pub(super) fn beside<T: Send + 'static>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let aside = Aside::begin(name, work)?;
        loop {
            if let Some(outcome) = aside.take() {
                return outcome;
            }
            let now = mono_now();
            self.watchdog(now);
            if let Some(service) = &mut self.service {
                service.pulse(now);
            }
            let dog = self.watchdog.as_ref().map(|dog| dog.next);
            let sign = self.service.as_ref().and_then(service::Service::due);
            let wake = dog.into_iter().chain(sign).min();
            let limit = wake.map_or(DurNs::from_secs(1), |wake| (wake - mono_now()).max(DurNs::ZERO));
            sys::poll::is_readable(aside.as_fd(), limit);
        }
    }

    /// Ends the keepers, whose children are gone.
    fn dismiss(&mut self) {
        let keepers: Vec<Keeper> = self.kids.iter_mut().filter_map(|kid| kid.keeper.take()).collect();
        // Those that cannot be told stay behind, idle, until the next supervisor.
        let _ = self.beside("tahti-keepers", move || keepers.into_iter().for_each(keepers::dismiss));
    }

    /// Tells those who wait for the end.
    fn farewell(&mut self, good: bool, text: &str) {
        let reply = Reply::Verdict { good, text: text.to_owned() };
        for client in std::mem::take(&mut self.waiting) {
            self.server.answer(client, &reply);
        }
        self.server.drain();
    }

    /// How often the live line is shown.
    fn live_every(&self) -> Option<DurNs> {
        self.tell.is_tty().then_some(DurNs::from_ms(500))
    }

    fn live(&mut self, now: MonoNs) {
        let Some(every) = self.live_every() else { return };
        if now >= self.next_live && self.all.phase() != Phase::Down {
            self.next_live = now + every;
            let line = self.live_line(now);
            self.tell.live(&line);
        }
    }
}

/// Numbers of the signals that the supervisor takes (the same on every Linux that tahti runs on).
pub(crate) mod libc_signal {
    pub(crate) const HUP: i32 = 1;
    pub(crate) const INT: i32 = 2;
    pub(crate) const TERM: i32 = 15;
    pub(crate) const CHLD: i32 = 17;
}
