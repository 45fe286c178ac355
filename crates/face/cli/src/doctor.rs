//! `tahti doctor`: checks whether the machine is fit for real-time work, and prints each problem with evidence and
//! remedy.

mod text;

use crate::failure::{Failure, end};
use clap::ValueEnum;
use host::doctor::{CHECKS, Facts, Use, Verdict, examine};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination as _};
use sys::root::RootDir;

/// Check whether this machine is fit for real time
///
/// Reports each problem with evidence and remedy. Changes nothing. Exit status: 0 fit, 1 fit with reservations, 2 unfit
/// (the worst of the checked uses), 64 invalid command line or unreadable DIR.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Check the files of another machine: a copy of its / directory, or output of --capture. Skips the checks that
    /// measure
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print the files that doctor and shield read, as input for --root. Excludes names of user programs, disks and
    /// networks
    #[arg(long, conflicts_with_all = ["json", "all", "uses", "explain"])]
    capture: bool,
    /// Check only for these uses
    #[arg(long = "for", value_name = "USE", value_delimiter = ',')]
    uses: Vec<UseArg>,
    /// Also list the passed checks
    #[arg(long, short = 'v', visible_alias = "verbose")]
    all: bool,
    /// Explain a check: what it reads, why, and its sources
    #[arg(long, value_name = "CHECK", conflicts_with_all = ["json", "root", "all", "uses"])]
    explain: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum UseArg {
    /// Control loop with a period of 1 ms
    #[value(name = "loop-1khz")]
    Loop1kHz,
    /// Control loop with a period of 100 us
    #[value(name = "loop-10khz")]
    Loop10kHz,
    /// Thread that never sleeps, on a separate CPU
    Polling,
}

impl From<UseArg> for Use {
    fn from(arg: UseArg) -> Self {
        match arg {
            UseArg::Loop1kHz => Self::Loop1kHz,
            UseArg::Loop10kHz => Self::Loop10kHz,
            UseArg::Polling => Self::Polling,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> ExitCode {
    if let Some(id) = &args.explain {
        return explain(id);
    }
    if args.capture {
        return capture(args.root.as_deref());
    }
    let facts = match facts(args.root.as_deref()) {
        Ok(facts) => facts,
        Err(why) => return why.with_status(super::USAGE).report(),
    };
    let mut uses: Vec<Use> = args.uses.iter().copied().map(Use::from).collect();
    if uses.is_empty() {
        uses.extend(Use::ALL);
    }
    uses.sort_unstable();
    uses.dedup();
    let report = examine(&facts, &uses);
    let printed = if args.json {
        serde_json::to_string_pretty(&report).expect("a report has only text keys") + "\n"
    } else {
        text::report(&report, args.all)
    };
    print!("{}", printed);
    ExitCode::from(match report.verdict {
        Verdict::Fit => 0,
        Verdict::WithReservations => 1,
        Verdict::Unfit => 2,
    })
}

/// Prints the files that doctor and shield read, with private details removed.
fn capture(root: Option<&Path>) -> ExitCode {
    let files = match root {
        None => keep::machine::capture::take(&RootDir::machine()).map_err(Failure::from),
        Some(path) => keep::machine::capture::load(path).map(|captured| captured.0.scrubbed()).map_err(Failure::from),
    };
    let printed = files.map(|files| print!("{}", files.to_capture()));
    end(printed.map_err(|why| why.with_status(super::USAGE)))
}

/// Facts of this machine, or of a directory or capture file given by `--root`.
fn facts(root: Option<&Path>) -> Result<Facts, Failure> {
    let Some(path) = root else { return Ok(keep::machine::facts::gather(&RootDir::machine())) };
    if path.is_dir() {
        return Ok(keep::machine::facts::gather(&RootDir::at(path)));
    }
    let captured = keep::machine::capture::load(path).map_err(|why| format!("--root {why}"))?;
    Ok(Facts { files: captured.0, probes: keep::machine::facts::no_probes() })
}

fn explain(id: &str) -> ExitCode {
    if let Some(check) = CHECKS.iter().find(|check| check.about().id == id) {
        print!("{}", text::about(check.about()));
        return ExitCode::SUCCESS;
    }
    let known = CHECKS.iter().map(|check| check.about().id).collect::<Vec<_>>().join(", ");
    Failure::from(format!("no check {id:?}; the checks are: {known}")).with_status(super::USAGE).report()
}
