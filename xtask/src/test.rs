//! `cargo xtask test`: the stages that CI runs, each a row of one table.

use crate::appliance;
use crate::bindings;
use crate::browser;
use crate::epics;
use crate::fuzz;
use crate::run::{Outcome, all, cargo, root, run};
use crate::suite::{Show, Suite, for_tests, plain, take_passed_again};
use crate::{peers, tidy, vm};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// One stage of the test command.
struct Stage {
    name: &'static str,
    /// What it shows.
    what: &'static str,
    /// Whether it changes the machine (and restores it), for which it must be root.
    needs_root: bool,
    /// Whether it runs beside the stages that stand behind it: it builds in a folder of its own, and does not care how
    /// long things take. Most of such a stage is compiling, which gives way; most of the others is waiting.
    beside: bool,
    run: fn() -> Outcome,
}

/// What most stages are.
const STAGE: Stage = Stage { name: "", what: "", needs_root: false, beside: false, run: || Ok(()) };

const STAGES: &[Stage] = &[
    Stage { name: "fmt", what: "formatting", run: formatting, ..STAGE },
    Stage { name: "tidy", what: "the house rules", run: tidy::main, ..STAGE },
    Stage { name: "clippy", what: "lints", run: clippy, ..STAGE },
    Stage { name: "unit", what: "tests that need no privilege", run: unit, ..STAGE },
    Stage {
        name: "root",
        what: "tests that change the real machine and restore it",
        needs_root: true,
        run: root_tests,
        ..STAGE
    },
    Stage {
        name: "vm",
        what: "tests that need other kernels, in QEMU guests",
        needs_root: true,
        run: || vm::main(Vec::new()),
        ..STAGE
    },
    Stage { name: "guests", what: "virtual machines as members of a plant, in QEMU", run: guests, ..STAGE },
    Stage {
        name: "loom",
        what: "shared-memory blocks under every order of memory accesses",
        beside: true,
        run: loom,
        ..STAGE
    },
    Stage {
        name: "miri",
        what: "shared-memory blocks and turns of teams without undefined behaviour",
        beside: true,
        run: miri,
        ..STAGE
    },
    Stage {
        name: "neon",
        what: "arithmetic by the vector instructions of 64-bit Arm, emulated",
        beside: true,
        run: neon,
        ..STAGE
    },
    Stage { name: "fuzz", what: "a few seconds of each fuzz target", beside: true, run: fuzz::smoke, ..STAGE },
    Stage { name: "epics", what: "databases, servers and tools beside C EPICS", run: epics::main, ..STAGE },
    Stage {
        name: "networks",
        what: "Channel Access between hosts beside C EPICS, in network namespaces",
        needs_root: true,
        run: epics::networks,
        ..STAGE
    },
    Stage {
        name: "appliance",
        what: "the archive beside other people's clients of the EPICS Archiver Appliance and readers of Parquet",
        run: appliance::main,
        ..STAGE
    },
    Stage { name: "tls", what: "HTTPS beside OpenSSL and curl", run: tls, ..STAGE },
    Stage {
        name: "bindings",
        what: "libtahti as CMake, pkg-config and pip find it, with the examples in C and C++",
        run: bindings::main,
        ..STAGE
    },
    Stage { name: "browser", what: "the dashboard's page in Chromium, panel by panel", run: browser::main, ..STAGE },
    Stage {
        name: "beyond",
        what: "beyond one machine: messages between hosts, whose links are cut and restored; a logger whose node of Cassandra is killed; the dashboard by TLS",
        needs_root: true,
        run: beyond,
        ..STAGE
    },
    Stage {
        name: "cassandra",
        what: "the archive in nodes of Cassandra, which are killed while it is written",
        beside: true,
        run: cassandra,
        ..STAGE
    },
    Stage { name: "doc", what: "documentation builds without warnings", run: doc, ..STAGE },
];

/// Formatting, also of what stands in tables: files that a macro declares, which `cargo fmt` does not see.
fn formatting() -> Outcome {
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    let crates = tidy::files()?.into_iter().filter(|file| file.starts_with(root().join("crates")));
    let rust = crates.filter(|file| file.extension().is_some_and(|e| e == "rs"));
    // Without the command line: it names hundreds of files.
    let status = Command::new("rustfmt").args(["--check", "--edition", "2024"]).args(rust).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`rustfmt --check` of all files of crates ended with {status}")),
        Err(error) => Err(format!("`rustfmt` could not be started: {error}")),
    }
}

