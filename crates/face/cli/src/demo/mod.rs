//! `tahti demo`: the programs of the examples, so that one build is enough.

mod activity;
mod cavity;
mod channel;
mod llrf;
mod logger;

use crate::failure::{Failure, end};
use clap::Subcommand;
use std::process::ExitCode;

/// Programs of the examples: a control loop, a logger, a noisy neighbour, an activity of a frame
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    Activity(activity::Args),
    Llrf(llrf::Args),
    Logger(logger::Args),
    Noise(bench::noise::Args),
}

pub(crate) fn run(args: Args) -> ExitCode {
    let result = match args.program {
        Program::Activity(args) => activity::run(&args),
        Program::Llrf(args) => llrf::run(&args),
        Program::Logger(args) => logger::run(&args),
        Program::Noise(args) => bench::noise::run(&args).map_err(Failure::from),
    };
    end(result)
}
