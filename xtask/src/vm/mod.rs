//! `cargo xtask test-vm`: runs ordinary test binaries on other kernels, in QEMU guests.
//!
//! The guest's root is the host's file system, read-only below an overlay. The guest's writes are lost when it ends, and
//! the host does not change. The command needs no root, but in the guest it cannot read files that only root can read.

mod guests;
mod kernel;
mod qemu;

use crate::again;
use crate::peers;
use crate::record;
use crate::run::{self, ARM, Outcome, all, output, root};
use crate::suite;
use guests::{GUESTS, Guest, Hardware, Tests, Thread};
use kernel::Bootable;
use qemu::{Job, Test, Verdict};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const OPTIONS: &str = "--list, --only GUEST[,GUEST], --test PART or --run COMMAND";

/// Prefix of test binaries whose every test must run in some guest.
const GUEST_ONLY: &str = "guest_";

/// Runs the named guests, or all of them. Continues after a failure and reports all outcomes at the end.
pub(crate) fn main(args: Vec<String>) -> Outcome {
    let mut only: Vec<String> = Vec::new();
    let mut list = false;
    let mut test: Option<String> = None;
    let mut command: Option<String> = None;
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => list = true,
            "--only" => only.extend(args.next().ok_or("--only needs a guest's name")?.split(',').map(str::to_owned)),
            "--test" => test = Some(args.next().ok_or("--test needs a part of a test's name")?),
            "--run" => command = Some(args.next().ok_or("--run needs a command line")?),
            other => return Err(format!("unknown option {other}: expected {OPTIONS}")),
        }
    }
    if let Some(unknown) = only.iter().find(|name| GUESTS.iter().all(|guest| guest.name != **name)) {
        let known = GUESTS.iter().map(|guest| guest.name).collect::<Vec<_>>().join(", ");
        return Err(format!("unknown guest {unknown:?}: expected one of {known}"));
    }
    let wanted: Vec<&Guest> =
        GUESTS.iter().filter(|guest| only.is_empty() || only.iter().any(|name| name == guest.name)).collect();
    if list {
        for guest in wanted {
            println!("{:<10} {}", guest.name, guest.what);
        }
        return Ok(());
    }
    if let Some(command) = command {
        return wanted.iter().try_for_each(|guest| run_command(guest, &command));
    }
    run_all(&wanted, test.as_deref().unwrap_or_default())
}

/// Runs a shell command in a guest and prints its output, to inspect a kernel before writing a test.
fn run_command(guest: &Guest, command: &str) -> Outcome {
    let kernel = kernel::ready(guest.kernel)?;
    let place = root().join("target/vm/out").join(guest.name);
    let xen = xen_of(guest)?.map(|(image, _)| image);
    let other = linuxptp_of(guest)?.map(|folder| ptp_master(&folder));
    let (xen, other) = (xen.as_deref(), other.as_deref());
    let job = Job { guest, kernel: &kernel, xen, script: command.to_owned(), results: 0, place: &place, other };
    let outcome = qemu::boot(&job, |_, _| ());
    let log = std::fs::read(place.join("log")).unwrap_or_default();
    print!("{}", String::from_utf8_lossy(&log));
    outcome
}

/// The Xen image and the folders of its tools; `None` for a guest without Xen.
fn xen_of(guest: &Guest) -> Result<Option<(PathBuf, Vec<PathBuf>)>, String> {
    (guest.hardware == Hardware::Xen).then(kernel::xen).transpose()
}

/// The folder of linuxptp's programs; `None` for a guest without a wire.
fn linuxptp_of(guest: &Guest) -> Result<Option<PathBuf>, String> {
    let folder = (guest.hardware == Hardware::Wire).then(|| peers::unpacked("linuxptp")).transpose()?;
    Ok(folder.map(|folder| folder.join("usr/sbin")))
}

/// The script of the guest at the other end of a wire: a PTP master with software time stamps, which are slow in QEMU.
fn ptp_master(linuxptp: &Path) -> String {
    format!("ip link set eth1 up\n{}/ptp4l -2 -S -i eth1 -m --tx_timestamp_timeout=1000\n", linuxptp.display())
}

