//! Supervision as a state machine: events and the time in, actions out.
//!
//! One [`Supervision`] holds every process of a plant. It decides when each is started, signalled, given up
//! and started again; the shell (`keep`) does so and tells what happened. Must never start a process whose
//! last copy may still live, nor start or stop against the declared order.
//!
//! The whole value is serialisable: a supervisor that was killed is continued by the next one.

mod change;
mod step;

pub use change::{Change, Effect, Presence, diff};

use crate::plant::{Plant, Process, ReadyWhen, Restart, RestartPolicy, Signal, StopStep};
use base::{DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// A process within its [`Supervision`]; stays the same over reloads.
pub type Id = usize;

/// How long a process that hangs has to leave a core file before SIGKILL.
pub const ABORT_WAIT: DurNs = DurNs::from_secs(2);

/// How long a process that the plant does not know has to end after SIGTERM.
const STRAY_WAIT: DurNs = DurNs::from_secs(5);

/// How long SIGKILL is waited for before it is sent again.
pub const KILL_WAIT: DurNs = DurNs::from_secs(1);

/// What the plant file says of a process, as far as supervision goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// What must be ready before it starts and is stopped after it.
    pub after: Vec<Id>,
    /// Whether it is a frame: when both go down it ends before those that are none, so that its activities learn of it.
    #[serde(default)]
    pub ends_first: bool,
    /// Whether the plant is up without it.
    #[serde(default)]
    pub optional: bool,
    /// How long it may take to give its sign; `None` if it is ready once started.
    pub ready_within: Option<DurNs>,
    /// What follows its end.
    pub restart: Restart,
    /// How it is asked to end.
    pub stop: Vec<StopStep>,
    /// Whether there is a safe-output command.
    pub has_fault_command: bool,
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Down, or waiting for those before it.
    Idle,
    /// Its start was asked for; no process yet.
    Launching,
    /// Started, without its sign of readiness; fails at `until`.
    Warming {
        /// When it should have been ready.
        until: MonoNs,
    },
    /// Started and ready.
    Running,
    /// Asked to end by step `step`; the next one follows at `until`.
    Stopping {
        /// Steps done, SIGKILL after the last.
        step: usize,
        /// When the next step follows.
        until: MonoNs,
    },
    /// Ended; starts again at `until`.
    Resting {
        /// When it starts again.
        until: MonoNs,
    },
    /// Ended well, and not to be started again.
    Finished,
    /// Failed too often: down until an operator resets it.
    Faulted,
}

impl State {
    /// Whether a copy of the process may exist.
    #[must_use]
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Launching | Self::Warming { .. } | Self::Running | Self::Stopping { .. })
    }

    /// The word that listings show.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "down",
            Self::Launching | Self::Warming { .. } => "starting",
            Self::Running => "running",
            Self::Stopping { .. } => "stopping",
            Self::Resting { .. } => "back-off",
            Self::Finished => "finished",
            Self::Faulted => "FAULT",
        }
    }
}

/// How a process ended, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It exited with this status.
    Exit(i32),
    /// A signal ended it.
    Signal(Signal),
    /// The out-of-memory killer ended it.
    OutOfMemory,
    /// It is gone, and nobody saw how.
    Unseen,
}

/// Why a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// By itself, as the kernel tells it.
    Own(End),
    /// It was asked to.
    Asked(End),
    /// It gave no sign of life for too long.
    Hang,
    /// It used more processor time than its budget without giving its CPU up.
    Runaway,
    /// It wanted to run and was not let for too long.
    Starved,
    /// A result came behind its hard deadline, or not at all.
    DeadlineMissed,
    /// It gave no sign of readiness in time.
    NotReady,
    /// It could not be started.
    NoStart(String),
}

impl Cause {
    /// Whether it ended by a failure of its own: not as it was asked to, and not with success.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Asked(_) | Self::Own(End::Exit(0)) | Self::NoStart(_))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => signal.fmt(f),
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::Unseen => f.write_str("gone unseen"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(end) => end.fmt(f),
            Self::Asked(end) => write!(f, "stopped ({end})"),
            Self::Hang => f.write_str("hang"),
            Self::Runaway => f.write_str("runaway"),
            Self::Starved => f.write_str("starved"),
            Self::DeadlineMissed => f.write_str("hard deadline missed"),
            Self::NotReady => f.write_str("not ready in time"),
            Self::NoStart(why) => write!(f, "no start: {why}"),
        }
    }
}

