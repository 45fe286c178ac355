//! The promises of a plant file, as rows.

use crate::plant::{Budget, Cpus, Limits, Partition, Plant, Process, ReadyCondition, RestartPolicy};
use base::{DurNs, Policy, RtLevel};
use serde::{Deserialize, Serialize};

/// Interval between observations of a row.
pub const INTERVAL: DurNs = DurNs::from_secs(1);

/// Interval for rows whose observation reads the whole machine.
const SLOW_INTERVAL: DurNs = DurNs::from_secs(5);

/// The subject of the plant's own promises.
pub const PLANT: &str = "plant";
/// The subject of the shield's promises.
pub const SHIELD: &str = "shield";
/// The subject of the supervisor's promises.
pub const SUPERVISOR: &str = "supervisor";
/// The subject of promises about the machine after the plant.
pub const MACHINE: &str = "machine";

/// The subject of a partition's promise.
#[must_use]
pub fn partition(name: &str) -> String {
    format!("partition {name}")
}

/// Kind of promise, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// The process exists and is not stopped.
    Runs,
    /// The process becomes ready in time.
    Ready,
    /// The threads have their class, priority and nice value.
    Class,
    /// Each rule for threads has a thread.
    Threads,
    /// The threads have their CPUs.
    Cpus,
    /// The memory is locked.
    Memory,
    /// The process is not restarted more often than the limit.
    Restarts,
    /// The process sends heartbeats in time.
    Heartbeat,
    /// The process yields its CPU, and gets it.
    Budget,
    /// The number of skipped periods is within the limit.
    Skipped,
    /// The results have the value that the plant file requires.
    Value,
    /// The process misses no hard deadline.
    Deadline,
    /// The service works, by its own report.
    Serves,
    /// The process ends by itself when it is asked to.
    Stops,
    /// The process stays below its limits of memory and tasks.
    Fits,
    /// The command that sets safe outputs succeeds.
    SafeOutput,
    /// Everything that the plant file requests is available.
    Available,
    /// The CPUs are isolated as they were when the shield was applied.
    Isolated,
    /// The journal of the old values is complete.
    Journal,
    /// Limits of a partition or a process have the values that were written.
    Bounds,
    /// The supervisor observes every second.
    Observes,
    /// The files of the run folder belong to this supervisor.
    Files,
    /// Every line is logged, every incident has its evidence.
    Records,
    /// The machine is as it was before the plant.
    Restored,
}

/// One promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// A process or a part of the plant.
    pub subject: String,
    /// Kind of promise.
    pub claim: Claim,
    /// The promise for users, with the values of the plant file.
    pub words: String,
    /// Line of the plant file; `None` for a default.
    pub line: Option<u32>,
    /// The included file of the line; `None` for the plant file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The plant counts as up without the subject. A broken promise degrades it.
    pub optional: bool,
    /// It is an error if the machine does not provide it.
    pub required: bool,
    /// Judged by the last state only, because it is a figure over the whole life.
    pub whole_life: bool,
    /// Interval between observations.
    pub interval: DurNs,
}

/// All promises of a plant. With `require_rt` everything must be available.
#[must_use]
pub fn promises(plant: &Plant, require_rt: bool) -> Vec<Promise> {
    let mut all = List { plant, all: Vec::new(), require_rt };
    for process in &plant.processes {
        all.process(process);
    }
    if let Some(shield) = &plant.shield {
        let required = require_rt || shield.required;
        let words = format!("CPUs {} isolated", shield.cpus);
        let isolated = all.slow(SHIELD, Claim::Isolated, words, "[shield].cpus");
        isolated.required = required;
        all.slow(SHIELD, Claim::Journal, "journal of the old values complete".to_owned(), "[shield]");
    }
    for one in &plant.partitions {
        all.partition(one);
    }
    if let Some(watchdog) = &plant.watchdog {
        let words = format!("machine resets after {} without a sign", watchdog.timeout);
        all.add("watchdog", Claim::Available, words, "[watchdog]");
    }
    all.add(PLANT, Claim::Available, "everything in the plant file is available".to_owned(), "");
    all.add(SUPERVISOR, Claim::Observes, "observes every row".to_owned(), "");
    all.add(SUPERVISOR, Claim::Files, "run folder and its files are its own".to_owned(), "");
    all.add(SUPERVISOR, Claim::Records, "logs every line and keeps evidence".to_owned(), "[records].folder");
    all.add(MACHINE, Claim::Restored, "as it was before".to_owned(), "");
    all.all
}