fn run_all(wanted: &[&Guest], part: &str) -> Outcome {
    let irqbalance = peers::unpacked("irqbalance")?.join("usr/sbin/irqbalance");
    let (foreign, own): (Vec<&Guest>, Vec<&Guest>) = wanted.iter().partition(|guest| guest.kernel.target().is_some());
    let binaries = if part.is_empty() && wanted.len() == GUESTS.len() {
        let binaries = record::timed(suite::BUILDING, build)?;
        complete(&binaries)?;
        binaries
    } else {
        build_some(&own, part, None)?
    };
    let for_arm = record::timed(suite::BUILDING, || build_some(&foreign, part, Some(ARM)))?;
    let mut rounds = Vec::new();
    for guest in wanted {
        let binaries = if guest.kernel.target().is_some() { &for_arm } else { &binaries };
        let environment = environment(binaries, &irqbalance);
        let tests = select(guest, binaries, part)?;
        if !tests.is_empty() {
            let mut environment = environment.clone();
            let xen = xen_of(guest)?.map(|(image, tools)| {
                let tools: Vec<_> = tools.iter().map(|folder| folder.display().to_string()).collect();
                environment.push(("TAHTI_XEN", tools.join(":")));
                image
            });
            if xen.is_some() {
                environment.push(("TAHTI_GUEST", peers::small_linux()?.display().to_string()));
            }
            let linuxptp = linuxptp_of(guest)?;
            environment.extend(linuxptp.iter().map(|folder| ("TAHTI_PTP", folder.display().to_string())));
            let other = linuxptp.as_deref().map(ptp_master);
            rounds.push(Round { guest, kernel: kernel::ready(guest.kernel)?, xen, other, tests, environment });
        }
    }
    if rounds.is_empty() {
        return Err(format!("no test of these guests has {part:?} in its name"));
    }
    let start = Instant::now();
    // A guest on one emulator thread uses one CPU. A guest on several threads runs alone, with all CPUs.
    let (single, multi): (Vec<_>, Vec<_>) = rounds.iter().partition(|round| round.guest.thread == Thread::Single);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports = side_by_side(&single, cpus);
    reports.extend(side_by_side(&multi, 1));
    reports = reports.into_iter().map(Report::once_more).collect();
    let passed: usize = reports.iter().map(|report| report.passed).sum();
    let failures: Vec<String> = reports.into_iter().flat_map(|report| report.failures).collect();
    println!("\n{passed} passed, {} failed, {:.0} s", failures.len(), start.elapsed().as_secs_f64());
    all(failures.into_iter().map(Err))
}

/// Runs rounds, at most `at_once` at a time.
fn side_by_side<'a>(rounds: &[&'a Round<'a>], at_once: usize) -> Vec<Report<'a>> {
    let (next, reports) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(rounds.len()) {
            scope.spawn(|| {
                while let Some(round) = rounds.get(next.fetch_add(1, Relaxed)) {
                    let report = round.run();
                    reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                }
            });
        }
    });
    reports.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One boot of one guest with its tests.
#[derive(Clone)]
struct Round<'a> {
    guest: &'a Guest,
    kernel: Bootable,
    xen: Option<PathBuf>,
    /// Script of the guest at the other end of the wire.
    other: Option<String>,
    tests: Vec<Test>,
    environment: Vec<(&'static str, String)>,
}

/// The outcome of a round.
struct Report<'a> {
    round: &'a Round<'a>,
    passed: usize,
    /// The tests that failed or did not end.
    open: Vec<Test>,
    failures: Vec<String>,
}

impl Report<'_> {
    /// Repeats the failed tests in a separate boot, if all of them have a second chance: see [`crate::again`].
    fn once_more(mut self) -> Self {
        if self.open.is_empty() || !self.open.iter().all(|test| again::is_listed(&test.name)) {
            return self;
        }
        println!("once more:");
        let again = Round { tests: self.open.clone(), ..self.round.clone() };
        let Report { passed, failures, .. } = again.run();
        if failures.is_empty() {
            self.passed += passed;
            let names = self.open.drain(..).map(|test| format!("{} in guest {}", test.shown, again.guest.name));
            record::again(names);
            self.failures.clear();
        } else {
            self.failures.extend(failures);
        }
        self
    }
}

