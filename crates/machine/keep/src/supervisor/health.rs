//! Health of the plant. Once per second it reads the state of the kernel and of the supervisor's parts, and passes it to the
//! table of promises as observations. States and verdict are decided in `host::health`.

mod ending;
mod figures;
mod limits;
mod news;
#[cfg(test)]
mod observers;
mod place;
mod reached;
mod threads;

use super::probe;
use super::processes::{Processes, Supervised};
use super::pulses::Pulses;
use super::reporter::{Reporter, short};
use super::shielding::Shielding;
use super::site::Site;
use super::watchdog::HardwareWatchdog;
use crate::RunDir;
use crate::group::Group;
use crate::keeper::ending::LEFT_WITHIN;
use crate::keeper::protocol::ChildId;
use crate::shield::Compared;
use base::{DurNs, MonoNs};
use host::health::gap::{Effort, Steps, cause};
use host::health::{
    Claim, INTERVAL, MACHINE, Observation, Outcome, PLANT, SHIELD, SUPERVISOR, Table, own_service, promises,
};
use host::plant::{Bounds, Process, ReadyCondition};
use host::supervise::{Cause, Phase, State, Troubles, Unit};
use news::{Broken, News};
use place::{Place, Room};
use reached::Reached;
use std::borrow::Cow;
use std::path::Path;
use sys::notify::WORKS_EVERY;
use sys::root::RootDir;
use threads::{ProcessFindings, Threads};

pub(crate) use figures::{Progress, judge_pulses, judge_value};

/// Period of reading the shield's journal and settings.
const SHIELD_INTERVAL: DurNs = DurNs::from_secs(5);

/// Period of reading the limits and the control group of a process.
const LIMITS_INTERVAL: DurNs = DurNs::from_secs(5);

/// If the time since the last pass exceeds this, there was a gap in the observations.
const LATE: DurNs = DurNs(INTERVAL.0 * 2);

/// Step of the loop before its first round.
const START: &str = "taking over";

/// Maximum time until a keeper reports the end of its process. The keeper first ends the remaining descendants.
const KEEPER_WITHIN: DurNs = DurNs(LEFT_WITHIN.0 + INTERVAL.0 * 3 / 2);

/// Time for which variables of a service may be unconnected before the plant is degraded, as `connect_within` of alarms. Also for
/// anything else that a service lacks.
const CONNECT_WITHIN: DurNs = DurNs::from_secs(30);

/// Claims about settings that a process has from its start on.
const SETTINGS: [Claim; 3] = [Claim::Class, Claim::Cpus, Claim::Memory];

/// The table of promises, and the state that the observers keep between passes.
#[derive(Debug)]
pub(crate) struct Health {
    table: Table,
    due: MonoNs,
    /// Time of the last pass; before the first one, the time at which the promises were loaded.
    passed: Option<MonoNs>,
    /// Time of the last pass of the supervisor before, until the first pass of this one.
    passed_before: Option<MonoNs>,
    /// Kernel counters of the loop's thread at the last pass.
    effort: Option<Effort>,
    /// Time spent in each step of the loop since the last pass.
    steps: Steps,
    processes: Vec<Memory>,
    place: Option<Place>,
    room: Room,
    lines_lost: u64,
    /// Output of processes that could not be logged since the last pass: bytes, and the name of the last process.
    output_lost: Option<(u64, String)>,
    shield_due: MonoNs,
    /// The observations of the previous supervisor are lost, and this has not been recorded in the table yet.
    lost: bool,
    broken: Broken,
}

/// State kept for a process between passes.
#[derive(Debug, Default)]
struct Memory {
    child: Option<ChildId>,
    /// Time at which this process was first observed.
    born: MonoNs,
    threads: Threads,
    /// The end before its last restart.
    failed_by: String,
    /// How often its limits took effect.
    reached: Reached,
    /// Number of failed runs of its safe-output command.
    safe_outputs_failed: u64,
    /// It has run for long enough to have published its figures.
    has_run: bool,
    /// Time since which a service has reported that it lacks something.
    lacks_since: Option<MonoNs>,
    /// Number of signs of life, and the time at which it last changed.
    beats: Option<(u64, MonoNs)>,
    /// Number of reports of its working loop, and the time at which it last changed.
    rounds: Option<(u64, MonoNs)>,
    /// Time of the next check of its limits and its control group.
    limits_due: MonoNs,
    /// The control group that freezes it.
    frozen: Option<String>,
    /// Time since when the process is gone although its state is still up. Its keeper is about to report the end.
    gone_since: Option<MonoNs>,
}

