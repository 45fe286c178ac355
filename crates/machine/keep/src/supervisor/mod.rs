//! The supervisor: runs a plant's state machine on the real machine.
//!
//! One process with one loop, which polls keepers, the control socket and signals. Work that may block (the shield,
//! evidence, files on a disk) runs on background threads, so that the loop always serves watchdogs and processes. Before the
//! loop, and after it, the caller waits for that work. The loop itself waits for the guard to accept a process, at most 1 s,
//! and for the kernel to move threads to a changed shield. If it makes no pass for a while, `health` reports the steps that
//! took the time. Each child has a keeper that outlives the supervisor. If the supervisor is killed or upgraded, the next one
//! continues its plant. A process must
//! never be started before the state that records the start is on disk.
//!
//! `host::supervise` decides. `engine` is the loop: it passes events in and has the actions carried out by separate parts.
//! These share only the [`site`], the [`processes`] and the log. The parts are the connections to keepers, the guard's
//! watches, the hardware watchdog, the systemd notifications, the state file, evidence, safe-output commands and the
//! comparison.

mod background;
mod compare;
mod connection;
pub mod control;
mod engine;
mod files;
mod health;
mod incidents;
mod inputs;
pub mod logs;
pub mod neighbors;
mod partitions;
mod probe;
mod processes;
mod pulses;
mod recorder;
mod reporter;
pub mod rundir;
mod safe_output;
mod service;
mod shielding;
mod sink;
mod site;
mod state_file;
mod status;
mod watch;
mod watchdog;

pub use crate::page::Figures;
pub use probe::{Machine, Thread, threads};
pub use pulses::{FRAME_PULSES, VALUE_TOLD};
pub use reporter::{brief, fitted, fitted_outcome, hang, short};
pub(crate) use service::VARIABLES as SERVICE_VARIABLES;
pub use status::guest_note;

use crate::keeper::protocol::Operators;
use crate::launch::IdentityError;
use base::DurNs;
pub use engine::NoShield;
use engine::{Engine, LoopEnd};
use files::Disk;
use host::health::Outcome;
use host::plant::{Diagnostic, Joined, NotUtf8, Plant, Profiles, check_joined, utf8};
use host::supervise::{Event, Phase, Supervision};
use processes::Processes;
use rundir::{RunDir, RunDirError};
use shielding::{Lowered, Shielding};
use site::Site;
use std::path::{Path, PathBuf};
use sys::clock::mono_now;
use sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SignalFd};

/// Options for bringing up a plant.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The plant file, or the folder that holds `plant.toml`.
    pub plant: PathBuf,
    /// Go down automatically after this time.
    pub for_: Option<DurNs>,
    /// Treat unavailable settings as errors.
    pub require_rt: bool,
    /// Reset latched faults of a plant that is continued.
    pub reset: bool,
    /// Measure loops with and without the shield in alternating segments.
    pub compare: bool,
    /// Print nothing on the terminal.
    pub quiet: bool,
    /// Use colours if the output is a terminal.
    pub colours: bool,
    /// Continue a running plant; fail if there is none.
    pub resume: bool,
    /// Do not start the plant's dashboard.
    pub no_dashboard: bool,
    /// The active profiles.
    pub profiles: Profiles,
}

/// A reason why a plant cannot be brought up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The plant file cannot be used.
    #[error(transparent)]
    Plant(#[from] PlantError),
    /// Its folder cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The shield is required but unavailable.
    #[error(transparent)]
    Shield(#[from] NoShield),
    /// A required partition is unavailable.
    #[error(transparent)]
    Partition(#[from] crate::partition::PartitionError),
    /// A socket cannot be created, or the path of the running program is unknown.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The kernel refused to set up signals.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
}

/// A plant file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// It cannot be read.
    #[error("plant file {}: {error}{}", .file.display(), absent(.error))]
    Read {
        /// The file.
        file: PathBuf,
        /// The error returned.
        error: std::io::Error,
    },
    /// It is not UTF-8 text.
    #[error("plant file {}: {error}", .file.display())]
    NoText {
        /// The file.
        file: PathBuf,
        /// Position of the fault.
        error: NotUtf8,
    },
    /// It contains errors.
    #[error("{}", .joined.render_all(.found))]
    Wrong {
        /// The file and those that it includes.
        joined: Box<Joined>,
        /// Every finding.
        found: Vec<Diagnostic>,
    },
    /// It has no shield to compare with.
    #[error("{}: --compare needs a [shield] to compare with", .0.display())]
    NothingToCompare(PathBuf),
    /// The operators' group is unknown.
    #[error("operators of plant {plant:?}: {error}")]
    Operators {
        /// The plant.
        plant: String,
        /// The error returned.
        error: IdentityError,
    },
}

/// Outcome of a supervisor's run.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// The plant was up and is down again.
    Down {
        /// Verdict on the whole life of the plant.
        outcome: Outcome,
        /// Whether it went down automatically, because a process failed to start.
        failed: bool,
    },
    /// Another program must replace this one. The processes keep running.
    Upgrade {
        /// The program.
        program: PathBuf,
    },
}

