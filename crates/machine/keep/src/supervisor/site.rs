//! A plant as defined by its file and folder. Converts the plant file's settings of a process into its keeper's spec.

use super::rundir::{Lock, RunDir};
use crate::keeper::protocol::{KeeperSpec, LogSpec, Operators};
use crate::launch::{CapabilityError, LaunchSpec, Limit, Resource, Terminal};
use crate::partition::Partitions;
use base::{CpuSet, MonoNs};
use host::plant::{Cpus, Plant, Process, ReadyCondition, UsableCpus};
use std::ffi::OsString;
use std::path::PathBuf;

/// The plant, its paths, and the settings shared by all its processes.
#[derive(Debug)]
pub(crate) struct Site {
    /// Its folder below `/run/tahti`.
    pub(crate) run: RunDir,
    /// Lock, held while the plant is supervised.
    pub(crate) lock: Lock,
    /// The plant file.
    pub(crate) file: PathBuf,
    /// The parsed plant file.
    pub(crate) plant: Plant,
    /// Time at which the plant was brought up.
    pub(crate) since: MonoNs,
    /// The running binary, for commands that begin with `tahti`.
    pub(crate) program: PathBuf,
    /// The plant file's folder.
    pub(crate) folder: PathBuf,
    /// The CPUs of the machine, and those that the plant may use.
    pub(crate) usable: UsableCpus,
    /// Currently isolated CPUs; empty without a shield.
    pub(crate) isolated: CpuSet,
    /// Control groups that processes on the shield join.
    pub(crate) shield_groups: Vec<PathBuf>,
    /// The plant's partitions: limits shared by several processes.
    pub(crate) partitions: Partitions,
    /// Whether unavailable settings are errors.
    pub(crate) require_rt: bool,
    /// Whether the plant's dashboard is disabled.
    pub(crate) no_dashboard: bool,
    /// The active profiles.
    pub(crate) profiles: host::plant::Profiles,
    /// System journal that also receives each line.
    pub(crate) also: Option<host::plant::Also>,
    /// Users who may read the status and open consoles.
    pub(crate) operators: Option<Operators>,
}

impl Site {
    /// The plant file's settings of a process; `None` once it is retired.
    pub(crate) fn process(&self, name: &str) -> Option<&Process> {
        self.plant.process(name)
    }

    /// Replaces the command `tahti` by the path of the running binary.
    pub(crate) fn argv(&self, command: &[String]) -> Vec<OsString> {
        let mut argv: Vec<OsString> = command.iter().map(OsString::from).collect();
        if let Some(program) = argv.first_mut().filter(|program| *program == "tahti") {
            *program = self.program.clone().into_os_string();
        }
        argv
    }

    /// The working directory of a process.
    pub(crate) fn dir(&self, process: &Process) -> PathBuf {
        process.dir.as_ref().map_or(self.folder.clone(), |dir| self.folder.join(dir))
    }

    /// The CPUs of a process. Without a shield, a process meant for it may run on all usable CPUs.
    pub(crate) fn cpus(&self, process: &Process) -> CpuSet {
        self.resolve(process.cpus)
    }

    /// The CPUs that a setting of the plant file refers to at present.
    pub(crate) fn resolve(&self, cpus: Cpus) -> CpuSet {
        let found = cpus.resolve(&self.usable, &self.isolated);
        let found = if found.is_empty() { self.usable.housekeeping(&self.isolated) } else { found };
        if found.is_empty() { self.usable.online } else { found }
    }

    /// Launch spec for a command of a process. It has the user, folder, environment and sandbox of the process, but not its
    /// class and CPUs.
    ///
    /// # Errors
    /// A capability is unknown to this build.
    pub(crate) fn launch(&self, process: &Process, command: &[String]) -> Result<LaunchSpec, CapabilityError> {
        let mut launch = LaunchSpec::new(process.name.clone(), self.argv(command));
        launch.env = process.env.clone();
        launch.env.insert("TAHTI_PROCESS".to_owned(), process.name.clone());
        launch.env.insert("TAHTI_PLANT".to_owned(), self.run.name().to_owned());
        let hygiene = &process.hygiene;
        // The supervisor's environment is not passed to a process of another user.
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

    /// The keeper's spec for a process.
    ///
    /// # Errors
    /// A capability is unknown to this build.
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
            // A process can be in only one cgroup v2 group. The check of the plant file has reported this.
            within.retain(|dir| !is_v2(dir));
        }
        launch.numa_node = process.numa;
        launch.mlock = process.mlock;
        launch.watchdog = process.heartbeat.map(|heartbeat| heartbeat.within);
        launch.terminal = Terminal::Pty;
        launch.require_rt = self.require_rt;
        // A frame reports its skipped minor frames.
        let is_frame = process.env.contains_key(host::plant::FRAME);
        // A message server with deadlines reports the value of its answers.
        let weighs = process.command.iter().any(|word| word == "--deadline");
        // A service of tahti reports that its working loop runs.
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
                ReadyCondition::Line(line) => Some(line.clone()),
                _ => None,
            },
            notify: process.ready.when == ReadyCondition::Notify
                || process.heartbeat.is_some()
                || is_frame
                || weighs
                || is_service,
            held: is_watched(process),
            operators: self.operators,
            supervisor: Some(self.run.lock_file()),
        })
    }
}

/// The variables set automatically so that a process finds other parts of the plant. Variables set by the plant file or
/// passed from the supervisor's environment are excluded.
pub(crate) fn automatic(process: &Process) -> impl Iterator<Item = (&String, &String)> {
    let passes = |name: &str| match &process.hygiene.pass_environment {
        Some(patterns) => patterns.iter().any(|pattern| base::glob(pattern, name)),
        None => process.user.is_none(),
    };
    process.automatic.iter().filter(move |(name, _)| !passes(name) || std::env::var_os(name).is_none())
}

/// Whether the guard watches a process: it has real-time threads or a heartbeat.
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
