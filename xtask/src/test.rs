//! The stages of the test command. Each is a row of one table: its purpose, its tests, the programs that it may start, and its
//! function.

use crate::appliance;
use crate::bindings;
use crate::browser;
use crate::epics;
use crate::fuzz;
use crate::programs::{self, Package, package};
use crate::run::{ARM, ARM_EMULATOR, Outcome, add_target, all, cargo, for_arm, root, run};
use crate::suite::{Show, Suite, for_tests};
use crate::{peers, targets, tidy, vm};
use std::path::PathBuf;
use std::process::Command;

/// One stage of the test command.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// The subject of the stage's tests, for the report.
    pub(crate) what: &'static str,
    /// The stage is part of the gate, which CI runs. `--all` runs the other stages, too.
    pub(crate) in_gate: bool,
    /// The integration tests that this stage declares. See [`crate::targets`] for those that no stage declares.
    pub(crate) tests: fn() -> Vec<&'static str>,
    /// The Debian packages that it needs, in addition to those of every stage. Other programs are not in its `PATH`.
    pub(crate) needs: &'static [Package],
    /// The stage changes the machine and restores it, so it must run as root.
    pub(crate) needs_root: bool,
    /// The stage runs in parallel with the stages after it. It builds in a separate folder, and its tests do not depend on
    /// timing. It mostly compiles, at low priority; the other stages mostly wait.
    pub(crate) beside: bool,
    pub(crate) run: fn() -> Outcome,
}

/// Default values of a stage.
const STAGE: Stage = Stage {
    name: "",
    what: "",
    in_gate: false,
    tests: Vec::new,
    needs: &[],
    needs_root: false,
    beside: false,
    run: || Ok(()),
};

/// Programs to send signals and to list processes.
const PROCPS: Package = package("procps", &["kill", "ps"]);
const PKG_CONFIG: Package = package("pkg-config", &["pkg-config"]);
const PYTHON: Package = package("python3", &["python3"]);
/// Module for Python's virtual environments.
const VENV: Package = package("python3-venv", &[]);
/// Programs for network namespaces.
const IPROUTE: Package = package("iproute2", &["ip", "tc"]);
const MOUNT: Package = package("mount", &["mount", "umount"]);
const JAVA: Package = package("default-jdk-headless", &["java", "javac"]);
const MAVEN: Package = package("maven", &["mvn"]);
/// Some programs need this version and fail with newer ones.
const JAVA_17: Package = package("openjdk-17-jre-headless", &[]);
const NODE: Package = package("nodejs", &["node"]);
/// If Node is not from Debian, it comes with npm, and Debian's npm package conflicts with it.
const NPM: Package = package("npm", &["npm"]);
const CHROMIUM: Package = package("chromium-headless-shell", &[]);
const OPENSSL: Package = package("openssl", &["openssl"]);
const CURL: Package = package("curl", &["curl"]);
const CPLUSPLUS: Package = package("g++", &["c++", "g++"]);
const APT: Package = package("apt", &["apt-cache", "apt-get"]);
const QEMU: Package = package("qemu-system-x86", &["qemu-system-x86_64"]);
const QEMU_USER: Package = package("qemu-user", &[ARM_EMULATOR]);
const BUSYBOX: Package = package("busybox-static", &["busybox"]);

