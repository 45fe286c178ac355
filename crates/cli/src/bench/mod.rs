//! `tahti bench`: measurements, one file each.

mod runaway;
mod shield;

use std::process::ExitCode;

/// Measure this machine
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Runaway(runaway::Args),
    Shield(shield::Args),
}

pub(crate) fn run(args: Args) -> ExitCode {
    match args.what {
        What::Runaway(args) => runaway::run(args),
        What::Shield(args) => shield::run(&args),
    }
}
