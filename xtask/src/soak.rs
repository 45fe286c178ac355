//! `cargo xtask soak`: messages while each party in turn is killed.

use crate::run::{Outcome, cargo, run};

/// Seconds, unless told otherwise.
const LONG: &str = "600";

/// Runs the test `soak` for long; links between hosts take part.
pub(crate) fn main(args: &[String]) -> Outcome {
    let seconds = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => LONG,
        ["--for", seconds] if seconds.parse::<u32>().is_ok_and(|seconds| seconds > 0) => seconds,
        _ => return Err(format!("unknown words {:?}: expected --for SECONDS", args.join(" "))),
    };
    run(cargo(["test", "--package", "cli", "--features", "fabric", "--test", "soak", "--quiet"])
        .env("TAHTI_SOAK_SECONDS", seconds))
}
