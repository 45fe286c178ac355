//! The explainer: tracks CPUs and watched threads, and attributes each delay to its causes.

mod blame;
mod watched;

pub(crate) use blame::class;
pub use watched::PROGRAM_EVENTS_SHOWN;

use crate::culprit::{Late, Occasion};
use crate::event::{Event, EventKind, Name, ProgramEvent, Task};
use crate::merge::Item;
use crate::summary::Summary;
use crate::symbols::Symbols;
use crate::timeline::{Doing, Sender, Timeline};
use base::{CpuId, DurNs, MonoNs};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use watched::{State, Watched, Woken};

/// Maximum tasks and timers in memory, more than a machine has. Beyond this, all are dropped and learned again.
const REMEMBERED_MAX: usize = 1 << 17;
/// Maximum senders of interrupts to be named per round.
const UNNAMED_MAX: usize = 64;
/// Maximum names of events of programs that are counted.
const NAMES_MAX: usize = 256;
/// Maximum age, in nanoseconds, of a sent interrupt when it arrives.
const SENT_NS_MAX: u64 = 10_000_000;

/// Maximum time, in nanoseconds, from queuing a function call to sending its interrupt.
const QUEUED_NS_MAX: u64 = 50_000;

/// First priority of time sharing; real-time priorities are below.
const TIME_SHARING: i32 = 100;

/// Offsets of the other clocks from the monotonic clock, in nanoseconds. Timers may use any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Clocks {
    /// Wall time.
    pub wall: i64,
    /// Time since boot, sleep included.
    pub boot: i64,
    /// International Atomic Time.
    pub tai: i64,
}

/// Properties of the machine.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether a hypervisor may take CPUs away.
    pub hypervisor: bool,
    /// Exit latency of each idle state in nanoseconds.
    pub idle_exit_ns: Vec<u64>,
    /// The clocks.
    pub clocks: Clocks,
    /// Symbols of the kernel.
    pub symbols: Symbols,
}

/// State of a task, derived from events.
#[derive(Clone, Copy, Debug, Default)]
struct TaskState {
    task: Task,
    lent: bool,
    work: Option<u64>,
    syscall: Option<i64>,
}

/// State of a timer, derived from events.
#[derive(Clone, Copy, Debug, Default)]
struct Timer {
    clock: Option<i32>,
    armed: Option<Armed>,
}

/// Expiry of a timer, on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Armed {
    due: MonoNs,
    latest: MonoNs,
}

/// Tracks events and explains delays.
#[derive(Debug)]
pub struct Explainer {
    facts: Facts,
    above: u64,
    cycle_above: Option<u64>,
    cpus: BTreeMap<CpuId, Timeline>,
    tasks: HashMap<i32, TaskState>,
    timers: HashMap<u64, Timer>,
    irqs: HashMap<i32, Name>,
    sent: BTreeMap<CpuId, (MonoNs, Sender)>,
    /// The last function queued for each CPU, with sender and time.
    queued: BTreeMap<CpuId, (MonoNs, i32, u64)>,
    /// The timer whose callback is running on each CPU.
    firing: BTreeMap<CpuId, u64>,
    /// Senders of interrupts whose names are unknown.
    unnamed: BTreeSet<i32>,
    watched: BTreeMap<i32, Watched>,
    /// Name of the plant's process of each of its threads.
    processes: BTreeMap<i32, String>,
    /// Number of events that watched threads themselves reported, by name.
    program_events: BTreeMap<Name, u64>,
    real_time: Summary,
    ordinary: Summary,
}

impl Explainer {
    /// Explains wake-ups later than `above` and cycles longer than `cycle_above`. Keeps the `worst_max` longest delays.
    #[must_use]
    pub fn new(facts: Facts, above: DurNs, cycle_above: Option<DurNs>, worst_max: usize) -> Self {
        let ns = |span: DurNs| span.0.max(0) as u64;
        Self {
            facts,
            above: ns(above),
            cycle_above: cycle_above.map(ns),
            cpus: BTreeMap::new(),
            tasks: HashMap::new(),
            timers: HashMap::new(),
            irqs: HashMap::new(),
            sent: BTreeMap::new(),
            queued: BTreeMap::new(),
            firing: BTreeMap::new(),
            unnamed: BTreeSet::new(),
            watched: BTreeMap::new(),
            processes: BTreeMap::new(),
            program_events: BTreeMap::new(),
            real_time: Summary::new(worst_max),
            ordinary: Summary::new(worst_max),
        }
    }