/// Inputs of the observers.
pub(crate) struct View<'a> {
    pub(crate) site: &'a Site,
    pub(crate) processes: &'a Processes,
    pub(crate) shield: &'a Shielding,
    pub(crate) watchdog: &'a HardwareWatchdog,
    pub(crate) tell: &'a Reporter,
    pub(crate) guard_fault: Option<String>,
    /// The shield is being changed, or is lowered for a comparison. Rows about CPUs are not due then.
    pub(crate) reshield: bool,
}

impl Health {
    /// Creates the table of a plant that was brought up at `since`, or continues the previous supervisor's (`saved`).
    pub(crate) fn new(since: MonoNs, saved: Option<Table>) -> Self {
        let table = saved.unwrap_or_else(|| Table::new(since));
        Self {
            table,
            due: MonoNs(0),
            passed: None,
            passed_before: None,
            effort: None,
            steps: Steps::new(since, START),
            processes: Vec::new(),
            place: None,
            room: Room::default(),
            lines_lost: 0,
            output_lost: None,
            shield_due: MonoNs(0),
            lost: false,
            broken: Broken::default(),
        }
    }

    /// Continues after another supervisor, whose last pass was at `last_pass`. `lost`: its table cannot be read, so its
    /// observations are missing.
    pub(crate) fn follow(&mut self, now: MonoNs, last_pass: Option<MonoNs>, lost: bool) {
        self.passed_before = last_pass.filter(|at| *at <= now);
        self.table.resume(self.passed_before);
        self.lost = lost;
    }

    /// Whether the run folder still belongs to this supervisor. Files of another owner must not be removed.
    pub(crate) fn owns(&self, site: &Site) -> bool {
        self.place.as_ref().is_none_or(|place| place.is_ours(&site.run))
    }

    /// Loads the promises of the plant file into the table.
    pub(crate) fn promise(&mut self, now: MonoNs, site: &Site) {
        self.table.promise(now, promises(&site.plant, site.require_rt));
        self.shield_due = MonoNs(0);
        if self.passed.is_none() {
            self.note_pass(now);
        }
    }

    /// Begins a step of the loop, for the cause of a gap.
    pub(crate) fn step(&mut self, now: MonoNs, step: impl Into<Cow<'static, str>>) {
        self.steps.begin(now, step);
    }

    fn note_pass(&mut self, now: MonoNs) {
        (self.passed, self.effort) = (Some(now), probe::own_effort());
        self.steps.clear(now);
    }

    /// Records a gap in the observations with its cause, if there was one.
    fn gap(&mut self, now: MonoNs) {
        let before = self.passed_before.take().filter(|at| now - *at > LATE);
        let late = self.passed.map_or(DurNs::ZERO, |at| now - at);
        let text = match before {
            Some(at) => format!("no pass for {}: the last one was made by the supervisor before", short(now - at)),
            None if late > LATE => cause(now, late, self.effort.as_ref(), probe::own_effort().as_ref(), &self.steps),
            None => return,
        };
        self.table.gap(now, &text);
        // Messages that processes sent during the gap may still be unread.
        self.processes.iter_mut().for_each(|memory| (memory.beats, memory.rounds) = (None, None));
    }

    /// The table.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The verdict so far.
    pub(crate) fn outcome(&self, now: MonoNs) -> Outcome {
        self.table.outcome(now)
    }

    /// The rows that broke or are kept again since the last call.
    pub(crate) fn news(&mut self, now: MonoNs, processes: &Processes) -> Vec<News> {
        let is_faulted =
            |name: &str| processes.iter().any(|(unit, _)| unit.spec.name == name && unit.state == State::Faulted);
        self.broken.news(now, &self.table, is_faulted)
    }

    /// Time of the next pass.
    pub(crate) fn due(&self) -> MonoNs {
        self.due
    }

    /// Observes every row, if a pass is due.
    pub(crate) fn pass(&mut self, now: MonoNs, view: &View<'_>) {
        if now >= self.due {
            self.observe(now, view);
        }
    }

    /// Observes every row.
    pub(crate) fn observe(&mut self, now: MonoNs, view: &View<'_>) {
        self.due = now + INTERVAL;
        self.gap(now);
        self.note_pass(now);
        view.site.lock.note_pass(now);
        let observes = match (std::mem::take(&mut self.lost), &view.guard_fault) {
            (true, _) => Observation::Broken("the observations of the supervisor before cannot be read".to_owned()),
            (false, Some(fault)) => Observation::Broken(fault.clone()),
            (false, None) => Observation::Kept,
        };
        self.table.observe(now, SUPERVISOR, Claim::Observes, observes);
        self.processes.resize_with(view.processes.ids().len(), Memory::default);
        for (id, (unit, one)) in view.processes.iter().enumerate() {
            let Some(process) = view.site.process(&unit.spec.name).filter(|_| !unit.retired) else { continue };
            self.process(now, id, (unit, one), process, view);
        }
        self.plant(now, view);
        self.table.judge(now);
    }