/// What happened, as the shell or an operator tells it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Bring the plant up.
    Up,
    /// Take the plant down.
    Down,
    /// The process exists.
    Started(Id),
    /// The process could not be started; the text tells why.
    StartFailed(Id, String),
    /// The process gave its sign of readiness.
    Ready(Id),
    /// The process is gone.
    Exited(Id, End),
    /// The process gave no sign of life for too long.
    HeartbeatLost(Id),
    /// The guard has caught the process and works against it.
    Runaway(Id),
    /// The process was kept from running for too long; recorded, nothing else.
    Starved(Id),
    /// A result of it came behind its hard deadline, or not at all: its output is made safe, and it goes on.
    DeadlineMissed(Id),
    /// The process asks for so much more time, from now on, to get ready or to end.
    Extend(Id, DurNs),
    /// Somebody at its console switched its automatic restart on or off.
    AutoRestart(Id, bool),
    /// An operator wants it stopped and started, or its fault reset.
    Restart(Id),
    /// An operator wants it down and to stay so, until [`Event::Start`] or [`Event::Restart`].
    Stop(Id),
    /// An operator wants it to run; one that runs already goes on.
    Start(Id),
    /// Whoever is still there while the plant goes down is killed, in the same order.
    Force,
    /// Time has passed.
    Tick,
}

/// What the shell must do, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start the process; answer with `Started` or `StartFailed`.
    Start(Id),
    /// Send it a signal.
    Signal(Id, Signal),
    /// Run its safe-output command.
    RunFaultCommand(Id),
    /// Tell people.
    Note(Id, Note),
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// It is ready, this long after its start was asked for.
    Ready(DurNs),
    /// It ended.
    Ended(Cause),
    /// It starts again after this pause; so many of the allowed restarts are used.
    RestartIn(DurNs, u32),
    /// Its fault is latched.
    Latched(Cause),
    /// It hangs, runs away, starves or has missed a hard deadline.
    Trouble(Cause),
    /// It failed while the plant came up, so the plant goes down.
    GroupStop,
}

/// What the plant as a whole does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing runs.
    Down,
    /// On its way up.
    Starting,
    /// Every process has been ready.
    Up,
    /// On its way down, asked to or because this process failed to start.
    Stopping(Option<Id>),
}

/// How often something went wrong with a living process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Troubles {
    /// No sign of life in time.
    pub hangs: u64,
    /// More processor time than its budget.
    pub runaways: u64,
    /// Runnable, and not run.
    pub starved: u64,
    /// Hard deadlines missed, at most one a second.
    pub deadlines: u64,
    /// No sign of readiness in time.
    pub unready: u64,
}

/// What is known of a process over all its lives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Times started.
    pub starts: u64,
    /// Restarts after an end that nobody asked for.
    pub restarts: u64,
    /// Such restarts within the window.
    pub recent: VecDeque<MonoNs>,
    /// What went wrong with it while it lived.
    #[serde(default)]
    pub troubles: Troubles,
    /// The last start.
    pub started: Option<MonoNs>,
    /// The last sign of readiness.
    pub ready: Option<MonoNs>,
    /// The last end, and why.
    pub ended: Option<(MonoNs, Cause)>,
}

/// A process under supervision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// What the plant file says.
    pub spec: Spec,
    /// Where it is in its life.
    pub state: State,
    /// What it went through.
    pub history: History,
    /// Whether it should run.
    wanted: bool,
    /// Whether an operator has stopped it: the plant comes up without it.
    #[serde(default)]
    stopped: bool,
    /// Whether the plant file no longer has it.
    pub retired: bool,
    /// Whether its restarts are switched off: its next failure is latched.
    held: bool,
    /// Why it is being stopped, told when it ends.
    blame: Option<Blame>,
    /// When its last start was asked for: what it takes until it exists counts, too.
    #[serde(default)]
    asked: Option<MonoNs>,
}

/// Why a living process will end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Blame {
    Asked,
    Hang,
    Runaway,
    NotReady,
}

