//! The commands for developers and CI: `cargo xtask test | test-vm | tidy | bench | soak | fuzz`.

mod again;
mod appliance;
mod bench;
mod bindings;
mod browser;
mod calls;
mod dist;
mod epics;
mod fuzz;
mod gate;
mod hang;
mod pages;
mod peers;
mod programs;
mod reading;
mod record;
mod run;
mod soak;
mod suite;
mod targets;
mod test;
mod tidy;
mod vm;
mod wording;

use std::process::ExitCode;

const HELP: &str = "usage: cargo xtask <command>

  test [--unprivileged]              the gate: the stages that CI runs
  test --all [--unprivileged]        every stage
  test [--unprivileged] STAGE...     these stages
  test-vm [--list] [--only GUEST,...] [--test PART] [--run COMMAND]
                                     the tests that need other kernels, in QEMU guests
  tidy                               the house rules: arrows between crates, pure crates, unsafe, dependencies, pages,
                                     one stage for each test
  bench [NAME...] [--write]          measures what docs/develop/benchmark-tables.md names; --write keeps the output
  bench -- COMMAND                   runs any `tahti bench COMMAND`
  soak [--for SECONDS]               messages while each party in turn is killed by SIGKILL (600 s)
  dist [deb|static|wheel ...] [--profile dev]
                                     what people install, in target/dist: a Debian package, a static binary, a Python wheel
  fuzz [TARGET...] [--for SECONDS]   coverage-guided fuzzing (60 s each); needs a nightly toolchain
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let outcome = match args.next().as_deref() {
        Some("test") => gate::main(args.collect()),
        // `test` starts this for each of its stages.
        Some("stage") => gate::within(&args.collect::<Vec<_>>()),
        Some("test-vm") => test::install("vm").and_then(|()| vm::main(args.collect())),
        Some("tidy") => tidy::main(),
        Some("bench") => bench::main(args.collect()),
        Some("soak") => soak::main(&args.collect::<Vec<_>>()),
        Some("dist") => dist::main(args.collect()),
        Some("fuzz") => fuzz::main(args.collect()),
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("unknown command {other:?}\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