    /// The last observations, with every process down: processes that never ran or were never ready, and whether the machine
    /// is restored.
    pub(crate) fn close(&mut self, now: MonoNs, view: &View<'_>, whole: Option<&str>) -> Outcome {
        for (unit, supervised) in view.processes.iter() {
            let name = &unit.spec.name;
            if unit.retired || unit.state == State::Faulted || unit.word() == "stopped" {
                continue;
            }
            let found = match (unit.history.starts, unit.history.ready) {
                (0, _) => format!("it was never started{}", waits_for(unit, view.processes)),
                (_, None) => {
                    let missing = view.site.process(name).and_then(|process| process.ready.when.missing());
                    never_ready(unit, missing, super::status::end_in_words(unit, supervised))
                }
                _ => continue,
            };
            self.table.observe(now, name, Claim::Runs, Observation::Broken(found));
        }
        let restored = whole.map_or(Observation::Kept, |why| Observation::Broken(why.to_owned()));
        self.table.observe(now, MACHINE, Claim::Restored, restored);
        self.room.wait(INTERVAL);
        self.records(now, view);
        self.table.close();
        self.table.outcome(now)
    }

    /// Observes the settings of a process that has just been started: it may end before the next pass.
    pub(crate) fn begun(&mut self, now: MonoNs, one: &Supervised, process: &Process, site: &Site, reshield: bool) {
        let is_unobserved = |claim| self.table.is_unobserved(&process.name, claim);
        let Some(child) = one.child.filter(|_| SETTINGS.into_iter().any(is_unobserved)) else { return };
        let found = Threads::default().read(child.pid, process, site);
        if !found.is_dead {
            settings(&mut self.table, now, process, &found, &one.shortfalls, reshield);
        }
    }

    /// The observation of processes that are down after a failure when the plant begins to stop: they do not run.
    pub(crate) fn close_down(&mut self, now: MonoNs, view: &View<'_>) {
        for (unit, supervised) in view.processes.iter().filter(|(unit, _)| !unit.retired && is_down(unit)) {
            let found = format!("it was down at the end of the plant{}", after_end(": ", unit, supervised));
            self.table.observe(now, &unit.spec.name, Claim::Runs, Observation::Broken(found));
        }
    }

