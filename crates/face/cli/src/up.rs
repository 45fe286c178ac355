//! `tahti up`: brings a plant up, in the foreground or in the background.

use crate::failure::{Failure, end, own_program};
use base::DurNs;
use host::health::Outcome;
use host::plant::{Plant, Profiles};
use keep::supervisor::control::{Client, Reply, Request};
use keep::supervisor::rundir::RunDir;
use keep::supervisor::{Exit, Options, fitted, phase_word, plant_file, read_plant, short, up};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio, Termination as _};
use std::time::{Duration, Instant};

/// Start a plant; Ctrl-C or `tahti down` stops it and restores the machine
///
/// The first Ctrl-C stops all processes in order. The second one prints which processes still run and their time limit.
/// The third one kills them.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti up                     plant.toml of the current folder, until Ctrl-C
  tahti up rf.toml --for 30s   stop after 30 s; exit status 0 good, 4 degraded, 3 failed
  tahti up --profile debug     also the members of this profile
  tahti up rf.toml --detach    in the background; see `tahti ps`, `tahti logs -f`, `tahti down`")]
pub(crate) struct Args {
    #[command(flatten)]
    file: crate::control::File,
    #[command(flatten)]
    chosen: crate::control::Chosen,
    /// Continue in the background when the plant is up
    #[arg(long)]
    detach: bool,
    /// Stop after this time, such as 30s
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
    /// Measure the loops with and without the shield, alternating every 5 s (60 s, or --for)
    #[arg(long, conflicts_with_all = ["detach", "upgrade"])]
    compare: bool,
    /// Fail if a class, CPU, memory lock or the shield is unavailable
    #[arg(long)]
    require_rt: bool,
    /// When continuing a plant: start processes with a latched fault again
    #[arg(long)]
    reset: bool,
    /// Replace the running supervisor by this binary; processes keep running
    #[arg(long, conflicts_with_all = ["detach", "for_"])]
    upgrade: bool,
    /// Do not start the dashboard
    #[arg(long, env = "TAHTI_NO_DASHBOARD", value_parser = clap::builder::FalseyValueParser::new())]
    no_dashboard: bool,
    /// Started by `--detach`: continues in a separate session, without output
    #[arg(long, hide = true)]
    behind: bool,
    /// Started by an upgrade: continues the running plant
    #[arg(long, hide = true)]
    resume: bool,
}

/// Maximum time that `--detach` waits for the address of a dashboard that is starting.
const ADDRESS_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(args: Args) -> ExitCode {
    if args.upgrade {
        return upgrade(&args);
    }
    if args.detach {
        return detach(&args);
    }
    // A background process or an upgraded supervisor need not repeat the check.
    if !args.behind
        && !args.resume
        && let Err(why) = crate::check::is_good(args.file.path(), &args.chosen.profiles())
    {
        return why.report();
    }
    if args.behind {
        // Fails only for a session leader, which has a separate session already.
        let _ = rustix::process::setsid();
    }
    let options = Options {
        plant: args.file.path().to_owned(),
        for_: args.for_,
        require_rt: args.require_rt,
        reset: args.reset,
        compare: args.compare,
        quiet: args.behind,
        colours: crate::out::colours(),
        resume: args.resume,
        no_dashboard: args.no_dashboard,
        profiles: args.chosen.profiles(),
    };
    match up(&options) {
        // The plant did not come up. The status lets a service manager retry.
        Ok(Exit::Down { failed: true, outcome }) => {
            if args.behind {
                report_failure(&outcome);
            }
            ExitCode::FAILURE
        }
        Ok(Exit::Down { outcome, .. }) => ExitCode::from(outcome.exit_status()),
        Ok(Exit::Upgrade { program }) => {
            let mut command = Command::new(&program);
            command.arg("up").arg(args.file.path()).arg("--resume");
            command.args(args.behind.then_some("--behind")).args(args.require_rt.then_some("--require-rt"));
            command.args(args.no_dashboard.then_some("--no-dashboard"));
            choose(&mut command, &args);
            // Returns only on failure. The processes continue, and `tahti up` takes them over.
            let error = command.exec();
            Failure::from(format!("{} does not start: {error}; run `tahti up` to continue", program.display())).report()
        }
        Err(error) => Failure::from(error).report(),
    }
}

/// Starts this program in the background, and waits until the plant is up or has failed.
fn detach(args: &Args) -> ExitCode {
    end(start_behind(args))
}