impl Unit {
    /// The word that listings show.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.state {
            State::Idle if self.stopped => "stopped",
            // It may wait for those after it to end first.
            State::Warming { .. } | State::Running if self.stopped => "stopping",
            state => state.word(),
        }
    }
}

/// All processes of a plant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Supervision {
    units: Vec<Unit>,
    phase: Phase,
    /// The process that failed to start and took the plant down with it.
    failed: Option<Id>,
    /// Whether nobody is asked to end any more, only killed.
    #[serde(default)]
    forced: bool,
    #[serde(skip)]
    actions: VecDeque<Action>,
}

impl Supervision {
    /// The plant, down.
    #[must_use]
    pub fn new(plant: &Plant) -> Self {
        let mut all =
            Self { units: Vec::new(), phase: Phase::Down, failed: None, forced: false, actions: VecDeque::new() };
        for process in &plant.processes {
            all.add(process);
        }
        all.link(plant);
        all
    }

    /// The plant as it is where nothing is known but that it was begun: its processes are found ([`take_up`](Self::take_up))
    /// or started.
    #[must_use]
    pub fn begun(plant: &Plant) -> Self {
        let mut all = Self::new(plant);
        all.phase = Phase::Starting;
        all.units.iter_mut().for_each(|unit| unit.wanted = true);
        all
    }

    /// A process that the plant does not know lives: it is stopped like one that was removed, once it is
    /// [taken up](Self::take_up).
    pub fn stray(&mut self, name: &str) -> Id {
        let (policy, none) = (RestartPolicy::Never, DurNs::ZERO);
        let restart = Restart { policy, backoff: none, backoff_max: none, window: none, limit: 0 };
        self.units.push(Unit {
            spec: Spec {
                name: name.to_owned(),
                after: Vec::new(),
                ends_first: false,
                optional: false,
                ready_within: None,
                restart,
                stop: vec![StopStep { signal: Signal::TERM, wait: STRAY_WAIT }],
                has_fault_command: false,
            },
            state: State::Idle,
            history: History::default(),
            wanted: false,
            retired: true,
            stopped: false,
            held: false,
            blame: None,
            asked: None,
        });
        self.units.len() - 1
    }

    /// A supervisor that continues finds this process alive; [`Event::Started`] follows. `same` says whether it is
    /// the one that the state speaks of. If so the state holds, and the time in which nobody looked after it does not
    /// count against its readiness. If not the state is older than the process, and tells nothing of it.
    pub fn take_up(&mut self, now: MonoNs, id: Id, same: bool) {
        let wanted = matches!(self.phase, Phase::Starting | Phase::Up);
        let unit = &mut self.units[id];
        match unit.state {
            State::Warming { .. } if same => {
                unit.state = State::Warming { until: now + unit.spec.ready_within.unwrap_or(DurNs::ZERO) };
            }
            state if same && state.is_alive() => {}
            _ => {
                (unit.state, unit.blame) = (State::Launching, None);
                unit.wanted = wanted && !unit.retired && !unit.stopped;
                unit.history.starts = unit.history.starts.max(1);
            }
        }
    }

    /// Takes an event in; [`next_action`](Self::next_action) has what follows from it.
    pub fn handle(&mut self, now: MonoNs, event: Event) {
        step::handle(self, now, event);
    }

