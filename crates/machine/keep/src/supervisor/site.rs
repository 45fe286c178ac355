//! A plant as its file and its folder have it: from what the file says of a process to what its keeper is told.

use super::rundir::{Lock, RunDir};
use crate::keeper::protocol::{KeeperSpec, LogSpec, Operators};
use crate::launch::{CapabilityError, LaunchSpec, Limit, Resource, Terminal};
use crate::partition::Partitions;
use base::{CpuSet, MonoNs};
use host::plant::{Cpus, Plant, Process, ReadyWhen, UsableCpus};
use std::path::PathBuf;

/// The plant, where it lives, and what all its processes have in common.
#[derive(Debug)]
pub(crate) struct Site {
    /// Its folder in `/run/tahti`.
    pub(crate) run: RunDir,
    /// Held while it is supervised.
    pub(crate) lock: Lock,
    /// Its file.
    pub(crate) file: PathBuf,
    /// What the file says.
    pub(crate) plant: Plant,
    /// When it was brought up.
    pub(crate) since: MonoNs,
    /// The running binary, for commands that begin with `tahti`.
    pub(crate) program: PathBuf,
    /// The plant file's folder.
    pub(crate) folder: PathBuf,
    /// CPUs of the machine.
    pub(crate) usable: UsableCpus,
    /// CPUs that are isolated now; empty without a shield.
    pub(crate) isolated: CpuSet,
    /// Control groups that members of the shield join, and those of all others.
    pub(crate) shield_groups: Vec<PathBuf>,
    /// Bounds that processes share.
    pub(crate) partitions: Partitions,
    /// Whether what cannot be had is an error.
    pub(crate) require_rt: bool,
    /// Whether the plant's dashboard is left out.
    pub(crate) no_dashboard: bool,
    /// The journal of the machine that gets each line, too.
    pub(crate) also: Option<host::plant::Also>,
    /// Who may look at the processes.
    pub(crate) operators: Option<Operators>,
}

impl Site {
    /// What the file says of a process; nothing once it is retired.
    pub(crate) fn process(&self, name: &str) -> Option<&Process> {
        self.plant.process(name)
    }

    /// `tahti` stands for the running binary itself.
    pub(crate) fn argv(&self, command: &[String]) -> Vec<String> {
        let mut argv = command.to_vec();
        if let Some(program) = argv.first_mut().filter(|program| *program == "tahti") {
            *program = self.program.to_string_lossy().into_owned();
        }
        argv
    }

    /// Where a process works.
    pub(crate) fn dir(&self, process: &Process) -> PathBuf {
        process.dir.as_ref().map_or(self.folder.clone(), |dir| self.folder.join(dir))
    }

    /// The CPUs that a process gets. Without a shield, what should run on it may run anywhere.
    pub(crate) fn cpus(&self, process: &Process) -> CpuSet {
        self.resolve(process.cpus)
    }

    /// The CPUs that the plant file's words mean now.
    pub(crate) fn resolve(&self, cpus: Cpus) -> CpuSet {
        let found = cpus.resolve(&self.usable, &self.isolated);
        let found = if found.is_empty() { self.usable.housekeeping(&self.isolated) } else { found };
        if found.is_empty() { self.usable.online } else { found }
    }