pub(crate) const STAGES: &[Stage] = &[
    Stage { name: "fmt", what: "formatting", in_gate: true, run: formatting, ..STAGE },
    Stage { name: "tidy", what: "the house rules", in_gate: true, run: tidy::main, ..STAGE },
    Stage { name: "clippy", what: "lints", in_gate: true, run: clippy, ..STAGE },
    Stage {
        name: "unit",
        what: "unit tests, examples in documentation, and short tests of whole processes",
        in_gate: true,
        needs: &[PROCPS, PYTHON, PKG_CONFIG],
        run: unit,
        ..STAGE
    },
    Stage {
        name: "root",
        what: "the shield, the guard and other tests that change the real machine and restore it",
        in_gate: true,
        tests: || {
            vec![
                "root_bounds",
                "root_exec",
                "root_family",
                "root_guard",
                "root_holes",
                "root_ioc",
                "root_launch",
                "root_locks",
                "root_shield",
                "root_state",
                "root_strangers",
            ]
        },
        needs: &[PROCPS, PYTHON, IPROUTE, MOUNT],
        needs_root: true,
        run: || one_at_a_time("root"),
        ..STAGE
    },
    Stage { name: "doc", what: "documentation builds without warnings", in_gate: true, run: doc, ..STAGE },
    Stage {
        name: "features",
        what: "lints and documentation with all features, and lints of the released packages",
        run: features,
        ..STAGE
    },
    Stage {
        name: "whole",
        what: "the longest tests of whole processes and teams, and of damaged archives",
        tests: || vec!["ao", "init", "madoca", "plant", "team", "verdict", "verdict_services", "zmq"],
        needs: &[PROCPS, PYTHON, PKG_CONFIG],
        run: whole,
        ..STAGE
    },
    Stage {
        name: "machine",
        what: "all other tests that change the real machine and restore it",
        needs: &[
            PROCPS,
            PYTHON,
            IPROUTE,
            MOUNT,
            NODE,
            NPM,
            CHROMIUM,
            package("e2fsprogs", &["fsck.ext4", "mkfs.ext4"]),
        ],
        needs_root: true,
        run: machine,
        ..STAGE
    },
    Stage {
        name: "vm",
        what: "tests that need other kernels, in QEMU guests",
        tests: vm::tests,
        needs: &[
            PROCPS,
            PYTHON,
            APT,
            QEMU,
            BUSYBOX,
            QEMU_USER,
            package("qemu-system-arm", &["qemu-system-aarch64"]),
            package("kmod", &["depmod", "modprobe"]),
            package("xz-utils", &["xz"]),
            // Programs of the host that guests start, found by the guest's own PATH.
            IPROUTE,
            MOUNT,
            package("systemd", &["systemctl", "systemd-run"]),
        ],
        needs_root: true,
        run: || vm::main(Vec::new()),
        ..STAGE
    },
    Stage {
        name: "guests",
        what: "virtual machines as members of a plant, in QEMU",
        tests: || vec!["guests"],
        needs: &[
            PROCPS,
            PYTHON,
            APT,
            QEMU,
            BUSYBOX,
            package("qemu-utils", &["qemu-img"]),
            package("libvirt0", &[]),
            package("libxml2-utils", &["xmllint"]),
            package("libxen-dev", &[]),
        ],
        run: guests,
        ..STAGE
    },
    Stage {
        name: "loom",
        what: "shared-memory blocks under every order of memory accesses",
        tests: || vec!["loom"],
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
        what: "arithmetic, formats and protocols on 64-bit Arm, emulated",
        needs: &[QEMU_USER],
        beside: true,
        run: neon,
        ..STAGE
    },
    Stage {
        name: "fuzz",
        what: "a few seconds of each fuzz target",
        needs: &[CPLUSPLUS],
        beside: true,
        run: fuzz::smoke,
        ..STAGE
    },
    Stage {
        name: "epics",
        what: "databases, servers and tools compared with C EPICS",
        tests: epics::tests,
        needs: &[PROCPS, PYTHON, VENV, JAVA, MAVEN],
        run: epics::main,
        ..STAGE
    },
    Stage {
        name: "networks",
        what: "Channel Access between hosts compared with C EPICS, in network namespaces",
        tests: || vec!["ca_hosts"],
        needs: &[PROCPS, PYTHON, VENV, IPROUTE, MOUNT],
        needs_root: true,
        run: epics::networks,
        ..STAGE
    },
    Stage {
        name: "appliance",
        what: "the archive with other projects' clients of the EPICS Archiver Appliance and readers of Parquet",
        tests: appliance::tests,
        needs: &[PROCPS, PYTHON, VENV],
        run: appliance::main,
        ..STAGE
    },
    Stage {
        name: "tls",
        what: "HTTPS with OpenSSL and curl, notifications of alarms over TLS",
        tests: || vec!["tls"],
        needs: &[OPENSSL, CURL],
        run: tls,
        ..STAGE
    },
    Stage {
        name: "bindings",
        what: "libtahti as CMake, pkg-config and pip find it, with the examples in C and C++",
        tests: || vec!["numpy"],
        needs: &[PROCPS, PYTHON, VENV, CPLUSPLUS, package("cmake", &["cmake"]), package("make", &["make"]), PKG_CONFIG],
        run: bindings::main,
        ..STAGE
    },
    Stage {
        name: "browser",
        what: "the dashboard's page in Chromium, panel by panel; its metrics read by Prometheus",
        tests: || vec!["dashboard_page", "dashboard_prometheus"],
        needs: &[PROCPS, NODE, NPM, CHROMIUM, APT],
        run: browser::main,
        ..STAGE
    },
    Stage {
        name: "beyond",
        what: "beyond one machine: messages between hosts, whose links are cut and restored; a logger whose node of Cassandra is killed; the dashboard by TLS",
        tests: || vec!["cassandra", "dashboard_tls", "fabric", "soak"],
        needs: &[PROCPS, PYTHON, OPENSSL, CURL, JAVA, MAVEN, JAVA_17, IPROUTE, MOUNT],
        needs_root: true,
        run: beyond,
        ..STAGE
    },
    Stage {
        name: "cassandra",
        what: "the archive in nodes of Cassandra, which are killed while it is written",
        tests: || vec!["cluster"],
        needs: &[JAVA, MAVEN, JAVA_17],
        beside: true,
        run: cassandra,
        ..STAGE
    },
];