    fn process(&mut self, now: MonoNs, id: usize, one: (&Unit, &Supervised), process: &Process, view: &View<'_>) {
        let (unit, supervised) = one;
        let memory = &mut self.processes[id];
        if memory.child != supervised.child {
            (memory.child, memory.threads, memory.beats) = (supervised.child, Threads::default(), None);
            memory.rounds = None;
            memory.gone_since = None;
            (memory.born, memory.limits_due) = (now, MonoNs(0));
        }
        let name = &process.name;
        let (table, history) = (&mut self.table, &unit.history);
        let live = supervised.child.filter(|_| matches!(unit.state, State::Warming { .. } | State::Running));
        let found = live.map(|child| memory.threads.read(child.pid, process, view.site));
        let is_up = matches!(unit.state, State::Warming { .. } | State::Running);
        let is_gone = is_up && found.as_ref().is_none_or(|found| found.is_dead);
        memory.gone_since = if is_gone { memory.gone_since.or(Some(now)) } else { None };
        let alive = found.as_ref().filter(|found| !found.is_dead).map(|found| found.pid);
        let limits = memory.limits(now, alive, process, &supervised.shortfalls, &view.site.run.keeper(name));
        // Whether the process was allowed to end depends on the cause, which its keeper reports.
        let is_reported_soon = memory.gone_since.is_some_and(|since| now - since <= KEEPER_WITHIN);
        let runs = match is_reported_soon {
            true => Observation::NotDue("it has ended; its keeper ends what it left behind".to_owned()),
            false if supervised.link.is_silent() && !is_gone => Observation::Broken(
                "its keeper does not answer: its output is not read and its end is not reported".to_owned(),
            ),
            false => {
                let after = after_end(" after ", unit, supervised);
                let letter = found.as_ref().map(|found| found.letter);
                runs(unit, serves_for_ever(process), letter, view.processes.all.phase(), &after)
            }
        };
        let runs = match (runs, &memory.frozen) {
            (Observation::Kept, Some(frozen)) => Observation::Broken(frozen.clone()),
            (runs, _) => runs,
        };
        if let Some(limits) = limits {
            table.observe(now, name, Claim::Bounds, limits);
        }
        let lost = supervised.log_bytes_lost;
        let more = table.grown(name, Claim::Runs, 0, lost);
        if more > 0 {
            let before = self.output_lost.take().map_or(0, |(bytes, _)| bytes);
            self.output_lost = Some((before + more, process.name.clone()));
        }
        table.observe(now, name, Claim::Runs, runs);
        let word = if is_gone { "gone" } else { unit.word() };
        let waits = || Observation::NotDue(format!("the process is {word}"));
        let has_ended = supervised.child.is_none() && ended_by_itself(unit);
        match found.filter(|found| !found.is_dead) {
            Some(found) => settings(table, now, process, &found, &supervised.shortfalls, view.reshield),
            None => {
                for claim in SETTINGS {
                    let seen = match has_ended && table.is_unobserved(name, claim) {
                        true => Observation::NotObserved("it ended before an observation".to_owned()),
                        false => waits(),
                    };
                    table.observe(now, name, claim, seen);
                }
            }
        }
        let Troubles { unready, deadlines, runaways, starved, hangs } = history.troubles;
        let missing = process.ready.when.missing().map_or(String::new(), |missing| format!(": {missing}"));
        let unready =
            once(table.grown(name, Claim::Ready, 0, unready), &format!("no sign of readiness in time{missing}"));
        table.observe(now, name, Claim::Ready, unready);
        let missed = table.grown(name, Claim::Deadline, 0, deadlines);
        table.observe(now, name, Claim::Deadline, once(missed, "a hard deadline was missed"));
        let [runaways, starved] =
            [(0, runaways), (1, starved)].map(|(nth, total)| table.grown(name, Claim::Budget, nth, total));
        let budget = match (runaways, starved) {
            (0, starved) => once(starved, "it was runnable, and another task had its CPU"),
            (runaways, _) => once(runaways, "it used more than its budget without giving its CPU up"),
        };
        table.observe(now, name, Claim::Budget, budget);
        let heartbeat = match (process.heartbeat, unit.state) {
            _ if table.grown(name, Claim::Heartbeat, 0, hangs) > 0 => {
                Observation::Broken("it hung: no heartbeat in time (WATCHDOG=1 to NOTIFY_SOCKET, or a loop)".to_owned())
            }
            (Some(heartbeat), State::Running) => {
                let silence = memory.silence(now, supervised.signs(), supervised.watch.within(heartbeat.within));
                match (silence, supervised.watch.excess(heartbeat.within)) {
                    (Observation::Kept, Some(excess)) => excess,
                    (silence, _) => silence,
                }
            }
            (Some(_), _) if has_ended && table.is_unobserved(name, Claim::Heartbeat) => never_beat(supervised.signs()),
            _ => waits(),
        };
        table.observe(now, name, Claim::Heartbeat, heartbeat);
        let more = table.grown(name, Claim::Restarts, 0, history.restarts);
        if more > 0 || unit.state == State::Faulted {
            memory.failed_by = after_end(", last after ", unit, supervised);
        }
        table.observe(now, name, Claim::Restarts, restarts(now, unit, more, &memory.failed_by));
        table.observe(now, name, Claim::Stops, ending::stops(unit));
        // Threads may begin a moment after the start.
        let has_rules = unit.state == State::Running && now - memory.born > LATE || has_ended;
        match supervised.watch.unmatched().as_slice() {
            patterns if has_rules && supervised.watch.has_rules() => {
                table.observe(now, name, Claim::Threads, ruled(patterns));
            }
            _ => table.repeat(now, name, Claim::Threads, "its threads may not have begun"),
        }
        if process.bounds != Bounds::default() {
            let group = Group::noted(&view.site.run.keeper(name));
            table.observe(now, name, Claim::Fits, memory.reached.observe(group.as_ref()));
        }
        let safe = supervised.safe_outputs.observe(&mut memory.safe_outputs_failed);
        table.observe(now, name, Claim::SafeOutput, safe);
        let serves = match (&supervised.trouble, own_service(process)) {
            (Some(trouble), _) => Observation::Broken(trouble.clone()),
            (None, Some(service)) if live.is_some() && unit.state == State::Running => {
                let is_begun = process.ready.when != ReadyCondition::Started;
                let lacks = memory.lacks(now, supervised.status_text.as_deref());
                match memory.works(now, supervised.rounds, service.longest_step, is_begun) {
                    Observation::Kept => lacks.unwrap_or(Observation::Kept),
                    other => other,
                }
            }
            _ => waits(),
        };
        table.observe(now, name, Claim::Serves, serves);
        memory.has_run |= has_ended || unit.state == State::Running && now - memory.born > LATE;
        let progress = match (history.starts, memory.has_run) {
            (0, _) => Progress::NotStarted,
            (_, true) => Progress::Begun,
            (_, false) => Progress::Beginning,
        };
        let pulses: Pulses = supervised.pulses();
        let skipped = judge_pulses(&pulses, unit.spec.ends_first, process.miss_ratio_max, progress);
        table.observe(now, name, Claim::Skipped, skipped);
        let value = super::status::value(process, supervised);
        let hard = supervised.told_value.map_or(0, |told| told.hard);
        let value = judge_value(value.as_ref(), process.deadline.as_ref(), hard, progress);
        table.observe(now, name, Claim::Value, value);
        let missing: Vec<&str> =
            supervised.shortfalls.iter().map(String::as_str).filter(|text| threads::is_other(text)).collect();
        table.observe(now, name, Claim::Available, available(&missing));
    }

