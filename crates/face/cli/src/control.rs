//! Commands that send requests to a running supervisor: `down`, `restart`, `signal`, `reload`.

use crate::failure::{Failure, end};
use crate::out::{Colour, Painted};
use host::plant::{Profiles, Signal};
use keep::supervisor::control::{Client, Outcome, Reply, Request};
use keep::supervisor::rundir::{RunDir, living, plants};
use keep::supervisor::{fitted_outcome, plant_file, read_plant};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which plant is meant.
#[derive(clap::Args)]
pub(crate) struct PlantArgs {
    /// Name, file or folder of the plant [default: the only plant that is up]
    #[arg(long, short = 'P', value_name = "PLANT")]
    pub(crate) plant: Option<String>,
}

/// Which plant as a whole is meant, for commands that name nothing else.
#[derive(clap::Args)]
pub(crate) struct Whole {
    /// Name, file or folder of the plant [default: the only plant that is up]
    plant: Option<String>,
    /// Same as the argument PLANT
    #[arg(long = "plant", short = 'P', value_name = "PLANT", conflicts_with = "plant", id = "named")]
    named: Option<String>,
}

impl Whole {
    /// The plant given on the command line, if any.
    pub(crate) fn given(&self) -> Option<&str> {
        self.plant.as_deref().or(self.named.as_deref())
    }
}

/// A plant that need not be up, by its file.
#[derive(clap::Args)]
pub(crate) struct File {
    /// Plant file, or a folder with plant.toml [default: the current folder]
    plant: Option<PathBuf>,
    /// Same as the argument PLANT
    #[arg(long = "plant", short = 'P', value_name = "PLANT", conflicts_with = "plant", id = "named")]
    named: Option<PathBuf>,
}

impl File {
    /// The path given on the command line; the current folder by default.
    pub(crate) fn path(&self) -> &Path {
        self.plant.as_deref().or(self.named.as_deref()).unwrap_or(Path::new("."))
    }
}

/// Which members of a plant are meant.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// Include the members of these profiles of the plant file; `*` means all
    #[arg(long = "profile", value_name = "NAME", env = "TAHTI_PROFILES", value_delimiter = ',')]
    profiles: Vec<String>,
}

impl Chosen {
    /// The profiles, without blanks around their names.
    pub(crate) fn profiles(&self) -> Profiles {
        Profiles::of(self.profiles.iter().map(|name| name.trim()))
    }

    /// Whether there are any.
    pub(crate) fn is_some(&self) -> bool {
        self.profiles().names().next().is_some()
    }
}

/// Stop a plant, restore the machine and print the verdict
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti down                   the only plant that is up
  tahti down rf                plant rf; exit status 0 good, 4 degraded, 3 failed")]
pub(crate) struct DownArgs {
    #[command(flatten)]
    which: Whole,
}

/// Send a signal to a process
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti signal HUP logger
  tahti signal USR1 loop --plant rf")]
pub(crate) struct SignalArgs {
    /// Signal, such as USR1 or 10
    #[arg(value_parser = |text: &str| text.parse::<Signal>().map_err(|why| format!("{why}; the process is the next word")))]
    signal: Signal,
    /// Process
    name: String,
    #[command(flatten)]
    which: PlantArgs,
}

/// Read the plant file again and apply only the differences
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti reload --dry-run       print the differences
  tahti reload                 apply them; unchanged processes keep running")]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    which: Whole,
    /// Only print what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until the changed processes run
    #[arg(long)]
    no_wait: bool,
}

/// The name of the selected plant: of a plant that is up, else of a plant file or folder, else as given. Without one given,
/// the only plant that is up.
pub(crate) fn plant_name(given: Option<&str>) -> Result<String, Failure> {
    let living = living();
    match given {
        Some(name) if living.iter().any(|living| living == name) => Ok(name.to_owned()),
        Some(text)
            if text.contains('/') || Path::new(text).join("plant.toml").is_file() || Path::new(text).is_file() =>
        {
            let plant = plant_file(Path::new(text)).and_then(|file| read_plant(&file, &Profiles::all()));
            Ok(plant?.0.name)
        }
        Some(name) => Ok(name.to_owned()),
        None => match &living[..] {
            [one] => Ok(one.clone()),
            [] => Err(format!(
                "no plant is up ({} has none); bring one up with `tahti up PLANT`",
                keep::supervisor::rundir::base().display()
            )
            .into()),
            many => Err(format!("which plant? These are up: {}; give one with --plant", many.join(", ")).into()),
        },
    }
}

/// The variable by which the parts of the only plant that is up find a service of it, such as `TAHTI_MESSAGES`.
pub(crate) fn of_only_plant(variable: &str) -> Option<String> {
    let [plant] = &living()[..] else { return None };
    let status = crate::ps::status(plant).ok()?;
    status.processes.into_iter().find_map(|mut process| process.automatic.remove(variable))
}

