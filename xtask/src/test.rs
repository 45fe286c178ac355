//! `cargo xtask test`: the stages that CI runs, each a row of one table.

use crate::bindings;
use crate::epics;
use crate::fuzz;
use crate::run::{Outcome, all, cargo, root, run};
use crate::suite::{Show, Suite, for_tests, plain, take_passed_again};
use crate::{peers, tidy, vm};
use std::process::Command;
use std::time::Instant;

/// One stage of the test command.
struct Stage {
    name: &'static str,
    /// What it shows.
    what: &'static str,
    /// Whether it changes the machine (and restores it), for which it must be root.
    needs_root: bool,
    run: fn() -> Outcome,
}

const STAGES: &[Stage] = &[
    Stage { name: "fmt", what: "formatting", needs_root: false, run: formatting },
    Stage { name: "tidy", what: "the house rules", needs_root: false, run: tidy::main },
    Stage { name: "clippy", what: "lints", needs_root: false, run: clippy },
    Stage { name: "unit", what: "tests that need no privilege", needs_root: false, run: unit },
    Stage {
        name: "loom",
        what: "shared-memory blocks under every order of memory accesses",
        needs_root: false,
        run: loom,
    },
    Stage { name: "miri", what: "shared-memory blocks without undefined behaviour", needs_root: false, run: miri },
    Stage {
        name: "root",
        what: "tests that change the real machine and restore it",
        needs_root: true,
        run: root_tests,
    },
    Stage {
        name: "vm",
        what: "tests that need other kernels, in QEMU guests",
        needs_root: true,
        run: || vm::main(Vec::new()),
    },
    Stage { name: "fuzz", what: "a few seconds of each fuzz target", needs_root: false, run: fuzz::smoke },
    Stage { name: "epics", what: "databases, servers and tools beside C EPICS", needs_root: false, run: epics::main },
    Stage {
        name: "networks",
        what: "Channel Access between hosts beside C EPICS, in network namespaces",
        needs_root: true,
        run: epics::networks,
    },
    Stage {
        name: "bindings",
        what: "libtahti as CMake, pkg-config and pip find it, with the examples in C and C++",
        needs_root: false,
        run: bindings::main,
    },
    Stage {
        name: "fabric",
        what: "messages between hosts, in network namespaces with links cut and restored",
        needs_root: true,
        run: fabric,
    },
    Stage { name: "doc", what: "documentation builds without warnings", needs_root: false, run: doc },
];

/// Formatting, also of the record types, whose modules stand in a macro, where `cargo fmt` does not look.
fn formatting() -> Outcome {
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    let types = root().join("crates/ioc/db/src/rec");
    let files = std::fs::read_dir(&types).map_err(|error| format!("{}: {error}", types.display()))?;
    let files =
        files.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.extension().is_some_and(|e| e == "rs"));
    run(Command::new("rustfmt").args(["--check", "--edition", "2024"]).args(files))
}

/// With all features, as every stage but this builds; and what users get, without any.
fn clippy() -> Outcome {
    run(&mut cargo(["clippy", "--workspace", "--all-targets", "--all-features", "--quiet", "--", "-D", "warnings"]))?;
    run(&mut cargo(["clippy", "--package", "cli", "--package", "capi", "--quiet", "--", "-D", "warnings"]))
}

/// Programs first; documentation's examples are a run of their own for cargo.
fn unit() -> Outcome {
    // Tests start some of the examples, as programs.
    run(for_tests("build")?.args(["--examples", "--quiet"]))?;
    let kinds = &["--lib", "--bins", "--examples"];
    let programs = Suite { kinds, programs: plain()?, ..Suite::default() }.run(Show::Live);
    let examples = Suite { kinds: &["--doc"], ..Suite::default() }.run(Show::Live);
    all([programs, examples])
}

/// In a target folder of its own: the flag would rebuild everything else each time.
fn loom() -> Outcome {
    let words = ["test", "--package", "ring", "--test", "loom", "--release", "--quiet", "--target-dir", "target/loom"];
    run(cargo(words).env("RUSTFLAGS", "--cfg loom"))
}

