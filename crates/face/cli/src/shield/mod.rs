//! `tahti shield`: keeps CPUs free of other tasks, interrupts and movable kernel work.

mod confirm;
mod print;

use crate::failure::{Failure, end};
use base::{CpuSet, DurNs};
use clap::Subcommand;
use host::plan::{self, Placed, Plan, Profile, ShieldParts, Spared, SparedList, Want};
use host::suggest::{self, Choice};
use keep::RunDir;
use keep::shield::machine::{Machine, RealMachine};
use keep::shield::{self, journal::Journal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use sys::root::RootDir;

/// The active shield: its CPUs, and the file through which a thread of an outside process enters.
pub(crate) struct Home {
    pub(crate) cpus: CpuSet,
    pub(crate) entry: String,
}

/// The active shield, if it contains some of these CPUs and accepts single threads.
pub(crate) fn home(cpus: CpuSet) -> Result<Option<Home>, shield::Error> {
    if cpus.is_empty() {
        return Ok(None);
    }
    Ok(any_home()?.filter(|home| home.cpus.intersects(&cpus)))
}

/// The active shield, if there is one and it accepts single threads.
pub(crate) fn any_home() -> Result<Option<Home>, shield::Error> {
    let journal = shield::current(&RootDir::machine(), &RunDir::from_env())?;
    Ok(journal.and_then(|journal| Some(Home { cpus: journal.want.cpus, entry: journal.place.thread_entry()? })))
}

/// Reserve CPUs: move tasks, interrupts and kernel work away; restore exactly
///
/// Exit status: 0 success; 1 applied or released with differences, which are listed; 2 nothing was changed, for the
/// printed reason.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List every change that apply would make, and everything that cannot be moved
    Plan {
        #[command(flatten)]
        wish: Wish,
        /// Plan for another machine: output of `tahti doctor --capture`, or a copy of its / directory
        #[arg(long, value_name = "PATH")]
        root: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Apply the shield, or repair an applied one
    Apply {
        #[command(flatten)]
        wish: Wish,
        /// Release it after this time unless confirmed by `tahti shield confirm` or Enter, such as 60s
        #[arg(long, value_name = "TIME")]
        confirm_within: Option<DurNs>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Rank the CPUs by their interrupts that cannot be moved
    Suggest {
        /// Number of CPUs
        #[arg(default_value_t = 1)]
        count: usize,
        /// Rank the CPUs of another machine: output of `tahti doctor --capture`, or a copy of its / directory
        #[arg(long, value_name = "PATH")]
        root: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare the machine with the applied shield; exit status 1 if they differ
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Count tasks and interrupts on each CPU, and name those on shielded CPUs
    Status {
        /// Time to count
        #[arg(long, value_name = "TIME", default_value = "1s")]
        window: DurNs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Report changes and new tasks until the shield is released
    Watch {
        /// Repair the differences
        #[arg(long)]
        repair: bool,
        /// Time between two updates
        #[arg(long, value_name = "TIME", default_value = "2s")]
        every: DurNs,
        /// Number of checks; exit status 1 if a difference was found
        #[arg(long, value_name = "COUNT")]
        looks: Option<u64>,
    },
    /// Confirm a shield that was applied with --confirm-within
    Confirm,
    /// Waits for the confirmation of another process's apply
    #[command(hide = true)]
    AwaitConfirmation { token: String, within: DurNs },
    /// Restore the machine
    Release {
        /// Also restore values that another program changed meanwhile
        #[arg(long)]
        force: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Wish {
    /// CPUs to reserve, such as 2-3,6, or auto:2 for the two best (tahti shield suggest) [default: those of the active
    /// shield]
    #[arg(long, value_name = "LIST")]
    cpus: Option<Choice>,
    /// Parts to apply: tasks, interrupts, timers (periodic kernel work), settings (power, memory, preemption) [default:
    /// all, or those of the active shield]
    #[arg(long, value_name = "PARTS")]
    parts: Option<ShieldParts>,
    /// Use of the CPUs: control-loop (sleeps between cycles) or polling (never sleeps)
    #[arg(long)]
    profile: Option<Profile>,
    /// Processes to leave where they are: PID (with its threads) or PID+ (with its descendants)
    #[arg(long, value_name = "PIDS", env = "TAHTI_SPARE")]
    spare: Vec<SparedList>,
    /// Interrupts to place on shielded CPUs, as WORDS=CPU: words of a line of /proc/interrupts, such as 0000:00:03.0=2
    #[arg(long = "irq", value_name = "WORDS=CPU", value_delimiter = ',')]
    irqs: Vec<Placed>,
}

impl Args {
    /// Whether the verb writes nothing to the machine.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.verb, Verb::Plan { .. } | Verb::Suggest { .. } | Verb::Verify { .. })
    }
}

/// The error if no CPUs are given and no shield is active.
const NO_CPUS: &str = "no CPU to shield: name them, such as --cpus 2-3, or auto:2 for the two best";

/// Exit status if nothing was done.
const NOTHING_DONE: u8 = 2;

/// Runs the command.
pub(crate) fn run(args: Args) -> ExitCode {
    let root = RootDir::machine();
    let dir = RunDir::from_env();
    let result = match args.verb {
        Verb::Plan { wish, root: None, json } => show_plan(&root, &dir, wish, json),
        Verb::Plan { wish, root: Some(path), json } => plan_elsewhere(&path, wish, json),
        Verb::Suggest { count, root: path, json } => suggest_cpus(&root, path.as_deref(), count, json),
        Verb::Apply { wish, confirm_within, json } => apply(&root, &dir, wish, confirm_within, json),
        Verb::Status { window, json } => status(&root, &dir, window, json),
        Verb::Watch { repair, every, looks } => watch(&root, &dir, repair, every, looks),
        Verb::Confirm => confirm::confirm(&dir),
        Verb::AwaitConfirmation { token, within } => confirm::wait(&root, &dir, &token, within),
        Verb::Verify { json } => verify(&root, &dir, json),
        Verb::Release { force, json } => release(&root, &dir, force, json),
    };
    end(result.map_err(|failure| failure.with_status(NOTHING_DONE)))
}

type Outcome = Result<ExitCode, Failure>;

fn spared(lists: Vec<SparedList>) -> Vec<Spared> {
    lists.into_iter().flat_map(|list| list.0).collect()
}

/// The requested shield. Options that are not given are taken from the active shield.
fn want(root: &RootDir, dir: &RunDir, wish: Wish) -> Result<Want, Failure> {
    let stands = shield::current(root, dir)?;
    let stands = stands.as_ref().map(|journal| &journal.want);
    let cpus = match wish.cpus {
        None => stands.map(|want| want.cpus).ok_or(NO_CPUS)?,
        Some(choice) => shield::choose(root, dir, choice)?,
    };
    let same = stands.filter(|want| want.cpus == cpus);
    let profile = wish.profile.or(same.map(|want| want.profile)).unwrap_or_default();
    let asked = spared(wish.spare);
    let spare = if asked.is_empty() { same.map(|want| want.spare.clone()).unwrap_or_default() } else { asked };
    let irqs = if wish.irqs.is_empty() { same.map(|want| want.irqs.clone()).unwrap_or_default() } else { wish.irqs };
    let parts = wish.parts.or(same.map(|want| want.parts)).unwrap_or_default();
    Ok(Want { cpus, profile, spare, irqs, parts, own: shield::own_processes(), ..Want::default() })
}

fn suggest_cpus(root: &RootDir, path: Option<&Path>, count: usize, json: bool) -> Outcome {
    let snapshot = match path {
        None => keep::machine::snapshot(root, &CpuSet::EMPTY),
        Some(path) => keep::machine::snapshot(
            &keep::machine::capture::load(path).map_err(|why| format!("--root {why}"))?,
            &CpuSet::EMPTY,
        ),
    }?;
    let (cpus, ranked) = (suggest::suggest(&snapshot, count)?, suggest::rank(&snapshot));
    if json {
        print::json(&serde_json::json!({ "suggested": cpus, "ranked": ranked }))?
    } else {
        print::suggested(&cpus, &ranked)
    }
    Ok(ExitCode::SUCCESS)
}

fn show_plan(root: &RootDir, dir: &RunDir, wish: Wish, json: bool) -> Outcome {
    let want = want(root, dir, wish)?;
    let snapshot = RealMachine::at(root).snapshot(&want.cpus)?;
    print_plan(plan::plan(&snapshot, &want).map_err(|errors| shield::with_owners(root, errors))?, &want, json)
}

/// Prints the plan of a shield on a captured machine.
fn plan_elsewhere(path: &Path, wish: Wish, json: bool) -> Outcome {
    let machine = keep::machine::capture::load(path).map_err(|why| format!("--root {why}"))?;
    let cpus = match wish.cpus.ok_or(NO_CPUS)? {
        Choice::Cpus(cpus) => cpus,
        Choice::Auto(count) => suggest::suggest(&keep::machine::snapshot(&machine, &CpuSet::EMPTY)?, count)?,
    };
    let (profile, parts) = (wish.profile.unwrap_or_default(), wish.parts.unwrap_or_default());
    let want = Want { cpus, profile, parts, spare: spared(wish.spare), irqs: wish.irqs, ..Want::default() };
    print_plan(plan::plan(&keep::machine::snapshot(&machine, &want.cpus)?, &want)?, &want, json)
}

fn print_plan(plan: Plan, want: &Want, json: bool) -> Outcome {
    if json {
        print::json(&plan)?
    } else {
        print::plan(want, &plan)
    }
    Ok(ExitCode::SUCCESS)
}

fn apply(root: &RootDir, dir: &RunDir, wish: Wish, confirm_within: Option<DurNs>, json: bool) -> Outcome {
    let want = want(root, dir, wish)?;
    if !rustix::process::geteuid().is_root() {
        let remedy = "run as root (tahti shield plan needs no root)";
        return Err(format!("nothing was changed: only root may move other tasks and interrupts; {remedy}").into());
    }
    if let Some(within) = confirm_within {
        confirm::start(dir, within)?;
    }
    let applied = shield::apply(root, &want, dir).inspect_err(|_| {
        // Nothing was shielded, so there is nothing to confirm. The waiting process notices that and ends.
        let _ = shield::confirm::confirm(dir);
    })?;
    if json {
        print::json(&applied)?
    } else {
        print::applied(&applied)
    }
    if let Some(within) = confirm_within {
        confirm::prompt(dir, within)?;
    }
    Ok(ExitCode::from(u8::from(!applied.drift.is_empty())))
}

/// The journal of the active shield. An error if there is none.
fn standing(root: &RootDir, dir: &RunDir) -> Result<Journal, Failure> {
    shield::current(root, dir)?.ok_or_else(|| "no shield is active: make one with tahti shield apply".into())
}

fn verify(root: &RootDir, dir: &RunDir, json: bool) -> Outcome {
    let journal = standing(root, dir)?;
    let snapshot = RealMachine::at(root).snapshot(&journal.want.cpus)?;
    let drift = shield::drift(&snapshot, &journal);
    if json {
        print::json(&drift)?
    } else {
        print::drift(&journal, &drift)
    }
    Ok(ExitCode::from(u8::from(!drift.is_empty())))
}

fn status(root: &RootDir, dir: &RunDir, window: DurNs, json: bool) -> Outcome {
    let status = shield::watch::status(root, dir, duration(window))?;
    if json {
        print::json(&status)?
    } else {
        print::status(&status)
    }
    let is_wrong = !status.drift.is_empty() || !status.newcomers.is_empty() || !status.orphans.is_empty();
    Ok(ExitCode::from(u8::from(is_wrong)))
}

fn watch(root: &RootDir, dir: &RunDir, repair: bool, every: DurNs, looks: Option<u64>) -> Outcome {
    standing(root, dir)?;
    let mut found = false;
    for look in 0u64.. {
        if looks.is_some_and(|looks| look >= looks) {
            break;
        }
        if look > 0 {
            std::thread::sleep(duration(every));
        }
        let Some(look) = shield::watch::look(root, dir, repair)? else {
            println!("the shield was released");
            break;
        };
        found |= !look.drift.is_empty() || !look.newcomers.is_empty();
        print::look(&look);
    }
    Ok(ExitCode::from(u8::from(found)))
}

/// Converts a time from the command line.
fn duration(time: DurNs) -> std::time::Duration {
    std::time::Duration::from_nanos(time.0.max(0) as u64)
}

fn release(root: &RootDir, dir: &RunDir, force: bool, json: bool) -> Outcome {
    // The plant would lose its shield, and the old values with the journal.
    if let Some(plant) = keep::supervisor::neighbors::shield_owner() {
        let remedy = format!("`tahti down {plant}` releases it, a changed [shield] with `tahti reload` moves it");
        return Err(
            format!("the shield belongs to plant {plant}, which is up; nothing was changed\n  try: {remedy}").into()
        );
    }
    let released = shield::release(root, dir, force)?;
    if json {
        print::json(&released)?
    } else {
        print::released(&released)
    }
    Ok(ExitCode::from(u8::from(!released.is_whole())))
}