impl Round<'_> {
    fn run(&self) -> Report<'_> {
        let Self { guest, tests, .. } = self;
        println!("{}: {} ({})", guest.name, guest.what, guest.kernel.name());
        let place = root().join("target/vm/out").join(guest.name);
        let mut verdicts: Vec<Option<Verdict>> = tests.iter().map(|_| None).collect();
        let booted = Instant::now();
        let script = qemu::run_script(tests, &self.environment);
        let (xen, other) = (self.xen.as_deref(), self.other.as_deref());
        let job = Job { guest, kernel: &self.kernel, xen, script, results: tests.len(), place: &place, other };
        let outcome = qemu::boot(&job, |index, verdict| {
            let word = if verdict.passed() { "ok" } else { "FAILED" };
            println!("  {:<6} {:>5.1} s  {}: {}", word, verdict.seconds, guest.name, tests[index].shown);
            verdicts[index] = Some(verdict.clone());
        });
        let mut report = Report { round: self, passed: 0, open: Vec::new(), failures: Vec::new() };
        let mut missing = Vec::new();
        for (index, test) in tests.iter().enumerate() {
            match &verdicts[index] {
                Some(verdict) if verdict.passed() => report.passed += 1,
                Some(verdict) => {
                    let log = std::fs::read(place.join(format!("{index}.log"))).unwrap_or_default();
                    let log = String::from_utf8_lossy(&log).into_owned();
                    let status = verdict.status.map_or("no status".to_owned(), |status| format!("status {status}"));
                    report
                        .failures
                        .push(format!("--- {} in guest {} ended with {status}\n{log}", test.shown, guest.name));
                }
                None => missing.push(test.shown.as_str()),
            }
            if !verdicts[index].as_ref().is_some_and(Verdict::passed) {
                report.open.push(test.clone());
            }
        }
        let seconds = booted.elapsed().as_secs_f64();
        println!("{}: {} tests, {seconds:.1} s with the boot", guest.name, tests.len());
        record::program(&format!("guest {}", guest.name), seconds);
        if let Err(error) = outcome {
            let missing = missing.join("\n  ");
            report.failures.push(format!("--- guest {}: {error}\n--- no result from\n  {missing}", guest.name));
        }
        report
    }
}

/// The built test binaries by crate and target, and the program itself as `("tahti", "bin")`.
type Binaries = BTreeMap<(String, String), PathBuf>;

/// The integration tests that run in guests.
pub(crate) fn tests() -> Vec<&'static str> {
    let rows = GUESTS.iter().flat_map(|guest| guest.tests);
    let mut targets: Vec<&str> = rows.map(|tests| tests.target).filter(|target| *target != "lib").collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Builds the program and the test binaries of every crate in the table, with their guest tests.
fn build() -> Result<Binaries, String> {
    let targets = tests();
    println!("building the tests: {}", targets.join(", "));
    let messages = ["--quiet", "--message-format", "json-render-diagnostics"];
    let mut tests = suite::for_tests("test")?;
    tests.args(["--no-run", "--lib"]).args(targets.iter().flat_map(|target| ["--test", target])).args(messages);
    let mut binaries = Binaries::new();
    collect(&output(&mut tests)?, &mut binaries);
    collect(&output(suite::for_tests("build")?.args(messages))?, &mut binaries);
    Ok(binaries)
}

/// As [`build`], but only the packages of these guests, for a target other than the host's if there is one.
fn build_some(wanted: &[&Guest], part: &str, target: Option<&str>) -> Result<Binaries, String> {
    let rows = || wanted.iter().flat_map(|guest| guest.tests);
    // `part` may be part of a package and its program, or of a test. Only the program has the names of its tests.
    let named = |row: &&Tests| {
        let program = format!("{} {} ", row.package, row.target);
        program.contains(part) || part.contains(&program)
    };
    let all = !rows().any(|row| named(&row));
    let rows: Vec<&Tests> = rows().filter(|row| all || named(row)).collect();
    let mut binaries = Binaries::new();
    let messages = ["--quiet", "--message-format", "json-render-diagnostics"];
    if target.is_some() && !rows.is_empty() {
        run::add_target(ARM)?;
        run::add_target(run::ARM_PRELOAD)?;
    }
    let cargo = |verb, packages: &[&str]| {
        let mut command = suite::of_packages(verb, packages)?;
        if target.is_some() {
            run::for_arm(&mut command);
        }
        Ok::<_, String>(command)
    };
    let mut packages: Vec<&str> = rows.iter().map(|row| row.package).collect();
    packages.sort_unstable();
    packages.dedup();
    for package in &packages {
        let mut command = cargo("test", &[package])?;
        command.arg("--no-run").args(messages);
        let mut targets: Vec<&str> = rows.iter().filter(|row| row.package == *package).map(|row| row.target).collect();
        targets.sort_unstable();
        targets.dedup();
        println!("building the tests of {package}: {}", targets.join(", "));
        for target in targets {
            match target {
                "lib" => command.arg("--lib"),
                target => command.args(["--test", target]),
            };
        }
        collect(&output(&mut command)?, &mut binaries);
    }
    let starts = |row: &&Tests| ["capi", "cli"].contains(&row.package) || row.target == "guest_shield";
    if rows.iter().any(starts) {
        collect(&output(cargo("build", &["cli"])?.args(messages))?, &mut binaries);
    }
    Ok(binaries)
}