struct List<'a> {
    plant: &'a Plant,
    all: Vec<Promise>,
    require_rt: bool,
}

impl List<'_> {
    /// Adds a promise of the plant file's `key`.
    fn add(&mut self, subject: &str, claim: Claim, words: String, key: &str) -> &mut Promise {
        let (line, file) = (self.plant.places.line(key), self.plant.places.file(key).map(str::to_owned));
        self.all.push(Promise {
            subject: subject.to_owned(),
            claim,
            words,
            line,
            file,
            optional: false,
            required: self.require_rt,
            whole_life: false,
            interval: INTERVAL,
        });
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    fn slow(&mut self, subject: &str, claim: Claim, words: String, key: &str) -> &mut Promise {
        let promise = self.add(subject, claim, words, key);
        promise.interval = SLOW_INTERVAL;
        promise
    }

    fn partition(&mut self, one: &Partition) {
        let place = format!("[partition {}]", one.name);
        let promise = self.add(&partition(&one.name), Claim::Bounds, "bounds as written".to_owned(), &place);
        promise.required |= one.required;
        // The supervisor reads limits every 2 s.
        promise.interval = DurNs(INTERVAL.0 * 2);
    }

    fn process(&mut self, process: &Process) {
        let begun = self.all.len();
        let name = &process.name;
        let key = |key: &str| format!("{name}.{key}");
        self.add(name, Claim::Runs, "runs".to_owned(), name);
        if process.ready.when != ReadyCondition::Started {
            self.add(name, Claim::Ready, format!("ready within {}", process.ready.within), &key("ready"));
        }
        let class = class_words(process);
        self.add(name, Claim::Class, class, &key(if process.hygiene.nice.is_some() { "nice" } else { "class" }));
        let cpus = match process.cpus {
            Cpus::List(cpus) => format!("CPUs {cpus}"),
            of => format!("cpus {of}"),
        };
        self.add(name, Claim::Cpus, cpus, &key("cpus"));
        if !process.threads.is_empty() {
            let words = "each rule of threads matches a thread".to_owned();
            self.add(name, Claim::Threads, words, &key("threads")).whole_life = true;
        }
        if process.mlock {
            self.add(name, Claim::Memory, "memory locked".to_owned(), &key("mlock"));
        }
        if process.restart.policy != RestartPolicy::Never {
            let (limit, window) = (process.restart.limit, process.restart.window);
            let by_default = if self.plant.places.line(&key("restart")).is_some() { "" } else { ", by default" };
            let words = format!("at most {limit} restarts in {window}{by_default}");
            self.add(name, Claim::Restarts, words, &key("restart"));
        }
        if let Some(heartbeat) = process.heartbeat {
            self.add(name, Claim::Heartbeat, format!("a sign of life within {}", heartbeat.within), &key("heartbeat"));
        }
        if has_budget(process) {
            let words = match process.budget {
                Budget::Share { .. } => format!("budget {}", process.budget),
                Budget::None => "no budget: it polls".to_owned(),
            };
            self.add(name, Claim::Budget, words, &key("budget"));
        }
        self.add(name, Claim::Stops, "ends when asked to".to_owned(), &key("stop"));
        let limits = [
            ("memory_max", process.bounds.memory_max.map(|max| max.to_string())),
            ("tasks_max", process.bounds.tasks_max.map(|max| max.to_string())),
        ];
        let limits: Vec<_> = limits.into_iter().filter_map(|(limit, max)| Some((limit, max?))).collect();
        if let Some((first, _)) = limits.first() {
            let words: Vec<String> = limits.iter().map(|(limit, max)| format!("{limit} {max}")).collect();
            self.add(name, Claim::Fits, format!("fits in {}", words.join(", ")), &key(first));
        }
        if process.on_fault.is_some() {
            self.add(name, Claim::SafeOutput, "on_fault sets safe outputs".to_owned(), &key("on_fault"));
        }
        self.add(name, Claim::Available, "everything that it requests is available".to_owned(), name);
        if let Some(limited) = limited_by(process) {
            self.slow(name, Claim::Bounds, "limits as written".to_owned(), &key(limited));
        }
        self.results(process);
        if own_service(process).is_some() {
            self.add(name, Claim::Serves, "works".to_owned(), name);
        }
        for promise in &mut self.all[begun..] {
            promise.optional = process.optional;
        }
    }

    fn results(&mut self, process: &Process) {
        let name = &process.name;
        let is_frame = self.plant.frames.iter().any(|frame| frame.spec.name == *name);
        // Such processes may have a loop page.
        let has_loop = process.class.is_real_time() || process.heartbeat.is_some();
        if has_loop || is_frame || process.miss_ratio_max.is_some() {
            let words = match process.miss_ratio_max {
                Some(limit) => format!("skips at most {limit} of its periods"),
                None => "skipped periods, without a limit".to_owned(),
            };
            self.add(name, Claim::Skipped, words, &format!("{name}.miss_ratio_max")).whole_life = true;
        }
        let weighs = process.command.iter().any(|word| word == "--deadline");
        if process.deadline.is_some() || is_frame || weighs {
            let least = process.deadline.and_then(|deadline| deadline.least);
            let deadline =
                process.deadline.map_or_else(|| "its deadlines".to_owned(), |deadline| format!("deadline {deadline}"));
            let words = match least {
                Some(least) => format!("at least {least} of the full value, {deadline}"),
                None => format!("results within {deadline}"),
            };
            let key = format!("{name}.deadline");
            self.add(name, Claim::Value, words, &key).whole_life = true;
            self.add(name, Claim::Deadline, "no hard deadline missed".to_owned(), &key);
        }
    }
}