    /// The next thing to do, if any.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Event::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<MonoNs> {
        let due = |unit: &Unit| match unit.state {
            State::Warming { until } | State::Stopping { until, .. } => Some(until),
            // A restart that waits for others is woken by them.
            State::Resting { until } if self.may_start(unit) => Some(until),
            _ => None,
        };
        self.units.iter().filter_map(due).min()
    }

    /// What the plant as a whole does.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The process that failed to start and took the plant down with it, until the plant comes up again.
    #[must_use]
    pub fn failed(&self) -> Option<Id> {
        self.failed
    }

    /// The processes; retired ones stay in their place.
    #[must_use]
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// A process that is not retired, by its name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Id> {
        self.units.iter().position(|unit| unit.spec.name == name && !unit.retired)
    }

    /// Those that must be stopped before these are, for they were started after them.
    #[must_use]
    pub fn needing(&self, ids: &[Id]) -> Vec<Id> {
        let needs = |unit: &Unit| unit.wanted && unit.spec.after.iter().any(|before| ids.contains(before));
        (0..self.units.len()).filter(|id| !ids.contains(id) && needs(&self.units[*id])).collect()
    }

    /// Those that an operator has stopped and that must run before these can start.
    #[must_use]
    pub fn missing(&self, ids: &[Id]) -> Vec<Id> {
        let before = ids.iter().flat_map(|id| self.units[*id].spec.after.iter().copied());
        let mut missing: Vec<Id> = before.filter(|id| !ids.contains(id) && self.units[*id].stopped).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// When a process that is being stopped gets SIGKILL.
    #[must_use]
    pub fn killed_at(&self, id: Id) -> Option<MonoNs> {
        let unit = &self.units[id];
        let State::Stopping { step, until } = unit.state else { return None };
        let left = unit.spec.stop.get(step..).unwrap_or_default();
        Some(left.iter().fold(until, |at, step| at + step.wait))
    }

    /// Whether a copy of any process may exist.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.units.iter().any(|unit| unit.state.is_alive())
    }

    /// Takes a changed plant over: what is new is started, what is gone is stopped, what must be started
    /// anew for the change is restarted, everything else goes on untouched.
    pub fn reload(&mut self, now: MonoNs, old: &Plant, new: &Plant) {
        let mut again = Vec::new();
        for change in diff(old, new) {
            match change {
                Change::Added { name } => {
                    if let Some(process) = new.process(&name) {
                        let id = self.add(process);
                        self.units[id].wanted = matches!(self.phase, Phase::Starting | Phase::Up);
                    }
                }
                Change::Removed { name } => {
                    if let Some(id) = self.find(&name) {
                        self.units[id].retired = true;
                        self.units[id].wanted = false;
                    }
                }
                Change::Process { name, effect, .. } => {
                    if let (Some(id), Some(process)) = (self.find(&name), new.process(&name)) {
                        let after = std::mem::take(&mut self.units[id].spec.after);
                        self.units[id].spec = Spec { after, ..spec(process) };
                        let settled = matches!(self.units[id].state, State::Finished | State::Idle);
                        if effect == Effect::Restart && !settled && !self.units[id].stopped {
                            again.push(id);
                        }
                    }
                }
                Change::Shield { .. }
                | Change::Partition { .. }
                | Change::Watchdog
                | Change::Records
                | Change::Name { .. } => {}
            }
        }
        self.link(new);
        if self.phase == Phase::Up {
            self.phase = Phase::Starting;
        }
        for id in again {
            self.handle(now, Event::Restart(id));
        }
        self.handle(now, Event::Tick);
    }

    fn add(&mut self, process: &Process) -> Id {
        self.units.push(Unit {
            spec: spec(process),
            state: State::Idle,
            history: History::default(),
            wanted: false,
            stopped: false,
            retired: false,
            held: false,
            blame: None,
            asked: None,
        });
        self.units.len() - 1
    }

    /// Turns names of dependencies into ids, and finds the frames.
    fn link(&mut self, plant: &Plant) {
        for process in &plant.processes {
            let after = process.after.iter().filter_map(|name| self.find(name)).collect();
            if let Some(id) = self.find(&process.name) {
                let spec = &mut self.units[id].spec;
                spec.after = after;
                spec.ends_first = plant.frames.iter().any(|frame| frame.spec.name == process.name);
            }
        }
    }

    /// Whether those before it are ready.
    fn may_start(&self, unit: &Unit) -> bool {
        unit.spec.after.iter().all(|id| matches!(self.units[*id].state, State::Running | State::Finished))
    }

    /// Whether those after it are gone, and the frames that go down with it.
    fn may_stop(&self, id: Id) -> bool {
        let first = self.units[id].spec.ends_first;
        let holds = |other: &Unit| other.spec.after.contains(&id) || other.spec.ends_first && !other.wanted && !first;
        !self.units.iter().any(|other| other.state.is_alive() && holds(other))
    }
}

fn spec(process: &Process) -> Spec {
    Spec {
        name: process.name.clone(),
        after: Vec::new(),
        ends_first: false,
        optional: process.optional,
        ready_within: (process.ready.when != ReadyWhen::Started).then_some(process.ready.within),
        restart: process.restart,
        stop: process.stop.clone(),
        has_fault_command: process.on_fault.is_some(),
    }
}

#[cfg(test)]
mod tests;
