//! The loop that runs the state machine: takes events from keepers, clocks and operators, and carries out actions.
//!
//! `actions` carries out actions, `events` converts messages into events, `requests` answers operators, `keepers` handles
//! the connections to keepers, `reshield` changes the shield while processes are running.

mod actions;
mod events;
mod keepers;
mod requests;
mod reshield;

use super::background::BackgroundTask;
use super::compare::Compare;
use super::connection;
use super::control::{Reply, Server};
use super::health::{Health, View};
use super::incidents::Evidence;
use super::partitions;
use super::probe;
use super::processes::Processes;
use super::reporter::{Reporter, fitted_outcome, short};
use super::rundir::RunDirError;
use super::safe_output::SafeOutputs;
use super::service::Service;
use super::shielding::{self, Lowered, Shielding};
use super::site::Site;
use super::state_file::StateFile;
use super::status;
use super::watch::Watcher;
use super::watchdog::HardwareWatchdog;
use crate::keeper::{Keeper, protocol as keeper};
use crate::partition::PartitionError;
use base::{DurNs, MonoNs};
use connection::{Asker, ConnectionError};
use host::health::Outcome;
use host::plant::{ReadyCondition, Signal};
use host::supervise::{Action, Event, Id, Phase, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd as _;
use std::borrow::Cow;
use std::path::PathBuf;
use sys::clock::mono_now;
use sys::signal::{SIGCHLD, SIGHUP, SIGINT, SignalFd};

/// Interval for polling a file or port while a process becomes ready.
const LOOK_EVERY: DurNs = DurNs::from_ms(10);

/// A step that waits until a change of the shield is complete. A start also waits for background work on its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// The start of a process.
    Start(Id),
    /// The release of a process that exists and waits.
    Go(Id),
}

/// State of the loop.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) site: Site,
    pub(crate) processes: Processes,
    health: Health,
    pub(crate) tell: Reporter,
    server: Server,
    signals: SignalFd,
    state_file: StateFile,
    shield: Shielding,
    watcher: Watcher,
    partitions: partitions::Watch,
    watchdog: HardwareWatchdog,
    service: Option<Service>,
    safe_outputs: SafeOutputs,
    evidence: Evidence,
    pub(crate) compare: Option<Compare>,
    /// A change of the shield in progress.
    reshield: Option<reshield::Reshield>,
    waits: Vec<Waits>,
    /// Clients that wait for the end of the plant.
    waiting: Vec<u64>,
    /// Time at which the plant goes down automatically.
    pub(crate) until: Option<MonoNs>,
    next_live: MonoNs,
    next_hard: MonoNs,
    /// Time of the next check of the keepers.
    keepers_due: MonoNs,
    upgrade: Option<PathBuf>,
    /// Whether Ctrl-C was pressed again while the plant was going down.
    impatient: bool,
}

/// The reason why the loop ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    /// Every process is down.
    Down,
    /// Another program takes over. The processes keep running.
    Upgrade(PathBuf),
}

/// A required shield is unavailable: the reasons, each with its remedy.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct NoShield(Vec<String>);

impl Engine {
    pub(crate) fn new(
        site: Site,
        processes: Processes,
        health: Health,
        server: Server,
        signals: SignalFd,
        mut tell: Reporter,
        shield: Shielding,
    ) -> Self {
        let service = Service::new(|name| std::env::var(name).ok()).unwrap_or_else(|why| {
            tell.shortfall("tahti", why.to_string());
            None
        });
        Self {
            site,
            processes,
            health,
            tell,
            server,
            signals,
            state_file: StateFile::default(),
            shield,
            watcher: Watcher::default(),
            partitions: partitions::Watch::default(),
            watchdog: HardwareWatchdog::default(),
            service,
            safe_outputs: SafeOutputs::default(),
            evidence: Evidence::default(),
            compare: None,
            reshield: None,
            waits: Vec::new(),
            waiting: Vec::new(),
            until: None,
            next_live: MonoNs(0),
            next_hard: MonoNs(0),
            keepers_due: MonoNs(0),
            upgrade: None,
            impatient: false,
        }
    }