/// Connects to the supervisor of a plant. The error says why that failed and what to do.
pub(crate) fn connect(name: &str) -> Result<Client, Failure> {
    let run = RunDir::find(name);
    Client::connect(&run.socket()).map_err(|error| {
        let why = if error.kind() == std::io::ErrorKind::PermissionDenied {
            foreign(name, &error)
        } else if let Some(pid) = run.supervisor() {
            keep::supervisor::rundir::RunDirError::Unreachable { name: name.to_owned(), pid }.to_string()
        } else if living().iter().any(|living| living == name) {
            format!(
                "plant {name:?} has lost its supervisor ({error}); its processes still run: `{}` continues it, and \
                 `tahti down {name}` stops it then",
                run.continued_by()
            )
        } else if plants().iter().any(|known| known == name) {
            format!("plant {name:?} is not up")
        } else {
            let known = living();
            let meant = base::nearest(name, known.iter().map(String::as_str));
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
            format!("there is no plant {name:?} in {}{meant}", keep::supervisor::rundir::base().display())
        };
        why.into()
    })
}

/// The message about a plant whose run folder may not be entered.
pub(crate) fn foreign(name: &str, error: &std::io::Error) -> String {
    format!("plant {name:?} is another user's: root, that user and the plant's operators may ask ({error})")
}

/// Sends a request to a plant's supervisor. A refusal is an error.
pub(crate) fn ask(name: &str, request: &Request) -> Result<Reply, Failure> {
    match connect(name)?.ask(request) {
        Ok(Reply::Refused(why)) => Err(why.into()),
        Ok(reply) => Ok(reply),
        Err(error) => Err(silent(name, &error)),
    }
}

/// Why a supervisor does not answer, with the remedy.
fn silent(name: &str, error: &std::io::Error) -> Failure {
    if error.kind() != std::io::ErrorKind::WouldBlock {
        return format!("the supervisor of plant {name:?} does not answer: {error}").into();
    }
    let Some(holder) = RunDir::find(name).holder() else {
        return format!("the supervisor of plant {name:?} does not answer in time").into();
    };
    let pid = holder.pid;
    let last = holder.last_pass.map_or(String::new(), |at| {
        format!("; it last observed the plant {} ago", keep::supervisor::short(sys::clock::mono_now() - at))
    });
    let remedy = sys::peer::remedy(pid);
    format!("the supervisor of plant {name:?} (process {pid}) does not answer in time{last}; {remedy}").into()
}

/// Whether the supervisor's process is stopped (by SIGSTOP or a debugger).
fn supervisor_is_stopped(name: &str) -> bool {
    RunDir::find(name).holder().is_some_and(|holder| sys::process::is_stopped(holder.pid))
}

pub(crate) fn down(args: DownArgs) -> ExitCode {
    let went = || -> Result<ExitCode, Failure> {
        let name = plant_name(args.which.given())?;
        let mut client = connect(&name)?;
        let lost = |error: std::io::Error| silent(&name, &error);
        match client.ask(&Request::Down).map_err(lost)? {
            Reply::Refused(why) => return Err(why.into()),
            Reply::Verdict { outcome, text } => return Ok(verdict(&outcome, &text)),
            _ => {}
        }
        loop {
            let heard = match client.hear() {
                // The plant goes down only when all its processes have ended, which may exceed the timeout.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !supervisor_is_stopped(&name) => {
                    continue;
                }
                heard => heard.map_err(lost)?,
            };
            match heard {
                Some(Reply::Verdict { outcome, text }) => return Ok(verdict(&outcome, &text)),
                Some(_) => {}
                None => return Err(format!("the supervisor of plant {name:?} ended without a verdict").into()),
            }
        }
    };
    end(went())
}

/// The colour of an outcome.
pub(crate) fn outcome_colour(outcome: &Outcome) -> Colour {
    match outcome {
        Outcome::Good => Colour::Good,
        Outcome::Degraded(_) => Colour::Doubtful,
        Outcome::Failed(_) => Colour::Bad,
    }
}

fn verdict(outcome: &Outcome, text: &str) -> ExitCode {
    let (rest, last) = text.rsplit_once('\n').map_or(("", text), |(rest, last)| (rest, last));
    if !rest.is_empty() {
        println!("{rest}");
    }
    let last =
        last.split_once(": ").map_or(last.to_owned(), |(life, _)| format!("{life}: {}", fitted_outcome(outcome)));
    println!("{}", Painted(outcome_colour(outcome), last));
    ExitCode::from(outcome.exit_status())
}

pub(crate) fn signal(args: SignalArgs) -> ExitCode {
    let request = Request::Signal { name: args.name, signal: args.signal.0 };
    done(plant_name(args.which.plant.as_deref()).and_then(|name| ask(&name, &request).map(drop)))
}

pub(crate) fn reload(args: ReloadArgs) -> ExitCode {
    let dry_run = args.dry_run;
    done(plant_name(args.which.given()).and_then(|name| {
        if let Reply::Status(status) = ask(&name, &Request::Status)? {
            crate::check::is_good(&status.file, &Profiles::default())?;
        }
        let Reply::Changes(lines) = ask(&name, &Request::Reload { dry_run })? else { return Ok(()) };
        match lines.is_empty() {
            true => println!("nothing differs"),
            false => lines.iter().for_each(|line| println!("{line}")),
        }
        if dry_run || args.no_wait || lines.is_empty() { Ok(()) } else { crate::process::settled(&name) }
    }))
}

fn done(result: Result<(), Failure>) -> ExitCode {
    end(result)
}