    /// Starts watching a thread.
    pub fn watch(&mut self, tid: i32, name: &str) {
        self.watched.entry(tid).or_insert_with(|| Watched::new(tid, Name::of(name.as_bytes())));
    }

    /// Watches exactly these threads.
    pub fn watch_only<'a>(&mut self, threads: impl Iterator<Item = (i32, &'a str)>) {
        let mut before = std::mem::take(&mut self.watched);
        for (tid, name) in threads {
            let watched = before.remove(&tid).unwrap_or_else(|| Watched::new(tid, Name::of(name.as_bytes())));
            self.watched.insert(tid, watched);
        }
    }

    /// Sets whether the delays of a watched thread count in [`real_time`](Self::real_time) in a time-sharing class too.
    pub fn count_in_every_class(&mut self, tid: i32, counts: bool) {
        if let Some(watched) = self.watched.get_mut(&tid) {
            watched.every_class = counts;
        }
    }

    /// Sets the name of the plant's process of each of its threads. Culprits contain it.
    pub fn name_processes(&mut self, processes: BTreeMap<i32, String>) {
        self.processes = processes;
    }

    /// The watched threads.
    pub fn watched(&self) -> impl Iterator<Item = i32> + '_ {
        self.watched.keys().copied()
    }

    /// Whether delays of a watched thread count in [`real_time`](Self::real_time).
    #[must_use]
    pub fn is_real_time(&self, tid: i32) -> bool {
        self.watched.get(&tid).is_some_and(|watched| watched.counts(watched.prio))
    }

    /// Last known kernel priority of a watched thread.
    #[must_use]
    pub fn prio(&self, tid: i32) -> Option<i32> {
        self.watched.get(&tid).map(|watched| watched.prio)
    }

    /// Names senders of interrupts that no event has named: a thread that never leaves its CPU appears in no switch. `name`
    /// returns the name of an existing thread. Call this after each round. Senders of earlier rounds remain unnamed.
    pub fn name_senders(&mut self, name: impl Fn(i32) -> Option<String>) {
        for tid in std::mem::take(&mut self.unnamed) {
            let known = self.tasks.entry(tid).or_default();
            if let Some(name) = name(tid).filter(|_| known.task.name == Name::default()) {
                known.task = Task { tid, prio: TIME_SHARING + 20, name: Name::of(name.as_bytes()) };
            }
        }
    }

    /// Attributes a watched thread's time in an interval to contiguous causes. Empty if the thread is not watched.
    #[must_use]
    pub fn within(&mut self, tid: i32, from: MonoNs, to: MonoNs) -> Vec<crate::DelayPart> {
        // The kernel records no switch out of idle. A thread that causes no events itself is visible only through interrupts.
        if let Some(watched) = self.watched.get_mut(&tid)
            && let State::Ready { cpu, since } = watched.state()
            && let Some(begun) = self.cpus.get(&cpu).and_then(|cpu| cpu.runs_since(tid))
        {
            watched.enter(begun.max(since), State::Running(cpu));
        }
        self.watched.get(&tid).map_or_else(Vec::new, |watched| self.parts(watched, from, to))
    }

    /// Properties of the machine.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Totals for threads in real-time classes, and for those of [`count_in_every_class`](Self::count_in_every_class).
    #[must_use]
    pub fn real_time(&self) -> &Summary {
        &self.real_time
    }

    /// Totals for other threads, which have no latency guarantees.
    #[must_use]
    pub fn ordinary(&self) -> &Summary {
        &self.ordinary
    }

    /// Number of events that watched threads themselves reported, by name; the first 256 names.
    #[must_use]
    pub fn program_events(&self) -> &BTreeMap<Name, u64> {
        &self.program_events
    }

    /// A thread reported an event. It changes no state: the kernel's events are exact.
    fn reports(&mut self, event: &Event, name: Name, value: i64) {
        let Some(watched) = self.watched.get_mut(&event.tid) else { return };
        watched.reports(ProgramEvent { at: event.at, cpu: event.cpu, tid: event.tid, name: name.to_string(), value });
        if self.program_events.len() < NAMES_MAX || self.program_events.contains_key(&name) {
            *self.program_events.entry(name).or_default() += 1;
        }
    }

    fn summary_of(&mut self, tid: i32, prio: i32) -> &mut Summary {
        let counts = self.watched.get(&tid).is_some_and(|watched| watched.counts(prio));
        if counts { &mut self.real_time } else { &mut self.ordinary }
    }

    /// Takes the next event, in order over all CPUs (see [`crate::Merge`]). Passes each delay to `late`.
    pub fn take(&mut self, (at, cpu, event): &Item, mut late: impl FnMut(&Late)) {
        let Some(event) = event else {
            return self.lose(*cpu);
        };
        if let EventKind::Program { name, value } = event.what {
            return self.reports(event, name, value);
        }
        if self.tasks.len() > REMEMBERED_MAX || self.timers.len() > REMEMBERED_MAX {
            (self.tasks, self.timers) = (HashMap::new(), HashMap::new());
        }
        // An interrupt on top of a woken thread shows that the thread has the CPU, even if it causes no event itself.
        let found = |watched: &Watched| !event.interrupt || matches!(watched.state(), State::Ready { .. });
        if self.watched.get(&event.tid).is_some_and(found) {
            self.acts(event, &mut late);
        }
        self.learn(event);
        let sender = match event.what {
            EventKind::VectorEntry(_) => {
                let sent = self.sent.remove(cpu).filter(|(when, _)| at.0.saturating_sub(when.0) <= SENT_NS_MAX);
                sent.map(|(_, sender)| sender)
            }
            _ => None,
        };
        let tasks = &self.tasks;
        let known = |tid: i32| {
            let known = tasks
                .get(&tid)
                .copied()
                .unwrap_or(TaskState { task: Task { tid, ..Task::default() }, ..TaskState::default() });
            let (work, syscall) = (known.work, known.syscall);
            Doing { known: true, task: known.task, since: *at, top: None, idle: None, work, syscall }
        };
        self.cpus.entry(*cpu).or_default().take(event, known, sender);
        self.follow(event, &mut late);
    }

    /// Events of a CPU were lost: the state of the threads since the last event is unknown, and pending wake-ups may have ended.
    fn lose(&mut self, cpu: CpuId) {
        let timeline = self.cpus.entry(cpu).or_default();
        timeline.lose();
        let since = timeline.heard_at;
        self.firing.remove(&cpu);
        for watched in self.watched.values_mut() {
            (watched.woken, watched.cycle, watched.timer) = (None, None, None);
            watched.enter(since, State::Unknown);
        }
    }

    /// Updates tasks, timers and senders from an event.
    fn learn(&mut self, event: &Event) {
        match &event.what {
            EventKind::Switch { from, to, .. } => {
                for task in [from, to] {
                    self.tasks.entry(task.tid).or_default().task = *task;
                }
            }
            EventKind::Waking { task, .. } => self.tasks.entry(task.tid).or_default().task = *task,
            EventKind::Lent { tid, from, to } => self.tasks.entry(*tid).or_default().lent = to < from,
            EventKind::WorkStart { function } => self.tasks.entry(event.tid).or_default().work = Some(*function),
            EventKind::WorkEnd => self.tasks.entry(event.tid).or_default().work = None,
            EventKind::SyscallEntry { number } => self.tasks.entry(event.tid).or_default().syscall = Some(*number),
            EventKind::SyscallExit => self.tasks.entry(event.tid).or_default().syscall = None,
            EventKind::Exit { tid } => _ = self.tasks.remove(tid),
            EventKind::TimerSetup { timer, clock, relative } => {
                let clock = if *clock == 0 && *relative { 1 } else { *clock };
                self.timers.insert(*timer, Timer { clock: Some(clock), armed: None });
            }
            EventKind::TimerStart { timer, expires, soft, .. } => {
                let entry = self.timers.entry(*timer).or_default();
                let clocks = &self.facts.clocks;
                let off = match entry.clock {
                    Some(0) => clocks.wall,
                    Some(7) => clocks.boot,
                    Some(11) => clocks.tai,
                    Some(_) => 0,
                    // Initialized before the recording began: a time decades away is wall time.
                    None if clocks.wall != 0 && *soft > clocks.wall => clocks.wall,
                    None => 0,
                };
                // A thread that requests a time before its first known event does not follow a schedule: it is due now.
                let known = self.watched.get(&event.tid).filter(|_| !event.interrupt);
                let asked = known.map(|watched| watched.known_since().unwrap_or(event.at));
                let mono = |ns: i64| {
                    let at = MonoNs(ns.saturating_sub(off).max(0) as u64);
                    if asked.is_some_and(|since| at < since) { event.at } else { at }
                };
                entry.armed = Some(Armed { due: mono(*soft), latest: mono(*expires) });
            }
            EventKind::TimerCancel { timer } => {
                if let Some(timer) = self.timers.get_mut(timer) {
                    timer.armed = None;
                }
            }
            EventKind::IrqEntry { irq, name } if self.irqs.len() < REMEMBERED_MAX => _ = self.irqs.insert(*irq, *name),
            EventKind::CallQueued { cpu, function } => _ = self.queued.insert(*cpu, (event.at, event.tid, *function)),
            EventKind::IpiSent { cpus, callback } => {
                let unnamed = Task { tid: event.tid, ..Task::default() };
                let task = self.tasks.get(&event.tid).map_or(unnamed, |known| known.task);
                if task.name == Name::default() && event.tid != 0 && self.unnamed.len() < UNNAMED_MAX {
                    self.unnamed.insert(event.tid);
                }
                for cpu in cpus.iter() {
                    // The interrupt itself names only the kernel's dispatcher.
                    let queued = self
                        .queued
                        .get(&cpu)
                        .filter(|(at, tid, _)| *tid == event.tid && event.at.0.saturating_sub(at.0) <= QUEUED_NS_MAX);
                    let callback = queued.map_or(*callback, |(.., function)| *function);
                    self.sent.insert(cpu, (event.at, Sender { task, cpu: event.cpu, callback }));
                }
            }
            _ => {}
        }
    }

    /// Updates the watched threads from an event.
    fn follow(&mut self, event: &Event, late: &mut impl FnMut(&Late)) {
        let (at, cpu) = (event.at, event.cpu);
        match &event.what {
            EventKind::TimerFire { timer, .. } => _ = self.firing.insert(cpu, *timer),
            EventKind::TimerFired { .. } => _ = self.firing.remove(&cpu),
            EventKind::Waking { task, cpu: target } => {
                let firing = self.firing.get(&cpu).copied();
                let armed = |timer: u64| self.timers.get(&timer).and_then(|timer| timer.armed);
                let interrupted_at = self.cpus.get(&cpu).and_then(Timeline::interrupted_at).unwrap_or(at);
                let Some(watched) = self.watched.get_mut(&task.tid) else { return };
                watched.prio = task.prio;
                let own = watched.timer.and_then(armed).filter(|own| own.due <= at);
                let due = firing.and_then(armed).or(own);
                if let (State::Running(on), Some(_), Some(armed)) = (watched.state(), firing, due) {
                    // It was due before it went to sleep, and is woken before it sleeps.
                    watched.timer = None;
                    return self.ran(at, on, task, Woken { due: armed.due.min(at), occasion: Occasion::Timer }, late);
                }
                watched.wakes(at, cpu, *target, due.map(|armed| (armed.due, armed.latest)), interrupted_at, event.tid);
                if firing.is_some() && due.is_none() {
                    // Woken by a timer armed before the recording began: the delay is unknown.
                    watched.woken = None;
                }
            }
            EventKind::Stack { callers } => {
                let fresh = self.watched.values_mut().find(|watched| watched.wakes_now(cpu));
                if let Some(watched) = fresh {
                    watched.stack = callers.clone();
                }
            }
            EventKind::Migrate { tid, cpu: to } => {
                if let Some(watched) = self.watched.get_mut(tid) {
                    watched.goes_to(at, *to);
                }
            }
            EventKind::TimerStart { timer, .. } if !event.interrupt => {
                if let Some(watched) = self.watched.get_mut(&event.tid) {
                    watched.timer = Some(*timer);
                }
            }
            EventKind::TimerCancel { timer } => {
                let armed = self.watched.values_mut().filter(|watched| watched.timer == Some(*timer));
                armed.for_each(|watched| watched.timer = None);
            }
            EventKind::PageFault { .. } => {
                if let Some(watched) = self.watched.get_mut(&event.tid) {
                    watched.faults(at);
                }
            }
            EventKind::Exit { tid } => {
                if let Some(watched) = self.watched.get_mut(tid) {
                    watched.enter(at, State::Unknown);
                }
            }
            EventKind::Switch { from, state, to } => {
                if self.watched.contains_key(&from.tid) {
                    self.leaves(at, cpu, from.tid, *state, late);
                }
                if self.watched.contains_key(&to.tid) {
                    self.runs(at, cpu, to, late);
                }
            }
            _ => {}
        }
    }

    /// A watched thread is active although no switch to it was recorded: the kernel records none out of idle.
    fn acts(&mut self, event: &Event, late: &mut impl FnMut(&Late)) {
        let Some(watched) = self.watched.get(&event.tid) else { return };
        match watched.state() {
            State::Running(_) => {}
            State::Ready { since, .. } => {
                let at = self.cpus.get(&event.cpu).map_or(event.at, |cpu| match cpu.left_idle_at() {
                    _ if cpu.woke_at > since => cpu.woke_at,
                    // Its timer fired while the CPU was already leaving its idle state.
                    Some(last) => last.max(since),
                    None => event.at,
                });
                let task = Task { tid: event.tid, prio: watched.prio, name: watched.name };
                self.runs(at, event.cpu, &task, late);
            }
            // Its wake-up was not recorded either.
            _ => {
                let cpu = event.cpu;
                if let Some(watched) = self.watched.get_mut(&event.tid) {
                    watched.enter(event.at, State::Running(cpu));
                }
            }
        }
    }

    /// A watched thread gets a CPU.
    fn runs(&mut self, at: MonoNs, cpu: CpuId, task: &Task, late: &mut impl FnMut(&Late)) {
        let Some(watched) = self.watched.get_mut(&task.tid) else { return };
        (watched.prio, watched.name) = (task.prio, task.name);
        let woken = watched.woken.take();
        watched.enter(at, State::Running(cpu));
        let Some(woken) = woken else { return };
        self.ran(at, cpu, task, woken, late);
    }

    /// A woken thread runs.
    fn ran(&mut self, at: MonoNs, cpu: CpuId, task: &Task, woken: Woken, late: &mut impl FnMut(&Late)) {
        if woken.occasion == Occasion::Timer
            && let Some(watched) = self.watched.get_mut(&task.tid)
        {
            watched.cycle = Some(at);
        }
        let delay = at.0.saturating_sub(woken.due.0);
        self.summary_of(task.tid, task.prio).woke(delay);
        if delay > self.above {
            self.tell(task.tid, woken.occasion, cpu, woken.due, at, late);
        }
    }

    /// A watched thread leaves its CPU.
    fn leaves(&mut self, at: MonoNs, cpu: CpuId, tid: i32, state: u64, late: &mut impl FnMut(&Late)) {
        const PREEMPTED: u64 = 0x100;
        const STOPPED: u64 = 0x4 | 0x8;
        let Some(watched) = self.watched.get_mut(&tid) else { return };
        let armed = watched.timer.and_then(|timer| self.timers.get(&timer)).is_some_and(|timer| timer.armed.is_some());
        let next = match state {
            state if state & 0xff == 0 || state & PREEMPTED != 0 => State::Ready { cpu, since: at },
            state if state & STOPPED != 0 => State::Stopped,
            _ if armed => State::Asleep,
            _ => State::Blocked { waker: 0 },
        };
        let cycle = watched.cycle.filter(|_| next == State::Asleep);
        watched.enter(at, next);
        if let Some(begin) = cycle {
            watched.cycle = None;
            if self.cycle_above.is_some_and(|above| at.0.saturating_sub(begin.0) > above) {
                self.tell(tid, Occasion::Cycle, cpu, begin, at, late);
            }
        }
    }

    /// Attributes a delay, adds it to the totals and reports it.
    fn tell(
        &mut self,
        tid: i32,
        occasion: Occasion,
        cpu: CpuId,
        due: MonoNs,
        ran: MonoNs,
        late: &mut impl FnMut(&Late),
    ) {
        let Some(watched) = self.watched.get(&tid) else { return };
        let told = Late {
            tid,
            name: watched.name.to_string(),
            occasion,
            cpu,
            due,
            ran,
            parts: self.parts(watched, due, ran),
            faults: watched.faults_between(due, ran),
            stack: watched.stack.iter().map(|&caller| self.facts.symbols.show(caller)).collect(),
            program_events: watched.reported_until(ran),
        };
        late(&told);
        let prio = watched.prio;
        self.summary_of(tid, prio).add(told);
    }
}