/// With all features, as every stage but this builds; and what users get, without any.
fn clippy() -> Outcome {
    run(&mut cargo(["clippy", "--workspace", "--all-targets", "--all-features", "--quiet", "--", "-D", "warnings"]))?;
    run(&mut cargo(["clippy", "--package", "cli", "--package", "capi", "--quiet", "--", "-D", "warnings"]))?;
    // What the build script of `heap` compiles is no target of cargo's.
    let out = root().join("target/lint");
    let mut driver = Command::new("clippy-driver");
    driver.args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "tahti_heap", "--emit=metadata"]);
    driver.args(["-C", "panic=abort", "-W", "clippy::all", "-W", "unsafe_op_in_unsafe_fn"]);
    driver.args(["-W", "clippy::undocumented_unsafe_blocks", "-W", "clippy::multiple_unsafe_ops_per_block"]);
    driver.args(["-D", "warnings", "--out-dir"]).arg(out).arg("crates/measure/heap/preload/heap.rs");
    run(&mut driver)
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
    let words = [
        "test",
        "--package",
        "ring",
        "--package",
        "sys",
        "--test",
        "loom",
        "--release",
        "--quiet",
        "--target-dir",
        "target/loom",
    ];
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
    // Whole pages take minutes here, and are made of the same blocks.
    let ring = ["--skip", "page::", "--skip", "behaves_like_a_bounded_list", "--skip", "no_content_of_the_memory"];
    for (package, words) in [("ring", &ring[..]), ("sys", &["turn::"])] {
        let mut command = Command::new("cargo");
        command.args([
            "+nightly",
            "miri",
            "test",
            "--package",
            package,
            "--lib",
            "--quiet",
            "--target-dir",
            "target/miri",
            "--",
        ]);
        // A case takes a second here: what other orders of bytes do, the unit tests and the fuzzer see.
        command.args(words).env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "16");
        run(command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO"))?;
    }
    Ok(())
}

/// Runs where rustup has the target, which needs no C library of that kind; elsewhere says so.
fn neon() -> Outcome {
    const TARGET: &str = "aarch64-unknown-linux-musl";
    if run(Command::new("rustup").args(["target", "add", TARGET])).is_err() {
        println!("DID NOT RUN: no standard library for {TARGET} here (rustup target add {TARGET})");
        return Ok(());
    }
    peers::debian(&["qemu-user"])?;
    let words = ["test", "--package", "kernels", "--package", "optics", "--lib", "--tests", "--quiet"];
    let mut command = cargo(words);
    command.args(["--target", TARGET, "--target-dir", "target/neon"]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
    run(command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", "qemu-aarch64"))
}

/// Tests behind the feature `root-tests`, one at a time: they share the machine.
fn root_tests() -> Outcome {
    if !is_root() {
        return Err("this needs root; run as root, or give --unprivileged to leave it out (and be told so)".into());
    }
    Suite { programs: vec!["root_*".into()], words: vec!["--test-threads=1"], ..Suite::default() }
        .env(browser::VARIABLE, browser::modules()?)
        .run(Show::Live)
}

/// Whether this process may change the machine.
fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
    })
}

fn guests() -> Outcome {
    peers::debian(&["qemu-system-x86", "qemu-utils", "busybox-static", "libvirt0", "libxml2-utils", "libxen-dev"])?;
    let linux = peers::small_linux()?;
    Suite { programs: vec!["guests".into()], ..Suite::default() }
        .env("TAHTI_QEMU", "qemu-system-x86_64")
        .env("TAHTI_GUEST", linux)
        .env("TAHTI_LIBVIRT_SCHEMAS", "/usr/share/libvirt/schemas")
        .run(Show::Live)
}

/// Features that few need, in one build of the program.
fn beyond() -> Outcome {
    peers::debian(&["openssl", "curl"])?;
    let features = vec!["cli/fabric".into(), "cli/cassandra".into(), "cli/tls".into()];
    let programs = vec!["fabric".into(), "soak".into(), "cassandra".into(), "dashboard_tls".into()];
    let (jars, java) = (cassandra_jars()?, peers::java_17()?);
    let suite = Suite { features, programs, ..Suite::default() };
    suite.env("TAHTI_CASSANDRA", jars).env("TAHTI_JAVA", java).run(Show::Live)
}

pub(crate) fn cassandra_jars() -> Result<PathBuf, String> {
    peers::java_program("org.apache.cassandra", "cassandra-all", "5.0.6")
}