/// Adds the executables that cargo's messages list.
fn collect(messages: &str, binaries: &mut Binaries) {
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(executable) = message["executable"].as_str() else { continue };
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        let target = match (kind, is_test) {
            ("lib", true) => "lib",
            ("bin", false) => "bin",
            ("test", true) => name,
            _ => continue,
        };
        // A package's id ends in `#name@version`, or `/name#version` where folder and crate share the name.
        let id = message["package_id"].as_str().unwrap_or_default();
        let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
        let named = fragment.split_once('@').map(|(name, _)| name);
        let package = named.unwrap_or_else(|| path.rsplit('/').next().unwrap_or_default());
        binaries.insert((package.to_owned(), target.to_owned()), executable.into());
    }
}

/// Environment variables for the tests: paths of the program and its peers.
fn environment(binaries: &Binaries, irqbalance: &Path) -> Vec<(&'static str, String)> {
    let program = binaries.get(&("cli".to_owned(), "bin".to_owned()));
    let places = program.map(|path| ("TAHTI", path.as_path())).into_iter().chain([("IRQBALANCE", irqbalance)]);
    places.map(|(name, path)| (name, path.display().to_string())).collect()
}

/// The tests of this guest that were built, in the table's order.
fn select(guest: &Guest, binaries: &Binaries, part: &str) -> Result<Vec<Test>, String> {
    let mut found = Vec::new();
    let built = |tests: &&Tests| binaries.contains_key(&(tests.package.to_owned(), tests.target.to_owned()));
    for tests in guest.tests.iter().filter(built) {
        let names = names(tests, binaries, guest.kernel.target())?;
        if names.is_empty() {
            return Err(format!(
                "guest {}: no test of {} {} begins with {:?}",
                guest.name, tests.package, tests.target, tests.prefix
            ));
        }
        let binary = &binaries[&(tests.package.to_owned(), tests.target.to_owned())];
        for name in names {
            let shown = format!("{} {} {name}", tests.package, tests.target);
            if shown.contains(part) {
                found.push(Test { shown, binary: binary.clone(), name });
            }
        }
    }
    Ok(found)
}

/// The names of a row's tests, listed by the test binary, in the emulator if its target is not the host's.
fn names(tests: &Tests, binaries: &Binaries, target: Option<&str>) -> Result<Vec<String>, String> {
    let key = (tests.package.to_owned(), tests.target.to_owned());
    let binary = binaries.get(&key).ok_or_else(|| format!("crate {} has no test {}", tests.package, tests.target))?;
    let mut command = match target {
        None => Command::new(binary),
        Some(_) => Command::new(run::ARM_EMULATOR),
    };
    let text = output(command.args(target.map(|_| binary)).args(["--list", "--format", "terse"]))?;
    let all = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(all.filter(|name| name.starts_with(tests.prefix)).map(str::to_owned).collect())
}

/// Reports tests that run only in guests but are in no guest's row: they would never fail.
fn complete(binaries: &Binaries) -> Outcome {
    let mut orphans = Vec::new();
    for (package, target) in binaries.keys().filter(|(_, target)| target.starts_with(GUEST_ONLY)) {
        let all =
            output(Command::new(&binaries[&(package.clone(), target.clone())]).args(["--list", "--format", "terse"]))?;
        let rows =
            || GUESTS.iter().flat_map(|guest| guest.tests).filter(|row| row.package == package && row.target == target);
        let names = all.lines().filter_map(|line| line.strip_suffix(": test"));
        orphans.extend(
            names
                .filter(|name| !rows().any(|row| name.starts_with(row.prefix)))
                .map(|name| format!("{package} {target} {name}")),
        );
    }
    if orphans.is_empty() {
        Ok(())
    } else {
        Err(format!("these tests run in no guest of the table:\n{}", orphans.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_taken_from_cargo_s_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/ground/sys#0.1.0","target":{"kind":["lib"],"name":"sys"},"profile":{"test":true},"executable":"/t/sys-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/kit#testkit@0.1.0","target":{"kind":["test"],"name":"guest_machine"},"profile":{"test":true},"executable":"/t/g-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/ground/sys#0.1.0","target":{"kind":["lib"],"name":"sys"},"profile":{"test":false},"executable":null}"#,
            "\nnot json\n"
        );
        let mut binaries = Binaries::new();
        collect(messages, &mut binaries);
        let keys: Vec<_> = binaries.keys().map(|(package, target)| format!("{package} {target}")).collect();
        assert_eq!(keys, ["sys lib", "testkit guest_machine"]);
    }

    #[test]
    fn guests_have_unique_names() {
        let mut names: Vec<_> = GUESTS.iter().map(|guest| guest.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GUESTS.len());
    }
}
