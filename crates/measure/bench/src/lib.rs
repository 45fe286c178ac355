//! `tahti bench`: every measurement, one file each; a line in `What` and one in `run` make it known.

mod classes;
mod cyclictest;
mod fingerprint;
mod frames;
mod ioc;
mod knobs;
pub mod looprun;
mod measure;
pub mod noise;
mod quiet;
mod rtt;
mod runaway;
mod shield;
mod shielded;
mod supervisor;
mod vxworks;
mod wakeup;

use clap::Subcommand;
use host::plan::Spared;
use std::process::ExitCode;

/// Measure this machine, beside the published figures of others
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Classes(classes::Args),
    Ioc(ioc::Args),
    IocScan(ioc::groups::Args),
    Frames(frames::Args),
    Knobs(knobs::Args),
    Quiet(quiet::Args),
    Rtt(rtt::Args),
    Runaway(runaway::Args),
    Shield(shield::Args),
    Supervisor(supervisor::Args),
    Wakeup(wakeup::Args),
    /// The loop that `wakeup` measures, in a process of its own
    #[command(hide = true)]
    Loop(measure::LoopArgs),
    /// The other processes of `rtt`
    #[command(hide = true)]
    RttPart(rtt::PartArgs),
    /// The endless loops of `classes`
    #[command(hide = true)]
    Spin(classes::SpinArgs),
}

/// Whom a shield may touch that is only made to be measured.
#[derive(clap::Args)]
struct Touched {
    /// Processes that the shield must not touch: PID alone with its threads, PID+ with its descendants
    #[arg(long, value_name = "PIDS", value_delimiter = ',', env = "TAHTI_SPARE")]
    spare: Vec<Spared>,
    /// Shield from every task of this machine
    #[arg(long)]
    whole_machine: bool,
}

impl Touched {
    /// Who is spared. A measurement is no reason to push everybody aside: that has to be said.
    fn spare(&self) -> Result<Vec<Spared>, String> {
        if self.spare.is_empty() && !self.whole_machine {
            return Err("this measurement shields CPUs from every task of this machine, again and again: say so with \
                        --whole-machine, or name processes to be spared (PID alone, PID+ with its descendants; --spare 1+ \
                        spares everybody but this measurement; TAHTI_SPARE)"
                .into());
        }
        Ok(self.spare.clone())
    }
}

/// Measures and prints.
pub fn run(args: Args) -> ExitCode {
    let result = match args.what {
        What::Classes(args) => classes::run(&args),
        What::Ioc(args) => ioc::run(&args),
        What::IocScan(args) => ioc::groups::run(&args),
        What::Frames(args) => frames::run(&args),
        What::Knobs(args) => knobs::run(&args),
        What::Quiet(args) => quiet::run(&args),
        What::Rtt(args) => rtt::run(&args),
        What::RttPart(args) => rtt::run_part(&args),
        What::Runaway(args) => return runaway::run(args),
        What::Shield(args) => return shield::run(&args),
        What::Supervisor(args) => return supervisor::run(args),
        What::Wakeup(args) => wakeup::run(&args),
        What::Loop(args) => measure::run_loop(&args),
        What::Spin(args) => classes::spin(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

/// Says what went wrong; the exit status of a command that failed.
fn fail(why: &str) -> ExitCode {
    eprintln!("tahti: {}", why.trim_end());
    ExitCode::FAILURE
}