/// Runs where rustup has a nightly toolchain, to which miri is added; elsewhere says so.
fn miri() -> Outcome {
    let miri = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
    if !peers::nightly() || run(Command::new("rustup").args(miri)).is_err() {
        println!(
            "DID NOT RUN: no nightly toolchain with miri here (rustup toolchain install nightly --component miri)"
        );
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args(["+nightly", "miri", "test", "--package", "ring", "--lib", "--quiet", "--target-dir", "target/miri"]);
    // Whole pages take minutes here, and are made of the same blocks.
    command.args([
        "--",
        "--skip",
        "page::",
        "--skip",
        "behaves_like_a_bounded_list",
        "--skip",
        "no_content_of_the_memory",
    ]);
    // A case takes a second here: what other orders of bytes do, the unit tests and the fuzzer see.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "16");
    run(command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO"))
}

/// Tests behind the feature `root-tests`, one at a time: they share the machine.
fn root_tests() -> Outcome {
    if !is_root() {
        return Err("this needs root; run as root, or give --unprivileged to leave it out (and be told so)".into());
    }
    Suite { programs: vec!["root_*".into()], words: vec!["--test-threads=1"], ..Suite::default() }.run(Show::Live)
}

/// Whether this process may change the machine.
fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
    })
}

fn fabric() -> Outcome {
    let (features, programs) = (vec!["cli/fabric".into()], vec!["fabric".into(), "soak".into()]);
    Suite { features, programs, ..Suite::default() }.run(Show::Live)
}

fn doc() -> Outcome {
    let words = ["doc", "--workspace", "--no-deps", "--document-private-items", "--all-features", "--quiet"];
    run(cargo(words).env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
}

/// What the programs that this one has started and that have ended took of the CPUs: what a stage waits shows beside it.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold spaces; the fields behind it count from 3, user and system time of children are 16 and 17.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok());
    // The kernel's unit for user space is 1/100 s everywhere.
    ticks.sum::<f64>() / 100.0
}

/// Runs the named stages, or all of them in order; goes on after a failure and tells all at the end.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let (flags, names): (Vec<_>, Vec<_>) = args.into_iter().partition(|arg| arg.starts_with("--"));
    let unprivileged = match flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--unprivileged"] => true,
        _ => return Err(format!("unknown option {}: expected --unprivileged", flags.join(" "))),
    };
    if let Some(unknown) = names.iter().find(|name| STAGES.iter().all(|stage| stage.name != **name)) {
        let known = STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ");
        return Err(format!("unknown stage {unknown:?}: expected one of {known}"));
    }
    let wanted = |stage: &&Stage| names.is_empty() || names.iter().any(|name| name == stage.name);
    let mut ends = Vec::new();
    for stage in STAGES.iter().filter(wanted) {
        if stage.needs_root && unprivileged {
            ends.push((stage, "DID NOT RUN (--unprivileged)".to_owned(), Ok(())));
            continue;
        }
        println!("\n== {}: {}", stage.name, stage.what);
        let (start, used) = (Instant::now(), cpu_seconds());
        let outcome = (stage.run)();
        let word = if outcome.is_ok() { "passed" } else { "FAILED" };
        println!("{} {word}", stage.name);
        let (took, used) = (start.elapsed().as_secs_f64(), cpu_seconds() - used);
        let mut how = format!("{word} in {took:.1} s, {used:.0} s of a CPU");
        for name in take_passed_again() {
            how += &format!("\n           ONLY WHEN RUN AGAIN: {name}");
        }
        ends.push((stage, how, outcome));
    }
    println!();
    for (stage, how, _) in &ends {
        println!("{:<10} {how}", stage.name);
    }
    let failed = |(stage, _, outcome): (&Stage, String, Outcome)| {
        outcome.map_err(|error| format!("stage {} failed: {error}", stage.name))
    };
    all(ends.into_iter().map(failed))
}