    /// Runs until the plant is down or another program takes over.
    pub(crate) fn run(&mut self) -> LoopEnd {
        loop {
            self.step("results of background work");
            self.reshielded();
            self.keepers_finished();
            // Runs after every step that may queue an action, because a queued action does not wake the loop.
            self.act();
            self.recorded(mono_now());
            if let Some(service) = &mut self.service {
                service.report(mono_now(), &self.processes.all);
            }
            let phase = self.processes.all.phase();
            // The results of background work would be lost by leaving the loop.
            let beside = self.reshield.is_some() || self.processes.iter().any(|(_, one)| one.link.is_busy());
            let busy = beside || self.evidence.until(mono_now()).is_some();
            if !busy && let Some(program) = self.upgrade.take() {
                return LoopEnd::Upgrade(program);
            }
            if !busy && phase == Phase::Down && self.safe_outputs.is_empty() {
                return LoopEnd::Down;
            }
            self.step("messages of keepers");
            // Messages received together with an answer are already out of the socket, so poll would not report them.
            let news = self.keepers(mono_now());
            self.check_keepers(mono_now());
            self.silent_keepers(mono_now());
            if self.guard_news() || news {
                continue;
            }
            // Work that begins when the plant comes up must not wait for the next event.
            self.compare(mono_now());
            self.pet(mono_now());
            self.step("waiting for events");
            self.wait();
            self.step("checks of processes");
            let now = mono_now();
            self.signals(now);
            self.look();
            self.watcher.rule_threads(now, &mut self.processes, &mut self.tell);
            self.partitions.look(now, &self.site, &mut self.tell);
            self.look_for_hard_misses(now);
            self.observe(now, false);
            self.step("requests");
            self.safe_outputs.reap(now, &mut self.processes, &mut self.tell);
            for (client, request) in self.server.serve() {
                let reply = match request {
                    Ok(request) => self.serve(client, request),
                    Err(why) => Some(Reply::Refused(why.to_string())),
                };
                if let Some(reply) = reply {
                    self.server.answer(client, &reply);
                }
            }
            if self.until.take_if(|until| now >= *until).is_some() {
                self.tell.event(now, "tahti", "time is up");
                self.go_down();
            }
            self.processes.all.handle(now, Event::Tick);
            self.live(now);
        }
    }

    /// Carries out the state machine's actions. The decisions are written to disk first. After a SIGKILL, the next
    /// supervisor then expects a process that may exist, instead of starting a second instance.
    fn act(&mut self) {
        loop {
            let actions: Vec<Action> = std::iter::from_fn(|| self.processes.all.next_action()).collect();
            self.step("writing the state file");
            self.save();
            self.step("actions");
            // Silence counts only while a process is running: not before it is ready, and not once it was asked to end.
            for (unit, one) in self.processes.iter() {
                one.watch.expect_signs(unit.state == State::Running);
            }
            if actions.is_empty() {
                self.retire();
                return self.evidence.record(self.site.run.path(), &mut self.tell);
            }
            for action in actions {
                // Each action takes a bounded time, but there may be many.
                self.pet(mono_now());
                match action {
                    Action::Start(id) => self.start(id),
                    Action::Signal(id, Signal::ABRT) if self.look_first(id) => {}
                    Action::Signal(id, signal) => self.send(id, signal),
                    Action::RunFaultCommand(id) => self.run_fault_command(id),
                    Action::Note(id, note) => self.note(id, &note),
                }
            }
        }
    }

    /// Begins a step of the loop, for the cause of a gap in the observations.
    fn step(&mut self, step: impl Into<Cow<'static, str>>) {
        self.health.step(mono_now(), step);
    }

    /// Ends the keepers of processes that were removed from the plant file.
    fn retire(&mut self) {
        for (_, one) in self.processes.iter_mut().filter(|(unit, _)| unit.retired && !unit.state.is_alive()) {
            one.link.dismiss();
        }
    }

    /// Writes the state if it has changed.
    fn save(&mut self) {
        let (table, ours) = (self.health.table(), self.shield.is_ours());
        self.state_file.save(&self.site, &self.processes, table, ours, &mut self.tell);
    }

    /// Opens the hardware watchdog once the plant is up. Pets it when due, if all critical processes are alive.
    fn pet(&mut self, now: MonoNs) {
        self.watchdog.look(now, &self.site.plant, &self.processes, &mut self.tell);
    }