    /// Observes the rows of the plant as a whole.
    fn plant(&mut self, now: MonoNs, view: &View<'_>) {
        let missing: Vec<&str> =
            view.tell.unavailable(|who| who != SHIELD && view.site.process(who).is_none()).collect();
        self.table.observe(now, PLANT, Claim::Available, available(&missing));
        let refused: Vec<&str> = view.tell.unavailable(|who| who == SHIELD).collect();
        let shield = match view.shield {
            _ if view.reshield => Observation::NotDue("the shield is being changed".to_owned()),
            Shielding::Lacking | Shielding::Raising => match available(&refused) {
                Observation::Kept => Observation::Absent(view.shield.words(&view.site.plant)),
                absent => absent,
            },
            Shielding::Unwanted => Observation::NotDue("no shield".to_owned()),
            Shielding::Stands { .. } => Observation::Kept,
        };
        let refused = (!refused.is_empty()).then(|| in_short_all(&refused));
        self.shield(now, shield, view.shield.is_ours(), refused);
        let all = if view.site.plant.partitions.is_empty() { Vec::new() } else { super::partitions::stand(view.site) };
        for stands in all {
            let seen = match stands.drift.as_slice() {
                [] => Observation::Kept,
                drift => Observation::Broken(drift.join(", ")),
            };
            self.table.observe(now, &host::health::partition(&stands.name), Claim::Bounds, seen);
        }
        self.table.observe(now, "watchdog", Claim::Available, view.watchdog.observation(view.processes.all.phase()));
        let place = self.place.get_or_insert_with(|| Place::of(&view.site.run));
        let living = view.processes.iter().filter(|(_, one)| one.child.is_some());
        let files = place.compare(&view.site.run, living.map(|(unit, _)| unit.spec.name.as_str()));
        self.table.observe(now, SUPERVISOR, Claim::Files, files);
        self.records(now, view);
        self.table.observe(now, MACHINE, Claim::Restored, Observation::NotDue("the plant is up".to_owned()));
    }

    /// Observes the rows of the shield. Checks that read many files run less often.
    fn shield(&mut self, now: MonoNs, seen: Observation, is_ours: bool, refused: Option<String>) {
        let (root, dir) = (RootDir::machine(), RunDir::from_env());
        if seen != Observation::Kept || !is_ours {
            self.table.observe(now, SHIELD, Claim::Journal, seen.clone());
            return self.table.observe(now, SHIELD, Claim::Isolated, seen);
        }
        if now < self.shield_due {
            return;
        }
        self.shield_due = now + SHIELD_INTERVAL;
        let journal = crate::shield::journal_fault(&root, &dir).map_or(Observation::Kept, Observation::Broken);
        self.table.observe(now, SHIELD, Claim::Journal, journal);
        let isolated = match crate::shield::written_over(&root, &dir) {
            Ok(compared) => isolated(compared, refused),
            Err(error) => Observation::Broken(format!("it cannot be read: {error}")),
        };
        self.table.observe(now, SHIELD, Claim::Isolated, isolated);
    }

