//! `tahti run`: runs one program in the foreground with scheduling class, CPUs, memory lock and guard.

use crate::failure::Failure;
use base::{CpuSet, DurNs, Policy};
use host::guard::{BUDGET, Budget, LADDER};
use keep::RunDir;
use keep::foreground::{Foreground, run as run_in_foreground};
use keep::keeper::protocol::End;
use keep::launch::LaunchSpec;
use keep::shield::{self, ShieldGroup};
use keep::threads::ThreadRule;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use sys::root::RootDir;

/// Exit status of tahti's own failures, as in `env` and `timeout`. The other codes belong to the program.
const OWN_FAILURE: u8 = 125;

/// Run one program with a real-time class, CPUs, locked memory and a runaway guard
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tahti run --policy fifo:10 --cpus 1 --mlock -- ./loop
  tahti run --policy fifo:80 --cpus shield --for 10s -- ./loop     on the shielded CPUs
  tahti run --thread 'scan-*=fifo:60' --thread 'cb*=cpus:0' -- softIoc st.cmd")]
pub(crate) struct Args {
    /// fifo:PRIORITY, rr:PRIORITY, deadline:RUNTIME/DEADLINE/PERIOD, other, batch or idle
    #[arg(long, visible_alias = "class", value_name = "CLASS")]
    policy: Option<Policy>,
    /// CPUs such as 2-3, or `shield` for the shielded CPUs
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Lock all its memory, present and future
    #[arg(long)]
    mlock: bool,
    /// Maximum CPU time of a FIFO or RR thread without a pause (80%/100ms), or `none` with --heartbeat
    #[arg(long, value_name = "SHARE/PERIOD")]
    rt_budget: Option<Budget>,
    /// Maximum time between two WATCHDOG=1 messages to NOTIFY_SOCKET
    #[arg(long, value_name = "TIME")]
    heartbeat: Option<DurNs>,
    /// Class or CPUs of threads by name: `scan-*=fifo:60`, `worker*=cpus:0`; repeatable
    #[arg(long, value_name = "PATTERN=CLASS", value_parser = rule)]
    thread: Vec<ThreadRule>,
    /// Stop it after this time
    #[arg(long = "for", value_name = "TIME")]
    within: Option<DurNs>,
    /// Fail if a requested property is unavailable
    #[arg(long)]
    require_rt: bool,
    /// Start its children as time-sharing processes
    #[arg(long)]
    reset_on_fork: bool,
    /// User to run it as
    #[arg(long)]
    user: Option<String>,
    /// Keep only these capabilities (comma-separated; empty for none)
    #[arg(long, value_name = "LIST")]
    capabilities: Option<String>,
    /// NUMA node of its memory
    #[arg(long, value_name = "NODE")]
    numa: Option<u16>,
    /// Folder for the evidence of a runaway [default: evidence in tahti's run folder]
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn rule(text: &str) -> Result<ThreadRule, String> {
    let expected = "expected PATTERN=CLASS such as scan-*=fifo:60, or PATTERN=cpus:LIST";
    let (pattern, what) = text.split_once('=').ok_or(expected)?;
    let (mut policy, mut cpus) = (None, None);
    match what.strip_prefix("cpus:") {
        Some(list) => cpus = Some(list.parse().map_err(|error| format!("{error}; {expected}"))?),
        None => policy = Some(what.parse().map_err(|error| format!("{error}; {expected}"))?),
    }
    Ok(ThreadRule { pattern: pattern.to_owned(), policy, cpus })
}

pub(crate) fn run(args: Args) -> ExitCode {
    let what = match wanted(args) {
        Ok(what) => what,
        Err(why) => {
            eprintln!("tahti run: {why}");
            return ExitCode::from(OWN_FAILURE);
        }
    };
    match run_in_foreground(&what, &mut |line| eprintln!("tahti run: {line}")) {
        Ok(outcome) if outcome.unmatched && what.launch.require_rt && outcome.end == End::Exit(0) => {
            ExitCode::from(OWN_FAILURE)
        }
        Ok(outcome) if outcome.time_over && matches!(outcome.end, End::Signal { .. }) => ExitCode::SUCCESS,
        Ok(outcome) => ExitCode::from(outcome.end.code()),
        Err(why) => {
            eprintln!("tahti run: {why}");
            ExitCode::from(OWN_FAILURE)
        }
    }
}

fn wanted(args: Args) -> Result<Foreground, Failure> {
    let program = args.command.first().cloned().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or(&program).to_string_lossy().into_owned();
    let mut launch = LaunchSpec::new(name, args.command);
    (launch.policy, launch.mlock, launch.numa_node) = (args.policy, args.mlock, args.numa);
    // As in a plant: pass on all variables except those that systemd sets for this process. Another user starts with a
    // clean environment.
    launch.env_pass = Some(if args.user.is_some() { Vec::new() } else { vec!["*".to_owned()] });
    (launch.require_rt, launch.reset_on_fork, launch.user) = (args.require_rt, args.reset_on_fork, args.user);
    if let Some(list) = &args.capabilities {
        let words = list.split(',').filter(|word| !word.trim().is_empty());
        let named = words.map(str::parse).collect::<Result<_, keep::launch::CapabilityError>>();
        launch.capabilities = Some(named?);
    }
    if let Some(text) = &args.cpus {
        (launch.cpus, launch.cgroups) = cpus(text)?;
    }
    let budget = args.rt_budget.unwrap_or(BUDGET);
    if budget == Budget::None && args.heartbeat.is_none() {
        return Err("--rt-budget none needs --heartbeat: without it a runaway cannot be detected".into());
    }
    let runs = RunDir::from_env();
    Ok(Foreground {
        launch,
        budget,
        ladder: LADDER.to_vec(),
        heartbeat: args.heartbeat,
        rules: args.thread,
        within: args.within,
        evidence: args.evidence.unwrap_or_else(|| runs.path().join("evidence")),
    })
}

/// The CPUs of `--cpus`, and the control groups that belong to them.
fn cpus(text: &str) -> Result<(Option<CpuSet>, Vec<PathBuf>), Failure> {
    if text != "shield" {
        let cpus: CpuSet = text.parse().map_err(|error| format!("--cpus: {error}"))?;
        if cpus.is_empty() {
            return Err("--cpus: the list is empty".into());
        }
        // The kernel accepts any list with at least one of its CPUs and silently drops the others.
        let online = sys::kernel::online(&RootDir::machine()).ok_or("the online CPUs cannot be read")?;
        let absent = cpus.minus(&online);
        if !absent.is_empty() {
            return Err(format!("--cpus: no CPUs {absent} on this machine; online are {online}").into());
        }
        return Ok((Some(cpus), Vec::new()));
    }
    let standing = shield::current(&RootDir::machine(), &RunDir::from_env())?;
    let journal = standing.ok_or("--cpus shield: no CPU is shielded; `tahti shield apply --cpus LIST` first")?;
    let groups = match &journal.place {
        ShieldGroup::Affinity => Vec::new(),
        ShieldGroup::CpusetV1 { dir } | ShieldGroup::CgroupV2 { dir } => vec![PathBuf::from(dir)],
    };
    Ok((Some(journal.want.cpus), groups))
}
