//! `tahti frames`: draws, watches and controls frame schedulers.

mod serve;
mod show;
mod supervisor;
mod timeline;

use crate::failure::{Failure, end};
use base::CpuSet;
use host::plant::{Missing, Profiles, Surroundings, check_joined};
use keep::supervisor::{Machine, joined, plant_file};
use rt::frames::{Watcher, trigger};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check, show and trigger frame schedulers
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: FramesCommand,
}

#[derive(clap::Subcommand)]
enum FramesCommand {
    /// Check the frames of a plant file and draw their timelines
    Check {
        /// Plant file, or a folder with plant.toml
        plant: PathBuf,
    },
    /// Show counters and latencies of a running frame
    Show(show::Args),
    /// Trigger a frame with time base `software` or `counter`
    Trigger {
        /// Frame, as PLANT/FRAME or FRAME of the only plant that is up
        frame: String,
        /// Number of triggers
        #[arg(default_value_t = 1)]
        times: u64,
    },
    /// Change the mode of a frame at its next major frame
    Mode {
        /// Frame, as PLANT/FRAME or FRAME of the only plant that is up
        frame: String,
        /// New mode
        mode: String,
    },
    /// The process of a frame, as `tahti up` starts it
    #[command(hide = true)]
    Run,
}

impl Args {
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.what, FramesCommand::Check { .. } | FramesCommand::Show(_))
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    let result = match args.what {
        FramesCommand::Check { plant } => check(&plant),
        FramesCommand::Show(args) => show::run(&args),
        FramesCommand::Trigger { frame, times } => {
            let frame = of_plant(&frame);
            (0..times).try_for_each(|_| trigger(&frame)).map_err(Failure::from)
        }
        FramesCommand::Mode { frame, mode } => change_mode(&of_plant(&frame), &mode),
        FramesCommand::Run => serve::run(),
    };
    end(result)
}

/// The full name of a frame: without a plant, that of the only plant that is up, if it has this frame.
fn of_plant(frame: &str) -> String {
    if !frame.contains('/')
        && let [plant] = &keep::supervisor::rundir::living()[..]
    {
        let full = format!("{plant}/{frame}");
        if Watcher::open(&full).is_ok() {
            return full;
        }
    }
    frame.to_owned()
}

/// The only frame of the only plant that is up.
fn only() -> Result<String, Failure> {
    let plant = crate::control::plant_name(None)?;
    let names = crate::ps::status(&plant)?.processes.into_iter().map(|process| format!("{plant}/{}", process.name));
    let frames: Vec<String> = names.filter(|name| Watcher::open(name).is_ok()).collect();
    match &frames[..] {
        [one] => Ok(one.clone()),
        [] => Err(format!("plant {plant:?} has no running frame; give one as PLANT/FRAME").into()),
        several => Err(format!("which frame? Plant {plant:?} has {}", several.join(", ")).into()),
    }
}

/// This machine, but programs may be missing: a frame can be planned before its activities are written.
struct Planned(Machine);

impl Surroundings for Planned {
    fn online(&self) -> Option<CpuSet> {
        self.0.online()
    }

    fn choose(&self, count: usize) -> Result<CpuSet, Missing> {
        self.0.choose(count)
    }

    fn has_node(&self, node: u16) -> bool {
        self.0.has_node(node)
    }

    fn partition(&self) -> Result<(), Missing> {
        self.0.partition()
    }

    fn program(&self, _program: &str, _dir: Option<&str>, _user: Option<&str>) -> Result<(), Missing> {
        Ok(())
    }

    fn has_user(&self, user: &str) -> bool {
        self.0.has_user(user)
    }
}

fn check(plant: &Path) -> Result<(), Failure> {
    let file = plant_file(plant)?;
    let joined = joined(&file)?;
    let folder = file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    // Frames of all profiles.
    let checked = check_joined(&joined, &Profiles::all(), &Planned(Machine { folder }));
    let Some(plant) = checked.plant else { return Err(joined.render_all(&checked.found).into()) };
    let frames = plant.frames;
    if frames.is_empty() {
        return Err(format!("{} has no frame; expected a [[frame]] table", file.display()).into());
    }
    for config in &frames {
        let plan = frame::Plan::admit(&config.spec)
            .map_err(|refused| refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        frame::draw(&config.spec, &plan).iter().for_each(|line| println!("{line}"));
        match config.cpu {
            Some(cpu) => println!("          on CPU {cpu}, dispatcher fifo:{}", config.priority.0),
            None => println!("          without a separate CPU: order and parking are not enforced"),
        }
    }
    Ok(())
}

fn change_mode(frame: &str, mode: &str) -> Result<(), Failure> {
    let watcher = Watcher::open(frame)?;
    watcher.want_mode(mode)?;
    println!("frame {frame}: mode {mode} where the next major frame begins");
    Ok(())
}