    /// Observes logs and evidence: no line lost, and disk space left.
    fn records(&mut self, now: MonoNs, view: &View<'_>) {
        let lost = view.tell.lost();
        let more = lost.saturating_sub(std::mem::replace(&mut self.lines_lost, lost));
        let full = self.room.full(&view.site.run, view.site.plant.records.folder.is_some());
        let seen = match self.output_lost.take() {
            Some((bytes, name)) => Some(Observation::Broken(format!(
                "{bytes} bytes of output could not be written to a log, the last of {name}"
            ))),
            None => recorded(more, full, view.tell.forward_fault()),
        };
        if let Some(seen) = seen {
            self.table.observe(now, SUPERVISOR, Claim::Records, seen);
        }
    }
}

/// The time for which a counter has not changed. `last`: its value at the last change, and the time at which that was seen.
pub(crate) fn unchanged_for(last: &mut Option<(u64, MonoNs)>, count: u64, now: MonoNs) -> DurNs {
    match *last {
        Some((before, at)) if before == count => now - at,
        _ => {
            *last = Some((count, now));
            DurNs::ZERO
        }
    }
}

impl Memory {
    /// Observes a service's working loop by the number of its reports. If the readiness of the service does not depend on
    /// its loop (`is_begun` is false), the row is not due before the first report.
    fn works(&mut self, now: MonoNs, rounds: u64, longest_step: DurNs, is_begun: bool) -> Observation {
        let silence = unchanged_for(&mut self.rounds, rounds, now);
        if rounds == 0 && !is_begun {
            return Observation::NotDue("its working loop has not begun".to_owned());
        }
        if silence > DurNs(WORKS_EVERY.0 * 2 + longest_step.0) {
            return Observation::Broken(format!("no answer from its working loop for {}", short(silence)));
        }
        Observation::Kept
    }

    /// Observes what a service lacks, by its own status: connections of variables, threads to record. `None` during the first
    /// [`CONNECT_WITHIN`].
    fn lacks(&mut self, now: MonoNs, status: Option<&str>) -> Option<Observation> {
        let Some(status) = status else {
            self.lacks_since = None;
            return None;
        };
        let since = *self.lacks_since.get_or_insert(now);
        (now - since >= CONNECT_WITHIN).then(|| Observation::Within(status.to_owned()))
    }

    /// Observes limits and control group of the process `pid`, if a check is due. `keeper`: the folder of its keeper.
    fn limits(
        &mut self,
        now: MonoNs,
        pid: Option<i32>,
        process: &Process,
        shortfalls: &[String],
        keeper: &Path,
    ) -> Option<Observation> {
        let Some(pid) = pid else {
            (self.frozen, self.limits_due) = (None, MonoNs(0));
            return Some(Observation::NotDue("the process is not running".to_owned()));
        };
        if now < self.limits_due {
            return None;
        }
        self.limits_due = now + LIMITS_INTERVAL;
        let group = Group::noted(keeper);
        self.frozen = group.as_ref().and_then(limits::frozen);
        Some(limits::limits(&RootDir::machine(), pid, process, group.as_ref(), shortfalls))
    }

    /// Observes the heartbeat by the number of signs of life.
    fn silence(&mut self, now: MonoNs, signs: u64, within: DurNs) -> Observation {
        match unchanged_for(&mut self.beats, signs, now) {
            silence if silence > within => Observation::Broken(format!("no heartbeat for {}", short(silence))),
            _ => Observation::Kept,
        }
    }
}

/// Observes class, CPUs and locked memory of a process. `reshield`: its CPUs are not compared.
fn settings(
    table: &mut Table,
    now: MonoNs,
    process: &Process,
    found: &ProcessFindings,
    shortfalls: &[String],
    reshield: bool,
) {
    let name = &process.name;
    table.observe(now, name, Claim::Class, found.class(shortfalls));
    let cpus = match reshield {
        true => Observation::NotDue("the shield is being changed".to_owned()),
        false => found.cpus(shortfalls),
    };
    table.observe(now, name, Claim::Cpus, cpus);
    if process.mlock {
        let memory = threads::memory(&RootDir::machine(), found.pid, shortfalls);
        table.observe(now, name, Claim::Memory, memory);
    }
}

/// The observation of thread rules. `unmatched`: patterns that no thread has matched.
fn ruled(unmatched: &[&str]) -> Observation {
    let named = unmatched.iter().map(|pattern| format!("{pattern:?}")).collect::<Vec<_>>().join(", ");
    if unmatched.is_empty() { Observation::Kept } else { Observation::Absent(format!("no thread matches {named}")) }
}

/// Whether the last end of a process was not requested.
fn ended_by_itself(unit: &Unit) -> bool {
    matches!(unit.history.ended, Some((_, Cause::Own(_))))
}