fn start_behind(args: &Args) -> Result<ExitCode, Failure> {
    let file = plant_file(args.file.path())?;
    // Check here, so that findings appear on the user's terminal.
    let (plant, _) = read_plant(&file, &args.chosen.profiles())?;
    crate::check::is_good(&file, &args.chosen.profiles())?;
    let program = own_program()?;
    let mut command = Command::new(program);
    command.arg("up").arg(&file).arg("--behind");
    command.args(args.require_rt.then_some("--require-rt")).args(args.reset.then_some("--reset"));
    command.args(args.no_dashboard.then_some("--no-dashboard"));
    choose(&mut command, args);
    if let Some(time) = args.for_ {
        command.args(["--for", &time.to_string()]);
    }
    let run = RunDir::of(&plant.name);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            let mut why = String::new();
            if let Some(mut errors) = child.stderr.take() {
                // The output of the child is only informative, so a read error is ignored.
                let _ = std::io::Read::read_to_string(&mut errors, &mut why);
            }
            if why.trim().is_empty() {
                let log = run.log(None);
                return Err(format!("the plant did not come up ({status}); see {}", log.display()).into());
            }
            eprint!("{why}");
            return Ok(ExitCode::FAILURE);
        }
        let status = Client::connect(&run.socket()).and_then(|mut client| client.ask(&Request::Status));
        if let Ok(Reply::Status(status)) = status
            && status.supervisor == child.id()
        {
            match status.phase {
                host::supervise::Phase::Up => {
                    println!(
                        "plant {} is {}, supervised by process {}",
                        plant.name,
                        phase_word(status.phase),
                        child.id()
                    );
                    for shortfall in &status.shortfalls {
                        println!("{}", fitted("unavailable: ", shortfall));
                    }
                    match dashboard(&plant, &run, args.no_dashboard) {
                        Some(address) => println!("dashboard: {address}"),
                        None => troubles(&run),
                    }
                    return Ok(ExitCode::SUCCESS);
                }
                host::supervise::Phase::Starting => {}
                // The process ends soon, which the next pass reports.
                host::supervise::Phase::Stopping(_) | host::supervise::Phase::Down => {}
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reports why a plant did not come up, to the `up` that started this process. That one may be gone, so errors are ignored.
fn report_failure(outcome: &Outcome) {
    let mut text = "tahti: the plant did not come up:\n".to_owned();
    for reason in outcome.summary().iter().filter(|reason| reason.is_failure) {
        text += &format!("  {}\n", reason.words(short));
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints the faults that processes have reported.
fn troubles(run: &RunDir) {
    let status = Client::connect(&run.socket()).and_then(|mut client| client.ask(&Request::Status));
    let Ok(Reply::Status(status)) = status else { return };
    for process in &status.processes {
        if let Some(trouble) = &process.trouble {
            println!("{}", fitted(&format!("{}: ", process.name), trouble));
        }
    }
}

/// Gives another `up` the profiles.
fn choose(command: &mut Command, args: &Args) {
    command.args(args.chosen.profiles().names().map(|name| format!("--profile={name}")));
}

/// The address of the plant's dashboard. `None` if the plant has none, or if it does not serve within
/// [`ADDRESS_WITHIN`]. `tahti dash url` prints the address later.
fn dashboard(plant: &Plant, run: &RunDir, without: bool) -> Option<String> {
    let begin = Instant::now();
    // The plant is up even without its dashboard.
    let awaited = plant.dashboard.as_ref().filter(|_| !without).map(|process| process.name.clone());
    loop {
        // Read the state before the address: the dashboard may become ready in between.
        let is_starting = awaited.as_ref().is_some_and(|name| {
            let status = Client::connect(&run.socket()).and_then(|mut client| client.ask(&Request::Status));
            let Ok(Reply::Status(status)) = status else { return false };
            status.processes.iter().any(|process| process.name == *name && process.state == "starting")
        });
        let address = dash::address(&plant.name, dash::Role::Viewer).ok();
        if address.is_some() || !is_starting || begin.elapsed() > ADDRESS_WITHIN {
            return address;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks the running supervisor to replace itself with this binary.
fn upgrade(args: &Args) -> ExitCode {
    let asked = || -> Result<(), Failure> {
        let file = plant_file(args.file.path())?;
        let (plant, _) = read_plant(&file, &Profiles::all())?;
        let program = own_program()?;
        crate::control::ask(&plant.name, &Request::Upgrade { program })?;
        println!("plant {}: this binary takes over", plant.name);
        Ok(())
    };
    end(asked())
}
