//! Supervision as a state machine: events and time in, actions out.
//!
//! One [`Supervision`] contains every process of a plant. It decides when each is started, signalled, stopped and
//! restarted; the crate `keep` executes the actions and reports events. Must never start a process whose previous
//! instance may still be alive, nor start or stop against the declared order.
//!
//! The whole value is serialisable: after a supervisor was killed, the next one continues.

mod change;
mod step;

pub use change::{Change, Effect, Presence, diff};

use crate::plant::{Plant, Process, ReadyCondition, Restart, RestartPolicy, Signal, StopStep};
use base::{DurNs, MonoNs};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// Index of a process in its [`Supervision`]. It does not change on a reload.
pub type Id = usize;

/// Time a hung process has to write a core file before SIGKILL.
pub const ABORT_WAIT: DurNs = DurNs::from_secs(2);

/// Time a process that is not in the plant file has to end after SIGTERM.
const STRAY_WAIT: DurNs = DurNs::from_secs(5);

/// Interval at which SIGKILL is repeated.
pub const KILL_WAIT: DurNs = DurNs::from_secs(1);

/// Settings of a process in the plant file that concern supervision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Processes that must be ready before it starts, and that are stopped after it.
    pub after: Vec<Id>,
    /// Whether it is a frame. When both go down, a frame ends before processes that are not frames, so that its
    /// activities are informed.
    #[serde(default)]
    pub ends_first: bool,
    /// Whether the plant counts as up without it.
    #[serde(default)]
    pub optional: bool,
    /// Time the process has to become ready; `None` if it is ready once started.
    pub ready_within: Option<DurNs>,
    /// Restart policy.
    pub restart: Restart,
    /// Stop sequence.
    pub stop: Vec<StopStep>,
    /// Whether it has a safe-output command.
    pub has_fault_command: bool,
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Down, or waiting for processes that it depends on.
    Idle,
    /// Start requested; the process does not exist yet.
    Launching,
    /// Started but not ready; fails at `until`.
    Warming {
        /// Time limit for readiness.
        until: MonoNs,
    },
    /// Started and ready.
    Running,
    /// Ending after step `step` of the stop sequence; the next step follows at `until`.
    Stopping {
        /// Steps done; SIGKILL after the last.
        step: usize,
        /// Time of the next step.
        until: MonoNs,
    },
    /// Ended; restarts at `until`.
    Resting {
        /// Time of the restart.
        until: MonoNs,
    },
    /// Ended successfully, not to be restarted.
    Finished,
    /// Failed too often: down until an operator resets it.
    Faulted,
}

impl State {
    /// Whether an instance of the process may exist.
    #[must_use]
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Launching | Self::Warming { .. } | Self::Running | Self::Stopping { .. })
    }

    /// The word in listings.
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

/// End of a process, as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It exited with this status.
    Exit(i32),
    /// A signal ended it.
    Signal(Signal),
    /// The out-of-memory killer ended it.
    OutOfMemory,
    /// It is gone, and its exit status is unknown.
    Unseen,
}

/// Reason why a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It ended by itself, as reported by the kernel.
    Own(End),
    /// It ended after a request.
    Asked(End),
    /// It sent no heartbeat in time.
    Hang,
    /// It exceeded its budget of processor time without yielding its CPU.
    Runaway,
    /// It was runnable but did not run for too long.
    Starved,
    /// A result missed its hard deadline or did not arrive.
    DeadlineMissed,
    /// It did not become ready in time.
    NotReady,
    /// It could not be started.
    NoStart(String),
}