/// The observation of the heartbeat of a process that ended before the first pass. Its start counts as one of `signs`.
fn never_beat(signs: u64) -> Observation {
    match signs {
        0 | 1 => Observation::NotObserved("it ended without a sign of life".to_owned()),
        _ => Observation::Kept,
    }
}

/// Maximum number of shield differences listed; the rest are counted.
const NAMED_MAX: usize = 8;

/// Whether the shield is as it was applied. `refused`: settings that the kernel refused at the start.
fn isolated(compared: Compared, refused: Option<String>) -> Observation {
    let drift = &compared.drift;
    if !drift.is_empty() {
        let mut words: Vec<String> = drift.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        if drift.len() > NAMED_MAX {
            words.push(format!("and {} more", drift.len() - NAMED_MAX));
        }
        return Observation::Broken(words.join(", "));
    }
    let unavailable: Vec<String> = refused.into_iter().chain(compared.unavailable).collect();
    match unavailable.is_empty() {
        true => Observation::Kept,
        false => Observation::Within(format!("unavailable: {}", unavailable.join("; "))),
    }
}

/// The last end of a process with the last line of its output, behind `before`; empty if it has not ended.
fn after_end(before: &str, unit: &Unit, one: &Supervised) -> String {
    super::status::end_in_words(unit, one).map_or(String::new(), |end| format!("{before}{end}"))
}

/// Why a process was never ready: what is `missing`, unless it `ended` by itself, which comes first then.
fn never_ready(unit: &Unit, missing: Option<String>, ended: Option<String>) -> String {
    let is_own =
        unit.history.ended.as_ref().is_some_and(|(_, cause)| !matches!(cause, Cause::NotReady | Cause::Asked(_)));
    let reasons = if is_own { [ended, None] } else { [missing, ended] };
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    let colon = if reasons.is_empty() { "" } else { ": " };
    format!("it was never ready{colon}{}", reasons.join("; "))
}

/// Whether a process that was ready has failed since, and does not run again.
fn is_down(unit: &Unit) -> bool {
    let has_failed = |cause: &Cause| cause.is_failure() || matches!(cause, Cause::NoStart(_));
    matches!(unit.state, State::Resting { .. } | State::Launching | State::Warming { .. })
        && unit.history.ready.is_some()
        && unit.history.ended.as_ref().is_some_and(|(_, cause)| has_failed(cause))
}

/// The processes that must be ready before `unit` and never were.
fn waits_for(unit: &Unit, processes: &Processes) -> String {
    let never = unit.spec.after.iter().filter(|id| processes.unit(**id).history.ready.is_none());
    let names: Vec<&str> = never.map(|id| processes.name(*id)).collect();
    if names.is_empty() { String::new() } else { format!(": it waited for {}", names.join(", ")) }
}

/// Whether a process is a service that does not end by itself, as a guest does that its user shuts down.
fn serves_for_ever(process: &Process) -> bool {
    own_service(process).is_some_and(|service| service.command != "guest")
        && !process.command.iter().any(|word| ["--for", "--check", "--headers"].iter().any(|end| word.starts_with(end)))
}

/// Whether a process runs, judged by its state and by the state letter that the kernel reports. `for_ever`: it does not end by
/// itself. `after` names its last end.
fn runs(unit: &Unit, for_ever: bool, letter: Option<char>, phase: Phase, after: &str) -> Observation {
    match (unit.state, letter) {
        (State::Warming { .. } | State::Running, Some('T')) => {
            let name = &unit.spec.name;
            Observation::Broken(format!("stopped by a signal (state T); `tahti signal CONT {name}` continues it"))
        }
        (State::Warming { .. } | State::Running, Some('t')) => {
            Observation::Broken("stopped by a debugger or tracer (state t)".to_owned())
        }
        (State::Warming { .. } | State::Running, None | Some('Z' | 'X')) => {
            Observation::Broken("its process has ended, and its keeper does not report that".to_owned())
        }
        (State::Warming { .. }, Some(_)) => Observation::NotDue("not ready yet".to_owned()),
        (State::Finished, _) if for_ever && matches!(phase, Phase::Starting | Phase::Up) => {
            Observation::Broken(format!("the service has ended without `tahti stop`{after}"))
        }
        (State::Running, Some(_)) | (State::Finished, _) => Observation::Kept,
        (State::Resting { .. }, _) => Observation::Within(format!("waits for its restart{after}")),
        (State::Faulted, _) => {
            let remedy = match phase {
                Phase::Up => format!("; `tahti start {}` starts it again", unit.spec.name),
                _ => String::new(),
            };
            Observation::Broken(format!("its fault is latched{after}{remedy}"))
        }
        (State::Idle, _) if matches!(phase, Phase::Starting | Phase::Up) => {
            let why = if unit.word() == "stopped" { "stopped on request" } else { "waits for processes before it" };
            Observation::NotDue(why.to_owned())
        }
        (State::Idle | State::Launching | State::Stopping { .. }, _) => Observation::NotDue(unit.word().to_owned()),
    }
}

