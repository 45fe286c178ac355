//! `tahti demo`: the programs of the examples, included so that one build suffices.

mod activity;
mod ao;
mod cavity;
mod channel;
mod llrf;
mod logger;
mod packaging;
mod telescope;

use crate::failure::{Failure, end};
use base::{CpuId, DurNs, Policy};
use clap::Subcommand;
use std::process::ExitCode;

/// Programs of the examples and templates
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    Activity(activity::Args),
    Ao(ao::Args),
    Camera(packaging::CameraArgs),
    Llrf(llrf::Args),
    Logger(logger::Args),
    Noise(bench::noise::Args),
    Sorter(packaging::SorterArgs),
    Telescope(telescope::Args),
}

/// Arguments of all demo programs: scheduling and duration of the loop.
#[derive(clap::Args)]
struct RunArgs {
    /// Scheduling class of the loop [default: that of the process]
    #[arg(long, value_name = "CLASS")]
    class: Option<Policy>,
    /// CPU of the loop
    #[arg(long)]
    cpu: Option<CpuId>,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME")]
    for_: Option<DurNs>,
}

/// Runs `work` in a time-sharing thread, whatever the scheduling class of the process. Long work before a loop begins
/// would otherwise look like a runaway to the guard.
fn unhurried<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let lowered = || {
        // Fails only if the thread is in the time-sharing class already.
        let _ = sys::sched::set_scheduling(0, sys::sched::Scheduling { policy: Policy::OTHER, reset_on_fork: false });
        work()
    };
    match std::thread::scope(|scope| scope.spawn(lowered).join()) {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    let result = match args.program {
        Program::Activity(args) => activity::run(&args),
        Program::Ao(args) => ao::run(&args),
        Program::Llrf(args) => llrf::run(&args),
        Program::Camera(args) => packaging::camera(&args),
        Program::Sorter(args) => packaging::sorter(&args),
        Program::Telescope(args) => telescope::run(&args),
        Program::Logger(args) => logger::run(&args),
        Program::Noise(args) => bench::noise::run(&args).map_err(Failure::from),
    };
    end(result)
}