/// Real nodes, on loopback addresses, one test at a time: each takes half a gibibyte. In a target folder of its own, as
/// what speaks with them brings features of common crates that nothing else has.
fn cassandra() -> Outcome {
    let words =
        ["test", "--package", "cassandra", "--features", "driver", "--quiet", "--target-dir", "target/cassandra"];
    let mut command = cargo(words);
    command.args(["--", "--test-threads=1"]);
    run(command.env("TAHTI_CASSANDRA", cassandra_jars()?).env("TAHTI_JAVA", peers::java_17()?))
}

/// In a target folder of its own: built alone, the common crates have fewer features.
fn tls() -> Outcome {
    peers::debian(&["openssl", "curl"])?;
    run(&mut cargo(["test", "--package", "web", "--features", "tls", "--quiet", "--target-dir", "target/tls"]))
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
    let wanted: Vec<&Stage> =
        STAGES.iter().filter(|stage| names.is_empty() || names.iter().any(|name| name == stage.name)).collect();
    let beside: Vec<&str> = wanted.iter().filter(|stage| stage.beside).map(|stage| stage.name).collect();
    let alone = beside.len() == wanted.len();
    let (mut background, mut begun) = (None, false);
    let mut ends = Vec::new();
    for stage in wanted {
        if stage.needs_root && unprivileged {
            ends.push((stage.name.to_owned(), "DID NOT RUN (--unprivileged)".to_owned(), Ok(())));
            continue;
        }
        if stage.beside && !alone {
            if !begun {
                begun = true;
                match Background::start(&beside) {
                    Ok(started) => background = Some(started),
                    Err(error) => ends.push((beside.join(", "), "FAILED".to_owned(), Err(error))),
                }
            }
            continue;
        }
        println!("\n== {}: {}", stage.name, stage.what);
        let (start, used) = (Instant::now(), cpu_seconds());
        let outcome = (stage.run)();
        println!("{} {}", stage.name, word(&outcome));
        ends.push((stage.name.to_owned(), how(&outcome, start, used), outcome));
    }
    if let Some(background) = background {
        ends.push(background.end());
    }
    println!();
    for (name, how, _) in &ends {
        println!("{name:<10} {how}");
    }
    let failed = |(name, _, outcome): (String, String, Outcome)| {
        outcome.map_err(|error| format!("stage {name} failed: {error}"))
    };
    all(ends.into_iter().map(failed))
}

fn word(outcome: &Outcome) -> &'static str {
    if outcome.is_ok() { "passed" } else { "FAILED" }
}

/// How a stage ended that began at `start`, when [`cpu_seconds`] were `used`.
fn how(outcome: &Outcome, start: Instant, used: f64) -> String {
    let (took, used) = (start.elapsed().as_secs_f64(), cpu_seconds() - used);
    let mut how = format!("{} in {took:.1} s, {used:.0} s of a CPU", word(outcome));
    for name in take_passed_again() {
        how += &format!("\n           ONLY WHEN RUN AGAIN: {name}");
    }
    how
}

/// Stages in a process of their own, which says what it has to say at its end.
struct Background {
    names: String,
    start: Instant,
    child: Child,
    said: File,
}

impl Background {
    fn start(names: &[&str]) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("{} could not be started: {error}", names.join(", "));
        let path = root().join("target/beside.txt");
        let said = File::options().read(true).write(true).create(true).truncate(true).open(path).map_err(wrong)?;
        // Not by its path: a stage may have built another in its place.
        let mut command = Command::new("/proc/self/exe");
        command.arg("test").args(names).stdin(Stdio::null());
        command.stdout(said.try_clone().map_err(wrong)?).stderr(said.try_clone().map_err(wrong)?);
        println!("\n== {}: beside what follows; what they say comes at their end", names.join(", "));
        let child = command.spawn().map_err(wrong)?;
        // The others compare with programs of C that behave differently where they must wait for a CPU.
        if let Err(why) = run(Command::new("renice").args(["-n", "19", "-p"]).arg(child.id().to_string())) {
            println!("{why}: they take as much of the CPUs as the others");
        }
        Ok(Self { names: names.join(", "), start: Instant::now(), child, said })
    }

    /// Waits until now, so that its time on the CPUs is not taken for that of a stage.
    fn end(mut self) -> (String, String, Outcome) {
        let used = cpu_seconds();
        let ended = self.child.wait();
        let mut said = String::new();
        let read = self.said.rewind().and_then(|()| self.said.read_to_string(&mut said));
        println!("{said}");
        let outcome = match (ended, read) {
            (Ok(status), Ok(_)) if status.success() => Ok(()),
            (Ok(status), Ok(_)) => Err(format!("ended with {status}")),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        };
        let how = how(&outcome, self.start, used) + ", beside others";
        (self.names, how, outcome)
    }
}