    /// Waits for the next event or deadline.
    fn wait(&mut self) {
        let now = mono_now();
        let ours = [
            self.watchdog.due(),
            self.partitions.due(&self.site),
            self.service.as_ref().and_then(Service::due),
            self.until,
            self.next_look(now),
            self.compare.as_ref().and_then(Compare::due),
            self.live_every().map(|_| self.next_live),
            self.watcher.next_threads(&self.processes),
            self.safe_outputs.due(now),
            self.next_hard_look(),
            self.evidence.until(now),
            self.processes.all.next_wake(),
            Some(self.health.due()),
        ];
        let each = self.processes.iter().flat_map(|(_, one)| [one.link.next_silent(), one.incident.abort_at]);
        let wake = ours.into_iter().chain(each).flatten().min().unwrap_or(MonoNs(u64::MAX));
        let span = (wake - now).max(DurNs::ZERO);
        let timeout = Timespec { tv_sec: span.0 / 1_000_000_000, tv_nsec: (span.0 % 1_000_000_000) as _ };
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        for (fd, writing) in self.server.fds() {
            let flags = if writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let change = self.reshield.as_ref().map(|change| change.work.as_fd());
        let parts = [self.watcher.fd(), self.evidence.fd(), change].into_iter().flatten();
        let parts = parts.chain(self.processes.iter().flat_map(|(_, one)| one.link.fds()));
        fds.extend(parts.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted or failed wait only ends early; the checks that follow do not block.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Time of the next check for signs of readiness that must be polled.
    fn next_look(&self, now: MonoNs) -> Option<MonoNs> {
        let looked_for = |when: &ReadyCondition| matches!(when, ReadyCondition::File(_) | ReadyCondition::Port(_));
        let mut warming = self.processes.all.units().iter().filter(|unit| matches!(unit.state, State::Warming { .. }));
        let any = warming.any(|unit| self.site.process(&unit.spec.name).is_some_and(|one| looked_for(&one.ready.when)));
        any.then(|| now + LOOK_EVERY)
    }

    fn signals(&mut self, now: MonoNs) {
        while let Ok(Some(arrived)) = self.signals.read() {
            let signal = Signal(arrived.signal as u8);
            match arrived.signal {
                SIGCHLD => {}
                SIGHUP => {
                    // The terminal is gone, or another program has moved the logs.
                    self.tell.event(now, "tahti", "SIGHUP: log files reopened, the plant continues");
                    for id in self.processes.ids() {
                        // A process without a keeper has no open log.
                        let _ = self.processes[id].link.request(&keeper::Request::ReopenLog, Asker::Own);
                    }
                }
                SIGINT if matches!(self.processes.all.phase(), Phase::Stopping(_)) => self.impatient(now),
                _ => {
                    self.tell.event(now, "tahti", &format!("{signal}: the plant goes down"));
                    self.go_down();
                }
            }
        }
    }

    /// Handles Ctrl-C while the plant is going down: the first reports the processes still running, the next kills them.
    fn impatient(&mut self, now: MonoNs) {
        let left = self.processes.departures(now);
        if std::mem::replace(&mut self.impatient, true) {
            self.tell.event(now, "tahti", &format!("Ctrl-C again: SIGKILL for {left}"));
            self.processes.event(Event::Force);
        } else {
            self.tell.event(now, "tahti", &format!("still running: {left}; press Ctrl-C again to kill them now"));
        }
    }

    /// Creates the plant's partitions. The intention is written to disk first, so that the next supervisor cleans up after a
    /// SIGKILL.
    ///
    /// # Errors
    /// A required partition is unavailable.
    pub(crate) fn raise_partitions(&mut self, required: bool) -> Result<(), PartitionError> {
        if !self.site.plant.partitions.is_empty() {
            self.save();
        }
        partitions::raise(&mut self.site, &mut self.tell, mono_now(), required)
    }

    /// Removes the partitions once no process is in them.
    pub(crate) fn lower_partitions(&mut self, lowered: &mut Lowered) {
        partitions::lower(&mut self.site, lowered);
    }

    /// Sets up the plant's shield, if one is configured. The intention is written to disk first, so that the next supervisor
    /// reverts the changes after a SIGKILL.
    ///
    /// # Errors
    /// The shield is required but unavailable.
    pub(crate) fn raise_shield(&mut self, ours: bool, required: bool) -> Result<(), NoShield> {
        let Some(wanted) = self.site.plant.shield.clone() else {
            self.start_guard();
            return Ok(());
        };
        if ours || !shielding::stands_already() {
            self.shield = Shielding::Raising;
        }
        self.save();
        let want = wanted.clone();
        let raised = self.beside("tahti-shield", move || Shielding::raise(&want, ours));
        let raised = raised.unwrap_or_else(|why| Shielding::lacking(&wanted, &why));
        self.stands(raised.shield);
        for line in raised.said {
            self.tell.event(mono_now(), "shield", &line);
        }
        if self.site.isolated.is_empty() && (required || wanted.required) {
            return Err(NoShield(raised.lacks));
        }
        for line in raised.lacks {
            self.tell.shortfall("shield", line);
        }
        self.state_file.is_outdated();
        self.start_guard();
        Ok(())
    }

    /// Stores the new state of the shield.
    fn stands(&mut self, shield: Shielding) {
        (self.site.isolated, self.site.shield_groups) = (shield.cpus(), shield.groups());
        self.shield = shield;
    }

    /// Starts the guard. While the shield is being changed there is no guard; it is started afterwards.
    fn start_guard(&mut self) {
        if self.reshield.is_none() {
            self.watcher.start(&self.site, &mut self.processes, &mut self.tell);
        }
    }

    /// Loads the promises of the plant file.
    pub(crate) fn promise(&mut self) {
        self.health.promise(mono_now(), &self.site);
    }

    /// Observes every row, at once or if a pass is due.
    fn observe(&mut self, now: MonoNs, at_once: bool) {
        let is_pass = at_once || now >= self.health.due();
        let guard_fault = if is_pass { self.watcher.fault(now) } else { None };
        let view = View {
            site: &self.site,
            processes: &self.processes,
            shield: &self.shield,
            watchdog: &self.watchdog,
            tell: &self.tell,
            guard_fault,
            reshield: self.is_unshielded(),
        };
        self.health.step(now, "observing the rows");
        if at_once {
            self.health.observe(now, &view);
            self.health.close_down(now, &view);
        } else {
            self.health.pass(now, &view);
        }
        for news in self.health.news(now, &self.processes) {
            self.tell.message(news.level, now, &news.who, &news.text);
        }
        // The row of the files has been observed.
        if is_pass && !self.site.run.state_file().exists() {
            self.state_file.is_outdated();
        }
    }

    /// Whether the shield is being changed, or is lowered for a comparison.
    fn is_unshielded(&self) -> bool {
        self.reshield.is_some() || self.compare.as_ref().is_some_and(|compare| !compare.is_shielded())
    }

    /// Observes the settings of a process that has just been started.
    fn observe_start(&mut self, now: MonoNs, id: Id) {
        let (reshield, name) = (self.is_unshielded(), self.processes.name(id));
        if let Some(process) = self.site.process(name) {
            self.health.begun(now, &self.processes[id], process, &self.site, reshield);
        }
    }

    /// Observes every row a last time, and takes the plant down.
    fn go_down(&mut self) {
        if matches!(self.processes.all.phase(), Phase::Starting | Phase::Up) {
            self.observe(mono_now(), true);
        }
        self.processes.event(Event::Down);
    }

    /// Called when every process is down: ends the keepers, restores the machine, prints the verdict.
    pub(crate) fn finish(&mut self) -> Result<Outcome, RunDirError> {
        self.observe(mono_now(), true);
        self.dismiss();
        self.watchdog.disarm(&mut self.tell);
        self.watcher.stop(&mut self.processes);
        let mut lowered = self.lower_shield();
        self.lower_partitions(&mut lowered);
        for line in &lowered.said {
            self.tell.event(mono_now(), "shield", line);
        }
        let outcome = self.close(&lowered);
        let compare = self.compare.as_ref();
        let text = status::verdict(&self.site, &self.processes, compare, &lowered, &self.tell);
        self.tell.line(&(text.clone() + &fitted_outcome(&outcome)));
        let text = text + &outcome.words(short);
        // A shield that could not be released still belongs to this plant, and the next supervisor tries again. Files of
        // another supervisor are kept too.
        let owns = self.health.owns(&self.site);
        let forgotten = if self.shield.is_ours() || !owns { Ok(()) } else { self.site.run.forget() };
        let closed = if owns { self.site.run.close_dashboard() } else { Ok(()) };
        self.farewell(outcome.clone(), text);
        forgotten.and(closed).map(|()| outcome)
    }

    /// The final verdict, after the machine was restored.
    fn close(&mut self, lowered: &Lowered) -> Outcome {
        let view = View {
            site: &self.site,
            processes: &self.processes,
            shield: &self.shield,
            watchdog: &self.watchdog,
            tell: &self.tell,
            guard_fault: None,
            reshield: false,
        };
        let left = lowered.said.iter().rev().map(String::as_str).collect::<Vec<_>>().join(", ");
        let why = if left.is_empty() { "not every value was restored" } else { &left };
        self.health.close(mono_now(), &view, (!lowered.whole).then_some(why))
    }

    fn lower_shield(&mut self) -> Lowered {
        let mut standing = self.shield.clone();
        let outcome = self.beside("tahti-shield", move || (standing.lower(), standing));
        match outcome {
            Ok((lowered, shield)) => {
                self.shield = shield;
                lowered
            }
            Err(why) => Lowered {
                whole: false,
                said: vec![format!("THE SHIELD MAY STILL BE ACTIVE: {why}; try `tahti shield release`")],
            },
        }
    }

    /// Runs work that may block in the background, and waits for it. Used only before the loop starts and after it has
    /// ended, because it blocks the caller. Watchdogs are petted meanwhile.
    fn beside<T: Send + 'static>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ConnectionError> {
        let task = BackgroundTask::begin(name, work)?;
        loop {
            if let Some(outcome) = task.take() {
                return Ok(outcome?);
            }
            let now = mono_now();
            self.pet(now);
            if let Some(service) = &mut self.service {
                service.pulse(now);
            }
            let wake = self.watchdog.due().into_iter().chain(self.service.as_ref().and_then(Service::due)).min();
            let limit = wake.map_or(DurNs::from_secs(1), |wake| (wake - mono_now()).max(DurNs::ZERO));
            sys::poll::is_readable(task.as_fd(), limit);
        }
    }

    /// Ends the keepers, whose children are gone.
    fn dismiss(&mut self) {
        let keepers: Vec<Keeper> = self.processes.iter_mut().filter_map(|(_, one)| one.link.take_keeper()).collect();
        // If the thread cannot be started, the keepers stay idle until the next supervisor.
        let _ = self.beside("tahti-keepers", move || keepers.into_iter().for_each(connection::dismiss));
    }

    /// Sends the verdict to the clients that wait for it.
    fn farewell(&mut self, outcome: Outcome, text: String) {
        let reply = Reply::Verdict { outcome, text };
        for client in std::mem::take(&mut self.waiting) {
            self.server.answer(client, &reply);
        }
        self.server.drain();
    }

    /// Collects cycles for the comparison, and changes the shield when a segment is over.
    fn compare(&mut self, now: MonoNs) {
        let Some(compare) = self.compare.as_mut().filter(|_| self.processes.all.phase() == Phase::Up) else { return };
        let pages = self.processes.iter_mut().enumerate().filter_map(|(id, (_, one))| Some((id, one.page.as_mut()?)));
        if let Some(shielded) = compare.turn(now, probe::steal, pages) {
            self.change_sides(shielded);
        }
    }

    /// Interval of the live line.
    fn live_every(&self) -> Option<DurNs> {
        self.tell.is_tty().then_some(DurNs::from_ms(500))
    }

    fn live(&mut self, now: MonoNs) {
        let Some(every) = self.live_every() else { return };
        if now >= self.next_live && self.processes.all.phase() != Phase::Down {
            self.next_live = now + every;
            let line = status::live_line(now, &self.site, &mut self.processes, &self.shield);
            self.tell.live(&line);
        }
    }
}