    /// A command of a process: as its user, in its folder, with its environment and sandbox, but neither its class nor its
    /// CPUs.
    ///
    /// # Errors
    /// A capability that this build does not know.
    pub(crate) fn launch(&self, process: &Process, command: &[String]) -> Result<LaunchSpec, CapabilityError> {
        let mut launch = LaunchSpec::new(process.name.clone(), self.argv(command));
        launch.env = process.env.clone();
        launch.env.insert("TAHTI_PROCESS".to_owned(), process.name.clone());
        launch.env.insert("TAHTI_PLANT".to_owned(), self.run.name().to_owned());
        let hygiene = &process.hygiene;
        // What the supervisor was started with is not for somebody else.
        let all = if process.user.is_some() { Vec::new() } else { vec!["*".to_owned()] };
        launch.env_pass = Some(hygiene.pass_environment.clone().unwrap_or(all));
        for (name, value) in automatic(process) {
            launch.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        launch.umask = hygiene.umask;
        launch.oom_score = hygiene.oom_score_adjust;
        launch.no_new_privileges = hygiene.no_new_privileges;
        launch.sandbox = hygiene.sandbox.clone();
        launch.dir = Some(self.dir(process));
        launch.user = process.user.clone();
        if let Some(names) = &process.capabilities {
            launch.capabilities = Some(names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?);
        }
        Ok(launch)
    }

    /// What the keeper of a process is told.
    ///
    /// # Errors
    /// A capability that this build does not know.
    pub(crate) fn keeper(&self, process: &Process) -> Result<KeeperSpec, CapabilityError> {
        let mut launch = self.launch(process, &process.command)?;
        launch.limits = limits(process);
        (launch.policy, launch.nice) = (Some(process.class), process.hygiene.nice);
        let cpus = self.cpus(process);
        launch.cpus = Some(cpus);
        if !self.isolated.is_empty() && cpus.is_subset(&self.isolated) {
            launch.cgroups = self.shield_groups.clone();
        }
        let is_v2 = |dir: &PathBuf| !dir.join("tasks").exists();
        let mut within = process.partition.as_ref().map_or(Vec::new(), |name| self.partitions.dirs(name));
        if launch.cgroups.iter().any(is_v2) {
            // It can be in one group of version 2 only; who checked the plant has said so.
            within.retain(|dir| !is_v2(dir));
        }
        launch.numa_node = process.numa;
        launch.mlock = process.mlock;
        launch.watchdog = process.heartbeat.map(|heartbeat| heartbeat.within);
        launch.terminal = Terminal::Pty;
        launch.require_rt = self.require_rt;
        // It tells what it has lost.
        let is_frame = process.env.contains_key(host::plant::FRAME);
        // So does a message server with deadlines: what its answers were worth.
        let weighs = process.command.iter().any(|word| word == "--deadline");
        // And each service that it works.
        let is_service = host::health::own_service(process).is_some();
        Ok(KeeperSpec {
            dir: self.run.keeper(&process.name),
            launch,
            bounds: process.bounds,
            within,
            log: Some(LogSpec {
                path: self.run.log(Some(&process.name)),
                size: process.log.size,
                keep: process.log.keep,
                also: self.also.map(|also| (also, self.run.name().to_owned())),
            }),
            ready_line: match &process.ready.when {
                ReadyWhen::Line(line) => Some(line.clone()),
                _ => None,
            },
            notify: process.ready.when == ReadyWhen::Notify
                || process.heartbeat.is_some()
                || is_frame
                || weighs
                || is_service,
            held: is_watched(process),
            operators: self.operators,
        })
    }
}

/// The variables by which a process finds other parts of the plant: those that it has neither from the plant file nor from the
/// supervisor's environment.
pub(crate) fn automatic(process: &Process) -> impl Iterator<Item = (&String, &String)> {
    let passes = |name: &str| match &process.hygiene.pass_environment {
        Some(patterns) => patterns.iter().any(|pattern| base::glob(pattern, name)),
        None => process.user.is_none(),
    };
    process.automatic.iter().filter(move |(name, _)| !passes(name) || std::env::var_os(name).is_none())
}

/// Whether the guard looks after a process: its threads are real time, or it owes signs of life.
pub(crate) fn is_watched(process: &Process) -> bool {
    let fixed = |class: base::Policy| matches!(class.level(), base::RtLevel::Fixed(_));
    fixed(process.class)
        || process.has_own_priorities
        || process.heartbeat.is_some()
        || process.threads.iter().any(|rule| rule.class.is_some_and(fixed))
}

fn limits(process: &Process) -> Vec<Limit> {
    let limits = &process.limits;
    let rows = [
        (Resource::Files, limits.files),
        (Resource::Core, limits.core.map(|size| size.0)),
        (Resource::Locked, limits.locked.map(|size| size.0)),
        (Resource::AddressSpace, limits.memory.map(|size| size.0)),
        (Resource::Stack, limits.stack.map(|size| size.0)),
        (Resource::RtTime, limits.rttime.map(|time| time.0.unsigned_abs() / 1000)),
    ];
    rows.into_iter().filter_map(|(resource, value)| Some(Limit { resource, value: Some(value?) })).collect()
}
