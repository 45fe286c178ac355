//! `cargo xtask soak`: sends messages while the test kills one party after another.

use crate::run::{Outcome, cargo, run};

/// Default duration in seconds.
const LONG: &str = "600";

/// Runs the test `soak` for the given duration, including links between hosts.
pub(crate) fn main(args: &[String]) -> Outcome {
    let seconds = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => LONG,
        ["--for", seconds] if seconds.parse::<u32>().is_ok_and(|seconds| seconds > 0) => seconds,
        _ => return Err(format!("unknown words {:?}: expected --for SECONDS", args.join(" "))),
    };
    run(cargo(["test", "--package", "cli", "--features", "fabric", "--test", "soak", "--quiet"])
        .env("TAHTI_SOAK_SECONDS", seconds))
}
