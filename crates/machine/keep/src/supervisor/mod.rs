//! The supervisor: runs a plant's state machine on the real machine.
//!
//! One process, one loop: it polls keepers, the control socket and signals. What may wait for others (the shield,
//! evidence) is done beside it, so that watchdogs are petted and processes looked after whatever it takes. Every
//! child has a keeper that outlives the supervisor, so that one that is killed or upgraded is continued by
//! the next. Must never start a process before the state that says so is on disk.
//!
//! `host::supervise` decides. `engine` is the loop: it hands events in and has actions done by parts that know nothing of
//! each other but the [`site`], the [`processes`] and who tells people: connections to keepers, the guard's watch, the
//! hardware watchdog, systemd's line, the state on disk, evidence, safe-output commands, the comparison.

mod aside;
mod compare;
mod connection;
pub mod control;
mod engine;
mod health;
mod incidents;
mod partitions;
mod probe;
mod processes;
mod pulses;
mod recorder;
pub mod rundir;
mod safe_output;
mod service;
mod shielding;
mod sink;
mod site;
mod state_file;
mod status;
mod tell;
mod watch;
mod watchdog;

pub use crate::page::Figures;
pub use probe::{Machine, Thread, threads};
pub use pulses::{FRAME_PULSES, VALUE_TOLD};
pub(crate) use service::VARIABLES as SERVICE_VARIABLES;
pub use status::guest_note;
pub use tell::{brief, fitted, hang, short};

use crate::keeper::protocol::Operators;
use crate::launch::IdentityError;
use base::DurNs;
pub use engine::NoShield;
use engine::{Engine, Left};
use host::health::Outcome;
use host::plant::{Diagnostic, NotUtf8, Plant, check, render_all, utf8};
use host::supervise::{Event, Phase, Supervision};
use processes::Processes;
use rundir::{RunDir, RunDirError};
use shielding::{Lowered, Shielding};
use site::Site;
use std::path::{Path, PathBuf};
use sys::clock::mono_now;
use sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalFd};

/// How a plant is brought up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The plant file, or the folder that holds `plant.toml`.
    pub plant: PathBuf,
    /// Go down by itself after this long.
    pub for_: Option<DurNs>,
    /// What cannot be had is an error.
    pub require_rt: bool,
    /// Forget latched faults of a plant that is continued.
    pub reset: bool,
    /// Measure loops with and without the shield in alternating segments.
    pub compare: bool,
    /// Tell nothing on the terminal.
    pub quiet: bool,
    /// Show colours where there is a terminal.
    pub colours: bool,
    /// Continue a plant that is up; there must be one.
    pub resume: bool,
    /// Leave out the plant's dashboard.
    pub no_dashboard: bool,
}

/// Why a plant is not up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The plant file cannot be used.
    #[error(transparent)]
    Plant(#[from] PlantError),
    /// Its folder cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The shield is required and cannot be had.
    #[error(transparent)]
    Shield(#[from] NoShield),
    /// A required partition cannot be had.
    #[error(transparent)]
    Partition(#[from] crate::partition::PartitionError),
    /// A socket or the running program cannot be had.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Signals cannot be had.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
}

/// A plant file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// It cannot be read.
    #[error("plant file {}: {error}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The answer.
        error: std::io::Error,
    },
    /// It is no text.
    #[error("plant file {}: {error}", .file.display())]
    NoText {
        /// The file.
        file: PathBuf,
        /// Where it is none.
        error: NotUtf8,
    },
    /// It says what cannot be.
    #[error("{}", render_all(.found, &.file.display().to_string(), .text))]
    Wrong {
        /// The file.
        file: PathBuf,
        /// What it says.
        text: String,
        /// Every finding.
        found: Vec<Diagnostic>,
    },
    /// There is nothing to compare.
    #[error("{}: --compare needs a [shield] to compare with", .0.display())]
    NothingToCompare(PathBuf),
    /// The operators' group is not known.
    #[error("operators of plant {plant:?}: {error}")]
    Operators {
        /// The plant.
        plant: String,
        /// What is not known.
        error: IdentityError,
    },
}

/// How it went.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// The plant was up and is down again.
    Down {
        /// The outcome of its life.
        outcome: Outcome,
        /// Whether it went down by itself, because a process failed to start.
        failed: bool,
    },
    /// This program is to replace this one, with these arguments; everything goes on.
    Upgrade {
        /// The program.
        program: PathBuf,
    },
}

/// The plant file that `path` means: itself, or `plant.toml` in it.
///
/// # Errors
/// If there is none.
pub fn plant_file(path: &Path) -> Result<PathBuf, PlantError> {
    let file = if path.is_dir() { path.join("plant.toml") } else { path.to_owned() };
    std::fs::canonicalize(&file).map_err(|error| PlantError::Read { file, error })
}

/// Reads and checks a plant file on this machine; the findings when there is no error.
///
/// # Errors
/// It cannot be read, or holds errors.
pub fn read_plant(file: &Path) -> Result<(Plant, Vec<Diagnostic>), PlantError> {
    let file = file.to_owned();
    let bytes = std::fs::read(&file).map_err(|error| PlantError::Read { file: file.clone(), error })?;
    let text = utf8(bytes).map_err(|error| PlantError::NoText { file: file.clone(), error })?;
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let checked = check(&text, &Machine { folder });
    match checked.plant {
        Some(plant) => Ok((plant, checked.found)),
        None => Err(PlantError::Wrong { file, text, found: checked.found }),
    }
}