/// The class and nice value of a process's threads.
fn class_words(process: &Process) -> String {
    match (process.class, process.hygiene.nice) {
        (Policy::Other { .. }, Some(nice)) => format!("class other:{nice}"),
        (Policy::Batch { .. }, Some(nice)) => format!("class batch:{nice}"),
        (class, _) if process.has_own_priorities => format!("class {class}; some threads set their own"),
        (class, _) => format!("class {class}"),
    }
}

/// The first key of a process that limits it.
fn limited_by(process: &Process) -> Option<&'static str> {
    let keys = [
        ("limits", process.limits != Limits::default()),
        ("memory_max", process.bounds.memory_max.is_some()),
        ("tasks_max", process.bounds.tasks_max.is_some()),
        ("oom_score_adjust", process.hygiene.oom_score_adjust.is_some()),
    ];
    keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
}

/// Whether the guard measures the processor time of the process's threads.
fn has_budget(process: &Process) -> bool {
    let fixed = |class: Policy| matches!(class.level(), RtLevel::Fixed(_));
    fixed(process.class)
        || process.has_own_priorities
        || process.threads.iter().any(|rule| rule.class.is_some_and(fixed))
}

/// A tahti service, which reports from its main loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The tahti command: `archive` of `tahti archive serve`.
    pub command: &'static str,
    /// Its subcommand that runs the service; `None` if the command has none.
    pub subcommand: Option<&'static str>,
    /// Maximum duration of one pass of its loop.
    pub longest_step: DurNs,
}

/// All services. A pass of the archive or the alarms may wait for the disk. A pass of the recorder waits up to 5 s for
/// the supervisor, a pass of an equipment manager for the message server.
const SERVICES: [Service; 9] = [
    Service { command: "alarm", subcommand: Some("serve"), longest_step: DurNs::from_secs(5) },
    Service { command: "archive", subcommand: Some("serve"), longest_step: DurNs::from_secs(5) },
    Service { command: "dash", subcommand: Some("serve"), longest_step: DurNs::from_secs(2) },
    Service { command: "em", subcommand: Some("serve"), longest_step: DurNs::from_secs(6) },
    Service { command: "frames", subcommand: Some("run"), longest_step: DurNs::from_secs(2) },
    Service { command: "guest", subcommand: Some("serve"), longest_step: DurNs::from_secs(2) },
    Service { command: "ioc", subcommand: None, longest_step: DurNs::from_secs(2) },
    Service { command: "msg", subcommand: Some("serve"), longest_step: DurNs::from_secs(2) },
    Service { command: "trace", subcommand: Some("serve"), longest_step: DurNs::from_secs(6) },
];

/// The service that a process runs, if it is a tahti service.
#[must_use]
pub fn own_service(process: &Process) -> Option<&'static Service> {
    let [tahti, command, more @ ..] = process.command.as_slice() else { return None };
    let runs = |service: &&Service| {
        service.command == command
            && service.subcommand.is_none_or(|word| more.first().is_some_and(|first| first == word))
    };
    SERVICES.iter().find(runs).filter(|_| tahti == "tahti")
}