impl Cause {
    /// Whether the process itself failed: it ended neither by request nor successfully.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Asked(_) | Self::Own(End::Exit(0)) | Self::NoStart(_))
    }

    /// The text behind the cause: the last line of output, which need not be the cause, or the limit of memory. Empty without a
    /// line.
    #[must_use]
    pub fn behind(&self, last_line: Option<&str>) -> String {
        match (self, last_line) {
            (_, None) => String::new(),
            (Self::Own(End::OutOfMemory), Some(limit)) => format!(": {limit}"),
            (_, Some(line)) => format!("; last line: \"{line}\""),
        }
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
            Self::Own(End::Signal(signal)) if signal.is_of_others() => write!(f, "{signal} from outside"),
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

/// An event, reported by the shell or an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Bring the plant up.
    Up,
    /// Take the plant down.
    Down,
    /// The process exists.
    Started(Id),
    /// The process could not be started, with the reason.
    StartFailed(Id, String),
    /// The process is ready.
    Ready(Id),
    /// The process is gone.
    Exited(Id, End),
    /// The process sent no heartbeat in time.
    HeartbeatLost(Id),
    /// The guard has detected a runaway and acts on it.
    Runaway(Id),
    /// The process did not run for too long. Only recorded.
    Starved(Id),
    /// A result missed its hard deadline or did not arrive. The safe-output command runs, and the process continues.
    DeadlineMissed(Id),
    /// The process requests more time, counted from now, to become ready or to end.
    Extend(Id, DurNs),
    /// A user at its console switched its automatic restart on or off.
    AutoRestart(Id, bool),
    /// An operator requests a restart or a reset of its fault.
    Restart(Id),
    /// An operator stops the process until [`Event::Start`] or [`Event::Restart`].
    Stop(Id),
    /// An operator starts the process. A running process continues.
    Start(Id),
    /// While the plant goes down: kill the remaining processes, in the same order.
    Force,
    /// Time has passed.
    Tick,
}

/// An action for the shell. Actions must be executed in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start the process; respond with `Started` or `StartFailed`.
    Start(Id),
    /// Send a signal to the process.
    Signal(Id, Signal),
    /// Run its safe-output command.
    RunFaultCommand(Id),
    /// Report to users.
    Note(Id, Note),
}

/// A report for users.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Ready, with the time since the start was requested.
    Ready(DurNs),
    /// It ended.
    Ended(Cause),
    /// Restarts after this pause; the number of used restarts.
    RestartIn(DurNs, u32),
    /// Its fault is latched.
    Latched(Cause),
    /// Hang, runaway, starvation or missed hard deadline.
    Trouble(Cause),
    /// It failed while the plant came up, so the plant goes down.
    GroupStop,
}

/// Phase of the whole plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing runs.
    Down,
    /// Starting.
    Starting,
    /// Every process has become ready.
    Up,
    /// Going down, by request or because this process failed to start.
    Stopping(Option<Id>),
}

/// Number of faults of a running process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Troubles {
    /// Missing heartbeats.
    pub hangs: u64,
    /// Exceeded budgets of processor time.
    pub runaways: u64,
    /// Runnable but not run.
    pub starved: u64,
    /// Missed hard deadlines, at most one per second.
    pub deadlines: u64,
    /// Not ready in time.
    pub unready: u64,
}

/// History of a process over all its instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Number of starts.
    pub starts: u64,
    /// Restarts after an unrequested end.
    pub restarts: u64,
    /// Times of such restarts within the window.
    pub recent: VecDeque<MonoNs>,
    /// Faults while it was running.
    #[serde(default)]
    pub troubles: Troubles,
    /// Time of the last start.
    pub started: Option<MonoNs>,
    /// Time when it last became ready.
    pub ready: Option<MonoNs>,
    /// Time and reason of the last end.
    pub ended: Option<(MonoNs, Cause)>,
}

/// A process under supervision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// Settings from the plant file.
    pub spec: Spec,
    /// Present state.
    pub state: State,
    /// Its history.
    pub history: History,
    /// Whether it should run.
    wanted: bool,
    /// Whether an operator has stopped it. The plant counts as up without it.
    #[serde(default)]
    stopped: bool,
    /// Whether it was removed from the plant file.
    pub retired: bool,
    /// Whether its automatic restart is switched off: the next failure is latched.
    held: bool,
    /// Reason of the stop in progress, reported when it ends.
    blame: Option<Blame>,
    /// Time when its last start was requested. The time until the process exists counts as start time.
    #[serde(default)]
    asked: Option<MonoNs>,
}

/// Reason why a running process will end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Blame {
    Asked,
    Hang,
    Runaway,
    NotReady,
}

impl Unit {
    /// The word in listings.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.state {
            State::Idle if self.stopped => "stopped",
            // It may wait until processes that depend on it have ended.
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
    /// The process whose failed start made the plant go down.
    failed: Option<Id>,
    /// Whether the plant has been up since it was started: a failed start then concerns its process only.
    #[serde(default)]
    was_up: bool,
    /// Whether processes are killed without a request to end.
    #[serde(default)]
    forced: bool,
    #[serde(skip)]
    actions: VecDeque<Action>,
}

