//! `cargo xtask fuzz`: coverage-guided fuzzing of everything that reads bytes from outside.

use crate::peers;
use crate::record;
use crate::run::{Outcome, root, run};
use std::process::Command;

/// Duration of each target in the stage of `cargo xtask test`, in seconds.
const SMOKE_SECONDS: u32 = 5;

/// `cargo xtask fuzz [TARGET...] [--for SECONDS]`.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let mut seconds = 60;
    let mut targets = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--for" {
            let given = args.next().unwrap_or_default();
            seconds = given.parse().map_err(|_| format!("--for {given:?}: expected whole seconds"))?;
        } else {
            targets.push(arg);
        }
    }
    if !peers::nightly() {
        return Err("fuzzing needs a nightly toolchain: rustup toolchain install nightly".into());
    }
    if targets.is_empty() {
        targets = all_targets()?;
    }
    fuzz(&targets, seconds, &[])
}

/// Runs each target for [`SMOKE_SECONDS`]. The build uses little optimisation and no address sanitiser, as nearly all code
/// that reads bytes is safe; this halves the build time. Without a nightly toolchain, it prints that it did not run.
pub(crate) fn smoke() -> Outcome {
    if !peers::nightly() {
        println!("DID NOT RUN: no nightly toolchain here (rustup toolchain install nightly)");
        return Ok(());
    }
    fuzz(&all_targets()?, SMOKE_SECONDS, &["--dev", "--sanitizer", "none"])
}

fn fuzz(targets: &[String], seconds: u32, build: &[&str]) -> Outcome {
    let mut path = peers::cargo_tool("cargo-fuzz")?.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    for target in targets {
        // A toolchain that the environment selects would override `+nightly`.
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo-fuzz", "run"]).args(build).args([target, "--"]);
        command.args([format!("-max_total_time={seconds}"), "-verbosity=0".into(), "-print_final_stats=1".into()]);
        command.env("PATH", &path).env("RUSTUP_TOOLCHAIN", "nightly");
        record::timed(target, || run(&mut command))?;
    }
    Ok(())
}

/// Every file of `fuzz/fuzz_targets`.
fn all_targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut targets: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned)).collect();
    targets.sort();
    Ok(targets)
}