/// Observation for an event that must not happen. `more`: how often it happened since the last pass.
fn once(more: u64, what: &str) -> Observation {
    match more {
        0 => Observation::Kept,
        1 => Observation::Broken(what.to_owned()),
        more => Observation::Broken(format!("{what}, {more} times")),
    }
}

/// Observes the restarts: within the limit while there was one within the window, broken once the fault is latched because of
/// their number. `more`: restarts since the last pass. `last` names the last end.
fn restarts(now: MonoNs, unit: &Unit, more: u64, last: &str) -> Observation {
    let (history, rule) = (&unit.history, &unit.spec.restart);
    let recent = history.recent.iter().filter(|at| now - **at < rule.window).count();
    let times = match history.restarts {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    if unit.state == State::Faulted && !history.recent.is_empty() && history.recent.len() >= rule.limit as usize {
        return Observation::Broken(format!("restarted {times}, and failed once more{last}"));
    }
    match (recent, more) {
        (0, 0) => Observation::Kept,
        _ => Observation::Within(format!("restarted {times}{last}")),
    }
}

/// Whether logs and evidence are kept. `more`: lines lost since the last pass. `full`: the report about the room; `None` if the
/// disk has not answered. `forward`: why no line reaches the system journal.
fn recorded(more: u64, full: Option<Option<String>>, forward: Option<String>) -> Option<Observation> {
    Some(match (more, full, forward) {
        (0, None, _) => return None,
        (0, Some(Some(full)), _) => Observation::Broken(full),
        (0, Some(None), Some(forward)) => Observation::Absent(forward),
        (0, Some(None), None) => Observation::Kept,
        (more, ..) => Observation::Broken(format!("{more} lines could not be written to the log")),
    })
}

fn available(missing: &[&str]) -> Observation {
    match missing {
        [] => Observation::Kept,
        missing => Observation::Absent(in_short_all(missing)),
    }
}

/// The unavailable settings, without reasons and remedies, which are in the log.
fn in_short_all(texts: &[&str]) -> String {
    texts.iter().map(|text| threads::in_short(text)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(count: u64) -> MonoNs {
        MonoNs(count * 1_000_000_000)
    }

    #[test]
    fn a_service_is_broken_while_its_loop_is_silent_for_longer_than_its_longest_step() {
        let mut memory = Memory::default();
        let step = DurNs::from_secs(5);
        let kept = |seen| assert_eq!(seen, Observation::Kept);
        kept(memory.works(second(10), 3, step, true));
        kept(memory.works(second(11), 4, step, true));
        kept(memory.works(second(18), 4, step, true));
        let broken = Observation::Broken("no answer from its working loop for 8.0 s".to_owned());
        assert_eq!(memory.works(second(19), 4, step, true), broken);
        kept(memory.works(second(20), 5, step, true));
    }

    #[test]
    fn a_service_is_degraded_if_a_variable_is_not_connected_for_30_seconds() {
        let mut memory = Memory::default();
        let (text, within) =
            ("1 of 2 variables not connected: A", |text: &str| Some(Observation::Within(text.to_owned())));
        assert_eq!([memory.lacks(second(1), Some(text)), memory.lacks(second(30), Some(text))], [None, None]);
        assert_eq!(memory.lacks(second(31), Some(text)), within(text));
        assert_eq!(memory.lacks(second(32), None), None);
        assert_eq!([memory.lacks(second(33), Some(text)), memory.lacks(second(62), Some(text))], [None, None]);
        assert_eq!(memory.lacks(second(63), Some("2 of 2")), within("2 of 2"));
    }

    #[test]
    fn a_service_that_never_reports_is_broken_unless_its_readiness_does_not_depend_on_its_loop() {
        for is_begun in [true, false] {
            let mut memory = Memory::default();
            memory.works(second(1), 0, DurNs::ZERO, is_begun);
            let seen = memory.works(second(9), 0, DurNs::ZERO, is_begun);
            assert_eq!(matches!(seen, Observation::Broken(_)), is_begun, "{seen:?}");
        }
    }
}