/// The remedy if a plant file does not exist.
fn absent(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "; expected a plant file, or a folder with plant.toml (`tahti init FOLDER` creates one)"
        }
        _ => "",
    }
}

/// Resolves `path` to a plant file: the file itself, or `plant.toml` in the folder.
///
/// # Errors
/// The file does not exist.
pub fn plant_file(path: &Path) -> Result<PathBuf, PlantError> {
    let file = if path.is_dir() { path.join("plant.toml") } else { path.to_owned() };
    std::fs::canonicalize(&file).map_err(|error| PlantError::Read { file, error })
}

/// Reads a plant file and the files that it includes.
///
/// # Errors
/// The file cannot be read. Faults of included files are findings of the check.
pub fn joined(file: &Path) -> Result<Joined, PlantError> {
    let bytes = std::fs::read(file).map_err(|error| PlantError::Read { file: file.to_owned(), error })?;
    let text = utf8(bytes).map_err(|error| PlantError::NoText { file: file.to_owned(), error })?;
    Ok(host::plant::join(file, text, &mut Disk))
}

/// Reads and checks a plant file on this machine. Also returns warnings and other findings that are not errors.
///
/// # Errors
/// The file cannot be read, or contains errors.
pub fn read_plant(file: &Path, profiles: &Profiles) -> Result<(Plant, Vec<Diagnostic>), PlantError> {
    checked(file, joined(file)?, profiles)
}

/// Checks a plant that was read by [`joined`].
///
/// # Errors
/// It contains errors.
pub fn checked(file: &Path, joined: Joined, profiles: &Profiles) -> Result<(Plant, Vec<Diagnostic>), PlantError> {
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let checked = check_joined(&joined, profiles, &Machine { folder });
    match checked.plant {
        Some(plant) => Ok((plant, checked.found)),
        None => Err(PlantError::Wrong { joined: Box::new(joined), found: checked.found }),
    }
}

/// The plant's operators, with the group resolved to its number.
fn operators(plant: &Plant) -> Result<Option<Operators>, PlantError> {
    let Some(operators) = &plant.operators else { return Ok(None) };
    let group = crate::launch::group_number(&operators.group)
        .map_err(|error| PlantError::Operators { plant: plant.name.clone(), error })?;
    Ok(Some(Operators { group, may_type: operators.may_type }))
}

/// Brings a plant up, supervises it until it is asked to go down, and restores the machine.
///
/// # Errors
/// The plant was not brought up: the plant file or its folder cannot be used, another supervisor is running, or a required
/// setting is unavailable. Or, after it went down, its folder could not be cleaned up.
pub fn up(options: &Options) -> Result<Exit, UpError> {
    let file = plant_file(&options.plant)?;
    let (plant, _) = read_plant(&file, &options.profiles)?;
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
    let mut tell = reporter::Reporter::new(
        run.log(None),
        since,
        &reporter::ReporterOptions { quiet: options.quiet, colours: options.colours, aside: records.is_some() },
    );
    let shield = if plant.shield.is_some() { Shielding::Lacking } else { Shielding::Unwanted };
    let also = plant.records.also;
    if let Some(also) = also {
        tell.forward(crate::forward::Forward::new(also, &plant.name, "tahti"));
    }
    if let Some(why) = unreadable {
        tell.warning(now, "tahti", &format!("the state file of an earlier supervisor cannot be used: {why}"));
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
            // Files of a run whose supervisor was lost and whose processes have ended.
            run.close_dashboard()?;
            match crate::group::end_strays(&run.keepers_folder()) {
                0 => {}
                ended => tell.event(now, "tahti", &format!("{ended} processes of an earlier supervisor were ended")),
            }
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
        profiles: options.profiles.clone(),
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
        // Its processes are already running in their existing partitions.
        engine.tell.shortfall("tahti", why.to_string());
    }
    if let Err(why) = engine.raise_shield(ours, required) {
        if continued.is_none() {
            engine.lower_partitions(&mut Lowered::default());
            engine.site.run.forget()?;
            return Err(UpError::Shield(why));
        }
        // Its processes are already running; ending them would be worse.
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
        LoopEnd::Upgrade(program) => Ok(Exit::Upgrade { program }),
        LoopEnd::Down => {
            let failed = engine.processes.all.failed().is_some();
            Ok(Exit::Down { outcome: engine.finish()?, failed })
        }
    }
}

/// The word for a phase.
#[must_use]
pub fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Down => "down",
        Phase::Starting => "starting",
        Phase::Up => "up",
        Phase::Stopping(_) => "stopping",
    }
}