/// Formatting, including files that a macro declares, which `cargo fmt` does not find.
fn formatting() -> Outcome {
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    let crates = tidy::files()?.into_iter().filter(|file| file.starts_with(root().join("crates")));
    let rust = crates.filter(|file| file.extension().is_some_and(|e| e == "rs"));
    // Do not print the command line: it has hundreds of file names.
    let status = Command::new("rustfmt").args(["--check", "--edition", "2024"]).args(rust).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`rustfmt --check` of all files of crates ended with {status}")),
        Err(error) => Err(format!("`rustfmt` could not be started: {error}")),
    }
}

/// Checks the packages and features that the tests build.
fn clippy() -> Outcome {
    run(for_tests("clippy")?.args(["--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    // The build script of `heap` compiles this file, so it is not a target of cargo.
    let out = root().join("target/lint");
    let mut driver = Command::new("clippy-driver");
    driver.args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "tahti_heap", "--emit=metadata"]);
    driver.args(["-C", "panic=abort", "-W", "clippy::all", "-W", "unsafe_op_in_unsafe_fn"]);
    driver.args(["-W", "clippy::undocumented_unsafe_blocks", "-W", "clippy::multiple_unsafe_ops_per_block"]);
    driver.args(["-D", "warnings", "--out-dir"]).arg(out).arg("crates/measure/heap/preload/heap.rs");
    run(&mut driver)
}

/// Lints and documentation of the optional features, and lints of the released packages, which have no features.
fn features() -> Outcome {
    all([
        run(&mut cargo([
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ])),
        run(&mut cargo(["clippy", "--package", "cli", "--package", "capi", "--quiet", "--", "-D", "warnings"])),
        run(documentation(&mut cargo(["doc", "--workspace", "--all-features"]))),
    ])
}

/// Test programs first. Cargo runs the examples in documentation separately.
fn unit() -> Outcome {
    // Some tests start examples as programs.
    run(for_tests("build")?.args(["--examples", "--quiet"]))?;
    let kinds = &["--lib", "--bins", "--examples"];
    let programs = Suite { kinds, ..Suite::of("unit")? }.run(Show::Live);
    let examples = Suite { kinds: &["--doc"], ..Suite::default() }.run(Show::Live);
    all([programs, examples])
}

/// Tests that start a plant, or all programs of a tutorial, and wait for them; and all cases of damage to an archive, of
/// which the gate tries a part.
fn whole() -> Outcome {
    // Some tests start examples as programs.
    run(for_tests("build")?.args(["--examples", "--quiet"]))?;
    let damage = Suite { programs: vec!["proof".to_owned()], ..Suite::default() }.env("TAHTI_PROOF_CASES", "10000");
    all([Suite::of("whole")?.run(Show::Live), damage.run(Show::Live)])
}

/// Uses a separate target folder, because the flag would rebuild everything else each time.
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

/// Adds miri to the nightly toolchain and runs it. Without a nightly toolchain, prints that it did not run.
fn miri() -> Outcome {
    let miri = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
    if !peers::nightly() || run(Command::new("rustup").args(miri)).is_err() {
        println!(
            "DID NOT RUN: no nightly toolchain with miri here (rustup toolchain install nightly --component miri)"
        );
        return Ok(());
    }
    // Tests of whole pages take minutes under miri, and pages consist of the same blocks.
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
        // A case takes a second under miri. The unit tests and the fuzzer cover other orders of bytes.
        command.args(words).env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "16");
        run(command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO"))?;
    }
    Ok(())
}