/// The plant's operators, their group by its number.
fn operators(plant: &Plant) -> Result<Option<Operators>, PlantError> {
    let Some(operators) = &plant.operators else { return Ok(None) };
    let group = crate::launch::group_number(&operators.group)
        .map_err(|error| PlantError::Operators { plant: plant.name.clone(), error })?;
    Ok(Some(Operators { group, may_type: operators.may_type }))
}

/// Brings a plant up, supervises it until it is asked to go down, and gives the machine back.
///
/// # Errors
/// If nothing was started: the plant file, its folder, or a supervisor that is already there.
pub fn up(options: &Options) -> Result<Exit, UpError> {
    let file = plant_file(&options.plant)?;
    let (plant, _) = read_plant(&file)?;
    let plant = if options.no_dashboard { plant } else { plant.with_dashboard() };
    if options.compare && plant.shield.is_none() {
        return Err(PlantError::NothingToCompare(file).into());
    }
    let run = RunDir::of(&plant.name);
    let records = plant.records.folder.as_ref().map(|records| file.parent().unwrap_or(Path::new("/")).join(records));
    run.create(records.as_deref())?;
    let before = run.holder();
    let lock = run.lock()?;
    let operators = operators(&plant)?;
    run.open_to(operators.map(|operators| operators.group))?;
    let server = control::Server::listen(&run.socket(), operators.map(|it| it.group))?;
    let signals = SignalFd::new(&[SIGHUP, SIGINT, SIGTERM, SIGCHLD])?;
    let program = std::env::current_exe()?;
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let now = mono_now();
    let (saved, unreadable) = match run.saved() {
        Ok(saved) => (saved, None),
        Err(why) => (None, Some(why)),
    };
    let since = saved.as_ref().map_or(now, |saved| saved.since);
    let lives = saved.is_none() && run.lives();
    let mut tell = tell::Teller::new(
        run.log(None),
        since,
        &tell::Wishes { quiet: options.quiet, colours: options.colours, aside: records.is_some() },
    );
    let shield = if plant.shield.is_some() { Shielding::Lacking } else { Shielding::Unwanted };
    let also = plant.records.also;
    if let Some(also) = also {
        tell.forward(crate::forward::Forward::new(also, &plant.name, "tahti"));
    }
    if let Some(why) = unreadable {
        tell.event(now, "tahti", &format!("the state file of an earlier supervisor cannot be used: {why}"));
    }
    let for_ = options.for_.or(options.compare.then_some(DurNs::from_secs(60)));
    let until = for_.map(|span| now + span);
    let mut table = None;
    let (continued, plan) = match saved {
        Some(saved) => {
            tell.event(now, "tahti", &format!("continues the plant of process {}", saved.supervisor));
            table = saved.health;
            (Some((saved.children, saved.shield, plant)), (saved.plant, saved.supervision))
        }
        None if lives => {
            tell.event(now, "tahti", "continues with the running processes that it found, without their history");
            let all = Supervision::begun(&plant);
            (Some((std::collections::BTreeMap::new(), run.has_shield(), plant.clone())), (plant, all))
        }
        None => {
            // Those of a run that ended without its supervisor.
            run.close_dashboard()?;
            let all = Supervision::new(&plant);
            (None, (plant, all))
        }
    };
    let (plant, all) = plan;
    let site = Site {
        run,
        lock,
        file,
        plant,
        since,
        program,
        folder,
        usable: probe::usable(),
        isolated: base::CpuSet::EMPTY,
        shield_groups: Vec::new(),
        partitions: crate::partition::Partitions::default(),
        require_rt: options.require_rt,
        no_dashboard: options.no_dashboard,
        also,
        operators,
    };
    let mut health = health::Health::new(since, table);
    health.follow(now, before.and_then(|before| before.last_pass), lives);
    let mut engine = Engine::new(site, Processes::new(all), health, server, signals, tell, shield);
    engine.until = until;
    let ours = continued.as_ref().is_some_and(|(_, ours, _)| *ours);
    let required = options.require_rt || options.compare;
    if let Err(why) = engine.raise_partitions(options.require_rt) {
        if continued.is_none() {
            engine.site.run.forget()?;
            return Err(UpError::Partition(why));
        }
        // Its processes run already, in those that they had.
        engine.tell.shortfall("tahti", why.to_string());
    }
    if let Err(why) = engine.raise_shield(ours, required) {
        if continued.is_none() {
            engine.lower_partitions(&mut Lowered::default());
            engine.site.run.forget()?;
            return Err(UpError::Shield(why));
        }
        // Its processes run already: ending them would be worse.
        engine.tell.shortfall("shield", why.to_string());
    }
    if options.compare {
        engine.compare = Some(compare::Compare::new(engine.processes.ids().len()));
    }
    match continued {
        Some((children, _, new)) => {
            engine.adopt(&children);
            if !options.resume {
                engine.processes.event(Event::Up);
            }
            if let Some(reply) = engine.take_over(now, new, false, None) {
                engine.reply(None, reply);
            }
            if options.reset {
                engine.reset();
            }
        }
        None => engine.processes.event(Event::Up),
    }
    engine.promise();
    match engine.run() {
        Left::Upgrade(program) => Ok(Exit::Upgrade { program }),
        Left::Down => {
            let failed = engine.processes.all.failed().is_some();
            Ok(Exit::Down { outcome: engine.finish()?, failed })
        }
    }
}

/// What a phase is called.
#[must_use]
pub fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Down => "down",
        Phase::Starting => "starting",
        Phase::Up => "up",
        Phase::Stopping(_) => "stopping",
    }
}