impl Supervision {
    /// A plant that is down.
    #[must_use]
    pub fn new(plant: &Plant) -> Self {
        let mut all = Self {
            units: Vec::new(),
            phase: Phase::Down,
            failed: None,
            was_up: false,
            forced: false,
            actions: VecDeque::new(),
        };
        for process in &plant.processes {
            all.add(process);
        }
        all.link(plant);
        all
    }

    /// A plant that was started, without further information. Its processes are found ([`take_up`](Self::take_up)) or
    /// started.
    #[must_use]
    pub fn begun(plant: &Plant) -> Self {
        let mut all = Self::new(plant);
        (all.phase, all.was_up) = (Phase::Starting, true);
        all.units.iter_mut().for_each(|unit| unit.wanted = true);
        all
    }

    /// Adds a running process that is not in the plant file. After [`take_up`](Self::take_up) it is stopped like a
    /// removed one.
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

    /// Handles a process that a continuing supervisor finds alive; [`Event::Started`] follows. `same` is whether the
    /// state refers to this instance. If so, the state remains, and the time without a supervisor does not count
    /// against its readiness. If not, the state is older than the process and is discarded.
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

    /// Handles an event. [`next_action`](Self::next_action) returns the resulting actions.
    pub fn handle(&mut self, now: MonoNs, event: Event) {
        step::handle(self, now, event);
    }

    /// The next action, if any.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Time when [`Event::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<MonoNs> {
        let due = |unit: &Unit| match unit.state {
            State::Warming { until } | State::Stopping { until, .. } => Some(until),
            // A restart that waits for other processes is triggered by their events.
            State::Resting { until } if self.may_start(unit) => Some(until),
            _ => None,
        };
        self.units.iter().filter_map(due).min()
    }

    /// Phase of the whole plant.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The process whose failed start made the plant go down, until the plant is started again.
    #[must_use]
    pub fn failed(&self) -> Option<Id> {
        self.failed
    }

    /// All processes. Removed ones keep their index.
    #[must_use]
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Finds a process of the plant file by name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Id> {
        self.units.iter().position(|unit| unit.spec.name == name && !unit.retired)
    }

    /// Processes that must be stopped before `ids`, because they depend on them.
    #[must_use]
    pub fn needing(&self, ids: &[Id]) -> Vec<Id> {
        let needs = |unit: &Unit| unit.wanted && unit.spec.after.iter().any(|before| ids.contains(before));
        (0..self.units.len()).filter(|id| !ids.contains(id) && needs(&self.units[*id])).collect()
    }

    /// Processes that an operator has stopped and that must run before `ids` can start.
    #[must_use]
    pub fn missing(&self, ids: &[Id]) -> Vec<Id> {
        let before = ids.iter().flat_map(|id| self.units[*id].spec.after.iter().copied());
        let mut missing: Vec<Id> = before.filter(|id| !ids.contains(id) && self.units[*id].stopped).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Time at which a process that is being stopped gets SIGKILL.
    #[must_use]
    pub fn killed_at(&self, id: Id) -> Option<MonoNs> {
        let unit = &self.units[id];
        let State::Stopping { step, until } = unit.state else { return None };
        let left = unit.spec.stop.get(step..).unwrap_or_default();
        Some(left.iter().fold(until, |at, step| at + step.wait))
    }

    /// Whether an instance of any process may exist.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.units.iter().any(|unit| unit.state.is_alive())
    }

    /// Applies a changed plant file: starts new processes, stops removed ones and restarts those whose change requires
    /// it. All others continue.
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

    /// Resolves the names of dependencies, and marks the frames.
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

    /// Whether all processes that it depends on are ready.
    fn may_start(&self, unit: &Unit) -> bool {
        unit.spec.after.iter().all(|id| matches!(self.units[*id].state, State::Running | State::Finished))
    }

    /// Whether all processes that depend on it have ended, and all frames that go down with it.
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
        ready_within: (process.ready.when != ReadyCondition::Started).then_some(process.ready.within),
        restart: process.restart,
        stop: process.stop.clone(),
        has_fault_command: process.on_fault.is_some(),
    }
}

#[cfg(test)]
mod tests;