/// Adds the target, which needs no C library for that processor. Without rustup's target, prints that it did not run.
/// Packages whose tests run in the emulator of 64-bit Arm: arithmetic, formats and protocols. Tests of the kernel run in a guest.
const EMULATED: [&str; 10] = ["kernels", "optics", "base", "ring", "table", "ca", "pva", "db", "segment", "frame"];

fn neon() -> Outcome {
    add_target(ARM)?;
    let packages = EMULATED.iter().flat_map(|package| ["--package", package]);
    let mut command = cargo(["test", "--lib", "--tests", "--quiet", "--target-dir", "target/neon"]);
    run(for_arm(command.args(packages)))
}

/// Tests of a stage behind the feature `root-tests`. They share the machine.
fn one_at_a_time(stage: &str) -> Outcome {
    as_root(stage)?.run(Show::Live)
}

fn machine() -> Outcome {
    as_root("machine")?.env(browser::VARIABLE, browser::modules()?).run(Show::Live)
}

/// The tests of a stage, one at a time.
fn as_root(stage: &str) -> Result<Suite, String> {
    if !is_root() {
        return Err("this needs root; run as root, or give --unprivileged to list it as not run".into());
    }
    Ok(Suite { words: vec!["--test-threads=1"], ..Suite::of(stage)? })
}

/// Whether this process runs as root.
fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
    })
}

fn guests() -> Outcome {
    let linux = peers::small_linux()?;
    Suite::of("guests")?
        .env("TAHTI_QEMU", "qemu-system-x86_64")
        .env("TAHTI_GUEST", linux)
        .env("TAHTI_LIBVIRT_SCHEMAS", "/usr/share/libvirt/schemas")
        .run(Show::Live)
}

/// Rarely needed features, in one build of the program, with the unit tests of the package that no other stage builds.
fn beyond() -> Outcome {
    let suite = || Suite {
        packages: &["cli", "fabric"],
        features: vec!["cli/fabric".into(), "cli/cassandra".into(), "cli/tls".into()],
        ..Suite::default()
    };
    let (jars, java) = (cassandra_jars()?, peers::java_17()?);
    let programs = Suite { kinds: &["--lib"], programs: targets::tests_of("beyond")?, ..suite() };
    let programs = programs.env("TAHTI_CASSANDRA", jars).env("TAHTI_JAVA", java).run(Show::Live);
    all([programs, Suite { kinds: &["--doc"], ..suite() }.run(Show::Live)])
}

pub(crate) fn cassandra_jars() -> Result<PathBuf, String> {
    peers::java_program("org.apache.cassandra", "cassandra-all", "5.0.6")
}

/// Starts real nodes on loopback addresses, one test at a time, as each node takes 0.5 GiB. Uses a separate target folder,
/// because the driver enables features of common crates that no other package enables.
fn cassandra() -> Outcome {
    let words =
        ["test", "--package", "cassandra", "--features", "driver", "--quiet", "--target-dir", "target/cassandra"];
    let mut command = cargo(words);
    // Most unit tests of the package need the feature.
    command.args(["--lib", "--test", "cluster"]);
    command.args(["--", "--test-threads=1"]);
    run(command.env("TAHTI_CASSANDRA", cassandra_jars()?).env("TAHTI_JAVA", peers::java_17()?))
}

/// Uses a separate target folder, because the common crates have fewer features when the package is built alone.
fn tls() -> Outcome {
    let served = ["test", "--package", "web", "--features", "tls", "--test", "tls"];
    let sent = ["test", "--package", "alarmd", "--features", "tls", "--lib", "notify"];
    let quiet = ["--quiet", "--target-dir", "target/tls"];
    all([run(cargo(served).args(quiet)), run(cargo(sent).args(quiet))])
}

fn doc() -> Outcome {
    run(documentation(&mut for_tests("doc")?))
}

/// Adds the options of a build of the documentation.
fn documentation(command: &mut Command) -> &mut Command {
    command.args(["--no-deps", "--document-private-items", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")
}

/// Installs the packages of a stage, for a command that does not run as a stage.
pub(crate) fn install(stage: &str) -> Outcome {
    STAGES.iter().filter(|row| row.name == stage).try_for_each(|row| programs::install(stage, row.needs))
}
